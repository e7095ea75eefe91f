//! The contract between the store and a device: submit requests, reap completions.
//!
//! A driver serves the files of one directory of one device. Moving bytes is completion-based: a
//! [`Queue`] takes requests, carries them out in any order and as parallel as the device likes, and
//! gives each back once as a [`Completion`] with its tag and its buffer. A blocking call is a
//! request carried out at once ([`Driver::execute`]).
//!
//! Invariants every driver keeps, and `tests/contract.rs` checks:
//! 1. A request completes exactly once. Requests of a queue may complete in any order; a caller
//!    that needs an order (write before sync) waits for the completion of the first before it
//!    submits the second.
//! 2. A read fills its buffer's view from the offset and returns how many bytes it got; fewer only
//!    at the end of the file. The driver hides short transfers and interruptions.
//! 3. A write puts its buffer's whole view at the offset, extending the file where needed, or
//!    fails; after a failure the range holds old bytes, new bytes or a mix.
//! 4. A completed write is seen by every later read. It is *durable* only after a later sync of the
//!    file completed, direct I/O included. Sync makes data and length durable.
//! 5. A failed sync is final for the data it should have covered: trying again proves nothing. The
//!    caller must treat the writes since the last good sync as lost.
//! 6. Creating, deleting and renaming are durable only after [`Driver::sync_directory`]. Rename
//!    replaces atomically. So it is with symbolic links, which are names like those of files: they
//!    are listed, renamed and deleted, and never followed.
//! 7. With `alignment() > 1`, offset, length and buffer view of each read and write are multiples
//!    of it.
//! 8. A deleted file stays readable through handles opened before.
//! 9. A write that is asked to be *durable* survives loss of power when it completes, with the
//!    length that reading it needs; so does every part of it that was finished separately. It says
//!    nothing of earlier writes. One that fails is as final as a failed sync.
//!
//! Threads: a `Driver` and its handles are shared freely; a `Queue` belongs to one thread at a
//! time.

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use std::any::Any;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// An open file of a driver. Only the driver that made it can use it.
pub type Handle = Arc<dyn DriverFile>;

/// What a driver's open file can do besides moving bytes.
pub trait DriverFile: Any + Send + Sync + Debug {
    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// The file holds no byte.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file at least `len` bytes long with space reserved, so that later writes below
    /// `len` neither run out of space nor change the file's metadata. New bytes read as zero.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Cuts or extends the file to `len` bytes.
    fn truncate(&self, len: u64) -> Result<()>;

    /// What tells the file and the bytes that it has now from all other files of the device and
    /// from the bytes that it had before; none where the driver cannot tell. A change within about
    /// a second of the one before may leave it as it is.
    fn stamp(&self) -> Result<Option<FileStamp>> {
        Ok(None)
    }

    /// Gives the file another stamp, as if its bytes had changed now. Nothing is durable by that,
    /// and nothing is done where there are no stamps.
    fn touch(&self) -> Result<()> {
        Ok(())
    }

    /// Makes bytes, length and stamp durable, where there are stamps: after a sync of bytes whose
    /// file did not grow, a power cut may leave the file the stamp that it had before.
    fn sync_stamp(&self) -> Result<()> {
        Ok(())
    }

    /// Asks that the file be served by the system's page cache from here on, although the driver
    /// goes past it, and says whether it is: writes need no alignment then, and end when they are
    /// copied. For small writes that need not be durable one by one. Before any other use of the
    /// handle.
    fn use_page_cache(&self) -> Result<bool> {
        Ok(false)
    }

    /// A hint: the file is read once through this handle, from its beginning to its end, so that
    /// more may be read ahead.
    fn read_ahead(&self) {}

    /// A hint: the file is not expected to be read soon. What the system has of it in memory may
    /// go, but for what is not on the device yet.
    fn forget_cached(&self) {}

    /// Space that is reserved counts as unwritten, and the file system notes of each block of it
    /// when it is first written: a durable write to one waits for that note, too. False where first
    /// writes cost what others do, or that cannot be told.
    fn notes_first_writes(&self) -> bool {
        false
    }

    /// For the driver, to find its own type behind a [`Handle`].
    fn as_any(&self) -> &dyn Any;
}

/// What a file system knows of a file's bytes. See [`DriverFile::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// The file's number on its device.
    pub number: u64,
    /// When it was made, in nanoseconds of the file system's time; 0 where that is not kept.
    pub born_ns: u64,
    /// When its bytes changed last.
    pub changed_ns: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// What is asked of a file. Buffers are moved in and come back with the completion.
#[derive(Debug)]
pub enum Operation {
    /// Fill the buffer's view from `offset`.
    Read {
        /// Bytes from the start of the file.
        offset: u64,
        /// Where the bytes go.
        buffer: Buffer,
    },
    /// Write the buffer's view at `offset`.
    Write {
        /// Bytes from the start of the file.
        offset: u64,
        /// What is written.
        buffer: Buffer,
        /// Complete only when these bytes survive loss of power (invariant 9).
        durable: bool,
    },
    /// Make all completed writes of the file durable.
    Sync,
}

/// One operation on one file.
#[derive(Debug)]
pub struct Request {
    /// The caller's name for the request.
    pub tag: u64,
    /// The file, of the same driver as the queue.
    pub file: Handle,
    /// What to do.
    pub operation: Operation,
}

/// A finished request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// Bytes moved (0 for a sync), or why not.
    pub result: Result<usize>,
    /// The request's buffer; empty for a sync.
    pub buffer: Buffer,
}

/// A stream of requests and their completions, used by one thread at a time.
pub trait Queue: Send + Debug {
    /// Starts the requests, leaving `requests` empty. Waits for earlier ones where the queue is
    /// full.
    fn submit(&mut self, requests: &mut Vec<Request>);

