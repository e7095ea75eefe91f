//! From a description to operations: [`Plan`] is shared by the threads, each has a [`Stream`].

use super::{Chooser, Distribution, Fill, Kind, ScanLength, Workload};
use crate::keys::{Keys, Order, Permutation};
use crate::values::{Sizes, pareto};
use crate::versions::Inserted;
use std::sync::Arc;
use thermocline_foundation::random::{Random, mix};

/// Seed of the order in which records are loaded where keys are in the order of numbers.
const LOAD_SEED: u64 = 0x7ca7_7e2e_d000_0002;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Which entry of the workload's mix it is.
    pub share: u8,
    /// What is done.
    pub kind: Kind,
    /// The record; of a scan the one that it begins at.
    pub number: u64,
    /// Records of a scan or walk; bytes of the value where only the operation knows them.
    pub count: u64,
}

/// A workload over a number of records and threads.
#[derive(Debug)]
pub struct Plan {
    workload: Workload,
    records: u64,
    threads: u32,
    seed: u64,
    /// Records that stay together in the order of keys; one of them is chosen by rank.
    group: u64,
    /// Where each phase ends, as a share of the run, and up to where a random word means this share
    /// of the mix in it.
    phases: Vec<(f64, Chooser, Vec<u64>)>,
    /// From ranks to groups; none where the distribution says which record it is.
    ranks: Option<Permutation>,
    /// From the turn to the record while loading.
    load_order: Option<Permutation>,
}

impl Plan {
    /// `workload` over `records`, as [`Workload::records`] rounds them, by `threads`.
    pub fn new(mut workload: Workload, records: u64, threads: u32, seed: u64) -> Self {
        let group = match workload.order {
            Order::Scattered { group } => group,
            Order::Sequential => 1,
        };
        if let Some(Sizes::Grouped { records: loaded, .. }) = &mut workload.sizes {
            *loaded = records;
        }
        let whole: f64 = workload.phases.iter().map(|phase| phase.weight).sum();
        let mut end = 0.0;
        let phases = workload.phases.iter().map(|phase| {
            end += phase.weight / whole;
            let own = || workload.mix.iter().map(|share| share.weight).collect();
            let weights = phase.weights.map_or_else(own, <[f64]>::to_vec);
            (end, Chooser::new(phase.distribution, records / group), thresholds(&weights))
        });
        let phases: Vec<_> = phases.collect();
        let names_records = phases.iter().any(|(_, chooser, _)| {
            matches!(chooser.distribution(), Distribution::Prefix(_) | Distribution::Latest { .. })
        });
        // The seed of a run changes which records are popular.
        let ranks = (!names_records).then(|| Permutation::new(records / group, mix(seed ^ 1)));
        let in_order = workload.order == Order::Sequential;
        let load_order = in_order.then(|| Permutation::new(records, LOAD_SEED));
        Self { workload, records, threads, seed, group, phases, ranks, load_order }
    }

    /// The description.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Loaded records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Threads of the streams.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The distribution of each phase and its share of the run.
    pub fn phases(&self) -> impl Iterator<Item = (f64, &Chooser)> {
        let mut begin = 0.0;
        self.phases.iter().map(move |(end, chooser, _)| {
            let share = end - begin;
            begin = *end;
            (share, chooser)
        })
    }

    /// Operations of a workload that ends, all threads together; none of others.
    pub fn operations(&self) -> Option<u64> {
        let lines = self.workload.trace.as_ref().map(|trace| trace.lines().len() as u64);
        lines.or(self.workload.ends().then_some(self.records))
    }

    /// The record that changes with that of `operation` where changes are transactions.
    pub fn changed_with(&self, operation: &Operation) -> Option<u64> {
        let with = self.workload.mix.get(usize::from(operation.share))?.with?;
        Some(operation.number / self.group * self.group + with)
    }

    #[inline]
    fn phase(&self, progress: f64) -> (&Chooser, &[u64]) {
        let phase = self.phases.iter().find(|(end, ..)| progress < *end);
        let (_, chooser, thresholds) = phase.unwrap_or(&self.phases[self.phases.len() - 1]);
        (chooser, thresholds)
    }

    #[inline]
    fn scan_records(&self, random: &mut Random) -> u64 {
        match self.workload.scan {
            ScanLength::Fixed(records) => records.into(),
            ScanLength::Uniform(most) => 1 + random.below(most.into()),
            ScanLength::Pareto { k, sigma, max } => {
                pareto(random.unit(), k, sigma).clamp(1.0, f64::from(max)) as u64
            }
        }
    }
}

