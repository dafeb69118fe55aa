//! A receiver under background traffic: a table, and a panel of lines for each frame size.

mod plot;

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::html::page::{escape, page};
use crate::html::points::{self, Mean, Point, Problems, Quantity};
use crate::html::series::{NOTHING_TRUSTED, PaperReceived, Report, Series};
use crate::html::table::Table;
use crate::html::udp_loss::scaled;

use self::plot::{Dot, Line};

/// What a point is called at which the mix is sent as fast as it goes.
pub const AS_FAST: &str = "as fast as it goes";

/// Frames a second that one CPU of a receiver processes, and the time of each.
const FRAMES: &str = "frames_per_cpu_second";
const NET: &str = "receiver_time_ns";
const SENT: &str = "sent_packets_per_second";
/// Other names of means.
const REFUSED: &str = "refused_packets";
const STREAM: &str = "stream_received_percent";
const SENDER: &str = "sender_ns_per_packet";
const SOFTIRQ: &str = "softirq_cpus";
const BUSY: &str = "busy_cpus";
const TCP: &str = "tcp_goodput_bps";
const BESIDE: &str = "tcp_mix_packets_per_second";

/// Each mean that a finding can be about: those of a mix that is sent as fast as it goes.
pub const QUANTITIES: &[&str] = &[FRAMES, NET, SENT];

/// Columns of a table: title, mean, factor, decimals.
pub(crate) const COLUMNS: [(&str, &str, f64, usize); 10] = [
    ("frames/s", SENT, 1.0, 0),
    ("refused", REFUSED, 1.0, 0),
    ("stream received, %", STREAM, 1.0, 2),
    ("ns a frame", SENDER, 1.0, 0),
    ("receiver's part, ns", NET, 1.0, 0),
    ("frames per CPU second", FRAMES, 1.0, 0),
    ("CPUs in softirq", SOFTIRQ, 1.0, 2),
    ("CPUs busy", BUSY, 1.0, 2),
    ("TCP, Gb/s", TCP, 1e-9, 2),
    ("mix beside TCP, frames/s", BESIDE, 1.0, 0),
];
/// Sizes of frames that are drawn at most: an experiment has no more series.
const SIZES_MOST: usize = 64;
/// Rates of a paper that are drawn at most: an experiment has no more.
const PAPER_MOST: usize = 64;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The rate that was asked for, on a wire (L1); `None`: as fast as it goes.
    pub rate_bps: Option<u64>,
    /// How long the mix was sent, each of two times.
    pub time_ns: u64,
    /// The result at a rate; `None` if there is none.
    pub at_rate: Option<AtRate>,
    /// The result of sending as fast as possible; `None` if there is none.
    pub most: Option<Most>,
    /// What went wrong.
    #[serde(flatten)]
    pub problems: Problems,
}

/// Frames sent at a rate, alone and then together with a TCP flow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtRate {
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
    /// Goodput of a TCP flow together with the same mix.
    pub tcp_goodput_bps: u64,
    /// Frames a second of the mix beside that flow.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub tcp_mix_packets_per_second: f64,
}

/// Frames sent as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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

impl Most {
    /// CPU time of the receiver for a frame.
    fn receiver_ns(&self) -> f64 {
        self.sender_ns_per_packet - self.making_ns_per_packet
    }

    /// Frames a second that one CPU of the receiver processes.
    pub fn packets_per_cpu_second(&self) -> f64 {
        1e9 / self.receiver_ns().max(1.0)
    }
}

impl points::Run for Run {
    const MAIN: Quantity = Quantity { name: FRAMES, title: "frames per CPU second", unit: 1.0, decimals: 0 };

    fn has_result(&self) -> bool {
        self.at_rate.is_some() || self.most.is_some()
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }

    fn problems_mut(&mut self) -> &mut Problems {
        &mut self.problems
    }

    fn quantities(&self) -> Vec<(&'static str, f64)> {
        let mut all = Vec::new();
        if let Some(run) = &self.at_rate {
            let percent = 100.0 * run.stream_received_packets as f64 / run.stream_sent_packets.max(1) as f64;
            all.extend([
                (SENT, run.sent_packets_per_second),
                (REFUSED, run.refused_packets as f64),
                (STREAM, percent),
                (SENDER, run.sender_ns_per_packet),
                (SOFTIRQ, run.softirq_cpus),
                (BUSY, run.busy_cpus),
                (TCP, run.tcp_goodput_bps as f64),
                (BESIDE, run.tcp_mix_packets_per_second),
            ]);
        }
        if let Some(run) = &self.most {
            all.extend([
                (FRAMES, run.packets_per_cpu_second()),
                (NET, run.receiver_ns()),
                (SENT, run.sent_packets_per_second),
                (REFUSED, run.refused_packets as f64),
                (SENDER, run.sender_ns_per_packet),
            ]);
        }
        all
    }
}

