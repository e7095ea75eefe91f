//! Sizes that the whole engine keeps to. None of them is a setting.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// Most bytes in one batch, encoding included.
pub const BATCH_BYTES_MAX: usize = thermocline_log::PAYLOAD_BYTES_MAX;

/// Levels of tables, level 0 included.
pub(crate) const LEVELS: usize = 7;

/// Memtables that the memory budget has room for: the active one and those that are being flushed.
pub(crate) const MEMTABLES: u64 = 3;
