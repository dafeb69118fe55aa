//! The binary on other kernels: Debian's 6.1 of 2022, which lacks some features, and its 6.12. Each command works or says in one line what is
//! missing; none panics.

use std::thread;

use longhaul_testing::guest::{Exit, Guest, Kernel};
use longhaul_testing::no_judge;

/// What a command must come to.
#[derive(Clone, Copy)]
enum Wanted {
    /// It ends with 0, and prints this.
    Works(&'static str),
    /// It ends with another status, and one line says why: this.
    Says(&'static str),
}
use Wanted::{Says, Works};

/// Commands, and what they must come to on 6.1 and on 6.12.
const COMMANDS: &[(&str, Wanted, Wanted)] = &[
    ("uname -r", Works("6.1."), Works("6.12.")),
    // Links of struct_ops came with 6.4.
    ("longhaul cc list", Works("no control can be loaded: this kernel"), Works("scalable")),
    ("longhaul cc load scalable", Says("this needs Linux 6.4 or newer"), Works("lh_scalable")),
    ("longhaul cc unload scalable", Says("was not loaded by longhaul"), Works("lh_scalable unloaded")),
    ("longhaul host", Works("net.ipv4.tcp_rmem"), Works("net.ipv4.tcp_rmem")),
    ("longhaul capture lo -t 100ms -o /tmp/spool", Works("1 file in /tmp/spool"), Works("1 file in /tmp/spool")),
    // bpf_cast_to_kern_ctx came with 6.2.
    ("longhaul filter attach lo -t 100ms", Says("this needs Linux 6.2 or newer"), Works("generic XDP, counts")),
    ("longhaul watch -t 100ms", Works("watched   0 connections"), Works("watched   0 connections")),
    ("longhaul lab up lan --name one", Works("lab one is up"), Works("lab one is up")),
    ("longhaul lab exec --name one client -- ip -br link show eth0", Works("LOWER_UP"), Works("LOWER_UP")),
    ("longhaul lab exec --name one server -- sh -c 'longhaul serve >/tmp/serve 2>&1 &'; sleep 1", Works(""), Works("")),
    // Both by drop events, which 6.1 has; it lacks counters of queues, which came with 6.10.
    (
        "longhaul lab exec --name one client -- longhaul udp server -b 1M -k 20",
        Works("20 of 20 received"),
        Works("20 of 20 received"),
    ),
    // Fragments, which further programs note.
    (
        "longhaul lab exec --name one client -- longhaul udp server -b 1M -k 20 -l 3000",
        Works("20 of 20 received"),
        Works("20 of 20 received"),
    ),
    (
        "longhaul lab exec --name one client -- longhaul udp server -b 1M -k 9",
        Works("netdev qstats (Linux 6.10)"),
        Works("9 of 9 received"),
    ),
    (
        "longhaul lab exec --name one client -- longhaul tcp server -n 1M",
        Works("nothing, by drop events of the kernel"),
        Works("nothing, by drop events of the kernel"),
    ),
    // Its samples of rates came with 6.10.
    (
        "longhaul lab exec --name one client -- longhaul tcp server -n 1M -C bbr3",
        Says("this needs Linux 6.4 or newer"),
        Works("lh_bbr3"),
    ),
    // What the kernel asks for where it loads a module by itself. A server that refuses to change its host has it ask for none.
    (
        "printf '#!/bin/busybox sh\\necho \"$@\" >>/tmp/asked\\n' >/tmp/modprobe; chmod +x /tmp/modprobe; : >/tmp/asked
         echo /tmp/modprobe >/proc/sys/kernel/modprobe
         longhaul lab exec --name one server -- sh -c 'longhaul serve -p 6001 --host-settings refuse >/tmp/refuses 2>&1 &'; sleep 1
         longhaul lab exec --name one client -- longhaul tcp server -p 6001 -R -n 1M -C westwood 2>&1 |
             grep -o 'let clients load one'
         echo \"asked for $(grep -c tcp_westwood /tmp/asked)\"",
        Works("let clients load one\nasked for 0"),
        Works("let clients load one\nasked for 0"),
    ),
    (
        "longhaul lab exec --name one client -- longhaul tcp server -R -n 1M -C westwood >/tmp/tested 2>&1
         grep -q tcp_westwood /tmp/asked && echo asked for it",
        Works("asked for it"),
        Works("asked for it"),
    ),
    ("longhaul lab down --name one", Works("lab one is down"), Works("lab one is down")),
];

/// What is wrong with how a command ended.
fn wrong(exit: &Exit, wanted: Wanted) -> Option<&'static str> {
    let Exit { status, output } = exit;
    match wanted {
        // 101 is a panic; a signal is 128 and more.
        _ if *status > 100 || output.contains("panicked") => Some("it broke"),
        _ if output.contains("the kernel refused the BPF program") => Some("its verifier refuses a program"),
        Works(text) if *status != 0 || !output.contains(text) => Some("it does not work"),
        Says(text) if *status == 0 || !output.contains(text) => Some("it does not say what is missing"),
        Says(_) if output.trim_end().lines().count() > 1 => Some("it says so in more than one line"),
        _ => None,
    }
}

fn judge(kernel: Kernel, wanted: impl Fn(&(&str, Wanted, Wanted)) -> Wanted) {
    let guest = match Guest::new(kernel) {
        Ok(guest) => guest,
        Err(why) => return no_judge!("{why}"),
    };
    let guest = guest.with_program(env!("CARGO_BIN_EXE_longhaul")).with_program("/usr/sbin/ip");
    let guest = ["veth", "tcp_diag"].iter().fold(guest, |guest, module| guest.with_module(module));
    let commands: Vec<&str> = COMMANDS.iter().map(|(command, ..)| *command).collect();
    let mut failed = String::new();
    for (row, exit) in COMMANDS.iter().zip(guest.run(&commands)) {
        println!("{} $ {}\n{}\n[{}]", kernel.name(), row.0, exit.output, exit.status);
        if let Some(why) = wrong(&exit, wanted(row)) {
            failed += &format!("\n{} $ {}: {why}: {}\n{}", kernel.name(), row.0, exit.status, exit.output);
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn each_command_works_or_says_what_is_missing() {
    thread::scope(|scope| {
        let old = scope.spawn(|| judge(Kernel::Linux6_1, |row| row.1));
        judge(Kernel::Linux6_12, |row| row.2);
        old.join().unwrap();
    });
}
