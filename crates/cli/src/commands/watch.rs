//! `stats --watch`: the figures of a running process again and again, with what changed in between.
//!
//! The process that has the store open writes its figures to a file (`LiveStats`); this command
//! reads the file and never opens the store. A terminal is drawn over, anything else gets one block
//! after the other, `--json` one line for each.
//!
//! The command ends when the store is closed, or when the process is gone.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::figures::origin;
use crate::output::{Output, note};
use crate::table::Table;
use crate::{store, text};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use thermocline::{ErrorKind, LiveStats, Stats};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// Puts the cursor into the first column of the first line, and clears what is below it.
const CLEAR: &str = "\x1b[H\x1b[J";
/// The time between two looks, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks that wait for the first figures of a process.
const FIRST_LOOKS: u32 = 5;

/// Shows figures until the store is closed.
pub fn run(database: &Database, json: bool) -> Result<()> {
    let home = store::home(database)?;
    let clock = SystemClock::new();
    let is_drawn_over = !json && std::io::stdout().is_terminal();
    let (mut before, mut now) = (None, first(&home, database, &clock)?);
    loop {
        show(&now, before.as_ref(), is_drawn_over, json, &clock)?;
        let last = loop {
            clock.sleep(Duration::from_secs_f64(now.live.interval_s).min(LOOK_EVERY));
            match look(&home)? {
                Some(next) if next.live != now.live => break Some(next),
                Some(_) if is_gone(&now, &home, &clock)? => break None,
                Some(_) if is_drawn_over => show(&now, before.as_ref(), true, json, &clock)?,
                Some(_) => {}
                None if LiveStats::is_open(&home)? => {}
                None => break None,
            }
        };
        let Some(next) = last else { break };
        before = Some(std::mem::replace(&mut now, next));
    }
    note("the store is open in no process any more");
    Ok(())
}

/// Commits of transactions that wait for a look at what they build on.
fn looks(waiting: u64) -> String {
    let noun = if waiting == 1 { "look of a commit" } else { "looks of commits" };
    format!("{} {noun}", text::count(waiting))
}

/// The file; none where it is not there or not whole at this moment.
fn look(home: &Path) -> Result<Option<LiveStats>> {
    match LiveStats::read(home) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => Ok(read?),
    }
}

/// The first figures, once there are some.
fn first(home: &Path, database: &Database, clock: &SystemClock) -> Result<LiveStats> {
    let db = database.db.display();
    for _ in 0..FIRST_LOOKS {
        if !LiveStats::is_open(home)? {
            return Err(Failure::new(format!(
                "no process has {db} open for writing; look at it with 'thermocline stats'"
            )));
        }
        if let Some(live) = look(home)? {
            return Ok(live);
        }
        clock.sleep(LOOK_EVERY);
    }
    Err(Failure::new(format!(
        "the process that has {db} open writes no figures; set stats_interval where it is 0"
    )))
}

/// The process did not end the figures, and has ended itself: they are old, and the store is free.
fn is_gone(now: &LiveStats, home: &Path, clock: &SystemClock) -> Result<bool> {
    let is_old = now.age(clock).as_secs_f64() > 2.0 * now.live.interval_s;
    Ok(is_old && !LiveStats::is_open(home)?)
}

fn show(
    now: &LiveStats,
    before: Option<&LiveStats>,
    is_drawn_over: bool,
    json: bool,
    clock: &SystemClock,
) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.line(serde_json::to_string(now)?)?;
        return output.finish();
    }
    if is_drawn_over {
        output.bytes(CLEAR.as_bytes())?;
    }
    output.line(origin(now, clock))?;
    frame(now, before).iter().try_for_each(|line| output.line(line))?;
    output.finish()
}

/// What happened between two figures of one process.
struct Between<'a> {
    now: &'a Stats,
    /// With the seconds since then.
    before: Option<(&'a Stats, f64)>,
}

impl<'a> Between<'a> {
    fn new(now: &'a LiveStats, before: Option<&'a LiveStats>) -> Self {
        let is_same = |before: &&LiveStats| before.live.process == now.live.process;
        let seconds = |before: &LiveStats| now.live.open_s - before.live.open_s;
        let before = before.filter(is_same).map(|before| (&before.stats, seconds(before)));
        Self { now: &now.stats, before: before.filter(|(_, seconds)| *seconds > 0.0) }
    }

    /// How much more there is of something.
    fn more(&self, of: impl Fn(&Stats) -> u64) -> Option<u64> {
        self.before.map(|(before, _)| of(self.now).saturating_sub(of(before)))
    }

    /// The same for each second.
    fn rate(&self, of: impl Fn(&Stats) -> u64) -> Option<u64> {
        let seconds = self.before?.1;
        Some((self.more(of)? as f64 / seconds) as u64)
    }

