//! A run of rounds: where it is, how far it came, and what it says at its end.

use crate::ledger::{Ledger, Phase};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use thermocline_foundation::{Clock, SystemClock};

/// What was asked for.
#[derive(Debug)]
pub struct Run {
    pub mode: &'static str,
    pub directory: PathBuf,
    pub seed: u64,
    /// Number of the first round.
    pub first: u64,
    pub rounds: u64,
    /// Every writer has many writes in flight.
    pub asynchronous: bool,
    /// The driver of a region of persistent memory.
    pub region: Option<String>,
    bar: ProgressBar,
    clock: SystemClock,
}

const TEMPLATE: &str = "{msg} [{bar:30}] {pos} of {len} rounds, {per_sec}, {eta} left";

impl Run {
    pub fn new(mode: &'static str, directory: PathBuf, seed: u64, first: u64, rounds: u64) -> Self {
        let (asynchronous, region) = (false, None);
        let bar = ProgressBar::new(rounds).with_message(mode);
        let style = ProgressStyle::with_template(TEMPLATE).map(|it| it.progress_chars("=> "));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let clock = SystemClock::new();
        Self { mode, directory, seed, first, rounds, asynchronous, region, bar, clock }
    }

    /// The same, with or without many writes in flight of every writer.
    pub fn asynchronous(self, asynchronous: bool) -> Self {
        Self { asynchronous, ..self }
    }

    /// The same, with a region of persistent memory of this driver.
    pub fn region(self, region: Option<String>) -> Self {
        Self { region, ..self }
    }

    pub fn report(&self, mode: &'static str) -> Report {
        Report { mode, seed: self.seed, ..Report::default() }
    }

    /// A round went well.
    pub fn advance(&self, report: &mut Report) {
        report.rounds += 1;
        report.seconds = self.clock.now_ns() as f64 / 1e9;
        self.bar.inc(1);
    }

    /// A round of another report went well.
    pub fn tick(&self) {
        self.bar.inc(1);
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What a run found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub mode: &'static str,
    pub seed: u64,
    /// Rounds that went well.
    pub rounds: u64,
    pub seconds: f64,
    /// Rounds that ended within a flush, or within a compaction.
    pub in_flush: u64,
    pub in_compaction: u64,
    /// Rounds that ended while the store was being opened.
    pub in_opening: u64,
    /// Power cuts after a process had been killed.
    pub killed_before: u64,
    /// Tables that changed tier in the lives of power cuts.
    pub migrated: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Batches that were submitted, not promised to survive, and did not.
    pub lost: u64,
    /// Why nothing was done.
    pub skipped: Option<String>,
    pub failure: Option<Failure>,
}

impl Report {
    /// Notes a life that began after `before` batches.
    pub fn count(&mut self, phase: Phase, before: u64, ledger: &Ledger) {
        let acknowledged = ledger.acknowledged().iter().sum::<u64>() - before;
        self.acknowledged += acknowledged;
        self.migrated += ledger.migrated.load(SeqCst);
        self.note(phase, !ledger.is_open.load(SeqCst));
    }

    /// Notes what was going on at the end of a round.
    pub fn note(&mut self, phase: Phase, opening: bool) {
        match phase {
            Phase::Flush => self.in_flush += 1,
            Phase::Compaction => self.in_compaction += 1,
            Phase::Other if opening => self.in_opening += 1,
            Phase::Other => {}
        }
    }
}

/// A round that did not go well.
#[derive(Debug, Serialize)]
pub struct Failure {
    pub round: u64,
    pub text: String,
    /// Kept as it was.
    pub directory: PathBuf,
    /// Runs the rounds of the same store again. What is drawn from the seed is the same, how
    /// threads interleave is not.
    pub replay: String,
}

impl Failure {
    /// `begin` is the first round of the store that failed.
    pub fn new(run: &Run, round: u64, begin: u64, text: String) -> Self {
        let begin = begin.max(run.first);
        let replay = format!(
            "cargo xtask torture {} --seed {} --first {begin} --rounds {}{}{}",
            run.mode,
            run.seed,
            round + 1 - begin,
            if run.asynchronous { " --asynchronous" } else { "" },
            run.region.iter().map(|driver| format!(" --region {driver}")).collect::<String>()
        );
        Self { round, text, directory: run.directory.clone(), replay }
    }
}
