//! A host that writes files through [`Names`]: steps from a seed, each told to the model before and
//! after.

use super::images::{devices, observe, spec, split};
use super::model::{FileId, Model};
use super::{FAST, Setting, extents};
use crate::devices::{Devices, Loss, World};
use crate::oracle::Violation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{
    Buffer, Devices as _, Driver, Error, ErrorKind, FileClass, Handle, Holds, NamedFile, Names,
    Operation, Origin, Result, TierIndex, Writer,
};
use thermocline_foundation::random::Random;

/// So few that each is used again and again.
const NAMES: [&str; 7] = ["a.sst", "b.sst", "c.sst", "d.log", "e.log", "f.blob", "PLAIN"];

/// Why a history ended before its last step.
#[derive(Debug)]
pub(super) enum Stop {
    /// A call failed.
    Failed(String),
    /// A promise was broken.
    Violated(Violation),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Stop> for Violation {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(why) | Stop::Violated(why) => why,
        }
    }
}

type Step = Result<(), Stop>;

/// What a history went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Images of crashes.
    pub images: u64,
    /// Files that were moved.
    pub moves: u64,
    /// Files that went on elsewhere when a device was full.
    pub overflows: u64,
    /// Names that were replaced by renames.
    pub replaced: u64,
    /// Hard links.
    pub links: u64,
    /// Copies on faster tiers.
    pub copies: u64,
    /// Tables that were to move while they were written.
    pub stayed: u64,
    /// Kills and power cuts.
    pub restarts: u64,
    /// Reads that extents served.
    pub served: u64,
    /// Renames of the directory that were announced.
    pub announced: u64,
    /// Files whose bytes were made durable without their name.
    pub left_names: u64,
}

/// A file that is open to write, at the place that it had then: as hosts do, it follows no move.
struct Written {
    writer: Writer,
    devices: Devices,
    driver: Arc<dyn Driver>,
    handle: Handle,
}

impl Written {
    fn open(devices: &Devices, writer: Writer) -> Result<Self> {
        let (parent, name) = split(&writer.place());
        let driver = devices.tier(&spec(&parent))?;
        let handle = driver.open(&name)?;
        Ok(Self { writer, devices: devices.clone(), driver, handle })
    }

    /// As hosts do, it goes on after a part. It fails where the device lies: what becomes of a
    /// host's own bytes is no matter of names.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let had_struck = self.devices.has_struck();
        let mut done = 0;
        while done < bytes.len() {
            let buffer = Buffer::copy_of(&bytes[done..]);
            let write = Operation::Write { offset: offset + done as u64, buffer, durable: false };
            match self.driver.execute(&self.handle, write).result? {
                0 => return Err(Error::new(ErrorKind::Io, "the device takes no bytes")),
                part => done += part,
            }
        }
        match self.devices.loses_writes() && !had_struck && self.devices.has_struck() {
            true => Err(Error::new(ErrorKind::Io, "the host's own bytes are lost")),
            false => Ok(()),
        }
    }

    /// As a file that is open for appending does.
    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.write(self.handle.len()?, bytes)
    }

    /// Of an append to `len` bytes that a full device refused the first part may be there, as much
    /// as fits.
    fn append_a_part(&self, len: u64, bytes: &[u8]) -> Result<()> {
        let is_there = self.handle.len()? > len;
        let mut part = if is_there { 0 } else { bytes.len() / 2 };
        while part > 0 {
            match self.append(&bytes[..part]) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => part /= 2,
                done => return done,
            }
        }
        Ok(())
    }
}

/// See the module's header.
pub(super) struct Host {
    pub setting: Setting,
    pub devices: Devices,
    pub model: Arc<Mutex<Model>>,
    pub counts: Counts,
    names: Option<Names>,
    open: BTreeMap<String, Arc<NamedFile>>,
    written: BTreeMap<String, Written>,
    random: Random,
}

impl Host {
    pub fn new(setting: Setting, devices: Devices, model: Arc<Mutex<Model>>, seed: u64) -> Self {
        let (open, written, random) = (BTreeMap::new(), BTreeMap::new(), Random::new(seed));
        let (counts, names) = (Counts::default(), None);
        Self { setting, devices, model, counts, names, open, written, random }
    }

    /// Puts the directory over its tiers.
    pub fn make(&mut self) -> Step {
        self.names = Some(self.setting.make(&self.devices)?);
        self.model.lock().made = true;
        self.setting.prepare(&self.devices);
        extents::keep(self.names());
        Ok(())
    }

    fn names(&self) -> &Names {
        self.names.as_ref().expect("it is open")
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn any_name(&mut self) -> &'static str {
        NAMES[self.draw(NAMES.len() as u64) as usize]
    }

