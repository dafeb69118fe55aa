//! Results of experiments as they were saved: their page once more, and several side by side.

use std::collections::HashMap;

use longhaul_result::Caveat;
use longhaul_units::is_obeyed;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::html::findings::{self, JudgedFinding};
use crate::html::points::{Mean, Point, Quantity, Run};
use crate::html::series::{Report, RunCounts, Series};
use crate::html::table::Table;
use crate::html::{About, Host, mix, page, tcp_goodput, udp_loss};
use crate::text::column_width;
use crate::text::experiment::{mix_table, tcp_table, udp_table};

/// The form of a result of `longhaul lab run`.
pub const SCHEMA: &str = "longhaul.lab.run/2";

/// Points of an experiment at most, and series.
const POINTS_MOST: usize = 10_000;
const SERIES_MOST: usize = 64;
/// Letters of the name of a series or point at most.
const LETTERS_MOST: usize = 500;

/// A result of `longhaul lab run`.
#[derive(Debug, Clone)]
pub struct SavedExperiment {
    about: About,
    udp: Vec<Series<udp_loss::Run>>,
    tcp: Vec<Series<tcp_goodput::Run>>,
    mix: Vec<Series<mix::Run>>,
    findings: Vec<JudgedFinding>,
}

#[derive(Deserialize)]
struct Envelope {
    longhaul: String,
    started_at: String,
    parameters: Parameters,
    #[serde(default)]
    hosts: Value,
    result: Ended,
}

#[derive(Deserialize)]
struct Parameters {
    title: String,
    source: String,
    note: String,
    path_summary: String,
    #[serde(default)]
    factor: Option<f64>,
}

#[derive(Deserialize)]
struct Ended {
    interrupted: bool,
    udp: Vec<Series<udp_loss::Run>>,
    tcp: Vec<Series<tcp_goodput::Run>>,
    #[serde(default)]
    mix: Vec<Series<mix::Run>>,
    #[serde(default)]
    findings: Vec<JudgedFinding>,
}

impl SavedExperiment {
    /// Reads the JSON of a result.
    ///
    /// # Errors
    /// It is none of an experiment; in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            schema: String,
        }
        let form: Form = serde_json::from_str(text).map_err(|error| format!("no result: {error}"))?;
        if form.schema != SCHEMA {
            return Err(format!("the result of another command ({})", form.schema.escape_debug()));
        }
        let Envelope { longhaul, started_at, parameters, hosts, result } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Parameters { title, source, note, path_summary, factor } = parameters;
        let Ended { interrupted, udp, tcp, mix, findings } = result;
        are_an_experiments(&udp)?;
        are_an_experiments(&tcp)?;
        are_an_experiments(&mix)?;
        let hosts = Host::of_snapshots(&hosts);
        let about = About { title, source, note, path: path_summary, factor, started_at, longhaul, interrupted, hosts };
        Ok(Self { about, udp, tcp, mix, findings })
    }

    /// Its page.
    pub fn to_html(&self) -> String {
        let (about, findings) = (self.about.clone(), self.findings.clone());
        if !self.mix.is_empty() {
            Report { about, series: self.mix.clone(), findings }.to_html()
        } else if self.tcp.is_empty() {
            Report { about, series: self.udp.clone(), findings }.to_html()
        } else {
            Report { about, series: self.tcp.clone(), findings }.to_html()
        }
    }

    /// Its tables.
    pub fn text(&self) -> String {
        let tables = self.udp.iter().map(udp_table).chain(self.tcp.iter().map(tcp_table));
        let tables: Vec<String> = tables.chain(self.mix.iter().map(mix_table)).collect();
        let findings = findings::text(&self.findings);
        format!("{}, {}\n\n{}\n{findings}", self.about.title, self.about.started_at, tables.join("\n"))
    }

    /// What it is about.
    fn quantity(&self) -> Quantity {
        match (self.mix.is_empty(), self.tcp.is_empty()) {
            (false, _) => mix::Run::MAIN,
            (true, true) => udp_loss::Run::MAIN,
            (true, false) => tcp_goodput::Run::MAIN,
        }
    }

    /// Series, label and values of each point that is compared.
    fn points(&self) -> Vec<(&str, &str, Values)> {
        fn of<R: Run>(series: &Series<R>) -> impl Iterator<Item = (&str, &str, Values)> {
            series.points.iter().map(|point| (series.name.as_str(), point.label.as_str(), values(point)))
        }
        fn values<R: Run>(point: &Point<R>) -> Values {
            let main = |run: &R| run.quantities().into_iter().find(|(name, _)| *name == R::MAIN.name);
            let of_runs: Vec<f64> = point.shown().filter_map(main).map(|(_, value)| value / R::MAIN.unit).collect();
            let doubtful = !of_runs.is_empty() && (point.doubtful || !point.counts());
            let (counted, rejected) = (point.runs.len(), point.rejected.len());
            let paper = point.paper_value.map(|value| value / R::MAIN.unit);
            Values { of_runs, counted, rejected, doubtful, paper }
        }
        // At a rate a receiver does what it is asked to; what it can do shows as fast as it goes.
        let as_fast = self.mix.iter().flat_map(of).filter(|(_, label, _)| *label == mix::AS_FAST);
        self.udp.iter().flat_map(of).chain(self.tcp.iter().flat_map(of)).chain(as_fast).collect()
    }

    /// The caveats of its runs that count, each with the run that it is about.
    fn placed_caveats(&self) -> impl Iterator<Item = Caveat> {
        let tests =
            self.udp.iter().flat_map(Series::placed_caveats).chain(self.tcp.iter().flat_map(Series::placed_caveats));
        tests.chain(self.mix.iter().flat_map(Series::placed_caveats))
    }
}

