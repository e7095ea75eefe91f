//! The file map that cannot be read: made anew, of what lies in the tiers' directories, before
//! anything else is looked at, for without it nothing else can be.
//!
//! The manifest knows which files count and at which level tables are, so it costs nothing. What
//! else is damaged another repair finds.

use super::may_be_given_later;
use super::plan::{RepairPlan, RepairStep};
use crate::environment::Environment;
use crate::error::Result;
use crate::settings::Settings;
use std::path::Path;
use thermocline_device::{ErrorKind, MapRebuild, TierIndex, TieredFiles};

/// Plans it, or with `apply` does it; none where the map can be read.
pub(super) fn repair(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    apply: bool,
) -> Result<Option<RepairPlan>> {
    let given = given.filter(|given| !given.tiers.is_empty());
    let tiers = given.map(Settings::tier_specs);
    let (devices, unreadable) = (&*environment.devices, environment.unreadable);
    let rebuilt = TieredFiles::rebuild_map(devices, home, tiers.as_deref(), unreadable, apply);
    let rebuilt = match rebuilt {
        // There is no database, as is said where its files are opened.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        rebuilt => rebuilt.map_err(|error| may_be_given_later(error.into(), unreadable))?,
    };
    Ok(rebuilt.map(|MapRebuild { name, error, kept_as }| {
        const REPAIR: &str = "made anew, of what lies in the tiers; repair again for all else";
        let mut step = RepairStep::of_name(name, TierIndex(0), &error.into(), REPAIR);
        step.kept_as = kept_as;
        RepairPlan { steps: vec![step], ..RepairPlan::default() }
    }))
}
