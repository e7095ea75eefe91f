//! A child of this process, made by `fork` with all that is open, for tests: what it does must not
//! harm its parent. Built with the feature `forking`, which no product turns on.
//!
//! The child has one thread, the one that forked; what others held stays held in it for ever. So a
//! child that waits for them never ends, and its parent gives up on it after a while.
//!
//! Threads: any.
#![allow(unsafe_code)]

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::Write;
use std::time::Duration;
use thermocline_foundation::threads::catch_panic;
use thermocline_foundation::{Clock, SystemClock};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
}

/// How long a child may take.
const CHILD_MAX: Duration = Duration::from_secs(60);

/// A child that runs.
#[derive(Debug)]
pub struct Child(Pid);

/// Forks, and runs `body` in the child, which ends then without running anything else: no
/// destructor of what its parent made. An error of `body`, or a panic in it, fails the child.
///
/// # Panics
///
/// Where the system makes no process.
pub fn start_child(body: impl FnOnce() -> Result<(), String>) -> Child {
    // SAFETY: the call takes nothing. The child goes on in a copy of this process, in which only
    // `body` runs; that it touches no lock that another thread holds is what the tests are about,
    // and a child that does so is killed by its parent.
    let made = unsafe { fork() };
    assert!(made >= 0, "the system makes no process");
    if let Some(pid) = Pid::from_raw(made) {
        return Child(pid);
    }
    let outcome = catch_panic(body).unwrap_or_else(|panic| Err(format!("panicked: {panic}")));
    let status = i32::from(outcome.is_err());
    if let Err(text) = outcome {
        let _ = writeln!(std::io::stderr(), "the forked child: {text}");
    }
    // SAFETY: the call takes a number and ends the process.
    unsafe { _exit(status) }
}

impl Child {
    /// The number of its process.
    pub fn process_id(&self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for the child's end; an error where it failed, or did not end within a minute.
    pub fn wait(self) -> Result<(), String> {
        let (clock, start_ns) = (SystemClock::new(), SystemClock::new().now_ns());
        loop {
            match waitpid(Some(self.0), WaitOptions::NOHANG) {
                Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
                Ok(Some((_, status))) => {
                    return Err(format!("the forked child failed: {status:?}"));
                }
                Ok(None) if clock.now_ns() - start_ns > CHILD_MAX.as_nanos() as u64 => {
                    let _ = kill_process(self.0, Signal::KILL);
                    return Err(format!("the forked child did not end within {CHILD_MAX:?}"));
                }
                Ok(None) => clock.sleep(Duration::from_millis(2)),
                Err(errno) => return Err(format!("cannot wait for the forked child: {errno}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::owner_process::{OwnerProcess, PerProcess};
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn what_a_child_reports_reaches_its_parent() {
        assert_eq!(start_child(|| Ok(())).wait(), Ok(()));
        for body in [(|| Err("it fails".to_owned())) as fn() -> _, || panic!("it panics")] {
            let error = start_child(body).wait().unwrap_err();
            assert!(error.contains("failed"), "{error}");
        }
    }

    #[test]
    fn a_child_and_its_child_own_what_they_make_and_nothing_of_their_parents() {
        let own = OwnerProcess::current();
        let is = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
        let child = start_child(|| {
            is(!own.is_current(), "the parent's is taken for the child's")?;
            let made = OwnerProcess::current();
            is(made.is_current() && !made.is_same(&own), "the child's own is not its own")?;
            is(!own.is_current(), "the parent's became the child's")?;
            start_child(|| {
                is(!made.is_current() && !own.is_current(), "an ancestor's is the grandchild's")?;
                let made_last = OwnerProcess::current();
                is(made_last.is_current() && !made.is_current(), "the grandchild's is not its own")
            })
            .wait()
        });
        assert_eq!(child.wait(), Ok(()));
        assert!(own.is_current());
    }

    #[test]
    fn a_child_makes_its_own_value_of_the_process_while_its_parents_is_locked() {
        static LOCKED: PerProcess<Mutex<u32>> = PerProcess::new();
        let mut held = LOCKED.get_or_make(|| Mutex::new(1)).lock().unwrap();
        let child = start_child(|| {
            let own = LOCKED.get_or_make(|| Mutex::new(2)).lock().unwrap();
            let again = LOCKED.get_or_make(|| Mutex::new(3));
            if *own == 2 && again.try_lock().is_err() { Ok(()) } else { Err("not its own".into()) }
        });
        assert_eq!(child.wait(), Ok(()));
        *held += 4;
        drop(held);
        assert_eq!(*LOCKED.get_or_make(|| Mutex::new(6)).lock().unwrap(), 5, "as it was");
    }
}
