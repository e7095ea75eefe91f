//! What a repair is about to do, or has done: plain data.

use crate::error::{Error, ErrorKind};
use serde::Serialize;
use std::path::PathBuf;
use thermocline_device::{File, TierIndex};

/// What is damaged in a database, and what becomes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairPlan {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// One for each piece that is damaged; empty where there is nothing to repair.
    pub steps: Vec<RepairStep>,
    /// Why the tables of a manifest that was made anew are not merged yet: a device is full, or
    /// what is damaged besides is left to a repair. None where they are, and before.
    pub unmerged: Option<String>,
}

impl RepairPlan {
    /// Nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The repair loses no record and brings no older one back.
    pub fn loses_nothing(&self) -> bool {
        self.steps.iter().all(|step| step.lost.is_empty())
    }
}

/// A damaged piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairStep {
    /// The file's name in its tier.
    pub file: String,
    /// The tier, 0 being the fastest.
    pub tier: u8,
    /// What is wrong with it.
    pub kind: ErrorKind,
    /// The same as text, with the offset where there is one.
    pub damage: String,
    /// What the repair does with it.
    pub repair: &'static str,
    /// What it costs; empty where it costs nothing.
    pub lost: Vec<Lost>,
    /// Where the damaged bytes are; none before the repair, and where they are still in use.
    pub kept_as: Option<PathBuf>,
}

impl RepairStep {
    /// A step for `file`, of which `error` is wrong.
    pub(crate) fn new(file: &File, error: &Error, repair: &'static str) -> Self {
        let name = format!("{}.{}", file.number(), file.kind().extension());
        Self::of_name(name, file.tier(), error, repair)
    }

    /// As [`RepairStep::new`], of a file that is known by name.
    pub(crate) fn of_name(
        file: String,
        tier: TierIndex,
        error: &Error,
        repair: &'static str,
    ) -> Self {
        let (kind, damage) = (error.kind(), error.to_string());
        Self { file, tier: tier.0, kind, damage, repair, lost: Vec::new(), kept_as: None }
    }
}

/// What a damaged piece costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "lost", rename_all = "snake_case")]
pub enum Lost {
    /// The newest version of a key.
    Record {
        /// The key.
        key: Vec<u8>,
        /// The sequence of the record that is lost.
        sequence: u64,
        /// The sequence of the older record that the key has from now on; none where it has none
        /// any more.
        older: Option<u64>,
    },
    /// A record whose key is not known. Its key is gone or has an older record.
    UnknownRecord,
    /// What this file had of these keys. They are gone, or have what other files have of them,
    /// which may be older.
    Keys {
        /// Keys behind this one; from the first on where there is none.
        after: Option<Vec<u8>>,
        /// Keys up to this one.
        until: Vec<u8>,
        /// So many of them have a copy on the fast tier, which stands for the lost record.
        copied: u64,
    },
    /// The writes that were in logs alone, after this sequence. Those of their keys that can still
    /// be read are named beside this, as records and, where they are many, the last of them as one
    /// range of keys; others are not known.
    Writes {
        /// The last one that is there; none where no log is left.
        after: Option<u64>,
    },
    /// Records of this slab may be older than they were: a write was lost, and nothing tells which.
    MayBeOlder,
    /// Records of this file whose keys are not known. They are gone, or have what other files have
    /// of them, which may be older.
    UnknownRecords,
    /// Keys of this range that were deleted may have an older value again: only the manifest knew
    /// that it is not wanted any more. Those that have a value have their newest one.
    MayReturn {
        /// The first key.
        from: Vec<u8>,
        /// The last key.
        until: Vec<u8>,
    },
    /// Keys of bulk loads, whose files do not say when they were. A key that was written at about
    /// that time, too, may have the older of the two; of a load that was cut off, records may be
    /// there.
    Loaded {
        /// The first key.
        from: Vec<u8>,
        /// The last key.
        until: Vec<u8>,
    },
}

/// What making the index in persistent memory anew does, or has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexRebuild {
    /// The file of the region that the database has.
    pub region: PathBuf,
    /// Why that cannot be used; none where its memtables are intact, and only its index is made
    /// anew.
    pub damage: Option<String>,
    /// Writes after this sequence that were in persistent memory alone are lost; none where nothing
    /// is.
    pub lost_after: Option<u64>,
    /// Tables that go into the new index.
    pub tables: u64,
    /// The region that is made in its place; none where it stays.
    pub replaced_by: Option<PathBuf>,
}
