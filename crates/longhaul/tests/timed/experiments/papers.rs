//! A small cell of each experiment of the papers, as it comes with longhaul but shorter or slower, and what must come of it on any machine.
//!
//! A finding that depends on how fast this machine is, or on how idle, is not asserted here: `longhaul lab run NAME` judges it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::over_time;
use crate::common::turns::Turn;
use crate::common::{alone, longhaul, object, root, side_by_side};
use longhaul_kernel::capability;
use longhaul_kernel::process::{Process, Signal};
use serde_json::{Value, json};

/// A part of an experiment.
struct Cell {
    name: &'static str,
    /// Texts in the names of the series, with commas between.
    only: &'static str,
    /// What of its file is replaced, so that it is short and light: each must be there.
    replace: &'static [(&'static str, &'static str)],
    /// How the findings begin that must reappear.
    reappear: &'static [&'static str],
    /// Takes what it needs of the machine.
    turn: fn() -> Turn,
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cell-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Cell {
    /// Runs each quick point of it once; the result, after its findings were judged.
    fn run(&self) -> Option<(Value, String)> {
        let _turn = (self.turn)();
        if !capability::is_root_in_namespace() {
            longhaul_testing::no_judge!("polling rings and capturing take root");
            return None;
        }
        let folder = Folder::new(self.name);
        let mut text = fs::read_to_string(root().join(format!("experiments/{}.toml", self.name))).unwrap();
        for (from, to) in self.replace {
            assert!(text.contains(from), "{}: {from}", self.name);
            text = text.replace(from, to);
        }
        let file = folder.0.join("cell.toml");
        fs::write(&file, text).unwrap();
        let output = folder.0.join("results");
        let run =
            ["lab", "run", file.to_str().unwrap(), "--quick", "--only", self.only, "--repeat", "1", "--tries", "1"];
        let output_to = ["-o", output.to_str().unwrap(), "--force", "--json"];
        let run = || longhaul(&[&run[..], &output_to[..]].concat());
        // Where the kernel lost a flow's window the run says nothing of the control, and is made again.
        let is_broken = |ran: &Output| String::from_utf8_lossy(&ran.stdout).contains("\"impossible_window\"");
        let ran = (0..2).map(|_| run()).find(|ran| !is_broken(ran)).unwrap_or_else(run);
        assert!(ran.status.success(), "{}: {ran:?}", self.name);
        let result = object(&ran.stdout);
        let findings = result["result"]["findings"].as_array().unwrap();
        for wanted in self.reappear {
            let of_text = |finding: &&Value| finding["says"].as_str().unwrap().starts_with(wanted);
            let finding =
                findings.iter().find(of_text).unwrap_or_else(|| panic!("{}: {wanted}: {findings:#?}", self.name));
            println!("{}: {}: {}", self.name, finding["verdict"], finding["why"]);
            assert_eq!(finding["verdict"], "reappeared", "{}: {finding:#}", self.name);
        }
        Some((result, fs::read_to_string(output.join("report.html")).unwrap()))
    }
}

/// The mean of `quantity` at a point.
fn mean(result: &Value, kind: &str, series: &str, label: &str, quantity: &str) -> f64 {
    let all = result["result"][kind].as_array().unwrap();
    let series = all.iter().find(|one| one["name"] == series).unwrap_or_else(|| panic!("no {series}"));
    let points = series["points"].as_array().unwrap();
    let point = points.iter().find(|one| one["label"] == label).unwrap_or_else(|| panic!("no {label}: {points:#?}"));
    point["means"][quantity]["mean"].as_f64().unwrap_or_else(|| panic!("no {quantity}: {:#}", point["means"]))
}

