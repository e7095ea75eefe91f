//! A run in the making: what the tree will be, as copies of the nodes that change.
//!
//! ```text
//!   enter    down to the leaf; full nodes on the way are split, from the highest on; a new object
//!   remove   out of the leaf; a node with few entries joins a neighbour of the same parent
//!   finish   the lines that differ, and the root's
//! ```
//! 1. Nothing that the tree reaches is touched. New objects are stored in free room at once, for
//!    later keys of the run are compared with them; they are flushed with the run.
//! 2. Counts and sums follow each step, so that the root line is right whenever the plan ends.
//! 3. Keys come in ascending order, mostly: the next one is looked for in the leaf of the last one
//!    first. Where they fill a leaf at its end it stays full, and so do nodes above it.
//! 4. A plan that fails is dropped, and what it took is given back ([`Plan::give_up`]).
//!
//! Threads: the only writer of the tree.

use super::root::Root;
use super::{Rest, Unlinked};
use crate::allocation::{Allocation, Unit};
use crate::layout::{ROOT_AT, damaged};
use crate::node::{self, NODE_BYTES, Node, SLOTS, Slot, common_prefix, key_bytes};
use crate::object::{self, Entry, OBJECT_HEADER_BYTES, Object, class_for};
use crate::region::Region;
use crate::register::{Register, TableLine};
use crate::run::Run;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::{FileNumber, Planted, planted};

/// A node with fewer entries looks for a neighbour to join.
const SPARSE: usize = SLOTS / 4;
/// Two nodes join if they have no more together.
const JOINED_MAX: usize = SLOTS * 3 / 4;
/// Nodes that one key may change at most: on each level itself, a new neighbour, a sibling.
const NODES_A_LEVEL: usize = 3;

#[derive(Debug)]
struct Draft {
    node: Node,
    /// The node as it is in the region; none for a new one.
    before: Option<Box<[u8; NODE_BYTES]>>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: u64,
    /// The child that was taken; of a leaf nothing.
    index: usize,
}

/// Where the last key went in.
#[derive(Debug)]
struct Last {
    leaf: u64,
    key: Vec<u8>,
    /// Where the leaf ends; none: nowhere.
    high: Option<Vec<u8>>,
}

/// A change of the register.
#[derive(Clone, Copy, Debug)]
struct LineDraft {
    at: u64,
    line: Option<TableLine>,
}

/// What a run does, ready to be carried out.
#[derive(Debug)]
pub struct Finished {
    /// The lines that change.
    pub run: Run,
    /// New objects, which are stored and not flushed: place and bytes.
    pub objects: Vec<(u64, u64)>,
    /// New nodes.
    pub nodes: Vec<(u64, Box<[u8; NODE_BYTES]>)>,
    /// Nodes that change, the lowest level first, as they will be.
    pub changed: Vec<(u64, Box<[u8; NODE_BYTES]>)>,
    /// The other lines that change.
    pub rest: Rest,
}

/// A run in the making.
#[derive(Debug)]
pub struct Plan<'a> {
    region: &'a Region,
    allocation: &'a mut Allocation,
    register: &'a Register,
    root: Root,
    drafts: BTreeMap<u64, Draft>,
    lines: BTreeMap<FileNumber, LineDraft>,
    objects: Vec<(u64, u64)>,
    taken: Vec<(Unit, u64)>,
    unlinked: Vec<Unlinked>,
    last: Option<Last>,
}

impl<'a> Plan<'a> {
    /// A run that begins with the tree of `root`.
    pub fn new(
        region: &'a Region,
        allocation: &'a mut Allocation,
        register: &'a Register,
        root: Root,
    ) -> Self {
        Self {
            region,
            allocation,
            register,
            root,
            drafts: BTreeMap::new(),
            lines: BTreeMap::new(),
            objects: Vec::new(),
            taken: Vec::new(),
            unlinked: Vec::new(),
            last: None,
        }
    }

