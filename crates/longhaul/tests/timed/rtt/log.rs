//! A measurement of round trips that is killed, resumed, stopped, or has no disk; a server that ends and comes back.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_rtt::probe_log::{ProbeLogReader, ProbeRow};
use serde_json::Value;

use crate::common::captures::Folder;
use crate::common::{object, side_by_side};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// Whether this user may send ICMP echo and mount; says why not.
fn able() -> bool {
    let able = is_root_in_namespace();
    if !able {
        longhaul_testing::no_judge!("needs root");
    }
    able
}

fn rtt(arguments: &[&str]) -> Child {
    let mut command = Command::new(LONGHAUL);
    command.arg("rtt").args(arguments).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn result(running: Child) -> Value {
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object(&output.stdout)
}

fn rows(folder: &str) -> Vec<ProbeRow> {
    ProbeLogReader::open(Path::new(folder)).unwrap().map(Result::unwrap).collect()
}

/// The reasons of a result's gaps.
fn gaps(result: &Value) -> Vec<String> {
    let gaps = result["result"]["gaps"].as_array().unwrap().iter();
    // A busy machine may stall the program.
    gaps.map(|gap| gap["why"].as_str().unwrap().to_owned()).filter(|why| why != "stalled").collect()
}

fn signal(running: &Child, signal: Signal) {
    Process::open(running.id()).unwrap().unwrap().signal(signal).unwrap();
}

#[test]
fn a_measurement_that_is_killed_keeps_its_segments_and_goes_on_after_them() {
    let _shared = side_by_side();
    if !able() {
        return;
    }
    let folder = Folder::new("rtt-killed");
    let log = folder.file("log");
    let mut running = rtt(&["127.0.0.1", "--icmp", "-i", "200us", "-t", "1h", "-o", &log]);
    // A segment is closed after 65,536 probes or a minute.
    let began = Instant::now();
    while !Path::new(&log).join("probes-00000.parquet").exists() {
        assert!(began.elapsed() < Duration::from_secs(90) && running.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(50));
    }
    // Another one would give its segments the same numbers.
    let other = rtt(&["127.0.0.1", "--resume", &log, "-c", "500"]).wait_with_output().unwrap();
    assert_eq!(object(&other.stdout)["error"]["code"], "folder_in_use", "{other:?}");
    running.kill().unwrap();
    running.wait().unwrap();
    let before = rows(&log);
    assert!(before.len() > 1_000, "{}", before.len());
    // Nothing half-written is left.
    let names = || fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        names().all(|name| name.starts_with("probes-") && name.ends_with(".parquet")),
        "{:?}",
        names().collect::<Vec<_>>()
    );

    let resumed = result(rtt(&["127.0.0.1", "--resume", &log, "-c", "500"]));
    assert_eq!(gaps(&resumed), ["paused"], "{resumed}");
    let sent = resumed["result"]["sent"].as_u64().unwrap();
    assert_eq!((sent, resumed["result"]["kind"].as_str()), (before.len() as u64 + 500, Some("icmp")), "{resumed}");
    let after = rows(&log);
    assert_eq!((after.len() as u64, &after[..before.len()]), (sent, &before[..]));
    assert!(after.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1));
    let saved: Value = serde_json::from_str(&fs::read_to_string(Path::new(&log).join("result.json")).unwrap()).unwrap();
    assert_eq!(saved["result"]["sent"], sent);

    // Once more, and of another host.
    let again = result(rtt(&["127.0.0.1", "--resume", &log, "-c", "10"]));
    assert_eq!((gaps(&again), again["result"]["sent"].as_u64()), (vec!["paused".to_owned(); 2], Some(sent + 10)));
    let other = rtt(&["127.0.0.2", "--resume", &log]).wait_with_output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(object(&other.stdout)["error"]["message"].as_str().unwrap().contains("it measured 127.0.0.1"), "{other:?}");
}

