//! The engine's background jobs, and the plan that chooses among them.

use crate::compaction::leveled::{self, Pick, Writing};
use crate::compaction::rewrite::{Output, Retention, Rewrite, STEP_BYTES};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::front::slabs::flush::SlotFlush;
use crate::front::slabs::plan::plan_fast_tier;
use crate::generations::Frozen;
use crate::generations::memtable::MemtableCursor;
use crate::jobs::Progress;
use crate::jobs::{Job, Lane, Planner, Step};
use crate::limits::LEVELS;
use crate::merge::{LevelCursor, Merge, Source, Tables};
use crate::shared::compaction_rate::Hurry;
use crate::table_set::claims::Claim;
use crate::table_set::levels::may_overlap;
use crate::table_set::manifest::Edit;
use crate::versions::Change;
use std::sync::Arc;
use thermocline_device::{ErrorKind, FileContext, FileKind, Origin, TierIndex};
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_table::ReadAhead;

/// A shared engine that plans its own background work.
#[derive(Debug)]
pub(crate) struct Background(pub Arc<Engine>);

impl Planner for Background {
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>> {
        let engine = &self.0;
        engine.shared.latch.check().ok()?;
        match lane {
            Lane::Flush => plan_flush(engine),
            // A log is made in a moment, and writers wait for it when it is missing.
            Lane::Upkeep => plan_upkeep(engine),
            Lane::Bulk => plan_deletion(engine)
                .or_else(|| match &engine.fast {
                    Some(fast) => plan_fast_tier(engine, fast),
                    None => plan_compaction(engine),
                })
                .or_else(|| plan_migration(engine)),
        }
    }

    fn failed(&self, job: &'static str, error: &Error) {
        let text = format!("{job} failed: {error}");
        self.0.shared.fail(&Error::new(error.kind(), text));
    }

    fn panicked(&self, job: &'static str, text: &str) {
        self.0.shared.fail_by_panic(&format!("the background job '{job}'"), text);
    }
}

fn plan_flush(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    let state = engine.versions.current();
    // Oldest first, and one at a time, so that level 0 receives them in order.
    let frozen = state.frozen.last()?;
    if frozen.claimed.swap(true, Relaxed) {
        return None;
    }
    Some(match &engine.fast {
        Some(_) => Box::new(SlotFlush::new(engine, Arc::clone(frozen))),
        None => Box::new(Flush::new(engine, Arc::clone(frozen))),
    })
}

fn upkeep(engine: &Arc<Engine>, task: Task) -> Option<Box<dyn Job>> {
    Some(Box::new(Upkeep { engine: Arc::clone(engine), task }))
}

fn plan_upkeep(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    if engine.sync_wanted.swap(false, Relaxed) {
        return upkeep(engine, Task::SyncLog);
    }
    let prepares = engine.log_pool.claim_preparation();
    prepares.then(|| upkeep(engine, Task::PrepareLog)).flatten()
}

/// Deleting a table waits for the device, for long where the file system tells it at once what is
/// free, so it is not among the things that writers wait for.
fn plan_deletion(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    if engine.versions.store.obsolete.is_empty() {
        None
    } else {
        upkeep(engine, Task::DeleteTables)
    }
}

fn plan_compaction(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    let mut tables = engine.versions.tables();
    if tables.claimants > 0 {
        return None;
    }
    let state = engine.versions.current();
    let writing = match state.is_calm() {
        false => Writing::GoesOn,
        true if engine.shared.counts.writes.get() == 0 => Writing::NotBegun,
        true => Writing::Over,
    };
    let pick = leveled::pick(&state.levels, &tables.claims, &engine.shared.settings, writing)?;
    pick.claim_tables();
    tables.claims.push(pick.claim.clone());
    Some(Box::new(Compaction::new(engine, pick)))
}

fn plan_migration(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    if !engine.shared.placement_changed.load(Relaxed) || engine.migrating.swap(true, Relaxed) {
        return None;
    }
    engine.shared.placement_changed.store(false, Relaxed);
    let next = engine.shared.files.misplaced().into_iter().next();
    match next.or_else(|| fetch(engine)) {
        Some((number, tier)) => {
            Some(Box::new(Migration { engine: Arc::clone(engine), number, tier }))
        }
        None => {
            engine.migrating.store(false, Relaxed);
            None
        }
    }
}

