//! No store: durable writes of one page each, in turn over a file whose blocks are filled, and
//! reads of single pages of it, by the drivers that stores use. What it does is the most that a log
//! of single records could, and the least that a read of a block takes.
//!
//! ```text
//!   device@fast+driver=direct+durable=flag    the write itself is durable (RWF_DSYNC)
//!   device@fast+driver=direct+durable=sync    a write, then a sync of the file
//! ```
//! It keeps no record, so answers are not checked.

use super::hybrid::choose;
use crate::Outcome;
use crate::store::{EngineKind, Flying, Needs, OpenOptions, Store, Visitor};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{
    Buffer, Completion, Driver, DriverSpec, Handle, Operation, Queue, Request,
};
use thermocline_foundation::SystemClock;
use thermocline_foundation::random::mix;

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub struct Device;

/// The one of its kind.
pub static DEVICE: Device = Device;

const FILE: &str = "pages";
/// As long as the log of a memtable.
const PAGES: u64 = 16 << 10;
/// Pages that are filled by one write.
const FILL_PAGES: u64 = 256;
/// Requests of a queue.
const DEPTH_MAX: usize = 1024;

const OPTIONS: [(&str, &str); 2] = [
    ("driver", "posix, direct or emulated-PROFILE, with a way to wait behind it; else by --direct"),
    ("durable", "how a write is made so: flag (default), or sync after it"),
];

fn spec(options: &OpenOptions) -> Outcome<DriverSpec> {
    let usual = if options.direct { "direct" } else { "posix" };
    Ok(options.option("driver").unwrap_or(usual).parse()?)
}

/// Whether writes carry the flag.
fn flagged(options: &OpenOptions) -> Outcome<bool> {
    let mut flagged = true;
    choose(options, "durable", &[("flag", true), ("sync", false)], &mut flagged)?;
    Ok(flagged)
}

impl EngineKind for Device {
    fn name(&self) -> &str {
        "device"
    }

    fn about(&self) -> String {
        "durable writes and reads of single pages by a driver, without a store".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn options(&self) -> &[(&str, &str)] {
        &OPTIONS
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let durable = if flagged(options)? { "flag" } else { "sync" };
        let driver = spec(options)?.to_string();
        Ok(vec![("driver".to_owned(), driver), ("durable".to_owned(), durable.to_owned())])
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("a device needs a directory")?;
        let driver = spec(options)?.open(&first.path, Arc::new(SystemClock::new()))?;
        let is_there = driver.list()?.iter().any(|entry| entry.name == FILE);
        let file = if is_there { driver.open(FILE)? } else { driver.create(FILE)? };
        let page = PAGE_BYTES as u64;
        file.allocate(PAGES * page)?;
        for at in (0..PAGES).step_by(FILL_PAGES as usize) {
            let buffer = Buffer::zeroed((FILL_PAGES * page) as usize);
            let write = Operation::Write { offset: at * page, buffer, durable: false };
            driver.execute(&file, write).result?;
        }
        driver.execute(&file, Operation::Sync).result?;
        driver.sync_directory()?;
        let flagged = flagged(options)?;
        Ok(Box::new(Pages { driver, file, next: AtomicU64::new(0), flagged }))
    }
}

#[derive(Debug)]
struct Pages {
    driver: Arc<dyn Driver>,
    file: Handle,
    /// Counts pages written, or about to be.
    next: AtomicU64,
    flagged: bool,
}

impl Pages {
    /// A write of the next page, which begins with what fits of `value`.
    fn write(&self, value: &[u8]) -> Operation {
        let page = self.next.fetch_add(1, Ordering::Relaxed) % PAGES;
        let mut buffer = Buffer::for_read(PAGE_BYTES);
        let bytes = value.len().min(PAGE_BYTES);
        buffer[..bytes].copy_from_slice(&value[..bytes]);
        Operation::Write { offset: page * PAGE_BYTES as u64, buffer, durable: self.flagged }
    }
}

impl Store for Pages {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let digest = key.iter().fold(0, |digest, byte| mix(digest ^ u64::from(*byte)));
        let offset = digest % PAGES * PAGE_BYTES as u64;
        let buffer = Buffer::for_read(PAGE_BYTES);
        let bytes = self.driver.execute(&self.file, Operation::Read { offset, buffer }).result?;
        if bytes < PAGE_BYTES {
            return Err(format!("{bytes} bytes of the page at {offset} of {FILE}").into());
        }
        Ok(true)
    }

