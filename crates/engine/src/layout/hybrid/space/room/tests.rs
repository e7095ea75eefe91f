//! When room is made, and for how much.

use crate::layout::hybrid::rules::fullness::{EvictionStep, Need, RETRY_NS};
use crate::layout::hybrid::space::sweep::Sweep;
use crate::support::{hybrid, stepped, stepped_with};
use crate::{ByteSize, Experiments, HybridSettings, Settings};

fn low_watermark(percent: u32) -> Experiments {
    Experiments { low_watermark_percent: Some(percent), ..Experiments::NONE }
}

#[test]
fn writers_are_slowed_above_the_high_watermark_whatever_is_said_of_level_0() {
    // The rate after each of some thousand records, of which none leaves.
    let rates = |level0_slowdown, level0_stop| {
        let settings = HybridSettings { high_watermark_percent: 2, ..hybrid().hybrid };
        let mut settings = Settings { level0_slowdown, level0_stop, hybrid: settings, ..hybrid() };
        // A memtable has room for all of them.
        settings.tiers[0].capacity = ByteSize::mib(96);
        let db = stepped_with(low_watermark(1), &settings);
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
    let settings = HybridSettings { high_watermark_percent: 90, ..hybrid().hybrid };
    let db = stepped_with(low_watermark(1), &Settings { hybrid: settings, ..hybrid() });
    let fast = &db.engine().hybrid().fast;
    let fill = |bytes| {
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), vec![7; bytes]).unwrap());
        db.flush().unwrap();
    };
    fill(1000);
    fill(2000);
    assert!(fast.slabs.stats().has_empty_slabs());
    fast.room.want_for_copies();
    assert_eq!(db.engine().hybrid().look_at_room(), Need::OtherSizes, "for copies too");
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
    let sweep = Sweep::begin(db.engine().hybrid()).unwrap();
    assert_eq!(room.eviction_step(later_ns), EvictionStep::Cold);
    room.found_little(EvictionStep::Cold, 0);
    drop(sweep);
    let counting = room.counting.lock();
    assert_eq!(room.eviction_step(later_ns), EvictionStep::Hot);
    drop(counting);
    assert_eq!(room.eviction_step(later_ns), EvictionStep::Sweep);
}
