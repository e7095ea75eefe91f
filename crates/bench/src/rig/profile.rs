//! What the slow device of the rig can do: limits the kernel enforces, by the name of a product.
//!
//! A limit holds for the device as a whole: all processes share it. Sources: the product's own data
//! sheet for `gp3` (10,000 of its up to 16,000 IOPS, 300 of its up to 1,000 MB/s); a 4 TB QLC drive
//! as its makers give it for random reads and for writes past its cache for `qlc`.

use crate::Outcome;
use crate::results::SlowDevice;

/// Limits of a device; each by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Read requests.
    pub read_iops: u64,
    /// Write requests; none: no limit but the bytes.
    pub write_iops: Option<u64>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// All profiles.
pub const PROFILES: [Profile; 2] = [
    Profile {
        name: "gp3",
        read_iops: 10_000,
        write_iops: Some(10_000),
        read_bytes: 300_000_000,
        write_bytes: 300_000_000,
    },
    Profile {
        name: "qlc",
        read_iops: 20_000,
        write_iops: None,
        read_bytes: 1_000_000_000,
        write_bytes: 200_000_000,
    },
];

impl Profile {
    /// The profile called `name`.
    pub fn find(name: &str) -> Outcome<Self> {
        PROFILES.iter().find(|profile| profile.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            format!("there is no device profile '{name}'; there are {}", names.join(" and ")).into()
        })
    }

    /// The same for the bound of the results.
    pub fn slow_device(&self) -> SlowDevice {
        SlowDevice {
            read_iops: Some(self.read_iops as f64),
            write_iops: self.write_iops.map(|iops| iops as f64),
            read_bytes_per_s: Some(self.read_bytes as f64),
            write_bytes_per_s: Some(self.write_bytes as f64),
        }
    }

    /// Limits by the names that cgroup version 1 has for them.
    pub fn rules(&self) -> Vec<(&'static str, u64)> {
        let mut rules = vec![
            ("read_bps", self.read_bytes),
            ("write_bps", self.write_bytes),
            ("read_iops", self.read_iops),
        ];
        rules.extend(self.write_iops.map(|iops| ("write_iops", iops)));
        rules
    }

    /// The line of `io.max` (cgroup version 2) for the device with this number.
    pub fn io_max(&self, number: &str) -> String {
        let write_iops = self.write_iops.map_or("max".to_owned(), |iops| iops.to_string());
        format!(
            "{number} rbps={} wbps={} riops={} wiops={write_iops}",
            self.read_bytes, self.write_bytes, self.read_iops
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_documentation_in_both_versions() {
        let gp3 = Profile::find("gp3").unwrap();
        assert_eq!(gp3.io_max("7:1"), "7:1 rbps=300000000 wbps=300000000 riops=10000 wiops=10000");
        assert_eq!(gp3.rules().len(), 4);
        let qlc = Profile::find("qlc").unwrap();
        assert!(qlc.io_max("7:1").ends_with("riops=20000 wiops=max"));
        assert!(qlc.rules().iter().all(|(name, _)| *name != "write_iops"));
    }

    #[test]
    fn an_unknown_profile_is_answered_with_those_there_are() {
        assert!(Profile::find("gp4").unwrap_err().to_string().ends_with("gp3 and qlc"));
    }
}
