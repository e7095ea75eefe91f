//! What only the preset `hybrid` has to show: what lies in slots on the fast tier, how popular it
//! is, what moved between the tiers, which of them answered, and by which rules.
//!
//! `stats --all` prints all of it, `stats` and `try` what fits a page.

use crate::failure::Result;
use crate::output::Output;
use crate::table::Table;
use crate::text;
use std::time::Duration;
use thermocline::{FastTierStats, Stats};
use thermocline_foundation::ByteSize;

/// Prints the tables of `stats --all`.
pub fn print(stats: &Stats, fast: &FastTierStats, output: &mut Output) -> Result<()> {
    let answered_by = "What answered the look-ups, since the database was made";
    answers(stats, fast).print(answered_by, output)?;
    summary(fast).print("Records on the fast tier", output)?;
    slots(fast).print("Slots by their size", output)?;
    popularity(fast).print("Keys by how often they are asked for, least first", output)?;
    movement(fast).print("Moved between the tiers, since the database was made", output)?;
    demotions(fast).print("Demotions, since the database was made", output)?;
    rules(fast).print("Rules, since opening", output)
}

/// A line about what moved between the tiers since the database was made.
pub fn moved(stats: &Stats) -> String {
    match &stats.fast_tier {
        Some(fast) => format!(
            "Moved between the tiers: {} up, {} down; copies dropped: {}.",
            text::counted(fast.promoted_records, "record"),
            text::count(fast.demoted_records),
            text::count(fast.dropped_records),
        ),
        None => {
            let tables = text::counted(stats.operations.migrations, "table");
            format!("Moved between the tiers: {tables}.")
        }
    }
}

/// Where look-ups found their record.
pub fn answers(stats: &Stats, fast: &FastTierStats) -> Table {
    let mut table = Table::new(&["look-ups answered by", ">amount", ">share"]);
    let in_memtables = stats.operations.memtable_hits;
    let all = fast.fast_reads + fast.slow_reads + fast.absent_reads;
    for (what, amount) in [
        ("a memtable", in_memtables),
        ("slots, or memory above them", fast.fast_reads.saturating_sub(in_memtables)),
        ("tables, or cached blocks of them", fast.slow_reads),
        ("nothing: there is no such key", fast.absent_reads),
    ] {
        table.row([what.to_owned(), text::count(amount), text::share(amount, all)]);
    }
    table
}

/// Records and the room that they take.
fn summary(stats: &FastTierStats) -> Table {
    let mut table = Table::new(&["what", ">amount", ">share"]);
    let limit = stats.limit_bytes;
    let free = limit.saturating_sub(stats.live_bytes);
    let bytes = |bytes| ByteSize(bytes).to_string();
    let (hits, misses) = (stats.cache.hits, stats.cache.misses);
    for (what, amount, share) in [
        ("records", text::count(stats.records), String::new()),
        (
            "  of these copies of what a table has",
            text::count(stats.clean_records),
            text::share(stats.clean_records, stats.records),
        ),
        ("copies in memory only", text::count(stats.memory_records), String::new()),
        ("room for slots", bytes(limit), String::new()),
        ("  with a record", bytes(stats.live_bytes), text::share(stats.live_bytes, limit)),
        (
            "    of these bytes that no record uses",
            bytes(stats.waste_bytes),
            text::share(stats.waste_bytes, stats.live_bytes),
        ),
        ("  free", bytes(free), text::share(free, limit)),
        ("files of slots", bytes(stats.slab_bytes), text::share(stats.slab_bytes, limit)),
        ("reads that memory answered", text::count(hits), text::share(hits, hits + misses)),
    ] {
        table.row([what.to_owned(), amount, share]);
    }
    if stats.packed_value_bytes > 0 {
        let (values, stored) = (stats.packed_value_bytes, stats.packed_stored_bytes);
        let share = text::share(stored, values);
        table.row(["values flushed since opening".to_owned(), bytes(values), String::new()]);
        table.row(["  bytes that slots have of them".to_owned(), bytes(stored), share]);
    }
    if stats.index_copies + stats.failed_index_copies > 0 {
        for (what, amount) in [
            ("copies of tables' indexes", text::count(stats.index_copies)),
            ("  bytes of these", bytes(stats.index_copy_bytes)),
            ("  reads that they answered", text::count(stats.index_copy_reads)),
            ("  given up, for they were wrong", text::count(stats.failed_index_copies)),
        ] {
            table.row([what.to_owned(), amount, String::new()]);
        }
    }
    table
}

/// One row for each size of slot that is in use.
fn slots(stats: &FastTierStats) -> Table {
    let mut table = Table::new(&[">slot", ">files", ">slots", ">with a record", ">share"]);
    for class in stats.classes.iter().filter(|class| class.slabs > 0) {
        table.row([
            ByteSize(class.slot_bytes.into()).to_string(),
            text::count(class.slabs),
            text::count(class.slots),
            text::count(class.live),
            text::share(class.live, class.slots),
        ]);
    }
    table
}

/// One row for each popularity, and how much of them stays.
fn popularity(stats: &FastTierStats) -> Table {
    let headings = ["popularity", ">keys", ">of those known", ">on the fast tier", ">on the slow"];
    let mut table = Table::new(&headings);
    let rules = &stats.rules;
    let by_tier = rules.fast_histogram.iter().zip(&rules.slow_histogram);
    for ((value, keys), (fast, slow)) in stats.histogram.iter().enumerate().zip(by_tier) {
        let share = text::share(*keys, stats.tracked_keys);
        let counts = [fast, slow].map(|count| text::count(*count));
        table.row([value.to_string(), text::count(*keys), share].into_iter().chain(counts));
    }
    table.row(["all".to_owned(), text::count(stats.tracked_keys), String::new()]);
    table.row(["pinned at most".to_owned(), String::new(), pinned(stats)]);
    table
}

