//! What must hold of a store that was reopened after a crash.
//!
//! 1. Each writer's records are a prefix of its history, batches whole, at least as long as what
//!    was promised and at most as long as what was submitted.
//! 2. Scans either way, look-ups and batched look-ups show the same, and nothing else.
//! 3. Every byte verifies.
//! 4. When the background is idle there is no file that the store does not need.
//! 5. It is not read-only; that it takes writes is what its next life shows.

use crate::history::{Model, key};
use crate::ledger::Bounds;
use crate::life::stamps;
use std::collections::BTreeMap;
use std::path::Path;
use thermocline::{Db, Scan};
use thermocline_foundation::random::Random;

/// Look-ups of each kind.
const LOOKUPS: usize = 60;
/// Logs that may exist: three memtables', a prepared one, two to recycle.
const LOGS_MAX: usize = 6;

/// Compares `db` with the models, which are brought to the prefix that it shows.
pub fn check(
    db: &Db,
    models: &mut [Model],
    bounds: &[Bounds],
    random: &mut Random,
) -> Result<(), String> {
    let found = stamps(db, models.len())?;
    for ((model, bounds), stamp) in models.iter_mut().zip(bounds).zip(found) {
        let writer = model.writer();
        let Bounds { at_least, at_most } = *bounds;
        if stamp < at_least {
            return Err(format!("writer {writer}: {at_least} batches were promised, {stamp} left"));
        }
        if stamp > at_most {
            return Err(format!("writer {writer}: {at_most} batches were submitted, not {stamp}"));
        }
        model.advance(stamp);
    }
    scans(db, models)?;
    lookups(db, models, random)?;
    let report = db.verify(&mut |_| {}).map_err(|error| error.to_string())?;
    match report.problems.first() {
        None => Ok(()),
        Some(problem) => Err(format!("verify: {}: {}", problem.file, problem.text)),
    }
}

fn scans(db: &Db, models: &[Model]) -> Result<(), String> {
    let mut expected: Vec<_> = models.iter().flat_map(Model::records).collect();
    compare("forwards", db.scan(), &expected)?;
    expected.reverse();
    compare("backwards", db.scan().reverse(), &expected)
}

fn compare(direction: &str, scan: Scan, expected: &[(String, Vec<u8>)]) -> Result<(), String> {
    let mut left = expected.iter();
    for record in scan {
        let (found, value) = record.map_err(|error| format!("scan {direction}: {error}"))?;
        let Some((key, right)) = left.next() else {
            return Err(format!("scan {direction}: {found:?} should not be there"));
        };
        if found != key || value != right {
            let (is, should) = (value.len(), right.len());
            let head = &value[..is.min(16)];
            return Err(format!(
                "scan {direction}: {found:?}, {is} bytes {head:?}; expected {key}, {should} bytes"
            ));
        }
    }
    match left.next() {
        None => Ok(()),
        Some((key, _)) => Err(format!("scan {direction} ends before {key}")),
    }
}

fn lookups(db: &Db, models: &[Model], random: &mut Random) -> Result<(), String> {
    for model in models {
        let numbers: Vec<_> = (0..LOOKUPS).map(|_| model.any_key(random)).collect();
        let keys: Vec<_> = numbers.iter().map(|number| key(model.writer(), *number)).collect();
        let together = db.multi_get(&keys).map_err(|error| format!("multi_get: {error}"))?;
        for ((number, key), batched) in numbers.iter().zip(&keys).zip(together) {
            let expected = model.get(*number);
            let single = db.get(key).map_err(|error| format!("get {key}: {error}"))?;
            if single.as_deref() != expected.as_deref() {
                return Err(format!("get {key} differs from the scan"));
            }
            if batched.as_deref() != expected.as_deref() {
                return Err(format!("multi_get {key} differs from the scan"));
            }
        }
    }
    Ok(())
}

