//! What a device can do, and with how many threads at once (Keigo, sections 3.1 and 4.2).
//!
//! The throughput of a device grows with the threads that use it up to a number, and from there on
//! not at all, or it falls. Placement keeps below that number.
//!
//! ```text
//!   measure.rs   reads and writes of a file of its own  \
//!   fio.rs       what a run of fio reported             / DeviceProfile: a curve for each shape
//!   online.rs    throughput under a host's own writers, while it runs
//!   curve.rs     throughput by workers                      |
//!   stored.rs    the file PROFILE beside TIER         <---- TierProfile: one to read, one to write
//! ```
//! 1. A profile is a hint: without one, or with a damaged one, nothing is limited and nothing
//!    fails.
//! 2. All figures are whole numbers, so that decisions by them repeat exactly.
//!
//! Threads: plain data, except for the workers of `measure.rs`.

mod curve;
mod fio;
mod measure;
mod online;
mod stored;

pub use curve::{Curve, Point};
pub use fio::parse as parse_fio;
pub use measure::{Effort, Step, Subject, measure};
pub use online::{COUNTS_FOR_NS, INTERVAL_NS, OnlineCurve, Sample};
pub use stored::is_profile;

use serde::{Deserialize, Serialize};
use std::fmt;
use thermocline_foundation::ByteSize;

/// Which way bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// How one block of a worker follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Behind the last one.
    Sequential,
    /// Anywhere.
    Random,
}

/// What lies between a worker and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// Nothing: direct I/O.
    Direct,
    /// The page cache, and each block is synced.
    Synced,
    /// The page cache, which may answer in the device's place.
    PageCache,
}

/// What all workers of one curve do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shape {
    /// Read or write.
    pub access: Access,
    /// Where the next block is.
    pub order: Order,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Through what.
    pub through: Through,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.access == Access::Read { "read" } else { "write" };
        let order = if self.order == Order::Sequential { "sequential" } else { "random" };
        let through = match self.through {
            Through::Direct => "direct",
            Through::Synced => "synced",
            Through::PageCache => "page cache",
        };
        write!(f, "{access}, {order}, {}, {through}", ByteSize(self.block_bytes))
    }
}

/// Where figures come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Measured here.
    Measured,
    /// Reported by fio.
    Fio,
    /// Seen in the traffic of a host.
    Online,
}

/// Everything that was found out about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProfile {
    /// Where it comes from.
    pub source: Source,
    /// What a sync of a block takes, in the middle of several; 0 where that is not known.
    pub sync_ns: u64,
    /// Throughput of each shape.
    pub curves: Vec<(Shape, Curve)>,
}

/// What placement knows of a tier's device. Without figures, and so by default, nothing is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierProfile {
    /// Where it comes from.
    pub source: Source,
    /// What a sync takes; 0 where that is not known.
    pub sync_ns: u64,
    /// Of look-ups: blocks of 4 KiB anywhere.
    pub read: Curve,
    /// Of logs, flushes and compactions: blocks of 64 KiB one behind the other.
    pub write: Curve,
}

impl DeviceProfile {
    /// The curve of the shape that is closest: the same order first, then past the page cache, then
    /// the size of blocks.
    fn closest(&self, access: Access, order: Order, block_bytes: u64) -> Curve {
        let distance = |shape: &Shape| {
            let blocks = block_bytes.ilog2().abs_diff(shape.block_bytes.max(1).ilog2());
            (shape.order != order, shape.through, blocks, shape.block_bytes)
        };
        let of_access = self.curves.iter().filter(|(shape, _)| shape.access == access);
        let closest = of_access.min_by_key(|(shape, _)| distance(shape));
        closest.map(|(_, curve)| curve.clone()).unwrap_or_default()
    }

    /// What placement needs of it.
    pub fn tier_profile(&self) -> TierProfile {
        TierProfile {
            source: self.source,
            sync_ns: self.sync_ns,
            read: self.closest(Access::Read, Order::Random, 4 << 10),
            write: self.closest(Access::Write, Order::Sequential, 64 << 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_has_the_curves_of_the_closest_shapes() {
        let curve = |bytes_per_s| Curve::new(vec![Point { workers: 1, bytes_per_s }]);
        let shape = |access, order, kib: u64, through| Shape {
            access,
            order,
            block_bytes: kib << 10,
            through,
        };
        use {Access::*, Order::*, Through::*};
        let all = [
            (shape(Read, Sequential, 4, Direct), 1),
            (shape(Read, Random, 64, Direct), 2),
            (shape(Read, Random, 4, PageCache), 3),
            (shape(Write, Sequential, 4, Direct), 4),
            (shape(Write, Sequential, 64, Synced), 5),
            (shape(Write, Random, 64, Direct), 6),
        ];
        let found = |shapes: &[(Shape, u64)]| {
            let curves = shapes.iter().map(|(shape, rate)| (*shape, curve(*rate))).collect();
            let profile = DeviceProfile { curves, ..DeviceProfile::default() }.tier_profile();
            [profile.read, profile.write].map(|curve| curve.bytes_per_s_max())
        };
        assert_eq!(found(&all), [Some(2), Some(4)], "direct before the size of blocks");
        assert_eq!(found(&all[..1]), [Some(1), None], "any order is better than nothing");
        assert_eq!(found(&all[4..]), [None, Some(5)], "the order before direct");
        assert_eq!(found(&[]), [None, None]);
    }

    #[test]
    fn a_shape_says_what_it_is() {
        let (access, order) = (Access::Write, Order::Sequential);
        let shape = Shape { access, order, block_bytes: 65536, through: Through::PageCache };
        assert_eq!(shape.to_string(), "write, sequential, 64 KiB, page cache");
    }
}
