//! Work first, lock later: under the lock a job asks again whether what it did is still wanted.
//! Each test makes that second question answer no: what befalls the record does so when the job
//! syncs the slot that it wrote, or reads the table that it asks, which is after the first question
//! and before the lock.

use crate::layout::hybrid::FastTier;
use crate::support::hooked::{Call, Hook, HookedDevices};
use crate::support::{hybrid, stepped_environment, until};
use crate::table_set::claims::Claim;
use crate::table_set::key_range::KeyRange;
use crate::{Db, Environment};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

type Event = Box<dyn FnOnce(&Db) + Send>;

/// An event, and the call at which it happens: of this kind, for a file whose name ends so.
type Planned = Arc<Mutex<Option<(Call, &'static str, Event)>>>;

/// A store, and what happens once, at the next call of this kind for a file of that kind.
struct Scene {
    db: Db,
    next: Planned,
    /// Another handle of the store, for the event.
    own: Arc<Mutex<Option<Db>>>,
}

impl Scene {
    /// A store with a record in a table, and no job but the test's own.
    fn new() -> Self {
        let next = Planned::default();
        let own: Arc<Mutex<Option<Db>>> = Arc::default();
        let (wanted, with) = (Arc::clone(&next), Arc::clone(&own));
        let hook: Hook = Arc::new(move |call, _: &Path, name: &str| {
            let is_it =
                |(at, end, _): &mut (Call, &str, Event)| *at == call && name.ends_with(*end);
            let event = wanted.lock().take_if(|event| is_it(event));
            let db = with.lock().clone();
            if let (Some((_, _, event)), Some(db)) = (event, db) {
                event(&db);
            }
            Ok(())
        });
        let environment = stepped_environment();
        let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
        let environment = Environment { devices, ..environment };
        let db = environment.create(Path::new("/home"), &hybrid()).unwrap();
        *own.lock() = Some(db.clone());
        db.put("key", "value").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let scene = Self { db, next, own };
        scene.fast().promotions.running.store(true, Relaxed);
        scene.fast().spill.running.store(true, Relaxed);
        scene
    }

    fn fast(&self) -> &FastTier {
        &self.db.engine().hybrid().fast
    }

    fn at(&self, call: Call, end: &'static str, event: impl FnOnce(&Db) + Send + 'static) {
        *self.next.lock() = Some((call, end, Box::new(event)));
    }

    /// What was to happen has.
    fn assert_happened(&self) {
        assert!(self.next.lock().is_none(), "the job did not make the call that is waited for");
    }

    fn read(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(self.db.get("key").unwrap().unwrap(), "value");
        }
    }

    /// The record is offered for memory, as two reads do.
    fn offer(&self) {
        self.read(2);
        assert_eq!(self.fast().promotions.offers.len(), 1);
    }

    fn promote(&self) {
        self.db.engine().hybrid().promote().unwrap();
    }

    /// Brings the record into memory, and lets memory give it up: it waits for a slot.
    fn give_up(&self) {
        self.offer();
        self.promote();
        let cache = &self.fast().cache;
        let capacity_bytes = cache.capacity_bytes();
        self.fast().spill_evicted(cache.set_capacity_bytes(0));
        assert!(cache.set_capacity_bytes(capacity_bytes).into_records().next().is_none());
        self.fast().promotions.slot_at_first_read.store(true, Relaxed);
    }

    fn end(self, value: Option<&str>) {
        assert_eq!(self.db.get("key").unwrap().as_deref(), value.map(str::as_bytes));
        self.fast().promotions.running.store(false, Relaxed);
        self.fast().spill.running.store(false, Relaxed);
        self.fast().index.check();
        let left = self.db.left_over().unwrap();
        assert!(left.is_empty(), "{left:?}");
        self.db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(self.db.get("key").unwrap().as_deref(), value.map(str::as_bytes));
        *self.own.lock() = None;
        self.db.close().unwrap();
    }
}