/// A table to bring to a faster tier while nothing is written: the room that a backlog needs would
/// be filled and emptied again and again otherwise.
fn fetch(engine: &Engine) -> Option<(FileNumber, TierIndex)> {
    let state = engine.versions.current();
    if !state.frozen.is_empty() || !engine.versions.tables().claims.is_empty() {
        // What runs tells of its own change before it is off the list.
        engine.shared.placement_changed.store(true, Relaxed);
        return None;
    }
    // Records in it are a flush to come, after which this is asked again.
    if state.active.count() > 0 {
        return None;
    }
    engine.shared.files.worth_fetching().into_iter().next()
}

/// Writes a frozen memtable to level 0.
#[derive(Debug)]
struct Flush {
    engine: Arc<Engine>,
    frozen: Arc<Frozen>,
    rewrite: Rewrite,
}

impl Flush {
    fn new(engine: &Arc<Engine>, frozen: Arc<Frozen>) -> Self {
        let cursor = MemtableCursor::new(Arc::clone(&frozen.memtable));
        let retention = Retention::new(engine.versions.kept_readable(), None);
        let kind = FileKind::Table { level: 0 };
        let output = Output {
            context: FileContext { kind, origin: Origin::Flush },
            options: engine.shared.settings.table_options(0),
            // One table a flush: level 0 is counted in tables.
            table_bytes: u64::MAX,
            expected_bytes: frozen.memtable.bytes(),
            cache: Some(Arc::clone(&engine.shared.cache)),
        };
        let merge = Merge::new(vec![Source::Memtable(cursor)]);
        let rewrite = Rewrite::new(Arc::clone(&engine.shared.files), merge, retention, output);
        Self { engine: Arc::clone(engine), frozen, rewrite }
    }

    fn finish(&mut self) -> Result<()> {
        // The log's tail must be durable before a later log can be the floor.
        self.frozen.log.seal()?;
        let added = self.rewrite.publish()?;
        let bytes: u64 = added.iter().map(|meta| meta.bytes).sum();
        self.engine.shared.counts.flushed_bytes.add(bytes);
        self.engine.shared.compaction_rate.flushed(bytes);
        if planted(Planted::LogRetiredBeforeEdit) {
            self.engine.shared.files.delete_files(&[self.frozen.log.number])?;
        }
        let edit = Edit {
            added: added.into_iter().map(|meta| (0, meta)).collect(),
            log_floor: Some(self.frozen.next_log),
            ..Edit::default()
        };
        let flushed = Some(Arc::clone(&self.frozen));
        let change = Change { edit, flushed, ..Change::default() };
        let versions = &self.engine.versions;
        versions.commit(&mut versions.tables(), change)
    }
}

impl Job for Flush {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn step(&mut self) -> Result<Step> {
        if self.rewrite.step()? == Step::More {
            return Ok(Step::More);
        }
        self.finish()?;
        Ok(Step::Done)
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.frozen.claimed.store(false, Relaxed);
    }
}

/// Small things, most of which writers wait for.
#[derive(Debug)]
struct Upkeep {
    engine: Arc<Engine>,
    task: Task,
}

#[derive(Debug)]
enum Task {
    SyncLog,
    PrepareLog,
    DeleteTables,
}

impl Job for Upkeep {
    fn name(&self) -> &'static str {
        match self.task {
            Task::SyncLog => "background sync of the log",
            Task::PrepareLog => "preparation of a log",
            Task::DeleteTables => "deletion of tables",
        }
    }

    fn step(&mut self) -> Result<Step> {
        match self.task {
            Task::SyncLog => self.engine.sync_tail()?,
            Task::PrepareLog => self.engine.log_pool.prepare_log()?,
            Task::DeleteTables => {
                self.engine
                    .shared
                    .files
                    .delete_files(&self.engine.versions.store.obsolete.take())?;
                self.engine.shared.room_freed();
            }
        }
        Ok(Step::Done)
    }
}

/// Merges tables into a deeper level.
#[derive(Debug)]
pub(crate) struct Compaction {
    engine: Arc<Engine>,
    pick: Pick,
    work: Work,
    started_ns: u64,
}

#[derive(Debug)]
enum Work {
    /// Nothing overlaps below: the table only changes its level.
    Move,
    Rewrite(Box<Rewrite>),
}

