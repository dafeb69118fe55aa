//! Congestion controls over emulated paths, as DataTAG and the NLR Rings paper saw them: who gets how much, and how long a loss
//! costs. What is expected comes from `longhaul_congestion`, the same that `longhaul cc table` prints.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{TestLab, alone, longhaul, object, side_by_side};
use longhaul_congestion::aimd::Model;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::program::Program;
use longhaul_units::Nanos;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::Value;

/// Payload of a segment: 1500 bytes less IPv4, TCP and time stamps.
const MSS_BYTES: f64 = 1448.0;
/// DataTAG's loss: one packet in so many.
const EVERY: u64 = 30_000;

/// A folder in /tmp that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A lab whose server answers tests, two at a time.
struct Tested {
    _server: Program,
    lab: TestLab,
    folder: Folder,
}

impl Tested {
    fn up(name: &str, path: &str) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs root, to load congestion controls");
            return None;
        }
        let folder = Folder::new(name);
        let file = folder.0.join("path.toml");
        fs::write(&file, path).unwrap();
        let lab = TestLab::up(name, file.to_str().unwrap())?;
        let serve = ["serve", "--sessions", "2"];
        let mut server = exec(&lab, "server", &serve).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
        Some(Self { _server: Program(server), lab, folder })
    }

    /// `longhaul tcp server` on `host`, started.
    fn start(&self, host: &str, options: &[&str]) -> Child {
        let test = [&["tcp", "server", "-4", "--json"], options].concat();
        exec(&self.lab, host, &test).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn tcp(&self, options: &[&str]) -> Flow {
        Flow::of(self.start("client", options))
    }
}

fn exec(lab: &TestLab, host: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["lab", "exec", host, "--name", &lab.name, "--", env!("CARGO_BIN_EXE_longhaul")]).args(arguments);
    command
}

/// What a test of one flow said.
#[derive(Debug)]
struct Flow {
    control: String,
    goodput_bps: f64,
    mean_window_packets: f64,
    mean_rtt: Nanos,
}

impl Flow {
    fn of(test: Child) -> Self {
        let output = test.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let result = &object(&output.stdout)["result"];
        let stream = &result["streams"][0];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}"));
        Self {
            control: stream["congestion_control"].as_str().unwrap().to_owned(),
            goodput_bps: number(&result["goodput_bps"]),
            mean_window_packets: number(&stream["mean_cwnd_bytes"]) / number(&stream["mss_bytes"]),
            mean_rtt: Nanos(number(&stream["mean_rtt_ns"]) as u64),
        }
    }
}

/// How far `seen` is from `expected`, as a share of it.
fn off(seen: f64, expected: f64) -> f64 {
    (seen / expected - 1.0).abs()
}