/// The cells of a row of a table but for label and runs; `None` without a result.
pub(crate) fn cells(point: &Point<Run>) -> Option<Vec<String>> {
    point.shown().next()?;
    let cell = |(_, name, factor, decimals): &(&str, &str, f64, usize)| {
        point.mean(name).map_or_else(|| "–".to_owned(), |_| scaled(point, name, *factor).text(*decimals))
    };
    Some(COLUMNS.iter().map(cell).collect())
}

impl Series<Run> {
    /// The length of its frames.
    fn frame_bytes(&self) -> Option<u16> {
        self.receiver.as_ref().map(|receiver| receiver.frame_bytes)
    }

    /// What its receiver does with frames; empty where that is not known.
    fn kind(&self) -> &str {
        self.receiver.as_ref().map_or("", |receiver| &receiver.receiver)
    }

    fn paper_received(&self) -> &[PaperReceived] {
        self.receiver.as_ref().map_or(&[], |receiver| &receiver.paper_received)
    }

    /// A mean of the mix that is sent as fast as it goes.
    fn as_fast(&self, name: &str) -> Option<Mean> {
        self.points.iter().find(|point| point.label == AS_FAST)?.mean(name)
    }

    /// The most frames a second that a CPU of the receiver takes; `None` where that was not measured.
    fn frames_per_cpu_second(&self) -> Option<f64> {
        self.as_fast(FRAMES).map(|frames| frames.mean)
    }

    /// The most frames a second that the receiver of the paper took; `None` if the paper has no such receiver.
    fn frames_of_paper(&self) -> Option<f64> {
        self.paper_received().iter().map(|point| point.packets_per_second).reduce(f64::max)
    }

    /// A mean over the rates, times `factor`.
    fn line(&self, name: &str, factor: f64) -> Line {
        let dot = |point: &Point<Run>| {
            let rate_bps = point.shown().next()?.rate_bps? as f64;
            point.mean(name)?;
            Some(Dot { rate_bps, mean: scaled(point, name, factor), doubtful: point.doubtful })
        };
        Line { name: self.kind().to_owned(), dots: self.points.iter().filter_map(dot).collect() }
    }

    /// What the paper's receiver took; `None` if the paper has no such receiver.
    fn paper_line(&self) -> Option<Line> {
        let dot = |point: &PaperReceived| Dot {
            rate_bps: point.rate_bps as f64,
            mean: Mean { mean: point.packets_per_second, half_width: None },
            doubtful: false,
        };
        let dots: Vec<Dot> = self.paper_received().iter().take(PAPER_MOST).map(dot).collect();
        (!dots.is_empty()).then(|| Line { name: format!("paper, {}", self.kind()), dots })
    }
}

impl Report<Run> {
    /// As one HTML page.
    pub fn to_html(&self) -> String {
        let mut body = String::new();
        self.head(&mut body, &self.found());
        let drawn = self.drawn(&mut body);
        let accepted = "Frames a second that the receiver accepts, compared with the paper";
        drawn.figures(&mut body, accepted, plot::decades, |series| {
            [series.line(SENT, 1.0)].into_iter().chain(series.paper_line()).collect()
        });
        drawn.figures(&mut body, "CPU time for each frame, ns", plot::decades, |series| vec![series.line(SENDER, 1.0)]);
        self.highest(&mut body);
        let beside = "TCP goodput beside the mix, Gb/s";
        drawn.figures(&mut body, beside, plot::panel, |series| vec![series.line(TCP, 1e-9)]);
        let received = "Stream received, % of datagrams sent";
        drawn.figures(&mut body, received, plot::panel, |series| vec![series.line(STREAM, 1.0)]);
        self.about.note(&mut body);
        let titles = COLUMNS.iter().map(|(title, ..)| *title);
        let columns: Vec<&str> = ["Mb/s (L1)", "paper, frames/s"].into_iter().chain(titles).collect();
        drawn.table(&mut body, &columns, |series, point| {
            let rate_bps = point.shown().next()?.rate_bps;
            let paper = series.paper_received().iter().find(|paper| Some(paper.rate_bps) == rate_bps);
            let paper = paper.map_or_else(|| "–".to_owned(), |paper| format!("{:.0}", paper.packets_per_second));
            Some([paper].into_iter().chain(cells(point)?).collect())
        });
        page(&self.about.title, &body)
    }

