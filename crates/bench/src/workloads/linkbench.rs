//! LinkBench's mix over keys (Armstrong et al., SIGMOD 2013).
//!
//! ```text
//!   group of a node = node, 128 B | count, 8 B | six links, 8 B each       neighbours in key order
//! ```
//! Each of its ten operations becomes one operation on keys: a list of links is a scan of six, a
//! count a look-up, adding and updating a link a write of it, adding a node an insert. Popularity
//! of nodes is Zipf 0.8, our choice: LinkBench fits it to Facebook's measurements, piecewise.
//! `linkbench/transactions` makes a transaction of each change, in which adding and deleting a link
//! also write the count, as LinkBench does.

use super::{Distribution, Kind, ScanLength, Share, Slot, Workload};
use crate::keys::Order;
use crate::values::Sizes;

/// Links of a node.
const LINKS: u64 = 6;
/// Records of a node's group.
pub const GROUP: u64 = 2 + LINKS;

/// The mix.
pub fn mix() -> Workload {
    let (node, count) = (Slot { first: 0, count: 1 }, Slot { first: 1, count: 1 });
    let (links, link) = (Slot { first: 2, count: 1 }, Slot { first: 2, count: LINKS });
    let share =
        |label, kind, weight, slot| Share { label, kind, weight, slot: Some(slot), with: None };
    let counted = |label, kind, weight, slot| Share {
        with: Some(count.first),
        ..share(label, kind, weight, slot)
    };
    let mut workload = Workload::new(
        "linkbench",
        "LinkBench (SIGMOD 2013), over keys",
        &[],
        Distribution::Zipf { alpha: 0.8 },
    );
    workload.mix = vec![
        share("getlinklist", Kind::Scan, 50.71, links),
        share("getnode", Kind::Read, 12.93, node),
        counted("addlink", Kind::Update, 8.99, link),
        share("updatelink", Kind::Update, 8.01, link),
        share("updatenode", Kind::Update, 7.37, node),
        share("countlink", Kind::Read, 4.89, count),
        counted("deletelink", Kind::Delete, 2.99, link),
        share("addnode", Kind::Insert, 2.57, node),
        share("deletenode", Kind::Delete, 1.01, node),
        share("getlink", Kind::Read, 0.53, link),
    ];
    workload.scan = ScanLength::Fixed(LINKS as u32);
    workload.order = Order::Scattered { group: GROUP };
    workload.sizes = Some(Sizes::Grouped { group: GROUP, records: u64::MAX, first: 128, rest: 8 });
    workload
}
