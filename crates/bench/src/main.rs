//! `thermocline-bench`: the benchmarks with the engines of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    thermocline_bench::command::main(&thermocline_bench::engines::ALL)
}
