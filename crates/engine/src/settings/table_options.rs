//! How tables are laid out.

use super::Settings;
use thermocline_table::TableOptions;

impl Settings {
    /// How tables of `level` are laid out.
    pub(crate) fn table_options(&self, level: usize) -> TableOptions {
        TableOptions {
            block_bytes: self.block_size.0 as u32,
            filter_bits_per_key: self.filter_bits_per_key,
            compression: self.compression_of(level).into(),
            ..TableOptions::default()
        }
    }
}
