//! The steps that make a rig and those that remove one, as values: what a test compares, what
//! `--dry-run` prints, and what `Kernel` carries out.
//!
//! Names of loop devices are known only once the kernel has given them, so steps say `{fast}` and
//! `{slow}` for the device (`/dev/loop3`), `{fast.name}` for its name (`loop3`) and
//! `{slow.number}` for its number (`7:3`).
//!
//! Invariants:
//! 1. The fast image is allocated whole before anything is inside a memory limit: its pages count
//!    against no limit, and no write to the device can fail for want of memory. Nothing is
//!    discarded on it later, which would give pages back.
//! 2. `queue/rotational` is 0 before the first rule: the throttle's slice is then about 4 ms, and
//!    100 ms otherwise.
//! 3. Whether a device's writes have to be flushed is set and never left as it was found: a loop
//!    device that was `write through` for one image is so for the next.
//! 4. Removal goes from the outside in: processes, mounts, rules, loop devices, cgroups, files.

use super::profile::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use thermocline_foundation::ByteSize;

/// The first part of the name of everything a rig makes.
pub const LABEL: &str = "thermocline-rig";

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory and those above it.
    Directory(PathBuf),
    /// Runs a program; it must succeed.
    Run(Vec<String>),
    /// Makes a loop device of an image and remembers it as `slot`.
    Attach {
        /// `fast` or `slow`.
        slot: &'static str,
        /// What the device reads and writes.
        image: PathBuf,
        /// Past the page cache.
        direct: bool,
    },
    /// Writes text to a file of the kernel.
    Write {
        /// The file.
        path: String,
        /// Its new content.
        text: String,
    },
    /// Ends the processes of a cgroup and waits until they are gone.
    Kill(PathBuf),
    /// Removes a cgroup.
    RemoveGroup(PathBuf),
    /// Removes a directory and what is in it.
    Remove(PathBuf),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "mkdir -p {}", path.display()),
            Self::Run(words) => f.write_str(&words.join(" ")),
            Self::Attach { slot, image, direct } => {
                let direct = if *direct { "--direct-io=on " } else { "" };
                write!(f, "{slot}=$(losetup -f --show {direct}{})", image.display())
            }
            Self::Write { path, text } => write!(f, "echo '{text}' > {path}"),
            Self::Kill(group) => write!(f, "kill -9 $(cat {}/cgroup.procs)", group.display()),
            Self::RemoveGroup(group) => write!(f, "rmdir {}", group.display()),
            Self::Remove(path) => write!(f, "rm -r {}", path.display()),
        }
    }
}

/// Where the kernel's limits are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// One hierarchy for each controller.
    V1 {
        /// The cgroup of memory that this process is in; a new one goes below it.
        memory: PathBuf,
        /// The root of the controller of block devices. Its rules hold for every process outside
        /// other groups and for what the kernel writes back, so they limit the device as a whole.
        blkio: PathBuf,
    },
    /// One hierarchy; write-back belongs to the group that wrote.
    V2 {
        /// Its root.
        root: PathBuf,
    },
}

/// What a rig is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// Distinguishes rigs that are up at once.
    pub name: String,
    /// The directory on a disk below which everything lies.
    pub disk: PathBuf,
    /// Capacity of the fast device.
    pub fast: ByteSize,
    /// Capacity of the slow device.
    pub slow: ByteSize,
    /// Limits of the slow device.
    pub profile: Profile,
    /// What the fast device is made of.
    pub medium: Medium,
}

/// What carries the fast device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Memory: a flush goes through the loop device's thread, and costs a little.
    #[default]
    Ram,
    /// Memory, with the device's queue set to `write through`: there is nothing to flush.
    Through,
    /// A file on the disk, past the page cache: flushes are the disk's own.
    Disk,
}

impl Medium {
    /// What it is, for a page.
    pub fn about(self) -> &'static str {
        match self {
            Self::Ram => "loop device on tmpfs, ext4",
            Self::Through => "loop device on tmpfs, its queue set to write through, ext4",
            Self::Disk => "loop device on a disk image, real flushes, ext4",
        }
    }
}

impl Design {
    /// `thermocline-rig-NAME`.
    pub fn label(&self) -> String {
        format!("{LABEL}-{}", self.name)
    }