/// Figure 5 at a tenth of the rates.
#[test]
fn nlr_udp_loss() {
    let cell = Cell {
        name: "nlr-udp-loss",
        only: "receive ring,hop slower",
        replace: &[
            ("calibrate = true", ""),
            ("\"400M\", \"800M\", \"1200M\", \"1600M\", \"2000M\", \"2400M\"", "\"40M\", \"120M\", \"240M\""),
            ("quick = [\"400\", \"1200\", \"2400\"]", "quick = [\"240\"]"),
            (", 2400\"", ", 240\""),
            ("sockbuf = \"4M\"", "sockbuf = \"1M\""),
            ("poll_interval = \"2ms\"", "poll_interval = \"20ms\"\nquick = [\"240\"]"),
            (
                "change = [\"rate=1600Mbit\", \"queue=2MiB\"]",
                "change = [\"rate=160Mbit\", \"queue=200KiB\"]\nquick = [\"240\"]",
            ),
        ],
        reappear: &["A ring that is polled seldom loses"],
        turn: alone,
    };
    let Some((result, page)) = cell.run() else { return };
    let lost = mean(&result, "udp", "A hop slower than the flow", "240", "network_percent");
    // The series polls its ring seldom: that packets come in batches is no doubt about it.
    let polled = result["result"]["udp"].as_array().unwrap().iter().find(|one| !one["poll_interval_ns"].is_null());
    let polled = polled.unwrap_or_else(|| panic!("{result:#}")).to_string();
    assert!(!polled.contains("arrivals_in_batches"), "{polled}");
    // 160 Mb/s at L1 are 153 of payload, of 240.
    assert!((25.0..45.0).contains(&lost), "{lost}");
    assert!(page.contains("receiver ring (rx_ring_loss)") && page.contains("network (network_loss)"), "{page}");
}

/// Figure 5 on the tiny ring: without a slow hop the network loses nothing.
#[test]
fn nlr_udp_rings() {
    let cell = Cell {
        name: "nlr-udp-rings",
        only: "tiny",
        replace: &[
            ("calibrate = true", ""),
            ("\"400M\", \"800M\", \"1200M\", \"1600M\", \"2000M\", \"2400M\"", "\"40M\", \"240M\""),
            ("\"400\", \"2400\"", "\"240\""),
            ("[\"2400\"]", "[\"240\"]"),
            (
                "\"400\" = 0, \"800\" = 0, \"1200\" = 0, \"1600\" = 0, \"2000\" = 0, \"2400\" = 0",
                "\"40\" = 0, \"240\" = 0",
            ),
            ("\"2400\" = 12", "\"240\" = 12"),
            (", 2400\"", ", 240\""),
            (", 400\"", ", 40\""),
        ],
        reappear: &[],
        turn: alone,
    };
    let Some((result, _)) = cell.run() else { return };
    for series in ["Tiny, 1 MiB, balanced", "Tiny, 4 MiB, balanced", "Tiny, 1 MiB, bound", "Tiny, 4 MiB, bound"] {
        assert_eq!(mean(&result, "udp", series, "240", "network_percent"), 0.0, "{series}");
    }
}

/// Figure 6 (c): rings of both hosts under pressure, and the sender's alone.
#[test]
fn nlr_tcp_loss() {
    let cell = Cell {
        name: "nlr-tcp-loss",
        only: "pressure",
        replace: &[("time = \"6s\"", "time = \"3s\""), ("quick = [\"reno\", \"vegas\"]", "quick = [\"reno\"]")],
        reappear: &[
            "Under pressure loss is where packets enter the hosts",
            "The network loses nothing",
            "The sender's ring loses acknowledgments alone",
        ],
        turn: alone,
    };
    let Some((result, page)) = cell.run() else { return };
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let points = all(&result["result"]["tcp"]).into_iter().flat_map(|series| all(&series["points"]));
    let runs = points.flat_map(|point| [all(&point["runs"]), all(&point["rejected"])].concat());
    // Packets with data that were dropped over time are the lost bytes of their place; nearly all are full, and the last ones may come after the samples.
    let dropped: Vec<Value> = runs.filter(|run| !run["over_time"]["dropped_packets"].is_null()).collect();
    assert!(!dropped.is_empty() && page.contains("data-figure=\"Dropped by the hosts, by location: "), "{result:#}");
    for run in &dropped {
        let lost = &run["flows"]["result"]["loss_bytes_by_location"];
        for place in ["snd_txloss", "rcv_rxloss", "tcp_pruning"] {
            let packets = over_time::sum(&run["over_time"]["dropped_packets"][place]);
            let (least, most) = (packets * 1_000, (packets + 100) * 1_500);
            assert!(
                lost[place].as_u64().is_some_and(|bytes| (least..=most).contains(&bytes)),
                "{place}, {packets}: {lost:#}"
            );
        }
    }
    for seen in ["Bytes lost, by location", "ACKs, entering the sender (snd_rxloss)", "Bytes lost as a table"] {
        assert!(page.contains(seen), "{seen}: {page}");
    }
}

