//! The contract of `driver.rs`, checked on every driver.
//!
//! Each check is written once, takes a [`Subject`] and knows nothing of the driver under it; the
//! macro at the end makes one module of tests for each driver. A driver that the machine cannot
//! offer (direct I/O on a file system that refuses it) is passed over with a printed reason.
//!
//! Numbers in names of checks are those of the invariants in `driver.rs`. What a power cut does
//! (the durable half of 4, 5 and 6) cannot be seen from here; simulated devices check that.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod subject;

use proptest::prelude::*;
use subject::{Subject, pattern};
use thermocline_device::drivers::{Batches, DirectDriver, DriverSpec, PosixDriver, Waiting};
use thermocline_device::{Buffer, Completion, Driver, ErrorKind, Handle, Operation, Request};

fn read_request(tag: u64, file: &Handle, offset: u64, len: usize) -> Request {
    let operation = Operation::Read { offset, buffer: Buffer::zeroed(len) };
    Request { tag, file: file.clone(), operation }
}

fn write_request(tag: u64, file: &Handle, offset: u64, bytes: &[u8]) -> Request {
    let operation = Operation::Write { offset, buffer: Buffer::copy_of(bytes), durable: false };
    Request { tag, file: file.clone(), operation }
}

fn sync_request(tag: u64, file: &Handle) -> Request {
    Request { tag, file: file.clone(), operation: Operation::Sync }
}

fn read_at(driver: &dyn Driver, file: &Handle, offset: u64, len: usize) -> Vec<u8> {
    let buffer = Buffer::zeroed(len);
    let done = driver.execute(file, Operation::Read { offset, buffer });
    let got = done.result.unwrap();
    done.buffer[..got].to_vec()
}

fn write_at(driver: &dyn Driver, file: &Handle, offset: u64, bytes: &[u8]) {
    let buffer = Buffer::copy_of(bytes);
    let done = driver.execute(file, Operation::Write { offset, buffer, durable: false });
    assert_eq!(done.result.unwrap(), bytes.len());
    assert_eq!(&done.buffer[..], bytes, "the buffer comes back as it was");
}

/// Submits all, reaps all, in the order of the tags.
fn run_all(driver: &dyn Driver, depth: usize, mut requests: Vec<Request>) -> Vec<Completion> {
    let mut queue = driver.queue(depth).unwrap();
    let count = requests.len();
    queue.submit(&mut requests);
    assert!(requests.is_empty(), "submit takes every request");
    assert_eq!(queue.in_flight(), count);
    let mut done = Vec::new();
    while done.len() < count {
        let before = done.len();
        let reaped = queue.reap(1, &mut done);
        assert!(reaped >= 1 && done.len() == before + reaped);
        assert_eq!(queue.in_flight(), count - done.len());
    }
    assert_eq!(queue.reap(0, &mut done), 0, "nothing completes twice");
    done.sort_by_key(|completion| completion.tag);
    done
}

fn check_1_each_request_completes_once_with_its_tag_and_buffer(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    let writes = (0..8).map(|n| write_request(n, &file, n * unit as u64, &pattern(n, unit)));
    let done = run_all(driver, 8, writes.collect());
    assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    for (n, done) in done.iter().enumerate() {
        assert_eq!(*done.result.as_ref().unwrap(), unit);
        assert_eq!(&done.buffer[..], pattern(n as u64, unit));
    }
    let mixed = vec![
        read_request(7, &file, 7 * unit as u64, unit),
        sync_request(8, &file),
        read_request(9, &file, 0, 2 * unit),
        sync_request(u64::MAX, &file),
    ];
    let done = run_all(driver, 8, mixed);
    assert_eq!(&done[0].buffer[..], pattern(7, unit));
    assert_eq!((*done[1].result.as_ref().unwrap(), done[1].buffer.len()), (0, 0));
    assert_eq!(&done[2].buffer[unit..], pattern(1, unit));
    assert_eq!(done[3].tag, u64::MAX);
}

