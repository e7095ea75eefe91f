//! The block cache and the readers above it under chosen schedules: see
//! `thermocline_foundation::sync::schedules`. The cache's own insides are one step here
//! (`docs/decisions/0024-schedules.md`); what is looked at is everything between its calls.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::{
    BlockCache, BlockClass, Compression, RecordKind, TableOptions, TableReader, TableWriter,
    Trailer,
};
use std::sync::Arc;
use thermocline_device::driver::Driver;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{File, FileKind, TierIndex};
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::threads::{self, JoinHandle};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};

const ENTRIES: u64 = 12;

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

/// Table `number`, whose values begin with that number; an entry a block.
fn table(number: u64, cache: &Arc<BlockCache>) -> Arc<TableReader> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("table").unwrap();
    let (database, kind) = (DatabaseId([7; 16]), FileKind::Table { level: 0 });
    let file = File::new(database, FileNumber(number), kind, TierIndex(0), driver, handle);
    let file = Arc::new(file);
    let options = TableOptions {
        compression: Compression::None,
        block_bytes: 1024,
        ..TableOptions::default()
    };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    for n in 0..ENTRIES {
        let trailer = Trailer::new(Sequence(1), RecordKind::Put);
        writer.add(&key(n), trailer, &[number as u8; 1000]).unwrap();
    }
    writer.finish().unwrap();
    Arc::new(TableReader::open(file, Arc::clone(cache)).unwrap())
}

#[test]
fn blocks_are_the_tables_own_while_others_insert_evict_and_shrink() {
    check(5000, || {
        let cache = Arc::new(BlockCache::new(8 << 10));
        let tables = [table(1, &cache), table(2, &cache)];
        let readers = (0..2u64).map(|reader| {
            let tables = tables.clone();
            spawn(move || {
                let mut held = Vec::new();
                for n in 0..ENTRIES {
                    // Both readers ask for the same blocks, of two tables at the same offsets.
                    let at = (n + reader) as usize % 2;
                    let found = tables[at].get(&key(n), Sequence::MAX).unwrap();
                    held.push((at, found.unwrap().1));
                }
                assert!(tables[0].get(b"absent", Sequence::MAX).unwrap().is_none());
                held
            })
        });
        let readers: Vec<_> = readers.collect();
        let shrinker = {
            let cache = Arc::clone(&cache);
            spawn(move || {
                for capacity_bytes in [2 << 10, 64 << 10, 4 << 10] {
                    cache.set_capacity(capacity_bytes);
                    thermocline_foundation::sync::schedules::yield_now();
                    cache.clear();
                }
            })
        };
        let held = join(readers);
        join([shrinker]);
        for (at, value) in held.into_iter().flatten() {
            assert!(value.len() == 1000 && value.iter().all(|byte| *byte == at as u8 + 1));
        }
        assert!(cache.memory_bytes() <= cache.capacity_bytes());
        let counts = cache.counts(BlockClass::Data);
        assert_eq!(counts.hits + counts.misses, 2 * ENTRIES, "every look-up is counted");
    });
}
