//! Which files a trial loads, and a digest of each as it was loaded.

use crate::failure::{Failure, Result};
use crate::load::Loader;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thermocline_device::drivers::host_files::{self, HostFile};
use thermocline_foundation::random::Random;

/// The order in which files are chosen follows from this, so that two trials choose the same.
const SEED: u64 = 0x7E12;
/// Larger files are left to `load`: a few of them that are asked for often would be all that the
/// fast tier of a trial holds.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file of the trial.
#[derive(Debug)]
pub struct Sample {
    /// Also the record's key.
    pub path: PathBuf,
    /// Length in bytes when it was loaded.
    pub len: u64,
    /// Digest of the content when it was loaded.
    pub digest: u64,
}

impl Sample {
    /// The record's key.
    pub fn key(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }
}

/// All files of the trial.
#[derive(Debug)]
pub struct Corpus {
    samples: Vec<Sample>,
}

/// A 64-bit digest of `content`; for comparison within this process only.
pub fn digest(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

impl Corpus {
    /// Chooses files below `from`, at random over the whole tree, up to `bytes_max`.
    pub fn find(from: &Path, bytes_max: u64) -> Result<Self> {
        let mut walk = host_files::walk(from).peekable();
        if let Some(Err(error)) = walk.peek() {
            let text = format!("{error}; name a readable directory: thermocline try DIR");
            return Err(Failure::new(text));
        }
        // Directories that this user may not read are no part of the trial.
        let found = walk.filter_map(Result::ok).filter(|file| file.len <= FILE_BYTES_MAX);
        let mut files: Vec<HostFile> = found.collect();
        shuffle(&mut files);
        let mut bytes = 0;
        files.retain(|file| {
            let fits = bytes + file.len <= bytes_max;
            bytes += if fits { file.len } else { 0 };
            fits
        });
        if files.is_empty() {
            let from = from.display();
            return Err(Failure::new(format!(
                "there is no file of up to {bytes_max} bytes below {from}; name another directory: \
                 thermocline try DIR"
            )));
        }
        let sample = |file: HostFile| Sample { path: file.path, len: file.len, digest: 0 };
        Ok(Self { samples: files.into_iter().map(sample).collect() })
    }

    /// Loads every file; those that cannot be read (any more) leave the corpus.
    pub fn load(&mut self, loader: &mut Loader) -> Result<()> {
        let mut failure = None;
        self.samples.retain_mut(|sample| {
            if failure.is_some() {
                return false;
            }
            loader.advance(sample.len);
            let Ok(content) = host_files::read(&sample.path, FILE_BYTES_MAX) else {
                return false;
            };
            sample.len = content.len() as u64;
            sample.digest = digest(&content);
            failure = loader.put(sample.key(), &content).err();
            true
        });
        match failure {
            Some(failure) => Err(failure),
            None if self.samples.is_empty() => Err(Failure::new("none of the files can be read")),
            None => Ok(()),
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.len).sum()
    }

    /// The files, in the order of their ranks: the first is the most popular.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

/// Puts `items` into an order that follows from [`SEED`] alone (Fisher and Yates).
fn shuffle<T>(items: &mut [T]) {
    let mut random = Random::new(SEED);
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_chosen_up_to_the_limit_and_the_same_every_time() {
        let home = tempfile::tempdir().unwrap();
        for index in 0..20 {
            let path = home.path().join(format!("{index:02}"));
            host_files::write_text(&path, &"x".repeat(100)).unwrap();
        }
        let paths = |corpus: &Corpus| {
            corpus.samples().iter().map(|sample| sample.path.clone()).collect::<Vec<_>>()
        };
        let corpus = Corpus::find(home.path(), 550).unwrap();
        assert_eq!((corpus.len(), corpus.bytes()), (5, 500));
        assert_eq!(paths(&corpus), paths(&Corpus::find(home.path(), 550).unwrap()));
        assert_ne!(
            paths(&corpus)[..3],
            [home.path().join("00"), home.path().join("01"), home.path().join("02")]
        );
        let error = Corpus::find(home.path(), 99).unwrap_err().to_string();
        assert!(error.contains("no file of up to 99 bytes"), "{error}");
        let error = Corpus::find(&home.path().join("nowhere"), 99).unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("name a readable"), "{error}");
    }
}
