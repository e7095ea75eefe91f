//! Is every sync needed, and guarded? The syncs of one place in the code are left out, or come
//! after those of the place that follows; a power cut must then show it.
//!
//! ```text
//!   sync_site("publish", ..)  ->  a sync arrives at a device  ->  turn(): now, never, later
//!   foundation/sync_site.rs       devices/driver.rs               which suite objects?
//! ```
//! 1. Places are met, not listed: a sync that comes from no named place is met as `UNNAMED`.
//! 2. A sync that is left out succeeds, as that of a device does that lies.
//! 3. A pair is exchanged only where the second is the next sync after the first: the first takes
//!    effect just after it. Where another sync comes, the first has taken effect before.
//! 4. `tests/every-sync.txt` says for each place which task objects, so that tests do not search;
//!    `simulate --without-sync all` searches anew. Decision 0074 says why a place is there to which
//!    nothing objects.
//! 5. While a sync is missing, what it should have covered is *owed*: crash points are those where
//!    something is owed, and most of their images lose it and keep the rest.
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

/// This thread leaves out a sync, or makes one late.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) fn is_changed() -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub use active::{Change, Guard, List, UNNAMED, attempt, find, is_within, pairs, with};
#[cfg(feature = "planted-bugs")]
pub(crate) use active::{is_changed, turn};

#[cfg(feature = "planted-bugs")]
mod active {
    use super::Turn;
    use crate::campaign::{Suite, Task, crash_shape};
    use crate::drills::{DRILLS, Drill, PHASES};
    use crate::life::Life;
    use crate::oracle::Known;
    use crate::planted::{parse_task, task_words};
    use parking_lot::RwLock;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::fmt;
    use std::sync::Arc;
    use thermocline_foundation::sync_site::current;

    /// Seeds whose lives meet the pairs of neighbours.
    const PAIR_SEEDS: u64 = 16;

    /// What a sync is met as that comes from no named place.
    pub const UNNAMED: &str = "unnamed";

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

    /// The syncs that a thread made.
    #[derive(Debug, Default)]
    struct Met {
        /// Places of which the second made the next sync after the first.
        pairs: BTreeSet<(String, String)>,
        last: String,
    }

    impl Met {
        fn add(&mut self, place: String) {
            if place != self.last && !self.last.is_empty() {
                self.pairs.insert((std::mem::take(&mut self.last), place.clone()));
            }
            self.last = place;
        }
    }

    thread_local! {
        static CHANGE: RefCell<Option<Change>> = const { RefCell::new(None) };
        static HITS: Cell<u64> = const { Cell::new(0) };
        static MET: RefCell<Option<Met>> = const { RefCell::new(None) };
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
        MET.with_borrow_mut(|met| met.iter_mut().for_each(|met| met.add(place.clone())));
        turn
    }

    pub(crate) fn is_changed() -> bool {
        CHANGE.with_borrow(Option::is_some)
    }