    /// The folder that holds images and mount points.
    pub fn folder(&self) -> PathBuf {
        self.disk.join(self.label())
    }

    /// Where the device of `slot` is mounted.
    pub fn mount(&self, slot: &str) -> PathBuf {
        self.folder().join(slot)
    }

    /// All steps that make the rig.
    pub fn steps(&self, groups: &Groups) -> Vec<Step> {
        let folder = self.folder();
        let ram = folder.join("ram");
        let images = [ram.join("fast.img"), folder.join("slow.img")];
        let size = format!("size={}", self.fast.0 + (8 << 20));
        let mut steps: Vec<Step> = [&ram, &self.mount("fast"), &self.mount("slow")]
            .map(|p| Step::Directory(p.clone()))
            .into();
        let on_disk = self.medium == Medium::Disk;
        if !on_disk {
            steps.push(run(["mount", "-t", "tmpfs", "-o", &size, &self.label(), &text(&ram)]));
        }
        for (image, bytes) in images.iter().zip([self.fast, self.slow]) {
            steps.push(run(["fallocate", "-l", &bytes.0.to_string(), &text(image)]));
        }
        let [fast, slow] = images;
        steps.push(Step::Attach { slot: "fast", image: fast, direct: on_disk });
        steps.push(Step::Attach { slot: "slow", image: slow, direct: true });
        for slot in ["fast", "slow"] {
            let rotational = format!("/sys/block/{{{slot}.name}}/queue/rotational");
            steps.push(Step::Write { path: rotational, text: "0".to_owned() });
            // A loop device keeps this of its image before.
            let through = slot == "fast" && self.medium == Medium::Through;
            let cache = if through { "write through" } else { "write back" };
            let path = format!("/sys/block/{{{slot}.name}}/queue/write_cache");
            steps.push(Step::Write { path, text: cache.to_owned() });
            let device = format!("{{{slot}}}");
            let lazy = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            steps.push(run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", lazy, &device]));
            let mount = text(&self.mount(slot));
            steps.push(run(["mount", "-o", "noatime,nodiscard", &device, &mount]));
        }
        steps.extend(self.throttle(groups, true));
        steps
    }

    /// The steps that switch the slow device's limits on or off for all processes. Version 2 limits
    /// the group of a cell and has nothing to switch.
    pub fn throttle(&self, groups: &Groups, on: bool) -> Vec<Step> {
        let Groups::V1 { blkio, .. } = groups else { return Vec::new() };
        let rule = |(name, limit): (&str, u64)| Step::Write {
            path: text(&blkio.join(format!("blkio.throttle.{name}_device"))),
            text: format!("{{slow.number}} {}", if on { limit } else { 0 }),
        };
        self.profile.rules().into_iter().map(rule).collect()
    }

    /// The cgroup of a cell, and the steps that make it with a limit of `memory`.
    pub fn group(&self, groups: &Groups, memory: ByteSize) -> (PathBuf, Vec<Step>) {
        let name = format!("{}-cell", self.label());
        let (group, limits) = match groups {
            Groups::V1 { memory: parent, .. } => {
                (parent.join(name), vec![("memory.limit_in_bytes", memory.0.to_string())])
            }
            Groups::V2 { root } => (
                root.join(name),
                vec![
                    ("memory.max", memory.0.to_string()),
                    ("memory.swap.max", "0".to_owned()),
                    ("io.max", self.profile.io_max("{slow.number}")),
                ],
            ),
        };
        let mut steps = Vec::new();
        if let Groups::V2 { root } = groups {
            let path = text(&root.join("cgroup.subtree_control"));
            steps.push(Step::Write { path, text: "+memory +io".to_owned() });
        }
        steps.push(Step::Directory(group.clone()));
        steps.extend(
            limits.into_iter().map(|(file, text)| Step::Write { path: join(&group, file), text }),
        );
        (group, steps)
    }
}

/// What of rigs is there, by the label in its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Mount points in the order they were made.
    pub mounts: Vec<PathBuf>,
    /// Loop devices: name, number, image.
    pub loops: Vec<(String, String, PathBuf)>,
    /// Cgroups of cells.
    pub groups: Vec<PathBuf>,
    /// Folders with images and mount points.
    pub folders: Vec<PathBuf>,
}

