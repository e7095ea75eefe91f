//! A store beside a sorted map, and the comparison of everything that can be asked of both.

use crate::closing::close;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;
use thermocline::{
    ByteSize, Db, Durability, Environment, Experiments, HybridSettings, Preset, Settings, Snapshot,
    Tier, WriteBatch,
};
use thermocline_foundation::random::Random;

pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store on two small tiers and what it should hold.
pub struct Twin {
    dir: TempDir,
    pub settings: Settings,
    pub db: Option<Db>,
    pub model: Records,
    pub random: Random,
}

/// Settings for a fast tier of 8 MiB.
pub fn settings(hybrid: HybridSettings) -> Settings {
    Settings {
        preset: Some(Preset::Hybrid),
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(512),
        durability: Durability::Buffered,
        hybrid,
        ..Settings::default()
    }
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key {number:09}").into_bytes()
}

impl Twin {
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self::with(Experiments::NONE, settings, seed)
    }

    pub fn with(experiments: Experiments, mut settings: Settings, seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if settings.tiers.is_empty() {
            settings.tiers = vec![
                Tier::new(dir.path().join("fast"), ByteSize::mib(8)),
                Tier::new(dir.path().join("slow"), ByteSize::gib(1)),
            ];
        }
        let environment = Environment { experiments, ..Environment::default() };
        let db = Some(environment.create(&dir.path().join("db"), &settings).unwrap());
        Self { dir, settings, db, model: Records::new(), random: Random::new(seed) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    pub fn value(&mut self, bytes: usize) -> Vec<u8> {
        let mut value = vec![0; bytes];
        self.random.fill(&mut value);
        value
    }

    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.db().put(&key, &value).unwrap();
        self.model.insert(key, value);
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.db().delete(key).unwrap();
        self.model.remove(key);
    }

    /// Writes, overwrites and deletes among `keys`, now and then in batches.
    pub fn write(&mut self, count: u64, keys: u64, bytes: u64) {
        for _ in 0..count {
            let number = self.random.below(keys);
            match self.random.below(20) {
                0 => self.delete(&key(number)),
                1 => {
                    let mut batch = WriteBatch::new();
                    for number in number..number + 3 {
                        let value = self.value(bytes as usize);
                        batch.put(key(number), &value);
                        self.model.insert(key(number), value);
                    }
                    self.db().write(batch).unwrap();
                }
                _ => {
                    let bytes = bytes / 2 + self.random.below(bytes);
                    let value = self.value(bytes as usize);
                    self.put(key(number), value);
                }
            }
        }
    }

    pub fn reopen(&mut self) {
        close(self.db.take().unwrap(), "it is reopened");
        self.db = Some(Db::open(self.path("db")).unwrap());
    }

    /// Every record forwards and backwards, and look-ups of some keys that are there or not.
    pub fn compare(&mut self) {
        let db = self.db.clone().unwrap();
        compare_scan(db.scan().into_iter(), &self.model);
        let reverse: Vec<_> =
            db.scan().reverse().into_iter().map(|record| record.unwrap().0.to_vec()).collect();
        assert!(reverse.iter().rev().eq(self.model.keys()), "backwards");
        let keys: Vec<_> = (0..500).map(|_| key(self.random.below(200_000))).collect();
        let known: Vec<_> = self.model.keys().step_by(97).cloned().collect();
        for key in keys.iter().chain(&known) {
            let found = db.get(key).unwrap();
            assert_eq!(found.as_deref(), self.model.get(key).map(Vec::as_slice), "{key:?}");
        }
        let values = db.multi_get(&known).unwrap();
        for (key, value) in known.iter().zip(values) {
            assert_eq!(value.as_deref(), self.model.get(key).map(Vec::as_slice), "{key:?}");
        }
    }

    pub fn verify(&self) {
        let report = self.db().verify(&mut |_| {}).unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
    }
}

pub fn compare_scan(
    scan: impl Iterator<Item = thermocline::Result<(bytes::Bytes, bytes::Bytes)>>,
    model: &Records,
) {
    let mut expected = model.iter();
    for record in scan {
        let (key, value) = record.unwrap();
        let (model_key, model_value) = expected.next().expect("a record too many");
        assert_eq!(&key[..], &model_key[..]);
        assert!(value[..] == model_value[..], "the value of {key:?}");
    }
    assert_eq!(expected.next().map(|(key, _)| key), None, "a record is missing");
}

/// A snapshot and the records of its moment.
pub struct Moment {
    pub snapshot: Snapshot,
    pub records: Records,
}

impl Moment {
    pub fn of(twin: &Twin) -> Self {
        Self { snapshot: twin.db().snapshot(), records: twin.model.clone() }
    }

    pub fn compare(&self) {
        compare_scan(self.snapshot.scan().into_iter(), &self.records);
        for (key, value) in self.records.iter().step_by(53) {
            assert_eq!(self.snapshot.get(key).unwrap().as_deref(), Some(&value[..]), "{key:?}");
        }
    }
}
