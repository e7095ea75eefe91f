//! How many records of a table hide an older version in a table below: an estimate, made once.
//!
//! No table has a count of what it overwrites. A flush would have to look every key up to know it,
//! and most of these counts are never asked for: a table is looked at only where a merge would be
//! worth it if all of its records hid one (`reclaim.rs`), and only at rest. Then some of its blocks
//! are read ([`SAMPLED_BLOCKS`]), and filters below are asked for their keys. The answer is kept
//! with the open table, not in a file: after an opening it is asked for again.
//!
//! A wrong answer costs a merge, or leaves space where it is. So a table that cannot be read hides
//! nothing: the merge or look-up that needs its records reports the damage.

use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_table::{RecordKind, key_hash};

/// Blocks of a table that are read, at equal distances.
const SAMPLED_BLOCKS: u64 = 32;

/// Where blocks are long, no more is read than this, or than one in so many bytes of the table.
const SAMPLED_BYTES: u64 = 1 << 20;
const SAMPLED_SHARE: u64 = 8;

/// Looks at one table.
#[derive(Debug)]
pub(crate) struct Look {
    levels: Arc<Levels>,
    table: Arc<Table>,
}

impl Look {
    /// A look at a table of these levels; none where another look is under way.
    pub fn begin(levels: &Arc<Levels>, table: Arc<Table>) -> Option<Self> {
        table.begin_look().then(|| Self { levels: Arc::clone(levels), table })
    }
}

impl Job for Look {
    fn name(&self) -> &'static str {
        "look at what a table overwrites"
    }

    fn step(&mut self) -> Result<Step> {
        match overwrites_of(&self.levels, &self.table) {
            Err(error) if error.is_refusal() => return Err(error),
            found => self.table.set_overwrites(found.unwrap_or(0)),
        }
        Ok(Step::Done)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.table.end_look();
    }
}

fn overwrites_of(levels: &Levels, table: &Table) -> Result<u64> {
    let meta = &table.meta;
    let keys = sampled_keys(table)?;
    let mut hiding = 0;
    for key in &keys {
        hiding += u64::from(hides(levels, table, key)?);
    }
    let records = meta.entries.saturating_sub(meta.deletes + meta.older_versions);
    Ok(records.saturating_mul(hiding) / (keys.len() as u64).max(1))
}

/// Keys whose newest version in the table is a record.
fn sampled_keys(table: &Table) -> Result<Vec<Vec<u8>>> {
    let meta = &table.meta;
    let reader = table.reader()?;
    let block_bytes = meta.bytes / reader.properties().data_blocks.max(1);
    let bytes = SAMPLED_BYTES.max(meta.bytes / SAMPLED_SHARE);
    let blocks = SAMPLED_BLOCKS.min(bytes / block_bytes.max(1));
    if blocks == 0 {
        // A block has one long record, and these are known unread.
        return Ok(vec![meta.smallest_key.clone(), meta.largest_key.clone()]);
    }
    let mut entries = reader.sample(blocks as usize)?;
    entries.dedup_by(|entry, before| entry.0 == before.0);
    entries.retain(|(_, trailer)| trailer.kind() == RecordKind::Put);
    Ok(entries.into_iter().map(|(key, _)| key).collect())
}

/// A table that is searched after this one has the key.
fn hides(levels: &Levels, table: &Table, key: &[u8]) -> Result<bool> {
    let hash = key_hash(key);
    let is_it = |(_, other): &(usize, &Arc<Table>)| other.meta.number == table.meta.number;
    for (_, other) in levels.candidates(key).skip_while(|other| !is_it(other)).skip(1) {
        if other.has(key, hash)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
