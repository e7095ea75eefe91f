//! When a device would have finished a request: a model of latency, parallelism and bandwidth.
//!
//! ```text
//!   request --> [rate limit] --> one of `channels` --> [bandwidth, shared] --> done
//!               1/iops apart     latency               len / bandwidth, one after the other
//! ```
//!
//! The device is a row of channels, each free again at a known time. A request takes the channel
//! that is free first, not before its rate limit allows, spends its latency there, then has its
//! bytes moved over a bus that all requests of the same direction share, and holds the channel
//! until that is done. The model only books times in the future; it never waits.
//!
//! Syncs have a lane of their own: one runs at a time, and those that are asked for while it does
//! are one sync, which follows. A durable write takes the sync's latency besides its own, on its
//! channel, beside others: a drive that writes through commits each write by itself.
//!
//! Invariants:
//! 1. Requests are booked in the order they arrive, and times never go back.
//! 2. With `n` channels, latency `l` and bandwidth `b`: at most `n / l` requests and `b` bytes a
//!    second; a lone request of `len` bytes takes `l + len / b`.
//!
//! A device may have a curve of writes by writers instead (`write_curve.rs`).
//!
//! What it leaves out: caches and garbage collection of the drive, the interplay of reads and
//! writes beyond shared channels, and bursts above a rate limit.
//!
//! Threads: `schedule` may be called from any.

use super::write_curve::{WriteCurve, WriteQueue};
use crate::driver::DeviceCounts;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{ByteSize, Duration};

const NS_PER_S: u128 = 1_000_000_000;

/// The figures of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceModel {
    /// From the start of a read to its first byte.
    pub read_latency: Duration,
    /// From the start of a write to its first byte.
    pub write_latency: Duration,
    /// What a sync of a file or a directory takes, and a durable write besides its own latency.
    pub sync_latency: Duration,
    /// Bytes a second that reads share; 0 means without limit.
    pub read_bytes_per_s: ByteSize,
    /// Bytes a second that writes share; 0 means without limit.
    pub write_bytes_per_s: ByteSize,
    /// Requests served at the same time; at least 1.
    pub channels: u32,
    /// Reads started a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops_max: Option<u64>,
    /// Writes started a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops_max: Option<u64>,
    /// A read or write that starts where the one before it ended pays no latency: a disk arm
    /// that need not move.
    #[serde(default)]
    pub sequential_is_free: bool,
    /// How many writes a second so many writers reach, where they hinder each other. Writes have
    /// neither latency nor bandwidth nor channels of their own then.
    #[serde(default, skip_serializing_if = "WriteCurve::is_empty")]
    pub write_curve: WriteCurve,
}

/// What is asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read { position: Position, len: usize },
    Write { position: Position, len: usize, durable: bool },
    Sync,
}

/// A place on the device: a file (any number that tells it from others) and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) file: usize,
    pub(crate) offset: u64,
}

/// Reads or writes: what one direction shares.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    bus_free_ns: u64,
    next_start_ns: u64,
}

#[derive(Debug)]
struct Booked {
    channels: BinaryHeap<Reverse<u64>>,
    reads: Lane,
    writes: Lane,
    /// Those of a device that has a curve.
    curved: WriteQueue,
    /// When the newest sync that was booked starts and ends.
    sync: (u64, u64),
    head: Option<Position>,
    /// What was asked for, and when the last of it is done.
    counts: DeviceCounts,
    busy_until_ns: u64,
}

/// A modelled device in use.
#[derive(Debug)]
pub(crate) struct Schedule {
    model: DeviceModel,
    booked: Mutex<Booked>,
}

/// Nanoseconds that `len` bytes take at `bytes_per_s`, rounded up; 0 where there is no limit.
fn transfer_ns(len: usize, bytes_per_s: ByteSize) -> u64 {
    match u128::from(bytes_per_s.0) {
        0 => 0,
        rate => u64::try_from((len as u128 * NS_PER_S).div_ceil(rate)).unwrap_or(u64::MAX),
    }
}

fn latency_ns(latency: Duration) -> u64 {
    u64::try_from(latency.0.as_nanos()).unwrap_or(u64::MAX)
}

