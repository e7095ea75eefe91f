//! The index against a map, under crashes, and with planted bugs.

use super::support::{all_images, create, every_image, geometry, open};
use crate::arena::may_be_group;
use crate::chunks::{ChunkKind, runs};
use crate::layout::{CHUNK_HEADER_BYTES, Geometry};
use crate::node::{NODE_BYTES, VERSION_AT};
use crate::object::{Entry, KEY_BYTES_MAX};
use crate::region::OpenedRegion;
use crate::tree::{LeafEntries, Tree};
use std::collections::BTreeMap;
use thermocline_device::{ErrorKind, Result};
use thermocline_foundation::FileNumber;
use thermocline_foundation::random::Random;

pub type Map = BTreeMap<Vec<u8>, Entry>;

pub fn entry(sequence: u64, table: u64) -> Entry {
    let (trailer, table) = (sequence << 8 | 1, FileNumber(table));
    Entry { trailer, table, block_offset: sequence * 4096, block_bytes: 4096 }
}

/// What a test knows of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub map: Map,
}

impl Model {
    /// The rule, as `slm-db`'s index has it.
    pub fn enter(&mut self, records: &[(Vec<u8>, Entry)]) {
        for (key, entry) in records {
            let newer = self.map.get(key).is_some_and(|found| found.trailer > entry.trailer);
            if !newer {
                self.map.insert(key.clone(), *entry);
            }
        }
    }

    fn remove(&mut self, records: &[(Vec<u8>, u64)]) {
        for (key, _) in records {
            self.map.remove(key);
        }
    }

    fn live(&self, table: FileNumber) -> u64 {
        self.map.values().filter(|entry| entry.table == table).count() as u64
    }

    /// What is wrong with `tree`.
    pub fn fault(&self, tree: &Tree) -> Option<String> {
        let found: Result<Vec<_>> = tree.cursor(b"").collect();
        let Ok(found) = found else {
            return Some(format!("{found:?}"));
        };
        let expected: Vec<_> = self.map.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
        if found != expected {
            return Some(format!("{} entries, not those {}", found.len(), expected.len()));
        }
        let mut known = self.map.iter();
        if known.any(|(key, entry)| tree.get(key).ok().flatten() != Some(*entry)) {
            return Some("a look-up misses an entry".to_owned());
        }
        if let Some(fault) = self.fault_backwards(tree) {
            return Some(fault);
        }
        for line in tree.tables() {
            if self.live(line.number) != line.live {
                return Some(format!("{line:?}, but {} are live", self.live(line.number)));
            }
        }
        tree.check().err().map(|error| error.to_string())
    }
}

impl Model {
    fn fault_backwards(&self, tree: &Tree) -> Option<String> {
        let found = backwards(tree);
        if !found.iter().eq(self.map.iter().rev().map(|(key, _)| key)) {
            return Some(format!("{} keys backwards, not those {}", found.len(), self.map.len()));
        }
        let mut before = None;
        for key in self.map.keys() {
            // Leaves may be empty in front of it.
            let mut found = tree.descend(Some(key)).ok()?;
            while found.entries.is_empty()
                && let Some(rest) = found.rest.take()
            {
                found = tree.descend(Some(&rest)).ok()?;
            }
            if found.entries.first().map(|(key, _)| key) != before {
                return Some(format!("{found:?} come before {key:?}"));
            }
            before = Some(key);
        }
        None
    }
}

/// All keys, the last one first.
pub fn backwards(tree: &Tree) -> Vec<Vec<u8>> {
    let (mut keys, mut found) = (Vec::new(), tree.descend(None).unwrap());
    loop {
        keys.extend(found.entries.into_iter().map(|(key, _)| key));
        let Some(rest) = found.rest else { return keys };
        found = tree.descend(Some(&rest)).unwrap();
    }
}

pub fn tree_of(opened: &OpenedRegion) -> Result<Tree> {
    Tree::open(opened)
}

/// Keys of many lengths, with long common prefixes, and prefixes of each other.
pub fn key(random: &mut Random, keys: u64) -> Vec<u8> {
    let number = random.below(keys);
    match number % 4 {
        0 => format!("user{:016}", number).into_bytes(),
        1 => format!("user{:016}/comment", number / 4 * 4).into_bytes(),
        2 => [&b"k"[..], &vec![0; (number % 29) as usize]].concat(),
        _ => (number * 0x9e37).to_be_bytes()[4..].to_vec(),
    }
}

