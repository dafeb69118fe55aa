//! `[[finding]]`: what should come of an experiment, as a relation between the means of its points.
//!
//! ```toml
//! [[finding]]
//! says = "Scalable gets more than Reno"
//! points = ["One flow, scalable", "One flow, reno"]   # series and point, as a comma joins them
//! falls_by = 1.2                                      # each has at least so many times as much as the next
//! ```

use longhaul_report::html::findings::{Asked, Relation};
use longhaul_report::html::points::Run;
use longhaul_report::html::{tcp_goodput, udp_loss};
use serde::Deserialize;
use toml::Table;

use super::error::ExperimentError;
use super::{TcpSeries, UdpSeries, one_line};

/// Findings of an experiment at most.
const FINDINGS_MOST: usize = 64;

/// Letters of a sentence at most.
const SAYS_LETTERS_MOST: usize = 300;
const POINTS_MOST: usize = 64;

/// A finding of the source, which the experiment should repeat; whether it does is a `JudgedFinding` of `longhaul-report`.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperFinding {
    /// In words.
    pub says: String,
    /// The name of the means.
    pub quantity: String,
    /// What should hold between them.
    pub relation: Relation,
    /// Series and point of each, from 0.
    pub points: Vec<(usize, usize)>,
}

/// Its text form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindingText {
    says: String,
    quantity: Option<String>,
    points: Vec<String>,
    falls_by: Option<f64>,
    ratio: Option<[f64; 2]>,
    within: Option<[f64; 2]>,
    #[serde(rename = "full")]
    _full: Option<Table>,
}

/// What points are called in a finding.
pub(crate) fn name(series: &str, label: &str) -> String {
    format!("{series}, {label}")
}

/// What findings can be about.
pub(super) struct Subjects {
    /// The mean of a finding that names none.
    main: &'static str,
    /// All means.
    all: &'static [&'static str],
    /// Series and point, and what they are called.
    names: Vec<((usize, usize), String)>,
}

impl Subjects {
    pub(super) fn of(udp: &[UdpSeries], tcp: &[TcpSeries]) -> Self {
        if tcp.is_empty() {
            let series = udp.iter();
            let named =
                series.map(|series| (series.name.as_str(), series.tests.iter().map(|test| test.label.as_str())));
            return Self { main: udp_loss::Run::MAIN.name, all: udp_loss::QUANTITIES, names: names(named) };
        }
        let series = tcp.iter();
        let named = series.map(|series| (series.name.as_str(), series.tests.iter().map(|test| test.label.as_str())));
        Self { main: tcp_goodput::Run::MAIN.name, all: tcp_goodput::QUANTITIES, names: names(named) }
    }

    /// Of series of which each is called by its name alone: its point `point`.
    pub(super) fn of_series<'a>(
        main: &'static str,
        all: &'static [&'static str],
        series: impl Iterator<Item = &'a str>,
        point: usize,
    ) -> Self {
        let names = series.enumerate().map(|(number, name)| ((number, point), name.to_owned())).collect();
        Self { main, all, names }
    }

    /// The findings that `written` says.
    pub(super) fn findings(&self, written: Vec<FindingText>) -> Result<Vec<PaperFinding>, ExperimentError> {
        if written.len() > FINDINGS_MOST {
            let why = format!("{} of them, {FINDINGS_MOST} at most", written.len());
            return Err(ExperimentError::at("finding", why));
        }
        let finding = |(number, finding)| PaperFinding::from_text(&format!("finding[{number}]"), finding, self);
        written.into_iter().enumerate().map(finding).collect()
    }
}

impl PaperFinding {
    /// What is asked of a result. `point` has the name of a point, and its place in the result; `None` where it was not run.
    pub(crate) fn asked(&self, point: impl Fn(usize, usize) -> (String, Option<(usize, usize)>)) -> Asked {
        let points = self.points.iter().map(|(series, label)| point(*series, *label)).collect();
        Asked { says: self.says.clone(), quantity: self.quantity.clone(), relation: self.relation, points }
    }

