//! UDP loss against rate, by location: figure 5 of the NLR Rings paper, for any experiment.

mod between;
pub(crate) mod exactness;
mod spaced;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_result::{Granularity, Location, LocationMethod};
use longhaul_terms::{Amount, SoftirqPlacement};
use longhaul_udp::{Pace, UdpParameters, UdpResult};
use longhaul_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::html::about::spaced;
use crate::html::axis::short;
use crate::html::bars::{Bar, Piece, panel};
use crate::html::colour::{fill, patterns};
use crate::html::over_time::runs::Detail;
use crate::html::over_time::udp_runs::{Named, UdpOverTime, figures};
use crate::html::page::{charts, page_with};
use crate::html::points::{self, Mean, Point, Problems, Quantity};
use crate::html::series::{NOTHING_TRUSTED, Report, Series};

pub use self::between::Pair;
pub use self::exactness::{Exactness, OneWayDelay};

/// A panel whose bars are all below this share of the highest gets an axis of its own, as the insets of the paper's figure do.
const LOW_PANEL: f64 = 0.2;
/// Percent that leave room for the number above the bar below the line of 100 (`bars.rs`).
const ALL: f64 = 92.0;
/// Names of means.
pub(crate) const LOST: &str = "lost_percent";
pub(crate) const SENT: &str = "sent_rate_bps";
pub(crate) const RECEIVED: &str = "received_rate_bps";
/// Percent of the sent packets that were lost at these places.
const NETWORK_LOST: &str = "network_percent";
const RING_LOST: &str = "receiver_ring_percent";
const BUFFER_LOST: &str = "receiver_socket_buffer_percent";
const FILTER_LOST: &str = "receiver_filter_percent";
/// Times between arrivals, and how many packets came at once.
const ARRIVALS: &str = "between_arrivals_p50_ns";
const ARRIVALS_MOST: &str = "between_arrivals_p99_ns";
const ARRIVALS_MEAN: &str = "between_packets_mean_ns";
const BATCH: &str = "mean_batch_packets";

/// Each mean that a point can have.
pub const QUANTITIES: &[&str] = &[
    LOST,
    SENT,
    RECEIVED,
    NETWORK_LOST,
    RING_LOST,
    BUFFER_LOST,
    FILTER_LOST,
    ARRIVALS,
    ARRIVALS_MOST,
    ARRIVALS_MEAN,
    BATCH,
    exactness::DELAY,
    exactness::DELAY_MOST,
    exactness::DELAY_ERROR_LEAST,
    exactness::DELAY_ERROR,
    exactness::DELAY_ERROR_MOST,
    exactness::DROPPED,
    exactness::MISCOUNTED,
];

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Payload bits a second asked for.
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000)))]
    pub rate_bps: u64,
    /// The command that makes the same test.
    pub command: String,
    /// The test as it was granted.
    pub parameters: UdpParameters,
    /// Its result; `None` if there is none.
    pub result: Option<UdpResult>,
    /// What went wrong.
    #[serde(flatten)]
    pub problems: Problems,
    /// Delay and loss compared with the path file; `None` if the experiment does not ask for this.
    #[serde(default)]
    pub exactness: Option<Exactness>,
    /// Who sent to whom, where the experiment names hosts; `None`: the client to the server.
    #[serde(default)]
    pub between: Option<Pair>,
    /// What it did over time. Of each point two runs have it at most: the first that counted, and the first that was rejected if it came earlier;
    /// `None` for the others, and if the sender did not report when packets left.
    #[serde(default)]
    pub over_time: Option<UdpOverTime>,
}

impl Run {
    /// Whether its point is called by its rate.
    fn is_at_a_rate(&self) -> bool {
        self.between.is_none() && !matches!(self.parameters.pace, Pace::SpacingNs(_))
    }

