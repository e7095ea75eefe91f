//! What the writers write, and the model of it.
//!
//! A history is a function of its seed: the batch that writer `w` writes at its `n`-th turn (its
//! *stamp*) follows from (seed, w, n), and so does every value in it. Nothing need be recorded but
//! how far each writer came. Each batch also puts the writer's stamp under a key of its own, at a
//! random place among its writes: what recovery brought back says itself which prefix it is. Now
//! and then a stamp is a bulk load instead.
//!
//! ```text
//!   key     w0/k00017   w0/stamp
//!   value   stamp 8 | writer 1 | key 4 | noise that follows from these
//! ```
//! Invariants:
//! 1. Writers share no key, so the state is the union of one prefix of each.
//! 2. Two stamps never write equal values, so an old value cannot pass for a new one.

use std::collections::BTreeMap;
use thermocline::{Durability, WriteBatch};
use thermocline_foundation::random::{Random, mix};

/// Keys of a writer.
const KEYS: u64 = 1200;
/// One stamp in so many is a bulk load, and its records.
const INGEST_EVERY: u64 = 250;
const INGEST_RECORDS: usize = 120;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub seed: u64,
    /// One batch in so many is written with `Durability::Sync`.
    pub sync_every: u64,
}

/// The key of a writer's record.
pub fn key(writer: usize, number: u32) -> String {
    format!("w{writer}/k{number:05}")
}

/// The key under which a writer's last stamp is.
pub fn stamp_key(writer: usize) -> String {
    format!("w{writer}/stamp")
}

impl History {
    fn random(&self, writer: usize, stamp: u64) -> Random {
        Random::new(mix(self.seed ^ mix(writer as u64 + 1)) ^ mix(stamp))
    }

    /// The stamp is a bulk load and not a batch.
    pub fn is_ingest(&self, writer: usize, stamp: u64) -> bool {
        mix(stamp.rotate_left(32) ^ writer as u64).is_multiple_of(INGEST_EVERY)
    }

    /// The writes of a stamp in their order: key, and whether it is put or deleted.
    fn writes(&self, writer: usize, stamp: u64) -> Vec<(u32, bool)> {
        let mut random = self.random(writer, stamp);
        if self.is_ingest(writer, stamp) {
            // Bulk loads take ascending keys, and only puts.
            let mut numbers: Vec<_> =
                (0..INGEST_RECORDS).map(|_| (random.below(KEYS) as u32, true)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            return numbers;
        }
        let count = match random.below(8) {
            0 => 1 + random.below(40),
            _ => 1 + random.below(5),
        };
        (0..count).map(|_| (random.below(KEYS) as u32, random.below(4) > 0)).collect()
    }

    /// The value that a stamp puts under a key.
    pub fn value(&self, writer: usize, stamp: u64, number: u32) -> Vec<u8> {
        let mut random = Random::new(mix(stamp) ^ mix(u64::from(number) << 8 | writer as u64));
        let len = match random.below(64) {
            0 => random.below(30_000),
            1..=8 => random.below(3_000),
            _ => random.below(400),
        };
        let mut value = vec![0; 13 + len as usize];
        value[..8].copy_from_slice(&stamp.to_le_bytes());
        value[8] = writer as u8;
        value[9..13].copy_from_slice(&number.to_le_bytes());
        random.fill(&mut value[13..]);
        value
    }

    /// How durable the batch of a stamp is to be.
    pub fn durability(&self, writer: usize, stamp: u64) -> Durability {
        match mix(stamp ^ (writer as u64) << 40).is_multiple_of(self.sync_every) {
            true => Durability::Sync,
            false => Durability::Buffered,
        }
    }

    /// The records of a stamp that is a bulk load, in key order.
    pub fn ingest(&self, writer: usize, stamp: u64) -> Vec<(String, Vec<u8>)> {
        let record = |(number, _)| (key(writer, number), self.value(writer, stamp, number));
        let records = self.writes(writer, stamp).into_iter().map(record);
        records.chain([(stamp_key(writer), stamp.to_le_bytes().to_vec())]).collect()
    }

    /// The batch of a stamp.
    pub fn batch(&self, writer: usize, stamp: u64) -> WriteBatch {
        let writes = self.writes(writer, stamp);
        let stamp_at = mix(stamp) as usize % writes.len();
        let mut batch = WriteBatch::new();
        for (index, (number, is_put)) in writes.into_iter().enumerate() {
            if index == stamp_at {
                batch.put(stamp_key(writer), stamp.to_le_bytes());
            }
            match is_put {
                true => batch.put(key(writer, number), self.value(writer, stamp, number)),
                false => batch.delete(key(writer, number)),
            };
        }
        batch
    }
}

/// A writer's records after some prefix of its history.
#[derive(Clone, Debug)]
pub struct Model {
    history: History,
    writer: usize,
    /// The last stamp of the prefix; 0 before the first.
    pub stamp: u64,
    /// Live keys, with the stamp that put them.
    keys: BTreeMap<u32, u64>,
}

impl Model {
    pub fn new(history: History, writer: usize) -> Self {
        Self { history, writer, stamp: 0, keys: BTreeMap::new() }
    }