    fn from_text(place: &str, written: FindingText, subjects: &Subjects) -> Result<Self, ExperimentError> {
        let at = |key: &str, why: String| ExperimentError::at(format_args!("{place}.{key}"), why);
        let says = one_line(&format!("{place}.says"), &written.says, SAYS_LETTERS_MOST)?;
        let Subjects { main, all, names } = subjects;
        let quantity = written.quantity.unwrap_or_else(|| (*main).to_owned());
        if !all.contains(&quantity.as_str()) {
            return Err(at("quantity", format!("`{}`: one of {}", quantity.escape_debug(), all.join(", "))));
        }
        // Infinity is no bound, and JSON has none.
        let bound = |bound: f64| bound.is_finite().then_some(bound);
        let relation = match (written.falls_by, written.ratio, written.within) {
            (Some(by), None, None) if by.is_finite() && by >= 0.0 => Relation::FallsBy(by),
            (None, Some([least, most]), None) if least <= most => Relation::Ratio(bound(least), bound(most)),
            (None, None, Some([least, most])) if least <= most => Relation::Within(bound(least), bound(most)),
            (Some(_), None, None) => return Err(at("falls_by", "a number of 0 or more".into())),
            (None, Some(_), None) => return Err(at("ratio", "[least, most], as in [0.5, 2.0] or [3.0, inf]".into())),
            (None, None, Some(_)) => return Err(at("within", "[least, most], as in [0.5, 2.0] or [3.0, inf]".into())),
            _ => return Err(at("says", "give one of falls_by, ratio and within".into())),
        };
        let least = if matches!(relation, Relation::Within(..)) { 1 } else { 2 };
        if !(least..=POINTS_MOST).contains(&written.points.len()) {
            return Err(at("points", format!("{} of them, {least} to {POINTS_MOST}", written.points.len())));
        }
        let find = |wanted: &String| {
            names.iter().find(|(_, name)| name == wanted).map(|(place, _)| *place).ok_or_else(|| {
                let meant = longhaul_units::nearest(wanted, names.iter().map(|(_, name)| name.as_str()));
                let meant = meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?"));
                at("points", format!("`{}`: no point `SERIES, LABEL` is called so{meant}", wanted.escape_debug()))
            })
        };
        let points = written.points.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { says, quantity, relation, points })
    }
}

fn names<'a, L: Iterator<Item = &'a str>>(series: impl Iterator<Item = (&'a str, L)>) -> Vec<((usize, usize), String)> {
    let named = |(number, (series, labels)): (usize, (&'a str, L))| {
        labels.enumerate().map(|(point, label)| ((number, point), name(series, label))).collect::<Vec<_>>()
    };
    series.enumerate().flat_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Experiment;
    use super::*;

    const GOOD: &str = "title = 'x'\npath = 'lan'\n[[tcp]]\nname = 'One flow'\ncongestion = ['reno', 'cubic']\n\
                        [[finding]]\nsays = 'CUBIC gets more'\npoints = ['One flow, cubic', 'One flow, reno']\nfalls_by = 1.1\n";

    #[test]
    fn points_are_found_by_name() {
        let experiment = Experiment::parse(GOOD, Path::new("")).unwrap();
        let finding = &experiment.findings[0];
        assert_eq!(
            (finding.points.as_slice(), finding.quantity.as_str()),
            ([(0, 1), (0, 0)].as_slice(), "goodput_bps")
        );
        assert_eq!(finding.relation, Relation::FallsBy(1.1));
        let text = GOOD.replace("falls_by = 1.1", "ratio = [2, inf]\nquantity = 'mean_rtt_ns'");
        let experiment = Experiment::parse(&text, Path::new("")).unwrap();
        assert_eq!(experiment.findings[0].relation, Relation::Ratio(Some(2.0), None));
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (from, to, said) in [
            (
                "'One flow, cubic'",
                "'One flow, cubik'",
                "8:finding[0].points: `One flow, cubik`: no point `SERIES, LABEL` is called so, did you mean `One flow, cubic`?",
            ),
            ("falls_by = 1.1", "", "7:finding[0].says: give one of falls_by, ratio and within"),
            ("falls_by = 1.1", "ratio = [3, 2]", "9:finding[0].ratio: [least, most]"),
            ("falls_by = 1.1", "falls_by = -1", "9:finding[0].falls_by: a number of 0 or more"),
            (
                "falls_by = 1.1",
                "falls_by = 1\nquantity = 'speed'",
                "10:finding[0].quantity: `speed`: one of goodput_bps, ",
            ),
            ("['One flow, cubic', 'One flow, reno']", "['One flow, reno']", "8:finding[0].points: 1 of them, 2 to 64"),
            ("'CUBIC gets more'", "''", "7:finding[0].says: 1 to 300 letters"),
            ("falls_by", "fall_by", "unknown field `fall_by`, expected one of `says`"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{to}: {error}");
        }
    }
}
