//! A small region in a shadow, and its crashes.

use crate::identity::{Circumstances, Expected, RegionIdentity};
use crate::layout::Geometry;
use crate::persist::Medium;
use crate::region::{OpenedRegion, Region};
use crate::shadow::Model;
use thermocline_device::Result;
use thermocline_device::identity::InstanceId;
use thermocline_foundation::{DatabaseId, FileNumber};

pub const MODELS: [Model; 2] = [Model::X86, Model::Words];

const CIRCUMSTANCES: Circumstances =
    Circumstances { is_synchronous: true, boot: [3; 16], dirty_shutdowns: Some(0) };

pub fn identity(geometry: Geometry) -> RegionIdentity {
    RegionIdentity {
        database: DatabaseId([0x5a; 16]),
        instance: InstanceId([0xa5; 16]),
        region: FileNumber(9),
        generation: 1,
        geometry,
        is_clean: false,
        opened: CIRCUMSTANCES,
    }
}

/// A region with `chunks` chunks of 4 KiB.
pub fn geometry(chunks: u64) -> Geometry {
    let journal_bytes = 65536;
    Geometry { bytes: 12288 + journal_bytes + chunks * 4096, chunk_bytes: 4096, journal_bytes }
}

/// A new region whose stores are remembered from now on.
pub fn create(geometry: Geometry) -> OpenedRegion {
    let zeros = vec![0; (geometry.bytes / 8) as usize];
    let made = Region::create(Medium::shadowed(&zeros), identity(geometry)).unwrap();
    open(&made.region.medium().snapshot()).unwrap()
}

/// Opens what a crash left, or a close.
pub fn open(image: &[u64]) -> Result<OpenedRegion> {
    let identity = identity(geometry(0));
    let (database, instance) = (identity.database, identity.instance);
    let expected = Expected { database, instance, generation: 1 };
    Region::open(Medium::shadowed(image), &expected, &CIRCUMSTANCES, 1)
}

/// Calls `look` with the images of all crashes of `region` since it was opened, at most `images` of
/// each crash, and with what was acknowledged before it; returns whether these were all there are.
pub fn every_image(region: &Region, images: u64, mut look: impl FnMut(u64, &[u64])) -> bool {
    let (mut count, mut is_complete) = (0, true);
    region.medium().shadow().crashes(|crash| {
        for model in MODELS {
            is_complete &= crash.images(model, images, count, |image| {
                count += 1;
                look(crash.mark, image);
            });
        }
    });
    is_complete
}

/// Crashes of which so few images are possible have all of them looked at: those of twelve lines,
/// each there or not.
const ALL_IMAGES: u64 = 1 << 12;

/// As [`every_image`], with all images of a crash where these are few, and so many of another one;
/// returns of how many crashes all were looked at.
pub fn all_images(region: &Region, samples: u64, mut look: impl FnMut(u64, &[u64])) -> u64 {
    let mut whole = 0;
    region.medium().shadow().crashes(|crash| {
        for model in MODELS {
            let count = crash.count(model).filter(|count| *count <= ALL_IMAGES);
            let images = count.unwrap_or(samples);
            let is_whole = crash.images(model, images, whole, |image| look(crash.mark, image));
            whole += u64::from(is_whole);
        }
    });
    whole
}
