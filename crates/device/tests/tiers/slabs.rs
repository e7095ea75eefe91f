//! Files of slots: where placements put them, that they stay there, that checkpoints copy them, and
//! syncs of several at once.

use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::placement::BelowFirst;
use thermocline_device::{
    Buffer, ByLevel, Devices, ErrorKind, File, FileContext, FileInfo, FileKind, FillFirst,
    MemoryDevices, Origin, Placement, SystemDevices, TierIndex, TierSpec, TierState, TieredFiles,
    sync_batch,
};
use thermocline_foundation::{ByteSize, FileNumber};

const SLAB: FileContext = FileContext { kind: FileKind::Slab, origin: Origin::Flush };

/// Files of two tiers with other bytes than those that are durable.
fn changed(devices: &SimulatedDevices) -> (TieredFiles, Vec<Arc<File>>) {
    let policy = Arc::new(BelowFirst::default());
    let files = TieredFiles::create(devices, &home(), &specs(2), policy).unwrap();
    let numbers = [SLAB, TABLE, SLAB, SLAB].map(|context| add(&files, context, 4096).unwrap());
    let opened: Vec<_> = numbers.iter().map(|number| files.open_file(*number).unwrap()).collect();
    let tiers: Vec<u8> = opened.iter().map(|file| file.tier().0).collect();
    assert_eq!(tiers, [0, 1, 0, 0]);
    for file in &opened {
        file.write(512, Buffer::copy_of(&[file.number().0 as u8; 512])).1.unwrap();
    }
    (files, opened)
}

/// Whether the change of each file is there after the power was cut and nothing unsynced survived.
fn durable(devices: &SimulatedDevices, numbers: &[FileNumber]) -> Vec<bool> {
    let after = devices.after_power_cut(Fate::Lost);
    let policy = Arc::new(BelowFirst::default());
    let files = TieredFiles::open(&after, &home(), None, policy, false).unwrap();
    let is_new = |number: &FileNumber| {
        let bytes = files.open_file(*number).unwrap().read(0, 4096).unwrap();
        let old = content(*number, 4096);
        let is_new = bytes[512..1024] == [number.0 as u8; 512];
        assert!(is_new || bytes[512..1024] == old[512..1024]);
        assert!(bytes[..512] == old[..512] && bytes[1024..] == old[1024..]);
        is_new
    };
    numbers.iter().map(is_new).collect()
}

#[test]
fn a_batch_of_syncs_makes_its_files_durable_and_no_others() {
    for chosen in [&[][..], &[2], &[0, 1], &[3, 1, 0], &[1, 3, 2, 0]] {
        let devices = SimulatedDevices::new(Fault::None);
        let (_files, opened) = changed(&devices);
        let numbers: Vec<_> = opened.iter().map(|file| file.number()).collect();
        let batch: Vec<&File> = chosen.iter().map(|at| &*opened[*at]).collect();
        devices.set_fault(Fault::None);
        let results = sync_batch(&batch);
        assert_eq!(results.len(), batch.len());
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(devices.changes(), batch.len() as u64, "a sync for each");
        let expected: Vec<bool> = (0..4).map(|at| chosen.contains(&at)).collect();
        assert_eq!(durable(&devices, &numbers), expected);
    }
}

#[test]
fn a_sync_of_a_batch_that_fails_is_reported_for_its_file_and_stops_no_other() {
    // Tiers are asked one after the other: files 0, 2 and 3, then file 1.
    for (failing, file) in [(0, 0), (1, 2), (2, 3), (3, 1)] {
        let devices = SimulatedDevices::new(Fault::None);
        let (_files, opened) = changed(&devices);
        let numbers: Vec<_> = opened.iter().map(|file| file.number()).collect();
        devices.set_fault(Fault::Once(failing));
        let results = sync_batch(&opened.iter().map(|file| &**file).collect::<Vec<_>>());
        devices.set_fault(Fault::None);
        for (at, result) in results.iter().enumerate() {
            match result {
                Ok(()) => assert_ne!(at, file),
                Err(error) => {
                    assert_eq!((at, error.kind()), (file, ErrorKind::Io));
                    assert_says(error, &[&format!("{}.", numbers[at]), "sync"]);
                }
            }
        }
        assert!(results[file].is_err());
        let expected: Vec<bool> = (0..4).map(|at| at != file).collect();
        assert_eq!(durable(&devices, &numbers), expected);
    }
}

