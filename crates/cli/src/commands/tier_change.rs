//! `tiers add|remove|replace`: another list of tiers for the database.

use crate::arguments::Database;
use crate::failure::Result;
use crate::output::Output;
use crate::progress::Bar;
use crate::store;
use serde::Serialize;
use std::path::PathBuf;
use thermocline::{Db, Environment, Tier, TierChange};

#[derive(Serialize)]
struct Told {
    tiers: Vec<PathBuf>,
}

/// Makes the change and says which tiers there are.
pub fn run(database: &Database, change: TierChange, json: bool) -> Result<()> {
    let change = match change {
        TierChange::Add { at, tier } => {
            let path = store::absolute(&tier.path)?;
            TierChange::Add { at, tier: Tier { path, ..tier } }
        }
        TierChange::Replace { at, path } => {
            TierChange::Replace { at, path: store::absolute(&path)? }
        }
        remove @ TierChange::Remove { .. } => remove,
    };
    let (home, settings) = store::home_and_settings(database)?;
    let environment = Environment::default();
    let bar = Bar::new("moving", Some(0));
    environment.change_tiers(&home, settings.as_ref(), &change, &mut |now| bar.show(&now))?;
    drop(bar);
    // What is said is what an opening finds.
    let db = Db::open(&home)?;
    let tiers = db.stats().tiers.iter().map(|tier| PathBuf::from(&tier.path)).collect();
    db.close()?;
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
