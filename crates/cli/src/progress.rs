//! Progress on standard error: bytes done, rate, time left. A terminal has a bar; anything else,
//! such as a log file, has a line about every ten seconds.

use crate::{output, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;
use thermocline::Progress;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

const KNOWN: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
const TIMED: &str = "{msg} [{bar:30}] {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {bytes}, {bytes_per_sec}, {elapsed}";

/// The time between two lines.
const LINE_EVERY_NS: u64 = 10_000_000_000;

/// A bar that goes away when it is dropped.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    /// Where no bar can be drawn.
    lines: Option<Lines>,
}

/// Lines in place of a bar.
struct Lines {
    what: &'static str,
    clock: Box<dyn Clock>,
    print: Box<dyn Fn(String)>,
    start_ns: u64,
    next_ns: Cell<u64>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Lines {
    fn new(what: &'static str, clock: Box<dyn Clock>, print: Box<dyn Fn(String)>) -> Self {
        let start_ns = clock.now_ns();
        Self { what, clock, print, start_ns, next_ns: Cell::new(start_ns + LINE_EVERY_NS) }
    }

    /// Prints a line where the last one is old.
    fn tell(&self, done_bytes: u64, total_bytes: Option<u64>) {
        let now_ns = self.clock.now_ns();
        if now_ns < self.next_ns.get() {
            return;
        }
        self.next_ns.set(now_ns + LINE_EVERY_NS);
        let rate = done_bytes as f64 / ((now_ns - self.start_ns) as f64 / 1e9);
        let (what, done, per_second) = (self.what, ByteSize(done_bytes), ByteSize(rate as u64));
        // A source that grew while it was read has no known rest.
        let left = total_bytes.and_then(|total| Some((total, total.checked_sub(done_bytes)?)));
        (self.print)(match left {
            Some((total, left)) => {
                let share = text::share(done_bytes, total);
                let left = text::span(Duration::from_secs_f64(left as f64 / rate.max(1.0)));
                let total = ByteSize(total);
                format!("{what}: {done} of {total} ({share}), {per_second}/s, {left} left")
            }
            None => format!("{what}: {done}, {per_second}/s"),
        });
    }
}

impl Bar {
    /// A bar over `total_bytes`, or a spinner where the total is not known.
    pub fn new(what: &'static str, total_bytes: Option<u64>) -> Self {
        let bar = match total_bytes {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let template = if total_bytes.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template).map(|style| style.progress_chars("=> "));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        let lines = (!std::io::stderr().is_terminal())
            .then(|| Lines::new(what, Box::new(SystemClock::new()), Box::new(output::note)));
        Self { bar, lines }
    }

    /// A bar that shows nothing.
    pub fn quiet() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { bar, lines: None }
    }

    /// A bar over time, for work that ends by the clock.
    pub fn seconds(what: &'static str, duration: Duration) -> Self {
        let bar = ProgressBar::new(duration.as_millis() as u64);
        let style = ProgressStyle::with_template(TIMED).map(|style| style.progress_chars("=> "));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar, lines: None }
    }

    /// So much of the time is over.
    pub fn elapsed(&self, elapsed: Duration) {
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    /// `bytes` more are done.
    pub fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.tell();
    }

    /// Shows what the engine reports of a long task.
    pub fn show(&self, progress: &Progress) {
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.done_bytes);
        self.tell();
    }

    fn tell(&self) {
        if let Some(lines) = &self.lines {
            lines.tell(self.bar.position(), self.bar.length());
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// A clock that a test moves.
    #[derive(Clone, Debug, Default)]
    struct MovedClock(Arc<AtomicU64>);

    impl Clock for MovedClock {
        fn now_ns(&self) -> u64 {
            self.0.load(Relaxed)
        }
        fn wall_s(&self) -> u64 {
            0
        }
        fn sleep(&self, duration: Duration) {
            self.0.fetch_add(duration.as_nanos() as u64, Relaxed);
        }
    }

    /// The lines of a bar that advances a mebibyte a second for `seconds`.
    fn lines_of(total_bytes: Option<u64>, seconds: u64) -> Vec<String> {
        let (clock, said) = (MovedClock::default(), Rc::new(Cell::new(Vec::new())));
        let heard = Rc::clone(&said);
        let print = move |line: String| {
            let mut lines = heard.take();
            lines.push(line);
            heard.set(lines);
        };
        let lines = Lines::new("loading", Box::new(clock.clone()), Box::new(print));
        let mut bar = Bar::new("loading", total_bytes);
        bar.lines = Some(lines);
        for _ in 0..seconds {
            clock.sleep(Duration::from_secs(1));
            bar.advance(1 << 20);
        }
        drop(bar);
        said.take()
    }

    #[test]
    fn without_a_terminal_a_line_is_printed_every_ten_seconds() {
        assert_eq!(lines_of(Some(100 << 20), 9), [""; 0], "a short load says nothing");
        assert_eq!(
            lines_of(Some(100 << 20), 29),
            [
                "loading: 10 MiB of 100 MiB (10.0 %), 1 MiB/s, 90.0 s left",
                "loading: 20 MiB of 100 MiB (20.0 %), 1 MiB/s, 80.0 s left"
            ]
        );
        assert_eq!(lines_of(None, 10), ["loading: 10 MiB, 1 MiB/s"]);
        assert_eq!(lines_of(Some(5 << 20), 10), ["loading: 10 MiB, 1 MiB/s"], "more than was said");
    }
}
