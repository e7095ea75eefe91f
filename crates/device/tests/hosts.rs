//! Directories of another program by their paths, on real directories: which ones are managed, what
//! moves by itself, and how one ends.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "the test is the host, whose files are its own")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thermocline_device::file_cache::extents::Cached;
use thermocline_device::names::NameCounts;
use thermocline_device::{
    ErrorKind, FileClass, HostSettings, Hosts, NamedFile, Origin, SystemDevices,
};
use thermocline_foundation::SystemClock;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        ["db", "fast"].iter().for_each(|name| fs::create_dir(scratch.path().join(name)).unwrap());
        Self(scratch)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn hosts(&self, query: &str) -> Hosts {
        let fast = self.path("fast");
        let query = query.replace("FAST", fast.to_str().unwrap());
        let settings = HostSettings::of_query(&query).unwrap();
        Hosts::new(Arc::new(SystemDevices::default()), Arc::new(SystemClock::new()), settings)
            .unwrap()
    }

    fn two(&self) -> Hosts {
        self.hosts("tier=FAST:1GiB&tier=home:1GiB&placement=room")
    }

    fn put(&self, hosts: &Hosts, name: &str, level: u8) -> Arc<NamedFile> {
        let class = FileClass { level: Some(level), ..of(name) };
        let file = hosts.create(&self.path(name), class).unwrap().unwrap();
        fs::write(file.place(), name).unwrap();
        file.synced().unwrap();
        Arc::clone(file.file())
    }
}

fn of(name: &str) -> FileClass {
    FileClass { origin: Origin::Flush, ..FileClass::of_name(name) }
}

fn names(hosts: &Hosts, directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = hosts.list(directory).unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    names
}

