//! All open slabs of a store: what the engine holds and asks.
//!
//! ```text
//!   open        table of slabs by id, replaced whole when one comes or goes; readers load it
//!   allocation  which slots are free, reserved, live, held (allocation.rs); one lock, no I/O in it
//! ```
//! 1. Readers take no lock: they load the table and read the file. A slab may be removed and a slot
//!    be given to another record while they do; then what they find does not fit what they look
//!    for, and they ask their index again.
//! 2. The table and the allocation change together, under the allocation's lock.
//! 3. A slab that was removed has no id any more: reading there is `NotFound`, never `Corrupt`.
//!
//! Locks: a slab's `writing` before `allocation`; `allocation` only for a moment and never during
//! I/O. Threads: shared freely.

use crate::address::{SlabId, SlotAddress};
use crate::allocation::{Allocation, SlabSlots};
use crate::format::{HEADER_BYTES, encode_header};
use crate::live::{LiveSlots, SlabShape};
use crate::size_class::{SLAB_BYTES_MIN, SizeClasses};
use crate::slab::Slab;
use crate::stats::{KeptReads, SlabStats};
use std::sync::Arc;
use thermocline_device::{
    Error, ErrorKind, File, FileKind, ReadAt, Result, TieredFiles, read_batch, sync_batch,
};
use thermocline_foundation::sync::{ArcSwap, Mutex};
use thermocline_foundation::{Counter, FileNumber, Planted, planted, sync_site};

/// All slabs by id; none where one was removed.
pub(crate) type Table = Vec<Option<Arc<Slab>>>;

/// The slabs of a store. See the module.
#[derive(Debug)]
pub struct Slabs {
    pub(crate) files: Arc<TieredFiles>,
    pub(crate) classes: SizeClasses,
    pub(crate) open: ArcSwap<Table>,
    pub(crate) allocation: Mutex<Allocation>,
    pub(crate) kept_reads: Counter,
    pub(crate) kept_read_bytes: Counter,
    pub(crate) sealed_bytes: Counter,
}

/// Headers are read so many at once.
const OPENED_AT_ONCE: usize = 256;

/// A slab of which the header page, or the file's length, is not as the manifest says.
#[derive(Debug)]
pub struct DamagedHeader {
    /// The slab's file.
    pub file: FileNumber,
    /// What is wrong.
    pub error: Error,
    /// The file has all slots.
    pub is_long_enough: bool,
}

impl Slabs {
    /// Opens the slabs that the manifest lists, reading one page of each. New ones will have
    /// `slab_bytes`, unless [`Slabs::set_slab_bytes_min`] lets them be shorter. No slab is made
    /// until [`Slabs::set_limit_bytes`] allows it.
    ///
    /// # Errors
    /// `NotFound` where a file is missing, `Corrupt` where a header page is damaged or not what the
    /// manifest says, `NewerFormat`.
    pub fn open(files: Arc<TieredFiles>, slab_bytes: u64, live: &LiveSlots) -> Result<Arc<Self>> {
        let (slabs, damage) = Self::open_damaged(files, slab_bytes, live)?;
        damage.into_iter().next().map_or(Ok(slabs), |slab| Err(slab.error))
    }

    /// As [`Slabs::open`], also where header pages or lengths are not as the manifest says. The
    /// manifest says all that header pages do, and slots are checked one by one; what is wrong is
    /// given back.
    ///
    /// # Errors
    /// `NotFound` where a file is missing, `NewerFormat`, and those of the device.
    pub fn open_damaged(
        files: Arc<TieredFiles>,
        slab_bytes: u64,
        live: &LiveSlots,
    ) -> Result<(Arc<Self>, Vec<DamagedHeader>)> {
        let mut damage = Vec::new();
        let mut opened = Vec::with_capacity(live.len());
        for (number, slab) in live.iter() {
            opened.push((files.open_file(number)?, slab.shape));
        }
        for batch in opened.chunks(OPENED_AT_ONCE) {
            check_headers(batch, &mut damage)?;
        }
        let classes = SizeClasses::new(slab_bytes);
        let mut allocation = Allocation::new(classes.len(), classes.slab_bytes());
        let mut table: Table = Vec::with_capacity(opened.len());
        for ((file, shape), (_, slab)) in opened.into_iter().zip(live.iter()) {
            let single = shape.is_single().then(|| classes.largest());
            let class =
                single.or_else(|| classes.class_with(shape.slot_bytes)).ok_or_else(|| {
                    Error::corrupt(file.describe(), 0, "its slots are of a size that no class has")
                })?;
            let id = allocation.add_open(file.number(), class, shape, &slab.slots);
            table.push(Some(Arc::new(Slab::new(id, file, shape))));
        }
        let open = ArcSwap::from_pointee(table);
        let slabs = Arc::new(Self {
            files,
            classes,
            open,
            allocation: Mutex::new(allocation),
            kept_reads: Counter::default(),
            kept_read_bytes: Counter::default(),
            sealed_bytes: Counter::default(),
        });
        Ok((slabs, damage))
    }

    /// The sizes of slots, and which record fits which.
    pub fn classes(&self) -> &SizeClasses {
        &self.classes
    }

