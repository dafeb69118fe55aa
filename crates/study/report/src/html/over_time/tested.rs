//! What the pages of tests share: a verdict at the top, its figures as tiles, doubts on one line that unfolds.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_result::Caveat;

use crate::html::page::{charts, escape, heading, page_with};

/// A test, without its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested<'a> {
    /// What was done, such as `TCP to server`.
    pub title: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// What speaks against trusting it.
    pub caveats: &'a [Caveat],
    /// What the command prints.
    pub text: String,
}

impl Tested<'_> {
    /// The page, with `found` between the head and what the command prints.
    pub(super) fn page(&self, found: &str) -> String {
        let mut body = heading(&self.title, &self.longhaul, &self.started_at);
        body += &caveats(self.caveats);
        body += found;
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "<details><summary>All of the result in words, as the command prints it</summary><pre>{}</pre></details>",
            escape(&self.text)
        );
        page_with(&self.title, &body, charts())
    }
}

/// What speaks against trusting a result, on one line: how much and of what kinds. It unfolds.
pub(crate) fn caveats(caveats: &[Caveat]) -> String {
    if caveats.is_empty() {
        return "<p class=\"quiet\">Nothing is known that speaks against these figures.</p>\n".into();
    }
    let mut kinds: BTreeMap<&str, Vec<&Caveat>> = BTreeMap::new();
    caveats.iter().for_each(|caveat| kinds.entry(&caveat.code).or_default().push(caveat));
    let names: Vec<String> = kinds.keys().map(|code| code.replace('_', " ")).collect();
    let count = match caveats.len() {
        1 => "1 caveat applies".to_owned(),
        many => format!("{many} caveats apply"),
    };
    let mut html =
        format!("<details class=\"caveats\"><summary>{count}: {}</summary>\n<ul>", escape(&names.join("; ")));
    for caveat in kinds.values().flatten() {
        let remedy = if caveat.remedy.is_empty() { String::new() } else { format!(" — {}", escape(&caveat.remedy)) };
        // Writing to a string cannot fail.
        let _ = write!(html, "<li>{}{remedy}</li>", escape(&caveat.message));
    }
    html + "</ul></details>\n"
}

/// A verdict in words.
pub(super) fn verdict(sentences: &[String]) -> String {
    format!("<p class=\"verdict\">{}</p>\n", escape(&sentences.join(" ")))
}

/// Figures side by side: what each is, and its value.
pub(super) fn tiles(tiles: &[(&str, String)]) -> String {
    let tiles = tiles.iter().map(|(what, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value)));
    format!("<dl class=\"tiles\">{}</dl>\n", tiles.collect::<String>())
}

/// How long each window of a test of `duration_s` is: some 400 of them, at least `least_s` long, of 1, 2 or 5 times a power of ten.
pub(super) fn window(duration_s: f64, least_s: f64) -> f64 {
    let wanted = (duration_s / 400.0).max(least_s);
    let power = 10_f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= wanted * 0.999_999).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caveats_are_one_line_by_kind_that_unfolds() {
        let caveat = |code, message: &str| Caveat::new(code, message, "");
        const LATE: longhaul_result::CaveatCode = longhaul_result::CaveatCode("emulator_late");
        let html = caveats(&[caveat(LATE, "by 3 ms"), caveat(LATE, "by <8> ms")]);
        assert!(html.contains("<summary>2 caveats apply: emulator late</summary>"), "{html}");
        assert!(html.contains("<li>by &lt;8&gt; ms</li>"), "{html}");
        assert!(!caveats(&[]).contains("details"));
    }

    #[test]
    fn windows_are_round_and_not_too_many() {
        assert_eq!([3.0, 30.0, 100.0, 3_600.0].map(|duration| window(duration, 0.1)), [0.1, 0.1, 0.5, 10.0]);
    }
}
