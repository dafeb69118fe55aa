//! What is kept of flows is bounded: by time, by number, and by the length of what is read.

use super::*;

/// A connection a packet: what ended is forgotten as time goes on.
#[test]
fn memory_follows_open_flows() {
    let mut flows = Flows::new(FlowOptions::default(), Vec::new());
    let mut most = 0;
    for n in 0..20_000_u32 {
        let mut talk = Talk::new();
        talk.ports = ((n % 60_000) as u16 + 1, (n / 60_000) as u16 + 1);
        talk.say(i64::from(n) * MS, true, SYN, 0, 0, 0);
        talk.say(i64::from(n) * MS, false, RST | ACK, 0, 1, 0);
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        most = most.max(flows.open_flows());
    }
    assert!(most <= 2_002, "{most} open at once");
    assert_eq!(flows.finish().0.len(), 20_000);
}

/// More connections than may be open: those that were silent longest are summed up, counted, and said to be so.
#[test]
fn flows_beyond_the_bound_are_evicted() {
    let options = FlowOptions { most_flows: 160, ..FlowOptions::default() };
    let mut flows = Flows::new(options, Vec::new());
    for n in 0..1_000_u32 {
        let mut talk = Talk::new();
        talk.ports = (n as u16 + 1, 2);
        talk.say(i64::from(n) * MS, true, SYN, 0, 0, 0);
        talk.ports = (60_000, 2);
        talk.say(i64::from(n) * MS, true, ACK, seq(n), 1, MSS);
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        assert!(flows.open_flows() <= 160);
    }
    let (found, totals) = flows.finish();
    let ended = |end| found.iter().filter(|flow| flow.connection.unwrap().end == end).count() as u64;
    assert_eq!((found.len(), ended(End::Evicted)), (1_001, totals.evicted_flows));
    assert_eq!(totals.evicted_flows % 10, 0, "a sixteenth at a time");
    assert!((840..=850).contains(&totals.evicted_flows), "{}", totals.evicted_flows);
    // That which went on was never among them.
    let busy = found.iter().find(|flow| flow.client.port() == 60_000).unwrap();
    assert_eq!((busy.connection.unwrap().end, busy.forward.data_packets), (End::Open, 1_000));
}

/// A few bytes of a file can stand for a million connections.
#[test]
fn memory_follows_the_length_of_the_files() {
    let options = FlowOptions { most_bytes: 1 << 20, ..FlowOptions::for_bytes(0) };
    let mut flows = Flows::new(options, Vec::new());
    let mut most = 0;
    for n in 0..3_000_u32 {
        let mut talk = Talk::new();
        talk.ports = (n as u16 + 1, 2);
        // None is idle before another begins.
        talk.say(n.into(), true, SYN, 0, 0, 0);
        for segment in 0..n % 8 {
            talk.say(n.into(), true, ACK, seq(2 * segment), 1, MSS);
        }
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        most = most.max(flows.held_bytes());
    }
    assert!((900_000..=1 << 20).contains(&most), "{most}");
    let (found, totals) = flows.finish();
    assert!(totals.evicted_flows > 1_000 && found.len() == 3_000, "{totals:?}");
    // A longer file may have more.
    assert!(FlowOptions::for_bytes(40 << 20).most_bytes > 2_500 << 20);
    // In as much as a machine has, however long it is.
    let on = |memory: u64| FlowOptions::for_bytes(1 << 40).in_memory(memory).most_bytes;
    assert_eq!((on(1 << 30), on(1 << 20)), (1 << 30, 256 << 20));
}

/// Flows that were silent longest and hold little, before some that hold much: all places are looked at for an eviction, so that each frees
/// a sixteenth of the memory.
#[test]
fn an_eviction_frees_a_sixteenth_of_the_memory() {
    let options = FlowOptions { most_bytes: 1 << 20, ..FlowOptions::default() };
    let mut flows = Flows::new(options, Vec::new());
    let (mut evicted, mut evictions) = (0, 0);
    for n in 0..1_000_u32 {
        let mut talk = Talk::new();
        talk.ports = (n as u16 + 1, 2);
        talk.say(n.into(), true, SYN, 0, 0, 0);
        let segments = if n < 100 { 0 } else { 40 };
        for segment in 0..segments {
            talk.say(n.into(), true, ACK, seq(2 * segment), 1, MSS);
        }
        for packet in &talk.flows {
            flows.packet(packet);
            let now = flows.totals().evicted_flows;
            if now > evicted {
                assert!(flows.held_bytes() <= (1 << 20) / 16 * 15, "{n}: {}", flows.held_bytes());
                (evicted, evictions) = (now, evictions + 1);
            }
        }
    }
    assert!(evictions > 10, "{evictions} of {evicted} flows");
}

/// What comes through a pipe gets longer while it is read, and so does what its flows may take.
#[test]
fn memory_follows_what_was_read_of_a_pipe() {
    let mut flows = Flows::new(FlowOptions { most_bytes: 1 << 18, ..FlowOptions::for_bytes(0) }, Vec::new());
    let begin = |flows: &mut Flows<_>, connections: std::ops::Range<u16>| {
        for n in connections {
            let mut talk = Talk::new();
            talk.ports = (n + 1, 2);
            talk.say(n.into(), true, SYN, 0, 0, 0);
            talk.flows.iter().for_each(|packet| flows.packet(packet));
        }
        flows.held_bytes()
    };
    assert!(begin(&mut flows, 0..2_000) <= 1 << 18);
    flows.allow_bytes(1 << 30);
    assert!(begin(&mut flows, 2_000..6_000) > 1 << 20, "all of these are open");
    let (found, totals) = flows.finish();
    assert!(found.len() == 6_000 && (1_000..2_000).contains(&totals.evicted_flows), "{totals:?}");
}

/// Connections that end and begin at one time, between the same ports.
#[test]
fn what_ended_is_forgotten_though_no_time_passes() {
    let mut flows = Flows::new(FlowOptions::default(), Vec::new());
    for n in 0..20_000_u32 {
        let mut talk = Talk::new();
        talk.say(0, true, SYN, n, 0, 0);
        talk.say(0, false, RST | ACK, 0, n + 1, 0);
        talk.flows.iter().for_each(|packet| flows.packet(packet));
    }
    assert!(flows.ending() < 2_000, "{}", flows.ending());
    assert!(flows.held_bytes() < 10_000 && flows.open_flows() == 1);
}
