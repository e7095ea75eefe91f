//! A way in for the tests of decoders (`tests/decoders.rs` and `fuzz/`): a whole region, and each
//! of its parts at one place of a region of its own. Not part of the documented interface. Any
//! thread.

use crate::arena::{self, replay};
use crate::chunks::{ChunkHeader, HEADER_BYTES};
use crate::identity::{Circumstances, Expected, IDENTITY_BYTES, RegionIdentity};
use crate::layout::{JOURNAL_AT, Owner, ROOT_AT};
use crate::memtable::PersistentMemtable;
use crate::node::{self, NODE_BYTES, Node};
use crate::object::{self, Entry};
use crate::persist::Medium;
use crate::region::Region;
use crate::register::TableLine;
use crate::run::{self, Run};
use crate::tree::Tree;
use crate::tree::root::Root;
use thermocline_device::Result;
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};

/// Kinds of parts.
pub const PARTS: u8 = 8;

/// Whose the parts are.
const OWNER: Owner = Owner { database: DatabaseId([0x5a; 16]), number: FileNumber(9) };
/// Where parts are that could be anywhere.
const PART_AT: u64 = 1 << 20;

/// What a region holds: a record of memtables, an entry of the index.
pub type Contents = (Vec<(Vec<u8>, Sequence, Option<Vec<u8>>)>, Vec<(Vec<u8>, Entry)>);

/// All that the region in `bytes` holds, if it is whole. It is taken for what it says that it is.
pub fn read_region(bytes: &[u8]) -> Result<Contents> {
    let medium = Medium::in_memory(bytes);
    let found = RegionIdentity::read(&medium)?;
    let expected = Expected {
        database: found.database,
        instance: found.instance,
        generation: found.generation,
    };
    let now = Circumstances { ..found.opened };
    let mut opened = Region::open(medium, &expected, &now, found.generation)?;
    let (groups, _) = replay(&opened.arenas)?;
    let mut records = Vec::new();
    for (arena, groups) in std::mem::take(&mut opened.arenas).into_iter().zip(groups) {
        let memtable = PersistentMemtable::recover(arena, &groups)?;
        let found = memtable.records(Sequence::MAX);
        records.extend(found.map(|(key, found)| (key, found.sequence, found.value)));
    }
    let tree = Tree::open(&opened)?;
    let entries: Result<Vec<_>> = tree.cursor(b"").collect();
    Ok((records, entries?))
}

/// A part as this version writes it; none where it is refused.
pub fn rewrite(part: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    match part % PARTS {
        0 => RegionIdentity::decode(bytes, 0).ok().map(|found| found.encode(0).to_vec()),
        1 => {
            let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
            let header = ChunkHeader::decode(bytes, &OWNER, PART_AT)?;
            Some(header.encode(&OWNER, PART_AT).to_vec())
        }
        2 => {
            let group = arena::decode(bytes, &OWNER, PART_AT)?;
            Some(group.header.encode(&OWNER, PART_AT, &group.payload))
        }
        3 => {
            let bytes = bytes.first_chunk::<NODE_BYTES>()?;
            let is_whole = node::stored_sum(bytes) == node::sum(&OWNER, PART_AT, bytes);
            let node = Node::decode(bytes).filter(|_| is_whole)?;
            Some(node.encode(&OWNER, PART_AT).0.to_vec())
        }
        4 => {
            let object = object::decode(bytes, &OWNER, PART_AT)?;
            let fields = (object.class, &object.entry, &object.key);
            Some(object::encode(&OWNER, PART_AT, fields.0, fields.1, fields.2).0)
        }
        5 => {
            let (line, _) = TableLine::decode(bytes.first_chunk()?, &OWNER, PART_AT)?;
            Some(line.encode(&OWNER, PART_AT).0.to_vec())
        }
        6 => Root::decode(bytes.first_chunk()?, &OWNER).map(|root| root.encode(&OWNER).to_vec()),
        _ => Run::decode(bytes, &OWNER).map(|run| run.encode(&OWNER)),
    }
}