fn pinned(stats: &FastTierStats) -> String {
    format!("{:.1} %", stats.pinning_percent)
}

fn movement(stats: &FastTierStats) -> Table {
    let mut table = Table::new(&["records", ">amount"]);
    for (what, amount) in [
        ("promoted: copied up into memory", stats.promoted_records),
        ("copies that memory gave up and that got slots", stats.spilled_records),
        ("copies that gave up slots, for memory has them", stats.memory_only_records),
        ("copies that a newer version replaced", stats.replaced_copies),
        ("copies that lost their slots unread", stats.unasked_copies),
        ("look-ups that copies answered", stats.copy_reads),
        ("of these, from their slots", stats.copy_slot_reads),
        ("demoted: merged into tables below", stats.demoted_records),
        ("copies that left with them, which needs no write", stats.demoted_copies),
        ("copies dropped, which needs no write", stats.dropped_records),
        ("moved to another slot of the fast tier", stats.moved_records),
    ] {
        table.row([what.to_owned(), text::count(amount)]);
    }
    table
}

fn demotions(stats: &FastTierStats) -> Table {
    let mut table = Table::new(&["what", ">amount"]);
    let demotions = &stats.demotions;
    let score = |score: Option<f64>| score.map_or("-".to_owned(), |score| format!("{score:.1}"));
    let elapsed = text::span(Duration::from_secs_f64(demotions.elapsed_s));
    for (what, amount) in [
        ("demotions", text::count(demotions.ended)),
        ("time that they took", elapsed),
        ("score of the last one since opening", score(demotions.last_score)),
        ("mean score", score(demotions.mean_score)),
    ] {
        table.row([what.to_owned(), amount]);
    }
    table
}

fn rules(stats: &FastTierStats) -> Table {
    let mut table = Table::new(&["rule", "now"]);
    let rules = &stats.rules;
    let [least, most] = rules.pinning_bounds_percent;
    let tuner = format!(
        "{}, {} kept",
        rules.pinning_stage,
        text::counted(rules.pinning_steps_kept, "step")
    );
    let read_triggered = match &*rules.read_triggered_stage {
        "off" => "off".to_owned(),
        stage => format!(
            "{}, {} run",
            stage.replace('_', " "),
            text::counted(rules.read_triggered_epochs, "epoch")
        ),
    };
    let budget = rules.write_budget_bytes.map_or("none".to_owned(), |bytes| match bytes {
        0.. => ByteSize(bytes.unsigned_abs()).to_string(),
        _ => format!("-{}", ByteSize(bytes.unsigned_abs())),
    });
    let yes_or_no = |is| if is { "yes" } else { "no" }.to_owned();
    for (rule, now) in [
        ("pinned share of the known keys", pinned(stats)),
        ("bounds of this share", format!("{least:.1} to {most:.1} %")),
        ("tuner of this share", tuner),
        ("reads of slots recur", yes_or_no(stats.slot_reads_recur)),
        ("reads of tables recur", yes_or_no(stats.table_reads_recur)),
        ("merges that reads ask for", read_triggered),
        ("may be written to the slow tier now", budget),
    ] {
        table.row([rule.to_owned(), now]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::{Db, Settings, Tier};

    /// A store with a fast tier of slots, in which some keys were asked for.
    fn asked() -> Stats {
        let home = tempfile::tempdir().unwrap();
        let tier = |name: &str| Tier::new(home.path().join(name), ByteSize::mib(64));
        let settings = Settings {
            tiers: vec![tier("fast"), tier("slow")],
            memory: ByteSize::mib(16),
            ..Settings::default()
        };
        let db = Db::create(home.path().join("home"), &settings).unwrap();
        (0..100u32).for_each(|key| db.put(key.to_be_bytes(), [7; 100]).unwrap());
        db.flush().unwrap();
        for asked in 0..200u32 {
            assert!(db.get((asked % 70).to_be_bytes()).unwrap().is_some());
        }
        let stats = db.stats();
        db.close().unwrap();
        stats
    }

    /// The numbers of a row.
    fn numbers(row: &str) -> Vec<u64> {
        row.split_whitespace().filter_map(|cell| cell.replace(',', "").parse().ok()).collect()
    }

    #[test]
    fn known_keys_are_those_of_both_tiers_and_all_of_them() {
        let stats = asked();
        let lines = popularity(stats.fast_tier.as_ref().unwrap()).lines();
        let rows = lines.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        let mut known = 0;
        for row in rows {
            let cells = numbers(row);
            let [_popularity, keys, .., fast, slow] = cells[..] else {
                panic!("'{row}' has no popularity, keys and tiers");
            };
            assert_eq!(keys, fast + slow, "{row}");
            known += keys;
        }
        let all = lines.iter().find(|line| line.starts_with("all ")).unwrap();
        assert_eq!(numbers(all), [known]);
        assert_eq!(known, 70);
    }

    #[test]
    fn what_answered_look_ups_adds_up() {
        let stats = asked();
        let lines = answers(&stats, stats.fast_tier.as_ref().unwrap()).lines();
        let amounts: Vec<u64> =
            lines[2..].iter().map(|line| numbers(line).first().copied().unwrap()).collect();
        assert_eq!((amounts.len(), amounts.iter().sum()), (4, 200), "{lines:?}");
    }
}
