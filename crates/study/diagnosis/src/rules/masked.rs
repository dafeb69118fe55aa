//! Loss that TCP hardly meets, as another limit keeps it slow: a window of 64 KB sends so few packets that none of them may be lost in a test.
//! Without selective acknowledgements it meets loss, and says too much of it. UDP meets it at half of the target, where no queue of the path is full, and a response function says what it leaves.

use longhaul_congestion::aimd::Model;
use longhaul_result::Location;
use longhaul_units::Nanos;

use super::capacity::place_host;
use super::loss::{NOT_BY_CHANCE, rates, share_text, uneven_streams};
use super::{Kind, Known, about};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy};
use crate::evidence::{Purpose, TcpFacts, UdpFacts};

/// No queue overflows at half of the rate that it carries.
const HALF: f64 = 0.55;
/// Losses of TCP from which on it tells what loss leaves by itself: Reno's mean needs as many (see [`super::loss`]).
const TCP_TELLS: u64 = 10;

/// Whether no TCP run met enough losses to say what loss leaves, and its congestion window was not the limit.
pub(crate) fn is_hidden(known: &Known<'_>) -> bool {
    let met = |run: &TcpFacts| run.loss_events.unwrap_or(run.retransmits) >= TCP_TELLS;
    let held = |run: &TcpFacts| {
        let by = run.limited_by;
        by.congestion_window > by.receive_window.max(by.send_buffer).max(by.application)
    };
    // Of one that was repeated the last counts, here as elsewhere.
    let counts = |run: &TcpFacts| known.tcp(run.purpose).is_some_and(|last| std::ptr::eq(last, run));
    // Without selective acknowledgements TCP takes a round trip for each loss: slower than any response function says.
    let repairs = |run: &TcpFacts| run.handshake.sack != Some(false);
    let tells = |run: &TcpFacts| repairs(run) && (met(run) || run.purpose != Purpose::Idle && held(run));
    known.flow().is_some() && !known.tcp_runs().any(|run| counts(run) && tells(run))
}

/// What loss would leave once the other limit is fixed.
pub(super) fn loss(known: &Known<'_>) -> Option<Bound> {
    let kind = known.capacity.as_ref()?.kind;
    if !is_hidden(known) || matches!(kind, Kind::Policer | Kind::Competing) || uneven_streams(known).is_some() {
        return None;
    }
    let (run, target) = (known.flow()?, known.target?.rate_bps);
    let slow = |step: &&UdpFacts| step.sent_bps as f64 <= HALF * target as f64;
    let steps = || rates(known).filter(slow);
    let sent = steps().map(|step| step.sent_packets).fold(0, u64::saturating_add);
    let lost = steps().map(UdpFacts::lost_on_the_way).fold(0, u64::saturating_add);
    if (lost as f64) < NOT_BY_CHANCE {
        return None;
    }
    let rtt = known.base_rtt_ns?;
    let share = lost as f64 / sent.max(1) as f64;
    let control = if run.congestion_control == "cubic" { "cubic" } else { "reno" };
    let window = Model::named(control).ok()?.window_at(share.min(0.5), Nanos(rtt));
    let rate = (window * known.mss_bytes() as f64 * 8.0 / (rtt as f64 / 1e9)) as u64;
    let place = steps().filter_map(UdpFacts::main_place).next().unwrap_or(Location::Network);
    let text = format!(
        "UDP at half of the target or less lost {lost} of {sent} packets ({}), and no queue is full there; over this round trip {control} \
         carries about {} with that",
        share_text(share),
        about(rate)
    );
    Some(Bound {
        code: Code::Loss,
        place: Some(place),
        host: place_host(place),
        // Within a factor of two, as the formula's cycles are all alike, and so few losses are known no better.
        bound_bps: Interval::derived(rate, rate.saturating_mul(2)),
        evidence: vec![Line::new(text, "longhaul cc table; longhaul udp HOST -b RATE")],
        remedies: vec![Remedy::new(
            place_host(place),
            "find where packets are lost: when the first cause is removed, this will be the limit",
            "ethtool -S IF; ip -s -s link; nft list ruleset",
        )],
    })
}
