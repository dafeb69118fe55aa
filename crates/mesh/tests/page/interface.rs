//! What `/api/v1/` answers, beside the store itself.

use std::collections::BTreeMap;
use std::fs;

use longhaul_mesh::store::{Archive, TestResult};
use longhaul_units::utc;
use serde_json::{Value, json};

use crate::common::{Coordinator, Folder, HOUR_NS, hub, keep_losses, names, now_ns, results};

fn by_pair(results: &[TestResult], from_ns: i64) -> BTreeMap<(String, String), (i64, i64, i64)> {
    let mut pairs = BTreeMap::<_, (i64, i64, i64)>::new();
    for result in results.iter().filter(|result| result.at_ns >= from_ns) {
        let (tests, sent, lost) = pairs.entry((result.sender.clone(), result.receiver.clone())).or_default();
        (*tests, *sent, *lost) = (*tests + 1, *sent + result.sent, *lost + result.lost);
    }
    pairs
}

pub(crate) fn time_ns(text: &Value) -> i64 {
    let time: jiff::Timestamp = text.as_str().unwrap().parse().unwrap();
    i64::try_from(time.as_nanosecond()).unwrap()
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn each_answer_is_what_the_store_has() {
    let folder = Folder::new("interface");
    let sites = names(&["ithaca", "geneva", "chicago"]);
    // Different in each pair and hour.
    let all = results(&sites, 24 * 40, |from, to, ago| (from as i64 * 7 + to as i64 * 3 + ago) % 11 / 2);
    let hub = hub(&folder, &sites, &all);
    let kept = Archive::open(&hub.join("archive")).unwrap().since(0).unwrap();
    assert_eq!(kept.len(), all.len());
    let coordinator = Coordinator::start(&hub, &[]);

    // By the hour, by the day, and over a unit of 30 days.
    for days in [1, 2, 3, 30, 40, 100] {
        let answer = coordinator.json(&format!("pairs?days={days}"));
        let expected = by_pair(&kept, time_ns(&answer["span"]["from"]));
        let given = answer["pairs"].as_array().unwrap().iter().map(|pair| {
            let name = |key: &str| pair[key].as_str().unwrap().to_owned();
            let (sent, lost) = (number(&pair["sent_packets"]), number(&pair["lost_packets"]));
            assert_eq!(pair["loss"].as_f64().unwrap(), lost as f64 / sent as f64);
            ((name("sender"), name("receiver")), (number(&pair["tests"]), sent, lost))
        });
        assert_eq!(given.collect::<BTreeMap<_, _>>(), expected, "{days} days");
        assert_eq!(answer["span"]["unit"], if days <= 2 { "hour" } else { "day" });
        let span = time_ns(&answer["span"]["until"]) - time_ns(&answer["span"]["from"]);
        assert_eq!(span, days * 24 * HOUR_NS);
    }

    // A pair by the hour and by the day, up to a moment in the past.
    let until = now_ns() - 5 * 24 * HOUR_NS;
    for (days, unit_ns) in [(7, HOUR_NS), (100, 24 * HOUR_NS)] {
        let until_text = jiff::Timestamp::from_nanosecond(i128::from(until)).unwrap().to_string();
        let answer = coordinator.json(&format!("pairs/ithaca/geneva?days={days}&until={until_text}"));
        let (from_ns, until_ns) = (time_ns(&answer["span"]["from"]), time_ns(&answer["span"]["until"]));
        assert!(until_ns >= until && until_ns - until < 24 * HOUR_NS);
        let mut expected = BTreeMap::<i64, (i64, i64)>::new();
        let own = kept.iter().filter(|result| result.sender == "ithaca" && result.receiver == "geneva");
        for result in own.filter(|result| (from_ns..until_ns).contains(&result.at_ns)) {
            let (tests, lost) = expected.entry(result.at_ns / unit_ns * unit_ns).or_default();
            (*tests, *lost) = (*tests + 1, *lost + result.lost);
        }
        let points = answer["points"].as_array().unwrap().iter();
        let given =
            points.map(|point| (time_ns(&point["begin"]), (number(&point["tests"]), number(&point["lost_packets"]))));
        assert_eq!(given.collect::<BTreeMap<_, _>>(), expected, "{days} days");
    }

    let answer = coordinator.json("pairs/chicago/ithaca/tests?days=2");
    let from_ns = time_ns(&answer["span"]["from"]);
    let own =
        |result: &&TestResult| result.sender == "chicago" && result.receiver == "ithaca" && result.at_ns >= from_ns;
    let mut expected: Vec<&TestResult> = kept.iter().filter(own).collect();
    expected.reverse();
    let tests = answer["tests"].as_array().unwrap();
    assert_eq!(tests.len(), expected.len());
    for (test, result) in tests.iter().zip(expected) {
        let given = (
            &test["id"],
            number(&test["sent_packets"]),
            number(&test["lost_packets"]),
            &test["lost_at_receiver_packets"],
        );
        assert_eq!(given, (&json!(result.id), result.sent, result.lost, &json!(result.at_receiver)));
        assert_eq!(time_ns(&test["at"]) / 1_000_000, result.at_ns / 1_000_000);
    }

    let answer = coordinator.json("losses?days=100");
    let nothing = kept.iter().filter(|result| result.lost == 0).count() as i64;
    assert_eq!((number(&answer["tests"]), number(&answer["without_loss"])), (kept.len() as i64, nothing));
    for bucket in answer["buckets"].as_array().unwrap() {
        let (from, below) = (bucket["from"].as_f64().unwrap(), bucket["below"].as_f64().unwrap());
        // An edge is a power of ten to the quarter: the share 0.0001 begins its bucket.
        let inside = |result: &&TestResult| {
            let share = result.lost as f64 / result.sent as f64 * (1.0 + 1e-9);
            result.lost > 0 && share >= from && share < below
        };
        assert_eq!(number(&bucket["tests"]), kept.iter().filter(inside).count() as i64, "{bucket}");
    }

    let answer = coordinator.json("sites");
    for (site, name) in answer["sites"].as_array().unwrap().iter().zip(&sites) {
        assert_eq!((&site["name"], &site["joined"]), (&json!(name), &json!(false)));
        let last = kept
            .iter()
            .filter(|result| result.sender == *name || result.receiver == *name)
            .map(|result| result.at_ns)
            .max();
        assert_eq!(time_ns(&site["last_test"]) / 1_000_000, last.unwrap() / 1_000_000);
    }
    let next = coordinator.json("schedule?next=100");
    let next = next["next"].as_array().unwrap();
    // Six tests of a round that takes 6 slots of 10 s: those that are left of this hour, and all of the next.
    assert!((6..=12).contains(&next.len()), "{next:#?}");
    assert!(next.iter().all(|test| time_ns(&test["at"]) >= now_ns() - 60_000_000_000 && test["test"] == "probes"));
    assert!(next.iter().all(|test| test["kind"] == "udp"));
    assert_eq!(coordinator.json("mesh")["name"], "research");
    assert_eq!(coordinator.alarms()["alarms"], json!([]));
    let described: Value = serde_json::from_str(&coordinator.get("/api/v1/openapi.json").1).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/openapi/longhaul-mesh.json");
    assert_eq!(described, serde_json::from_str::<Value>(&fs::read_to_string(file).unwrap()).unwrap());
    answers_are_as_described(&coordinator, &described, &kept);
}

/// Each answer has the form that the description gives it.
fn answers_are_as_described(coordinator: &Coordinator, described: &Value, kept: &[TestResult]) {
    let oldest = kept.iter().min_by_key(|result| result.at_ns).unwrap();
    let of_a_test = format!("{}?at={}", oldest.id, utc(oldest.at_ns));
    // Older tests are found by their time alone.
    assert_eq!(coordinator.get(&format!("/api/v1/tests/{}", oldest.id)).0, 404);
    let paths = described["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    // Files are no JSON.
    for path in paths.keys().filter(|path| !path.ends_with("/files/{kind}")) {
        let question = path.replace("{sender}", "ithaca").replace("{receiver}", "geneva").replace("/api/v1/", "");
        is_as_described(coordinator, described, path, &question.replace("{id}", &of_a_test));
    }
}

/// What is beside a test is offered with it and saved as it is; nothing else of the folder is.
#[test]
fn the_files_of_a_test_can_be_saved() {
    let (folder, sites) = (Folder::new("files"), names(&["ithaca", "geneva"]));
    let kept = results(&sites, 3, |_, _, _| 5);
    let hub = hub(&folder, &sites, &kept);
    let (one, other) = (&kept[0], &kept[1]);
    keep_losses(&hub, one, "PAR1 of a test PAR1");
    let coordinator = Coordinator::start(&hub, &[]);
    let asked = |id: &str, file: &str| coordinator.get(&format!("/api/v1/tests/{id}{file}"));
    let files = |id: &str| serde_json::from_str::<Value>(&asked(id, "").1).unwrap()["result"]["files"].clone();
    assert_eq!((files(&one.id), files(&other.id)), (json!(["losses"]), Value::Null));
    assert_eq!(asked(&one.id, "/files/losses"), (200, "PAR1 of a test PAR1".into()));
    for (id, file) in [
        (&one.id, "/files/samples"),
        (&one.id, "/files/unknown"),
        (&one.id, "/files/..%2Fidentity"),
        (&other.id, "/files/losses"),
        (&"..%2F..%2Fidentity".to_owned(), "/files/losses"),
    ] {
        assert_eq!(asked(id, file).0, 404, "{id} {file}");
    }
    let stranger = coordinator.get_with(&format!("/api/v1/tests/{}/files/losses", one.id), &[]);
    assert!(stranger.0 == 401 && !stranger.1.contains("PAR1"), "{stranger:?}");
}

/// The answer to a question has the form that the description gives those of its path; the answer.
pub(crate) fn is_as_described(coordinator: &Coordinator, described: &Value, path: &str, question: &str) -> Value {
    let about = &described["paths"][path];
    let mut schema = about["get"]["responses"]["200"]["content"]["application/json"]["schema"].clone();
    schema["components"] = described["components"].clone();
    let answer = coordinator.json(question);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&answer).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{question}: {errors:?}");
    let keys = answer.as_object().unwrap().len();
    let reference = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
    let properties = described["components"]["schemas"][reference]["properties"].as_object().unwrap();
    assert_eq!(properties.len(), keys, "{question}");
    answer
}

#[test]
fn wrong_questions_are_refused() {
    let folder = Folder::new("refused");
    let sites = names(&["ithaca", "geneva"]);
    let coordinator = Coordinator::start(&hub(&folder, &sites, &results(&sites, 1, |_, _, _| 0)), &[]);
    for (question, status) in [
        ("pairs?days=0", 400),
        ("pairs?days=3661", 400),
        ("pairs?days=-1", 400),
        ("pairs?days=1e9", 400),
        ("pairs?until=yesterday", 400),
        ("pairs?until=9999-12-31T23:59:59Z", 400),
        ("pairs?metric=weather", 400),
        ("pairs?metric=diagnosis", 400),
        ("pairs/ithaca/geneva/tests?metric=weather", 400),
        ("pairs/ithaca/geneva/tests?days=100&metric=rtt", 400),
        ("tests/7", 404),
        ("tests/ffffffffffffffffffffffffffffffff", 404),
        ("tests/0000000000000000000000000000000%2f", 404),
        ("pairs/ithaca/paris", 404),
        ("pairs/ithaca/%00", 404),
        ("pairs/..%2f..%2fetc/geneva", 404),
        ("pairs/ithaca/geneva/tests?days=100", 400),
        ("schedule?next=0", 400),
        ("schedule?next=501", 400),
        ("nothing", 404),
    ] {
        let (given, text) = coordinator.get(&format!("/api/v1/{question}"));
        assert_eq!(given, status, "{question}: {text}");
        let text: Value = serde_json::from_str(&text).unwrap();
        assert!(text["error"].as_str().unwrap().len() > 10, "{question}: {text}");
    }
}
