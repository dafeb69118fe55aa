//! A receiver under a mix: a table, and a panel of lines for each size of frames.

use std::fmt::Write;

use serde::Serialize;

use crate::page::{escape, page};

/// Of a panel and its ground: width, height; left, top, right, bottom.
const SIZE: [f64; 2] = [400.0, 240.0];
const EDGES: [f64; 4] = [52.0, 18.0, 390.0, 200.0];
/// Colours that tell apart without colour vision (Okabe and Ito 2008), and dashes for print.
const LINES: [(&str, &str); 4] = [("#d55e00", ""), ("#0072b2", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3")];

/// An experiment's results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// What it repeats.
    pub source: String,
    /// Where it differs from that.
    pub note: String,
    /// The version that made it.
    pub longhaul: String,
    /// In the order of the experiment.
    pub series: Vec<Series>,
}

/// All rates to one receiver, with frames of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What sets it apart.
    pub name: String,
    /// What the source has there.
    pub paper: String,
    /// What the receiver does about frames.
    pub receiver: String,
    /// Of each frame, FCS included.
    pub frame_bytes: u16,
    /// By rate.
    pub runs: Vec<Run>,
    /// Why it ended early.
    pub error: Option<String>,
}

/// One rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// That was asked for, on a wire (L1).
    pub rate_bps: u64,
    /// Frames a second that were sent.
    pub sent_packets_per_second: f64,
    /// Frames that the interface did not take.
    pub refused_packets: u64,
    /// Datagrams of the stream for the receiver that were sent.
    pub stream_sent_packets: u64,
    /// Those of them that its program got.
    pub stream_received_packets: u64,
    /// CPU time of the sending thread a frame: with what the receiver's softirq does in it.
    pub sender_ns_per_packet: f64,
    /// CPUs of the machine busy in softirq, as `/proc/stat` has them.
    pub softirq_cpus: f64,
    /// CPUs busy in all.
    pub busy_cpus: f64,
    /// Of a TCP flow beside the same mix.
    pub tcp_goodput_bps: u64,
    /// Frames a second of the mix beside that flow.
    pub tcp_mix_packets_per_second: f64,
}

impl Run {
    /// What stands over rows.
    pub fn heading() -> String {
        format!(
            "{:>10} {:>11} {:>10} {:>10} {:>9} {:>8} {:>8} {:>9} {:>11}",
            "Mb/s (L1)", "frames/s", "for us", "received", "ns/frame", "softirq", "busy", "TCP Gb/s", "mix beside"
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
    /// As one HTML page.
    pub fn to_html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n<p class=\"quiet\">{}</p>\n", escape(&self.title), escape(&self.source));
        for paragraph in self.note.split("\n\n") {
            let _ = writeln!(body, "<p>{}</p>", escape(paragraph.trim()));
        }
        let mut sizes: Vec<u16> = self.series.iter().map(|series| series.frame_bytes).collect();
        sizes.dedup();
        for (title, of) in [
            ("TCP goodput beside the mix, Gb/s", (|run| run.tcp_goodput_bps as f64 / 1e9) as fn(&Run) -> f64),
            ("CPU time a frame, ns", |run| run.sender_ns_per_packet),
            ("Stream received, % of what was sent", |run| {
                100.0 * run.stream_received_packets as f64 / run.stream_sent_packets.max(1) as f64
            }),
        ] {
            let _ = write!(body, "<h2>{title}</h2>\n<div class=\"panels\">\n");
            for size in &sizes {
                let lines: Vec<&Series> = self.series.iter().filter(|series| series.frame_bytes == *size).collect();
                body += &panel(&format!("{size} bytes"), &lines, of);
            }
            body += "</div>\n";
        }
        body += &self.table();
        let _ = write!(body, "<p class=\"quiet\">longhaul {}</p>", escape(&self.longhaul));
        page(&self.title, &body)
    }

