//! `agree`: RocksDB in this harness against RocksDB's own `db_bench`, to show that the harness is
//! not what slows an engine.
//!
//! Both use the same library, options, allocator, directory, threads, keys and values, and take
//! turns:
//!
//! ```text
//!                 fillrandom                       readrandom
//!   harness       an empty store                   a copy of the store loaded in random order,
//!                                                  one reading of all records to warm up
//!   db_bench      fillrandom                       filluniquerandom once; readrandom twice, of
//!                                                  which the second counts
//! ```
//! The options are those that the engine describes itself with, so they cannot drift apart.
//!
//! Invariant: medians of the rounds that differ by more than [`APART_MAX`] are a failure.

use crate::cell::Cell;
use crate::command::arguments::{AgreeArguments, example_cell};
use crate::files::{self, system_text};
use crate::plan::{InFront, Run, Space};
use crate::state::empty;
use crate::store::{EngineKind, Layout, OpenOptions, TierSpace};
use crate::summary::Spread;
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use thermocline_foundation::ByteSize;

/// How far apart throughputs may be, as a share.
pub const APART_MAX: f64 = 0.15;
const NAME: &str = "rocksdb";
const ENGINE: &str = "rocksdb@fast";
const WORKLOADS: [&str; 2] = ["fillrandom", "readrandom"];
const KEY_BYTES: u32 = 24;
const VALUE_BYTES: u32 = 1000;
/// Ticks a second of the times in `/proc/self/stat`, whatever the kernel uses itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one of the two came to on one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    ops_per_s: f64,
    cpu_us_per_op: f64,
}

/// Both sides, by workload and round.
#[derive(Clone, Debug, Default)]
struct Rounds {
    harness: Vec<Figures>,
    db_bench: Vec<Figures>,
}

