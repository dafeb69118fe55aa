//! The commands that `longhaul diagnose` gives as remedies run as they stand, with what a reader knows in place of the words in capitals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use longhaul_diagnosis::{Evidence, diagnose};
use serde_json::Value;

use crate::common::{TestLab, root};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// How long a command runs that ends with Ctrl-C alone.
const SECONDS: &str = "2";
/// The exit code of timeout(1) where it ended the command.
const ENDED: i32 = 124;

/// The remedies of all stored evidence.
fn commands() -> BTreeSet<String> {
    let folder = root().join("crates/longhaul/tests/pure/evidence");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let evidence = files.map(|file| serde_json::from_str::<Value>(&fs::read_to_string(file).unwrap()).unwrap());
    let evidence = evidence.filter_map(|mut said| {
        let result = said["result"].take();
        let answer = if result["evidence"].is_null() { &result["flows"][0] } else { &result };
        serde_json::from_value::<Evidence>(answer["evidence"].clone()).ok()
    });
    let mut commands = BTreeSet::new();
    for evidence in evidence {
        let diagnosis = diagnose(&evidence);
        let causes = diagnosis.causes.into_iter().map(|cause| cause.bound).chain(diagnosis.bounds);
        for remedy in causes.flat_map(|bound| bound.remedies) {
            commands.extend(remedy.command.split("; ").filter(|one| !one.is_empty()).map(str::to_owned));
        }
    }
    commands
}

/// What stands for the words in capitals, at the lab's client.
fn known(command: &str, folder: &Path) -> String {
    let host = match command {
        _ if command.starts_with("ip route replace") => "203.0.113.9",
        // How to authenticate is known to the reader, too.
        _ if command.starts_with("longhaul diagnose") => "10.77.2.1 --no-auth",
        _ => "10.77.2.1",
    };
    let words = [
        ("IF", "eth0"),
        ("HOST", host),
        ("GATEWAY", "10.77.2.1"),
        ("SENDER", "10.77.2.1"),
        ("PID", "$$"),
        ("RATE", "100Mbit"),
        ("RTT", "20ms"),
        ("COMMAND", "true"),
        ("NAME", "reno"),
        ("CPU", "0"),
        ("DIR", folder.to_str().unwrap()),
        ("N", "1000"),
    ];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut said = String::new();
    for part in command.split_inclusive(|c: char| !is_word(c)) {
        let word = part.trim_end_matches(|c: char| !is_word(c));
        let known = words.iter().find(|(name, _)| *name == word).map_or(word, |(_, known)| known);
        said += &(known.to_owned() + &part[word.len()..]);
    }
    said
}

fn at_client(lab: &TestLab, script: &str) -> Output {
    let path = format!("{}:{}", Path::new(LONGHAUL).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let words = ["lab", "exec", "client", "--name", &lab.name, "--", "timeout", SECONDS, "sh", "-c", script];
    Command::new(LONGHAUL).args(words).env("PATH", path).output().unwrap()
}

#[test]
fn every_remedy_of_the_stored_evidence_runs() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    let Some(lab) = TestLab::up("remedies", "lan") else { return };
    let servers = [&["iperf3", "-s"][..], &[LONGHAUL, "serve", "--no-auth", "--bind", "10.77.2.1"]].map(|words| {
        let mut server = Command::new(LONGHAUL);
        server.args(["lab", "exec", "server", "--name", &lab.name, "--"]).args(words);
        server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("remedies-{}", std::process::id()));
    let mut failed = Vec::new();
    for command in commands {
        let script = known(&command, &folder);
        let program = script.split_whitespace().next().unwrap();
        if !at_client(&lab, &format!("command -v {program}")).status.success() {
            longhaul_testing::skipped!("{command}: {program} is not installed");
            continue;
        }
        let output = at_client(&lab, &script);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // A lab's cable has no rings, a namespace none of the machine's own parameters, and this kernel may have no fq: a guest has all.
        let is_of_the_machine = said.contains("not supported")
            || said.contains("qdisc kind is unknown")
            || said.contains("No such file") && script.contains("net.core.");
        if !matches!(output.status.code(), Some(0 | ENDED)) && !is_of_the_machine {
            failed.push(format!("{command}: {script}: {output:?}"));
        }
    }
    for mut server in servers {
        server.kill().unwrap();
        server.wait().unwrap();
    }
    let _ = fs::remove_dir_all(folder);
    assert!(failed.is_empty(), "{failed:#?}");
}
