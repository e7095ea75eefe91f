//! Rules about what a crate needs to be packaged: `cargo package` finds a gap only at a release.
//!
//! 1. A crate below `crates/` says `publish = false`, or its manifest is complete: the version,
//!    licence and file list of the workspace, a description, and a readme.
//! 2. Its folder has the readme and both licences (links to those of the root), which the package
//!    is to hold.
//! 3. A dependency with a path has a version beside it, for the path exists only here. The
//!    workspace's own crates are released together, so theirs is exactly the workspace's.

use super::Finding;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What the manifest of a published crate must have in its section `[package]`.
const LINES: [&str; 6] = [
    "version.workspace = true",
    "license.workspace = true",
    "keywords.workspace = true",
    "categories.workspace = true",
    "include.workspace = true",
    "readme = \"README.md\"",
];

/// What lies beside it.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Findings in the manifests of the workspace and its crates.
pub fn check(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in paths.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_root = folder.as_os_str().is_empty();
        if is_root || folder.parent() == Some(Path::new("crates")) {
            let text = fs::read_to_string(root.join(path))?;
            findings.extend(if is_root {
                shared_versions(path, &text)
            } else {
                manifest(path, &text, |name| root.join(folder).join(name).exists())
            });
        }
    }
    Ok(findings)
}

/// The names of the crates that are released, in order.
pub fn published(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in fs::read_dir(root.join("crates"))? {
        let path = folder?.path().join("Cargo.toml");
        if path.exists() {
            names.extend(published_name(&fs::read_to_string(path)?));
        }
    }
    names.sort();
    Ok(names)
}

/// The name that the manifest of a released crate says; none where it is not released.
fn published_name(text: &str) -> Option<String> {
    let package = || lines(text).filter(|(_, section, _)| *section == "package").map(|it| it.2);
    if package().any(|line| line == "publish = false") {
        return None;
    }
    let name = package().find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim_matches('"').to_owned())
}

/// The lines of a manifest, each with its number and the name of its section.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    text.lines().enumerate().map(move |(index, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']']);
        }
        (index + 1, section, line)
    })
}

/// The manifest of one crate; `has_file` knows what lies beside it.
fn manifest(path: &Path, text: &str, has_file: impl Fn(&str) -> bool) -> Vec<Finding> {
    let package: Vec<&str> =
        lines(text).filter(|(_, section, _)| *section == "package").map(|it| it.2).collect();
    if package.contains(&"publish = false") {
        return Vec::new();
    }
    let missing = |what: &str| {
        Finding::new(path, 1, format!("no {what}; a crate without it says `publish = false`"))
    };
    let mut findings: Vec<Finding> = LINES
        .iter()
        .filter(|needed| !package.contains(needed))
        .map(|needed| missing(&format!("`{needed}`")))
        .collect();
    let is_description = |line: &&str| {
        let text = line.strip_prefix("description = \"").map(|text| text.trim_end_matches('"'));
        *line == "description.workspace = true" || text.is_some_and(|text| !text.is_empty())
    };
    if !package.iter().any(is_description) {
        findings.push(missing("description"));
    }
    findings.extend(FILES.iter().filter(|name| !has_file(name)).map(|name| missing(name)));
    // A path of a dev-dependency is no part of the package.
    let dependencies = lines(text).filter(|(_, section, _)| {
        section.contains("dependencies") && !section.contains("dev-dependencies")
    });
    let bare = dependencies.filter(|(_, _, line)| has_key(line, "path"));
    findings.extend(bare.filter(|(_, _, line)| !has_key(line, "version")).map(|(number, _, _)| {
        Finding::new(path, number, "a path without a version in the same line exists only here")
    }));
    findings
}

/// The versions of the workspace's own crates in the root's manifest.
fn shared_versions(path: &Path, text: &str) -> Vec<Finding> {
    let version = lines(text)
        .filter(|(_, section, _)| *section == "workspace.package")
        .find_map(|(_, _, line)| line.strip_prefix("version = "))
        .map_or("", |version| version.trim_matches('"'));
    let exact = format!("version = \"={version}\"");
    lines(text)
        .filter(|(_, section, line)| *section == "workspace.dependencies" && has_key(line, "path"))
        .filter(|(_, _, line)| !line.contains(&exact))
        .map(|(number, _, _)| {
            Finding::new(path, number, format!("a crate of the workspace needs `{exact}`"))
        })
        .collect()
}

