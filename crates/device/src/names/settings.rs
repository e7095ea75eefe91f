//! What a host may decide of its directory.
//!
//! Threads: plain data.

use super::class::UNKNOWN_LEVEL;
use super::{FileClass, Host, Names};
use crate::context::FileContext;
use crate::migration_queue::Thresholds;

/// See the module. By default the paper's thresholds, and the deepest level that hosts have as they
/// come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSettings {
    /// When files leave a tier. Copies and extents leave the upper one's share of it free, too.
    pub thresholds: Thresholds,
    /// The level that a table counts with whose level is not known.
    pub unknown_level: u8,
}

impl Default for NameSettings {
    fn default() -> Self {
        Self { thresholds: Thresholds::default(), unknown_level: UNKNOWN_LEVEL }
    }
}

impl Names {
    /// From now on the directory goes by `settings`.
    pub fn go_by(&self, settings: NameSettings) {
        self.host.listing.lock().settings = settings;
    }
}

impl Host {
    pub(super) fn settings(&self) -> NameSettings {
        self.listing.lock().settings
    }

    /// A class as placement sees it.
    pub(super) fn context(&self, class: FileClass) -> FileContext {
        class.context_with(self.settings().unknown_level)
    }
}
