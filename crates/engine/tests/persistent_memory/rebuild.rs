//! The index in persistent memory is made anew: damaged, lost, or in another region.

use crate::indexed::{State, check, churn, create, indexed, key};
use crate::regions::{PERSISTENT, ShadowRegions};
use crate::support::{HOME, Machine, REGION, contents_of, copy_of};
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Environment, ErrorKind, PersistentMemory, RegionDriver, Regions, Settings,
    Unreadable,
};
use thermocline_device::{
    Buffer, Driver, Error as DeviceError, ErrorKind as DeviceErrorKind, Operation,
    Result as DeviceResult,
};
use thermocline_foundation::random::Random;
use thermocline_pmem::chunks::{ChunkKind, Extent, runs};
use thermocline_pmem::layout::CHUNK_HEADER_BYTES;
use thermocline_pmem::{Circumstances, Entry, Expected, Medium, Region, RegionIdentity, Tree};

fn with_region(path: &str) -> Settings {
    with_region_of(path, 16, indexed())
}

/// `settings` of an opening, with a region of so many MiB.
fn with_region_of(path: &str, mib: u64, settings: Settings) -> Settings {
    let region = PersistentMemory::new(path, ByteSize::mib(mib));
    Settings { tiers: Vec::new(), persistent_memory: Some(region), ..settings }
}

/// A store with records in tables and in memtables, after the end of its process.
fn killed() -> (Machine, State) {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(31);
    churn(&db, &mut state, &mut random, 0..6);
    db.settle().unwrap();
    for number in 0..50 {
        crate::indexed::put(&db, &mut state, number, 9);
    }
    (machine.killed(db), state)
}

#[test]
fn a_damaged_index_is_made_anew_and_nothing_is_lost() {
    let (machine, state) = killed();
    let mut image = machine.regions.stored(REGION);
    // The root line of the index.
    let root = thermocline_pmem::layout::ROOT_AT as usize / 8;
    image[root + 1] ^= 1 << 20;
    let machine = Machine::of(copy_of(&machine.devices), &image);
    assert_eq!(machine.open().unwrap_err().kind(), ErrorKind::Corrupt);
    let environment = machine.environment();
    let planned = environment.plan_index_rebuild(Path::new(HOME), None).unwrap();
    assert_eq!((&planned.damage, planned.lost_after), (&None, None));
    assert!(planned.tables > 0 && planned.region == Path::new(REGION), "{planned:?}");
    assert_eq!(machine.open().unwrap_err().kind(), ErrorKind::Corrupt, "planning has no effect");
    assert_eq!(environment.rebuild_index(Path::new(HOME), None).unwrap(), planned);
    let db = machine.open().unwrap();
    assert_eq!(db.stats().index.unwrap().waiting_tables, 0);
    check(&db, &state, 1000);
}

/// Both copies of the header of an arena, whichever it is: what it had is not taken for room.
#[test]
fn a_memtable_without_a_header_is_refused_with_the_way_out() {
    let (machine, _) = killed();
    let image = machine.regions.stored(REGION);
    let medium = Medium::shadowed(&image);
    let found = RegionIdentity::read(&medium).unwrap();
    let runs = runs(&medium, &found.owner(), &found.geometry).unwrap();
    let has_group = |run: &&Extent| medium.load(run.at + CHUNK_HEADER_BYTES) != 0;
    let arenas = runs.iter().filter(|run| run.header.kind == ChunkKind::Arena).filter(has_group);
    let arenas: Vec<_> = arenas.collect();
    assert!(!arenas.is_empty());
    for arena in arenas {
        let mut image = image.clone();
        image[(arena.at / 8) as usize..][..(CHUNK_HEADER_BYTES / 8) as usize].fill(0);
        let machine = Machine::of(copy_of(&machine.devices), &image);
        let error = machine.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains(REGION) && text.contains("repair --rebuild-index"), "{text}");
        assert!(machine.regions.stored(REGION) == image, "the region has changed");
        let planned = machine.environment().plan_index_rebuild(Path::new(HOME), None).unwrap();
        assert!(planned.damage.is_some() && planned.lost_after.is_some(), "{planned:?}");
    }
}

