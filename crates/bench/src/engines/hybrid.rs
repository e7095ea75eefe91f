//! What a label of the preset `hybrid` may set besides what all presets share.
//!
//! ```text
//!   thermocline-hybrid@tiers+runs=6+policy=approximate+promotion=none+pinning=50+tracker=40
//! ```
//! They are the parameters that PrismDB's evaluation varies (its section 7), so that each of its
//! figures is a list of labels. `+without=first_read/copies_worth_slots` leaves out rules, to see
//! what each is worth (decision 77); `+variant=paper` is PrismDB as published.
//!
//! Invariants:
//! 1. An option that a label does not name has the engine's own default.
//! 2. A word that means nothing is answered with the words that do; numbers are checked by the
//!    engine's own ranges.

use crate::Outcome;
use crate::store::OpenOptions;
use thermocline::{
    Compression, DemotionPolicy, Experiments, HybridSettings, IndexCopies, Pinning, Promotion,
    Rule, Variant,
};

/// Names and meanings.
pub(super) const OPTIONS: [(&str, &str); 17] = [
    ("variant", "whose rules hold: tuned or paper; default tuned"),
    ("policy", "choice of a range to demote: random, precise or approximate; default approximate"),
    ("candidates", "ranges that a choice looks at; default 8"),
    ("range-tables", "consecutive tables of a range; default 1"),
    (
        "runs",
        "sorted runs over each other in a range of the slow tier, 1 to 6; default 3, and 6 \
        where the fast tier is below 10 % of the data; 1 with variant=paper",
    ),
    (
        "tracker",
        "keys that are remembered, in percent of all, 1 to 100; default 0: 20, and a quarter more \
        than fast tier and memory have records",
    ),
    ("pinning", "percent of these that stay on the fast tier, 0 to 100 or auto; default 70"),
    (
        "promotion",
        "when records move up: none, demotion or read; default read, and demotion with \
        variant=paper",
    ),
    ("read-triggered", "demotions for the sake of reads: on or off; default on with variant=paper"),
    (
        "epoch",
        "operations after which such demotions, and pinning=auto, are judged; default 1000000",
    ),
    ("cool-down", "operations for which such demotions rest; default 10000000"),
    ("high-watermark", "percent of the fast tier at which demotions begin, 2 to 99; default 98"),
    ("low-watermark", "percent at which they end; default 3 less"),
    (
        "record-compression",
        "values on the fast tier and in memory: none, lz4 or zstd; default that of `compression`",
    ),
    ("index-copies", "indexes of tables on the fast tier: auto, always or never; default auto"),
    ("write-budget", "capacities of the slow tier written a day, 0 for no bound; default 0"),
    ("without", "rules that are left out, by name, with / between them; default none"),
];

/// Those that are no settings of a store, so that its settings do not tell them.
pub(super) const EXPERIMENTS: [&str; 11] = [
    "policy",
    "candidates",
    "range-tables",
    "promotion",
    "read-triggered",
    "epoch",
    "cool-down",
    "low-watermark",
    "without",
    "log-first",
    "log-zeros",
];

/// Words for compressions.
pub(super) const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

/// The settings that the options come to, where tables have `compression`. Numbers out of their
/// ranges pass; the engine's check refuses them.
pub(super) fn settings(options: &OpenOptions, compression: Compression) -> Outcome<HybridSettings> {
    let mut hybrid =
        HybridSettings { record_compression: compression, ..HybridSettings::default() };
    choose(options, "record-compression", &COMPRESSIONS, &mut hybrid.record_compression)?;
    let variants = [("tuned", Variant::Tuned), ("paper", Variant::Paper)];
    choose(options, "variant", &variants, &mut hybrid.variant)?;
    let copies = [
        ("auto", IndexCopies::Auto),
        ("always", IndexCopies::Always),
        ("never", IndexCopies::Never),
    ];
    choose(options, "index-copies", &copies, &mut hybrid.index_copies)?;
    if let Some(percent) = options.option("pinning").filter(|percent| *percent != "auto") {
        hybrid.pinning_percent = percent
            .parse()
            .map_err(|_| format!("option pinning={percent}: it is 0 to 100 or auto"))?;
    }
    let numbers = [
        ("runs", &mut hybrid.runs),
        ("tracker", &mut hybrid.tracker_percent),
        ("high-watermark", &mut hybrid.high_watermark_percent),
    ];
    for (name, number) in numbers {
        if let Some(named) = options.parsed(name)? {
            *number = named;
        }
    }
    if let Some(budget) = options.parsed("write-budget")? {
        hybrid.write_budget_dwpd = budget;
    }
    Ok(hybrid)
}

/// What the label varies that is no setting of a store.
pub(super) fn experiments(options: &OpenOptions) -> Outcome<Experiments> {
    let names = options.option("without").into_iter().flat_map(|names| names.split('/'));
    let rules = names.map(str::parse::<Rule>).collect::<Result<Vec<_>, _>>()?;
    let mut experiments = rules.into_iter().fold(Experiments::NONE, Experiments::without);
    let policies = [
        ("random", Some(DemotionPolicy::Random)),
        ("precise", Some(DemotionPolicy::Precise)),
        ("approximate", Some(DemotionPolicy::Approximate)),
    ];
    choose(options, "policy", &policies, &mut experiments.policy)?;
    let promotions = [
        ("none", Some(Promotion::None)),
        ("demotion", Some(Promotion::Demotion)),
        ("read", Some(Promotion::Read)),
    ];
    choose(options, "promotion", &promotions, &mut experiments.promotion)?;
    let switch = [("on", Some(true)), ("off", Some(false))];
    choose(options, "read-triggered", &switch, &mut experiments.read_triggered)?;
    choose(options, "log-first", &switch, &mut experiments.log_first)?;
    choose(options, "log-zeros", &switch, &mut experiments.log_zeros)?;
    experiments.pinning = (options.option("pinning") == Some("auto")).then_some(Pinning::Auto);
    experiments.candidates = options.parsed("candidates")?;
    experiments.range_tables = options.parsed("range-tables")?;
    experiments.runs = options.parsed("runs")?;
    experiments.low_watermark_percent = options.parsed("low-watermark")?;
    experiments.epoch_operations = options.parsed("epoch")?;
    experiments.cool_down_operations = options.parsed("cool-down")?;
    Ok(experiments)
}

/// Sets `to` to what the option's word means.
pub(super) fn choose<T: Copy>(
    options: &OpenOptions,
    name: &str,
    words: &[(&str, T)],
    to: &mut T,
) -> Outcome<()> {
    let Some(word) = options.option(name) else { return Ok(()) };
    let Some((_, meaning)) = words.iter().find(|(known, _)| *known == word) else {
        let known: Vec<_> = words.iter().map(|(known, _)| *known).collect();
        let (last, first) = known.split_last().ok_or("an option without values")?;
        return Err(format!("option {name}={word}: it is {} or {last}", first.join(", ")).into());
    };
    *to = *meaning;
    Ok(())
}