    /// A name that is in use, and is `wanted`.
    fn used_name(&mut self, wanted: impl Fn(&Model, FileId) -> bool) -> Option<String> {
        let names: Vec<_> = {
            let model = self.model.lock();
            let names = model.now.iter().filter(|(_, file)| wanted(&model, **file));
            names.map(|(name, _)| name.clone()).collect()
        };
        let count = names.len() as u64;
        (count > 0).then(|| names[self.draw(count) as usize].clone())
    }

    /// One step, and whether everything is as it should be.
    pub fn step(&mut self) -> Step {
        match self.draw(32) {
            0..=4 => self.create(),
            5..=7 => self.append(),
            8..=10 => self.sync(),
            11..=12 => self.rename(),
            13 => self.delete(),
            14 => self.link(),
            15..=17 => self.relevel(),
            18 | 30..=31 => self.sync_directory(),
            19 => self.overflow(),
            20 => self.move_all(),
            21..=23 => self.copy(),
            24..=25 => self.move_written(),
            26 => self.announce_rename(),
            27..=28 => self.read_extents(),
            _ => self.restart(),
        }?;
        self.check()
    }

    fn check(&self) -> Step {
        let found = observe(&self.devices, self.names())?;
        self.model.lock().check_now(&found).map_err(Stop::Violated)
    }

    /// After a step that failed: what is read is one of the things that may be.
    pub fn check_after_failure(&self) -> Result<(), Violation> {
        // A process that did not come up reads nothing.
        let Some(names) = &self.names else { return Ok(()) };
        let found = observe(&self.devices, names)?;
        self.model.lock().check_crash(&found)
    }

    fn create(&mut self) -> Step {
        let name = self.any_name();
        let level = [None, Some(0), Some(2), Some(5)][self.draw(4) as usize];
        self.create_as(name, level)
    }

    fn create_as(&mut self, name: &str, level: Option<u8>) -> Step {
        let class =
            FileClass { holds: Holds::of_name(name), level, origin: Origin::Flush, heat: None };
        let file = {
            let mut model = self.model.lock();
            let file = model.new_file();
            model.release(name);
            model.may_be(name, Some(file), 0);
            model.may_be(name, None, 0);
            file
        };
        let writer = self.names().create(name, class)?;
        self.model.lock().now.insert(name.to_owned(), file);
        self.open.insert(name.to_owned(), Arc::clone(writer.file()));
        let written = Written::open(&self.devices, writer)?;
        self.written.insert(name.to_owned(), written);
        for _ in 0..self.draw(3) {
            self.append_to(name)?;
        }
        Ok(())
    }

    fn append(&mut self) -> Step {
        let Some(name) = self.used_name(|model, file| !model.files[&file].sealed) else {
            return Ok(());
        };
        self.append_to(&name)
    }

    /// The open file of a name.
    fn opened(&mut self, name: &str) -> Result<Arc<NamedFile>> {
        if !self.open.contains_key(name) {
            let file = self.names().open(name)?;
            self.open.insert(name.to_owned(), file);
        }
        Ok(Arc::clone(&self.open[name]))
    }

