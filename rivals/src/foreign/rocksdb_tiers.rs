//! Options of RocksDB, or of Speedb in its place, with the plugin's environment.

use super::plugin::Plugin;
use rocksdb::{AsRawPtr, Env, Options};
use std::ffi::{CString, c_void};

/// What the functions of both plugins are called by.
const HOST: &str = "rocksdb";

unsafe extern "C" {
    fn rocksdb_free(memory: *mut c_void);
}

/// RocksDB's environment over the tiers of a URI.
pub struct Environment {
    plugin: Plugin,
    uri: CString,
}

impl Environment {
    /// Sets that of the plugin in `file`; with a listener, by which each table's level is known
    /// when it is made.
    pub fn set(
        options: &mut Options,
        file: &str,
        uri: &str,
        listens: bool,
    ) -> Result<Self, String> {
        let plugin = Plugin::load(file, HOST, rocksdb_free)?;
        let uri = CString::new(uri).map_err(|error| error.to_string())?;
        if listens {
            // SAFETY: the options live, and the plugin is linked against the same library.
            let raw = unsafe { options.as_raw_ptr() };
            plugin.attach(raw.cast(), &uri)?;
        } else {
            let env = plugin.env(&uri)?;
            // SAFETY: the plugin made it with this library's type, and it is given away.
            options.set_env(&unsafe { Env::from_raw(env.cast()) });
        }
        Ok(Self { plugin, uri })
    }

    /// What lies where and what moved, as JSON.
    pub fn stats(&self) -> Option<String> {
        self.plugin.stats(&self.uri)
    }
}
