//! Writes of one key that depend on what it has: a transaction of one record.
//!
//! Each reads the key, and writes if nothing has changed it since. Where something has, it begins
//! again: another write was done meanwhile, so the callers together get on. This goes beyond the
//! papers that the store is built after.

use super::Db;
use crate::batch::{WriteBatch, check_sizes};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::transaction::Commit;
use crate::transaction::Footprint;
use crate::transaction::options::LOCK_TIMEOUT;
use bytes::Bytes;
use thermocline_table::RecordKind;

/// What came of [`Db::compare_and_swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The key had what was expected, and has the new value now.
    Swapped,
    /// The key had this, and nothing was written; none: there was no such key.
    Found(Option<Bytes>),
}

impl Db {
    /// Sets `key` to `value` if there is no such key, with the durability of the settings. Says
    /// whether it did; of several callers at the same time one does.
    ///
    /// ```no_run
    /// # fn main() -> thermocline::Result<()> {
    /// let db = thermocline::Db::open("/var/lib/db")?;
    /// if !db.put_if_absent("leader", "node 3")? {
    ///     println!("another node leads");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_where(false, key.as_ref(), value.as_ref())
    }

    /// Sets `key` to `value` if there is such a key already. Says whether it did.
    pub fn put_if_present(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_where(true, key.as_ref(), value.as_ref())
    }

    fn put_where(&self, present: bool, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_so = |engine: &Engine| {
            let newest = engine.reader().newest(key)?;
            Ok(newest.is_some_and(|newest| newest.kind() == RecordKind::Put) == present)
        };
        let condition = |engine: &Engine| is_so(engine).map(|is_so| (!is_so).then_some(()));
        Ok(self.write_where(key, Some(value), condition)?.is_none())
    }

    /// Sets `key` to `new` (none: removes it) if it has the value `expected` (none: if there is no
    /// such key). Otherwise says what it has.
    ///
    /// ```no_run
    /// use thermocline::{Db, Swap};
    /// # fn main() -> thermocline::Result<()> {
    /// let db = Db::open("/var/lib/db")?;
    /// // Counts up, also while others do.
    /// let mut before = db.get("visits")?;
    /// loop {
    ///     let text = before.as_deref().map_or("0".into(), String::from_utf8_lossy);
    ///     let next = (text.parse::<u64>().unwrap_or(0) + 1).to_string();
    ///     match db.compare_and_swap("visits", before.as_deref(), Some(next.as_bytes()))? {
    ///         Swap::Swapped => break,
    ///         Swap::Found(now) => before = now,
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let key = key.as_ref();
        let condition = |engine: &Engine| {
            let found = engine.reader().get(key, None)?;
            Ok((found.as_deref() != expected).then_some(found))
        };
        Ok(self.write_where(key, new, condition)?.map_or(Swap::Swapped, Swap::Found))
    }

    /// Writes `new` unless `condition` finds something that speaks against it, and says that.
    fn write_where<T>(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        condition: impl Fn(&Engine) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let engine = self.ours()?;
        check_sizes(key, new.map_or(0, <[u8]>::len))?;
        let mut batch = WriteBatch::with_room(key.len() + new.map_or(0, <[u8]>::len));
        match new {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
        let (encoded, count) = batch.freeze()?;
        let durability = self.settings().durability;
        loop {
            // Before the read: what is newer than this makes the write begin again. Held, so that
            // no merge drops a delete that is newer, with all that it deletes.
            let base = engine.snapshot();
            if let Some(against) = condition(engine)? {
                return Ok(Some(against));
            }
            let footprint = Footprint::of_key(key, base.sequence());
            let commit = Commit {
                encoded: encoded.clone(),
                count,
                durability,
                footprint,
                lock_timeout: LOCK_TIMEOUT,
                has_locks: false,
            };
            match engine.commit(commit) {
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }
}