    /// Goes on to the prefix that ends with `stamp`.
    pub fn advance(&mut self, stamp: u64) {
        for stamp in self.stamp + 1..=stamp {
            for (number, is_put) in self.history.writes(self.writer, stamp) {
                match is_put {
                    true => drop(self.keys.insert(number, stamp)),
                    false => drop(self.keys.remove(&number)),
                }
            }
        }
        self.stamp = stamp.max(self.stamp);
    }

    /// All records in key order.
    pub fn records(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let records = self.keys.iter().map(|(number, stamp)| {
            (key(self.writer, *number), self.history.value(self.writer, *stamp, *number))
        });
        let last =
            (self.stamp > 0).then(|| (stamp_key(self.writer), self.stamp.to_le_bytes().to_vec()));
        records.chain(last)
    }

    /// What is under a key of the writer.
    pub fn get(&self, number: u32) -> Option<Vec<u8>> {
        let stamp = self.keys.get(&number)?;
        Some(self.history.value(self.writer, *stamp, number))
    }

    /// What a look-up found under a key is what this prefix or a longer one has there. Of a record
    /// that is not there it cannot be said.
    pub fn is_at_least_as_new(&self, number: u32, found: &[u8]) -> bool {
        let Some((stamp, _)) = found.split_first_chunk() else { return false };
        let stamp = u64::from_le_bytes(*stamp);
        let known = self.keys.get(&number).copied().unwrap_or(0);
        stamp >= known && found == self.history.value(self.writer, stamp, number)
    }

    /// The writer.
    pub fn writer(&self) -> usize {
        self.writer
    }

    /// A random key, live or not.
    pub fn any_key(&self, random: &mut Random) -> u32 {
        random.below(KEYS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_reaches_the_same_state_in_one_step_or_many() {
        let history = History { seed: 5, sync_every: 4 };
        let (mut once, mut often) = (Model::new(history, 1), Model::new(history, 1));
        once.advance(300);
        (1..=300).for_each(|stamp| often.advance(stamp));
        assert!(once.records().eq(often.records()));
        assert!(once.records().count() > 100, "the history is not trivial");
        assert_ne!(history.value(0, 7, 3), history.value(0, 8, 3));
        assert!(once.records().map(|(key, _)| key).is_sorted());
        let number = *once.keys.keys().next().unwrap();
        let [now, later] = [once.keys[&number], 301].map(|n| history.value(1, n, number));
        assert!(once.is_at_least_as_new(number, &now) && once.is_at_least_as_new(number, &later));
        let earlier = history.value(1, once.keys[&number] - 1, number);
        assert!(!once.is_at_least_as_new(number, &earlier), "an older value");
        assert!(!once.is_at_least_as_new(number, &later[1..]), "not a value of the history");
    }

    #[test]
    fn another_seed_is_another_history() {
        let histories = [1, 2].map(|seed| History { seed, sync_every: 4 });
        let writes = |history: &History| (1..50).map(|n| history.writes(0, n)).collect::<Vec<_>>();
        assert_ne!(writes(&histories[0]), writes(&histories[1]));
        let ingests: Vec<_> = (1..2000).filter(|n| histories[0].is_ingest(0, *n)).collect();
        assert!((2..30).contains(&ingests.len()), "{ingests:?}");
        let records = histories[0].ingest(0, ingests[0]);
        assert!(records.is_sorted() && records.len() > 50);
    }
}
