//! The database against a model: random histories of every operation, on two small tiers in memory,
//! with reopening in between. Every answer must be the model's.
#![allow(clippy::unwrap_used)]

#[path = "guards/closing.rs"]
mod closing;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, Environment, ErrorKind, HybridSettings, PersistentMemory, Preset,
    Settings, Snapshot, Swap, Tier, TransactionOptions, Workers, WriteBatch,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::SystemClock;

const HOME: &str = "/home";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn environment() -> Environment {
    Environment {
        devices: Arc::new(MemoryDevices::new()),
        clock: Arc::new(SystemClock::new()),
        workers: Workers::Threads,
        ..Environment::default()
    }
}

/// So small that a few hundred records pass through every level, or many of them must leave a fast
/// tier of slots.
fn settings(preset: Preset) -> Settings {
    let leveled = Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![
            Tier::new("/fast", ByteSize::mib(64)).driver("memory"),
            Tier::new("/slow", ByteSize::mib(256)).driver("memory"),
        ],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(64),
        background_threads: 1,
        level0_tables: 2,
        ..Settings::default()
    };
    if preset != Preset::Hybrid {
        return Settings { preset: Some(preset), ..leveled };
    }
    let hybrid = HybridSettings { high_watermark_percent: 15, ..HybridSettings::default() };
    let (preset, memory) = (Some(preset), ByteSize::mib(1));
    let mut settings = Settings { preset, memory, hybrid, ..leveled };
    settings.tiers[0].capacity = ByteSize::mib(2);
    settings
}

#[derive(Clone, Debug)]
enum Operation {
    Put(u16, u16),
    Delete(u16),
    Batch(Vec<(u16, Option<u16>)>),
    Get(u16),
    MultiGet(Vec<u16>),
    Scan(u16, u16, bool),
    Flush,
    Compact,
    Reopen,
    Snapshot,
    Ingest(u16, u8),
    /// A put where the key is there, or where it is not.
    PutIf(bool, u16, u16),
    /// A swap of what the key has, or of a value that it never has.
    Swap(u16, bool, Option<u16>),
    Transaction(Vec<(u16, Option<u16>)>, End),
    Checkpoint,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Drop,
    /// Another write of one of its keys comes first, which may be in a table by then.
    Overtaken {
        is_flushed: bool,
    },
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Commit),
        1 => Just(End::Drop),
        1 => any::<bool>().prop_map(|is_flushed| End::Overtaken { is_flushed }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..300u16;
    prop_oneof![
        12 => (key.clone(), 0..2000u16).prop_map(|(k, v)| Operation::Put(k, v)),
        4 => key.clone().prop_map(Operation::Delete),
        4 => prop::collection::vec((key.clone(), prop::option::of(0..500u16)), 0..20)
            .prop_map(Operation::Batch),
        4 => key.clone().prop_map(Operation::Get),
        2 => prop::collection::vec(key.clone(), 0..30).prop_map(Operation::MultiGet),
        3 => (key.clone(), key.clone(), any::<bool>())
            .prop_map(|(a, b, r)| Operation::Scan(a, b, r)),
        2 => Just(Operation::Flush),
        1 => Just(Operation::Compact),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::Snapshot),
        1 => (key.clone(), 1..40u8).prop_map(|(k, n)| Operation::Ingest(k, n)),
        3 => (any::<bool>(), key.clone(), 0..500u16)
            .prop_map(|(present, k, v)| Operation::PutIf(present, k, v)),
        2 => (key.clone(), any::<bool>(), prop::option::of(0..500u16))
            .prop_map(|(k, is_right, v)| Operation::Swap(k, is_right, v)),
        2 => (prop::collection::vec((key, prop::option::of(0..500u16)), 1..12), end())
            .prop_map(|(writes, end)| Operation::Transaction(writes, end)),
        1 => Just(Operation::Checkpoint),
    ]
}

fn key(number: u16) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Values tell which write they are from; some are longer than a block.
fn value(step: usize, len: u16) -> Vec<u8> {
    let len = if len == 7 { 40_000 } else { usize::from(len) };
    format!("{step:08}").into_bytes().into_iter().cycle().take(len.max(8)).collect()
}

