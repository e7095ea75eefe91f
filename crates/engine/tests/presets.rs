//! Which preset a store has: what its maker named, or what fits its tiers, and the same ever after.
//!
//! What is kept is the text of `settings.toml`, so these tests read and write it as people do.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "the file of settings is the tests' own")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use thermocline::{ByteSize, Db, Durability, Environment, Preset, Settings, Tier};
use thermocline_device::MemoryDevices;

/// A directory for a store and its tiers.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("db")
    }

    /// Tiers of 16 MiB, and the last of 1 GiB.
    fn tiers(&self, count: usize) -> Vec<Tier> {
        let capacity = |tier| if tier + 1 == count { ByteSize::gib(1) } else { ByteSize::mib(16) };
        let tier =
            |tier: usize| Tier::new(self.0.path().join(format!("tier-{tier}")), capacity(tier));
        (0..count).map(tier).collect()
    }

    /// Settings that name tiers, and no preset.
    fn settings(&self, tiers: usize) -> Settings {
        Settings {
            tiers: self.tiers(tiers),
            memory: ByteSize::mib(8),
            durability: Durability::Buffered,
            ..Settings::default()
        }
    }

    fn settings_path(&self) -> PathBuf {
        self.home().join("settings.toml")
    }

    fn kept(&self) -> String {
        std::fs::read_to_string(self.settings_path()).unwrap()
    }

    /// What the file of settings says, without looking at the code's opinion of it.
    fn kept_preset(&self) -> Option<String> {
        let text = self.kept();
        let line = text.lines().find_map(|line| line.strip_prefix("preset = "))?;
        Some(line.trim_matches('"').to_owned())
    }
}

/// The preset in force, by what the store does and by what it says.
fn preset_of(db: &Db) -> Preset {
    let stats = db.stats();
    let preset = db.settings().preset.unwrap();
    assert_eq!(stats.fast_tier.is_some(), preset == Preset::Hybrid, "it does as it says");
    assert_eq!(stats.preset, preset);
    preset
}

