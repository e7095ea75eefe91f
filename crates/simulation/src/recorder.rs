//! Every call of the devices as a line of text, and a hash of these lines.
//!
//! ```text
//!   Write /fast/000003.log 4096+512 91c1d6a0f2b7e364     kind, file, offset + length, digest
//!   # Flush                                              a note: printed, in no hash
//! ```
//! 1. The hash covers exactly the lines of calls, each with its line end. So two runs have the same
//!    hash where they print the same lines, and where the hashes differ the lines show the place.
//! 2. A line names no address, no time and no number of its own: a call that is missing moves no
//!    other line.
//! 3. Calls of a process that has ended have no effect and no line.
//!
//! Threads: the recorder belongs to the thread, as the simulated run does.

use std::cell::RefCell;
use std::fmt::{self, Debug, Display, Write};
use std::path::Path;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// What a call is given besides its file.
#[derive(Clone, Copy, Debug)]
pub enum Operands<'a> {
    /// Nothing.
    None,
    /// Another file, or another directory.
    To(&'a str),
    /// A range that is read.
    Range {
        /// Bytes from the start of the file.
        offset: u64,
        /// Bytes that are wanted.
        len: usize,
    },
    /// Bytes that are written.
    Bytes {
        /// Bytes from the start of the file.
        offset: u64,
        /// What is written; its digest is kept.
        bytes: &'a [u8],
    },
    /// A length in bytes, or a number of requests.
    Number(u64),
}

impl Display for Operands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::To(other) => write!(f, " to {other}"),
            Self::Range { offset, len } => write!(f, " {offset}+{len}"),
            Self::Bytes { offset, bytes } => {
                write!(f, " {offset}+{} {:016x}", bytes.len(), xxh3_64(bytes))
            }
            Self::Number(number) => write!(f, " {number}"),
        }
    }
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Calls.
    pub calls: u64,
    /// The hash of their lines.
    pub hash: u64,
    /// The lines and the notes; empty unless they were to be kept.
    pub text: String,
}

#[derive(Default)]
struct Recorder {
    calls: u64,
    hasher: Xxh3,
    keeps_text: bool,
    text: String,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

fn with(change: impl FnOnce(&mut Recorder)) {
    RECORDER.with_borrow_mut(|recorder| recorder.as_mut().map(change));
}

/// From now on the calls of this thread's devices are recorded, and their lines kept if
/// `keeps_text`.
pub fn start(keeps_text: bool) {
    RECORDER.set(Some(Recorder { keeps_text, ..Recorder::default() }));
}

/// This thread's calls are recorded.
pub fn is_on() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// A call of `kind` on the file `name` of `directory`.
pub fn call(kind: &dyn Debug, directory: &Path, name: &str, operands: Operands<'_>) {
    with(|recorder| {
        let start = if recorder.keeps_text { recorder.text.len() } else { 0 };
        recorder.text.truncate(start);
        let directory = directory.display();
        writeln!(recorder.text, "{kind:?} {directory}/{name}{operands}")
            .expect("a string takes what is written to it");
        recorder.calls += 1;
        recorder.hasher.update(&recorder.text.as_bytes()[start..]);
    });
}

/// Runs `body`, whose calls are not recorded: checks that come after what is compared.
pub fn unrecorded<T>(body: impl FnOnce() -> T) -> T {
    struct Resume(Option<Recorder>);
    impl Drop for Resume {
        fn drop(&mut self) {
            RECORDER.set(self.0.take());
        }
    }
    let _resume = Resume(RECORDER.take());
    body()
}

/// What the calls after it are made for; no part of the hash.
pub fn note(text: impl FnOnce() -> String) {
    with(|recorder| {
        if recorder.keeps_text {
            recorder.text += &format!("# {}\n", text());
        }
    });
}

/// What was recorded since [`start`]; the recorder stops. None if there was none.
pub fn finish() -> Option<Recording> {
    let recorder = RECORDER.take()?;
    let text = if recorder.keeps_text { recorder.text } else { String::new() };
    Some(Recording { calls: recorder.calls, hash: recorder.hasher.digest(), text })
}
