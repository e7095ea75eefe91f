//! Opens an LMDB environment.

use heed::{Env, EnvFlags, EnvOpenOptions};
use std::path::Path;

/// Opens the environment in the directory `path`, which must exist. Without `sync` a commit
/// reaches the page cache: it survives the process and not a loss of power.
pub fn open(path: &Path, map_bytes: usize, readers: u32, sync: bool) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes).max_readers(readers);
    // No read-ahead: look-ups are random and the data is larger than memory.
    let flags =
        if sync { EnvFlags::NO_READ_AHEAD } else { EnvFlags::NO_READ_AHEAD | EnvFlags::NO_SYNC };
    // SAFETY: NO_SYNC and NO_READ_AHEAD do not weaken what a reader in this process may rely on;
    // the harness opens a directory in one process once, on a file system with working locks and
    // maps, and nothing else writes the file.
    unsafe { options.flags(flags).open(path) }
}