fn pairs(
    records: impl IntoIterator<Item = thermocline::Result<(bytes::Bytes, bytes::Bytes)>>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    records.into_iter().map(|r| r.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn check_whole(db: &Db, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(pairs(db.scan()), expected);
    let reversed: Vec<_> = expected.iter().rev().cloned().collect();
    assert_eq!(pairs(db.scan().reverse()), reversed);
}

/// The settings with a region of this name, where their preset wants one.
fn with_region(settings: Settings, place: &tempfile::TempDir, name: &str) -> Settings {
    let path = place.path().join(name);
    let region = PersistentMemory::new(path, ByteSize::mib(24)).driver("emulated-0ns");
    let persistent_memory = Some(region).filter(|_| settings.preset == Some(Preset::Indexed));
    Settings { persistent_memory, ..settings }
}

/// A database and what it should hold, now and at the moments of its snapshots.
struct Pair {
    environment: Environment,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    /// Where the region of persistent memory is, with the preset `indexed`.
    region: tempfile::TempDir,
    /// The presets of the openings that follow, in turns; none: it stays.
    presets: Vec<Preset>,
    /// A checkpoint was opened for writing.
    has_written_copy: bool,
}

impl Pair {
    fn new(preset: Preset, presets: &[Preset]) -> Self {
        let (environment, region) = (environment(), tempfile::tempdir().unwrap());
        let settings = with_region(settings(preset), &region, "region");
        let db = environment.create(Path::new(HOME), &settings).unwrap();
        let (db, model, snapshots) = (Some(db), Model::new(), Vec::new());
        let (presets, has_written_copy) = (presets.to_vec(), false);
        Self { environment, db, model, snapshots, region, presets, has_written_copy }
    }

    /// Opens it again, with the next preset.
    fn reopen(&mut self) {
        self.snapshots.clear();
        let Some(preset) = self.presets.first().copied() else {
            closing::close(self.db.take().unwrap(), "a history goes on");
            self.db = Some(self.environment.open(Path::new(HOME)).unwrap());
            return;
        };
        self.presets.rotate_left(1);
        if self.db().stats().preset == Preset::Hybrid {
            // Records that only slots have are of this preset alone.
            self.db().compact_range(None, None, &mut |_| {}).unwrap();
        }
        closing::close(self.db.take().unwrap(), "a history goes on");
        let settings = Settings { tiers: Vec::new(), ..settings(preset) };
        let settings = with_region(settings, &self.region, "region");
        self.db = Some(self.environment.open_with(Path::new(HOME), &settings).unwrap());
        assert_eq!(self.db().stats().preset, preset);
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn apply(&mut self, step: usize, operation: &Operation) {
        match operation {
            Operation::Put(k, v) => {
                self.db().put(key(*k), value(step, *v)).unwrap();
                self.model.insert(key(*k), value(step, *v));
            }
            Operation::Delete(k) => {
                self.db().delete(key(*k)).unwrap();
                self.model.remove(&key(*k));
            }
            Operation::Batch(writes) => self.batch(step, writes),
            Operation::Get(k) => {
                let got = self.db().get(key(*k)).unwrap();
                assert_eq!(got.as_deref(), self.model.get(&key(*k)).map(Vec::as_slice));
            }
            Operation::MultiGet(keys) => {
                let keys: Vec<_> = keys.iter().map(|k| key(*k)).collect();
                let got = self.db().multi_get(&keys).unwrap();
                for (k, got) in keys.iter().zip(got) {
                    assert_eq!(got.as_deref(), self.model.get(k).map(Vec::as_slice));
                }
            }
            Operation::Scan(a, b, reverse) => self.scan(key(*a.min(b)), key(*a.max(b)), *reverse),
            Operation::Flush => self.db().flush().unwrap(),
            Operation::Compact => self.db().compact_range(None, None, &mut |_| {}).unwrap(),
            Operation::Reopen => {
                self.reopen();
                check_whole(self.db(), &self.model);
            }
            Operation::Snapshot => {
                self.snapshots.push((self.db().snapshot(), self.model.clone()));
                if self.snapshots.len() > 3 {
                    self.snapshots.remove(0);
                }
            }
            Operation::Ingest(first, count) => {
                let mut ingest = self.db().ingest();
                for k in *first..*first + u16::from(*count) {
                    ingest.add(key(k), value(step, 20)).unwrap();
                    self.model.insert(key(k), value(step, 20));
                }
                ingest.finish().unwrap();
            }
            Operation::PutIf(present, k, v) => self.put_if(*present, &key(*k), value(step, *v)),
            Operation::Swap(k, is_right, v) => {
                self.swap(key(*k), *is_right, v.map(|v| value(step, v)));
            }
            Operation::Transaction(writes, end) => self.transaction(step, writes, *end),
            Operation::Checkpoint => self.checkpoint(step),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        match value {
            Some(value) => drop(self.model.insert(key, value)),
            None => drop(self.model.remove(&key)),
        }
    }

    fn put_if(&mut self, present: bool, key: &[u8], value: Vec<u8>) {
        let wrote = match present {
            true => self.db().put_if_present(key, &value),
            false => self.db().put_if_absent(key, &value),
        };
        let is_due = self.model.contains_key(key) == present;
        assert_eq!(wrote.unwrap(), is_due);
        if is_due {
            self.set(key.to_vec(), Some(value));
        }
    }

    fn swap(&mut self, key: Vec<u8>, is_right: bool, new: Option<Vec<u8>>) {
        let had = self.model.get(&key).cloned();
        let expected = if is_right { had.clone() } else { Some(b"never written".to_vec()) };
        let swap = self.db().compare_and_swap(&key, expected.as_deref(), new.as_deref()).unwrap();
        if let Swap::Found(found) = &swap {
            assert_eq!(found.as_deref(), had.as_deref());
        }
        assert_eq!(swap == Swap::Swapped, is_right);
        if is_right {
            self.set(key, new);
        }
    }

    fn transaction(&mut self, step: usize, writes: &[(u16, Option<u16>)], end: End) {
        let db = self.db().clone();
        let mut transaction = db.transaction(TransactionOptions::default());
        let mut own = self.model.clone();
        for (k, v) in writes {
            let key = key(*k);
            let found = transaction.get(&key).unwrap();
            assert_eq!(found.as_deref(), own.get(&key).map(Vec::as_slice));
            match v {
                Some(v) => {
                    transaction.put(&key, value(step, *v)).unwrap();
                    own.insert(key, value(step, *v));
                }
                None => {
                    transaction.delete(&key).unwrap();
                    own.remove(&key);
                }
            }
        }
        assert_eq!(pairs(transaction.scan()), own.clone().into_iter().collect::<Vec<_>>());
        match end {
            End::Commit => {
                transaction.commit().unwrap();
                self.model = own;
            }
            End::Drop => drop(transaction),
            End::Overtaken { is_flushed } => {
                let (key, value) = (key(writes[0].0), value(step, 9));
                db.put(&key, &value).unwrap();
                self.set(key, Some(value));
                if is_flushed {
                    db.flush().unwrap();
                }
                assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Conflict);
            }
        }
    }

    /// A copy has what the store has; the first one is written to as well.
    fn checkpoint(&mut self, step: usize) {
        let copy = format!("/copy-{step}");
        let copy = Path::new(&copy);
        self.db().checkpoint(copy).unwrap();
        let db = self.environment.open_read_only(copy).unwrap();
        check_whole(&db, &self.model);
        drop(db);
        if std::mem::replace(&mut self.has_written_copy, true) {
            return;
        }
        let settings = Settings { tiers: Vec::new(), ..settings(self.db().stats().preset) };
        let settings = with_region(settings, &self.region, "region of the copy");
        let db = self.environment.open_with(copy, &settings).unwrap();
        check_whole(&db, &self.model);
        let mut model = self.model.clone();
        db.put(key(7), value(step, 30)).unwrap();
        model.insert(key(7), value(step, 30));
        db.flush().unwrap();
        check_whole(&db, &model);
        db.close().unwrap();
    }

    fn batch(&mut self, step: usize, writes: &[(u16, Option<u16>)]) {
        let mut batch = WriteBatch::new();
        for (k, v) in writes {
            match v {
                Some(v) => {
                    batch.put(key(*k), value(step, *v));
                    self.model.insert(key(*k), value(step, *v));
                }
                None => {
                    batch.delete(key(*k));
                    self.model.remove(&key(*k));
                }
            }
        }
        self.db().write_with(batch, Durability::Buffered).unwrap();
    }

    fn scan(&self, from: Vec<u8>, to: Vec<u8>, reverse: bool) {
        let range = self.model.range(from.clone()..to.clone());
        let mut expected: Vec<_> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
        let scan = self.db().scan().from(from).to(to);
        let got = if reverse {
            expected.reverse();
            pairs(scan.reverse())
        } else {
            pairs(scan)
        };
        assert_eq!(got, expected);
    }

    fn check_snapshots(&self, step: usize) {
        for (snapshot, then) in &self.snapshots {
            let expected: Vec<_> = then.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            if step.is_multiple_of(16) {
                assert_eq!(pairs(snapshot.scan()), expected);
            }
            if let Some((k, v)) = expected.first() {
                assert_eq!(snapshot.get(k).unwrap().as_deref(), Some(v.as_slice()));
            }
        }
    }
}

fn run(preset: Preset, history: &[Operation]) {
    run_through(preset, &[], history);
}

fn run_through(preset: Preset, presets: &[Preset], history: &[Operation]) {
    let mut pair = Pair::new(preset, presets);
    for (step, operation) in history.iter().enumerate() {
        pair.apply(step, operation);
        pair.check_snapshots(step);
    }
    check_whole(pair.db(), &pair.model);
    let report = pair.db().verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert!(pair.db().stats().read_only.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 36, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_the_models(history in prop::collection::vec(operation(), 1..400)) {
        run(Preset::Leveled, &history);
    }

    #[test]
    fn every_answer_is_the_models_with_a_fast_tier(
        history in prop::collection::vec(operation(), 1..400)
    ) {
        run(Preset::Hybrid, &history);
    }

    #[test]
    fn every_answer_is_the_models_with_an_index_in_persistent_memory(
        history in prop::collection::vec(operation(), 1..400)
    ) {
        run(Preset::Indexed, &history);
    }

    #[test]
    fn every_answer_is_the_models_while_the_preset_changes(
        history in prop::collection::vec(operation(), 1..400)
    ) {
        use Preset::{Hybrid, Indexed, Leveled};
        let presets = [Leveled, Indexed, Hybrid, Indexed];
        run_through(Indexed, &presets, &history);
    }
}

#[test]
fn cursors_turn_around_anywhere() {
    turn_around(Preset::Leveled);
    turn_around(Preset::Hybrid);
}

fn turn_around(preset: Preset) {
    let environment = environment();
    let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
    for round in 0..3 {
        for k in (round..200u16).step_by(3) {
            db.put(key(k), value(round as usize, 30)).unwrap();
        }
        db.delete(key(round * 7)).unwrap();
        db.flush().unwrap();
    }
    let all: Vec<_> = pairs(db.scan()).into_iter().map(|(k, _)| k).collect();
    let mut cursor = db.cursor();
    cursor.seek_to_first().unwrap();
    let mut random = thermocline_foundation::random::Random::new(3);
    let mut at = 0usize;
    for _ in 0..3000 {
        assert_eq!(cursor.key(), all[at]);
        if at == 0 || (at + 1 < all.len() && random.below(2) == 0) {
            cursor.next().unwrap();
            at += 1;
        } else {
            cursor.prev().unwrap();
            at -= 1;
        }
    }
    cursor.seek(&key(500)).unwrap();
    assert!(!cursor.valid());
    cursor.seek_for_prev(&key(500)).unwrap();
    assert_eq!(cursor.key(), all[all.len() - 1]);
}
