//! What the machine offers a rig, and what of rigs is on it.

use super::plan::{Design, Groups, LABEL, Leftovers, Medium};
use super::system::System;
use crate::Outcome;
use std::path::{Path, PathBuf};
use thermocline_foundation::ByteSize;

/// Where a rig writes down that it exists; emptied by a restart, as everything a rig makes in the
/// kernel is.
pub const STATE_FOLDER: &str = "/run";
/// Free memory that a rig leaves to all other processes.
const MEMORY_LEFT: u64 = 256 << 20;
/// Free disk that a rig leaves.
const DISK_LEFT: u64 = 256 << 20;
/// Cgroups are looked for this deep.
const DEPTH_MAX: u32 = 8;

/// An entry of the kernel's list of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
    options: Vec<String>,
}

fn mounts(text: &str) -> Vec<Mount> {
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount {
            point: unescaped(point).into(),
            kind: kind.to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        })
    });
    lines.collect()
}

/// A path of the list of mounts, where a space is `\040`.
fn unescaped(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

fn mounted(system: &dyn System) -> Vec<Mount> {
    mounts(&system.read(Path::new("/proc/self/mounts")).unwrap_or_default())
}

/// Where cgroups can limit memory and block devices.
pub fn groups(system: &dyn System) -> Outcome<Groups> {
    let all = mounted(system);
    if let Some(unified) = all.iter().find(|mount| mount.kind == "cgroup2") {
        let file = unified.point.join("cgroup.controllers");
        let controllers = system.read(&file).unwrap_or_default();
        let has = |name: &str| controllers.split_whitespace().any(|word| word == name);
        if has("memory") && has("io") {
            return Ok(Groups::V2 { root: unified.point.clone() });
        }
    }
    let find = |controller: &str| {
        let has = |mount: &&Mount| {
            mount.kind == "cgroup" && mount.options.iter().any(|option| option == controller)
        };
        all.iter().find(has).map(|mount| mount.point.clone())
    };
    let (Some(memory), Some(blkio)) = (find("memory"), find("blkio")) else {
        return Err("this kernel has no cgroups that limit memory and block devices; \
                    use the emulated driver instead (--slow-driver emulated-tlc-nvme)"
            .into());
    };
    let own = system.read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let own = own_group(&own, "memory").unwrap_or_default();
    Ok(Groups::V1 { memory: memory.join(own), blkio })
}

/// The cgroup of version 1 that this process is in, as a path from the hierarchy's root.
fn own_group(text: &str, controller: &str) -> Option<PathBuf> {
    let find = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?.trim_start_matches('/').to_owned();
        // A rig inside a rig's cell is not made below it: the cell goes away first.
        let path = path.split('/').take_while(|part| !part.starts_with(LABEL));
        controllers.split(',').any(|name| name == controller).then(|| path.collect())
    };
    text.lines().find_map(find)
}

/// Refuses a design that this machine cannot carry, before anything is made.
pub fn check(system: &dyn System, design: &Design) -> Outcome<()> {
    let status = system.read(Path::new("/proc/self/status")).unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if user.and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return Err(
            "the rig mounts file systems and limits devices, which needs root: run it with \
                    sudo, or use the emulated driver (+slow-driver=emulated-tlc-nvme)"
                .into(),
        );
    }
    if system.list(Path::new("/sys/block")).iter().all(|path| !is_loop(path)) {
        return Err("this machine has no loop devices (modprobe loop); use the emulated driver \
                    instead (+slow-driver=emulated-tlc-nvme)"
            .into());
    }
    let valid = !design.name.is_empty()
        && design.name.len() <= 16
        && design.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !valid {
        let text = format!("'{}' cannot name a rig: 1 to 16 of a-z and 0-9", design.name);
        return Err(text.into());
    }
    for (slot, size) in [("fast", design.fast), ("slow", design.slow)] {
        if size.0 < 32 << 20 {
            return Err(format!("the {slot} device of {size} is too small; 32 MiB at least").into());
        }
    }
    let memory = available_memory(system);
    let on_disk = design.medium == Medium::Disk;
    if !on_disk && memory.0 < design.fast.0.saturating_add(MEMORY_LEFT) {
        return Err(format!(
            "the fast device of {} lies in memory, of which {memory} are free; ask for a smaller \
             one, or end what uses it",
            design.fast
        )
        .into());
    }
    let free = free_disk(system, &design.disk)?;
    let fast = if on_disk { design.fast.0 } else { 0 };
    let needed = ByteSize(design.slow.0.saturating_add(fast));
    if free.0 < needed.0.saturating_add(DISK_LEFT) {
        return Err(format!(
            "devices of {needed} do not fit on {}, where {free} are free; name another directory \
             with --disk",
            design.disk.display()
        )
        .into());
    }
    Ok(())
}

