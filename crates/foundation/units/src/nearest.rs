//! The word that was meant.

/// The word of `known` that `word` is likely a slip of: two letters in the wrong order, one letter wrong, missing or too many, and one more in
/// words of six letters or more; `None` if there is none, or if it is one of them.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance of long words takes long.
    if word.len() > 64 {
        return None;
    }
    let slips = 1 + usize::from(word.chars().count() >= 6);
    let near = known.into_iter().map(|known| (strsim::damerau_levenshtein(word, known), known));
    near.filter(|(distance, _)| (1..=slips).contains(distance))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
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
}
