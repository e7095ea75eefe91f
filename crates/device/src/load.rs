//! How many writers a tier has: now, and in the mean of about a minute (Keigo, section 4.2).
//!
//! A writer is a file that is being made: from its creation until it is published or given up, and
//! a copy from another tier while it is written. Flushes, compactions and ingestions make one table
//! at a time each, so files count threads.
//!
//! ```text
//!   writers        |    1 |  2  |   1 |  0
//!   time (10 s)    [ slot ][ slot ][ slot ].. six of them: writers x time, summed by level
//! ```
//! 1. A count that was begun ends with its `Writing`, whatever becomes of the file.
//! 2. Copies from other tiers have no level: the levels that a policy chooses must not depend on
//!    the moves that it makes.
//! 3. A log of the engine is published before it is written, and then in turns, one group at a
//!    time. It counts as one writer after any slot in which something was written to it.
//!
//! Threads: any; the lock is held for moments, after those of the caller.

use crate::context::{FileContext, FileKind, Origin};
use crate::driver::Driver;
use crate::placement::TierState;
use crate::profile::TierProfile;
use crate::tier::TierIndex;
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::{ArcSwap, Mutex};

/// Levels that are told apart; deeper ones count as the last.
const LEVELS: usize = 7;
/// The log, and levels.
const PLACES: usize = LEVELS + 1;
const LOG: usize = 0;
const ORIGINS: usize = 7;

const SLOT_NS: u64 = 10_000_000_000;
const SLOTS: usize = 6;

/// Writers of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierLoad {
    /// Writers now, by the place of their [`Origin`]: foreground, flush, compaction, ingestion,
    /// recovery, migration, filling a cache.
    pub writers: [u16; ORIGINS],
    /// Mean writers in thousandths: of the log, of levels 0, 1, 2 and on. Deeper levels than 6
    /// count in the last.
    pub milliwriters: [u32; PLACES],
}

impl TierLoad {
    /// All writers now.
    pub fn writers_now(&self) -> u16 {
        self.writers.iter().fold(0, |sum, writers| sum.saturating_add(*writers))
    }
}

fn origin_place(origin: Origin) -> usize {
    match origin {
        Origin::Foreground => 0,
        Origin::Flush => 1,
        Origin::Compaction { .. } => 2,
        Origin::Ingest => 3,
        Origin::Recovery => 4,
        Origin::Migration => 5,
        Origin::CacheFill => 6,
    }
}

/// Where a writer's time counts; none where it has no level.
fn level_place(context: FileContext) -> Option<usize> {
    match (context.kind, context.origin) {
        (_, Origin::Migration | Origin::CacheFill) => None,
        (FileKind::Table { level }, _) => Some(1 + usize::from(level).min(LEVELS - 1)),
        (FileKind::Log, _) => Some(LOG),
        _ => None,
    }
}

/// The writers of one tier over time.
#[derive(Clone, Debug)]
struct Counts {
    writers: [u16; ORIGINS],
    active: [u16; PLACES],
    /// Writers x nanoseconds of the last slots, the current one at its number modulo [`SLOTS`].
    slots: [[u64; PLACES]; SLOTS],
    started_ns: u64,
    /// Time is counted up to here.
    at_ns: u64,
    /// The last slot in which the log was looked at, and its writes then.
    log_slot: u64,
    log_writes: u64,
    is_log_written: bool,
}

impl Counts {
    fn new(now_ns: u64) -> Self {
        Self {
            writers: [0; ORIGINS],
            active: [0; PLACES],
            slots: [[0; PLACES]; SLOTS],
            started_ns: now_ns,
            at_ns: now_ns,
            log_slot: now_ns / SLOT_NS,
            log_writes: 0,
            is_log_written: false,
        }
    }

    /// Counts the time up to now.
    fn advance(&mut self, now_ns: u64) {
        // What is older would be overwritten.
        let oldest = (now_ns / SLOT_NS).saturating_sub(SLOTS as u64) * SLOT_NS;
        self.at_ns = self.at_ns.max(oldest);
        while self.at_ns < now_ns {
            let slot = self.at_ns / SLOT_NS;
            let end = now_ns.min((slot + 1) * SLOT_NS);
            let sums = &mut self.slots[slot as usize % SLOTS];
            for (sum, active) in sums.iter_mut().zip(self.active) {
                *sum += u64::from(active) * (end - self.at_ns);
            }
            self.at_ns = end;
            if end.is_multiple_of(SLOT_NS) {
                self.slots[(slot + 1) as usize % SLOTS] = [0; PLACES];
            }
        }
    }

