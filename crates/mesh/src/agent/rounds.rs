//! Rounds: when which throughput test is due, and one test from asking to its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::{Agenda, RequestId};
use longhaul_mesh_model::file::TestPlan;
use longhaul_units::{BitRate, Nanos};

use super::asking;
use super::beside::{Done, keep_beside};
use super::hung::LASTS;
use super::shared::{Shared, View};
use super::testing::{self, Head, Job};
use crate::error::Failure;
use crate::folder::random;
use longhaul_mesh_model::message::Message;

/// A partner says when it may be idle. Nobody waits longer for it at once.
const BUSY_MOST: Nanos = Nanos::from_secs(120);
/// A partner that cannot be reached is asked again after this.
pub(super) const UNREACHED: Nanos = Nanos::from_secs(30);

/// The agenda of each test plan, and the round that it is filled for.
#[derive(Default)]
pub(super) struct Rounds {
    plans: BTreeMap<usize, (u64, String, Agenda)>,
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
        match begin(shared, view, plan, due.pair, "") {
            Ok(Begun::Tested(result)) => return Some(*result),
            Ok(Begun::Later(wait)) => agenda.postpone(now, due, wait, part()),
            Ok(Begun::Never(message)) => stderr_line!("{}: {message}", name(view, due.pair)),
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
}

/// Begins a throughput test and runs it to its end. `alarm`: what a diagnosis is for.
pub(super) fn begin(
    shared: &Arc<Shared>,
    view: &View,
    test: &TestPlan,
    pair: (SiteId, SiteId),
    alarm: &str,
) -> Result<Begun, Failure> {
    let partner = if pair.0 == view.own { pair.1 } else { pair.0 };
    let Some(key) = view.key_of(partner) else { return Ok(Begun::Later(UNREACHED)) };
    let left = shared.hung().left(key, monotonic());
    if left > Nanos::ZERO {
        return Ok(Begun::Later(left));
    }
    if let Err(refusal) = shared.options.limits.check(test, view.mesh.rate_of(test, pair)) {
        return Ok(Begun::Never(format!("{} (--allow {}=…)", refusal.message, refusal.limit)));
    }
    let request = RequestId { initiator: view.own, number: u64::from_le_bytes(random()?) };
    if !shared.gate().begin(monotonic(), request, test.holds()) {
        return Ok(Begun::Later(Nanos::from_secs(1)));
    }
    let ends = Instant::now() + LASTS;
    let done = ask_and_test(shared, view, (test, alarm), (pair, partner), request, ends);
    shared.gate().release(monotonic(), request);
    done
}

/// The rate of a test: what the coordinator leases of the shared links on its way, or what is safe without it.
fn rate(
    shared: &Shared,
    view: &View,
    test: &TestPlan,
    pair: (SiteId, SiteId),
    head: &Head,
    number: u64,
) -> Result<BitRate, Begun> {
    let full = view.mesh.rate_of(test, pair);
    let safe = view.mesh.crossed(pair.0, pair.1).map(|(_, _, link)| link.safe_share()).min();
    let Some(safe) = safe else { return Ok(full) };
    let Head { test: name, sender, receiver, .. } = head.clone();
    match shared.ask_for_lease(&Message::Lease { number, test: name, sender, receiver }) {
        Ok(Message::Leased) => Ok(full),
        Ok(Message::Busy { retry_after_ns }) => Err(Begun::Later(Nanos(retry_after_ns))),
        Ok(Message::Refused { message }) => Err(Begun::Never(format!("the coordinator refuses: {message}"))),
        // Away, or older than leases.
        Ok(_) | Err(_) => match test.kind.payload_rate(safe) {
            Some(rate) if rate.0 > 0 => Ok(rate.min(full)),
            _ => {
                // It may have granted it, too late.
                let _ = shared.ask_for_lease(&Message::Release { number, unused: true });
                Err(Begun::Later(UNREACHED))
            }
        },
    }
}

fn ask_and_test(
    shared: &Arc<Shared>,
    view: &View,
    (test, alarm): (&TestPlan, &str),
    (pair, partner): ((SiteId, SiteId), SiteId),
    request: RequestId,
    ends: Instant,
) -> Result<Begun, Failure> {
    let number = request.number;
    let mut head = asking::head(shared, &view.mesh, test, pair);
    let rate = match rate(shared, view, test, pair, &head, number) {
        Ok(rate) => rate,
        Err(begun) => return Ok(begun),
    };
    let site = &view.mesh.of(partner).name;
    let mut unused = true;
    let done = match asking::ask(shared, view, partner, &asking::question(&head, number), ends) {
        // The gate's patience covers the lease, too: it was closed before that was asked for.
        Ok((reached, Message::Granted { port, key })) if shared.gate().granted(monotonic(), request) => {
            let sends = pair.0 == view.own;
            let job = Job { test, rate, address: reached.address(), port, key: &key, sends, alarm };
            head.at_ns = i64::try_from(shared.mesh_time().0).unwrap_or(i64::MAX);
            unused = false;
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
        Err(failure) => {
            asking::withdraw(shared, view, partner, number);
            Err(failure)
        }
    };
    if view.mesh.crossed(pair.0, pair.1).next().is_some() {
        // A lease ends by itself, too.
        let _ = shared.ask_for_lease(&Message::Release { number, unused });
    }
    done
}
