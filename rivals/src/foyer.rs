//! foyer 0.22, a cache in memory and on a device: no store, but held beside our cache of blocks on
//! one trace (`mynvm --figure foyer`).
//!
//! Its own defaults, but for sizes: what memory gives up goes to the device, the oldest part of the
//! device goes first, all is admitted, reads and writes go through the page cache. Requests come
//! one after the other; a miss is inserted with as many bytes as the block has.

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, RecoverMode,
};
use thermocline::BlockRequest;
use thermocline_bench::block_trace::{Outturn, Task};
use thermocline_bench::measure::process;
use thermocline_bench::store::{EngineKind, Needs, OpenOptions, Store};
use thermocline_bench::{Failure, Outcome};

/// foyer as a cache that replays traces.
#[derive(Clone, Copy, Debug)]
pub struct Foyer;

const NO_STORE: &str = "it is a cache and no store: `mynvm --figure foyer`";
/// Threads of its runtime.
const WORKERS: usize = 2;
/// Bytes on their way to the device, for which no entry is to be dropped.
const QUEUE_BYTES: usize = 256 << 20;

/// Table and offset of a block.
type Key = u128;
type Cache = HybridCache<Key, Vec<u8>>;

impl EngineKind for Foyer {
    fn name(&self) -> &str {
        "foyer"
    }

    fn about(&self) -> String {
        "foyer 0.22".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn unavailable(&self) -> Option<String> {
        Some(NO_STORE.to_owned())
    }

    fn describe(&self, _options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        Err(NO_STORE.into())
    }

    fn replay(&self, task: &Task<'_>) -> Option<Outcome<Outturn>> {
        Some(replay(task))
    }

    fn open(&self, _options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        Err(NO_STORE.into())
    }
}

fn failed(error: foyer::Error) -> Failure {
    format!("foyer: {error}").into()
}

fn replay(task: &Task<'_>) -> Outcome<Outturn> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| format!("foyer's runtime: {error}"))?;
    let cpu_s = process::cpu_s();
    let (outturn, cache) = runtime.block_on(replayed(task))?;
    runtime.block_on(cache.close()).map_err(failed)?;
    Ok(Outturn { cpu_s: process::cpu_s() - cpu_s, ..outturn })
}

async fn made(task: &Task<'_>) -> Outcome<Cache> {
    let device = FsDeviceBuilder::new(task.place)
        .with_capacity(task.trace.capacity_bytes as usize)
        .build()
        .map_err(failed)?;
    let engine = BlockEngineConfig::new(device)
        .with_block_size(task.trace.file_bytes as usize)
        .with_submit_queue_size_threshold(QUEUE_BYTES);
    HybridCacheBuilder::new()
        .with_flush_on_close(false)
        .memory(task.memory.0 as usize)
        .with_weighter(|_key: &Key, value: &Vec<u8>| value.len())
        .storage()
        .with_engine_config(engine)
        .with_recover_mode(RecoverMode::None)
        .build()
        .await
        .map_err(failed)
}

fn key_of(block: &BlockRequest) -> Key {
    Key::from(block.table) << 64 | Key::from(block.offset)
}

async fn replayed(task: &Task<'_>) -> Outcome<(Outturn, Cache)> {
    let cache = made(task).await?;
    let mut outturn = Outturn::default();
    let mut written_before = 0;
    for (at, block) in task.trace.requests.iter().enumerate() {
        if at == task.warm_up {
            outturn = Outturn::default();
            written_before = cache.statistics().disk_write_bytes();
        }
        let key = key_of(block);
        match cache.get(&key).await.map_err(failed)? {
            Some(entry) if entry.value().len() == block.len as usize => outturn.hits += 1,
            Some(_) => return Err("foyer has another block in place of the one asked for".into()),
            None => {
                outturn.misses += 1;
                cache.insert(key, vec![block.offset as u8; block.len as usize]);
            }
        }
    }
    let written = cache.statistics().disk_write_bytes() - written_before;
    outturn.written_bytes = written as u64;
    Ok((outturn, cache))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::BlockTrace;
    use thermocline_foundation::ByteSize;

    #[test]
    fn blocks_that_memory_gave_up_are_found_on_the_device() {
        let place = tempfile::tempdir().expect("a directory");
        let request = |at: u64| BlockRequest { table: 1, offset: at % 1000 * 4096, len: 3000 };
        let trace = BlockTrace {
            capacity_bytes: 16 << 20,
            file_bytes: 1 << 20,
            batch_bytes: 128 << 10,
            block_bytes: 3072,
            requests: (0..4000).map(request).collect(),
        };
        let memory = ByteSize::kib(256);
        let task = Task { trace: &trace, memory, place: place.path(), warm_up: 2000 };
        let outturn = replay(&task).expect("it replays");
        assert_eq!(outturn.hits + outturn.misses, 2000);
        assert!(outturn.hits > 1500, "{outturn:?}");
    }
}