/// Memory that programs can still have.
pub fn available_memory(system: &dyn System) -> ByteSize {
    let text = system.read(Path::new("/proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    ByteSize(kib.unwrap_or(0) << 10)
}

fn free_disk(system: &dyn System, disk: &Path) -> Outcome<ByteSize> {
    let words = ["df", "--output=avail", "-B1", &disk.display().to_string()].map(str::to_owned);
    let text = system.run(&words)?;
    let bytes = text.lines().last().and_then(|line| line.trim().parse().ok());
    bytes.map(ByteSize).ok_or_else(|| format!("df says '{text}', which is no number").into())
}

fn is_loop(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("loop").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether a part of a path is what rig `name` (none: any rig) calls its things.
fn is_ours(part: &str, name: Option<&str>) -> bool {
    let Some(rest) = part.strip_prefix(LABEL).and_then(|rest| rest.strip_prefix('-')) else {
        return false;
    };
    let rest = rest.strip_suffix("-cell").unwrap_or(rest);
    name.is_none_or(|name| name == rest)
}

/// The part of `path` down to the folder of a rig.
fn folder_of(path: &Path, name: Option<&str>) -> Option<PathBuf> {
    path.ancestors()
        .find(|part| {
            part.file_name().and_then(|last| last.to_str()).is_some_and(|last| is_ours(last, name))
        })
        .map(Path::to_path_buf)
}

/// Everything that rig `name` (none: any rig) has left on the machine. `folders` are those it has
/// written down; more are found by what is mounted or attached below them.
pub fn leftovers(system: &dyn System, name: Option<&str>, written_down: Vec<PathBuf>) -> Leftovers {
    let mut left = Leftovers { folders: written_down, ..Leftovers::default() };
    let all = mounted(system);
    let ours = |path: &Path| folder_of(path, name);
    left.mounts =
        all.iter().map(|mount| mount.point.clone()).filter(|point| ours(point).is_some()).collect();
    for path in system.list(Path::new("/sys/block")).into_iter().filter(|path| is_loop(path)) {
        let read = |file: &str| system.read(&path.join(file)).map(|text| text.trim().to_owned());
        let Some(image) = read("loop/backing_file") else { continue };
        let image = PathBuf::from(image.trim_end_matches(" (deleted)"));
        let device = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if let (Some(_), Some(device), Some(number)) = (ours(&image), device, read("dev")) {
            left.loops.push((device, number, image));
        }
    }
    let images = left.loops.iter().map(|(_, _, image)| image);
    let found: Vec<_> = left.mounts.iter().chain(images).filter_map(|path| ours(path)).collect();
    left.folders.extend(found);
    left.folders.retain(|folder| !system.list(folder).is_empty());
    left.folders.sort();
    left.folders.dedup();
    for mount in all.iter().filter(|mount| {
        mount.kind == "cgroup2"
            || mount.kind == "cgroup" && mount.options.iter().any(|option| option == "memory")
    }) {
        groups_below(system, &mount.point, name, DEPTH_MAX, &mut left.groups);
    }
    left
}

fn groups_below(
    system: &dyn System,
    folder: &Path,
    name: Option<&str>,
    depth: u32,
    found: &mut Vec<PathBuf>,
) {
    for path in system.list(folder) {
        let last = path.file_name().and_then(|last| last.to_str()).unwrap_or_default();
        // Files of the kernel have a dot in their names, groups have their list of processes.
        if is_ours(last, name) {
            found.push(path);
        } else if depth > 0 && system.read(&path.join("cgroup.procs")).is_some() {
            groups_below(system, &path, name, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_spaces() {
        let text = "tmpfs /a\\040b/x tmpfs rw,size=1k 0 0\ncgroup /c cgroup rw,memory 0 0\nshort\n";
        let all = mounts(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].point, Path::new("/a b/x"));
        assert_eq!(all[1].options, ["rw", "memory"]);
    }

    #[test]
    fn the_own_group_is_found_and_a_cell_is_left() {
        let text = "9:name=systemd:/\n4:cpu,memory:/box/thermocline-rig-a-cell\n0::/\n";
        assert_eq!(own_group(text, "memory"), Some("box".into()));
        assert_eq!(own_group("4:memory:/box/one\n", "memory"), Some("box/one".into()));
        assert_eq!(own_group("0::/\n", "memory"), None);
    }

    #[test]
    fn only_what_carries_the_label_is_ours() {
        for (part, name, ours) in [
            ("thermocline-rig-a", None, true),
            ("thermocline-rig-a", Some("a"), true),
            ("thermocline-rig-a-cell", Some("a"), true),
            ("thermocline-rig-ab", Some("a"), false),
            ("thermocline-rig", None, false),
            ("rig-a", None, false),
        ] {
            assert_eq!(is_ours(part, name), ours, "{part} {name:?}");
        }
        let path = Path::new("/d/thermocline-rig-a/ram/fast.img");
        assert_eq!(folder_of(path, None), Some("/d/thermocline-rig-a".into()));
        assert_eq!(folder_of(path, Some("b")), None);
    }
}
