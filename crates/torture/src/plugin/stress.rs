//! RocksDB's own stress test as a process: its command line, drawn from a seed, and what it says.
//!
//! ```text
//!   epoch   what all lives of one database have in common
//!   life    one process: which settings, tiers and operations it has
//! ```
//! The process writes what it was told of to memory that is mapped from the files of its expected
//! values: a kill loses none of that. When it begins it compares every key with them.
//!
//! Threads: the caller's.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use thermocline_foundation::random::Random;

/// What every life has. Faults that the test injects itself are off: it calls them a mode for
/// debugging. Few keys and small tables make many levels, and a short comparison.
const BASE: [&str; 44] = [
    "--read_fault_one_in=0",
    "--metadata_read_fault_one_in=0",
    "--metadata_write_fault_one_in=0",
    "--write_fault_one_in=0",
    "--open_read_fault_one_in=0",
    "--open_write_fault_one_in=0",
    "--open_metadata_read_fault_one_in=0",
    "--open_metadata_write_fault_one_in=0",
    "--sync_fault_injection=0",
    "--secondary_cache_fault_one_in=0",
    "--clear_column_family_one_in=0",
    "--destroy_db_initially=0",
    "--reopen=0",
    "--progress_reports=0",
    "--continuous_verification_interval=0",
    "--threads=4",
    "--ops_per_thread=100000000",
    "--max_key=30000",
    // Keys that are written once only would have to be the same in all lives.
    "--nooverwritepercent=0",
    "--value_size_mult=33",
    "--compression_type=none",
    "--write_buffer_size=131072",
    "--target_file_size_base=65536",
    "--max_bytes_for_level_base=262144",
    "--max_bytes_for_level_multiplier=4",
    "--level_compaction_dynamic_level_bytes=0",
    "--prefix_size=-1",
    "--prefixpercent=0",
    "--readpercent=40",
    "--iterpercent=4",
    "--writepercent=48",
    "--delpercent=7",
    "--delrangepercent=1",
    "--compact_range_one_in=1000",
    "--compact_files_one_in=1000",
    "--flush_one_in=500",
    "--get_live_files_apis_one_in=2000",
    "--max_background_compactions=3",
    "--cache_size=1048576",
    "--max_log_file_size=1048576",
    // Both want all tables open.
    "--compaction_ttl=0",
    "--periodic_compaction_seconds=0",
    "--min_blob_size=64",
    "--blob_file_size=262144",
];

/// What the lives of one database have in common.
#[derive(Debug)]
pub struct Epoch {
    columns: u64,
    has_blobs: bool,
    /// Compactions by another instance of RocksDB, in a directory of its own. RocksDB's own script
    /// leaves blobs, checkpoints and mappings out then; a backup that is opened ends the service.
    is_remote: bool,
    /// Writes may be lost from the end on: the log is written by request only. The expected values
    /// know nothing of ingested tables then.
    may_lose_end: bool,
}

impl Epoch {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let may_lose_end = random.below(4) == 0;
        let is_remote = random.below(3) == 0;
        Self {
            columns: if may_lose_end { 1 } else { 1 + 2 * random.below(2) },
            has_blobs: !is_remote && random.below(2) == 0,
            is_remote,
            may_lose_end,
        }
    }

    /// Settings of a life; `is_power` where the power may go, too.
    pub fn life(&self, random: &mut Random, is_power: bool) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut say = |name: &str, value: u64| words.push(format!("--{name}={value}"));
        say("seed", 1 + random.below(1 << 31));
        say("column_families", self.columns);
        say("enable_blob_files", self.has_blobs.into());
        say("enable_blob_garbage_collection", self.has_blobs.into());
        say("remote_compaction_worker_threads", if self.is_remote { 2 } else { 0 });
        let besides = if self.is_remote { 0 } else { 2000 };
        say("checkpoint_one_in", besides);
        say("backup_one_in", besides);
        say("ingest_external_file_one_in", if self.may_lose_end { 0 } else { 2000 });
        say("manual_wal_flush_one_in", if self.may_lose_end { 100 } else { 0 });
        // After a loss of power only what was synced has to be there.
        let syncs = !self.may_lose_end && (is_power || random.below(4) == 0);
        say("sync", syncs.into());
        say("subcompactions", 1 + random.below(4));
        say("avoid_flush_during_recovery", random.below(2));
        say("enable_pipelined_write", random.below(2));
        say("open_files", if random.below(2) == 0 { 30 } else { 5000 });
        match random.below(3) {
            0 => say("mmap_read", (!self.is_remote).into()),
            1 => {
                say("use_direct_reads", 1);
                say("use_direct_io_for_flush_and_compaction", 1);
            }
            _ => say("async_io", random.below(2)),
        }
        words
    }
}

/// What the fast tier may take.
const FAST_SIZE: &str = "2MiB";

/// What is kept on the fast tier for reads. Sealed files of extents of another size go when they
/// are found.
const CACHES: [&str; 4] = ["off", "files", "extents", "extents&cache_extent=4KiB"];

