//! Round trips and TCP by hour, by day and over spans, and single results: as the store answers, beside what follows from the results by hand.

use std::collections::BTreeMap;

use longhaul_mesh::store::{
    Figures, Kept, Listed, Measured, Measurement, Metric, OfPair, Quantiles, Reader, RoundTrips, Series, Span, TcpFlow,
};

use crate::{BEGIN_NS, DAY_NS, HOUR_NS, Place, measurements, result, runtime};

on_both! {
    figures_are_those_of_the_results,
    a_store_without_units_of_30_days_gets_them,
    single_results_come_back,
    tests_of_all_kinds_count,
}

const SITES: [&str; 3] = ["geneva", "chicago", "ithaca"];

/// One of many over 100 days: two in three of round trips, by two tests, of which some were not answered.
fn one(number: u64) -> Measurement {
    let random = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as i64;
    let (from, to) = ([0, 1, 2, 0, 1, 2][number as usize % 6], [1, 2, 0, 2, 0, 1][number as usize % 6]);
    let p50_ns = 10_000_000 + random % 1_000_003;
    let quantiles = Quantiles {
        min_ns: p50_ns - 1,
        p50_ns,
        p90_ns: p50_ns + 1,
        p99_ns: p50_ns + random % 7919,
        max_ns: p50_ns + 10_000,
    };
    let trips = RoundTrips {
        duration_ns: 60_000_000_000,
        sent: 600,
        lost: random % 5,
        quantiles: (random % 11 != 0).then_some(quantiles),
        outages: random % 3,
        longest_outage_ns: random % 3 * 1_000_000_000,
        gaps_ns: 0,
    };
    let flow = TcpFlow {
        duration_ns: 30_000_000_000,
        bytes: 1_000_000,
        goodput_bps: 40_000_000 + random % 999_983,
        paced_bps: 46_423_927 + random % 2,
        retransmits: 0,
        retransmitted_bytes: None,
        min_rtt_ns: None,
        congestion_control: "cubic".into(),
        limited_by: "pacing".into(),
        limited_share: 0.5,
    };
    let (test, measured) = match random % 6 {
        0 | 1 => ("goodput", Measured::Tcp(flow)),
        2 => ("more", Measured::Rtt(trips)),
        _ => ("delay", Measured::Rtt(trips)),
    };
    // Many hours of the first days have several, later ones have few.
    let at_ns = BEGIN_NS + random % 100 * (random / 100 % 100) * DAY_NS / 100 + number as i64 * 1_000_003;
    let id = format!("{number:032x}");
    Measurement { id, test: test.into(), sender: SITES[from].into(), receiver: SITES[to].into(), at_ns, measured }
}

/// What one result says of a metric.
fn of(metric: Metric, one: &Measurement) -> Option<Figures> {
    let figures = match (&one.measured, metric) {
        (Measured::Rtt(trips), Metric::RoundTrip) => Figures {
            tests: 1,
            sent: trips.sent,
            lost: trips.lost,
            median: trips.quantiles.map(|of| of.p50_ns),
            beside: trips.quantiles.map(|of| of.p99_ns),
            outages: trips.outages,
            longest_outage_ns: trips.longest_outage_ns,
        },
        (Measured::Tcp(flow), Metric::Goodput) => {
            Figures { tests: 1, median: Some(flow.goodput_bps), beside: Some(flow.paced_bps), ..Figures::default() }
        }
        _ => return None,
    };
    Some(figures)
}

/// Figures of parts together.
fn together(parts: &[Figures]) -> Figures {
    let sum = |of: fn(&Figures) -> i64| parts.iter().map(of).sum::<i64>();
    let middle = |of: fn(&Figures) -> Option<i64>| {
        let mut values: Vec<i64> = parts.iter().filter_map(of).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    };
    Figures {
        tests: sum(|part| part.tests),
        sent: sum(|part| part.sent),
        lost: sum(|part| part.lost),
        median: middle(|part| part.median),
        beside: middle(|part| part.beside),
        outages: sum(|part| part.outages),
        longest_outage_ns: parts.iter().map(|part| part.longest_outage_ns).max().unwrap_or(0),
    }
}

/// By pair and unit of time: the figures of each test of the pair.
fn units(all: &[Measurement], metric: Metric, span: Span) -> BTreeMap<(String, String), BTreeMap<i64, Vec<Figures>>> {
    let mut results = BTreeMap::<_, Vec<Figures>>::new();
    for one in all.iter().filter(|one| (span.from_ns..span.until_ns).contains(&one.at_ns)) {
        if let Some(figures) = of(metric, one) {
            let begin_ns = one.at_ns / span.unit_ns * span.unit_ns;
            let key = (one.sender.clone(), one.receiver.clone(), begin_ns, one.test.clone());
            results.entry(key).or_default().push(figures);
        }
    }
    let mut units = BTreeMap::<_, BTreeMap<i64, Vec<Figures>>>::new();
    for ((sender, receiver, begin_ns, _), figures) in results {
        units.entry((sender, receiver)).or_default().entry(begin_ns).or_default().push(together(&figures));
    }
    units
}

