//! Look-ups of several keys: one pass over the index in the order of the keys, and one batch of
//! reads.

use super::blocks::Blocks;
use super::{Known, TableIndex, Tables, newest_waiting};
use crate::error::Result;
use bytes::Bytes;
use thermocline_foundation::Sequence;
use thermocline_table::Trailer;

/// What was found, by the places of the keys. Where it has nothing of one, there is nothing.
#[derive(Debug, Default)]
pub(crate) struct FoundMany {
    pub found: Vec<(usize, Trailer, Bytes)>,
    /// Keys to be looked up one by one: the index says nothing of the moment.
    pub unknown: Vec<usize>,
}

/// What `snapshot` sees of those of `keys` at the places `at`, in the order of the keys.
pub(super) fn find(
    index: &TableIndex,
    tables: &Tables,
    keys: &[&[u8]],
    at: &[usize],
    snapshot: Sequence,
) -> Result<FoundMany> {
    let (mut many, mut named) = (FoundMany::default(), Vec::new());
    for at in at {
        let key = keys[*at];
        let Some(known) = index.look(tables, key, snapshot)? else {
            many.unknown.push(*at);
            continue;
        };
        let newer = newest_waiting(tables, key, snapshot, known.trailer(), Sequence::ZERO)?;
        match (newer, known) {
            (Some(newer), _) => many.found.push((*at, newer.trailer, newer.value)),
            (None, Known::Record(record)) => named.push((*at, record)),
            (None, Known::Tombstone(_) | Known::Nothing) => {}
        }
    }
    let wanted: Vec<_> = named.iter().map(|(at, record)| (keys[*at], record)).collect();
    let values = Blocks::of(named.iter().map(|(_, record)| record))?.values(&wanted)?;
    many.found.extend(named.iter().zip(values).map(|((at, it), value)| (*at, it.trailer, value)));
    Ok(many)
}
