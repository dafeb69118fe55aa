//! Evidence from the results of tests, and from snapshots of hosts.

use std::collections::BTreeMap;

use longhaul_result::{Caveat, Location};
use longhaul_tcp::{LossBytes, TcpEndOptions, TcpResult};
use longhaul_terms::{ChangedCounters, ThreadCpu};
use longhaul_udp::{UdpParameters, UdpResult};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::events::HostEvents;
use crate::evidence::{
    CpuFacts, FlowFacts, Handshake, HostFacts, LinkFacts, Purpose, SynFacts, TcpFacts, UdpFacts, is_plain, word,
};

/// What a TCP test saw in one direction. `client_sends`: the client sent the data.
pub fn tcp_facts(purpose: Purpose, result: &TcpResult, window_bytes: Option<u64>, client_sends: bool) -> TcpFacts {
    let streams = &result.streams;
    let mss_bytes = streams.iter().map(|stream| stream.mss_bytes).max().unwrap_or(0);
    let sent_bytes = result.bytes.saturating_add(result.retransmitted_bytes.unwrap_or(0));
    let rtts = |of: fn(&longhaul_tcp::TcpStreamResult) -> Option<u64>| streams.iter().filter_map(of);
    let mean = rtts(|stream| stream.mean_rtt_ns).map(u128::from).sum::<u128>()
        / rtts(|stream| stream.mean_rtt_ns).count().max(1) as u128;
    let memory = &result.receiver_memory;
    TcpFacts {
        purpose,
        congestion_control: streams.first().map(|stream| stream.congestion_control.clone()).unwrap_or_default(),
        window_bytes,
        goodput_bps: result.goodput_bps,
        steady_bps: steady(result),
        duration_ns: result.duration_ns,
        min_rtt_ns: rtts(|stream| stream.min_rtt_ns).min(),
        mean_rtt_ns: (mean > 0).then(|| u64::try_from(mean).unwrap_or(u64::MAX)),
        limited_by: result.limited_by,
        receiver_limited_by: streams.first().and_then(|stream| stream.receiver_limited_by),
        max_in_flight_bytes: Some(streams.iter().map(|stream| stream.max_in_flight_bytes).fold(0, u64::saturating_add)),
        sent_packets: sent_bytes / mss_bytes.max(1),
        retransmits: result.retransmits,
        spurious_retransmits: streams.iter().map(|stream| stream.spurious_retransmits).fold(0, u64::saturating_add),
        timeouts: streams.iter().filter_map(|stream| stream.timeouts).fold(0, u64::saturating_add),
        loss_events: Some(streams.iter().map(|stream| stream.loss_events).fold(0, u64::saturating_add)),
        loss_bytes: places(&result.loss_bytes_by_location, result),
        loss_reasons: result.loss_reasons.iter().map(|reason| (reason.reason.clone(), reason.packets)).collect(),
        mss_bytes,
        handshake: handshake(result, client_sends).into(),
        sender_cpu: busiest(streams.iter().map(|stream| stream.sender_cpu)),
        receiver_cpu: busiest(streams.iter().map(|stream| stream.receiver_cpu)),
        flows: (streams.iter())
            .map(|stream| FlowFacts {
                goodput_bps: stream.goodput_bps,
                retransmits: stream.retransmits,
                sender_port: stream.sender_port,
            })
            .collect(),
        receiver_memory_drops: [
            memory.out_of_order_queues_pruned,
            memory.pruned_packets,
            memory.queue_full_packets,
            memory.zero_window_packets,
            memory.backlog_packets,
        ]
        .into_iter()
        .fold(0, u64::saturating_add),
        checksum_errors: checksum_errors(&result.counters.receiver),
        marked_packets: streams.iter().filter_map(|stream| stream.marked_packets).reduce(u64::saturating_add),
        transfer_bytes: None,
        transfers_ns: streams.first().map(|stream| stream.transfers_ns.clone()).unwrap_or_default(),
        sender_events: HostEvents::of(&result.counters.sender),
        receiver_events: HostEvents::of(&result.counters.receiver),
        sender_shaper: None,
        observed: None,
    }
}

/// Of all flows; the whole time if a receiver did not report its second half.
fn steady(result: &TcpResult) -> u64 {
    let mut each = result.streams.iter().map(|stream| stream.steady_bps);
    each.try_fold(0_u64, |sum, bps| Some(sum.saturating_add(bps?))).filter(|bps| *bps > 0).unwrap_or(result.goodput_bps)
}

