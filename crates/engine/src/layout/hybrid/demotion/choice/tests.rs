//! Which range a demotion takes, by every policy.

use super::*;
use crate::environment::experiments::Experiments;
use crate::limits::LEVELS;
use crate::support::{hybrid, run_to_end, stepped, stepped_with, until};
use crate::{ByteSize, Db, HybridSettings, Settings};
use thermocline_popularity::Run;
use thermocline_popularity::score;
use thermocline_table::key_hash;

#[test]
fn compacting_counts_the_records_that_leave_and_the_tables_that_they_are_merged_with() {
    let db = stepped(&hybrid());
    let compact = || {
        let mut last = None;
        db.compact_range(None, None, &mut |progress| {
            assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
            last = Some(progress);
        })
        .unwrap();
        last.unwrap().done_bytes
    };
    // Header, key and value of a slot.
    let record_bytes = 20 + 4 + 1100;
    let put = |from: u32| {
        (from..from + 50).for_each(|key| db.put(format!("{key:04}"), [7; 1100]).unwrap());
    };
    put(0);
    assert_eq!(compact(), 50 * record_bytes);
    put(50);
    let levels = Arc::clone(&db.engine().versions().current().levels);
    let tables: u64 = levels.tables().map(|(_, table)| table.meta.bytes).sum();
    assert!(tables > 0, "the first ones are in a table");
    assert_eq!(compact(), 50 * record_bytes + tables);
}

#[test]
fn more_runs_lie_over_each_other_while_the_fast_tier_is_below_a_tenth_of_the_data() {
    let db = stepped(&hybrid());
    let engine = db.engine();
    let room = &engine.hybrid().fast.room;
    let whole_bytes = engine.shared().tier0.divided_bytes();
    let runs_with = |table_bytes| {
        room.note_tables(table_bytes);
        engine.hybrid().runs_max()
    };
    assert_eq!(runs_with(9 * whole_bytes - 1), 3);
    assert_eq!(runs_with(9 * whole_bytes), 6);
    assert_eq!(runs_with(7 * whole_bytes), 6, "not back and forth");
    assert_eq!(runs_with(7 * whole_bytes - 1), 3);
    room.note_tables(u64::MAX);
    db.put("key", "value").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(engine.hybrid().runs_max(), 3, "each change of the tables is looked at");
}

/// Keys of one length that buckets know each of, in ascending order.
fn sampled(prefix: &str, count: usize) -> Vec<String> {
    let keys = (0..1 << 20).map(|number| format!("{prefix}{number:08}"));
    keys.filter(|key| key_hash(key.as_bytes()) >> 24 & 31 == 0).take(count).collect()
}

/// A store with one run a range, and its two ranges: what is below "n" and the rest. Each has a
/// table of the same size and as many records in slots, which in the range of `overlapped` are
/// newer versions of what the table has, and in the other lie between.
fn two_ranges(policy: DemotionPolicy, overlapped: &str) -> (Db, [KeyRange; 2]) {
    let experiments = Experiments { policy: Some(policy), runs: Some(1), ..Experiments::NONE };
    let hybrid_settings = HybridSettings::default();
    let db = stepped_with(experiments, &Settings { hybrid: hybrid_settings, ..hybrid() });
    let put = |key: &String| db.put(key, [7; 500]).unwrap();
    for prefix in ["a", "s"] {
        sampled(prefix, 200).iter().step_by(2).for_each(put);
        db.compact_range(None, None, &mut |_| {}).unwrap();
    }
    for prefix in ["a", "s"] {
        let skipped = usize::from(prefix != overlapped);
        sampled(prefix, 200).iter().skip(skipped).step_by(2).for_each(put);
    }
    db.flush().unwrap();
    // The first look-up of a key in a table's span opens the table; then it can be asked.
    for prefix in ["a", "s"] {
        assert!(db.get(format!("{}-", sampled(prefix, 1)[0])).unwrap().is_none());
    }
    let border = Some(b"n".to_vec());
    let below = KeyRange { from: None, to: border.clone() };
    (db, [below, KeyRange { from: border, to: None }])
}

fn known(db: &Db, of: &KeyRange) -> (RangeStatistics, Vec<Run>) {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    db.engine().hybrid().fast.statistics(&levels, of)
}