    /// Seconds of something in each second.
    fn time(&self, of: impl Fn(&Stats) -> f64) -> String {
        let since = self.before.map(|(before, seconds)| (of(self.now) - of(before)) / seconds);
        since.map_or_else(dash, |share| format!("{share:.2} s a second"))
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// The lines of a block but the first.
fn frame(now: &LiveStats, before: Option<&LiveStats>) -> Vec<String> {
    let between = Between::new(now, before);
    let mut lines = vec![String::new()];
    for table in [throughput(&between), ratios(&between), moved(&between)] {
        lines.extend(table.lines());
        lines.push(String::new());
    }
    let activity = &now.stats.activity;
    lines.push(format!(
        "queues: {} of {} memtables to be flushed, {} of level 0, {} unsynced, {} in line",
        activity.frozen_memtables,
        activity.frozen_memtables_max,
        text::counted(activity.level0_tables, "table"),
        ByteSize(activity.unsynced_bytes),
        text::counted(activity.waiting_writers, "writer"),
    ));
    if now.stats.fast_tier.is_some() {
        lines.push(format!(
            "        {} to be promoted, {} that wait for slots",
            text::counted(activity.waiting_promotions, "record"),
            text::count(activity.waiting_spills),
        ));
    }
    let requests = &now.stats.requests;
    if requests.threads > 0 {
        lines.push(format!(
            "        {}, {}, {} and {} wait, {} in flight, {} refused",
            text::counted(requests.waiting_writes, "asynchronous write"),
            looks(requests.waiting_looks),
            text::counted(requests.waiting_gets, "get"),
            text::counted(requests.waiting_pages, "page"),
            text::count(requests.held),
            text::count(requests.refused),
        ));
    }
    let log = &now.stats.log;
    lines.push(format!(
        "log:    {} groups on their way, the oldest for {}; since the opening p50 {}, p99 {}",
        text::count(log.flying),
        text::span_s(log.oldest_flying_s),
        text::span_s(log.p50_s),
        text::span_s(log.p99_s),
    ));
    lines.push(format!(
        "stalls: writers delayed {}, stopped {}",
        between.time(|stats| stats.operations.delayed_s),
        between.time(|stats| stats.operations.stalled_s),
    ));
    let rate = activity.write_rate_bytes.map_or_else(String::new, |bytes| {
        format!("; writers may write {} a second", ByteSize(bytes))
    });
    let cause = activity.stall_cause.as_deref().unwrap_or("none");
    lines.push(format!("cause:  {cause}{rate}"));
    if let Some(reason) = &now.stats.read_only {
        lines.push(format!("READ-ONLY: {reason}"));
    }
    lines.push(String::new());
    lines
}

/// Operations and bytes.
fn throughput(between: &Between<'_>) -> Table {
    let mut table = Table::new(&["throughput", ">a second", ">since it was made"]);
    let rate = |of: &dyn Fn(&Stats) -> u64, show: &dyn Fn(u64) -> String| {
        let now = between.rate(of).map_or_else(dash, show);
        [now, show(of(between.now))]
    };
    let count = |number: u64| text::count(number);
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let mut row = |name: String, cells: [String; 2]| table.row([name].into_iter().chain(cells));
    row("look-ups".to_owned(), rate(&|stats| stats.operations.gets, &count));
    row("scans".to_owned(), rate(&|stats| stats.operations.scans, &count));
    row("records written".to_owned(), rate(&|stats| stats.operations.writes, &count));
    row("bytes of these".to_owned(), rate(&|stats| stats.operations.written_bytes, &size));
    for tier in 0..between.now.tiers.len() {
        let bytes = |of: fn(&thermocline::TierStats) -> u64| {
            rate(&|stats| stats.tiers.get(tier).map_or(0, of), &size)
        };
        row(format!("read from tier {tier}"), bytes(|tier| tier.read_bytes));
        row(format!("written to tier {tier}"), bytes(|tier| tier.written_bytes));
    }
    table
}

/// A count of the statistics.
type Count<'a> = Box<dyn Fn(&Stats) -> u64 + 'a>;

/// Where look-ups and reads of blocks found what they wanted.
fn ratios(between: &Between<'_>) -> Table {
    let mut table = Table::new(&["found in", ">now", ">since it was made"]);
    let mut row = |name: &str, part: Count<'_>, whole: Count<'_>| {
        let now = between.more(&part).zip(between.more(&whole));
        let now = now.map_or_else(dash, |(part, whole)| text::share(part, whole));
        let all = text::share(part(between.now), whole(between.now));
        table.row([name.to_owned(), now, all]);
    };
    let gets = || -> Count<'_> { Box::new(|stats| stats.operations.gets) };
    row("a memtable", Box::new(|stats| stats.operations.memtable_hits), gets());
    if between.now.fast_tier.is_some() {
        let fast = |stats: &Stats| stats.fast_tier.as_ref().map_or(0, |fast| fast.fast_reads);
        let slots = move |stats: &Stats| fast(stats).saturating_sub(stats.operations.memtable_hits);
        let slow = |stats: &Stats| stats.fast_tier.as_ref().map_or(0, |fast| fast.slow_reads);
        row("slots, or memory above them", Box::new(slots), gets());
        row("tables, or cached blocks of them", Box::new(slow), gets());
    }
    for class in between.now.cache.classes.keys() {
        let counts = |stats: &Stats| stats.cache.classes.get(class).copied().unwrap_or_default();
        let hits = move |stats: &Stats| counts(stats).hits;
        let all = move |stats: &Stats| counts(stats).hits + counts(stats).misses;
        row(&format!("{class} blocks in memory"), Box::new(hits), Box::new(all));
    }
    table
}

/// What moved between the tiers.
fn moved(between: &Between<'_>) -> Table {
    let mut table = Table::new(&["moved", ">a second", ">since it was made"]);
    let mut row = |name: &str, of: Count<'_>| {
        let now = between.rate(&of).map_or_else(dash, text::count);
        table.row([name.to_owned(), now, text::count(of(between.now))]);
    };
    if between.now.fast_tier.is_some() {
        let of = |of: fn(&thermocline::FastTierStats) -> u64| -> Count<'_> {
            Box::new(move |stats| stats.fast_tier.as_ref().map_or(0, of))
        };
        row("records up", of(|fast| fast.promoted_records));
        row("records down", of(|fast| fast.demoted_records));
        row("copies that got slots", of(|fast| fast.spilled_records));
        row("copies dropped", of(|fast| fast.dropped_records));
    }
    row("tables to another tier", Box::new(|stats| stats.operations.migrations));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::{Db, LiveMark, Settings, Tier};