/// The demotion has looked at its range, and would leave the new slot behind.
#[test]
fn a_copy_whose_range_is_taken_while_its_slot_is_written_gets_no_slot() {
    let scene = Scene::new();
    scene.give_up();
    let held = Arc::new(Mutex::new(None));
    let holds = Arc::clone(&held);
    scene.at(Call::Sync, ".slab", move |db| {
        let versions = db.engine().versions();
        let whole = Claim { tables: Vec::new(), level: None, range: KeyRange::default() };
        *holds.lock() = versions.claim(&mut versions.tables(), whole);
    });
    scene.db.engine().hybrid().spill().unwrap();
    scene.assert_happened();
    assert_eq!(scene.fast().index.get(b"key"), None, "it has a slot behind the demotion's back");
    drop(held.lock().take());
    scene.end(Some("value"));
}

/// It was written anew, and is in another slot.
#[test]
fn a_copy_that_is_replaced_while_its_slot_is_written_gets_no_slot() {
    let scene = Scene::new();
    scene.give_up();
    scene.at(Call::Sync, ".slab", |db| {
        db.put("key", "newer").unwrap();
        db.flush().unwrap();
    });
    scene.db.engine().hybrid().spill().unwrap();
    scene.assert_happened();
    scene.end(Some("newer"));
}

/// The records of a slab that is emptied are written anew while they are moved.
#[test]
fn records_that_are_replaced_while_their_slab_is_emptied_are_not_moved() {
    let scene = Scene::new();
    let name = |number: u32| format!("record {number:05}");
    let put = move |db: &Db, number: u32, byte: u8| db.put(name(number), vec![byte; 1000]).unwrap();
    (0..3000).for_each(|number| put(&scene.db, number, 1));
    scene.db.flush().unwrap();
    // Few are left, and so a slab that can be emptied into others.
    let stays = |number: &u32| number.is_multiple_of(50);
    (0..3000).filter(|number| !stays(number)).for_each(|number| {
        scene.db.delete(name(number)).unwrap();
    });
    scene.db.flush().unwrap();
    scene.at(Call::Sync, ".slab", move |db| {
        (0..3000).filter(stays).for_each(|number| put(db, number, 2));
        db.flush().unwrap();
    });
    // Slabs without records go first.
    until("a slab that is emptied", || {
        scene.fast().room.want(1 << 20);
        scene.db.engine().hybrid().change_sizes().unwrap();
        scene.next.lock().is_none()
    });
    for number in 0..3000 {
        let right = stays(&number).then(|| vec![2; 1000]);
        assert_eq!(scene.db.get(name(number)).unwrap().as_deref(), right.as_deref(), "{number}");
    }
    assert!(scene.db.verify(&mut |_| {}).unwrap().is_ok());
    scene.end(Some("value"));
}

/// The first question goes to a filter, which is read from the table.
#[test]
fn an_offer_is_not_taken_whose_key_is_written_or_merged_while_filters_are_asked() {
    type Change = fn(&Db);
    let written: Change = |db| {
        db.put("key", "newer").unwrap();
        db.flush().unwrap();
    };
    let merged: Change = |db| {
        db.delete("key").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
    };
    for (change, value) in [(written, Some("newer")), (merged, None)] {
        let scene = Scene::new();
        // A newer table that may have the key; memory has not its filter.
        let mut ingest = scene.db.ingest();
        ["kex", "kez"].into_iter().for_each(|key| ingest.add(key, "loaded").unwrap());
        ingest.finish().unwrap();
        scene.offer();
        scene.at(Call::Read, ".table", change);
        scene.db.engine().shared().cache.clear();
        scene.promote();
        scene.assert_happened();
        let mut versions = Vec::new();
        scene.fast().index.versions(b"key", &mut versions);
        assert_eq!(versions.len(), usize::from(value.is_some()), "the old one is up: {versions:?}");
        scene.end(value);
    }
}