/// What a point has in a result; nothing where it has no such point.
#[derive(Clone, Default)]
struct Values {
    of_runs: Vec<f64>,
    /// Runs that count, and that were rejected.
    counted: usize,
    rejected: usize,
    doubtful: bool,
    paper: Option<f64>,
}

/// Whether series can be those of an experiment: a table has a line for each point, as wide as the longest label.
fn are_an_experiments<R>(series: &[Series<R>]) -> Result<(), String> {
    if series.len() > SERIES_MOST {
        return Err(format!("more series than {SERIES_MOST}, which no experiment has"));
    }
    let points = || series.iter().flat_map(|series| &series.points);
    if points().count() > POINTS_MOST {
        return Err(format!("more points than {POINTS_MOST}, which no experiment has"));
    }
    let is_no_name = |label: &str| label.chars().nth(LETTERS_MOST).is_some() || label.contains(char::is_control);
    if series.iter().any(|series| is_no_name(&series.name)) || points().any(|point| is_no_name(&point.label)) {
        return Err(format!("a series or point with a name of several lines, or of more than {LETTERS_MOST} letters"));
    }
    Ok(())
}

/// Results of experiments side by side. The first is what the others are compared with.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideBySide {
    /// The names of the results.
    pub names: Vec<String>,
    /// What their points are about, and its unit.
    pub quantity: &'static str,
    /// The points of the first result, in its order.
    pub points: Vec<PointBeside>,
    #[serde(skip)]
    decimals: usize,
    /// The source has a number of a point.
    #[serde(skip)]
    has_paper: bool,
    /// How sure the means and differences are.
    #[serde(skip)]
    certainty: String,
    /// The caveats of all runs, as a page has them.
    #[serde(skip)]
    caveats: String,
}

/// A point in several results.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointBeside {
    /// Its series.
    pub series: String,
    /// Its label.
    pub label: String,
    /// Its mean in each result; `None` where a result has no such point, or no result of it.
    pub means: Vec<Option<Mean>>,
    /// By how much each result after the first is more than the first, with the 95 % interval of Welch's t test.
    pub differences: Vec<Option<Mean>>,
    /// Whether it is doubtful in each result: a difference from or to such a point proves nothing.
    pub doubtful: Vec<bool>,
    /// What the source of the first result has there; `None` where its text has no number.
    pub paper_value: Option<f64>,
}

