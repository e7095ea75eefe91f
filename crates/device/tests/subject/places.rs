//! Where tests have their files: directories beside the build's output, and file systems of their
//! own.

#![allow(clippy::disallowed_macros, reason = "a test that is passed over says why")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use thermocline_foundation::{Clock, SystemClock};

/// An empty directory beside the build's output, which is on a disk more often than `/tmp` is.
pub fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// A file system in memory, mounted while it lives. Needs the right to mount.
pub struct Mount {
    directory: TempDir,
}

impl Mount {
    /// `kind` of file system, with `options` to mount it by.
    pub fn new(kind: &str, options: &str) -> Option<Self> {
        let directory = scratch();
        let mount = Command::new("mount")
            .args(["-t", kind, "-o", options, kind])
            .arg(directory.path())
            .output();
        match mount {
            Ok(done) if done.status.success() => Some(Self { directory }),
            other => {
                eprintln!("passed over: cannot mount {kind}: {other:?}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Mounts it again, `ro` or `rw`. Files just closed may keep it busy for a moment: a ring lets
    /// go of a request's file after its completion, a child process of another test when it starts.
    pub fn make(&self, mode: &str) {
        let options = format!("remount,{mode}");
        for _ in 0..200 {
            let mut mount = Command::new("mount");
            let done = mount.args(["-o", &options]).arg(self.path()).output().unwrap();
            if done.status.success() {
                return;
            }
            clock().sleep(Duration::from_millis(10));
        }
        panic!("cannot mount {} {mode}", self.path().display());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, so that an open descriptor of a failed test does not keep the mount.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
