//! The end of a database over tiers.
//!
//! ```text
//!   verified over the tiers -> no link leads nowhere, no file without a link on the fast tier
//!   -> exported: no link is left, no file on the fast tier -> verified without plugin, fast tier
//!   -> lost links looked at and forgotten, as a person does
//!   -> removed by the plugin: nothing is left anywhere
//! ```

use super::directories::{self, export};
use super::lives::{Bench, Trouble};
use super::stress::{complains, last_words, quiet_tiers};
use super::{Ending, Report};
use std::path::PathBuf;
use thermocline_foundation::random::Random;

/// See the module.
pub fn end(bench: &Bench, report: &mut Report) -> Result<(), Trouble> {
    let uri = quiet_tiers(&bench.fast());
    verify(bench, Some(&uri), "over the tiers")?;
    let look = || directories::look(&bench.stress.db, &bench.fast());
    let found = look()?;
    if bench.ending == Ending::Kill {
        none(&found.dangling, "links that lead nowhere after an opening")?;
    }
    let strays = directories::strays_of(&bench.stress.db)?;
    none(&strays, "files without a link on the fast tier after an opening")?;
    // After a loss of power a directory that the host has not changed since, such as that of an
    // unfinished checkpoint, still has its lost links: the export puts them away.
    report.exported += export(&found.managed)?;
    let found = look()?;
    report.lost_links += found.lost;
    if found.links > 0 {
        return Err(Trouble::Host(format!("{} links are left after the export", found.links)));
    }
    none(&found.on_fast, "files that are left on the fast tier after the export")?;
    bench.without_fast(|| verify(bench, None, "without the plugin"))?;
    report.verified += 2;
    found.managed.iter().try_for_each(|directory| directories::forget_lost(directory))?;
    removed(bench, &uri)?;
    let found = look()?;
    none(&found.on_fast, "files that are left on the fast tier after the removal")?;
    let left: Vec<PathBuf> = std::fs::read_dir(bench.fast())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !path.ends_with("lost+found"))
        .collect();
    none(&left, "directories that are left on the fast tier after the removal")?;
    if bench.stress.db.exists() {
        return Err(Trouble::Host("the database is there after its removal".to_owned()));
    }
    report.databases += 1;
    Ok(())
}

fn none(found: &[PathBuf], what: &str) -> Result<(), Trouble> {
    match found {
        [] => Ok(()),
        found => Err(Trouble::Host(format!("{} {what}: {:?}", found.len(), &found[..1]))),
    }
}

fn verify(bench: &Bench, uri: Option<&str>, how: &str) -> Result<(), Trouble> {
    let mut random = Random::new(0);
    let mut words = bench.epoch().life(&mut random, false);
    words.push("--verification_only=1".to_owned());
    told(bench, uri, &words, how)
}

/// The stress test deletes a directory through its file system.
fn removed(bench: &Bench, uri: &str) -> Result<(), Trouble> {
    let directory = bench.stress.db.display();
    let words = [format!("--delete_dir_and_exit={directory}")];
    told(bench, Some(uri), &words, "removing the database")
}

fn told(bench: &Bench, uri: Option<&str>, words: &[String], how: &str) -> Result<(), Trouble> {
    let status = bench.stress.start(uri, words)?.wait()?;
    let said = bench.stress.said();
    match status.success() && !complains(&said) {
        true => Ok(()),
        false => Err(Trouble::Host(format!("{how}: {status}: {}", last_words(&said)))),
    }
}
