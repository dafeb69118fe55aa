//! Whether the findings of an experiment's source reappeared: each is a relation between means, asserted with a tolerance.
//!
//! A finding that did not reappear is a result like any other. Its text has the means, so that a reader sees why.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::html::axis::six_digits;
use crate::html::digits::with_half;
use crate::html::page::escape;
use crate::html::points::{Mean, Point, Run};

/// How the reason of a finding ends that is about a point that was left out.
const NOT_RUN: &str = "was not run";

/// What should hold between the means of points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Each has at least so many times as much as the next.
    FallsBy(f64),
    /// The first has so many times as much as each other: at least, at most; `null`: without a bound.
    Ratio(Option<f64>, Option<f64>),
    /// Each lies between: at least, at most; `null`: without a bound.
    Within(Option<f64>, Option<f64>),
}

/// What an experiment says should come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The finding, in words.
    pub says: String,
    /// The name of the means.
    pub quantity: String,
    /// What should hold.
    pub relation: Relation,
    /// Series and point by name, and their places in the result; `None` where the point was not run.
    pub points: Vec<(String, Option<(usize, usize)>)>,
}

/// What the runs say of a finding: its verdict, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JudgedFinding {
    /// The finding, in words.
    pub says: String,
    /// The name of the means that it is about.
    pub quantity: String,
    /// What should hold between them.
    pub relation: Relation,
    /// The points, series and label of each.
    pub points: Vec<String>,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Whether the 95 % intervals of the means leave no other verdict; `false` also where a point is doubtful or has one run.
    pub sure: bool,
    /// A point is doubtful, so the verdict proves nothing.
    #[serde(default)]
    pub doubtful: bool,
    /// The means, and what prevented the finding.
    pub why: String,
}

/// Whether a finding reappeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Reappeared,
    /// It does not.
    DidNotReappear,
    /// A point was not run, or not measured, or both compared values are 0.
    NotDecided,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Reappeared => "reappeared",
            Self::DidNotReappear => "did not reappear",
            Self::NotDecided => "not decided",
        }
    }
}

/// A mean, or the quotient of two.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Of(Mean),
    Ratio(Mean, Mean),
}

impl Value {
    /// The quotient of two means. Over zero it is beyond every bound; of nothing to nothing there is none.
    fn ratio(one: Mean, other: Mean) -> Option<Self> {
        (other.mean != 0.0 || one.mean != 0.0).then_some(Self::Ratio(one, other))
    }

    fn at(self) -> f64 {
        match self {
            Self::Of(mean) => mean.mean,
            Self::Ratio(one, other) => one.mean / other.mean,
        }
    }

    /// Whether it is farther from `bound` than its interval is wide. A quotient is beyond a bound where one - bound * other is, which has the
    /// interval of independent errors: that holds as well where the other may be nothing (Fieller 1954).
    fn is_clear_of(self, bound: f64) -> bool {
        let (distance, half) = match self {
            Self::Of(mean) => (mean.mean - bound, mean.half_width),
            // Nothing in three runs excludes little.
            Self::Ratio(_, other) if other.mean == 0.0 => return false,
            Self::Ratio(one, other) => {
                let halves = one.half_width.zip(other.half_width);
                (one.mean - bound * other.mean, halves.map(|(one, other)| one.hypot(bound * other)))
            }
        };
        half.is_some_and(|half| distance.abs() >= half)
    }

    /// Whether it lies between the bounds, and whether its whole interval says so.
    fn between(self, least: Option<f64>, most: Option<f64>) -> (bool, bool) {
        let bounds = [least, most].into_iter().zip([1.0, -1.0]);
        let mut bounds = bounds.filter_map(|(bound, sign)| Some((bound.filter(|bound| bound.is_finite())?, sign)));
        let is_beyond = |(bound, sign): (f64, f64)| (self.at() - bound) * sign < 0.0;
        let has_interval = match self {
            Self::Of(mean) => mean.half_width.is_some(),
            Self::Ratio(one, other) => one.half_width.is_some() && other.half_width.is_some(),
        };
        if bounds.clone().any(is_beyond) {
            return (false, bounds.any(|bound| is_beyond(bound) && self.is_clear_of(bound.0)));
        }
        (true, has_interval && bounds.all(|(bound, _)| self.is_clear_of(bound)))
    }
}

