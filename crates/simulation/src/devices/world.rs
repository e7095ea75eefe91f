//! All directories and files at one moment, and what of them survives.
//!
//! 1. `live` is what calls see; `durable` plus any subset of `pending` is what a power cut leaves.
//! 2. A pending change that no surviving name leads to is not a unit: no call could see it.
//! 3. Copies of a world share nothing that changes.

use super::sparse::Sparse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::random::Random;

/// What devices write as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A file, whatever its name.
pub(super) type FileId = u64;

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(u64, Arc<[u8]>),
    Len(u64),
}

impl Change {
    /// How many parts of it survive independently.
    fn units(&self) -> usize {
        match self {
            Self::Write(_, bytes) => bytes.len().div_ceil(SECTOR_BYTES),
            Self::Len(_) => 1,
        }
    }

    /// Applies those parts that `keep` keeps.
    fn apply(&self, to: &mut Sparse, keep: &mut dyn FnMut() -> bool) {
        match self {
            Self::Len(len) => {
                if keep() {
                    to.set_len(*len);
                }
            }
            Self::Write(offset, bytes) => {
                for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if keep() {
                        to.write(offset + (index * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
        }
    }
}

/// A change that is not durable.
#[derive(Clone, Debug)]
pub(super) struct Pending<T> {
    /// The number of the call that made it.
    pub call: u64,
    /// A sync that should have covered it failed: no later one does, although what was changed may
    /// have reached the device. So do the page caches of today's systems.
    pub given_up: bool,
    /// A sync that should have covered it was left out, or comes too late ([`crate::syncs`]).
    pub owed: bool,
    pub change: T,
}

impl<T> Pending<T> {
    fn new(call: u64, change: T) -> Self {
        Self { call, given_up: false, owed: false, change }
    }

    fn unit(&self, directory: usize, file: Option<FileId>) -> Unit {
        let Self { call, given_up, owed, .. } = *self;
        Unit { directory, file, call, given_up, owed }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// The text of a symbolic link: there at once, and never changed.
    pub link: Option<Arc<str>>,
    pub live: Sparse,
    pub durable: Sparse,
    pub pending: Vec<Pending<Change>>,
    pub stamps: Stamps,
}

/// The time of a file's last change: here a number that each change takes anew.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamps {
    last: u64,
    pub live: u64,
    /// What a power cut leaves: a sync of bytes alone makes the time durable only where the file
    /// grew or was cut, as ext4 and XFS do.
    durable: u64,
}

impl Stamps {
    pub fn change(&mut self) {
        self.last += 1;
        self.live = self.last;
    }

    pub fn sync(&mut self) {
        self.durable = self.live;
    }

    fn lost(self) -> Self {
        Self { live: self.durable, ..self }
    }
}

impl Content {
    pub fn change(&mut self, call: u64, change: Change) {
        self.stamps.change();
        change.apply(&mut self.live, &mut || true);
        self.pending.push(Pending::new(call, change));
    }

    /// Writes `bytes` durably, with the length that reading them needs. Older changes of the same
    /// bytes are over: else a power cut could bring them back.
    pub fn write_durably(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for pending in std::mem::take(&mut self.pending) {
            match pending.change {
                Change::Len(len) if len < end => self.durable.set_len(len),
                Change::Len(_) => self.pending.push(pending),
                Change::Write(at, ref old) => {
                    let old_end = at + old.len() as u64;
                    let before = at..old_end.min(offset);
                    let after = at.max(end)..old_end;
                    for part in [before, after].into_iter().filter(|part| !part.is_empty()) {
                        let kept = &old[(part.start - at) as usize..(part.end - at) as usize];
                        let change = Change::Write(part.start, kept.into());
                        self.pending.push(Pending { change, ..pending });
                    }
                }
            }
        }
        self.stamps.change();
        self.live.write(offset, bytes);
        self.durable.write(offset, bytes);
    }

    pub fn sync(&mut self) {
        if self.pending.iter().all(|pending| !pending.given_up) {
            if self.durable.len() != self.live.len() {
                self.stamps.sync();
            }
            self.durable = self.live.clone();
            self.pending.clear();
            return;
        }
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            if !pending.given_up {
                pending.change.apply(durable, &mut || true);
            }
            pending.given_up
        });
    }

    pub fn fail_sync(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.given_up = true);
    }

    pub fn owe_sync(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.owed = true);
    }
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    /// A new file or link, or another name of a file.
    Put(String, FileId),
    Remove(String),
    Rename(String, String, FileId),
}

