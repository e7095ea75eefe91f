//! Which database a region belongs to, how recent it is, and whether its bytes may be believed.
//!
//! ```text
//! page 0 and page 1, the same record in each
//!    0 magic 8 | 8 version 2 | 10 flags 1 | 11 zero 1 | 12 chunk bytes 4 | 16 database 16
//!   32 instance 16 | 48 generation 8 | 56 region number 8 | 64 bytes 8 | 72 journal bytes 8
//!   80 boot 16 | 96 dirty shutdowns 8 | 104 zero 20 | 124 CRC-32C bound to database and offset 4
//! flags: 1 closed in good order, 2 `MAP_SYNC` was granted, 4 the DIMMs count dirty shutdowns
//! ```
//! 1. The identity is looked at before anything of the region is believed or changed.
//! 2. While a region is open its mark of a good close is off. The close writes out the page cache
//!    first, where one holds the bytes, and sets the mark then.
//! 3. Without that mark the bytes are believed where `MAP_SYNC` was granted and no DIMM has lost
//!    anything since, or within one boot. Otherwise stores may be missing, in any order.
//!
//! Threads: the one that opens or closes the region.

use crate::layout::{Geometry, IDENTITY_AT, Owner};
use crate::persist::Medium;
use crate::twin;
use thermocline_device::drivers::persistence::Persistence;
use thermocline_device::identity::InstanceId;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::{DecodeError, Decoder};
use thermocline_foundation::{DatabaseId, FileNumber, Place, Planted, planted};

const MAGIC: [u8; 8] = *b"THERMPMR";
const VERSION: u16 = 1;
/// Bytes of the record.
pub const IDENTITY_BYTES: usize = 128;
const COVERED_BYTES: usize = IDENTITY_BYTES - 4;

const CLEAN: u8 = 1;
const SYNCHRONOUS: u8 = 2;
const COUNTS_SHUTDOWNS: u8 = 4;

/// What the world is like when a region is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// `MAP_SYNC` was granted.
    pub is_synchronous: bool,
    /// The identity of the boot; zeros if it is not known.
    pub boot: [u8; 16],
    /// The sum of the DIMMs' dirty shutdowns; none if they do not count.
    pub dirty_shutdowns: Option<u64>,
}

impl Circumstances {
    /// What was found out about a mapping (`persistence::probe`) and this boot
    /// (`persistence::boot_id`).
    pub fn of(is_synchronous: bool, found: &Persistence, boot: Option<[u8; 16]>) -> Self {
        let dirty_shutdowns = found.dirty_shutdowns;
        Self { is_synchronous, boot: boot.unwrap_or_default(), dirty_shutdowns }
    }
}

/// What the identity pages say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionIdentity {
    /// The database, to which all checksums are bound.
    pub database: DatabaseId,
    /// This copy of it.
    pub instance: InstanceId,
    /// The region's own number: a region that is made anew has another.
    pub region: FileNumber,
    /// Goes up when the database is opened for writing and when it is closed.
    pub generation: u64,
    /// The sizes of its parts.
    pub geometry: Geometry,
    /// It was closed in good order.
    pub is_clean: bool,
    /// How it was opened last.
    pub opened: Circumstances,
}

/// The database that a region should belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The database.
    pub database: DatabaseId,
    /// This copy of it.
    pub instance: InstanceId,
    /// The generation that `DATABASE` knows. The region may be one ahead: it is written first.
    pub generation: u64,
}

impl RegionIdentity {
    /// What the checksums of the region are bound to.
    pub fn owner(&self) -> Owner {
        Owner { database: self.database, number: self.region }
    }

    /// Reads what counts of the two copies.
    pub fn read(medium: &Medium) -> Result<Self> {
        if !medium.holds(0, IDENTITY_AT[1] + IDENTITY_BYTES as u64) {
            return Err(Error::corrupt("the region of persistent memory", 0, "it is too short"));
        }
        let copies = IDENTITY_AT.map(|at| Self::decode(&medium.bytes_at(at, IDENTITY_BYTES), at));
        match copies {
            [Ok(first), Ok(second)] if second.generation > first.generation => Ok(second),
            [Ok(first), _] => Ok(first),
            [Err(_), Ok(second)] => Ok(second),
            [Err(first), Err(second)] => {
                let newer = second.kind() == ErrorKind::NewerFormat;
                Err(if newer { second } else { first })
            }
        }
    }

    /// The word at `at` of an identity, as far as it is the same in all of `database`.
    pub(crate) fn may_have(database: DatabaseId, at: u64, word: u64) -> bool {
        let expected: &[u8] = match at {
            0 => &MAGIC,
            16 => &database.0[..8],
            24 => &database.0[8..],
            _ => return at < IDENTITY_BYTES as u64,
        };
        word.to_le_bytes() == *expected
    }

