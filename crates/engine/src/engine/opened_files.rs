//! Opens the files of a store, and finds the settings that hold for it: those that it is given, or
//! those that it keeps. What the files have is left to `opening.rs`, and to a repair.
//!
//! Threads: the one that opens.

use super::restore::numbers_of;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::front::persistent::new_file::NewFile;
use crate::front::persistent::opening::require as require_region;
use crate::layout::OpenedLayout;
use crate::settings::persistent_memory::PersistentMemory;
use crate::settings::{Preset, SETTINGS_NAME, Settings, Tier, retired};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::identity::InstanceId;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{FileKind, Placement, TierSpec, TieredFiles};
use thermocline_foundation::DatabaseId;

/// Where the text of settings is kept that could not be read.
pub(crate) const DAMAGED_SETTINGS_NAME: &str = "settings.toml.damaged";

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// What the files were opened for.
    pub(super) fn of(files: &TieredFiles) -> Self {
        if files.is_read_only() { Self::Read } else { Self::Write }
    }
}

/// The database that a region should belong to, and which copy of it.
pub(super) type Owner = (DatabaseId, InstanceId);

/// The files of a store, and the settings that hold for it.
pub(crate) struct OpenedFiles {
    pub files: Arc<TieredFiles>,
    pub settings: Settings,
    pub(super) placement: Arc<dyn Placement>,
    /// Settings to keep, where they differ from those that are kept.
    pub(super) changed: Option<String>,
    /// The preset of those that are kept, where there are any.
    pub(super) before: Option<Preset>,
    /// The file of a region that is to be made.
    pub(super) new_region: Option<NewFile>,
}

/// Opens the files of the store at `home` and nothing that is in them. Its region of persistent
/// memory is not looked at.
pub(crate) fn open_files(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
) -> Result<OpenedFiles> {
    open_files_if(environment, home, given, access, |_, _, _, _| Ok(()))
}

/// As [`open_files_if`], also where a manifest is missing or short.
pub(crate) fn open_files_without_manifest(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
    is_right: impl Fn(Owner, Option<&RegionRecord>, &Settings, Option<Preset>) -> Result<()>,
) -> Result<OpenedFiles> {
    open_files_by(environment, (home, given), access, Manifest::MayLack, is_right)
}

/// As [`open_files`]; refused, before anything is changed, where the region is not the right one,
/// or where a new one that is wanted has no place.
pub(super) fn open_with_region(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
) -> Result<OpenedFiles> {
    let made = RefCell::new(None);
    let is_right = |owner, record: Option<&RegionRecord>, settings: &Settings, before| {
        require_region(environment, owner, record, settings, before)?;
        let wanted = settings.persistent_memory.as_ref().filter(|_| record.is_none());
        let mut made = made.borrow_mut();
        // An opening that ends a change of tiers asks twice.
        if let Some(wanted) = wanted.filter(|_| made.is_none()) {
            *made = Some(NewFile::make(environment, owner, wanted, settings.preset())?);
        }
        Ok(())
    };
    let opened = open_files_if(environment, home, given, access, is_right)?;
    Ok(OpenedFiles { new_region: made.into_inner(), ..opened })
}

/// As [`open_files`], if `is_right` finds nothing against the region, or against there being none:
/// with its owner, what `DATABASE` says of it, the settings of the opening and the preset before
/// it.
pub(crate) fn open_files_if(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
    is_right: impl Fn(Owner, Option<&RegionRecord>, &Settings, Option<Preset>) -> Result<()>,
) -> Result<OpenedFiles> {
    open_files_by(environment, (home, given), access, Manifest::Needed, is_right)
}

/// Whether a store is opened without its manifest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manifest {
    Needed,
    MayLack,
}