    /// Percent of the sent packets lost at each location, from sender to receiver.
    pub(crate) fn percent(&self) -> Vec<(Location, f64)> {
        let Some(result) = &self.result else { return Vec::new() };
        let share = |packets: u64| packets as f64 * 100.0 / result.sent_packets.max(1) as f64;
        result.loss_by_location.iter().map(|(location, packets)| (*location, share(*packets))).collect()
    }
}

/// The bar of a point.
fn bar(point: &Point<Run>) -> Bar {
    let rate_bps = point.shown().next().map_or(0, |run| run.rate_bps);
    let piece = |(location, mean): (Location, Mean)| Piece {
        place: location.name(),
        fill: fill(location).svg(location),
        percent: mean.mean,
    };
    let pieces = point.means_of(Run::percent).into_iter().map(piece).collect();
    let lost = point.mean(LOST);
    Bar {
        label: point.label.clone(),
        rate_bps: Some(rate_bps),
        pieces: lost.is_some().then_some(pieces),
        half_width: lost.and_then(|lost| lost.half_width),
        doubtful: point.doubtful,
    }
}

impl points::Run for Run {
    const MAIN: Quantity = Quantity { name: LOST, title: "packets lost, %", unit: 1.0, decimals: 3 };

    fn has_result(&self) -> bool {
        self.result.is_some()
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }

    fn problems_mut(&mut self) -> &mut Problems {
        &mut self.problems
    }

    fn quantities(&self) -> Vec<(&'static str, f64)> {
        let Some(result) = &self.result else { return Vec::new() };
        let share = |packets: u64| packets as f64 * 100.0 / result.sent_packets.max(1) as f64;
        let at = |location: Location| share(result.loss_by_location.get(&location).copied().unwrap_or_default());
        let mut all = vec![
            (LOST, share(result.lost_packets)),
            (SENT, result.sent_rate_bps as f64),
            (RECEIVED, result.received_rate_bps as f64),
            (NETWORK_LOST, at(Location::Network)),
            (RING_LOST, at(Location::ReceiverRing)),
            (BUFFER_LOST, at(Location::ReceiverSocketBuffer)),
            (FILTER_LOST, at(Location::ReceiverFilter)),
        ];
        if let Some(arrivals) = &result.arrivals {
            all.extend([
                (ARRIVALS, arrivals.between_batches.p50_ns as f64),
                (ARRIVALS_MOST, arrivals.between_batches.p99_ns as f64),
                (ARRIVALS_MEAN, arrivals.mean_ns),
                (BATCH, arrivals.batch_packets.mean),
            ]);
        }
        all.extend(self.exactness.iter().flat_map(Exactness::quantities));
        all
    }

    fn setting(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let parameters = &self.parameters;
        parts.extend(parameters.sockbuf_bytes.map(|bytes| format!("socket buffers of {}", spaced(Bytes(bytes)))));
        parts.push(format!("{} bytes per packet", parameters.payload_bytes));
        match parameters.amount {
            Amount::DurationNs(ns) => parts.push(format!("{} per test", spaced(Nanos(ns)))),
            Amount::Packets(packets) => parts.push(format!("{packets} packets per test")),
            Amount::Bytes(_) => {}
        }
        parts.extend(parameters.wire.then(|| "single packets".to_owned()));
        parts.extend(parameters.affinity.softirq.map(|placement| {
            match placement {
                SoftirqPlacement::Same => "receiver and its softirq on one CPU",
                SoftirqPlacement::Split => "receiver and its softirq on two CPUs",
            }
            .to_owned()
        }));
        parts
    }

    fn commands(&self) -> Vec<String> {
        vec![self.command.clone()]
    }

    fn has_over_time(&self) -> bool {
        self.over_time.is_some()
    }

    fn forget_over_time(&mut self) {
        self.over_time = None;
    }

    fn over_time(runs: &[(&str, &Self)], detail: Detail) -> String {
        let named = runs.iter().filter_map(|(label, run)| {
            // What is behind the rate is of settings of the hosts, or says that the run was rejected.
            let (rate, more) = label.split_at(label.find([',', ' ']).unwrap_or(label.len()));
            let unit = if run.is_at_a_rate() && rate.parse::<f64>().is_ok() { " Mb/s" } else { "" };
            let payload_bytes = run.parameters.payload_bytes;
            Some(Named { name: format!("{rate}{unit}{more}"), payload_bytes, run: run.over_time.as_ref()? })
        });
        figures(&named.collect::<Vec<_>>(), detail)
    }

