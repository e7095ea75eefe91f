//! One cell of a run: one engine, one workload, one round, in a process of its own.
//!
//! The parent (`plan`) puts the tiers' directories in place and starts the binary that has the
//! engine as
//!
//! ```text
//!   BINARY cell --json '{"purpose":"run", ...}'
//! ```
//! The child opens the store, works, closes, and writes lines to its standard output. Lines that
//! count begin with `@cell `, followed by JSON of a [`Message`]; anything else comes from an engine
//! and is left alone. A cell that ends without `measured` or `failed` has crashed.

use crate::bound::bound;
use crate::keys::{Keys, Order};
use crate::measure::{Length, Meter, Occupancy, Runner, Subject, process, runner::Sum};
use crate::results::{Measured, SlowDevice, Traffic};
use crate::store::{Durability, EngineKind, Label, Layout, OpenOptions, REGION, TierSpace, find};
use crate::values::{Sizes, Values};
use crate::versions::{Inserted, THREADS_MAX, Versions};
use crate::workloads::{self, Fill, Plan, Start, Workload};
use crate::{Outcome, files};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// What begins a line that counts.
pub const MARK: &str = "@cell ";

/// Why a cell runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// To make the loaded state; not a row.
    Load,
    /// To measure the workload.
    Run,
}

/// Everything a cell needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Why it runs.
    pub purpose: Purpose,
    /// The engine's label.
    pub engine: String,
    /// The workload's name.
    pub workload: String,
    /// From 1.
    pub round: u32,
    /// Seed of operations and of which records are popular.
    pub seed: u64,
    /// Records, before the workload rounds them.
    pub records: u64,
    /// Bytes of a key where the workload does not say.
    pub key_bytes: u32,
    /// Bytes of a value where the workload does not say.
    pub value_bytes: u32,
    /// Share that values shrink to when compressed.
    pub compression_ratio: f64,
    /// Threads.
    pub threads: u32,
    /// Memory for the engine where its label does not say.
    pub memory: ByteSize,
    /// What the process may use in all; for the launcher, the child does not set it.
    pub memory_limit: Option<ByteSize>,
    /// Durability where the workload does not say.
    pub durability: Durability,
    /// Past the page cache.
    pub direct: bool,
    /// The tiers' directories.
    pub tiers: Vec<TierSpace>,
    /// Operations of the measured part; none: as `seconds` says, or records.
    pub operations: Option<u64>,
    /// Seconds of the measured part at most.
    pub seconds: Option<f64>,
    /// Operations of warming up.
    pub warm_up_operations: Option<u64>,
    /// Seconds of warming up at most.
    pub warm_up_seconds: Option<f64>,
    /// Operations a second that are due.
    pub rate: Option<f64>,
    /// Block devices of the tiers.
    pub devices: Vec<String>,
    /// What the slow tier can do.
    pub slow_device: Option<SlowDevice>,
    /// Wait for background work after the measured part, and count it in the traffic.
    pub settle: bool,
    /// Look every loaded record up at the end, and check it.
    #[serde(default)]
    pub read_back: bool,
    /// The loaded state is what a crash right after the load leaves: nothing is written out, and
    /// the store is not closed.
    #[serde(default)]
    pub crashed: bool,
    /// Seconds after the measured part, and after background work, in which the threads' wake-ups
    /// are counted.
    #[serde(default)]
    pub rest_seconds: Option<f64>,
    /// Seconds that the process may say nothing before it is ended.
    pub silence_s: f64,
}

/// Opening, settling and closing a large store say nothing.
pub const SILENCE_S: f64 = 900.0;

/// A line of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// It is at work.
    Progress {
        /// `load`, `warm-up`, `run`, `settle`, `rest` or `read back`.
        part: String,
        /// Operations done.
        done: u64,
        /// Share of the part that is done, if it can be told.
        share: Option<f64>,
        /// Operations a second so far.
        ops_per_s: f64,
    },
    /// It is done.
    Measured(Box<Measured>),
    /// It failed.
    Failed(String),
}

