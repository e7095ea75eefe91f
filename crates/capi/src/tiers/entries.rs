//! The names that a host sees in a directory.

use crate::call::Poison;
use crate::handle::{Handle, Held, close, give, handle};
use std::ffi::{CString, c_char};
use thermocline_device::hosts::HostEntry;

/// Names of a directory, as they were when it was listed.
///
/// Threads: any number may call at once, except that `thermocline_entries_close` is the last call.
#[derive(Debug)]
pub struct Entries(Held<Vec<(CString, u64)>>);

handle!(Entries of Vec<(CString, u64)>, "the entries");

/// One name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// With a zero behind; it stays until the entries are closed. NULL behind the last entry.
    pub name: *const c_char,
    /// Bytes of the file.
    pub len: u64,
}

pub(super) fn give_entries(poison: &Poison, entries: Vec<HostEntry>) -> *mut Entries {
    let named = |entry: HostEntry| Some((CString::new(entry.name).ok()?, entry.len));
    give(poison.clone(), entries.into_iter().filter_map(named).collect())
}

/// The number of names; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_entries_count(entries: *const Entries) -> usize {
    // SAFETY: the header asks for it.
    unsafe { entries.as_ref() }.map_or(0, |entries| entries.held().of.len())
}

/// The name at a position, counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_entries_get(entries: *const Entries, at: usize) -> Entry {
    // SAFETY: the header asks for it.
    let entry = unsafe { entries.as_ref() }.and_then(|entries| entries.held().of.get(at));
    entry.map_or(Entry { name: std::ptr::null(), len: 0 }, |(name, len)| Entry {
        name: name.as_ptr(),
        len: *len,
    })
}

/// Gives the names back. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_entries_close(entries: *mut Entries) {
    // SAFETY: the header asks for it.
    unsafe { close(entries) };
}
