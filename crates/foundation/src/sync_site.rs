//! Names for the places that make something durable, so that simulations can leave out the syncs
//! of one place and see whether anything objects.
//!
//! ```text
//!   device, log, table, engine   sync_site("publish", || tier.sync_directory())
//!   simulation                   a sync arrives: of which place? do it, or leave it out
//! ```
//! 1. Without the cargo feature `planted-bugs` [`sync_site`] is its body: names compile to nothing.
//! 2. Names nest: what a function that is called in several places makes durable is of the place
//!    `settings/file`, the outer name first.
//! 3. A site is a place in the code together with those that lead to it, so the places are met by
//!    running the store; no list of them is in the code. The list of all that are met, and of what
//!    objects when one is left out, is `crates/simulation/tests/every-sync.txt`.
//!
//! Threads: any; a name is the calling thread's own, from the start of the body to its end.

/// Runs `body`; the syncs in it are of the place `name`.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn sync_site<T>(_name: &'static str, body: impl FnOnce() -> T) -> T {
    body()
}

/// Runs `body` as if no place had a name yet: what is not of the call that it is within.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn apart<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[cfg(feature = "planted-bugs")]
pub use active::{apart, current, sync_site};

#[cfg(feature = "planted-bugs")]
mod active {
    use std::cell::RefCell;

    thread_local! {
        static NAMES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    /// Puts back the names that there were before, also after a panic.
    struct Restore(Vec<&'static str>);

    impl Drop for Restore {
        fn drop(&mut self) {
            NAMES.set(std::mem::take(&mut self.0));
        }
    }

    /// Runs `body`; the syncs in it are of the place `name`.
    pub fn sync_site<T>(name: &'static str, body: impl FnOnce() -> T) -> T {
        let before = NAMES.with_borrow(Vec::clone);
        NAMES.with_borrow_mut(|names| names.push(name));
        let _restore = Restore(before);
        body()
    }

    /// Runs `body` as if no place had a name yet: what is not of the call that it is within.
    pub fn apart<T>(body: impl FnOnce() -> T) -> T {
        let _restore = Restore(NAMES.take());
        body()
    }

    /// The place that this thread is in; empty where there is none.
    pub fn current() -> String {
        NAMES.with_borrow(|names| names.join("/"))
    }
}

#[cfg(all(test, feature = "planted-bugs"))]
mod tests {
    use super::*;

    #[test]
    fn names_nest_and_end_with_their_body_also_after_a_panic() {
        assert_eq!(current(), "");
        let (outer, inner) = sync_site("outer", || (current(), sync_site("inner", current)));
        assert_eq!((&outer[..], &inner[..]), ("outer", "outer/inner"));
        let panicked = std::panic::catch_unwind(|| sync_site("outer", || panic!("on purpose")));
        assert!(panicked.is_err() && current().is_empty());
        sync_site("outer", || {
            assert_eq!(apart(|| sync_site("inner", current)), "inner");
            assert_eq!(current(), "outer");
        });
    }
}
