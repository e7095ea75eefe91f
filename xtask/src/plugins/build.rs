//! Builds the plugins: the C interface by cargo, C++ and C by the system's compilers.

use super::{Outcome, Row, Source, root, speedb};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
/// Hosts are built without run-time types, and no exception may cross into one.
const CXX: [&str; 4] = ["-O2", "-fPIC", "-fno-rtti", "-fno-exceptions"];

/// The folder that cargo builds to.
pub fn target() -> PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// Runs a compiler or the like; what it said where it fails.
pub fn compile(program: &str, arguments: &[String]) -> Result<(), String> {
    let run = Command::new(program).args(arguments).current_dir(root()).output();
    let output = run.map_err(|error| {
        format!("cannot start {program}: {error}; apt install g++ brings the compilers")
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} said:\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What is preloaded.
pub fn shim(folder: &Path) -> PathBuf {
    folder.join("libthermocline_preload.so")
}

/// What is the same for all hosts.
pub fn shared(folder: &Path) -> Result<Outcome, String> {
    // Without the engine, of which a plugin needs nothing.
    let library = ["build", "--release", "--package", "thermocline-capi"];
    let features = ["--no-default-features", "--features", "device"];
    if !crate::cargo(&[&library[..], &features].concat(), &[]) {
        return Err("the C interface does not build".to_owned());
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let from = target().join("release/libthermocline.so");
    let to = folder.join("libthermocline.so.1");
    // Removed first: a process that has it loaded keeps its own.
    let _ = fs::remove_file(&to);
    fs::copy(&from, &to).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
    preloaded(&shim(folder))?;
    Ok(Outcome::Passed(format!("built to {}", folder.display())))
}

/// The shim, built to a file.
pub fn preloaded(shim: &Path) -> Result<(), String> {
    let mut arguments = words(&["-std=c11", "-O2", "-fPIC", "-shared"]);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&["plugins/preload/preload.c", "-o", &shim.display().to_string()]));
    compile("gcc", &arguments)
}

/// The plugin of one host.
pub fn row(row: &Row, folder: &Path) -> Result<Outcome, String> {
    if let Some(missing) = missing(row) {
        return Ok(Outcome::Skipped(missing));
    }
    let plugin = row.plugin(folder);
    let mut arguments = words(&CXX);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&["-shared", "-Wl,-rpath,$ORIGIN", "-o", &plugin]));
    arguments.extend(headers(row));
    for sources_in in ["taps", "tiers", row.folder] {
        arguments.extend(sources(&format!("plugins/{sources_in}"))?);
    }
    if let Source::System(library) = row.source {
        arguments.extend(words(&["-Wl,--no-undefined", library]));
    }
    arguments.push(folder.join("libthermocline.so.1").display().to_string());
    compile("g++", &arguments)?;
    Ok(Outcome::Passed(format!("built {plugin}")))
}

/// Why the row cannot be built or tried here.
pub fn missing(row: &Row) -> Option<String> {
    let Some(path) = include(row).map(|folder| folder.join(row.header)) else {
        return Some(format!("it was not fetched; {}", row.packages));
    };
    let header = fs::read_to_string(&path).unwrap_or_default();
    let numbers: Option<Vec<&str>> =
        row.numbers.iter().map(|name| number_of(&header, name)).collect();
    let Some(numbers) = numbers else {
        return Some(format!("{} is not there; {}", path.display(), row.packages));
    };
    let found = numbers.join(".");
    let text = || format!("{} is version {found}; {}", path.display(), row.packages);
    (found != row.header_version).then(text)
}

/// The folder of its headers.
fn include(row: &Row) -> Option<PathBuf> {
    match row.source {
        Source::System(_) => Some(PathBuf::from("/usr/include")),
        Source::Rivals => crate::rivals::rocksdb().map(|(include, _)| include),
        Source::Speedb => speedb::folders().map(|(include, _)| include),
    }
}

/// What the compiler needs for its headers; warnings of theirs are the host's.
fn headers(row: &Row) -> Vec<String> {
    let mut arguments = words(row.flags);
    arguments.push("-Icrates/capi/include".to_owned());
    arguments.extend(fetched_headers(row));
    arguments
}

