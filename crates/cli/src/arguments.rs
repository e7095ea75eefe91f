//! The command line: what may be said, and what `--help` teaches.

use crate::failure::{Failure, Result};
use crate::keys::{EXAMPLES as KEY_EXAMPLES, Keys};
use crate::output::Output;
use clap::{Args, Parser, Subcommand, error::ErrorKind};
use std::ffi::OsString;
use std::path::PathBuf;
use thermocline::{CacheCapacity, PersistentMemory, Preset, Tier, WhichTier};
use thermocline_foundation::ByteSize;

const EXAMPLES: &str = "\
Examples:
  thermocline try                                     see it work on this machine's own files
  thermocline load --files /usr/share                 store every file under its path
  thermocline --db /srv/store --tier /mnt/nvme:40GiB --tier /mnt/hdd:2TiB load --tsv dump.tsv
  thermocline --preset leveled --tier /mnt/nvme:40GiB --tier /mnt/hdd:2TiB load --tsv dump.tsv
  apt-cache dumpavail | thermocline load --deb822 -   store a package index
  thermocline get /usr/share/common-licenses/MPL-2.0
  thermocline scan --prefix /usr/share/doc/ --limit 5 --keys-only
  thermocline stats --json";

/// A key-value store for storage that is not all the same speed.
#[derive(Debug, Parser)]
#[command(name = "thermocline", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    pub database: Database,
    /// Print the result as JSON; records as one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do; `try` where nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Which database, and what it is made of where it does not exist yet.
#[derive(Clone, Debug, Args)]
pub struct Database {
    /// The database's directory
    #[arg(long, global = true, value_name = "DIR", default_value = "./thermocline-data")]
    pub db: PathBuf,
    /// A tier of a new database, repeatable, fastest first; or where a moved tier is now
    ///
    /// CAPACITY is how much of the device the store may use (10GiB); DRIVER is posix (the
    /// default), direct, or emulated-PROFILE (emulated-gp3); direct-poll asks a very fast device
    /// for completions.
    #[arg(long, global = true, value_name = "PATH:CAPACITY[:DRIVER]", value_parser = parse_tier)]
    pub tier: Vec<Tier>,
    /// How a database keeps its records: hybrid, leveled or indexed
    ///
    /// hybrid: popular records in slots on the fast tier, the others in sorted tables on the slow
    /// one; the default of a new database with two tiers or more, which it needs. leveled: sorted
    /// tables, the upper levels on the fast tier; the default with one tier. indexed: one level of
    /// tables, and an index of all keys in persistent memory, which --config names. An existing
    /// database goes on with what it has where nothing is said.
    #[arg(long, global = true, value_name = "PRESET", value_parser = parse_preset)]
    pub preset: Option<Preset>,
    /// Settings in TOML, kept by the database; --tier and --preset replace its own
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Open an existing database for reading only: nothing is written, several may read at once
    ///
    /// get, scan, stats, tiers and verify do so by themselves where nothing can be written. With
    /// --tier, --preset or --config these hold for this command alone.
    #[arg(long, global = true)]
    pub read_only: bool,
}

/// A region of persistent memory, as a tier is named.
fn parse_region(text: &str) -> Result<PersistentMemory, String> {
    let is_driver = |word: &str| word == "mapped" || word.starts_with("emulated-");
    let named = text.rsplit_once(':').filter(|(_, word)| is_driver(word));
    let (rest, driver) = named.map_or((text, None), |(rest, driver)| (rest, Some(driver)));
    let (path, size) = rest.rsplit_once(':').ok_or("expected PATH:SIZE[:DRIVER]")?;
    let size = size.parse::<ByteSize>().map_err(|error| error.to_string())?;
    let region = PersistentMemory::new(path, size);
    Ok(driver.into_iter().fold(region, PersistentMemory::driver))
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    Tier::parse(text).map_err(|error| error.to_string())
}

/// A number is a place; a directory that is called so has the path `./N`.
fn parse_which_tier(text: &str) -> Result<WhichTier, String> {
    if text.is_empty() {
        return Err("name a place or a directory".to_owned());
    }
    Ok(match text.parse() {
        Ok(at) if text.bytes().all(|byte| byte.is_ascii_digit()) => WhichTier::Place(at),
        _ => WhichTier::Path(text.into()),
    })
}

