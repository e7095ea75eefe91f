//! The instructions that move a line out of the processor's caches, the one that waits, and the one
//! that fetches a line.
//!
//! ```text
//!   clwb         writes the line back and keeps it        (cpuid 7, EBX bit 24)
//!   clflushopt   writes it back and drops it              (cpuid 7, EBX bit 23)
//!   clflush      as clflushopt, one after another         (every x86-64 processor)
//!   sfence       later stores wait for all of these and for earlier stores
//!   prefetcht0   begins to fetch a line                   (every x86-64 processor)
//! ```
//! Only x86-64 is known here; another processor is refused, not guessed at. A line that it was not
//! asked to fetch is fetched when it is read.
//!
//! Threads: any; a fence covers what the calling thread flushed.
#![allow(unsafe_code)]

use thermocline_foundation::sync::atomic::AtomicU64;

/// The instruction that moves a line out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes back and keeps.
    Clwb,
    /// Writes back and drops.
    ClflushOpt,
    /// Writes back and drops, in order.
    Clflush,
}

impl FlushInstruction {
    /// The best that this processor has; none if none is known for it.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Self> {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        if __cpuid(0).eax < 7 {
            return Some(Self::Clflush);
        }
        let features = __cpuid_count(7, 0).ebx;
        Some(match features {
            ebx if ebx & CLWB != 0 => Self::Clwb,
            ebx if ebx & CLFLUSHOPT != 0 => Self::ClflushOpt,
            _ => Self::Clflush,
        })
    }

    /// The best that this processor has; none if none is known for it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Self> {
        None
    }

    /// Begins to move out the line that `word` is in.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn flush(self, word: &AtomicU64) {
        use std::arch::asm;
        let address = std::ptr::from_ref(word);
        // SAFETY: the address is that of a live word, and `detect` found the instruction. It
        // changes no byte of memory and no register.
        unsafe {
            match self {
                Self::Clwb => {
                    asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags));
                }
                Self::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
                }
                Self::Clflush => {
                    asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
                }
            }
        }
    }

    /// Nothing: without an instruction no medium is made (`detect`).
    #[cfg(not(target_arch = "x86_64"))]
    pub fn flush(self, _word: &AtomicU64) {}
}

/// Waits until what the calling thread flushed is out, before any later store.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it changes no memory and no register.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

/// Begins to fetch the line that `word` is in.
#[inline]
pub fn prefetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction. It is a hint: it changes no memory and no
    // register, and what another thread stores meanwhile is seen by later loads as without it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::sync::atomic::Ordering::Relaxed;

    #[test]
    fn every_instruction_of_this_processor_leaves_the_bytes_as_they_are() {
        let best = FlushInstruction::detect().unwrap();
        let all = [FlushInstruction::Clflush, FlushInstruction::ClflushOpt, FlushInstruction::Clwb];
        let word = AtomicU64::new(7);
        for instruction in all {
            // A processor has those before its best one too.
            instruction.flush(&word);
            fence();
            prefetch(&word);
            assert_eq!(word.load(Relaxed), 7);
            if instruction == best {
                break;
            }
        }
    }
}
