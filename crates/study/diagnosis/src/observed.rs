//! Evidence from connections that no test made: what the kernel of one end saw, or what a capture holds.

use std::collections::BTreeMap;

use longhaul_flows::{DirectionSummary, FlowSummary, Protocol};
use longhaul_result::{Location, TcpLocation};
use longhaul_tcp::{Flow, LimitedBy, Segment, WatchedConnection};
use longhaul_terms::ChangedCounters;
use longhaul_units::{BitRate, Nanos};

use crate::events::{HostEvents, ShapingQdisc};
use crate::evidence::{Handshake, Observed, PacketShares, Purpose, TcpFacts, Vantage};
use crate::tests_seen::{busiest, checksum_errors, receive_place, transmit_place};

/// A connection with less payload says nothing: ten segments, what leaves before the first answer (RFC 6928).
const LEAST_BYTES: u64 = 14_480;

/// A connection that `longhaul watch` followed, in the direction of most of its bytes; `None` if too little moved.
pub fn watched_facts(seen: &WatchedConnection) -> Option<TcpFacts> {
    let sends = seen.flow == Flow::Sending;
    let (payload_bytes, bps) = match seen.flow {
        Flow::Sending => (seen.sent_bytes?, seen.sent_rate_bps),
        Flow::Receiving => (seen.received_bytes, seen.received_rate_bps),
    };
    let limited_by = if sends { seen.limited_by } else { as_the_receiver_sees(seen)? };
    if payload_bytes < LEAST_BYTES {
        return None;
    }
    let options = seen.options;
    let rtt = if sends { seen.min_rtt_ns } else { seen.min_rtt_ns.into_iter().chain(seen.receiver_rtt_ns).min() };
    let mut loss_bytes = BTreeMap::new();
    let mut loss_reasons: Vec<(String, u64)> = Vec::new();
    let wanted = if sends { TcpLocation::Transmit } else { TcpLocation::Receive };
    for drop in seen.drops.iter().filter(|drop| drop.segment == Segment::Data) {
        let place = match drop.location {
            TcpLocation::Pruned if !sends => Location::ReceiverSocketBuffer,
            location if location == wanted && sends => transmit_place(&drop.reason),
            location if location == wanted => receive_place(&drop.reason),
            _ => continue,
        };
        let bytes = drop.bytes.unwrap_or(drop.packets.saturating_mul(seen.mss_bytes));
        let sum: &mut u64 = loss_bytes.entry(place).or_default();
        *sum = sum.saturating_add(bytes);
        loss_reasons.push((drop.reason.clone(), drop.packets));
    }
    loss_reasons.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
    let dropped = loss_bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let elsewhere = seen.retransmitted_bytes.unwrap_or(0).saturating_sub(dropped);
    if sends && elsewhere > 0 {
        loss_bytes.insert(Location::Network, elsewhere);
    }
    let mss_bytes = seen.mss_bytes.max(1);
    let cpu = busiest([seen.busiest_thread].into_iter());
    Some(TcpFacts {
        purpose: Purpose::Observed,
        congestion_control: seen.congestion_control.clone().unwrap_or_default(),
        window_bytes: None,
        goodput_bps: bps,
        steady_bps: bps,
        duration_ns: seen.last_seen_ns.saturating_sub(seen.first_seen_ns),
        min_rtt_ns: rtt,
        mean_rtt_ns: seen.mean_rtt_ns.filter(|_| sends),
        limited_by,
        receiver_limited_by: (!sends).then_some(seen.receiver_limited_by),
        max_in_flight_bytes: sends.then_some(seen.max_in_flight_bytes),
        sent_packets: payload_bytes.saturating_add(seen.retransmitted_bytes.unwrap_or(0)) / mss_bytes,
        retransmits: if sends { seen.retransmits } else { 0 },
        spurious_retransmits: if sends { seen.spurious_retransmits } else { 0 },
        timeouts: seen.timeouts.unwrap_or(0),
        loss_events: sends.then_some(seen.loss_events),
        loss_bytes,
        loss_reasons,
        mss_bytes: seen.mss_bytes,
        handshake: Box::new(Handshake {
            window_scaling: Some(options.window_scaling),
            sack: Some(options.sack),
            timestamps: Some(options.timestamps),
            ..Handshake::default()
        }),
        sender_cpu: cpu.filter(|_| sends),
        receiver_cpu: cpu.filter(|_| !sends),
        flows: Vec::new(),
        receiver_memory_drops: 0,
        checksum_errors: 0,
        marked_packets: seen.marked_packets.filter(|_| sends),
        transfer_bytes: None,
        transfers_ns: Vec::new(),
        sender_events: HostEvents::default(),
        receiver_events: HostEvents::default(),
        sender_shaper: None,
        observed: Some(Box::new(Observed {
            from: if sends { Vantage::Sender } else { Vantage::Receiver },
            payload_bytes,
            began: seen.began,
            out_of_order_packets: if sends { 0 } else { seen.out_of_order_packets },
            max_rtt_ns: seen.max_rtt_ns.filter(|_| sends),
            buffer_bytes: if sends { seen.send_buffer_bytes } else { seen.receive_buffer_bytes },
            packets: None,
        })),
    })
}

/// `facts` of a connection that this host's kernel saw, with what its counters say of the time: control groups, a shaper, checksums. They are the
/// whole host's.
pub fn with_counters(facts: TcpFacts, counters: &ChangedCounters) -> TcpFacts {
    let events = HostEvents::of(counters);
    match facts.observed.as_ref().map(|observed| observed.from) {
        Some(Vantage::Sender) => {
            let sender_shaper = ShapingQdisc::of(counters).map(Box::new);
            TcpFacts { sender_events: events, sender_shaper, ..facts }
        }
        Some(Vantage::Receiver) => {
            TcpFacts { receiver_events: events, checksum_errors: checksum_errors(counters), ..facts }
        }
        _ => facts,
    }
}