fn handshake(result: &TcpResult, client_sends: bool) -> Handshake {
    let Some(seen) = result.streams.first().and_then(|stream| stream.handshake) else {
        return Handshake { client_sends, ..Handshake::default() };
    };
    let both = |has: fn(&TcpEndOptions) -> bool| Some(has(&seen.client_options) && has(&seen.server_options));
    Handshake {
        window_scaling: both(|end| end.window_scaling),
        sack: both(|end| end.sack),
        timestamps: both(|end| end.timestamps),
        ecn: both(|end| end.ecn),
        ecn_seen: Some(if client_sends { seen.server_options.ecn_seen } else { seen.client_options.ecn_seen }),
        syn: seen.syn_received.map(|syn| SynFacts {
            window_scaling: syn.window_scale.is_some(),
            sack: syn.sack_permitted,
            timestamps: syn.timestamps,
            mss_bytes: syn.mss_bytes.map(u64::from),
            ecn: syn.ecn,
        }),
        client_sends,
    }
}

/// Segments that arrived with a wrong checksum.
pub(crate) fn checksum_errors(counters: &ChangedCounters) -> u64 {
    let errors = counters.iter().filter(|(key, _)| key.ends_with("Tcp.InCsumErrors"));
    errors.map(|(_, by)| u64::try_from(*by).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// Of several threads the one that wanted its CPU most.
pub(crate) fn busiest(threads: impl Iterator<Item = Option<ThreadCpu>>) -> Option<CpuFacts> {
    let facts = threads.flatten().map(|cpu| CpuFacts {
        cpu_time_ns: cpu.cpu_time_ns,
        run_delay_ns: cpu.run_delay_ns.unwrap_or(0),
        elapsed_ns: cpu.elapsed_ns,
    });
    let wanted = |cpu: &CpuFacts| {
        u128::from(cpu.cpu_time_ns.saturating_add(cpu.run_delay_ns)) * 1_000 / u128::from(cpu.elapsed_ns.max(1))
    };
    facts.max_by_key(wanted)
}

/// The places of TCP's losses in the one vocabulary: the kernel's reason tells what the NLR paper's names leave open.
fn places(bytes: &LossBytes, result: &TcpResult) -> BTreeMap<Location, u64> {
    let main = |name: &str| {
        let reasons = result.loss_reasons.iter().filter(|reason| reason.location == name);
        reasons.max_by_key(|reason| reason.packets).map(|reason| reason.reason.as_str()).unwrap_or_default()
    };
    let transmit = transmit_place(main("snd_txloss"));
    let receive = receive_place(main("rcv_rxloss"));
    let mut places = BTreeMap::new();
    for (place, bytes) in [
        (transmit, bytes.snd_txloss),
        (Location::Network, bytes.network),
        (receive, bytes.rcv_rxloss),
        (Location::ReceiverSocketBuffer, bytes.tcp_pruning),
    ] {
        if bytes > 0 {
            let sum: &mut u64 = places.entry(place).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    places
}

/// Where a sending host dropped packets, by the kernel's reason.
pub(crate) fn transmit_place(reason: &str) -> Location {
    match reason {
        reason if reason.contains("NETFILTER") => Location::SenderStack,
        reason if reason.contains("QDISC") || reason.contains("FQ_") => Location::SenderQdisc,
        _ => Location::SenderDevice,
    }
}

/// Where a receiving host dropped packets, by the kernel's reason.
pub(crate) fn receive_place(reason: &str) -> Location {
    match reason {
        reason if reason.contains("NETFILTER") || reason.contains("XDP") || reason.contains("TC_") => {
            Location::ReceiverFilter
        }
        reason if reason.contains("CPU_BACKLOG") => Location::ReceiverBacklog,
        reason if reason.contains("CSUM") => Location::ReceiverStack,
        _ => Location::ReceiverRing,
    }
}

/// What a UDP test saw in one direction.
pub fn udp_facts(purpose: Purpose, result: &UdpResult, parameters: &UdpParameters) -> UdpFacts {
    let asked = match parameters.pace {
        longhaul_udp::Pace::RateBps(bps) => Some(bps.saturating_mul(u64::from(parameters.streams))),
        _ => None,
    };
    UdpFacts {
        purpose,
        payload_bytes: parameters.payload_bytes.into(),
        asked_bps: asked,
        sent_bps: result.sent_rate_bps,
        received_bps: result.received_rate_bps,
        sent_packets: result.sent_packets,
        lost_packets: result.lost_packets,
        loss_packets: result.loss_by_location.iter().filter(|(_, n)| **n > 0).map(|(place, n)| (*place, *n)).collect(),
        loss_reasons: result.loss_reasons.iter().map(|reason| (reason.reason.clone(), reason.packets)).collect(),
        loss_runs: result.loss_periods.count,
        duplicate_packets: result.duplicate_packets,
        reordered_packets: result.reordered_packets,
        delay_p50_ns: result.delay_over_least.map(|delay| delay.p50_ns),
        delay_p99_ns: result.delay_over_least.map(|delay| delay.p99_ns),
        streams: result.streams.iter().map(|stream| (stream.sent_packets, stream.lost_packets)).collect(),
        traffic_class: parameters.traffic_class,
        traffic_classes: result.traffic_classes.iter().map(|class| (class.traffic_class, class.packets)).collect(),
        sender_events: HostEvents::of(&result.counters.sender),
        receiver_events: HostEvents::of(&result.counters.receiver),
        sender_cpu: busiest(result.streams.iter().map(|stream| stream.sender_cpu)),
        receiver_cpu: busiest(result.streams.iter().map(|stream| stream.receiver_cpu)),
    }
}

/// A part of a snapshot that is of this form; `None` if it is not.
fn read<T: DeserializeOwned>(part: &Value) -> Option<T> {
    T::deserialize(part).ok()
}

/// The facts in a snapshot of a host, as `longhaul host --json` prints it, without names that could form a command. `address` is the one that the test used; with it the interface is
/// known if the host has several. Reads what it finds: the other end may have another version. `caveats` are those of the host's
/// set-up.
pub fn host_facts(snapshot: &Value, caveats: Vec<Caveat>) -> HostFacts {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(numbers) => numbers.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    let sysctls = snapshot["sysctls"].as_object().into_iter().flatten();
    let sysctls = sysctls.map(|(key, value)| (key.clone(), text(value)));
    let links = snapshot["interfaces"].as_array().into_iter().flatten();
    let mut links =
        links.filter(|link| link["name"] != "lo" && link["up"].as_bool().unwrap_or(true)).map(|link| LinkFacts {
            name: word(link["name"].as_str().unwrap_or_default(), "INTERFACE").into(),
            speed_bps: if link["hardware"].as_bool().unwrap_or(false) { link["link_speed_bps"].as_u64() } else { None },
            mtu_bytes: link["mtu_bytes"].as_u64(),
        });
    let link = links.next().filter(|_| links.next().is_none());
    HostFacts {
        name: snapshot["hostname"].as_str().unwrap_or_default().into(),
        sysctls: sysctls.filter(|(key, value)| is_plain(key) && is_plain(value)).collect(),
        link,
        caveats: caveats.into_iter().map(|caveat| [caveat.code, caveat.message, caveat.remedy]).collect(),
        conntrack: read(&snapshot["conntrack"]),
        cpu_limit: read(&snapshot["group_limits"]["cpu"]),
        memory_limit: read(&snapshot["group_limits"]["memory"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_of_itself_is_no_command() {
        let snapshot = serde_json::json!({
            "sysctls": {"net.ipv4.tcp_rmem": [4096, 87380, 6291456], "net.ipv4.tcp_wmem": "4096 $(reboot) 7", "a;b": 1},
            "interfaces": [{"name": "eth0;reboot"}],
            "group_limits": {
                "cpu": {"folder": "/sys/fs/cgroup/system.slice/a.service", "quota_us": 1, "period_us": 1},
                "memory": {"folder": "/x;reboot", "limit_bytes": 1},
            },
        });
        let host = host_facts(&snapshot, Vec::new());
        assert_eq!(
            host.sysctls.into_iter().collect::<Vec<_>>(),
            [("net.ipv4.tcp_rmem".into(), "4096 87380 6291456".into())]
        );
        assert_eq!(host.link.unwrap().name, "INTERFACE");
        assert_eq!(host.cpu_limit.unwrap().folder, "/sys/fs/cgroup/system.slice/a.service");
        assert_eq!(host.memory_limit.unwrap().folder, "/sys/fs/cgroup/GROUP");
    }
}
