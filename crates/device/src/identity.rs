//! The file `TIER` in every tier's directory: which database the tier belongs to, and how recent it
//! is.
//!
//! It is what tells a mounted tier from an empty mount point, a tier from a neighbour's, and
//! today's disk from last week's clone. See docs/formats/tier-identity.md.
//!
//! ```text
//! page 0 and page 1, the same record in each
//!    0 magic 8 | 8 version 2 | 10 tier 1 | 11 tiers 1 | 12 zero 4 | 16 database 16
//!   32 instance 16 | 48 generation 8 | 56 zero 452 | 508 CRC-32C bound to database and offset 4
//! ```
//!
//! 1. An update writes one copy and syncs it before it touches the other, so a torn update leaves
//!    one good copy. The older copy goes first.
//! 2. Of two good copies the one with the higher generation counts. Where neither is good, a single
//!    flipped bit of each is turned back.
//! 3. The record fits a sector, which is written whole or not at all.
//!
//! Threads: the owner of the tier's lock.

use crate::buffer::PAGE_BYTES;
use crate::driver::{Driver, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::small_file;
use crate::tier::TierIndex;
use std::fmt;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::{DecodeError, Decoder};
use thermocline_foundation::{DatabaseId, FileNumber, Place, sync_site};

/// The name of the identity file.
pub const FILE_NAME: &str = "TIER";

const MAGIC: [u8; 8] = *b"THERMTIR";
const VERSION: u16 = 1;
const RECORD_BYTES: usize = 512;
const COVERED_BYTES: usize = RECORD_BYTES - 4;

/// Names one physical copy of a database: new when it is created and for each checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceId(pub [u8; 16]);

impl InstanceId {
    /// A new identity from two words of `entropy`.
    pub fn drawn(entropy: impl FnMut() -> u64) -> Self {
        Self(DatabaseId::drawn(entropy).0)
    }

    /// Parses the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        DatabaseId::parse(text).map(|id| Self(id.0))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DatabaseId(self.0).fmt(f)
    }
}

/// What `TIER` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The database, to which all checksums are bound.
    pub database: DatabaseId,
    /// This copy of it.
    pub instance: InstanceId,
    /// The tier's place in the list.
    pub tier: TierIndex,
    /// How many tiers there are.
    pub tiers: u8,
    /// Goes up when the database is opened for writing and when it is closed.
    pub generation: u64,
}

impl Identity {
    /// Writes a new `TIER` and syncs it; the caller syncs the directory.
    pub fn create(&self, driver: &dyn Driver) -> Result<()> {
        let file = driver.create(FILE_NAME)?;
        // Until the sync there was no identity that a power cut could damage: one is enough.
        [0, 1].into_iter().try_for_each(|copy| self.write(driver, &file, copy))?;
        sync_site("file", || small_file::sync(driver, &file))
    }

    /// Replaces what `TIER` says.
    pub fn update(&self, driver: &dyn Driver, what: &str) -> Result<()> {
        let bytes = small_file::read(driver, FILE_NAME, what, 2 * PAGE_BYTES)?;
        let generation = |copy| decode(&bytes, copy, what).map(|found| found.generation).ok();
        // `None` sorts first: a damaged copy is replaced before the good one is touched.
        let order = if generation(0) <= generation(1) { [0, 1] } else { [1, 0] };
        let file = driver.open(FILE_NAME)?;
        for (copy, name) in order.into_iter().zip(["first-copy", "second-copy"]) {
            self.write(driver, &file, copy)?;
            sync_site(name, || small_file::sync(driver, &file))?;
        }
        Ok(())
    }

    fn write(&self, driver: &dyn Driver, file: &Handle, copy: usize) -> Result<()> {
        let offset = (copy * PAGE_BYTES) as u64;
        small_file::write(driver, file, offset, &self.encode(offset))
    }

    /// Reads `TIER`, which `what` describes in messages.
    pub fn read(driver: &dyn Driver, what: &str) -> Result<Self> {
        let bytes = small_file::read(driver, FILE_NAME, what, 2 * PAGE_BYTES)?;
        match (decode(&bytes, 0, what), decode(&bytes, 1, what)) {
            (Ok(first), Ok(second)) if second.generation > first.generation => Ok(second),
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(first), Err(second)) => {
                let newer = second.kind() == ErrorKind::NewerFormat;
                let error = if newer { second } else { first };
                mended(&bytes, what).ok_or(error)
            }
        }
    }

    fn encode(&self, offset: u64) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&MAGIC);
        record[8..10].copy_from_slice(&VERSION.to_le_bytes());
        record[10..12].copy_from_slice(&[self.tier.0, self.tiers]);
        record[16..32].copy_from_slice(&self.database.0);
        record[32..48].copy_from_slice(&self.instance.0);
        record[48..56].copy_from_slice(&self.generation.to_le_bytes());
        let place = Place { database: self.database, file: FileNumber(0), offset };
        let crc = checksum(&place, &record[..COVERED_BYTES]);
        record[COVERED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        record
    }
}

/// What the copies say with a flipped bit of each turned back: the newer one, where both are then
/// intact. The place of the checksum is in the record, so each bit is tried.
fn mended(bytes: &[u8], what: &str) -> Option<Identity> {
    let of_copy = |copy: usize| {
        let mut bytes = bytes.to_vec();
        let first_bit = copy * PAGE_BYTES * 8;
        (first_bit..first_bit + RECORD_BYTES * 8).find_map(|bit| {
            *bytes.get_mut(bit / 8)? ^= 1 << (bit % 8);
            let found = decode(&bytes, copy, what).ok();
            bytes[bit / 8] ^= 1 << (bit % 8);
            found
        })
    };
    let found = [0, 1].into_iter().filter_map(of_copy).max_by_key(|found| found.generation);
    if found.is_some() {
        tracing::error!(%what, "both copies are damaged; a flipped bit is turned back");
    }
    found
}

/// The record of copy 0 or 1.
fn decode(bytes: &[u8], copy: usize, what: &str) -> Result<Identity> {
    let offset = copy * PAGE_BYTES;
    let damage = |why| {
        let why = format!("{why}; restore the tier from a checkpoint");
        Error::corrupt(what, offset as u64, why)
    };
    let record = bytes.get(offset..offset + RECORD_BYTES).ok_or_else(|| damage("it is cut off"))?;
    let (version, identity, crc) = fields(record).map_err(|_| damage("it is cut off"))?;
    if record[..8] != MAGIC {
        return Err(damage("it is not a tier identity"));
    }
    let place = Place { database: identity.database, file: FileNumber(0), offset: offset as u64 };
    if checksum(&place, &record[..COVERED_BYTES]) != crc {
        return Err(damage("its checksum is wrong"));
    }
    if version > VERSION {
        let text = format!("{what} has version {version}, this software knows {VERSION}: upgrade");
        return Err(Error::new(ErrorKind::NewerFormat, text));
    }
    Ok(identity)
}

fn fields(record: &[u8]) -> Result<(u16, Identity, u32), DecodeError> {
    let mut decoder = Decoder::new(record);
    decoder.take(8)?;
    let version = decoder.u16()?;
    let (tier, tiers) = (TierIndex(decoder.u8()?), decoder.u8()?);
    decoder.take(4)?;
    let database = DatabaseId(decoder.array()?);
    let instance = InstanceId(decoder.array()?);
    let generation = decoder.u64()?;
    decoder.take(COVERED_BYTES - 56)?;
    Ok((version, Identity { database, instance, tier, tiers, generation }, decoder.u32()?))
}
