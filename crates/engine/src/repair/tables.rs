//! Tables with damaged blocks: what can be read of them goes to a table in their place.

use super::plan::{Lost, RepairStep};
use super::{Bytes, Meter, Piece, Subject, read_otherwise};
use crate::error::{Error, Result};
use crate::table_set::table::{Table, TableMeta};
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_table::{LostBlocks, TableReader, TableWriter};

/// A damaged table.
#[derive(Debug)]
pub(super) struct TableFound {
    level: usize,
    meta: TableMeta,
    /// Which of its keys are lost.
    pub lost: Vec<KeysLost>,
    pub pieces: Vec<Piece>,
    /// None where not even footer and top index can be read.
    reader: Option<Arc<TableReader>>,
}

/// A range of keys of which a table cannot tell anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeysLost {
    pub after: Option<Vec<u8>>,
    pub until: Vec<u8>,
}

impl KeysLost {
    fn of(block: &LostBlocks, table: &TableMeta) -> Self {
        let after = block.after.clone().filter(|after| *after >= table.smallest_key);
        Self { after, until: block.until.clone() }
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| key > &after[..]) && key <= &self.until[..]
    }
}

impl TableFound {
    pub fn number(&self) -> FileNumber {
        self.meta.number
    }

    pub fn is(&self, number: FileNumber) -> bool {
        self.meta.number == number
    }

    /// These are the blocks of which it says that their keys are lost.
    fn has_told(&self, blocks: &[LostBlocks]) -> bool {
        let lost = blocks.iter().map(|block| KeysLost::of(block, &self.meta));
        lost.eq(self.lost.iter().cloned())
    }

    /// Notes how many of the lost keys have copies, of which `keys` are.
    pub fn count_copies(&mut self, keys: &[&[u8]]) {
        for (range, piece) in self.lost.iter().zip(&mut self.pieces) {
            for lost in &mut piece.step.lost {
                if let Lost::Keys { copied, .. } = lost {
                    *copied = keys.iter().filter(|key| range.has(key)).count() as u64;
                }
            }
        }
    }
}

/// Verifies all tables.
pub(super) fn look(subject: &Subject, meter: &mut Meter<'_>) -> Result<Vec<TableFound>> {
    let mut found = Vec::new();
    for (level, table) in subject.restored.levels.tables() {
        let mut done_bytes = 0;
        let verified = table.reader().and_then(|reader| {
            Ok(reader.verify(&mut |bytes| {
                done_bytes += bytes;
                meter.add(bytes);
            })?)
        });
        match verified {
            Ok(_) => {}
            Err(error) if subject.is_damage(&error) => {
                found.push(examine(subject, level, table, &error)?);
            }
            Err(error) => return Err(error),
        }
        meter.add(table.meta.bytes.saturating_sub(done_bytes));
    }
    Ok(found)
}

/// What is left of a table, of which `error` is known to be wrong.
fn examine(subject: &Subject, level: usize, table: &Table, error: &Error) -> Result<TableFound> {
    let meta = table.meta.clone();
    let file = subject.files.open_file(meta.number)?;
    let opened = TableReader::open_mended(Arc::clone(&file), Arc::clone(&subject.store.cache));
    let (reader, blocks) = match opened.and_then(|reader| {
        let blocks = reader.salvage(&mut |_, _, _| Ok(()))?;
        Ok((Arc::new(reader), blocks))
    }) {
        Ok((reader, blocks)) => (Some(reader), blocks),
        Err(error) if subject.unreadable.is_damage(error.kind()) => {
            let until = meta.largest_key.clone();
            (None, vec![LostBlocks { offset: 0, after: None, until, error }])
        }
        Err(error) => return Err(error.into()),
    };
    let whole = || Bytes::All(meta.number);
    let mut pieces = Vec::new();
    if blocks.is_empty() {
        let step = RepairStep::new(&file, error, "written anew: all of its records can be read");
        pieces.push(Piece { step, bytes: whole() });
    }
    let mut lost = Vec::new();
    for block in blocks {
        let repair = match reader {
            Some(_) => "written anew without the records that cannot be read",
            None => "taken out: its index cannot be read",
        };
        let keys = KeysLost::of(&block, &meta);
        let KeysLost { after, until } = keys.clone();
        let mut step = RepairStep::new(&file, &block.error.into(), repair);
        step.lost.push(Lost::Keys { after, until, copied: 0 });
        pieces.push(Piece { step, bytes: whole() });
        lost.push(keys);
    }
    Ok(TableFound { level, meta, lost, pieces, reader })
}

/// Writes what can be read of `tables` to new ones, which the namespace has and no manifest.
pub(super) fn rewrite(subject: &Subject, tables: &[TableFound]) -> Result<Vec<(u8, TableMeta)>> {
    let mut rewritten = Vec::new();
    for table in tables {
        let Some(reader) = &table.reader else { continue };
        let (files, level) = (&subject.files, table.level);
        let kind = FileKind::Table { level: level as u8 };
        let context = FileContext { kind, origin: Origin::Recovery };
        let file = files.create_file(context, table.meta.bytes)?;
        let number = file.number();
        let options = subject.settings.table_options(level);
        let mut writer = TableWriter::new(file, options).expecting(table.meta.bytes);
        if let Some(Sequence(at)) = table.meta.ingested_at {
            writer.follow(Sequence(at.saturating_sub(1)));
        }
        let lost = reader.salvage(&mut |key, trailer, value| writer.add(key, trailer, value))?;
        if !table.has_told(&lost) {
            return Err(read_otherwise(&format!("table {}", table.meta.number)));
        }
        if writer.entries() == 0 {
            drop(writer);
            files.delete_files(&[number])?;
            continue;
        }
        let mut meta = TableMeta::of(number, &writer.finish()?);
        if let Some(sequence) = table.meta.ingested_at {
            meta.ingested_at = Some(sequence);
            (meta.smallest_sequence, meta.largest_sequence) = (sequence, sequence);
        }
        files.publish(&[number])?;
        rewritten.push((level as u8, meta));
    }
    Ok(rewritten)
}