fn check_1_more_requests_than_the_queue_is_deep_all_complete(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    for depth in [1, 3, 64] {
        let writes =
            (0..200u64).map(|n| write_request(n, &file, n * unit as u64, &pattern(n, unit)));
        assert!(run_all(driver, depth, writes.collect()).iter().all(|done| done.result.is_ok()));
        let reads = (0..200u64).map(|n| read_request(n, &file, n * unit as u64, unit));
        for done in run_all(driver, depth, reads.collect()) {
            assert_eq!(&done.buffer[..], pattern(done.tag, unit), "depth {depth}");
        }
    }
}

fn check_1_tags_may_repeat_and_submissions_may_overlap(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(1, 4 * unit));
    let mut queue = driver.queue(4).unwrap();
    let mut done = Vec::new();
    for n in 0..30u64 {
        queue.submit(&mut vec![read_request(5, &file, n % 4 * unit as u64, unit)]);
        if queue.in_flight() > 3 {
            queue.reap(2, &mut done);
        }
    }
    queue.reap(queue.in_flight(), &mut done);
    assert_eq!(done.len(), 30);
    assert!(done.iter().all(|done| done.tag == 5 && *done.result.as_ref().unwrap() == unit));
    queue.submit(&mut Vec::new());
    assert_eq!((queue.in_flight(), queue.reap(0, &mut done)), (0, 0));
}

fn check_2_reads_are_short_only_at_the_end(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    assert!(read_at(driver, &file, 0, unit).is_empty());
    let bytes = pattern(3, 3 * unit);
    write_at(driver, &file, 0, &bytes);
    file.truncate(2 * unit as u64 + 100).unwrap();
    assert_eq!(file.len().unwrap(), 2 * unit as u64 + 100);
    assert_eq!(read_at(driver, &file, 0, 2 * unit), bytes[..2 * unit]);
    assert_eq!(read_at(driver, &file, unit as u64, 4 * unit), bytes[unit..2 * unit + 100]);
    assert_eq!(read_at(driver, &file, 2 * unit as u64, unit), bytes[2 * unit..2 * unit + 100]);
    assert!(read_at(driver, &file, 3 * unit as u64, unit).is_empty());
    assert!(read_at(driver, &file, 1 << 40, unit).is_empty());
    let ends = vec![
        read_request(0, &file, unit as u64, 4 * unit),
        read_request(1, &file, 2 * unit as u64, unit),
        read_request(2, &file, 1 << 40, unit),
    ];
    let got: Vec<usize> =
        run_all(driver, 4, ends).into_iter().map(|done| done.result.unwrap()).collect();
    assert_eq!(got, [unit + 100, 100, 0]);
}

fn check_2_a_read_fills_the_view_and_nothing_else(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(4, 2 * unit));
    let page = driver.alignment().max(4096);
    for queued in [false, true] {
        let mut buffer = Buffer::copy_of(&vec![0xEE; 3 * page]);
        buffer.set_view(page..page + unit);
        let operation = Operation::Read { offset: unit as u64, buffer };
        let mut done = if queued {
            let request = Request { tag: 0, file: file.clone(), operation };
            let other = read_request(1, &file, 0, unit);
            run_all(driver, 2, vec![request, other]).remove(0)
        } else {
            driver.execute(&file, operation)
        };
        assert_eq!(&done.buffer[..], &pattern(4, 2 * unit)[unit..]);
        done.buffer.set_view(0..3 * page);
        assert!(done.buffer[..page].iter().all(|byte| *byte == 0xEE));
        assert!(done.buffer[page + unit..].iter().all(|byte| *byte == 0xEE));
    }
}

