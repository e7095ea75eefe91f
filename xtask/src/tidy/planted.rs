//! Tests in which bugs are planted, and the steps of `cargo xtask test`: each test is in one, or
//! said to be run by hand. Where it is in none it is compiled away in every run, and looks as if it
//! passed.

use super::Finding;
use super::layout::package_of;
use crate::SCHEDULED;
use crate::planted::{BY_HAND, NAMED, NAMES, OF_LIBRARIES, WHOLE};
use std::path::{Path, PathBuf};
use std::{fs, io};

const FEATURE: &str = "feature = \"planted-bugs\"";

/// Unit tests, as a target.
const UNITS: &str = "src";

/// Folders of tests that are modules of a target of another name: crate, folder, target.
const MODULES: [(&str, &str, &str); 2] =
    [("pmem", "region", UNITS), ("simulation", "hazards", "slots")];

/// How a step runs the tests of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    All,
    ByName,
    Never,
}

/// Findings about the tests of all crates.
pub fn check(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let is_source = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "rs");
    for path in paths.iter().filter(is_source) {
        if let Some((folder, target)) = target_of(path) {
            let text = fs::read_to_string(root.join(path))?;
            findings.extend(of_file(path, (folder, target), &text));
        }
    }
    Ok(findings)
}

/// The crate's folder, and the target that the file is part of.
fn target_of(path: &Path) -> Option<(&str, &str)> {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let ["crates", folder, kind, first, ..] = parts[..] else { return None };
    let first = first.trim_end_matches(".rs");
    let module = MODULES.iter().find(|(of, module, _)| (*of, *module) == (folder, first));
    match (kind, module) {
        ("src", _) => Some((folder, UNITS)),
        ("tests", Some((_, _, target))) => Some((folder, target)),
        ("tests", None) => Some((folder, first)),
        _ => None,
    }
}

fn run_of(folder: &str, target: &str) -> Run {
    let package = &*package_of(folder);
    let is_whole = folder == "simulation" && WHOLE.contains(&target)
        || target == "schedules" && SCHEDULED.contains(&package)
        || BY_HAND.contains(&(package, target));
    let is_named =
        NAMED.contains(&(package, target)) || target == UNITS && OF_LIBRARIES.contains(&package);
    match (is_whole, is_named) {
        (true, _) => Run::All,
        (_, true) => Run::ByName,
        _ => Run::Never,
    }
}

fn of_file(path: &Path, (folder, target): (&str, &str), text: &str) -> Vec<Finding> {
    let tests = planted_tests(text);
    // Elsewhere in tests it says what an ordinary test does besides.
    let mention = text.lines().position(|line| line.contains(FEATURE));
    let mention = mention.filter(|_| target != UNITS || !tests.is_empty());
    match (run_of(folder, target), mention) {
        (Run::Never, Some(at)) => {
            let text = "bugs are planted here, and no step runs it: add it to xtask/src/planted.rs";
            vec![Finding::new(path, at + 1, text)]
        }
        (Run::ByName, _) => {
            let is_run = |name: &str| {
                let mut of_path = path.iter().filter_map(|part| part.to_str()).chain([name]);
                of_path.any(|part| NAMES.iter().any(|name| part.contains(name)))
            };
            let left_out = tests.into_iter().filter(|(_, name)| !is_run(name));
            let finding = |(at, name): (usize, String)| {
                let names = NAMES.join("` or `");
                let text = format!("no step runs `{name}`: it has no `{names}` in its name");
                Finding::new(path, at + 1, text)
            };
            left_out.map(finding).collect()
        }
        _ => Vec::new(),
    }
}

/// Lines and names of the tests that are there only with the feature.
fn planted_tests(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // From here on all of them; the next item alone.
    let (mut are_all, mut is_next, mut is_test) = (false, false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("#![cfg(") || line.starts_with("#[cfg(all(test,") {
            are_all |= line.contains(FEATURE);
        } else if line.starts_with("#[cfg(") {
            is_next |= line.contains(FEATURE) && !line.contains("not(");
        } else if line == "#[test]" {
            is_test = true;
        } else if !line.starts_with('#') && !line.starts_with("//") {
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let Some(name) = name.filter(|_| is_test && (are_all || is_next)) {
                found.push((at, name.to_owned()));
            }
            (is_next, is_test) = (false, false);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANTED: &str = "//! H.\n\n#[cfg(feature = \"planted-bugs\")]\n#[test]\nfn a_test() {}\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let path = Path::new(path);
        let findings = target_of(path).map(|target| of_file(path, target, text));
        findings.unwrap_or_default().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_planted_test_in_no_step_is_found() {
        for path in ["crates/table/tests/blocks.rs", "crates/table/src/reader.rs"] {
            let found = found(path, PLANTED);
            assert!(found.len() == 1 && found[0].contains(":3: bugs are planted"), "{found:?}");
        }
        for path in [
            "crates/simulation/tests/region.rs",
            "crates/simulation/tests/region/points.rs",
            "crates/simulation/tests/hazards/mod.rs",
            "crates/log/tests/schedules/mod.rs",
            "fuzz/src/lib.rs",
        ] {
            assert_eq!(found(path, PLANTED), Vec::<String>::new(), "{path}");
        }
        assert_eq!(found("crates/bench/tests/schedules/mod.rs", PLANTED).len(), 1);
        // What an ordinary test does besides, and what is no test.
        let besides = "fn f() {\n    #[cfg(feature = \"planted-bugs\")]\n    plant();\n}\n";
        assert_eq!(found("crates/table/tests/blocks.rs", besides).len(), 1);
        assert_eq!(found("crates/table/src/reader.rs", besides).len(), 0);
    }

    #[test]
    fn a_planted_test_that_its_step_passes_over_is_found() {
        for path in [
            "crates/slab/tests/slabs/main.rs",
            "crates/engine/tests/persistent_memory/life.rs",
            "crates/pmem/tests/region/tree.rs",
            "crates/foundation/src/checksum.rs",
        ] {
            let found = |text: &str| found(path, text);
            let texts = found(PLANTED);
            assert!(
                texts.len() == 1 && texts[0].contains(":5: no step runs `a_test`"),
                "{texts:?}"
            );
            assert!(found(&PLANTED.replace("a_test", "planted_test")).is_empty());
            assert!(found(&PLANTED.replace("cfg(f", "cfg(not(f")).is_empty());
            assert!(found("#[test]\nfn a_test() {}\n").is_empty());
            let module = "#[cfg(all(test, feature = \"planted-bugs\"))]\nmod tests {\n\n    \
                          #[test]\n    fn a_test() {}\n}\n";
            assert_eq!(found(module).len(), 1);
        }
        assert!(found("crates/foundation/src/planted.rs", PLANTED).is_empty());
    }
}
