//! How the kernel describes the memory behind a mapped file, and which boot this is.
//!
//! ```text
//!   sys/dev/block/MAJOR:MINOR -> .../regionN/.../block/pmemN
//!   .../regionN/persistence_domain        cpu_cache (eADR), memory_controller (ADR), or empty
//!   .../regionN/mappingM                  nmemK,...: a DIMM of the region
//!   sys/bus/nd/devices/nmemK/nfit/dirty_shutdown   how often it lost what was on its way
//! ```
//! 1. Nothing overrides what is found here. What cannot be read counts as the worse answer:
//!    flushes are needed, the boot is another.
//! 2. The folder is an argument, so that tests can write one of their own.
//!
//! Threads: any.

use super::host_files;
use crate::error::Result;
use std::path::{Path, PathBuf};

const ATTRIBUTE_BYTES_MAX: u64 = 4096;

/// What flushing has to do for a line to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PersistenceDomain {
    /// The processor's caches are written out when the power fails (eADR): no flush is needed.
    CpuCache,
    /// A line that reached the memory controller is durable (ADR).
    #[default]
    MemoryController,
}

/// What was found out about the memory behind a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Where durability begins.
    pub domain: PersistenceDomain,
    /// The sum over the DIMMs of how often one lost what was on its way; none if there are none.
    pub dirty_shutdowns: Option<u64>,
}

/// Looks at the memory behind the device of this number, below the mounted sysfs `sys`.
pub fn probe(sys: &Path, (major, minor): (u32, u32)) -> Persistence {
    let link = sys.join("dev/block").join(format!("{major}:{minor}"));
    let Some(region) = std::fs::canonicalize(link).ok().and_then(|path| region_of(&path)) else {
        return Persistence::default();
    };
    let domain = match text(&region.join("persistence_domain")).as_deref() {
        Ok("cpu_cache") => PersistenceDomain::CpuCache,
        _ => PersistenceDomain::MemoryController,
    };
    Persistence { domain, dirty_shutdowns: dirty_shutdowns(sys, &region) }
}

/// The identity of this boot, below the mounted procfs `proc`; none if it cannot be read.
pub fn boot_id(proc: &Path) -> Option<[u8; 16]> {
    let text = text(&proc.join("sys/kernel/random/boot_id")).ok()?;
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    Some(thermocline_foundation::DatabaseId::parse(&digits)?.0)
}

fn region_of(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|above| above.join("persistence_domain").is_file()).map(Path::to_owned)
}

fn dirty_shutdowns(sys: &Path, region: &Path) -> Option<u64> {
    let mut sum = None;
    for index in 0.. {
        let Ok(mapping) = text(&region.join(format!("mapping{index}"))) else {
            return sum;
        };
        let dimm = mapping.split(',').next().unwrap_or_default();
        let count = sys.join("bus/nd/devices").join(dimm).join("nfit/dirty_shutdown");
        // A DIMM that does not count cannot show that nothing was lost.
        let count: u64 = text(&count).ok()?.parse().ok()?;
        sum = Some(sum.unwrap_or(0) + count);
    }
    sum
}

fn text(path: &Path) -> Result<String> {
    let bytes = host_files::read(path, ATTRIBUTE_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a sysfs of the test's own")]

    use super::*;
    use std::fs;

    /// A sysfs with one region of two DIMMs behind the device 259:1.
    fn fake() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/ndbus0/region0/persistence_domain", "memory_controller\n");
        write("devices/ndbus0/region0/mapping0", "nmem0,0,1073741824,0\n");
        write("devices/ndbus0/region0/mapping1", "nmem1,0,1073741824,1\n");
        write("devices/ndbus0/region0/namespace0.0/block/pmem0/dev", "259:1\n");
        write("bus/nd/devices/nmem0/nfit/dirty_shutdown", "3\n");
        write("bus/nd/devices/nmem1/nfit/dirty_shutdown", "4\n");
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        let target = "../../devices/ndbus0/region0/namespace0.0/block/pmem0";
        std::os::unix::fs::symlink(target, sys.path().join("dev/block/259:1")).unwrap();
        sys
    }

    #[test]
    fn domain_and_dirty_shutdowns_are_those_of_the_devices_region() {
        let sys = fake();
        let adr =
            Persistence { domain: PersistenceDomain::MemoryController, dirty_shutdowns: Some(7) };
        assert_eq!(probe(sys.path(), (259, 1)), adr);
        fs::write(sys.path().join("devices/ndbus0/region0/persistence_domain"), "cpu_cache\n")
            .unwrap();
        assert_eq!(probe(sys.path(), (259, 1)).domain, PersistenceDomain::CpuCache);
    }

    #[test]
    fn what_cannot_be_read_counts_as_the_worse_answer() {
        let sys = fake();
        assert_eq!(probe(sys.path(), (8, 0)), Persistence::default());
        fs::remove_file(sys.path().join("bus/nd/devices/nmem1/nfit/dirty_shutdown")).unwrap();
        assert_eq!(probe(sys.path(), (259, 1)).dirty_shutdowns, None);
        fs::write(sys.path().join("devices/ndbus0/region0/persistence_domain"), "").unwrap();
        assert_eq!(probe(sys.path(), (259, 1)).domain, PersistenceDomain::MemoryController);
        assert_eq!(boot_id(sys.path()), None);
    }

    #[test]
    fn the_boot_has_an_identity() {
        let proc = tempfile::tempdir().unwrap();
        let path = proc.path().join("sys/kernel/random/boot_id");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(boot_id(proc.path()).unwrap()[..3], [0x00, 0x11, 0x22]);
    }
}
