//! Which nodes, objects and lines of the register are in use: bitmaps in ordinary memory, which an
//! opening builds from what the tree reaches.
//!
//! 1. A bitmap is no durable state. What a crash leaves half made is not reachable, so its room is
//!    free at the next opening.
//! 2. A chunk holds units of one size. A chunk without any goes back, but for the last one that
//!    has room.
//! 3. An object lies in a unit of its class; where there is no chunk for another of these, in one
//!    of a larger class, which it names as its own.
//!
//! Threads: the only writer of the tree, and the opening.

use crate::chunks::{ChunkHeader, ChunkKind, Chunks, Extent, no_room};
use crate::layout::{CHUNK_HEADER_BYTES, LINE_BYTES, damaged};
use crate::node::NODE_BYTES;
use crate::object::class_bytes;
use std::collections::{BTreeMap, BTreeSet};
use thermocline_device::{Error, ErrorKind, Result};

/// What a chunk is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A node of the tree.
    Node,
    /// An object of a class.
    Object(u8),
    /// A line of the register.
    Line,
}

impl Unit {
    /// What the chunks of this header are divided into; none for chunks of another kind.
    pub fn of(header: &ChunkHeader) -> Option<Self> {
        match header.kind {
            ChunkKind::Nodes => Some(Self::Node),
            ChunkKind::Objects => Some(Self::Object(header.class)),
            ChunkKind::Register => Some(Self::Line),
            ChunkKind::Free | ChunkKind::Arena => None,
        }
    }

    fn header(self) -> ChunkHeader {
        let (kind, class) = match self {
            Self::Node => (ChunkKind::Nodes, 0),
            Self::Object(class) => (ChunkKind::Objects, class),
            Self::Line => (ChunkKind::Register, 0),
        };
        ChunkHeader { kind, class, ..ChunkHeader::ZERO }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Node => NODE_BYTES as u64,
            Self::Object(class) => class_bytes(class).unwrap_or(u64::MAX),
            Self::Line => LINE_BYTES,
        }
    }

    /// Bytes of a chunk before its first unit.
    fn first(self) -> u64 {
        match self {
            Self::Node => NODE_BYTES as u64,
            Self::Object(_) | Self::Line => CHUNK_HEADER_BYTES,
        }
    }
}

#[derive(Debug)]
struct Chunk {
    extent: Extent,
    units: u64,
    used: u64,
    /// A bit for each unit, the first the lowest.
    bits: Vec<u64>,
}

#[derive(Debug, Default)]
struct Space {
    /// By place.
    chunks: BTreeMap<u64, Chunk>,
    with_room: BTreeSet<u64>,
}

/// What is in use.
#[derive(Debug, Default)]
pub struct Allocation {
    spaces: BTreeMap<Unit, Space>,
}

impl Allocation {
    /// Nothing is in use in these chunks.
    pub fn of(extents: &[Extent]) -> Result<Self> {
        let mut allocation = Self::default();
        for extent in extents {
            let unit = Unit::of(&extent.header).filter(|unit| units_of(*unit, extent) > 0);
            let why = "a chunk is divided into nothing that is known";
            allocation.add(unit.ok_or_else(|| damaged(extent.at, why))?, *extent);
        }
        Ok(allocation)
    }

    fn add(&mut self, unit: Unit, extent: Extent) {
        let units = units_of(unit, &extent);
        let bits = vec![0; units.div_ceil(64) as usize];
        let space = self.spaces.entry(unit).or_default();
        space.chunks.insert(extent.at, Chunk { extent, units, used: 0, bits });
        space.with_room.insert(extent.at);
    }

