//! `soak`: a large history with kill -9 at random moments, every answer compared with a model.
//!
//! The history is fixed by `--num`: put every key once in scattered order, delete every third,
//! overwrite every third, compact. The model is therefore a function of how far it got, and needs
//! no memory: each batch also sets the key `progress`. The parent starts itself again as a child,
//! kills it at random moments and starts the next; each child first checks that nothing the one
//! before acknowledged is missing and that a sample of keys is what the model says, and goes on.
//! At the end all records are compared, forwards and backwards, and every byte is verified. The
//! preset is `leveled`, over two tiers.
//!
//! ```text
//!   soak --db DIR [--num 5000000] [--kills 10] [--memory 512MiB] [--seed 1]
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::exit)]

use clap::Parser;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use thermocline::{ByteSize, Db, Durability, Preset, Settings, Tier, WriteBatch};
use thermocline_foundation::random::{Random, mix};

#[global_allocator]
static ALLOCATOR: thermocline_allocator::Allocator = thermocline_allocator::Allocator;

#[derive(Clone, Debug, Parser)]
#[command(about = "A large history with kill -9 at random moments, compared with a model")]
struct Arguments {
    /// The store's directory; must not exist
    #[arg(long)]
    db: PathBuf,
    /// Records
    #[arg(long, default_value_t = 5_000_000)]
    num: u64,
    /// Kills before the history may end
    #[arg(long, default_value_t = 10)]
    kills: u32,
    /// The store's memory budget
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Chooses the moments of the kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For the parent: go on with the history after this many operations were acknowledged
    #[arg(long, hide = true)]
    child: Option<u64>,
}

/// A failed step ends the run.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const VALUE_BYTES: usize = 1000;
const BATCH: u64 = 64;

fn key(number: u64) -> String {
    format!("key{number:021}")
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; VALUE_BYTES];
    // Half of it compresses.
    Random::new(mix(number) ^ version).fill(&mut bytes[..VALUE_BYTES / 2]);
    bytes
}

/// The key of the put of this rank: a bijection, so every key is put once, in scattered order.
fn scattered(rank: u64, num: u64) -> u64 {
    (u128::from(rank) * 2_654_435_761 % u128::from(num)) as u64
}

/// What the model says of a key after `done` operations.
fn expected(number: u64, rank: u64, done: u64, num: u64) -> Option<Vec<u8>> {
    let third = number / 3;
    match number % 3 {
        0 if done > num + third => None,
        1 if done > num + num.div_ceil(3) + third => Some(value(number, 2)),
        _ if rank < done => Some(value(number, 1)),
        _ => None,
    }
}

fn apply(operation: u64, num: u64, batch: &mut WriteBatch) {
    let deletes = num.div_ceil(3);
    if operation < num {
        let number = scattered(operation, num);
        batch.put(key(number), value(number, 1));
    } else if operation < num + deletes {
        batch.delete(key((operation - num) * 3));
    } else {
        let number = (operation - num - deletes) * 3 + 1;
        batch.put(key(number), value(number, 2));
    }
}

fn operations(num: u64) -> u64 {
    num + num.div_ceil(3) + (num + 1) / 3
}

fn open(arguments: &Arguments) -> Outcome<Db> {
    let data = ByteSize(arguments.num * 1100);
    let settings = Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![
            Tier::new(arguments.db.join("fast"), ByteSize(data.0 / 5 + (256 << 20))),
            Tier::new(arguments.db.join("slow"), ByteSize(data.0 * 4 + (1 << 30))),
        ],
        memory: arguments.memory,
        ..Settings::default()
    };
    Ok(Db::open_or_create(arguments.db.join("home"), &settings)?)
}

fn progress(db: &Db) -> Outcome<u64> {
    match db.get("progress")? {
        Some(bytes) => Ok(u64::from_le_bytes(bytes.as_ref().try_into()?)),
        None => Ok(0),
    }
}

