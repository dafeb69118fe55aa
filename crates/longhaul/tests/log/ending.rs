//! Either end dies, stops, or falls silent: what was confirmed is there, what was not is counted as lost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_kernel::process::Signal;

use crate::hosts::*;

/// A logging host tells what it wrote twice a second, and writes what comes after 0.2 s.
const CONFIRMED: Duration = Duration::from_millis(1500);
/// A capture sends what it reads after 0.2 s.
const SENT: Duration = Duration::from_millis(500);

/// A logging host is stopped, receives snippets into its socket, and is killed: what it never read is lost. The ledger of the capture has
/// exactly what is in the files as written, and the rest as lost by the link.
#[test]
fn what_a_killed_logging_host_had_not_confirmed_is_lost() {
    let Some(hosts) = Hosts::new("log-killed", "lan", &[]) else { return };
    let mut log = hosts.log("log", &[]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(4_000);
    sleep(CONFIRMED);
    log.signal(Signal::STOP);
    hosts.send_from(4_000, 2_000);
    sleep(SENT);
    log.kill();
    sleep(SENT);
    // For these there is nobody.
    hosts.send_from(6_000, 1_000);
    sleep(SENT);
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    let kept = hosts.packets(&["log"]);
    assert!(kept.iter().map(|(number, _)| *number).eq(0..4_000), "{} are in its files", kept.len());
    assert_eq!((count(result, "seen_packets"), count(result, "written_packets")), (7_000, 4_000), "{result:#}");
    assert_eq!(dropped_at(result, "log_link"), 3_000, "{result:#}");
    let logger = &result["loggers"][0];
    assert_eq!((count(logger, "sent_packets"), count(logger, "written_packets")), (6_000, 4_000), "{logger:#}");
    assert_eq!((dropped_at(logger, "log_link"), &logger["error"]["code"]), (2_000, &"control_lost".into()));
    assert!(has_caveat(&here, "logger_lost"), "{here:#}");
    // Its times are those of what is missing.
    assert!(!kept.iter().any(|(_, at_ns)| is_in_gap(result, *at_ns)), "{:#}", result["gaps"]);
    assert_eq!(hosts.convert("log", "cut.pcap")["result"]["was_cut"], true);
}

/// What a full disk did not take counts as that, and what came after it as lost by the link.
#[test]
fn a_logging_host_whose_disk_is_full_is_killed() {
    let Some(hosts) = Hosts::new("log-full-killed", "lan", &[]) else { return };
    // A file of 1 MiB is as good as a disk of that size (setrlimit(2), RLIMIT_FSIZE).
    let script = "trap '' XFSZ; ulimit -f 2048; exec \"$@\"";
    let folder = hosts.path("log");
    let words = ["sh", "-c", script, "sh", LONGHAUL, "log", "-J", "-o", &folder];
    let mut log = Program::start(&mut hosts.on("server", &words));
    let capture = hosts.capture(&["server"], &[]);
    // Some 60 bytes each; what is written at once is there or not as a whole.
    for _ in 0..40 {
        hosts.send(1_000);
        sleep(Duration::from_millis(30));
    }
    sleep(CONFIRMED);
    log.signal(Signal::STOP);
    hosts.send(2_000);
    sleep(SENT);
    log.kill();
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    let kept = hosts.packets(&["log"]).len() as u64;
    assert!((5_000..30_000).contains(&kept), "{kept} of 40000 fit");
    assert_eq!((count(result, "seen_packets"), count(result, "written_packets")), (42_000, kept), "{result:#}");
    assert_eq!((dropped_at(result, "disk"), dropped_at(result, "log_link")), (40_000 - kept, 2_000), "{result:#}");
}

/// Of two logging hosts one dies: the other has all that goes from then on.
#[test]
fn the_capture_goes_on_with_the_other_logging_host() {
    let Some(hosts) = Hosts::new("log-dies", "lan", &[]) else { return };
    let mut first = hosts.log("one", &[]);
    let second = hosts.log("two", &["-1", "-p", "5212"]);
    let capture = hosts.capture(&["server", "server:5212"], &[]);
    hosts.send(4_000);
    sleep(CONFIRMED);
    first.signal(Signal::STOP);
    hosts.send_from(4_000, 4_000);
    sleep(SENT);
    first.kill();
    sleep(SENT);
    hosts.send_from(8_000, 4_000);
    sleep(SENT);
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!(count(result, "seen_packets"), 12_000, "{result:#}");
    let (dead, alive) = (&result["loggers"][0], &result["loggers"][1]);
    assert_eq!(dead["error"]["code"], "control_lost", "{dead:#}");
    assert_eq!(alive["error"], serde_json::Value::Null, "{alive:#}");
    // Both had a half of what went before.
    let (sent, written) = (count(dead, "sent_packets"), count(dead, "written_packets"));
    assert!((3_500..4_500).contains(&sent) && (1_500..2_500).contains(&written), "{dead:#}");
    assert_eq!(dropped_at(dead, "log_link"), sent - written, "{dead:#}");
    let kept = hosts.packets(&["one"]);
    assert_eq!(kept.len() as u64, written, "what it said it wrote is in its files, and no more");
    let second = second.wait();
    let there = only(&second);
    assert_eq!((count(there, "written_packets"), count(alive, "written_packets")), (12_000 - sent, 12_000 - sent));
    assert_eq!(count(result, "written_packets"), 12_000 - sent + written);
    // Together they have everything but that.
    let mut all: Vec<u64> = hosts.packets(&["one", "two"]).iter().map(|(number, _)| *number).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, 12_000 - sent + written);
    assert!((8_000..12_000).all(|number| all.binary_search(&number).is_ok()), "of the last none is missing");
}

