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
const ROOMS: [(&str, &[&str]); 22] = [
    ("limits", &["limits.rs"]),
    ("error", &["error.rs"]),
    ("jobs", &["jobs/"]),
    ("environment", &["environment/"]),
    ("batch", &["batch.rs"]),
    ("settings", &["settings/"]),
    ("shared", &["shared/"]),
    ("generations", &["generations/"]),
    ("table_set", &["table_set/"]),
    ("merge", &["merge/"]),
    ("versions", &["versions/"]),
    ("transaction", &["transaction/"]),
    ("compaction", &["compaction/"]),
    ("locator", &["locator/"]),
    ("front", &["front/"]),
    ("layout", &["layout/"]),
    ("fast_cache", &["fast_cache/"]),
    ("read", &["read/"]),
    ("requests", &["requests/"]),
    ("engine", &["engine/"]),
    ("repair", &["repair/"]),
    ("db", &["db.rs", "builder.rs", "db/"]),
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

/// The choices at the seams, each with the one file that may name its variants: everywhere else an
/// operation of the enum is called, so that another choice adds one arm to each.
const SEAMS: [(&str, &str); 4] = [
    ("Layout", "layout/mod.rs"),
    ("Front", "front/mod.rs"),
    ("Locator", "locator/mod.rs"),
    ("Generation", "generations/mod.rs"),
];

/// Choosers and rules: data in, decision out. They know none of the [`IMPURE`] names, so that a
/// test of them is a script.
const PURE: [&str; 8] = [
    "layout/hybrid/rules/",
    "compaction/leveled.rs",
    "compaction/reclaim.rs",
    "compaction/selection.rs",
    "compaction/selective.rs",
    "compaction/targets.rs",
    "compaction/view.rs",
    "requests/schedule.rs",
];

/// The folders of `layout/hybrid`, in order: a file of one imports only those before it.
const HYBRID: &str = "layout/hybrid/";
const HYBRID_FOLDERS: [&str; 6] =
    ["rules/", "records/", "space/", "feedback/", "copies/", "demotion/"];

/// Locks, atomics, clocks, files.
const IMPURE: [&str; 8] =
    ["Mutex", "RwLock", "Condvar", "Atomic", "atomic", "Clock", "TieredFiles", "std::fs"];

/// Lines of a file of the engine at most, tests included.
const LINES_MAX: usize = 500;

/// Arrows that still point the wrong way: a file, and the room that it must not know.
const WRONG: &[(&str, &str)] = &[];

/// Circles of files that are still there: an arrow of each. The list may only shrink.
const ROUND: &[(&str, &str)] = &[];

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
    /// Lines of each file, tests included.
    lines: BTreeMap<String, usize>,
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
        self.lines.insert(file.to_owned(), text.lines().count());
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

    /// Findings about folders of `layout/hybrid` that import later ones, or have no place in the
    /// order.
    fn hybrid_folders(&self) -> Vec<Finding> {
        let folder = |file: &str| {
            let below = file.strip_prefix(HYBRID)?;
            HYBRID_FOLDERS.iter().position(|folder| below.starts_with(folder))
        };
        let place = |file: &str| Path::new(SOURCES).join(file);
        let mut findings = Vec::new();
        for (file, text) in self.texts.iter().filter(|(file, _)| !is_outside(file)) {
            let Some(from) = folder(file) else {
                if file.strip_prefix(HYBRID).is_some_and(|below| below.contains('/')) {
                    let text = "its folder has no place in HYBRID_FOLDERS of \
                                xtask/src/tidy/rooms.rs: give it one";
                    findings.push(Finding::new(&place(file), 1, text));
                }
                continue;
            };
            for (line, segments) in paths_in(file, text) {
                let Some(target) = self.file_of(&segments) else { continue };
                if folder(&target).is_some_and(|to| to > from) {
                    let text =
                        format!("a file of {} must not import {target}", HYBRID_FOLDERS[from]);
                    findings.push(Finding::new(&place(file), line, text));
                }
            }
        }
        findings
    }

    /// Findings about files that are too long.
    fn long_files(&self) -> Vec<Finding> {
        let long = self.lines.iter().filter(|(_, lines)| **lines > LINES_MAX);
        let finding = |(file, lines): (&String, &usize)| {
            let text = format!(
                "{lines} lines; a file of the engine has {LINES_MAX} at most: split it by what its \
                 parts do, or move its tests to a file of their own"
            );
            Finding::new(&Path::new(SOURCES).join(file), 1, text)
        };
        long.map(finding).collect()
    }

    /// Findings about choosers and rules that know a lock, an atomic, a clock or a file.
    fn impure(&self) -> Vec<Finding> {
        let is_pure = |file: &str| PURE.iter().any(|place| file.starts_with(place));
        let mut findings = Vec::new();
        for (file, text) in self.texts.iter().filter(|(file, _)| is_pure(file)) {
            for (at, line) in text.lines().enumerate() {
                for name in IMPURE.iter().filter(|name| line.contains(*name)) {
                    let text = format!(
                        "a rule or chooser knows `{name}`: give it what it asks for as data, and \
                         keep locks, atomics, clocks and files with its caller"
                    );
                    findings.push(Finding::new(&Path::new(SOURCES).join(file), at + 1, text));
                }
            }
        }
        findings
    }

    /// Findings about variants of a seam's enum that are named outside its file.
    fn named_variants(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (file, text) in self.texts.iter().filter(|(file, _)| !is_outside(file)) {
            for (seam, home) in SEAMS.iter().filter(|(_, home)| file != home) {
                let start = format!("{seam}::");
                for (at, _) in text.match_indices(&start) {
                    let before = text[..at].chars().next_back();
                    let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    let next = text[at + start.len()..].chars().next();
                    if !is_word && next.is_some_and(char::is_uppercase) {
                        let line = 1 + text[..at].matches('\n').count();
                        let text = format!(
                            "names a variant of `{seam}`: only {home} may; call an operation of \
                             the enum"
                        );
                        findings.push(Finding::new(&Path::new(SOURCES).join(file), line, text));
                    }
                }
            }
        }
        findings
    }

    /// Findings about circles of files inside a room. A folder's `mod.rs` names what is in the
    /// folder, so arrows to the `mod.rs` of a folder that the file is in do not count.
    fn circles(&self, known: &[(&str, &str)]) -> Vec<Finding> {
        let mut next: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (file, text) in self.texts.iter().filter(|(file, _)| !is_outside(file)) {
            for (_, segments) in paths_in(file, text) {
                let Some(target) = self.file_of(&segments) else { continue };
                let is_above =
                    target.strip_suffix("mod.rs").is_some_and(|dir| file.starts_with(dir));
                let is_same_room = room_of(&target) == room_of(file) && !is_outside(&target);
                if target != *file && is_same_room && !is_above {
                    next.entry(file).or_default().insert(target);
                }
            }
        }
        let reaches = |from: &str, to: &str| {
            let (mut seen, mut waiting) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(file) = waiting.pop() {
                for target in next.get(file.as_str()).into_iter().flatten() {
                    if target == to {
                        return true;
                    }
                    if seen.insert(target.clone()) {
                        waiting.push(target.clone());
                    }
                }
            }
            false
        };
        let (mut findings, mut met) = (Vec::new(), BTreeSet::new());
        for (file, targets) in &next {
            for target in targets.iter().filter(|target| reaches(target, file)) {
                if known.contains(&(*file, target.as_str())) {
                    met.insert((*file, target.as_str()));
                    continue;
                }
                let text = format!("{target}, which it imports, leads back to it: a circle");
                findings.push(Finding::new(&Path::new(SOURCES).join(file), 1, text));
            }
        }
        for (file, target) in known.iter().filter(|arrow| !met.contains(*arrow)) {
            let text = format!(
                "{target} does not lead back to it any more: take the arrow off the list ROUND in \
                 xtask/src/tidy/rooms.rs"
            );
            findings.push(Finding::new(&Path::new(SOURCES).join(file), 1, text));
        }
        findings
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
    let findings = [
        sources.findings(WRONG),
        sources.hybrid_folders(),
        sources.named_variants(),
        sources.impure(),
        sources.long_files(),
        sources.circles(ROUND),
    ];
    Ok(findings.concat())
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
    text += &format!("{} arrows are still part of a circle of files\n", ROUND.len());
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
    fn a_folder_of_hybrid_that_imports_a_later_one_or_is_not_listed_is_found() {
        let text = "use crate::layout::hybrid::demotion::job::Demotion;\n";
        let files = [
            ("layout/hybrid/demotion/job.rs", "use crate::layout::hybrid::space::room::Room;\n"),
            ("layout/hybrid/space/room.rs", text),
            ("layout/hybrid/plan.rs", text),
            ("layout/hybrid/other/mod.rs", ""),
        ];
        let found = sources(&files).hybrid_folders();
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("other/mod.rs:1: its folder has no place"), "{found:?}");
        let wrong = "space/room.rs:1: a file of space/ must not import layout/hybrid/demotion/job";
        assert!(found[1].contains(wrong), "{found:?}");
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
    fn a_variant_of_a_seam_is_named_in_its_own_file_only() {
        let named = "fn f() { Layout::Leveled(1) }\n";
        let home = [("layout/mod.rs", named), ("engine/mod.rs", "Layout::new(); MyLayout::A\n")];
        assert!(sources(&home).named_variants().is_empty());
        let found = sources(&[("engine/mod.rs", named)]).named_variants();
        assert!(
            found[0].to_string().contains("mod.rs:1: names a variant of `Layout`"),
            "{found:?}"
        );
    }

    #[test]
    fn a_rule_that_knows_a_lock_a_clock_or_a_file_is_found() {
        let rule = "layout/hybrid/rules/memory.rs";
        for impure in ["use thermocline_foundation::sync::Mutex;\n", "fn f(c: &dyn Clock) {}\n"] {
            let found = sources(&[(rule, impure)]).impure();
            assert!(found[0].to_string().contains("memory.rs:1: a rule or chooser"), "{found:?}");
            assert!(sources(&[("layout/hybrid/space/room.rs", impure)]).impure().is_empty());
        }
        assert!(
            sources(&[(rule, "/// Clock bits, under a Mutex.\nfn f() {}\n")]).impure().is_empty()
        );
    }

    #[test]
    fn a_file_of_more_than_500_lines_is_found_with_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(500));
        let files = [("jobs/mod.rs", &tests[..]), ("batch.rs", "")];
        let found = sources(&files).long_files();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().contains("503 lines"), "{found:?}");
    }

    #[test]
    fn a_circle_of_files_in_a_room_is_found_but_for_the_mod_of_a_folder() {
        let files = [
            ("layout/mod.rs", "use a::b::B;\n"),
            ("layout/a/mod.rs", "use crate::layout::a::b::B;\n"),
            ("layout/a/b.rs", "use crate::layout::Layout;\nuse super::c::C;\n"),
            ("layout/a/c.rs", "use crate::layout::d::D;\n"),
            ("layout/d.rs", ""),
        ];
        assert!(sources(&files).circles(&[]).is_empty());
        let round = [&files[..4], &[("layout/d.rs", "use super::a::b::B;\n")]].concat();
        let found = sources(&round).circles(&[]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].to_string().contains("layout/a/c.rs, which it imports"), "{found:?}");
        let known = [("layout/a/b.rs", "layout/a/c.rs")];
        assert_eq!(sources(&round).circles(&known).len(), 2);
        assert_eq!(sources(&files).circles(&known).len(), 1, "the list may only shrink");
    }

    #[test]
    fn a_file_without_a_room_is_found() {
        let found = texts(&sources(&[("attic.rs", "")]), &[]);
        assert!(found[0].contains("belongs to no room"), "{found:?}");
    }
}
