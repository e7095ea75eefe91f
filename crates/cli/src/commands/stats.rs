//! `stats`: what the database holds, how it is arranged, and what its work has cost. One screen;
//! `stats --all` has every table, `stats --watch` shows what a running process does.

use crate::arguments::{Database, Stats as Arguments};
use crate::commands::{cache, fast_tier, tiers, watch};
use crate::failure::Result;
use crate::figures::Figures;
use crate::output::Output;
use crate::table::Table;
use crate::text;
use thermocline::{HitStats, IndexStats, Mode, RegionStats, Stats, TierStats, TransactionStats};
use thermocline_foundation::ByteSize;

/// Prints the statistics.
pub fn run(database: &Database, arguments: &Arguments, json: bool) -> Result<()> {
    if arguments.watch {
        return watch::run(database, json);
    }
    let figures = Figures::of(database)?;
    let stats = figures.stats();
    let mut output = Output::new();
    if json {
        output.line(figures.to_json()?)?;
        return output.finish();
    }
    if let Some(origin) = figures.origin() {
        output.line(origin)?;
    }
    print_heading(stats, &mut output)?;
    if arguments.all {
        output.line("")?;
        print_all(stats, &mut output)?;
    } else {
        print(stats, &mut output)?;
    }
    output.finish()
}

fn print_heading(stats: &Stats, output: &mut Output) -> Result<()> {
    output.line(format!(
        "Database {}, preset {}, sequence {}, mode {}",
        stats.database,
        stats.preset.name(),
        text::count(stats.sequence),
        mode(stats.mode)
    ))?;
    if let Some(reason) = &stats.read_only {
        output.line(format!("READ-ONLY: {reason}"))?;
    }
    Ok(())
}

/// One screen: 24 rows, unless there are many levels or something is wrong.
fn print(stats: &Stats, output: &mut Output) -> Result<()> {
    for table in [tiers::overview(stats), levels(stats), hits(stats)] {
        print_plain(&table, output)?;
        output.line("")?;
    }
    let (cost, operations) = (&stats.amplification, &stats.operations);
    output.line(blocks(stats))?;
    output.line(fast_tier::moved(stats))?;
    output.line(format!(
        "write amplification {:.2}, space amplification {:.2}, read for each look-up {}",
        cost.write,
        cost.space,
        ByteSize(cost.read_bytes_per_get as u64)
    ))?;
    let cause = stats.activity.stall_cause.as_deref();
    output.line(format!(
        "writers delayed {:.2} s, writers stopped {:.2} s{}",
        operations.delayed_s,
        operations.stalled_s,
        cause.map_or_else(String::new, |cause| format!("; now: {cause}"))
    ))?;
    if let Some(line) = log_line(stats) {
        output.line(line)?;
    }
    if let Some(refusal) = stats.fast_tier.as_ref().and_then(|fast| fast.demotion_refusal.as_ref())
    {
        output.line(format!("demotions wait: {refusal}"))?;
    }
    if let Some(levels) = stats.fast_levels {
        output.line(format!("new tables of {} go to the fast tier", upper_levels(levels)))?;
    }
    output.line(tiers::open_files(stats))?;
    if let Some(shortage) = &stats.activity.room_shortage {
        output.line(format!("background work waits for room: {shortage}"))?;
    }
    if let Some(shortage) = &stats.activity.file_shortage {
        output.line(format!("background work waits for a descriptor: {shortage}"))?;
    }
    output.line("'stats --all' has the rest")
}

/// So many levels from the top, in words.
fn upper_levels(levels: u8) -> String {
    match levels {
        0 => "no level".to_owned(),
        1 => "level 0".to_owned(),
        2 => "level 0 and the next in use".to_owned(),
        levels => format!("level 0 and the next {} in use", levels - 1),
    }
}

/// The lines of a table without a title: its headings say what it is of.
fn print_plain(table: &Table, output: &mut Output) -> Result<()> {
    table.plain_lines().into_iter().try_for_each(|line| output.line(line))
}

/// What answered look-ups.
fn hits(stats: &Stats) -> Table {
    let gets = stats.operations.gets;
    match &stats.fast_tier {
        Some(fast) => fast_tier::answers(stats, fast),
        None => {
            let mut table = Table::new(&["look-ups answered by", ">amount", ">share"]);
            let hits = stats.operations.memtable_hits;
            table.row(["a memtable".to_owned(), text::count(hits), text::share(hits, gets)]);
            table
        }
    }
}

