//! Every store that was made to a region, and what a power cut could have left of them.
//!
//! ```text
//!   x86    a line survives with any prefix of its stores, at least those before its last fenced
//!          flush
//!   words  each 8-byte word survives so on its own: weaker than any processor promises
//! ```
//! The words of one copy have no order among them, in both.
//!
//! 1. A crash is looked at before each fence and at the end. What a crash at another moment leaves
//!    is among what the next of these leaves: fewer stores were made, no more was fenced.
//! 2. Where the images are few all are made; otherwise the one with nothing that may be missing,
//!    the one with everything, and random ones from a seed.
//! 3. A mark says what was acknowledged by then. It belongs to all crashes after it.
//! 4. A watcher is told of each fence before it is done: what disks have then belongs to the same
//!    crash.
//!
//! Threads: one. A fence here covers all flushes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::Mutex;

const LINE_WORDS: u64 = 8;

#[derive(Clone, Debug)]
enum Event {
    /// Words that have no order among them; one word is a plain store.
    Stores(Vec<(u64, u64)>),
    Flush(u64),
    Fence,
    Mark(u64),
}

/// What a power cut cannot tear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Lines, whose stores become durable in their order.
    X86,
    /// Words.
    Words,
}

/// Is told of fences, so that a test can look at all else that a crash would leave then.
pub trait FenceWatcher: Debug + Send + Sync {
    /// A fence comes: nothing that was flushed since the last one is durable yet.
    fn fence_comes(&self);
}

/// The events of a region since it was opened.
#[derive(Debug)]
pub struct Shadow {
    start: Vec<u64>,
    events: Mutex<Vec<Event>>,
    watcher: Mutex<Option<Arc<dyn FenceWatcher>>>,
}

impl Shadow {
    /// No events yet; `start` is durable.
    pub fn new(start: &[u64]) -> Self {
        Self { start: start.to_vec(), events: Mutex::default(), watcher: Mutex::default() }
    }

    /// From now on `watcher` is told of fences; none: nothing is.
    pub fn watch(&self, watcher: Option<Arc<dyn FenceWatcher>>) {
        *self.watcher.lock() = watcher;
    }

    fn push(&self, event: Event) {
        self.events.lock().push(event);
    }

    pub fn store(&self, word: u64, value: u64) {
        self.push(Event::Stores(vec![(word, value)]));
    }

    pub fn copy(&self, word: u64, values: impl Iterator<Item = u64>) {
        // A line takes its part of a copy as one step.
        let mut lines: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (at, value) in (word..).zip(values) {
            lines.entry(at / LINE_WORDS).or_default().push((at, value));
        }
        let mut events = self.events.lock();
        events.extend(lines.into_values().map(Event::Stores));
    }

    pub fn flush(&self, line: u64) {
        self.push(Event::Flush(line));
    }

    pub fn fence(&self) {
        let watcher = self.watcher.lock().clone();
        if let Some(watcher) = watcher {
            watcher.fence_comes();
        }
        self.push(Event::Fence);
    }

    /// `what` was acknowledged: every crash from now on knows it.
    pub fn mark(&self, what: u64) {
        self.push(Event::Mark(what));
    }