    /// Takes a unit, which may be one for larger objects; where the index `grows` by it, no chunk
    /// that is left to changes. Its bytes are what an earlier life left, those of a line zeros.
    pub fn take(&mut self, unit: Unit, chunks: &Chunks, grows: bool) -> Result<(Unit, u64)> {
        if unit.bytes() > chunks.chunk_bytes() - CHUNK_HEADER_BYTES {
            let text =
                "a key is longer than a chunk of the region has room for; name a larger size";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if let Some(at) = self.with_room(unit) {
            return Ok((unit, self.take_of(unit, at)));
        }
        let made = match unit {
            _ if grows && !chunks.has_room_to_grow() => Err(no_room()),
            // What is no line in use is zeros: anything else there is damage.
            Unit::Line => chunks.allocate_zeros(unit.header()),
            Unit::Node | Unit::Object(_) => chunks.allocate(unit.header()),
        };
        match made {
            Ok(extent) => {
                self.add(unit, extent);
                Ok((unit, self.take_of(unit, extent.at)))
            }
            Err(error) => {
                let (unit, at) = self.larger_with_room(unit).ok_or(error)?;
                Ok((unit, self.take_of(unit, at)))
            }
        }
    }

    fn with_room(&self, unit: Unit) -> Option<u64> {
        self.spaces.get(&unit)?.with_room.first().copied()
    }

    /// The smallest units in which an object of `unit` has room too, and a chunk that has one.
    fn larger_with_room(&self, unit: Unit) -> Option<(Unit, u64)> {
        let Unit::Object(class) = unit else { return None };
        let larger = Unit::Object(class.checked_add(1)?)..=Unit::Object(u8::MAX);
        let with_room = |(unit, space): (&Unit, &Space)| Some((*unit, *space.with_room.first()?));
        self.spaces.range(larger).find_map(with_room)
    }

    /// Takes a unit of the chunk at `at`, which has room.
    fn take_of(&mut self, unit: Unit, at: u64) -> u64 {
        let space = self.spaces.entry(unit).or_default();
        let chunk = space.chunks.get_mut(&at).expect("a chunk with room is one of the chunks");
        let word = chunk.bits.iter().position(|bits| *bits != u64::MAX).unwrap_or(0);
        let index = word as u64 * 64 + u64::from(chunk.bits[word].trailing_ones());
        chunk.bits[word] |= 1 << (index % 64);
        chunk.used += 1;
        if chunk.used == chunk.units {
            space.with_room.remove(&at);
        }
        at + unit.first() + index * unit.bytes()
    }

    /// The chunk and the index in it of the unit at `at`.
    fn locate(&mut self, unit: Unit, at: u64) -> Option<(&mut Chunk, u64)> {
        let (chunk_at, chunk) = self.spaces.get_mut(&unit)?.chunks.range_mut(..=at).next_back()?;
        let behind = at.checked_sub(chunk_at + unit.first())?;
        let index = behind / unit.bytes();
        (behind.is_multiple_of(unit.bytes()) && index < chunk.units).then_some((chunk, index))
    }

    /// Says that the unit at `at` is in use; an error where there is no such unit, or it is in use
    /// twice.
    pub fn mark(&mut self, unit: Unit, at: u64) -> Result<()> {
        let Some((chunk, index)) = self.locate(unit, at) else {
            return Err(damaged(at, "the index names a place where nothing of it can be"));
        };
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        if chunk.bits[word] & bit != 0 {
            return Err(damaged(at, "the index names a place twice"));
        }
        chunk.bits[word] |= bit;
        chunk.used += 1;
        let (is_full, chunk_at) = (chunk.used == chunk.units, chunk.extent.at);
        if is_full && let Some(space) = self.spaces.get_mut(&unit) {
            space.with_room.remove(&chunk_at);
        }
        Ok(())
    }

    /// Gives a unit back, which nothing names and no reader has.
    pub fn give(&mut self, unit: Unit, at: u64, chunks: &Chunks) {
        let (chunk, index) = self.locate(unit, at).expect("what is given back was taken");
        chunk.bits[(index / 64) as usize] &= !(1 << (index % 64));
        chunk.used -= 1;
        let (extent, used) = (chunk.extent, chunk.used);
        let space = self.spaces.entry(unit).or_default();
        space.with_room.insert(extent.at);
        if used == 0 && space.with_room.len() > 1 {
            space.with_room.remove(&extent.at);
            space.chunks.remove(&extent.at);
            chunks.free(extent);
        }
    }

    /// Gives chunks back in which nothing is in use.
    pub fn drop_empty(&mut self, chunks: &Chunks) {
        for space in self.spaces.values_mut() {
            let empty: Vec<_> =
                space.chunks.iter().filter(|it| it.1.used == 0).map(|it| *it.0).collect();
            for at in empty {
                space.with_room.remove(&at);
                if let Some(chunk) = space.chunks.remove(&at) {
                    chunks.free(chunk.extent);
                }
            }
        }
    }

    /// All chunks.
    pub fn extents(&self) -> Vec<Extent> {
        let chunks = self.spaces.values().flat_map(|space| space.chunks.values());
        chunks.map(|chunk| chunk.extent).collect()
    }

    /// Bytes of units that are free in chunks which have others.
    pub fn free_bytes(&self) -> u64 {
        let each = self.spaces.iter().flat_map(|(unit, space)| {
            space.chunks.values().map(|chunk| (chunk.units - chunk.used) * unit.bytes())
        });
        each.sum()
    }

    /// Units in use and their bytes.
    pub fn used(&self) -> (u64, u64) {
        let each = self.spaces.iter().flat_map(|(unit, space)| {
            space.chunks.values().map(|chunk| (chunk.used, chunk.used * unit.bytes()))
        });
        each.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }
}

fn units_of(unit: Unit, extent: &Extent) -> u64 {
    extent.bytes.saturating_sub(unit.first()) / unit.bytes()
}
