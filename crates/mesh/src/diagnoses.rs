//! Diagnoses that alarms ask for: one for each alarm, of one path, begun by a site of it. Which alarms want one, `alarm/` knows.

use std::collections::BTreeMap;

use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::{Kind, Mesh};
use longhaul_mesh_model::place::{Alarm, Suspect};
use longhaul_mesh_model::schedule::initiator;
use serde::{Deserialize, Serialize};

use crate::coordinator::now;
use crate::error::Failure;
use crate::folder::random;
use crate::shown;
use crate::store::{Archive, DAY_NS, TestResult, Wanted};

/// Why an alarm has no diagnosis.
pub(crate) const NO_TEST: &str = "the mesh has no test of kind diagnose for a path of it";
pub(crate) const NO_RESULT: &str = "no test of the last day was on a path of it";

/// What was asked of a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// When: nanoseconds since 1970.
    pub(crate) at_ns: i64,
    pub(crate) wanted: Wanted,
}

/// Asks for diagnoses; it reads the results of the last day once.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    results: Option<Vec<TestResult>>,
}

impl Asking {
    /// Says that an alarm is new, and asks a site for its diagnosis where the mesh has a test for it; what was asked, or `None`.
    ///
    /// # Errors
    /// Where the store cannot be read or written: nothing was asked.
    pub(crate) fn ask(&mut self, mesh: &Mesh, archive: &mut Archive, alarm: &Alarm) -> Result<Option<Asked>, Failure> {
        stderr_line!("alarm: {}", shown::alarm_line(mesh, alarm));
        if self.results.is_none() {
            self.results = Some(archive.since(now().saturating_sub(DAY_NS))?);
        }
        let id: String = random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let results = self.results.as_deref().unwrap_or_default();
        let Some((initiator, wanted)) = diagnosis(mesh, alarm, &id, results) else { return Ok(None) };
        let asked = Asked { at_ns: now(), wanted };
        archive.want(&initiator, asked.at_ns, &asked.wanted)?;
        Ok(Some(asked))
    }
}

/// Whether the mesh has a test for a diagnosis of an alarm.
pub(crate) fn has_test(mesh: &Mesh, alarm: &Alarm) -> bool {
    let is_of_it = |pair: &(SiteId, SiteId)| alarm.suspects.first().is_some_and(|one| carries(mesh, *one, *pair));
    mesh.tests.iter().any(|test| test.kind == Kind::Diagnose && test.pairs.iter().any(is_of_it))
}

/// Whether a suspect carries a path.
fn carries(mesh: &Mesh, suspect: Suspect, (from, to): (SiteId, SiteId)) -> bool {
    let link = |number: u16, direction: usize| {
        mesh.links.get(usize::from(number)).is_some_and(|link| link.direction(from, to) == Some(direction))
    };
    match suspect {
        Suspect::Receiver(site) => to == site,
        Suspect::Sender(site) => from == site,
        Suspect::Path(one, other) => (from, to) == (one, other),
        Suspect::LinkForward(number) => link(number, 0),
        Suspect::LinkBackward(number) => link(number, 1),
    }
}

/// The diagnosis of an alarm, and the site that begins it: of the path that lost most in the last day, of those of the first suspect that the mesh
/// has a test of kind `diagnose` for.
fn diagnosis(mesh: &Mesh, alarm: &Alarm, id: &str, results: &[TestResult]) -> Option<(String, Wanted)> {
    let suspect = *alarm.suspects.first()?;
    let mut lost: BTreeMap<(SiteId, SiteId), (i64, i64)> = BTreeMap::new();
    for result in results {
        let pair = mesh.site(&result.sender).zip(mesh.site(&result.receiver));
        if let Some(pair) = pair.filter(|pair| carries(mesh, suspect, *pair)) {
            let sums = lost.entry(pair).or_default();
            *sums = (sums.0 + result.lost, sums.1 + result.sent);
        }
    }
    let plans = || mesh.tests.iter().filter(|test| test.kind == Kind::Diagnose);
    let share = |(lost, sent): (i64, i64)| lost as f64 / sent.max(1) as f64;
    let planned = lost.into_iter().filter(|(pair, _)| plans().any(|plan| plan.pairs.contains(pair)));
    let (pair, _) = planned.max_by(|one, other| share(one.1).total_cmp(&share(other.1)))?;
    let plan = plans().find(|plan| plan.pairs.contains(&pair))?;
    let name = |site: SiteId| mesh.of(site).name.clone();
    let wanted = Wanted { alarm: id.to_owned(), test: plan.name.clone(), sender: name(pair.0), receiver: name(pair.1) };
    Some((name(initiator(mesh, pair)), wanted))
}
