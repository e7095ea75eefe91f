//! The region's bytes, and the only code that changes them: store, copy, flush, fence.
//!
//! ```text
//!   store      one word, whole: a reader and a power cut see the old value or the new one
//!   copy       many words: each is whole, their order is not said
//!   flush      begins to move the lines of a range out of the caches
//!   fence      waits until what this thread flushed is durable, before it stores anything else
//!   prefetch   begins to fetch lines that are read soon; changes nothing
//! ```
//! 1. All words are atomic. There is no reference to plain memory, so a reader beside a writer sees
//!    some value of each word, and decides by versions whether they belong together.
//! 2. Bytes are little-endian, whatever the machine.
//! 3. Nothing is durable before a fence that follows a flush. A line may become durable earlier, at
//!    any time, as the caches see fit.
//!
//! How the flush is done is found out, never chosen: [`Durability`]. Tests put `shadow.rs` in its
//! place, which remembers every store and makes what a power cut could leave.
//!
//! Threads: any. A fence covers the flushes of the thread that calls it.

#[cfg_attr(any(shuttle, loom), allow(dead_code, reason = "schedules map no file"))]
mod instructions;
#[cfg(not(any(shuttle, loom)))]
mod mapped;

use crate::layout::LINE_BYTES;
#[cfg(any(test, feature = "shadow"))]
use crate::shadow::Shadow;
use instructions::FlushInstruction;
#[cfg(any(test, feature = "shadow"))]
use std::sync::Arc;
use thermocline_device::Result;
#[cfg(not(any(shuttle, loom)))]
use thermocline_device::drivers::Mapping;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
#[cfg(shuttle)]
use thermocline_foundation::sync::schedules::UnscheduledU64;
use thermocline_foundation::{Clock, Counter, SystemClock};

/// What becomes of the bytes when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Persistent memory, mapped with `MAP_SYNC`: what was flushed and fenced is kept.
    Flushed,
    /// The same with caches that are written out at a power failure (eADR): fences are enough.
    CachesIncluded,
    /// An ordinary file or tmpfs: kept when the process ends, lost when the power fails.
    Emulated,
}

#[derive(Debug)]
enum Words {
    #[cfg(not(any(shuttle, loom)))]
    Mapped(Mapping),
    Memory(Box<[AtomicU64]>),
    #[cfg(shuttle)]
    Whole(Box<[UnscheduledU64]>),
}

#[derive(Debug)]
#[cfg_attr(any(shuttle, loom), allow(dead_code, reason = "schedules map no file"))]
enum Flush {
    Instruction(FlushInstruction),
    CachesAreDurable,
    #[cfg(any(test, feature = "shadow"))]
    Shadow(Arc<Shadow>),
}

/// How much was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumCounts {
    /// Lines that were flushed.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
}

/// The bytes of a region.
#[derive(Debug)]
pub struct Medium {
    words: Words,
    flush: Flush,
    durability: Durability,
    /// The time that each flushed line takes where persistent memory is imitated.
    line_ns: u64,
    clock: SystemClock,
    lines: Counter,
    fences: Counter,
}

impl Medium {
    /// A copy of `bytes` in ordinary memory, of which nothing is kept: for tools that look at a
    /// region, and for tests. A last part of a word is left out.
    pub fn in_memory(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.iter().map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect();
        let flush = Flush::CachesAreDurable;
        Self::new(Words::Memory(words), flush, Durability::Emulated, 0)
    }

    /// `bytes` zeros in ordinary memory of which no word is a point of scheduling, for schedules of
    /// what stands on the region: those of its own words are in `tests/schedules`.
    #[cfg(shuttle)]
    pub fn whole(bytes: u64) -> Self {
        let words = (0..bytes / 8).map(|_| UnscheduledU64::new(0)).collect();
        Self::new(Words::Whole(words), Flush::CachesAreDurable, Durability::Flushed, 0)
    }

    fn new(words: Words, flush: Flush, durability: Durability, line_ns: u64) -> Self {
        let (lines, fences) = (Counter::default(), Counter::default());
        Self { words, flush, durability, line_ns, clock: SystemClock::new(), lines, fences }
    }

    /// What becomes of the bytes when the power fails.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// How much was written so far.
    pub fn counts(&self) -> MediumCounts {
        MediumCounts { lines: self.lines.get(), fences: self.fences.get() }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        match &self.words {
            #[cfg(not(any(shuttle, loom)))]
            Words::Mapped(mapping) => mapping.words(),
            Words::Memory(words) => words,
            #[cfg(shuttle)]
            Words::Whole(_) => &[],
        }
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        #[cfg(shuttle)]
        if let Words::Whole(words) = &self.words {
            return words[index].load(Ordering::Acquire);
        }
        self.words()[index].load(Ordering::Acquire)
    }

    #[inline]
    fn set_word(&self, index: usize, value: u64) {
        #[cfg(shuttle)]
        if let Words::Whole(words) = &self.words {
            return words[index].store(value, Ordering::Release);
        }
        self.words()[index].store(value, Ordering::Release);
    }

    /// Bytes of the region.
    #[inline]
    pub fn bytes(&self) -> u64 {
        #[cfg(shuttle)]
        if let Words::Whole(words) = &self.words {
            return words.len() as u64 * 8;
        }
        self.words().len() as u64 * 8
    }

