//! Golden files: the bytes of the format must not change without a new version. Those of the
//! newest are written where the environment has `THERMOCLINE_BLESS=1`, otherwise compared and
//! decoded; those of earlier ones are read.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use support::*;
use thermocline_foundation::Sequence;
use thermocline_table::{Compression, ReadAhead, TableOptions, TableWriter};
use zstd::zstd_safe;

/// The version of Zstandard that the golden tables were compressed by.
const ZSTD_VERSION: u32 = 10507;

fn golden(name: &str, version: u32) -> PathBuf {
    let name = format!("{name}-v{version}.table");
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &name].iter().collect()
}

/// Whether these bytes follow from the format alone, or from the compressor of this build too. What
/// another version of it emits may differ; what must hold is that the old bytes are read.
fn follow_from_the_format(compression: Compression) -> bool {
    match compression {
        Compression::None => true,
        Compression::Lz4 => false,
        Compression::Zstd { .. } => zstd_safe::version_number() == ZSTD_VERSION,
    }
}

fn check(bytes: &[u8], version: u32, rows: &[Row]) {
    assert_eq!(bytes[bytes.len() - 4096 + 8..][..4], version.to_le_bytes());
    let table = open(&file_of(bytes)).unwrap();
    for (key, trailer, value) in rows {
        let got = table.get(key, trailer.sequence()).unwrap().unwrap();
        assert!(got.0 == *trailer && got.1 == *value);
    }
    assert_eq!(table.get(b"lake/60", Sequence::MAX).unwrap(), None);
    let mut it = table.iter(ReadAhead::default());
    it.seek_to_last().unwrap();
    for (key, trailer, value) in rows.iter().rev() {
        assert!(it.key() == key && it.trailer() == *trailer && it.value() == *value);
        it.prev().unwrap();
    }
    assert_eq!(table.properties().entries, rows.len() as u64);
    assert_eq!(table.verify(&mut |_| {}).unwrap().entries, rows.len() as u64);
}

#[test]
fn golden_tables_are_read_and_written_as_ever() {
    let rows = small_rows();
    for (name, compression) in all_compressions() {
        let options = TableOptions {
            block_bytes: 256,
            partition_bytes: 400,
            compression,
            ..TableOptions::default()
        };
        let (file, summary) = write(&rows, options);
        // Several restarts in a partition, several partitions.
        assert!(summary.data_blocks > 48 && summary.partitions == 3, "{summary:?}");
        let written = bytes_of(&file);
        if std::env::var_os("THERMOCLINE_BLESS").is_some() {
            std::fs::write(golden(name, 2), &written).unwrap();
        }
        let bytes = std::fs::read(golden(name, 2)).unwrap();
        if follow_from_the_format(compression) {
            assert!(bytes == written, "the format of {name} tables changed");
        }
        check(&bytes, 2, &rows);
    }
}

#[test]
fn a_golden_table_with_a_dictionary_is_read_and_written_as_ever() {
    let rows = alike_rows(0, 800);
    let (file, summary) = write(&rows, dictionary_options());
    assert!(summary.dictionary_bytes > 500, "{summary:?}");
    let written = bytes_of(&file);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::write(golden("dictionary", 3), &written).unwrap();
    }
    let bytes = std::fs::read(golden("dictionary", 3)).unwrap();
    if follow_from_the_format(dictionary_options().compression) {
        assert!(bytes == written, "the format of tables with dictionaries changed");
    }
    check(&bytes, 3, &rows);
    check(&written, 3, &rows);
}

#[test]
fn golden_tables_of_version_1_are_read() {
    for (name, _) in all_compressions() {
        check(&std::fs::read(golden(name, 1)).unwrap(), 1, &small_rows());
    }
}

/// Its entries have no sequence, and it says which one they follow.
#[test]
fn a_golden_table_of_a_bulk_load_is_read_and_written_as_ever() {
    let mut rows = small_rows();
    rows.dedup_by(|next, row| next.0 == row.0);
    rows.iter_mut().for_each(|row| row.1 = put(0));
    let file = new_file(7);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    for (key, trailer, value) in &rows {
        writer.add(key, *trailer, value).unwrap();
    }
    writer.follow(Sequence(77_000));
    writer.finish().unwrap();
    let written = bytes_of(&file);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::write(golden("load", 2), &written).unwrap();
    }
    let bytes = std::fs::read(golden("load", 2)).unwrap();
    assert!(bytes == written, "the format of tables of bulk loads changed");
    check(&bytes, 2, &rows);
    let table = open(&file_of(&bytes)).unwrap();
    assert_eq!(table.properties().follows, Sequence(77_000));
}