/// Goes on with the history; prints how much is acknowledged.
fn child(arguments: &Arguments, acknowledged: u64) -> Outcome<()> {
    let num = arguments.num;
    let db = open(arguments)?;
    let mut done = progress(&db)?;
    assert!(done >= acknowledged, "{acknowledged} operations were acknowledged, {done} are there");
    let mut random = Random::new(arguments.seed ^ done);
    for _ in 0..20_000 {
        let rank = random.below(num);
        let number = scattered(rank, num);
        let got = db.get(key(number))?;
        assert!(got.as_deref() == expected(number, rank, done, num).as_deref(), "key {number}");
    }
    println!("checked {done}");
    while done < operations(num) {
        let end = (done + BATCH).min(operations(num));
        let mut batch = WriteBatch::new();
        (done..end).for_each(|operation| apply(operation, num, &mut batch));
        batch.put("progress", end.to_le_bytes());
        db.write_with(batch, Durability::Buffered)?;
        done = end;
        println!("done {done}");
    }
    db.compact_range(None, None, &mut |_| {})?;
    compare_all(&db, num)?;
    let report = db.verify(&mut |_| {})?;
    assert!(report.is_ok(), "{:?}", report.problems);
    println!("compared {} {}", report.files, report.bytes);
    Ok(db.close()?)
}

/// Every record, both ways, against the model at the end of the history.
fn compare_all(db: &Db, num: u64) -> Outcome<()> {
    let survives = |number: &u64| !number.is_multiple_of(3);
    let version = |number: u64| if number % 3 == 1 { 2 } else { 1 };
    let mut records = db.scan().prefix("key").into_iter();
    for number in (0..num).filter(survives) {
        let (found, bytes) = records.next().ok_or("a record is missing at the end")??;
        assert!(found == key(number) && bytes == value(number, version(number)), "{number}");
    }
    assert!(records.next().is_none());
    let mut records = db.scan().prefix("key").reverse().into_iter();
    for number in (0..num).rev().filter(survives) {
        let (found, _) = records.next().ok_or("a record is missing at the start")??;
        assert!(found == key(number), "backwards at {number}");
    }
    assert!(records.next().is_none());
    Ok(())
}

fn start(arguments: &Arguments, acknowledged: u64) -> Outcome<Child> {
    let child = Command::new(std::env::current_exe()?)
        .arg("--db")
        .arg(&arguments.db)
        .args(["--num", &arguments.num.to_string(), "--memory", &arguments.memory.to_string()])
        .args(["--seed", &arguments.seed.to_string(), "--child", &acknowledged.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Runs one child, killed after `life` if given; returns what it acknowledged and whether it ended.
fn run(arguments: &Arguments, acknowledged: u64, life: Option<Duration>) -> Outcome<(u64, bool)> {
    let mut running = start(arguments, acknowledged)?;
    let output = running.stdout.take().ok_or("the child has no output")?;
    let lines = BufReader::new(output).lines();
    let reader = std::thread::spawn(move || {
        let (mut acknowledged, mut compared) = (acknowledged, false);
        for line in lines.map_while(Result::ok) {
            if let Some(done) = line.strip_prefix("done ") {
                acknowledged = done.parse().unwrap_or(acknowledged);
            } else {
                compared |= line.starts_with("compared");
                println!("{line}");
            }
        }
        (acknowledged, compared)
    });
    if let Some(life) = life {
        std::thread::sleep(life);
        running.kill()?;
    }
    let status = running.wait()?;
    let (acknowledged, compared) =
        reader.join().map_err(|_| "the reader of the child's output failed")?;
    assert!(life.is_some() || (status.success() && compared), "the last child failed: {status}");
    Ok((acknowledged, compared))
}

fn main() -> Outcome<()> {
    thermocline_allocator::give_back_early();
    let arguments = Arguments::parse();
    if let Some(acknowledged) = arguments.child {
        return child(&arguments, acknowledged);
    }
    std::fs::create_dir(&arguments.db)?;
    let mut random = Random::new(arguments.seed);
    let mut acknowledged = 0;
    for kill in 0..arguments.kills {
        let life = Duration::from_millis(2_000 + random.below(8_000));
        let (now, ended) = run(&arguments, acknowledged, Some(life))?;
        println!("kill {}: {now} of {} operations", kill + 1, operations(arguments.num));
        acknowledged = now;
        if ended {
            break;
        }
    }
    run(&arguments, acknowledged, None)?;
    println!("every answer was the model's");
    Ok(())
}
