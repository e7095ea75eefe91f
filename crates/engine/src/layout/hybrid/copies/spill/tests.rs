//! Copies that memory gives up: which get slots, and which are forgotten.

use super::*;
use crate::jobs::Job;
use crate::layout::hybrid::copies::promotion::PROMOTION;
use crate::layout::hybrid::space::sweep::Sweep;
use crate::support::hooked::{Call, HookedDevices};
use crate::support::{hybrid, stepped_environment, stepped_with, until};
use crate::table_set::claims::Claim;
use crate::{ByteSize, Db, Environment, Experiments, Rule, Settings};
use std::collections::VecDeque;
use std::path::Path;
use thermocline_device::FileKind;
use thermocline_foundation::sync::Mutex;

/// A store with a record in a table and a copy of it in memory, and no job but the test's own.
fn with_copy() -> Db {
    with_copy_in(stepped_environment())
}

/// First reads are no reason for a slot.
fn with_copy_in(environment: Environment) -> Db {
    let experiments = Experiments::NONE.without(Rule::FirstRead);
    let environment = Environment { experiments, ..environment };
    let db = environment.create(Path::new("/home"), &hybrid()).unwrap();
    db.put("key", "value").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let fast = fast(&db);
    [&PROMOTION, &SPILL].iter().for_each(|work| work.hold(fast));
    // Some that are colder: the hottest seven tenths of what is tracked are to stay.
    for other in 0..9 {
        fast.popularity.touch(other, false);
    }
    (0..2).for_each(|_| assert_eq!(get(&db), "value"));
    promote(&db);
    assert_eq!(copies(&db), (0, 1));
    db
}

fn fast(db: &Db) -> &FastTier {
    &db.engine().hybrid().fast
}

fn promote(db: &Db) {
    db.engine().hybrid().promote().unwrap();
}

fn get(db: &Db) -> Bytes {
    db.get("key").unwrap().unwrap()
}

/// Reads of the slow tier for a look-up of the key, which finds `value`.
fn slow_reads(db: &Db, value: &str) -> u64 {
    let before = db.stats().fast_tier.unwrap().slow_reads;
    assert_eq!(get(db), value);
    db.stats().fast_tier.unwrap().slow_reads - before
}

/// Records in slots and in memory only.
fn copies(db: &Db) -> (u64, u64) {
    let stats = db.stats().fast_tier.unwrap();
    (stats.records, stats.memory_records)
}

/// Takes the record out of memory, as other records would push it out.
fn evict(db: &Db) {
    let sequence = fast(db).index.get(b"key").unwrap().sequence;
    let value = fast(db).cache.get(b"key", sequence);
    fast(db).cache.forget(b"key", sequence);
    fast(db).spill.add(Spilled { key: Bytes::from("key"), sequence, value });
}

fn spill(db: &Db) {
    db.engine().hybrid().spill().unwrap();
    fast(db).index.check();
}

#[test]
fn a_hot_record_that_memory_gives_up_gets_a_slot_and_loses_it_when_memory_has_it_again() {
    let db = with_copy();
    evict(&db);
    spill(&db);
    assert_eq!(copies(&db), (1, 0));
    assert_eq!(db.stats().fast_tier.unwrap().clean_records, 1);
    assert_eq!(slow_reads(&db, "value"), 0);
    // The read has put it into memory.
    Sweep::begin(db.engine().hybrid()).unwrap().step().unwrap();
    assert_eq!(copies(&db), (0, 1));
    let stats = db.stats().fast_tier.unwrap();
    assert_eq!((stats.memory_only_records, stats.dropped_records, stats.live_bytes), (1, 0, 0));
    assert_eq!(slow_reads(&db, "value"), 0);
    let scanned: Vec<_> = db.scan().into_iter().map(Result::unwrap).collect();
    assert_eq!(scanned, [(Bytes::from("key"), Bytes::from("value"))]);
}

#[test]
fn a_cold_record_that_memory_gives_up_is_forgotten_and_found_in_its_table() {
    let db = with_copy();
    fast(&db).popularity.forget(key_hash(b"key"));
    evict(&db);
    spill(&db);
    assert_eq!(copies(&db), (0, 0));
    assert_eq!(slow_reads(&db, "value"), 1);
}

