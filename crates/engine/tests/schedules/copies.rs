//! Copies beside a writer: none cuts a batch, whichever memtables are on their way into slots.

use super::support::*;
use crate::{Db, Durability, Preset, Settings, WriteBatch};
use std::path::Path;
use std::sync::Arc;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A batch that fills a memtable, of which each record is a piece of its own on its way into slots.
fn put_all(db: &Db, number: u64) {
    let mut batch = WriteBatch::new();
    for name in NAMES {
        batch.put(name, value(number, BIG));
    }
    db.write_with(batch, Durability::Buffered).unwrap();
}

/// The copy waits for the flush of the first memtable. What is written meanwhile fills the next, of
/// which no piece may be in slots when the copy takes its moment.
#[test]
fn a_copy_that_waits_for_a_flush_has_whole_batches_of_what_is_written_meanwhile() {
    check(1000, || {
        let devices = Arc::default();
        let settings = Settings { preset: Some(Preset::Hybrid), ..settings() };
        let db = create_with(&devices, &settings);
        put_all(&db, 1);
        let writer = {
            let db = db.clone();
            spawn(move || (2..5).for_each(|number| put_all(&db, number)))
        };
        db.checkpoint("/copy").unwrap();
        join([writer]);
        db.close().unwrap();
        let copy = environment(&devices).open(Path::new("/copy")).unwrap();
        let found = copy.multi_get(&NAMES).unwrap().into_iter();
        let found: Vec<_> = found.map(|value| value.map(|value| number(&value))).collect();
        assert!(found.iter().all(|one| one.is_some() && *one == found[0]), "{found:?}");
    });
}