#[test]
fn of_two_ranges_that_differ_in_overlap_alone_the_overlapped_one_leaves() {
    for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
        for (at, overlapped) in ["a", "s"].into_iter().enumerate() {
            let (db, ranges) = two_ranges(policy, overlapped);
            let [(more, with), (less, without)] = [at, 1 - at].map(|at| known(&db, &ranges[at]));
            let alike = |of: RangeStatistics| RangeStatistics {
                slow_objects: 0.0,
                slow_bytes: 0.0,
                overlap_bytes: 0.0,
                ..of
            };
            assert_eq!(alike(more), alike(less), "{policy:?}");
            assert_eq!((with.len(), without.len()), (1, 1));
            let (bytes, overlap_bytes) = (with[0].bytes, with[0].overlap_bytes);
            assert_eq!(bytes, without[0].bytes);
            // All but what filters take for others, which is one in a hundred.
            assert!(overlap_bytes > 0.99 * bytes, "{overlap_bytes} of {bytes}");
            assert!(without[0].overlap_bytes < 0.05 * bytes, "{without:?} of {bytes}");
            let equation = |of: RangeStatistics, run: &Run| {
                let (slow_bytes, overlap_bytes) = (run.bytes, run.overlap_bytes);
                score(&RangeStatistics { slow_bytes, overlap_bytes, ..of })
            };
            let best = equation(more, &with[0]);
            assert!(best > equation(less, &without[0]), "{policy:?}");
            let engine = db.engine();
            let levels = Arc::clone(&engine.versions().current().levels);
            let (chosen, merge) = engine.hybrid().best_of(&levels, &ranges, 0).unwrap();
            assert_eq!((chosen, merge.runs), (at, 1), "{policy:?}");
            assert_eq!(merge.score, best);
        }
    }
}

#[test]
fn overlap_is_counted_by_filters_in_memory_and_never_by_a_read() {
    let (db, ranges) = two_ranges(DemotionPolicy::Precise, "a");
    let reads = || db.stats().tiers[1].reads;
    let look_ups = || {
        let cache = &db.engine().shared().cache;
        cache.counts(thermocline_table::BlockClass::Filter)
    };
    let before = (reads(), look_ups());
    assert!(known(&db, &ranges[0]).1[0].overlap_bytes > 0.0);
    db.engine().shared().cache.clear();
    assert_eq!(known(&db, &ranges[0]).1[0].overlap_bytes, 0.0);
    assert_eq!((reads(), look_ups()), before);
}

#[test]
fn records_that_stay_replace_nothing() {
    for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
        let (db, ranges) = two_ranges(policy, "a");
        let popularity = &db.engine().hybrid().fast.popularity;
        for key in sampled("a", 200).iter().step_by(2).take(10) {
            (0..5).for_each(|_| {
                popularity.touch(key_hash(key.as_bytes()), true);
            });
        }
        let (statistics, runs) = known(&db, &ranges[0]);
        let stays = statistics.pinned_share();
        assert!(stays > 0.0 && stays < 0.2, "{stays}");
        let leaves = runs[0].overlap_bytes / runs[0].bytes;
        assert!((leaves + stays - 1.0).abs() < 0.02, "{leaves} and {stays}");
    }
}

/// A store with one run of several tables, between the records of which so many cold ones are
/// in slots: four in the first table's range, eight in the next, and so on. Behind the last
/// table there is nothing.
fn ranked(experiments: Experiments) -> Db {
    let table_size = ByteSize::kib(64);
    let db = stepped_with(experiments, &Settings { table_size, ..hybrid() });
    let mut random = Random::new(1);
    let mut put = |key: &String| {
        // What does not compress.
        let mut value = [0; 1000];
        random.fill(&mut value);
        db.put(key, value).unwrap();
    };
    let keys = sampled("k", 1200);
    keys.iter().step_by(2).for_each(&mut put);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    for (at, range) in all_ranges(&db, 1).iter().enumerate() {
        let between = keys.iter().skip(1).step_by(2);
        let inside = between.filter(|key| range.to.is_some() && range.contains(key.as_bytes()));
        inside.take(4 * (at + 1)).for_each(&mut put);
    }
    db.flush().unwrap();
    db
}

fn all_ranges(db: &Db, width: usize) -> Vec<KeyRange> {
    ranges(&db.engine().versions().current().levels, width)
}