/// Measures; the lines to print, and whether the two agree.
pub fn run(
    arguments: &AgreeArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<(Vec<String>, bool)> {
    if arguments.dir.exists() {
        return Err(format!("{} exists; name a new directory", arguments.dir.display()).into());
    }
    let kind = engines.iter().find(|engine| engine.name() == NAME);
    let Some(kind) = kind.filter(|kind| kind.unavailable().is_none()) else {
        return Err("this program has no RocksDB in it; say cargo xtask rivals fetch, and use \
                    thermocline-bench-rivals"
            .into());
    };
    empty(&arguments.dir)?;
    let outcome = rounds(arguments, engines, *kind, (program, started_s), say);
    files::remove(&arguments.dir)?;
    Ok(verdict(&outcome?))
}

fn rounds(
    arguments: &AgreeArguments,
    engines: &[&dyn EngineKind],
    kind: &dyn EngineKind,
    (program, started_s): (&Path, u64),
    say: &mut dyn FnMut(&str),
) -> Outcome<[Rounds; 2]> {
    let flags = flags(arguments, &kind.describe(&options(arguments))?)?;
    let mut all = [Rounds::default(), Rounds::default()];
    for round in 0..arguments.rounds {
        for turn in [round % 2, (round + 1) % 2] {
            for (rounds, workload) in all.iter_mut().zip(WORKLOADS) {
                if turn == 0 {
                    say(&format!("round {}: harness {workload}", round + 1));
                    let run = harness(arguments, workload, round);
                    let quiet = &mut |_: &str| {};
                    let results =
                        run.execute(engines, program, &InFront::default(), started_s, quiet)?;
                    let row = results.rows.first().ok_or("the harness made no row")?;
                    let measured = row.measured.as_ref().ok_or_else(|| -> Failure {
                        row.failure.clone().unwrap_or_default().into()
                    })?;
                    rounds.harness.push(Figures {
                        ops_per_s: measured.ops_per_s,
                        cpu_us_per_op: measured.cpu_us_per_op,
                    });
                } else {
                    say(&format!("round {}: db_bench {workload}", round + 1));
                    rounds.db_bench.push(db_bench(arguments, &flags, workload, round)?);
                }
            }
        }
    }
    Ok(all)
}

fn options(arguments: &AgreeArguments) -> OpenOptions {
    let path = arguments.dir.join("db_bench");
    OpenOptions {
        tiers: vec![TierSpace { name: "fast".to_owned(), path, capacity: ByteSize::gib(1024) }],
        memory: arguments.memory,
        durability: example_cell().durability,
        direct: arguments.direct,
        threads: arguments.threads,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        records: arguments.records,
        loading: false,
        options: BTreeMap::new(),
    }
}

fn harness(arguments: &AgreeArguments, workload: &str, round: u32) -> Run {
    let layout = Layout::Fast.to_string();
    Run {
        title: "agree".to_owned(),
        cell: Cell {
            seed: 1 + u64::from(round),
            records: arguments.records,
            key_bytes: KEY_BYTES,
            value_bytes: VALUE_BYTES,
            threads: arguments.threads,
            memory: arguments.memory,
            direct: arguments.direct,
            operations: Some(arguments.records),
            warm_up_operations: Some(arguments.records),
            tiers: Vec::new(),
            ..example_cell()
        },
        engines: vec![ENGINE.to_owned()],
        workloads: vec![workload.to_owned()],
        pairs: None,
        rounds: 1,
        fast: Some(Space { path: arguments.dir.join(layout), capacity: None, device: None }),
        slow: None,
        region: None,
        images: arguments.dir.join("images"),
        keep_images: true,
        baseline: None,
        results: arguments.dir.join("results.json"),
        notes: BTreeMap::new(),
    }
}

/// The options of `db_bench` that say what the engine says of itself.
fn flags(arguments: &AgreeArguments, described: &[(String, String)]) -> Outcome<Vec<String>> {
    let said = |name: &str| -> Outcome<&str> {
        let found = described.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| format!("no option '{name}'").into())
    };
    let bytes = |text: &str| -> Outcome<u64> { Ok(text.parse::<ByteSize>()?.0) };
    let (cache, kind) =
        said("block_cache")?.rsplit_once(' ').ok_or("the kind of block cache is not said")?;
    let kind = if kind.starts_with("Hyper") { "hyper_clock_cache" } else { "lru_cache" };
    let mut flags = vec![
        format!("--cache_size={}", bytes(cache)?),
        format!("--cache_type={kind}"),
        format!("--num={}", arguments.records),
        format!("--key_size={KEY_BYTES}"),
        format!("--value_size={VALUE_BYTES}"),
        format!("--compression_type={}", said("compression")?),
        format!("--subcompactions={}", said("max_subcompactions")?),
    ];
    let fixed = [
        "--compression_ratio=0.5",
        "--bloom_bits=10",
        "--cache_index_and_filter_blocks=true",
        "--pin_l0_filter_and_index_blocks_in_cache=true",
        "--open_files=-1",
        "--histogram=1",
        // RocksDB's own defaults; db_bench has others.
        "--enable_pipelined_write=false",
        "--delayed_write_rate=16777216",
    ];
    flags.extend(fixed.map(str::to_owned));
    for name in [
        "write_buffer_size",
        "block_size",
        "max_bytes_for_level_base",
        "target_file_size_base",
        "compaction_readahead_size",
        "bytes_per_sync",
    ] {
        flags.push(format!("--{name}={}", bytes(said(name)?)?));
    }
    for name in [
        "max_write_buffer_number",
        "max_background_jobs",
        "level_compaction_dynamic_level_bytes",
        "use_direct_reads",
        "use_direct_io_for_flush_and_compaction",
    ] {
        flags.push(format!("--{name}={}", said(name)?));
    }
    Ok(flags)
}

