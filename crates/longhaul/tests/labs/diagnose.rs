//! `longhaul diagnose` of connections that it did not make: a command's, a process's, a capture's.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::waiting::until;
use serde_json::Value;

use crate::common::{is_watching, longhaul, object};
use crate::watch::{Web, on};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// Fetches with curl under the eyes of `longhaul diagnose`.
fn diagnosed_curl(web: &Web, options: &[&str], curl: &[&str]) -> Output {
    let diagnose = [LONGHAUL, "diagnose", "--rate", "64M"];
    let command =
        [&diagnose[..], options, &["--", "curl", "-4", "-s", "-o", "/dev/null"], curl, &["http://server/large"]];
    on(&web.lab, "client", &command.concat()).output().unwrap()
}

/// The only diagnosed connection of a result.
fn only(output: &Output) -> Value {
    let whole = object(&output.stdout);
    assert_eq!(whole["schema"], "longhaul.diagnose.flows/1", "{whole:#}");
    let flows = whole["result"]["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{whole:#}");
    flows[0].clone()
}

fn first(flow: &Value) -> (&str, &str) {
    let cause = &flow["causes"][0];
    let word = |key: &str| cause[key].as_str().unwrap_or_else(|| panic!("{flow:#}"));
    (word("code"), word("host"))
}

#[test]
fn the_limit_of_a_commands_connection() {
    let Some(web) = Web::up("diagnose-command") else { return };
    // 8 MiB at 8 Mbit/s where 64 Mbit/s would pass.
    let slow = diagnosed_curl(&web, &["-J"], &["--limit-rate", "1M", "--max-time", "4"]);
    let flow = only(&slow);
    assert_eq!(first(&flow), ("receiver_application", "receiver"), "{flow:#}");
    assert_eq!((flow["sender"].as_str(), flow["program"].as_str()), (Some("10.77.2.1:80"), Some("curl")));
    // curl gave up after 4 s.
    assert_eq!((slow.status.code(), &object(&slow.stdout)["parameters"]["exit_code"]), (Some(28), &Value::from(28)));

    // 64 KiB of buffer are 32 KiB of window: 6.5 Mbit/s over 40 ms.
    web.set("client", "net.ipv4.tcp_rmem=4096 65536 65536");
    let small = diagnosed_curl(&web, &["-J"], &["--max-time", "4"]);
    let flow = only(&small);
    assert_eq!(first(&flow), ("receive_window", "receiver"), "{flow:#}");
    let target = flow["target_payload_bps"].as_u64().unwrap();
    assert!((55_000_000..64_000_000).contains(&target), "{flow:#}");

    // People get it on stderr, and the command has stdout for itself.
    let said = diagnosed_curl(&web, &[], &["--max-time", "2"]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.stdout.is_empty() && text.contains("the receive window, at receiver"), "{text}");
}

