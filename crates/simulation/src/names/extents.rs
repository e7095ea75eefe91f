//! A host that reads its files by extents: what is served is what the file has.

use super::host::Stop;
use super::images::{read as read_file, spec, split};
use crate::devices::{Devices, Loss, Unit};
use crate::oracle::Violation;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline_device::file_cache::extents::Cached;
use thermocline_device::names::ExtentSettings;
use thermocline_device::{
    Buffer, Devices as _, ErrorKind, FileClass, NamedFile, Names, Operation, Result, Writer,
};
use thermocline_foundation::Clock;

/// So small that files of a few records have some.
const EXTENT: usize = 512;

/// Looks and pieces of upkeep after which a file that is whole is served.
const ROUNDS: u64 = 6;

/// A table that is written in place.
const NAME: &str = "a.sst";

/// A second passes with each question.
#[derive(Debug, Default)]
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1_000_000_000, Relaxed)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, _: Duration) {}
}

/// From now on extents are kept.
pub(super) fn keep(names: &Names) {
    let settings = ExtentSettings { extent_bytes: EXTENT as u64, capacity_bytes: Some(1 << 20) };
    names.keep_extents(Some(settings), Arc::<Seconds>::default(), Arc::new(|| ()));
}

/// Reads a file some times, as a plugin does; how many reads were served.
pub(super) fn read(devices: &Devices, names: &Names, file: &Arc<NamedFile>) -> Result<u64, Stop> {
    let mut served = 0;
    for _ in 0..ROUNDS {
        let epoch = file.epoch().load(Acquire);
        let bytes = read_file(devices, &file.place()).map_err(Stop::Failed)?;
        for (number, expected) in bytes.chunks(EXTENT).enumerate() {
            let mut to = [0; EXTENT];
            match file.read_cached(epoch, (number * EXTENT) as u64, &mut to) {
                Cached::Served(len) if to[..len] != *expected => {
                    let name = file.name();
                    let why = format!("{name} has other bytes than its extents");
                    return Err(Stop::Violated(why));
                }
                Cached::Served(_) => served += 1,
                Cached::Missed(None) => {}
                Cached::Missed(Some(wanted)) => {
                    let at = wanted.offset as usize;
                    file.fill(epoch, wanted, &bytes[at..at + wanted.len]);
                }
            }
        }
        while names.tend_extents() {}
        names.write_gathered_extents();
    }
    Ok(served)
}

/// A file that extents of an earlier opening know is written in place, its bytes are synced without
/// its time, as databases do, and the power is cut. Returns how many reads were served before.
pub fn overwrite(seed: u64) -> Result<u64, Violation> {
    let text = |error: thermocline_device::Error| error.to_string();
    let host = super::host(seed);
    let (setting, devices) = (host.setting, &host.devices);
    let names = setting.make(devices).map_err(text)?;
    setting.prepare(devices);
    keep(&names);
    let class = FileClass { level: Some(5), ..FileClass::of_name(NAME) };
    write(devices, &names.create(NAME, class).map_err(text)?, 1).map_err(text)?;
    names.sync_directory().map_err(text)?;
    let served = read(devices, &names, &names.open(NAME).map_err(text)?)?;
    drop(names);

    let names = setting.load(devices).map_err(text)?;
    keep(&names);
    let file = names.open(NAME).map_err(text)?;
    write(devices, &file.to_write().map_err(text)?, 2).map_err(text)?;
    let world = devices.world();
    // The system had written the cache back, and of the table what was synced.
    let paths = world.paths();
    let is_fast = |unit: &Unit| paths[unit.directory].starts_with(super::FAST);
    let kept: Vec<_> = world.units().iter().map(is_fast).collect();
    let after = super::devices(world.after(Loss::Kept(&kept)));
    setting.prepare(&after);
    let names = setting.load(&after).map_err(text)?;
    keep(&names);
    names.sync_directory().map_err(text)?;
    read(&after, &names, &names.open(NAME).map_err(text)?)?;
    match names.extent_counts() {
        Some(counts) if counts.adopted > 0 => Ok(served),
        counts => Err(format!("the cache is not there: {counts:?}")),
    }
}

/// Extents leave a part of a small device free, and let a file that its device refuses go on there.
/// Returns the most bytes that the device had, in thousandths of what it takes.
pub fn fill_device(seed: u64) -> Result<u64, Violation> {
    const DEVICE_BYTES: u64 = 512 << 10;
    let text = |error: thermocline_device::Error| error.to_string();
    let host = super::host(seed);
    let (setting, devices) = (host.setting, &host.devices);
    let names = setting.make(devices).map_err(text)?;
    setting.prepare(devices);
    let fast = super::instance(&devices.world(), super::FAST);
    let used = || devices.look(|world| world.list(&fast)).iter().map(|(_, len)| len).sum::<u64>();
    devices.set_capacity(&fast, Some(DEVICE_BYTES));
    keep(&names);
    // It is made first: what a log is expected to come to is more than this device has.
    let log = names.create("d.log", FileClass::of_name("d.log")).map_err(text)?;
    let mut most = 0;
    for number in 0..90 {
        let name = format!("t{number}.sst");
        let class = FileClass { level: Some(5), ..FileClass::of_name(&name) };
        write(devices, &names.create(&name, class).map_err(text)?, 1).map_err(text)?;
        read(devices, &names, &names.open(&name).map_err(text)?)?;
        most = most.max(used());
    }
    devices.set_capacity(&fast, Some(used() + 1000));
    match write(devices, &log, 1) {
        Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
        written => return Err(format!("the device is full, and answers {written:?}")),
    }
    log.continue_elsewhere(0).map_err(text)?;
    write(devices, &log, 1).map_err(text)?;
    match log.place().starts_with(&fast) {
        true => Ok(most * 1000 / DEVICE_BYTES),
        false => Err(format!("it went to {}", log.place().display())),
    }
}

/// Writes all of a file, and syncs its bytes.
fn write(devices: &Devices, writer: &Writer, byte: u8) -> Result<()> {
    let (parent, name) = split(&writer.place());
    let driver = devices.tier(&spec(&parent))?;
    let file = driver.open(&name)?;
    let buffer = Buffer::copy_of(&[byte; 16 * EXTENT]);
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result?;
    driver.execute(&file, Operation::Sync).result?;
    writer.synced()
}
