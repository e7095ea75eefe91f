//! Checkpoints: a second database that has the records of now.
//!
//! Everything in memory is flushed; the tables of that moment are linked (or copied, to another
//! file system) into a new namespace of the same lineage, and a fresh manifest there names them.
//! Writers go on meanwhile.

use crate::db::SETTINGS_NAME;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::Manifest;
use crate::state::{Engine, full_state};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Devices, FileKind, Origin, TieredFiles};
use thermocline_foundation::FileNumber;

impl Engine {
    /// See the module's header. A failed checkpoint leaves nothing at `home`.
    pub fn checkpoint(&self, devices: &dyn Devices, home: &Path) -> Result<()> {
        if TieredFiles::exists(devices, home)? {
            let text =
                format!("there is a database at {} already; choose another place", home.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        self.flush()?;
        // Holding the state holds its tables: none is deleted while it is being linked.
        let state = self.read_state.load_full();
        let numbers: Vec<_> = state.levels.tables().map(|(_, table)| table.meta.number).collect();
        let files = Arc::new(self.files.create_checkpoint(devices, home, &numbers)?);
        let last_sequence =
            state.levels.tables().map(|(_, table)| table.meta.largest_sequence).max();
        let edit = full_state(&state.levels, FileNumber(0), last_sequence.unwrap_or_default());
        let made = (|| {
            let manifest = Manifest::create(&files, &edit, Origin::Foreground)?;
            files.write_home_file(SETTINGS_NAME, &self.settings.to_kept_toml()?)?;
            Ok(files.close(&[(FileKind::Manifest, manifest.extent())])?)
        })();
        made.inspect_err(|_| {
            if let Err(error) = files.abandon(devices) {
                tracing::warn!(%error, "a half-made checkpoint could not be removed");
            }
        })
    }
}
