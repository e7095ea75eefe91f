//! Figures `judge`, 11 and 13: policies and layouts on one trace of blocks, by arithmetic; figure
//! `foyer`: that cache on the same trace.
//!
//! ```text
//!   --trace FILE, or N with a trace ──> mynvm-trace.jsonl ──> each admission, eviction, layout
//!   the same on LinkBench ──> mynvm-trace-linkbench.jsonl ──> each admission
//!   drawn: heat that stays, drifts, jumps ──────────────────> each admission
//! ```
//! What memory lacks does not depend on the cache below it, so all rows follow from one trace,
//! which is recorded once and stays beside the results.

use super::rows::{GRAPH, READS};
use super::{MynvmArguments, Sizes, restart};
use crate::block_trace::heat::{self, Drawing, HEATS};
use crate::block_trace::judge::{self, ADMISSIONS, EVICTIONS, Judged, WARM_UP_PERCENT};
use crate::block_trace::on_files::OnFiles;
use crate::block_trace::replay::{Policies, Verdict, replay_on};
use crate::block_trace::{Outturn, Task};
use crate::measure::process;
use crate::rows::Stand;
use crate::store::EngineKind;
use crate::{Outcome, block_trace, files};
use std::cell::OnceCell;
use std::path::Path;
use thermocline::{BlockRequest, BlockTrace, ByteSize};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::file_cache::Layout;

/// What a store does where nothing is said.
pub const USUAL: &str = "simulated_lru";

/// A trace and what policies made of it.
#[derive(Debug)]
struct Found {
    trace: BlockTrace,
    packed: Vec<Judged>,
    padded: Vec<Judged>,
}

/// What each admission made of a trace.
type Admissions = Vec<(&'static str, Verdict)>;

/// Those of a run, made where the first row asks for them.
#[allow(missing_debug_implementations, reason = "engines have none")]
pub struct Traced<'a> {
    arguments: &'a MynvmArguments,
    sizes: &'a Sizes,
    engines: &'a [&'a dyn EngineKind],
    found: OnceCell<Result<Found, String>>,
    /// On LinkBench.
    graph: OnceCell<Result<Found, String>>,
    /// Of each kind of heat, each admission.
    heats: OnceCell<[Admissions; HEATS.len()]>,
    /// Ours, and foyer's.
    foyer: OnceCell<Result<[Outturn; 2], String>>,
}