#[test]
fn a_directory_is_managed_from_its_first_table_or_log_on() {
    let place = Place::new();
    let hosts = place.two();
    fs::write(place.path("db/CURRENT"), "plain").unwrap();
    assert!(hosts.create(&place.path("db/MANIFEST"), of("MANIFEST")).unwrap().is_none());
    assert!(hosts.open(&place.path("db/CURRENT")).unwrap().is_none());
    assert!(!place.path("db/.thermocline").exists());
    let file = place.put(&hosts, "db/1.sst", 0);
    assert!(file.place().starts_with(place.path("fast")), "{:?}", file.place());
    assert!(fs::symlink_metadata(place.path("db/1.sst")).unwrap().is_symlink());
    assert!(hosts.open(&place.path("db/CURRENT")).unwrap().is_none());
    let opened = hosts.open(&place.path("db/1.sst")).unwrap().unwrap();
    assert_eq!(opened.place(), file.place());
    let missing = hosts.open(&place.path("db/2.sst")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::create_dir(place.path("db/archive")).unwrap();
    assert_eq!(names(&hosts, &place.path("db")), ["1.sst", "CURRENT", "archive"]);
    let listed = hosts.list(&place.path("db")).unwrap();
    assert_eq!(listed.iter().find(|entry| entry.name == "1.sst").unwrap().len, 8);
}

#[test]
fn a_name_that_leads_nowhere_is_not_listed_and_one_of_which_nothing_is_told_is() {
    let place = Place::new();
    let hosts = place.two();
    place.put(&hosts, "db/1.sst", 0);
    // As where a device fails: the system refuses to look.
    let too_long = "x".repeat(300);
    for (name, target) in [("gone", "nothing"), ("loop", "loop"), ("2.log", &too_long)] {
        std::os::unix::fs::symlink(target, place.path("db").join(name)).unwrap();
    }
    let listed = hosts.list(&place.path("db")).unwrap();
    let mut listed: Vec<_> = listed.into_iter().map(|entry| (entry.name, entry.len)).collect();
    listed.sort();
    assert_eq!(listed, [("1.sst".to_owned(), 8), ("2.log".to_owned(), 0)]);
}

#[test]
fn a_path_through_a_link_leads_to_the_same_directory() {
    let place = Place::new();
    let hosts = place.two();
    place.put(&hosts, "db/1.sst", 0);
    std::os::unix::fs::symlink(place.path("db"), place.path("other")).unwrap();
    place.put(&hosts, "other/2.sst", 0);
    assert_eq!(names(&hosts, &place.path("db")), ["1.sst", "2.sst"]);
    assert_eq!(hosts.report().len(), 1);
}

#[test]
fn files_go_between_directories_by_rename_and_link() {
    let place = Place::new();
    let hosts = place.two();
    fs::create_dir(place.path("new")).unwrap();
    fs::create_dir(place.path("plain")).unwrap();
    place.put(&hosts, "db/1.sst", 0);
    hosts.rename(&place.path("db/1.sst"), &place.path("new/7.sst")).unwrap();
    hosts.link(&place.path("new/7.sst"), &place.path("db/2.sst")).unwrap();
    assert_eq!(fs::read_to_string(place.path("db/2.sst")).unwrap(), "db/1.sst");
    assert_eq!(names(&hosts, &place.path("db")), ["2.sst"]);
    // A name that no tier takes: the host copies.
    let refused = hosts.rename(&place.path("db/2.sst"), &place.path("plain/2.bak")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    // Plain files of plain directories.
    fs::write(place.path("plain/3.sst"), "three").unwrap();
    hosts.link(&place.path("plain/3.sst"), &place.path("plain/4.sst")).unwrap();
    hosts.rename(&place.path("plain/3.sst"), &place.path("db/3.sst")).unwrap();
    assert!(hosts.open(&place.path("db/3.sst")).unwrap().is_some(), "it may move later");
    hosts.truncate(&place.path("plain/4.sst"), 2).unwrap();
    assert_eq!(fs::read_to_string(place.path("plain/4.sst")).unwrap(), "th");
    let refused = hosts.rename(&place.path("plain/4.sst"), &place.path("db/2.sst")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    hosts.delete(&place.path("plain/4.sst")).unwrap();
    hosts.delete(&place.path("db/2.sst")).unwrap();
    assert_eq!(names(&hosts, &place.path("db")), ["3.sst"]);
}

#[test]
fn plain_files_that_come_and_go_are_known_by_name() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:1GiB&tier=home:1GiB&placement=log_only");
    let kept = place.put(&hosts, "db/1.sst", 0);
    assert_eq!(kept.place(), place.path("db/1.sst"), "tables lie at home");
    fs::create_dir(place.path("plain")).unwrap();
    // Another file takes the name: reads through the name find it.
    fs::write(place.path("plain/new.sst"), "a longer one").unwrap();
    hosts.rename(&place.path("plain/new.sst"), &place.path("db/1.sst")).unwrap();
    let opened = hosts.open(&place.path("db/1.sst")).unwrap().unwrap();
    assert_eq!(fs::read(opened.place_to_read()).unwrap(), b"a longer one");
    drop((kept, opened));
    // It leaves: its name is free, and the directory can go.
    hosts.rename(&place.path("db/1.sst"), &place.path("plain/1.bak")).unwrap();
    let gone = hosts.open(&place.path("db/1.sst")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    hosts.remove_directory(&place.path("db")).unwrap();
    assert_eq!(fs::read(place.path("plain/1.bak")).unwrap(), b"a longer one");
}

#[test]
fn a_table_whose_level_becomes_known_moves_by_itself() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:1GiB&tier=home:1GiB&placement=top_levels(0)");
    let file = place.put(&hosts, "db/1.sst", 0);
    hosts.set_level(&place.path("db/1.sst"), 5).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while hosts.report()[0].counts.moved_by_level == 0 {
        assert!(Instant::now() < deadline, "the table stays on the fast tier");
        std::thread::yield_now();
    }
    assert_eq!(file.epoch().load(Acquire), 1);
    assert_eq!(file.place(), place.path("db/1.sst"));
    assert_eq!(fs::read_to_string(file.place()).unwrap(), "db/1.sst");
    let report = hosts.report();
    assert_eq!((report[0].counts.moved_by_level, report[0].counts.corrected_levels), (1, 1));
    assert_eq!((report[0].tiers[0].used_bytes, report[0].tiers[1].used_bytes), (0, 8));
    assert_eq!(report[0].tiers[1].levels[0].level, Some(5));
}

#[test]
fn a_table_that_is_read_much_is_copied_and_the_copy_goes_with_it_or_for_want_of_room() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:64MiB&tier=home:1GiB&placement=top_levels(0)&cache=files");
    let (hot, cold) = (place.put(&hosts, "db/1.sst", 5), place.put(&hosts, "db/2.sst", 5));
    assert_eq!(hot.place(), place.path("db/1.sst"));
    let count = |count: fn(&NameCounts) -> u64| count(&hosts.report()[0].counts);
    let deadline = Instant::now() + Duration::from_secs(60);
    while count(|counts| counts.copied) == 0 {
        assert!(Instant::now() < deadline, "there is no copy");
        hot.was_read();
        std::thread::sleep(Duration::from_millis(10));
    }
    let copy = hot.place_to_read();
    assert!(copy.starts_with(place.path("fast")) && hot.epoch().load(Acquire) == 1, "{copy:?}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "db/1.sst");
    assert_eq!(cold.place_to_read(), cold.place());
    let tier = &hosts.report()[0].tiers[0];
    assert_eq!((tier.copies, tier.copied_bytes, tier.used_bytes), (1, 8, 0));
    // Logs come first: eight of them may become as long as all of the tier.
    let log = |number| hosts.create(&place.path(&format!("db/{number}.log")), of("3.log")).unwrap();
    let logs: Vec<_> = (3..11).map(log).collect();
    drop(logs);
    assert_eq!(count(|counts| counts.dropped_copies), 1);
    assert!(!copy.exists() && hot.place_to_read() == hot.place());
    assert_eq!(hot.epoch().load(Acquire), 2);
}

/// Reads a file by extents as a plugin does; the answer, and whether all of it was served.
fn read_by_extents(file: &Arc<NamedFile>) -> (Vec<u8>, bool) {
    let (mut bytes, mut is_served) = (vec![0; 64 << 10], true);
    for (at, part) in (0..).step_by(8192).zip(bytes.chunks_mut(8192)) {
        let epoch = file.epoch().load(Acquire);
        let there = fs::File::open(file.place_to_read()).unwrap();
        match file.read_cached(epoch, at, part) {
            Cached::Served(len) => assert_eq!(len, part.len()),
            Cached::Missed(wanted) => {
                is_served = false;
                there.read_exact_at(part, at).unwrap();
                if let Some(wanted) = wanted {
                    let mut all = vec![0; wanted.len];
                    there.read_exact_at(&mut all, wanted.offset).unwrap();
                    file.fill(epoch, wanted, &all);
                }
            }
        }
    }
    (bytes, is_served)
}

fn read_until_served(file: &Arc<NamedFile>, expected: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (bytes, is_served) = read_by_extents(file);
        assert!(bytes == expected, "it has other bytes");
        if is_served {
            return;
        }
        assert!(Instant::now() < deadline, "it is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn extents_that_are_read_again_are_warm_after_a_restart_and_those_of_a_replaced_file_are_not() {
    let place = Place::new();
    let query = "tier=FAST:64MiB&tier=home:1GiB&placement=top_levels(0)&cache=extents\
                 &cache_size=2MiB";
    let bytes =
        |number: u8| -> Vec<u8> { (0..64 << 10).map(|at| (at >> 8) as u8 ^ number).collect() };
    let put = |hosts: &Hosts, name: &str, bytes: &[u8]| {
        let class = FileClass { level: Some(5), ..of(name) };
        let file = hosts.create(&place.path(name), class).unwrap().unwrap();
        fs::write(file.place(), bytes).unwrap();
        file.synced().unwrap();
        Arc::clone(file.file())
    };
    let hosts = place.hosts(query);
    let (file, other) = (put(&hosts, "db/1.sst", &bytes(1)), put(&hosts, "db/2.sst", &bytes(2)));
    assert_eq!(file.place(), place.path("db/1.sst"));
    read_until_served(&other, &bytes(2));
    read_until_served(&file, &bytes(1));
    assert!(hosts.report()[0].extents.unwrap().admitted >= 16);
    drop((file, other, hosts));

    let hosts = place.hosts(query);
    let file = hosts.open(&place.path("db/1.sst")).unwrap().unwrap();
    put(&hosts, "db/3.sst", &bytes(3));
    read_until_served(&file, &bytes(1));
    let extents = hosts.report()[0].extents.unwrap();
    assert!(extents.admitted == 0 && extents.adopted >= 16, "{extents:?}");
    // Another file under the name, and the file written in place.
    let replaced = put(&hosts, "db/1.sst", &bytes(4));
    read_until_served(&replaced, &bytes(4));
    let writer = hosts.open_to_write(&place.path("db/1.sst")).unwrap().unwrap();
    fs::write(writer.place(), bytes(5)).unwrap();
    assert_eq!(read_by_extents(&replaced), (bytes(5), false));
    writer.synced().unwrap();
    drop(writer);
    read_until_served(&replaced, &bytes(5));
    drop((file, replaced, hosts));

    // Switched off, it leaves nothing.
    let hosts = place.hosts("tier=FAST:64MiB&tier=home:1GiB&placement=top_levels(0)");
    drop(put(&hosts, "db/4.sst", &bytes(6)));
    assert_eq!(hosts.report()[0].extents, None);
    let tier = fs::read_dir(place.path("fast")).unwrap().next().unwrap().unwrap().path();
    let names = fs::read_dir(tier).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().ends_with(".cache")));
}

#[test]
fn upper_levels_stay_fast_as_far_as_there_is_room_for_what_the_levels_have() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:64MiB&tier=home:1GiB&placement=room");
    let table = |number: u32, level: u8, mib: usize| {
        let name = format!("db/{number}.sst");
        let class = FileClass { level: Some(level), ..of(&name) };
        let file = hosts.create(&place.path(&name), class).unwrap().unwrap();
        fs::write(file.place(), vec![1; mib << 20]).unwrap();
        file.synced().unwrap();
        file.place().starts_with(place.path("fast"))
    };
    // Files are expected to have 8 MiB each until one was seen, an eighth of the tier.
    let log = |number| hosts.create(&place.path(&format!("db/{number}.log")), of("1.log")).unwrap();
    let logs: Vec<_> = (10..17).map(log).collect();
    assert!(!table(1, 2, 24) && !table(2, 2, 48), "logs have the fast tier");
    drop(logs);
    assert!(table(3, 0, 4) && table(4, 1, 4));
    assert!(!table(5, 2, 8), "level 2 has more than the fast tier");
    assert!(table(6, 0, 4));
}