type Names = BTreeMap<String, FileId>;

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Put(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }

    fn file(&self) -> Option<FileId> {
        match self {
            Self::Put(_, file) | Self::Rename(_, _, file) => Some(*file),
            Self::Remove(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub live: Names,
    pub durable: Names,
    pub pending: Vec<Pending<NameChange>>,
    /// Names that are locked: for one (none), or for so many that read.
    pub locked: BTreeMap<String, Option<u64>>,
    /// Offsets, lengths and views of transfers are multiples of it.
    pub alignment: usize,
    /// Blocks of its files that are reserved count as unwritten.
    pub notes_first_writes: bool,
    /// The device, where files can have names in several directories.
    pub shared_device: Option<u64>,
    /// Bytes that files may take; none: no limit.
    pub capacity: Option<u64>,
    /// The device was taken away: every call fails.
    pub gone: bool,
    /// Nanoseconds that every call takes.
    pub slow_ns: u64,
}

impl Directory {
    pub fn change(&mut self, call: u64, change: NameChange) {
        change.apply(&mut self.live);
        self.pending.push(Pending::new(call, change));
    }

    pub fn sync(&mut self) {
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            if !pending.given_up {
                pending.change.apply(durable);
            }
            pending.given_up
        });
    }

    pub fn fail_sync(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.given_up = true);
    }

    pub fn owe_sync(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.owed = true);
    }

    /// Files that a name leads to, or may after a power cut.
    fn files(&self) -> BTreeSet<FileId> {
        let pending = self.pending.iter().filter_map(|pending| pending.change.file());
        self.live.values().chain(self.durable.values()).copied().chain(pending).collect()
    }
}

/// A part of what is in flight: it survives a power cut, or does not, on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The position of its directory among all, by path.
    pub directory: usize,
    /// The file; none for a name.
    pub file: Option<u64>,
    /// The number of the call that made it.
    pub call: u64,
    /// A sync that should have covered it failed.
    pub given_up: bool,
    /// A sync that should have covered it was left out, or comes too late.
    pub owed: bool,
}

/// Bytes that were read as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadPlace {
    /// How many.
    pub len: usize,
    /// The directory of the file.
    pub directory: PathBuf,
    /// Its name.
    pub name: String,
    /// Where they begin.
    pub offset: u64,
}

/// Which units of a directory a power cut spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss<'a> {
    /// The power stays on and only the process ends.
    None,
    /// All units in flight are lost.
    All,
    /// One flag for each unit of [`World::units`], true if it survives.
    Kept(&'a [bool]),
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub(super) directories: BTreeMap<PathBuf, Directory>,
    pub(super) files: BTreeMap<FileId, Content>,
    pub(super) next_file: FileId,
    /// What identities are drawn from.
    pub(super) entropy: u64,
    /// Numbered files that were ever made, durably or not.
    numbered: Arc<BTreeSet<(PathBuf, String)>>,
}

