//! The whole store with a few threads that each do a few operations, and a model of what they may
//! find.

use super::support::*;
use crate::{
    ByteSize, Db, Durability, ErrorKind, Isolation, Settings, TransactionOptions, WriteBatch,
};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::Devices;
use thermocline_foundation::random::entropy;
use thermocline_foundation::sync::Mutex;

fn key(writer: u64, name: &str) -> Vec<u8> {
    format!("{name}{writer}").into_bytes()
}

/// A batch that writes `number` under two keys of `writer`.
fn twins(writer: u64, number: u64, len: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key(writer, "left"), value(number, len));
    batch.put(key(writer, "right"), value(number, len));
    batch
}

/// The number under both keys of `writer`, 0 for none.
fn twins_of(db: &Db, writer: u64) -> u64 {
    let found = db.multi_get(&[key(writer, "left"), key(writer, "right")]).unwrap();
    let numbers: Vec<_> = found.iter().map(|v| v.as_ref().map_or(0, |v| number(v))).collect();
    assert_eq!(numbers[0], numbers[1], "a batch is whole");
    numbers[0]
}

/// What was promised at the moment of a loss of power, and what that left.
type Crash = ([u64; 3], Arc<FragileDevices>);

#[test]
fn a_write_is_read_by_its_writer_and_a_sync_outlives_loss_of_power() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let db = create(&devices);
        let (synced, crash) = (Arc::new(Mutex::new([0; 3])), Arc::new(Mutex::new(None)));
        // The power goes right after one of the acknowledgements.
        let last = (entropy() % 3, 1 + entropy() % 2);
        let syncer = {
            let db = db.clone();
            spawn(move || db.sync().unwrap())
        };
        let writers = (0..3).map(|writer| {
            let (db, devices) = (db.clone(), Arc::clone(&devices));
            let (synced, crash) = (Arc::clone(&synced), Arc::clone(&crash));
            spawn(move || {
                for number in 1..=2 {
                    let durability =
                        if writer == 0 { Durability::Buffered } else { Durability::Sync };
                    db.write_with(twins(writer, number, 8), durability).unwrap();
                    if durability == Durability::Buffered {
                        // Written, perhaps, while the other sync was under way.
                        db.sync().unwrap();
                    }
                    synced.lock()[writer as usize] = number;
                    if (writer, number) == last {
                        let promised = *synced.lock();
                        let left: Crash = (promised, devices.after_crash());
                        *crash.lock() = Some(left);
                    }
                    assert_eq!(twins_of(&db, writer), number, "what was acknowledged is read");
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        join(writers);
        join([syncer]);
        assert_eq!((0..3).map(|writer| twins_of(&db, writer)).collect::<Vec<_>>(), [2, 2, 2]);
        drop(db);
        let (promised, crashed) = crash.lock().take().unwrap();
        let db = open(&crashed);
        for writer in 0..3 {
            let (found, promised) = (twins_of(&db, writer), promised[writer as usize]);
            assert!(found >= promised, "writer {writer} was promised {promised}, has {found}");
        }
    });
}

#[test]
fn readers_see_moments_that_only_go_forward() {
    check(2000, || {
        let db = create(&Arc::default());
        let writer = {
            let db = db.clone();
            spawn(move || {
                for number in 1..=4 {
                    db.write_with(twins(0, number, BIG / 2), Durability::Buffered).unwrap();
                    if number == 2 {
                        db.flush().unwrap();
                    }
                }
            })
        };
        let readers = (0..2).map(|reader| {
            let db = db.clone();
            spawn(move || {
                let mut last = 0;
                for _ in 0..4 {
                    let seen = match reader {
                        0 => {
                            let snapshot = db.snapshot();
                            let look = || snapshot.get(key(0, "left")).unwrap();
                            let first = look();
                            yield_now();
                            assert!(first == look(), "a snapshot does not change");
                            twins_of(&db, 0).max(first.map_or(0, |value| number(&value)))
                        }
                        _ => {
                            let records: Vec<_> =
                                db.scan().into_iter().map(|r| number(&r.unwrap().1)).collect();
                            assert!(records.is_empty() || records.len() == 2, "{records:?}");
                            assert!(records.windows(2).all(|pair| pair[0] == pair[1]));
                            records.first().copied().unwrap_or(0)
                        }
                    };
                    assert!(seen >= last, "{seen} after {last}");
                    last = seen;
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        join(readers);
        join([writer]);
        assert_eq!(twins_of(&db, 0), 4);
    });
}

#[test]
fn rotation_flush_and_background_sync_lose_nothing() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        // Every write past the bound of what may be lost, or none: then only `sync` covers them,
        // and the logs before a rotation with them.
        let background_sync_bytes =
            if entropy() % 2 == 0 { ByteSize::kib(64) } else { ByteSize::mib(64) };
        let db = create_with(&devices, &Settings { background_sync_bytes, ..settings() });
        let last = 1 + entropy() % 3;
        let writers = (0..2).map(|writer| {
            let (db, devices) = (db.clone(), Arc::clone(&devices));
            spawn(move || {
                let mut crashed = None;
                for number in 1..=3 {
                    db.write_with(twins(writer, number, BIG), Durability::Buffered).unwrap();
                    if writer == 0 && number == last {
                        db.sync().unwrap();
                        crashed = Some(devices.after_crash());
                    }
                }
                crashed
            })
        });
        let writers: Vec<_> = writers.collect();
        db.flush().unwrap();
        let crashed = join(writers).into_iter().flatten().next().unwrap();
        for writer in 0..2 {
            assert_eq!(twins_of(&db, writer), 3);
        }
        db.close().unwrap();
        let db = open(&devices);
        for writer in 0..2 {
            assert_eq!(twins_of(&db, writer), 3, "closing keeps everything");
        }
        drop(db);
        let db = open(&crashed);
        assert!(twins_of(&db, 0) >= last, "synced {last}, has {}", twins_of(&db, 0));
        twins_of(&db, 1);
    });
}

/// Groups of three writers go to the log side by side, over full memtables; the power goes right
/// after one of the acknowledgements, while others are in flight. What is left is a prefix of what
/// was written, with everything that a synced write promised.
fn side_by_side_writes_leave_a_prefix() {
    let devices = Arc::new(FragileDevices::default());
    let db = create_with(&devices, &Settings { log_writes: 3, ..settings() });
    // What each writer was told; what every write found told when it began.
    let told = Arc::new(Mutex::new([0; 3]));
    let begun = Arc::new(Mutex::new([[[0; 3]; 3]; 3]));
    let promised = Arc::new(Mutex::new([0; 3]));
    let crash = Arc::new(Mutex::new(None));
    let last = (entropy() % 3, 1 + entropy() % 2);
    let writers = (0..3).map(|writer| {
        let (db, devices, crash) = (db.clone(), Arc::clone(&devices), Arc::clone(&crash));
        let (told, begun) = (Arc::clone(&told), Arc::clone(&begun));
        let promised = Arc::clone(&promised);
        spawn(move || {
            for number in 1..=2_u64 {
                let len = [8, BIG][(entropy() % 2) as usize];
                let is_synced = entropy() % 3 > 0;
                let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
                let seen = *told.lock();
                begun.lock()[writer as usize][number as usize] = seen;
                db.write_with(twins(writer, number, len), durability).unwrap();
                told.lock()[writer as usize] = number;
                if is_synced {
                    let mut promised = promised.lock();
                    (0..3).for_each(|at| promised[at] = promised[at].max(seen[at]));
                    promised[writer as usize] = number;
                }
                if (writer, number) == last {
                    let promise = *promised.lock();
                    let left: Crash = (promise, devices.after_crash());
                    *crash.lock() = Some(left);
                }
                assert_eq!(twins_of(&db, writer), number, "what was acknowledged is read");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    join(writers);
    assert_eq!((0..3).map(|writer| twins_of(&db, writer)).collect::<Vec<_>>(), [2, 2, 2]);
    drop(db);
    let (promised, crashed) = crash.lock().take().unwrap();
    let db = open(&crashed);
    let found: Vec<_> = (0..3).map(|writer| twins_of(&db, writer)).collect();
    for writer in 0..3 {
        let (found_here, promised) = (found[writer], promised[writer]);
        assert!(found_here >= promised, "writer {writer}: promised {promised}, has {found_here}");
        let before = begun.lock()[writer][found_here as usize];
        for (other, before) in before.into_iter().enumerate() {
            assert!(found_here == 0 || found[other] >= before, "a hole: {found:?}, {before}");
        }
    }
}

#[test]
fn groups_that_are_written_side_by_side_leave_a_prefix() {
    check(4000, side_by_side_writes_leave_a_prefix);
}

/// A reader beside a thread that writes with a sync, one group at a time or several; the power goes
/// right after one of its reads.
fn what_a_reader_saw_outlives_loss_of_power() {
    let devices = Arc::new(FragileDevices::default());
    let log_writes = [1, 3][(entropy() % 2) as usize];
    let db = create_with(&devices, &Settings { log_writes, ..settings() });
    let writer = {
        let db = db.clone();
        spawn(move || {
            (1..=2).for_each(|number| {
                db.write_with(twins(0, number, 8), Durability::Sync).unwrap();
            });
        })
    };
    let looks = 1 + entropy() % 3;
    let reader = {
        let (db, devices) = (db.clone(), Arc::clone(&devices));
        spawn(move || {
            let seen = (0..looks).map(|_| twins_of(&db, 0)).last();
            (seen.unwrap(), devices.after_crash())
        })
    };
    let (seen, crashed) = join([reader]).into_iter().next().unwrap();
    join([writer]);
    let found = twins_of(&open(&crashed), 0);
    assert!(found >= seen, "a reader saw {seen}, and {found} is left");
}

#[test]
fn readers_see_no_synced_write_before_it_is_durable() {
    check(2000, what_a_reader_saw_outlives_loss_of_power);
}

/// Of writes that exclude each other one is written, while others are on their way to the log.
fn one_of_three_claims_a_key() {
    let devices = Arc::new(FragileDevices::default());
    let db = create_with(&devices, &Settings { log_writes: 3, ..settings() });
    let writers = (0..3).map(|writer| {
        let db = db.clone();
        spawn(move || db.put_if_absent("key", value(writer, 8)).unwrap())
    });
    let writers: Vec<_> = writers.collect();
    let won: Vec<_> = join(writers);
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    let winner = won.iter().position(|won| *won).unwrap() as u64;
    assert_eq!(number(&db.get("key").unwrap().unwrap()), winner);
}

#[test]
fn conditions_see_groups_that_are_on_their_way() {
    check(2000, one_of_three_claims_a_key);
}

/// Each of three adds a key to a range that it found empty: one does, and the others see that it
/// came first, also while it is on its way to the log.
fn one_of_three_fills_an_empty_range() {
    let devices = Arc::new(FragileDevices::default());
    let db = create_with(&devices, &Settings { log_writes: 3, ..settings() });
    let writers = (0..3).map(|writer| {
        let db = db.clone();
        spawn(move || {
            let isolation = Isolation::Serializable;
            let options = TransactionOptions { isolation, ..TransactionOptions::default() };
            let mut of = db.transaction(options);
            if of.scan().prefix("range/").into_iter().next().is_some() {
                return false;
            }
            of.put(key(writer, "range/"), value(writer, 8)).unwrap();
            match of.commit() {
                Err(error) if error.kind() == ErrorKind::Conflict => false,
                committed => committed.map(|_| true).unwrap(),
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let filled: Vec<_> = join(writers);
    assert_eq!(filled.iter().filter(|filled| **filled).count(), 1, "{filled:?}");
    assert_eq!(db.scan().prefix("range/").into_iter().count(), 1);
}

#[test]
fn ranges_see_groups_that_are_on_their_way() {
    check(2000, one_of_three_fills_an_empty_range);
}

/// The tester tested: the schedules above find each mistake of a parallel log that takes threads.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_the_mistakes_of_a_parallel_log() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let prefix = side_by_side_writes_leave_a_prefix as fn();
    for (bug, test) in [
        (Planted::AcknowledgedOutOfOrder, prefix),
        (Planted::BufferedBeforeSyncIgnored, prefix),
        (Planted::DurableFlagDropped, prefix),
        (Planted::HoleInLogSkipped, prefix),
        (Planted::InsertAfterFreeze, prefix),
        (Planted::VisibleBeforeDurable, what_a_reader_saw_outlives_loss_of_power),
        (Planted::ChecksMissFlyingGroups, one_of_three_claims_a_key),
        (Planted::ChecksMissFlyingGroups, one_of_three_fills_an_empty_range),
    ] {
        let found = std::panic::catch_unwind(|| with(bug, || check(4000, test)));
        assert!(found.is_err(), "4000 schedules do not show {}", bug.name());
    }
}

/// Names in the tiers that end in `end`.
fn files(devices: &FragileDevices, end: &str) -> Vec<String> {
    let drivers = TIERS.iter().map(|tier| devices.home(Path::new(tier)).unwrap());
    let entries = drivers.flat_map(|driver| driver.list().unwrap());
    entries.map(|entry| entry.name).filter(|name| name.ends_with(end)).collect()
}

#[test]
fn a_snapshot_and_its_tables_stay_until_the_last_reader_is_gone() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let db = create(&devices);
        for name in ["a", "b", "c"] {
            db.put(name, value(1, 3000)).unwrap();
        }
        db.flush().unwrap();
        let reader = {
            let db = db.clone();
            spawn(move || {
                let snapshot = db.snapshot();
                let mut moments = Vec::new();
                for _ in 0..2 {
                    let mut seen = Vec::new();
                    for record in snapshot.scan() {
                        seen.push(number(&record.unwrap().1));
                        yield_now();
                    }
                    moments.push(seen);
                    let got = snapshot.get("b").unwrap().map(|value| number(&value));
                    assert_eq!(got.unwrap_or(0), moments[0].get(1).copied().unwrap_or(0));
                }
                assert_eq!(moments[0], moments[1], "a snapshot does not change");
                assert!(moments[0].iter().all(|number| *number == moments[0][0]));
            })
        };
        let compactor = {
            let db = db.clone();
            spawn(move || db.compact_range(None, None, &mut |_| ()).unwrap())
        };
        let mut batch = WriteBatch::new();
        for name in ["a", "b", "c"] {
            batch.put(name, value(2, 3000));
        }
        db.write(batch).unwrap();
        db.flush().unwrap();
        join([reader, compactor]);
        db.settle().unwrap();
        let live: usize = db.stats().levels.iter().map(|level| level.tables).sum();
        let tables = files(&devices, ".table");
        assert_eq!(tables.len(), live, "{tables:?}");
        assert_eq!(db.get("b").unwrap().map(|value| number(&value)), Some(2));
    });
}

#[test]
fn closing_sends_everybody_away_and_keeps_what_was_acknowledged() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let db = create(&devices);
        let writers = (0..2).map(|writer| {
            let db = db.clone();
            spawn(move || {
                let mut last = 0;
                for number in 1..=3 {
                    match db.write_with(twins(writer, number, BIG), Durability::Buffered) {
                        Ok(()) => last = number,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
                            break;
                        }
                    }
                }
                last
            })
        });
        let writers: Vec<_> = writers.collect();
        let flusher = {
            let db = db.clone();
            spawn(move || {
                if let Err(error) = db.flush() {
                    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
                }
            })
        };
        db.close().unwrap();
        let acknowledged = join(writers);
        join([flusher]);
        let db = open(&devices);
        for (writer, last) in acknowledged.into_iter().enumerate() {
            let found = twins_of(&db, writer as u64);
            assert!(found >= last, "writer {writer} had {last} acknowledged, finds {found}");
        }
    });
}

#[test]
fn a_failed_sync_reaches_all_that_it_should_have_covered_and_all_that_come_later() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let db = create(&devices);
        *devices.fail_sync_after.lock() = Some(1);
        let writers = (0..3).map(|writer| {
            let db = db.clone();
            spawn(move || {
                let mut last = 0;
                for number in 1..=2 {
                    match db.write_with(twins(writer, number, 8), Durability::Sync) {
                        Ok(()) => last = number,
                        Err(error) => {
                            let kinds = [ErrorKind::Io, ErrorKind::ReadOnly];
                            assert!(kinds.contains(&error.kind()), "{error}");
                            let again = db.write(twins(writer, 9, 8)).unwrap_err();
                            assert_eq!(again.kind(), ErrorKind::ReadOnly, "{again}");
                            return last;
                        }
                    }
                }
                last
            })
        });
        let writers: Vec<_> = writers.collect();
        let acknowledged = join(writers);
        assert!(acknowledged.iter().sum::<u64>() < 6, "one sync cannot serve six writes");
        drop(db);
        let db = open(&devices.after_crash());
        for (writer, last) in acknowledged.into_iter().enumerate() {
            let found = twins_of(&db, writer as u64);
            assert!(found >= last, "writer {writer} had {last} acknowledged, finds {found}");
            assert!(found < 9, "a refused write was written");
        }
    });
}

#[test]
fn an_ingest_is_seen_whole_and_in_its_place() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let db = create(&devices);
        let ingester = {
            let db = db.clone();
            spawn(move || {
                let mut ingest = db.ingest();
                for name in ["left0", "right0"] {
                    ingest.add(name, value(7, 8)).unwrap();
                }
                ingest.finish().unwrap();
                assert!(twins_of(&db, 0) >= 7, "what was ingested is read");
            })
        };
        let writer = {
            let db = db.clone();
            spawn(move || {
                db.write(twins(1, 1, 8)).unwrap();
                let before = twins_of(&db, 0);
                assert!(before == 0 || before == 7);
                db.write(twins(0, 8 + before, 8)).unwrap();
                before
            })
        };
        twins_of(&db, 0);
        join([ingester]);
        let before = join([writer])[0];
        let last = twins_of(&db, 0);
        assert!(last == 7 && before == 0 || last == 8 + before, "{last} after {before}");
        db.close().unwrap();
        assert_eq!(twins_of(&open(&devices), 0), last, "the order outlives the process");
    });
}

