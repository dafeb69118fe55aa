//! The verdicts of `longhaul verify` and `longhaul compare --behaviour` in words, for text and pages.

use longhaul_flows::compare::equivalence::{Quantity, QuantityName, Verdict};

/// The verdict on `path` in a sentence without its end.
pub(crate) fn verdict(path: &str, verdict: Verdict) -> String {
    let verdict = match verdict {
        Verdict::Within => "behaves like the measured path, within the margins",
        Verdict::Outside => "does not behave like the measured path",
        Verdict::TooLittleData => "may behave like the measured path: there is too little data to say",
    };
    format!("{path} {verdict}")
}

/// The quantities that decided `verdict`, each of `(of what, quantity)` in their order, in a sentence; empty where all are within.
pub(crate) fn why<'a>(verdict: Verdict, all: impl Iterator<Item = (String, &'a Quantity)>) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut before = None;
    for (of, quantity) in all.filter(|(_, quantity)| quantity.verdict == verdict) {
        let name = quantity.name.name();
        match names.last_mut().filter(|_| before.as_ref() == Some(&of)) {
            Some(last) => *last += &format!(", {name}"),
            None if of.is_empty() => names.push(name.to_owned()),
            None => names.push(format!("{of}: {name}")),
        }
        before = Some(of);
    }
    match verdict {
        Verdict::Outside => format!("Outside the margin: {}.", names.join("; ")),
        Verdict::TooLittleData if !names.is_empty() => format!("Too little data for: {}.", names.join("; ")),
        _ => String::new(),
    }
}

/// A quantity in words. Times are in milliseconds, shares have a percent sign.
pub(crate) struct Cells {
    pub(crate) reference: String,
    pub(crate) tested: String,
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
        let (unit, digits) = match quantity.name {
            QuantityName::LossShare => (" %", 4),
            name if name.is_share() => (" %", 3),
            _ => ("", 3),
        };
        // What a file says is printed in bounded width.
        let scaled = |value: f64| (value * scale).clamp(-1e12, 1e12);
        let value = |value: f64| format!("{:.digits$}{unit}", scaled(value));
        let difference = quantity.difference.map_or_else(
            || "too few independent parts".to_owned(),
            |[low, high]| format!("{:+.digits$} to {:+.digits$}{unit}", scaled(low), scaled(high)),
        );
        let verdict = match quantity.verdict {
            Verdict::Within => "within",
            Verdict::Outside => "OUTSIDE",
            Verdict::TooLittleData => "too little data",
        };
        let of = |side: f64| if quantity.name == QuantityName::Distance { String::new() } else { value(side) };
        let (reference, tested) = (of(quantity.reference), of(quantity.tested));
        Self { reference, tested, difference, margin: format!("±{}", value(quantity.margin)), verdict }
    }

    /// A row of text under [`header`].
    pub(crate) fn row(&self, name: &str) -> String {
        let Self { reference, tested, difference, margin, verdict } = self;
        format!("{name:<17}{reference:>11} {tested:>11} {difference:>25} {margin:>11}  {verdict}\n")
    }
}

/// The head of rows.
pub(crate) fn header(reference: &str, tested: &str) -> String {
    format!("{:<17}{reference:>11} {tested:>11} {:>25} {:>11}\n", "", "difference, 90 %", "margin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decided_is_said_by_kind() {
        let quantity = |name, verdict| Quantity {
            name,
            reference: 2e6,
            tested: 3e6,
            difference: Some([0.5e6, 1.5e6]),
            difference_99: Some([0.2e6, 1.8e6]),
            margin: 1e5,
            verdict,
        };
        let outside = [QuantityName::MedianNs, QuantityName::P99Ns].map(|name| quantity(name, Verdict::Outside));
        let within = quantity(QuantityName::RangeNs, Verdict::Within);
        let all = [("rtt", &outside[0]), ("rtt", &within), ("rtt", &outside[1]), ("delay", &outside[0])];
        let all = || all.into_iter().map(|(of, quantity)| (of.to_owned(), quantity));
        assert_eq!(why(Verdict::Outside, all()), "Outside the margin: rtt: median, p99; delay: median.");
        assert_eq!(why(Verdict::Within, all()), "");
        let alone = [(String::new(), &outside[0]), (String::new(), &outside[1])];
        assert_eq!(why(Verdict::Outside, alone.into_iter()), "Outside the margin: median, p99.");
        let cells = Cells::of(&outside[0]);
        assert_eq!((cells.reference.as_str(), cells.margin.as_str(), cells.verdict), ("2.000", "±0.100", "OUTSIDE"));
        assert_eq!(cells.difference, "+0.500 to +1.500");
    }
}
