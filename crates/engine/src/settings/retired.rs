//! Settings that are no more. A file that names them is read all the same: the names are dropped,
//! and one warning lists them.

/// Names of the table `[hybrid]`, and what became of them: constants, or what a variant implies.
const HYBRID: [&str; 11] = [
    "policy",
    "candidates",
    "range_tables",
    "small_tier_runs",
    "low_watermark_percent",
    "popularity",
    "pinning",
    "promotion",
    "read_triggered",
    "epoch_operations",
    "cool_down_operations",
];

/// Takes the names that are no more out of `settings`; returns them.
pub(super) fn take(settings: &mut toml::Table) -> Vec<String> {
    let Some(hybrid) = settings.get_mut("hybrid").and_then(toml::Value::as_table_mut) else {
        return Vec::new();
    };
    let named = HYBRID.into_iter().filter(|name| hybrid.remove(*name).is_some());
    named.map(|name| format!("hybrid.{name}")).collect()
}

/// A file of this text names some of them.
pub(crate) fn are_in(text: &str) -> bool {
    text.parse::<toml::Table>().is_ok_and(|mut settings| !take(&mut settings).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_more_are_taken_out_and_the_others_stay() {
        let text = "memory = '1 GiB'\n[hybrid]\npinning = 'auto'\nruns = 2\npolicy = 'random'\n";
        let mut settings = text.parse::<toml::Table>().unwrap();
        assert_eq!(take(&mut settings), ["hybrid.policy", "hybrid.pinning"]);
        assert_eq!(settings.to_string().trim(), "memory = \"1 GiB\"\n\n[hybrid]\nruns = 2");
        assert!(take(&mut settings).is_empty());
        assert!(are_in(text) && !are_in("policy = 1") && !are_in("not toml"));
    }
}