/// A receiver knows when its window was full. The rest of the time in which data came is the sender's or the path's; of the time without
/// data it knows nothing. `None` if none came.
fn as_the_receiver_sees(seen: &WatchedConnection) -> Option<LimitedBy> {
    let by = seen.receiver_limited_by;
    let busy = 1.0 - by.idle;
    (busy > 0.0).then(|| LimitedBy {
        receive_window: (by.application + by.receive_window) / busy,
        congestion_window: by.sender_or_path / busy,
        ..LimitedBy::default()
    })
}

/// A connection of a capture, in the direction of most of its bytes, with the sender's and the receiver's address; `None` of UDP, and if
/// too little was seen.
pub fn captured_facts(flow: &FlowSummary) -> Option<TcpFacts> {
    if flow.protocol != Protocol::Tcp {
        return None;
    }
    let forward = flow_goes_forward(flow);
    let (there, back) = if forward { (&flow.forward, &flow.backward) } else { (&flow.backward, &flow.forward) };
    let (tcp, limits) = (there.tcp.as_ref()?, there.tcp.as_ref()?.limits?);
    if there.unique_bytes < LEAST_BYTES {
        return None;
    }
    let span = u64::try_from(flow.last_ns.saturating_sub(flow.first_ns).saturating_sub(there.left_out_ns)).unwrap_or(0);
    let bps = BitRate::of(there.unique_bytes, Nanos(span)).0;
    let by = limits.limited_by;
    let mss_bytes = tcp.mss_bytes.map_or(0, u64::from).min(there.payload_bytes / there.data_packets.max(1));
    let connection = flow.connection;
    let handshake_ns = connection.and_then(|connection| connection.handshake_rtt_ns);
    let (min_rtt_ns, mean_rtt_ns) = round_trips(there, back, handshake_ns.unwrap_or(limits.path_rtt_ns));
    let longest = tcp.rtt.map(|rtt| u64::try_from(rtt.max_ns.saturating_sub(rtt.min_ns)).unwrap_or(0));
    // A scale is seen in a SYN alone, and both ends have to offer it (RFC 7323 §2.2).
    let offered = |direction: &DirectionSummary| direction.tcp.as_ref().is_some_and(|tcp| tcp.window_scale.is_some());
    let opened = connection.is_some_and(|connection| connection.opened);
    Some(TcpFacts {
        purpose: Purpose::Observed,
        congestion_control: String::new(),
        window_bytes: None,
        goodput_bps: bps,
        steady_bps: bps,
        duration_ns: span,
        min_rtt_ns,
        mean_rtt_ns,
        limited_by: LimitedBy {
            application: by.application,
            receive_window: by.receive_window,
            send_buffer: 0.0,
            congestion_window: by.congestion + by.slow_start + by.path_rate + by.sender_window + by.unclear,
        },
        receiver_limited_by: None,
        max_in_flight_bytes: Some(limits.max_flight_bytes),
        sent_packets: there.data_packets.max(there.payload_bytes / mss_bytes.max(1)),
        retransmits: tcp.retransmitted_wire_packets,
        spurious_retransmits: tcp.spurious_by_dsack.max(tcp.spurious_by_timestamp),
        timeouts: tcp.timeout_retransmissions,
        // A cut of the window takes about a round trip.
        loss_events: Some(limits.slices_with_retransmissions),
        loss_bytes: BTreeMap::new(),
        loss_reasons: Vec::new(),
        mss_bytes,
        handshake: Box::new(Handshake {
            window_scaling: opened.then(|| offered(there) && offered(back)),
            client_sends: forward,
            ..Handshake::default()
        }),
        sender_cpu: None,
        receiver_cpu: None,
        flows: Vec::new(),
        receiver_memory_drops: 0,
        checksum_errors: 0,
        marked_packets: None,
        transfer_bytes: None,
        transfers_ns: Vec::new(),
        sender_events: HostEvents::default(),
        receiver_events: HostEvents::default(),
        sender_shaper: None,
        observed: Some(Box::new(Observed {
            from: Vantage::Packets,
            payload_bytes: there.unique_bytes,
            began: opened,
            out_of_order_packets: 0,
            max_rtt_ns: min_rtt_ns.zip(longest).map(|(base, longer)| base.saturating_add(longer)),
            buffer_bytes: None,
            packets: Some(PacketShares {
                congestion: by.congestion,
                slow_start: by.slow_start,
                path_rate: by.path_rate,
                sender_window: by.sender_window,
                unclear: by.unclear,
            }),
        })),
    })
}

/// Whether most payload goes from the client to the server.
pub fn flow_goes_forward(flow: &FlowSummary) -> bool {
    flow.forward.unique_bytes >= flow.backward.unique_bytes
}

/// The path's least round trip and its mean: `base_ns`, and by how much each part of the path, seen from the capture, is longer in the mean.
fn round_trips(there: &DirectionSummary, back: &DirectionSummary, base_ns: i64) -> (Option<u64>, Option<u64>) {
    let part = |direction: &DirectionSummary| {
        let rtt = direction.tcp.as_ref()?.rtt.filter(|rtt| rtt.samples > 0)?;
        Some((rtt.mean_ns - rtt.min_ns as f64).max(0.0))
    };
    let base = u64::try_from(base_ns).ok().filter(|ns| *ns > 0);
    let longer = part(there).map(|there| there + part(back).unwrap_or(0.0));
    (base, base.zip(longer).map(|(base, longer)| base.saturating_add(longer as u64)))
}
