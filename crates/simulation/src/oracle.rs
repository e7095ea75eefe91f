//! What is known of a history, and which answers are right.
//!
//! Each submission is a batch. What a store may show after any crash is the model after the first
//! n submissions, for some n from what must have survived up to what was submitted. States are
//! compared by a digest of all records (an exclusive or of one hash a record), so that a state that
//! is right costs no model; only for a wrong one is the model built, to say what is wrong with it.
//!
//! The oracle's checks, by their numbers in `docs/decisions/0041-simulation.md`:
//! ```text
//!   1 acknowledged durable writes are there   2 a prefix, batches whole   3 no invented bytes
//!   4 recovery is idempotent, cut or not      5 get = scan = model        6 caches change nothing
//!   7 no leaked file, one copy of each        8 writes resume             9 errors, not lies
//! ```

use crate::history::{HOME, TIERS, Write, is_genuine, key};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thermocline::{Db, ErrorKind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// All records.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What went wrong, in one line or several.
pub type Violation = String;

/// Why a store's answers are not those of the model.
#[derive(Debug)]
pub enum Wrong {
    /// It gave an error instead, which is right if something was done to its devices.
    Error(&'static str, thermocline::Error),
    /// It gave another answer.
    Answer(Violation),
}

impl From<Wrong> for Violation {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Error(what, error) => format!("{what} fails: {error}"),
            Wrong::Answer(violation) => violation,
        }
    }
}

fn record_digest(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, 1))
}

/// What was submitted, and what of it the store said is safe.
#[derive(Clone, Debug)]
pub struct Known {
    submitted: Vec<Vec<Write>>,
    /// The digest of the state after each number of submissions.
    digests: Vec<u64>,
    model: Model,
    /// Submissions that must survive a power cut.
    pub durable: usize,
    /// Submissions that were acknowledged at all: these survive the end of the process.
    pub acknowledged: usize,
    /// Keys that are used.
    pub keys: u64,
    /// The database was made.
    pub created: bool,
    /// Where a checkpoint is being made; true once it is.
    pub checkpoint: Option<(PathBuf, bool)>,
}

impl Known {
    /// Nothing yet.
    pub fn new(keys: u64) -> Self {
        Self {
            submitted: Vec::new(),
            digests: vec![0],
            model: Model::new(),
            durable: 0,
            acknowledged: 0,
            keys,
            created: false,
            checkpoint: None,
        }
    }

    /// The batch is handed to the store.
    pub fn submit(&mut self, writes: &[Write]) {
        let mut digest = self.digests[self.submitted.len()];
        for (key, value) in writes {
            let before = match value {
                Some(value) => {
                    digest ^= record_digest(key, value);
                    self.model.insert(key.clone(), value.clone())
                }
                None => self.model.remove(key),
            };
            if let Some(before) = before {
                digest ^= record_digest(key, &before);
            }
        }
        self.digests.push(digest);
        self.submitted.push(writes.to_vec());
    }

    /// The store said that all that was submitted is there, durably or not.
    pub fn acknowledge(&mut self, durable: bool) {
        self.acknowledged = self.submitted.len();
        if durable {
            self.durable = self.acknowledged;
        }
    }

    /// Submissions so far.
    pub fn count(&self) -> usize {
        self.submitted.len()
    }

    /// Writes so far: the sequence of the last one, where each has one of its own and no other
    /// takes any.
    pub fn writes(&self) -> u64 {
        self.submitted.iter().map(|writes| writes.len() as u64).sum()
    }

    /// The records after so many submissions are those after so many others.
    pub fn is_same_state(&self, count: usize, other: usize) -> bool {
        self.digests[count] == self.digests[other]
    }

    /// The records after all submissions.
    pub fn model(&self) -> &Model {
        &self.model
    }