    fn circumstances(point: &Point<Self>) -> String {
        let places = point.means_of(Run::percent);
        let lost: Vec<String> = (places.iter())
            .filter(|(_, mean)| mean.mean > 0.0)
            .map(|(location, mean)| format!("{} % in the {}", short(mean.mean), named(*location)))
            .collect();
        lost.join(", ")
    }
}

/// The label of a point: its rate in megabits per second, with at most one decimal.
pub fn mbit(bps: u64) -> String {
    let text = format!("{:.1}", bps as f64 / 1e6);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

impl Report<Run> {
    /// The page.
    pub fn to_html(&self) -> String {
        let mut body = String::new();
        let results = || self.runs().filter_map(|run| run.result.as_ref());
        let lossy: Vec<Location> = Location::ALL
            .into_iter()
            .filter(|at| results().any(|result| result.loss_by_location.get(at).is_some_and(|packets| *packets > 0)))
            .collect();
        self.head(&mut body, &self.found());
        let drawn = self.drawn(&mut body);
        body += &patterns(&lossy);
        legend(&mut body, &lossy);
        drawn.figures(&mut body);
        let is_over_time = self.over_time(&mut body);
        self.probes(&mut body);
        drawn.spaced(&mut body);
        self.about.note(&mut body);
        let mut columns = ["offered, Mb/s", "sent, Mb/s", "received, Mb/s", "lost, %"].map(str::to_owned).to_vec();
        columns.extend(lossy.iter().map(|location| format!("{}, %", words(*location))));
        let exact = self.runs().any(|run| run.exactness.is_some());
        columns.extend(EXACT.iter().filter(|_| exact).map(|(_, title, _)| (*title).to_owned()));
        columns.push("placed by".into());
        drawn.table(&mut body, &columns, |_, point| cells(point, &lossy, exact));
        self.method(&mut body, results());
        self.about.hosts(&mut body);
        drawn.commands(&mut body, "longhaul serve");
        page_with(&self.about.title, &body, charts().filter(|_| is_over_time))
    }

    /// What was found, in words: the most that was lost and where, and how all losses divide.
    fn found(&self) -> Vec<String> {
        let lost = |point: &Point<Run>| point.mean(LOST).map(|lost| lost.mean);
        let trusted = || self.points().filter(|(_, point)| !point.doubtful);
        let Some((series, worst)) = trusted()
            .filter(|(_, point)| lost(point).is_some())
            .max_by(|(_, a), (_, b)| lost(a).unwrap_or_default().total_cmp(&lost(b).unwrap_or_default()))
        else {
            return vec![NOTHING_TRUSTED.into()];
        };
        let mut places: BTreeMap<Location, u64> = BTreeMap::new();
        for result in trusted().flat_map(|(_, point)| point.shown()).filter_map(|run| run.result.as_ref()) {
            for (location, packets) in &result.loss_by_location {
                let sum = places.entry(*location).or_default();
                *sum = sum.saturating_add(*packets);
            }
        }
        let all = places.values().copied().fold(0, u64::saturating_add);
        if all == 0 {
            return vec!["No packet was lost, in any series at any rate.".into()];
        }
        let mut divided: Vec<(Location, u64)> = places.into_iter().filter(|(_, packets)| *packets > 0).collect();
        divided.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        let divided: Vec<String> = (divided.iter())
            .map(|(location, packets)| {
                format!("{} % were lost in the {}", short(*packets as f64 * 100.0 / all as f64), named(*location))
            })
            .collect();
        let most = worst.mean(LOST).map_or_else(String::new, |lost| lost.text(1));
        let foremost = worst.means_of(Run::percent).into_iter().max_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
        let where_most =
            foremost.map_or_else(String::new, |(location, _)| format!(", mostly in the {}", named(location)));
        let unit = if worst.shown().all(Run::is_at_a_rate) { " Mb/s" } else { "" };
        let mut found = vec![
            format!("“{}” at {}{unit} lost the most: {most} % of the packets{where_most}.", series.name, worst.label),
            format!("Of all lost packets, {}.", divided.join(", ")),
        ];
        found.extend(self.lossy_hosts_in_words());
        found
    }

    fn figures(&self, body: &mut String) {
        let bars = |series: &Series<Run>| -> Vec<Bar> { series.points.iter().map(bar).collect() };
        // No more than all can be lost, whatever an interval says.
        let highest = |bars: &[Bar]| bars.iter().map(Bar::top).fold(0.0, f64::max).min(ALL);
        let top = self.series.iter().map(|series| highest(&bars(series))).fold(0.0, f64::max);
        self.panels(body, |series| {
            let bars = bars(series);
            let own = highest(&bars);
            let (top, scale) =
                if own < top * LOW_PANEL { (own, "packets lost, % (own scale)") } else { (top, "packets lost, %") };
            let at_rates = series.points.iter().flat_map(|point| point.shown()).all(Run::is_at_a_rate);
            let across = if at_rates { "payload rate offered, Mb/s" } else { "test" };
            panel(&series.name, &bars, top, across, scale)
        });
    }

    fn method<'a>(&self, body: &mut String, results: impl Iterator<Item = &'a UdpResult>) {
        let mut methods = BTreeSet::new();
        let mut granularities = BTreeSet::new();
        for result in results {
            methods.insert(match result.location_method {
                LocationMethod::Bpf => {
                    "A packet is lost if the receiver never saw its sequence number. The kernel's drop events at both hosts, each with \
                     the packet's sequence number, say where it was lost (bpf). A missing packet without such an event was lost in the \
                     network, if both hosts saw all of their drops."
                }
                LocationMethod::Counters => {
                    "A packet is lost if the receiver never saw its sequence number. Counters of sockets, interfaces and the stack, read \
                     at both hosts before and after each test, say where packets were lost (counters). What no counter saw was lost in the \
                     network."
                }
            });
            granularities.insert(match result.granularity {
                Granularity::Wire => "Each packet travelled alone, as on a wire, so one loss is one packet.",
                Granularity::Superpacket => {
                    "Packets travelled in super-packets, and one drop may have taken several packets."
                }
            });
        }
        *body += "<h2>How this was measured</h2>\n";
        for text in methods.into_iter().chain(granularities) {
            *body += &format!("<p>{text}</p>\n");
        }
        if self.runs().any(|run| run.exactness.is_some()) {
            *body += "<p>The delay of a packet is the time from just before the sending program gave it to the kernel until the receiving kernel \
                      stamped it, so what both hosts take is in it. Its error is the delay less what the path asks for. Miscounted are packets \
                      that are missing between the interfaces of both hosts without the emulator's word, or that it counts as dropped although \
                      they arrived.</p>\n";
        }
        *body += "<p>Rates count UDP payload: the sent rate from first to last departure, the received rate from first to last \
                  arrival. Percentages are of the packets sent; each is the mean over the runs of a point. If the sender did not reach a rate, a caveat says so.</p>\n\
                  <p>Client and server are network namespaces on one machine, and longhaul emulates the path between them, so \
                  hosts and path share its CPUs. Each run has its own path and hosts.</p>\n";
    }
}