/// A line about which blocks memory had.
fn blocks(stats: &Stats) -> String {
    let ratio = |(class, counts): (&String, &HitStats)| {
        format!("{class} {}", text::share(counts.hits, counts.hits + counts.misses))
    };
    let ratios: Vec<_> = stats.cache.classes.iter().map(ratio).collect();
    format!("hit ratio of blocks in memory: {}", ratios.join(", "))
}

/// A line about groups of writes and what waits, in a process that writes.
fn log_line(stats: &Stats) -> Option<String> {
    let (log, requests) = (&stats.log, &stats.requests);
    if log.groups == 0 {
        return None;
    }
    let waiting = requests.waiting_writes + requests.waiting_gets + requests.waiting_pages;
    let times = match log.durable_groups {
        0 => "none durable".to_owned(),
        _ => format!("p50 {}, p99 {}", text::span_s(log.p50_s), text::span_s(log.p99_s)),
    };
    Some(format!(
        "log writes: {times}; {} on their way, the oldest for {}; {} requests wait",
        log.flying,
        text::span_s(log.oldest_flying_s),
        text::count(waiting + requests.waiting_looks)
    ))
}

/// Every table.
fn print_all(stats: &Stats, output: &mut Output) -> Result<()> {
    levels(stats).print("Levels", output)?;
    if stats.levels.iter().any(|level| level.dictionaries > 0) {
        dictionaries(stats).print("Dictionaries, of the tables that have been opened", output)?;
    }
    tiers::table(stats).print("Tiers", output)?;
    tiers::holds(stats).print("Records by tier", output)?;
    tiers::served(stats).print("Served by tier, since the database was made", output)?;
    tiers::print_wear(stats, output)?;
    if let Some(fast) = &stats.fast_tier {
        fast_tier::print(stats, fast, output)?;
    }
    caches(stats).print("Block cache, since the database was made", output)?;
    if let Some(cache) = &stats.fast_cache {
        let mut table = Table::new(&["cache of blocks on the fast tier", ">amount"]);
        cache::running(cache, &mut table);
        table.print("Cache on the fast tier, since the database was opened", output)?;
    }
    memory(stats).print("Memory", output)?;
    if let Some(region) = &stats.region {
        persistent_memory(region, stats.index.as_ref())
            .print("Persistent memory, since the database was opened", output)?;
    }
    if stats.log.groups > 0 {
        log(stats).print("Log, since the database was opened", output)?;
    }
    if stats.transactions != TransactionStats::default() {
        transactions(stats).print("Transactions, since the database was opened", output)?;
    }
    if stats.requests.threads > 0 {
        requests(stats).print("Asynchronous requests, since the database was opened", output)?;
        loggers(stats)
            .print("Loggers of asynchronous writes, since the database was opened", output)?;
    }
    amplification(stats).print("Cost, since the database was made", output)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::ReadWrite => "read-write",
        Mode::ReadOnly => "read-only",
        Mode::Stopped => "read-only, writing has stopped",
        Mode::Unusable => "unusable",
    }
}

/// One row for each level, with a column for each tier; above them one for records in slots, where
/// there are any, and the files that these are in.
pub fn levels(stats: &Stats) -> Table {
    let on_tier = |tier: usize| format!(">on tier {tier}");
    let tier_columns: Vec<String> = (0..stats.tiers.len()).map(on_tier).collect();
    let mut headings = vec![">level", ">files", ">records", ">tombstones", ">bytes"];
    headings.extend(tier_columns.iter().map(String::as_str));
    let mut table = Table::new(&headings);
    if let Some(fast) = &stats.fast_tier {
        let files: u64 = fast.classes.iter().map(|class| class.slabs).sum();
        let (records, bytes) = (text::count(fast.records), tiers::size(fast.slab_bytes));
        let counts = ["slots".to_owned(), text::count(files), records, "-".to_owned(), bytes];
        let on_tier = |tier: &TierStats| tier.bytes_by_kind.get("slab").copied().unwrap_or(0);
        let tiers = stats.tiers.iter().map(|tier| tiers::size(on_tier(tier)));
        table.row(counts.into_iter().chain(tiers));
    }
    for level in &stats.levels {
        let counts = [
            level.level.to_string(),
            text::count(level.tables as u64),
            text::count(level.entries),
            text::count(level.deletes),
            ByteSize(level.bytes).to_string(),
        ];
        let tiers = level.bytes_by_tier.iter().map(|bytes| tiers::size(*bytes));
        table.row(counts.into_iter().chain(tiers));
    }
    table
}