fn check_3_writes_extend_the_file_and_holes_read_as_zero(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    assert!(file.is_empty().unwrap());
    write_at(driver, &file, 5 * unit as u64, &pattern(5, unit));
    assert_eq!(file.len().unwrap(), 6 * unit as u64);
    assert_eq!(read_at(driver, &file, 0, 5 * unit), vec![0; 5 * unit]);
    file.truncate(unit as u64).unwrap();
    file.allocate(8 * unit as u64).unwrap();
    assert_eq!(file.len().unwrap(), 8 * unit as u64);
    assert_eq!(read_at(driver, &file, 0, 9 * unit), vec![0; 8 * unit], "cut bytes stay gone");
    file.allocate(2 * unit as u64).unwrap();
    file.allocate(0).unwrap();
    assert_eq!(file.len().unwrap(), 8 * unit as u64, "allocation never cuts");
}

fn check_4_a_completed_write_is_seen_through_every_handle(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let first = driver.create("file").unwrap();
    let second = driver.open("file").unwrap();
    for n in 0..20 {
        let done = run_all(driver, 2, vec![write_request(n, &first, 0, &pattern(n, unit))]);
        assert!(done[0].result.is_ok());
        assert_eq!(read_at(driver, &second, 0, unit), pattern(n, unit));
    }
    assert!(driver.execute(&first, Operation::Sync).result.is_ok());
    let again = (subject.again)();
    let third = again.open("file").unwrap();
    assert_eq!(read_at(&*again, &third, 0, unit), pattern(19, unit));
}

fn check_9_durable_writes_are_writes_alone_and_in_queues(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    let write = |n: u64| Operation::Write {
        offset: n * unit as u64,
        buffer: Buffer::copy_of(&pattern(n, unit)),
        durable: true,
    };
    let done = driver.execute(&file, write(0));
    assert_eq!(done.result.unwrap(), unit);
    assert_eq!(&done.buffer[..], pattern(0, unit), "the buffer comes back as it was");
    let request = |tag| Request { tag, file: file.clone(), operation: write(tag) };
    for done in run_all(driver, 4, (1..9).map(request).collect()) {
        assert_eq!(done.result.unwrap(), unit);
    }
    for n in 0..9 {
        assert_eq!(read_at(driver, &file, n * unit as u64, unit), pattern(n, unit));
    }
}

fn check_4_queues_of_four_threads_work_at_once(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    let lane = |thread: u64, n: u64| (thread * 50 + n) * unit as u64;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                let bytes = |n| pattern(thread * 1000 + n, unit);
                let writes = (0..50).map(|n| write_request(n, file, lane(thread, n), &bytes(n)));
                let done = run_all(driver, 8, writes.collect());
                assert!(done.iter().all(|done| done.result.is_ok()));
                let reads = (0..50).map(|n| read_request(n, file, lane(thread, n), unit));
                for done in run_all(driver, 8, reads.collect()) {
                    assert_eq!(&done.buffer[..], bytes(done.tag));
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), 200 * unit as u64);
}

fn check_4_a_queue_outlives_the_thread_that_submitted(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    for round in 0..10u64 {
        let queue = std::thread::scope(|scope| {
            let submitted = scope.spawn(|| {
                let mut queue = driver.queue(32).unwrap();
                let writes = (0..32u64)
                    .map(|n| write_request(n, &file, n * unit as u64, &pattern(round + n, unit)));
                queue.submit(&mut writes.collect());
                queue
            });
            submitted.join().unwrap()
        });
        let (mut queue, mut done) = (queue, Vec::new());
        queue.reap(32, &mut done);
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
        for n in 0..32u64 {
            assert_eq!(read_at(driver, &file, n * unit as u64, unit), pattern(round + n, unit));
        }
    }
}

