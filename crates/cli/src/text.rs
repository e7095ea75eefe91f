//! Bytes as text and back: the escapes of tab-separated lines, and numbers as people read them.
//!
//! A key or value is any bytes. In a line it is written as it is, except that a tab, a line end and
//! a backslash become `\t`, `\n` and `\\`, and other control characters and bytes that are not
//! UTF-8 become `\xNN`. What [`escape`] writes, [`unescape`] reads back exactly.

use std::fmt::Write as _;
use std::time::Duration;

/// What is wrong where [`unescape`] fails.
pub const AFTER_BACKSLASH: &str = "expected \\t, \\n, \\\\ or \\xNN after a backslash";

/// `bytes` as one field of a tab-separated line.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\\' => out.push_str("\\\\"),
                c if c.is_ascii_control() => push_hex(&mut out, c as u8),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(&mut out, *byte));
    }
    out
}

fn push_hex(out: &mut String, byte: u8) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// The bytes of a field, or the column (from 0) of an escape that is none.
pub fn unescape(field: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        // Most fields have no escape at all: copy up to the next one.
        let plain = field[at..].iter().position(|byte| *byte == b'\\');
        let end = plain.map_or(field.len(), |plain| at + plain);
        out.extend_from_slice(&field[at..end]);
        at = end;
        if at == field.len() {
            break;
        }
        let (byte, len) = match field.get(at + 1) {
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'\\') => (b'\\', 2),
            Some(b'x') => (hex(field.get(at + 2..at + 4)).ok_or(at)?, 4),
            _ => return Err(at),
        };
        out.push(byte);
        at += len;
    }
    Ok(out)
}

/// The byte of two hexadecimal digits.
pub fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let digits = std::str::from_utf8(digits?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u8::from_str_radix(digits, 16).ok()
}

/// A count with thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 record`, `2 records`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// [`span`] of so many seconds.
pub fn span_s(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A span of time with about three digits: `640 ns`, `12.3 us`, `4.56 s`.
pub fn span(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if unit == "ns" || value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.digits$} {unit}")
}

/// Whole seconds: `0 s`, `61 s`.
pub fn seconds(duration: Duration) -> String {
    format!("{} s", count(duration.as_secs()))
}

/// A share as a percentage; a dash where there is nothing to share.
pub fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_a_line_of_text() {
        let all: Vec<u8> = (0..=255).chain("ünïcode\\n".bytes()).collect();
        let line = escape(&all);
        assert!(!line.contains(['\t', '\n', '\r', '\0']), "{line}");
        assert_eq!(unescape(line.as_bytes()), Ok(all));
        assert_eq!(escape("Größe\t1".as_bytes()), "Größe\\t1");
    }

    #[test]
    fn what_is_no_escape_is_an_error_with_its_column() {
        for (field, column) in [("ab\\", 2), ("\\q", 0), ("a\\x1", 1), ("a\\x+1", 1)] {
            assert_eq!(unescape(field.as_bytes()), Err(column), "{field}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!((count(0), count(999)), ("0".to_owned(), "999".to_owned()));
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(span(Duration::from_nanos(640)), "640 ns");
        assert_eq!(span(Duration::from_micros(12)), "12.0 us");
        assert_eq!(span(Duration::from_millis(4560)), "4.56 s");
        assert_eq!((share(1, 8), share(0, 0)), ("12.5 %".to_owned(), "-".to_owned()));
    }
}
