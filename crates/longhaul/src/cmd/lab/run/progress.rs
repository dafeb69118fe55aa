//! What `lab run` shows while it runs, and its tables.

use std::fmt::Write;

use longhaul_experiment::{Event, Experiment, Made, Plan, Ran};
use longhaul_kernel::{stderr_line, stderr_text};
use longhaul_report::text::experiment::{mix_line, mix_table, tcp_line, tcp_table, udp_line, udp_table};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::output::live::{Show, Stamp, overwritten};
use crate::output::prometheus::Textfile;
use crate::output::{plain, print_text};

/// One line for each run; on a terminal one line that is written over.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    plan: &'a Plan,
    show: Show,
    /// How far it is: `[12/36, 1:40 left]`.
    far: String,
    /// What the last run had.
    last: String,
    metrics: Option<Textfile>,
    rejected_runs: u64,
}

/// What `--prometheus` has.
#[derive(Serialize)]
struct Interval {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    /// Runs that count.
    done_runs: usize,
    all_runs: usize,
    rejected_runs: u64,
    left_ns: u64,
}

impl<'a> Progress<'a> {
    pub(super) fn new(plan: &'a Plan, json: bool, metrics: Option<Textfile>) -> Self {
        let show = match Show::choose(None, json, false) {
            Show::Nothing if json => Show::LinesBeside,
            Show::Nothing => Show::Lines,
            terminal => terminal,
        };
        Self { plan, show, far: String::new(), last: String::new(), metrics, rejected_runs: 0 }
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::WarmsUp => self.over("warming up"),
            Event::Begins { run, done, of, left } => {
                self.far = format!("[{done}/{of}, {} left]", clock(*left));
                let line = format!("{} {}{}", self.far, self.plan.words(run), self.last);
                self.over(&line);
                if let Some(metrics) = &mut self.metrics {
                    metrics.write(&Interval {
                        schema: "longhaul.lab.run.interval/1",
                        stamp: Stamp::now(),
                        done_runs: *done,
                        all_runs: *of,
                        rejected_runs: self.rejected_runs,
                        left_ns: left.0,
                    });
                }
            }
            Event::Made { run, made, .. } => {
                self.rejected_runs += u64::from(made.rejected().is_some());
                let had = match made {
                    Made::Udp(made) => udp_line(&made.run.run),
                    Made::Tcp(made) => tcp_line(&made.run.run),
                    Made::Mix(made) => mix_line(&made.run.run),
                };
                let why = made.rejected().map_or_else(String::new, |why| format!("; rejected: {}", why.message));
                let line = format!("{} {}: {had}{why}", self.far, self.plan.words(run));
                self.last = format!(" (last: {had}{})", if why.is_empty() { "" } else { ", rejected" });
                self.line(&line);
            }
            Event::NotMeasured(why) => self.note(&format!("not measured: {why}")),
        }
    }

    /// A line that stays.
    pub(super) fn note(&mut self, line: &str) {
        self.end();
        match self.show {
            Show::Lines => print_text(&format!("{line}\n")),
            _ => stderr_line!("{}", plain(line)),
        }
    }

    /// A line that stays where nothing is written over.
    fn line(&mut self, line: &str) {
        if self.show != Show::Terminal {
            self.note(line);
        }
    }

    /// A line on a terminal, for now.
    fn over(&self, line: &str) {
        if self.show == Show::Terminal {
            stderr_text!("{}", overwritten(line));
        }
    }

    /// Clears the line on the terminal.
    pub(super) fn end(&self) {
        if self.show == Show::Terminal {
            stderr_text!("{}\r", overwritten(""));
        }
    }
}

/// All series with their points.
pub(super) fn tables(experiment: &Experiment, ran: &Ran) -> String {
    let units = match (experiment.mix.is_empty(), experiment.tcp.is_empty()) {
        (false, _) => "rates of the mix in Mb/s on a wire (L1)",
        (true, true) => "rates in Mb/s of payload, losses in percent of the packets",
        (true, false) => "rates in Mb/s of payload, windows in packets",
    };
    let mut text = format!("{}; {units}; means with half of their 95 % interval\n", experiment.title);
    let tests = ran.udp.iter().map(udp_table).chain(ran.tcp.iter().map(tcp_table));
    for table in tests.chain(ran.mix.iter().map(mix_table)) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{table}");
    }
    text
}

/// What would be run, and how long that takes, `before` the first run included.
pub(super) fn plan(title: &str, plan: &Plan, before: Nanos) -> String {
    let mut text = format!("{title}\n");
    let mut all = before;
    for (name, labels, runs, time) in plan.series() {
        let _ = writeln!(text, "  {name}: {}; {runs} runs each, about {}", labels.join(", "), clock(time));
        all = Nanos(all.0.saturating_add(time.0));
    }
    let _ = writeln!(
        text,
        "{} runs in random order, about {} with {} before the first; more where runs are rejected",
        plan.runs().len(),
        clock(all),
        clock(before)
    );
    text
}

/// Minutes and seconds, or hours and minutes: `1:40`, `2 h 05 min`.
pub(super) fn clock(time: Nanos) -> String {
    let seconds = time.0.div_ceil(1_000_000_000);
    match seconds {
        0..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}
