//! A path made of a measurement, and what is drawn of both.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::common::captures::{Folder, missing};
use crate::common::longhaul;
use longhaul_testing::program::copy_program;

/// What `ping` prints of round trips about 40 ms long; every hundredth probe is lost.
fn ping(probes: u32) -> String {
    let mut text = "PING far.example (192.0.2.1) 56(84) bytes of data.\n".to_owned();
    for number in (1..=probes).filter(|number| number % 100 != 0) {
        let tenths = 400 + number * 7919 % 31 + if number % 97 == 0 { 60 } else { 0 };
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "64 bytes from 192.0.2.1: icmp_seq={number} ttl=60 time={}.{} ms", tenths / 10, tenths % 10);
    }
    text
}

#[test]
fn a_path_and_its_measurement_are_drawn() {
    let folder = Folder::new("copied");
    let [measured, copy, page] = ["far.txt", "far.toml", "page.html"].map(|name| folder.file(name));
    fs::write(&measured, ping(3_000)).unwrap();

    assert!(longhaul(&["profile", &measured, "-i", "10ms", "-o", &copy]).status.success());
    let moved = fs::read_to_string(&copy).unwrap().replacen("delay = \"", "delay = \"1", 1);
    let other = folder.file("other.toml");
    fs::write(&other, moved).unwrap();
    for (path, verdict) in [(&copy, "behave"), (&other, "does not behave like the measured path")] {
        let text = longhaul(&["verify", path, "--against", &measured, "-i", "10ms", "--force", "--html", &page]);
        let text = String::from_utf8(text.stdout).unwrap();
        let drawn = fs::read_to_string(&page).unwrap();
        assert!(text.contains(verdict) && drawn.contains(verdict), "{text}{drawn}");
        // Distribution, quantiles, rare ones, over time, losses.
        assert_eq!(drawn.matches("<figure>").count(), 5, "{drawn}");
        let median = text.lines().find(|line| line.starts_with("median")).unwrap();
        let median = median.split_whitespace().nth(2).unwrap();
        assert!(drawn.contains("<tr data-row=\"median, ms\">") && drawn.contains(&format!(">{median}<")), "{median}");
    }
    let nowhere =
        longhaul(&["verify", &copy, "--against", &measured, "-i", "10ms", "--html", "/nonexistent/page.html"]);
    assert!(!nowhere.status.success() && String::from_utf8_lossy(&nowhere.stderr).contains("/nonexistent"));
}

/// `tc` reads the table and all options: what refuses the interface is the kernel, or `tc` that finds none of the name.
#[test]
fn tc_understands_what_is_written_for_netem() {
    let folder = Folder::new("netem");
    let [measured, copy] = ["far.txt", "copy"].map(|name| folder.file(name));
    fs::write(&measured, ping(3_000)).unwrap();
    let said = longhaul(&["profile", &measured, "-i", "10ms", "--netem", &copy]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("cannot express") && said.contains("both directions"), "{said}");
    let script = fs::read_to_string(format!("{copy}/netem.sh")).unwrap();
    let command = script.lines().find(|line| line.starts_with("tc ")).unwrap();
    assert!(command.contains("distribution forward") && command.contains("loss random "), "{command}");
    if missing("tc") {
        return;
    }
    // Options are read before the interface is looked for.
    let run = |folder: &str| {
        let interface = ["none-such-1", "none-such-2"];
        let output = Command::new("sh").arg(format!("{folder}/netem.sh")).args(interface).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let error = run(&copy);
    assert!(error.contains("Cannot find device"), "{error}");
    fs::write(format!("{copy}/forward.dist"), "no numbers\n").unwrap();
    let error = run(&copy);
    assert!(!error.contains("Cannot find device"), "{error}");
    // No netem in this kernel: a `tc` that refuses the second interface. The first has none afterwards.
    let refusing = folder.file("refusing.sh");
    fs::write(&refusing, "#!/bin/sh\necho \"$*\"\ncase \"$*\" in *'add dev second'*) exit 2;; esac\n").unwrap();
    copy_program(&refusing, folder.file("tc"));
    let path = format!("{}:{}", folder.file(""), std::env::var("PATH").unwrap());
    let script = format!("{copy}/netem.sh");
    let output = Command::new("sh").args([&script, "first", "second"]).env("PATH", path).output().unwrap();
    let did = String::from_utf8(output.stdout).unwrap();
    let did: Vec<&str> = did.lines().map(|line| line.split(" root").next().unwrap()).collect();
    assert_eq!(did, ["qdisc add dev first", "qdisc add dev second", "qdisc del dev first"]);
    assert!(!output.status.success());
}
