//! Writes of one key that depend on what it has.

use super::db::Db;
use super::failures::of_read;
use crate::arguments::{Place, ValuePlace, bytes, optional_bytes};
use crate::handle::with;
use crate::status::{Failure, Status};
use std::ffi::{c_char, c_void};
use thermocline::{Db as EngineDb, Swap};

/// What a conditional put is given.
#[derive(Clone, Copy, Debug)]
struct Put {
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    is_put: *mut bool,
}

/// Puts by `put_where`, and says whether it did.
///
/// # Safety
/// Each pointer of `it` is NULL or what the header says; the others are as for [`with`].
unsafe fn put(
    db: *const Db,
    it: Put,
    why: *mut *mut c_char,
    put_where: impl FnOnce(&EngineDb, &[u8], &[u8]) -> thermocline::Result<bool>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        let place = Place::required(it.is_put, false, "the place for the outcome");
        with(db, why, |db| {
            let place = place?;
            let key = bytes(it.key, it.key_len, "the key")?;
            let value = bytes(it.value, it.value_len, "the value")?;
            place.set(put_where(&db.of, key, value).map_err(of_read)?);
            Ok(())
        })
    }
}

/// Sets `key` to `value` if there is no such key, and nothing comes between. `*is_put` says whether
/// it was so; that it was not is OK, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_put_if_absent(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    is_put: *mut bool,
    why: *mut *mut c_char,
) -> Status {
    let it = Put { key, key_len, value, value_len, is_put };
    // SAFETY: the header asks for it.
    unsafe { put(db, it, why, |db, key, value| db.put_if_absent(key, value)) }
}

/// Sets `key` to `value` if there is such a key, and nothing comes between. `*is_put` says whether
/// it was so; that it was not is OK, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_put_if_present(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    is_put: *mut bool,
    why: *mut *mut c_char,
) -> Status {
    let it = Put { key, key_len, value, value_len, is_put };
    // SAFETY: the header asks for it.
    unsafe { put(db, it, why, |db, key, value| db.put_if_present(key, value)) }
}

/// Sets `key` to `replacement` if its value is `expected`, byte for byte, and nothing comes
/// between.
/// `expected` NULL with a length of 0: if there is no such key. `replacement` NULL with a length of
/// 0: the key is removed. A pointer with a length of 0 is a value without bytes.
///
/// `*is_swapped` says whether it was so; that it was not is OK, too. Then `*found` and `*found_len`
/// become the value that the key has, as of `thermocline_db_get`, or NULL and 0 where there is no
/// such key. Each of the two may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_compare_and_swap(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    replacement: *const c_void,
    replacement_len: usize,
    is_swapped: *mut bool,
    found: *mut *mut c_char,
    found_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let found = ValuePlace::new(found, found_len);
        let outcome = Place::required(is_swapped, false, "the place for the outcome");
        with(db, why, |db| {
            let outcome = outcome?;
            let key = bytes(key, key_len, "the key")?;
            let expected = optional_bytes(expected, expected_len, "the expected value")?;
            let new = optional_bytes(replacement, replacement_len, "the replacement")?;
            match db.of.compare_and_swap(key, expected, new).map_err(of_read)? {
                Swap::Swapped => outcome.set(true),
                Swap::Found(Some(value)) => found.set(&value),
                Swap::Found(None) => {}
            }
            Ok::<(), Failure>(())
        })
    }
}
