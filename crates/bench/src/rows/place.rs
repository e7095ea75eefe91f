//! Where the cells of rows run: a rig, or plain directories where there can be none.

use super::{Devices, Paper, RowArguments};
use crate::plan::{InFront, Launcher, Space};
use crate::rig::launcher::InRig;
use crate::rig::plan::{Design, Medium};
use crate::rig::profile::Profile;
use crate::rig::system::{Kernel, System};
use crate::rig::{Rig, command::possible};
use crate::{Outcome, files};
use std::path::{Path, PathBuf};

/// See the module.
pub(super) struct Place {
    pub fast: Space,
    pub slow: Space,
    pub images: PathBuf,
    /// Where regions of persistent memory lie, where the paper has some; removed at the end.
    pub region: Option<PathBuf>,
    pub launcher: Box<dyn Launcher>,
    /// Why there is no rig.
    pub no_rig: Option<String>,
    /// Plain directories, which go with it.
    plain: Option<PathBuf>,
}

impl Place {
    /// A rig with `devices`, or plain directories.
    pub fn new(
        paper: &Paper,
        arguments: &RowArguments,
        devices: Devices,
        say: &mut dyn FnMut(&str),
    ) -> Outcome<Self> {
        let Devices { fast, slow, capacity } = devices;
        let design = Design {
            name: arguments.rig.clone().unwrap_or_else(|| paper.word.to_owned()),
            disk: arguments.disk.clone(),
            fast,
            slow,
            profile: Profile::find(paper.profile)?,
            medium: arguments.medium,
        };
        let capacity = Some(capacity);
        let region =
            if paper.has_region { Some(region(paper.word, &arguments.disk)?) } else { None };
        if let Err(reason) = possible(&design) {
            let (holder, prefix) = (plain_holder(arguments), prefix(paper.word));
            sweep(holder, &prefix)?;
            let folder = holder.join(format!("{prefix}{}", std::process::id()));
            say(&format!("no rig: {reason}"));
            say(&format!(
                "instead: plain directories at {}, not the medium {:?}; names of rows begin with \
                 'plain/'",
                folder.display(),
                arguments.medium
            ));
            let space =
                |name: &str, capacity| Space { path: folder.join(name), capacity, device: None };
            return Ok(Self {
                fast: space("fast", capacity),
                slow: space("slow", Some(fast.max(slow))),
                images: folder.join("images"),
                region,
                launcher: Box::new(InFront::default()),
                no_rig: Some(reason.to_string()),
                plain: Some(folder),
            });
        }
        let rig = Rig::for_this_run(design)?;
        let [fast_device, slow_device] = rig.device_names();
        Ok(Self {
            fast: Space { path: rig.fast(), capacity, device: Some(fast_device) },
            slow: Space { path: rig.slow(), capacity: Some(slow), device: Some(slow_device) },
            images: rig.design().folder().join("images"),
            region,
            launcher: Box::new(InRig::new(rig, arguments.nice)),
            no_rig: None,
            plain: None,
        })
    }

    /// Plain directories below `folder` that stay.
    #[cfg(test)]
    pub fn for_test(folder: &Path) -> Self {
        let capacity = Some(thermocline_foundation::ByteSize::gib(1));
        let space = |name: &str| Space { path: folder.join(name), capacity, device: None };
        Self {
            fast: space("fast"),
            slow: space("slow"),
            images: folder.join("images"),
            region: None,
            launcher: Box::new(InFront::default()),
            no_rig: Some("a test".to_owned()),
            plain: None,
        }
    }

    /// Removes what was made.
    pub fn taken_down(self) -> Outcome<()> {
        // A rig goes with its launcher.
        drop(self.launcher);
        self.region.map_or(Ok(()), |folder| files::remove(&folder))?;
        self.plain.map_or(Ok(()), |folder| files::remove(&folder))
    }
}

/// What folders of plain directories are called, with the number of their process behind it.
fn prefix(word: &str) -> String {
    format!("thermocline-{word}-")
}

/// Where regions of persistent memory of the runs called `word` lie: in memory, where there is a
/// place for files in it, and else on `disk`.
pub(crate) fn region(word: &str, disk: &Path) -> Outcome<PathBuf> {
    let shared = Path::new(SHARED_MEMORY);
    let in_memory = files::free_space(shared).is_ok();
    let holder = if in_memory { shared } else { disk };
    let prefix = prefix(word) + "region-";
    sweep(holder, &prefix)?;
    Ok(holder.join(format!("{prefix}{}", std::process::id())))
}

/// Files that are memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Where plain directories are made.
fn plain_holder(arguments: &RowArguments) -> &Path {
    let shared = Path::new(SHARED_MEMORY);
    let in_memory = arguments.medium != Medium::Disk && files::free_space(shared).is_ok();
    if in_memory { shared } else { &arguments.disk }
}

/// Removes what runs that were interrupted have left in `holder`.
fn sweep(holder: &Path, prefix: &str) -> Outcome<()> {
    for path in Kernel.list(holder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let process = name.strip_prefix(prefix).and_then(|rest| rest.parse::<u32>().ok());
        if process.is_some_and(|process| Kernel.list(&process_folder(process)).is_empty()) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

fn process_folder(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_run_left_goes_with_the_next_one() {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = "thermocline-spandb-";
        let own = scratch.path().join(format!("{prefix}{}", std::process::id()));
        // Beyond the greatest number that a process can have.
        let [left, other] =
            [&format!("{prefix}4194999"), "another"].map(|name| scratch.path().join(name));
        for path in [&own, &left, &other] {
            files::make(&path.join("fast")).unwrap();
        }
        sweep(scratch.path(), prefix).unwrap();
        assert!(own.exists() && other.exists() && !left.exists());
    }
}
