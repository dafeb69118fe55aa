//! A step of the plan as a test, and what the test saw as evidence.

use std::net::SocketAddr;

use longhaul_diagnosis::plan::Step;
use longhaul_diagnosis::{Evidence, Purpose, Run, TcpFacts, tcp_facts, udp_facts};
use longhaul_result::Caveat;
use longhaul_result::caveats::SENDER_STOPPED;
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

/// Adds what the test saw to the evidence; its end without a result is evidence, too. Whether it came to its end, if it has a result.
pub(super) fn keep(
    evidence: &mut Evidence,
    step: &Step,
    end: &TestEnd,
    backward: bool,
    address: SocketAddr,
    caveats: &mut Vec<Caveat>,
) -> bool {
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
    let Some((run, found)) = found else {
        evidence.runs.push(super::failed(step, "the server's report has no result".into()));
        return true;
    };
    // A packet that is too long for the sender's own interface ends a test of sizes, which is what it tells.
    let may_stop = step.purpose() == Purpose::Mtu && !end.stopped_by_server;
    let why = found.iter().find(|doubt| doubt.is(SENDER_STOPPED) && !may_stop).map(|doubt| doubt.message.clone());
    caveats.extend(found);
    let is_whole = why.is_none();
    evidence.runs.push(why.map_or(run, |why| super::failed(step, why)));
    is_whole
}

#[cfg(test)]
mod tests {
    use longhaul_session::EndReport;
    use longhaul_udp::{UdpEndReport, UdpReceiverReport, UdpSenderReport};

    use super::*;

    /// What a test of UDP packets is to the evidence, whose sender stopped early or did not.
    fn kept(purpose: Purpose, stopped_by_server: bool, doubt: Option<&str>) -> (bool, Run) {
        let step = Step::Udp {
            purpose,
            rate_bps: 1_000_000,
            duration_ns: 1_000_000_000,
            packets: Some(20),
            payload_bytes: 1_000,
            streams: 1,
            burst_packets: 1,
            traffic_class: 0,
        };
        let of_end = |udp| EndReport { udp: Some(udp), ..EndReport::default() };
        let sender = UdpEndReport { sender: Some(UdpSenderReport::default()), receiver: None };
        let receiver = UdpEndReport { sender: None, receiver: Some(UdpReceiverReport::default()) };
        let end = TestEnd {
            parameters: parameters(&step, false),
            local: of_end(sender),
            remote: Some(of_end(receiver)),
            caveats: doubt.map(|message| Caveat::new(SENDER_STOPPED, message, "")).into_iter().collect(),
            stopped_by_server,
            ..TestEnd::default()
        };
        let (mut evidence, mut caveats) = (Evidence::default(), Vec::new());
        let is_whole = keep(&mut evidence, &step, &end, false, SocketAddr::from(([127, 0, 0, 1], 5210)), &mut caveats);
        assert_eq!(caveats.iter().any(|caveat| caveat.is(SENDER_STOPPED)), doubt.is_some(), "{caveats:?}");
        (is_whole, evidence.runs.remove(0))
    }

    #[test]
    fn a_test_whose_sender_stopped_early_is_no_evidence() {
        let failed = |purpose| Run::Failed { purpose, why: "the server ended it".into() };
        let early = Some("the server ended it");
        for (purpose, stopped_by_server) in [(Purpose::Rate, false), (Purpose::Rate, true), (Purpose::Mtu, true)] {
            assert_eq!(kept(purpose, stopped_by_server, early), (false, failed(purpose)));
        }
        assert!(matches!(kept(Purpose::Rate, false, None), (true, Run::Udp(_))));
        // The sender's own interface may not take a packet of the full size.
        assert!(matches!(kept(Purpose::Mtu, false, Some("message too long")), (true, Run::Udp(_))));
    }
}
