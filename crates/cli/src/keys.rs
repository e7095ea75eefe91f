//! Keys as the command line has them: one notation for what `scan` prints and what every command
//! takes.
//!
//! A key is any bytes, an argument is bytes without a NUL. So keys are written with the escapes of
//! `text.rs`, unless `--key-format` names another notation.
//!
//! 1. What [`KeyFormat::write`] prints, [`KeyFormat::parse`] reads back exactly. The notation `raw`
//!    is the exception: no argument holds a NUL, and a line end in a key looks like two keys.
//! 2. An escaped key does not begin with a hyphen, so it is never taken for an option.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::text::{self, AFTER_BACKSLASH};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The lines that `--help` of every command with keys ends with.
pub const EXAMPLES: &str = "\
Keys are given as `scan` prints them: \\t, \\n, \\\\ and \\xNN stand for the bytes themselves.
  thermocline get 'nul\\x00byte'                        the eight bytes of nul, NUL, byte
  thermocline get --key-format hex 6e756c0062797465    the same key
  thermocline get --key-format base64 bnVsAGJ5dGU=     the same key
  thermocline get --key-format raw 'C:\\new'            a backslash is a backslash";

/// The option of every command that takes keys.
#[derive(Clone, Copy, Debug, Args)]
pub struct Keys {
    /// How keys are written, in arguments and in what is printed
    #[arg(long = "key-format", value_name = "FORMAT", value_enum, default_value_t)]
    pub format: KeyFormat,
}

/// A notation for keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeyFormat {
    /// As `scan` prints them and `load --tsv` reads them: \t, \n, \\ and \xNN stand for bytes
    #[default]
    Escaped,
    /// The bytes themselves
    Raw,
    /// Two hexadecimal digits for each byte
    Hex,
    /// Base64 with the standard alphabet and padding
    Base64,
}

impl KeyFormat {
    /// The key that an argument names.
    pub fn parse(self, argument: &OsStr) -> Result<Vec<u8>> {
        let bytes = argument.as_bytes();
        let parsed = match self {
            Self::Raw => Ok(bytes.to_vec()),
            Self::Escaped => text::unescape(bytes).map_err(|at| {
                format!(
                    "column {}: {AFTER_BACKSLASH}; write a backslash as \\\\, or use --key-format \
                     raw",
                    at + 1
                )
            }),
            Self::Hex => parse_hex(bytes).ok_or_else(|| {
                "expected two hexadecimal digits for each byte, such as 00ff".to_owned()
            }),
            Self::Base64 => STANDARD.decode(bytes).map_err(|error| format!("base64: {error}")),
        };
        parsed.map_err(|what| {
            Failure::Usage(format!("the key '{}': {what}", argument.to_string_lossy()))
        })
    }

    /// The key that an option names, where it is given.
    pub fn parse_option(self, argument: Option<&OsStr>) -> Result<Option<Vec<u8>>> {
        argument.map(|argument| self.parse(argument)).transpose()
    }

    /// The key as [`KeyFormat::parse`] takes it.
    pub fn write(self, key: &[u8]) -> Vec<u8> {
        match self {
            Self::Raw => key.to_vec(),
            Self::Escaped => escape(key).into_bytes(),
            Self::Hex => key.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
            Self::Base64 => STANDARD.encode(key).into_bytes(),
        }
    }

    /// The failure of a command that asked for a key that is not there.
    pub fn missing(self, key: &[u8], database: &Database) -> Failure {
        let key = self.write(key);
        let (key, db) = (String::from_utf8_lossy(&key), database.db.display());
        Failure::new(format!("there is no key '{key}' in {db}"))
    }
}

fn escape(key: &[u8]) -> String {
    match key.strip_prefix(b"-") {
        Some(rest) => format!("\\x2d{}", text::escape(rest)),
        None => text::escape(key),
    }
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|pair| text::hex(Some(pair))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use thermocline_foundation::random::Random;

    const LOSSLESS: [(&str, KeyFormat); 3] =
        [("escaped", KeyFormat::Escaped), ("hex", KeyFormat::Hex), ("base64", KeyFormat::Base64)];

    /// Keys of any bytes, those that a command line could take for something else among them.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> =
            ["", "-", "--json", "--", "-h", "\\", "\\x41", "a b", "ü", "\t"]
                .map(|key| key.as_bytes().to_vec())
                .into();
        keys.extend([b"\0".to_vec(), b"\xff-\0\n".to_vec(), (0..=255).collect()]);
        let mut random = Random::new(11);
        for _ in 0..2000 {
            let mut key = vec![0; random.below(20) as usize];
            random.fill(&mut key);
            keys.push(key);
        }
        keys
    }

    /// The key that a command line names, taken apart as the program takes it.
    fn key_of(words: Vec<OsString>) -> Vec<u8> {
        let line = [OsString::from("thermocline")].into_iter().chain(words);
        match Arguments::try_parse_from(line).unwrap().command {
            Some(Command::Get(get)) => get.keys.format.parse(&get.key).unwrap(),
            Some(Command::Put(put)) => put.keys.format.parse(&put.key).unwrap(),
            Some(Command::Delete(delete)) => delete.keys.format.parse(&delete.key).unwrap(),
            Some(Command::Scan(scan)) => {
                let [from, to, prefix] = [&scan.from, &scan.to, &scan.prefix]
                    .map(|key| scan.keys.format.parse_option(key.as_deref()).unwrap());
                from.or(to).or(prefix).unwrap()
            }
            other => panic!("{other:?} takes no key"),
        }
    }

    #[test]
    fn every_command_takes_any_key_as_it_is_printed() {
        for key in keys() {
            for (name, format) in LOSSLESS {
                let printed = format.write(&key);
                assert!(!printed.contains(&0) && !printed.contains(&b'\n'), "{printed:?}");
                let printed = OsString::from_vec(printed);
                let option = if format == KeyFormat::Escaped {
                    vec![]
                } else {
                    vec!["--key-format".into(), name.into()]
                };
                let places: [(&[&str], &[&str]); 6] = [
                    (&["get"], &[]),
                    (&["put"], &["value"]),
                    (&["delete"], &[]),
                    (&["scan", "--from"], &[]),
                    (&["scan", "--to"], &[]),
                    (&["scan", "--prefix"], &[]),
                ];
                for (before, after) in places {
                    let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
                    words.push(printed.clone());
                    words.extend(after.iter().map(OsString::from));
                    words.extend(option.clone());
                    assert_eq!(key_of(words), key, "{before:?} {printed:?}");
                }
            }
        }
    }

    #[test]
    fn a_raw_key_is_the_argument_itself() {
        let key = OsStr::from_bytes(b"C:\\new\xff");
        assert_eq!(KeyFormat::Raw.parse(key).unwrap(), b"C:\\new\xff");
        assert_eq!(KeyFormat::Raw.write(b"a\0\n"), b"a\0\n");
    }

    #[test]
    fn what_is_no_key_of_its_notation_says_what_was_expected() {
        for (format, argument, part) in [
            (KeyFormat::Escaped, "C:\\new\\dir", "column 7"),
            (KeyFormat::Escaped, "end\\", "--key-format raw"),
            (KeyFormat::Hex, "abc", "two hexadecimal digits"),
            (KeyFormat::Hex, "+1", "two hexadecimal digits"),
            (KeyFormat::Base64, "a", "base64"),
        ] {
            let failure = format.parse(OsStr::new(argument)).unwrap_err();
            let text = failure.to_string();
            assert!(text.contains(part) && text.contains(argument), "{text}");
            assert_eq!(failure.status(), 2);
        }
    }
}
