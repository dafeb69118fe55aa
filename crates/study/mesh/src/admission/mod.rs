//! Who may test now. Decided at both ends of a test, by each host's own steady clock: no host is in two throughput tests at once, whatever the
//! clocks of others say, and whatever gets lost.
//!
//! ```text
//! initiator: idle ── begin ──▶ asking ── granted in time ──▶ testing ── done ──▶ idle
//!                                │ refused, or PATIENCE is over ──────────────────▲
//! partner:   idle ── asked ──▶ held ── released, or the longest possible end ──▶ idle
//! ```
//!
//! The partner holds itself until the test must be over even if the answer took all of the initiator's patience and the initiator's
//! clock is slow by [`DRIFT`]. The initiator begins no test whose answer came later than [`PATIENCE`] after it asked. So the two need no common
//! time. After a start a host waits as long as the longest test that it may have forgotten ([`Gate::new`]). A host may give a share of its time
//! alone to tests ([`Gate::with_share`]).

mod agenda;
mod busy;
mod lease;

use busy::Budget;

pub use agenda::{Agenda, Due};
pub use lease::{Lease, Leases};

use longhaul_units::Nanos;

use crate::sample::SiteId;

/// How long an initiator waits for an answer; a later one is not used.
pub const PATIENCE: Nanos = Nanos::from_secs(5);
/// Clocks that count seconds differ by less: 1000 ppm, ten times what NTP allows.
pub const DRIFT: f64 = 1e-3;
/// Whatever else a test may take at its end: sockets that close, results that are read.
pub const MARGIN: Nanos = Nanos::from_secs(2);

/// Names one request of one host. Its numbers never repeat, also not after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Who asks.
    pub initiator: SiteId,
    /// Random, or counted from a random number.
    pub number: u64,
}

/// The admission of one host.
#[derive(Debug, Clone)]
pub struct Gate {
    state: State,
    /// Refuses everything until then.
    closed_until: Nanos,
    budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Asking { request: RequestId, asked: Nanos, lasts: Nanos },
    Testing { request: RequestId, since: Nanos, until: Nanos },
    Held { request: RequestId, since: Nanos, until: Nanos },
}

/// What a gate says to a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The test may begin.
    Granted,
    /// It may not; not before this time is over.
    Busy {
        /// Time until this host may be idle.
        retry_after: Nanos,
    },
}

impl Gate {
    /// A host that has just started. A partner may still send a test that this host has forgotten: it refuses all for as long as that can last.
    pub fn new(now: Nanos, longest_test: Nanos) -> Self {
        Self { state: State::Idle, closed_until: now.saturating_add(held(longest_test)), budget: Budget::new(now, 1.0) }
    }

    /// Lets tests take this share of the time at most, 0 to 1, averaged over ten minutes or more.
    pub fn with_share(self, now: Nanos, share: f64) -> Self {
        Self { budget: Budget::new(now, share), ..self }
    }

    /// Whether a test may be begun or admitted.
    pub fn is_idle(&mut self, now: Nanos) -> bool {
        self.expire(now);
        self.state == State::Idle && now >= self.closed_until && self.budget.is_left(now)
    }

    /// This host wants to begin a test that lasts so long. `true`: ask the partner now.
    pub fn begin(&mut self, now: Nanos, request: RequestId, lasts: Nanos) -> bool {
        if !self.is_idle(now) {
            return false;
        }
        self.state = State::Asking { request, asked: now, lasts };
        true
    }

    /// The partner granted. `true`: begin the test now.
    pub fn granted(&mut self, now: Nanos, request: RequestId) -> bool {
        self.expire(now);
        match self.state {
            State::Asking { request: own, lasts, .. } if own == request => {
                self.state =
                    State::Testing { request, since: now, until: now.saturating_add(lasts).saturating_add(MARGIN) };
                true
            }
            _ => false,
        }
    }

    /// The test is over, was refused, or a partner releases this host.
    pub fn release(&mut self, now: Nanos, request: RequestId) {
        match self.state {
            State::Asking { request: own, .. }
            | State::Testing { request: own, .. }
            | State::Held { request: own, .. }
                if own == request =>
            {
                self.end(now);
            }
            _ => {}
        }
    }

    fn end(&mut self, now: Nanos) {
        if let State::Testing { since, until, .. } | State::Held { since, until, .. } = self.state {
            self.budget.spend(now, now.min(until).saturating_sub(since));
        }
        self.state = State::Idle;
    }

