//! Repair: what rot damages is repaired ([`crate::rot`]), and the repair is cut off once by loss of
//! power and begun again.
//!
//! ```text
//!   damage -> plan -> repair -> opens, verifies, compared with what the plan says is lost, written
//!                        |--- power cut at a change that is drawn -> repair -> the same
//!                        '--- a read fails once -> the same, or refused and tried again
//! ```
//! A flipped bit of a file of records is never a reason to refuse. A repair that is refused has
//! changed nothing; where it is for the manifest, that is made anew (`rebuild.rs`). What is not
//! named as lost is as it was, and no key has what it never had.

use crate::devices::{CallKind, Devices, Fault, FaultKind, Loss, Watcher, World};
use crate::history::{HOME, key, value};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_error, scan};
use crate::rebuild;
use crate::rot::{Damage, Fixture, Outcome, most_unanswered};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, Lost, RepairPlan};
use thermocline_foundation::random::{Random, mix};
use xxhash_rust::xxh3::xxh3_64;

/// Puts `damage` into a file, repairs it, and looks at what is left.
pub fn run(
    fixture: &Fixture,
    directory: &Path,
    name: &str,
    damage: &Damage,
) -> Result<Outcome, Violation> {
    let Some(world) = fixture.damaged(directory, name, damage) else {
        return Ok(Outcome::Harmless);
    };
    let machine = Machine::new(world.clone(), fixture.seed());
    let planned = match machine.environment.plan_repair(Path::new(HOME), None, &mut |_| {}) {
        Ok(plan) => plan,
        Err(_) if matches!(damage, Damage::Flip(..)) && most_unanswered(name).is_some() => {
            return Err("a flipped bit is not repaired".to_owned());
        }
        Err(error) => {
            let outcome = refused(fixture, &machine, &world, &error)?;
            let is_alone = name.ends_with(".manifest") && !matches!(damage, Damage::Exchange(..));
            return if is_alone { rebuild::run(fixture, &machine, damage) } else { Ok(outcome) };
        }
    };
    if planned.is_empty() {
        judge(fixture, &machine, &planned)
            .map_err(|why| format!("nothing to repair, but {why}"))?;
        return Ok(Outcome::Harmless);
    }
    let cut = Arc::new(Cut::new(fixture, damage));
    machine.devices.watch(Some(Arc::clone(&cut) as Arc<dyn Watcher>));
    let plan = repair(&machine)?;
    machine.devices.watch(None);
    if said(&plan) != said(&planned) {
        return Err(format!("planned was {planned:?}, done {plan:?}"));
    }
    let is_of_map = matches!(&plan.steps[..], [step] if step.file.ends_with(".map"));
    if is_of_map && matches!(damage, Damage::Exchange(..)) {
        // Without a map nothing else could be looked at, and another file is damaged.
        return Ok(Outcome::Reported);
    }
    judge(fixture, &machine, &plan).map_err(|why| format!("{why}\nafter {plan:?}"))?;
    let image = cut.take().ok_or("a repair that changes nothing")?;
    let machine = Machine::new(image, fixture.seed());
    repair(&machine).map_err(|why| format!("after a power cut: {why}"))?;
    judge(fixture, &machine, &plan)
        .map_err(|why| format!("repaired again after a power cut: {why}\nafter {plan:?}"))?;
    with_failed_read(fixture, &world, damage, &planned)
        .map_err(|why| format!("a read fails once: {why}\nafter {planned:?}"))?;
    Ok(Outcome::Reported)
}

/// The damage of each piece, and what is lost with it.
fn said(plan: &RepairPlan) -> Vec<(String, Vec<Lost>)> {
    plan.steps.iter().map(|step| (step.damage.clone(), step.lost.clone())).collect()
}

/// A read that fails is no damage: what is done is what was planned, or the repair ends, and is
/// done when it is tried again.
fn with_failed_read(
    fixture: &Fixture,
    world: &World,
    damage: &Damage,
    planned: &RepairPlan,
) -> Result<(), Violation> {
    let machine = Machine::new(world.clone(), fixture.seed());
    machine.devices.record_made();
    repair(&machine)?;
    let kinds = machine.devices.kinds();
    let is_read = |(at, kind): (usize, &CallKind)| (*kind == CallKind::Read).then_some(at as u64);
    let reads: Vec<_> = kinds.iter().enumerate().filter_map(is_read).collect();
    let mut random = Random::new(mix(fixture.seed() ^ drawn_by(damage) ^ 0x0EAD));
    let at = reads[random.below(reads.len() as u64) as usize];
    let machine = Machine::new(world.clone(), fixture.seed());
    let kind = FaultKind::Error(Errno::IO.raw_os_error());
    machine.devices.arm(Some(Fault { at, sticky: false, kind }));
    let done = machine.environment.repair(Path::new(HOME), None, &mut |_| {});
    machine.devices.arm(None);
    match done {
        Ok(plan) if said(&plan) != said(planned) => Err(format!("done is {plan:?}")),
        Ok(plan) => judge(fixture, &machine, &plan),
        Err(error) => {
            check_error(&error)?;
            repair(&machine)?;
            judge(fixture, &machine, planned)
        }
    }
}

fn repair(machine: &Machine) -> Result<RepairPlan, Violation> {
    let done = machine.environment.repair(Path::new(HOME), None, &mut |_| {});
    done.map_err(|error| format!("what was planned is not done: {error}"))
}

