//! The database: opening, records in and out, upkeep, closing.

use super::batch::{Batch, WriteOptions, contents, durability};
use super::failures::of_read;
use crate::arguments::{Place, ValuePlace, bytes, optional_text, options, path, slice};
use crate::call::{Poison, call};
use crate::handle::{give_to, handle, take, with};
use crate::memory;
use crate::status::{Failure, Status};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::null_mut;
use thermocline::{Builder, Db as EngineDb, Settings};

/// An open database.
///
/// Threads: any number may call at once, except that `thermocline_db_close` is the last call.
#[derive(Debug)]
pub struct Db(crate::handle::Held<EngineDb>);

handle!(Db of EngineDb, "the database");

/// Opens what `home` and `settings` say by `open`, and gives out the handle.
///
/// # Safety
/// Each is NULL or what its name says.
unsafe fn open(
    home: *const c_char,
    settings: *const c_char,
    db: *mut *mut Db,
    why: *mut *mut c_char,
    open: impl FnOnce(&Path, Option<Settings>) -> thermocline::Result<EngineDb>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        call(why, || {
            let db = Place::required(db, null_mut(), "the place for the database")?;
            let home = path(home, "the path of the database")?;
            let settings = optional_text(settings, "the text of the settings")?;
            let read = |text| Settings::from_toml(text, Path::new("settings"));
            let settings = settings.map(read).transpose()?;
            give_to(db, Poison::default(), open(home, settings)?);
            Ok(())
        })
    }
}

/// Opens the database in the directory `home`, for writing.
///
/// `settings` is TOML, the same as in the file `settings.toml` of the command line: tiers with
/// their paths and capacities, memory, durability. With a text, a database that is not there is
/// made, and one that is there goes on with these settings; tiers may be left out then. NULL opens
/// only: with the tiers and settings that the database keeps, and THERMOCLINE_NOT_FOUND where there
/// is none.
///
/// `*db` becomes the handle, which is the caller's until `thermocline_db_close`; NULL after an
/// error. A database is open once, in one process: THERMOCLINE_LOCKED says where else it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_open(
    home: *const c_char,
    settings: *const c_char,
    db: *mut *mut Db,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        open(home, settings, db, why, |home, settings| match settings {
            Some(settings) => EngineDb::open_or_create(home, &settings),
            None => EngineDb::open(home),
        })
    }
}

/// Opens the database in the directory `home` for reading only: nothing is written, and several
/// processes may read beside each other. Changes are THERMOCLINE_READ_ONLY.
///
/// `settings`, if not NULL, hold for this opening: for tiers that are mounted elsewhere, or another
/// budget of memory. `*db` as for `thermocline_db_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_open_read_only(
    home: *const c_char,
    settings: *const c_char,
    db: *mut *mut Db,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        open(home, settings, db, why, |home, settings| match settings {
            Some(settings) => Builder::default().settings(settings).open_read_only(home),
            None => EngineDb::open_read_only(home),
        })
    }
}

/// Closes the database and says whether all went well. Takes the handle, whatever the answer is;
/// NULL is none, and OK.
///
/// Snapshots, scans, tickets and transactions of it are closed by their own calls, best before:
/// what is left keeps the files and the lock, and the answer is THERMOCLINE_LOCKED, with all data
/// durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_close(db: *mut Db, why: *mut *mut c_char) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        call(why, || {
            take(db).map_or(Ok(()), EngineDb::close)?;
            Ok(())
        })
    }
}

/// Sets `key` (up to 64 KiB) to `value` (up to 256 MiB), as durable as the settings say: unless
/// they say otherwise, it survives a loss of power once the call has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_put(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with(db, why, |db| {
            let key = bytes(key, key_len, "the key")?;
            let value = bytes(value, value_len, "the value")?;
            Ok(db.of.put(key, value)?)
        })
    }
}

/// Removes `key`, as durable as the settings say. Removing what is not there is OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_delete(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with(db, why, |db| Ok(db.of.delete(bytes(key, key_len, "the key")?)?)) }
}

/// Looks `key` up. Where it is, `*value` becomes a buffer with `*value_len` bytes, which is the
/// caller's and goes back to `thermocline_free`. Where it is not, the answer is
/// THERMOCLINE_NOT_FOUND without a text.
///
/// `value` and `value_len` may each be NULL, where only the other, or the answer, is wanted. They
/// get NULL and 0 where there is no value; the buffer of a value without bytes is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_get(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with(db, why, |db| {
            let found = db.of.get(bytes(key, key_len, "the key")?).map_err(of_read)?;
            place.set_found(found.as_deref())
        })
    }
}

