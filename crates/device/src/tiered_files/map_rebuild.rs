//! A file map that cannot be read is made anew, of what lies in the tiers' directories.
//!
//! A directory tells the number and the kind of each of its files, which is what the map says, but
//! for the level of tables: that is the program's above to put right. What it cannot tell is which
//! of them were published. A file that a crash left unfinished counts from then on, and the program
//! above deletes what it does not know.
//!
//! 1. All else is checked as for any opening: the tiers are the right ones, and as recent as
//!    `DATABASE`.
//! 2. The new map has a number above all that may have been used ([`NUMBERS_BEHIND`]), and is the
//!    newest as soon as its first frame is durable. The old ones are kept in `lost` before; the
//!    next opening removes them.
//! 3. What the new map lists is durable before it is, whether or not it was published.
//! 4. A number that lies on two tiers is refused: one of the two is a copy that was cut off.
//! 5. Of manifests the newest counts, so one whose making was cut off is not listed but kept in
//!    `lost`: its first frame was not written to its end, and there is an older one.
//!
//! Threads: the one that repairs.

use super::devices::Devices;
use super::generations::check_generations;
use super::home::Home;
use super::lost::{Unreadable, keep_in};
use super::opening::{
    Listing, absolute, absolute_tiers, check_extent, check_identity, has_file, list, open_home,
    open_map, open_tier, refuse, require_distinct, take_lock,
};
use super::{TieredFiles, file_name, reshape};
use crate::buffer::PAGE_BYTES;
use crate::context::{FileKind, Keeping};
use crate::error::{Error, Result};
use crate::file::File;
use crate::file_map::{FileMap, MapEntry, MapState};
use crate::journal::Journal;
use crate::small_file;
use crate::tier::{Tier, TierIndex, TierSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::{FileNumber, sync_site};

/// A map has reserved no number that is so far behind the largest that is there: each log, and each
/// manifest, has a newer number than most files before it.
const NUMBERS_BEHIND: u64 = 1 << 20;

/// A map that cannot be read.
#[derive(Debug)]
pub struct MapRebuild {
    /// The name of its file.
    pub name: String,
    /// What is wrong with it.
    pub error: Error,
    /// Where it is kept; none before it is made anew, and where it is gone.
    pub kept_as: Option<PathBuf>,
}

impl TieredFiles {
    /// Looks at the file map of the database at `home`, and makes it anew with `apply`, where it is
    /// damaged beyond what an opening turns back; none where it is not. `tiers` are as for
    /// [`TieredFiles::open`], and `unreadable` says what is made of what a device does not give.
    ///
    /// Errors: as for an opening; `Tier` where a file is in two tiers.
    pub fn rebuild_map(
        devices: &dyn Devices,
        home: &Path,
        tiers: Option<&[TierSpec]>,
        unreadable: Unreadable,
        apply: bool,
    ) -> Result<Option<MapRebuild>> {
        let home_path = absolute(home)?;
        let home_driver = open_home(devices, &home_path)?;
        let mut locks = Vec::new();
        take_lock(&*home_driver, !apply, &mut locks)?;
        if has_file(&*home_driver, reshape::FILE_NAME)? {
            // An opening goes on with the change of tiers, and says what is wrong with it.
            return Ok(None);
        }
        let mut home = Home::read(&*home_driver, &home_path)?;
        let count = home.tiers.len();
        if let Some(tiers) = tiers {
            home.tiers = absolute_tiers(tiers)?;
        }
        if home.tiers.len() != count {
            // An opening says what is wrong.
            return Ok(None);
        }
        require_distinct(&home_path, &home.tiers)?;
        let mut found = Vec::with_capacity(count);
        for (index, spec) in home.tiers.iter().enumerate() {
            let tier = open_tier(devices, TierIndex(index as u8), spec, !apply)?;
            take_lock(&**tier.driver(), !apply, &mut locks)?;
            found.push(check_identity(&home, tier)?);
        }
        check_generations(&home, &home_path, &found)?;
        let tiers: Vec<_> = found.iter().map(|found| Arc::clone(&found.tier)).collect();
        let listings = tiers.iter().map(|tier| list(tier)).collect::<Result<Vec<_>>>()?;
        let opened = open_map(&home, &tiers, &listings, false)
            .and_then(|map| check_extent(&home.closed, FileKind::Map, map.journal()));
        let error = match opened {
            Err(error) if unreadable.is_damage(error.kind()) => error,
            opened => return opened.map(|()| None),
        };
        let mut state = state_of(&tiers, &listings)?;
        let unfinished = leave_out_unfinished(&home, &tiers, unreadable, &mut state)?;
        let maps = numbers_of_maps(&listings[0]);
        let newest = maps.last().copied().unwrap_or_default();
        let mut rebuild =
            MapRebuild { name: file_name(newest, FileKind::Map), error, kept_as: None };
        if apply {
            for (number, tier) in unfinished {
                let file = file_of(&home, &tiers[tier.position()], number, FileKind::Manifest)?;
                keep_in(&tiers[tier.position()], devices, &file, None, unreadable)?;
            }
            for number in maps {
                let file = file_of(&home, &tiers[0], number, FileKind::Map)?;
                let kept = keep_in(&tiers[0], devices, &file, None, unreadable)?;
                rebuild.kept_as = Some(kept);
            }
            sync_site("map-rebuild/files", || sync_all(&tiers, &state))?;
            sync_site("map-rebuild", || FileMap::create(home.database, &tiers[0], state))?;
        }
        Ok(Some(rebuild))
    }
}

/// All files that a map lists, as the directories have them; tables in level 0.
fn state_of(tiers: &[Arc<Tier>], listings: &[Listing]) -> Result<MapState> {
    let mut state = MapState::default();
    let mut last = FileNumber(0);
    for (tier, listing) in tiers.iter().zip(listings) {
        for ((number, extension), len) in listing {
            last = last.max(*number);
            let kind = FileKind::from_extension(extension);
            let is_listed =
                |kind: &FileKind| kind.keeping() == Keeping::Durable && *kind != FileKind::Map;
            let Some(kind) = kind.filter(is_listed) else { continue };
            let is_table = matches!(kind, FileKind::Table { .. });
            let bytes = if is_table { *len } else { (*len).min(PAGE_BYTES as u64) };
            let entry = MapEntry { kind, tier: tier.index(), bytes };
            if let Some(other) = state.files.insert(*number, entry) {
                let whose = format!("{} at {}", tier.index(), tier.spec().path.display());
                let found = format!("{number}.{extension} is here and on {} too", other.tier);
                let way_out = "move the one away that is shorter or older, a copy that was cut off";
                return Err(refuse(&whose, found, way_out));
            }
        }
    }
    state.reserved = FileNumber(last.0 + NUMBERS_BEHIND);
    Ok(state)
}

/// Makes names and lengths of all files durable: a killed process may have left some that a power
/// cut would take, and the map is about to list them.
fn sync_all(tiers: &[Arc<Tier>], state: &MapState) -> Result<()> {
    for (number, entry) in &state.files {
        let driver = tiers[entry.tier.position()].driver();
        let file = driver.open(&file_name(*number, entry.kind))?;
        small_file::sync(&**driver, &file)?;
    }
    tiers.iter().try_for_each(|tier| tier.sync_directory())
}

fn numbers_of_maps(listing: &Listing) -> Vec<FileNumber> {
    let map = FileKind::Map.extension();
    listing.keys().filter(|(_, extension)| *extension == map).map(|(number, _)| *number).collect()
}

/// Takes the manifests out of `state` whose making was cut off, and says where they lie.
fn leave_out_unfinished(
    home: &Home,
    tiers: &[Arc<Tier>],
    unreadable: Unreadable,
    state: &mut MapState,
) -> Result<Vec<(FileNumber, TierIndex)>> {
    let manifests = state.files.iter().filter(|(_, entry)| entry.kind == FileKind::Manifest);
    let manifests: Vec<_> = manifests.map(|(number, entry)| (*number, entry.tier)).collect();
    let mut unfinished = Vec::new();
    for (number, tier) in manifests.into_iter().rev() {
        let file = file_of(home, &tiers[tier.position()], number, FileKind::Manifest)?;
        if has_first_frame(&file, unreadable)? {
            for (number, _) in &unfinished {
                state.files.remove(number);
            }
            return Ok(unfinished);
        }
        unfinished.push((number, tier));
    }
    // There is none to take its place: the newest is the one that is lost.
    Ok(Vec::new())
}

/// The first frame of the journal in the file was written to its end; it may be damaged since.
fn has_first_frame(file: &File, unreadable: Unreadable) -> Result<bool> {
    match Journal::read_mended(file, |_| Ok(())) {
        Ok(end) => Ok(end.frames > 0),
        Err(error) if unreadable.is_damage(error.kind()) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The file `number` of `tier`, to be read.
fn file_of(home: &Home, tier: &Arc<Tier>, number: FileNumber, kind: FileKind) -> Result<File> {
    let handle = tier.driver().open_to_read(&file_name(number, kind))?;
    let driver = Arc::clone(tier.driver());
    Ok(File::new(home.database, number, kind, tier.index(), driver, handle))
}
