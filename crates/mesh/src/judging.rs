//! Alarms from the results of the last days.
//!
//! Results that arrive late count at their own time, so all are judged from the beginning. What came of hours that are over is kept, for as
//! long as these have the same results and the mesh is the same: then only the last two hours are read again.

use std::collections::BTreeSet;

use longhaul_mesh_model::file::{Mesh, SharedLink};
use longhaul_mesh_model::place::{Alarm, Locator};
use longhaul_mesh_model::{Evidence, Sample, SiteId};
use longhaul_units::Nanos;

use crate::coordinator::now;
use crate::error::Failure;
use crate::store::{Archive, Counted, HOUR_NS};

/// What the locator wants to know of the past: a week of the usual, and some days of what is judged.
const PAST_HOURS: i64 = 12 * 24;
/// The hours that go on: results of the last one are on their way.
const OPEN_HOURS: i64 = 2;

/// Judges again and again.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    settled: Option<Settled>,
}

/// What came of hours that are over.
#[derive(Debug)]
struct Settled {
    mesh: Mesh,
    /// Hours since 1970: the first, and the first after them.
    hours: (i64, i64),
    /// Their results.
    rows: i64,
    judged: Judged,
}

impl Judging {
    /// Alarms that are open.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) fn open(&mut self, mesh: &Mesh, archive: &mut Archive) -> Result<Vec<Alarm>, Failure> {
        self.open_at(mesh, archive, now())
    }

    fn open_at(&mut self, mesh: &Mesh, archive: &mut Archive, now_ns: i64) -> Result<Vec<Alarm>, Failure> {
        let hour = now_ns.div_euclid(HOUR_NS);
        let hours = (hour - PAST_HOURS, hour + 1 - OPEN_HOURS);
        // Counted before they are read: one that comes between is missed by no later judgement.
        let rows = archive.rows(hours.0..hours.1)?;
        let is_same = |old: &Settled| old.hours == hours && old.rows == rows && old.mesh == *mesh;
        let settled = match self.settled.take().filter(is_same) {
            Some(settled) => settled,
            None => {
                let mut judged = Judged::new(mesh);
                archive.each(hours.0..hours.1, |names, one| judged.push(mesh, names, &one))?;
                Settled { mesh: mesh.clone(), hours, rows, judged }
            }
        };
        let mut judged = settled.judged.clone();
        self.settled = Some(settled);
        archive.each(hours.1..i64::MAX, |names, one| judged.push(mesh, names, &one))?;
        judged.locator.advance(Nanos(now_ns.unsigned_abs()));
        Ok(judged.locator.open().cloned().collect())
    }
}

/// A locator, and the hour that it has come to.
#[derive(Debug, Clone)]
struct Judged {
    locator: Locator,
    hour: i64,
}

impl Judged {
    fn new(mesh: &Mesh) -> Self {
        let crossed = |direction: usize, link: &SharedLink| {
            let sites = || (0..mesh.sites.len() as u16).map(SiteId);
            let pairs = sites().flat_map(|from| sites().map(move |to| (from, to)));
            pairs.filter(|(from, to)| link.direction(*from, *to) == Some(direction)).collect::<BTreeSet<_>>()
        };
        let links = mesh.links.iter().map(|link| [crossed(0, link), crossed(1, link)]).collect();
        Self { locator: Locator::new(links), hour: 0 }
    }

