//! What the block cache keeps, counts and gives back, and what a look-up reads.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use support::*;
use thermocline_device::{File, Result};
use thermocline_foundation::Sequence;
use thermocline_table::{
    BlockCache, BlockClass, CacheCounts, Compression, TableOptions, TableReader, TableSummary,
    TableWriter, key_hash,
};

fn table(
    driver: &Arc<FailingDriver>,
    entries: u64,
    capacity_bytes: u64,
) -> (Arc<TableReader>, Arc<BlockCache>) {
    table_of(driver, entries, 1000, capacity_bytes)
}

fn table_of(
    driver: &Arc<FailingDriver>,
    entries: u64,
    value_bytes: usize,
    capacity_bytes: u64,
) -> (Arc<TableReader>, Arc<BlockCache>) {
    let file = driver.file();
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    for n in 0..entries {
        writer.add(format!("user{n:020}").as_bytes(), put(n), &vec![n as u8; value_bytes]).unwrap();
    }
    writer.finish().unwrap();
    let cache = Arc::new(BlockCache::new(capacity_bytes));
    (Arc::new(TableReader::open(file, Arc::clone(&cache)).unwrap()), cache)
}

#[test]
fn a_lookup_reads_one_block_where_partitions_are_cached_and_none_where_it_is() {
    let driver = FailingDriver::new();
    let (table, cache) = table(&driver, 2000, 64 << 20);
    let reads = |key: &str| {
        let before = driver.reads.load(Relaxed);
        let got = table.get(key.as_bytes(), Sequence::MAX).unwrap();
        (driver.reads.load(Relaxed) - before, got.is_some())
    };
    let key = |n: u64| format!("user{n:020}");
    assert_eq!(reads(&key(0)), (3, true));
    assert_eq!(reads(&key(0)), (0, true));
    assert_eq!(reads(&key(20)), (1, true));
    assert_eq!(reads(&format!("{}x", key(0))), (0, false));
    let count = |class| cache.counts(class);
    assert_eq!(count(BlockClass::Filter), CacheCounts { hits: 3, misses: 1 });
    assert_eq!(count(BlockClass::Index), CacheCounts { hits: 2, misses: 1 });
    assert_eq!(count(BlockClass::Data), CacheCounts { hits: 1, misses: 2 });
}

#[test]
fn a_table_says_what_its_partitions_take_of_the_cache() {
    let driver = FailingDriver::new();
    let (table, cache) = table(&driver, 20_000, 64 << 20);
    for n in 0..20_000 {
        let key = format!("user{n:020}");
        table.probe(key.as_bytes(), key_hash(key.as_bytes())).unwrap();
    }
    assert!(table.properties().partitions > 5);
    assert_eq!(table.partition_bytes(), cache.memory_bytes());
    // Blocks of five records: six bytes for the separator and the place, 6.3 for the filter.
    let block_bytes = cache.memory_bytes() / table.properties().data_blocks;
    assert!((12..15).contains(&block_bytes), "{block_bytes} bytes a data block");
}

/// Writes records into `file`, the partitions into `cache`; `before_the_end` comes before `finish`.
fn write_kept(
    file: &Arc<File>,
    partition_bytes: u32,
    cache: &Arc<BlockCache>,
    before_the_end: impl FnOnce(),
) -> Result<TableSummary> {
    let compression = Compression::None;
    let options = TableOptions { compression, partition_bytes, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(file), options).kept_in(Arc::clone(cache));
    for n in 0..6000 {
        writer.add(format!("user{n:020}").as_bytes(), put(n), &[n as u8; 1000])?;
    }
    before_the_end();
    writer.finish()
}

/// Blocks of index and filter that had to be read.
fn partitions_read(cache: &BlockCache) -> u64 {
    cache.counts(BlockClass::Index).misses + cache.counts(BlockClass::Filter).misses
}

fn read(table: &TableReader, records: impl Iterator<Item = u64>) {
    for n in records {
        let (trailer, value) =
            table.get(format!("user{n:020}").as_bytes(), Sequence::MAX).unwrap().unwrap();
        assert!(trailer == put(n) && value == [n as u8; 1000][..]);
    }
}

#[test]
fn of_a_new_table_data_and_tail_are_read_and_no_partition() {
    let driver = FailingDriver::new();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let file = driver.file();
    write_kept(&file, 4096, &cache, || {}).unwrap();
    let table = TableReader::open(file, Arc::clone(&cache)).unwrap();
    assert_eq!(cache.memory_bytes(), table.partition_bytes());
    read(&table, 0..6000);
    assert_eq!(driver.reads.load(Relaxed), 1 + table.properties().data_blocks);
    assert_eq!(partitions_read(&cache), 0);
}

