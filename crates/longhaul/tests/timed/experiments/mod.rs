//! Experiments: what they measure, what they leave behind, and their report in a browser.

mod calibrated;
mod killed;
mod lacking;
mod over_time;
mod papers;
mod programs;
mod refused;
mod set_hosts;
mod warm_up;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::browser::{Browser, axe};
use crate::common::page::{fits, pictures, same_pages};
use crate::common::{alone, longhaul, object, root, side_by_side};
use longhaul_kernel::capability;
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::schedule::allowed_cpus;
use longhaul_lab::orphans;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::{Value, json};

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unprivileged() -> bool {
    let skip = !capability::is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("polling a receiver's ring takes root (CAP_NET_ADMIN, CAP_SYS_ADMIN)");
    }
    skip
}

/// Each point once, whatever this machine does meanwhile.
const ONCE: [&str; 4] = ["--repeat", "1", "--tries", "1"];

/// The one run of each point of a series, whether it counts or not.
fn only_runs(series: &Value) -> Vec<Value> {
    let run = |point: &Value| {
        let all = [&point["runs"], &point["rejected"]].map(|runs| runs.as_array().unwrap().clone()).concat();
        assert_eq!(all.len(), 1, "{point:#}");
        all[0].clone()
    };
    series["points"].as_array().unwrap().iter().map(run).collect()
}

