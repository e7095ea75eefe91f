//! What a transaction promises, and what it costs.

use super::reads::Reads;
use super::savepoint::Writes;
use super::validation::Footprint;
use crate::settings::Durability;
use bytes::Bytes;
use thermocline_foundation::{ByteSize, Duration, Planted, Sequence, planted};

/// What a transaction sees of others, and what of them makes its commit a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// It reads as of its beginning, and conflicts where another wrote a key that it writes or has
    /// read for an update. Two that read the same and write different keys do not conflict (write
    /// skew).
    #[default]
    Snapshot,
    /// Each read sees what is committed by then. Only keys that were read for an update conflict.
    ReadCommitted,
    /// As `Snapshot`, and what it has read conflicts too, ranges of scans with keys that were not
    /// there included. The outcome is that of one transaction after the other.
    Serializable,
}

impl Isolation {
    /// All reads see one moment.
    pub(crate) fn reads_one_moment(self) -> bool {
        self != Self::ReadCommitted
    }

    /// What was read must be the same at the commit.
    pub(crate) fn validates_reads(self) -> bool {
        self == Self::Serializable
    }

    /// What must not have changed for a commit. `moment` is what the transaction reads as of, if
    /// that is one; `for_update` has keys with the moments at which they were read for an update.
    pub(crate) fn footprint(
        self,
        moment: Option<Sequence>,
        writes: &Writes,
        for_update: impl Iterator<Item = (Bytes, Sequence)>,
        reads: &Reads,
    ) -> Footprint {
        let mut footprint = Footprint { keys: for_update.collect(), ranges: Vec::new() };
        let Some(moment) = moment.filter(|_| self.reads_one_moment()) else { return footprint };
        footprint.keys.extend(writes.keys().map(|key| (key.clone(), moment)));
        if self.validates_reads() {
            footprint.keys.extend(reads.keys.iter().map(|key| (key.clone(), moment)));
            let forgotten = planted(Planted::RangeNotValidated);
            let ranges = reads.ranges.iter().filter(|range| !forgotten && !range.is_empty());
            footprint.ranges.extend(ranges.map(|range| (range.clone(), moment)));
        }
        footprint
    }
}

/// What keeps transactions that write the same keys apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locking {
    /// Nothing, until the commit finds that another came first. Best where that is rare.
    #[default]
    Optimistic,
    /// A key that is written, or read for an update, is locked until the transaction ends; others
    /// that write it wait. While such a transaction is open, single writes, batches, conditional
    /// writes and optimistic commits take locks too, in the order of their keys. Bulk loads do not.
    Pessimistic,
}

/// How a transaction is run: `TransactionOptions { isolation: Isolation::Serializable,
/// ..TransactionOptions::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What keeps it apart from others that write the same keys. Default `Optimistic`.
    pub locking: Locking,
    /// What it sees of others. Default `Snapshot`.
    pub isolation: Isolation,
    /// How durable its commit is. Default: as the settings say.
    pub durability: Option<Durability>,
    /// How long a call waits for locks that other transactions hold, for all of its keys together,
    /// before it is an error of kind `LockTimeout`. Default: as the settings say (`lock_timeout`).
    pub lock_timeout: Option<Duration>,
    /// Memory that its writes may take, each with about 100 bytes besides key and value, and the
    /// keys that it reads where it is serializable: beyond, a read or a
    /// write is refused and the transaction goes on without it. 256 MiB at most: with more, each
    /// write is refused. Default: as the settings say (`transaction_bytes_max`).
    pub bytes_max: Option<ByteSize>,
}
