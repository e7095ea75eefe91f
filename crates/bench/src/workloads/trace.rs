//! Replay of a trace: a CSV file of time, operation, key and size.
//!
//! ```text
//!   time,op,key,size          a header is allowed; time in seconds, size in bytes
//!   0.001,get,user:17,0       get | set | delete | scan (size: records), and common other words
//! ```
//! Keys of the trace become record numbers in the order of their first line, so the store sees keys
//! of one length. All records are loaded first, each with the size of its first write. Threads take
//! lines in turn, so two lines of one key may change places; times are kept but not waited for:
//! `--rate` sets a pace.

use super::{Distribution, Kind, Start, Workload};
use crate::Outcome;
use crate::values::{Sizes, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::host_files;

/// Length of a value that the trace never writes, in bytes.
const UNKNOWN_BYTES: u32 = 100;
/// A longer line is no line of a trace.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Seconds since the first line.
    pub time_s: f32,
    /// What is done.
    pub kind: Kind,
    /// Bytes of the value, or records of the scan.
    pub size: u32,
    /// The record.
    pub number: u64,
}

/// A trace in memory, 24 bytes a line.
#[derive(Debug)]
pub struct Trace {
    lines: Vec<Line>,
    sizes: Arc<Vec<u32>>,
}

impl Trace {
    /// Its lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Records that it names.
    pub fn records(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Reads a trace; the error names file and line.
    pub fn read(path: &Path) -> Outcome<Self> {
        let mut input = BufReader::new(host_files::open_reader(path)?);
        let mut numbers: HashMap<Vec<u8>, u64> = HashMap::new();
        let (mut lines, mut sizes): (Vec<Line>, Vec<u32>) = Default::default();
        let (mut text, mut first_s) = (Vec::new(), None);
        for row in 1u64.. {
            text.clear();
            let mut limited = std::io::Read::take(&mut input, LINE_BYTES_MAX);
            if limited.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let wrong = |what: &str| format!("{}, line {row}: {what}", path.display());
            if !text.ends_with(b"\n") && text.len() as u64 == LINE_BYTES_MAX {
                return Err(wrong("longer than 64 KiB").into());
            }
            let Some((time_s, kind, key, size)) = parse(&text).map_err(|what| wrong(&what))? else {
                continue;
            };
            let first = *first_s.get_or_insert(time_s);
            let next = numbers.len() as u64;
            let number = *numbers.entry(key.to_vec()).or_insert(next);
            if number == sizes.len() as u64 {
                sizes.push(0);
            }
            if kind == Kind::Update && sizes[number as usize] == 0 {
                sizes[number as usize] = size;
            }
            lines.push(Line { time_s: (time_s - first) as f32, kind, size, number });
        }
        if lines.is_empty() {
            return Err(format!("{} holds no operation", path.display()).into());
        }
        sizes.iter_mut().filter(|size| **size == 0).for_each(|size| *size = UNKNOWN_BYTES);
        Ok(Self { lines, sizes: Arc::new(sizes) })
    }
}

/// Seconds, kind, key and size.
type Fields<'a> = (f64, Kind, &'a [u8], u32);

/// The fields of a line; none for an empty one and for a header.
fn parse(line: &[u8]) -> Result<Option<Fields<'_>>, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let mut fields = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let (Some(time), Some(op), Some(key), Some(size), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("not four fields; expected time,op,key,size".to_owned());
    };
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    if time.eq_ignore_ascii_case(b"time") || time.eq_ignore_ascii_case(b"timestamp") {
        return Ok(None);
    }
    let number =
        |field: &[u8], what: &str| {
            text(field).parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(
                || format!("'{}' is not a {what}; expected time,op,key,size", text(field)),
            )
        };
    let seconds = number(time, "time in seconds")?;
    let size = number(size, "size")?.min(f64::from(u32::MAX)) as u32;
    let writes = size.clamp(VALUE_BYTES_MIN, VALUE_BYTES_MAX);
    let (kind, size) = match op.to_ascii_lowercase().as_slice() {
        b"get" | b"read" | b"gets" => (Kind::Read, 0),
        b"set" | b"put" | b"write" | b"update" | b"insert" | b"add" | b"replace" => {
            (Kind::Update, writes)
        }
        b"delete" | b"del" | b"remove" => (Kind::Delete, 0),
        b"scan" | b"seek" | b"range" => (Kind::Scan, size.clamp(1, 1 << 20)),
        _ => {
            return Err(format!(
                "'{}' is not an operation; there are get, set, delete and scan",
                text(op)
            ));
        }
    };
    Ok(Some((seconds, kind, key, size)))
}

