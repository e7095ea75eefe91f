//! `settings.toml` that cannot be read, or is gone: written anew without the line that is wrong, or
//! with the defaults.
//!
//! It is a text that people edit, so it has no checksum, and a flipped bit is a name or a value
//! that is none. No setting changes what stored bytes mean. Only the preset must be right, and what
//! lies on the fast tier tells it.

use super::RepairPlan;
use super::plan::RepairStep;
use crate::engine::opened_files::{
    Access, DAMAGED_SETTINGS_NAME, OpenedFiles, is_of_text, open_files, read_settings,
};
use crate::engine::restore::numbers_of;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{Preset, SETTINGS_NAME, Settings};
use std::path::Path;
use thermocline_device::{FileKind, TierIndex, TieredFiles};

/// What the file is to be.
#[derive(Debug)]
pub(super) struct SettingsMended {
    step: RepairStep,
    settings: Settings,
    damaged: Option<String>,
}

/// What is to be done about the file; none where it can be read. `given` are for tiers that are
/// elsewhere now.
pub(super) fn look(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
) -> Result<Option<SettingsMended>> {
    let error = match read_settings(environment, home) {
        Ok((Some(_), _)) => return Ok(None),
        Ok((None, _)) => Error::new(ErrorKind::NotFound, format!("{SETTINGS_NAME} is missing")),
        Err(error) if is_of_text(&error) => error,
        Err(error) => return Err(error),
    };
    let tiers = given.map_or_else(Vec::new, |given| given.tiers.clone());
    let guess = Settings { preset: Some(Preset::Leveled), tiers, ..Settings::default() };
    let OpenedFiles { files, .. } = open_files(environment, home, Some(&guess), Access::Read)?;
    let has_slots = !numbers_of(&files, |kind| kind == FileKind::Slab).is_empty();
    let damaged = files.home_text(SETTINGS_NAME)?;
    if damaged.is_none() && !has_slots {
        // It opens with the defaults, as it always did.
        return Ok(None);
    }
    let told = damaged.as_deref().and_then(|text| without_a_line(text, home));
    let repair = match told {
        Some(_) => "written anew without the line that cannot be read: it is as by default",
        None => "written anew: all settings are as by default",
    };
    let mut settings = told.unwrap_or_default();
    let of_files = if has_slots { Preset::Hybrid } else { Preset::Leveled };
    settings.preset.get_or_insert(of_files);
    settings.tiers.clear();
    settings.persistent_memory = None;
    let step = RepairStep::of_name(SETTINGS_NAME.to_owned(), TierIndex(0), &error, repair);
    Ok(Some(SettingsMended { step, settings, damaged }))
}

/// The settings of a text that can be read but for one line; none where it is not so.
fn without_a_line(text: &str, home: &Path) -> Option<Settings> {
    let lines: Vec<_> = text.lines().collect();
    let without = |left_out: usize| {
        let lines = lines.iter().enumerate().filter(|(line, _)| *line != left_out);
        let text: String = lines.flat_map(|(_, line)| [*line, "\n"]).collect();
        Settings::from_toml(&text, &home.join(SETTINGS_NAME)).ok()
    };
    (0..lines.len()).find_map(without)
}

impl SettingsMended {
    /// With which the files are opened meanwhile.
    pub fn over(&self, given: Option<&Settings>) -> Settings {
        let mut settings = given.unwrap_or(&self.settings).clone();
        settings.preset = settings.preset.or(self.settings.preset);
        settings
    }

    /// Tells it first.
    pub fn tell(&self, plan: &mut RepairPlan) {
        plan.steps.insert(0, self.step.clone());
    }

    /// Keeps the text that is there, and writes the file.
    pub fn write(&mut self, files: &TieredFiles) -> Result<()> {
        if let Some(text) = &self.damaged {
            files.write_home_file(DAMAGED_SETTINGS_NAME, text)?;
            self.step.kept_as = Some(files.home().join(DAMAGED_SETTINGS_NAME));
        }
        Ok(files.write_home_file(SETTINGS_NAME, &self.settings.to_kept_toml()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_that_is_wrong_costs_what_it_says() {
        let home = Path::new("/home");
        let whole = "preset = \"hybrid\"\nmemory = \"9 MiB\"\n\n[hybrid]\nruns = 5\n";
        let settings = |text: &str| without_a_line(text, home);
        let told = settings(&whole.replace("memory", "mumory")).unwrap();
        assert_eq!((told.preset, told.hybrid.runs), (Some(Preset::Hybrid), 5));
        assert_eq!(told.memory, Settings::default().memory);
        let told = settings(&whole.replace("\"hybrid\"", "\"hybrjd\"")).unwrap();
        assert_eq!((told.preset, told.memory.0), (None, 9 << 20));
        let told = settings(&whole.replace("runs = 5", "runs = 85")).unwrap();
        assert_eq!(told.memory.0, 9 << 20);
        assert!(settings(&whole.replace("memory", "mumory").replace("runs", "rung")).is_none());
    }
}
