//! What a plugin of another storage engine calls: its directories over tiers, by paths, and the
//! files in them. The header is `include/thermocline_tiers.h`.

mod directories;
mod entries;
mod failures;
mod files;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test writes as a host does")]
mod tests;
