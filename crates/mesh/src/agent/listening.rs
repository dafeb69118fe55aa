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
use crate::error::Failure;
use crate::folder::{random, site_of};
use crate::link::Answering;
use longhaul_mesh_model::message::Message;

/// Throughput tests of a pair that a partner may begin in the time of a round: its own, and some that failed.
const TESTS_OF_ROUND: usize = 3;
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
    /// When throughput tests began in the round that is going on, by test and pair: a partner must not take all of this site's time.
    begun: Mutex<Begun>,
}

/// Times by test and pair, the oldest first.
type Begun = BTreeMap<(String, (SiteId, SiteId)), VecDeque<Nanos>>;

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
        let name = site_of(&view.members, peer).ok_or_else(|| Failure::new("this host is no member of the mesh"))?;
        let site = view.mesh.site(&name).ok_or_else(|| Failure::new("this site is not in the mesh any more"))?;
        match question {
            Message::Ask { number, test, sender, receiver } => {
                let request = RequestId { initiator: site, number };
                let question = self.allowed(&view, request, &test, [&sender, &receiver])?;
                if question.test.kind.is_throughput() { self.admit(&question) } else { self.probes(&question) }
            }
            Message::Release { number } => {
                self.release(RequestId { initiator: site, number });
                Ok(Message::Released)
            }
            _ => Err(Failure::new("a site does not know this question")),
        }
    }

    /// Only a pair of the mesh, of which this site is one, begun by the one who may, within this site's limits.
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
        if let Some(until) = self.too_often(question, now) {
            return Ok(Message::Busy { retry_after_ns: until.saturating_sub(now).0 });
        }
        let answer = shared.gate().asked(monotonic(), question.request, question.test.holds());
        match answer {
            Answer::Busy { retry_after } => Ok(Message::Busy { retry_after_ns: retry_after.0 }),
            Answer::Granted => {
                let (sender, receiver) = channel();
                let served = self.serve(question, receiver);
                if served.is_err() {
                    shared.gate().release(monotonic(), question.request);
                } else {
                    self.begun().entry((question.test.name.clone(), question.pair)).or_default().push_back(now);
                    // One that was granted before is over: the gate says so.
                    *self.throughput() = Some((question.request, sender));
                }
                served
            }
        }
    }

    /// Until when this pair has had its tests.
    fn too_often(&self, question: &Question, now: Nanos) -> Option<Nanos> {
        let every = question.test.every.unwrap_or(ROUND);
        let mut all = self.begun();
        let times = all.get_mut(&(question.test.name.clone(), question.pair))?;
        times.retain(|at| at.saturating_add(every) > now);
        (times.len() >= TESTS_OF_ROUND).then(|| times.front().map(|at| at.saturating_add(every))).flatten()
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probes(&self, question: &Question) -> Result<Message, Failure> {
        let now = monotonic();
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
