//! Directories that lose power: what was not synced survives in part, or not at all.
//!
//! Every operation that changes something is counted; at a chosen one the power goes. Then each
//! 512-byte sector written since the file's last sync, and each change of a name since the
//! directory's last sync, is kept or lost. Whatever alignment is asked of reads and writes, power
//! cuts go between sectors.

use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::{
    Buffer, Completion, Devices, Driver, DriverFile, Error, ErrorKind, Handle, Operation, Queue,
    Request, Result, TierSpec,
};
use thermocline_foundation::random::Random;

const SECTOR_BYTES: usize = 512;

/// What becomes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Lost,
    Any(u64),
}

/// When operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// After so many changes the power is cut.
    PowerCut(u64),
    /// The change after so many fails, the others do not.
    Once(u64),
    /// The change after so many fails, and after so many the power is cut.
    #[allow(dead_code, reason = "not every crate that includes this file cuts it then")]
    OnceAndPowerCut(u64, u64),
    /// After so many changes there is no space for more: files neither come nor grow.
    #[allow(dead_code, reason = "not every crate that includes this file fills devices")]
    Full(u64),
}

#[derive(Debug)]
struct Power {
    fault: Fault,
    changes: u64,
    dead: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Len(u64),
}

#[derive(Clone, Debug, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

type Inode = Arc<Mutex<Content>>;

#[derive(Debug)]
enum NameChange {
    Put(String, Inode),
    Remove(String),
    Rename(String, String, Inode),
}

#[derive(Debug, Default)]
struct Names {
    live: BTreeMap<String, Inode>,
    durable: BTreeMap<String, Inode>,
    pending: Vec<NameChange>,
}

#[derive(Clone, Debug)]
struct Directory {
    names: Arc<Mutex<Names>>,
    power: Arc<Mutex<Power>>,
    alignment: usize,
}

#[derive(Debug)]
struct OpenFile {
    inode: Inode,
    power: Arc<Mutex<Power>>,
    alignment: usize,
}

#[derive(Clone, Debug)]
pub struct SimulatedDevices {
    directories: Arc<Mutex<BTreeMap<PathBuf, Directory>>>,
    power: Arc<Mutex<Power>>,
    alignment: usize,
}

impl SimulatedDevices {
    pub fn new(fault: Fault) -> Self {
        Self::aligned(fault, SECTOR_BYTES)
    }

    /// Directories that want reads and writes aligned to so many bytes.
    pub fn aligned(fault: Fault, alignment: usize) -> Self {
        let power = Arc::new(Mutex::new(Power { fault, changes: 0, dead: false }));
        Self { directories: Arc::default(), power, alignment }
    }

    /// From now on, counting from zero.
    pub fn set_fault(&self, fault: Fault) {
        *self.power.lock() = Power { fault, changes: 0, dead: false };
    }

    pub fn changes(&self) -> u64 {
        self.power.lock().changes
    }

    pub fn is_dead(&self) -> bool {
        self.power.lock().dead
    }

    /// The directories as a process finds them that starts after this one was killed: all that was
    /// written is there, and what was not synced can still be lost.
    pub fn after_kill(&self) -> Self {
        let next = Self::aligned(Fault::None, self.alignment);
        for (path, directory) in self.directories.lock().iter() {
            let names = directory.names.lock();
            let mut copies: BTreeMap<*const Mutex<Content>, Inode> = BTreeMap::new();
            let mut copy = |inode: &Inode| {
                let fresh = || Arc::new(Mutex::new(inode.lock().clone()));
                Arc::clone(copies.entry(Arc::as_ptr(inode)).or_insert_with(fresh))
            };
            let live = names.live.iter().map(|(name, inode)| (name.clone(), copy(inode))).collect();
            let durable = names.durable.iter();
            let durable = durable.map(|(name, inode)| (name.clone(), copy(inode))).collect();
            let pending = names.pending.iter().map(|change| match change {
                NameChange::Put(name, inode) => NameChange::Put(name.clone(), copy(inode)),
                NameChange::Remove(name) => NameChange::Remove(name.clone()),
                NameChange::Rename(from, to, inode) => {
                    NameChange::Rename(from.clone(), to.clone(), copy(inode))
                }
            });
            let pending = pending.collect();
            let names = Arc::new(Mutex::new(Names { live, durable, pending }));
            let directory =
                Directory { names, power: Arc::clone(&next.power), ..directory.clone() };
            next.directories.lock().insert(path.clone(), directory);
        }
        next
    }