    /// `bytes` bytes at `at`, a whole word, are inside.
    #[inline]
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        at.is_multiple_of(8) && at.checked_add(bytes).is_some_and(|end| end <= self.bytes())
    }

    /// The word at `at`. No later load is done before this one.
    #[inline]
    pub fn load(&self, at: u64) -> u64 {
        debug_assert!(at.is_multiple_of(8));
        u64::from_le(self.word((at / 8) as usize))
    }

    /// Has the processor fetch the lines of the `bytes` bytes from `at` on, which are read soon. No
    /// word is read by this, and none outside is asked for.
    #[inline]
    pub fn prefetch(&self, at: u64, bytes: u64) {
        let words = self.words();
        for line in at / LINE_BYTES..at.saturating_add(bytes).div_ceil(LINE_BYTES) {
            if let Some(word) = words.get((line * LINE_BYTES / 8) as usize) {
                instructions::prefetch(word);
            }
        }
    }

    /// Fills `out` with the bytes from `at` on, which need not begin a word.
    #[inline]
    pub fn read(&self, at: u64, out: &mut [u8]) {
        let skipped = (at % 8) as usize;
        let mut word_at = at - skipped as u64;
        let head = out.len().min((8 - skipped) % 8);
        let (head, rest) = out.split_at_mut(head);
        if !head.is_empty() {
            let word = self.load(word_at).to_le_bytes();
            head.copy_from_slice(&word[skipped..skipped + head.len()]);
            word_at += 8;
        }
        for part in rest.chunks_mut(8) {
            let word = self.load(word_at).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
            word_at += 8;
        }
    }

    /// The `bytes` bytes from `at` on.
    pub fn bytes_at(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.read(at, &mut out);
        out
    }

    /// Stores a word. No earlier store of this thread is seen after it.
    #[inline]
    pub fn store(&self, at: u64, value: u64) {
        debug_assert!(at.is_multiple_of(8));
        #[cfg(any(test, feature = "shadow"))]
        if let Flush::Shadow(shadow) = &self.flush {
            shadow.store(at / 8, value.to_le());
        }
        self.set_word((at / 8) as usize, value.to_le());
    }

    /// Stores `bytes` from `at` on; a last word that they do not fill ends with zeros.
    pub fn copy(&self, at: u64, bytes: &[u8]) {
        debug_assert!(at.is_multiple_of(8));
        let words = bytes.chunks(8).map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        });
        #[cfg(any(test, feature = "shadow"))]
        if let Flush::Shadow(shadow) = &self.flush {
            shadow.copy(at / 8, words.clone());
        }
        #[cfg(shuttle)]
        if let Words::Whole(target) = &self.words {
            let target = &target[(at / 8) as usize..];
            return target
                .iter()
                .zip(words)
                .for_each(|(to, word)| to.store(word, Ordering::Release));
        }
        let first = (at / 8) as usize;
        let target = &self.words()[first..first + words.len()];
        for (to, word) in target.iter().zip(words) {
            to.store(word, Ordering::Release);
        }
    }

    /// Begins to make the lines durable that hold the `bytes` bytes at `at`.
    pub fn flush(&self, at: u64, bytes: u64) {
        let first = at / LINE_BYTES;
        let end = (at + bytes).div_ceil(LINE_BYTES);
        self.lines.add(end - first);
        for line in first..end {
            match &self.flush {
                Flush::Instruction(instruction) => {
                    instruction.flush(&self.words()[(line * LINE_BYTES / 8) as usize]);
                }
                Flush::CachesAreDurable => {}
                #[cfg(any(test, feature = "shadow"))]
                Flush::Shadow(shadow) => shadow.flush(line),
            }
            if self.line_ns > 0 {
                let end = self.clock.now_ns() + self.line_ns;
                while self.clock.now_ns() < end {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// Waits until all that this thread flushed is durable.
    pub fn fence(&self) {
        self.fences.add(1);
        #[cfg(any(test, feature = "shadow"))]
        if let Flush::Shadow(shadow) = &self.flush {
            return shadow.fence();
        }
        instructions::fence();
    }

    /// Copies and flushes; a fence makes it durable.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.copy(at, bytes);
        self.flush(at, bytes.len() as u64);
    }

    /// Writes out the page cache, where it is what holds the bytes. Only a clean close asks for it.
    pub fn sync(&self) -> Result<()> {
        match &self.words {
            #[cfg(not(any(shuttle, loom)))]
            Words::Mapped(mapping) if self.durability == Durability::Emulated => mapping.sync(),
            _ => Ok(()),
        }
    }
}

#[cfg(any(test, feature = "shadow"))]
impl Medium {
    /// These words, each store of which is remembered.
    pub fn shadowed(words: &[u64]) -> Self {
        Self::shadowed_by(Arc::new(Shadow::new(words)), words)
    }

    /// These words; `shadow`, which began with them, remembers each store.
    pub fn shadowed_by(shadow: Arc<Shadow>, words: &[u64]) -> Self {
        let words = words.iter().map(|word| AtomicU64::new(*word)).collect();
        Self::new(Words::Memory(words), Flush::Shadow(shadow), Durability::Flushed, 0)
    }

    /// What remembers the stores.
    pub fn shadow(&self) -> &Shadow {
        match &self.flush {
            Flush::Shadow(shadow) => shadow,
            _ => panic!("this medium has no shadow"),
        }
    }

    /// All words as they are now.
    pub fn snapshot(&self) -> Vec<u64> {
        self.words().iter().map(|word| word.load(Ordering::Acquire)).collect()
    }
}
