//! What this process has used so far, from `/proc/self`; zero where the system does not tell.

use crate::system_text;

/// Ticks a second of the times in `/proc/self/stat`: fixed for programs, whatever the kernel uses.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of all threads, user and system, in seconds.
pub fn cpu_s() -> f64 {
    let Some(text) = system_text("/proc/self/stat") else { return 0.0 };
    // The program's name stands in brackets and may hold anything; fields count from behind it.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |index: usize| {
        fields.split_ascii_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok())
    };
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_PER_SECOND
}

/// The most memory the process has had resident, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let kib = system_text("/proc/self/status").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_and_time_are_seen() {
        let before = peak_rss_bytes();
        let mut block = vec![0u8; 64 << 20];
        block.iter_mut().step_by(1024).for_each(|byte| *byte = std::hint::black_box(1));
        std::hint::black_box(&block);
        assert!(peak_rss_bytes() >= before + (48 << 20), "{before} {}", block.len());
        let start = cpu_s();
        let rounds = (0..u64::MAX).take_while(|_| std::hint::black_box(cpu_s()) < start + 0.05);
        assert!(rounds.count() > 1, "50 ms of reading counters are more than one reading");
    }
}
