//! What leaves in a demotion, what stays, and what memory keeps.

use super::Demotion;
use crate::compaction::selection::Selection;
use crate::environment::experiments::{Experiments, Promotion};
use crate::jobs::{Job, Step};
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose};
use crate::layout::hybrid::records::packing::Stored;
use crate::layout::hybrid::records::placing::Arrival;
use crate::layout::hybrid::rules::fullness::EvictionStep;
use crate::layout::hybrid::space::sweep::Sweep;
use crate::limits::LEVELS;
use crate::settings::WRITER_BYTES;
use crate::support::{hybrid, run_to_end, stepped, stepped_with, tier};
use crate::table_set::key_range::KeyRange;
use crate::{ByteSize, Db, Settings};
use thermocline_device::Origin;
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_popularity::Pinning;
use thermocline_table::{RecordKind, Trailer, key_hash};

#[test]
fn a_demotion_that_merges_nothing_is_no_compaction() {
    let db = stepped(&hybrid());
    let engine = db.engine();
    let fast = &engine.hybrid().fast;
    db.put("key", "value").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let trailer = Trailer::new(engine.versions().visible(), RecordKind::Put);
    let copy = Arrival { key: "key".into(), trailer, value: Stored::plain("value"), clean: true };
    let placed = fast.write(&[copy], Origin::Migration).unwrap().unwrap();
    engine.hybrid().commit_placed(&mut engine.versions().tables(), placed, vec![], || ()).unwrap();
    let levels = engine.versions().current().levels.clone();
    let tables = levels.tables().map(|(level, table)| (level, table.clone()));
    let selection = Selection {
        range: KeyRange::default(),
        inputs: tables.collect(),
        output_level: levels.deepest(),
    };
    let purpose = Purpose::Room(EvictionStep::Hot);
    let plan = DemotionPlan { purpose, ..DemotionPlan::new(selection, Sequence::ZERO) };
    let counted = || {
        let metrics = &engine.shared().counts;
        (metrics.compactions.get(), metrics.compacted_in_bytes.get())
    };
    let before = counted();
    let mut demotion = begin(&db, plan);
    run_to_end(&mut demotion);
    let demotions = &engine.shared().counts.demotions;
    let moved = (demotions.dirty.get(), demotions.clean.get(), demotions.ended.get());
    assert_eq!(moved, (1, 1, 2), "the record, and its copy now");
    assert_eq!(db.stats().fast_tier.unwrap().records, 0);
    assert_eq!(counted(), before);
}

/// A store with a hot record, in a slot and in memory, and a cold one in a slot.
fn with_hot_and_cold() -> Db {
    let db = stepped(&hybrid());
    db.put("cold", "value").unwrap();
    db.put("hot", "value").unwrap();
    db.flush().unwrap();
    let popularity = &db.engine().hybrid().fast.popularity;
    (0..9).for_each(|other| assert_eq!(popularity.touch(other, false), Some(0)));
    (0..2).for_each(|_| assert_eq!(db.get("hot").unwrap().unwrap(), "value"));
    db
}

/// A demotion of all that is not hot.
fn demotion(db: &Db) -> Demotion {
    demotion_for(db, Purpose::Reads, 0)
}

fn demotion_for(db: &Db, purpose: Purpose, bytes_min: u64) -> Demotion {
    let selection =
        Selection { range: KeyRange::default(), inputs: Vec::new(), output_level: LEVELS - 1 };
    let plan = DemotionPlan::new(selection, Sequence::ZERO);
    begin(db, DemotionPlan { purpose, bytes_min, ..plan })
}

/// A demotion as planned, with the claim on its range.
fn begin(db: &Db, plan: DemotionPlan) -> Demotion {
    let versions = db.engine().versions();
    let claim = plan.selection.claim_of_all_levels();
    let claimed = versions.claim(&mut versions.tables(), claim).unwrap();
    Demotion::new(db.engine().hybrid(), plan, claimed)
}

fn run(mut demotion: Demotion) {
    run_to_end(&mut demotion);
}

/// Records in slots, and in memory only.
fn places(db: &Db) -> [u64; 2] {
    let fast = db.stats().fast_tier.unwrap();
    [fast.records, fast.memory_records]
}

