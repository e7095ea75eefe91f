//! Entries of an index partition, each coded as what changes from the one before.
//!
//! ```text
//!   short = head u8: dropped << 4 | unshared, dropped < 15 | key bytes | place varint
//!   long  = head u8: 0xf0 | flags | dropped varint, unless whole | unshared varint | key bytes
//!           | word u64, where it is not 0 | offset varint, where whole | place varint
//!
//!   flags = 1 a trailer word, 2 whole       place = length << 1 | page
//! ```
//! A separator is the one before it without its last `dropped` bytes, then `unshared` bytes of its
//! own: neighbours share long prefixes, and what is dropped is short however long those are. Data
//! blocks follow each other in the file, so the length is enough: a block begins where the one
//! before ends or, with `page`, at the next page. A *whole* entry leans on nothing; restarts are
//! whole, and no other entry is. (LevelDB, `table/block_builder.cc`, shares prefixes;
//! RocksDB since 6.0 codes the places in its index partitions as differences.)
//!
//! Invariants:
//! 1. An entry shares as much with the separator before it as the two have in common. A look-up
//!    takes it from there which of the two is larger, without rebuilding separators.
//! 2. Damage is reported where it is met: no length is believed before it is checked.
//!
//! Pure functions; any thread.

use crate::block::{Block, Broken, CUT, Entry, PREFIX, RESTART};
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, PAGE};
use std::cmp::Ordering;
use thermocline_foundation::coding::{Decoder, put_varint};

/// The head of a long entry, but for its flags.
const LONG: u8 = 0xf0;
/// Flag of a long entry: a trailer word follows the key.
const WORD: u8 = 1;
/// Flag of a long entry: it leans on nothing.
const WHOLE: u8 = 2;
/// The bit of a place that says that the block begins at a page.
const AT_PAGE: u64 = 1;

/// The head of every restart.
pub(crate) const RESTART_HEAD: u8 = LONG | WHOLE;

const PLACE: Broken = "an index entry's block cannot lie there";

/// What an entry leans on: the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// Bytes of its separator.
    pub key_len: usize,
    /// Its data block; of length 0 where no entry comes before.
    pub address: BlockAddress,
}

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh<'a> {
    pub separator: &'a [u8],
    /// The trailer word of the separator.
    pub word: u64,
    pub address: BlockAddress,
}

/// How a data block at `address` lies behind the one before it: the place to be stored, or none
/// where the two are no neighbours and the entry must be whole.
pub(crate) fn place(before: BlockAddress, address: BlockAddress) -> Option<u64> {
    let coded = u64::from(address.len) << 1;
    [coded, coded | AT_PAGE].into_iter().find(|coded| follow(before, *coded) == Ok(address))
}

/// Appends an entry whose separator has `shared` bytes in common with that of `before`; it is whole
/// where there is no `place`.
pub(crate) fn put(
    out: &mut Vec<u8>,
    before: Before,
    shared: usize,
    entry: Fresh<'_>,
    place: Option<u64>,
) {
    let unshared = &entry.separator[shared..];
    let dropped = before.key_len - shared;
    let whole = place.is_none();
    if !whole && entry.word == 0 && dropped < 15 && unshared.len() < 16 {
        out.push((dropped as u8) << 4 | unshared.len() as u8);
        out.extend_from_slice(unshared);
    } else {
        let word = if entry.word == 0 { 0 } else { WORD };
        out.push(LONG | word | if whole { WHOLE } else { 0 });
        if !whole {
            put_varint(out, dropped as u64);
        }
        put_varint(out, unshared.len() as u64);
        out.extend_from_slice(unshared);
        if entry.word != 0 {
            out.extend_from_slice(&entry.word.to_le_bytes());
        }
        if whole {
            put_varint(out, entry.address.offset);
        }
    }
    put_varint(out, place.unwrap_or(u64::from(entry.address.len) << 1));
}

/// Bytes that an entry with this separator takes at most, its restart included.
pub(crate) fn entry_bytes_max(separator: &[u8]) -> usize {
    1 + 2 * 5 + separator.len() + 8 + 10 + 5 + 4
}

