//! How recent a tier is: its generation, which goes up at each opening for writing and each close.
//!
//! ```text
//!   before      tiers g .. g         DATABASE g
//!   under way   tiers g .. g, g+1 .. g+1 from tier 0 on, DATABASE g
//!   after       tiers g+1 .. g+1     DATABASE g+1
//! ```
//! 1. It goes up on the last tier first, then on the others down to tier 0, then in `DATABASE`.
//! 2. A tier that is behind the others is a clone of the disk that was used last.
//! 3. What a crash left under way is brought to its end before it goes up again: no two states of a
//!    tier have the same generation.
//!
//! Threads: the one that opens or closes the database.

use super::home::{self, Home};
use super::opening::{Found, refuse};
use crate::driver::Driver;
use crate::error::Result;
use crate::identity::Identity;
use crate::tier::Tier;
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::{Planted, planted, sync_site};

/// All tiers are as recent as `DATABASE`, or as a crash leaves them while the generation goes up.
pub(crate) fn check_generations(home: &Home, home_path: &Path, found: &[Found]) -> Result<()> {
    let mut newest_before = home.generation;
    for Found { tier, identity } in found {
        let whose = format!("{} at {}", tier.index(), tier.spec().path.display());
        let generation = identity.generation;
        if generation < newest_before && !planted(Planted::OlderTierAccepted) {
            let found =
                format!("an older clone, it has generation {generation}, expected {newest_before}");
            let way_out = "mount the disk that was used last, or restore a checkpoint";
            return Err(refuse(&whose, found, way_out));
        }
        if generation > home.generation + 1 {
            let file = home_path.join(home::FILE_NAME);
            let found = format!(
                "newer than {}, it has generation {generation}, expected {}",
                file.display(),
                home.generation
            );
            return Err(refuse(&whose, found, "name the home directory that was used last"));
        }
        newest_before = generation;
    }
    Ok(())
}

/// Where a crash left some tiers one generation ahead, brings up the others, so that there are
/// never three.
pub(crate) fn raise_after_crash(
    home: &mut Home,
    home_path: &Path,
    home_driver: &dyn Driver,
    found: &[Found],
) -> Result<()> {
    if found.iter().any(|found| found.identity.generation > home.generation) {
        home.generation += 1;
        let tiers: Vec<_> = found.iter().map(|found| Arc::clone(&found.tier)).collect();
        let write = || write_generation(home, home_path, home_driver, &tiers);
        sync_site("after-crash", write)?;
    }
    home.generation += 1;
    Ok(())
}

/// Writes the home's generation to the tiers, the last one first, and to `DATABASE`.
pub(crate) fn write_generation(
    home: &Home,
    home_path: &Path,
    home_driver: &dyn Driver,
    tiers: &[Arc<Tier>],
) -> Result<()> {
    for tier in tiers.iter().rev() {
        let identity = Identity {
            database: home.database,
            instance: home.instance,
            tier: tier.index(),
            tiers: tiers.len() as u8,
            generation: home.generation,
        };
        let update = || identity.update(&**tier.driver(), &tier.describe());
        sync_site("identity", update)?;
    }
    sync_site("home", || home.write(home_driver, home_path))
}