    /// What was found, in words.
    fn found(&self) -> Vec<String> {
        let trusted = self.points().any(|(_, point)| !point.doubtful && point.shown().next().is_some());
        if !trusted {
            return vec![NOTHING_TRUSTED.into()];
        }
        let alone = || "No receiver has a plain one beside it, with frames of the same size.".to_owned();
        vec![self.gains().unwrap_or_else(alone)]
    }

    /// How much `of` a series is in relation to the plain receiver's, with frames of the same size.
    fn times(&self, series: &Series<Run>, of: fn(&Series<Run>) -> Option<f64>) -> Option<f64> {
        let size = series.frame_bytes()?;
        let plain = self.series.iter().find(|one| one.frame_bytes() == Some(size) && one.kind() == "plain");
        let plain = plain.and_then(of).filter(|plain| *plain > 0.0)?;
        Some(of(series)? / plain)
    }

    /// What each kind of receiver takes in relation to the plain one, in a sentence; over all sizes of frames.
    fn gains(&self) -> Option<String> {
        let range = |receiver: &str, of: fn(&Series<Run>) -> Option<f64>| {
            let times = self.series.iter().filter(|series| series.kind() == receiver);
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

    /// A panel for each size of frames, with the lines of its series.
    fn figures(
        &self,
        body: &mut String,
        title: &str,
        draw: fn(&str, &[Line]) -> String,
        lines: impl Fn(&Series<Run>) -> Vec<Line>,
    ) {
        let mut sizes: Vec<u16> = self.series.iter().filter_map(Series::frame_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.truncate(SIZES_MOST);
        // Writing to a string cannot fail.
        let _ = write!(body, "<h2>{}</h2>\n<div class=\"panels\">\n", escape(title));
        for size in sizes {
            let of_size = self.series.iter().filter(|series| series.frame_bytes() == Some(size));
            *body += &draw(&format!("{size} bytes"), &of_size.flat_map(&lines).collect::<Vec<_>>());
        }
        *body += "</div>\n";
    }

    /// What the receiver takes at most, compared with the paper, and the gain by the filter.
    fn highest(&self, body: &mut String) {
        const COLUMNS: [&str; 8] = [
            "Frames/s",
            "Paper",
            "Paper: relative to plain",
            "Here, sent",
            "Here, per CPU second",
            "Here: relative to plain",
            "ns per frame, net",
            "In the paper",
        ];
        let mut table = Table::new("The highest rate that the receiver accepts", "numbers", &COLUMNS);
        for series in &self.series {
            let times = |of: fn(&Series<Run>) -> Option<f64>| {
                self.times(series, of).map_or(String::new(), |times| format!("× {times:.1}"))
            };
            let shown = |name| series.as_fast(name).map_or(String::new(), |mean| mean.text(0));
            let values = [
                series.frames_of_paper().map_or(String::new(), |frames| format!("{frames:.0}")),
                times(Series::frames_of_paper),
                shown(SENT),
                shown(FRAMES),
                times(Series::frames_per_cpu_second),
                shown(NET),
                series.paper.clone(),
            ];
            table.row(&series.name, values);
        }
        *body += &table.finish();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use longhaul_result::Caveat;

    use super::*;
    use crate::html::points::tests::repeat;
    use crate::html::series::Receiver;
    use crate::html::series::tests::{report, series};

    /// A run at 10 Mb/s.
    fn at_rate() -> Run {
        let at_rate = AtRate {
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
        let none = as_fast(0.0);
        Run { rate_bps: Some(10_000_000), at_rate: Some(at_rate), most: None, ..none }
    }

    /// A run as fast as it goes, with `net_ns` for each frame.
    pub(crate) fn as_fast(net_ns: f64) -> Run {
        let most = Most {
            sent_packets_per_second: 4e6,
            refused_packets: 0,
            sender_ns_per_packet: net_ns + 110.0,
            making_ns_per_packet: 110.0,
        };
        let problems = Problems::default();
        Run { rate_bps: None, time_ns: 500_000_000, at_rate: None, most: Some(most), problems }
    }

    /// A receiver of which the paper's took `paper` frames a second; 0: it has none.
    pub(crate) fn receiving(receiver: &str, frame_bytes: u16, net_ns: f64, paper: f64) -> Series<Run> {
        let received = PaperReceived { rate_bps: 10_000_000, packets_per_second: paper };
        let paper_received = if paper > 0.0 { vec![received] } else { Vec::new() };
        let runs = vec![("10", at_rate()), (AS_FAST, as_fast(net_ns))];
        let receiver = Receiver { receiver: receiver.into(), frame_bytes, paper_received };
        Series { receiver: Some(receiver), ..series(&format!("{frame_bytes} bytes"), runs) }
    }

    #[test]
    fn what_others_wrote_is_no_markup() {
        let mut one = receiving("filter", 64, 140.0, 15_000.0);
        (one.name, one.paper) = ("<b>64</b>".into(), "<i>figure</i>".into());
        let mut report = report(vec![one]);
        report.about.title = "a < b".into();
        assert_eq!(report.gains(), None, "without a plain receiver there is nothing to compare with");
        let html = report.to_html();
        assert!(html.contains("&lt;b&gt;64&lt;/b&gt;") && !html.contains("<b>64") && !html.contains("<i>figure"));
        // 49 of 50 datagrams.
        assert!(html.contains("<polyline points=\"390.0,") && html.contains(">98.00<"), "{html}");
        // 1e9 / 140
        assert!(html.contains(">15000<") && html.contains(">7142857<"), "{html}");
    }

    #[test]
    fn the_gain_is_that_of_each_size() {
        let plain = [receiving("plain", 64, 600.0, 12e3), receiving("plain", 1518, 600.0, 6e3)];
        let filter = [receiving("filter", 64, 240.0, 48e3), receiving("filter", 1518, 300.0, 18e3)];
        let series: Vec<_> = plain.into_iter().chain(filter).chain([receiving("nftables", 64, 800.0, 0.0)]).collect();
        let said = "A CPU of the receiver takes 2.0 to 2.5 times as many frames with the filter as without (paper: 3.0 to 4.0) \
                    and 0.8 times as many frames with nftables as without.";
        assert_eq!(report(series).gains().as_deref(), Some(said));
    }

    /// Means with their intervals, rejected runs beside the point, and what was interrupted: as on the pages of other experiments.
    #[test]
    fn repeated_runs_are_told_as_of_other_experiments() {
        let mut one = receiving("plain", 64, 600.0, 0.0);
        one.points[1].add(repeat(2, as_fast(620.0)));
        one.points[1].add(repeat(3, as_fast(640.0)));
        one.points[0].reject(Caveat::of_error("cpu_taken", "others used 9 %", ""), repeat(2, at_rate()));
        let mut report = report(vec![one]);
        report.about.interrupted = true;
        let html = report.to_html();
        // By hand: 620 with a standard deviation of 20, t of 2 degrees of freedom 4.303.
        for said in
            ["620 ±\u{a0}50", "1 (1 rejected)", "Rejected runs, cpu taken: 1", "was interrupted", "95 % interval"]
        {
            assert!(html.contains(said), "{said}: {html}");
        }
    }

    /// As many points, and rates of the paper, as a file of others may have.
    #[test]
    fn a_page_has_room_for_some_points() {
        let mut one = receiving("plain", 64, 600.0, 12e3);
        one.points = vec![one.points[0].clone(); 5_000];
        let receiver = one.receiver.as_mut().unwrap();
        receiver.paper_received = vec![receiver.paper_received[0]; 100_000];
        let html = report(vec![one]).to_html();
        assert!(html.contains("the first 500 of 5000 points") && html.len() < 2_000_000, "{}", html.len());
    }

    /// A saved result is text of others: no number in it makes a figure that is none, or a panic.
    #[test]
    fn extreme_numbers_are_drawn_or_left_out() {
        for extreme in [0.0, 1e-300, 1e300, f64::MAX] {
            let mut one = receiving("plain", 64, 600.0, extreme);
            let mut run = at_rate();
            run.rate_bps = Some(u64::MAX);
            let at_rate = run.at_rate.as_mut().unwrap();
            (at_rate.sent_packets_per_second, at_rate.sender_ns_per_packet) = (extreme, extreme);
            one.points[0].add(repeat(2, run));
            let html = report(vec![one]).to_html();
            assert!(html.len() < 200_000 && !html.contains("NaN,"), "{extreme}: {html}");
        }
    }
}