/// Where headers are that the compiler does not find by itself.
fn fetched_headers(row: &Row) -> Vec<String> {
    match (row.source, include(row)) {
        (Source::Rivals | Source::Speedb, Some(include)) => {
            vec!["-isystem".to_owned(), include.display().to_string()]
        }
        _ => Vec::new(),
    }
}

/// What the linker of a program needs for the host's library.
fn libraries(row: &Row) -> Vec<String> {
    let (name, folders) = match row.source {
        Source::System(library) => return vec![library.to_owned()],
        Source::Rivals => ("-lrocksdb", crate::rivals::rocksdb()),
        Source::Speedb => ("-lspeedb", speedb::folders()),
    };
    folders.map_or_else(Vec::new, |(_, lib)| {
        let lib = lib.display();
        vec![format!("-L{lib}"), name.to_owned(), format!("-Wl,-rpath,{lib}")]
    })
}

/// The number behind a name: `#define NAME 7`, or `static const int NAME = 7;`.
fn number_of<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let line = lines.find(|line| line.split_whitespace().any(|word| word == name))?;
    let (_, behind) = line.split_once(name)?;
    let number = behind.trim_matches(|sign: char| !sign.is_ascii_digit());
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then_some(number)
}

/// The sources of a folder, without tests.
fn sources(folder: &str) -> Result<Vec<String>, String> {
    let entries =
        fs::read_dir(root().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_source = |name: &String| name.ends_with(".cc") && !name.ends_with("_test.cc");
    let mut sources: Vec<String> =
        names.filter(is_source).map(|name| format!("{folder}/{name}")).collect();
    sources.sort();
    Ok(sources)
}

/// Builds a test program from `sources` to `program`.
pub fn program(sources: &[&str], more: &[String], program: &Path) -> Result<(), String> {
    let mut arguments = words(&["-std=c++17", "-O1", "-g", "-pthread"]);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&["-Icrates/capi/include", "-o", &program.display().to_string()]));
    arguments.extend(words(sources));
    arguments.extend(more.iter().cloned());
    compile("g++", &arguments)
}

/// What has the compiler check uses of memory, and arithmetic; nothing where it cannot. Tries that
/// in `folder`.
pub fn sanitizers(folder: &Path) -> Vec<String> {
    let flags = words(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    let (source, tried) = (folder.join("nothing.cc"), folder.join("nothing"));
    let runs = fs::write(&source, "int main() { return 0; }\n").is_ok()
        && program(&[&source.display().to_string()], &flags, &tried).is_ok()
        && Command::new(&tried).status().is_ok_and(|status| status.success());
    if runs { flags } else { Vec::new() }
}

/// Builds a program of the row's host to `program`; with its plugin, where one is given.
pub fn host_program(
    row: &Row,
    source: &str,
    plugins: Option<&Path>,
    program: &Path,
) -> Result<(), String> {
    let mut more = headers(row);
    if let Some(folder) = plugins {
        more.extend([row.plugin(folder), format!("-Wl,-rpath,{}", folder.display())]);
    }
    more.extend(libraries(row));
    self::program(&[source], &more, program)
}

/// Builds a program in C, which links the row's host alone, to `program`.
pub fn c_program(row: &Row, source: &str, program: &Path) -> Result<(), String> {
    let mut arguments = words(&["-std=c11", "-O1", "-g", "-pthread"]);
    arguments.extend(words(&WARNINGS));
    arguments.extend(fetched_headers(row));
    arguments.extend(words(&["-o", &program.display().to_string(), source]));
    arguments.extend(libraries(row));
    compile("gcc", &arguments)
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn a_version_is_read_from_macros_and_from_constants() {
        let rows = [
            ("#define ROCKSDB_MAJOR 7\n#define OTHER 1", Some("7")),
            ("#define OTHER 1\nstatic const int ROCKSDB_MAJOR = 23;", Some("23")),
            ("#define ROCKSDB_MAJORITY 7", None),
            ("// ROCKSDB_MAJOR 7", None),
            ("", None),
        ];
        for (header, expected) in rows {
            assert_eq!(number_of(header, "ROCKSDB_MAJOR"), expected, "{header}");
        }
        assert_eq!(number_of("#define X ROCKSDB_MAJOR.x", "X"), None);
    }
}
