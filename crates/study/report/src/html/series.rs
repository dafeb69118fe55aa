//! What the reports of experiments share, whatever their tests measure: series, the points in them, and their place on a page.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use longhaul_result::Caveat;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::html::about::{About, spaced};
use crate::html::findings::{JudgedFinding, section, summary};
use crate::html::over_time::runs::{AT_ONCE, Detail, MOST_BYTES};
use crate::html::page::{caveats, escape, folded, verdict};
use crate::html::points::{PAPER_COLUMNS, Point, Rejected, Run};
use crate::html::table::Table;

/// Causes of rejection that a page lists; longhaul itself has some ten.
const CAUSES_MOST: usize = 50;

/// What a page says first if each of its points is doubtful, or has no result.
pub(crate) const NOTHING_TRUSTED: &str = "No result is reliable.";

/// Points that a page draws and lists at most: each takes up to 3 kB, and the page is to have less than 2 MB.
const POINTS_MOST: usize = 500;

/// What is to be reported.
#[derive(Debug, Clone)]
pub struct Report<R> {
    /// What it is about.
    pub about: About,
    /// A panel each.
    pub series: Vec<Series<R>>,
    /// What came of the findings of its source.
    pub findings: Vec<JudgedFinding>,
}

/// Points that differ in one thing, over one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series<R> {
    /// How it differs from the others.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub name: String,
    /// What the source reports there; empty if nothing.
    pub paper: String,
    /// Changes of the path for this series.
    pub changes: Vec<String>,
    /// How the hosts of all its points differ from a lab's.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// How often the server's receive ring is polled, in nanoseconds; `None`: each frame as it comes.
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000, max = 1_000_000_000)))]
    pub poll_interval_ns: Option<u64>,
    /// Who receives background traffic; `None` in other experiments.
    #[serde(default)]
    pub receiver: Option<Receiver>,
    /// Its points, in the order of the experiment.
    pub points: Vec<Point<R>>,
}

/// Who receives a mix in all points of a series, and what the paper has of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receiver {
    /// What it does with frames: `plain`, `filter` or `nftables`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["plain", "filter", "nftables"])))]
    pub receiver: String,
    /// Length of each frame, FCS included.
    #[cfg_attr(feature = "schema", schemars(range(min = 64, max = 1518)))]
    pub frame_bytes: u16,
    /// What the receiver of the paper accepted, by rate.
    pub paper_received: Vec<PaperReceived>,
}

/// A point in the figures of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PaperReceived {
    /// Rate on a wire (L1).
    pub rate_bps: u64,
    /// Frames a second that the receiver of the paper accepted.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub packets_per_second: f64,
}

impl<R: Run> Series<R> {
    /// The caveats of the runs that count, each with the series, point and run that it is about.
    pub fn placed_caveats(&self) -> impl Iterator<Item = Caveat> {
        self.points.iter().flat_map(move |point| {
            point.runs.iter().flat_map(move |run| {
                let place = format!("{}, {}, run {}", self.name, point.label, run.repeat);
                let problems = run.run.problems();
                problems.error.iter().chain(&problems.caveats).map(move |caveat| caveat.about(&place))
            })
        })
    }

    /// The first error of a run.
    pub fn first_error(&self) -> Option<&Caveat> {
        self.points.iter().find_map(Point::first_error)
    }

    /// The parameters that its points share, in a line.
    fn setting(&self) -> String {
        let mut settings = self.points.iter().filter_map(|point| point.shown().next()).map(Run::setting);
        let mut parts = settings.next().unwrap_or_default();
        settings.for_each(|other| parts.retain(|part| other.contains(part)));
        parts.extend(self.hosts.iter().map(|words| format!("hosts with {words}")));
        let poll = self.poll_interval_ns.map(|ns| spaced(Nanos(ns).rounded()));
        parts.extend(poll.map(|interval| format!("receive ring of 256 frames, polled every {interval}")));
        parts.extend((!self.changes.is_empty()).then(|| format!("path with {}", self.changes.join(", "))));
        parts.join("; ")
    }
}

/// How many runs points have.
#[derive(Debug, Default)]
pub(crate) struct RunCounts {
    /// Of the points with a run that counts.
    of_points: BTreeSet<usize>,
    counted: usize,
    rejected: usize,
}

impl RunCounts {
    /// Adds a point of which so many runs count and so many were rejected.
    pub(crate) fn add(&mut self, counted: usize, rejected: usize) {
        self.of_points.extend(Some(counted).filter(|count| *count > 0));
        self.counted += counted;
        self.rejected += rejected;
    }

