//! `cache show|clear|resize`: the cache of blocks on the fast tier.

use crate::arguments::{Cache, CacheAction, Database};
use crate::failure::Result;
use crate::figures::Figures;
use crate::output::Output;
use crate::table::Table;
use crate::{store, text};
use serde::Serialize;
use thermocline::{CacheCapacity, FastCacheSettings, FastCacheStats, Stats};
use thermocline_foundation::ByteSize;

/// Shows the cache, empties it, or gives it another size.
pub fn run(database: &Database, arguments: &Cache, json: bool) -> Result<()> {
    match &arguments.action {
        CacheAction::Show => show(database, json),
        CacheAction::Clear => clear(database),
        CacheAction::Resize { size } => resize(database, *size),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    /// As the database keeps them.
    settings: &'a FastCacheSettings,
    /// Bytes of its files on tier 0.
    file_bytes: u64,
    /// Of the process that has the database open for writing.
    running: Option<&'a FastCacheStats>,
}

fn show(database: &Database, json: bool) -> Result<()> {
    let home = store::home(database)?;
    // Opening for writing would work on the files that are to be shown.
    let figures = Figures::of(&Database { read_only: true, ..database.clone() })
        .or_else(|_| Figures::of(database))?;
    let settings = thermocline::Db::kept_settings(&home)?.fast_cache;
    let stats = figures.stats();
    let mut output = Output::new();
    if json {
        let running = stats.fast_cache.as_ref();
        let shown = Shown { settings: &settings, file_bytes: file_bytes(stats), running };
        output.json(&shown)?;
        return output.finish();
    }
    figures.origin().iter().try_for_each(|origin| output.line(origin))?;
    let mut table = Table::new(&["cache of blocks on the fast tier", ">amount"]);
    let capacity = match settings.capacity {
        capacity if capacity.is_on() => capacity.to_string(),
        _ => "off".to_owned(),
    };
    table.row(["capacity, as set".to_owned(), capacity]);
    table.row(["files".to_owned(), ByteSize(file_bytes(stats)).to_string()]);
    if let Some(cache) = &stats.fast_cache {
        running(cache, &mut table);
    }
    table.lines().into_iter().try_for_each(|line| output.line(line))?;
    output.finish()
}

fn file_bytes(stats: &Stats) -> u64 {
    let kinds = stats.tiers.first().map(|tier| &tier.bytes_by_kind);
    kinds.and_then(|kinds| kinds.get("cache")).copied().unwrap_or(0)
}

/// Adds the figures that the process with the database open writes.
pub fn running(cache: &FastCacheStats, table: &mut Table) {
    let reads = cache.hits + cache.misses;
    let size = |bytes| ByteSize(bytes).to_string();
    for (name, amount) in [
        ("room that logs, levels and slots leave", size(cache.room_bytes)),
        ("blocks", text::count(cache.blocks)),
        ("blocks that were not in memory", text::count(reads)),
        ("of these, read from the fast tier", text::share(cache.hits, reads)),
        ("of the others, wanted", text::share(cache.admitted, cache.misses)),
        ("wanted and not taken", text::count(cache.dropped)),
        ("written", size(cache.written_bytes)),
        ("of the budget of writes", of_budget(cache)),
        ("blocks written again", text::count(cache.reinserted_blocks)),
        ("files that left", text::count(cache.evicted_files)),
        ("blocks of earlier openings", text::count(cache.adopted_blocks)),
        ("files of earlier openings that did not count", text::count(cache.refused_files)),
        ("copies that were wrong", text::count(cache.failed)),
        ("memory for looking up and deciding", size(cache.memory_bytes)),
    ] {
        table.row([name.to_owned(), amount]);
    }
    if cache.is_off {
        table.row(["switched off for a while", "its device failed"]);
    }
}

/// What of the budget of writes is used, where there is one and that is known yet.
fn of_budget(cache: &FastCacheStats) -> String {
    let percent = cache.budget_used_percent;
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"))
}

fn clear(database: &Database) -> Result<()> {
    store::require_writing(database)?;
    let db = store::open(database)?;
    db.clear_fast_cache()?;
    db.close()?;
    let mut output = Output::new();
    output.line("the cache of blocks is empty")?;
    output.finish()
}

fn resize(database: &Database, capacity: CacheCapacity) -> Result<()> {
    store::require_writing(database)?;
    let db = store::open_resized(database, capacity)?;
    let given = db.stats().fast_cache.map_or(0, |cache| cache.capacity_bytes);
    db.close()?;
    let mut output = Output::new();
    output.line(match (capacity, given) {
        (capacity, _) if !capacity.is_on() => "the cache of blocks is off".to_owned(),
        (_, 0) => format!("{capacity} is set, but tier 0 leaves a cache of blocks no room"),
        (CacheCapacity::Auto, _) => format!(
            "the cache of blocks takes what the levels of tier 0 leave of {}",
            ByteSize(given)
        ),
        (CacheCapacity::Bytes(set), given) if given < set.0 => {
            format!("the cache of blocks is set to {set}; tier 0 leaves it {}", ByteSize(given))
        }
        (CacheCapacity::Bytes(size), _) => {
            format!("the cache of blocks may take {size} of tier 0")
        }
    })?;
    output.finish()
}