#[test]
fn a_directory_that_is_renamed_keeps_its_tiers_and_one_that_is_empty_leaves_them() {
    let place = Place::new();
    let hosts = place.two();
    fs::create_dir(place.path("db.tmp")).unwrap();
    place.put(&hosts, "db.tmp/1.sst", 0);
    fs::remove_dir(place.path("db")).unwrap();
    hosts.rename(&place.path("db.tmp"), &place.path("db")).unwrap();
    place.put(&hosts, "db/2.sst", 0);
    assert_eq!(names(&hosts, &place.path("db")), ["1.sst", "2.sst"]);
    let refused = hosts.remove_directory(&place.path("db")).unwrap_err();
    assert!(refused.to_string().contains("not empty"), "{refused}");
    hosts.delete(&place.path("db/1.sst")).unwrap();
    hosts.delete(&place.path("db/2.sst")).unwrap();
    hosts.remove_directory(&place.path("db")).unwrap();
    assert!(!place.path("db").exists());
    assert_eq!(fs::read_dir(place.path("fast")).unwrap().count(), 0);
    fs::create_dir(place.path("db")).unwrap();
    place.put(&hosts, "db/3.sst", 0);
}

#[test]
fn a_released_directory_may_be_changed_by_another_process() {
    let place = Place::new();
    let (one, other) = (place.two(), place.two());
    drop(place.put(&one, "db/1.sst", 0));
    let class = of("db/2.sst");
    let locked = other.create(&place.path("db/2.sst"), class).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
    one.release(&place.path("db")).unwrap();
    drop(place.put(&other, "db/2.sst", 0));
    other.release(&place.path("db")).unwrap();
    place.put(&one, "db/3.sst", 0);
    assert_eq!(names(&one, &place.path("db")), ["1.sst", "2.sst", "3.sst"]);
}

