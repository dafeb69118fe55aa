//! Probes among several hosts: how much was lost in each, as a histogram with a logarithmic scale, and the host that loses packets which
//! no router lost. Figure 2 of the NLR Rings paper, about TeraGrid, for any experiment.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_result::Location;
use longhaul_terms::bounded_name;
use serde::{Deserialize, Serialize};

use super::{Run, named};
use crate::html::axis::{grid, height, short, step};
use crate::html::page::{escape, number, with_numbers};
use crate::html::points::Mean;
use crate::html::series::{Report, Series};
use crate::html::table::Table;

/// Bounds of the histogram, percent of packets: half decades.
const BOUNDS: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0];
/// A host that loses less, in percent of the packets that it sends or gets, is not named.
const NAMED_PERCENT: f64 = 0.01;
/// The longest name of a host that is read, bytes: that of a path file.
const HOST_BYTES_MOST: usize = 32;
/// The most cells of the table of hosts: a series of an experiment has at most 64 tests, and so senders and receivers. Each of `n` probes
/// between other hosts adds `2 n` cells, so that a file of 1 MB could have a page of gigabytes.
const CELLS_MOST: usize = 64 * 64;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 270.0;
/// Of the bars' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [52.0, 22.0, 556.0, 212.0];
/// Blue and orange of Okabe and Ito (`colour.rs`).
const ALL: &str = "#0072b2";
const OTHERS: &str = "#e69f00";

/// A host that sends and one that receives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pair {
    /// The host that sends.
    #[serde(deserialize_with = "bounded_name::<_, HOST_BYTES_MOST>")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub from: String,
    /// The host that receives.
    #[serde(deserialize_with = "bounded_name::<_, HOST_BYTES_MOST>")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub to: String,
}

impl Pair {
    /// In words.
    pub fn words(&self) -> String {
        format!("{} → {}", self.from, self.to)
    }
}

/// What a host lost itself.
#[derive(Debug, Clone, PartialEq)]
struct LossyHost {
    name: String,
    /// Percent of the packets that it sent or got, the median over its probes.
    percent: f64,
    /// Where it lost most of them.
    location: Location,
}

/// A probe: its pair, packets sent, and packets lost at each place.
struct Probe<'a> {
    pair: &'a Pair,
    sent: u64,
    lost: u64,
    by_location: &'a BTreeMap<Location, u64>,
}

impl<'a> Probe<'a> {
    fn of(run: &'a Run) -> Option<Self> {
        let (pair, result) = (run.between.as_ref()?, run.result.as_ref()?);
        let (sent, lost, by_location) = (result.sent_packets, result.lost_packets, &result.loss_by_location);
        Some(Self { pair, sent, lost, by_location })
    }
}

/// The probes of a series, also those of doubtful points if so.
fn probes(series: &Series<Run>, doubtful: bool) -> Vec<Probe<'_>> {
    let points = series.points.iter().filter(|point| doubtful || !point.doubtful);
    points.flat_map(|point| point.shown()).filter_map(Probe::of).collect()
}

