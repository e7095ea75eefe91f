//! The threads of a run: each draws operations, times them and checks the answers.
//!
//! An operation is timed from before the call to after it; making keys and values and checking
//! answers lies outside its time and inside the run's. Threads take operations in chunks from one
//! count, so all end together; workloads in which each thread has a fixed part end when the last
//! thread does.
//!
//! With a rate, operation n of a thread is due at a fixed moment whether or not the ones before it
//! are done, and is also timed from that moment: a stall then counts for all that waited behind
//! it, and not for one (coordinated omission).
//!
//! Invariants:
//! 1. The first wrong answer stops all threads and is the outcome.
//! 2. The clock is read twice an operation, nothing is allocated and no line of the processor's
//!    cache is shared, but for chunks and records written by several threads.

use super::flights::Flights;
use super::latency::Seen;
use super::scan_check::{ScanCheck, hex};
use super::ticks::Ticks;
use super::transactions::transact;
use crate::keys::Keys;
use crate::store::Store;
use crate::values::Values;
use crate::versions::{Inserted, Versions, Window};
use crate::workloads::{Kind, Operation, Plan, Stream};
use crate::{Failure, Outcome};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline_foundation::threads;

/// Operations that a thread takes at once.
const CHUNK: u64 = 64;
/// A wait longer than this sleeps; the rest of a wait spins, because sleeping is not exact.
const SPIN_NS: u64 = 80_000;
/// How often the progress is told.
const TELL_MS: u64 = 250;
/// A look-up that took longer is not checked for an old version: more writes than versions are
/// told apart may have passed.
const VERSION_NS_MAX: u64 = 50_000_000;

/// What is measured: a store and what is known of its records.
pub struct Subject {
    /// The store.
    pub store: Box<dyn Store>,
    /// The operations.
    pub plan: Arc<Plan>,
    /// Keys of the records.
    pub keys: Keys,
    /// Their values.
    pub values: Values,
    /// Versions of the loaded ones.
    pub versions: Versions,
    /// The others.
    pub inserted: Inserted,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// How long a part of a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Length {
    /// So many operations, all threads together.
    pub operations: Option<u64>,
    /// So many seconds; the shorter where both are given.
    pub seconds: Option<f64>,
    /// Operations a second that are due, all threads together; none: as fast as it goes.
    pub rate: Option<f64>,
}

/// One part of a run, shared by its threads.
struct Part {
    length: Length,
    begin_ns: u64,
    /// No operation begins after it.
    end_ns: u64,
    /// The last tenth of a run of fixed length begins.
    tenth_ns: u64,
    /// When nine tenths of the operations were taken; 0: not yet.
    nine_tenths_ns: AtomicU64,
    over: AtomicBool,
    counts: Counts,
}

/// What all threads write, apart from what they only read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    /// Operations taken.
    claimed: AtomicU64,
    /// Operations done, for the progress.
    done: AtomicU64,
}

/// What a part of a run came to.
#[derive(Debug)]
pub struct Sum {
    /// All threads together.
    pub seen: Seen,
    /// The writer beside them.
    pub beside: Option<Seen>,
    /// From the begin to the end of the last operation.
    pub seconds: f64,
    /// Throughput of the last tenth.
    pub last_tenth_ops_per_s: f64,
}

/// Runs parts one after the other; the streams go on where they were.
pub struct Runner {
    subject: Arc<Subject>,
    clock: Arc<Ticks>,
    streams: Vec<Stream>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// Buffers of a thread.
#[derive(Default)]
struct Hands {
    key: Vec<u8>,
    value: Vec<u8>,
    found: Vec<u8>,
}

impl Runner {
    /// Ready to run `subject`.
    pub fn new(subject: Subject) -> Self {
        let plan = &subject.plan;
        let mut streams: Vec<_> =
            (0..plan.threads()).map(|thread| Stream::new(Arc::clone(plan), thread)).collect();
        if plan.workload().writer_beside {
            streams.push(Stream::beside(Arc::clone(plan)));
        }
        Self { subject: Arc::new(subject), clock: Arc::new(Ticks::new()), streams }
    }

