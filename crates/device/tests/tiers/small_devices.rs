//! Devices that have less than their tiers' capacities: files go where there is room, refusals
//! change nothing, and "no tier has room" is said only where each was asked.

use crate::support::*;
use std::sync::Arc;
use thermocline_device::journal::Purpose;
use thermocline_device::{
    Buffer, ErrorKind, File, FileContext, FileKind, MemoryDevices, Origin, Result, TierIndex,
    TieredFiles,
};
use thermocline_foundation::FileNumber;

const KIB: u64 = 1 << 10;
const TABLE_BYTES: usize = 64 << 10;

/// From now on the device of `tier` has so many bytes.
fn set_device(devices: &MemoryDevices, tier: usize, bytes: u64) {
    devices.directory(&tier_path(tier)).unwrap().set_capacity_bytes(bytes);
}

/// Bytes of what lies on a tier's device.
fn used(devices: &MemoryDevices, tier: usize) -> u64 {
    use thermocline_device::Devices;
    let entries = devices.home(&tier_path(tier)).unwrap().list().unwrap();
    entries.iter().map(|entry| entry.len).sum()
}

/// From now on the device of `tier` has so many bytes more than are used.
fn leave(devices: &MemoryDevices, tier: usize, bytes: u64) {
    set_device(devices, tier, used(devices, tier) + bytes);
}

fn tier_of(files: &TieredFiles, number: FileNumber) -> usize {
    let found = files.files().into_iter().find(|file| file.number == number);
    found.unwrap().tier.position()
}

/// A database on so many tiers of a GiB each.
fn database(tiers: usize) -> (MemoryDevices, TieredFiles) {
    let devices = MemoryDevices::new();
    let files = create(&devices, tiers).unwrap();
    (devices, files)
}

/// Puts a table where it is begun with all of its bytes.
fn put(files: &TieredFiles) -> Result<FileNumber> {
    let begin = |file: &Arc<File>| fill(file, TABLE_BYTES);
    let (file, ()) = files.create_begun(TABLE, TABLE_BYTES as u64, begin)?;
    files.publish(&[file.number()])?;
    Ok(file.number())
}

#[test]
fn a_file_that_a_device_refuses_is_begun_on_the_next_tier_and_nothing_is_left_of_it() {
    let (devices, files) = database(3);
    leave(&devices, 0, 10 * KIB);
    leave(&devices, 1, 10 * KIB);
    let before = [names(&devices, &tier_path(0)), names(&devices, &tier_path(1))];
    let number = put(&files).unwrap();
    assert_eq!(tier_of(&files, number), 2);
    assert_content(&files, number, TABLE_BYTES);
    assert_eq!(before, [names(&devices, &tier_path(0)), names(&devices, &tier_path(1))]);
    assert!(files.tiers()[0].is_refused() && !files.tiers()[2].is_refused());
    drop(files);
    let files = open(&devices).unwrap();
    assert_content(&files, number, TABLE_BYTES);
}

