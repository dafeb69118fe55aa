//! Header snippets arrive, or are counted.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::Signal;
use longhaul_testing::program::copy_program;
use serde_json::Value;

use crate::common::{longhaul, object, printed, root};
use crate::hosts::*;

#[test]
fn snippets_arrive_in_full_and_equal_those_captured_here() {
    let Some(hosts) = Hosts::new("log-full", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &["-o", &hosts.path("here")]);
    hosts.send(20_000);
    sleep(Duration::from_millis(300));
    capture.signal(Signal::USR1);
    sleep(Duration::from_millis(300));
    let here = capture.finish();
    let there = log.wait();
    let (here, there) = (&here["result"], only(&there));
    assert_eq!((count(here, "seen_packets"), count(there, "seen_packets")), (20_000, 20_000), "{here:#}");
    assert_eq!((count(there, "written_packets"), there["end"].as_str()), (20_000, Some("finished")));
    assert_eq!(there["marks"], here["marks"]);
    assert_eq!(here["marks"].as_array().unwrap().len(), 1);
    let logger = &here["loggers"][0];
    assert_eq!((count(logger, "sent_packets"), count(logger, "written_packets")), (20_000, 20_000), "{logger:#}");
    assert!(count(logger, "sent_datagrams") < 20_000 / 5, "many snippets in one: {logger:#}");

    // The folder that all captures lie in reads as the only one in it.
    for form in ["t.pcap", "t.pcapng"] {
        assert_eq!(count(&hosts.convert("log", form)["result"], "packets"), 20_000);
        let there = fs::read(hosts.path(form)).unwrap();
        hosts.convert("here", form);
        assert!(there == fs::read(hosts.path(form)).unwrap(), "{form}: the same packets at the same times");
    }
}

/// As its unit starts it: as a user with nothing but a folder, without any capability.
#[test]
fn a_logging_host_takes_no_privilege() {
    const NOBODY: u32 = 65_534;
    if !is_root_in_namespace() {
        return longhaul_testing::no_judge!("another user takes root");
    }
    let unit = fs::read_to_string(root().join("packaging/longhaul-log.service")).unwrap();
    assert!(unit.lines().any(|line| line == "CapabilityBoundingSet="), "{unit}");
    let Some(hosts) = Hosts::new("log-nobody", "lan", &[]) else { return };
    let (binary, folder) = (hosts.path("longhaul"), hosts.path("log"));
    copy_program(LONGHAUL, &binary);
    fs::set_permissions(&hosts.captures.0, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let without = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"];
    let words = [&user[..], &without, &[binary.as_str(), "log", "-J", "-1", "-o", folder.as_str()]].concat();
    let log = Program::start(&mut hosts.on("server", &words));
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(1_000);
    sleep(Duration::from_millis(300));
    let here = capture.finish();
    let there = log.wait();
    assert_eq!((count(&here["result"], "seen_packets"), count(only(&there), "written_packets")), (1_000, 1_000));
    let owners = hosts.captures.folders("log").into_iter().map(|capture| fs::metadata(capture).unwrap().uid());
    assert_eq!(owners.collect::<Vec<_>>(), [NOBODY]);
}

/// Every seventh packet on the way is lost, and the last ones.
#[test]
fn what_the_link_loses_is_counted_to_the_packet() {
    let Some(hosts) = Hosts::new("log-loss", "lan", &["--set", "forward.loss=every(7)"]) else { return };
    let log = hosts.log("log", &["-1"]);
    let capture = hosts.capture(&["server"], &["-o", &hosts.path("here")]);
    hosts.send(20_000);
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    let log = log.wait();
    let there = only(&log);
    let (all, came) = (hosts.packets(&["here"]), hosts.packets(&["log"]));
    assert_eq!(all.len(), 20_000);
    let lost = there["dropped_by_place"]["log_link"].as_u64().unwrap();
    // Exactly what is not there, about a seventh.
    assert_eq!(came.len() as u64 + lost, 20_000, "{there:#}");
    assert_eq!((count(there, "seen_packets"), count(there, "written_packets")), (20_000, came.len() as u64));
    assert!((2_000..4_000).contains(&lost), "{lost} lost");
    assert!(has_caveat(&log, "link_lost"), "{log:#}");

    // Each missing packet lies in a gap, and gaps contain few others.
    let numbers: std::collections::HashSet<u64> = came.iter().map(|(number, _)| *number).collect();
    let gaps = there["gaps"].as_array().unwrap();
    let within = |at_ns: i64| {
        gaps.iter().any(|gap| (gap["from_ns"].as_i64().unwrap()..=gap["to_ns"].as_i64().unwrap()).contains(&at_ns))
    };
    let missing = all.iter().filter(|(number, _)| !numbers.contains(number));
    assert!(missing.clone().all(|(_, at_ns)| within(*at_ns)));
    let inside = came.iter().filter(|(_, at_ns)| within(*at_ns)).count() as u64;
    assert!(inside <= 2 * lost, "{inside} packets that arrived lie in gaps of {lost}");
    // The capturing host was told as much.
    let logger = &here["result"]["loggers"][0];
    assert_eq!(logger["dropped_by_place"]["log_link"].as_u64(), Some(lost), "{logger:#}");
    assert_eq!(count(logger, "sent_packets"), count(logger, "written_packets") + lost);
    // Its own spool lacks nothing.
    assert_eq!(here["result"]["dropped_packets"], 0, "{here:#}");
}

#[test]
fn two_logging_hosts_share_a_capture_and_read_as_one() {
    let Some(hosts) = Hosts::new("log-two", "lan", &["--set", "forward.loss=every(50)"]) else { return };
    let key = hosts.path("key");
    printed(&["key", "new", &key]);
    let first = hosts.log("one", &["-1", "--key", &key]);
    let second = hosts.log("two", &["-1", "--key", &key, "-p", "5212"]);
    let capture = hosts.capture(&["server", "server:5212"], &["--key", &key]);
    hosts.send(20_000);
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    let (first, second) = (first.wait(), second.wait());
    let (first, second) = (only(&first), only(&second));
    for (part, there) in [(1, first), (2, second)] {
        let seen = count(there, "seen_packets");
        assert!((9_000..11_000).contains(&seen), "they take turns: {seen}");
        assert_eq!((&there["share"]["part"], &there["share"]["parts"]), (&part.into(), &2.into()));
    }
    assert_eq!(count(first, "seen_packets") + count(second, "seen_packets"), 20_000);
    let written = count(first, "written_packets") + count(second, "written_packets");
    let lost = count(first, "dropped_packets") + count(second, "dropped_packets");
    let result = &here["result"];
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), count(result, "dropped_packets")), (written, lost), "{result:#}");
    assert!(lost > 0, "the path loses some");

    // In order of time, on the one interface that there was.
    let packets = hosts.packets(&["one", "two"]);
    assert_eq!(packets.len() as u64, written);
    assert!(packets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    let output = longhaul(&["analyze", "--json", &hosts.path("one"), &hosts.path("two")]);
    let analysed = object(&output.stdout);
    assert_eq!(analysed["result"]["totals"]["packets"].as_u64(), Some(written), "{analysed:#}");
    assert_eq!(analysed["result"]["flows"].as_array().unwrap().len(), 1, "{analysed:#}");
    let warned = |analysed: &Value| {
        analysed["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "parts_missing")
    };
    assert!(!warned(&analysed), "{analysed:#}");
    let half = object(&longhaul(&["analyze", "--json", &hosts.path("one")]).stdout);
    assert!(warned(&half), "{half:#}");
}
