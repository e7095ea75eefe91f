//! Words that stand for a person and hide which component acts: `who`, `nobody`, `he` and their
//! like, in comments of Rust files and in Markdown pages (STYLE.md, rule 10).
//!
//! A sentence about code names the component that acts: the planner, a reader, the caller. Code
//! between backticks does not count, nor do code blocks of a page. `whose` is allowed.

use super::Finding;
use super::lexer::comments_only;
use std::path::Path;
use std::{fs, io};

/// The words, in lower case.
const WORDS: [&str; 14] = [
    "who",
    "whoever",
    "whom",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "anyone",
    "everyone",
    "he",
    "him",
    "his",
];

/// Findings about the words of one file at `root`.
pub fn check(root: &Path, path: &Path) -> io::Result<Vec<Finding>> {
    let prose_of: fn(&str) -> String = match path.extension().and_then(|end| end.to_str()) {
        Some("rs") => comments_only,
        Some("md") => without_blocks,
        _ => return Ok(Vec::new()),
    };
    Ok(words(path, &prose_of(&fs::read_to_string(root.join(path))?)))
}

/// A page with its code blocks blanked out.
fn without_blocks(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut in_block = false;
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if !is_fence && !in_block {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

fn words(path: &Path, prose: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        let outside_code = line.split('`').step_by(2);
        let all = outside_code.flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        for word in all.filter(|word| WORDS.contains(&word.to_lowercase().as_str())) {
            let word = word.to_lowercase();
            let text = format!("'{word}' hides which component acts: name it");
            findings.push(Finding::new(path, index + 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(name), text).unwrap();
        check(home.path(), Path::new(name)).unwrap().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_sentence_that_hides_its_actor_is_found() {
        let text = "//! Who runs the steps is said by the workers.\n\nfn f() {} // nobody's\n";
        let found = findings("a.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:1: 'who' hides"), "{found:?}");
        assert!(found[1].starts_with("a.rs:3: 'nobody' hides"), "{found:?}");
        for word in WORDS {
            assert_eq!(findings("a.rs", &format!("/* It waits for {word}. */\n")).len(), 1);
            assert_eq!(findings("a.md", &format!("It waits for {word}.\n")).len(), 1);
        }
    }

    #[test]
    fn a_sentence_with_an_actor_passes() {
        let text = "//! A table whose reader is open; [`Workers`] choose what runs the steps.\n";
        assert_eq!(findings("a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn code_is_no_prose() {
        let text = "// `who` names the thread.\nfn f(who: &str) -> &str { \"nobody // who\" }\n";
        assert_eq!(findings("a.rs", text), Vec::<String>::new());
        let page = "Run `who`:\n\n```text\nwho\n```\n\nDone.\n";
        assert_eq!(findings("a.md", page), Vec::<String>::new());
        assert_eq!(findings("a.toml", "# who\n"), Vec::<String>::new());
    }
}