fn check_1_a_dropped_queue_has_finished_its_requests(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    for round in 0..10u64 {
        let mut queue = driver.queue(32).unwrap();
        let writes =
            (0..32u64).map(|n| write_request(n, &file, n * unit as u64, &pattern(round + n, unit)));
        queue.submit(&mut writes.collect());
        drop(queue);
        for n in 0..32u64 {
            assert_eq!(read_at(driver, &file, n * unit as u64, unit), pattern(round + n, unit));
        }
        // Reads whose buffers the queue frees: memory checkers see a transfer after the drop.
        let mut queue = driver.queue(32).unwrap();
        let reads = (0..32).map(|n| read_request(n, &file, n * unit as u64, unit));
        queue.submit(&mut reads.collect());
    }
}

fn check_6_rename_replaces_and_old_handles_go_on(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let (old, new) = (driver.create("old").unwrap(), driver.create("new").unwrap());
    write_at(driver, &old, 0, &pattern(1, unit));
    write_at(driver, &new, 0, &pattern(2, unit));
    driver.rename("new", "old").unwrap();
    driver.sync_directory().unwrap();
    assert_eq!(driver.open("new").unwrap_err().kind(), ErrorKind::NotFound);
    let opened = driver.open("old").unwrap();
    assert_eq!(read_at(driver, &opened, 0, unit), pattern(2, unit));
    assert_eq!(read_at(driver, &old, 0, unit), pattern(1, unit), "the replaced file lives on");
    driver.rename("old", "old").unwrap();
    assert_eq!(subject.names(), ["old"]);
}

fn check_7_alignment_is_a_power_of_two_and_asked_for(subject: &Subject) {
    let (driver, alignment) = (&*subject.driver, subject.driver.alignment());
    assert!(alignment.is_power_of_two() && alignment <= 4096);
    if alignment == 1 {
        let file = driver.create("file").unwrap();
        write_at(driver, &file, 3, &pattern(1, 7));
        assert_eq!(read_at(driver, &file, 5, 3), pattern(1, 7)[2..5]);
        return;
    }
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(1, 2 * alignment));
    let wrong = || {
        let mut shifted = Buffer::zeroed(2 * alignment);
        shifted.set_view(512..512 + alignment);
        [
            Operation::Read { offset: 1, buffer: Buffer::zeroed(alignment) },
            Operation::Read { offset: 0, buffer: Buffer::zeroed(100) },
            Operation::Read { offset: 0, buffer: shifted },
            Operation::Write { offset: 512, buffer: Buffer::zeroed(alignment), durable: false },
            Operation::Write { offset: 0, buffer: Buffer::zeroed(alignment + 1), durable: false },
        ]
    };
    let mut errors = Vec::new();
    for operation in wrong() {
        errors.push(driver.execute(&file, operation).result.unwrap_err());
    }
    let requests =
        wrong().into_iter().map(|operation| Request { tag: 0, file: file.clone(), operation });
    errors.extend(
        run_all(driver, 2, requests.collect()).into_iter().map(|done| done.result.unwrap_err()),
    );
    assert_eq!(errors.len(), 10);
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("file"), "{error}");
    }
    assert_eq!(read_at(driver, &file, 0, 2 * alignment), pattern(1, 2 * alignment));
}

fn check_8_a_deleted_file_stays_readable(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(6, unit));
    driver.delete("file").unwrap();
    assert!(subject.names().is_empty());
    assert_eq!(driver.open("file").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read_at(driver, &file, 0, unit), pattern(6, unit));
    let new = driver.create("file").unwrap();
    write_at(driver, &new, 0, &pattern(7, unit));
    let reads = vec![read_request(0, &file, 0, unit), read_request(1, &new, 0, unit)];
    let done = run_all(driver, 2, reads);
    assert_eq!(&done[0].buffer[..], pattern(6, unit));
    assert_eq!(&done[1].buffer[..], pattern(7, unit));
}