impl<'a> Traced<'a> {
    /// Nothing is recorded yet.
    pub fn new(
        arguments: &'a MynvmArguments,
        sizes: &'a Sizes,
        engines: &'a [&'a dyn EngineKind],
    ) -> Self {
        Self {
            arguments,
            sizes,
            engines,
            found: OnceCell::new(),
            graph: OnceCell::new(),
            heats: OnceCell::new(),
            foyer: OnceCell::new(),
        }
    }

    /// The value of the row called `name`.
    pub fn value(&self, name: &str, stand: &Stand<'_>) -> Outcome<f64> {
        if let Some(name) = name.strip_prefix("judge/heat/") {
            return self.of_heat(name);
        }
        match name.strip_prefix("judge/linkbench/") {
            Some(rest) => value(&format!("judge/{rest}"), self.graph(stand)?),
            None => value(name, self.found(stand)?),
        }
    }

    /// The value of a row on a trace whose heat moves: HEAT/MEASURE/ADMISSION.
    fn of_heat(&self, name: &str) -> Outcome<f64> {
        let seed = self.arguments.rows.seed;
        let judge = || HEATS.map(|(_, heat)| heat::judged(heat, Drawing::ROWS, seed));
        let heats = self.heats.get_or_init(judge);
        let parts: Vec<&str> = name.split('/').collect();
        let found = HEATS.iter().zip(heats).find(|((heat, _), _)| parts.first() == Some(heat));
        let mut verdicts = found.into_iter().flat_map(|(_, verdicts)| verdicts);
        let verdict = verdicts.find(|(admission, _)| parts.get(2) == Some(admission));
        match (parts.get(1), verdict) {
            (Some(&"hits"), Some((_, verdict))) => Ok(verdict.hit_percent()),
            (Some(&"writes"), Some((_, verdict))) => Ok(verdict.bytes_a_request()),
            _ => Err(format!("there is no row 'judge/heat/{name}'").into()),
        }
    }

    /// The value of a row of figure `foyer`.
    pub fn to_foyer(&self, name: &str, stand: &Stand<'_>) -> Outcome<f64> {
        let found = self.found(stand)?;
        let both = || self.both(found, stand).map_err(|why| why.to_string());
        let [ours, theirs] = self.foyer.get_or_init(both).clone()?;
        let share = |of: &Outturn| 100.0 * of.hits as f64 / (of.hits + of.misses).max(1) as f64;
        Ok(match name {
            "foyer/hits" => share(&ours) - share(&theirs),
            "foyer/writes" => ours.written_bytes as f64 / theirs.written_bytes.max(1) as f64,
            "foyer/processor" => ours.cpu_s / theirs.cpu_s.max(1e-9),
            _ => return Err(format!("there is no row '{name}'").into()),
        })
    }

    fn found(&self, stand: &Stand<'_>) -> Outcome<&Found> {
        let find = || self.find(stand, READS, self.arguments.trace.as_deref());
        let found = self.found.get_or_init(|| find().map_err(|why| why.to_string()));
        Ok(found.as_ref().map_err(String::clone)?)
    }

    fn graph(&self, stand: &Stand<'_>) -> Outcome<&Found> {
        let find = || self.find(stand, GRAPH, self.arguments.linkbench_trace.as_deref());
        let found = self.graph.get_or_init(|| find().map_err(|why| why.to_string()));
        Ok(found.as_ref().map_err(String::clone)?)
    }

    /// What policies make of the trace in `file`, or of one that is recorded on `workload`.
    fn find(&self, stand: &Stand<'_>, workload: &str, file: Option<&Path>) -> Outcome<Found> {
        let arguments = self.arguments;
        let trace = match file {
            Some(path) => block_trace::read(path)?,
            None => {
                let trace = restart::trace(stand, self.sizes, arguments.rows.seed, workload)?;
                let results = arguments.rows.results(&super::rows::PAPER);
                let name = if workload == READS { "" } else { "-linkbench" };
                let name = format!("mynvm-trace{name}.jsonl");
                block_trace::write(&results.with_file_name(name), &trace)?;
                trace
            }
        };
        if trace.requests.is_empty() {
            return Err("nothing was asked of the cache".into());
        }
        let judged = |layout| judge::all(&trace, layout, WARM_UP_PERCENT);
        let (packed, padded) = (judged(Layout::Packed), judged(Layout::Padded));
        Ok(Found { trace, packed, padded })
    }

    /// Ours and foyer on the same trace, with as many bytes on the fast device and as much memory,
    /// in files of the same directory.
    fn both(&self, found: &Found, stand: &Stand<'_>) -> Outcome<[Outturn; 2]> {
        let foyer = self.engines.iter().find(|engine| engine.name() == "foyer");
        let foyer = foyer.ok_or("foyer is not in this program: docs/rivals.md")?;
        let place = stand.fast.join("thermocline-mynvm-foyer");
        let ours = judge::of(&found.packed, USUAL, EVICTIONS[0].0);
        let memory = ByteSize(ours.memory_bytes + 2 * found.trace.batch_bytes);
        let warm_up = found.trace.requests.len() * usize::from(WARM_UP_PERCENT) / 100;
        let task = Task { trace: &found.trace, memory, place: &place, warm_up };
        let mut both = [Outturn::default(); 2];
        for (at, outturn) in both.iter_mut().enumerate() {
            files::remove(&place)?;
            files::make(&place)?;
            let done = match at {
                0 => ours_on_files(&task),
                _ => foyer.replay(&task).unwrap_or_else(|| Err("it is no cache".into())),
            };
            files::remove(&place)?;
            *outturn = done?;
        }
        Ok(both)
    }
}

/// Our cache with its usual policies, and its bytes in files.
fn ours_on_files(task: &Task<'_>) -> Outcome<Outturn> {
    let mut medium = OnFiles::new(task.place)?;
    let policies =
        Policies { admission: ADMISSIONS[0].1, eviction: EVICTIONS[0].1, layout: Layout::Packed };
    let cpu_s = process::cpu_s();
    let verdict = replay_on(&mut medium, task.trace, policies, task.warm_up);
    let cpu_s = process::cpu_s() - cpu_s;
    medium.finish()?;
    let Verdict { hits, misses, written_bytes, .. } = verdict;
    Ok(Outturn { hits, misses, written_bytes, cpu_s })
}

