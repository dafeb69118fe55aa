//! `longhaul compare` where captures lose packets by themselves: what fell into their gaps is not lost on the path, and what the path
//! lost is found all the same.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::captures::{Folder, json, missing, on, probes};
use crate::common::{TestLab, longhaul, printed, quiet};
use serde_json::Value;

/// 5 ms either way.
const PATH: &str = "
name = 'gaps'
[[forward]]
name = 'wan'
rate = '1Gbit'
queue = '64MiB'
delay = '5ms'
[[backward]]
delay = '5ms'
";
const PROBES: u64 = 40_000;
/// Probes that the path loses, by number from 1.
const EVERY: u64 = 997;

/// `longhaul capture` on a host, with a ring that soon is full when nobody reads it.
struct Recording(Child);

impl Recording {
    fn start(lab: &TestLab, host: &str, folder: &str) -> Self {
        let command =
            [env!("CARGO_BIN_EXE_longhaul"), "capture", "-J", "eth0", "--port", "9000", "--ring", "2M", "-o", folder];
        let mut child = on(lab, host, &command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stderr, mut said, mut byte) = (child.stderr.take().unwrap(), String::new(), [0]);
        while !said.contains("Ctrl-C ends\n") {
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the capture ended: {said}");
            said.push(byte[0].into());
        }
        std::thread::spawn(move || drop(std::io::copy(&mut stderr, &mut std::io::sink())));
        Self(child)
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn finish(mut self) {
        self.signal("-INT");
        self.0.wait().unwrap();
    }
}

fn stamps(points: &Value) -> (u64, u64) {
    let of = |nth: usize| points["gaps"][nth]["count"].as_u64().unwrap();
    (of(0), of(1))
}

/// The capture of the receiver stops while probes go on, and later that of the sender. Each 997th probe is lost on the path, so the truth
/// is known to the number.
#[test]
fn gaps_of_the_captures_are_left_out() {
    let _machine = quiet();
    if missing("python3") {
        return;
    }
    let folder = Folder::new("compare-gaps");
    let path = folder.file("gaps.toml");
    fs::write(&path, PATH).unwrap();
    let Some(lab) = TestLab::up("compare-gaps", &path) else { return };
    for host in ["client", "server"] {
        let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1";
        assert!(on(&lab, host, &["sh", "-c", quiet]).status().unwrap().success());
    }
    let [a, b] = ["a", "b"].map(|name| folder.file(name));
    let captures = [Recording::start(&lab, "client", &a), Recording::start(&lab, "server", &b)];
    // The phase begins anew with the change, so the probes' numbers are the emulator's.
    printed(&["lab", "set", "--name", &lab.name, &format!("forward.wan.loss=every({EVERY})")]);
    let mut sender = probes(&lab, PROBES as u32, 100, 10.0).spawn().unwrap();
    sleep(Duration::from_millis(900));
    captures[1].signal("-STOP");
    sleep(Duration::from_millis(900));
    captures[1].signal("-CONT");
    sleep(Duration::from_millis(400));
    captures[0].signal("-STOP");
    sleep(Duration::from_millis(900));
    captures[0].signal("-CONT");
    assert!(sender.wait().unwrap().success());
    sleep(Duration::from_millis(500));
    captures.into_iter().for_each(Recording::finish);

    let status = json(&["lab", "status", "--name", &lab.name, "--json"]);
    let hops = status["result"]["hops"].as_array().unwrap();
    let dropped = hops.iter().map(|hop| hop["dropped_loss"]["packets"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(dropped, PROBES / EVERY, "nothing but probes passed the hop");
    let truth: BTreeSet<u64> = (1..=PROBES / EVERY).map(|n| n * EVERY - 1).collect();

    for same_clock in [&["--same-clock"][..], &[]] {
        let out = folder.file(&format!("out{}", same_clock.len()));
        let compared = json(&[&["compare", "--json", "-o", &out, &a, &b], same_clock].concat());
        let points = &compared["result"]["points"];
        let forward = &points["directions"][0];
        let not = &forward["not_observable"];
        println!("{} lost, not observable {not}, gaps {}", forward["lost_packets"], points["gaps"]);
        let (gaps_of_a, gaps_of_b) = stamps(points);
        assert!(gaps_of_a > 0 && gaps_of_b > 0, "{points:#}");
        let of = |name: &str| forward[name].as_u64().unwrap();
        let missed = |name: &str| not[name].as_u64().unwrap();
        assert!(missed("at_second_packets") > 1_000 && missed("at_first_packets") > 1_000, "{not}");
        assert_eq!(of("unknown_packets"), 0, "{forward:#}");
        let runs = forward["lost"].as_array().unwrap();
        let lost: BTreeSet<u64> = runs.iter().map(|run| run["first_sequence"].as_u64().unwrap()).collect();
        assert!(lost.is_subset(&truth), "none that fell into a gap: {:?}", lost.difference(&truth).collect::<Vec<_>>());
        assert!(runs.iter().all(|run| run["packets"] == 1) && of("lost_packets") == runs.len() as u64);

        // Those losses that neither capture's gaps hide are all named: what A has of the truth, and B's neighbours as well. The last
        // ones may be left open: a pause of this machine may make a delay as long as what is left of the capture.
        let [at_a, at_b] = [&a, &b].map(|spool| numbers(&folder, spool));
        assert!(at_b.is_disjoint(&truth) && at_a.len() < PROBES as usize && at_b.len() + 40 < PROBES as usize);
        let near = |n: u64| (n.saturating_sub(600)..n + 600).filter(|n| !truth.contains(n));
        let plain: BTreeSet<u64> =
            truth.iter().copied().filter(|n| at_a.contains(n) && near(*n).all(|other| at_b.contains(&other))).collect();
        assert!(plain.is_subset(&lost), "{:?}", plain.difference(&lost).collect::<Vec<_>>());
        // A busy machine makes more gaps than those of the stopped captures.
        assert!(lost.len() > 5, "{lost:?}");
        let hidden = truth.difference(&lost).count();
        println!("{} of {} losses named, {hidden} in gaps", lost.len(), truth.len());
        assert!(hidden > 5, "the gaps were long enough to hide some");
        let said = compared["caveats"].as_array().unwrap().iter().filter(|caveat| caveat["code"] == "capture_dropped");
        let said: Vec<&str> = said.map(|caveat| caveat["message"].as_str().unwrap()).collect();
        assert!(said.len() == 2 && said.iter().all(|message| message.contains("that time is left out")), "{said:?}");
        // Intervals are no longer than the sender's pauses, and a lost burst's.
        let longest = forward["intervals"].as_array().unwrap().last().unwrap()["from_ns"].as_f64().unwrap();
        assert!(longest < 300e6, "{longest}");
        let text = String::from_utf8(longhaul(&["show", &out]).stdout).unwrap();
        assert!(
            text.contains("that time is left out") && text.contains("whether they reached it is not known"),
            "{text}"
        );
    }
}

/// The numbers of the probes that a capture has.
fn numbers(folder: &Folder, spool: &str) -> BTreeSet<u64> {
    let pcap = folder.file("numbers.pcap");
    assert!(longhaul(&["convert", "-J", spool, &pcap]).status.success());
    let mut reader = longhaul_captures::CaptureReader::new(fs::File::open(&pcap).unwrap()).unwrap();
    let mut numbers = BTreeSet::new();
    while let Some(record) = reader.next().unwrap() {
        if let longhaul_captures::Transport::Udp { probe: Some(probe), .. } =
            longhaul_captures::dissect(&record).transport
        {
            numbers.insert(probe.sequence);
        }
    }
    fs::remove_file(&pcap).unwrap();
    numbers
}