/// One run of `db_bench`.
fn db_bench(
    arguments: &AgreeArguments,
    flags: &[String],
    workload: &str,
    round: u32,
) -> Outcome<Figures> {
    let path = arguments.dir.join(format!("db_bench-{workload}"));
    let threads = u64::from(arguments.threads);
    let each = arguments.records / threads;
    let start = |benchmarks: &str, threads: u64, fresh: bool| -> Outcome<(String, f64)> {
        let mut command = Command::new(&arguments.db_bench);
        command.args(flags).arg(format!("--db={}", path.display()));
        command.arg(format!("--benchmarks={benchmarks}")).arg(format!("--threads={threads}"));
        command.arg(format!("--seed={}", round + 1)).arg(format!("--use_existing_db={}", !fresh));
        if threads > 1 || !fresh {
            command.arg(format!("--writes={each}")).arg(format!("--reads={each}"));
        }
        let before = children_cpu_s();
        let output = command.output().map_err(|error| -> Failure {
            format!("cannot start {}: {error}", arguments.db_bench.display()).into()
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = errors.lines().last().unwrap_or_default().to_owned();
            return Err(format!("db_bench ended with {}: {last}", output.status).into());
        }
        Ok((text, children_cpu_s() - before))
    };
    let (text, cpu_s, operations) = if workload == WORKLOADS[0] {
        empty(&path)?;
        let (text, cpu_s) = start(workload, threads, true)?;
        files::remove(&path)?;
        (text, cpu_s, each * threads)
    } else {
        if !path.exists() {
            empty(&path)?;
            start("filluniquerandom,flush,waitforcompaction", 1, true)?;
        }
        let (text, cpu_s) = start("readrandom,readrandom", threads, false)?;
        (text, cpu_s, 2 * each * threads)
    };
    let ops_per_s = ops_per_s(&text, workload)
        .ok_or_else(|| format!("db_bench reports no {workload}: {}", text.trim()))?;
    Ok(Figures { ops_per_s, cpu_us_per_op: cpu_s * 1e6 / operations.max(1) as f64 })
}

/// What `db_bench` reports last of a benchmark: `NAME : 15.0 micros/op 66496 ops/sec ...`.
fn ops_per_s(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().rfind(|line| line.trim_start().starts_with(name))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "ops/sec")?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

/// Processor time of children that have ended and been waited for, in seconds.
fn children_cpu_s() -> f64 {
    let text = system_text("/proc/self/stat").unwrap_or_default();
    // The program's name stands in brackets and may hold anything; fields count from behind it.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |at: usize| {
        fields.split_ascii_whitespace().nth(at).and_then(|field| field.parse::<f64>().ok())
    };
    (ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0)) / TICKS_PER_SECOND
}

/// A line for each workload, and whether all are close enough.
fn verdict(all: &[Rounds; 2]) -> (Vec<String>, bool) {
    let median = |figures: &[Figures], of: fn(&Figures) -> f64| {
        Spread::of(figures.iter().map(of)).map_or(0.0, |spread| spread.median)
    };
    let mut agree = true;
    let lines = all.iter().zip(WORKLOADS).map(|(rounds, workload)| {
        let [harness, theirs] = [&rounds.harness, &rounds.db_bench];
        let speed = |figures: &[Figures]| median(figures, |found| found.ops_per_s);
        let cost = |figures: &[Figures]| median(figures, |found| found.cpu_us_per_op);
        let ratio = speed(harness) / speed(theirs).max(1e-9);
        let close = (ratio - 1.0).abs() <= APART_MAX;
        agree &= close;
        format!(
            "agree {workload} harness {:.0} op/s db_bench {:.0} op/s ratio {ratio:.3}{} \
             (processor {:.2} us/op, {:.2})",
            speed(harness),
            speed(theirs),
            if close { "" } else { " too far apart" },
            cost(harness),
            cost(theirs),
        )
    });
    (lines.collect(), agree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_of_db_bench_counts() {
        let text = "Keys: 24 bytes each\nreadrandom   :      20.0 micros/op 100 ops/sec 1 s\n\
                    readrandom   :      14.237 micros/op 70237 ops/sec 1.4 seconds (9 found)\n";
        assert_eq!(ops_per_s(text, "readrandom"), Some(70_237.0));
        assert_eq!(ops_per_s(text, "fillrandom"), None);
        assert_eq!(ops_per_s("readrandom failed", "readrandom"), None);
    }

    #[test]
    fn medians_that_are_far_apart_do_not_agree() {
        let rounds = |speeds: [f64; 3]| {
            let of = |ops_per_s| Figures { ops_per_s, cpu_us_per_op: 1.0 };
            let db_bench = [100.0, 100.0, 500.0].map(of).to_vec();
            Rounds { harness: speeds.map(of).to_vec(), db_bench }
        };
        let (lines, agree) = verdict(&[rounds([1.0, 90.0, 110.0]), rounds([114.0; 3])]);
        assert!(agree && lines[0].contains("ratio 0.900"), "{lines:?}");
        let (lines, agree) = verdict(&[rounds([90.0; 3]), rounds([84.0; 3])]);
        assert!(!agree && lines[1].contains("too far apart"), "{lines:?}");
        assert!(!lines[0].contains("too far apart"));
    }
}
