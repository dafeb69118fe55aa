//! The questions.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use longhaul_mesh_model::SiteId;
use longhaul_units::{Nanos, utc};

use super::answers::{
    Alarms, Bucket, Losses, Mesh, Metric, NextTest, OneTest, Pair, PairOverTime, Pairs, Point, Refused, Schedule, Site,
    Sites, Span, Sums, Test, Tests,
};
use super::asked::{AskedNext, AskedSpan};
use super::{Json, Refusal, description};
use crate::coordinator::now_ns;
use crate::store::{self, BUCKETS_A_DECADE, DAY_NS};
use crate::web::Web;
use crate::web::view::View;

/// Tests of a pair in an answer at most.
const TESTS_MOST: u32 = 1000;
/// Days over which single tests can be asked for at most.
const TESTS_DAYS_MOST: i64 = 2;

type Asked<T> = Result<Query<T>, QueryRejection>;
type Answer<T> = Result<Json<T>, Refusal>;

/// All questions.
pub(crate) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/mesh", get(mesh))
        .route("/sites", get(sites))
        .route("/pairs", get(pairs))
        .route("/pairs/{sender}/{receiver}", get(pair))
        .route("/pairs/{sender}/{receiver}/tests", get(tests))
        .route("/losses", get(losses))
        .route("/alarms", get(alarms))
        .route("/schedule", get(schedule))
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "no such question; /api/v1/openapi.json has all") })
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], description())
}

fn asked<T>(query: Asked<T>) -> Result<T, Refusal> {
    query.map(|Query(asked)| asked).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.body_text()))
}

fn sums(tests: i64, sent_packets: i64, lost_packets: i64) -> Sums {
    let loss = (sent_packets > 0).then(|| lost_packets as f64 / sent_packets as f64);
    Sums { tests, sent_packets, lost_packets, loss }
}

fn shown(span: store::Span) -> Span {
    let unit = if span.unit_ns == DAY_NS { "day" } else { "hour" };
    Span { from: utc(span.from_ns), until: utc(span.until_ns), unit }
}

/// What the mesh is, and what it tests
#[utoipa::path(get, path = "/api/v1/mesh", responses((status = 200, body = Mesh), (status = 401, body = Refused)))]
pub(crate) async fn mesh(State(web): State<Arc<Web>>) -> Answer<Mesh> {
    let view = web.views.now(&web.folder)?;
    let test = |test: &longhaul_mesh_model::file::TestPlan| Test {
        name: test.name.clone(),
        kind: test.kind.name(),
        pairs: test.pairs.len(),
        every_ns: test.every.map(|every| every.0),
        time_ns: test.time.0,
    };
    Ok(Json(Mesh {
        name: view.mesh.name.clone(),
        now: utc(i64::try_from(now_ns()).unwrap_or(i64::MAX)),
        longhaul: env!("CARGO_PKG_VERSION"),
        tests: view.mesh.tests.iter().map(test).collect(),
        metrics: vec![Metric { name: "loss", title: "Loss" }],
    }))
}

/// All sites, and when each was last part of a test
#[utoipa::path(get, path = "/api/v1/sites", responses((status = 200, body = Sites), (status = 401, body = Refused)))]
pub(crate) async fn sites(State(web): State<Arc<Web>>) -> Answer<Sites> {
    let view = web.views.now(&web.folder)?;
    let members = web.folder.members()?;
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

/// All pairs that were tested in a span of time
#[utoipa::path(get, path = "/api/v1/pairs", params(AskedSpan),
    responses((status = 200, body = Pairs), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn pairs(State(web): State<Arc<Web>>, query: Asked<AskedSpan>) -> Answer<Pairs> {
    let query = asked(query)?;
    let (span, metric) = (query.span(1)?, query.metric()?);
    let pairs = web.reader.matrix(span).await?.into_iter().map(|pair| Pair {
        sender: pair.sender,
        receiver: pair.receiver,
        sums: sums(pair.tests, pair.sent, pair.lost),
    });
    Ok(Json(Pairs { span: shown(span), metric, pairs: pairs.collect() }))
}

fn known(view: &View, names: [&str; 2]) -> Result<(), Refusal> {
    match names.into_iter().find(|name| view.mesh.site(name).is_none()) {
        None => Ok(()),
        Some(_) => Err(Refusal::new(StatusCode::NOT_FOUND, "the mesh has no such site; /api/v1/sites has all")),
    }
}

/// One pair over time, in one direction: by the hour up to 60 days, else by the day
#[utoipa::path(get, path = "/api/v1/pairs/{sender}/{receiver}", params(AskedSpan,
        ("sender" = String, Path, description = "The site that sends"), ("receiver" = String, Path, description = "The site that receives")),
    responses((status = 200, body = PairOverTime), (status = 400, body = Refused), (status = 401, body = Refused),
        (status = 404, body = Refused)))]
