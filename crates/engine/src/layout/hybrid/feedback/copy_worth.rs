//! Whether clean copies are worth slots.

use crate::environment::experiments::{Experiments, Rule};
use thermocline_foundation::Counter;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::CopyAdmission;
use thermocline_popularity::CopyAdmissionSettings;
use thermocline_popularity::CopyTurns;
use thermocline_popularity::CopyUses;
use thermocline_popularity::CopyWorth;
use thermocline_popularity::CopyWorthSettings;
/// What becomes of clean copies, in slots and in memory only, and which of them are worth slots.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Reads that they served.
    pub read: Counter,
    /// Those that a newer version replaced.
    pub replaced: Counter,
    /// Reads for which the slot of one was read.
    pub served: Counter,
    /// Those that lost their slots because no read asked for them.
    pub unasked: Counter,
    experiments: Experiments,
    worth: Mutex<CopyWorth>,
    /// Which share of them gets slots.
    admission: Mutex<CopyAdmission>,
    /// The last judgement.
    get_slots: AtomicBool,
}

impl Copies {
    /// Nothing is known; copies get slots.
    pub fn new(experiments: Experiments) -> Self {
        Self {
            experiments,
            read: Counter::default(),
            replaced: Counter::default(),
            served: Counter::default(),
            unasked: Counter::default(),
            admission: Mutex::new(CopyAdmission::new(CopyAdmissionSettings::default())),
            worth: Mutex::new(CopyWorth::new(CopyWorthSettings::default())),
            get_slots: AtomicBool::new(true),
        }
    }

    /// Whether they get slots, as it was judged last.
    pub fn get_slots(&self) -> bool {
        self.get_slots.load(Relaxed)
    }

    /// Judges anew whether they get slots, of which `slots` have a record, and which share does.
    pub fn judge(&self, slots: u64) -> bool {
        let turns = CopyTurns { served: self.served.get(), dropped: self.unasked.get() };
        self.admission.lock().observe(turns, slots);
        let uses = CopyUses { read: self.read.get(), replaced: self.replaced.get() };
        let get_slots = self.worth.lock().observe(uses);
        let get_slots = get_slots || !self.experiments.has(Rule::CopiesWorthSlots);
        self.get_slots.store(get_slots, Relaxed);
        get_slots
    }
    /// The share of copies that get slots.
    pub fn slots_share(&self) -> f64 {
        self.admission.lock().share()
    }

    /// One more copy that deserves a slot is of the share that gets one.
    pub fn admits(&self) -> bool {
        !self.experiments.has(Rule::CopyShare) || self.admission.lock().admits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether copies get slots, and how many of 100, after many that nobody read.
    fn judged(experiments: Experiments) -> (bool, usize) {
        let copies = Copies::new(experiments);
        for _ in 0..64 {
            copies.replaced.add(10_000);
            copies.unasked.add(10_000);
            copies.judge(1000);
        }
        (copies.get_slots(), (0..100).filter(|_| copies.admits()).count())
    }

    #[test]
    fn copies_that_nobody_reads_get_no_slots_unless_they_are_not_judged() {
        let all = Experiments::NONE;
        let (get_slots, admitted) = judged(all);
        assert!(!get_slots && admitted < 50, "{admitted}");
        assert_eq!(judged(all.without(Rule::CopiesWorthSlots)), (true, admitted));
        assert_eq!(judged(all.without(Rule::CopyShare)), (false, 100));
    }
}
