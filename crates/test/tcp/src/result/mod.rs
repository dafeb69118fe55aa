//! The result of a TCP test. Other programs may rely on the names (`docs/reference/tcp-results.md`).

mod rfc6349;

use std::net::IpAddr;

use longhaul_result::{Caveat, LocationMethod};
use longhaul_terms::{ChangedCounters, EndCounters, Latency, SocketBuffer, ThreadCpu};
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::caveats;
use crate::handshake::{TcpEndOptions, TcpHandshake};
use crate::limited::{LimitedBy, LimitedTimes};
use crate::loss::{LossBytes, RetransmittedBytes, TcpDrop, by_reason, location};
use crate::parameters::TcpParameters;
use crate::receiving::ReceiverLimitedBy;
use crate::report::{SamplingCost, TcpEndReport, TcpStreamReport};

pub use rfc6349::{Rfc6349, buffer_delay_percentage, tcp_efficiency_percentage, transfer_time_ratio};

/// Headers of an IPv4 packet: IP and TCP without options.
const IPV4_HEADERS: u64 = 40;
const IPV6_HEADERS: u64 = 60;
/// TCP's timestamps option, padded (RFC 7323 appendix A).
const TIMESTAMPS: u64 = 12;
/// `TCPI_OPT_TIMESTAMPS`.
const OPTION_TIMESTAMPS: u8 = 1;

