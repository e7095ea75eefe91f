//! The page from results that are made up: what must be on it, and what a browser makes of it.

use super::*;
use crate::results::{
    Bound, Engine, Latency, Machine, Measured, Row, Scenario, Skipped, Traffic, TrafficSource,
};
use crate::store::{Durability, Layout, TierSpace, TierTraffic};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const ENGINES: [(&str, Layout, f64); 3] = [
    ("thermocline-leveled@tiers", Layout::Tiers, 1.3),
    ("rocksdb@tiers+levels=tuned+row-cache=120MiB", Layout::Tiers, 1.0),
    ("rocksdb@fast", Layout::Fast, 2.4),
];

fn measured(speed: f64, round: u32, layout: Layout) -> Measured {
    let ops_per_s = 45_000.0 * speed * (1.0 + 0.03 * f64::from(round));
    let tier = |read_bytes, written_bytes| TierTraffic {
        reads: read_bytes / 4096,
        read_bytes,
        writes: written_bytes / 65_536,
        written_bytes,
        syncs: written_bytes / (8 << 20),
    };
    let tiers = match layout {
        Layout::Tiers => vec![tier(900 << 20, 400 << 20), tier(300 << 20, 500 << 20)],
        _ => vec![tier(1200 << 20, 900 << 20)],
    };
    Measured {
        operations: 400_000,
        seconds: 8.0,
        ops_per_s,
        last_tenth_ops_per_s: ops_per_s * 1.1,
        latency: BTreeMap::from([(
            "all".to_owned(),
            Latency {
                count: 400_000,
                mean_us: 120.0 / speed,
                p50_us: 20.0 / speed,
                p90_us: 150.0,
                p99_us: 900.0 / speed,
                p999_us: 8_000.0,
                max_us: 90_000.0,
            },
        )]),
        timeline: (0..9).map(|s| (ops_per_s * (0.9 + 0.02 * f64::from(s))) as u64).collect(),
        cpu_us_per_op: 9.4,
        peak_rss_bytes: 180 << 20,
        traffic: Traffic { source: TrafficSource::Devices, tiers },
        write_amplification: Some(3.2),
        space_amplification: Some(1.12),
        demotion_ms: Some(12.5),
        fast_read_share: (layout == Layout::Tiers).then_some(0.75),
        slow_reads_per_op: Some(0.18),
        bound: (layout == Layout::Tiers).then_some(Bound {
            resident_share: 0.24,
            miss_rate: 0.095,
            ops_per_s: 105_000.0,
            share: ops_per_s / 105_000.0,
        }),
        ..Measured::default()
    }
}

/// Results of three engines on three workloads, one of which failed for one of them.
pub fn results() -> Results {
    let scenario = Scenario {
        records: 2_000_000,
        key_bytes: 24,
        value_bytes: 1000,
        threads: 8,
        memory_bytes: 120 << 20,
        memory_limit_bytes: Some(200 << 20),
        direct: true,
        rounds: 2,
        fast_bytes: 400 << 20,
        notes: BTreeMap::from([("rig".to_owned(), "<two> devices".to_owned())]),
        ..Scenario::default()
    };
    let mut results = Results::new("two tiers & more", scenario, Machine::default(), 7);
    results.baseline = Some(ENGINES[1].0.to_owned());
    for (label, layout, _) in ENGINES {
        results.engines.push(Engine {
            label: label.to_owned(),
            about: "an engine".to_owned(),
            layout,
            options: vec![
                ("block_size".to_owned(), "4 KiB".to_owned()),
                ("path".to_owned(), "/a-very-long-name".repeat(20)),
            ],
        });
    }
    for round in 1..=2 {
        for workload in ["ycsb-a", "ycsb-c", "hotrap-ro/hotspot-5"] {
            for (engine, layout, speed) in ENGINES {
                let failed = workload == "ycsb-c" && engine == ENGINES[2].0;
                results.rows.push(Row {
                    engine: engine.to_owned(),
                    workload: workload.to_owned(),
                    round,
                    seed: u64::from(round),
                    durability: Durability::Buffered,
                    tiers: tiers(layout),
                    measured: (!failed).then(|| measured(speed, round, layout)),
                    failure: failed
                        .then(|| format!("no space left <on> device{}", "/x".repeat(300))),
                });
            }
        }
    }
    let reason = "there is no package of it".to_owned();
    results.skipped.push(Skipped { engine: "hotrap".to_owned(), workload: None, reason });
    results
}

