//! Seeded histories: what a user does to a database, and what happens to the machine meanwhile.
//!
//! A history is a list of [`Step`]s that follows from a seed and a [`Shape`]. Keys are few, so that
//! they are overwritten and deleted often; values name their key and step and end in a digest, so
//! that a check finds bytes that no step wrote.

use std::collections::BTreeMap;
use thermocline::{
    Admission, BlockLayout, ByteSize, CacheCapacity, Compression, DemotionPolicy, Durability,
    Eviction, Experiments, FastCacheSettings, HybridSettings, IndexCopies, Pinning,
    PlacementChoice, Preset, Promotion, Settings, Tier, Variant,
};
use thermocline_foundation::random::{Random, mix};
use xxhash_rust::xxh3::xxh3_64;

/// A key and what it is set to; none: it is removed.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch, acknowledged so.
    Write(Vec<Write>, Durability),
    /// A bulk load, past the log.
    Ingest(Vec<(Vec<u8>, Vec<u8>)>),
    /// Everything in memory goes to tables.
    Flush,
    /// All of it goes to the deepest level.
    Compact,
    /// What was acknowledged is made durable.
    Sync,
    /// A copy of the database is made and compared.
    Checkpoint,
    /// The database is closed and opened.
    Reopen,
    /// Background work is given so many steps.
    Background(u32),
    /// Background work is given all the steps it wants.
    Settle,
    /// A key is looked up, in the present and in a snapshot if one is held.
    Get(Vec<u8>),
    /// Keys are looked up together.
    MultiGet(Vec<Vec<u8>>),
    /// All records from a key on are compared, forward or backward.
    Scan(Vec<u8>, bool),
    /// A snapshot is taken, in place of the one that is held.
    Snapshot,
    /// What the snapshot shows is compared with what it showed, and it is let go.
    ReleaseSnapshot,
    /// A cursor is opened, in place of the one that is held.
    Cursor,
    /// The cursor goes on so far.
    Advance(u32),
    /// The process is killed and another opens the database.
    Kill,
    /// The power is cut and comes back; the number draws what survives.
    PowerCut(u64),
    /// The power of one tier is cut, and the process is killed.
    TierPowerCut(u64),
    /// The wall clock is set back so many nanoseconds.
    ClockBack(u64),
}

/// What kind of database and load a history is for.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Steps.
    pub steps: usize,
    /// Keys that are used.
    pub keys: u64,
    /// Machines stop in between, so that later parts of the history start from what survived.
    pub crashes: bool,
    /// The process ends in between by itself.
    pub reopens: bool,
    /// Values of up to 50 kB, so that memtables fill up by themselves.
    pub large_values: bool,
}

/// The key with a number.
pub fn key(number: u64) -> Vec<u8> {
    // Different lengths, and neighbours that share long prefixes.
    let tail = "-and-a-tail".repeat((number % 4) as usize);
    format!("key{:03}{tail}", number).into_bytes()
}

/// A value of about `len` bytes that names its key and the step that wrote it, and ends in a
/// digest of itself. An empty one stays empty.
pub fn value(key: &[u8], step: usize, len: usize, compressible: bool) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    let mut bytes = format!("{}|{step:06}|", key.escape_ascii()).into_bytes();
    let start = bytes.len();
    bytes.resize(start + len, b'.');
    if !compressible {
        Random::new(mix(step as u64) ^ xxh3_64(key)).fill(&mut bytes[start..]);
    }
    let digest = xxh3_64(&bytes);
    bytes.extend_from_slice(&digest.to_le_bytes());
    bytes
}

/// As [`value`], of which about `len` bytes cannot be compressed and a third more can.
pub fn value_in_part_compressible(key: &[u8], step: usize, len: usize) -> Vec<u8> {
    let mut bytes = value(key, step, len, false);
    bytes.resize(bytes.len() + len / 3, b'.');
    let digest = xxh3_64(&bytes);
    bytes.extend_from_slice(&digest.to_le_bytes());
    bytes
}

/// `value` is one that [`value`] made for `key`.
pub fn is_genuine(key: &[u8], value: &[u8]) -> bool {
    let Some((body, digest)) = value.split_last_chunk::<8>() else { return value.is_empty() };
    let prefix = format!("{}|", key.escape_ascii());
    body.starts_with(prefix.as_bytes()) && xxh3_64(body).to_le_bytes() == *digest
}

