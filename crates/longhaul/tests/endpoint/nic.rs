//! Settings of a NIC that a sweep changes, on one that has a ring and interrupts: QEMU's, in a guest.

use longhaul_testing::guest::{Guest, Kernel};
use longhaul_testing::no_judge;

/// What a shell in the guest does. The other end of the cable is in a namespace of its own: else packets would pass loopback. The ip of busybox
/// knows no namespaces.
const COMMANDS: [&str; 3] = [
    "set -e; ip() { /usr/bin/ip \"$@\"; }; mkdir -p /run/netns; ip netns add far; ip link set eth1 netns far
    ip link set eth0 up; ip address add 10.1.1.1/24 dev eth0
    ip -n far link set lo up; ip -n far link set eth1 up; ip -n far address add 10.1.1.2/24 dev eth1
    ip netns exec far sh -c 'longhaul serve --bind 10.1.1.2 --no-auth --host-settings allow >/tmp/serve 2>&1 &'
    sleep 1; cat /tmp/serve",
    "longhaul sweep 10.1.1.2 --no-auth --sizes 200 -b 1M --ring 64 --irq-cpu 0 -t 200ms --repeat 1 --json",
    "/usr/bin/ip netns exec far ethtool -g eth1",
];

#[test]
fn a_ring_is_changed_for_a_test_and_put_back() {
    let guest = match Guest::new(Kernel::Linux6_12) {
        Ok(guest) => guest,
        Err(why) => return no_judge!("{why}"),
    };
    let guest = guest.with_nics("virtio-net-pci").with_module("virtio_pci").with_module("virtio_net");
    let programs = [env!("CARGO_BIN_EXE_longhaul"), "/usr/sbin/ip", "/usr/sbin/ethtool"];
    let guest = programs.iter().fold(guest, |guest, program| guest.with_program(program));
    let exits = guest.run(&COMMANDS);
    for (command, exit) in COMMANDS.iter().zip(&exits) {
        println!("$ {command}\n{}\n[{}]", exit.output, exit.status);
    }
    assert!(exits[0].output.contains("listening"), "{}", exits[0].output);
    // As the driver said it was in the test, and how it is behind it. The guest has one CPU, so that the interrupts' is found and stays.
    assert!(exits[1].output.contains("\"ring_packets\":64,\"coalesce_us\":"), "{}", exits[1].output);
    assert!(exits[1].output.contains("\"irq_cpus\":[0]"), "{}", exits[1].output);
    assert!(exits[2].output.matches("RX:\t\t256").count() == 2, "{}", exits[2].output);
}