#[test]
fn a_released_directory_with_an_open_file_is_found_again_by_its_own_process() {
    let place = Place::new();
    let (one, other) = (place.two(), place.two());
    let file = place.put(&one, "db/1.sst", 0);
    one.release(&place.path("db")).unwrap();
    assert!(one.report().is_empty());
    let again = one.open(&place.path("db/1.sst")).unwrap().unwrap();
    assert!(Arc::ptr_eq(&file, &again), "there is one of it");
    assert!(one.report().is_empty(), "a reader does not take it back");
    let locked = other.create(&place.path("db/2.sst"), of("db/2.sst")).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
    drop(place.put(&one, "db/2.sst", 0));
    assert_eq!(one.report().len(), 1);
    drop((file, again));
    let locked = other.delete(&place.path("db/2.sst")).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
    one.release(&place.path("db")).unwrap();
    other.delete(&place.path("db/2.sst")).unwrap();
}

#[test]
fn what_a_process_deletes_after_a_release_is_gone_and_the_directory_stays_released() {
    let place = Place::new();
    let (one, other) = (place.two(), place.two());
    let file = place.put(&one, "db/1.sst", 0);
    for name in ["db/2.sst", "db/3.sst", "db/4.sst"] {
        drop(place.put(&one, name, 0));
    }
    one.release(&place.path("db")).unwrap();
    one.delete(&place.path("db/2.sst")).unwrap();
    drop(file);
    // No file of it is open any more, so that the deletion takes it for itself.
    one.delete(&place.path("db/3.sst")).unwrap();
    one.sync_directory(&place.path("db")).unwrap();
    one.rename(&place.path("db/4.sst"), &place.path("db/5.sst")).unwrap();
    drop(place.put(&other, "db/6.sst", 0));
    assert_eq!(names(&one, &place.path("db")), ["1.sst", "5.sst", "6.sst"]);
}

