//! The words that settings have for placements, and the policies that they stand for.

use super::{
    BandwidthSettings, ByLevel, ByLevelSettings, ByParallelism, FillFirst, Placement, TopLevels,
};
use crate::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Which placement decides where tables go. As text `room`, `bandwidth`, `parallelism`,
/// `fill_first`, `log_only` or `top_levels(N)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PlacementChoice {
    /// As many upper levels on the fast tier as fit (`ByLevel`).
    #[default]
    Room,
    /// As many upper levels on the fast tier as its bandwidth allows (SpanDB, section 4.3).
    Bandwidth,
    /// As many upper levels on the fast tier as it can take the writers of (`ByParallelism`).
    Parallelism,
    /// Every file on the fastest tier that has room (`FillFirst`).
    FillFirst,
    /// Logs on the fast tier, all tables below it (SpanDB's "pure logging").
    LogOnly,
    /// Level 0 and so many of the next that are in use on the fast tier, the others below it
    /// (SpanDB, figure 8).
    TopLevels(u8),
}

impl PlacementChoice {
    /// The policy. `bandwidth` is for the choice of that name alone.
    pub fn policy(self, room: ByLevelSettings, bandwidth: BandwidthSettings) -> Arc<dyn Placement> {
        match self {
            Self::Room => Arc::new(ByLevel::new(room)),
            Self::Bandwidth => Arc::new(TopLevels::by_bandwidth(bandwidth, room)),
            Self::Parallelism => Arc::new(ByParallelism::new(room)),
            Self::FillFirst => Arc::new(FillFirst),
            Self::LogOnly => Arc::new(TopLevels::fixed(0, room)),
            Self::TopLevels(level) => Arc::new(TopLevels::fixed(level.saturating_add(1), room)),
        }
    }
}

impl fmt::Display for PlacementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room => f.write_str("room"),
            Self::Bandwidth => f.write_str("bandwidth"),
            Self::Parallelism => f.write_str("parallelism"),
            Self::FillFirst => f.write_str("fill_first"),
            Self::LogOnly => f.write_str("log_only"),
            Self::TopLevels(level) => write!(f, "top_levels({level})"),
        }
    }
}

impl FromStr for PlacementChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let changing = [Self::Room, Self::Bandwidth, Self::Parallelism];
        let level = text.strip_prefix("top_levels(").and_then(|rest| rest.strip_suffix(')'));
        let top_levels = level.and_then(|level| level.parse().ok()).map(Self::TopLevels);
        let mut words = changing.into_iter().chain([Self::FillFirst, Self::LogOnly]);
        let word = words.find(|word| word.to_string() == text);
        word.or(top_levels).ok_or_else(|| {
            let text = format!(
                "there is no placement '{text}'; there are room, bandwidth, parallelism, \
                 fill_first, log_only and top_levels(N), where N is a number of levels"
            );
            Error::new(ErrorKind::Invalid, text)
        })
    }
}

impl TryFrom<String> for PlacementChoice {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<PlacementChoice> for String {
    fn from(choice: PlacementChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placement_has_a_word_and_other_words_are_refused_with_the_list() {
        use PlacementChoice::{Bandwidth, FillFirst, LogOnly, Parallelism, Room, TopLevels};
        let changing = [Room, Bandwidth, Parallelism];
        let fixed = [FillFirst, LogOnly, TopLevels(0), TopLevels(6)];
        for choice in changing.into_iter().chain(fixed) {
            assert_eq!(choice.to_string().parse::<PlacementChoice>().unwrap(), choice);
        }
        assert_eq!("top_levels(2)".parse::<PlacementChoice>().unwrap(), TopLevels(2));
        for text in ["", "Room", "top_levels", "top_levels()", "top_levels(x)", "top_levels(256)"] {
            let error = text.parse::<PlacementChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("no placement '{text}'")), "{error}");
            assert!(error.contains("log_only and top_levels(N)"), "{error}");
        }
    }
}
