//! Settings are kept as they are, and wrong ones are refused with the reason.

use super::fast_cache::CacheCapacity;
use super::*;
use std::path::PathBuf;
use thermocline_foundation::random::Random;

#[test]
fn settings_survive_toml_and_unknown_names_are_named() {
    let tiers = vec![Tier::new("/mnt/fast", ByteSize::gib(1)).driver("direct")];
    let settings = Settings { tiers, ..Settings::default() };
    let origin = Path::new("store.toml");
    let text = settings.to_toml().unwrap();
    assert_eq!(Settings::from_toml(&text, origin).unwrap(), settings);
    let error = Settings::from_toml("memory = '1 GiB'\nmemroy = '2 GiB'\n", origin).unwrap_err();
    assert!(error.to_string().contains("store.toml, line 2"), "{error}");
    assert!(error.to_string().contains("memroy"), "{error}");
    let error = Settings::from_toml("level_ratio = 1", origin).unwrap_err();
    assert!(error.to_string().contains("level_ratio = 1 is out of range"), "{error}");
}

#[test]
fn placement_is_the_same_whether_or_not_the_tiers_are_known_yet() {
    let tiers = [8 << 20, 16 << 20, 1 << 30, 1 << 40].map(ByteSize);
    for (capacity, memory) in tiers.into_iter().zip([4, 8, 64, 1024].map(ByteSize::mib)) {
        let tiers = vec![Tier::new("/fast", capacity), Tier::new("/slow", ByteSize::gib(1))];
        let preset = Some(Preset::Leveled);
        let made = Settings { tiers, preset, memory, ..Settings::default() };
        let opened = Settings { tiers: Vec::new(), ..made.clone() };
        assert_eq!(made.by_level(), opened.by_level());
        let logs = made.logs_bytes();
        assert!(made.fast_table_bytes().unwrap() + logs <= capacity.0, "{capacity}");
    }
}

#[test]
fn logs_of_full_memtables_keep_to_their_part_of_tier_0() {
    let mut random = Random::new(1);
    for _ in 0..5000 {
        let mut size = |least_bits, most_bits| {
            let bits = least_bits + random.below(most_bits - least_bits);
            ByteSize((1u64 << bits) + random.below(1u64 << bits))
        };
        let (capacity, memory) = (size(20, 42), size(20, 36));
        let preset = Some([Preset::Leveled, Preset::Hybrid][random.below(2) as usize]);
        let log_writes = 1 + random.below(3) as u32;
        let tiers = vec![Tier::new("/fast", capacity), Tier::new("/slow", ByteSize::gib(1))];
        let settings = Settings { tiers, preset, memory, log_writes, ..Settings::default() };
        assert!(settings.logs_bytes() <= capacity.0 / 32 * 5, "{settings:?}");
        let memtable_bytes = settings.division().memtable_bytes;
        let copies = if log_writes > 1 { 2 } else { 1 };
        let least = copies * (memtable_bytes + memtable_bytes / 32);
        assert!(least <= settings.log_bytes(), "{settings:?}");
        let small = settings.log_bytes() / copies / 2;
        assert!(memtable_bytes >= small.min(memory.0 / 24), "{settings:?}");
    }
}