    /// Files of slabs may take so many bytes together. A lower limit than what they take removes
    /// nothing; see [`Slabs::take_empty`].
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.allocation.lock().limit_bytes = limit_bytes;
    }

    /// New slabs of a class that has few have so many bytes, and longer ones as it has more. A few
    /// records so large that such a slab would not have the slots for them get slabs of their own.
    pub fn set_slab_bytes_min(&self, slab_bytes: u64) {
        let slab_bytes = slab_bytes.max(SLAB_BYTES_MIN) / HEADER_BYTES * HEADER_BYTES;
        self.allocation.lock().slab_bytes_min = slab_bytes.min(self.classes.slab_bytes());
    }

    /// The ids of all slabs, ascending.
    pub fn ids(&self) -> Vec<SlabId> {
        self.open.load().iter().flatten().map(|slab| slab.id).collect()
    }

    /// The file of a slab; none where it was removed.
    pub fn file_number(&self, id: SlabId) -> Option<FileNumber> {
        self.slab(id).ok().map(|slab| slab.file.number())
    }

    /// How a slab is divided; none where it was removed.
    pub fn shape(&self, id: SlabId) -> Option<SlabShape> {
        self.slab(id).ok().map(|slab| slab.shape)
    }

    /// The slab in a file.
    pub fn id_of(&self, file: FileNumber) -> Option<SlabId> {
        self.allocation.lock().by_file.get(&file).copied()
    }

    /// Writes the header page of a slab anew, as the manifest has it, and gives the file its length
    /// back. For a repair, before anything else is written.
    pub fn mend_header(&self, id: SlabId) -> Result<()> {
        let slab = self.slab(id)?;
        slab.file.allocate(slab.shape.file_bytes())?;
        slab.file.write(0, encode_header(&slab.file.place(0), slab.shape)).1?;
        sync_site("slab-header", || slab.file.sync())
    }

    /// Makes what was written to the slabs durable, all at once. Each id once, in any order.
    ///
    /// # Errors
    /// The first failure. It is final: what was written counts as lost.
    pub fn sync(&self, slabs: &[SlabId]) -> Result<()> {
        let slabs = slabs.iter().map(|id| self.slab(*id)).collect::<Result<Vec<_>>>()?;
        let mut files: Vec<&File> = slabs.iter().map(|slab| &*slab.file).collect();
        if planted(Planted::SlotSyncSkipsLastSlab) {
            files.pop();
        }
        sync_batch(&files).into_iter().collect()
    }

    /// Bytes of whole slabs, the shortest, that may still be made if all may take `limit_bytes`.
    /// (What they may take at this moment can be more, for a caller that overdraws it.)
    pub fn bytes_to_come(&self, limit_bytes: u64) -> u64 {
        let allocation = self.allocation.lock();
        let left = limit_bytes.saturating_sub(allocation.file_bytes);
        left / allocation.slab_bytes_min * allocation.slab_bytes_min
    }

    /// Figures of the moment.
    pub fn stats(&self) -> SlabStats {
        self.allocation.lock().stats()
    }

    /// The file of each slab, with its slots that have a record and their bytes.
    pub fn live_by_file(&self) -> Vec<(FileNumber, u64, u64)> {
        let allocation = self.allocation.lock();
        let live = |slab: &SlabSlots| {
            let slots = u64::from(slab.live.count());
            (slab.file, slots, slots * u64::from(slab.shape.slot_bytes))
        };
        allocation.slabs.values().map(live).collect()
    }

    /// What writes have read since opening because they must keep it.
    pub fn kept_reads(&self) -> KeptReads {
        KeptReads { reads: self.kept_reads.get(), bytes: self.kept_read_bytes.get() }
    }

    /// Bytes of records that writes have computed checksums of since opening: each record once.
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed_bytes.get()
    }

    /// The header page of a slab is as it was made.
    pub(crate) fn check_header(&self, slab: &Slab) -> Result<()> {
        let page = slab.file.read(0, HEADER_BYTES as usize)?;
        Slab::check_header(&slab.file, &page, slab.shape)
    }

    pub(crate) fn slab(&self, id: SlabId) -> Result<Arc<Slab>> {
        let found = self.open.load().get(id.0 as usize).and_then(Clone::clone);
        found.ok_or_else(|| gone(id))
    }

    pub(crate) fn slab_of(&self, address: SlotAddress) -> Result<Arc<Slab>> {
        let slab = self.slab(address.slab)?;
        if address.slot >= slab.shape.slots {
            let text = format!("{} has no slot {}", slab.file.describe(), address.slot);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(slab)
    }
}

/// Reads and checks the header pages of some slabs, in one batch; gathers what is damaged.
fn check_headers(slabs: &[(Arc<File>, SlabShape)], damage: &mut Vec<DamagedHeader>) -> Result<()> {
    if let Some((file, _)) = slabs.iter().find(|(file, _)| file.kind() != FileKind::Slab) {
        return Err(Error::corrupt(file.describe(), 0, "the manifest lists it as a slab"));
    }
    let len = HEADER_BYTES as usize;
    let reads: Vec<_> = slabs.iter().map(|(file, _)| ReadAt { file, offset: 0, len }).collect();
    for ((file, shape), page) in slabs.iter().zip(read_batch(&reads)) {
        match page.and_then(|page| Slab::check_header(file, &page, *shape)) {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                let is_long_enough = file.len()? >= shape.file_bytes();
                damage.push(DamagedHeader { file: file.number(), error, is_long_enough });
            }
            checked => checked?,
        }
    }
    Ok(())
}

#[cold]
fn gone(id: SlabId) -> Error {
    Error::new(ErrorKind::NotFound, format!("slab {} was removed; ask the index again", id.0))
}
