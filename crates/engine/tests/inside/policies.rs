//! Policies are wired: for each answer of the rules a small store in which the right answer and the
//! opposite one leave different records in different places. What is asserted is where records are,
//! never a figure of a report: a rule that is never asked, or is believed the other way round, may
//! well report what a right one would.
//!
//! ```text
//!   what stays           pinning share, popularity, coldness, of every `policy`
//!   which range leaves   the colder one first, and so on to the hottest
//!   what comes up        `promotion`: never, with a merge, after a read
//!   when none leaves     the slow tier's budget of writes is spent
//!   what memory keeps    what only tables have, before what slots have
//! ```

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::rules::fullness::EvictionStep;
use crate::support::hooked::{Call, HookedDevices};
use crate::support::still_clock::StillClock;
use crate::support::{hybrid, run_to_end, stepped, stepped_environment, stepped_with};
use crate::{
    ByteSize, Db, DemotionPolicy, Environment, Experiments, HybridSettings, Promotion, Rule,
    Settings,
};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;
use thermocline_foundation::random::Random;
use thermocline_table::key_hash;

const POLICIES: [DemotionPolicy; 3] =
    [DemotionPolicy::Precise, DemotionPolicy::Approximate, DemotionPolicy::Random];

/// Where a record is, below the memtables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Slot,
    /// In memory only: a copy of what a table has.
    Memory,
    Table,
}

/// A store whose tables are larger than what a test demotes, and not much.
fn small(hybrid_settings: HybridSettings) -> Settings {
    Settings { table_size: ByteSize::mib(1), hybrid: hybrid_settings, ..hybrid() }
}

fn fast(db: &Db) -> &FastTier {
    &db.engine().hybrid().fast
}

fn place(db: &Db, key: &str) -> Place {
    match fast(db).index.get(key.as_bytes()) {
        Some(entry) if entry.has_slot() => Place::Slot,
        Some(_) => Place::Memory,
        None => Place::Table,
    }
}

/// How many of the keys are in this place.
fn count(db: &Db, keys: &[String], wanted: Place) -> usize {
    keys.iter().filter(|key| place(db, key) == wanted).count()
}

/// Puts values of a thousand bytes that do not compress.
fn put(db: &Db, keys: &[String]) {
    for key in keys {
        let mut value = [0; 1000];
        Random::new(key_hash(key.as_bytes())).fill(&mut value);
        db.put(key, value).unwrap();
    }
}

fn read(db: &Db, keys: &[String]) {
    keys.iter().for_each(|key| assert_eq!(db.get(key).unwrap().unwrap().len(), 1000, "{key}"));
}

/// Keys that buckets know each of, so that estimates are counts; of one length, ascending.
fn keys(prefix: &str, numbers: Range<usize>) -> Vec<String> {
    let keys = (0..1 << 20).map(|number| format!("{prefix}{number:08}"));
    let known = keys.filter(|key| key_hash(key.as_bytes()) >> 24 & 31 == 0);
    known.skip(numbers.start).take(numbers.len()).collect()
}

fn compact(db: &Db) {
    db.compact_range(None, None, &mut |_| {}).unwrap();
}

/// A demotion of cold records of the best range, if one is planned.
fn demote(db: &Db) -> bool {
    let Some(mut demotion) = db.engine().hybrid().plan_demotion(EvictionStep::Cold) else {
        return false;
    };
    run_to_end(&mut demotion);
    true
}

/// Demotes until nothing leaves any more.
fn demote_all(db: &Db) {
    let planned = (0..64).take_while(|_| demote(db)).count();
    assert!(planned < 64, "demotions are planned and do not come to an end");
}

/// Counts as so many accesses of each of the keys where they are.
fn touch(db: &Db, keys: &[String], times: usize) {
    for key in keys {
        let hash = key_hash(key.as_bytes());
        for _ in 0..times {
            let _ = fast(db).popularity.touch(hash, true);
        }
    }
}

