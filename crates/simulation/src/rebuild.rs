//! A manifest that is damaged beyond repair is made anew ([`crate::repair`] is refused then), and
//! that is cut off once by loss of power and begun again.
//!
//! A key that has a value has its newest one, also beside bulk loads: nothing is written while one
//! goes on. A key that was deleted has none, or one that it had, and the plan says for which keys
//! that may be.

use crate::history::{HOME, key};
use crate::machine::Machine;
use crate::oracle::{Violation, check_bytes, check_error, scan};
use crate::repair::Cut;
use crate::rot::{Damage, Fixture, Outcome};
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, Lost, RepairPlan};

/// Makes the manifest of `machine`, which has `damage`, anew, and looks at what there is then.
pub fn run(fixture: &Fixture, machine: &Machine, damage: &Damage) -> Result<Outcome, Violation> {
    let environment = &machine.environment;
    let planned = match environment.plan_manifest_rebuild(Path::new(HOME), None, &mut |_| {}) {
        Ok(planned) => planned,
        Err(error) => return check_error(&error).map(|()| Outcome::Reported),
    };
    if planned.is_empty() {
        // It was another reason for which a repair was refused.
        return Ok(Outcome::Reported);
    }
    let cut = Arc::new(Cut::new(fixture, damage));
    machine.devices.watch(Some(Arc::clone(&cut) as _));
    let done = rebuild(machine)?;
    machine.devices.watch(None);
    let said = |plan: &RepairPlan| {
        plan.steps.iter().map(|step| (step.damage.clone(), step.lost.clone())).collect::<Vec<_>>()
    };
    if said(&done) != said(&planned) {
        return Err(format!("planned was {planned:?}, done {done:?}"));
    }
    judge(fixture, machine, &done).map_err(|why| format!("{why}\nafter {done:?}"))?;
    let image = cut.take().ok_or("a manifest is made anew that changes nothing")?;
    let machine = Machine::new(image, fixture.seed());
    rebuild(&machine).map_err(|why| format!("after a power cut: {why}"))?;
    judge(fixture, &machine, &done)
        .map_err(|why| format!("made anew again after a power cut: {why}\nafter {done:?}"))?;
    Ok(Outcome::Reported)
}

fn rebuild(machine: &Machine) -> Result<RepairPlan, Violation> {
    let done = machine.environment.rebuild_manifest(Path::new(HOME), None, &mut |_| {});
    done.map_err(|error| format!("what was planned is not done: {error}"))
}

/// The database opens for writing, verifies, has what the plan leaves, and takes writes.
fn judge(fixture: &Fixture, machine: &Machine, plan: &RepairPlan) -> Result<(), Violation> {
    let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
    check_bytes(&db)?;
    compare(fixture, &db, plan)?;
    let fail = |error: thermocline::Error| format!("a write after it: {error}");
    db.put(key(1), b"after").map_err(fail)?;
    db.compact_range(None, None, &mut |_| {}).map_err(fail)?;
    check_bytes(&db)?;
    db.close().map_err(fail)
}

fn compare(fixture: &Fixture, db: &Db, plan: &RepairPlan) -> Result<(), Violation> {
    let known = fixture.known();
    let lost: Vec<_> = plan.steps.iter().flat_map(|step| &step.lost).collect();
    let is_within = |key: &[u8], from: &[u8], until: &[u8]| (from..=until).contains(&key);
    let may_return = |key: &[u8]| {
        lost.iter().any(|lost| match lost {
            Lost::MayReturn { from, until } => is_within(key, from, until),
            _ => false,
        })
    };
    let is_loaded = |key: &[u8]| {
        lost.iter().any(|lost| match lost {
            Lost::Loaded { from, until } => is_within(key, from, until),
            _ => false,
        })
    };
    let shown = scan(db).map_err(|error| format!("a scan: {error}"))?;
    for number in 0..known.keys {
        let key = key(number);
        let found = db.get(&key).map_err(|error| format!("a look-up: {error}"))?;
        let (shown, newest) = (shown.get(&key), known.model().get(&key));
        let what = key.escape_ascii();
        if found.as_deref() != shown.map(Vec::as_slice) {
            return Err(format!("a scan and a look-up of {what} differ"));
        }
        if shown == newest {
            continue;
        }
        if shown.is_some_and(|value| !known.has_had(&key, value)) {
            return Err(format!("{what} has what it never had"));
        }
        let is_told = newest.is_none() && (is_loaded(&key) || may_return(&key));
        if !is_told {
            return Err(format!("{what} has not its newest value, and nothing says so"));
        }
    }
    match shown.keys().find(|shown| !(0..known.keys).any(|number| key(number) == **shown)) {
        Some(other) => Err(format!("{} was never there", other.escape_ascii())),
        None => Ok(()),
    }
}
