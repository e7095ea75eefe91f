//! What must hold for any bytes of a header page, a slot, a change and a state of live slots. Each
//! property returns whether they were accepted.

use thermocline_foundation::coding::Decoder;
use thermocline_foundation::{DatabaseId, FileNumber, Place};
use thermocline_slab::{LiveSlots, SlabChange, decoders};

/// The slot of the golden file: the second one of slab 1, of 128 bytes.
const PLACE: Place =
    Place { database: DatabaseId([0x5a; 16]), file: FileNumber(1), offset: 4096 + 128 };

/// A slot: what is read is written the same.
pub fn slab_slot(data: &[u8]) -> bool {
    let written = decoders::rewrite_slot(&PLACE, data);
    assert!(written.as_ref().is_none_or(|written| data.starts_with(written)), "{written:?}");
    written.is_some()
}

/// A slot behind its checksum.
pub fn sealed_slab_slot(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    decoders::seal_slot(&PLACE, &mut bytes);
    slab_slot(&bytes)
}

/// A header page: what is read is written the same, and its slots lie within its file.
pub fn slab_header(data: &[u8]) -> bool {
    let place = Place { offset: 0, ..PLACE };
    let Some(shape) = decoders::read_header(&place, data) else {
        return false;
    };
    assert!(shape.slots > 0 && shape.offset(shape.slots) <= shape.file_bytes());
    assert_eq!(decoders::header(&place, shape), data);
    true
}

/// A header page behind its checksum.
pub fn sealed_slab_header(data: &[u8]) -> bool {
    let mut page = data.to_vec();
    decoders::seal_header(&Place { offset: 0, ..PLACE }, &mut page);
    slab_header(&page)
}

/// A change: written and read again it is the same, and applying it never panics.
pub fn slab_change(data: &[u8]) -> bool {
    let Ok(change) = SlabChange::decode(&mut Decoder::new(data)) else {
        return false;
    };
    let mut bytes = Vec::new();
    change.encode(&mut bytes);
    assert_eq!(SlabChange::decode(&mut Decoder::new(&bytes)).as_ref(), Ok(&change));
    let mut live = LiveSlots::default();
    let applied = live.apply(&change).is_ok();
    assert_eq!(applied, live.get(change.file()).is_some(), "applied whole or not at all");
    true
}

/// A state: written and read again it is the same.
pub fn live_slots(data: &[u8]) -> bool {
    let Ok(live) = LiveSlots::decode(&mut Decoder::new(data)) else {
        return false;
    };
    let mut bytes = Vec::new();
    live.encode(&mut bytes);
    assert_eq!(LiveSlots::decode(&mut Decoder::new(&bytes)), Ok(live));
    true
}
