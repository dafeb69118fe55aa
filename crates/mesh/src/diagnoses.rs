//! Diagnoses that alarms ask for: one for each alarm, of one path, begun by a site of it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::{Kind, Mesh};
use longhaul_mesh_model::place::{Alarm, Suspect};
use longhaul_mesh_model::schedule::initiator;
use longhaul_units::Nanos;

use crate::coordinator::{mesh, now, now_ns};
use crate::error::Failure;
use crate::folder::{Folder, random};
use crate::shown;
use crate::store::{Archive, TestResult, Wanted};

const HOUR: Nanos = Nanos::from_secs(3600);
const DAY_NS: i64 = 24 * HOUR.0 as i64;
/// The last results of an hour are on their way for so long after it.
const ARRIVES: Nanos = Nanos::from_secs(120);
const LOOK: Duration = Duration::from_secs(10);

/// Looks for alarms at the start and after each hour, beside the coordinator and for ever.
pub(crate) fn start(folder: &Folder) -> Result<(), Failure> {
    let folder = folder.clone();
    let watch = move || {
        let mut looked = None;
        loop {
            let hour = now_ns().saturating_sub(ARRIVES.0) / HOUR.0;
            if looked != Some(hour) {
                match look(&folder) {
                    Ok(()) => looked = Some(hour),
                    Err(failure) => eprintln!("alarms: {failure}"),
                }
            }
            thread::sleep(LOOK);
        }
    };
    thread::Builder::new().name("diagnoses".into()).spawn(watch).map(drop).map_err(Failure::new)
}

fn look(folder: &Folder) -> Result<(), Failure> {
    let (_, mesh) = mesh(folder)?;
    let mut archive = Archive::open(folder.store()?)?;
    let open = shown::open_alarms(&mesh, &mut archive)?;
    let who = |alarm: &Alarm| alarm.suspects.first().map(|one| shown::suspect(&mesh, *one));
    let known = archive.alarms_are(now(), &open.iter().filter_map(who).collect::<Vec<_>>())?;
    let new = open.iter().filter(|alarm| who(alarm).is_some_and(|who| !known.contains(&who)));
    let mut results = None;
    for alarm in new {
        eprintln!("alarm: {}", shown::alarm_line(&mesh, alarm));
        if results.is_none() {
            results = Some(archive.since(now() - DAY_NS)?);
        }
        let id: String = random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let wanted = diagnosis(&mesh, alarm, &id, results.as_deref().unwrap_or_default());
        let wanted = wanted.as_ref().map(|(initiator, wanted)| (initiator.as_str(), wanted));
        archive.raised(&id, &who(alarm).unwrap_or_default(), now(), wanted)?;
    }
    Ok(())
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