impl World {
    /// No directory; identities follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { entropy: seed, ..Self::default() }
    }

    /// A file whose name is a number must have a new one, whatever crashes there were: checksums
    /// are bound to it. Not so a table's copy on another tier, nor what a repair keeps of damaged
    /// files, which may be made again and again.
    pub(super) fn require_new(&mut self, directory: &Path, name: &str) {
        let others = self.directories.iter().filter(|(path, _)| *path != directory);
        let is_copy = name.ends_with(".table")
            && others.map(|(_, other)| other).any(|other| other.live.contains_key(name));
        let is_kept = directory.ends_with("lost");
        let is_number = name.starts_with(|first: char| first.is_ascii_digit());
        if is_number && !is_copy && !is_kept {
            let is_new = Arc::make_mut(&mut self.numbered).insert((directory.into(), name.into()));
            assert!(is_new, "the number of {name} in {} is used twice", directory.display());
        }
    }

    /// Another database is made in the directories below `path`: its numbers begin anew.
    pub fn forget_numbers(&mut self, path: &Path) {
        Arc::make_mut(&mut self.numbered).retain(|(directory, _)| !directory.starts_with(path));
    }

    /// A new file or link that has no name yet.
    pub(super) fn add(&mut self, content: Content) -> FileId {
        self.next_file += 1;
        self.files.insert(self.next_file, content);
        self.next_file
    }

    pub(super) fn draw(&mut self) -> u64 {
        let mut random = Random::new(self.entropy);
        self.entropy = random.next_u64();
        self.entropy
    }

    /// What is in flight, in a fixed order.
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for (index, directory) in self.directories.values().enumerate() {
            units.extend(directory.pending.iter().map(|pending| pending.unit(index, None)));
            for id in directory.files() {
                for pending in self.files.get(&id).into_iter().flat_map(|file| &file.pending) {
                    let count = pending.change.units();
                    units.extend(std::iter::repeat_n(pending.unit(index, Some(id)), count));
                }
            }
        }
        units
    }

    /// Something is in flight that would be durable if all syncs were done as they come.
    pub fn has_owed(&self) -> bool {
        self.directories.values().any(|directory| directory.pending.iter().any(|name| name.owed))
            || self.files.values().any(|file| file.pending.iter().any(|change| change.owed))
    }

    /// The world in which the power has come back.
    pub fn after(&self, loss: Loss<'_>) -> Self {
        let mut next = 0;
        let mut keep = move || {
            next += 1;
            match loss {
                Loss::None => true,
                Loss::All => false,
                Loss::Kept(flags) => flags[next - 1],
            }
        };
        let mut image = Self {
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
            next_file: self.next_file,
            // Another machine start, other identities.
            entropy: self.entropy ^ 0x5EED,
            numbered: Arc::clone(&self.numbered),
        };
        for (path, directory) in &self.directories {
            let restarted = if loss == Loss::None {
                directory.restarted(directory.live.clone(), directory.pending.clone())
            } else {
                let mut names = directory.durable.clone();
                for pending in &directory.pending {
                    if keep() {
                        pending.change.apply(&mut names);
                    }
                }
                directory.restarted(names, Vec::new())
            };
            for id in directory.files() {
                let Some(content) = self.files.get(&id) else { continue };
                image.files.insert(id, content.after(loss == Loss::None, &mut keep));
            }
            image.directories.insert(path.clone(), restarted);
        }
        image
    }

    /// Names and lengths of the files in a directory; none where there is no such directory.
    pub fn list(&self, path: &Path) -> Vec<(String, u64)> {
        let names = self.directories.get(path).map(|directory| &directory.live);
        let len = |id: &FileId| self.files.get(id).map_or(0, |content| content.live.len());
        names.into_iter().flatten().map(|(name, id)| (name.clone(), len(id))).collect()
    }

    /// The links of a directory, each with what it says.
    pub fn links(&self, path: &Path) -> Vec<(String, String)> {
        let names = self.directories.get(path).map(|directory| &directory.live);
        let text = |id: &FileId| self.files.get(id)?.link.as_deref().map(str::to_owned);
        let names = names.into_iter().flatten();
        names.filter_map(|(name, id)| Some((name.clone(), text(id)?))).collect()
    }

    /// The directories.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories.keys().cloned().collect()
    }

    /// A power cut changes nothing of the file, nor whether there is one.
    pub fn is_durable(&self, directory: &Path, name: &str) -> bool {
        let Some(directory) = self.directories.get(directory) else { return true };
        let [live, durable] = [&directory.live, &directory.durable].map(|names| names.get(name));
        let content = live.and_then(|id| self.files.get(id));
        live == durable && content.is_none_or(|content| content.pending.is_empty())
    }

    /// Bytes of a file.
    pub fn bytes(&self, directory: &Path, name: &str) -> Vec<u8> {
        let content = self.content(directory, name).expect("the file is there");
        content.live.bytes(0, content.live.len() as usize)
    }

    fn content(&self, directory: &Path, name: &str) -> Option<&Content> {
        self.files.get(self.directories.get(directory)?.live.get(name)?)
    }

    /// Changes bytes behind the store's back, durably.
    pub fn damage(&mut self, directory: &Path, name: &str, offset: u64, bytes: &[u8]) {
        let content = self.content_mut(directory, name);
        for image in [&mut content.live, &mut content.durable] {
            image.write(offset, bytes);
        }
    }

    /// Makes a file behind the store's back, durably.
    pub fn put(&mut self, directory: &Path, name: &str, bytes: &[u8]) {
        self.next_file += 1;
        let id = self.next_file;
        let mut live = Sparse::default();
        live.write(0, bytes);
        let durable = live.clone();
        self.files.insert(id, Content { live, durable, ..Content::default() });
        let directory = self.directories.entry(directory.to_owned()).or_default();
        for names in [&mut directory.live, &mut directory.durable] {
            names.insert(name.to_owned(), id);
        }
    }

    /// Takes a file away behind the store's back, durably.
    pub fn remove(&mut self, directory: &Path, name: &str) {
        let directory = self.directories.get_mut(directory).expect("the directory is there");
        for names in [&mut directory.live, &mut directory.durable] {
            names.remove(name);
        }
    }

    /// Cuts a file behind the store's back, durably.
    pub fn cut(&mut self, directory: &Path, name: &str, len: u64) {
        let content = self.content_mut(directory, name);
        for image in [&mut content.live, &mut content.durable] {
            image.set_len(len);
        }
    }

    fn content_mut(&mut self, directory: &Path, name: &str) -> &mut Content {
        let id = self.directories.get(directory).and_then(|directory| directory.live.get(name));
        let content = id.and_then(|id| self.files.get_mut(id));
        content.expect("the file is there")
    }

    /// Puts the directory at `from` of `other` in place of the one at `to`: a disk is swapped.
    pub fn mount(&mut self, to: &Path, other: &Self, from: &Path) {
        let mut directory = other.directories.get(from).cloned().expect("the directory is there");
        let moved: BTreeMap<_, _> = directory
            .files()
            .into_iter()
            .map(|id| {
                self.next_file += 1;
                (id, self.next_file)
            })
            .collect();
        for (old, new) in &moved {
            if let Some(content) = other.files.get(old) {
                self.files.insert(*new, content.clone());
            }
        }
        directory.live.values_mut().for_each(|id| *id = moved[id]);
        directory.durable = directory.live.clone();
        directory.pending.clear();
        directory.locked.clear();
        self.directories.insert(to.to_owned(), directory);
    }

    /// Takes a directory away.
    pub fn unmount(&mut self, path: &Path) {
        self.directories.remove(path);
    }

    /// What the files of a directory take.
    pub(super) fn used_bytes(&self, directory: &Directory) -> u64 {
        let len = |id| self.files.get(id).map_or(0, |content| content.live.len());
        directory.live.values().map(len).sum()
    }

    /// A number that differs between different durable states.
    pub fn digest(&self) -> u64 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        for (path, directory) in &self.directories {
            hasher.update(path.as_os_str().as_encoded_bytes());
            for (name, id) in &directory.live {
                hasher.update(name.as_bytes());
                if let Some(content) = self.files.get(id) {
                    hasher.update(content.link.as_deref().unwrap_or_default().as_bytes());
                    hasher.update(&content.live.bytes(0, content.live.len() as usize));
                }
            }
        }
        hasher.digest()
    }
}

