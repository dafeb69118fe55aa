//! Rounds: when which throughput test is due, and one test from asking to its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::{Agenda, RequestId};
use longhaul_mesh_model::file::TestPlan;
use longhaul_units::{BitRate, Nanos};

use super::asking;
use super::beside::{Done, keep_beside};
use super::shared::{Shared, View};
use super::testing::{self, Job};
use crate::error::Failure;
use crate::folder::random;
use longhaul_mesh_model::message::Message;

/// A partner says when it may be idle. Nobody waits longer for it at once.
const BUSY_MOST: Nanos = Nanos::from_secs(120);
/// A partner that cannot be reached is asked again after this.
pub(super) const UNREACHED: Nanos = Nanos::from_secs(30);

/// A partner that let this site wait for longer, and then did not answer, costs the tests of others.
const HUNG: Nanos = Nanos::from_secs(1);
/// Until it is asked again, for any test; from [`UNREACHED`] on it doubles up to this.
const HUNG_WAIT_MOST: Nanos = Nanos::from_secs(480);

/// What is due, and who is not to be asked.
#[derive(Default)]
pub(super) struct Rounds {
    /// The agenda of each test plan, and the round that it is filled for.
    plans: BTreeMap<usize, (u64, String, Agenda)>,
    hung: Hung,
}

/// Partners that hung when they were asked: when they are asked again, and the wait until then. By a steady clock.
#[derive(Default)]
struct Hung(BTreeMap<SiteId, (Nanos, Nanos)>);

impl Hung {
    /// Time until `partner` is asked again; zero: now.
    fn left(&self, partner: SiteId, now: Nanos) -> Nanos {
        self.0.get(&partner).map_or(Nanos::ZERO, |(until, _)| until.saturating_sub(now))
    }

    /// It hung, again or for the first time.
    fn note(&mut self, partner: SiteId, now: Nanos) {
        let before = self.0.get(&partner).map(|(_, wait)| *wait);
        let wait = before.map_or(UNREACHED, |wait| wait.saturating_add(wait).min(HUNG_WAIT_MOST));
        self.0.insert(partner, (now.saturating_add(wait), wait));
    }

    /// It answered.
    fn forget(&mut self, partner: SiteId) {
        self.0.remove(&partner);
    }
}

impl Rounds {
    /// Does what is due; the result, if a test ended.
    pub(super) fn go_on(&mut self, shared: &Arc<Shared>, view: &View) -> Option<Done> {
        let now = shared.mesh_time();
        self.fill(shared, view, now);
        let due = self.plans.iter().filter_map(|(test, (_, _, agenda))| Some((agenda.poll_timeout()?, *test)));
        let (_, test) = due.filter(|(at, _)| *at <= now).min()?;
        if !shared.gate().is_idle(monotonic()) {
            return None;
        }
        let agenda = &mut self.plans.get_mut(&test)?.2;
        let due = agenda.next(now)?;
        let plan = view.mesh.tests.get(test)?;
        let partner = partner_of(view, due.pair);
        let left = self.hung.left(partner, monotonic());
        if left > Nanos::ZERO {
            agenda.postpone(now, due, left, part());
            return None;
        }
        let begun = begin(shared, view, plan, due.pair, "");
        match &begun {
            Ok(Begun::Hung(_)) => self.hung.note(partner, monotonic()),
            Ok(Begun::Tested(_) | Begun::Never(_)) => self.hung.forget(partner),
            _ => {}
        }
        match begun {
            Ok(Begun::Tested(result)) => return Some(*result),
            Ok(Begun::Later(wait)) => agenda.postpone(now, due, wait, part()),
            Ok(Begun::Never(message)) => stderr_line!("{}: {message}", name(view, due.pair)),
            Ok(Begun::Hung(failure)) => {
                stderr_line!("{}: {failure}", name(view, due.pair));
                agenda.postpone(now, due, self.hung.left(partner, monotonic()), part());
            }
            Err(failure) => {
                stderr_line!("{}: {failure}", name(view, due.pair));
                agenda.postpone(now, due, UNREACHED, part());
            }
        }
        None
    }

    /// Puts the tests of rounds that began onto the agendas.
    fn fill(&mut self, shared: &Shared, view: &View, now: Nanos) {
        for round in &view.schedule.rounds {
            let number = now.0 / round.every.0;
            let filled =
                self.plans.get(&round.test).is_some_and(|(at, state, _)| (*at, state) == (number, &view.state));
            let test = &view.mesh.tests[round.test];
            if filled || shared.options.limits.check(test, BitRate(0)).is_err() {
                continue;
            }
            let begin = number * round.every.0;
            let mut agenda = Agenda::default();
            for (offset, pair) in round.of_site(&view.mesh, number, view.own) {
                // A test that was due before this site knew of the round belongs to it nevertheless.
                agenda.add(Nanos(begin + offset.0), pair, Nanos(begin + round.every.0));
            }
            self.plans.insert(round.test, (number, view.state.clone(), agenda));
        }
    }
}

/// A random number in [0, 1).
pub(super) fn part() -> f64 {
    random::<2>().map_or(0.5, |bytes| f64::from(u16::from_le_bytes(bytes)) / 65_536.0)
}

pub(super) fn name(view: &View, (from, to): (SiteId, SiteId)) -> String {
    format!("{} to {}", view.mesh.of(from).name, view.mesh.of(to).name)
}

