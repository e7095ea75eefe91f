//! The layout: where records lie below the memtables, how a look-up finds them there, and what
//! moves them.
//!
//! A closed choice with one `match` an operation: adding a layout adds one arm to each of them, and
//! a folder. A layout knows no front: what a checkpoint or a compaction of a range wants flushed is
//! flushed before the layout is asked.

mod figures;
pub(crate) mod hybrid;
pub(crate) mod indexed;
pub(crate) mod leveled;

use crate::error::{Error, Result};
use crate::generations::Frozen;
use crate::generations::memtable::Memtable;
use crate::jobs::{Job, Progress};
use crate::locator::Locator;
use crate::merge::Source;
use crate::settings::{Preset, Settings};
use crate::shared::Shared;
use crate::shared::totals::Totals;
use crate::table_set::TableSet;
use crate::table_set::manifest::Edit;
use crate::table_set::restored::Restored;
use crate::table_set::table::TableMeta;
use crate::versions::{Follower, Version, Versions};
use bytes::Bytes;
pub(crate) use figures::{Checked, Held, Holdings, LayoutActivity, LayoutMemory};
use hybrid::records::flush::FlushesHeld;
use hybrid::report::FastTierStats;
use hybrid::{FastTier, Hybrid};
pub(crate) use indexed::Trail;
use indexed::{Indexed, OneLevel, Order};
use leveled::{LevelTargets, Leveled};
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_pmem::Tree;
use thermocline_slab::LiveSlots;
use thermocline_table::{RecordKind, Trailer};

/// What a look-up found: an entry, or nothing of the key.
pub(crate) type Found = Option<(Trailer, Bytes)>;

/// The value of what was found, unless that is a tombstone.
pub(crate) fn live(found: Found) -> Option<Bytes> {
    found.filter(|(trailer, _)| trailer.kind() == RecordKind::Put).map(|(_, value)| value)
}

/// The moment that a look-up is for. Borrowed: a look-up counts no references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub version: &'a Version,
    /// The sequence that a caller asked for; none where it asks for now.
    pub asked: Option<Sequence>,
    /// The newest sequence that it sees of `version`.
    pub visible: Sequence,
}

/// Keys that are looked up together, and what is known of them so far.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub keys: &'a [&'a [u8]],
    pub moment: Sequence,
    /// Places of the keys that are not answered yet.
    pub left: Vec<usize>,
    /// Places of the keys that are to be looked up one by one.
    pub single: Vec<usize>,
    pub results: Vec<Option<Bytes>>,
}

impl Wanted<'_> {
    /// The key at `at` is answered.
    pub fn answer(&mut self, at: usize, found: Found) {
        self.results[at] = live(found);
    }
}

/// What answered a look-up of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// A memtable has an entry of this key.
    Memtable(&'a [u8], Trailer),
    /// A slot, or the copy of a record in memory, of the key with this hash.
    Slot(u64, Trailer),
    Table(TableAnswer<'a>),
    /// There is no entry of the key.
    Nothing,
}

/// A table's record that a look-up answers with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableAnswer<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub found: (Trailer, &'a Bytes),
    pub table: FileNumber,
    /// It is the newest version there is, not one of an earlier moment.
    pub is_newest: bool,
}

/// What of a layout is open before the store is: it follows edits.
#[derive(Clone, Debug)]
pub(crate) enum OpenedLayout {
    Leveled(Arc<LevelTargets>),
    Hybrid(Arc<FastTier>),
    Indexed(Arc<OneLevel>),
}

impl OpenedLayout {
    /// The text of the settings that are kept, if there is one, names each format that the layout
    /// may write and that older builds do not know.
    pub fn names_formats(settings: &Settings, kept: Option<&str>) -> bool {
        match settings.preset() {
            Preset::Hybrid => hybrid::records::packing::packing_is_named(kept),
            Preset::Leveled | Preset::Indexed => true,
        }
    }

