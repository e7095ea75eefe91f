//! Stands in for the loader of `load`: keeps the records in place of writing them to a store.

use crate::failure::Result;
use std::cell::Cell;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Takes records from a format.
#[derive(Default)]
pub struct Loader {
    pub records: Vec<Pair>,
    pub advanced: Cell<u64>,
}

impl Loader {
    /// Keeps a record.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    /// Counts the input read.
    pub fn advance(&self, bytes: u64) {
        self.advanced.set(self.advanced.get() + bytes);
    }
}

/// Why a record of these sizes is not taken, as in the real loader.
pub fn refusal(key_len: usize, value_len: u64) -> Option<String> {
    let fits =
        key_len <= thermocline::KEY_BYTES_MAX && value_len <= thermocline::VALUE_BYTES_MAX as u64;
    (!fits).then(|| "over the limit".to_owned())
}
