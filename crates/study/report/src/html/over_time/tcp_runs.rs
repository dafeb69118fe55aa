//! TCP runs of an experiment over time: goodput, congestion window, round trip and retransmissions of several runs on one axis, and what limits
//! each.

use longhaul_tcp::{MAX_SAMPLES, Sample, TcpEndReport, fields};
use serde::{Deserialize, Serialize};

use crate::html::axis::{RATES, TIMES};
use crate::html::lines::{Line, Panel, Part, Stack};
use crate::html::over_time::dropped::{DroppedOverTime, DroppedPackets, TITLE};
use crate::html::over_time::runs::{Detail, KEPT, Windows, percent};
use crate::html::over_time::sampled::{COLOURS, SHARE, SINCE, SIZES, Sampled, cwnd, rtt, span};
use crate::html::over_time::thin::thin;
use crate::html::over_time::timeline;
use crate::parquet::{End, FlowSamples};

const PACKETS_A_SECOND: [(f64, &str); 1] = [(1.0, "packets/s")];
/// What is said of drops.
const DROPPED: &str = "Packets with data that drop events reported by the end of each interval, from the first byte's arrival on. What the path \
                       itself lost is in the tables alone.";

/// What a TCP run did over time, by its senders' samples, in at most 200 windows and 200 points of a curve. Time counts from the first sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpOverTime {
    /// How long each window is.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub window_ns: u64,
    /// When the last sample was taken, and the last window ends.
    pub end_ns: u64,
    /// Payload that was acknowledged in each window, of all measured flows together.
    pub acked_bytes: Vec<u64>,
    /// The same of the flows that share their path; empty without any.
    pub beside_acked_bytes: Vec<u64>,
    /// Packets that the measured flows retransmitted in each window.
    pub retransmitted_packets: Vec<u64>,
    /// What limited the measured flows in each window.
    pub limited_percent: LimitedOverTime,
    /// The congestion window of the first flow, bytes.
    pub cwnd_bytes: Curve,
    /// The smoothed round trip of the first flow, nanoseconds.
    pub rtt_ns: Curve,
    /// When the first flow changed its congestion control.
    pub switches: Vec<SwitchedAt>,
    /// Packets with data of the measured flows that the hosts dropped, as far as drop events reported them by the end of the last interval; `None`
    /// where they reported none.
    #[serde(default)]
    pub dropped_packets: Option<DroppedPackets>,
}

/// Percent of the time of each window that something was the limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitedOverTime {
    /// TCP held back: congestion window, pacing, recovery.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0, max = 100))))]
    pub congestion_window: Vec<f64>,
    /// The receiver's window.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0, max = 100))))]
    pub receive_window: Vec<f64>,
    /// The sender's buffer.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0, max = 100))))]
    pub send_buffer: Vec<f64>,
    /// The sending program.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0, max = 100))))]
    pub application: Vec<f64>,
}

/// Some samples of a quantity: of each stretch of time the lowest and the highest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve {
    /// When each was taken, microseconds.
    pub at_us: Vec<u64>,
    /// The value then.
    pub values: Vec<u64>,
}

/// A change of the congestion control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchedAt {
    /// When, microseconds.
    pub at_us: u64,
    /// The new one.
    pub control: String,
}

impl Curve {
    pub(super) fn of(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let (at_us, values) = points.map(|(at, value)| ((at * 1e6).round() as u64, value as u64)).unzip();
        Self { at_us, values }
    }

    fn line<'n>(&self, name: &'n str, colour: &'static str, most: usize) -> Line<'n> {
        // A result that others made may have more of them, in any order.
        let points = self.at_us.iter().zip(&self.values).take(2 * KEPT);
        let points = points.map(|(at, value)| Some((*at as f64 / 1e6, *value as f64)));
        Line { name, colour, points: thin(&points.collect::<Vec<_>>(), most) }
    }
}

/// The flows that this end sends, in order.
fn sent<'a>(end: &'a End<'a>) -> Vec<&'a FlowSamples<'a>> {
    let mut flows: Vec<_> = end.flows.iter().filter(|flow| flow.end == "sender").collect();
    flows.sort_by_key(|flow| flow.stream);
    flows
}

