//! A writing that begins while its file is moved or copied: at each call of that in turn.
//!
//! 1. What was written is there afterwards, whichever call the writing came after, and whether it
//!    ended before the move or the copy did.
//! 2. A table that stayed because of it moves when the writing has ended.

use super::images::{devices, observe, read, spec, split};
use super::{FAST, HOST, SLOW, Setting};
use crate::devices::{CallKind, Devices, Watcher, World};
use crate::oracle::Violation;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{
    Buffer, Devices as _, FileClass, Holds, Names, Operation, Origin, Result, TierIndex, Writer,
};
use thermocline_foundation::random::mix;

const NAME: &str = "a.sst";
const BEFORE: &[u8] = b"before it, ";
const BESIDE: &[u8] = b"beside it";

/// What goes on beside the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Move,
    Copy,
}

/// Writes after a call of the work.
struct Beside {
    names: Names,
    /// Calls until then; none once it was written, or is being so.
    left: Mutex<Option<u64>>,
    /// The writing goes on when the work has ended.
    outlasts: bool,
    done: Mutex<Option<Result<Writer>>>,
}

impl Watcher for Beside {
    fn changed(&self, devices: &Devices, _: u64, kind: CallKind) {
        // Those of names come while the work keeps others from changing names.
        if !matches!(kind, CallKind::Create | CallKind::Write | CallKind::Sync) {
            return;
        }
        let is_due = {
            let mut left = self.left.lock();
            let is_due = *left == Some(0);
            *left = left.and_then(|left| left.checked_sub(1));
            is_due
        };
        if is_due {
            let writer = write(devices, self.names.open(NAME).and_then(|file| file.to_write()));
            let ends = !self.outlasts && writer.is_ok();
            *self.done.lock() = Some(writer).filter(|_| !ends);
        }
    }
}

fn write(devices: &Devices, writer: Result<Writer>) -> Result<Writer> {
    let writer = writer?;
    let (parent, name) = split(&writer.place());
    let driver = devices.tier(&spec(&parent))?;
    let handle = driver.open(&name)?;
    let (offset, bytes) = match handle.len()? {
        0 => (0, BEFORE),
        len => (len, BESIDE),
    };
    let write = Operation::Write { offset, buffer: Buffer::copy_of(bytes), durable: false };
    driver.execute(&handle, write).result?;
    driver.execute(&handle, Operation::Sync).result?;
    writer.synced()?;
    Ok(writer)
}

/// Writes beside a move and beside the making of a copy, after each of their calls; how many times.
pub fn write_beside(seed: u64) -> Result<u64, Violation> {
    let mut count = 0;
    for work in [Work::Move, Work::Copy] {
        for outlasts in [false, true] {
            let mut calls = 0;
            let explain = |calls| move |why| format!("{work:?}, call {calls}, {outlasts}: {why}");
            while attempt(seed, work, outlasts, calls).map_err(explain(calls))? {
                calls += 1;
            }
            count += calls;
        }
    }
    Ok(count)
}

/// False where the work has not so many calls.
fn attempt(seed: u64, work: Work, outlasts: bool, calls: u64) -> Result<bool, Violation> {
    let text = |error: thermocline_device::Error| error.to_string();
    let devices = devices(World::new(mix(seed)));
    for path in [HOST, FAST, SLOW] {
        devices.create_directory(Path::new(path)).map_err(text)?;
    }
    let setting = Setting(seed);
    setting.prepare(&devices);
    let names = setting.make(&devices).map_err(text)?;
    setting.prepare(&devices);
    let level = Some(if work == Work::Move { 0 } else { 5 });
    let class = FileClass { holds: Holds::Table, level, origin: Origin::Flush, heat: None };
    drop(write(&devices, names.create(NAME, class)).map_err(text)?);
    let beside = Arc::new(Beside {
        names: names.clone(),
        left: Mutex::new(Some(calls)),
        outlasts,
        done: Mutex::new(None),
    });
    devices.watch(Some(Arc::clone(&beside) as Arc<_>));
    let moves = || -> Result<()> {
        while names.move_next()? {}
        Ok(())
    };
    match work {
        Work::Move => {
            names.set_level(NAME, 5);
            moves().map_err(text)?;
        }
        Work::Copy => drop(names.keep_copy(NAME, TierIndex(0)).map_err(text)?),
    }
    devices.watch(None);
    if beside.left.lock().is_some() {
        return Ok(false);
    }
    let writer = beside.done.lock().take().transpose().map_err(text)?;
    let check = || {
        let found = observe(&devices, &names)?;
        match found[NAME] == [BEFORE, BESIDE].concat() {
            true => Ok(()),
            false => Err(format!("{NAME} has {:?}", String::from_utf8_lossy(&found[NAME]))),
        }
    };
    check()?;
    drop(writer);
    moves().map_err(text)?;
    check()?;
    let file = names.open(NAME).map_err(text)?;
    match work == Work::Move && file.place().starts_with(FAST) {
        true => Err(format!("it stays at {}", file.place().display())),
        false => read(&devices, &file.place_to_read()).map(|_| true),
    }
}
