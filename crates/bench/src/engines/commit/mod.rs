//! Two ways to commit a record to the fast tier, from the store's own parts: what decides whether
//! the preset `hybrid` writes slots at once, as PrismDB does, or a log first.
//!
//! ```text
//!   slots.rs      (a) each put into a slot at once
//!   log.rs        (b) log and memtable, slots when the memtable is full    memtable.rs
//!     line.rs         group commit, for both
//!     fast_tier.rs    slabs, index, journal of live slots, for both
//!     background.rs   a thread beside the writers
//! ```
//! Both keep the same promises: an acknowledged write survives the end of the process, with
//! durability `sync` also a loss of power, and no record is torn. Both have one tier and room for
//! everything. Neither has deletes, scans, batches or snapshots, and neither is opened after a
//! crash: [decision 53] says what that leaves out of the comparison.
//!
//! [decision 53]: ../../../../../docs/decisions/0053-commit.md

mod background;
mod fast_tier;
mod line;
mod log;
mod memtable;
mod slots;

use crate::Outcome;
use crate::store::{EngineKind, Needs, OpenOptions, Store};
use thermocline_foundation::ByteSize;

/// Bytes written and not synced after which a sync in the background begins; at twice as many,
/// writers wait for it. The engine's default.
const BACKGROUND_SYNC_BYTES: u64 = 8 << 20;

const OPTIONS: [(&str, &str); 1] = [("driver", "posix or direct; else by --direct")];

/// A way to commit as an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Slots at once.
    Slots,
    /// A log, then slots.
    Log,
}

/// Way (a).
pub static COMMIT_SLOTS: Commit = Commit::Slots;
/// Way (b).
pub static COMMIT_LOG: Commit = Commit::Log;

impl EngineKind for Commit {
    fn name(&self) -> &str {
        match self {
            Self::Slots => "thermocline-commit-slots",
            Self::Log => "thermocline-commit-log",
        }
    }

    fn about(&self) -> String {
        let what = match self {
            Self::Slots => "each put into a slot at once",
            Self::Log => "puts into log and memtable, then into slots",
        };
        format!("parts of Thermocline: {what}; updates and look-ups alone")
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn options(&self) -> &[(&str, &str)] {
        &OPTIONS
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let mut pairs = vec![
            ("driver".to_owned(), fast_tier::driver(options)?.to_owned()),
            ("slabs".to_owned(), ByteSize(fast_tier::room_bytes(options)).to_string()),
            ("background sync".to_owned(), ByteSize(BACKGROUND_SYNC_BYTES).to_string()),
        ];
        if *self == Self::Log {
            let memtable = ByteSize(log::memtable_bytes(options));
            pairs.push(("memtable".to_owned(), memtable.to_string()));
        }
        Ok(pairs)
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        Ok(match self {
            Self::Slots => Box::new(slots::Slots::open(options)?),
            Self::Log => Box::new(log::Log::open(options)?),
        })
    }
}

fn no_deletes<T>() -> Outcome<T> {
    Err("the ways to commit are compared without deletes; run another workload".into())
}

fn no_scans<T>() -> Outcome<T> {
    Err("the ways to commit are compared without scans; run another workload".into())
}
