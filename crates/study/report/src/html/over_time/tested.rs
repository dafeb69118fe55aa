//! What the pages of tests share: a verdict for each direction at the top, its figures as tiles.

use std::fmt::Write;

use longhaul_result::{Caveat, LocationMethod};
use longhaul_units::Nanos;

use crate::html::axis::RATES;
use crate::html::lines::{trimmed, unit_of};
use crate::html::page::{caveats, charts, escape, heading, left_out, page_with, verdict};

/// A test, without its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested<'a> {
    /// What was done, such as `TCP to server`.
    pub title: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Its caveats.
    pub caveats: &'a [Caveat],
    /// What the command prints.
    pub text: String,
    /// Figures that are not drawn, and why: those of a saved result that has not kept what they draw.
    pub left_out: Vec<String>,
}

/// What was found in a direction.
pub(super) struct Found {
    /// The name of the direction where there are two.
    pub(super) direction: Option<&'static str>,
    /// What was found, in words.
    pub(super) verdict: String,
    /// How sure that is.
    pub(super) certainty: String,
    /// What shows it, HTML.
    pub(super) shown: String,
}

impl Tested<'_> {
    /// The page.
    pub(super) fn page(&self, found: &[Found]) -> String {
        let mut body = heading(&self.title, &self.longhaul, &self.started_at);
        for of in found {
            body += &verdict(of.direction, "", &of.verdict, &of.certainty);
        }
        body += &caveats(self.caveats);
        body += &left_out(&self.left_out);
        // Writing to a string cannot fail.
        for of in found {
            let _ = of.direction.map(|name| writeln!(body, "<h2>{name}</h2>"));
            body += &of.shown;
        }
        let _ = writeln!(body, "<h2>All figures</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page_with(&self.title, &body, charts())
    }
}

/// How sure the numbers of a test are, as far as they come from one test.
pub(super) const ONE_TEST: &str = "This is only one test: how much results vary is unknown.";

/// How sure it is where packets were lost.
pub(super) fn located(method: LocationMethod) -> &'static str {
    match method {
        LocationMethod::Bpf => "Losses were located packet by packet, by the kernel's drop events at both hosts.",
        LocationMethod::Counters => "Losses were located by totals of counters, which count other traffic, too.",
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
    fn a_page_begins_with_what_was_found_how_sure_it_is_and_what_speaks_against_it() {
        let caveats = [Caveat::of_error("cut_short", "the server was lost", "")];
        let (title, longhaul, started_at) = ("TCP to far".into(), "1".into(), "now".into());
        let (text, left_out) = ("all of it".into(), vec!["<Rates> are left out: not saved".into()]);
        let tested = Tested { title, longhaul, started_at, caveats: &caveats, text, left_out };
        let found = |direction| Found {
            direction: Some(direction),
            verdict: "20 Mbit/s".into(),
            certainty: ONE_TEST.into(),
            shown: "<p>shown</p>".into(),
        };
        let html = tested.page(&[found(FORWARD), found(BACKWARD)]);
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        let places = [
            "<h1>TCP to far",
            "<strong>From client to server:</strong> 20 Mbit/s</p>\n<p class=\"certainty\">This is only one test",
            "<strong>From server to client:</strong>",
            "<summary>1 caveat applies: cut short</summary>",
            "<p class=\"quiet\">&lt;Rates&gt; are left out: not saved</p>",
            "<h2>From client to server</h2>",
            "all of it",
        ];
        assert!(places.map(place).is_sorted(), "{html}");
    }

    #[test]
    fn windows_are_round_and_not_too_many() {
        assert_eq!([3.0, 30.0, 100.0, 3_600.0].map(|duration| window(duration, 0.1)), [0.1, 0.1, 0.5, 10.0]);
    }
}
