//! A port whose far end does not keep up: a veth's ring of 256 frames fills when TSO is off at the near end, GRO is on at the
//! far end (only then frames go by the ring), and the far end's NAPI is held back.

use std::fs;

use longhaul_kernel::ethtool;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::mounts::{fresh_sysfs, private_mounts};
use longhaul_kernel::packet::{OutgoingFrame, PacketOptions, PacketSocket, Refusal, SendError};

use crate::cable::{Cable, EXPERIMENT, PLAIN, frame, socket_in, unprivileged};

/// Frames that a veth's ring holds (`VETH_RING_SIZE`).
const RING: usize = 256;

/// A cable whose right end takes in nothing for ten seconds; `None` where the kernel cannot do that.
fn clogged_cable() -> Option<Cable> {
    // `NETIF_F_ALL_TSO`.
    const SEGMENTATION: [(&str, bool); 4] = [
        ("tx-tcp-segmentation", false),
        ("tx-tcp6-segmentation", false),
        ("tx-tcp-ecn-segmentation", false),
        ("tx-tcp-mangleid-segmentation", false),
    ];
    let cable = Cable::new();
    cable.left.enter(|| ethtool::set_features("lhk-l", &SEGMENTATION)).unwrap().unwrap();
    let held = cable.right.enter(|| {
        ethtool::set_features("lhk-r", &[("rx-gro", true)]).map_err(|error| error.to_string())?;
        private_mounts().and_then(|()| fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "1000"), ("gro_flush_timeout", "10000000000")] {
            let path = format!("/sys/class/net/lhk-r/{file}");
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok::<(), String>(())
    });
    if let Err(why) = held.unwrap() {
        longhaul_testing::skipped!("{why}");
        return None;
    }
    Some(cable)
}

#[test]
fn a_full_ring_is_the_far_ports() {
    if unprivileged() {
        return;
    }
    let Some(cable) = clogged_cable() else { return };
    let left = socket_in(&cable.left, cable.left_index);
    let one = frame(EXPERIMENT, &[0; 100]);
    let mut refused = 0;
    for _ in 0..2 * RING {
        match left.send(&PLAIN, &[&one]) {
            Ok(()) => {}
            Err(SendError::FarPortFull) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "the ring never filled");
    let mut netlink = cable.left.enter(Netlink::open).unwrap().unwrap();
    let stats = netlink.link_by_name("lhk-l").unwrap().stats.unwrap();
    assert_eq!(stats.tx_dropped, refused, "each is counted once by the link");

    // In a batch the kernel tells the reason only of the first.
    let outcome = left.send_batch([OutgoingFrame { vnet: &PLAIN, parts: [&one, &[], &[]] }; 4]);
    assert!(matches!(outcome.refusal, Some(Refusal::Known(SendError::FarPortFull))), "{outcome:?}");
    assert_eq!(outcome.sent, 0);
}

#[test]
fn a_batch_stops_at_the_first_refusal() {
    if unprivileged() {
        return;
    }
    let Some(cable) = clogged_cable() else { return };
    let left = socket_in(&cable.left, cable.left_index);
    let one = frame(EXPERIMENT, &[0; 100]);
    let stopped = (0..2 * RING / 50).find_map(|_| {
        let outcome = left.send_batch([OutgoingFrame { vnet: &PLAIN, parts: [&one, &[], &[]] }; 50]);
        outcome.refusal.map(|refusal| (outcome.sent, refusal))
    });
    let (sent, refusal) = stopped.expect("the ring never filled");
    assert!(sent < 50);
    assert!(matches!(refusal, Refusal::Unknown) == (sent > 0), "{sent} {refusal:?}");
}

#[test]
fn a_full_send_buffer_is_ones_own() {
    if unprivileged() {
        return;
    }
    let Some(cable) = clogged_cable() else { return };
    let options = PacketOptions { send_buffer_bytes: 16 << 10, ..PacketOptions::default() };
    let left = cable.left.enter(|| PacketSocket::open(cable.left_index, &options)).unwrap().unwrap();
    let one = frame(EXPERIMENT, &[0; 1000]);
    let outcome = (0..RING).find_map(|_| left.send(&PLAIN, &[&one]).err());
    assert!(matches!(outcome, Some(SendError::WouldBlock)), "{outcome:?}");
}
