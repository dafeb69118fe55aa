//! A program on a lab host sees that host's links and names, and nobody else does.

use std::fs;
use std::io;
use std::process::Command;

use longhaul_kernel::mounts::{MountError, fresh_sysfs, override_file, override_hosts, private_mounts};

use crate::cable::{Cable, unprivileged};

/// Runs `program` on the left host of a cable as `longhaul lab exec` would, and gives what it prints.
fn run_inside(cable: &Cable, program: &[&str], hosts: &str) -> String {
    let output = cable
        .left
        .enter(|| {
            private_mounts()?;
            fresh_sysfs()?;
            override_hosts(hosts)?;
            Ok::<_, MountError>(Command::new(program[0]).args(&program[1..]).output())
        })
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_resolve_from_the_given_hosts() {
    if unprivileged() {
        return;
    }
    let before = fs::read_to_string("/etc/hosts").unwrap();
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let printed = run_inside(&Cable::new(), &["getent", "hosts", "lhk-server"], "10.99.0.2 lhk-server\n");
    assert!(printed.starts_with("10.99.0.2"), "{printed}");
    assert_eq!(fs::read_to_string("/etc/hosts").unwrap(), before);
    assert_eq!(fs::read_to_string("/proc/thread-self/mountinfo").unwrap(), mounts, "nothing is mounted outside");
}

#[test]
fn sys_shows_the_hosts_own_links_and_keeps_control_groups() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let links = run_inside(&cable, &["ls", "/sys/class/net"], "");
    let mut links: Vec<&str> = links.split_whitespace().collect();
    links.retain(|link| *link != "bonding_masters");
    assert_eq!(links, ["lhk-l", "lo"]);
    assert!(!fs::exists("/sys/class/net/lhk-l").unwrap());
    let outside: Vec<_> = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().filter_map(Result::ok).collect();
    let inside = run_inside(&cable, &["ls", "-a", "/sys/fs/cgroup"], "");
    assert!(inside.split_whitespace().count() >= outside.len(), "{inside}");
}

#[test]
fn a_file_that_is_missing_is_named() {
    if unprivileged() {
        return;
    }
    let error = Cable::new().left.enter(|| private_mounts().and_then(|()| override_file("/etc/lhk-none", "x")));
    assert!(matches!(error.unwrap(), Err(MountError::Missing { path }) if path == "/etc/lhk-none"));
}

/// The file belongs to the thread that asked for it, and is as long as its text.
#[test]
fn a_file_reads_as_given() -> io::Result<()> {
    if unprivileged() {
        return Ok(());
    }
    let text = "1.2.3.4 lhk-long\n".repeat(10_000);
    let read = Cable::new().left.enter(|| {
        private_mounts().and_then(|()| override_hosts(&text)).unwrap();
        fs::read_to_string("/etc/hosts")
    });
    assert!(read.unwrap()? == text);
    Ok(())
}
