//! Engines that can be named and not run, each with the reason and the way out: stores that no
//! longer exist in a form that runs here, and those whose library was not there when this program
//! was built.

use thermocline_bench::Outcome;
use thermocline_bench::store::{EngineKind, Needs, OpenOptions, Store};

/// An engine that is not there.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    name: &'static str,
    about: &'static str,
    needs: Needs,
    reason: &'static str,
}

/// HotRAP, whose published figures stand in docs/rivals.md.
pub static HOTRAP: Absent = Absent {
    name: "hotrap",
    about: "HotRAP, a fork of RocksDB 8.7 that promotes hot records (USENIX ATC 2025)",
    needs: Needs::Tiers,
    reason: "there is no package of it; its published figures are in docs/rivals.md",
};

/// PrismDB, likewise.
pub static PRISMDB: Absent = Absent {
    name: "prismdb",
    about: "PrismDB, slabs on NVM over sorted tables on flash (ASPLOS 2023)",
    needs: Needs::Tiers,
    reason: "there is no package of it; its published figures are in docs/rivals.md",
};

/// RocksDB in a build without it.
#[cfg(not(feature = "rocksdb"))]
pub static ROCKSDB: Absent = Absent {
    name: "rocksdb",
    about: "RocksDB 11.8.1",
    needs: Needs::OneOrMore,
    reason: "this program was built without it; run cargo xtask rivals fetch, then this again",
};

/// Speedb, which comes by RocksDB's bindings.
#[cfg(not(feature = "rocksdb"))]
pub static SPEEDB: Absent = Absent {
    name: "speedb",
    about: "Speedb 2.8.0",
    needs: Needs::OneOrMore,
    reason: "this program was built without RocksDB's bindings; run cargo xtask rivals fetch and \
             cargo xtask plugins fetch, then this again",
};

/// LevelDB in a build without it.
#[cfg(not(feature = "leveldb"))]
pub static LEVELDB: Absent = Absent {
    name: "leveldb",
    about: "LevelDB 1.23",
    needs: Needs::OneOrAsked,
    reason: "this program was built without it; run cargo xtask rivals fetch (or install \
             libleveldb-dev), then this again",
};

impl EngineKind for Absent {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        self.about.to_owned()
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.reason.to_owned())
    }

    fn describe(&self, _: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        Ok(vec![("missing".to_owned(), self.reason.to_owned())])
    }

    fn open(&self, _: &OpenOptions) -> Outcome<Box<dyn Store>> {
        Err(format!("{}: {}", self.name, self.reason).into())
    }
}
