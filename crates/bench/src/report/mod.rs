//! Results for people: tables for a terminal.

pub mod table;
