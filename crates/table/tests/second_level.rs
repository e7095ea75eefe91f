//! A second level below the block cache: what is asked of it and offered to it, and that no read
//! notices what happens to its copies.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use support::*;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Buffer, Driver, Error, File, FileKind, ReadAt, TierIndex};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_table::{
    BlockCache, BlockClass, BlockKey, CachedAt, Compression, Found, Probe, ReadAhead, SecondLevel,
    TableOptions, TableReader, TableWriter, key_hash,
};

/// Copies of all blocks that it is offered, each in pages of its own.
#[derive(Debug)]
struct Copies {
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    at: BTreeMap<BlockKey, u64>,
    asked: Vec<(BlockKey, BlockClass)>,
    failed: usize,
    admits: bool,
}

impl Copies {
    fn new() -> Arc<Self> {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let handle = driver.create("c").unwrap();
        let (number, kind) = (FileNumber(900), FileKind::TableIndex);
        let file = Arc::new(File::new(DATABASE, number, kind, TierIndex(0), driver, handle));
        let state = State { admits: true, ..State::default() };
        Arc::new(Self { file, state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Flips a bit of the byte at `offset` of every copy that has one; how many these are.
    fn damage(&self, offset: usize) -> usize {
        let state = self.state();
        let long: Vec<_> = state.at.iter().filter(|(key, _)| offset < key.len as usize).collect();
        for (_, at) in &long {
            let page = **at + (offset / PAGE_BYTES * PAGE_BYTES) as u64;
            let mut bytes = self.file.read(page, PAGE_BYTES).unwrap().to_vec();
            bytes[offset % PAGE_BYTES] ^= 1 << (offset % 8);
            self.file.write(page, Buffer::copy_of(&bytes)).1.unwrap();
        }
        long.len()
    }
}

impl SecondLevel for Copies {
    fn find(&self, key: BlockKey, class: BlockClass) -> Found {
        let mut state = self.state();
        state.asked.push((key, class));
        match state.at.get(&key) {
            Some(at) => Found::Cached(CachedAt { file: Arc::clone(&self.file), offset: *at }),
            None if state.admits => Found::Admitted,
            None => Found::Refused,
        }
    }

    fn offer(&self, key: BlockKey, stored: &[u8]) {
        assert_eq!(stored.len(), key.len as usize);
        let mut pages = stored.to_vec();
        pages.resize(stored.len().next_multiple_of(PAGE_BYTES), 0);
        let at = self.file.len().unwrap();
        self.file.write(at, Buffer::copy_of(&pages)).1.unwrap();
        assert!(self.state().at.insert(key, at).is_none(), "{key:?} is offered twice");
    }

    fn failed(&self, key: BlockKey, _at: &CachedAt, _why: &Error) {
        let mut state = self.state();
        state.failed += 1;
        state.at.remove(&key);
    }
}

/// A table on `tier`, with a block cache that holds nothing and `copies` below it.
fn table(tier: u8, copies: &Arc<Copies>, rows: &[Row]) -> (FailingDriver, Arc<TableReader>) {
    let driver = FailingDriver::new();
    driver.writes_left.store(u64::MAX, Relaxed);
    let shared: Arc<dyn Driver> = Arc::clone(&driver) as _;
    let (handle, kind) = (shared.create("t").unwrap(), FileKind::Table { level: 1 });
    let file = File::new(DATABASE, FileNumber(7), kind, TierIndex(tier), shared, handle);
    let file = Arc::new(file);
    let options = TableOptions {
        block_bytes: 256,
        partition_bytes: 400,
        compression: Compression::None,
        ..TableOptions::default()
    };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    rows.iter().for_each(|(key, trailer, value)| writer.add(key, *trailer, value).unwrap());
    writer.finish().unwrap();
    let cache = Arc::new(BlockCache::new(0));
    cache.set_second_level(Arc::clone(copies) as _);
    let table = Arc::new(TableReader::open(file, cache).unwrap());
    driver.reads.store(0, Relaxed);
    ((*driver).clone(), table)
}

/// Looks every row up in each of the ways there are.
fn check(table: &Arc<TableReader>, rows: &[Row]) {
    for (key, trailer, value) in rows {
        let got = table.get(key, trailer.sequence()).unwrap().unwrap();
        assert!(got.0 == *trailer && got.1 == *value);
        let Probe::Fetch(read) = table.probe(key, key_hash(key)).unwrap() else { panic!() };
        let ReadAt { file, offset, len } = read.read_at(table.file());
        table.fetch(&read, file.read(offset, len)).unwrap();
        let mut plain = table.iter(ReadAhead::default());
        plain.seek(key, trailer.sequence()).unwrap();
        assert_eq!((plain.key(), &plain.value()[..]), (&key[..], &value[..]));
        let mut begun = table.iter(ReadAhead::default());
        let seek = |it: &mut thermocline_table::TableIterator| it.seek(key, trailer.sequence());
        while let Some(awaited) = begun.begin(seek).unwrap() {
            let ReadAt { file, offset, len } = awaited.read_at();
            begun.supply(&awaited, file.read(offset, len)).unwrap();
        }
        assert_eq!((begun.key(), &begun.value()[..]), (&key[..], &value[..]));
    }
    assert_eq!(table.get(b"lake/60", Sequence::MAX).unwrap(), None);
}

#[test]
fn what_was_read_once_is_read_from_its_copy_by_single_batched_and_seek_reads() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (driver, table) = table(1, &copies, &rows);
    check(&table, &rows);
    let first = driver.reads.swap(0, Relaxed);
    check(&table, &rows);
    // Versions of a key that run over into the next block are stepped to, in a window.
    let again = driver.reads.load(Relaxed);
    assert!(first > 20 && again < 4, "{first} reads, then {again}");
    let classes: Vec<_> = copies.state().asked.iter().map(|(_, class)| *class).collect();
    for class in [BlockClass::Data, BlockClass::Index, BlockClass::Filter] {
        assert!(classes.contains(&class), "{class:?} is never asked for");
    }
}

#[test]
fn a_copy_that_is_wrong_or_cannot_be_read_is_reported_and_the_table_answers() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (driver, table) = table(1, &copies, &rows);
    check(&table, &rows);
    let count = copies.state().at.len();
    assert_eq!(copies.damage(3), count);
    driver.reads.store(0, Relaxed);
    check(&table, &rows);
    assert_eq!(copies.state().failed, count, "each once: then it was offered anew");
    assert!(driver.reads.load(Relaxed) > 20);
    copies.file.truncate(0).unwrap();
    copies.state().admits = false;
    check(&table, &rows);
    assert_eq!(copies.state().failed, 2 * count);
}

/// Each byte of data blocks, of partitions of index and filter, and of trailers. Those of the
/// directories and footers that lead to copies are flipped by the rot of the simulation.
#[test]
fn a_bit_that_flips_anywhere_in_a_copy_is_noticed_and_costs_a_read_of_the_table() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (driver, table) = table(1, &copies, &rows);
    check(&table, &rows);
    let longest = copies.state().at.keys().map(|key| key.len).max().unwrap();
    for offset in 0..longest as usize {
        let damaged = copies.damage(offset);
        copies.state().failed = 0;
        driver.reads.store(0, Relaxed);
        check(&table, &rows);
        assert_eq!(copies.state().failed, damaged, "the byte at {offset}");
        assert!(damaged > 0 && driver.reads.load(Relaxed) >= damaged as u64);
    }
}

