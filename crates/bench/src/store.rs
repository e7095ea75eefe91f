//! What an engine must offer to be measured: [`EngineKind`] opens, [`Store`] is open.
//!
//! The traits are as small as the workloads allow, so that an engine is one short file and nothing
//! of the harness shows in its figures. An engine's label in commands and results is
//!
//! ```text
//!   NAME[@LAYOUT][+OPTION=VALUE]...      rocksdb@tiers+levels=tuned+row-cache=480MiB
//! ```
//! where the layout says which directories it gets: `fast`, `slow`, or `tiers` for both.
//!
//! Invariants:
//! 1. A store keeps every durable byte below the paths of its tiers, so that copies of these
//!    directories are copies of the store, also at other paths.
//! 2. After `open` on such a copy everything acknowledged before `close` is there.
//! 3. All methods of [`Store`] may be called from many threads at once.

use crate::block_trace::{Outturn, Task};
use crate::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thermocline_foundation::ByteSize;

/// Which layouts an engine can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// One directory: `fast` or `slow`.
    OneTier,
    /// One; both where its label has an option that uses both.
    OneOrAsked,
    /// One or two.
    OneOrMore,
    /// Both: the engine places data itself.
    Tiers,
}

/// Which directories an engine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// The fast one alone, with room for everything.
    Fast,
    /// The slow one alone.
    Slow,
    /// The fast one with its capacity and the slow one.
    Tiers,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Tiers => "tiers",
        })
    }
}

impl FromStr for Layout {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        match text {
            "fast" => Ok(Self::Fast),
            "slow" => Ok(Self::Slow),
            "tiers" => Ok(Self::Tiers),
            _ => Err(format!("'{text}' is not a layout; there are fast, slow and tiers").into()),
        }
    }
}

impl Needs {
    /// Whether an engine that needs this can use `layout`.
    pub fn allow(self, layout: Layout) -> bool {
        match self {
            Self::OneTier => layout != Layout::Tiers,
            Self::OneOrAsked | Self::OneOrMore => true,
            Self::Tiers => layout == Layout::Tiers,
        }
    }

    /// The layout where none is named.
    pub fn usual(self) -> Layout {
        match self {
            Self::OneTier | Self::OneOrAsked => Layout::Fast,
            Self::OneOrMore | Self::Tiers => Layout::Tiers,
        }
    }
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Survives the process.
    #[default]
    Buffered,
    /// Survives loss of power: synced before it is acknowledged.
    Sync,
}

/// A directory on one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSpace {
    /// `fast` or `slow`.
    pub name: String,
    /// The directory; exists and is the engine's alone.
    pub path: PathBuf,
    /// Bytes that the engine may use there.
    pub capacity: ByteSize,
}

/// Everything an engine is told when it is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenOptions {
    /// The directories, fastest first: one or two.
    pub tiers: Vec<TierSpace>,
    /// Memory for caches, write buffers and indexes together.
    pub memory: ByteSize,
    /// Of every write.
    pub durability: Durability,
    /// Past the page cache, where the engine can.
    pub direct: bool,
    /// Threads that will call the store.
    pub threads: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value, on average.
    pub value_bytes: u32,
    /// Records that are or will be loaded.
    pub records: u64,
    /// The store is being loaded: options for loading may be used, what is on disk stays the same.
    pub loading: bool,
    /// `+NAME=VALUE` of the engine's label.
    pub options: BTreeMap<String, String>,
}

impl OpenOptions {
    /// The value of an option of the label.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option as `T`; an error that names option and value where it is none.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Outcome<Option<T>>
    where
        T::Err: fmt::Display,
    {
        let Some(text) = self.option(name) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(format!("option {name}={text}: {error}").into()),
        }
    }
}

/// A kind of engine: what can be named on the command line.
pub trait EngineKind: Send + Sync {
    /// The name in labels; lower case, digits and `-`.
    fn name(&self) -> &str;

    /// What it is and its version, in one line.
    fn about(&self) -> String;

    /// Which layouts it can use.
    fn needs(&self) -> Needs;

    /// Options that its label may carry, each with its values and what they mean.
    fn options(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Why it cannot be used here, with the way out; none where it can.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// A folder whose libraries its process takes before those that the program was linked with;
    /// none: these.
    fn libraries(&self) -> Option<PathBuf> {
        None
    }

    /// What would be in force with `options`, in the engine's own words, for the report. Fails
    /// where an option's value is wrong: that is found before anything runs.
    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>>;

    /// What it makes of a trace of blocks, where it is a cache and no store.
    fn replay(&self, _task: &Task<'_>) -> Option<Outcome<Outturn>> {
        None
    }

    /// Opens the store in the directories, making it where they are empty.
    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>>;
}

/// Merges that brought records to a slower tier, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demotions {
    /// Those that ended.
    pub ended: u64,
    /// Time that they took, with the choice of what to merge.
    pub elapsed_s: f64,
}