impl Leftovers {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The steps that remove all of it.
    pub fn steps(&self, groups: Option<&Groups>) -> Vec<Step> {
        let mut steps: Vec<Step> = self.groups.iter().cloned().map(Step::Kill).collect();
        // tmpfs holds the image of a loop device: first the file systems, then the devices, then
        // it.
        let (ram, devices): (Vec<_>, Vec<_>) =
            self.mounts.iter().rev().partition(|mount| mount.ends_with("ram"));
        steps.extend(devices.into_iter().map(|mount| run(["umount", &text(mount)])));
        for (name, number, _) in &self.loops {
            if let Some(Groups::V1 { blkio, .. }) = groups {
                for rule in ["read_bps", "write_bps", "read_iops", "write_iops"] {
                    let path = text(&blkio.join(format!("blkio.throttle.{rule}_device")));
                    steps.push(Step::Write { path, text: format!("{number} 0") });
                }
            }
            steps.push(run(["losetup", "-d", &format!("/dev/{name}")]));
        }
        steps.extend(ram.into_iter().map(|mount| run(["umount", &text(mount)])));
        steps.extend(self.groups.iter().cloned().map(Step::RemoveGroup));
        steps.extend(self.folders.iter().cloned().map(Step::Remove));
        steps
    }
}

/// A loop device that was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `loop3`.
    pub name: String,
    /// `7:3`.
    pub number: String,
}

/// The devices by slot.
pub type Devices = BTreeMap<String, Device>;

/// `text` with the names of devices in place; one that is not known stays as it is.
pub fn filled(text: &str, devices: &Devices) -> String {
    devices.iter().fold(text.to_owned(), |text, (slot, device)| {
        text.replace(&format!("{{{slot}}}"), &format!("/dev/{}", device.name))
            .replace(&format!("{{{slot}.name}}"), &device.name)
            .replace(&format!("{{{slot}.number}}"), &device.number)
    })
}

