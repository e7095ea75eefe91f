//! Rules about the inside of a Rust file.
//!
//! 1. Lines have 100 columns at most.
//! 2. The file begins with a `//!` header.
//! 3. At most 600 lines that are not tests, or a header line `//! Long because: reason`.
//! 4. Functions have 70 lines at most, tests included.
//! 5. No `unwrap()` outside tests; no `todo!`, `unimplemented!` or `dbg!` anywhere.
//! 6. `unsafe` only in the fenced folders; the roots of other crates forbid it.
//! 7. Libraries name no place of a particular machine.
//! 8. The engine and what it stands on take locks, atomics and threads from `foundation::sync` and
//!    `foundation::threads`, or their schedules could not be checked. Drivers may keep a static.

use super::Finding;
use super::lexer::code_only;
use std::path::Path;

/// Longest line, in characters.
pub const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Where `unsafe` may be written (STYLE.md, rule 8).
const UNSAFE_FOLDERS: [&str; 5] = [
    "crates/allocator",
    "crates/device/src/drivers",
    "crates/pmem/src/persist",
    "crates/capi",
    "rivals/src/foreign",
];

/// Crates that hold such a folder, whose roots therefore cannot forbid it altogether.
const UNSAFE_CRATES: [&str; 5] =
    ["crates/allocator", "crates/device", "crates/pmem", "crates/capi", "rivals"];

/// All findings in one file.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let in_tests = test_lines(path, &code);
    let mut findings = Vec::new();
    for (line, text) in numbered(text) {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX {
            let text = format!("{columns} columns; the limit is {COLUMNS_MAX}");
            findings.push(Finding::new(path, line, text));
        }
    }
    findings.extend(header(path, text));
    findings.extend(length(path, text, &in_tests));
    for (line, length) in functions(&code) {
        if length > FUNCTION_LINES_MAX {
            let text = format!("a function of {length} lines; the limit is {FUNCTION_LINES_MAX}");
            findings.push(Finding::new(path, line, text));
        }
    }
    findings.extend(words(path, &code, &in_tests));
    findings.extend(fence(path, text, &code));
    findings.extend(machine_paths(path, text, &in_tests));
    findings.extend(shared(path, &code));
    findings
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn header(path: &Path, text: &str) -> Option<Finding> {
    let starts = text.trim_start().starts_with("//! ");
    (!starts).then(|| Finding::new(path, 1, "no `//!` header that says what this file is"))
}

fn length(path: &Path, text: &str, in_tests: &[bool]) -> Option<Finding> {
    let lines = in_tests.iter().filter(|test| !**test).count();
    let excused = text.lines().any(|line| {
        line.strip_prefix("//! Long because: ").is_some_and(|reason| !reason.trim().is_empty())
    });
    (lines > FILE_LINES_MAX && !excused).then(|| {
        let text = format!(
            "{lines} lines without tests; the limit is {FILE_LINES_MAX}: split the file, or say \
             why not in a header line `//! Long because: ...`"
        );
        Finding::new(path, 1, text)
    })
}

/// Which lines are tests: all of a file under `tests/` or `benches/`, and `#[cfg(test)]` modules.
fn test_lines(path: &Path, code: &str) -> Vec<bool> {
    let lines: Vec<&str> = code.lines().collect();
    let whole = path.iter().any(|part| part == "tests" || part == "benches")
        || path.file_name().is_some_and(|name| name == "tests.rs");
    let mut marks = vec![whole; lines.len()];
    let mut index = 0;
    while index < lines.len() {
        if lines[index].trim().starts_with("#[cfg(test)]") {
            let start = index;
            let mut depth = 0isize;
            while index < lines.len() {
                let opens = lines[index].matches('{').count() as isize;
                depth += opens - lines[index].matches('}').count() as isize;
                let closed =
                    depth <= 0 && (opens > 0 || lines[index].trim_end().ends_with(['}', ';']));
                if closed {
                    break;
                }
                index += 1;
            }
            let end = (index + 1).min(lines.len());
            marks[start..end].fill(true);
        }
        index += 1;
    }
    marks
}