/// One row for each level that has tables with a dictionary.
fn dictionaries(stats: &Stats) -> Table {
    let mut table = Table::new(&[">level", ">files", ">with a dictionary", ">bytes saved"]);
    for level in stats.levels.iter().filter(|level| level.dictionaries > 0) {
        table.row([
            level.level.to_string(),
            text::count(level.tables as u64),
            text::count(level.dictionaries),
            tiers::size(level.dictionary_saved_bytes),
        ]);
    }
    table
}

/// One row for each class of block.
pub fn caches(stats: &Stats) -> Table {
    let mut table = Table::new(&["blocks", ">hits", ">misses", ">hit ratio"]);
    for (class, counts) in &stats.cache.classes {
        let (hits, misses) = (counts.hits, counts.misses);
        let ratio = text::share(hits, hits + misses);
        table.row([class.clone(), text::count(hits), text::count(misses), ratio]);
    }
    table
}

fn memory(stats: &Stats) -> Table {
    let memory = &stats.memory;
    let mut parts = vec![
        ("memtables", memory.memtable_bytes),
        ("block cache", memory.cache_bytes),
        ("table indexes", memory.pinned_bytes),
    ];
    if stats.fast_tier.is_some() {
        parts.extend([
            ("buffers of demotions", memory.merge_bytes),
            ("index of slots", memory.slot_index_bytes),
            ("records of the fast tier", memory.record_cache_bytes),
            ("popularity of keys", memory.popularity_bytes),
        ]);
    }
    parts.extend([("used", memory.used_bytes), ("budget", memory.budget_bytes)]);
    let mut table = Table::new(&["part", ">bytes", ">of budget"]);
    for (part, bytes) in parts {
        let share = text::share(bytes, memory.budget_bytes);
        table.row([part.to_owned(), ByteSize(bytes).to_string(), share]);
    }
    table
}

/// Groups of writes and their way to the log: of this moment, and since the database was opened.
pub fn log(stats: &Stats) -> Table {
    let (log, operations) = (&stats.log, &stats.operations);
    let mut table = Table::new(&["what", ">amount"]);
    let largest = log.group_sizes.iter().rposition(|count| *count > 0).unwrap_or(0);
    let largest = match largest + 1 == log.group_sizes.len() {
        true => format!("over {}", (1_u64 << largest) / 2),
        false => format!("up to {}", 1_u64 << largest),
    };
    let seconds = |count: u64, seconds: f64| format!("{seconds:.2} s in {}", text::count(count));
    for (what, amount) in [
        ("groups of writes", text::count(log.groups)),
        ("  writes in a group", format!("{:.1}", log.batches as f64 / log.groups.max(1) as f64)),
        ("  writes in the largest group", largest),
        ("  on their way now", text::count(log.flying)),
        ("  the oldest of these, for", text::span_s(log.oldest_flying_s)),
        ("durable writes of the log", text::count(log.durable_groups)),
        ("  half of them within", text::span_s(log.p50_s)),
        ("  99 of 100 within", text::span_s(log.p99_s)),
        ("  over a second", text::count(log.slow)),
        ("  bytes a second of one", ByteSize(log.bytes_per_s() as u64).to_string()),
        ("padding between groups", ByteSize(log.padding_bytes).to_string()),
        ("  groups that waited so that there is less", text::count(log.padding_waits)),
        ("writers waited for a memtable", seconds(log.memtable_stalls, log.memtable_stalled_s)),
        ("writers waited for a log", seconds(log.log_stalls, log.log_stalled_s)),
        ("writers delayed, since the database was made", format!("{:.2} s", operations.delayed_s)),
    ] {
        table.row([what.to_owned(), amount]);
    }
    table
}

