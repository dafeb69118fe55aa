//! What `longhaul mesh status --json` and `longhaul mesh show --json` print is what `schemas/` says; a closed pipe is no error.

use std::fs;
use std::path::Path;
use std::process::Command;

use longhaul_mesh::store::Archive;
use longhaul_units::utc;
use serde_json::{Value, json};

use crate::common::{Folder, MESH, hub_of_all_kinds, measurements, names, results};

fn printed(arguments: &[&str], hub: &Path) -> Value {
    let output = Command::new(MESH).args(arguments).arg("--json").arg("--folder").arg(hub).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn problems(object: &Value) -> Vec<String> {
    let name = object["schema"].as_str().unwrap().replace('/', "-");
    let file = format!("{}/../../schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn status_and_show_print_what_the_schemas_say() {
    let folder = Folder::new("printed");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle"]);
    // chicago loses packets since ten hours; at one time no probe was answered.
    let all = results(&sites, 24 * 10, |_, to, ago| if to == 2 && ago <= 10 { 60 } else { 0 });
    let measured = measurements(&sites, 8, |_, _, ago| (ago != 3).then_some(1.0));
    let hub = hub_of_all_kinds(&folder, &sites, &all, &measured);

    let status = printed(&["status"], &hub);
    assert_eq!((&status["schema"], problems(&status)), (&json!("longhaul.mesh.status/1"), vec![]), "{status:#}");
    assert_eq!(status["result"]["alarms"].as_array().unwrap().len(), 1, "{status:#}");
    let mut bad = status.clone();
    bad["result"]["alarms"][0]["loss"] = json!("much");
    assert!(!problems(&bad).is_empty());

    // In words. A site has joined that has a key.
    fs::write(hub.join("members.json"), json!({ "tokyo": "0".repeat(64) }).to_string()).unwrap();
    let said = Command::new(MESH).arg("status").arg("--folder").arg(&hub).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let last = Archive::open(&hub.join("archive")).unwrap().measurements(0).unwrap().into_iter();
    let last = last.filter(|one| one.sender == "tokyo" || one.receiver == "tokyo").map(|one| one.at_ns).max().unwrap();
    let line = format!("the last one began at {}", utc(last));
    assert!(said.lines().any(|one| one.contains("tokyo") && one.ends_with(&line)), "{line}: {said}");

    // As `| head -1` does, sooner or later.
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let cut = Command::new(MESH).arg("status").arg("--folder").arg(&hub).stdout(closed).output().unwrap();
    assert!(cut.status.success(), "{cut:?}");

    let show = printed(&["show"], &hub);
    assert_eq!((&show["schema"], problems(&show)), (&json!("longhaul.mesh.show/1"), vec![]));
    let found = |kind: &str| show["result"][kind].as_array().unwrap().len();
    assert_eq!((found("round_trips"), found("tcp"), found("diagnoses")), (10 * 8 * 2, 20 * 4, 1));
    let unanswered = show["result"]["round_trips"].as_array().unwrap().iter();
    assert_eq!(unanswered.filter(|one| one["found"]["quantiles"].is_null()).count(), 20);
    let mut bad = show.clone();
    bad["result"]["tcp"][0]["found"]["weather"] = json!(1);
    assert!(!problems(&bad).is_empty());

    let pair = printed(&["show", "ithaca", "chicago", "--days", "7"], &hub);
    assert_eq!(problems(&pair), Vec::<String>::new());
    assert_eq!((&pair["parameters"]["from"], &pair["parameters"]["days"]), (&json!("ithaca"), &json!(7)), "{pair}");
}