    /// Reads what the settings' layout keeps beside tables. `tree` is the index in persistent
    /// memory, where the layout has one and the store is opened for writing.
    pub fn open(shared: &Arc<Shared>, restored: &mut Restored, tree: Option<Tree>) -> Result<Self> {
        Ok(match shared.settings.preset() {
            Preset::Hybrid => Self::Hybrid(Arc::new(FastTier::open(shared, restored)?)),
            Preset::Leveled => {
                hybrid::opening::drop_copies(shared, restored)?;
                Self::Leveled(Arc::new(LevelTargets::new(Arc::clone(shared))))
            }
            Preset::Indexed => {
                hybrid::opening::drop_copies(shared, restored)?;
                Self::Indexed(Arc::new(OneLevel::open(shared, tree, &restored.levels)?))
            }
        })
    }

    /// Bytes at which memtables are written out while logs are replayed; none where what the logs
    /// had stays in memory until the store is put together.
    pub fn replayed_memtable_bytes(&self, settings: &Settings) -> Option<u64> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => Some(settings.division().memtable_bytes),
            Self::Hybrid(_) => None,
        }
    }

    /// Writes a memtable of replayed records to tables of level 0.
    pub fn write_replayed(&self, shared: &Shared, memtable: Memtable) -> Result<Vec<TableMeta>> {
        leveled::write_replayed(shared, memtable)
    }

    /// The part that hears of edits.
    pub fn follower(&self) -> Arc<dyn Follower> {
        match self {
            Self::Leveled(targets) => Arc::clone(targets) as _,
            Self::Hybrid(fast) => Arc::clone(fast) as _,
            Self::Indexed(level) => Arc::clone(level) as _,
        }
    }

    /// The layout over `versions`.
    pub fn over(self, shared: &Arc<Shared>, versions: &Arc<Versions>) -> Layout {
        let (shared, versions) = (Arc::clone(shared), Arc::clone(versions));
        match self {
            Self::Leveled(_) => {
                let locator = Locator::per_level();
                Layout::Leveled(Arc::new(Leveled { shared, versions, locator }))
            }
            Self::Hybrid(fast) => {
                let locator = Locator::on_tier0(&fast.copying);
                Layout::Hybrid(Arc::new(Hybrid { shared, versions, locator, fast }))
            }
            Self::Indexed(level) => {
                let (locator, index) = (level.locator(), level.index.clone());
                let order = Order::default();
                let unread = Mutex::default();
                let indexed = Indexed { shared, versions, locator, index, order, unread };
                Layout::Indexed(Arc::new(indexed))
            }
        }
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    Leveled(Arc<Leveled>),
    Hybrid(Arc<Hybrid>),
    Indexed(Arc<Indexed>),
}

impl Layout {
    /// The job that brings a frozen memtable to tables or slots.
    pub fn flush_job(&self, frozen: Arc<Frozen>) -> Box<dyn Job> {
        match self {
            Self::Leveled(leveled) => leveled.flush_job(frozen),
            Self::Hybrid(hybrid) => hybrid.flush_job(frozen),
            Self::Indexed(indexed) => indexed.flush_job(frozen),
        }
    }

    /// The most useful job that can begin now, claimed by this call.
    pub fn plan(&self) -> Option<Box<dyn Job>> {
        match self {
            Self::Leveled(leveled) => leveled.plan(),
            Self::Hybrid(hybrid) => hybrid.plan(),
            Self::Indexed(indexed) => indexed.plan(),
        }
    }

