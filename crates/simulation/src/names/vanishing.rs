//! The device of a tier vanishes while its host runs, and comes back.

use super::images::{observe, spec, split};
use super::{FAST, HOST};
use crate::devices::Devices;
use crate::oracle::Violation;
use std::path::Path;
use thermocline_device::{Buffer, Devices as _, ErrorKind, FileClass, Names, Operation, Result};

const UPPER: &str = "a.sst";
const LOWER: &str = "b.sst";

/// What needs the tier fails with an error of its device, no link changes, and the other tiers go
/// on. Once the device is back all files are there, and the moves that failed are made. Returns how
/// many calls failed.
pub fn vanish(seed: u64) -> Result<u64, Violation> {
    let text = |error: thermocline_device::Error| error.to_string();
    let host = super::host(seed);
    let (setting, devices) = (host.setting, &host.devices);
    let names = setting.make(devices).map_err(text)?;
    setting.prepare(devices);
    write(devices, &names, UPPER, 0).map_err(text)?;
    write(devices, &names, LOWER, 5).map_err(text)?;
    let expected = observe(devices, &names)?;
    let links = devices.look(|world| world.links(Path::new(HOST)));
    let fast = super::instance(&devices.world(), FAST);

    devices.set_gone(&fast, true);
    names.set_level(UPPER, 5);
    names.set_level(LOWER, 0);
    let mut failed = 0;
    let tries: [&dyn Fn() -> Result<()>; 3] =
        [&|| names.move_next().map(drop), &|| names.move_next().map(drop), &|| {
            write(devices, &names, "c.log", 0)
        }];
    for (number, attempt) in tries.iter().enumerate() {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                return Err(format!("call {number} finds a device full that is gone: {error}"));
            }
            tried => failed += u64::from(tried.is_err()),
        }
    }
    if devices.look(|world| world.links(Path::new(HOST))) != links {
        return Err("links have changed while a tier was away".to_owned());
    }
    let lower = names.open(LOWER).map_err(text)?;
    if super::images::read(devices, &lower.place())? != expected[LOWER] {
        return Err(format!("{LOWER} has other bytes while another tier is away"));
    }

    devices.set_gone(&fast, false);
    while names.move_next().map_err(text)? {}
    let places = [UPPER, LOWER].map(|name| names.open(name).map(|file| file.place()));
    let [upper, lower] = places.map(|place| place.map_err(text));
    let (upper, lower) = (upper?, lower?);
    if upper.starts_with(FAST) || !lower.starts_with(FAST) {
        return Err(format!("they have not moved: {upper:?}, {lower:?}"));
    }
    match observe(devices, &names)? == expected {
        true => Ok(failed),
        false => Err("other files are there since the tier is back".to_owned()),
    }
}

/// Makes a file whose bytes are its name, and whose bytes and name are durable.
fn write(devices: &Devices, names: &Names, name: &str, level: u8) -> Result<()> {
    let class = FileClass { level: Some(level), ..FileClass::of_name(name) };
    let writer = names.create(name, class)?;
    let (parent, file) = split(&writer.place());
    let driver = devices.tier(&spec(&parent))?;
    let file = driver.open(&file)?;
    let buffer = Buffer::copy_of(name.as_bytes());
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result?;
    driver.execute(&file, Operation::Sync).result?;
    writer.synced()
}
