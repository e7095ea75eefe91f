//! Deadlocks: the graph of waits, and the rule that finds a circle in it. Plain data in, a decision
//! out.
//!
//! All locks are exclusive and an owner waits for one lock at a time, so it waits for one other
//! owner, the holder of that lock. (It waits for those before it in line too, but these wait for
//! the same holder.) From each owner leads one arrow at most: a circle is found by following the
//! arrows, and only the owner that begins to wait can close one. So it is told at once, and no
//! other ever is.

use std::collections::BTreeMap;

/// What takes locks: a transaction, or a single write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(pub u64);

/// From each owner that waits to the one that it waits for.
pub(crate) type Waits = BTreeMap<Owner, Owner>;

/// Owners that wait for each other once `waiter` waits for `holder`; none where that closes no
/// circle.
pub(crate) fn closed_circle(waits: &Waits, waiter: Owner, holder: Owner) -> Option<usize> {
    let mut at = holder;
    // No more arrows than there are.
    for owners in 1..=waits.len() + 1 {
        if at == waiter {
            return Some(owners);
        }
        at = *waits.get(&at)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1>2 2>3`: 1 waits for 2, and 2 for 3.
    fn waits(text: &str) -> Waits {
        let arrows = text.split_whitespace().map(|arrow| arrow.split_once('>').unwrap());
        let owner = |text: &str| Owner(text.parse().unwrap());
        arrows.map(|(waiter, holder)| (owner(waiter), owner(holder))).collect()
    }

    #[test]
    fn a_circle_is_found_by_the_owner_that_closes_it_and_by_no_other() {
        #[rustfmt::skip]
        let table: [(&str, u64, u64, Option<usize>); 8] = [
            // waits so far, begins to wait, for -> owners of the circle
            ("",            1, 2, None),
            ("2>1",         1, 2, Some(2)),
            ("2>3",         1, 2, None),
            ("2>3 3>1",     1, 2, Some(3)),
            ("2>3 3>4 4>1", 1, 3, Some(3)),
            // Two that wait for the same are no circle.
            ("2>3 1>3",     4, 2, None),
            ("2>3 4>3 3>5", 5, 4, Some(3)),
            // A circle of others would be theirs: it cannot be, and following it ends.
            ("2>3 3>2",     1, 2, None),
        ];
        for (text, waiter, holder, expected) in table {
            let found = closed_circle(&waits(text), Owner(waiter), Owner(holder));
            assert_eq!(found, expected, "{text}, then {waiter}>{holder}");
        }
    }
}
