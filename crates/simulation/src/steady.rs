//! What must change nothing: calls that stall, clocks that jump, caches of any size and kind.
//!
//! ```text
//!   a call stalls for 1 ms to 60 s ─────────────┐
//!   the clock jumps forward (a suspended laptop)├─ at any call of a history
//!   the wall clock is set, hours either way ────┘
//!   the same while writers are paced ───────────── each waits for its turn and no longer
//!   a cache of 128 KiB, and one for everything ─── the same answers, the same tables
//!   copies of blocks on the fast tier, and none ── the same answers
//!   nothing is flushed until writers wait for it ── full memtables lie over each other
//!   reads of an earlier moment, many times ──────── those of now find what is newest
//!   reads inside the steps of jobs ──────────────── inside.rs
//! ```
//! 1. No answer changes, no call fails, nothing acknowledged is lost.
//! 2. A write waits for no longer than the throttle makes it: what the write before it cost at the
//!    least rate that there is. The stall itself does not count, wherever it strikes: a store
//!    cannot hurry its device. Reads do not wait at all.
//! 3. Databases here never reach `level0_stop`, where writers wait for as long as compactions take;
//!    so the bound is close, and a throttle that reads the wrong clock is found by it.

use crate::devices::{CallKind, Fault, FaultKind, Loss, World};
use crate::errors::check_after;
use crate::history::{
    HOME, Shape, Step, TIERS, Write, history, is_hybrid, key, settings, value, with_fast_cache,
};
use crate::life::{Life, Stop, name_of};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes};
use crate::{inside, trace};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Db, Durability, FastCacheSettings, Settings, Tier};
use thermocline_foundation::random::{Random, mix};
use xxhash_rust::xxh3::Xxh3;

/// The histories that are disturbed.
pub const SHAPE: Shape =
    Shape { steps: 30, keys: 16, crashes: false, reopens: true, large_values: false };

/// The histories that caches of different sizes serve: more bytes than the smallest cache holds.
const CACHED: Shape =
    Shape { steps: 150, keys: 40, crashes: false, reopens: true, large_values: true };

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

/// Writers that are paced get this rate at least, in bytes a second (`shared/write_throttle.rs`).
const RATE_MIN: u64 = 1 << 20;

/// The longest that a read may wait, in simulated time: looking at the clock takes 100 ns.
const READ_NS_MAX: u64 = MS;

/// A value that alone is more than the fast tier is to take of `paced`.
const FILLING_BYTES: u64 = 30_000;

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A call of the history stalls, or clocks jump at it.
    At(Fault),
    /// Writers are paced, and it happens between two writes.
    Paced(FaultKind),
    /// Caches as small as allowed and as large as everything.
    Caches,
    /// With a cache of blocks on the fast tier, and without.
    FastCache,
    /// Background work gets no step that writers do not wait for.
    Behind,
    /// The same few keys are read at a snapshot, and then now.
    Moments,
    /// A client reads inside the steps of jobs.
    Inside,
}

/// All items over calls of these kinds: at each call a stall and a jump, drawn from `seed`.
pub fn items(seed: u64, kinds: &[CallKind]) -> Vec<Item> {
    let mut random = Random::new(mix(seed ^ 0x57A1));
    let mut items = vec![Item::Caches, Item::Behind];
    for _ in 0..4 {
        items.extend([stall(&mut random), jump(&mut random)].map(Item::Paced));
    }
    let hours = [-1, 1, -5, 5].map(|hours| FaultKind::SetWall(hours * HOUR as i64));
    items.extend(hours.map(Item::Paced));
    items.extend([Item::Moments, Item::Inside]);
    for at in 0..kinds.len() as u64 {
        for kind in [stall(&mut random), jump(&mut random)] {
            items.push(Item::At(Fault { at, sticky: false, kind }));
        }
    }
    items.push(Item::FastCache);
    items
}

/// 1 ms to 60 s, each order of magnitude as often.
fn stall(random: &mut Random) -> FaultKind {
    let longest = MS * 10u64.pow(random.below(5) as u32 + 1);
    FaultKind::Stall((longest / 10 + random.below(longest * 9 / 10)).min(60_000 * MS))
}

fn jump(random: &mut Random) -> FaultKind {
    let set_ns = (MS + random.below(48 * HOUR)) as i64;
    match random.below(3) {
        0 => FaultKind::Jump(MS + random.below(30 * 24 * HOUR)),
        1 => FaultKind::SetWall(set_ns),
        _ => FaultKind::SetWall(-set_ns),
    }
}

