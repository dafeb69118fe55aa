//! `longhaul lab try`: a path in one line, a program on it, and an end of the lab with the program.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::waiting::until;

use crate::common::{longhaul, printed};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where this user may have no lab, that is printed, and there is no output.
fn tried(arguments: &[&str]) -> Option<Output> {
    let output = longhaul(&[&["lab", "try"], arguments].concat());
    let refused = text(&output.stderr).contains("user namespace");
    if refused {
        assert!(!is_root_in_namespace(), "{output:?}");
        longhaul_testing::no_judge!("{}", text(&output.stderr).trim());
    }
    (!refused).then_some(output)
}

/// The smallest round trip that `ping -q` printed, in milliseconds.
fn least_ms(said: &str) -> f64 {
    let figures = said.split("min/avg/max/mdev = ").nth(1).unwrap_or_else(|| panic!("{said}"));
    figures.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn a_line_is_a_path_and_the_program_says_how_it_ends() {
    let file = std::env::temp_dir().join(format!("longhaul-try-{}.toml", std::process::id()));
    let name = format!("try-line-{}", std::process::id());
    let line = ["--rtt", "40ms", "--rate", "100M", "--queue", "2bdp", "--name", &name, "-o", file.to_str().unwrap()];
    let program = ["--", "sh", "-c", "echo $LONGHAUL_HOST; ping -q -c 3 -i 0.05 server; exit 7"];
    let Some(output) = tried(&[&line[..], &program].concat()) else { return };
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.starts_with("client\nPING server"), "its stdout is the program's: {said}");
    assert!((40.0..60.0).contains(&least_ms(&said)), "{said}");
    assert!(!printed(&["lab", "list"]).contains(&name), "the lab ended with the program");
    // 100 Mbit/s × 40 ms / 8 = 500,000 bytes.
    let path = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(path, "name = \"try\"\n\n[[both]]\nqueue = \"1000000B\"\nrate = \"100Mbit\"\ndelay = \"20ms\"\n");
    assert!(!text(&output.stderr).contains("[[both]]"), "the file was asked for: {output:?}");
}

/// Of 8 requests every second is lost, of the 4 answers every second: 2 come back.
#[test]
fn each_direction_loses_and_the_path_is_printed() {
    let line = ["--rtt", "2ms", "--loss", "every(2)", "ping", "-q", "-c", "8", "-i", "0.02", "-W", "1", "server"];
    let Some(output) = tried(&line) else { return };
    assert!(text(&output.stdout).contains("8 packets transmitted, 2 received"), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("[[both]]\nloss = { every = 2 }\ndelay = \"1ms\"\n"), "{said}");
}

#[test]
fn a_server_can_be_started_from_the_client() {
    let script = "longhaul=$0; $longhaul lab exec server iperf3 -s -1 -D && sleep 0.5 && \
        iperf3 -c server -n 2M && $longhaul lab set delay=3ms && $longhaul lab status";
    let program = ["--", "sh", "-c", script, env!("CARGO_BIN_EXE_longhaul")];
    let Some(output) = tried(&[&["--rtt", "10ms", "--rate", "200M"][..], &program].concat()) else { return };
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("receiver"), "{output:?}");
    assert!(said.contains("forward.hop1                  3ms      200Mbit"), "{said}");
}

#[test]
fn a_signal_that_ends_the_program_is_its_exit_code() {
    let Some(output) = tried(&["--rtt", "1ms", "sh", "-c", "kill -9 $$"]) else { return };
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    let Some(output) = tried(&["--rtt", "1ms", "/no/such/program"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot run `/no/such/program`"), "{output:?}");
}

#[test]
fn a_program_may_end_its_lab() {
    let script = "$0 lab down; sleep 1000";
    let Some(output) = tried(&["--rtt", "1ms", "sh", "-c", script, env!("CARGO_BIN_EXE_longhaul")]) else { return };
    assert_eq!(output.status.code(), Some(143), "the lab ended it with SIGTERM: {output:?}");
    assert!(text(&output.stderr).trim_end().ends_with("round trip"), "nothing went wrong: {output:?}");
}

/// Ctrl-C at a terminal is for the program, which says what it has seen and ends well.
#[test]
fn the_keyboard_is_the_programs() {
    let name = format!("try-keys-{}", std::process::id());
    // `exec`: a shell that waits for a program takes Ctrl-C as its own end, too.
    let line = format!("exec {} lab try --rtt 1ms --name {name} ping -i 0.1 server", env!("CARGO_BIN_EXE_longhaul"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut script) = script.spawn() else {
        longhaul_testing::no_judge!("needs script (bsdutils)");
        return;
    };
    let mut keys = script.stdin.take().unwrap();
    let (mut said, mut pressed) = (String::new(), false);
    let mut lines = BufReader::new(script.stdout.take().unwrap());
    while lines.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {
        if !pressed && said.contains("icmp_seq=3") {
            keys.write_all(b"\x03").unwrap();
            pressed = true;
        }
    }
    drop(keys);
    let status = script.wait().unwrap();
    if !pressed && !is_root_in_namespace() {
        longhaul_testing::no_judge!("{said}");
        return;
    }
    assert!(status.success() && said.contains("0% packet loss"), "{status}: {said}");
    assert!(!printed(&["lab", "list"]).contains(&name));
}

/// However it ends, its lab and the programs in it end, too.
#[test]
fn a_killed_try_leaves_nothing() {
    let name = format!("try-killed-{}", std::process::id());
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["lab", "try", "--rtt", "1ms", "--name", &name, "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    if pid.is_empty() && !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, or user namespaces");
        return;
    }
    until("the lab to end", || !printed(&["lab", "list"]).contains(&name));
    until("the program to end", || !fs::exists(format!("/proc/{}", pid.trim())).unwrap());
}

#[test]
fn a_line_that_says_no_path_is_wrong_usage() {
    for (line, part) in [
        (&["--rate", "1G"][..], "--rtt"),
        (&["--rtt", "150"], "write the unit"),
        (&["--rtt", "30s"], "at most 20s"),
        (&["--rtt", "1ms", "--rate", "1"], "rate"),
        (&["--rtt", "1ms", "--loss", "often"], "0.01%"),
        (&["--rtt", "1ms", "--rate", "1G", "--queue", "0bdp"], "0.5bdp"),
        (&["--rtt", "1ms", "--queue", "1bdp"], "--rate"),
        (&["--rtt", "1ms", "--name", "a b"], "letters"),
        (&["--rtt", "1ms", "--set", "dealy=1ms"], "--set"),
    ] {
        let output = longhaul(&[&["lab", "try"], line, &["--", "true"]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{line:?}: {said}");
    }
}
