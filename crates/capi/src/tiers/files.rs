//! A file of a host that is open: where its bytes are, and what must happen when they change.

use crate::arguments::Place;
use crate::handle::{Handle, Held, close, handle, with};
use crate::memory;
use crate::status::{Failure, Status};
use std::ffi::c_char;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use thermocline_device::file_cache::extents::{self, Cached};
use thermocline_device::{FileClass, Heat, Holds, HostUse, NamedFile, Origin, Writer};
use thermocline_foundation::FileNumber;
use thermocline_foundation::threads::catch_panic;

/// What a handle of a file was opened for.
#[derive(Debug)]
pub enum Opened {
    ToRead(Arc<NamedFile>),
    ToWrite(Writer),
}

impl Opened {
    fn file(&self) -> &Arc<NamedFile> {
        match self {
            Self::ToRead(file) => file,
            Self::ToWrite(writer) => writer.file(),
        }
    }
}

impl Deref for Opened {
    type Target = NamedFile;

    fn deref(&self) -> &NamedFile {
        match self {
            Self::ToRead(file) => file,
            Self::ToWrite(writer) => writer,
        }
    }
}

/// A managed file that is open, to be read or to be written. All openings of a file see the same
/// place. While one to write is open, the file stays where it is, unless its device is full.
///
/// Threads: any number may call at once, except that `thermocline_file_close` is the last call.
#[derive(Debug)]
pub struct File(Held<Opened>);

handle!(File of Opened, "the file");

/// What a new file is: all that decides where it goes. NULL says what its name says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NewFile {
    /// `sizeof(thermocline_new_file)`.
    pub size: usize,
    /// What it holds: THERMOCLINE_HOLDS_*; BY_NAME where its extension says it.
    pub holds: i32,
    /// The level of a table, 0 being the newest; -1 where it is not known.
    pub level: i32,
    /// Why it is made: THERMOCLINE_ORIGIN_*.
    pub origin: i32,
    /// How often it will be read: THERMOCLINE_HEAT_*. What is said here wins over the level.
    pub heat: i32,
}

/// Its extension says what a file holds: `.log`, `.sst`, `.ldb`, `.blob`.
pub const THERMOCLINE_HOLDS_BY_NAME: i32 = -1;
/// A write-ahead log.
pub const THERMOCLINE_HOLDS_LOG: i32 = 0;
/// A sorted table.
pub const THERMOCLINE_HOLDS_TABLE: i32 = 1;
/// Values beside tables.
pub const THERMOCLINE_HOLDS_BLOB: i32 = 2;
/// Anything else: it stays the host's plain file.
pub const THERMOCLINE_HOLDS_OTHER: i32 = 3;

/// For a caller that waits.
pub const THERMOCLINE_ORIGIN_FOREGROUND: i32 = 0;
/// A memtable is written out.
pub const THERMOCLINE_ORIGIN_FLUSH: i32 = 1;
/// Tables are merged.
pub const THERMOCLINE_ORIGIN_COMPACTION: i32 = 2;
/// A table is taken in from outside.
pub const THERMOCLINE_ORIGIN_INGEST: i32 = 3;
/// An opening writes what was left to do.
pub const THERMOCLINE_ORIGIN_RECOVERY: i32 = 4;

/// Nothing is said of it.
pub const THERMOCLINE_HEAT_NOT_SAID: i32 = -1;
/// Often, as a table of level 0.
pub const THERMOCLINE_HEAT_HOT: i32 = 0;
/// As its level has it.
pub const THERMOCLINE_HEAT_WARM: i32 = 1;
/// Hardly ever, as a table of the deepest level.
pub const THERMOCLINE_HEAT_COLD: i32 = 2;