fn open_files_by(
    environment: &Environment,
    (home, given): (&Path, Option<&Settings>),
    access: Access,
    manifest: Manifest,
    is_right: impl Fn(Owner, Option<&RegionRecord>, &Settings, Option<Preset>) -> Result<()>,
) -> Result<OpenedFiles> {
    let mut is_passed_over = false;
    let (kept, text) = match read_settings(environment, home) {
        // What is given takes the place of what cannot be read.
        Err(error) if is_of_text(&error) && given.is_some_and(|given| given.preset.is_some()) => {
            tracing::warn!(%error, "the settings that are kept are passed over");
            is_passed_over = true;
            (None, None)
        }
        read => read?,
    };
    let is_guessed = kept.is_none() && given.is_none_or(|given| given.preset.is_none());
    let before = kept.as_ref().map(|kept| kept.preset_over(&Settings::default()));
    let kept = kept.unwrap_or_default();
    let mut settings = given.unwrap_or(&kept).clone();
    settings.preset = Some(settings.preset_over(&kept));
    settings.check()?;
    let moved = (!settings.tiers.is_empty()).then(|| settings.tier_specs());
    settings.tiers.clear();
    let persistent_memory = settings.persistent_memory.take();
    let placement = settings.placement_policy();
    let is_right = |database, instance, record: Option<&RegionRecord>| {
        let region = || record.cloned().map(PersistentMemory::of);
        let persistent_memory = persistent_memory.clone().or_else(region);
        let settings = Settings { persistent_memory, ..settings.clone() };
        is_right((database, instance), record, &settings, before)
    };
    let (devices, is_read) = (&*environment.devices, access == Access::Read);
    let (at, place) = (moved.as_deref(), Arc::clone(&placement));
    let files = match manifest {
        Manifest::Needed => TieredFiles::open_if(devices, home, at, place, is_read, is_right)?,
        Manifest::MayLack => {
            TieredFiles::open_without_manifest(devices, home, at, place, is_read, is_right)?
        }
    };
    if is_guessed && !numbers_of(&files, |kind| kind == FileKind::Slab).is_empty() {
        // What is guessed is the preset of old, which leaves slabs unread.
        return Err(settings_are_missing(home));
    }
    if is_passed_over && access == Access::Write {
        // What a person wrote stays beside what is written over it.
        if let Some(text) = files.home_text(SETTINGS_NAME)? {
            files.write_home_file(DAMAGED_SETTINGS_NAME, &text)?;
        }
    }
    let changed = settings != kept
        || !OpenedLayout::names_formats(&settings, text.as_deref())
        || text.as_deref().is_some_and(retired::are_in);
    let changed =
        (changed && access == Access::Write).then(|| settings.to_kept_toml()).transpose()?;
    // A database with a region has no logs that would bound its memtables.
    settings.persistent_memory =
        persistent_memory.or_else(|| files.region().map(PersistentMemory::of));
    settings.tiers = tiers_of(files.tiers().iter().map(|tier| tier.spec()));
    let (files, new_region) = (Arc::new(files), None);
    Ok(OpenedFiles { files, settings, placement, changed, before, new_region })
}

/// Tiers as the device layer has them.
pub(super) fn tiers_of<'a>(specs: impl IntoIterator<Item = &'a TierSpec>) -> Vec<Tier> {
    let tier = |spec: &TierSpec| Tier::new(&spec.path, spec.capacity).driver(&spec.driver);
    specs.into_iter().map(tier).collect()
}

/// The settings that the store at `home` keeps, without tiers.
pub(crate) fn kept_settings(environment: &Environment, home: &Path) -> Result<Settings> {
    let (kept, _) = read_settings(environment, home)?;
    kept.ok_or_else(|| settings_are_missing(home))
}

fn settings_are_missing(home: &Path) -> Error {
    let text = format!(
        "{} is missing: put it back from a backup or a checkpoint, let `repair --apply` write it \
         anew, or open the database with settings that name its preset (Db::open_with, --config)",
        home.join(SETTINGS_NAME).display()
    );
    Error::new(ErrorKind::NotFound, text)
}

/// The text of the settings is wrong, not a device.
pub(crate) fn is_of_text(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt)
}

/// The settings that the database at `home` keeps, and the text that they were read from; none
/// where the file is gone.
pub(crate) fn read_settings(
    environment: &Environment,
    home: &Path,
) -> Result<(Option<Settings>, Option<String>)> {
    let way_out = |error: Error| {
        let text = format!("{error}; mend it, or let `repair --apply` write the file anew");
        if is_of_text(&error) { Error::new(error.kind(), text) } else { error }
    };
    let text = TieredFiles::read_home_file(&*environment.devices, home, SETTINGS_NAME);
    let text = text.map_err(|error| way_out(error.into()))?;
    let origin = home.join(SETTINGS_NAME);
    let read = text.as_ref().map(|text| Settings::from_toml(text, &origin));
    let mut kept = read.transpose().map_err(way_out)?;
    // DATABASE has the region too.
    if let Some(kept) = kept.as_mut() {
        kept.persistent_memory = None;
    }
    // DATABASE has the tiers; a crash can come between two files that both have them.
    if kept.as_mut().is_some_and(|kept| !std::mem::take(&mut kept.tiers).is_empty()) {
        let file = origin.display();
        tracing::warn!(%file, "the tiers in it are ignored; name tiers when opening");
    }
    Ok((kept, text))
}
