//! Speedb 2.8: a library without headers of its own, and the headers that fit it.
//!
//! Its Java package holds a library that exports all of Speedb, built with the string ABI before
//! C++11's. Its headers are in no registry. Those of RocksDB 8.10 describe what a plugin uses of
//! it, but for one internal function that has a parameter more (docs/decisions/0106-speedb.md).
//!
//! ```text
//! io.github.speedb-io:speedbjni:2.8.0 (jar) --unzip--> rivals/.fetched/speedb/libspeedb.so
//! crate librocksdb-sys 0.16.0+8.10.0: rocksdb/include --one change--> .../speedb/include
//! rivals/as_rocksdb.c --gcc, that library--> .../speedb/as-rocksdb/librocksdb.so
//! ```
//! Speedb exports nearly all of RocksDB's C interface: the benchmark's program, linked with
//! RocksDB, finds Speedb under that name in the last folder.
//!
//! Invariants:
//! 1. Headers that are not the ones which were compared with the library are refused.
//! 2. Only what the comparison covers is compiled against them: files and environments, no options.

use crate::rivals::{self, Package};
use std::fs;
use std::path::{Path, PathBuf};

pub const PACKAGE: Package = Package {
    group: "io.github.speedb-io",
    artifact: "speedbjni",
    version: "2.8.0",
    jar_sha256: "cbb46b381f6fd64175daf8fcbc2d845a37f8900976b13edd88211506433993e8",
    member: "libspeedbjni-linux64.so",
    library_sha256: "9d8edf8a7c847be505f373d00e85f94bb79a44375995bd3a8cfbc6ba56e49a5f",
    library: "speedb/libspeedb.so",
};

/// A workspace of one package, whose source Cargo fetches: the rivals' own workspace has another
/// version of it, and a workspace cannot have two.
const MANIFEST: &str = "\
[package]
name = \"headers-of-speedb\"
version = \"0.0.0\"
edition = \"2021\"

[lib]
path = \"nothing\"

[dependencies]
librocksdb-sys = { version = \"=0.16.0\", default-features = false }

[workspace]
";

/// The headers that declare the function with one parameter more.
const CHANGED: [&str; 5] =
    ["configurable.h", "customizable.h", "env.h", "file_system.h", "system_clock.h"];
const FUNCTION: &str = "std::string SerializeOptions(const ConfigOptions& ";
const NAMESPACE: &str = "namespace ROCKSDB_NAMESPACE {\n";

/// The folder of the headers and that of the library; None where they were not fetched.
pub fn folders() -> Option<(PathBuf, PathBuf)> {
    let lib = PACKAGE.path().parent()?.to_path_buf();
    let is_there = PACKAGE.path().exists() && include(&lib).exists();
    is_there.then(|| (include(&lib), lib))
}

fn include(lib: &Path) -> PathBuf {
    lib.join("include")
}

/// Gets both, where they are not there.
pub fn fetch() -> Result<String, String> {
    let fetched = rivals::fetch(&PACKAGE)?;
    call_it_rocksdb(&rivals::folder().join("speedb/as-rocksdb"))?;
    if folders().is_some() {
        return Ok(fetched);
    }
    let lib = rivals::folder().join("speedb");
    let from = headers(&lib.join("crate"))?;
    // Renamed once it is whole: half of the headers must not be taken for all.
    let unfinished = lib.join("include.new");
    let _ = fs::remove_dir_all(&unfinished);
    let [from_text, to] = [&from, &unfinished].map(|path| path.display().to_string());
    rivals::output_of("cp", &["-r", "--no-preserve=mode", &from_text, &to])?;
    for name in CHANGED {
        let path = unfinished.join("rocksdb").join(name);
        let failed = |error| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(failed)?;
        let changed = with_one_parameter_more(&text).map_err(|why| format!("{name}: {why}"))?;
        fs::write(&path, changed).map_err(failed)?;
    }
    let shown = include(&lib).display().to_string();
    fs::rename(&unfinished, include(&lib)).map_err(|error| format!("{shown}: {error}"))?;
    Ok(format!("{fetched}; headers: {shown}"))
}

/// A library by the name that programs with RocksDB ask for, which needs Speedb's.
fn call_it_rocksdb(folder: &Path) -> Result<(), String> {
    let library = folder.join("librocksdb.so");
    if library.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let source = crate::root().join("rivals/as_rocksdb.c");
    let [source, library, of] = [&source, &library, &rivals::folder().join("speedb")]
        .map(|path| path.display().to_string());
    let arguments = [
        "-shared",
        "-fPIC",
        "-O2",
        &source,
        "-o",
        &library,
        "-L",
        &of,
        "-Wl,--no-as-needed",
        "-lspeedb",
        "-Wl,-rpath,$ORIGIN/..",
    ];
    rivals::output_of("gcc", &arguments).map(drop)
}

/// The folder of the headers in the source that Cargo fetches.
fn headers(workspace: &Path) -> Result<PathBuf, String> {
    let manifest = workspace.join("Cargo.toml");
    let failed = |error| format!("{}: {error}", manifest.display());
    fs::create_dir_all(workspace).map_err(failed)?;
    fs::write(workspace.join("nothing"), "").map_err(failed)?;
    fs::write(&manifest, MANIFEST).map_err(failed)?;
    rivals::source(&rivals::metadata_of(&manifest, &[])?, "librocksdb-sys", "rocksdb/include")
}

/// Declares `SerializeOptions` as the library has it.
fn with_one_parameter_more(text: &str) -> Result<String, String> {
    let pieces: Vec<&str> = text.split(FUNCTION).collect();
    let [before, after] = pieces[..] else {
        return Err(format!("it declares SerializeOptions {} times", pieces.len() - 1));
    };
    let (parameters, rest) = after.split_once(')').ok_or("a declaration without an end")?;
    let changed = format!("{before}{FUNCTION}{parameters}, OptionProperties* properties){rest}");
    match changed.contains(NAMESPACE) {
        true => {
            Ok(changed.replacen(NAMESPACE, &format!("{NAMESPACE}class OptionProperties;\n"), 1))
        }
        false => Err("it does not open the host's namespace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::with_one_parameter_more;

    #[test]
    fn one_declaration_gets_a_parameter_and_anything_else_is_refused() {
        let declaration = "std::string SerializeOptions(const ConfigOptions& options,\n    \
                           const std::string& header) const;\n";
        let text = format!("namespace ROCKSDB_NAMESPACE {{\n{declaration}}}\n");
        let changed = with_one_parameter_more(&text).unwrap();
        let expected = "namespace ROCKSDB_NAMESPACE {\nclass OptionProperties;\nstd::string \
                        SerializeOptions(const ConfigOptions& options,\n    const std::string& \
                        header, OptionProperties* properties) const;\n}\n";
        assert_eq!(changed, expected);
        for wrong in [text.replace(declaration, ""), text.clone() + declaration] {
            assert!(with_one_parameter_more(&wrong).unwrap_err().contains("times"), "{wrong}");
        }
        assert!(with_one_parameter_more(declaration).unwrap_err().contains("namespace"));
    }
}
