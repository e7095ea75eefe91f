//! Package indexes as Debian keeps them (deb822): stanzas of `Name: value` fields, apart by empty
//! lines; a line that begins with a space or tab continues the field above it.
//!
//! Key: `PACKAGE=VERSION`, with `:ARCHITECTURE` after it where the stanza has one. Value: the
//! stanza's lines as they are, without the empty line after them.

use super::lines::{Lines, without_end};
use super::loader::{Loader, refusal};
use crate::failure::Result;

/// The stanza being read.
#[derive(Debug, Default)]
struct Stanza {
    text: Vec<u8>,
    first_line: u64,
    package: Option<Vec<u8>>,
    version: Option<Vec<u8>>,
    architecture: Option<Vec<u8>>,
}

impl Stanza {
    /// Takes a line that is not empty.
    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let continued = line.starts_with(b" ") || line.starts_with(b"\t");
        if continued && self.text.is_empty() {
            return Err("a stanza begins with a continued line; expected 'Name: value'".to_owned());
        }
        if !continued && !line.starts_with(b"#") {
            let colon = line.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0);
            let Some(colon) = colon else {
                return Err("expected 'Name: value', or a space before a continued line".to_owned());
            };
            let name = line[..colon].to_ascii_lowercase();
            let field = match &name[..] {
                b"package" => Some(&mut self.package),
                b"version" => Some(&mut self.version),
                b"architecture" => Some(&mut self.architecture),
                _ => None,
            };
            if let Some(field) = field {
                *field = Some(line[colon + 1..].trim_ascii().to_vec());
            }
        }
        self.text.extend_from_slice(line);
        Ok(())
    }

    fn key(&self) -> Result<Vec<u8>, &'static str> {
        let mut key = self.package.clone().ok_or("the stanza has no Package field")?;
        key.push(b'=');
        key.extend(self.version.as_ref().ok_or("the stanza has no Version field")?);
        if let Some(architecture) = &self.architecture {
            key.push(b':');
            key.extend(architecture);
        }
        Ok(key)
    }

    /// Hands the stanza on, if there is one, and begins anew.
    fn finish(&mut self, lines: &Lines, loader: &mut Loader) -> Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let first = self.first_line;
        let key = self.key().map_err(|what| lines.error_at(first, what))?;
        if let Some(what) = refusal(key.len(), self.text.len() as u64) {
            return Err(lines.error_at(first, what));
        }
        loader.put(&key, &self.text)?;
        *self = Self::default();
        Ok(())
    }
}

/// Loads every stanza.
pub fn load(lines: &mut Lines, loader: &mut Loader) -> Result<()> {
    let mut stanza = Stanza::default();
    while let Some(line) = lines.next()? {
        let len = line.len() as u64;
        if without_end(line).trim_ascii().is_empty() {
            stanza.finish(lines, loader)?;
        } else {
            let begins = stanza.text.is_empty();
            let added = stanza.add(line);
            added.map_err(|what| lines.error(what))?;
            if begins {
                stanza.first_line = lines.number();
            }
        }
        loader.advance(len);
    }
    stanza.finish(lines, loader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(lines: &[&str]) -> Stanza {
        let mut stanza = Stanza::default();
        lines.iter().for_each(|line| stanza.add(line.as_bytes()).unwrap());
        stanza
    }

    #[test]
    fn the_key_names_package_version_and_architecture() {
        let fields =
            ["Package: zstd\n", "version:  1.5 \n", "Description: fast\n", " Version: no\n"];
        assert_eq!(stanza(&fields).key(), Ok(b"zstd=1.5".to_vec()));
        let mut with = fields.to_vec();
        with.push("Architecture: amd64");
        assert_eq!(stanza(&with).key(), Ok(b"zstd=1.5:amd64".to_vec()));
        assert_eq!(stanza(&with).text, with.concat().into_bytes());
        assert!(stanza(&fields[1..]).key().unwrap_err().contains("Package"));
        assert!(stanza(&fields[..1]).key().unwrap_err().contains("Version"));
    }

    #[test]
    fn a_line_that_is_no_field_is_refused() {
        assert!(Stanza::default().add(b" continued\n").is_err());
        for line in ["no colon here\n", ": no name\n"] {
            assert!(stanza(&["Package: a\n"]).add(line.as_bytes()).is_err(), "{line}");
        }
    }
}
