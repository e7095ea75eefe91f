//! `repair`: what is damaged, what that costs, and taking it out of use.

use super::rebuild_index;
use crate::arguments::{Database, Repair};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::{store, text};
use serde::Serialize;
use std::path::Path;
use thermocline::{Environment, Lost, RepairPlan, RepairStep, Unreadable};
use thermocline_foundation::ByteSize;

/// Shows what a repair would do, or does it.
pub fn run(database: &Database, arguments: &Repair, json: bool) -> Result<()> {
    if arguments.apply && database.read_only {
        let text = "--apply writes to the database; leave --read-only out";
        return Err(Failure::Usage(text.to_owned()));
    }
    if arguments.rebuild_index {
        return rebuild_index::run(database, arguments, json);
    }
    let (home, settings) = store::home_and_settings(database)?;
    let (environment, settings) = (environment(arguments), settings.as_ref());
    let bar = Bar::new("reading", Some(0));
    let mut show = |progress| bar.show(&progress);
    let plan = match (arguments.rebuild_manifest, arguments.apply) {
        (false, true) => environment.repair(&home, settings, &mut show)?,
        (false, false) => environment.plan_repair(&home, settings, &mut show)?,
        (true, true) => environment.rebuild_manifest(&home, settings, &mut show)?,
        (true, false) => environment.plan_manifest_rebuild(&home, settings, &mut show)?,
    };
    let (command, does) = match arguments.rebuild_manifest {
        true => ("repair --rebuild-manifest", "makes the manifest anew"),
        false => ("repair", "takes them out of use"),
    };
    let skip = if arguments.skip_unreadable { " --skip-unreadable" } else { "" };
    drop(bar);
    let mut output = Output::new();
    match json {
        true => output.json(&Shown::of(&plan, arguments.apply))?,
        false => print(&plan, arguments.apply, &mut output)?,
    }
    output.finish()?;
    match plan.steps.len() as u64 {
        damaged if damaged > 0 && !arguments.apply => Err(Failure::new(format!(
            "{} damaged in {}, and nothing was changed; `{command}{skip} --apply` {does}",
            text::counted(damaged, "piece"),
            database.db.display()
        ))),
        _ => Ok(()),
    }
}

/// This machine, and what is known of its devices.
pub(super) fn environment(arguments: &Repair) -> Environment {
    let unreadable = match arguments.skip_unreadable {
        true => Unreadable::Skipped,
        false => Unreadable::Refused,
    };
    Environment { unreadable, ..Environment::default() }
}

fn print(plan: &RepairPlan, is_applied: bool, output: &mut Output) -> Result<()> {
    for step in &plan.steps {
        output.line(format!("{} (tier {})", step.file, step.tier))?;
        output.line(format!("  damage  {}", step.damage))?;
        output.line(format!("  repair  {}", step.repair))?;
        for lost in &step.lost {
            output.line(format!("  lost    {}", describe(lost)))?;
        }
        if let Some(kept) = &step.kept_as {
            output.line(format!("  kept    {}", kept.display()))?;
        }
    }
    let found = match (plan.steps.len() as u64, is_applied) {
        (0, _) => "nothing is damaged".to_owned(),
        (damaged, true) => format!("repaired {}", text::counted(damaged, "piece")),
        (damaged, false) => format!("found {} to repair", text::counted(damaged, "piece")),
    };
    let cost = cost(plan);
    let (files, bytes) = (text::counted(plan.files, "file"), ByteSize(plan.bytes));
    output.line(format!("read {files}, {bytes}: {found}{cost}"))?;
    match &plan.unmerged {
        Some(why) => output.line(unmerged(why)),
        None => Ok(()),
    }
}

/// The manifest is made anew, and something is left to do.
fn unmerged(why: &str) -> String {
    format!("its tables are not merged yet ({why}); see what `repair` says")
}

/// What all of it comes to.
fn cost(plan: &RepairPlan) -> &'static str {
    let mut lost = plan.steps.iter().flat_map(|step| &step.lost);
    let only_returns = |lost| matches!(lost, &Lost::MayReturn { .. });
    match plan.loses_nothing() {
        _ if plan.is_empty() => "",
        true => "; no record is lost",
        false if lost.all(only_returns) => {
            "; nothing that can be read is lost, but older values may come back"
        }
        false => "; records are lost",
    }
}

