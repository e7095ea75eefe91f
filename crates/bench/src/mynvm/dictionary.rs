//! Figure 17: what small blocks cost in bytes, and what a dictionary of each table takes off.
//!
//! ```text
//!   17/DATA         6 KiB, dictionaries of 16 KiB  \
//!                                                   over 16 KiB without dictionaries
//!   17/DATA/alone   6 KiB without dictionaries     /
//! ```
//! Both have the same records, bulk-loaded in order, and what counts are the files of tables.
//! Sizes are exact and come from no run of a workload, so one loading of each is all there is. The
//! zeros that page alignment costs count: the disk has them.

use crate::{Outcome, files};
use data_sets::{Record, graph, pieces, readings};
use std::path::Path;
use thermocline::{ByteSize, Compression, Db, Preset, Settings, Tier};
use thermocline_device::drivers::host_files;

#[path = "../../../table/benches/data_sets/mod.rs"]
pub mod data_sets;

/// What is stored, under the name that its rows have.
pub const DATA: [&str; 3] = ["json", "linkbench", "text"];

/// Behind the name of data: small blocks without dictionaries.
pub const ALONE: &str = "/alone";

/// Block size in KiB and bytes of dictionaries.
type Shape = (u64, u64);

const SMALL: Shape = (6, 16 << 10);
const SMALL_ALONE: Shape = (6, 0);
const LARGE: Shape = (16, 0);

const READINGS: u64 = 100_000;
const NODES: u64 = 60_000;
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// Loads the data of the row called `name` in both shapes below `disk`: bytes over bytes.
pub fn share(name: &str, text: Option<&Path>, disk: &Path) -> Outcome<f64> {
    let data = name.strip_prefix("17/").unwrap_or(name);
    let (data, over) = match data.strip_suffix(ALONE) {
        Some(data) => (data, SMALL_ALONE),
        None => (data, SMALL),
    };
    let records = match (data, text) {
        ("json", _) => readings(READINGS),
        ("linkbench", _) => graph(NODES),
        ("text", Some(path)) => pieces(&host_files::read(path, TEXT_BYTES_MAX)?),
        ("text", None) => return Err("no text; name one with --text FILE".into()),
        _ => return Err(format!("there is no data '{data}'").into()),
    };
    let scratch = disk.join("thermocline-mynvm-17");
    let taken = |shape| {
        files::make(&scratch)?;
        let bytes = bytes_of_tables(&scratch, &records, shape);
        files::remove(&scratch)?;
        bytes
    };
    Ok(taken(over)? as f64 / taken(LARGE)? as f64)
}

/// Bytes of the tables of a new database with `records`.
fn bytes_of_tables(place: &Path, records: &[Record], shape: Shape) -> Outcome<u64> {
    let settings = Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![Tier::new(place.join("data"), ByteSize::gib(8))],
        block_size: ByteSize::kib(shape.0),
        dictionary_size: ByteSize(shape.1),
        compression: vec![Compression::Zstd],
        ..Settings::default()
    };
    let db = Db::create(place.join("home"), &settings)?;
    let mut load = db.ingest();
    for (key, value) in records {
        load.add(key, value)?;
    }
    load.finish()?;
    db.settle()?;
    let tiers = db.stats().tiers;
    let kinds = tiers.iter().flat_map(|tier| &tier.bytes_by_kind);
    let bytes = kinds.filter(|(kind, _)| kind.starts_with("level ")).map(|(_, bytes)| bytes).sum();
    db.close()?;
    if bytes == 0 { Err("there are no tables".into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::data_sets::PIECE_BYTES;
    use super::*;

    #[test]
    fn data_sets_are_in_order_and_a_text_is_all_there() {
        for records in [readings(1000), graph(1000)] {
            assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        let text = "a line of a text, not long\n".repeat(3000) + &"x".repeat(9000);
        let pieces = pieces(text.as_bytes());
        let joined: Vec<u8> = pieces.iter().flat_map(|(_, value)| value.clone()).collect();
        assert_eq!(joined, text.as_bytes());
        assert!(pieces.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(pieces.iter().all(|(_, value)| value.len() <= PIECE_BYTES.1));
    }

    #[test]
    fn small_blocks_take_more_and_a_dictionary_takes_most_of_that_off() {
        let scratch = tempfile::tempdir().unwrap();
        let records = readings(40_000);
        let bytes = |name: &str, shape| {
            let place = scratch.path().join(name);
            files::make(&place).unwrap();
            bytes_of_tables(&place, &records, shape).unwrap()
        };
        let [small, small_alone] = [bytes("small", SMALL), bytes("alone", SMALL_ALONE)];
        assert!(small < small_alone, "{small} with a dictionary, {small_alone} without");
    }
}