/// Distinct keys in order, as records of a table.
pub fn records(random: &mut Random, keys: u64, count: u64, table: u64) -> Vec<(Vec<u8>, Entry)> {
    let drawn: Map = (0..count)
        .map(|_| (key(random, keys), entry(table * 1000 + random.below(900), table)))
        .collect();
    drawn.into_iter().collect()
}

#[test]
fn an_index_has_what_a_map_has_also_after_reopening() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let region = create(geometry(120)).region;
        let mut tree = tree_of(&open(&region.medium().snapshot()).unwrap()).unwrap();
        let mut model = Model::default();
        for table in 1..=12 {
            let count = 1 + random.below(150);
            let records = records(&mut random, 900, count, table);
            tree.enter((FileNumber(table), records.len() as u64), &records, true).unwrap();
            model.enter(&records);
            if random.below(2) == 0 {
                let gone: Vec<_> = model
                    .map
                    .iter()
                    .filter(|_| random.below(3) == 0)
                    .map(|(key, entry)| (key.clone(), entry.trailer))
                    .collect();
                tree.remove(&gone).unwrap();
                model.remove(&gone);
            }
            assert_eq!(model.fault(&tree), None, "seed {seed}, table {table}");
            if random.below(3) == 0 {
                let image = tree.region().medium().snapshot();
                tree = tree_of(&open(&image).unwrap()).unwrap();
                assert_eq!(model.fault(&tree), None, "seed {seed}, reopened");
            }
        }
        let all: Vec<_> =
            model.map.iter().map(|(key, entry)| (key.clone(), entry.trailer)).collect();
        tree.remove(&all).unwrap();
        assert_eq!(tree.cursor(b"").count(), 0);
        assert_eq!((tree.counts().nodes, tree.counts().objects), (1, 0), "nothing is left over");
        for line in tree.tables() {
            tree.forget(line.number).unwrap();
        }
        assert_eq!(tree.tables(), []);
        tree.check().unwrap();
    }
}

/// They differ in their last two bytes, and short ones are prefixes of all others.
#[test]
fn the_longest_keys_and_the_empty_one_are_found_either_way() {
    let opened = create(Geometry::of(32 << 20));
    let prefix = vec![b'p'; KEY_BYTES_MAX - 2];
    let longest = |number: u16| [&prefix[..], &(number * 257 % 1000).to_be_bytes()].concat();
    let short = [0, 1, prefix.len() - 1, prefix.len(), prefix.len() + 1];
    let short = short.map(|bytes| vec![b'p'; bytes]);
    let mut random = Random::new(7);
    let keys = (0..60).map(longest).chain(short);
    let mut keys: Vec<_> = keys.map(|key| (random.below(1000), key)).collect();
    keys.sort();
    let tree = tree_of(&opened).unwrap();
    let mut model = Model::default();
    for (table, keys) in (1..).zip(keys.chunks(20)) {
        let records: Map = keys.iter().map(|(_, key)| (key.clone(), entry(table, table))).collect();
        let records: Vec<_> = records.into_iter().collect();
        tree.enter((FileNumber(table), records.len() as u64), &records, true).unwrap();
        model.enter(&records);
    }
    assert_eq!((model.map.len(), model.fault(&tree)), (65, None));
    let opened = open(&opened.region.medium().snapshot()).unwrap();
    let tree = tree_of(&opened).unwrap();
    let half: Vec<_> = keys.iter().step_by(2).map(|(_, key)| key.clone()).collect();
    let mut gone: Vec<_> = half.iter().map(|key| (key.clone(), model.map[key].trailer)).collect();
    gone.sort();
    tree.remove(&gone).unwrap();
    model.remove(&gone);
    assert_eq!(model.fault(&tree), None);
    let gone: Vec<_> = model.map.iter().map(|(key, entry)| (key.clone(), entry.trailer)).collect();
    tree.remove(&gone).unwrap();
    assert_eq!((tree.counts().nodes, tree.counts().objects), (1, 0), "nothing is left over");
}

#[test]
fn an_older_record_does_not_replace_a_newer_one_and_entering_again_changes_nothing() {
    assert_eq!(older_fault(), None);
}