/// Throughput by window over a ninth of the delay and a hundredth of the rate; what TCP saw of the round trip beside what was asked for.
#[test]
fn emulation_matrix() {
    let cell = Cell {
        name: "emulation-matrix",
        only: "delay,MTU",
        replace: &[
            (
                "path = \"amsterdam-sandiego\"",
                "path = \"amsterdam-sandiego\"\nchange = [\"rate=100Mbit\", \"delay=10ms\", \"queue=1MiB\"]",
            ),
            ("calibrate = true\n", ""),
            ("quick = []", ""),
            ("quick = [\"128MiB\"]", ""),
            ("Delay, 1MiB\"", "Delay, 32KiB\""),
            ("\"1M\", \"16M\", \"128M\"", "\"32K\", \"256K\", \"1M\""),
            ("128MiB", "1MiB"),
            ("\"512M\"", "\"2M\""),
            ("512MiB", "2MiB"),
            ("time = \"5s\"", "time = \"1500ms\""),
            ("omit = \"1s\"", "omit = \"500ms\""),
            ("time = \"9s\"", "time = \"3s\""),
            ("omit = \"5s\"", "omit = \"1s\""),
        ],
        reappear: &["The window has to match rate and delay"],
        turn: side_by_side,
    };
    let Some((result, page)) = cell.run() else { return };
    let rtt_ms = |series: &str, label: &str| mean(&result, "tcp", series, label, "mean_rtt_ns") / 1e6;
    // A small window fills no queue.
    let [without, with] = ["No delay", "Delay"].map(|series| rtt_ms(series, "32KiB"));
    println!("{without:.2} ms of 0 asked, {with:.2} ms of 20");
    assert!(without < 10.0 && (20.0..30.0).contains(&with), "{without} {with}");
    for series in ["Delay and jitter", "Delay, jitter and distribution", "MTU 9000"] {
        let goodput =
            mean(&result, "tcp", series, if series == "MTU 9000" { "scalable" } else { "2MiB" }, "goodput_bps");
        assert!((5e7..1.1e8).contains(&goodput), "{series}: {goodput}");
        assert!(page.contains(series), "{page}");
    }
}

/// Figure 7.
#[test]
fn nlr_batching() {
    let cell = Cell {
        name: "nlr-batching",
        only: "300",
        replace: &[],
        reappear: &["The mean time between packets does not show", "Moderation lays a structure over the times"],
        turn: alone,
    };
    cell.run();
}

/// Figure 2 between three hosts: the one with the faulty card is named, and what the network loses is not blamed on it.
#[test]
fn teragrid() {
    let cell = Cell {
        name: "teragrid",
        only: "one packet",
        replace: &[("random(0.01%)", "random(0.1%)"), ("within = [0.002, 0.03]", "within = [0.05, 0.2]")],
        reappear: &[
            "What the network loses is told apart from what the card loses: in the network",
            "What the network loses is told apart from what the card loses: in the host",
        ],
        turn: side_by_side,
    };
    let Some((result, page)) = cell.run() else { return };
    let series = "One packet in 10,000 lost in the network";
    assert_eq!(mean(&result, "udp", series, "west1 → east2, 50", "receiver_filter_percent"), 0.0);
    for seen in ["Loss of all probes", "without those of indiana2", "Packets lost between hosts"] {
        assert!(page.contains(seen), "{seen}: {page}");
    }
    let run = &result["result"]["udp"][0]["points"][1];
    let run = [&run["runs"], &run["rejected"]].into_iter().find_map(|runs| runs.get(0)).unwrap();
    assert_eq!(run["between"], json!({ "from": "west1", "to": "indiana2" }));
}

