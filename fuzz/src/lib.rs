//! The properties of all decoders, for the targets of `fuzz_targets/`.
//!
//! Nothing is written twice: these are the files that `crates/*/tests/decoders.rs` run over seeded
//! mutations of the golden files; here libFuzzer, which watches the branches taken, makes the
//! inputs. The memory of a run is bounded by libFuzzer's own options (see README.md).
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the program uses what the targets do not")]

#[path = "../../crates/foundation/tests/decoders/properties.rs"]
pub mod foundation;

#[path = "../../crates/device/tests/decoders/properties.rs"]
pub mod device;

#[path = "../../crates/log/tests/decoders/properties.rs"]
pub mod log;

#[path = "../../crates/pmem/tests/decoders/properties.rs"]
pub mod pmem;

#[path = "../../crates/slab/tests/decoders/properties.rs"]
pub mod slab;

#[path = "../../crates/table/tests/decoders/properties.rs"]
pub mod table;

#[path = "../../crates/engine/tests/decoders/properties.rs"]
pub mod engine;

#[path = "../../crates/engine/tests/decoders/database.rs"]
pub mod database;

#[path = "../../crates/cli/tests/decoders/properties.rs"]
pub mod formats;

// The command line has no library; its formats find their neighbours in the root of the crate.
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/load"]
mod load {
    pub mod deb822;
    pub mod jsonl;
    pub mod lines;
    #[path = "../../tests/decoders/loader.rs"]
    pub mod loader;
    pub mod tsv;
}
#[path = "../../crates/cli/src/text.rs"]
mod text;
