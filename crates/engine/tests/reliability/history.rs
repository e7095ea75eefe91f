//! Seeded histories of one writer, and the oracle that says which states may be found afterwards.
//!
//! Each submission is a batch. What a store may show after any crash is the model after the first
//! `n` submissions, for some `n` from what was acknowledged as durable up to what was submitted.

use crate::support::home;
use std::collections::BTreeMap;
use std::path::PathBuf;
use thermocline::{Db, Durability, Environment, Error, Result, WriteBatch};
use thermocline_foundation::random::Random;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Write = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
pub enum Step {
    Write(Vec<Write>, Durability),
    Ingest(Vec<(Vec<u8>, Vec<u8>)>),
    Flush,
    Compact,
    Sync,
    Checkpoint(PathBuf),
    Reopen,
    Settle,
}

/// What was submitted, and what of it the store said is safe.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub submitted: Vec<Vec<Write>>,
    /// Submissions that must survive a power cut.
    pub durable: usize,
    /// Submissions that were acknowledged at all: these survive the end of the process.
    pub acknowledged: usize,
}

const KEYS: u64 = 40;

fn key(random: &mut Random) -> Vec<u8> {
    format!("key{:03}", random.below(KEYS)).into_bytes()
}

/// A value that says which step wrote it, and where it should end.
fn value(step: usize, random: &mut Random) -> Vec<u8> {
    let len = match random.below(12) {
        0 => 0,
        1..=7 => random.below(300),
        8..=10 => random.below(20_000),
        _ => random.below(250_000),
    };
    let mut bytes = format!("{step:06}:{len:06};").into_bytes().repeat(1 + len as usize / 14);
    bytes.truncate(14 + len as usize);
    bytes
}

fn write(step: usize, random: &mut Random) -> Write {
    let key = key(random);
    (key, (random.below(4) > 0).then(|| value(step, random)))
}

/// The steps of `seed`.
pub fn history(seed: u64, len: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    (0..len)
        .map(|step| match random.below(40) {
            0..=15 => Step::Write(vec![write(step, &mut random)], Durability::Buffered),
            16..=21 => Step::Write(vec![write(step, &mut random)], Durability::Sync),
            22..=29 => {
                let writes = (0..1 + random.below(6)).map(|_| write(step, &mut random)).collect();
                let sync = random.below(3) == 0;
                Step::Write(writes, if sync { Durability::Sync } else { Durability::Buffered })
            }
            30..=31 => Step::Flush,
            32 => Step::Compact,
            33..=34 => Step::Sync,
            35..=36 => {
                let mut records = Model::new();
                for _ in 0..1 + random.below(8) {
                    records.insert(key(&mut random), value(step, &mut random));
                }
                Step::Ingest(records.into_iter().collect())
            }
            37 => Step::Checkpoint(PathBuf::from(format!("/checkpoint-{seed}-{step}"))),
            38 => Step::Reopen,
            _ => Step::Settle,
        })
        .collect()
}

impl Known {
    fn submit(&mut self, writes: Vec<Write>) {
        self.submitted.push(writes);
    }

    fn acknowledge(&mut self, durable: bool) {
        self.acknowledged = self.submitted.len();
        if durable {
            self.durable = self.acknowledged;
        }
    }

    /// The model after the first `count` submissions.
    pub fn model(&self, count: usize) -> Model {
        let mut model = Model::new();
        for (key, value) in self.submitted[..count].iter().flatten() {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
        model
    }

    /// After a crash the store shows `count` submissions, durably: later ones are gone.
    pub fn settle_at(&mut self, count: usize) {
        self.submitted.truncate(count);
        (self.durable, self.acknowledged) = (count, count);
    }

    /// Checks all of the store's answers, of which at least `least` submissions must be there;
    /// returns how many are.
    pub fn check(&self, db: &Db, least: usize) -> std::result::Result<usize, String> {
        let shown = scan(db).map_err(|error| format!("scan: {error}"))?;
        let count = (least..=self.submitted.len()).rev().find(|n| self.model(*n) == shown);
        let Some(count) = count else {
            let close = (0..=self.submitted.len()).rev().find(|n| self.model(*n) == shown);
            return Err(format!(
                "the state is none of {least}..={} submissions ({})",
                self.submitted.len(),
                close.map_or("no prefix at all".to_owned(), |n| format!("it is that of {n}")),
            ));
        };
        for number in 0..KEYS {
            let key = format!("key{number:03}").into_bytes();
            let got = db.get(&key).map_err(|error| format!("get: {error}"))?;
            if got.as_deref() != shown.get(&key).map(Vec::as_slice) {
                return Err(format!("get of {} is not what the scan says", key.escape_ascii()));
            }
        }
        Ok(count)
    }
}

/// All records.
pub fn scan(db: &Db) -> Result<Model> {
    db.scan().into_iter().map(|record| record.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

/// Carries out `steps` until one fails; gives the open database back where none did.
pub fn run(
    environment: &Environment,
    mut db: Db,
    steps: &[Step],
    known: &mut Known,
) -> std::result::Result<Db, (usize, Error)> {
    for (index, step) in steps.iter().enumerate() {
        let result = match step {
            Step::Write(writes, durability) => {
                known.submit(writes.clone());
                let mut batch = WriteBatch::new();
                for (key, value) in writes {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    };
                }
                let result = db.write_with(batch, *durability);
                if result.is_ok() {
                    known.acknowledge(*durability == Durability::Sync);
                }
                result
            }
            Step::Ingest(records) => ingest(&db, records, known),
            Step::Flush => db.flush().inspect(|()| known.acknowledge(true)),
            Step::Compact => db.compact_range(None, None, &mut |_| {}),
            Step::Sync => db.sync().inspect(|()| known.acknowledge(true)),
            Step::Checkpoint(path) => db.checkpoint(path).and_then(|()| {
                known.acknowledge(true);
                let copy = environment.open(path)?;
                let checked = known.check(&copy, known.acknowledged);
                checked.map_err(|why| Error::new(thermocline::ErrorKind::Io, why))?;
                copy.close()
            }),
            Step::Reopen => match db.close() {
                Ok(()) => {
                    known.acknowledge(true);
                    match environment.open(&home()) {
                        Ok(reopened) => {
                            db = reopened;
                            continue;
                        }
                        Err(error) => return Err((index, error)),
                    }
                }
                Err(error) => return Err((index, error)),
            },
            Step::Settle => db.settle(),
        };
        result.map_err(|error| (index, error))?;
    }
    Ok(db)
}

fn ingest(db: &Db, records: &[(Vec<u8>, Vec<u8>)], known: &mut Known) -> Result<()> {
    let mut ingest = db.ingest();
    for (key, value) in records {
        ingest.add(key, value)?;
    }
    known.submit(records.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect());
    ingest.finish()?;
    known.acknowledge(true);
    Ok(())
}