/// Up to where a random word means each of `weights`.
fn thresholds(weights: &[f64]) -> Vec<u64> {
    let whole: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let ends = weights.iter().map(|weight| {
        sum += weight / whole;
        (sum * u64::MAX as f64) as u64
    });
    ends.collect()
}

/// The operations of one thread, an endless iterator in most workloads.
#[derive(Debug)]
pub struct Stream {
    plan: Arc<Plan>,
    random: Random,
    thread: u32,
    /// Operations so far.
    index: u64,
    /// The writer beside the others.
    beside: bool,
}

impl Stream {
    /// The operations of `thread`.
    pub fn new(plan: Arc<Plan>, thread: u32) -> Self {
        let random = Random::new(mix(plan.seed) ^ mix(u64::from(thread) + 1));
        Self { plan, random, thread, index: 0, beside: false }
    }

    /// The operations of the writer beside the others.
    pub fn beside(plan: Arc<Plan>) -> Self {
        let thread = plan.threads;
        Self { beside: true, ..Self::new(plan, thread) }
    }

    /// The next operation; none at the end. `progress` is how much of the run is done, 0 to 1.
    #[inline]
    pub fn next(&mut self, progress: f64, inserted: &Inserted) -> Option<Operation> {
        let index = self.index;
        self.index += 1;
        if self.beside {
            let number = self.random.below(self.plan.records);
            return Some(Operation { share: 0, kind: Kind::Update, number, count: 0 });
        }
        if self.plan.workload.ends() {
            return self.next_of_end(index);
        }
        let word = self.random.next_u64();
        let (plan, random) = (&*self.plan, &mut self.random);
        let (chooser, thresholds) = plan.phase(progress);
        let last = thresholds.len() - 1;
        let at = thresholds.iter().position(|end| word < *end).unwrap_or(last);
        let share = &plan.workload.mix[at];
        let number = if share.kind == Kind::Insert {
            inserted.next(self.thread)
        } else {
            let rank = chooser.draw(random);
            let group = match (&plan.ranks, chooser.distribution()) {
                (Some(ranks), _) => ranks.apply(rank),
                // Only reads follow the newest inserts: what changes a record keeps to loaded ones,
                // whose versions are kept track of.
                (None, Distribution::Latest { .. }) if !share.kind.changes() && plan.group == 1 => {
                    inserted.by_age(rank)
                }
                (None, Distribution::Latest { .. }) => plan.records / plan.group - 1 - rank,
                (None, _) => rank,
            };
            match share.slot {
                None if plan.group == 1 => group,
                None => group * plan.group + random.below(plan.group),
                Some(slot) => group * plan.group + slot.first + random.below(slot.count),
            }
        };
        let count = if share.kind == Kind::Scan { plan.scan_records(random) } else { 0 };
        Some(Operation { share: at as u8, kind: share.kind, number, count })
    }

    /// The operation at `index` of a workload in which each thread has a fixed part.
    fn next_of_end(&mut self, index: u64) -> Option<Operation> {
        let plan = &*self.plan;
        let (thread, threads) = (u64::from(self.thread), u64::from(plan.threads));
        let turn = index * threads + thread;
        let update = |number| Operation { share: 0, kind: Kind::Update, number, count: 0 };
        if let Some(trace) = &plan.workload.trace {
            let line = trace.lines().get(usize::try_from(turn).ok()?)?;
            let share = plan.workload.mix.iter().position(|share| share.kind == line.kind)?;
            let (number, count) = (line.number, line.size.into());
            return Some(Operation { share: share as u8, kind: line.kind, number, count });
        }
        let begin = |thread: u64| {
            (u128::from(plan.records) * u128::from(thread) / u128::from(threads)) as u64
        };
        match plan.workload.fill {
            Some(Fill::InOrder) => {
                let number = begin(thread) + index;
                (number < begin(thread + 1)).then(|| update(number))
            }
            Some(Fill::Once) => {
                let record =
                    |turn| plan.load_order.as_ref().map_or(turn, |order| order.apply(turn));
                (turn < plan.records).then(|| update(record(turn)))
            }
            Some(Fill::Random) => {
                (turn < plan.records).then(|| update(self.random.below(plan.records)))
            }
            // A walk over the thread's part of all positions.
            None => (index == 0).then(|| Operation {
                share: 0,
                kind: Kind::Walk,
                number: begin(thread),
                count: begin(thread + 1) - begin(thread),
            }),
        }
    }
}

impl Operation {
    /// The record that a scan or walk begins at; a walk counts in positions.
    pub fn begins_at(&self, keys: &Keys) -> u64 {
        if self.kind == Kind::Walk { keys.at_position(self.number) } else { self.number }
    }
}
