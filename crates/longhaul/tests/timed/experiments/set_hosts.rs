//! Settings of the hosts, as other programs see them on the hosts while a run is made.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Folder, ONCE, only_runs, started, unprivileged};
use crate::common::captures::missing;
use crate::common::{longhaul, object, side_by_side};
use longhaul_kernel::schedule::allowed_cpus;

/// What `ip` and `ethtool` say of a host's interface.
const LOOK: &str = "{ ip -d link show eth0 && ethtool -k eth0; }";

/// In the one series the hosts are set, in the other they are as usual; both ends of a run look at their interface.
#[test]
fn both_hosts_have_their_mtu_offloads_queue_and_its_discipline() {
    let _shared = side_by_side();
    if unprivileged() || missing("ip") || missing("ethtool") {
        return;
    }
    let folder = Folder::new("set-hosts");
    let series = |name: &str, hosts: &str| {
        let seen_at = |host: &str| folder.file(&format!("{name}-{host}")).display().to_string();
        // As if curl had fetched something.
        let said = r#"{"size_download":1000,"size_upload":0,"time_total":1}"#;
        let client = format!("{LOOK} >{} && echo '{said}'", seen_at("client"));
        let own = env!("CARGO_BIN_EXE_longhaul");
        let server = format!("{LOOK} >{} && exec {own} serve --no-auth", seen_at("server"));
        format!(
            "[[tcp]]\nname = '{name}'\ncongestion = ['reno']\n{hosts}\
             program = {{ client = {client:?}, server = {server:?}, parse = 'curl' }}\n"
        )
    };
    let set = series("set", "hosts = { mtu = 9000, offloads = false, qdisc = 'pfifo', txqueuelen = 77 }\n");
    let experiment = folder.file("some.toml");
    fs::write(&experiment, format!("title = 'some'\npath = 'lan'\n{set}{}", series("usual", ""))).unwrap();
    let results = folder.file("results");
    let command = ["lab", "run", experiment.to_str().unwrap(), "-o", results.to_str().unwrap(), "--commands"];
    let output = longhaul(&[&command[..], &ONCE[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let result = object(&fs::read(results.join("result.json")).unwrap());
    for series in result["result"]["tcp"].as_array().unwrap() {
        assert!(only_runs(series)[0]["error"].is_null(), "{series:#}");
    }
    for host in ["client", "server"] {
        let seen = |name: &str| fs::read_to_string(folder.file(&format!("{name}-{host}"))).unwrap();
        let (set, usual) = (seen("set"), seen("usual"));
        for said in [
            " mtu 9000 ",
            " qdisc pfifo ",
            " qlen 77",
            "\ntcp-segmentation-offload: off",
            "\ngeneric-segmentation-offload: off",
        ] {
            assert!(set.contains(said), "{host}: {said}: {set}");
            assert!(!usual.contains(said), "{host}: {said}: {usual}");
        }
    }
}

/// By RPS, which names the CPUs on which the server takes up what arrives.
#[test]
fn the_servers_softirq_of_tcp_is_on_the_cpu_that_the_experiment_says() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    if allowed_cpus().unwrap().len() < 2 {
        longhaul_testing::skipped!("this machine has one CPU");
        return;
    }
    let (same, split) = (placed("same"), placed("split"));
    assert_eq!(same.softirq, 1_u128 << same.receiver_cpu, "{same:?}");
    assert!(split.softirq.is_power_of_two() && split.softirq != 1_u128 << split.receiver_cpu, "{split:?}");
}

/// Where the server of a run received.
#[derive(Debug)]
struct Placed {
    /// The CPUs of its softirq, a bit each.
    softirq: u128,
    receiver_cpu: u64,
}

/// Runs a TCP test with `softirq = 'placement'`, and looks at its server meanwhile.
fn placed(placement: &str) -> Placed {
    let folder = Folder::new(&format!("softirq-{placement}"));
    let file = folder.file("some.toml");
    let text = format!(
        "title = 'some'\npath = 'lan'\nchange = ['rate=50Mbit', 'queue=1MiB']\n\
         [[tcp]]\nname = 'some'\ncongestion = ['reno']\ntime = '1s'\nsoftirq = '{placement}'\n"
    );
    fs::write(&file, text).unwrap();
    // With a CPU of its own for the emulator the softirq of all hosts is steered to the others.
    let (mut run, _lines) = started(&file, &folder, &[&ONCE[..], &["--share-cpus"]].concat());
    let mut softirq = 0;
    while run.try_wait().unwrap().is_none() {
        softirq = softirq_of_server(run.id()).filter(|cpus| *cpus != 0).unwrap_or(softirq);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(run.wait().unwrap().success());
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    let run = &only_runs(&result["result"]["tcp"][0])[0];
    let receiver = &run["flows"]["parameters"]["affinity"]["receiver_cpus"];
    Placed { softirq, receiver_cpu: receiver[0].as_u64().unwrap_or_else(|| panic!("{run:#}")) }
}

/// The CPUs to which RPS steers what arrives at the server of the experiment that process `pid` runs; `None` while there is no server.
fn softirq_of_server(pid: u32) -> Option<u128> {
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().map(|thread| thread.path());
    let serves = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "serve");
    let mut networks = threads.filter(serves).map(|thread| thread.join("ns/net"));
    let network = networks.find(|network| fs::read_link(network).is_ok_and(|there| there != own))?;
    let enter = format!("--net={}", network.display());
    let look = "mount -t sysfs none /sys && cat /sys/class/net/eth0/queues/rx-0/rps_cpus";
    let seen = Command::new("nsenter").args([enter.as_str(), "unshare", "--mount", "sh", "-c", look]).output().unwrap();
    // The server may have ended meanwhile.
    let mask = String::from_utf8(seen.stdout).unwrap().trim().replace(',', "");
    u128::from_str_radix(&mask, 16).ok()
}
