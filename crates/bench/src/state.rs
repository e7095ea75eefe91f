//! The loaded state: made once for each engine and shape of data, copied for every cell.
//!
//! ```text
//!   IMAGES/0123456789abcdef/image.json     what it is; written last: without it, no image
//!   IMAGES/0123456789abcdef/fast|slow/     copies of the tiers' directories
//! ```
//! A copy is a plain copy of each tier's directory, so it works for any engine that keeps its bytes
//! there (`store`, invariant 1). Every cell gets a copy of the same image, at the same paths.

use crate::files;
use crate::store::TierSpace;
use crate::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use thermocline_device::drivers::host_files;
use thermocline_foundation::random::mix;

const DESCRIPTION: &str = "image.json";
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

/// What an image is of. Two that are equal have the same bytes in the sense of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The engine's label, with its layout.
    pub engine: String,
    /// What the engine says is in force.
    pub options: Vec<(String, String)>,
    /// Records.
    pub records: u64,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Lengths of values and order of keys, as text.
    pub data: String,
    /// Name and capacity of each tier.
    pub tiers: Vec<(String, u64)>,
}

/// Where images are.
#[derive(Clone, Debug)]
pub struct Images {
    directory: PathBuf,
}

/// One image, complete.
#[derive(Clone, Debug)]
pub struct Image {
    directory: PathBuf,
}

impl Images {
    /// Images below `directory`, which is made when the first one is.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn place(&self, shape: &Shape) -> Outcome<(PathBuf, String)> {
        let text = serde_json::to_string(shape)?;
        let name = text.bytes().fold(1, |hash, byte| mix(hash ^ u64::from(byte)));
        Ok((self.directory.join(format!("{name:016x}")), text))
    }

    /// The image of `shape`, if it was made.
    pub fn find(&self, shape: &Shape) -> Outcome<Option<Image>> {
        let (directory, text) = self.place(shape)?;
        let found = host_files::read(&directory.join(DESCRIPTION), DESCRIPTION_BYTES_MAX);
        let same = found.is_ok_and(|found| found == text.as_bytes());
        Ok(same.then_some(Image { directory }))
    }

    /// Makes the closed store in `tiers` the image of `shape`.
    pub fn save(&self, shape: &Shape, tiers: &[TierSpace]) -> Outcome<Image> {
        let (directory, text) = self.place(shape)?;
        files::remove(&directory)?;
        for tier in tiers {
            files::copy(&tier.path, &directory.join(&tier.name))?;
        }
        host_files::write_text(&directory.join(DESCRIPTION), &text)?;
        Ok(Image { directory })
    }

    /// Removes all images.
    pub fn clear(&self) -> Outcome<()> {
        files::remove(&self.directory)
    }
}

impl Image {
    /// Replaces what is in `tiers` by a copy of the image.
    pub fn restore(&self, tiers: &[TierSpace]) -> Outcome<()> {
        for tier in tiers {
            let from = self.directory.join(&tier.name);
            empty(&tier.path)?;
            files::copy(&from, &tier.path).map_err(|error| -> Failure {
                format!("the loaded state could not be copied: {error}").into()
            })?;
        }
        Ok(())
    }

    /// Bytes that it takes.
    pub fn allocated_bytes(&self) -> Outcome<u64> {
        files::allocated_bytes(&self.directory)
    }
}

/// Makes `directory` an empty one.
pub fn empty(directory: &Path) -> Outcome<()> {
    files::remove(directory)?;
    files::make(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::ByteSize;

    #[test]
    fn an_image_is_found_by_its_whole_shape_and_every_copy_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let tier = |name: &str| TierSpace {
            name: name.to_owned(),
            path: scratch.path().join("run").join(name),
            capacity: ByteSize::gib(1),
        };
        let tiers = [tier("fast"), tier("slow")];
        tiers.iter().for_each(|tier| empty(&tier.path).unwrap());
        host_files::write_text(&tiers[0].path.join("data"), "hot").unwrap();
        host_files::write_text(&tiers[1].path.join("data"), "cold").unwrap();
        let shape = Shape {
            engine: "e@tiers".to_owned(),
            options: Vec::new(),
            records: 10,
            key_bytes: 24,
            data: "Fixed(1000)".to_owned(),
            tiers: vec![("fast".to_owned(), 1), ("slow".to_owned(), 2)],
        };
        let images = Images::new(scratch.path().join("images"));
        assert!(images.find(&shape).unwrap().is_none());
        images.save(&shape, &tiers).unwrap();
        let other = Shape { records: 11, ..shape.clone() };
        assert!(images.find(&other).unwrap().is_none());
        let image = images.find(&shape).unwrap().unwrap();
        host_files::write_text(&tiers[0].path.join("more"), "left by a run").unwrap();
        host_files::write_text(&tiers[1].path.join("data"), "changed").unwrap();
        image.restore(&tiers).unwrap();
        assert_eq!(host_files::read(&tiers[1].path.join("data"), 10).unwrap(), b"cold");
        assert!(!tiers[0].path.join("more").exists());
        images.clear().unwrap();
        assert!(images.find(&shape).unwrap().is_none());
    }
}