    fn change(&mut self, now_ns: u64, context: FileContext, is_begun: bool) {
        self.advance(now_ns);
        let level = level_place(context).map(|place| &mut self.active[place]);
        let origin = &mut self.writers[origin_place(context.origin)];
        for count in level.into_iter().chain([origin]) {
            *count = if is_begun { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    fn load(&mut self, now_ns: u64, log_writes: u64) -> TierLoad {
        if now_ns / SLOT_NS > self.log_slot {
            self.is_log_written = log_writes > self.log_writes;
            (self.log_slot, self.log_writes) = (now_ns / SLOT_NS, log_writes);
        }
        self.advance(now_ns);
        let whole = SLOT_NS * (SLOTS as u64 - 1) + now_ns % SLOT_NS;
        let span = whole.min(now_ns.saturating_sub(self.started_ns)).max(1);
        let mut milliwriters = [0; PLACES];
        for (place, mean) in milliwriters.iter_mut().enumerate() {
            let sum: u128 = self.slots.iter().map(|slot| u128::from(slot[place])).sum();
            *mean = u32::try_from(sum * 1000 / u128::from(span)).unwrap_or(u32::MAX);
        }
        if self.is_log_written {
            milliwriters[LOG] = milliwriters[LOG].max(1000);
        }
        TierLoad { writers: self.writers, milliwriters }
    }
}

/// The writers of all tiers, where they are counted. See the module.
#[derive(Debug, Default)]
pub(crate) struct Loads(Mutex<Option<Arc<LoadMeter>>>);

impl Loads {
    /// Counts from now on, and reads what is known of the devices: one for each driver.
    pub fn measure<'a>(
        &self,
        clock: Arc<dyn Clock>,
        drivers: impl Iterator<Item = &'a Arc<dyn Driver>>,
    ) {
        let profiles =
            drivers.map(|driver| ArcSwap::from_pointee(TierProfile::of(&**driver))).collect();
        *self.0.lock() = Some(Arc::new(LoadMeter::new(clock, profiles)));
    }

    /// Adds to a tier's state what is known of its device and of its load; so many writes went to
    /// its logs since it was opened.
    pub fn tell(&self, tier: TierIndex, log_writes: u64, state: &mut TierState) {
        let meter = self.0.lock();
        let Some(meter) = meter.as_ref() else { return };
        let Some(profile) = meter.profiles.get(tier.position()) else { return };
        state.profile = profile.load_full();
        state.load = meter.load(tier.position(), log_writes);
    }

    /// What is known of a tier's device; none where nothing is counted.
    pub fn profile(&self, tier: TierIndex) -> Option<Arc<TierProfile>> {
        let meter = self.0.lock();
        Some(meter.as_ref()?.profiles.get(tier.position())?.load_full())
    }

    /// Another profile is known of a tier's device.
    pub fn set_profile(&self, tier: TierIndex, profile: TierProfile) {
        let meter = self.0.lock();
        let profiles = meter.as_ref().map(|meter| &meter.profiles);
        if let Some(known) = profiles.and_then(|profiles| profiles.get(tier.position())) {
            known.store(Arc::new(profile));
        }
    }

    /// Writers of a tier now.
    pub fn writers(&self, tier: TierIndex) -> u16 {
        let meter = self.0.lock();
        meter.as_ref().map_or(0, |meter| meter.load(tier.position(), 0).writers_now())
    }

    /// A writer more on a tier.
    pub fn begin(&self, tier: TierIndex, context: FileContext) -> Option<Writing> {
        self.0.lock().as_ref().map(|meter| meter.begin(tier.position(), context))
    }
}

#[derive(Debug)]
struct LoadMeter {
    clock: Arc<dyn Clock>,
    profiles: Vec<ArcSwap<TierProfile>>,
    tiers: Mutex<Vec<Counts>>,
}

/// A writer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    meter: Arc<LoadMeter>,
    tier: usize,
    context: FileContext,
}

impl Writing {
    /// The same writer, on another tier.
    pub fn elsewhere(&self, tier: TierIndex) -> Self {
        self.meter.begin(tier.position(), self.context)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.meter.change(self.tier, self.context, false);
    }
}

impl LoadMeter {
    /// No writer yet.
    fn new(clock: Arc<dyn Clock>, profiles: Vec<ArcSwap<TierProfile>>) -> Self {
        let counts = vec![Counts::new(clock.now_ns()); profiles.len()];
        Self { clock, profiles, tiers: Mutex::new(counts) }
    }