impl Directory {
    fn restarted(&self, names: Names, pending: Vec<Pending<NameChange>>) -> Self {
        let durable = if pending.is_empty() { names.clone() } else { self.durable.clone() };
        Self {
            live: names,
            durable,
            pending,
            locked: BTreeMap::new(),
            alignment: self.alignment,
            notes_first_writes: self.notes_first_writes,
            shared_device: self.shared_device,
            capacity: self.capacity,
            gone: self.gone,
            slow_ns: self.slow_ns,
        }
    }
}

impl Content {
    fn after(&self, killed: bool, keep: &mut dyn FnMut() -> bool) -> Self {
        if killed {
            return self.clone();
        }
        let mut image = self.durable.clone();
        for pending in &self.pending {
            pending.change.apply(&mut image, keep);
        }
        let (link, stamps) = (self.link.clone(), self.stamps.lost());
        Self { link, live: image.clone(), durable: image, pending: Vec::new(), stamps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_write_survives_and_nothing_older_comes_back_over_it() {
        let mut content = Content::default();
        content.change(1, Change::Len(4096));
        content.change(2, Change::Write(0, vec![1; 2048].into()));
        content.write_durably(512, &[2; 512]);
        content.change(3, Change::Write(1024, vec![3; 512].into()));
        let after = |keep: bool| {
            let image = content.after(false, &mut || keep);
            image.live.bytes(0, image.live.len() as usize)
        };
        let none = after(false);
        assert_eq!((none.len(), &none[..512]), (1024, &[0; 512][..]));
        assert!(none[512..].iter().all(|byte| *byte == 2));
        let all = after(true);
        let runs = all.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
        let expected = [(1, 512), (2, 512), (3, 512), (1, 512), (0, 2048)];
        assert_eq!(runs.collect::<Vec<_>>(), expected);
    }
}
