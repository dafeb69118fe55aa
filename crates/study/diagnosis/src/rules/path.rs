//! What the path does to packets by their size.

use longhaul_result::Location;
use longhaul_units::Bytes;

use super::{Known, scaled, share};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, Run, UdpFacts};

/// By how much TCP's header with time stamps is longer than UDP's (RFC 9293, RFC 7323, RFC 768).
const TCP_LESS_UDP: u64 = 32 - 8;

/// The smallest size of which nothing arrived, and the largest that arrived; packets of both left the sender.
pub(super) fn hole<'a>(known: &Known<'a>) -> Option<(&'a UdpFacts, &'a UdpFacts)> {
    let sizes = || known.udp_runs().filter(|run| run.purpose == Purpose::Mtu && run.sent_packets > 0);
    let passed = sizes().filter(|run| run.lost_packets < run.sent_packets).max_by_key(|run| run.payload_bytes)?;
    let lost = sizes().filter(|run| run.lost_packets == run.sent_packets).min_by_key(|run| run.payload_bytes)?;
    (lost.payload_bytes > passed.payload_bytes).then_some((lost, passed))
}

/// By so much at least segments must be smaller than the links allow: options of TCP and tunnels take less.
pub(super) const SMALLER_BYTES: u64 = 100;

/// Segments smaller than packets of the links can be: a larger share of the path's rate goes to headers.
pub(super) fn small_segments(known: &Known<'_>) -> Option<Bound> {
    let (run, full) = (known.flow()?, known.full_mss_bytes()?);
    if run.mss_bytes == 0 || run.mss_bytes.saturating_add(SMALLER_BYTES) > full {
        return None;
    }
    let met = known.capacity.as_ref().filter(|capacity| capacity.limited);
    let met = met.map(|capacity| scaled(capacity.udp_bps, known.evidence.udp_overhead(), capacity.payload_bytes));
    let wire_bps = met.into_iter().chain(known.target.map(|target| target.rate_bps)).min()?;
    let of = |mss: u64| share(wire_bps, mss, mss.saturating_add(known.evidence.tcp_overhead()));
    let text = format!(
        "segments carry {} of payload, and could carry {}: headers take {:.0} % of the path's rate, and would take {:.0} %",
        Bytes(run.mss_bytes),
        Bytes(full),
        (1.0 - of(run.mss_bytes) as f64 / wire_bps.max(1) as f64) * 100.0,
        (1.0 - of(full) as f64 / wire_bps.max(1) as f64) * 100.0,
    );
    Some(Bound {
        code: Code::Mtu,
        place: None,
        host: None,
        bound_bps: Interval::derived(of(run.mss_bytes), of(run.mss_bytes)),
        evidence: vec![Line::new(text, "ss -tin | grep -o 'mss:[0-9]*'")],
        remedies: vec![Remedy::new(
            None,
            "find who clamps the MSS (a firewall, a route's advmss), or the link with the smaller MTU",
            "ip route get HOST; tracepath -n HOST",
        )],
    })
}

/// Packets of the hosts' MTU are lost, and smaller ones pass: without a message TCP retransmits them until it gives up (RFC 2923 §2.1).
pub(super) fn black_hole(known: &Known<'_>) -> Option<Bound> {
    let (lost, passed) = hole(known)?;
    let run = known.tcp(Purpose::Default);
    let failed = known.evidence.runs.iter().any(|run| matches!(run, Run::Failed { purpose: Purpose::Default, .. }));
    // TCP that was told of the MTU sends smaller packets, and loses none of them.
    let fits = run.is_some_and(|run| run.mss_bytes > 0 && run.mss_bytes + TCP_LESS_UDP <= passed.payload_bytes);
    let carried = run.map_or(0, |run| run.goodput_bps);
    if fits && !failed || !known.is_below_target(carried) {
        return None;
    }
    let text = format!(
        "packets of {} were all lost, packets of {} arrived: the path's MTU is between the two, and no ICMP message reports it",
        Bytes(lost.payload_bytes.saturating_add(known.evidence.udp_headers())),
        Bytes(passed.payload_bytes.saturating_add(known.evidence.udp_headers()))
    );
    let mtu = passed.payload_bytes.saturating_add(known.evidence.udp_headers());
    Some(Bound {
        code: Code::MtuBlackHole,
        place: Some(Location::Network),
        host: None,
        bound_bps: Interval::measured(0, carried),
        evidence: vec![Line::new(text, format!("ping -M do -s {} HOST", lost.payload_bytes))],
        remedies: vec![
            Remedy::new(
                None,
                "let ICMP \"fragmentation needed\" and \"packet too big\" pass at every router (RFC 4890)",
                "",
            ),
            Remedy::new(
                Some(Role::Sender),
                "let TCP find the MTU by itself (RFC 4821)",
                "sysctl -w net.ipv4.tcp_mtu_probing=1",
            ),
            Remedy::new(
                Some(Role::Sender),
                "lower the MTU of the route",
                format!("ip route replace HOST via GATEWAY mtu {mtu}"),
            ),
        ],
    })
}