impl Compaction {
    /// The pick must be claimed; the compaction gives the claim back when it ends.
    pub fn new(engine: &Arc<Engine>, pick: Pick) -> Self {
        let settings = &engine.shared.settings;
        let compression = |level| settings.compression_of(level);
        let (from, to) = (pick.level, pick.output_level);
        let work = if let [table] = pick.upper.as_slice()
            && pick.lower.is_empty()
            && from != to
            && compression(from) == compression(to)
            && table.meta.deletes == 0
        {
            Work::Move
        } else {
            Work::Rewrite(Box::new(rewrite_of(engine, &pick)))
        };
        let started_ns = engine.shared.clock.now_ns();
        Self { engine: Arc::clone(engine), pick, work, started_ns }
    }

    fn finish(&mut self) -> Result<()> {
        let output = self.pick.output_level as u8;
        let removed = self.pick.inputs().map(|(level, table)| (level as u8, table.meta.number));
        let mut edit = Edit { removed: removed.collect(), ..Edit::default() };
        let metrics = &self.engine.shared.counts;
        match &mut self.work {
            Work::Move => {
                let kind = FileKind::Table { level: output };
                for table in &self.pick.upper {
                    self.engine.shared.files.reclassify(table.meta.number, kind)?;
                    edit.added.push((output, table.meta.clone()));
                }
                metrics.moves.add(1);
            }
            Work::Rewrite(rewrite) => {
                let added = rewrite.publish()?;
                metrics.compactions.add(1);
                metrics.compacted_in_bytes.add(self.pick.bytes());
                metrics.compacted_out_bytes.add(added.iter().map(|meta| meta.bytes).sum());
                edit.added.extend(added.into_iter().map(|meta| (output, meta)));
            }
        }
        self.engine.versions.commit(&mut self.engine.versions.tables(), edit)?;
        if may_overlap(self.pick.level) && !may_overlap(self.pick.output_level) {
            let bytes = self.pick.upper.iter().map(|table| table.meta.bytes).sum();
            let elapsed_ns = self.engine.shared.clock.now_ns() - self.started_ns;
            self.engine.shared.write_throttle.drained(bytes, elapsed_ns);
        }
        Ok(())
    }
}

impl Compaction {
    /// The inputs are still where they were.
    fn is_unfinished(&self) -> bool {
        let levels = Arc::clone(&self.engine.versions.current().levels);
        self.pick.inputs().all(|(level, table)| levels.find(level, table.meta.number).is_some())
    }
}

fn rewrite_of(engine: &Arc<Engine>, pick: &Pick) -> Rewrite {
    let upper = if may_overlap(pick.level) { pick.upper.len() } else { 1 };
    let window_bytes = engine.shared.settings.window_bytes(upper + 1);
    let read_ahead = ReadAhead::Stream { window_bytes };
    let mut sources = Vec::new();
    for (level, tables) in [(pick.level, &pick.upper), (pick.output_level, &pick.lower)] {
        if may_overlap(level) {
            let cursors = tables
                .iter()
                .map(|table| LevelCursor::new(Tables::Listed(vec![Arc::clone(table)]), read_ahead));
            sources.extend(cursors.map(|cursor| Source::Level(Box::new(cursor))));
        } else if !tables.is_empty() {
            let tables = Tables::Listed(tables.clone());
            sources.push(Source::Level(Box::new(LevelCursor::new(tables, read_ahead))));
        }
    }
    let levels = Arc::clone(&engine.versions.current().levels);
    // One table for level 0, which is counted in tables.
    let table_bytes = match pick.output_level {
        level if may_overlap(level) => u64::MAX,
        level => leveled::table_bytes(&levels, &engine.shared.settings, level),
    };
    // What a tombstone hides may lie in an older table of level 0.
    let below = (!may_overlap(pick.output_level)).then_some((levels, pick.output_level));
    let retention = Retention::new(engine.versions.kept_readable(), below);
    let kind = FileKind::Table { level: pick.output_level as u8 };
    let origin = Origin::Compaction { from: pick.level as u8, to: pick.output_level as u8 };
    let output = Output {
        context: FileContext { kind, origin },
        options: engine.shared.settings.table_options(pick.output_level),
        table_bytes,
        expected_bytes: table_bytes.min(pick.bytes()),
        cache: Some(Arc::clone(&engine.shared.cache)),
    };
    Rewrite::new(Arc::clone(&engine.shared.files), Merge::new(sources), retention, output)
}