impl Schedule {
    pub(crate) fn new(model: DeviceModel) -> Self {
        let channels = (0..model.channels.max(1)).map(|_| Reverse(0)).collect();
        let (reads, writes, curved) = (Lane::default(), Lane::default(), WriteQueue::default());
        let booked = Booked {
            channels,
            reads,
            writes,
            curved,
            sync: (0, 0),
            head: None,
            counts: DeviceCounts::default(),
            busy_until_ns: 0,
        };
        Self { model, booked: Mutex::new(booked) }
    }

    /// What the device has done by `now_ns`; bytes count once they are asked for.
    pub(crate) fn counts(&self, now_ns: u64) -> DeviceCounts {
        let booked = self.booked.lock();
        let to_come = booked.busy_until_ns.saturating_sub(now_ns);
        let busy_ns = booked.counts.busy_ns.saturating_sub(to_come);
        DeviceCounts { busy_ns, ..booked.counts }
    }

    /// Books `access`, asked at `now_ns`, and says when it is done.
    pub(crate) fn schedule(&self, now_ns: u64, access: Access) -> u64 {
        let mut booked = self.booked.lock();
        let done = self.book(&mut booked, now_ns, access);
        booked.counted(now_ns, access, done);
        done
    }

    fn book(&self, booked: &mut Booked, now_ns: u64, access: Access) -> u64 {
        let model = &self.model;
        let (position, len) = match access {
            Access::Sync => return booked.sync(now_ns, latency_ns(model.sync_latency)),
            Access::Read { position, len } | Access::Write { position, len, .. } => (position, len),
        };
        if let Access::Write { durable, .. } = access
            && !model.write_curve.is_empty()
        {
            let done = booked.curved.book(&model.write_curve, now_ns, len);
            return done.saturating_add(if durable { latency_ns(model.sync_latency) } else { 0 });
        }
        let channel_free = booked.channels.pop().map_or(0, |Reverse(free)| free);
        let start = now_ns.max(channel_free);
        let is_free = booked.follows(model, position, len);
        let latency = |latency| if is_free { 0 } else { latency_ns(latency) };
        let done = match access {
            Access::Write { durable, .. } => {
                let transfer = transfer_ns(len, model.write_bytes_per_s);
                let latency = latency(model.write_latency);
                let done = booked.writes.book(start, model.write_iops_max, latency, transfer);
                let kept = if durable { latency_ns(model.sync_latency) } else { 0 };
                done.saturating_add(kept)
            }
            _ => {
                let transfer = transfer_ns(len, model.read_bytes_per_s);
                let latency = latency(model.read_latency);
                booked.reads.book(start, model.read_iops_max, latency, transfer)
            }
        };
        booked.channels.push(Reverse(done));
        done
    }
}

impl Booked {
    fn counted(&mut self, now: u64, access: Access, done: u64) {
        let add = |count: &mut u64, len: usize| *count = count.saturating_add(len as u64);
        match access {
            Access::Read { len, .. } => add(&mut self.counts.read_bytes, len),
            Access::Write { len, .. } => add(&mut self.counts.written_bytes, len),
            Access::Sync => {}
        }
        // Invariant 1: what is asked for later begins later.
        let from = self.busy_until_ns.max(now);
        self.counts.busy_ns = self.counts.busy_ns.saturating_add(done.saturating_sub(from));
        self.busy_until_ns = self.busy_until_ns.max(done);
    }

    /// When a sync asked for at `now` is done: with the one that is to follow, or as the next.
    fn sync(&mut self, now: u64, latency: u64) -> u64 {
        let (start, done) = self.sync;
        if now > start || done == 0 {
            let start = now.max(done);
            self.sync = (start, start.saturating_add(latency));
        }
        self.sync.1
    }

    /// Moves the head; whether it was there already and that counts.
    fn follows(&mut self, model: &DeviceModel, position: Position, len: usize) -> bool {
        let there = self.head == Some(position);
        self.head = Some(Position { offset: position.offset + len as u64, ..position });
        model.sequential_is_free && there
    }
}

