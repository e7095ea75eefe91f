//! Where a merge and its sources are moved to, and what they may wait for on the way.

use thermocline_device::Buffer;
use thermocline_table::AwaitedRead;

/// A read that a source waited for, and what came of it.
pub(super) type Arrived = (AwaitedRead, thermocline_device::Result<Buffer>);

/// Where to go. No target lies between two versions of a key, so tables may show their trailers as
/// they like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    First,
    Last,
    /// The first entry whose key is at or after this one.
    From(&'a [u8]),
    /// The last entry whose key is at or before this one.
    UpTo(&'a [u8]),
    /// The last entry whose key is before this one.
    Before(&'a [u8]),
}

impl Target<'_> {
    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::From(_))
    }
}