/// One direction of a TCP test, all its streams together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpResult {
    /// Payload bits per second that the receivers read, over `duration_ns`.
    pub goodput_bps: u64,
    /// By the receiver's clock: from the first byte of any stream that counts to the end of the last stream.
    pub duration_ns: u64,
    /// Payload bytes that the receivers read.
    pub bytes: u64,
    /// Payload bytes that they read in the time that was left out (`omit_ns`), which are not in `bytes`.
    #[serde(default)]
    pub omitted_bytes: u64,
    /// Retransmitted payload bytes; `null` if the sender's kernel does not count them (before Linux 4.19).
    pub retransmitted_bytes: Option<u64>,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Each stream.
    pub streams: Vec<TcpStreamResult>,
    /// What limited the streams: shares of their total time.
    pub limited_by: LimitedBy,
    /// Metrics of RFC 6349 over all streams.
    pub rfc6349: Rfc6349,
    /// Bytes lost at each location in the whole test, also in the time that was left out (`omit_ns`).
    pub loss_bytes_by_location: LossBytes,
    /// Bytes lost at each location for each reason, the most bytes first.
    pub loss_reasons: Vec<TcpLossReason>,
    /// How losses were located.
    pub location_method: LocationMethod,
    /// What the receiver's TCP did for lack of memory, on the whole host.
    pub receiver_memory: TcpMemory,
    /// Round trips during the test; `null` if they were not requested.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// The file with all samples, in the folder of this result.
    pub samples_file: Option<String>,
    /// The cost of sampling at the sender.
    pub sampling_sender: SamplingCost,
    /// The cost of sampling at the receiver.
    pub sampling_receiver: SamplingCost,
    /// Counters that changed.
    pub counters: EndCounters,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpStreamResult {
    /// Its number within its direction.
    pub stream: u8,
    /// Payload bits per second read, over its own time.
    pub goodput_bps: u64,
    /// Its own time, by the receiver's clock.
    pub duration_ns: u64,
    /// Payload bytes that the receiver read.
    pub bytes: u64,
    /// Retransmitted payload bytes; `null` if the kernel does not count them.
    pub retransmitted_bytes: Option<u64>,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Retransmissions that the receiver reported as duplicates (RFC 2883).
    pub spurious_retransmits: u64,
    /// Retransmission timeouts; `null` if the kernel does not count them.
    pub timeouts: Option<u64>,
    /// Packets that arrived with a mark of congestion (CE, RFC 3168); `null` before Linux 4.18.
    #[serde(default)]
    pub marked_packets: Option<u64>,
    /// The congestion control; several are separated by commas.
    pub congestion_control: String,
    /// When each of them started, from the first sample, nanoseconds.
    pub congestion_starts_ns: Vec<u64>,
    /// Largest segment, payload bytes.
    pub mss_bytes: u64,
    /// Least round-trip time; `null` if the kernel has none.
    pub min_rtt_ns: Option<u64>,
    /// Mean of the smoothed round-trip time.
    pub mean_rtt_ns: Option<u64>,
    /// Greatest smoothed round-trip time.
    pub max_rtt_ns: Option<u64>,
    /// Mean congestion window, bytes.
    pub mean_cwnd_bytes: Option<u64>,
    /// Greatest congestion window, bytes.
    pub max_cwnd_bytes: Option<u64>,
    /// Greatest data in flight at a sample, bytes.
    #[serde(default)]
    pub max_in_flight_bytes: u64,
    /// Mean of the data in flight at the samples with any, bytes; `null` if there was none.
    #[serde(default)]
    pub mean_in_flight_bytes: Option<u64>,
    /// Times that TCP was seen to go into recovery or a retransmission timeout, at least.
    #[serde(default)]
    pub loss_events: u64,
    /// How the connection was opened; `null` in results of older versions.
    #[serde(default)]
    pub handshake: Option<TcpHandshake>,
    /// Payload bits per second in the second half of its time; `null` if the receiver did not report it.
    #[serde(default)]
    pub steady_bps: Option<u64>,
    /// How long each transfer took to arrive, from its first byte to its last (0: not known, as the receiver read all of it at once); empty where
    /// the stream was one.
    #[serde(default)]
    pub transfers_ns: Vec<u64>,
    /// What limited the stream, as its receiver saw it; `null` if it did not report it.
    #[serde(default)]
    pub receiver_limited_by: Option<ReceiverLimitedBy>,
    /// Mean of the data that lay unread at the receiver, bytes.
    #[serde(default)]
    pub mean_unread_bytes: Option<u64>,
    /// Most data that lay unread at the receiver, bytes.
    #[serde(default)]
    pub max_unread_bytes: Option<u64>,
    /// What the sending thread used of its CPU; `null` if that end did not report it.
    #[serde(default)]
    pub sender_cpu: Option<ThreadCpu>,
    /// What the receiving thread used of its CPU; `null` if that end did not report it.
    #[serde(default)]
    pub receiver_cpu: Option<ThreadCpu>,
    /// What limited the stream.
    pub limited_by: LimitedBy,
    /// RFC 6349's metrics.
    pub rfc6349: Rfc6349,
    /// Socket buffers.
    pub socket_buffers: TcpBuffers,
    /// The sender's address; `null` if it did not report it.
    #[serde(default)]
    pub sender_address: Option<IpAddr>,
    /// The receiver's address; `null` if it did not report it.
    #[serde(default)]
    pub receiver_address: Option<IpAddr>,
    /// The sender's port.
    pub sender_port: u16,
    /// The receiver's port.
    pub receiver_port: u16,
}

/// The buffers that limit a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpBuffers {
    /// The sender's send buffer.
    pub sender: Option<SocketBuffer>,
    /// The receiver's receive buffer.
    pub receiver: Option<SocketBuffer>,
}

/// The loss at one location for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpLossReason {
    /// The location, a name of `loss_bytes_by_location`.
    pub location: String,
    /// The kernel's drop reason and the function that dropped, or the counter.
    pub reason: String,
    /// Packets.
    pub packets: u64,
    /// Bytes of the IP packets; 0 if only a counter is known.
    pub bytes: u64,
}

/// What TCP did for lack of memory (`TcpExt` of the host). Only drops are losses; the others show how close it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpMemory {
    /// Attempts to shrink a socket's queue (`PruneCalled`).
    pub prune_attempts: u64,
    /// Packets merged to save memory (`TCPRcvCollapsed`): not lost.
    pub collapsed_packets: u64,
    /// Out-of-order queues that were discarded (`OfoPruned`): their data was lost.
    pub out_of_order_queues_pruned: u64,
    /// Packets dropped after all attempts failed (`RcvPruned`).
    pub pruned_packets: u64,
    /// Packets dropped because the queue was full (`TCPRcvQDrop`, `TCPOFODrop`).
    pub queue_full_packets: u64,
    /// Packets dropped because the window was zero (`TCPZeroWindowDrop`).
    pub zero_window_packets: u64,
    /// Packets dropped because the socket was in use for too long (`TCPBacklogDrop`).
    pub backlog_packets: u64,
}

