//! The kernel's own modules as judges: each congestion control in BPF that Linux has a module of, with Linux's parameters, beside that module
//! **in the same kernel**. The same losses must give the same windows.
//!
//! ```text
//!   guest: Linux 6.12 of Debian 13 in virtual time, and this program
//!   ┌─────────────────────────────────────────────────────────────────┐
//!   │ comparisons.rs                                                  │
//!   │   flow.rs: socket, lh control       flow.rs: socket, tcp_NAME.ko │
//!   │     │ TUN                             │ TUN                      │
//!   │   peer.rs: path and receiver        peer.rs: path and receiver   │
//!   │     └────── trace.rs: windows, segment by segment ──────┘        │
//!   └─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The path is a program that runs in lockstep with the sender through a TUN device, in one thread: an acknowledgement is written, what TCP
//! sends upon it is read, `TCP_INFO` is read. A veth with netem and a kernel's receiver would add a softirq's order and delayed
//! acknowledgements to what is compared. What could differ besides is turned off (`flow::PARAMETERS`), super-packets too: TCP fills those by
//! the clock.
//!
//! **Windows are compared by delivered segments, not by time**, after each acknowledgement, and so are the thresholds that losses set. They
//! must be equal. In virtual time two flows of one control are: time passes by instructions, and round trips differ by the instructions that
//! one control takes more than another, less than a microsecond. Tolerances are for what is meant to differ, as each test says.
//!
//! To see how far those of one control are apart: `ORACLE_ONLY=westwood cargo test --workspace --test oracle -- --nocapture those`.

mod comparisons;
mod flow;
mod peer;
mod trace;
mod tun;

use std::env;

use longhaul_testing::guest::{Guest, Kernel};

/// Tells this program that it is in the guest.
const IN_GUEST: &str = "ORACLE_GUEST";
/// Names the only comparison that is wanted.
const ONLY: &str = "ORACLE_ONLY";
/// What the guest loads beside Reno, which every kernel has.
const MODULES: [&str; 10] = [
    "tun",
    "tcp_bic",
    "tcp_highspeed",
    "tcp_htcp",
    "tcp_hybla",
    "tcp_illinois",
    "tcp_scalable",
    "tcp_vegas",
    "tcp_westwood",
    "tcp_yeah",
];

/// Has a guest run these of the comparisons.
fn in_guest(comparisons: &[&str]) {
    let guest = match Guest::new(Kernel::Linux6_12) {
        Ok(guest) => guest,
        Err(why) => return longhaul_testing::no_judge!("{why}"),
    };
    let only = env::var(ONLY);
    let comparisons: Vec<_> =
        comparisons.iter().filter(|name| only.as_ref().map_or(true, |only| only == *name)).collect();
    let program = env::current_exe().unwrap();
    let guest = guest.with_program(&program).with_program("/usr/sbin/ip");
    let guest = MODULES.iter().fold(guest, |guest, module| guest.with_module(module));
    let name = program.file_name().unwrap().to_str().unwrap();
    let tests: Vec<String> = comparisons.iter().map(|test| format!("comparisons::{test}")).collect();
    let options = "--ignored --exact --nocapture --test-threads=1";
    let exits = guest.run(&[&format!("{IN_GUEST}=1 {name} {options} {}", tests.join(" "))]);
    let ran = exits[0].output.contains(&format!("running {} test", tests.len()));
    assert!(ran && exits[0].status == 0, "{}", exits[0].output);
    println!("{}", exits[0].output);
}

// Two guests, as TCG in virtual time is one thread.

#[test]
fn those_that_losses_drive() {
    in_guest(&["reno", "scalable", "highspeed", "bic", "htcp", "a_wrong_increase"]);
}

#[test]
#[cfg(bpf_programs)]
fn those_that_measure() {
    in_guest(&["hybla", "illinois", "westwood", "yeah", "vegas"]);
}