/// Throughput is what size and spacing say.
#[test]
fn datatag_end_systems() {
    let cell = Cell {
        name: "datatag-end-systems",
        only: "MTU",
        replace: &[("time = \"500ms\"", "time = \"300ms\""), ("\"every 80us, 400 bytes\", ", "")],
        reappear: &["Close together, larger frames carry more", "Jumbo frames carry as much"],
        turn: alone,
    };
    let Some((_, page)) = cell.run() else { return };
    assert!(page.contains("Received rate by the spacing of packets"), "{page}");
}

/// Window and goodput at three rates of loss are those of the table.
#[test]
fn datatag_aimd() {
    let cell = Cell {
        name: "datatag-aimd",
        only: "lost in 1",
        replace: &[("time = \"7s\"", "time = \"5s\"")],
        reappear: &["At each rate of loss", "The window is some 170 packets", "A hundredth of the losses"],
        turn: side_by_side,
    };
    let Some((result, page)) = cell.run() else { return };
    let rtt = mean(&result, "tcp", "One packet lost in 18,519", "reno", "mean_rtt_ns");
    // That of the path, not the 200 ms of the talk, whatever else the machine does.
    assert!((1e7..5e7).contains(&rtt), "{rtt}");
    assert!(page.contains("One packet lost in 1,852"), "{page}");
}

/// One loss in some thousand packets costs each control what its growth cannot make up.
#[test]
fn datatag_loss() {
    let cell = Cell {
        name: "datatag-loss",
        only: "one flow",
        replace: &[
            ("rate=3Gbit", "rate=1Gbit"),
            ("every(30000)", "every(5000)"),
            ("quick = [\"reno\"]", "quick = [\"reno\", \"highspeed\", \"scalable\"]"),
            ("time = \"20s\"", "time = \"5s\""),
            ("omit = \"5s\"", "omit = \"2s\""),
        ],
        reappear: &["Scalable gets more than HighSpeed"],
        turn: alone,
    };
    cell.run();
}

/// Figure 6 (a) over the tiny ring: a window for 1 Gb/s carries that much, and somewhat more.
#[test]
fn nlr_tcp() {
    let cell = Cell {
        name: "nlr-tcp",
        only: "without jitter",
        replace: &[("time = \"6s\"", "time = \"2s\""), ("omit = \"2s\"", "omit = \"500ms\"")],
        reappear: &[],
        turn: alone,
    };
    let Some((result, _)) = cell.run() else { return };
    let [reno, vegas] =
        ["reno", "vegas"].map(|cc| mean(&result, "tcp", "Tiny ring, without jitter", cc, "goodput_bps"));
    assert!((1e8..1.5e9).contains(&reno) && (1e7..1.5e9).contains(&vegas), "{reno} {vegas}");
}

/// Section 3.4: each packet alone, polled and not.
#[test]
fn nlr_batching_tcp() {
    let cell = Cell {
        name: "nlr-batching-tcp",
        only: "alone",
        replace: &[("time = \"3s\"", "time = \"1500ms\""), ("omit = \"1s\"", "omit = \"500ms\"")],
        reappear: &[],
        turn: alone,
    };
    let Some((result, page)) = cell.run() else { return };
    // The paper's 1.9 and 3 Gb/s beside ours.
    for paper in ["here - paper", ">1900.0<", ">3000.0<"] {
        assert!(page.contains(paper), "{paper}: {page}");
    }
    for label in ["cubic, not polled", "cubic, polled every 125us"] {
        let goodput = mean(&result, "tcp", "Each packet alone", label, "goodput_bps");
        assert!(goodput > 1e7, "{label}: {goodput}");
    }
}

