//! Claims: what running merges have taken for themselves, so that no two of them read the same
//! tables or write the same keys.
//!
//! A claim names tables, which no other claim may name, and a range of keys of one level, or of all
//! levels, in which no other may write. It is held under the lock of the tables; the job that holds
//! it gives it back when it ends, however that is.

use super::key_range::KeyRange;
use super::levels::may_overlap;
use std::collections::BTreeSet;
use thermocline_foundation::FileNumber;

/// What a merge takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its inputs.
    pub tables: Vec<FileNumber>,
    /// The level that it writes; none where it may touch all of them.
    pub level: Option<u8>,
    /// The keys that it writes.
    pub range: KeyRange,
}

impl Claim {
    /// It may write a key of the range to that level, or to any.
    fn meets(&self, level: Option<u8>, range: &KeyRange) -> bool {
        let shares_level = self.level.is_none() || level.is_none() || self.level == level;
        shares_level && self.range.overlaps(range)
    }

    /// It keeps `other` from being taken beside it. In a level that may overlap, merges are in each
    /// other's way by their tables only.
    fn excludes(&self, other: &Self) -> bool {
        let both = self.level.filter(|level| other.level == Some(*level));
        let may_overlap = both.is_some_and(|level| may_overlap(usize::from(level)));
        !may_overlap && self.meets(other.level, &other.range)
    }
}

/// One of the claims that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId(u64);

/// All claims that are held.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    taken: u64,
    held: Vec<(ClaimId, Claim)>,
    tables: BTreeSet<FileNumber>,
    /// Callers that wait for what running merges hold.
    callers: usize,
}

impl Claims {
    /// Takes a claim; none where another has a table of it, or may write a key of it.
    pub fn take(&mut self, claim: Claim) -> Option<ClaimId> {
        let is_taken = claim.tables.iter().any(|number| self.tables.contains(number))
            || self.held.iter().any(|(_, held)| held.excludes(&claim));
        if is_taken {
            return None;
        }
        self.taken += 1;
        let id = ClaimId(self.taken);
        self.tables.extend(&claim.tables);
        self.held.push((id, claim));
        Some(id)
    }

    /// Gives a claim back.
    pub fn give_back(&mut self, id: ClaimId) {
        if let Some(at) = self.held.iter().position(|(held, _)| *held == id) {
            let (_, claim) = self.held.swap_remove(at);
            self.tables.retain(|number| !claim.tables.contains(number));
        }
    }

    /// A merge has the table as its input.
    pub fn has_table(&self, number: FileNumber) -> bool {
        self.tables.contains(&number)
    }

    /// A merge may write a key of the range to `level`.
    pub fn meet(&self, level: usize, range: &KeyRange) -> bool {
        self.held.iter().any(|(_, claim)| claim.meets(Some(level as u8), range))
    }

    /// Ranges of the merges that may touch all levels.
    pub fn ranges(&self) -> Vec<KeyRange> {
        let of_all = self.held.iter().filter(|(_, claim)| claim.level.is_none());
        of_all.map(|(_, claim)| claim.range.clone()).collect()
    }

    /// A merge that may touch all levels has keys of this range.
    pub fn ranges_meet(&self, range: &KeyRange) -> bool {
        self.held.iter().any(|(_, claim)| claim.level.is_none() && claim.range.overlaps(range))
    }

    /// A merge that may touch all levels has this key.
    pub fn ranges_have(&self, key: &[u8]) -> bool {
        self.held.iter().any(|(_, claim)| claim.level.is_none() && claim.range.contains(key))
    }

    /// A merge that may touch all levels is under way.
    pub fn has_ranges(&self) -> bool {
        self.held.iter().any(|(_, claim)| claim.level.is_none())
    }

    /// A merge into one level is under way.
    pub fn has_levels(&self) -> bool {
        self.held.iter().any(|(_, claim)| claim.level.is_some())
    }

    /// A caller begins to wait for what running merges hold: none is begun before it has that.
    pub fn line_up(&mut self) {
        self.callers += 1;
    }

    /// The caller has what it waited for, or has given up.
    pub fn leave_line(&mut self) {
        self.callers -= 1;
    }

    /// What is held and waited for, each with its name.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        [
            ("claims of merges", self.held.len()),
            ("tables that merges hold", self.tables.len()),
            ("callers that wait for merges", self.callers),
        ]
    }

    /// A caller waits.
    pub fn callers_wait(&self) -> bool {
        self.callers > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(tables: &[u64], level: Option<u8>, from: &str, to: &str) -> Claim {
        let tables = tables.iter().copied().map(FileNumber).collect();
        Claim { tables, level, range: KeyRange::spanning(from.as_bytes(), to.as_bytes()) }
    }

    /// Whether the second claim can be taken beside the first.
    fn are_free(first: &Claim, second: &Claim) -> bool {
        let mut claims = Claims::default();
        claims.take(first.clone()).expect("nothing is taken");
        let id = claims.take(second.clone());
        assert_eq!(id.is_none(), claims.held.len() == 1, "a refused claim takes nothing");
        id.is_some()
    }

    #[test]
    fn claims_meet_in_a_key_of_a_level_or_in_a_table() {
        for (second, is_free) in [
            (claim(&[2], Some(1), "g", "k"), true),
            (claim(&[2], Some(1), "f", "k"), false),
            (claim(&[2], Some(1), "a", "b"), true),
            (claim(&[2], Some(1), "a", "c"), false),
            (claim(&[2], Some(1), "d", "e"), false),
            (claim(&[2], Some(1), "c", "f"), false),
            (claim(&[2], Some(2), "c", "f"), true),
            (claim(&[1], Some(2), "x", "z"), false),
            (claim(&[2], None, "f", "k"), false),
            (claim(&[2], None, "g", "k"), true),
            (claim(&[2], Some(0), "c", "f"), true),
        ] {
            let first = claim(&[1], Some(1), "c", "f");
            assert_eq!(are_free(&first, &second), is_free, "{second:?}");
            assert_eq!(are_free(&second, &first), is_free, "{second:?}");
        }
    }

    #[test]
    fn merges_of_level_0_are_in_each_others_way_by_their_tables_only() {
        let first = claim(&[1, 2], Some(0), "a", "f");
        assert!(are_free(&first, &claim(&[3], Some(0), "a", "f")));
        assert!(!are_free(&first, &claim(&[2, 3], Some(0), "x", "z")));
        let mut claims = Claims::default();
        claims.take(first).unwrap();
        assert!(claims.meet(0, &KeyRange::spanning(b"c", b"d")), "its output will have the range");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut claims = Claims::default();
        let whole = claim(&[1, 2], None, "a", "f");
        let id = claims.take(whole.clone()).unwrap();
        assert!(claims.has_table(FileNumber(2)) && claims.meet(3, &whole.range));
        assert!(claims.has_ranges() && !claims.has_levels() && claims.ranges_have(b"f"));
        assert!(!claims.ranges_have(b"g"));
        claims.give_back(id);
        assert!(!claims.has_table(FileNumber(2)) && !claims.meet(3, &whole.range));
        assert!(!claims.has_ranges() && claims.take(whole).is_some());
    }
}
