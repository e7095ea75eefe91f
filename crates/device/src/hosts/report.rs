//! Figures of a host's directory, by tier and level.

use crate::file_cache::ExtentCounts;
use crate::names::{NameCounts, NamedTier, Names};
use crate::profile::Source;
use crate::{Holds, NamedInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A managed directory.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// The directory.
    pub directory: PathBuf,
    /// Its tiers, fastest first.
    pub tiers: Vec<TierReport>,
    /// What happened since it was opened.
    pub counts: NameCounts,
    /// Of these in the cache of extents; none where none are kept.
    pub extents: Option<ExtentCounts>,
    /// Threads that may move files now; 0 where none is to move.
    pub move_threads: u16,
    /// What people should look at, a line each.
    pub warnings: Vec<String>,
}

/// A tier of it.
#[derive(Clone, Debug, Serialize)]
pub struct TierReport {
    /// Where its files lie.
    pub path: PathBuf,
    /// Bytes that they may take.
    pub capacity_bytes: u64,
    /// Bytes that they take.
    pub used_bytes: u64,
    /// Room on the device; none where it cannot be told.
    pub device_free_bytes: Option<u64>,
    /// Writers beyond which the device gets no faster; none where that is not known.
    pub useful_writers: Option<u16>,
    /// Where that is known from.
    pub profile_source: Source,
    /// Writers now; 0 where they are not counted.
    pub writers: u16,
    /// Their mean of about a minute, in thousandths: of logs, of levels 0, 1 and on; the last is
    /// that of all deeper levels.
    pub mean_milliwriters: [u32; 8],
    /// Copies of files of slower tiers, and bytes that they take.
    pub copies: u64,
    /// See `copies`.
    pub copied_bytes: u64,
    /// Reads that the host told of and that it served, from files and copies.
    pub reads: u64,
    /// Its share, in percent, of those that it and the next tier served; none where there are none.
    pub hit_percent: Option<u8>,
    /// Tables and blobs by level, then logs.
    pub levels: Vec<LevelReport>,
}

/// The files of a level on a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The level; none for logs, and for tables whose level is not known.
    pub level: Option<u8>,
    /// They are logs.
    pub is_log: bool,
    /// How many.
    pub files: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Reads of them that the host told of; older ones count less where files are copied for them.
    pub file_reads: u64,
}

impl HostReport {
    pub(super) fn of(names: &Names, warnings: Vec<String>) -> Self {
        let (files, named) = (names.files(), names.tiers());
        let tier = |at: usize| TierReport::of(&named[at], named.get(at + 1), &files);
        Self {
            directory: names.path().to_owned(),
            tiers: (0..named.len()).map(tier).collect(),
            counts: names.counts(),
            extents: names.extent_counts(),
            move_threads: names.move_threads(),
            warnings,
        }
    }
}

impl TierReport {
    fn of(tier: &NamedTier, next: Option<&NamedTier>, files: &[NamedInfo]) -> Self {
        let mut levels: BTreeMap<(bool, Option<u8>), LevelReport> = BTreeMap::new();
        for file in files.iter().filter(|file| file.tier == Some(tier.tier)) {
            let (is_log, level) = (file.class.holds == Holds::Log, file.class.level);
            let none = LevelReport { level, is_log, files: 0, bytes: 0, file_reads: 0 };
            let sums = levels.entry((is_log, level)).or_insert(none);
            sums.files += 1;
            sums.bytes += file.bytes;
            sums.file_reads += file.reads;
        }
        let both = next.map(|next| u128::from(tier.reads) + u128::from(next.reads));
        let hits = |both| (u128::from(tier.reads) * 100 / both) as u8;
        Self {
            path: tier.path.clone(),
            capacity_bytes: tier.capacity.0,
            used_bytes: tier.used_bytes,
            device_free_bytes: tier.space.map(|space| space.free_bytes),
            useful_writers: tier.profile.write.useful_workers(),
            profile_source: tier.profile.source,
            writers: tier.load.writers_now(),
            mean_milliwriters: tier.load.milliwriters,
            copies: tier.copies,
            copied_bytes: tier.copied_bytes,
            reads: tier.reads,
            hit_percent: both.filter(|both| *both > 0).map(hits),
            levels: levels.into_values().collect(),
        }
    }
}