    fn model_of(&self, count: usize) -> Model {
        let mut model = Model::new();
        for (key, value) in self.submitted[..count].iter().flatten() {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
        model
    }

    /// A submission gave `key` this value.
    pub fn has_had(&self, key: &[u8], value: &[u8]) -> bool {
        let mut writes = self.submitted.iter().flatten();
        writes.any(|(k, v)| k == key && v.as_deref() == Some(value))
    }

    /// The least number of submissions whose writes are all in a store that has those up to the
    /// sequence `after`, where the newest write of all has `newest`. Bulk loads take sequences,
    /// too, so it may have more.
    pub fn least_at(&self, after: u64, newest: u64) -> usize {
        let mut behind = newest.saturating_sub(after);
        let is_behind = |writes: &&Vec<Write>| {
            let is_behind = behind > 0;
            behind = behind.saturating_sub(writes.len() as u64);
            is_behind
        };
        self.count() - self.submitted.iter().rev().take_while(is_behind).count()
    }

    /// `key` had this value, or none, after `count` submissions or after later ones.
    pub fn has_had_since(&self, key: &[u8], value: Option<&[u8]>, count: usize) -> bool {
        let mut later = self.submitted[count..].iter().flatten().filter(|(k, _)| k == key);
        self.model_of(count).get(key).map(Vec::as_slice) == value
            || later.any(|(_, v)| v.as_deref() == value)
    }

    /// After a crash the store shows `count` submissions, durably: later ones are gone.
    pub fn settle_at(&mut self, count: usize) {
        self.submitted.truncate(count);
        self.digests.truncate(count + 1);
        self.model = self.model_of(count);
        (self.durable, self.acknowledged) = (count, count);
    }

    /// Holds all the store shows against the submissions, of which at least `least` must be there;
    /// says how many are.
    pub fn check_state(&self, db: &Db, least: usize) -> Result<usize, Wrong> {
        let (mut digest, mut records) = (0, 0u64);
        for record in db.scan() {
            let (key, value) = record.map_err(|error| Wrong::Error("a scan", error))?;
            digest ^= record_digest(&key, &value);
            records += 1;
        }
        let range = least..=self.count();
        if let Some(count) = range.rev().find(|count| self.digests[*count] == digest) {
            return Ok(count);
        }
        Err(Wrong::Answer(self.explain(db, least, records)))
    }

    /// What is wrong with a state that is none of the right ones.
    fn explain(&self, db: &Db, least: usize, records: u64) -> Violation {
        let all = self.count();
        let shown = match scan(db) {
            Ok(shown) => shown,
            Err(error) => return format!("a scan fails the second time: {error}"),
        };
        let prefix = (0..=all).rev().find(|count| self.model_of(*count) == shown);
        let mut text =
            format!("{records} records are none of the states after {least} to {all} submissions");
        match prefix {
            Some(count) => text += &format!("; they are that after {count}"),
            None => {
                text += "; they are no prefix at all";
                let expected = self.model_of(all);
                for (key, value) in &shown {
                    if !is_genuine(key, value) {
                        text += &format!("\n  {} has invented bytes", key.escape_ascii());
                    } else if expected.get(key) != Some(value) {
                        text += &format!("\n  {} is {}", key.escape_ascii(), name_of(value));
                        let right = expected.get(key).map_or("gone".to_owned(), |v| name_of(v));
                        text += &format!(", the last submission says {right}");
                    }
                }
                for key in expected.keys().filter(|key| !shown.contains_key(*key)) {
                    text += &format!("\n  {} is missing", key.escape_ascii());
                }
            }
        }
        text
    }

    /// Asks for every key in each way there is, which must agree with the state after `count`.
    pub fn check_reads(&self, db: &Db, count: usize) -> Result<(), Wrong> {
        let earlier;
        let model = if count == self.count() {
            &self.model
        } else {
            earlier = self.model_of(count);
            &earlier
        };
        let keys: Vec<_> = (0..self.keys + 1).map(key).collect();
        for key in &keys {
            expect_value("get", key, db.get(key), model)?;
        }
        let many = db.multi_get(&keys).map_err(|error| Wrong::Error("multi_get", error))?;
        for (key, got) in keys.iter().zip(many) {
            expect_value("multi_get", key, Ok(got), model)?;
        }
        let backward = db.scan().reverse().into_iter();
        let mut expected = model.iter().rev();
        for record in backward {
            let (key, value) = record.map_err(|error| Wrong::Error("a scan backward", error))?;
            if expected.next() != Some((&key.to_vec(), &value.to_vec())) {
                let text = format!("scanning backward shows {} wrongly", key.escape_ascii());
                return Err(Wrong::Answer(text));
            }
        }
        match expected.next() {
            Some((key, _)) => {
                Err(Wrong::Answer(format!("scanning backward misses {}", key.escape_ascii())))
            }
            None => Ok(()),
        }
    }

    /// Reads while a device lies or fails: all that is answered at all must be right after one and
    /// the same number of submissions, at least `least`.
    pub fn check_some_prefix(&self, db: &Db, least: usize) -> Result<(), Violation> {
        let keys: Vec<_> = (0..self.keys).map(key).collect();
        let answers: Vec<_> = keys.iter().map(|key| db.get(key).ok()).collect();
        let mut shown = Vec::new();
        let mut whole = true;
        for record in db.scan() {
            match record {
                Ok((key, value)) => shown.push((key.to_vec(), value.to_vec())),
                Err(_) => whole = false,
            }
            if !whole {
                break;
            }
        }
        let agrees = |count: &usize| {
            let model = self.model_of(*count);
            let scanned =
                model.iter().zip(&shown).all(|((k, v), (key, value))| k == key && v == value)
                    && shown.len() <= model.len()
                    && (!whole || shown.len() == model.len());
            let got = keys.iter().zip(&answers).all(|(key, answer)| match answer {
                Some(got) => got.as_deref() == model.get(key).map(Vec::as_slice),
                None => true,
            });
            scanned && got
        };
        if (least..=self.count()).rev().any(|count| agrees(&count)) {
            return Ok(());
        }
        let answered = answers.iter().filter(|answer| answer.is_some()).count();
        Err(format!(
            "{answered} answers of {} and {} records of a scan{} are right after no number of \
             submissions from {least} to {}",
            keys.len(),
            shown.len(),
            if whole { "" } else { " that failed" },
            self.count()
        ))
    }
}

/// The step that wrote a value, as far as it can be made out.
fn name_of(value: &[u8]) -> String {
    if value.is_empty() {
        return "empty".to_owned();
    }
    let step = value.split(|byte| *byte == b'|').nth(1).unwrap_or_default();
    format!("of step {}, {} bytes", step.escape_ascii(), value.len())
}

fn expect_value(
    how: &'static str,
    key: &[u8],
    got: thermocline::Result<Option<impl AsRef<[u8]>>>,
    model: &Model,
) -> Result<(), Wrong> {
    let name = key.escape_ascii();
    let got = got.map_err(|error| Wrong::Error(how, error))?;
    let (got, right) = (got.as_ref().map(AsRef::as_ref), model.get(key).map(Vec::as_slice));
    if got == right {
        return Ok(());
    }
    let say = |value: Option<&[u8]>| value.map_or("absent".to_owned(), name_of);
    Err(Wrong::Answer(format!("{how} of {name} says {}, right is {}", say(got), say(right))))
}

/// All records.
pub fn scan(db: &Db) -> thermocline::Result<Model> {
    db.scan().into_iter().map(|record| record.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

/// Files of slabs that the store has open.
fn slabs_of(db: &Db) -> usize {
    let fast = db.stats().fast_tier;
    let classes = fast.iter().flat_map(|fast| &fast.classes);
    classes.map(|class| class.slabs).sum::<u64>() as usize
}

/// Finds files that the store does not need, that are there twice, or that are missing, once
/// background work is done.
pub fn check_files(db: &Db, list: impl Fn(&Path) -> Vec<(String, u64)>) -> Result<(), Violation> {
    check_left_over(db)?;
    let files = TIERS.iter().flat_map(|tier| list(Path::new(tier)));
    let names: Vec<_> = files.map(|(name, _)| name).collect();
    let home: Vec<_> = list(Path::new(HOME)).into_iter().map(|(name, _)| name).collect();
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    let tables: usize = db.stats().levels.iter().map(|level| level.tables).sum();
    let mut twice = names.clone();
    twice.retain(|name| name != "TIER" && name != "LOCK");
    twice.sort();
    let is_twice = twice.windows(2).any(|pair| pair[0] == pair[1]);
    // A slab without records is kept for the next ones of its size.
    let slabs = slabs_of(db);
    let index_copies = db.stats().fast_tier.map_or(0, |fast| fast.index_copies);
    let caches = db.stats().fast_cache.map_or(0, |cache| cache.files);
    let is_leak = count(".table") != tables
        || count(".slab") != slabs
        || count(".index") as u64 != index_copies
        || count(".cache") as u64 != caches
        || count(".manifest") != 1
        || count(".map") != 1
        || count(".log") > 5
        || names.iter().chain(&home).any(|name| name.ends_with(".new"));
    let fast = db.stats().fast_tier;
    let live: u64 = fast.iter().flat_map(|fast| &fast.classes).map(|class| class.live).sum();
    let records = fast.map_or(0, |fast| fast.records);
    if live != records {
        return Err(format!("{live} slots are live, of {records} records"));
    }
    if is_leak || is_twice {
        return Err(format!(
            "{tables} tables, {slabs} slabs, {index_copies} copies of indexes and {caches} cache \
             files are live, the tiers hold {names:?}, home {home:?}"
        ));
    }
    Ok(())
}

/// Work that has ended, or that a closing has cut off, has given back what it took. Lets the
/// background work of an open database end.
pub fn check_left_over(db: &Db) -> Result<(), Violation> {
    let left = db.left_over().map_err(|error| error.to_string())?;
    if left.is_empty() { Ok(()) } else { Err(format!("left over: {}", left.join("; "))) }
}

/// Each file of a tier is one that the database has there, and the other way round.
pub fn check_owned(db: &Db, list: impl Fn(&Path) -> Vec<(String, u64)>) -> Result<(), Violation> {
    let owned = db.file_names().map_err(|error| error.to_string())?;
    for (index, tier) in TIERS.iter().enumerate() {
        let mut there: Vec<_> = list(Path::new(tier)).into_iter().map(|(name, _)| name).collect();
        there.retain(|name| !["TIER", "LOCK"].contains(&&name[..]) && !name.ends_with(".map"));
        there.sort();
        let of_tier = owned.iter().filter(|(tier, _)| *tier == index);
        let mut names: Vec<_> = of_tier.map(|(_, name)| name.clone()).collect();
        names.sort();
        if there != names {
            return Err(format!("{tier} holds {there:?}, and the database has {names:?} there"));
        }
    }
    Ok(())
}

/// Every byte of the database verifies.
pub fn check_bytes(db: &Db) -> Result<(), Violation> {
    let report = db.verify(&mut |_| {}).map_err(|error| format!("verify fails: {error}"))?;
    if report.is_ok() { Ok(()) } else { Err(format!("verify reports {:?}", report.problems)) }
}

/// An error that a store may give when something is wrong with its devices: it names the kind of
/// trouble and is one line.
pub fn check_error(error: &thermocline::Error) -> Result<(), Violation> {
    let text = error.to_string();
    if text.contains('\n') {
        return Err(format!("the error has several lines: {text}"));
    }
    if error.kind() == ErrorKind::Invalid && !text.contains("settings.toml") {
        return Err(format!("the caller is blamed: {text}"));
    }
    Ok(())
}
