//! What slots and tables of each tier hold, and how much of it is dead.
//!
//! Slots say which of them have a record. What is dead in tables is not known before they are
//! merged: a record there is replaced by one of a newer run, or by one in a slot that is no copy.
//! So it is estimated: the newer ones replace as many older ones as such records have done so far
//! in merges that left one run of a range. Before the first of these, and in levels, each record
//! above the oldest run is taken for the replacement of another, as in the figure of amplification.

use crate::engine::Engine;
use crate::layout::Holdings;
use crate::shared::totals::{Count, Totals};
use crate::versions::Version;
use std::collections::BTreeMap;
use thermocline_device::TierIndex;
use thermocline_foundation::FileNumber;

impl Engine {
    /// What slots and tables of each tier hold.
    pub fn held(
        &self,
        state: &Version,
        tier_of: &BTreeMap<FileNumber, TierIndex>,
        totals: &Totals,
    ) -> Vec<Holdings> {
        let mut held = vec![Holdings::default(); self.shared.files.tiers().len()];
        let place = |number| tier_of.get(&number).copied().unwrap_or(TierIndex(0)).position();
        let dirty_bytes = self.layout.add_holdings(&mut held, &place);
        let (mut newer_bytes, mut table_bytes) = (0, 0);
        for (level, table) in state.levels.tables() {
            let held = &mut held[place(table.meta.number)];
            held.records += table.meta.entries;
            held.table_bytes += table.meta.bytes;
            table_bytes += table.meta.bytes;
            newer_bytes += if level < state.levels.deepest() { table.meta.bytes } else { 0 };
        }
        let (merged, replaced) = (totals.of(Count::Merged), totals.of(Count::Replaced));
        let dead_bytes = match merged {
            0 => newer_bytes,
            _ => (share(replaced, merged) * (newer_bytes + dirty_bytes) as f64) as u64,
        };
        let dead_share = share(dead_bytes, table_bytes);
        for held in &mut held {
            held.dead_bytes = (held.table_bytes as f64 * dead_share) as u64;
        }
        held
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::support::{hybrid, stepped};

    fn put(db: &Db, keys: std::ops::Range<u32>) {
        keys.for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
    }

    /// Records, live and dead bytes of a tier.
    fn tier(db: &Db, at: usize) -> [u64; 3] {
        let tier = &db.stats().tiers[at];
        [tier.records, tier.live_bytes, tier.dead_bytes_estimate]
    }

    #[test]
    fn records_in_slots_make_what_tables_have_of_them_dead_as_far_as_merges_have_seen() {
        let db = stepped(&hybrid());
        let compact = || db.compact_range(None, None, &mut |_| {}).unwrap();
        put(&db, 0..1000);
        let [records, live, dead] = tier(&db, 0);
        assert_eq!(records, 1000);
        assert!(live >= 1_000_000 && dead > 0, "{live} {dead}: a slab has free slots");
        compact();
        assert_eq!(tier(&db, 0)[..2], [0, 0]);
        let [records, live, dead] = tier(&db, 1);
        assert_eq!((records, dead), (1000, 0), "nothing was replaced yet");
        assert!(live > 0);
        // All that is merged from now on replaces something: 600 of 1,600 so far.
        put(&db, 0..600);
        compact();
        assert_eq!(tier(&db, 1)[2], 0);
        put(&db, 200..600);
        let slots = tier(&db, 0)[1] as f64;
        let [records, live, dead] = tier(&db, 1);
        assert_eq!(records, 1000);
        let estimated = (slots * 600.0 / 1600.0).min((live + dead) as f64);
        assert!((dead as f64 - estimated).abs() < 2.0, "{dead} for {estimated}");
        assert!(dead > 0);
    }
}
