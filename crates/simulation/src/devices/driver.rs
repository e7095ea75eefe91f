//! The device layer's contract over a [`World`]: counts calls, lets faults happen, tells a watcher.
//!
//! Long because: device, directory, file and queue are one contract over one state.

use super::faults::{Armed, CallKind, Fault, FaultKind, Made};
use super::queue::SimulatedQueue;
use super::world::{
    Change, Content, Directory as DirectoryState, FileId, NameChange, ReadPlace, World,
};
use crate::clock::SimulatedClock;
use crate::recorder::{self, Operands};
use crate::syncs::{self, Turn};
use crate::trace;
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::{
    Buffer, Completion, Driver, DriverFile, Error, ErrorKind, FileStamp, Handle, Operation, Queue,
    Result, TierSpec,
};
use thermocline_foundation::sync_site::apart;

/// Is told after each call that changed something.
pub trait Watcher: Send + Sync {
    /// The devices after call number `call` of `kind`. No lock is held.
    fn changed(&self, devices: &Devices, call: u64, kind: CallKind);
}

/// Simulated devices; clones are the same.
#[derive(Clone)]
pub struct Devices {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    clock: Arc<SimulatedClock>,
}

struct State {
    world: World,
    calls: u64,
    made: Option<Vec<Made>>,
    reads: Option<BTreeSet<ReadPlace>>,
    armed: Option<Armed>,
    /// The process is gone: nothing it still does has an effect.
    dead: bool,
    stalled_ns: u64,
    /// What the last sync was for, where it is to be durable only after the next.
    later: Option<Synced>,
}

/// What a sync makes durable.
enum Synced {
    Content(FileId),
    /// Its content, and the time of its last change.
    Stamped(FileId),
    Names(PathBuf),
}

impl State {
    fn sync(&mut self, what: &Synced) {
        match what {
            Synced::Content(id) => self.world.files.entry(*id).or_default().sync(),
            Synced::Stamped(id) => {
                let content = self.world.files.entry(*id).or_default();
                content.sync();
                content.stamps.sync();
            }
            Synced::Names(path) => {
                self.world.directories.get_mut(path).into_iter().for_each(DirectoryState::sync);
            }
        }
    }

    /// Marks what a sync that is left out or waits would have made durable.
    fn owe(&mut self, what: &Synced) {
        match what {
            Synced::Content(id) | Synced::Stamped(id) => {
                self.world.files.entry(*id).or_default().owe_sync();
            }
            Synced::Names(path) => {
                self.world.directories.get_mut(path).into_iter().for_each(DirectoryState::owe_sync);
            }
        }
    }
}

impl Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated devices")
    }
}

impl Devices {
    /// Devices that hold `world`.
    pub fn new(world: World, clock: Arc<SimulatedClock>) -> Self {
        let state = State {
            world,
            calls: 0,
            made: None,
            reads: None,
            armed: None,
            dead: false,
            stalled_ns: 0,
            later: None,
        };
        let shared = Shared { state: Mutex::new(state), watcher: Mutex::new(None), clock };
        Self { shared: Arc::new(shared) }
    }

    /// From now on `watcher` is told of changes.
    pub fn watch(&self, watcher: Option<Arc<dyn Watcher>>) {
        *self.shared.watcher.lock() = watcher;
    }

    /// What is told of changes.
    pub fn watcher(&self) -> Option<Arc<dyn Watcher>> {
        self.shared.watcher.lock().clone()
    }

    /// Lets `fault` happen when its call comes.
    pub fn arm(&self, fault: Option<Fault>) {
        self.state().armed = fault.map(|fault| Armed {
            fault,
            struck: None,
            breaks_promise: false,
            beyond_cache: false,
        });
    }

    /// Goes on where the devices of an earlier machine stopped: with its count of calls, and with
    /// the fault that is armed or goes on there.
    pub fn succeed(&self, earlier: &Self) {
        let (calls, armed, made) = {
            let earlier = earlier.state();
            (earlier.calls, earlier.armed.clone(), earlier.made.clone())
        };
        let mut state = self.state();
        (state.calls, state.armed, state.made) = (calls, armed, made);
    }

