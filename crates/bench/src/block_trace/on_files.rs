//! Files of a directory for a replay, with what a read of the engine costs beside its bytes: a
//! checksum.

use super::replay::Medium;
use crate::Outcome;
use std::collections::BTreeMap;
use std::path::Path;
use thermocline_device::drivers::PosixDriver;
use thermocline_device::{Buffer, Driver, Handle, Operation};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{DatabaseId, FileNumber, Place};

/// Files of one replay, through the page cache.
#[derive(Debug)]
pub struct OnFiles {
    driver: PosixDriver,
    files: BTreeMap<u64, Handle>,
    /// Of all that was read.
    sum: u32,
    failure: Option<thermocline_device::Error>,
}

impl OnFiles {
    /// In an existing directory.
    pub fn new(place: &Path) -> Outcome<Self> {
        let driver = PosixDriver::open(place)?;
        Ok(Self { driver, files: BTreeMap::new(), sum: 0, failure: None })
    }

    /// Removes its files, and says whether all went well.
    pub fn finish(mut self) -> Outcome<()> {
        let files: Vec<u64> = self.files.keys().copied().collect();
        files.into_iter().for_each(|file| self.remove(file));
        self.failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn note<T>(&mut self, done: thermocline_device::Result<T>) -> Option<T> {
        done.map_err(|error| self.failure = Some(error)).ok()
    }
}

fn name(file: u64) -> String {
    format!("{file}.cache")
}

impl Medium for OnFiles {
    fn write(&mut self, file: u64, at: u64, bytes: u64) {
        if !self.files.contains_key(&file) {
            let made = self.driver.create(&name(file));
            let Some(handle) = self.note(made) else { return };
            self.files.insert(file, handle);
        }
        let mut buffer = Buffer::zeroed(bytes as usize);
        buffer.fill(file as u8);
        let write = Operation::Write { offset: at, buffer, durable: false };
        let done = self.driver.execute(&self.files[&file], write).result;
        self.note(done);
    }

    fn read(&mut self, file: u64, at: u64, len: u32) {
        let Some(handle) = self.files.get(&file) else { return };
        let buffer = Buffer::for_read(len as usize);
        let done = self.driver.execute(handle, Operation::Read { offset: at, buffer });
        let place = Place { database: DatabaseId([1; 16]), file: FileNumber(file), offset: at };
        self.sum ^= checksum(&place, &done.buffer);
        self.note(done.result);
    }

    fn remove(&mut self, file: u64) {
        self.files.remove(&file);
        let done = self.driver.delete(&name(file));
        self.note(done);
    }
}
