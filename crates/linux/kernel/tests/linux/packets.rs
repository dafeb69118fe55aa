//! Packet sockets: what is sent at one end of a cable arrives at the other.

use longhaul_kernel::clock::{monotonic, realtime, realtime_offset};
use longhaul_kernel::link::Netlink;
use longhaul_kernel::packet::{
    OpenError, OutgoingFrame, PacketOptions, PacketSocket, ReceiveError, SendError, VlanTag,
};
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

use crate::cable::{
    Cable, EXPERIMENT, LEFT_IP, PLAIN, RIGHT_IP, frame, ip, next_frame, segmenting_socket, socket_in, tagged,
    unprivileged,
};

#[test]
fn a_frame_arrives_as_it_was_sent() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, right) = cable.sockets();
    let beside = socket_in(&cable.left, cable.left_index);
    let sent = frame(EXPERIMENT, &[7; 100]);
    let before = realtime();
    left.send(&PLAIN, &[&sent[..5], &sent[5..60], &sent[60..]]).unwrap();
    let (received, got) = next_frame(&right);
    assert_eq!(got, sent);
    assert_eq!((received.original_bytes, received.truncated, received.vlan), (sent.len(), false, None));
    assert_eq!(received.vnet[1], 0, "no super-packet");
    let stamp = received.stamp_realtime.expect("a stamp");
    assert!(before <= stamp && stamp <= realtime(), "{before} {stamp}");
    let age = monotonic().0.abs_diff(realtime_offset().monotonic_of(stamp).0);
    assert!(age < 5_000_000_000, "{age} ns old");
    assert_eq!(right.drops(), 0);
    // What leaves by a link does not arrive there.
    for socket in [&left, &beside] {
        assert!(socket.receive(&mut [0; 2000]).unwrap().is_none());
    }
}

#[test]
fn a_short_buffer_tells_what_was_lost() {
    if unprivileged() {
        return;
    }
    let (left, right) = Cable::new().sockets();
    left.send(&PLAIN, &[&frame(EXPERIMENT, &[1; 500])]).unwrap();
    assert!(readable_until(&right, Some(monotonic() + Nanos::from_secs(5))).unwrap());
    let received = right.receive(&mut [0; 100]).unwrap().unwrap();
    assert_eq!((received.frame_bytes, received.original_bytes, received.truncated), (100, 514, true));
}

#[test]
fn the_outer_tag_is_reported() {
    if unprivileged() {
        return;
    }
    let (left, right) = Cable::new().sockets();
    let plain = frame(EXPERIMENT, &[3; 60]);
    left.send(&PLAIN, &[&tagged(&plain, 0x6005)]).unwrap();
    let (received, got) = next_frame(&right);
    assert_eq!(received.vlan, Some(VlanTag { tpid: 0x8100, tci: 0x6005 }));
    assert_eq!(got, plain);
}

#[test]
fn a_super_packet_arrives_whole_with_its_segment_size() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    cable.address();
    let (_left, right) = cable.sockets();
    let sender = segmenting_socket(&cable.left, LEFT_IP, 1000);
    sender.send_to(&[9; 10_000], (RIGHT_IP, 5210)).unwrap();
    let (received, got) = next_frame(&right);
    // struct virtio_net_hdr: gso_type at 1, gso_size at 4.
    const VIRTIO_NET_HDR_GSO_UDP_L4: u8 = 5;
    assert_eq!(received.vnet[1], VIRTIO_NET_HDR_GSO_UDP_L4);
    assert_eq!(u16::from_ne_bytes([received.vnet[4], received.vnet[5]]), 1000);
    assert_eq!(got.len(), 14 + 20 + 8 + 10_000);
}

#[test]
fn batches_keep_their_order() {
    if unprivileged() {
        return;
    }
    let (left, right) = Cable::new().sockets();
    let frames: Vec<Vec<u8>> = (0..40).map(|i| frame(EXPERIMENT, &[i; 80])).collect();
    let outcome =
        left.send_batch(frames.iter().map(|f| OutgoingFrame { vnet: &PLAIN, parts: [&f[..14], &f[14..], &[]] }));
    assert!(outcome.refusal.is_none() && outcome.sent == 40, "{outcome:?}");
    let mut got = Vec::new();
    let deadline = monotonic() + Nanos::from_secs(5);
    while got.len() < 40 {
        assert!(readable_until(&right, Some(deadline)).unwrap(), "{} of 40 came", got.len());
        let mut bytes = [0; 2048];
        while let Some(received) = right.receive(&mut bytes).unwrap() {
            assert!(received.stamp_realtime.is_some() && !received.truncated);
            got.push(bytes[..received.frame_bytes].to_vec());
        }
    }
    assert_eq!(got, frames);
    assert_eq!(left.send_batch([]).sent, 0);
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    if unprivileged() {
        return;
    }
    let (left, _right) = Cable::new().sockets();
    assert!(matches!(left.send(&PLAIN, &[&frame(EXPERIMENT, &[0; 4000])]), Err(SendError::TooLarge)));
    let mut nonsense = PLAIN;
    nonsense[1] = 0x7f;
    assert!(matches!(left.send(&nonsense, &[&frame(EXPERIMENT, &[0; 100])]), Err(SendError::Refused)));
    assert!(matches!(left.send(&PLAIN, &[&[0; 5]]), Err(SendError::Refused)));
}