    /// The directories after the power comes back.
    pub fn after_power_cut(&self, fate: Fate) -> Self {
        let next = Self::aligned(Fault::None, self.alignment);
        let mut random = Random::new(if let Fate::Any(seed) = fate { seed } else { 0 });
        let mut keep = move || match fate {
            Fate::Kept => true,
            Fate::Lost => false,
            Fate::Any(_) => random.below(2) == 0,
        };
        for (path, directory) in self.directories.lock().iter() {
            let names = directory.names.lock();
            let mut image = names.durable.clone();
            for change in names.pending.iter().filter(|_| keep()) {
                change.apply(&mut image);
            }
            let survivors = image.into_iter().map(|(name, inode)| {
                let bytes = inode.lock().after_power_cut(&mut keep);
                let content = Content { live: bytes.clone(), durable: bytes, pending: Vec::new() };
                (name, Arc::new(Mutex::new(content)))
            });
            let survivors: BTreeMap<_, _> = survivors.collect();
            let names = Names { live: survivors.clone(), durable: survivors, pending: Vec::new() };
            let names = Arc::new(Mutex::new(names));
            let directory =
                Directory { names, power: Arc::clone(&next.power), ..directory.clone() };
            next.directories.lock().insert(path.clone(), directory);
        }
        next
    }
}

impl Content {
    fn after_power_cut(&self, keep: &mut impl FnMut() -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for change in &self.pending {
            match change {
                Change::Len(len) if keep() => image.resize(*len as usize, 0),
                Change::Len(_) => {}
                Change::Write(offset, bytes) => {
                    for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        if keep() {
                            put(&mut image, *offset as usize + index * SECTOR_BYTES, sector);
                        }
                    }
                }
            }
        }
        image
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    let end = offset + new.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(new);
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Inode>) {
        match self {
            Self::Put(name, inode) => drop(names.insert(name.clone(), Arc::clone(inode))),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), Arc::clone(inode));
            }
        }
    }
}

impl Power {
    fn failure(&self) -> Error {
        Error::new(ErrorKind::Io, format!("simulated failure after {} changes", self.changes))
    }
}

/// Lets a change happen, lets it happen halfway (the flag), or refuses it.
fn change(power: &Mutex<Power>) -> Result<bool> {
    let mut power = power.lock();
    if power.dead {
        return Err(power.failure());
    }
    power.changes += 1;
    match power.fault {
        Fault::PowerCut(after) | Fault::OnceAndPowerCut(_, after) if power.changes > after => {
            power.dead = true;
            Ok(true)
        }
        Fault::Once(after) | Fault::OnceAndPowerCut(after, _) if power.changes == after + 1 => {
            Err(power.failure())
        }
        _ => Ok(false),
    }
}

/// Refuses what needs space where there is none.
fn grow(power: &Mutex<Power>) -> Result<()> {
    let power = power.lock();
    match power.fault {
        Fault::Full(after) if power.changes >= after => {
            Err(Error::new(ErrorKind::OutOfSpace, "the simulated device is full"))
        }
        _ => Ok(()),
    }
}

fn look(power: &Mutex<Power>) -> Result<()> {
    let power = power.lock();
    if power.dead { Err(power.failure()) } else { Ok(()) }
}

impl Devices for SimulatedDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        let found = self.directories.lock().get(path).cloned();
        let text = format!("no directory {}", path.display());
        found
            .map(|directory| Arc::new(directory) as Arc<dyn Driver>)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, text))
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.home(&spec.path)
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        look(&self.power)?;
        let mut directories = self.directories.lock();
        let is_new = !directories.contains_key(path);
        let (power, alignment) = (Arc::clone(&self.power), self.alignment);
        let directory = || Directory { names: Arc::default(), power, alignment };
        directories.entry(path.to_owned()).or_insert_with(directory);
        Ok(is_new)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        look(&self.power)?;
        let mut directories = self.directories.lock();
        let is_empty = |directory: &Directory| directory.names.lock().live.is_empty();
        if directories.get(path).is_some_and(is_empty) {
            directories.remove(path);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Unlocked;

impl DirectoryLock for Unlocked {}

impl Directory {
    fn rename_names(&self, how: NameChange) -> Result<()> {
        let half = change(&self.power)?;
        let mut names = self.names.lock();
        how.apply(&mut names.live);
        names.pending.push(how);
        if half { Err(self.power.lock().failure()) } else { Ok(()) }
    }

    fn open_file(&self, inode: Inode) -> Handle {
        Arc::new(OpenFile { inode, power: Arc::clone(&self.power), alignment: self.alignment })
    }

    fn find(&self, name: &str) -> Result<Inode> {
        let text = format!("no file {name}");
        let found = self.names.lock().live.get(name).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, text))
    }
}