/// A cell taken apart: engine, workload and what follows from both.
pub struct Prepared<'a> {
    /// The engine.
    pub kind: &'a dyn EngineKind,
    /// Its layout.
    pub layout: Layout,
    /// The workload; of a load, the one that fills the store for it.
    pub workload: Workload,
    /// Lengths of values.
    pub sizes: Sizes,
    /// Records.
    pub records: u64,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// What the engine is told.
    pub options: OpenOptions,
}

impl Cell {
    /// Takes the cell apart; says what is valid where something is not.
    pub fn prepare<'a>(&self, engines: &[&'a dyn EngineKind]) -> Outcome<Prepared<'a>> {
        let mut label: Label = self.engine.parse()?;
        let memory = label.take_memory()?.unwrap_or(self.memory);
        let (kind, layout) = find(engines, &label)?;
        let mut workload = workloads::parse(&self.workload)?;
        let records = workload.records(self.records);
        let key_bytes = workload.key_bytes.unwrap_or(self.key_bytes);
        let mut sizes = workload.sizes.clone().unwrap_or(Sizes::Fixed(self.value_bytes));
        if let Sizes::Grouped { records: loaded, .. } = &mut sizes {
            *loaded = records;
        }
        let loading = self.purpose == Purpose::Load;
        // Loaded states are the same whatever runs on them.
        let threads = workload.threads.filter(|_| !loading).unwrap_or(self.threads);
        if threads == 0 || threads >= THREADS_MAX {
            let most = THREADS_MAX - 1;
            return Err(format!("{threads} threads are not possible; 1 to {most} are").into());
        }
        if records == 0 || records > crate::keys::RECORDS_MAX {
            return Err(format!("{records} records are not possible; 1 to 2^40 are").into());
        }
        let durability = match (loading, workload.durability) {
            (true, _) => Durability::Buffered,
            (false, own) => own.unwrap_or(self.durability),
        };
        if loading {
            workload = loading_of(&workload);
        }
        let options = OpenOptions {
            tiers: self.tiers.clone(),
            memory,
            durability,
            direct: self.direct,
            threads,
            key_bytes,
            value_bytes: sizes.mean().round() as u32,
            records,
            loading,
            options: label.options,
        };
        Ok(Prepared { kind, layout, workload, sizes, records, key_bytes, options })
    }
}

/// The workload that makes the loaded state of another.
fn loading_of(workload: &Workload) -> Workload {
    let mut loading =
        Workload::filling(&workload.name, workload.source, Fill::Once, workload.order);
    loading.sizes.clone_from(&workload.sizes);
    loading
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (engine, workload) = (self.kind.name(), &self.workload.name);
        f.debug_struct("Prepared")
            .field("engine", &engine)
            .field("workload", workload)
            .finish_non_exhaustive()
    }
}

impl Prepared<'_> {
    /// Bytes of a record on average.
    pub fn record_bytes(&self) -> f64 {
        f64::from(self.key_bytes) + self.sizes.mean()
    }

    /// Bytes of all loaded records.
    pub fn data_bytes(&self) -> u64 {
        (self.records as f64 * self.record_bytes()) as u64
    }

    /// Text that is the same for the same loaded records.
    pub fn data_text(&self) -> String {
        let sizes = match &self.sizes {
            Sizes::Given(_) => self.workload.name.clone(),
            sizes => format!("{sizes:?}"),
        };
        let order = match self.workload.order {
            Order::Sequential => "in order".to_owned(),
            Order::Scattered { group } => format!("scattered by {group}"),
        };
        format!("{sizes}, {order}")
    }
}

