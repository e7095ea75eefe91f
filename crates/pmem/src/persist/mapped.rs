//! A region over a mapped file, and how its lines become durable: found out, never chosen.
//!
//! Threads: the one that opens the region.

use super::instructions::FlushInstruction;
use super::{Durability, Flush, Medium, Words};
use std::path::Path;
use thermocline_device::drivers::Mapping;
use thermocline_device::drivers::persistence::PersistenceDomain;
use thermocline_device::{Error, ErrorKind, Result};

impl Medium {
    /// The bytes of a mapped file. `line_ns` is waited for each flushed line where the mapping is
    /// not persistent memory (the paper's emulation, section 6.1); over persistent memory it must
    /// be zero.
    pub fn mapped(mapping: Mapping, domain: PersistenceDomain, line_ns: u64) -> Result<Self> {
        let place = mapping.path().to_owned();
        let durability = match (mapping.is_synchronous(), domain) {
            (false, _) => Durability::Emulated,
            (true, PersistenceDomain::CpuCache) => Durability::CachesIncluded,
            (true, PersistenceDomain::MemoryController) => Durability::Flushed,
        };
        if durability != Durability::Emulated && line_ns > 0 {
            return Err(refused(&place, "is persistent memory, which nothing slows down"));
        }
        let flush = match durability {
            Durability::CachesIncluded => Flush::CachesAreDurable,
            _ => Flush::Instruction(FlushInstruction::detect().ok_or_else(|| {
                refused(&place, "needs a processor whose flushes are known: x86-64")
            })?),
        };
        Ok(Self::new(Words::Mapped(mapping), flush, durability, line_ns))
    }
}

fn refused(place: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} {why}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::MediumCounts;
    use thermocline_foundation::Clock;

    #[test]
    fn an_ordinary_file_is_emulated_and_waits_for_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let mapping = Mapping::create(&folder.path().join("region"), 4096).unwrap();
        let medium = Medium::mapped(mapping, PersistenceDomain::MemoryController, 50_000).unwrap();
        if medium.durability() == Durability::Emulated {
            let start = medium.clock.now_ns();
            medium.write(56, b"two lines");
            medium.fence();
            assert!(medium.clock.now_ns() - start >= 100_000);
            assert_eq!(medium.counts(), MediumCounts { lines: 2, fences: 1 });
        }
        assert_eq!(medium.bytes_at(56, 9), b"two lines");
        assert_eq!(medium.load(64), u64::from(b's'));
        medium.store(0, 0x0102);
        assert_eq!(medium.bytes_at(0, 3), [2, 1, 0]);
        medium.sync().unwrap();
    }
}
