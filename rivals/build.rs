//! Tells the linker where the libraries are that Cargo does not bring: RocksDB's beside this
//! workspace, at run time too, and LevelDB's where the system has it. Compiles what sets RocksDB's
//! cache on a device, with the headers that its bindings carry.

/// As RocksDB's library was compiled: the classes in its headers depend on them.
#[cfg(feature = "rocksdb")]
const FLAGS: [&str; 7] = [
    "-std=c++20",
    "-w",
    "-fno-rtti",
    "-DNDEBUG",
    "-DOS_LINUX",
    "-DROCKSDB_PLATFORM_POSIX",
    "-DROCKSDB_LIB_IO_POSIX",
];
#[cfg(feature = "rocksdb")]
const SHIM: &str = "src/foreign/persistent_cache.cc";

#[allow(clippy::disallowed_macros, reason = "a build script speaks to Cargo by printing")]
fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo tells where the crate is");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}/.fetched/lib");
    if std::env::var_os("CARGO_FEATURE_LEVELDB").is_some() {
        println!("cargo:rustc-link-lib=dylib=leveldb");
    }
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "rocksdb")]
    shim();
}

#[cfg(feature = "rocksdb")]
#[allow(clippy::disallowed_macros, reason = "as above")]
fn shim() {
    let bindings = std::env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("its bindings tell");
    let source = std::path::Path::new(&bindings).join("rocksdb");
    let mut build = cc::Build::new();
    build.cpp(true).include(&source).include(source.join("include")).file(SHIM);
    FLAGS.iter().for_each(|flag| {
        build.flag(flag);
    });
    build.compile("thermocline_persistent_cache");
    println!("cargo:rerun-if-changed={SHIM}");
}