#[allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#[test]
fn settings_are_as_documented() {
    let preset = Some(Preset::Leveled);
    let settings = Settings { preset, background_threads: 2, ..Settings::default() };
    let written = settings.to_kept_toml().unwrap();
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "settings-defaults-v1.toml"]
            .iter()
            .collect();
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &written).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(golden, written);
    assert_eq!(Settings::from_toml(&golden, &path).unwrap(), settings);
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let settings = Settings { preset: Some(preset), ..Settings::default() };
        let name = format!("preset = \"{}\"", preset.name());
        assert!(settings.to_kept_toml().unwrap().contains(&name));
    }
    for (open_files, is_taken) in [(0, true), (23, false), (24, true), (1_000_001, false)] {
        let settings = Settings { open_files, ..settings.clone() };
        assert_eq!(settings.check().is_ok(), is_taken, "{open_files}");
        let written = settings.to_kept_toml().unwrap();
        assert_eq!(written.contains("open_files"), open_files > 0);
    }
    for (request_queue, bytes, request_workers, is_taken) in [
        (1, 64 << 10, 0, true),
        (1 << 20, 1 << 40, 64, true),
        (0, 64 << 10, 0, false),
        ((1 << 20) + 1, 64 << 10, 0, false),
        (1, (64 << 10) - 1, 0, false),
        (1, 64 << 10, 65, false),
    ] {
        let request_queue_bytes = ByteSize(bytes);
        let few =
            Settings { request_queue, request_queue_bytes, request_workers, ..settings.clone() };
        assert_eq!(few.check().is_ok(), is_taken, "{request_queue}, {bytes}, {request_workers}");
    }
    for (loggers_max, timeout_ms, bytes, is_taken) in [
        (1, 0, 4 << 10, true),
        (3, 3_600_000, 256 << 20, true),
        (0, 0, 4 << 10, false),
        (4, 0, 4 << 10, false),
        (1, 3_600_001, 4 << 10, false),
        (1, 0, (4 << 10) - 1, false),
        (1, 0, (256 << 20) + 1, false),
    ] {
        let (lock_timeout, transaction_bytes_max) = (Duration::ms(timeout_ms), ByteSize(bytes));
        let few = Settings { loggers_max, lock_timeout, transaction_bytes_max, ..settings.clone() };
        assert_eq!(few.check().is_ok(), is_taken, "{loggers_max}, {timeout_ms} ms, {bytes} B");
    }
    let others = ["loggers_max", "lock_timeout", "transaction_bytes_max"];
    assert!(others.iter().all(|name| !written.contains(name)));
    let text = "loggers_max = 2\nlock_timeout = '5 s'\ntransaction_bytes_max = '1 MiB'";
    let few = Settings::from_toml(text, &path).unwrap();
    assert_eq!((few.loggers_max, few.lock_timeout), (2, Duration::ms(5000)));
    assert_eq!(few.transaction_bytes_max, ByteSize::mib(1));
    // Their values would be refused by builds that have no such settings.
    assert!(!written.contains("placement") && !written.contains("bandwidth"));
    // What releases wrote that had more settings, or fewer.
    let more = golden.replace("[hybrid]", "[hybrid]\npolicy = \"random\"\ncandidates = 8");
    assert_eq!(Settings::from_toml(&more, &path).unwrap(), settings);
    let wrong = Settings::from_toml(&more.replace("runs = 3", "runs = 'x'"), &path);
    assert!(wrong.unwrap_err().to_string().contains("settings-defaults-v1.toml: invalid type"));
    let few = Settings::from_toml("memory = '64 MiB'", &path).unwrap();
    assert_eq!(few, Settings { memory: ByteSize::mib(64), ..Settings::default() });
}

#[test]
fn dictionaries_are_as_large_as_memory_allows_and_only_where_there_is_zstd() {
    let bytes = |memory, threads, size, compression| {
        let settings = Settings {
            memory: ByteSize::mib(memory),
            background_threads: threads,
            dictionary_size: ByteSize(size),
            compression: vec![Compression::None, compression],
            ..Settings::default()
        };
        settings.check().unwrap();
        let without = Settings { dictionary_size: ByteSize(0), ..settings.clone() };
        let bytes = settings.dictionary_bytes();
        let cached = [&settings, &without].map(|settings| settings.division().cache_bytes);
        assert_eq!(bytes > 0, cached[0] < cached[1], "its buffers come from the cache");
        assert!(cached[0] + (memory << 20) / 16 >= cached[1]);
        bytes
    };
    assert_eq!(bytes(256, 2, 16 << 10, Compression::Zstd), 16 << 10);
    assert_eq!(bytes(256, 2, 64 << 10, Compression::Zstd), 43_690);
    assert_eq!(bytes(64, 2, 16 << 10, Compression::Zstd), 10_922);
    for (memory, threads, size, compression) in [
        (63, 2, 16 << 10, Compression::Zstd),
        (64, 64, 16 << 10, Compression::Zstd),
        (256, 2, 0, Compression::Zstd),
        (256, 2, 16 << 10, Compression::Lz4),
    ] {
        assert_eq!(bytes(memory, threads, size, compression), 0, "{memory} MiB, {threads}, {size}");
    }
    for wrong in [511, (64 << 10) + 1] {
        let settings = Settings { dictionary_size: ByteSize(wrong), ..Settings::default() };
        assert!(settings.check().unwrap_err().to_string().contains("dictionary_size"));
    }
    let kept = Settings::default().to_toml().unwrap();
    assert!(!kept.contains("dictionary"), "builds before would refuse the name");
}