/// The settings of `seed`, but that writers are slowed down and never stopped.
fn paced_settings(seed: u64) -> Settings {
    Settings { level0_stop: 1000, ..settings(seed) }
}

/// What a write may wait after one of at most `bytes`, in nanoseconds.
fn write_ns_max(bytes: usize) -> u64 {
    bytes as u64 * 1_000_000_000 / RATE_MIN + MS
}

/// Bytes of a batch as the throttle counts them, or more.
fn batch_bytes(writes: &[Write]) -> usize {
    let bytes = |(key, value): &Write| 64 + key.len() + value.as_ref().map_or(0, Vec::len);
    64 + writes.iter().map(bytes).sum::<usize>()
}

/// A life of `seed` in which writes may only wait for their turn.
fn paced_life(seed: u64, steps: &[Step]) -> (Life, Arc<RwLock<Known>>) {
    let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
    let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
    life.settings = paced_settings(seed);
    let batches = steps.iter().map(|step| match step {
        Step::Write(writes, _) => batch_bytes(writes),
        _ => 0,
    });
    life.write_ns_max = write_ns_max(batches.max().unwrap_or(0));
    (life, known)
}

/// The kinds of calls that the history of `seed` makes when nothing happens to it.
pub fn kinds_of(seed: u64) -> Result<Vec<CallKind>, Violation> {
    let steps = history(seed, &SHAPE);
    let (mut life, _) = paced_life(seed, &steps);
    life.machine.devices.record_made();
    carry_out(&mut life, &steps)?;
    let kinds = life.machine.devices.kinds();
    life.kill();
    Ok(kinds)
}

/// Carries out the steps; each must succeed, and reads must not wait.
fn carry_out(life: &mut Life, steps: &[Step]) -> Result<(), Violation> {
    let said = |index: usize, stop| match stop {
        Stop::Violated(why) => format!("step {index}: {why}"),
        Stop::Failed(error) => format!("step {index} fails although no call did: {error}"),
    };
    life.create().map_err(|stop| said(0, stop))?;
    for (index, step) in steps.iter().enumerate() {
        trace::line(|| format!("{index:4} {}", name_of(step)));
        let start_ns = life.machine.waited_ns();
        life.step(step).map_err(|stop| said(index, stop))?;
        let waited_ns = life.machine.waited_ns() - start_ns;
        let is_read = matches!(
            step,
            Step::Get(_) | Step::MultiGet(_) | Step::Scan(..) | Step::Cursor | Step::Advance(_)
        );
        if is_read && waited_ns > READ_NS_MAX {
            return Err(format!("step {index}: a read waited for {} µs", waited_ns / 1_000));
        }
    }
    Ok(())
}

/// Tries one item on `seed`.
pub fn run(seed: u64, item: &Item) -> Result<(), Violation> {
    match item {
        Item::At(fault) => disturbed(seed, fault),
        Item::Paced(what) => paced(seed, *what),
        Item::Caches => caches(seed),
        Item::FastCache => fast_cache(seed).map(drop),
        Item::Behind => behind(seed),
        Item::Moments => moments(seed),
        Item::Inside => inside::run(seed).map(drop),
    }
}

/// The history of `seed` with `fault` in it: no answer may change.
fn disturbed(seed: u64, fault: &Fault) -> Result<(), Violation> {
    let steps = history(seed, &SHAPE);
    let (mut life, known) = paced_life(seed, &steps);
    life.machine.devices.arm(Some(fault.clone()));
    carry_out(&mut life, &steps)?;
    if !life.machine.devices.has_struck() {
        return Err(format!("call {} never came", fault.at));
    }
    finish(life, &known)
}

/// All is there, now and after a kill or a power cut.
fn finish(mut life: Life, known: &RwLock<Known>) -> Result<(), Violation> {
    life.check_all().map_err(|stop| format!("at the end: {stop:?}"))?;
    let (seed, world) = (life.seed, life.machine.devices.world());
    life.kill();
    let known = known.read_recursive();
    for (loss, least, how) in
        [(Loss::None, known.acknowledged, "kill"), (Loss::All, known.durable, "power cut")]
    {
        check_after(&world.after(loss), &known, least, seed)
            .map_err(|why| format!("after a {how}: {why}"))?;
    }
    Ok(())
}

