//! `cargo xtask install-c`: the library for C where compilers and programs look for it.
//!
//! ```text
//!   PREFIX/lib/libthermocline.so.1         what programs load
//!   PREFIX/lib/libthermocline.so           -> libthermocline.so.1, for the linker
//!   PREFIX/lib/libthermocline.a            for programs that take the library into themselves
//!   PREFIX/lib/pkgconfig/thermocline.pc    how a program is compiled
//!   PREFIX/include/*.h                     the headers of crates/capi
//! ```
//!
//! Invariants:
//! 1. A file is replaced whole, by a rename: programs that run with the old library go on with it.
//! 2. What is missing is said before anything is installed.

use crate::{cargo, root};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
Usage: cargo xtask install-c --prefix DIR [--from DIR]

Builds libthermocline in the release profile and installs it with its header and thermocline.pc.

  --prefix DIR  below which `lib` and `include` are, and are made where they are not
  --from DIR    installs what was built there before, and builds nothing

Examples:
  cargo xtask install-c --prefix ~/.local
  cargo build --release -p thermocline-capi &&
    sudo cargo xtask install-c --prefix /usr/local --from target/release
  PKG_CONFIG_PATH=~/.local/lib/pkgconfig cc store.c $(pkg-config --cflags --libs thermocline)

docs/c.md says how a program uses the library.";

/// What a build leaves, and the names under which it is installed.
const LIBRARIES: [(&str, &str); 2] =
    [("libthermocline.so", "libthermocline.so.1"), ("libthermocline.a", "libthermocline.a")];

/// The arguments of the command line.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    prefix: PathBuf,
    from: Option<PathBuf>,
}

impl Arguments {
    fn read(more: &[String]) -> Result<Self, String> {
        let (mut prefix, mut from) = (None, None);
        let mut words = more.iter();
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--prefix" => &mut prefix,
                "--from" => &mut from,
                other => return Err(format!("there is no option '{other}'")),
            };
            let dir = words.next().ok_or_else(|| format!("{word} needs a directory"))?;
            *place = Some(PathBuf::from(dir));
        }
        let prefix = prefix.ok_or("--prefix is missing: it says where to")?;
        Ok(Self { prefix, from })
    }
}

/// Runs the chore.
pub fn run(more: &[String]) -> bool {
    if more.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return true;
    }
    let arguments = match Arguments::read(more) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("xtask: {error}\n\n{USAGE}");
            return false;
        }
    };
    let from = match arguments.from {
        Some(from) => from,
        None if cargo(&["build", "--release", "--package", "thermocline-capi"], &[]) => built(),
        None => return false,
    };
    match install(&from, &root().join("crates/capi/include"), &arguments.prefix) {
        Ok(installed) => {
            installed.iter().for_each(|path| println!("{}", path.display()));
            true
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            false
        }
    }
}

/// Where cargo leaves what it builds in the release profile.
fn built() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(target.unwrap_or_else(|| "target".into())).join("release")
}

/// Installs the libraries of the folder `from` and the headers of another below `prefix`, and says
/// which files there are now.
fn install(from: &Path, headers: &Path, prefix: &Path) -> Result<Vec<PathBuf>, String> {
    let at = |path: &Path, error| format!("{}: {error}", path.display());
    let prefix = std::path::absolute(prefix).map_err(|error| at(prefix, error))?;
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let mut copies: Vec<(PathBuf, PathBuf)> =
        LIBRARIES.iter().map(|(built, name)| (from.join(built), lib.join(name))).collect();
    for header in fs::read_dir(headers).map_err(|error| at(headers, error))? {
        let header = header.map_err(|error| at(headers, error))?;
        copies.push((header.path(), include.join(header.file_name())));
    }
    if let Some((missing, _)) = copies.iter().find(|(source, _)| !source.is_file()) {
        let build = "cargo build --release -p thermocline-capi makes it";
        return Err(format!("{} is not there: {build}", missing.display()));
    }
    let mut installed = Vec::new();
    for (source, to) in copies {
        place(&to, |new| fs::copy(&source, new).map(drop)).map_err(|error| at(&to, error))?;
        installed.push(to);
    }
    let link = lib.join("libthermocline.so");
    place(&link, |new| symlink("libthermocline.so.1", new)).map_err(|error| at(&link, error))?;
    let page = lib.join("pkgconfig/thermocline.pc");
    let text = pkg_config(&prefix);
    place(&page, |new| fs::write(new, &text)).map_err(|error| at(&page, error))?;
    installed.extend([link, page]);
    Ok(installed)
}

/// Makes a file under another name by `make`, then gives it the name `to`.
fn place(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
    let new = to.with_added_extension("new");
    if new.symlink_metadata().is_ok() {
        fs::remove_file(&new)?;
    }
    make(&new)?;
    fs::rename(&new, to)
}

/// The page of pkg-config. Quotes keep blanks in the prefix together.
fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: thermocline\n\
         Description: A key-value store for storage that is not all the same speed\n\
         Version: {}\n\
         Libs: -L\"${{libdir}}\" -lthermocline\n\
         Libs.private: -lpthread -ldl -lm\n\
         Cflags: -I\"${{includedir}}\"\n",
        prefix.display(),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_read_and_refused() {
        let read = |words: &str| {
            Arguments::read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let arguments = read("--from target/release --prefix /usr/local").unwrap();
        assert_eq!(arguments.prefix, Path::new("/usr/local"));
        assert_eq!(arguments.from.as_deref(), Some(Path::new("target/release")));
        for (words, said) in [
            ("", "--prefix is missing: it says where to"),
            ("--prefix", "--prefix needs a directory"),
            ("--prefx /usr", "there is no option '--prefx'"),
        ] {
            assert_eq!(read(words).unwrap_err(), said);
        }
    }

    #[test]
    fn files_are_installed_and_replaced_whole() {
        let home = tempfile::tempdir().unwrap();
        let (built, headers) = (home.path().join("built"), home.path().join("headers"));
        let prefix = home.path().join("a prefix");
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(&headers).unwrap();
        fs::write(headers.join("thermocline.h"), "header").unwrap();
        let missing = install(&built, &headers, &prefix).unwrap_err();
        assert!(missing.contains("libthermocline.so is not there"), "{missing}");
        assert!(!prefix.exists(), "nothing is installed where something is missing");

        fs::write(built.join("libthermocline.a"), "archive").unwrap();
        for library in ["old", "new"] {
            fs::write(built.join("libthermocline.so"), library).unwrap();
            let before = fs::File::open(prefix.join("lib/libthermocline.so.1"));
            let installed = install(&built, &headers, &prefix).unwrap();
            assert_eq!(installed.len(), 5);
            assert_eq!(fs::read_to_string(prefix.join("lib/libthermocline.so")).unwrap(), library);
            let of_program = before.and_then(std::io::read_to_string);
            assert_eq!(of_program.ok(), (library == "new").then(|| "old".to_owned()));
        }
        let link = fs::read_link(prefix.join("lib/libthermocline.so")).unwrap();
        assert_eq!(link, Path::new("libthermocline.so.1"));
        let left = fs::read_dir(prefix.join("lib")).unwrap();
        assert_eq!(left.count(), 4, "three libraries and a folder");
        let page = fs::read_to_string(prefix.join("lib/pkgconfig/thermocline.pc")).unwrap();
        assert!(page.starts_with(&format!("prefix={}\n", prefix.display())), "{page}");
    }
}
