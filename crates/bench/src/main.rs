//! `thermocline-bench`: the benchmarks with the engines of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: thermocline_allocator::Allocator = thermocline_allocator::Allocator;

fn main() -> ExitCode {
    thermocline_bench::command::main(&thermocline_bench::engines::ALL)
}