#[test]
fn a_region_that_is_lost_is_replaced_and_what_it_had_alone_is_said_to_be_lost() {
    let (machine, state) = killed();
    let machine = Machine { devices: copy_of(&machine.devices), ..Machine::new() };
    let error = machine.open().unwrap_err();
    assert!(error.to_string().contains("repair --rebuild-index"), "{error}");
    let environment = machine.environment();
    let planned = environment.plan_index_rebuild(Path::new(HOME), None).unwrap();
    assert!(planned.damage.is_some() && planned.lost_after.is_some(), "{planned:?}");
    let unnamed = environment.rebuild_index(Path::new(HOME), None).unwrap_err();
    assert!(unnamed.to_string().contains("--region PATH:SIZE"), "{unnamed}");
    let settings = with_region("/pmem/other");
    let done = environment.rebuild_index(Path::new(HOME), Some(&settings)).unwrap();
    assert_eq!(done.lost_after, planned.lost_after);
    let db = machine.open().unwrap();
    assert_eq!(db.stats().index.unwrap().waiting_tables, 0);
    // What only the memtable had is gone: each key has what the tables have.
    let number = |key: &[u8]| String::from_utf8_lossy(&key[4..]).parse::<u64>().unwrap();
    for found in db.scan() {
        let (key, value) = found.unwrap();
        let is_old = number(&key) < 50 && value[0] != 9;
        assert!(is_old || state.get(&key[..]).is_some_and(|it| *it == value[..]), "{key:?}");
    }
    let kept = state.keys().filter(|key| number(key) >= 50);
    assert!(kept.into_iter().all(|key| db.get(key).unwrap().is_some()));
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
}

/// Regions whose files cannot be opened for now.
#[derive(Debug)]
struct Unopened(Arc<ShadowRegions>, DeviceErrorKind);

impl Regions for Unopened {
    fn create(
        &self,
        path: &Path,
        bytes: u64,
        driver: RegionDriver,
    ) -> DeviceResult<(Medium, Circumstances)> {
        self.0.create(path, bytes, driver)
    }

    fn open(&self, _: &Path, _: RegionDriver) -> DeviceResult<(Medium, Circumstances)> {
        Err(DeviceError::new(self.1, "not now"))
    }

    fn remove(&self, path: &Path) -> DeviceResult<()> {
        self.0.remove(path)
    }
}

/// Its memtables are intact: another process has it open, or a newer version has written it.
#[test]
fn a_region_that_cannot_be_looked_at_for_now_is_not_given_up() {
    let (machine, state) = killed();
    let settings = with_region("/pmem/other");
    let assert_refused = |environment: &Environment, kind: ErrorKind| {
        let planned = environment.plan_index_rebuild(Path::new(HOME), Some(&settings));
        let rebuilt = environment.rebuild_index(Path::new(HOME), Some(&settings));
        for error in [planned.unwrap_err(), rebuilt.unwrap_err()] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(REGION), "{error}");
        }
    };
    for (kind, refused) in [
        (DeviceErrorKind::Locked, ErrorKind::Locked),
        (DeviceErrorKind::Denied, ErrorKind::Denied),
        (DeviceErrorKind::ReadOnly, ErrorKind::ReadOnly),
        (DeviceErrorKind::TooManyOpenFiles, ErrorKind::TooManyOpenFiles),
    ] {
        let regions = Arc::new(Unopened(Arc::clone(&machine.regions), kind));
        assert_refused(&Environment { regions, ..machine.environment() }, refused);
    }
    let regions = Arc::new(Unopened(Arc::clone(&machine.regions), DeviceErrorKind::Io));
    let environment = Environment { regions, ..machine.environment() };
    assert_refused(&environment, ErrorKind::Io);
    // It is known that its device never gives it.
    let environment = Environment { unreadable: Unreadable::Skipped, ..environment };
    let planned = environment.plan_index_rebuild(Path::new(HOME), Some(&settings)).unwrap();
    assert!(planned.damage.is_some(), "{planned:?}");
    let mut newer = machine.regions.stored(REGION);
    for at in thermocline_pmem::layout::IDENTITY_AT {
        // The version of the format.
        newer[at as usize / 8 + 1] += 1;
    }
    let newer = Machine::of(copy_of(&machine.devices), &newer);
    assert_refused(&newer.environment(), ErrorKind::NewerFormat);
    check(&machine.open().unwrap(), &state, 1000);
}