    /// A partner asks for a test that lasts so long.
    pub fn asked(&mut self, now: Nanos, request: RequestId, lasts: Nanos) -> Answer {
        let is_idle = self.is_idle(now);
        match self.state {
            // The answer was lost: the same again, for the same time.
            State::Held { request: own, .. } if own == request => Answer::Granted,
            State::Idle if is_idle => {
                self.state = State::Held { request, since: now, until: now.saturating_add(held(lasts)) };
                Answer::Granted
            }
            _ => Answer::Busy { retry_after: self.busy_until().saturating_sub(now).max(Nanos::from_secs(1)) },
        }
    }

    fn busy_until(&self) -> Nanos {
        let until = match self.state {
            State::Idle => Nanos::ZERO,
            State::Asking { asked, .. } => asked.saturating_add(PATIENCE),
            State::Testing { until, .. } | State::Held { until, .. } => until,
        };
        until.max(self.closed_until).max(self.budget.opens())
    }

    /// When the state changes by itself.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        (self.state != State::Idle).then(|| self.busy_until())
    }

    fn expire(&mut self, now: Nanos) {
        let is_over = match self.state {
            State::Idle => false,
            State::Asking { asked, .. } => now > asked.saturating_add(PATIENCE),
            State::Testing { until, .. } | State::Held { until, .. } => now >= until,
        };
        if is_over {
            self.end(now);
        }
    }
}

/// How long a partner must hold itself for a test that lasts so long.
fn held(lasts: Nanos) -> Nanos {
    let nominal = lasts.saturating_add(PATIENCE).saturating_add(MARGIN);
    // Both clocks may be wrong.
    Nanos((nominal.0 as f64 * (1.0 + 2.0 * DRIFT)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Nanos = Nanos::from_secs(60);

    fn open() -> Gate {
        let mut gate = Gate::new(Nanos::ZERO, Nanos::ZERO);
        gate.closed_until = Nanos::ZERO;
        gate
    }

    fn request(site: u16) -> RequestId {
        RequestId { initiator: SiteId(site), number: 7 }
    }

    fn secs(secs: u64) -> Nanos {
        Nanos::from_secs(secs)
    }

    #[test]
    fn one_test_at_a_time_at_both_ends() {
        let (mut one, mut other) = (open(), open());
        assert!(one.begin(secs(1), request(0), TEST));
        assert!(matches!(one.asked(secs(1), request(2), TEST), Answer::Busy { .. }), "it asks itself");
        assert_eq!(other.asked(secs(1), request(0), TEST), Answer::Granted);
        assert_eq!(other.asked(secs(2), request(2), TEST), Answer::Busy { retry_after: Nanos(66_134_000_000) });
        assert!(one.granted(secs(2), request(0)));
        assert!(!one.begin(secs(3), request(0), TEST) && !other.begin(secs(3), request(1), TEST));
        one.release(secs(62), request(0));
        other.release(secs(62), request(2));
        assert!(one.is_idle(secs(62)) && !other.is_idle(secs(62)), "only who asked can release");
        other.release(secs(62), request(0));
        assert!(other.is_idle(secs(62)));
    }

    #[test]
    fn a_late_answer_begins_nothing() {
        let mut gate = open();
        assert!(gate.begin(secs(1), request(0), TEST));
        assert!(!gate.granted(secs(7), request(0)));
        assert!(gate.is_idle(secs(7)));
    }

    /// The latest begin and a slow clock: the partner still holds itself when the test is over.
    #[test]
    fn a_partner_outlasts_the_slowest_test() {
        let mut gate = open();
        assert_eq!(gate.asked(secs(0), request(0), TEST), Answer::Granted);
        // The initiator's seconds are longer, the partner's shorter.
        let end = (TEST.0 + PATIENCE.0) as f64 * (1.0 + DRIFT) / (1.0 - DRIFT);
        assert!(!gate.is_idle(Nanos(end as u64)));
        assert!(gate.is_idle(secs(68)));
    }

    /// A third of the time: 200 s at once, then the third of what passes. Whoever is refused hears when to come back.
    #[test]
    fn a_host_gives_its_share_of_the_time() {
        let mut gate = open().with_share(Nanos::ZERO, 1.0 / 3.0);
        let (mut now, mut busy) = (0, 0);
        while now < 36_000 {
            match gate.asked(secs(now), request(0), TEST) {
                Answer::Granted => {
                    (now, busy) = (now + 50, busy + 50);
                    gate.release(secs(now), request(0));
                }
                Answer::Busy { retry_after } => now += retry_after.as_secs_f64().ceil() as u64,
            }
        }
        assert!((12_000..=12_250).contains(&busy), "{busy} s of {now}");
    }

    #[test]
    fn a_restart_forgets_no_test() {
        let mut gate = Gate::new(secs(100), TEST);
        assert!(matches!(gate.asked(secs(101), request(0), TEST), Answer::Busy { .. }));
        assert!(!gate.begin(secs(160), request(0), TEST));
        assert!(gate.begin(secs(168), request(0), TEST));
    }
}