/// One that comes back with the same folder leaves what is there, and takes the next capture beside it.
#[test]
fn a_logging_host_that_is_started_again_keeps_what_it_has() {
    let Some(hosts) = Hosts::new("log-again", "lan", &[]) else { return };
    let mut log = hosts.log("log", &[]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(3_000);
    sleep(CONFIRMED);
    log.kill();
    drop(capture.finish());
    let before = hosts.packets(&["log"]);

    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send_from(3_000, 500);
    sleep(SENT);
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 500);
    assert_eq!(count(only(&log.wait()), "written_packets"), 500);
    assert_eq!(hosts.captures.folders("log").len(), 2);
    // The folder of both reads as one.
    let all = hosts.packets(&["log"]);
    assert!(all.iter().map(|(number, _)| *number).eq(0..3_500), "{}", all.len());
    assert!(all.starts_with(&before));
}

/// One that says nothing for 10 s is given up, though its connection stands.
#[test]
fn a_logging_host_that_is_silent_is_left() {
    let Some(hosts) = Hosts::new("log-silent", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(1_000);
    sleep(CONFIRMED);
    log.signal(Signal::STOP);
    hosts.send_from(1_000, 300);
    sleep(Duration::from_secs(11));
    hosts.send_from(1_300, 200);
    sleep(SENT);
    let result = &capture.finish()["result"];
    assert_balanced(result);
    let logger = &result["loggers"][0];
    assert_eq!(logger["error"]["code"], "peer_silent", "{logger:#}");
    assert_eq!((count(logger, "sent_packets"), count(logger, "written_packets")), (1_300, 1_000), "{logger:#}");
    assert_eq!((count(result, "seen_packets"), dropped_at(result, "log_link")), (1_500, 500), "{result:#}");
    // It wakes, writes what lay in its socket, and knows that the capture is gone.
    log.signal(Signal::CONT);
    let began = Instant::now();
    let log = log.wait();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"vanished".into(), 1_300), "{there:#}");
}