    /// The armed fault has happened.
    pub fn has_struck(&self) -> bool {
        self.state().armed.as_ref().is_some_and(|armed| armed.struck.is_some())
    }

    /// The armed fault is one of a device that loses what it acknowledges.
    pub fn loses_writes(&self) -> bool {
        self.state().armed.as_ref().is_some_and(|armed| armed.fault.kind == FaultKind::Lost)
    }

    /// The armed fault has happened, and to nothing but files of the block cache.
    pub fn has_struck_cache_alone(&self) -> bool {
        let state = self.state();
        state.armed.as_ref().is_some_and(|armed| armed.struck.is_some() && !armed.beyond_cache)
    }

    /// A device had no room, and that is all: none broke its promise to keep some.
    pub fn was_full(&self) -> bool {
        let state = self.state();
        let armed = state.armed.as_ref().filter(|armed| armed.struck.is_some());
        armed.is_some_and(|armed| armed.fault.kind.is_full() && !armed.breaks_promise)
    }

    /// Keeps what all calls from now on are.
    pub fn record_made(&self) {
        self.state().made = Some(Vec::new());
    }

    /// The calls that were kept.
    pub fn made(&self) -> Vec<Made> {
        self.state().made.clone().unwrap_or_default()
    }

    /// The kinds of calls that were kept.
    pub fn kinds(&self) -> Vec<CallKind> {
        self.state().made.iter().flatten().map(|made| made.kind).collect()
    }

    /// Keeps the places of all reads from now on.
    pub fn record_reads(&self) {
        self.state().reads = Some(BTreeSet::new());
    }

    /// The places of reads that were kept, by their length.
    pub fn reads(&self) -> BTreeSet<ReadPlace> {
        self.state().reads.clone().unwrap_or_default()
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// What everything is like now.
    pub fn world(&self) -> World {
        self.state().world.clone()
    }

    /// Looks at everything as it is now.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.state().world)
    }