#[test]
fn a_record_that_waits_is_found_in_its_table_and_may_come_back_to_memory() {
    let db = with_copy();
    evict(&db);
    assert_eq!(slow_reads(&db, "value"), 1);
    promote(&db);
    assert_eq!(slow_reads(&db, "value"), 0);
    spill(&db);
    assert_eq!(copies(&db), (0, 1), "memory has it: no slot for it");
}

#[test]
fn copies_get_slots_only_while_they_are_read_more_often_than_replaced() {
    let db = with_copy();
    let uses = &fast(&db).feedback.copies;
    uses.replaced.add(5_000);
    evict(&db);
    spill(&db);
    assert_eq!(copies(&db), (0, 0), "forgotten although it is hot");
    assert!(!db.stats().fast_tier.unwrap().copies_get_slots);
    uses.read.add(50_000);
    assert!(uses.judge());
    (0..2).for_each(|_| assert_eq!(get(&db), "value"));
    promote(&db);
    evict(&db);
    spill(&db);
    assert_eq!(copies(&db), (1, 0));
    assert!(db.stats().fast_tier.unwrap().copies_get_slots);
}

#[test]
fn reads_of_copies_slots_are_counted_and_so_are_copies_that_no_read_asked_for() {
    let db = with_copy();
    let turns = || {
        let stats = db.stats().fast_tier.unwrap();
        (stats.copy_slot_reads, stats.unasked_copies)
    };
    assert_eq!(get(&db), "value");
    assert_eq!(turns(), (0, 0), "memory answered");
    evict(&db);
    spill(&db);
    assert_eq!(get(&db), "value");
    assert_eq!(turns(), (1, 0));
    let entry = fast(&db).index.get(b"key").unwrap();
    fast(&db).cache.forget(b"key", entry.sequence);
    fast(&db).popularity.forget(key_hash(b"key"));
    Sweep::begin(db.engine().hybrid()).unwrap().step().unwrap();
    assert_eq!(turns(), (1, 1));
    assert_eq!(copies(&db), (0, 0));
}

#[test]
fn replaced_copies_are_counted_and_so_are_the_reads_that_copies_serve() {
    let db = with_copy();
    let uses = || {
        let stats = db.stats().fast_tier.unwrap();
        (stats.copy_reads, stats.replaced_copies)
    };
    let (read, _) = uses();
    assert_eq!(get(&db), "value");
    assert_eq!(uses(), (read + 1, 0));
    db.put("key", "new").unwrap();
    assert_eq!(get(&db), "new");
    db.flush().unwrap();
    assert_eq!(get(&db), "new");
    assert_eq!(uses(), (read + 1, 1), "what was written is no copy");
}

#[test]
fn a_record_that_was_replaced_while_it_waited_gets_no_slot() {
    let db = with_copy();
    let snapshot = db.snapshot();
    evict(&db);
    db.put("key", "new").unwrap();
    db.flush().unwrap();
    spill(&db);
    assert_eq!(slow_reads(&db, "new"), 0);
    assert_eq!(snapshot.get("key").unwrap().unwrap(), "value");
    drop(snapshot);
    db.delete("key").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(db.get("key").unwrap(), None);
    assert_eq!(copies(&db), (0, 0));
}

#[test]
fn a_record_whose_value_had_no_room_to_wait_is_forgotten() {
    let db = with_copy();
    let sequence = fast(&db).index.get(b"key").unwrap().sequence;
    fast(&db).cache.forget(b"key", sequence);
    let large = Some(vec![7; fast(&db).spill.waiting.bytes_max() as usize].into());
    fast(&db).spill.add(Spilled { key: Bytes::from("key"), sequence, value: large });
    assert!(!fast(&db).spill.waiting.is_empty() && !fast(&db).spill.waiting.is_full());
    spill(&db);
    assert_eq!(copies(&db), (0, 0));
    assert!(fast(&db).spill.waiting.is_empty());
}