/// Fails unless `report` draws of the result what the experiment drew over time.
fn is_drawn_again(folder: &Folder) {
    let again = folder.file("again.html");
    let output = longhaul(&["report", folder.0.to_str().unwrap(), "--html", again.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let [page, again] = [folder.file("report.html"), again].map(|file| {
        let page = fs::read_to_string(file).unwrap();
        page.split_once("<h2>Over time</h2>").unwrap().1.split("<h2>").next().unwrap().to_owned()
    });
    same_pages("over time", &page, &again);
}

/// Runs the three places and returns the result; the folder has the report.
fn three_places(folder: &Folder) -> Value {
    let experiment = root().join("crates/longhaul/tests/three-places.toml");
    let folder_name = folder.0.to_str().unwrap();
    let output = longhaul(
        &[&["lab", "run", experiment.to_str().unwrap(), "-o", folder_name, "--realtime", "10"], &ONCE[..]].concat(),
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for said in ["Everything at once", "receive ring", "socket buffer", "report.html"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    object(&fs::read(folder.file("result.json")).unwrap())
}

#[test]
fn each_place_is_provoked_and_the_report_shows_it() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("three-places");
    let result = three_places(&folder);
    let runs = only_runs(&result["result"]["udp"][0]);
    let lost = |run: usize, place: &str| runs[run]["result"]["loss_by_location"][place].as_u64().unwrap();
    for (number, run) in runs.iter().enumerate() {
        let (sent, received) = (&run["result"]["sent_packets"], &run["result"]["received_packets"]);
        let all: u64 = run["result"]["loss_by_location"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(sent.as_u64().unwrap(), received.as_u64().unwrap() + all, "{run:#}");
        // Control packets are on the path as well, so a tenth is not exact.
        let tenth = sent.as_u64().unwrap() / 10;
        assert!(lost(number, "network").abs_diff(tenth) <= tenth / 10 + 5, "{run:#}");
        assert_eq!(run["result"]["location_method"], "bpf");
    }
    assert!(lost(1, "receiver_ring") > 0, "{:#}", runs[1]);
    assert!(lost(1, "receiver_socket_buffer") > 0, "{:#}", runs[1]);
    // Over time, too, each packet is at its place.
    for run in &runs {
        let (over_time, found) = (&run["over_time"], &run["result"]);
        assert_eq!(Some(over_time::sum(&over_time["sent_packets"])), found["sent_packets"].as_u64(), "{run:#}");
        for (place, packets) in found["loss_by_location"].as_object().unwrap() {
            let there = &over_time["lost_packets"][place];
            let lost = if there.is_null() { 0 } else { over_time::sum(there) };
            assert_eq!(Some(lost), packets.as_u64(), "{place}: {run:#}");
        }
    }
    let links = result["hosts"]["server"]["interfaces"].as_array().unwrap();
    assert_eq!((links.len(), &links[1]["name"]), (2, &json!("eth0")), "a host sees its own interfaces");
    assert_eq!(links[1]["gro_flush_timeout_ns"], 20_000_000, "and how they are set");
    is_drawn_again(&folder);

    let Some(mut browser) = Browser::start(&folder.0) else { return };
    let (report, axe) = (format!("file://{}", folder.file("report.html").display()), axe());
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    // This machine may have spoiled one.
    let place = |point: usize, rate: &str| {
        let counts = !result["result"]["udp"][0]["points"][point]["runs"].as_array().unwrap().is_empty();
        format!("Packets lost, by location: {rate} Mb/s{}", if counts { "" } else { " (rejected)" })
    };
    let (slow, fast) = (place(0, "10"), place(1, "40"));
    let over_time = ["Received", "Share lost", &slow, &fast];
    for (width, mobile) in [(1280, false), (400, true)] {
        browser.open(&report, width, mobile);
        over_time::are_drawn(&mut browser, &page, &over_time);
        let seen = browser.evaluate(LOOK);
        assert_eq!(seen["title"], "Three places");
        assert_eq!(seen["bars"], json!(["10000000", "40000000"]), "a bar for each rate: {seen:#}");
        assert!(seen["verdict"].as_str().unwrap().contains("“Everything at once” at "), "{seen:#}");
        let pieces = seen["pieces"].as_array().unwrap();
        // What a bar shows is what was measured: the heights of its pieces are as their packets.
        for (piece, place) in pieces.iter().zip(["network", "receiver_ring", "receiver_socket_buffer"]) {
            assert_eq!(piece["place"], place, "in the order of travel: {seen:#}");
            let scale = piece["height"].as_f64().unwrap() / lost(1, place) as f64;
            let first = pieces[0]["height"].as_f64().unwrap() / lost(1, "network") as f64;
            assert!((scale / first - 1.0).abs() < 0.05, "{seen:#}");
        }
        assert_eq!(pieces.len(), 3, "{seen:#}");
        assert_eq!(seen["legend"], json!(["network", "receiver_ring", "receiver_socket_buffer"]));
        assert_eq!(seen["rows"].as_array().unwrap().len(), 2);
        for place in ["network", "receiver_ring", "receiver_socket_buffer"] {
            let cells = seen["rows"][1].as_array().unwrap();
            let percent = lost(1, place) as f64 * 100.0 / runs[1]["result"]["sent_packets"].as_f64().unwrap();
            assert!(cells.contains(&json!(format!("{percent:.3}"))), "the table has {place}: {seen:#}");
        }
        assert_eq!(seen["width"], width, "{seen:#}");
        assert_eq!(seen["wider"], json!([]), "nothing is wider than the window of {width}");
        fits(&mut browser, &report, width, axe.as_deref());
        assert_eq!(browser.requests(), std::slice::from_ref(&report), "nothing comes from elsewhere");
    }
    pictures(&mut browser, &report, "three-places");
}

#[test]
fn tcp_has_its_table_and_its_page() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("two-flows");
    let experiment = root().join("crates/longhaul/tests/two-flows.toml");
    // A bound that the emulator cannot keep: each run is rejected, and each point doubtful.
    let bound = ["--lateness-bound", "1ns", "--repeat", "1", "--tries", "1"];
    let command = ["lab", "run", experiment.to_str().unwrap(), "-o", folder.0.to_str().unwrap()];
    let output = longhaul(&[&command[..], &bound].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for said in [
        "Alone, one packet lost in 200",
        "expected",
        "Beside another",
        "limited by",
        "0 (1 rejected), doubtful",
        "report.html",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    let cpus = allowed_cpus().unwrap();
    let own = if cpus.len() > 1 { &cpus[cpus.len() - 1..] } else { &[] };
    assert_eq!(result["parameters"]["lab"]["cpus"], json!(own), "{text}");
    assert_eq!(text.contains("to itself"), !own.is_empty(), "{text}");
    let series = result["result"]["tcp"].as_array().unwrap();
    let alone = &only_runs(&series[0])[0];
    // A window of some 17 packets, each 10 ms; by how much it is met is for the tests of the controls to say.
    let expected = alone["expected_bps"].as_f64().unwrap() / 1e6;
    assert!((5.0..40.0).contains(&expected), "{alone:#}");
    let again = alone["flows"]["result"]["retransmits"].as_u64();
    assert!(again > Some(2) && alone["beside"].is_null(), "{alone:#}");
    let over_time = &alone["over_time"];
    assert_eq!(Some(over_time::sum(&over_time["retransmitted_packets"])), again, "{over_time:#}");
    let windows = over_time["cwnd_bytes"]["values"].as_array().unwrap().iter().filter_map(Value::as_u64);
    assert_eq!(windows.max(), alone["flows"]["result"]["streams"][0]["max_cwnd_bytes"].as_u64(), "{over_time:#}");
    for (number, run) in only_runs(&series[1]).iter().enumerate() {
        assert_eq!(series[1]["points"][number]["label"], ["reno", "cubic"][number]);
        assert!(run["expected_bps"].is_null() && run["why"]["code"].is_string(), "{run:#}");
        assert_eq!(run["beside"]["host"], "far");
        // 536 with time stamps.
        assert_eq!(run["beside"]["result"]["streams"][0]["mss_bytes"], 524, "{run:#}");
        let rates = [&run["flows"], &run["beside"]].map(|flows| flows["result"]["goodput_bps"].as_u64().unwrap());
        assert!(rates.iter().all(|rate| *rate > 100_000) && rates[0] + rates[1] < 110_000_000, "{rates:?}");
    }
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    assert!(page.contains("its own CPU (--cpu, --spin, --realtime)"), "a page names flags: {page}");
    // Each of three in two figures: what it carried, and where it lost.
    assert_eq!(page.matches("class=\"bar doubtful\"").count(), 6, "{page}");
    assert!(page.contains("3 points are doubtful") && page.contains("Rejected runs, "), "{page}");
    assert!(
        page.contains("the flows that share the path") && page.contains("expected by the response function"),
        "{page}"
    );
    is_drawn_again(&folder);
    let Some(mut browser) = Browser::start(&folder.0) else { return };
    let (report, axe) = (format!("file://{}", folder.file("report.html").display()), axe());
    let own = ["Goodput", "Congestion window", "Round trip", "Retransmissions", "What limits reno (rejected)"];
    let beside = ["Goodput of the flows beside"];
    // What the hosts dropped, if they did, is drawn as the result has it.
    let dropped = |series: usize, points: &[&'static str]| -> Vec<&'static str> {
        let runs = only_runs(&result["result"]["tcp"][series]);
        let some = runs.iter().zip(points).filter(|(run, _)| !run["over_time"]["dropped_packets"].is_null());
        some.map(|(_, title)| *title).collect()
    };
    let at_hosts =
        ["Dropped by the hosts, by location: reno (rejected)", "Dropped by the hosts, by location: cubic (rejected)"];
    let (first, second) = (dropped(0, &at_hosts), dropped(1, &at_hosts));
    let limits = ["What limits cubic (rejected)"];
    let titles = [&own[..], &first[..], &own[..1], &beside[..], &own[1..], &limits[..], &second[..]].concat();
    for (width, mobile) in [(1280, false), (400, true)] {
        browser.open(&report, width, mobile);
        over_time::are_drawn(&mut browser, &page, &titles);
        let seen = browser.evaluate(LOOK);
        assert_eq!((&seen["title"], &seen["wider"]), (&json!("Two flows"), &json!([])), "{seen:#}");
        fits(&mut browser, &report, width, axe.as_deref());
    }
    pictures(&mut browser, &report, "two-flows");
}

/// Each setting is what the hosts had, each way to load the path is what the path carried, and findings are judged by that.
#[test]
fn settings_of_the_hosts_hold_and_findings_are_judged() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("settings");
    let experiment = root().join("crates/longhaul/tests/settings.toml");
    let command = ["lab", "run", experiment.to_str().unwrap(), "-o", folder.0.to_str().unwrap()];
    let refused = longhaul(&command);
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--commands"),
        "{refused:?}"
    );
    let output = longhaul(&[&command[..], &ONCE[..], &["--commands"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    let series = result["result"]["tcp"].as_array().unwrap();

    let stream = |run: &Value| run["flows"]["result"]["streams"][0].clone();
    let (mtus, labels) = (only_runs(&series[0]), series[0]["points"].as_array().unwrap());
    for (number, (version, headers)) in [(4, 40), (6, 60), (4, 40), (6, 60)].into_iter().enumerate() {
        let mtu = [1500, 1500, 9000, 9000][number];
        assert_eq!(labels[number]["label"], format!("cubic, MTU {mtu}, IPv{version}"));
        // Without time stamps a segment is the MTU without headers.
        assert_eq!(stream(&mtus[number])["mss_bytes"], mtu - headers, "{:#}", mtus[number]);
        assert_eq!(stream(&mtus[number])["receiver_address"].as_str().unwrap().contains(':'), version == 6);
    }
    let seen = &result["hosts"]["client"]["interfaces"][1];
    assert_eq!(
        series[0]["hosts"],
        json!(["txqueuelen 1000", "qdisc pfifo", "offloads off", "time stamps off"]),
        "{seen:#}"
    );

    for (number, run) in only_runs(&series[1]).iter().enumerate() {
        assert_eq!(run["beside"]["result"]["streams"].as_array().unwrap().len(), [1, 3][number]);
        assert_eq!(stream(run)["congestion_control"], "reno,cubic", "a schedule: {run:#}");
        let steps = run["steps"].as_array().unwrap();
        assert_eq!((steps.len(), &steps[0]["control"], &steps[1]["control"]), (2, &json!("reno"), &json!("cubic")));
        assert!(steps.iter().all(|step| step["goodput_bps"].as_u64() > Some(50_000)), "{steps:#?}");
        let switches = run["over_time"]["switches"].as_array().unwrap();
        assert_eq!((switches.len(), &switches[0]["control"]), (1, &json!("cubic")), "{switches:#?}");
    }
    let transfers = only_runs(&series[2]);
    assert_eq!(transfers.len(), 4);
    for run in &transfers {
        assert_eq!(run["flows"]["result"]["bytes"], 2 << 20, "{run:#}");
        // 2 MiB at 50 Mb/s.
        assert!(run["flows"]["result"]["duration_ns"].as_u64() > Some(320_000_000), "{run:#}");
    }
    let captured = &only_runs(&series[3])[0]["packets"];
    let mean = captured["sent"]["mean_bps"].as_f64().unwrap();
    // The path has 50 Mb/s; slow start is in the mean.
    assert!((25e6..50e6).contains(&mean) && captured["sent"]["intervals"].as_u64() > Some(500), "{captured:#}");
    let acks = [&captured["acks_at_receiver"]["count"], &captured["acks_at_sender"]["count"]];
    assert!(acks.iter().all(|acks| acks.as_u64() > Some(300)), "{captured:#}");
    // What is drawn over time has the highest rate of all.
    let rates = &captured["rates"];
    let most = rates["most_1ms_bps"].as_array().unwrap().iter().filter_map(Value::as_u64).max();
    assert_eq!(most.map(|most| most as f64), captured["sent"]["peak_bps"].as_f64(), "{rates:#}");
    // The connection, whose first 300 ms are omitted, was there shortly before its first sample.
    let begins_ns = rates["begins_ns"].as_i64().unwrap();
    assert!((-5_000_000_000..=300_000_000).contains(&begins_ns), "{rates:#}");
    let iperf3 = &only_runs(&series[4])[0];
    if iperf3["error"].is_null() {
        assert!(iperf3["program"]["bytes"].as_u64() > Some(2_000_000), "{iperf3:#}");
        assert!(iperf3["program"]["goodput_bps"].as_u64() < Some(50_000_000), "{iperf3:#}");
    } else {
        longhaul_testing::no_judge!("iperf3 does not run here");
    }
    // The client offers it in its SYN, and both ends use it, or neither.
    for (number, run) in only_runs(&series[5]).iter().enumerate() {
        assert_eq!(series[5]["points"][number]["label"], ["reno, SACK on", "reno, SACK off"][number]);
        let handshake = &stream(run)["handshake"];
        let seen = ["/syn_received/sack_permitted", "/client_options/sack", "/server_options/sack"]
            .map(|place| handshake.pointer(place).and_then(Value::as_bool));
        assert_eq!(seen, [Some(number == 0); 3], "{handshake:#}");
    }

    let findings = result["result"]["findings"].as_array().unwrap();
    assert_eq!(findings[0]["verdict"], "reappeared", "{findings:#?}");
    assert_eq!(
        (&findings[1]["verdict"], &findings[1]["sure"]),
        (&json!("did_not_reappear"), &json!(false)),
        "{findings:#?}"
    );
    // Whether a point is doubtful is for this machine to say, and whether it is sure, for the runs.
    let summary = text.replace(" in doubtful points", "").replace(" with low confidence", "");
    assert!(summary.contains("Of 2 findings of the source, 1 reappeared; 1 did not reappear."), "{text}");
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    assert!(page.contains("data-verdict=\"did not reappear\"") && page.contains("Single packets"), "{page}");
    for said in ["data-figure=\"Rate, ", "average over 1 s", "control switched"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let Some(mut browser) = Browser::start(&folder.0) else { return };
    let report = format!("file://{}", folder.file("report.html").display());
    over_time::zooms_with_captured(&mut browser, (&report, &page), rates);
    pictures(&mut browser, &report, "settings");
}

/// A plan is JSON as well, and runs nothing.
#[test]
fn a_plan_can_be_read_by_programs() {
    let output = longhaul(&["lab", "run", "nlr-tcp", "--quick", "--plan", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let plan = object(&output.stdout);
    assert_eq!(plan["schema"], "longhaul.lab.run.plan/1");
    let series = plan["result"]["series"].as_array().unwrap();
    assert_eq!(series[0]["runs_of_each"], 3);
    let sum: u64 = series.iter().map(|series| series["points"].as_array().unwrap().len() as u64 * 3).sum();
    assert_eq!(plan["result"]["runs"], sum);
    assert!(plan["result"]["time_ns"].as_u64() > Some(30_000_000_000), "{plan:#}");
    // Warming up counts, and so does finding out what this machine can do.
    let times = |words: &[&str]| {
        let output = longhaul(&[&["lab", "run", "nlr-udp-loss", "--quick", "--plan", "--json"], words].concat());
        let result = object(&output.stdout)["result"].clone();
        let of = |value: &Value| value["time_ns"].as_u64().unwrap();
        let series: u64 = result["series"].as_array().unwrap().iter().map(of).sum();
        let before = result["before_ns"].as_u64().unwrap();
        assert_eq!(of(&result), series + before, "{result:#}");
        before
    };
    let (calibrated, full) = (times(&[]), times(&["--full"]));
    assert!(
        (1_000_000_000..2_000_000_000).contains(&full) && calibrated > full + 10_000_000_000,
        "{calibrated} {full}"
    );
}

/// A plan says where the emulator would run.
#[test]
fn a_plan_has_the_emulators_cpu() {
    let plan = |words: &[&str]| {
        let output = longhaul(&[&["lab", "run", "--plan"][..], words].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = format!("the emulator has CPU {} to itself", allowed_cpus().unwrap().last().unwrap());
    assert_eq!(plan(&["nlr-tcp"]).contains(&said), allowed_cpus().unwrap().len() > 1, "{said}");
    for words in [&["nlr-tcp", "--share-cpus"][..], &["nlr-tcp", "--cpu", "0"], &["nlr-udp-loss"]] {
        let plan = plan(words);
        assert!(!plan.contains("to itself"), "{words:?}: {plan}");
    }
}

/// A minute for each rate, as the papers had, lasts longer than the short form; where there are no other sizes the command says so.
#[test]
fn full_says_where_it_changes_nothing() {
    let plan = |words: &[&str]| {
        let output = longhaul(&[&["lab", "run"], words, &["--plan", "--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        output
    };
    for (name, changes) in [("tapee", false), ("emulation-matrix", true), ("nlr-tcp", true), ("nima", true)] {
        let [short, output] = [plan(&[name]), plan(&[name, "--full"])];
        let [lasts, lasts_full] = [&short, &output].map(|plan| object(&plan.stdout)["result"]["time_ns"].as_u64());
        assert_eq!(lasts_full > lasts.map(|ns| ns * 5), ["nlr-tcp", "nima"].contains(&name), "{name}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), usize::from(!changes), "{said}");
        assert_eq!(said.contains("--full changes nothing here"), !changes, "{said}");
    }
}

/// The same tests between two hosts that are no lab of the command: nothing is set, nothing is emulated, and the page says so.
#[test]
fn an_experiment_runs_between_real_hosts() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("real-hosts");
    let lab = format!("real-{}", std::process::id());
    let up = longhaul(&["lab", "up", "nlr-tiny", "--name", &lab, "--set", "rate=30Mbit"]);
    assert!(up.status.success(), "{up:?}");
    let own = env!("CARGO_BIN_EXE_longhaul");
    let mut serve = Command::new(own);
    serve.args(["lab", "exec", "--name", &lab, "server", "--", own, "serve"]);
    let mut serve = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(serve.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening")));
    // What it says later must not fill the pipe.
    std::thread::spawn(move || said.for_each(drop));
    let experiment = root().join("crates/longhaul/tests/two-flows.toml");
    let run = [own, "lab", "run", experiment.to_str().unwrap(), "--server", "server", "-o", folder.0.to_str().unwrap()];
    let output = longhaul(&[&["lab", "exec", "--name", &lab, "client", "--"], &run[..], &ONCE[..]].concat());
    let _ = longhaul(&["lab", "down", "--name", &lab]);
    let _ = serve.kill();
    let _ = serve.wait();
    assert!(output.status.success(), "{output:?}");
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    assert_eq!(result["parameters"]["server"], "server");
    let series = result["result"]["tcp"].as_array().unwrap();
    assert_eq!(series.len(), 1, "what shares its path needs a lab: {series:#?}");
    let goodput = only_runs(&series[0])[0]["flows"]["result"]["goodput_bps"].as_u64().unwrap();
    assert!((1_000_000..30_000_000).contains(&goodput), "the path of the hosts, not of the file: {goodput}");
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    assert!(page.contains("measured between this host and server") && page.contains("Left out"), "{page}");
}

/// A result lists up to 10,000 runs of losses. Those of a test with more are in a file of its own, or a caveat says that they are not.
#[test]
fn losses_beyond_what_a_result_lists_are_in_a_file_or_a_caveat() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let experiment = root().join("crates/longhaul/tests/many-losses.toml");
    let run = |more: &[&str]| {
        let output = longhaul(&[&["lab", "run", experiment.to_str().unwrap(), "--json"], &ONCE[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        let printed = object(&output.stdout);
        let [many, few] = [0, 1].map(|series| only_runs(&printed["result"]["udp"][series])[0].clone());
        assert!(many["result"]["lost_packets"].as_u64() > Some(10_000), "{many:#}");
        assert_eq!(many["result"]["losses"], json!([]));
        let listed = few["result"]["losses"].as_array().unwrap().len();
        assert!((1..10_000).contains(&listed), "{listed}");
        assert_eq!((&few["result"]["losses_file"], raised(&few)), (&Value::Null, false));
        many
    };
    fn raised(run: &Value) -> bool {
        run["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "losses_not_listed")
    }

    let unsaved = run(&[]);
    assert_eq!((&unsaved["result"]["losses_file"], raised(&unsaved)), (&Value::Null, true), "{:#}", unsaved["caveats"]);

    let folder = Folder::new("many-losses");
    let saved = run(&["-o", folder.0.to_str().unwrap()]);
    assert_eq!((&saved["result"]["losses_file"], raised(&saved)), (&json!("losses-1-1-1.parquet"), false));
    let reader = SerializedFileReader::new(File::open(folder.file("losses-1-1-1.parquet")).unwrap()).unwrap();
    let rows: Vec<u64> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_ulong(2).unwrap()).collect();
    assert!(rows.len() > 10_000, "{}", rows.len());
    assert_eq!(Some(rows.iter().sum()), saved["result"]["lost_packets"].as_u64());
}

/// Packets that are due faster than a call sends one go in batches, and a run says so, as `longhaul udp` does.
#[test]
fn a_rate_that_is_kept_by_batches_is_a_caveat() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("kept-by-batches");
    let experiment = folder.file("rates.toml");
    let series = "[[udp]]\nname = 'x'\nrates = ['1M', '2G']\ntime = '200ms'\nlength = 100\nwire = false\n";
    fs::write(&experiment, format!("title = 'Rates'\npath = 'lan'\n{series}")).unwrap();
    let output = longhaul(&[&["lab", "run", experiment.to_str().unwrap(), "--json"], &ONCE[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let runs = only_runs(&object(&output.stdout)["result"]["udp"][0]);
    let raised =
        |run: &Value| run["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "offload_hides_spacing");
    assert_eq!(runs.iter().map(raised).collect::<Vec<_>>(), [false, true], "{runs:#?}");
}

/// What a page shows, as a browser laid it out.
const LOOK: &str = r#"(() => {
    const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
    const edge = document.documentElement.clientWidth;
    const visible = box => box.width > 0 && box.height > 0;
    return {
        title: document.querySelector("h1").textContent,
        verdict: document.querySelector(".verdict").textContent,
        bars: all("svg.plot .bar", bar => bar.dataset.rate),
        pieces: all("svg.plot .bar:last-of-type .piece", piece =>
            ({ place: piece.dataset.location, height: piece.getBoundingClientRect().height })),
        legend: all(".legend li[data-location]", item => item.dataset.location),
        rows: all("table.numbers tbody tr[data-row]", row => [...row.cells].map(cell => cell.textContent)),
        width: innerWidth,
        wider: [document.documentElement.scrollWidth > edge ? "page" : null].filter(Boolean).concat(
            all("body *:not(.live-canvas *)", element => [element.tagName, element.getBoundingClientRect()])
                .filter(([, box]) => visible(box) && (box.right > edge + 0.5 || box.left < -0.5)).map(([name]) => name)),
    };
})()"#;

#[test]
fn ctrl_c_writes_what_was_measured() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("ctrl-c");
    let file = folder.file("long.toml");
    let series = |name: &str, rates: &str, time: &str| {
        format!("[[udp]]\nname = '{name}'\nrates = [{rates}]\ntime = '{time}'\nlength = 200\nsockbuf = '4M'\n")
    };
    let (short, long) = (series("short", "'5M', '6M', '7M'", "100ms"), series("long", "'5M'", "10m"));
    fs::write(&file, format!("title = 'long'\npath = 'lan'\n{short}{long}")).unwrap();
    // With this seed the long test is not the first.
    let (mut run, mut lines) = started(&file, &folder, &["--repeat", "1", "--tries", "1", "--seed", "1"]);
    assert!(lines.by_ref().any(|line| line.unwrap().contains("short, ")), "a run is told when it was made");
    let pid = run.id();
    // The long test: a thread sends for longer than any other.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut sending = 0;
    while sending < 100 {
        assert!(Instant::now() < deadline, "waited for the sender");
        std::thread::sleep(Duration::from_millis(5));
        sending = if sends(pid) { sending + 1 } else { 0 };
    }
    Process::open(pid).unwrap().unwrap().signal(Signal::INT).unwrap();
    let began = Instant::now();
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(60), "it did not wait for the end of the test");
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    assert_eq!(result["result"]["interrupted"], true);
    let cut = &result["result"]["udp"][1]["points"][0]["runs"];
    assert_eq!(cut.as_array().unwrap().len(), 1, "{result:#}");
    assert!(cut[0]["result"]["received_packets"].as_u64() > Some(0), "{cut:#}");
    assert!(fs::read_to_string(folder.file("report.html")).unwrap().contains("was interrupted"));
    let kept = fs::read_to_string(folder.file("runs.jsonl")).unwrap();
    assert!(kept.contains("\"rate_bps\":") && !kept.contains("\"series\":1,"), "a cut run is made again: {kept}");
    let name = format!("run-{pid}");
    assert!(orphans::find().unwrap().iter().all(|orphan| orphan.lab != name), "nothing is left");
}

/// `lab run` of `file` with its folder, and the lines that it prints.
fn started(file: &Path, folder: &Folder, more: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["lab", "run", file.to_str().unwrap(), "-o", folder.0.to_str().unwrap()])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines();
    (run, lines)
}

/// What spoils a point each time is no chance: after one run's tries the others have one each.
#[test]
fn a_hopeless_point_is_not_tried_for_ever() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("hopeless");
    let file = folder.file("some.toml");
    fs::write(&file, "title = 'some'\npath = 'lan'\n[[udp]]\nname = 'some'\nrates = ['1M']\ntime = '100ms'\n").unwrap();
    let file = file.to_str().unwrap();
    let run = longhaul(&["lab", "run", file, "--repeat", "3", "--tries", "3", "--lateness-bound", "1ns"]);
    let said = String::from_utf8(run.stdout).unwrap();
    // A try that others spoiled says nothing about the point: the run after it has all of its tries, too.
    let by_others = ["other programs used", "a hypervisor gave"].iter().any(|why| said.contains(why));
    let rejected = |tries: u32| said.contains(&format!("0 ({tries} rejected), doubtful"));
    assert!(rejected(5) || (by_others && (rejected(7) || rejected(9))), "{said}");
}

/// Whether a thread of the process sends a test.
fn sends(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).any(|name| name.trim() == "send 0")
}
