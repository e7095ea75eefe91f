//! Another list of tiers for a closed database.
//!
//! The device layer does it (`reshape.rs` there): files go where they are to be, then the file map
//! and `DATABASE` change as one. The engine says what a preset cannot do without.

use super::opened_files::{Access, OpenedFiles, open_files, read_settings, tiers_of};
use super::restore::numbers_of;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::jobs::Progress;
use crate::settings::{Preset, Settings, Tier};
use crate::shared::tier0::{Account, Tier0};
use std::path::{Path, PathBuf};
use thermocline_device::{FileKind, Spared, TierChange as Change, TierSpec, TieredFiles};

/// What an opening may need beside: a log and journals as they are begun.
const OPENING_BYTES: u64 = 96 << 10;

/// What a table takes beside its records at least.
const TABLE_ENDS_BYTES: u64 = 16 << 10;

/// A change of the list of tiers. Places count from 0, the fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierChange {
    /// A tier more.
    Add {
        /// Its place, those from there on move down; none for the end, as the slowest.
        at: Option<usize>,
        /// Its directory, which is made or empty, capacity and driver.
        tier: Tier,
    },
    /// A tier fewer: its files go to the others first.
    Remove {
        /// Which. A place means another tier once it is gone, a path does not: where a change may
        /// have been cut off, and another opening have ended it, name the path.
        tier: WhichTier,
    },
    /// A tier in another directory, such as one on a new disk: its files are copied there.
    Replace {
        /// Which; see [`TierChange::Remove`].
        tier: WhichTier,
        /// The directory, which is made or empty.
        path: PathBuf,
    },
}

/// A tier by its place or its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichTier {
    /// Its place.
    Place(usize),
    /// Its directory, as `DATABASE` has it.
    Path(PathBuf),
}

impl WhichTier {
    fn place(&self, tiers: &[Tier]) -> Result<usize> {
        let path = match self {
            Self::Place(at) => return Ok(*at),
            Self::Path(path) => path,
        };
        let at = tiers.iter().position(|tier| tier.path == *path);
        at.ok_or_else(|| {
            let paths = tiers.iter().map(|tier| tier.path.display().to_string());
            Error::invalid(format!(
                "no tier lies in {}: they are {}",
                path.display(),
                paths.collect::<Vec<_>>().join(", ")
            ))
        })
    }
}

impl Environment {
    /// Changes the list of tiers of the database at `home`, which is not open: a tier more, one
    /// fewer, or one in another directory. `settings` are other than its own, as
    /// [`Environment::open_with`] has them. `progress` is told how much was copied. A change that
    /// is cut off has happened, or has not and is begun again; the next opening for writing sees to
    /// that. Gives the new list.
    ///
    /// Errors: `Invalid` for a place that there is not or a directory that is not empty, or where
    /// the preset wants more tiers, or where this has ended a change that was cut off, and made no
    /// other; `OutOfSpace` where files have no room on the others.
    pub fn change_tiers(
        &self,
        home: &Path,
        settings: Option<&Settings>,
        change: &TierChange,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Tier>> {
        let (kept, _) = read_settings(self, home)?;
        let OpenedFiles { files, settings: before, .. } =
            open_files(self, home, settings, Access::Write)?;
        files.require_no_ended_change()?;
        let tiers = files.tiers().len();
        let mut after = before.clone();
        let change = match change {
            TierChange::Add { at, tier } => {
                let at = at.unwrap_or(tiers);
                if at <= tiers {
                    after.tiers.insert(at, tier.clone());
                }
                let Tier { path, capacity, driver, .. } = tier.clone();
                Change::Add(at, TierSpec { path, capacity, driver })
            }
            TierChange::Remove { tier } => {
                let at = tier.place(&before.tiers)?;
                if at < tiers {
                    after.tiers.remove(at);
                }
                Change::Remove(at)
            }
            TierChange::Replace { tier, path } => {
                Change::Replace(tier.place(&before.tiers)?, path.clone())
            }
        };
        if after.tiers.is_empty() {
            return Err(Error::invalid(
                "this is the only tier; add another first, or replace this one",
            ));
        }
        if after.tiers.len() < 2 && is_hybrid(&files, &before, kept.as_ref()) {
            return Err(Error::invalid(
                "the preset hybrid wants a fast tier and a slow one, and one would be left; change \
                 to the preset leveled first (compact all of it, then open it with that preset)",
            ));
        }
        after.check()?;
        // A database that was made before this was checked may have such a list, and change it, but
        // not to one that is worse.
        if before.check_capacities().is_ok() || matches!(change, Change::Add(..)) {
            after.check_capacities()?;
        }
        let mut told = |done_bytes, total_bytes| progress(Progress { done_bytes, total_bytes });
        let specs = files.change_tiers(&*self.devices, &change, spared(&after), &mut told)?;
        Ok(tiers_of(&specs))
    }
}

/// The settings given or kept say so, or there are records that only this preset reads.
fn is_hybrid(files: &TieredFiles, given: &Settings, kept: Option<&Settings>) -> bool {
    let settings = kept.into_iter().chain([given]);
    settings.into_iter().any(|settings| settings.preset == Some(Preset::Hybrid))
        || !numbers_of(files, |kind| kind == FileKind::Slab).is_empty()
}

/// What logs and journals may come to on the fastest tier, and the first log of an opening; and the
/// table of a memtable, which is little more than that where its values cannot be compressed.
fn spared(settings: &Settings) -> Spared {
    let tier0 = Tier0::new(settings);
    let logs_bytes = tier0.grant(Account::Logs) + tier0.grant(Account::Journals) + OPENING_BYTES;
    let memtable_bytes = settings.division().memtable_bytes;
    Spared { logs_bytes, flush_bytes: memtable_bytes + memtable_bytes / 8 + TABLE_ENDS_BYTES }
}