fn older_fault() -> Option<String> {
    let opened = create(geometry(20));
    let tree = tree_of(&opened).unwrap();
    let one = |table, sequence: u64| vec![(b"key".to_vec(), entry(sequence, table))];
    let mut model = Model::default();
    for (table, sequence) in [(1, 5), (2, 9), (3, 7), (2, 9), (4, 9)] {
        let records = one(table, sequence);
        tree.enter((FileNumber(table), 1), &records, true).unwrap();
        model.enter(&records);
        let fault = model.fault(&tree);
        if fault.is_some() {
            return fault;
        }
    }
    let found = tree.get(b"key").unwrap().unwrap();
    (found.table != FileNumber(4)).then(|| "an equal trailer changes the place".to_owned())
}

#[test]
fn a_table_that_entries_name_cannot_be_forgotten() {
    let opened = create(geometry(20));
    let tree = tree_of(&opened).unwrap();
    tree.enter((FileNumber(1), 1), &[(b"key".to_vec(), entry(1, 1))], true).unwrap();
    assert_eq!(tree.forget(FileNumber(1)).unwrap_err().kind(), ErrorKind::Invalid);
    tree.enter((FileNumber(2), 1), &[(b"key".to_vec(), entry(2, 2))], false).unwrap();
    tree.forget(FileNumber(1)).unwrap();
    let lines = tree.tables();
    assert_eq!((lines.len(), lines[0].live, lines[0].is_entered), (1, 1, false));
}

