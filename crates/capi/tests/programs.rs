//! C programs, compiled by the system's compiler and run: those of `docs/c.md`, and one for each
//! header that calls every function. Each against the shared library and the archive, and under
//! valgrind where that is installed, else with the compiler's own checks of memory.
//!
//! Cargo gives a test no shared library, so the tests ask it for one, of their own profile. Alone,
//! that is a few seconds. What `cargo test --workspace` has built fits only if all of the workspace
//! is asked for again, because features are united over what is asked for: `cargo xtask test` says
//! by a variable that this is so.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the test writes the programs, prints what it skips, and stops at the first failure"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Seconds after which a program is taken to hang; the slowest needs a twentieth of it.
const PROGRAM_SECONDS_MAX: &str = "600";

/// Set by `cargo xtask test`: what is tested is the whole workspace.
const OF_WORKSPACE: &str = "THERMOCLINE_TESTS_OF_WORKSPACE";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (&output.stdout, &output.stderr);
    let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].join("\n");
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    output
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success())
}

/// Where cargo leaves what it builds with the profile of this test, and the name of the profile.
fn built_in() -> (PathBuf, String) {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    (folder, if name == "debug" { "dev".to_owned() } else { name })
}

/// The folder with `libthermocline.so` and `libthermocline.a`, built of the present sources.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let (built, profile) = built_in();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--profile", &profile]);
        cargo.arg("--target-dir").arg(built.parent().unwrap());
        if std::env::var_os(OF_WORKSPACE).is_some() {
            // Examples bring the features of dev-dependencies along, as tests do.
            cargo.args(["--workspace", "--lib", "--examples"]);
        } else {
            cargo.args(["--package", "thermocline-capi", "--lib"]);
        }
        run(cargo.current_dir(folder()));
        built
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Shared,
    Archive,
}