impl Demotions {
    /// Mean milliseconds of those since `before`; none where there were none.
    pub fn mean_ms_since(&self, before: Self) -> Option<f64> {
        let ended = self.ended.checked_sub(before.ended).filter(|ended| *ended > 0)?;
        Some((self.elapsed_s - before.elapsed_s) * 1e3 / ended as f64)
    }
}

/// A cache of blocks between memory and the slow tier, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondLevel {
    /// Blocks that memory lacked and the cache had.
    pub hits: u64,
    /// Blocks that neither had.
    pub misses: u64,
    /// Bytes written into it, with what was written again.
    pub written_bytes: u64,
    /// Blocks that it has now.
    pub blocks: u64,
    /// Memory by which they are found and chosen, in bytes.
    pub memory_bytes: u64,
    /// Blocks that earlier openings had left.
    #[serde(default)]
    pub adopted_blocks: u64,
    /// Time that it took to look at them, in nanoseconds.
    #[serde(default)]
    pub adopting_ns: u64,
}

impl SecondLevel {
    /// What it did since `before`, and what it has now, or had at its opening.
    pub fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            written_bytes: self.written_bytes - before.written_bytes,
            ..self
        }
    }
}

/// Tables that a store made, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTables {
    /// All.
    pub tables: u64,
    /// Those whose level was not known when they were made.
    pub of_unknown_level: u64,
}

impl CreatedTables {
    /// Those since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            tables: self.tables - before.tables,
            of_unknown_level: self.of_unknown_level - before.of_unknown_level,
        }
    }
}

/// What went to and came from one tier since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierTraffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of the device, or syncs of files where the engine counts; 0 where neither counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub syncs: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TierTraffic {
    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            syncs: self.syncs.saturating_sub(before.syncs),
        }
    }
}

/// What a scan hands over, record by record.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Writes of one thread that were started and are not done. They are done in the order in which
/// they were started.
pub trait Flying {
    /// Starts to set `key` to `value`; false, and nothing is started, while there is no room.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<bool>;

    /// Whether the oldest is done; `wait`: once it is. One is flying.
    fn landed(&mut self, wait: bool) -> Outcome<bool>;
}

/// A record that a transaction changes.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its new value; none: it is removed.
    pub value: Option<&'a [u8]>,
}

/// An open store.
pub trait Store: Send + Sync {
    /// Puts the value of `key` into `value`, replacing what it holds; false where there is none.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool>;

    /// Sets `key` to `value` with the durability of the options.
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()>;

    /// Sets `key` to `value` if there is such a key already, and says whether it did. An engine
    /// that has no call for it looks the key up, into `found`, and sets it then.
    fn put_if_present(&self, key: &[u8], value: &[u8], found: &mut Vec<u8>) -> Outcome<bool> {
        if !self.get(key, found)? {
            return Ok(false);
        }
        self.put(key, value)?;
        Ok(true)
    }

    /// Removes `key`, whether it is there or not, with the durability of the options.
    fn delete(&self, key: &[u8]) -> Outcome<()>;

    /// Up to `count` records in key order from the first one at or after `from`; returns how many.
    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64>;

    /// For one thread: a way to have several writes under way; none where the engine has none.
    fn flying(&self) -> Option<Box<dyn Flying + '_>> {
        None
    }

    /// In one transaction: looks up every key of `changes` to update it, then makes them; again
    /// from the beginning, where another transaction came first.
    fn transact(&self, changes: &[Change<'_>]) -> Outcome<()> {
        let _ = changes;
        Err("this engine has no transactions".into())
    }

    /// Makes everything acknowledged so far durable.
    fn sync(&self) -> Outcome<()>;

    /// Writes out what is in memory and waits until background work has nothing left to do.
    fn settle(&self) -> Outcome<()>;

    /// The engine's own counts for each tier, in the order of the options; none where it has none.
    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        None
    }

    /// Merges that brought records to a slower tier; none where it does not tell of them.
    fn demotions(&self) -> Option<Demotions> {
        None
    }

    /// Its cache of blocks between memory and the slow tier; none where it has none.
    fn second_level(&self) -> Option<SecondLevel> {
        None
    }

    /// Bytes of persistent memory that its index takes; none where it has no such index.
    fn index_bytes(&self) -> Option<u64> {
        None
    }

    /// Tables that it made; none where it does not tell.
    fn created_tables(&self) -> Option<CreatedTables> {
        None
    }

    /// Bytes of the fast tier that it was told it may take, where its label says other than the
    /// tier's capacity.
    fn fast_capacity(&self) -> Option<u64> {
        None
    }

    /// Memory that the engine says it uses, in bytes; none where it does not tell.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether it keeps what it is given. The null engine does not, so its answers are not checked.
    fn keeps(&self) -> bool {
        true
    }

    /// Closes the store and says whether all went well.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// An engine as it is named: kind, layout and options.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The name of the kind.
    pub name: String,
    /// The layout, if one is named.
    pub layout: Option<Layout>,
    /// Options in the order of their names.
    pub options: BTreeMap<String, String>,
}