/// The entry at `at` of the entries `bytes`.
#[inline]
pub(crate) fn take(bytes: &[u8], at: usize, before: Before) -> Result<Entry, Broken> {
    let head = *bytes.get(at).ok_or(CUT)?;
    if head >= LONG {
        return take_long(bytes, at, before);
    }
    if before.address.len == 0 {
        return Err(RESTART);
    }
    let shared = before.key_len.checked_sub(usize::from(head >> 4)).ok_or(PREFIX)?;
    let key = at + 1..at + 1 + usize::from(head & 15);
    let (place, end) = match *bytes.get(key.end..).ok_or(CUT)? {
        // Blocks of 64 bytes to 8 KiB, the usual case.
        [low, high, ..] if low >= 0x80 && high < 0x80 => {
            (u64::from(low & 0x7f) | u64::from(high) << 7, key.end + 2)
        }
        _ => varint(bytes, key.end)?,
    };
    let address = follow(before.address, place)?;
    Ok(Entry { shared, key, word: 0, value: end..end, address, whole: false })
}

fn take_long(bytes: &[u8], at: usize, before: Before) -> Result<Entry, Broken> {
    let flags = bytes[at] & !LONG;
    if flags & !(WORD | WHOLE) != 0 {
        return Err("an index entry has unknown flags");
    }
    let whole = flags & WHOLE != 0;
    let (mut shared, mut at) = (0, at + 1);
    if !whole {
        if before.address.len == 0 {
            return Err(RESTART);
        }
        let (dropped, next) = varint(bytes, at)?;
        let dropped = usize::try_from(dropped).map_err(|_| PREFIX)?;
        shared = before.key_len.checked_sub(dropped).ok_or(PREFIX)?;
        at = next;
    }
    let (unshared, key_at) = varint(bytes, at)?;
    let unshared = usize::try_from(unshared).map_err(|_| CUT)?;
    let key = key_at..key_at.checked_add(unshared).ok_or(CUT)?;
    at = key.end;
    let mut word = 0;
    if flags & WORD != 0 {
        let stored = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(CUT)?;
        word = u64::from_le_bytes(*stored);
        at += 8;
        if word == 0 {
            return Err("an index entry has a trailer word that says nothing");
        }
    }
    let (offset, place_at) = if whole { varint(bytes, at)? } else { (0, at) };
    let (place, end) = varint(bytes, place_at)?;
    let address = match whole {
        true if place & AT_PAGE != 0 => return Err(PLACE),
        true => BlockAddress { offset, len: length(place)? },
        false => follow(before.address, place)?,
    };
    Ok(Entry { shared, key, word, value: end..end, address, whole })
}

/// The separator of the restart at the front of `bytes`, in the usual case: it is short, and its
/// word is 0.
#[inline]
pub(crate) fn restart_separator(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [RESTART_HEAD, len, rest @ ..] if *len < 0x80 => rest.get(..usize::from(*len)),
        _ => None,
    }
}

/// In an index partition of this coding, the data block of the first entry at or after
/// `(key, word)`. Separators are not rebuilt; `matched` is how long a prefix of `key` the one
/// before has, which is smaller.
pub(crate) fn find(block: &Block, key: &[u8], word: u64) -> Result<Option<BlockAddress>, Broken> {
    if block.restart_count() == 0 {
        return Ok(None);
    }
    let start = block.restarts_before(key, word)?.saturating_sub(1);
    let bytes = block.entries();
    let (mut at, mut matched, mut before) = (block.restart(start), 0, Before::default());
    while at < bytes.len() {
        let entry = take(bytes, at, before)?;
        at = entry.value.end;
        before = Before { key_len: entry.shared + entry.key.len(), address: entry.address };
        // At a restart nothing is shared on paper, so the comparison begins anew.
        if entry.shared == 0 {
            matched = 0;
        }
        match entry.shared.cmp(&matched) {
            // Like the separator before it, this one is smaller where that differs from the key.
            Ordering::Greater => continue,
            // It leaves the key's prefix upwards.
            Ordering::Less => return Ok(Some(entry.address)),
            Ordering::Equal => {}
        }
        let (own, rest) = (&bytes[entry.key], &key[matched..]);
        let common = own.iter().zip(rest).take_while(|(a, b)| a == b).count();
        matched += common;
        // Where one of the two ends here, it is the smaller; equal keys descend by word.
        let order = own.get(common).cmp(&rest.get(common)).then_with(|| word.cmp(&entry.word));
        if order != Ordering::Less {
            return Ok(Some(entry.address));
        }
    }
    Ok(None)
}