    /// Changes the world behind the store's back.
    pub fn meddle(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.state().world);
    }

    /// From now on every call fails: the process has ended.
    pub fn end_process(&self) {
        self.state().dead = true;
    }

    /// Takes the device of a directory away, or gives it back.
    pub fn set_gone(&self, path: &Path, gone: bool) {
        self.with_directory(path, |directory| directory.gone = gone);
    }

    /// Bytes that a directory's files may take from now on.
    pub fn set_capacity(&self, path: &Path, bytes: Option<u64>) {
        self.with_directory(path, |directory| directory.capacity = bytes);
    }

    /// Simulated time that each call of a directory takes from now on.
    pub fn set_slow(&self, path: &Path, ns: u64) {
        self.with_directory(path, |directory| directory.slow_ns = ns);
    }

    /// What transfers of a directory must be multiples of, 1 at least.
    pub fn set_alignment(&self, path: &Path, bytes: usize) {
        self.with_directory(path, |directory| directory.alignment = bytes);
    }

    /// Blocks of a directory's files that are reserved count as unwritten.
    pub fn set_notes_first_writes(&self, path: &Path) {
        self.with_directory(path, |directory| directory.notes_first_writes = true);
    }

    /// Files of a directory can have other names in directories of the same device.
    pub fn set_shared_device(&self, path: &Path, device: u64) {
        self.with_directory(path, |directory| directory.shared_device = Some(device));
    }

    fn with_directory(&self, path: &Path, change: impl FnOnce(&mut DirectoryState)) {
        let mut state = self.state();
        change(state.world.directories.entry(path.to_owned()).or_default());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// Counts a call; its fault, if one happens to it.
    fn enter(
        &self,
        kind: CallKind,
        path: &Path,
        name: &str,
        operands: Operands<'_>,
    ) -> Result<Option<FaultKind>> {
        let mut state = self.state();
        if state.dead {
            return Err(Error::new(ErrorKind::Io, "the simulated process has ended"));
        }
        recorder::call(&kind, path, name, operands);
        let call = state.calls;
        state.calls += 1;
        if let Some(made) = &mut state.made {
            made.push(Made { kind, name: name.to_owned() });
        }
        let met = state.armed.as_mut().and_then(|armed| armed.meet(call, kind, path, name));
        trace::line(|| {
            let fault = met.map_or(String::new(), |fault| format!("  FAULT {fault:?}"));
            format!("  {call:6} {kind:?} {}/{name}{fault}", path.display())
        });
        let directory = state.world.directories.get(path);
        if let Some(directory) = directory {
            if directory.gone {
                let error = io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error());
                return Err(Error::io(format!("{kind:?}"), path.join(name), &error));
            }
            let slow_ns = directory.slow_ns;
            drop(state);
            self.stall(slow_ns);
        } else {
            drop(state);
        }
        match met {
            Some(FaultKind::Stall(ns)) => {
                self.stall(ns);
                Ok(None)
            }
            Some(FaultKind::Jump(ns)) => {
                self.shared.clock.jump(ns);
                Ok(None)
            }
            Some(FaultKind::SetWall(ns)) => {
                self.shared.clock.set_wall(ns);
                Ok(None)
            }
            Some(FaultKind::Error(number)) => {
                let error = io::Error::from_raw_os_error(number);
                Err(Error::io(format!("{kind:?}"), path.join(name), &error))
            }
            other => Ok(other),
        }
    }

    /// Records a call that is not counted and that no fault happens to.
    pub(super) fn record(&self, kind: &str, path: &Path, name: &str, operands: Operands<'_>) {
        if !self.state().dead {
            recorder::call(&format_args!("{kind}"), path, name, operands);
        }
    }

    fn stall(&self, ns: u64) {
        self.shared.clock.advance(ns);
        self.state().stalled_ns += ns;
    }

    /// Simulated time that calls have taken because devices were slow.
    pub fn stalled_ns(&self) -> u64 {
        self.state().stalled_ns
    }

    /// Tells the watcher that the last call changed something.
    fn changed(&self, kind: CallKind) {
        let watcher = self.shared.watcher.lock().clone();
        if let Some(watcher) = watcher {
            let call = self.state().calls - 1;
            // The watcher runs other stores within this one's call.
            apart(|| watcher.changed(self, call, kind));
        }
    }

    /// Makes durable what a sync of `kind` is for, in the order that is asked for ([`syncs`]).
    fn synced(&self, kind: CallKind, what: Synced) {
        let earlier = self.state().later.take();
        let turn = syncs::turn(earlier.is_some());
        if turn == Turn::BeforeTheLast {
            let mut state = self.state();
            earlier.iter().for_each(|earlier| state.owe(earlier));
            state.sync(&what);
            drop(state);
            self.changed(kind);
        }
        if let Some(earlier) = earlier {
            self.state().sync(&earlier);
        }
        match turn {
            Turn::Now => self.state().sync(&what),
            Turn::AfterTheNext => self.state().later = Some(what),
            Turn::Never => self.state().owe(&what),
            Turn::BeforeTheLast => {}
        }
        self.changed(kind);
    }

    fn directory(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        if !self.state().world.directories.contains_key(path) {
            let text = format!("no directory {}", path.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(Arc::new(Directory { devices: self.clone(), path: path.to_owned() }))
    }
}

impl thermocline_device::Devices for Devices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        self.enter(CallKind::Open, path, "", Operands::None)?;
        self.directory(path)
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.home(&spec.path)
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        self.enter(CallKind::CreateDirectory, path, "", Operands::None)?;
        let mut state = self.state();
        let is_new = !state.world.directories.contains_key(path);
        if is_new {
            let directory = DirectoryState { alignment: 512, ..DirectoryState::default() };
            state.world.directories.insert(path.to_owned(), directory);
        }
        Ok(is_new)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        self.enter(CallKind::RemoveDirectory, path, "", Operands::None)?;
        let mut state = self.state();
        // One whose names a power cut would bring back comes back with them.
        let is_gone =
            |directory: &DirectoryState| directory.live.is_empty() && directory.pending.is_empty();
        if state.world.directories.get(path).is_some_and(is_gone) {
            state.world.directories.remove(path);
        }
        Ok(())
    }

    fn entropy(&self) -> u64 {
        self.state().world.draw()
    }
}