/// A bulk load replaces what is in slots, or in tables, and is merged with it while a reader reads.
fn loads_stay_seen_while_they_are_merged() {
    let db = create(&Arc::default());
    db.write(twins(0, 1, 8)).unwrap();
    db.flush().unwrap();
    let mut ingest = db.ingest();
    for name in ["left0", "right0"] {
        ingest.add(name, value(2, 8)).unwrap();
    }
    ingest.finish().unwrap();
    let merged = Arc::new(Mutex::new(false));
    let reader = {
        let (db, merged) = (db.clone(), Arc::clone(&merged));
        spawn(move || {
            // As long as the merge takes; not longer where it gets no step between two looks.
            for _ in 0..200 {
                let found = db.get(key(0, "left")).unwrap().map(|value| number(&value));
                assert_eq!(found, Some(2), "the load is newer");
                if *merged.lock() {
                    break;
                }
                yield_now();
            }
            assert_eq!(twins_of(&db, 0), 2);
        })
    };
    db.compact_range(None, None, &mut |_| ()).unwrap();
    *merged.lock() = true;
    join([reader]);
}

#[test]
fn a_bulk_load_is_seen_while_what_it_replaced_leaves_the_fast_tier() {
    check(2000, loads_stay_seen_while_they_are_merged);
}

/// The tester tested: the schedules above find look-ups that trust slots too early.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_slots_that_are_trusted_before_what_a_load_replaced_has_left() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::IngestEndsBeforeDepartures;
    let found = std::panic::catch_unwind(|| {
        with(bug, || check(2000, loads_stay_seen_while_they_are_merged));
    });
    assert!(found.is_err(), "2000 schedules do not show it");
}
