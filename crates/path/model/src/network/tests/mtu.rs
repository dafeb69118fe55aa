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

/// A packet of 3,000 bytes that may be cut, with its Ethernet header.
fn cuttable() -> Shape {
    Shape { cut_behind_bytes: 34, ..single(3014) }
}

fn parts(released: &[Release]) -> Vec<(u32, u32)> {
    released.iter().map(|release| release.fragment.map_or((0, 0), |part| (part.offset, part.bytes))).collect()
}

/// Two hops cut: of 2,980 bytes first 1376 fit into 1400, then 480 of them into 500. The frame is free with the last fragment.
#[test]
fn what_may_be_cut_is_cut_and_cut_again() {
    let mut network = Network::new(&path(vec![mtu(1400, true), mtu(500, false)]), Options::default());
    network.arrive(Nanos(0), CLIENT, Destination::Port(SERVER), cuttable(), 7);
    network.advance(Nanos::from_millis(1));
    assert!(network.too_long().is_none(), "nobody is told");
    let released = drain(&mut network);
    let of = |from: u32, bytes: &[u32]| {
        bytes.iter().scan(from, |at, bytes| Some((std::mem::replace(at, *at + bytes), *bytes))).collect::<Vec<_>>()
    };
    let expected = [of(0, &[480, 480, 416]), of(1376, &[480, 480, 416]), of(2752, &[228])].concat();
    assert_eq!(parts(&released), expected);
    assert!(released.iter().all(|release| (release.token, release.first, release.count) == (7, 0, 1)));
    assert_eq!(released.iter().map(|release| release.last).collect::<Vec<_>>(), [vec![false; 6], vec![true]].concat());
    for (nth, arrived, added) in [(0, 3_014, 2_u64), (1, 3_014 + 2 * 34, 4)] {
        let hop = network.hops().find(|hop| hop.place == HopPlace::Forward(nth)).unwrap().counters;
        assert_eq!((hop.arrived.bytes, hop.fragmented), (arrived, Count { packets: added, bytes: added * 34 }));
        assert_eq!((hop.departed.bytes, hop.dropped().packets, hop.held_packets()), (arrived + added * 34, 0, 0));
    }
    assert_eq!(network.frames_in_flight(), 0);
}

/// Packets of every kind over hops that cut, lose, copy, damage and queue: none is lost unseen, and the same seed has the same fates.
#[test]
fn cutting_keeps_account_and_seeds() {
    let run = |seed| {
        let impaired = HopSpec {
            loss: LossSpec::Random(Probability(0.1)),
            duplicate: Probability(0.1),
            corrupt: Probability(0.1),
            ..mtu(700, true)
        };
        let queue = HopSpec { rate: Some(BitRate(50_000_000)), queue: QueueLimit::Packets(20), ..mtu(600, true) };
        let spec = path(vec![impaired.clone(), queue, HopSpec { mtu: None, ..impaired }]);
        let mut network = Network::new(&spec, Options { seed, ..Options::default() });
        let mut released = Vec::new();
        for token in 0..500 {
            let at = Nanos::from_micros(token * 300);
            let shape = match token % 3 {
                0 => cuttable(),
                1 => single(1514),
                _ => Shape { cut_behind_bytes: 34, ..superpacket(5) },
            };
            network.arrive(at, CLIENT, Destination::Port(SERVER), shape, token);
            network.advance(at);
            released.extend(std::iter::from_fn(|| network.release()));
            while let Some(packet) = network.too_long() {
                network.tell(packet, None);
            }
        }
        released.extend(drain(&mut network));
        for hop in network.hops() {
            assert_eq!(hop.counters.held_packets(), 0, "{:?}", hop.place);
            let counters = hop.counters;
            let [of, to] = [
                counters.arrived.bytes + counters.duplicated.bytes + counters.fragmented.bytes,
                counters.departed.bytes + counters.dropped().bytes,
            ];
            assert_eq!(of, to, "{:?}", hop.place);
        }
        assert_eq!(network.frames_in_flight(), 0);
        assert!(released.iter().any(|release| release.fragment.is_some() && release.corrupt.is_some()));
        released
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