fn check_names_are_listed_with_lengths_and_errors_name_them(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("a").unwrap();
    driver.create("b").unwrap();
    write_at(driver, &file, 0, &pattern(1, unit));
    let mut entries = driver.list().unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.len)).collect();
    assert_eq!(found, [("a", unit as u64), ("b", 0)]);
    let error = driver.create("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(file.len().unwrap(), unit as u64, "a refused creation cuts nothing");
    for error in [
        driver.open("gone").unwrap_err(),
        driver.delete("gone").unwrap_err(),
        driver.rename("gone", "b").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("gone"), "{error}");
    }
    for name in ["", ".", "..", "a/b", "/a", "nul\0"] {
        assert_eq!(driver.create(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
        assert_eq!(driver.rename("a", name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
    assert_eq!(subject.names(), ["a", "b"]);
    let space = driver.space().unwrap();
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
}

fn check_an_absurd_offset_is_an_error_and_harms_nothing(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(1, unit));
    for offset in [1u64 << 62, u64::MAX - u64::MAX % 4096] {
        let write = write_request(0, &file, offset, &pattern(2, unit));
        assert!(driver.execute(&file, write.operation).result.is_err(), "{offset}");
        let write = write_request(0, &file, offset, &pattern(2, unit));
        let other = read_request(1, &file, 0, unit);
        let done = run_all(driver, 2, vec![write, other]);
        assert!(done[0].result.is_err() && done[1].result.is_ok(), "{offset}");
    }
    assert!(file.truncate(u64::MAX).is_err());
    assert!(file.allocate(u64::MAX).is_err());
    assert_eq!(file.len().unwrap(), unit as u64);
}

fn check_a_directory_is_locked_once(subject: &Subject) {
    let again = (subject.again)();
    let held = subject.driver.lock("LOCK").unwrap();
    for driver in [&subject.driver, &again] {
        let error = driver.lock("LOCK").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains("LOCK"), "{error}");
    }
    drop(held);
    let held = again.lock("LOCK").unwrap();
    assert_eq!(subject.driver.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
}

fn check_readers_share_a_directory_and_a_writer_has_it_alone(subject: &Subject) {
    let again = (subject.again)();
    let readers = [&subject.driver, &again].map(|driver| driver.lock_shared("LOCK").unwrap());
    assert!(readers.iter().all(Option::is_some));
    assert!(subject.names().is_empty(), "readers make no file");
    let [one, other] = readers;
    drop(one);
    assert_eq!(again.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked, "one still reads");
    drop(other);
    let held = again.lock("LOCK").unwrap();
    for driver in [&subject.driver, &again] {
        let error = driver.lock_shared("LOCK").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert!(error.to_string().contains("this process"), "{error}");
    }
    drop(held);
    assert!(subject.driver.lock_shared("LOCK").unwrap().is_some());
    assert!(subject.driver.lock("LOCK").is_ok());
}

fn check_files_opened_to_read_give_what_was_written(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    write_at(driver, &driver.create("file").unwrap(), 0, &pattern(3, 2 * unit));
    let file = driver.open_to_read("file").unwrap();
    assert_eq!(read_at(driver, &file, 0, 3 * unit), pattern(3, 2 * unit));
    let done = run_all(driver, 2, vec![read_request(1, &file, unit as u64, unit)]);
    assert_eq!(&done[0].buffer[..], &pattern(3, 2 * unit)[unit..]);
    assert_eq!(driver.open_to_read("absent").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(driver.open_to_read("../file").is_err());
}

fn check_links_share_bytes_or_are_declined(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(8, unit));
    let scratch = subject::scratch();
    let into = PosixDriver::open(scratch.path()).unwrap();
    let linked = driver.try_link("file", &into, "copy").unwrap();
    assert_eq!(linked, driver.host_directory().is_some());
    if linked {
        let copy = into.open("copy").unwrap();
        assert_eq!(read_at(&into, &copy, 0, unit), pattern(8, unit));
        let error = driver.try_link("file", &into, "copy").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        driver.delete("file").unwrap();
        assert_eq!(read_at(&into, &copy, 0, unit), pattern(8, unit));
        assert_eq!(
            driver.try_link("file", &into, "other").unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
    let memory = DriverSpec::Memory.open(scratch.path(), subject::clock()).unwrap();
    assert!(!driver.try_link("file", &*memory, "file").unwrap());
}

fn check_symbolic_links_are_names_that_are_never_followed(subject: &Subject) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let file = driver.create("file").unwrap();
    write_at(driver, &file, 0, &pattern(9, unit));
    driver.make_link("link", "file").unwrap();
    let error = driver.make_link("link", "other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert!(driver.create("link").is_err() && driver.open("link").is_err());
    assert_eq!(driver.read_link("link").unwrap().as_deref(), Some("file"));
    assert_eq!(driver.read_link("file").unwrap(), None);
    assert_eq!(driver.read_link("gone").unwrap_err().kind(), ErrorKind::NotFound);
    let mut entries = driver.list().unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.len, e.is_link)).collect();
    assert_eq!(found, [("file", unit as u64, false), ("link", 4, true)]);
    driver.make_link("new", "nowhere").unwrap();
    driver.rename("new", "link").unwrap();
    assert_eq!(driver.read_link("link").unwrap().as_deref(), Some("nowhere"));
    driver.rename("link", "file").unwrap();
    assert_eq!(driver.read_link("file").unwrap().as_deref(), Some("nowhere"));
    driver.delete("file").unwrap();
    assert!(subject.names().is_empty());
}

/// One step of a random history of one file, in units of the driver's alignment.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read {
        at: u64,
        len: usize,
    },
    Write {
        at: u64,
        len: usize,
        seed: u64,
    },
    /// Disjoint writes, every second unit from `at`.
    WriteMany {
        at: u64,
        count: u64,
        seed: u64,
    },
    ReadMany {
        count: u64,
    },
    Truncate {
        bytes: u64,
    },
    Allocate {
        bytes: u64,
    },
    Sync,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..48u64, 0..12usize).prop_map(|(at, len)| Step::Read { at, len }),
        (0..32u64, 0..12usize, 0..1000u64).prop_map(|(at, len, seed)| Step::Write {
            at,
            len,
            seed
        }),
        (0..16u64, 1..12u64, 0..1000u64).prop_map(|(at, count, seed)| Step::WriteMany {
            at,
            count,
            seed
        }),
        (1..40u64).prop_map(|count| Step::ReadMany { count }),
        (0..40_000u64).prop_map(|bytes| Step::Truncate { bytes }),
        (0..40_000u64).prop_map(|bytes| Step::Allocate { bytes }),
        Just(Step::Sync),
        Just(Step::Reopen),
    ]
}

