//! The rig: two real block devices and a memory limit on one machine, for any program.
//!
//! ```text
//!   DISK/thermocline-rig-NAME/
//!     ram/fast.img   a file on a tmpfs of its own  -> /dev/loopA -> ext4 at fast/
//!                    (medium `disk`: on the disk; `through`: without a cache to flush)
//!     slow.img       a file on the disk, O_DIRECT  -> /dev/loopB -> ext4 at slow/
//!                                                     limited to a profile: gp3, qlc
//!   cgroup thermocline-rig-NAME-cell: memory of one run, page cache included
//!   /run/thermocline-rig-NAME.json: that all this exists
//!
//!   profile   limits by name          machine   what the machine offers; what is left of rigs
//!   plan      steps as values         system    the door that carries them out
//!   command   rig up | run | down | status
//!   launcher  cells of a benchmark inside it
//! ```
//! A program sees two ordinary directories, so rivals and we meet the same hardware unmodified.
//!
//! Invariants:
//! 1. Nothing stays behind. A process that brings a rig up for a run starts a guard first. The
//!    guard removes the rig when that process has ended, however it ended: its end closes a pipe.
//!    `rig down` finds what is left by label even without the state file.
//! 2. A rig that cannot be made whole is removed again, and the error says which step failed.
//! 3. Everything is checked before anything is made: root, loop devices, cgroups, space, memory.
//!
//! Threads: one; a rig belongs to the thread that made it.

pub mod command;
pub mod launcher;
pub mod machine;
pub mod plan;
pub mod profile;
pub mod system;

use crate::{Failure, Outcome};
use plan::{Design, Device, Devices, Groups, LABEL, Medium, Step};
use profile::Profile;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use system::{Kernel, System};
use thermocline_foundation::ByteSize;

/// What the guard is told when there is nothing left for it to do.
const DONE: &str = "done";
const STATE_VERSION: u32 = 1;

/// A rig that is up.
#[derive(Debug)]
pub struct Rig {
    design: Design,
    groups: Groups,
    devices: Devices,
    guard: Option<Guard>,
    /// Stays up when this goes out of scope.
    keep: bool,
    system: Rc<dyn System>,
}

/// What is written down about a rig.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    name: String,
    disk: PathBuf,
    fast_bytes: u64,
    slow_bytes: u64,
    profile: String,
    #[serde(default)]
    medium: Medium,
    /// Name and number by slot; empty until they exist.
    devices: Vec<(String, String, String)>,
}

fn state_path(name: &str) -> PathBuf {
    Path::new(machine::STATE_FOLDER).join(format!("{LABEL}-{name}.json"))
}

impl State {
    fn of(design: &Design, devices: &Devices) -> Self {
        let device = |(slot, device): (&String, &Device)| {
            (slot.clone(), device.name.clone(), device.number.clone())
        };
        Self {
            version: STATE_VERSION,
            name: design.name.clone(),
            disk: design.disk.clone(),
            fast_bytes: design.fast.0,
            slow_bytes: design.slow.0,
            profile: design.profile.name.to_owned(),
            medium: design.medium,
            devices: devices.iter().map(device).collect(),
        }
    }

    fn read(system: &dyn System, name: &str) -> Option<Self> {
        let state: Self = serde_json::from_str(&system.read(&state_path(name))?).ok()?;
        (state.version == STATE_VERSION).then_some(state)
    }

    fn design(&self) -> Outcome<Design> {
        Ok(Design {
            name: self.name.clone(),
            disk: self.disk.clone(),
            fast: ByteSize(self.fast_bytes),
            slow: ByteSize(self.slow_bytes),
            profile: Profile::find(&self.profile)?,
            medium: self.medium,
        })
    }
}

impl Rig {
    /// Makes a rig that stays until it is taken down.
    pub fn up(design: Design) -> Outcome<Self> {
        let mut rig = Self::make(design, Rc::new(Kernel), None)?;
        rig.keep = true;
        Ok(rig)
    }

    /// Makes a rig for this process: it is removed when the value or the process goes.
    pub fn for_this_run(design: Design) -> Outcome<Self> {
        let guard = Guard::start(&design.name)?;
        Self::make(design, Rc::new(Kernel), Some(guard))
    }