/// What came of an attempt.
pub(super) enum Begun {
    Tested(Box<Done>),
    Later(Nanos),
    Never(String),
    /// The partner took time, and did not answer.
    Hung(Failure),
}

fn partner_of(view: &View, pair: (SiteId, SiteId)) -> SiteId {
    if pair.0 == view.own { pair.1 } else { pair.0 }
}

/// Begins a throughput test and runs it to its end. `alarm`: what a diagnosis is for.
pub(super) fn begin(
    shared: &Arc<Shared>,
    view: &View,
    test: &TestPlan,
    pair: (SiteId, SiteId),
    alarm: &str,
) -> Result<Begun, Failure> {
    let partner = partner_of(view, pair);
    if view.key_of(partner).is_none() {
        return Ok(Begun::Later(UNREACHED));
    }
    if let Err(refusal) = shared.options.limits.check(test, view.mesh.rate_of(test, pair)) {
        return Ok(Begun::Never(format!("{} (--allow {}=…)", refusal.message, refusal.limit)));
    }
    let request = RequestId { initiator: view.own, number: u64::from_le_bytes(random()?) };
    if !shared.gate().begin(monotonic(), request, test.holds()) {
        return Ok(Begun::Later(Nanos::from_secs(1)));
    }
    let done = ask_and_test(shared, view, (test, alarm), (pair, partner), request);
    shared.gate().release(monotonic(), request);
    done
}

/// The rate of a test: what the coordinator leases of the shared links on its way, or what is safe without it.
fn rate(
    shared: &Shared,
    view: &View,
    test: &TestPlan,
    pair: (SiteId, SiteId),
    question: Message,
) -> Result<BitRate, Begun> {
    let full = view.mesh.rate_of(test, pair);
    let safe = view.mesh.crossed(pair.0, pair.1).map(|(_, _, link)| link.safe_share()).min();
    let Some(safe) = safe else { return Ok(full) };
    match shared.ask_coordinator(&question) {
        Ok(Message::Leased) => Ok(full),
        Ok(Message::Busy { retry_after_ns }) => Err(Begun::Later(Nanos(retry_after_ns))),
        Ok(Message::Refused { message }) => Err(Begun::Never(format!("the coordinator refuses: {message}"))),
        // Away, or older than leases.
        Ok(_) | Err(_) => match test.kind.payload_rate(safe) {
            Some(rate) if rate.0 > 0 => Ok(rate.min(full)),
            _ => Err(Begun::Later(UNREACHED)),
        },
    }
}

fn ask_and_test(
    shared: &Arc<Shared>,
    view: &View,
    (test, alarm): (&TestPlan, &str),
    (pair, partner): ((SiteId, SiteId), SiteId),
    request: RequestId,
) -> Result<Begun, Failure> {
    let number = request.number;
    let mut head = asking::head(shared, &view.mesh, test, pair);
    let (sender, receiver) = (head.sender.clone(), head.receiver.clone());
    let lease = Message::Lease { number, test: test.name.clone(), sender, receiver };
    let rate = match rate(shared, view, test, pair, lease) {
        Ok(rate) => rate,
        Err(begun) => return Ok(begun),
    };
    let site = &view.mesh.of(partner).name;
    let asked = monotonic();
    let done = match asking::ask(shared, view, partner, &asking::question(&head, number)) {
        // The gate's patience covers the lease, too: it was closed before that was asked for.
        Ok((reached, Message::Granted { port, key })) if shared.gate().granted(monotonic(), request) => {
            let sends = pair.0 == view.own;
            let job = Job { test, rate, address: reached.address(), port, key: &key, sends, alarm };
            head.at_ns = i64::try_from(shared.mesh_time().0).unwrap_or(i64::MAX);
            let result = testing::run(shared, &job).and_then(|found| keep_beside(shared, found, head));
            reached.release(shared, number);
            result.map(|result| Begun::Tested(Box::new(result)))
        }
        Ok((reached, Message::Granted { .. })) => {
            // Too late to be used.
            reached.release(shared, number);
            Ok(Begun::Later(Nanos::from_secs(1)))
        }
        Ok((_, Message::Busy { retry_after_ns })) => Ok(Begun::Later(Nanos(retry_after_ns.min(BUSY_MOST.0)))),
        Ok((_, Message::Refused { message })) => Ok(Begun::Never(format!("{site} refuses: {message}"))),
        Ok(_) => Ok(Begun::Never(format!("{site} answered something else"))),
        Err(failure) if monotonic().saturating_sub(asked) > HUNG => Ok(Begun::Hung(failure)),
        Err(failure) => Err(failure),
    };
    if view.mesh.crossed(pair.0, pair.1).next().is_some() {
        // A lease ends by itself, too.
        let _ = shared.ask_coordinator(&Message::Release { number });
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_that_hangs_is_asked_less_and_less() {
        let (mut hung, seconds) = (Hung::default(), Nanos::from_secs);
        let [one, other] = [SiteId(1), SiteId(2)];
        let mut now = seconds(100);
        for wait in [30, 60, 120, 240, 480, 480] {
            hung.note(one, now);
            assert_eq!([hung.left(one, now), hung.left(other, now)], [seconds(wait), Nanos::ZERO]);
            now = now.saturating_add(seconds(wait));
            assert_eq!(hung.left(one, now), Nanos::ZERO);
        }
        hung.forget(one);
        hung.note(one, now);
        assert_eq!(hung.left(one, now), seconds(30));
    }
}