fn write_model(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if !bytes.is_empty() {
        model.resize(model.len().max(end), 0);
        model[start..end].copy_from_slice(bytes);
    }
}

fn read_model(model: &[u8], offset: u64, len: usize) -> &[u8] {
    let start = (offset as usize).min(model.len());
    &model[start..(start + len).min(model.len())]
}

fn apply(subject: &Subject, file: &mut Handle, model: &mut Vec<u8>, step: Step) {
    let (driver, unit) = (&*subject.driver, subject.unit());
    let place = |at: u64| at * unit as u64;
    match step {
        Step::Read { at, len } => {
            let got = read_at(driver, file, place(at), len * unit);
            assert_eq!(got, read_model(model, place(at), len * unit));
        }
        Step::Write { at, len, seed } => {
            let bytes = pattern(seed, len * unit);
            write_at(driver, file, place(at), &bytes);
            write_model(model, place(at), &bytes);
        }
        Step::WriteMany { at, count, seed } => {
            let bytes = |n| pattern(seed + n, unit);
            let spot = |n: u64| place(at + 2 * n);
            let writes = (0..count).map(|n| write_request(n, file, spot(n), &bytes(n)));
            for done in run_all(driver, 4, writes.collect()) {
                assert_eq!(done.result.unwrap(), unit);
                write_model(model, spot(done.tag), &bytes(done.tag));
            }
        }
        Step::ReadMany { count } => {
            let reads = (0..count).map(|n| read_request(n, file, place(n), 2 * unit));
            for done in run_all(driver, 4, reads.collect()) {
                let got = done.result.unwrap();
                assert_eq!(&done.buffer[..got], read_model(model, place(done.tag), 2 * unit));
            }
        }
        Step::Truncate { bytes } => {
            file.truncate(bytes).unwrap();
            model.resize(bytes as usize, 0);
        }
        Step::Allocate { bytes } => {
            file.allocate(bytes).unwrap();
            model.resize(model.len().max(bytes as usize), 0);
        }
        Step::Sync => drop(driver.execute(file, Operation::Sync).result.unwrap()),
        Step::Reopen => *file = driver.open("file").unwrap(),
    }
    assert_eq!(file.len().unwrap(), model.len() as u64);
}

