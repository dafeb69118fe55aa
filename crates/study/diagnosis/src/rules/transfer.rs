//! A transfer of a size that the user named, beside a long flow: what the beginning costs.

use longhaul_units::Nanos;

use super::{Known, WORTH_NAMING, about};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, TcpFacts};

/// Segments of the first round trip (RFC 6928).
const INITIAL_WINDOW: u64 = 10;

pub(super) fn bounds(known: &Known<'_>) -> Option<Bound> {
    let transfers: Vec<&TcpFacts> = known.tcp_runs().filter(|run| run.purpose == Purpose::Transfer).collect();
    let mut rates: Vec<u64> = transfers.iter().map(|run| run.goodput_bps).collect();
    rates.sort_unstable();
    let median = *rates.get(rates.len() / 2)?;
    let long = known.tcp(Purpose::Default)?;
    if median as f64 * WORTH_NAMING > long.steady_bps as f64 {
        return None;
    }
    let rtt = known.base_rtt_ns?;
    let text = format!("a transfer alone carries {}, a long flow {}", about(median), about(long.steady_bps));
    let segments = transfers.first().map_or(0, |run| run.sent_packets);
    let rounds = segments.div_ceil(INITIAL_WINDOW).saturating_add(1).ilog2() + 1;
    let ideal = Nanos(rtt.saturating_mul(u64::from(rounds))).rounded();
    let doubling =
        format!("slow start needs {rounds} round trips ({ideal}) for {segments} segments (RFC 6928, RFC 5681 §3.1)");
    let (least, most) = (*rates.first()?, *rates.last()?);
    Some(Bound {
        code: Code::SlowStart,
        place: None,
        host: Some(Role::Sender),
        bound_bps: Interval::measured(least, most),
        evidence: vec![Line::new(text, ""), Line::new(doubling, "ss -tni: ssthresh shows where slow start ended")],
        remedies: remedies(),
    })
}

/// What makes the beginning of a connection shorter.
pub(super) fn remedies() -> Vec<Remedy> {
    vec![
        Remedy::new(
            Some(Role::Sender),
            "keep the connection, and its window while it is idle",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
        ),
        Remedy::new(
            Some(Role::Sender),
            "begin with a larger window where the path is known",
            "ip route change DESTINATION initcwnd 40",
        ),
    ]
}
