//! Promotion: when the first read of a record is reason enough for it to move up.

use crate::environment::experiments::{Experiments, Rule};

/// While more than one in so many records of the fast tier has not been asked for, the first read
/// moves a record up; afterwards the second. Where reads do not recur, neither does.
const UNASKED_SHARE: u64 = 7;

/// So many of the records of the fast tier have not been asked for that any read is a better reason
/// to be there. `copies_pay`: reads recur, and copies get slots.
pub(crate) fn first_read_is_enough(
    experiments: Experiments,
    copies_pay: bool,
    records: u64,
    asked: u64,
) -> bool {
    let unasked = records.saturating_sub(asked);
    experiments.has(Rule::FirstRead) && copies_pay && unasked * UNASKED_SHARE > records
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Experiments = Experiments::NONE;

    #[test]
    fn the_first_read_is_enough_while_a_seventh_was_not_asked_for() {
        let table = [
            // copies pay, records, asked for: with the rule
            (true, 700, 599, true),
            (true, 700, 600, false),
            (true, 700, 800, false),
            (false, 700, 0, false),
        ];
        for (copies_pay, records, asked, with) in table {
            let is_enough =
                |experiments| first_read_is_enough(experiments, copies_pay, records, asked);
            assert_eq!(is_enough(ALL), with, "{copies_pay} {asked}");
            assert!(!is_enough(ALL.without(Rule::FirstRead)), "{copies_pay} {asked}");
        }
    }
}