/// A folder with the libraries under the names that an installation gives them, and the programs.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libthermocline.so", "libthermocline.so.1"] {
            let built = libraries().join("libthermocline.so");
            std::os::unix::fs::symlink(built, folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program `name` of `tests/c`, with its paths below this folder.
    fn source(&self, name: &str) -> PathBuf {
        let text = std::fs::read_to_string(folder().join("tests/c").join(name)).unwrap();
        let source = self.path(name);
        std::fs::write(&source, text.replace("/mnt", self.folder.path().to_str().unwrap()))
            .unwrap();
        source
    }

    /// Compiles the program `name` of `tests/c`.
    fn compile(&self, name: &str, library: Library, flags: &[&str]) -> PathBuf {
        let source = self.source(name);
        let program = self.path(&format!("{name}-{library:?}"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-g"]).args(flags);
        cc.arg("-I").arg(folder().join("include")).arg("-I").arg(folder().join("tests/c"));
        cc.arg(&source).arg("-o").arg(&program);
        match library {
            Library::Shared => {
                let rpath = format!("-Wl,-rpath,{}", self.folder.path().display());
                cc.arg("-L").arg(self.folder.path()).args(["-lthermocline", "-lpthread", &rpath]);
            }
            Library::Archive => {
                cc.arg(libraries().join("libthermocline.a")).args(["-lpthread", "-ldl", "-lm"]);
            }
        }
        run(&mut cc);
        program
    }

    /// Runs a program by `wrapper`, if there is one, and gives what it printed.
    fn run(&self, program: &Path, wrapper: &[&str], arguments: &[&Path]) -> String {
        let mut command = Command::new("timeout");
        command.arg(PROGRAM_SECONDS_MAX).args(wrapper).arg(program).args(arguments);
        // What valgrind can follow; and what its own copy of the library's path would hide.
        command.env("RUST_BACKTRACE", "0").env_remove("LD_LIBRARY_PATH");
        String::from_utf8(run(&mut command).stdout).unwrap()
    }
}

/// The programs of the page, and what they print.
const OF_THE_PAGE: [(&str, &str); 2] =
    [("store.c", "value\nkey\n"), ("tiers.c", "bytes of the host\n")];

#[test]
fn the_programs_of_the_page_run_with_the_shared_library_and_the_archive() {
    for library in [Library::Shared, Library::Archive] {
        for (name, printed) in OF_THE_PAGE {
            let scratch = Scratch::new();
            for tier in ["fast", "slow"] {
                std::fs::create_dir(scratch.path(tier)).unwrap();
            }
            let program = scratch.compile(name, library, &[]);
            for _ in 0..2 {
                assert_eq!(scratch.run(&program, &[], &[]), printed, "{name} {library:?}");
            }
        }
    }
}

#[test]
fn the_page_has_the_programs_that_the_tests_run() {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let page = read(&folder().join("../../docs/c.md"));
    for (name, _) in OF_THE_PAGE {
        let program = read(&folder().join("tests/c").join(name));
        assert!(page.contains(&format!("```c\n{program}```\n")), "docs/c.md has another {name}");
    }
}

#[test]
fn a_program_is_compiled_as_pkg_config_says_from_an_installation() {
    if !is_there("pkg-config") {
        println!("skipped: pkg-config is not there");
        return;
    }
    let scratch = Scratch::new();
    let prefix = scratch.path("a prefix");
    let mut install = Command::new(env!("CARGO"));
    install.args(["run", "--quiet", "--offline", "--package", "xtask", "--target-dir"]);
    install.arg(built_in().0.parent().unwrap()).args(["--", "install-c", "--prefix"]);
    run(install.arg(&prefix).arg("--from").arg(libraries()).current_dir(folder()));

    let source = scratch.source("store.c");
    let program = scratch.path("installed");
    // As a shell would, which takes what is quoted apart.
    let line = "eval cc \"'$1'\" -o \"'$2'\" $(pkg-config --cflags --libs thermocline)";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, "sh"]).arg(&source).arg(&program);
    run(shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let mut command = Command::new("timeout");
    command.arg(PROGRAM_SECONDS_MAX).arg(&program);
    let output = run(command.env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(output.stdout, b"value\nkey\n");
}

const ALL_IS_WELL: &str = "all calls answered as they must\n";

/// The programs that call every function, and the headers that have these.
const EVERY_CALL: [(&str, &str); 2] =
    [("every_call.c", "thermocline.h"), ("every_tiers_call.c", "thermocline_tiers.h")];

#[test]
fn every_call_answers_as_the_header_says() {
    for library in [Library::Shared, Library::Archive] {
        let scratch = Scratch::new();
        for (name, _) in EVERY_CALL {
            let program = scratch.compile(name, library, &[]);
            let directory = scratch.path(&format!("{name}-db"));
            let printed = scratch.run(&program, &[], &[&directory]);
            assert_eq!(printed, ALL_IS_WELL, "{name} {library:?}");
        }
    }
}

#[test]
fn no_call_touches_memory_that_is_not_its_own_or_forgets_some() {
    let scratch = Scratch::new();
    let valgrind = [
        "valgrind",
        "--quiet",
        "--error-exitcode=99",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ];
    let sanitized = ["-fsanitize=address", "-fno-omit-frame-pointer"];
    let (wrapper, flags): (&[&str], &[&str]) = match is_there("valgrind") {
        true => (&valgrind, &[]),
        false if compiles_with(&scratch, &sanitized) => (&[], &sanitized),
        false => {
            println!("skipped: neither valgrind nor -fsanitize=address is there");
            return;
        }
    };
    for (name, _) in EVERY_CALL {
        let program = scratch.compile(name, Library::Shared, flags);
        let directory = scratch.path(&format!("{name}-db"));
        assert_eq!(scratch.run(&program, wrapper, &[&directory]), ALL_IS_WELL, "{name}");
    }
}

/// The compiler has what `flags` ask for, and what it makes runs.
fn compiles_with(scratch: &Scratch, flags: &[&str]) -> bool {
    let (source, program) = (scratch.path("nothing.c"), scratch.path("nothing"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let compiled = Command::new("cc").args(flags).arg(&source).arg("-o").arg(&program).output();
    compiled.is_ok_and(|it| it.status.success())
        && Command::new(&program).output().is_ok_and(|it| it.status.success())
}

#[test]
fn the_headers_are_plain_c_and_cpp() {
    let scratch = Scratch::new();
    let (source, headers) = (scratch.path("both.c"), folder().join("include"));
    let includes = EVERY_CALL.map(|(_, header)| format!("#include <{header}>\n")).concat();
    std::fs::write(&source, includes + "int main(void) { return 0; }\n").unwrap();
    for (compiler, language) in
        [("cc", ["-x", "c", "-std=c99"]), ("c++", ["-x", "c++", "-std=c++11"])]
    {
        if !is_there(compiler) {
            println!("skipped: {compiler} is not there");
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"]);
        run(command.arg(&headers).args(language).arg(&source));
    }
}

/// The functions that a header has.
fn functions(header: &str) -> Vec<String> {
    let header = std::fs::read_to_string(folder().join("include").join(header)).unwrap();
    let lines = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let before_arguments = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names = before_arguments.filter_map(|before| before.split([' ', '*']).next_back());
    let mut names: Vec<_> =
        names.filter(|it| it.starts_with("thermocline_")).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn the_shared_library_has_its_name_and_exports_what_the_headers_have() {
    if !is_there("nm") || !is_there("readelf") {
        println!("skipped: nm and readelf are not there");
        return;
    }
    let library = libraries().join("libthermocline.so");
    let listed = run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&library));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut exported: Vec<_> = listed.lines().filter_map(|it| it.split(' ').next_back()).collect();
    exported.sort_unstable();
    let mut functions: Vec<_> =
        EVERY_CALL.iter().flat_map(|(_, header)| functions(header)).collect();
    functions.sort_unstable();
    assert_eq!(exported, functions);
    let dynamic = run(Command::new("readelf").arg("--dynamic").arg(&library));
    let dynamic = String::from_utf8(dynamic.stdout).unwrap();
    assert!(dynamic.contains("[libthermocline.so.1]"), "{dynamic}");
}

#[test]
fn the_programs_that_call_every_function_leave_none_out() {
    for (name, header) in EVERY_CALL {
        let program = std::fs::read_to_string(folder().join("tests/c").join(name)).unwrap();
        let is_left = |function: &String| !program.contains(&format!("{function}("));
        let left: Vec<_> = functions(header).into_iter().filter(is_left).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
