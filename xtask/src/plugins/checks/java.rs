//! RocksDB and Speedb in a program in Java: its environment is a property, and no class of ours is
//! needed.

use super::super::rig::{Rig, output_of};
use super::super::{Outcome, ROCKSDB_11, build};
use crate::rivals;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Writes and reads with the shim, reads without it.
pub fn program(rig: &Rig) -> Result<Outcome, String> {
    let (jar, lib) = (rivals::ROCKSDB.jar(), rivals::ROCKSDB.path());
    if build::missing(&ROCKSDB_11).is_some() || !jar.exists() {
        return Ok(Outcome::Skipped(format!("it was not fetched; {}", ROCKSDB_11.packages)));
    }
    written_and_read(rig, &jar, &lib, "librocksdbjni.so")
}

/// The same program with a host's package and its library, which Java looks for by a name.
pub fn written_and_read(rig: &Rig, jar: &Path, lib: &Path, name: &str) -> Result<Outcome, String> {
    if Command::new("javac").arg("-version").output().is_err() {
        return Ok(Outcome::Skipped("there is no javac; apt install default-jdk".to_owned()));
    }
    rig.begin()?;
    let failed = |error: std::io::Error| format!("{}: {error}", rig.folder.display());
    let library = rig.folder.join(name);
    symlink(lib, &library).map_err(failed)?;
    let settings = rig.folder.join("tiers.toml");
    let fast = rig.fast().display().to_string();
    let text = format!(
        "[[tiers]]\npath = \"{fast}\"\ncapacity = \"64 MiB\"\n\n\
         [[tiers]]\npath = \"home\"\ncapacity = \"10 GiB\"\n"
    );
    fs::write(&settings, text).map_err(failed)?;
    let uri = format!("thermocline://{}", settings.display());
    let mut write = java(rig, jar, &["write", &uri]);
    write.env("LD_PRELOAD", format!("{}:{}", library.display(), rig.shim().display()));
    let said = output_of(write)?;
    let spread = rig.spread()?;
    if spread.linked_tables == 0 || spread.plain_tables == 0 || !spread.dangling.is_empty() {
        return Err(format!("files should lie on both tiers: {spread:?}"));
    }
    output_of(java(rig, jar, &["read"]))?;
    let said = said.lines().rfind(|line| line.starts_with("HostTest: ")).unwrap_or_default();
    Ok(Outcome::Passed(format!(
        "{}; tables: {} on the fast tier, {} at home; read without the plugin, too",
        said.trim_start_matches("HostTest: "),
        spread.linked_tables,
        spread.plain_tables
    )))
}

fn java(rig: &Rig, jar: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300", "java"]);
    command.arg(format!("-Djava.library.path={}", rig.folder.display()));
    command.arg("-cp").arg(jar).arg("plugins/rocksdb/HostTest.java");
    command.arg(rig.db()).args(arguments).current_dir(crate::root());
    command
}
