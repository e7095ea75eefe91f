//! README.md shows what the first command prints. The program prints it here again, of other files;
//! all but the numbers must be the same.

mod command;

use command::{Scratch, text};

const README: &str = include_str!("../../../README.md");

/// The words of a line, with `#` for each number, its unit, and the dash of a table's empty cell.
fn shape(line: &str) -> String {
    const UNITS: [&str; 11] =
        ["B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "ms", "s", "%", "MiB/s"];
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_start_matches('(');
        let bare = bare.trim_end_matches([')', ';', ':', ',', '.']);
        let is_number = bare.starts_with(|c: char| c.is_ascii_digit()) || bare == "-";
        let follows_number = words.last().is_some_and(|last| last.ends_with('#'));
        if is_number {
            words.push(word.replace(bare, "#"));
        } else if follows_number && UNITS.contains(&bare.replace("/s", "").as_str()) {
            let last = words.pop().unwrap_or_default();
            words.push(last + &word.replace(bare, ""));
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// The block of the README that begins with `first`.
fn transcript(first: &str) -> Vec<&'static str> {
    let from = README.find(first).unwrap_or_else(|| panic!("README.md has no line '{first}'"));
    README[from..].lines().take_while(|line| *line != "```").collect()
}

#[test]
fn numbers_are_masked_and_nothing_else() {
    for (line, masked) in [
        (
            "Loaded 29,253 files of 244.1 MiB in 4.97 s (49.2 MiB/s).",
            "Loaded # files of # in # (#).",
        ),
        ("  tier  used  full", "tier used full"),
        ("     0  47.2 MiB  96.6 %  -  ./fast", "# # # # ./fast"),
        ("read  37,503  2.65 us", "read # #"),
    ] {
        assert_eq!(shape(line), masked);
    }
    assert_ne!(shape("read 5"), shape("write 5"));
}

/// The least that terminals have.
const SCREEN_ROWS: usize = 24;

#[test]
fn the_readme_shows_what_the_first_command_prints() {
    let scratch = Scratch::new();
    for index in 0..300 {
        scratch.file(&format!("tree/{index}"), "content ".repeat(index * 10).as_bytes());
    }
    let page = text(&scratch.ok(&["try", "tree", "--seconds", "0.3"]));
    let printed: Vec<String> = page.lines().map(shape).collect();
    let shown = transcript("Loaded ");
    assert!(shown.len() <= 12, "{} lines", shown.len());
    let shown: Vec<String> = shown.into_iter().map(shape).collect();
    assert_eq!(printed, shown, "README.md does not show what the program prints:\n{page}");
    // Where the page sends its readers is one screen.
    let screen = text(&scratch.ok(&["stats"]));
    assert!(screen.lines().count() <= SCREEN_ROWS, "{screen}");
    for part in ["slots, or memory above them", "writers delayed", "'stats --all' has the rest"] {
        assert!(screen.contains(part), "{part} is not in {screen}");
    }
}
