//! Cutting the power of a mounted file system, for tests: after [`PowerSwitch::cut`] every
//! operation on it fails, nothing that was not on the device reaches it any more, and the journal
//! is not written out. Unmounting and mounting again is then what a machine does after a power cut.
//!
//! This is the shutdown call of XFS, which ext4 and f2fs have too. Only root may cut. Cut only a
//! file system that no other program uses: what is open there is lost. Built with the feature
//! `power-switch`, which no product turns on.
//!
//! Threads: any.
#![allow(unsafe_code)]

use super::disk::failure;
use crate::error::Result;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};
use std::path::{Path, PathBuf};

/// `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`: 0x8004587d on most architectures.
const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
/// Do not write the journal out first: what was not durable is gone.
const WITHOUT_LOG_FLUSH: u32 = 2;

/// A file system that can be cut off. Drop it before unmounting.
#[derive(Debug)]
pub struct PowerSwitch {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl PowerSwitch {
    /// The switch of the file system that `path` is on.
    pub fn of(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| failure("open directory", path, errno))?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Cuts the power. Fails where the file system has no such call or the caller is not root.
    pub fn cut(&self) -> Result<()> {
        // SAFETY: the call reads one u32 behind the pointer that `Setter` passes, on any file
        // system that knows it, and others answer ENOTTY; nothing in this process is touched.
        unsafe { ioctl(self.descriptor.as_fd(), Setter::<SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH)) }
            .map_err(|errno| failure("cut the power of", &self.path, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_the_call_says_so_and_lives_on() {
        // /proc knows no shutdown, not even for root.
        let switch = PowerSwitch::of(Path::new("/proc/self")).unwrap();
        let error = switch.cut().unwrap_err();
        assert!(error.to_string().contains("/proc/self"), "{error}");
        assert!(PowerSwitch::of(Path::new("/proc/self/absent")).is_err());
        assert!(Path::new("/proc/self/stat").exists());
    }
}