impl Asked {
    /// What came of it. `point_at` finds the point at a place of the result.
    pub fn judge<'a, R: Run + 'a>(&self, point_at: impl Fn((usize, usize)) -> Option<&'a Point<R>>) -> JudgedFinding {
        let found = |verdict, (sure, doubtful), why: String| JudgedFinding {
            says: self.says.clone(),
            quantity: self.quantity.clone(),
            relation: self.relation,
            points: self.points.iter().map(|(name, _)| name.clone()).collect(),
            verdict,
            sure,
            doubtful,
            why,
        };
        let mut means: Vec<(&str, Mean, &Point<R>)> = Vec::new();
        for (name, place) in &self.points {
            let Some(place) = place else {
                return found(Verdict::NotDecided, (false, false), format!("{name} {NOT_RUN}"));
            };
            let Some((point, mean)) = point_at(*place).and_then(|point| Some((point, point.mean(&self.quantity)?)))
            else {
                return found(Verdict::NotDecided, (false, false), format!("{name} has no {}", self.quantity));
            };
            means.push((name, mean, point));
        }
        let values: Vec<Option<Value>> = match self.relation {
            Relation::FallsBy(_) => means.windows(2).map(|pair| Value::ratio(pair[0].1, pair[1].1)).collect(),
            Relation::Ratio(..) => means[1..].iter().map(|(_, other, _)| Value::ratio(means[0].1, *other)).collect(),
            Relation::Within(..) => means.iter().map(|(_, mean, _)| Some(Value::Of(*mean))).collect(),
        };
        let doubtful = means.iter().any(|(_, _, point)| point.doubtful);
        let (least, most) = match self.relation {
            Relation::FallsBy(least) => (Some(least), None),
            Relation::Ratio(least, most) | Relation::Within(least, most) => (least, most),
        };
        let judged: Vec<(bool, bool)> = values.iter().flatten().map(|value| value.between(least, most)).collect();
        if values.contains(&None) && judged.iter().all(|(holds, _)| *holds) {
            let mut why = told(&self.quantity, &means, |_| String::new());
            why.push("nothing to compare".into());
            return found(Verdict::NotDecided, (false, doubtful), why.join("; "));
        }
        let holds = judged.iter().all(|(holds, _)| *holds);
        // One that surely fails is enough to say that it does not hold.
        let sure = !doubtful
            && if holds {
                judged.iter().all(|(_, sure)| *sure)
            } else {
                judged.iter().any(|(holds, sure)| !holds && *sure)
            };
        let around = |point: &Point<R>| if holds { String::new() } else { R::circumstances(point) };
        let mut why = told(&self.quantity, &means, around);
        if !matches!(self.relation, Relation::Within(..)) {
            let ratio =
                |value: &Option<Value>| value.map_or_else(|| "–".to_owned(), |value| format!("{:.2}", value.at()));
            let ratios: Vec<String> = values.iter().map(ratio).collect();
            why.push(format!("ratio {}, {} asked", ratios.join(", "), self.bounds()));
        } else {
            why.push(format!("{} asked", self.bounds()));
        }
        if doubtful {
            why.push("a point is doubtful".into());
        } else if !sure {
            why.push("the intervals leave it open".into());
        }
        found(if holds { Verdict::Reappeared } else { Verdict::DidNotReappear }, (sure, doubtful), why.join("; "))
    }

    fn bounds(&self) -> String {
        let shown = |bound: f64| match self.relation {
            Relation::Within(..) => {
                let (factor, unit) = unit(&self.quantity, bound);
                format!("{}{unit}", six_digits(bound * factor))
            }
            _ => six_digits(bound).to_string(),
        };
        match self.relation {
            Relation::FallsBy(least) => format!("at least {}", shown(least)),
            Relation::Ratio(least, most) | Relation::Within(least, most) => match (least, most) {
                (Some(least), Some(most)) => format!("{} to {}", shown(least), shown(most)),
                (Some(least), None) => format!("at least {}", shown(least)),
                (None, Some(most)) => format!("at most {}", shown(most)),
                (None, None) => "anything".into(),
            },
        }
    }
}

