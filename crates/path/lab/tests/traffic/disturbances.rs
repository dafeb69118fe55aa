//! What happens to interfaces while they carry traffic stalls nothing.

use std::process::{Command, Stdio};

use crate::common::transfer::Transfer;
use crate::common::{SERVER_V4, Scratch, alone, brisk, hop, lab, missing, run, run_in_core, unprivileged};
use longhaul_emulator::{PortStatus, Status};
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_lab::Lab;
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_testing::waiting::until;

const PATH: &str = "[[both]]\nrate = '1Gbit'\ndelay = '2ms'";
/// What must arrive after each disturbance to show that traffic goes on.
const MORE: u64 = 3_000_000;

fn port<'a>(status: &'a Status, host: &str) -> &'a PortStatus {
    status.ports.iter().find(|port| port.host == host).unwrap()
}

/// That the emulator itself lost nothing, whatever the interfaces did: what one sent while the other was down, or to a ring that it has
/// only with GRO, never came to the emulator.
fn assert_no_own_fault(lab: &Lab) {
    let status = lab.status().unwrap();
    assert_eq!(status.own_fault.total(), status.own_fault.port_ring_full_frames, "{:?}", status.own_fault);
    for port in &status.ports {
        assert!(port.not_segmented_frames.is_empty(), "{:?}", port.not_segmented_frames);
    }
}

#[test]
fn offloads_turned_off_under_traffic_stall_nothing() {
    if unprivileged() || missing("ethtool") {
        return;
    }
    let _alone = alone();
    let lab = lab(PATH);
    let transfer = Transfer::endless(&lab, "client", "server", SERVER_V4, brisk());
    transfer.goes_on(MORE);
    let ports = ["client1", "server1"];
    for (feature, state) in [
        ("tso", "off"),
        ("gso", "off"),
        ("tx", "off"),
        ("sg", "off"),
        ("gro", "on"),
        ("gro", "off"),
        ("sg", "on"),
        ("tx", "on"),
        ("gso", "on"),
        ("tso", "on"),
    ] {
        for (host, port) in ["client", "server"].into_iter().zip(ports) {
            // Some hang together, so that one is changed with another; that is told and no failure.
            crate::common::attempt(&lab, host, &["ethtool", "-K", HOST_INTERFACE, feature, state]);
            transfer.goes_on(MORE);
            run_in_core(&lab, &["ethtool", "-K", port, feature, state]);
            transfer.goes_on(MORE);
        }
        assert_no_own_fault(&lab);
    }
    transfer.end();
    assert_no_own_fault(&lab);
    let from_client = lab.status().unwrap().ports.swap_remove(0);
    assert!(from_client.received.packets > from_client.received_frames * 6 / 5, "no super-packets: {from_client:?}");
}