    /// Nothing has happened yet.
    pub fn is_untouched(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Calls `look` with every crash, in the order of time.
    pub fn crashes(&self, mut look: impl FnMut(&Crash)) {
        let events = self.events.lock().clone();
        let mut crash = self.beginning();
        for event in &events {
            if matches!(event, Event::Fence) {
                look(&crash);
            }
            crash.follow(event);
        }
        look(&crash);
    }

    /// The crash at the end.
    pub fn last(&self) -> Crash {
        let mut crash = self.beginning();
        self.events.lock().iter().for_each(|event| crash.follow(event));
        crash
    }

    fn beginning(&self) -> Crash {
        Crash { durable: self.start.clone(), lines: BTreeMap::new(), mark: 0 }
    }
}

#[derive(Clone, Debug, Default)]
struct Pending {
    steps: Vec<Vec<(u64, u64)>>,
    /// So many of the steps were flushed.
    flushed: usize,
}

/// A moment at which the power could fail.
#[derive(Clone, Debug)]
pub struct Crash {
    durable: Vec<u64>,
    lines: BTreeMap<u64, Pending>,
    /// The last mark before it.
    pub mark: u64,
}

/// What one unit can be: each way as words that differ from what is durable.
type Ways = Vec<Vec<(u64, u64)>>;

impl Crash {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Stores(words) => {
                let line = words[0].0 / LINE_WORDS;
                self.lines.entry(line).or_default().steps.push(words.clone());
            }
            Event::Flush(line) => {
                if let Some(pending) = self.lines.get_mut(line) {
                    pending.flushed = pending.steps.len();
                }
            }
            Event::Fence => self.settle(),
            Event::Mark(what) => self.mark = *what,
        }
    }

    /// All that was stored: what the end of the process leaves.
    pub fn stored(self) -> Vec<u64> {
        let Self { mut durable, lines, .. } = self;
        let stores = lines.into_values().flat_map(|pending| pending.steps);
        for (word, value) in stores.flatten() {
            durable[word as usize] = value;
        }
        durable
    }

    fn settle(&mut self) {
        for pending in self.lines.values_mut() {
            for (word, value) in pending.steps.drain(..pending.flushed).flatten() {
                self.durable[word as usize] = value;
            }
            pending.flushed = 0;
        }
        self.lines.retain(|_, pending| !pending.steps.is_empty());
    }

    /// All ways of each unit, of which at least two can be told apart. The first is the one without
    /// any pending store, the last the one with all.
    fn units(&self, model: Model) -> Vec<Ways> {
        let mut units = Vec::new();
        for pending in self.lines.values() {
            match model {
                Model::X86 => units.push(ways_of_line(&pending.steps)),
                Model::Words => {
                    let mut words: BTreeMap<u64, Ways> = BTreeMap::new();
                    for (word, value) in pending.steps.iter().flatten() {
                        let ways = words.entry(*word).or_insert_with(|| vec![Vec::new()]);
                        ways.push(vec![(*word, *value)]);
                    }
                    units.extend(words.into_values());
                }
            }
        }
        units.iter_mut().for_each(|ways| self.without_repeats(ways));
        units.retain(|ways| ways.len() > 1);
        units
    }

    fn without_repeats(&self, ways: &mut Ways) {
        let mut seen = BTreeSet::new();
        ways.retain(|way| {
            let mut changed: Vec<_> = way
                .iter()
                .copied()
                .filter(|(word, value)| self.durable[*word as usize] != *value)
                .collect();
            changed.sort_unstable();
            seen.insert(changed)
        });
    }

    /// Images that the crash could have left; none for more than can be counted.
    pub fn count(&self, model: Model) -> Option<u64> {
        product(&self.units(model))
    }

    /// Calls `look` with each of up to `images` images that the crash could have left; returns
    /// whether these are all.
    pub fn images(
        &self,
        model: Model,
        images: u64,
        seed: u64,
        mut look: impl FnMut(&[u64]),
    ) -> bool {
        let units = self.units(model);
        let count = product(&units).filter(|count| *count <= images);
        let mut image = self.durable.clone();
        let mut show = |choice: &mut dyn FnMut(&Ways) -> usize| {
            for ways in &units {
                for (word, value) in &ways[choice(ways)] {
                    image[*word as usize] = *value;
                }
            }
            look(&image);
            for (word, _) in units.iter().flatten().flatten() {
                image[*word as usize] = self.durable[*word as usize];
            }
        };
        if let Some(count) = count {
            for mut number in 0..count {
                show(&mut |ways| {
                    let choice = number % ways.len() as u64;
                    number /= ways.len() as u64;
                    choice as usize
                });
            }
            return true;
        }
        show(&mut |_| 0);
        show(&mut |ways| ways.len() - 1);
        let mut random = Random::new(seed);
        for _ in 2..images {
            // Many crashes lose little, or keep little.
            let tendency = random.below(3);
            show(&mut |ways| match (tendency, random.below(4)) {
                (0, 1..) => 0,
                (1, 1..) => ways.len() - 1,
                _ => random.below(ways.len() as u64) as usize,
            });
        }
        false
    }
}

