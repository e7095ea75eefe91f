//! A host that reads its files by extents: what is served is what the file has.

use super::host::Stop;
use super::images::read as read_file;
use crate::devices::Devices;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline_device::file_cache::extents::Cached;
use thermocline_device::names::ExtentSettings;
use thermocline_device::{NamedFile, Names};
use thermocline_foundation::Clock;

/// So small that files of a few records have some.
const EXTENT: usize = 512;

/// Looks and pieces of upkeep after which a file that is whole is served.
const ROUNDS: u64 = 6;

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
        let bytes = read_file(devices, &file.place()).map_err(Stop)?;
        for (number, expected) in bytes.chunks(EXTENT).enumerate() {
            let mut to = [0; EXTENT];
            match file.read_cached(epoch, (number * EXTENT) as u64, &mut to) {
                Cached::Served(len) if to[..len] != *expected => {
                    let name = file.name();
                    return Err(Stop(format!("{name} has other bytes than its extents")));
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
