//! Results for people: a table for a terminal, a page with plots for a browser.

pub mod commit;
pub mod html;
pub mod table;