/// Runs a cell in this process; `say` hears its messages but the last.
pub fn run(
    cell: &Cell,
    engines: &[&dyn EngineKind],
    say: &mut dyn FnMut(Message),
) -> Outcome<Measured> {
    let prepared = cell.prepare(engines)?;
    if let Some(reason) = prepared.kind.unavailable() {
        return Err(reason.into());
    }
    let meter = Meter::new(&cell.devices)?;
    let clock = SystemClock::new();
    let store = prepared.kind.open(&prepared.options)?;
    let mut measured = Measured { rate_per_s: cell.rate, ..Measured::default() };
    measured.preparation_s.open = clock.now_ns() as f64 / 1e9;
    let workload = prepared.workload.clone();
    let (records, threads) = (prepared.records, prepared.options.threads);
    let plan = Arc::new(Plan::new(workload, records, threads, cell.seed));
    let loaded = plan.workload().start == Start::Loaded;
    let subject = Subject {
        store,
        keys: Keys::new(records, prepared.key_bytes, plan.workload().order),
        values: Values::new(prepared.sizes.clone(), cell.compression_ratio),
        versions: Versions::new(records, loaded, plan.workload().changes()),
        inserted: Inserted::new(records, threads),
        plan,
    };
    let mut runner = Runner::new(subject);
    let outcome = work(cell, &mut runner, &meter, &clock, &mut measured, say);
    let subject = runner.into_subject()?;
    let live = records as f64 + subject.inserted.total() as f64;
    measured.engine_memory_bytes = subject.store.memory_bytes();
    measured.index_bytes = subject.store.index_bytes();
    if cell.crashed && cell.purpose == Purpose::Load {
        // The process ends with it open.
        std::mem::forget(subject.store);
        outcome?;
        return Ok(measured);
    }
    let closed = subject.store.close();
    outcome?;
    closed?;
    let mut allocated = 0;
    for tier in cell.tiers.iter().filter(|tier| tier.name != REGION) {
        allocated += files::allocated_bytes(&tier.path)?;
    }
    measured.space_amplification =
        (allocated > 0).then(|| allocated as f64 / (live * prepared.record_bytes()));
    if let Some(device) = cell.slow_device.filter(|_| prepared.layout != Layout::Fast) {
        let fast = cell.tiers.iter().filter(|tier| tier.name == "fast");
        // Within a limit the page cache counts too.
        let memory = cell.memory_limit.unwrap_or(cell.memory);
        let resident = memory.0 + fast.map(|tier| tier.capacity.0).sum::<u64>();
        let reached = measured.ops_per_s;
        measured.bound = bound(&subject.plan, prepared.record_bytes(), resident, &device, reached);
    }
    Ok(measured)
}

/// Warms up, runs, and settles.
fn work(
    cell: &Cell,
    runner: &mut Runner,
    meter: &Meter,
    clock: &SystemClock,
    measured: &mut Measured,
    say: &mut dyn FnMut(Message),
) -> Outcome<()> {
    let ends = runner.subject().plan.workload().ends();
    let records = runner.subject().plan.records();
    let warms = cell.warm_up_operations.is_some() || cell.warm_up_seconds.is_some();
    if warms && !ends && cell.purpose == Purpose::Run {
        let length = Length {
            operations: cell.warm_up_operations,
            seconds: cell.warm_up_seconds,
            rate: None,
        };
        say(beginning("warm-up"));
        measured.preparation_s.warm_up =
            runner.run(length, &mut teller("warm-up", length, None, say))?.seconds;
    }
    let length = length(cell, ends, records);
    let whole = runner.subject().plan.operations();
    let name = if cell.purpose == Purpose::Load { "load" } else { "run" };
    process::reset_peak_rss();
    let occupancy = watched(cell)?;
    let before = meter.read(&*runner.subject().store);
    let demotions_before = runner.subject().store.demotions();
    let second_level_before = runner.subject().store.second_level();
    let tables_before = runner.subject().store.created_tables();
    say(beginning(name));
    let cpu_s = process::cpu_s();
    let sum = runner.run(length, &mut teller(name, length, whole, say))?;
    measured.cpu_s = process::cpu_s() - cpu_s;
    if cell.settle || (cell.purpose == Purpose::Load && !cell.crashed) {
        say(beginning("settle"));
        let begin = clock.now_ns();
        runner.subject().store.settle()?;
        measured.preparation_s.settle = (clock.now_ns() - begin) as f64 / 1e9;
    }
    let traffic = meter.read(&*runner.subject().store).since(&before);
    measured.demotion_ms = runner
        .subject()
        .store
        .demotions()
        .zip(demotions_before)
        .and_then(|(now, before)| now.mean_ms_since(before));
    let level = runner.subject().store.second_level().zip(second_level_before);
    measured.second_level = level.map(|(now, before)| now.since(before));
    let tables = runner.subject().store.created_tables().zip(tables_before);
    measured.created_tables = tables.map(|(now, before)| now.since(before));
    measured.peak_rss_bytes = process::peak_rss_bytes();
    if let Some((occupancy, capacity)) = occupancy {
        let capacity = runner.subject().store.fast_capacity().unwrap_or(capacity);
        measured.peak_fast_share = Some(occupancy.most()? as f64 / capacity.max(1) as f64);
    }
    fill_in(measured, &sum, runner.subject().plan.workload(), traffic)?;
    if let Some(seconds) = cell.rest_seconds.filter(|_| cell.purpose == Purpose::Run) {
        say(beginning("rest"));
        runner.subject().store.settle()?;
        measured.wake_ups = process::wake_ups(clock, seconds);
    }
    if cell.read_back {
        say(beginning("read back"));
        measured.checked += runner.read_back()?;
    }
    Ok(())
}

