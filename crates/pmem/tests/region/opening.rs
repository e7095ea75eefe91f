//! Regions that are opened: over files, after a crash, after another boot, with another's identity.

use super::support::{create, geometry, identity, open};
use crate::arena::replay;
use crate::identity::{Circumstances, Expected, RegionIdentity};
use crate::memtable::{EncodedGroup, PersistentMemtable, Write};
use crate::persist::{Durability, Medium};
use crate::region::{OpenedRegion, Region};
use crate::shadow::{Model, Shadow};
use crate::tree::Tree;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::Mapping;
use thermocline_device::drivers::persistence::{PersistenceDomain, boot_id, probe};
use thermocline_device::{ErrorKind, Result};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};

const HERE: Circumstances =
    Circumstances { is_synchronous: false, boot: [7; 16], dirty_shutdowns: None };

fn expected(generation: u64) -> Expected {
    let identity = identity(geometry(8));
    Expected { database: identity.database, instance: identity.instance, generation }
}

fn mapped(mapping: Mapping) -> Medium {
    Medium::mapped(mapping, PersistenceDomain::MemoryController, 0).unwrap()
}

fn put(region: &Region, number: u64, first: u64) {
    let arena = region.create_arena(FileNumber(number), Sequence(first), 1000).unwrap();
    let memtable = PersistentMemtable::new(arena);
    let writes = [Write { key: b"key", value: Some(b"value") }];
    let group = EncodedGroup::new(&writes);
    let claim = memtable.claim(&group).unwrap();
    memtable.write_group(&claim, &group, Sequence(first), Sequence(first - 1));
}

fn records(opened: &OpenedRegion) -> usize {
    replay(&opened.arenas).unwrap().0.iter().map(Vec::len).sum()
}

#[test]
fn a_region_over_a_file_keeps_what_it_has_over_close_and_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("region");
    let identity = RegionIdentity { opened: HERE, ..identity(geometry(8)) };
    let medium = mapped(Mapping::create(&path, identity.geometry.bytes).unwrap());
    let opened = Region::create(medium, identity).unwrap();
    put(&opened.region, 1, 1);
    // The process ends; the boot goes on.
    drop(opened);
    let medium = mapped(Mapping::open(&path).unwrap());
    assert_eq!(medium.durability(), Durability::Emulated);
    let opened = Region::open(medium, &expected(1), &HERE, 2).unwrap();
    put(&opened.region, 2, 2);
    let tree = Tree::open(&opened).unwrap();
    let entry = super::tree::entry(1, 5);
    tree.enter((FileNumber(5), 1), &[(b"key".to_vec(), entry)], true).unwrap();
    opened.region.close(3).unwrap();
    drop((opened, tree));
    let other_boot = Circumstances { boot: [8; 16], ..HERE };
    let medium = mapped(Mapping::open(&path).unwrap());
    let opened = Region::open(medium, &expected(3), &other_boot, 4).unwrap();
    assert_eq!(Tree::open(&opened).unwrap().get(b"key").unwrap(), Some(entry));
    assert_eq!(records(&opened), 2);
}

#[test]
fn a_creation_that_is_cut_off_anywhere_is_known_as_such() {
    let identity = identity(geometry(8));
    let zeros = vec![0; (identity.geometry.bytes / 8) as usize];
    let shadow = Arc::new(Shadow::new(&zeros));
    let medium = Medium::shadowed_by(Arc::clone(&shadow), &zeros);
    let opened = Region::create(medium, identity).unwrap();
    let mut tried = 0;
    shadow.crashes(|crash| {
        for model in [Model::X86, Model::Words] {
            crash.images(model, 64, tried, |image| {
                tried += 1;
                let medium = Medium::shadowed(image);
                let is_whole = RegionIdentity::read(&medium).is_ok();
                assert!(is_whole || Region::is_unfinished(&medium, identity.database));
            });
        }
    });
    assert!(tried > 50, "{tried} images");
    put(&opened.region, 1, 1);
    assert!(!Region::is_unfinished(opened.region.medium(), identity.database));
    let other = DatabaseId([0x5b; 16]);
    assert!(Region::is_unfinished(&Medium::shadowed(&zeros), other));
    let first = u64::from_le_bytes(*b"a letter");
    let letter = Medium::shadowed(&[&[first], &zeros[1..]].concat());
    assert!(!Region::is_unfinished(&letter, other));
}

#[test]
fn what_this_machine_is_like_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let mapping = Mapping::create(&folder.path().join("region"), 65536).unwrap();
    let persistence = probe(Path::new("/sys"), mapping.device().unwrap());
    let boot = boot_id(Path::new("/proc"));
    let now = Circumstances::of(mapping.is_synchronous(), &persistence, boot);
    assert_ne!(now.boot, [0; 16]);
    let identity = RegionIdentity { opened: now, ..identity(geometry(8)) };
    identity.check(&expected(1), &now).unwrap();
    assert_eq!(Circumstances::of(true, &persistence, None).boot, [0; 16]);
}

/// Opens the image of a region that was not closed, as it is found elsewhere.
fn reopen(generation: u64, now: &Circumstances) -> Result<OpenedRegion> {
    let identity = RegionIdentity { opened: HERE, generation: 5, ..identity(geometry(4)) };
    let zeros = vec![0; (identity.geometry.bytes / 8) as usize];
    let made = Region::create(Medium::shadowed(&zeros), identity).unwrap();
    let image = made.region.medium().snapshot();
    Region::open(Medium::shadowed(&image), &expected(generation), now, generation + 1)
}

fn other_boot_fault() -> Option<String> {
    reopen(5, &HERE).unwrap();
    let opened = reopen(5, &Circumstances { boot: [8; 16], ..HERE });
    opened.is_ok().then(|| "what an ordinary file had was believed after another boot".to_owned())
}

fn older_fault() -> Option<String> {
    reopen(4, &HERE).unwrap();
    reopen(7, &HERE).is_ok().then(|| "an older copy of the region was accepted".to_owned())
}

#[test]
fn a_region_of_another_boot_or_of_an_older_generation_is_refused_and_left_as_it_is() {
    assert_eq!((other_boot_fault(), older_fault()), (None, None));
    let region = create(geometry(4)).region;
    let image = region.medium().snapshot();
    let medium = Medium::shadowed(&image);
    let now = region.identity().opened;
    let error = Region::open(medium, &expected(9), &now, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
}

#[test]
fn a_file_that_is_no_region_or_too_short_is_refused() {
    for bytes in [4096, 65536] {
        let error = open(&vec![0; bytes / 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    let mut image = create(geometry(4)).region.medium().snapshot();
    image.truncate(image.len() - 512);
    assert_eq!(open(&image).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_opening_are_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    assert!(with(Planted::OtherBootBelieved, other_boot_fault).is_some());
    assert!(with(Planted::OlderRegionAccepted, older_fault).is_some());
}
