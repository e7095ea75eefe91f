//! What a host knows of its files, and what it may find after a crash (docs/formats/names.md).
//!
//! 1. A name may lead to any file that it led to since it was last made durable, or to none where
//!    it was none then or was deleted.
//! 2. Of a file the bytes of its last sync are there, once its name was made durable after that;
//!    what was appended later may be there, be zero or be missing.
//! 3. A file whose name was durable, and that was neither deleted nor replaced, is under some name.

use std::collections::{BTreeMap, BTreeSet};

/// A file, whatever its names.
pub(super) type FileId = u64;

/// What is under each name.
pub(super) type Observed = BTreeMap<String, Vec<u8>>;

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    pub written: Vec<u8>,
    /// So many of them were synced.
    pub synced: usize,
    /// So many of them are durable under a name that is.
    pub durable: usize,
    /// It is not written any more.
    pub sealed: bool,
}

/// What a name may lead to: a file, with so many of its bytes at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Possible {
    file: Option<FileId>,
    least: usize,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// The directory is over tiers.
    pub made: bool,
    pub files: BTreeMap<FileId, Bytes>,
    pub now: BTreeMap<String, FileId>,
    possible: BTreeMap<String, Vec<Possible>>,
    /// Files that are under some name.
    kept: BTreeSet<FileId>,
    next: FileId,
}

impl Model {
    /// A file that has no name yet.
    pub fn new_file(&mut self) -> FileId {
        self.next += 1;
        self.files.insert(self.next, Bytes::default());
        self.next
    }

    /// From now on the name may lead to `file`, with `least` bytes.
    pub fn may_be(&mut self, name: &str, file: Option<FileId>, least: usize) {
        let possible = Possible { file, least };
        let all = self.possible.entry(name.to_owned()).or_insert_with(|| vec![NONE]);
        if !all.contains(&possible) {
            all.push(possible);
        }
    }

    /// The name is about to lose its file, or one that it was lately: changes of names that are not
    /// durable yet survive in any combination.
    pub fn release(&mut self, name: &str) {
        let Some(lost) = self.possible.get(name) else { return };
        let lost: BTreeSet<_> = lost.iter().filter_map(|possible| possible.file).collect();
        for file in lost {
            let mut others = self.possible.iter().filter(|(other, _)| *other != name);
            let is_sure = |all: &Vec<Possible>| all.iter().all(|other| other.file == Some(file));
            if !others.any(|(_, all)| is_sure(all)) {
                self.kept.remove(&file);
            }
        }
    }

    /// The name is durable as it is.
    pub fn is_settled(&self, name: &str) -> bool {
        self.possible.get(name).is_none_or(|all| all.len() == 1)
    }

    /// The bytes of a name's file were synced.
    pub fn sync_bytes(&mut self, name: &str) {
        let file = self.now[name];
        let bytes = self.files.get_mut(&file).expect("it is known");
        bytes.synced = bytes.written.len();
    }

    /// The name has become durable as it is.
    pub fn settle(&mut self, name: &str) {
        let Some(file) = self.now.get(name) else {
            self.possible.remove(name);
            return;
        };
        let bytes = self.files.get_mut(file).expect("it is known");
        bytes.durable = bytes.synced;
        let least = bytes.durable;
        self.possible.insert(name.to_owned(), vec![Possible { file: Some(*file), least }]);
        self.kept.insert(*file);
    }

    /// All names have become durable as they are.
    pub fn settle_all(&mut self) {
        let names: BTreeSet<_> = self.possible.keys().chain(self.now.keys()).cloned().collect();
        names.iter().for_each(|name| self.settle(name));
    }

    fn allows(&self, possible: &Possible, found: Option<&Vec<u8>>) -> bool {
        let (Some(file), Some(found)) = (possible.file, found) else {
            return possible.file.is_none() && found.is_none();
        };
        let written = &self.files[&file].written;
        let least = possible.least.min(written.len());
        found.len() >= least
            && found.len() <= written.len()
            && found[..least] == written[..least]
            && found.iter().zip(written).all(|(byte, wrote)| byte == wrote || *byte == 0)
    }