/// The workload that replays the trace at `path`.
pub fn workload(path: &str) -> Outcome<Workload> {
    let trace = Trace::read(Path::new(path))?;
    let (read, update) = (("read", Kind::Read, 1.0), ("update", Kind::Update, 1.0));
    let (delete, scan) = (("delete", Kind::Delete, 1.0), ("scan", Kind::Scan, 1.0));
    let name = format!("trace:{path}");
    let mix = [read, update, delete, scan];
    let mut workload = Workload::new(&name, "a trace", &mix, Distribution::Uniform);
    workload.start = Start::Loaded;
    workload.sizes = Some(Sizes::Given(Arc::clone(&trace.sizes)));
    workload.trace = Some(Arc::new(trace));
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_operations_on_numbered_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let text = "time,op,key,size\n10,get,a,0\n10.5,SET,b,300\n11, put ,a,40\n\n12,del,b,0\n\
                    13,scan,a,7\n";
        host_files::write_text(&path, text).unwrap();
        let workload = workload(path.to_str().unwrap()).unwrap();
        let trace = workload.trace.unwrap();
        let line = |time_s, kind, size, number| Line { time_s, kind, size, number };
        assert_eq!(
            trace.lines(),
            [
                line(0.0, Kind::Read, 0, 0),
                line(0.5, Kind::Update, 300, 1),
                line(1.0, Kind::Update, 40, 0),
                line(2.0, Kind::Delete, 0, 1),
                line(3.0, Kind::Scan, 7, 0),
            ]
        );
        assert_eq!(*trace.sizes, [40, 300]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        for (text, reason) in [
            ("1,get,a,0\n2,get,a\n", "line 2: not four fields"),
            ("1,fly,a,0\n", "line 1: 'fly' is not an operation"),
            ("1,get,a,0\nx,get,a,0\n", "line 2: 'x' is not a time"),
            ("1,set,a,big\n", "'big' is not a size"),
            ("time,op,key,size\n", "holds no operation"),
        ] {
            host_files::write_text(&path, text).unwrap();
            let error = Trace::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("t.csv"), "{error}");
        }
    }

    #[test]
    fn any_bytes_are_a_line_or_an_error() {
        use thermocline_foundation::random::Random;
        let alphabet = b"0123456789.,-einfagetsdlc\"\xff \t#";
        let mut random = Random::new(17);
        let (mut lines, mut errors) = (0, 0);
        for _ in 0..200_000 {
            let length = random.below(24) as usize;
            let mut byte = || alphabet[random.below(alphabet.len() as u64) as usize];
            let mut line: Vec<u8> = (0..length).map(|_| byte()).collect();
            if length.is_multiple_of(2) {
                line = [b"1.5,set,", line.as_slice(), b",9"].concat();
            }
            match parse(&line) {
                Ok(Some((seconds, _, _, size))) => {
                    lines += 1;
                    assert!(seconds >= 0.0 && size <= VALUE_BYTES_MAX);
                }
                Ok(None) => {}
                Err(what) => {
                    errors += 1;
                    assert!(what.contains("expected") || what.contains("there are"), "{what}");
                }
            }
        }
        assert!(lines > 1000 && errors > 1000, "{lines} {errors}");
    }
}
