//! What a person is shown of a host's directory: its files and its tiers.
//!
//! 1. Nothing is changed, and no lock is taken.
//!
//! Threads: any.

use super::creation::files_path;
use super::{FileClass, Holds, Names};
use crate::driver::Space;
use crate::load::TierLoad;
use crate::profile::TierProfile;
use crate::tier::{Tier, TierIndex};
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_foundation::ByteSize;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

/// A managed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInfo {
    /// Its name in the host's directory.
    pub name: String,
    /// Where it lies; none where that is the host's directory, which is no tier.
    pub tier: Option<TierIndex>,
    /// What it holds, as far as that is known.
    pub class: FileClass,
    /// Bytes that it takes, or is expected to while it is written.
    pub bytes: u64,
    /// Reads that the host told of; older ones count less where files are copied for them.
    pub reads: u64,
    /// The file itself.
    pub place: PathBuf,
}

/// What a tier may take of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The device's number, and all its bytes.
    pub device: u64,
    /// See `device`.
    pub device_bytes: u64,
    /// Bytes that the host's directory may take there.
    pub capacity_bytes: u64,
    /// Where its files lie.
    pub path: PathBuf,
}

/// A tier of a host's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTier {
    /// Its place, 0 being the fastest.
    pub tier: TierIndex,
    /// Where the files lie.
    pub path: PathBuf,
    /// The driver's name.
    pub driver: String,
    /// Bytes that managed files may take.
    pub capacity: ByteSize,
    /// Managed files there.
    pub files: u64,
    /// Bytes that they take.
    pub used_bytes: u64,
    /// Copies of files of slower tiers, and bytes that they take.
    pub copies: u64,
    /// See `copies`.
    pub copied_bytes: u64,
    /// Reads that the host told of and that the tier served.
    pub reads: u64,
    /// Room on the device; none where it cannot be told.
    pub space: Option<Space>,
    /// What is known of the device.
    pub profile: TierProfile,
    /// Its writers; none where they are not counted.
    pub load: TierLoad,
}

impl Names {
    /// The managed files, in the order of their names.
    pub fn files(&self) -> Vec<NamedInfo> {
        let tiers = self.host.identities.len();
        let listing = self.host.listing.lock();
        let managed = listing.iter().filter(|(_, named)| {
            named.class.holds != Holds::Other || named.place.room != self.host.home
        });
        let info = managed.map(|(name, named)| NamedInfo {
            name: name.clone(),
            tier: Some(named.place.room).filter(|room| room.position() < tiers),
            class: named.class,
            bytes: named.bytes,
            reads: named.reading.reads.load(Relaxed),
            place: self.host.room(&named.place).tier.spec().path.join(&named.place.file),
        });
        info.collect()
    }

    /// The tiers, fastest first.
    pub fn tiers(&self) -> Vec<NamedTier> {
        let files = self.files();
        let copies = self.host.copies();
        let states = self.host.tier_states();
        let tier = |identity: &Arc<Tier>| {
            let (index, spec) = (identity.index(), identity.spec());
            let copied = || copies.iter().filter(|copy| copy.tier == index);
            let known = self.host.loads.profile(index);
            let on_disk = || TierProfile::of(&**identity.driver());
            let here = || files.iter().filter(|file| file.tier == Some(index));
            NamedTier {
                tier: index,
                path: files_path(&self.host.path, spec),
                driver: spec.driver.clone(),
                capacity: spec.capacity,
                files: here().count() as u64,
                used_bytes: here().map(|file| file.bytes).sum(),
                copies: copied().count() as u64,
                copied_bytes: copied().map(|copy| copy.bytes).sum(),
                reads: self.host.served[index.position()].get(),
                space: identity.driver().space().ok(),
                profile: known.map_or_else(on_disk, |known| (*known).clone()),
                load: states[index.position()].load,
            }
        };
        self.host.identities.iter().map(tier).collect()
    }

    /// What the tiers may take of their devices, where these can be told.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claim = |tier: &Arc<Tier>| {
            let (driver, spec) = (tier.driver(), tier.spec());
            Some(Claim {
                device: driver.directory_id()?.device,
                device_bytes: driver.space().ok()?.total_bytes,
                capacity_bytes: spec.capacity.0,
                path: files_path(&self.host.path, spec),
            })
        };
        self.host.identities.iter().filter_map(claim).collect()
    }
}
