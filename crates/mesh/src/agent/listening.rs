//! The partner's part: who asks is a member, for a test of the mesh that this site allows, and this host is idle.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_channel::{Key, PublicKey};
use longhaul_kernel::clock::monotonic;
use longhaul_mesh_model::admission::{Answer, MARGIN, PATIENCE, RequestId};
use longhaul_mesh_model::schedule::initiator;
use longhaul_units::BitRate;

use super::rounds::lasts;
use super::shared::Shared;
use super::testing;
use crate::error::Failure;
use crate::folder::{random, site_of};
use crate::link::Answering;
use crate::message::Message;

/// A site as its partners see it.
pub(super) struct Partner(pub(super) Arc<Shared>);

/// The test that runs here for a partner, and what ends its server.
static RUNNING: Mutex<Option<(RequestId, Sender<()>)>> = Mutex::new(None);

impl Partner {
    fn member(&self, peer: PublicKey, question: Message) -> Result<Message, Failure> {
        let shared = &self.0;
        let view = shared.view().ok_or_else(|| Failure::new("this site does not know the mesh yet"))?;
        let name = site_of(&view.members, peer).ok_or_else(|| Failure::new("this host is no member of the mesh"))?;
        let site = view.mesh.site(&name).ok_or_else(|| Failure::new("this site is not in the mesh any more"))?;
        match question {
            Message::Ask { number, test, sender, receiver } => {
                let found = view.mesh.tests.iter().find(|plan| plan.name == test);
                let test = found.ok_or_else(|| Failure::new("the mesh has no such test"))?;
                let ends = view.mesh.site(&sender).zip(view.mesh.site(&receiver));
                let pair = ends.ok_or_else(|| Failure::new("the mesh has no such site"))?;
                // Only a pair of the mesh, of which this site is one, begun by the one who may.
                let own = pair.0 == view.own || pair.1 == view.own;
                if !own || !test.pairs.contains(&pair) || initiator(&view.mesh, pair) != site {
                    return Err(Failure::new("the mesh has no such test between us"));
                }
                shared.options.limits.check(test, BitRate(0)).map_err(|refusal| Failure::new(refusal.message))?;
                let request = RequestId { initiator: site, number };
                let answer = shared.gate().asked(monotonic(), request, lasts(test));
                match answer {
                    Answer::Busy { retry_after } => Ok(Message::Busy { retry_after_ns: retry_after.0 }),
                    Answer::Granted => self.serve(request, test).inspect_err(|_| shared.gate().release(request)),
                }
            }
            Message::Release { number } => {
                let request = RequestId { initiator: site, number };
                let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
                if running.as_ref().is_some_and(|(own, _)| *own == request) {
                    // The server ends when its sender is gone.
                    *running = None;
                }
                drop(running);
                shared.gate().release(request);
                Ok(Message::Released)
            }
            _ => Err(Failure::new("a site does not know this question")),
        }
    }

    fn serve(&self, request: RequestId, test: &longhaul_mesh_model::file::TestPlan) -> Result<Message, Failure> {
        let key = Key::from_random(random()?).map_err(Failure::new)?;
        let (sender, receiver) = channel();
        let held = lasts(test).saturating_add(PATIENCE).saturating_add(MARGIN);
        let port = testing::serve(&self.0, test, &key, held, receiver)?;
        // One that was granted before is over: the gate says so.
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some((request, sender));
        Ok(Message::Granted { port, key: key.to_text() })
    }
}

impl Answering for Partner {
    fn answer(&self, peer: PublicKey, question: Message) -> Message {
        self.member(peer, question).unwrap_or_else(|failure| Message::Refused { message: failure.to_string() })
    }
}