impl Lane {
    fn book(&mut self, start: u64, iops_max: Option<u64>, latency: u64, transfer: u64) -> u64 {
        let start = match iops_max {
            None | Some(0) => start,
            Some(iops) => {
                let start = start.max(self.next_start_ns);
                self.next_start_ns = start.saturating_add((NS_PER_S as u64).div_ceil(iops));
                start
            }
        };
        let arrived = start.saturating_add(latency);
        self.bus_free_ns = arrived.max(self.bus_free_ns).saturating_add(transfer);
        self.bus_free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Position = Position { file: 1, offset: 0 };

    /// 100 us reads, 10 us writes, 1 ms syncs, 1 byte a nanosecond, two channels.
    fn model() -> DeviceModel {
        DeviceModel {
            read_latency: "100 us".parse().unwrap(),
            write_latency: "10 us".parse().unwrap(),
            sync_latency: Duration::ms(1),
            read_bytes_per_s: ByteSize(1_000_000_000),
            write_bytes_per_s: ByteSize(1_000_000_000),
            channels: 2,
            read_iops_max: None,
            write_iops_max: None,
            sequential_is_free: false,
            write_curve: WriteCurve::default(),
        }
    }

    fn read(len: usize) -> Access {
        Access::Read { position: START, len }
    }

    fn write(len: usize) -> Access {
        Access::Write { position: START, len, durable: false }
    }

    #[test]
    fn a_lone_request_takes_its_latency_and_its_transfer() {
        let device = Schedule::new(model());
        assert_eq!(device.schedule(5_000, read(4_096)), 5_000 + 100_000 + 4_096);
        let device = Schedule::new(model());
        assert_eq!(device.schedule(0, write(0)), 10_000);
        assert_eq!(device.schedule(50_000, Access::Sync), 1_050_000);
    }

    #[test]
    fn requests_beyond_the_channels_wait_for_the_first_free_one() {
        let device = Schedule::new(model());
        let done: Vec<u64> = (0..5).map(|_| device.schedule(0, read(0))).collect();
        assert_eq!(done, [100_000, 100_000, 200_000, 200_000, 300_000]);
    }

    #[test]
    fn one_sync_runs_at_a_time_and_those_that_wait_are_one() {
        let device = Schedule::new(model());
        let done: Vec<u64> =
            [0, 10, 20, 1_000_000].map(|now| device.schedule(now, Access::Sync)).into();
        assert_eq!(done, [1_000_000, 2_000_000, 2_000_000, 2_000_000]);
        assert_eq!(device.schedule(1_000_001, Access::Sync), 3_000_000);
        assert_eq!(device.schedule(9_000_000, Access::Sync), 10_000_000);
        assert_eq!(device.schedule(0, write(0)), 10_000, "a sync takes no channel");
    }

    #[test]
    fn durable_writes_are_kept_beside_each_other() {
        let device = Schedule::new(model());
        let durable = Access::Write { position: START, len: 0, durable: true };
        let done: Vec<u64> = (0..3).map(|_| device.schedule(0, durable)).collect();
        assert_eq!(done, [1_010_000, 1_010_000, 2_020_000]);
    }

    #[test]
    fn transfers_of_one_direction_share_the_bandwidth_and_the_other_has_its_own() {
        let device = Schedule::new(model());
        assert_eq!(device.schedule(0, read(1_000_000)), 1_100_000);
        // The second channel has its first byte after 100 us, then waits for the bus.
        assert_eq!(device.schedule(0, read(1_000_000)), 2_100_000);
        let device = Schedule::new(model());
        assert_eq!(device.schedule(0, read(1_000_000)), 1_100_000);
        assert_eq!(device.schedule(0, write(1_000_000)), 1_010_000);
    }

    #[test]
    fn a_rate_limit_spaces_the_starts_and_forgets_idle_time() {
        let mut figures = model();
        (figures.read_iops_max, figures.channels) = (Some(1_000), 64);
        let device = Schedule::new(figures);
        let done: Vec<u64> = (0..3).map(|_| device.schedule(0, read(0))).collect();
        assert_eq!(done, [100_000, 1_100_000, 2_100_000]);
        assert_eq!(device.schedule(0, write(0)), 10_000, "writes have no limit here");
        assert_eq!(device.schedule(10_000_000, read(0)), 10_100_000);
        assert_eq!(device.schedule(10_000_000, read(0)), 11_100_000, "no burst after idling");
    }

    #[test]
    fn a_disk_arm_that_need_not_move_costs_nothing() {
        let mut figures = model();
        (figures.sequential_is_free, figures.channels) = (true, 1);
        let device = Schedule::new(figures);
        let at = |file, offset| Access::Read { position: Position { file, offset }, len: 1_000 };
        assert_eq!(device.schedule(0, at(1, 0)), 101_000);
        assert_eq!(device.schedule(0, at(1, 1_000)), 102_000);
        assert_eq!(device.schedule(0, at(2, 2_000)), 203_000, "another file is elsewhere");
        assert_eq!(device.schedule(0, at(2, 2_000)), 304_000, "going back is a move");
    }

    #[test]
    fn writes_on_a_curve_hinder_each_other_and_leave_reads_alone() {
        let mut figures = model();
        figures.write_curve = WriteCurve::new(vec![(1, 100_000), (2, 50_000)]);
        let device = Schedule::new(figures);
        let done: Vec<u64> = (0..3).map(|_| device.schedule(0, write(0))).collect();
        assert_eq!(done, [10_000, 30_000, 50_000]);
        assert_eq!(device.schedule(0, read(0)), 100_000);
        let durable = Access::Write { position: START, len: 0, durable: true };
        assert_eq!(device.schedule(60_000, durable), 1_070_000);
    }

    #[test]
    fn a_profile_of_persistent_memory_has_its_knee_at_four_writers() {
        use crate::drivers::Profile;
        use crate::profile::{Curve, Point};
        let blocks: u64 = 500;
        let reached = |profile: Profile, workers: u16| {
            let device = Schedule::new(profile.model());
            let mut next = vec![0; workers.into()];
            for _ in 0..blocks {
                // Each worker writes its next block when the last one is done.
                next.iter_mut().for_each(|done| *done = device.schedule(*done, write(64 << 10)));
            }
            let bytes = blocks * u64::from(workers) * (64 << 10);
            let bytes_per_s = bytes * 1_000_000_000 / next.iter().max().unwrap();
            Point { workers, bytes_per_s }
        };
        for (profile, best) in [(Profile::Dcpmm, 2_048_000_000), (Profile::DcpmmTenth, 204_800_000)]
        {
            let points = [1, 2, 4, 8, 16, 32, 64].map(|workers| reached(profile, workers));
            let curve = Curve::new(points.to_vec());
            assert_eq!(curve.useful_workers(), Some(4), "{points:?}");
            let found = curve.bytes_per_s_max().unwrap();
            assert!(found.abs_diff(best) < best / 50, "{profile}: {found}");
            assert!(points[6].bytes_per_s * 5 < found * 2, "{points:?}");
        }
    }

    #[test]
    fn absurd_figures_neither_overflow_nor_divide_by_zero() {
        let mut figures = model();
        figures.read_latency = Duration(std::time::Duration::MAX);
        (figures.read_bytes_per_s, figures.channels) = (ByteSize(0), 0);
        figures.read_iops_max = Some(0);
        let device = Schedule::new(figures);
        assert_eq!(device.schedule(7, read(usize::MAX)), u64::MAX);
        assert_eq!(device.schedule(8, read(1)), u64::MAX);
    }

    #[test]
    fn models_are_written_with_units_and_unknown_figures_are_refused() {
        let text = r#"{"read_latency":"100 us","write_latency":"10 us","sync_latency":"1 ms",
            "read_bytes_per_s":"1 GB","write_bytes_per_s":"1 GB","channels":2}"#;
        assert_eq!(serde_json::from_str::<DeviceModel>(text).unwrap(), model());
        let back = serde_json::to_string(&model()).unwrap();
        assert_eq!(serde_json::from_str::<DeviceModel>(&back).unwrap(), model());
        let wrong = text.replace("channels", "chanels");
        assert!(serde_json::from_str::<DeviceModel>(&wrong).is_err());
    }
}