    fn append_to(&mut self, name: &str) -> Step {
        let written = match self.written.remove(name) {
            Some(written) => written,
            None => {
                let file = self.opened(name)?;
                Written::open(&self.devices, file.to_write()?)?
            }
        };
        let mut bytes = vec![0; 1 + self.draw(1500) as usize];
        self.random.fill(&mut bytes);
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        let len = {
            let mut model = self.model.lock();
            let id = model.now[name];
            let written = &mut model.files.get_mut(&id).expect("it is known").written;
            let len = written.len() as u64;
            written.extend_from_slice(&bytes);
            len
        };
        let written = match written.write(len, &bytes) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                written.append_a_part(len, &bytes)?;
                written.writer.continue_elsewhere(len)?;
                self.counts.overflows += 1;
                let elsewhere = Written::open(&self.devices, written.writer)?;
                elsewhere.append(&bytes)?;
                elsewhere
            }
            done => done.map(|()| written)?,
        };
        self.written.insert(name.to_owned(), written);
        Ok(())
    }

    fn sync(&mut self) -> Step {
        let Some(name) = self.used_name(|_, _| true) else { return Ok(()) };
        self.sync_file(&name)
    }

    fn sync_file(&mut self, name: &str) -> Step {
        let file = self.opened(name)?;
        let (parent, there) = split(&file.place());
        let driver = self.devices.tier(&spec(&parent))?;
        let handle = driver.open(&there)?;
        driver.execute(&handle, Operation::Sync).result?;
        self.model.lock().sync_bytes(name);
        // The names of other files are left to a later sync of the directory, as RocksDB's are.
        if !name.ends_with(".log") && self.draw(2) == 0 {
            self.counts.left_names += 1;
            return Ok(());
        }
        file.synced()?;
        self.model.lock().settle(name);
        Ok(())
    }

    fn is_plain(&self, name: &str) -> Result<bool> {
        Ok(split(&self.names().open(name)?.place()).0 == Path::new(super::HOST))
    }

    fn rename(&mut self) -> Step {
        let Some(from) = self.used_name(|_, _| true) else { return Ok(()) };
        let to = self.any_name();
        if from == to {
            return Ok(());
        }
        // Two renames of a file, of which the second alone survives, would leave two names: as
        // with any file system that does not keep their order.
        if !self.model.lock().is_settled(&from) {
            self.sync_directory()?;
        }
        let replaces = self.model.lock().now.contains_key(to);
        let is_whole = replaces && !(self.is_plain(&from)? && self.is_plain(to)?);
        let file = {
            let mut model = self.model.lock();
            let file = model.now[&from];
            let bytes = &model.files[&file];
            let least = if is_whole { bytes.written.len() } else { bytes.durable };
            model.release(to);
            model.may_be(&from, None, 0);
            model.may_be(to, Some(file), least);
            file
        };
        self.names().rename(&from, to)?;
        self.counts.replaced += u64::from(replaces);
        let mut model = self.model.lock();
        model.now.remove(&from);
        model.now.insert(to.to_owned(), file);
        self.open.remove(to);
        self.written.remove(to);
        let (open, written) = (self.open.remove(&from), self.written.remove(&from));
        self.open.extend(open.map(|open| (to.to_owned(), open)));
        self.written.extend(written.map(|written| (to.to_owned(), written)));
        Ok(())
    }

    fn delete(&mut self) -> Step {
        let Some(name) = self.used_name(|_, _| true) else { return Ok(()) };
        {
            let mut model = self.model.lock();
            model.release(&name);
            model.may_be(&name, None, 0);
        }
        self.open.remove(&name);
        self.written.remove(&name);
        self.names().delete(&name)?;
        self.model.lock().now.remove(&name);
        Ok(())
    }

    /// A file that is whole, closed and durable. It may be written again later.
    fn whole_name(&mut self) -> Option<String> {
        let is_whole = |model: &Model, file: FileId| {
            let bytes = &model.files[&file];
            bytes.synced == bytes.written.len() && bytes.synced > 0
        };
        let name = self.used_name(is_whole)?;
        self.open.remove(&name);
        self.written.remove(&name);
        Some(name)
    }

    fn link(&mut self) -> Step {
        let to = self.any_name();
        let Some(from) = self.whole_name() else { return Ok(()) };
        let (file, is_taken) = {
            let mut model = self.model.lock();
            let (file, is_taken) = (model.now[&from], model.now.contains_key(to));
            if !is_taken {
                let bytes = model.files.get_mut(&file).expect("it is known");
                // What has two names is never written again.
                bytes.sealed = true;
                let least = bytes.durable;
                model.may_be(to, Some(file), least);
            }
            (file, is_taken)
        };
        match self.names().link(&from, self.names(), to) {
            Err(error) if is_taken && error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => {
                linked?;
                self.counts.links += 1;
                self.model.lock().now.insert(to.to_owned(), file);
                Ok(())
            }
        }
    }

    fn relevel(&mut self) -> Step {
        let Some(name) = self.whole_name() else { return Ok(()) };
        let before = self.names().open(&name)?;
        let epoch = || before.epoch().load(std::sync::atomic::Ordering::Acquire);
        let first = epoch();
        let level = self.draw(7) as u8;
        self.names().set_level(&name, level);
        while self.names().move_next()? {}
        self.counts.moves += epoch() - first;
        Ok(())
    }

    /// A table gets its level while it is written: it stays until that has ended.
    fn move_written(&mut self) -> Step {
        let wanted = |model: &Model, file: FileId| !model.files[&file].sealed;
        let Some(name) = self.used_name(wanted).filter(|name| name.ends_with(".sst")) else {
            return Ok(());
        };
        self.append_to(&name)?;
        let level = self.draw(7) as u8;
        self.names().set_level(&name, level);
        while self.names().move_next()? {}
        self.counts.stayed += 1;
        self.append_to(&name)
    }

    fn copy(&mut self) -> Step {
        let Some(name) = self.whole_name() else { return Ok(()) };
        let opened = self.opened(&name)?;
        let is_kept = self.names().keep_copy(&name, TierIndex(0))?;
        self.counts.copies += u64::from(is_kept);
        let is_apart = opened.place_to_read() != opened.place();
        assert!(is_apart || !is_kept, "{name} is read at its own place");
        Ok(())
    }

    /// The directory is to have another path, and does not get it: the process ends first.
    fn announce_rename(&mut self) -> Step {
        self.counts.announced += 1;
        self.names().will_move_to(Path::new(super::ELSEWHERE))?;
        self.restart()
    }

    /// All names go, durably.
    pub fn delete_all(&mut self) -> Step {
        let names: Vec<_> = self.model.lock().now.keys().cloned().collect();
        for name in names {
            self.open.remove(&name);
            self.written.remove(&name);
            self.names().delete(&name)?;
            self.model.lock().now.remove(&name);
        }
        self.sync_directory()
    }

    /// An opening put a link away whose file was gone.
    pub fn lose(&mut self) -> Step {
        let lost = self.devices.home(&Path::new(super::HOST).join(".thermocline/lost"))?;
        lost.make_link("9-9.gone.sst", ".thermocline/tier-0/9-9.gone.sst")?;
        Ok(lost.sync_directory()?)
    }

    /// The directory is taken off its tiers.
    pub fn end(&mut self) -> Step {
        let names = self.names.take().expect("it is open");
        Ok(names.dissolve()?)
    }

    /// The directory is taken off its tiers, with its files.
    pub fn leave(&mut self) -> Step {
        self.written.clear();
        self.open.clear();
        let names = self.names.take().expect("it is open");
        names.leave()?;
        Ok(())
    }

    fn sync_directory(&mut self) -> Step {
        self.names().sync_directory()?;
        self.model.lock().settle_all();
        Ok(())
    }

    /// The fast device takes no more for a while.
    fn overflow(&mut self) -> Step {
        let fast = super::instance(&self.devices.world(), FAST);
        let used: u64 =
            self.devices.look(|world| world.list(&fast)).iter().map(|(_, len)| len).sum();
        self.devices.set_capacity(&fast, Some(used + self.random.below(1000)));
        let name = self.any_name();
        let is_used = self.model.lock().now.contains_key(name);
        let appended = match is_used {
            true => self.append(),
            false => self.create().and_then(|()| self.append()),
        };
        self.devices.set_capacity(&fast, None);
        appended
    }

    /// Everything home, or to where it belongs.
    fn move_all(&mut self) -> Step {
        self.written.clear();
        self.open.clear();
        let moved = match self.random.below(2) {
            0 => self.names().export()?,
            _ => self.names().adopt()?,
        };
        self.counts.moves += moved;
        Ok(())
    }

    /// A table of the deepest level is read as often as it takes to be served, and so is the one
    /// that takes its name.
    fn read_extents(&mut self) -> Step {
        let name = NAMES[self.draw(3) as usize];
        for _ in 0..1 + self.draw(2) {
            self.create_as(name, Some(5))?;
            self.append_to(name)?;
            self.sync_file(name)?;
            self.written.remove(name);
            let file = self.opened(name)?;
            self.counts.served += extents::read(&self.devices, self.names(), &file)?;
        }
        Ok(())
    }

    fn restart(&mut self) -> Step {
        self.counts.restarts += 1;
        if self.draw(2) == 0 {
            // The process ends in order, and what is gathered is kept.
            self.written.clear();
            self.open.clear();
            self.names = None;
        }
        let world = self.devices.world();
        let is_kill = self.draw(2) == 0;
        let world = if is_kill { world.after(Loss::None) } else { self.cut(&world) };
        self.reopen(world)?;
        let found = observe(&self.devices, self.names())?;
        let mut model = self.model.lock();
        let checked = match is_kill {
            true => model.check_now(&found),
            false => model.check_crash(&found),
        };
        checked.map_err(Stop::Violated)?;
        match is_kill {
            true => model.settle_all(),
            false => model.adopt(found),
        }
        Ok(())
    }

    fn cut(&mut self, world: &World) -> World {
        let kept: Vec<_> = world.units().iter().map(|_| self.random.below(2) == 0).collect();
        world.after(Loss::Kept(&kept))
    }

    /// A new process with what is left.
    fn reopen(&mut self, world: World) -> Step {
        self.written.clear();
        self.open.clear();
        let earlier = self.devices.clone();
        self.devices = devices(world);
        self.devices.succeed(&earlier);
        self.devices.watch(earlier.watcher());
        earlier.watch(None);
        earlier.end_process();
        self.names = None;
        let names = self.setting.load(&self.devices)?;
        extents::keep(&names);
        // Until a change begins, names may lead to what a power cut took.
        names.sync_directory()?;
        self.names = Some(names);
        Ok(())
    }
}
