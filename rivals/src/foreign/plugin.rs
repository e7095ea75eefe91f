//! The plugins that put RocksDB and LevelDB over tiers, loaded when a label asks for them.
//!
//! `cargo xtask plugins` builds them, and the environment variable [`FOLDER`] says where they lie.
//! A plugin stays loaded until the process ends: environments and their threads have code of it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

/// The environment variable that names the folder of the plugins.
pub const FOLDER: &str = "THERMOCLINE_PLUGINS";

const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

type EnvOf = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Attach = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_char;
type StatsOf = unsafe extern "C" fn(*const c_char) -> *mut c_char;

/// The plugin of a host.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    env: EnvOf,
    stats: StatsOf,
    /// RocksDB's alone.
    attach: Option<Attach>,
    /// The host's own, for texts.
    free: unsafe extern "C" fn(*mut c_void),
}

/// Where a plugin lies.
///
/// Errors: no folder is named, or it has no such file.
pub fn path(file: &str) -> Result<PathBuf, String> {
    let way_out = "cargo xtask bench keigo builds the plugins and says where they are";
    let folder =
        std::env::var_os(FOLDER).ok_or_else(|| format!("{FOLDER} is not set; {way_out}"))?;
    let path = PathBuf::from(folder).join(file);
    let missing = || format!("{} is not there; {way_out}", path.display());
    path.exists().then(|| path.clone()).ok_or_else(missing)
}

impl Plugin {
    /// Loads the plugin in `file`, whose functions begin with `thermocline_HOST_`.
    pub fn load(
        file: &str,
        host: &str,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> Result<Self, String> {
        let path = path(file)?;
        let text = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the path ends in zero; the library is our own, whose constructors register it.
        let library = unsafe { dlopen(text.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return Err(format!("cannot load {}: {}", path.display(), last_error()));
        }
        let function = |name: &str| {
            let name =
                CString::new(format!("thermocline_{host}_{name}")).map_err(|e| e.to_string())?;
            // SAFETY: the library was loaded above and is never closed; the name ends in zero.
            let found = unsafe { dlsym(library, name.as_ptr()) };
            if found.is_null() {
                Err(format!("{}: {}", path.display(), last_error()))
            } else {
                Ok(found)
            }
        };
        let (env, stats) = (function("env")?, function("stats")?);
        let attach = function("attach_options").ok();
        // SAFETY: the headers of the plugins declare them so.
        unsafe {
            Ok(Self {
                env: std::mem::transmute::<*mut c_void, EnvOf>(env),
                stats: std::mem::transmute::<*mut c_void, StatsOf>(stats),
                attach: attach.map(|found| std::mem::transmute::<*mut c_void, Attach>(found)),
                free,
            })
        }
    }

    /// Sets the environment of `uri` and a listener in the host's options, which live.
    pub fn attach(&self, options: *mut c_void, uri: &CStr) -> Result<(), String> {
        let attach = self.attach.ok_or("this plugin has nothing to attach")?;
        // SAFETY: as the caller promises; the text ends in zero.
        let refused = unsafe { attach(options, uri.as_ptr()) };
        self.taken(refused).map_or(Ok(()), Err)
    }

    /// A text of the host's memory, which is given back.
    fn taken(&self, text: *mut c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: it ends in zero and is copied before it goes back.
        let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: as above; nothing has it any more.
        unsafe { (self.free)(text.cast()) };
        Some(copy)
    }

    /// The host's environment over the tiers of `uri`: the caller's.
    pub fn env(&self, uri: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the text ends in zero; the answer is checked.
        let env = unsafe { (self.env)(uri.as_ptr()) };
        let refused = || format!("{} is refused; standard error says why", uri.to_string_lossy());
        (!env.is_null()).then_some(env).ok_or_else(refused)
    }

    /// What lies where and what moved, as JSON.
    pub fn stats(&self, uri: &CStr) -> Option<String> {
        // SAFETY: the text ends in zero; the answer is NULL or a text of the host's memory.
        let text = unsafe { (self.stats)(uri.as_ptr()) };
        self.taken(text)
    }
}

fn last_error() -> String {
    // SAFETY: NULL or a text of this thread that stays until its next call.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "no reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
