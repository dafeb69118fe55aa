//! A measurement with longhaul's server for as long as was asked, over as many sessions as it takes: a server allows no longer ones, ends, or
//! is started anew; the path is down; this host gets another address.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::signals::Stop;
use longhaul_peer::client::{self, ADDRESS_CHANGED, Target};
use longhaul_rtt::{GapReason, RttEndReport, RttParameters};
use longhaul_session::{SessionError, TOO_LONG, TestEnd};
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use crate::cmd::rtt::measured::{Measured, rest};
use crate::output::say;

/// The longest session that a server allows unless its operator says otherwise.
const SESSION: Nanos = Nanos::from_secs(3600);
/// No server is asked for shorter ones.
const SESSION_LEAST: Nanos = Nanos::from_secs(10);
/// Between two attempts to reach a server that was there, and after a session that ended early.
const RETRY: Nanos = Nanos::from_secs(1);
/// Where sessions end early one after the other, each pause is twice as long, up to this: each session begins a file of the log.
const PAUSE_MOST: Nanos = Nanos::from_secs(30);
/// How often to look for signals.
const LOOK: Duration = Duration::from_millis(50);

/// What the server reports of all sessions, and what is known at the end of the last one.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) remote: Option<RttEndReport>,
    pub(crate) last: Option<TestEnd>,
}

/// Probes until the amount is sent or a signal comes.
///
/// # Errors
/// There is nothing to report: the first session failed.
pub(crate) fn probe(
    target: &Target,
    asked: &RttParameters,
    stop: Stop,
    measured: &mut Measured,
) -> Result<Ends, SessionError> {
    let (began, first) = (monotonic(), asked.first_sequence);
    // Where this host gets another address, the server ends the session of the one before.
    let measurement = client::new_measurement()?;
    let mut ends = Ends::default();
    let mut longest = Nanos::MAX;
    // Why the session before ended, and this host's address then.
    let mut between: Option<(GapReason, Option<IpAddr>)> = None;
    let mut told = false;
    // The pause after the last session, where that ended early, and how long to wait now.
    let (mut pause, mut waits) = (Nanos::ZERO, Nanos::ZERO);
    while let Some(rest) = rest(asked, monotonic().saturating_sub(began), measured.next.saturating_sub(first)) {
        if stop.requested().is_some() {
            break;
        }
        if waits > Nanos::ZERO {
            wait(std::mem::take(&mut waits), stop);
            continue;
        }
        let own = own_address(target.address);
        let session = no_longer(rest, longest);
        let asked_ns = if let Amount::DurationNs(ns) = session.amount { Nanos(ns) } else { Nanos::MAX };
        let next = measured.next;
        let mut probing_since: Option<Nanos> = None;
        let ended = client::probe_on(target, measurement, session, Some(stop), |observed| {
            if probing_since.is_none() {
                probing_since = Some(monotonic());
                if let Some((why, before)) = between.take() {
                    let moved = before.is_some() && before != own;
                    measured.session_over(if moved { GapReason::AddressChanged } else { why }, realtime_ns());
                    told = false;
                }
            }
            measured.take(observed);
        });
        let probed = probing_since.is_some();
        if let Some(since) = probing_since {
            pause = pause_after(monotonic().saturating_sub(since), asked_ns, pause);
            waits = pause;
        }
        let lost = match ended {
            Ok(end) => {
                if let Some(report) = end.responder() {
                    let mut sum = report.clone();
                    ends.remote.iter().for_each(|before| sum.add(before));
                    ends.remote = Some(sum);
                }
                let lost = end.cut.as_ref().map(|cut| cut.error.clone());
                ends.last = Some(end);
                if lost.is_none() {
                    between = Some((GapReason::SessionRenewed, own));
                    // A server that ends each session at once is asked no more.
                    if measured.next == next {
                        break;
                    }
                }
                lost
            }
            Err(error) if error.code == TOO_LONG && can_be_shorter(asked_ns, longest) => {
                longest = shorter(asked_ns);
                None
            }
            Err(error) if stop.requested().is_some() => {
                // What was measured so far is the result; a second signal wants none.
                if measured.last_ns.is_none() || stop.count() > 1 {
                    return Err(error);
                }
                None
            }
            Err(error) if probed || between.is_some() => Some(error),
            Err(error) => return Err(error),
        };
        if let Some(error) = lost {
            let why = match error.code.as_str() {
                ADDRESS_CHANGED => GapReason::AddressChanged,
                "control_lost" => GapReason::ServerEnded,
                _ => GapReason::Unreachable,
            };
            between.get_or_insert((why, own));
            if !std::mem::replace(&mut told, true) {
                say(format!("{}; waiting for the server", error.message));
            }
            waits = waits.max(RETRY);
        }
    }
    measured.flush_end(between.map(|(why, _)| why).filter(|why| *why != GapReason::SessionRenewed), realtime_ns());
    Ok(ends)
}