fn tiers(layout: Layout) -> Vec<TierSpace> {
    let names: &[&str] = if layout == Layout::Tiers { &["fast", "slow"] } else { &["fast"] };
    let tier = |name: &&str| TierSpace {
        name: (*name).to_owned(),
        path: PathBuf::from("x"),
        capacity: ByteSize(1 << 30),
    };
    names.iter().map(tier).collect()
}

const SECTIONS: [&str; 8] =
    ["throughput", "latency", "timelines", "traffic", "cost", "lifetime", "numbers", "engines"];

#[test]
fn the_page_has_every_section_and_names_what_is_missing() {
    let page = page(&results(), &Prices::default());
    for section in SECTIONS {
        assert!(page.contains(&format!("<section id='{section}'>")), "{section}");
    }
    for text in [
        "two tiers &amp; more",
        "rig: &lt;two&gt; devices",
        "no space left &lt;on&gt; device",
        "hotrap on all workloads: there is no package of it",
        "×1.30",
        "best possible placement: 105 k op/s",
        "(ratios are to it)",
        "block_size",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn results_of_a_figure_begin_with_it_and_others_have_none() {
    let mut results = results();
    assert!(!page(&results, &Prices::default()).contains("<section id='figure'>"));
    let note = ("figure of the PrismDB paper".to_owned(), "6".to_owned());
    results.scenario.notes.extend([note]);
    for (row, policy) in results.rows.iter_mut().zip(["random", "precise", "approximate"]) {
        row.engine = format!("thermocline-hybrid@tiers+policy={policy}");
    }
    let bars = page(&results, &Prices::default());
    let section = bars.split("<section id='figure'>").nth(1).unwrap();
    let section = section.split("</section>").next().unwrap();
    assert_eq!(section.matches("<svg").count(), 4, "with times of demotions");
    for policy in ["random", "precise", "approximate"] {
        assert!(section.contains(&format!("class='name'>{policy}</text>")), "{policy}");
    }
    let note = ("figure of the PrismDB paper".to_owned(), "11".to_owned());
    results.scenario.notes.extend([note]);
    for (row, skew) in results.rows.iter_mut().zip(["0.4", "0.99", "1.4"]) {
        row.engine = "<hybrid>".to_owned();
        row.workload = format!("ycsb-a/zipf-{skew}");
    }
    let lines = page(&results, &Prices::default());
    let section = lines.split("<section id='figure'>").nth(1).unwrap();
    let section = section.split("</section>").next().unwrap();
    assert_eq!(section.matches("<path").count(), 2, "op/s and p99");
    assert!(section.contains("Zipf exponent") && !section.contains("<hybrid>"));
}

#[test]
fn a_picture_of_a_figure_stands_alone_and_names_its_colours() {
    let mut results = results();
    assert_eq!(figure::picture(&results), None);
    let note = ("figure of the PrismDB paper".to_owned(), "11".to_owned());
    results.scenario.notes.extend([note]);
    let engines = ["<hybrid>", "<hybrid>", "other"];
    for (row, (skew, engine)) in
        results.rows.iter_mut().zip(["0.4", "0.99", "1.4"].iter().zip(engines))
    {
        row.engine = engine.to_owned();
        row.workload = format!("ycsb-a/zipf-{skew}");
    }
    let picture = figure::picture(&results).unwrap();
    assert!(picture.starts_with("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 840 "));
    assert_eq!(picture.matches("<svg").count(), 3, "op/s and p99 in one");
    assert!(picture.contains("&lt;hybrid&gt;</text>") && picture.contains("--card"));
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        let inside = picture.replace("http://www.w3.org/2000/svg", "");
        assert!(!inside.contains(outside), "{outside}");
    }
}

#[test]
fn a_picture_of_several_engines_has_a_plot_of_bars_and_the_bound_for_each_workload() {
    let results = results();
    let picture = comparison(&results).unwrap();
    let workloads = Subject::new(&results, &Prices::default()).workloads().len();
    assert_eq!(picture.matches("<svg").count(), 1 + workloads);
    assert!(picture.contains("thermocline-leveled@tiers") && picture.contains("class='mark'"));
    let one = Results { rows: results.rows[..1].to_vec(), engines: Vec::new(), ..results };
    assert_eq!(comparison(&one), None, "one engine is no comparison");
}

#[test]
fn plots_of_a_picture_come_in_rows() {
    let plot = || svg::bars("bars", &[]);
    let of = |count: usize| {
        let plots: Vec<_> = (0..count).map(|_| ("plot", plot())).collect();
        let picture = svg::picture("label", &plots, &[]);
        picture.split('\'').find(|part| part.starts_with("0 0 ")).unwrap().to_owned()
    };
    let sizes = [1, 2, 3, 4, 5].map(of);
    assert_eq!(sizes, ["0 0 420 32", "0 0 840 32", "0 0 1260 32", "0 0 840 60", "0 0 840 88"]);
}

#[test]
fn the_page_loads_nothing() {
    let page = page(&results(), &Prices::default());
    for outside in ["http:", "https:", "src=", "@import", "url(", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_page_of_no_rows_is_still_a_page() {
    let empty = Results::new("none", Scenario::default(), Machine::default(), 0);
    let page = page(&empty, &Prices::default());
    assert!(page.contains("<section id='numbers'>") && !page.contains("<section id='latency'>"));
}

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    names.iter().find(found).copied()
}

/// Measures what was laid out, and writes it into the document, where `--dump-dom` shows it.
const PROBE: &str = "<script>addEventListener('load', () => {
  let outside = 0;
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 ||
          box.bottom > frame.bottom + 2) { outside += 1; console.error('outside', text.innerHTML); }
    }
  }
  const filled = [...document.querySelectorAll('rect')].filter(
    r => getComputedStyle(r).fill !== 'rgb(0, 0, 0)' && r.getBoundingClientRect().width > 0);
  const wide = document.documentElement.scrollWidth > innerWidth ? 'yes' : 'no';
  document.body.dataset.probe = `plots ${document.querySelectorAll('svg').length} ` +
    `outside ${outside} filled ${filled.length} wide ${wide} ` +
    `sections ${document.querySelectorAll('section[id]').length}`;
});</script></body>";

#[test]
fn a_browser_shows_it_without_complaint_and_nothing_is_cut_off() {
    let Some(browser) = browser() else {
        let text = "skipped: no browser found (apt-get install chromium)\n";
        std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let page = page(&results(), &Prices::default()).replace("</body>", PROBE);
    host_files::write_text(&path, &page).unwrap();
    for width in ["1400", "500"] {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
            .args(["--virtual-time-budget=5000", "--dump-dom"])
            .arg(format!("--window-size={width},1000"))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", path.display()))
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        let complaint = complaints.lines().find(|line| line.contains("CONSOLE"));
        assert_eq!(complaint, None, "at {width}");
        let dom = String::from_utf8_lossy(&output.stdout);
        // Throughput, traffic: 3 each; latency, timelines, cost: 3; lifetime: 3. Of 8 and 8 bars
        // the latter have four parts for two tiers and two for one; a failed bar has no traffic.
        let expected = "plots 18 outside 0 filled 37 wide no sections 8";
        let probe = dom.split("data-probe=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(probe, Some(expected), "at {width}: {complaints}");
    }
}
