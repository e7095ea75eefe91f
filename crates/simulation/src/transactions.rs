//! Histories of transactions: several are open at a time, each step is drawn from a seed, and a
//! model says what its answer must be.
//!
//! ```text
//!   model     every version of each key, with the moment of its commit
//!   reads     equal to what the model has at the transaction's moment, its own writes over it
//!   commits   a conflict exactly where the model has a version that is newer than what the
//!             transaction builds on; locked exactly where another holds a key
//!   kills     what is found is what was acknowledged, whole transactions only
//! ```
//! 1. Each value names the step that wrote it, so no two are equal.
//! 2. A key that was absent, was put and deleted since, and was merged away says nothing of that:
//!    both answers are right there, for nothing that was read has changed.
//! 3. Single writes keep away from keys with locks: they would wait by the clock of this machine.

use crate::devices::Loss;
use crate::history::settings;
use crate::machine::Machine;
use crate::oracle::Violation;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use thermocline::{
    Db, Duration, Error, ErrorKind, Isolation, Locking, Savepoint, Transaction, TransactionOptions,
};
use thermocline_foundation::random::{Random, mix};

const KEYS: u64 = 14;
/// Transactions that are open at a time, at most.
const OPEN_MAX: usize = 4;

type Key = Vec<u8>;
type Value = Option<Vec<u8>>;
/// Keys from here up to there, exclusive.
type Range = (Key, Key);

fn key(number: u64) -> Key {
    format!("key{number:03}").into_bytes()
}

/// What the answer to a condition must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Must {
    Hold,
    Either,
    Conflict,
}

/// Every version of each key, oldest first, with its moment.
#[derive(Debug, Default)]
struct Model {
    versions: BTreeMap<Key, Vec<(u64, Value)>>,
    now: u64,
}

impl Model {
    fn at(&self, key: &[u8], moment: u64) -> Value {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(at, _)| *at <= moment)?.1.clone()
    }

    fn state(&self, moment: u64) -> BTreeMap<Key, Vec<u8>> {
        let found = self.versions.keys().map(|key| (key.clone(), self.at(key, moment)));
        found.filter_map(|(key, value)| Some((key, value?))).collect()
    }

    fn commit(&mut self, writes: impl IntoIterator<Item = (Key, Value)>) {
        self.now += 1;
        for (key, value) in writes {
            self.versions.entry(key).or_default().push((self.now, value));
        }
    }

    /// Nothing of `key` has changed since `base`.
    fn unchanged(&self, key: &[u8], base: u64) -> Must {
        let newest = self.versions.get(key).and_then(|versions| versions.last());
        match newest {
            Some((at, value)) if *at > base => {
                let is_absent_again = value.is_none() && self.at(key, base).is_none();
                if is_absent_again { Must::Either } else { Must::Conflict }
            }
            _ => Must::Hold,
        }
    }

    fn range_unchanged(&self, (from, to): &Range, base: u64) -> Must {
        if from >= to {
            return Must::Hold;
        }
        let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let keys = self.versions.range(bounds).map(|(key, _)| self.unchanged(key, base));
        keys.max().unwrap_or(Must::Hold)
    }
}

/// A transaction, and what the model knows of it.
#[derive(Debug)]
struct Open {
    name: u64,
    transaction: Transaction,
    isolation: Isolation,
    locking: Locking,
    begun: u64,
    /// Oldest first.
    writes: Vec<(Key, Value)>,
    savepoints: Vec<(Savepoint, usize)>,
    for_update: BTreeMap<Key, u64>,
    reads: BTreeSet<Key>,
    ranges: Vec<Range>,
}

impl Open {
    fn own(&self, key: &[u8]) -> Option<&Value> {
        self.writes.iter().rev().find(|(own, _)| own == key).map(|(_, value)| value)
    }

    fn moment(&self, model: &Model) -> u64 {
        if self.isolation == Isolation::ReadCommitted { model.now } else { self.begun }
    }

    fn sees(&self, model: &Model, key: &[u8]) -> Value {
        self.own(key).cloned().unwrap_or_else(|| model.at(key, self.moment(model)))
    }

