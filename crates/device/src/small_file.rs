//! Whole small files through a driver: tier identities and the database's home file.
//!
//! 1. A read is bounded: a file longer than expected is damage, not memory.
//! 2. Transfers are whole pages, so every driver can carry them out.
//!
//! Threads: plain functions; callers hold the directory's lock.

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::driver::{Driver, Handle, Operation};
use crate::error::{Error, ErrorKind, Result};
use thermocline_foundation::{Planted, planted, sync_site};

/// All bytes of the file `name`, which `what` describes in messages; more than `bytes_max` are
/// damage.
pub(crate) fn read(
    driver: &dyn Driver,
    name: &str,
    what: &str,
    bytes_max: usize,
) -> Result<Vec<u8>> {
    let file = driver.open_to_read(name)?;
    let len = file.len()?;
    if len > bytes_max as u64 {
        return Err(Error::corrupt(what, 0, format!("{len} bytes, at most {bytes_max} expected")));
    }
    let buffer = Buffer::zeroed((len as usize).next_multiple_of(PAGE_BYTES));
    let completion = driver.execute(&file, Operation::Read { offset: 0, buffer });
    let got = completion.result?.min(len as usize);
    Ok(completion.buffer[..got].to_vec())
}

/// Writes `bytes`, padded with zeroes to whole pages, at `offset`, a multiple of the page size.
pub(crate) fn write(driver: &dyn Driver, file: &Handle, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(PAGE_BYTES));
    buffer[..bytes.len()].copy_from_slice(bytes);
    let len = buffer.len();
    let write = Operation::Write { offset, buffer, durable: false };
    let written = driver.execute(file, write).result?;
    // A driver finishes what was cut short. What it left would be zeroes after the truncation.
    match written == len {
        true => Ok(()),
        false => {
            let text = format!("cannot write {len} bytes: the device took {written}");
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

/// Makes what was written to `file` durable.
pub(crate) fn sync(driver: &dyn Driver, file: &Handle) -> Result<()> {
    driver.execute(file, Operation::Sync).result.map(drop)
}

/// What follows a file's name while [`replace`] writes it.
const UNFINISHED: &str = ".new";

/// The name is one that [`replace`] left behind when it was cut short.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED)
}

/// The name of the file that [`replace`] writes under `name`.
pub(crate) fn whole_name(name: &str) -> &str {
    name.strip_suffix(UNFINISHED).unwrap_or(name)
}

/// What the names of files begin with that are of use only while the database is open.
const LIVE: &str = "live-";

/// The name is of a file that is of use only while the database is open.
pub(crate) fn is_live(name: &str) -> bool {
    name.starts_with(LIVE)
}

/// Replaces the file `name` as a whole: written under another name, synced, renamed, directory
/// synced.
pub(crate) fn replace(driver: &dyn Driver, name: &str, bytes: &[u8]) -> Result<()> {
    let (new_name, file) = write_beside(driver, name, bytes)?;
    sync_site("file", || sync(driver, &file))?;
    driver.rename(&new_name, name)?;
    sync_site("name", || driver.sync_directory())
}

/// As [`replace`] without a sync: a reader sees the file before or after, and a power cut may leave
/// either, or a part.
pub(crate) fn replace_unsynced(driver: &dyn Driver, name: &str, bytes: &[u8]) -> Result<()> {
    let (new_name, _) = write_beside(driver, name, bytes)?;
    driver.rename(&new_name, name)
}

/// Removes the file `name` and what [`replace`] left of it, where there are any.
pub(crate) fn remove(driver: &dyn Driver, name: &str) -> Result<()> {
    for name in [name, &format!("{name}{UNFINISHED}")] {
        match driver.delete(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes `bytes` to the other name of the file `name`.
fn write_beside(driver: &dyn Driver, name: &str, bytes: &[u8]) -> Result<(String, Handle)> {
    let new_name = format!("{name}{UNFINISHED}");
    let stays = planted(Planted::LeftoverPreventsOpening);
    match if stays { Ok(()) } else { driver.delete(&new_name) } {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = driver.create(&new_name)?;
    write(driver, &file, 0, bytes)?;
    file.truncate(bytes.len() as u64)?;
    Ok((new_name, file))
}
