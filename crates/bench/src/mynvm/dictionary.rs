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
use std::path::Path;
use thermocline::{ByteSize, Compression, Db, Preset, Settings, Tier};
use thermocline_device::drivers::host_files;
use thermocline_foundation::random::{Random, mix};

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
/// A piece of a text ends at a line end after so many bytes, and at the latest after so many.
const PIECE_BYTES: (usize, usize) = (400, 4000);
const TEXT_BYTES_MAX: u64 = 1 << 30;

type Record = (Vec<u8>, Vec<u8>);

/// Loads the data of the row called `name` in both shapes below `disk`: bytes over bytes.
pub fn share(name: &str, text: Option<&Path>, disk: &Path) -> Outcome<f64> {
    let data = name.strip_prefix("17/").unwrap_or(name);
    let (data, over) = match data.strip_suffix(ALONE) {
        Some(data) => (data, SMALL_ALONE),
        None => (data, SMALL),
    };
    let records = match (data, text) {
        ("json", _) => readings(),
        ("linkbench", _) => graph(),
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

/// Readings of an instrument, as an application stores them.
fn readings() -> Vec<Record> {
    let cities = ["Bern", "Oslo", "Lima", "Turku", "Porto", "Quito", "Accra", "Hanoi"];
    let record = |n: u64| {
        let hash = mix(n);
        let value = format!(
            "{{\"id\":{n},\"station\":{{\"city\":\"{}\",\"altitude_m\":{}}},\
             \"taken_at\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\
             \"temperature_c\":{:.1},\"humidity\":{:.3},\"checked\":{},\"serial\":\"{:012x}\"}}",
            cities[(hash % 8) as usize],
            hash >> 8 & 0xfff,
            1 + (hash >> 20) % 12,
            1 + (hash >> 24) % 28,
            (hash >> 30) % 24,
            (hash >> 36) % 60,
            (hash >> 42 & 0x1ff) as f64 / 10.0 - 20.0,
            (hash >> 50 & 0x3ff) as f64 / 1024.0,
            hash.is_multiple_of(3),
            mix(hash) >> 16,
        );
        (format!("reading/{n:012}").into_bytes(), value.into_bytes())
    };
    (0..READINGS).map(record).collect()
}

/// Nodes of 128 B and links of 8 B, seven to a node (LinkBench): half of a payload is noise.
fn graph() -> Vec<Record> {
    let mut records = Vec::new();
    for node in 0..NODES {
        let mut random = Random::new(mix(node));
        let mut payload = vec![b'.'; 128];
        payload[..16].copy_from_slice(&(1_700_000_000 + node).to_be_bytes().repeat(2));
        random.fill(&mut payload[64..]);
        records.push((format!("n{node:022}").into_bytes(), payload));
        for link in 0..7 {
            let mut payload = [0; 8];
            random.fill(&mut payload[4..]);
            records.push((format!("n{node:022}/{link}").into_bytes(), payload.to_vec()));
        }
    }
    records
}

/// Pieces of a text, at its line ends.
fn pieces(text: &[u8]) -> Vec<Record> {
    let (mut records, mut from) = (Vec::new(), 0);
    while from < text.len() {
        let least = (from + PIECE_BYTES.0).min(text.len());
        let line = text[least..].iter().position(|byte| *byte == b'\n');
        let to = line.map_or(text.len(), |at| least + at + 1).min(from + PIECE_BYTES.1);
        let key = format!("text/{:010}", records.len());
        records.push((key.into_bytes(), text[from..to].to_vec()));
        from = to;
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_sets_are_in_order_and_a_text_is_all_there() {
        for records in [readings(), graph()] {
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
        let records: Vec<_> = readings().into_iter().take(40_000).collect();
        let bytes = |name: &str, shape| {
            let place = scratch.path().join(name);
            files::make(&place).unwrap();
            bytes_of_tables(&place, &records, shape).unwrap()
        };
        let [small, small_alone] = [bytes("small", SMALL), bytes("alone", SMALL_ALONE)];
        assert!(small < small_alone, "{small} with a dictionary, {small_alone} without");
    }
}
