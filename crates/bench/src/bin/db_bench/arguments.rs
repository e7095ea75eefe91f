//! The command line.

use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use thermocline::{ByteSize, Tier};

/// Runs the db_bench workloads on a Thermocline store and checks every value it reads.
#[derive(Debug, Parser)]
#[command(name = "thermocline-db_bench", version)]
pub struct Arguments {
    /// What to run, in order, on one store
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillrandom,overwrite,readrandom,seekrandom"
    )]
    pub benchmarks: Vec<Name>,
    /// The store's directory; made new
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// A tier, repeatable, fastest first; without any, one in the store's directory
    #[arg(long, value_name = "PATH:CAPACITY[:DRIVER]", value_parser = parse_tier)]
    pub tier: Vec<Tier>,
    /// Use the store that is there; what it holds is then only checked for being well-formed
    #[arg(long)]
    pub existing: bool,
    /// Keys in the key space, and writes of a benchmark that writes
    #[arg(long, default_value_t = 1_000_000)]
    pub num: u64,
    /// Reads of a benchmark that reads; as many as --num where not given
    #[arg(long)]
    pub reads: Option<u64>,
    /// Bytes of a key, 8 or more
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(8..=65535))]
    pub key_size: u16,
    /// Bytes of a value, 16 or more
    #[arg(
        long,
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(16..=1 << 20)
    )]
    pub value_size: u32,
    /// Share that compressible values shrink to
    #[arg(long, default_value_t = 0.5)]
    pub compression_ratio: f64,
    /// Threads that read or write
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// The store's memory
    #[arg(long, default_value = "256 MiB")]
    pub memory: ByteSize,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value_t = When::Buffered)]
    pub durability: When,
    /// Compression of all levels
    #[arg(long, value_enum, default_value_t = Packing::None)]
    pub compression: Packing,
    /// The store's threads for compactions
    #[arg(long)]
    pub background_threads: Option<u32>,
    /// Unsynced log bytes after which a background sync starts
    #[arg(long)]
    pub background_sync: Option<ByteSize>,
    /// Groups of synced writes in flight at once
    #[arg(long)]
    pub log_writes: Option<u32>,
    /// Seed of keys and values
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON for each benchmark
    #[arg(long)]
    pub json: bool,
    /// The store's own statistics at the end, as JSON
    #[arg(long)]
    pub stats: bool,
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    Tier::parse(text).map_err(|error| error.to_string())
}

/// The benchmarks, named as in db_bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Name {
    /// Writes every key once, in order
    FillSeq,
    /// Writes random keys
    FillRandom,
    /// Writes random keys again
    Overwrite,
    /// Looks random keys up
    ReadRandom,
    /// Looks up keys that do not exist, beside those that do
    ReadMissing,
    /// Walks all records in order
    ReadSeq,
    /// Seeks random keys and goes on ten times
    SeekRandom,
    /// Looks random keys up while one more thread writes
    ReadWhileWriting,
    /// Waits until background work is done
    WaitForCompaction,
}

/// `--durability`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum When {
    /// After a sync
    Sync,
    /// After it reached the driver
    Buffered,
}

/// `--compression`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Packing {
    /// Plain blocks
    None,
    /// LZ4
    Lz4,
}