/// The class of a file of this name.
///
/// # Safety
/// `new` is NULL or leads to a struct with its size.
pub(super) unsafe fn class(name: &str, new: *const NewFile) -> Result<FileClass, Failure> {
    let of_name = FileClass::of_name(name);
    if new.is_null() {
        return Ok(of_name);
    }
    // SAFETY: as the caller of this promises; only the size is known to be there so far.
    let size = unsafe { new.cast::<usize>().read() };
    if size != size_of::<NewFile>() {
        let text = format!("a new file begins with a size of {size}; it must be its sizeof");
        return Err(Failure::invalid(text));
    }
    // SAFETY: it is as long as its size says.
    let new = unsafe { *new };
    let wrong = |what: &str, value: i32| {
        Err(Failure::invalid(format!("a new file has {what} = {value}, which means nothing")))
    };
    let holds = match new.holds {
        THERMOCLINE_HOLDS_BY_NAME => of_name.holds,
        THERMOCLINE_HOLDS_LOG => Holds::Log,
        THERMOCLINE_HOLDS_TABLE => Holds::Table,
        THERMOCLINE_HOLDS_BLOB => Holds::Blob,
        THERMOCLINE_HOLDS_OTHER => Holds::Other,
        value => return wrong("holds", value),
    };
    let level = match new.level {
        -1 => None,
        level => match u8::try_from(level) {
            Ok(level) => Some(level),
            Err(_) => return wrong("level", level),
        },
    };
    let origin = match new.origin {
        THERMOCLINE_ORIGIN_FOREGROUND => Origin::Foreground,
        THERMOCLINE_ORIGIN_FLUSH => Origin::Flush,
        THERMOCLINE_ORIGIN_COMPACTION => {
            let to = level.unwrap_or(0);
            Origin::Compaction { from: to.saturating_sub(1), to }
        }
        THERMOCLINE_ORIGIN_INGEST => Origin::Ingest,
        THERMOCLINE_ORIGIN_RECOVERY => Origin::Recovery,
        value => return wrong("origin", value),
    };
    let heat = match new.heat {
        THERMOCLINE_HEAT_NOT_SAID => None,
        THERMOCLINE_HEAT_HOT => Some(Heat::Hot),
        THERMOCLINE_HEAT_WARM => Some(Heat::Warm),
        THERMOCLINE_HEAT_COLD => Some(Heat::Cold),
        value => return wrong("heat", value),
    };
    Ok(FileClass { holds, level, origin, heat })
}

/// Gives out the path where the host opens the file now to read it: at a copy on a faster tier,
/// where there is one. Nothing may be written there. Otherwise as `thermocline_file_place`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_place_to_read(
    file: *const File,
    place: *mut *mut c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(place, null_mut(), "the place for the path");
        with(file, why, |file| {
            let to = to?;
            to.set(memory::buffer(file.of.place_to_read().as_os_str().as_bytes()));
            Ok(())
        })
    }
}

/// Gives out the path where the host opens the file now, as text with a zero behind, for
/// `thermocline_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_place(
    file: *const File,
    place: *mut *mut c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(place, null_mut(), "the place for the path");
        with(file, why, |file| {
            let to = to?;
            to.set(memory::buffer(file.of.place().as_os_str().as_bytes()));
            Ok(())
        })
    }
}

/// A number that goes up when either place changes. A host that reads compares it before each read,
/// and opens the new place where it differs; what is being read at the old one stays readable.
///
/// `file` must not be NULL. Costs a load from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_epoch(file: *const File) -> u64 {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.epoch().load(Acquire)
}

/// Where the number of `thermocline_file_epoch` is, for a host that loads it itself (atomically,
/// with acquire). There as long as the handle is. `file` must not be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_epoch_address(file: *const File) -> *const u64 {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.epoch().as_ptr().cast_const()
}

/// The host has read from the file, so that it stays longer on its tier. `file` must not be NULL.
/// Costs additions to counters that all readers of the file share: once in a while is enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_was_read(file: *const File) {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.was_read();
}

/// As `thermocline_file_was_read`, for so many reads since the call before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_was_read_times(file: *const File, times: u64) {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.was_read_times(times);
}

/// What offsets, lengths and buffers of the host's direct I/O have to be multiples of, wherever the
/// file moves: the largest block of the tiers' devices, a power of two. `file` must not be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_direct_unit(file: *const File) -> usize {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.direct_unit()
}

/// Extents are kept of the file (`cache=extents`), as long as the handle lives: where they are not,
/// the host need not ask for them. `file` must not be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_keeps_extents(file: *const File) -> bool {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.keeps_extents()
}

/// Bytes of a file that are wanted for a cache of extents: `len` at `offset`; none where `len` is
/// 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// What the library knows the file by.
    pub file: u64,
}