fn matrix(all: &[Measurement], metric: Metric, span: Span) -> Vec<OfPair> {
    let whole = |of: BTreeMap<i64, Vec<Figures>>| together(&of.into_values().flatten().collect::<Vec<_>>());
    units(all, metric, span).into_iter().map(|(pair, of)| (pair, whole(of))).collect()
}

async fn follow(series: &Series) {
    while series.follow().await.unwrap() {}
}

async fn is_right(series: &Series, all: &[Measurement]) {
    for metric in [Metric::RoundTrip, Metric::Goodput] {
        for until in [20, 101] {
            for days in [1, 2, 3, 29, 30, 31, 60, 100, 365] {
                let span = Span::ending(BEGIN_NS + until * DAY_NS - 7, days * DAY_NS);
                let given = series.matrix(metric, span).await.unwrap();
                assert_eq!(given, matrix(all, metric, span), "{metric:?}: {days} days, until {until}");
                assert!(days < 365 || given.len() == 6, "{given:?}");
                for span in [span, span.finer()] {
                    let given = series.pair(metric, "ithaca", "geneva", span).await.unwrap();
                    let expected = units(all, metric, span).remove(&("ithaca".to_owned(), "geneva".to_owned()));
                    let expected = expected.unwrap_or_default().into_iter();
                    let expected: Vec<_> = expected.map(|(begin_ns, of)| (begin_ns, together(&of))).collect();
                    assert_eq!(given, expected, "{metric:?}: {span:?}");
                }
            }
        }
    }
}

