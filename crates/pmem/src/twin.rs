//! Small records that are kept twice, so that a torn update leaves one of them.
//!
//! 1. An update writes one copy, flushes, fences, then the other; first the one that does not
//!    verify or is older. At any moment one copy is whole, and it is the old record or the new one.
//! 2. Of two whole copies the one with the higher generation counts.
//!
//! Threads: one at a time for each record.

use crate::persist::Medium;

/// The generations of the copies at `places`; none for one that is not whole.
pub fn generations<T>(
    places: [u64; 2],
    decode: impl Fn(u64) -> Option<T>,
    generation: impl Fn(&T) -> u64,
) -> [Option<u64>; 2] {
    places.map(|at| decode(at).map(|found| generation(&found)))
}

/// The record that counts of those at `places`.
pub fn newest<T>(
    places: [u64; 2],
    decode: impl Fn(u64) -> Option<T>,
    generation: impl Fn(&T) -> u64,
) -> Option<T> {
    let [first, second] = places.map(decode);
    match (first, second) {
        (Some(first), Some(second)) if generation(&second) > generation(&first) => Some(second),
        (Some(first), _) => Some(first),
        (None, second) => second,
    }
}

/// Writes both copies, of `encode` for each place; durable at return.
pub fn replace(
    medium: &Medium,
    places: [u64; 2],
    generations: [Option<u64>; 2],
    encode: impl Fn(u64) -> Vec<u8>,
) {
    // `None` sorts first: a damaged copy is replaced before the good one is touched.
    let order = if generations[0] <= generations[1] { [0, 1] } else { [1, 0] };
    for copy in order {
        medium.write(places[copy], &encode(places[copy]));
        medium.fence();
    }
}
