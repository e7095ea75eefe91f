//! LevelDB's C interface, as far as it is needed.
//!
//! Ownership: [`Database`] owns the database and every object its options refer to, and destroys
//! them in the opposite order. LevelDB is safe to use from many threads; an iterator belongs to
//! one.

use super::plugin::Plugin;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// An opaque object of the library.
#[repr(C)]
struct Object {
    private: [u8; 0],
}

type Pointer = *mut Object;

unsafe extern "C" {
    fn leveldb_open(options: Pointer, name: *const c_char, error: *mut *mut c_char) -> Pointer;
    fn leveldb_close(db: Pointer);
    fn leveldb_put(
        db: Pointer,
        options: Pointer,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_delete(
        db: Pointer,
        options: Pointer,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: Pointer,
        options: Pointer,
        key: *const u8,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    fn leveldb_property_value(db: Pointer, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: Pointer,
        start: *const u8,
        start_len: usize,
        limit: *const u8,
        limit_len: usize,
    );
    fn leveldb_create_iterator(db: Pointer, options: Pointer) -> Pointer;
    fn leveldb_iter_destroy(iterator: Pointer);
    fn leveldb_iter_valid(iterator: Pointer) -> c_uchar;
    fn leveldb_iter_seek(iterator: Pointer, key: *const u8, key_len: usize);
    fn leveldb_iter_next(iterator: Pointer);
    fn leveldb_iter_key(iterator: Pointer, len: *mut usize) -> *const u8;
    fn leveldb_iter_value(iterator: Pointer, len: *mut usize) -> *const u8;
    fn leveldb_iter_get_error(iterator: Pointer, error: *mut *mut c_char);
    fn leveldb_options_create() -> Pointer;
    fn leveldb_options_destroy(options: Pointer);
    fn leveldb_options_set_env(options: Pointer, env: Pointer);
    fn leveldb_env_destroy(env: Pointer);
    fn leveldb_options_set_create_if_missing(options: Pointer, value: c_uchar);
    fn leveldb_options_set_write_buffer_size(options: Pointer, bytes: usize);
    fn leveldb_options_set_max_open_files(options: Pointer, files: c_int);
    fn leveldb_options_set_block_size(options: Pointer, bytes: usize);
    fn leveldb_options_set_cache(options: Pointer, cache: Pointer);
    fn leveldb_options_set_filter_policy(options: Pointer, policy: Pointer);
    fn leveldb_options_set_compression(options: Pointer, kind: c_int);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> Pointer;
    fn leveldb_filterpolicy_destroy(policy: Pointer);
    fn leveldb_cache_create_lru(bytes: usize) -> Pointer;
    fn leveldb_cache_destroy(cache: Pointer);
    fn leveldb_readoptions_create() -> Pointer;
    fn leveldb_readoptions_destroy(options: Pointer);
    fn leveldb_writeoptions_create() -> Pointer;
    fn leveldb_writeoptions_destroy(options: Pointer);
    fn leveldb_writeoptions_set_sync(options: Pointer, value: c_uchar);
    fn leveldb_free(pointer: *mut c_void);
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Of one memtable; there are two.
    pub write_buffer: usize,
    /// Of the block cache.
    pub cache: usize,
    /// Of a data block.
    pub block: usize,
    /// Every write is synced.
    pub sync: bool,
}

/// An open database.
pub struct Database {
    db: Pointer,
    options: Pointer,
    cache: Pointer,
    filter: Pointer,
    read: Pointer,
    write: Pointer,
    sync_write: Pointer,
    tiers: Option<Tiers>,
}

/// The plugin's file.
pub const FILE: &str = "libleveldb_plugin-1.23.so";
const HOST: &str = "leveldb";

/// LevelDB's environment over tiers.
struct Tiers {
    plugin: Plugin,
    uri: CString,
    env: Pointer,
}

impl Tiers {
    fn open(uri: &str) -> Result<Self, String> {
        let plugin = Plugin::load(FILE, HOST, leveldb_free)?;
        let uri = CString::new(uri).map_err(|error| error.to_string())?;
        let env = plugin.env(&uri)?.cast();
        Ok(Self { plugin, uri, env })
    }
}

// SAFETY: leveldb::DB, its cache and its filter policy are documented as safe for use by many
// threads without synchronisation; the option objects are not changed after `open`.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// Takes over an error text of the library.
fn outcome(error: *mut c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library hands over a string that ends in zero and is freed with leveldb_free.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: as above; `text` is a copy.
    unsafe { leveldb_free(error.cast()) };
    Err(format!("LevelDB: {text}"))
}

impl Database {
    /// Opens the database at `path`, making it where it is not there; over the tiers of `uri`.
    pub fn open(
        path: &Path,
        configuration: Configuration,
        uri: Option<&str>,
    ) -> Result<Self, String> {
        let tiers = uri.map(Tiers::open).transpose()?;
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| format!("{} holds a zero byte", path.display()))?;
        // SAFETY: each object is made by its own constructor and used as the header of the library
        // says; all of them live until `drop`.
        let mut database = unsafe {
            Self {
                db: null_mut(),
                options: leveldb_options_create(),
                cache: leveldb_cache_create_lru(configuration.cache),
                filter: leveldb_filterpolicy_create_bloom(10),
                read: leveldb_readoptions_create(),
                write: leveldb_writeoptions_create(),
                sync_write: leveldb_writeoptions_create(),
                tiers,
            }
        };
        let options = database.options;
        if let Some(tiers) = &database.tiers {
            // SAFETY: both live until `drop`.
            unsafe { leveldb_options_set_env(options, tiers.env) };
        }
        let mut error = null_mut();
        // SAFETY: as above; `name` outlives the call, and an error is taken over below.
        database.db = unsafe {
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_write_buffer_size(options, configuration.write_buffer);
            leveldb_options_set_max_open_files(options, 50_000);
            leveldb_options_set_block_size(options, configuration.block);
            leveldb_options_set_cache(options, database.cache);
            leveldb_options_set_filter_policy(options, database.filter);
            leveldb_options_set_compression(options, 0);
            leveldb_writeoptions_set_sync(database.write, configuration.sync.into());
            leveldb_writeoptions_set_sync(database.sync_write, 1);
            leveldb_open(options, name.as_ptr(), &raw mut error)
        };
        outcome(error)?;
        Ok(database)
    }

    /// What lies where and what moved, as JSON; none without tiers.
    pub fn tier_stats(&self) -> Option<String> {
        let tiers = self.tiers.as_ref()?;
        tiers.plugin.stats(&tiers.uri)
    }

    /// Puts the value of `key` into `value`; false where there is none.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, String> {
        value.clear();
        let (mut error, mut len) = (null_mut(), 0);
        let (read, at) = (self.read, key.as_ptr());
        // SAFETY: `db` is open and `key` outlives the call.
        let found =
            unsafe { leveldb_get(self.db, read, at, key.len(), &raw mut len, &raw mut error) };
        outcome(error)?;
        let Some(found) = NonNull::new(found) else { return Ok(false) };
        // SAFETY: the library returned `len` bytes at `found`, which stay until they are freed
        // here.
        unsafe {
            value.extend_from_slice(std::slice::from_raw_parts(found.as_ptr(), len));
            leveldb_free(found.as_ptr().cast());
        }
        Ok(true)
    }

    /// Sets `key` to `value`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut error = null_mut();
        let (at, to) = (key.as_ptr(), value.as_ptr());
        // SAFETY: `db` is open; key and value outlive the call.
        unsafe {
            leveldb_put(self.db, self.write, at, key.len(), to, value.len(), &raw mut error);
        }
        outcome(error)
    }

    /// Removes `key`.
    pub fn delete(&self, key: &[u8]) -> Result<(), String> {
        self.delete_with(self.write, key)
    }

    /// Makes the log durable: removes a key of no length, which is never there, with a sync.
    pub fn sync(&self) -> Result<(), String> {
        self.delete_with(self.sync_write, &[])
    }

    fn delete_with(&self, options: Pointer, key: &[u8]) -> Result<(), String> {
        let mut error = null_mut();
        // SAFETY: `db` is open; the key outlives the call.
        unsafe { leveldb_delete(self.db, options, key.as_ptr(), key.len(), &raw mut error) };
        outcome(error)
    }

    /// Up to `count` records from the first one at or after `from`; returns how many.
    pub fn scan(
        &self,
        from: &[u8],
        count: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, String> {
        let mut error = null_mut();
        let mut found = 0;
        // SAFETY: the iterator is made, used and destroyed here, in one thread; key and value stay
        // until it moves, which is after `visit` has returned.
        unsafe {
            let iterator = leveldb_create_iterator(self.db, self.read);
            leveldb_iter_seek(iterator, from.as_ptr(), from.len());
            while found < count && leveldb_iter_valid(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = leveldb_iter_key(iterator, &raw mut key_len);
                let value = leveldb_iter_value(iterator, &raw mut value_len);
                visit(
                    std::slice::from_raw_parts(key, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
                found += 1;
                leveldb_iter_next(iterator);
            }
            leveldb_iter_get_error(iterator, &raw mut error);
            leveldb_iter_destroy(iterator);
        }
        outcome(error)?;
        Ok(found)
    }

    /// Writes the memtable out: a range without keys lets no table be compacted.
    pub fn flush(&self) {
        let end = [0_u8];
        // SAFETY: `db` is open; both ends of the range outlive the call.
        unsafe { leveldb_compact_range(self.db, end.as_ptr(), 0, end.as_ptr(), 1) };
    }

    /// A property's text; none where there is no such property.
    pub fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: `db` is open and `name` ends in zero.
        let text = NonNull::new(unsafe { leveldb_property_value(self.db, name.as_ptr()) })?;
        // SAFETY: the library returned a string that ends in zero and is freed with leveldb_free.
        unsafe {
            let copy = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
            leveldb_free(text.as_ptr().cast());
            Some(copy)
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: made in `open`, destroyed once, the database before what its options refer to.
        // After a failed open `db` is null and is not closed.
        unsafe {
            if !self.db.is_null() {
                leveldb_close(self.db);
            }
            leveldb_options_destroy(self.options);
            leveldb_cache_destroy(self.cache);
            leveldb_filterpolicy_destroy(self.filter);
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.write);
            leveldb_writeoptions_destroy(self.sync_write);
            if let Some(tiers) = &self.tiers {
                leveldb_env_destroy(tiers.env);
            }
        }
    }
}