/// Half of them come late, in no order.
fn figures_are_those_of_the_results(place: &Place) {
    let all: Vec<Measurement> = (0..600).map(one).collect();
    // Of each pair one in two.
    let (late, early): (Vec<_>, Vec<_>) = all.iter().cloned().enumerate().partition(|(number, _)| number / 6 % 2 == 0);
    let [late, early] = [late, early].map(|part| part.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
    let mut archive = place.open();
    let runtime = runtime();
    let series = runtime.block_on(Series::open(place.address())).unwrap();
    for (part, there) in [(&early, &early), (&late, &all)] {
        assert_eq!(archive.take_measurements(part).unwrap(), part.len());
        // Others write between two steps.
        assert!(runtime.block_on(series.follow()).unwrap(), "{} results in one step", part.len());
        runtime.block_on(follow(&series));
        runtime.block_on(is_right(&series, there));
    }
    // What comes again changes nothing.
    assert_eq!(archive.take_measurements(&late).unwrap(), 0);
    runtime.block_on(follow(&series));
    runtime.block_on(is_right(&series, &all));
    // Later than all others.
    let unanswered = all.iter().find(|one| !has_run(one)).unwrap().clone();
    let last = Measurement { id: "f".repeat(32), at_ns: BEGIN_NS + 300 * DAY_NS, ..unanswered };
    assert_eq!(archive.take_measurements(&[last]).unwrap(), 1);
    runtime.block_on(last_tests_are_of_all_kinds(place, &all));
}

fn has_run(one: &Measurement) -> bool {
    !matches!(&one.measured, Measured::Rtt(trips) if trips.quantiles.is_none())
}

/// Probes that nobody answered say nothing of the other site.
async fn last_tests_are_of_all_kinds(place: &Place, all: &[Measurement]) {
    let last = |site: &&str| {
        let own = all.iter().filter(|one| has_run(one)).filter(|one| one.sender == *site || one.receiver == *site);
        ((*site).to_owned(), own.map(|one| one.at_ns).max().unwrap())
    };
    let mut expected: Vec<_> = SITES.iter().map(last).collect();
    expected.sort();
    assert_eq!(Reader::open(place.address()).await.unwrap().seen().await.unwrap(), expected);
}

/// A store of form 2, as a longhaul before this one left it.
fn a_store_without_units_of_30_days_gets_them(place: &Place) {
    let all: Vec<Measurement> = (0..200).map(one).collect();
    place.open().take_measurements(&all).unwrap();
    runtime().block_on(async { follow(&Series::open(place.address()).await.unwrap()).await });
    place.change("DROP TABLE rollups");
    place.set_form(2);
    for _ in 0..2 {
        drop(place.open());
    }
    let runtime = runtime();
    let series = runtime.block_on(Series::open(place.address())).unwrap();
    runtime.block_on(follow(&series));
    runtime.block_on(is_right(&series, &all));
    assert_eq!(place.open().measurements(0).unwrap().len(), all.len());
}

/// Those that came, as `longhaul mesh status` counts them: without probes that nobody answered and diagnoses that failed.
fn tests_of_all_kinds_count(place: &Place) {
    let (tested, mut all) = ((0..40).map(result).collect::<Vec<_>>(), (0..200).map(one).collect::<Vec<_>>());
    all.extend(measurements().into_iter().map(|one| Measurement { id: format!("a{}", &one.id[1..]), ..one }));
    let failed = |one: &Measurement| matches!(&one.measured, Measured::Diagnose(found) if found.failed.is_some());
    let mut archive = place.open();
    archive.take(&tested).unwrap();
    archive.take_measurements(&all).unwrap();
    for from_ns in [0, BEGIN_NS + 15_000_000_000, BEGIN_NS + 3 * DAY_NS + 7, BEGIN_NS + 1000 * DAY_NS] {
        let mut expected = BTreeMap::<String, (u64, i64)>::new();
        let own = tested.iter().map(|one| (&one.sender, &one.receiver, one.at_ns));
        let others = all.iter().filter(|one| has_run(one) && !failed(one));
        for (sender, receiver, at_ns) in own.chain(others.map(|one| (&one.sender, &one.receiver, one.at_ns))) {
            for site in [sender, receiver].into_iter().filter(|_| at_ns >= from_ns) {
                let (tests, last) = expected.entry(site.clone()).or_default();
                (*tests, *last) = (*tests + 1, at_ns.max(*last));
            }
        }
        assert_eq!(archive.took_part(from_ns).unwrap(), expected, "since {from_ns}");
    }
}

fn single_results_come_back(place: &Place) {
    let all = measurements();
    let udp = result(7);
    let mut archive = place.open();
    archive.take(std::slice::from_ref(&udp)).unwrap();
    archive.take_measurements(&all).unwrap();
    let runtime = runtime();
    let series = runtime.block_on(Series::open(place.address())).unwrap();
    let test = |id: &str, within: (i64, i64)| runtime.block_on(series.test(id, within));
    let around = |at_ns: i64| (at_ns, at_ns + 1);
    for one in &all {
        let found = test(&one.id, around(one.at_ns)).unwrap();
        assert_eq!(found, Some(Kept::Measurement(one.clone())));
        assert_eq!(test(&one.id, around(one.at_ns + HOUR_NS)).unwrap(), None, "it is of another hour");
    }
    assert_eq!(test(&udp.id, (BEGIN_NS - DAY_NS, BEGIN_NS + DAY_NS)).unwrap(), Some(Kept::Udp(udp.clone())));
    assert_eq!(test(&format!("{:032x}", 99), (0, BEGIN_NS + DAY_NS)).unwrap(), None);
    assert!(test("7", around(BEGIN_NS)).unwrap_err().to_string().contains("32 hexadecimal digits"));

    let list = |listed, pair: (&str, &str), within, most| {
        runtime.block_on(series.measurements(listed, pair, within, most)).unwrap()
    };
    for (one, listed) in all.iter().zip([Listed::RoundTrips, Listed::Tcp, Listed::Diagnoses]) {
        let pair = (one.sender.as_str(), one.receiver.as_str());
        assert_eq!(list(listed, pair, around(one.at_ns), 9), std::slice::from_ref(one));
        assert_eq!(list(listed, pair, (one.at_ns - HOUR_NS, one.at_ns), 9), [], "it begins when the time is over");
        assert_eq!(list(listed, (pair.1, pair.0), around(one.at_ns), 9), [], "it has the other direction");
    }
    // The latest first.
    let later = |number: i64| {
        let id = format!("{:032x}", 5000 + number);
        Measurement { id, at_ns: all[0].at_ns + number * HOUR_NS * 5 / 7, ..all[0].clone() }
    };
    let more: Vec<Measurement> = (1..20).map(later).collect();
    archive.take_measurements(&more).unwrap();
    let last: Vec<Measurement> = more.iter().rev().take(5).cloned().collect();
    let within = (BEGIN_NS, BEGIN_NS + DAY_NS);
    assert_eq!(list(Listed::RoundTrips, ("geneva", "ithaca"), within, 5), last);
    assert_eq!(list(Listed::RoundTrips, ("geneva", "ithaca"), within, 100).len(), 20);
    // Of ten years, and of two plans.
    let earlier = |number: i64| {
        let (id, test) = (format!("{:032x}", 6000 + number), if number == 1 { "why" } else { "kind" }.to_owned());
        Measurement { id, test, at_ns: BEGIN_NS - number * 300 * DAY_NS, ..all[2].clone() }
    };
    let earlier: Vec<Measurement> = (0..12).map(earlier).collect();
    archive.take_measurements(&earlier).unwrap();
    let years = (BEGIN_NS - 3660 * DAY_NS, BEGIN_NS + DAY_NS);
    let latest = [all[2].clone(), earlier[0].clone(), earlier[1].clone()];
    assert_eq!(list(Listed::Diagnoses, ("geneva", "chicago"), years, 3), latest);
    assert_eq!(list(Listed::Diagnoses, ("geneva", "chicago"), years, 100).len(), 13);
}
