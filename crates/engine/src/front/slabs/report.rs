//! What statistics say of the rules between the tiers, and of demotions.

use super::FastTier;
use super::regulation::Regulation;
use crate::hybrid_settings::Pinning as PinningMode;
use crate::state::Engine;
use crate::totals::{Count, Totals};
use serde::{Deserialize, Serialize};
use thermocline_popularity::{ReadTriggeredStage, TunerSettings, TunerStage};

/// Demotions since the database was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemotionStats {
    /// Those that ended; one that found too little and gave up is none.
    pub ended: u64,
    /// Seconds from the choice of a range to the edit, of all of them; two at a time count twice.
    pub elapsed_s: f64,
    /// The score of the last one that was chosen by it, since opening: coldness of what leaves for
    /// a byte of the slow tier's I/O, as the policy estimated it. None before the first.
    pub last_score: Option<f64>,
    /// Mean of the scores of all that were chosen by them; none before the first.
    pub mean_score: Option<f64>,
}

/// The rules that say what is on which tier, as they are now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegulationStats {
    /// Least and most share of the tracked keys that the tuner would pin, in percent; both are the
    /// share itself where it is fixed.
    pub pinning_bounds_percent: [f64; 2],
    /// What the tuner of that share is doing: `fixed`, `measuring`, `settling`, `probing` or
    /// `resting`.
    pub pinning_stage: String,
    /// Steps of the tuner that were better and kept, since opening.
    pub pinning_steps_kept: u64,
    /// Whether reads may trigger merges: `off`, `detecting`, `running` or `cooling_down`.
    pub read_triggered_stage: String,
    /// Epochs in which they did, since opening.
    pub read_triggered_epochs: u64,
    /// Bytes that may be written to the slow tier now, negative where more were; none without
    /// `hybrid.write_budget_dwpd`.
    pub write_budget_bytes: Option<i64>,
    /// Merges that this refused, since opening.
    pub refused_merges: u64,
    /// How many times as long a look-up in tables takes as the read of a slot: the nearer to 1, the
    /// more a hit in memory is worth that spares a slot's read. Of single look-ups, those that the
    /// block cache answered among them; none before 4,096 of tables and 256 of slots.
    pub slow_read_ratio: Option<f64>,
    /// Tracked keys on the fast tier by popularity, least first.
    pub fast_histogram: Vec<u64>,
    /// Tracked keys on the slow tier, likewise.
    pub slow_histogram: Vec<u64>,
}

impl DemotionStats {
    pub(crate) fn new(fast: &FastTier, totals: &Totals) -> Self {
        let scored = totals.of(Count::Scored);
        let mean = totals.of(Count::Scores) as f64 / 1000.0 / scored as f64;
        Self {
            ended: totals.of(Count::Demotions),
            elapsed_s: totals.of(Count::DemotionNs) as f64 / 1e9,
            last_score: *fast.regulation.last_score.lock(),
            mean_score: (scored > 0).then_some(mean),
        }
    }
}

impl RegulationStats {
    pub(crate) fn new(engine: &Engine, fast: &FastTier) -> Self {
        let Regulation { tuner, read_triggered, .. } = &fast.regulation;
        let (tuner, histogram) = (tuner.lock(), fast.popularity.histogram());
        let is_fixed = engine.settings.hybrid.pinning == PinningMode::Fixed;
        let TunerSettings { threshold_min, threshold_max, .. } = *tuner.settings();
        let share = tuner.threshold().share();
        let bounds = if is_fixed { [share, share] } else { [threshold_min, threshold_max] };
        let (read_triggered_stage, read_triggered_epochs) =
            read_triggered.as_ref().map_or(("off", 0), |rule| {
                let rule = rule.lock();
                (read_triggered_name(rule.stage()), rule.epochs_run())
            });
        let values = histogram.by_value().len();
        Self {
            pinning_bounds_percent: bounds.map(|share| 100.0 * share),
            pinning_stage: if is_fixed { "fixed" } else { tuner_name(tuner.stage()) }.to_owned(),
            pinning_steps_kept: tuner.steps_kept(),
            read_triggered_stage: read_triggered_stage.to_owned(),
            read_triggered_epochs,
            write_budget_bytes: engine.budget_bytes(fast),
            refused_merges: fast.regulation.slow_writes.refused.get(),
            slow_read_ratio: fast.regulation.read_waits.ratio(),
            fast_histogram: histogram.on_fast[..values].to_vec(),
            slow_histogram: histogram.on_slow[..values].to_vec(),
        }
    }
}

fn tuner_name(stage: TunerStage) -> &'static str {
    match stage {
        TunerStage::Measuring => "measuring",
        TunerStage::Settling { .. } => "settling",
        TunerStage::Probing => "probing",
        TunerStage::Resting { .. } => "resting",
    }
}

fn read_triggered_name(stage: ReadTriggeredStage) -> &'static str {
    match stage {
        ReadTriggeredStage::Detecting => "detecting",
        ReadTriggeredStage::Running => "running",
        ReadTriggeredStage::CoolingDown => "cooling_down",
    }
}