impl TcpOverTime {
    /// Of the flows that `own` sends, of those that share their path, and of what the hosts `dropped` of the first. `None` without two samples
    /// of a flow.
    pub fn of(own: &TcpEndReport, beside: Option<&TcpEndReport>, dropped: &DroppedOverTime) -> Option<Self> {
        let own = End::of_test(own, MAX_SAMPLES).ok()?;
        let beside = beside.and_then(|report| End::of_test(report, MAX_SAMPLES).ok());
        let others = match &beside {
            Some(end) => sent(end),
            None => Vec::new(),
        };
        let own = sent(&own);
        let span = span(&[&own[..], &others].concat())?;
        let kept = Self::kept(Sampled::within(&own, Vec::new(), span)?, &own, &others);
        Some(Self { dropped_packets: dropped.in_windows(KEPT), ..kept })
    }

    /// When the time of [`Self::of`] the same flows begins, Unix time in nanoseconds; `None` without samples.
    pub fn began_unix_ns(own: &TcpEndReport, beside: Option<&TcpEndReport>) -> Option<i64> {
        let first = |report: &TcpEndReport| {
            let end = End::of_test(report, MAX_SAMPLES).ok()?;
            let (first_ns, _) = span(&sent(&end))?;
            Some(first_ns)
        };
        let first_ns = [Some(own), beside].into_iter().flatten().filter_map(first).min()?;
        i64::try_from(first_ns).ok()?.checked_add(own.unix_offset_ns?)
    }

    /// Of the flows `own`, sampled as `sampled` has them, and of `others`, on the same axis.
    fn kept(sampled: Sampled<'_>, own: &[&FlowSamples<'_>], others: &[&FlowSamples<'_>]) -> Self {
        let sampled = sampled.in_windows(KEPT);
        let acked = |flows: &[&FlowSamples<'_>]| {
            let mut bytes = vec![0_u64; if flows.is_empty() { 0 } else { sampled.windows() }];
            for flow in flows {
                let rises = sampled.rises(flow, |sample| sample.info.get(fields::BYTES_ACKED)).unwrap_or_default();
                bytes.iter_mut().zip(rises).for_each(|(sum, rise)| *sum = sum.saturating_add(rise as u64));
            }
            bytes
        };
        let again = sampled.sum(|sample| sample.info.value(fields::TOTAL_RETRANS));
        let mut limits = sampled.limits().parts.into_iter().map(|part| part.values);
        let mut limit = || limits.next().unwrap_or_default().into_iter().map(percent).collect();
        let first = |of: fn(&Sample) -> u64| {
            let points = own.first().map_or_else(Vec::new, |flow| sampled.line(flow, "", "", of).points);
            Curve::of(thin(&points, KEPT).into_iter().flatten())
        };
        let switched = |(at, name): (f64, String)| SwitchedAt {
            at_us: (at * 1e6).round() as u64,
            control: name.strip_prefix("lh_").unwrap_or(&name).to_owned(),
        };
        Self {
            window_ns: (sampled.window_s * 1e9).round() as u64,
            end_ns: (sampled.end_s * 1e9).round() as u64,
            acked_bytes: acked(own),
            beside_acked_bytes: acked(others),
            retransmitted_packets: again.into_iter().map(|packets| packets as u64).collect(),
            limited_percent: LimitedOverTime {
                congestion_window: limit(),
                receive_window: limit(),
                send_buffer: limit(),
                application: limit(),
            },
            cwnd_bytes: first(cwnd),
            rtt_ns: first(rtt),
            switches: sampled.switches().into_iter().map(switched).collect(),
            dropped_packets: None,
        }
    }

    fn windows(&self, most: usize) -> Windows {
        let counts = [&self.acked_bytes, &self.beside_acked_bytes, &self.retransmitted_packets].map(Vec::len);
        let LimitedOverTime { congestion_window, receive_window, send_buffer, application } = &self.limited_percent;
        let limits = [congestion_window, receive_window, send_buffer, application].map(Vec::len);
        Windows::of(self.window_ns, self.end_ns, counts.into_iter().chain(limits), most)
    }

    /// The changes of the congestion control that are drawn: a schedule has fewer.
    fn drawn_switches(&self) -> impl Iterator<Item = (f64, &str)> {
        self.switches.iter().take(KEPT).map(|to| (to.at_us as f64 / 1e6, to.control.as_str()))
    }

