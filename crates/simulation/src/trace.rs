//! A readable trace of what a failing seed did: its steps, the calls they made of the devices, the
//! faults that met them, and the recovery of the image that was found wrong.
//!
//! A run that goes well writes nothing. A failing one is run once more with the trace on, which
//! works because the seed decides everything. The trace belongs to the thread, as the run does.
//!
//! Lines of the image that is being recovered are kept apart: those of an image that was found
//! right are of no interest and dropped.

use std::cell::RefCell;

#[derive(Debug, Default)]
struct Trace {
    life: Vec<String>,
    image: Vec<String>,
    /// Recoveries that the run is within.
    depth: u32,
    frozen: bool,
}

thread_local! {
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

fn with(change: impl FnOnce(&mut Trace)) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(trace) = trace.as_mut().filter(|trace| !trace.frozen) {
            change(trace);
        }
    });
}

/// From now on this thread's runs are written down.
pub fn start() {
    TRACE.set(Some(Trace::default()));
}

/// Adds a line.
pub fn line(text: impl FnOnce() -> String) {
    with(|trace| {
        let lines = if trace.depth == 0 { &mut trace.life } else { &mut trace.image };
        lines.push(text());
    });
}

/// The run goes into the recovery of an image.
pub fn enter_image() {
    with(|trace| {
        if trace.depth == 0 {
            trace.image.clear();
        }
        trace.depth += 1;
    });
}

/// The image is right.
pub fn leave_image() {
    with(|trace| trace.depth = trace.depth.saturating_sub(1));
}

/// A promise was broken: what comes after does not matter.
pub fn freeze() {
    with(|trace| trace.frozen = true);
}

/// What was written down; the trace ends.
pub fn finish() -> Option<String> {
    let trace = TRACE.take()?;
    let mut text = trace.life.join("\n");
    if trace.depth > 0 {
        text += "\n\n--- recovery of the image that is wrong ---\n";
        text += &trace.image.join("\n");
    }
    Some(text + "\n")
}
