//! When room is made, and for how much.

use crate::layout::hybrid::records::pieces::piece_bytes;
use crate::layout::hybrid::rules::fullness::{EvictionStep, Need, RETRY_NS};
use crate::layout::hybrid::space::sweep::{Sweep, THOROUGH};
use crate::support::{hybrid, stepped};
use crate::{Db, HybridSettings, Settings};

/// Writes the keys and flushes them; what the room takes for the growth of ten times as many
/// bytes as a piece has, in pieces.
fn pieces_to_come(db: &Db, keys: std::ops::Range<u32>) -> f64 {
    keys.for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
    db.flush().unwrap();
    let room = &db.engine().hybrid().fast.room;
    let piece_bytes = piece_bytes(room.limit_bytes());
    let coming_bytes = room.fullness.lock().coming_bytes(10 * piece_bytes, piece_bytes);
    coming_bytes as f64 / piece_bytes as f64
}

#[test]
fn flushes_tell_how_much_of_them_is_new() {
    let db = stepped(&hybrid());
    assert!(pieces_to_come(&db, 0..1000) > 9.0, "all of it is new");
    let updated: Vec<_> = (0..16).map(|_| pieces_to_come(&db, 0..1000)).collect();
    assert!(updated.is_sorted_by(|a, b| a >= b), "{updated:?}");
    assert!((1.0..1.2).contains(&updated[15]), "none is, but for a piece: {updated:?}");
    let half: Vec<_> =
        (1..17).map(|round| pieces_to_come(&db, round * 500..(round + 2) * 500)).collect();
    assert!((4.0..6.0).contains(&half[15]), "{half:?}");
    let all: Vec<_> =
        (20..24).map(|round| pieces_to_come(&db, round * 500..(round + 1) * 500)).collect();
    assert!(all[3] > 7.0, "{all:?}");
}

#[test]
fn writers_are_slowed_above_the_high_watermark_whatever_is_said_of_level_0() {
    // The rate after each of some thousand records, of which none leaves.
    let rates = |level0_slowdown, level0_stop| {
        let (low_watermark_percent, high_watermark_percent) = (1, 12);
        let settings =
            HybridSettings { low_watermark_percent, high_watermark_percent, ..hybrid().hybrid };
        let db = stepped(&Settings { level0_slowdown, level0_stop, hybrid: settings, ..hybrid() });
        let rate_with = |thousands: u32| {
            for key in 1000 * (thousands - 1)..1000 * thousands {
                db.put(key.to_be_bytes(), [7; 1000]).unwrap();
            }
            // Nothing else looks: all of it is in the memtable.
            db.engine().hybrid().look_at_room();
            let rate = db.engine().shared().write_throttle.rate();
            db.engine().shared().write_throttle.set_fullness(0.0);
            rate
        };
        [1, 2, 3].map(rate_with)
    };
    let [below, above, far_above] = rates(20, 36);
    assert_eq!(below, None);
    assert!(above > far_above && far_above.is_some(), "{above:?} {far_above:?}");
    for (slowdown, stop) in [(4, 4), (20, 20), (20, 21)] {
        assert_eq!(rates(slowdown, stop), [below, above, far_above], "{slowdown} to {stop}");
    }
}

#[test]
fn empty_slabs_of_another_size_go_before_records_leave() {
    let (low_watermark_percent, high_watermark_percent) = (1, 90);
    let settings =
        HybridSettings { low_watermark_percent, high_watermark_percent, ..hybrid().hybrid };
    let db = stepped(&Settings { hybrid: settings, ..hybrid() });
    let fast = &db.engine().hybrid().fast;
    let fill = |bytes| {
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), vec![7; bytes]).unwrap());
        db.flush().unwrap();
    };
    fill(1000);
    fill(2000);
    assert!(fast.slabs.stats().has_empty_slabs());
    fast.room.want_for_copies();
    assert_eq!(db.engine().hybrid().look_at_room(), Need::Room, "copies can wait for a sweep");
    fast.room.want(1000);
    assert_eq!(db.engine().hybrid().look_at_room(), Need::OtherSizes);
    db.engine().hybrid().change_sizes().unwrap();
    assert!(!fast.slabs.stats().has_empty_slabs());
}

#[test]
fn what_is_under_way_for_long_is_not_the_end_of_its_turn() {
    let db = stepped(&hybrid());
    let room = &db.engine().hybrid().fast.room;
    let later_ns = 2 * RETRY_NS;
    room.found_little(EvictionStep::Sweep, 0);
    room.found_little(EvictionStep::ColdOfDrawn, 0);
    let sweep = Sweep::begin(db.engine().hybrid(), THOROUGH).unwrap();
    assert_eq!(room.eviction_step(later_ns), EvictionStep::ThoroughSweep);
    room.found_little(EvictionStep::ThoroughSweep, 0);
    drop(sweep);
    let counting = room.counting.lock();
    assert_eq!(room.eviction_step(later_ns), EvictionStep::ColdOfAll);
    drop(counting);
    assert_eq!(room.eviction_step(later_ns), EvictionStep::Sweep);
}

#[test]
fn a_snapshot_keeps_what_is_replaced_and_so_all_of_it_is_new() {
    let db = stepped(&hybrid());
    pieces_to_come(&db, 0..1000);
    let before: Vec<_> = (0..8).map(|_| pieces_to_come(&db, 0..1000)).collect();
    assert!(before[7] < 2.5, "{before:?}");
    let mut snapshots = Vec::new();
    let kept: Vec<_> = (0..6)
        .map(|_| {
            snapshots.push(db.snapshot());
            pieces_to_come(&db, 0..1000)
        })
        .collect();
    assert!(kept[5] > 7.0, "{kept:?}");
}