fn slow_reads_of_hot(db: &Db) -> u64 {
    let before = db.stats().fast_tier.unwrap().slow_reads;
    assert_eq!(db.get("hot").unwrap().unwrap(), "value");
    db.stats().fast_tier.unwrap().slow_reads - before
}

#[test]
fn a_cold_record_leaves_its_slot_and_a_hot_one_stays() {
    let db = with_hot_and_cold();
    let scan = db.scan();
    run(demotion(&db));
    assert_eq!(places(&db), [1, 0]);
    assert_eq!(slow_reads_of_hot(&db), 0);
    let found: Vec<_> = scan.into_iter().map(|record| record.unwrap().0).collect();
    assert_eq!(found, ["cold", "hot"], "by one that was begun before");
    db.engine().hybrid().fast.index.check();
}

#[test]
fn hot_records_leave_where_they_must() {
    let db = with_hot_and_cold();
    run(demotion_for(&db, Purpose::Room(EvictionStep::Hot), 0));
    assert_eq!(places(&db), [0, 0]);
    assert_eq!(slow_reads_of_hot(&db), 1);
}

#[test]
fn what_a_load_replaced_leaves_and_hot_records_beside_it_stay() {
    let db = with_hot_and_cold();
    db.put("other", "value").unwrap();
    db.flush().unwrap();
    let fast = &db.engine().hybrid().fast;
    let mut ingest = db.ingest();
    ["cold", "other"].iter().for_each(|key| ingest.add(key, "loaded").unwrap());
    ingest.finish().unwrap();
    (0..4).for_each(|_| assert!(fast.popularity.touch(key_hash(b"other"), true).is_some()));
    fast.cache.clear();
    let levels = db.engine().versions().current().levels.clone();
    let tables = levels.tables().map(|(level, table)| (level, table.clone()));
    let ingested = levels.newest_ingest_of_all();
    assert!(ingested > Sequence::ZERO);
    let selection = Selection {
        range: KeyRange::default(),
        inputs: tables.collect(),
        output_level: LEVELS - 1,
    };
    run(begin(&db, DemotionPlan::new(selection, ingested)));
    let is_there = |key: &str| fast.index.get(key.as_bytes()).is_some();
    assert_eq!(["cold", "other", "hot"].map(is_there), [false, false, true]);
    let state = db.engine().versions().current();
    assert!(!state.has_loads(), "the load is merged, and what it replaced has left");
    let found = ["cold", "other", "hot"].map(|key| db.get(key).unwrap().unwrap());
    assert_eq!(found, ["loaded", "loaded", "value"]);
}

#[test]
fn a_demotion_of_too_few_gives_up_and_says_so() {
    let db = with_hot_and_cold();
    let room = &db.engine().hybrid().fast.room;
    room.found_little(EvictionStep::Sweep, 0);
    run(demotion_for(&db, Purpose::Room(EvictionStep::Cold), 1000));
    assert_eq!(places(&db), [2, 0]);
    assert_eq!(room.eviction_step(0), EvictionStep::Hot);
    assert!(!db.engine().versions().tables().claims.has_ranges(), "the range is free again");
    run(demotion_for(&db, Purpose::Room(EvictionStep::Hot), 0));
    assert_eq!(places(&db), [0, 0], "the last step takes what there is");
    assert_eq!(room.eviction_step(0), EvictionStep::Sweep);
}

#[test]
fn a_copy_that_no_read_asks_for_stays_until_a_sweep_wants_its_slot() {
    let db = with_hot_and_cold();
    let engine = db.engine();
    let fast = &engine.hybrid().fast;
    run(demotion(&db));
    let sequence = Sequence(1);
    let trailer = Trailer::new(sequence, RecordKind::Put);
    let copy = Arrival { key: "cold".into(), trailer, value: Stored::plain("value"), clean: true };
    let placed = fast.write(&[copy], Origin::Migration).unwrap().unwrap();
    engine.hybrid().commit_placed(&mut engine.versions().tables(), placed, vec![], || ()).unwrap();
    assert_eq!(fast.index.get_at(b"cold", sequence).map(|entry| entry.clean), Some(true));
    db.put("other", "value").unwrap();
    db.flush().unwrap();
    run(demotion(&db));
    let is_there = |key: &str| fast.index.get(key.as_bytes()).is_some();
    assert!(!is_there("other") && is_there("cold"));
    Sweep::begin(engine.hybrid()).unwrap().step().unwrap();
    assert!(!is_there("cold"));
    assert_eq!(db.get("cold").unwrap().unwrap(), "value");
}