    /// The newest version of `key` at `moment`, of which no memtable has one. Counts the look-up
    /// and considers the record for promotion.
    pub fn get(&self, moment: &Moment<'_>, key: &[u8]) -> Result<Found> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => {
                let levels = &moment.version.levels;
                let found = self.locator().find_newest(levels, key, moment.visible)?;
                Ok(found.map(|found| (found.trailer, found.value)))
            }
            Self::Hybrid(hybrid) => hybrid.get(moment, key),
        }
    }

    /// Sequence and kind of the newest version of `key` at `moment`, which is now and of which no
    /// memtable has one; none may be said where it is not newer than `than`. Counts nothing, and
    /// moves nothing.
    pub fn newer(
        &self,
        moment: &Moment<'_>,
        key: &[u8],
        than: Sequence,
    ) -> Result<Option<Trailer>> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => {
                let levels = &moment.version.levels;
                self.locator().newer_trailer(levels, key, than, moment.visible)
            }
            Self::Hybrid(hybrid) => hybrid.newer(moment, key, than),
        }
    }

    /// Answers those of `wanted` that lie beside tables, or that an index of all tables knows, in
    /// one batch.
    pub fn get_many(&self, wanted: &mut Wanted<'_>) -> Result<()> {
        match self {
            Self::Leveled(_) => Ok(()),
            Self::Hybrid(hybrid) => hybrid.get_many(wanted),
            Self::Indexed(indexed) => indexed.get_many(wanted),
        }
    }

    /// Hears of the answer to a look-up, unless the layout gave it in [`Layout::get`].
    pub fn answered(&self, answer: Answer<'_>) {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => {}
            Self::Hybrid(hybrid) => hybrid.answered(answer),
        }
    }

    /// How keys are found among the tables.
    pub fn locator(&self) -> &Locator {
        match self {
            Self::Leveled(leveled) => &leveled.locator,
            Self::Hybrid(hybrid) => &hybrid.locator,
            Self::Indexed(indexed) => &indexed.locator,
        }
    }

    /// Records leave places that a version does not hold: a reader of several keys registers its
    /// moment, and takes the tables of now after it has asked [`Layout::get_many`].
    pub fn moves_records(&self) -> bool {
        match self {
            Self::Leveled(_) => false,
            Self::Hybrid(_) | Self::Indexed(_) => true,
        }
    }

    /// Departures of records for tables so far: a scan asks before it takes its version.
    pub fn departures(&self) -> u64 {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => 0,
            Self::Hybrid(hybrid) => hybrid.fast.departures(),
        }
    }

    /// The source of a scan that walks the records beside tables, where there are any; of `keys`
    /// at first. `departures` is from before the tables of the scan were chosen.
    pub fn source(&self, moment: Sequence, departures: u64, keys: usize) -> Option<Source> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => Some(hybrid.source(moment, departures, keys)),
        }
    }

    /// What hears of the records that a cursor comes to, where the layout learns from scans.
    pub fn trail(&self) -> Option<Trail> {
        match self {
            Self::Leveled(_) | Self::Hybrid(_) => None,
            Self::Indexed(indexed) => Trail::begin(indexed),
        }
    }

    /// Records that lie beside tables; none where every level is read as if it had all.
    pub fn records_beside_tables(&self) -> Option<u64> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => Some(hybrid.fast.index.slot_records()),
        }
    }

    /// Brings all records of `from..=to` to the deepest level in use, on the calling thread. The
    /// memtables are flushed.
    pub fn compact_range(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        match self {
            Self::Leveled(leveled) => leveled.compact_range(from, to, progress),
            Self::Hybrid(hybrid) => hybrid.compact_range(from, to, progress),
            Self::Indexed(indexed) => indexed.compact_range(from, to, progress),
        }
    }

    /// Has what the logs had in tables or slots, and commits `edit`, which raises the log floor
    /// above `logs`.
    pub fn settle(
        &self,
        logs: &[FileNumber],
        memtable: Option<&Arc<Memtable>>,
        edit: Edit,
    ) -> Result<()> {
        match self {
            Self::Leveled(leveled) => leveled.versions.commit(&mut leveled.versions.tables(), edit),
            Self::Hybrid(hybrid) => hybrid.settle_replayed(logs, memtable, edit),
            Self::Indexed(indexed) => indexed.settle(edit),
        }
    }

    /// Damage that the opening met, because of which the store may not be written to.
    pub fn damage(&self) -> Option<Error> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => hybrid.fast.damage.reason(),
        }
    }

    /// Holds back flushes that have not begun of memtables whose log is `log` or a later one.
    pub fn hold_flushes(&self, log: FileNumber) -> Option<FlushesHeld<'_>> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => Some(hybrid.fast.flushes.hold_from(log)),
        }
    }

    /// What lies beside the tables of `version`, held for a copy.
    pub fn hold(&self, tables: &TableSet, version: &Version) -> Result<Held> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => {
                let newest = version.levels.tables().map(|(_, table)| table.meta.largest_sequence);
                let last_sequence = newest.max().unwrap_or_default();
                let slots = LiveSlots::default();
                Ok(Held { slots, older_versions: None, last_sequence, frees: None })
            }
            Self::Hybrid(hybrid) => hybrid.hold(tables),
        }
    }

    /// Reads and checks all records beside tables; `read` hears of bytes.
    pub fn verify(&self, read: &mut dyn FnMut(u64)) -> Checked {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => Checked::default(),
            Self::Hybrid(hybrid) => hybrid.verify(read),
        }
    }

    /// Adds what lies beside tables to what the tiers hold, of which `place` gives the one of a
    /// file. Says how many bytes of it replace records of tables.
    pub fn add_holdings(
        &self,
        holdings: &mut [Holdings],
        place: &dyn Fn(FileNumber) -> usize,
    ) -> u64 {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => 0,
            Self::Hybrid(hybrid) => hybrid.fast.add_holdings(holdings, place),
        }
    }

    /// Memory beside memtables, block cache and open tables.
    pub fn memory(&self) -> LayoutMemory {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => LayoutMemory::default(),
            Self::Hybrid(hybrid) => hybrid.fast.memory_use(),
        }
    }

    /// What waits to be moved.
    pub fn activity(&self) -> LayoutActivity {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => LayoutActivity::default(),
            Self::Hybrid(hybrid) => LayoutActivity {
                promotions: hybrid.fast.promotions.offers.count(),
                spills: hybrid.fast.spill.waiting.count(),
            },
        }
    }

    /// Tells `expect` what should be left of work once all of it has ended: what, how much there
    /// is, and how much is right.
    pub fn left_over(&self, expect: &mut dyn FnMut(&str, u64, u64)) {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => {}
            Self::Hybrid(hybrid) => hybrid.fast.left_over(expect),
        }
    }

    /// Why writers are slowed down, where they are; level 0 has so many tables.
    pub fn stall_cause(&self, level0_tables: u64) -> String {
        match self {
            Self::Leveled(leveled) => format!(
                "level 0 has {level0_tables} tables, which compactions take down; writers are \
                 slowed down at {}",
                leveled.shared.settings.level0_slowdown
            ),
            Self::Indexed(indexed) => format!(
                "{} tables wait for the index in persistent memory; writers are slowed down at {}",
                indexed.index.as_ref().map_or(0, |index| index.waiting()),
                indexed.shared.settings.level0_slowdown
            ),
            Self::Hybrid(hybrid) => match hybrid.fast.slow_tier_backoff.reason() {
                Some(refusal) => {
                    format!("the fast tier is full, and no record leaves it: {refusal}")
                }
                None => "the fast tier is full, and demotions make room on it".to_owned(),
            },
        }
    }

    /// What statistics say of records beside tables, where there are any.
    pub fn report(&self, totals: &Totals) -> Option<FastTierStats> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => Some(hybrid.report(totals)),
        }
    }

    /// The level that a table of a bulk load goes to; `deepest` is the deepest where nothing is in
    /// its way.
    pub fn level_of_load(&self, deepest: u8) -> u8 {
        match self {
            Self::Leveled(_) | Self::Hybrid(_) => deepest,
            Self::Indexed(_) => 0,
        }
    }

    /// Writes to the second tier that its rating allows, in drive writes a day; none without a
    /// budget.
    pub fn write_budget_dwpd(&self) -> Option<f64> {
        match self {
            Self::Leveled(_) | Self::Indexed(_) => None,
            Self::Hybrid(hybrid) => {
                Some(hybrid.shared.settings.hybrid.write_budget_dwpd).filter(|dwpd| *dwpd > 0.0)
            }
        }
    }

    /// The layout of a store with a fast tier of slots.
    #[cfg(test)]
    pub fn hybrid(&self) -> &Arc<Hybrid> {
        match self {
            Self::Hybrid(hybrid) => hybrid,
            Self::Leveled(_) | Self::Indexed(_) => panic!("the preset has no fast tier"),
        }
    }

    /// The layout of a store whose records are all in levels.
    #[cfg(test)]
    pub fn leveled(&self) -> &Arc<Leveled> {
        match self {
            Self::Leveled(leveled) => leveled,
            Self::Hybrid(_) | Self::Indexed(_) => panic!("this is another preset"),
        }
    }
}