#[derive(Debug)]
struct Lock {
    devices: Devices,
    path: PathBuf,
    name: String,
}

impl DirectoryLock for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.devices.record("Unlock", &self.path, &self.name, Operands::None);
        let mut state = self.devices.state();
        if let Some(directory) = state.world.directories.get_mut(&self.path) {
            match directory.locked.get_mut(&self.name) {
                Some(Some(readers)) if *readers > 1 => *readers -= 1,
                _ => drop(directory.locked.remove(&self.name)),
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Directory {
    devices: Devices,
    path: PathBuf,
}

impl Directory {
    fn is_locked(&self) -> Error {
        Error::new(ErrorKind::Locked, format!("{} is locked", self.path.display()))
    }

    fn lock_of(&self, name: &str) -> Lock {
        let (devices, path) = (self.devices.clone(), self.path.clone());
        Lock { devices, path, name: name.to_owned() }
    }
}

impl Directory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.devices.state()
    }

    fn enter(&self, kind: CallKind, name: &str) -> Result<()> {
        self.enter_with(kind, name, Operands::None)
    }

    fn enter_with(&self, kind: CallKind, name: &str, operands: Operands<'_>) -> Result<()> {
        self.devices.enter(kind, &self.path, name, operands).map(drop)
    }

    fn with<T>(&self, change: impl FnOnce(&mut DirectoryState, u64) -> T) -> Result<T> {
        let mut state = self.state();
        let call = state.calls - 1;
        let directory = state.world.directories.get_mut(&self.path);
        let text = || format!("no directory {}", self.path.display());
        let directory = directory.ok_or_else(|| Error::new(ErrorKind::NotFound, text()))?;
        Ok(change(directory, call))
    }

    fn find(&self, name: &str) -> Result<FileId> {
        let found = self.with(|directory, _| directory.live.get(name).copied())?;
        let text = || format!("no file {}", self.path.join(name).display());
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, text()))
    }

    fn change_names(&self, kind: CallKind, change: NameChange) -> Result<()> {
        self.with(|directory, call| directory.change(call, change))?;
        self.devices.changed(kind);
        Ok(())
    }

    /// Gives a file or link a new name.
    fn put(&self, kind: CallKind, name: &str, id: FileId) -> Result<()> {
        if self.find(name).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{name} exists")));
        }
        if self.link_text(id).is_none() {
            self.state().world.require_new(&self.path, name);
        }
        self.change_names(kind, NameChange::Put(name.to_owned(), id))
    }

    fn link_text(&self, id: FileId) -> Option<String> {
        let state = self.state();
        state.world.files.get(&id)?.link.as_deref().map(str::to_owned)
    }

    fn handle(&self, name: &str, id: FileId) -> Handle {
        Arc::new(File { directory: self.clone(), name: name.to_owned(), id })
    }
}

