//! The rules of the fast tier, counted: the tables of decision 77 are what the code has, and no
//! more than twelve rules and eight settings.
#![allow(clippy::disallowed_methods, reason = "the sources are the test's own")]

use std::path::Path;
use thermocline::{HybridSettings, Rule};

const PAGE: &str = include_str!("../../../../docs/decisions/0077-rules-of-hybrid.md");
const RULES_MAX: usize = 12;
const SETTINGS: [&str; 8] = [
    "variant",
    "runs",
    "high_watermark_percent",
    "tracker_percent",
    "pinning_percent",
    "record_compression",
    "index_copies",
    "write_budget_dwpd",
];
/// Folders that the paths of the page begin in.
const ROOTS: [&str; 3] = ["src/layout/hybrid", "src", ".."];

/// The rows of the page's table whose header begins with `first`: what, and where.
fn rows(first: &str) -> Vec<(&'static str, &'static str)> {
    let header = format!("| {first} | where |");
    let table = PAGE.lines().skip_while(|line| !line.starts_with(&header)).skip(2);
    let cells = table.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split(" | ");
        (cells.next().unwrap().trim(), cells.next().unwrap().trim())
    });
    cells.collect()
}

/// The names in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn there_are_twelve_rules_at_most_and_each_is_where_the_page_says() {
    let rules = rows("rule");
    assert!(!rules.is_empty() && rules.len() <= RULES_MAX, "{} rules: {rules:#?}", rules.len());
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (what, place) in rules.iter().copied().chain(rows("mechanism")) {
        assert!(quoted(place).count() > 0, "{what} is nowhere");
        for path in quoted(place) {
            let exists = ROOTS.iter().any(|root| package.join(root).join(path).is_file());
            assert!(exists, "{what}: there is no {path}");
        }
    }
}

#[test]
fn each_rule_that_can_be_left_out_has_a_row_of_its_own() {
    let rules = rows("rule");
    for rule in Rule::ALL {
        let of_it = rules.iter().filter(|(what, _)| quoted(what).any(|name| name == rule.name()));
        assert_eq!(of_it.count(), 1, "{}", rule.name());
    }
    let names = rules.iter().flat_map(|(what, _)| quoted(what)).count();
    assert_eq!(names, Rule::ALL.len(), "what is named can be left out");
}

/// A file of rules that no row names would be a rule that is not counted.
#[test]
fn each_file_of_rules_is_in_a_table_of_the_page() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tables = [rows("rule"), rows("mechanism")].concat();
    let is_named = |path: &str| tables.iter().any(|(_, place)| quoted(place).any(|it| it == path));
    for folder in ["rules", "feedback"] {
        let files = std::fs::read_dir(package.join("src/layout/hybrid").join(folder)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        // A folder has the tests of the file of its name.
        for name in names.filter(|name| name.ends_with(".rs") && name != "mod.rs") {
            let path = format!("{folder}/{name}");
            // Counters of a rule whose decision is in `rules/`.
            let has_rule = is_named(&path) || is_named(&format!("rules/{name}"));
            assert!(has_rule || name == "tests.rs", "{path} is in no table");
        }
    }
}

#[test]
fn there_are_eight_settings() {
    let text = toml::to_string(&HybridSettings::default()).unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.split_once(" = ")).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), SETTINGS);
}
