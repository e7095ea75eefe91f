//! What a pointer that the library gave out leads to.
//!
//! ```text
//!   _open, _create       give()     a box, whose address the caller has
//!   most calls           with()     borrows it for one call
//!   _close               take()     takes the box back, and drops it
//! ```
//! Threads: a handle whose calls borrow it shared may be used by several at once, if what is in it
//! may; one whose calls borrow it alone, by one at a time. The header says which by type.

use crate::arguments::Place;
use crate::call::{Poison, call};
use crate::status::{Failure, Status};
use std::ffi::c_char;
use thermocline_foundation::threads::catch_panic;

/// What is behind a handle, and the poison that it shares with those of its database.
#[derive(Debug)]
pub struct Held<T> {
    pub poison: Poison,
    pub of: T,
}

/// A type that C sees as an opaque pointer.
pub trait Handle {
    type Of;
    /// What it is, for texts.
    const NAME: &'static str;

    fn new(held: Held<Self::Of>) -> Self;
    fn held(&self) -> &Held<Self::Of>;
    fn held_mut(&mut self) -> &mut Held<Self::Of>;
    fn into_held(self) -> Held<Self::Of>;
}

/// Makes the tuple struct `$handle`, which must be declared where cbindgen sees it, a handle of
/// `$of`.
macro_rules! handle {
    ($handle:ident of $of:ty, $name:literal) => {
        impl crate::handle::Handle for $handle {
            type Of = $of;
            const NAME: &'static str = $name;

            fn new(held: crate::handle::Held<$of>) -> Self {
                Self(held)
            }

            fn held(&self) -> &crate::handle::Held<$of> {
                &self.0
            }

            fn held_mut(&mut self) -> &mut crate::handle::Held<$of> {
                &mut self.0
            }

            fn into_held(self) -> crate::handle::Held<$of> {
                self.0
            }
        }
    };
}
pub(crate) use handle;

/// There is no handle where one is needed.
pub fn is_null<H: Handle>() -> Failure {
    Failure::invalid(format!("{} is NULL", H::NAME))
}

/// Boxes what is to be behind a handle; the address is the caller's from here on.
pub fn give<H: Handle>(poison: Poison, of: H::Of) -> *mut H {
    Box::into_raw(Box::new(H::new(Held { poison, of })))
}

/// As [`give`], into a place for the handle.
pub fn give_to<H: Handle>(place: Place<*mut H>, poison: Poison, of: H::Of) {
    place.set(give(poison, of));
}

/// Runs the `body` of a call with what is behind `handle`.
///
/// # Safety
/// `handle` is NULL or was given out and not taken back; `why` is NULL or may be written.
pub unsafe fn with<H: Handle>(
    handle: *const H,
    why: *mut *mut c_char,
    body: impl FnOnce(&Held<H::Of>) -> Result<(), Failure>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        call(why, || {
            let held = handle.as_ref().ok_or_else(is_null::<H>)?.held();
            held.poison.guard(|| body(held))
        })
    }
}

/// As [`with`], where no other thread uses the handle.
///
/// # Safety
/// As for [`with`], and no other call with the handle is under way.
pub unsafe fn with_mut<H: Handle>(
    handle: *mut H,
    why: *mut *mut c_char,
    body: impl FnOnce(&Poison, &mut H::Of) -> Result<(), Failure>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        call(why, || {
            let Held { poison, of } = handle.as_mut().ok_or_else(is_null::<H>)?.held_mut();
            poison.guard(|| body(poison, of))
        })
    }
}

/// Takes back what is behind `handle`; none where it is NULL.
///
/// # Safety
/// `handle` is NULL or was given out, and is used no more.
pub unsafe fn take<H: Handle>(handle: *mut H) -> Option<H::Of> {
    // SAFETY: `give` made it of a box, and the caller gives it back once.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) }.into_held().of)
}

/// Takes back what is behind `handle` and drops it. It has no answer, so a panic is only logged by
/// the process's panic hook.
///
/// # Safety
/// As for [`take`].
pub unsafe fn close<H: Handle>(handle: *mut H) {
    // SAFETY: as the caller of this promises.
    let dropped = catch_panic(|| drop(unsafe { take(handle) }));
    drop(dropped);
}