impl Driver for Directory {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn alignment(&self) -> usize {
        self.with(|directory, _| directory.alignment).unwrap_or(1).max(1)
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.enter(CallKind::Create, name)?;
        let id = self.state().world.add(Content::default());
        self.put(CallKind::Create, name, id)?;
        Ok(self.handle(name, id))
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.enter(CallKind::Open, name)?;
        let id = self.find(name)?;
        if self.link_text(id).is_some() {
            let text = format!("{} is a link", self.path.join(name).display());
            return Err(Error::new(ErrorKind::Io, text));
        }
        Ok(self.handle(name, id))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.enter(CallKind::Delete, name)?;
        self.find(name)?;
        self.change_names(CallKind::Delete, NameChange::Remove(name.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.enter_with(CallKind::Rename, from, Operands::To(to))?;
        let id = self.find(from)?;
        self.state().world.require_new(&self.path, to);
        let change = NameChange::Rename(from.to_owned(), to.to_owned(), id);
        self.change_names(CallKind::Rename, change)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.enter(CallKind::List, "")?;
        let listed = self.state().world.list(&self.path);
        let links = self.state().world.links(&self.path);
        let is_link = |name: &str| links.iter().any(|(link, _)| link == name);
        let entry = |(name, len): (String, u64)| Entry { is_link: is_link(&name), name, len };
        Ok(listed.into_iter().map(entry).collect())
    }

    fn sync_directory(&self) -> Result<()> {
        self.enter(CallKind::SyncDirectory, "").inspect_err(|_| {
            let _ = self.with(|directory, _| directory.fail_sync());
        })?;
        self.with(|_, _| ())?;
        self.devices.synced(CallKind::SyncDirectory, Synced::Names(self.path.clone()));
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        self.enter(CallKind::Space, "")?;
        let state = self.state();
        let directory = state.world.directories.get(&self.path);
        let used_bytes = directory.map_or(0, |directory| state.world.used_bytes(directory));
        let total_bytes = directory.and_then(|directory| directory.capacity).unwrap_or(1 << 40);
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(used_bytes) })
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.enter(CallKind::Lock, name)?;
        self.with(|directory, _| {
            if directory.locked.contains_key(name) {
                return Err(self.is_locked());
            }
            directory.locked.insert(name.to_owned(), None);
            Ok(())
        })??;
        Ok(Box::new(self.lock_of(name)))
    }

    fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        self.enter(CallKind::Lock, name)?;
        self.with(|directory, _| {
            match directory.locked.entry(name.to_owned()).or_insert(Some(0)) {
                Some(readers) => *readers += 1,
                None => return Err(self.is_locked()),
            }
            Ok(())
        })??;
        Ok(Some(Box::new(self.lock_of(name))))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.devices.record("Queue", &self.path, "", Operands::Number(depth as u64));
        Ok(Box::new(SimulatedQueue::new(self.devices.clone(), self.path.clone())))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        execute(file, operation)
    }

    fn try_link(&self, name: &str, into: &dyn Driver, new_name: &str) -> Result<bool> {
        let into = PathBuf::from(into.describe());
        let device = |path: &Path| {
            let state = self.state();
            state.world.directories.get(path).and_then(|directory| directory.shared_device)
        };
        let shared = device(&self.path);
        if shared.is_none() || shared != device(&into) {
            self.devices.record("Link", &self.path, name, Operands::To(&into.to_string_lossy()));
            return Ok(false);
        }
        self.enter_with(CallKind::Link, name, Operands::To(new_name))?;
        let id = self.find(name)?;
        let into = Self { devices: self.devices.clone(), path: into };
        into.put(CallKind::Link, new_name, id)?;
        Ok(true)
    }

    fn make_link(&self, name: &str, text: &str) -> Result<()> {
        self.enter_with(CallKind::Link, name, Operands::To(text))?;
        let link = Content { link: Some(text.into()), ..Content::default() };
        let id = self.state().world.add(link);
        self.put(CallKind::Link, name, id)
    }

    fn read_link(&self, name: &str) -> Result<Option<String>> {
        self.enter(CallKind::ReadLink, name)?;
        Ok(self.link_text(self.find(name)?))
    }
}

#[derive(Debug)]
struct File {
    directory: Directory,
    name: String,
    id: FileId,
}

pub(super) fn execute(file: &Handle, operation: Operation) -> Completion {
    let file = file.as_any().downcast_ref::<File>().expect("a file of this driver");
    let (result, buffer) = match operation {
        Operation::Read { offset, mut buffer } => (file.read(offset, &mut buffer), buffer),
        Operation::Write { offset, buffer, durable } => {
            (file.write(offset, &buffer, durable), buffer)
        }
        Operation::Sync => (file.sync().map(|()| 0), Buffer::default()),
    };
    Completion { tag: 0, result, buffer }
}

