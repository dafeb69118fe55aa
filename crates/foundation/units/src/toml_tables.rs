//! How many tables and lists a text of TOML has, before it is read. A reader takes a kilobyte for each, and two bytes of text may be one: `a.a.a.a = 1`.
//!
//! Not a reader: who reads the text says what is wrong with it. Strings, comments and words end where the crate `toml` ends them, also in a text that
//! is no TOML, or tables would hide in what looks like a string.

/// Tables and lists of a text of any length.
const ANY_LENGTH: usize = 10_000;
/// Bytes of text for each further one. The shortest that a file has in numbers are outages: `{at="1s",for="1s"},`.
const BYTES_EACH: usize = 16;
/// What ends a word, as toml-parser's `lex_atom` has it: not a quote.
const WORD_ENDS: &[u8] = b".=,[]{} \t#\r\n";

/// What is said of a text that [`toml_crowded_at`] finds.
pub const TOML_CROWDED: &str = "more tables, lists and dots in keys than a file of this length has";

/// The byte at which `text`, as TOML, has more tables and lists than a file of its length has: 10,000, and one for each 16 bytes. A dot in a key
/// counts as one, as it makes a table. `None` where there are no more.
pub fn toml_crowded_at(text: &str) -> Option<usize> {
    let most = ANY_LENGTH + text.len() / BYTES_EACH;
    let bytes = text.as_bytes();
    // `dots` are those since the last sign that ends a key or a value.
    let (mut opened, mut dots) = (0_usize, 0_usize);
    let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    while let Some(&byte) = bytes.get(at) {
        let end = match byte {
            b'"' | b'\'' => string_end(bytes, at),
            b'#' => end_before(bytes, at, b"\r\n"),
            _ if WORD_ENDS.contains(&byte) => at + 1,
            _ => end_before(bytes, at, WORD_ENDS),
        };
        match byte {
            b'.' => dots += 1,
            b'=' => (opened, dots) = (opened + dots, 0),
            b'[' | b'{' => (opened, dots) = (opened + dots.saturating_sub(1) + 1, 0),
            // A number or a time has one, and makes no table.
            b',' | b']' | b'}' | b'\r' | b'\n' => (opened, dots) = (opened + dots.saturating_sub(1), 0),
            _ => {}
        }
        if opened + dots.saturating_sub(1) > most {
            return Some(at);
        }
        at = end;
    }
    None
}

/// Where what begins at `from` ends before one of `ends`.
fn end_before(bytes: &[u8], from: usize, ends: &[u8]) -> usize {
    bytes[from..].iter().position(|byte| ends.contains(byte)).map_or(bytes.len(), |length| from + length)
}

/// Where the string ends that begins at `from`. One of a line ends with the line where it is not closed.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let quote = bytes[from];
    let is_long = bytes[from..].starts_with(&[quote; 3]);
    let mut at = from + if is_long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        if byte == b'\\' && quote == b'"' {
            at += if matches!(bytes.get(at + 1), Some(b'\\' | b'"')) { 2 } else { 1 };
        } else if byte == b'\n' && !is_long {
            return at;
        } else if byte == quote && !is_long {
            return at + 1;
        } else if byte == quote && bytes[at..].starts_with(&[quote; 3]) {
            // Its last letters may be two quotes.
            let more = bytes[at + 3..].iter().take(2).take_while(|byte| **byte == quote).count();
            return at + 3 + more;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine words a key, 22 bytes, which make eight tables.
    fn dotted() -> String {
        "a.b.b.b.b.b.b.b.b = 1\n".repeat(50_000)
    }

    #[test]
    fn few_bytes_are_few_tables() {
        let dotted = dotted();
        let at = toml_crowded_at(&dotted).unwrap();
        assert_eq!(dotted[..at].matches('\n').count(), (10_000 + dotted.len() / 16) / 8);
        for (name, text) in [
            ("spaces", dotted.replace('.', " . ")),
            ("quotes", dotted.replace('b', "'.'")),
            ("a long key", format!("{} = 1", ".a".repeat(100_000))),
            ("headers", "[a.b.c]\n".repeat(50_000)),
            ("inline", "a={b=1}\n".repeat(50_000)),
            ("a list", format!("a = [{}]", "{b=1},".repeat(50_000))),
            ("lists", format!("a = {}", "[".repeat(50_000))),
            ("behind a word with quotes", format!("x\"\"\" = 1\nx''' = 1\n{dotted}")),
            ("behind an open string", format!("x = \"y\n{dotted}")),
            ("behind an open string of letters", format!("x = 'y\n{dotted}")),
            ("behind strings", format!("x = \"\\\\\"\ny = '\\'\nz = '''' '''''\n{dotted}")),
            ("behind a comment", format!("# \"\"\"\n{dotted}")),
        ] {
            assert!(toml_crowded_at(&text).is_some(), "{name}");
        }
    }

    #[test]
    fn strings_comments_and_numbers_are_no_tables() {
        let (dotted, long) = (dotted(), ".[{".repeat(100_000));
        for (name, text) in [
            ("none", String::new()),
            ("a string", format!("x = \"\\\"{long}\"")),
            ("a string of letters", format!("x = '{long}'")),
            ("a long string", format!("x = \"\"\"\\\"\"\"{dotted}\"\"\"\"\"")),
            ("a long string of letters", format!("x = '''''{dotted}'''''")),
            ("an open string", format!("x = \"\"\"{dotted}")),
            ("a string behind a byte order mark", format!("\u{feff}'''\n{dotted}'''")),
            ("a comment", format!("x = 1 #{long}\n")),
            ("numbers", format!("x = [{}]", "-1.5, ".repeat(200_000))),
            ("times", format!("x = [\n{}]", "1979-05-27T00:32:00.5,\n".repeat(50_000))),
            ("values", "abc = 1.5\n".repeat(100_000)),
            ("outages", format!("x = [{}]", "{at=\"1s\",for=\"1s\"},".repeat(50_000))),
        ] {
            assert_eq!(toml_crowded_at(&text), None, "{name}");
        }
    }
}
