//! Devices by name: the figures of the emulated driver, and where they come from.
//!
//! Data sheets promise the best case, papers measured ordinary ones; a profile takes the measured
//! figure where there is one. Channels follow from random reads a second times latency. Figures
//! marked *assumed* have no source and say so, because sync times are not in data sheets.

use super::model::DeviceModel;
use super::write_curve::WriteCurve;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration as Span;
use thermocline_foundation::{ByteSize, Duration};

/// A named device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Profile {
    /// Intel Optane SSD DC P5800X: 6 us for a 4 KiB random read (PrismDB, table 1); 7.2 GB/s
    /// read, 6.2 GB/s write and 1.5 million random reads a second (vendor's data sheet, 1.6 TB).
    /// Its write cache survives power loss: a sync of 10 us is assumed.
    OptaneP5800x,
    /// Intel 660p, QLC: 391 us for a 4 KiB random read (PrismDB, table 1); 20,000 reads a second,
    /// 1 GB/s read and 200 MB/s write as the project's two-tier bench throttles it, which is the
    /// drive after its SLC cache is full. Write 30 us and sync 2 ms are assumed.
    Qlc660p,
    /// A TLC NVMe drive, Intel DC P4610: 18 us and 2,080 MB/s for writes (SpanDB, table 1);
    /// 77 us, 3.2 GB/s and 640,000 reads a second (vendor's data sheet). The sync of 1 ms is
    /// assumed, that of a drive without power-loss protection.
    TlcNvme,
    /// A SATA drive, Intel DC S4510: 37 us and 510 MB/s for writes (SpanDB, table 1); 560 MB/s,
    /// 97,000 reads and 36,000 writes a second (vendor's data sheet, 960 GB). A read of 100 us
    /// and a sync of 1 ms are assumed.
    Sata,
    /// A hard disk of 7,200 turns a minute: 8.5 ms of seek and half a turn of 4.2 ms for anything
    /// not sequential, 200 MB/s (typical of vendors' data sheets); a sync is another turn.
    Hdd,
    /// A cloud volume as the project's two-tier bench throttles it: 10,000 reads and 10,000 writes
    /// a second, 300 MB/s each (AWS gp3 sells 3,000 to 16,000 and 125 to 1,000 MB/s). Of the
    /// promised "single-digit millisecond" latency, 0.7 ms for each access is assumed.
    Gp3,
    /// Persistent memory, one Optane DCPMM of 128 GB: 500,000 writes of 4 KiB a second by 4
    /// writers, 226,000 by 16 and 188,000 by 64 (Keigo, section 3.1; 1, 2 and 8 as figure 1 has
    /// them). Reads of 1 us and 6.6 GB/s are assumed. What is written is durable: a sync of 1 us is
    /// assumed.
    Dcpmm,
    /// A tenth of `dcpmm`'s writes, for a machine with two processors.
    DcpmmTenth,
}

/// Writers, and thousands of writes a second, of [`Profile::Dcpmm`].
const DCPMM_WRITES: [(u32, u64); 7] =
    [(1, 210), (2, 390), (4, 500), (8, 330), (16, 226), (32, 194), (64, 188)];

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 8] = [
        Self::OptaneP5800x,
        Self::Qlc660p,
        Self::TlcNvme,
        Self::Sata,
        Self::Hdd,
        Self::Gp3,
        Self::Dcpmm,
        Self::DcpmmTenth,
    ];

    /// As configurations write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OptaneP5800x => "optane-p5800x",
            Self::Qlc660p => "qlc-660p",
            Self::TlcNvme => "tlc-nvme",
            Self::Sata => "sata",
            Self::Hdd => "hdd",
            Self::Gp3 => "gp3",
            Self::Dcpmm => "dcpmm",
            Self::DcpmmTenth => "dcpmm-tenth",
        }
    }

    /// The device's figures.
    pub fn model(self) -> DeviceModel {
        // read, write and sync in us; MB/s read and write; channels; reads and writes a second.
        let (latency_us, mb_per_s, channels, iops) = match self {
            Self::OptaneP5800x => ([6, 6, 10], [7_200, 6_200], 9, [None, None]),
            Self::Qlc660p => ([391, 30, 2_000], [1_000, 200], 8, [Some(20_000), None]),
            Self::TlcNvme => ([77, 18, 1_000], [3_200, 2_080], 49, [None, None]),
            Self::Sata => ([100, 37, 1_000], [560, 510], 10, [Some(97_000), Some(36_000)]),
            Self::Hdd => ([12_700, 12_700, 8_300], [200, 200], 1, [None, None]),
            Self::Gp3 => ([700, 700, 700], [300, 300], 64, [Some(10_000), Some(10_000)]),
            Self::Dcpmm | Self::DcpmmTenth => ([1, 2, 1], [6_600, 2_000], 32, [None, None]),
        };
        let writes = |unit| {
            let points = DCPMM_WRITES.iter().map(|(writers, rate)| (*writers, rate * unit));
            WriteCurve::new(points.collect())
        };
        let write_curve = match self {
            Self::Dcpmm => writes(1_000),
            Self::DcpmmTenth => writes(100),
            _ => WriteCurve::default(),
        };
        let [read, write, sync] = latency_us.map(|us| Duration(Span::from_micros(us)));
        let [read_rate, write_rate] = mb_per_s.map(|mb| ByteSize(mb * 1_000_000));
        DeviceModel {
            read_latency: read,
            write_latency: write,
            sync_latency: sync,
            read_bytes_per_s: read_rate,
            write_bytes_per_s: write_rate,
            channels,
            read_iops_max: iops[0],
            write_iops_max: iops[1],
            sequential_is_free: self == Self::Hdd,
            write_curve,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl TryFrom<String> for Profile {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not an emulated device; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_name_and_serves_requests() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
            let model = profile.model();
            assert!(model.channels >= 1 && model.read_bytes_per_s.0 >= 200_000_000, "{profile}");
            assert!(model.read_latency.0 >= Span::from_micros(1), "{profile}");
        }
        let error = "floppy".parse::<Profile>().unwrap_err();
        assert!(error.contains("floppy") && error.contains("qlc-660p"), "{error}");
    }

    #[test]
    fn slow_devices_are_ordered_as_their_figures_say() {
        let latency = |profile: Profile| profile.model().read_latency;
        assert!(latency(Profile::OptaneP5800x) < latency(Profile::TlcNvme));
        assert!(latency(Profile::TlcNvme) < latency(Profile::Qlc660p));
        assert!(latency(Profile::Qlc660p) < latency(Profile::Hdd));
        // PrismDB, table 1: the two devices lie a factor of about 65 apart.
        let factor =
            latency(Profile::Qlc660p).0.as_nanos() / latency(Profile::OptaneP5800x).0.as_nanos();
        assert_eq!(factor, 65);
    }
}
