//! The db_bench set (LevelDB and RocksDB), with what each run of it begins with.
//!
//! `fillseq` and `fillrandom` begin with an empty store; all others with every record loaded in
//! random order, where db_bench has what the benchmark before it left. `seekrandom` goes on ten
//! times after each seek. `readwhilewriting` has one more thread that overwrites and is not
//! counted.

use super::{Distribution, Fill, Kind, SCATTERED, ScanLength, Workload};
use crate::keys::Order;

const SOURCE: &str = "db_bench of LevelDB and RocksDB";
/// The record that is sought and ten more.
const SEEK_RECORDS: u32 = 11;

/// The nine.
pub fn all() -> Vec<Workload> {
    let of = |name: &str, label: &'static str, kind: Kind| {
        Workload::new(name, SOURCE, &[(label, kind, 1.0)], Distribution::Uniform)
    };
    let seek = ScanLength::Fixed(SEEK_RECORDS);
    vec![
        Workload::filling("fillseq", SOURCE, Fill::InOrder, Order::Sequential),
        Workload::filling("fillrandom", SOURCE, Fill::Random, SCATTERED),
        of("overwrite", "update", Kind::Update),
        of("readrandom", "read", Kind::Read),
        of("readmissing", "missing", Kind::ReadMissing),
        of("readseq", "walk", Kind::Walk),
        Workload { scan: seek, ..of("seekrandom", "seek", Kind::Scan) },
        Workload { writer_beside: true, ..of("readwhilewriting", "read", Kind::Read) },
        of("deleterandom", "delete", Kind::Delete),
    ]
}