impl TcpMemory {
    fn of(counters: &ChangedCounters) -> Self {
        let of = |names: &[&str]| {
            let ends = |key: &str, name: &str| key.strip_suffix(name).is_some_and(|rest| rest.ends_with("TcpExt."));
            let matching = counters.iter().filter(|(key, _)| names.iter().any(|name| ends(key, name)));
            matching.map(|(_, by)| u64::try_from(*by).unwrap_or(0)).fold(0, u64::saturating_add)
        };
        Self {
            prune_attempts: of(&["PruneCalled"]),
            collapsed_packets: of(&["TCPRcvCollapsed"]),
            out_of_order_queues_pruned: of(&["OfoPruned"]),
            pruned_packets: of(&["RcvPruned"]),
            queue_full_packets: of(&["TCPRcvQDrop", "TCPOFODrop"]),
            zero_window_packets: of(&["TCPZeroWindowDrop"]),
            backlog_packets: of(&["TCPBacklogDrop"]),
        }
    }
}

/// A result, and the caveats that its numbers give rise to.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpAssembled {
    /// The result.
    pub result: TcpResult,
    /// The caveats.
    pub caveats: Vec<Caveat>,
}

impl TcpResult {
    /// Bytes of the IP packets with data that were sent in the whole test, retransmitted ones included: what
    /// [`loss_bytes_by_location`](Self::loss_bytes_by_location) is a share of. Full packets with time stamps are assumed.
    pub fn sent_ip_bytes(&self) -> u64 {
        let mss = self.streams.iter().map(|stream| stream.mss_bytes).max().unwrap_or_default();
        let ipv6 =
            self.streams.iter().any(|stream| stream.sender_address.is_some_and(|own| own.to_canonical().is_ipv6()));
        let header = TIMESTAMPS + if ipv6 { IPV6_HEADERS } else { IPV4_HEADERS };
        let packets = |payload: u64| payload.checked_div(mss).unwrap_or(0);
        let ip_bytes = |payload: u64| payload.saturating_add(packets(payload).saturating_mul(header));
        // Those of the omitted time are in the account of places alone.
        let retransmitted =
            ip_bytes(self.retransmitted_bytes.unwrap_or(0)).max(self.loss_bytes_by_location.snd_tcploss);
        ip_bytes(self.bytes.saturating_add(self.omitted_bytes)).saturating_add(retransmitted)
    }