impl Job for Compaction {
    fn name(&self) -> &'static str {
        "compaction"
    }

    fn step(&mut self) -> Result<Step> {
        if let Work::Rewrite(rewrite) = &mut self.work {
            let waits = !may_overlap(self.pick.level) && !self.engine.versions.current().is_calm();
            if waits && !self.engine.shared.compaction_rate.admit(STEP_BYTES.min(self.pick.bytes()))
            {
                return Ok(Step::More);
            }
            if rewrite.step()? == Step::More {
                return Ok(Step::More);
            }
        }
        self.finish()?;
        Ok(Step::Done)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        if planted(Planted::FullDiskKeepsClaims) && self.is_unfinished() {
            return;
        }
        self.pick.release_tables();
        let mut tables = self.engine.versions.tables();
        if let Some(index) = tables.claims.iter().position(|claim| *claim == self.pick.claim) {
            tables.claims.swap_remove(index);
        }
        drop(tables);
        self.engine.shared.jobs.wake();
    }
}

/// Moves a table to the tier that placement wants it on.
#[derive(Debug)]
struct Migration {
    engine: Arc<Engine>,
    number: FileNumber,
    tier: TierIndex,
}

impl Job for Migration {
    fn name(&self) -> &'static str {
        "migration"
    }

    fn step(&mut self) -> Result<Step> {
        match self.engine.shared.files.migrate(self.number, self.tier, &mut |_| {}) {
            Ok(()) => self.engine.shared.counts.migrations.add(1),
            // Compacted away meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Writers were faster to take the room, or the disk is fuller than the tier. The table
            // is where it was; whatever changes next asks again.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                tracing::info!(%error, "a table stays on its tier for now");
                self.engine.migrating.store(false, Relaxed);
                return Ok(Step::Done);
            }
            Err(error) => {
                // The file is where it was and nothing is lost, so writing goes on; only migrations
                // end.
                tracing::warn!(%error, "tables stay on their tiers until the next open");
                return Ok(Step::Done);
            }
        }
        // There may be more to move.
        self.engine.shared.placement_changed.store(true, Relaxed);
        self.engine.migrating.store(false, Relaxed);
        Ok(Step::Done)
    }
}

/// A caller waits for tables that running compactions hold; none is begun before it has them.
struct InLine<'a> {
    engine: &'a Engine,
    _hurry: Hurry<'a>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.engine.versions.tables().claimants -= 1;
        self.engine.shared.jobs.wake();
    }
}

impl Engine {
    /// Waits until background work has nothing left to do, or has ended for good.
    pub fn settle(&self) -> Result<()> {
        let _hurry = self.shared.compaction_rate.hurry();
        self.shared.jobs.wake();
        self.shared.jobs.wait_idle();
        self.shared.latch.check()
    }

    /// Brings all records of `from..=to` to the deepest level in use, dropping what nobody can see.
    /// Runs on the calling thread, beside the workers.
    pub fn compact_range(
        self: &Arc<Self>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        if self.fast.is_some() {
            return self.demote_range(from, to, progress);
        }
        self.flush()?;
        let mut done_bytes = 0;
        for level in 0..LEVELS - 1 {
            let mut after: Option<Vec<u8>> = None;
            while let Some(pick) = self.claim(|levels, claims| {
                let after = after.as_deref();
                leveled::pick_range(levels, claims, &self.shared.settings, level, (from, to), after)
            })? {
                after = pick.upper.last().map(|table| table.meta.largest_key.clone());
                self.run_compaction(pick, &mut done_bytes, (from, to), progress)?;
                if may_overlap(level) {
                    break;
                }
            }
        }
        let mut after: Option<Vec<u8>> = None;
        while let Some(pick) = self.claim(|levels, claims| {
            leveled::pick_bottom(levels, claims, from, to, after.as_deref())
        })? {
            after = Some(pick.claim.to.clone());
            self.run_compaction(pick, &mut done_bytes, (from, to), progress)?;
        }
        Ok(())
    }