#[test]
fn a_seek_offers_the_block_that_it_lands_on_and_no_other() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (_, table) = table(1, &copies, &rows);
    let data = |copies: &Copies| {
        let asked = std::mem::take(&mut copies.state().asked);
        asked.into_iter().filter(|(_, class)| *class == BlockClass::Data).count()
    };
    let mut it = table.iter(ReadAhead::default());
    it.seek_to_first().unwrap();
    let mut entries = 0;
    while it.valid() {
        it.next().unwrap();
        entries += 1;
    }
    assert_eq!((entries, data(&copies)), (rows.len(), 1));
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 4096 });
    it.seek_to_last().unwrap();
    table.verify(&mut |_| {}).unwrap();
    let window = ReadAhead::Adaptive { first_bytes: 17 << 10, window_bytes_max: 1 << 20 };
    table.iter(window).seek(b"lake/30", Sequence::MAX).unwrap();
    assert_eq!(data(&copies), 0, "windows, merges and checks never");
}

/// Both directions, and with the reads left to the caller.
#[test]
fn a_short_scan_reads_copies_block_by_block_as_long_as_there_are_some() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (driver, table) = table(1, &copies, &rows);
    let scan = |first_bytes: u32, forward: bool, defers: bool| {
        driver.reads.store(0, Relaxed);
        copies.state().asked.clear();
        let mut it = table.iter(ReadAhead::Adaptive { first_bytes, window_bytes_max: 1 << 20 });
        if defers {
            while let Some(awaited) = it.begin(|it| it.seek(b"lake/30", Sequence::MAX)).unwrap() {
                let ReadAt { file, offset, len } = awaited.read_at();
                it.supply(&awaited, file.read(offset, len)).unwrap();
            }
        } else {
            it.seek(b"lake/30", Sequence::MAX).unwrap();
        }
        let keys: Vec<Vec<u8>> = (0..30)
            .map(|_| {
                let key = it.key().to_vec();
                if forward {
                    it.next().unwrap()
                } else {
                    it.prev().unwrap()
                }
                key
            })
            .collect();
        let is_data = |(_, class): &&(BlockKey, BlockClass)| *class == BlockClass::Data;
        let asked: Vec<u32> =
            copies.state().asked.iter().filter(is_data).map(|(key, _)| key.len).collect();
        (keys, asked, driver.reads.load(Relaxed))
    };
    for (forward, defers) in [(true, false), (true, true), (false, false)] {
        copies.state().at.clear();
        copies.state().admits = false;
        let plain = scan(2000, forward, defers);
        assert_eq!(plain.1.len(), 1, "a window holds the rest");
        copies.state().admits = true;
        // Each scan has one block more than the last one: what it missed was offered to it.
        let reads: Vec<u64> = (0..12)
            .map(|_| {
                let (keys, asked, reads) = scan(2000, forward, defers);
                let (_, before) = asked.split_last().unwrap();
                assert!(keys == plain.0 && before.iter().sum::<u32>() < 2000, "{asked:?} bytes");
                reads
            })
            .collect();
        assert!(reads[0] > 0 && reads.last() < reads.first(), "{reads:?}");
        let (keys, asked, _) = scan(17 << 10, forward, defers);
        assert_eq!((keys, asked), (plain.0, vec![]), "a long scan has windows of the table");
    }
}

#[test]
fn a_table_on_the_fastest_tier_asks_no_second_level() {
    let (rows, copies) = (small_rows(), Copies::new());
    let (_, table) = table(0, &copies, &rows);
    check(&table, &rows);
    assert!(copies.state().asked.is_empty());
}
