//! Gets and pages of scans.

use crate::support::*;
use bytes::Bytes;
use thermocline::{ByteSize, Db, ErrorKind, Scan, Settings};

fn filled(preset: thermocline::Preset, devices: &Devices, change: fn(&mut Settings)) -> Db {
    let mut settings = settings(preset);
    change(&mut settings);
    let db = devices.create(&settings);
    for number in 0..400 {
        db.put(format!("key {number:05}"), vec![number as u8; 300]).unwrap();
    }
    // Out of memory, and out of slots.
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db
}

#[test]
fn memory_answers_at_once_and_devices_when_they_have_read() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = filled(preset, &devices, |_| {});
        db.close().unwrap();
        let db = devices.open();
        db.put("new", "value").unwrap();
        db.put("gone", "value").unwrap();
        db.delete("gone").unwrap();
        devices.reads(Met::Wait);
        let mut now = db.get_async("new").unwrap();
        assert_eq!(now.poll_now().unwrap().unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.get_async("gone").unwrap().poll_now().unwrap().unwrap(), None);
        assert_eq!(db.stats().requests.threads, 0);
        let mut later = db.get_async("key 00123").unwrap();
        devices.wait_until_held();
        assert!(later.poll_now().is_none(), "the device has not read yet");
        devices.reads(Met::Nothing);
        assert_eq!(answer(later).unwrap().unwrap(), vec![123; 300]);
        assert_eq!(answer(db.get_async("absent").unwrap()).unwrap(), None);
        let gets = (0..400).map(|number| insist(|| db.get_async(format!("key {number:05}"))));
        for (number, ticket) in gets.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(ticket.wait().unwrap().unwrap(), vec![number as u8; 300]);
        }
        assert_eq!(db.stats().requests.gets, 402);
        assert_eq!(db.stats().operations.gets, 404, "each is counted once");
        db.close().unwrap();
    }
}

type Pair = (Bytes, Bytes);

/// All pages of a scan, of `bytes_max` each, and how many there were.
fn pages(scan: Scan, bytes_max: ByteSize) -> (Vec<Pair>, usize) {
    let mut page = answer(scan.page_async(bytes_max).unwrap()).unwrap();
    let (mut found, mut count) = (Vec::new(), 1);
    loop {
        assert!(page.records.len() < 8, "{} records of 300 bytes", page.records.len());
        found.extend(page.records.drain(..).map(Result::unwrap));
        match page.next_page_async(bytes_max).unwrap() {
            Some(ticket) => page = answer(ticket).unwrap(),
            None => return (found, count),
        }
        count += 1;
    }
}

#[test]
fn pages_have_what_a_scan_has() {
    for preset in PRESETS {
        let db = filled(preset, &Devices::default(), |_| {});
        let all = || db.scan().prefix("key 000");
        let scans: [fn(Scan) -> Scan; 4] = [
            |scan| scan,
            Scan::reverse,
            |scan| scan.limit(33),
            |scan| scan.from("key 00050").to("key 00090"),
        ];
        for describe in scans {
            let right: Vec<Pair> = describe(all()).into_iter().map(Result::unwrap).collect();
            assert!(right.len() >= 33);
            let (found, count) = pages(describe(all()), ByteSize(2000));
            assert!(found == right, "{} records of {}", found.len(), right.len());
            assert!(count > 4, "{count} pages");
            assert!(pages(describe(all()), ByteSize(0)).0 == right, "a record a page at least");
        }
        let (nothing, count) = pages(db.scan().prefix("nothing"), ByteSize(2000));
        assert!(nothing.is_empty() && count == 1);
        db.close().unwrap();
    }
}

#[test]
fn pages_of_a_scan_see_its_moment() {
    for preset in PRESETS {
        let db = filled(preset, &Devices::default(), |_| {});
        let snapshot = db.snapshot();
        let mut page = answer(snapshot.scan().page_async(ByteSize::kib(1)).unwrap()).unwrap();
        let mut count = 0;
        loop {
            for record in page.records.drain(..) {
                let (key, value) = record.unwrap();
                assert_eq!(value.len(), 300, "{}", key.escape_ascii());
                count += 1;
                db.put(&key, "later").unwrap();
            }
            if count % 100 < 4 {
                db.compact_range(None, None, &mut |_| {}).unwrap();
            }
            match page.next_page_async(ByteSize::kib(1)).unwrap() {
                Some(ticket) => page = answer(ticket).unwrap(),
                None => break,
            }
        }
        assert_eq!(count, 400);
        drop((page, snapshot));
        db.close().unwrap();
    }
}

#[test]
fn a_page_that_finds_no_room_can_be_asked_for_again() {
    let devices = Devices::default();
    let db = filled(PRESETS[0], &devices, |settings| settings.request_queue = 1);
    let scan = db.scan();
    let mut page = answer(scan.clone().page_async(ByteSize::kib(1)).unwrap()).unwrap();
    devices.syncs(Met::Wait);
    let write = db.put_async("key", "value").unwrap();
    for _ in 0..3 {
        let error = page.next_page_async(ByteSize::kib(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(scan.clone().page_async(ByteSize(1)).unwrap_err().kind(), ErrorKind::Busy);
    }
    devices.syncs(Met::Nothing);
    answer(write).unwrap();
    let next = answer(page.next_page_async(ByteSize::kib(1)).unwrap().unwrap()).unwrap();
    let (key, _) = next.records[0].as_ref().unwrap();
    assert_eq!(key, format!("key {:05}", page.records.len()).as_bytes());
    assert!(page.next_page_async(ByteSize::kib(1)).unwrap().is_none(), "it is given once");
    drop((scan, page, next));
    db.close().unwrap();
}
