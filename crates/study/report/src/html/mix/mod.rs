//! A receiver under background traffic: a table, and a panel of lines for each frame size.

mod plot;

use std::fmt::Write;

use longhaul_result::Caveat;
use serde::Serialize;

use crate::html::findings::{Finding, section, summary};
use crate::html::page::{caveats, escape, page, verdict};
use crate::html::points::{self, Mean, Point, Quantity, Repeat};
use crate::html::table::Table;

/// Frames a second that one CPU of a receiver processes, and the time of each.
const FRAMES: &str = "frames_per_cpu_second";
const NET: &str = "receiver_time_ns";
const SENT: &str = "sent_packets_per_second";

/// Each mean that a series can have. The first is what experiments about a mix are about.
pub const QUANTITIES: &[&str] = &[FRAMES, NET, SENT];

/// An experiment's results.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Its title.
    pub title: String,
    /// The paper that it repeats.
    pub source: String,
    /// Its differences from the paper.
    pub note: String,
    /// The version of longhaul that made it.
    pub longhaul: String,
    /// In the order of the experiment.
    pub series: Vec<Series>,
    /// What came of the findings of its source.
    pub findings: Vec<Finding>,
}

/// All rates to one receiver, with frames of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// What sets it apart.
    pub name: String,
    /// What the paper reports there.
    pub paper: String,
    /// What the receiver does with frames: `plain`, `filter`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["plain", "filter", "nftables"])))]
    pub receiver: String,
    /// Length of each frame, FCS included.
    #[cfg_attr(feature = "schema", schemars(range(min = 64, max = 1518)))]
    pub frame_bytes: u16,
    /// What the receiver of the paper accepted, by rate.
    pub paper_received: Vec<PaperReceived>,
    /// Runs, by rate.
    pub runs: Vec<Run>,
    /// Frames sent as fast as they go, the mean of `most_runs`; `None` where that was not measured.
    pub most: Option<Most>,
    /// Each time that they were sent so.
    pub most_runs: Vec<Most>,
    /// Why it ended early.
    pub error: Option<String>,
}

/// A point in the figures of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PaperReceived {
    /// Rate on a wire (L1).
    pub rate_bps: u64,
    /// Frames a second that the receiver of the paper accepted.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub packets_per_second: f64,
}

/// Frames sent as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Most {
    /// Frames a second that the receiver's interface took.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub sent_packets_per_second: f64,
    /// Frames that the interface did not take.
    pub refused_packets: u64,
    /// CPU time of the sending thread for a frame, with the receiver's softirq in it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub sender_ns_per_packet: f64,
    /// The part of it that making a frame takes.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub making_ns_per_packet: f64,
}

impl points::Run for Most {
    const MAIN: Quantity = Quantity { name: FRAMES, title: "frames a CPU second", unit: 1.0, decimals: 0 };

    fn quantities(&self) -> Vec<(&'static str, f64)> {
        vec![
            (FRAMES, self.packets_per_cpu_second()),
            (NET, self.sender_ns_per_packet - self.making_ns_per_packet),
            (SENT, self.sent_packets_per_second),
        ]
    }
}

impl Series {
    /// The most frames a second that a CPU of the receiver takes; `None` where that was not measured.
    fn frames_per_cpu_second(&self) -> Option<f64> {
        self.most.map(|most| most.packets_per_cpu_second())
    }

    /// The most frames a second that the receiver of the paper took; `None` if the paper has no such receiver.
    fn frames_of_paper(&self) -> Option<f64> {
        self.paper_received.iter().map(|point| point.packets_per_second).reduce(f64::max)
    }

    /// Frames sent as fast as they go, as a point of several runs.
    pub fn most_point(&self) -> Point<Most> {
        let mut point = Point::new(self.name.clone());
        for (run, repeat) in self.most_runs.iter().zip(1..) {
            point.add(Repeat { repeat, seed: 0, began_at: String::new(), emulator: None, run: *run });
        }
        point
    }
}

impl Most {
    /// The mean of `runs`; `None` for none.
    pub fn mean(runs: &[Self]) -> Option<Self> {
        let mean = |of: fn(&Self) -> f64| Some(Mean::of(&runs.iter().map(of).collect::<Vec<_>>())?.mean);
        Some(Self {
            sent_packets_per_second: mean(|run| run.sent_packets_per_second)?,
            refused_packets: runs.iter().map(|run| run.refused_packets).sum(),
            sender_ns_per_packet: mean(|run| run.sender_ns_per_packet)?,
            making_ns_per_packet: mean(|run| run.making_ns_per_packet)?,
        })
    }