fn value(name: &str, found: &Found) -> Outcome<f64> {
    let of = |admission| judge::of(&found.packed, admission, EVICTIONS[0].0);
    let padded = || judge::of(&found.padded, USUAL, EVICTIONS[0].0);
    let parts: Vec<&str> = name.split('/').collect();
    Ok(match parts[..] {
        ["judge", "writes", admission] => judge::writes_to_always(&found.packed, &of(admission)),
        ["judge", "hits", admission] => of(admission).hit_percent() - of("always").hit_percent(),
        ["judge", "eviction", eviction] => {
            let of = |eviction| judge::of(&found.packed, USUAL, eviction).hit_percent();
            of(eviction) - of("fifo")
        }
        ["11", "pages", "tables"] => pages_in_tables(&found.trace),
        ["11", "pages", "packed"] => of(USUAL).pages_a_hit(),
        ["11", "pages", "padded"] => padded().pages_a_hit(),
        ["13", "tables"] => spread_in_tables(&found.trace),
        ["13", "packed"] => of(USUAL).spread_percent(),
        ["13", "padded"] => padded().spread_percent(),
        _ => return Err(format!("there is no row '{name}'").into()),
    })
}

/// Pages of its table that each block touches that was asked for.
fn pages(trace: &BlockTrace) -> impl Iterator<Item = u64> {
    let page = PAGE_BYTES as u64;
    let touched =
        move |block: &BlockRequest| (block.offset % page + u64::from(block.len)).div_ceil(page);
    trace.requests.iter().map(touched)
}

/// Pages of its table that a block touches which was asked for, in the mean.
fn pages_in_tables(trace: &BlockTrace) -> f64 {
    pages(trace).sum::<u64>() as f64 / trace.requests.len() as f64
}

/// Of the blocks that were asked for, those that touch two pages or more of their table, in
/// percent.
fn spread_in_tables(trace: &BlockTrace) -> f64 {
    let spread = pages(trace).filter(|pages| *pages > 1).count();
    100.0 * spread as f64 / trace.requests.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::mix;

    #[test]
    fn bytes_in_files_change_nothing_that_is_counted_and_leave_no_file() {
        let scratch = tempfile::tempdir().unwrap();
        let request = |at: u64| BlockRequest { table: 1, offset: mix(at) % 900 * 3000, len: 3000 };
        let trace = BlockTrace {
            capacity_bytes: 1 << 20,
            file_bytes: 64 << 10,
            batch_bytes: 16 << 10,
            block_bytes: 3072,
            requests: (0..6000).map(request).collect(),
        };
        let place = scratch.path();
        let task = Task { trace: &trace, memory: ByteSize::mib(1), place, warm_up: 3000 };
        let outturn = ours_on_files(&task).unwrap();
        let judged = judge::all(&trace, Layout::Packed, 50);
        let expected = judge::of(&judged, USUAL, EVICTIONS[0].0);
        assert_eq!((outturn.hits, outturn.misses), (expected.hits, expected.misses));
        assert_eq!(outturn.written_bytes, expected.written_bytes);
        assert!(expected.written_bytes > 0 && expected.hits > 0, "{expected:?}");
        assert!(is_empty(place), "files are left behind");
    }

    #[allow(clippy::disallowed_methods, reason = "what is left of it")]
    fn is_empty(directory: &Path) -> bool {
        std::fs::read_dir(directory).unwrap().next().is_none()
    }

    #[test]
    fn rows_follow_from_the_trace_and_unknown_ones_are_refused() {
        let request = |at: u64| BlockRequest { table: 1, offset: mix(at) % 900 * 3000, len: 3000 };
        let trace = BlockTrace {
            capacity_bytes: 1 << 20,
            file_bytes: 64 << 10,
            batch_bytes: 16 << 10,
            block_bytes: 3072,
            requests: (0..3000).map(request).collect(),
        };
        let judged = |layout| judge::all(&trace, layout, 50);
        let (packed, padded) = (judged(Layout::Packed), judged(Layout::Padded));
        let found = Found { trace, packed, padded };
        let value = |name: &str| value(name, &found).map_err(|why| why.to_string());
        assert_eq!(value("judge/writes/always"), Ok(1.0));
        assert_eq!(value("judge/eviction/fifo"), Ok(0.0));
        assert_eq!((value("13/padded"), value("11/pages/padded")), (Ok(0.0), Ok(1.0)));
        let (pages, spread) = (value("11/pages/tables").unwrap(), value("13/tables").unwrap());
        assert!((pages - 1.0 - spread / 100.0).abs() < 1e-9, "none touches three: {pages}");
        assert!(value("11/pages/packed").unwrap() > 1.5);
        assert!(value("13/packed").unwrap() > 50.0 && value("13/tables").unwrap() > 50.0);
        assert!(value("judge/luck").unwrap_err().contains("no row"));
    }
}