#[test]
fn slabs_are_on_the_first_tier_or_nowhere_unless_they_must_have_room() {
    let by_level = ByLevel::default();
    by_level.set_level_targets(&[10, 100, 1000]);
    let policies: [&dyn Placement; 4] =
        [&ByLevel::default(), &by_level, &BelowFirst::default(), &FillFirst];
    for policy in policies {
        let tiers = |used_bytes: u64| {
            let mut tiers = vec![TierState { capacity_bytes: 1000, ..TierState::default() }; 3];
            tiers[0].used_bytes = used_bytes;
            tiers
        };
        let place = |used_bytes| policy.place(SLAB, 100, &tiers(used_bytes));
        assert_eq!(place(0), Some(TierIndex(0)), "{}", policy.name());
        assert_eq!(place(850), Some(TierIndex(0)), "{}: up to the watermark", policy.name());
        let copy = FileContext { origin: Origin::Migration, ..SLAB };
        assert_eq!(policy.place(copy, 100, &tiers(851)), None, "{}: a hot copy", policy.name());
        // Only a policy that is made for slabs knows that a flush must have room.
        let overflow = (policy.name() == BelowFirst::default().name()).then_some(TierIndex(1));
        assert_eq!(place(851), overflow, "{}", policy.name());
        let log = FileContext { kind: FileKind::Log, origin: Origin::Foreground };
        assert_eq!(policy.place(log, 100, &tiers(900)), Some(TierIndex(0)), "{}", policy.name());
        assert_eq!(policy.place(log, 100, &tiers(901)), Some(TierIndex(1)), "{}", policy.name());
    }
}