/// The cells of a row of the table but for label and runs; `None` without a result.
fn cells(point: &Point<Run>, lossy: &[Location], exact: bool) -> Option<Vec<String>> {
    let method = point.shown().find_map(|run| run.result.as_ref())?.location_method;
    let mut cells = [SENT, RECEIVED].map(|name| scaled(point, name, 1e-6).text(1)).to_vec();
    cells.push(scaled(point, LOST, 1.0).text(3));
    let percent = point.means_of(Run::percent);
    cells.extend(lossy.iter().map(|location| percent.get(location).map_or_else(|| "0".into(), |mean| mean.text(3))));
    let mean = |name: &str, unit: f64| {
        point.mean(name).map_or_else(|| "–".to_owned(), |_| scaled(point, name, 1.0 / unit).text(1))
    };
    cells.extend(EXACT.iter().filter(|_| exact).map(|(name, _, unit)| mean(name, *unit)));
    cells.push(method_name(method).into());
    Some(cells)
}

/// Columns of a table with delay and loss beside what was asked: mean, title, unit.
pub(crate) const EXACT: [(&str, &str, f64); 5] = [
    (exactness::DELAY, "delay p50, ms", 1e6),
    (exactness::DELAY_ERROR_LEAST, "least error, us", 1e3),
    (exactness::DELAY_ERROR, "error p50, us", 1e3),
    (exactness::DELAY_ERROR_MOST, "error p99, us", 1e3),
    (exactness::MISCOUNTED, "miscounted", 1.0),
];