/// How often each range is chosen, most often first, of so many choices.
fn chosen(count: usize, choose: impl Fn() -> Option<KeyRange>) -> Vec<(KeyRange, usize)> {
    let mut counts: Vec<(KeyRange, usize)> = Vec::new();
    for range in (0..count).filter_map(|_| choose()) {
        match counts.iter_mut().find(|(other, _)| *other == range) {
            Some((_, count)) => *count += 1,
            None => counts.push((range, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| usize::MAX - count);
    counts
}

/// The range that is claimed by the demotion that is planned now, which then gives it back.
fn planned(db: &Db, plan: impl Fn() -> Option<Demotion>) -> Option<KeyRange> {
    let demotion = plan()?;
    let claims = db.engine().versions().tables().claims.ranges();
    assert_eq!(claims.len(), 1);
    drop(demotion);
    claims.into_iter().next()
}

/// As two reads of a record in a table do.
fn ask_for(db: &Db, key: &str) {
    let popularity = &db.engine().hybrid().fast.popularity;
    (0..2).for_each(|_| assert!(popularity.touch(key_hash(key.as_bytes()), false).is_some()));
}

fn cold_of_drawn(db: &Db) -> Option<KeyRange> {
    planned(db, || db.engine().hybrid().plan_demotion(EvictionStep::Cold))
}

/// Of all but one the best is drawn nearly always, and otherwise the second.
#[test]
fn no_more_ranges_are_looked_at_than_there_are_candidates_and_no_fewer() {
    for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
        let with = |candidates| {
            let (policy, candidates, runs) = (Some(policy), Some(candidates), Some(1));
            let db = ranked(Experiments { policy, candidates, runs, ..Experiments::NONE });
            (all_ranges(&db, 1).len(), chosen(300, || cold_of_drawn(&db)))
        };
        let (count, best) = with(64);
        assert!(count >= 8, "{count}");
        let [(best, 300)] = &best[..] else { panic!("always the best: {best:?}") };
        let (_, of_others) = with(count - 1);
        assert_eq!(of_others.len(), 2, "{policy:?}: {of_others:?}");
        assert!(of_others[0].0 == *best && of_others[0].1 > 200, "{of_others:?}");
        let (_, of_one) = with(1);
        assert_eq!(of_one.len(), count - 1, "any in which something is: {of_one:?}");
    }
}

#[test]
fn merges_that_reads_ask_for_look_at_as_many_ranges_as_there_are_candidates() {
    let with = |candidates| {
        let (read_triggered, candidates, runs) = (Some(true), Some(candidates), Some(1));
        let db = ranked(Experiments { read_triggered, candidates, runs, ..Experiments::NONE });
        let fast = &db.engine().hybrid().fast;
        let ranges = all_ranges(&db, 1);
        // The further, the more records of tables are asked for.
        for (at, range) in ranges.iter().enumerate() {
            let keys = sampled("k", 1200);
            let inside = keys.iter().step_by(2).filter(|key| range.contains(key.as_bytes()));
            inside.take(2 * (at + 1)).for_each(|key| ask_for(&db, key));
        }
        (0..200).for_each(|other| assert_eq!(fast.popularity.touch(other, false), Some(0)));
        // An epoch has no more merges than there are ranges.
        let plan = || planned(&db, || db.engine().hybrid().plan_read_triggered());
        (ranges.len(), chosen(ranges.len(), plan))
    };
    let (count, best) = with(64);
    assert_eq!(best.len(), 1, "{best:?}");
    let (_, of_one) = with(1);
    assert!(of_one.len() > count / 3, "{of_one:?}");
}

#[test]
fn a_range_has_as_many_tables_as_are_set() {
    for range_tables in [1, 3] {
        let db = ranked(Experiments {
            policy: Some(DemotionPolicy::Precise),
            read_triggered: Some(true),
            candidates: Some(64),
            range_tables: Some(range_tables),
            runs: Some(1),
            ..Experiments::NONE
        });
        let levels = Arc::clone(&db.engine().versions().current().levels);
        let tables_of = |range: &KeyRange| {
            (0..LEVELS).map(|level| count_touching(&levels, level, range)).sum::<usize>()
        };
        let range = cold_of_drawn(&db).unwrap();
        assert_eq!(tables_of(&range), range_tables, "{range:?}");
        assert!(all_ranges(&db, range_tables).contains(&range));
        sampled("k", 1200).iter().step_by(2).for_each(|key| ask_for(&db, key));
        let range = planned(&db, || db.engine().hybrid().plan_read_triggered()).unwrap();
        assert_eq!(tables_of(&range), range_tables, "{range:?}");
    }
}

fn random_policy(runs: usize) -> Experiments {
    let (policy, runs, candidates) = (Some(DemotionPolicy::Random), Some(runs), Some(64));
    Experiments { policy, runs, candidates, ..Experiments::NONE }
}

#[test]
fn the_random_policy_takes_each_range_equally_often_and_gives_no_score() {
    for runs in [1, 3] {
        let db = ranked(random_policy(runs));
        let count = all_ranges(&db, 1).len();
        let chosen = chosen(100 * count, || cold_of_drawn(&db));
        let counts: Vec<_> = chosen.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts.len(), count, "{counts:?}");
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
        // Some of them find nothing in their range.
        let demotions = || db.stats().fast_tier.unwrap().demotions;
        until("four demotions", || {
            let mut demotion = db.engine().hybrid().plan_demotion(EvictionStep::Cold).unwrap();
            run_to_end(&mut demotion);
            demotions().ended >= 4
        });
        assert_eq!((demotions().last_score, demotions().mean_score), (None, None));
    }
}

#[test]
fn what_is_drawn_by_chance_is_counted_only_where_there_are_runs_to_choose() {
    let drawn = |runs| {
        let db = ranked(random_policy(runs));
        let levels = Arc::clone(&db.engine().versions().current().levels);
        db.engine().hybrid().best_of(&levels, &all_ranges(&db, 1)[..1], 0).unwrap()
    };
    assert_eq!(drawn(1), (0, UNCOUNTED));
    let (at, merge) = drawn(3);
    assert!(at == 0 && merge.runs <= 1 && merge.score > 0.0, "{merge:?}");
    assert!((1.0..1e6).contains(&merge.written_bytes), "{merge:?}");
}

#[test]
fn all_runs_of_a_range_that_is_drawn_by_chance_are_merged_and_its_cold_records_leave() {
    let db = ranked(random_policy(1));
    let records = || db.stats().fast_tier.unwrap().records;
    let (before, tables_before) = (records(), db.stats().levels[0].tables);
    // Behind the last table there is nothing.
    let plan = || {
        let demotion = db.engine().hybrid().plan_demotion(EvictionStep::Cold)?;
        let range = db.engine().versions().tables().claims.ranges()[0].clone();
        range.to.is_some().then_some((demotion, range))
    };
    let (mut demotion, range) = std::iter::repeat_with(plan).flatten().next().unwrap();
    run_to_end(&mut demotion);
    drop(demotion);
    let fast = &db.engine().hybrid().fast;
    let (from, to) = range.bounds();
    let mut left = 0;
    fast.index.for_each(from, to, |_, _| left += 1);
    assert!(left == 0 && records() < before, "{left} and {} of {before}", records());
    assert_eq!(db.stats().levels.len(), 1, "one run");
    assert!(db.engine().shared().counts.compacted_in_bytes.get() > 0 && tables_before > 8);
    assert_eq!(db.stats().levels[0].entries, 600 + before - records());
    let found = sampled("k", 1200).iter().filter(|key| db.get(key).unwrap().is_some()).count();
    assert_eq!(found as u64, 600 + before);
}

#[test]
fn a_demotion_takes_a_part_of_a_fast_tier_that_is_smaller_than_a_table() {
    for capacity in [6, 8, 16] {
        let mut settings = hybrid();
        settings.tiers[0].capacity = ByteSize::mib(capacity);
        settings.tiers[1].capacity = ByteSize::mib(16 * capacity);
        assert!(settings.tiers[0].capacity < settings.table_size);
        let db = stepped(&settings);
        let (mut random, mut shares) = (Random::new(1), Vec::new());
        let keys = 3000 * capacity;
        for number in 0..2 * keys {
            let mut value = [0; 1000];
            random.fill(&mut value);
            db.put((number * 7919 % keys).to_be_bytes(), value).unwrap();
            if number > keys / 2 && number % 100 == 0 {
                let fast = &db.engine().hybrid().fast;
                let live_bytes = fast.slabs.stats().bytes_live();
                shares.push(100 * live_bytes / fast.room.limit_bytes());
            }
        }
        assert!(db.stats().fast_tier.unwrap().demotions.ended > 10);
        // What leaves at once was three quarters of it.
        let least = shares.iter().min().unwrap();
        assert!(*least >= 40, "{capacity} MiB: {least} % of {shares:?}");
    }
}
