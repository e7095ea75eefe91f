//! The house rules of STYLE.md as checks over the sources.
//!
//! Each rule is a function from text to findings, so that its test can show it failing on a
//! sentence. The files are read once; nothing is compiled. `source.rs` looks into Rust files,
//! `layout.rs` at crates, arrows and format pages, `rooms.rs` at the arrows inside the engine,
//! `packages.rs` at what a package needs, `links.rs` at links between Markdown pages, `prose.rs` at
//! words in comments and pages, `merges.rs` at what a merge left behind, `planted.rs` at tests that
//! no step runs; `lexer.rs` tells code, literals and comments apart.

mod layout;
mod lexer;
mod links;
mod merges;
mod packages;
mod planted;
mod prose;
mod rooms;
mod source;
mod wrap;

use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A broken rule and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    path: PathBuf,
    /// Counted from 1; 0 where the whole file is meant.
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line.max(1), self.text)
    }
}

/// What a run of all checks found.
#[derive(Debug)]
pub struct Report {
    pub files: usize,
    pub findings: Vec<Finding>,
}

/// Runs every check over the workspace at `root`.
pub fn check(root: &Path) -> io::Result<Report> {
    let mut paths = Vec::new();
    walk(root, Path::new(""), &mut paths)?;
    paths.sort();
    let mut findings = Vec::new();
    for path in &paths {
        findings.extend(layout::names(path));
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(root.join(path))?;
            findings.extend(source::check(path, &text));
        }
        findings.extend(prose::check(root, path)?);
    }
    findings.extend(layout::arrows(root, &paths)?);
    findings.extend(layout::formats(root, &paths)?);
    findings.extend(layout::named_paths(root, &paths)?);
    findings.extend(packages::check(root, &paths)?);
    findings.extend(rooms::check(root, &paths)?);
    findings.extend(links::check(root, &paths)?);
    findings.extend(merges::check(root, &paths)?);
    findings.extend(planted::check(root, &paths)?);
    Ok(Report { files: paths.len(), findings })
}

/// The names of the crates that are released.
pub fn published(root: &Path) -> io::Result<Vec<String>> {
    packages::published(root)
}

/// The rooms of the engine with what each imports, as text.
pub fn rooms(root: &Path) -> io::Result<String> {
    let mut paths = Vec::new();
    walk(root, Path::new(""), &mut paths)?;
    rooms::table(root, &paths)
}

/// Wraps the comments of every Rust file; returns the files that changed.
pub fn wrap_comments(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    walk(root, Path::new(""), &mut paths)?;
    let mut changed = Vec::new();
    for path in paths {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(root.join(&path))?;
            let wrapped = wrap::wrap(&text);
            if wrapped != text {
                fs::write(root.join(&path), wrapped)?;
                changed.push(path);
            }
        }
    }
    Ok(changed)
}

/// Collects the files below `root`/`folder`, as paths from `root`. Build output, version control
/// and a store made by `cargo run` are not sources.
fn walk(root: &Path, folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = ["target", ".git", "thermocline-data", "node_modules"];
            if !skipped.iter().any(|skip| name == *skip) {
                walk(root, &path, paths)?;
            }
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One small workspace that breaks a rule of each kind, to see that `check` runs them all.
    #[test]
    fn check_finds_what_is_wrong_in_a_whole_tree() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/log/Cargo.toml", "[dependencies]\nthermocline-table.workspace = true\n");
        write("crates/log/src/lib.rs", "#![forbid(unsafe_code)]\n");
        write("crates/log/src/util.rs", "//! Nobody knows.\n");
        write("docs/formats/log.md", "# Log\n[gone](gone.md)\n");
        let planted = "//! H.\n#[cfg(feature = \"planted-bugs\")]\n#[test]\nfn planted() {}\n";
        write("crates/log/tests/pages.rs", planted);
        write("docs/half.md", &format!("{} HEAD\n", "<".repeat(7)));
        write("target/ignored.rs", "");
        let report = check(home.path()).unwrap();
        let texts: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
        for part in [
            "log/src/lib.rs:1: no `//!` header",
            "log/src/util.rs:1: 'util' says nothing",
            "log/Cargo.toml:2: thermocline-log must not depend on thermocline-table",
            "log/Cargo.toml:1: no description",
            "docs/formats/log.md:1: not linked from docs/formats/README.md",
            "docs/formats/README.md:1: ARCHITECTURE.md does not link it",
            "crates/log/src/util.rs:1: 'nobody'",
            "docs/formats/log.md:2: the link gone.md leads to no file",
            "docs/half.md:1: a merge that was not finished",
            "crates/log/tests/pages.rs:2: bugs are planted here, and no step runs it",
        ] {
            assert!(texts.iter().any(|text| text.contains(part)), "{part} is not in {texts:#?}");
        }
        assert_eq!(report.files, 6);
    }
}
