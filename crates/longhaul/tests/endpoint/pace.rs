//! `longhaul pace`: connections of any program send at a rate at most, as `ss` and the receiver see.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{TestLab, longhaul};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::cgroup::root;
use longhaul_testing::waiting::until;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

#[test]
fn a_program_that_sets_no_rate_is_paced() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let Some(lab) = TestLab::up("pace", "lan") else { return };
    let exec = |host: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["lab", "exec", host, "--name", &lab.name, "--"]).args(words).output().unwrap()
    };
    assert!(exec("server", &["iperf3", "-s", "-D"]).status.success());
    let longhaul_binary = env!("CARGO_BIN_EXE_longhaul");
    // It shows its connections while they send.
    let script = "iperf3 -c server -t 2 -P 2 -J >/tmp/pace.$$ & sleep 1; ss -tinH dport = 5201; wait; cat /tmp/pace.$$; rm /tmp/pace.$$";
    let output = exec("client", &[longhaul_binary, "pace", "40Mbit", "--", "sh", "-c", script]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    // Two streams and the connection that controls them.
    assert_eq!(text.matches("/40000000bps").count() + text.matches("/40Mbps").count(), 3, "{text}");
    let json: Value = serde_json::from_str(&text[text.find("\n{").unwrap()..]).unwrap();
    let received = json["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert!((60e6..84e6).contains(&received), "{received}: two of 40 Mbit/s");
    // Beside it nothing is paced.
    let free =
        exec("client", &["sh", "-c", "iperf3 -c server -t 1 >/dev/null & sleep 0.5; ss -tinH dport = 5201; wait"]);
    let free = String::from_utf8(free.stdout).unwrap();
    assert!(free.contains("pacing_rate") && !free.contains("/40"), "{free}");
}

/// A dying process holds its control group for a moment: so does a group within it here, for longer than a few tries take.
#[test]
fn a_group_that_is_still_held_when_its_command_is_killed_goes_later() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let mut pacing = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let mut pacing = pacing.args(["pace", "1G", "--", "sleep", "0.6"]).spawn().unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    let group = root().unwrap().join(own).join(format!("longhaul-pace-{}", pacing.id()));
    until("the group", || group.exists());
    let within = group.join("held");
    fs::create_dir(&within).unwrap();
    pacing.kill().unwrap();
    pacing.wait().unwrap();
    sleep(Duration::from_millis(400));
    assert!(group.exists(), "it is held");
    fs::remove_dir(&within).unwrap();
    until("the group to go", || !group.exists());
}

/// As a shell's `kill -9 %1` and Ctrl-C do it. What puts things back is out of the group before there is anything to put back.
#[test]
fn a_signal_to_the_whole_process_group_leaves_nothing() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    let groups = root().unwrap().join(own);
    for (round, signal) in [Signal::KILL, Signal::INT].into_iter().cycle().take(60).enumerate() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let mut pacing = command.args(["pace", "1G", "--", "sleep", "3"]).process_group(0).spawn().unwrap();
        let group = groups.join(format!("longhaul-pace-{}", pacing.id()));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !group.exists() {
            assert!(Instant::now() < deadline, "the group");
        }
        kill_process_group(Pid::from_child(&pacing), signal).unwrap();
        pacing.wait().unwrap();
        until(&format!("the group of round {round} to go"), || !group.exists());
    }
}

#[test]
fn rates_beyond_what_the_kernel_takes_are_refused() {
    for rate in ["40G", "7bit"] {
        let output = longhaul(&["pace", rate, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be paced"), "{output:?}");
    }
}
