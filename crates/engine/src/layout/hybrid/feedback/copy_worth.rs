//! Whether clean copies are worth slots.

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
    worth: Mutex<CopyWorth>,
    /// Which share of them gets slots.
    pub admission: Mutex<CopyAdmission>,
    /// The last judgement.
    get_slots: AtomicBool,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            read: Counter::default(),
            replaced: Counter::default(),
            served: Counter::default(),
            unasked: Counter::default(),
            admission: Mutex::new(CopyAdmission::new(CopyAdmissionSettings::default())),
            worth: Mutex::new(CopyWorth::new(CopyWorthSettings::default())),
            get_slots: AtomicBool::new(true),
        }
    }
}

impl Copies {
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
        self.get_slots.store(get_slots, Relaxed);
        get_slots
    }
}