#[test]
fn a_deleted_link_is_down_and_nothing_hangs() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, right) = cable.sockets();
    ip(&cable.left, "link delete lhk-l");
    let one = frame(EXPERIMENT, &[0; 100]);
    let deadline = monotonic() + Nanos::from_secs(5);
    for socket in [&left, &right] {
        assert!(readable_until(socket, Some(deadline)).unwrap(), "the error wakes who waits");
        assert!(matches!(socket.receive(&mut [0; 2000]), Err(ReceiveError::Down)));
        assert!(matches!(socket.receive(&mut [0; 2000]), Ok(None)), "the kernel says it once");
        assert!(socket.link_is_gone());
        for _ in 0..3 {
            assert!(matches!(socket.send(&PLAIN, &[&one]), Err(SendError::Down)));
        }
    }
}

#[test]
fn a_link_that_comes_up_again_goes_on() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, right) = cable.sockets();
    let mut netlink = cable.right.enter(Netlink::open).unwrap().unwrap();
    netlink.set_up(cable.right_index, false).unwrap();
    let one = frame(EXPERIMENT, &[0; 100]);
    assert!(matches!(right.receive(&mut [0; 2000]), Err(ReceiveError::Down)));
    assert!(matches!(right.send(&PLAIN, &[&one]), Err(SendError::Down)));
    assert!(!right.link_is_gone());
    netlink.set_up(cable.right_index, true).unwrap();
    let deadline = monotonic() + Nanos::from_secs(5);
    assert!(netlink.wait_until_ready(cable.right_index, deadline).unwrap());
    assert!(cable.left.enter(Netlink::open).unwrap().unwrap().wait_until_ready(cable.left_index, deadline).unwrap());
    left.send(&PLAIN, &[&one]).unwrap();
    assert_eq!(next_frame(&right).1, one);
    right.send(&PLAIN, &[&one]).unwrap();
    assert_eq!(next_frame(&left).1, one);
}

#[test]
fn promiscuity_ends_with_the_socket() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let mut netlink = cable.right.enter(Netlink::open).unwrap().unwrap();
    let sockets = cable.sockets();
    assert!(netlink.link_by_name("lhk-r").unwrap().promiscuous);
    drop(sockets);
    assert!(!netlink.link_by_name("lhk-r").unwrap().promiscuous);
}

#[test]
fn buffers_are_as_large_as_asked() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let options = PacketOptions { receive_buffer_bytes: 256 << 20, send_buffer_bytes: 1 << 20, promiscuous: false };
    let socket = cable.left.enter(|| PacketSocket::open(cable.left_index, &options)).unwrap().unwrap();
    assert_eq!(rustix::net::sockopt::socket_recv_buffer_size(&socket).unwrap(), 256 << 20);
    assert_eq!(rustix::net::sockopt::socket_send_buffer_size(&socket).unwrap(), 1 << 20);
}

#[test]
fn frames_that_do_not_fit_into_the_buffer_are_counted() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, _) = cable.sockets();
    let options = PacketOptions { receive_buffer_bytes: 16 << 10, ..PacketOptions::default() };
    let right = cable.right.enter(|| PacketSocket::open(cable.right_index, &options)).unwrap().unwrap();
    for i in 0..100 {
        left.send(&PLAIN, &[&frame(EXPERIMENT, &[i; 1000])]).unwrap();
    }
    let deadline = monotonic() + Nanos::from_secs(5);
    let mut received = 0;
    while received + right.drops() < 100 {
        received += u64::from(right.receive(&mut [0; 2000]).unwrap().is_some());
        assert!(monotonic() < deadline, "{received} received, {} dropped", right.drops());
    }
    assert!(right.drops() > 0 && received > 0, "{received} received, {} dropped", right.drops());
    assert_eq!(received + right.drops(), 100);
}

#[test]
fn a_missing_link_is_named() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let error = cable.left.enter(|| PacketSocket::open(4711, &PacketOptions::default())).unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoSuchLink { ifindex: 4711 }), "{error}");
}
