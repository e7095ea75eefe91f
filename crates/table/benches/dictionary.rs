//! What a dictionary saves and costs (MyNVM, figure 17): bytes of tables, and processor time of
//! look-ups that decompress a block each and of writing.
//!
//! `cargo bench -p thermocline-table --bench dictionary [-- TEXT...]`; each file named is cut into
//! records of its lines and measured as one more data set. Device: memory.
#![allow(clippy::disallowed_macros, reason = "a benchmark prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "the data sets are files of the caller's")]

mod data_sets;

use std::sync::Arc;
use thermocline_device::driver::Driver;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{File, FileKind, TierIndex};
use thermocline_foundation::clock::{Clock, SystemClock};
use thermocline_foundation::random::Random;
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_table::{
    BlockCache, Compression, RecordKind, Samples, TableOptions, TableReader, TableSummary,
    TableWriter, Trailer, Training,
};

type Records = Vec<data_sets::Record>;

/// Raw bytes after which a table is closed and the next begun.
const TABLE_RAW_BYTES: usize = 16 << 20;
const LOOK_UPS: u64 = 100_000;

fn file(number: usize) -> Arc<File> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("bench").expect("a new directory has room");
    let (id, kind) = (DatabaseId([1; 16]), FileKind::Table { level: 0 });
    Arc::new(File::new(id, FileNumber(number as u64), kind, TierIndex(0), driver, handle))
}

struct Written {
    files: Vec<(Arc<File>, usize)>,
    summaries: Vec<TableSummary>,
    write_ns: u64,
}

fn write(clock: &SystemClock, records: &Records, options: &TableOptions) -> Written {
    let mut written = Written { files: Vec::new(), summaries: Vec::new(), write_ns: 0 };
    let (mut samples, mut at): (Option<Samples>, usize) = (None, 0);
    let began_ns = clock.now_ns();
    while at < records.len() {
        let file = file(written.files.len() + 1);
        let mut writer = TableWriter::new(Arc::clone(&file), options.clone())
            .expecting(TABLE_RAW_BYTES as u64 / 3)
            .following(samples.take());
        let (first, mut raw) = (at, 0);
        while let Some((key, value)) = records.get(at).filter(|_| raw < TABLE_RAW_BYTES) {
            let trailer = Trailer::new(Sequence(1), RecordKind::Put);
            writer.add(key, trailer, value).expect("memory does not fail");
            (at, raw) = (at + 1, raw + key.len() + value.len());
        }
        samples = writer.take_samples();
        written.summaries.push(writer.finish().expect("memory does not fail"));
        written.files.push((file, first));
    }
    written.write_ns = clock.now_ns() - began_ns;
    written
}

/// Nanoseconds of a look-up whose block is decompressed: the cache holds dictionaries and
/// partitions, and blocks of data go by.
fn look_up_ns(clock: &SystemClock, records: &Records, written: &Written) -> u64 {
    let cache = Arc::new(BlockCache::new(2 << 20));
    let open = |(file, _): &(Arc<File>, usize)| {
        TableReader::open(Arc::clone(file), Arc::clone(&cache)).expect("it was just written")
    };
    let tables: Vec<_> = written.files.iter().map(open).collect();
    let mut random = Random::new(7);
    let mut began_ns = 0;
    for n in 0..LOOK_UPS + LOOK_UPS / 10 {
        if n == LOOK_UPS / 10 {
            began_ns = clock.now_ns();
        }
        let at = random.below(records.len() as u64) as usize;
        let table = written.files.partition_point(|(_, first)| *first <= at) - 1;
        let (key, value) = &records[at];
        let found = tables[table].get(key, Sequence::MAX).expect("it was just written");
        assert!(found.is_some_and(|(_, found)| found == value[..]));
    }
    (clock.now_ns() - began_ns) / LOOK_UPS
}

fn measure(name: &str, records: &Records) {
    let clock = SystemClock::new();
    let raw: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
    println!("{name}: {} records, {raw} bytes of keys and values", records.len());
    let zstd = TableOptions { compression: Compression::Zstd { level: 3 }, ..Default::default() };
    let with = |training| TableOptions { dictionary_bytes: 16 << 10, training, ..zstd.clone() };
    let cases = [
        ("16 KiB", TableOptions { block_bytes: 16 << 10, ..zstd.clone() }),
        ("6 KiB", zstd.clone()),
        ("6 KiB, the paper's samples", with(Training::Sampled)),
        ("6 KiB, trained", with(Training::Trained)),
        ("4 KiB", TableOptions { block_bytes: 4 << 10, ..zstd.clone() }),
        ("4 KiB, trained", TableOptions { block_bytes: 4 << 10, ..with(Training::Trained) }),
    ];
    let (mut base, mut base_stored) = (0, 0);
    for (case, options) in cases {
        let written = write(&clock, records, &options);
        let bytes: u64 = written.summaries.iter().map(|summary| summary.file_bytes).sum();
        let padding: u64 = written.summaries.iter().map(|summary| summary.padding_bytes).sum();
        let with = written.summaries.iter().filter(|summary| summary.dictionary_bytes > 0).count();
        let stored = bytes - padding;
        (base, base_stored) = if base == 0 { (bytes, stored) } else { (base, base_stored) };
        println!(
            "  {case:<27} {bytes:>9} B, {:>5.3} of 16 KiB; without padding {stored:>9} B, {:>5.3}; \
             {with} of {} tables; write {:>4.1} ns/B, get {:>5} ns",
            bytes as f64 / base as f64,
            stored as f64 / base_stored as f64,
            written.summaries.len(),
            written.write_ns as f64 / raw as f64,
            look_up_ns(&clock, records, &written),
        );
    }
}

fn main() {
    measure("JSON", &data_sets::readings(100_000));
    measure("links", &data_sets::graph(60_000));
    let mut noise = Records::new();
    for n in 0..20_000u64 {
        let mut value = vec![0; 1000];
        Random::new(n).fill(&mut value);
        noise.push((format!("noise/{n:010}").into_bytes(), value));
    }
    measure("random bytes", &noise);
    for path in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        let bytes = std::fs::read(&path).expect("the file that is named can be read");
        measure(&path, &data_sets::pieces(&bytes));
    }
}
