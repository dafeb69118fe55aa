//! The word that was meant.

/// Bytes of a word at most, and words that it is compared with: the distance of long words, and of many, takes long.
const BYTES_MOST: usize = 64;
const COMPARED_MOST: usize = 500;

/// The word of `known` that `word` is likely a slip of: two letters in the wrong order, one letter wrong, missing or too many, and one more in
/// words of six letters or more; `None` if there is none, or if it is one of them. A word of more than 64 bytes is a slip of
/// none; others are compared with the first 500 that are about as long.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > BYTES_MOST {
        return None;
    }
    let letters = word.chars().count();
    let slips = 1 + usize::from(letters >= 6);
    // Each letter more or less is a slip.
    let is_as_long = |known: &&str| known.chars().take(letters + slips + 1).count().abs_diff(letters) <= slips;
    let compared = known.into_iter().filter(is_as_long).take(COMPARED_MOST);
    let near = compared.map(|known| (strsim::damerau_levenshtein(word, known), known));
    near.filter(|(distance, _)| (1..=slips).contains(distance))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use super::*;

    #[test]
    fn slips_and_other_words() {
        let known = ["udp", "tcp", "delay", "delay-steps", "rate"];
        for (word, meant) in [
            ("upd", Some("udp")),
            ("dealy", Some("delay")),
            ("delay-step", Some("delay-steps")),
            ("udp", None),
            ("latency", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }

    /// Names come from files of others: a megabyte of them must not take a minute.
    #[test]
    fn long_words_and_many_are_not_compared() {
        let (word, long) = ("y".repeat(64), "x".repeat(1_000_000));
        assert_eq!(nearest(&word, repeat_n(long.as_str(), 64)), None);
        let mut seen = 0;
        assert_eq!(nearest("delay", repeat_n("other", 10_000).inspect(|_| seen += 1)), None);
        assert_eq!(seen, COMPARED_MOST);
    }
}
