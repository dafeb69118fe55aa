//! Text for terminals whose locale has ASCII alone.

use std::env;
use std::sync::OnceLock;

/// Whether the locale is `C` or `POSIX` by name. Many hosts set none, and their terminals know UTF-8.
pub(crate) fn is_ascii() -> bool {
    static ASCII: OnceLock<bool> = OnceLock::new();
    *ASCII.get_or_init(|| {
        // By their rank (setlocale(3)); an empty one counts as none.
        let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| env::var(name).ok());
        named.into_iter().find(|name| !name.is_empty()).is_some_and(|name| name == "C" || name == "POSIX")
    })
}

/// `text` with the nearest ASCII for each other letter.
pub(crate) fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if letter.is_ascii() => ascii.push(letter),
            '\u{2588}'..='\u{258f}' | '\u{2580}'..='\u{2587}' => ascii.push('#'),
            '…' => ascii.push_str("..."),
            'µ' | 'μ' => ascii.push('u'),
            '×' => ascii.push('x'),
            '±' => ascii.push_str("+-"),
            '–' | '—' | '−' => ascii.push('-'),
            '→' => ascii.push_str("->"),
            '←' => ascii.push_str("<-"),
            '≤' => ascii.push_str("<="),
            '≥' => ascii.push_str(">="),
            '²' => ascii.push('2'),
            _ => ascii.push('?'),
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_longhaul_prints_has_a_likeness() {
        assert_eq!(in_ascii("lost ██▌ 8.45 µs ± 2, rate × time…"), "lost ### 8.45 us +- 2, rate x time...");
    }
}