/// The region that writes go to in place of a log.
fn persistent_memory(region: &RegionStats, index: Option<&IndexStats>) -> Table {
    let mut table = Table::new(&["what", ">amount"]);
    for (what, amount) in [
        ("file", region.path.clone()),
        ("media", region.media.clone()),
        ("size", ByteSize(region.bytes).to_string()),
        ("free", ByteSize(region.free_bytes).to_string()),
        ("lines flushed", text::count(region.lines)),
        ("fences", text::count(region.fences)),
    ] {
        table.row([what.to_owned(), amount]);
    }
    let Some(index) = index else { return table };
    let waiting = match index.is_full {
        true => format!("{} (full: only deletes are taken)", text::count(index.waiting_tables)),
        false => text::count(index.waiting_tables),
    };
    for (what, amount) in [
        ("keys in the index, and separators", text::count(index.objects)),
        ("size of the index", ByteSize(index.bytes).to_string()),
        ("tables that wait for it", waiting),
        ("size of tables merged for order", ByteSize(index.ordered_bytes).to_string()),
    ] {
        table.row([what.to_owned(), amount]);
    }
    table
}

/// Asynchronous requests: those of this moment, and since the database was opened.
pub fn requests(stats: &Stats) -> Table {
    let requests = &stats.requests;
    let mut table = Table::new(&["what", ">amount"]);
    let per_group = match requests.groups {
        0 => "-".to_owned(),
        groups => format!("{:.1}", requests.grouped_writes as f64 / groups as f64),
    };
    for (what, amount) in [
        ("writes that wait", text::count(requests.waiting_writes)),
        ("transactions that wait for a look", text::count(requests.waiting_looks)),
        ("gets that wait", text::count(requests.waiting_gets)),
        ("pages of scans that wait", text::count(requests.waiting_pages)),
        ("in flight", text::count(requests.held)),
        ("  bytes of these", ByteSize(requests.held_bytes).to_string()),
        ("threads", text::count(requests.threads)),
        ("writes", text::count(requests.writes)),
        ("  writes in a group", per_group),
        ("  writes in the largest group", text::count(requests.largest_group)),
        ("looks for transactions", text::count(requests.looks)),
        ("gets that memory did not answer at once", text::count(requests.gets)),
        ("pages of scans", text::count(requests.pages)),
        ("refused as busy", text::count(requests.refused)),
    ] {
        table.row([what.to_owned(), amount]);
    }
    table
}

/// Transactions and conditional writes that came second, and what they waited for.
pub fn transactions(stats: &Stats) -> Table {
    let counts = &stats.transactions;
    let mut table = Table::new(&["what", ">amount"]);
    for (what, count) in [
        ("pessimistic transactions open now", counts.open_pessimistic),
        ("conflicts: another write came first", counts.conflicts),
        ("deadlocks", counts.deadlocks),
        ("waits for a lock that timed out", counts.lock_timeouts),
    ] {
        table.row([what.to_owned(), text::count(count)]);
    }
    table
}

/// One row for each logger.
pub fn loggers(stats: &Stats) -> Table {
    let headings = [">logger", ">groups", ">bytes", ">time of a group", ">bytes a second"];
    let mut table = Table::new(&headings);
    for (number, logger) in (1..).zip(&stats.requests.loggers) {
        table.row([
            number.to_string(),
            text::count(logger.groups),
            ByteSize(logger.bytes).to_string(),
            text::span_s(logger.mean_s()),
            ByteSize(logger.bytes_per_s() as u64).to_string(),
        ]);
    }
    table
}

/// What was asked, and what it cost.
pub fn amplification(stats: &Stats) -> Table {
    let (operations, amplification) = (&stats.operations, &stats.amplification);
    let mut table = Table::new(&["what", ">amount"]);
    let per_get = ByteSize(amplification.read_bytes_per_get as u64);
    for (what, amount) in [
        ("records looked up", text::count(operations.gets)),
        ("  of these found in a memtable", text::count(operations.memtable_hits)),
        ("scans", text::count(operations.scans)),
        ("records written", text::count(operations.writes)),
        ("write amplification", format!("{:.2}", amplification.write)),
        ("read from tiers for each look-up", per_get.to_string()),
        ("space amplification", format!("{:.2}", amplification.space)),
        ("compactions", text::count(operations.compactions)),
        ("  bytes of tables that they took in", tiers::size(operations.compacted_in_bytes)),
        ("  bytes of tables that they made", tiers::size(operations.compacted_out_bytes)),
        ("tables moved to another level", text::count(operations.trivial_moves)),
        ("tables moved to another tier", text::count(operations.migrations)),
        ("writers delayed", format!("{:.2} s", operations.delayed_s)),
        ("writers stopped", format!("{:.2} s", operations.stalled_s)),
    ] {
        table.row([what.to_owned(), amount]);
    }
    table
}