#[test]
fn a_cache_of_what_the_levels_leave_is_a_word_for_leveled_alone() {
    let path = Path::new("settings.toml");
    let read = |text: &str| -> Result<Settings> {
        let settings = Settings::from_toml(text, path)?;
        settings.check()?;
        Ok(settings)
    };
    let auto = "[fast_cache]\ncapacity = 'auto'";
    let settings = read(&format!("preset = 'leveled'\n{auto}")).unwrap();
    assert_eq!(settings.fast_cache.capacity, CacheCapacity::Auto);
    assert!(settings.to_toml().unwrap().contains("capacity = \"auto\""));
    assert_eq!(settings.fast_cache_bytes(), 0, "one tier");
    let tiers = vec![Tier::new("/fast", ByteSize::mib(64)), Tier::new("/slow", ByteSize::gib(1))];
    let tiered = Settings { tiers, ..settings };
    assert_eq!(tiered.fast_cache_bytes(), 64 << 20);
    assert!(tiered.by_level().cache_takes_rest);
    let without = Settings { fast_cache: FastCacheSettings::default(), ..tiered.clone() };
    assert!(tiered.division().cache_bytes < without.division().cache_bytes);
    let with_tier = |bytes| {
        let tiers = vec![Tier::new("/fast", bytes), tiered.tiers[1].clone()];
        Settings { memory: ByteSize::mib(256), tiers, ..tiered.clone() }
    };
    let large = with_tier(ByteSize::gib(1 << 10));
    let memory = large.fast_cache_bytes() / large.stored_block_bytes() * 16;
    assert!((31 << 20..=32 << 20).contains(&memory), "{memory} B of memory look the cache up");
    let without = Settings { fast_cache: FastCacheSettings::default(), ..large.clone() };
    assert!(large.division().cache_bytes > without.division().cache_bytes / 2);
    let huge = Settings { memory: ByteSize::gib(1 << 10), ..with_tier(ByteSize::gib(8 << 10)) };
    assert_eq!(huge.fast_cache_bytes(), 2 << 40);
    read(&format!("preset = 'leveled'\nplacement = 'log_only'\n{auto}")).unwrap();
    for others in ["preset = 'hybrid'", "preset = 'leveled'\nplacement = 'bandwidth'"] {
        let error = read(&format!("{others}\n{auto}")).unwrap_err().to_string();
        assert!(error.contains("name a size, or 0 for no cache"), "{error}");
    }
    let error = read("[fast_cache]\ncapacity = 'much'").unwrap_err().to_string();
    assert!(error.contains("or auto"), "{error}");
}

#[test]
fn tiers_are_parsed_from_their_end() {
    let tier = Tier::parse("/mnt/a:b:10GiB:direct").unwrap();
    assert_eq!(tier, Tier::new("/mnt/a:b", ByteSize::gib(10)).driver("direct"));
    assert_eq!(Tier::parse("fast:64M").unwrap(), Tier::new("fast", ByteSize::mib(64)));
    for text in ["fast", "fast:", ":64M", "fast:lots", "fast:lots:direct"] {
        assert!(Tier::parse(text).is_err(), "{text}");
    }
}

#[test]
fn each_word_for_a_placement_makes_its_policy_and_is_kept() {
    let names = [
        ("room", "by-level", None),
        ("bandwidth", "bandwidth", Some(1)),
        ("parallelism", "parallelism", Some(2)),
        ("fill_first", "fill-first", None),
        ("log_only", "log_only", Some(0)),
        ("top_levels(2)", "top_levels", Some(3)),
    ];
    let origin = Path::new("store.toml");
    for (word, name, levels) in names {
        let text = format!("preset = 'leveled'\nplacement = '{word}'\nbandwidth_low = 20");
        let settings = Settings::from_toml(&text, origin).unwrap();
        let policy = settings.placement_policy();
        assert_eq!((policy.name(), policy.fast_levels()), (name, levels));
        let kept = settings.to_kept_toml().unwrap();
        assert_eq!(Settings::from_toml(&kept, origin).unwrap(), settings);
    }
    let refusal = |text: &str| Settings::from_toml(text, origin).unwrap_err().to_string();
    assert!(
        refusal("placement = 'top'").contains("there are room, bandwidth, parallelism, fill_first")
    );
    assert!(refusal("placement = 'top_levels(7)'").contains("levels are 0 to 6"));
    let text = "preset = 'hybrid'\nplacement = 'log_only'";
    assert!(refusal(text).contains("name preset = \"leveled\""));
    assert!(refusal("bandwidth_low = 66").contains("it must be 0 to 65 %"));
    assert!(refusal("bandwidth_high = 101").contains("1 to 100 %"));
    assert!(refusal("bandwidth_peak = '1 KiB'").contains("bandwidth_peak"));
}