/// Piles tables up in level 0 until writers are slowed down, and `more`.
fn pile_up(
    life: &mut Life,
    more: usize,
    put: impl Fn(usize, u64) -> Step,
) -> Result<(), Violation> {
    let (first, last) = (key(0), key(SHAPE.keys - 1));
    let slowdown = life.settings.level0_slowdown as usize;
    // Loads go to level 0 at once where one of its tables overlaps them, without background work.
    step(life, &put(0, 100))?;
    step(life, &put(SHAPE.keys as usize - 1, 100))?;
    step(life, &Step::Flush)?;
    for number in 0..slowdown + more {
        let record = |key: &Vec<u8>| (key.clone(), value(key, 810_000 + number, 2_000, false));
        step(life, &Step::Ingest([&first, &last].map(record).to_vec()))?;
    }
    Ok(())
}

/// A step to which nothing was done: it must succeed.
fn step(life: &mut Life, step: &Step) -> Result<(), Violation> {
    life.step(step).map_err(|stop| match stop {
        Stop::Violated(why) => why,
        Stop::Failed(error) => format!("it fails although no call did: {error}"),
    })
}

/// Tables are piled up in level 0 until writers are slowed down, or the fast tier is over its
/// watermark; `what` happens between writes.
fn paced(seed: u64, what: FaultKind) -> Result<(), Violation> {
    let (mut life, known) = paced_life(seed, &[]);
    if is_hybrid(seed) {
        life.settings.hybrid.high_watermark_percent = 5;
        life.experiments.low_watermark_percent = None;
        life.settings.tiers[0].capacity = ByteSize::mib(1);
    }
    let mut random = Random::new(mix(seed ^ 0x9ACE));
    life.create().map_err(|stop| format!("{stop:?}"))?;
    let more = 2 + random.below(4) as usize;
    let put = |number: usize, len: u64| {
        let key = key(number as u64 % SHAPE.keys);
        let value = value(&key, 800_000 + number, len as usize, false);
        Step::Write(vec![(key, Some(value))], Durability::Buffered)
    };
    if is_hybrid(seed) {
        // What is in memory counts as coming, so writing goes on beyond the high watermark.
        life.write_ns_max = write_ns_max(FILLING_BYTES as usize + 200);
        step(&mut life, &put(0, FILLING_BYTES))?;
        step(&mut life, &Step::Background(12))?;
    } else {
        pile_up(&mut life, more, put)?;
    }
    let delayed_before_s = life.db().stats().operations.delayed_s;
    life.write_ns_max = write_ns_max(0);
    let moment = 1 + random.below(3);
    for number in 0..12u64 {
        if number == moment {
            let at = life.machine.devices.calls();
            match what {
                // The device is reached by the next write, or by what goes on while it waits.
                FaultKind::Stall(_) => {
                    let fault = Fault { at: at + random.below(4), sticky: false, kind: what };
                    life.machine.devices.arm(Some(fault));
                }
                FaultKind::Jump(ns) => life.machine.clock.jump(ns),
                FaultKind::SetWall(ns) => life.machine.clock.set_wall(ns),
                other => return Err(format!("{other:?} does not change the time")),
            }
        }
        let len = 1 + random.below(4_000);
        let write = put(number as usize, len);
        let Step::Write(writes, _) = &write else { continue };
        let bytes = batch_bytes(writes);
        step(&mut life, &write).map_err(|why| format!("write {number}: {why}"))?;
        // The next waits for what this one cost.
        life.write_ns_max = write_ns_max(bytes);
        step(&mut life, &Step::Get(key(random.below(SHAPE.keys))))?;
    }
    if life.db().stats().operations.delayed_s == delayed_before_s {
        return Err("no writer was paced: nothing was tried".to_owned());
    }
    finish(life, &known)
}

/// Large values of few keys, and no background work but what writers wait for: as many memtables as
/// there may be are full and hold the same keys. Every read is compared after every write.
fn behind(seed: u64) -> Result<(), Violation> {
    const BEHIND: Shape =
        Shape { steps: 40, keys: 6, crashes: false, reopens: false, large_values: true };
    let known = Arc::new(RwLock::new(Known::new(BEHIND.keys)));
    let mut life = Life::new(seed, &BEHIND, Arc::clone(&known));
    life.settings.memory = ByteSize::mib(1);
    let steps = history(seed, &BEHIND).into_iter();
    let steps = steps.filter(|step| {
        matches!(step, Step::Write(..) | Step::Snapshot | Step::ReleaseSnapshot | Step::Get(_))
    });
    let said = |index: usize, stop| format!("step {index}: {stop:?}");
    life.create().map_err(|stop| said(0, stop))?;
    for (index, step) in steps.enumerate() {
        life.step(&step).map_err(|stop| said(index, stop))?;
        life.check_all().map_err(|stop| said(index, stop))?;
    }
    finish(life, &known)
}

