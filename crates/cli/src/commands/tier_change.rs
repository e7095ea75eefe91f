//! `tiers add|remove|replace`: another list of tiers for the database.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::{store, text};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use thermocline::{Environment, Progress, Tier, TierChange, WhichTier};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

#[derive(Serialize)]
struct Told {
    tiers: Vec<PathBuf>,
    /// Bytes of files that went to another directory.
    bytes: u64,
    seconds: f64,
}

/// A path from the root, as `DATABASE` has it.
fn absolute(tier: WhichTier) -> Result<WhichTier> {
    Ok(match tier {
        WhichTier::Path(path) => WhichTier::Path(store::absolute(&path)?),
        WhichTier::Place(at) => WhichTier::Place(at),
    })
}

/// Makes the change and says which tiers there are.
pub fn run(database: &Database, change: TierChange, json: bool) -> Result<()> {
    store::require_writing(database)?;
    if let TierChange::Add { tier, .. } = &change
        && tier.driver == "memory"
    {
        let text = "a tier of the driver memory is gone when this command ends, with all that lies \
                    on it; name another driver, such as posix";
        return Err(Failure::Usage(text.to_owned()));
    }
    let change = match change {
        TierChange::Add { at, tier } => {
            let path = store::absolute(&tier.path)?;
            TierChange::Add { at, tier: Tier { path, ..tier } }
        }
        TierChange::Replace { tier, path } => {
            TierChange::Replace { tier: absolute(tier)?, path: store::absolute(&path)? }
        }
        TierChange::Remove { tier } => TierChange::Remove { tier: absolute(tier)? },
    };
    let (home, settings) = store::home_and_settings(database)?;
    let clock = SystemClock::new();
    let bar = Bar::new("moving", Some(0));
    let mut bytes = 0;
    let mut show = |now: Progress| {
        bytes = now.done_bytes;
        bar.show(&now);
    };
    let tiers =
        Environment::default().change_tiers(&home, settings.as_ref(), &change, &mut show)?;
    drop(bar);
    let elapsed = Duration::from_nanos(clock.now_ns());
    let tiers = tiers.into_iter().map(|tier| tier.path).collect();
    let told = Told { tiers, bytes, seconds: elapsed.as_secs_f64() };
    let mut output = Output::new();
    if json {
        output.json(&told)?;
    } else {
        for (at, path) in told.tiers.iter().enumerate() {
            output.line(format!("tier {at}  {}", path.display()))?;
        }
        if bytes > 0 {
            output.line(format!("moved {} in {}", ByteSize(bytes), text::span(elapsed)))?;
        }
    }
    output.finish()
}
