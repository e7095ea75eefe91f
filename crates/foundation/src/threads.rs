//! The door for threads, and for what becomes of one that panics.
//!
//! Where schedules are checked (`--cfg shuttle`, see `sync`) they are threads of the scheduler.
//!
//! A panic leaves no lock behind: those of `sync` are not poisoned, they are free once the panic
//! has passed. So the code that catches a panic must see to it that no thread goes on with what was
//! left half done.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

#[cfg(shuttle)]
use shuttle::thread::{Builder, current};
#[cfg(not(shuttle))]
use std::thread::{Builder, current};

/// What ends a thread's life for others: `join` waits for it.
#[cfg(shuttle)]
pub use shuttle::thread::JoinHandle;
#[cfg(not(shuttle))]
pub use std::thread::JoinHandle;

/// Threads that end before the call returns, and so may borrow what it has.
#[cfg(shuttle)]
pub use shuttle::thread::{Scope, scope};
#[cfg(not(shuttle))]
pub use std::thread::{Scope, scope};

/// Starts a named thread. Fails where the system has no thread to give.
pub fn spawn<T, F>(name: &str, body: F) -> std::io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().name(name.to_owned()).spawn(body)
}

/// Starts a thread within `scope`. Fails where the system has no thread to give, of which the
/// scope's own `spawn` makes a panic.
pub fn spawn_within<'scope, F>(scope: &'scope Scope<'scope, '_>, body: F) -> std::io::Result<()>
where
    F: FnOnce() + Send + 'scope,
{
    #[cfg(shuttle)]
    drop(scope.spawn(body));
    #[cfg(not(shuttle))]
    drop(Builder::new().spawn_scoped(scope, body)?);
    Ok(())
}

/// The calling thread is that one. It cannot wait for its own end.
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    thread.thread().id() == current().id()
}

/// How many threads the machine runs at once; 1 where it does not say. The system is asked once,
/// for it reads files to answer.
pub fn available() -> usize {
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    if cfg!(shuttle) {
        return 2;
    }
    *AVAILABLE.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A panic that was caught. Its text is what it said.
#[derive(Debug)]
pub struct Panic(Box<dyn Any + Send>);

impl Panic {
    /// Lets it go on as if it had not been caught.
    pub fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

impl fmt::Display for Panic {
    /// On one line, where an assertion says it in several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| self.0.downcast_ref::<&str>().copied());
        let lines: Vec<_> = text.unwrap_or("no text").lines().map(str::trim).collect();
        f.write_str(&lines.join(", "))
    }
}

/// Runs `body`; where it panics, the panic. Where schedules are checked no panic is caught: it is
/// what a schedule is looked through for.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, Panic> {
    if cfg!(shuttle) {
        return Ok(body());
    }
    // The caller sees to what the panic left half done, as the header says.
    catch_unwind(AssertUnwindSafe(body)).map_err(Panic)
}

/// The calling thread is on its way out of a panic. Never where schedules are checked: there the
/// first one ends everything.
pub fn is_panicking() -> bool {
    !cfg!(shuttle) && std::thread::panicking()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_scope_have_ended_when_it_has() {
        let counter = crate::Counter::default();
        scope(|scope| (0..3).for_each(|_| spawn_within(scope, || counter.add(1)).unwrap()));
        assert_eq!(counter.get(), 3);
    }

    #[test]
    fn a_panic_that_is_caught_says_what_it_said() {
        let said = |body: fn()| catch_panic(body).unwrap_err().to_string();
        assert!(catch_panic(|| 7).is_ok_and(|number| number == 7));
        assert_eq!(said(|| panic!("plain")), "plain");
        assert_eq!(
            said(|| assert_eq!(1 + 1, 3, "sum")),
            "assertion `left == right` failed: sum, left: 2, right: 3"
        );
        assert_eq!(said(|| std::panic::panic_any(7)), "no text");
        let again = catch_panic(|| catch_panic(|| panic!("first")).map_err(|panic| panic.resume()));
        assert_eq!(again.map(|_: Result<(), ()>| ()).unwrap_err().to_string(), "first");
    }
}