/// The hosts that lose packets themselves, the most lossy first. What counts is the median over the probes of a host: a card that is faulty
/// loses in each, a host that was busy for a moment in one.
fn lossy_hosts(probes: &[Probe<'_>]) -> Vec<LossyHost> {
    let mut hosts: BTreeMap<&str, BTreeMap<Location, Vec<f64>>> = BTreeMap::new();
    for probe in probes {
        for (host, prefix) in [(&probe.pair.from, "sender_"), (&probe.pair.to, "receiver_")] {
            let places = hosts.entry(host).or_default();
            for (location, lost) in probe.by_location.iter().filter(|(location, _)| location.name().starts_with(prefix))
            {
                places.entry(*location).or_default().push(*lost as f64 * 100.0 / probe.sent.max(1) as f64);
            }
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    };
    let mut lossy: Vec<LossyHost> = (hosts.into_iter())
        .filter_map(|(name, places)| {
            let medians: Vec<(Location, f64)> =
                places.into_iter().map(|(location, values)| (location, median(values))).collect();
            let percent = medians.iter().map(|(_, percent)| percent).sum();
            let (location, _) = medians.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
            Some(LossyHost { name: name.to_owned(), percent, location })
        })
        .filter(|host| host.percent >= NAMED_PERCENT)
        .collect();
    lossy.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    lossy
}

/// Probes in each bin, percent of all: those without a loss, then one for each bound.
fn histogram<'a, 'b: 'a>(probes: impl Iterator<Item = &'a Probe<'b>>) -> [f64; BOUNDS.len() + 1] {
    let (mut bins, mut all) = ([0.0; BOUNDS.len() + 1], 0.0);
    for probe in probes {
        let percent = probe.lost as f64 * 100.0 / probe.sent.max(1) as f64;
        let bin = if probe.lost == 0 { 0 } else { 1 + BOUNDS.partition_point(|bound| *bound < percent) };
        bins[bin.min(BOUNDS.len())] += 1.0;
        all += 1.0;
    }
    bins.map(|count| if all > 0.0 { count * 100.0 / all } else { 0.0 })
}

impl Report<Run> {
    /// The hosts that lose packets themselves, a sentence for each series that has any.
    pub(super) fn lossy_hosts_in_words(&self) -> Vec<String> {
        let sentence = |series: &Series<Run>| {
            let hosts: Vec<String> = (lossy_hosts(&probes(series, false)).iter())
                .map(|host| {
                    let LossyHost { name, percent, location } = host;
                    format!(
                        "{name} loses {} % of its packets itself, mostly in the {}",
                        short(*percent),
                        named(*location)
                    )
                })
                .collect();
            (!hosts.is_empty()).then(|| format!("In “{}” {}; no router lost these.", series.name, hosts.join(", ")))
        };
        self.series.iter().filter_map(sentence).collect()
    }

    /// Histogram and table of each series with named hosts.
    pub(super) fn probes(&self, body: &mut String) {
        for series in &self.series {
            let probes = probes(series, true);
            if probes.is_empty() {
                continue;
            }
            let worst = lossy_hosts(&probes).into_iter().next().map(|host| host.name);
            let all = histogram(probes.iter());
            let others = worst.as_ref().map(|worst| {
                let without = |probe: &&Probe<'_>| probe.pair.from != *worst && probe.pair.to != *worst;
                histogram(probes.iter().filter(without))
            });
            // Writing to a string cannot fail.
            let _ = writeln!(body, "<h2>Loss of all probes: {}</h2>", escape(&series.name));
            let names = [("all probes".to_owned(), ALL)];
            let without = worst.map(|worst| (format!("without those of {worst}"), OTHERS));
            *body += "<ul class=\"legend\">\n";
            for (name, colour) in names.into_iter().chain(without) {
                let _ = writeln!(
                    body,
                    "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" fill=\"{colour}\"/></svg>{}</li>",
                    escape(&name)
                );
            }
            let figure = draw(&series.name, &all, others.as_ref());
            let _ = writeln!(
                body,
                "</ul>\n<div class=\"panels\"><figure>{figure}<figcaption><p>{} probes.</p></figcaption></figure></div>",
                probes.len()
            );
            *body += &matrix(series, &probes);
        }
    }
}

/// Who lost how much to whom; a line in its place where there are more hosts than an experiment has.
fn matrix(series: &Series<Run>, probes: &[Probe<'_>]) -> String {
    let mut percent: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for probe in probes {
        let lost = probe.lost as f64 * 100.0 / probe.sent.max(1) as f64;
        percent.entry((&probe.pair.from, &probe.pair.to)).or_default().push(lost);
    }
    let distinct = |of: fn(&Pair) -> &str| {
        let mut names: Vec<&str> = probes.iter().map(|probe| of(probe.pair)).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let (senders, receivers) = (distinct(|pair| &pair.from), distinct(|pair| &pair.to));
    if senders.len() * receivers.len() > CELLS_MOST {
        return format!(
            "<p class=\"quiet\">{} senders and {} receivers are too many for a table of who lost how much to whom.</p>\n",
            senders.len(),
            receivers.len()
        );
    }
    let columns: Vec<String> =
        std::iter::once("from, to".to_owned()).chain(receivers.iter().map(|to| (*to).to_owned())).collect();
    let mut table = Table::new("Packets lost between hosts, %", "numbers", &columns);
    table.group(&series.name);
    for from in senders {
        let cell = |to: &&str| {
            let mean = percent.get(&(from, *to)).and_then(|values| Mean::of(values));
            mean.map_or_else(|| "–".to_owned(), |mean| mean.text(3))
        };
        table.row(from, receivers.iter().map(cell));
    }
    table.finish()
}

/// Bars side by side for each bin.
fn draw(name: &str, all: &[f64], others: Option<&[f64; BOUNDS.len() + 1]>) -> String {
    let [left, top, right, bottom] = EDGES;
    let highest = all.iter().chain(others.into_iter().flatten()).copied().fold(1.0, f64::max) * 1.08;
    let step = step(highest);
    let steps = (highest / step).ceil();
    let y = |percent: f64| height(EDGES, step, steps, percent);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>Probes by loss: {}</title>\n",
        escape(name)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let room = (right - left) / all.len() as f64;
    let bars: Vec<(&[f64], &str)> =
        std::iter::once((all, ALL)).chain(others.map(|others| (&others[..], OTHERS))).collect();
    let wide = room * 0.7 / bars.len() as f64;
    for number in 0..all.len() {
        let middle = left + room * (number as f64 + 0.5);
        let label = if number == 0 { "none".to_owned() } else { format!("≤ {}", short(BOUNDS[number - 1])) };
        for (place, (bins, colour)) in bars.iter().enumerate() {
            let (x, high) = (middle + wide * (place as f64 - bars.len() as f64 / 2.0), y(bins[number]));
            // Writing to a string cannot fail.
            let _ = write!(
                svg,
                "<rect class=\"piece\" x=\"{x:.1}\" y=\"{high:.2}\" width=\"{wide:.1}\" height=\"{:.2}\" fill=\"{colour}\"><title>{label} %: {} % of the probes</title></rect>",
                bottom - high,
                short(bins[number]),
            );
            if bins[number] > 0.0 {
                let _ = write!(
                    svg,
                    "<text class=\"total\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    x + wide / 2.0,
                    high - 5.0,
                    short(bins[number])
                );
            }
        }
        let _ = writeln!(svg, "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", bottom + 17.0);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">packets lost, % (more than in the bar before, up to this)</text>\
         <text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">probes, %</text>\n</svg>",
        (left + right) / 2.0,
        HEIGHT - 8.0,
        (top + bottom) / 2.0
    );
    let names = ["packets lost, % (up to this)", "probes, %", "probes of the others, %"].map(str::to_owned).to_vec();
    let row = |bin: usize| {
        let bound = if bin == 0 { 0.0 } else { BOUNDS[bin - 1] };
        vec![number(bound), number(all[bin]), number(others.map(|others| others[bin]))]
    };
    with_numbers(&svg, std::iter::once(names).chain((0..all.len()).map(row)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::html::series::tests::{report, series};

    fn probe(from: &str, to: &str, lost: &[(Location, u64)]) -> Run {
        Run { between: Some(Pair { from: from.into(), to: to.into() }), ..run(50, lost) }
    }

    /// Of 1000 packets each: the card of `c` loses 4 of what comes to it, and the network one to everybody in one probe.
    #[test]
    fn a_host_that_loses_packets_itself_is_named() {
        let card = [(Location::ReceiverFilter, 4)];
        let runs = vec![
            ("a → b", probe("a", "b", &[])),
            ("b → a", probe("b", "a", &[(Location::Network, 1)])),
            ("a → c", probe("a", "c", &card)),
            ("b → c", probe("b", "c", &card)),
        ];
        let report = report(vec![series("probes", runs)]);
        let said = report.lossy_hosts_in_words();
        assert_eq!(
            said,
            ["In “probes” c loses 0.4 % of its packets itself, mostly in the receiver filter; no router lost these."]
        );
        let probes = probes(&report.series[0], false);
        // 0 % once, 0.1 % once, 0.4 % twice.
        let bins = histogram(probes.iter());
        assert_eq!((bins[0], bins[5], bins[7]), (25.0, 25.0, 50.0), "{bins:?}");
        let html = report.to_html();
        for seen in ["without those of c", "≤ 0.1 %: 25 % of the probes", "Packets lost between hosts", ">0.400<"] {
            assert!(html.contains(seen), "{seen}: {html}");
        }
    }

    /// A table of hosts grows as the square of a file's probes, and each cell has the name of its column.
    #[test]
    fn more_hosts_than_an_experiment_has_make_no_table() {
        let page = |count: usize| {
            let names: Vec<[String; 2]> =
                (0..count).map(|number| [format!("a{number}"), format!("b{number}")]).collect();
            let runs = names.iter().map(|[from, to]| (from.as_str(), probe(from, to, &[]))).collect();
            report(vec![series("probes", runs)]).to_html()
        };
        let table = "Packets lost between hosts";
        assert!(page(64).contains(table));
        let many = page(65);
        assert!(!many.contains(table) && many.contains("65 senders and 65 receivers are too many"), "{many}");
    }

    /// Wherever a pair is read: in a result, and in the journal of an experiment that goes on.
    #[test]
    fn a_host_has_no_longer_name_than_in_a_path() {
        let read = |letters: usize| {
            serde_json::from_value::<Pair>(serde_json::json!({ "from": "a", "to": "'".repeat(letters) }))
        };
        assert!(read(HOST_BYTES_MOST).is_ok());
        assert!(read(HOST_BYTES_MOST + 1).unwrap_err().to_string().contains("a name of at most 32 bytes"));
    }
}
