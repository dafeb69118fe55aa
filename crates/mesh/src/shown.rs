//! What `status` and `show` print.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::place::{Alarm, Locator, Place, Suspect};
use longhaul_mesh_model::{Evidence, Sample, SiteId};
use longhaul_units::{Nanos, utc};
use serde_json::json;

use crate::coordinator::{mesh, now_ns};
use crate::error::Failure;
use crate::folder::Folder;
use crate::store::{Archive, TestResult};

const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;
/// What the locator wants to know of the past: a week of the usual, and some days of what is judged.
const PAST_DAYS: i64 = 12;

fn now() -> i64 {
    i64::try_from(now_ns()).unwrap_or(i64::MAX)
}

/// Alarms that are open after these results.
fn alarms(mesh: &Mesh, results: &[TestResult]) -> Vec<Alarm> {
    let crossed = |direction: usize, link: &longhaul_mesh_model::file::SharedLink| {
        let sites = || (0..mesh.sites.len() as u16).map(SiteId);
        let pairs = sites().flat_map(|from| sites().map(move |to| (from, to)));
        pairs.filter(|(from, to)| link.direction(*from, *to) == Some(direction)).collect::<BTreeSet<_>>()
    };
    let links = mesh.links.iter().map(|link| [crossed(0, link), crossed(1, link)]).collect();
    let mut locator = Locator::new(links);
    let mut hour = 0;
    for result in results {
        let (Some(from), Some(to)) = (mesh.site(&result.sender), mesh.site(&result.receiver)) else { continue };
        let at = Nanos(result.at_ns.unsigned_abs());
        if result.at_ns / HOUR_NS > hour {
            hour = result.at_ns / HOUR_NS;
            locator.advance(at);
        }
        let count = |count: i64| u32::try_from(count).unwrap_or(0);
        let placed = result.at_sender.zip(result.at_receiver);
        let placed =
            placed.map(|(sender, receiver)| Evidence { at_sender: count(sender), at_receiver: count(receiver) });
        locator.push(Sample { at, from, to, sent: count(result.sent), lost: count(result.lost), placed });
    }
    locator.advance(Nanos(now_ns()));
    locator.open().cloned().collect()
}

/// Alarms that are open, as the results of the last days say.
pub(crate) fn open_alarms(mesh: &Mesh, archive: &mut Archive) -> Result<Vec<Alarm>, Failure> {
    Ok(alarms(mesh, &archive.since(now() - PAST_DAYS * DAY_NS)?))
}

pub(crate) fn suspect(mesh: &Mesh, suspect: Suspect) -> String {
    let name = |site: SiteId| mesh.of(site).name.clone();
    let link = |number: u16| mesh.links.get(usize::from(number)).map_or("a link", |link| &link.name);
    match suspect {
        Suspect::Receiver(site) => format!("what {} receives", name(site)),
        Suspect::Sender(site) => format!("what {} sends", name(site)),
        Suspect::Path(from, to) => format!("the path from {} to {}", name(from), name(to)),
        Suspect::LinkForward(number) => format!("the link {}, forward", link(number)),
        Suspect::LinkBackward(number) => format!("the link {}, backward", link(number)),
    }
}

pub(crate) fn place(place: Place) -> &'static str {
    match place {
        Place::Host => "at its host",
        Place::AccessLink => "on its access link: its host saw its own drops",
        Place::HostOrAccessLink => "at its host or on its access link: its host cannot see its drops",
        Place::Network => "in the network",
    }
}

pub(crate) fn alarm_line(mesh: &Mesh, alarm: &Alarm) -> String {
    let who: Vec<String> = alarm.suspects.iter().map(|one| suspect(mesh, *one)).collect();
    let since =
        alarm.since.map_or_else(|| "always".to_owned(), |since| utc(i64::try_from(since.0).unwrap_or(i64::MAX)));
    format!(
        "{} loses {:.2} % more than usual since {since}, {}; odds 10^{:.0} to 1",
        who.join(", or "),
        alarm.loss * 100.0,
        place(alarm.place),
        alarm.log10_odds
    )
}

