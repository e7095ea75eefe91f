//! Files that the namespace has forgotten and that are still in their directories.
//!
//! A capacity bounds what lies in a tier's directory, and a deletion waits for the device. So what
//! a file took is not room for others when its entry goes, but when its name has gone.
//!
//! 1. A file comes here under the lock of the entries, in the step that takes its entry or its tier
//!    from it: a sum under that lock has each file of a directory once at least.
//! 2. It goes from here before the call that deletes it returns: its caller finds the room.
//! 3. What cannot be deleted stays here. The next opening tries again, and keeps here what it
//!    cannot delete either.
//! 4. A file without a name that is still read counts no more, although its device has its blocks
//!    until the last reader is done: no caller that deletes could count on the room otherwise.
//!
//! Threads: shared freely. The lock is a leaf.

use super::Entry;
use crate::context::FileKind;
use crate::tier::TierIndex;
use std::collections::BTreeMap;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Leaving(Mutex<BTreeMap<(FileNumber, TierIndex), (FileKind, u64)>>);

/// A file that is still there: its number, kind, tier and bytes.
pub(crate) type Leaver = (FileNumber, FileKind, TierIndex, u64);

impl Leaving {
    /// These could not be deleted.
    pub fn of(leavers: Vec<Leaver>) -> Self {
        let leaving = Self::default();
        leavers.into_iter().for_each(|leaver| leaving.add(leaver));
        leaving
    }

    /// The file is to leave that tier.
    pub fn add(&self, (number, kind, tier, bytes): Leaver) {
        self.0.lock().insert((number, tier), (kind, bytes));
    }

    /// The file of `entry`, which is named by `number`, is to leave its tier, and a copy of it the
    /// tier that it was on its way to.
    pub fn add_entry(&self, number: FileNumber, entry: &Entry) {
        for tier in [Some(entry.tier), entry.moving_to].into_iter().flatten() {
            self.add((number, entry.kind, tier, entry.bytes()));
        }
    }

    /// The file is off that tier, or never was there.
    pub fn end(&self, number: FileNumber, tier: TierIndex) {
        self.0.lock().remove(&(number, tier));
    }

    /// Tells `count` of each file.
    pub fn count(&self, mut count: impl FnMut(TierIndex, FileKind, u64)) {
        for ((_, tier), (kind, bytes)) in &*self.0.lock() {
            count(*tier, *kind, *bytes);
        }
    }
}