    /// Frames a second that one CPU of the receiver processes.
    pub fn packets_per_cpu_second(&self) -> f64 {
        1e9 / (self.sender_ns_per_packet - self.making_ns_per_packet).max(1.0)
    }

    /// In a line of text.
    pub fn row(&self) -> String {
        format!(
            "{:>10} {:>11.0} frames/s, {:.0} ns each, {:.0} of it to make the frame: {:.0} frames a CPU second",
            "most",
            self.sent_packets_per_second,
            self.sender_ns_per_packet,
            self.making_ns_per_packet,
            self.packets_per_cpu_second()
        )
    }
}

/// One rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The rate that was asked for, on a wire (L1).
    pub rate_bps: u64,
    /// Frames a second that were sent.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub sent_packets_per_second: f64,
    /// Frames that the interface did not take.
    pub refused_packets: u64,
    /// Datagrams of the stream for the receiver that were sent.
    pub stream_sent_packets: u64,
    /// Datagrams of the stream that its program received.
    pub stream_received_packets: u64,
    /// CPU time of the sending thread for a frame, with the receiver's softirq in it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub sender_ns_per_packet: f64,
    /// CPUs of the machine that were busy in softirq, by `/proc/stat`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub softirq_cpus: f64,
    /// CPUs of the machine that were busy.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub busy_cpus: f64,
    /// Goodput of a TCP flow beside the same mix.
    pub tcp_goodput_bps: u64,
    /// Frames a second of the mix beside that flow.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub tcp_mix_packets_per_second: f64,
}

impl Run {
    /// The heading of the rows.
    pub fn heading() -> String {
        format!(
            "{:>10} {:>11} {:>10} {:>10} {:>9} {:>8} {:>8} {:>9} {:>11}",
            "Mb/s (L1)", "frames/s", "stream", "received", "ns/frame", "softirq", "busy", "TCP Gb/s", "mix beside"
        )
    }

    /// In a line of text.
    pub fn row(&self) -> String {
        format!(
            "{:>10.0} {:>11.0} {:>10} {:>10} {:>9.0} {:>8.2} {:>8.2} {:>9.2} {:>11.0}",
            self.rate_bps as f64 / 1e6,
            self.sent_packets_per_second,
            self.stream_sent_packets,
            self.stream_received_packets,
            self.sender_ns_per_packet,
            self.softirq_cpus,
            self.busy_cpus,
            self.tcp_goodput_bps as f64 / 1e9,
            self.tcp_mix_packets_per_second
        )
    }
}

impl Report {
    /// As one HTML page, with what speaks against trusting it.
    pub fn to_html(&self, against: &[Caveat]) -> String {
        let mut body = format!("<h1>{}</h1>\n<p class=\"quiet\">{}</p>\n", escape(&self.title), escape(&self.source));
        let mut found: Vec<String> = summary(&self.findings).into_iter().chain(self.gains()).collect();
        if found.is_empty() {
            found.push(self.most_in_words());
        }
        body += &verdict(None, "", &found.join(" "), "");
        body += &caveats(against);
        section(&mut body, &self.findings);
        for paragraph in self.note.split("\n\n") {
            let _ = writeln!(body, "<p>{}</p>", escape(paragraph.trim()));
        }
        let mut sizes: Vec<u16> = self.series.iter().map(|series| series.frame_bytes).collect();
        sizes.dedup();
        body += &self.received(&sizes);
        for (title, of) in [
            ("TCP goodput beside the mix, Gb/s", (|run| run.tcp_goodput_bps as f64 / 1e9) as fn(&Run) -> f64),
            ("Stream received, % of datagrams sent", |run| {
                100.0 * run.stream_received_packets as f64 / run.stream_sent_packets.max(1) as f64
            }),
        ] {
            let _ = write!(body, "<h2>{title}</h2>\n<div class=\"panels\">\n");
            for size in &sizes {
                let lines: Vec<&Series> = self.series.iter().filter(|series| series.frame_bytes == *size).collect();
                body += &plot::panel(&format!("{size} bytes"), &lines, of);
            }
            body += "</div>\n";
        }
        body += &self.table();
        let _ = write!(body, "<p class=\"quiet\">longhaul {}</p>", escape(&self.longhaul));
        page(&self.title, &body)
    }

    /// How much `of` a series is in relation to the plain receiver's, with frames of the same size.
    fn times(&self, series: &Series, of: fn(&Series) -> Option<f64>) -> Option<f64> {
        let plain = self.series.iter().find(|one| one.frame_bytes == series.frame_bytes && one.receiver == "plain");
        let plain = plain.and_then(of).filter(|plain| *plain > 0.0)?;
        Some(of(series)? / plain)
    }