#[test]
fn a_directory_is_renamed_also_while_a_file_of_it_is_open() {
    let place = Place::new();
    let hosts = place.two();
    let file = place.put(&hosts, "db/1.sst", 0);
    hosts.rename(&place.path("db"), &place.path("new")).unwrap();
    drop(file);
    drop(place.put(&hosts, "new/2.sst", 0));
    assert_eq!(names(&hosts, &place.path("new")), ["1.sst", "2.sst"]);
}

/// Another environment of the same host, which has no plugin, deletes files of the directory.
#[test]
fn a_directory_ends_also_where_the_host_deleted_names_by_itself() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:1GiB&tier=home:1GiB&placement=top_levels(0)");
    place.put(&hosts, "db/1.sst", 0);
    place.put(&hosts, "db/2.sst", 6);
    let second = fs::symlink_metadata(place.path("db/2.sst")).unwrap();
    assert!(!second.is_symlink(), "one name is a link, one a plain file");
    ["db/1.sst", "db/2.sst"].iter().for_each(|name| fs::remove_file(place.path(name)).unwrap());
    hosts.remove_directory(&place.path("db")).unwrap();
    assert!(!place.path("db").exists());
    assert_eq!(fs::read_dir(place.path("fast")).unwrap().count(), 0);
}

/// After a loss of power a name may be back whose file is not: what was just made, or deleted.
#[test]
fn links_without_files_keep_no_host_from_removing_its_directory() {
    let place = Place::new();
    let hosts = place.two();
    place.put(&hosts, "db/1.sst", 0);
    let gone = place.put(&hosts, "db/2.sst", 0).place();
    drop(hosts);
    fs::remove_file(gone).unwrap();
    let hosts = place.two();
    hosts.delete(&place.path("db/1.sst")).unwrap();
    let lost = place.path("db/.thermocline/lost");
    assert_eq!(fs::read_dir(&lost).unwrap().count(), 1);
    fs::write(lost.join("NOTE"), b"a user's").unwrap();
    let refused = hosts.remove_directory(&place.path("db")).unwrap_err();
    assert!(refused.to_string().contains("/.thermocline/lost/NOTE is no link"), "{refused}");
    assert_eq!(fs::read_dir(&lost).unwrap().count(), 2);
    fs::remove_file(lost.join("NOTE")).unwrap();
    hosts.remove_directory(&place.path("db")).unwrap();
    assert!(!place.path("db").exists());
    assert_eq!(fs::read_dir(place.path("fast")).unwrap().count(), 0);
}

#[test]
fn a_removal_that_was_cut_off_is_done_by_the_next_one() {
    // After the first step; when all is gone but the lock; the directory alone.
    for left in [&["CREATING", "LOCK"][..], &["LOCK"], &[]] {
        let place = Place::new();
        let hosts = place.two();
        drop(place.put(&hosts, "db/1.sst", 0));
        hosts.delete(&place.path("db/1.sst")).unwrap();
        drop(hosts);
        let own = place.path("db/.thermocline");
        fs::rename(own.join("DATABASE"), own.join("CREATING")).unwrap();
        for entry in fs::read_dir(&own).unwrap().map(|entry| entry.unwrap()) {
            let is_gone = !left.contains(&entry.file_name().to_str().unwrap());
            match left.contains(&"CREATING") {
                true => {}
                false if entry.path().is_dir() && !entry.path().is_symlink() => {
                    fs::remove_dir(entry.path()).unwrap();
                }
                false if is_gone => fs::remove_file(entry.path()).unwrap(),
                false => {}
            }
        }
        let hosts = place.two();
        hosts.remove_directory(&place.path("db")).unwrap();
        assert!(!place.path("db").exists(), "{left:?}");
        let on_fast = fs::read_dir(place.path("fast")).unwrap().count();
        assert_eq!(on_fast == 0, left.contains(&"CREATING"), "{left:?}");
    }
}