/// Line and length in lines of each function with a body.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for start in word_positions(code, "fn") {
        // `fn(u8)` is a type; a function has a name.
        let named =
            code[start + 2..].trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_');
        let Some(open) = body_start(bytes, start).filter(|_| named) else {
            continue;
        };
        let mut depth = 0usize;
        let close = bytes[open..].iter().position(|byte| {
            depth += usize::from(*byte == b'{');
            depth -= usize::from(*byte == b'}');
            depth == 0
        });
        let end = close.map_or(bytes.len(), |length| open + length);
        let line = 1 + code[..start].matches('\n').count();
        found.push((line, 1 + code[start..end].matches('\n').count()));
    }
    found
}

/// The opening brace of the function whose `fn` is at `start`; none for a bare declaration.
fn body_start(bytes: &[u8], start: usize) -> Option<usize> {
    let mut nested = 0isize;
    for (index, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested -= 1,
            b'{' if nested == 0 => return Some(index),
            b';' if nested == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Byte positions of `word` as a whole word.
fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part)
    })
}

fn words(path: &Path, code: &str, in_tests: &[bool]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in numbered(code) {
        if text.contains(".unwrap()") && !in_tests[line - 1] {
            let text = "unwrap(): return the error, or `expect` with the invariant as the reason";
            findings.push(Finding::new(path, line, text));
        }
        for name in ["todo", "unimplemented", "dbg"] {
            let called = |at: usize| text[at + name.len()..].starts_with('!');
            if word_positions(text, name).any(called) {
                findings.push(Finding::new(path, line, format!("{name}! is not finished work")));
            }
        }
    }
    findings
}

fn fence(path: &Path, text: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        for (line, text) in numbered(code) {
            if word_positions(text, "unsafe").next().is_some() {
                let text = format!("`unsafe` outside {}", UNSAFE_FOLDERS.join(", "));
                findings.push(Finding::new(path, line, text));
            }
        }
    }
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    let fenced = UNSAFE_CRATES.iter().any(|member| path.starts_with(member));
    if is_root && !fenced && !text.contains("#![forbid(unsafe_code)]") {
        findings.push(Finding::new(path, 1, "the crate's root lacks #![forbid(unsafe_code)]"));
    }
    findings
}

fn machine_paths(path: &Path, text: &str, in_tests: &[bool]) -> Vec<Finding> {
    if !path.starts_with("crates") {
        return Vec::new();
    }
    numbered(text)
        .filter(|(line, text)| {
            !in_tests[line - 1] && ["/home/", "/root/"].iter().any(|place| text.contains(place))
        })
        .map(|(line, _)| Finding::new(path, line, "a place of one particular machine"))
        .collect()
}

/// Where everything that threads share goes through the door, tests in the sources included.
const SCHEDULED_FOLDERS: [&str; 8] = [
    "crates/device/src",
    "crates/log/src",
    "crates/pmem/src",
    "crates/table/src",
    "crates/slab/src",
    "crates/popularity/src",
    "crates/index/src",
    "crates/engine/src",
];

/// The ways around that door. `Arc` and `Weak` are the same behind it.
const UNSCHEDULED: [&str; 12] = [
    "parking_lot::",
    "arc_swap::",
    "std::thread::",
    "std::sync::atomic",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::OnceLock",
    "std::sync::LazyLock",
    "std::sync::Barrier",
    "std::sync::mpsc",
    "std::sync::{",
];

