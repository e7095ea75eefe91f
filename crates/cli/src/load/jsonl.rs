//! JSON lines: `{"key": "K", "value": "V"}`; `key_base64` and `value_base64` for bytes that are no
//! text. Empty lines are passed over; a name that is none of these is an error.

use super::lines::{Lines, without_end};
use super::loader::{Loader, refusal};
use crate::failure::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

/// A record as JSON; also what `scan --json` prints.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl Record {
    /// The record of a key and, if it is wanted, its value.
    pub fn of(key: &[u8], value: Option<&[u8]>) -> Self {
        let (key, key_base64) = encode(key);
        let (value, value_base64) = value.map_or((None, None), encode);
        Self { key, key_base64, value, value_base64 }
    }

    fn into_bytes(self) -> Result<(Vec<u8>, Vec<u8>), String> {
        let key = decode("key", self.key, self.key_base64)?;
        Ok((key, decode("value", self.value, self.value_base64)?))
    }
}

fn encode(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

fn decode(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map_err(|error| format!("{name}_base64: {error}"))
        }
        (Some(_), Some(_)) => Err(format!("both {name} and {name}_base64; expected one of them")),
        (None, None) => Err(format!(
            "no {name}; expected {{\"key\": \"K\", \"value\": \"V\"}} (or {name}_base64)"
        )),
    }
}

/// Loads every line.
pub fn load(lines: &mut Lines, loader: &mut Loader) -> Result<()> {
    while let Some(line) = lines.next()? {
        let len = line.len() as u64;
        match parse(without_end(line)) {
            Ok(Some((key, value))) => {
                if let Some(what) = refusal(key.len(), value.len() as u64) {
                    return Err(lines.error(what));
                }
                loader.put(&key, &value)?;
            }
            Ok(None) => {}
            Err(what) => return Err(lines.error(what)),
        }
        loader.advance(len);
    }
    Ok(())
}

type Pair = (Vec<u8>, Vec<u8>);

fn parse(line: &[u8]) -> Result<Option<Pair>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let record: Record = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // The parser counts lines too, but it has only seen this one.
        let what = text.split(" at line ").next().unwrap_or(&text);
        let form = "expected {\"key\": \"K\", \"value\": \"V\"}";
        format!("column {}: {what}; {form}", error.column())
    })?;
    record.into_bytes().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_bytes_survive_json() {
        for (key, value) in [(&b"k"[..], &b"v"[..]), (b"\xff", b"\0\x80"), (b"", "ü\n".as_bytes())]
        {
            let line = serde_json::to_string(&Record::of(key, Some(value))).unwrap();
            let pair = parse(line.as_bytes()).unwrap().unwrap();
            assert_eq!(pair, (key.to_vec(), value.to_vec()), "{line}");
        }
        assert_eq!(parse(b"  \r").unwrap(), None);
    }

    #[test]
    fn a_malformed_line_says_what_was_expected() {
        for (line, part) in [
            ("{\"key\": \"k\"}", "no value"),
            ("{\"value\": \"k\"}", "no key"),
            ("{\"key\": 1, \"value\": \"v\"}", "column 9: invalid type"),
            ("{\"key\": \"k\", \"valeu\": \"v\"}", "unknown field `valeu`"),
            ("{\"key\": \"k\", \"value\": \"v", "EOF"),
            ("{\"key\": \"k\", \"value_base64\": \"?\"}", "value_base64"),
            ("{\"key\": \"k\", \"value\": \"v\", \"value_base64\": \"dg==\"}", "both"),
            ("[]", "expected"),
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(part) && !error.contains("at line"), "{error}");
        }
    }
}