fn product(units: &[Ways]) -> Option<u64> {
    units.iter().try_fold(1u64, |all, ways| all.checked_mul(ways.len() as u64))
}

/// Every prefix of the steps, and within a step of several words every part of it.
fn ways_of_line(steps: &[Vec<(u64, u64)>]) -> Ways {
    let mut ways = vec![Vec::new()];
    let mut before = Vec::new();
    for step in steps {
        let parts = 1u32 << step.len();
        for part in 1..parts {
            let chosen = step.iter().enumerate().filter(|(at, _)| part & (1 << at) != 0);
            let mut way: Vec<(u64, u64)> = before.clone();
            way.extend(chosen.map(|(_, word)| *word));
            ways.push(last_values(&way));
        }
        before.extend(step.iter().copied());
    }
    ways
}

/// Of several values of a word the last.
fn last_values(way: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let last: BTreeMap<u64, u64> = way.iter().copied().collect();
    last.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::Medium;
    use thermocline_foundation::Counter;

    /// All images of all crashes, as (mark, words).
    fn all(medium: &Medium, model: Model) -> Vec<BTreeSet<Vec<u64>>> {
        let mut found = Vec::new();
        medium.shadow().crashes(|crash| {
            let mut images = BTreeSet::new();
            let complete = crash.images(model, 4096, 1, |image| {
                images.insert(image.to_vec());
            });
            assert!(complete);
            found.push(images);
        });
        found
    }

    #[test]
    fn a_line_keeps_a_prefix_of_its_stores_and_words_are_torn_apart() {
        let medium = Medium::shadowed(&[0; 16]);
        medium.store(0, 1);
        medium.store(8, 2);
        medium.store(64, 3);
        let x86 = &all(&medium, Model::X86)[0];
        assert_eq!(x86.len(), 6, "three prefixes of one line, two of the other");
        assert!(x86.iter().all(|image| image[1] == 0 || image[0] == 1));
        assert_eq!(all(&medium, Model::Words)[0].len(), 8);
    }

    #[test]
    fn what_was_flushed_and_fenced_stays_and_a_flush_alone_says_nothing() {
        let medium = Medium::shadowed(&[0; 16]);
        medium.store(0, 1);
        medium.flush(0, 8);
        medium.store(0, 2);
        medium.store(64, 3);
        medium.fence();
        for model in [Model::X86, Model::Words] {
            let crashes = all(&medium, model);
            assert_eq!(crashes.len(), 2);
            assert!(crashes[0].contains(&vec![0; 16]), "not fenced yet");
            assert!(crashes[1].iter().all(|image| image[0] >= 1), "fenced");
            assert!(crashes[1].iter().any(|image| image[8] == 0), "never flushed");
        }
    }

    #[derive(Debug, Default)]
    struct Fences(Counter);

    impl FenceWatcher for Fences {
        fn fence_comes(&self) {
            self.0.add(1);
        }
    }

    #[test]
    fn the_last_crash_is_the_one_at_the_end_and_each_fence_is_told() {
        let (medium, fences) = (Medium::shadowed(&[0; 16]), Arc::new(Fences::default()));
        medium.shadow().watch(Some(Arc::clone(&fences) as _));
        medium.write(0, &[7; 8]);
        medium.fence();
        medium.store(0, 1);
        medium.store(64, 2);
        assert_eq!(medium.shadow().last().stored(), medium.snapshot());
        let mut images = BTreeSet::new();
        medium.shadow().last().images(Model::X86, 8, 1, |image| {
            images.insert(image.to_vec());
        });
        assert_eq!(Some(&images), all(&medium, Model::X86).last());
        medium.shadow().watch(None);
        medium.fence();
        assert_eq!(fences.0.get(), 1);
    }

    #[test]
    fn the_words_of_a_copy_have_no_order() {
        let medium = Medium::shadowed(&[0; 8]);
        medium.copy(0, &[1; 24]);
        assert_eq!(all(&medium, Model::X86)[0].len(), 8);
    }
}
