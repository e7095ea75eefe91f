//! The version that readers take now.

use super::version::Version;
use std::sync::Arc;
use thermocline_foundation::sync::{ArcSwap, ArcSwapGuard};

/// See the module's header. Only [`Versions`](super::Versions) replaces it.
#[derive(Debug)]
pub(crate) struct Current(ArcSwap<Version>);

impl Current {
    pub(super) fn new(version: Version) -> Self {
        Self(ArcSwap::from_pointee(version))
    }

    /// The version of now, borrowed: it counts no reference.
    pub fn get(&self) -> ArcSwapGuard<Arc<Version>> {
        self.0.load()
    }

    /// The version of now, to be held for longer.
    pub fn get_full(&self) -> Arc<Version> {
        self.0.load_full()
    }

    pub(super) fn set(&self, version: Version) {
        self.0.store(Arc::new(version));
    }
}