    /// The next result in order of time.
    fn push(&mut self, mesh: &Mesh, [_, sender, receiver]: &[String; 3], one: &Counted) {
        let (Some(from), Some(to)) = (mesh.site(sender), mesh.site(receiver)) else { return };
        let at = Nanos(one.at_ns.unsigned_abs());
        if one.at_ns / HOUR_NS > self.hour {
            self.hour = one.at_ns / HOUR_NS;
            self.locator.advance(at);
        }
        let count = |count: i64| u32::try_from(count).unwrap_or(0);
        let placed = one.at_sender.zip(one.at_receiver);
        let placed =
            placed.map(|(sender, receiver)| Evidence { at_sender: count(sender), at_receiver: count(receiver) });
        self.locator.push(Sample { at, from, to, sent: count(one.sent), lost: count(one.lost), placed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TestResult;

    /// Four sites, all pairs, one test an hour.
    fn mesh() -> Mesh {
        let site = |name| format!("[[site]]\nname = '{name}'\naddress = '127.0.0.1'\nrate = '1Gbit'\n");
        let sites: String = ["a", "b", "c", "d"].into_iter().map(site).collect();
        let test = "[[test]]\nname = 'loss'\nkind = 'udp'\nevery = '1h'\nrate = '1M'\n";
        Mesh::parse(&format!("name = 'four'\n{sites}{test}")).unwrap()
    }

    /// What is sent to `bad` loses 3 % from hour `since` on; tests of the hours that are given.
    fn results(hours: std::ops::Range<i64>, since: i64, bad: &str) -> Vec<TestResult> {
        let mut all = Vec::new();
        for hour in hours {
            for (from, to) in ["a", "b", "c", "d"].iter().flat_map(|from| ["a", "b", "c", "d"].map(|to| (*from, to))) {
                let lost = if to == bad && hour >= since { 30 } else { 0 };
                let number = (hour * 100) as usize + all.len() % 100;
                all.push(TestResult {
                    id: format!("{number:032x}"),
                    test: "loss".into(),
                    sender: from.into(),
                    receiver: to.into(),
                    at_ns: hour * HOUR_NS + all.len() as i64 % 100,
                    sent: 1_000,
                    lost,
                    at_sender: None,
                    at_receiver: None,
                    received_rate_bps: 0,
                });
            }
        }
        all.retain(|one| one.sender != one.receiver);
        all
    }

    #[test]
    fn what_is_kept_is_what_a_new_judgement_finds() {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-judging-{}", std::process::id()));
        let remove = || {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", path.display()));
            }
        };
        remove();
        let mesh = mesh();
        let mut archive = Archive::open(&path).unwrap();
        let mut judging = Judging::default();
        // 480,000 is a day in 2024; the fault begins 10 hours before the end.
        let now = 480_000;
        let at = |hour: i64| hour * HOUR_NS + HOUR_NS / 2;
        archive.take(&results(now - 200..now - 10, now - 10, "d")).unwrap();
        assert_eq!(judging.open_at(&mesh, &mut archive, at(now - 10)).unwrap(), []);
        archive.take(&results(now - 10..now, now - 10, "d")).unwrap();
        let mut judged = |archive: &mut Archive, mesh: &Mesh, hour| {
            let kept = judging.open_at(mesh, archive, at(hour)).unwrap();
            assert_eq!(kept, Judging::default().open_at(mesh, archive, at(hour)).unwrap(), "hour {hour}");
            kept
        };
        assert_eq!(judged(&mut archive, &mesh, now).len(), 1);
        // The same hours, whose results stay, and a new one in the hour that goes on.
        archive.take(&results(now..now + 1, now + 1, "d")).unwrap();
        let before = judged(&mut archive, &mesh, now);
        assert_eq!(before, judged(&mut archive, &mesh, now));
        // Late results of an hour that is over: the alarm has other odds.
        let late: Vec<_> = results(now - 9..now - 3, now - 10, "d")
            .into_iter()
            .map(|one| TestResult { id: format!("f{}", &one.id[1..]), at_ns: one.at_ns + 1_000, ..one })
            .collect();
        archive.take(&late).unwrap();
        let after = judged(&mut archive, &mesh, now);
        assert_ne!(before, after);
        // Another mesh, in which nobody is called d.
        let other = Mesh { sites: mesh.sites[..3].to_vec(), tests: Vec::new(), ..mesh.clone() };
        assert_eq!(judged(&mut archive, &other, now), []);
        judged(&mut archive, &mesh, now + 1);
        remove();
    }
}