impl File {
    fn with<T>(&self, id: FileId, change: impl FnOnce(&mut Content, u64) -> T) -> T {
        let mut state = self.directory.state();
        let call = state.calls.saturating_sub(1);
        change(state.world.files.entry(id).or_default(), call)
    }

    fn check_aligned(&self, offset: u64, len: usize) {
        let alignment = self.directory.alignment() as u64;
        let aligned = offset.is_multiple_of(alignment) && (len as u64).is_multiple_of(alignment);
        assert!(aligned, "{}: {len} bytes at {offset} are not aligned", self.name);
    }

    /// Where a misdirected transfer goes.
    fn stray(&self, choice: u64, offset: u64) -> (FileId, u64) {
        if choice.is_multiple_of(2) {
            let len = self.with(self.id, |content, _| content.live.len()).max(4096);
            return (self.id, (offset + 512 * (1 + choice / 2)) % len.next_multiple_of(512));
        }
        let state = self.directory.state();
        let directories = state.world.directories.values();
        let others: Vec<_> = directories
            .flat_map(|directory| directory.live.values().copied())
            .filter(|id| *id != self.id)
            .collect();
        let other = others.get((choice / 2) as usize % others.len().max(1));
        (other.copied().unwrap_or(self.id), offset)
    }

    fn read(&self, offset: u64, view: &mut [u8]) -> Result<usize> {
        self.check_aligned(offset, view.len());
        let devices = &self.directory.devices;
        let operands = Operands::Range { offset, len: view.len() };
        let fault = devices.enter(CallKind::Read, &self.directory.path, &self.name, operands)?;
        self.require_name()?;
        if let Some(reads) = &mut devices.state().reads {
            let (directory, name) = (self.directory.path.clone(), self.name.clone());
            reads.insert(ReadPlace { len: view.len(), directory, name, offset });
        }
        let mut from = (self.id, offset);
        if let Some(FaultKind::Misdirected(choice)) = fault {
            from = self.stray(choice, offset);
        }
        let stale = fault == Some(FaultKind::Stale);
        let len = self.with(from.0, |content, _| {
            let image = if stale { &content.durable } else { &content.live };
            image.read(from.1, view)
        });
        match fault {
            Some(FaultKind::Flip(choice)) if len > 0 => {
                view[(choice / 8) as usize % len] ^= 1 << (choice % 8);
                Ok(len)
            }
            Some(FaultKind::Short) => Ok(len / 2),
            _ => Ok(len),
        }
    }

    fn write(&self, offset: u64, view: &[u8], durable: bool) -> Result<usize> {
        self.check_aligned(offset, view.len());
        let devices = &self.directory.devices;
        let operands = Operands::Bytes { offset, bytes: view };
        let fault = devices.enter(CallKind::Write, &self.directory.path, &self.name, operands)?;
        let half = view.len() / 2 / 512 * 512;
        let (mut to, mut bytes) = ((self.id, offset), view.to_vec());
        match fault {
            Some(FaultKind::Lost) => return Ok(view.len()),
            Some(FaultKind::Misdirected(choice)) => to = self.stray(choice, offset),
            Some(FaultKind::Short | FaultKind::Torn) => bytes.truncate(half),
            Some(FaultKind::Flip(choice)) if !bytes.is_empty() => {
                let index = (choice / 8) as usize % bytes.len();
                bytes[index] ^= 1 << (choice % 8);
            }
            _ => {}
        }
        self.require_room(offset + bytes.len() as u64)?;
        let change = Change::Write(to.1, bytes.clone().into());
        self.with(to.0, |content, call| content.change(call, change));
        devices.changed(CallKind::Write);
        if durable && fault.is_none() {
            // A power cut before this finds the write in flight.
            self.enter_sync()?;
            self.with(to.0, |content, _| content.write_durably(to.1, &bytes));
        }
        match fault {
            Some(FaultKind::Torn) => {
                let number = rustix::io::Errno::IO.raw_os_error();
                let error = io::Error::from_raw_os_error(number);
                Err(Error::io("write", self.directory.path.join(&self.name), &error))
            }
            Some(FaultKind::Short) => Ok(half),
            _ => Ok(view.len()),
        }
    }