/// One line on what is lost.
fn describe(lost: &Lost) -> String {
    match lost {
        Lost::Record { key, sequence, older } => {
            let key = text::escape(key);
            match older {
                Some(older) => format!(
                    "key {key}: the record of sequence {sequence}; it has an older one, of {older}"
                ),
                None => format!("key {key}: the record of sequence {sequence}; the key is gone"),
            }
        }
        Lost::UnknownRecord => {
            "one record of an unknown key, which is gone or has an older one".to_owned()
        }
        Lost::Keys { after, until, copied } => {
            let after = after.as_ref().map(|after| format!(" after {}", text::escape(after)));
            let copied = match copied {
                0 => String::new(),
                copied => format!("; {} stay, for the fast tier has copies", text::count(*copied)),
            };
            format!(
                "what this file had of the keys{} up to {}: they are gone, or have what other \
                 files have{copied}",
                after.unwrap_or_default(),
                text::escape(until)
            )
        }
        Lost::Writes { after: Some(after) } => {
            format!("all writes after sequence {after} that were in logs alone")
        }
        Lost::Writes { after: None } => "all writes that were in logs alone".to_owned(),
        Lost::MayBeOlder => "any record of this file may be older than it was".to_owned(),
        Lost::UnknownRecords => {
            "records of this file, of unknown keys: they are gone, or have what other files have"
                .to_owned()
        }
        Lost::MayReturn { from, until } => format!(
            "keys from {} to {} that were deleted may have an older value again",
            text::escape(from),
            text::escape(until)
        ),
        Lost::Loaded { from, until } => format!(
            "keys from {} to {} of bulk loads: one that was written at about that time, too, may \
             have the older version, and a load that was cut off may be there",
            text::escape(from),
            text::escape(until)
        ),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    applied: bool,
    files: u64,
    bytes: u64,
    steps: Vec<ShownStep<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmerged: Option<&'a str>,
}

#[derive(Serialize)]
struct ShownStep<'a> {
    file: &'a str,
    tier: u8,
    kind: thermocline::ErrorKind,
    damage: &'a str,
    repair: &'a str,
    lost: Vec<ShownLost>,
    kept_as: Option<&'a Path>,
}

/// Keys as `scan` prints them.
#[derive(Default, Serialize)]
struct ShownLost {
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copied: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_sequence: Option<u64>,
}

impl<'a> Shown<'a> {
    fn of(plan: &'a RepairPlan, applied: bool) -> Self {
        let steps = plan.steps.iter().map(ShownStep::of).collect();
        let unmerged = plan.unmerged.as_deref();
        Self { applied, files: plan.files, bytes: plan.bytes, steps, unmerged }
    }
}

impl<'a> ShownStep<'a> {
    fn of(step: &'a RepairStep) -> Self {
        Self {
            file: &step.file,
            tier: step.tier,
            kind: step.kind,
            damage: &step.damage,
            repair: step.repair,
            lost: step.lost.iter().map(ShownLost::of).collect(),
            kept_as: step.kept_as.as_deref(),
        }
    }
}

impl ShownLost {
    fn of(lost: &Lost) -> Self {
        let escaped = |key: &Vec<u8>| Some(text::escape(key));
        let what = |what| Self { what, ..Self::default() };
        match lost {
            Lost::Record { key, sequence, older } => {
                let (key, sequence) = (escaped(key), Some(*sequence));
                Self { key, sequence, older: *older, ..what("record") }
            }
            Lost::UnknownRecord => what("unknown_record"),
            Lost::Keys { after, until, copied } => Self {
                after_key: after.as_ref().and_then(escaped),
                until_key: escaped(until),
                copied: Some(*copied),
                ..what("keys")
            },
            Lost::Writes { after } => Self { after_sequence: *after, ..what("writes") },
            Lost::MayBeOlder => what("may_be_older"),
            Lost::UnknownRecords => what("unknown_records"),
            Lost::MayReturn { from, until } => {
                Self { from_key: escaped(from), until_key: escaped(until), ..what("may_return") }
            }
            Lost::Loaded { from, until } => {
                Self { from_key: escaped(from), until_key: escaped(until), ..what("loaded") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_a_sentence_and_an_object() {
        let key = || b"a\tb".to_vec();
        let lost = [
            Lost::Record { key: key(), sequence: 9, older: Some(4) },
            Lost::Record { key: key(), sequence: 9, older: None },
            Lost::Keys { after: Some(key()), until: b"z".to_vec(), copied: 2 },
            Lost::Writes { after: Some(7) },
            Lost::MayReturn { from: key(), until: b"z".to_vec() },
            Lost::Loaded { from: key(), until: b"z".to_vec() },
        ];
        let said: Vec<_> = lost.iter().map(describe).collect();
        assert_eq!(said[0], "key a\\tb: the record of sequence 9; it has an older one, of 4");
        assert!(said[1].ends_with("the key is gone"), "{}", said[1]);
        assert!(said[2].contains("after a\\tb up to z") && said[2].contains("2 stay"));
        assert!(said[3].contains("after sequence 7"));
        assert!(said[4].starts_with("keys from a\\tb to z that were deleted"), "{}", said[4]);
        let step = |lost: &[Lost]| RepairStep {
            file: "00000002.manifest".to_owned(),
            tier: 0,
            kind: thermocline::ErrorKind::Corrupt,
            damage: String::new(),
            repair: "made anew",
            lost: lost.to_vec(),
            kept_as: None,
        };
        let cost_of = |steps: &[&[Lost]]| {
            let steps = steps.iter().map(|lost| step(lost)).collect();
            cost(&RepairPlan { steps, ..RepairPlan::default() })
        };
        assert_eq!(cost_of(&[]), "");
        assert_eq!(cost_of(&[&[]]), "; no record is lost");
        let returns = "; nothing that can be read is lost, but older values may come back";
        assert_eq!(cost_of(&[&lost[4..5]]), returns);
        assert_eq!(cost_of(&[&lost[4..5], &lost[..1]]), "; records are lost");
        assert_eq!(cost_of(&[&lost[4..]]), "; records are lost");
        let shown = serde_json::to_value(ShownLost::of(&lost[0])).unwrap();
        let expected =
            serde_json::json!({"what": "record", "key": "a\\tb", "sequence": 9, "older": 4});
        assert_eq!(shown, expected);
    }
}
