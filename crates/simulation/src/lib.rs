//! The whole engine on simulated machines: every crash, every fault, replayed from a seed.
//!
//! ```text
//!   campaign.rs   suites over seeds ── command.rs, main.rs: cargo xtask simulate
//!   crash.rs errors.rs lies.rs drills.rs rot.rs repair.rs rebuild.rs steady.rs   what is tried
//!   inside.rs     a client that reads inside the steps of jobs, a part of steady.rs
//!   planted.rs    and whether it finds bugs       syncs.rs             and syncs that are missing
//!   life.rs       a history on machines, checked at every step
//!   history.rs    what happens, from a seed          oracle.rs           what is right
//!   machine.rs    devices/ + clock.rs + the engine's Stepper: one machine, one thread
//!   trace.rs      what a failing seed did
//!   names/            files of another program over links, with a model host of its own
//!   transactions.rs   histories of transactions, and an exact model of them
//!   calls.rs      the device calls of fixed seeds in one hash     recorder.rs         their lines
//! ```
//! The engine is the product's, unchanged; it is given other [`devices`], another [`clock`] and
//! [`Workers::Stepped`](thermocline::Workers), so that a seed decides everything: the history, the
//! order of background work, what fails, and what of the unsynced bytes survives. A failure is
//! replayed by its seed and leaves a trace.
//!
//! # Joining the suite
//! A new preset, front or durable structure joins in four steps, in the issue that brings it:
//!
//! 1. **Settings.** Let [`history::settings`] draw the preset, and every setting that changes what
//!    is written. Choose sizes so small that a few hundred records pass through every state.
//! 2. **Operations.** A new public operation becomes a [`history::Step`] and is carried out and
//!    checked in [`life::Life::step`].
//! 3. **What is left.** [`oracle::check_files`] says which files may exist when background work is
//!    done; a new kind of file is counted there. Rot covers it by itself ([`rot`]).
//! 4. **Planted bugs.** Add the mistakes that one could make there (`foundation/planted.rs`), and
//!    run `simulate --find-planted` (feature `planted-bugs`): what no suite finds shows which
//!    operation or fault is missing here.
//!
//! A persistence model of its own (mapped memory: lines instead of sectors) is a new unit in
//! [`devices`], beside sectors and names.
#![forbid(unsafe_code)]

pub mod calls;
pub mod campaign;
pub mod clock;
pub mod crash;
pub mod devices;
pub mod drills;
pub mod errors;
pub mod history;
pub mod inside;
pub mod lies;
pub mod life;
pub mod machine;
pub mod names;
pub mod oracle;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod rebuild;
pub mod recorder;
pub mod repair;
mod reshape;
pub mod rot;
pub mod steady;
pub mod syncs;
pub mod trace;
pub mod transactions;
