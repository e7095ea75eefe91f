//! How long look-ups wait for slots and for tables.

use crate::error::Result;
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::Counter;
use thermocline_foundation::sync::Mutex;
use thermocline_popularity::ReadCost;
use thermocline_popularity::Waits;
/// How long look-ups waited for slots and for tables, and what follows from it.
#[derive(Debug)]
pub(crate) struct ReadWaits {
    clock: Arc<dyn Clock>,
    pub(super) slots: Waited,
    pub(super) tables: Waited,
    pub(super) cost: Mutex<ReadCost>,
}

#[derive(Debug, Default)]
pub(super) struct Waited {
    reads: Counter,
    ns: Counter,
}

impl Waited {
    fn note(&self, ns: u64) {
        self.reads.add(1);
        self.ns.add(ns);
    }

    pub fn so_far(&self) -> Waits {
        Waits { reads: self.reads.get(), ns: self.ns.get() }
    }
}

impl ReadWaits {
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            slots: Waited::default(),
            tables: Waited::default(),
            cost: Mutex::default(),
        }
    }

    /// Carries out the read of a slot.
    pub fn for_slot<T>(&self, read: impl FnOnce() -> T) -> T {
        let began_ns = self.clock.now_ns();
        let read = read();
        self.slots.note(self.clock.now_ns() - began_ns);
        read
    }

    /// Carries out a look-up in tables, and notes those that found something: the others seldom
    /// read more than a filter.
    pub fn for_tables<T>(&self, look_up: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        let began_ns = self.clock.now_ns();
        let found = look_up()?;
        if found.is_some() {
            self.tables.note(self.clock.now_ns() - began_ns);
        }
        Ok(found)
    }

    /// How many times as long tables take as slots; none before that is known.
    pub fn ratio(&self) -> Option<f64> {
        self.cost.lock().ratio()
    }
}
