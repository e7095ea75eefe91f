//! `try`
use crate::arguments::{Database, Try};
use crate::failure::Result;
pub fn run(_: &Database, _: &Try) -> Result<()> {
    Ok(())
}
