//! `thermocline-bench-rivals`: the benchmarks with every engine there is.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Replaces `malloc` too, so that the C and C++ stores have the same allocator as ours.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    thermocline_bench::command::main(&thermocline_bench_rivals::all())
}