/// A mean times `factor`; 0 where no run has it.
pub(crate) fn scaled<R: points::Run>(point: &Point<R>, name: &str, factor: f64) -> Mean {
    let mean = point.mean(name).unwrap_or(Mean { mean: 0.0, half_width: None });
    Mean { mean: mean.mean * factor, half_width: mean.half_width.map(|half| half * factor) }
}

fn legend(body: &mut String, lossy: &[Location]) {
    *body += "<ul class=\"legend\" aria-label=\"loss locations, from sender to receiver\">\n";
    for location in lossy {
        *body += &format!(
            "<li data-location=\"{location}\"><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" fill=\"{}\"/></svg>{}</li>\n",
            fill(*location).svg(*location),
            words(*location),
        );
    }
    if lossy.is_empty() {
        *body += "<li>no packet was lost anywhere</li>\n";
    }
    *body += "</ul>\n";
}

/// A location in words.
fn named(location: Location) -> String {
    location.name().replace('_', " ")
}

/// A location's name, and the paper's name of it.
fn words(location: Location) -> String {
    let name = named(location);
    match location {
        Location::Network => format!("{name} (network_loss)"),
        Location::ReceiverRing => format!("{name} (rx_ring_loss)"),
        Location::ReceiverSocketBuffer => format!("{name} (sockbuf_loss)"),
        _ => name,
    }
}

