//! What the program above keeps beside `DATABASE` in the home, and undoing a database that it could
//! not finish making.
//!
//! 1. A text is replaced as a whole, as `DATABASE` is; a crash leaves the old one or the new one,
//!    unless it is of use only while the database is open and was not synced.
//! 2. Only a database made by this process moments ago is ever abandoned; nothing else is deleted.
//!
//! Threads: the owner of the home's lock.

use super::TieredFiles;
use super::devices::Devices;
use super::home::{self, Home};
use super::opening::{LOCK_NAME, absolute};
use super::unfinished::{self, clear_with_lock, forget};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{self, Identity};
use crate::small_file;
use crate::tier::TierIndex;
use std::path::Path;
use thermocline_foundation::{FileNumber, sync_site};

/// A text longer than this is damage.
const TEXT_BYTES_MAX: usize = 256 << 10;

impl TieredFiles {
    /// There is a database whose home is `home`.
    pub fn exists(devices: &dyn Devices, home: &Path) -> Result<bool> {
        match devices.home(&absolute(home)?) {
            Ok(driver) => Ok(driver.list()?.iter().any(|entry| entry.name == home::FILE_NAME)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The text `name` beside `DATABASE`; none where there is no such file.
    pub fn read_home_file(
        devices: &dyn Devices,
        home: &Path,
        name: &str,
    ) -> Result<Option<String>> {
        if !Self::exists(devices, home)? {
            let shown = home.display();
            let text = format!("there is no database at {shown}; create one, or name its home");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let driver = devices.home(&absolute(home)?)?;
        let what = home.join(name).display().to_string();
        match small_file::read(&*driver, name, &what, TEXT_BYTES_MAX) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|error| {
                let at = error.utf8_error().valid_up_to() as u64;
                Error::corrupt(&what, at, "it is not text; restore or remove it")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The text `name` beside `DATABASE`; none where there is no such file.
    pub fn home_text(&self, name: &str) -> Result<Option<String>> {
        let what = self.home().join(name).display().to_string();
        match small_file::read(&**self.home_driver(), name, &what, TEXT_BYTES_MAX) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the text `name` beside `DATABASE`, atomically and durably.
    pub fn write_home_file(&self, name: &str, text: &str) -> Result<()> {
        self.require_writable()?;
        let replace = || small_file::replace(&**self.home_driver(), name, text.as_bytes());
        sync_site("settings", || self.open_files.with_room(replace))
    }

    /// The life of the opening that last had a cache of copies, as `DATABASE` has it: none where
    /// there was none.
    pub fn cache_life(&self) -> Option<u64> {
        *self.cache_life.lock()
    }

    /// Has `DATABASE` name the life of this opening, which has a cache of copies, durably.
    pub fn set_cache_life(&self, life: u64) -> Result<()> {
        self.require_writable()?;
        let generation = self.generation();
        let home = Home {
            cache_life: Some(life),
            ..self.home_as(generation, self.closed_extents.clone(), self.region())
        };
        let write = || home.write(&**self.home_driver(), self.home());
        sync_site("home", || self.open_files.with_room(write))?;
        *self.cache_life.lock() = home.cache_life;
        Ok(())
    }

    /// As [`TieredFiles::write_home_file`] without a sync, for what is of use only while the
    /// database is open: a power cut may leave the old text, the new one, or a part, and the next
    /// opening removes it. `name` begins with `live-`.
    pub fn write_live_file(&self, name: &str, text: &str) -> Result<()> {
        assert!(small_file::is_live(name), "openings remove files that are called live-");
        self.require_writable()?;
        small_file::replace_unsynced(&**self.home_driver(), name, text.as_bytes())
    }

    /// Removes what [`TieredFiles::write_live_file`] wrote, if there is anything.
    pub fn remove_live_file(&self, name: &str) -> Result<()> {
        self.require_writable()?;
        small_file::remove(&**self.home_driver(), name)
    }

    /// Another process, or another opening in this one, has the database whose home is `home` open
    /// for writing. Asking takes a reader's lock for a moment, so that an opening for writing at
    /// the same time may be refused.
    pub fn is_locked(devices: &dyn Devices, home: &Path) -> Result<bool> {
        match devices.home(&absolute(home)?)?.lock_shared(LOCK_NAME) {
            Ok(_lock) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Locked => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Removes a database that was just made and could not be finished: its files, and those of its
    /// directories that are empty then.
    pub fn abandon(&self, devices: &dyn Devices) -> Result<()> {
        sync_site("abandon", || forget(&**self.home_driver()))?;
        for tier in self.tiers() {
            let clear = || clear_with_lock(&**tier.driver(), identity::FILE_NAME);
            sync_site("abandon/tier", clear)?;
            devices.remove_directory_if_empty(&tier.spec().path)?;
        }
        let clear = || clear_with_lock(&**self.home_driver(), unfinished::FILE_NAME);
        sync_site("abandon/home", clear)?;
        devices.remove_directory_if_empty(self.home())
    }

    /// Reads the home file, every tier's identity and the file map again, and says what is wrong.
    pub fn verify_metadata(&self) -> Vec<(TierIndex, Error)> {
        let mut problems = Vec::new();
        if let Err(error) = Home::verify(&**self.home_driver(), self.home()) {
            problems.push((TierIndex(0), error));
        }
        for tier in self.tiers() {
            if let Err(error) = Identity::read(&**tier.driver(), &tier.describe()) {
                problems.push((tier.index(), error));
            }
        }
        if let Err(error) = self.verify_map() {
            problems.push((TierIndex(0), error));
        }
        problems
    }

    /// Reads the file map again, with nothing turned back.
    pub fn verify_map(&self) -> Result<()> {
        self.map.lock().journal().reread(|_| Ok(()))
    }

    /// The number of the file map.
    pub fn map_number(&self) -> FileNumber {
        self.map.lock().number()
    }
}
