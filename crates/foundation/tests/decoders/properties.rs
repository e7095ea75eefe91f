//! What must hold for any text that a unit or an identity is parsed from, and for any bytes that
//! integers are decoded from. Each property returns whether the input was accepted.

use thermocline_foundation::coding::{Decoder, put_bytes, put_varint, varint_len};
use thermocline_foundation::{ByteSize, DatabaseId, Duration};

/// Texts of sizes, durations and identities: what is printed reads back.
pub fn units(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let size = text.parse::<ByteSize>();
    if let Ok(size) = size {
        let back: ByteSize = size.to_string().parse().expect("a printed size");
        // One digit behind the point of a number up to 1024 is shown.
        assert!(back.0.abs_diff(size.0) <= size.0 / 16, "{size:?} printed as {size}");
        let exact = format!("{} B", size.0).parse();
        assert_eq!(exact, Ok(size), "a size in bytes is exact");
    }
    let duration = text.parse::<Duration>();
    if let Ok(duration) = duration {
        assert_eq!(duration.to_string().parse(), Ok(duration), "printed as {duration}");
    }
    let id = DatabaseId::parse(text);
    if let Some(id) = id {
        assert_eq!(DatabaseId::parse(&id.to_string()), Some(id));
    }
    size.is_ok() || duration.is_ok() || id.is_some()
}

/// Integers and byte strings: what is written reads back, and nothing is read beyond the end.
pub fn coding(data: &[u8]) -> bool {
    let mut decoder = Decoder::new(data);
    while !decoder.is_empty() {
        let before = decoder.rest().len();
        let Ok(number) = decoder.varint() else {
            return false;
        };
        let mut out = Vec::new();
        put_varint(&mut out, number);
        assert!(out.len() == varint_len(number) && out.len() <= before - decoder.rest().len());
        assert_eq!(Decoder::new(&out).varint(), Ok(number));
        let Ok(bytes) = decoder.bytes() else {
            return false;
        };
        out.clear();
        put_bytes(&mut out, bytes);
        assert_eq!(Decoder::new(&out).bytes(), Ok(bytes));
    }
    true
}
