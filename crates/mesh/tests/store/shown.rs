//! What `longhaul mesh show` and `status` print of a store.

use std::fs;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_mesh::store::{Measured, Measurement};
use serde_json::Value;

use crate::{Place, measurements};

/// Makes a mesh of two sites whose coordinator has its store here; what runs a command of it.
fn mesh(place: &Place) -> impl Fn(&[&str]) -> Output {
    let folder = place.folder.0.clone();
    let site =
        |name: &str, last: u8| format!("[[site]]\nname = '{name}'\naddress = '192.0.2.{last}'\nrate = '1Gbit'\n");
    let test = "[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '1h'\nrate = '1M'\n";
    let file = folder.join("file");
    fs::write(&file, format!("name = 'm'\n{}{}{test}", site("ithaca", 1), site("geneva", 2))).unwrap();
    let mesh = move |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_longhaul-mesh");
        let output = Command::new(program).args(arguments).arg("--folder").arg(&folder).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    };
    mesh(&["init", file.to_str().unwrap()]);
    mesh
}

/// One of each kind, between the two sites and of now.
fn recent() -> Vec<Measurement> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let mut all = measurements();
    all.iter_mut().for_each(|one| (one.at_ns, one.sender, one.receiver) = (now, "ithaca".into(), "geneva".into()));
    all
}

/// Who can write a store is not who reads it.
#[test]
fn texts_of_a_store_move_no_terminal() {
    let place = Place::sqlite("shown");
    let mesh = mesh(&place);
    let mut all = recent();
    let tcp = |one: &mut Measurement| {
        if let Measured::Tcp(flow) = &mut one.measured {
            flow.limited_by = "\u{1b}[31m\u{9b}\u{202e}X\nY".into()
        }
    };
    all.iter_mut().for_each(tcp);
    place.open().take_measurements(&all).unwrap();
    let [text, json] =
        [&["show"][..], &["show", "--json"]].map(|arguments| String::from_utf8(mesh(arguments).stdout).unwrap());
    assert!(text.contains("31m  X Y"), "{text}");
    assert!(json.contains(r"\u001b[31m\u009b\u202eX\nY"), "{json}");
    for letter in (text + &json).chars() {
        assert!(letter == '\n' || !longhaul_units::is_obeyed(letter), "{letter:?}");
    }
}

/// The others are shown, and it is said what is missing.
#[test]
fn a_row_that_cannot_be_read_is_said_once_by_its_id() {
    let place = Place::sqlite("unreadable");
    let mesh = mesh(&place);
    let all = recent();
    place.open().take_measurements(&all).unwrap();
    place.change("UPDATE diagnoses SET diagnosis = '{\"alarm\":\"\u{1b}[2J\"}'");
    let said = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();

    let output = mesh(&["show"]);
    let (text, errors) = (String::from_utf8(output.stdout.clone()).unwrap(), said(&output));
    assert!(text.contains("Round trips") && text.contains("TCP") && !text.contains("Diagnoses"), "{text}");
    assert_eq!(errors.matches(&all[2].id).count(), 1, "{errors}");
    assert!(errors.contains("caveat: rows of the store that cannot be read are left out: 1;"), "{errors}");
    assert!(errors.chars().all(|letter| letter == '\n' || !longhaul_units::is_obeyed(letter)), "{errors:?}");

    let output = mesh(&["show", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["caveats"][0]["code"], "rows_left_out", "{json}");
    let found = |kind: &str| json["result"][kind].as_array().unwrap().len();
    assert_eq!(["round_trips", "tcp", "diagnoses"].map(found), [1, 1, 0], "{json}");
    assert_eq!(said(&output).matches(&all[2].id).count(), 1);

    // Nothing that it reads is missing.
    let json: Value = serde_json::from_slice(&mesh(&["status", "--json"]).stdout).unwrap();
    assert_eq!(json["caveats"], Value::Array(Vec::new()), "{json}");
}
