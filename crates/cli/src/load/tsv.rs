//! Tab-separated lines: `KEY<TAB>VALUE`, with the escapes of `text.rs`.
//!
//! Only the first tab separates, so an unescaped tab in a value is taken as it is. A carriage
//! return before the line's end is part of the value.

use super::lines::{Lines, without_end};
use super::loader::{Loader, refusal};
use crate::failure::Result;
use crate::text::{AFTER_BACKSLASH, unescape};

/// Loads every line.
pub fn load(lines: &mut Lines, loader: &mut Loader) -> Result<()> {
    while let Some(line) = lines.next()? {
        let len = line.len() as u64;
        match parse(without_end(line)) {
            Ok((key, value)) => {
                if let Some(what) = refusal(key.len(), value.len() as u64) {
                    return Err(lines.error(what));
                }
                loader.put(&key, &value)?;
            }
            Err(what) => return Err(lines.error(what)),
        }
        loader.advance(len);
    }
    Ok(())
}

fn parse(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or_else(|| {
        "no tab; expected KEY<TAB>VALUE (a tab inside a key is written \\t)".to_owned()
    })?;
    let field = |from: usize, to: usize| {
        unescape(&line[from..to]).map_err(|at| {
            let column = from + at + 1;
            format!("column {column}: {AFTER_BACKSLASH}")
        })
    };
    Ok((field(0, tab)?, field(tab + 1, line.len())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_a_tab_and_a_value() {
        let pair = |key: &str, value: &str| Ok((key.into(), value.into()));
        assert_eq!(parse(b"k\tv"), pair("k", "v"));
        assert_eq!(parse(b"k\\tk\ta\tb\\n\\\\\\x41"), pair("k\tk", "a\tb\n\\A"));
        assert_eq!(parse(b"\t"), pair("", ""));
        assert!(parse(b"no tab").unwrap_err().contains("KEY<TAB>VALUE"));
        assert!(parse(b"key\tab\\").unwrap_err().starts_with("column 7:"));
    }
}
