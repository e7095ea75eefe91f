//! A fast tier whose device is smaller than it was declared: the host hears nothing of it.

use super::super::Outcome;
use super::super::rig::{Rig, output_of};
use super::{SMALL, no_tools, same_records};
use std::process::Command;

/// The ways in which the host writes.
const WAYS: [&str; 3] =
    ["--mmap_write=0", "--use_direct_io_for_flush_and_compaction=1", "--mmap_write=1"];

/// A file system of 12 MiB as the fast tier, as long as this lives.
pub struct Small(std::path::PathBuf);

impl Small {
    /// None where this is not root.
    pub fn mount(rig: &Rig) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m", "thermocline-plugins"]).arg(rig.fast());
        output_of(mount).ok().map(|_| Self(rig.fast()))
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
        let Some(small) = Small::mount(rig) else {
            return Ok(Outcome::Skipped("a tmpfs cannot be mounted; run it as root".to_owned()));
        };
        let write = [way, "--benchmarks=fillrandom,overwrite,readrandom", "--num=60000"];
        let arguments = [&SMALL[..], &write].concat();
        output_of(rig.over(&rig.uri_with("1GiB"), "db_bench", &arguments))?;
        let overflowed = rig.figure("overflowed")?;
        if overflowed == 0 {
            return Err(format!("{way}: no file met the full device"));
        }
        heard_nothing(rig, way)?;
        let records = same_records(rig, None)?;
        seen.push(format!("{overflowed} files and {} records with {way}", records.count));
        drop(small);
    }
    Ok(Outcome::Passed(format!(
        "12 MiB where 1 GiB was declared; went on elsewhere: {}",
        seen.join(", ")
    )))
}

/// The host's log has no full device.
pub fn heard_nothing(rig: &Rig, way: &str) -> Result<(), String> {
    let log = std::fs::read(rig.db().join("LOG")).map_err(|error| format!("LOG: {error}"))?;
    let log = String::from_utf8_lossy(&log).into_owned();
    match log.lines().find(|line| line.contains("No space left")) {
        Some(line) => Err(format!("{way}: the host heard of the full device: {line}")),
        None => Ok(()),
    }
}
