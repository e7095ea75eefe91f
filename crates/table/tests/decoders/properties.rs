//! What must hold for any bytes in a table file. Each property returns whether the table was found
//! good. The files have the number and database of the golden ones.

use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Buffer, Driver, File, FileKind, Operation, Result, TierIndex};
use thermocline_foundation::{DatabaseId, FileNumber, Place, Sequence};
use thermocline_table::{BlockCache, ReadAhead, TableReader, Trailer, compare, decoders};

const DATABASE: DatabaseId = DatabaseId([0xd5; 16]);
const NUMBER: FileNumber = FileNumber(7);
/// Steps after which a walk ends: an index may name one block many times.
const STEPS_MAX: usize = 2000;

fn open(data: &[u8]) -> Result<Arc<TableReader>> {
    let driver = Arc::new(MemoryDriver::new());
    let handle = driver.create("table")?;
    let operation = Operation::Write { offset: 0, buffer: Buffer::copy_of(data), durable: false };
    driver.execute(&handle, operation).result?;
    let kind = FileKind::Table { level: 1 };
    let file = Arc::new(File::new(DATABASE, NUMBER, kind, TierIndex(0), driver, handle));
    TableReader::open(file, Arc::new(BlockCache::new(1 << 20))).map(Arc::new)
}

type Walk = Vec<(Vec<u8>, Trailer)>;

/// Keys and trailers from one end; an error where the walk met one.
fn walk(table: &Arc<TableReader>, mode: ReadAhead, forward: bool) -> (Walk, Result<()>) {
    let mut entries = Vec::new();
    let mut iterator = table.iter(mode);
    let mut moved = if forward { iterator.seek_to_first() } else { iterator.seek_to_last() };
    while moved.is_ok() && iterator.valid() && entries.len() < STEPS_MAX {
        entries.push((iterator.key().to_vec(), iterator.trailer()));
        assert_eq!(iterator.value().len(), iterator.value_slice().len());
        moved = if forward { iterator.next() } else { iterator.prev() };
    }
    assert!(moved.is_ok() || !iterator.valid(), "an error leaves the iterator at an entry");
    (entries, moved)
}

/// A table: opened, walked both ways, searched and verified. Where verification finds nothing
/// wrong, both walks see the same entries in order, and each is found.
pub fn table(data: &[u8]) -> bool {
    let Ok(table) = open(data) else {
        return false;
    };
    let verified = table.verify(&mut |_| {});
    let stream = ReadAhead::Stream { window_bytes: 8 << 10 };
    let (forward, ended) = walk(&table, stream, true);
    let (mut backward, began) = walk(&table, ReadAhead::default(), false);
    for key in forward.iter().map(|(key, _)| &key[..]).chain([&b""[..], b"lake/3", &[0xff; 9]]) {
        // Damage is an error or a wrong answer of a wrong table, but no panic.
        let _ = table.get(key, Sequence::MAX);
        let mut iterator = table.iter(ReadAhead::default());
        if iterator.seek(key, Sequence(40)).is_ok() && iterator.valid() {
            let _ = iterator.prev();
        }
        let _ = iterator.seek_for_prev(key, Sequence(1));
    }
    let Ok(summary) = verified else {
        return false;
    };
    backward.reverse();
    assert!(ended.is_ok() && began.is_ok(), "verified, but {ended:?} and {began:?}");
    if summary.entries <= STEPS_MAX as u64 {
        assert_eq!(forward.len() as u64, summary.entries);
        assert!(forward == backward, "forward and backward differ");
    }
    assert!(forward.is_sorted_by(|a, b| compare(&a.0, a.1, &b.0, b.1).is_lt()), "out of order");
    for (key, trailer) in &forward {
        let found = table.get(key, trailer.sequence()).expect("verified");
        // Of two kinds at one sequence, which no engine writes, the first one answers.
        let found = found.map(|(found, _)| found.sequence());
        assert_eq!(found, Some(trailer.sequence()), "a look-up of {key:?}");
    }
    true
}

/// As [`table`], behind the checksums.
pub fn sealed_table(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    decoders::seal(&mut bytes, &Place { database: DATABASE, file: NUMBER, offset: 0 });
    table(&bytes)
}

/// A raw block: read from both ends.
pub fn block(data: &[u8]) -> bool {
    decoders::walk_block(data, STEPS_MAX).is_some()
}

/// A raw index partition: read from both ends, searched, written again.
pub fn index_partition(data: &[u8]) -> bool {
    decoders::walk_partition(data, STEPS_MAX).is_some()
}

/// The last page of a table that ends after four pages.
pub fn footer(data: &[u8]) -> bool {
    let place = Place { database: DATABASE, file: NUMBER, offset: 3 * 4096 };
    decoders::rewrite_footer(data, &place).is_some()
}

/// The value of an index entry: written again it says the same.
pub fn index_entry(data: &[u8]) -> bool {
    let Some(written) = decoders::rewrite_addresses(data) else {
        return false;
    };
    assert_eq!(decoders::rewrite_addresses(&written), Some(written.clone()));
    true
}

/// A filter partition: bits per key in the first byte, then hashes of keys; all of it is also taken
/// for a filter.
pub fn filter(data: &[u8]) -> bool {
    let Some((bits, hashes)) = data.split_first() else {
        return false;
    };
    let hashes = hashes.chunks_exact(8);
    let hashes: Vec<u64> =
        hashes.map(|hash| u64::from_le_bytes(hash.try_into().expect("eight bytes"))).collect();
    decoders::probe_filter(&hashes, bits % 33, data);
    true
}