/// Draws steps.
struct Author<'a> {
    random: Random,
    shape: &'a Shape,
    /// The preset is `hybrid`.
    hybrid: bool,
    /// Writes of a large batch, at least.
    batch: u64,
    /// Values that share slabs are so many times as long as on two tiers.
    times: u64,
}

/// Lengths of values that follow each other in histories of the preset `hybrid`: few of the large
/// ones fit into a slab, so slabs of one size come to be in the way of the next.
const LENGTHS: [u64; 5] = [6_800, 3_000, 5_000, 700, 9_000];

/// Steps after which the next length is used.
const STEPS_OF_LENGTH: usize = 12;

impl Author<'_> {
    fn key(&mut self) -> Vec<u8> {
        key(self.random.below(self.shape.keys))
    }

    fn value(&mut self, key: &[u8], step: usize) -> Vec<u8> {
        let len = match self.random.below(24) {
            // About four of these fill a memtable.
            0..=9 if self.shape.large_values => self.random.below(40_000),
            0 => 0,
            1..=15 => self.random.below(300),
            16..=21 => self.random.below(3_000),
            _ if self.shape.large_values => self.random.below(50_000),
            22 => self.random.below(20_000),
            _ => self.random.below(6_000),
        };
        let compressible = self.random.below(2) == 0;
        value(key, step, len as usize, compressible)
    }

    fn write(&mut self, step: usize) -> Write {
        let key = self.key();
        let value = (self.random.below(4) > 0).then(|| match self.hybrid {
            true => self.value_of_a_size(&key, step),
            false => self.value(&key, step),
        });
        (key, value)
    }

    /// Values that share slabs: most are about as long as their neighbours in time.
    fn value_of_a_size(&mut self, at: &[u8], step: usize) -> Vec<u8> {
        if self.random.below(5) == 0 {
            return self.value(at, step);
        }
        let len = self.times * LENGTHS[step / STEPS_OF_LENGTH % LENGTHS.len()];
        let len = len + self.random.below(len / 32);
        value(at, step, len as usize, self.random.below(2) == 0)
    }

    /// A key that is asked for often, mostly.
    fn hot_key(&mut self) -> Vec<u8> {
        match self.random.below(3) {
            0 => self.key(),
            _ => key(self.random.below(4) * 3 % self.shape.keys),
        }
    }

    /// What the preset `hybrid` needs more of: large batches, and reads of the same keys.
    fn hybrid_step(&mut self, step: usize) -> Step {
        match self.random.below(100) {
            0..=13 => {
                let count = self.batch + self.random.below(16);
                let writes = (0..count).map(|_| self.write(step)).collect();
                Step::Write(writes, self.durability())
            }
            14..=20 => Step::MultiGet((0..6).map(|_| self.hot_key()).collect()),
            21..=32 => Step::Get(self.hot_key()),
            33..=35 => Step::Scan(self.hot_key(), self.random.below(2) == 0),
            _ => self.any_step(step),
        }
    }

    fn durability(&mut self) -> Durability {
        if self.random.below(3) == 0 { Durability::Sync } else { Durability::Buffered }
    }

    fn ingest(&mut self, step: usize) -> Step {
        let mut records = BTreeMap::new();
        for _ in 0..1 + self.random.below(8) {
            let key = self.key();
            let value = self.value(&key, step);
            records.insert(key, value);
        }
        Step::Ingest(records.into_iter().collect())
    }

    fn step(&mut self, step: usize) -> Step {
        if self.hybrid { self.hybrid_step(step) } else { self.any_step(step) }
    }

    fn any_step(&mut self, step: usize) -> Step {
        match self.random.below(100) {
            0..=27 => Step::Write(vec![self.write(step)], self.durability()),
            28..=39 => {
                let count = 1 + self.random.below(8);
                let writes = (0..count).map(|_| self.write(step)).collect();
                Step::Write(writes, self.durability())
            }
            40..=47 => Step::Flush,
            48..=49 => Step::Compact,
            50..=52 => Step::Sync,
            53..=55 => self.ingest(step),
            56 => Step::Checkpoint,
            57..=66 => Step::Background(1 + self.random.below(12) as u32),
            67..=68 => Step::Settle,
            69..=73 => Step::Get(self.key()),
            74..=75 => Step::MultiGet((0..4).map(|_| self.key()).collect()),
            76..=78 => Step::Scan(self.key(), self.random.below(2) == 0),
            79..=81 => Step::Snapshot,
            82..=83 => Step::ReleaseSnapshot,
            84..=85 => Step::Cursor,
            86..=89 => Step::Advance(1 + self.random.below(10) as u32),
            90..=92 if self.shape.reopens => Step::Reopen,
            93..=94 if self.shape.crashes => Step::Kill,
            95..=96 if self.shape.crashes => Step::PowerCut(self.random.next_u64()),
            97 if self.shape.crashes => Step::TierPowerCut(self.random.next_u64()),
            98 => Step::ClockBack(self.random.below(10_000_000_000_000)),
            _ => Step::Write(vec![self.write(step)], Durability::Buffered),
        }
    }
}

