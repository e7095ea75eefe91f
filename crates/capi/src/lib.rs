//! The store for C, and for every language that calls C: `libthermocline.so.1`, `libthermocline.a`
//! and the header `include/thermocline.h`, which is written from this crate. `docs/c.md` says how a
//! program uses them.
//!
//! ```text
//!   engine/           (feature `engine`) what a C program calls, by handle
//!   tiers/            (feature `device`) what a plugin of another engine calls
//!   handle.rs         what a pointer of ours leads to; opening, using and closing it
//!   call.rs           one call: an answer, a line of text, and a panic that ends here
//!   arguments.rs      what the caller lends: bytes, texts, places for answers, options
//!   memory.rs         what the caller gets: buffers for `thermocline_free`
//!   status.rs         the numbers of the answers      abi.rs   the version of all this
//! ```
//!
//! What always holds:
//! 1. No panic leaves the library. One that is caught inside a handle's call leaves that handle,
//!    and all that share its database, with nothing but their `_close`.
//! 2. A function reads arguments only for the length of its call, and writes each place for an
//!    answer, with nothing where there is no answer.
//! 3. Numbers of answers, names and layouts stay as they are within `.so.1`, which only grows.
//!    Tests compare the header, the exported names and the numbers with committed ones.
//! 4. The library exports names that begin with `thermocline_`, and no others.
//!
//! `unsafe` is what this crate is for: it believes pointers. What a caller must keep to is in the
//! header, by function.
#![allow(
    clippy::missing_safety_doc,
    reason = "these texts become the header, which says what each function asks of its caller"
)]
#![cfg_attr(
    not(all(feature = "engine", feature = "device")),
    allow(dead_code, reason = "one half alone does not need all that both share")
)]

mod abi;
mod arguments;
mod call;
#[cfg(feature = "engine")]
mod engine;
mod handle;
mod memory;
mod status;
#[cfg(feature = "device")]
mod tiers;

#[cfg(not(any(feature = "engine", feature = "device")))]
compile_error!("a library without a half has nothing to call: choose `engine` or `device`");