    /// Claims what `choose` picks, waiting while a running compaction is in its way. Meanwhile no
    /// worker begins another: where writers keep all of them busy, a worker that has finished one
    /// would take the next before the caller looks again, and so for ever.
    fn claim(
        &self,
        choose: impl Fn(
            &crate::table_set::levels::Levels,
            &[Claim],
        ) -> Result<Option<Pick>, leveled::Busy>,
    ) -> Result<Option<Pick>> {
        let mut in_line = None;
        loop {
            self.shared.latch.check()?;
            {
                let mut tables = self.versions.tables();
                let levels = Arc::clone(&self.versions.current().levels);
                if let Ok(chosen) = choose(&levels, &tables.claims) {
                    if let Some(pick) = &chosen {
                        pick.claim_tables();
                        tables.claims.push(pick.claim.clone());
                    }
                    return Ok(chosen);
                }
                if in_line.is_none() {
                    tables.claimants += 1;
                    in_line =
                        Some(InLine { engine: self, _hurry: self.shared.compaction_rate.hurry() });
                }
            }
            self.shared.clock.sleep(std::time::Duration::from_millis(2));
        }
    }

    fn run_compaction(
        self: &Arc<Self>,
        pick: Pick,
        done_bytes: &mut u64,
        (from, to): (Option<&[u8]>, Option<&[u8]>),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let bytes = pick.bytes();
        let _hurry = self.shared.compaction_rate.hurry();
        let mut compaction = Compaction::new(self, pick);
        self.shared.carry_out(&mut compaction)?;
        *done_bytes += bytes;
        let levels = Arc::clone(&self.versions.current().levels);
        let deepest = levels.deepest();
        let left: u64 = (0..deepest)
            .flat_map(|level| levels.overlapping(level, from, to))
            .map(|table| table.meta.bytes)
            .sum();
        progress(Progress { done_bytes: *done_bytes, total_bytes: *done_bytes + left });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::still_clock::StillClock;
    use crate::support::{one_tier, stepped, stepped_environment, tier};
    use crate::{ByteSize, Db, Environment, Preset, Settings};
    use leveled::Busy;
    use std::path::Path;
    use std::time::Duration;
    use thermocline_foundation::Clock;
    use thermocline_foundation::random::Random;
    use thermocline_foundation::sync::Mutex;

    /// A clock whose sleepers look at what a worker would do meanwhile.
    #[derive(Debug, Default)]
    struct LookingClock {
        engine: Mutex<Option<Arc<Engine>>>,
        seen: Mutex<Vec<Option<&'static str>>>,
    }

    fn bulk_work(engine: &Arc<Engine>) -> Option<&'static str> {
        // A job that is dropped gives back what it claimed.
        Background(Arc::clone(engine)).plan(Lane::Bulk).map(|job| job.name())
    }

    impl Clock for LookingClock {
        fn now_ns(&self) -> u64 {
            0
        }
        fn wall_s(&self) -> u64 {
            0
        }
        fn sleep(&self, _: Duration) {
            if let Some(engine) = &*self.engine.lock() {
                self.seen.lock().push(bulk_work(engine));
            }
        }
    }

    #[test]
    fn no_worker_begins_a_compaction_while_a_caller_waits_for_tables() {
        let clock = Arc::new(LookingClock::default());
        let environment = Environment { clock: clock.clone(), ..stepped_environment() };
        let settings = Settings { level0_tables: 1, ..one_tier() };
        let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
        let engine = Arc::clone(db.engine());
        while bulk_work(&engine) != Some("compaction") {
            db.put("key", "value").unwrap();
            db.flush().unwrap();
        }
        *clock.engine.lock() = Some(Arc::clone(&engine));
        let looks = std::cell::Cell::new(0);
        let choose = |_: &crate::table_set::levels::Levels, _: &[Claim]| {
            looks.set(looks.get() + 1);
            if looks.get() < 4 { Err(Busy) } else { Ok(None) }
        };
        assert!(engine.claim(choose).unwrap().is_none());
        assert_eq!(*clock.seen.lock(), [None, None, None], "workers wait for the caller");
        assert_eq!(bulk_work(&engine), Some("compaction"), "and no longer");
        *clock.engine.lock() = None;
    }