#[test]
fn a_full_region_refuses_a_run_and_keeps_what_it_has() {
    let opened = create(geometry(6));
    let tree = tree_of(&opened).unwrap();
    let (mut random, mut model) = (Random::new(3), Model::default());
    let error = (1..200).find_map(|table| {
        let records = records(&mut random, 100_000, 20, table);
        let entered = tree.enter((FileNumber(table), 20), &records, true);
        match entered {
            Ok(()) => {
                model.enter(&records);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(error.unwrap().kind(), ErrorKind::OutOfSpace);
    assert_eq!(model.fault(&tree), None);
    let gone: Vec<_> = model.map.iter().map(|(key, entry)| (key.clone(), entry.trailer)).collect();
    tree.remove(&gone).unwrap();
    let again = records(&mut random, 1000, 20, 900);
    tree.enter((FileNumber(900), 20), &again, true).unwrap();
}

#[test]
fn entering_ascending_keys_costs_few_lines_an_entry() {
    let opened = create(geometry(200));
    let tree = tree_of(&opened).unwrap();
    let records: Vec<_> = (0..2000)
        .map(|number| (format!("user{number:012}").into_bytes(), entry(number, 1)))
        .collect();
    let before = opened.region.medium().counts();
    tree.enter((FileNumber(1), 2000), &records, true).unwrap();
    let after = opened.region.medium().counts();
    let lines = (after.lines - before.lines) as f64 / 2000.0;
    assert!(lines < 6.0, "{lines} lines an entry");
    assert!(after.fences - before.fences < 2000 / 64 * 4 + 500, "four fences a run");
    let nodes = tree.counts().nodes;
    assert!(nodes < 100, "{nodes} nodes: keys in order fill them");
    tree.check().unwrap();
}

#[test]
fn several_tables_go_in_by_one_pass_all_of_a_run_or_nothing() {
    let mut random = Random::new(5);
    let opened = create(geometry(24));
    let tree = tree_of(&opened).unwrap();
    let first = records(&mut random, 300, 30, 1);
    let mut both: Map = first.iter().cloned().collect();
    both.extend(records(&mut random, 300, 30, 2));
    let both: Vec<_> = both.into_iter().collect();
    let tables = [(FileNumber(1), 30), (FileNumber(2), 30)];
    let unknown = tree.enter_all(&tables[..1], &both, true).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid);
    tree.enter_all(&tables, &both, true).unwrap();
    opened.region.medium().shadow().mark(1);
    let mut model = Model::default();
    model.enter(&both);
    assert_eq!(model.fault(&tree), None);
    let mut fault = None;
    every_image(&opened.region, 256, |acknowledged, image| {
        let tree = tree_of(&open(image).unwrap()).unwrap();
        let is_in = tree.tables().iter().filter(|line| line.is_entered).count();
        let found = match is_in {
            0 if acknowledged == 0 => Model::default().fault(&tree),
            2 => model.fault(&tree),
            _ => Some(format!("{is_in} tables are entered")),
        };
        fault = fault.take().or(found);
    });
    assert_eq!(fault, None);
}

/// Tables are entered, some entries go; each call is marked. The models after each.
fn script(opened: &OpenedRegion, calls: u64, keys: u64, seed: u64) -> Vec<Model> {
    let tree = tree_of(opened).unwrap();
    let shadow = opened.region.medium().shadow();
    let mut random = Random::new(seed);
    let (mut model, mut models) = (Model::default(), vec![Model::default()]);
    for table in 1..=calls {
        if random.below(4) == 0 {
            let gone: Vec<_> = model
                .map
                .iter()
                .filter(|_| random.below(2) == 0)
                .take(60)
                .map(|(key, entry)| (key.clone(), entry.trailer))
                .collect();
            tree.remove(&gone).unwrap();
            model.remove(&gone);
        } else {
            let count = 1 + random.below(keys);
            let records = records(&mut random, keys * 8, count, table);
            tree.enter((FileNumber(table), records.len() as u64), &records, true).unwrap();
            model.enter(&records);
        }
        models.push(model.clone());
        shadow.mark(table);
    }
    models
}

/// What is wrong with an image: the index is neither as before nor as after the call under way.
fn fault(models: &[Model], acknowledged: u64, image: &[u64]) -> Option<String> {
    let opened = match open(image) {
        Ok(opened) => opened,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let tree = match tree_of(&opened) {
        Ok(tree) => tree,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let done = acknowledged as usize;
    let before = models[done].fault(&tree)?;
    let Some(after) = models.get(done + 1) else {
        return Some(before);
    };
    after.fault(&tree).map(|after| format!("neither as before ({before}) nor as after ({after})"))
}

/// The first fault of all crashes of a script, whose calls are of one run each.
pub fn first_fault(calls: u64, keys: u64, images: u64, seed: u64) -> Option<String> {
    let opened = create(geometry(24));
    let models = script(&opened, calls, keys, seed);
    let mut first = None;
    every_image(&opened.region, images, |acknowledged, image| {
        if first.is_none() {
            first = fault(&models, acknowledged, image);
        }
    });
    first
}

#[test]
fn at_every_crash_of_a_short_script_a_run_happened_or_it_did_not() {
    for seed in 0..3 {
        assert_eq!(first_fault(4, 3, 256, seed), None, "seed {seed}");
    }
}

#[test]
fn every_image_of_few_lines_is_as_before_a_run_or_as_after_it() {
    for seed in 0..3 {
        let opened = create(geometry(24));
        let models = script(&opened, 3, 2, seed);
        let mut first = None;
        let whole = all_images(&opened.region, 256, |acknowledged, image| {
            if first.is_none() {
                first = fault(&models, acknowledged, image);
            }
        });
        assert_eq!(first, None, "seed {seed}");
        assert!(whole > 12, "of {whole} crashes all images were made");
    }
}

#[test]
fn at_every_crash_of_a_long_script_a_run_happened_or_it_did_not() {
    for seed in 20..23 {
        assert_eq!(first_fault(14, 60, 10, seed), None, "seed {seed}");
    }
}

#[test]
fn a_crash_while_a_crash_is_recovered_changes_nothing() {
    let opened = create(geometry(24));
    let models = script(&opened, 5, 40, 7);
    let mut images = Vec::new();
    every_image(&opened.region, 4, |acknowledged, image| {
        images.push((acknowledged, image.to_vec()));
    });
    for (acknowledged, image) in images.into_iter().step_by(7) {
        let again = open(&image).unwrap();
        let tree = tree_of(&again).unwrap();
        drop(tree);
        every_image(&again.region, 4, |_, image| {
            let third = open(image).unwrap();
            assert_eq!(fault(&models, acknowledged, image), None);
            every_image(&third.region, 2, |_, image| {
                assert_eq!(fault(&models, acknowledged, image), None);
            });
        });
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_the_index_are_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    let crashes = || (0..6).find_map(|seed| first_fault(6, 30, 16, seed));
    let bugs: [(Planted, &dyn Fn() -> Option<String>); 5] = [
        (Planted::NodeBeforeJournal, &crashes),
        (Planted::RunCountedEarly, &crashes),
        (Planted::ObjectNotFlushed, &crashes),
        (Planted::LiveCountOutsideRun, &crashes),
        (Planted::OlderEntryWins, &older_fault),
    ];
    for (bug, find) in bugs {
        let (found, hits) = with(bug, || (find(), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}

#[test]
fn a_damaged_index_is_renewed_and_its_room_is_free_again() {
    let opened = create(geometry(60));
    let free = opened.region.chunks().free_chunks();
    let tree = tree_of(&opened).unwrap();
    let mut random = Random::new(9);
    let entered = records(&mut random, 500, 300, 3);
    tree.enter((FileNumber(3), 300), &entered, true).unwrap();
    assert!(tree.region().chunks().free_chunks() < free);
    let medium = tree.region().medium();
    let root = crate::layout::ROOT_AT;
    medium.store(root + 8, medium.load(root + 8) ^ 64);
    let image = medium.snapshot();
    assert_eq!(tree_of(&open(&image).unwrap()).unwrap_err().kind(), ErrorKind::Corrupt);
    let renewed = Tree::renew(&open(&image).unwrap()).unwrap();
    assert_eq!((renewed.cursor(b"").count(), renewed.tables()), (0, Vec::new()));
    assert_eq!(renewed.region().chunks().free_chunks(), free);
    renewed.enter((FileNumber(3), 300), &entered, true).unwrap();
    let mut model = Model::default();
    model.enter(&entered);
    assert_eq!(model.fault(&renewed), None);
    let again = tree_of(&open(&renewed.region().medium().snapshot()).unwrap()).unwrap();
    assert_eq!(model.fault(&again), None);
}

/// Where nodes of the index are, or may be.
fn node_places(tree: &Tree) -> Vec<u64> {
    let (region, bytes) = (tree.region(), NODE_BYTES as u64);
    let runs = runs(region.medium(), region.owner(), &region.identity().geometry).unwrap();
    let of_nodes = runs.iter().filter(|run| run.header.kind == ChunkKind::Nodes);
    of_nodes.flat_map(|run| (1..run.bytes / bytes).map(|index| run.at + index * bytes)).collect()
}

/// The errors of look-ups, walks and changes that come to the node at `at`.
fn errors_at(tree: &Tree, at: u64, entered: &[(Vec<u8>, Entry)]) -> usize {
    // Of another trailer, so that nothing changes.
    let released =
        |(key, entry): &(Vec<u8>, Entry)| tree.release(&[(key.clone(), entry.trailer + 1)]);
    let gets = entered.iter().filter_map(|(key, _)| tree.get(key).err());
    let walks = [tree.ascend(b"").err(), tree.descend(None).err()].into_iter().flatten();
    let walks = walks.chain(tree.cursor(b"").filter_map(Result::err));
    let changes = entered.iter().take(1).filter_map(|record| released(record).err());
    let errors: Vec<_> = gets.chain(walks).chain(changes).collect();
    for error in &errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("index"), "{error}");
    }
    errors.iter().filter(|error| error.to_string().contains(&format!("offset {at}:"))).count()
}

/// A version is no durable state, and outside of the checksum of its node: nothing but this tells.
#[test]
fn a_version_that_rots_to_an_odd_one_is_damage_and_keeps_no_reader_waiting() {
    let tree = tree_of(&create(geometry(60))).unwrap();
    let entered = records(&mut Random::new(4), 900, 300, 3);
    tree.enter((FileNumber(3), 300), &entered, true).unwrap();
    let (medium, mut found) = (tree.region().medium(), 0);
    for at in node_places(&tree) {
        let version = medium.load(at + VERSION_AT);
        medium.store(at + VERSION_AT, version | 1);
        let errors = errors_at(&tree, at, &entered);
        // What no reader comes to, an opening and a check do not either.
        let opened = open(&medium.snapshot()).and_then(|opened| tree_of(&opened));
        assert_eq!((tree.check().is_err(), opened.is_err()), (errors > 0, errors > 0), "{at}");
        found += usize::from(errors > 0);
        medium.store(at + VERSION_AT, version);
    }
    assert_eq!(found as u64, tree.counts().nodes);
    let mut model = Model::default();
    model.enter(&entered);
    assert_eq!(model.fault(&tree), None);
}

#[test]
fn a_node_that_rots_to_a_dead_one_keeps_no_reader_waiting() {
    let tree = tree_of(&create(geometry(60))).unwrap();
    let entered = records(&mut Random::new(4), 900, 300, 3);
    tree.enter((FileNumber(3), 300), &entered, true).unwrap();
    let medium = tree.region().medium();
    let mut found = 0;
    for at in node_places(&tree) {
        let first = medium.load(at);
        medium.store(at, first | 0xff << 40);
        let error = entered.iter().find_map(|(key, _)| tree.get(key).err());
        if let Some(error) = &error {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("dead"), "{error}");
        }
        assert_eq!(tree.check().is_err(), error.is_some(), "{at}");
        found += u64::from(error.is_some());
        medium.store(at, first);
    }
    assert_eq!(found, tree.counts().nodes);
}

/// The links between leaves are rotten: a walk reports it or comes to an end.
#[test]
fn a_leaf_that_leads_back_keeps_no_walk_going_for_ever() {
    const NEXT_AT: u64 = 16;
    const LOW_AT: u64 = 24;
    let tree = tree_of(&create(geometry(60))).unwrap();
    let entered = records(&mut Random::new(4), 900, 45, 3);
    tree.enter((FileNumber(3), 45), &entered, true).unwrap();
    let (medium, mut forth_errors, mut back_errors) = (tree.region().medium(), 0, 0);
    let mut nodes = node_places(&tree);
    nodes.retain(|at| medium.load(*at) != 0);
    for (at, other) in nodes.iter().flat_map(|at| nodes.iter().map(move |other| (*at, *other))) {
        for (link, value) in [(NEXT_AT, other), (LOW_AT, medium.load(other + LOW_AT))] {
            let before = medium.load(at + link);
            medium.store(at + link, value);
            let forth: Result<Vec<_>> = tree.cursor(b"").take(2 * entered.len()).collect();
            let is_endless = forth.as_ref().is_ok_and(|found| found.len() > entered.len());
            assert!(!is_endless, "a walk from {at} goes on to {other}");
            forth_errors += usize::from(forth.is_err());
            let (mut found, mut leaves) = (tree.descend(None), 1);
            while let Ok(LeafEntries { rest: Some(rest), .. }) = &found {
                found = tree.descend(Some(rest));
                leaves += 1;
                assert!(leaves <= nodes.len(), "a walk back from {at} goes on to {other}");
            }
            back_errors += usize::from(found.is_err());
            medium.store(at + link, before);
        }
    }
    assert!(forth_errors > 0 && back_errors > 0, "{forth_errors} and {back_errors} are refused");
}

/// Objects that look like a memtable's first group: nothing but their checksums tells.
#[test]
fn a_chunk_of_the_index_without_its_header_is_not_taken_for_a_memtable() {
    let opened = create(geometry(12));
    let tree = tree_of(&opened).unwrap();
    let entry = |number: u64| {
        let (trailer, table) = ((1000 + number) << 8 | 1, FileNumber(1));
        Entry { trailer, table, block_offset: 0, block_bytes: 4096 }
    };
    let record = |number: u64| ((number << 8).to_be_bytes().to_vec(), entry(number));
    let records: Vec<_> = (1..40).map(record).collect();
    tree.enter((FileNumber(1), 39), &records, true).unwrap();
    let good = opened.region.medium().snapshot();
    let (owner, geometry) = (opened.region.owner(), opened.region.identity().geometry);
    let (mut kinds, mut alike) = (Vec::new(), 0);
    for run in runs(opened.region.medium(), owner, &geometry).unwrap() {
        let first = (run.at / 8) as usize;
        let mut image = good.clone();
        image[first..first + 16].fill(0);
        let lost = open(&image).unwrap();
        alike += u32::from(may_be_group(lost.region.medium(), run.at + CHUNK_HEADER_BYTES));
        kinds.push(run.header.kind);
    }
    let index = [ChunkKind::Nodes, ChunkKind::Objects, ChunkKind::Register];
    assert!(index.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert!(alike > 0, "no chunk looks like a memtable");
}