/// A flow that changes its control: what the next one has of what the first one had.
#[test]
fn datatag_switch() {
    let cell = Cell {
        name: "datatag-switch",
        only: "one flow",
        replace: &[
            ("rate=1Gbit", "rate=400Mbit"),
            ("delay=20ms", "delay=5ms"),
            ("every(30000)", "every(3000)"),
            (":14s", ":3s"),
            ("time = \"42s\"", "time = \"9s\""),
            ("omit = \"5s\"", "omit = \"1s\""),
        ],
        reappear: &[],
        turn: side_by_side,
    };
    let Some((result, _)) = cell.run() else { return };
    let steps = |quantity: &str| mean(&result, "tcp", "One flow", "reno:3s,scalable:3s,highspeed:3s", quantity);
    // Of one loss in 3,000 packets Reno has 67 packets, and Scalable 225, once it has grown.
    let scalable = steps("second_step_times_first");
    assert!((1.2..5.0).contains(&scalable), "{scalable}");
    assert!(steps("third_step_times_first") < scalable);
}

/// A tenth of a transfer: a queue of the device that holds a window's burst.
#[test]
fn datatag_transfers() {
    let cell = Cell {
        name: "datatag-transfers",
        only: "reno",
        replace: &[
            ("bytes = \"40M\"", "bytes = \"4M\""),
            ("quick = [\"reno × 1\", \"reno × 16\"]", "quick = [\"reno × 1\"]"),
        ],
        reappear: &["A larger device queue makes one flow faster"],
        turn: side_by_side,
    };
    cell.run();
}

/// Two flows of Reno, one of which has five times the round trip.
#[test]
fn datatag_fairness() {
    let cell = Cell {
        name: "datatag-fairness",
        only: "10 and 50",
        replace: &[("time = \"10s\"", "time = \"6s\""), ("omit = \"3s\"", "omit = \"1s\"")],
        reappear: &["Of two standard flows the one with the shorter round trip gets more"],
        turn: side_by_side,
    };
    cell.run();
}

/// A flow of Scalable and one of Reno, each beside eight of Reno, at a quarter of the rate. In five seconds, less than Reno takes to recover from a loss, it
/// is chance which of them gets more.
#[test]
fn datatag_one_against_n() {
    let cell = Cell {
        name: "datatag-one-against-n",
        only: "one flow",
        replace: &[
            ("rate=400Mbit", "rate=100Mbit"),
            ("queue=1MiB", "queue=256KiB"),
            (
                "\"reno, beside 8\", \"highspeed, beside 8\", \"scalable, beside 8\"",
                "\"reno, beside 8\", \"scalable, beside 8\"",
            ),
        ],
        reappear: &[],
        turn: side_by_side,
    };
    let Some((result, _)) = cell.run() else { return };
    let [reno, scalable] = ["reno, beside 8", "scalable, beside 8"]
        .map(|label| mean(&result, "tcp", "One flow beside n of Reno", label, "times_beside"));
    println!("of eight of Reno: Reno {reno:.3}, Scalable {scalable:.3}");
    assert!(reno > 0.0 && scalable > reno, "{reno} {scalable}");
}

/// What a flow has without a large window: a window each round trip.
#[test]
fn datatag_record() {
    let cell = Cell {
        name: "datatag-record",
        only: "without a large",
        replace: &[("time = \"5s\"", "time = \"3s\"")],
        reappear: &["Without a large window"],
        turn: side_by_side,
    };
    cell.run();
}

