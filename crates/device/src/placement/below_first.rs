//! Tables below the first tier: the fast tier is for records, logs and metadata, tables are for
//! what is slower (PrismDB, section 4: slabs on the fast device, the sorted log on the slow one).
//!
//! 1. A table goes to tier 1 and overflows to slower tiers, to tier 0 only where all are full.
//! 2. Everything else goes to tier 0 and overflows downwards. Slabs do so only where a flush or an
//!    opening must have room: a copy of a hot record on a slow tier is of no use. Copies of tables'
//!    indexes never do.
//! 3. Slabs may take what is meant for them up to the last byte, for beside it there is room for
//!    logs and metadata. What they take beyond that keeps below the watermark, and so does all of
//!    it while tables lie on tier 0, in that room.
//! 4. A table on tier 0 is moved down as soon as there is room; nothing is ever moved up.

use super::{FileInfo, Placement, TierState, WATERMARK_PERCENT, first_with_room, share};
use crate::context::{FileContext, FileKind, Origin};
use crate::tier::TierIndex;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug, Default)]
pub struct BelowFirst {
    /// Bytes of tier 0 that are meant for slabs.
    slab_bytes: AtomicU64,
}

impl Placement for BelowFirst {
    fn name(&self) -> &'static str {
        "below_first"
    }

    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        if context.kind == FileKind::Slab
            && let Some(fast) = tiers.first().filter(|fast| !fast.is_refused)
            && fast.level_bytes.iter().all(|bytes| *bytes == 0)
            && fast.slab_bytes.saturating_add(expected_bytes) <= self.slab_bytes.load(Relaxed)
            && fast.used_bytes.saturating_add(expected_bytes) <= fast.capacity_bytes
        {
            return Some(TierIndex(0));
        }
        let is_table = matches!(context.kind, FileKind::Table { .. });
        let home = usize::from(is_table && tiers.len() > 1);
        let must_go = matches!(context.origin, Origin::Flush | Origin::Recovery);
        let kind = match context.kind {
            // As a table: below the watermark, on any tier.
            FileKind::Slab if must_go => FileKind::Table { level: 0 },
            kind => kind,
        };
        first_with_room(kind, home, expected_bytes, tiers)
    }

    fn set_slab_bytes(&self, bytes: u64) {
        self.slab_bytes.store(bytes, Relaxed);
    }

    fn misplaced(&self, files: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        let mut left: Vec<u64> = tiers
            .iter()
            .map(|tier| match tier.is_refused {
                true => 0,
                false => {
                    share(tier.capacity_bytes, WATERMARK_PERCENT).saturating_sub(tier.used_bytes)
                }
            })
            .collect();
        let mut moves = Vec::new();
        let tables = files.iter().filter(|info| matches!(info.kind, FileKind::Table { .. }));
        for info in tables.filter(|info| info.published && info.tier == TierIndex(0)) {
            let room = left.iter_mut().enumerate().skip(1).find(|(_, left)| **left >= info.bytes);
            if let Some((tier, left)) = room {
                *left -= info.bytes;
                moves.push((info.number, TierIndex(tier as u8)));
            }
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: FileKind = FileKind::Table { level: 6 };

    fn tier(capacity_bytes: u64, used_bytes: u64) -> TierState {
        TierState { capacity_bytes, used_bytes, ..TierState::default() }
    }

    fn place(kind: FileKind, tiers: &[TierState]) -> Option<TierIndex> {
        BelowFirst::default().place(FileContext { kind, origin: Origin::Flush }, 10, tiers)
    }

    #[test]
    fn tables_go_below_the_first_tier_and_the_rest_onto_it() {
        let tiers = [tier(1000, 0), tier(1000, 0), tier(1000, 0)];
        assert_eq!(place(TABLE, &tiers), Some(TierIndex(1)));
        assert_eq!(place(FileKind::Log, &tiers), Some(TierIndex(0)));
        let full = [tier(1000, 0), tier(1000, 945), tier(1000, 0)];
        assert_eq!(place(TABLE, &full), Some(TierIndex(2)));
        let all_but_first = [tier(1000, 0), tier(1000, 945), tier(1000, 945)];
        assert_eq!(place(TABLE, &all_but_first), Some(TierIndex(0)));
        let slab = |origin| {
            let full = [tier(1000, 945), tier(1000, 0)];
            let context = FileContext { kind: FileKind::Slab, origin };
            BelowFirst::default().place(context, 10, &full)
        };
        assert_eq!(slab(Origin::Flush), Some(TierIndex(1)));
        assert_eq!(slab(Origin::Migration), None, "a copy of a hot record");
        assert_eq!(place(TABLE, &tiers[..1]), Some(TierIndex(0)), "there is no other");
        assert_eq!(place(FileKind::TableIndex, &tiers), Some(TierIndex(0)));
        assert_eq!(place(FileKind::TableIndex, &[tier(1000, 991), tier(1000, 0)]), None);
    }

    #[test]
    fn slabs_may_take_what_is_meant_for_them_and_keep_below_the_watermark_beyond_it() {
        let policy = BelowFirst::default();
        policy.set_slab_bytes(920);
        let place = |slab_bytes, used_bytes, origin| {
            let fast = TierState { slab_bytes, ..tier(1000, used_bytes) };
            let context = FileContext { kind: FileKind::Slab, origin };
            policy.place(context, 10, &[fast, tier(1000, 0)])
        };
        let both = [Origin::Flush, Origin::Migration];
        assert_eq!(both.map(|origin| place(910, 990, origin)), [Some(TierIndex(0)); 2]);
        assert_eq!(both.map(|origin| place(911, 990, origin)), [Some(TierIndex(1)), None]);
        assert_eq!(both.map(|origin| place(910, 991, origin)), [Some(TierIndex(1)), None]);
        assert_eq!(both.map(|origin| place(911, 940, origin)), [Some(TierIndex(0)); 2]);
        let mut crowded = TierState { slab_bytes: 910, ..tier(1000, 980) };
        crowded.add(TABLE, 10);
        let context = FileContext { kind: FileKind::Slab, origin: Origin::Flush };
        let place = |fast: &TierState| policy.place(context, 10, &[fast.clone(), tier(1000, 0)]);
        assert_eq!(place(&crowded), Some(TierIndex(1)), "a table has room of logs and metadata");
        crowded.remove(TABLE, 10);
        assert_eq!(place(&crowded), Some(TierIndex(0)));
    }

    #[test]
    fn a_table_that_overflowed_upwards_goes_down_once_there_is_room_and_stays() {
        let table = |number, tier, bytes| FileInfo {
            number: FileNumber(number),
            kind: TABLE,
            tier: TierIndex(tier),
            bytes,
            published: true,
        };
        let files = [table(1, 0, 300), table(2, 0, 300), table(3, 1, 300)];
        let tiers = [tier(1000, 600), tier(1000, 500)];
        assert_eq!(
            BelowFirst::default().misplaced(&files, &tiers),
            [(FileNumber(1), TierIndex(1))]
        );
        let after = [table(1, 1, 300), table(3, 1, 300)];
        assert_eq!(BelowFirst::default().misplaced(&after, &tiers), []);
        assert_eq!(BelowFirst::default().worth_fetching(&after, &tiers), []);
    }
}
