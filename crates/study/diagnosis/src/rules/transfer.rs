//! Transfers of a size that the user named, beside a long flow: what the beginning costs, of a connection or after a pause in it.

use longhaul_units::{BitRate, Bytes, Nanos};

use super::{Known, WORTH_NAMING, about};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{Purpose, TcpFacts};

/// Segments of the first round trip (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// Transfers after a pause that a median needs.
const LEAST_LATER: usize = 2;

pub(super) fn bounds(known: &Known<'_>) -> Vec<Bound> {
    alone(known).into_iter().chain(after_pauses(known)).collect()
}

/// Whether transfers of this rate cost enough beside the long flow.
fn is_slow(bps: u64, long: &TcpFacts) -> bool {
    bps as f64 * WORTH_NAMING <= long.steady_bps as f64
}

fn bound(least: u64, most: u64, evidence: Vec<Line>, remedies: Vec<Remedy>) -> Bound {
    let bound_bps = Interval::measured(least, most);
    Bound { code: Code::SlowStart, place: None, host: Some(Role::Sender), bound_bps, evidence, remedies }
}

/// Each transfer has a connection of its own.
fn alone(known: &Known<'_>) -> Option<Bound> {
    let transfers: Vec<&TcpFacts> = known.tcp_runs().filter(|run| run.purpose == Purpose::Transfer).collect();
    let mut rates: Vec<u64> = transfers.iter().map(|run| run.goodput_bps).collect();
    rates.sort_unstable();
    let median = *rates.get(rates.len() / 2)?;
    let long = known.tcp(Purpose::Default)?;
    if !is_slow(median, long) {
        return None;
    }
    let text = format!("a transfer alone carries {}, a long flow {}", about(median), about(long.steady_bps));
    let segments = transfers.first().map_or(0, |run| run.sent_packets);
    let evidence = vec![Line::new(text, ""), doubling(known, segments)?];
    Some(bound(*rates.first()?, *rates.last()?, evidence, remedies()))
}

/// What slow start needs for so many segments.
fn doubling(known: &Known<'_>, segments: u64) -> Option<Line> {
    let rounds = segments.div_ceil(INITIAL_WINDOW).saturating_add(1).ilog2() + 1;
    let ideal = Nanos(known.base_rtt_ns?.saturating_mul(u64::from(rounds))).rounded();
    let text =
        format!("slow start needs {rounds} round trips ({ideal}) for {segments} segments (RFC 6928, RFC 5681 §3.1)");
    Some(Line::new(text, "ss -tni: ssthresh shows where slow start ended"))
}

/// All transfers have one connection, which is idle between them.
fn after_pauses(known: &Known<'_>) -> Option<Bound> {
    let run = known.tcp(Purpose::Intervals)?;
    let bytes = run.transfer_bytes?;
    // One that the receiver read at once has no time, and so no rate: it was late, or the transfer is small.
    let rate = |ns: &u64| (*ns > 0).then(|| BitRate::of(bytes, Nanos(*ns)).0);
    let (first, all_later) = run.transfers_ns.split_first()?;
    let first = rate(first)?;
    let mut later: Vec<u64> = all_later.iter().filter_map(rate).collect();
    later.sort_unstable();
    let median = *later.get(later.len() / 2).filter(|_| later.len() >= LEAST_LATER)?;
    let long = known.tcp(Purpose::Default)?;
    if !is_slow(median, long) {
        return None;
    }
    let text = format!(
        "of transfers of {} over one connection the first arrived at {}, those after a pause at {}; a long flow carries {}",
        Bytes(bytes).rounded(),
        about(first),
        about(median),
        about(long.steady_bps)
    );
    let mut evidence = vec![Line::new(text, ""), doubling(known, bytes / run.mss_bytes.max(1))?];
    let untimed = all_later.len() - later.len();
    if untimed > 0 {
        let text = format!("{untimed} are left out: the receiver read each at once, so its duration is unknown");
        evidence.push(Line::new(text, ""));
    }
    let key = "net.ipv4.tcp_slow_start_after_idle";
    let begins_anew = (median as f64) < WORTH_NAMING * first as f64;
    let remedies = match known.evidence.sender.number(key) {
        Some(1) if begins_anew => {
            let text = format!(
                "those after a pause are no faster than the first, and the sender has {key}=1: it forgets its window (RFC 5681 §4.1)"
            );
            evidence.push(Line::new(text, format!("sysctl {key}; ss -tni beside a transfer: cwnd")));
            vec![keep_window()]
        }
        _ => vec![larger_start()],
    };
    Some(bound(*later.first()?, *later.last()?, evidence, remedies))
}

/// What makes the beginning of a connection shorter.
pub(super) fn remedies() -> Vec<Remedy> {
    vec![keep_window(), larger_start()]
}

fn keep_window() -> Remedy {
    Remedy::new(
        Some(Role::Sender),
        "keep the connection, and its window while it is idle",
        "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
    )
}

fn larger_start() -> Remedy {
    Remedy::new(
        Some(Role::Sender),
        "begin with a larger window where the path is known",
        "ip route replace HOST via GATEWAY initcwnd 40",
    )
}
