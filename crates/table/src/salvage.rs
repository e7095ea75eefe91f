//! What a table with damaged blocks still has: for a repair, which writes it to another file.
//!
//! 1. An entry is given out only from a block whose checksum matches, and behind the one before it.
//! 2. A damaged data block costs the keys between the separator before it and its own; a damaged
//!    index partition those of all its blocks, unless a single flipped bit is turned back. Where
//!    both copies of a dictionary are damaged, a single flipped bit of one is turned back, too, or
//!    the sound parts of both are put together.
//! 3. Filters are not looked at: the file that is written gets its own.
//!
//! Any thread; reads block by block, so it is for tables that are known to be damaged.

use crate::block::{Block, Coding, Cursor};
use crate::block_cache::BlockCache;
use crate::dictionary::{self, Copies};
use crate::format::{BlockAddress, Footer, PAGE, bound_to};
use crate::key::{Trailer, compare_words};
use crate::reader::{HeldDictionary, TableReader};
use crate::stored::{Tail, length_of, open_buffer, parse, plain_of};
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;
use thermocline_device::{Buffer, Error, ErrorKind, File, Result};
use thermocline_foundation::Place;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::compression::Dictionary;
use thermocline_foundation::mend::mend;

/// Takes an entry: key, trailer, value.
pub type SalvageVisit<'a> = dyn FnMut(&[u8], Trailer, &[u8]) -> Result<()> + 'a;

/// Blocks that cannot be read, and which keys they had.
#[derive(Clone, Debug)]
pub struct LostBlocks {
    /// Where the block lies that is damaged, in bytes from the start of the file.
    pub offset: u64,
    /// All lost keys sort behind this one; none where they may be the table's first.
    pub after: Option<Vec<u8>>,
    /// No lost key sorts behind this one.
    pub until: Vec<u8>,
    /// What is wrong.
    pub error: Error,
}

impl TableReader {
    /// As [`TableReader::open`], with single flipped bits of footer, properties and top index
    /// turned back, as their checksums tell them: for a repair, which writes what it can read to
    /// another file.
    pub fn open_mended(file: Arc<File>, cache: Arc<BlockCache>) -> Result<Self> {
        let file_bytes = length_of(&file)?;
        let mut tail = Tail::read(&file, file_bytes)?;
        let mut bytes = tail.bytes.to_vec();
        let at = bytes.len() - PAGE as usize;
        mend_sealed(&file.place(file_bytes - PAGE), &mut bytes[at..]);
        let place = file.place(file_bytes - PAGE);
        let footer = Footer::decode(&bytes[at..], &place, &|| file.describe())?;
        for address in [footer.properties, footer.top_index] {
            if let Some(range) = tail.range_of(address) {
                mend_sealed(&bound_to(file.place(address.offset)), &mut bytes[range]);
            }
        }
        tail.bytes = bytes.into();
        Self::with_tail(file, cache, file_bytes, &tail)
    }

    /// Gives every entry that can still be read to `visit`, in order, and says what cannot. A
    /// single flipped bit of an index partition is turned back.
    ///
    /// # Errors
    /// Those of `visit`, and of the device that are not about a block.
    pub fn salvage(&self, visit: &mut SalvageVisit<'_>) -> Result<Vec<LostBlocks>> {
        salvage(self, visit)
    }
}

/// Turns a single flipped bit back of bytes whose last four are the checksum of the others.
fn mend_sealed(place: &Place, sealed: &mut [u8]) {
    let Some((body, sum)) = sealed.split_last_chunk_mut::<4>() else { return };
    if mend(place, body, u32::from_le_bytes(*sum)) {
        *sum = checksum(place, body).to_le_bytes();
    }
}

fn salvage(table: &TableReader, visit: &mut SalvageVisit<'_>) -> Result<Vec<LostBlocks>> {
    let dictionary = mended_dictionary(table);
    let mut walk = Walk { table, visit, last: None, after: None, lost: Vec::new(), dictionary };
    let broken = |why| table.broken(table.top(), why);
    let mut top = Cursor::new(table.top().clone());
    top.seek_first().map_err(broken)?;
    while top.valid() {
        let (index, _) = table.partition(top.value())?;
        walk.partition(index, top.key())?;
        walk.after = Some(top.key().to_vec());
        top.step().map_err(broken)?;
    }
    Ok(walk.lost)
}

struct Walk<'a, 'b> {
    table: &'a TableReader,
    visit: &'a mut SalvageVisit<'b>,
    /// The last entry that was given out.
    last: Option<(Vec<u8>, u64)>,
    /// What was looked at so far ends with this key.
    after: Option<Vec<u8>>,
    lost: Vec<LostBlocks>,
    dictionary: HeldDictionary,
}