/// Reads up to `len` bytes at `offset` into `to` from extents on the fastest tier
/// (`cache=extents`), if all of them are there. `epoch` is that of the place that the host has
/// open. Answers how many bytes were read, fewer than `len` at the end of the file alone, or -1:
/// the host reads them at the place. Where `wanted` has a length then, the host reads these bytes
/// in their stead, which contain them, and gives them to `thermocline_file_fill`.
///
/// `file` and `wanted` must not be NULL. Costs one test where no extents are kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_read_cached(
    file: *const File,
    epoch: u64,
    offset: u64,
    to: *mut c_char,
    len: usize,
    wanted: *mut Wanted,
) -> i64 {
    // SAFETY: the header asks for both.
    let (opened, wanted) = unsafe { (&(*file).held().of, &mut *wanted) };
    *wanted = Wanted { offset: 0, len: 0, file: 0 };
    if to.is_null() || len == 0 || !opened.keeps_extents() {
        return -1;
    }
    // SAFETY: the caller lends so many bytes for the call.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
    match catch_panic(|| opened.file().read_cached(epoch, offset, to)) {
        Ok(Cached::Served(got)) => got as i64,
        Ok(Cached::Missed(Some(bytes))) => {
            let extents::Wanted { offset, len, file } = bytes;
            *wanted = Wanted { offset, len: len as u64, file: file.0 };
            -1
        }
        Ok(Cached::Missed(None)) | Err(_) => -1,
    }
}

/// Gives the `len` bytes that `thermocline_file_read_cached` wanted, as they were read at the place
/// of `epoch`. They are copied, or dropped. No pointer may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_fill(
    file: *const File,
    epoch: u64,
    wanted: *const Wanted,
    bytes: *const c_char,
    len: usize,
) {
    // SAFETY: the header asks for it; the bytes are lent for the call.
    let (opened, wanted, bytes) = unsafe {
        (&(*file).held().of, *wanted, std::slice::from_raw_parts(bytes.cast::<u8>(), len))
    };
    let Wanted { offset, len, file } = wanted;
    let wanted = extents::Wanted { offset, len: len as usize, file: FileNumber(file) };
    // What is not taken is read again.
    drop(catch_panic(|| opened.file().fill(epoch, wanted, bytes)));
}

/// The host reads bytes of a file.
pub const THERMOCLINE_USE_READ: i32 = 0;
/// The host writes bytes of it.
pub const THERMOCLINE_USE_WRITE: i32 = 1;
/// The host makes it durable.
pub const THERMOCLINE_USE_SYNC: i32 = 2;

/// A tier of the file's directory is emulated (`emulated=DEVICE`), as long as the handle lives:
/// where none is, `thermocline_file_book` answers 0. `file` must not be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_is_emulated(file: *const File) -> bool {
    // SAFETY: the header asks for it.
    unsafe { &*file }.held().of.is_emulated()
}

/// For experiments with a tier that is emulated (`emulated=DEVICE`): when its device would be done
/// with what the host is about to do, of `len` bytes at `offset`; 0 where the device is a real one.
/// The host does it, then calls `thermocline_file_wait` with that time.
///
/// `file` must not be NULL. `of` is one of THERMOCLINE_USE_*; for any other it is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_book(
    file: *const File,
    of: i32,
    offset: u64,
    len: usize,
) -> u64 {
    // SAFETY: the header asks for it.
    let file = unsafe { &(*file).held().of };
    if !file.is_emulated() {
        return 0;
    }
    let of = match of {
        THERMOCLINE_USE_READ => HostUse::Read { offset, len },
        THERMOCLINE_USE_WRITE => HostUse::Write { offset, len },
        THERMOCLINE_USE_SYNC => HostUse::Sync,
        _ => return 0,
    };
    catch_panic(|| file.book(of)).unwrap_or_default().unwrap_or(0)
}

/// Waits for a time that `thermocline_file_book` told. `file` must not be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_wait(file: *const File, due: u64) {
    // SAFETY: the header asks for it.
    let file = unsafe { &(*file).held().of };
    drop(catch_panic(|| file.wait_until(due)));
}

/// To be called when the host has made the file's bytes durable, before it relies on that: makes
/// the name durable, too. Does nothing where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_synced(
    file: *const File,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with(file, why, |file| Ok(file.of.synced()?)) }
}

/// To be called when the device refused (`ENOSPC`) to extend the file beyond its first `len` bytes:
/// the file goes on elsewhere, with these bytes. The host opens the new place and repeats there
/// what failed. `file` is one that was created, or opened to write.
///
/// THERMOCLINE_OUT_OF_SPACE: every tier refused, and the file is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_continue_elsewhere(
    file: *const File,
    len: u64,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with(file, why, |file| match &file.of {
            Opened::ToWrite(writer) => Ok(writer.continue_elsewhere(len)?),
            Opened::ToRead(_) => {
                Err(Failure::invalid("the file was opened to read; open it to write"))
            }
        })
    }
}

/// Ends the use of the file here. After the last of those that write it the file may move. NULL is
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_file_close(file: *mut File) {
    // SAFETY: the header asks for it.
    unsafe { close(file) };
}