    /// Joins the reports of the two ends for one direction; `None` if it was not tested. `ipv6`: whether the test used IPv6.
    pub fn assemble(
        parameters: &TcpParameters,
        ipv6: bool,
        backward: bool,
        sender: &TcpEndReport,
        receiver: &TcpEndReport,
    ) -> Option<TcpAssembled> {
        let sent: Vec<_> = sender.of(backward, true).collect();
        let received: Vec<_> = receiver.of(backward, false).collect();
        if sent.is_empty() || received.is_empty() {
            return None;
        }
        let mut caveats = Vec::new();
        let streams: Vec<TcpStreamResult> = (received.iter())
            .filter_map(|to| {
                let from = sent.iter().find(|from| from.stream == to.stream)?;
                Some(stream(parameters, from, to))
            })
            .collect();
        for end in sent.iter().chain(&received) {
            if let Some(failure) = &end.failure {
                let message = format!("stream {}: {failure}", end.stream);
                caveats.push(Caveat::new(caveats::FLOW_FAILED, message, ""));
            }
        }
        caveats.extend(sent.iter().filter_map(|from| impossible_window(from)));
        let first = received.iter().map(|to| to.first_ns).filter(|ns| *ns > 0).min().unwrap_or(0);
        let last = received.iter().map(|to| to.last_ns).max().unwrap_or(0);
        let duration_ns = last.saturating_sub(first);
        let sum = |of: fn(&TcpStreamResult) -> u64| streams.iter().map(of).fold(0, u64::saturating_add);
        let bytes = sum(|stream| stream.bytes);
        let all = |of: fn(&TcpStreamReport) -> Option<u64>| {
            sent.iter().try_fold(0_u64, |sum, from| Some(sum.saturating_add(of(from)?)))
        };
        let retransmitted_bytes = all(|from| from.summary.retransmitted_bytes);
        let sent_bytes = all(|from| from.summary.sent_bytes);
        let mut limited = LimitedTimes::default();
        sent.iter().for_each(|from| limited.merge(&from.summary.limited));

        let mean = |of: fn(&TcpStreamResult) -> Option<u64>| {
            let values: Vec<f64> = streams.iter().filter_map(of).map(|ns| ns as f64).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let baseline = streams.iter().filter_map(|stream| stream.min_rtt_ns).min();
        let rfc6349 = Rfc6349 {
            tcp_efficiency_percentage: sent_bytes
                .zip(retransmitted_bytes)
                .and_then(|(sent, retransmitted)| tcp_efficiency_percentage(sent, retransmitted)),
            buffer_delay_percentage: mean(|stream| stream.mean_rtt_ns)
                .zip(baseline)
                .and_then(|(mean, least)| buffer_delay_percentage(mean, least as f64)),
            transfer_time_ratio: parameters
                .rate_goal_bps
                .and_then(|goal| transfer_time_ratio(duration_ns, bytes, goal)),
        };

        let headers = if ipv6 { IPV6_HEADERS } else { IPV4_HEADERS };
        let retransmitted = retransmissions(&sent, headers);
        let mss = sent.iter().map(|from| from.summary.mss_bytes).max().unwrap_or(0);
        let stamped = sent.iter().any(|from| from.summary.options & OPTION_TIMESTAMPS != 0);
        let header = headers + if stamped { TIMESTAMPS } else { 0 };
        let of = |drop: &&TcpDrop| drop.backward == backward;
        let (mine, theirs) = (|| sender.drops.iter().filter(of), || receiver.drops.iter().filter(of));
        let loss_bytes_by_location =
            LossBytes::of(mine(), theirs(), retransmitted, (mss.saturating_add(header), header));
        let reasons = mine().filter_map(|drop| Some((location(drop, true)?, drop)));
        let reasons = reasons.chain(theirs().filter_map(|drop| Some((location(drop, false)?, drop))));
        let mut loss_reasons: Vec<TcpLossReason> = by_reason(reasons)
            .into_iter()
            .map(|((location, reason), (packets, bytes))| TcpLossReason {
                location: location.into(),
                reason,
                packets,
                bytes,
            })
            .collect();
        loss_reasons.sort_by_key(|reason| std::cmp::Reverse((reason.bytes, reason.packets)));
        let bpf = sender.method == LocationMethod::Bpf && receiver.method == LocationMethod::Bpf;
        if bpf && !(sender.complete && receiver.complete) {
            let message = "some drops may not have been seen: their bytes count as `network`";
            caveats.push(Caveat::new(caveats::DROPS_MISSED, message, "stop other traffic during the test"));
        }
        let result = Self {
            goodput_bps: BitRate::of(bytes, Nanos(duration_ns)).0,
            duration_ns,
            bytes,
            omitted_bytes: received.iter().map(|to| to.omitted_bytes).fold(0, u64::saturating_add),
            retransmitted_bytes,
            retransmits: sum(|stream| stream.retransmits),
            limited_by: limited.shares(),
            rfc6349,
            loss_bytes_by_location,
            loss_reasons,
            location_method: if bpf { LocationMethod::Bpf } else { LocationMethod::Counters },
            receiver_memory: TcpMemory::of(&receiver.counters),
            latency: None,
            samples_file: None,
            sampling_sender: sender.sampling,
            sampling_receiver: receiver.sampling,
            counters: EndCounters { sender: sender.counters.clone(), receiver: receiver.counters.clone() },
            streams,
        };
        Some(TcpAssembled { result, caveats })
    }
}

/// Retransmissions of all streams in the whole test, with headers: from events if there are any, else from TCP's counters.
fn retransmissions(sent: &[&TcpStreamReport], headers: u64) -> RetransmittedBytes {
    let mut retransmitted = RetransmittedBytes::default();
    for from in sent {
        let summary = &from.summary;
        let header = headers + if summary.options & OPTION_TIMESTAMPS != 0 { TIMESTAMPS } else { 0 };
        let (omitted, later) = (from.omitted_retransmits, summary.retransmitted());
        let packets = later.packets.saturating_add(omitted.packets);
        let payload_bytes = match summary.retransmitted_bytes {
            Some(bytes) => bytes.saturating_add(omitted.payload_bytes),
            None => packets.saturating_mul(summary.mss_bytes),
        };
        let counted = payload_bytes.saturating_add(packets.saturating_mul(header));
        let bytes = from.retransmitted.map_or(counted, |events| events.ip_bytes);
        let spurious = later.spurious_packets.saturating_add(omitted.spurious_packets);
        let spurious = spurious.saturating_mul(summary.mss_bytes.saturating_add(header));
        retransmitted.bytes = retransmitted.bytes.saturating_add(bytes);
        retransmitted.spurious_bytes = retransmitted.spurious_bytes.saturating_add(spurious.min(bytes));
    }
    retransmitted
}

/// The client sends forward, and receives backward.
fn handshake(from: &TcpStreamReport, to: &TcpStreamReport) -> TcpHandshake {
    let (client, server) = if to.backward { (to, from) } else { (from, to) };
    TcpHandshake {
        syn_received: server.syn_received,
        client_options: TcpEndOptions::of(&client.summary),
        server_options: TcpEndOptions::of(&server.summary),
    }
}

/// The largest window that a receiver can grant: 65,535 bytes, shifted by 14 bits (RFC 7323 §2.3).
const LARGEST_WINDOW_BYTES: u64 = 0xffff << 14;

/// That a stream's congestion window could not be: twice what it can use, which is as far as one grows that is used. Linux 6.18 was seen to begin one
/// recovery in 400 without asking a control that BPF loads for its window. In the omitted time, too: what was sent then makes the window for seconds.
fn impossible_window(from: &TcpStreamReport) -> Option<Caveat> {
    let bytes = from.summary.max_cwnd_bytes.max(from.omitted_max_cwnd_bytes);
    let bytes = bytes.filter(|bytes| *bytes > 2 * LARGEST_WINDOW_BYTES)?;
    let control = from.congestion.last().map_or("its congestion control", |since| &since.name);
    let message = format!(
        "stream {}: its congestion window was {:.0} GB, and no receiver grants more than 1.07 GB: the kernel or {control} lost it, and nothing limited \
         what the stream sent",
        from.stream,
        bytes as f64 / 1e9,
    );
    Some(Caveat::new(caveats::IMPOSSIBLE_WINDOW, message, "repeat the test"))
}

fn stream(parameters: &TcpParameters, from: &TcpStreamReport, to: &TcpStreamReport) -> TcpStreamResult {
    let summary = &from.summary;
    let duration_ns = if to.first_ns > 0 { to.last_ns.saturating_sub(to.first_ns) } else { 0 };
    let names: Vec<&str> = from.congestion.iter().map(|since| since.name.as_str()).collect();
    let first = from.congestion.first().map_or(0, |since| since.at_ns);
    TcpStreamResult {
        stream: to.stream,
        goodput_bps: BitRate::of(to.bytes, Nanos(duration_ns)).0,
        duration_ns,
        bytes: to.bytes,
        retransmitted_bytes: summary.retransmitted_bytes,
        retransmits: summary.retransmits,
        spurious_retransmits: summary.spurious_retransmits,
        timeouts: summary.timeouts,
        marked_packets: summary.marked_packets,
        congestion_control: names.join(","),
        congestion_starts_ns: from.congestion.iter().map(|since| since.at_ns.saturating_sub(first)).collect(),
        mss_bytes: summary.mss_bytes,
        min_rtt_ns: summary.min_rtt_ns,
        mean_rtt_ns: summary.mean_rtt_ns,
        max_rtt_ns: summary.max_rtt_ns,
        mean_cwnd_bytes: summary.mean_cwnd_bytes,
        max_cwnd_bytes: summary.max_cwnd_bytes,
        max_in_flight_bytes: summary.max_in_flight_bytes,
        mean_in_flight_bytes: summary.mean_in_flight_bytes,
        loss_events: summary.loss_events,
        handshake: Some(handshake(from, to)),
        steady_bps: to.receiving.map(|receiving| receiving.steady_bps).filter(|bps| *bps > 0),
        transfers_ns: to.transfers_ns.clone(),
        receiver_limited_by: to.receiving.map(|receiving| receiving.times.shares()),
        mean_unread_bytes: to.receiving.map(|receiving| receiving.mean_unread_bytes),
        max_unread_bytes: to.receiving.map(|receiving| receiving.max_unread_bytes),
        sender_cpu: from.cpu,
        receiver_cpu: to.cpu,
        limited_by: summary.limited.shares(),
        rfc6349: Rfc6349 {
            tcp_efficiency_percentage: summary
                .sent_bytes
                .zip(summary.retransmitted_bytes)
                .and_then(|(sent, retransmitted)| tcp_efficiency_percentage(sent, retransmitted)),
            buffer_delay_percentage: summary
                .mean_rtt_ns
                .zip(summary.min_rtt_ns)
                .and_then(|(mean, least)| buffer_delay_percentage(mean as f64, least as f64)),
            transfer_time_ratio: parameters.rate_goal_bps.and_then(|goal| {
                transfer_time_ratio(duration_ns, to.bytes, goal / u64::from(parameters.streams.max(1)))
            }),
        },
        socket_buffers: TcpBuffers { sender: from.send_buffer, receiver: to.receive_buffer },
        sender_address: from.address,
        receiver_address: to.address,
        sender_port: from.port,
        receiver_port: to.port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CountedRetransmits, Retransmitted};

    #[test]
    fn a_window_that_no_receiver_grants_is_told() {
        let told = |omitted_bytes, cwnd_bytes| {
            let mut from = TcpStreamReport { omitted_max_cwnd_bytes: omitted_bytes, ..TcpStreamReport::default() };
            from.summary.max_cwnd_bytes = Some(cwnd_bytes);
            let ends = [false, true].map(|receives| TcpEndReport {
                streams: vec![TcpStreamReport { sends: !receives, ..from.clone() }],
                ..TcpEndReport::default()
            });
            let parameters = TcpParameters::default();
            let assembled = TcpResult::assemble(&parameters, false, false, &ends[0], &ends[1]).unwrap();
            assembled.caveats.iter().any(|caveat| caveat.is(caveats::IMPOSSIBLE_WINDOW))
        };
        assert!(told(None, 100_000_000 * 1448));
        assert!(told(Some(100_000_000 * 1448), 1 << 20), "before the omitted time was over");
        assert!(!told(Some(1 << 30), 1 << 30));
    }

    /// Drops are of the whole test: so is what they are compared with.
    #[test]
    fn retransmissions_of_the_omitted_time_count_by_events_and_by_counters() {
        let mut from = TcpStreamReport::default();
        from.summary.mss_bytes = 1448;
        from.summary.options = OPTION_TIMESTAMPS;
        from.summary.retransmits = 10;
        from.summary.retransmitted_bytes = Some(10 * 1448);
        from.summary.spurious_retransmits = 1;
        let payload_bytes = 20 * 1448;
        from.omitted_retransmits = CountedRetransmits { packets: 20, payload_bytes, spurious_packets: 2 };
        let events = Retransmitted { packets: 30, payload_bytes: 30 * 1448, ip_bytes: 30 * 1500 };
        for retransmitted in [None, Some(events)] {
            from.retransmitted = retransmitted;
            let all = retransmissions(&[&from], IPV4_HEADERS);
            assert_eq!((all.bytes, all.spurious_bytes), (30 * 1500, 3 * 1500));
        }
        from.retransmitted = None;
        from.summary.retransmitted_bytes = None;
        assert_eq!(retransmissions(&[&from], IPV6_HEADERS).bytes, 30 * 1520);
    }
}
