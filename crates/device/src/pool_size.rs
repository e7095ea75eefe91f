//! How many threads may move files at once (Keigo, sections 4.2 and 4.3): what a device can use
//! beside those that write to it already.
//!
//! Threads: a plain function.

/// Threads that move files, at most.
pub const THREADS_MAX: u16 = 16;

/// Threads that may write copies to a device on which `active_writers` write already, and of which
/// more than `useful_writers` (none: not known) are of no use. Where moves are forced, because the
/// device is about to be full, there is one at least.
pub fn pool_size(useful_writers: Option<u16>, active_writers: u16, is_forced: bool) -> u16 {
    let spare = useful_writers.map_or(THREADS_MAX, |useful| useful.saturating_sub(active_writers));
    spare.clamp(u16::from(is_forced), THREADS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_writers_leave_is_for_moves_and_forced_ones_have_a_thread() {
        for (useful, active, is_forced, threads) in [
            (Some(4), 0, false, 4),
            (Some(4), 3, false, 1),
            (Some(4), 4, false, 0),
            (Some(4), 9, false, 0),
            (Some(4), 9, true, 1),
            (Some(4), 1, true, 3),
            (Some(64), 0, false, 16),
            (None, 50, false, 16),
        ] {
            let found = pool_size(useful, active, is_forced);
            assert_eq!(found, threads, "{useful:?} {active} {is_forced}");
        }
    }
}
