//! Checkpoints, in memory (copied) and on the system's directories (hard-linked).

use crate::support::*;
use thermocline_device::{
    Devices, ErrorKind, FileKind, MemoryDevices, SystemDevices, TierIndex, TierSpec, TieredFiles,
};
use thermocline_foundation::ByteSize;

/// A checkpoint has the tables, opens, goes its own way, and leaves the original as it was.
fn check(devices: &dyn Devices, home: &std::path::Path, specs: &[TierSpec]) {
    let files = TieredFiles::create(devices, home, specs, policy()).unwrap();
    let tables: Vec<_> = (0..3).map(|n| add(&files, TABLE, 5000 + n).unwrap()).collect();
    files.migrate(tables[1], TierIndex(1), &mut |_| {}).unwrap();
    files.reclassify(tables[1], FileKind::Table { level: 2 }).unwrap();
    let log = add(&files, LOG, 4096).unwrap();
    let target = home.join("copies/monday");
    let error = files.create_checkpoint(devices, &target, &[log], &[], &|_, _, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let copy = files.create_checkpoint(devices, &target, &tables[..2], &[], &|_, _, _| {}).unwrap();
    assert_eq!(copy.database(), files.database());
    assert_ne!(copy.instance(), files.instance());
    let listed: Vec<_> = copy.files().iter().map(|f| (f.number, f.kind, f.tier)).collect();
    let original: Vec<_> = files.files().iter().map(|f| (f.number, f.kind, f.tier)).collect();
    assert_eq!(listed, original[..2]);
    files.delete_files(&tables).unwrap();
    let fresh = add(&copy, TABLE, 100).unwrap();
    assert!(fresh > log, "numbers go on after the original's");
    copy.close(&[]).unwrap();
    drop(copy);
    let copy = TieredFiles::open(devices, &target, None, policy(), false).unwrap();
    assert_content(&copy, tables[0], 5000);
    assert_content(&copy, tables[1], 5001);
    assert_content(&copy, fresh, 100);
    assert_eq!(copy.tiers()[1].spec().path, target.join("tier-1"));
}

#[test]
fn checkpoint_in_memory_is_a_database_of_its_own() {
    check(&MemoryDevices::new(), &home(), &specs(2));
}

#[test]
fn checkpoint_on_a_file_system_shares_the_tables_blocks() {
    use std::os::unix::fs::MetadataExt;
    for driver in ["posix", "direct"] {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("db");
        let spec = |index: usize| TierSpec {
            path: home.join(format!("tier-{index}")),
            capacity: ByteSize::gib(1),
            driver: driver.to_owned(),
        };
        let specs = [spec(0), spec(1)];
        let devices = SystemDevices::default();
        match TieredFiles::create(&devices, &home, &specs, policy()) {
            // Some file systems under a temporary directory have no direct I/O.
            Err(error) if driver == "direct" && error.kind() == ErrorKind::Invalid => continue,
            made => {
                let files = made.unwrap();
                let number = add(&files, TABLE, 8192).unwrap();
                let target = directory.path().join("copy");
                files.create_checkpoint(&devices, &target, &[number], &[], &|_, _, _| {}).unwrap();
                let name = format!("{number}.table");
                let [old, new] = [specs[0].path.join(&name), target.join("tier-0").join(&name)];
                let ino = |path: &std::path::Path| path.symlink_metadata().unwrap().ino();
                assert_eq!(ino(&old), ino(&new), "linked, not copied");
            }
        }
        check(&devices, &directory.path().join("other"), &other(&directory, driver));
    }
}

fn other(directory: &tempfile::TempDir, driver: &str) -> Vec<TierSpec> {
    let spec = |index: usize| TierSpec {
        path: directory.path().join(format!("other/tier-{index}")),
        capacity: ByteSize::gib(1),
        driver: driver.to_owned(),
    };
    vec![spec(0), spec(1)]
}
