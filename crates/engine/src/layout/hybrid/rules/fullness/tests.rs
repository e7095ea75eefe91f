//! Scripts: an act a line, and the answer to it behind the arrow.

use super::*;

/// A fast tier of 10,000 bytes whose work begins at 90 % and ends at 80 %.
struct Stage {
    fullness: Fullness,
    seen: Seen,
    now_ns: u64,
    is_under_way: bool,
}

impl Stage {
    fn new() -> Self {
        let seen = Seen {
            limit_bytes: 10_000,
            file_bytes: 10_000,
            free_bytes: 10_000,
            memtable_bytes: 0,
            are_frees_held: false,
            has_empty_slabs: false,
        };
        Self { fullness: Fullness::new(80, 90), seen, now_ns: 0, is_under_way: false }
    }

    /// The answer of the rule to one act.
    fn act(&mut self, act: &str) -> String {
        let words: Vec<&str> = act.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let fullness = &mut self.fullness;
        match words[0] {
            "free" => {
                self.seen.free_bytes = number(1);
                let Look { need, over } = fullness.look(self.seen);
                return format!("{need:?}, excess {}, over {over:.2}", fullness.excess_bytes());
            }
            "want" => {
                fullness.want(number(1), self.seen.limit_bytes);
                return format!("wanted {}", fullness.wanted_bytes);
            }
            "tables" => {
                fullness.note_tables(number(1));
                return format!("small {}", fullness.is_small_tier());
            }
            "step" => {
                return format!("{:?}", fullness.eviction_step(self.now_ns, self.is_under_way));
            }
            _ => self.act_in_silence(&words),
        }
        String::new()
    }

    /// An act without an answer.
    fn act_in_silence(&mut self, words: &[&str]) {
        let (fullness, now_ns) = (&mut self.fullness, self.now_ns);
        match words {
            ["memtables", bytes] => self.seen.memtable_bytes = bytes.parse().unwrap(),
            ["copy", begins] => self.seen.are_frees_held = *begins == "begins",
            ["empty", yes] => self.seen.has_empty_slabs = *yes == "yes",
            ["files", bytes] => self.seen.file_bytes = bytes.parse().unwrap(),
            ["found"] => fullness.found(),
            ["copies_want"] => fullness.want_for_copies(),
            ["other_sizes"] => fullness.begin_other_sizes(),
            ["stuck_sizes"] => fullness.sizes_are_stuck(),
            ["records_left"] => {
                fullness.room_was_made();
                fullness.begin_anew();
            }
            ["little"] => {
                let step = fullness.eviction_step(now_ns, true);
                fullness.found_little(step, now_ns);
            }
            ["little_of", name] => {
                let step = EvictionStep::ALL.iter().find(|step| format!("{step:?}") == *name);
                fullness.found_little(*step.unwrap(), now_ns);
            }
            ["ms", ms] => self.now_ns += ms.parse::<u64>().unwrap() * 1_000_000,
            ["under_way", yes] => self.is_under_way = *yes == "yes",
            other => panic!("no act is called {other:?}"),
        }
    }
}

/// Plays the acts of `script` and compares the whole of it.
fn play(script: &str) {
    let mut stage = Stage::new();
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    let (mut wanted, mut found) = (String::new(), String::new());
    for line in lines {
        let act = line.split(" -> ").next().unwrap();
        let answer = stage.act(act);
        let arrow = if answer.is_empty() { "" } else { " -> " };
        found += &format!("{act}{arrow}{answer}\n");
        wanted += &format!("{line}\n");
    }
    assert!(found == wanted, "wanted\n{wanted}\nfound\n{found}");
}

#[test]
fn room_is_made_from_the_high_watermark_down_to_the_low_one() {
    play(
        "
        free 1001 -> Nothing, excess 999, over 0.00
        free 1000 -> Room, excess 1000, over 0.00
        free 500 -> Room, excess 1500, over 0.50
        free 0 -> Room, excess 2000, over 1.00
        free 2000 -> Room, excess 0, over 0.00
        free 2001 -> Nothing, excess 0, over 0.00
        free 1001 -> Nothing, excess 999, over 0.00
        ",
    );
}