#[test]
fn a_table_that_could_not_be_written_leaves_nothing_in_the_cache() {
    let driver = FailingDriver::new();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let stop = || driver.writes_left.store(0, Relaxed);
    write_kept(&driver.file(), 4096, &cache, stop).unwrap_err();
    assert_eq!(cache.memory_bytes(), 0);
}

#[test]
fn a_table_that_is_read_once_is_whole_and_leaves_nothing_in_the_cache() {
    let (file, cache) = (new_file(1), Arc::new(BlockCache::new(64 << 20)));
    let writer = TableWriter::new(Arc::clone(&file), TableOptions::default());
    let mut writer = writer.kept_in(Arc::clone(&cache));
    for n in 0..100u64 {
        writer.add(format!("user{n:020}").as_bytes(), put(n), &[n as u8; 1000]).unwrap();
    }
    writer.finish_to_be_read_once().unwrap();
    assert_eq!(cache.memory_bytes(), 0);
    read(&TableReader::open(file, cache).unwrap(), 0..100);
}

#[test]
fn partitions_of_a_new_table_outlast_data_that_passes_by() {
    let cache = Arc::new(BlockCache::new(2 << 20));
    let (old, new) = (new_file(1), new_file(2));
    write_kept(&old, 512, &Arc::new(BlockCache::new(1 << 20)), || {}).unwrap();
    let old = TableReader::open(old, Arc::clone(&cache)).unwrap();
    // The cache is full of blocks of five records, of which each is asked for once.
    read(&old, (0..3000).step_by(5));
    write_kept(&new, 512, &cache, || {}).unwrap();
    read(&old, (3000..4500).step_by(5));
    let table = TableReader::open(new, Arc::clone(&cache)).unwrap();
    let before = partitions_read(&cache);
    for n in 0..6000 {
        let key = format!("user{n:020}");
        table.probe(key.as_bytes(), key_hash(key.as_bytes())).unwrap();
    }
    let (read, all) = (partitions_read(&cache) - before, 2 * table.properties().partitions);
    assert!(all > 30 && read <= all / 10, "{read} of {all} blocks of partitions were read");
}

#[test]
fn a_value_is_a_slice_of_its_block_and_outlives_the_cache() {
    let driver = FailingDriver::new();
    let (table, cache) = table(&driver, 100, 64 << 20);
    let key = format!("user{:020}", 5);
    let (_, a) = table.get(key.as_bytes(), Sequence::MAX).unwrap().unwrap();
    let (_, b) = table.get(key.as_bytes(), Sequence::MAX).unwrap().unwrap();
    assert_eq!(a.as_ptr(), b.as_ptr());
    cache.clear();
    drop((table, cache));
    assert!(a.iter().all(|byte| *byte == 5) && a.len() == 1000);
}

#[test]
fn the_cache_stays_within_its_capacity_and_follows_when_that_changes() {
    let driver = FailingDriver::new();
    let (table, cache) = table_of(&driver, 5000, 1020, 1 << 20);
    let touch_all = || {
        for n in 0..5000u64 {
            let key = format!("user{n:020}");
            assert!(table.get(key.as_bytes(), Sequence::MAX).unwrap().is_some());
            assert!(cache.memory_bytes() <= cache.capacity_bytes());
        }
    };
    touch_all();
    assert!(cache.memory_bytes() > 900 << 10);
    cache.set_capacity(128 << 10);
    assert!(cache.memory_bytes() <= 128 << 10);
    touch_all();
    cache.set_capacity(16 << 20);
    touch_all();
    touch_all();
    // Five megabytes of entries in a thousand blocks, each weighed as the allocator rounds it up: a
    // block of 5,200 bytes takes 6,144.
    let memory = cache.memory_bytes();
    assert!((6_100_000..6_600_000).contains(&memory), "{memory}");
}

#[test]
fn the_pinned_top_index_is_small() {
    let driver = FailingDriver::new();
    let (table, _) = table(&driver, 20_000, 1 << 20);
    // One partition for about 3,000 keys of 1 KB, some 40 bytes each.
    assert!(table.properties().partitions > 5);
    assert!(table.memory_bytes() < 1200, "{}", table.memory_bytes());
    assert!(table.file_bytes() < 22_000_000, "{}", table.file_bytes());
}
