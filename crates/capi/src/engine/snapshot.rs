//! The database as of one moment.

use super::db::{Db, give_values, key_list, value_places};
use super::failures::of_read;
use super::scan::{Range, Scan, ScanOptions, begin};
use crate::arguments::{Place, ValuePlace, bytes};
use crate::handle::{close, give_to, handle, with};
use crate::status::Status;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use thermocline::Snapshot as EngineSnapshot;

/// The database as of one moment, for as long as it is held. Meanwhile the space of what it can see
/// is not given back.
///
/// Threads: any number may call at once, except that `thermocline_snapshot_close` is the last call.
#[derive(Debug)]
pub struct Snapshot(crate::handle::Held<EngineSnapshot>);

handle!(Snapshot of EngineSnapshot, "the snapshot");

/// Takes a snapshot of the database. `*snapshot` becomes the handle, which is the caller's until
/// `thermocline_snapshot_close`; NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_snapshot(
    db: *const Db,
    snapshot: *mut *mut Snapshot,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = Place::required(snapshot, null_mut(), "the place for the snapshot");
        with(db, why, |db| {
            give_to(place?, db.poison.clone(), db.of.snapshot());
            Ok(())
        })
    }
}

/// As `thermocline_db_get`, as of the snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_snapshot_get(
    snapshot: *const Snapshot,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with(snapshot, why, |snapshot| {
            let found = snapshot.of.get(bytes(key, key_len, "the key")?).map_err(of_read)?;
            place.set_found(found.as_deref())
        })
    }
}

/// As `thermocline_db_multi_get`, as of the snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_snapshot_multi_get(
    snapshot: *const Snapshot,
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
        with(snapshot, why, |snapshot| {
            let places = places?;
            let keys = key_list(count, keys, key_lens)?;
            give_values(places, &snapshot.of.multi_get(&keys).map_err(of_read)?);
            Ok(())
        })
    }
}

/// As `thermocline_db_scan_with`, as of the snapshot, which may be closed before the scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_snapshot_scan(
    snapshot: *const Snapshot,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    scan_options: *const ScanOptions,
) -> *mut Scan {
    let range = Range { from, from_len, to, to_len };
    // SAFETY: the header asks for it.
    unsafe { begin(snapshot, range, scan_options, |snapshot| snapshot.scan()) }
}

/// Takes the snapshot. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_snapshot_close(snapshot: *mut Snapshot) {
    // SAFETY: the header asks for it.
    unsafe { close(snapshot) };
}
