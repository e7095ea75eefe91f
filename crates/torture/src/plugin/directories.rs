//! What is left of a host's directories over tiers, looked at without the plugin.
//!
//! ```text
//!   db/  000012.sst -> .thermocline/tier-0/3-17.000012.sst     fast/INSTANCE/3-17.000012.sst
//!        .thermocline/ ...   .backup0/ ...  tmp_output_x/ ...            TIER HOME PROFILE
//! ```
//!
//! Threads: plain functions, while no process has the directories.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::{ErrorKind, FillFirst, Names, SystemDevices};

/// Files of a tier that are not the host's.
const OWN: [&str; 3] = ["TIER", "HOME", "PROFILE"];
const OWN_DIRECTORY: &str = ".thermocline";

/// Links and files, all directories of the host together.
#[derive(Debug, Default)]
pub struct Found {
    pub links: u64,
    /// Links that lead nowhere.
    pub dangling: Vec<PathBuf>,
    /// Files of the host on the fast tier.
    pub on_fast: Vec<PathBuf>,
    /// The directories that are over tiers.
    pub managed: Vec<PathBuf>,
    /// Links that were put away since their files were gone.
    pub lost: u64,
}

impl Found {
    /// Files on the fast tier that no link names: moves, copies and creations under way.
    pub fn strays(&self) -> u64 {
        (self.on_fast.len() as u64).saturating_sub(self.links - self.dangling.len() as u64)
    }
}

/// Looks at the database and at the fast tier.
pub fn look(db: &Path, fast: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    if db.exists() {
        links(db, &mut found)?;
    }
    files(fast, &mut found.on_fast)?;
    Ok(found)
}

fn links(directory: &Path, found: &mut Found) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let kind = entry?;
        if path.file_name().is_some_and(|name| name == OWN_DIRECTORY) {
            found.managed.push(directory.to_owned());
            let lost = path.join("lost");
            let kept = if lost.exists() { std::fs::read_dir(lost)?.count() } else { 0 };
            found.lost += kept as u64;
        } else if kind.is_dir() {
            links(&path, found)?;
        } else if kind.is_symlink() {
            found.links += 1;
            found.dangling.extend((!path.exists()).then_some(path));
        }
    }
    Ok(())
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else if !is_own(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// Files on the first tier of one directory that none of its links names.
pub fn strays_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let tier = directory.join(OWN_DIRECTORY).join("tier-0");
    if !tier.exists() {
        return Ok(Vec::new());
    }
    let mut named = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        if let Ok(link) = std::fs::read_link(entry?.path()) {
            named.extend(link.file_name().map(ToOwned::to_owned));
        }
    }
    let mut found = Vec::new();
    files(&tier, &mut found)?;
    found.retain(|file| file.file_name().is_none_or(|name| named.iter().all(|link| link != name)));
    Ok(found)
}

/// Deletes the links that were put away since their files were gone.
pub fn forget_lost(directory: &Path) -> io::Result<()> {
    let lost = directory.join(OWN_DIRECTORY).join("lost");
    if !lost.exists() {
        return Ok(());
    }
    std::fs::read_dir(lost)?.try_for_each(|entry| std::fs::remove_file(entry?.path()))
}

/// Also one whose writing a kill cut off: the removal of the directory takes it along.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    OWN.contains(&name.strip_suffix(".new").unwrap_or(name))
}

/// Brings all files home, as `thermocline tiers export` does; how many were moved.
pub fn export(managed: &[PathBuf]) -> Result<u64, String> {
    let mut moved = 0;
    for directory in managed {
        let devices = Arc::new(SystemDevices::default());
        let names = Names::load(devices, directory, None, Arc::new(FillFirst));
        match names.and_then(|names| names.export()) {
            Ok(count) => moved += count,
            // The kill cut the directory's creation off: it has no file yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("export {}: {error}", directory.display())),
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_no_link_names_is_a_stray() {
        let scratch = tempfile::tempdir().unwrap();
        let (db, tier) = (scratch.path().join("db"), scratch.path().join("fast/one"));
        std::fs::create_dir_all(db.join(".thermocline/lost")).unwrap();
        assert_eq!(strays_of(&db).unwrap(), Vec::<PathBuf>::new());
        std::fs::create_dir_all(&tier).unwrap();
        symlink(&tier, db.join(".thermocline/tier-0")).unwrap();
        for file in ["TIER", "1-1.1.sst", "1-2.2.sst"] {
            std::fs::write(tier.join(file), "").unwrap();
        }
        symlink(".thermocline/tier-0/1-1.1.sst", db.join("1.sst")).unwrap();
        let strays = strays_of(&db).unwrap();
        assert_eq!(strays, [db.join(".thermocline/tier-0/1-2.2.sst")]);
        symlink("gone", db.join(".thermocline/lost/1-9.9.sst")).unwrap();
        forget_lost(&db).unwrap();
        assert_eq!(std::fs::read_dir(db.join(".thermocline/lost")).unwrap().count(), 0);
    }

    #[test]
    fn links_files_and_directories_are_found() {
        let scratch = tempfile::tempdir().unwrap();
        let (db, fast) = (scratch.path().join("db"), scratch.path().join("fast"));
        for path in [db.join("more/.thermocline/lost"), fast.join("one")] {
            std::fs::create_dir_all(path).unwrap();
        }
        for file in ["TIER", "HOME", "HOME.new", "1-1.1.sst", "1-2.2.sst", "1-3.3.sst"] {
            std::fs::write(fast.join("one").join(file), "").unwrap();
        }
        symlink(fast.join("one/1-1.1.sst"), db.join("1.sst")).unwrap();
        symlink(fast.join("one/1-2.2.sst"), db.join("more/2.sst")).unwrap();
        symlink(fast.join("one/1-9.9.sst"), db.join("9.sst")).unwrap();
        symlink("gone", db.join("more/.thermocline/lost/8.sst")).unwrap();
        let found = look(&db, &fast).unwrap();
        assert_eq!((found.links, found.on_fast.len(), found.strays(), found.lost), (3, 3, 1, 1));
        assert_eq!(found.dangling, [db.join("9.sst")]);
        assert_eq!(found.managed, [db.join("more")]);
    }
}
