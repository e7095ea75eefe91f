//! Tables for people: aligned columns, a line under the heading, two spaces between.

use crate::failure::Result;
use crate::output::Output;

/// Which edge of its column a cell keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text under a heading.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A heading that starts with `>` makes its column keep to the right.
    pub fn new(headings: &[&str]) -> Self {
        let column = |heading: &&str| match heading.strip_prefix('>') {
            Some(name) => (name.to_owned(), Align::Right),
            None => ((*heading).to_owned(), Align::Left),
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells at its end stay empty.
    pub fn row<I, S>(&mut self, cells: I)
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines, without ends.
    pub fn lines(&self) -> Vec<String> {
        let cell = |row: &[String], index: usize| row.get(index).cloned().unwrap_or_default();
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| cell(row, index).chars().count());
            cells.chain([self.columns[index].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let print = |row: &[String]| {
            let cells = widths.iter().enumerate().map(|(index, width)| {
                let text = cell(row, index);
                match self.columns[index].1 {
                    Align::Left => format!("{text:<width$}"),
                    Align::Right => format!("{text:>width$}"),
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        [print(&heading), rule.join("  ")]
            .into_iter()
            .chain(self.rows.iter().map(|row| print(row)))
            .collect()
    }

    /// The lines for a page of few lines: two spaces before each, no rule under the heading.
    pub fn plain_lines(&self) -> Vec<String> {
        let lines = self.lines().into_iter().enumerate().filter(|(index, _)| *index != 1);
        lines.map(|(_, line)| format!("  {line}")).collect()
    }

    /// Prints the table under a title, with an empty line after it.
    pub fn print(&self, title: &str, output: &mut Output) -> Result<()> {
        output.line(title)?;
        for line in self.lines() {
            output.line(line)?;
        }
        output.line("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["tier", ">bytes", "state"]);
        table.row(["fast", "5", "ok"]);
        table.row(["slow", "12345678"]);
        let lines = table.lines();
        assert_eq!(lines[0], "tier     bytes  state");
        assert_eq!(lines[2], "fast         5  ok");
        assert_eq!(lines[3], "slow  12345678");
        assert!(lines[1].chars().all(|c| c == '─' || c == ' '));
        let plain = ["  tier     bytes  state", "  fast         5  ok", "  slow  12345678"];
        assert_eq!(table.plain_lines(), plain);
    }
}
