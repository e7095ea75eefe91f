//! Checkpoints: a second database that has the records of now.
//!
//! Everything in memory is flushed; the tables of that moment are linked (or copied, to another
//! file system), and slabs copied, into a new namespace of the same lineage, and a fresh manifest
//! there names them. Writers go on meanwhile. Of slabs the live slots of the moment are copied, and
//! the others are zeros: what they have is older, or newer, and without the manifest it could not
//! be told from what the copy should have ([decision 113]).
//!
//! [decision 113]: ../../../../docs/decisions/0113-a-manifest-made-anew.md

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Held;
use crate::settings::SETTINGS_NAME;
use crate::table_set::manifest::{Edit, Manifest};
use crate::versions::Version;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Devices, FileKind, Origin, TieredFiles};
use thermocline_foundation::FileNumber;

/// What there is at one moment, with nothing half in memory.
struct Moment {
    /// Holding it holds its tables: none is deleted while it is being linked.
    version: Arc<Version>,
    held: Held,
}

impl Engine {
    /// A moment at which no memtable is partly in slots: what is in tables and slots is then all
    /// that was written up to some point, and no batch is cut.
    fn moment(&self) -> Result<Moment> {
        // Flushes of what is written from here on begin once the moment is taken.
        let (log, _flushes) = {
            let mut quiet = self.front.quiesce()?;
            quiet.freeze()?;
            (quiet.number(), self.layout.hold_flushes(quiet.number()))
        };
        self.versions.wait_until_flushed(|frozen| frozen.generation.number() >= log)?;
        let tables = self.versions.tables();
        let version = self.versions.current_full();
        let held = self.layout.hold(&tables, &version)?;
        Ok(Moment { version, held })
    }

    /// See the module's header. A failed checkpoint leaves nothing at `home`.
    pub fn checkpoint(&self, devices: &dyn Devices, home: &Path) -> Result<()> {
        if TieredFiles::exists(devices, home)? {
            let text =
                format!("there is a database at {} already; choose another place", home.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        let Moment { version, held } = self.moment()?;
        let Held { slots, older_versions, last_sequence, frees } = held;
        let tables = version.levels.tables().map(|(_, table)| table.meta.number);
        let numbers: Vec<_> = tables.chain(slots.iter().map(|(slab, _)| slab)).collect();
        let settings = self.shared.settings.to_kept_toml()?;
        let texts = [(SETTINGS_NAME, &settings[..])];
        let clear = |number, offset, bytes: &mut [u8]| {
            if let Some(slab) = slots.get(number) {
                slab.clear_others(offset, bytes);
            }
        };
        let files = &self.shared.files;
        let files = Arc::new(files.create_checkpoint(devices, home, &numbers, &texts, &clear)?);
        let edit = Edit {
            older_versions,
            ..Edit::of_state(version.levels.snapshot(), &slots, FileNumber(0), last_sequence)
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
        drop(frees);
        self.shared.jobs.wake();
        made
    }
}
