//! Regions of which every store is remembered, so that a test can cut the power between any two of
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use thermocline::{RegionDriver, Regions};
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_pmem::shadow::Shadow;
use thermocline_pmem::{Circumstances, Medium};

pub const PERSISTENT: Circumstances =
    Circumstances { is_synchronous: true, boot: [3; 16], dirty_shutdowns: None };

type Remembered = (Vec<u64>, Arc<Shadow>);

/// Regions by path: what each began with, and what remembers its stores since.
#[derive(Debug)]
pub struct ShadowRegions {
    files: Mutex<BTreeMap<PathBuf, Remembered>>,
    now: Circumstances,
}

impl ShadowRegions {
    pub fn new(now: Circumstances) -> Self {
        Self { files: Mutex::default(), now }
    }

    /// The same regions, of which that at `path` holds `image`.
    pub fn with(path: &str, image: &[u64], now: Circumstances) -> Self {
        let file = (image.to_vec(), Arc::new(Shadow::new(image)));
        Self { files: Mutex::new([(path.into(), file)].into()), now }
    }

    pub fn shadow(&self, path: &str) -> Arc<Shadow> {
        Arc::clone(&self.files.lock().unwrap()[Path::new(path)].1)
    }

    /// There is a file at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.files.lock().unwrap().contains_key(Path::new(path))
    }

    /// All that was stored: what the end of the process leaves.
    pub fn stored(&self, path: &str) -> Vec<u64> {
        self.shadow(path).last().stored()
    }
}

impl Regions for ShadowRegions {
    fn create(&self, path: &Path, bytes: u64, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        let zeros = vec![0; (bytes / 8) as usize];
        let shadow = Arc::new(Shadow::new(&zeros));
        let medium = Medium::shadowed_by(Arc::clone(&shadow), &zeros);
        let mut files = self.files.lock().unwrap();
        if files.contains_key(path) {
            return Err(Error::new(ErrorKind::AlreadyExists, "there is one"));
        }
        files.insert(path.into(), (zeros, shadow));
        Ok((medium, self.now))
    }

    fn open(&self, path: &Path, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        let mut files = self.files.lock().unwrap();
        let Some((start, shadow)) = files.get_mut(path) else {
            return Err(Error::new(ErrorKind::NotFound, "there is none"));
        };
        if !shadow.is_untouched() {
            *start = shadow.last().stored();
            *shadow = Arc::new(Shadow::new(start));
        }
        Ok((Medium::shadowed_by(Arc::clone(shadow), start), self.now))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.lock().unwrap().remove(path);
        Ok(())
    }
}
