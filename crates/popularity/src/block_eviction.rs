//! Which file of a second-level cache goes when there is no room, and which of its blocks are
//! written again (MyNVM, section 5, evicts files).
//!
//! ```text
//!   oldest file ──> its blocks: hit since they were written? ── yes, up to half a file ──> newest
//!                                                            '─ no ──> gone
//! ```
//! A file has the blocks that were admitted at about the same time, hot and cold ones mixed, so the
//! least recently used file is about the oldest one. Reinsertion keeps what is hot in it.
//!
//! Pure functions; any thread.

/// How the cache makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// The oldest file goes; blocks that were hit are written again.
    FifoReinsert,
    /// The oldest file goes with all its blocks.
    Fifo,
    /// The file goes whose last hit is longest ago.
    FileLru,
}

/// What is known of a block of the file that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingBlock {
    /// Hits since it was written, up to what is counted.
    pub hits: u8,
    /// Stored bytes.
    pub len: u32,
}

/// Share of a file that is written again at most.
const REINSERTED_SHARE: u64 = 2;

/// The file that goes, of files from the oldest to the newest with the time of each one's last hit
/// or, without one, of its making.
pub fn choose_file(policy: EvictionPolicy, last_hits: &[u64]) -> Option<usize> {
    match policy {
        EvictionPolicy::FifoReinsert | EvictionPolicy::Fifo => (!last_hits.is_empty()).then_some(0),
        EvictionPolicy::FileLru => (0..last_hits.len()).min_by_key(|at| last_hits[*at]),
    }
}

/// The blocks that are written again, of a file of `file_bytes` that goes: those with most hits, in
/// their order.
pub fn reinserted(policy: EvictionPolicy, file_bytes: u64, blocks: &[LeavingBlock]) -> Vec<usize> {
    if policy != EvictionPolicy::FifoReinsert {
        return Vec::new();
    }
    let mut hit: Vec<_> = (0..blocks.len()).filter(|at| blocks[*at].hits > 0).collect();
    hit.sort_by_key(|at| std::cmp::Reverse(blocks[*at].hits));
    let mut left = file_bytes / REINSERTED_SHARE;
    hit.retain(|at| {
        let len = u64::from(blocks[*at].len);
        let fits = len <= left;
        left -= if fits { len } else { 0 };
        fits
    });
    hit.sort_unstable();
    hit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_or_the_one_that_was_hit_longest_ago() {
        let last_hits = [30, 10, 20];
        for policy in [EvictionPolicy::Fifo, EvictionPolicy::FifoReinsert] {
            assert_eq!(choose_file(policy, &last_hits), Some(0));
        }
        assert_eq!(choose_file(EvictionPolicy::FileLru, &last_hits), Some(1));
        assert_eq!(choose_file(EvictionPolicy::FileLru, &[]), None);
        assert_eq!(choose_file(EvictionPolicy::Fifo, &[]), None);
    }

    #[test]
    fn half_a_file_stays_at_most_and_most_hits_come_first() {
        let block = |hits, len| LeavingBlock { hits, len };
        let blocks = [block(1, 30), block(0, 10), block(3, 30), block(2, 30), block(1, 20)];
        let stays = |file_bytes| reinserted(EvictionPolicy::FifoReinsert, file_bytes, &blocks);
        assert_eq!(stays(1000), [0, 2, 3, 4]);
        assert_eq!(stays(160), [2, 3, 4], "what fits is taken where a larger one does not");
        assert_eq!(stays(39), []);
        assert!(reinserted(EvictionPolicy::Fifo, 1000, &blocks).is_empty());
        assert!(reinserted(EvictionPolicy::FileLru, 1000, &blocks).is_empty());
    }
}
