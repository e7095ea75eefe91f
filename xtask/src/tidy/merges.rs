//! Marks of a merge that was not finished, in files of any text kind.

use super::Finding;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Kinds of text that merges touch.
const KINDS: [&str; 8] = ["rs", "md", "toml", "json", "txt", "yml", "sh", "lock"];

/// Findings about marks of a merge in the files at `root`.
pub fn check(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let is_text = |path: &&PathBuf| {
        path.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| KINDS.contains(&kind))
    };
    let mut findings = Vec::new();
    for path in paths.iter().filter(is_text) {
        // Golden files of damage need not be UTF-8.
        let text = fs::read(root.join(path))?;
        findings.extend(marks(path, &String::from_utf8_lossy(&text)));
    }
    Ok(findings)
}

/// The first mark in a text.
fn marks(path: &Path, text: &str) -> Option<Finding> {
    let is_mark = |line: &str| {
        ["<", ">"].iter().any(|sign| {
            line.strip_prefix(&sign.repeat(7)).is_some_and(|rest| rest.starts_with(' '))
        })
    };
    let at = text.lines().position(is_mark)?;
    let text = "a merge that was not finished: keep one side and delete the marks";
    Some(Finding::new(path, at + 1, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_mark_is_found_and_lines_of_equal_signs_are_headings() {
        let found = |text: String| marks(Path::new("page.md"), &text).map(|found| found.line);
        assert_eq!(found(format!("one\n{} HEAD\ntwo\n", "<".repeat(7))), Some(2));
        assert_eq!(found(format!("{} branch\n", ">".repeat(7))), Some(1));
        assert_eq!(found(format!("Heading\n{}\n", "=".repeat(7))), None);
        assert_eq!(found(format!("a {} b\n{}\n", "<".repeat(7), ">".repeat(8))), None);
    }
}
