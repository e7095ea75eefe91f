//! A history carried out on simulated machines, checked against the oracle at every step.
//!
//! A life begins with the creation of a database and goes through crashes and reopenings to the end
//! of its history. What the crash enumeration does to it happens beside it, on copies of its
//! devices, from within the calls of the store (`crash.rs`).

use crate::devices::{Loss, Watcher};
use crate::history::{HOME, Shape, Step, TIERS, Write, experiments, history, settings};
use crate::machine::Machine;
use crate::oracle::{
    Known, Model, Violation, Wrong, check_bytes, check_error, check_files, check_left_over,
    check_owned,
};
use crate::{recorder, trace};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Cursor, Db, Durability, Error, Experiments, Settings, Snapshot, WriteBatch,
};
use thermocline_foundation::random::{Random, mix};

/// Why a life ended before its history did.
#[derive(Debug)]
pub enum Stop {
    /// The store gave an error, which is right only if something was done to its devices.
    Failed(Error),
    /// The store broke a promise.
    Violated(Violation),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Error(_, error) => Self::Failed(error),
            Wrong::Answer(violation) => Self::Violated(violation),
        }
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

/// The longest that a write may take, in simulated time: [`Machine::waited_ns`].
const WRITE_NS_MAX: u64 = 30_000_000_000;

/// A cursor and what it has still to show.
#[derive(Debug)]
struct HeldCursor {
    cursor: Cursor,
    left: Vec<(Vec<u8>, Vec<u8>)>,
}

/// See the module's header.
pub struct Life {
    /// The seed that everything follows from.
    pub seed: u64,
    /// The present machine.
    pub machine: Machine,
    /// What the oracle knows. Watchers read it from within the store's calls.
    pub known: Arc<RwLock<Known>>,
    watcher: Option<Arc<dyn Watcher>>,
    db: Option<Db>,
    snapshot: Option<(Snapshot, Model)>,
    cursor: Option<HeldCursor>,
    checkpoints: usize,
    /// Where a checkpoint was begun that did not come to its end.
    pub checkpoint_begun: Option<PathBuf>,
    /// What the database is made with.
    pub settings: Settings,
    /// What it is opened with besides.
    pub experiments: Experiments,
    /// The longest that a write may take, in nanoseconds that the machine's callers waited.
    pub write_ns_max: u64,
    /// A device had no room when it was opened, or before.
    pub opened_when_full: bool,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the life of seed {}", self.seed)
    }
}

impl Life {
    /// A life of `seed` whose database is not made yet. `watcher` sees every change of its
    /// machines.
    pub fn new(seed: u64, shape: &Shape, known: Arc<RwLock<Known>>) -> Self {
        *known.write() = Known::new(shape.keys);
        Self {
            seed,
            machine: Machine::empty(seed),
            known,
            watcher: None,
            db: None,
            snapshot: None,
            cursor: None,
            checkpoints: 0,
            checkpoint_begun: None,
            settings: settings(seed),
            experiments: experiments(seed),
            write_ns_max: WRITE_NS_MAX,
            opened_when_full: false,
        }
    }

    /// Lets `watcher` see every change of the life's machines.
    pub fn watch(&mut self, watcher: Arc<dyn Watcher>) {
        self.machine.devices.watch(Some(Arc::clone(&watcher)));
        self.watcher = Some(watcher);
    }

    /// The open database.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    /// The database is open.
    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// Makes the database.
    pub fn create(&mut self) -> Result<(), Stop> {
        self.machine.environment.experiments = self.experiments;
        self.db = Some(self.machine.create(&self.settings)?);
        self.known.write().created = true;
        Ok(())
    }

    /// Makes the database and carries out the whole history; says at which step it stopped.
    pub fn run(&mut self, shape: &Shape) -> Result<(), (usize, Stop)> {
        self.create().map_err(|stop| (0, stop))?;
        for (index, step) in history(self.seed, shape).iter().enumerate() {
            trace::line(|| format!("{index:4} {}", name_of(step)));
            self.step(step).map_err(|stop| (index, stop))?;
        }
        Ok(())
    }

    /// Lets everything come to rest, then gives the first tier room for everything, then what it
    /// had at first: tables move up and down again. `index` numbers the first step.
    pub fn rest(&mut self, index: usize) -> Result<(), (usize, Stop)> {
        for (nth, step) in [Step::Flush, Step::Compact, Step::Settle].iter().enumerate() {
            trace::line(|| format!("{:4} {}", index + nth, name_of(step)));
            self.step(step).map_err(|stop| (index + nth, stop))?;
        }
        let small = self.settings.tiers[0].capacity;
        for (nth, capacity) in [ByteSize(small.0 * 8), small].into_iter().enumerate() {
            trace::line(|| format!("{:4} the first tier gets {capacity}", index + 3 + nth));
            self.resize(capacity).map_err(|stop| (index + 3 + nth, stop))?;
        }
        Ok(())
    }