    /// Appends finished requests to `completions`, waiting until at least `at_least` of those in
    /// flight have finished; returns how many were appended.
    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize;

    /// Requests submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}

/// A name in the driver's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's name.
    pub name: String,
    /// Its length in bytes; of a link that of its text.
    pub len: u64,
    /// It is a symbolic link.
    pub is_link: bool,
}

/// Room on the device under the directory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What an ordinary user can still fill.
    pub free_bytes: u64,
}

/// What a device has done since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Bytes that were read, and bytes that were written.
    pub read_bytes: u64,
    /// See `read_bytes`.
    pub written_bytes: u64,
    /// How long something was asked of it.
    pub busy_ns: u64,
    /// Bytes that programs wrote and that it was not given yet, at most: no count, but what the
    /// system holds back now, of all devices together.
    pub unwritten_bytes: u64,
}

impl DeviceCounts {
    /// It did something since `before`.
    pub fn differs_from(&self, before: &Self) -> bool {
        let did = |counts: &Self| (counts.read_bytes, counts.written_bytes, counts.busy_ns);
        did(self) != did(before)
    }
}

/// What a program does to a file itself, past its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostUse {
    /// It reads so many bytes at an offset.
    Read {
        /// Bytes from the file's start.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// It writes them.
    Write {
        /// Bytes from the file's start.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// It makes durable what was written.
    Sync,
}

/// Holds a directory until it is dropped.
pub trait DirectoryLock: Send + Sync + Debug {}

/// Which directory a driver serves, whatever path led there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryId {
    /// The device.
    pub device: u64,
    /// The directory's number on it.
    pub number: u64,
}

/// A device whose work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedDevice {
    /// One of the machine's, by its number.
    Real(u64),
    /// One that is emulated, told from all others of the process.
    Emulated(usize),
}

/// One directory on one device.
pub trait Driver: Send + Sync + Debug {
    /// The driver's name in configurations: `posix`, `direct`, `memory`, `emulated`.
    fn name(&self) -> &'static str;

    /// The directory, for messages.
    fn describe(&self) -> String;

    /// What offsets, lengths and views must be multiples of; 1 where there is no such rule, at most
    /// the page size.
    fn alignment(&self) -> usize;

    /// Makes a new, empty file; an existing name is an error.
    fn create(&self, name: &str) -> Result<Handle>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Handle>;

    /// Opens an existing file for reading: also where nothing may be written.
    fn open_to_read(&self, name: &str) -> Result<Handle> {
        self.open(name)
    }

    /// Removes a name.
    fn delete(&self, name: &str) -> Result<()>;

    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Plain files and symbolic links of the directory, in no order.
    fn list(&self) -> Result<Vec<Entry>>;

    /// Makes all creations, deletions and renamings so far durable.
    fn sync_directory(&self) -> Result<()>;

    /// Room on the device.
    fn space(&self) -> Result<Space>;

    /// Takes the directory for this process; an error of kind `Locked` where another has it, or
    /// reads in it.
    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>>;

    /// Takes the directory for reading, beside others that only read; an error of kind `Locked`
    /// where a process has it for itself. Writes nothing. None where the directory, or the driver,
    /// has no such locks.
    fn lock_shared(&self, _name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        Ok(None)
    }

    /// Which directory it is; none where that cannot be told.
    fn directory_id(&self) -> Option<DirectoryId> {
        None
    }

    /// What the device of the directory has done, whatever program asked for it; none where that
    /// is not counted.
    fn device_counts(&self) -> Option<DeviceCounts> {
        None
    }

    /// Bytes of a block of the directory's device, a power of two: what a program's own direct I/O
    /// there is in multiples of. None where there is no such device.
    fn block_bytes(&self) -> Option<usize> {
        None
    }

    /// The device that [`Driver::device_counts`] tells of; none where that cannot be told.
    fn counted_device(&self) -> Option<CountedDevice> {
        self.directory_id().map(|id| CountedDevice::Real(id.device))
    }

    /// The device that the directory's own is slowed down to; none where it is not.
    fn emulated_as(&self) -> Option<&str> {
        None
    }

    /// Of a device that is emulated: when it would be done with what a program does to a file of
    /// the directory itself, from now on; the program then [waits](Driver::wait_until) until that
    /// time. None for a real device.
    fn book(&self, _file: usize, _use: HostUse) -> Option<u64> {
        None
    }

    /// Waits for the time that [`Driver::book`] told.
    fn wait_until(&self, _due_ns: u64) {}

    /// A new queue for up to `depth` requests in flight.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>>;

    /// Carries out one request on the calling thread.
    fn execute(&self, file: &Handle, operation: Operation) -> Completion;

    /// The directory on the host, where there is one.
    fn host_directory(&self) -> Option<&Path> {
        None
    }

    /// Gives the file `name` a second name, `new_name` in the directory `into`, without copying;
    /// `false` where the two directories cannot share a file. A name that is taken there is an
    /// error. Both names then show one file: only files that are never written again should be
    /// linked. Durable after `into.sync_directory()`.
    fn try_link(&self, _name: &str, _into: &dyn Driver, _new_name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Makes a symbolic link that says `text`; an existing name is an error.
    fn make_link(&self, name: &str, _text: &str) -> Result<()> {
        let place = self.describe();
        let text = format!("cannot make the link {name} in {place}: there are none on this driver");
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// The text of a symbolic link; none for a file of another kind and for a text that is not
    /// UTF-8. A name that does not exist is an error.
    fn read_link(&self, _name: &str) -> Result<Option<String>> {
        Ok(None)
    }
}