/// Figures 10 and 11 at a tenth of the round trip and a quarter of the rate, and so at a fortieth of the windows.
#[test]
fn tapee() {
    let cell = Cell {
        name: "tapee",
        only: "real path,pseudo path by window",
        replace: &[
            ("name = \"Pseudo path, by window\"", "name = \"Pseudo path by window\""),
            ("\"Pseudo path, by window, ", "\"Pseudo path by window, "),
            ("\"wan.rate=185.6Mbit\"", "\"wan.rate=46.4Mbit\", \"wan.delay=25ms\""),
            ("\"client.rate=200Mbit\", \"server.rate=200Mbit\"", "\"client.rate=50Mbit\", \"server.rate=50Mbit\""),
            ("switches.coalesce=1ms", "switches.coalesce=4ms"),
            ("time = \"12s\"", "time = \"3s\""),
            ("omit = \"7s\"", "omit = \"1500ms\""),
            ("\"1M\", \"2M\", \"4M\", \"14M\"", "\"32K\", \"64K\", \"512K\""),
            ("[\"1MiB\", \"14MiB\"]", "[\"64KiB\", \"512KiB\"]"),
            (", 1MiB\"", ", 64KiB\""),
            (", 14MiB\"", ", 512KiB\""),
            ("window = \"14M\"", "window = \"512K\""),
        ],
        reappear: &["On the pseudo path acknowledgments come as they left"],
        turn: alone,
    };
    let Some((_, page)) = cell.run() else { return };
    assert!(page.contains("Times between acknowledgments over time"), "{page}");
    // Real path and two windows, at both ends each.
    assert_eq!(page.matches("<canvas class=\"heat\"").count(), 6);
}

/// The user's own mix, and the gain by the filter, which is more than nothing and less than wonder.
#[test]
fn nima_with_an_own_mix() {
    let _alone = alone();
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("sending a mix takes root");
        return;
    }
    let folder = Folder::new("nima");
    let mix = folder.0.join("ours.toml");
    let own = "name = \"ours\"\nsize = 300\n[[class]]\nkind = \"stream\"\nweight = 10\n[[class]]\nkind = \"udp\"\nweight = 90\n";
    fs::write(&mix, own).unwrap();
    let text = fs::read_to_string(root().join("experiments/nima.toml")).unwrap();
    assert!(text.contains("time = \"500ms\""), "{text}");
    let file = folder.0.join("cell.toml");
    fs::write(&file, text.replace("time = \"500ms\"", "time = \"200ms\"")).unwrap();
    let (file, mix_file) = (file.to_str().unwrap(), mix.to_str().unwrap());
    let chosen = ["lab", "run", file, "--only", "64 bytes", "--quick", "--mix", mix_file, "--json"];
    let plan = object(&longhaul(&[&chosen[..], &["--plan"]].concat()).stdout);
    let planned = &plan["result"];
    assert_eq!(
        (&planned["runs"], &planned["series"][0]["points"]),
        (&json!(18), &json!(["1000", "as fast as it goes"]))
    );
    let output = folder.0.join("results");
    let once = ["--repeat", "1", "--tries", "1", "-o", output.to_str().unwrap()];
    let ran = longhaul(&[&chosen[..], &once].concat());
    assert!(ran.status.success(), "{ran:?}");
    let result = object(&ran.stdout);
    assert_eq!(result["parameters"]["mix"], "ours");
    let net = |series: &str| mean(&result, "mix", series, "as fast as it goes", "receiver_time_ns");
    let gain = net("64 bytes, without a filter") / net("64 bytes, filter");
    let findings = result["result"]["findings"].as_array().unwrap();
    println!("nima: {}", findings[0]["why"]);
    assert_eq!(findings.len(), 3, "{findings:#?}");
    assert!(findings[1]["why"].as_str().unwrap().ends_with("was not run"), "{findings:#?}");
    assert!((0.9..10.0).contains(&gain), "{gain}: {findings:#?}");
    let kept = fs::read_to_string(output.join("runs.jsonl")).unwrap();
    assert_eq!(kept.lines().filter(|line| line.contains("\"kind\":\"mix\"")).count(), 6, "{kept}");

    // Two runs more of each point go on from there, and the page is made once more of what was saved.
    let more = ["--repeat", "3", "--tries", "1", "-o", output.to_str().unwrap(), "--resume"];
    let ran = longhaul(&[&chosen[..], &more].concat());
    assert!(ran.status.success(), "{ran:?}");
    let result = object(&ran.stdout);
    for point in result["result"]["mix"].as_array().unwrap().iter().flat_map(|one| one["points"].as_array().unwrap()) {
        let all = [&point["runs"], &point["rejected"]].map(|runs| runs.as_array().unwrap().len());
        assert_eq!(all.iter().sum::<usize>(), 3, "{point:#}");
    }
    let again = folder.0.join("again.html");
    let shown = longhaul(&["report", output.to_str().unwrap(), "--html", again.to_str().unwrap()]);
    assert!(shown.status.success() && String::from_utf8(shown.stdout).unwrap().contains("frames per CPU second"));
    let pages = [&output.join("report.html"), &again].map(|page| fs::read_to_string(page).unwrap());
    assert!(pages[0] == pages[1], "of the result comes the same page");
    let foreign = longhaul(&["lab", "run", "nlr-tcp", "--mix", mix_file]);
    assert_eq!(foreign.status.code(), Some(2), "{foreign:?}");
}

