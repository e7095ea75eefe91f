//! Runs the binary under test in a directory of its own.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::{fs, io::Write};
use tempfile::TempDir;

/// A temporary directory in which commands run.
pub struct Scratch {
    home: TempDir,
}

/// Bytes that must be text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[allow(dead_code, clippy::disallowed_methods, reason = "each test file uses a part; tests may")]
impl Scratch {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file, and the directories above it.
    pub fn file(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// A file of zeros that takes no space.
    pub fn sparse(&self, name: &str, len: u64) {
        fs::File::create(self.path(name)).unwrap().set_len(len).unwrap();
    }

    /// Files of a directory whose names end so.
    pub fn names(&self, directory: &str, ending: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let wanted = names.filter(|name| name.ends_with(ending));
        wanted.map(|name| format!("{directory}/{name}")).collect()
    }

    pub fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        command.args(arguments).current_dir(self.home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a command, all its streams being pipes.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A command that fails early does not read its input.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn ok_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run(arguments, input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {:?}: {stderr}", output.status);
        output.stdout
    }

    /// As [`Scratch::ok_with`], without input.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Vec<u8> {
        self.ok_with(arguments, b"")
    }

    /// The one line of standard error of a command that must fail with `status`.
    #[track_caller]
    pub fn fails_with(&self, arguments: &[&str], input: &[u8], status: i32) -> String {
        let output = self.run(arguments, input);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {stderr}");
        let lines: Vec<&str> = stderr.lines().collect();
        let line = lines.last().copied().unwrap_or_default();
        assert!(lines.len() == 1 && line.starts_with("thermocline: "), "{arguments:?}: {stderr}");
        line.to_owned()
    }

    /// As [`Scratch::fails_with`], without input.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str], status: i32) -> String {
        self.fails_with(arguments, b"", status)
    }
}
