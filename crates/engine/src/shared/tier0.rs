//! The ledger of the fast tier's space: what each kind of file there may come to.
//!
//! ```text
//!   capacity | logs | journals | spare | block cache | slots ............ | copies of indexes |
//!            '------- first, by the settings --------' '- divided anew as copies are wanted -'
//! ```
//! Logs and journals come first, for without them nothing is written. A spare part is left for a
//! journal that is written afresh beside the old one, the first log of an opening, and logs of
//! batches larger than a memtable. A cache of blocks has what the settings say, half of what is
//! left at most, or all of it where the placement puts no table on the tier or the cache takes what
//! the levels leave (`auto`), and gives it up where others take more (`fast_cache/room.rs`). Slots
//! have the rest, and give way to copies of tables' indexes, which get a quarter of it at most. A
//! flush that finds no slot and must not wait overdraws: while one does, the slots may take what
//! the tier has. While the tier's device refuses what its capacity leaves, the slots keep to what
//! they have there.
//!
//! Invariant: the grants of all accounts together are the capacity at most.

use crate::settings::Settings;
use std::collections::BTreeMap;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Share of the fast tier that is left free beside logs and journals, and the least: a manifest and
/// a map of a small database as they are begun.
const SPARE_SHARE: u64 = 100;
const SPARE_BYTES_MIN: u64 = 96 << 10;

/// Share of what logs, journals and spare leave that a cache of blocks may take beside tables and
/// slots.
const CACHE_SHARE: u64 = 2;

/// Share of the slots' room that copies of indexes may take.
const COPIES_SHARE: u64 = 4;

/// What takes space of the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    Logs,
    Journals,
    Spare,
    BlockCache,
    Slots,
    IndexCopies,
}

impl Account {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Logs, "logs"),
        (Self::Journals, "journals"),
        (Self::Spare, "spare"),
        (Self::BlockCache, "block_cache"),
        (Self::Slots, "slots"),
        (Self::IndexCopies, "index_copies"),
    ];
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Tier0 {
    logs_bytes: u64,
    journals_bytes: u64,
    spare_bytes: u64,
    cache_bytes: u64,
    /// What slots and copies of indexes divide.
    divided_bytes: u64,
    /// What the slots have of it; changed under `overdrafts`.
    slots_bytes: AtomicU64,
    /// What the slots have there while the device has no room for more; changed under `overdrafts`.
    slots_bytes_max: AtomicU64,
    /// Callers that let the slots take more, at this moment.
    overdrafts: Mutex<usize>,
}

/// The slots may take more than their grant for as long as it lives.
pub(crate) struct Overdraft<'a, S: Fn(u64)> {
    tier0: &'a Tier0,
    set: S,
}

impl Tier0 {
    /// The tier as `settings` have it, with no copies.
    pub fn new(settings: &Settings) -> Self {
        let capacity_bytes = settings.tiers.first().map_or(0, |tier| tier.capacity.0);
        let mut left_bytes = capacity_bytes;
        let mut grant = |bytes: u64| {
            let granted = bytes.min(left_bytes);
            left_bytes -= granted;
            granted
        };
        let logs_bytes = grant(settings.logs_bytes());
        let journals_bytes = grant(settings.manifest_bytes() + settings.map_bytes());
        let spare_bytes = grant((capacity_bytes / SPARE_SHARE).max(SPARE_BYTES_MIN));
        let may_have_all = settings.all_tables_lie_below() || settings.cache_takes_rest();
        let share = if may_have_all { 1 } else { CACHE_SHARE };
        let cache_bytes = settings.fast_cache_bytes().min(left_bytes / share);
        left_bytes -= cache_bytes;
        Self {
            logs_bytes,
            journals_bytes,
            spare_bytes,
            cache_bytes,
            divided_bytes: left_bytes,
            slots_bytes: AtomicU64::new(left_bytes),
            slots_bytes_max: AtomicU64::new(u64::MAX),
            overdrafts: Mutex::new(0),
        }
    }

    /// Bytes that files of the account may take.
    pub fn grant(&self, account: Account) -> u64 {
        match account {
            Account::Logs => self.logs_bytes,
            Account::Journals => self.journals_bytes,
            Account::Spare => self.spare_bytes,
            Account::BlockCache => self.cache_bytes,
            Account::Slots => {
                self.slots_bytes.load(Relaxed).min(self.slots_bytes_max.load(Relaxed))
            }
            Account::IndexCopies => self.divided_bytes - self.slots_bytes.load(Relaxed),
        }
    }

