//! The directories of a host, over the tiers of a URI, by paths.

use super::entries::{Entries, give_entries};
use super::files::{File, NewFile, Opened, class};
use crate::arguments::{Place, optional_text, path};
use crate::call::{Poison, call};
use crate::handle::{Held, give, give_to, handle, take, with};
use crate::memory;
use crate::status::{Failure, Status};
use std::ffi::c_char;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use thermocline_device::{HostSettings, Hosts, SystemDevices};
use thermocline_foundation::SystemClock;

/// All directories of a host over the tiers of one URI. A directory is managed from the first log,
/// table or blob that is made in it; all others, and all other files, are the host's plain ones.
///
/// Threads: any number may call at once, except that `thermocline_tiers_close` is the last call.
#[derive(Debug)]
pub struct Tiers(Held<Hosts>);

handle!(Tiers of Hosts, "the tiers");

/// Gets ready to put directories over the tiers that `uri` names, fastest first. Nothing is opened
/// yet.
///
/// `thermocline://?tier=/mnt/nvme/app:20GiB&tier=home:400GiB` names tiers by PATH:CAPACITY; `home`
/// is the directory itself. More settings: `placement=parallelism` (default), `room`, `fill_first`,
/// `log_only`, `top_levels(N)`; `move_threads=auto` (default) or 1 to 16; `cache=off` (default) or
/// `files`, which copies files that are read much to the next faster tier, or `extents`, which
/// keeps parts of files that are read again on the fastest one, also over a restart;
/// `hit_percent=90`, the share of reads that is enough for `files`, counted for `window=1s`;
/// `profile=online` (default), which learns what devices can do from the host's traffic, or
/// `fixed`; `cache_extent=8KiB`, a power of two up to 1 MiB, and `cache_size=4GiB`, what extents
/// may take at most; `free_upper_percent=5` and `free_lower_percent=2`, the free shares of a tier
/// below which its coldest files leave, and below which they do whatever else writes there;
/// `unknown_level=6`, the level that a table counts with before the host has told one. For
/// experiments `emulated=tlc-nvme` behind a tier makes it as slow as that device. In values `%XX`
/// stands for a byte. `thermocline:///etc/app.toml` reads the same from a file.
///
/// THERMOCLINE_INVALID names the part of the URI that is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_open(
    uri: *const c_char,
    tiers: *mut *mut Tiers,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        call(why, || {
            let tiers = Place::required(tiers, null_mut(), "the place for the tiers")?;
            let uri = optional_text(uri, "the URI")?;
            let uri = uri.ok_or_else(|| Failure::invalid("the URI is NULL"))?;
            let settings = HostSettings::of_uri(uri)?;
            let (devices, clock) = (SystemDevices::default(), SystemClock::new());
            let hosts = Hosts::new(Arc::new(devices), Arc::new(clock), settings)?;
            give_to(tiers, Poison::default(), hosts);
            Ok(())
        })
    }
}

/// Ends moves in the background; the one that is being made is finished. Takes the handle. Files
/// that are open stay so until their own `_close`, and keep their directory's lock. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_close(
    tiers: *mut Tiers,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        call(why, || {
            drop(take(tiers));
            Ok(())
        })
    }
}

/// A call with the path of a file or a directory.
///
/// # Safety
/// Each is NULL or what its name says.
unsafe fn with_path(
    tiers: *const Tiers,
    at: *const c_char,
    why: *mut *mut c_char,
    body: impl FnOnce(&Held<Hosts>, &Path) -> Result<(), Failure>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe { with(tiers, why, |tiers| body(tiers, path(at, "the path")?)) }
}

/// A call with two paths of files.
///
/// # Safety
/// As for [`with_path`].
unsafe fn with_paths(
    tiers: *const Tiers,
    from: *const c_char,
    to: *const c_char,
    why: *mut *mut c_char,
    body: impl FnOnce(&Hosts, &Path, &Path) -> thermocline_device::Result<()>,
) -> Status {
    // SAFETY: as the caller of this promises.
    unsafe {
        with(tiers, why, |tiers| {
            let (from, to) = (path(from, "the first path")?, path(to, "the second path")?);
            Ok(body(&tiers.of, from, to)?)
        })
    }
}

/// Makes a file at `path`, in place of what is there, and manages its directory from now on. The
/// host opens the file at `thermocline_file_place`, truncating it, and writes its bytes there. It
/// is being written until `thermocline_file_close`.
///
/// `*file` is the caller's until `thermocline_file_close`; NULL with THERMOCLINE_OK where the file
/// is the host's plain one, which the host makes itself at `path`. THERMOCLINE_OUT_OF_SPACE: every
/// tier refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_create_file(
    tiers: *const Tiers,
    path: *const c_char,
    new_file: *const NewFile,
    file: *mut *mut File,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(file, null_mut(), "the place for the file");
        with_path(tiers, path, why, |tiers, path| {
            let to = to?;
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let made = tiers.of.create(path, class(name, new_file)?)?;
            let made = made.map(Opened::ToWrite);
            to.set(made.map_or(null_mut(), |made| give(tiers.poison.clone(), made)));
            Ok(())
        })
    }
}

