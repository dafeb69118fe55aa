//! Labs come and go without a trace.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, SERVER_V4, alone, lab, ping, run, start, unprivileged};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::process::Process;
use longhaul_testing::waiting::until;
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Cycles of a run that is not asked for more, which then may take this long at most.
const CYCLES: usize = 300;
const CYCLES_LONG: usize = 1000;
/// Before the first figures are taken: allocators, thread caches and the kernel's pools fill up once.
const WARM_UP: usize = 20;

/// What this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// Network namespaces that its descriptors and threads keep.
    namespaces: usize,
}

/// What this process holds in memory, by the second field of statm.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn held() -> Held {
    let mut namespaces = HashSet::new();
    let mut descriptors = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        descriptors += 1;
        if fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("net:"))
            && let Ok(metadata) = fs::metadata(entry.path())
        {
            namespaces.insert(metadata.ino());
        }
    }
    let mut threads = 0;
    for entry in fs::read_dir("/proc/self/task").unwrap().flatten() {
        threads += 1;
        if let Ok(metadata) = fs::metadata(entry.path().join("ns/net")) {
            namespaces.insert(metadata.ino());
        }
    }
    Held { descriptors, threads, namespaces: namespaces.len() }
}

/// Interfaces of the namespace that the test runs in.
fn interfaces() -> HashSet<String> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap();
    table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// Network namespaces that the kernel has, as far as it tells: those that nobody holds are cleared a little later.
fn kernel_namespaces() -> Option<usize> {
    let table = fs::read_to_string("/proc/slabinfo").ok()?;
    let line = table.lines().find(|line| line.starts_with("net_namespace "))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// How long a program takes to end after it was killed. It is killed 2 s after it was asked.
const ENDING: Duration = Duration::from_millis(2500);

/// The kernel may take long to end a program, such as one with gigabytes in its sockets. Here a tracer holds it up.
#[test]
fn a_lab_is_down_when_its_programs_are_gone() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab("[[both]]\ndelay = '1ms'");
    let program = start(&lab, "client", &["sh", "-c", "trap '' TERM; exec sleep 1000"], Stdio::null());
    let pid = program.0.id();
    until("the program to be itself", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
    });
    let process = Process::open(pid).unwrap().unwrap();
    let (traced, is_traced) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let pid = Pid::from_raw(pid as i32);
            ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
            traced.send(()).unwrap();
            while let WaitStatus::Stopped(_, signal) = waitpid(pid, None).unwrap() {
                ptrace::cont(pid, signal).unwrap();
            }
            // It was killed and is about to end.
            thread::sleep(ENDING);
            ptrace::detach(pid, None).unwrap();
        });
        is_traced.recv().unwrap();
        lab.down().unwrap();
        assert!(process.wait_until_gone(monotonic()).unwrap(), "the lab was down before its program had ended");
    });
}

#[test]
fn a_thousand_cycles_leave_nothing() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let cycle = |i: usize| {
        let lab = lab("[[both]]\nrate = '100Mbit'\ndelay = '1ms'");
        match i % 3 {
            // With programs, and with sockets of its own.
            0 => drop(run(&lab, "client", &["true"])),
            1 => _ = ping(&lab, "client", SERVER_V4),
            _ => {}
        }
        if i.is_multiple_of(2) {
            lab.down().unwrap();
        }
    };
    (0..WARM_UP).for_each(cycle);
    let long = std::env::var_os("LONGHAUL_LONG").is_some();
    let wanted = if long { CYCLES_LONG } else { CYCLES };
    let (before, interfaces_before) = (held(), interfaces());
    let (resident_before, kernel_before) = (resident_bytes(), kernel_namespaces());
    let began = Instant::now();
    (0..wanted).for_each(cycle);
    let took = began.elapsed();
    let resident = resident_bytes();
    println!(
        "{wanted} cycles in {took:.1?}, {:.1?} each; resident {resident_before} bytes, then {resident}",
        took / wanted as u32
    );
    assert_eq!(held(), before);
    assert_eq!(interfaces(), interfaces_before);
    assert!(resident < resident_before + (8 << 20), "{resident_before} bytes, then {resident}");
    if let Some(kernel_before) = kernel_before {
        // Others may make namespaces meanwhile, but not one for each host of ours.
        let deadline = Instant::now() + PATIENCE;
        while kernel_namespaces().unwrap() > kernel_before + wanted / 4 {
            assert!(Instant::now() < deadline, "{kernel_before} namespaces, then {:?}", kernel_namespaces());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
