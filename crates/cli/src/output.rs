//! Standard output: locked once, buffered, its errors handled.

use crate::failure::Result;
use serde::Serialize;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Where results go. [`Output::finish`] must be called, so that an error of the last write counts.
pub struct Output {
    stream: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Locks standard output.
    pub fn new() -> Self {
        Self { stream: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// A line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// A value as JSON, indented, with a line end.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        self.line(text)
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> Result<()> {
        Ok(self.stream.flush()?)
    }
}

/// A line for the person at the terminal, beside the results.
pub fn note(text: impl AsRef<str>) {
    // A note is not worth failing for.
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}