#[test]
fn after_a_close_another_region_costs_nothing_whether_the_old_one_is_there_or_not() {
    let (machine, state) = killed();
    let db = machine.open().unwrap();
    db.close().unwrap();
    // It is there, and too small.
    let environment = machine.environment();
    let settings = with_region("/pmem/larger");
    let done = environment.rebuild_index(Path::new(HOME), Some(&settings)).unwrap();
    assert_eq!((&done.damage, done.lost_after), (&None, None));
    let db = machine.open().unwrap();
    check(&db, &state, 1000);
    db.close().unwrap();
    // It is lost.
    let machine = Machine { devices: copy_of(&machine.devices), ..Machine::new() };
    let environment = machine.environment();
    let done = environment.rebuild_index(Path::new(HOME), Some(&with_region("/p/b"))).unwrap();
    assert!(done.damage.is_some() && done.lost_after.is_none(), "{done:?}");
    let db = machine.open().unwrap();
    check(&db, &state, 1000);
}

/// `environment` refuses to make the index anew at `/pmem/other`, for `reason`, and nothing of
/// `machine` has changed.
fn assert_not_rebuilt(machine: &Machine, environment: &Environment, reason: &str) {
    let before = contents_of(&machine.devices);
    let of = |path| machine.regions.has(path).then(|| machine.regions.stored(path));
    let stored = || ["/pmem/other", REGION].map(of);
    let of_regions = stored();
    let settings = with_region("/pmem/other");
    let error = environment.rebuild_index(Path::new(HOME), Some(&settings)).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
    assert!(contents_of(&machine.devices) == before, "{error}, and the directories have changed");
    assert!(stored() == of_regions, "{error}, and a region has changed");
}

#[test]
fn another_region_that_cannot_be_made_is_refused_before_anything_changes() {
    let (machine, state) = killed();
    let lost = Machine { devices: copy_of(&machine.devices), ..Machine::new() };
    for machine in [&machine, &lost] {
        for kind in [DeviceErrorKind::OutOfSpace, DeviceErrorKind::Denied] {
            let environment = machine.without_place(kind);
            assert_not_rebuilt(machine, &environment, "nothing was changed");
        }
    }
    let image = machine.regions.stored(REGION);
    let regions = Arc::new(ShadowRegions::with("/pmem/other", &image, PERSISTENT));
    let moved = Machine { devices: copy_of(&machine.devices), regions };
    assert_not_rebuilt(&moved, &moved.environment(), "is the region of this database");
    let settings = with_region("/pmem/other");
    machine.environment().rebuild_index(Path::new(HOME), Some(&settings)).unwrap();
    check(&machine.open().unwrap(), &state, 1000);
}

/// Long keys, of which a small region takes few.
pub fn long_key(number: u64) -> Vec<u8> {
    [key(number), vec![b'k'; 1000]].concat()
}

/// Puts until it is refused, at most as far as `most`; how many there are then.
pub fn put_until_full(db: &Db, from: u64, most: u64) -> u64 {
    for number in from..most {
        if let Err(error) = db.put(long_key(number), number.to_le_bytes()) {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            assert!(error.to_string().contains("--rebuild-index --region"), "{error}");
            return number;
        }
        // Writers wait for tables that wait, and the steps of this machine are its callers'.
        if number % 256 == 0 {
            db.settle().unwrap();
        }
    }
    most
}

