//! All of the index, read and checked: at each opening, and when it is asked for.
//!
//! ```text
//!   nodes      checksum, permutation, even version, level, key bytes, order, low, next, once each
//!   objects    checksum, once each; entries name tables of the register
//!   register   checksum, zeros where not in use; `live` is what the entries say
//!   root       counts and sums are those of what was found
//! ```
//! What was found in use is the allocation: nothing else is believed about free room.
//!
//! Threads: one, beside readers; the writer stands still.

use super::root::Root;
use crate::allocation::{Allocation, Unit};
use crate::chunks::{ChunkKind, Extent};
use crate::layout::{CHUNK_HEADER_BYTES, LINE_BYTES, ROOT_AT, damaged};
use crate::node::{self, DEAD, NODE_BYTES, Node, common_prefix, key_bytes};
use crate::object::{self, Object};
use crate::region::Region;
use crate::register::{Register, TableLine};
use crate::run::Line;
use std::collections::BTreeMap;
use thermocline_device::{Error, Result};
use thermocline_foundation::FileNumber;
use thermocline_foundation::coding::is_zero;

/// What a scan found.
#[derive(Debug)]
pub struct Scanned {
    /// The root line.
    pub root: Root,
    /// What is in use.
    pub allocation: Allocation,
    /// The tables.
    pub register: Register,
}

/// Damage of the root line.
pub fn damaged_root(why: &str) -> Error {
    damaged(ROOT_AT, format!("the root of the index: {why}"))
}

struct Scan<'a> {
    region: &'a Region,
    allocation: Allocation,
    /// Counts and sums of what was found.
    found: Root,
    live: BTreeMap<FileNumber, u64>,
    /// For each level the `next` of the node before.
    chain: Vec<Option<u64>>,
}

/// Keys that a node may have.
struct Range {
    /// The object with the lower end; zero for none.
    low_at: u64,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Reads all of the index. `extents` are the chunks of nodes, objects and register.
pub fn scan(region: &Region, extents: &[Extent]) -> Result<Scanned> {
    let line = read_line(region, ROOT_AT);
    let root = Root::decode(&line, region.owner());
    let root = root.ok_or_else(|| damaged_root("it does not match its checksum"))?;
    let mut scan = Scan {
        region,
        allocation: Allocation::of(extents)?,
        found: Root { node: root.node, ..Root::EMPTY },
        live: BTreeMap::new(),
        chain: Vec::new(),
    };
    let register = scan.register(extents)?;
    if root.node != 0 {
        let bytes = scan.bytes(root.node)?;
        let level = usize::from(bytes[5]);
        if bytes[5] == DEAD {
            return Err(damaged(root.node, "the root node is no node of the tree"));
        }
        scan.chain = vec![None; level + 1];
        scan.walk(root.node, level, &Range { low_at: 0, low: Vec::new(), high: None })?;
        if scan.chain.iter().any(|next| *next != Some(0)) {
            return Err(damaged(root.node, "a last node of the index has a neighbour"));
        }
    }
    if scan.found != root {
        return Err(damaged_root("counts or sums are not those of what it reaches"));
    }
    scan.compare_live(&register)?;
    Ok(Scanned { root, allocation: scan.allocation, register })
}

fn read_line(region: &Region, at: u64) -> Line {
    let mut line = [0; LINE_BYTES as usize];
    region.medium().read(at, &mut line);
    line
}

impl Scan<'_> {
    fn register(&mut self, extents: &[Extent]) -> Result<Register> {
        let mut register = Register::default();
        for extent in extents.iter().filter(|it| it.header.kind == ChunkKind::Register) {
            let lines = extent.at + CHUNK_HEADER_BYTES..extent.at + extent.bytes;
            for at in lines.step_by(LINE_BYTES as usize) {
                let line = read_line(self.region, at);
                if is_zero(&line) {
                    continue;
                }
                let decoded = TableLine::decode(&line, self.region.owner(), at);
                let (table, sum) = decoded.ok_or_else(|| {
                    damaged(at, "a line of the register does not match its checksum")
                })?;
                self.allocation.mark(Unit::Line, at)?;
                self.found.tables += 1;
                self.found.register_sum = self.found.register_sum.wrapping_add(u64::from(sum));
                if register.lines.insert(table.number, (at, table)).is_some() {
                    return Err(damaged(at, "the register has a table twice"));
                }
            }
        }
        Ok(register)
    }

    fn compare_live(&self, register: &Register) -> Result<()> {
        for (number, (at, line)) in &register.lines {
            if self.live.get(number).copied().unwrap_or(0) != line.live {
                return Err(damaged(*at, "the register counts other entries than there are"));
            }
        }
        match self.live.keys().find(|number| !register.lines.contains_key(number)) {
            Some(number) => {
                Err(damaged_root(&format!("an entry names table {number}, which is unknown")))
            }
            None => Ok(()),
        }
    }

