//! RocksDB's own cache of blocks on a device (`persistent-cache=SIZE`): all tables lie on the slow
//! tier, the log and copies of blocks that were read on the fast one.
//!
//! ```text
//!   SLOW/db   tables, manifest     FAST/log   log     FAST/cache   copies, gone at each opening
//! ```
//! It admits every block that is read, compressed as in its table, and evicts whole files by least
//! recent use until a tenth of its bytes is free. Two files and a bit are in memory, in buffers,
//! which count as memory here. Its index (a fixed table of 12 MiB, and some 100 bytes a block) has
//! no bound to set, and comes on top.

use crate::foreign::persistent_cache::{PersistentCache, Sizes};
use rocksdb::Options;
use std::path::PathBuf;
use thermocline_bench::Outcome;
use thermocline_bench::store::{OpenOptions, SecondLevel};
use thermocline_foundation::ByteSize;

/// The option of labels.
pub(super) const OPTION: &str = "persistent-cache";
/// Options of other layouts.
const OTHERS: [&str; 2] = ["levels", "files"];

/// A cache has about so many files, so that little is lost with one.
const FILES: u64 = 128;
const FILE_BYTES_MIN: u64 = 1 << 20;
const FILE_BYTES_MAX: u64 = 16 << 20;
/// What is written at once.
const BUFFER_BYTES: u32 = 256 << 10;
const QUEUE_BYTES: u64 = 1 << 20;

/// What the label asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub sizes: Sizes,
    path: PathBuf,
    pub log: PathBuf,
}

/// None where the label does not name it.
pub(super) fn plan(options: &OpenOptions) -> Outcome<Option<Plan>> {
    let Some(ByteSize(bytes)) = options.parsed(OPTION)? else { return Ok(None) };
    let refused = |why: &str| format!("option {OPTION}={}: {why}", ByteSize(bytes));
    let [fast, _] = options.tiers.as_slice() else {
        return Err(refused("it needs two tiers: rocksdb@tiers").into());
    };
    if let Some(other) = OTHERS.into_iter().find(|name| options.option(name).is_some()) {
        return Err(refused(&format!("all tables lie on the slow tier, without {other}")).into());
    }
    if !(2 * FILE_BYTES_MIN..=fast.capacity.0).contains(&bytes) {
        let most = fast.capacity;
        return Err(refused(&format!("it has 2 MiB to {most}, which the fast tier has")).into());
    }
    let buffer = u64::from(BUFFER_BYTES);
    let file = (bytes / FILES / buffer * buffer).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
    Ok(Some(Plan {
        sizes: Sizes {
            bytes,
            file_bytes: file as u32,
            buffer_bytes: BUFFER_BYTES,
            queue_bytes: QUEUE_BYTES,
        },
        path: fast.path.join("cache"),
        log: fast.path.join("log"),
    }))
}

impl Plan {
    /// Memory of its buffers (RocksDB makes 2.2 files of them) and of what waits for one.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (file, buffer) = (u64::from(self.sizes.file_bytes), u64::from(BUFFER_BYTES));
        file * 22 / 10 / buffer * buffer + QUEUE_BYTES
    }

    /// Makes it and sets it in `options`, whose tables have theirs.
    pub(super) fn set(&self, options: &mut Options, direct: bool) -> Outcome<PersistentCache> {
        Ok(PersistentCache::set(options, &self.path, self.sizes, direct)?)
    }
}

/// What it did.
pub(super) fn second_level(cache: &PersistentCache) -> SecondLevel {
    let [hits, misses, written_bytes] = cache.counts();
    SecondLevel { hits, misses, written_bytes, ..SecondLevel::default() }
}
