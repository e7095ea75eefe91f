//! `repair --rebuild-index`: the index in persistent memory is made anew, and what that costs.

use super::repair::environment;
use crate::arguments::{Database, Repair};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{store, text};
use thermocline::{Db, IndexRebuild, PersistentMemory};

/// Shows what a rebuild would do, or does it.
pub fn run(database: &Database, arguments: &Repair, json: bool) -> Result<()> {
    let (home, mut settings) = store::home_and_settings(database)?;
    if let Some(region) = &arguments.region {
        let mut named = settings.map_or_else(|| Db::kept_settings(&home), Ok)?;
        let path = store::absolute(&region.path)?;
        let of_path = PersistentMemory::new(path, region.size).driver(&region.driver);
        named.persistent_memory = Some(of_path);
        named.check()?;
        settings = Some(named);
    }
    let environment = environment(arguments);
    let rebuild = match arguments.apply {
        true => environment.rebuild_index(&home, settings.as_ref())?,
        false => environment.plan_index_rebuild(&home, settings.as_ref())?,
    };
    let mut output = Output::new();
    match json {
        true => output.json(&rebuild)?,
        false => {
            for line in lines(&rebuild, arguments.apply) {
                output.line(line)?;
            }
        }
    }
    output.finish()?;
    if arguments.apply {
        return Ok(());
    }
    Err(Failure::new(format!(
        "nothing was changed in {}; `repair --rebuild-index --apply` makes the index anew",
        database.db.display()
    )))
}

fn lines(rebuild: &IndexRebuild, is_applied: bool) -> Vec<String> {
    let mut lines = vec![format!("region {}", rebuild.region.display())];
    match &rebuild.damage {
        Some(damage) => lines.push(format!("  damage  {damage}")),
        None => lines.push("  its memtables are intact: tables take what they have".to_owned()),
    }
    lines.push(match (&rebuild.replaced_by, &rebuild.damage) {
        (Some(path), _) => format!("  repair  {} is made in its place", path.display()),
        (None, None) => "  repair  its index is made anew".to_owned(),
        (None, Some(_)) => "  repair  another is made, where --region PATH:SIZE says".to_owned(),
    });
    lines.push(match rebuild.lost_after {
        Some(last) => format!(
            "  lost    all writes after sequence {last} that were in persistent memory alone"
        ),
        None => "  no record is lost".to_owned(),
    });
    if is_applied && rebuild.replaced_by.is_some() && rebuild.damage.is_none() {
        lines.push(format!(
            "  left    {}, which nothing needs any more; delete it",
            rebuild.region.display()
        ));
    }
    let tables = text::counted(rebuild.tables, "table");
    lines.push(match is_applied {
        true => format!("the index was made anew from {tables}"),
        false => format!("the index would be made anew from {tables}"),
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rebuild_costs_is_said_before_and_after() {
        let intact = IndexRebuild { region: "/pmem/a".into(), tables: 3, ..Default::default() };
        let said = lines(&intact, true).join("\n");
        assert!(said.contains("its index is made anew\n  no record is lost\n"), "{said}");
        assert!(said.ends_with("made anew from 3 tables"), "{said}");
        let moved = IndexRebuild { replaced_by: Some("/pmem/b".into()), ..intact.clone() };
        let said = lines(&moved, true).join("\n");
        assert!(said.contains("/pmem/b is made in its place"), "{said}");
        assert!(said.contains("left    /pmem/a, which nothing needs any more"), "{said}");
        assert!(!lines(&moved, false).join("\n").contains("left"));
        let lost = IndexRebuild {
            damage: Some("missing".to_owned()),
            lost_after: Some(7),
            replaced_by: Some("/pmem/b".into()),
            ..intact
        };
        let said = lines(&lost, false).join("\n");
        assert!(said.contains("/pmem/b is made in its place"), "{said}");
        assert!(said.contains("all writes after sequence 7"), "{said}");
    }
}