/// Records are written anew while a snapshot has what was there before, and both go down together.
/// Then the snapshot is read so often that records would be worth moving up, and then now is read.
fn moments(seed: u64) -> Result<(), Violation> {
    const MOMENTS: Shape =
        Shape { steps: 40, keys: 16, crashes: false, reopens: true, large_values: false };
    const READS: usize = 4;
    let known = Arc::new(RwLock::new(Known::new(MOMENTS.keys)));
    let mut life = Life::new(seed, &MOMENTS, Arc::clone(&known));
    life.run(&MOMENTS).map_err(|(step, stop)| format!("step {step}: {stop:?}"))?;
    for round in 0..3 {
        step(&mut life, &Step::Snapshot)?;
        for number in (round % 2..MOMENTS.keys).step_by(2) {
            let key = key(number);
            let value = value(&key, 820_000 + round as usize, 300, false);
            step(&mut life, &Step::Write(vec![(key, Some(value))], Durability::Buffered))?;
        }
        step(&mut life, &Step::Compact)?;
        let said = |stop| format!("round {round}: {stop:?}");
        life.read_moment(READS).map_err(said)?;
        step(&mut life, &Step::Settle)?;
        life.check_all().map_err(said)?;
        step(&mut life, &Step::ReleaseSnapshot)?;
    }
    finish(life, &known)
}

/// The history of `seed` with the smallest cache and with one for everything; then the same tables
/// with both.
fn caches(seed: u64) -> Result<(), Violation> {
    let sizes = [ByteSize::mib(1), ByteSize::gib(1)];
    let mut worlds = Vec::new();
    for memory in sizes {
        let known = Arc::new(RwLock::new(Known::new(CACHED.keys)));
        let mut life = Life::new(seed, &CACHED, Arc::clone(&known));
        life.settings.memory = memory;
        let said = |(step, stop)| format!("step {step} with memory {memory}: {stop:?}");
        life.run(&CACHED).map_err(said)?;
        life.check_all().map_err(|stop| format!("with memory {memory}: {stop:?}"))?;
        life.close().map_err(|stop| format!("closing: {stop:?}"))?;
        worlds.push(life.machine.devices.world());
    }
    for world in worlds {
        let [small, large] = sizes.map(|memory| answers(&world, memory, seed));
        let (small, large) = (small?, large?);
        if small.0 != large.0 {
            return Err("a cache for everything changes answers".to_owned());
        }
        trace::line(|| format!("cache misses: {} and {}", small.1, large.1));
    }
    Ok(())
}

/// A digest of what the database answers with so much memory, and how often it missed its cache.
fn answers(world: &World, memory: ByteSize, seed: u64) -> Result<(u64, u64), Violation> {
    let mut world = world.after(Loss::None);
    let kept = world.bytes(Path::new(HOME), "settings.toml");
    let kept = String::from_utf8(kept).map_err(|error| format!("settings.toml: {error}"))?;
    let other = |line: &str| match line.starts_with("memory ") {
        true => format!("memory = \"{memory}\"\n"),
        false => format!("{line}\n"),
    };
    let text: String = kept.lines().map(other).collect();
    if text.lines().count() != kept.lines().count() || !text.contains(&memory.to_string()) {
        return Err("settings.toml has no line for the memory".to_owned());
    }
    world.cut(Path::new(HOME), "settings.toml", 0);
    world.damage(Path::new(HOME), "settings.toml", 0, text.as_bytes());
    let machine = Machine::new(world, seed);
    let db = machine.open().map_err(|error| format!("with memory {memory}: {error}"))?;
    let answers = ask(&db, seed).map_err(|error| format!("with memory {memory}: {error}"))?;
    check_bytes(&db)?;
    let misses = db.stats().cache.classes.values().map(|hits| hits.misses).sum();
    db.close().map_err(|error| format!("it does not close: {error}"))?;
    Ok((answers, misses))
}

/// The history of `seed` with a cache of blocks on the fast tier, and without: all answers are
/// those of the model, and so are they when copies give them. How many blocks copies gave.
fn fast_cache(seed: u64) -> Result<u64, Violation> {
    let mut with = with_fast_cache(seed, settings(seed));
    with.memory = ByteSize::mib(1);
    if with.tiers.len() == 1 {
        with.tiers[0].capacity = ByteSize::mib(2);
        with.tiers.push(Tier::new(TIERS[1], ByteSize::mib(256)).driver("memory"));
    }
    let without = Settings { fast_cache: FastCacheSettings::default(), ..with.clone() };
    let said = |why| format!("with a cache of blocks: {why}");
    let (answers, hits) = answers_of_life(seed, with).map_err(said)?;
    if answers != answers_of_life(seed, without)?.0 {
        return Err("a cache of blocks changes answers".to_owned());
    }
    Ok(hits)
}

