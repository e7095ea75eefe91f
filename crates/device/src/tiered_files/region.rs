//! What the namespace knows of the region of persistent memory: what `DATABASE` says of it. The
//! region itself is another crate's.
//!
//! The region's own generation is written first and `DATABASE` afterwards, as with the tiers, so a
//! crash between the two leaves the region one ahead.
//!
//! Threads: the ones that open and close the database.

use super::home::{Home, RegionRecord};
use super::{TieredFiles, absolute};
use crate::error::Result;
use crate::file_map::FileMap;
use crate::journal::Extent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{FileNumber, sync_site};

impl TieredFiles {
    /// What `DATABASE` says of the region; none where there is none.
    pub fn region(&self) -> Option<RegionRecord> {
        self.region.lock().clone()
    }

    /// What `DATABASE` says of the region when it is read again. After a write of it that failed
    /// this is the old text or the new one.
    pub fn recorded_region(&self) -> Result<Option<RegionRecord>> {
        Home::read(&*self.home_driver, &self.home).map(|home| home.region)
    }

    /// Has `DATABASE` say `record` of the region, durably.
    pub fn set_region(&self, record: RegionRecord) -> Result<()> {
        self.write_region(Some(record))
    }

    /// Has `DATABASE` name no region, durably. What the region has is lost.
    pub fn forget_region(&self) -> Result<()> {
        self.write_region(None)
    }

    fn write_region(&self, record: Option<RegionRecord>) -> Result<()> {
        self.require_writable()?;
        let generation = self.generation.load(Relaxed);
        let home = self.home_as(generation, self.closed_extents.clone(), record);
        sync_site("region", || home.write(&*self.home_driver, &self.home))?;
        *self.region.lock() = home.region;
        Ok(())
    }

    /// The path of the region's file, complete: one that does not begin at the root begins at the
    /// current directory.
    pub fn region_path(path: &Path) -> Result<PathBuf> {
        absolute(path)
    }

    /// A number that no file has or will have.
    pub fn take_number(&self) -> Result<FileNumber> {
        self.require_writable()?;
        self.with_map(FileMap::allocate_number)
    }

    pub(super) fn home_as(
        &self,
        generation: u64,
        closed: BTreeMap<String, Extent>,
        region: Option<RegionRecord>,
    ) -> Home {
        let tiers = self.tiers.iter().map(|tier| tier.spec().clone()).collect();
        let (database, instance) = (self.database, self.instance);
        let (left, cache_life) = (None, self.cache_life());
        Home { database, instance, generation, tiers, closed, region, left, cache_life }
    }
}
