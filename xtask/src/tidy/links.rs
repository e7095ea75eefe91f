//! Links between the pages of the repository: the file exists, and so does the heading.
//!
//! Looked at are the relative targets of `[text](target)` and `[label]: target` in Markdown files,
//! outside code. Links to other hosts are not followed.

use super::Finding;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Findings about relative links of all Markdown files in `paths`.
pub fn check(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut pages = BTreeMap::new();
    for path in paths.iter().filter(|path| is_markdown(path)) {
        pages.insert(path.clone(), fs::read_to_string(root.join(path))?);
    }
    Ok(broken(&pages, |path| root.join(path).exists()))
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The links of `pages` that lead nowhere; `exists` knows the files that are no pages.
fn broken(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let anchors: BTreeMap<&Path, Vec<String>> =
        pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let mut findings = Vec::new();
    for (path, text) in pages {
        for (line, target) in targets(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let Some(named) = resolve(path, file) else {
                let text = format!("the link {target} leads out of the repository");
                findings.push(Finding::new(path, line, text));
                continue;
            };
            if !pages.contains_key(&named) && !exists(&named) {
                let text = format!("the link {target} leads to no file");
                findings.push(Finding::new(path, line, text));
            } else if !anchor.is_empty() {
                let known = anchors.get(named.as_path());
                if !known.is_some_and(|known| known.iter().any(|known| known == anchor)) {
                    let text = format!("the link {target} leads to no heading of that page");
                    findings.push(Finding::new(path, line, text));
                }
            }
        }
    }
    findings
}

/// The path from the root that `target` names in the page `from`; an empty target is the page.
fn resolve(from: &Path, target: &str) -> Option<PathBuf> {
    if target.is_empty() {
        return Some(from.to_path_buf());
    }
    let mut named = from.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(name) => named.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !named.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(named)
}

/// Relative targets of links with their lines, counted from 1.
fn targets(text: &str) -> Vec<(usize, String)> {
    let text = without_code(text);
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(at) = text[start..].find("](") {
        let begin = start + at + 2;
        let end = text[begin..].find(')').map_or(text.len(), |length| begin + length);
        found.push((begin, &text[begin..end]));
        start = begin;
    }
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
            && !label.starts_with("[^")
        {
            found.push((begin, target));
        }
        begin += line.len();
    }
    found
        .into_iter()
        .filter_map(|(at, target)| Some((at, target.split_whitespace().next()?)))
        .filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
        .map(|(at, target)| (text[..at].matches('\n').count() + 1, target.to_owned()))
        .collect()
}

/// The text with fenced blocks and `code` blanked; lines keep their numbers.
fn without_code(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence {
            out.push('\n');
            continue;
        }
        let last = line.matches('`').count();
        for (index, part) in line.split('`').enumerate() {
            // A part between two backticks is code; one behind the last is not.
            if index % 2 == 0 || index == last {
                out.push_str(part);
            }
        }
    }
    out
}

/// The anchors that GitHub gives the headings of a page.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if fenced || !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let plain: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        // A heading that comes again gets a number.
        let again = (1..).map(|number| format!("{plain}-{number}"));
        let name = std::iter::once(plain.clone()).chain(again).find(|n| !anchors.contains(n));
        anchors.extend(name);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages =
            pages.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        let exists = |path: &Path| path == Path::new("docs/figure.svg");
        broken(&pages, exists).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_link_to_a_file_or_heading_that_does_not_exist_is_found() {
        let page = "# One page\n\nSee [other](../b.md#two-words-of-it), [here](#one-page),\n\
                    [gone](gone.md) and [a\nheading](../b.md#three).\n\n[label]: lost.md\n";
        let other = "## Two words, of `it`\n";
        assert_eq!(
            found(&[("docs/a.md", page), ("b.md", other)]),
            [
                "docs/a.md:4: the link gone.md leads to no file",
                "docs/a.md:5: the link ../b.md#three leads to no heading of that page",
                "docs/a.md:7: the link lost.md leads to no file",
            ]
        );
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        let found = found(&[("a.md", "[up](../a.md) [root](/etc/hosts)")]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("../a.md leads out of the repository"), "{found:?}");
    }

    #[test]
    fn links_elsewhere_pictures_and_code_are_left_alone() {
        let page = "[web](https://example.org/x.md) ![picture](figure.svg)\n`[a](b.md)`\n\
                    ```\n[c](d.md)\n# no heading\n```\n[mail](mailto:a@example.org)\n";
        assert_eq!(found(&[("docs/a.md", page)]), Vec::<String>::new());
    }

    #[test]
    fn headings_that_repeat_have_numbers() {
        assert_eq!(anchors("# A b\n## A b\n### A-b, `c_d`!\n"), ["a-b", "a-b-1", "a-b-c_d"]);
    }
}