    /// One more key changes no more than `lines_max` lines in all.
    pub fn has_room(&self, lines_max: usize) -> bool {
        let levels = match self.root.node {
            0 => 1,
            at => usize::from(self.level(at)) + 2,
        };
        let nodes = self.drafts.len() + levels * NODES_A_LEVEL;
        nodes * (NODE_BYTES / 64) + self.lines.len() + 4 <= lines_max
    }

    /// The plan changes nothing.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty() && self.lines.is_empty()
    }

    fn take(&mut self, unit: Unit, grows: bool) -> Result<(Unit, u64)> {
        let taken = self.allocation.take(unit, self.region.chunks(), grows)?;
        self.taken.push(taken);
        Ok(taken)
    }

    fn node(&self, at: u64) -> Result<Node> {
        match self.drafts.get(&at) {
            Some(draft) => Ok(draft.node.clone()),
            None => self.read(at).map(|(node, _)| node),
        }
    }

    /// The level of a node that is inside.
    fn level(&self, at: u64) -> u8 {
        match self.drafts.get(&at) {
            Some(draft) => draft.node.level,
            None => node::level_of(self.region.medium().load(at)),
        }
    }

    fn read(&self, at: u64) -> Result<(Node, Box<[u8; NODE_BYTES]>)> {
        let medium = self.region.medium();
        let found = (at > 0 && medium.holds(at, NODE_BYTES as u64))
            .then(|| Node::try_read(medium, at))
            .flatten()
            .and_then(|bytes| Some((Node::decode(&bytes)?, Box::new(bytes))));
        found.ok_or_else(|| damaged(at, "a node of the index is not whole"))
    }

    /// The node, to be changed.
    fn draft(&mut self, at: u64) -> Result<&mut Node> {
        if !self.drafts.contains_key(&at) {
            let (node, bytes) = self.read(at)?;
            self.drafts.insert(at, Draft { node, before: Some(bytes) });
        }
        let draft = self.drafts.get_mut(&at).expect("it was put there");
        Ok(&mut draft.node)
    }

    fn new_node(&mut self, node: Node) -> Result<u64> {
        let (_, at) = self.take(Unit::Node, false)?;
        self.drafts.insert(at, Draft { node, before: None });
        self.root.nodes += 1;
        Ok(at)
    }

    fn unlink_node(&mut self, at: u64) -> Result<()> {
        let before = match self.drafts.remove(&at) {
            Some(draft) => draft.before,
            None => Some(self.read(at)?.1),
        };
        self.root.nodes -= 1;
        let was_reachable = before.is_some();
        if let Some(bytes) = before {
            let sum = u64::from(node::stored_sum(&bytes));
            self.root.node_sum = self.root.node_sum.wrapping_sub(sum);
        }
        self.unlinked.push(Unlinked { unit: Unit::Node, at, was_reachable });
        Ok(())
    }

    fn object(&self, at: u64) -> Result<Object> {
        object::read(self.region.medium(), self.region.owner(), at)
    }

    /// An object of a key that is new to the index, which `grows`, or of another.
    fn new_object(&mut self, entry: &Entry, key: &[u8], grows: bool) -> Result<u64> {
        let class = class_for(OBJECT_HEADER_BYTES + key.len()).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "a key of the index has at most 64 KiB; shorten it")
        })?;
        let (unit, at) = self.take(Unit::Object(class), grows)?;
        let Unit::Object(class) = unit else { return Err(damaged(at, "no place for an object")) };
        let (bytes, sum) = object::encode(self.region.owner(), at, class, entry, key);
        self.region.medium().copy(at, &bytes);
        self.objects.push((at, bytes.len() as u64));
        self.root.objects += 1;
        self.root.object_sum = self.root.object_sum.wrapping_add(u64::from(sum));
        Ok(at)
    }

    fn unlink_object(&mut self, at: u64) -> Result<()> {
        let object = self.object(at)?;
        self.root.objects -= 1;
        self.root.object_sum = self.root.object_sum.wrapping_sub(u64::from(object.sum));
        let unit = Unit::Object(object.class);
        self.unlinked.push(Unlinked { unit, at, was_reachable: true });
        Ok(())
    }

    fn low_key(&self, low: u64) -> Result<Vec<u8>> {
        if low == 0 { Ok(Vec::new()) } else { self.object(low).map(|object| object.key) }
    }

    /// The full key of an entry of a node of this level.
    fn slot_key(&self, level: u8, slot: Slot) -> Result<Vec<u8>> {
        match level {
            0 => self.object(slot.offset).map(|object| object.key),
            _ => self.low_key(self.node(slot.offset)?.low),
        }
    }

    fn high_key(&self, node: &Node) -> Result<Option<Vec<u8>>> {
        match node.next {
            0 => Ok(None),
            next => self.low_key(self.node(next)?.low).map(Some),
        }
    }

    fn search(&self, node: &Node, key: &[u8]) -> Result<(usize, bool)> {
        node.search(key_bytes(key, node.prefix), |offset| -> Result<Ordering> {
            let slot = Slot { key: 0, offset };
            Ok(self.slot_key(node.level, slot)?.as_slice().cmp(key))
        })
    }

    /// The way down to the leaf of `key`; the tree has a root.
    fn path(&self, key: &[u8]) -> Result<Vec<Step>> {
        let (mut path, mut at) = (Vec::new(), self.root.node);
        loop {
            let node = self.node(at)?;
            let (index, is_equal) = self.search(&node, key)?;
            if node.level == 0 {
                path.push(Step { at, index });
                return Ok(path);
            }
            if node.len() == 0 || path.len() > usize::from(u8::MAX) {
                return Err(damaged(at, "a node of the index has no children"));
            }
            let index = if is_equal { index } else { index.saturating_sub(1) };
            path.push(Step { at, index });
            at = node.slot(index).offset;
        }
    }

    /// Enters a record by the rule: an entry goes in if the index has none of its key, or one with
    /// a smaller trailer; an equal trailer only changes the place.
    pub fn enter(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        if self.root.node == 0 {
            self.root.node = self.new_node(Node::new(0, 0))?;
        }
        let leaf = self.leaf_with_room(key)?;
        let node = self.node(leaf)?;
        let (index, is_equal) = self.search(&node, key)?;
        if is_equal {
            let old = node.slot(index).offset;
            let found = self.object(old)?.entry;
            let is_newer = found.trailer > entry.trailer && !planted(Planted::OlderEntryWins);
            if is_newer || found == *entry {
                return Ok(());
            }
            let new = self.new_object(entry, key, false)?;
            self.draft(leaf)?.replace(index, new);
            self.unlink_object(old)?;
            self.count_live(found.table, -1)?;
        } else {
            let offset = self.new_object(entry, key, true)?;
            let slot = Slot { key: key_bytes(key, node.prefix), offset };
            self.draft(leaf)?.insert(index, slot);
        }
        self.count_live(entry.table, 1)
    }

    /// The leaf of `key`, which is not full.
    fn leaf_with_room(&mut self, key: &[u8]) -> Result<u64> {
        if let Some(last) = &mut self.last
            && last.key.as_slice() < key
            && last.high.as_deref().is_none_or(|high| key < high)
            && self.drafts.get(&last.leaf).is_some_and(|leaf| leaf.node.len() < SLOTS)
        {
            last.key.clear();
            last.key.extend_from_slice(key);
            return Ok(last.leaf);
        }
        let path = self.path_with_room(key)?;
        let leaf = path[path.len() - 1].at;
        let high = self.high_key(&self.node(leaf)?)?;
        self.last = Some(Last { leaf, key: key.to_vec(), high });
        Ok(leaf)
    }

    /// Entries of a full node that stay in it when it is split on the way of a key: all but one
    /// where the key before went into the same leaf and this one comes behind its end.
    fn cut(&self, path: &[Step], depth: usize) -> usize {
        let leaf = path[path.len() - 1];
        let is_ascending = self.last.as_ref().is_some_and(|last| last.leaf == leaf.at);
        let is_at_end = path[depth].index + usize::from(depth + 1 < path.len()) == SLOTS;
        if is_ascending && is_at_end { SLOTS - 1 } else { SLOTS / 2 }
    }

    /// The way to a leaf that is not full.
    fn path_with_room(&mut self, key: &[u8]) -> Result<Vec<Step>> {
        loop {
            let path = self.path(key)?;
            let mut full = None;
            for depth in (0..path.len()).rev() {
                if self.node(path[depth].at)?.len() < SLOTS {
                    break;
                }
                full = Some(depth);
            }
            match full {
                None => return Ok(path),
                Some(0) => {
                    let old = self.node(path[0].at)?;
                    let mut root = Node::new(old.level + 1, old.low);
                    root.insert(0, Slot { key: 0, offset: path[0].at });
                    self.root.node = self.new_node(root)?;
                    let parent = Step { at: self.root.node, index: 0 };
                    self.split(parent, path[0].at, self.cut(&path, 0))?;
                }
                Some(depth) => {
                    self.split(path[depth - 1], path[depth].at, self.cut(&path, depth))?;
                }
            }
        }
    }

    /// Moves the entries of a full node from that at `cut` on to a new neighbour; the parent has
    /// room.
    fn split(&mut self, parent: Step, at: u64, cut: usize) -> Result<()> {
        let node = self.node(at)?;
        let slots: Vec<Slot> = node.slots().collect();
        let (left, right) = slots.split_at(cut);
        let right_key = self.slot_key(node.level, right[0])?;
        let (low, separator) = match node.level {
            0 => {
                let left_key = self.slot_key(0, left[left.len() - 1])?;
                let equal = usize::from(common_prefix(&left_key, Some(&right_key)));
                let separator = right_key[..equal + 1].to_vec();
                (self.new_object(&Entry::default(), &separator, false)?, separator)
            }
            _ => (self.node(right[0].offset)?.low, right_key),
        };
        let high = self.high_key(&node)?;
        let mut new = Node::new(node.level, low);
        new.next = node.next;
        new = self.keyed(&new, right, common_prefix(&separator, high.as_deref()))?;
        let left_prefix = common_prefix(&self.low_key(node.low)?, Some(&separator));
        let mut old = self.keyed(&node, left, left_prefix)?;
        let new_at = self.new_node(new)?;
        old.next = new_at;
        *self.draft(at)? = old;
        let parent_node = self.draft(parent.at)?;
        let key = key_bytes(&separator, parent_node.prefix);
        parent_node.insert(parent.index + 1, Slot { key, offset: new_at });
        Ok(())
    }

    /// `node` with these entries, their key bytes behind another prefix.
    fn keyed(&self, node: &Node, slots: &[Slot], prefix: u16) -> Result<Node> {
        let keyed: Result<Vec<Slot>> = slots
            .iter()
            .map(|slot| {
                let key = key_bytes(&self.slot_key(node.level, *slot)?, prefix);
                Ok(Slot { key, offset: slot.offset })
            })
            .collect();
        Ok(node.with_slots(prefix, keyed?))
    }

    /// The way to the entry of `key`, and its object, if it has this trailer.
    fn find(&self, key: &[u8], trailer: u64) -> Result<Option<(Vec<Step>, u64, Object)>> {
        if self.root.node == 0 {
            return Ok(None);
        }
        let path = self.path(key)?;
        let Step { at, index } = path[path.len() - 1];
        let Some(slot) = self.node(at)?.slots().nth(index) else { return Ok(None) };
        let object = self.object(slot.offset)?;
        let is_it = object.key == key && object.entry.trailer == trailer;
        Ok(is_it.then_some((path, slot.offset, object)))
    }

    /// There is an entry of `key` with this trailer.
    pub fn has(&self, key: &[u8], trailer: u64) -> Result<bool> {
        self.find(key, trailer).map(|found| found.is_some())
    }

    /// Takes the entry of `key` out if it has this trailer.
    pub fn remove(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        let Some((path, old, found)) = self.find(key, trailer)? else { return Ok(()) };
        let leaf = path[path.len() - 1];
        self.draft(leaf.at)?.remove(leaf.index);
        self.unlink_object(old)?;
        self.count_live(found.entry.table, -1)?;
        self.last = None;
        self.join(&path)
    }

    /// Joins sparse nodes on the way with neighbours, the lowest first, and drops roots with one
    /// child.
    fn join(&mut self, path: &[Step]) -> Result<()> {
        for pair in path.windows(2).rev() {
            let (parent, child) = (self.node(pair[0].at)?, self.node(pair[1].at)?);
            let index = pair[0].index;
            let neighbour = |index: usize| parent.slot(index).offset;
            let fits = |len: usize| child.len() + len <= JOINED_MAX;
            if child.len() >= SPARSE {
                break;
            }
            if index + 1 < parent.len() && fits(self.node(neighbour(index + 1))?.len()) {
                self.absorb(pair[0].at, index + 1)?;
            } else if index > 0 && fits(self.node(neighbour(index - 1))?.len()) {
                self.absorb(pair[0].at, index)?;
            } else {
                break;
            }
        }
        loop {
            let root = self.node(self.root.node)?;
            if root.level == 0 || root.len() > 1 {
                return Ok(());
            }
            let old = self.root.node;
            self.root.node = root.slot(0).offset;
            self.unlink_node(old)?;
        }
    }

    /// Moves all entries of the parent's child at `index` to the child before it.
    fn absorb(&mut self, parent_at: u64, index: usize) -> Result<()> {
        let parent = self.node(parent_at)?;
        let (left_at, right_at) = (parent.slot(index - 1).offset, parent.slot(index).offset);
        let (left, right) = (self.node(left_at)?, self.node(right_at)?);
        let slots: Vec<Slot> = left.slots().chain(right.slots()).collect();
        let low = self.low_key(left.low)?;
        let prefix = common_prefix(&low, self.high_key(&right)?.as_deref());
        let mut joined = self.keyed(&left, &slots, prefix)?;
        joined.next = right.next;
        *self.draft(left_at)? = joined;
        self.draft(parent_at)?.remove(index);
        self.unlink_node(right_at)?;
        // The separator of an inner node is that of a leaf below, which stays.
        if right.level == 0 { self.unlink_object(right.low) } else { Ok(()) }
    }

    fn line(&self, table: FileNumber) -> Option<LineDraft> {
        let known = || self.register.lines.get(&table);
        let draft = self.lines.get(&table).copied();
        draft.or_else(|| known().map(|(at, line)| LineDraft { at: *at, line: Some(*line) }))
    }

    fn count_live(&mut self, table: FileNumber, change: i64) -> Result<()> {
        // A tombstone that no table holds.
        if table.0 == 0 {
            return Ok(());
        }
        let Some(LineDraft { at, line: Some(line) }) = self.line(table) else {
            return Err(damaged(0, format!("the register lacks table {table}")));
        };
        let live = line.live.checked_add_signed(change);
        let live = live.ok_or_else(|| damaged(at, "a table has fewer entries than none"))?;
        self.lines.insert(table, LineDraft { at, line: Some(TableLine { live, ..line }) });
        Ok(())
    }

    /// Gives a table a line in the register, if it has none.
    pub fn register(&mut self, table: FileNumber, entries: u64) -> Result<()> {
        if self.line(table).is_none_or(|draft| draft.line.is_none()) {
            let (_, at) = self.take(Unit::Line, false)?;
            let line = TableLine { number: table, entries, live: 0, is_entered: false };
            self.lines.insert(table, LineDraft { at, line: Some(line) });
        }
        Ok(())
    }

    /// Says that all records of a table went through the index.
    pub fn mark_entered(&mut self, table: FileNumber) {
        if let Some(LineDraft { at, line: Some(line) }) = self.line(table) {
            let line = TableLine { is_entered: true, ..line };
            self.lines.insert(table, LineDraft { at, line: Some(line) });
        }
    }

    /// Takes a table out of the register. No entry may name it.
    pub fn forget(&mut self, table: FileNumber) -> Result<()> {
        let Some(LineDraft { at, line: Some(line) }) = self.line(table) else {
            return Ok(());
        };
        if line.live > 0 {
            let text = format!("table {table} cannot go: {} entries name it", line.live);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.lines.insert(table, LineDraft { at, line: None });
        Ok(())
    }

    /// Gives back what the plan took.
    pub fn give_up(self) {
        for (unit, at) in self.taken {
            self.allocation.give(unit, at, self.region.chunks());
        }
    }

    /// The run of this number.
    pub fn finish(mut self, number: u64) -> Finished {
        let mut run = Run { number, ..Run::default() };
        let (mut nodes, mut changed) = (Vec::new(), Vec::new());
        let owner = *self.region.owner();
        for (at, mut draft) in std::mem::take(&mut self.drafts) {
            let (bytes, sum) = match &draft.before {
                None => draft.node.encode(&owner, at),
                Some(before) => {
                    draft.node.version = draft.node.version.wrapping_add(2);
                    let old = u64::from(node::stored_sum(before));
                    self.root.node_sum = self.root.node_sum.wrapping_sub(old);
                    draft.node.encode(&owner, at)
                }
            };
            self.root.node_sum = self.root.node_sum.wrapping_add(u64::from(sum));
            let bytes = Box::new(bytes);
            match draft.before {
                None => nodes.push((at, bytes)),
                Some(before) => {
                    add_lines(&mut run, at, &before[..], &bytes[..]);
                    changed.push((draft.node.level, at, bytes));
                }
            }
        }
        changed.sort_by_key(|(level, at, _)| (*level, *at));
        let register = self.finish_lines(&mut run);
        run.lines.insert(ROOT_AT, self.root.encode(&owner));
        let changed = changed.into_iter().map(|(_, at, bytes)| (at, bytes)).collect();
        let rest = Rest { root: self.root, register, unlinked: self.unlinked };
        Finished { run, objects: self.objects, nodes, changed, rest }
    }

    /// Adds the lines of the register to the run; what the register is then, for the tables that
    /// change.
    fn finish_lines(&mut self, run: &mut Run) -> Vec<(FileNumber, u64, Option<TableLine>)> {
        let owner = self.region.owner();
        let sum = |line: &TableLine, at| u64::from(line.encode(owner, at).1);
        let mut changed = Vec::new();
        for (table, draft) in &self.lines {
            if let Some((at, old)) = self.register.lines.get(table) {
                self.root.register_sum = self.root.register_sum.wrapping_sub(sum(old, *at));
                self.root.tables -= 1;
            }
            let mut bytes = [0; 64];
            if let Some(line) = &draft.line {
                self.root.register_sum = self.root.register_sum.wrapping_add(sum(line, draft.at));
                self.root.tables += 1;
                bytes = line.encode(owner, draft.at).0;
            } else {
                let at = draft.at;
                self.unlinked.push(Unlinked { unit: Unit::Line, at, was_reachable: true });
            }
            run.lines.insert(draft.at, bytes);
            changed.push((*table, draft.at, draft.line));
        }
        changed
    }
}

fn add_lines(run: &mut Run, at: u64, before: &[u8], after: &[u8]) {
    let (before, _) = before.as_chunks::<64>();
    let (after, _) = after.as_chunks::<64>();
    for (index, (old, new)) in before.iter().zip(after).enumerate() {
        if old != new {
            run.lines.insert(at + 64 * index as u64, *new);
        }
    }
}