    /// What each kind of receiver takes in relation to the plain one, in a sentence; over all sizes of frames.
    fn gains(&self) -> Option<String> {
        let range = |receiver: &str, of: fn(&Series) -> Option<f64>| {
            let times = self.series.iter().filter(|series| series.receiver == receiver);
            let times: Vec<f64> = times.filter_map(|series| self.times(series, of)).collect();
            let (least, most) = (times.iter().copied().reduce(f64::min)?, times.iter().copied().reduce(f64::max)?);
            let (least, most) = (format!("{least:.1}"), format!("{most:.1}"));
            Some(if least == most { least } else { format!("{least} to {most}") })
        };
        let gain = |(receiver, with): (&str, &str)| {
            let here = range(receiver, Series::frames_per_cpu_second)?;
            let paper =
                range(receiver, Series::frames_of_paper).map_or(String::new(), |paper| format!(" (paper: {paper})"));
            Some(format!("{here} times as many frames with {with} as without{paper}"))
        };
        let gains: Vec<String> =
            [("filter", "the filter"), ("nftables", "nftables")].into_iter().filter_map(gain).collect();
        (!gains.is_empty()).then(|| format!("A CPU of the receiver takes {}.", gains.join(" and ")))
    }

    /// The most frames that a receiver takes, in a sentence.
    fn most_in_words(&self) -> String {
        let taken = self.series.iter().filter_map(|series| Some((series.frames_per_cpu_second()?, &series.name)));
        taken.max_by(|one, other| one.0.total_cmp(&other.0)).map_or_else(
            || "What a receiver takes at most was not measured.".into(),
            |(most, name)| format!("A CPU of the receiver takes at most {most:.0} frames a second, in “{name}”."),
        )
    }

    /// What the receiver accepts, compared with the paper: a panel for each size, and the gain by the filter.
    fn received(&self, sizes: &[u16]) -> String {
        let mut text =
            "<h2>Frames a second that the receiver accepts, compared with the paper</h2>\n<div class=\"panels\">\n"
                .to_owned();
        for size in sizes {
            let of = || self.series.iter().filter(|series| series.frame_bytes == *size);
            let ours = of().map(|series| {
                let points = series.runs.iter().map(|run| (run.rate_bps as f64, run.sent_packets_per_second));
                (series.receiver.clone(), points.collect::<Vec<_>>())
            });
            let papers = of().filter(|series| !series.paper_received.is_empty()).map(|series| {
                let points =
                    series.paper_received.iter().map(|point| (point.rate_bps as f64, point.packets_per_second));
                (format!("paper, {}", series.receiver), points.collect())
            });
            text += &plot::decades(&format!("{size} bytes"), &ours.chain(papers).collect::<Vec<_>>());
        }
        text += "</div>\n<h2>CPU time for each frame, ns</h2>\n<div class=\"panels\">\n";
        for size in sizes {
            let of = |series: &Series| {
                let points = series.runs.iter().map(|run| (run.rate_bps as f64, run.sender_ns_per_packet));
                (series.receiver.clone(), points.collect::<Vec<_>>())
            };
            let lines = self.series.iter().filter(|series| series.frame_bytes == *size).map(of);
            text += &plot::decades(&format!("{size} bytes"), &lines.collect::<Vec<_>>());
        }
        const COLUMNS: [&str; 7] = [
            "Frames/s",
            "Paper",
            "Paper: relative to plain",
            "Here, sent",
            "Here, per CPU second",
            "Here: relative to plain",
            "ns per frame, net",
        ];
        let mut table = Table::new("The highest rate that the receiver accepts", "numbers", &COLUMNS);
        for series in &self.series {
            let times = |of: fn(&Series) -> Option<f64>| {
                self.times(series, of).map_or(String::new(), |times| format!("× {times:.1}"))
            };
            let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
            let values = [
                shown(series.frames_of_paper()),
                times(Series::frames_of_paper),
                shown(series.most.map(|most| most.sent_packets_per_second)),
                shown(series.frames_per_cpu_second()),
                times(Series::frames_per_cpu_second),
                shown(series.most.map(|most| most.sender_ns_per_packet - most.making_ns_per_packet)),
            ];
            table.row(&series.name, values);
        }
        text + "</div>\n" + &table.finish()
    }

