//! `tiers add|remove|replace`: another list of tiers for the database.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::store;
use serde::Serialize;
use std::path::PathBuf;
use thermocline::{Environment, Tier, TierChange, WhichTier};

#[derive(Serialize)]
struct Told {
    tiers: Vec<PathBuf>,
}

/// Makes the change and says which tiers there are.
pub fn run(database: &Database, change: TierChange, json: bool) -> Result<()> {
    if database.read_only {
        let text = "the database is to be opened for reading only, and this changes it; leave out \
                    --read-only, which opens it for writing";
        return Err(Failure::new(text));
    }
    let change = match change {
        TierChange::Add { at, tier } => {
            let path = store::absolute(&tier.path)?;
            TierChange::Add { at, tier: Tier { path, ..tier } }
        }
        TierChange::Replace { at, path } => {
            TierChange::Replace { at, path: store::absolute(&path)? }
        }
        TierChange::Remove { tier: WhichTier::Path(path) } => {
            TierChange::Remove { tier: WhichTier::Path(store::absolute(&path)?) }
        }
        TierChange::Remove { tier } => TierChange::Remove { tier },
    };
    let (home, settings) = store::home_and_settings(database)?;
    let bar = Bar::new("moving", Some(0));
    let mut show = |now| bar.show(&now);
    let tiers =
        Environment::default().change_tiers(&home, settings.as_ref(), &change, &mut show)?;
    drop(bar);
    let tiers = tiers.into_iter().map(|tier| tier.path).collect();
    let told = Told { tiers };
    let mut output = Output::new();
    if json {
        output.json(&told)?;
    } else {
        for (at, path) in told.tiers.iter().enumerate() {
            output.line(format!("tier {at}  {}", path.display()))?;
        }
    }
    output.finish()
}