    fn opened(&mut self, db: Db) {
        self.opened_when_full = self.machine.devices.was_full();
        self.db = Some(db);
    }

    /// Reopens the database with so much room on its first tier, and lets tables move.
    fn resize(&mut self, capacity: ByteSize) -> Result<(), Stop> {
        self.close()?;
        self.settings.tiers[0].capacity = capacity;
        self.opened(self.machine.open_with(&self.settings)?);
        self.db().settle()?;
        self.check_all()
    }

    /// As [`Life::run`] with devices that fail: goes on after a step that failed, unless it is
    /// uncertain what the store holds then or writing has stopped. Gives the first error.
    pub fn run_through(&mut self, shape: &Shape) -> Result<Option<Error>, (usize, Violation)> {
        let mut first = None;
        if let Err(stop) = self.create() {
            return failed(stop).map(Some).map_err(|violation| (0, violation));
        }
        for (index, step) in history(self.seed, shape).iter().enumerate() {
            trace::line(|| format!("{index:4} {}", name_of(step)));
            let Err(stop) = self.step(step) else { continue };
            let error = failed(stop).map_err(|violation| (index, violation))?;
            trace::line(|| format!("     {error}"));
            first.get_or_insert(error);
            let is_write = matches!(step, Step::Write(..) | Step::Ingest(_));
            if is_write || self.db.as_ref().is_none_or(|db| db.stats().read_only.is_some()) {
                break;
            }
        }
        Ok(first)
    }

    /// Lets go of the database as a process does that ends in good order.
    pub fn close(&mut self) -> Result<(), Stop> {
        self.let_go();
        if let Some(db) = self.db.take() {
            // The other handle tells what the closing has left.
            db.clone().close()?;
            self.known.write().acknowledge(true);
            self.check_closed(&db)?;
            db.close()?;
        }
        Ok(())
    }

    /// `DATABASE` and the `TIER` files are durable once a close has returned: a power cut changes
    /// none of them. Nothing that was at work when it came has kept what it took.
    fn check_closed(&self, db: &Db) -> Result<(), Violation> {
        if self.machine.devices.has_struck() {
            return Ok(());
        }
        check_left_over(db)?;
        check_owned(db, |path| self.machine.devices.look(|world| world.list(path)))?;
        let in_flight = self.machine.devices.look(|world| {
            let kept = [(HOME, "DATABASE")].into_iter().chain(TIERS.map(|tier| (tier, "TIER")));
            let mut kept = kept.map(|(directory, name)| (Path::new(directory), name));
            kept.find(|(directory, name)| !world.is_durable(directory, name))
        });
        in_flight.map_or(Ok(()), |(directory, name)| {
            Err(format!("after a close {name} in {} is not durable", directory.display()))
        })
    }

    /// Lets go of everything as a process does that is killed.
    pub fn kill(&mut self) {
        self.let_go();
        self.machine.kill(self.db.take());
    }

    /// Snapshots and cursors end with the process.
    fn let_go(&mut self) {
        (self.snapshot, self.cursor) = (None, None);
    }

    /// Carries out one step.
    pub fn step(&mut self, step: &Step) -> Result<(), Stop> {
        recorder::note(|| name_of(step));
        match step {
            Step::Write(writes, durability) => self.write(writes, *durability),
            Step::Ingest(records) => self.ingest(records),
            Step::Flush => self.durably(Db::flush),
            Step::Sync => self.durably(Db::sync),
            Step::Compact => Ok(self.db().compact_range(None, None, &mut |_| {})?),
            Step::Checkpoint => self.checkpoint(),
            Step::Reopen => {
                self.close()?;
                self.opened(self.machine.open()?);
                self.check_all()
            }
            Step::Background(steps) => {
                for _ in 0..*steps {
                    self.machine.stepper.step();
                }
                Ok(())
            }
            Step::Settle => Ok(self.db().settle()?),
            Step::Get(key) => self.get(key),
            Step::MultiGet(keys) => self.multi_get(keys),
            Step::Scan(from, reverse) => self.scan(from, *reverse),
            Step::Snapshot => {
                let shown = self.known.read().model().clone();
                self.snapshot = Some((self.db().snapshot(), shown));
                Ok(())
            }
            Step::ReleaseSnapshot => self.release_snapshot(),
            Step::Cursor => self.open_cursor(),
            Step::Advance(count) => self.advance(*count),
            Step::Kill => self.crash(Loss::None),
            Step::PowerCut(choice) => {
                let units = self.machine.devices.look(|world| world.units());
                let mut random = Random::new(*choice);
                let share = random.below(5);
                let kept: Vec<_> = units.iter().map(|_| random.below(4) < share).collect();
                self.crash(Loss::Kept(&kept))
            }
            Step::TierPowerCut(choice) => {
                let units = self.machine.devices.look(|world| world.units());
                let paths = self.machine.devices.look(|world| world.paths().len());
                let cut = (*choice % paths as u64) as usize;
                let kept: Vec<_> = units.iter().map(|unit| unit.directory != cut).collect();
                self.crash(Loss::Kept(&kept))
            }
            Step::ClockBack(ns) => {
                self.machine.clock.set_wall(-(*ns as i64));
                Ok(())
            }
        }
    }

