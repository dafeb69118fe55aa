//! The questions.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::Kind;
use longhaul_units::{Nanos, utc};

use super::answers::{
    Alarms, AskedDiagnosis, Bucket, Losses, Mesh, Metric, NextTest, Refused, Schedule, Site, Sites, Test,
};
use super::asked::{Asked, AskedNext, AskedSpan, asked};
use super::{Answer, Json, Refusal, description, pairs};
use crate::coordinator::{WANTED_NS, now, now_ns};
use crate::store::BUCKETS_A_DECADE;
use crate::view::View;
use crate::web::Web;

/// Diagnoses that were asked for, in an answer at most.
const ASKED_MOST: u32 = 100;

/// All questions.
pub(crate) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/mesh", get(mesh))
        .route("/sites", get(sites))
        .route("/pairs", get(pairs::pairs))
        .route("/pairs/{sender}/{receiver}", get(pairs::pair))
        .route("/pairs/{sender}/{receiver}/tests", get(pairs::tests))
        .route("/tests/{id}", get(pairs::test))
        .route("/tests/{id}/files/{kind}", get(pairs::file))
        .route("/losses", get(losses))
        .route("/alarms", get(alarms))
        .route("/schedule", get(schedule))
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "no such question; /api/v1/openapi.json has all") })
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], description())
}

/// What the mesh is, and what it tests
#[utoipa::path(get, path = "/api/v1/mesh", responses((status = 200, body = Mesh), (status = 401, body = Refused)))]
pub(crate) async fn mesh(State(web): State<Arc<Web>>) -> Answer<Mesh> {
    let view = web.views.now(&web.folder)?;
    Ok(Json(Mesh {
        name: view.mesh.name.clone(),
        now: utc(i64::try_from(now_ns()).unwrap_or(i64::MAX)),
        longhaul: env!("CARGO_PKG_VERSION"),
        tests: view.mesh.tests.iter().map(Test::from).collect(),
        metrics: vec![
            Metric { name: "loss", title: "Loss", kind: "udp" },
            Metric { name: "rtt", title: "Round trip", kind: "rtt" },
            Metric { name: "goodput", title: "TCP goodput", kind: "tcp" },
        ],
    }))
}

/// All sites, and when each was last part of a test
#[utoipa::path(get, path = "/api/v1/sites", responses((status = 200, body = Sites), (status = 401, body = Refused)))]
pub(crate) async fn sites(State(web): State<Arc<Web>>) -> Answer<Sites> {
    let view = web.views.now(&web.folder)?;
    let members = web.members.members(&web.folder)?;
    let seen = web.reader.seen().await?;
    let site = |site: &longhaul_mesh_model::file::Site| Site {
        name: site.name.clone(),
        joined: members.contains_key(&site.name),
        rate_bps: site.rate.0,
        tags: site.tags.clone(),
        nat: site.nat,
        last_test: seen.iter().find(|(name, _)| *name == site.name).map(|(_, at)| utc(*at)),
    };
    Ok(Json(Sites { sites: view.mesh.sites.iter().map(site).collect() }))
}