#[test]
fn an_index_that_is_full_goes_on_in_a_larger_region_and_every_record_stays() {
    let machine = Machine::new();
    let settings = Settings { memory: ByteSize::mib(24), ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let full = put_until_full(&db, 0, 40_000);
    assert!(full < 40_000, "the region takes more than it has");
    db.close().unwrap();
    // The size of a region is not a setting that an opening changes; the refusal says what does.
    let same = with_region_of(REGION, 48, settings);
    let error = machine.environment().open_with(Path::new(HOME), &same).unwrap_err();
    assert!(error.to_string().contains("--rebuild-index --region PATH:SIZE"), "{error}");
    let error = machine.environment().rebuild_index(Path::new(HOME), Some(&same)).unwrap_err();
    assert!(error.to_string().contains("name another place"), "{error}");
    let larger = with_region_of("/pmem/larger", 48, same);
    let done = machine.environment().rebuild_index(Path::new(HOME), Some(&larger)).unwrap();
    assert_eq!((&done.damage, done.lost_after), (&None, None));
    let db = machine.open().unwrap();
    let stats = db.stats();
    assert!(stats.region.unwrap().bytes > 40 << 20);
    assert_eq!(stats.index.unwrap().waiting_tables, 0);
    let all = put_until_full(&db, full, 2 * full);
    assert_eq!(all, 2 * full, "there is room for as many again");
    for number in 0..all {
        let found = db.get(long_key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&number.to_le_bytes()[..]), "{number}");
    }
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
}

#[test]
fn a_region_of_memtables_alone_is_exchanged_for_a_larger_one() {
    let machine = Machine::new();
    let db = machine.create();
    db.put("key", "value").unwrap();
    let value = vec![7; 5 << 19];
    let error = db.put("long", &value).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("--rebuild-index --region PATH:SIZE"), "{error}");
    let machine = machine.killed(db);
    let larger = with_region_of("/pmem/larger", 64, crate::support::settings());
    let done = machine.environment().rebuild_index(Path::new(HOME), Some(&larger)).unwrap();
    assert_eq!((&done.damage, done.lost_after), (&None, None));
    let db = machine.open().unwrap();
    assert!(db.stats().region.unwrap().bytes > 60 << 20);
    db.put("long", &value).unwrap();
    for (key, value) in [("key", &b"value"[..]), ("long", &value)] {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(value));
    }
    db.close().unwrap();
    assert!(machine.open().unwrap().verify(&mut |_| {}).unwrap().is_ok());
}

#[test]
fn a_plain_repair_is_refused_with_the_way_out_and_changes_nothing() {
    let (machine, state) = killed();
    let before = contents_of(&machine.devices);
    let environment = machine.environment();
    let planned = environment.plan_repair(Path::new(HOME), None, &mut |_| {});
    let repaired = environment.repair(Path::new(HOME), None, &mut |_| {});
    for error in [planned.unwrap_err(), repaired.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("`repair --rebuild-index`"), "{error}");
    }
    let planned = environment.plan_manifest_rebuild(Path::new(HOME), None, &mut |_| {});
    let rebuilt = environment.rebuild_manifest(Path::new(HOME), None, &mut |_| {});
    for error in [planned.unwrap_err(), rebuilt.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("restore the database from a checkpoint"), "{error}");
    }
    assert!(contents_of(&machine.devices) == before, "a repair that is refused changes nothing");
    check(&machine.open().unwrap(), &state, 1000);
}

/// Where the manifest is lost it is not made anew beside a region, and nothing says that it could
/// be.
#[test]
fn a_lost_manifest_beside_a_region_leaves_a_checkpoint_alone() {
    for is_gone in [false, true] {
        let (machine, _) = killed();
        let files = contents_of(&machine.devices);
        for (at, name, bytes) in &files {
            let tier = machine.devices.directory(Path::new(at)).unwrap();
            if is_gone && (name.ends_with(".map") || name.ends_with(".manifest")) {
                tier.delete(name).unwrap();
            } else if name.ends_with(".manifest") {
                let buffer = Buffer::zeroed(bytes.len().next_multiple_of(4096));
                let write = Operation::Write { offset: 0, buffer, durable: false };
                tier.execute(&tier.open(name).unwrap(), write).result.unwrap();
            }
        }
        let environment = machine.environment();
        if is_gone {
            // The map is made anew, which says nothing of the manifest.
            environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
        }
        let planned = environment.plan_index_rebuild(Path::new(HOME), None);
        let rebuilt = environment.rebuild_index(Path::new(HOME), None);
        for error in [planned.unwrap_err(), rebuilt.unwrap_err()] {
            let text = error.to_string();
            assert!(!text.contains("--rebuild-manifest"), "{text}");
            assert!(!text.contains("what `repair` says"), "{text}");
        }
    }
}