    /// What was found after a crash is one of the things that may be.
    pub fn check_crash(&self, found: &Observed) -> Result<(), String> {
        let names: BTreeSet<_> = self.possible.keys().chain(found.keys()).collect();
        for name in names {
            let none = vec![NONE];
            let all = self.possible.get(name).unwrap_or(&none);
            let found = found.get(name);
            if !all.iter().any(|possible| self.allows(possible, found)) {
                let found = found.map(|bytes| (bytes.len(), &bytes[..bytes.len().min(8)]));
                return Err(format!("{name} leads to {found:?}, but may be {all:?}"));
            }
        }
        for file in &self.kept {
            let kept = Possible { file: Some(*file), least: self.files[file].durable };
            if kept.least > 0 && !found.values().any(|found| self.allows(&kept, Some(found))) {
                return Err(format!("file {file} was durable, and no name leads to it"));
            }
        }
        Ok(())
    }

    /// What a running host finds is all that it wrote.
    pub fn check_now(&self, found: &Observed) -> Result<(), String> {
        let names = |names: Vec<&String>| format!("{names:?}");
        if found.len() != self.now.len() || !self.now.keys().all(|name| found.contains_key(name)) {
            let (has, expected) = (names(found.keys().collect()), names(self.now.keys().collect()));
            return Err(format!("the names are {has}, expected {expected}"));
        }
        for (name, file) in &self.now {
            if found[name] != self.files[file].written {
                let (has, expected) = (found[name].len(), self.files[file].written.len());
                return Err(format!("{name} has {has} bytes or others, expected {expected}"));
            }
        }
        Ok(())
    }

    /// The power was cut: what was found is all that there is, and durable.
    pub fn adopt(&mut self, found: Observed) {
        let mut now = BTreeMap::new();
        for (name, bytes) in found {
            let all = self.possible.get(&name).into_iter().flatten();
            let fits = all.filter(|possible| self.allows(possible, Some(&bytes)));
            let file = fits.filter_map(|possible| possible.file).next_back();
            let file = file.unwrap_or_else(|| self.new_file());
            let durable = bytes.len();
            let sealed = self.files[&file].sealed;
            now.insert(name, (file, Bytes { written: bytes, synced: durable, durable, sealed }));
        }
        self.possible.clear();
        self.kept.clear();
        self.now.clear();
        for (name, (file, bytes)) in now {
            self.files.insert(file, bytes);
            self.now.insert(name, file);
        }
        self.settle_all();
    }
}

const NONE: Possible = Possible { file: None, least: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &[u8])]) -> Observed {
        files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
    }

    #[test]
    fn a_synced_file_may_not_be_lost_and_an_unsynced_name_may() {
        let mut model = Model::default();
        let file = model.new_file();
        model.may_be("a", Some(file), 0);
        model.now.insert("a".to_owned(), file);
        let bytes = Bytes { written: vec![1, 2, 3], synced: 2, ..Bytes::default() };
        model.files.insert(file, bytes);
        assert!(model.check_crash(&found(&[])).is_ok());
        model.settle("a");
        for (bytes, is_fine) in [
            (&[1, 2][..], true),
            (&[1, 2, 0], true),
            (&[1, 2, 3], true),
            (&[1], false),
            (&[1, 0, 3], false),
            (&[1, 2, 4], false),
            (&[1, 2, 3, 4], false),
        ] {
            assert_eq!(model.check_crash(&found(&[("a", bytes)])).is_ok(), is_fine, "{bytes:?}");
        }
        assert!(model.check_crash(&found(&[])).is_err());
        // On its way to another name, it is under one of the two.
        model.may_be("b", Some(file), 2);
        model.may_be("a", None, 0);
        assert!(model.check_crash(&found(&[("b", &[1, 2])])).is_ok());
        let lost = model.check_crash(&found(&[])).unwrap_err();
        assert!(lost.contains("no name leads to it"), "{lost}");
        model.release("a");
        assert!(model.check_crash(&found(&[])).is_ok());
    }
}