    fn begin(self: &Arc<Self>, tier: usize, context: FileContext) -> Writing {
        self.change(tier, context, true);
        Writing { meter: Arc::clone(self), tier, context }
    }

    fn change(&self, tier: usize, context: FileContext, is_begun: bool) {
        let now_ns = self.clock.now_ns();
        if let Some(counts) = self.tiers.lock().get_mut(tier) {
            counts.change(now_ns, context, is_begun);
        }
    }

    fn load(&self, tier: usize, log_writes: u64) -> TierLoad {
        let now_ns = self.clock.now_ns();
        let mut tiers = self.tiers.lock();
        tiers.get_mut(tier).map(|counts| counts.load(now_ns, log_writes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn table(level: u8, origin: Origin) -> FileContext {
        FileContext { kind: FileKind::Table { level }, origin }
    }

    /// Follows a script: at a second, a writer begins (`+`) or ends (`-`), or the means are asked
    /// for (`?`) of levels 0, 1 and 6 and later.
    fn follow(script: &str) {
        let mut counts = Counts::new(3 * S);
        for line in script.lines().map(str::trim) {
            let (second, rest) = line.split_once(' ').unwrap();
            let now_ns = second.parse::<u64>().unwrap() * S;
            let (what, rest) = rest.split_once(' ').unwrap();
            if what == "?" {
                let means = counts.load(now_ns, 0).milliwriters;
                let found = format!("{} {} {}", means[1], means[2], means[7]);
                assert_eq!(found, rest, "at {second}");
                continue;
            }
            let context = match rest {
                "flush" => table(0, Origin::Flush),
                "copy" => table(1, Origin::Migration),
                level => table(level.parse().unwrap(), Origin::Compaction { from: 0, to: 1 }),
            };
            counts.change(now_ns, context, what == "+");
        }
    }

    #[test]
    fn means_are_writers_by_time_over_about_a_minute() {
        follow(
            "3 + flush
             8 ? 1000 0 0
             13 - flush
             23 ? 500 0 0
             23 + 1
             23 + 1
             23 + 9
             33 ? 333 666 333
             33 - 9
             43 - 1
             53 ? 200 1000 200
             83 ? 0 1245 56
             500 ? 0 1000 0",
        );
    }

    #[test]
    fn copies_count_as_writers_and_to_no_level() {
        follow(
            "3 + copy
             50 ? 0 0 0
             50 - copy
             51 ? 0 0 0",
        );
        let mut counts = Counts::new(0);
        counts.change(0, table(1, Origin::Migration), true);
        counts.change(0, table(0, Origin::Flush), true);
        counts.change(0, FileContext { kind: FileKind::Log, origin: Origin::Foreground }, true);
        let load = counts.load(S, 0);
        assert_eq!((load.writers, load.writers_now()), ([1, 1, 0, 0, 0, 1, 0], 3));
        counts.change(2 * S, table(0, Origin::Flush), false);
        assert_eq!(counts.load(2 * S, 0).writers_now(), 2);
        assert_eq!(counts.load(2 * S, 0).milliwriters[LOG], 1000, "a log that is open");
    }

    #[test]
    fn a_log_that_was_written_in_a_slot_is_one_writer_in_the_next() {
        let mut counts = Counts::new(0);
        let mut log = |second: u64, writes| counts.load(second * S, writes).milliwriters[LOG];
        assert_eq!([log(1, 5), log(9, 9)], [0, 0], "no slot has passed");
        assert_eq!([log(10, 9), log(19, 9)], [1000, 1000]);
        assert_eq!([log(20, 9), log(29, 12), log(31, 12)], [0, 0, 1000]);
    }
}
