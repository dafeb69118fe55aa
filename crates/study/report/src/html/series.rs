//! What the reports of experiments over a path share, whatever their tests measure: series, the tests in them, and their place on a page.

use std::fmt::Write;

use longhaul_result::Caveat;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::html::about::{About, spaced};
use crate::html::page::escape;
use crate::html::table::Table;

/// What is to be reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<R> {
    /// What it is about.
    pub about: About,
    /// A panel each.
    pub series: Vec<Series<R>>,
}

/// Tests that differ in one thing, over one path.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series<R> {
    /// How it differs from the others.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub name: String,
    /// What the source reports there; empty if nothing.
    pub paper: String,
    /// Changes of the path for this series.
    pub changes: Vec<String>,
    /// How often the server's receive ring is polled, in nanoseconds; `None`: each frame as it comes.
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000, max = 1_000_000_000)))]
    pub poll_interval_ns: Option<u64>,
    /// Its tests, in the order of the experiment.
    pub runs: Vec<R>,
    /// Why there is none, with what to do; `None` where there is.
    pub error: Option<Caveat>,
    /// What speaks against trusting the series as a whole.
    pub caveats: Vec<Caveat>,
}

/// One test of a series.
pub trait Run {
    /// How it differs from the others of its series.
    fn label(&self) -> String;

    /// Whether there is a result.
    fn has_result(&self) -> bool;

    /// Why there is no result, or no whole one.
    fn error(&self) -> Option<&Caveat>;

    /// What speaks against trusting it.
    fn caveats(&self) -> &[Caveat];

    /// Its parameters in words, but for the label.
    fn setting(&self) -> Vec<String>;

    /// The commands that make the same test, a line each.
    fn commands(&self) -> Vec<String>;
}

impl<R: Run> Series<R> {
    /// Its caveats, each with the series and test that it is about.
    pub fn placed_caveats(&self) -> impl Iterator<Item = (String, &Caveat)> {
        let whole = self.error.iter().chain(&self.caveats).map(|caveat| (self.name.clone(), caveat));
        let runs = self.runs.iter().flat_map(|run| {
            let place = format!("{}, {}", self.name, run.label());
            run.error().into_iter().chain(run.caveats()).map(move |caveat| (place.clone(), caveat))
        });
        whole.chain(runs)
    }

    /// The first error, of the series or of a test.
    pub fn first_error(&self) -> Option<&Caveat> {
        self.error.as_ref().or_else(|| self.runs.iter().find_map(Run::error))
    }

    /// Its parameters in a line.
    fn setting(&self) -> String {
        let mut parts = self.runs.first().map(Run::setting).unwrap_or_default();
        let poll = self.poll_interval_ns.map(|ns| spaced(Nanos(ns)));
        parts.extend(poll.map(|interval| format!("receive ring of 256 frames, polled every {interval}")));
        parts.extend((!self.changes.is_empty()).then(|| format!("path with {}", self.changes.join(", "))));
        parts.join("; ")
    }
}

impl<R: Run> Report<R> {
    pub(crate) fn runs(&self) -> impl Iterator<Item = &R> {
        self.series.iter().flat_map(|series| &series.runs)
    }

    pub(crate) fn placed_caveats(&self) -> impl Iterator<Item = (String, &Caveat)> {
        self.series.iter().flat_map(Series::placed_caveats)
    }

    /// The figures, side by side; `draw` draws the tests of a series.
    pub(crate) fn panels(&self, body: &mut String, draw: impl Fn(&Series<R>) -> String) {
        *body += "<div class=\"panels\">\n";
        for series in &self.series {
            *body += &format!("<figure><h3>{}</h3>\n", escape(&series.name));
            *body +=
                &if series.runs.is_empty() { "<p class=\"quiet\">Not measured.</p>\n".into() } else { draw(series) };
            *body += &format!("<figcaption><p>{}</p>", escape(&series.setting()));
            if !series.paper.is_empty() {
                *body += &format!("<p>In the paper: {}</p>", escape(&series.paper));
            }
            *body += "</figcaption></figure>\n";
        }
        *body += "</div>\n";
    }

    /// The results in columns: the first has the test's label, `cells` are those of the others; the last of them says why where there is no result.
    pub(crate) fn table(
        &self,
        body: &mut String,
        columns: &[impl ToString],
        cells: impl Fn(&R) -> Option<Vec<String>>,
    ) {
        let mut table = Table::new("Results as a table", "numbers", columns);
        for series in &self.series {
            table.group(&series.name);
            for run in &series.runs {
                let none = || {
                    let why = run.error().map_or_else(|| "not measured".to_owned(), |error| error.message.clone());
                    let mut none = vec!["–".to_owned(); columns.len() - 2];
                    none.push(why);
                    none
                };
                table.row(&run.label(), cells(run).unwrap_or_else(none));
            }
        }
        *body += &table.finish();
    }

    /// How to make each test by hand, with `serve` at the server.
    pub(crate) fn commands(&self, body: &mut String, serve: &str) {
        *body += &format!(
            "<h2>Commands for each test</h2>\n<p>Run at the client while <code>{serve}</code> runs at the server:</p>\n<pre tabindex=\"0\">"
        );
        for series in &self.series {
            let _ = writeln!(body, "# {}: {}", escape(&series.name), escape(&series.setting()));
            for command in series.runs.iter().flat_map(Run::commands) {
                let _ = writeln!(body, "{}", escape(&command));
            }
        }
        *body += "</pre>\n";
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with nothing to say about itself.
    pub(crate) fn report<R>(series: Vec<Series<R>>) -> Report<R> {
        let about = About {
            title: "loss".into(),
            source: "figure 5".into(),
            note: String::new(),
            path: "nlr-small".into(),
            started_at: "now".into(),
            longhaul: "0".into(),
            interrupted: false,
            hosts: Vec::new(),
        };
        Report { about, series }
    }

    /// A series of `runs`, without anything else.
    pub(crate) fn series<R>(name: &str, runs: Vec<R>) -> Series<R> {
        let (paper, changes) = (String::new(), Vec::new());
        Series { name: name.into(), paper, changes, poll_interval_ns: None, runs, error: None, caveats: Vec::new() }
    }
}
