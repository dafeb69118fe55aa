//! Pages of saved results: `longhaul show --html` draws what `--html` of the command drew.

use std::fs;

use super::serving;
use crate::common::captures::Folder;
use crate::common::page::same_pages;
use crate::common::{TestLab, longhaul};

/// What a page of a saved TCP test leaves out where its hosts dropped packets, which is not to be expected here.
const DROPPED: &str = "What the hosts dropped over time is left out";

/// Makes the page of a command, which saves its result in `saved`, and that of what was saved.
fn pages(lab: &TestLab, folder: &Folder, name: &str, command: &[&str]) -> [String; 2] {
    let [saved, page, again] = ["", ".html", "-again.html"].map(|end| folder.file(&format!("{name}{end}")));
    let on_client = ["lab", "exec", "--name", &lab.name, "client", env!("CARGO_BIN_EXE_longhaul")];
    // Before the command that watch runs.
    let options = command.iter().position(|word| *word == "--").unwrap_or(command.len());
    let (own, program) = command.split_at(options);
    let output = longhaul(&[&on_client[..], own, &["-o", &saved, "--html", &page], program].concat());
    assert!(output.status.success(), "{name}: {output:?}");
    let output = longhaul(&["show", &saved, "--html", &again]);
    assert!(output.status.success(), "{name}: {output:?}");
    [page, again].map(|file| fs::read_to_string(file).unwrap())
}

#[test]
fn a_saved_result_is_drawn_as_the_command_drew_it() {
    let Some(lab) = TestLab::up("pages-again", "lan") else { return };
    assert!(longhaul(&["lab", "set", "--name", &lab.name, "forward.loss=every(200)"]).status.success());
    let _server = serving(&lab);
    let folder = Folder::new("pages-again");
    let program = [env!("CARGO_BIN_EXE_longhaul"), "tcp", "server", "-t", "1s", "-b", "20M", "--bidir"];
    let watch = [&["watch", "--"][..], &program].concat();
    let commands: [(&str, &[&str], &str); 6] = [
        ("udp", &["udp", "server", "-t", "1s", "-b", "20M", "-P", "2"], "Packets lost, by location"),
        ("udp-both", &["udp", "server", "-t", "1s", "-b", "5M", "--bidir"], "Packets lost, by location"),
        ("tcp", &["tcp", "server", "-t", "2s", "-C", "reno:1s,cubic:1s", "-b", "20M", "-P", "2"], "Congestion window"),
        ("tcp-back", &["tcp", "server", "-R", "-t", "1s", "-b", "20M"], "Retransmissions"),
        ("rtt", &["rtt", "server", "-t", "1s", "-i", "2ms", "--timeout", "200ms"], "Round trips over time"),
        ("watch", &watch, "Packets out of order"),
    ];
    for (name, command, figure) in commands {
        let [page, again] = pages(&lab, &folder, name, command);
        assert!(again.contains(&format!("data-figure=\"{figure}\"")), "{name}: {again}");
        if !again.contains(DROPPED) {
            same_pages(name, &page, &again);
        }
    }

    // Without the table of samples the page has no figures, and says why.
    fs::remove_file(folder.file("tcp/samples.parquet")).unwrap();
    let page = folder.file("without.html");
    assert!(longhaul(&["report", &folder.file("tcp"), "--html", &page]).status.success());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Figures over time are left out: samples.parquet: No such file"), "{page}");
    assert!(!page.contains("<figure data-figure=") && page.contains("Each stream"), "{page}");
}