/// With a program at the interface behind it, the far end takes no super-packets any more, and frames wait in its ring.
#[test]
fn an_xdp_program_attached_under_traffic_stalls_nothing() {
    if unprivileged() || missing("clang") || missing("ip") {
        return;
    }
    let scratch = Scratch::new();
    let (source, object) = (scratch.file("pass.c"), scratch.file("pass.o"));
    let program = "__attribute__((section(\"xdp\"), used)) int pass(void *context) { return 2; }\n\
                   char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
    std::fs::write(&source, program).unwrap();
    let compiled =
        Command::new("clang").args(["-O2", "-g", "-target", "bpf", "-c", &source, "-o", &object]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let _alone = alone();
    let lab = lab(PATH);
    let transfer = Transfer::endless(&lab, "client", "server", SERVER_V4, brisk());
    transfer.goes_on(MORE);
    for host in ["server", "client"] {
        let attach = ["ip", "link", "set", "dev", HOST_INTERFACE, "xdpdrv", "obj", &object, "sec", "xdp"];
        let (said, attached) = crate::common::attempt(&lab, host, &attach);
        if !attached {
            longhaul_testing::skipped!("no native XDP on a veth here: {}", said.trim());
            return;
        }
        transfer.goes_on(MORE);
        assert_no_own_fault(&lab);
    }
    assert!(run(&lab, "server", &["ip", "link", "show", "dev", HOST_INTERFACE]).contains("xdp"));
    transfer.goes_on(10 * MORE);
    for host in ["server", "client"] {
        run(&lab, host, &["ip", "link", "set", "dev", HOST_INTERFACE, "xdpdrv", "off"]);
        transfer.goes_on(MORE);
    }
    transfer.end();
    assert_no_own_fault(&lab);
}

#[test]
fn an_interface_that_is_set_down_and_up_again_goes_on() {
    if unprivileged() || missing("ip") {
        return;
    }
    let _alone = alone();
    let lab = lab(PATH);
    let transfer = Transfer::endless(&lab, "client", "server", SERVER_V4, brisk());
    transfer.goes_on(MORE);
    // The emulator's own end, then the host's.
    run_in_core(&lab, &["ip", "link", "set", "dev", "server1", "down"]);
    until("the emulator to see that its port is down", || !port(&lab.status().unwrap(), "server").up);
    run_in_core(&lab, &["ip", "link", "set", "dev", "server1", "up"]);
    until("the emulator to take its port back", || port(&lab.status().unwrap(), "server").up);
    transfer.goes_on(MORE);
    for host in ["server", "client"] {
        run(&lab, host, &["ip", "link", "set", "dev", HOST_INTERFACE, "down"]);
        run(&lab, host, &["ip", "link", "set", "dev", HOST_INTERFACE, "up"]);
        transfer.goes_on(MORE);
    }
    transfer.end();
    assert_no_own_fault(&lab);
}

#[test]
fn a_host_that_is_cut_off_leaves_the_others_alone_and_may_come_back() {
    if unprivileged() || missing("ip") {
        return;
    }
    let _alone = alone();
    let lab = lab("[[client]]\n[[client]]\n[[both]]\nrate = '1Gbit'\ndelay = '2ms'");
    let transfer = Transfer::endless(&lab, "client1", "server", SERVER_V4, brisk());
    let flood = ["ping", "-n", "-q", "-i", "0.001", "10.77.2.1"];
    let pinging = crate::common::start(&lab, "client2", &flood, Stdio::null());
    until("both to be under way", || port(&lab.status().unwrap(), "client2").received.packets > 20);
    transfer.goes_on(MORE);
    run(&lab, "client2", &["ip", "link", "delete", "dev", HOST_INTERFACE]);
    until("the emulator to miss the port", || !port(&lab.status().unwrap(), "client2").up);
    let caveats = lab.status().unwrap().caveats(longhaul_emulator::DEFAULT_LATENESS_BOUND);
    assert!(caveats.iter().any(|caveat| caveat.code == "port_down"), "{caveats:?}");
    transfer.goes_on(MORE);
    drop(pinging);

    let host = lab.host("client2").unwrap();
    let cable = || {
        let end = |name, namespace, mac| VethEnd { name, namespace, mtu_bytes: None, mac };
        let mut netlink = Netlink::open().unwrap();
        let far = end(HOST_INTERFACE, Some(&host.namespace), Some(host.plan.mac));
        netlink.create_veth(&end(&host.plan.port, None, None), &far).unwrap();
        let index = netlink.index_of(&host.plan.port).unwrap();
        netlink.set_up(index, true).unwrap();
    };
    lab.core().enter(cable).unwrap();
    let address = format!("{}/16", host.plan.ipv4);
    run(&lab, "client2", &["ip", "address", "add", &address, "dev", HOST_INTERFACE]);
    run(&lab, "client2", &["ip", "link", "set", "dev", HOST_INTERFACE, "up"]);
    until("the emulator to take the port back", || port(&lab.status().unwrap(), "client2").up);
    // It asks for the server's address now, over the path.
    until("an answer", || {
        crate::common::attempt(&lab, "client2", &["ping", "-n", "-c", "1", "-W", "1", "10.77.2.1"]).1
    });
    transfer.end();
    let status = lab.status().unwrap();
    assert_eq!(status.own_fault.total(), 0, "{:?}", status.own_fault);
    assert_eq!(hop(&status, "forward.hop1").counters.dropped().packets, 0);
}