    /// What its commit builds on has not changed.
    fn unchanged(&self, model: &Model) -> Must {
        let for_update = self.for_update.iter().map(|(key, base)| model.unchanged(key, *base));
        let mut must = for_update.max().unwrap_or(Must::Hold);
        if self.isolation != Isolation::ReadCommitted {
            let of_writes = self.writes.iter().map(|(key, _)| model.unchanged(key, self.begun));
            must = must.max(of_writes.max().unwrap_or(Must::Hold));
        }
        if self.isolation == Isolation::Serializable {
            let keys = self.reads.iter().map(|key| model.unchanged(key, self.begun));
            let ranges = self.ranges.iter().map(|range| model.range_unchanged(range, self.begun));
            must = must.max(keys.chain(ranges).max().unwrap_or(Must::Hold));
        }
        must
    }
}

/// How often what happened, so that a test sees that a history has it all.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "each says what it counts")]
pub struct Counts {
    pub commits: u64,
    pub conflicts: u64,
    pub locked: u64,
    pub kills: u64,
}

/// A history under way.
struct Run {
    seed: u64,
    random: Random,
    machine: Machine,
    db: Db,
    model: Model,
    open: Vec<Open>,
    locks: BTreeMap<Key, u64>,
    step: u64,
    counts: Counts,
}

/// Runs the history of `seed`; what was counted, or what is wrong.
pub fn run(seed: u64, steps: u64) -> Result<Counts, Violation> {
    let machine = Machine::empty(seed);
    let db = machine.create(&settings(seed)).map_err(|error| error.to_string())?;
    let (random, model) = (Random::new(mix(seed ^ 0x7AC7)), Model::default());
    let (open, locks, counts) = (Vec::new(), BTreeMap::new(), Counts::default());
    let mut run = Run { seed, random, machine, db, model, open, locks, step: 0, counts };
    for step in 0..steps {
        run.step = step;
        run.next().map_err(|why| format!("step {step} of seed {seed}: {why}"))?;
    }
    run.kill().map_err(|why| format!("at the end of seed {seed}: {why}"))?;
    run.machine.kill(Some(run.db));
    Ok(run.counts)
}