/// The window over time, from the samples of a saved test: seconds and packets.
fn windows(samples: &Path) -> Vec<(f64, f64)> {
    let reader = SerializedFileReader::new(File::open(samples).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let place =
        |name: &str| columns.iter().position(|column| column.name() == name).unwrap_or_else(|| panic!("{name}"));
    let (end, at, window) = (place("end"), place("at_ns"), place("snd_cwnd_packets"));
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    let rows = rows.filter(|row| row.get_string(end).unwrap() == "sender");
    let number = |row: &parquet::record::Row, place: usize| match row.get_ulong(place) {
        Ok(value) => value as f64,
        Err(_) => f64::from(row.get_uint(place).unwrap()),
    };
    rows.map(|row| (number(&row, at) / 1e9, number(&row, window))).collect()
}

/// DataTAG, one packet lost in 30,000 on a long path: Scalable and HighSpeed TCP hold windows that Reno cannot, each the one that
/// its response function says; and Reno takes as long to recover as the AIMD table says.
#[test]
fn windows_are_those_of_the_response_functions() {
    let _machine = alone();
    let path = format!(
        "[[forward]]\nrate = '3Gbit'\nqueue = '64MiB'\ndelay = '10ms'\nloss = {{ every = {EVERY} }}\n\
         [[backward]]\ndelay = '10ms'"
    );
    let labs = ["response", "response2"].map(|name| Tested::up(name, &path));
    let [Some(lab), Some(other)] = &labs else { return };
    let saved = lab.folder.0.join("reno");
    let judged = |lab: &Tested, name: &str, seconds: &str, keep: &[&str]| {
        let flow = lab.tcp(&[&["-C", name, "-t", seconds, "--omit", "5s"], keep].concat());
        assert!(flow.control == name || flow.control == format!("lh_{name}"), "{flow:?}");
        let expected = Model::named(name).unwrap().window_at(1.0 / EVERY as f64, flow.mean_rtt);
        let rate = expected * MSS_BYTES * 8.0 / flow.mean_rtt.as_secs_f64();
        println!("{flow:?}; {expected:.0} packets, {:.1} Mb/s expected", rate / 1e6);
        assert!(off(flow.mean_window_packets, expected) < 0.15, "{name}: {} packets", flow.mean_window_packets);
        assert!(off(flow.goodput_bps, rate) < 0.15, "{name}: {} bit/s", flow.goodput_bps);
        flow
    };
    // Reno loses a packet each 2.8 s here, so a mean over 17 s is over 6 cycles. HighSpeed, which does each 0.9 s, has a path of its own
    // beside it: the two use less of the machine than Scalable, which loses one each 0.25 s.
    let (reno, highspeed) = std::thread::scope(|scope| {
        let highspeed = scope.spawn(|| judged(other, "highspeed", "16s", &[]));
        (judged(lab, "reno", "22s", &["-o", saved.to_str().unwrap()]), highspeed.join().unwrap())
    });
    let scalable = judged(lab, "scalable", "11s", &[]);
    // Those that the kernel lacks were there for the test alone.
    let gone = || {
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        !available.contains("lh_scalable")
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gone() {
        assert!(Instant::now() < deadline, "lh_scalable is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(highspeed.goodput_bps > 2.0 * reno.goodput_bps, "{highspeed:?} {reno:?}");
    assert!(scalable.goodput_bps > 2.0 * highspeed.goodput_bps, "{scalable:?} {highspeed:?}");
    reno_recovers_in_time(&windows(&saved.join("samples.parquet")), reno.mean_rtt);
}

/// From each loss until the window is what it was: half of it in round trips (DataTAG's table, RFC 5681).
fn reno_recovers_in_time(windows: &[(f64, f64)], rtt: Nanos) {
    /// How much of the window is to be regained: the next loss may come a packet earlier than the one before.
    const REGAINED: f64 = 0.95;
    let mut recoveries = Vec::new();
    let (mut loss, mut peak) = (None, 0.0_f64);
    // By then the slow start's window is lost.
    for &(at, window) in windows.iter().filter(|(at, _)| *at > 8.0) {
        peak = peak.max(window);
        if window < 0.7 * peak && loss.is_none() {
            loss = Some((at, peak));
        }
        if let Some((since, before)) = loss
            && window >= REGAINED * before
        {
            let expected = Model::Reno.row(before, rtt).recovery_s * (REGAINED - 0.5) / 0.5;
            recoveries.push((before, at - since, expected));
            (loss, peak) = (None, window);
        }
    }
    println!("recoveries (packets, seconds, expected): {recoveries:.2?}");
    assert!(recoveries.len() >= 2, "{} recoveries", recoveries.len());
    for (peak, seconds, expected) in recoveries {
        assert!(off(seconds, expected) < 0.15, "{peak} packets regained in {seconds} s, {expected} s expected");
    }
}

/// The NLR Rings paper's figure 6: the variants are alike, and Vegas is low, as it takes a jitter of hundreds of microseconds for
/// a queue.
#[test]
fn vegas_gets_least() {
    let _alone = alone();
    let path = "[[both]]\nrate = '400Mbit'\nqueue = '256KiB'\ndelay = '8ms'\n\
                jitter = { law = 'normal', stddev = '300us', order = 'fifo' }";
    // Three at a time, each over a path of its own.
    let shares: [&[&str]; 3] = [
        &["vegas", "reno", "cubic", "bic"],
        &["highspeed", "scalable", "htcp", "hybla"],
        &["illinois", "yeah", "compound"],
    ];
    let labs = [0, 1, 2].map(|number| Tested::up(&format!("vegas{number}"), path));
    let [Some(_), Some(_), Some(_)] = &labs else { return };
    let rates: Vec<(&str, f64)> = std::thread::scope(|scope| {
        let runs = labs.iter().flatten().zip(shares).map(|(lab, names)| {
            let rate =
                |name: &&'static str| (*name, lab.tcp(&["-C", name, "-t", "5s", "--omit", "1s"]).goodput_bps / 1e6);
            scope.spawn(move || names.iter().map(rate).collect::<Vec<_>>())
        });
        runs.collect::<Vec<_>>().into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    println!("Mb/s: {rates:?}");
    let vegas = rates[0].1;
    for (name, rate) in &rates[1..] {
        assert!(*rate > 1.2 * vegas, "{name} {rate:.0} Mb/s, vegas {vegas:.0} Mb/s");
    }
}

/// DataTAG's fairness figures: of two Reno flows at one bottleneck the one with the longer round trip, and the one with the smaller
/// segments, get less.
#[test]
fn reno_favours_short_round_trips_and_large_segments() {
    let _machine = side_by_side();
    let path = "[[client]]\nname = 'near'\n[[client]]\nname = 'far'\ndelay = '20ms'\n\
                [[both]]\nrate = '100Mbit'\nqueue = '64KiB'\ndelay = '5ms'";
    let labs = ["rtts", "segments"].map(|name| Tested::up(name, path));
    let [Some(of_rtts), Some(of_segments)] = &labs else { return };
    let started = |lab: &Tested, one: (&str, &[&str]), other: (&str, &[&str])| {
        [one, other]
            .map(|(host, options)| lab.start(host, &[&["-C", "reno", "-t", "23s", "--omit", "3s"], options].concat()))
    };
    let rtts = started(of_rtts, ("near", &[]), ("far", &[]));
    let segments = started(of_segments, ("near", &[]), ("near", &["-M", "536"]));
    let [near, far] = rtts.map(|test| Flow::of(test).goodput_bps / 1e6);
    let [large, small] = segments.map(|test| Flow::of(test).goodput_bps / 1e6);
    println!("RTT 10 ms: {near:.1} Mb/s, RTT 50 ms: {far:.1} Mb/s");
    assert!(near > 2.0 * far, "RTT 10 ms: {near:.1} Mb/s, RTT 50 ms: {far:.1} Mb/s");
    println!("1448 bytes: {large:.1} Mb/s, 536 bytes: {small:.1} Mb/s");
    // 2.7 if both lost alike, and 1.5 here: a queue of bytes has room for a small packet more often than for a large one.
    assert!(large > 1.2 * small, "1448 bytes: {large:.1} Mb/s, 536 bytes: {small:.1} Mb/s");
}

/// A path becomes longer in mid-flow, from 20 to 60 ms, and nothing is queued. FAST takes the 40 ms for a queue until it forgets the RTT
/// that it knew, which is here after two seconds at most: then it has the path for itself, beside a flow that never forgets.
#[test]
fn a_flow_that_forgets_finds_a_longer_path() {
    let _machine = side_by_side();
    let path = "[[both]]\nrate = '200Mbit'\nqueue = '4MiB'\ndelay = '10ms'";
    let Some(lab) = Tested::up("longer", path) else { return };
    let names = ["a", "b"].map(|letter| format!("lt{}_{letter}", std::process::id()));
    for (name, base_rtt) in names.iter().zip(["base_rtt_ms=2000", "base_rtt_ms=0"]) {
        let load = ["cc", "load", "fast", "--as", name, "--set", "alpha=20", "--set", base_rtt];
        let loaded = longhaul(&load);
        assert!(loaded.status.success(), "{loaded:?}");
    }
    let saved = names.each_ref().map(|name| lab.folder.0.join(name));
    let tests = [0, 1].map(|one| {
        let folder = saved[one].to_str().unwrap();
        lab.start("client", &["-C", &names[one], "-t", "8s", "-o", folder])
    });
    // Both have found the short path by then.
    std::thread::sleep(Duration::from_secs(2));
    assert!(longhaul(&["lab", "set", "--name", &lab.lab.name, "delay=30ms"]).status.success());
    for test in tests {
        Flow::of(test);
    }
    for name in &names {
        longhaul(&["cc", "unload", name]);
    }
    let last = saved.map(|folder| {
        let windows = windows(&folder.join("samples.parquet"));
        let late: Vec<f64> = windows.iter().filter(|(at, _)| *at > 7.0).map(|(_, window)| *window).collect();
        late.iter().sum::<f64>() / late.len() as f64
    });
    let [forgets, never] = last;
    println!("windows after the change: {forgets:.0} packets, {never:.0} of the flow that never forgets");
    // α·60/40 = 30 packets, 6 Mb/s. The path takes 1000.
    assert!((15.0..60.0).contains(&never), "{never}");
    assert!(forgets > 3.0 * never, "{forgets}, {never}");
}

/// 100 Mb/s and 40 ms: a BDP of 500 kB.
fn wide_path(queue: &str, loss: &str) -> String {
    format!(
        "[[forward]]\nrate = '100Mbit'\nqueue = '{queue}'\ndelay = '20ms'\nloss = '{loss}'\n[[backward]]\ndelay = '20ms'"
    )
}

/// BBRv3 beside CUBIC, each alone on the path: where each hundredth packet is lost by chance, and where a queue of four BDPs could be filled. The
/// kernel's own BBR (v1), where it has it, is shown for comparison.
#[test]
fn bbr3_bears_loss_and_leaves_queues_empty() {
    let _machine = alone();
    let each = |name: &str, path: String, controls: &[&str], time: &str| -> Option<Vec<Flow>> {
        let lab = Tested::up(name, &path)?;
        let flows = controls.iter().map(|control| lab.tcp(&["-C", control, "-t", time, "--omit", "1s"]));
        Some(flows.inspect(|flow| println!("{name}: {flow:?}")).collect())
    };
    let own_bbr = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let lossy: &[&str] = if own_bbr.split_whitespace().any(|name| name == "bbr") {
        &["bbr3", "cubic", "bbr"]
    } else {
        &["bbr3", "cubic"]
    };
    let (lossy, deep) = std::thread::scope(|scope| {
        let lossy = scope.spawn(|| each("lossy", wide_path("500kB", "random(1%)"), lossy, "3s"));
        let deep = scope.spawn(|| each("deep", wide_path("2MB", "none"), &["bbr3", "cubic"], "4s"));
        (lossy.join().unwrap(), deep.join().unwrap())
    });
    let (Some(lossy), Some(deep)) = (lossy, deep) else { return };
    // By its draft a round trip takes 1 % away while it does not probe, which it does each 62nd: 82 % of the rate in virtual time, without
    // the emulator's other faults. CUBIC's response function has 4 %.
    assert!(lossy[0].control == "lh_bbr3" && lossy[0].goodput_bps > 60e6, "{lossy:?}");
    assert!(lossy[1].goodput_bps < 10e6, "{lossy:?}");
    // Its window is at most two BDPs and what comes in batches, of which a busy host makes many; CUBIC's fills the queue.
    let [ours, cubic] = [0, 1].map(|one| deep[one].mean_rtt.as_secs_f64());
    assert!(deep[0].goodput_bps > 75e6 && ours < 0.75 * cubic, "{deep:?}");
    assert!(deep[1].mean_rtt > Nanos::from_millis(100), "{deep:?}");
}

/// BBRv3 and CUBIC at one bottleneck with a queue of one BDP: neither goes without.
#[test]
fn bbr3_leaves_room_for_cubic() {
    let _machine = side_by_side();
    let Some(lab) = Tested::up("beside", &wide_path("500kB", "none")) else { return };
    let tests = ["bbr3", "cubic"].map(|control| lab.start("client", &["-C", control, "-t", "8s", "--omit", "2s"]));
    let [ours, cubic] = tests.map(|test| Flow::of(test).goodput_bps / 1e6);
    println!("BBRv3 {ours:.1} Mb/s, CUBIC {cubic:.1} Mb/s");
    assert!(ours > 10.0 && cubic > 5.0 && ours + cubic > 70.0, "BBRv3 {ours:.1} Mb/s, CUBIC {cubic:.1} Mb/s");
}
