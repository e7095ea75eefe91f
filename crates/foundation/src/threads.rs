//! The door for threads.
//!
//! Where schedules are checked (`--cfg shuttle`, see `sync`) they are threads of the scheduler.

#[cfg(shuttle)]
use shuttle::thread::Builder;
#[cfg(not(shuttle))]
use std::thread::Builder;

/// What ends a thread's life for others: `join` waits for it.
#[cfg(shuttle)]
pub use shuttle::thread::JoinHandle;
#[cfg(not(shuttle))]
pub use std::thread::JoinHandle;

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
    if cfg!(shuttle) {
        return 2;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}
