//! A step of the plan as a test, and what the test saw as evidence.

use std::net::SocketAddr;

use longhaul_diagnosis::plan::Step;
use longhaul_diagnosis::{Evidence, Purpose, Run, TcpFacts, tcp_facts, udp_facts};
use longhaul_result::Caveat;
use longhaul_session::{TestEnd, TestParameters, kind};
use longhaul_tcp::{CongestionStep, TcpParameters, Transfers};
use longhaul_terms::{Amount, TestDirection};
use longhaul_udp::{Pace, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};

/// Above this rate packets travel in batches: single ones would cost the sender more than the path does.
const SINGLE_PACKETS: u64 = 2_000_000_000;

/// The step in a line, for who waits.
pub(super) fn line(step: &Step) -> String {
    let time = |ns: u64| format!("{:.1} s", Nanos(ns).as_secs_f64());
    match step {
        Step::Tcp { bytes: Some(bytes), every_ns: Some(every), duration_ns, .. } => {
            format!("{}: {} every {}, {}", step.title(), Bytes(*bytes), Nanos(*every), time(*duration_ns))
        }
        Step::Tcp { duration_ns, bytes: None, .. } => format!("{}, {}", step.title(), time(*duration_ns)),
        Step::Tcp { bytes: Some(bytes), .. } => format!("{} of {}", step.title(), Bytes(*bytes)),
        Step::Udp { rate_bps, duration_ns, packets: None, .. } => {
            format!("{}: {}, {}", step.title(), BitRate(*rate_bps).rounded(), time(*duration_ns))
        }
        Step::Udp { payload_bytes, packets: Some(packets), .. } => {
            format!("{}: {packets} UDP packets with {payload_bytes} bytes", step.title())
        }
    }
}

/// The test of a step.
pub(super) fn parameters(step: &Step, backward: bool) -> TestParameters {
    let direction = if backward { TestDirection::Reverse } else { TestDirection::Forward };
    match step {
        Step::Tcp {
            duration_ns,
            bytes,
            every_ns,
            streams,
            window_bytes,
            control,
            write_rate_bps,
            read_rate_bps,
            ..
        } => {
            let congestion = control.iter().map(|name| CongestionStep { name: name.clone(), duration_ns: None });
            let transfers = bytes.zip(*every_ns).map(|(bytes, every_ns)| Transfers { bytes, every_ns });
            let alone = bytes.filter(|_| transfers.is_none());
            let amount = alone.map_or(Amount::DurationNs(*duration_ns), Amount::Bytes);
            TestParameters::from(TcpParameters {
                amount,
                streams: *streams,
                transfers,
                direction,
                window_bytes: *window_bytes,
                congestion: congestion.collect(),
                write_rate_bps: *write_rate_bps,
                read_rate_bps: *read_rate_bps,
                block_bytes: if write_rate_bps.is_some() { 1448 } else { TcpParameters::default().block_bytes },
                interval_ns: None,
                ..TcpParameters::default()
            })
        }
        Step::Udp { purpose, rate_bps, duration_ns, packets, payload_bytes, streams, burst_packets, traffic_class } => {
            TestParameters::from(UdpParameters {
                amount: packets.map_or(Amount::DurationNs(*duration_ns), Amount::Packets),
                pace: Pace::RateBps((rate_bps / u64::from(*streams)).max(1_000)),
                payload_bytes: u32::try_from(*payload_bytes).unwrap_or(u32::MAX),
                streams: *streams,
                direction,
                wire: *rate_bps < SINGLE_PACKETS,
                burst_packets: *burst_packets,
                dont_fragment: *purpose == Purpose::Mtu,
                traffic_class: *traffic_class,
                interval_ns: None,
                ..UdpParameters::default()
            })
        }
    }
}

/// Adds what the test saw to the evidence; its end without a result is evidence, too.
pub(super) fn keep(
    evidence: &mut Evidence,
    step: &Step,
    end: &TestEnd,
    backward: bool,
    address: SocketAddr,
    caveats: &mut Vec<Caveat>,
) {
    let (client, server) = (&end.local, end.remote.as_ref());
    let (sender, receiver) = if backward { (server, Some(client)) } else { (Some(client), server) };
    for (facts, report) in [(&mut evidence.sender, sender), (&mut evidence.receiver, receiver)] {
        if let Some(report) = report.filter(|report| !report.host.is_null()) {
            *facts = super::host(&report.host);
        }
    }
    let found = match step {
        Step::Tcp { purpose, window_bytes, bytes, every_ns, .. } => {
            let ipv6 = address.ip().to_canonical().is_ipv6();
            kind::tcp::results(end, ipv6).map(|(results, found)| {
                let facts = tcp_facts(*purpose, &results.into_first(), *window_bytes, !backward);
                (Run::Tcp(TcpFacts { transfer_bytes: bytes.filter(|_| every_ns.is_some()), ..facts }), found)
            })
        }
        Step::Udp { purpose, .. } => end.parameters.udp().and_then(|parameters| {
            let (results, found) = kind::udp::results(end, None)?;
            Some((Run::Udp(udp_facts(*purpose, &results.into_first(), parameters)), found))
        }),
    };
    match found {
        Some((run, found)) => {
            evidence.runs.push(run);
            caveats.extend(found);
        }
        None => evidence.runs.push(super::failed(step, "the server's report has no result".into())),
    }
}