/// As a store lives: all is written once, some of it is read, and much more is written than there
/// is room for. Nothing that leaves comes back.
#[test]
fn hot_records_stay_and_cold_ones_leave_under_every_policy() {
    for policy in POLICIES {
        let what = format!("{policy:?}");
        let experiments = Experiments {
            policy: Some(policy),
            promotion: Some(Promotion::None),
            ..Experiments::default()
        };
        let mut settings = Settings {
            memory: ByteSize::mib(2),
            table_size: ByteSize::kib(128),
            hybrid: HybridSettings { pinning_percent: 50, ..hybrid().hybrid },
            ..hybrid()
        };
        settings.tiers[0].capacity = ByteSize::mib(4);
        let db = stepped_with(experiments, &settings);
        // Every eighth is hot and the next warm, so that each range has both.
        let all = keys("k", 0..6000);
        let of = |rest: usize| -> Vec<String> {
            all.iter().skip(rest).step_by(8).take(200).cloned().collect()
        };
        let (hot, warm) = (of(0), of(1));
        let is_cold = |key: &&String| !hot.contains(key) && !warm.contains(key);
        let cold: Vec<String> = all.iter().filter(is_cold).cloned().collect();
        put(&db, &[&hot[..], &warm[..]].concat());
        db.flush().unwrap();
        read(&db, &warm);
        (0..4).for_each(|_| read(&db, &hot));
        for some in cold.chunks(500) {
            put(&db, some);
            db.settle().unwrap();
            (0..2).for_each(|_| read(&db, &hot));
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let left =
            [&hot, &warm, &cold].map(|keys| count(&db, keys, Place::Table) * 100 / keys.len());
        let [of_hot, of_warm, of_cold] = left;
        assert!(of_hot <= 2, "{what}: {left:?} percent of hot, warm and cold ones are in tables");
        assert!(of_cold >= 40 && of_warm > 10 * of_hot, "{what}: {left:?}");
    }
}

/// Of two ranges that differ in nothing but whether their records were asked for again, the one
/// that was not leaves first, whichever is first in the order of keys.
#[test]
fn ranges_leave_from_the_coldest_to_the_hottest() {
    for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
        for order in [[0, 1], [1, 0]] {
            assert_eq!(order_of_leaving(policy, &order, &[0, 2]), [0, 1], "{policy:?} {order:?}");
        }
    }
}

/// The ranks of ranges in the order in which their records leave; each record of the rank was asked
/// for as often as `touches` says, and `order` has the ranks in the order of keys.
fn order_of_leaving(policy: DemotionPolicy, order: &[usize], touches: &[usize]) -> Vec<usize> {
    let hybrid_settings = HybridSettings { pinning_percent: 0, runs: 1, ..hybrid().hybrid };
    let experiments = Experiments { policy: Some(policy), ..Experiments::default() };
    let db = stepped_with(experiments, &small(hybrid_settings));
    let prefixes = ["b", "d", "f", "h"];
    // Tables with a few records each, so that each is a range; behind the last there is nothing.
    for prefix in prefixes.into_iter().take(order.len()).chain(["z"]) {
        put(&db, &keys(prefix, 0..20));
        compact(&db);
    }
    let ranges: Vec<_> = prefixes
        .into_iter()
        .zip(order)
        .map(|(prefix, rank)| (*rank, keys(prefix, 1..101)))
        .collect();
    ranges.iter().for_each(|(_, keys)| put(&db, keys));
    db.flush().unwrap();
    ranges.iter().for_each(|(rank, keys)| touch(&db, keys, touches[*rank]));
    let mut left = Vec::new();
    for _ in order {
        assert!(demote(&db), "{left:?}");
        let gone = ranges.iter().filter(|(_, keys)| count(&db, keys, Place::Slot) == 0);
        let new: Vec<_> = gone.map(|(rank, _)| *rank).filter(|rank| !left.contains(rank)).collect();
        left.extend(new);
    }
    left
}

