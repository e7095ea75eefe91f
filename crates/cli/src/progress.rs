//! Progress bars on standard error: bytes done, rate, time left. Nothing is drawn where standard
//! error is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use thermocline::Progress;

const KNOWN: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
const TIMED: &str = "{msg} [{bar:30}] {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {bytes}, {bytes_per_sec}, {elapsed}";

/// A bar that goes away when it is dropped.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar over `total_bytes`, or a spinner where nobody knows how many there will be.
    pub fn new(what: &'static str, total_bytes: Option<u64>) -> Self {
        let bar = match total_bytes {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let template = if total_bytes.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template).map(|style| style.progress_chars("=> "));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar }
    }

    /// A bar over time, for work that ends by the clock.
    pub fn seconds(what: &'static str, duration: Duration) -> Self {
        let bar = ProgressBar::new(duration.as_millis() as u64);
        let style = ProgressStyle::with_template(TIMED).map(|style| style.progress_chars("=> "));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar }
    }

    /// So much of the time is over.
    pub fn elapsed(&self, elapsed: Duration) {
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    /// `bytes` more are done.
    pub fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Shows what the engine reports of a long task.
    pub fn show(&self, progress: &Progress) {
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.done_bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
