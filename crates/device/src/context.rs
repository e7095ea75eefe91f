//! What a file is and why it is made: all that placement may know of the program above (Keigo,
//! section 4.4).

use serde::Serialize;
use std::fmt;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A write-ahead log.
    Log,
    /// The list of the database's tables.
    Manifest,
    /// A sorted table of a level, 0 being the newest.
    Table {
        /// The level.
        level: u8,
    },
    /// The file map itself; only the namespace makes one.
    Map,
    /// Slots of one size, rewritten in place; on the fastest tier, and it stays there.
    Slab,
    /// A copy of what finds a record in a table of a slower tier; on the fastest, never published.
    TableIndex,
    /// Copies of blocks of tables of slower tiers; on the fastest, never published, never an
    /// authority.
    BlockCache,
}

/// How long files of a kind are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Until they are deleted: the namespace publishes them.
    Durable,
    /// Until the process ends: never published, and removed by the next opening.
    Scratch,
    /// As long as they are of use: never published, and left to their maker by the next opening.
    Cache,
}

impl FileKind {
    /// The extension of the file's name: `00000012.table`.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Manifest => "manifest",
            Self::Table { .. } => "table",
            Self::Map => "map",
            Self::Slab => "slab",
            Self::TableIndex => "index",
            Self::BlockCache => "cache",
        }
    }

    /// The kind that files with this extension have; tables come out as level 0.
    pub fn from_extension(extension: &str) -> Option<Self> {
        let table = Self::Table { level: 0 };
        let unpublished = [Self::TableIndex, Self::BlockCache];
        [Self::Log, Self::Manifest, table, Self::Map, Self::Slab]
            .into_iter()
            .chain(unpublished)
            .find(|kind| kind.extension() == extension)
    }

    /// Kind and level; the durable form of what may be published.
    pub fn code(self) -> [u8; 2] {
        match self {
            Self::Log => [1, 0],
            Self::Manifest => [2, 0],
            Self::Table { level } => [3, level],
            Self::Map => [4, 0],
            Self::Slab => [5, 0],
            Self::TableIndex => [6, 0],
            Self::BlockCache => [7, 0],
        }
    }

    /// How long a file of this kind is kept.
    pub fn keeping(self) -> Keeping {
        match self {
            Self::TableIndex => Keeping::Scratch,
            Self::BlockCache => Keeping::Cache,
            _ => Keeping::Durable,
        }
    }

    /// What [`FileKind::code`] wrote.
    pub fn from_code(code: [u8; 2]) -> Option<Self> {
        match code {
            [1, 0] => Some(Self::Log),
            [2, 0] => Some(Self::Manifest),
            [3, level] => Some(Self::Table { level }),
            [4, 0] => Some(Self::Map),
            [5, 0] => Some(Self::Slab),
            [6, 0] => Some(Self::TableIndex),
            [7, 0] => Some(Self::BlockCache),
            _ => None,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table { level } => write!(f, "table of level {level}"),
            other => f.write_str(other.extension()),
        }
    }
}

/// Which work makes the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A caller waits for it.
    Foreground,
    /// A memtable is being flushed.
    Flush,
    /// Tables are being merged.
    Compaction {
        /// The upper input level.
        from: u8,
        /// The output level.
        to: u8,
    },
    /// A sorted bulk load.
    Ingest,
    /// Opening after a crash.
    Recovery,
    /// A copy from another tier.
    Migration,
    /// Blocks that were read from slower tiers are kept.
    CacheFill,
}

/// Kind and origin of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FileContext {
    /// What the file holds.
    pub kind: FileKind,
    /// Why it is made.
    pub origin: Origin,
}
