//! How far each writer has come: what was submitted, acknowledged, and promised to survive a power
//! cut.
//!
//! A write is noted as submitted before the store hears of it and as acknowledged after the store
//! answered, so at every moment the truth lies between the two. In a child process that will be
//! killed the notes also go to standard output, a line each, written whole:
//!
//! ```text
//!   o            the store is open
//!   b W N        writer W begins its batch N
//!   a W N        the store acknowledged it
//!   d N N ...    so much of each writer was promised to survive a power cut
//!   p NAME       a phase begins: flush, compaction or other
//!   e TEXT       the store failed
//! ```
//! Invariant: `durable <= acknowledged <= submitted` for each writer, and each only grows.
//!
//! Threads: any.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};

/// What the maintenance thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Other = 0,
    Flush = 1,
    Compaction = 2,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
        }
    }

    pub fn parse(name: &str) -> Self {
        let all = [Self::Flush, Self::Compaction];
        all.into_iter().find(|phase| phase.name() == name).unwrap_or(Self::Other)
    }
}

#[derive(Debug, Default)]
struct Account {
    submitted: AtomicU64,
    acknowledged: AtomicU64,
    durable: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    writers: Vec<Account>,
    phase: AtomicU8,
    /// Power is being cut: from here on failures are expected.
    pub is_cut: AtomicBool,
    /// The store is open, and what it has is known.
    pub is_open: AtomicBool,
    /// The history is over.
    pub stop: AtomicBool,
    /// Tables that changed tier.
    pub migrated: AtomicU64,
    is_child: bool,
}

/// How far a writer may have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Must be there.
    pub at_least: u64,
    /// Can be there.
    pub at_most: u64,
}

impl Ledger {
    /// A ledger of writers that have come as far as `stamps`, all of which is durable.
    pub fn new(stamps: &[u64], is_child: bool) -> Self {
        let at = |stamp: &u64| Bounds { at_least: *stamp, at_most: *stamp };
        let bounds: Vec<_> = stamps.iter().map(at).collect();
        Self { is_child, ..Self::after_kill(&bounds, stamps) }
    }

    /// A ledger that goes on after a process was killed: `bounds` reach from what was acknowledged
    /// to what was submitted, `promised` survives a power cut already.
    pub fn after_kill(bounds: &[Bounds], promised: &[u64]) -> Self {
        let account = |(bounds, promised): (&Bounds, &u64)| Account {
            submitted: AtomicU64::new(bounds.at_most),
            acknowledged: AtomicU64::new(bounds.at_least),
            durable: AtomicU64::new(*promised),
        };
        Self {
            writers: bounds.iter().zip(promised).map(account).collect(),
            phase: AtomicU8::new(0),
            is_cut: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            migrated: AtomicU64::new(0),
            is_child: false,
        }
    }

    /// An opened store has `found` of each writer. From then on that is durable, whatever it was
    /// before: no thread may act upon what a power cut could take back.
    pub fn resume(&self, found: &[u64]) -> Result<(), String> {
        for (writer, (account, stamp)) in self.writers.iter().zip(found).enumerate() {
            let acknowledged = account.acknowledged.fetch_max(*stamp, SeqCst);
            if *stamp < acknowledged {
                return Err(format!(
                    "writer {writer}: {acknowledged} batches were acknowledged before the kill, \
                     {stamp} are there"
                ));
            }
            account.submitted.fetch_max(*stamp, SeqCst);
        }
        self.promise(found);
        self.is_open.store(true, SeqCst);
        Ok(())
    }

    /// Tells the parent, where there is one.
    pub fn say(&self, line: &str) {
        if self.is_child {
            // One write a line: lines of several threads do not mix.
            let line = format!("{line}\n");
            if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                // The parent is gone, and with it the reason to go on.
                self.stop.store(true, SeqCst);
            }
        }
    }

    pub fn submit(&self, writer: usize, stamp: u64) {
        self.writers[writer].submitted.fetch_max(stamp, SeqCst);
        self.say(&format!("b {writer} {stamp}"));
    }

    pub fn acknowledge(&self, writer: usize, stamp: u64) {
        self.writers[writer].acknowledged.fetch_max(stamp, SeqCst);
        self.say(&format!("a {writer} {stamp}"));
    }

    /// What is acknowledged now. Whatever is asked to be durable from here on includes it.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.writers.iter().map(|account| account.acknowledged.load(SeqCst)).collect()
    }

    /// The store promised that everything up to `stamps` survives a power cut. What it promises
    /// while the power goes does not count: an `fsync` that ext4 is in when it is shut down can
    /// report success although the extents it wrote stay marked as unwritten. A device that loses
    /// power cannot answer afterwards, so no client would hear of that promise.
    pub fn promise(&self, stamps: &[u64]) {
        if self.is_cut.load(SeqCst) {
            return;
        }
        for (account, stamp) in self.writers.iter().zip(stamps) {
            account.durable.fetch_max(*stamp, SeqCst);
        }
        let stamps: Vec<_> = stamps.iter().map(u64::to_string).collect();
        self.say(&format!("d {}", stamps.join(" ")));
    }

    /// What a power cut can leave.
    pub fn bounds(&self) -> Vec<Bounds> {
        let bounds = |account: &Account| Bounds {
            at_least: account.durable.load(SeqCst),
            at_most: account.submitted.load(SeqCst),
        };
        self.writers.iter().map(bounds).collect()
    }

    pub fn begin(&self, phase: Phase) {
        self.phase.store(phase as u8, SeqCst);
        self.say(&format!("p {}", phase.name()));
    }

    pub fn phase(&self) -> Phase {
        let code = self.phase.load(SeqCst);
        let all = [Phase::Flush, Phase::Compaction];
        all.into_iter().find(|phase| *phase as u8 == code).unwrap_or(Phase::Other)
    }
}
