//! What the pages of tests share: a verdict at the top, its figures as tiles, doubts on one line that unfolds.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::html::axis::RATES;
use crate::html::lines::{trimmed, unit_of};
use crate::html::page::{charts, escape, heading, page_with};

/// Caveats of a kind, and of all kinds, that a page tells: each is told with its place, so that a file of thousands would make a page that is a
/// hundred times as long.
const TOLD_OF_A_KIND: usize = 100;
const TOLD: usize = 1_000;

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
    /// The page: what was found in each direction, a verdict and what shows it, with the name of the direction where there are two.
    pub(super) fn page(&self, found: &[(Option<&str>, String, String)]) -> String {
        let mut body = heading(&self.title, &self.longhaul, &self.started_at);
        // Writing to a string cannot fail.
        for (direction, verdict, _) in found {
            let direction = direction.map_or_else(String::new, |name| format!("<strong>{name}:</strong> "));
            let _ = writeln!(body, "<p class=\"verdict\">{direction}{}</p>", escape(verdict));
        }
        body += &caveats(self.caveats);
        for (direction, _, shown) in found {
            let _ = direction.map(|name| writeln!(body, "<h2>{name}</h2>"));
            body += shown;
        }
        let _ = writeln!(body, "<h2>All figures</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page_with(&self.title, &body, charts())
    }
}

/// The names of the directions where there are two.
pub(super) const FORWARD: &str = "From client to server";
pub(super) const BACKWARD: &str = "From server to client";

/// A time with three digits.
pub(crate) fn short(ns: u64) -> String {
    Nanos(ns).rounded()
}

/// A rate with its unit.
pub(super) fn rate(bps: u64) -> String {
    let (size, unit) = unit_of(bps as f64, &RATES);
    format!("{} {unit}", trimmed(bps as f64 / size))
}

/// How much `part` is of `all`, in words that do not say all of what is not.
pub(super) fn share(part: u64, all: u64) -> String {
    match part as f64 * 100.0 / all.max(1) as f64 {
        share if part < all && share > 99.0 => "More than 99 %".into(),
        share => format!("{share:.0} %"),
    }
}

/// What speaks against trusting a result, on one line: how much and of what kinds. It unfolds.
pub(crate) fn caveats<C: Borrow<Caveat>>(caveats: impl IntoIterator<Item = C>) -> String {
    let mut kinds: BTreeMap<String, Vec<C>> = BTreeMap::new();
    let (mut all, mut told) = (0_usize, 0_usize);
    for caveat in caveats {
        all += 1;
        let of: &Caveat = caveat.borrow();
        let kind = kinds.entry(of.code.clone()).or_default();
        if kind.len() < TOLD_OF_A_KIND && told < TOLD {
            kind.push(caveat);
            told += 1;
        }
    }
    if all == 0 {
        return "<p class=\"quiet\">Nothing is known that speaks against these figures.</p>\n".into();
    }
    let names: Vec<String> = kinds.keys().map(|code| code.replace('_', " ")).collect();
    let count = match all {
        1 => "1 caveat applies".to_owned(),
        many => format!("{many} caveats apply"),
    };
    let mut html =
        format!("<details class=\"caveats\"><summary>{count}: {}</summary>\n<ul>", escape(&names.join("; ")));
    for caveat in kinds.values().flatten() {
        let caveat: &Caveat = caveat.borrow();
        let remedy = if caveat.remedy.is_empty() { String::new() } else { format!(" — {}", escape(&caveat.remedy)) };
        // Writing to a string cannot fail.
        let _ = write!(html, "<li>{}{remedy}</li>", escape(&caveat.message));
    }
    if all > told {
        let _ = write!(html, "<li>and {} more, which the result has</li>", all - told);
    }
    html + "</ul></details>\n"
}

/// Figures side by side: what each is, and its value.
pub(super) fn tiles(tiles: &[(&str, String)]) -> String {
    let tiles =
        tiles.iter().map(|(what, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value)));
    format!("<dl class=\"tiles\">{}</dl>\n", tiles.collect::<String>())
}

/// How long each window of a test of `duration_s` is: some 400 of them, at least `least_s` long, of 1, 2 or 5 times a power of ten.
pub(super) fn window(duration_s: f64, least_s: f64) -> f64 {
    let wanted = (duration_s / 400.0).max(least_s);
    let power = 10_f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= wanted * 0.999_999)
        .unwrap_or(wanted)
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
        assert!(!caveats(&[] as &[Caveat]).contains("details"));
    }

    /// Of as many as a file of others may have.
    #[test]
    fn a_page_tells_the_first_caveats_and_counts_the_others() {
        let caveat = |code: &str| Caveat::of_error(code, "late", "");
        let html = caveats(vec![caveat("emulator_late"); 26_000]);
        assert!(html.contains("26000 caveats apply") && html.contains("<li>and 25900 more, which the result has</li>"));
        assert_eq!(html.matches("<li>").count(), 101);
        let html = caveats((0..26_000).map(|number| caveat(&format!("code_{number}"))));
        assert_eq!(html.matches("<li>").count(), 1_001);
    }

    #[test]
    fn windows_are_round_and_not_too_many() {
        assert_eq!([3.0, 30.0, 100.0, 3_600.0].map(|duration| window(duration, 0.1)), [0.1, 0.1, 0.5, 10.0]);
    }
}
