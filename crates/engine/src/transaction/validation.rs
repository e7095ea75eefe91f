//! Validation: has anything changed that a batch builds on? Plain data in, a decision out.

use crate::error::{Error, ErrorKind};
use crate::table_set::key_range::KeyRange;
use bytes::Bytes;
use std::collections::BTreeMap;
use thermocline_foundation::Sequence;

/// What a batch builds on: keys and ranges, each as of the sequence at which it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    pub keys: BTreeMap<Bytes, Sequence>,
    pub ranges: Vec<(KeyRange, Sequence)>,
}

impl Footprint {
    /// One key, as of `base`.
    pub fn of_key(key: &[u8], base: Sequence) -> Self {
        let keys = BTreeMap::from([(Bytes::copy_from_slice(key), base)]);
        Self { keys, ranges: Vec::new() }
    }

    /// The oldest sequence that anything was read at; none where nothing was read.
    pub fn oldest_base(&self) -> Option<Sequence> {
        let bases = self.keys.values().chain(self.ranges.iter().map(|(_, base)| base));
        bases.min().copied()
    }
}

/// The recent versions that memory knows.
pub(crate) trait History {
    /// There is no version that is newer than `sequence`.
    fn ends_at(&self, sequence: Sequence) -> bool;

    /// All versions that are newer than this are known.
    fn complete_after(&self) -> Sequence;

    /// The newest version of `key` that is known.
    fn newest(&self, key: &[u8]) -> Option<Sequence>;

    /// A key of `range` with a version that is newer than `than`. Looks at `most` entries at most,
    /// and leaves none where it gives up.
    fn newer_in(&self, range: &KeyRange, than: Sequence, most: &mut u64) -> Option<Bytes>;
}

/// What validation says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing has changed.
    Holds,
    /// This key has.
    Conflict(Bytes),
    /// Memory does not say: look at everything, and ask again with what came after that.
    LookAgain,
}

/// Decides by what memory knows. Nothing of `footprint` changed up to `looked`, as a look at
/// everything has shown. More than `entries_max` keys, and entries of ranges in memory, are not
/// decided; where nothing at all came after that look, there is nothing to decide.
pub(crate) fn validate(
    footprint: &Footprint,
    looked: Sequence,
    entries_max: u64,
    history: &impl History,
) -> Decision {
    let complete_after = history.complete_after();
    if history.ends_at(looked) {
        return Decision::Holds;
    }
    let Some(mut most) = entries_max.checked_sub(footprint.keys.len() as u64) else {
        return Decision::LookAgain;
    };
    let mut is_complete = true;
    for (key, base) in &footprint.keys {
        let than = looked.max(*base);
        if history.newest(key).is_some_and(|newest| newest > than) {
            return Decision::Conflict(key.clone());
        }
        is_complete &= than >= complete_after;
    }
    for (range, base) in &footprint.ranges {
        let than = looked.max(*base);
        if let Some(key) = history.newer_in(range, than, &mut most) {
            return Decision::Conflict(key);
        }
        is_complete &= than >= complete_after && most > 0;
    }
    if is_complete { Decision::Holds } else { Decision::LookAgain }
}

/// The error of a write that came second.
pub(crate) fn conflict(key: &[u8]) -> Error {
    let key = key.escape_ascii();
    let text = format!(
        "another write of key {key} came first, and nothing of this one was written; run the \
         transaction again, from its reads on"
    );
    Error::new(ErrorKind::Conflict, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions in memory, and from where on it has all.
    struct Told {
        versions: Vec<(&'static str, u64)>,
        complete_after: u64,
    }

    impl History for Told {
        fn ends_at(&self, sequence: Sequence) -> bool {
            self.versions.iter().all(|(_, of)| *of <= sequence.0)
        }

        fn complete_after(&self) -> Sequence {
            Sequence(self.complete_after)
        }

        fn newest(&self, key: &[u8]) -> Option<Sequence> {
            let of_key = self.versions.iter().filter(|(name, _)| name.as_bytes() == key);
            of_key.map(|(_, sequence)| Sequence(*sequence)).max()
        }

        fn newer_in(&self, range: &KeyRange, than: Sequence, most: &mut u64) -> Option<Bytes> {
            for (name, sequence) in &self.versions {
                if range.contains(name.as_bytes()) {
                    *most = most.checked_sub(1)?;
                    if *sequence > than.0 {
                        return Some(Bytes::from_static(name.as_bytes()));
                    }
                }
            }
            None
        }
    }

    /// `a@5 c..f@7`: key `a` as read at 5, the range from `c` up to `f` as read at 7.
    fn footprint(text: &str) -> Footprint {
        let mut footprint = Footprint::default();
        for part in text.split_whitespace() {
            let (what, base) = part.split_once('@').unwrap();
            let base = Sequence(base.parse().unwrap());
            match what.split_once("..") {
                Some((from, to)) => {
                    let bound = |key: &str| (!key.is_empty()).then(|| key.as_bytes().to_vec());
                    footprint.ranges.push((KeyRange { from: bound(from), to: bound(to) }, base));
                }
                None => {
                    footprint.keys.insert(Bytes::copy_from_slice(what.as_bytes()), base);
                }
            }
        }
        footprint
    }

    /// Of versions `a` 3, `b` 8, `d` 6 and `d` 9 in memory.
    fn decide(complete_after: u64, looked: u64, entries_max: u64, text: &str) -> String {
        let versions = vec![("a", 3), ("b", 8), ("d", 6), ("d", 9)];
        let history = Told { versions, complete_after };
        match validate(&footprint(text), Sequence(looked), entries_max, &history) {
            Decision::Holds => "holds".to_owned(),
            Decision::LookAgain => "look again".to_owned(),
            Decision::Conflict(key) => format!("conflict {}", key.escape_ascii()),
        }
    }

    #[test]
    fn validation_decides_as_this_table_says() {
        #[rustfmt::skip]
        let table: [(u64, u64, u64, &str, &str); 20] = [
            // memory has all after, looked at all up to, most entries, built on -> decision
            (2, 0, 100, "",             "holds"),
            (2, 0, 100, "a@3",          "holds"),
            (2, 0, 100, "a@2",          "conflict a"),
            (2, 0, 100, "z@2",          "holds"),
            (2, 0, 100, "z@1",          "look again"),
            (2, 2, 100, "z@1",          "holds"),
            (2, 0, 100, "b@7 a@3",      "conflict b"),
            (2, 0, 100, "d@8",          "conflict d"),
            (2, 0, 100, "d@9",          "holds"),
            (2, 0, 100, "d@9 z@1",      "look again"),
            (2, 9, 100, "d@1 b@1 ..@1", "holds"),
            (2, 0, 100, "c..d@2",       "holds"),
            (2, 0, 100, "c..@8",        "conflict d"),
            (2, 0, 100, "c..@9",        "holds"),
            (7, 0, 100, "e..@6",        "look again"),
            (2, 0, 2,   "c..@9",        "look again"),
            // So many keys are left to phase 1, until nothing came after it.
            (2, 8, 2,   "a@3 x@3 z@3",  "look again"),
            (2, 8, 3,   "a@3 x@3 z@3",  "holds"),
            (2, 9, 2,   "a@3 x@3 z@3",  "holds"),
            // A conflict that memory shows needs no second look.
            (7, 0, 100, "e..@6 b@6",    "conflict b"),
        ];
        for (complete_after, looked, entries_max, text, expected) in table {
            let decided = decide(complete_after, looked, entries_max, text);
            assert_eq!(decided, expected, "{text} after {complete_after}, looked {looked}");
        }
    }
}
