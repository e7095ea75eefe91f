//! `tiers list|show|export|migrate|rehome DIR`: a directory of another program whose files lie over
//! tiers.

use super::tier_change;
use crate::arguments::{Database, HostDirectory, HostExport, TierAdd, TiersAction};
use crate::failure::Result;
use crate::output::Output;
use crate::table::Table;
use crate::text;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use thermocline::TierChange;
use thermocline_device::names::{NamedInfo, NamedTier};
use thermocline_device::profile::Source;
use thermocline_device::{
    ErrorKind, FillFirst, Names, Result as DeviceResult, SystemDevices, TierSpec,
};
use thermocline_foundation::ByteSize;

/// Shows the directory, or moves its files.
pub fn run(database: &Database, action: &TiersAction, json: bool) -> Result<()> {
    match action {
        TiersAction::Add(TierAdd { added, at }) => {
            let change = TierChange::Add { at: *at, tier: added.clone() };
            tier_change::run(database, change, json)
        }
        TiersAction::Remove { tier } => {
            let change = TierChange::Remove { tier: tier.clone() };
            tier_change::run(database, change, json)
        }
        TiersAction::Replace { tier, path } => {
            let change = TierChange::Replace { tier: tier.clone(), path: path.clone() };
            tier_change::run(database, change, json)
        }
        TiersAction::List(host) => list(&open(database, host)?, json),
        TiersAction::Show(host) => show(&open(database, host)?, json),
        TiersAction::Export(HostExport { host, leave: true }) => leave(database, host, json),
        TiersAction::Export(HostExport { host, leave: false }) => {
            let moved = open(database, host)?.export()?;
            tell(&host.dir, json, moved, "moved home; the directory needs no tiers now")
        }
        TiersAction::Migrate(host) => {
            // It knows no levels, so that none is on the wrong tier for its level.
            let names = open(database, host)?;
            while names.move_next()? {}
            let moved = names.counts().moved_for_room;
            tell(&host.dir, json, moved, "moved off tiers that are nearly full")
        }
        TiersAction::Rehome(host) => {
            let tiers = specs(database);
            Names::rehome(devices(), &host.dir, tiers.as_deref(), Arc::new(FillFirst))?;
            let files = open(database, host)?.files().len() as u64;
            tell(&host.dir, json, files, "belong to this directory now")
        }
    }
}

fn devices() -> Arc<SystemDevices> {
    Arc::new(SystemDevices::default())
}

/// The tiers of the command line, if it names any.
fn specs(database: &Database) -> Option<Vec<TierSpec>> {
    let spec = |tier: &thermocline::Tier| TierSpec {
        path: tier.path.clone(),
        capacity: tier.capacity,
        driver: tier.driver.clone(),
    };
    (!database.tier.is_empty()).then(|| database.tier.iter().map(spec).collect())
}

fn load(database: &Database, host: &HostDirectory) -> DeviceResult<Names> {
    let tiers = specs(database);
    // None of these commands asks where a new file would go.
    Names::load(devices(), &host.dir, tiers.as_deref(), Arc::new(FillFirst))
}

fn open(database: &Database, host: &HostDirectory) -> Result<Names> {
    Ok(load(database, host)?)
}

/// Takes the directory off its tiers, or finishes what did so and was cut off.
fn leave(database: &Database, host: &HostDirectory, json: bool) -> Result<()> {
    let names = match load(database, host) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if !Names::undo_cut_off(&*devices(), &host.dir)? {
                return Err(error.into());
            }
            let what = "moved home; the directory has left its tiers: that was cut off before";
            return tell(&host.dir, json, 0, what);
        }
        names => names?,
    };
    let moved = names.leave()?;
    tell(&host.dir, json, moved, "moved home; the directory has left its tiers")
}

#[derive(Serialize)]
struct Told<'a> {
    directory: &'a Path,
    files: u64,
}

fn tell(directory: &Path, json: bool, files: u64, what: &str) -> Result<()> {
    let mut output = Output::new();
    match json {
        true => output.json(&Told { directory, files })?,
        false => output.line(format!("{} {what}", text::counted(files, "file")))?,
    }
    output.finish()
}

#[derive(Serialize)]
struct ShownFile<'a> {
    name: &'a str,
    tier: Option<u8>,
    bytes: u64,
    place: &'a Path,
}

fn list(names: &Names, json: bool) -> Result<()> {
    let files = names.files();
    let shown = |file: &'_ NamedInfo| (file.tier.map(|tier| tier.0), file.bytes);
    let mut output = Output::new();
    if json {
        let files: Vec<_> = files
            .iter()
            .map(|file| {
                let (tier, bytes) = shown(file);
                ShownFile { name: &file.name, tier, bytes, place: &file.place }
            })
            .collect();
        output.json(&files)?;
        return output.finish();
    }
    let mut table = Table::new(&["file", ">tier", ">bytes", "place"]);
    for file in &files {
        let (tier, bytes) = shown(file);
        table.row([
            file.name.clone(),
            tier.map_or_else(|| "home".to_owned(), |tier| tier.to_string()),
            ByteSize(bytes).to_string(),
            file.place.display().to_string(),
        ]);
    }
    table.lines().into_iter().try_for_each(|line| output.line(line))?;
    output.finish()
}

#[derive(Serialize)]
struct ShownTier<'a> {
    tier: u8,
    path: &'a Path,
    driver: &'a str,
    capacity_bytes: u64,
    files: u64,
    used_bytes: u64,
    device_free_bytes: Option<u64>,
    useful_writers: Option<u16>,
    useful_readers: Option<u16>,
    /// Where these are known from.
    profile_source: Source,
}

impl<'a> ShownTier<'a> {
    fn of(tier: &'a NamedTier) -> Self {
        Self {
            tier: tier.tier.0,
            path: &tier.path,
            driver: &tier.driver,
            capacity_bytes: tier.capacity.0,
            files: tier.files,
            used_bytes: tier.used_bytes,
            device_free_bytes: tier.space.map(|space| space.free_bytes),
            useful_writers: tier.profile.write.useful_workers(),
            useful_readers: tier.profile.read.useful_workers(),
            profile_source: tier.profile.source,
        }
    }
}

/// How it is known what a device can do.
fn known_as(source: Source) -> &'static str {
    match source {
        Source::Unknown => "-",
        Source::Measured => "measured",
        Source::Fio => "fio said",
        Source::Online => "seen",
    }
}

fn show(names: &Names, json: bool) -> Result<()> {
    let tiers = names.tiers();
    let shown: Vec<_> = tiers.iter().map(ShownTier::of).collect();
    let mut output = Output::new();
    if json {
        output.json(&shown)?;
        return output.finish();
    }
    let mut table = Table::new(&[
        ">tier",
        ">files",
        ">used",
        ">capacity",
        ">full",
        ">device free",
        ">useful writers",
        "as",
        "driver",
        "path",
    ]);
    for tier in &shown {
        let number = |number: Option<u16>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let size = |bytes: u64| ByteSize(bytes).to_string();
        table.row([
            tier.tier.to_string(),
            text::count(tier.files),
            size(tier.used_bytes),
            size(tier.capacity_bytes),
            text::share(tier.used_bytes, tier.capacity_bytes),
            tier.device_free_bytes.map_or_else(|| "?".to_owned(), size),
            number(tier.useful_writers),
            known_as(tier.profile_source).to_owned(),
            tier.driver.to_owned(),
            tier.path.display().to_string(),
        ]);
    }
    table.print("Tiers, fastest first", &mut output)?;
    output.finish()
}
