//! Checkpoints: a second database that has the records of now.
//!
//! Everything in memory is flushed; the tables of that moment are linked (or copied, to another
//! file system), and slabs copied, into a new namespace of the same lineage, and a fresh manifest
//! there names them. Writers go on meanwhile.

use crate::environment::SETTINGS_NAME;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Edit, Manifest, broken_slots};
use crate::state::{Engine, ReadState, full_state};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Devices, FileKind, Origin, TieredFiles};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::{FreesHeld, LiveSlots, SlabChange, SlabLive};

/// What there is at one moment, with nothing half in memory.
struct Moment {
    /// Holding it holds its tables: none is deleted while it is being linked.
    state: Arc<ReadState>,
    slots: LiveSlots,
    last_sequence: Sequence,
    older_versions: u64,
    /// Slots that are freed from here on keep their records until they are copied.
    held: Option<FreesHeld>,
}

impl Engine {
    /// A moment at which no memtable is partly in slots: what is in tables and slots is then all
    /// that was written up to some point, and no batch is cut.
    fn moment(&self) -> Result<Moment> {
        let Some(fast) = &self.fast else {
            self.flush()?;
            let state = self.read_state.load_full();
            let newest = state.levels.tables().map(|(_, table)| table.meta.largest_sequence).max();
            let last_sequence = newest.unwrap_or_default();
            let slots = LiveSlots::default();
            return Ok(Moment { state, slots, last_sequence, older_versions: 0, held: None });
        };
        // Flushes of what is written from here on begin once the moment is taken.
        let _flushes = {
            let mut leader = self.leader.lock();
            self.latch.check()?;
            self.freeze(&mut leader)?;
            fast.flushes.hold_from(leader.log.number)
        };
        self.wait_until_flushed(|frozen| fast.flushes.is_held(frozen))?;
        let tables = self.tables.lock();
        // Held from the moment on, and not while flushes are waited for: they may need the room.
        let held = Some(fast.slabs.hold_frees());
        let (state, mut slots) = (self.read_state.load_full(), tables.slots.clone());
        // A slab without records may be on its way out, and is of no use to the copy.
        let is_empty =
            |(file, slab): (FileNumber, &SlabLive)| (slab.slots.count() == 0).then_some(file);
        for file in tables.slots.iter().filter_map(is_empty) {
            slots.apply(&SlabChange::removal(file)).map_err(broken_slots)?;
        }
        let (last_sequence, older_versions) = (tables.last_sequence, tables.older_versions);
        Ok(Moment { state, slots, last_sequence, older_versions, held })
    }

    /// See the module's header. A failed checkpoint leaves nothing at `home`.
    pub fn checkpoint(&self, devices: &dyn Devices, home: &Path) -> Result<()> {
        if TieredFiles::exists(devices, home)? {
            let text =
                format!("there is a database at {} already; choose another place", home.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        let Moment { state, slots, last_sequence, older_versions, held } = self.moment()?;
        let tables = state.levels.tables().map(|(_, table)| table.meta.number);
        let numbers: Vec<_> = tables.chain(slots.iter().map(|(slab, _)| slab)).collect();
        let settings = self.settings.to_kept_toml()?;
        let texts = [(SETTINGS_NAME, &settings[..])];
        let files = Arc::new(self.files.create_checkpoint(devices, home, &numbers, &texts)?);
        let edit = Edit {
            older_versions: Some(older_versions).filter(|_| !slots.is_empty()),
            ..full_state(&state.levels, &slots, FileNumber(0), last_sequence)
        };
        let made = (|| {
            let manifest = Manifest::create(&files, &edit, Origin::Foreground)?;
            Ok(files.close(&[(FileKind::Manifest, manifest.extent())])?)
        })();
        let made = made.inspect_err(|_| {
            if let Err(error) = files.abandon(devices) {
                tracing::warn!(%error, "a half-made checkpoint could not be removed");
            }
        });
        // What waited for slots may look again.
        drop(held);
        self.jobs.wake();
        made
    }
}