    /// Writes both copies, one after the other; durable at return.
    pub fn write(&self, medium: &Medium) {
        let decode = |at| Self::decode(&medium.bytes_at(at, IDENTITY_BYTES), at).ok();
        let generations = twin::generations(IDENTITY_AT, decode, |found| found.generation);
        twin::replace(medium, IDENTITY_AT, generations, |at| self.encode(at).to_vec());
    }

    /// The record as it is at `at`.
    pub fn encode(&self, at: u64) -> [u8; IDENTITY_BYTES] {
        let mut record = [0; IDENTITY_BYTES];
        let flags = u8::from(self.is_clean) * CLEAN
            + u8::from(self.opened.is_synchronous) * SYNCHRONOUS
            + u8::from(self.opened.dirty_shutdowns.is_some()) * COUNTS_SHUTDOWNS;
        record[..8].copy_from_slice(&MAGIC);
        record[8..10].copy_from_slice(&VERSION.to_le_bytes());
        record[10] = flags;
        record[12..16].copy_from_slice(&(self.geometry.chunk_bytes as u32).to_le_bytes());
        record[16..32].copy_from_slice(&self.database.0);
        record[32..48].copy_from_slice(&self.instance.0);
        let words =
            [self.generation, self.region.0, self.geometry.bytes, self.geometry.journal_bytes];
        for (part, word) in record[48..80].chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        record[80..96].copy_from_slice(&self.opened.boot);
        let shutdowns = self.opened.dirty_shutdowns.unwrap_or(0);
        record[96..104].copy_from_slice(&shutdowns.to_le_bytes());
        let sum = checksum(&self.place(at), &record[..COVERED_BYTES]);
        record[COVERED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    fn place(&self, offset: u64) -> Place {
        Place { database: self.database, file: FileNumber(0), offset }
    }

    /// The record in `bytes`, which were read at `at`.
    pub fn decode(bytes: &[u8], at: u64) -> Result<Self> {
        let corrupt = |why: &str| Error::corrupt("the region's identity", at, why);
        let version = bytes.get(8..10).map(|field| u16::from_le_bytes([field[0], field[1]]));
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(corrupt("it does not begin as one; is this the region's file?"));
        }
        if version.is_some_and(|version| version > VERSION) {
            let text = "the region of persistent memory was written by a newer version; upgrade";
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        let record = bytes.get(..IDENTITY_BYTES).ok_or_else(|| corrupt("it is too short"))?;
        let found = Self::fields(record).map_err(|error| corrupt(&error.to_string()))?;
        let sum = checksum(&found.place(at), &record[..COVERED_BYTES]);
        if version != Some(VERSION) || record[COVERED_BYTES..] != sum.to_le_bytes() {
            return Err(corrupt("the checksum does not match"));
        }
        found.geometry.check()?;
        Ok(found)
    }

    fn fields(record: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(&record[10..]);
        let flags = decoder.u8()?;
        decoder.u8()?;
        let chunk_bytes = u64::from(decoder.u32()?);
        let database = DatabaseId(decoder.array()?);
        let instance = InstanceId(decoder.array()?);
        let (generation, region) = (decoder.u64()?, FileNumber(decoder.u64()?));
        let (bytes, journal_bytes) = (decoder.u64()?, decoder.u64()?);
        let boot = decoder.array()?;
        let shutdowns = decoder.u64()?;
        Ok(Self {
            database,
            instance,
            region,
            generation,
            geometry: Geometry { bytes, chunk_bytes, journal_bytes },
            is_clean: flags & CLEAN != 0,
            opened: Circumstances {
                is_synchronous: flags & SYNCHRONOUS != 0,
                boot,
                dirty_shutdowns: (flags & COUNTS_SHUTDOWNS != 0).then_some(shutdowns),
            },
        })
    }

    /// An error where the region is not that of `expected`, or may lack stores. Nothing has changed
    /// by then.
    pub fn check(&self, expected: &Expected, now: &Circumstances) -> Result<()> {
        self.check_name(expected)?;
        match self.doubted(now) {
            Some(why) => Err(refused(format!(
                "the region may lack what was stored last: {why}; restore a checkpoint"
            ))),
            None => Ok(()),
        }
    }

    /// The region is that of `expected`, but may lack stores.
    pub fn is_doubted(&self, expected: &Expected, now: &Circumstances) -> bool {
        self.check_name(expected).is_ok() && self.doubted(now).is_some()
    }

    /// An error where the region is not that of `expected`, whether it may lack stores or not.
    pub fn check_name(&self, expected: &Expected) -> Result<()> {
        let refused = |text: String| Err(refused(text));
        if self.database != expected.database {
            return refused(format!(
                "the region belongs to database {}, not {}; name the right one",
                self.database, expected.database
            ));
        }
        if self.instance != expected.instance {
            return refused(format!(
                "the region belongs to another copy of the database, {} and not {}; name the \
                 right one, or a new path to have it made",
                self.instance, expected.instance
            ));
        }
        let generations = expected.generation..=expected.generation + 1;
        if !generations.contains(&self.generation) && !planted(Planted::OlderRegionAccepted) {
            let (is, way_out) = match self.generation < expected.generation {
                true => ("an older copy, or one that was replaced", "region"),
                false => ("newer than DATABASE", "home directory"),
            };
            return refused(format!(
                "the region is {is}: it has generation {}, expected {}; restore or name the \
                 {way_out} that was used last",
                self.generation, expected.generation
            ));
        }
        Ok(())
    }

    fn doubted(&self, now: &Circumstances) -> Option<&'static str> {
        self.doubt(now).filter(|_| !planted(Planted::OtherBootBelieved))
    }

    /// Why stores may be missing.
    fn doubt(&self, now: &Circumstances) -> Option<&'static str> {
        if self.is_clean {
            return None;
        }
        if self.opened.is_synchronous {
            let lost = self.opened.dirty_shutdowns.is_some()
                && self.opened.dirty_shutdowns != now.dirty_shutdowns;
            return lost.then_some("a DIMM lost what was on its way (dirty_shutdown rose)");
        }
        let same_boot = self.opened.boot != [0; 16] && self.opened.boot == now.boot;
        (!same_boot).then_some("it was open, on no persistent memory, when the machine stopped")
    }
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::Tier, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> RegionIdentity {
        RegionIdentity {
            database: DatabaseId([1; 16]),
            instance: InstanceId([2; 16]),
            region: FileNumber(3),
            generation: 7,
            geometry: Geometry { bytes: 1 << 16, chunk_bytes: 4096, journal_bytes: 4096 },
            is_clean: false,
            opened: Circumstances {
                is_synchronous: false,
                boot: [4; 16],
                dirty_shutdowns: Some(5),
            },
        }
    }