    fn table(&self) -> String {
        const COLUMNS: [&str; 10] = [
            "Mb/s (L1)",
            "Paper, frames/s",
            "Frames/s",
            "Stream sent",
            "Stream received",
            "ns per frame",
            "CPUs in softirq",
            "CPUs busy",
            "TCP, Gb/s",
            "Mix beside TCP, frames/s",
        ];
        let mut table = Table::new("All runs", "numbers", &COLUMNS);
        for series in &self.series {
            let paper = if series.paper.is_empty() { String::new() } else { format!(" — paper: {}", series.paper) };
            let error = series.error.as_ref().map_or(String::new(), |error| format!(" — {error}"));
            table.group(&format!("{}{paper}{error}", series.name));
            for run in &series.runs {
                let paper = series.paper_received.iter().find(|point| point.rate_bps == run.rate_bps);
                let values = [
                    paper.map_or(String::new(), |point| format!("{:.0}", point.packets_per_second)),
                    format!("{:.0}", run.sent_packets_per_second),
                    run.stream_sent_packets.to_string(),
                    run.stream_received_packets.to_string(),
                    format!("{:.0}", run.sender_ns_per_packet),
                    format!("{:.2}", run.softirq_cpus),
                    format!("{:.2}", run.busy_cpus),
                    format!("{:.2}", run.tcp_goodput_bps as f64 / 1e9),
                    format!("{:.0}", run.tcp_mix_packets_per_second),
                ];
                table.row(&format!("{:.0}", run.rate_bps as f64 / 1e6), values);
            }
        }
        table.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_no_markup() {
        let run = Run {
            rate_bps: 10_000_000,
            sent_packets_per_second: 1000.0,
            refused_packets: 0,
            stream_sent_packets: 50,
            stream_received_packets: 49,
            sender_ns_per_packet: 900.0,
            softirq_cpus: 0.1,
            busy_cpus: 0.5,
            tcp_goodput_bps: 5_000_000_000,
            tcp_mix_packets_per_second: 990.0,
        };
        let series = Series {
            name: "<b>64</b>".into(),
            paper: String::new(),
            receiver: "filter".into(),
            frame_bytes: 64,
            paper_received: vec![PaperReceived { rate_bps: 10_000_000, packets_per_second: 15_000.0 }],
            most: Some(Most {
                sent_packets_per_second: 4e6,
                refused_packets: 0,
                sender_ns_per_packet: 250.0,
                making_ns_per_packet: 110.0,
            }),
            most_runs: Vec::new(),
            runs: vec![run],
            error: None,
        };
        let report = Report {
            title: "a < b".into(),
            source: String::new(),
            note: String::new(),
            longhaul: "0".into(),
            series: vec![series],
            findings: Vec::new(),
        };
        assert_eq!(report.gains(), None, "without a plain receiver there is nothing to compare with");
        let html = report.to_html(&[Caveat::of_error("not_measured", "64: no root", "")]);
        assert!(html.contains("<summary>1 caveat applies: not measured</summary>"), "{html}");
        let found = "<p class=\"verdict\">A CPU of the receiver takes at most 7142857 frames a second, in “&lt;b&gt;64&lt;/b&gt;”.</p>";
        assert!(html.contains(found), "{html}");
        assert!(html.contains("&lt;b&gt;64&lt;/b&gt;") && !html.contains("<b>64"));
        assert!(html.contains("<polyline points=\"390.0,") && html.contains(">49<"), "{html}");
        // 1e9 / (250 - 110)
        assert!(html.contains(">15000<") && html.contains(">7142857<"), "{html}");

        let taking = |receiver: &str, frame_bytes, net_ns: f64, paper| {
            let most = report.series[0].most.map(|most| Most { sender_ns_per_packet: net_ns + 110.0, ..most });
            let paper_received = vec![PaperReceived { rate_bps: 10_000_000, packets_per_second: paper }];
            Series { receiver: receiver.into(), frame_bytes, most, paper_received, ..report.series[0].clone() }
        };
        let mut nftables = taking("nftables", 64, 800.0, 0.0);
        nftables.paper_received.clear();
        let plain = [taking("plain", 64, 600.0, 12e3), taking("plain", 1518, 600.0, 6e3)];
        let filter = [taking("filter", 64, 240.0, 48e3), taking("filter", 1518, 300.0, 18e3)];
        let series = plain.into_iter().chain(filter).chain([nftables]).collect();
        let said = "A CPU of the receiver takes 2.0 to 2.5 times as many frames with the filter as without (paper: 3.0 to 4.0) \
                    and 0.8 times as many frames with nftables as without.";
        assert_eq!(Report { series, ..report }.gains().as_deref(), Some(said));
    }
}