    /// The store and its records.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Runs a part to its end; `tell` hears of operations done and seconds passed.
    pub fn run(&mut self, length: Length, tell: &mut dyn FnMut(u64, f64)) -> Outcome<Sum> {
        let begin_ns = self.clock.now_ns();
        let ns = |seconds: f64| begin_ns.saturating_add((seconds * 1e9) as u64);
        let part = Arc::new(Part {
            length,
            begin_ns,
            end_ns: length.seconds.map_or(u64::MAX, ns),
            tenth_ns: length.seconds.map_or(u64::MAX, |seconds| ns(seconds * 0.9)),
            nine_tenths_ns: AtomicU64::new(0),
            over: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let counted = self.subject.plan.threads() as usize;
        let mut handles = Vec::new();
        for (index, stream) in std::mem::take(&mut self.streams).into_iter().enumerate() {
            let (subject, part) = (Arc::clone(&self.subject), Arc::clone(&part));
            let clock = Arc::clone(&self.clock);
            let worker = Worker { subject, part, clock, thread: index as u32 };
            let name = format!("bench-{index}");
            handles.push(threads::spawn(&name, move || worker.work(stream, index < counted))?);
        }
        while handles[..counted].iter().any(|handle| !handle.is_finished()) {
            self.clock.sleep(Duration::from_millis(TELL_MS));
            tell(part.counts.done.load(Relaxed), (self.clock.now_ns() - begin_ns) as f64 / 1e9);
        }
        let (mut sum, mut beside, mut failure) = (None::<Seen>, None, None);
        let mut end_ns = begin_ns;
        for (index, handle) in handles.into_iter().enumerate() {
            if index == counted {
                part.over.store(true, Relaxed);
            }
            let (stream, ended, outcome) =
                handle.join().map_err(|_| "a thread of the benchmark broke off")?;
            self.streams.push(stream);
            match outcome {
                Err(error) => failure = failure.or(Some(error)),
                Ok(seen) if index >= counted => beside = Some(seen),
                Ok(seen) => {
                    end_ns = end_ns.max(ended);
                    match &mut sum {
                        Some(sum) => sum.add(&seen)?,
                        None => sum = Some(seen),
                    }
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let seen = sum.ok_or("no thread ran")?;
        Ok(Sum {
            seconds: (end_ns - begin_ns) as f64 / 1e9,
            last_tenth_ops_per_s: part.last_tenth(&seen, end_ns),
            seen,
            beside,
        })
    }

    /// Looks every loaded record up and checks that it is what was written last; returns how many
    /// there are.
    pub fn read_back(&self) -> Outcome<u64> {
        super::read_back::read_back(&self.subject)
    }

    /// Gives the store back, to be closed.
    pub fn into_subject(self) -> Outcome<Subject> {
        drop(self.streams);
        Arc::into_inner(self.subject).ok_or_else(|| "a thread still holds the store".into())
    }
}

impl Part {
    /// Throughput of the last tenth of the operations, or of the time where that is what is fixed.
    fn last_tenth(&self, seen: &Seen, end_ns: u64) -> f64 {
        let at = self.nine_tenths_ns.load(Relaxed);
        let (operations, begin) = match (self.length.seconds, at) {
            (Some(_), 0) => (seen.in_last_tenth, self.tenth_ns),
            (None, 0) => (seen.operations, self.begin_ns),
            (_, at) => (seen.operations / 10, at),
        };
        operations as f64 * 1e9 / end_ns.saturating_sub(begin).max(1) as f64
    }

    /// Takes the next chunk; none at the end of the run.
    fn claim(&self, clock: &Ticks) -> Option<(u64, u64)> {
        let first = self.counts.claimed.fetch_add(CHUNK, Relaxed);
        let Some(total) = self.length.operations else { return Some((first, CHUNK)) };
        if first + CHUNK > total - total / 10 && self.nine_tenths_ns.load(Relaxed) == 0 {
            let now = clock.now_ns().max(1);
            let _ = self.nine_tenths_ns.compare_exchange(0, now, Relaxed, Relaxed);
        }
        (first < total).then(|| (first, CHUNK.min(total - first)))
    }

    /// How much of the run is done, for phases.
    fn progress(&self, first: u64, now_ns: u64) -> f64 {
        match (self.length.operations, self.length.seconds) {
            (Some(total), _) => first as f64 / total as f64,
            (None, Some(seconds)) => now_ns.saturating_sub(self.begin_ns) as f64 / 1e9 / seconds,
            (None, None) => 0.0,
        }
    }
}

/// One thread.
pub(super) struct Worker {
    subject: Arc<Subject>,
    part: Arc<Part>,
    clock: Arc<Ticks>,
    thread: u32,
}

impl Worker {
    /// The thread: the stream, when it ended, and what it saw.
    fn work(self, mut stream: Stream, counted: bool) -> (Stream, u64, Outcome<Seen>) {
        let outcome = self.run(&mut stream, counted);
        if outcome.is_err() {
            self.part.over.store(true, Relaxed);
        }
        let now = self.clock.now_ns();
        (stream, now, outcome)
    }

    fn run(&self, stream: &mut Stream, counted: bool) -> Outcome<Seen> {
        let is_paced = self.part.length.rate.is_some() && counted;
        let mut seen = Seen::new(self.subject.plan.workload().mix.len().max(1), is_paced)?;
        let mut flights = if counted { Flights::new(&self.subject)? } else { None };
        self.operate(stream, counted, &mut flights, &mut seen)?;
        if let Some(flights) = &mut flights {
            flights.land_all(self, &mut seen)?;
        }
        Ok(seen)
    }

    fn operate(
        &self,
        stream: &mut Stream,
        counted: bool,
        flights: &mut Option<Flights<'_>>,
        seen: &mut Seen,
    ) -> Outcome<()> {
        let (plan, part) = (&self.subject.plan, &*self.part);
        let pace = part.length.rate.filter(|_| counted);
        let mut hands = Hands::default();
        let gap_ns = pace.map_or(0.0, |rate| 1e9 * f64::from(plan.threads()) / rate);
        let mut due_ns =
            part.begin_ns as f64 + gap_ns * f64::from(self.thread) / f64::from(plan.threads());
        let mut now = self.clock.now_ns();
        let shared = counted && !plan.workload().ends();
        loop {
            let chunk = if shared { part.claim(&self.clock) } else { Some((0, CHUNK)) };
            let Some((first, count)) = chunk else { return Ok(()) };
            let progress = part.progress(first, now);
            let before = seen.operations;
            for _ in 0..count {
                // The writer beside the others writes once at least, also where they are done
                // before its thread has had its turn.
                let may_end = counted || seen.operations > 0;
                if may_end && (part.over.load(Relaxed) || now >= part.end_ns) {
                    return Ok(());
                }
                let Some(operation) = stream.next(progress, &self.subject.inserted) else {
                    return Ok(());
                };
                if pace.is_some() {
                    self.wait_until(due_ns as u64);
                }
                if let (Some(flights), Kind::Update) = (&mut *flights, operation.kind) {
                    let buffers = (&mut hands.key, &mut hands.value);
                    now = flights.update(self, operation, buffers, seen)?;
                    due_ns += gap_ns;
                    continue;
                }
                let (ended, took, operations) = self.execute(operation, &mut hands, seen)?;
                now = ended;
                if operation.kind != Kind::Walk {
                    seen.took(operation.share, took);
                }
                if pace.is_some() {
                    seen.late(operation.share, ended.saturating_sub(due_ns as u64));
                    due_ns += gap_ns;
                }
                self.ended(ended, operations, seen);
            }
            if counted {
                part.counts.done.fetch_add(seen.operations - before, Relaxed);
            }
        }
    }

    /// What is measured.
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Which of the threads it is.
    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// The time of the run.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// `operations` ended at `ended`.
    #[inline]
    pub(super) fn ended(&self, ended: u64, operations: u64, seen: &mut Seen) {
        seen.ended(ended.saturating_sub(self.part.begin_ns), operations);
        seen.in_last_tenth += if ended >= self.part.tenth_ns { operations } else { 0 };
    }

    fn wait_until(&self, due_ns: u64) {
        loop {
            let left = due_ns.saturating_sub(self.clock.now_ns());
            if left == 0 || self.part.over.load(Relaxed) {
                return;
            }
            if left > SPIN_NS {
                self.clock.sleep(Duration::from_nanos(left - SPIN_NS / 2));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Does an operation: when it ended, how long it took, and how many it counts as.
    #[inline]
    fn execute(
        &self,
        operation: Operation,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Outcome<(u64, u64, u64)> {
        let number = operation.number;
        if self.subject.plan.workload().transactions && operation.kind.is_one_write() {
            let (ended, took) =
                transact(self, operation, (&mut hands.key, &mut hands.value), seen)?;
            return Ok((ended, took, 1));
        }
        match operation.kind {
            Kind::Read => {
                let (ended, took) = self.read(number, hands, seen)?;
                Ok((ended, took, 1))
            }
            Kind::ReadModifyWrite => {
                let (_, reading) = self.read(number, hands, seen)?;
                let (ended, writing) = self.update(operation, hands, seen)?;
                Ok((ended, reading + writing, 1))
            }
            Kind::Update => {
                let (ended, took) = self.update(operation, hands, seen)?;
                Ok((ended, took, 1))
            }
            Kind::Insert => {
                let (ended, took) = self.insert(operation, hands, seen)?;
                Ok((ended, took, 1))
            }
            Kind::Delete => {
                self.subject.keys.key(number, &mut hands.key);
                self.subject.versions.begin(number, true);
                let start = self.clock.now_ns();
                self.subject.store.delete(&hands.key)?;
                let ended = self.clock.now_ns();
                self.subject.versions.end(number);
                seen.user_written_bytes += hands.key.len() as u64;
                Ok((ended, ended - start, 1))
            }
            Kind::ReadMissing => {
                self.subject.keys.absent_key(number, &mut hands.key);
                let start = self.clock.now_ns();
                let found = self.subject.store.get(&hands.key, &mut hands.found)?;
                let ended = self.clock.now_ns();
                if found && self.subject.store.keeps() {
                    let key = hex(&hands.key);
                    return Err(format!("key {key} was never written and has a value").into());
                }
                seen.absent += 1;
                Ok((ended, ended - start, 1))
            }
            Kind::Scan | Kind::Walk => self.scan(operation, hands, seen),
        }
    }

    #[inline]
    fn read(&self, number: u64, hands: &mut Hands, seen: &mut Seen) -> Outcome<(u64, u64)> {
        let subject = &*self.subject;
        subject.keys.key(number, &mut hands.key);
        let loaded = number < subject.plan.records();
        let window = loaded.then(|| subject.versions.window(number));
        let must = !loaded && subject.inserted.holds(number);
        let start = self.clock.now_ns();
        let found = subject.store.get(&hands.key, &mut hands.found)?;
        let ended = self.clock.now_ns();
        if subject.store.keeps() {
            let value = found.then_some(hands.found.as_slice());
            self.check(number, window, must, ended - start, value, seen).map_err(
                |what| -> Failure { format!("{what} (key {})", hex(&hands.key)).into() },
            )?;
        }
        Ok((ended, ended - start))
    }

    /// Checks what was found of `number`.
    #[inline]
    fn check(
        &self,
        number: u64,
        window: Option<Window>,
        must: bool,
        took: u64,
        value: Option<&[u8]>,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let versions = &self.subject.versions;
        let Some(value) = value else {
            let may = window.is_some_and(|window| versions.may_be_absent(number, window));
            seen.absent += 1;
            if may || (window.is_none() && !must) {
                return Ok(());
            }
            return Err(match window {
                Some(window) => format!(
                    "record {number} is missing; it has version {}",
                    versions.expected(number, window)
                ),
                None => format!("record {number} is missing; its insert was acknowledged"),
            });
        };
        seen.checked += 1;
        let version = self.subject.values.check(number, value)?;
        let right = match window {
            Some(window) => took > VERSION_NS_MAX || versions.may_be(number, window, version),
            None => version == 1,
        };
        if right {
            return Ok(());
        }
        let expected = window.map_or("1".to_owned(), |window| versions.expected(number, window));
        Err(format!("record {number} was read with version {version}; right is {expected}"))
    }

    #[inline]
    fn update(
        &self,
        operation: Operation,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Outcome<(u64, u64)> {
        let (subject, number) = (&*self.subject, operation.number);
        subject.keys.key(number, &mut hands.key);
        let version = subject.versions.begin(number, false);
        subject.values.make(number, version, operation.count as u32, &mut hands.value);
        let start = self.clock.now_ns();
        let is_set = if subject.plan.workload().if_present {
            subject.store.put_if_present(&hands.key, &hands.value, &mut hands.found)?
        } else {
            subject.store.put(&hands.key, &hands.value)?;
            true
        };
        let ended = self.clock.now_ns();
        subject.versions.end(number);
        if !is_set && subject.store.keeps() {
            let key = hex(&hands.key);
            return Err(format!("record {number} was not there to be updated (key {key})").into());
        }
        seen.user_written_bytes += (hands.key.len() + hands.value.len()) as u64;
        Ok((ended, ended - start))
    }

    fn insert(
        &self,
        operation: Operation,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Outcome<(u64, u64)> {
        let (subject, number) = (&*self.subject, operation.number);
        subject.keys.key(number, &mut hands.key);
        subject.values.make(number, 1, operation.count as u32, &mut hands.value);
        let start = self.clock.now_ns();
        subject.store.put(&hands.key, &hands.value)?;
        let ended = self.clock.now_ns();
        subject.inserted.acknowledged(self.thread);
        seen.user_written_bytes += (hands.key.len() + hands.value.len()) as u64;
        Ok((ended, ended - start))
    }

    fn scan(
        &self,
        operation: Operation,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Outcome<(u64, u64, u64)> {
        let subject = &*self.subject;
        let walk = operation.kind == Kind::Walk;
        if walk && operation.count == 0 {
            return Ok((self.clock.now_ns(), 0, 0));
        }
        subject.keys.key(operation.begins_at(&subject.keys), &mut hands.key);
        let mut check = ScanCheck::new(subject, &hands.key);
        let (clock, begin_ns) = (&self.clock, self.part.begin_ns);
        let (mut visited, mut told) = (0u64, 0u64);
        let start = self.clock.now_ns();
        let found = subject.store.scan(&hands.key, operation.count, &mut |key, value| {
            check.visit(key, value);
            visited += 1;
            // A walk is one call; its seconds are told apart here.
            if walk && visited - told == 1024 {
                seen.ended(clock.now_ns() - begin_ns, visited - told);
                self.part.counts.done.fetch_add(visited - told, Relaxed);
                told = visited;
            }
        })?;
        let ended = self.clock.now_ns();
        let key = &hands.key;
        let named = |what: String| -> Failure {
            format!("scan of {} from key {}: {what}", operation.count, hex(key)).into()
        };
        if subject.store.keeps() {
            if found != visited {
                return Err(named(format!("{found} records said, {visited} handed over")));
            }
            check.end(operation.count).map_err(named)?;
        }
        seen.checked += visited;
        seen.absent += u64::from(visited == 0);
        Ok((ended, ended - start, if walk { visited - told } else { 1 }))
    }
}
