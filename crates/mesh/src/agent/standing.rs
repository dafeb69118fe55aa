//! Round trips without pause: a thread for each partner that this site probes. They are light and need no admission.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::{Kind, TestPlan};
use longhaul_mesh_model::schedule::standing;
use longhaul_units::BitRate;

use super::asking::{self, Reached};
use super::hung::LASTS;
use super::shared::{Shared, View};
use super::testing::{self, Head, Job};
use crate::error::Failure;
use crate::folder::random;
use longhaul_mesh_model::message::Message;

/// A partner that does not answer is asked again after this; it doubles.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(300);

/// Partners that a site probes, and that it answers, at most: a program each. A mesh of 500 sites has as many.
pub(super) const PROBES_MOST: usize = 512;

/// The threads, by test and partner.
#[derive(Default)]
pub(super) struct Standing {
    threads: BTreeMap<(String, String), JoinHandle<()>>,
    begun: String,
}

impl Standing {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Begins what the mesh has and does not run yet. What the mesh does not have any more ends by itself.
    pub(super) fn follow(&mut self, shared: &Arc<Shared>, view: &View) {
        self.threads.retain(|_, thread| !thread.is_finished());
        if self.begun == view.state && !self.threads.is_empty() {
            return;
        }
        self.begun.clone_from(&view.state);
        for test in view.mesh.tests.iter().filter(|test| runs_here(shared, test)) {
            for partner in standing(&view.mesh, test, view.own) {
                let names = (test.name.clone(), view.mesh.of(partner).name.clone());
                let (shared, own) = (Arc::clone(shared), names.clone());
                let probing = move || probe(&shared, &own.0, &own.1);
                if self.threads.contains_key(&names) {
                    continue;
                }
                if self.threads.len() >= PROBES_MOST {
                    stderr_line!("{} to {}: not probed, as {PROBES_MOST} partners are", names.0, names.1);
                    return;
                }
                if let Ok(thread) = thread::Builder::new().name("probing".into()).spawn(probing) {
                    self.threads.insert(names, thread);
                }
            }
        }
    }
}

fn runs_here(shared: &Shared, test: &TestPlan) -> bool {
    test.kind == Kind::Rtt && shared.options.limits.check(test, BitRate(0)).is_ok()
}

/// Probes a partner for as long as the mesh has this test between the two.
fn probe(shared: &Arc<Shared>, test: &str, partner: &str) {
    let mut failed = 0;
    let mut said = String::new();
    while let Some(view) = shared.view() {
        let plan = view.mesh.tests.iter().find(|plan| plan.name == test && runs_here(shared, plan));
        let Some((plan, site)) = plan.zip(view.mesh.site(partner)) else { return };
        if !standing(&view.mesh, plan, view.own).contains(&site) {
            return;
        }
        match once(shared, &view, plan, site) {
            Ok(()) => failed = 0,
            Err(failure) => {
                let text = failure.to_string();
                if text != said {
                    stderr_line!("{test} to {partner}: {text}");
                }
                said = text;
                let part = random::<1>().map_or(1.0, |byte| 0.5 + f64::from(byte[0]) / 256.0);
                thread::sleep((RETRY * 2_u32.saturating_pow(failed)).min(RETRY_MOST).mul_f64(part));
                failed = (failed + 1).min(8);
            }
        }
    }
}

/// Begins a measurement and waits until the next can begin: when the time of this one is over. Its last answers arrive beside that.
fn once(shared: &Arc<Shared>, view: &View, plan: &TestPlan, partner: SiteId) -> Result<(), Failure> {
    let number = u64::from_le_bytes(random()?);
    let head = asking::head(shared, &view.mesh, plan, (view.own, partner));
    let (reached, port, key) =
        match asking::ask(shared, view, partner, &asking::question(&head, number), Instant::now() + LASTS)? {
            (reached, Message::Granted { port, key }) => (reached, port, key),
            (_, Message::Refused { message }) => {
                return Err(Failure::new(format_args!("{} refuses: {message}", head.receiver)));
            }
            (_, Message::Busy { .. }) => {
                return Err(Failure::new(format_args!("{} began too many of these probes just now", head.receiver)));
            }
            _ => return Err(Failure::new(format_args!("{} answered something else", head.receiver))),
        };
    let (sender, ended) = mpsc::channel();
    let (own, plan, time) = (Arc::clone(shared), plan.clone(), Duration::from(plan.time));
    let begun = Instant::now();
    // The program ends with the thread that starts it.
    let running = move || {
        let done = run(&own, &plan, &reached, (port, &key), head);
        reached.release(&own, number);
        let _ = sender.send(done);
    };
    thread::Builder::new().name("probes".into()).spawn(running).map_err(Failure::new)?;
    match ended.recv_timeout(time) {
        // Nothing is lost by a measurement that ended early, but it must not begin again and again.
        Ok(Ok(())) if begun.elapsed() < time / 2 => Err(Failure::new("the probes ended early")),
        Ok(done) => done,
        Err(_) => Ok(()),
    }
}

fn run(
    shared: &Arc<Shared>,
    test: &TestPlan,
    reached: &Reached,
    (port, key): (u16, &str),
    head: Head,
) -> Result<(), Failure> {
    let job = Job { test, rate: BitRate(0), address: reached.address(), port, key, sends: true, alarm: "" };
    let found = testing::run(shared, &job)?;
    shared.outgoing.keep(found.into_result(head)?, None);
    Ok(())
}