#[test]
fn memtables_count_as_records_that_are_about_to_come() {
    play(
        "
        memtables 1000
        free 2000 -> Room, excess 1000, over 0.00
        free 3001 -> Nothing, excess 0, over 0.00
        memtables 9000
        free 3501 -> Nothing, excess 999, over 0.00
        free 3500 -> Room, excess 1000, over 0.00
        ",
    );
}

#[test]
fn a_step_has_its_turn_when_the_one_before_it_found_little() {
    play(
        "
        free 0 -> Room, excess 2000, over 1.00
        step -> Sweep
        little
        step -> Cold
        little_of Sweep
        step -> Cold
        little
        step -> Hot
        little
        step -> Hot
        ms 1000
        step -> Hot
        under_way yes
        ms 1
        step -> Hot
        under_way no
        step -> Sweep
        little
        little
        records_left
        step -> Sweep
        ",
    );
}

#[test]
fn copies_that_find_no_slot_ask_for_other_sizes_and_no_room() {
    play(
        "
        copies_want
        free 5000 -> OtherSizes, excess 0, over 0.00
        free 1500 -> OtherSizes, excess 500, over 0.00
        other_sizes
        free 1500 -> Nothing, excess 500, over 0.00
        copies_want
        free 1000 -> Room, excess 1000, over 0.00
        ",
    );
}

#[test]
fn records_that_find_no_slot_want_other_sizes_first_and_then_room() {
    play(
        "
        want 9000 -> wanted 2500
        want 100 -> wanted 2500
        free 6000 -> OtherSizes, excess 2500, over 0.00
        stuck_sizes
        free 4600 -> Room, excess 2500, over 0.00
        empty yes
        free 4600 -> OtherSizes, excess 2500, over 0.00
        empty no
        records_left
        free 9000 -> OtherSizes, excess 2500, over 0.00
        found
        free 9000 -> Nothing, excess 0, over 0.00
        files 10001
        free 9000 -> OtherSizes, excess 0, over 0.00
        stuck_sizes
        free 9000 -> Nothing, excess 0, over 0.00
        ",
    );
}

#[test]
fn while_a_copy_holds_what_is_freed_nothing_is_made() {
    play(
        "
        copy begins
        free 0 -> Nothing, excess 2000, over 1.00
        copy ends
        free 0 -> Room, excess 2000, over 1.00
        ",
    );
}

#[test]
fn a_tier_is_small_below_a_tenth_and_until_it_is_an_eighth() {
    play(
        "
        tables 8 -> small false
        tables 9 -> small true
        tables 8 -> small true
        tables 7 -> small true
        tables 6 -> small false
        ",
    );
}

#[test]
fn waiting_is_in_vain_where_the_plan_found_nothing_and_nothing_is_under_way() {
    let mut fullness = Fullness::new(80, 90);
    for (need, is_at_it, is_stuck) in [
        (Need::Room, false, true),
        (Need::Room, true, false),
        (Need::OtherSizes, false, true),
        (Need::Nothing, false, false),
    ] {
        fullness.planned(need, is_at_it);
        assert_eq!(fullness.is_stuck(), is_stuck, "{need:?} {is_at_it}");
    }
}

#[test]
fn few_is_a_share_of_a_table_or_of_a_small_range() {
    let table = [
        // bytes of a table, of slots, ranges: few
        (6400, 1_000_000, 1, 100),
        (6400, 16_000, 100, 10),
        (6400, 16_000, 0, 100),
    ];
    for (table_bytes, limit_bytes, ranges, few) in table {
        assert_eq!(few_bytes(table_bytes, limit_bytes, ranges), few, "{limit_bytes} {ranges}");
    }
}