/// The steps of `seed`.
pub fn history(seed: u64, shape: &Shape) -> Vec<Step> {
    let batch = if has_long_slabs(seed) { 64 } else { 8 };
    let times = if has_third_tier(seed) { 4 } else { 1 };
    let (random, hybrid) = (Random::new(seed), is_hybrid(seed));
    let mut author = Author { random, shape, hybrid, batch, times };
    (0..shape.steps).map(|step| author.step(step)).collect()
}

/// The home of the simulated database, and its tiers, of which a history uses one to three.
pub const HOME: &str = "/home";
/// See [`HOME`].
pub const TIERS: [&str; 3] = ["/fast", "/slow", "/slower"];

/// Histories of this seed are of the preset `hybrid`: one in four.
pub fn is_hybrid(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

/// The fast tier of this seed has room for slabs of several lengths: one in eight of those of the
/// preset `hybrid`. On the others all slabs have the least length.
pub fn has_long_slabs(seed: u64) -> bool {
    seed % 32 == 28
}

/// Databases of this seed have three tiers, of which the second is as small as the first: one in
/// five of those of the preset `hybrid`. The others of it have two.
pub fn has_third_tier(seed: u64) -> bool {
    matches!(seed % 40, 32 | 36)
}

/// Databases of this seed have a cache of blocks on the fast tier, where there is a slower one:
/// three seeds of sixty-four, of both presets.
pub fn has_fast_cache(seed: u64) -> bool {
    matches!(seed % 64, 31 | 44 | 51)
}

/// Databases of this seed have a cache of what the levels of the fast tier leave, where there is a
/// slower one: one seed of sixty-four, of the preset `leveled`.
pub fn has_auto_cache(seed: u64) -> bool {
    seed % 64 == 29
}

/// The smallest files and batches there are, and each policy in turn. Half of them take about all
/// blocks: histories ask for few of them twice.
fn fast_cache(seed: u64) -> FastCacheSettings {
    let draw = |salt, count| mix(seed ^ salt) as usize % count;
    let admissions = [
        Admission::Always,
        Admission::Always,
        Admission::SecondAccess,
        Admission::SimulatedLru,
        Admission::Always,
        Admission::Frequency,
        Admission::SecondAccess,
        Admission::SimulatedLru,
    ];
    let evictions = [Eviction::FifoReinsert, Eviction::Fifo, Eviction::FileLru];
    FastCacheSettings {
        capacity: ByteSize::mib(1).into(),
        admission: admissions[draw(0xCA_0001, 8)],
        eviction: evictions[draw(0xCA_0002, 3)],
        file_size: ByteSize::kib(64),
        batch: ByteSize::kib(16),
        layout: [BlockLayout::Packed, BlockLayout::Padded][draw(0xCA_0003, 2)],
        ..FastCacheSettings::default()
    }
}

/// Background work makes way for the log in databases of this seed.
pub fn has_log_first(seed: u64) -> bool {
    seed % 8 == 6 || seed.is_multiple_of(28)
}

/// Devices of this seed note first writes, so logs of its databases get zeros ahead: one in eight,
/// and one in eight of those of the preset `hybrid`.
pub fn notes_first_writes(seed: u64) -> bool {
    seed % 8 == 7 || seed % 32 == 12
}

/// Where the tables of `leveled` go: by their room, but for one seed in six.
fn placement(seed: u64) -> PlacementChoice {
    match seed % 24 {
        7 => PlacementChoice::LogOnly,
        15 => PlacementChoice::TopLevels(1),
        23 => PlacementChoice::Bandwidth,
        11 => PlacementChoice::Parallelism,
        _ => PlacementChoice::Room,
    }
}

/// Settings that follow from `seed`, so small that a few hundred records pass through several
/// levels and tiers.
pub fn settings(seed: u64) -> Settings {
    let leveled = leveled_settings(seed);
    let settings = if is_hybrid(seed) { hybrid_settings(seed, leveled).0 } else { leveled };
    if has_auto_cache(seed) && settings.tiers.len() > 1 {
        let fast_cache = FastCacheSettings { capacity: CacheCapacity::Auto, ..fast_cache(seed) };
        // In every second one tables lie where the cache is of use.
        let placement = match seed / 64 % 2 {
            0 => settings.placement,
            _ => PlacementChoice::LogOnly,
        };
        return Settings { fast_cache, placement, ..settings };
    }
    match has_fast_cache(seed) && settings.tiers.len() > 1 {
        true => with_fast_cache(seed, settings),
        false => settings,
    }
}

/// `settings` with a cache of blocks. Tables lie where it is of use, so little as a history has of
/// them.
pub fn with_fast_cache(seed: u64, settings: Settings) -> Settings {
    let fast_cache = fast_cache(seed);
    match is_hybrid(seed) {
        true => Settings { fast_cache, ..settings },
        false => Settings {
            fast_cache,
            placement: PlacementChoice::LogOnly,
            bandwidth_peak: ByteSize(0),
            ..settings
        },
    }
}

/// What a database of `seed` is opened with beside its settings.
pub fn experiments(seed: u64) -> Experiments {
    let log_first = Some(has_log_first(seed));
    let others = match is_hybrid(seed) {
        true => hybrid_settings(seed, leveled_settings(seed)).1,
        false => Experiments::NONE,
    };
    let log_zeros = Some(notes_first_writes(seed));
    // Every second cache of blocks takes one for another all the time.
    let signature_bits = mix(seed ^ 0xCA_0004).is_multiple_of(2).then_some(4);
    Experiments { log_first, log_zeros, signature_bits, ..others }
}

/// Records in slots of a small fast tier, tables below. What is drawn here comes from a generator
/// of its own, so that it moves nothing in the histories of other seeds.
fn hybrid_settings(seed: u64, leveled: Settings) -> (Settings, Experiments) {
    let mut random = Random::new(mix(seed ^ 0x51AB_0001));
    let fast = [1, 1, 1, 1, 2, 4][random.below(6) as usize];
    let fast = ByteSize::mib(if has_long_slabs(seed) { 16 } else { fast });
    let tier = |index: usize, capacity| Tier::new(TIERS[index], capacity).driver("memory");
    let policies = [DemotionPolicy::Precise, DemotionPolicy::Approximate, DemotionPolicy::Random];
    let promotions = [Promotion::Read, Promotion::Read, Promotion::Demotion, Promotion::None];
    // Where a few hundred KiB must cause demotions the watermarks are low.
    let watermarks = [(98, 95), (98, 95), (98, 95), (40, 20), (15, 8)];
    let (high_watermark_percent, low_watermark_percent) = watermarks[random.below(5) as usize];
    let policy = policies[random.below(3) as usize];
    let candidates = 1 + random.below(8) as usize;
    let range_tables = 1 + random.below(3) as usize;
    let runs = 1 + random.below(6) as u32;
    let variant = [Variant::Tuned, Variant::Paper][random.below(2) as usize];
    let tracker_percent = [0, 20, 100][random.below(3) as usize];
    let pinning_percent = [70, 70, 0, 100][random.below(4) as usize];
    let pinning = [Pinning::Fixed, Pinning::Fixed, Pinning::Auto][random.below(3) as usize];
    let experiments = Experiments {
        policy: Some(policy),
        candidates: Some(candidates),
        range_tables: Some(range_tables),
        runs: Some(runs as usize),
        low_watermark_percent: Some(low_watermark_percent),
        pinning: Some(pinning),
        promotion: Some(promotions[random.below(4) as usize]),
        read_triggered: Some(true),
        // A history has a few hundred operations.
        epoch_operations: Some(100),
        cool_down_operations: Some(300),
        ..Experiments::NONE
    };
    let hybrid = HybridSettings {
        variant,
        runs,
        high_watermark_percent,
        tracker_percent,
        pinning_percent,
        record_compression: match seed / 4 % 12 {
            ..6 => Compression::None,
            6 | 8 | 10 => Compression::Lz4,
            _ => Compression::Zstd,
        },
        index_copies: if seed % 32 == 24 { IndexCopies::Always } else { IndexCopies::Auto },
        ..HybridSettings::default()
    };
    let below = if has_third_tier(seed) { &[1, 256][..] } else { &[256] };
    let below = below.iter().zip(1..).map(|(mib, index)| tier(index, ByteSize::mib(*mib)));
    let settings = Settings {
        preset: Some(Preset::Hybrid),
        placement: PlacementChoice::Room,
        tiers: std::iter::once(tier(0, fast)).chain(below).collect(),
        hybrid,
        ..leveled
    };
    (settings, experiments)
}

fn leveled_settings(seed: u64) -> Settings {
    let mut random = Random::new(mix(seed ^ 0x5E77_1265));
    let count = 1 + random.below(3).max(random.below(3)) as usize;
    let small = [1, 2, 4][random.below(3) as usize];
    // Logs get a thirty-second of the first tier: small ones are soon read by a recovery.
    let capacity = |index| match (index, count) {
        (0, 1) => ByteSize::mib(16),
        // Some of the data fits, or most of it: tables move.
        (0, _) => ByteSize::mib(small),
        _ => ByteSize::mib(256),
    };
    let tier = |index: usize| Tier::new(TIERS[index], capacity(index)).driver("memory");
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let compression = (0..2).map(|_| compressions[random.below(3) as usize]).collect();
    Settings {
        preset: Some(Preset::Leveled),
        tiers: (0..count).map(tier).collect(),
        // Memtables of 85 KiB, so that a few hundred KiB reach several levels.
        memory: ByteSize::mib([1, 1, 1, 8][random.below(4) as usize]),
        table_size: ByteSize::kib(64),
        background_sync_bytes: ByteSize::kib(64),
        log_writes: if seed % 5 == 2 { 4 } else { 1 },
        placement: placement(seed),
        // A history that moves so much in a second moves the pointer.
        bandwidth_peak: ByteSize::mib(u64::from(placement(seed) == PlacementChoice::Bandwidth)),
        background_threads: 1 + random.below(2) as u32,
        level0_tables: 1 + random.below(3) as u32,
        level0_slowdown: 3 + random.below(3) as u32,
        level0_stop: 6 + random.below(6) as u32,
        block_size: ByteSize::kib(1 + random.below(4)),
        level_ratio: 2 + random.below(3) as u32,
        filter_bits_per_key: if random.below(4) == 0 { 0 } else { 10 },
        compression,
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_genuine_and_others_are_not() {
        let made = value(b"key", 7, 100, true);
        assert!(is_genuine(b"key", &made) && is_genuine(b"key", b""));
        assert!(!is_genuine(b"kez", &made) && !is_genuine(b"key", &made[1..]));
        let mut flipped = made.clone();
        flipped[30] ^= 1;
        assert!(!is_genuine(b"key", &flipped));
        assert_ne!(made, value(b"key", 8, 100, true));
    }

    #[test]
    fn caches_of_blocks_have_each_policy_in_turn() {
        for has_cache in [has_fast_cache, has_auto_cache] {
            let drawn: Vec<_> =
                (0..32_768).filter(|seed| has_cache(*seed)).map(fast_cache).collect();
            for admission in [
                Admission::Always,
                Admission::SecondAccess,
                Admission::SimulatedLru,
                Admission::Frequency,
            ] {
                for eviction in [Eviction::FifoReinsert, Eviction::Fifo, Eviction::FileLru] {
                    let both = (admission, eviction);
                    assert!(drawn.iter().any(|it| (it.admission, it.eviction) == both), "{both:?}");
                }
            }
        }
    }
}