/// Files of the store's directories by extension; `DATABASE` and the like under their names.
fn files(directories: &[&Path]) -> Result<BTreeMap<String, usize>, String> {
    let mut counts = BTreeMap::new();
    for directory in directories {
        let listing = std::fs::read_dir(directory)
            .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
        for entry in listing {
            let name = entry.map_err(|error| error.to_string())?.file_name();
            let name = name.to_string_lossy();
            let kind = name.rsplit_once('.').map_or(&*name, |(_, extension)| extension);
            *counts.entry(kind.to_owned()).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Waits for the background, then looks for files that the store does not need.
pub fn check_tidy(db: &Db, fast: &Path, slow: &Path) -> Result<(), String> {
    db.settle().map_err(|error| error.to_string())?;
    let stats = db.stats();
    let tables: usize = stats.levels.iter().map(|level| level.tables).sum();
    let classes = stats.fast_tier.iter().flat_map(|fast| &fast.classes);
    let slabs = classes.map(|class| class.slabs).sum::<u64>() as usize;
    let directories = [&fast.join("home"), &fast.join("tier"), &slow.join("tier")];
    let counts = files(&directories.map(|path| path.as_path()))?;
    let count = |kind: &str| counts.get(kind).copied().unwrap_or(0);
    let has_log = !stats.region.as_ref().is_some_and(|region| region.has_memtables);
    let logs = if has_log { 1..=LOGS_MAX } else { 0..=0 };
    let leaked = count("table") != tables
        || count("slab") != slabs
        || count("index") as u64 != stats.fast_tier.as_ref().map_or(0, |fast| fast.index_copies)
        || count("map") != 1
        || count("manifest") != 1
        || !logs.contains(&count("log"))
        || count("new") + count("tmp") > 0;
    if leaked {
        return Err(format!(
            "leaked files: {tables} tables and {slabs} slabs are live, there are {counts:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::{self, Epoch};

    /// The oracle itself is tried: each thing that it must find is done to a sound store.
    #[test]
    fn what_is_missing_changed_invented_or_leaked_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let (fast, slow) = (scratch.path().join("fast"), scratch.path().join("slow"));
        let mut epoch = Epoch::new(3);
        epoch.writers = 1;
        let db = life::open(&epoch, &fast, &slow, 0).unwrap();
        for stamp in 1..=50 {
            db.write(epoch.history.batch(0, stamp)).unwrap();
        }
        db.flush().unwrap();
        let fresh = || Model::new(epoch.history, 0);
        let judge = |bounds: [u64; 2]| {
            let bounds = [Bounds { at_least: bounds[0], at_most: bounds[1] }];
            check(&db, &mut [fresh()], &bounds, &mut Random::new(1))
        };
        assert_eq!(judge([40, 60]), Ok(()));
        assert!(judge([51, 60]).unwrap_err().contains("promised"));
        assert!(judge([10, 49]).unwrap_err().contains("submitted"));
        assert_eq!(check_tidy(&db, &fast, &slow), Ok(()));
        std::fs::write(slow.join("tier/00000099.table"), "").unwrap();
        assert!(check_tidy(&db, &fast, &slow).unwrap_err().contains("leaked"));

        let mut model = fresh();
        model.advance(50);
        let records: Vec<_> = model.records().collect();
        let (key, value) = &records[records.len() / 2];
        db.delete(key).unwrap();
        assert!(judge([40, 60]).unwrap_err().contains(key), "a missing record");
        db.put(key, [&value[..], b"more"].concat()).unwrap();
        assert!(judge([40, 60]).unwrap_err().contains(key), "a changed record");
        db.put(key, value).unwrap();
        assert_eq!(judge([40, 60]), Ok(()));
        db.put("w0/zzz", "invented").unwrap();
        assert!(judge([40, 60]).unwrap_err().contains("should not be there"));
        db.delete("w0/zzz").unwrap();
        db.delete(&records[0].0).unwrap();
        assert!(judge([40, 60]).is_err(), "the first record");
    }
}
