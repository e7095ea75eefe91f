//! What work took of the fast tier, and how much of it is right once all work has ended.

use super::FastTier;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_slab::ClassStats;

impl FastTier {
    /// Tells `expect` each of the numbers: what, how much there is, and how much is right.
    pub fn left_over(&self, expect: &mut dyn FnMut(&str, u64, u64)) {
        let slots = self.slabs.stats();
        let sum = |of: fn(&ClassStats) -> u64| slots.classes.iter().map(of).sum::<u64>();
        expect("slots that are reserved", sum(|class| class.reserved), 0);
        expect("slots that are held back", sum(|class| class.held), 0);
        expect("holds of freed slots", u64::from(slots.are_frees_held), 0);
        expect("live slots", sum(|class| class.live), self.index.slot_records());
        expect("live slots of the manifest", self.live_slots(), self.index.slot_records());
        expect("bytes of merges", self.memory.merging_bytes(), 0);
        expect("bytes promised to merges", self.feedback.slow_writes.promised_bytes(), 0);
        expect("work for room", u64::from(self.room.is_at_work()), 0);
        expect("promotions", u64::from(self.promotions.running.load(Relaxed)), 0);
        expect("spills", u64::from(self.spill.running.load(Relaxed)), 0);
        expect("copies of indexes", u64::from(self.copying.is_running.load(Relaxed)), 0);
    }

    fn live_slots(&self) -> u64 {
        self.live.lock().slots.iter().map(|(_, slab)| u64::from(slab.slots.count())).sum()
    }
}