impl PointBeside {
    /// Whether it is in one of the results.
    fn is_doubtful(&self) -> bool {
        self.doubtful.contains(&true)
    }

    /// The differences that can be trusted, and whether each is more than chance; `None` for the others.
    fn judged(&self) -> impl Iterator<Item = Option<bool>> {
        let beyond = |mean: Mean| mean.half_width.is_some_and(|half| mean.mean.abs() > half);
        let trusted = self.doubtful[1..].iter().map(|doubtful| !doubtful && !self.doubtful[0]);
        self.differences.iter().zip(trusted).map(move |(mean, trusted)| mean.filter(|_| trusted).map(beyond))
    }
}

impl SideBySide {
    /// `results` with their names, at least one.
    ///
    /// # Errors
    /// They are about different things, or share no point.
    pub fn of(results: &[(String, SavedExperiment)]) -> Result<Self, String> {
        let Some(((_, first), others)) = results.split_first() else { return Err("no result".into()) };
        let quantity = first.quantity();
        if let Some((name, _)) = others.iter().find(|(_, other)| other.quantity() != quantity) {
            return Err(format!("{name} is not about {}", quantity.title));
        }
        // Found by name: a file can have thousands of points with long names. Of those with the same name the first counts.
        let others: Vec<HashMap<(&str, &str), Values>> = (others.iter())
            .map(|(_, other)| {
                let points = other.points().into_iter().rev();
                points.map(|(series, label, values)| ((series, label), values)).collect()
            })
            .collect();
        let mut counts = RunCounts::default();
        let beside = |(series, label, values): (&str, &str, Values)| {
            let same = |points: &HashMap<(&str, &str), Values>| points.get(&(series, label)).cloned();
            let there: Vec<Values> = others.iter().map(|points| same(points).unwrap_or_default()).collect();
            let all = || std::iter::once(&values).chain(&there);
            all().for_each(|values| counts.add(values.counted, values.rejected));
            PointBeside {
                series: series.to_owned(),
                label: label.to_owned(),
                means: all().map(|values| Mean::of(&values.of_runs)).collect(),
                differences: there.iter().map(|other| Mean::of_difference(&other.of_runs, &values.of_runs)).collect(),
                doubtful: all().map(|values| values.doubtful).collect(),
                paper_value: values.paper,
            }
        };
        let points: Vec<PointBeside> = first.points().into_iter().map(beside).collect();
        if !others.is_empty() && points.iter().all(|point| point.differences.iter().all(Option::is_none)) {
            return Err("they share no point: the names of series and the labels of points have to be the same".into());
        }
        let names = results.iter().map(|(name, _)| name.clone()).collect();
        let has_paper = points.iter().any(|point| point.paper_value.is_some());
        let certainty = counts.certainty(|runs| {
            format!("Each mean is that of {runs}; differences are judged by Welch's t test at 95 %, so of 20 points that are alike one differs by chance.")
        });
        let mut placed = (results.iter())
            .flat_map(|(name, result)| result.placed_caveats().map(move |caveat| caveat.about(name)))
            .peekable();
        // Where a point is doubtful, something is known that affects the figures.
        let is_doubtful = points.iter().any(PointBeside::is_doubtful);
        let caveats = if placed.peek().is_none() && is_doubtful { String::new() } else { page::caveats(placed) };
        Ok(Self { names, quantity: quantity.title, points, decimals: quantity.decimals, has_paper, certainty, caveats })
    }