fn check_random_histories_match_a_vector_of_bytes(subject: &Subject) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let histories = proptest::collection::vec(step(), 1..30);
    let ran = runner.run(&histories, |history| {
        // A history that failed leaves its file, and a shorter one is tried next.
        match subject.driver.delete("file") {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        let mut model = Vec::new();
        let mut file = subject.driver.create("file").unwrap();
        for step in history {
            apply(subject, &mut file, &mut model, step);
        }
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}

macro_rules! contract {
    ($($driver:ident: $make:expr),+ $(,)?) => { $( contract!(@ $driver, $make,
        check_1_each_request_completes_once_with_its_tag_and_buffer
        check_1_more_requests_than_the_queue_is_deep_all_complete
        check_1_tags_may_repeat_and_submissions_may_overlap
        check_1_a_dropped_queue_has_finished_its_requests
        check_2_reads_are_short_only_at_the_end
        check_2_a_read_fills_the_view_and_nothing_else
        check_3_writes_extend_the_file_and_holes_read_as_zero
        check_4_a_completed_write_is_seen_through_every_handle
        check_4_queues_of_four_threads_work_at_once
        check_4_a_queue_outlives_the_thread_that_submitted
        check_9_durable_writes_are_writes_alone_and_in_queues
        check_6_rename_replaces_and_old_handles_go_on
        check_7_alignment_is_a_power_of_two_and_asked_for
        check_8_a_deleted_file_stays_readable
        check_names_are_listed_with_lengths_and_errors_name_them
        check_an_absurd_offset_is_an_error_and_harms_nothing
        check_a_directory_is_locked_once
        check_readers_share_a_directory_and_a_writer_has_it_alone
        check_links_share_bytes_or_are_declined
        check_symbolic_links_are_names_that_are_never_followed
        check_files_opened_to_read_give_what_was_written
        check_random_histories_match_a_vector_of_bytes
    ); )+ };
    (@ $driver:ident, $make:expr, $($check:ident)+) => {
        mod $driver {
            $(#[test]
            fn $check() {
                if let Some(subject) = $make {
                    super::$check(&subject);
                }
            })+
        }
    };
}

contract! {
    memory: crate::subject::memory(),
    posix: crate::subject::posix(),
    direct_ring: crate::subject::direct(true),
    direct_threads: crate::subject::direct(false),
    direct_poll: crate::subject::direct_waiting(crate::Waiting::Poll),
    direct_fixed: crate::subject::direct_waiting(crate::Waiting::Fixed(5)),
    direct_dynamic: crate::subject::direct_waiting(crate::Waiting::Dynamic(50)),
    emulated_memory: crate::subject::emulated(crate::Waiting::Interrupt),
    emulated_poll: crate::subject::emulated(crate::Waiting::Poll),
    emulated_fixed: crate::subject::emulated(crate::Waiting::Fixed(5)),
    emulated_dynamic: crate::subject::emulated(crate::Waiting::Dynamic(50)),
}

#[test]
fn links_are_listed_and_never_followed_and_directories_are_not_listed() {
    let Some(subject) = subject::posix() else {
        return;
    };
    let directory = subject.driver.host_directory().unwrap();
    thermocline_device::drivers::create_directory(&directory.join("directory")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.join("link")).unwrap();
    subject.driver.create("file").unwrap();
    assert_eq!(subject.names(), ["file", "link"]);
    assert!(subject.driver.open("link").is_err(), "links lead out of the directory");
}

fn check_full_and_read_only(driver: &dyn Driver, mount: &subject::Mount) {
    let file = driver.create("file").unwrap();
    for queued in [false, true] {
        let write = write_request(1, &file, 0, &pattern(1, 1 << 20));
        let error = if queued {
            let requests = vec![write, sync_request(9, &file)];
            run_all(driver, 2, requests).remove(0).result.unwrap_err()
        } else {
            driver.execute(&file, write.operation).result.unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        let text = error.to_string();
        assert!(text.contains("write 1048576 bytes at 0 of") && text.contains("/file: "), "{text}");
    }
    let error = file.allocate(1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(driver.space().unwrap().total_bytes <= 64 << 10);
    driver.delete("file").unwrap();
    drop(file);
    mount.make("ro");
    let error = driver.create("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    let text = error.to_string();
    assert!(text.contains("Read-only") && text.contains("other"), "{text}");
    mount.make("rw");
}

#[test]
fn a_full_and_a_read_only_file_system_are_told_apart() {
    let Some(mount) = subject::Mount::new("tmpfs", "size=64k") else {
        return;
    };
    check_full_and_read_only(&PosixDriver::open(mount.path()).unwrap(), &mount);
    for batches in [Batches::Ring, Batches::Threads] {
        match DirectDriver::open(mount.path(), batches) {
            Ok(driver) => check_full_and_read_only(&driver, &mount),
            // Linux before 6.6.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
    }
}

#[test]
fn what_is_asked_to_leave_the_page_cache_leaves_it_and_is_read_again() {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    // Beside the build's output, which is on a disk more often than `/tmp` is.
    let scratch = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let driver = PosixDriver::open(scratch.path()).unwrap();
    let (file, bytes) = (driver.create("a").unwrap(), pattern(7, 1 << 20));
    write_at(&driver, &file, 0, &bytes);
    driver.execute(&file, Operation::Sync).result.unwrap();
    let path = scratch.path().join("a");
    let raw = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let is_cached = || {
        let mut to = [0; 4096];
        let buffers = &mut [std::io::IoSliceMut::new(&mut to)];
        preadv2(&raw, buffers, 512 << 10, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
    };
    assert!(is_cached(), "it was just written");
    file.forget_cached();
    let kind = rustix::fs::fstatfs(&raw).unwrap().f_type;
    // Of ext4, XFS and btrfs; others are memory, or have caches of their own.
    if [0xEF53, 0x5846_5342, 0x9123_683E].contains(&(kind as u64)) {
        assert!(!is_cached());
    }
    file.read_ahead();
    assert_eq!(read_at(&driver, &file, 0, bytes.len()), bytes);
}

#[test]
fn a_file_system_without_direct_io_is_refused_and_emulated_over_posix() {
    let Some(mount) = subject::Mount::new("ramfs", "rw") else {
        return;
    };
    let error = DirectDriver::open(mount.path(), Batches::Ring).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    assert!(text.contains("`posix`") && text.contains(mount.path().to_str().unwrap()), "{text}");
    let spec: DriverSpec = "emulated-optane-p5800x".parse().unwrap();
    let driver = spec.open(mount.path(), subject::clock()).unwrap();
    assert_eq!(driver.alignment(), 1);
    assert!(driver.list().unwrap().is_empty(), "probing leaves nothing behind");
}
