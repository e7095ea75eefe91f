//! Rules about the shape of the workspace: names of files, arrows between crates, format pages.

use super::Finding;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 10] = [
    "util", "utils", "manager", "managers", "helper", "helpers", "common", "misc", "new2", "stuff",
];

/// What each crate may depend on, besides crates from outside (ARCHITECTURE.md, the arrows). A new
/// edge needs a page in docs/decisions. `simulation`, `bench`, `torture` and
/// `fuzz` see everything.
const ARROWS: [(&str, &[&str]); 15] = [
    ("allocator", &[]),
    ("foundation", &[]),
    ("device", &["foundation", "popularity"]),
    ("log", &["foundation", "device"]),
    ("table", &["foundation", "device"]),
    ("pmem", &["foundation", "device"]),
    ("popularity", &["foundation"]),
    ("index", &["foundation"]),
    ("slab", &["foundation", "device"]),
    ("engine", &["foundation", "device", "log", "table", "slab", "index", "pmem", "popularity"]),
    ("capi", &["foundation", "device", "engine"]),
    ("python", &["foundation", "device", "engine"]),
    ("server", &["foundation", "device", "engine"]),
    ("cli", &["allocator", "foundation", "device", "engine"]),
    ("xtask", &[]),
];

/// Crates that may depend on all others and that none may depend on.
const ONLOOKERS: [&str; 5] = ["simulation", "bench", "torture", "fuzz", "rivals"];

/// Findings about the file's name.
pub fn names(path: &Path) -> Vec<Finding> {
    let is_source = path.extension().is_some_and(|extension| extension == "rs");
    let parts = path.iter().filter_map(|part| part.to_str());
    parts
        .map(|part| part.split('.').next().unwrap_or(part))
        .filter(|_| is_source)
        .flat_map(|stem| stem.split(['_', '-']))
        .filter(|word| EMPTY_NAMES.contains(word))
        .map(|word| {
            let text = format!("'{word}' says nothing; name the file after what it holds");
            Finding::new(path, 1, text)
        })
        .collect()
}

/// Findings about dependencies between the workspace's crates.
pub fn arrows(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in paths.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let Some(folder) = path.parent().and_then(Path::file_name).and_then(|name| name.to_str())
        else {
            continue;
        };
        let text = fs::read_to_string(root.join(path))?;
        findings.extend(manifest_arrows(path, folder, &text));
    }
    Ok(findings)
}

/// The folder of a workspace crate's package name.
fn folder_of(package: &str) -> Option<&str> {
    match package {
        "thermocline" => Some("engine"),
        "xtask" => Some("xtask"),
        other => other.strip_prefix("thermocline-"),
    }
}

pub(super) fn package_of(folder: &str) -> String {
    match folder {
        "engine" => "thermocline".to_owned(),
        "xtask" => "xtask".to_owned(),
        other => format!("thermocline-{other}"),
    }
}

fn manifest_arrows(path: &Path, folder: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let allowed = ARROWS.iter().find(|(name, _)| *name == folder).map(|(_, to)| *to);
    let onlooker = ONLOOKERS.contains(&folder);
    let mut in_dependencies = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // `[dependencies.name]` puts the name into the section itself.
            let (table, name) = section.rsplit_once('.').unwrap_or((section, ""));
            in_dependencies =
                section.ends_with("dependencies") && !section.starts_with("workspace");
            if table.ends_with("dependencies") && !table.starts_with("workspace") {
                findings.extend(edge(path, index + 1, folder, name, allowed, onlooker));
            }
        } else if in_dependencies {
            let name = line.split(['.', '=', ' ']).next().unwrap_or("");
            findings.extend(edge(path, index + 1, folder, name, allowed, onlooker));
        }
    }
    findings
}

fn edge(
    path: &Path,
    line: usize,
    folder: &str,
    dependency: &str,
    allowed: Option<&[&str]>,
    onlooker: bool,
) -> Option<Finding> {
    let to = folder_of(dependency)?;
    let fine = if onlooker { true } else { allowed.is_some_and(|list| list.contains(&to)) };
    (!fine).then(|| {
        let text = format!(
            "{} must not depend on {dependency}; a new arrow needs a page in docs/decisions and a \
             line in xtask/src/tidy/layout.rs",
            package_of(folder)
        );
        Finding::new(path, line, text)
    })
}

/// The page that lists the format pages, and the page that must link it.
const FORMATS: &str = "docs/formats/README.md";
const FORMATS_LINKED_FROM: &str = "ARCHITECTURE.md";

/// Findings about format pages: [`FORMATS`] links each, each names a golden file that exists, and
/// [`FORMATS_LINKED_FROM`] links the list.
pub fn formats(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let read = |page: &str| {
        let is_there = paths.iter().any(|path| path.as_path() == Path::new(page));
        if is_there { fs::read_to_string(root.join(page)) } else { Ok(String::new()) }
    };
    let (list, map) = (read(FORMATS)?, read(FORMATS_LINKED_FROM)?);
    let mut findings = Vec::new();
    let pages: Vec<&PathBuf> = paths
        .iter()
        .filter(|path| path.starts_with("docs/formats") && *path != Path::new(FORMATS))
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    if !pages.is_empty() && !map.contains(FORMATS) {
        let text = format!("{FORMATS_LINKED_FROM} does not link it");
        findings.push(Finding::new(Path::new(FORMATS), 1, text));
    }
    for path in pages {
        let text = fs::read_to_string(root.join(path))?;
        let exists = |golden: &str| paths.iter().any(|path| path.starts_with(golden));
        findings.extend(format_page(path, &text, &list, exists));
    }
    Ok(findings)
}

