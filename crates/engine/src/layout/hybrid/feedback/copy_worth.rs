//! Whether clean copies are worth slots.

use crate::environment::experiments::{Experiments, Rule};
use thermocline_foundation::Counter;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::{CopyUses, CopyWorth, CopyWorthSettings};

/// What becomes of clean copies, in slots and in memory only, and whether they are worth slots.
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
            worth: Mutex::new(CopyWorth::new(CopyWorthSettings::default())),
            get_slots: AtomicBool::new(true),
        }
    }

    /// Whether they get slots, as it was judged last.
    pub fn get_slots(&self) -> bool {
        self.get_slots.load(Relaxed)
    }

    /// Judges anew whether they get slots.
    pub fn judge(&self) -> bool {
        let uses = CopyUses { read: self.read.get(), replaced: self.replaced.get() };
        let get_slots = self.worth.lock().observe(uses);
        let get_slots = get_slots || !self.experiments.has(Rule::CopiesWorthSlots);
        self.get_slots.store(get_slots, Relaxed);
        get_slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_no_read_asks_for_get_no_slots_unless_they_are_not_judged() {
        for (experiments, get_slots) in
            [(Experiments::NONE, false), (Experiments::NONE.without(Rule::CopiesWorthSlots), true)]
        {
            let copies = Copies::new(experiments);
            copies.replaced.add(10_000);
            assert_eq!(copies.judge(), get_slots);
            assert_eq!(copies.get_slots(), get_slots);
        }
    }
}