fn run<const N: usize>(words: [&str; N]) -> Step {
    Step::Run(words.iter().map(|word| (*word).to_owned()).collect())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn join(folder: &Path, file: &str) -> String {
    text(&folder.join(file))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn design() -> Design {
        Design {
            name: "a".to_owned(),
            disk: PathBuf::from("/disk"),
            fast: ByteSize(64 << 20),
            slow: ByteSize(128 << 20),
            profile: Profile::find("gp3").unwrap(),
            medium: Medium::Ram,
        }
    }

    pub fn v1() -> Groups {
        Groups::V1 { memory: "/cg/memory/own".into(), blkio: "/cg/blkio".into() }
    }

    fn lines(steps: &[Step]) -> Vec<String> {
        steps.iter().map(Step::to_string).collect()
    }

    #[test]
    fn a_rig_is_made_in_this_order() {
        let lazy = "-E nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let folder = "/disk/thermocline-rig-a";
        let device = |slot: &str| {
            [
                format!("echo '0' > /sys/block/{{{slot}.name}}/queue/rotational"),
                format!("echo 'write back' > /sys/block/{{{slot}.name}}/queue/write_cache"),
                format!("mkfs.ext4 -q -F -m 0 {lazy} {{{slot}}}"),
                format!("mount -o noatime,nodiscard {{{slot}}} {folder}/{slot}"),
            ]
        };
        let mut expected = vec![
            format!("mkdir -p {folder}/ram"),
            format!("mkdir -p {folder}/fast"),
            format!("mkdir -p {folder}/slow"),
            format!("mount -t tmpfs -o size=75497472 thermocline-rig-a {folder}/ram"),
            format!("fallocate -l 67108864 {folder}/ram/fast.img"),
            format!("fallocate -l 134217728 {folder}/slow.img"),
            format!("fast=$(losetup -f --show {folder}/ram/fast.img)"),
            format!("slow=$(losetup -f --show --direct-io=on {folder}/slow.img)"),
        ];
        expected.extend(device("fast"));
        expected.extend(device("slow"));
        for (rule, limit) in
            [("read_bps", 300_000_000), ("write_bps", 300_000_000), ("read_iops", 10_000)]
        {
            let path = format!("/cg/blkio/blkio.throttle.{rule}_device");
            expected.push(format!("echo '{{slow.number}} {limit}' > {path}"));
        }
        let path = "/cg/blkio/blkio.throttle.write_iops_device";
        expected.push(format!("echo '{{slow.number}} 10000' > {path}"));
        assert_eq!(lines(&design().steps(&v1())), expected);
    }

    #[test]
    fn the_fast_device_lies_on_what_it_is_asked_to() {
        let steps = |medium| lines(&Design { medium, ..design() }.steps(&v1()));
        let differing = |medium| {
            let usual = steps(Medium::Ram);
            steps(medium).into_iter().filter(|step| !usual.contains(step)).collect::<Vec<_>>()
        };
        let set = "echo 'write through' > /sys/block/{fast.name}/queue/write_cache";
        assert_eq!(differing(Medium::Through), [set]);
        let attached =
            "fast=$(losetup -f --show --direct-io=on /disk/thermocline-rig-a/ram/fast.img)";
        assert_eq!(differing(Medium::Disk), [attached]);
        assert!(!steps(Medium::Disk).iter().any(|step| step.contains("tmpfs")));
    }

    #[test]
    fn a_cell_is_limited_in_both_versions() {
        let (group, steps) = design().group(&v1(), ByteSize(1 << 20));
        assert_eq!(group, Path::new("/cg/memory/own/thermocline-rig-a-cell"));
        assert_eq!(
            lines(&steps),
            [
                format!("mkdir -p {}", group.display()),
                format!("echo '1048576' > {}/memory.limit_in_bytes", group.display()),
            ]
        );
        let v2 = Groups::V2 { root: "/cg".into() };
        let (group, steps) = design().group(&v2, ByteSize(1 << 20));
        let steps = lines(&steps);
        assert_eq!(group, Path::new("/cg/thermocline-rig-a-cell"));
        assert_eq!(steps[0], "echo '+memory +io' > /cg/cgroup.subtree_control");
        let limits = "{slow.number} rbps=300000000 wbps=300000000 riops=10000 wiops=10000";
        assert_eq!(steps[4], format!("echo '{limits}' > {}/io.max", group.display()));
        assert!(design().throttle(&v2, true).is_empty());
    }

    #[test]
    fn leftovers_are_removed_from_the_outside_in() {
        let folder = PathBuf::from("/disk/thermocline-rig-a");
        let left = Leftovers {
            mounts: ["ram", "fast", "slow"].map(|name| folder.join(name)).into(),
            loops: vec![("loop3".to_owned(), "7:3".to_owned(), folder.join("slow.img"))],
            groups: vec!["/cg/memory/own/thermocline-rig-a-cell".into()],
            folders: vec![folder],
        };
        let expected = [
            "kill -9 $(cat /cg/memory/own/thermocline-rig-a-cell/cgroup.procs)",
            "umount /disk/thermocline-rig-a/slow",
            "umount /disk/thermocline-rig-a/fast",
            "echo '7:3 0' > /cg/blkio/blkio.throttle.read_bps_device",
            "echo '7:3 0' > /cg/blkio/blkio.throttle.write_bps_device",
            "echo '7:3 0' > /cg/blkio/blkio.throttle.read_iops_device",
            "echo '7:3 0' > /cg/blkio/blkio.throttle.write_iops_device",
            "losetup -d /dev/loop3",
            "umount /disk/thermocline-rig-a/ram",
            "rmdir /cg/memory/own/thermocline-rig-a-cell",
            "rm -r /disk/thermocline-rig-a",
        ];
        assert_eq!(lines(&left.steps(Some(&v1()))), expected);
        assert!(Leftovers::default().steps(None).is_empty());
    }

    #[test]
    fn names_of_devices_are_put_in_place() {
        let device = Device { name: "loop3".to_owned(), number: "7:3".to_owned() };
        let devices = Devices::from([("slow".to_owned(), device)]);
        let text = "{slow} {slow.name} {slow.number} {fast}";
        assert_eq!(filled(text, &devices), "/dev/loop3 loop3 7:3 {fast}");
    }
}