fn parse_preset(text: &str) -> Result<Preset, String> {
    match text {
        "leveled" => Ok(Preset::Leveled),
        "hybrid" => Ok(Preset::Hybrid),
        "indexed" => Ok(Preset::Indexed),
        _ => Err("there are leveled, hybrid and indexed".to_owned()),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a two-tier store of real files, use it, reopen it and check every value
    Try(Try),
    /// Store many records: files, tab-separated lines, JSON lines or package indexes
    Load(Load),
    /// Write a key's value to standard output, byte for byte; exit status 1 where there is none
    Get(Get),
    /// Store a value under a key
    Put(Put),
    /// Remove a key; exit status 1 where there is none
    Delete(Delete),
    /// List records in key order
    Scan(Scan),
    /// Show tiers, levels, hit ratios and amplifications on one screen; --all: everything
    Stats(Stats),
    /// Show what lies on each tier and what each has served; or another program's files over tiers
    Tiers(Tiers),
    /// Merge tables until nothing is left to merge
    Compact(Compact),
    /// Make a copy of the database as of now, sharing its files where it can
    Checkpoint(Checkpoint),
    /// Show, empty or resize the cache of slow tiers' blocks on the fast tier
    Cache(Cache),
    /// Measure a device: throughput by number of threads, which placement goes by
    Profile(Profile),
    /// Check every stored byte; exit status 0 only when all is well
    Verify,
    /// Say what is damaged and what that costs; --apply: take it out of use, so that all else works
    Repair(Repair),
}

/// Arguments of `try`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  thermocline try /usr/share/doc --seconds 2")]
pub struct Try {
    /// Where the files come from
    #[arg(value_name = "FILES_DIR", default_value = "/usr/share")]
    pub from: PathBuf,
    /// Load at most this many bytes of files, none of them above 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "256MB")]
    pub bytes: ByteSize,
    /// How long to read, update and scan
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = parse_seconds)]
    pub seconds: f64,
}