#[test]
fn a_demotion_that_merges_says_what_memory_it_takes_until_it_ends() {
    let db = with_hot_and_cold();
    let mut demotion = demotion(&db);
    let merge_bytes = || db.stats().memory.merge_bytes;
    assert_eq!(merge_bytes(), 0);
    assert_eq!(demotion.step().unwrap(), Step::More);
    assert!(merge_bytes() > WRITER_BYTES, "{}", merge_bytes());
    drop(demotion);
    assert_eq!(merge_bytes(), 0);
}

#[test]
fn a_hot_record_that_is_written_during_the_demotion_keeps_the_new_slot() {
    let db = with_hot_and_cold();
    let mut demotion = demotion_for(&db, Purpose::Room(EvictionStep::Hot), 0);
    assert_eq!(demotion.step().unwrap(), Step::More);
    db.put("hot", "value").unwrap();
    db.flush().unwrap();
    run(demotion);
    assert_eq!(places(&db), [1, 0]);
    assert_eq!(slow_reads_of_hot(&db), 0);
}

#[test]
fn of_a_key_that_no_table_has_any_more_the_buckets_know_nothing() {
    let db = stepped(&hybrid());
    let buckets = db.engine().hybrid().fast.feedback.buckets.as_ref().unwrap();
    let slow = || buckets.estimate(&[], None, &Pinning::default()).slow_objects;
    let demote = || db.compact_range(None, None, &mut |_| {}).unwrap();
    // Enough of them that some are sampled.
    let keys = || (0..1000).map(|number| format!("key {number:04}"));
    keys().for_each(|key| db.put(key, "value").unwrap());
    demote();
    let all = slow();
    assert!(all > 0.0, "none is sampled");
    let kept = db.snapshot();
    keys().for_each(|key| db.delete(key).unwrap());
    demote();
    assert_eq!(slow(), all, "the tombstones hide what the snapshot sees");
    drop(kept);
    demote();
    assert_eq!(db.stats().levels.iter().map(|level| level.tables).sum::<usize>(), 0);
    assert!(buckets.is_empty(), "{} of {all} records", slow());
}

/// The tier below the fast one has room for what a table begins with, and the next for all of it.
#[test]
fn a_hot_record_in_a_table_that_moves_while_it_is_written_is_offered_from_where_it_is_then() {
    let experiments = Experiments { promotion: Some(Promotion::Demotion), ..Experiments::NONE };
    let tiers = vec![tier("/fast", 16), tier("/small", 2), tier("/slow", 64)];
    let db =
        stepped_with(experiments, &Settings { tiers, table_size: ByteSize::mib(1), ..hybrid() });
    let fast = &db.engine().hybrid().fast;
    db.put("hot", "value").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    (0..9).for_each(|other| _ = fast.popularity.touch(other, false));
    (0..3).for_each(|_| assert_eq!(db.get("hot").unwrap().unwrap(), "value"));
    // It comes behind the hot one, and snapshots keep all versions.
    let mut value = vec![0; 64 << 10];
    let mut version = |seed| {
        Random::new(seed).fill(&mut value);
        db.put("key", &value).unwrap();
        db.snapshot()
    };
    let _snapshots: Vec<_> = (0..48).map(&mut version).collect();
    db.flush().unwrap();
    let levels = db.engine().versions().current().levels.clone();
    let tables = levels.tables().map(|(level, table)| (level, table.clone()));
    let selection = Selection {
        range: KeyRange::default(),
        inputs: tables.collect(),
        output_level: LEVELS - 1,
    };
    run(begin(&db, DemotionPlan::new(selection, Sequence::ZERO)));
    let levels = db.engine().versions().current().levels.clone();
    let tables: Vec<_> = levels.tables().map(|(_, table)| table.meta.number).collect();
    let on_slow = db.stats().tiers[2].used_bytes;
    assert!(tables.len() == 1 && on_slow > 2 << 20, "{tables:?}, {on_slow} bytes");
    let offers = fast.promotions.offers.take(u64::MAX);
    let offered: Vec<_> = offers.iter().map(|offer| (&offer.key[..], offer.table)).collect();
    assert_eq!(offered, [(&b"hot"[..], tables[0])]);
}
