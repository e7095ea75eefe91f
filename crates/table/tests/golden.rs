//! Golden files: the bytes of the format must not change without a new version. Written where the
//! environment has `THERMOCLINE_BLESS=1`, otherwise compared and decoded.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::path::PathBuf;
use support::*;
use thermocline_foundation::Sequence;
use thermocline_table::{Compression, TableOptions};

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &format!("{name}.table")].iter().collect()
}

#[test]
fn golden_tables_are_read_and_written_as_ever() {
    let rows = small_rows();
    for (name, compression) in all_compressions() {
        let options = TableOptions {
            block_bytes: 1024,
            partition_bytes: 512,
            compression,
            ..TableOptions::default()
        };
        let (file, _) = write(&rows, options);
        let written = bytes_of(&file);
        if std::env::var_os("THERMOCLINE_BLESS").is_some() {
            std::fs::write(path(name), &written).unwrap();
        }
        let golden = std::fs::read(path(name)).unwrap();
        // What a compressor emits may change with its version; what must hold is that the old bytes
        // read.
        if compression == Compression::None {
            assert!(golden == written, "the format of {name} tables changed");
        }
        let table = open(&file_of(&golden)).unwrap();
        for (key, trailer, value) in &rows {
            let got = table.get(key, trailer.sequence()).unwrap().unwrap();
            assert!(got.0 == *trailer && got.1 == *value);
        }
        assert_eq!(table.get(b"lake/60", Sequence::MAX).unwrap(), None);
        assert_eq!(table.properties().entries, rows.len() as u64);
        assert_eq!(table.verify(&mut |_| {}).unwrap().entries, rows.len() as u64);
    }
}
