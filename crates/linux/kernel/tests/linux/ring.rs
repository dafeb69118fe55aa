//! The receive ring says what the socket says.

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::packet::{PacketOptions, PacketSocket, ReceiveError, SendError, VlanTag};
use longhaul_kernel::packet_ring::{RingFrame, RxRing};
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

use crate::cable::{
    Cable, EXPERIMENT, LEFT_IP, PLAIN, RIGHT_IP, frame, ip, segmenting_socket, socket_in, tagged, unprivileged,
};

fn ring_on_the_right(cable: &Cable) -> (PacketSocket, RxRing) {
    let ring = cable.right.enter(|| RxRing::open(cable.right_index, 1518, 64, &PacketOptions::default()));
    (socket_in(&cable.left, cable.left_index), ring.unwrap().unwrap())
}

/// Waits for a frame, which `look` then sees; fails after five seconds.
fn with_next<T>(ring: &mut RxRing, look: impl FnOnce(RingFrame<'_>) -> T) -> T {
    let deadline = monotonic() + Nanos::from_secs(5);
    loop {
        assert!(readable_until(&*ring, Some(deadline)).unwrap() || monotonic() < deadline, "no frame came");
        if let Some(frame) = ring.next() {
            return look(frame);
        }
    }
}

#[test]
fn frames_arrive_over_and_over_the_ring() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, mut ring) = ring_on_the_right(&cable);
    assert!(ring.next().is_none());
    let start = realtime();
    for i in 0..3 * 64 {
        let sent = frame(EXPERIMENT, &[i as u8; 200]);
        left.send(&PLAIN, &[&sent]).unwrap();
        with_next(&mut ring, |got| {
            assert_eq!(got.bytes(), sent);
            assert_eq!((got.original_bytes(), got.truncated(), got.vlan()), (sent.len(), false, None));
            assert_eq!(got.vnet()[1], 0);
            assert!(start <= got.stamp_realtime() && got.stamp_realtime() <= realtime());
        });
    }
    assert_eq!(ring.socket().drops(), 0);
    ring.socket().send(&PLAIN, &[&frame(EXPERIMENT, &[5; 60])]).unwrap();
    assert_eq!(crate::cable::next_frame(&left).1.len(), 74);
}

#[test]
fn the_outer_tag_is_reported() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, mut ring) = ring_on_the_right(&cable);
    let plain = frame(EXPERIMENT, &[3; 60]);
    left.send(&PLAIN, &[&tagged(&plain, 77)]).unwrap();
    with_next(&mut ring, |got| {
        assert_eq!(got.vlan(), Some(VlanTag { tpid: 0x8100, tci: 77 }));
        assert_eq!(got.bytes(), plain);
    });
}

/// A super-packet outgrows its slot: it says so, and can be had whole; one that nobody takes does not shift the next.
#[test]
fn what_outgrows_its_slot_is_had_whole() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    cable.address();
    let (left, mut ring) = ring_on_the_right(&cable);
    let sender = segmenting_socket(&cable.left, LEFT_IP, 1000);
    for fill in 1..=3 {
        sender.send_to(&[fill; 10_000], (RIGHT_IP, 5210)).unwrap();
        with_next(&mut ring, |mut got| {
            assert!(got.truncated() && got.bytes().len() < 2048);
            assert_eq!(got.original_bytes(), 10_042);
            assert_eq!(u16::from_ne_bytes([got.vnet()[4], got.vnet()[5]]), 1000);
            if fill == 2 {
                // Nobody wants this one.
                return;
            }
            let mut buffer = [0; 20_000];
            let whole = got.read_whole(&mut buffer).unwrap().expect("a copy");
            assert_eq!((whole.frame_bytes, whole.original_bytes, whole.truncated), (10_042, 10_042, false));
            assert_eq!(whole.vnet, got.vnet());
            assert!(buffer[42..10_042].iter().all(|byte| *byte == fill));
            assert!(got.read_whole(&mut buffer).unwrap().is_none(), "only once");
        });
    }
    left.send(&PLAIN, &[&frame(EXPERIMENT, &[0; 60])]).unwrap();
    with_next(&mut ring, |got| assert!(!got.truncated()));
}

#[test]
fn a_deleted_link_wakes_who_waits() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (_left, mut ring) = ring_on_the_right(&cable);
    assert!(ring.take_error().is_ok());
    ip(&cable.right, "link delete lhk-r");
    assert!(readable_until(&ring, Some(monotonic() + Nanos::from_secs(5))).unwrap());
    assert!(ring.next().is_none());
    assert!(matches!(ring.take_error(), Err(ReceiveError::Down)));
    assert!(matches!(ring.socket().send(&PLAIN, &[&frame(EXPERIMENT, &[0; 60])]), Err(SendError::Down)));
}