/// The same the other way round, after 20 s; what came is there.
#[test]
fn a_capture_that_is_silent_is_left() {
    let Some(hosts) = Hosts::new("log-mute", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(1_000);
    sleep(CONFIRMED);
    capture.signal(Signal::STOP);
    let began = Instant::now();
    let log = log.wait();
    assert!((19..25).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"vanished".into(), 1_000), "{there:#}");
    assert!(there["why"].as_str().unwrap().contains("no message for 20s"), "{there:#}");
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["was_cut"], true);
    capture.signal(Signal::CONT);
    sleep(SENT);
    hosts.send_from(1_000, 100);
    sleep(SENT);
    let result = &capture.finish()["result"];
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), dropped_at(result, "log_link")), (1_000, 100), "{result:#}");
}

#[test]
fn a_capture_that_dies_leaves_a_readable_part() {
    let Some(hosts) = Hosts::new("log-gone", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(5_000);
    sleep(Duration::from_millis(800));
    capture.signal(Signal::KILL);
    let began = Instant::now();
    let log = log.wait();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let there = only(&log);
    assert_eq!((there["end"].as_str(), count(there, "written_packets")), (Some("vanished"), 5_000), "{there:#}");
    assert!(has_caveat(&log, "capture_vanished"), "{log:#}");
    let converted = hosts.convert("log", "t.pcap");
    assert_eq!((count(&converted["result"], "packets"), &converted["result"]["was_cut"]), (5_000, &true.into()));
}

/// Ctrl-C at the logging host: both ends know what was written, and the capture goes on until its own.
#[test]
fn a_logging_host_that_is_stopped_closes_its_files() {
    let Some(hosts) = Hosts::new("log-stop", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(3_000);
    sleep(Duration::from_millis(600));
    let log = log.finish();
    assert_eq!((&only(&log)["end"], count(only(&log), "written_packets")), (&"stopped".into(), 3_000));
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["was_cut"], false);
    sleep(Duration::from_millis(300));
    hosts.send(1_000);
    sleep(Duration::from_millis(300));
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), count(result, "dropped_packets")), (3_000, 1_000), "{result:#}");
    assert_eq!(result["loggers"][0]["error"]["code"], "stopped");
}

/// A capture that is as long as it may be ends there, with whole files, and the account of both ends is the same.
#[test]
fn a_capture_that_is_long_enough_ends_at_its_logging_host() {
    let Some(hosts) = Hosts::new("log-cap", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1", "--bytes-cap", "1M"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(40_000);
    sleep(SENT);
    let log = log.wait();
    let there = only(&log);
    assert_eq!(there["end"], "full", "{there:#}");
    let files = there["files"].as_array().unwrap().iter();
    let bytes: u64 = files.map(|file| std::fs::metadata(file.as_str().unwrap()).unwrap().len()).sum();
    assert_eq!(bytes, count(there, "written_bytes"));
    assert!((1 << 20..(1 << 20) + (256 << 10)).contains(&bytes), "{bytes}");
    let kept = hosts.packets(&["log"]).len() as u64;
    assert_eq!((kept, count(there, "written_packets")), (kept, kept), "{there:#}");
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["was_cut"], false);
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!(result["loggers"][0]["error"]["code"], "full", "{result:#}");
    assert_eq!((count(result, "written_packets"), dropped_at(result, "log_link")), (kept, 40_000 - kept), "{result:#}");
}

/// Captures of which none is long, one after the other: their folder has a limit, too.
#[test]
fn a_folder_that_is_full_takes_no_further_capture() {
    let Some(hosts) = Hosts::new("log-folder", "lan", &[]) else { return };
    let log = hosts.log("log", &["--folder-cap", "1M", "--bytes-cap", "100M"]);
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(40_000);
    // The folder is looked at once a second.
    sleep(SENT + Duration::from_secs(2));
    let here = capture.finish();
    assert_eq!(here["result"]["loggers"][0]["error"]["code"], "full", "{here:#}");
    // The next one is refused, and leaves nothing.
    let words = [&[LONGHAUL][..], &Hosts::capture_words(&["server"], &[])].concat();
    let said = Program::try_start(&mut hosts.on("client", &words)).err().expect("it is refused");
    assert!(said.contains("size limit") && said.contains("--folder-cap"), "{said}");
    let log = log.finish();
    assert_eq!(only(&log)["end"], "full", "{log:#}");
}
