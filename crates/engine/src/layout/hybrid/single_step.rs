//! Jobs of one step that move records on the fast tier: promotion, spilling, the change of slot
//! sizes. Of a kind one is under way at a time, for a second would take what the first looks at.
//!
//! What a kind does is a function; the claim, and that it is given back however the step ends, is
//! here.

use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A kind of job.
#[derive(Debug)]
pub(crate) struct Work {
    pub name: &'static str,
    /// Set while one is under way.
    pub claim: fn(&FastTier) -> &AtomicBool,
    pub run: fn(&Hybrid) -> Result<()>,
}

#[cfg(test)]
impl Work {
    /// From here on no job of this kind begins: a test carries out the work when it wants to.
    pub fn hold(&self, fast: &FastTier) {
        (self.claim)(fast).store(true, Relaxed);
    }

    /// Ends [`Work::hold`].
    pub fn let_go(&self, fast: &FastTier) {
        (self.claim)(fast).store(false, Relaxed);
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SingleStep {
    hybrid: Arc<Hybrid>,
    work: &'static Work,
}

impl SingleStep {
    /// The job; none while another of its kind is under way.
    pub fn begin(hybrid: &Arc<Hybrid>, work: &'static Work) -> Option<Box<dyn Job>> {
        let claim = (work.claim)(&hybrid.fast);
        if claim.swap(true, Relaxed) {
            return None;
        }
        Some(Box::new(Self { hybrid: Arc::clone(hybrid), work }))
    }
}

impl Job for SingleStep {
    fn name(&self) -> &'static str {
        self.work.name
    }

    fn step(&mut self) -> Result<Step> {
        (self.work.run)(&self.hybrid)?;
        Ok(Step::Done)
    }
}

impl Drop for SingleStep {
    fn drop(&mut self) {
        (self.work.claim)(&self.hybrid.fast).store(false, Relaxed);
    }
}
