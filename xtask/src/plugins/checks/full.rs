//! A fast tier whose device is smaller than it was declared: the host hears nothing of it. And all
//! devices full: then it does, and goes on once there is room.

use super::super::rig::{Rig, output_of};
use super::super::{Outcome, ROCKSDB};
use super::programs::Program;
use super::{SMALL, no_tools, same_records};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ways in which the host writes.
const WAYS: [&str; 3] =
    ["--mmap_write=0", "--use_direct_io_for_flush_and_compaction=1", "--mmap_write=1"];

/// A small file system, as long as this lives.
pub struct Small(PathBuf);

impl Small {
    /// The fast tier is on one of 12 MiB; none where this is not root.
    pub fn mount(rig: &Rig) -> Option<Self> {
        Self::mount_at(&rig.fast(), 12)
    }

    fn mount_at(path: &Path, mib: u32) -> Option<Self> {
        let mut mount = Command::new("mount");
        let size = format!("size={mib}m");
        mount.args(["-t", "tmpfs", "-o", &size, "thermocline-plugins"]).arg(path);
        output_of(mount).ok().map(|_| Self(path.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

pub fn device(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    let mut seen = Vec::new();
    for way in WAYS {
        rig.begin()?;
        let Some(small) = Small::mount(rig) else { return Ok(no_small()) };
        let write = [way, "--benchmarks=fillrandom,overwrite,readrandom", "--num=60000"];
        let arguments = [&SMALL[..], &write].concat();
        let uri = rig.uri_with("1GiB");
        let overflowed = went_on(rig, way, rig.over(&uri, "db_bench", &arguments))?;
        let records = same_records(rig, None)?;
        seen.push(format!("{overflowed} files and {} records with {way}", records.count));
        drop(small);
    }
    Ok(Outcome::Passed(format!(
        "12 MiB where 1 GiB was declared; went on elsewhere: {}",
        seen.join(", ")
    )))
}

/// The devices of both tiers fill up.
pub fn devices(rig: &Rig) -> Result<Outcome, String> {
    match no_tools() {
        Some(skipped) => Ok(skipped),
        None => room_of(rig, &Program::linked(rig, &ROCKSDB)?),
    }
}

/// A program fills the devices of both tiers, and gives room back.
pub fn room_of(rig: &Rig, program: &Program<'_>) -> Result<Outcome, String> {
    let Some(_both) = both_small(rig)? else { return Ok(no_small()) };
    let mut room = program.over(&rig.uri_with("1GiB"), "room");
    room.arg(rig.fast());
    program.said(room).map(Outcome::Passed)
}

/// Both tiers are on small file systems; none where this is not root.
pub fn both_small(rig: &Rig) -> Result<Option<[Small; 2]>, String> {
    fs::create_dir_all(rig.db()).map_err(|error| format!("{}: {error}", rig.db().display()))?;
    let Some(fast) = Small::mount(rig) else { return Ok(None) };
    Ok(Small::mount_at(&rig.db(), 24).map(|home| [fast, home]))
}

pub fn no_small() -> Outcome {
    Outcome::Skipped("a tmpfs cannot be mounted; run it as root".to_owned())
}

/// Runs what meets a full device; how many files went on elsewhere, of which the host's log has
/// nothing.
pub fn went_on(rig: &Rig, way: &str, command: Command) -> Result<u64, String> {
    output_of(command)?;
    let overflowed = rig.figure("overflowed")?;
    if overflowed == 0 {
        return Err(format!("{way}: no file met the full device"));
    }
    let log = fs::read(rig.db().join("LOG")).map_err(|error| format!("LOG: {error}"))?;
    let log = String::from_utf8_lossy(&log).into_owned();
    match log.lines().find(|line| line.contains("No space left")) {
        Some(line) => Err(format!("{way}: the host heard of the full device: {line}")),
        None => Ok(overflowed),
    }
}