    /// `place` is `group`, or its name begins with it.
    pub fn is_within(place: &str, group: &str) -> bool {
        place.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Runs `body` with `change`; says too how often it was made.
    pub fn with<T>(change: &Change, body: impl FnOnce() -> T) -> (T, u64) {
        CHANGE.set(Some(change.clone()));
        HITS.set(0);
        let result = body();
        CHANGE.set(None);
        (result, HITS.get())
    }

    /// All pairs of neighbours that lives of a few seeds meet.
    pub fn pairs() -> Vec<Change> {
        MET.set(Some(Met::default()));
        (1..=PAIR_SEEDS).for_each(live);
        let pairs = MET.take().unwrap_or_default().pairs.into_iter();
        pairs.map(|(first, second)| Change::Exchanged(first, second)).collect()
    }

    /// A life of `seed`, with no power cut but those of its history.
    fn live(seed: u64) {
        let shape = crash_shape(seed);
        let mut life = Life::new(seed, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        let lived = life.run(&shape).and_then(|()| life.rest(shape.steps));
        lived.expect("nothing is done to the devices");
        life.kill();
    }

    /// Tasks that are tried in turn.
    fn candidates(rounds: u64) -> impl Iterator<Item = Task> {
        let task = |suite: Suite, one_in: u64| move |seed| Task { suite, seed, one_in, only: None };
        (0..rounds).flat_map(move |round| {
            let crashes = (1 + round * 8..9 + round * 8).map(task(Suite::Crash, 3));
            let one_in = if round == 0 { 64 } else { 16 };
            let errors = [1 + round * 4, 4 + round * 4].map(task(Suite::Errors, one_in));
            let kills = (3 + round * 4..5 + round * 4).map(task(Suite::Crash, 2));
            crashes.chain(kills).chain(errors)
        })
    }

    /// The drills that change tiers, which no life does.
    fn tier_changes(rounds: u64) -> impl Iterator<Item = Task> {
        let items = (DRILLS.len() * PHASES.len()) as u64;
        let of_seed = move |seed| {
            let first = DRILLS.iter().position(|drill| *drill == Drill::Reshaped).unwrap_or(0);
            (first as u64 * PHASES.len() as u64..items).map(move |item| Task {
                suite: Suite::Drills,
                seed,
                one_in: 1,
                only: Some(item),
            })
        };
        (1..=8 * rounds).flat_map(of_seed)
    }

    /// The first task that objects to `change`, and what it says; and how often the change was made
    /// in all that were run.
    pub fn find(change: &Change, rounds: u64) -> (Option<(Task, String)>, u64) {
        let mut made = 0;
        let of_tiers = change.places().iter().any(|place| is_within(place, "reshape"));
        let tasks: Vec<_> = match of_tiers {
            true => tier_changes(rounds).collect(),
            false => candidates(rounds).collect(),
        };
        let found = tasks.into_iter().find_map(|task| {
            if made > 0 && !is_worth_it(change, task) {
                return None;
            }
            let (found, hits) = with(change, || task.attempt().err());
            made += hits;
            let (only, text) = found?;
            Some((Task { only, ..task }, text))
        });
        (found, made)
    }

    /// `task` may find what lives do not, which leave out the syncs of `change`.
    fn is_worth_it(change: &Change, task: Task) -> bool {
        let places = change.places();
        let begins = |names: &[&str]| {
            places.iter().any(|place| names.iter().any(|name| is_within(place, name)))
        };
        match (task.suite, task.one_in) {
            (Suite::Crash, 3) | (Suite::Drills, _) => true,
            (Suite::Crash, _) => {
                begins(&["after-crash", "cut-off", "manifest", "opening", "replayed-logs"])
            }
            _ => begins(&["abandon", "compact/undone", "undo"]),
        }
    }

    /// Runs `task` with `change`; what it says, and how often the change was made.
    pub fn attempt(change: &Change, task: Task) -> (Option<String>, u64) {
        with(change, || task.attempt().err().map(|(_, text)| text))
    }

    /// What objects to a change.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Guard {
        /// A task of the simulation.
        Task(Task),
        /// A test elsewhere, by its path.
        Test(String),
        /// Nothing, and decision 0074 says why the sync is there.
        Nothing,
        /// No task is known yet.
        Open,
    }

    impl Guard {
        fn parse(words: &str) -> Option<Self> {
            match words {
                "nothing" => Some(Self::Nothing),
                "open" => Some(Self::Open),
                _ => match words.strip_prefix("test ") {
                    Some(path) => Some(Self::Test(path.to_owned())),
                    None => parse_task(words).map(Self::Task),
                },
            }
        }
    }

    impl fmt::Display for Guard {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Task(task) => f.write_str(&task_words(*task)),
                Self::Test(path) => write!(f, "test {path}"),
                Self::Nothing => f.write_str("nothing"),
                Self::Open => f.write_str("open"),
            }
        }
    }

    /// The list of all places and pairs.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct List(pub Vec<(Change, Guard)>);

    impl List {
        /// The list that belongs to this version of the engine.
        pub fn kept() -> Self {
            let lines = include_str!("../tests/every-sync.txt").lines();
            let parse = |line| Self::parse_line(line).unwrap_or_else(|| panic!("no line: {line}"));
            Self(lines.map(parse).collect())
        }

        /// A line: a change, and what objects to it.
        pub fn line(change: &Change, guard: &Guard) -> String {
            format!("{change} {guard}")
        }

        fn parse_line(line: &str) -> Option<(Change, Guard)> {
            let (change, rest) = line.split_once(' ')?;
            Some((Change::parse(change), Guard::parse(rest)?))
        }
    }
}
