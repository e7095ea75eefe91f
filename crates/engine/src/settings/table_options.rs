//! How tables are laid out.

use super::Settings;
use thermocline_foundation::ByteSize;
use thermocline_table::TableOptions;

/// The paper's dictionaries: larger ones made its data no smaller (MyNVM, section 5).
pub(super) const DICTIONARY_SIZE: ByteSize = ByteSize::kib(16);

/// Not written to `settings.toml`, so that builds without the setting open the database.
pub(super) fn is_default_dictionary(size: &ByteSize) -> bool {
    *size == DICTIONARY_SIZE
}

impl Settings {
    /// How tables of `level` are laid out.
    pub(crate) fn table_options(&self, level: usize) -> TableOptions {
        TableOptions {
            block_bytes: self.block_size.0 as u32,
            filter_bits_per_key: self.filter_bits_per_key,
            compression: self.compression_of(level).into(),
            dictionary_bytes: self.dictionary_bytes(),
            ..TableOptions::default()
        }
    }
}