/// Finds the file at `path`, to read it. `*file` as for `thermocline_tiers_create_file`; NULL with
/// THERMOCLINE_OK for a plain file, which need not be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_open_file(
    tiers: *const Tiers,
    path: *const c_char,
    file: *mut *mut File,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(file, null_mut(), "the place for the file");
        with_path(tiers, path, why, |tiers, path| {
            let to = to?;
            let found = tiers.of.open(path)?.map(Opened::ToRead);
            to.set(found.map_or(null_mut(), |found| give(tiers.poison.clone(), found)));
            Ok(())
        })
    }
}

/// Finds the file at `path`, before the host opens it at `thermocline_file_place` to write to it
/// again: until `thermocline_file_close` it stays there, unless its device is full. `*file` as for
/// `thermocline_tiers_open_file`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_open_file_to_write(
    tiers: *const Tiers,
    path: *const c_char,
    file: *mut *mut File,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(file, null_mut(), "the place for the file");
        with_path(tiers, path, why, |tiers, path| {
            let to = to?;
            let found = tiers.of.open_to_write(path)?.map(Opened::ToWrite);
            to.set(found.map_or(null_mut(), |found| give(tiers.poison.clone(), found)));
            Ok(())
        })
    }
}

/// Gives a file or a directory, managed or plain, another path, in place of the file that has it.
///
/// THERMOCLINE_INVALID: the two directories have no device in common; copy the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_rename(
    tiers: *const Tiers,
    from: *const c_char,
    to: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_paths(tiers, from, to, why, Hosts::rename) }
}

/// Gives a file, managed or plain, a second path. Files that are linked must not be written again.
///
/// THERMOCLINE_INVALID: the two directories have no device in common; copy the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_link(
    tiers: *const Tiers,
    from: *const c_char,
    to: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_paths(tiers, from, to, why, Hosts::link) }
}

/// Removes a path, managed or plain, and its file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_delete(
    tiers: *const Tiers,
    path: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_path(tiers, path, why, |tiers, path| Ok(tiers.of.delete(path)?)) }
}

/// Cuts or extends a file, managed or plain, to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_truncate(
    tiers: *const Tiers,
    path: *const c_char,
    len: u64,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_path(tiers, path, why, |tiers, path| Ok(tiers.of.truncate(path, len)?)) }
}

/// Lists what the host sees in a directory, managed or plain: links of managed files count as their
/// files, what is of this library is left out. `*entries` is the caller's until
/// `thermocline_entries_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_list(
    tiers: *const Tiers,
    directory: *const c_char,
    entries: *mut *mut Entries,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(entries, null_mut(), "the place for the entries");
        with_path(tiers, directory, why, |tiers, directory| {
            let to = to?;
            to.set(give_entries(&tiers.poison, tiers.of.list(directory)?));
            Ok(())
        })
    }
}

/// Makes all names of a directory, managed or plain, durable as they are now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_sync_directory(
    tiers: *const Tiers,
    directory: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_path(tiers, directory, why, |tiers, at| Ok(tiers.of.sync_directory(at)?)) }
}

/// Removes a directory, managed or plain, in which the host has nothing left, and what is of this
/// library in it and on the tiers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_remove_directory(
    tiers: *const Tiers,
    directory: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_path(tiers, directory, why, |tiers, at| Ok(tiers.of.remove_directory(at)?)) }
}

/// Gives the lock of a managed directory back, once the last of its files is closed, so that
/// another process may change it. The next change here takes it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_release_directory(
    tiers: *const Tiers,
    directory: *const c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe { with_path(tiers, directory, why, |tiers, at| Ok(tiers.of.release(at)?)) }
}

/// The level of a table became known, or is another one now: it moves in the background where
/// placement has it elsewhere. A path that is not there, or a plain one, is OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_set_level(
    tiers: *const Tiers,
    path: *const c_char,
    level: i32,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        with_path(tiers, path, why, |tiers, path| {
            let level = u8::try_from(level)
                .map_err(|_| Failure::invalid(format!("{level} is no level of a table")))?;
            Ok(tiers.of.set_level(path, level)?)
        })
    }
}

/// Bytes that files in a directory can still take: of a managed one on all its tiers, of a plain
/// one on its file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_free_space(
    tiers: *const Tiers,
    directory: *const c_char,
    bytes: *mut u64,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(bytes, 0, "the place for the bytes");
        with_path(tiers, directory, why, |tiers, directory| {
            let to = to?;
            to.set(tiers.of.free_bytes(directory)?);
            Ok(())
        })
    }
}

/// Figures of the managed directories as JSON, for `thermocline_free`: an array with one object for
/// each, with its tiers, on each the files and bytes by level, and what was moved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_tiers_stats(
    tiers: *const Tiers,
    json: *mut *mut c_char,
    why: *mut *mut c_char,
) -> Status {
    // SAFETY: the header asks for it.
    unsafe {
        let to = Place::required(json, null_mut(), "the place for the figures");
        with(tiers, why, |tiers| {
            let to = to?;
            let text = serde_json::to_string(&tiers.of.report());
            let text = text.map_err(|error| Failure::invalid(error.to_string()))?;
            to.set(memory::buffer(text.as_bytes()));
            Ok(())
        })
    }
}
