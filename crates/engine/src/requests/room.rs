//! Waiting for room in the queue, for callers that were told that it is full.

use super::pipeline::Pipeline;
use super::ticket::Carrier;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use thermocline_device::OwnerProcess;

/// Room among the asynchronous requests: see [`Db::has_room`](crate::Db::has_room) and
/// [`Transaction::has_room`](crate::Transaction::has_room).
#[must_use = "a future does nothing unless it is awaited"]
pub struct HasRoom {
    pipeline: Weak<Pipeline>,
    owner: OwnerProcess,
    /// For a commit that has its locks.
    has_locks: bool,
    /// Where the queue keeps the task.
    place: Option<u64>,
}

impl fmt::Debug for HasRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HasRoom").finish()
    }
}

impl HasRoom {
    pub(super) fn new(pipeline: &Arc<Pipeline>, owner: OwnerProcess, has_locks: bool) -> Self {
        Self { pipeline: Arc::downgrade(pipeline), owner, has_locks, place: None }
    }

    /// The pipeline, of a database that is open in this process.
    fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.owner.is_current().then(|| self.pipeline.upgrade()).flatten()
    }
}

impl Future for HasRoom {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Without one the next call has the error to tell.
        let Some(pipeline) = self.pipeline() else { return Poll::Ready(()) };
        let has_locks = self.has_locks;
        loop {
            if pipeline.queue.room_or_keep(&mut self.place, has_locks, context.waker()) {
                // It waits no longer, however long its caller keeps it.
                if let Some(place) = self.place.take() {
                    pipeline.queue.forget_waiter(place, has_locks);
                }
                return Poll::Ready(());
            }
            if !pipeline.shared.jobs.are_stepped() || !pipeline.carry_out_next() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for HasRoom {
    fn drop(&mut self) {
        if let (Some(place), Some(pipeline)) = (self.place, self.pipeline()) {
            pipeline.queue.forget_waiter(place, self.has_locks);
        }
    }
}