impl Walk<'_, '_> {
    fn lose(&mut self, offset: u64, until: &[u8], error: Error) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return Err(error);
        }
        let (after, until) = (self.after.clone(), until.to_vec());
        self.lost.push(LostBlocks { offset, after, until, error });
        Ok(())
    }

    fn partition(&mut self, address: BlockAddress, bound: &[u8]) -> Result<()> {
        let block = match index_block(self.table, address) {
            Ok(block) => block,
            Err(error) => return self.lose(address.offset, bound, error),
        };
        let mut cursor = Cursor::new(block.clone());
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            let data = match self.table.data_block_address(&block, cursor.address()) {
                Ok(data) => data,
                Err(error) => return self.lose(address.offset, bound, error),
            };
            if let Err(error) = self.data_block(data)? {
                self.lose(data.offset, cursor.key(), error)?;
            }
            self.after = Some(cursor.key().to_vec());
            moved = cursor.step();
        }
        match moved {
            Ok(()) => Ok(()),
            Err(why) => self.lose(address.offset, bound, self.table.broken(&block, why)),
        }
    }

    /// Gives the entries of a block out. What is wrong with the block is the inner error.
    fn data_block(&mut self, address: BlockAddress) -> Result<Result<()>> {
        let file = self.table.file();
        let read = file
            .read(address.offset, address.len as usize)
            .and_then(|stored| {
                let stored = Bytes::from_owner(stored);
                self.table.open_shared(address, &stored, Some(&mut self.dictionary))
            })
            .and_then(|bytes| parse(file, address, bytes, Coding::Records));
        let block = match read {
            Ok(block) => block,
            Err(error) => return Ok(Err(error)),
        };
        let broken = |why| Ok(Err(self.table.broken(&block, why)));
        let mut cursor = Cursor::new(block.clone());
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            let (key, word) = (cursor.key(), cursor.word());
            let Some(trailer) = Trailer::decode(word) else {
                return broken("an entry's kind is unknown");
            };
            let is_behind = |(last, last_word): &(Vec<u8>, u64)| {
                compare_words(last, *last_word, key, word) == Ordering::Less
            };
            if !self.last.as_ref().is_none_or(is_behind) {
                return broken("entries are out of order");
            }
            (self.visit)(key, trailer, cursor.value())?;
            self.last = Some((key.to_vec(), word));
            moved = cursor.step();
        }
        match moved {
            Ok(()) => Ok(Ok(())),
            Err(why) => broken(why),
        }
    }
}

/// The table's dictionary where neither copy is sound: a single flipped bit of one turned back, or
/// the sound part of the one with the sound rest of the other, whose checksum tells. None where
/// that is not needed. Where it does not help, each block that leans on the dictionary is lost for
/// the reason given: a read that failed comes before damage, as the device may give later what
/// helps.
fn mended_dictionary(table: &TableReader) -> HeldDictionary {
    let (file, copies) = (table.file(), table.properties().dictionary?);
    if dictionary::read(file, copies).is_ok() {
        return None;
    }
    let mended = |address: BlockAddress| {
        let mut buffer = file.read(address.offset, address.len as usize)?;
        mend_sealed(&bound_to(file.place(address.offset)), &mut buffer);
        plain_of(file, address, buffer)
    };
    let mended = dictionary::read_by(file, copies, &mended);
    Some(mended.or_else(|why| spliced(file, copies)?.ok_or(why)))
}

/// Places at which two copies may differ, so that they are tried.
const DIFFERENCES_MAX: usize = 64;

/// A dictionary from a part of each copy; none where no parts make one.
fn spliced(file: &File, copies: Copies) -> Result<Option<Arc<Dictionary>>> {
    let read = |copy: BlockAddress| file.read(copy.offset, copy.len as usize);
    let [one, other] = [read(copies[0])?, read(copies[1])?];
    let Some(body_len) = one.len().min(other.len()).checked_sub(size_of::<u32>()) else {
        return Ok(None);
    };
    let differ: Vec<_> = (0..body_len).filter(|at| one[*at] != other[*at]).collect();
    if differ.len() > DIFFERENCES_MAX {
        return Ok(None);
    }
    for cut in differ.into_iter().skip(1) {
        for (before, behind) in [(&one, &other), (&other, &one)] {
            for (copy, sealed) in [(copies[0], &one), (copies[1], &other)] {
                let parts = [&before[..cut], &behind[cut..body_len], &sealed[body_len..]];
                let whole = Buffer::copy_of(&parts.concat());
                if let Ok(bytes) = plain_of(file, copy, whole) {
                    return Ok(Dictionary::prepare(&bytes).ok().map(Arc::new));
                }
            }
        }
    }
    Ok(None)
}

/// The index partition at `address`, a single flipped bit turned back.
fn index_block(table: &TableReader, address: BlockAddress) -> Result<Block> {
    let file = table.file();
    table.index_block(address, false).or_else(|_| {
        let mut buffer = file.read(address.offset, address.len as usize)?;
        mend_sealed(&bound_to(file.place(address.offset)), &mut buffer);
        parse(file, address, open_buffer(file, address, buffer)?, table.footer().index_coding())
    })
}
