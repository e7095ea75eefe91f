//! Devices with a hook before every call: to count calls, fail them, or hold them up. And one after
//! reads, for what happens before their caller looks at them.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::{
    Buffer, Completion, Devices, Driver, DriverFile, Error, ErrorKind, Handle, Operation, Queue,
    Request, Result, TierSpec,
};

/// What is about to be asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    List,
    Lock,
    Len,
    Read,
    CreateDirectory,
    RemoveDirectory,
    Create,
    Delete,
    Rename,
    SyncDirectory,
    Allocate,
    Truncate,
    Write,
    Sync,
}

/// Sees each call with its directory and file name (empty for the directory itself) first; its
/// error is the call's.
pub type Hook = Arc<dyn Fn(Call, &Path, &str) -> Result<()> + Send + Sync>;

/// Sees the name of the file of each read that was carried out.
pub type AfterRead = Arc<dyn Fn(&str) + Send + Sync>;

/// Sees how many reads a device is handed at once.
pub type Batches = Arc<dyn Fn(usize) + Send + Sync>;

/// Sees how many bytes a queue has been handed that were not asked back yet.
pub type InFlight = Arc<dyn Fn(usize) + Send + Sync>;

/// Says whether a read of these bytes of a file fails.
pub type NeverGiven = Arc<dyn Fn(&str, Range<u64>) -> bool + Send + Sync>;

/// See the module's header.
#[derive(Clone)]
pub struct HookedDevices {
    inner: Arc<dyn Devices>,
    hook: Hook,
    after_read: AfterRead,
    never_given: NeverGiven,
    batches: Batches,
    in_flight: InFlight,
    /// What files are to be aligned to; none where the device says.
    alignment: Option<usize>,
    /// Blocks that are reserved count as unwritten.
    notes_first_writes: bool,
}

impl fmt::Debug for HookedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookedDevices({:?})", self.inner)
    }
}

impl HookedDevices {
    pub fn new(inner: Arc<dyn Devices>, hook: Hook) -> Self {
        let (after_read, batches) = (Arc::new(|_: &str| {}), Arc::new(|_| {}));
        let in_flight = Arc::new(|_| {});
        Self {
            inner,
            hook,
            after_read,
            never_given: Arc::new(|_, _| false),
            batches,
            in_flight,
            alignment: None,
            notes_first_writes: false,
        }
    }

    /// Devices that move whole blocks of so many bytes.
    #[allow(dead_code, reason = "shared with the tests of the engine's inside")]
    pub fn aligned(self, alignment: usize) -> Self {
        Self { alignment: Some(alignment), ..self }
    }

    /// Devices whose file systems note of each block when it is first written.
    #[allow(dead_code, reason = "shared with the tests of the engine's inside")]
    pub fn noting_first_writes(self) -> Self {
        Self { notes_first_writes: true, ..self }
    }

    #[allow(dead_code, reason = "shared with the tests of the engine's inside")]
    pub fn after_reads(self, after_read: AfterRead) -> Self {
        Self { after_read, ..self }
    }

    #[allow(dead_code, reason = "shared with the tests of the engine's inside")]
    pub fn never_giving(self, never_given: NeverGiven) -> Self {
        Self { never_given, ..self }
    }

    #[allow(dead_code, reason = "shared with the tests of the engine's inside")]
    pub fn batches(self, batches: Batches) -> Self {
        Self { batches, ..self }
    }

    #[allow(dead_code, reason = "shared with the tests of slabs")]
    pub fn in_flight(self, in_flight: InFlight) -> Self {
        Self { in_flight, ..self }
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn Driver>) -> Arc<dyn Driver> {
        Arc::new(HookedDriver {
            alignment: self.alignment.unwrap_or_else(|| inner.alignment()),
            inner,
            batches: Arc::clone(&self.batches),
            in_flight: Arc::clone(&self.in_flight),
            gate: Gate {
                hook: Arc::clone(&self.hook),
                after_read: Arc::clone(&self.after_read),
                never_given: Arc::clone(&self.never_given),
                path: path.into(),
                notes_first_writes: self.notes_first_writes,
            },
        })
    }
}

impl Devices for HookedDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        Ok(self.wrap(path, self.inner.home(path)?))
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        Ok(self.wrap(&spec.path, self.inner.tier(spec)?))
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        (self.hook)(Call::CreateDirectory, path, "")?;
        self.inner.create_directory(path)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        (self.hook)(Call::RemoveDirectory, path, "")?;
        self.inner.remove_directory_if_empty(path)
    }
}

