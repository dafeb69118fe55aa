//! The partner's part: who asks is a member, for a test of the mesh that this site allows, and this host is idle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_channel::{Key, PublicKey};
use longhaul_kernel::clock::monotonic;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::{Answer, MARGIN, PATIENCE, RequestId};
use longhaul_mesh_model::file::{Kind, TestPlan};
use longhaul_mesh_model::schedule::initiator;
use longhaul_units::{BitRate, Nanos};

use super::shared::{Shared, View};
use super::standing::PROBES_MOST;
use super::testing;
use crate::delivery::TESTS_OF_ROUND;
use crate::error::Failure;
use crate::folder::{random, site_of};
use crate::link::Answering;
use longhaul_mesh_model::message::Message;

/// The round of a test that has none, such as a diagnosis.
const ROUND: Nanos = Nanos::from_secs(3600);
/// One that ends, and the one after it.
const PROBES_OF_PARTNER: usize = 2;

/// A site as its partners see it.
pub(super) struct Partner {
    shared: Arc<Shared>,
    /// The throughput test that runs here for a partner, and what ends its server.
    throughput: Mutex<Option<(RequestId, Sender<()>)>>,
    /// Servers of round trips, the oldest first.
    probes: Mutex<Vec<Probes>>,
    /// When tests began in the round that is going on, by test and pair: a partner must not take all of this site's time.
    begun: Mutex<Begun>,
}

/// Times by test and pair, the oldest first. Round trips have no direction: both orders of a pair are one.
#[derive(Default)]
struct Begun(BTreeMap<(String, (SiteId, SiteId)), VecDeque<Nanos>>);

impl Begun {
    /// Counts a test before it begins, so that one that is asked for meanwhile knows of it, and one that fails counts, too.
    ///
    /// # Errors
    /// This pair has had its tests: until when.
    fn begin(&mut self, test: &TestPlan, pair: (SiteId, SiteId), now: Nanos) -> Result<(), Nanos> {
        let every = if test.kind == Kind::Rtt { test.time } else { test.every.unwrap_or(ROUND) };
        let times = self.0.entry(Self::key(test, pair)).or_default();
        times.retain(|at| at.saturating_add(every) > now);
        match times.front() {
            Some(first) if times.len() >= TESTS_OF_ROUND => Err(first.saturating_add(every)),
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }

    fn key(test: &TestPlan, pair: (SiteId, SiteId)) -> (String, (SiteId, SiteId)) {
        let pair = if test.kind == Kind::Rtt { (pair.0.min(pair.1), pair.0.max(pair.1)) } else { pair };
        (test.name.clone(), pair)
    }

    /// A test that was counted at `at` did not begin.
    fn withdraw(&mut self, test: &TestPlan, pair: (SiteId, SiteId), at: Nanos) {
        if let Some(times) = self.0.get_mut(&Self::key(test, pair))
            && let Some(counted) = times.iter().position(|time| *time == at)
        {
            times.remove(counted);
        }
    }
}

struct Probes {
    request: RequestId,
    until: Nanos,
    /// The server ends when its sender is gone.
    _server: Sender<()>,
}

/// What a member asks for.
struct Question<'a> {
    request: RequestId,
    test: &'a TestPlan,
    pair: (SiteId, SiteId),
    /// As [`testing::Job::rate`].
    rate: BitRate,
}

