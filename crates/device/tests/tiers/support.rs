//! What the tests share: a database on two tiers, and small ways to put files into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::{
    Buffer, Devices, Error, File, FileContext, FileKind, FillFirst, Origin, Placement, Result,
    TierSpec, TieredFiles,
};
use thermocline_foundation::{ByteSize, FileNumber};

pub const TABLE: FileContext =
    FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Flush };
pub const LOG: FileContext = FileContext { kind: FileKind::Log, origin: Origin::Foreground };

pub fn home() -> PathBuf {
    PathBuf::from("/db")
}

pub fn tier_path(index: usize) -> PathBuf {
    PathBuf::from(format!("/mnt/{index}"))
}

pub fn specs(count: usize) -> Vec<TierSpec> {
    let spec = |index| TierSpec {
        path: tier_path(index),
        capacity: ByteSize::gib(1),
        driver: "memory".to_owned(),
    };
    (0..count).map(spec).collect()
}

pub fn policy() -> Arc<dyn Placement> {
    Arc::new(FillFirst)
}

pub fn create(devices: &dyn Devices, tiers: usize) -> Result<TieredFiles> {
    TieredFiles::create(devices, &home(), &specs(tiers), policy())
}

pub fn open(devices: &dyn Devices) -> Result<TieredFiles> {
    TieredFiles::open(devices, &home(), None, policy(), false)
}

/// The bytes that the tests put into file `number`.
pub fn content(number: FileNumber, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    thermocline_foundation::random::Random::new(number.0).fill(&mut bytes);
    bytes
}

/// Writes and syncs `len` bytes that follow from the file's number.
pub fn fill(file: &File, len: usize) -> Result<()> {
    let mut buffer = Buffer::zeroed(len.next_multiple_of(file.alignment()));
    buffer[..len].copy_from_slice(&content(file.number(), len));
    file.write(0, buffer).1?;
    if !len.is_multiple_of(file.alignment()) {
        file.truncate(len as u64)?;
    }
    file.sync()
}

pub fn add(files: &TieredFiles, context: FileContext, len: usize) -> Result<FileNumber> {
    let file = files.create_file(context, len as u64)?;
    fill(&file, len)?;
    files.publish(&[file.number()])?;
    Ok(file.number())
}

pub fn assert_content(files: &TieredFiles, number: FileNumber, len: usize) {
    let file = files.open_file(number).unwrap();
    assert_eq!(file.len().unwrap(), len as u64);
    assert!(*file.read(0, len).unwrap() == content(number, len)[..], "file {number}");
}

/// The names in a directory, sorted.
pub fn names(devices: &dyn Devices, path: &Path) -> Vec<String> {
    let entries = devices.home(path).and_then(|driver| driver.list()).unwrap();
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// The error's text has every one of `parts`.
pub fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}
