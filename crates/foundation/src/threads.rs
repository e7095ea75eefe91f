//! The door for threads.

use std::thread::{Builder, JoinHandle};

/// Starts a named thread. Fails where the system has no thread to give.
pub fn spawn<T, F>(name: &str, body: F) -> std::io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().name(name.to_owned()).spawn(body)
}

/// How many threads the machine runs at once; 1 where it does not say.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
