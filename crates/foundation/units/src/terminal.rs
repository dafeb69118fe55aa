//! Texts of others on a terminal.

/// Whether a terminal obeys this letter, and does not show it: control characters, and those that turn the order of letters (Unicode Standard
/// Annex #9), with which a text looks like another one.
pub fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
