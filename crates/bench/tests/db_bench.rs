//! The command line of `thermocline-db_bench` as a person uses it: what it prints and refuses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program on a store in `folder`.
fn db_bench(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline-db_bench"));
    command.arg("--db").arg(folder.join("store")).args(["--memory", "16MiB"]).args(words);
    command.output().unwrap()
}

/// The lines of a run that must succeed.
fn lines(folder: &Path, words: &[&str]) -> Vec<String> {
    let output = db_bench(folder, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What a run that must fail says.
fn refusal(folder: &Path, words: &[&str]) -> String {
    let output = db_bench(folder, words);
    assert!(!output.status.success(), "{words:?}");
    assert!(output.stdout.is_empty(), "{words:?} printed results");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_benchmark_reports_its_figures_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let names = "fillseq,overwrite,waitforcompaction,readrandom,readmissing,readseq,seekrandom,\
                 readwhilewriting";
    let words = ["--num", "2000", "--reads", "500", "--threads", "2", "--value-size", "100"];
    let found = lines(folder.path(), &[&words[..], &["--json", "--benchmarks", names]].concat());
    let rows: Vec<Value> = found.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reported: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(reported.join(","), names);
    let count = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["p99_us"].as_f64() >= row["p50_us"].as_f64(), "{row}");
        (row["operations"].as_u64().unwrap(), row["absent"].as_u64().unwrap())
    };
    assert_eq!(count("fillseq"), (2000, 0));
    assert_eq!(count("readrandom"), (500, 0), "fillseq wrote every key");
    assert_eq!(count("readmissing"), (500, 500));
    assert_eq!(count("readseq"), (2000, 0));
}

#[test]
fn a_store_that_is_there_is_used_only_where_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let fill = ["--num", "300", "--benchmarks", "fillseq"];
    let text = lines(folder.path(), &fill);
    assert!(text[0].starts_with("fillseq") && text[0].contains("ops/s"), "{text:?}");
    assert!(refusal(folder.path(), &fill).contains("say --existing"));
    let read = ["--num", "300", "--benchmarks", "readrandom", "--existing", "--json"];
    let row: Value = serde_json::from_str(&lines(folder.path(), &read)[0]).unwrap();
    assert_eq!((row["operations"].as_u64(), row["absent"].as_u64()), (Some(300), Some(0)));
}

#[test]
fn what_cannot_be_is_refused_before_a_store_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for (words, reason) in [
        (&["--benchmarks", "fillrandom,fillslow"][..], "fillslow"),
        (&["--key-size", "4"], "8..=65535"),
        (&["--value-size", "8"], "16..=1048576"),
        (&["--threads", "0"], "1..=1024"),
        (&["--background-sync", "lots"], "lots"),
        (&["--tier", "nowhere"], "nowhere"),
        (&["--durability", "maybe"], "sync, buffered"),
    ] {
        let text = refusal(folder.path(), words);
        assert!(text.contains(reason), "{words:?}: {text}");
        assert!(!folder.path().join("store").exists(), "{words:?}");
    }
    assert!(refusal(folder.path(), &["--num", "7", "--threads", "2"]).contains("multiple of 2"));
}

#[test]
fn tiers_that_are_named_hold_the_data_and_their_traffic_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let tier = |name: &str| format!("{}:64MiB", folder.path().join(name).display());
    let (fast, slow) = (tier("fast"), tier("slow"));
    let words = ["--num", "500", "--json", "--benchmarks", "fillrandom", "--stats"];
    let found = lines(folder.path(), &[&words[..], &["--tier", &fast, "--tier", &slow]].concat());
    let row: Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!(row["tiers"].as_array().unwrap().len(), 2, "{row}");
    assert!(row["tiers"][0]["written_bytes"].as_u64().unwrap() > 500 * 1000, "{row}");
    let stats: Value = serde_json::from_str(&found[1..].concat()).unwrap();
    assert_eq!(stats["tiers"].as_array().unwrap().len(), 2);
}