    /// What limited it.
    fn limits(&self, most: usize) -> Stack<'static> {
        let windows = self.windows(most);
        let part = |name, colour: &'static str, values: &[f64]| Part {
            name,
            colour: colour.into(),
            values: windows.means(values),
            ..Part::default()
        };
        let LimitedOverTime { congestion_window, receive_window, send_buffer, application } = &self.limited_percent;
        let parts = vec![
            part("congestion window", "--blue", congestion_window),
            part("receive window", "--orange", receive_window),
            part("send buffer", "--amber", send_buffer),
            part("application", "--line", application),
        ];
        Stack { step_s: windows.step_s, parts }
    }
}

/// The figures of at most [`AT_ONCE`](super::runs::AT_ONCE) runs, each with its name, and what was `captured` of them, on one axis.
pub(crate) fn figures(runs: &[(&str, &TcpOverTime)], captured: Vec<(Panel<'_>, &str)>, detail: Detail) -> String {
    let most = detail.most;
    let coloured = || runs.iter().zip(COLOURS).map(|((name, run), colour)| (*name, *run, colour));
    let ends = runs.iter().map(|(_, run)| run.end_ns as f64 / 1e9);
    let end_s = ends.chain(captured.iter().map(|(panel, _)| panel.end_s)).fold(0.0, f64::max);
    let panel = |title, what, units| Panel { title, what, units, end_s, since: SINCE, ..Panel::default() };
    let rates = |counts: fn(&TcpOverTime) -> &[u64], factor: f64| -> Vec<Line<'_>> {
        coloured()
            .map(|(name, run, colour)| {
                let windows = run.windows(most);
                windows.line(name, colour, &windows.rates(counts(run), factor))
            })
            .filter(|line| !line.points.is_empty())
            .collect()
    };
    let curves = |curve: fn(&TcpOverTime) -> &Curve| -> Vec<Line<'_>> {
        coloured().map(|(name, run, colour)| curve(run).line(name, colour, most)).collect()
    };
    let mut switched: Vec<f64> = runs.iter().flat_map(|(_, run)| run.drawn_switches()).map(|(at, _)| at).collect();
    switched.sort_by(f64::total_cmp);
    let marks = || ("control switched", switched.clone());

    let goodput = Panel {
        steps: true,
        lines: rates(|run| &run.acked_bytes, 8.0),
        marks: marks(),
        ..panel("Goodput", "", &RATES[..])
    };
    let beside = Panel {
        steps: true,
        lines: rates(|run| &run.beside_acked_bytes, 8.0),
        ..panel("Goodput of the flows beside", "", &RATES)
    };
    let windows =
        Panel { lines: curves(|run| &run.cwnd_bytes), marks: marks(), ..panel("Congestion window", "", &SIZES) };
    let round_trips = Panel { lines: curves(|run| &run.rtt_ns), ..panel("Round trip", "smoothed, ", &TIMES) };
    let again = Panel {
        steps: true,
        lines: rates(|run| &run.retransmitted_packets, 1.0),
        ..panel("Retransmissions", "", &PACKETS_A_SECOND)
    };
    let titles: Vec<String> = runs.iter().map(|(name, _)| format!("What limits {name}")).collect();
    let limits = runs.iter().zip(&titles).filter(|_| detail.has_own).map(|((_, run), title)| {
        let events = run.drawn_switches().map(|(at, control)| (at, control.to_owned())).collect();
        (Panel { stack: Some(run.limits(most)), events, ..panel(title, "time, ", &SHARE) }, "")
    });
    let dropped_titles: Vec<String> = runs.iter().map(|(name, _)| format!("{TITLE}: {name}")).collect();
    let dropped = runs.iter().zip(&dropped_titles).filter(|_| detail.has_own).filter_map(|((_, run), title)| {
        let drawn = run.dropped_packets.as_ref()?.panel(title, most);
        Some((Panel { end_s, since: SINCE, ..drawn }, DROPPED))
    });
    let shared = [
        (goodput, "What the receivers acknowledged, by the senders' samples, all flows of a test together."),
        (beside, ""),
        (windows, "Of the first flow of each test."),
        (round_trips, "Of the first flow of each test, as TCP smooths it (RFC 6298)."),
        (again, "Retransmitted packets, all flows of a test together."),
    ];
    let captured = captured.into_iter().map(|(panel, caption)| (Panel { end_s, since: SINCE, ..panel }, caption));
    timeline(shared.into_iter().chain(limits).chain(dropped).chain(captured))
}

