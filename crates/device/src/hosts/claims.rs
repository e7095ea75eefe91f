//! What the directories of a host may take of the devices that they share. Each takes its tiers'
//! capacities from the settings and knows nothing of the others: two databases with a fast tier of
//! 20 GiB may come to 40 GiB on one device.
//!
//! Nothing fails when they do. Files that meet the full device go on on the next tier, but levels
//! that should be fast are slow then, and placement does not know why.
//!
//! Pure.

use crate::names::Claim;
use thermocline_foundation::ByteSize;

/// What people should know of the devices of `own`, where `all` tiers of open directories may take
/// more of one than it has: a line each.
pub(super) fn overbooked(own: &[Claim], all: &[Claim]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut warnings = Vec::new();
    for claim in own {
        if seen.contains(&claim.device) {
            continue;
        }
        seen.push(claim.device);
        let same = all.iter().filter(|other| other.device == claim.device);
        let bytes = same.map(|other| other.capacity_bytes).fold(0, u64::saturating_add);
        if bytes > claim.device_bytes {
            warnings.push(format!(
                "open directories may take {} of the device of {}, which has {}: lower the \
                 capacities of their tiers, or it fills up before any of them",
                ByteSize(bytes),
                claim.path.display(),
                ByteSize(claim.device_bytes)
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_that_may_take_more_than_their_device_has_are_told_once_for_each_device() {
        // Devices and capacities in GiB; a device has ten times its number.
        let claims = |all: &[(u64, u64)]| -> Vec<Claim> {
            let claim = |(device, gib): &(u64, u64)| Claim {
                device: *device,
                device_bytes: *device * (10 << 30),
                capacity_bytes: *gib << 30,
                path: format!("/mnt/{device}").into(),
            };
            all.iter().map(claim).collect()
        };
        for (own, others, expected) in [
            (&[(1, 10), (2, 20)][..], &[][..], &[][..]),
            (
                &[(1, 11)],
                &[],
                &["open directories may take 11 GiB of the device of /mnt/1, which has 10 GiB"],
            ),
            (&[(1, 6)], &[(1, 4)], &[]),
            (&[(1, 6)], &[(1, 6)], &["may take 12 GiB of the device of /mnt/1"]),
            (&[(1, 6)], &[(2, 50)], &[]),
            (
                &[(1, 6), (1, 6)],
                &[],
                &["may take 12 GiB of the device of /mnt/1, which has 10 GiB"],
            ),
            (&[(1, 6), (2, 15)], &[(1, 6), (2, 15)], &["device of /mnt/1", "device of /mnt/2"]),
        ] {
            let (own, others) = (claims(own), claims(others));
            let all: Vec<_> = own.iter().chain(&others).cloned().collect();
            let found = overbooked(&own, &all);
            let matches = found.iter().zip(expected).all(|(line, part)| line.contains(part));
            assert!(matches && found.len() == expected.len(), "{own:?} {others:?}: {found:?}");
        }
    }
}