/// The block with this `place` behind `before`.
#[inline]
fn follow(before: BlockAddress, place: u64) -> Result<BlockAddress, Broken> {
    let mut offset = before.end();
    if place & AT_PAGE != 0 {
        // At a page already, nothing is to be skipped.
        if offset.is_multiple_of(PAGE) {
            return Err(PLACE);
        }
        offset = offset.checked_next_multiple_of(PAGE).ok_or(PLACE)?;
    }
    Ok(BlockAddress { offset, len: length(place)? })
}

/// The length in a place; never 0, which would be no block.
#[inline]
fn length(place: u64) -> Result<u32, Broken> {
    let len = u32::try_from(place >> 1).map_err(|_| PLACE)?;
    if (len as usize) < BLOCK_TRAILER_BYTES { Err(PLACE) } else { Ok(len) }
}

fn varint(bytes: &[u8], at: usize) -> Result<(u64, usize), Broken> {
    let mut decoder = Decoder::new(bytes.get(at..).ok_or(CUT)?);
    let number = decoder.varint().map_err(|_| CUT)?;
    Ok((number, bytes.len() - decoder.rest().len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Coding, Cursor};
    use crate::builder::BlockBuilder;
    use bytes::Bytes;

    type Row = (Vec<u8>, u64, BlockAddress);

    fn partition(rows: &[Row], interval: u16) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval, false);
        for (separator, word, address) in rows {
            builder.add_address(separator, *word, *address);
        }
        builder.finish().to_vec()
    }

    fn parse(bytes: &[u8]) -> Result<Block, Broken> {
        Block::parse(Bytes::copy_from_slice(bytes), 0, Coding::Addresses)
    }

    /// Separators with long and short common prefixes, of one key with words, and blocks that
    /// follow each other, begin at a page, or lie apart.
    fn rows() -> Vec<Row> {
        let keys: [(&[u8], u64); 11] = [
            (b"", 0),
            (b"a", 900),
            (b"a", 400),
            (b"a", 0),
            (b"a long prefix, longer than sixteen bytes/1", 0),
            (b"a long prefix, longer than sixteen bytes/2", 0),
            (b"a long prefix, longer than sixteen bytes/25", 7),
            (b"a longer one", 0),
            (b"b", 0),
            (b"bc", 0),
            (b"c and one that shares nothing with it", 0),
        ];
        let mut offset = 0;
        let lens = [9u32, 40, 4096, 3200, 3200, 100_000, 8191, 8192, 70, 1 << 28, 9];
        let rows = keys.into_iter().zip(lens).enumerate();
        rows.map(|(n, ((key, word), len))| {
            offset = match n {
                6 => offset + 5,
                n if n % 3 == 0 => u64::next_multiple_of(offset, PAGE),
                _ => offset,
            };
            let address = BlockAddress { offset, len };
            offset = address.end();
            (key.to_vec(), word, address)
        })
        .collect()
    }

    #[test]
    fn partitions_are_walked_and_searched_as_they_were_written() {
        let rows = rows();
        for interval in [1, 2, 3, 16] {
            let block = parse(&partition(&rows, interval)).unwrap();
            assert_eq!(block.check_restarts(false), Ok(()), "{interval}");
            assert_eq!(block.check_restarts(true).is_ok(), interval == 1);
            let mut cursor = Cursor::new(block.clone());
            cursor.seek_first().unwrap();
            for (key, word, address) in &rows {
                assert_eq!((cursor.key(), cursor.word()), (&key[..], *word));
                assert_eq!(cursor.address(), Ok(*address));
                cursor.step().unwrap();
            }
            cursor.seek_last().unwrap();
            for (key, word, address) in rows.iter().rev() {
                assert_eq!((cursor.key(), cursor.word()), (&key[..], *word));
                assert_eq!(cursor.address(), Ok(*address));
                cursor.step_back().unwrap();
            }
            let mut probes: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
            probes.extend(rows.iter().map(|row| [&row.0[..], b"\0"].concat()));
            probes.extend(rows.iter().map(|row| [&row.0[..], b"\xff"].concat()));
            probes.extend(rows.iter().map(|row| row.0[..row.0.len() / 2].to_vec()));
            for probe in probes {
                for word in [u64::MAX, 900, 899, 400, 8, 7, 1, 0] {
                    let reaches = |row: &&Row| {
                        crate::key::compare_words(&row.0, row.1, &probe, word) != Ordering::Less
                    };
                    let want = rows.iter().find(reaches).map(|row| row.2);
                    assert_eq!(block.address(&probe, word), Ok(want), "{probe:?} {word}");
                    cursor.seek(&probe, word).unwrap();
                    let got = cursor.valid().then(|| cursor.address().unwrap());
                    assert_eq!(got, want, "{probe:?} {word}");
                }
            }
        }
    }

    #[test]
    fn neighbours_cost_six_bytes() {
        let rows: Vec<Row> = (0..160u64)
            .map(|n| {
                let address = BlockAddress { offset: n * 4096, len: 3200 };
                (format!("user{:020}", 1000 + 3 * n).into_bytes(), 0, address)
            })
            .collect();
        let bytes = partition(&rows, 16).len();
        assert!(bytes <= 160 * 6 + 10 * 30 + 6, "{bytes}");
    }

    #[test]
    fn entries_that_no_writer_writes_are_refused() {
        let whole = |place: u8| [&[RESTART_HEAD, 1, b'k', 0][..], &[place]].concat();
        let block = |entries: &[u8], restarts: &[u32]| {
            let mut bytes = entries.to_vec();
            restarts.iter().for_each(|at| bytes.extend(at.to_le_bytes()));
            bytes.extend((restarts.len() as u32).to_le_bytes());
            bytes.extend([0, 0]);
            parse(&bytes).and_then(|block| {
                let (key, word) = (b"z", 0);
                let found = block.address(key, word);
                block.check_restarts(false).and(found)
            })
        };
        let good = [whole(100), vec![0x11, b'm', 100]].concat();
        assert_eq!(block(&good, &[0]), Ok(None));
        let behind = |entry: &[u8]| block(&[&whole(100), entry].concat(), &[0]);
        // It leans on an entry that is not there, drops more than there is, has unknown flags, a
        // word of 0, a length of 0 or beyond 32 bits, skips to a page that it is at, or is cut.
        assert_eq!(block(&[0x01, b'k', 100], &[0]), Err(RESTART));
        assert_eq!(block(&[LONG, 0, 1, b'k', 100], &[0]), Err(RESTART));
        assert_eq!(behind(&[0x21, b'm', 100]), Err(PREFIX));
        assert_eq!(behind(&[LONG, 2, 1, b'm', 100]), Err(PREFIX));
        assert!(behind(&[LONG | 4, 1, 1, b'm', 100]).is_err());
        assert!(behind(&[LONG | WORD, 1, 1, b'm', 0, 0, 0, 0, 0, 0, 0, 0, 100]).is_err());
        assert_eq!(behind(&[0x11, b'm', 16]), Err(PLACE));
        assert_eq!(behind(&[0x11, b'm', 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(PLACE));
        assert_eq!(block(&whole(101), &[0]), Err(PLACE));
        let to_page = [&[RESTART_HEAD, 1, b'k', 0, 0x80, 0x40][..], &[0x11, b'm', 101]].concat();
        assert_eq!(block(&to_page, &[0]), Err(PLACE));
        assert_eq!(behind(&[0x11, b'm']), Err(CUT));
        assert_eq!(behind(&[0x15, b'm']), Err(CUT));
        assert_eq!(behind(&[LONG, 1, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(CUT));
        // A whole entry that is no restart, a restart that is not whole, and two separators that
        // say less of what they share than they do.
        let two = [whole(100), whole(100)].concat();
        assert_eq!(block(&two, &[0]), Err(RESTART));
        assert_eq!(block(&good, &[0, 5]), Err(RESTART));
        let less = [&[RESTART_HEAD, 2, b'k', b'a', 0, 100][..], &[0x22, b'k', b'b', 100]].concat();
        assert!(block(&less, &[0]).is_err());
    }
}