#[cfg(test)]
pub(crate) mod tests {
    use longhaul_tcp::{CongestionSince, Series, TcpInfo, TcpStreamReport};

    use super::*;

    /// Of a flow with a sample each 10 ms: 1 Mb/s, a window of ten segments that has one of 99 once, a round trip of 40 ms.
    pub(crate) fn report(samples: u64) -> TcpEndReport {
        let mut series = Series::new(100_000);
        for number in 0..samples {
            // Of `struct tcp_info`: window, segment, round trip, retransmissions, in flight, not sent; acknowledged bytes and busy time.
            let mut bytes = [0; 280];
            let window: u64 = if number == samples / 3 { 99 } else { 10 };
            let words = [(80, window), (16, 1_000), (68, 40_000), (100, number / 100), (24, 10), (144, 100_000)];
            for (offset, value) in words {
                bytes[offset..offset + 4].copy_from_slice(&(value as u32).to_ne_bytes());
            }
            for (offset, value) in [(120, number * 1_250), (168, number * 10_000)] {
                bytes[offset..offset + 8].copy_from_slice(&u64::to_ne_bytes(value));
            }
            let info = TcpInfo::parse(&bytes);
            series.push(Sample { at_ns: 5_000_000_000 + number * 10_000_000, congestion: 0, info });
        }
        let since = |at_ns, name: &str| CongestionSince { at_ns, name: name.into() };
        let stream = TcpStreamReport {
            sends: true,
            samples: Some(series.to_text()),
            congestion: vec![since(5_000_000_000, "lh_reno"), since(7_000_000_000, "lh_scalable")],
            ..TcpStreamReport::default()
        };
        TcpEndReport { streams: vec![stream], ..TcpEndReport::default() }
    }

    /// Three packets at the receiver in each of 300 intervals of 200 ms.
    pub(crate) fn dropped() -> DroppedOverTime {
        let mut dropped = DroppedOverTime::default();
        (1..=300).for_each(|number| dropped.push(number * 200_000_000, [0, number * 3, 0]));
        dropped
    }

    #[test]
    fn what_is_kept_has_every_byte_and_the_extremes() {
        let kept = TcpOverTime::of(&report(6_001), Some(&report(3_001)), &dropped()).unwrap();
        assert_eq!((kept.window_ns, kept.end_ns), (500_000_000, 60_000_000_000), "120 windows of a minute");
        assert_eq!((kept.acked_bytes.len(), kept.acked_bytes.iter().sum::<u64>()), (120, 6_000 * 1_250));
        assert_eq!(kept.beside_acked_bytes.iter().sum::<u64>(), 3_000 * 1_250);
        assert_eq!(kept.retransmitted_packets.iter().sum::<u64>(), 60);
        assert!(kept.cwnd_bytes.at_us.len() <= 200 && kept.cwnd_bytes.values.contains(&99_000), "{kept:?}");
        assert!(kept.rtt_ns.values.iter().all(|rtt| *rtt == 40_000_000));
        assert_eq!(kept.limited_percent.congestion_window, [100.0; 120]);
        assert_eq!(kept.switches, [SwitchedAt { at_us: 2_000_000, control: "scalable".into() }]);
        let drops = kept.dropped_packets.as_ref().unwrap();
        assert_eq!((drops.rcv_rxloss.len(), drops.rcv_rxloss.iter().sum::<u64>()), (200, 900));
        // As a result has it.
        let text = serde_json::to_string(&kept).unwrap();
        assert!(text.len() < 20_000, "{}", text.len());
        assert_eq!(serde_json::from_str::<TcpOverTime>(&text).unwrap(), kept);
        assert_eq!(TcpOverTime::of(&report(1), None, &dropped()), None);
        // One that was written before drops were kept.
        let mut older = serde_json::to_value(&kept).unwrap();
        older.as_object_mut().unwrap().remove("dropped_packets");
        let older: TcpOverTime = serde_json::from_value(older).unwrap();
        assert_eq!(older, TcpOverTime { dropped_packets: None, ..kept });
    }