#[test]
fn however_many_memory_gives_up_a_bounded_number_waits() {
    let db = with_copy();
    let fast = fast(&db);
    let most = 2 * fast.spill.waiting.bytes_max() / RECORD_OVERHEAD_BYTES;
    let (key, value) = (Bytes::from("key"), Some(Bytes::from("value")));
    for number in 0..2 * most {
        let (key, value) = (key.clone(), value.clone());
        fast.spill.add(Spilled { key, sequence: Sequence(number), value });
    }
    let waits = fast.spill.waiting.len() as u64;
    assert!((most / 2..=most + 1).contains(&waits), "{waits} of {most}");
    until("decisions on all that waits", || {
        spill(&db);
        fast.spill.waiting.is_empty()
    });
    assert_eq!(copies(&db), (0, 1), "the record itself is in memory");
}

#[test]
fn a_record_whose_range_is_being_demoted_gets_no_slot_behind_the_demotions_back() {
    let db = with_copy();
    evict(&db);
    let whole = Claim { tables: Vec::new(), level: None, range: KeyRange::default() };
    let claimed = db.engine().versions().claim(&mut db.engine().versions().tables(), whole);
    let slab_writes = || db.engine().shared().files.tiers()[0].traffic(FileKind::Slab).writes;
    let before = slab_writes();
    spill(&db);
    assert_eq!(copies(&db), (0, 0));
    assert_eq!(slab_writes(), before, "what would not become live was written");
    assert_eq!(db.stats().fast_tier.unwrap().live_bytes, 0);
    drop(claimed);
    assert_eq!(slow_reads(&db, "value"), 1);
}

#[test]
fn what_memory_gives_up_as_it_shrinks_is_given_slots_or_forgotten() {
    let experiments = Experiments::NONE.without(Rule::FirstRead);
    let db = stepped_with(experiments, &Settings { memory: ByteSize::mib(1), ..hybrid() });
    let fast = fast(&db);
    let keys = || (0..40).map(|number| format!("key {number:02}"));
    keys().for_each(|key| db.put(key, [7; 1000]).unwrap());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    [&PROMOTION, &SPILL].iter().for_each(|work| work.hold(fast));
    (0..2).for_each(|_| keys().for_each(|key| assert!(db.get(key).unwrap().is_some())));
    promote(&db);
    spill(&db);
    let before = fast.cache.len();
    assert!(before > 10 && fast.spill.waiting.is_empty());
    // An index of many keys leaves less of memory for records.
    (0..4000).for_each(|key: u32| db.put(key.to_be_bytes(), "other").unwrap());
    db.flush().unwrap();
    assert!(fast.cache.len() < before, "all {before} are there");
    spill(&db);
    let in_memory = fast.index.memory_records();
    assert_eq!(in_memory, keys().filter(|key| is_in_memory(&db, key)).count() as u64);
}

/// Memory has the newest record of the key.
fn is_in_memory(db: &Db, key: &str) -> bool {
    let entry = fast(db).index.get(key.as_bytes());
    entry.is_some_and(|entry| fast(db).cache.contains(key.as_bytes(), entry.sequence))
}

#[test]
fn an_entry_whose_record_memory_has_lost_without_a_word_is_swept_away() {
    let db = with_copy();
    fast(&db).cache.clear();
    assert_eq!(slow_reads(&db, "value"), 1);
    // Something else waits, as nearly always.
    let sequence = db.engine().versions().visible();
    fast(&db).spill.add(Spilled { key: Bytes::from("abc"), sequence, value: None });
    sweep_alone(&db);
    assert_eq!(copies(&db), (0, 0));
    assert_eq!(slow_reads(&db, "value"), 1);
}

/// Sweeps once while no job moves records.
fn sweep_alone(db: &Db) {
    [&PROMOTION, &SPILL].iter().for_each(|work| work.let_go(fast(db)));
    sweep(db);
}

fn sweep(db: &Db) {
    Sweep::begin(db.engine().hybrid()).unwrap().step().unwrap();
}

#[test]
fn an_entry_is_not_swept_away_while_its_record_waits_or_is_on_its_way() {
    let db = with_copy();
    evict(&db);
    sweep_alone(&db);
    assert_eq!(copies(&db), (0, 1), "it waits");
    let taken = fast(&db).spill.take(BATCH_BYTES);
    assert_eq!(taken.len(), 1);
    for work in [&PROMOTION, &SPILL] {
        work.hold(fast(&db));
        sweep(&db);
        assert_eq!(copies(&db), (0, 1), "a job has it");
        work.let_go(fast(&db));
    }
    sweep_alone(&db);
    assert_eq!(copies(&db), (0, 0));
}

