//! The rooms of the engine and the arrows between them (ARCHITECTURE.md).
//!
//! A room is a folder or a file of `crates/engine/src`. A room may import only rooms before it in
//! [`ROOMS`], apart from the pairs in [`NEVER`]. [`WRONG`] lists the arrows that still break this;
//! the list may only shrink, so an entry that nothing needs any more is a finding too. Tests may
//! import what they like.

use super::Finding;
use super::lexer::code_only;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where the engine's sources are.
const SOURCES: &str = "crates/engine/src";

/// The rooms in order, each with the files and folders that belong to it. The longest match counts.
const ROOMS: [(&str, &[&str]); 18] = [
    ("limits", &["limits.rs"]),
    ("error", &["error.rs"]),
    ("jobs", &["jobs/"]),
    ("batch", &["batch.rs"]),
    ("settings", &["settings/"]),
    ("shared", &["shared/"]),
    ("generations", &["generations/"]),
    ("table_set", &["table_set/"]),
    ("merge", &["merge/"]),
    ("versions", &["versions/"]),
    ("compaction", &["compaction/"]),
    ("locator", &["locator/"]),
    ("front", &["front/"]),
    ("layout", &["layout/"]),
    ("fast_cache", &["fast_cache/"]),
    ("read", &["read/"]),
    ("engine", &["engine/"]),
    ("db", &["db.rs", "builder.rs", "environment.rs", "live_stats.rs", "db/"]),
];

/// Arrows that must not be, although the order of the rooms would allow them.
const NEVER: [(&str, &str); 5] = [
    ("front", "compaction"),
    ("front", "locator"),
    ("locator", "compaction"),
    ("layout", "front"),
    ("table_set", "generations"),
];

/// Files that belong to no room: the root, the overview, and doors for tests.
const OUTSIDE: [&str; 5] =
    ["lib.rs", "decoders.rs", "design.rs", "support/", "layout/hybrid/tiny_records.rs"];

/// Arrows that still point the wrong way: a file, and the room that it must not know.
const WRONG: &[(&str, &str)] = &[];

/// The room that a file of the engine belongs to.
fn room_of(file: &str) -> Option<usize> {
    let length = |place: &str| -> Option<usize> {
        let is_match = file == place || place.ends_with('/') && file.starts_with(place);
        is_match.then_some(place.len())
    };
    let matches = ROOMS.iter().enumerate().filter_map(|(room, (_, places))| {
        let longest = places.iter().filter_map(|place| length(place)).max()?;
        Some((longest, room))
    });
    matches.max().map(|(_, room)| room)
}

fn is_outside(file: &str) -> bool {
    let is_named = |place: &str| file == place || place.ends_with('/') && file.starts_with(place);
    // Tests of a whole folder are a file of their own.
    file.ends_with("/tests.rs") || OUTSIDE.iter().any(|place| is_named(place))
}

/// The engine's sources: texts by path below [`SOURCES`], comments and tests blanked out.
#[derive(Debug, Default)]
pub struct Sources {
    texts: BTreeMap<String, String>,
    /// What `lib.rs` exports, with the module that it comes from.
    exports: BTreeMap<String, Vec<String>>,
}

/// An arrow: a line of a file that names a file of another room.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    file: String,
    line: usize,
    target: String,
}