impl Default for Try {
    fn default() -> Self {
        let (from, bytes) = (PathBuf::from("/usr/share"), ByteSize(256_000_000));
        Self { from, bytes, seconds: 4.0 }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(after_help = "\
Formats:
  --files   each plain file below DIR; key: its path, value: its content
  --tsv     KEY<TAB>VALUE, one a line; \\t, \\n, \\\\ and \\xNN stand for the bytes themselves
  --jsonl   {\"key\": \"K\", \"value\": \"V\"}, one a line; key_base64, value_base64: any bytes
  --deb822  stanzas with Package and Version; key: Package=Version:Architecture; value: all of it

A load that is interrupted or killed keeps what it has written: the first records, no holes.

Examples:
  thermocline load --files /usr/share
  thermocline load --tsv one.tsv two.tsv
  apt-cache dumpavail | thermocline load --deb822 -
  thermocline scan --json | thermocline --db copy load --jsonl -")]
pub struct Load {
    #[command(flatten)]
    pub format: LoadFormat,
    /// Input files (for --files: directories); - is standard input, which is also the default
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// With --files: leave out what cannot be read or is too large, and say how many
    #[arg(long, requires = "files")]
    pub skip: bool,
    /// Print no progress
    #[arg(long)]
    pub quiet: bool,
}

/// What the input of `load` is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct LoadFormat {
    /// Every plain file below the directories: path -> content
    #[arg(long)]
    pub files: bool,
    /// Lines KEY<TAB>VALUE
    #[arg(long)]
    pub tsv: bool,
    /// Lines {"key": "K", "value": "V"}
    #[arg(long)]
    pub jsonl: bool,
    /// Package index, as from apt-cache dumpavail
    #[arg(long)]
    pub deb822: bool,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  thermocline get motd > motd.txt

{KEY_EXAMPLES}"))]
pub struct Get {
    /// The key, as `scan` prints it
    pub key: OsString,
    #[command(flatten)]
    pub keys: Keys,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  thermocline put greeting hello
  thermocline put motd - < /etc/motd
  thermocline put leader node-3 --if-absent
  thermocline put leader node-4 --expect node-3

A condition that does not hold is exit status 1 with a line that says what the key has, and nothing
is written. It is judged and the value written in one step.

{KEY_EXAMPLES}"))]
pub struct Put {
    /// The key, as `scan` prints it
    pub key: OsString,
    /// The value, byte for byte; - reads it from standard input
    pub value: OsString,
    /// Only if there is no such key
    #[arg(long, group = "condition")]
    pub if_absent: bool,
    /// Only if there is such a key
    #[arg(long, group = "condition")]
    pub if_present: bool,
    /// Only if the key has this value, byte for byte
    #[arg(long, value_name = "VALUE", group = "condition")]
    pub expect: Option<OsString>,
    #[command(flatten)]
    pub keys: Keys,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  thermocline delete greeting

{KEY_EXAMPLES}"))]
pub struct Delete {
    /// The key, as `scan` prints it
    pub key: OsString,
    #[command(flatten)]
    pub keys: Keys,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
A line is KEY<TAB>VALUE with the escapes of `load --tsv`; --json gives lines for `load --jsonl`.
With --key-format the keys of lines are written so too, values as ever.

Examples:
  thermocline scan --prefix /usr/share/doc/ --keys-only
  thermocline scan --from a --to n --limit 10
  thermocline scan --reverse --limit 1

{KEY_EXAMPLES}"))]
pub struct Scan {
    /// First key of the range
    #[arg(long, value_name = "K")]
    pub from: Option<OsString>,
    /// End of the range, exclusive: this key is not part of it
    #[arg(long, value_name = "K")]
    pub to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "P")]
    pub prefix: Option<OsString>,
    /// Largest key first
    #[arg(long)]
    pub reverse: bool,
    /// At most this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print no values
    #[arg(long)]
    pub keys_only: bool,
    #[command(flatten)]
    pub keys: Keys,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Where another process has the database open, `stats` and `tiers` show the figures that it writes
every `stats_interval` (a second, unless set), and say how old they are.

Examples:
  thermocline stats
  thermocline stats --watch
  thermocline stats --json | jq .tiers[0].used_bytes")]
pub struct Stats {
    /// Show every table, not one screen
    #[arg(long)]
    pub all: bool,
    /// Show what the process does that has the database open, again and again until it ends
    #[arg(long, conflicts_with = "all")]
    pub watch: bool,
}

/// Arguments of `tiers`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an action: the tiers of the database that --db names. add, remove and replace change their
list; the database is not open meanwhile. A place is another tier's once one has gone: where a
change was cut off, name the path. The other actions are for a directory of another program
(RocksDB, LevelDB) whose files lie over tiers by links; --db means nothing to them, and --tier says
where each of its tiers is now. No host may write there during export, migrate and rehome.

Examples:
  thermocline tiers --db store
  thermocline tiers --db store add /mnt/nvme/store:40GiB --at 0
  thermocline tiers --db store replace 1 /mnt/new/store
  thermocline tiers --db store remove /mnt/old/store
  thermocline tiers show /var/lib/app/db
  thermocline tiers export /var/lib/app/db
  thermocline tiers export --leave /var/lib/app/db
  thermocline tiers rehome /var/lib/app/db-copy --tier /mnt/nvme/copy:20GiB")]
pub struct Tiers {
    /// What to do with a host's directory
    #[command(subcommand)]
    pub action: Option<TiersAction>,
}

/// What can be done with the tiers of the database, or of a directory of another program.
#[derive(Debug, Subcommand)]
pub enum TiersAction {
    /// Add a tier to the database that --db names, as the slowest or at place N
    Add(TierAdd),
    /// Remove a tier of it; its files go to the others first
    Remove {
        /// Its place, 0 for the fastest, or its directory, as `tiers` shows them
        #[arg(id = "which", value_name = "N|PATH", value_parser = parse_which_tier)]
        tier: WhichTier,
    },
    /// Put a tier of it into another directory, such as one on a new disk
    Replace {
        /// Its place, 0 for the fastest, or its directory, as `tiers` shows them
        #[arg(id = "which", value_name = "N|PATH", value_parser = parse_which_tier)]
        tier: WhichTier,
        /// The new directory, which is made or empty
        #[arg(value_name = "NEW_PATH")]
        path: PathBuf,
    },
    /// List a host's files, where each lies and what it takes
    List(HostDirectory),
    /// Show a host's tiers: how full they are, and what is known of their devices
    Show(HostDirectory),
    /// Bring all files home, so that the directory needs no tiers: for a backup, or to leave
    Export(HostExport),
    /// Move files off tiers of which less than 5 % is free, to the next one with room
    ///
    /// The files with the lowest names go first, which are the oldest tables. What lies on the
    /// wrong tier for its level stays: levels are in the host's own records, and its plugin makes
    /// those moves when the host runs.
    Migrate(HostDirectory),
    /// Give the tiers to this directory, which was moved or is a copy; the other one is refused
    Rehome(HostDirectory),
}

/// Arguments of `tiers add`.
#[derive(Debug, Args)]
pub struct TierAdd {
    /// The tier, as --tier has it; its directory is made or empty
    #[arg(value_name = "PATH:CAPACITY[:DRIVER]", value_parser = parse_tier)]
    pub added: Tier,
    /// Its place, 0 for the fastest; those from there on move down
    #[arg(long, value_name = "N")]
    pub at: Option<usize>,
}

/// Arguments of `tiers export`.
#[derive(Debug, Args)]
pub struct HostExport {
    #[command(flatten)]
    pub host: HostDirectory,
    /// Take the directory off its tiers as well: it is an ordinary one then, and its program may
    /// put it over other tiers
    #[arg(long)]
    pub leave: bool,
}

/// A directory of another program.
#[derive(Debug, Args)]
pub struct HostDirectory {
    /// The directory that the program opens
    pub dir: PathBuf,
}

/// Arguments of `compact`.
#[derive(Debug, Args)]
#[command(after_help = KEY_EXAMPLES)]
pub struct Compact {
    /// First key of the range; the smallest where nothing is said
    #[arg(long, value_name = "K")]
    pub from: Option<OsString>,
    /// Last key of the range, which is part of it; the largest where nothing is said
    #[arg(long, value_name = "K")]
    pub to: Option<OsString>,
    #[command(flatten)]
    pub keys: Keys,
}

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  thermocline checkpoint /backup/monday")]
pub struct Checkpoint {
    /// A directory that does not exist yet, or is empty
    pub dir: PathBuf,
}

/// Arguments of `cache`.
#[derive(Debug, Args)]
#[command(after_help = "\
Copies of blocks that reads come back to lie on the fast tier, beside logs and upper levels. They
stay over a restart, and nothing is lost with them. `fast_cache.capacity` is off unless it is set.

Examples:
  thermocline cache show
  thermocline cache resize 8GiB
  thermocline cache resize auto
  thermocline cache resize 0")]
pub struct Cache {
    /// What to do
    #[command(subcommand)]
    pub action: CacheAction,
}

/// What can be done with the cache.
#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// Show its size, and what it does while another process has the database open
    Show,
    /// Delete all copies
    Clear,
    /// Let it take so much of the fast tier, 0 for nothing; kept in the database's settings
    Resize {
        /// 1MiB to 2TiB, half of the tier at most; auto, what the levels leave; or 0
        size: CacheCapacity,
    },
}

/// Arguments of `repair`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing changes without --apply; exit status 1 then where something is damaged. With it damaged
pieces are kept in `lost` of their tier, and all that can be read stays. A repair that is cut off is
begun again. What was lost comes back from a checkpoint alone.

Examples:
  thermocline --db store repair
  thermocline --db store repair --apply
  thermocline --db store verify
  thermocline --db store repair --rebuild-manifest
  thermocline --db store repair --skip-unreadable
  thermocline --db store repair --rebuild-index
  thermocline --db store repair --rebuild-index --region /mnt/pmem/new.region:64GiB --apply")]
pub struct Repair {
    /// Only say what would be done, as without it
    #[arg(long, conflicts_with = "apply")]
    pub dry_run: bool,
    /// Do it
    #[arg(long)]
    pub apply: bool,
    /// Make a manifest anew that is damaged beyond repair, or gone, of what tables, slots and logs
    /// tell: what has a value keeps its newest one, what was deleted may be back
    #[arg(long, conflicts_with = "rebuild_index")]
    pub rebuild_manifest: bool,
    /// What a device never gives, however often it is asked, counts as damaged; otherwise a repair
    /// ends there and changes nothing
    #[arg(long)]
    pub skip_unreadable: bool,
    /// Make the index in persistent memory anew instead, from the tables
    #[arg(long)]
    pub rebuild_index: bool,
    /// With --rebuild-index, in another region, which is made: the old one is lost, or too small
    #[arg(long, value_name = "PATH:SIZE[:DRIVER]", requires = "rebuild_index",
          value_parser = parse_region)]
    pub region: Option<PersistentMemory>,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads and writes blocks of 4 and 64 KiB, sequential and random, direct and synced, with 1, 2, 4 and
up to 64 threads, until more of them bring less. Needs no database. The result is kept in PATH as
PROFILE, which a tier there uses from its next opening on; delete the file to be rid of it.

Examples:
  thermocline profile /mnt/nvme/store
  thermocline profile /mnt/nvme/store --plot nvme.svg
  fio --output-format=json --rw=write --bs=64k --direct=1 --filename=F --size=1g --name=w4 \
      --numjobs=4 --group_reporting > fio.json
  thermocline profile /mnt/nvme/store --import fio.json")]
pub struct Profile {
    /// A directory on the device: a tier's, or what will be one
    pub path: PathBuf,
    /// Take what fio has measured: one or several of its JSON reports
    #[arg(long, value_name = "FIO_JSON")]
    pub import: Option<PathBuf>,
    /// Draw the curves, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Bytes of the file that is read and written; a fourth of the free space at most
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with = "import")]
    pub bytes: ByteSize,
    /// How long each point takes; there are 84 at most
    #[arg(long, value_name = "N", default_value_t = 0.3, value_parser = parse_point_seconds,
          conflicts_with = "import")]
    pub seconds: f64,
}

