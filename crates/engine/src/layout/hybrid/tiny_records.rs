//! What tiny records cost on the fast tier, counted in reads and bytes: a store on a device of
//! pages that is written at random until neighbours lie apart (PrismDB, section 7.5, where a page
//! is read for each record that leaves). Figures: docs/decisions/0052-tiny-records.md.

use crate::layout::hybrid::FastTier;
use crate::support::hooked::HookedDevices;
use crate::support::{hybrid, stepped_environment, tier};
use crate::{ByteSize, Db, Environment, Settings};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::FileKind;
use thermocline_foundation::random::Random;

const PAGE_BYTES: usize = 4096;
const KEYS: u64 = 400_000;
const UPDATES: u64 = 200_000;

/// What was counted up to a moment.
#[derive(Clone, Copy, Debug)]
struct Count {
    demoted: u64,
    written_bytes: u64,
    /// Reads of slots that were for merges.
    reads: u64,
    read_bytes: u64,
    kept_reads: u64,
}

impl Count {
    fn of(db: &Db) -> Self {
        let kept = fast(db).slabs.kept_reads();
        let slabs = db.engine().shared().files.tiers()[0].traffic(FileKind::Slab);
        Self {
            demoted: db.engine().shared().counts.demotions.dirty.get(),
            written_bytes: slabs.written_bytes,
            // The test looks nothing up.
            reads: slabs.reads - kept.reads,
            read_bytes: slabs.read_bytes - kept.bytes,
            kept_reads: kept.reads,
        }
    }
}

fn fast(db: &Db) -> &FastTier {
    &db.engine().hybrid().fast
}

/// Of these a quarter finds room on the fast tier, at 76 bytes a record with its header.
fn store() -> Db {
    let environment = stepped_environment();
    let hook = Arc::new(|_, _: &Path, _: &str| Ok(()));
    let devices = HookedDevices::new(Arc::clone(&environment.devices), hook).aligned(PAGE_BYTES);
    let environment = Environment { devices: Arc::new(devices), ..environment };
    let tiers = vec![tier("/fast", 8), tier("/slow", 256)];
    let (memory, table_size) = (ByteSize::mib(2), ByteSize::mib(1));
    let settings = Settings { tiers, memory, table_size, ..hybrid() };
    environment.create(Path::new("/home"), &settings).expect("memory holds any store")
}

#[test]
fn many_tiny_records_that_leave_share_a_read_although_they_came_one_by_one() {
    let db = store();
    let mut random = Random::new(1);
    let mut put = || {
        let mut value = [0; 40];
        random.fill(&mut value);
        db.put(format!("{:016}", random.below(KEYS)), value).expect("no device fails");
    };
    (0..KEYS).for_each(|_| put());
    let before = Count::of(&db);
    (0..UPDATES).for_each(|_| put());
    let after = Count::of(&db);
    let each =
        |count: fn(&Count) -> u64, of: u64| (count(&after) - count(&before)) as f64 / of as f64;
    let demoted = after.demoted - before.demoted;
    assert!(demoted > UPDATES / 2, "{demoted}");
    let (reads, bytes) = (each(|it| it.reads, demoted), each(|it| it.read_bytes, demoted));
    assert!(reads < 0.1 && bytes < 0.3 * PAGE_BYTES as f64, "{reads} reads, {bytes} bytes");
    // A flush writes long runs with what lies between, of which it reads no page alone.
    let (kept, written) = (each(|it| it.kept_reads, UPDATES), each(|it| it.written_bytes, UPDATES));
    assert!(kept < 0.05 && written < 0.25 * PAGE_BYTES as f64, "{kept} reads, {written} bytes");
    let stats = fast(&db).slabs.stats();
    let (waste, live) = (stats.waste_bytes(), stats.bytes_live());
    assert!(waste * 16 < live, "{waste} of {live} bytes are wasted");
    let index = fast(&db).index.memory_bytes() / fast(&db).index.len();
    assert!(index < 56, "{index} bytes of the index a record");
}