fn shared(path: &Path, code: &str) -> Vec<Finding> {
    let drivers = path.starts_with("crates/device/src/drivers");
    if drivers || !SCHEDULED_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let around = |text: &str| {
        UNSCHEDULED
            .into_iter()
            .find(|name| text.contains(name) && !text.contains("std::sync::{Arc, Weak}"))
    };
    numbered(code)
        .filter_map(|(line, text)| Some((line, around(text)?)))
        .map(|(line, name)| {
            let text = format!("{name} goes around foundation::sync and foundation::threads");
            Finding::new(path, line, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(Path::new(path), text).iter().map(Finding::to_string).collect()
    }

    #[track_caller]
    fn assert_finds(path: &str, text: &str, expected: &str) {
        let found = findings(path, text);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected} in {found:?}");
    }

    const FILE: &str = "crates/table/src/block.rs";

    #[test]
    fn a_clean_file_has_no_findings() {
        let text = "//! What it is.\n\nfn f() {\n    \"unsafe unwrap() todo!\";\n}\n";
        assert_eq!(findings(FILE, text), Vec::<String>::new());
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_one_of_100_is_not() {
        assert_finds(FILE, &format!("//! {}\n", "é".repeat(97)), ":1: 101 columns");
        assert_eq!(findings(FILE, &format!("//! {}\n", "é".repeat(96))).len(), 0);
    }

    #[test]
    fn a_missing_header_is_found() {
        assert_finds(FILE, "// Just a comment.\nfn f() {}\n", ":1: no `//!` header");
    }

    #[test]
    fn a_long_file_is_found_unless_it_says_why_or_is_tests() {
        let lines = "const A: u8 = 1;\n".repeat(600);
        assert_finds(FILE, &format!("//! Header.\n{lines}"), "601 lines without tests");
        let excused = format!("//! Header.\n//! Long because: one table.\n{lines}");
        assert_eq!(findings(FILE, &excused).len(), 0);
        assert_finds(FILE, &format!("//! Header.\n//! Long because: \n{lines}"), "602 lines");
        let tests = format!("//! Header.\n#[cfg(test)]\nmod tests {{\n{lines}}}\n");
        assert_eq!(findings(FILE, &tests).len(), 0);
        let after = format!("{tests}{lines}");
        assert_finds(FILE, &after, "601 lines without tests");
    }

    #[test]
    fn a_long_function_is_found_with_its_line() {
        let body = |lines: usize| {
            format!(
                "//! Header.\nfn f(a: [u8; 2]) -> fn(u8) {{\n{}}}\n",
                "    g();\n".repeat(lines)
            )
        };
        assert_finds(FILE, &body(69), ":2: a function of 71 lines");
        assert_eq!(findings(FILE, &body(68)).len(), 0);
    }

    #[test]
    fn unfinished_work_is_found_and_unwrap_is_left_to_tests() {
        assert_finds(FILE, "//! H.\nfn f() { a().unwrap() }\n", ":2: unwrap()");
        assert_finds(FILE, "//! H.\nfn f() { todo!() }\n", ":2: todo!");
        let tests = "//! H.\n#[cfg(test)]\nmod tests {\n    fn f() { a().unwrap() }\n}\n";
        assert_eq!(findings(FILE, tests).len(), 0);
        assert_finds(FILE, &tests.replace("a().unwrap()", "dbg!(1)"), ":4: dbg!");
        assert_finds("crates/a/tests/b.rs", "//! H.\nfn f() { dbg!(1) }\n", ":2: dbg!");
    }

    #[test]
    fn unsafe_outside_its_fence_is_found() {
        let text = "//! H.\nfn f() { unsafe { g() } }\n";
        assert_finds(FILE, text, ":2: `unsafe` outside");
        assert_eq!(findings("crates/device/src/drivers/direct.rs", text).len(), 0);
        assert_finds("crates/device/src/tier.rs", text, ":2: `unsafe` outside");
        assert_finds("crates/table/src/lib.rs", "//! H.\n", "lacks #![forbid(unsafe_code)]");
    }

    #[test]
    fn places_of_one_machine_are_found_in_libraries() {
        let text = format!("//! H.\nconst HOME: &str = \"/{}/me\";\n", "home");
        assert_finds(FILE, &text, ":2: a place of one particular machine");
    }

    #[test]
    fn what_threads_share_comes_through_its_door() {
        for line in [
            "use parking_lot::Mutex;",
            "use std::sync::atomic::AtomicU64;",
            "use std::sync::{Arc, OnceLock};",
            "fn f() { std::thread::scope(|_| ()) }",
        ] {
            let text = format!("//! H.\n{line}\n");
            assert_finds(FILE, &text, ":2: ");
            assert_eq!(findings("crates/device/src/drivers/ring.rs", &text).len(), 0);
            assert_eq!(findings("crates/table/tests/model.rs", &text).len(), 0);
        }
        let through =
            "//! H.\nuse std::sync::{Arc, Weak};\nuse thermocline_foundation::sync::Mutex;\n";
        assert_eq!(findings(FILE, through).len(), 0);
    }
}
