//! Tells the linker where the libraries are that Cargo does not bring: RocksDB's beside this
//! workspace, at run time too, and LevelDB's where the system has it.

#[allow(clippy::disallowed_macros, reason = "a build script speaks to Cargo by printing")]
fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo tells where the crate is");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}/.fetched/lib");
    if std::env::var_os("CARGO_FEATURE_LEVELDB").is_some() {
        println!("cargo:rustc-link-lib=dylib=leveldb");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