/// The means in words, each with the name of its point and what is `around` it. Of points of one series the first names the series, and a unit is
/// said where it changes.
fn told<R: Run>(
    quantity: &str,
    means: &[(&str, Mean, &Point<R>)],
    around: impl Fn(&Point<R>) -> String,
) -> Vec<String> {
    let series = series_of_all(means);
    // A number after a number would be read as one.
    let ends_in_digit = |point: &Point<R>| point.label.ends_with(|letter: char| letter.is_ascii_digit());
    let between = if means.iter().any(|(.., point)| ends_in_digit(point)) { ": " } else { " " };
    let mut said_unit = None;
    let mut told = Vec::with_capacity(means.len());
    for (name, mean, point) in means {
        let (factor, unit) = unit(quantity, mean.mean);
        let value = with_half(mean.mean * factor, mean.half_width.map(|half| half * factor));
        let around = around(point);
        let around = if around.is_empty() { around } else { format!(" ({around})") };
        told.push(match series {
            None => format!("{name}: {value}{unit}{around}"),
            Some(series) => {
                let before = if told.is_empty() { format!("{series}: ") } else { String::new() };
                let unit = if said_unit.replace(unit) == Some(unit) { "" } else { unit };
                format!("{before}{}{between}{value}{unit}{around}", point.label)
            }
        });
    }
    told
}

/// The series of several points, if all are of one.
fn series_of_all<'a, R>(means: &[(&'a str, Mean, &Point<R>)]) -> Option<&'a str> {
    fn of<'a, R>((name, _, point): &(&'a str, Mean, &Point<R>)) -> Option<&'a str> {
        name.strip_suffix(point.label.as_str())?.strip_suffix(", ")
    }
    let first = of(means.first()?)?;
    (means.len() > 1 && means.iter().all(|one| of(one) == Some(first))).then_some(first)
}

/// The unit in which people read `value`, and its factor; the name of a quantity ends with the unit of its values.
fn unit(quantity: &str, value: f64) -> (f64, &'static str) {
    if quantity.ends_with("_bps") {
        (1e-6, " Mb/s")
    } else if quantity.ends_with("_ns") {
        if value >= 1e9 {
            (1e-9, " s")
        } else if value >= 1e6 {
            (1e-6, " ms")
        } else {
            (1e-3, " us")
        }
    } else if quantity.ends_with("_percent") {
        (1.0, " %")
    } else {
        (1.0, "")
    }
}

impl JudgedFinding {
    /// Whether it is about a point that was left out (`--only`, `--quick`).
    fn is_left_out(&self) -> bool {
        self.verdict == Verdict::NotDecided && self.why.ends_with(NOT_RUN)
    }

    /// Its verdict in words, with how far it can be trusted.
    fn words(&self) -> String {
        let verdict = self.verdict.words();
        match self.verdict {
            Verdict::NotDecided if self.is_left_out() => "not run".into(),
            Verdict::NotDecided => verdict.into(),
            _ if self.doubtful => format!("{verdict} in doubtful points"),
            _ if !self.sure => format!("{verdict} with low confidence"),
            _ => verdict.into(),
        }
    }
}

/// How many reappeared, in a sentence; `None` without any. What is sure comes first, what doubtful points show last.
pub(crate) fn summary(findings: &[JudgedFinding]) -> Option<String> {
    let mut ordered: Vec<&JudgedFinding> = findings.iter().collect();
    ordered.sort_by_key(|found| (found.doubtful, found.verdict as u8, !found.sure, found.is_left_out()));
    let of_kind = ordered.chunk_by(|one, other| one.words() == other.words());
    let parts: Vec<String> = of_kind
        .map(|found| match found[0].verdict {
            Verdict::NotDecided if found[0].is_left_out() => {
                let are = if found.len() == 1 { "is" } else { "are" };
                format!("{} {are} about points that were not run", found.len())
            }
            Verdict::NotDecided => format!("{} could not be decided", found.len()),
            _ => format!("{} {}", found.len(), found[0].words()),
        })
        .collect();
    let of = if findings.len() == 1 { "finding" } else { "findings" };
    (!findings.is_empty()).then(|| format!("Of {} {of} of the source, {}.", findings.len(), parts.join("; ")))
}