    /// The grants of all accounts, by name.
    pub fn grants(&self) -> BTreeMap<String, u64> {
        let named = Account::ALL.map(|(account, name)| (name.to_owned(), self.grant(account)));
        named.into()
    }

    /// Bytes that slots and copies of indexes divide.
    pub fn divided_bytes(&self) -> u64 {
        self.divided_bytes
    }

    /// Copies of indexes want so many bytes, of which `taken_bytes` are taken: the slots give way,
    /// and `set` hears of their new grant unless they are overdrawn.
    pub fn want_copies(&self, bytes: u64, taken_bytes: u64, set: impl FnOnce(u64)) {
        let copies_bytes = bytes.min(self.divided_bytes / COPIES_SHARE).max(taken_bytes);
        let slots_bytes = self.divided_bytes.saturating_sub(copies_bytes);
        let overdrafts = self.overdrafts.lock();
        if self.slots_bytes.swap(slots_bytes, Relaxed) != slots_bytes && *overdrafts == 0 {
            set(self.grant(Account::Slots));
        }
    }

    /// The slots have no more than so many bytes of the device, or it has room for more (none):
    /// `set` hears of their new grant unless they are overdrawn.
    pub fn bound_slots(&self, bytes: Option<u64>, set: impl FnOnce(u64)) {
        let bytes = bytes.unwrap_or(u64::MAX);
        let overdrafts = self.overdrafts.lock();
        if self.slots_bytes_max.swap(bytes, Relaxed) != bytes && *overdrafts == 0 {
            set(self.grant(Account::Slots));
        }
    }

    /// Copies of so many bytes keep to their share, and to what slots of so many leave.
    pub fn has_room_for_copies(&self, copies_bytes: u64, slots_bytes: u64) -> bool {
        copies_bytes <= self.divided_bytes / COPIES_SHARE
            && copies_bytes + slots_bytes <= self.divided_bytes
    }

    /// Overdrafts under way.
    pub fn overdrafts(&self) -> usize {
        *self.overdrafts.lock()
    }

    /// Lets the slots take more than their grant; `set` hears of their limit, now and when the last
    /// overdraft ends.
    pub fn overdraw<S: Fn(u64)>(&self, set: S) -> Overdraft<'_, S> {
        let mut overdrafts = self.overdrafts.lock();
        *overdrafts += 1;
        set(u64::MAX);
        Overdraft { tier0: self, set }
    }
}

