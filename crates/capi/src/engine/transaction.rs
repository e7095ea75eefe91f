//! Reads and writes that take effect together.

use super::batch::durability_of;
use super::db::Db;
use super::failures::of_read;
use super::scan::{Range, Scan, ScanOptions, begin};
use crate::arguments::{Options, Place, ValuePlace, bytes, options};
use crate::handle::{close, give_to, handle, with, with_mut};
use crate::status::{Failure, Status};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use thermocline::{
    ByteSize, Durability, Duration, Isolation, Locking, Transaction as EngineTransaction,
    TransactionOptions as EngineOptions,
};

/// A transaction, until it is committed or rolled back: none then.
type Open = Option<EngineTransaction>;

/// Reads and writes that take effect together, at the commit, or not at all.
///
/// Threads: one at a time.
#[derive(Debug)]
pub struct Transaction(crate::handle::Held<Open>);

handle!(Transaction of Open, "the transaction");

/// All reads are as of the beginning. A commit is a conflict where another wrote a key that the
/// transaction writes or has read for an update. The default.
pub const THERMOCLINE_ISOLATION_SNAPSHOT: u64 = 0;
/// Each read sees what is committed by then. Only keys that were read for an update conflict.
pub const THERMOCLINE_ISOLATION_READ_COMMITTED: u64 = 1;
/// As SNAPSHOT, and what was read conflicts, too: the outcome is that of one after the other.
pub const THERMOCLINE_ISOLATION_SERIALIZABLE: u64 = 2;

/// How a transaction is run. Fields of 0 are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TransactionOptions {
    /// `sizeof(thermocline_transaction_options)`.
    pub size: usize,
    /// One of THERMOCLINE_ISOLATION_.
    pub isolation: u64,
    /// Not 0: a key that is written, or read for an update, is locked until the end, and others
    /// that write it wait. Else a commit finds that another came first.
    pub is_pessimistic: u64,
    /// One of THERMOCLINE_DURABILITY_, for the commit.
    pub durability: u64,
    /// How long a call waits for a lock before it is THERMOCLINE_LOCK_TIMEOUT, in milliseconds; 0
    /// is what the settings say, 1000 unless they say otherwise.
    pub lock_timeout_ms: u64,
    /// Memory for the writes, in bytes, each with about 100 besides key and value: a write beyond
    /// is THERMOCLINE_INVALID, and the transaction goes on without it. 0 is
    /// what the settings say, 64 MiB unless they say otherwise.
    pub bytes_max: u64,
}

// SAFETY: it begins with its size; integers of 64 bits take any bytes and leave no gap.
unsafe impl Options for TransactionOptions {}

impl TransactionOptions {
    fn for_engine(self, settings: Durability) -> Result<EngineOptions, Failure> {
        let isolation = match self.isolation {
            THERMOCLINE_ISOLATION_SNAPSHOT => Isolation::Snapshot,
            THERMOCLINE_ISOLATION_READ_COMMITTED => Isolation::ReadCommitted,
            THERMOCLINE_ISOLATION_SERIALIZABLE => Isolation::Serializable,
            other => return Err(Failure::invalid(format!("{other} is no THERMOCLINE_ISOLATION_"))),
        };
        let is_pessimistic = self.is_pessimistic != 0;
        let (timeout_ms, bytes_max) = (self.lock_timeout_ms, self.bytes_max);
        Ok(EngineOptions {
            isolation,
            locking: if is_pessimistic { Locking::Pessimistic } else { Locking::Optimistic },
            durability: Some(durability_of(self.durability, settings)?),
            lock_timeout: (timeout_ms != 0).then(|| Duration::ms(timeout_ms)),
            bytes_max: (bytes_max != 0).then_some(ByteSize(bytes_max)),
        })
    }
}

