//! What can go wrong with one call to a device, and when it does.

use std::path::{Path, PathBuf};

/// What is asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are the calls of the driver's contract")]
pub enum CallKind {
    Open,
    List,
    Lock,
    Len,
    Space,
    Read,
    ReadLink,
    CreateDirectory,
    RemoveDirectory,
    Create,
    Delete,
    Rename,
    Link,
    SyncDirectory,
    Allocate,
    Truncate,
    Write,
    Sync,
}

impl CallKind {
    /// The call changes something, or makes a change durable.
    pub fn changes(self) -> bool {
        self >= Self::CreateDirectory
    }

    /// The call may need room on the device.
    pub fn takes_room(self) -> bool {
        matches!(
            self,
            Self::CreateDirectory
                | Self::Create
                | Self::Rename
                | Self::Link
                | Self::Allocate
                | Self::Write
        )
    }
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// What was asked.
    pub kind: CallKind,
    /// The file, where it is about one.
    pub name: String,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call fails with this error number of the operating system and does nothing.
    Error(i32),
    /// Half of the bytes are moved, and the call says so.
    Short,
    /// Half of the bytes are written, and the call fails.
    Torn,
    /// A write that is acknowledged and never happens.
    Lost,
    /// A transfer that hits another place: of the same file (even) or of another one (odd),
    /// perhaps on another tier.
    Misdirected(u64),
    /// A read that returns what was there at the last sync.
    Stale,
    /// A bit is flipped on the way.
    Flip(u64),
    /// The call takes so many nanoseconds longer.
    Stall(u64),
    /// While the call is under way the clock jumps forward by so many nanoseconds.
    Jump(u64),
    /// While the call is under way the wall clock is set forward by so many nanoseconds, or back.
    SetWall(i64),
}

/// A fault and its moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the call, counted from zero over all directories.
    pub at: u64,
    /// All later calls of the same directory that the kind applies to fail as well.
    pub sticky: bool,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// A fault that waits for its call, or goes on.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub fault: Fault,
    /// Where it struck, so that a sticky one knows its directory.
    pub struck: Option<PathBuf>,
    /// It struck a write for which the device had promised room.
    pub breaks_promise: bool,
    /// It struck something else than the block cache's own.
    pub beyond_cache: bool,
}

/// Logs and journals have the device keep room before they write.
fn keeps_room(name: &str) -> bool {
    [".log", ".manifest", ".map"].iter().any(|end| name.ends_with(end))
}

/// Files of the block cache, and its list of lives, also under the name that it is written with.
fn is_of_cache(name: &str) -> bool {
    name.ends_with(".cache") || name.starts_with("cache-lives.txt")
}

impl Armed {
    /// What happens to call number `call` of `kind` on `directory`.
    pub fn meet(
        &mut self,
        call: u64,
        kind: CallKind,
        directory: &Path,
        name: &str,
    ) -> Option<FaultKind> {
        let first = self.struck.is_none() && call >= self.fault.at;
        let again = self.fault.sticky && self.struck.as_deref() == Some(directory);
        if !(first && call == self.fault.at || again) || !applies(self.fault.kind, kind) {
            return None;
        }
        self.struck = Some(directory.to_owned());
        self.breaks_promise |= kind == CallKind::Write && keeps_room(name);
        self.beyond_cache |= !is_of_cache(name);
        Some(self.fault.kind)
    }
}

impl FaultKind {
    /// A device has no room.
    pub fn is_full(self) -> bool {
        let full = [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT];
        full.iter().any(|full| self == Self::Error(full.raw_os_error()))
    }
}

/// A full device fails only what takes room, and only transfers can be torn, lost or misdirected.
fn applies(fault: FaultKind, call: CallKind) -> bool {
    match fault {
        full if full.is_full() => call.takes_room(),
        FaultKind::Error(number) if number == rustix::io::Errno::ROFS.raw_os_error() => {
            call.changes()
        }
        FaultKind::Error(_) | FaultKind::Stall(_) | FaultKind::Jump(_) | FaultKind::SetWall(_) => {
            true
        }
        FaultKind::Short | FaultKind::Misdirected(_) | FaultKind::Flip(_) => {
            matches!(call, CallKind::Read | CallKind::Write)
        }
        FaultKind::Torn | FaultKind::Lost => call == CallKind::Write,
        FaultKind::Stale => call == CallKind::Read,
    }
}