fn format_page(path: &Path, page: &str, list: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !list.contains(&format!("]({name})")) {
        findings.push(Finding::new(path, 1, format!("not linked from {FORMATS}")));
    }
    let golden: Vec<(usize, &str)> = page
        .lines()
        .enumerate()
        .flat_map(|(index, line)| {
            line.split(['`', '(', ')', ' ', ',']).map(move |w| (index + 1, w))
        })
        .map(|(line, word)| {
            (line, word.trim_start_matches("../").trim_end_matches(['.', ':', ';']))
        })
        .filter(|(_, word)| word.starts_with("crates/") && word.contains("tests/golden/"))
        .collect();
    if golden.is_empty() {
        let text = "names no golden file; write its path, crates/NAME/tests/golden/FILE";
        findings.push(Finding::new(path, 1, text));
    }
    for (line, name) in golden {
        // A pattern such as `table-*.bin` or `{a,b}.bin` stands for its folder.
        let pattern = name.find(['*', '{']);
        let folder = pattern.map(|at| name[..at].rsplit_once('/').map_or("", |(dir, _)| dir));
        let target = folder.unwrap_or(name);
        if !exists(target.trim_end_matches('/')) {
            let text = format!("the golden file {name} does not exist; run cargo xtask golden");
            findings.push(Finding::new(path, line, text));
        }
    }
    findings
}

/// Findings about paths that the documentation names and that do not exist.
pub fn named_paths(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(root.join(path))?;
        findings.extend(missing_paths(path, &text, |name| root.join(name).exists()));
    }
    Ok(findings)
}

/// A path counts as named where it stands alone between backticks, from the workspace's root.
fn missing_paths(path: &Path, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2) {
            let starts = ["crates/", "docs/", "xtask/"].iter().any(|top| name.starts_with(top));
            let plain = !name.contains(['*', '{', ' ', '<']) && !name.contains("NAME");
            if starts && plain && !exists(name) {
                findings.push(Finding::new(path, index + 1, format!("{name} does not exist")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        for path in
            ["crates/log/src/utils.rs", "crates/log/tests/common/mod.rs", "a/log_manager.rs"]
        {
            assert_eq!(names(Path::new(path)).len(), 1, "{path}");
        }
        assert!(names(Path::new("crates/log/src/utility_pole.rs")).is_empty());
    }

    #[test]
    fn an_arrow_that_points_up_or_sideways_is_found() {
        let check = |folder: &str, text: &str| {
            texts(&manifest_arrows(Path::new("Cargo.toml"), folder, text))
        };
        let to_table = "[dependencies]\nbytes = \"1\"\nthermocline-table.workspace = true\n";
        assert_eq!(check("engine", to_table).len(), 0);
        let found = check("log", to_table);
        assert!(found[0].starts_with("Cargo.toml:3: thermocline-log must not"), "{found:?}");
        assert_eq!(
            check("device", "[dev-dependencies]\nthermocline = { path = \"x\" }\n").len(),
            1
        );
        assert_eq!(check("log", "[dependencies.thermocline-table]\nworkspace = true\n").len(), 1);
        assert_eq!(check("new-crate", "[dependencies]\nthermocline.workspace = true\n").len(), 1);
        assert_eq!(check("bench", to_table).len(), 0);
        assert_eq!(check("server", "[dependencies]\nthermocline-bench.path = \"x\"\n").len(), 1);
    }

    #[test]
    fn a_format_page_without_link_or_golden_file_is_found() {
        let path = Path::new("docs/formats/log.md");
        let list = "[log](log.md)";
        let page = "Golden file: `crates/log/tests/golden/log.bin`.";
        assert_eq!(format_page(path, page, list, |_| true).len(), 0);
        let several = "`crates/log/tests/golden/{a,b}.bin`";
        let folder = |path: &str| path == "crates/log/tests/golden";
        assert_eq!(format_page(path, several, list, folder).len(), 0);
        assert_eq!(format_page(path, several, list, |_| false).len(), 1);
        let unlinked = texts(&format_page(path, page, "", |_| true));
        assert!(unlinked[0].contains("not linked"), "{unlinked:?}");
        let missing = texts(&format_page(path, page, list, |_| false));
        assert!(missing[0].contains("does not exist"), "{missing:?}");
        let unnamed = texts(&format_page(path, "Bytes.", list, |_| true));
        assert!(unnamed[0].contains("names no golden file"), "{unnamed:?}");
    }

    #[test]
    fn a_path_in_the_documentation_that_does_not_exist_is_found() {
        let text = "See `crates/log/src/gone.rs`,\n`docs/media.md` and `crates/*/tests`.";
        let found = texts(&missing_paths(Path::new("A.md"), text, |name| name == "docs/media.md"));
        assert_eq!(found, ["A.md:1: crates/log/src/gone.rs does not exist"]);
    }
}