    /// Fails where the file has been deleted. (Where other files may get its room at once, a reader
    /// of it finds their bytes.)
    fn require_name(&self) -> Result<()> {
        let has_name = self.directory.with(|directory, _| {
            // Files that are used again have another name than they were opened by.
            directory.live.get(&self.name) == Some(&self.id)
                || directory.live.values().any(|id| *id == self.id)
        })?;
        if has_name {
            return Ok(());
        }
        let text = format!("{} was deleted", self.directory.path.join(&self.name).display());
        Err(Error::new(ErrorKind::Io, text))
    }

    /// The device has room for the file to end at `end`.
    fn require_room(&self, end: u64) -> Result<()> {
        let state = self.directory.state();
        let Some(directory) = state.world.directories.get(&self.directory.path) else {
            return Ok(());
        };
        let Some(capacity) = directory.capacity else { return Ok(()) };
        let len = state.world.files.get(&self.id).map_or(0, |content| content.live.len());
        if end > len && state.world.used_bytes(directory) + (end - len) > capacity {
            let number = rustix::io::Errno::NOSPC.raw_os_error();
            let error = io::Error::from_raw_os_error(number);
            return Err(Error::io("extend", self.directory.path.join(&self.name), &error));
        }
        Ok(())
    }

    /// Begins to make something of the file durable. One that fails is final for all that is not.
    fn enter_sync(&self) -> Result<()> {
        let Directory { devices, path } = &self.directory;
        let entered = devices.enter(CallKind::Sync, path, &self.name, Operands::None);
        entered.inspect_err(|_| self.with(self.id, |content, _| content.fail_sync())).map(drop)
    }

    fn sync(&self) -> Result<()> {
        let devices = &self.directory.devices;
        self.enter_sync()?;
        devices.synced(CallKind::Sync, Synced::Content(self.id));
        Ok(())
    }

    fn set_len(&self, kind: CallKind, len: u64) -> Result<()> {
        let devices = &self.directory.devices;
        self.require_room(len)?;
        self.with(self.id, |content, call| content.change(call, Change::Len(len)));
        devices.changed(kind);
        Ok(())
    }
}

impl DriverFile for File {
    fn len(&self) -> Result<u64> {
        self.directory.enter(CallKind::Len, &self.name)?;
        Ok(self.with(self.id, |content, _| content.live.len()))
    }

    fn stamp(&self) -> Result<Option<FileStamp>> {
        self.directory.enter(CallKind::Len, &self.name)?;
        let (changed_ns, len) =
            self.with(self.id, |content, _| (content.stamps.live, content.live.len()));
        Ok(Some(FileStamp { number: self.id, born_ns: 0, changed_ns, len }))
    }

    fn touch(&self) -> Result<()> {
        self.directory.enter(CallKind::Len, &self.name)?;
        self.with(self.id, |content, _| content.stamps.change());
        Ok(())
    }

    fn sync_stamp(&self) -> Result<()> {
        self.enter_sync()?;
        self.directory.devices.synced(CallKind::Sync, Synced::Stamped(self.id));
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.directory.enter_with(CallKind::Allocate, &self.name, Operands::Number(len))?;
        let now = self.with(self.id, |content, _| content.live.len());
        if len <= now { Ok(()) } else { self.set_len(CallKind::Allocate, len) }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.directory.enter_with(CallKind::Truncate, &self.name, Operands::Number(len))?;
        self.set_len(CallKind::Truncate, len)
    }

    fn use_page_cache(&self) -> Result<bool> {
        let Directory { devices, path } = &self.directory;
        devices.record("PageCache", path, &self.name, Operands::None);
        Ok(false)
    }

    fn notes_first_writes(&self) -> bool {
        self.directory.with(|directory, _| directory.notes_first_writes).unwrap_or(false)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
