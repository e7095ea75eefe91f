//! The layout of the preset `leveled`: all records in levels of tables.

mod level_targets;

pub(crate) use level_targets::LevelTargets;
