//! Round trips, TCP and diagnoses as `/api/v1/` answers them, beside the store itself.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Archive, Measured, Measurement};
use serde_json::{Value, json};

use crate::common::{Coordinator, Folder, HOUR_NS, PATIENCE, hub_of_all_kinds, measurements, names, now_ns, results};
use crate::interface::{is_as_described, number, time_ns};

const DAY_NS: i64 = 24 * HOUR_NS;

type Pair = (String, String);

/// What a test says of a metric: the figure of the pair, and the one beside it.
fn of(metric: &str, one: &Measurement) -> Option<(Option<i64>, Option<i64>, i64)> {
    match (&one.measured, metric) {
        (Measured::Rtt(trips), "rtt") => {
            let quantiles = trips.quantiles.as_ref();
            Some((quantiles.map(|of| of.p50_ns), quantiles.map(|of| of.p99_ns), trips.lost))
        }
        (Measured::Tcp(flow), "goodput") => Some((Some(flow.goodput_bps), Some(flow.paced_bps), 0)),
        _ => None,
    }
}

fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Tests, median, the figure beside it, and lost probes.
type Figures = (i64, Option<i64>, Option<i64>, i64);

/// Figures of pairs and units of time, made of single results.
fn units(all: &[Measurement], metric: &str, unit_ns: i64, (from, until): (i64, i64)) -> BTreeMap<(Pair, i64), Figures> {
    let mut found = BTreeMap::<(Pair, i64), Vec<_>>::new();
    for one in all.iter().filter(|one| (from..until).contains(&one.at_ns)) {
        if let Some(figures) = of(metric, one) {
            let key = ((one.sender.clone(), one.receiver.clone()), one.at_ns / unit_ns * unit_ns);
            found.entry(key).or_default().push(figures);
        }
    }
    let figures = |all: Vec<(Option<i64>, Option<i64>, i64)>| {
        let middle = |values: Vec<Option<i64>>| median(values.into_iter().flatten().collect());
        let (one, other) = (all.iter().map(|of| of.0).collect(), all.iter().map(|of| of.1).collect());
        (all.len() as i64, middle(one), middle(other), all.iter().map(|of| of.2).sum())
    };
    found.into_iter().map(|(key, all)| (key, figures(all))).collect()
}

/// The same of the whole span: medians of its units.
fn whole(units: BTreeMap<(Pair, i64), Figures>) -> BTreeMap<Pair, Figures> {
    let mut pairs = BTreeMap::<Pair, Vec<Figures>>::new();
    units.into_iter().for_each(|((pair, _), figures)| pairs.entry(pair).or_default().push(figures));
    let sum = |of: fn(&Figures) -> i64, all: &[Figures]| all.iter().map(of).sum();
    let middle = |of: fn(&Figures) -> Option<i64>, all: &[Figures]| median(all.iter().filter_map(of).collect());
    let whole = |all: Vec<Figures>| {
        (sum(|of| of.0, &all), middle(|of| of.1, &all), middle(|of| of.2, &all), sum(|of| of.3, &all))
    };
    pairs.into_iter().map(|(pair, all)| (pair, whole(all))).collect()
}

/// What an answer says of a pair or a point.
fn given(metric: &str, of: &Value) -> Figures {
    let figure = if metric == "rtt" {
        (of["round_trip"]["median_ns"].as_i64(), of["round_trip"]["p99_ns"].as_i64())
    } else {
        (of["goodput"]["median_bps"].as_i64(), of["goodput"]["paced_bps"].as_i64())
    };
    (number(&of["tests"]), figure.0, figure.1, number(&of["lost_packets"]))
}

fn pairs(metric: &str, answer: &Value) -> BTreeMap<Pair, Figures> {
    let name = |of: &Value, key: &str| of[key].as_str().unwrap().to_owned();
    let pair = |of: &Value| ((name(of, "sender"), name(of, "receiver")), given(metric, of));
    answer["pairs"].as_array().unwrap().iter().map(pair).collect()
}

