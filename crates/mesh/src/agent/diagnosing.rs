//! Diagnoses that the coordinator wants of this site: each begun once, as soon as both hosts are idle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::file::Kind;
use longhaul_mesh_model::schedule::initiator;
use longhaul_units::Nanos;

use super::asking;
use super::beside::Done;
use super::rounds::{Begun, UNREACHED, begin, part};
use super::shared::{Shared, View};
use super::testing;
use crate::error::Failure;
use crate::store::Wanted;

/// Attempts that fail, before that is the answer.
const ATTEMPTS: u32 = 3;
/// Time over which attempts are spread.
const SPREAD: Nanos = Nanos::from_secs(10);

/// What was done, and what waits.
pub(super) struct Diagnosing {
    /// Alarms whose diagnosis there is: the coordinator may not have it yet.
    done: BTreeSet<String>,
    /// When each is tried again, by the steady clock, and how often it failed.
    waiting: BTreeMap<String, (Nanos, u32)>,
}

impl Diagnosing {
    /// `done`: alarms whose diagnosis waits for its delivery.
    pub(super) fn new(done: Vec<String>) -> Self {
        Self { done: done.into_iter().collect(), waiting: BTreeMap::new() }
    }

    /// Begins what is wanted; the diagnosis, or why there is none.
    pub(super) fn go_on(&mut self, shared: &Arc<Shared>, view: &View) -> Option<Done> {
        let wanted = shared.wanted();
        let is_wanted = |alarm: &String| wanted.iter().any(|wanted| wanted.alarm == *alarm);
        self.done.retain(is_wanted);
        self.waiting.retain(|alarm, _| is_wanted(alarm));
        let now = monotonic();
        let is_due = |wanted: &&Wanted| {
            !self.done.contains(&wanted.alarm) && self.waiting.get(&wanted.alarm).is_none_or(|(at, _)| *at <= now)
        };
        let next = wanted.iter().find(is_due)?;
        if !shared.gate().is_idle(now) {
            return None;
        }
        let wait = |time: Nanos| now.saturating_add(time).saturating_add(Nanos((SPREAD.0 as f64 * part()) as u64));
        let failures = self.waiting.get(&next.alarm).map_or(0, |(_, failures)| *failures);
        let why = match self.begin(shared, view, next) {
            Ok(Begun::Tested(result)) => {
                self.done.insert(next.alarm.clone());
                return Some(*result);
            }
            Ok(Begun::Later(time)) => {
                self.waiting.insert(next.alarm.clone(), (wait(time), failures));
                return None;
            }
            Err(failure) if failures + 1 < ATTEMPTS => {
                stderr_line!("diagnosis of {} to {}: {failure}", next.sender, next.receiver);
                self.waiting.insert(next.alarm.clone(), (wait(UNREACHED), failures + 1));
                return None;
            }
            Ok(Begun::Never(why)) => why,
            Err(failure) => failure.to_string(),
        };
        self.done.insert(next.alarm.clone());
        nothing(next, view, shared, &why)
    }

    fn begin(&self, shared: &Arc<Shared>, view: &View, wanted: &Wanted) -> Result<Begun, Failure> {
        let pair = view.mesh.site(&wanted.sender).zip(view.mesh.site(&wanted.receiver));
        let plan = view.mesh.tests.iter().find(|plan| plan.name == wanted.test && plan.kind == Kind::Diagnose);
        match plan.zip(pair) {
            Some((plan, pair)) if plan.pairs.contains(&pair) && initiator(&view.mesh, pair) == view.own => {
                begin(shared, view, plan, pair, &wanted.alarm)
            }
            _ => Ok(Begun::Never("the mesh has no such test any more".into())),
        }
    }
}

/// The answer where there is none; `None` if the mesh does not have the test any more.
fn nothing(wanted: &Wanted, view: &View, shared: &Shared, why: &str) -> Option<Done> {
    let pair = view.mesh.site(&wanted.sender).zip(view.mesh.site(&wanted.receiver))?;
    let plan = view.mesh.tests.iter().find(|plan| plan.name == wanted.test)?;
    let head = asking::head(shared, &view.mesh, plan, pair);
    testing::failed(&wanted.alarm, why).into_result(head).ok().map(Done::from)
}
