//! Wraps comments at the column limit, which rustfmt on the stable toolchain does not do.
//!
//! Only lines that are too long change: what does not fit moves to the front of the next line where
//! that continues the paragraph, else to a line of its own. Byte pictures, tables and code examples
//! (between fences) are left alone.

use super::source::COLUMNS_MAX;

/// Where a comment line's text begins, and the part before it.
struct Line<'a> {
    /// Indentation and comment mark: `    /// `.
    mark: &'a str,
    /// Spaces of the text's own: continuation lines of a list item have some.
    inner: &'a str,
    text: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let indentation = line.len() - line.trim_start().len();
    let rest = &line[indentation..];
    let mark = ["//! ", "/// ", "// "].into_iter().find(|mark| rest.starts_with(mark))?;
    let (mark, rest) = line.split_at(indentation + mark.len());
    let (inner, text) = rest.split_at(rest.len() - rest.trim_start().len());
    (!text.is_empty()).then_some(Line { mark, inner, text })
}

/// Bytes of a list item's marker, `- ` or `12. `; 0 for other text.
fn marker_len(text: &str) -> usize {
    if text.starts_with("- ") || text.starts_with("* ") {
        return 2;
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && text[digits..].starts_with(". ") { digits + 2 } else { 0 }
}

/// The text begins something of its own, to which nothing can be put in front.
fn begins(text: &str) -> bool {
    marker_len(text) > 0 || text.starts_with(['#', '|', '`', '>']) || text.starts_with("SAFETY")
}

/// `source` with its comments wrapped.
pub fn wrap(source: &str) -> String {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let (mut index, mut fenced) = (0, false);
    while index < lines.len() {
        let line = lines[index].clone();
        if let Some(parsed) = parse(&line) {
            if parsed.text.starts_with("```") {
                fenced = !fenced;
            } else if !fenced && line.chars().count() > COLUMNS_MAX {
                break_line(&mut lines, index, &parsed);
            }
        }
        index += 1;
    }
    let mut out = lines.join("\n");
    out.push('\n');
    out
}

/// Moves what does not fit from the line at `index` to the next.
fn break_line(lines: &mut Vec<String>, index: usize, line: &Line<'_>) {
    let room = COLUMNS_MAX - line.mark.chars().count() - line.inner.len();
    let end = line.text.char_indices().nth(room).map_or(line.text.len(), |(at, _)| at);
    // A word longer than the line stays as it is.
    let Some(cut) = line.text[..=end.min(line.text.len() - 1)].rfind(' ').filter(|cut| *cut > 0)
    else {
        return;
    };
    let (kept, moved) = (&line.text[..cut], line.text[cut..].trim());
    lines[index] = format!("{}{}{}", line.mark, line.inner, kept.trim_end());
    let indent = format!("{}{}", line.inner, " ".repeat(marker_len(line.text)));
    let next = lines.get(index + 1).cloned().unwrap_or_default();
    match parse(&next) {
        Some(next) if next.mark == line.mark && next.inner == indent && !begins(next.text) => {
            lines[index + 1] = format!("{}{indent}{moved} {}", line.mark, next.text);
        }
        _ => lines.insert(index + 1, format!("{}{indent}{moved}", line.mark)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["four"; count].join(" ")
    }

    #[test]
    fn a_long_line_flows_into_the_paragraph_below() {
        let source = format!("/// {}\n/// end.\nfn f() {{}}\n", words(25));
        let expected = format!("/// {}\n/// {} end.\nfn f() {{}}\n", words(19), words(6));
        assert_eq!(wrap(&source), expected);
        assert_eq!(wrap(&expected), expected);
    }

    #[test]
    fn list_items_keep_their_indentation_and_their_neighbours() {
        let source = format!("//! 1. {}\n//! 2. next\n", words(25));
        let expected = format!("//! 1. {}\n//!    {}\n//! 2. next\n", words(18), words(7));
        assert_eq!(wrap(&source), expected);
    }

    #[test]
    fn pictures_code_and_single_words_are_left_alone() {
        let long = "x".repeat(120);
        for source in [
            format!("//! ```text\n//! {}\n//! ```\n", words(30)),
            format!("// {long}\n"),
            format!("let a = \"{}\"; // b\n", words(30)),
        ] {
            assert_eq!(wrap(&source), source);
        }
    }
}