    fn expected() -> Expected {
        let identity = identity();
        Expected { database: identity.database, instance: identity.instance, generation: 7 }
    }

    fn text(found: &RegionIdentity, expected: &Expected, now: &Circumstances) -> String {
        let error = found.check(expected, now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tier);
        error.to_string()
    }

    #[test]
    fn a_region_that_is_foreign_or_of_another_generation_is_refused() {
        let (found, now) = (identity(), identity().opened);
        found.check(&expected(), &now).unwrap();
        found.check(&Expected { generation: 6, ..expected() }, &now).unwrap();
        for (generation, part) in [
            (5, "newer than DATABASE: it has generation 7, expected 5; restore or name the home"),
            (8, "an older copy, or one that was replaced: it has generation 7, expected 8"),
            (1 << 40, "restore or name the region that was used last"),
        ] {
            let text = text(&found, &Expected { generation, ..expected() }, &now);
            assert!(text.contains(part), "{text}");
        }
        let other = Expected { database: DatabaseId([9; 16]), ..expected() };
        assert!(text(&found, &other, &now).contains("belongs to database"));
        let copy = Expected { instance: InstanceId([9; 16]), ..expected() };
        assert!(text(&found, &copy, &now).contains("another copy"));
    }

    #[test]
    fn without_persistent_memory_it_is_believed_after_a_close_or_within_a_boot() {
        let found = identity();
        let other = Circumstances { boot: [6; 16], ..found.opened };
        assert!(text(&found, &expected(), &other).contains("on no persistent memory"));
        RegionIdentity { is_clean: true, ..found }.check(&expected(), &other).unwrap();
        // A boot that cannot be told is another.
        let unknown = Circumstances { boot: [0; 16], ..found.opened };
        let found = RegionIdentity { opened: unknown, ..found };
        assert!(text(&found, &expected(), &unknown).contains("on no persistent memory"));
    }

    #[test]
    fn persistent_memory_is_believed_unless_a_dimm_lost_something() {
        let opened = Circumstances { is_synchronous: true, ..identity().opened };
        let found = RegionIdentity { opened, ..identity() };
        let now = Circumstances { boot: [6; 16], ..opened };
        found.check(&expected(), &now).unwrap();
        for dirty_shutdowns in [Some(6), None] {
            let now = Circumstances { dirty_shutdowns, ..now };
            assert!(text(&found, &expected(), &now).contains("dirty_shutdown"));
        }
    }

    #[test]
    fn at_every_crash_of_an_update_the_old_or_the_new_one_is_read() {
        let old = identity();
        let new = RegionIdentity { generation: 8, is_clean: true, ..old };
        let start = Medium::shadowed(&[0; 1024 + 16]);
        old.write(&start);
        let medium = Medium::shadowed(&start.snapshot());
        new.write(&medium);
        for model in [crate::shadow::Model::X86, crate::shadow::Model::Words] {
            medium.shadow().crashes(|crash| {
                crash.images(model, 512, 1, |image| {
                    let read = RegionIdentity::read(&Medium::shadowed(image)).unwrap();
                    assert!(read == old || read == new);
                });
            });
        }
        assert_eq!(RegionIdentity::read(&medium).unwrap(), new);
    }
}
