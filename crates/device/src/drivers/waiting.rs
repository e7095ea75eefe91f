//! How a caller waits for a completion: until it is told, or by asking again and again (MyNVM,
//! section 4.4).
//!
//! ```text
//!   interrupt      request ·················· done ── woken ──> another may have the processor
//!   poll           request ? ? ? ? ? ? ? ? ?? done >               none may
//!   fixed-5us      request ·· 5 us ·· ? ? ? ? done >
//!   dynamic-50     request ··· half of the mean ··· ? done >
//! ```
//! Being told costs a sleep and a waking, which is more than a fast device takes. The paper has the
//! kernel ask; kernels have dropped that since, so here the caller asks. This file decides and does
//! nothing: latencies in, a pause out. It has neither clock nor I/O.
//!
//! Invariants:
//! 1. The same latencies in the same order give the same pauses.
//! 2. A pause that was too long makes later ones shorter: what is done when a caller begins to ask
//!    was done before, so its latency is an upper bound, and the mean goes down.
//! 3. A pause is at most [`ASK_NS_MAX`], and asking ends: after as long again a caller waits until
//!    it is told. A stall counts as no more than that.
//! 4. What makes bytes durable takes a drive milliseconds, and is told.
//!
//! Threads: means are shared freely; one that is lost to a race is one of many.

use crate::driver::Operation;
use std::fmt;
use std::str::FromStr;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device that has not answered for so long is not one that asking is for.
pub(crate) const ASK_NS_MAX: u64 = 5_000_000;

/// Way to wait for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Until the kernel says so.
    #[default]
    Interrupt,
    /// By asking from the start.
    Poll,
    /// By asking after so many microseconds, 1 to 1000.
    Fixed(u16),
    /// By asking after so many percent of the mean latency of transfers of this size, 1 to 99.
    Dynamic(u8),
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt => f.write_str("interrupt"),
            Self::Poll => f.write_str("poll"),
            Self::Fixed(us) => write!(f, "fixed-{us}us"),
            Self::Dynamic(percent) => write!(f, "dynamic-{percent}"),
        }
    }
}

impl FromStr for Waiting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fixed = || text.strip_prefix("fixed-")?.strip_suffix("us")?.parse().ok();
        let dynamic = || text.strip_prefix("dynamic-")?.parse().ok();
        match text {
            "interrupt" => return Ok(Self::Interrupt),
            "poll" => return Ok(Self::Poll),
            _ => {}
        }
        if let Some(us @ 1..=1000) = fixed() {
            return Ok(Self::Fixed(us));
        }
        if let Some(percent @ 1..=99) = dynamic() {
            return Ok(Self::Dynamic(percent));
        }
        Err(format!(
            "'{text}' is no way to wait; there are interrupt, poll, fixed-1us to fixed-1000us and \
             dynamic-1 to dynamic-99"
        ))
    }
}

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A read of so many bytes.
    Read(usize),
    /// A write of so many bytes, which need not be durable.
    Write(usize),
    /// A sync, or a write that is durable when it is done.
    Durable,
}

impl From<&Operation> for Awaited {
    fn from(operation: &Operation) -> Self {
        match operation {
            Operation::Read { buffer, .. } => Self::Read(buffer.len()),
            Operation::Write { buffer, durable: false, .. } => Self::Write(buffer.len()),
            Operation::Write { durable: true, .. } | Operation::Sync => Self::Durable,
        }
    }
}

/// Sizes of transfers are told apart by powers of four, from a page on.
const CLASSES: usize = 6;

/// A new latency moves the mean by one part in so many.
const MEAN_SHARE: u64 = 8;

/// The mean latency of reads and of writes of each size, in nanoseconds; 0 where there were none.
#[derive(Debug, Default)]
pub(crate) struct Means {
    reads: [AtomicU64; CLASSES],
    writes: [AtomicU64; CLASSES],
}

impl Means {
    fn of(&self, awaited: Awaited) -> Option<&AtomicU64> {
        let (means, bytes) = match awaited {
            Awaited::Read(bytes) => (&self.reads, bytes),
            Awaited::Write(bytes) => (&self.writes, bytes),
            Awaited::Durable => return None,
        };
        let pages = (bytes >> 12).max(1);
        Some(&means[(pages.ilog2() as usize / 2).min(CLASSES - 1)])
    }