/// How long to wait after a session that probed for `lasted` of the time that was asked for, where the pause before it was `before`.
fn pause_after(lasted: Nanos, asked: Nanos, before: Nanos) -> Nanos {
    if lasted >= SESSION_LEAST.min(Nanos(asked.0 / 2)) {
        return Nanos::ZERO;
    }
    Nanos(before.0 * 2).clamp(RETRY, PAUSE_MOST)
}

/// Whether another question follows where `asked` is too long and none was to be longer than `longest`. A number of probes has no time:
/// the next question would be the same one.
fn can_be_shorter(asked: Nanos, longest: Nanos) -> bool {
    asked < Nanos::MAX && longest > SESSION_LEAST
}

/// What to ask for where `asked` is too long.
fn shorter(asked: Nanos) -> Nanos {
    if asked > SESSION { SESSION } else { Nanos(asked.0 / 2).max(SESSION_LEAST) }
}

fn no_longer(rest: RttParameters, longest: Nanos) -> RttParameters {
    let amount = match rest.amount {
        Amount::DurationNs(ns) => Amount::DurationNs(ns.min(longest.0)),
        other => other,
    };
    RttParameters { amount, ..rest }
}

/// This host's address towards `peer`.
fn own_address(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn realtime_ns() -> i64 {
    i64::try_from(realtime().0).unwrap_or(i64::MAX)
}

fn wait(time: Nanos, stop: Stop) {
    let until = monotonic() + time;
    while monotonic() < until && stop.requested().is_none() {
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_sessions_early_is_asked_more_and_more_seldom() {
        let (asked, ms) = (Nanos::from_secs(3600), Nanos::from_millis);
        let pauses = std::iter::successors(Some(Nanos::ZERO), |before| Some(pause_after(ms(20), asked, *before)));
        let pauses: Vec<u64> = pauses.take(8).map(|pause| pause.0 / 1_000_000_000).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
        // One that allows no longer sessions has ended none early, and one that ran for long begins anew.
        for (lasted, asked) in [(ms(9_900), SESSION_LEAST), (ms(60_000), asked), (ms(300), ms(310))] {
            assert_eq!(pause_after(lasted, asked, PAUSE_MOST), Nanos::ZERO);
        }
    }

    #[test]
    fn a_server_that_allows_less_is_asked_for_less() {
        let asks = std::iter::successors(Some(Nanos::from_secs(7 * 86_400)), |asked| Some(shorter(*asked)));
        let asks: Vec<u64> = asks.take(5).map(|asked| asked.0 / 1_000_000_000).collect();
        assert_eq!(asks, [604_800, 3_600, 1_800, 900, 450]);
        assert_eq!(shorter(Nanos::from_secs(14)), SESSION_LEAST);
        assert!(can_be_shorter(Nanos::from_secs(100), Nanos::MAX));
        assert!(!can_be_shorter(SESSION_LEAST, SESSION_LEAST), "a server that allows not even this");
        assert!(!can_be_shorter(Nanos::MAX, Nanos::MAX), "a number of probes is as long as before");
        let asked = RttParameters { amount: Amount::DurationNs(100_000_000_000), ..RttParameters::default() };
        assert_eq!(no_longer(asked, Nanos::from_secs(10)).amount, Amount::DurationNs(10_000_000_000));
    }
}