    /// A compaction of a level below 0 that rewrites something, once there is one.
    fn deep_pick(db: &Db, settings: &Settings, random: &mut Random) -> Pick {
        let engine = db.engine();
        let mut value = vec![0; 1000];
        for _ in 0..60_000 {
            random.fill(&mut value);
            db.put(random.next_u64().to_be_bytes(), &value).unwrap();
            let tables = engine.versions.tables();
            let levels = Arc::clone(&engine.versions.current().levels);
            let is_deep = |pick: &Pick| pick.level > 0 && !pick.lower.is_empty();
            if let Some(pick) = leveled::pick(&levels, &tables.claims, settings, Writing::GoesOn)
                .filter(|pick| is_deep(pick) && pick.bytes() >= 3 * STEP_BYTES)
            {
                return pick;
            }
        }
        panic!("no level below 0 was ever too large");
    }

    /// Nanoseconds that a compaction naps until it is done.
    fn naps(clock: &StillClock, compaction: &mut Compaction) -> u64 {
        let start_ns = clock.now_ns();
        while compaction.step().unwrap() == Step::More {}
        clock.now_ns() - start_ns
    }

    /// A store with a compaction below level 0 to be done, while flushes bring 1 MiB a second and
    /// the levels are not behind.
    fn with_deep_compaction() -> (Db, Arc<StillClock>, Compaction) {
        let clock = Arc::new(StillClock::default());
        let environment = Environment { clock: clock.clone(), ..stepped_environment() };
        let settings = Settings {
            memory: ByteSize::mib(4),
            table_size: ByteSize::mib(1),
            level_ratio: 3,
            tiers: vec![tier("/tier", 1 << 10)],
            ..Settings::default()
        };
        let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
        let pick = deep_pick(&db, &settings, &mut Random::new(1));
        pick.claim_tables();
        db.engine().versions.tables().claims.push(pick.claim.clone());
        let compaction = Compaction::new(db.engine(), pick);
        let tempo = &db.engine().shared.compaction_rate;
        // What was flushed to come here took no time.
        for _ in 0..300 {
            clock.sleep(Duration::from_secs(1));
            tempo.flushed(1 << 20);
        }
        tempo.set_levels(20.0, false);
        assert_eq!(tempo.rate(), Some(30 << 20));
        (db, clock, compaction)
    }

    #[test]
    fn a_compaction_below_level_0_keeps_to_the_tempo_unless_somebody_waits_for_it() {
        let (_db, clock, mut compaction) = with_deep_compaction();
        let steps = compaction.pick.bytes() / STEP_BYTES;
        let ns = naps(&clock, &mut compaction);
        let least_ns = (steps - 1) * 1_000_000_000 / 30;
        assert!(ns >= least_ns, "{ns} ns for {steps} steps, {least_ns} are due");

        let (db, clock, mut compaction) = with_deep_compaction();
        let hurry = db.engine().shared.compaction_rate.hurry();
        assert_eq!(naps(&clock, &mut compaction), 0, "somebody waits");
        drop(hurry);

        let (db, clock, mut compaction) = with_deep_compaction();
        db.flush().unwrap();
        assert_eq!(naps(&clock, &mut compaction), 0, "nothing is being written");
    }