fn parse_point_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.001 to 60".to_owned()),
    }
}

/// Says which of the arguments is not UTF-8 where it must be, which clap does not: the first one
/// that leaves no such complaint when it is made text, as those before it were.
fn not_text(mut arguments: Vec<OsString>) -> String {
    for index in 1..arguments.len() {
        if arguments[index].to_str().is_some() {
            continue;
        }
        let text = OsString::from(arguments[index].to_string_lossy().into_owned());
        let bytes = std::mem::replace(&mut arguments[index], text);
        let parsed = Arguments::try_parse_from(&arguments);
        if parsed.err().is_none_or(|error| error.kind() != ErrorKind::InvalidUtf8) {
            return format!(
                "argument {index}, {bytes:?}, is not UTF-8; only keys, values and directories may \
                 be"
            );
        }
    }
    "an argument is not UTF-8".to_owned()
}

/// Turns clap's report into ours: help goes to standard output, a mistake becomes one line.
pub fn refuse(error: &clap::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::InvalidUtf8 => Err(Failure::Usage(not_text(std::env::args_os().collect()))),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let mut output = Output::new();
            output.bytes(error.render().to_string().as_bytes())?;
            output.finish()
        }
        _ => {
            let text = error.render().to_string();
            // The first paragraph says what is wrong, the others repeat the usage.
            let paragraph = text.split("\n\n").next().unwrap_or(&text);
            let words: Vec<&str> = paragraph.split_whitespace().collect();
            let line = words.join(" ");
            let what = line.strip_prefix("error: ").unwrap_or(&line);
            Err(Failure::Usage(format!("{what}; see 'thermocline --help'")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_mistake_becomes_one_line_that_names_it() {
        for (line, part) in [
            ("thermocline get", "<KEY>"),
            ("thermocline fly", "'fly'"),
            ("thermocline load x", "--tsv"),
            ("thermocline scan --limit many", "'many'"),
            ("thermocline --tier nowhere stats", "PATH:CAPACITY"),
            ("thermocline --preset best stats", "there are leveled, hybrid and indexed"),
        ] {
            let error = Arguments::try_parse_from(line.split(' ')).unwrap_err();
            let failure = refuse(&error).unwrap_err();
            let text = failure.to_string();
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
            assert_eq!(failure.status(), 2);
        }
    }
}
