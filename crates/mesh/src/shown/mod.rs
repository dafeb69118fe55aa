//! What `status` and `show` print.

mod table;

use std::collections::BTreeMap;

use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::{Mesh, Site};
use longhaul_mesh_model::place::{Alarm, Place, Suspect};
use longhaul_mesh_model::printed::{
    Files, Found, HourSum, OpenAlarm, ShowAsked, Shown, SiteStatus, Status, StatusAsked,
};
use longhaul_result::{Caveat, Envelope};
use longhaul_units::{escaped_controls, utc};
use serde::Serialize;

use crate::caveats;
use crate::coordinator::{mesh, now};
use crate::error::Failure;
use crate::files;
use crate::folder::Folder;
use crate::judging::Judging;
use crate::store::{Archive, HOUR_NS, Hour, Measured, Measurement, rows_left_out};

const DAY_NS: i64 = 24 * HOUR_NS;

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

fn open_alarm(mesh: &Mesh, alarm: &Alarm) -> OpenAlarm {
    OpenAlarm {
        suspects: alarm.suspects.iter().map(|one| suspect(mesh, *one)).collect(),
        place: place(alarm.place).into(),
        since: alarm.since.map(|since| utc(i64::try_from(since.0).unwrap_or(i64::MAX))),
        loss: alarm.loss,
        log10_odds: alarm.log10_odds,
    }
}

/// The doubt about what was read, if there is one.
fn doubt() -> Option<Caveat> {
    let rows = rows_left_out();
    (rows > 0).then(|| {
        let message = format!("rows of the store that cannot be read are left out: {rows}; standard error names them");
        let remedy = "look whether a longhaul of another version wrote them";
        Caveat::new(caveats::ROWS_LEFT_OUT, message, remedy)
    })
}

/// Says it under a result that is text.
fn say_doubt() {
    if let Some(Caveat { message, remedy, .. }) = doubt() {
        stderr_line!("longhaul mesh: caveat: {message} ({remedy})");
    }
}

/// Prints a result as JSON.
fn print<P: Serialize, R: Serialize>(schema: &'static str, asked: P, result: R) -> Result<(), Failure> {
    let envelope = Envelope::new(schema, utc(now()), asked, result, doubt().into_iter().collect());
    let text = serde_json::to_string(&envelope).map_err(Failure::new)?;
    say!("{}", escaped_controls(&text));
    Ok(())
}

/// `longhaul mesh status`.
pub(crate) fn status(folder: &Folder, as_json: bool) -> Result<(), Failure> {
    folder.check()?;
    let (_, mesh) = mesh(folder)?;
    let members = folder.members()?;
    let mut archive = Archive::open_to_read(folder.store()?)?;
    let alarms = Judging::default().open(&mesh, &mut archive)?;
    let last_day = archive.took_part(now() - DAY_NS)?;
    if as_json {
        let site = |site: &Site| {
            let took_part = last_day.get(&site.name);
            SiteStatus {
                name: site.name.clone(),
                joined: members.contains_key(&site.name),
                tests: took_part.map_or(0, |(tests, _)| *tests),
                last_at: took_part.map(|(_, at)| utc(*at)),
            }
        };
        let sites = mesh.sites.iter().map(site).collect();
        let alarms = alarms.iter().map(|alarm| open_alarm(&mesh, alarm)).collect();
        let asked = StatusAsked { folder: folder.name() };
        return print("longhaul.mesh.status/1", asked, Status { mesh: mesh.name.clone(), sites, alarms });
    }
    say!("{}: {} sites, {} joined", mesh.name, mesh.sites.len(), members.len());
    let seen: BTreeMap<String, i64> = archive.seen()?.into_iter().collect();
    for site in &mesh.sites {
        let state = match (members.contains_key(&site.name), seen.get(&site.name)) {
            (false, _) => "has not joined".to_owned(),
            (true, None) => "no test yet".to_owned(),
            (true, Some(at)) => {
                let tests = last_day.get(&site.name).map_or(0, |(tests, _)| *tests);
                format!("{tests} tests in the last day; the last one began at {}", utc(*at))
            }
        };
        say!("  {:<20} {state}", site.name);
    }
    if alarms.is_empty() {
        say!("nobody loses more than usual");
    }
    alarms.iter().for_each(|alarm| say!("{}", alarm_line(&mesh, alarm)));
    say_doubt();
    Ok(())
}

/// `longhaul mesh show`.
pub(crate) fn show(folder: &Folder, pair: Option<(String, String)>, days: u32, as_json: bool) -> Result<(), Failure> {
    folder.check()?;
    let (_, mesh) = mesh(folder)?;
    for name in pair.iter().flat_map(|(from, to)| [from, to]) {
        if mesh.site(name).is_none() {
            let known = mesh.sites.iter().map(|site| site.name.as_str());
            let meant = longhaul_units::nearest(name, known)
                .map_or_else(String::new, |meant| format!(": did you mean {meant}?"));
            return Err(Failure::new(format_args!("the mesh has no site {name:?}{meant}")));
        }
    }
    let from_ns = now().saturating_sub(DAY_NS.saturating_mul(i64::from(days)));
    let mut archive = Archive::open_to_read(folder.store()?)?;
    let is_shown = |sender: &str, receiver: &str| {
        pair.as_ref().is_none_or(|(from, to)| (sender, receiver) == (from.as_str(), to.as_str()))
    };
    let mut hours = archive.hours(from_ns)?;
    hours.retain(|hour| is_shown(&hour.sender, &hour.receiver));
    let mut measurements = archive.measurements(from_ns)?;
    measurements.retain(|one| is_shown(&one.sender, &one.receiver) || is_shown(&one.receiver, &one.sender));
    let files = files::found(folder);
    if as_json {
        let (from, to) = pair.unzip();
        let asked = ShowAsked { folder: folder.name(), from, to, days };
        return print("longhaul.mesh.show/1", asked, printed(mesh.name, &hours, measurements, files));
    }
    if pair.is_some() {
        table::hours(&hours)
    } else {
        table::pairs(&hours)
    }
    table::measurements(&measurements, pair.is_some());
    table::files(&files);
    say_doubt();
    Ok(())
}

/// All that `show` shows, as JSON has it.
fn printed(mesh: String, hours: &[Hour], measurements: Vec<Measurement>, files: Vec<Files>) -> Shown {
    let hours = hours.iter().map(hour_sum).collect();
    let mut shown = Shown { mesh, hours, round_trips: Vec::new(), tcp: Vec::new(), diagnoses: Vec::new(), files };
    for Measurement { test, sender, receiver, at_ns, measured, .. } in measurements {
        let begun = utc(at_ns);
        match measured {
            Measured::Rtt(found) => shown.round_trips.push(Found { test, sender, receiver, begun, found }),
            Measured::Tcp(found) => shown.tcp.push(Found { test, sender, receiver, begun, found }),
            Measured::Diagnose(found) => shown.diagnoses.push(Found { test, sender, receiver, begun, found }),
            Measured::Unknown => {}
        }
    }
    shown
}

fn hour_sum(hour: &Hour) -> HourSum {
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    HourSum {
        test: hour.test.clone(),
        sender: hour.sender.clone(),
        receiver: hour.receiver.clone(),
        begin: utc(hour.begin_ns),
        tests: count(hour.tests),
        sent_packets: count(hour.sent),
        lost_packets: count(hour.lost),
    }
}
