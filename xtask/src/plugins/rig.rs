//! Two directories as tiers, and a host's tools run over them with and without the plugin.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long one program may run.
const SECONDS_MAX: &str = "300";

pub struct Rig {
    pub plugins: PathBuf,
    pub folder: PathBuf,
    pub kills: u32,
}

/// Records of a database, as a tool printed them.
#[derive(Debug, PartialEq, Eq)]
pub struct Records {
    pub count: usize,
    pub hash: u64,
}

/// Where the files of a database lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spread {
    pub linked_tables: usize,
    pub plain_tables: usize,
    pub linked_logs: usize,
    /// Links that lead nowhere, by name.
    pub dangling: Vec<String>,
}

impl Rig {
    pub fn new(plugins: &Path, check: &str, kills: u32) -> Self {
        let folder = plugins.join("test").join(check.replace(' ', "-"));
        Self { plugins: plugins.to_path_buf(), folder, kills }
    }

    /// Empty directories; the database's own is made by its host.
    pub fn begin(&self) -> Result<(), String> {
        let shown = self.folder.display();
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).map_err(|error| format!("{shown}: {error}"))?;
        }
        fs::create_dir_all(self.fast()).map_err(|error| format!("{shown}: {error}"))
    }

    pub fn fast(&self) -> PathBuf {
        self.folder.join("fast")
    }

    pub fn db(&self) -> PathBuf {
        self.folder.join("db")
    }

    pub fn uri(&self) -> String {
        self.uri_with("64MiB")
    }

    /// With another capacity for the fast tier.
    pub fn uri_with(&self, capacity: &str) -> String {
        format!("thermocline://?tier={}:{capacity}&tier=home:10GiB", self.fast().display())
    }

    pub fn shim(&self) -> PathBuf {
        super::build::shim(&self.plugins)
    }

    /// A tool with its database, as it is installed.
    pub fn plain(&self, tool: &str, arguments: &[&str]) -> Command {
        at(&self.db(), tool, arguments)
    }

    /// The same over the tiers.
    pub fn tiered(&self, tool: &str, arguments: &[&str]) -> Command {
        self.over(&self.uri(), tool, arguments)
    }

    /// The same over the tiers of a URI.
    pub fn over(&self, uri: &str, tool: &str, arguments: &[&str]) -> Command {
        let mut command = self.plain(tool, arguments);
        command.env("LD_PRELOAD", self.shim()).arg(format!("--fs_uri={uri}"));
        command
    }

    /// `sst_dump` over all tables, with the plugin or without.
    pub fn sst_dump(&self, is_tiered: bool, command: &str) -> Command {
        let mut dump = limited("sst_dump");
        dump.arg(format!("--file={}", self.db().display())).arg(format!("--command={command}"));
        if is_tiered {
            dump.env("LD_PRELOAD", self.shim()).arg(format!("--fs_uri={}", self.uri()));
        }
        dump
    }

    /// A figure of the last line of figures in the database's log.
    pub fn figure(&self, name: &str) -> Result<u64, String> {
        let path = self.db().join("LOG");
        let log = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let log = String::from_utf8_lossy(&log);
        let line = log.lines().rfind(|line| line.contains("[thermocline] "));
        let number = line.and_then(|line| {
            let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
            rest.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
        });
        number.ok_or_else(|| format!("{} has no figure {name}: {line:?}", path.display()))
    }

    pub fn spread(&self) -> Result<Spread, String> {
        let db = self.db();
        let entries = fs::read_dir(&db).map_err(|error| format!("{}: {error}", db.display()))?;
        let mut spread = Spread::default();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_link = entry.path().is_symlink();
            match name.rsplit_once('.').map(|(_, end)| end) {
                Some("sst" | "ldb") if is_link => spread.linked_tables += 1,
                Some("sst" | "ldb") => spread.plain_tables += 1,
                Some("log") if is_link => spread.linked_logs += 1,
                _ => {}
            }
            if is_link && !entry.path().exists() {
                spread.dangling.push(name);
            }
        }
        Ok(spread)
    }
}

/// A program, which ends in time.
pub fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", SECONDS_MAX]).arg(program);
    command
}

/// A tool with a database, as it is installed.
pub fn at(db: &Path, tool: &str, arguments: &[&str]) -> Command {
    let mut command = limited(tool);
    command.arg(format!("--db={}", db.display())).args(arguments);
    command
}

/// Runs to the end; what it printed, or what it said last where it failed.
pub fn output_of(mut command: Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("cannot start {shown}: {error}"))?;
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            Err(format!("{shown} ended with {}:\n{last}", output.status))
        }
    }
}

/// All records of a database, by `ldb scan`.
pub fn scan(mut command: Command) -> Result<Records, String> {
    let shown = format!("{command:?}");
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut child =
        command.args(["--hex", "scan"]).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut records = Records { count: 0, hash: 0 };
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 1 << 16];
    if let Some(mut printed) = child.stdout.take() {
        loop {
            let len = printed.read(&mut piece).map_err(failed)?;
            if len == 0 {
                break;
            }
            records.count += piece[..len].iter().filter(|byte| **byte == b'\n').count();
            hasher.write(&piece[..len]);
        }
    }
    let status = child.wait().map_err(failed)?;
    records.hash = hasher.finish();
    match status.success() {
        true => Ok(records),
        false => Err(format!("{shown} ended with {status}")),
    }
}
