//! Compares every value with its file, and the number of records with the number of files.

use super::corpus::{Corpus, Sample, digest};
use super::workload::{Updates, trailer};
use crate::failure::{Failure, Result};
use crate::progress::Bar;
use thermocline::Db;
use thermocline_device::drivers::host_files;

/// What was compared.
#[derive(Debug, Default)]
pub struct Checked {
    /// Values compared.
    pub values: u64,
    /// Of these, with a digest, because the file is no longer what it was.
    pub changed: u64,
}

/// Checks every file of the corpus; the first difference is a failure.
pub fn run(db: &Db, corpus: &Corpus, updates: &Updates) -> Result<Checked> {
    let bar = Bar::new("checking", Some(corpus.bytes()));
    let mut checked = Checked::default();
    for (sample, updates) in corpus.samples().iter().zip(updates) {
        let value = db.get(sample.key())?;
        let Some(value) = value else {
            return Err(Failure::new(format!("{} is not in the store", sample.path.display())));
        };
        let is_as_on_disk = compare(sample, *updates, &value).map_err(|what| {
            let text = format!("the store's value of {} {what}", sample.path.display());
            Failure::new(text).and("run 'thermocline verify'")
        })?;
        checked.values += 1;
        checked.changed += u64::from(!is_as_on_disk);
        bar.advance(sample.len);
    }
    let mut records = 0;
    for record in db.scan() {
        record?;
        records += 1;
    }
    if records != checked.values {
        return Err(Failure::new(format!(
            "a scan gives {records} records where {} were loaded; run 'thermocline verify'",
            checked.values
        )));
    }
    Ok(checked)
}

/// True where the value equals the file, false where it equals what the file was when loaded.
fn compare(sample: &Sample, updates: u32, value: &[u8]) -> Result<bool, &'static str> {
    let content = value
        .strip_suffix(trailer(updates).as_bytes())
        .ok_or("lost an update that was acknowledged")?;
    let file = host_files::read(&sample.path, u64::from(u32::MAX)).unwrap_or_default();
    if content == file {
        return Ok(true);
    }
    if digest(content) == sample.digest { Ok(false) } else { Err("differs from the file") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_must_be_the_file_and_its_last_update() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        host_files::write_text(&path, "content").unwrap();
        let sample = Sample { path: path.clone(), len: 7, digest: digest(b"content") };
        assert_eq!(compare(&sample, 0, b"content"), Ok(true));
        assert_eq!(compare(&sample, 2, b"content\nthermocline update 2\n"), Ok(true));
        assert!(compare(&sample, 2, b"content\nthermocline update 1\n").is_err());
        assert!(compare(&sample, 0, b"contenT").is_err());
        host_files::write_text(&path, "changed").unwrap();
        assert_eq!(compare(&sample, 0, b"content"), Ok(false));
    }
}
