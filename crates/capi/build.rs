//! Gives the shared library the name under which programs find it when they start. The number goes
//! up only where something is removed or changed.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_macros, reason = "a build script talks to cargo by printing")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthermocline.so.1");
}