#[test]
fn compacting_everything_leaves_nothing_in_memory_only() {
    let db = with_copy();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(copies(&db), (0, 0));
    assert_eq!(slow_reads(&db, "value"), 1);
}

#[test]
fn without_room_a_record_waits_until_too_much_does() {
    let db = with_copy();
    let fast = fast(&db);
    fast.slabs.set_limit_bytes(0);
    let (key, sequence) = (Bytes::from("large"), fast.index.get(b"key").unwrap().sequence);
    fast.index.insert(&key, Entry::in_memory(sequence));
    (0..2).for_each(|_| assert!(fast.popularity.touch(key_hash(&key), true).is_some()));
    let value = Some(vec![7; 100_000].into());
    fast.spill.add(Spilled { key: key.clone(), sequence, value });
    assert!(fast.spill.is_due(true));
    spill(&db);
    assert_eq!(copies(&db), (0, 2));
    assert!(!fast.spill.is_due(true) && !fast.spill.waiting.is_empty(), "it waits for room");
    until("too much that waits", || {
        let value = Some(vec![7; 100_000].into());
        fast.spill.add(Spilled { key: Bytes::from("unknown"), sequence, value });
        fast.spill.waiting.is_full()
    });
    assert!(fast.spill.is_due(true), "too much waits");
    spill(&db);
    assert_eq!(copies(&db), (0, 1), "forgotten, for there is no room");
    fast.room_was_made();
    assert!(fast.spill.is_due(true));
}

type Events = VecDeque<Box<dyn FnOnce() + Send>>;

/// What happens before and after reads of slabs, in this order, while a look-up runs. Reads by an
/// event itself do not count.
#[derive(Default)]
struct Between {
    events: Mutex<Events>,
    busy: AtomicBool,
}

impl Between {
    fn pass(&self, name: &str) {
        if !name.ends_with(".slab") || self.busy.swap(true, Relaxed) {
            return;
        }
        let event = self.events.lock().pop_front();
        event.into_iter().for_each(|event| event());
        self.busy.store(false, Relaxed);
    }
}

/// Puts the record of `key` into memory, which gives its slot to the next that wants one.
fn lift(db: &Db) {
    let sequence = fast(db).index.get(b"key").unwrap().sequence;
    fast(db).remember(b"key", sequence, &Bytes::from("value"));
    Sweep::begin(db.engine().hybrid()).unwrap().step().unwrap();
    assert!(!fast(db).index.get(b"key").unwrap().has_slot());
}

fn put(db: &Db, key: &str, value: &str) {
    db.put(key, value).unwrap();
    db.flush().unwrap();
}

/// The same slot again, and another record in it whenever it is read.
#[test]
fn a_slot_that_was_given_away_and_back_and_away_again_is_not_damaged() {
    let between = Arc::new(Between::default());
    let (before, after) = (Arc::clone(&between), Arc::clone(&between));
    let environment = stepped_environment();
    let hook = Arc::new(move |call, _: &Path, name: &str| {
        if call == Call::Read {
            before.pass(name);
        }
        Ok(())
    });
    let devices = HookedDevices::new(Arc::clone(&environment.devices), hook);
    let devices = Arc::new(devices.after_reads(Arc::new(move |name| after.pass(name))));
    let db = with_copy_in(Environment { devices, ..environment });
    evict(&db);
    spill(&db);
    let slot = fast(&db).index.get(b"key").unwrap().slot;
    let slot_of = |db: &Db, key: &str| fast(db).index.get(key.as_bytes()).unwrap().slot;
    let [first, second, third] = [(); 3].map(|()| db.clone());
    between.events.lock().extend([
        Box::new(move || {
            lift(&first);
            put(&first, "abc", "other");
            assert_eq!(slot_of(&first, "abc"), slot);
        }) as Box<dyn FnOnce() + Send>,
        Box::new(move || {
            put(&second, "abc", "newer");
            evict(&second);
            spill(&second);
            assert_eq!(slot_of(&second, "key"), slot);
        }),
        Box::new(move || {
            lift(&third);
            put(&third, "xyz", "other");
        }),
    ]);
    assert_eq!(get(&db), "value");
    assert!(between.events.lock().is_empty());
    assert_eq!(get(&db), "value");
}