    /// What was found, in a sentence.
    pub fn verdict(&self) -> String {
        let differ: Vec<String> = (self.points.iter())
            .filter(|point| point.judged().any(|differs| differs == Some(true)))
            .map(|point| format!("{}, {}", point.series, point.label))
            .collect();
        let compared = self.points.iter().filter(|point| point.differences.iter().any(Option::is_some)).count();
        let all = self.points.iter().filter(|point| point.judged().any(|differs| differs.is_some())).count();
        let doubtful = match compared - all {
            0 => String::new(),
            1 => " 1 point is doubtful and does not count.".into(),
            many => format!(" {many} points are doubtful and do not count."),
        };
        let verdict = match differ.len() {
            0 if all == 0 => format!("No point can be compared with {}.", self.names[0]),
            0 => format!("None of {all} points differs from {} by more than chance (95 %).", self.names[0]),
            1 => format!("1 of {all} points differs from {} by more than chance (95 %): {}.", self.names[0], differ[0]),
            many => {
                let names = differ.join("; ");
                format!("{many} of {all} points differ from {} by more than chance (95 %): {names}.", self.names[0])
            }
        };
        verdict + &doubtful
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["point".to_owned()];
        columns.extend(self.names.iter().cloned());
        columns.extend(self.names[1..].iter().map(|name| format!("{name} - {}", self.names[0])));
        if self.has_paper {
            columns.extend(["paper".to_owned(), format!("{} - paper", self.names[0])]);
        }
        columns
    }

    fn cells(&self, point: &PointBeside) -> Vec<String> {
        let cell = |mean: &Option<Mean>| mean.map_or_else(|| "–".to_owned(), |mean| mean.text(self.decimals));
        let means = point.means.iter().zip(&point.doubtful);
        let means = means.map(|(mean, doubtful)| cell(mean) + if *doubtful { " (doubtful)" } else { "" });
        let differences = point.differences.iter().zip(point.judged());
        let star =
            |(mean, differs): (&Option<Mean>, Option<bool>)| cell(mean) + if differs == Some(true) { " *" } else { "" };
        let paper = point.paper_value.map(|mean| Mean { mean, half_width: None });
        let more = point.means[0].zip(point.paper_value).map(|(ours, paper)| Mean { mean: ours.mean - paper, ..ours });
        let beside_paper = [paper, more].into_iter().filter(|_| self.has_paper).map(|mean| cell(&mean));
        means.chain(differences.map(star)).chain(beside_paper).collect()
    }

    /// As text.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = std::iter::once(self.columns())
            .chain(self.points.iter().map(|point| {
                let mut row = vec![format!("{}, {}", point.series, point.label)];
                row.extend(self.cells(point));
                row
            }))
            .collect();
        let wide = |column: usize| column_width(rows.iter().map(|row| row[column].as_str()));
        let widths: Vec<usize> = (0..rows[0].len()).map(wide).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(
                |(number, (cell, wide))| {
                    if number == 0 { format!("{cell:<wide$}") } else { format!("{cell:>wide$}") }
                },
            );
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        let lines: String = rows.iter().map(line).collect();
        format!("{}; means with half of their 95 % interval\n{lines}\n{}\n", self.quantity, self.verdict())
    }

    /// As a table of Markdown, for an issue or a wiki.
    pub fn markdown(&self) -> String {
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| in_markdown(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let columns = self.columns();
        let quantity = in_markdown(self.quantity);
        let mut text = format!("{quantity}; means with half of their 95 % interval\n\n{}", row(&columns));
        text += &format!("|---|{}\n", "---:|".repeat(columns.len() - 1));
        for point in &self.points {
            let mut cells = vec![format!("{}, {}", point.series, point.label)];
            cells.extend(self.cells(point));
            text += &row(&cells);
        }
        text + &format!("\n{}\n", in_markdown(&self.verdict()))
    }

    /// As a page.
    pub fn to_html(&self) -> String {
        let title = format!("{} side by side", self.names.join(", "));
        let mut body = format!("<h1>{}</h1>\n", page::escape(&title));
        body += &page::verdict(None, "", &self.verdict(), &self.certainty);
        body += &self.doubts();
        body += &self.caveats;
        let mut table = Table::new(&page::escape(self.quantity), "numbers", &self.columns());
        let mut series = None;
        for point in &self.points {
            if series != Some(&point.series) {
                table.group(&point.series);
                series = Some(&point.series);
            }
            table.row(&point.label, self.cells(point));
        }
        body += &table.finish();
        body += "<p class=\"quiet\">Means over the runs of a point, with half of their 95 % interval (Student's t); differences with that of Welch's t \
                 test. A star: more than chance.</p>\n";
        page::page(&title, &body)
    }

    /// The points that are doubtful in a result, on a line that unfolds; empty without any.
    fn doubts(&self) -> String {
        let doubtful = self.points.iter().filter(|point| point.is_doubtful());
        let names: Vec<String> = doubtful.map(|point| format!("{}, {}", point.series, point.label)).collect();
        let line = match names.len() {
            0 => return String::new(),
            1 => "1 point is doubtful and has no star".to_owned(),
            many => format!("{many} points are doubtful and have no star"),
        };
        page::folded(&line, "This machine spoiled runs of the point, or a caveat of a run says why:", &names)
    }
}

