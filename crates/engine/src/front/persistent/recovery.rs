//! Recovery: the groups of arenas become memtables again, in place of the replay of logs.
//!
//! 1. Arenas come in the order of their numbers, after all logs: a store that was given a region
//!    had logs before.
//! 2. Groups are taken as long as they are whole and their sequences have no hole. A later group
//!    that was published over a hole proves that something durable is missing: damage.
//!
//! Threads: the one that opens the store.

use super::files::named;
use super::opening::OpenedRegion;
use crate::error::{Error, Result};
use crate::front::replay::{Replay, Replaying};
use crate::generations::memtable::Memtable;
use thermocline_foundation::Sequence;

impl Replay<'_> {
    /// Replays the arenas of `region` behind what `state` has.
    pub(in crate::front) fn run_arenas(
        &self,
        state: &mut Replaying,
        region: &OpenedRegion,
        write_out: &mut dyn FnMut(Memtable) -> Result<()>,
    ) -> Result<()> {
        let replayed = thermocline_pmem::replay(&region.arenas);
        let (arenas, _) = replayed.map_err(|error| named(&region.path, error))?;
        for (arena, groups) in region.arenas.iter().zip(arenas) {
            let place = format!("{}, arena {}", region.path.display(), arena.number());
            state.begin_part();
            for group in groups {
                let header = group.header;
                if !state.continues(&place, header.first) {
                    require_torn(state, &place, header.durable)?;
                    break;
                }
                self.make_room(state, group.payload.len(), write_out)?;
                state.insert(&place, header.first, header.count, &group.payload)?;
            }
        }
        Ok(())
    }
}

/// Refuses a hole over which a group was published.
fn require_torn(state: &Replaying, place: &str, durable: Sequence) -> Result<()> {
    let reached = state.reached();
    if durable <= reached {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{place}: records after sequence {reached} are missing although {durable} was published; \
         restore the database from a checkpoint"
    )))
}
