//! Lines while a command runs: whether they are shown, and where.

use std::io::IsTerminal;

use longhaul_kernel::{stderr_line, stderr_text};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::output::prometheus::Textfile;
use crate::output::{plain, print_json, print_text};

/// When and where an object of `--json-stream` was printed, so that those of several hosts can be laid over each other.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stamp {
    /// The end of the interval, in UTC, in the form of RFC 3339.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    at: String,
    /// The name of the host that printed it.
    host: String,
}

impl Stamp {
    /// Now and here.
    pub(crate) fn now() -> Self {
        let host = longhaul_kernel::sysctl::read("kernel.hostname").unwrap_or_default();
        Self { at: jiff::Timestamp::now().to_string(), host }
    }
}

/// How to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Not at all.
    Nothing,
    /// A line of text per interval, on stdout.
    Lines,
    /// The same on stderr: stdout is for JSON.
    LinesBeside,
    /// A JSON object per interval, on stdout.
    Objects,
    /// One line on the terminal, overwritten each time.
    Terminal,
}

impl Show {
    pub(crate) fn choose(interval: Option<Nanos>, json: bool, json_stream: bool) -> Self {
        match interval {
            Some(Nanos(0)) => Self::Nothing,
            _ if json_stream => Self::Objects,
            Some(_) if json => Self::LinesBeside,
            Some(_) => Self::Lines,
            None if std::io::stderr().is_terminal() => Self::Terminal,
            None => Self::Nothing,
        }
    }
}

/// Characters of a line that is written over: 80 at most, and less than the terminal has, or it would begin a second line.
fn columns() -> usize {
    let size = terminal_size::terminal_size_of(std::io::stderr());
    size.map_or(80, |(width, _)| usize::from(width.0).saturating_sub(1).clamp(1, 80))
}

/// What writes `line` over the one on the terminal, cut at its width.
pub(crate) fn overwritten(line: &str) -> String {
    let width = columns();
    let line: String = plain(line).chars().take(width).collect();
    format!("\r{line:<width$}")
}

/// Prints one line or object each interval.
#[derive(Debug)]
pub(crate) struct Lines {
    show: Show,
    written_over: bool,
    is_headed: bool,
    metrics: Option<Textfile>,
}

impl Lines {
    pub(crate) fn new(show: Show) -> Self {
        Self { show, written_over: false, is_headed: false, metrics: None }
    }

    /// The same, and each object goes to `metrics`, too.
    pub(crate) fn with_metrics(show: Show, metrics: Option<Textfile>) -> Self {
        Self { metrics, ..Self::new(show) }
    }

    /// Prints `header` above the first line, where lines stay.
    pub(crate) fn head(&mut self, header: &str) {
        if std::mem::replace(&mut self.is_headed, true) {
            return;
        }
        match self.show {
            Show::Lines => print_text(&format!("{header}\n")),
            Show::LinesBeside => stderr_line!("{}", plain(header)),
            Show::Nothing | Show::Objects | Show::Terminal => {}
        }
    }

    /// Writes `object` for Prometheus, where that was asked for.
    pub(crate) fn measure(&mut self, object: &impl Serialize) {
        if let Some(metrics) = &mut self.metrics {
            metrics.write(object);
        }
    }

    /// Prints what happened as `line`, of at most 80 characters, or as `object`.
    pub(crate) fn print(&mut self, line: &str, object: &impl Serialize) {
        self.measure(object);
        match self.show {
            Show::Nothing => {}
            Show::Lines => print_text(&format!("{line}\n")),
            Show::LinesBeside => stderr_line!("{}", plain(line)),
            Show::Objects => print_json(object),
            Show::Terminal => {
                stderr_text!("{}", overwritten(line));
                self.written_over = true;
            }
        }
    }

    /// Clears the line on the terminal, so that the result begins there.
    pub(crate) fn end(&mut self) {
        if self.written_over {
            stderr_text!("{}\r", overwritten(""));
        }
    }
}
