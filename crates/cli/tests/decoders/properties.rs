//! What must hold for any bytes that `load` reads: every format ends with an error of one line or
//! takes records that read back as they are written. Each property returns whether all of the input
//! was taken.
//!
//! The formats are the program's own sources, included by the root of the test; their loader is
//! replaced by one that keeps the records.

use crate::load::jsonl::{self, Record};
use crate::load::lines::Lines;
use crate::load::loader::{Loader, Pair};
use crate::load::{deb822, tsv};
use crate::text;

type Format = fn(&mut Lines, &mut Loader) -> crate::failure::Result<()>;

/// The records that the format takes from `data`, and whether it took all of it.
fn load(format: Format, data: &[u8]) -> (Vec<Pair>, bool) {
    let mut lines = Lines::new("input", None, std::io::Cursor::new(data.to_vec()));
    let mut loader = Loader::default();
    let outcome = format(&mut lines, &mut loader);
    if let Err(failure) = &outcome {
        let text = failure.to_string();
        assert!(text.starts_with("input, line ") && !text.contains('\n'), "{text}");
    } else {
        assert_eq!(loader.advanced.get(), data.len() as u64, "bytes told to the progress bar");
    }
    (loader.records, outcome.is_ok())
}

/// Tab-separated lines.
pub fn tsv(data: &[u8]) -> bool {
    let (records, whole) = load(tsv::load, data);
    let lines = records.iter().map(|(k, v)| format!("{}\t{}\n", text::escape(k), text::escape(v)));
    let written: String = lines.collect();
    assert_eq!(load(tsv::load, written.as_bytes()), (records, true), "written as {written}");
    whole
}

/// JSON lines.
pub fn jsonl(data: &[u8]) -> bool {
    let (records, whole) = load(jsonl::load, data);
    let json = |record| serde_json::to_string(&record).expect("a record is JSON") + "\n";
    let lines = records.iter().map(|(key, value)| json(Record::of(key, Some(value))));
    let written: String = lines.collect();
    assert_eq!(load(jsonl::load, written.as_bytes()), (records, true), "written as {written}");
    whole
}

/// Package indexes.
pub fn deb822(data: &[u8]) -> bool {
    let (records, whole) = load(deb822::load, data);
    let mut written = Vec::new();
    for (key, value) in &records {
        assert!(key.contains(&b'='), "a key without a version");
        written.extend_from_slice(value);
        written.extend_from_slice(if value.ends_with(b"\n") { b"\n" } else { b"\n\n" });
    }
    let (again, taken) = load(deb822::load, &written);
    assert!(taken && again.len() == records.len(), "stanzas do not read back");
    let same = |(a, b): (&Pair, &Pair)| a.0 == b.0 && a.1.trim_ascii() == b.1.trim_ascii();
    assert!(again.iter().zip(&records).all(same), "stanzas do not read back as they were");
    whole
}
