//! How values are kept on the fast tier and in memory: as they came, or packed (crate `slab`,
//! `packed.rs`), so that both hold more of them (`hybrid.record_compression`).
//!
//! A slot says whether its value is packed, for the setting may have been another when it was
//! written. Memory does not: while a store is open all values there are packed, or none is. So
//! what memory gives up goes into a slot as it is, and what a slot has into memory.
//!
//! Any thread.

use crate::settings::Settings;
use bytes::Bytes;
use thermocline_foundation::{Compression, Counter};
use thermocline_slab::packed::{is_plain, pack, pack_plain, unpack};
use thermocline_slab::{Broken, Slot};

/// The file of settings, if there is one, has the name of what packs values. Builds that do not
/// know packed values refuse the name; without it they would take these for damage.
pub(crate) fn packing_is_named(kept: Option<&str>) -> bool {
    // A name in a comment does not count: no build refuses a comment.
    let names = |line: &str| line.trim_start().starts_with("record_compression");
    kept.unwrap_or_default().lines().any(names)
}

/// A value as a slot has it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub bytes: Bytes,
    pub packed: bool,
}

impl Stored {
    /// A value as it came.
    pub fn plain(value: impl Into<Bytes>) -> Self {
        Self { bytes: value.into(), packed: false }
    }

    /// Of a slot, in memory that is not much larger.
    pub fn of(slot: &Slot) -> Self {
        Self { bytes: slot.compact_stored(), packed: slot.is_packed() }
    }