/// The hottest so many percent of what is tracked stay, and exactly these; of a value that the
/// share divides, as many as it says.
#[test]
fn the_pinning_share_says_how_many_stay_and_the_hottest_do() {
    for policy in POLICIES {
        for (pinning_percent, stay) in
            [(0, [0, 0]), (25, [50, 0]), (50, [100, 0]), (75, [100, 50]), (100, [100, 100])]
        {
            let what = format!("{policy:?}, {pinning_percent} percent");
            let hybrid_settings = HybridSettings { pinning_percent, ..hybrid().hybrid };
            let experiments = Experiments { policy: Some(policy), ..Experiments::default() };
            let db = stepped_with(experiments, &small(hybrid_settings));
            let third =
                |rest| keys("k", 0..600).into_iter().skip(rest).step_by(3).collect::<Vec<_>>();
            let [hot, warm, untracked] = [0, 1, 2].map(third);
            put(&db, &keys("k", 0..600));
            db.flush().unwrap();
            touch(&db, &hot, 2);
            touch(&db, &warm, 1);
            assert!(demote(&db));
            let found = [&hot, &warm].map(|keys| count(&db, keys, Place::Slot) / 2);
            for (found, stay) in found.into_iter().zip(stay) {
                let is_drawn = stay == 50;
                let right = if is_drawn { 35..=65 } else { stay..=stay };
                assert!(right.contains(&found), "{what}: {found} percent stay, {stay} should");
            }
            assert_eq!(count(&db, &untracked, Place::Table), 200, "never what is not tracked");
        }
    }
}

/// Where everything is hot a tenth of what fits may come and go all the same.
#[test]
fn no_more_is_pinned_than_leaves_room_for_others() {
    let hybrid_settings =
        HybridSettings { pinning_percent: 100, tracker_percent: 100, ..hybrid().hybrid };
    let mut settings = Settings { memory: ByteSize::mib(2), ..small(hybrid_settings) };
    settings.tiers[0].capacity = ByteSize::mib(8);
    let db = stepped(&settings);
    let all = keys("k", 0..6000);
    put(&db, &all);
    db.flush().unwrap();
    assert_eq!(count(&db, &all, Place::Slot), 6000, "room for all of them");
    touch(&db, &all, 3);
    // Something else wants a part of the tier.
    let slabs = &fast(&db).slabs;
    let set = |limit_bytes| slabs.set_limit_bytes(limit_bytes);
    db.engine().shared().tier0.want_copies(3 << 19, 0, set);
    let limit_bytes = fast(&db).room.limit_bytes() as f64;
    let fit = 6000.0 * limit_bytes / slabs.stats().bytes_live() as f64;
    assert!(fit < 6300.0, "{fit}");
    demote_all(&db);
    let (stay, right) = (count(&db, &all, Place::Slot) as f64, 0.9 * fit);
    assert!((stay / right - 1.0).abs() < 0.03, "{stay} stay, {right} may");
}

/// Where a record of a table is after it was read, and after a merge of its range.
fn place_after(promotion: Promotion, reads: usize) -> [Place; 2] {
    let hybrid_settings = HybridSettings { runs: 1, ..hybrid().hybrid };
    let experiments = Experiments { promotion: Some(promotion), ..Experiments::default() };
    let db = stepped_with(experiments, &small(hybrid_settings));
    let (asked, cold) = (keys("k", 4..5), keys("k", 20..120));
    // The last one, so that the cold ones are in the range of the table.
    let others = [keys("k", 10..20), keys("k", 200..201)].concat();
    put(&db, &[&asked[..], &others[..]].concat());
    compact(&db);
    // Some that are known and colder, so that what is read is among the hottest seven tenths.
    (0..9).for_each(|other| assert!(fast(&db).popularity.touch(other, false).is_some()));
    (0..reads).for_each(|_| read(&db, &asked));
    db.settle().unwrap();
    let after_read = place(&db, &asked[0]);
    put(&db, &cold);
    db.flush().unwrap();
    demote_all(&db);
    assert_eq!(count(&db, &cold, Place::Table), 100, "they left");
    assert_eq!(count(&db, &others, Place::Table), 11, "nothing asked for these");
    db.settle().unwrap();
    [after_read, place(&db, &asked[0])]
}

#[test]
fn what_is_read_comes_up_when_the_settings_say_so() {
    let up = |place| place != Place::Table;
    assert_eq!(place_after(Promotion::None, 4), [Place::Table; 2]);
    assert_eq!(place_after(Promotion::Read, 0), [Place::Table; 2]);
    assert_eq!(place_after(Promotion::Read, 4).map(up), [true, true]);
    assert_eq!(place_after(Promotion::Demotion, 0), [Place::Table; 2]);
    assert_eq!(place_after(Promotion::Demotion, 4).map(up), [false, true]);
}