/// Begins a transaction. `*transaction` becomes the handle, which is the caller's until
/// `thermocline_transaction_close`; NULL after an error. `transaction_options` may be NULL.
///
/// Nothing of it is written before its commit, and others see none of it before. Its own reads see
/// its writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_begin(
    db: *const Db,
    transaction_options: *const TransactionOptions,
    transaction: *mut *mut Transaction,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = Place::required(transaction, null_mut(), "the place for the transaction");
        with(db, why, |db| {
            let place = place?;
            let options = options(transaction_options)?.for_engine(db.of.settings().durability)?;
            give_to(place, db.poison.clone(), Some(db.of.transaction(options)));
            Ok(())
        })
    }
}

fn is_over() -> Failure {
    Failure::invalid("the transaction is over, by a commit or a rollback: close it")
}

/// Runs `body` with a transaction that is not over.
///
/// # Safety
/// As for [`with_mut`].
unsafe fn with_open(
    transaction: *mut Transaction,
    why: *mut *mut c_char,
    body: impl FnOnce(&mut EngineTransaction) -> Result<(), Failure>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe { with_mut(transaction, why, |_, open| body(open.as_mut().ok_or_else(is_over)?)) }
}

/// As `thermocline_db_get`: the value as the transaction has written it, or else as its isolation
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_get(
    transaction: *mut Transaction,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with_open(transaction, why, |transaction| {
            let found = transaction.get(bytes(key, key_len, "the key")?).map_err(of_read)?;
            place.set_found(found.as_deref())
        })
    }
}

/// As `thermocline_transaction_get`, and no other write of the key may come between this and the
/// commit: THERMOCLINE_CONFLICT now, or then. Pessimistic, the lock of the key is taken, which can
/// be THERMOCLINE_LOCK_TIMEOUT or THERMOCLINE_DEADLOCK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_get_for_update(
    transaction: *mut Transaction,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with_open(transaction, why, |transaction| {
            let key = bytes(key, key_len, "the key")?;
            place.set_found(transaction.get_for_update(key).map_err(of_read)?.as_deref())
        })
    }
}

/// Sets `key` to `value` at the commit. Pessimistic, the lock of the key is taken now, with the
/// answers of `thermocline_transaction_get_for_update`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_put(
    transaction: *mut Transaction,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_open(transaction, why, |transaction| {
            let key = bytes(key, key_len, "the key")?;
            Ok(transaction.put(key, bytes(value, value_len, "the value")?)?)
        })
    }
}

/// Removes `key` at the commit. Locks as for `thermocline_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_delete(
    transaction: *mut Transaction,
    key: *const c_void,
    key_len: usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_open(transaction, why, |transaction| {
            Ok(transaction.delete(bytes(key, key_len, "the key")?)?)
        })
    }
}

/// As `thermocline_db_scan_with`, over what the transaction sees and has written until now. The
/// scan may outlive the transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_scan(
    transaction: *mut Transaction,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    scan_options: *const ScanOptions,
) -> *mut Scan {
    let range = Range { from, from_len, to, to_len };
    // SAFETY: the header asks for it.
    unsafe {
        begin(transaction, range, scan_options, |open| {
            Ok(open.as_ref().ok_or_else(is_over)?.scan())
        })
    }
}

/// Makes all writes of the transaction durable and visible together. Whatever the answer is, the
/// transaction is over, and its handle is to be closed.
///
/// THERMOCLINE_CONFLICT where something has changed that it builds on: nothing was written, and all
/// of it is to be done again, from its reads on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_commit(
    transaction: *mut Transaction,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_mut(transaction, why, |_, open| {
            open.take().ok_or_else(is_over)?.commit()?;
            Ok(())
        })
    }
}

/// Takes all of the transaction back, and gives its locks back. It is over, and its handle is to be
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_rollback(
    transaction: *mut Transaction,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_mut(transaction, why, |_, open| {
            drop(open.take().ok_or_else(is_over)?);
            Ok(())
        })
    }
}

/// Takes the transaction, and rolls it back if it is not over. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_transaction_close(transaction: *mut Transaction) {
    // SAFETY: the header asks for it.
    unsafe { close(transaction) };
}
