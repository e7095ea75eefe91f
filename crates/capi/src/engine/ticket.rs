//! Requests that are handed in, and whose answers are fetched later.

use super::batch::{Batch, WriteOptions, contents, durability};
use super::db::Db;
use super::failures::of_read;
use crate::arguments::{Place, ValuePlace, bytes, options};
use crate::call::Poison;
use crate::handle::{close, give_to, handle, with, with_mut};
use crate::status::{Failure, Status};
use bytes::Bytes;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use thermocline::Ticket as EngineTicket;

/// The answer to come of a request.
#[derive(Debug)]
pub enum Awaited {
    Written(EngineTicket<()>),
    Read(EngineTicket<Option<Bytes>>),
    /// It was given.
    Nothing,
}

/// An answer to come: of `thermocline_db_put_async` and the calls like it. The request is carried
/// out whether or not anything looks at the ticket.
///
/// Threads: one at a time.
#[derive(Debug)]
pub struct Ticket(crate::handle::Held<Awaited>);

handle!(Ticket of Awaited, "the ticket");

/// Hands a request in, and gives out its ticket.
///
/// # Safety
/// `ticket` is NULL or may be written; the others are as for [`with`].
unsafe fn request(
    db: *const Db,
    ticket: *mut *mut Ticket,
    why: *mut *mut c_char,
    request: impl FnOnce(&thermocline::Db) -> Result<Awaited, Failure>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        let place = Place::required(ticket, null_mut(), "the place for the ticket");
        with(db, why, |db| {
            let place = place?;
            give_to(place, Poison::clone(&db.poison), request(&db.of)?);
            Ok(())
        })
    }
}

/// As `thermocline_db_put`, but returns at once: `*ticket` has the answer once the value is as
/// durable as asked and readers see it. Key and value are copied.
///
/// The ticket is the caller's until `thermocline_ticket_close`. Writes take effect, and are
/// answered, in the order in which they were handed in.
///
/// THERMOCLINE_BUSY where as many requests wait as may (settings `request_queue` and
/// `request_queue_bytes`): wait for a ticket, and call again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_put_async(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    ticket: *mut *mut Ticket,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        request(db, ticket, why, |db| {
            let key = bytes(key, key_len, "the key")?;
            let value = bytes(value, value_len, "the value")?;
            Ok(Awaited::Written(db.put_async(key, value)?))
        })
    }
}

/// As `thermocline_db_delete`, but returns at once, as `thermocline_db_put_async` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_delete_async(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    ticket: *mut *mut Ticket,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        request(db, ticket, why, |db| {
            Ok(Awaited::Written(db.delete_async(bytes(key, key_len, "the key")?)?))
        })
    }
}

/// As `thermocline_db_write`, but returns at once, as `thermocline_db_put_async` does. The batch is
/// copied, and stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_write_async(
    db: *const Db,
    batch: *const Batch,
    write_options: *const WriteOptions,
    ticket: *mut *mut Ticket,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        request(db, ticket, why, |db| {
            let durability = durability(&options(write_options)?, db)?;
            Ok(Awaited::Written(db.write_async(&mut contents(batch)?, durability)?))
        })
    }
}

/// As `thermocline_db_get`, but returns at once: the ticket gives the value, or
/// THERMOCLINE_NOT_FOUND. It has its answer already where the record is in memory. Busy as for
/// `thermocline_db_put_async`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_db_get_async(
    db: *const Db,
    key: *const c_void,
    key_len: usize,
    ticket: *mut *mut Ticket,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        request(db, ticket, why, |db| {
            Ok(Awaited::Read(db.get_async(bytes(key, key_len, "the key")?).map_err(of_read)?))
        })
    }
}

impl Awaited {
    /// Gives the caller the `answer`.
    fn give<T>(
        &mut self,
        answer: thermocline::Result<T>,
        give: impl FnOnce(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        *self = Self::Nothing;
        give(answer.map_err(of_read)?)
    }

    /// The answer if there is one by now.
    fn poll(&mut self, place: ValuePlace) -> Result<(), Failure> {
        match self {
            Self::Written(ticket) => match ticket.poll_now() {
                Some(answer) => self.give(answer, Ok),
                None => Err(pending()),
            },
            Self::Read(ticket) => match ticket.poll_now() {
                Some(answer) => self.give(answer, |found| place.set_found(found.as_deref())),
                None => Err(pending()),
            },
            Self::Nothing => Err(given()),
        }
    }

    /// Waits for the answer.
    fn wait(&mut self, place: ValuePlace) -> Result<(), Failure> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Written(ticket) => self.give(ticket.wait(), Ok),
            Self::Read(ticket) => {
                self.give(ticket.wait(), |found| place.set_found(found.as_deref()))
            }
            Self::Nothing => Err(given()),
        }
    }
}

fn pending() -> Failure {
    Failure { status: Status::THERMOCLINE_PENDING, text: None }
}

fn given() -> Failure {
    Failure::invalid("the ticket has given its answer, which it does once: close it")
}

/// Gives the answer of the request if there is one by now, and never waits: THERMOCLINE_PENDING,
/// without a text, where there is none yet. Once it was given, the ticket answers
/// THERMOCLINE_INVALID.
///
/// The answer is that of the call without `_async`. `value` and `value_len` are for a get, and as
/// for `thermocline_db_get`; of a write they may be NULL, and get NULL and 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_ticket_poll(
    ticket: *mut Ticket,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with_mut(ticket, why, |_, awaited| awaited.poll(place))
    }
}

/// As `thermocline_ticket_poll`, but waits for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_ticket_wait(
    ticket: *mut Ticket,
    value: *mut *mut c_char,
    value_len: *mut usize,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let place = ValuePlace::new(value, value_len);
        with_mut(ticket, why, |_, awaited| awaited.wait(place))
    }
}

/// Takes the ticket. The request is carried out all the same. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_ticket_close(ticket: *mut Ticket) {
    // SAFETY: the header asks for it.
    unsafe { close(ticket) };
}
