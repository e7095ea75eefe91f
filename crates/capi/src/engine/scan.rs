//! Records in the order of their keys.

use super::db::Db;
use super::failures::of_read;
use crate::arguments::{Options, Place, optional_bytes, options};
use crate::handle::{Handle, close, give, handle, is_null, with_mut};
use crate::status::{Failure, Status};
use std::ffi::{c_char, c_void};
use std::ptr::null;
use thermocline::{Records, Scan as EngineScan};

/// What is behind a scan: its records, or why there are none, and the one that the caller sees.
#[derive(Debug)]
pub struct Course {
    records: Result<Records, Failure>,
    /// The key and the value that the caller's record leads to.
    shown: Option<<Records as Iterator>::Item>,
}

/// A scan under way.
///
/// Threads: one at a time.
#[derive(Debug)]
pub struct Scan(crate::handle::Held<Course>);

handle!(Scan of Course, "the scan");

/// A record of a scan. Key and value lie in memory of the library, until the next call with the
/// scan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The first byte of the key.
    pub key: *const c_char,
    /// Bytes of the key.
    pub key_len: usize,
    /// The first byte of the value.
    pub value: *const c_char,
    /// Bytes of the value.
    pub value_len: usize,
}

impl Record {
    const NONE: Self = Self { key: null(), key_len: 0, value: null(), value_len: 0 };
}

/// How a scan goes. Fields of 0 are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// `sizeof(thermocline_scan_options)`.
    pub size: usize,
    /// Not 0: the largest key comes first.
    pub is_reverse: u64,
    /// Not 0: so many records at most. The first read from a disk has a fitting size.
    pub limit: u64,
}

// SAFETY: it begins with its size; integers of 64 bits take any bytes and leave no gap.
unsafe impl Options for ScanOptions {}

/// The keys that a scan goes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub from: *const c_void,
    pub from_len: usize,
    pub to: *const c_void,
    pub to_len: usize,
}

impl Range {
    /// Narrows `scan` down.
    ///
    /// # Safety
    /// Each pointer is NULL or leads to as many bytes as its length says.
    unsafe fn narrow(self, scan: EngineScan) -> Result<EngineScan, Failure> {
        // SAFETY: as the caller of this promises.
        let (from, to) = unsafe {
            let from = optional_bytes(self.from, self.from_len, "the first key")?;
            (from, optional_bytes(self.to, self.to_len, "the key to end before")?)
        };
        let scan = if let Some(from) = from { scan.from(from) } else { scan };
        Ok(if let Some(to) = to { scan.to(to) } else { scan })
    }
}

/// Begins the scan that `scan_of` makes of what is behind `handle`. What fails is told by its first
/// record.
///
/// # Safety
/// `handle` is NULL or was given out and not taken back; the others are as [`Range`] and
/// [`ScanOptions`] say, or NULL.
pub(super) unsafe fn begin<H: Handle>(
    handle: *const H,
    range: Range,
    scan_options: *const ScanOptions,
    scan_of: impl FnOnce(&H::Of) -> EngineScan,
) -> *mut Scan {
    // SAFETY: as the caller of this promises.
    let held = unsafe { handle.as_ref() }.map(H::held);
    let poison = held.map(|held| held.poison.clone()).unwrap_or_default();
    let records = poison.guard(|| {
        let held = held.ok_or_else(is_null::<H>)?;
        // SAFETY: as the caller of this promises.
        let (options, scan) = unsafe { (options(scan_options)?, range.narrow(scan_of(&held.of))?) };
        let scan = if options.is_reverse == 0 { scan } else { scan.reverse() };
        let scan = if options.limit == 0 { scan } else { scan.limit(options.limit) };
        Ok(scan.into_iter())
    });
    give(poison, Course { records, shown: None })
}

/// Begins a scan of the records with keys at or after `from` and before `to`, as of now. NULL with
/// a length of 0 is no bound. To scan a prefix, let `to` be the prefix with its last byte one
/// larger.
///
/// The scan is the caller's until `thermocline_scan_close`. It is never NULL: an error is the
/// answer of the first `thermocline_scan_next`. The bounds are copied. While it is open, the space
/// of what it can see is not given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_scan(
    db: *const Db,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
) -> *mut Scan {
    // SAFETY: the header asks for it.
    unsafe { thermocline_db_scan_with(db, from, from_len, to, to_len, null()) }
}

/// As `thermocline_db_scan`, with options; NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_scan_with(
    db: *const Db,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    scan_options: *const ScanOptions,
) -> *mut Scan {
    let range = Range { from, from_len, to, to_len };
    // SAFETY: the header asks for it.
    unsafe { begin(db, range, scan_options, |db| db.scan()) }
}

/// Gives the next record: `*record` leads to it until the next call with the scan, which may be
/// `thermocline_scan_close`. THERMOCLINE_NOT_FOUND, without a text, is the end; `*record` is zeroed
/// then, as after an error.
///
/// A record that is damaged is an error in its place: the next call goes on behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_scan_next(
    scan: *mut Scan,
    record: *mut Record,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = Place::required(record, Record::NONE, "the place for the record");
        with_mut(scan, why, |_, course| {
            let place = place?;
            place.set(course.next()?);
            Ok(())
        })
    }
}

impl Course {
    /// Shows the next record.
    fn next(&mut self) -> Result<Record, Failure> {
        self.shown = None;
        let records = self.records.as_mut().map_err(|failure| failure.clone())?;
        self.shown = records.next();
        match &self.shown {
            None => Err(Failure::not_found()),
            Some(Err(error)) => Err(of_read(error.clone())),
            Some(Ok((key, value))) => Ok(Record {
                key: key.as_ptr().cast(),
                key_len: key.len(),
                value: value.as_ptr().cast(),
                value_len: value.len(),
            }),
        }
    }
}

/// Takes the scan. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_scan_close(scan: *mut Scan) {
    // SAFETY: the header asks for it.
    unsafe { close(scan) };
}
