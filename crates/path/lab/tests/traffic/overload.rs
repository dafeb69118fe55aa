//! More than the emulator can send: what came in and cannot leave must not pile up, and a path that got slower says so.

use crate::common::datagrams::{SEGMENTS_MOST, Sink, Source};
use crate::common::{SERVER_V4, alone, hop, settled, unprivileged, wire_lab};
use longhaul_emulator::DEFAULT_LATENESS_BOUND;

/// Super-packets of 64 are one frame to receive; on a path of single packets they are 64 frames to send. So a host makes them many times
/// faster than the emulator can pass them on, while the path's rate would allow it.
#[test]
fn what_cannot_be_sent_in_time_fills_the_paths_own_queue() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = wire_lab(
        "[[client]]
        queue = '1000p'
        [[forward]]
        rate = '12Gbit'
        queue = '1000p'
        delay = '1ms'",
    );
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let mut source = Source::new(&lab, "client", SERVER_V4, 64, SEGMENTS_MOST);
    while source.next() < PACKETS {
        source.send(PACKETS - source.next());
    }
    let status = settled(&lab);
    let own = status.own_fault;
    let by_queues: u64 = status.hops.iter().map(|hop| hop.counters.dropped_queue.packets).sum();
    println!("{own:?}, stood {} ns, late {:?}, {by_queues} dropped by queues", status.clock_stood_ns, status.lateness);
    assert_eq!((own.memory_full_frames, own.send_error_packets), (0, 0), "{own:?}");
    assert!(status.memory[0].peak_bytes < status.memory[0].capacity_bytes / 2, "{:?}", status.memory[0]);
    assert!(status.lateness.p99_ns < 150_000_000, "{:?}", status.lateness);
    // The path's own queues drop what is too much, and each packet is accounted for.
    assert!(by_queues > PACKETS / 10, "{by_queues}");
    let entered = status.ports[0].received.packets;
    assert_eq!(entered, by_queues + hop(&status, "server.down").counters.departed.packets);
    drop(sink);
    // And it is said.
    let caveats = status.caveats(DEFAULT_LATENESS_BOUND);
    let codes: Vec<&str> = caveats.iter().map(|caveat| caveat.code.as_str()).collect();
    assert!(status.clock_stood_ns > 0 && codes.contains(&"emulator_slowed"), "{codes:?}");
}

const PACKETS: u64 = 1_000_000;
