//! Which process something belongs to, told in a nanosecond: what a fork copies must not be used,
//! and not be given back, by the child.
//!
//! After `fork` a child has a copy of everything: the handles of files and rings, the lock's
//! descriptor, mutexes that threads held which the child does not have. The descriptors are not
//! copies but the same open files, so a child that unlocks, reaps or writes does so to its parent.
//! The mark of a process lies in a page that the kernel hands to a child as zeroes:
//!
//! ```text
//!   parent   mark 1 --fork--> child   mark 0, what the parent made says 1: not its own
//!                             child   makes something: mark 2, above that of every ancestor
//! ```
//! Where the kernel has no such pages (before Linux 4.14) the number of the process is asked for
//! each time.
//!
//! Nothing here waits for another thread, not even to make something once: a child made at that
//! moment would wait for ever.
//!
//! Threads: any.
#![allow(unsafe_code)]

use crate::error::{Error, ErrorKind, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::fmt::Display;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The length of the mapping; a page of any size holds it, and the kernel rounds up.
const MAPPED_BYTES: usize = 4096;

/// The process that made a value of this type.
#[derive(Clone, Copy, Debug)]
pub struct OwnerProcess {
    mark: u64,
    process_id: u32,
    page: Option<&'static AtomicU64>,
}

impl Default for OwnerProcess {
    /// The calling process.
    fn default() -> Self {
        Self::current()
    }
}

impl OwnerProcess {
    /// The calling process.
    pub fn current() -> Self {
        let process_id = std::process::id();
        match page_of_marks() {
            Some(page) => Self { mark: mark_of(page), process_id, page: Some(page) },
            None => Self { mark: u64::from(process_id), process_id, page: None },
        }
    }

    /// The calling process is the one that made this, and no child of it.
    pub fn is_current(&self) -> bool {
        let mark = match self.page {
            Some(page) => page.load(Ordering::Relaxed),
            None => u64::from(std::process::id()),
        };
        mark == self.mark
    }

    /// Its number, as it was when this was made.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Refuses a child that uses `what`, an open store or one of its parts.
    pub fn require(&self, what: impl Display) -> Result<()> {
        if self.is_current() {
            return Ok(());
        }
        let text = format!(
            "{what} was opened by process {}, and this is process {}, forked from it: use it \
             there, or close it there and open it here",
            self.process_id,
            std::process::id()
        );
        Err(Error::new(ErrorKind::Locked, text))
    }

    /// The same process made both.
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

/// A value of the process, of which a child makes its own: the copy that the fork left it may be a
/// lock that a thread of its parent holds. Never dropped.
pub(super) struct PerProcess<T> {
    made: AtomicPtr<Made<T>>,
}

struct Made<T> {
    owner: OwnerProcess,
    value: T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Nothing, in any process so far.
    pub(super) const fn new() -> Self {
        Self { made: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value of the calling process, from `make` where it has none yet. Of threads that make
    /// one at the same time one is heard.
    pub(super) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        let found = self.made.load(Ordering::Acquire);
        // SAFETY: null, or from `Box::into_raw` below and never freed; only shared from then on.
        if let Some(made) = unsafe { found.as_ref() }
            && made.owner.is_current()
        {
            return &made.value;
        }
        let new = Box::into_raw(Box::new(Made { owner: OwnerProcess::current(), value: make() }));
        let swap = self.made.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
        let now = match swap {
            Ok(_) => new,
            Err(earlier) => {
                // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                earlier
            }
        };
        // SAFETY: as above; it is not null, because it was made here or replaced what was found.
        unsafe { &(*now).value }
    }
}

/// The page of this process and its children, if the kernel has such pages.
fn page_of_marks() -> Option<&'static AtomicU64> {
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: null, or from `wiped_page`, which gives it for ever.
    if let Some(page) = unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        return Some(page);
    }
    let new = wiped_page()?;
    let none = std::ptr::null_mut();
    match PAGE.compare_exchange(none, new.as_ptr().cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        // Another thread was first; the page made here stays unused.
        // SAFETY: as above.
        Err(first) => unsafe { first.as_ref() },
    }
}

/// The mark of the calling process, given now where it has none yet.
fn mark_of(page: &AtomicU64) -> u64 {
    /// The last mark given; a child goes on from that of its parent.
    static LAST: AtomicU64 = AtomicU64::new(0);
    match page.load(Ordering::Relaxed) {
        0 => {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let given = page.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
            given.map_or_else(|earlier| earlier, |_| next)
        }
        mark => mark,
    }
}

/// A number that is zero in every child, whatever it is in its parent; never given back.
fn wiped_page() -> Option<&'static AtomicU64> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the address of a new mapping, so nothing is mapped over.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), MAPPED_BYTES, access, flags) };
    let page = mapped.ok()?;
    // SAFETY: the range is the mapping made above, to which nothing points yet.
    if let Err(errno) = unsafe { madvise(page, MAPPED_BYTES, Advice::LinuxWipeOnFork) } {
        tracing::debug!(%errno, "children are told from their parents by number");
        // SAFETY: as above; nothing points to the mapping.
        let _ = unsafe { rustix::mm::munmap(page, MAPPED_BYTES) };
        return None;
    }
    // SAFETY: the mapping is zeroed, aligned to a page, longer than the number, readable and
    // writable, and stays until the process ends. All access to it is atomic; the kernel zeroes
    // it in the child alone, before that runs.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_made_is_its_own_and_what_another_made_is_refused_with_the_way_out() {
        let own = OwnerProcess::current();
        assert!(own.is_current() && OwnerProcess::current().is_same(&own));
        assert!(own.require("the store").is_ok());
        let other = OwnerProcess { mark: own.mark + 1, process_id: 7, ..own };
        assert!(!other.is_current() && !other.is_same(&own));
        let error = other.require("the store at /db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        let text = error.to_string();
        assert!(text.starts_with("the store at /db was opened by process 7"), "{text}");
        assert!(text.contains("open it here"), "{text}");
    }

    #[test]
    fn a_value_of_the_process_is_made_once_for_all_its_threads() {
        static VALUE: PerProcess<u64> = PerProcess::new();
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|id| scope.spawn(move || *VALUE.get_or_make(|| id))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        let now = *VALUE.get_or_make(|| 9);
        assert!(made.iter().all(|it| *it == now), "{made:?}, then {now}");
    }

    #[test]
    fn a_process_that_finds_its_mark_wiped_takes_one_that_none_before_it_had() {
        let page = wiped_page().expect("Linux 4.14 or later runs the tests");
        let first = mark_of(page);
        assert_eq!(mark_of(page), first, "one mark for all that a process makes");
        // As the kernel leaves it to a child.
        page.store(0, Ordering::Relaxed);
        assert!(mark_of(page) > first);
    }
}