/// How the loss of all tests is spread, over 100 days if not asked otherwise
#[utoipa::path(get, path = "/api/v1/losses", params(AskedSpan),
    responses((status = 200, body = Losses), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn losses(State(web): State<Arc<Web>>, query: Asked<AskedSpan>) -> Answer<Losses> {
    let span = asked(query)?.span(100)?.in_days();
    let (without_loss, buckets) = web.reader.losses(span).await?;
    let edge = |bucket: i32| 10f64.powf(f64::from(bucket) / f64::from(BUCKETS_A_DECADE));
    let tests = buckets.iter().map(|(_, tests)| *tests).fold(without_loss, i64::saturating_add);
    let buckets = buckets.into_iter();
    let buckets = buckets.map(|(bucket, tests)| Bucket { from: edge(bucket), below: edge(bucket + 1), tests });
    Ok(Json(Losses { span: span.into(), tests, without_loss, buckets: buckets.collect() }))
}

/// Alarms that are open, and those that ended in the last day
#[utoipa::path(get, path = "/api/v1/alarms", responses((status = 200, body = Alarms), (status = 401, body = Refused)))]
pub(crate) async fn alarms(State(web): State<Arc<Web>>) -> Answer<Alarms> {
    let judged = web.alarms.judged();
    let at = (judged.at_ns > 0).then(|| utc(judged.at_ns));
    Ok(Json(Alarms { judged: at, alarms: judged.alarms, over: judged.over }))
}

/// The tests that are due next, those that go on without pause, and diagnoses that were asked for
#[utoipa::path(get, path = "/api/v1/schedule", params(AskedNext),
    responses((status = 200, body = Schedule), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn schedule(State(web): State<Arc<Web>>, query: Asked<AskedNext>) -> Answer<Schedule> {
    let count = asked(query)?.count()?;
    let view = web.views.now(&web.folder)?;
    let name = |site: SiteId| view.mesh.of(site).name.clone();
    let next = next_tests(&view, Nanos(now_ns()), count).into_iter().map(|(at, test, (from, to))| NextTest {
        at: utc(i64::try_from(at.0).unwrap_or(i64::MAX)),
        test: view.mesh.tests[test].name.clone(),
        kind: view.mesh.tests[test].kind.name(),
        sender: name(from),
        receiver: name(to),
    });
    let next = next.collect();
    let without_pause = view.mesh.tests.iter().filter(|test| test.kind == Kind::Rtt).map(Test::from).collect();
    let asked = web.reader.wanted(now().saturating_sub(WANTED_NS), ASKED_MOST).await?.into_iter();
    let asked = asked.map(|(asked_ns, wanted)| AskedDiagnosis {
        asked: utc(asked_ns),
        test: wanted.test,
        sender: wanted.sender,
        receiver: wanted.receiver,
    });
    Ok(Json(Schedule { next, without_pause, asked: asked.collect() }))
}

/// The `count` tests that are due next after `now`: when, which plan, which pair.
fn next_tests(view: &View, now: Nanos, count: usize) -> Vec<(Nanos, usize, (SiteId, SiteId))> {
    let mut next = Vec::new();
    for (place, round) in view.schedule.rounds.iter().enumerate() {
        let number = now.0 / round.every.0;
        let mut own = Vec::new();
        for number in [number, number + 1] {
            for (index, slot) in (0u64..).zip(&*view.slots(place, number)) {
                let at = Nanos(number * round.every.0 + round.slot.0 * index);
                if at >= now && own.len() < count {
                    own.extend(slot.pairs.iter().map(|pair| (at, round.test, *pair)));
                }
            }
        }
        next.extend(own);
    }
    next.sort();
    next.truncate(count);
    next
}

#[cfg(test)]
mod tests_of_next {
    use longhaul_mesh_model::file::Mesh;
    use longhaul_mesh_model::schedule::Schedule;

    use super::*;

    #[test]
    fn the_next_tests_are_those_of_this_round_and_the_next() {
        let sites: String = ["a", "b", "c"]
            .map(|name| format!("[[site]]\nname = '{name}'\naddress = '192.0.2.1'\nrate = '1Gbit'\n"))
            .concat();
        let test = "[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '60s'\ntime = '1s'\nrate = '1M'\nlength = 1000\n";
        let mesh = Mesh::parse(&format!("name = 'm'\n{sites}{test}")).unwrap();
        let schedule = Schedule::make(&mesh).unwrap();
        let view = View::new(mesh, schedule);
        let second = 1_000_000_000;
        // Six slots of 6 s from 120 s on; at 133 s the slots at 120, 126 and 132 s are over.
        let next = next_tests(&view, Nanos(133 * second), 5);
        let at: Vec<u64> = next.iter().map(|(at, ..)| at.0 / second).collect();
        assert_eq!(at, [138, 144, 150, 180, 186]);
        assert_eq!(next_tests(&view, Nanos(133 * second), 500).len(), 9);
        // Who asks again gets the same slots, and those of the next round once they are due.
        let slots = view.slots(0, 2);
        assert!(Arc::ptr_eq(&slots, &view.slots(0, 2)));
        assert_eq!(*slots, view.schedule.rounds[0].slots_of(&view.mesh, 2));
        let next = next_tests(&view, Nanos(193 * second), 1);
        assert_eq!(next[0].0.0 / second, 198);
        assert!(!Arc::ptr_eq(&slots, &view.slots(0, 2)), "what is over is forgotten");
    }
}