pub(crate) async fn pair(
    State(web): State<Arc<Web>>,
    Path((sender, receiver)): Path<(String, String)>,
    query: Asked<AskedSpan>,
) -> Answer<PairOverTime> {
    let view = web.views.now(&web.folder)?;
    known(&view, [&sender, &receiver])?;
    let query = asked(query)?;
    query.metric()?;
    let span = query.span(7)?.finer();
    let points = web.reader.pair(&sender, &receiver, span, &view.tests()).await?;
    let points = points
        .into_iter()
        .map(|point| Point { begin: utc(point.begin_ns), sums: sums(point.tests, point.sent, point.lost) });
    Ok(Json(PairOverTime { sender, receiver, span: shown(span), points: points.collect() }))
}

/// Single tests of one pair in one direction, of two days at most
#[utoipa::path(get, path = "/api/v1/pairs/{sender}/{receiver}/tests", params(AskedSpan,
        ("sender" = String, Path, description = "The site that sends"), ("receiver" = String, Path, description = "The site that receives")),
    responses((status = 200, body = Tests), (status = 400, body = Refused), (status = 401, body = Refused),
        (status = 404, body = Refused)))]
pub(crate) async fn tests(
    State(web): State<Arc<Web>>,
    Path((sender, receiver)): Path<(String, String)>,
    query: Asked<AskedSpan>,
) -> Answer<Tests> {
    let view = web.views.now(&web.folder)?;
    known(&view, [&sender, &receiver])?;
    let span = asked(query)?.span(1)?;
    if span.until_ns - span.from_ns > TESTS_DAYS_MOST * DAY_NS {
        let message = format!("days: single tests can be asked for over {TESTS_DAYS_MOST} days at most");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    let tests = web.reader.tests(&sender, &receiver, (span.from_ns, span.until_ns), TESTS_MOST).await?;
    let tests = tests.into_iter().map(|test| OneTest {
        id: test.id,
        test: test.test,
        at: utc(test.at_ns),
        sent_packets: test.sent,
        lost_packets: test.lost,
        lost_at_sender_packets: test.at_sender,
        lost_at_receiver_packets: test.at_receiver,
        received_rate_bps: test.received_rate_bps,
    });
    Ok(Json(Tests { span: shown(span), tests: tests.collect() }))
}

/// How the loss of all tests is spread, over 100 days if not asked otherwise
#[utoipa::path(get, path = "/api/v1/losses", params(AskedSpan),
    responses((status = 200, body = Losses), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn losses(State(web): State<Arc<Web>>, query: Asked<AskedSpan>) -> Answer<Losses> {
    let span = asked(query)?.span(100)?.in_days();
    let (without_loss, buckets) = web.reader.losses(span).await?;
    let edge = |bucket: i32| 10f64.powf(f64::from(bucket) / f64::from(BUCKETS_A_DECADE));
    let tests = without_loss + buckets.iter().map(|(_, tests)| tests).sum::<i64>();
    let buckets = buckets.into_iter();
    let buckets = buckets.map(|(bucket, tests)| Bucket { from: edge(bucket), below: edge(bucket + 1), tests });
    Ok(Json(Losses { span: shown(span), tests, without_loss, buckets: buckets.collect() }))
}

/// Alarms that are open
#[utoipa::path(get, path = "/api/v1/alarms", responses((status = 200, body = Alarms), (status = 401, body = Refused)))]
pub(crate) async fn alarms(State(web): State<Arc<Web>>) -> Answer<Alarms> {
    let judged = web.alarms.judged();
    Ok(Json(Alarms { judged: (judged.at_ns > 0).then(|| utc(judged.at_ns)), alarms: judged.alarms }))
}

/// The tests that are due next
#[utoipa::path(get, path = "/api/v1/schedule", params(AskedNext),
    responses((status = 200, body = Schedule), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn schedule(State(web): State<Arc<Web>>, query: Asked<AskedNext>) -> Answer<Schedule> {
    let count = asked(query)?.count()?;
    let view = web.views.now(&web.folder)?;
    let name = |site: SiteId| view.mesh.of(site).name.clone();
    let next = next_tests(&view, Nanos(now_ns()), count).into_iter().map(|(at, test, (from, to))| NextTest {
        at: utc(i64::try_from(at.0).unwrap_or(i64::MAX)),
        test: view.mesh.tests[test].name.clone(),
        sender: name(from),
        receiver: name(to),
    });
    Ok(Json(Schedule { next: next.collect() }))
}

/// The `count` tests that are due next after `now`: when, which plan, which pair.
fn next_tests(view: &View, now: Nanos, count: usize) -> Vec<(Nanos, usize, (SiteId, SiteId))> {
    let mut next = Vec::new();
    for round in &view.schedule.rounds {
        let number = now.0 / round.every.0;
        let mut own = Vec::new();
        for number in [number, number + 1] {
            for (index, slot) in (0u64..).zip(round.slots_of(&view.mesh, number)) {
                let at = Nanos(number * round.every.0 + round.slot.0 * index);
                if at >= now && own.len() < count {
                    own.extend(slot.pairs.into_iter().map(|pair| (at, round.test, pair)));
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
    }
}