impl Sources {
    /// Reads the engine below `root`.
    pub fn read(root: &Path, paths: &[PathBuf]) -> io::Result<Self> {
        let mut sources = Self::default();
        for path in paths {
            let Ok(below) = path.strip_prefix(SOURCES) else { continue };
            if below.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(root.join(path))?;
                sources.add(&below.to_string_lossy(), &text);
            }
        }
        Ok(sources)
    }

    fn add(&mut self, file: &str, text: &str) {
        let code = without_tests(&code_only(text));
        if file == "lib.rs" {
            self.exports = exports_of(&code);
        }
        self.texts.insert(file.to_owned(), code);
    }

    /// The file that a path from the crate's root leads to, as deep as files go.
    fn file_of(&self, segments: &[String]) -> Option<String> {
        if let Some(first) = segments.first()
            && let Some(module) = self.exports.get(first)
        {
            return self.file_of(module);
        }
        (1..=segments.len()).rev().find_map(|count| {
            let path = segments[..count].join("/");
            let names = [format!("{path}.rs"), format!("{path}/mod.rs")];
            names.into_iter().find(|name| self.texts.contains_key(name))
        })
    }

    /// All arrows from one room to another.
    fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = BTreeSet::new();
        for (file, text) in self.texts.iter().filter(|(file, _)| !is_outside(file)) {
            for (line, segments) in paths_in(file, text) {
                let Some(target) = self.file_of(&segments) else { continue };
                if room_of(&target) != room_of(file) && !is_outside(&target) {
                    arrows.insert(Arrow { file: file.clone(), line, target });
                }
            }
        }
        arrows.into_iter().collect()
    }

    /// Findings about files without a room and about wrong arrows, of which `wrong` are known.
    fn findings(&self, wrong: &[(&str, &str)]) -> Vec<Finding> {
        let place = |file: &str| Path::new(SOURCES).join(file);
        let mut findings = Vec::new();
        for file in self.texts.keys().filter(|file| !is_outside(file)) {
            if room_of(file).is_none() {
                let text = "belongs to no room; give it one in xtask/src/tidy/rooms.rs";
                findings.push(Finding::new(&place(file), 1, text));
            }
        }
        let mut met = BTreeSet::new();
        for Arrow { file, line, target } in self.arrows() {
            let (Some(from), Some(to)) = (room_of(&file), room_of(&target)) else { continue };
            let (from_name, to_name) = (ROOMS[from].0, ROOMS[to].0);
            if to < from && !NEVER.contains(&(from_name, to_name)) {
                continue;
            }
            if wrong.contains(&(file.as_str(), to_name)) {
                met.insert((file, to_name));
                continue;
            }
            let text = format!("the room `{from_name}` must not import `{to_name}` ({target})");
            findings.push(Finding::new(&place(&file), line, text));
        }
        for (file, to) in wrong {
            if !met.contains(&((*file).to_owned(), *to)) {
                let text = format!(
                    "does not import `{to}` any more: take the arrow off the list WRONG in \
                     xtask/src/tidy/rooms.rs"
                );
                findings.push(Finding::new(&place(file), 1, text));
            }
        }
        findings
    }
}

/// Findings about the rooms of the engine at `root`.
pub fn check(root: &Path, paths: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let sources = Sources::read(root, paths)?;
    if sources.texts.is_empty() {
        return Ok(Vec::new());
    }
    Ok(sources.findings(WRONG))
}

/// The rooms with what each of them imports, as text.
pub fn table(root: &Path, paths: &[PathBuf]) -> io::Result<String> {
    let sources = Sources::read(root, paths)?;
    let mut imports = vec![BTreeSet::new(); ROOMS.len()];
    for Arrow { file, target, .. } in sources.arrows() {
        if let (Some(from), Some(to)) = (room_of(&file), room_of(&target)) {
            imports[from].insert(to);
        }
    }
    let mut text = String::new();
    for (room, (name, _)) in ROOMS.iter().enumerate() {
        let is_here = |file: &&String| room_of(file) == Some(room);
        let files = sources.texts.keys().filter(is_here).count();
        let names: Vec<_> = imports[room].iter().map(|to| ROOMS[*to].0).collect();
        text += &format!("{name:12} {files:3} files <- {}\n", names.join(" "));
    }
    text += &format!("{} arrows still point the wrong way\n", WRONG.len());
    Ok(text)
}

/// The code before the tests of a file: they come last, as a module of their own.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let begins_tests = line.trim_start().starts_with("#[cfg(test)]")
            && lines.peek().is_some_and(|next| next.trim_start().starts_with("mod "))
            && lines.peek().is_some_and(|next| next.trim_end().ends_with('{'));
        if begins_tests {
            break;
        }
        if line.trim_start().starts_with("#[cfg(test)]") {
            // One item for tests alone, such as an import.
            lines.next();
            kept += "\n\n";
            continue;
        }
        kept += line;
        kept.push('\n');
    }
    kept
}

/// What the root exports: each name with the module that it comes from.
fn exports_of(code: &str) -> BTreeMap<String, Vec<String>> {
    let mut exports = BTreeMap::new();
    for statement in code.split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else { continue };
        let (module, names) = match path.split_once('{') {
            Some((module, names)) => (module, names.trim_end().trim_end_matches('}')),
            None => path.rsplit_once("::").unwrap_or(("", path)),
        };
        let module: Vec<String> = segments_of(module);
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            exports.insert(name.to_owned(), module.clone());
        }
    }
    exports
}