    /// By hand: the flows beside were sampled first, 3 s after the clock began, which it did 1 us after 1970.
    #[test]
    fn time_counts_from_the_first_sample_of_all_flows() {
        let own = TcpEndReport { unix_offset_ns: Some(1_000), ..report(3) };
        let mut beside = report(3);
        assert_eq!(TcpOverTime::began_unix_ns(&own, Some(&beside)), Some(5_000_001_000));
        let mut series = Series::new(2);
        series.push(Sample { at_ns: 3_000_000_000, congestion: 0, info: TcpInfo::parse(&[0; 280]) });
        beside.streams[0].samples = Some(series.to_text());
        assert_eq!(TcpOverTime::began_unix_ns(&own, Some(&beside)), Some(3_000_001_000));
        assert_eq!(TcpOverTime::began_unix_ns(&report(3), None), None, "it does not say what its clock is");
        assert_eq!(TcpOverTime::began_unix_ns(&TcpEndReport { streams: Vec::new(), ..own }, None), None);
    }

    #[test]
    fn runs_are_lines_of_one_figure_and_each_has_its_limits() {
        let of = |samples, dropped| TcpOverTime::of(&report(samples), None, dropped).unwrap();
        let (short, long) = (of(1_001, &dropped()), of(2_001, &DroppedOverTime::default()));
        let html = figures(&[("reno <1>", &short), ("cubic", &long)], Vec::new(), Detail::ALL[0]);
        for title in ["Goodput", "Congestion window", "Round trip", "Retransmissions", "What limits reno &lt;1&gt;"] {
            assert!(html.contains(&format!("data-figure=\"{title}\"")), "{title}: {html}");
        }
        assert!(!html.contains("flows beside") && !html.contains("<1>"), "{html}");
        let data = html.split_once("application/json\">").unwrap().1.split_once("</script>").unwrap().0;
        let goodput: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!((&goodput["end_s"], &goodput["lines"][1]["name"]), (&20.0.into(), &"cubic".into()));
        assert_eq!(goodput["lines"][0]["values"][0], 1e6);
        assert_eq!(goodput["marks"]["at"], serde_json::json!([2.0, 2.0]));
        assert!(!figures(&[("reno", &short)], Vec::new(), Detail::ALL[3]).contains("What limits"));
        // The drops of the one that had some are drawn, each as it is kept.
        assert_eq!(html.matches("data-figure=\"Dropped by the hosts").count(), 1);
        let (_, drawn) = html.split_once("data-figure=\"Dropped by the hosts, by location: reno &lt;1&gt;\"").unwrap();
        let data = drawn.split_once("application/json\">").unwrap().1.split_once("</script>").unwrap().0;
        let drawn: serde_json::Value = serde_json::from_str(data).unwrap();
        let kept: Vec<f64> = short.dropped_packets.unwrap().rcv_rxloss.iter().map(|packets| *packets as f64).collect();
        assert_eq!(drawn["stack"]["parts"][1]["values"], serde_json::json!(kept));
    }

    /// Lists of a result that others made have any length and order.
    #[test]
    fn lists_of_any_length_are_drawn_in_few_points() {
        const MANY: usize = 100_000;
        let at_us: Vec<u64> = (0..MANY as u64).map(|number| number % 2 * 1_000_000).collect();
        let curve = || Curve { at_us: at_us.clone(), values: vec![7; MANY] };
        let switch = || SwitchedAt { at_us: 1, control: "reno".into() };
        let hostile = TcpOverTime {
            window_ns: 1,
            end_ns: 1_000_000_000,
            acked_bytes: Vec::new(),
            beside_acked_bytes: vec![1; MANY],
            retransmitted_packets: vec![1; MANY],
            limited_percent: LimitedOverTime { receive_window: vec![1.0; MANY], ..LimitedOverTime::default() },
            cwnd_bytes: curve(),
            rtt_ns: curve(),
            switches: vec![switch(); MANY],
            dropped_packets: Some(DroppedPackets {
                window_ns: 0,
                snd_txloss: vec![0; MANY],
                rcv_rxloss: vec![u64::MAX; MANY],
                tcp_pruning: vec![1; MANY],
            }),
        };
        let html = figures(&[("x", &hostile)], Vec::new(), Detail::ALL[0]);
        assert!(html.contains("flows beside") && html.contains("Dropped by the hosts"), "{html}");
        assert!(html.len() < 300_000, "{}", html.len());
    }
}