    fn bytes(&self, at: u64) -> Result<[u8; NODE_BYTES]> {
        let medium = self.region.medium();
        let bytes = medium.holds(at, NODE_BYTES as u64).then(|| Node::try_read(medium, at));
        let bytes = bytes.flatten().ok_or_else(|| damaged(at, "a node is not at rest"))?;
        if node::stored_sum(&bytes) != node::sum(self.region.owner(), at, &bytes) {
            return Err(damaged(at, "a node of the index does not match its checksum"));
        }
        Ok(bytes)
    }

    fn object(&mut self, at: u64) -> Result<Object> {
        let object = object::read(self.region.medium(), self.region.owner(), at)?;
        self.allocation.mark(Unit::Object(object.class), at)?;
        self.found.objects += 1;
        self.found.object_sum = self.found.object_sum.wrapping_add(u64::from(object.sum));
        Ok(object)
    }

    /// The lower end of the child at `at`: its object and the key.
    fn low_of(&self, at: u64) -> Result<(u64, Vec<u8>)> {
        let bytes = self.bytes(at)?;
        let low = Node::decode(&bytes).map_or(0, |node| node.low);
        let key = match low {
            0 => Vec::new(),
            _ => object::read(self.region.medium(), self.region.owner(), low)?.key,
        };
        Ok((low, key))
    }

    fn walk(&mut self, at: u64, level: usize, range: &Range) -> Result<()> {
        let bytes = self.bytes(at)?;
        self.allocation.mark(Unit::Node, at)?;
        let wrong = |why: &str| damaged(at, format!("a node of the index: {why}"));
        let node = Node::decode(&bytes).ok_or_else(|| wrong("its order is none"))?;
        self.found.nodes += 1;
        self.found.node_sum = self.found.node_sum.wrapping_add(u64::from(node::stored_sum(&bytes)));
        if usize::from(node.level) != level || node.low != range.low_at {
            return Err(wrong("it is of another place in the tree"));
        }
        if self.chain[level].is_some_and(|next| next != at) {
            return Err(wrong("its left neighbour names another"));
        }
        self.chain[level] = Some(node.next);
        let common = common_prefix(&range.low, range.high.as_deref());
        if node.prefix > common {
            return Err(wrong("its keys cannot have that prefix"));
        }
        if level == 0 && node.low != 0 {
            self.object(node.low)?;
        }
        let keys = self.keys(&node)?;
        self.compare_keys(&node, &keys, range).map_err(wrong)?;
        if level > 0 {
            for (index, (low_at, low)) in keys.iter().enumerate() {
                let high = keys.get(index + 1).map(|(_, key)| key.clone());
                let high = high.or_else(|| range.high.clone());
                let child = Range { low_at: *low_at, low: low.clone(), high };
                self.walk(node.slot(index).offset, level - 1, &child)?;
            }
        }
        Ok(())
    }

    /// The keys of a node's entries; of children with the object that has them.
    fn keys(&mut self, node: &Node) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut keys = Vec::new();
        for slot in node.slots() {
            if node.level > 0 {
                keys.push(self.low_of(slot.offset)?);
                continue;
            }
            let object = self.object(slot.offset)?;
            if object.entry.table.0 > 0 {
                *self.live.entry(object.entry.table).or_default() += 1;
            }
            keys.push((slot.offset, object.key));
        }
        Ok(keys)
    }

    fn compare_keys(
        &self,
        node: &Node,
        keys: &[(u64, Vec<u8>)],
        range: &Range,
    ) -> Result<(), &'static str> {
        let has_bytes = |(slot, (_, key)): (node::Slot, &(u64, Vec<u8>))| {
            slot.key == key_bytes(key, node.prefix)
        };
        if !node.slots().zip(keys).all(has_bytes) {
            return Err("key bytes are not those of the keys");
        }
        if !keys.is_sorted_by(|a, b| a.1 < b.1) {
            return Err("its keys do not ascend");
        }
        let is_low = keys.first().is_none_or(|(_, key)| *key >= range.low);
        let is_high =
            keys.last().is_none_or(|(_, key)| range.high.as_ref().is_none_or(|high| key < high));
        if !is_low || !is_high {
            return Err("a key lies outside of its range");
        }
        let begins = node.level == 0 || keys.first().is_some_and(|(at, _)| *at == range.low_at);
        if begins { Ok(()) } else { Err("its first child begins elsewhere") }
    }
}