const fn method_name(method: LocationMethod) -> &'static str {
    match method {
        LocationMethod::Bpf => "bpf",
        LocationMethod::Counters => "counters",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use longhaul_result::Caveat;
    use longhaul_udp::{UdpReceiverReport, UdpSenderReport};

    use super::*;
    use crate::html::over_time::udp_runs;
    use crate::html::series::tests::{report, series};

    pub(crate) fn run(rate_mbit: u64, lost: &[(Location, u64)]) -> Run {
        let (sender, receiver) = (UdpSenderReport::default(), UdpReceiverReport::default());
        let mut result = UdpResult::assemble(&UdpParameters::default(), &sender, &receiver).result;
        result.sent_packets = 1000;
        result.loss_by_location = Location::ALL.into_iter().map(|location| (location, 0)).collect();
        result.loss_by_location.extend(lost.iter().copied());
        result.lost_packets = lost.iter().map(|(_, packets)| packets).sum();
        Run {
            rate_bps: rate_mbit * 1_000_000,
            command: format!("longhaul udp server -b {rate_mbit}M"),
            parameters: UdpParameters::default(),
            result: Some(result),
            problems: Problems::default(),
            exactness: None,
            between: None,
            over_time: None,
        }
    }

    #[test]
    fn figure_and_table_say_the_same() {
        let lost = [(Location::Network, 50), (Location::ReceiverSocketBuffer, 200)];
        let html = report(vec![series("1 MiB", vec![("400", run(400, &[])), ("2400", run(2400, &lost))])]).to_html();
        assert_eq!(html.matches("class=\"bar\"").count(), 2);
        assert!(html.contains("2400: 25 % lost; network 5 %; receiver_socket_buffer 20 %"), "{html}");
        for cell in [
            ">25.000<",
            ">5.000<",
            ">20.000<",
            "sockbuf_loss",
            "20 % were lost in the network",
            "at 2400 Mb/s lost the most: 25.0 %",
        ] {
            assert!(html.contains(cell), "{cell}");
        }
        assert!(!html.contains("rx_ring_loss"), "what lost nothing has no column");
    }

    #[test]
    fn a_finding_that_did_not_reappear_says_where_packets_were_lost() {
        use crate::html::findings::{Asked, Relation};
        let lost = [(Location::Network, 50), (Location::ReceiverSocketBuffer, 200)];
        let series = series("1 MiB", vec![("2400", run(2400, &lost))]);
        let judge = |most| {
            let asked = Asked {
                says: "Little is lost".into(),
                quantity: LOST.into(),
                relation: Relation::Within(None, Some(most)),
                points: vec![("1 MiB, 2400".into(), Some((0, 0)))],
            };
            asked.judge(|(_, point)| series.points.get(point)).why
        };
        let why = "1 MiB, 2400: 25 % (5 % in the network, 20 % in the receiver socket buffer); at most 1 % asked; \
                   the intervals leave it open";
        assert_eq!(judge(1.0), why);
        assert!(!judge(30.0).contains("in the network"), "one that reappeared needs no reason: {}", judge(30.0));
    }

    #[test]
    fn a_page_draws_one_run_of_each_point_over_time() {
        let lossy = Run { over_time: Some(udp_runs::tests::run(5)), ..run(400, &[(Location::Network, 5)]) };
        let html = report(vec![series("1 MiB", vec![("400", lossy), ("2400", run(2400, &[]))])]).to_html();
        for said in [
            "<h2>Over time</h2>",
            "data-figure=\"Received\"",
            "Packets lost, by location: 400 Mb/s",
            "the first that counted",
        ] {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert!(!html.contains("2400 Mb/s"), "nothing was kept of it");
    }

    #[test]
    fn low_panels_have_an_axis_of_their_own() {
        let low = series("low", vec![("400", run(400, &[(Location::Network, 10)]))]);
        let high = series("high", vec![("400", run(400, &[(Location::Network, 500)]))]);
        let html = report(vec![low.clone(), high]).to_html();
        assert_eq!(html.matches("(own scale)").count(), 1);
        assert!(!report(vec![low.clone(), low]).to_html().contains("(own scale)"));
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let mut failed = run(400, &[]);
        failed.result = None;
        failed.problems = Problems::of_error(Caveat::of_error("unreachable", "nobody <there>", "call"));
        let none = series("none", Vec::new());
        let mut interrupted = report(vec![series("1 MiB", vec![("400", failed), ("800", run(800, &[]))]), none]);
        interrupted.about.interrupted = true;
        let html = interrupted.to_html();
        for said in
            ["400: not measured", "nobody &lt;there&gt;", "Not measured.", "was interrupted", "1 caveat applies"]
        {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert!(!html.contains("<there>"));
        assert!(report::<Run>(vec![]).to_html().contains("No result is reliable."), "nothing to show is no error");
    }

    /// A page that fetches or runs anything is not what it says it is.
    #[test]
    fn nothing_comes_from_elsewhere() {
        let mut named = series("<script src=//x>", vec![("1", run(1, &[(Location::SenderDevice, 5)]))]);
        named.paper = "<img src=x>".into();
        let html = report(vec![named]).to_html();
        // Before the page's own script, which saves figures.
        let (html, _) = html.split_once("<script>").unwrap_or((&html, ""));
        for bad in ["<script", "<img", "<link", "@import", "src=\"", "http://", "https://"] {
            assert!(!html.contains(bad), "{bad}");
        }
        assert!(html.contains("url(#hatch-sender_device)") && html.contains("id=\"hatch-sender_device\""));
    }
}
