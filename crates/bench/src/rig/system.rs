//! The door to the kernel: programs, cgroup and sysfs files, directories. A test puts something
//! else behind [`System`], which is how the rig's reaction to every failure is tried.

use super::plan::{Device, Devices, Step, filled};
use crate::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thermocline_device::drivers::host_files;
use thermocline_foundation::{Clock, SystemClock};

/// Attempts at what the kernel may still hold for a moment, [`RETRY_MS`] apart.
const ATTEMPTS: u32 = 50;
const RETRY_MS: u64 = 100;
const KERNEL_FILE_BYTES_MAX: u64 = 4 << 20;

/// What the rig does to the machine.
pub trait System: std::fmt::Debug {
    /// Runs a program to its end; its output, or an error with what it said.
    fn run(&self, words: &[String]) -> Outcome<String>;
    /// A file's text; none where it cannot be read.
    fn read(&self, path: &Path) -> Option<String>;
    /// Writes a file of the kernel, or makes a small file.
    fn write(&self, path: &Path, text: &str) -> Outcome<()>;
    /// Makes a directory and those above it.
    fn make(&self, path: &Path) -> Outcome<()>;
    /// Directories and files in a directory; none where it cannot be read.
    fn list(&self, path: &Path) -> Vec<PathBuf>;
    /// Removes a directory and all in it, or a file; fine where there is none.
    fn remove(&self, path: &Path) -> Outcome<()>;
    /// Removes an empty directory.
    fn remove_empty(&self, path: &Path) -> Outcome<()>;
    /// Waits a moment before something is tried again.
    fn pause(&self);
}

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

#[allow(clippy::disallowed_methods, reason = "this is the door to cgroups and devices")]
impl System for Kernel {
    fn run(&self, words: &[String]) -> Outcome<String> {
        let (program, arguments) = words.split_first().ok_or("no program to run")?;
        let output = Command::new(program)
            .args(arguments)
            .output()
            .map_err(|error| format!("cannot start {program}: {error}; is it installed?"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let said = text(&output.stderr);
        let last = said.lines().last().unwrap_or("it did not say why");
        Err(format!("{} failed: {last}", words.join(" ")).into())
    }

    fn read(&self, path: &Path) -> Option<String> {
        let bytes = host_files::read(path, KERNEL_FILE_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, path: &Path, text: &str) -> Outcome<()> {
        std::fs::write(path, text)
            .map_err(|error| format!("cannot write '{text}' to {}: {error}", path.display()).into())
    }

    fn make(&self, path: &Path) -> Outcome<()> {
        std::fs::create_dir_all(path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()).into())
    }

    fn list(&self, path: &Path) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    fn remove(&self, path: &Path) -> Outcome<()> {
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", path.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn remove_empty(&self, path: &Path) -> Outcome<()> {
        std::fs::remove_dir(path)
            .map_err(|error| format!("cannot remove {}: {error}", path.display()).into())
    }

    fn pause(&self) {
        SystemClock::new().sleep(Duration::from_millis(RETRY_MS));
    }
}

/// Carries out `steps` in order and stops at the first that fails.
pub fn carry_out(system: &dyn System, steps: &[Step], devices: &mut Devices) -> Outcome<()> {
    steps.iter().try_for_each(|step| carry_out_one(system, step, devices))
}

/// Carries out all of `steps`, whatever happens to them, and returns what went wrong.
pub fn carry_out_all(system: &dyn System, steps: &[Step]) -> Vec<String> {
    let mut devices = Devices::new();
    let outcomes = steps.iter().map(|step| carry_out_one(system, step, &mut devices));
    outcomes.filter_map(Result::err).map(|failure| failure.to_string()).collect()
}

fn carry_out_one(system: &dyn System, step: &Step, devices: &mut Devices) -> Outcome<()> {
    match step {
        Step::Directory(path) => system.make(path),
        Step::Run(words) => {
            let words: Vec<_> = words.iter().map(|word| filled(word, devices)).collect();
            let patient = words.first().is_some_and(|word| word == "umount" || word == "losetup");
            if patient {
                return again(system, || system.run(&words).map(drop));
            }
            system.run(&words).map(drop)
        }
        Step::Attach { slot, image, direct } => {
            let device = attach(system, image, *direct)?;
            devices.insert((*slot).to_owned(), device);
            Ok(())
        }
        Step::Write { path, text } => {
            system.write(Path::new(&filled(path, devices)), &filled(text, devices))
        }
        Step::Kill(group) => kill(system, group),
        Step::RemoveGroup(group) => {
            // Pages that it is charged for would keep a group of version 1 alive; there is no such
            // file in version 2.
            let _ = system.write(&group.join("memory.force_empty"), "0");
            again(system, || system.remove_empty(group))
        }
        Step::Remove(path) => system.remove(path),
    }
}

/// Tries until it succeeds or patience ends.
fn again(system: &dyn System, mut attempt: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let mut outcome = attempt();
    for _ in 1..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        system.pause();
        outcome = attempt();
    }
    outcome
}

fn attach(system: &dyn System, image: &Path, direct: bool) -> Outcome<Device> {
    let mut words = vec!["losetup".to_owned(), "-f".to_owned(), "--show".to_owned()];
    words.extend(direct.then(|| "--direct-io=on".to_owned()));
    words.push(image.display().to_string());
    let device = system.run(&words)?;
    let name = device.trim_start_matches("/dev/").to_owned();
    let number = system
        .read(&Path::new("/sys/block").join(&name).join("dev"))
        .ok_or_else(|| format!("losetup made '{device}', which /sys/block does not know"))?;
    Ok(Device { name, number: number.trim().to_owned() })
}

fn kill(system: &dyn System, group: &Path) -> Outcome<()> {
    let file = group.join("cgroup.procs");
    let processes = || system.read(&file).unwrap_or_default();
    for _ in 0..ATTEMPTS {
        let text = processes();
        if text.trim().is_empty() {
            return Ok(());
        }
        for process in text.split_whitespace() {
            // It may have ended meanwhile; whether any is left is what counts.
            let _ = system.run(&["kill", "-9", process].map(str::to_owned));
        }
        system.pause();
    }
    let left = processes().split_whitespace().collect::<Vec<_>>().join(" ");
    Err(format!("processes {left} in {} do not end; wait or end them", group.display()).into())
}
