//! Two hosts with paths of different length meet in one queue: what is dropped, and the order in which the rest arrives, are
//! those of one drop-tail queue that serves first come, first served.

use std::collections::HashMap;
use std::thread;

use crate::common::capture::{Capture, Captured};
use crate::common::datagrams::{PORT, SEGMENTS_MOST, Sink, Source};
use crate::common::{SERVER_V4, alone, assert_faithful, hop, path, settled, unprivileged, wire_lab};
use longhaul_path::network::{Destination, Network, Options, PortId, Segmentation};
use longhaul_units::Nanos;
use longhaul_wire::Segmenter;

/// The hosts' links are slower than the bottleneck and together faster: how fast the hosts fill their links does not matter,
/// and the streams meet in the queue as the model spaces them.
const DUMBBELL: &str = "
    [[client]]
    rate = '71.3Mbit'
    delay = '1ms'
    [[client]]
    rate = '52.7Mbit'
    delay = '15ms'
    [[forward]]
    rate = '100Mbit'
    queue = '60p'
    delay = '5ms'
    [[backward]]
    delay = '5ms'";

const BYTES: usize = 1000;
/// As long as each other at their rates.
const SENT: [u64; 2] = [7_000, 5_000];
/// Where the numbers of the second client begin.
const SECOND: u64 = 1 << 20;

/// The frames of the streams in a capture, with the number of their first datagram.
fn numbered(frames: Vec<Captured>) -> Vec<(u64, Captured)> {
    let ours = |frame: &Captured| frame.frame[23] == 17 && frame.frame[36..38] == PORT.to_be_bytes();
    let number = |frame: &Captured| u64::from_be_bytes(frame.frame[42..50].try_into().unwrap());
    frames.into_iter().filter(ours).map(|frame| (number(&frame), frame)).collect()
}

#[test]
fn two_flows_share_one_queue() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = wire_lab(DUMBBELL);
    // The same stamps as the emulator's: the kernel stamps a frame once, for all who look.
    let at_ports = ["client1", "client2"].map(|port| Capture::start(lab.core(), port, 64));
    let at_server = Capture::start(&lab.host("server").unwrap().namespace, "eth0", 64);
    let sink = Sink::new(&lab, "server", SERVER_V4);
    thread::scope(|scope| {
        for (host, first, count) in [("client1", 0, SENT[0]), ("client2", SECOND, SENT[1])] {
            let mut source = Source::new(&lab, host, SERVER_V4, BYTES, SEGMENTS_MOST).numbered_from(first);
            scope.spawn(move || {
                while source.next() < first + count {
                    source.send(first + count - source.next());
                }
            });
        }
    });
    let status = settled(&lab);
    assert_faithful(&status);
    let heard = sink.finish();
    let arrived: Vec<u64> = numbered(at_server.finish()).into_iter().map(|(number, _)| number).collect();
    assert_eq!(arrived, heard.numbers, "what comes to the interface is what the application gets");

    let total: u64 = SENT.iter().sum();
    // The drops of that one hop are what does not arrive; nothing else drops.
    let dropped = hop(&status, "forward.hop1").counters.dropped_queue.packets;
    assert!(dropped > total / 20, "{dropped} dropped: the queue was hardly full");
    assert_eq!(dropped + heard.numbers.len() as u64, total);
    for other in status.hops.iter().filter(|hop| hop.name != "forward.hop1") {
        assert_eq!(other.counters.dropped().packets, 0, "{}", other.name);
    }

    // The same arrivals in virtual time.
    let mut arrivals: Vec<(u16, u64, Captured)> = Vec::new();
    for (port, capture) in (0..).zip(at_ports) {
        arrivals.extend(numbered(capture.finish()).into_iter().map(|(number, frame)| (port, number, frame)));
    }
    arrivals.sort_by_key(|(_, _, frame)| frame.at);
    let expected = simulate(&arrivals);

    let place: HashMap<u64, usize> = expected.iter().enumerate().map(|(place, number)| (*number, place)).collect();
    let fates = arrived.iter().filter(|number| !place.contains_key(number)).count();
    let places: Vec<usize> = arrived.iter().filter_map(|number| place.get(number).copied()).collect();
    let swaps = places.windows(2).filter(|pair| pair[0] > pair[1]).count();
    println!(
        "{} arrived, {dropped} dropped; the model has {} arrive; {fates} other fates, {swaps} other neighbours",
        arrived.len(),
        expected.len(),
    );
    for first in [0, SECOND] {
        let count = |numbers: &[u64]| numbers.iter().filter(|&&number| number & SECOND == first).count();
        let (arrived, expected) = (count(&arrived), count(&expected));
        println!("of the flow from {first} on {arrived}, {expected} in the model");
        assert!(arrived.abs_diff(expected) * 50 < expected, "{arrived} of a flow, {expected} in the model");
    }
    // A frame is stamped some time before the emulator can see it, which may have let time pass: one stream is then later
    // against the other than the stamps say, and of two packets that compete for a place the other one gets it.
    let by_chance = arrived.len() * dropped as usize / total as usize;
    assert!(fates * 2 < by_chance, "{fates} other fates, {by_chance} by chance");
    assert!(swaps * 10 < arrived.len(), "{swaps} other neighbours");
}

/// Which packets arrive, in order, as the model has it.
fn simulate(arrivals: &[(u16, u64, Captured)]) -> Vec<u64> {
    let options = Options { segmentation: Segmentation::Wire, ..Options::default() };
    let mut network = Network::new(&path(DUMBBELL), options);
    let began = arrivals[0].2.at;
    let mut arrived = Vec::new();
    for (port, number, frame) in arrivals {
        let at = frame.at - began;
        let shape = Segmenter::new(&frame.frame, frame.original_bytes, frame.vnet).unwrap().shape();
        network.advance(at);
        network.arrive(at, PortId(*port), Destination::Port(PortId(2)), shape, *number);
    }
    network.advance(Nanos::from_secs(3600));
    while let Some(release) = network.release() {
        arrived.push(release.token + u64::from(release.first));
    }
    arrived
}
