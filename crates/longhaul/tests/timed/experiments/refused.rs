//! What is wrong in an experiment is said in a line, before anything starts.

use std::fs;

use super::Folder;
use crate::common::{longhaul, object, side_by_side};

/// Fails unless `lab run` of `experiment` is refused in one line; the line.
fn line(experiment: &str) -> String {
    let output = longhaul(&["lab", "run", experiment, "--json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(object(&output.stdout)["error"]["code"], "usage");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_wrong_experiment_is_refused_in_a_line() {
    let _shared = side_by_side();
    let folder = Folder::new("wrong");
    let file = folder.file("wrong.toml");
    fs::write(&file, "title = 'x'\npath = 'lan'\n[[udp]]\nname = 'x'\nrates = ['1M']\nsockbuff = '1M'\n").unwrap();
    let said = line(file.to_str().unwrap());
    assert!(said.contains("wrong.toml:6:1: unknown field `sockbuff`"), "{said}");
}

/// The path file beside the experiment: its own line, what is wrong there, and what is allowed.
#[test]
fn a_wrong_path_file_of_an_experiment_is_refused_in_a_line() {
    let _shared = side_by_side();
    let folder = Folder::new("wrong-path");
    let file = folder.file("some.toml");
    fs::write(&file, "title = 'x'\npath = 'p.toml'\n[[udp]]\nname = 'x'\nrates = ['1M']\n").unwrap();
    let refused = |parts: &[&str]| {
        let said = line(file.to_str().unwrap());
        for part in ["some.toml:2: path: ", "p.toml:"].iter().chain(parts) {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    refused(&["No such file"]);
    for (text, parts) in [
        ("[[both]]\nrate = '1Gbit'\ndelay = '5 parsec'\n", ["p.toml:3:", "both[0].delay", "5 parsec", "ms"]),
        ("[[both]]\ndelya = '5ms'\n", ["p.toml:2:", "both[0]", "delya", "delay"]),
        ("[[both]]\nloss = { random = '101%' }\n", ["p.toml:2:", "both[0].loss", "101%", "100%"]),
    ] {
        fs::write(folder.file("p.toml"), text).unwrap();
        refused(&parts);
    }
}

/// The error has all that there are, and the one that was meant.
#[test]
fn an_unknown_experiment_is_answered_with_those_there_are() {
    let _shared = side_by_side();
    let said = line("nlr-udp-los");
    assert!(said.contains("did you mean nlr-udp-loss?"), "{said}");
    let (_, listed) = said.trim_end().split_once("give a file, or one of ").unwrap();
    let listed: Vec<&str> = listed.split([',', ' ']).collect();
    for name in longhaul_experiment::names() {
        assert!(listed.contains(&name), "{name}: {said}");
    }
    assert!(listed.contains(&"nima"), "{said}");
}