    /// How long a caller sleeps before it asks for the first time; none: until it is told.
    pub(crate) fn pause_ns(&self, waiting: Waiting, awaited: Awaited) -> Option<u64> {
        let mean = self.of(awaited)?;
        match waiting {
            Waiting::Interrupt => None,
            Waiting::Poll => Some(0),
            Waiting::Fixed(us) => Some(u64::from(us) * 1_000),
            Waiting::Dynamic(percent) => Some(mean.load(Relaxed) / 100 * u64::from(percent)),
        }
    }

    /// It was found to be done after `took_ns`; `at_once`: when its caller asked for the first
    /// time.
    pub(crate) fn observe(&self, awaited: Awaited, took_ns: u64, at_once: bool) {
        let Some(mean) = self.of(awaited) else { return };
        let (before, took_ns) = (mean.load(Relaxed), took_ns.min(ASK_NS_MAX));
        let after = match (before, at_once) {
            (0, _) => took_ns,
            (_, true) => took_ns.min(before - before / MEAN_SHARE),
            (_, false) => before - before / MEAN_SHARE + took_ns / MEAN_SHARE,
        };
        mean.store(after, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_as_they_are_written_and_others_are_refused_with_those_there_are() {
        let ways = [Waiting::Interrupt, Waiting::Poll, Waiting::Fixed(5), Waiting::Dynamic(50)];
        for way in ways {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        let wrong =
            ["", "Poll", "fixed-0us", "fixed-5", "fixed-1001us", "dynamic-0", "dynamic-100"];
        for text in wrong {
            let error = text.parse::<Waiting>().unwrap_err();
            assert!(error.contains("there are interrupt, poll"), "{text}: {error}");
        }
    }

    #[test]
    fn pauses_follow_the_way_and_the_mean_of_the_size() {
        let means = Means::default();
        let pause = |way, bytes| means.pause_ns(way, Awaited::Read(bytes));
        assert_eq!(pause(Waiting::Interrupt, 4096), None);
        assert_eq!(pause(Waiting::Poll, 4096), Some(0));
        assert_eq!(pause(Waiting::Fixed(5), 4096), Some(5_000));
        assert_eq!(pause(Waiting::Dynamic(50), 4096), Some(0), "nothing is known yet");
        means.observe(Awaited::Read(4096), 80_000, false);
        means.observe(Awaited::Read(1 << 20), 900_000, false);
        assert_eq!(pause(Waiting::Dynamic(50), 4096), Some(40_000));
        assert_eq!(pause(Waiting::Dynamic(25), 1 << 20), Some(225_000));
        for _ in 0..100 {
            means.observe(Awaited::Read(4096), 8_000, false);
        }
        assert!((4_000..4_100).contains(&pause(Waiting::Dynamic(50), 4096).unwrap()));
        assert_eq!(pause(Waiting::Dynamic(25), 1 << 20), Some(225_000), "sizes are apart");
        let write = means.pause_ns(Waiting::Dynamic(25), Awaited::Write(1 << 20));
        assert_eq!(write, Some(0), "writes are apart");
        for way in [Waiting::Poll, Waiting::Fixed(5), Waiting::Dynamic(50)] {
            assert_eq!(means.pause_ns(way, Awaited::Durable), None);
        }
    }

    #[test]
    fn a_stall_makes_no_long_pause() {
        let (means, read) = (Means::default(), Awaited::Read(4096));
        means.observe(read, 60_000_000_000, false);
        let pause = || means.pause_ns(Waiting::Dynamic(99), read).unwrap();
        assert!(pause() < ASK_NS_MAX);
        for _ in 0..60 {
            means.observe(read, 80_000, false);
        }
        assert!(pause() < 100_000, "{} ns", pause());
    }

    /// A caller that sleeps too long sees its own sleep; the mean must not follow that up.
    #[test]
    fn pauses_that_were_too_long_become_shorter() {
        let means = Means::default();
        means.observe(Awaited::Read(4096), 100_000, false);
        let (mut last, device_ns, waking_ns) = (u64::MAX, 6_000, 15_000);
        for _ in 0..40 {
            let pause = means.pause_ns(Waiting::Dynamic(80), Awaited::Read(4096)).unwrap();
            let woken = pause + waking_ns;
            means.observe(Awaited::Read(4096), woken.max(device_ns), woken >= device_ns);
            assert!(pause <= last);
            last = pause;
        }
        assert!(last < 4_000, "{last} ns");
    }
}
