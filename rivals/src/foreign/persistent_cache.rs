//! RocksDB's cache of blocks on a device, by a shim in C++ (`persistent_cache.cc`).

use rocksdb::{AsRawPtr, Options};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

#[repr(C)]
struct Made {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn free(memory: *mut c_void);
    fn thermocline_persistent_cache_set(
        options: *mut c_void,
        path: *const c_char,
        bytes: u64,
        file_bytes: u32,
        buffer_bytes: u32,
        queue_bytes: u64,
        direct: bool,
        made: *mut *mut Made,
    ) -> *mut c_char;
    fn thermocline_persistent_cache_counts(cache: *const Made, counts: *mut u64);
    fn thermocline_persistent_cache_free(cache: *mut Made);
}

/// Sizes of a cache, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// All of it.
    pub bytes: u64,
    /// One of its files.
    pub file_bytes: u32,
    /// One of the buffers that files are written from; a file has several.
    pub buffer_bytes: u32,
    /// Blocks that wait for a buffer.
    pub queue_bytes: u64,
}

/// A cache in use.
#[derive(Debug)]
pub struct PersistentCache(NonNull<Made>);

// SAFETY: the shim's functions may be called from any thread.
unsafe impl Send for PersistentCache {}
// SAFETY: as above, and its counts from several at once.
unsafe impl Sync for PersistentCache {}

impl PersistentCache {
    /// Makes one below `path` and sets it in `options`, which have their tables' options already.
    pub fn set(
        options: &mut Options,
        path: &Path,
        sizes: Sizes,
        direct: bool,
    ) -> Result<Self, String> {
        let Sizes { bytes, file_bytes, buffer_bytes, queue_bytes } = sizes;
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        let mut made = null_mut();
        // SAFETY: the options live, the path ends in zero, and `made` is written where all is well.
        let wrong = unsafe {
            thermocline_persistent_cache_set(
                options.as_raw_ptr().cast(),
                path.as_ptr(),
                bytes,
                file_bytes,
                buffer_bytes,
                queue_bytes,
                direct,
                &raw mut made,
            )
        };
        match NonNull::new(made) {
            Some(made) => Ok(Self(made)),
            None => Err(text(wrong)),
        }
    }

    /// Blocks that were found and were not, and bytes that were written.
    pub fn counts(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        // SAFETY: the cache lives, and there is room for three.
        unsafe { thermocline_persistent_cache_counts(self.0.as_ptr(), counts.as_mut_ptr()) };
        counts
    }
}

impl Drop for PersistentCache {
    fn drop(&mut self) {
        // SAFETY: it was made by the shim and is given back once.
        unsafe { thermocline_persistent_cache_free(self.0.as_ptr()) };
    }
}

/// A text of the shim's, which is given back.
fn text(text: *mut c_char) -> String {
    if text.is_null() {
        return "no reason".to_owned();
    }
    // SAFETY: it ends in zero and is copied before it goes back.
    let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: `strdup` made it, and nothing has it any more.
    unsafe { free(text.cast()) };
    copy
}