/// A digest of what there is to be read after the history of `seed` with these settings, which each
/// of several rounds must give, and how many blocks were read from copies.
fn answers_of_life(seed: u64, settings: Settings) -> Result<(u64, u64), Violation> {
    let known = Arc::new(RwLock::new(Known::new(CACHED.keys)));
    let mut life = Life::new(seed, &CACHED, Arc::clone(&known));
    life.settings = settings;
    life.run(&CACHED).map_err(|(step, stop)| format!("step {step}: {stop:?}"))?;
    step(&mut life, &Step::Compact)?;
    let mut rounds = BTreeSet::new();
    for _ in 0..4 {
        rounds.insert(ask(life.db(), seed).map_err(|error| error.to_string())?);
        // What was wanted is written.
        step(&mut life, &Step::Settle)?;
    }
    life.check_all().map_err(|stop| format!("at the end: {stop:?}"))?;
    let hits = life.db().stats().fast_cache.map_or(0, |cache| cache.hits);
    life.close().map_err(|stop| format!("closing: {stop:?}"))?;
    match (rounds.pop_first(), rounds.is_empty()) {
        (Some(answers), true) => Ok((answers, hits)),
        _ => Err("one answer is not like another".to_owned()),
    }
}

/// Reads of all kinds, many of them twice.
fn ask(db: &Db, seed: u64) -> thermocline::Result<u64> {
    let mut random = Random::new(mix(seed ^ 0xCAC4E));
    let mut digest = Xxh3::new();
    for _ in 0..300 {
        let key = key(random.below(CACHED.keys));
        match random.below(12) {
            0 => {
                let scan = db.scan().from(key);
                let scan = if random.below(2) == 0 { scan } else { scan.reverse() };
                for record in scan.into_iter().take(10) {
                    let (key, value) = record?;
                    digest.update(&key);
                    digest.update(&value);
                }
            }
            _ => digest.update(db.get(&key)?.as_deref().unwrap_or(b"absent")),
        }
    }
    Ok(digest.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_of_all_lengths_and_the_wall_clock_goes_both_ways() {
        let items = items(3, &[CallKind::Write; 300]);
        let kinds: Vec<_> = items
            .iter()
            .filter_map(|item| match item {
                Item::At(fault) => Some(fault.kind),
                _ => None,
            })
            .collect();
        let any = |is: &dyn Fn(&FaultKind) -> bool| kinds.iter().any(is);
        assert!(any(&|kind| matches!(kind, FaultKind::Stall(ns) if *ns < 10 * MS)));
        assert!(any(&|kind| matches!(kind, FaultKind::Stall(ns) if *ns > 50_000 * MS)));
        assert!(!any(&|kind| matches!(kind, FaultKind::Stall(ns) if *ns > 60_000 * MS)));
        assert!(any(&|kind| matches!(kind, FaultKind::SetWall(ns) if *ns < 0)));
        assert!(any(&|kind| matches!(kind, FaultKind::SetWall(ns) if *ns > 0)));
        assert!(any(&|kind| matches!(kind, FaultKind::Jump(_))));
    }

    #[test]
    fn the_small_cache_is_too_small_for_the_history() {
        let known = Arc::new(RwLock::new(Known::new(CACHED.keys)));
        let mut life = Life::new(1, &CACHED, known);
        life.settings.memory = ByteSize::mib(1);
        life.run(&CACHED).unwrap();
        life.close().unwrap();
        let world = life.machine.devices.world();
        let (small, few) = answers(&world, ByteSize::mib(1), 1).unwrap();
        let (large, none) = answers(&world, ByteSize::gib(1), 1).unwrap();
        assert_eq!(small, large);
        assert!(few > none + 20, "{few} misses against {none}: the caches do the same");
    }

    #[test]
    fn copies_give_answers_in_histories_of_both_presets() {
        for hybrid in [false, true] {
            let seeds = (1..40).filter(|seed| is_hybrid(*seed) == hybrid);
            let hits: Vec<_> = seeds.map(|seed| (seed, fast_cache(seed).unwrap())).collect();
            assert!(hits.iter().any(|(_, hits)| *hits > 20), "{hits:?}");
        }
    }
}