#[test]
fn figures_tell_writers_reads_and_directories_that_may_take_more_than_their_device_has() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:1MiB&tier=home:1MiB&placement=parallelism");
    let writer = hosts.create(&place.path("db/1.log"), of("1.log")).unwrap().unwrap();
    let report = hosts.report().remove(0);
    let writers: Vec<u16> = report.tiers.iter().map(|tier| tier.writers).collect();
    assert_eq!((writers, report.move_threads), (vec![1, 0], 0));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    drop((writer, hosts));

    let hosts = place.hosts("tier=FAST:8000TB&tier=home:8000TB&placement=top_levels(0)");
    let (upper, lower) = (place.put(&hosts, "db/2.log", 0), place.put(&hosts, "db/3.sst", 6));
    assert_eq!(hosts.report()[0].tiers[0].hit_percent, None);
    (0..3).for_each(|_| upper.was_read());
    lower.was_read();
    let report = hosts.report().remove(0);
    let of_levels = |at: usize| -> Vec<(Option<u8>, u64)> {
        report.tiers[at].levels.iter().map(|level| (level.level, level.file_reads)).collect()
    };
    let hits = [0, 1].map(|at| report.tiers[at].hit_percent);
    assert_eq!((hits, of_levels(1)), ([Some(75), None], vec![(Some(6), 1)]));
    assert!(of_levels(0).contains(&(Some(0), 3)), "{:?}", of_levels(0));
    assert!(report.warnings[0].contains("lower the capacities"), "{:?}", report.warnings);
}

#[test]
fn room_is_that_of_the_tiers() {
    let place = Place::new();
    let hosts = place.hosts("tier=FAST:300MiB&tier=home:200MiB&placement=fill_first");
    fs::write(place.path("db/CURRENT"), "plain").unwrap();
    assert!(hosts.free_bytes(&place.path("db")).unwrap() > 500 << 20, "that of the file system");
    drop(hosts.create(&place.path("db/1.log"), of("1.log")).unwrap());
    let free = hosts.free_bytes(&place.path("db")).unwrap();
    assert!(free <= 500 << 20, "{free}");
}

/// A table of 40 KiB whose level is not known.
fn put_unknown(place: &Place, hosts: &Hosts) -> Arc<NamedFile> {
    let file = hosts.create(&place.path("db/1.sst"), of("1.sst")).unwrap().unwrap();
    fs::write(file.place(), [7; 40 << 10]).unwrap();
    file.synced().unwrap();
    Arc::clone(file.file())
}

#[test]
fn what_a_tier_keeps_free_and_the_level_of_what_is_not_known_are_settings() {
    let tiers = "tier=FAST:64KiB&tier=home:1GiB&placement=top_levels(0)";
    let place = Place::new();
    let file = put_unknown(&place, &place.hosts(tiers));
    assert_eq!(file.place(), place.path("db/1.sst"), "it counts as a deep level");
    let place = Place::new();
    let set = "&unknown_level=0&free_upper_percent=50&free_lower_percent=40";
    let hosts = place.hosts(&format!("{tiers}{set}"));
    let file = put_unknown(&place, &hosts);
    let deadline = Instant::now() + Duration::from_secs(60);
    while hosts.report()[0].counts.moved_by_force == 0 {
        assert!(Instant::now() < deadline, "it stays on a tier of which 37 % are free");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(file.epoch().load(Acquire), 1, "it was on the fast tier");
    assert_eq!(file.place(), place.path("db/1.sst"));
}

#[test]
fn settings_that_were_set_by_hand_are_checked_as_well() {
    let good = HostSettings::of_query("tier=home:1GiB").unwrap();
    let refused = |settings: HostSettings, key: &str| {
        let (devices, clock) = (SystemDevices::default(), SystemClock::new());
        let made = Hosts::new(Arc::new(devices), Arc::new(clock), settings);
        let error = made.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(key), "{error}");
    };
    let window = thermocline_foundation::Duration(Duration::ZERO);
    refused(HostSettings { window, ..good.clone() }, "window=");
    refused(HostSettings { free_upper_percent: 200, ..good }, "free_upper_percent=200");
}
