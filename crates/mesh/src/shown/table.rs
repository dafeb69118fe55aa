//! Tables of `longhaul mesh show`.

use std::collections::BTreeMap;

use longhaul_mesh_model::printed::Files;
use longhaul_units::{BitRate, Bytes, utc};

use crate::store::{Diagnosis, Hour, Measured, Measurement, RoundTrips, TcpFlow};

fn percent(lost: i64, sent: i64) -> String {
    if sent == 0 { "-".to_owned() } else { format!("{:.3} %", lost as f64 * 100.0 / sent as f64) }
}

fn rate(bps: i64) -> String {
    BitRate(bps.unsigned_abs()).rounded().to_string()
}

fn milliseconds(ns: i64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// Loss of UDP tests, hour by hour.
pub(super) fn hours(hours: &[Hour]) {
    say!("{:<26}{:<16}{:>8}{:>12}{:>10}{:>12}", "hour", "test", "tests", "packets", "lost", "loss");
    for hour in hours {
        let loss = percent(hour.lost, hour.sent);
        let begin = utc(hour.begin_ns);
        say!("{begin:<26}{:<16}{:>8}{:>12}{:>10}{loss:>12}", hour.test, hour.tests, hour.sent, hour.lost);
    }
}

/// Counts that others reported, added up: no sum passes the end of its type.
fn sum(counts: impl Iterator<Item = i64>) -> i64 {
    counts.fold(0, i64::saturating_add)
}

/// Tests, packets sent and packets lost of each pair.
fn sums(hours: &[Hour]) -> BTreeMap<(&str, &str), [i64; 3]> {
    let mut pairs: BTreeMap<_, [i64; 3]> = BTreeMap::new();
    for hour in hours {
        let sums = pairs.entry((hour.sender.as_str(), hour.receiver.as_str())).or_default();
        let more = [hour.tests, hour.sent, hour.lost];
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
    pairs
}

/// Loss of UDP tests, pair by pair.
pub(super) fn pairs(hours: &[Hour]) {
    say!("{:<20}{:<20}{:>8}{:>12}{:>10}{:>12}", "from", "to", "tests", "packets", "lost", "loss");
    for ((from, to), [tests, sent, lost]) in sums(hours) {
        say!("{from:<20}{to:<20}{tests:>8}{sent:>12}{lost:>10}{:>12}", percent(lost, sent));
    }
}

/// Round trips, TCP and diagnoses, a table each; `each`: a line for each result, else for each pair.
pub(super) fn measurements(all: &[Measurement], each: bool) {
    let mut trips: BTreeMap<Key, Vec<&RoundTrips>> = BTreeMap::new();
    let mut flows: BTreeMap<Key, Vec<&TcpFlow>> = BTreeMap::new();
    let mut diagnoses: Vec<(&Measurement, &Diagnosis)> = Vec::new();
    for one in all {
        let key = (each.then_some(one.at_ns), one.sender.as_str(), one.receiver.as_str());
        match &one.measured {
            Measured::Rtt(found) => trips.entry(key).or_default().push(found),
            Measured::Tcp(found) => flows.entry(key).or_default().push(found),
            Measured::Diagnose(found) => diagnoses.push((one, found)),
            Measured::Unknown => {}
        }
    }
    round_trips(&trips);
    tcp(&flows);
    if !diagnoses.is_empty() {
        say!("\nDiagnoses");
    }
    diagnoses.into_iter().for_each(|(one, found)| diagnosis(one, found));
}

/// Where the files beside the results are.
pub(super) fn files(all: &[Files]) {
    if !all.is_empty() {
        say!("\nFiles of all sites and days");
    }
    for Files { kind, files, bytes, paths } in all {
        say!("{kind:<10}{files:>8} files, {}: {paths}", Bytes(*bytes).rounded());
    }
}

/// When, if each is a line, and between whom.
type Key<'a> = (Option<i64>, &'a str, &'a str);

fn between((at, from, to): &Key) -> String {
    match at {
        Some(at) => format!("{:<26}{from:<20}{to:<20}", utc(*at)),
        None => format!("{from:<20}{to:<20}"),
    }
}

fn heading(key: Option<&Key>, what: &str, columns: &[&str]) {
    let Some((at, ..)) = key else { return };
    say!("\n{what}");
    let columns: String = columns.iter().map(|column| format!("{column:>16}")).collect();
    say!(
        "{}{:<20}{:<20}{columns}",
        if at.is_some() { format!("{:<26}", "begun") } else { String::new() },
        "from",
        "to"
    );
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort();
    values.get(values.len() / 2).copied()
}

fn round_trips(trips: &BTreeMap<Key, Vec<&RoundTrips>>) {
    heading(trips.keys().next(), "Round trips", &["least", "median", "99 % within", "probes", "loss", "outages"]);
    for (key, all) in trips {
        let quantiles = || all.iter().filter_map(|trips| trips.quantiles);
        let shown = |ns: Option<i64>| ns.map_or_else(|| "-".to_owned(), milliseconds);
        let least = shown(quantiles().map(|of| of.min_ns).min());
        let half = shown(median(quantiles().map(|of| of.p50_ns).collect()));
        // Of several results the greatest: it cannot be said of all their probes.
        let p99 = shown(quantiles().map(|of| of.p99_ns).max());
        let [sent, lost, outages] = [
            sum(all.iter().map(|trips| trips.sent)),
            sum(all.iter().map(|trips| trips.lost)),
            sum(all.iter().map(|trips| trips.outages)),
        ];
        let loss = percent(lost, sent);
        say!("{}{least:>16}{half:>16}{p99:>16}{sent:>16}{loss:>16}{outages:>16}", between(key));
    }
}

fn tcp(flows: &BTreeMap<Key, Vec<&TcpFlow>>) {
    heading(flows.keys().next(), "TCP", &["tests", "goodput", "paced to", "retransmitted", "limited by"]);
    for (key, all) in flows {
        let goodput = median(all.iter().map(|flow| flow.goodput_bps).collect()).map_or_else(String::new, rate);
        let paced = median(all.iter().map(|flow| flow.paced_bps).collect()).map_or_else(String::new, rate);
        let retransmits = sum(all.iter().map(|flow| flow.retransmits));
        let mut limits: BTreeMap<&str, f64> = BTreeMap::new();
        all.iter().for_each(|flow| *limits.entry(&flow.limited_by).or_default() += flow.limited_share);
        let most = limits.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).map_or("-", |(name, _)| name);
        say!("{}{:>16}{goodput:>16}{paced:>16}{retransmits:>16}  {most}", between(key), all.len());
    }
}

fn diagnosis(one: &Measurement, found: &Diagnosis) {
    let head = format!("{}  {} to {}:", utc(one.at_ns), one.sender, one.receiver);
    if let Some(failed) = &found.failed {
        say!("{head} no answer: {failed}");
        return;
    }
    let carried = found
        .goodput_bps
        .map_or_else(|| "no TCP test came to its end".to_owned(), |bps| format!("TCP carried {}", rate(bps)));
    let target =
        found.target_bps.map_or_else(String::new, |bps| format!(" where {} on the wire are expected", rate(bps)));
    say!("{head} {carried}{target}");
    for cause in &found.causes {
        let bound = cause.bound_bps.map_or_else(String::new, |bps| format!(", at most {}", rate(bps)));
        let place = if cause.place.is_empty() { String::new() } else { format!(" ({})", cause.place) };
        say!("  {}{place}{bound}: {}", cause.code, cause.remedy);
    }
    if found.causes.is_empty() {
        say!("  nothing limits it below that");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_at_a_glance() {
        assert_eq!([percent(44, 10_000), percent(0, 0)], ["0.440 %", "-"]);
        assert_eq!(milliseconds(74_600_000), "74.600 ms");
        assert_eq!(median(vec![5, 1, 3]), Some(3));
        assert_eq!(median(Vec::<i64>::new()), None);
    }

    /// What a database says may be anything: tables are printed, not panics.
    #[test]
    fn counts_without_room_stay_at_the_end() {
        let hour = |lost: i64| Hour {
            test: "probes".into(),
            sender: "ithaca".into(),
            receiver: "geneva".into(),
            begin_ns: 0,
            tests: i64::MAX,
            sent: i64::MAX,
            lost,
        };
        let all = [hour(1), hour(2), hour(i64::MAX)];
        assert_eq!(sums(&all)[&("ithaca", "geneva")], [i64::MAX; 3]);
        pairs(&all);
        hours(&all);
        let (max, quantiles) = (i64::MAX, None);
        let trips = RoundTrips {
            duration_ns: max,
            sent: max,
            lost: max,
            quantiles,
            outages: max,
            longest_outage_ns: max,
            gaps_ns: max,
        };
        let flow = TcpFlow {
            duration_ns: max,
            bytes: max,
            goodput_bps: max,
            paced_bps: max,
            retransmits: max,
            retransmitted_bytes: None,
            min_rtt_ns: None,
            congestion_control: "cubic".into(),
            limited_by: "application".into(),
            limited_share: 1.0,
        };
        let one = |measured| Measurement {
            id: String::new(),
            test: "delay".into(),
            sender: "ithaca".into(),
            receiver: "geneva".into(),
            at_ns: 0,
            measured,
        };
        let [trips, flow] = [Measured::Rtt(trips), Measured::Tcp(flow)].map(one);
        measurements(&[trips.clone(), trips, flow.clone(), flow], false);
    }
}
