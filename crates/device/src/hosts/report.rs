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
    /// Copies of files of slower tiers, and bytes that they take.
    pub copies: u64,
    /// See `copies`.
    pub copied_bytes: u64,
    /// Reads that the host told of and that it served, from files and copies.
    pub reads: u64,
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
}

impl HostReport {
    pub(super) fn of(names: &Names) -> Self {
        let files = names.files();
        let tiers = names.tiers().iter().map(|tier| TierReport::of(tier, &files)).collect();
        let extents = names.extent_counts();
        Self { directory: names.path().to_owned(), tiers, counts: names.counts(), extents }
    }
}

impl TierReport {
    fn of(tier: &NamedTier, files: &[NamedInfo]) -> Self {
        let mut levels: BTreeMap<(bool, Option<u8>), (u64, u64)> = BTreeMap::new();
        for file in files.iter().filter(|file| file.tier == Some(tier.tier)) {
            let sums = levels.entry((file.class.holds == Holds::Log, file.class.level));
            let (count, bytes) = sums.or_default();
            *count += 1;
            *bytes += file.bytes;
        }
        let levels = levels.into_iter().map(|((is_log, level), (files, bytes))| LevelReport {
            level,
            is_log,
            files,
            bytes,
        });
        Self {
            path: tier.path.clone(),
            capacity_bytes: tier.capacity.0,
            used_bytes: tier.used_bytes,
            device_free_bytes: tier.space.map(|space| space.free_bytes),
            useful_writers: tier.profile.write.useful_workers(),
            profile_source: tier.profile.source,
            copies: tier.copies,
            copied_bytes: tier.copied_bytes,
            reads: tier.reads,
            levels: levels.collect(),
        }
    }
}