#[test]
fn a_store_without_a_region_has_no_index_to_be_made_anew() {
    let machine = Machine::new();
    let settings = Settings { persistent_memory: None, ..crate::support::settings() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let error = machine.environment().rebuild_index(Path::new(HOME), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no region of persistent memory"), "{error}");
}

/// What the index of a closed store has: keys, trailers and places.
fn entries(machine: &Machine) -> Vec<(Vec<u8>, Entry)> {
    let medium = Medium::shadowed(&machine.regions.stored(REGION));
    let found = RegionIdentity::read(&medium).unwrap();
    let RegionIdentity { database, instance, generation, .. } = found;
    let expected = Expected { database, instance, generation };
    let opened = Region::open(medium, &expected, &PERSISTENT, generation).unwrap();
    let tree = Tree::open(&opened).unwrap();
    tree.cursor(b"").map(Result::unwrap).collect()
}

#[test]
fn a_rebuilt_index_equals_the_lost_one() {
    let (machine, mut state) = killed();
    let db = machine.open().unwrap();
    churn(&db, &mut state, &mut Random::new(5), 10..14);
    db.flush().unwrap();
    db.settle().unwrap();
    db.close().unwrap();
    let lost = entries(&machine);
    let environment = machine.environment();
    let done = environment.rebuild_index(Path::new(HOME), None).unwrap();
    assert!(done.damage.is_none() && done.tables > 0);
    let rebuilt = entries(&machine);
    let names_table = |(_, entry): &&(Vec<u8>, Entry)| entry.table.0 > 0;
    assert!(lost.iter().filter(names_table).count() >= state.len());
    assert!(rebuilt.iter().eq(lost.iter().filter(names_table)), "{} entries", rebuilt.len());
}

/// Opens the store with each of `images` in place of the region at `path`, which is not one of
/// them; what is wrong with the answer.
fn taken_for_the_right_one(machine: &Machine, path: &str, images: &[Vec<u64>]) -> Option<String> {
    images.iter().enumerate().find_map(|(at, image)| {
        let regions = Arc::new(ShadowRegions::with(path, image, PERSISTENT));
        let machine = Machine { devices: copy_of(&machine.devices), regions };
        let before = contents_of(&machine.devices);
        let text = match machine.open() {
            Ok(_) => return Some(format!("state {at} of the region before is accepted")),
            Err(error) => error.to_string(),
        };
        let is_named = text.contains(path) && text.contains("one that was replaced");
        let is_refused = is_named && contents_of(&machine.devices) == before;
        (!is_refused).then(|| format!("state {at} of the region before: {text}"))
    })
}

/// A region is made anew elsewhere twice, and what the ones before had at any time is offered
/// instead; what is wrong with the answers.
fn replaced_region_fault() -> Option<String> {
    let machine = Machine::new();
    let (mut path, mut images, mut state) = (REGION, Vec::new(), State::new());
    create(&machine).close().unwrap();
    for next in ["/pmem/second", "/pmem/third"] {
        for round in 0..3 {
            let db = machine.open().unwrap();
            crate::indexed::put(&db, &mut state, round, round);
            images.push(machine.regions.stored(path));
            db.close().unwrap();
            images.push(machine.regions.stored(path));
        }
        let settings = with_region(next);
        machine.environment().rebuild_index(Path::new(HOME), Some(&settings)).unwrap();
        // Its last state is its file's.
        images.push(machine.regions.stored(path));
        path = next;
        for _ in 0..4 {
            let fault = taken_for_the_right_one(&machine, path, &images);
            if fault.is_some() {
                return fault;
            }
            machine.open().unwrap().close().unwrap();
        }
    }
    let named = machine.environment().open_with(Path::new(HOME), &with_region(REGION));
    let text = named.unwrap_err().to_string();
    assert!(text.contains(REGION) && text.contains("that was used last"), "{text}");
    check(&machine.open().unwrap(), &state, 10);
    None
}

#[test]
fn a_region_that_was_replaced_is_never_taken_for_the_one_in_its_place() {
    assert_eq!(replaced_region_fault(), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_generations_of_the_region_before_are_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    let (found, hits) = with(Planted::RegionBeginsAgain, || (replaced_region_fault(), hits()));
    assert!(found.is_some(), "its line was passed {hits} times");
}
