//! Lines of a text input, with the file and line number that an error names.

use crate::failure::{Failure, Result};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use thermocline_device::drivers::host_files;

/// Longest line, in bytes: a value of 256 MiB with every byte escaped still fits.
const LINE_BYTES_MAX: u64 = 1100 << 20;

/// A text input, read once.
pub struct Lines {
    name: String,
    len: Option<u64>,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new("standard input", None, std::io::stdin()));
        }
        let reader = host_files::open_reader(path)?;
        // Only a plain file has a length to show progress against.
        let len = host_files::walk(path).next().and_then(Result::ok).map(|file| file.len);
        Ok(Self::new(&path.display().to_string(), len, reader))
    }

    /// Reads `reader`, which errors call `name`; `len` is its length where it is known.
    pub fn new(name: &str, len: Option<u64>, reader: impl Read + 'static) -> Self {
        let reader = Box::new(BufReader::with_capacity(256 << 10, reader));
        Self { name: name.to_owned(), len, reader, line: Vec::new(), number: 0 }
    }

    /// Bytes of the input, where that is known.
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// The next line with its end, as it is; none at the end of the input.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => Ok(None),
            Ok(len) if len as u64 == LINE_BYTES_MAX && !self.line.ends_with(b"\n") => {
                Err(self.error(format_args!("the line is longer than {LINE_BYTES_MAX} bytes")))
            }
            Ok(_) => Ok(Some(&self.line)),
            Err(error) => Err(self.error(format_args!("cannot read on: {error}"))),
        }
    }

    /// The number of the line that [`Lines::next`] gave last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A failure that names the file and the present line.
    pub fn error(&self, what: impl std::fmt::Display) -> Failure {
        self.error_at(self.number, what)
    }

    /// A failure that names the file and a line.
    pub fn error_at(&self, line: u64, what: impl std::fmt::Display) -> Failure {
        Failure::new(format!("{}, line {line}: {what}", self.name))
    }
}

/// The line without its end.
pub fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_ends_and_are_numbered() {
        let mut lines = Lines::new("input", None, &b"one\n\nlast"[..]);
        for (number, line) in [(1, &b"one\n"[..]), (2, b"\n"), (3, b"last")] {
            assert_eq!(lines.next().unwrap(), Some(line));
            assert_eq!(lines.number(), number);
        }
        assert_eq!(lines.error("bad").to_string(), "input, line 3: bad");
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn a_failing_input_names_its_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the cable is out"))
            }
        }
        let mut lines = Lines::new("input", None, (&b"one\ntw"[..]).chain(Broken));
        assert!(lines.next().unwrap().is_some());
        let error = lines.next().unwrap_err().to_string();
        assert_eq!(error, "input, line 2: cannot read on: the cable is out");
    }
}
