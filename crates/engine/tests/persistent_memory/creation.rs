//! A database, or its first region, that cannot be made: no region is left that no database names.

use crate::hooked::{Call, HookedDevices};
use crate::indexed::indexed;
use crate::support::{HOME, Machine, REGION, contents_of, copy_of, settings, stepped};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use thermocline::{Environment, Preset, Settings};
use thermocline_device::{Error, ErrorKind};

/// More calls than a creation or an opening makes.
const CALLS_MAX: i64 = 2000;

/// An environment of `machine` where one call fails, after so many others; what is left of these.
fn failing_after(machine: &Machine, calls: i64) -> (Environment, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(calls));
    let counted = Arc::clone(&left);
    let hook = move |call: Call, path: &Path, name: &str| match counted.fetch_sub(1, SeqCst) {
        0 => {
            let text = format!("{call:?} of {}/{name} fails", path.display());
            Err(Error::new(ErrorKind::Io, text))
        }
        _ => Ok(()),
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    (stepped(Arc::new(devices), &machine.regions), left)
}

fn put_and_close(db: thermocline::Db) {
    db.put("key", "value").unwrap();
    db.close().unwrap();
}

#[test]
fn a_database_that_cannot_be_made_leaves_nothing_whichever_call_fails() {
    for settings in [settings(), indexed()] {
        let mut refusals = 0;
        for calls in 0.. {
            assert!(calls < CALLS_MAX, "the creation does not end");
            let machine = Machine::new();
            let (environment, left) = failing_after(&machine, calls);
            let created = environment.create(Path::new(HOME), &settings);
            let is_whole = left.load(SeqCst) >= 0;
            let Err(error) = created.map(drop) else {
                machine.open().unwrap();
                if is_whole {
                    break;
                }
                continue;
            };
            refusals += 1;
            let left = contents_of(&machine.devices);
            let names: Vec<_> = left.iter().map(|(path, name, _)| (path, name)).collect();
            assert!(names.is_empty(), "call {calls}, {error}: {names:?}");
            assert!(!machine.regions.has(REGION), "call {calls}, {error}: the region is left");
            put_and_close(machine.environment().create(Path::new(HOME), &settings).unwrap());
            assert!(machine.open().unwrap().get("key").unwrap().is_some());
        }
        assert!(refusals > 20, "only {refusals} calls are refused");
    }
}

#[test]
fn a_first_region_that_cannot_be_told_of_is_left_only_where_the_database_names_it() {
    let before = Machine::new();
    let with_log = Settings { persistent_memory: None, ..settings() };
    put_and_close(before.environment().create(Path::new(HOME), &with_log).unwrap());
    for preset in [Preset::Leveled, Preset::Indexed] {
        let wanted = Settings { preset: Some(preset), tiers: Vec::new(), ..settings() };
        let (mut left_out, mut kept) = (0, 0);
        for calls in 0.. {
            assert!(calls < CALLS_MAX, "the opening does not end");
            let machine = Machine { devices: copy_of(&before.devices), ..Machine::new() };
            let (environment, left) = failing_after(&machine, calls);
            let opened = environment.open_with(Path::new(HOME), &wanted);
            let is_whole = left.load(SeqCst) >= 0;
            if let Err(error) = &opened {
                let is_named = machine.database_file().contains(REGION);
                assert_eq!(machine.regions.has(REGION), is_named, "call {calls}, {error}");
                *(if is_named { &mut kept } else { &mut left_out }) += 1;
            }
            let first = opened.map(drop).map_err(|error| error.to_string());
            let db = machine.environment().open_with(Path::new(HOME), &wanted);
            let db = db.unwrap_or_else(|error| panic!("call {calls}, {first:?}, then {error}"));
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "call {calls}");
            db.close().unwrap();
            if is_whole {
                break;
            }
        }
        assert!(left_out > 5 && kept > 5, "{left_out} before it is named, {kept} after");
    }
}
