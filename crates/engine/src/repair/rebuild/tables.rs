//! Tables of level 0 that get what slots and logs have, each record with its own sequence.

use super::Ground;
use crate::error::Result;
use crate::table_set::table::TableMeta;
use bytes::Bytes;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_table::{TableWriter, Trailer};

/// Bytes of records that a table gets, about.
const TABLE_BYTES: u64 = 32 << 20;

/// A key's newest record, and the bytes that it counts with.
pub(super) type Record<K> = (K, Trailer, Bytes, u64);

/// Writes `records`, which ascend by key and come to `bytes`, to tables, which the namespace has
/// and no manifest.
pub(super) fn write<K: AsRef<[u8]>>(
    ground: &Ground,
    bytes: u64,
    records: impl Iterator<Item = Result<Record<K>>>,
) -> Result<Vec<TableMeta>> {
    let mut left_bytes = bytes;
    let mut records = records.peekable();
    let mut tables = Vec::new();
    while records.peek().is_some() {
        let expected_bytes = left_bytes.min(TABLE_BYTES);
        let context = FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Recovery };
        let file = ground.files.create_file(context, expected_bytes)?;
        let number = file.number();
        let options = ground.settings.table_options(0);
        let mut writer = TableWriter::new(file, options).expecting(expected_bytes);
        let mut bytes = 0;
        while bytes < TABLE_BYTES
            && let Some(record) = records.next()
        {
            let (key, trailer, value, record_bytes) = record?;
            writer.add(key.as_ref(), trailer, &value)?;
            bytes += record_bytes;
        }
        left_bytes = left_bytes.saturating_sub(bytes);
        tables.push(TableMeta::of(number, &writer.finish()?));
    }
    let numbers: Vec<_> = tables.iter().map(|table| table.number).collect();
    ground.files.publish(&numbers)?;
    Ok(tables)
}