    /// How sure means of so many runs are. `said` says of how many runs they are, and what their interval is.
    pub(crate) fn certainty(&self, said: impl FnOnce(&str) -> String) -> String {
        let runs = match (self.of_points.first(), self.of_points.last()) {
            (Some(1), Some(1)) => {
                return "One run per point: no confidence interval.".into();
            }
            (Some(least), Some(most)) if least == most => format!("{least} runs"),
            (Some(least), Some(most)) => format!("{least} to {most} runs"),
            _ => return "No run counts.".into(),
        };
        let rejected = match self.rejected {
            0 => "No run was rejected.".to_owned(),
            number => format!(
                "{number} of {} runs were rejected, because this machine spoiled them, and repeated.",
                number + self.counted
            ),
        };
        format!("{} {rejected}", said(&runs))
    }
}

impl<R: Run> Report<R> {
    /// Each point with its series.
    pub(crate) fn points(&self) -> impl Iterator<Item = (&Series<R>, &Point<R>)> {
        self.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)))
    }

    /// The runs that figures are made of.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &R> {
        self.points().flat_map(|(_, point)| point.shown())
    }

    /// How the page begins: the subject, `found` in words, how sure that is, its caveats.
    pub(crate) fn head(&self, body: &mut String, found: &[String]) {
        self.about.head(body);
        let findings = summary(&self.findings);
        // Nothing is claimed before it is said that nothing can be trusted.
        let nothing = found.first().is_some_and(|first| first == NOTHING_TRUSTED);
        let (before, after) = if nothing { (None, findings) } else { (findings, None) };
        let found: Vec<String> = before.into_iter().chain(found.iter().cloned()).chain(after).collect();
        *body += &verdict(None, "", &found.join(" "), &self.certainty());
        let doubts = self.doubts();
        *body += doubts.as_deref().unwrap_or_default();
        let mut placed = self.series.iter().flat_map(Series::placed_caveats).peekable();
        // Without any it says that no known problem affects the figures.
        if doubts.is_none() || placed.peek().is_some() {
            *body += &caveats(placed);
        }
        section(body, &self.findings);
    }

    /// What a page has room for: the first series, as far as they have [`POINTS_MOST`] points together. If that is not all, the page says so.
    pub(crate) fn drawn(&self, body: &mut String) -> Cow<'_, Self>
    where
        R: Clone,
    {
        let all = self.points().count();
        if all <= POINTS_MOST {
            return Cow::Borrowed(self);
        }
        let mut drawn = self.clone();
        let mut room = POINTS_MOST;
        for series in &mut drawn.series {
            series.points.truncate(room);
            room -= series.points.len();
        }
        drawn.series.retain(|series| !series.points.is_empty());
        let _ = writeln!(
            body,
            "<p>Figures and tables have the first {POINTS_MOST} of {all} points. The result has all of them.</p>"
        );
        Cow::Owned(drawn)
    }

    /// How sure the means are.
    fn certainty(&self) -> String {
        let mut counts = RunCounts::default();
        self.points().for_each(|(_, point)| counts.add(point.runs.len(), point.rejected.len()));
        counts.certainty(|runs| {
            format!("Each point is the mean of {runs} in random order, each in a new lab; an error bar is its 95 % interval (Student's t).")
        })
    }

    /// The points that should not be trusted, on a line that unfolds; `None` without any.
    fn doubts(&self) -> Option<String> {
        let doubtful: Vec<String> = self
            .points()
            .filter(|(_, point)| point.doubtful)
            .map(|(series, point)| format!("{}, {}", series.name, point.label))
            .collect();
        let are = if doubtful.len() == 1 { "point is doubtful and pale" } else { "points are doubtful and pale" };
        let line = format!("{} {are} in the figures", doubtful.len());
        let lead = "This machine spoiled each try of a run, or a caveat of a run says why:";
        (!doubtful.is_empty()).then(|| folded(&line, lead, &doubtful))
    }

    /// The figures, side by side; `draw` draws the points of a series.
    pub(crate) fn panels(&self, body: &mut String, draw: impl Fn(&Series<R>) -> String) {
        *body += "<div class=\"panels\">\n";
        for series in &self.series {
            *body += &format!("<figure><h3>{}</h3>\n", escape(&series.name));
            let measured = series.points.iter().any(|point| point.shown().next().is_some());
            *body += &if measured { draw(series) } else { "<p class=\"quiet\">Not measured.</p>\n".into() };
            *body += &format!("<figcaption><p>{}</p>", escape(&series.setting()));
            if !series.paper.is_empty() {
                *body += &format!("<p>In the paper: {}</p>", escape(&series.paper));
            }
            *body += "</figcaption></figure>\n";
        }
        *body += "</div>\n";
    }

    /// Figures over time of one run of each point, those of each series folded, in as much detail as a page has room for. Whether there are any.
    pub(crate) fn over_time(&self, body: &mut String) -> bool {
        let drawn = Detail::ALL.into_iter().find_map(|detail| Some((detail, self.over_time_in(detail)?)));
        let Some((detail, figures)) = drawn else {
            *body += "<h2>Over time</h2>\n<p class=\"quiet\">Too many points to draw in a page: the result has their numbers.</p>\n";
            return false;
        };
        if figures.is_empty() {
            return false;
        }
        let mut notes = vec![
            "Of each point one run is drawn: the first that counted, or the first that was rejected where none counted.",
        ];
        if !detail.has_own {
            notes.push("There are too many points to show what limited each and where it lost packets.");
        }
        if detail.ends_alone {
            notes.push("Of each series the first and the last point are drawn.");
        }
        let _ = writeln!(body, "<h2>Over time</h2>\n<p class=\"quiet\">{}</p>\n{figures}", notes.join(" "));
        true
    }

    /// `None` where that would be too long.
    fn over_time_in(&self, detail: Detail) -> Option<String> {
        let mut html = String::new();
        for series in &self.series {
            let named = series.points.iter().filter_map(|point| {
                let rejected = if point.counts() { "" } else { " (rejected)" };
                Some((format!("{}{rejected}", point.label), point.drawn_over_time()?))
            });
            let named: Vec<(String, &R)> = named.collect();
            let mut points: Vec<(&str, &R)> = named.iter().map(|(name, run)| (name.as_str(), *run)).collect();
            if detail.ends_alone && points.len() > 2 {
                let last = points.len() - 1;
                points.drain(1..last);
            }
            for some in points.chunks(AT_ONCE) {
                let figures = R::over_time(some, detail);
                if figures.is_empty() {
                    continue;
                }
                let which = match (some, points.len() > some.len()) {
                    ([(first, _), .., (last, _)], true) => format!(": {first} to {last}"),
                    ([(only, _)], true) => format!(": {only}"),
                    _ => String::new(),
                };
                let open = if html.is_empty() { " open" } else { "" };
                let name = escape(&format!("{}{which}", series.name));
                let _ =
                    writeln!(html, "<details class=\"folded\"{open}><summary>{name}</summary>\n{figures}</details>");
                if html.len() > MOST_BYTES {
                    return None;
                }
            }
        }
        Some(html)
    }

    /// The results in columns: the first has the point's label, the second its runs, `cells` are those of the others; the last of them says why
    /// where there is no result.
    pub(crate) fn table(
        &self,
        body: &mut String,
        columns: &[impl ToString],
        cells: impl Fn(&Series<R>, &Point<R>) -> Option<Vec<String>>,
    ) {
        let mut columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let others = columns.len() - 1;
        columns.splice(1..1, ["runs"].into_iter().chain(PAPER_COLUMNS).map(str::to_owned));
        let mut table = Table::new("Results as a table", "numbers", &columns);
        for series in &self.series {
            table.group(&series.name);
            for point in &series.points {
                let none = || {
                    let why =
                        point.first_error().map_or_else(|| "not measured".to_owned(), |error| error.message.clone());
                    let mut none = vec!["–".to_owned(); others - 1];
                    none.push(why);
                    none
                };
                let cells = cells(series, point).unwrap_or_else(none);
                let doubt = if point.doubtful { ", doubtful" } else { "" };
                let before = [point.runs_text() + doubt].into_iter().chain(point.paper_cells());
                table.row(&point.label, before.chain(cells));
            }
        }
        *body += &table.finish();
        *body += "<p class=\"quiet\">Means over the runs, with half of their 95 % interval.";
        if self.points().any(|(_, point)| point.paper_value.is_some()) {
            let _ = write!(body, " Paper: {}, where the text of the source has a number.", escape(R::MAIN.title));
        }
        *body += "</p>\n";
        self.rejected(body);
    }

    /// Why runs were rejected, by cause.
    fn rejected(&self, body: &mut String) {
        let mut causes: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for (series, point) in self.points() {
            for Rejected { why, run } in &point.rejected {
                let place = format!("{}, {}, run {}", series.name, point.label, run.repeat);
                causes.entry((&why.code, &why.remedy)).or_default().push(why.about(&place).message);
            }
        }
        let more = causes.len().saturating_sub(CAUSES_MOST);
        for ((code, remedy), messages) in causes.into_iter().take(CAUSES_MOST) {
            let line = format!("Rejected runs, {}: {}", code.replace('_', " "), messages.len());
            *body += &folded(&line, remedy, &messages);
        }
        if more > 0 {
            let _ = writeln!(body, "<p class=\"quiet\">Runs were rejected for {more} more causes.</p>");
        }
    }

    /// How to make each test by hand, with `serve` at the server.
    pub(crate) fn commands(&self, body: &mut String, serve: &str) {
        *body += &format!(
            "<h2>Commands for each test</h2>\n<p>Run at the client while <code>{serve}</code> runs at the server:</p>\n<pre tabindex=\"0\">"
        );
        for series in &self.series {
            let _ = writeln!(body, "# {}: {}", escape(&series.name), escape(&series.setting()));
            for command in series.points.iter().filter_map(|point| point.shown().next()).flat_map(Run::commands) {
                let _ = writeln!(body, "{}", escape(&command));
            }
        }
        *body += "</pre>\n";
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::html::points::Problems;
    use crate::html::points::tests::{NO_PROBLEMS, Small, repeat};

    /// A report with nothing to say about itself.
    pub(crate) fn report<R>(series: Vec<Series<R>>) -> Report<R> {
        let about = About {
            title: "loss".into(),
            source: "figure 5".into(),
            note: String::new(),
            path: "nlr-small".into(),
            factor: None,
            started_at: "now".into(),
            longhaul: "0".into(),
            interrupted: false,
            hosts: Vec::new(),
        };
        Report { about, series, findings: Vec::new() }
    }

    /// A series with a point of one run for each of `runs`.
    pub(crate) fn series<R: Run>(name: &str, runs: Vec<(&str, R)>) -> Series<R> {
        let points = runs.into_iter().map(|(label, run)| {
            let mut point = Point::new(label);
            point.add(repeat(1, run));
            point
        });
        let (changes, hosts, points) = (Vec::new(), Vec::new(), points.collect());
        let paper = String::new();
        Series { name: name.into(), paper, changes, hosts, poll_interval_ns: None, receiver: None, points }
    }

    /// Where no point can be trusted, that comes first; what doubtful points show follows.
    #[test]
    fn nothing_is_claimed_of_doubtful_points_alone() {
        use crate::html::findings::{Asked, Relation};
        let mut spoiled = series::<Small>("spoiled", vec![]);
        spoiled.points.push(Point::new("b"));
        spoiled.points[0].reject(Caveat::of_error("emulator_late", "late", ""), repeat(1, Small(9.0)));
        spoiled.points[0].doubtful = true;
        let mut report = report(vec![spoiled]);
        let relation = Relation::Within(Some(1.0), None);
        let asked =
            Asked { says: "it is".into(), quantity: "size".into(), relation, points: vec![("b".into(), Some((0, 0)))] };
        report.findings = vec![asked.judge(|_| report.series[0].points.first())];
        let mut body = String::new();
        report.head(&mut body, &[NOTHING_TRUSTED.into()]);
        let verdict = "<p class=\"verdict\">No result is reliable. Of 1 finding of the source, 1 reappeared in doubtful points.</p>";
        assert!(body.contains(verdict), "{body}");
        assert!(!body.contains("No known problem affects"), "{body}");
    }

    /// As many as a file may have; the verdict is of all.
    #[test]
    fn a_page_has_room_for_some_points() {
        let of = |count: u32| report(vec![series("many", (0..count).map(|_| ("a", Small(1.0))).collect())]);
        let mut body = String::new();
        assert_eq!(of(500).drawn(&mut body).points().count(), 500);
        assert_eq!(body, "");
        let mut many = of(400);
        many.series.extend([of(400), of(1)].map(|report| report.series[0].clone()));
        let drawn = many.drawn(&mut body);
        assert_eq!(drawn.series.iter().map(|series| series.points.len()).collect::<Vec<_>>(), [400, 100]);
        assert!(body.contains("the first 500 of 801 points"), "{body}");
    }

    /// A run that has this many letters to draw, where there is room for so much.
    struct Drawn(usize);

    impl Run for Drawn {
        const MAIN: crate::html::points::Quantity = Small::MAIN;

        fn quantities(&self) -> Vec<(&'static str, f64)> {
            vec![("size", 1.0)]
        }

        fn problems(&self) -> &Problems {
            &NO_PROBLEMS
        }

        fn problems_mut(&mut self) -> &mut Problems {
            unreachable!("only an experiment that runs adds some")
        }

        fn has_over_time(&self) -> bool {
            self.0 > 0
        }

        fn forget_over_time(&mut self) {
            self.0 = 0;
        }

        fn over_time(runs: &[(&str, &Self)], detail: Detail) -> String {
            runs.iter().map(|(_, run)| "x".repeat(run.0 * detail.most)).collect()
        }
    }

    #[test]
    fn of_each_point_the_first_run_that_counts_is_drawn() {
        let mut point = Point::new("a");
        point.reject(Caveat::of_error("emulator_late", "late", ""), repeat(1, Drawn(7)));
        assert_eq!(point.drawn_over_time().map(|run| run.0), Some(7));
        assert!(point.has_over_time(false) && !point.has_over_time(true), "one that counts is drawn in its place");
        point.add(repeat(2, Drawn(5)));
        point.add(repeat(3, Drawn(0)));
        assert_eq!(point.drawn_over_time().map(|run| run.0), Some(5));
        assert!(point.has_over_time(true));
    }

    #[test]
    fn figures_over_time_are_as_fine_as_there_is_room_for() {
        let drawn = |letters: usize, points: usize| {
            let labels: Vec<String> = (0..points).map(|number| format!("point {number}")).collect();
            let runs = labels.iter().map(|label| (label.as_str(), Drawn(letters))).collect();
            let mut body = String::new();
            let any = report(vec![series("<one>", runs)]).over_time(&mut body);
            (any, body)
        };
        let (any, body) = drawn(1, 9);
        assert!(any && body.contains(&"x".repeat(1_600)) && !body.contains("too many points"), "{body}");
        assert_eq!(body.matches("<details class=\"folded\"").count(), 2, "eight at once: {body}");
        assert!(
            body.contains("open><summary>&lt;one&gt;: point 0 to point 7<") && body.contains(": point 8<"),
            "{body}"
        );
        // 400 points are 0.8 MB at 50 windows, and more than a page has room for at 100.
        let (any, body) = drawn(40, 400);
        assert!(any && body.matches('x').count() == 400 * 40 * 50 && body.len() < MOST_BYTES, "{}", body.len());
        let (any, body) = drawn(200, 400);
        assert!(any && body.matches('x').count() == 2 * 200 * 25, "{}", body.len());
        assert!(body.contains("too many points") && body.contains("the first and the last point are drawn"), "{body}");
        let (any, body) = drawn(100_000, 1);
        assert!(!any && body.contains("Too many points"), "{}", body.len());
        assert_eq!(drawn(0, 3), (false, String::new()));
    }

    /// What was rejected and what stays doubtful stands on the page, each in its place.
    #[test]
    fn rejected_runs_and_doubtful_points_are_told() {
        let why = || Caveat::of_error("emulator_late", "late by 3 ms", "");
        let mut whole = series("whole", vec![("a", Small(1.0))]);
        whole.points[0].add(repeat(2, Small(2.0)));
        whole.points[0].reject(why(), repeat(2, Small(9.0)));
        let mut spoiled = series::<Small>("spoiled", vec![]);
        spoiled.points.push(Point::new("b"));
        spoiled.points[0].reject(why(), repeat(1, Small(9.0)));
        spoiled.points[0].doubtful = true;
        whole.points[0].paper_value = Some(1.0);
        let report = report(vec![whole, spoiled]);
        let mut body = String::new();
        report.head(&mut body, &["found".into()]);
        report.table(&mut body, &["point", "size"], |_, point| Some(vec![point.mean("size")?.text(1)]));
        for said in [
            "2 of 4 runs were rejected",
            "<summary>1 point is doubtful and pale in the figures</summary>",
            "<li>spoiled, b</li>",
            ">2 (1 rejected)<",
            ">0 (1 rejected), doubtful<",
            ">1.5 ±\u{a0}6.4<",
            // The source has 1.0.
            "<td data-label=\"paper\">1.0</td><td data-label=\"here - paper\">0.5 ±\u{a0}6.4</td>",
            " Paper: size, where the text of the source has a number.",
            "Rejected runs, emulator late: 2",
            "whole, a, run 2: late by 3 ms",
        ] {
            assert!(body.contains(said), "{said}: {body}");
        }
    }
}
