//! A whole database driven by bytes: each says an operation, those behind it what it is done to.
//! Every answer must be that of a model. Two tiers in memory; background work is done one step at a
//! time on the calling thread, so the same bytes make the same history.
//!
//! ```text
//!   operation u8, mod 16
//!     0-4  put key, len        5  delete key       6  batch of n: (key, len or 255 for a delete)
//!     7    get key             8  scan from, to, way
//!     9    flush              10  compact         11  close and open again
//!    12    snapshot, or look at the oldest        13  ingest first, n
//!    14    some background steps                  15  look up four keys at once
//! ```
//! An operand that is not there is 0. At most [`OPERATIONS_MAX`] operations are carried out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline::{
    ByteSize, Compression, Db, Durability, Environment, Preset, Settings, Snapshot, Stepper, Tier,
    Workers, WriteBatch,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::Clock;

const HOME: &str = "/home";
/// Histories longer than this find nothing that shorter ones do not, and take longer.
const OPERATIONS_MAX: usize = 300;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A clock that only being asked and sleeping move.
#[derive(Debug, Default)]
struct TickClock(AtomicU64);

impl Clock for TickClock {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1000, Relaxed)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: std::time::Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, Relaxed);
    }
}

fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![
            Tier::new("/fast", ByteSize::mib(16)).driver("memory"),
            Tier::new("/slow", ByteSize::mib(64)).driver("memory"),
        ],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(64),
        block_size: ByteSize::kib(1),
        background_sync_bytes: ByteSize::kib(64),
        background_threads: 1,
        level0_tables: 2,
        compression: vec![Compression::None, Compression::Lz4],
        ..Settings::default()
    }
}

/// The bytes, one after the other; zeros behind their end.
struct Operands<'a>(&'a [u8]);

impl Operands<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }
}

fn key(n: u8) -> Vec<u8> {
    // The empty key, short ones, and some with a long prefix in common.
    match n {
        0 => Vec::new(),
        1..64 => vec![n],
        _ => [&[b'k'; 60][..], &[n]].concat(),
    }
}

fn value(step: usize, len: u8) -> Vec<u8> {
    let len = if len == 254 { 300_000 } else { usize::from(len) * 8 };
    (step as u64).to_le_bytes().into_iter().cycle().take(len).collect()
}

struct Pair {
    environment: Environment,
    stepper: Arc<Stepper>,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

fn pairs(
    records: impl IntoIterator<Item = thermocline::Result<(bytes::Bytes, bytes::Bytes)>>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |record: thermocline::Result<(bytes::Bytes, bytes::Bytes)>| {
        let (key, value) = record.expect("memory gives what it took");
        (key.to_vec(), value.to_vec())
    };
    records.into_iter().map(pair).collect()
}

fn expected(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Pair {
    fn new() -> Self {
        let stepper = Arc::new(Stepper::new(1));
        let environment = Environment {
            devices: Arc::new(MemoryDevices::new()),
            clock: Arc::new(TickClock::default()),
            workers: Workers::Stepped(Arc::clone(&stepper)),
            ..Environment::default()
        };
        let db = environment.create(Path::new(HOME), &settings()).expect("the place is empty");
        Self { environment, stepper, db: Some(db), model: Model::new(), snapshots: Vec::new() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open but while it is opened again")
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let closed = self.db.take().map(Db::close);
        closed.transpose().expect("closing in memory");
        self.db = Some(self.environment.open(Path::new(HOME)).expect("it was closed whole"));
        assert_eq!(pairs(self.db().scan()), expected(&self.model), "after reopening");
    }

    fn batch(&mut self, step: usize, bytes: &mut Operands<'_>) {
        let mut batch = WriteBatch::new();
        for _ in 0..bytes.next() % 16 {
            let (key, len) = (key(bytes.next()), bytes.next());
            if len == 255 {
                batch.delete(&key);
                self.model.remove(&key);
            } else {
                batch.put(&key, value(step, len));
                self.model.insert(key, value(step, len));
            }
        }
        self.db().write_with(batch, Durability::Sync).expect("memory takes it");
    }

    fn scan(&self, bytes: &mut Operands<'_>) {
        let (a, b) = (key(bytes.next()), key(bytes.next()));
        let (from, to) = (a.clone().min(b.clone()), a.max(b));
        let range = self.model.range(from.clone()..to.clone());
        let mut expected: Vec<_> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
        let scan = self.db().scan().from(from).to(to);
        let found = if bytes.next().is_multiple_of(2) {
            pairs(scan)
        } else {
            expected.reverse();
            pairs(scan.reverse())
        };
        assert!(found == expected, "a scan says {found:?}");
    }

    fn snapshot(&mut self) {
        if self.snapshots.len() < 2 {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
            return;
        }
        let (snapshot, model) = self.snapshots.remove(0);
        assert!(pairs(snapshot.scan()) == expected(&model), "a snapshot has changed");
    }

    fn ingest(&mut self, step: usize, bytes: &mut Operands<'_>) {
        let (first, count) = (bytes.next(), bytes.next() % 16);
        let added: Model =
            (0..count).map(|n| (key(first.saturating_add(n)), value(step, n))).collect();
        let mut ingest = self.db().ingest();
        for (key, value) in &added {
            ingest.add(key, value).expect("in order");
        }
        ingest.finish().expect("memory takes it");
        self.model.extend(added);
    }

    fn apply(&mut self, step: usize, bytes: &mut Operands<'_>) {
        match bytes.next() % 16 {
            0..=4 => {
                let (key, value) = (key(bytes.next()), value(step, bytes.next()));
                self.db().put(&key, &value).expect("memory takes it");
                self.model.insert(key, value);
            }
            5 => {
                let key = key(bytes.next());
                self.db().delete(&key).expect("memory takes it");
                self.model.remove(&key);
            }
            6 => self.batch(step, bytes),
            7 => self.get(&[bytes.next()]),
            8 => self.scan(bytes),
            9 => self.db().flush().expect("memory takes it"),
            10 => self.db().compact_range(None, None, &mut |_| {}).expect("memory takes it"),
            11 => self.reopen(),
            12 => self.snapshot(),
            13 => self.ingest(step, bytes),
            14 => {
                for _ in 0..bytes.next() % 8 {
                    self.stepper.step();
                }
            }
            _ => self.get(&[bytes.next(), bytes.next(), bytes.next(), bytes.next()]),
        }
    }

    fn get(&self, keys: &[u8]) {
        let keys: Vec<_> = keys.iter().map(|n| key(*n)).collect();
        let together = self.db().multi_get(&keys).expect("memory gives what it took");
        for (key, value) in keys.iter().zip(together) {
            let expected = self.model.get(key).map(Vec::as_slice);
            assert_eq!(value.as_deref(), expected, "multi_get of {key:?}");
            let alone = self.db().get(key).expect("memory gives what it took");
            assert_eq!(alone.as_deref(), expected, "get of {key:?}");
        }
    }
}

/// A history: every answer is the model's, and nothing is wrong at its end.
pub fn database(data: &[u8]) -> bool {
    let mut pair = Pair::new();
    let mut bytes = Operands(data);
    for step in 0..OPERATIONS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        pair.apply(step, &mut bytes);
    }
    assert_eq!(pairs(pair.db().scan()), expected(&pair.model));
    let report = pair.db().verify(&mut |_| {}).expect("memory can be read");
    assert!(report.is_ok(), "{:?}", report.problems);
    assert!(pair.db().stats().read_only.is_none(), "nothing failed");
    true
}
