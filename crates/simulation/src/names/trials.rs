//! What is tried on the history of a seed, one by one: the suite `names`.
//!
//! ```text
//!   crashes, the end, writings beside moves, extents, a tier that is away    one each
//!   every call: EIO, ENOSPC where it takes room, half a transfer,            once and from then on
//!               half a write that fails
//!   every write of names that is read back: lost                             once
//! ```
//! 1. A fault is an error of the host's call, or makes no difference. It never changes what is read
//!    meanwhile, and what a crash leaves afterwards is as after any other.
//! 2. A write that a device acknowledges and loses shows where bytes are compared: copies, moves,
//!    extents. The small files that say whose a tier is are not read back; the next opening refuses
//!    one that is not whole. A host's own bytes are its own.

use super::host::Stop;
use super::images::Images;
use super::{STEPS, extents, host, run, run_end, vanish, write_beside};
use crate::devices::{CallKind, Fault, FaultKind, Made};
use crate::oracle::Violation;
use rustix::io::Errno;
use std::sync::Arc;
use thermocline_foundation::threads::catch_panic;

/// One of the things that are tried on a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Every call may be the last.
    Crashes,
    /// Every call of a directory's end may be the last.
    End,
    /// Writings beside moves and copies.
    Beside,
    /// Extents and a file that is written in place.
    Overwrite,
    /// Extents on a small device.
    FillDevice,
    /// A tier that is away for a while.
    Vanish,
    /// A call that fails.
    Fault(Fault),
}

/// All trials of a seed.
pub fn trials(seed: u64) -> Result<Vec<Trial>, Violation> {
    use Trial::{Beside, Crashes, End, FillDevice, Overwrite, Vanish};
    let faults = faults(&calls_of(seed)?).into_iter().map(Trial::Fault);
    let others = [Crashes, End, Beside, Overwrite, FillDevice, Vanish];
    Ok(others.into_iter().chain(faults).collect())
}

impl Trial {
    /// Carries it out. Returns how many images of crashes were opened, where they are counted.
    pub fn run(&self, seed: u64) -> Result<u64, Violation> {
        match self {
            Self::Crashes => run(seed).map(|counts| counts.images),
            Self::End => run_end(seed),
            Self::Beside => write_beside(seed).map(|_| 0),
            Self::Overwrite => extents::overwrite(seed).map(|_| 0),
            Self::FillDevice => extents::fill_device(seed).map(|_| 0),
            Self::Vanish => vanish(seed).map(|_| 0),
            Self::Fault(fault) => run_with_fault(seed, fault).map(|_| 0),
        }
    }
}

/// The calls of a history.
pub fn calls_of(seed: u64) -> Result<Vec<Made>, Violation> {
    let mut host = host(seed);
    host.devices.record_made();
    host.make()?;
    for number in 1..=STEPS {
        host.step().map_err(|stop| format!("step {number}: {}", Violation::from(stop)))?;
    }
    Ok(host.devices.made())
}

/// What can go wrong with these calls.
pub fn faults(calls: &[Made]) -> Vec<Fault> {
    let of_call = |(at, call): (usize, &Made)| {
        let error = |errno: Errno| FaultKind::Error(errno.raw_os_error());
        let mut kinds = vec![error(Errno::IO)];
        kinds.extend(call.kind.takes_room().then(|| error(Errno::NOSPC)));
        match call.kind {
            CallKind::Read => kinds.push(FaultKind::Short),
            CallKind::Write => kinds.extend([FaultKind::Short, FaultKind::Torn]),
            _ => {}
        }
        let is_lost = call.kind == CallKind::Write && !is_small_file(&call.name);
        let at = at as u64;
        let each = kinds.into_iter();
        let mut faults: Vec<_> =
            each.flat_map(|kind| [false, true].map(|sticky| Fault { at, sticky, kind })).collect();
        faults.extend(is_lost.then_some(Fault { at, sticky: false, kind: FaultKind::Lost }));
        faults
    };
    calls.iter().enumerate().flat_map(of_call).collect()
}

/// It says whose a tier is.
fn is_small_file(name: &str) -> bool {
    ["TIER", "HOME", "DATABASE", "CREATING"].iter().any(|small| name.starts_with(small))
}

/// A history with a fault: a step may fail, and then what is read, and what a crash leaves, is as
/// after any other. True if one failed.
pub fn run_with_fault(seed: u64, fault: &Fault) -> Result<bool, Violation> {
    let mut host = host(seed);
    host.devices.arm(Some(fault.clone()));
    for number in 0..=STEPS {
        let step = || if number == 0 { host.make() } else { host.step() };
        let stepped = catch_panic(step).map_err(|said| format!("it panics: {said}"))?;
        match stepped {
            Ok(()) => {}
            Err(Stop::Failed(said)) if host.devices.has_struck() => {
                host.devices.arm(None);
                let explain = |why| format!("step {number} failed ({said}), then: {why}");
                host.check_after_failure().map_err(explain)?;
                let images = Images::new(host.setting, Arc::clone(&host.model), seed);
                images.try_world(&host.devices.world()).map_err(explain)?;
                return Ok(true);
            }
            Err(stop) => return Err(format!("step {number}: {}", Violation::from(stop))),
        }
    }
    Ok(false)
}