#[test]
fn a_full_disk_costs_no_probe_once_it_has_room() {
    let _shared = side_by_side();
    if !able() {
        return;
    }
    let folder = Folder::new("rtt-full");
    let (disk, kept) = (folder.file("disk"), folder.file("kept"));
    fs::create_dir(&disk).unwrap();
    // In a namespace of mounts, so that none is left: a disk of 24 KiB, which grows when the measurement complains.
    let script = "mount -t tmpfs -o size=24k none $DISK || exit 3
        $LONGHAUL rtt 127.0.0.4 --icmp -i 100us -c 150000 --json -o $DISK/log > $DISK.out 2> $DISK.err &
        for i in $(seq 1200); do grep -q 'cannot be written' $DISK.err && break; sleep 0.05; done
        grep -q 'cannot be written' $DISK.err || exit 4
        mount -o remount,size=16m $DISK || exit 5
        wait $! || exit 6
        cp -r $DISK/log $KEPT";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).env("DISK", &disk).env("KEPT", &kept).env("LONGHAUL", LONGHAUL);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let result = object(&fs::read(format!("{disk}.out")).unwrap());
    assert!(!result["caveats"].to_string().contains("log_incomplete"), "{}", result["caveats"]);
    assert_eq!((rows(&kept).len() as u64, result["result"]["sent"].as_u64()), (150_000, Some(150_000)));
}

#[test]
fn a_program_that_is_stopped_loses_no_packets() {
    let _shared = side_by_side();
    if !able() {
        return;
    }
    // Raw sockets of other tests see what comes from their own peers alone.
    let running = rtt(&["127.0.0.3", "--icmp", "-i", "20ms", "-t", "5s"]);
    sleep(Duration::from_secs(2));
    signal(&running, Signal::STOP);
    sleep(Duration::from_secs(2));
    signal(&running, Signal::CONT);
    let result = result(running);
    let stalls = result["result"]["gaps"].as_array().unwrap();
    let long = |gap: &&Value| {
        let lasted = gap["to_ns"].as_i64().unwrap() - gap["from_ns"].as_i64().unwrap();
        gap["why"] == "stalled" && (1_800_000_000..2_500_000_000).contains(&lasted)
    };
    assert_eq!((stalls.iter().filter(long).count(), result["result"]["lost"].as_u64()), (1, Some(0)), "{result}");
    assert!(result["caveats"].to_string().contains("measurement_has_gaps"), "{result}");
}

/// `longhaul serve` on loopback, and the port that it has.
fn serve(port: &str, more: &[&str]) -> Child {
    let mut command = Command::new(LONGHAUL);
    let mut server = command.args(["serve", "--port", port]).args(more).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    server
}

#[test]
fn a_server_that_is_started_anew_is_told_and_loses_nothing() {
    let _shared = side_by_side();
    let folder = Folder::new("rtt-restarted");
    let log = folder.file("log");
    let mut server = serve("15218", &[]);
    let running = rtt(&["127.0.0.1", "-p", "15218", "-i", "10ms", "-t", "10s", "-o", &log]);
    sleep(Duration::from_secs(3));
    server.kill().unwrap();
    server.wait().unwrap();
    sleep(Duration::from_secs(2));
    let mut server = serve("15218", &[]);
    let result = result(running);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(gaps(&result), ["server_ended"], "{result}");
    let of = |name: &str| result["result"][name].as_u64().unwrap();
    assert_eq!((of("lost"), of("outages")), (0, 0), "{result}");
    assert!((400..=900).contains(&of("received")) && of("gaps_ns") > 1_500_000_000, "{result}");
    assert!(result["hosts"]["server"].is_object() && result["hosts"]["client"].is_object(), "{result}");
    let rows = rows(&log);
    assert_eq!(rows.len() as u64, of("sent"));
    assert!(rows.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
}

#[test]
fn a_server_that_allows_short_tests_alone_is_asked_again_and_again() {
    let _shared = side_by_side();
    let mut server = serve("15219", &["--time-cap", "10s"]);
    let result = result(rtt(&["127.0.0.1", "-p", "15219", "-i", "10ms", "-t", "13s"]));
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(gaps(&result), ["session_renewed"], "{result}");
    assert_eq!(result["result"]["lost"], 0, "{result}");
    assert!(result["result"]["sent"].as_u64().unwrap() > 1_000, "{result}");
}
