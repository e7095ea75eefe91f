//! One small test that every engine must pass, ours and theirs: what is read is what a model says,
//! before and after the store was closed, and also in a copy at another path. Hosts over tiers by
//! our plugin pass it, too, where the plugin is built; their copies lie at the original's place,
//! to which the links in them lead.

#![allow(clippy::disallowed_methods, reason = "the test copies directories")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use thermocline_bench::files;
use thermocline_bench::store::{
    Change, Durability, EngineKind, Layout, Needs, OpenOptions, REGION_SIZE, Store, TierSpace,
};
use thermocline_foundation::ByteSize;
use thermocline_foundation::random::Random;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 500;
const OPERATIONS: u64 = 6000;
/// Where each of them waits for a disk.
const SYNCED_OPERATIONS: u64 = 300;

/// Options over `tiers` new directories below `folder`.
fn options(folder: &Path, tiers: usize) -> OpenOptions {
    let names = ["fast", "slow"];
    let spaces = names[..tiers].iter().map(|name| {
        let path = folder.join(name);
        fs::create_dir_all(&path).unwrap();
        TierSpace { name: (*name).to_owned(), path, capacity: ByteSize(256 << 20) }
    });
    OpenOptions {
        tiers: spaces.collect(),
        memory: ByteSize(64 << 20),
        durability: Durability::Buffered,
        direct: false,
        threads: 2,
        key_bytes: 24,
        value_bytes: 100,
        records: KEYS,
        loading: false,
        options: BTreeMap::new(),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:020}").into_bytes()
}

