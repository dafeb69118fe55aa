//! The MTU of a hop: what it drops, whom it tells, and the way of the message.

use super::*;

fn mtu(bytes: u32, icmp: bool) -> HopSpec {
    HopSpec { mtu: Some(MtuSpec { bytes, icmp }), ..delay(10) }
}

/// A packet of 1400 bytes and its Ethernet header passes 1400, one byte more does not; the last packet of a super-packet is shorter.
#[test]
fn what_is_longer_is_dropped() {
    let mut network = Network::new(&path(vec![mtu(1400, false)]), Options::default());
    let mut short = superpacket(3);
    short.payload_bytes -= 1000;
    for (token, shape) in [(1, single(1414)), (2, single(1415)), (3, short)] {
        network.arrive(Nanos(0), CLIENT, Destination::Port(SERVER), shape, token);
    }
    network.advance(Nanos::from_millis(1));
    assert!(network.too_long().is_none(), "it is silent");
    assert_eq!(packets(&drain(&mut network)), [(1, 0), (3, 2)]);
    let hop = network.hops().find(|hop| hop.place == HopPlace::Forward(0)).unwrap();
    assert_eq!((hop.counters.dropped_mtu.packets, hop.counters.dropped().packets), (3, 3));
    assert_eq!(network.lost(), Some((CLIENT, 2)));
    assert_eq!(network.frames_in_flight(), 0);
}

/// The second of three hops drops; its message goes back over the last of the two hops backward and the client's access.
#[test]
fn a_message_takes_the_way_back() {
    let mut spec = path(vec![delay(10), mtu(1300, true), delay(40)]);
    spec.backward = vec![delay(100), delay(7)];
    let mut network = Network::new(&spec, Options::default());
    network.arrive(Nanos(0), CLIENT, Destination::Port(SERVER), superpacket(10), 5);
    network.advance(Nanos::from_micros(10_100));
    let packet = network.too_long().unwrap();
    assert_eq!((packet.from, packet.token, packet.packet, packet.mtu_bytes), (CLIENT, 5, 0, 1300));
    assert!(network.too_long().is_none(), "one message for the frame");
    assert_eq!(network.lost(), None, "its bytes are still to be quoted");
    network.tell(packet, Some((single(590), 6)));
    assert_eq!(network.lost(), Some((CLIENT, 5)));
    let released = drain(&mut network);
    assert_eq!(released.iter().map(|r| (r.port, r.token, r.last)).collect::<Vec<_>>(), [(CLIENT, 6, true)]);
    assert!(released[0].due.0.abs_diff(17_100_000) < 2_000, "{:?}", released[0].due);
    assert_eq!(network.frames_in_flight(), 0);
}

/// No more than one message a millisecond; a hop where a packet enters the path tells at once.
#[test]
fn messages_are_limited() {
    let mut network = Network::new(&path(vec![mtu(1300, true)]), Options::default());
    let mut told = 0;
    for token in 0..100 {
        let at = Nanos::from_micros(token * 100);
        network.arrive(at, CLIENT, Destination::Port(SERVER), single(1514), token);
        network.advance(at + Nanos::from_micros(50));
        while let Some(packet) = network.too_long() {
            told += 1;
            network.tell(packet, Some((single(590), 1000 + token)));
        }
    }
    assert_eq!(told, 10);
    assert_eq!(drain(&mut network).len(), 10);
    assert_eq!(network.frames_in_flight(), 0);
}
