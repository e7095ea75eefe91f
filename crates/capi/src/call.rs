//! One call: its body runs, a panic ends here, and the answer goes out as a number and a line.

use crate::arguments::Place;
use crate::memory;
use crate::status::{Failure, Status};
use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::threads::catch_panic;

/// Set by the first panic in a call of a database's handles, which all share it: what the panic
/// left half done could be in any of them.
#[derive(Clone, Debug, Default)]
pub struct Poison(Arc<AtomicBool>);

impl Poison {
    fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Acquire) {
            let text = "an earlier call of this database's handles ended in a panic: close them \
                        and open the database again";
            return Err(Failure { status: Status::THERMOCLINE_PANIC, text: Some(text.to_owned()) });
        }
        Ok(())
    }

    /// What `body` gives, unless there was a panic before; one in `body` is a failure.
    pub fn guard<T>(&self, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        self.check()?;
        let caught = catch_panic(body);
        if caught.is_err() {
            self.0.store(true, Ordering::Release);
        }
        caught.unwrap_or_else(|panic| Err(panicked(&panic.to_string())))
    }
}

fn panicked(said: &str) -> Failure {
    let text = format!("a panic, which is a fault of the library: {said}");
    Failure { status: Status::THERMOCLINE_PANIC, text: Some(text) }
}

/// Runs the `body` of a call that has no handle yet, or takes one away.
///
/// # Safety
/// `why` is NULL or may be written.
pub unsafe fn call(why: *mut *mut c_char, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    // SAFETY: as the caller of this promises.
    let why = unsafe { Place::optional(why, std::ptr::null_mut()) };
    let outcome = catch_panic(body).unwrap_or_else(|panic| Err(panicked(&panic.to_string())));
    let Err(Failure { status, text }) = outcome else { return Status::THERMOCLINE_OK };
    if let (Some(why), Some(text)) = (why, text) {
        why.set(memory::line(&text));
    }
    status
}