/// Puts the checksum on a part that belongs there, where its lengths are within it.
pub fn seal(part: u8, bytes: &mut [u8]) {
    let length = |at: usize, width: usize| {
        let field = bytes.get(at..at + width).unwrap_or_default();
        field.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (at, end) = match part % PARTS {
        0 => return seal_identity(bytes),
        1 => (PART_AT, HEADER_BYTES),
        2 => (PART_AT, arena::GROUP_HEADER_BYTES + length(4, 4)),
        3 => {
            if let Some(bytes) = bytes.first_chunk_mut::<NODE_BYTES>() {
                let sum = checksum_parts(&OWNER.at(PART_AT), &[&bytes[4..8], &bytes[16..]]);
                bytes[..4].copy_from_slice(&sum.to_le_bytes());
            }
            return;
        }
        4 => (PART_AT, object::OBJECT_HEADER_BYTES + length(4, 3)),
        5 => (PART_AT, 64),
        6 => (ROOT_AT, 64),
        _ => (JOURNAL_AT, run::encoded_bytes(length(4, 4))),
    };
    if let Some(bytes) = bytes.get_mut(..end).filter(|bytes| bytes.len() > 4) {
        let sum = checksum(&OWNER.at(at), &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn seal_identity(bytes: &mut [u8]) {
    let Some(bytes) = bytes.first_chunk_mut::<IDENTITY_BYTES>() else {
        return;
    };
    let mut database = [0; 16];
    database.copy_from_slice(&bytes[16..32]);
    let owner = Owner { database: DatabaseId(database), number: FileNumber(0) };
    let sum = checksum(&owner.at(0), &bytes[..IDENTITY_BYTES - 4]);
    bytes[IDENTITY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
}

/// One good part of each kind, its kind first.
pub fn examples() -> Vec<Vec<u8>> {
    let entry =
        Entry { trailer: 77 << 8 | 1, table: FileNumber(5), block_offset: 8192, block_bytes: 4096 };
    let mut node = Node::new(0, 4096);
    for key in [30, 10, 20] {
        node.insert(0, node::Slot { key: key << 56, offset: 512 * key });
    }
    let header = arena::GroupHeader { first: Sequence(7), count: 2, durable: Sequence(6) };
    let chunk = ChunkHeader { owner: 3, first: 7, chunks: 2, ..ChunkHeader::ZERO };
    let table = TableLine { number: FileNumber(5), entries: 40, live: 30, is_entered: true };
    let run = Run { number: 3, lines: [(ROOT_AT, Root::EMPTY.encode(&OWNER))].into() };
    let parts = [
        example_identity().encode(0).to_vec(),
        chunk.encode(&OWNER, PART_AT).to_vec(),
        header.encode(&OWNER, PART_AT, b"\x01\x01\x01a\x01b\x00\x01c"),
        node.encode(&OWNER, PART_AT).0.to_vec(),
        object::encode(&OWNER, PART_AT, 1, &entry, b"warm water").0,
        table.encode(&OWNER, PART_AT).0.to_vec(),
        Root { node: 4096, nodes: 1, ..Root::EMPTY }.encode(&OWNER).to_vec(),
        run.encode(&OWNER),
    ];
    let kinds = parts.into_iter().zip(0u8..);
    kinds.map(|(part, kind)| [&[kind][..], &part].concat()).collect()
}

fn example_identity() -> RegionIdentity {
    RegionIdentity {
        database: OWNER.database,
        instance: thermocline_device::identity::InstanceId([0xa5; 16]),
        region: OWNER.number,
        generation: 1,
        geometry: crate::layout::Geometry {
            bytes: 12288 + 4096 * 7,
            chunk_bytes: 4096,
            journal_bytes: 4096,
        },
        is_clean: false,
        opened: Circumstances { is_synchronous: true, boot: [3; 16], dirty_shutdowns: Some(0) },
    }
}

/// A small region with an arena, a tree of two levels, and a run in its journal.
pub fn example_region() -> Result<Vec<u8>> {
    let identity = example_identity();
    let zeros = vec![0; identity.geometry.bytes as usize];
    let opened = Region::create(Medium::in_memory(&zeros), identity)?;
    let region = &opened.region;
    let arena = region.create_arena(FileNumber(4), Sequence(1), 3000)?;
    let memtable = PersistentMemtable::new(arena);
    for first in [1, 3] {
        let value = Some(&b"water floats"[..]);
        let writes = [
            crate::memtable::Write { key: b"ice", value },
            crate::memtable::Write { key: b"steam", value: None },
        ];
        let group = crate::memtable::EncodedGroup::new(&writes);
        if let Some(claim) = memtable.claim(&group) {
            memtable.write_group(&claim, &group, Sequence(first), Sequence(first - 1));
        }
    }
    let tree = Tree::open(&opened)?;
    let records: Vec<_> = (0..40u64)
        .map(|number| {
            let (trailer, table) = (number << 8 | 1, FileNumber(5));
            let entry = Entry { trailer, table, block_offset: 4096 * number, block_bytes: 4096 };
            (format!("warm water {number:03}").into_bytes(), entry)
        })
        .collect();
    tree.enter((FileNumber(5), 40), &records, true)?;
    let bytes = identity.geometry.bytes as usize;
    Ok(region.medium().bytes_at(0, bytes))
}

/// Two states of that region, an older one and a newer: between them a memtable was begun, and keys
/// of the index were replaced, added and taken out.
pub fn example_states() -> Result<[Vec<u8>; 2]> {
    let medium = Medium::in_memory(&example_region()?);
    let found = RegionIdentity::read(&medium)?;
    let RegionIdentity { database, instance, generation, .. } = found;
    let expected = Expected { database, instance, generation };
    let opened = Region::open(medium, &expected, &found.opened, generation)?;
    let region = &opened.region;
    let bytes = found.geometry.bytes as usize;
    let older = region.medium().bytes_at(0, bytes);
    let memtable =
        PersistentMemtable::new(region.create_arena(FileNumber(7), Sequence(5), 1000)?);
    let writes = [crate::memtable::Write { key: b"fog", value: Some(b"water hangs") }];
    let group = crate::memtable::EncodedGroup::new(&writes);
    if let Some(claim) = memtable.claim(&group) {
        memtable.write_group(&claim, &group, Sequence(5), Sequence(4));
    }
    let tree = Tree::open(&opened)?;
    let record = |number: u64| {
        let (trailer, table) = ((100 + number) << 8 | 1, FileNumber(6));
        let entry = Entry { trailer, table, block_offset: 4096 * number, block_bytes: 4096 };
        (format!("warm water {number:03}").into_bytes(), entry)
    };
    let records: Vec<_> = (0..44).step_by(4).map(record).collect();
    tree.enter((FileNumber(6), records.len() as u64), &records, true)?;
    tree.remove(&[(b"warm water 001".to_vec(), 1 << 8 | 1)])?;
    Ok([older, region.medium().bytes_at(0, bytes)])
}
