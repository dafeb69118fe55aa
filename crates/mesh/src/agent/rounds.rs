//! Rounds: when which test is due, and one test from asking to its result.

use std::collections::BTreeMap;

use longhaul_channel::PublicKey;
use longhaul_kernel::clock::monotonic;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::{Agenda, RequestId};
use longhaul_mesh_model::file::{Kind, TestPlan};
use longhaul_mesh_model::schedule::OVERHEAD;
use longhaul_units::{BitRate, Nanos};

use super::shared::{Shared, View};
use super::testing::{self, Job};
use crate::error::Failure;
use crate::folder::random;
use crate::link::{self, As};
use crate::message::Message;
use crate::store::TestResult;

/// Tests that were refused are spread over this time.
const SPREAD: Nanos = Nanos::from_secs(10);
/// A partner that cannot be reached is asked again after this.
const UNREACHED: Nanos = Nanos::from_secs(30);

/// The agenda of each test plan, and the round that it is filled for.
#[derive(Default)]
pub(super) struct Rounds {
    plans: BTreeMap<usize, (u64, String, Agenda)>,
}

impl Rounds {
    /// Does what is due; the result, if a test ended.
    pub(super) fn go_on(&mut self, shared: &Shared, view: &View) -> Option<TestResult> {
        let now = shared.mesh_time();
        for round in &view.schedule.rounds {
            let number = now.0 / round.every.0;
            let filled =
                self.plans.get(&round.test).is_some_and(|(at, state, _)| (*at, state) == (number, &view.state));
            let test = &view.mesh.tests[round.test];
            if filled || !self.may_run(shared, test) {
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
        let due = self.plans.iter().filter_map(|(test, (_, _, agenda))| Some((agenda.poll_timeout()?, *test)));
        let (_, test) = due.filter(|(at, _)| *at <= now).min()?;
        if !shared.gate().is_idle(monotonic()) {
            return None;
        }
        let agenda = &mut self.plans.get_mut(&test)?.2;
        let (pair, until) = agenda.next(now)?;
        let plan = view.mesh.tests.get(test)?;
        match begin(shared, view, plan, pair) {
            Ok(Begun::Tested(result)) => return Some(*result),
            Ok(Begun::Later(wait)) => {
                let part = random::<1>().map_or(0.5, |byte| f64::from(byte[0]) / 256.0);
                agenda.postpone(now, pair, until, wait, (SPREAD, part));
            }
            Ok(Begun::Never(message)) => eprintln!("{}: {message}", name(view, pair)),
            Err(failure) => {
                eprintln!("{}: {failure}", name(view, pair));
                agenda.postpone(now, pair, until, UNREACHED, (SPREAD, 0.5));
            }
        }
        None
    }

    fn may_run(&self, shared: &Shared, test: &TestPlan) -> bool {
        matches!(test.kind, Kind::Udp { .. }) && shared.options.limits.check(test, BitRate(0)).is_ok()
    }
}

fn name(view: &View, (from, to): (SiteId, SiteId)) -> String {
    format!("{} to {}", view.mesh.of(from).name, view.mesh.of(to).name)
}

enum Begun {
    Tested(Box<TestResult>),
    Later(Nanos),
    Never(String),
}

/// How long a test holds both hosts.
pub(super) fn lasts(test: &TestPlan) -> Nanos {
    test.time.saturating_add(OVERHEAD)
}

fn begin(shared: &Shared, view: &View, test: &TestPlan, (from, to): (SiteId, SiteId)) -> Result<Begun, Failure> {
    let partner = if from == view.own { to } else { from };
    let Some(key) = view.key_of(partner) else {
        return Ok(Begun::Later(UNREACHED));
    };
    let number = u64::from_le_bytes(random()?);
    let request = RequestId { initiator: view.own, number };
    if !shared.gate().begin(monotonic(), request, lasts(test)) {
        return Ok(Begun::Later(Nanos::from_secs(1)));
    }
    let done = ask_and_test(shared, view, test, (from, to), (partner, key), request);
    shared.gate().release(request);
    done
}

/// The rate of a test, payload: what the coordinator leases of the shared links on its way, or what is safe without it.
fn rate(shared: &Shared, view: &View, test: &TestPlan, pair: (SiteId, SiteId), number: u64) -> Result<BitRate, Begun> {
    let full = test.kind.payload_rate(BitRate(u64::MAX)).unwrap_or(BitRate(0));
    let safe = view.mesh.crossed(pair.0, pair.1).map(|(_, _, link)| link.safe_share()).min();
    let Some(safe) = safe else { return Ok(full) };
    let [sender, receiver] = [pair.0, pair.1].map(|site| view.mesh.of(site).name.clone());
    match shared.ask_coordinator(&Message::Lease { number, test: test.name.clone(), sender, receiver }) {
        Ok(Message::Leased) => Ok(full),
        Ok(Message::Busy { retry_after_ns }) => Err(Begun::Later(Nanos(retry_after_ns))),
        Ok(Message::Refused { message }) => Err(Begun::Never(format!("the coordinator refuses: {message}"))),
        // Away, or older than leases.
        Ok(_) | Err(_) => match test.kind.payload_rate(safe) {
            Some(rate) if rate.0 > 0 => Ok(rate),
            _ => Err(Begun::Later(UNREACHED)),
        },
    }
}

fn ask_and_test(
    shared: &Shared,
    view: &View,
    test: &TestPlan,
    (from, to): (SiteId, SiteId),
    (partner, key): (SiteId, PublicKey),
    request: RequestId,
) -> Result<Begun, Failure> {
    let number = request.number;
    let rate = match rate(shared, view, test, (from, to), number) {
        Ok(rate) => rate,
        Err(begun) => return Ok(begun),
    };
    let names = [from, to].map(|site| view.mesh.of(site).name.clone());
    let [sender, receiver] = names;
    let question = Message::Ask { number, test: test.name.clone(), sender: sender.clone(), receiver: receiver.clone() };
    let known = As::Known(&shared.identity, key);
    let site = view.mesh.of(partner);
    let mut answer = Err(Failure::new("the site has no address"));
    for address in &site.addresses {
        answer = link::ask(&with_port(address, site.port), &known, &question).map(|answer| (address.clone(), answer));
        if answer.is_ok() {
            break;
        }
    }
    let done = match answer {
        // The gate's patience covers the lease, too: it was closed before that was asked for.
        Ok((address, Message::Granted { port, key })) if shared.gate().granted(monotonic(), request) => {
            let job = Job { test, rate, address: &address, port, key: &key, sends: from == view.own };
            let at = shared.mesh_time();
            let result = testing::run(shared, &job).map(|counts| {
                let at_ns = i64::try_from(at.0).unwrap_or(i64::MAX);
                Begun::Tested(Box::new(counts.into_result(test.name.clone(), sender, receiver, at_ns)))
            });
            let _ = link::ask(&with_port(&address, site.port), &known, &Message::Release { number });
            result
        }
        Ok((_, Message::Granted { .. })) => Ok(Begun::Later(Nanos::from_secs(1))),
        Ok((_, Message::Busy { retry_after_ns })) => Ok(Begun::Later(Nanos(retry_after_ns.min(SPREAD.0)))),
        Ok((_, Message::Refused { message })) => Ok(Begun::Never(format!("{} refuses: {message}", site.name))),
        Ok(_) => Ok(Begun::Never(format!("{} answered something else", site.name))),
        Err(failure) => Err(failure),
    };
    if view.mesh.crossed(from, to).next().is_some() {
        // A lease ends by itself, too.
        let _ = shared.ask_coordinator(&Message::Release { number });
    }
    done
}

/// An address with a port; one of IPv6 stands in brackets.
fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