/// `key = ` begins the line, or a table in it has it.
fn has_key(line: &str, key: &str) -> bool {
    let code = line.split('#').next().unwrap_or(line);
    let mut names = code.split(['{', ',']).filter_map(|part| part.split_once('=')).map(|it| it.0);
    // `name.path = ...` is the same as a table.
    names.any(|name| name.trim().rsplit('.').next() == Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = "\
[package]
name = \"thermocline-log\"
version.workspace = true
license.workspace = true
keywords.workspace = true
categories.workspace = true
include.workspace = true
readme = \"README.md\"
description = \"A log\"

[dependencies]
bytes.workspace = true
other = { path = \"../other\", version = \"1\" }

[dev-dependencies]
near = { path = \"../near\" }
";

    fn texts(text: &str, has_file: impl Fn(&str) -> bool) -> Vec<String> {
        let found = manifest(Path::new("Cargo.toml"), text, has_file);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn each_gap_of_a_published_manifest_is_found() {
        assert_eq!(texts(COMPLETE, |_| true), Vec::<String>::new());
        for needed in LINES.iter().copied().chain(["description = \"A log\""]) {
            let found = texts(&COMPLETE.replace(needed, ""), |_| true);
            let what = needed.split(" = \"A").next().unwrap();
            assert!(found.len() == 1 && found[0].contains(what), "{needed}: {found:?}");
        }
        assert_eq!(texts(&COMPLETE.replace("A log", ""), |_| true).len(), 1);
        let elsewhere = COMPLETE.replace("license.workspace = true\n", "");
        let elsewhere = format!("{elsewhere}[lints]\nlicense.workspace = true\n");
        assert_eq!(texts(&elsewhere, |_| true).len(), 1);
        for name in FILES {
            let found = texts(COMPLETE, |file| file != name);
            assert!(found.len() == 1 && found[0].contains(name), "{found:?}");
        }
    }

    #[test]
    fn a_path_without_a_version_is_found() {
        let found = texts(&COMPLETE.replace(", version = \"1\"", ""), |_| true);
        assert!(found.len() == 1 && found[0].starts_with("Cargo.toml:13: a path"), "{found:?}");
        let table = format!("{COMPLETE}\n[dependencies.third]\npath = \"../third\"\n");
        assert_eq!(texts(&table, |_| true).len(), 1);
        let build =
            format!("{COMPLETE}\n[target.'cfg(unix)'.build-dependencies]\na.path = \"x\"\n");
        assert_eq!(texts(&build, |_| true).len(), 1);
    }

    #[test]
    fn a_crate_that_is_not_published_needs_nothing() {
        let kept =
            "[package]\nname = \"x\"\npublish = false\n\n[dependencies]\na.path = \"../a\"\n";
        assert_eq!(texts(kept, |_| false), Vec::<String>::new());
    }

    #[test]
    fn crates_are_released_unless_they_say_that_they_are_not() {
        assert_eq!(published_name(COMPLETE).as_deref(), Some("thermocline-log"));
        let kept = COMPLETE.replace("readme = \"README.md\"", "publish = false");
        assert_eq!(published_name(&kept), None);
        let names = published(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        assert!(names.contains(&"thermocline".to_owned()), "{names:?}");
        assert!(!names.contains(&"thermocline-bench".to_owned()), "{names:?}");
    }

    #[test]
    fn a_workspace_crate_of_another_version_is_found() {
        let text = "\
[workspace.package]
version = \"0.2.0\"
[workspace.dependencies]
a = { path = \"crates/a\", version = \"=0.2.0\" }
b = { path = \"crates/b\", version = \"=0.1.0\" }
c = { path = \"crates/c\" }
bytes = \"1\"
";
        let found = shared_versions(Path::new("Cargo.toml"), text);
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5, 6], "{found:?}");
    }
}
