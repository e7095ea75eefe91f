//! What a cache of blocks was asked for, as a file, and what each policy makes of it.
//!
//! ```text
//!   {"format":"thermocline block trace","version":1,"capacity_bytes":..,"requests":3,...}
//!   [12,40960,4103]          table, offset, stored bytes: memory did not have the block
//!   [12,40960,4103]
//!   [9,0,2950]
//!   {"checksum":"1c291ca3"}   CRC-32C of all bytes before this line, bound to no place
//!
//!   mod.rs  the file       replay.rs  one policy, by arithmetic       judge.rs  all of them
//!                        on_files.rs  the same with its bytes in files
//!                        heat.rs      traces that are drawn: popular blocks move
//! ```
//! The engine notes the requests (`Experiments::traced_blocks`). What memory lacks does not depend
//! on the cache below it, so one trace serves all policies and sizes of that cache.

pub mod heat;
pub mod judge;
pub mod on_files;
pub mod replay;

use crate::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use thermocline::{BlockRequest, BlockTrace, ByteSize};
use thermocline_device::drivers::host_files;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{DatabaseId, FileNumber, Place};

/// What the first line of a file calls it.
const FORMAT: &str = "thermocline block trace";
/// The version that is written, and the only one.
const VERSION: u32 = 1;
/// Longer files are not read.
const BYTES_MAX: u64 = 4 << 30;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    capacity_bytes: u64,
    file_bytes: u64,
    batch_bytes: u64,
    block_bytes: u64,
    requests: u64,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
struct Tail {
    checksum: String,
}

fn checksum_of(text: &str) -> String {
    let place = Place { database: DatabaseId([0; 16]), file: FileNumber(0), offset: 0 };
    format!("{:08x}", checksum(&place, text.as_bytes()))
}

/// `trace` as a file has it.
fn text(trace: &BlockTrace) -> Outcome<String> {
    let head = Head {
        format: FORMAT.to_owned(),
        version: VERSION,
        capacity_bytes: trace.capacity_bytes,
        file_bytes: trace.file_bytes,
        batch_bytes: trace.batch_bytes,
        block_bytes: trace.block_bytes,
        requests: trace.requests.len() as u64,
    };
    let mut text = serde_json::to_string(&head)? + "\n";
    for BlockRequest { table, offset, len } in &trace.requests {
        writeln!(text, "[{table},{offset},{len}]")?;
    }
    let checksum = checksum_of(&text);
    writeln!(text, "{}", serde_json::to_string(&Tail { checksum })?)?;
    Ok(text)
}

/// The trace that `text` has.
fn parse(text: &str) -> Outcome<BlockTrace> {
    let wrong = |what: &str| -> Failure { format!("this is no trace of blocks: {what}").into() };
    let (first, rest) = text.split_once('\n').ok_or_else(|| wrong("it has no first line"))?;
    let head: Head = serde_json::from_str(first).map_err(|why| wrong(&why.to_string()))?;
    if head.format != FORMAT || head.version != VERSION {
        let (format, version) = (head.format, head.version);
        return Err(wrong(&format!("format '{format}', version {version}; known is {VERSION}")));
    }
    let end = rest.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let (lines, last) = rest.split_at(end);
    let tail: Tail = serde_json::from_str(last).map_err(|why| wrong(&why.to_string()))?;
    if tail.checksum != checksum_of(&text[..first.len() + 1 + end]) {
        return Err(wrong("its checksum does not match"));
    }
    let request = |line: &str| {
        let (table, offset, len) = serde_json::from_str(line)?;
        serde_json::Result::Ok(BlockRequest { table, offset, len })
    };
    let requests = lines.lines().map(request).collect::<Result<Vec<_>, _>>();
    let requests = requests.map_err(|why| wrong(&why.to_string()))?;
    if requests.len() as u64 != head.requests {
        return Err(wrong(&format!("{} of {} requests", requests.len(), head.requests)));
    }
    Ok(BlockTrace {
        capacity_bytes: head.capacity_bytes,
        file_bytes: head.file_bytes,
        batch_bytes: head.batch_bytes,
        block_bytes: head.block_bytes,
        requests,
    })
}

/// A trace for a cache that is not ours.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// What is asked for, and the bytes that the cache may take on its device.
    pub trace: &'a BlockTrace,
    /// Memory for what it keeps there.
    pub memory: ByteSize,
    /// An empty directory.
    pub place: &'a Path,
    /// Requests that are not counted.
    pub warm_up: usize,
}

/// What a cache made of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outturn {
    /// Requests that it had the block of.
    pub hits: u64,
    /// All others.
    pub misses: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Processor time of all of the trace, in seconds.
    pub cpu_s: f64,
}

/// Puts `trace` at `path`.
pub fn write(path: &Path, trace: &BlockTrace) -> Outcome<()> {
    Ok(host_files::write_text(path, &text(trace)?)?)
}

/// The trace at `path`.
pub fn read(path: &Path) -> Outcome<BlockTrace> {
    let text = String::from_utf8(host_files::read(path, BYTES_MAX)?)?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> BlockTrace {
        let request = |table, offset, len| BlockRequest { table, offset, len };
        BlockTrace {
            capacity_bytes: 1 << 20,
            file_bytes: 64 << 10,
            batch_bytes: 16 << 10,
            block_bytes: 3072,
            requests: vec![request(12, 40960, 4103), request(12, 40960, 4103), request(9, 0, 2950)],
        }
    }

    #[test]
    fn a_trace_is_read_as_it_was_written_and_looks_as_it_always_did() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("trace.jsonl");
        for trace in [trace(), BlockTrace::default()] {
            write(&path, &trace).unwrap();
            assert_eq!(read(&path).unwrap(), trace);
        }
        let golden = include_str!("../../tests/golden/block-trace-1.jsonl");
        assert_eq!(text(&trace()).unwrap(), golden);
        assert_eq!(parse(golden).unwrap(), trace());
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_refused() {
        let text = text(&trace()).unwrap();
        for at in 0..text.len() - 1 {
            assert!(parse(&text[..at]).is_err(), "cut off at {at}");
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(parse(&changed).is_err(), "changed at {at}");
        }
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(parse(&newer).unwrap_err().to_string().contains("version 2"));
    }
}