#[test]
fn all_tiers_are_asked_before_none_has_room() {
    let (devices, files) = database(3);
    (0..3).for_each(|tier| leave(&devices, tier, 20 * KIB));
    for _ in 0..5 {
        let error = put(&files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert_says(&error, &["no tier has room", "/mnt/0", "/mnt/2", "its device has no more"]);
    }
    // Refused a moment ago, and by its own figures it still has no room: it is asked all the same.
    let small = add(&files, LOG, 4 << 10).unwrap();
    assert!(tier_of(&files, small) < 3);
    leave(&devices, 1, 200 * KIB);
    assert_eq!(tier_of(&files, put(&files).unwrap()), 1, "the only one with room");
}

#[test]
fn a_tier_that_has_refused_is_asked_again_once_room_was_freed() {
    let (devices, files) = database(2);
    let first = put(&files).unwrap();
    assert_eq!(tier_of(&files, first), 0);
    leave(&devices, 0, 20 * KIB);
    assert_eq!(tier_of(&files, put(&files).unwrap()), 1);
    files.delete_files(&[first]).unwrap();
    assert_eq!(tier_of(&files, put(&files).unwrap()), 0);
    assert_eq!(tier_of(&files, put(&files).unwrap()), 1);
    leave(&devices, 0, 200 * KIB);
    assert_eq!(tier_of(&files, put(&files).unwrap()), 0, "others have made room");
}

#[test]
fn a_tier_in_doubt_is_asked_for_a_whole_table_and_a_table_keeps_no_more_than_it_took() {
    let (devices, files) = database(2);
    leave(&devices, 0, 40 * KIB);
    let file = files.create_file(TABLE, TABLE_BYTES as u64).unwrap();
    assert_eq!(file.tier(), TierIndex(0), "nothing is known yet");
    let write = |file: &File, at| file.write(at, Buffer::zeroed(20 << 10)).1;
    write(&file, 0).unwrap();
    assert_eq!(write(&file, 24 << 10).unwrap_err().kind(), ErrorKind::OutOfSpace);
    files.delete_files(&[file.number()]).unwrap();
    // Passed over once, and asked again then, for all of it.
    let asked = |expected| files.create_file(TABLE, expected).unwrap();
    let tiers: Vec<_> = (0..4).map(|_| asked(TABLE_BYTES as u64).tier().0).collect();
    assert_eq!(tiers, [1; 4]);
    let ingested = FileContext { origin: Origin::Ingest, ..TABLE };
    let file = files.create_file(ingested, TABLE_BYTES as u64).unwrap();
    assert_eq!(file.len().unwrap(), TABLE_BYTES as u64, "a bulk load cannot be written twice");
}

/// In doubt a table that grows is asked for; by the capacity alone there would be room.
#[test]
fn a_table_grows_by_what_its_device_keeps_for_it() {
    let (devices, files) = database(2);
    let file = files.create_file(TABLE, TABLE_BYTES as u64).unwrap();
    let (number, bytes) = (file.number(), || used(&devices, 0));
    files.promise_bytes(number, 100 * KIB).unwrap();
    assert_eq!(file.len().unwrap(), 0, "nothing is known yet");
    leave(&devices, 0, 100 * KIB);
    assert_eq!(file.allocate(200 * KIB).unwrap_err().kind(), ErrorKind::OutOfSpace);
    let before = bytes();
    files.promise_bytes(number, 80 * KIB).unwrap();
    assert_eq!(bytes(), before + 80 * KIB);
    let counted = files.usage()[0].used_bytes;
    let error = files.promise_bytes(number, 200 * KIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert_eq!((bytes(), files.usage()[0].used_bytes), (before + 80 * KIB, counted));
}

/// It would be begun there again, and find as little room.
#[test]
fn a_table_that_was_never_published_gives_nothing_back_to_what_its_device_refused() {
    let refused_after = |is_published| {
        let (devices, files) = database(2);
        let file = files.create_file(TABLE, TABLE_BYTES as u64).unwrap();
        fill(&file, TABLE_BYTES).unwrap();
        if is_published {
            files.publish(&[file.number()]).unwrap();
        }
        leave(&devices, 0, 0);
        let other = files.create_file(TABLE, 0).unwrap();
        assert_eq!(other.allocate(50 * KIB).unwrap_err().kind(), ErrorKind::OutOfSpace);
        let freed = used(&devices, 0);
        // Others take the most of it.
        set_device(&devices, 0, freed - 40 * KIB);
        files.delete_files(&[file.number()]).unwrap();
        files.tiers()[0].is_refused()
    };
    assert!(!refused_after(true) && refused_after(false));
}

#[test]
fn a_copy_that_no_other_tier_may_have_is_refused_without_a_word_of_no_tier() {
    let (devices, files) = database(2);
    leave(&devices, 0, 10 * KIB);
    let copy = FileContext { kind: FileKind::TableIndex, origin: Origin::Migration };
    let begin = |file: &Arc<File>| file.allocate(100 * KIB);
    let error = files.create_begun(copy, 100 * KIB, begin).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert!(!error.to_string().contains("no tier has room"), "{error}");
}

#[test]
fn tables_move_to_no_tier_that_has_refused() {
    let (devices, files) = database(2);
    leave(&devices, 1, 10 * KIB);
    let number = put(&files).unwrap();
    let error = files.migrate(number, TierIndex(1), &mut |_| {}).unwrap_err();
    assert_eq!((error.kind(), tier_of(&files, number)), (ErrorKind::OutOfSpace, 0));
    assert!(files.tiers()[1].is_refused());
    assert_content(&files, number, TABLE_BYTES);
    leave(&devices, 1, 200 * KIB);
    files.migrate(number, TierIndex(1), &mut |_| {}).unwrap();
    assert_content(&files, number, TABLE_BYTES);
}

/// The map lies on tier 0, which has no byte left: what it has reserved is used up, what is refused
/// has changed nothing, and goes on once there is room.
#[test]
fn a_map_without_room_refuses_changes_and_still_forgets_files() {
    let (devices, files) = database(2);
    let mut published = Vec::new();
    leave(&devices, 0, 0);
    let refused = loop {
        assert!(published.len() < 100, "a map of so many frames is longer than what it reserves");
        let begun = files.create_begun(TABLE, 4 * KIB, |file| fill(file, 4 << 10));
        let added =
            begun.and_then(|(file, ())| files.publish(&[file.number()]).map(|()| file.number()));
        match added {
            Ok(number) => published.push(number),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
    assert!(published.len() > 1, "some frames at a time");
    let unpublished = |files: &TieredFiles| files.files().iter().filter(|f| !f.published).count();
    assert_eq!(unpublished(&files), 1, "it is as it was before");
    let number = files.files().iter().find(|file| !file.published).unwrap().number;
    assert_eq!(files.publish(&[number]).unwrap_err().kind(), ErrorKind::OutOfSpace);
    files.delete_files(&published[..1]).unwrap();
    leave(&devices, 0, 100 * KIB);
    files.publish(&[number]).unwrap();
    drop(files);
    let files = open(&devices).unwrap();
    let found: Vec<_> = files.files().iter().map(|file| file.number).collect();
    assert_eq!(found, [&published[1..], &[number]].concat());
}

#[test]
fn a_map_without_room_to_grow_is_written_afresh_in_what_is_left() {
    let (devices, files) = database(1);
    let number = add(&files, TABLE, 10).unwrap();
    let change = |level| files.reclassify(number, FileKind::Table { level }).unwrap();
    (0..20).for_each(|level| change(level % 7));
    // One frame of this map, and one of the next.
    leave(&devices, 0, 8 * KIB);
    (0..200).for_each(|level| change(level % 7));
    drop(files);
    let found: Vec<_> = open(&devices).unwrap().files().iter().map(|file| file.number).collect();
    assert_eq!(found, [number]);
}

#[test]
fn a_journal_refuses_what_it_has_no_room_for_and_keeps_some_for_what_gives_room_back() {
    let (devices, files) = database(1);
    let context = FileContext { kind: FileKind::Manifest, origin: Origin::Foreground };
    let file = files.create_file(context, 0).unwrap();
    let mut journal = thermocline_device::Journal::create(Arc::clone(&file)).unwrap();
    journal.append(b"first").unwrap();
    leave(&devices, 0, 0);
    let mut appended = 1;
    while journal.append(b"more").is_ok() {
        appended += 1;
        assert!(appended < 100, "it is refused in the end");
    }
    let error = journal.append(b"more").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    let mut released = 0;
    while journal.append_for(b"less", Purpose::Release).is_ok() {
        released += 1;
        assert!(released < 100, "that too");
    }
    assert!(released >= 4, "{released}");
    leave(&devices, 0, 100 * KIB);
    journal.append(b"last").unwrap();
    let mut frames = Vec::new();
    let end = thermocline_device::Journal::read(&file, |payload| {
        frames.push(payload.to_vec());
        Ok(())
    });
    assert_eq!(end.unwrap().frames, appended + released + 1);
    assert_eq!((&frames[0][..], &frames[frames.len() - 1][..]), (&b"first"[..], &b"last"[..]));
}
