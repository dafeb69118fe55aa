//! The verdict of `longhaul verify` in words, for text and pages.

use longhaul_profile::{Quantity, Verdict, Verification};

/// The verdict on `path` in a sentence without its end.
pub(crate) fn verdict(path: &str, verdict: Verdict) -> String {
    let verdict = match verdict {
        Verdict::Within => "behaves like the measured path, within the margins",
        Verdict::Outside => "does not behave like the measured path",
        Verdict::TooLittleData => "may behave like the measured path: there is too little data to say",
    };
    format!("{path} {verdict}")
}

/// What neither has says nothing.
pub(crate) fn said(found: &Verification) -> impl Iterator<Item = &Quantity> {
    found.quantities.iter().filter(|quantity| quantity.measured != 0.0 || quantity.path != 0.0)
}

/// A quantity in words. Times are in milliseconds, shares have a percent sign.
pub(crate) struct Cells {
    pub(crate) measured: String,
    pub(crate) path: String,
    pub(crate) difference: String,
    pub(crate) margin: String,
    pub(crate) verdict: &'static str,
}

impl Cells {
    pub(crate) fn of(quantity: &Quantity) -> Self {
        let scale = match quantity.name {
            name if name.is_time() => 1e-6,
            name if name.is_share() => 100.0,
            _ => 1.0,
        };
        let unit = if quantity.name.is_share() { " %" } else { "" };
        let value = |value: f64| format!("{:.3}{unit}", value * scale);
        let difference = quantity.difference.map_or_else(
            || "no 10 independent parts".to_owned(),
            |[low, high]| format!("{:+.3} to {:+.3}{unit}", low * scale, high * scale),
        );
        let verdict = match quantity.verdict {
            Verdict::Within => "within",
            Verdict::Outside => "OUTSIDE",
            Verdict::TooLittleData => "too little data",
        };
        let (measured, path) = (value(quantity.measured), value(quantity.path));
        Self { measured, path, difference, margin: format!("±{}", value(quantity.margin)), verdict }
    }
}