impl Run {
    fn next(&mut self) -> Result<(), Violation> {
        match self.random.below(40) {
            0..4 if self.open.len() < OPEN_MAX => self.begin(),
            0..5 => self.single_write()?,
            5 => self.db.flush().map_err(|error| error.to_string())?,
            6 if self.random.below(4) == 0 => {
                let compacted = self.db.compact_range(None, None, &mut |_| {});
                compacted.map_err(|error| error.to_string())?;
            }
            7 if self.random.below(6) == 0 => self.kill()?,
            6..12 => {
                self.machine.stepper.step();
            }
            choice if !self.open.is_empty() => {
                let at = self.random.below(self.open.len() as u64) as usize;
                let open = self.open.swap_remove(at);
                if let Some(open) = self.act(open, choice)? {
                    self.open.push(open);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn drawn_key(&mut self) -> Key {
        key(self.random.below(KEYS))
    }

    fn drawn_value(&mut self) -> Vec<u8> {
        let mut value = format!("step {}", self.step).into_bytes();
        let len = [0, 200, 3000][self.random.below(3) as usize];
        value.resize(value.len() + len, b'.');
        value
    }

    fn begin(&mut self) {
        let levels = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        let isolation = levels[self.random.below(3) as usize];
        let locking = [Locking::Optimistic, Locking::Pessimistic][self.random.below(2) as usize];
        let lock_timeout = Duration::ms(0);
        let options = TransactionOptions {
            locking,
            isolation,
            lock_timeout,
            ..TransactionOptions::default()
        };
        self.open.push(Open {
            name: self.step,
            transaction: self.db.transaction(options),
            isolation,
            locking,
            begun: self.model.now,
            writes: Vec::new(),
            savepoints: Vec::new(),
            for_update: BTreeMap::new(),
            reads: BTreeSet::new(),
            ranges: Vec::new(),
        });
    }

    /// A write that is no transaction's.
    fn single_write(&mut self) -> Result<(), Violation> {
        let key = self.drawn_key();
        if self.locks.contains_key(&key) {
            return Ok(());
        }
        let value = self.drawn_value();
        let before = self.model.at(&key, self.model.now);
        let (wrote, value) = match self.random.below(4) {
            0 => (self.db.delete(&key).map(|()| true), None),
            1 => (self.db.put_if_absent(&key, &value), Some(value)),
            _ => (self.db.put(&key, &value).map(|()| true), Some(value)),
        };
        let wrote = wrote.map_err(|error| error.to_string())?;
        if !wrote && before.is_none() {
            return Err("put_if_absent found a key that is not there".to_owned());
        }
        if wrote {
            self.model.commit([(key, value)]);
        }
        Ok(())
    }

    /// A step of a transaction, which it gives back unless that ends it.
    fn act(&mut self, mut open: Open, choice: u64) -> Result<Option<Open>, Violation> {
        match choice {
            12..17 => self.get(&mut open)?,
            17..20 => self.scan(&mut open)?,
            20..24 => return self.get_for_update(open),
            24..32 => return self.write(open),
            32 | 33 => {
                let savepoint = open.transaction.savepoint();
                open.savepoints.push((savepoint, open.writes.len()));
            }
            34 if !open.savepoints.is_empty() => {
                let at = self.random.below(open.savepoints.len() as u64) as usize;
                let (savepoint, len) = open.savepoints[at];
                let gone = open.transaction.rollback_to(savepoint);
                gone.map_err(|error| error.to_string())?;
                open.savepoints.truncate(at + 1);
                open.writes.truncate(len);
            }
            35 => self.unlock(open.name),
            36.. => return self.commit(open).map(|()| None),
            _ => {}
        }
        Ok((choice != 35).then_some(open))
    }

    fn unlock(&mut self, name: u64) {
        self.locks.retain(|_, holder| *holder != name);
    }

    fn get(&mut self, open: &mut Open) -> Result<(), Violation> {
        let key = self.drawn_key();
        let found = open.transaction.get(&key).map_err(|error| error.to_string())?;
        if open.own(&key).is_none() {
            open.reads.insert(key.clone());
        }
        same(&key, found.as_deref(), open.sees(&self.model, &key).as_deref())
    }

    fn scan(&mut self, open: &mut Open) -> Result<(), Violation> {
        let (from, to) = (self.drawn_key(), self.drawn_key());
        let limit = if self.random.below(2) == 0 { usize::MAX } else { 2 };
        let scan = open.transaction.scan().from(from.clone()).to(to.clone());
        let scan = scan.limit(limit as u64).into_iter();
        let found: Result<Vec<_>, _> = scan.collect();
        let found = found.map_err(|error| error.to_string())?;
        let mut state = self.model.state(open.moment(&self.model));
        for (key, value) in &open.writes {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        let is_inside = |key: &Key| *key >= from && *key < to;
        let expected: Vec<_> =
            state.into_iter().filter(|(key, _)| is_inside(key)).take(limit).collect();
        let found: Vec<_> =
            found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        if found != expected {
            return Err(format!("a scan of {open:?} finds {found:?}, not {expected:?}"));
        }
        // With a limit that was met it went no further.
        let end = match found.last() {
            Some((last, _)) if found.len() == limit => [last, &[0][..]].concat(),
            _ => to,
        };
        open.ranges.push((from, end));
        Ok(())
    }

    /// The lock of `key` is another's.
    fn is_locked(&self, key: &[u8], name: u64) -> bool {
        self.locks.get(key).is_some_and(|holder| *holder != name)
    }

    /// Takes a lock, where `open` is pessimistic; says whether that is a wait.
    fn lock(&mut self, open: &Open, key: &Key) -> (bool, bool) {
        if open.locking == Locking::Optimistic {
            return (false, false);
        }
        if self.is_locked(key, open.name) {
            return (true, false);
        }
        (false, self.locks.insert(key.clone(), open.name).is_none())
    }

    fn get_for_update(&mut self, mut open: Open) -> Result<Option<Open>, Violation> {
        let key = self.drawn_key();
        let (waits, _) = self.lock(&open, &key);
        let is_first = !open.for_update.contains_key(&key);
        let moment = open.moment(&self.model);
        let base = *open.for_update.get(&key).unwrap_or(&moment);
        let must = self.model.unchanged(&key, base);
        let found = open.transaction.get_for_update(&key);
        match self.judge(found, waits, must)? {
            Some(found) => {
                if is_first {
                    open.for_update.insert(key.clone(), base);
                }
                let expected = open.own(&key).cloned();
                let expected = expected.unwrap_or_else(|| self.model.at(&key, base));
                same(&key, found.as_deref(), expected.as_deref())?;
                Ok(Some(open))
            }
            None if waits => Ok(Some(open)),
            None => {
                self.unlock(open.name);
                Ok(None)
            }
        }
    }

    fn write(&mut self, mut open: Open) -> Result<Option<Open>, Violation> {
        let key = self.drawn_key();
        let value = (self.random.below(4) > 0).then(|| self.drawn_value());
        let (waits, is_new) = self.lock(&open, &key);
        let must = match open.isolation {
            Isolation::Snapshot | Isolation::Serializable if is_new => {
                self.model.unchanged(&key, open.begun)
            }
            _ => Must::Hold,
        };
        let written = match &value {
            Some(value) => open.transaction.put(&key, value),
            None => open.transaction.delete(&key),
        };
        match self.judge(written, waits, must)? {
            Some(()) => {
                open.writes.push((key, value));
                Ok(Some(open))
            }
            None if waits => Ok(Some(open)),
            None => {
                self.unlock(open.name);
                Ok(None)
            }
        }
    }

    fn commit(&mut self, open: Open) -> Result<(), Violation> {
        let is_read_only = open.writes.is_empty();
        let waits = open.writes.iter().any(|(key, _)| self.is_locked(key, open.name));
        let must = if is_read_only { Must::Hold } else { open.unchanged(&self.model) };
        let committed = match self.random.below(2) {
            0 => open.transaction.commit(),
            _ => match open.transaction.commit_async() {
                Ok(ticket) => ticket.wait(),
                Err((_, error)) => Err(error),
            },
        };
        self.unlock(open.name);
        if waits && must != Must::Hold && committed.is_err() {
            // Which of the two is met first depends on what is in memory.
            return Ok(());
        }
        if self.judge(committed, waits, must)?.is_some() && !is_read_only {
            let writes: BTreeMap<_, _> = open.writes.into_iter().collect();
            self.model.commit(writes);
            self.counts.commits += 1;
        }
        Ok(())
    }

    /// What came of a step is what it must be; none where that is an error.
    fn judge<T>(
        &mut self,
        told: Result<T, Error>,
        waits: bool,
        must: Must,
    ) -> Result<Option<T>, Violation> {
        match (told, waits, must) {
            (Ok(told), false, Must::Hold | Must::Either) => Ok(Some(told)),
            (Err(error), true, _) if error.kind() == ErrorKind::LockTimeout => {
                self.counts.locked += 1;
                Ok(None)
            }
            (Err(error), false, Must::Conflict | Must::Either)
                if error.kind() == ErrorKind::Conflict =>
            {
                self.counts.conflicts += 1;
                Ok(None)
            }
            (Ok(_), waits, must) => {
                Err(format!("it goes through (another has the lock: {waits}, must {must:?})"))
            }
            (Err(error), waits, must) => {
                Err(format!("{error} (another has the lock: {waits}, must {must:?})"))
            }
        }
    }

    /// Ends the process with all that is open, and opens the store again.
    fn kill(&mut self) -> Result<(), Violation> {
        self.open.clear();
        self.locks.clear();
        self.counts.kills += 1;
        let world = self.machine.devices.world();
        self.machine.kill(None);
        let machine = Machine::new(world.after(Loss::None), mix(self.seed ^ self.step));
        let db = machine.open().map_err(|error| error.to_string())?;
        self.machine = machine;
        self.db = db;
        let found: Result<BTreeMap<Key, Vec<u8>>, Error> = self
            .db
            .scan()
            .into_iter()
            .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect();
        let expected = self.model.state(self.model.now);
        let found = found.map_err(|error| error.to_string())?;
        if found != expected {
            return Err(format!("after a kill there is {found:?}, not {expected:?}"));
        }
        Ok(())
    }
}

fn same(key: &[u8], found: Option<&[u8]>, expected: Option<&[u8]>) -> Result<(), Violation> {
    if found == expected {
        return Ok(());
    }
    let text = |value: Option<&[u8]>| value.map(|value| value.escape_ascii().to_string());
    let key = key.escape_ascii();
    Err(format!("{key} has {:?}, not {:?}", text(found), text(expected)))
}