    /// The rig called `name`, if one is up.
    pub fn find(name: &str) -> Outcome<Option<Self>> {
        let Some(state) = State::read(&Kernel, name) else { return Ok(None) };
        let device = |(slot, name, number): &(String, String, String)| {
            (slot.clone(), Device { name: name.clone(), number: number.clone() })
        };
        let devices: Devices = state.devices.iter().map(device).collect();
        let (design, groups) = (state.design()?, machine::groups(&Kernel)?);
        let rig =
            Self { design, groups, devices, guard: None, keep: true, system: Rc::new(Kernel) };
        let whole = ["fast", "slow"].iter().all(|slot| rig.devices.contains_key(*slot));
        if !whole || !rig.is_mounted() {
            let text =
                format!("rig '{name}' is not whole; say rig down --name {name}, then rig up");
            return Err(text.into());
        }
        Ok(Some(rig))
    }

    fn is_mounted(&self) -> bool {
        let left = machine::leftovers(&*self.system, Some(&self.design.name), Vec::new());
        ["fast", "slow"].iter().all(|slot| left.mounts.contains(&self.design.mount(slot)))
    }

    fn make(design: Design, system: Rc<dyn System>, guard: Option<Guard>) -> Outcome<Self> {
        machine::check(&*system, &design)?;
        let groups = machine::groups(&*system)?;
        let name = design.name.clone();
        let folder = vec![design.folder()];
        if system.read(&state_path(&name)).is_some()
            || !machine::leftovers(&*system, Some(&name), folder).is_empty()
        {
            // The guard must not remove the rig of another run.
            if let Some(guard) = guard {
                guard.dismiss();
            }
            return Err(
                format!("rig '{name}' is up or was left; say rig down --name {name}").into()
            );
        }
        let mut rig = Self { design, groups, devices: Devices::new(), guard, keep: false, system };
        rig.write_state()?;
        let steps = rig.design.steps(&rig.groups);
        // An error removes what was made: `keep` is still false.
        system::carry_out(&*rig.system, &steps, &mut rig.devices)
            .map_err(|failure| -> Failure { format!("cannot make the rig: {failure}").into() })?;
        rig.write_state()?;
        Ok(rig)
    }

    fn write_state(&self) -> Outcome<()> {
        let text = serde_json::to_string_pretty(&State::of(&self.design, &self.devices))?;
        self.system.write(&state_path(&self.design.name), &text)
    }

    /// What it was made as.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The directory on the fast device.
    pub fn fast(&self) -> PathBuf {
        self.design.mount("fast")
    }

    /// The directory on the slow device.
    pub fn slow(&self) -> PathBuf {
        self.design.mount("slow")
    }

    /// The devices' names below `/sys/block`, fast and slow.
    pub fn device_names(&self) -> [String; 2] {
        ["fast", "slow"]
            .map(|slot| self.devices.get(slot).map_or_else(String::new, |d| d.name.clone()))
    }

    /// Switches the slow device's limits off, to copy a loaded state, or on again. Where cgroups
    /// are of version 2 only cells are limited, and there is nothing to switch.
    pub fn throttle(&mut self, on: bool) -> Outcome<()> {
        let steps = self.design.throttle(&self.groups, on);
        system::carry_out(&*self.system, &steps, &mut self.devices)
    }

    /// Writes out what the page cache holds for the two devices, and empties it.
    pub fn drop_caches(&self) -> Outcome<()> {
        for mount in [self.fast(), self.slow()] {
            let words = ["sync", "-f", &mount.display().to_string()].map(str::to_owned);
            self.system.run(&words)?;
        }
        self.system.write(Path::new("/proc/sys/vm/drop_caches"), "1")
    }

    /// A limit of `memory` for one run, page cache included.
    pub fn cell(&mut self, memory: ByteSize) -> Outcome<Cell> {
        let (group, steps) = self.design.group(&self.groups, memory);
        if let Some(processes) = self.system.read(&group.join("cgroup.procs")) {
            let processes: Vec<_> = processes.split_whitespace().collect();
            if !processes.is_empty() {
                let (name, processes) = (&self.design.name, processes.join(" "));
                return Err(format!(
                    "rig '{name}' is in use by processes {processes}; wait for them, or say rig \
                     down --name {name}"
                )
                .into());
            }
            // Left by a run that was killed.
            let left = [Step::RemoveGroup(group.clone())];
            system::carry_out(&*self.system, &left, &mut self.devices)?;
        }
        let mut devices = self.devices.clone();
        system::carry_out(&*self.system, &steps, &mut devices)?;
        Ok(Cell { group, system: Rc::clone(&self.system) })
    }

    /// Removes it, and says what could not be removed.
    pub fn down(mut self) -> Outcome<()> {
        self.keep = true;
        self.remove()
    }