/// Ctrl-C among the runs of a mix: what was measured is written, and the page says that it is not all.
#[test]
fn a_mix_that_is_interrupted_says_so() {
    let _alone = alone();
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("sending a mix takes root");
        return;
    }
    let folder = Folder::new("mix-interrupted");
    let output = folder.0.join("results");
    let experiment = root().join("crates/longhaul/tests/one-mix.toml");
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["lab", "run", experiment.to_str().unwrap(), "--repeat", "1000", "-o", output.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let told = lines.by_ref().map(Result::unwrap).find(|line| line.contains(" frames/s")).unwrap();
    assert!(told.contains("/4000, ") && told.contains(" left] ") && told.contains(", run 1: "), "{told}");
    Process::open(run.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    lines.for_each(drop);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let result = object(&fs::read(output.join("result.json")).unwrap());
    assert_eq!(result["result"]["interrupted"], true);
    assert!(fs::read_to_string(output.join("report.html")).unwrap().contains("was interrupted"));
    assert!(fs::read_to_string(output.join("runs.jsonl")).unwrap().contains("\"kind\":\"mix\""));
}

/// All quick experiments together take 40 minutes at most, as each says by `--plan`: what is before the first run included. A plan knows of no run that
/// this machine will spoil: the runs that are rejected and made again come on top, and no test bounds those.
#[test]
fn each_experiment_says_its_quick_points_and_all_are_within_forty_minutes() {
    let mut all = 0.0;
    for name in longhaul_experiment::names().filter(|name| *name != "faults") {
        let output = longhaul(&["lab", "run", name, "--quick", "--plan", "--json"]);
        assert!(output.status.success(), "{name}: {output:?}");
        let plan = object(&output.stdout);
        let seconds = plan["result"]["time_ns"].as_f64().unwrap() / 1e9;
        println!("{name}: {} runs, {seconds:.0} s", plan["result"]["runs"]);
        assert!(plan["result"]["runs"].as_u64() > Some(0) && seconds > 1.0, "{plan:#}");
        all += seconds;
    }
    println!("all: {all:.0} s");
    assert!(all <= 2400.0, "{all} s");
}

/// Both halves of `make demo`, by their plans: a run that this machine spoils is made again on top of that.
#[test]
fn the_demo_is_planned_for_three_minutes() {
    let halves = ["nlr-udp-loss".into(), root().join("experiments/demo-tcp.toml").display().to_string()];
    let seconds = halves.map(|experiment| {
        let output = longhaul(&["lab", "run", &experiment, "--quick", "--plan", "--json"]);
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)["result"]["time_ns"].as_f64().unwrap() / 1e9
    });
    assert!(seconds.iter().sum::<f64>() <= 180.0, "{seconds:?}");
}

/// Netem is in a guest's kernel alone: the emulators are in `tests/endpoint/guests`. NIMA has tests of its own here.
#[test]
fn each_experiment_has_a_cell() {
    let others = ["emulators", "emulators-tcp", "nima", "faults"];
    for name in longhaul_experiment::names().filter(|name| !others.contains(name)) {
        let has_cell = include_str!("papers.rs").contains(&format!("        name: \"{name}\",\n"));
        assert!(has_cell, "{name} has no cell");
    }
}
