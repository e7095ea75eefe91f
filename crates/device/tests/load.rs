//! Writers of tiers as placement sees them: files that are being made, and copies.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::profile::{Curve, Point, Source, TierProfile};
use thermocline_device::{
    Buffer, ByLevel, Driver, FileContext, FileInfo, FileKind, MemoryDevices, Origin, Placement,
    TierIndex, TierLoad, TierSpec, TierState, TieredFiles,
};
use thermocline_foundation::{ByteSize, Clock, FileNumber};

/// Stands still unless it is told to go on.
#[derive(Debug, Default)]
struct StillClock(Mutex<Duration>);

impl Clock for StillClock {
    fn now_ns(&self) -> u64 {
        self.0.lock().unwrap().as_nanos() as u64
    }
    fn wall_s(&self) -> u64 {
        0
    }
    fn sleep(&self, duration: Duration) {
        *self.0.lock().unwrap() += duration;
    }
}

/// Places tables by level, and notes what it was told of the tiers.
#[derive(Debug, Default)]
struct Noting {
    by_level: ByLevel,
    seen: Mutex<Vec<TierState>>,
}

impl Noting {
    fn loads(&self) -> Vec<TierLoad> {
        self.seen.lock().unwrap().iter().map(|tier| tier.load).collect()
    }
}

impl Placement for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn place(&self, context: FileContext, bytes: u64, tiers: &[TierState]) -> Option<TierIndex> {
        *self.seen.lock().unwrap() = tiers.to_vec();
        self.by_level.place(context, bytes, tiers)
    }

    fn misplaced(&self, _: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        *self.seen.lock().unwrap() = tiers.to_vec();
        Vec::new()
    }
}

fn spec(path: &str) -> TierSpec {
    TierSpec { path: PathBuf::from(path), capacity: ByteSize::mib(1), driver: "memory".to_owned() }
}

fn created(devices: &MemoryDevices, policy: &Arc<Noting>) -> TieredFiles {
    let tiers = [spec("/fast"), spec("/slow")];
    TieredFiles::create(devices, Path::new("/home"), &tiers, policy.clone()).unwrap()
}

#[test]
fn a_file_is_a_writer_until_it_is_published_or_deleted_and_a_copy_while_it_is_written() {
    let (clock, policy) = (Arc::new(StillClock::default()), Arc::new(Noting::default()));
    let files = created(&MemoryDevices::new(), &policy);
    let loads = || {
        files.misplaced();
        policy.loads()
    };
    let table = |level, origin| {
        files.create_file(FileContext { kind: FileKind::Table { level }, origin }, 4096).unwrap()
    };
    drop(table(0, Origin::Flush));
    assert_eq!(loads()[0], TierLoad::default(), "not counted unless that is asked for");
    files.measure_load(clock.clone());
    let flushed = table(0, Origin::Flush);
    flushed.write(0, Buffer::zeroed(4096)).1.unwrap();
    let merged = table(1, Origin::Compaction { from: 0, to: 1 });
    assert_eq!(loads()[0].writers, [0, 1, 1, 0, 0, 0, 0]);
    clock.sleep(Duration::from_secs(30));
    assert_eq!(loads()[0].milliwriters[..3], [0, 1000, 1000]);
    files.publish(&[flushed.number()]).unwrap();
    files.delete_files(&[merged.number()]).unwrap();
    assert_eq!(loads()[0].writers_now(), 0);
    clock.sleep(Duration::from_secs(30));
    assert_eq!(loads()[0].milliwriters[..3], [0, 400, 400], "twenty of fifty seconds");
    let mut during = Vec::new();
    files
        .migrate(flushed.number(), TierIndex(1), &mut |_| during.push(loads()[1].writers))
        .unwrap();
    assert!(
        !during.is_empty() && during.iter().all(|writers| *writers == [0, 0, 0, 0, 0, 1, 0]),
        "{during:?}"
    );
    assert_eq!(loads()[1], TierLoad::default());
}

#[test]
fn what_lies_beside_a_tier_is_told_to_placement_from_the_next_opening_on() {
    let (devices, policy) = (MemoryDevices::new(), Arc::new(Noting::default()));
    let fast = MemoryDriver::new();
    let write = Curve::new(vec![Point { workers: 3, bytes_per_s: 9 }]);
    let profile = TierProfile { source: Source::Fio, write, ..TierProfile::default() };
    devices.mount(Path::new("/fast"), fast.clone());
    profile.write(&fast).unwrap();
    let files = created(&devices, &policy);
    files.measure_load(Arc::new(StillClock::default()));
    files.misplaced();
    let told = || policy.seen.lock().unwrap()[0].profile.write.useful_workers();
    assert_eq!(told(), Some(3), "it was there before the tier was");
    files.close(&[]).unwrap();
    drop(files);
    fast.delete("PROFILE").unwrap();
    let home = Path::new("/home");
    let files = TieredFiles::open(&devices, home, None, policy.clone(), false).unwrap();
    files.measure_load(Arc::new(StillClock::default()));
    files.misplaced();
    assert_eq!(told(), None);
}