/// Writes records and closes; all of them are where the preset keeps them.
fn fill(db: Db) {
    for number in 0..5000u64 {
        db.put(number.to_be_bytes(), [number as u8; 300]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
}

fn check(db: &Db) {
    assert_eq!(db.scan().into_iter().map(Result::unwrap).count(), 5000);
    assert_eq!(db.get(77u64.to_be_bytes()).unwrap().as_deref(), Some(&[77; 300][..]));
}

#[test]
fn a_new_store_gets_the_preset_that_fits_its_tiers_and_keeps_it_by_name() {
    use Preset::{Hybrid, Leveled};
    for (tiers, preset, name) in [
        (0, Leveled, "leveled"),
        (1, Leveled, "leveled"),
        (2, Hybrid, "hybrid"),
        (3, Hybrid, "hybrid"),
    ] {
        let place = Place::new();
        let db = Db::create(place.home(), &place.settings(tiers)).unwrap();
        assert_eq!(preset_of(&db), preset, "{tiers} tiers");
        assert_eq!(place.kept_preset().as_deref(), Some(name), "{tiers} tiers");
        fill(db);
        let db = Db::open(place.home()).unwrap();
        assert_eq!(preset_of(&db), preset, "{tiers} tiers");
        check(&db);
    }
}

#[test]
fn a_preset_that_is_named_is_the_stores() {
    let place = Place::new();
    let builder = Db::builder().settings(place.settings(2)).preset(Preset::Leveled);
    let db = builder.create(place.home()).unwrap();
    assert_eq!(preset_of(&db), Preset::Leveled);
    assert_eq!(place.kept_preset().as_deref(), Some("leveled"));
}

type Open<'a> = &'a dyn Fn(&Path) -> thermocline::Result<Db>;

/// A program that opens a store has settings without a preset, and tiers that would mean the other
/// preset for a new store.
fn open_in_every_way(place: &Place, preset: Preset) {
    let unnamed = place.settings(2);
    let without_tiers = Settings { tiers: Vec::new(), ..unnamed.clone() };
    let ways: [Open<'_>; 4] = [
        &|home| Db::open(home),
        &|home| Db::open_with(home, &without_tiers),
        &|home| Db::open_with(home, &unnamed),
        &|home| Db::open_or_create(home, &unnamed),
    ];
    for (way, open) in ways.iter().enumerate() {
        let db = open(&place.home()).unwrap();
        assert_eq!(preset_of(&db), preset, "way {way}");
        check(&db);
        db.close().unwrap();
        let name = if preset == Preset::Hybrid { "hybrid" } else { "leveled" };
        assert_eq!(place.kept_preset().as_deref(), Some(name), "way {way}");
    }
}

#[test]
fn a_store_goes_on_with_its_preset_until_another_is_named() {
    let place = Place::new();
    let named = |preset| Settings { preset: Some(preset), ..place.settings(2) };
    fill(Db::create(place.home(), &named(Preset::Leveled)).unwrap());
    open_in_every_way(&place, Preset::Leveled);
    fill(Db::open_with(place.home(), &named(Preset::Hybrid)).unwrap());
    open_in_every_way(&place, Preset::Hybrid);
}

/// A file of settings without a preset: one that an older release wrote, or that a user cut. Such a
/// store was made when there was one default, and its records are in tables.
#[test]
fn an_old_store_without_a_preset_in_its_file_stays_leveled_and_is_named_so() {
    let place = Place::new();
    let leveled = Settings { preset: Some(Preset::Leveled), ..place.settings(2) };
    fill(Db::create(place.home(), &leveled).unwrap());
    let kept = place.kept();
    let lines: Vec<_> = kept.lines().filter(|line| !line.starts_with("preset")).collect();
    let old = lines.join("\n");
    assert_eq!(lines.len() + 1, kept.lines().count(), "the preset is a line of {kept}");
    std::fs::write(place.settings_path(), &old).unwrap();
    open_in_every_way(&place, Preset::Leveled);
    // Nor does a store without any file of settings become another one.
    std::fs::remove_file(place.settings_path()).unwrap();
    open_in_every_way(&place, Preset::Leveled);
    // Of an old store too the preset changes when it is named.
    std::fs::write(place.settings_path(), &old).unwrap();
    let hybrid = Settings { preset: Some(Preset::Hybrid), ..place.settings(2) };
    let db = Db::open_with(place.home(), &hybrid).unwrap();
    assert_eq!(preset_of(&db), Preset::Hybrid);
    check(&db);
}

/// The least fast tier that settings may name, with more memory than it has room, and records that
/// are larger than it: the default must do for every two tiers.
#[test]
fn the_smallest_fast_tier_works_with_the_default_preset_and_memory() {
    let environment =
        Environment { devices: Arc::new(MemoryDevices::new()), ..Environment::default() };
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    let tiers = vec![tier("/fast", 1), tier("/slow", 256)];
    let home = Path::new("/home");
    let settings = Settings { tiers, durability: Durability::Buffered, ..Settings::default() };
    let db = environment.create(home, &settings).unwrap();
    assert_eq!(preset_of(&db), Preset::Hybrid);
    let value = |number: u64| vec![number as u8; if number % 1000 == 999 { 3 << 20 } else { 2000 }];
    for number in 0..8000u64 {
        db.put(number.to_be_bytes(), value(number)).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.fast_tier.unwrap().demoted_records > 4000);
    assert!(stats.tiers[0].used_bytes <= stats.tiers[0].capacity_bytes, "{:?}", stats.tiers[0]);
    db.close().unwrap();
    let db = environment.open(home).unwrap();
    for number in 0..8000u64 {
        let found = db.get(number.to_be_bytes()).unwrap();
        assert!(found.is_some_and(|found| found[..] == value(number)[..]), "{number}");
    }
}

/// A build that does not know packed values refuses the name of what makes them.
#[test]
fn a_store_that_may_pack_values_says_so_in_its_settings_from_its_opening_on() {
    for (tiers, names) in [(2, true), (1, false)] {
        let place = Place::new();
        fill(Db::open_or_create(place.home(), &place.settings(tiers)).unwrap());
        let is_other = |line: &&str| !line.starts_with("record_compression");
        let older: Vec<_> = place.kept().lines().filter(is_other).map(str::to_owned).collect();
        std::fs::write(place.settings_path(), older.join("\n")).unwrap();
        let db = Db::open(place.home()).unwrap();
        let is_named = place.kept().contains("\nrecord_compression = \"lz4\"\n");
        assert_eq!(is_named, names, "{}", place.kept());
        check(&db);
    }
}