impl FromStr for Label {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        let form = || -> Failure {
            format!("'{text}' is not an engine; write NAME[@fast|slow|tiers][+OPTION=VALUE]...")
                .into()
        };
        let mut parts = text.split('+');
        let head = parts.next().unwrap_or_default();
        let (name, layout) = match head.split_once('@') {
            Some((name, layout)) => (name, Some(layout.parse()?)),
            None => (head, None),
        };
        if name.is_empty() {
            return Err(form());
        }
        let mut options = BTreeMap::new();
        for part in parts {
            let (option, value) = part.split_once('=').ok_or_else(form)?;
            if options.insert(option.to_owned(), value.to_owned()).is_some() {
                return Err(format!("'{text}' names option {option} twice").into());
            }
        }
        Ok(Self { name: name.to_owned(), layout, options })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(layout) = self.layout {
            write!(f, "@{layout}")?;
        }
        self.options.iter().try_for_each(|(name, value)| write!(f, "+{name}={value}"))
    }
}

/// Among the tiers, the directory of a region of persistent memory, which is none of them.
pub const REGION: &str = "region";

/// The option of a label that says how large its region is.
pub const REGION_SIZE: &str = "persistent-memory";

/// An option that every label may have: the engine's own memory, in place of the run's.
pub const MEMORY: &str = "memory";

impl Label {
    /// Takes the engine's own memory out of the options, where it has one.
    pub fn take_memory(&mut self) -> Outcome<Option<ByteSize>> {
        let memory = self.options.remove(MEMORY);
        memory.map(|size| Ok(size.parse::<ByteSize>()?)).transpose()
    }
}

/// The kind that `label` names, with the layout it gets; says what is valid where something is not.
pub fn find<'a>(
    engines: &[&'a dyn EngineKind],
    label: &Label,
) -> Outcome<(&'a dyn EngineKind, Layout)> {
    let Some(kind) = engines.iter().find(|kind| kind.name() == label.name) else {
        let names: Vec<_> = engines.iter().map(|kind| kind.name()).collect();
        return Err(
            format!("there is no engine '{}'; there are {}", label.name, names.join(", ")).into()
        );
    };
    let layout = label.layout.unwrap_or(kind.needs().usual());
    if !kind.needs().allow(layout) {
        let can = match kind.needs() {
            Needs::OneTier => "fast or slow",
            Needs::OneOrAsked | Needs::OneOrMore => "fast, slow or tiers",
            Needs::Tiers => "tiers",
        };
        return Err(
            format!("{} cannot use layout '{layout}'; it can use {can}", kind.name()).into()
        );
    }
    for option in label.options.keys() {
        if option != MEMORY && !kind.options().iter().any(|(name, _)| name == option) {
            let names: Vec<_> = kind.options().iter().map(|(name, _)| *name).collect();
            let valid = match names.as_slice() {
                [] => "it has none".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            return Err(format!("{} has no option '{option}'; {valid}", kind.name()).into());
        }
    }
    Ok((*kind, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::NULL;

    #[test]
    fn every_label_may_have_memory_of_its_own() {
        let mut label: Label = "null+memory=16MiB".parse().unwrap();
        find(&[&NULL], &label).unwrap();
        assert_eq!(label.take_memory().unwrap(), Some(ByteSize::mib(16)));
        assert_eq!(label.take_memory().unwrap(), None);
        assert!("null+memory=much".parse::<Label>().unwrap().take_memory().is_err());
    }

    #[test]
    fn a_second_level_is_told_by_what_it_did_meanwhile_and_has_in_the_end() {
        let level = |[hits, misses, written_bytes]: [u64; 3], [blocks, memory_bytes]: [u64; 2]| {
            let (adopted_blocks, adopting_ns) = (7, 8);
            SecondLevel {
                hits,
                misses,
                written_bytes,
                blocks,
                memory_bytes,
                adopted_blocks,
                adopting_ns,
            }
        };
        let (before, now) = (level([1, 2, 3], [4, 5]), level([11, 4, 33], [2, 6]));
        assert_eq!(now.since(before), level([10, 2, 30], [2, 6]));
    }

    #[test]
    fn labels_read_back_as_they_are_written() {
        for text in ["null", "rocksdb@tiers", "a@fast+b=1+c=x:y"] {
            assert_eq!(text.parse::<Label>().unwrap().to_string(), text);
        }
        for wrong in ["", "@fast", "a@warm", "a+b", "a+b=1+b=2"] {
            assert!(wrong.parse::<Label>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_does_not_exist_is_answered_with_what_does() {
        let refused = |text: &str| {
            let label = text.parse().unwrap();
            find(&[&NULL], &label).err().unwrap().to_string()
        };
        assert!(refused("nul").contains("there are null"), "{}", refused("nul"));
        assert!(refused("null+cache=1").contains("no option 'cache'"));
        assert!(find(&[&NULL], &"null@fast".parse().unwrap()).is_ok());
    }
}