#[cfg(test)]
mod tests {
    use crate::front::slabs::room::Means;
    use crate::jobs::{Job, Step};
    use crate::support::{hybrid, stepped, stepped_environment};
    use crate::{ByteSize, Db, DemotionPolicy, HybridSettings, Promotion, Settings};
    use std::ops::Range;
    use std::path::Path;
    use thermocline_table::key_hash;

    fn put(db: &Db, keys: Range<u32>) {
        keys.for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
    }

    fn get(db: &Db, keys: Range<u32>) {
        keys.for_each(|key| assert!(db.get(key.to_be_bytes()).unwrap().is_some()));
    }

    /// Tracked keys by value: on the fast tier, on the slow one, on either.
    fn rows(db: &Db) -> [Vec<u64>; 3] {
        let fast = db.stats().fast_tier.unwrap();
        [fast.regulation.fast_histogram, fast.regulation.slow_histogram, fast.histogram]
    }

    #[test]
    fn tracked_keys_are_shown_by_how_often_they_were_asked_for_on_which_tier() {
        let promotion = Promotion::None;
        let hybrid_settings = HybridSettings { promotion, ..hybrid().hybrid };
        let db = stepped(&Settings { hybrid: hybrid_settings, ..hybrid() });
        put(&db, 0..60);
        assert_eq!(rows(&db), <[Vec<u64>; 3]>::default(), "written, and not asked for");
        get(&db, 0..30);
        assert_eq!(rows(&db), [vec![30], vec![0], vec![30]]);
        get(&db, 0..10);
        assert_eq!(rows(&db), [vec![20, 0, 0, 10], vec![0; 4], vec![20, 0, 0, 10]]);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(rows(&db), [vec![0; 4], vec![20, 0, 0, 10], vec![20, 0, 0, 10]]);
        get(&db, 25..35);
        assert_eq!(rows(&db), [vec![0; 4], vec![20, 0, 0, 15], vec![20, 0, 0, 15]]);
        // A write says where a key is, and of one that was not up here no more.
        put(&db, 0..4);
        put(&db, 10..13);
        assert_eq!(rows(&db), [vec![3, 0, 0, 4], vec![17, 0, 0, 11], vec![20, 0, 0, 15]]);
        put(&db, 10..13);
        assert_eq!(rows(&db), [vec![0, 0, 0, 7], vec![17, 0, 0, 11], vec![17, 0, 0, 18]]);
        (13..18u32).for_each(|key| db.delete(key.to_be_bytes()).unwrap());
        db.flush().unwrap();
        assert_eq!(rows(&db), [vec![0, 0, 0, 7], vec![12, 0, 0, 11], vec![12, 0, 0, 18]]);
    }

    /// Demotes once, by these means of making room.
    fn demote(db: &Db, means: Means) {
        let mut demotion = db.engine().plan_demotion(means).unwrap();
        while demotion.step().unwrap() == Step::More {}
    }

    /// Demotions that ended, the last score, and the mean in thousandths.
    fn scores(db: &Db) -> (u64, Option<f64>, Option<u64>) {
        let demotions = db.stats().fast_tier.unwrap().demotions;
        let thousandths = demotions.mean_score.map(|mean| (1000.0 * mean).round() as u64);
        (demotions.ended, demotions.last_score, thousandths)
    }

    /// Each is of what lies behind all tables, where nothing is rewritten: a byte of the slow
    /// tier's I/O for each that leaves, so the score is the coldness of all of them.
    #[test]
    fn the_score_of_the_last_demotion_is_shown_and_the_mean_of_all_of_them() {
        let (policy, pinning_percent) = (DemotionPolicy::Precise, 0);
        let hybrid_settings = HybridSettings { policy, pinning_percent, ..hybrid().hybrid };
        let environment = stepped_environment();
        let table_size = ByteSize::kib(512);
        let settings = Settings { table_size, hybrid: hybrid_settings, ..hybrid() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        assert_eq!(scores(&db), (0, None, None));
        put(&db, 0..100);
        demote(&db, Means::ColdOfDrawn);
        assert_eq!(scores(&db), (1, Some(100.0), Some(100_000)));
        put(&db, 100..150);
        demote(&db, Means::ColdOfAll);
        assert_eq!(scores(&db), (2, Some(50.0), Some(75_000)));
        put(&db, 150..190);
        let popularity = &db.engine().fast.as_ref().unwrap().popularity;
        for key in 150..170u32 {
            let hash = key_hash(&key.to_be_bytes());
            (0..2).for_each(|_| assert!(popularity.touch(hash, true).is_some()));
        }
        demote(&db, Means::ColdOfDrawn);
        // Half of them are a quarter as cold.
        assert_eq!(scores(&db), (3, Some(25.0), Some(58_333)));
        put(&db, 190..200);
        demote(&db, Means::Hot);
        assert_eq!(scores(&db), (4, Some(25.0), Some(58_333)), "it was chosen by its size");
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        assert_eq!(scores(&db), (4, None, Some(58_333)), "the last one of this opening");
        put(&db, 200..220);
        demote(&db, Means::ColdOfDrawn);
        let (ended, last, mean) = scores(&db);
        assert!(ended == 5 && last.is_some_and(|last| (20.0..31.0).contains(&last)), "{last:?}");
        assert!(mean < Some(58_333));
    }
}
