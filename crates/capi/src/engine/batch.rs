//! A batch of writes, and how durable a write is.

use crate::arguments::{Options, bytes};
use crate::call::Poison;
use crate::handle::{close, give, handle, with_mut};
use crate::status::{Failure, Status};
use std::ffi::{c_char, c_void};
use thermocline::{Db as EngineDb, Durability, WriteBatch};

/// Writes that take effect together. It belongs to no database.
///
/// Threads: one at a time.
#[derive(Debug)]
pub struct Batch(crate::handle::Held<WriteBatch>);

handle!(Batch of WriteBatch, "the batch");

/// As durable as the settings of the database say.
pub const THERMOCLINE_DURABILITY_OF_SETTINGS: u64 = 0;
/// What was written survives a loss of power.
pub const THERMOCLINE_DURABILITY_SYNC: u64 = 1;
/// What was written survives the end of the process. A loss of power can take the last of it.
pub const THERMOCLINE_DURABILITY_BUFFERED: u64 = 2;

/// How a batch is written. Fields of 0 are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// `sizeof(thermocline_write_options)`.
    pub size: usize,
    /// One of THERMOCLINE_DURABILITY_.
    pub durability: u64,
}

// SAFETY: it begins with its size; integers of 64 bits take any bytes and leave no gap.
unsafe impl Options for WriteOptions {}

/// What the options ask for.
pub(super) fn durability(options: &WriteOptions, db: &EngineDb) -> Result<Durability, Failure> {
    match options.durability {
        THERMOCLINE_DURABILITY_OF_SETTINGS => Ok(db.settings().durability),
        THERMOCLINE_DURABILITY_SYNC => Ok(Durability::Sync),
        THERMOCLINE_DURABILITY_BUFFERED => Ok(Durability::Buffered),
        other => Err(Failure::invalid(format!("{other} is no THERMOCLINE_DURABILITY_"))),
    }
}

/// Makes an empty batch, which is the caller's until `thermocline_batch_close`. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn thermocline_batch_create() -> *mut Batch {
    give(Poison::default(), WriteBatch::new())
}

/// Adds to the batch: set `key` to `value`. Of writes to the same key the later one counts.
///
/// Key and value have the limits of `thermocline_db_put`, and the batch has one, too; what goes
/// beyond is THERMOCLINE_INVALID, and then the batch as a whole is not written any more, until
/// `thermocline_batch_clear`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_batch_put(
    batch: *mut Batch,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_mut(batch, why, |_, batch| {
            let key = bytes(key, key_len, "the key")?;
            accepted(batch.put(key, bytes(value, value_len, "the value")?))
        })
    }
}

/// Adds to the batch: remove `key`. Limits as for `thermocline_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_batch_delete(
    batch: *mut Batch,
    key: *const c_void,
    key_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_mut(batch, why, |_, batch| accepted(batch.delete(bytes(key, key_len, "the key")?)))
    }
}

/// A batch that refused a write says so at once.
fn accepted(batch: &WriteBatch) -> Result<(), Failure> {
    batch.refused().map_or(Ok(()), |error| Err(error.clone().into()))
}

/// Forgets all writes of the batch, and keeps its memory for the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_batch_clear(
    batch: *mut Batch,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_mut(batch, why, |_, batch| {
            batch.clear();
            Ok(())
        })
    }
}

/// Takes the batch. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_batch_close(batch: *mut Batch) {
    // SAFETY: the header asks for it.
    unsafe { close(batch) };
}
