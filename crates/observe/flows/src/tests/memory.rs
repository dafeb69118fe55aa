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
    let options = FlowOptions { most_bytes: 1 << 18, ..FlowOptions::for_bytes(0) };
    let mut flows = Flows::new(options, Vec::new());
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
    flows.allow(FlowOptions { most_bytes: 1 << 30, ..options });
    assert!(begin(&mut flows, 2_000..6_000) > 1 << 20, "all of these are open");
    let (found, totals) = flows.finish();
    assert!(found.len() == 6_000 && (1_000..2_000).contains(&totals.evicted_flows), "{totals:?}");
}

/// Rows of a few bits can stand for super-packets of probes that skip thousands of numbers. All flows of a capture have one account of these, which
/// grows with what is read of a pipe; what is beyond it is counted.
#[test]
fn numbers_of_probes_follow_the_length_of_the_files() {
    let options = FlowOptions { most_numbers: 1_000, ..FlowOptions::default() };
    let mut flows = Flows::new(options, Vec::new());
    let probes = |flows: &mut Flows<Vec<FlowSummary>>, port: u16, numbers: std::ops::Range<u64>| {
        for n in numbers {
            let mut talk = Talk::new();
            let packet = talk.say(n as i64 * MS, true, ACK, 1, 1, 100);
            let probe = Some(Probe { cookie: Cookie(7), sequence: n * 10, sent_ns: 0 });
            packet.transport = Transport::Udp { src_port: port, dst_port: 2, payload_len: 100, probe };
            flows.packet(&talk.flows[0]);
        }
        flows.totals().probes_left_out
    };
    // The first takes one of them, and each other one ten and its own: 540 for each flow, and 1 + 34 * 11 of the 380 that are left.
    assert_eq!(probes(&mut flows, 1, 0..50), 0);
    flows.allow(FlowOptions { most_numbers: 2_000, ..options });
    assert_eq!([2, 3, 4].map(|port| probes(&mut flows, port, 0..50)), [0, 0, 50 - 35]);
    flows.allow(FlowOptions { most_numbers: 4_000, ..options });
    assert_eq!(probes(&mut flows, 5, 0..50), 50 - 35 + 50, "what was refused is none that was lost");
    let accounts = flows.finish().0.into_iter().map(|flow| flow.forward.probe.map(|probe| probe.unique_packets));
    assert_eq!(accounts.collect::<Vec<_>>(), [Some(50), Some(50), Some(50), None, None]);
    // Real ones: super-packets of 128 in 20 bytes each.
    let real = FlowOptions::for_bytes(20 << 30).most_numbers;
    assert!(real > 128 << 30 && FlowOptions::for_bytes(0).most_numbers == 1 << 26);
    assert_eq!(FlowOptions::for_bytes(u64::MAX).most_numbers, u64::MAX);
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
