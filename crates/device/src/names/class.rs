//! What a host's file is, as the host or its name says (Keigo, section 4.4).
//!
//! Threads: plain data.

use crate::context::{FileContext, FileKind, Origin};

/// The level of a table whose level is not known: the deepest one that hosts have as they come, so
/// that guesses never fill the fastest tier.
pub(super) const UNKNOWN_LEVEL: u8 = 6;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holds {
    /// A write-ahead log.
    Log,
    /// A sorted table.
    Table,
    /// Values beside tables.
    Blob,
    /// Anything else: it stays a plain file of the host.
    Other,
}

impl Holds {
    /// What a file of this name holds, going by its extension: of RocksDB, Speedb and LevelDB.
    pub fn of_name(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("log") => Self::Log,
            Some("sst" | "ldb") => Self::Table,
            Some("blob") => Self::Blob,
            _ => Self::Other,
        }
    }
}

/// How often a file is read, where the host says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Heat {
    /// Often: as a table of level 0.
    Hot,
    /// As its level has it.
    Warm,
    /// Hardly ever: as a table of the deepest level.
    Cold,
}

/// All that placement may know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileClass {
    /// What it holds.
    pub holds: Holds,
    /// The level of a table, 0 being the newest; none where it is not known.
    pub level: Option<u8>,
    /// Why it is made.
    pub origin: Origin,
    /// How often it is read; it wins over the level.
    pub heat: Option<Heat>,
}

impl FileClass {
    /// The class of a file of which only the name is known.
    pub fn of_name(name: &str) -> Self {
        Self { holds: Holds::of_name(name), level: None, origin: Origin::Recovery, heat: None }
    }

    /// As placement sees it.
    pub fn context(&self) -> FileContext {
        self.context_with(UNKNOWN_LEVEL)
    }

    /// As placement sees it, where a table of which no level is known counts as one of
    /// `unknown_level`.
    pub(super) fn context_with(&self, unknown_level: u8) -> FileContext {
        let level = match self.heat {
            Some(Heat::Hot) => 0,
            Some(Heat::Cold) => UNKNOWN_LEVEL,
            Some(Heat::Warm) | None => self.level.unwrap_or(unknown_level),
        };
        let kind = match self.holds {
            Holds::Log => FileKind::Log,
            Holds::Table | Holds::Blob | Holds::Other => FileKind::Table { level },
        };
        FileContext { kind, origin: self.origin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_wins_over_the_level_and_an_unknown_level_is_the_deepest() {
        let class = |holds, level, heat| FileClass { holds, level, origin: Origin::Flush, heat };
        let level = |level| FileKind::Table { level };
        for (class, kind) in [
            (class(Holds::Table, Some(2), None), level(2)),
            (class(Holds::Table, None, None), level(6)),
            (class(Holds::Table, Some(2), Some(Heat::Hot)), level(0)),
            (class(Holds::Table, Some(2), Some(Heat::Warm)), level(2)),
            (class(Holds::Blob, Some(2), Some(Heat::Cold)), level(6)),
            (class(Holds::Log, Some(2), Some(Heat::Cold)), FileKind::Log),
        ] {
            assert_eq!(class.context().kind, kind, "{class:?}");
        }
    }

    #[test]
    fn an_unknown_level_is_the_one_that_is_set_and_a_cold_table_is_of_the_deepest() {
        let table = FileClass::of_name("000012.sst");
        assert_eq!(table.context_with(1).kind, FileKind::Table { level: 1 });
        let cold = FileClass { heat: Some(Heat::Cold), ..table };
        assert_eq!(cold.context_with(1).kind, FileKind::Table { level: 6 });
        let known = FileClass { level: Some(3), ..table };
        assert_eq!(known.context_with(1).kind, FileKind::Table { level: 3 });
    }

    #[test]
    fn names_of_hosts_say_what_a_file_holds() {
        for (name, holds) in [
            ("000012.sst", Holds::Table),
            ("000012.ldb", Holds::Table),
            ("000003.log", Holds::Log),
            ("000004.blob", Holds::Blob),
            ("CURRENT", Holds::Other),
            ("LOG.old.1", Holds::Other),
            ("MANIFEST-000005", Holds::Other),
        ] {
            assert_eq!(Holds::of_name(name), holds, "{name}");
        }
    }
}
