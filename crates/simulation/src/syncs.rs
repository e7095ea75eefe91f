//! Is every sync needed, and guarded? The syncs of one place in the code are left out, or come after
//! those of the place that follows; a power cut must then show it.
//!
//! ```text
//!   sync_site("publish", ..)  ->  a sync arrives at a device  ->  turn(): now, never, later
//!   foundation/sync_site.rs       devices/driver.rs               which suite objects?
//! ```
//! 1. Places are met, not listed: a sync that comes from no named place is met as [`UNNAMED`].
//! 2. A sync that is left out succeeds, as that of a device does that lies.
//! 3. A pair is exchanged only where the second is the next sync after the first: the first takes
//!    effect just after it. Where another sync comes, the first has taken effect before.
//! 4. `tests/every-sync.txt` says for each place and each pair which task objects first, so that
//!    the test does not search; `simulate --without-sync all` makes the list anew.
//! 5. A place to which nothing objects is in the list as [`NOTHING`], and decision 0074 says why.
//!
//! Threads: what is left out, and what was met, belongs to the thread, as the simulated run does.

/// When a sync takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As it comes.
    Now,
    /// It is left out.
    Never,
    /// Just after the next one.
    AfterTheNext,
    /// Now, and the one before it, which waits for it, after it.
    BeforeTheLast,
}

/// The turn of the sync that this thread makes.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) fn turn(_another_waits: bool) -> Turn {
    Turn::Now
}

#[cfg(feature = "planted-bugs")]
pub(crate) use active::turn;
#[cfg(feature = "planted-bugs")]
pub use active::{Change, List, NOTHING, UNNAMED, attempt, find, is_within, met_by};

#[cfg(feature = "planted-bugs")]
mod active {
    use super::Turn;
    use crate::campaign::{Suite, Task};
    use crate::planted::{parse_task, task_words};
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::fmt;
    use thermocline_foundation::sync_site::current;

    /// What a sync is met as that comes from no named place.
    pub const UNNAMED: &str = "unnamed";

    /// What the list says of a change to which no task objects; decision 0074 says why.
    pub const NOTHING: &str = "nothing";

    /// What is done to the syncs of a place.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Change {
        /// They are left out; of a group such as `closing/identity` all.
        Without(String),
        /// They take effect after those of the second place, where these come next.
        Exchanged(String, String),
    }

    impl Change {
        /// As the command line and the list have it: a place, or two with a comma between them.
        pub fn parse(text: &str) -> Self {
            match text.split_once(',') {
                Some((first, second)) => Self::Exchanged(first.to_owned(), second.to_owned()),
                None => Self::Without(text.to_owned()),
            }
        }

        /// The places that it is about.
        pub fn places(&self) -> Vec<&String> {
            match self {
                Self::Without(place) => vec![place],
                Self::Exchanged(first, second) => vec![first, second],
            }
        }
    }

    impl fmt::Display for Change {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Without(place) => f.write_str(place),
                Self::Exchanged(first, second) => write!(f, "{first},{second}"),
            }
        }
    }

    thread_local! {
        static CHANGE: RefCell<Option<Change>> = const { RefCell::new(None) };
        static HITS: Cell<u64> = const { Cell::new(0) };
        static MET: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
    }

    pub(crate) fn turn(another_waits: bool) -> Turn {
        let mut place = current();
        if place.is_empty() {
            UNNAMED.clone_into(&mut place);
        }
        let turn = CHANGE.with_borrow(|change| match change {
            Some(Change::Without(without)) if is_within(&place, without) => Turn::Never,
            Some(Change::Exchanged(first, _)) if *first == place => Turn::AfterTheNext,
            Some(Change::Exchanged(_, second)) if another_waits && *second == place => {
                Turn::BeforeTheLast
            }
            _ => Turn::Now,
        });
        if matches!(turn, Turn::Never | Turn::BeforeTheLast) {
            HITS.set(HITS.get() + 1);
        }
        MET.with_borrow_mut(|met| met.as_mut().map(|met| met.insert(place)));
        turn
    }

    /// `place` is `group`, or its name begins with it.
    pub fn is_within(place: &str, group: &str) -> bool {
        place.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Runs `body` with `change`; says too how often it was made.
    fn with<T>(change: &Change, body: impl FnOnce() -> T) -> (T, u64) {
        CHANGE.set(Some(change.clone()));
        HITS.set(0);
        let result = body();
        CHANGE.set(None);
        (result, HITS.get())
    }

    /// Runs `body`; gives the places whose syncs it met.
    pub fn met_by(body: impl FnOnce()) -> BTreeSet<String> {
        MET.set(Some(BTreeSet::new()));
        body();
        MET.take().unwrap_or_default()
    }

    /// Tasks that are tried in turn.
    fn candidates(rounds: u64) -> impl Iterator<Item = Task> {
        let round = |round: u64| {
            let seeds = 1 + round * 4..5 + round * 4;
            let of = move |suite: Suite, one_in: u64| {
                seeds.clone().map(move |seed| Task { suite, seed, one_in, only: None })
            };
            of(Suite::Errors, 64).step_by(3).chain(of(Suite::Crash, 3))
        };
        (0..rounds).flat_map(round)
    }

    /// The first task that objects to `change`, and what it says; and how often the change was made
    /// in all that were run.
    pub fn find(change: &Change, rounds: u64) -> (Option<(Task, String)>, u64) {
        let mut made = 0;
        let found = candidates(rounds).find_map(|task| {
            let (found, hits) = with(change, || task.attempt().err());
            made += hits;
            let (only, text) = found?;
            Some((Task { only, ..task }, text))
        });
        (found, made)
    }

    /// Runs `task` with `change`; what it says, and how often the change was made.
    pub fn attempt(change: &Change, task: Task) -> (Option<String>, u64) {
        with(change, || task.attempt().err().map(|(_, text)| text))
    }

    /// The list of all places and pairs.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct List(pub Vec<(Change, Option<Task>)>);

    impl List {
        /// The list that belongs to this version of the engine.
        pub fn kept() -> Self {
            let lines = include_str!("../tests/every-sync.txt").lines();
            let parse = |line| Self::parse_line(line).unwrap_or_else(|| panic!("no line: {line}"));
            Self(lines.map(parse).collect())
        }

        /// A line: a change, and the task that objects, or that none does.
        pub fn line(change: &Change, task: Option<Task>) -> String {
            format!("{change} {}", task.map_or(NOTHING.to_owned(), task_words))
        }

        fn parse_line(line: &str) -> Option<(Change, Option<Task>)> {
            let (change, rest) = line.split_once(' ')?;
            let task = if rest == NOTHING { None } else { Some(parse_task(rest)?) };
            Some((Change::parse(change), task))
        }
    }
}