    fn write(&mut self, writes: &[Write], durability: Durability) -> Result<(), Stop> {
        let mut batch = WriteBatch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        self.known.write().submit(writes);
        let start_ns = self.machine.waited_ns();
        self.db().write_with(batch, durability)?;
        self.known.write().acknowledge(durability == Durability::Sync);
        let waited_ns = self.machine.waited_ns() - start_ns;
        if waited_ns > self.write_ns_max {
            let (waited_us, most_us) = (waited_ns / 1_000, self.write_ns_max / 1_000);
            return Err(format!("a write waited for {waited_us} µs, at most {most_us}").into());
        }
        Ok(())
    }

    fn ingest(&mut self, records: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Stop> {
        let mut ingest = self.db().ingest();
        for (key, value) in records {
            ingest.add(key, value)?;
        }
        let writes: Vec<_> = records.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
        self.known.write().submit(&writes);
        ingest.finish()?;
        self.known.write().acknowledge(true);
        Ok(())
    }

    fn durably(&mut self, call: impl FnOnce(&Db) -> thermocline::Result<()>) -> Result<(), Stop> {
        call(self.db())?;
        self.known.write().acknowledge(true);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Stop> {
        self.checkpoints += 1;
        let path = PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        self.checkpoint_begun = Some(path.clone());
        self.known.write().checkpoint = Some((path.clone(), false));
        self.db().checkpoint(&path)?;
        self.checkpoint_begun = None;
        {
            let mut known = self.known.write();
            known.checkpoint = Some((path.clone(), true));
            known.acknowledge(true);
        }
        let copy = self.machine.environment.open(&path)?;
        let known = self.known.read_recursive();
        known.check_state(&copy, known.count())?;
        drop(known);
        let closed = copy.close();
        self.known.write().checkpoint = None;
        Ok(closed?)
    }

    fn get(&mut self, key: &[u8]) -> Result<(), Stop> {
        let got = self.db().get(key)?;
        let known = self.known.read_recursive();
        compare("get", key, got.as_deref(), known.model())?;
        if let Some((snapshot, shown)) = &self.snapshot {
            compare("a snapshot's get", key, snapshot.get(key)?.as_deref(), shown)?;
        }
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>]) -> Result<(), Stop> {
        let got = self.db().multi_get(keys)?;
        let known = self.known.read_recursive();
        for (key, got) in keys.iter().zip(got) {
            compare("multi_get", key, got.as_deref(), known.model())?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], reverse: bool) -> Result<(), Stop> {
        let scan = self.db().scan().from(from);
        let scan = if reverse { scan.reverse() } else { scan };
        let shown: Vec<_> = scan.into_iter().collect::<thermocline::Result<_>>()?;
        let known = self.known.read_recursive();
        let mut right: Vec<_> = known.model().range(from.to_vec()..).collect();
        if reverse {
            right.reverse();
        }
        let equal = shown.len() == right.len()
            && shown.iter().zip(&right).all(|((k, v), (key, value))| k == *key && v == *value);
        if equal {
            return Ok(());
        }
        let from = from.escape_ascii();
        let (got, right) = (shown.len(), right.len());
        Err(format!("a scan from {from} shows {got} records, right are {right} or others").into())
    }

    fn release_snapshot(&mut self) -> Result<(), Stop> {
        let Some((snapshot, shown)) = self.snapshot.take() else { return Ok(()) };
        let records = snapshot.scan().into_iter();
        let now: Model = records
            .map(|record| record.map(|(k, v)| (k.to_vec(), v.to_vec())))
            .collect::<thermocline::Result<_>>()?;
        if now == shown {
            return Ok(());
        }
        let wrong = shown.iter().find(|(key, value)| now.get(*key) != Some(value));
        let added = now.keys().find(|key| !shown.contains_key(*key));
        let key = wrong.map(|(key, _)| key).or(added).expect("they differ");
        Err(format!("a snapshot shows {} differently than before", key.escape_ascii()).into())
    }

    /// Reads each key of the snapshot there, so many times and by both ways to look up.
    pub fn read_moment(&self, times: usize) -> Result<(), Stop> {
        let Some((snapshot, shown)) = &self.snapshot else { return Ok(()) };
        let keys: Vec<_> = shown.keys().collect();
        for _ in 0..times {
            for key in &keys {
                compare("a snapshot's get", key, snapshot.get(key)?.as_deref(), shown)?;
            }
            for (key, got) in keys.iter().zip(snapshot.multi_get(&keys)?) {
                compare("a snapshot's multi_get", key, got.as_deref(), shown)?;
            }
        }
        Ok(())
    }

    fn open_cursor(&mut self) -> Result<(), Stop> {
        let mut cursor = self.db().cursor();
        cursor.seek_to_first()?;
        let known = self.known.read_recursive();
        let left = known.model().iter().rev().map(|(k, v)| (k.clone(), v.clone())).collect();
        drop(known);
        self.cursor = Some(HeldCursor { cursor, left });
        Ok(())
    }

    fn advance(&mut self, count: u32) -> Result<(), Stop> {
        let Some(HeldCursor { cursor, left }) = &mut self.cursor else { return Ok(()) };
        for _ in 0..count {
            let expected = left.pop();
            let got = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
            if got != expected {
                let name = |record: Option<(Vec<u8>, _)>| {
                    record.map_or("the end".to_owned(), |(k, _)| k.escape_ascii().to_string())
                };
                let (got, right) = (name(got), name(expected));
                return Err(format!("a cursor is at {got}, right is {right}").into());
            }
            if expected.is_none() {
                self.cursor = None;
                return Ok(());
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// The machine stops, and another starts with what is left.
    fn crash(&mut self, loss: Loss<'_>) -> Result<(), Stop> {
        let world = self.machine.devices.look(|world| world.after(loss));
        self.restart(world, loss == Loss::None)
    }

    /// Another machine opens what `world` holds, after a kill or a power cut.
    pub fn restart(&mut self, world: crate::devices::World, killed: bool) -> Result<(), Stop> {
        self.kill();
        let mut machine = Machine::new(world, mix(self.seed ^ self.machine.devices.calls()));
        machine.environment.experiments = self.experiments;
        machine.devices.succeed(&self.machine.devices);
        self.machine = machine;
        let least = {
            let mut known = self.known.write();
            known.checkpoint = None;
            if !killed {
                // What was only buffered is gone, or is not; a kill during recovery can lose it
                // too.
                known.acknowledged = known.durable;
            }
            known.acknowledged
        };
        self.machine.devices.watch(self.watcher.clone());
        let db = self.machine.open()?;
        let count = self.known.read_recursive().check_state(&db, least)?;
        self.known.write().settle_at(count);
        self.opened(db);
        Ok(())
    }

    /// Every answer is right.
    pub fn check_all(&self) -> Result<(), Stop> {
        let known = self.known.read_recursive();
        let count = known.check_state(self.db(), known.count())?;
        Ok(known.check_reads(self.db(), count)?)
    }

    /// Nothing is left over and every byte verifies.
    pub fn check_tidy(&self) -> Result<(), Stop> {
        check_files(self.db(), |path| self.machine.devices.look(|world| world.list(path)))?;
        Ok(check_bytes(self.db())?)
    }
}

/// The error of a step whose devices fail; it must be one that a user can act on.
fn failed(stop: Stop) -> Result<Error, Violation> {
    match stop {
        Stop::Failed(error) => check_error(&error).map(|()| error),
        Stop::Violated(violation) => Err(violation),
    }
}

fn compare(how: &str, key: &[u8], got: Option<&[u8]>, model: &Model) -> Result<(), Violation> {
    let right = model.get(key).map(Vec::as_slice);
    if got == right {
        return Ok(());
    }
    let say = |value: Option<&[u8]>| {
        value.map_or("absent".to_owned(), |v| {
            let head = &v[..v.len().min(24)];
            format!("'{}...' of {} bytes", head.escape_ascii(), v.len())
        })
    };
    let (got, right, key) = (say(got), say(right), key.escape_ascii());
    Err(format!("{how} of {key} says {got}, right is {right}"))
}

/// A step in a line of a trace.
pub fn name_of(step: &Step) -> String {
    let list = |writes: &[Write]| {
        let name = |(key, value): &Write| {
            let len = value.as_ref().map_or("removed".to_owned(), |v| v.len().to_string());
            format!("{}={len}", key.escape_ascii())
        };
        writes.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    match step {
        Step::Write(writes, durability) => format!("write {durability:?} {}", list(writes)),
        Step::Ingest(records) => format!("ingest {} records", records.len()),
        Step::Get(key) => format!("get {}", key.escape_ascii()),
        Step::MultiGet(keys) => format!("multi_get of {} keys", keys.len()),
        Step::Scan(from, reverse) => format!("scan from {} {reverse}", from.escape_ascii()),
        other => format!("{other:?}"),
    }
}