    fn put(&self, _: &[u8], value: &[u8]) -> Outcome<()> {
        self.driver.execute(&self.file, self.write(value)).result?;
        if !self.flagged {
            self.driver.execute(&self.file, Operation::Sync).result?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        self.put(key, key)
    }

    fn scan(&self, _: &[u8], _: u64, _: &mut Visitor<'_>) -> Outcome<u64> {
        Ok(0)
    }

    fn flying(&self) -> Option<Box<dyn Flying + '_>> {
        let queue = self.driver.queue(DEPTH_MAX).ok().filter(|_| self.flagged)?;
        let (completions, done) = (Vec::new(), BTreeSet::new());
        Some(Box::new(InFlight { pages: self, queue, completions, done, first: 0, next: 0 }))
    }

    fn sync(&self) -> Outcome<()> {
        self.driver.execute(&self.file, Operation::Sync).result?;
        Ok(())
    }

    fn settle(&self) -> Outcome<()> {
        self.sync()
    }

    fn keeps(&self) -> bool {
        false
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// Writes of one thread.
struct InFlight<'p> {
    pages: &'p Pages,
    queue: Box<dyn Queue>,
    completions: Vec<Completion>,
    /// Tags of those done while an older one is not.
    done: BTreeSet<u64>,
    /// Tag of the oldest that is under way.
    first: u64,
    /// Tag of the next one.
    next: u64,
}

impl Flying for InFlight<'_> {
    fn put(&mut self, _: &[u8], value: &[u8]) -> Outcome<bool> {
        let operation = self.pages.write(value);
        let file = Arc::clone(&self.pages.file);
        self.queue.submit(&mut vec![Request { tag: self.next, file, operation }]);
        self.next += 1;
        Ok(true)
    }

    fn landed(&mut self, wait: bool) -> Outcome<bool> {
        loop {
            if self.done.remove(&self.first) {
                self.first += 1;
                return Ok(true);
            }
            let reaped = self.queue.reap(usize::from(wait), &mut self.completions);
            for completion in self.completions.drain(..) {
                completion.result?;
                self.done.insert(completion.tag);
            }
            if reaped == 0 {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, TierSpace};
    use thermocline_foundation::ByteSize;

    fn options(path: &std::path::Path, durable: &str) -> OpenOptions {
        let tier = TierSpace {
            name: "fast".to_owned(),
            path: path.to_owned(),
            capacity: ByteSize::gib(1),
        };
        let pairs = [("driver", "posix"), ("durable", durable)];
        OpenOptions {
            tiers: vec![tier],
            memory: ByteSize::mib(8),
            durability: Durability::Sync,
            direct: false,
            threads: 1,
            key_bytes: 24,
            value_bytes: 1000,
            records: 10,
            loading: false,
            options: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    #[test]
    fn writes_that_fly_land_one_by_one_and_those_with_a_sync_do_not_fly() {
        let scratch = tempfile::tempdir().unwrap();
        let store = DEVICE.open(&options(scratch.path(), "flag")).unwrap();
        let mut flying = store.flying().unwrap();
        for _ in 0..5 {
            assert!(flying.put(b"key", &[7; 100]).unwrap());
        }
        for _ in 0..5 {
            assert!(flying.landed(true).unwrap());
        }
        drop(flying);
        store.put(b"key", b"value").unwrap();
        assert!(store.get(b"another", &mut Vec::new()).unwrap(), "a page for any key");
        store.close().unwrap();
        let store = DEVICE.open(&options(scratch.path(), "sync")).unwrap();
        store.put(b"key", b"value").unwrap();
        assert!(store.flying().is_none());
        let error = DEVICE.describe(&options(scratch.path(), "luck")).unwrap_err();
        assert!(error.to_string().contains("flag or sync"), "{error}");
    }
}