/// `text` as Markdown shows it to the letter (CommonMark 0.31, section 2.4): names come from files of others, and an issue or a wiki must load
/// nothing and show no element for them. GitHub makes links of addresses, too. Those of mail, and names of users and issues, it finds in what is
/// shown: only a word joiner, which nobody sees, keeps them apart.
fn in_markdown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for letter in text.chars() {
        // Behind a digit it is that of a number, and of no address that becomes a link without more.
        let is_stop = letter == '.' && !before.is_ascii_digit();
        if is_stop || "\\`*_{}[]<>()#!|&~$@:".contains(letter) {
            shown.push('\\');
        }
        shown.push(if is_obeyed(letter) { ' ' } else { letter });
        if "@#".contains(letter) {
            shown.push_str("&#8288;");
        }
        before = letter;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::series::tests::{report, series};
    use crate::html::udp_loss::tests::run;

    fn saved(lost: [u64; 3]) -> SavedExperiment {
        use crate::html::points::tests::repeat;
        let of = |lost| run(400, &[(longhaul_result::Location::Network, lost)]);
        let mut one = series("one", vec![("400", of(lost[0]))]);
        for (number, lost) in (2..).zip(&lost[1..]) {
            one.points[0].add(repeat(number, of(*lost)));
        }
        SavedExperiment {
            about: report::<udp_loss::Run>(vec![]).about,
            udp: vec![one],
            tcp: Vec::new(),
            mix: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Background traffic of which the receiver has so many nanoseconds for each frame in each run.
    fn saved_mix(net_ns: [f64; 3]) -> SavedExperiment {
        use crate::html::mix::tests::{as_fast, receiving};
        use crate::html::points::tests::repeat;
        let mut one = receiving("filter", 64, net_ns[0], 0.0);
        for (number, net_ns) in (2..).zip(&net_ns[1..]) {
            one.points[1].add(repeat(number, as_fast(*net_ns)));
        }
        SavedExperiment { udp: Vec::new(), mix: vec![one], ..saved([1, 2, 3]) }
    }

    /// What a receiver takes as fast as it goes is compared; the rates have no such quantity.
    #[test]
    fn receivers_under_a_mix_are_compared() {
        let named = |name: &str, net_ns| (name.to_owned(), saved_mix(net_ns));
        let beside =
            SideBySide::of(&[named("before", [500.0, 501.0, 502.0]), named("after", [250.0, 251.0, 252.0])]).unwrap();
        assert_eq!((beside.points.len(), beside.points[0].label.as_str()), (1, mix::AS_FAST));
        assert!(beside.verdict().starts_with("1 of 1 points differs from before"), "{}", beside.verdict());
        let (_, one) = named("before", [500.0, 501.0, 502.0]);
        assert!(one.text().contains("frames per CPU second") && one.to_html().contains("The highest rate"));
        let udp = ("udp".to_owned(), saved([1, 2, 3]));
        let refused = SideBySide::of(&[named("mix", [1.0, 2.0, 3.0]), udp]).unwrap_err();
        assert_eq!(refused, "udp is not about frames per CPU second");
    }

    /// A result reads back as it was, and its page is the same.
    #[test]
    fn a_saved_mix_is_read_back() {
        let saved = saved_mix([500.0, 501.0, 502.0]);
        let result = serde_json::json!({
            "schema": SCHEMA,
            "longhaul": "0",
            "started_at": "now",
            "parameters": { "title": "loss", "source": "figure 5", "note": "", "path_summary": "nlr-small" },
            "result": { "interrupted": false, "udp": [], "tcp": [], "mix": saved.mix, "findings": [] },
        });
        let read = SavedExperiment::parse(&result.to_string()).unwrap();
        assert_eq!(read.mix[0].points[1].runs[2].run, saved.mix[0].points[1].runs[2].run);
        assert_eq!(read.to_html(), saved.to_html());
    }

    #[test]
    fn a_label_makes_no_table_wide() {
        let mut hostile = saved([1, 2, 3]).udp;
        assert!(are_an_experiments(&hostile).is_ok());
        hostile[0].points[0].label = "x".repeat(70_000);
        assert!(are_an_experiments(&hostile).unwrap_err().contains("more than 500 letters"));
        hostile[0].points = vec![saved([1, 2, 3]).udp[0].points[0].clone(); POINTS_MOST + 1];
        assert!(are_an_experiments(&hostile).unwrap_err().contains("more points"));
        let hostile = vec![saved([1, 2, 3]).udp[0].clone(); SERIES_MOST + 1];
        assert!(are_an_experiments(&hostile).unwrap_err().contains("more series"));
        let named = |name: String| (name, saved([1, 2, 3]));
        let beside = SideBySide::of(&[named("before".into()), named("x".repeat(70_000))]).unwrap();
        assert!(beside.text().contains("\none, 400 "), "the name of a result neither");
    }

    /// 1 % ± 0.25 and 2 % differ; 1 % and 1.05 % do not.
    #[test]
    fn what_differs_by_more_than_chance_is_named() {
        let named = |name: &str, lost| (name.to_owned(), saved(lost));
        let beside = SideBySide::of(&[named("before", [9, 10, 11]), named("after", [19, 20, 21])]).unwrap();
        assert!(beside.verdict().starts_with("1 of 1 points differs from before"), "{}", beside.verdict());
        assert!(beside.text().contains("1.000 ± 0.248") && beside.text().contains(" *"), "{}", beside.text());
        assert!(beside.markdown().contains("| one, 400 | 1.000 ± 0.248 |"), "{}", beside.markdown());
        assert!(beside.to_html().contains("data-row=\"400\""));
        let mut first = named("before", [9, 10, 11]);
        first.1.udp[0].points[0].paper_value = Some(12.0);
        let beside = SideBySide::of(&[first, named("after", [19, 20, 21])]).unwrap();
        let said = "| point | before | after | after - before | paper | before - paper |";
        assert!(beside.markdown().contains(said), "{}", beside.markdown());
        assert!(beside.markdown().contains(" \\* | 12.000 | -11.000 ± 0.248 |"), "{}", beside.markdown());
        let alike = SideBySide::of(&[named("a", [9, 10, 11]), named("b", [10, 10, 12])]).unwrap();
        assert!(alike.verdict().starts_with("None of 1 points"), "{}", alike.verdict());
        let mut other = named("b", [1, 2, 3]);
        other.1.udp[0].name = "two".into();
        assert!(SideBySide::of(&[named("a", [1, 2, 3]), other]).unwrap_err().contains("no point"));
    }

    /// What spoiled runs show proves nothing: neither where each try of a run was rejected, nor where no run counts.
    #[test]
    fn doubtful_points_are_marked_and_do_not_count() {
        let (before, after) = (("before".to_owned(), saved([9, 10, 11])), ("after".to_owned(), saved([19, 20, 21])));
        let (mut marked, mut spoiled) = (after.clone(), after);
        marked.1.udp[0].points[0].doubtful = true;
        let point = &mut spoiled.1.udp[0].points[0];
        for run in std::mem::take(&mut point.runs) {
            point.reject(longhaul_result::Caveat::of_error("emulator_late", "late", ""), run);
        }
        for after in [marked, spoiled] {
            let beside = SideBySide::of(&[before.clone(), after]).unwrap();
            assert_eq!(beside.points[0].doubtful, [false, true]);
            let said = "No point can be compared with before. 1 point is doubtful and does not count.";
            assert_eq!(beside.verdict(), said);
            let text = beside.text();
            assert!(text.contains("2.000 ± 0.248 (doubtful)") && !text.contains(" *"), "{text}");
        }
    }

    /// The page says how sure the verdict is and what is known against it, as that of one result does.
    #[test]
    fn a_page_says_how_sure_it_is_and_has_the_caveats_of_all_runs() {
        let named = |name: &str, lost| (name.to_owned(), saved(lost));
        let page = |after: (String, SavedExperiment)| {
            SideBySide::of(&[named("before", [9, 10, 11]), after]).unwrap().to_html()
        };
        let quiet = page(named("after", [19, 20, 21]));
        let sure = "by more than chance (95 %): one, 400.</p>\n<p class=\"certainty\">Each mean is that of 3 runs;";
        assert!(quiet.contains(sure) && quiet.contains("No run was rejected."), "{quiet}");
        assert!(quiet.contains("No known problem affects these figures."), "{quiet}");
        let late = || Caveat::of_error("emulator_late", "late by 3 ms", "");
        let mut after = named("after", [19, 20, 21]);
        let point = &mut after.1.udp[0].points[0];
        point.runs[1].run.problems.caveats.push(late());
        let one = page(after.clone());
        assert!(one.contains("<summary>1 caveat applies: emulator late</summary>"), "{one}");
        assert!(
            one.contains("<li>after: one, 400, run 2: late by 3 ms</li>") && !one.contains("No known problem"),
            "{one}"
        );
        let point = &mut after.1.udp[0].points[0];
        let mut run = point.runs.remove(1);
        run.run.problems.caveats.clear();
        point.reject(late(), run);
        point.doubtful = true;
        let doubtful = page(after);
        assert!(
            doubtful.contains("Each mean is that of 2 to 3 runs;") && doubtful.contains("1 of 6 runs were rejected")
        );
        assert!(doubtful.contains("<summary>1 point is doubtful and has no star</summary>"), "{doubtful}");
        assert!(!doubtful.contains("No known problem") && !doubtful.contains("caveat applies"), "{doubtful}");
    }

    #[test]
    fn as_many_points_as_a_file_may_have_are_found() {
        let of = |first: usize| {
            let mut all = saved([1, 2, 3]);
            let shared = all.udp[0].points.remove(0);
            all.udp[0].name = "\u{20000}".repeat(LETTERS_MOST);
            all.udp[0].points = (first..first + POINTS_MOST).map(|number| Point::new(number.to_string())).collect();
            all.udp[0].points[POINTS_MOST - 1] = shared;
            (first.to_string(), all)
        };
        let results: Vec<_> = (0..4).map(|number| of(number * POINTS_MOST)).collect();
        let beside = SideBySide::of(&results).unwrap();
        assert!(beside.points[POINTS_MOST - 1].differences.iter().all(Option::is_some));
    }

    #[test]
    fn names_are_no_links_in_markdown() {
        for (name, wanted) in [
            ("see https://far.example/x", "see https\\://far\\.example/x"),
            ("www.far.example", "www\\.far\\.example"),
            ("a@far.example", "a\\@&#8288;far\\.example"),
            ("as in #12", "as in \\#&#8288;12"),
            ("1.000 ± 0.248", "1.000 ± 0.248"),
        ] {
            assert_eq!(in_markdown(name), wanted);
        }
    }

    #[test]
    fn other_results_are_refused() {
        for text in ["", "{}", r#"{"schema":"longhaul.udp/1"}"#, r#"{"schema":"longhaul.lab.run/2"}"#] {
            assert!(SavedExperiment::parse(text).is_err(), "{text}");
        }
    }
}