#[derive(Clone)]
struct Gate {
    hook: Hook,
    after_read: AfterRead,
    never_given: NeverGiven,
    path: PathBuf,
    notes_first_writes: bool,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({})", self.path.display())
    }
}

impl Gate {
    fn pass(&self, call: Call, name: &str) -> Result<()> {
        (self.hook)(call, &self.path, name)
    }

    /// As [`Gate::pass`], for what is asked of an open file.
    fn pass_operation(&self, call: Call, name: &str, operation: &Operation) -> Result<()> {
        self.pass(call, name)?;
        match operation {
            Operation::Read { offset, buffer }
                if (self.never_given)(name, *offset..*offset + buffer.len() as u64) =>
            {
                Err(Error::new(ErrorKind::Io, "the sector is never given"))
            }
            _ => Ok(()),
        }
    }
}

struct HookedDriver {
    inner: Arc<dyn Driver>,
    alignment: usize,
    batches: Batches,
    in_flight: InFlight,
    gate: Gate,
}

impl fmt::Debug for HookedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookedDriver({:?})", self.inner)
    }
}

#[derive(Debug)]
struct HookedFile {
    inner: Handle,
    driver: Arc<dyn Driver>,
    gate: Gate,
    name: String,
}

impl HookedFile {
    fn execute(&self, operation: Operation) -> Completion {
        let call = match &operation {
            Operation::Read { .. } => Call::Read,
            Operation::Write { .. } => Call::Write,
            Operation::Sync => Call::Sync,
        };
        match self.gate.pass_operation(call, &self.name, &operation) {
            Ok(()) => {
                let completion = self.driver.execute(&self.inner, operation);
                if call == Call::Read {
                    (self.gate.after_read)(&self.name);
                }
                completion
            }
            Err(error) => {
                let buffer = match operation {
                    Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => buffer,
                    Operation::Sync => Buffer::default(),
                };
                Completion { tag: 0, result: Err(error), buffer }
            }
        }
    }
}

impl DriverFile for HookedFile {
    fn len(&self) -> Result<u64> {
        self.gate.pass(Call::Len, &self.name)?;
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.gate.pass(Call::Allocate, &self.name)?;
        self.inner.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.gate.pass(Call::Truncate, &self.name)?;
        self.inner.truncate(len)
    }

    fn notes_first_writes(&self) -> bool {
        self.gate.notes_first_writes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn execute(file: &Handle, operation: Operation) -> Completion {
    file.as_any().downcast_ref::<HookedFile>().expect("a file of this driver").execute(operation)
}

impl HookedDriver {
    fn wrap(&self, name: &str, inner: Handle) -> Handle {
        let (driver, gate) = (Arc::clone(&self.inner), self.gate.clone());
        Arc::new(HookedFile { inner, driver, gate, name: name.to_owned() })
    }
}

impl Driver for HookedDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.gate.pass(Call::Create, name)?;
        Ok(self.wrap(name, self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.gate.pass(Call::Open, name)?;
        Ok(self.wrap(name, self.inner.open(name)?))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.gate.pass(Call::Delete, name)?;
        self.inner.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.gate.pass(Call::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.gate.pass(Call::List, "")?;
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.gate.pass(Call::SyncDirectory, "")?;
        self.inner.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.gate.pass(Call::Lock, name)?;
        self.inner.lock(name)
    }

    fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        self.gate.pass(Call::Lock, name)?;
        self.inner.lock_shared(name)
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        let (batches, in_flight) = (Arc::clone(&self.batches), Arc::clone(&self.in_flight));
        Ok(Box::new(HookedQueue { batches, in_flight, completions: Vec::new() }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        execute(file, operation)
    }
}

/// A queue that completes no more than it must.
struct HookedQueue {
    batches: Batches,
    in_flight: InFlight,
    completions: Vec<Completion>,
}

impl fmt::Debug for HookedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookedQueue({:?})", self.completions)
    }
}

impl HookedQueue {
    fn tell_in_flight(&self) {
        (self.in_flight)(self.completions.iter().map(|done| done.buffer.len()).sum());
    }
}

impl Queue for HookedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        let is_read = |request: &&Request| matches!(request.operation, Operation::Read { .. });
        (self.batches)(requests.iter().filter(is_read).count());
        for request in requests.drain(..) {
            let completion = execute(&request.file, request.operation);
            self.completions.push(Completion { tag: request.tag, ..completion });
        }
        self.tell_in_flight();
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        completions.extend(self.completions.drain(..at_least));
        self.tell_in_flight();
        at_least
    }

    fn in_flight(&self) -> usize {
        self.completions.len()
    }
}