    #[test]
    fn upper_levels_on_a_fast_tier_have_room_once_nothing_is_written() {
        let settings = Settings {
            memory: ByteSize::mib(4),
            table_size: ByteSize::mib(1),
            preset: Some(Preset::Leveled),
            tiers: vec![tier("/fast", 12), tier("/slow", 1 << 10)],
            ..Settings::default()
        };
        let db = stepped(&settings);
        let (mut random, mut value) = (Random::new(3), vec![0; 1000]);
        for _ in 0..40_000 {
            random.fill(&mut value);
            db.put(random.next_u64().to_be_bytes(), &value).unwrap();
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let levels = Arc::clone(&db.engine().versions.current().levels);
        let targets = leveled::targets(&levels, &settings);
        let base = targets.base;
        let upper = base..LEVELS - 1;
        assert!(upper.len() >= 2, "several levels: {:?}", targets);
        assert!(levels.level_bytes(0) * 4 <= levels.level_bytes(base));
        for level in upper {
            let (bytes, target) = (levels.level_bytes(level), targets.bytes[level]);
            assert!(bytes * 4 < target * 3, "level {level} has {bytes} of {target} bytes");
        }
        db.close().unwrap();
    }

    #[test]
    fn placement_is_asked_again_once_deleted_tables_have_left_room() {
        let db = stepped(&one_tier());
        flush_one(&db, "key", Some("1"));
        flush_one(&db, "key", Some("2"));
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let engine = db.engine();
        engine.shared.placement_changed.store(false, Relaxed);
        let mut job = Background(Arc::clone(engine)).plan(Lane::Bulk).unwrap();
        assert_eq!(job.name(), "deletion of tables");
        assert_eq!(job.step().unwrap(), Step::Done);
        assert!(engine.shared.placement_changed.load(Relaxed));
        drop(job);
        db.close().unwrap();
    }

    #[test]
    fn a_move_that_finds_no_room_ends_no_others() {
        let mut settings = Settings { preset: Some(Preset::Leveled), ..one_tier() };
        settings.tiers.push(tier("/slow", 1));
        let db = stepped(&settings);
        let engine = db.engine();
        flush_one(&db, "key", Some(&"large".repeat(1 << 18)));
        let table = Arc::clone(&engine.versions.current().levels.level(0)[0]);
        assert!(table.meta.bytes > 1 << 20, "more than the other tier has");
        let number = table.meta.number;
        let to = TierIndex(1);
        assert!(!engine.migrating.swap(true, Relaxed));
        let mut job = Migration { engine: Arc::clone(engine), number, tier: to };
        engine.shared.placement_changed.store(false, Relaxed);
        assert_eq!(job.step().unwrap(), Step::Done);
        assert!(!engine.shared.placement_changed.load(Relaxed), "nothing has changed by it");
        assert!(!engine.migrating.load(Relaxed), "others may move");
        assert_eq!(engine.shared.counts.migrations.get(), 0);
        db.close().unwrap();
    }

    /// Flushes a table of `value` under `key` without letting a compaction begin.
    fn flush_one(db: &Db, key: &str, value: Option<&str>) {
        db.engine().versions.tables().claimants += 1;
        match value {
            Some(value) => db.put(key, value).unwrap(),
            None => db.delete(key).unwrap(),
        }
        db.flush().unwrap();
        db.engine().versions.tables().claimants -= 1;
    }

    #[test]
    fn a_lookup_in_a_table_that_was_just_flushed_reads_no_partition() {
        let db = stepped(&one_tier());
        flush_one(&db, "key", Some("value"));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        let classes = db.stats().cache.classes;
        assert_eq!(classes["data"].misses, 1, "memory has no records");
        assert_eq!((classes["index"].misses, classes["filter"].misses), (0, 0));
        db.close().unwrap();
    }

    #[test]
    fn new_tables_of_a_full_level_0_are_merged_with_each_other_while_its_way_down_is_taken() {
        let settings = Settings { level0_tables: 2, level0_slowdown: 6, ..one_tier() };
        let db = stepped(&settings);
        let engine = Arc::clone(db.engine());
        let pick = || {
            let tables = engine.versions.tables();
            let levels = Arc::clone(&engine.versions.current().levels);
            leveled::pick(&levels, &tables.claims, &settings, Writing::GoesOn)
        };
        for (key, value) in [("a", "1"), ("b", "1"), ("c", "1")] {
            flush_one(&db, key, Some(value));
        }
        let down = pick().unwrap();
        assert_eq!((down.level, down.upper.len()), (0, 3));
        assert!(down.output_level > 0, "an empty way down is taken whole");
        down.claim_tables();
        engine.versions.tables().claims.push(down.claim.clone());
        flush_one(&db, "a", None);
        assert!(pick().is_none(), "one new table has nobody to be merged with");
        flush_one(&db, "b", Some("2"));
        let newest = pick().unwrap();
        assert_eq!((newest.level, newest.output_level, newest.upper.len()), (0, 0, 2));
        newest.claim_tables();
        engine.versions.tables().claims.push(newest.claim.clone());
        let mut merge = Compaction::new(&engine, newest);
        while merge.step().unwrap() == Step::More {}
        drop(merge);
        assert_eq!(engine.versions.current().levels.level(0).len(), 4);
        let get = |key: &str| db.get(key).unwrap().map(|value| value.to_vec());
        let expected = [None, Some(b"2".to_vec()), Some(b"1".to_vec())];
        assert_eq!(["a", "b", "c"].map(get), expected, "the delete hides what is below it still");
        // The way down is free again; what was older goes down first.
        let mut merge = Compaction::new(&engine, down);
        while merge.step().unwrap() == Step::More {}
        drop(merge);
        assert_eq!(["a", "b", "c"].map(get), expected);
        db.close().unwrap();
    }
}