    fn remove(&mut self) -> Outcome<()> {
        let outcome = remove(&*self.system, Some(&self.design.name)).map(drop);
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        outcome
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !self.keep {
            // A destructor cannot return the error; `rig down` reports it again.
            let _ = self.remove();
        }
    }
}

/// Removes rig `name` (none: all rigs) and returns how many things there were; an error names what
/// could not be removed.
pub fn remove(system: &dyn System, name: Option<&str>) -> Outcome<usize> {
    let states = system.list(Path::new(machine::STATE_FOLDER)).into_iter().filter(|path| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let rig = file.strip_prefix(LABEL).and_then(|rest| rest.strip_prefix('-'));
        let rig = rig.and_then(|rest| rest.strip_suffix(".json"));
        rig.is_some_and(|rig| name.is_none_or(|name| name == rig))
    });
    let states: Vec<PathBuf> = states.collect();
    let folders = states.iter().filter_map(|path| {
        let state: State = serde_json::from_str(&system.read(path)?).ok()?;
        Some(state.design().ok()?.folder())
    });
    let left = machine::leftovers(system, name, folders.collect());
    let count = left.mounts.len() + left.loops.len() + left.groups.len() + left.folders.len();
    let groups = machine::groups(system).ok();
    let (removals, steps): (Vec<Step>, Vec<Step>) =
        left.steps(groups.as_ref()).into_iter().partition(|step| matches!(step, Step::Remove(_)));
    let mut failures = system::carry_out_all(system, &steps);
    // Files of a rig that is still mounted are in use: they stay until a second attempt.
    let mounted = machine::leftovers(system, name, Vec::new());
    if mounted.mounts.is_empty() && mounted.loops.is_empty() {
        failures.extend(system::carry_out_all(system, &removals));
        failures.extend(
            states
                .iter()
                .filter_map(|path| system.remove(path).err().map(|failure| failure.to_string())),
        );
    }
    if failures.is_empty() {
        return Ok(count);
    }
    Err(format!("{}; end what uses it and say rig down again", failures.join("; ")).into())
}

/// A memory limit for the processes of one run.
#[derive(Debug)]
pub struct Cell {
    group: PathBuf,
    system: Rc<dyn System>,
}

/// What a cell used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellUsage {
    /// Most memory at once, page cache included, in bytes.
    pub peak_bytes: Option<u64>,
    /// Processes that the kernel ended because the limit was reached.
    pub killed: u64,
}

impl Cell {
    /// A command that runs `program` inside the cell, without a process between.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        command.args(["-c", script]).arg(self.group.join("cgroup.procs")).arg(program);
        command
    }

    /// What the processes of the cell have used so far.
    pub fn usage(&self) -> CellUsage {
        let names = ["memory.max_usage_in_bytes", "memory.peak"];
        let text = names.iter().find_map(|name| self.system.read(&self.group.join(name)));
        let names = ["memory.oom_control", "memory.events"];
        let events = names.iter().find_map(|name| self.system.read(&self.group.join(name)));
        let events = events.unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        CellUsage {
            peak_bytes: text.and_then(|text| text.trim().parse().ok()),
            killed: killed.unwrap_or(0),
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let steps = [Step::Kill(self.group.clone()), Step::RemoveGroup(self.group.clone())];
        // What is left is found by the next cell and by `rig down`.
        let _ = system::carry_out_all(&*self.system, &steps);
    }
}

/// A process that removes the rig when this one is gone.
#[derive(Debug)]
struct Guard {
    process: Child,
}

impl Guard {
    fn start(name: &str) -> Outcome<Self> {
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot tell where this program is: {error}"))?;
        let process = Command::new(program)
            .args(["rig", "guard", "--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own: what interrupts this process does not interrupt the guard.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start the rig's guard: {error}"))?;
        Ok(Self { process })
    }

    /// Tells it that nothing is left to do, and waits for its end.
    fn dismiss(mut self) {
        if let Some(mut pipe) = self.process.stdin.take() {
            // A guard that has ended already needs no message.
            let _ = pipe.write_all(DONE.as_bytes());
        }
        let _ = self.process.wait();
    }
}

/// What the guard process does: waits for the end of its input, and removes the rig unless it was
/// told that there is none.
pub fn guard(system: &dyn System, name: &str, input: impl Read) -> Outcome<usize> {
    let mut text = String::new();
    // An input that breaks ends the wait like one that ends.
    let _ = input.take(64).read_to_string(&mut text);
    if text == DONE { Ok(0) } else { remove(system, Some(name)) }
}

#[cfg(test)]
mod tests;
