//! Linux's netem, in a guest that has it: it loads the tables of `profile --netem`, and the delay and loss of our emulator stand beside its own.
//! A guest lives in virtual time, so that its delays are those of timers and code, whatever this machine does.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use longhaul_testing::guest::{Exit, Guest, Kernel};
use longhaul_testing::no_judge;
use serde_json::Value;

use crate::common::captures::Folder;
use crate::common::{longhaul, object, root};

/// client (10.1.1.1) ── r0, router, r1 ── server (10.1.2.1). The shell of busybox takes its own ip and tc where no path is given.
const ROUTER: &str = "set -e; ip() { /usr/bin/ip \"$@\"; }; mkdir -p /run/netns
    ip netns add client; ip netns add server
    ip link add r0 type veth peer name eth0 netns client; ip link add r1 type veth peer name eth0 netns server
    ip address add 10.1.1.254/24 dev r0; ip address add 10.1.2.254/24 dev r1; ip link set r0 up; ip link set r1 up
    for host in client server; do ip -n $host link set lo up; ip -n $host link set eth0 up; done
    ip -n client address add 10.1.1.1/24 dev eth0; ip -n client route add default via 10.1.1.254
    ip -n server address add 10.1.2.1/24 dev eth0; ip -n server route add default via 10.1.2.254
    echo 1 >/proc/sys/net/ipv4/ip_forward
    ip netns exec client ping -c 3 -i 0.2 10.1.2.1";

fn guest(programs: &[&str]) -> Option<Guest> {
    match Guest::new(Kernel::Linux6_12) {
        Ok(guest) => {
            let guest = guest.with_module("veth").with_module("sch_netem").with_module("bridge");
            let programs = [&["/usr/sbin/ip", "/usr/sbin/tc", "/usr/bin/ping"], programs].concat();
            Some(programs.iter().fold(guest, |guest, program| guest.with_program(program)))
        }
        Err(why) => {
            no_judge!("{why}");
            None
        }
    }
}

fn run(guest: &Guest, commands: &[&str]) -> Vec<Exit> {
    let exits = guest.run(commands);
    for (command, exit) in commands.iter().zip(&exits) {
        let shown: String = exit.output.lines().take(12).fold(String::new(), |text, line| text + line + "\n");
        println!("$ {command}\n{shown}[{}]", exit.status);
        assert_eq!(exit.status, 0, "{command}: {}", exit.output);
    }
    exits
}

/// A mixture of two delays with a long tail, and one probe in fifty lost: what `ping` prints of it.
fn measured() -> String {
    let (mut text, mut state) =
        (String::from("PING far (192.0.2.1) 56(84) bytes of data.\n"), 88_172_645_463_325_252_u64);
    let mut share = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for sequence in 1..=8_000 {
        let way = if share() < 0.7 { 5.0 } else { 6.5 };
        let ms = way - 0.4 * (1.0 - share()).ln();
        if share() >= 0.02 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "64 bytes from 192.0.2.1: icmp_seq={sequence} ttl=56 time={ms:.3} ms");
        }
    }
    text + "\n--- far ping statistics ---\n"
}

#[test]
fn netem_loads_the_tables_of_a_profile() {
    let Some(guest) = guest(&[]) else { return };
    let folder = Folder::new("netem");
    let [ping, copy, netem, again] = ["far.txt", "far.toml", "netem", "again.txt"].map(|name| folder.file(name));
    fs::write(&ping, measured()).unwrap();
    let made = longhaul(&["profile", &ping, "-i", "10ms", "-o", &copy, "--netem", &netem]);
    assert!(made.status.success(), "{made:?}");
    let guest = fs::read_dir(&netem).unwrap().fold(guest, |guest, entry| {
        let file = entry.unwrap();
        guest.with_file(file.path(), Path::new("/netem").join(file.file_name()))
    });
    let commands = [
        ROUTER,
        "/usr/bin/ip netns exec client ping -c 500 -i 0.01 10.1.2.1",
        "sed -i 's,\\btc ,/usr/bin/tc ,' /netem/netem.sh && sh /netem/netem.sh r1 r0 && /usr/bin/tc qdisc show",
        "/usr/bin/ip netns exec client ping -c 8000 -i 0.01 10.1.2.1 || [ $? = 1 ]",
        "/usr/bin/tc qdisc del dev r0 root && /usr/bin/tc qdisc del dev r1 root && /usr/bin/tc qdisc show",
    ];
    let exits = run(&guest, &commands);
    let [without, loaded, with, gone] = [1, 2, 3, 4].map(|command| exits[command].output.as_str());
    assert_eq!(loaded.matches("netem").count(), 2, "{loaded}");
    assert!(!gone.contains("netem"), "{gone}");
    // What the kernel's netem did of the tables is what was measured, by the test that verifies our own copies. What the guest takes without it,
    // some 50 to 200 us as its CPU is emulated, is not netem's.
    let own = round_trips(without);
    fs::write(&again, less(with, own[own.len() / 2])).unwrap();
    let verified = object(&longhaul(&["verify", &copy, "--against", &again, "-i", "10ms", "--json"]).stdout);
    let quantities = verified["result"]["directions"][0]["quantities"].as_array().unwrap().clone();
    for quantity in &quantities {
        println!("{quantity}");
        assert_ne!(quantity["verdict"], "outside", "{quantity}");
    }
    for name in ["median_ns", "range_ns"] {
        let quantity = quantities.iter().find(|quantity| quantity["name"] == name).unwrap();
        let value = |key: &str| quantity[key].as_f64().unwrap();
        assert!((value("tested") - value("reference")).abs() <= value("margin"), "{quantity}");
    }
}