    fn table(&self) -> String {
        const COLUMNS: [&str; 8] = [
            "Frames/s",
            "For us",
            "Received",
            "ns a frame",
            "CPUs in softirq",
            "CPUs busy",
            "TCP, Gb/s",
            "Mix beside TCP, frames/s",
        ];
        let mut text = "<h2>All runs</h2>\n<table><thead><tr><th>Mb/s (L1)</th>".to_owned();
        COLUMNS.iter().for_each(|column| text += &format!("<th>{column}</th>"));
        text += "</tr></thead>\n<tbody>\n";
        for series in &self.series {
            let paper = if series.paper.is_empty() { String::new() } else { format!(" — paper: {}", series.paper) };
            let error = series.error.as_ref().map_or(String::new(), |error| format!(" — {error}"));
            let _ = writeln!(
                text,
                "<tr class=\"series\"><th colspan=\"9\">{}</th></tr>",
                escape(&format!("{}{paper}{error}", series.name))
            );
            for run in &series.runs {
                let values = [
                    format!("{:.0}", run.sent_packets_per_second),
                    run.stream_sent_packets.to_string(),
                    run.stream_received_packets.to_string(),
                    format!("{:.0}", run.sender_ns_per_packet),
                    format!("{:.2}", run.softirq_cpus),
                    format!("{:.2}", run.busy_cpus),
                    format!("{:.2}", run.tcp_goodput_bps as f64 / 1e9),
                    format!("{:.0}", run.tcp_mix_packets_per_second),
                ];
                let _ = write!(text, "<tr><th>{:.0}</th>", run.rate_bps as f64 / 1e6);
                for (column, value) in COLUMNS.iter().zip(values) {
                    let _ = write!(text, "<td data-label=\"{column}\">{value}</td>");
                }
                text += "</tr>\n";
            }
        }
        text + "</tbody></table>\n"
    }
}

/// One line a series, over the rates.
fn panel(title: &str, series: &[&Series], of: fn(&Run) -> f64) -> String {
    let [left, top, right, bottom] = EDGES;
    let runs = || series.iter().flat_map(|series| &series.runs);
    let most_rate = runs().map(|run| run.rate_bps as f64).fold(1.0, f64::max);
    let most = runs().map(of).fold(1e-9, f64::max) * 1.05;
    let x = |run: &Run| left + (right - left) * run.rate_bps as f64 / most_rate;
    let y = |value: f64| bottom - (bottom - top) * value / most;
    let mut svg = format!(
        "<figure><h3>{}</h3><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        SIZE[0],
        SIZE[1],
        escape(title)
    );
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let at = y(value);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            crate::axis::short(value)
        );
    }
    for (one, (colour, dashes)) in series.iter().zip(LINES.iter().cycle()) {
        let points: Vec<String> = one.runs.iter().map(|run| format!("{:.1},{:.1}", x(run), y(of(run)))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"{:.0}\">0</text><text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{:.0} Mb/s</text></svg>",
        bottom + 18.0,
        bottom + 18.0,
        most_rate / 1e6
    );
    svg += "<ul class=\"legend\">";
    for (one, (colour, dashes)) in series.iter().zip(LINES.iter().cycle()) {
        let _ = write!(
            svg,
            "<li><svg viewBox=\"0 0 24 8\"><line x1=\"0\" x2=\"24\" y1=\"4\" y2=\"4\" stroke=\"{colour}\" stroke-width=\"4\" \
             stroke-dasharray=\"{dashes}\"/></svg>{}</li>",
            escape(&one.receiver)
        );
    }
    svg + "</ul></figure>\n"
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
            runs: vec![run],
            error: None,
        };
        let report = Report {
            title: "a < b".into(),
            source: String::new(),
            note: String::new(),
            longhaul: "0".into(),
            series: vec![series],
        };
        let html = report.to_html();
        assert!(html.contains("&lt;b&gt;64&lt;/b&gt;") && !html.contains("<b>64"));
        assert!(html.contains("<polyline points=\"390.0,") && html.contains(">49<"), "{html}");
    }
}
