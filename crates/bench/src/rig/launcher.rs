//! Cells of a benchmark inside the rig: each process in a memory limit of its own, the slow device
//! limited while something is measured and only then.
//!
//! Invariants:
//! 1. A measured process begins with an empty page cache and limits in force.
//! 2. Loading and copying run without the slow device's limits: they are not measured, and what
//!    they leave on the device is the same.

use super::{Cell as Limit, Rig};
use crate::cell::{Cell, Purpose};
use crate::plan::Launcher;
use crate::store::REGION;
use crate::{Outcome, files};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use thermocline_foundation::ByteSize;

/// The limit of a process that loads, over that of one that is measured.
const LOADING: u64 = 4;

/// Puts cells into a rig.
#[derive(Debug)]
pub struct InRig {
    rig: RefCell<Rig>,
    nice: i8,
    limit: RefCell<Option<Limit>>,
    used: RefCell<BTreeMap<String, Used>>,
}

/// The most that cells of one engine used, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    memory: u64,
    fast: u64,
}

impl InRig {
    /// Of `rig`, which goes when this goes, with this priority for its processes.
    pub fn new(rig: Rig, nice: i8) -> Self {
        let (limit, used) = (RefCell::default(), RefCell::default());
        Self { rig: RefCell::new(rig), nice, limit, used }
    }

    /// What engines used at most, for the report.
    pub fn findings(&self) -> BTreeMap<String, String> {
        let line = |(engine, used): (&String, &Used)| {
            let (memory, fast) = (ByteSize(used.memory), ByteSize(used.fast));
            (format!("most used by {engine}"), format!("{memory} of memory, {fast} of fast tier"))
        };
        self.used.borrow().iter().map(line).collect()
    }

    /// Removes the rig.
    pub fn down(self) -> Outcome<()> {
        drop(self.limit);
        self.rig.into_inner().down()
    }
}

/// The limit of a cell's process. One that loads makes the region of persistent memory, whose pages
/// are in its limit.
fn limit_of(cell: &Cell) -> Option<ByteSize> {
    let measured = cell.memory_limit?;
    Some(match cell.purpose {
        Purpose::Run => measured,
        Purpose::Load => {
            let region = cell.tiers.iter().filter(|tier| tier.name == REGION);
            ByteSize(measured.0 * LOADING + region.map(|tier| tier.capacity.0).sum::<u64>())
        }
    })
}

impl Launcher for InRig {
    fn command(&self, program: &Path, arguments: &[String], cell: &Cell) -> Outcome<Command> {
        let memory = limit_of(cell).ok_or("a cell in a rig needs a limit of its memory")?;
        let mut rig = self.rig.borrow_mut();
        rig.throttle(cell.purpose == Purpose::Run)?;
        rig.drop_caches()?;
        // Whatever is left of the cell before goes first.
        self.limit.take();
        let limit = rig.cell(memory)?;
        let mut command = if self.nice == 0 {
            limit.command(program)
        } else {
            let mut command = limit.command(Path::new("nice"));
            command.args(["-n", &self.nice.to_string()]).arg(program);
            command
        };
        command.args(arguments);
        *self.limit.borrow_mut() = Some(limit);
        Ok(command)
    }

    fn ended(&self, cell: &Cell) -> Outcome<()> {
        if let Some(limit) = self.limit.take() {
            let mut all = self.used.borrow_mut();
            let used = all.entry(cell.engine.clone()).or_default();
            let usage = limit.usage();
            if cell.purpose == Purpose::Run {
                used.memory = used.memory.max(usage.peak_bytes.unwrap_or(0));
            }
            if usage.killed > 0 {
                self.rig.borrow_mut().throttle(false)?;
                let limit = limit_of(cell).unwrap_or(ByteSize(0));
                return Err(format!(
                    "the kernel ended the process: it went over its limit of {limit}, of which the \
                     engine was told to use {}",
                    cell.memory
                )
                .into());
            }
            let fast = cell.tiers.iter().find(|tier| tier.name == "fast");
            if let Some(tier) = fast.filter(|_| cell.purpose == Purpose::Run) {
                used.fast = used.fast.max(files::allocated_bytes(&tier.path)?);
            }
        }
        self.rig.borrow_mut().throttle(false)
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let rig = self.rig.borrow();
        let design = rig.design();
        let profile = design.profile.io_max("the slow device:");
        BTreeMap::from([
            ("rig".to_owned(), "two loop devices with ext4, memory by cgroup".to_owned()),
            ("slow profile".to_owned(), format!("{}: {profile}", design.profile.name)),
            ("fast device".to_owned(), format!("{}, {}", design.fast, design.medium.about())),
            ("priority".to_owned(), format!("nice {}", self.nice)),
        ])
    }
}
