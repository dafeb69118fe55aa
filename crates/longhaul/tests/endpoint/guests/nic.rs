//! Settings of a NIC that a sweep changes, on one that has a ring and interrupts: QEMU's, in a guest.

use longhaul_testing::guest::{Exit, Guest, Kernel};
use longhaul_testing::no_judge;

/// What a shell in the guest does first. The other end of the cable is in a namespace of its own: else packets would pass loopback. The ip of
/// busybox knows no namespaces.
const HOSTS: &str =
    "set -e; ip() { /usr/bin/ip \"$@\"; }; mkdir -p /run/netns; ip netns add far; ip link set eth1 netns far
    ip link set eth0 up; ip address add 10.1.1.1/24 dev eth0
    ip -n far link set lo up; ip -n far link set eth1 up; ip -n far address add 10.1.1.2/24 dev eth1
    ip netns exec far sh -c 'longhaul serve --bind 10.1.1.2 --no-auth --host-settings allow >/tmp/serve 2>&1 & echo $! >/tmp/pid'
    for i in $(seq 100); do grep -q listening /tmp/serve && ping -c 1 -W 1 10.1.1.2 >/dev/null && break; sleep 0.1; done
    cat /tmp/serve";

/// What `commands` come to after [`HOSTS`], where the NICs are those of `model` with the drivers `modules`.
fn with_nics(model: &'static str, modules: &[&str], commands: &[&str]) -> Option<Vec<Exit>> {
    let guest = match Guest::new(Kernel::Linux6_12) {
        Ok(guest) => guest,
        Err(why) => {
            no_judge!("{why}");
            return None;
        }
    };
    let guest = modules.iter().fold(guest.with_nics(model), |guest, module| guest.with_module(module));
    let programs = [env!("CARGO_BIN_EXE_longhaul"), "/usr/sbin/ip", "/usr/sbin/ethtool"];
    let guest = programs.iter().fold(guest, |guest, program| guest.with_program(program));
    let commands = [&[HOSTS], commands].concat();
    let mut exits = guest.run(&commands);
    for (command, exit) in commands.iter().zip(&exits) {
        println!("$ {command}\n{}\n[{}]", exit.output, exit.status);
    }
    assert!(exits[0].output.contains("listening"), "{}", exits[0].output);
    Some(exits.split_off(1))
}

/// What the last line of `look` tells of the receiving NIC: while a test with `option` has changed it to `changed`, after the server was killed,
/// which had done that, and before.
fn after_kill(look: &str, option: &str, changed: &str) -> String {
    format!(
        "look() {{ /usr/bin/ip netns exec far {look} | tail -n 1 | tr -dc 0-9; echo; }}
        becomes() {{ for i in $(seq 100); do [ \"$(look)\" = $1 ] && break; sleep 0.1; done; look; }}
        before=$(look)
        longhaul sweep 10.1.1.2 --no-auth --sizes 200 -b 1M {option} -t 60s --repeat 1 >/tmp/swept 2>&1 & sweep=$!
        becomes {changed}; kill -9 $(cat /tmp/pid); becomes $before; kill $sweep 2>/dev/null; echo $before"
    )
}

/// Asserts that a setting was `changed` to this, and was as before after the kill.
fn was_put_back(exit: &Exit, changed: &str) {
    let [during, after, before] = exit.output.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{}", exit.output);
    };
    assert_eq!((during, after), (changed, before), "{}", exit.output);
}

#[test]
fn a_ring_is_changed_for_a_test_and_put_back() {
    let killed = after_kill("ethtool -g eth1 | grep RX:", "--ring 64", "64");
    let commands = [
        "longhaul sweep 10.1.1.2 --no-auth --sizes 200 -b 1M --ring 64 --irq-cpu 0 -t 200ms --repeat 1 --json",
        "/usr/bin/ip netns exec far ethtool -g eth1",
        &killed,
    ];
    let Some(exits) = with_nics("virtio-net-pci", &["virtio_pci", "virtio_net"], &commands) else { return };
    // As the driver said it was in the test, and how it is behind it. The guest has one CPU, so that the interrupts' is found and stays.
    assert!(exits[0].output.contains("\"ring_packets\":64,\"coalesce_us\":"), "{}", exits[0].output);
    assert!(exits[0].output.contains("\"irq_cpus\":[0]"), "{}", exits[0].output);
    assert!(exits[1].output.matches("RX:\t\t256").count() == 2, "{}", exits[1].output);
    was_put_back(&exits[2], "64");
}

/// The time that `ethtool -c` tells, microseconds.
fn receive_us(said: &str) -> Vec<u32> {
    said.lines().filter_map(|line| line.strip_prefix("rx-usecs:")?.trim().parse().ok()).collect()
}

/// ethtool looks at the receiving NIC before, during and after the tests.
#[test]
fn coalescing_is_changed_for_a_test_and_put_back() {
    const LOOK: &str = "/usr/bin/ip netns exec far ethtool -c eth1";
    let during = format!(
        "longhaul sweep 10.1.1.2 --no-auth --sizes 200 --spacings 200us --coalesce 0,2ms -t 1s --repeat 1 --json >/tmp/swept 2>/tmp/caveats &
        while kill -0 $!; do {LOOK} | grep rx-usecs:; usleep 100000; done"
    );
    let killed = after_kill("ethtool -c eth1 | grep rx-usecs:", "--coalesce 2ms", "2000");
    let commands = [LOOK, &during, "cat /tmp/swept", LOOK, "cat /tmp/caveats", &killed];
    let Some(exits) = with_nics("e1000e", &["e1000e"], &commands) else { return };
    let [before, during, after] = [0, 1, 3].map(|nth| receive_us(&exits[nth].output));
    assert_eq!((before.len(), &before), (1, &after), "it is as it was");
    assert!(during.contains(&2_000) && during.contains(&0), "{during:?}");
    let swept = crate::common::object(exits[2].output.as_bytes());
    let points = swept["result"]["points"].as_array().unwrap();
    let of = |point: &serde_json::Value| {
        let figures = &point["tests"][0]["figures"];
        (
            figures["receive_settings"]["coalesce_us"].as_u64(),
            point["means"]["spacing_out_ns"]["mean"].as_f64().unwrap(),
        )
    };
    let [(first_us, first_ns), (second_us, second_ns)] = [of(&points[0]), of(&points[1])];
    assert_eq!((first_us, second_us), (Some(0), Some(2_000)), "{swept}");
    was_put_back(&exits[5], "2000");
    println!("median between arrivals: {first_ns} ns at once, {second_ns} ns where interrupts wait 2 ms");
    // Packets leave 200 us apart: at once they arrive so, and in batches nearly together.
    assert!((150e3..300e3).contains(&first_ns) && second_ns < 20e3, "{first_ns} {second_ns}");
}
