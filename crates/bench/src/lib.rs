//! Benchmarks of key-value stores over two tiers: workloads, measurement, checks, results.
//!
//! ```text
//!   command        the command line, for any binary that brings engines
//!   plan           a run: engines x workloads x rounds, a process for each cell
//!   cell           one of them: open, load or run, measure, one row
//!     engines      null, thermocline by preset            store: the trait they implement
//!     workloads    operations by seed and thread          keys, values, versions: what is checked
//!     measure      threads, latencies, timeline, traffic
//!     state        the loaded state, copied for each cell
//!   bound          what the best possible placement would reach
//!   generator      what the harness costs               agree: it against RocksDB's own program
//!   results        results.json; report: tables of it
//!   scenarios      comparisons by name                     figures: those of the PrismDB paper
//!   spandb, mynvm, keigo, slmdb  those papers' figures as rows   rows: judged and shown
//!   block_trace    what a cache of blocks was asked for, and what each policy makes of it
//!   value_sizes    bytes a second by the size of values    memory: what is resident, by strain
//!   rig            two block devices and a memory limit, for any program
//! ```
//! A binary is one line: `thermocline_bench::command::main(&[&engine, ...])`. The workspace of
//! rivals does the same with more engines.
//!
//! Invariants:
//! 1. Every value that is read is checked; one wrong or missing value fails the row and names the
//!    key. A fast wrong answer is no result.
//! 2. Every engine gets the same directories, memory, durability, threads, operations and seeds,
//!    but for memory that its label names.
//! 3. A cell begins with a byte-for-byte copy of the loaded state and runs in its own process.
#![forbid(unsafe_code)]

pub mod agree;
pub mod block_trace;
pub mod bound;
pub mod cell;
pub mod command;
pub mod engines;
pub mod figures;
pub mod files;
pub mod generator;
pub mod keigo;
pub mod keys;
pub mod measure;
pub mod memory;
pub mod mynvm;
pub mod plan;
pub mod quick;
pub mod report;
pub mod results;
pub mod rig;
pub mod rows;
pub mod scenarios;
pub mod slmdb;
pub mod spandb;
pub mod state;
pub mod store;
pub mod summary;
pub mod value_sizes;
pub mod values;
pub mod versions;
pub mod workloads;

/// What went wrong, as one line for the user.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of a step of a benchmark.
pub type Outcome<T> = Result<T, Failure>;
