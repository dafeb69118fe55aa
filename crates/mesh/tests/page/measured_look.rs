//! The page of round trips, TCP, single tests and ended alarms in a real browser: its numbers beside those of the interface.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Coordinator, Folder, hub, hub_of_all_kinds, keep_losses, measurements, names, results};
use crate::look::{Looked, grouped, until};
use crate::measured::followed;

const CELLS: &str =
    "[...document.querySelectorAll('[data-at]:not(.same)')].map(cell => cell.getAttribute('aria-label'))";
const ROWS: &str = "[...document.querySelector('.view table').tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))";

/// A quantity as the page writes it: four digits and a unit.
fn quantity(value: f64, units: &[(f64, &str)]) -> String {
    let (size, unit) = units.iter().find(|(size, _)| value >= size * 0.9999).unwrap();
    let value = value / size;
    let digits = if value >= 1000.0 { 0 } else { 3 - value.log10().floor() as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

fn time(ns: &Value) -> String {
    quantity(ns.as_f64().unwrap(), &[(60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")])
}

fn rate(bps: &Value) -> String {
    quantity(bps.as_f64().unwrap(), &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")])
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

#[test]
fn the_page_has_round_trips_tcp_and_single_tests() {
    let folder = Folder::new("measured-look");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle", "atlanta"]);
    let longer = |from: usize, to: usize, ago: i64| match (from, to, ago) {
        (2, 3, ..=2) => None,
        (0, 4, ..=24) => Some(1.3),
        (1, 5, ..=24) => Some(2.2),
        _ => Some(1.0),
    };
    let all = measurements(&sites, 24 * 9, longer);
    let lossy = results(&sites, 30, |_, to, ago| if to == 2 && ago < 20 { 30 } else { 0 });
    let hub = hub_of_all_kinds(&folder, &sites, &lossy, &all);
    for test in lossy.iter().filter(|test| (test.sender.as_str(), test.receiver.as_str()) == ("ithaca", "chicago")) {
        keep_losses(&hub, test, &test.id);
    }
    let coordinator = Coordinator::start(&hub, &["--public"]);
    if coordinator.get("/").1.contains("without the script") {
        longhaul_testing::no_judge!("this was built without the script of the page (scripts/web.sh, which needs Node)");
        return;
    }
    followed(&coordinator, "rtt", 24 * 9 * 2 * 15);
    followed(&coordinator, "goodput", 24 * 9 / 2 * 30);
    coordinator.alarms();
    let Some(mut looked) = Looked::start(&folder) else { return };
    for (width, scheme) in [(1280, "light"), (400, "dark"), (1280, "dark"), (400, "light")] {
        matrices(&mut looked, &coordinator, width, scheme);
        pairs(&mut looked, &coordinator, width, scheme);
        single_tests(&mut looked, &coordinator, width, scheme);
    }
    choices(&mut looked, &coordinator);
}

fn matrices(looked: &mut Looked, coordinator: &Coordinator, width: u32, scheme: &str) {
    let address = &coordinator.address;
    for metric in ["rtt", "goodput"] {
        looked.open(&format!("{address}/#/?days=1&metric={metric}"), width, scheme);
        let chosen = format!(
            "document.querySelectorAll('.cell').length === 36 && document.querySelector('select').value === '{metric}'"
        );
        until(&mut looked.browser, &chosen);
        let answer = coordinator.json(&format!("pairs?days=1&metric={metric}"));
        let cells = looked.browser.evaluate(CELLS);
        let cells = texts(&cells);
        let expected = answer["pairs"].as_array().unwrap();
        assert_eq!((cells.len(), expected.len()), (30, if metric == "rtt" { 15 } else { 30 }));
        for pair in expected {
            let [sender, receiver] = ["sender", "receiver"].map(|key| pair[key].as_str().unwrap());
            let end = format!(", {} tests", pair["tests"]);
            let (names, middle) = if metric == "rtt" {
                let trip = &pair["round_trip"];
                let middle = format!(
                    "median {}, 99 % within {}, usual {}, ",
                    time(&trip["median_ns"]),
                    time(&trip["p99_ns"]),
                    time(&trip["usual_ns"])
                );
                // One test stands for both cells.
                (vec![[sender, receiver], [receiver, sender]], middle)
            } else {
                let of = &pair["goodput"];
                (
                    vec![[sender, receiver]],
                    format!("median {}, paced to {}", rate(&of["median_bps"]), rate(&of["paced_bps"])),
                )
            };
            for [from, to] in names {
                let begin = format!("{from} {} {to}: {middle}", if metric == "rtt" { "and" } else { "to" });
                let is_said = cells.iter().any(|cell| cell.starts_with(&begin) && cell.ends_with(&end));
                assert!(is_said, "{begin}…{end}: {cells:#?}");
            }
        }
        // Colours: of round trips by what is usual, of goodput by the paced rate.
        let shade = |at: &str| format!("document.querySelector('[data-at=\"{at}\"]').className");
        let shades = if metric == "rtt" {
            [("0 4", 2), ("4 0", 2), ("1 5", 4), ("0 1", 0)]
        } else {
            [("0 1", 3), ("2 1", 3), ("1 2", 1), ("2 0", 1)]
        };
        for (at, expected) in shades {
            assert_eq!(looked.browser.evaluate(&shade(at)), json!(format!("cell shade-{expected}")), "{metric} {at}");
        }
        next_tests(looked, coordinator);
        looked.browser.picture(&format!("mesh-{metric}-{width}-{scheme}"));
        looked.is_good(address, &format!("{metric}, {width}, {scheme}"));
    }
}

/// Tests of all kinds are among those that come next.
fn next_tests(looked: &mut Looked, coordinator: &Coordinator) {
    let schedule = coordinator.json("schedule?next=12");
    let kinds = "[...document.querySelectorAll('.view table caption')].find(caption => caption.textContent === 'Next tests') \
                 .parentElement.tBodies[0].rows";
    let shown = looked.browser.evaluate(&format!("[...{kinds}].map(row => row.cells[2].textContent)"));
    let expected: Vec<&Value> = schedule["next"].as_array().unwrap().iter().map(|test| &test["kind"]).collect();
    assert_eq!(shown, json!(expected));
    let said = looked.browser.evaluate("document.querySelector('.view .pause').textContent");
    assert_eq!(said, "Without pause: delay, round trips of 15 pairs, a result of each every 1 min.");
}

fn pairs(looked: &mut Looked, coordinator: &Coordinator, width: u32, scheme: &str) {
    let address = &coordinator.address;
    for metric in ["rtt", "goodput"] {
        looked.open(&format!("{address}/#/pair/seattle/ithaca?days=7&metric={metric}"), width, scheme);
        until(
            &mut looked.browser,
            "document.querySelector('.live-canvas svg') && document.querySelectorAll('.view table').length === 2",
        );
        let rows = looked.browser.evaluate(ROWS);
        let directions = if metric == "rtt" {
            vec![("ithaca", "seattle")]
        } else {
            vec![("seattle", "ithaca"), ("ithaca", "seattle")]
        };
        assert_eq!(rows.as_array().unwrap().len(), directions.len());
        for (row, (from, to)) in rows.as_array().unwrap().iter().zip(directions) {
            let answer = coordinator.json(&format!("pairs/{from}/{to}?days=7&metric={metric}"));
            let points = answer["points"].as_array().unwrap();
            let key = if metric == "rtt" { ["round_trip", "median_ns"] } else { ["goodput", "median_bps"] };
            let mut values: Vec<i64> = points.iter().filter_map(|point| point[key[0]][key[1]].as_i64()).collect();
            values.sort_unstable();
            let median = json!(values[values.len() / 2]);
            let tests: i64 = points.iter().map(|point| point["tests"].as_i64().unwrap()).sum();
            let said = if metric == "rtt" { time(&median) } else { rate(&median) };
            assert_eq!((&row[1], &row[2]), (&json!(grouped(tests)), &json!(said)), "{row}");
        }
        looked.browser.evaluate("new Promise(done => setTimeout(() => done(0), 300))");
        // Tests of TCP are two hours apart, and yet a line.
        let longest = "Math.max(...[...document.querySelectorAll('.live-canvas path')].map(path => path.getAttribute('d').split('L').length))";
        let longest = looked.browser.evaluate(longest).as_u64().unwrap();
        assert!(longest > 50, "{metric}: a line of {longest} points");
        looked.browser.picture(&format!("mesh-pair-{metric}-{width}-{scheme}"));
        looked.is_good(address, &format!("pair, {metric}, {width}, {scheme}"));
    }
    looked.open(&format!("{address}/#/site/geneva?metric=rtt"), width, scheme);
    until(&mut looked.browser, "document.querySelectorAll('.view table').length === 1");
    // The one that is longest of what is usual.
    assert_eq!(looked.browser.evaluate(ROWS)[0][0], "atlanta");
    looked.browser.picture(&format!("mesh-site-rtt-{width}-{scheme}"));
    looked.is_good(address, &format!("site, rtt, {width}, {scheme}"));
}

/// From the lists of a pair to each kind of test.
fn single_tests(looked: &mut Looked, coordinator: &Coordinator, width: u32, scheme: &str) {
    let address = &coordinator.address;
    for (from, to, metric, kind) in [
        ("ithaca", "chicago", "loss", "udp"),
        ("ithaca", "tokyo", "rtt", "rtt"),
        ("ithaca", "tokyo", "goodput", "tcp"),
        ("ithaca", "geneva", "loss", "diagnose"),
    ] {
        looked.open(&format!("{address}/#/pair/{from}/{to}?days=1&metric={metric}"), width, scheme);
        let last = "[...document.querySelectorAll('.view table a')].at(-1)";
        until(&mut looked.browser, &format!("{last} && {last}.getAttribute('href').startsWith('#/test/')"));
        looked.browser.evaluate(&format!("{last}.focus()"));
        let id = looked.browser.evaluate(&format!("{last}.getAttribute('href').split(/[/?]/)[2]"));
        let id = id.as_str().unwrap();
        looked.browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": "Enter", "text": "\r" }));
        until(&mut looked.browser, &format!("document.querySelector('.id code')?.textContent === '{id}'"));
        let shown = looked.browser.evaluate("document.querySelector('.view').innerText");
        let shown = shown.as_str().unwrap();
        let test = coordinator.json(&format!("tests/{id}"));
        let result = &test["result"];
        assert_eq!(result["kind"], kind);
        let expected: Vec<String> = match kind {
            "udp" => {
                ["sent_packets", "lost_at_receiver_packets"].map(|key| grouped(result[key].as_i64().unwrap())).into()
            }
            "rtt" => ["p50_ns", "p90_ns", "max_ns"].map(|key| time(&result["round_trips"][key])).into(),
            "tcp" => vec![
                rate(&result["tcp"]["goodput_bps"]),
                grouped(result["tcp"]["bytes"].as_i64().unwrap()),
                "cubic".into(),
            ],
            _ => {
                let causes = result["diagnosis"]["causes"].as_array().unwrap();
                causes.iter().map(|cause| cause["remedy"].as_str().unwrap().to_owned()).collect()
            }
        };
        assert!(!expected.is_empty() && expected.iter().all(|part| shown.contains(part)), "{expected:?}: {shown}");
        assert!(shown.contains(test["sender"].as_str().unwrap()), "{shown}");
        if kind == "udp" {
            let link = "[...document.querySelectorAll('a[download]')].find(link => link.textContent === 'Which packets were lost')";
            let saved = looked.browser.evaluate(&format!("fetch({link}.href).then(answer => answer.text())"));
            assert_eq!(saved, id, "what the link saves");
        }
        looked.browser.picture(&format!("mesh-test-{kind}-{width}-{scheme}"));
        looked.is_good(address, &format!("test, {kind}, {width}, {scheme}"));
    }
}

/// The choice of a metric keeps time and view; wrong addresses say what is wrong.
fn choices(looked: &mut Looked, coordinator: &Coordinator) {
    let address = &coordinator.address;
    looked.open(&format!("{address}/#/?days=7"), 1280, "light");
    until(&mut looked.browser, "document.querySelector('.histogram')");
    looked.browser.evaluate("(() => { const metric = document.querySelector('select'); metric.value = 'rtt'; metric.dispatchEvent(new Event('change')); })()");
    until(&mut looked.browser, "location.hash === '#/?days=7&metric=rtt' && !document.querySelector('.histogram')");
    let options = looked
        .browser
        .evaluate("[...document.querySelector('select').options].map(option => [option.value, option.text])");
    let metrics = coordinator.json("mesh")["metrics"].as_array().unwrap().clone();
    let expected: Vec<Value> = metrics.iter().map(|metric| json!([metric["name"], metric["title"]])).collect();
    assert_eq!(options, json!(expected));
    for (wrong, said) in
        [("#/test/nothing", "no test with this id"), ("#/pair/ithaca/paris", "no pair"), ("#/site/%ff", "no site")]
    {
        looked.browser.evaluate(&format!("location.hash = '{wrong}'; 0"));
        until(&mut looked.browser, &format!("document.querySelector('.view .alert')?.textContent.includes('{said}')"));
        assert_eq!(looked.browser.evaluate("document.querySelector('.state').className"), "quiet state");
    }
}

#[test]
fn a_mesh_without_tests_of_a_kind_says_so_and_ended_alarms_are_shown() {
    let folder = Folder::new("empty");
    let sites = names(&["ithaca", "geneva", "chicago"]);
    let hub = hub(&folder, &sites, &results(&sites, 30, |_, _, _| 0));
    let diagnosis = json!({ "progress": "done", "asked": "2026-01-31T12:02:00.000Z", "sender": "ithaca", "receiver": "chicago",
        "test": format!("{:032x}", 1), "at": "2026-01-31T12:03:00.000Z", "why": null });
    let ended = json!({ "receiver:chicago": { "gone_ns": crate::common::now_ns() - 3_600_000_000_000, "alarm": { "diagnosis": diagnosis,
        "id": "receiver:chicago", "state": "open", "ended": null, "place": "at its host", "since": null, "raised": "2026-01-31T12:00:00.000Z",
        "suspects": [{ "kind": "receiver", "sites": ["chicago"], "link": null, "text": "what chicago receives" }],
        "loss": 0.006, "log10_odds": 20.0, "text": "what chicago receives loses 0.60 % more than usual" } } });
    fs::write(hub.join("alarms.json"), ended.to_string()).unwrap();
    let coordinator = Coordinator::start(&hub, &["--public"]);
    let Some(mut looked) = Looked::start(&folder) else { return };
    if coordinator.get("/").1.contains("without the script") {
        return;
    }
    let over = coordinator.alarms()["over"].clone();
    let address = &coordinator.address;
    for (width, scheme) in [(1280, "light"), (400, "dark")] {
        looked.open(&format!("{address}/#/?metric=rtt"), width, scheme);
        until(&mut looked.browser, "document.querySelector('.none')");
        let said = looked.browser.evaluate("document.querySelector('.none').textContent");
        assert_eq!(said, "The mesh has no test of kind rtt: add one to its file.");
        looked.browser.evaluate("document.querySelector('.alarms summary').click()");
        let said = looked.browser.evaluate("document.querySelector('.alarms .over').firstChild.textContent");
        assert_eq!(said, over[0]["text"]);
        let leads = looked
            .browser
            .evaluate("document.querySelector('.alarms .over .diagnosis a').getAttribute('href').split('?')[0]");
        assert_eq!(leads, format!("#/test/{:032x}/2026-01-31T12%3A03%3A00.000Z", 1));
        looked.browser.picture(&format!("mesh-empty-{width}-{scheme}"));
        looked.is_good(address, &format!("empty, {width}, {scheme}"));
        looked.open(&format!("{address}/#/pair/ithaca/geneva?metric=goodput"), width, scheme);
        until(&mut looked.browser, "document.querySelector('.view .none')");
        looked.is_good(address, &format!("empty pair, {width}, {scheme}"));
    }
}