/// A line each, for a terminal.
pub fn text(findings: &[JudgedFinding]) -> String {
    let mut text = summary(findings).map_or_else(String::new, |summary| format!("{summary}\n"));
    for finding in findings.iter().filter(|finding| !finding.is_left_out()) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}: {}\n    {}", finding.words(), finding.says, finding.why);
    }
    left_out(findings).iter().for_each(|says| _ = writeln!(text, "  not run: {says}"));
    text
}

/// The findings about points that were left out, on one line; `None` without any.
fn left_out(findings: &[JudgedFinding]) -> Option<String> {
    let says: Vec<&str> = findings.iter().filter(|found| found.is_left_out()).map(|found| &*found.says).collect();
    (!says.is_empty()).then(|| says.join("; "))
}

/// The findings on a page.
pub(crate) fn section(body: &mut String, findings: &[JudgedFinding]) {
    if findings.is_empty() {
        return;
    }
    *body += "<h2>What the source found</h2>\n<ul class=\"findings\">\n";
    for finding in findings.iter().filter(|finding| !finding.is_left_out()) {
        let _ = writeln!(
            body,
            "<li data-verdict=\"{}\"><strong>{}</strong>: {}<br><span class=\"quiet\">{}</span></li>",
            finding.verdict.words(),
            finding.words(),
            escape(&finding.says),
            escape(&finding.why)
        );
    }
    if let Some(says) = left_out(findings) {
        let _ = writeln!(body, "<li data-verdict=\"not run\"><strong>not run</strong>: {}</li>", escape(&says));
    }
    *body += "</ul>\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::points::tests::{Small, repeat};

    /// A point for each list of sizes.
    fn series(points: &[&[f64]]) -> Vec<Point<Small>> {
        let point = |(number, sizes): (usize, &&[f64])| {
            let mut point = Point::new(number.to_string());
            sizes.iter().zip(1..).for_each(|(size, run)| point.add(repeat(run, Small(*size))));
            point
        };
        points.iter().enumerate().map(point).collect()
    }

    fn judged(asked: &Asked, points: &[Point<Small>]) -> JudgedFinding {
        asked.judge(|(_, number)| points.get(number))
    }

    fn asked(relation: Relation, points: usize) -> Asked {
        let points = (0..points).map(|number| (format!("s, {number}"), Some((0, number)))).collect();
        Asked { says: "it falls".into(), quantity: "size".into(), relation, points }
    }

    #[test]
    fn an_order_holds_or_not_and_says_how_sure_that_is() {
        let apart = series(&[&[10.0, 11.0, 12.0], &[5.0, 5.1, 5.2]]);
        let found = judged(&asked(Relation::FallsBy(1.2), 2), &apart);
        assert_eq!((found.verdict, found.sure), (Verdict::Reappeared, true), "{found:?}");
        assert!(found.why.contains("ratio 2.16, at least 1.2 asked"), "{found:?}");
        let not = judged(&asked(Relation::FallsBy(4.0), 2), &apart);
        assert_eq!((not.verdict, not.sure), (Verdict::DidNotReappear, true), "{not:?}");
        let near = series(&[&[10.0, 14.0], &[9.0, 13.0]]);
        let open = judged(&asked(Relation::FallsBy(1.0), 2), &near);
        assert_eq!((open.verdict, open.sure), (Verdict::Reappeared, false));
        assert!(open.why.ends_with("the intervals leave it open"), "{open:?}");
        assert_eq!(
            summary(&[open, found, not]).as_deref(),
            Some("Of 3 findings of the source, 1 reappeared; 1 reappeared with low confidence; 1 did not reappear.")
        );
    }

    /// A share of nothing to a little: its quotient has no end, and is beyond each bound all the same.
    #[test]
    fn a_divisor_that_may_be_nothing_leaves_little_open() {
        let judge = |points: &[&[f64]], relation| {
            let found = judged(&asked(relation, 2), &series(points));
            (found.verdict, found.sure)
        };
        let (bunched, hardly) = (&[86.8, 86.9, 87.0][..], &[0.1, 0.5, 0.8][..]);
        assert_eq!(judge(&[bunched, hardly], Relation::FallsBy(3.0)), (Verdict::Reappeared, true));
        assert_eq!(judge(&[bunched, hardly], Relation::FallsBy(100.0)), (Verdict::Reappeared, false));
        assert_eq!(judge(&[bunched, &[0.0, 0.0, 0.0]], Relation::FallsBy(3.0)), (Verdict::Reappeared, false));
        assert_eq!(judge(&[hardly, bunched], Relation::FallsBy(3.0)), (Verdict::DidNotReappear, true));
        assert_eq!(
            judge(&[bunched, hardly], Relation::Ratio(Some(2.0), Some(f64::INFINITY))),
            (Verdict::Reappeared, true)
        );
        assert_eq!(judge(&[&[9.0], &[1.0]], Relation::FallsBy(3.0)), (Verdict::Reappeared, false), "one run each");
    }

    #[test]
    fn bounds_hold_for_each_point() {
        let sizes = series(&[&[10.0, 10.0], &[5.0, 5.0], &[2.0, 2.0]]);
        let judge = |relation, points| judged(&asked(relation, points), &sizes).verdict;
        assert_eq!(judge(Relation::Ratio(Some(2.0), Some(5.0)), 3), Verdict::Reappeared);
        assert_eq!(judge(Relation::Ratio(Some(2.0), Some(4.0)), 3), Verdict::DidNotReappear);
        assert_eq!(judge(Relation::Within(Some(2.0), None), 3), Verdict::Reappeared);
        assert_eq!(judge(Relation::Within(None, Some(9.0)), 3), Verdict::DidNotReappear);
        // A point without a mean decides nothing.
        assert_eq!(judge(Relation::Within(None, None), 4), Verdict::NotDecided);
        let mut left_out = asked(Relation::FallsBy(1.0), 2);
        left_out.points[1].1 = None;
        let found = judged(&left_out, &sizes);
        assert_eq!((found.verdict, found.why.as_str()), (Verdict::NotDecided, "s, 1 was not run"));
        // What was left out is one line, however much that is.
        let holds = judged(&asked(Relation::Within(Some(2.0), None), 3), &sizes);
        let (said, mut body) = (text(&[found.clone(), holds.clone(), found.clone()]), String::new());
        section(&mut body, &[found.clone(), holds, found]);
        let first = "Of 3 findings of the source, 1 reappeared; 2 are about points that were not run.\n";
        assert!(said.starts_with(first) && said.ends_with("  not run: it falls; it falls\n"), "{said}");
        assert_eq!((body.matches("<li").count(), body.matches("not run").count()), (2, 2), "{body}");
    }

    /// Where neither point lost a packet, neither lost more.
    #[test]
    fn of_nothing_and_nothing_no_ratio_is_told() {
        let nothing = series(&[&[0.0, 0.0], &[0.0, 0.0], &[1.0, 1.0]]);
        for relation in [Relation::FallsBy(1.0), Relation::Ratio(Some(0.9), Some(1.1))] {
            let found = judged(&asked(relation, 2), &nothing);
            let why = "s: 0: 0 ± 0; 1: 0 ± 0; nothing to compare";
            assert_eq!((found.verdict, found.sure, found.why.as_str()), (Verdict::NotDecided, false, why));
        }
        // That each is small is decided all the same, and so is what nothing is beside something.
        assert_eq!(judged(&asked(Relation::Within(None, Some(1.0)), 2), &nothing).verdict, Verdict::Reappeared);
        let mut reversed = asked(Relation::FallsBy(1.0), 2);
        reversed.points[0].1 = Some((0, 2));
        assert_eq!(judged(&reversed, &nothing).verdict, Verdict::Reappeared);
        // One pair that fails is enough.
        let failed = judged(&asked(Relation::FallsBy(1.0), 3), &nothing);
        assert_eq!(failed.verdict, Verdict::DidNotReappear);
        assert!(failed.why.contains("ratio –, 0.00"), "{failed:?}");
    }

    /// The series and the unit of its means; of several series each point has both.
    #[test]
    fn what_points_share_is_told_once() {
        let points = ["lh_scalable", "reno", "reno × 4"].map(Point::<Small>::new);
        let mean = |mbit: f64, half: f64| Mean { mean: mbit * 1e6, half_width: Some(half * 1e6) };
        let scalable = ("One flow, by loss, lh_scalable", mean(252.057, 1.757), &points[0]);
        let reno = ("One flow, by loss, reno", mean(50.93, 0.163), &points[1]);
        let four = ("One flow, by loss, reno × 4", mean(200.0, 3.1), &points[2]);
        let elsewhere = ("Two flows, reno", mean(50.93, 0.163), &points[1]);
        let said = |means: &[(&str, Mean, &Point<Small>)]| told("goodput_bps", means, |_| String::new()).join("; ");
        assert_eq!(said(&[scalable, reno]), "One flow, by loss: lh_scalable 252.1 ± 1.8 Mb/s; reno 50.93 ± 0.16");
        assert_eq!(said(&[reno, four]), "One flow, by loss: reno: 50.93 ± 0.16 Mb/s; reno × 4: 200.0 ± 3.1");
        let both = "One flow, by loss, reno: 50.93 ± 0.16 Mb/s; Two flows, reno: 50.93 ± 0.16 Mb/s";
        assert_eq!(said(&[reno, elsewhere]), both);
        assert_eq!(said(&[reno]), "One flow, by loss, reno: 50.93 ± 0.16 Mb/s");
        let times = [("s, a", Mean { mean: 2e9, half_width: None }, &points[0])];
        assert_eq!(told("time_ns", &times, |_| "why".into()), ["s, a: 2 s (why)"]);
    }

    /// A doubtful point proves nothing: neither the sentence nor the list says more than that it was seen there.
    #[test]
    fn what_doubtful_points_show_is_counted_apart() {
        let mut sizes = series(&[&[10.0, 10.0], &[5.0, 5.0], &[2.0, 2.0]]);
        sizes[2].doubtful = true;
        let findings = [asked(Relation::FallsBy(1.0), 2), asked(Relation::FallsBy(1.0), 3)];
        let findings: Vec<JudgedFinding> = findings.iter().map(|asked| judged(asked, &sizes)).collect();
        assert_eq!(findings.iter().map(|found| found.doubtful).collect::<Vec<_>>(), [false, true]);
        let (said, mut body) = (text(&findings), String::new());
        section(&mut body, &findings);
        assert!(
            said.starts_with("Of 2 findings of the source, 1 reappeared; 1 reappeared in doubtful points.\n"),
            "{said}"
        );
        assert_eq!(body.matches("<strong>reappeared</strong>").count(), 1, "{body}");
    }

    #[test]
    fn the_page_says_what_did_not_reappear() {
        let sizes = series(&[&[1.0, 1.0], &[2.0, 2.0]]);
        let findings = [asked(Relation::FallsBy(1.0), 2), asked(Relation::Within(Some(1.0), None), 2)];
        let findings: Vec<JudgedFinding> = findings.iter().map(|asked| judged(asked, &sizes)).collect();
        let mut body = String::new();
        section(&mut body, &findings);
        assert!(body.contains("data-verdict=\"did not reappear\"") && body.contains("ratio 0.50"), "{body}");
        assert_eq!(
            summary(&findings).as_deref(),
            Some("Of 2 findings of the source, 1 reappeared; 1 did not reappear.")
        );
    }
}