impl<S: Fn(u64)> Drop for Overdraft<'_, S> {
    fn drop(&mut self) {
        let mut overdrafts = self.tier0.overdrafts.lock();
        *overdrafts -= 1;
        if *overdrafts == 0 {
            (self.set)(self.tier0.grant(Account::Slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::fast_cache::FastCacheSettings;
    use crate::{ByteSize, PlacementChoice, Preset, Tier};
    use std::cell::Cell;
    use thermocline_foundation::random::Random;

    fn ledger(capacity_bytes: u64, memory_bytes: u64, preset: Preset) -> Tier0 {
        ledger_with(capacity_bytes, memory_bytes, preset, ByteSize(0))
    }

    fn ledger_with(
        capacity_bytes: u64,
        memory_bytes: u64,
        preset: Preset,
        cache: ByteSize,
    ) -> Tier0 {
        let tiers = vec![Tier::new("/fast", ByteSize(capacity_bytes))];
        let (preset, memory) = (Some(preset), ByteSize(memory_bytes));
        let fast_cache =
            FastCacheSettings { capacity: cache.into(), ..FastCacheSettings::default() };
        Tier0::new(&Settings { tiers, preset, memory, fast_cache, ..Settings::default() })
    }

    fn granted(tier0: &Tier0) -> u64 {
        tier0.grants().values().sum()
    }

    #[test]
    fn grants_are_the_capacity_whatever_the_settings_and_the_copies() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let mut at_least_a_mib = |bits_max| {
                let bits = 21 + random.below(bits_max);
                1 << 20 | random.below(1 << bits)
            };
            let (capacity_bytes, memory_bytes) = (at_least_a_mib(20), at_least_a_mib(14));
            let preset = [Preset::Leveled, Preset::Hybrid][random.below(2) as usize];
            let mut tier0 = ledger(capacity_bytes, memory_bytes, preset);
            if random.below(2) == 0 {
                let capacity = ByteSize(random.below(2 * capacity_bytes));
                tier0 = ledger_with(capacity_bytes, memory_bytes, preset, capacity);
            }
            assert_eq!(granted(&tier0), capacity_bytes);
            tier0.want_copies(random.below(capacity_bytes), random.below(1 << 20), |_| {});
            assert!(granted(&tier0) <= capacity_bytes, "{tier0:?}");
        }
    }

    #[test]
    fn a_cache_has_half_of_what_is_left_and_all_of_it_where_no_table_lies_above() {
        let granted = |preset, placement| {
            let tier0 = Tier0::new(&Settings {
                tiers: vec![Tier::new("/fast", ByteSize::mib(256))],
                preset: Some(preset),
                placement,
                memory: ByteSize::mib(16),
                fast_cache: FastCacheSettings {
                    capacity: ByteSize::gib(1).into(),
                    ..FastCacheSettings::default()
                },
                ..Settings::default()
            });
            assert_eq!(granted(&tier0), 256 << 20);
            let first = [Account::Logs, Account::Journals, Account::Spare];
            let first: u64 = first.map(|account| tier0.grant(account)).iter().sum();
            ((256 << 20) - first, tier0.grant(Account::BlockCache))
        };
        let (left, all) = granted(Preset::Leveled, PlacementChoice::LogOnly);
        assert_eq!(all, left);
        for preset in [Preset::Leveled, Preset::Hybrid] {
            let (left, half) = granted(preset, PlacementChoice::Room);
            assert_eq!(half, left / 2);
        }
    }

    #[test]
    fn slots_give_way_to_copies_up_to_a_quarter() {
        let tier0 = ledger(64 << 20, 16 << 20, Preset::Hybrid);
        let all = tier0.divided_bytes();
        let limit = Cell::new(all);
        tier0.want_copies(1 << 20, 0, |bytes| limit.set(bytes));
        assert_eq!((limit.get(), tier0.grant(Account::IndexCopies)), (all - (1 << 20), 1 << 20));
        tier0.want_copies(u64::MAX, 0, |bytes| limit.set(bytes));
        assert_eq!(limit.get(), all - all / 4);
        assert!(tier0.has_room_for_copies(all / 4, all / 4 * 3));
        assert!(!tier0.has_room_for_copies(all / 4 + 1, 0));
        assert!(!tier0.has_room_for_copies(all / 4, all / 4 * 3 + 4));
        tier0.want_copies(0, 2 << 20, |bytes| limit.set(bytes));
        assert_eq!(limit.get(), all - (2 << 20), "those that are there still are");
    }

    #[test]
    fn slots_keep_to_what_they_have_while_the_device_has_no_more() {
        let tier0 = ledger(64 << 20, 16 << 20, Preset::Hybrid);
        let all = tier0.divided_bytes();
        let limit = Cell::new(all);
        tier0.bound_slots(Some(5 << 20), |bytes| limit.set(bytes));
        assert_eq!((limit.get(), granted(&tier0)), (5 << 20, (64 << 20) - all + (5 << 20)));
        tier0.want_copies(1 << 20, 0, |bytes| limit.set(bytes));
        assert_eq!((limit.get(), tier0.grant(Account::IndexCopies)), (5 << 20, 1 << 20));
        let overdraft = tier0.overdraw(|bytes| limit.set(bytes));
        tier0.bound_slots(Some(6 << 20), |bytes| limit.set(bytes));
        assert_eq!(limit.get(), u64::MAX);
        drop(overdraft);
        assert_eq!(limit.get(), 6 << 20);
        tier0.bound_slots(None, |bytes| limit.set(bytes));
        assert_eq!(limit.get(), all - (1 << 20));
    }

    #[test]
    fn the_last_overdraft_that_ends_brings_the_grant_of_now_back() {
        let tier0 = ledger(64 << 20, 16 << 20, Preset::Hybrid);
        let all = tier0.divided_bytes();
        let limit = Cell::new(all);
        let first = tier0.overdraw(|bytes| limit.set(bytes));
        let second = tier0.overdraw(|bytes| limit.set(bytes));
        assert_eq!(limit.get(), u64::MAX);
        tier0.want_copies(1 << 20, 0, |bytes| limit.set(bytes));
        drop(first);
        assert_eq!(limit.get(), u64::MAX, "another goes on");
        drop(second);
        assert_eq!(limit.get(), all - (1 << 20));
    }
}