/// Waits until the page has followed so many tests of a metric.
pub(crate) fn followed(coordinator: &Coordinator, metric: &str, tests: i64) {
    let begin = Instant::now();
    loop {
        let answer = coordinator.json(&format!("pairs?days=3660&metric={metric}"));
        let sum: i64 = answer["pairs"].as_array().unwrap().iter().map(|pair| number(&pair["tests"])).sum();
        if sum == tests {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{metric}: {sum} of {tests} tests");
        thread::sleep(Duration::from_millis(100));
    }
}

fn count(all: &[Measurement], metric: &str) -> i64 {
    all.iter().filter(|one| of(metric, one).is_some()).count() as i64
}

#[test]
fn round_trips_and_tcp_are_those_of_the_store() {
    let folder = Folder::new("measured");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo"]);
    // From chicago to tokyo nothing answered for some hours, and the path got longer.
    let longer = |from: usize, to: usize, ago: i64| match (from, to, ago) {
        (2, 3, 5..=7) => None,
        (2, 3, ..5) => Some(1.3),
        _ => Some(1.0),
    };
    let all = measurements(&sites, 24 * 40, longer);
    // Every third of them is late.
    let (late, early): (Vec<_>, Vec<_>) = all.iter().cloned().enumerate().partition(|(number, _)| number % 3 == 0);
    let [late, early] = [late, early].map(|part| part.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
    let hub = hub_of_all_kinds(&folder, &sites, &results(&sites, 2, |_, _, _| 1), &early);
    let coordinator = Coordinator::start(&hub, &[]);
    followed(&coordinator, "rtt", count(&early, "rtt"));
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    assert_eq!(archive.take_measurements(&late).unwrap(), late.len());
    let kept = archive.measurements(0).unwrap();
    assert_eq!(kept.len(), all.len());
    let described: Value = serde_json::from_str(&coordinator.get("/api/v1/openapi.json").1).unwrap();

    for metric in ["rtt", "goodput"] {
        followed(&coordinator, metric, count(&all, metric));
        for days in [1, 2, 3, 30, 100] {
            let question = format!("pairs?days={days}&metric={metric}");
            let answer = is_as_described(&coordinator, &described, "/api/v1/pairs", &question);
            let span = (time_ns(&answer["span"]["from"]), time_ns(&answer["span"]["until"]));
            let unit_ns = if days <= 2 { HOUR_NS } else { DAY_NS };
            let expected = whole(units(&kept, metric, unit_ns, span));
            assert_eq!(expected.len(), if metric == "rtt" { 6 } else { 12 });
            assert_eq!(pairs(metric, &answer), expected, "{question}");
            assert_eq!(answer["metric"], metric);
            if metric == "rtt" {
                usual_is_that_of_a_month(&answer, &kept, span, days);
            }
        }
        // A pair by the hour and by the day, up to a moment in the past.
        let until = jiff::Timestamp::from_nanosecond(i128::from(now_ns() - 5 * DAY_NS)).unwrap();
        for (days, unit_ns) in [(7, HOUR_NS), (100, DAY_NS)] {
            let question = format!("pairs/chicago/tokyo?days={days}&until={until}&metric={metric}");
            let answer = is_as_described(&coordinator, &described, "/api/v1/pairs/{sender}/{receiver}", &question);
            let span = (time_ns(&answer["span"]["from"]), time_ns(&answer["span"]["until"]));
            let expected = units(&kept, metric, unit_ns, span)
                .into_iter()
                .filter(|((pair, _), _)| (pair.0.as_str(), pair.1.as_str()) == ("chicago", "tokyo"));
            let expected: BTreeMap<i64, Figures> = expected.map(|((_, begin), figures)| (begin, figures)).collect();
            let points = answer["points"].as_array().unwrap().iter();
            let given: BTreeMap<i64, Figures> =
                points.map(|point| (time_ns(&point["begin"]), given(metric, point))).collect();
            assert!(!expected.is_empty());
            assert_eq!(given, expected, "{question}");
        }
        assert_eq!(coordinator.json(&format!("pairs/tokyo/tokyo?metric={metric}"))["points"], json!([]));
    }
    each_test_is_that_of_the_store(&coordinator, &described, &kept);
}

/// The usual round trip is the median of the days of a month, or of the span.
fn usual_is_that_of_a_month(answer: &Value, kept: &[Measurement], (from, until): (i64, i64), days: i64) {
    let until = (until - 1).div_euclid(DAY_NS) * DAY_NS + DAY_NS;
    let month = (until - days.max(30) * DAY_NS, until);
    assert!(month.0 <= from);
    let expected = whole(units(kept, "rtt", DAY_NS, month));
    for pair in answer["pairs"].as_array().unwrap() {
        let name = |key: &str| pair[key].as_str().unwrap().to_owned();
        let usual = expected[&(name("sender"), name("receiver"))].1;
        assert_eq!(pair["round_trip"]["usual_ns"].as_i64(), usual, "{pair}");
    }
}

fn each_test_is_that_of_the_store(coordinator: &Coordinator, described: &Value, kept: &[Measurement]) {
    for (metric, days, kind) in [("rtt", 1, "rtt"), ("goodput", 2, "tcp"), ("diagnosis", 30, "diagnose")] {
        let question = format!("pairs/ithaca/geneva/tests?days={days}&metric={metric}");
        let path = "/api/v1/pairs/{sender}/{receiver}/tests";
        let answer = is_as_described(coordinator, described, path, &question);
        let from = time_ns(&answer["span"]["from"]);
        let own = |one: &&Measurement| {
            let is_kind = match &one.measured {
                Measured::Rtt(_) => kind == "rtt",
                Measured::Tcp(_) => kind == "tcp",
                Measured::Diagnose(_) => kind == "diagnose",
                Measured::Unknown => false,
            };
            is_kind && (one.sender.as_str(), one.receiver.as_str()) == ("ithaca", "geneva") && one.at_ns >= from
        };
        let mut expected: Vec<&Measurement> = kept.iter().filter(own).collect();
        expected.sort_by_key(|one| -one.at_ns);
        let tests = answer["tests"].as_array().unwrap();
        assert!(!tests.is_empty());
        assert_eq!(tests.len(), expected.len(), "{question}");
        for (test, one) in tests.iter().zip(expected) {
            assert_eq!((&test["id"], &test["kind"]), (&json!(one.id), &json!(kind)));
            let alone = is_as_described(
                coordinator,
                described,
                "/api/v1/tests/{id}",
                &format!("tests/{}?at={}", one.id, test["at"].as_str().unwrap()),
            );
            assert_eq!((&alone["sender"], &alone["result"]), (&json!("ithaca"), test));
            is_whole(test, &one.measured);
        }
    }
    let udp = coordinator.json(&format!("tests/{:032x}", 3));
    assert_eq!(udp["result"]["lost_at_receiver_packets"], 1);
}

/// Nothing is missing of what is kept.
fn is_whole(test: &Value, measured: &Measured) {
    let flat = |value: &Value, without: &[&str]| {
        let mut all: BTreeMap<String, Value> = value.as_object().unwrap().clone().into_iter().collect();
        without.iter().for_each(|key| drop(all.remove(*key)));
        all
    };
    match measured {
        Measured::Rtt(trips) => {
            let mut expected = flat(&serde_json::to_value(trips).unwrap(), &["quantiles", "sent", "lost"]);
            expected.extend(flat(&serde_json::to_value(trips.quantiles.unwrap()).unwrap(), &[]));
            assert_eq!(flat(&test["round_trips"], &[]), expected);
            assert_eq!((&test["sent_packets"], &test["lost_packets"]), (&json!(trips.sent), &json!(trips.lost)));
        }
        Measured::Tcp(flow) => assert_eq!(test["tcp"], serde_json::to_value(flow).unwrap()),
        Measured::Diagnose(diagnosis) => {
            assert_eq!(flat(&test["diagnosis"], &[]), flat(&serde_json::to_value(diagnosis).unwrap(), &["alarm"]));
        }
        Measured::Unknown => panic!("{test}"),
    }
}