/// Tiers of a life. Little room on the fast one and many threads: files move and are copied all the
/// time, or extents give way to files.
pub fn tiers(fast: &Path, random: &mut Random) -> String {
    let placement = ["room", "parallelism", "top_levels(1)"][random.below(3) as usize];
    let cache = CACHES[random.below(CACHES.len() as u64) as usize];
    // Extents have what files leave: all of a tier that takes logs and level 0 alone.
    let (placement, fast_size) = match cache.starts_with("extents") {
        true => ("top_levels(1)", "16MiB"),
        false => (placement, FAST_SIZE),
    };
    let tiers = of_sizes(fast, fast_size);
    format!("{tiers}&placement={placement}&cache={cache}&move_threads=16")
}

/// The same tiers, by default settings, so that nothing is copied.
pub fn quiet_tiers(fast: &Path) -> String {
    of_sizes(fast, FAST_SIZE)
}

fn of_sizes(fast: &Path, fast_size: &str) -> String {
    format!("thermocline://?tier={}:{fast_size}&tier=home:1GiB", fast.display())
}

/// Where the program and the shim are, and what it works on.
#[derive(Debug)]
pub struct Stress {
    pub program: PathBuf,
    pub shim: PathBuf,
    pub db: PathBuf,
    /// Its expected values, on no tier.
    pub expected: PathBuf,
    /// Where its output goes.
    pub output: PathBuf,
    /// It always runs as it is.
    pub is_plain: bool,
}

impl Stress {
    /// Starts it over the tiers of `uri`; as it is without one.
    pub fn start(&self, uri: Option<&str>, words: &[String]) -> std::io::Result<Child> {
        let output = File::create(&self.output)?;
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg(&self.program);
        if let Some(uri) = uri.filter(|_| !self.is_plain) {
            command.env("LD_PRELOAD", &self.shim).arg(format!("--fs_uri={uri}"));
        }
        command
            .arg(format!("--db={}", self.db.display()))
            .arg(format!("--expected_values_dir={}", self.expected.display()))
            .args(BASE)
            .args(words)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
    }

    /// What it said so far.
    pub fn said(&self) -> String {
        let said = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// How far a life came, by what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Opening,
    /// Every key was compared.
    Verified,
    Working,
}

impl Stage {
    pub fn of(said: &str) -> Self {
        if said.contains("Starting database operations") {
            Self::Working
        } else if said.contains("verification passed") {
            Self::Verified
        } else {
            Self::Opening
        }
    }
}

/// It found a value that it does not expect, or RocksDB a file that is damaged.
pub fn complains(said: &str) -> bool {
    said.contains("erification failed") || said.contains("orruption:")
}

/// What it complained of, and how it ended: its last lines that say something.
pub fn last_words(said: &str) -> String {
    let is_telling = |line: &&str| !line.trim().is_empty() && !line.starts_with("... finished");
    let wrong = ["ailed", "rror", "orrupt", "nexpected", "issing", "thermocline"];
    let named = said.lines().filter(|line| wrong.iter().any(|word| line.contains(word))).take(6);
    let last = said.lines().filter(is_telling).rev().take(4).collect::<Vec<_>>();
    let lines: Vec<_> = named.chain(last.into_iter().rev()).collect();
    lines
        .iter()
        .map(|line| line.chars().take(400).collect::<String>())
        .collect::<Vec<_>>()
        .join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_drawn_from_its_seed_and_syncs_where_the_power_may_go() {
        let drawn = |seed| {
            let mut random = Random::new(seed);
            (Epoch::draw(seed).life(&mut random, true), tiers(Path::new("/fast"), &mut random))
        };
        assert_eq!(drawn(7), drawn(7));
        let uris: Vec<_> = (0..50).map(|seed| drawn(seed).1).collect();
        for cache in CACHES {
            let kept = format!("&cache={cache}&move_threads");
            assert!(uris.iter().any(|uri| uri.contains(&kept)), "{cache}");
        }
        for seed in 0..50 {
            let (words, uri) = drawn(seed);
            let has = |word: &str| words.iter().any(|other| other == word);
            assert!(has("--sync=1") || has("--manual_wal_flush_one_in=100"), "{words:?}");
            assert!(!has("--backup_one_in=2000") || has("--remote_compaction_worker_threads=0"));
            assert!(
                !has("--manual_wal_flush_one_in=100") || has("--ingest_external_file_one_in=0")
            );
            assert!(uri.contains("tier=/fast:"), "{uri}");
        }
    }

    #[test]
    fn damage_is_a_complaint_and_the_name_of_a_check_is_none() {
        assert!(complains("get error: Corruption: block checksum mismatch"));
        assert!(complains("Verification failed for column family 0 key 1"));
        assert!(!complains(
            "Crash-recovery verification passed :)\ntolerates corruption at the end\n"
        ));
    }

    #[test]
    fn a_life_is_as_far_as_it_said() {
        let mut said = "DB path: [/db]\n".to_owned();
        assert_eq!(Stage::of(&said), Stage::Opening);
        said += "Crash-recovery verification passed :)\n";
        assert_eq!(Stage::of(&said), Stage::Verified);
        said += "2026/11/28-15:14:35  Starting database operations\n";
        assert_eq!(Stage::of(&said), Stage::Working);
        said += "put or merge error: IO error\n\n... finished 100 ops\nVerification failed :(\n";
        let words = last_words(&said);
        assert!(words.starts_with("put or merge error"), "{words}");
        assert!(
            words.ends_with("Verification failed :(") && !words.contains("finished"),
            "{words}"
        );
    }
}