/// Writes and removes at random, in the store and in the model.
fn change(store: &dyn Store, model: &mut Model, seed: u64, durability: Durability) {
    let mut random = Random::new(seed);
    let operations = match durability {
        Durability::Buffered => OPERATIONS,
        Durability::Sync => SYNCED_OPERATIONS,
    };
    for operation in 0..operations {
        let key = key(random.below(KEYS));
        if random.below(4) == 0 {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![operation as u8; random.below(400) as usize];
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn compare(store: &dyn Store, model: &Model) {
    let mut value = vec![1, 2, 3];
    for number in 0..=KEYS {
        let key = key(number);
        let found = store.get(&key, &mut value).unwrap();
        assert_eq!(found.then_some(&value), model.get(&key), "key {number}");
    }
    for (from, count) in [(0, 1), (0, KEYS), (100, 10), (KEYS - 3, 50), (KEYS, 1), (7, 0)] {
        let start = key(from);
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        let returned = store.scan(&start, count, visit).unwrap();
        let expected: Vec<_> = model
            .range(start..)
            .take(count as usize)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(found, expected, "scan of {count} from {from}");
        assert_eq!(returned as usize, expected.len());
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn conform(kind: &dyn EngineKind, layout: Layout, durability: Durability, more: &[(&str, &str)]) {
    if let Some(reason) = kind.unavailable() {
        assert!(kind.open(&options(Path::new("."), 0)).is_err(), "{reason}");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let tiers = if layout == Layout::Tiers { 2 } else { 1 };
    let mut first = options(&home.path().join("one"), tiers);
    first.durability = durability;
    for (name, value) in more {
        assert!(has_option(kind, name), "{name}");
        first.options.insert((*name).to_owned(), (*value).to_owned());
    }
    assert!(!kind.describe(&first).unwrap().is_empty());
    let mut model = Model::new();
    let store = kind.open(&first).unwrap();
    compare(&*store, &model);
    change(&*store, &mut model, 1, durability);
    compare(&*store, &model);
    store.settle().unwrap();
    compare(&*store, &model);
    change(&*store, &mut model, 2, durability);
    store.sync().unwrap();
    store.close().unwrap();
    let store = kind.open(&first).unwrap();
    compare(&*store, &model);
    store.close().unwrap();

    let [one, two] = ["one", "two"].map(|name| home.path().join(name));
    let place = if first.options.contains_key(FILES) {
        files::copy(&one, &two).unwrap();
        fs::remove_dir_all(&one).unwrap();
        files::copy(&two, &one).unwrap();
        &one
    } else {
        copy(&one, &two);
        fs::remove_dir_all(&one).unwrap();
        &two
    };
    let mut second = options(place, tiers);
    (second.durability, second.options) = (durability, first.options.clone());
    let store = kind.open(&second).unwrap();
    compare(&*store, &model);
    change(&*store, &mut model, 3, durability);
    compare(&*store, &model);
    store.close().unwrap();
}

#[test]
fn every_engine_answers_as_the_model_does_and_lives_in_its_directories() {
    // These are no whole stores: two keep nothing, two have neither scans nor deletes.
    let parts = ["null", "device", "thermocline-commit-slots", "thermocline-commit-log"];
    // One with libraries of its own is tried below.
    let is_tried =
        |kind: &&dyn EngineKind| !parts.contains(&kind.name()) && kind.libraries().is_none();
    for kind in thermocline_bench_rivals::all().into_iter().filter(is_tried) {
        for layout in [Layout::Fast, Layout::Tiers] {
            // Such an engine has both only where its label says how.
            let is_asked = kind.needs() == Needs::OneOrAsked && layout == Layout::Tiers;
            if kind.needs().allow(layout) && !is_asked {
                conform(kind, layout, Durability::Buffered, options_of(kind));
            }
        }
        conform(kind, kind.needs().usual(), Durability::Sync, options_of(kind));
    }
}

/// What an engine has to have in its label.
fn options_of(kind: &dyn EngineKind) -> &'static [(&'static str, &'static str)] {
    match kind.name() {
        "thermocline-indexed" => &[(REGION_SIZE, "64MiB")],
        _ => &[],
    }
}

/// Says which engine the test below is to try.
const CONFORMS: &str = "CONFORMS";
/// Behind its name there: over tiers by our plugin.
const OVER_TIERS: &str = "+files=thermocline";
const FILES: &str = "files";
const LEVEL_FROM: &str = "level-from";

fn has_option(kind: &dyn EngineKind, option: &str) -> bool {
    kind.options().iter().any(|(name, _)| *name == option)
}

/// Runs the test below for an engine, in a process with other folders; what it printed.
fn conforms_elsewhere(name: &str, kind: &dyn EngineKind) -> String {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "an_engine_conforms_with_the_libraries_of_this_process", "--ignored"]);
    test.arg("--nocapture").env(CONFORMS, name).env("THERMOCLINE_PLUGINS", plugins());
    if let Some(folder) = kind.libraries() {
        test.env("LD_LIBRARY_PATH", folder);
    }
    let output = test.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("1 passed"), "{name}: {said}");
    said
}

/// Where `cargo xtask plugins` builds to.
fn plugins() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    target.unwrap_or_else(own).join("plugins")
}

#[test]
#[allow(clippy::disallowed_macros, reason = "what is skipped is named")]
fn hosts_over_tiers_by_our_plugin_conform_where_it_is_built() {
    let engines = thermocline_bench_rivals::all();
    for kind in engines.iter().filter(|kind| has_option(**kind, FILES)) {
        let name = format!("{}{OVER_TIERS}", kind.name());
        let said = match kind.unavailable() {
            None => conforms_elsewhere(&name, *kind),
            Some(why) => format!("skipped: {name}: {why}"),
        };
        said.lines().filter(|line| line.contains("skipped: ")).for_each(|line| println!("{line}"));
    }
}

#[test]
fn engines_with_libraries_of_their_own_conform_in_a_process_that_has_them() {
    let engines = thermocline_bench_rivals::all();
    for kind in engines.iter().filter(|kind| kind.unavailable().is_none()) {
        if kind.libraries().is_some() {
            conforms_elsewhere(kind.name(), *kind);
        }
    }
}

#[test]
#[ignore = "the tests above run it, in a process of its own"]
#[allow(clippy::disallowed_macros, reason = "what is skipped is named")]
fn an_engine_conforms_with_the_libraries_of_this_process() {
    let asked = std::env::var(CONFORMS).unwrap();
    let name = asked.trim_end_matches(OVER_TIERS);
    let engines = thermocline_bench_rivals::all();
    let kind = engines.into_iter().find(|kind| kind.name() == name).unwrap();
    if asked == name {
        conform(kind, Layout::Fast, Durability::Buffered, &[]);
        conform(kind, Layout::Tiers, Durability::Buffered, &[("levels", "tuned")]);
        conform(kind, kind.needs().usual(), Durability::Sync, &[]);
        return;
    }
    let files = [(FILES, "thermocline")];
    let home = tempfile::tempdir().unwrap();
    let mut over_tiers = options(home.path(), 1);
    over_tiers.options = files.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    match kind.describe(&over_tiers) {
        Err(why) if why.to_string().contains("builds the plugins") => {
            println!("skipped: {asked}: {why}");
        }
        _ => {
            conform(kind, Layout::Slow, Durability::Buffered, &files);
            conform(kind, Layout::Tiers, Durability::Buffered, &files);
            conform(kind, Layout::Tiers, Durability::Sync, &files);
            if has_option(kind, LEVEL_FROM) {
                // By `Env::from_raw`, without a listener.
                let by_log = [files[0], (LEVEL_FROM, "log")];
                conform(kind, Layout::Tiers, Durability::Buffered, &by_log);
            }
            let cached = [files[0], ("keep", "extents"), ("placement", "log_only")];
            conform(kind, Layout::Tiers, Durability::Buffered, &cached);
        }
    }
}

#[test]
fn what_is_missing_is_named_with_a_reason() {
    for name in ["hotrap", "prismdb"] {
        let kind =
            thermocline_bench_rivals::all().into_iter().find(|kind| kind.name() == name).unwrap();
        assert!(kind.unavailable().unwrap().contains("docs/rivals.md"));
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_conforms_as_it_is_tuned_for_two_tiers() {
    let tuned = [("levels", "tuned"), ("row-cache", "8MiB"), ("cache", "lru")];
    conform(
        &thermocline_bench_rivals::rocksdb::ROCKSDB,
        Layout::Tiers,
        Durability::Buffered,
        &tuned,
    );
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_conforms_with_its_cache_on_the_fast_tier() {
    let cached = [("persistent-cache", "16MiB"), ("row-cache", "8MiB"), ("index", "partitioned")];
    let rocksdb = &thermocline_bench_rivals::rocksdb::ROCKSDB;
    conform(rocksdb, Layout::Tiers, Durability::Buffered, &cached);
}

/// More of 1 KB than memory has room for.
#[cfg(feature = "rocksdb")]
const RECORDS: u64 = 30_000;

/// Tables lie on the slow tier; what is read again comes from the fast one.
#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_reads_blocks_again_from_its_cache_on_the_fast_tier() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(home.path(), 2);
    options.memory = ByteSize(12 << 20);
    options.options.insert("persistent-cache".to_owned(), "64MiB".to_owned());
    let kind = &thermocline_bench_rivals::rocksdb::ROCKSDB;
    let value = |number: u64| Random::new(number).next_u64().to_le_bytes().repeat(125);
    options.loading = true;
    let store = kind.open(&options).unwrap();
    assert!(store.second_level().is_none(), "nothing is kept of what is loaded");
    (0..RECORDS).for_each(|number| store.put(&key(number), &value(number)).unwrap());
    store.settle().unwrap();
    store.close().unwrap();
    options.loading = false;
    let store = kind.open(&options).unwrap();
    let mut read = Vec::new();
    for _ in 0..3 {
        for number in 0..RECORDS {
            assert!(store.get(&key(number), &mut read).unwrap());
            assert_eq!(read, value(number), "{number}");
        }
    }
    let level = store.second_level().unwrap();
    assert!(level.hits > level.misses / 4 && level.written_bytes > 16 << 20, "{level:?}");
    store.close().unwrap();
    let names = |place: &str| {
        let entries = fs::read_dir(home.path().join(place)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert!(names("slow/db").iter().any(|name| name.ends_with(".sst")));
    assert!(names("fast/cache/cache").iter().any(|name| name.ends_with(".rc")));
    assert!(!names("fast").contains(&"db".to_owned()));
}

/// Several threads write the same two records together; both end as the same thread wrote them.
fn write_in_transactions(kind: &dyn EngineKind, locking: &str) {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(home.path(), 1);
    options.options.insert("transactions".to_owned(), locking.to_owned());
    let store = kind.open(&options).unwrap();
    let names = [key(1), key(2)];
    let gone = key(3);
    store.put(&gone, b"to be removed").unwrap();
    let changes = |value: &'static [u8]| {
        let [first, second] = names.each_ref().map(|key| Change { key, value: Some(value) });
        [first, second, Change { key: &gone, value: None }]
    };
    std::thread::scope(|scope| {
        for value in [&b"one"[..], b"two", b"three"] {
            let (store, changes) = (&store, &changes);
            scope.spawn(move || (0..50).for_each(|_| store.transact(&changes(value)).unwrap()));
        }
    });
    let mut values = [Vec::new(), Vec::new()];
    for (key, value) in names.iter().zip(&mut values) {
        assert!(store.get(key, value).unwrap());
    }
    assert_eq!(values[0], values[1], "{} {locking}", kind.name());
    assert!(!store.get(&gone, &mut values[0]).unwrap());
    store.close().unwrap();
}

#[test]
fn what_a_transaction_changes_changes_together() {
    for locking in ["optimistic", "pessimistic"] {
        write_in_transactions(&thermocline_bench::engines::LEVELED, locking);
        #[cfg(feature = "rocksdb")]
        write_in_transactions(&thermocline_bench_rivals::rocksdb::ROCKSDB, locking);
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_conforms_as_a_database_with_transactions() {
    for kind in ["optimistic", "pessimistic"] {
        conform(
            &thermocline_bench_rivals::rocksdb::ROCKSDB,
            Layout::Fast,
            Durability::Buffered,
            &[("transactions", kind)],
        );
    }
}