#[test]
fn loss_on_the_way_is_seen_at_the_sender() {
    let Some(web) = Web::up("diagnose-process") else { return };
    // Every kernel has Reno, and lets everyone use it.
    let script = "\
import socket
s = socket.create_server(('10.77.2.1', 9000)); print('ready', flush=True); c, _ = s.accept()
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'reno'); c.sendall(bytes(8 << 20))";
    let mut sender = on(&web.lab, "server", &["python3", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(sender.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let set = longhaul(&["lab", "set", "--name", &web.lab.name, "backward.loss=random(0.5%)"]);
    assert!(set.status.success(), "{set:?}");
    let folder = web.folder.0.join("diagnosed");
    let pid = sender.id().to_string();
    let out = folder.to_str().unwrap();
    let watch = ["diagnose", "-J", "--rate", "64M", "--watch", &pid, "-o", out];
    let mut watching = Command::new(LONGHAUL).args(watch).stdout(Stdio::piped()).spawn().unwrap();
    // Where an ordinary user may not watch, it ends at once: it has no program then, and is not waited for yet.
    let has_ended = || fs::read_link(format!("/proc/{}/exe", watching.id())).is_err();
    until("the watch", || is_watching(watching.id(), sender.id()) || has_ended());
    on(&web.lab, "client", &["curl", "-s", "-o", "/dev/null", "--max-time", "5", "telnet://10.77.2.1:9000"])
        .output()
        .unwrap();
    // Ctrl-C ends the watch, and prints what was seen.
    Process::open(watching.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let mut stdout = Vec::new();
    watching.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let status = watching.wait().unwrap();
    let _ = sender.kill();
    sender.wait().unwrap();
    let whole = object(&stdout);
    if !longhaul_kernel::capability::is_root_in_namespace() && whole["schema"] == "longhaul.error/1" {
        return longhaul_testing::skipped!("{}", whole["error"]);
    }
    assert_eq!(status.code(), Some(130), "{whole:#}");
    let flow = only(&Output { status, stdout, stderr: Vec::new() });
    let cause = &flow["causes"][0];
    assert_eq!((cause["code"].as_str(), cause["place"].as_str()), (Some("loss"), Some("network")), "{flow:#}");
    assert_eq!(flow["sender"], "10.77.2.1:9000");
    let shown = longhaul(&["show", out]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("at network") && shown.contains("10.77.2.1:9000 > "), "{shown}");
}

#[test]
fn what_the_senders_host_does_is_seen_beside_its_connection() {
    let Some(web) = Web::up("diagnose-host") else { return };
    let sink = "\
import socket
s = socket.create_server(('10.77.2.1', 9000)); print('ready', flush=True)
while True:
    c, _ = s.accept()
    while c.recv(1 << 20): pass";
    let mut sink = on(&web.lab, "server", &["python3", "-c", sink]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(sink.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let diagnosed = |work: &str| {
        let script = format!(
            "import socket, time\ns = socket.create_connection(('10.77.2.1', 9000)); end = time.monotonic() + 4\n\
             while time.monotonic() < end:\n    s.sendall(bytes(20000)); {work}"
        );
        let command = [LONGHAUL, "diagnose", "--rate", "64M", "-J", "--", "python3", "-c", &script];
        only(&on(&web.lab, "client", &command).output().unwrap())
    };
    // A program that computes between two blocks, and one that rests.
    let busy = diagnosed("sum(range(400000))");
    assert_eq!(first(&busy), ("cpu", "sender"), "{busy:#}");
    let rests = diagnosed("time.sleep(0.02)");
    assert_eq!(first(&rests), ("sender_application", "sender"), "{rests:#}");
    // The token bucket of this host, of which no packet and no round trip tells.
    let tbf =
        ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "10mbit", "burst", "64kb", "latency", "50ms"];
    assert!(on(&web.lab, "client", &tbf).status().unwrap().success());
    let shaped = diagnosed("");
    let _ = sink.kill();
    sink.wait().unwrap();
    assert_eq!(
        (first(&shaped), &shaped["causes"][0]["place"]),
        (("shaper", "sender"), &Value::from("sender_qdisc")),
        "{shaped:#}"
    );
}

#[test]
fn a_capture_tells_the_limit_of_its_connections() {
    let Some(web) = Web::up("diagnose-trace") else { return };
    web.set("client", "net.ipv4.tcp_rmem=4096 65536 65536");
    let route = on(&web.lab, "client", &["ip", "-o", "route", "get", "10.77.2.1"]).output().unwrap();
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    let interface = route.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap();
    let spool = web.folder.0.join("spool");
    let capture = [LONGHAUL, "capture", interface, "-o", spool.to_str().unwrap(), "--snap", "128"];
    let mut capturing = on(&web.lab, "client", &capture).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(capturing.stderr.take().unwrap());
    let mut said = String::new();
    // Where it may not capture it ends.
    while !said.contains("Ctrl-C ends") && stderr.read_line(&mut said).unwrap() > 0 {}
    let curl = ["curl", "-4", "-s", "-o", "/dev/null", "--max-time", "4", "http://server/large"];
    on(&web.lab, "client", &curl).output().unwrap();
    Process::open(capturing.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    capturing.wait().unwrap();
    if !spool.exists() {
        return longhaul_testing::skipped!("no capture without CAP_NET_RAW");
    }
    let flow = only(&longhaul(&["diagnose", "trace", "-J", "--rate", "64M", spool.to_str().unwrap()]));
    assert_eq!(first(&flow), ("receive_window", "receiver"), "{flow:#}");
    assert_eq!(
        (&flow["sender"], &flow["evidence"]["runs"][0]["purpose"]),
        (&"10.77.2.1:80".into(), &"observed".into())
    );
    let rtt = flow["base_rtt_ns"].as_u64().unwrap();
    assert!((40_000_000..60_000_000).contains(&rtt), "{flow:#}");
}