/// `longhaul mesh status`.
pub(crate) fn status(folder: &Folder, as_json: bool) -> Result<(), Failure> {
    let (_, mesh) = mesh(folder)?;
    let members = folder.members()?;
    let results = Archive::open(&folder.file("archive"))?.since(now() - PAST_DAYS * DAY_NS)?;
    let alarms = alarms(&mesh, &results);
    let mut last: BTreeMap<&str, (i64, u64)> = BTreeMap::new();
    for result in results.iter().filter(|result| result.at_ns >= now() - DAY_NS) {
        for site in [&result.sender, &result.receiver] {
            let (at, tests) = last.entry(site).or_default();
            (*at, *tests) = ((*at).max(result.at_ns), *tests + 1);
        }
    }
    let of = |site: &str| last.get(site).copied().unwrap_or_default();
    if as_json {
        let sites: Vec<_> = mesh
            .sites
            .iter()
            .map(|site| {
                let (at, tests) = of(&site.name);
                json!({"name": site.name, "joined": members.contains_key(&site.name), "tests": tests, "last_at": (tests > 0).then(|| utc(at))})
            })
            .collect();
        let alarms: Vec<_> = alarms
            .iter()
            .map(|alarm| {
                json!({
                    "suspects": alarm.suspects.iter().map(|one| suspect(&mesh, *one)).collect::<Vec<_>>(),
                    "place": place(alarm.place),
                    "since": alarm.since.map(|since| utc(i64::try_from(since.0).unwrap_or(i64::MAX))),
                    "loss": alarm.loss,
                    "log10_odds": alarm.log10_odds,
                })
            })
            .collect();
        println!(
            "{}",
            json!({"schema": "longhaul.mesh.status/1", "mesh": mesh.name, "sites": sites, "alarms": alarms})
        );
        return Ok(());
    }
    println!("{}: {} sites, {} joined", mesh.name, mesh.sites.len(), members.len());
    for site in &mesh.sites {
        let (at, tests) = of(&site.name);
        let state = match (members.contains_key(&site.name), tests) {
            (false, _) => "has not joined".to_owned(),
            (true, 0) => "no result in the last day".to_owned(),
            (true, tests) => format!("{tests} tests in the last day, the last at {}", utc(at)),
        };
        println!("  {:<20} {state}", site.name);
    }
    if alarms.is_empty() {
        println!("nobody loses more than usual");
    }
    alarms.iter().for_each(|alarm| println!("{}", alarm_line(&mesh, alarm)));
    Ok(())
}

fn percent(lost: i64, sent: i64) -> String {
    if sent == 0 { "-".to_owned() } else { format!("{:.3} %", lost as f64 * 100.0 / sent as f64) }
}

/// `longhaul mesh show`.
pub(crate) fn show(folder: &Folder, pair: Option<(String, String)>, days: u32) -> Result<(), Failure> {
    let (_, mesh) = mesh(folder)?;
    let mut archive = Archive::open(&folder.file("archive"))?;
    let hours = archive.hours(now().saturating_sub(DAY_NS.saturating_mul(i64::from(days))))?;
    if let Some((from, to)) = pair {
        for name in [&from, &to] {
            if mesh.site(name).is_none() {
                let known = mesh.sites.iter().map(|site| site.name.as_str());
                let meant = longhaul_units::nearest(name, known)
                    .map_or_else(String::new, |meant| format!(": did you mean {meant}?"));
                return Err(Failure::new(format_args!("the mesh has no site {name:?}{meant}")));
            }
        }
        println!("{:<26}{:<16}{:>8}{:>12}{:>10}{:>12}", "hour", "test", "tests", "packets", "lost", "loss");
        for hour in hours.iter().filter(|hour| hour.sender == from && hour.receiver == to) {
            let loss = percent(hour.lost, hour.sent);
            let begin = utc(hour.begin_ns);
            println!("{begin:<26}{:<16}{:>8}{:>12}{:>10}{loss:>12}", hour.test, hour.tests, hour.sent, hour.lost);
        }
        return Ok(());
    }
    let mut pairs: BTreeMap<(&str, &str), (i64, i64, i64)> = BTreeMap::new();
    for hour in &hours {
        let (tests, sent, lost) = pairs.entry((&hour.sender, &hour.receiver)).or_default();
        (*tests, *sent, *lost) = (*tests + hour.tests, *sent + hour.sent, *lost + hour.lost);
    }
    println!("{:<20}{:<20}{:>8}{:>12}{:>10}{:>12}", "from", "to", "tests", "packets", "lost", "loss");
    for ((from, to), (tests, sent, lost)) in pairs {
        println!("{from:<20}{to:<20}{tests:>8}{sent:>12}{lost:>10}{:>12}", percent(lost, sent));
    }
    Ok(())
}
