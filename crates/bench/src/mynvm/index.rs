//! Figure 10: what an index takes in memory, by the size of blocks.
//!
//! Tables in memory with all records, without filters. What counts are all partitions of their
//! indexes as the cache holds them, over those with blocks of 16 KiB. Exact, from no run.

use super::dictionary::data_sets::{Record, graph, readings};
use crate::Outcome;
use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Driver, File, FileKind, TierIndex};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_table::{
    BlockCache, Compression, RecordKind, TableOptions, TableReader, TableWriter, Trailer,
};

/// What is stored, by the names that rows have.
pub const DATA: [&str; 2] = ["json", "linkbench"];
/// Sizes of blocks that are held against [`BASE_KIB`].
pub const KIB: [u32; 2] = [4, 6];
const BASE_KIB: u32 = 16;

const READINGS: u64 = 100_000;
const NODES: u64 = 60_000;
/// Raw bytes of a table.
const TABLE_BYTES: usize = 8 << 20;

/// Bytes of the indexes of the row called `name`, over those with large blocks.
pub fn share(name: &str) -> Outcome<f64> {
    for data in DATA {
        for kib in KIB {
            if name == row_name(data, kib) {
                let records = if data == DATA[0] { readings(READINGS) } else { graph(NODES) };
                let bytes = |kib| index_bytes(&records, kib);
                return Ok(bytes(kib)? as f64 / bytes(BASE_KIB)? as f64);
            }
        }
    }
    Err(format!("there is no row '{name}'").into())
}

/// What the row of `data` with blocks of `kib` is called.
pub fn row_name(data: &str, kib: u32) -> String {
    format!("10/{data}/{kib}-KiB")
}

fn index_bytes(records: &[Record], kib: u32) -> Outcome<u64> {
    let options = TableOptions {
        block_bytes: kib << 10,
        compression: Compression::Zstd { level: 3 },
        filter_bits_per_key: 0,
        ..TableOptions::default()
    };
    let cache = Arc::new(BlockCache::new(1 << 20));
    let (mut bytes, mut at, mut number) = (0, 0, 0);
    while at < records.len() {
        number += 1;
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let handle = driver.create("table")?;
        let (database, kind) = (DatabaseId([1; 16]), FileKind::Table { level: 1 });
        let file = File::new(database, FileNumber(number), kind, TierIndex(0), driver, handle);
        let file = Arc::new(file);
        let mut writer = TableWriter::new(Arc::clone(&file), options.clone());
        let mut raw_bytes = 0;
        while let Some((key, value)) = records.get(at).filter(|_| raw_bytes < TABLE_BYTES) {
            writer.add(key, Trailer::new(Sequence(1), RecordKind::Put), value)?;
            raw_bytes += key.len() + value.len();
            at += 1;
        }
        writer.finish()?;
        bytes += TableReader::open(file, Arc::clone(&cache))?.partition_bytes();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_small_blocks_is_larger_by_about_their_number() {
        let records = readings(20_000);
        let [small, large] = [4, 16].map(|kib| index_bytes(&records, kib).unwrap());
        assert!(small > 3 * large && small < 6 * large, "{small} and {large}");
        assert!(share("10/text/4-KiB").is_err());
    }
}