/// What `ping` printed, with round trips shorter by `ms`.
fn less(output: &str, ms: f64) -> String {
    let line = |line: &str| match line.split_once("time=").and_then(|(head, time)| Some((head, time.split_once(' ')?)))
    {
        Some((head, (time, unit))) => format!("{head}time={:.2} {unit}\n", time.parse::<f64>().unwrap() - ms),
        None => format!("{line}\n"),
    };
    output.lines().map(line).collect()
}

/// Round trips that `ping` printed, milliseconds, ascending.
fn round_trips(output: &str) -> Vec<f64> {
    let times = output.lines().filter_map(|line| line.split_once("time=")?.1.split_once(' ')?.0.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Delay and loss, packet by packet: longhaul's emulator beside netem in one kernel. Of speed a guest tells nothing.
#[test]
fn emulators_side_by_side() {
    const DELAY: &str = "[[both]]\ndelay = '2ms'\n";
    const LOSS: &str = "[[forward]]\ndelay = '2ms'\nloss = { every = 50 }\n[[backward]]\ndelay = '2ms'\n";
    const PROBES: usize = 2_000;
    let Some(guest) = guest(&[env!("CARGO_BIN_EXE_longhaul")]) else { return };
    let folder = Folder::new("emulators");
    let [delay, loss] = [("delay.toml", DELAY), ("loss.toml", LOSS)].map(|(name, text)| {
        let file = folder.file(name);
        fs::write(&file, text).unwrap();
        file
    });
    let guest = guest.with_file(&delay, "/delay.toml").with_file(&loss, "/loss.toml");
    let probes = format!("ping -c {PROBES} -i 0.005");
    let by_netem = format!("/usr/bin/ip netns exec client {probes} 10.1.2.1 || [ $? = 1 ]");
    let by_longhaul = |path: &str| {
        format!(
            "longhaul lab up {path} >/dev/null && longhaul lab exec client -- {probes} -4 server; longhaul lab down"
        )
    };
    let (ours, ours_lossy) = (by_longhaul("/delay.toml"), by_longhaul("/loss.toml"));
    let commands = [
        ROUTER,
        "for side in r0 r1; do /usr/bin/tc qdisc add dev $side root netem delay 2ms; done",
        &by_netem,
        "/usr/bin/tc qdisc change dev r1 root netem delay 2ms loss random 2%",
        &by_netem,
        &ours,
        &ours_lossy,
    ];
    let exits = run(&guest, &commands);
    let [netem, netem_lossy, ours, ours_lossy] = [2, 4, 5, 6].map(|nth| round_trips(&exits[nth].output));
    println!("beyond 4 ms of round trip, us     median      p99      max;   lost of {PROBES} at 1 in 50");
    for (name, delays, lossy) in [("netem", &netem, &netem_lossy), ("longhaul", &ours, &ours_lossy)] {
        assert_eq!(delays.len(), PROBES, "{name}");
        let at = |share: f64| (delays[((share * PROBES as f64) as usize).min(PROBES - 1)] - 4.0) * 1e3;
        println!("{name:<30} {:>9.0} {:>8.0} {:>8.0}    {:>6}", at(0.5), at(0.99), at(1.0), PROBES - lossy.len());
    }
    // Each 50th is lost: no more, no fewer. A chance is a chance.
    assert_eq!(PROBES - ours_lossy.len(), PROBES / 50);
    assert!((PROBES - netem_lossy.len()).abs_diff(PROBES / 50) < 30);
    // Never early, and as exact as the kernel's own.
    assert!(ours[0] >= 4.0 && netem[0] >= 4.0, "{} {}", ours[0], netem[0]);
    assert!(ours[PROBES / 2] < 4.5, "{}", ours[PROBES / 2]);
}

/// A mean of a point of series `name`, whose label ends with `emulator`.
fn mean(result: &Value, name: &str, emulator: &str, quantity: &str) -> f64 {
    let mut all = ["udp", "tcp"].into_iter().filter_map(|kind| result[kind].as_array()).flatten();
    let series = all.find(|series| series["name"] == name);
    let points = series.unwrap_or_else(|| panic!("no {name}: {result}"))["points"].as_array().unwrap();
    let point = points.iter().find(|point| point["label"].as_str().unwrap().ends_with(emulator));
    let mean = &point.unwrap_or_else(|| panic!("no {emulator}: {points:?}"))["means"][quantity]["mean"];
    mean.as_f64().unwrap_or_else(|| panic!("no {quantity} of {name}, {emulator}: {}", point.unwrap()["means"]))
}

/// The experiment's smallest form, with both emulators in one kernel; then without netem, which is said before anything starts.
#[test]
fn the_experiment_has_both_emulators_or_says_what_is_missing() {
    const RUN: &str = "longhaul lab run /emulators.toml --repeat 1 --tries 1 --json --only";
    let Some(guest) = guest(&[env!("CARGO_BIN_EXE_longhaul")]) else { return };
    let (folder, whole) = (Folder::new("emulators-run"), root().join("experiments/emulators.toml"));
    let small = fs::read_to_string(whole).unwrap().replace("packets = 10000", "packets = 2000");
    let file = folder.file("emulators.toml");
    fs::write(&file, small.replace("packets = 2000\nemulator", "packets = 500\nemulator")).unwrap();
    let guest = guest.with_file(&file, "/emulators.toml");
    let both = format!("{RUN} constant,percent,50th >/tmp/result 2>/tmp/said; cat /tmp/result");
    let without = format!("{RUN} constant >/tmp/result 2>/tmp/said; cat /tmp/result; cat /tmp/said");
    let exits = run(&guest, &[&both, "rmmod sch_netem", &without]);
    let found = object(exits[0].output.as_bytes());
    let result = &found["result"];
    for emulator in ["longhaul", "netem"] {
        let [delay, chance] = ["Constant delay", "Two percent lost by chance"];
        let of = |series: &str, quantity: &str| mean(result, series, emulator, quantity);
        let errors = ["min", "p50", "p99"].map(|at| of(delay, &format!("delay_error_{at}_ns")) / 1e3);
        let [dropped, miscounted] = ["dropped_percent", "miscounted_packets"].map(|quantity| of(chance, quantity));
        println!("{emulator}: error of each delay {errors:?} us, {dropped:.3} % dropped, {miscounted} miscounted");
        // Never early; timers and code take less in virtual time than a tenth of a millisecond.
        assert!(errors[0] >= 0.0 && errors[1] < 100.0 && errors[2] < 1_000.0, "{emulator}: {errors:?}");
        // Of 500 packets 10 are lost, give or take four standard deviations.
        assert!((0.0..4.6).contains(&dropped) && miscounted == 0.0, "{emulator}: {dropped} {miscounted}");
        assert_eq!(of(delay, "lost_percent"), 0.0);
    }
    let each = |quantity: &str| mean(result, "Each 50th packet lost", "50", quantity);
    assert!(each("miscounted_packets") == 0.0 && (1.95..=2.0).contains(&each("dropped_percent")), "{result}");
    for finding in result["findings"].as_array().unwrap() {
        let says = finding["says"].as_str().unwrap();
        let is_run = !says.contains("jitter");
        assert_eq!(finding["verdict"] != "not_decided", is_run, "{finding}");
        // What chance or fewer packets decide is for the whole experiment.
        let sure = is_run && !says.contains("each 50th") && !says.contains("chance");
        assert!(!sure || finding["verdict"] == "reappeared", "{finding}");
    }
    assert!(!found["caveats"].to_string().contains("netem_missing"), "{}", found["caveats"]);

    let (json, said) = exits[2].output.split_once('\n').unwrap();
    let found = object(json.as_bytes());
    assert!(
        said.starts_with("Left out are Constant delay, 10, netem: netem cannot be used on this machine: tc "),
        "{said}"
    );
    let points = found["result"]["udp"][0]["points"].as_array().unwrap();
    assert!(points.len() == 1 && points[0]["label"] == "10, longhaul", "{points:?}");
    assert!(found["caveats"].to_string().contains("netem_missing"), "{}", found["caveats"]);
    assert!(found["parameters"]["note"].as_str().unwrap().starts_with("Left out are Constant delay"), "{found}");
}

/// Throughput over both emulators in one kernel. A guest tells nothing of speed, so a window of 256 KiB limits what is carried: over equal
/// round trips it is about as much.
#[test]
fn a_window_carries_as_much_over_either_emulator() {
    const WITH_OFFLOADS: &str = "Delay, with offloads";
    let Some(guest) = guest(&[env!("CARGO_BIN_EXE_longhaul")]) else { return };
    let folder = Folder::new("emulators-tcp");
    let mut text = fs::read_to_string(root().join("experiments/emulators-tcp.toml")).unwrap();
    for (from, to) in
        [("\"16M\"", "\"256K\""), ("time = \"5s\"", "time = \"1s\""), ("omit = \"2s\"", "omit = \"300ms\"")]
    {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = folder.file("emulators-tcp.toml");
    fs::write(&file, text).unwrap();
    let guest = guest.with_file(&file, "/emulators-tcp.toml");
    let asked =
        "longhaul lab run /emulators-tcp.toml --repeat 1 --tries 1 --json >/tmp/result 2>/tmp/said; cat /tmp/result";
    let found = object(run(&guest, &[asked])[0].output.as_bytes());
    let result = &found["result"];
    assert!(!found["caveats"].to_string().contains("netem_missing"), "{}", found["caveats"]);
    for series in [WITH_OFFLOADS, "Delay, single packets", "Delay and jitter"] {
        let of = |emulator: &str| {
            let rtt_ms = mean(result, series, emulator, "mean_rtt_ns") / 1e6;
            let goodput = mean(result, series, emulator, "goodput_bps") / 1e6;
            println!("{series}, {emulator}: {goodput:.1} Mb/s, round trip {rtt_ms:.2} ms");
            // The kernel may give each end twice of what is asked for: 210 Mb/s over 20 ms.
            assert!((20.0..25.0).contains(&rtt_ms) && (50.0..211.0).contains(&goodput), "{goodput} {rtt_ms}");
            goodput
        };
        let ratio = of("longhaul") / of("netem");
        assert!((0.8..1.25).contains(&ratio), "{series}: {ratio}");
    }
    for finding in result["findings"].as_array().unwrap() {
        println!("{}: {}", finding["verdict"], finding["why"]);
        assert_eq!(finding["verdict"], "reappeared", "{finding}");
    }
}

#[test]
fn a_path_that_netem_cannot_express_is_refused_in_its_line() {
    let folder = Folder::new("netem-refused");
    let file = folder.file("e.toml");
    for (path, said) in [
        (
            "path = 'lan'\nchange = ['forward.loss=every(50)']",
            "e.toml:6: udp[0].emulator: netem cannot express forward: the law of loss",
        ),
        (
            "path = 'lan'\nchange = ['forward.outages=1s,50ms']",
            "6: udp[0].emulator: netem cannot express forward: outages",
        ),
        (
            "path = 'two-clients'\n",
            "6: udp[0].emulator: netem cannot express hosts: delay and rate of their own access",
        ),
        ("path = 'lan'\nchange = ['jitter=pareto(10us)']", ""),
    ] {
        let series = "[[udp]]\nname = 'a'\nemulator = ['longhaul', 'netem']\nrates = ['1M']\n";
        fs::write(&file, format!("title = 'x'\n{path}\n{series}")).unwrap();
        let planned = longhaul(&["lab", "run", &file, "--plan"]);
        let error = String::from_utf8(planned.stderr).unwrap();
        assert_eq!(planned.status.success(), said.is_empty(), "{path}: {error}");
        assert!(error.contains(said) && error.lines().count() <= 1, "{path}: {error}");
    }
}
