//! The headers are what cbindgen writes from the sources, and the interface only grows.
//! `THERMOCLINE_BLESS=1 cargo test -p thermocline-capi --test header` writes all files anew,
//! unless something is gone that programs have been compiled with.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of committed files reads and writes them, and stops at the first surprise"
)]

use std::path::{Path, PathBuf};

/// A header: its name, how it is written, and the files of the sources that C sees, in its order.
struct Header {
    name: &'static str,
    config: &'static str,
    sources: &'static [&'static str],
    golden: &'static str,
    functions_min: usize,
}

const HEADERS: [Header; 2] = [
    Header {
        name: "thermocline.h",
        config: "cbindgen.toml",
        sources: &[
            "abi.rs",
            "status.rs",
            "memory.rs",
            "engine/db.rs",
            "engine/batch.rs",
            "engine/snapshot.rs",
            "engine/scan.rs",
        ],
        golden: "abi-1.txt",
        functions_min: 20,
    },
    Header {
        name: "thermocline_tiers.h",
        config: "cbindgen_tiers.toml",
        sources: &["tiers/directories.rs", "tiers/files.rs", "tiers/entries.rs"],
        golden: "abi-tiers-1.txt",
        functions_min: 20,
    },
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_blessed() -> bool {
    std::env::var_os("THERMOCLINE_BLESS").is_some()
}

impl Header {
    /// As cbindgen writes it now.
    fn written(&self) -> String {
        let config = cbindgen::Config::from_file(folder().join(self.config)).unwrap();
        let sources = self.sources.iter().map(|file| folder().join("src").join(file));
        let builder = cbindgen::Builder::new().with_config(config);
        let builder = sources.fold(builder, |builder, file| builder.with_src(file));
        let mut text = Vec::new();
        builder.generate().unwrap().write(&mut text);
        String::from_utf8(text).unwrap()
    }

    fn golden_file(&self) -> PathBuf {
        folder().join("tests/golden").join(self.golden)
    }
}

/// The committed file at `path`, which must be `now`; blessed, it becomes that.
fn require_same(path: &Path, now: &str) {
    if is_blessed() {
        std::fs::write(path, now).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let differs = committed.lines().zip(now.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(committed.lines().count().min(now.lines().count())) + 1;
    let (name, bless) = (path.display(), "THERMOCLINE_BLESS=1 writes it anew");
    assert!(committed == now, "{name} is not what the sources say, from line {line} on; {bless}");
}

/// What a program is compiled with: a line for each declaration, member of a struct, number.
fn declarations(header: &str) -> Vec<String> {
    let bare = header.lines().map(|line| line.split("//").next().unwrap_or("").trim());
    let numbers = bare.clone().filter_map(|line| line.strip_prefix("#define "));
    let mut lines: Vec<String> = numbers.filter(|it| it.contains(' ')).map(str::to_owned).collect();
    let is_code = |line: &&str| !line.starts_with('#') && !["extern \"C\" {", "}"].contains(line);
    // The struct or enum that a member is of, and what has been read since the last end.
    let (mut of, mut part) = (None, String::new());
    for c in bare.filter(is_code).flat_map(|line| line.chars().chain([' '])) {
        match (c, &of) {
            ('{', _) => of = Some(std::mem::take(&mut part)),
            (';', None) => lines.push(std::mem::take(&mut part)),
            (',' | ';', Some(of)) => lines.push(format!("{of}: {}", std::mem::take(&mut part))),
            ('}', _) => of = None,
            (c, _) if part.is_empty() && c == ' ' => {}
            (c, _) => part.push(c),
        }
    }
    lines
}

#[test]
fn the_golden_headers_are_what_the_sources_say() {
    for header in HEADERS {
        require_same(&folder().join("include").join(header.name), &header.written());
    }
}

#[test]
fn every_function_has_its_page_in_the_golden_headers() {
    for header in HEADERS {
        let text = header.written();
        let mut before = "";
        let mut functions = 0;
        for line in text.lines() {
            let is_function =
                line.contains("thermocline_") && line.contains('(') && !line.starts_with("//");
            let begins = is_function && !line.starts_with(' ');
            assert!(!begins || before.starts_with("// "), "no text above: {line}");
            functions += usize::from(begins);
            before = line;
        }
        assert!(functions >= header.functions_min, "{}: {functions} functions", header.name);
    }
}

#[test]
fn the_golden_interface_only_grows() {
    for header in HEADERS {
        let now = declarations(&header.written());
        let committed = std::fs::read_to_string(header.golden_file()).unwrap_or_default();
        let gone: Vec<_> =
            committed.lines().filter(|line| !now.iter().any(|it| it == line)).collect();
        assert!(gone.is_empty(), "programs have been compiled with these, and are gone: {gone:#?}");
        require_same(&header.golden_file(), &(now.join("\n") + "\n"));
    }
}

#[test]
fn declarations_are_told_apart() {
    let header = "#define N 1\n// text; text\ntypedef enum e {\n  A = 0,\n  B = 1,\n} e;\n\
                  int f(int a,\n      int b);\n";
    assert_eq!(
        declarations(header),
        ["N 1", "typedef enum e : A = 0", "typedef enum e : B = 1", "e", "int f(int a, int b)"]
    );
}