impl Driver for Directory {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn create(&self, name: &str) -> Result<Handle> {
        look(&self.power)?;
        if self.find(name).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{name} exists")));
        }
        grow(&self.power)?;
        let inode = Inode::default();
        self.rename_names(NameChange::Put(name.to_owned(), Arc::clone(&inode)))?;
        Ok(self.open_file(inode))
    }

    fn open(&self, name: &str) -> Result<Handle> {
        look(&self.power)?;
        Ok(self.open_file(self.find(name)?))
    }

    fn delete(&self, name: &str) -> Result<()> {
        look(&self.power)?;
        self.find(name)?;
        self.rename_names(NameChange::Remove(name.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        look(&self.power)?;
        let inode = self.find(from)?;
        self.rename_names(NameChange::Rename(from.to_owned(), to.to_owned(), inode))
    }

    fn list(&self) -> Result<Vec<Entry>> {
        look(&self.power)?;
        let names = self.names.lock();
        let entry = |(name, inode): (&String, &Inode)| Entry {
            is_link: false,
            name: name.clone(),
            len: inode.lock().live.len() as u64,
        };
        Ok(names.live.iter().map(entry).collect())
    }

    fn sync_directory(&self) -> Result<()> {
        if change(&self.power)? {
            return Err(self.power.lock().failure());
        }
        let mut names = self.names.lock();
        names.durable = names.live.clone();
        names.pending.clear();
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space { total_bytes: 1 << 40, free_bytes: 1 << 40 })
    }

    fn lock(&self, _name: &str) -> Result<Box<dyn DirectoryLock>> {
        look(&self.power)?;
        Ok(Box::new(Unlocked))
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(SimulatedQueue::default()))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        execute(file, operation)
    }
}

#[derive(Debug, Default)]
struct SimulatedQueue(Vec<Completion>);

impl Queue for SimulatedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            let completion = execute(&request.file, request.operation);
            self.0.push(Completion { tag: request.tag, ..completion });
        }
    }

    fn reap(&mut self, _at_least: usize, completions: &mut Vec<Completion>) -> usize {
        // Backwards, so that nothing relies on an order.
        self.0.reverse();
        let count = self.0.len();
        completions.append(&mut self.0);
        count
    }

    fn in_flight(&self) -> usize {
        self.0.len()
    }
}

fn execute(file: &Handle, operation: Operation) -> Completion {
    let file = file.as_any().downcast_ref::<OpenFile>().expect("a file of this driver");
    let (result, buffer) = match operation {
        Operation::Read { offset, mut buffer } => (file.read(offset, &mut buffer), buffer),
        Operation::Write { offset, buffer, .. } => {
            let result = file.change(Change::Write(offset, buffer.to_vec()));
            (result.map(|()| buffer.len()), buffer)
        }
        Operation::Sync => (file.sync().map(|()| 0), Buffer::default()),
    };
    Completion { tag: 0, result, buffer }
}

impl OpenFile {
    fn read(&self, offset: u64, view: &mut [u8]) -> Result<usize> {
        look(&self.power)?;
        self.assert_aligned(offset, view.len());
        let content = self.inode.lock();
        let start = content.live.len().min(offset as usize);
        let len = view.len().min(content.live.len() - start);
        view[..len].copy_from_slice(&content.live[start..start + len]);
        Ok(len)
    }

    fn assert_aligned(&self, offset: u64, len: usize) {
        let fits = offset.is_multiple_of(self.alignment as u64);
        assert!(fits && len.is_multiple_of(self.alignment), "{len} bytes at {offset}");
    }

    fn change(&self, how: Change) -> Result<()> {
        let end = match &how {
            Change::Write(offset, bytes) => {
                self.assert_aligned(*offset, bytes.len());
                *offset + bytes.len() as u64
            }
            Change::Len(len) => *len,
        };
        if end > self.inode.lock().live.len() as u64 {
            grow(&self.power)?;
        }
        let half = change(&self.power)?;
        let mut content = self.inode.lock();
        match &how {
            Change::Write(offset, bytes) => put(&mut content.live, *offset as usize, bytes),
            Change::Len(len) => content.live.resize(*len as usize, 0),
        }
        content.pending.push(how);
        if half { Err(self.power.lock().failure()) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        if change(&self.power)? {
            return Err(self.power.lock().failure());
        }
        let mut content = self.inode.lock();
        content.durable = content.live.clone();
        content.pending.clear();
        Ok(())
    }
}

impl DriverFile for OpenFile {
    fn len(&self) -> Result<u64> {
        look(&self.power)?;
        Ok(self.inode.lock().live.len() as u64)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let len = len.max(self.len()?);
        self.change(Change::Len(len))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.change(Change::Len(len))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
