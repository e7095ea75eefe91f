//! What is done next: lengths and mean times in, a decision out (SpanDB, section 4.1).
//!
//! Writes are the work of loggers, which take all that waits as one group; gets and pages that of
//! readers. A logger more helps only while all others wait for the device, so their number goes up
//! by one when a write finds all of them busy, and down by one when a logger finds nothing to take.
//! A reader takes from the line that stands for the most work.
//!
//! The baseline beside it has one logger, and readers that take looks before gets before pages.

use crate::environment::experiments::RequestSchedule;

/// Loggers at most.
pub(super) const LOGGERS_MAX: usize = 3;

/// What readers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    /// What a transaction builds on is looked at (`transaction/mod.rs`).
    Look,
    Get,
    Page,
}

/// Kinds of reads.
pub(super) const READ_KINDS: usize = 3;

/// A line of requests, as the schedule sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub length: usize,
    /// What one of its requests takes, on average.
    pub mean_ns: u64,
    /// Choices since it was chosen last in which it was not empty.
    pub passed_over: u64,
}

/// A sample counts for an eighth of the mean.
const MEAN_SHARE: u64 = 8;

impl Line {
    /// A request of the line took so long.
    pub fn took(&mut self, elapsed_ns: u64) {
        self.mean_ns = match self.mean_ns {
            0 => elapsed_ns,
            mean_ns => mean_ns - mean_ns / MEAN_SHARE + elapsed_ns / MEAN_SHARE,
        };
    }

    /// What waits in the line, in nanoseconds; more with each choice that passed over it, so that a
    /// short line has its turn beside one that never ends.
    fn weight(&self) -> u128 {
        let each = u128::from(self.mean_ns.max(1)) * u128::from(self.passed_over + 1);
        self.length as u128 * each
    }
}

impl RequestSchedule {
    /// The loggers that may be at work once a write has come, of which `busy` are.
    pub(super) fn loggers_after_write(self, wanted: usize, busy: usize) -> usize {
        match self {
            Self::ByLoad if busy >= wanted => (wanted + 1).min(LOGGERS_MAX),
            Self::Fixed | Self::ByLoad => wanted,
        }
    }

    /// The loggers that may be at work once one of them has found nothing.
    pub(super) fn loggers_after_nothing(self, wanted: usize) -> usize {
        wanted.saturating_sub(1).max(1)
    }

    /// The line that a reader takes from; none where all are empty.
    pub(super) fn next_line(self, lines: &[Line; READ_KINDS]) -> Option<usize> {
        let mut waiting = (0..READ_KINDS).filter(|kind| lines[*kind].length > 0);
        match self {
            Self::Fixed => waiting.next(),
            // Of equals the last: pages, which have waited for longer by the time gets pile up.
            Self::ByLoad => waiting.max_by_key(|kind| lines[*kind].weight()),
        }
    }

    /// Takes from the line that is next, which goes to the end of the favoured.
    pub(super) fn choose(self, lines: &mut [Line; READ_KINDS]) -> Option<usize> {
        let chosen = self.next_line(lines)?;
        for (kind, line) in lines.iter_mut().enumerate().filter(|(_, line)| line.length > 0) {
            line.passed_over = if kind == chosen { 0 } else { line.passed_over + 1 };
        }
        lines[chosen].length -= 1;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of gets and pages, and what one of them takes in microseconds.
    fn lines(gets: (usize, u64), pages: (usize, u64)) -> [Line; READ_KINDS] {
        [(0, 0), gets, pages].map(|(length, mean_us)| Line {
            length,
            mean_ns: mean_us * 1000,
            passed_over: 0,
        })
    }

    const GET: usize = ReadKind::Get as usize;
    const PAGE: usize = ReadKind::Page as usize;

    #[test]
    fn a_reader_takes_from_the_line_that_stands_for_the_most_work() {
        for (gets, pages, by_load, fixed) in [
            ((0, 10), (0, 500), None, None),
            ((1, 10), (0, 500), Some(GET), Some(GET)),
            ((0, 10), (1, 500), Some(PAGE), Some(PAGE)),
            ((49, 10), (1, 500), Some(PAGE), Some(GET)),
            ((51, 10), (1, 500), Some(GET), Some(GET)),
            ((90, 10), (2, 500), Some(PAGE), Some(GET)),
            // Nothing is known of either yet.
            ((2, 0), (1, 0), Some(GET), Some(GET)),
        ] {
            let lines = lines(gets, pages);
            assert_eq!(RequestSchedule::ByLoad.next_line(&lines), by_load, "{lines:?}");
            assert_eq!(RequestSchedule::Fixed.next_line(&lines), fixed, "{lines:?}");
        }
    }

    #[test]
    fn a_short_line_has_its_turn_beside_one_that_never_ends() {
        let mut lines = lines((100, 10), (1, 50));
        let mut turns = 0;
        while lines[PAGE].length > 0 {
            RequestSchedule::ByLoad.choose(&mut lines);
            lines[GET].length = 100;
            turns += 1;
            assert!(turns <= 20, "the page waits for more than 20 turns");
        }
        assert_eq!(turns, 20, "a page of 50 us weighs as much as 100 gets of 10 us by then");
    }

    #[test]
    fn a_write_that_finds_all_loggers_busy_brings_one_more_and_one_that_finds_nothing_rests() {
        let by_load = RequestSchedule::ByLoad;
        for (wanted, busy, after) in [(1, 0, 1), (1, 1, 2), (2, 1, 2), (2, 2, 3), (3, 3, 3)] {
            assert_eq!(by_load.loggers_after_write(wanted, busy), after, "{wanted}, {busy} busy");
            assert_eq!(RequestSchedule::Fixed.loggers_after_write(wanted, busy), wanted);
        }
        let down: Vec<_> = (1..=3).map(|wanted| by_load.loggers_after_nothing(wanted)).collect();
        assert_eq!(down, [1, 1, 2]);
    }

    #[test]
    fn a_mean_begins_with_the_first_time_and_follows_the_later_ones() {
        let mut line = Line::default();
        line.took(800);
        assert_eq!(line.mean_ns, 800);
        line.took(1600);
        assert_eq!(line.mean_ns, 900);
        (0..100).for_each(|_| line.took(1600));
        assert!((1590..=1600).contains(&line.mean_ns), "{}", line.mean_ns);
    }
}
