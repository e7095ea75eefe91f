//! Statistics of a database: its own, or those that the process writes which has it open.
//!
//! A database is open for writing in one process at a time. Where this command cannot open it for
//! that reason, it shows what the other process has written about it, and says how old that is.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::{store, text};
use std::time::Duration;
use thermocline::{LiveStats, Stats};
use thermocline_foundation::{Clock, SystemClock};

/// Statistics, and where they are from.
pub enum Figures {
    /// This command has opened the database.
    Own(Box<Stats>),
    /// Another process has it open.
    Live(Box<LiveStats>),
}

impl Figures {
    /// The statistics of the database that the arguments name.
    pub fn of(database: &Database) -> Result<Self> {
        match store::open_to_read(database) {
            Ok(db) => {
                let stats = db.stats();
                db.close()?;
                Ok(Self::Own(Box::new(stats)))
            }
            Err(Failure::Locked(locked)) => beside(database, &locked),
            Err(failure) => Err(failure),
        }
    }

    /// The statistics.
    pub fn stats(&self) -> &Stats {
        match self {
            Self::Own(stats) => stats,
            Self::Live(live) => &live.stats,
        }
    }

    /// The statistics as JSON, with the mark of the process that wrote them.
    pub fn to_json(&self) -> Result<String> {
        Ok(match self {
            Self::Own(stats) => stats.to_json()?,
            Self::Live(live) => live.to_json()?,
        })
    }

    /// Whose figures these are and how old, where they are another process's.
    pub fn origin(&self) -> Option<String> {
        match self {
            Self::Own(_) => None,
            Self::Live(live) => Some(origin(live, &SystemClock::new())),
        }
    }
}

/// Figures of the process that has the database open for writing; `locked` says that some process
/// has it open.
fn beside(database: &Database, locked: &str) -> Result<Figures> {
    let home = store::absolute(&database.db)?;
    if !LiveStats::is_open(&home)? {
        // Readers write no figures, and those of a writer that was killed are not theirs.
        return Err(Failure::new(format!(
            "{locked}; it is open for reading only: add --read-only to read it at the same time"
        )));
    }
    match LiveStats::read(home) {
        Ok(Some(live)) => Ok(Figures::Live(Box::new(live))),
        Ok(None) => Err(Failure::new(format!(
            "{locked}; it has written no figures yet: try again in a second, or set stats_interval \
             where it is 0"
        ))),
        Err(error) => Err(Failure::new(format!("{locked}; {error}"))),
    }
}

/// Whose figures these are and how old.
pub fn origin(live: &LiveStats, clock: &dyn Clock) -> String {
    let (process, age) = (live.live.process, live.age(clock));
    let fresh = Duration::from_secs_f64(2.0 * live.live.interval_s + 1.0);
    let idle = if age > fresh { "; it writes none while nothing changes" } else { "" };
    let age = text::seconds(age);
    format!("Figures of process {process}, which has the store open, written {age} ago{idle}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::LiveMark;

    #[derive(Debug)]
    struct WallClock(u64);

    impl Clock for WallClock {
        fn now_ns(&self) -> u64 {
            0
        }
        fn wall_s(&self) -> u64 {
            self.0
        }
        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn figures_say_whose_they_are_and_how_old() {
        let home = tempfile::tempdir().unwrap();
        let db = thermocline::Db::create(home.path().join("db"), &Default::default()).unwrap();
        let live =
            LiveMark { version: 1, process: 7, written_s: 100, open_s: 1.0, interval_s: 1.0 };
        let live = LiveStats { live, stats: db.stats() };
        db.close().unwrap();
        let at = |wall_s| origin(&live, &WallClock(wall_s));
        let whose = "Figures of process 7, which has the store open, written";
        assert_eq!(at(100), format!("{whose} 0 s ago"));
        assert_eq!(at(103), format!("{whose} 3 s ago"));
        assert_eq!(at(161), format!("{whose} 61 s ago; it writes none while nothing changes"));
        assert_eq!(at(50), format!("{whose} 0 s ago"), "a clock that was set back");
    }
}
