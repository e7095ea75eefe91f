//! What bounds waiting: asynchronous requests and their threads, locks, and what transactions hold
//! until their commit.

use super::{Settings, range};
use crate::error::Result;
use crate::limits::VALUE_BYTES_MAX;
use thermocline_foundation::threads::available;
use thermocline_foundation::{ByteSize, Duration};

/// See [`Settings::loggers_max`]; the default is the most (SpanDB, section 4.1).
pub(super) const LOGGERS_MAX: u32 = 3;
/// See [`Settings::lock_timeout`].
pub(super) const LOCK_TIMEOUT: Duration = Duration::ms(1000);
/// See [`Settings::transaction_bytes_max`].
pub(super) const TRANSACTION_BYTES_MAX: ByteSize = ByteSize::mib(64);

// What `settings.toml` leaves out, so that builds without these settings open the database.

pub(super) fn is_most_loggers(loggers: &u32) -> bool {
    *loggers == LOGGERS_MAX
}

pub(super) fn is_default_timeout(timeout: &Duration) -> bool {
    *timeout == LOCK_TIMEOUT
}

pub(super) fn is_default_bytes(bytes: &ByteSize) -> bool {
    *bytes == TRANSACTION_BYTES_MAX
}

impl Settings {
    pub(super) fn check_waiting(&self) -> Result<()> {
        range("request_queue", self.request_queue.into(), 1, 1 << 20, "")?;
        range("request_queue_bytes", self.request_queue_bytes.0, 64 << 10, 1 << 40, " B")?;
        range("request_workers", self.request_workers.into(), 0, 64, "")?;
        range("loggers_max", self.loggers_max.into(), 1, LOGGERS_MAX.into(), "")?;
        let timeout_ms = self.lock_timeout.0.as_millis() as u64;
        range("lock_timeout", timeout_ms, 0, 3_600_000, " ms")?;
        // A commit is one batch.
        let (bytes, most) = (self.transaction_bytes_max.0, VALUE_BYTES_MAX as u64);
        range("transaction_bytes_max", bytes, 4 << 10, most, " B")
    }

    /// Threads for asynchronous gets and pages, at most.
    pub(crate) fn request_workers(&self) -> usize {
        match self.request_workers {
            0 => available().clamp(2, 65) - 1,
            threads => threads as usize,
        }
    }
}