/// Looks up the `count` keys `keys[0]`, `keys[1]`, ... of `key_lens[0]`, `key_lens[1]`, ... bytes,
/// as of one moment. Faster than as many calls of `thermocline_db_get` where values are on disks:
/// they are read together.
///
/// `values` and `value_lens` have room for `count`. Each value becomes a buffer that goes back to
/// `thermocline_free`, or NULL with a length of 0 where there is no such key, which is OK. After an
/// error all are NULL. With a `count` of 0 the arrays may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_multi_get(
    db: *const Db,
    count: usize,
    keys: *const *const c_void,
    key_lens: *const usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let places = value_places(count, values, value_lens);
        with(db, why, |db| {
            let places = places?;
            let keys = key_list(count, keys, key_lens)?;
            give_values(places, &db.of.multi_get(&keys).map_err(of_read)?);
            Ok(())
        })
    }
}

/// The places for `count` values, which have nothing until there is an answer.
///
/// # Safety
/// Each array is NULL or may be written in `count` places.
pub(super) unsafe fn value_places(
    count: usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
) -> Result<Vec<ValuePlace>, Failure> {
    // SAFETY: as the caller of this promises. Places that have no value yet are slices of
    // `MaybeUninit`.
    unsafe {
        slice(values.cast::<MaybeUninit<*mut c_char>>(), count, "the array of values")?;
        slice(value_lens.cast::<MaybeUninit<usize>>(), count, "the array of lengths")?;
        Ok((0..count).map(|at| ValuePlace::new(values.add(at), value_lens.add(at))).collect())
    }
}

/// The keys of two arrays.
///
/// # Safety
/// Each array is NULL or has `count` of what its name says, for `'a`.
pub(super) unsafe fn key_list<'a>(
    count: usize,
    keys: *const *const c_void,
    key_lens: *const usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as the caller of this promises.
    unsafe {
        let keys = slice(keys, count, "the array of keys")?.unwrap_or_default();
        let lens = slice(key_lens, count, "the array of lengths of keys")?.unwrap_or_default();
        keys.iter().zip(lens).map(|(key, len)| bytes(*key, *len, "a key")).collect()
    }
}

/// Gives the caller what look-ups found.
pub(super) fn give_values<B: AsRef<[u8]>>(places: Vec<ValuePlace>, found: &[Option<B>]) {
    for (place, value) in places.into_iter().zip(found) {
        if let Some(value) = value {
            place.set(value.as_ref());
        }
    }
}

/// Writes what is in `batch`: all of it or, after an error or a crash, nothing. The batch stays as
/// it is.
///
/// `options` say how durable it is; NULL: as the settings do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_write(
    db: *const Db,
    batch: *const Batch,
    write_options: *const WriteOptions,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with(db, why, |db| {
            let durability = durability(&options(write_options)?, &db.of)?;
            Ok(db.of.write_with(contents(batch)?, durability)?)
        })
    }
}

/// Makes all that was written so far durable, as after a loss of power: of use where the settings
/// or the options of writes ask for less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_sync(db: *const Db, why: *mut *mut c_char) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with(db, why, |db| Ok(db.of.sync()?)) }
}

/// Writes what is in memory to the tiers, so that the next opening has less to replay. Nothing is
/// more durable for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_flush(db: *const Db, why: *mut *mut c_char) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with(db, why, |db| Ok(db.of.flush()?)) }
}

/// Makes the directory `directory`, which must not be there, a database of its own with the records
/// of now. Files are linked where it is on the file system of their tier, and copied elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_checkpoint(
    db: *const Db,
    directory: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with(db, why, |db| Ok(db.of.checkpoint(path(directory, "the path of the checkpoint")?)?))
    }
}

/// The state of the database as JSON, the same as of `thermocline stats --json`: sizes in bytes,
/// times in the unit that their name ends with. `*json` becomes a text with a zero behind, which is
/// the caller's and goes back to `thermocline_free`; NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_stats(
    db: *const Db,
    json: *mut *mut c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = Place::required(json, null_mut(), "the place for the text");
        with(db, why, |db| {
            let place = place?;
            place.set(memory::buffer(db.of.stats().to_json()?.as_bytes()));
            Ok(())
        })
    }
}