    pub fn value(&self) -> Result<Bytes, Broken> {
        if self.packed { unpack(self.bytes.clone()) } else { Ok(self.bytes.clone()) }
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Packing {
    compression: Compression,
    /// Bytes of the values that flushes brought to slots, and of what these have of them.
    pub value_bytes: Counter,
    pub stored_bytes: Counter,
}

impl Packing {
    pub fn new(settings: &Settings) -> Self {
        let compression = settings.hybrid.record_compression.into();
        Self { compression, value_bytes: Counter::default(), stored_bytes: Counter::default() }
    }

    /// What memory has is packed.
    pub fn is_on(&self) -> bool {
        self.compression != Compression::None
    }

    /// A value that was written as its slot is to have it.
    pub fn for_slot(&self, value: Bytes) -> Stored {
        if !self.is_on() {
            return Stored::plain(value);
        }
        self.value_bytes.add(value.len() as u64);
        let stored = match pack(&value, self.compression) {
            Some(bytes) => Stored { bytes, packed: true },
            None => Stored::plain(value),
        };
        self.stored_bytes.add(stored.bytes.len() as u64);
        stored
    }

    /// Bytes of the values of which slots have so many, as far as is known since opening.
    pub fn value_bytes_of(&self, stored_bytes: u64) -> u64 {
        let (values, stored) = (self.value_bytes.get(), self.stored_bytes.get());
        if stored == 0 {
            return stored_bytes;
        }
        (stored_bytes as f64 * (values as f64 / stored as f64)) as u64
    }

    /// What memory gave up as a slot is to have it.
    pub fn spilled(&self, kept: &Bytes) -> Stored {
        match self.is_on() {
            true if is_plain(kept) => Stored::plain(kept.slice(1..)),
            packed => Stored { bytes: kept.clone(), packed },
        }
    }

    /// A value as memory is to have it.
    pub fn for_memory(&self, value: &Bytes) -> Bytes {
        match self.is_on() {
            true => pack(value, self.compression).unwrap_or_else(|| pack_plain(value)),
            false => value.clone(),
        }
    }

    /// The value of a slot as memory is to have it. Nothing is compressed for it.
    pub fn slot_for_memory(&self, slot: &Slot, value: &Bytes) -> Bytes {
        match self.is_on() {
            true if slot.is_packed() => slot.shared_stored(),
            true => pack_plain(value),
            false => value.clone(),
        }
    }

    /// The value that memory has as `kept`.
    pub fn value_in_memory(&self, kept: Bytes) -> Option<Bytes> {
        if !self.is_on() {
            return Some(kept);
        }
        let value = unpack(kept);
        debug_assert!(value.is_ok(), "memory has a value that is not packed");
        value.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::packing_is_named;
    use crate::layout::OpenedLayout;
    use crate::layout::hybrid::copies::promotion::PROMOTION;
    use crate::support::{hybrid, one_tier, stepped_environment, until};
    use crate::{Compression, Db, HybridSettings, Settings};
    use std::path::Path;

    const RECORDS: u64 = 200;
    const VALUE_BYTES: usize = 1000;

    #[test]
    fn only_a_line_of_its_own_names_what_packs() {
        for (text, is_named) in [
            (Some("[hybrid]\n record_compression = 'lz4'"), true),
            (Some("[hybrid]\n# record_compression = 'lz4'"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(packing_is_named(text), is_named, "{text:?}");
            let names = OpenedLayout::names_formats(&settings(Compression::Lz4), text);
            assert_eq!(names, is_named, "{text:?}");
        }
        assert!(OpenedLayout::names_formats(&one_tier(), None), "it never packs");
    }

    fn settings(record_compression: Compression) -> Settings {
        // What memory gives up gets slots, however cold it is.
        let hybrid_settings =
            HybridSettings { record_compression, pinning_percent: 100, ..hybrid().hybrid };
        Settings { hybrid: hybrid_settings, ..hybrid() }
    }

    fn key(number: u64) -> String {
        format!("key {number:03}")
    }

    /// Every third is too random to be packed.
    fn value(number: u64) -> Vec<u8> {
        let mut random = thermocline_foundation::random::Random::new(number);
        let mut value = vec![0; if number.is_multiple_of(3) { VALUE_BYTES } else { 50 }];
        random.fill(&mut value);
        value.iter().copied().cycle().take(VALUE_BYTES).collect()
    }

    /// All reads get what was written: look-ups, which find it in slots and then in memory, and
    /// scans.
    fn check(db: &Db) {
        for _ in 0..2 {
            for number in 0..RECORDS {
                assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number), "{number}");
            }
        }
        let scanned: Vec<_> = db.scan().into_iter().map(Result::unwrap).collect();
        assert_eq!(scanned.len() as u64, RECORDS);
        for (number, (found, bytes)) in (0..).zip(scanned) {
            assert!(found == key(number) && bytes == value(number), "{number}");
        }
        assert!(db.verify(&mut |_| {}).unwrap().problems.is_empty());
    }

    /// Records are the same in slots, memory and tables, on each way from one to the other, and
    /// with each setting, whatever those had that wrote them.
    #[test]
    fn records_that_are_packed_take_less_and_are_what_was_written_wherever_they_are() {
        let all = [Compression::Lz4, Compression::None, Compression::Zstd];
        for first in all {
            let environment = stepped_environment();
            let db = environment.create(Path::new("/home"), &settings(first)).unwrap();
            (0..RECORDS).for_each(|number| db.put(key(number), value(number)).unwrap());
            db.flush().unwrap();
            let packed_bytes = |db: &Db| db.stats().fast_tier.unwrap().live_bytes;
            let plain_bytes = RECORDS * VALUE_BYTES as u64;
            assert_eq!(packed_bytes(&db) < plain_bytes / 2, first != Compression::None);
            check(&db);
            db.close().unwrap();
            for later in all {
                let home = Path::new("/home");
                let db = environment.open_with(home, &settings(later)).unwrap();
                check(&db);
                // From slots and memory to tables, from there to memory, and into slots again.
                db.compact_range(None, None, &mut |_| {}).unwrap();
                let engine = db.engine();
                let fast = &engine.hybrid().fast;
                PROMOTION.hold(fast);
                check(&db);
                until("no offers", || {
                    engine.hybrid().promote().unwrap();
                    fast.promotions.offers.is_empty()
                });
                assert_eq!(db.stats().fast_tier.unwrap().memory_records, RECORDS);
                check(&db);
                let capacity_bytes = fast.cache.capacity_bytes();
                fast.spill_evicted(fast.cache.set_capacity_bytes(0));
                assert!(
                    fast.cache.set_capacity_bytes(capacity_bytes).into_records().next().is_none()
                );
                until("decisions on all that waits", || {
                    engine.hybrid().spill().unwrap();
                    fast.spill.waiting.is_empty()
                });
                assert_eq!(db.stats().fast_tier.unwrap().clean_records, RECORDS);
                assert_eq!(packed_bytes(&db) < plain_bytes / 2, later != Compression::None);
                check(&db);
                let stats = db.stats().fast_tier.unwrap();
                assert_eq!((stats.packed_value_bytes, stats.packed_stored_bytes), (0, 0));
                // Written anew while memory has them.
                (0..RECORDS).for_each(|number| db.put(key(number), value(number)).unwrap());
                db.flush().unwrap();
                check(&db);
                let stats = db.stats().fast_tier.unwrap();
                let written_bytes = if later == Compression::None { 0 } else { plain_bytes };
                assert_eq!(stats.packed_value_bytes, written_bytes);
                assert!(stats.packed_stored_bytes <= written_bytes / 2);
                db.close().unwrap();
            }
        }
    }
}
