//! What must hold for any bytes of a batch or a manifest edit, and for any text of settings,
//! tiers and live figures. Each property returns whether the input was accepted.

use std::path::Path;
use thermocline::{LiveStats, Settings, Tier, decoders};

/// A manifest edit: written again it is the same, and stays the same.
pub fn manifest_edit(data: &[u8]) -> bool {
    let Ok(written) = decoders::rewrite_edit(data) else {
        return false;
    };
    let again = decoders::rewrite_edit(&written).expect("what was written reads");
    assert!(again == written, "an edit changes by being written again");
    true
}

/// A batch: written again it has the same records.
pub fn batch(data: &[u8]) -> bool {
    let Ok(written) = decoders::rewrite_batch(data) else {
        return false;
    };
    assert!(written.len() <= data.len(), "numbers are written in their shortest form");
    let again = decoders::rewrite_batch(&written).expect("what was written reads");
    assert!(again == written, "a batch changes by being written again");
    true
}

/// Settings as TOML: what is accepted is written and read the same.
pub fn settings(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let origin = Path::new("settings.toml");
    let settings = match Settings::from_toml(text, origin) {
        Ok(settings) => settings,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
            return false;
        }
    };
    let written = settings.to_toml().expect("settings can be written");
    let again = Settings::from_toml(&written, origin);
    assert_eq!(again.ok().as_ref(), Some(&settings), "written as {written}");
    true
}

/// Figures of an open store: what is accepted is written and read the same.
pub fn live_stats(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let live = match LiveStats::from_json(text) {
        Ok(live) => live,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
            return false;
        }
    };
    let written = live.to_json().expect("figures can be written");
    let again = LiveStats::from_json(&written).expect("what was written reads");
    assert_eq!(again.to_json().ok().as_ref(), Some(&written), "figures change by being written");
    true
}

/// A tier on the command line: path, capacity and driver are its parts.
pub fn tier(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(tier) = Tier::parse(text) else {
        return false;
    };
    let path = tier.path.to_str().expect("it came from text");
    assert!(text.starts_with(path) && !path.is_empty());
    let spelled = format!("{path}:{} B:{}", tier.capacity.0, tier.driver);
    assert_eq!(Tier::parse(&spelled).ok(), Some(tier), "{text} spelled as {spelled}");
    true
}
