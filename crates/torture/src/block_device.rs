//! A small ext4 file system on a loop device over an image file, which can be formatted, mounted,
//! cut off and unmounted many times.
//!
//! ```text
//!   DIR/NAME.img  --losetup-->  /dev/loopN  --mount-->  DIR/NAME
//! ```
//! Invariants:
//! 1. What is attached is detached when the value is dropped; after the process was killed
//!    [`release`] does it, knowing nothing but the directory.
//! 2. A failure of the machinery (no loop device, no mkfs) is told apart from one of the store: the
//!    first is a [`Setup`] error.
//!
//! Linux, root.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thermocline_device::drivers::directory_is_mount_point;
use thermocline_device::drivers::power_switch::PowerSwitch;
use thermocline_foundation::{Clock, SystemClock};

/// The machinery failed, not the store.
#[derive(Debug)]
pub struct Setup(pub String);

/// See the module.
#[derive(Debug)]
pub struct BlockDevice {
    device: PathBuf,
    mount_point: PathBuf,
}

/// Runs a program to its end; its error output is the error.
fn run(program: &str, arguments: &[&str]) -> Result<String, Setup> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| Setup(format!("cannot run {program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(Setup(format!("{program} {}: {text}", arguments.join(" "))))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

impl BlockDevice {
    /// Attaches a new image of `bytes` bytes.
    pub fn attach(directory: &Path, name: &str, bytes: u64) -> Result<Self, Setup> {
        let failed = |error: std::io::Error| Setup(format!("{}: {error}", directory.display()));
        let (image, mount_point) = (directory.join(format!("{name}.img")), directory.join(name));
        std::fs::create_dir_all(&mount_point).map_err(failed)?;
        std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).map_err(failed)?;
        let device = run("losetup", &["--show", "-f", text(&image)])?.into();
        Ok(Self { device, mount_point })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Makes an empty file system; it must not be mounted.
    pub fn format(&self) -> Result<(), Setup> {
        let journal = ["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let arguments: Vec<_> = journal.into_iter().chain([text(&self.device)]).collect();
        run("mkfs.ext4", &arguments).map(drop)
    }

    /// Mounts it; after a cut this recovers the journal.
    pub fn mount(&self) -> Result<(), Setup> {
        mount(&self.device, &self.mount_point, "ext4", MountFlags::NOATIME, None)
            .map_err(|errno| Setup(format!("mount {}: {errno}", self.mount_point.display())))
    }

    /// Its switch; drop it before unmounting.
    pub fn switch(&self) -> Result<PowerSwitch, Setup> {
        PowerSwitch::of(&self.mount_point).map_err(|error| Setup(error.to_string()))
    }

    /// Unmounts it. Descriptors of a ring are closed a moment after their owner, so busy is tried
    /// again for some seconds.
    pub fn unmount(&self) -> Result<(), Setup> {
        unmount_patiently(&self.mount_point)
    }
}

fn unmount_patiently(path: &Path) -> Result<(), Setup> {
    let clock = SystemClock::new();
    for attempt in 0.. {
        match unmount(path, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if attempt < 5_000 => {
                clock.sleep(Duration::from_millis(1));
            }
            Err(errno) => return Err(Setup(format!("unmount {}: {errno}", path.display()))),
        }
    }
    Ok(())
}

fn is_mounted(path: &Path) -> bool {
    path.exists() && directory_is_mount_point(path).unwrap_or(true)
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        if is_mounted(&self.mount_point) && self.unmount().is_err() {
            // A process still holds the mount: it goes when the last descriptor does.
            let _ = unmount(&self.mount_point, UnmountFlags::DETACH);
        }
        if let Err(Setup(error)) = run("losetup", &["-d", text(&self.device)]) {
            eprintln!("torture: {error}");
        }
    }
}

/// Unmounts and detaches what a killed run left in its directory.
pub fn release(directory: &Path) -> Result<(), Setup> {
    for name in ["fast", "slow"] {
        let (image, mount_point) = (directory.join(format!("{name}.img")), directory.join(name));
        while is_mounted(&mount_point) {
            unmount_patiently(&mount_point)?;
        }
        if image.exists() {
            for line in run("losetup", &["-j", text(&image)])?.lines() {
                let device = line.split(':').next().unwrap_or_default();
                run("losetup", &["-d", device])?;
            }
        }
    }
    Ok(())
}

/// Why this machine cannot cut power; none if it can.
pub fn obstacle(directory: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("cutting power needs root".to_owned());
    }
    let tried = (|| {
        let probe = BlockDevice::attach(directory, "probe", 16 << 20)?;
        probe.format()?;
        probe.mount()?;
        let cut = probe.switch()?.cut();
        cut.map_err(|error| Setup(error.to_string()))
    })();
    for leftover in ["probe.img", "probe"] {
        let path = directory.join(leftover);
        // Only what was made here; a directory that is still mounted stays.
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
    }
    tried.err().map(|Setup(why)| format!("no ext4 on a loop device here: {why}"))
}