/// How long a cell runs, whose workload ends by itself or not.
fn length(cell: &Cell, ends: bool, records: u64) -> Length {
    match (cell.purpose, cell.operations, cell.seconds) {
        // Every record has to be there, however long that takes.
        (Purpose::Load, ..) => Length::default(),
        (_, None, None) if !ends => {
            Length { operations: Some(records), seconds: None, rate: cell.rate }
        }
        (_, operations, seconds) => Length { operations, seconds, rate: cell.rate },
    }
}

/// The look at the files of the fast tier and its capacity, where there is another tier.
fn watched(cell: &Cell) -> Outcome<Option<(Occupancy, u64)>> {
    let fast = cell.tiers.iter().find(|tier| tier.name == "fast").filter(|_| cell.tiers.len() > 1);
    fast.map(|tier| Ok((Occupancy::watch(&tier.path)?, tier.capacity.0))).transpose()
}

fn fill_in(
    measured: &mut Measured,
    sum: &Sum,
    workload: &Workload,
    traffic: Traffic,
) -> Outcome<()> {
    let seen = &sum.seen;
    let operations = seen.operations.max(1) as f64;
    measured.operations = seen.operations;
    measured.seconds = sum.seconds;
    measured.ops_per_s = seen.operations as f64 / sum.seconds.max(1e-9);
    measured.last_tenth_ops_per_s = sum.last_tenth_ops_per_s;
    measured.latency = seen.latency(workload)?;
    measured.latency_from_due = seen.latency_from_due(workload)?;
    measured.timeline = seen.timeline().to_vec();
    measured.cpu_us_per_op = measured.cpu_s * 1e6 / operations;
    let beside = sum.beside.as_ref();
    measured.beside_ops_per_s = beside.map(|seen| seen.operations as f64 / sum.seconds.max(1e-9));
    measured.user_written_bytes =
        seen.user_written_bytes + beside.map_or(0, |seen| seen.user_written_bytes);
    measured.absent = seen.absent;
    measured.checked = seen.checked;
    let written = traffic.written_bytes().filter(|_| measured.user_written_bytes > 0);
    measured.write_amplification =
        written.map(|written| written as f64 / measured.user_written_bytes as f64);
    measured.fast_read_share = traffic.fast_read_share();
    let slow = traffic.tiers.last().filter(|_| traffic.tiers.len() > 1);
    measured.slow_reads_per_op = slow.map(|tier| tier.reads as f64 / operations);
    measured.traffic = traffic;
    Ok(())
}

/// Says that a part begins: a short one is over before there is progress to tell of.
fn beginning(part: &str) -> Message {
    Message::Progress { part: part.to_owned(), done: 0, share: None, ops_per_s: 0.0 }
}

/// Turns progress into messages.
fn teller<'a>(
    part: &'a str,
    length: Length,
    whole: Option<u64>,
    say: &'a mut dyn FnMut(Message),
) -> impl FnMut(u64, f64) + 'a {
    move |done, seconds| {
        let by_time = length.seconds.map(|all| seconds / all);
        let by_count = whole.or(length.operations).map(|all| done as f64 / all.max(1) as f64);
        let share = match (by_time, by_count) {
            (Some(a), Some(b)) => Some(a.max(b).min(1.0)),
            (a, b) => a.or(b).map(|share| share.min(1.0)),
        };
        let ops_per_s = done as f64 / seconds.max(1e-3);
        say(Message::Progress { part: part.to_owned(), done, share, ops_per_s });
    }
}
