//! What this process has used: processor time, memory, bytes of the devices.

use crate::files::system_text;
use crate::store::TierTraffic;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use thermocline_device::drivers::host_files;
use thermocline_foundation::{Clock, SystemClock};

/// Processor time of all threads, user and system, in seconds.
pub fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Begins the measurement of the peak anew; where the system refuses, the peak is since the start.
pub fn reset_peak_rss() {
    // `clear_refs` cannot be replaced by a rename, so the atomic writer of files does not serve.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open("/proc/self/clear_refs", flags, rustix::fs::Mode::empty());
    if let Ok(file) = opened {
        let _ = rustix::io::write(&file, b"5");
    }
}

/// The most memory resident since [`reset_peak_rss`], or since the start, in bytes; 0 where the
/// system does not tell.
pub fn peak_rss_bytes() -> u64 {
    let kib = system_text("/proc/self/status").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

/// What the process has read from and written to block devices, as the kernel counts it.
pub fn traffic() -> Option<TierTraffic> {
    let text = system_text("/proc/self/io")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(": ")?.trim().parse().ok()
    };
    Some(TierTraffic {
        reads: field("syscr")?,
        read_bytes: field("read_bytes")?,
        writes: field("syscw")?,
        written_bytes: field("write_bytes")?,
        syncs: 0,
    })
}

/// What went over a block device, from its `stat`; none where there is no device of that name.
pub fn device_traffic(name: &str) -> Option<TierTraffic> {
    parse_device(&system_text(&format!("/sys/class/block/{name}/stat"))?)
}

fn parse_device(text: &str) -> Option<TierTraffic> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut field = |skip: usize| fields.nth(skip)?.ok();
    let (reads, read_sectors) = (field(0)?, field(1)?);
    let (writes, written_sectors) = (field(1)?, field(1)?);
    // A sector of these counters has 512 bytes, whatever the device's has.
    let (read_bytes, written_bytes) = (read_sectors << 9, written_sectors << 9);
    // Eight fields of times and discards lie between; older kernels do not count flushes.
    let syncs = field(8).unwrap_or(0);
    Some(TierTraffic { reads, read_bytes, writes, written_bytes, syncs })
}

/// How often the threads of this process, but for the calling one, left the processor in
/// `seconds`: after each wake-up a thread does once at least. None where the system does not tell.
pub fn wake_ups(clock: &SystemClock, seconds: f64) -> Option<u64> {
    let rest = Duration::try_from_secs_f64(seconds).ok()?;
    // What was under way ends first. Figures for other processes are told a second after the last
    // news, and looked at once more a second later.
    clock.sleep(Duration::from_secs(3));
    let before = switches()?;
    clock.sleep(rest);
    let after = switches()?;
    // A thread that ended meanwhile is in the first list alone.
    let of = |(thread, count): (&u32, &u64)| count - before.get(thread).unwrap_or(&0).min(count);
    Some(after.iter().map(of).sum())
}

/// Switches of each thread, but for the calling one.
fn switches() -> Option<BTreeMap<u32, u64>> {
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut found = BTreeMap::new();
    for thread in numbers_in("/proc/self/task")?.into_iter().filter(|thread| *thread != own) {
        let Some(text) = system_text(&format!("/proc/self/task/{thread}/status")) else { continue };
        let counts = text.lines().filter_map(|line| {
            let count = line.split_once("voluntary_ctxt_switches:")?.1;
            count.trim().parse::<u64>().ok()
        });
        found.insert(thread, counts.sum());
    }
    Some(found)
}

/// Names in a directory of the kernel that are numbers.
fn numbers_in(path: &str) -> Option<Vec<u32>> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let folder = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
    let entries = rustix::fs::Dir::read_from(folder).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok());
    Some(names.collect())
}

/// Memory of the machine and what of it is available, in bytes.
pub fn machine_memory() -> (u64, u64) {
    let text = system_text("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (field("MemTotal:").unwrap_or(0) << 10, field("MemAvailable:").unwrap_or(0) << 10)
}

/// The processor's name; empty where the system does not tell.
pub fn processor() -> String {
    let text = system_text("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or(String::new(), |(_, name)| name.to_owned())
}

/// The kernel's version.
pub fn kernel() -> String {
    let bytes = host_files::read(Path::new("/proc/sys/kernel/osrelease"), 256).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_and_time_are_seen() {
        reset_peak_rss();
        let before = peak_rss_bytes();
        let mut block = vec![0u8; 64 << 20];
        block.iter_mut().step_by(1024).for_each(|byte| *byte = std::hint::black_box(1));
        std::hint::black_box(&block);
        assert!(peak_rss_bytes() >= before + (48 << 20), "{before} {}", block.len());
        let start = cpu_s();
        let rounds = (0..u64::MAX).take_while(|_| std::hint::black_box(cpu_s()) < start + 0.02);
        assert!(rounds.count() > 1, "20 ms of reading counters are more than one reading");
        assert!(machine_memory().0 > 0 && !kernel().is_empty());
    }

    #[test]
    fn wake_ups_of_the_other_threads_are_counted() {
        let clock = SystemClock::new();
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&over);
        let other = thermocline_foundation::threads::spawn("restless", move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                SystemClock::new().sleep(Duration::from_millis(1));
            }
        });
        let count = wake_ups(&clock, 0.2).unwrap();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        other.unwrap().join().unwrap();
        assert!(count > 0);
    }

    #[test]
    fn counters_of_a_block_device_are_read() {
        let text = "   100   5  2000   7  30   6   640   9   0   11   12   0 0 0 0 77 8\n";
        let expected = TierTraffic {
            reads: 100,
            read_bytes: 2000 * 512,
            writes: 30,
            written_bytes: 640 * 512,
            syncs: 77,
        };
        assert_eq!(parse_device(text), Some(expected));
        assert_eq!(parse_device("1 2"), None);
        assert_eq!(device_traffic("no-such-device"), None);
    }
}