impl Partner {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, throughput: Mutex::default(), probes: Mutex::default(), begun: Mutex::default() }
    }

    fn member(&self, peer: PublicKey, question: Message) -> Result<Message, Failure> {
        let view = self.shared.view().ok_or_else(|| Failure::new("this site does not know the mesh yet"))?;
        let name = site_of(&view.members, peer).ok_or_else(|| Failure::new("this host is not a member of the mesh"))?;
        let site = view.mesh.site(&name).ok_or_else(|| Failure::new("this site is not in the mesh any more"))?;
        match question {
            Message::Ask { number, test, sender, receiver } => {
                let request = RequestId { initiator: site, number };
                let question = self.allowed(&view, request, &test, [&sender, &receiver])?;
                if question.test.kind.is_throughput() { self.admit(&question) } else { self.probes(&question) }
            }
            Message::Release { number, .. } => {
                self.release(RequestId { initiator: site, number });
                Ok(Message::Released)
            }
            _ => Err(Failure::new("a site does not know this question")),
        }
    }

    /// Allows only tests of a pair of the mesh that includes this site, started by the site that may, within this site's limits.
    fn allowed<'a>(
        &self,
        view: &'a View,
        request: RequestId,
        test: &str,
        [sender, receiver]: [&str; 2],
    ) -> Result<Question<'a>, Failure> {
        let found = view.mesh.tests.iter().find(|plan| plan.name == test);
        let test = found.ok_or_else(|| Failure::new("the mesh has no such test"))?;
        let ends = view.mesh.site(sender).zip(view.mesh.site(receiver));
        let pair = ends.ok_or_else(|| Failure::new("the mesh has no such site"))?;
        let own = pair.0 == view.own || pair.1 == view.own;
        let begins = request.initiator;
        // Round trips have both directions: who begins them sends.
        let planned = match test.kind {
            Kind::Rtt => [pair, (pair.1, pair.0)]
                .into_iter()
                .any(|pair| test.pairs.contains(&pair) && initiator(&view.mesh, pair) == begins),
            _ => test.pairs.contains(&pair) && initiator(&view.mesh, pair) == begins,
        };
        if !own || begins == view.own || !planned {
            return Err(Failure::new("the mesh has no such test between us"));
        }
        let rate = view.mesh.rate_of(test, pair);
        self.shared.options.limits.check(test, rate).map_err(|refusal| Failure::new(refusal.message))?;
        Ok(Question { request, test, pair, rate })
    }

    fn admit(&self, question: &Question) -> Result<Message, Failure> {
        let shared = &self.shared;
        let now = monotonic();
        if let Err(until) = self.begun().begin(question.test, question.pair, now) {
            return Ok(Message::Busy { retry_after_ns: until.saturating_sub(now).0 });
        }
        let answer = shared.gate().asked(monotonic(), question.request, question.test.holds());
        match answer {
            Answer::Busy { retry_after } => {
                self.begun().withdraw(question.test, question.pair, now);
                Ok(Message::Busy { retry_after_ns: retry_after.0 })
            }
            Answer::Granted => {
                let (sender, receiver) = channel();
                let served = self.serve(question, receiver);
                if served.is_err() {
                    shared.gate().release(monotonic(), question.request);
                } else {
                    // One that was granted before is over: the gate says so.
                    *self.throughput() = Some((question.request, sender));
                }
                served
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probes(&self, question: &Question) -> Result<Message, Failure> {
        let now = monotonic();
        if let Err(until) = self.begun().begin(question.test, question.pair, now) {
            return Ok(Message::Busy { retry_after_ns: until.saturating_sub(now).0 });
        }
        let (sender, receiver) = channel();
        let of_partner = |probes: &Probes, partner: SiteId| probes.request.initiator == partner;
        {
            let mut all = self.all_probes();
            all.retain(|probes| probes.until > now);
            let partner = question.request.initiator;
            // A partner that was started anew has forgotten its oldest.
            while all.iter().filter(|probes| of_partner(probes, partner)).count() >= PROBES_OF_PARTNER {
                let oldest = all.iter().position(|probes| of_partner(probes, partner)).unwrap_or(0);
                all.remove(oldest);
            }
            if all.len() >= PROBES_MOST {
                return Err(Failure::new("this site answers the probes of too many partners"));
            }
            let until = now.saturating_add(held(question.test));
            all.push(Probes { request: question.request, until, _server: sender });
        }
        self.serve(question, receiver).inspect_err(|_| self.release(question.request))
    }

    fn serve(&self, question: &Question, over: Receiver<()>) -> Result<Message, Failure> {
        let key = Key::from_random(random()?).map_err(Failure::new)?;
        let port = testing::serve(&self.shared, question.test, question.rate, &key, held(question.test), over)?;
        Ok(Message::Granted { port, key: key.to_text() })
    }

    fn release(&self, request: RequestId) {
        let mut running = self.throughput();
        if running.as_ref().is_some_and(|(own, _)| *own == request) {
            *running = None;
        }
        drop(running);
        self.all_probes().retain(|probes| probes.request != request);
        self.shared.gate().release(monotonic(), request);
    }

    fn throughput(&self) -> MutexGuard<'_, Option<(RequestId, Sender<()>)>> {
        self.throughput.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_probes(&self) -> MutexGuard<'_, Vec<Probes>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the server of a test lives at most.
fn held(test: &TestPlan) -> Nanos {
    let late = if test.kind.is_throughput() { MARGIN } else { Nanos::from_secs(20) };
    test.holds().saturating_add(PATIENCE).saturating_add(late)
}

impl Answering for Partner {
    fn is_member(&self, peer: PublicKey) -> bool {
        self.shared.view().is_some_and(|view| site_of(&view.members, peer).is_some())
    }

    fn answer(&self, peer: PublicKey, question: Message) -> Message {
        self.member(peer, question).unwrap_or_else(|failure| Message::Refused { message: failure.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::standing::Standing;
    use crate::agent::test_site;

    /// A mesh of `sites` sites, with a test an hour and round trips.
    fn mesh(sites: usize) -> String {
        let site = |number| format!("[[site]]\nname = 's{number}'\naddress = '127.0.0.1'\nrate = '1Gbit'\n");
        let sites: String = (0..sites).map(site).collect();
        format!(
            "name = 'many'\n{sites}[[test]]\nname = 'delay'\nkind = 'rtt'\n\
             [[test]]\nname = 'loss'\nkind = 'udp'\nevery = '1h'\npairs = 1\nrate = '1M'\n"
        )
    }

    #[test]
    fn a_pair_has_three_tests_in_a_round() {
        let (_folder, shared) = test_site("listening-often", &mesh(3), "s0");
        let partner = Partner::new(Arc::clone(&shared));
        // As if it had run for long: it may have forgotten no test.
        *shared.gate() = longhaul_mesh_model::admission::Gate::new(Nanos::ZERO, Nanos::ZERO);
        let view = shared.view().unwrap();
        let test = view.mesh.tests.iter().find(|test| test.name == "loss").unwrap();
        let pair = (SiteId(1), view.own);
        let request = RequestId { initiator: SiteId(1), number: 1 };
        let question = || Question { request, test, pair, rate: BitRate(1_000_000) };
        // The program that answers cannot be started here: nothing else refuses.
        let is_busy = || match partner.admit(&question()) {
            Ok(Message::Busy { retry_after_ns }) => (1..=3_600_000_000_000).contains(&retry_after_ns),
            other => other.is_ok(),
        };
        // Each counts, also where its program does not start.
        for began in 0..TESTS_OF_ROUND {
            assert!(!is_busy(), "{began} in the round");
        }
        assert!(is_busy());
        // Another pair has its own.
        assert!(partner.begun().begin(test, (SiteId(2), view.own), monotonic()).is_ok());
        // The first of three is over an hour after it began.
        let (mut begun, minute) = (Begun::default(), |number: u64| Nanos::from_secs(number * 60));
        [5, 10, 15].into_iter().for_each(|at| begun.begin(test, pair, minute(at)).unwrap());
        assert_eq!(begun.begin(test, pair, minute(64)), Err(minute(65)));
        assert_eq!(begun.begin(test, pair, minute(65)), Ok(()));
        // One that did not begin after all makes room.
        assert!(begun.begin(test, pair, minute(66)).is_err());
        begun.withdraw(test, pair, minute(65));
        assert_eq!(begun.begin(test, pair, minute(66)), Ok(()));
    }

    #[test]
    fn a_partner_begins_probes_three_times_in_their_time() {
        let (_folder, shared) = test_site("listening-probes", &mesh(3), "s0");
        let partner = Partner::new(Arc::clone(&shared));
        let view = shared.view().unwrap();
        let test = view.mesh.tests.iter().find(|test| test.name == "delay").unwrap();
        let pair = (SiteId(1), view.own);
        let ask = |pair| {
            let request = RequestId { initiator: SiteId(1), number: 7 };
            partner.probes(&Question { request, test, pair, rate: BitRate(0) })
        };
        for _ in 0..TESTS_OF_ROUND {
            assert!(!matches!(ask(pair), Ok(Message::Busy { .. })));
        }
        // In either order it is the same pair.
        for pair in [pair, (pair.1, pair.0)] {
            assert!(matches!(ask(pair), Ok(Message::Busy { retry_after_ns }) if retry_after_ns <= test.time.0));
        }
        assert!(partner.begun().begin(test, pair, monotonic().saturating_add(test.time)).is_ok());
    }

    #[test]
    fn a_site_answers_and_probes_512_partners_at_most() {
        let (folder, shared) = test_site("listening-many", &mesh(700), "s0");
        let partner = Partner::new(Arc::clone(&shared));
        let view = shared.view().unwrap();
        let test = view.mesh.tests.iter().find(|test| test.name == "delay").unwrap();
        let of = |number: usize| RequestId { initiator: SiteId(number as u16), number: 7 };
        let until = monotonic().saturating_add(Nanos::from_secs(600));
        for number in 1..=PROBES_MOST {
            partner.all_probes().push(Probes { request: of(number), until, _server: channel().0 });
        }
        let ask = |number| {
            let pair = (SiteId(number as u16), view.own);
            partner.probes(&Question { request: of(number), test, pair, rate: BitRate(0) }).unwrap_err().to_string()
        };
        assert!(ask(PROBES_MOST + 1).contains("too many partners"), "{}", ask(PROBES_MOST + 1));

        // 699 partners, none of which has joined.
        let mut standing = Standing::default();
        standing.follow(&shared, &view);
        assert_eq!(standing.count(), PROBES_MOST);
        drop(folder);
    }
}
