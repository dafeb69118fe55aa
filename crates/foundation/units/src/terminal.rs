//! Texts of others on a terminal.

/// Whether a terminal obeys this letter, and does not show it: control characters, and those that turn the order of letters (Unicode Standard
/// Annex #9), with which a text looks like another one.
pub fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with a space for each letter that a terminal obeys, but for line breaks.
pub fn without_controls(text: &str) -> String {
    text.replace(|letter: char| is_obeyed(letter) && letter != '\n', " ")
}

/// A line of JSON as it may go to a terminal: in strings JSON may have letters as they are that a terminal obeys; here they are `\u` and a number.
pub fn escaped_controls(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' => line.push(' '),
            obeyed if is_obeyed(obeyed) => line.push_str(&format!("\\u{:04x}", u32::from(obeyed))),
            letter => line.push(letter),
        }
    }
    line
}