/// One read is no reason where the rule of first reads does not hold.
#[test]
fn the_second_read_brings_a_record_up() {
    let mut settings = Settings { memory: ByteSize::mib(1), ..hybrid() };
    settings.tiers[0].capacity = ByteSize::mib(8);
    let db = stepped_with(Experiments::NONE.without(Rule::FirstRead), &settings);
    let (below, above) = (keys("k", 0..1000), keys("s", 0..3000));
    put(&db, &below);
    compact(&db);
    put(&db, &above);
    db.flush().unwrap();
    (0..3).for_each(|_| read(&db, &above));
    db.settle().unwrap();
    let [once, twice] = [0..30, 30..60].map(|numbers| keys("k", numbers));
    read(&db, &once);
    (0..2).for_each(|_| read(&db, &twice));
    db.engine().hybrid().promote().unwrap();
    assert_eq!(count(&db, &once, Place::Table), 30);
    // Memory is full, and gives some up again.
    assert!(count(&db, &twice, Place::Table) < 5);
}

/// With a budget that is spent cold records stay where they are, until it has come back.
#[test]
fn no_cold_record_leaves_while_the_budget_of_writes_is_spent() {
    for budget in [false, true] {
        let clock = Arc::new(StillClock::default());
        let environment = Environment { clock: clock.clone(), ..stepped_environment() };
        let write_budget_dwpd = if budget { 0.2 } else { 0.0 };
        let hybrid_settings = HybridSettings { write_budget_dwpd, ..hybrid().hybrid };
        let db = environment.create(Path::new("/home"), &small(hybrid_settings)).unwrap();
        // What is asked for by name waits for no budget, and spends it.
        put(&db, &keys("a", 0..3000));
        compact(&db);
        let cold = keys("k", 0..200);
        put(&db, &cold);
        db.flush().unwrap();
        assert_ne!(demote(&db), budget);
        let wanted = if budget { Place::Slot } else { Place::Table };
        assert_eq!(count(&db, &cold, wanted), 200, "budget: {budget}");
        clock.sleep(Duration::from_secs(86_400));
        assert_eq!(demote(&db), budget, "after a day");
        assert_eq!(count(&db, &cold, Place::Table), 200);
    }
}

/// How many records a full memory keeps of those that slots have, and of as many that only tables
/// have, where all are read equally often from devices that take so many microseconds.
fn kept_in_memory(fast_us: u64, slow_us: u64) -> [usize; 2] {
    let clock = Arc::new(StillClock::default());
    let passing = Arc::clone(&clock);
    let hook = Arc::new(move |call, path: &Path, _: &str| {
        let us = if path.starts_with("/slow") { slow_us } else { fast_us };
        if call == Call::Read {
            passing.sleep(Duration::from_micros(us));
        }
        Ok(())
    });
    let environment = stepped_environment();
    let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
    let environment = Environment { devices, clock, ..environment };
    let settings = Settings { memory: ByteSize::mib(4), ..hybrid() };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    let (below, above) = (keys("k", 0..3000), keys("s", 0..3000));
    put(&db, &below);
    compact(&db);
    put(&db, &above);
    db.flush().unwrap();
    let mut random = Random::new(1);
    for _ in 0..60 {
        for _ in 0..1000 {
            let keys = if random.below(2) == 0 { &below } else { &above };
            // Some are asked for more often than others, or reads would be no reason to keep any.
            let key = &keys[(random.below(3000) * random.below(3000) / 3000) as usize];
            assert!(db.get(key).unwrap().is_some());
        }
        db.settle().unwrap();
    }
    [above, below].map(|keys| {
        let has = |key: &&String| {
            let entry = fast(&db).index.get(key.as_bytes());
            entry.is_some_and(|entry| fast(&db).cache.contains(key.as_bytes(), entry.sequence))
        };
        keys.iter().filter(has).count()
    })
}

#[test]
fn memory_keeps_what_only_tables_have_before_what_slots_have() {
    let (dear, cheap) = (kept_in_memory(10, 1000), kept_in_memory(1000, 10));
    let ratio = |[slots, tables]: [usize; 2]| slots as f64 / tables as f64;
    let kept =
        format!("of slots and tables {dear:?} where tables are dear, {cheap:?} where slots are");
    assert!(dear[1] > 100 && cheap[1] > 100, "{kept}");
    assert!(2.0 * ratio(dear) < ratio(cheap), "{kept}");
}
