//! The guests, which run this program.

use std::env;

use longhaul_testing::guest::{Guest, Kernel};

use crate::IN_GUEST;

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