    /// Figures of a store with a fast tier of slots, after so many seconds.
    fn live(process: u32, open_s: f64, change: impl FnOnce(&mut Stats)) -> LiveStats {
        let home = tempfile::tempdir().unwrap();
        let tier = |name: &str| Tier::new(home.path().join(name), ByteSize::mib(64));
        let settings = Settings { tiers: vec![tier("fast"), tier("slow")], ..Settings::default() };
        let db = Db::create(home.path().join("home"), &settings).unwrap();
        let mut stats = db.stats();
        db.close().unwrap();
        change(&mut stats);
        let live = LiveMark { version: 1, process, written_s: 0, open_s, interval_s: 1.0 };
        LiveStats { live, stats }
    }

    /// The cells of the row that begins with `name`.
    fn row(lines: &[String], name: &str) -> String {
        let found = lines.iter().find_map(|line| line.strip_prefix(name));
        let found = found.unwrap_or_else(|| panic!("{name} is not in {lines:?}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_block_shows_what_happened_in_a_second_and_since_the_store_was_made() {
        let before = live(7, 10.0, |stats| {
            stats.operations.gets = 100;
            stats.operations.memtable_hits = 100;
            stats.operations.stalled_s = 1.0;
        });
        let now = live(7, 12.0, |stats| {
            stats.operations.gets = 500;
            stats.operations.memtable_hits = 200;
            stats.operations.stalled_s = 2.0;
            stats.tiers[1].written_bytes += 8 << 20;
            let fast = stats.fast_tier.as_mut().unwrap();
            (fast.fast_reads, fast.slow_reads) = (300, 200);
            fast.promoted_records = 40;
            stats.activity.waiting_writers = 3;
            stats.requests.threads = 2;
            (stats.requests.waiting_writes, stats.requests.held) = (5, 9);
            (stats.log.flying, stats.log.p50_s) = (2, 0.00025);
            stats.activity.stall_cause = Some("2 full memtables".to_owned());
        });
        let lines = frame(&now, Some(&before));
        assert_eq!(row(&lines, "look-ups"), "200 500");
        assert!(row(&lines, "written to tier 1").starts_with("4 MiB "), "{lines:?}");
        assert_eq!(row(&lines, "a memtable"), "25.0 % 40.0 %");
        assert_eq!(row(&lines, "tables, or cached blocks of them"), "50.0 % 40.0 %");
        assert_eq!(row(&lines, "records up"), "20 40");
        assert!(row(&lines, "queues:").ends_with("3 writers in line"), "{lines:?}");
        let requests = "5 asynchronous writes, 0 looks of commits, 0 gets and 0 pages wait, \
                        9 in flight, 0 refused";
        assert!(lines.iter().any(|line| line.trim() == requests), "{lines:?}");
        assert!(row(&lines, "log:").starts_with("2 groups on their way, the"), "{lines:?}");
        assert!(row(&lines, "log:").contains("p50 250 us"), "{lines:?}");
        assert!(row(&lines, "stalls:").ends_with("stopped 0.50 s a second"), "{lines:?}");
        assert_eq!(row(&lines, "cause:"), "2 full memtables");
    }

    #[test]
    fn figures_of_two_processes_are_not_compared() {
        let before = live(7, 10.0, |stats| stats.operations.gets = 100);
        let now = live(8, 12.0, |stats| stats.operations.gets = 500);
        for before in [None, Some(&before)] {
            let lines = frame(&now, before);
            assert_eq!(row(&lines, "look-ups"), "- 500");
            assert_eq!(row(&lines, "cause:"), "none");
        }
    }
}