#[test]
fn a_slab_whose_space_is_reserved_is_written_where_the_device_is_full() {
    let devices = SimulatedDevices::new(Fault::None);
    let files = create(&devices, 2).unwrap();
    let slab = files.create_file(SLAB, 8192).unwrap();
    slab.allocate(8192).unwrap();
    devices.set_fault(Fault::Full(0));
    assert_eq!(files.create_file(SLAB, 8192).unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert_eq!(slab.allocate(8193).unwrap_err().kind(), ErrorKind::OutOfSpace);
    fill(&slab, 8192).unwrap();
    assert_content(&files, slab.number(), 8192);
    assert_eq!(files.files().len(), 1, "what was refused left nothing");
}

#[test]
fn no_placement_moves_a_slab_and_none_can_be_moved() {
    let slab = |tier: u8| FileInfo {
        number: FileNumber(u64::from(tier) + 1),
        kind: FileKind::Slab,
        tier: TierIndex(tier),
        bytes: 100,
        published: true,
    };
    let files = [slab(0), slab(1)];
    let mut tiers = vec![TierState { capacity_bytes: 1000, ..TierState::default() }; 2];
    for used_bytes in [100, 990] {
        tiers[0].used_bytes = used_bytes;
        for policy in [&ByLevel::default() as &dyn Placement, &BelowFirst::default(), &FillFirst] {
            policy.set_level_targets(&[10, 100]);
            assert_eq!(policy.misplaced(&files, &tiers), [], "{}", policy.name());
            assert_eq!(policy.worth_fetching(&files, &tiers), [], "{}", policy.name());
        }
    }
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let number = add(&files, SLAB, 4096).unwrap();
    let error = files.migrate(number, TierIndex(1), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(files.open_file(number).unwrap().tier(), TierIndex(0));
}

/// A checkpoint's slab has the bytes of its moment, whatever is written on either side afterwards.
fn check_apart(devices: &dyn Devices, home: &Path, specs: &[TierSpec]) {
    let files = TieredFiles::create(devices, home, specs, policy()).unwrap();
    let (slab, table) = (add(&files, SLAB, 3 << 20).unwrap(), add(&files, TABLE, 5000).unwrap());
    let target = home.join("copy");
    let copy =
        files.create_checkpoint(devices, &target, &[slab, table], &[], &|_, _, _| {}).unwrap();
    let listed = |files: &TieredFiles| {
        let listed = files.files();
        listed.iter().map(|f| (f.number, f.kind, f.tier, f.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(listed(&copy), listed(&files));
    assert_content(&copy, slab, 3 << 20);
    let write = |files: &TieredFiles, fill: u8| {
        let file = files.open_file(slab).unwrap();
        file.write(8192, Buffer::copy_of(&[fill; 4096])).1.unwrap();
        file.sync().unwrap();
    };
    write(&files, 1);
    assert_content(&copy, slab, 3 << 20);
    write(&copy, 2);
    let read = |files: &TieredFiles| files.open_file(slab).unwrap().read(8192, 4096).unwrap();
    assert!(*read(&files) == [1; 4096] && *read(&copy) == [2; 4096]);
    files.delete_files(&[slab]).unwrap();
    copy.close(&[]).unwrap();
    drop(copy);
    let copy = TieredFiles::open(devices, &target, None, policy(), false).unwrap();
    assert!(*read(&copy) == [2; 4096]);
}

#[test]
fn a_checkpoint_copies_slabs_and_never_links_them() {
    check_apart(&MemoryDevices::new(), &home(), &specs(2));
    check_apart(&SimulatedDevices::aligned(Fault::None, 4096), &home(), &specs(2));
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("db");
    let spec = |index: usize| TierSpec {
        path: home.join(format!("tier-{index}")),
        capacity: ByteSize::gib(1),
        driver: "posix".to_owned(),
    };
    let specs = [spec(0), spec(1)];
    let devices = SystemDevices::default();
    check_apart(
        &devices,
        &directory.path().join("other"),
        &specs.clone().map(|spec| TierSpec {
            path: directory.path().join("other").join(spec.path.file_name().unwrap()),
            ..spec
        }),
    );
    let files = TieredFiles::create(&devices, &home, &specs, policy()).unwrap();
    let (slab, table) = (add(&files, SLAB, 8192).unwrap(), add(&files, TABLE, 8192).unwrap());
    let target = directory.path().join("copy");
    files.create_checkpoint(&devices, &target, &[slab, table], &[], &|_, _, _| {}).unwrap();
    let ino = |folder: &Path, name: &str| folder.join(name).symlink_metadata().unwrap().ino();
    let is_shared = |name: &str| ino(&specs[0].path, name) == ino(&target.join("tier-0"), name);
    assert!(is_shared(&format!("{table}.table")), "what never changes is linked");
    assert!(!is_shared(&format!("{slab}.slab")));
}

#[test]
fn a_checkpoint_has_of_slabs_what_is_left_of_them_and_tables_as_they_are() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let (slab, table) = (add(&files, SLAB, 3 << 20).unwrap(), add(&files, TABLE, 5000).unwrap());
    let cleared = (1 << 20) - 5..(2 << 20) + 7;
    let clear = |number, offset: u64, bytes: &mut [u8]| {
        assert_eq!(number, slab);
        for (at, byte) in (offset..).zip(bytes) {
            *byte = if cleared.contains(&at) { 0 } else { *byte };
        }
    };
    let target = home().join("copy");
    let copy = files.create_checkpoint(&devices, &target, &[slab, table], &[], &clear).unwrap();
    assert_content(&copy, table, 5000);
    let bytes = |files: &TieredFiles| files.open_file(slab).unwrap().read(0, 3 << 20).unwrap();
    let mut expected = bytes(&files).to_vec();
    expected[cleared.start as usize..cleared.end as usize].fill(0);
    assert!(bytes(&copy)[..] == expected[..]);
    assert_content(&files, slab, 3 << 20);
}

#[test]
fn a_slab_that_was_not_published_is_not_taken_along() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let slab = files.create_file(SLAB, 4096).unwrap();
    fill(&slab, 4096).unwrap();
    let target = home().join("copy");
    let error = files
        .create_checkpoint(&devices, &target, &[slab.number()], &[], &|_, _, _| {})
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
