//! Tells code from what only looks like it.
//!
//! The checks search for words and braces. Those in comments, strings and characters do not count,
//! so they are replaced by spaces first; lines and columns stay where they are.

/// `text` with comments and the contents of literals blanked out, newlines kept.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at).unwrap_or(at);
        if end > at {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// `text` with all but its comments blanked out, newlines kept.
pub fn comments_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at).unwrap_or(at);
        let is_comment = end > at && chars[at] == '/';
        let end = end.max(at + 1).min(chars.len());
        out.extend(chars[at..end].iter().map(|c| if is_comment || *c == '\n' { *c } else { ' ' }));
        at = end;
    }
    out
}

/// Where the comment or literal that starts at `at` ends; none where code goes on.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let next = |ahead: usize| chars.get(at + ahead).copied();
    match chars[at] {
        '/' if next(1) == Some('/') => Some(find(chars, at, |c| c == '\n')),
        '/' if next(1) == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(string_end(chars, at)),
        'r' if !continues_word(chars, at, true) => raw_string_end(chars, at),
        '\'' => character_end(chars, at),
        _ => None,
    }
}

/// The character before `at` belongs to a word; a byte string's `b` (or `c`) is let through.
fn continues_word(chars: &[char], at: usize, prefix_allowed: bool) -> bool {
    let Some(before) = at.checked_sub(1).map(|index| chars[index]) else {
        return false;
    };
    if prefix_allowed && (before == 'b' || before == 'c') {
        return continues_word(chars, at - 1, false);
    }
    before.is_alphanumeric() || before == '_'
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|c| wanted(*c)).map_or(chars.len(), |found| from + found)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut index) = (0, at);
    while index + 1 < chars.len() {
        match (chars[index], chars[index + 1]) {
            ('/', '*') => (depth, index) = (depth + 1, index + 2),
            ('*', '/') => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut index = at + 1;
    while index < chars.len() {
        match chars[index] {
            '\\' => index += 2,
            '"' => return index + 1,
            _ => index += 1,
        }
    }
    chars.len()
}

/// The end of `r"..."` or `r#"..."#`; none where the `r` begins a word or a raw identifier.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let quote = find(chars, at + 1, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - at - 1;
    let mut index = quote + 1;
    while index < chars.len() {
        let tail = &chars[index + 1..];
        if chars[index] == '"' && tail.iter().take(hashes).filter(|c| **c == '#').count() == hashes
        {
            return Some(index + 1 + hashes);
        }
        index += 1;
    }
    Some(chars.len())
}

/// The end of `'x'` or `'\n'`; none for a lifetime.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => Some((find(chars, at + 3, |c| c == '\'') + 1).min(chars.len())),
        _ if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left_and_every_line_stays() {
        for (text, expected) in [
            ("a // b\nc", "a\nc"),
            ("a /* b /* c */ d */ e", "ae"),
            (r#"f("{ \" }") + g"#, "f()+g"),
            (r###"x = br#"{"}"#;"###, "x=b;"),
            ("'{' 'a: loop {} '\\'' &'a u8", "'a:loop{}&'au8"),
            ("r#type = 1", "r#type=1"),
            ("for_r\"\"", "for_r"),
        ] {
            let code = code_only(text);
            assert_eq!(code.replace(' ', ""), expected, "{text}");
            assert_eq!(code.len(), text.len(), "columns moved in {text}");
        }
        assert_eq!(code_only("\"a\nb\"").lines().count(), 2);
    }
}
