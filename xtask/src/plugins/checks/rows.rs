//! Every row of `db_bench` that writes or reads, with few records.
//!
//! ```text
//! WRITES   a database for each row      over tiers = without tiers, by all records
//! READS    one database, three ways     as much is found as without the plugin and without tiers
//! MIXED    the same one, two threads    whole afterwards, the same with the plugin and without
//! ```
//! With one thread and one seed `db_bench` writes the same records each time. What it backs up and
//! restores is compared, too. Its row of transactions is left out: Debian's build ends it with a
//! failed assertion, also without the plugin.

use super::super::Outcome;
use super::super::rig::{Rig, at, output_of, scan};
use super::{SMALL, no_tools, same_records, whole_tables};
use std::path::PathBuf;

/// For all rows.
const FEW: [&str; 6] = [
    "--num=20000",
    "--seed=7",
    // Merges of `put` are values as soon as a compaction has met them.
    "--merge_operator=put",
    "--deletes=12000",
    "--numdistinct=300",
    "--batch_size=8",
];

/// The first of each makes the database.
const WRITES: [&str; 11] = [
    "fillseq,deleterandom",
    "fillbatch,overwrite",
    "fillsync,appendrandom",
    "fill100K",
    "fillrandom,deleteseq",
    "filluniquerandom,updaterandom",
    "fillanddeleteuniquerandom,overwrite",
    "fillrandom,xorupdaterandom,mergerandom,compact",
    "fillseekseq,randomwithverify",
    "fillseq,compact0,compact1,flush,compactall,waitforcompaction",
    "randomreplacekeys",
];

/// Rows that only read.
pub const READS: &str = "--benchmarks=readrandom,readseq,readreverse,readmissing,readrandomsmall,\
                         readrandomfast,multireadrandom,seekrandom,newiterator,readtocache,\
                         readrandomoperands,approximatesizerandom,verifychecksum,stats,levelstats,\
                         sstables,memstats";
const WAYS: [&str; 3] = ["--mmap_read=0", "--use_direct_reads=1", "--mmap_read=1"];

/// Rows in which a thread of its own writes, merges or scans; the last ones leave values alone.
const MIXED: &str = "--benchmarks=readwhilewriting,newiteratorwhilewriting,\
                     seekrandomwhilewriting,readwhilescanning,readrandomwriterandom,\
                     readwhilemerging,seekrandomwhilemerging,readrandommergerandom,compact";

/// A database that never has tiers.
fn beside(rig: &Rig) -> PathBuf {
    rig.folder.join("beside")
}

pub fn all(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    rig.begin()?;
    for rows in WRITES {
        written_alike(rig, rows).map_err(|error| format!("{rows}: {error}"))?;
    }
    written_alike(rig, "fillrandom,overwrite")?;
    let found = read_alike(rig)?;
    backed_up(rig)?;
    mixed(rig)?;
    Ok(Outcome::Passed(format!(
        "records as without tiers after each of {} groups of rows that write; rows that read find \
         {}, buffered, direct and mapped; whole after rows that do both; a backup restored",
        WRITES.len(),
        found.join(", ")
    )))
}

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], &FEW, more].concat()
}

/// The same rows over the tiers and beside them leave the same records.
fn written_alike(rig: &Rig, rows: &str) -> Result<(), String> {
    let rows = format!("--benchmarks={rows}");
    let write = arguments(&[&rows]);
    output_of(rig.tiered("db_bench", &write))?;
    output_of(at(&beside(rig), "db_bench", &write))?;
    let expected = scan(at(&beside(rig), "ldb", &[]))?;
    same_records(rig, Some(&expected)).map(drop)
}

/// What is found over the tiers in each way is found without the plugin, and without tiers.
fn read_alike(rig: &Rig) -> Result<Vec<String>, String> {
    let read = |way| arguments(&["--use_existing_db=1", "--reads=5000", READS, way]);
    let expected = found(&output_of(at(&beside(rig), "db_bench", &read(WAYS[0])))?);
    if expected.is_empty() {
        return Err("db_bench does not say what it found".to_owned());
    }
    for way in WAYS {
        for command in [rig.tiered("db_bench", &read(way)), rig.plain("db_bench", &read(way))] {
            let shown = format!("{command:?}");
            let found = found(&output_of(command)?);
            if found != expected {
                return Err(format!("{shown} found {found:?}, without tiers {expected:?}"));
            }
        }
    }
    Ok(expected)
}

/// How many records each row found, as `db_bench` says it.
pub fn found(said: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let (text, _) = line.split_once(" found)")?;
        let (name, _) = text.split_once(' ')?;
        let (_, counts) = text.rsplit_once('(')?;
        Some(format!("{name} {counts}"))
    };
    said.lines().filter_map(of_line).collect()
}

/// A backup over the tiers, and what it restores.
fn backed_up(rig: &Rig) -> Result<(), String> {
    let [backups, restored] = [("backup", "backups"), ("restore", "restored")]
        .map(|(option, name)| format!("--{option}_dir={}", rig.folder.join(name).display()));
    let rows = ["--use_existing_db=1", "--benchmarks=backup,restore", &backups, &restored];
    output_of(rig.tiered("db_bench", &arguments(&rows)))?;
    let expected = scan(rig.plain("ldb", &[]))?;
    let records = scan(at(&rig.folder.join("restored"), "ldb", &[]))?;
    match records == expected {
        true => Ok(()),
        false => Err(format!("{records:?} restored, {expected:?} backed up")),
    }
}

/// Readers beside writers, over the tiers.
fn mixed(rig: &Rig) -> Result<(), String> {
    // A merge that no compaction has met makes reads slow: the writers are bounded.
    let bounded = ["--benchmark_write_rate_limit=1000000", "--reads=2000", "--threads=2"];
    let rows = [&bounded[..], &["--use_existing_db=1", MIXED]].concat();
    output_of(rig.tiered("db_bench", &arguments(&rows)))?;
    same_records(rig, None)?;
    for is_tiered in [true, false] {
        whole_tables(rig, is_tiered)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn what_was_found_is_read_from_the_lines_that_say_so() {
        let said = "readrandom   : 3.4 micros/op 288 ops/sec;   75.6 MB/s (631 of 1000 found)\n\
                    readseq      :       0.1 micros/op 9 ops/sec;  (of 5)\n\
                    randomwithverify : 1 micros/op; ( get:9 put:1 del:2 total:12 found:4)\n\
                    seekrandom   :       9.9 micros/op;  1.5 MB/s (10 of 10 found)\n";
        assert_eq!(found(said), ["readrandom 631 of 1000", "seekrandom 10 of 10"]);
    }
}