fn segments_of(path: &str) -> Vec<String> {
    let segments = path.split("::").map(str::trim).filter(|segment| !segment.is_empty());
    segments.map(str::to_owned).collect()
}

/// The paths of a file that begin at the crate's root or above the file, from the root on, with
/// their lines.
fn paths_in(file: &str, code: &str) -> Vec<(usize, Vec<String>)> {
    let mut module = segments_of(&file.trim_end_matches(".rs").replace('/', "::"));
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let line = 1 + code[..at].matches('\n').count();
            let mut base = Vec::new();
            let mut rest = &code[at..];
            if start == "super::" {
                base = module.clone();
                while let Some(above) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = above;
                }
            } else {
                rest = &rest[start.len()..];
            }
            for tail in tails_of(rest) {
                found.push((line, [base.clone(), tail].concat()));
            }
        }
    }
    found
}

/// The paths that go on here: one, or those of a group in braces.
fn tails_of(rest: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (path, after) = rest.split_at(end);
    let segments = segments_of(path);
    if !path.is_empty() && !path.ends_with("::") || !after.starts_with('{') {
        return vec![segments];
    }
    let mut depth = 0;
    let close = after.char_indices().find(|(_, c)| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    let inner = &after[1..close.map_or(after.len(), |(at, _)| at)];
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[begin..]);
    let tails = parts.into_iter().flat_map(|part| tails_of(part.trim()));
    tails.map(|tail| [segments.clone(), tail].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        let mut sources = Sources::default();
        files.iter().for_each(|(file, text)| sources.add(file, text));
        sources
    }

    fn texts(sources: &Sources, wrong: &[(&str, &str)]) -> Vec<String> {
        sources.findings(wrong).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_import_of_a_later_room_is_found_by_every_way_to_write_it() {
        let lib = ("lib.rs", "mod jobs;\nmod shared;\npub use db::{Db, Scan};\n");
        let later = [("shared/mod.rs", "pub struct S;\n"), ("db.rs", "pub struct Db;\n")];
        for (line, import) in [
            (1, "use crate::shared::S;\n"),
            (2, "\nuse crate::{\n    error::E,\n    shared::{S, T},\n};\n"),
            (1, "fn f() { crate::shared::call() }\n"),
            (1, "use super::super::shared::S;\n"),
            (1, "use crate::Db;\n"),
        ] {
            let files = [&[lib, ("jobs/lane.rs", import)][..], &later].concat();
            let found = texts(&sources(&files), &[]);
            assert_eq!(found.len(), 1, "{import}: {found:?}");
            assert!(found[0].starts_with(&format!("crates/engine/src/jobs/lane.rs:{line}:")));
        }
    }

    #[test]
    fn earlier_rooms_comments_and_tests_are_no_wrong_arrows() {
        let text = "// crate::db::Db\nuse crate::jobs::Job;\nuse super::totals;\n\
                    #[cfg(test)]\nuse crate::db::Db;\n#[cfg(test)]\nmod tests {\n\
                    use crate::db::Db;\n}\n";
        let files = [("shared/counts.rs", text), ("jobs/mod.rs", ""), ("db.rs", "")];
        assert_eq!(texts(&sources(&files), &[]), [""; 0]);
    }

    #[test]
    fn a_forbidden_pair_is_found_although_the_order_allows_it() {
        let text = "use crate::generations::Frozen;\n";
        let files = [("table_set/levels.rs", text), ("generations/mod.rs", "")];
        let found = texts(&sources(&files), &[]);
        assert!(found[0].contains("`table_set` must not import `generations`"), "{found:?}");
    }

    #[test]
    fn the_list_of_wrong_arrows_may_only_shrink() {
        let files = [("jobs/mod.rs", "use crate::shared::S;\n"), ("shared/mod.rs", "")];
        assert_eq!(texts(&sources(&files), &[("jobs/mod.rs", "shared")]), [""; 0]);
        let fixed = [("jobs/mod.rs", ""), ("shared/mod.rs", "")];
        let found = texts(&sources(&fixed), &[("jobs/mod.rs", "shared")]);
        assert!(found[0].contains("take the arrow off the list"), "{found:?}");
    }

    #[test]
    fn a_file_without_a_room_is_found() {
        let found = texts(&sources(&[("attic.rs", "")]), &[]);
        assert!(found[0].contains("belongs to no room"), "{found:?}");
    }
}