/// A refusal has a reason, and leaves everything as it is.
fn refused(
    fixture: &Fixture,
    machine: &Machine,
    before: &World,
    error: &thermocline::Error,
) -> Result<Outcome, Violation> {
    check_error(error)?;
    if machine.environment.repair(Path::new(HOME), None, &mut |_| {}).is_ok() {
        return Err(format!("what is refused as a plan is done: {error}"));
    }
    let after = machine.devices.world();
    for (directory, name, _) in fixture.files() {
        if after.bytes(&directory, &name) != before.bytes(&directory, &name) {
            return Err(format!("{name} has changed though the repair is refused: {error}"));
        }
    }
    Ok(Outcome::Reported)
}

/// The database opens for writing, verifies, and has what the plan leaves, then and later.
fn judge(fixture: &Fixture, machine: &Machine, plan: &RepairPlan) -> Result<(), Violation> {
    let opened = || machine.open().map_err(|error| format!("it does not open: {error}"));
    let db = opened()?;
    check_bytes(&db)?;
    compare(fixture, &db, plan)?;
    let shown = |db: &Db| scan(db).map_err(|error| format!("a scan: {error}"));
    let mut expected = shown(&db)?;
    let fail = |error: thermocline::Error| format!("a write after it: {error}");
    let (key, value) = (key(1), value(&key(1), 990_000, 700, false));
    db.put(&key, &value).map_err(fail)?;
    expected.insert(key, value);
    db.compact_range(None, None, &mut |_| {}).map_err(fail)?;
    db.close().map_err(fail)?;
    let db = opened()?;
    check_bytes(&db)?;
    match shown(&db)? == expected {
        true => db.close().map_err(fail),
        false => Err("what it shows changes with a compaction and an opening".to_owned()),
    }
}

/// What differs from what the database had is named as lost.
fn compare(fixture: &Fixture, db: &Db, plan: &RepairPlan) -> Result<(), Violation> {
    let known: &Known = fixture.known();
    let lost: Vec<&Lost> = plan.steps.iter().flat_map(|step| &step.lost).collect();
    // A log is cut at its first hole: what was written up to there is there.
    let is_cut = lost.iter().find_map(|lost| match lost {
        Lost::Writes { after } => Some(after.unwrap_or(0)),
        _ => None,
    });
    let least = is_cut.map_or(known.count(), |after| known.least_at(after, fixture.sequence()));
    if plan.steps.iter().all(|step| step.lost.is_empty() || step.file.ends_with(".log")) {
        // What is left is a state that the database was in.
        known.check_state(db, least)?;
    }
    let is_any = lost.iter().any(|lost| matches!(lost, Lost::MayBeOlder));
    let unknown = lost.iter().filter(|lost| matches!(lost, Lost::UnknownRecord)).count();
    let is_named = |key: &[u8]| {
        lost.iter().any(|lost| match lost {
            Lost::Record { key: lost, .. } => lost == key,
            Lost::Keys { after, until, .. } => {
                after.as_ref().is_none_or(|after| key > &after[..]) && key <= &until[..]
            }
            _ => false,
        })
    };
    let shown = scan(db).map_err(|error| format!("a scan: {error}"))?;
    if let Some((key, _)) = shown.iter().find(|(key, value)| !known.has_had(key, value)) {
        return Err(format!("{} has what it never had", key.escape_ascii()));
    }
    let mut unnamed = 0;
    for number in 0..known.keys {
        let key = key(number);
        let found = db.get(&key).map_err(|error| format!("a look-up: {error}"))?;
        if found.as_deref() != shown.get(&key).map(Vec::as_slice) {
            return Err(format!("a scan and a look-up of {} differ", key.escape_ascii()));
        }
        let was_written_since = || known.has_had_since(&key, found.as_deref(), least);
        if found.as_deref() == known.model().get(&key).map(Vec::as_slice)
            || is_cut.is_some() && was_written_since()
        {
            continue;
        }
        unnamed += usize::from(!is_named(&key));
    }
    if is_any || unnamed <= unknown {
        return Ok(());
    }
    Err(format!("{unnamed} keys are older or gone that are not named as lost"))
}

/// A number of the damage's own.
fn drawn_by(damage: &Damage) -> u64 {
    xxh3_64(format!("{damage:?}").as_bytes())
}

/// Takes an image of the devices after one of the changes, each as likely as any other.
pub(crate) struct Cut {
    /// What was not synced is lost, too.
    is_power: bool,
    chosen: Mutex<Chosen>,
}

struct Chosen {
    random: Random,
    changes: u64,
    image: Option<World>,
}

impl Cut {
    /// For each damage another cut. What a process that was killed had not synced would be lost
    /// with the power, and no repair could know.
    pub fn new(fixture: &Fixture, damage: &Damage) -> Self {
        let random = Random::new(mix(fixture.seed() ^ drawn_by(damage)));
        let chosen = Mutex::new(Chosen { random, changes: 0, image: None });
        Self { is_power: !fixture.is_killed(), chosen }
    }

    /// The image; none where nothing has changed.
    pub fn take(&self) -> Option<World> {
        self.chosen.lock().image.take()
    }
}

impl Watcher for Cut {
    fn changed(&self, devices: &Devices, _call: u64, _kind: CallKind) {
        let mut chosen = self.chosen.lock();
        chosen.changes += 1;
        let changes = chosen.changes;
        if chosen.random.below(changes) == 0 {
            let loss = if self.is_power { Loss::All } else { Loss::None };
            chosen.image = Some(devices.look(|world| world.after(loss)));
        }
    }
}
