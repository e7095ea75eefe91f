//! Options of a label for the cache of blocks on the fast tier, which all presets share (MyNVM).
//!
//! ```text
//!   thermocline-leveled@tiers+fast-cache=64MiB+fast-cache-admission=always
//! ```
//! A policy without a cache would change nothing and is refused.

use super::hybrid::choose;
use crate::Outcome;
use crate::store::OpenOptions;
use thermocline::{Admission, BlockLayout, ByteSize, CacheCapacity, Eviction, FastCacheSettings};

const CAPACITY: &str = "fast-cache";
const ADMISSION: &str = "fast-cache-admission";
const EVICTION: &str = "fast-cache-eviction";
const LAYOUT: &str = "fast-cache-layout";
/// The option that notes requests: no setting.
pub const TRACED: &str = "block-trace";
/// The file of a trace, beside the home.
pub const TRACE_NAME: &str = "block-trace.jsonl";

/// Names, with their values.
pub const OPTIONS: [(&str, &str); 5] = [
    (
        CAPACITY,
        "bytes of the fast tier for copies of the slow tier's blocks, or auto; default 0: none",
    ),
    (ADMISSION, "simulated_lru (default), always, second_access or frequency"),
    (EVICTION, "fifo_reinsert (default), fifo or file_lru"),
    (LAYOUT, "packed (default), or padded: a block touches no more pages than it must"),
    (TRACED, "requests of the cache, which closing leaves in block-trace.jsonl beside the home"),
];

/// Requests that are to be noted, where the label says so and it is not being loaded.
pub fn traced(options: &OpenOptions) -> Outcome<Option<usize>> {
    Ok(options.parsed(TRACED)?.filter(|_| !options.loading))
}

/// What the label's options come to.
pub fn settings(options: &OpenOptions) -> Outcome<FastCacheSettings> {
    let mut settings = FastCacheSettings {
        capacity: options.parsed(CAPACITY)?.unwrap_or(CacheCapacity::Bytes(ByteSize(0))),
        ..FastCacheSettings::default()
    };
    for name in [ADMISSION, EVICTION, LAYOUT, TRACED] {
        if !settings.capacity.is_on() && options.option(name).is_some() {
            return Err(format!("option {name} needs a cache: +{CAPACITY}=SIZE").into());
        }
    }
    let admissions = [
        ("simulated_lru", Admission::SimulatedLru),
        ("always", Admission::Always),
        ("second_access", Admission::SecondAccess),
        ("frequency", Admission::Frequency),
    ];
    choose(options, ADMISSION, &admissions, &mut settings.admission)?;
    let evictions = [
        ("fifo_reinsert", Eviction::FifoReinsert),
        ("fifo", Eviction::Fifo),
        ("file_lru", Eviction::FileLru),
    ];
    choose(options, EVICTION, &evictions, &mut settings.eviction)?;
    let layouts = [("packed", BlockLayout::Packed), ("padded", BlockLayout::Padded)];
    choose(options, LAYOUT, &layouts, &mut settings.layout)?;
    Ok(settings)
}
