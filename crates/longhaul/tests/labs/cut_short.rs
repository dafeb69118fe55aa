//! What was measured is not lost with the server, and what cannot be measured is said.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use longhaul_kernel::capability;
use longhaul_testing::program::Program;

use crate::common::captures::Folder;
use crate::common::{TestLab, longhaul, object};
use crate::udp_refusals::Server;

/// The server is killed when the first interval has arrived: each kind of test prints and saves what there is, and fails.
#[test]
fn a_server_that_dies_leaves_a_result() {
    for (kind, options, counted) in [
        ("udp", &["-b", "20M"][..], "received_packets"),
        ("udp", &["-b", "20M", "-R"], "received_packets"),
        ("tcp", &["--pace", "50M"], "bytes"),
        ("tcp", &["--pace", "50M", "-R"], "bytes"),
    ] {
        let server = Server::start(&["--no-auth"]);
        let folder = Folder::new(&format!("cut-{kind}-{}", options.len()));
        let saved = folder.file("saved");
        let mut test = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args([kind, "127.0.0.1", "-p", &server.port, "--no-auth", "-t", "60s", "-i", "200ms", "--json-stream"])
            .args(["-o", &saved, "--collect", "off"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok);
        let interval = lines.by_ref().nth(2).expect("an interval");
        assert!(interval.contains(".interval/"), "{interval}");
        drop(server);
        let last = lines.last().expect("a result");
        let output = test.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{kind} {options:?}: {said}");
        let result = object(last.as_bytes());
        assert!(result["result"][counted].as_u64().unwrap() > 100, "{kind} {options:?}: {result}");
        let codes: Vec<&str> =
            result["caveats"].as_array().unwrap().iter().map(|caveat| caveat["code"].as_str().unwrap()).collect();
        assert!(codes.contains(&"cut_short"), "{kind} {options:?}: {codes:?}");
        assert!(said.contains("cut short"), "{said}");
        assert!(fs::read_to_string(format!("{saved}/result.json")).unwrap().contains("cut_short"));
        let shown = String::from_utf8(longhaul(&["show", &saved]).stdout).unwrap();
        assert!(shown.contains("forward") || shown.contains("backward"), "{shown}");
        assert!(!shown.contains("port 0"), "an end that the server did not name has no port: {shown}");
        if kind == "udp" {
            let page = folder.file("page.html");
            assert!(longhaul(&["show", &saved, "--html", &page]).status.success());
            let page = fs::read_to_string(page).unwrap();
            let why = "Packets over time are left out: the result does not say when packets left";
            assert!(page.contains(why) && !page.contains("<figure data-figure="), "{options:?}: {page}");
        }
    }
}

/// Before there is anything to tell, the error is all.
#[test]
fn a_datagram_that_fits_no_path_sends_nothing() {
    let Some(lab) = TestLab::up("longer", "lan") else { return };
    let exec = ["lab", "exec", "--name", &lab.name];
    let mut server = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(exec)
        .args(["server", env!("CARGO_BIN_EXE_longhaul"), "serve", "--no-auth"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut String::new()).unwrap();
    let _server = Program(server);
    let test = |options: &[&str]| {
        let all = ["client", env!("CARGO_BIN_EXE_longhaul"), "udp", "server", "-4", "--json", "-t", "200ms"];
        longhaul(&[&exec[..], &all, options].concat())
    };
    let output = test(&["-l", "8000", "--df"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no packet was sent") && said.contains("smaller -l, or omit --df"), "{said}");
    assert_eq!(object(&output.stdout)["error"]["code"], "nothing_sent");

    // A firewall at the server: the place is known.
    if capability::is_root_in_namespace() {
        let rules = "add table inet no; add chain inet no in { type filter hook input priority 0; }; \
        add rule inet no in meta l4proto udp drop";
        assert!(longhaul(&[&exec[..], &["server", "nft", rules]].concat()).status.success());
        let output = test(&[]);
        let said = String::from_utf8(output.stderr).unwrap();
        let error = &object(&output.stdout)["error"];
        assert_eq!(error["code"], "data_path_blocked", "{said}");
        assert!(said.contains("the server's host") && said.contains("receiver_filter"), "{said}");
        assert!(said.contains("to UDP port "), "{said}");
    }
}

#[test]
fn what_would_be_dropped_from_a_test_is_refused() {
    let output = longhaul(&["tcp", "127.0.0.1", "--no-auth", "-C", "cubic:2s,reno:2s", "-t", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("-C reno from 2s on: the test ends before (-t 1s)"), "{said}");
}
