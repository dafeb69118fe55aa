//! Two hosts with paths of different length meet in one queue: what is dropped, and the order in which the rest arrives, are
//! those of one drop-tail queue that serves first come, first served.

mod common;

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use common::capture::{Capture, Captured};
use common::datagrams::{PORT, Sink, Source};
use common::{SERVER_V4, alone, assert_faithful, hop, path, settled, unprivileged, wire_lab};
use longhaul_path::network::{Destination, Network, Options, PortId, Segmentation};
use longhaul_units::Nanos;
use longhaul_wire::{Segmenter, VnetHeader};

const DUMBBELL: &str = "
    [[client]]
    rate = '1Gbit'
    delay = '1ms'
    [[client]]
    rate = '1Gbit'
    delay = '15ms'
    [[forward]]
    rate = '100Mbit'
    queue = '60p'
    delay = '5ms'
    [[backward]]
    delay = '5ms'";

const BYTES: usize = 1000;
const EACH: u64 = 6_000;
/// Where the numbers of the second client begin.
const SECOND: u64 = 1 << 20;

/// The stream's datagrams of a capture: number and stamp.
fn numbered(frames: &[Captured]) -> Vec<(u64, Nanos)> {
    let ours = |frame: &&Captured| frame.frame[23] == 17 && frame.frame[36..38] == PORT.to_be_bytes();
    let number = |frame: &Captured| u64::from_be_bytes(frame.frame[42..50].try_into().unwrap());
    frames.iter().filter(ours).map(|frame| (number(frame), frame.at)).collect()
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
        for (host, first) in [("client1", 0), ("client2", SECOND)] {
            let mut source = Source::new(&lab, host, SERVER_V4, BYTES, 1).from_number(first);
            // 64 Mb/s each: together more than the bottleneck carries.
            scope.spawn(move || source.send_paced(EACH, Duration::from_micros(125)));
        }
    });
    let status = settled(&lab);
    assert_faithful(&status);
    let heard = sink.finish();
    let arrived_at = numbered(&at_server.finish());
    let arrived: Vec<u64> = arrived_at.iter().map(|(number, _)| *number).collect();
    assert_eq!(arrived, heard.numbers, "what comes to the interface is what the application gets");

    // The drops of that one hop are what does not arrive; nothing else drops.
    let dropped = hop(&status, "forward.hop1").counters.dropped_queue.packets;
    assert!(dropped > EACH / 20, "{dropped} dropped: the queue was hardly full");
    assert_eq!(dropped + heard.numbers.len() as u64, 2 * EACH);
    for other in status.hops.iter().filter(|hop| hop.name != "forward.hop1") {
        assert_eq!(other.counters.dropped().packets, 0, "{}", other.name);
    }

    // The same arrivals in virtual time.
    let mut arrivals: Vec<(Nanos, u16, u64)> = Vec::new();
    for (port, capture) in (0..).zip(at_ports) {
        arrivals.extend(numbered(&capture.finish()).into_iter().map(|(number, at)| (at, port, number)));
    }
    assert_eq!(arrivals.len() as u64, 2 * EACH);
    arrivals.sort_unstable();
    let expected = simulate(&arrivals);
    if std::env::var_os("DUMP").is_some() {
        let mut out = String::new();
        for a in &arrivals {
            out += &format!("A {} {} {}\n", a.0.0, a.1, a.2);
        }
        for a in &arrived_at {
            out += &format!("R {} {}\n", a.1.0, a.0);
        }
        for a in &expected {
            out += &format!("E {a}\n");
        }
        std::fs::write("/tmp/dump.txt", out).unwrap();
    }

    let place: HashMap<u64, usize> = expected.iter().enumerate().map(|(place, number)| (*number, place)).collect();
    let fates = arrived.iter().filter(|number| !place.contains_key(number)).count();
    let places: Vec<usize> = arrived.iter().filter_map(|number| place.get(number).copied()).collect();
    let swaps = places.windows(2).filter(|pair| pair[0] > pair[1]).count();
    println!(
        "{} arrived, {dropped} dropped; the model has {} arrive; {fates} other fates, {swaps} other neighbours",
        arrived.len(),
        expected.len(),
    );
    // The emulator's clock and the stamps' are related anew in each round, to some 100 ns: packets that come within that of
    // the moment when a place gets free, or of each other, may take each other's.
    assert!(fates * 50 < arrived.len() && arrived.len().abs_diff(expected.len()) * 50 < arrived.len());
    assert!(swaps * 50 < arrived.len());
}

/// Which packets arrive, in order, as the model has it.
fn simulate(arrivals: &[(Nanos, u16, u64)]) -> Vec<u64> {
    let options = Options { segmentation: Segmentation::Wire, ..Options::default() };
    let mut network = Network::new(&path(DUMBBELL), options);
    let total = 14 + 20 + 8 + BYTES;
    let shape = Segmenter::new(&[], total, VnetHeader::default()).unwrap().shape();
    let began = arrivals[0].0;
    let mut arrived = Vec::new();
    for &(at, port, number) in arrivals {
        network.advance(at - began);
        network.arrive(at - began, PortId(port), Destination::Port(PortId(2)), shape, number);
    }
    network.advance(Nanos::from_secs(3600));
    while let Some(release) = network.release() {
        arrived.push(release.token);
    }
    arrived
}
