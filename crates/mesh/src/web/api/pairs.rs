//! Questions about pairs: by metric, over time, and their single tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use longhaul_units::utc;

use super::answers::{Goodput, Pair, PairOverTime, Pairs, Point, Refused, RoundTrip, Sums};
use super::asked::{Asked, AskedMoment, AskedSpan, asked};
use super::one_test::{OneTest, TestOfPair, Tests};
use super::{Answer, Json, Refusal};
use crate::files;
use crate::store::{self, DAY_NS, Figures, FileKind, Kept, Listed, Metric};
use crate::view::View;
use crate::web::Web;

/// Tests of a pair in an answer at most.
const TESTS_MOST: u32 = 1000;
/// Diagnoses, which are long.
const DIAGNOSES_MOST: u32 = 100;
/// Days over which single tests can be asked for at most; diagnoses are few.
const TESTS_DAYS_MOST: i64 = 2;
/// Days that say what is usual.
const USUAL_NS: i64 = 30 * DAY_NS;

fn sums(tests: i64, sent_packets: i64, lost_packets: i64) -> Sums {
    let loss = (sent_packets > 0).then(|| lost_packets as f64 / sent_packets as f64);
    Sums { tests, sent_packets, lost_packets, loss }
}

fn sums_of(figures: &Figures) -> Sums {
    sums(figures.tests, figures.sent, figures.lost)
}

fn round_trip(metric: Metric, figures: &Figures, usual_ns: Option<i64>) -> Option<RoundTrip> {
    let Figures { median: median_ns, beside: p99_ns, outages, longest_outage_ns, .. } = *figures;
    (metric == Metric::RoundTrip).then_some(RoundTrip { median_ns, p99_ns, outages, longest_outage_ns, usual_ns })
}

fn goodput(metric: Metric, figures: &Figures) -> Option<Goodput> {
    let Figures { median: median_bps, beside: paced_bps, .. } = *figures;
    (metric == Metric::Goodput).then_some(Goodput { median_bps, paced_bps })
}

/// All pairs that were tested in a span of time
#[utoipa::path(get, path = "/api/v1/pairs", params(AskedSpan),
    responses((status = 200, body = Pairs), (status = 400, body = Refused), (status = 401, body = Refused)))]
pub(crate) async fn pairs(State(web): State<Arc<Web>>, query: Asked<AskedSpan>) -> Answer<Pairs> {
    let query = asked(query)?;
    let (span, metric) = (query.span(1)?, query.metric()?);
    let pairs = match metric {
        None => lossy(&web, span).await?,
        Some(metric) => measured(&web, metric, span).await?,
    };
    Ok(Json(Pairs { span: span.into(), metric: metric.map_or("loss", Metric::name), pairs }))
}

/// What UDP tests lost.
async fn lossy(web: &Web, span: store::Span) -> Result<Vec<Pair>, Refusal> {
    let pairs = web.reader.matrix(span).await?.into_iter().map(|pair| Pair {
        sender: pair.sender,
        receiver: pair.receiver,
        sums: sums(pair.tests, pair.sent, pair.lost),
        round_trip: None,
        goodput: None,
    });
    Ok(pairs.collect())
}

/// What tests of other kinds found.
async fn measured(web: &Web, metric: Metric, span: store::Span) -> Result<Vec<Pair>, Refusal> {
    let pairs = web.series.matrix(metric, span).await?;
    let days = store::Span::ending(span.until_ns, USUAL_NS.max(span.until_ns - span.from_ns));
    let usual: BTreeMap<_, _> = match metric {
        Metric::Goodput => BTreeMap::new(),
        // What is asked for is a month or more.
        Metric::RoundTrip if days == span => pairs.iter().cloned().collect(),
        Metric::RoundTrip => web.series.matrix(metric, days).await?.into_iter().collect(),
    };
    let pairs = pairs.into_iter().map(|(names, figures)| {
        let usual_ns = usual.get(&names).and_then(|figures| figures.median);
        let (sender, receiver) = names;
        let (round_trip, goodput) = (round_trip(metric, &figures, usual_ns), goodput(metric, &figures));
        Pair { sender, receiver, sums: sums_of(&figures), round_trip, goodput }
    });
    Ok(pairs.collect())
}

fn known(view: &View, names: [&str; 2]) -> Result<(), Refusal> {
    match names.into_iter().find(|name| view.mesh.site(name).is_none()) {
        None => Ok(()),
        Some(_) => Err(Refusal::new(StatusCode::NOT_FOUND, "the mesh has no such site; /api/v1/sites has all")),
    }
}

/// One pair over time, in one direction: by the hour up to 60 days, else by the day
#[utoipa::path(get, path = "/api/v1/pairs/{sender}/{receiver}", params(AskedSpan,
        ("sender" = String, Path, description = "The site that sends; of round trips the one that sends the probes"),
        ("receiver" = String, Path, description = "The site that receives")),
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
    let metric = query.metric()?;
    let span = query.span(7)?.finer();
    let points = match metric {
        None => {
            let points = web.reader.pair(&sender, &receiver, span, &view.tests()).await?.into_iter();
            let point = |point: store::Point| Point {
                begin: utc(point.begin_ns),
                sums: sums(point.tests, point.sent, point.lost),
                round_trip: None,
                goodput: None,
            };
            points.map(point).collect()
        }
        Some(metric) => {
            let points = web.series.pair(metric, &sender, &receiver, span).await?.into_iter();
            let point = |(begin_ns, figures): (i64, Figures)| Point {
                begin: utc(begin_ns),
                sums: sums_of(&figures),
                round_trip: round_trip(metric, &figures, None),
                goodput: goodput(metric, &figures),
            };
            points.map(point).collect()
        }
    };
    Ok(Json(PairOverTime { sender, receiver, span: span.into(), points }))
}

/// Single tests of one pair in one direction, of two days at most; diagnoses of any time
#[utoipa::path(get, path = "/api/v1/pairs/{sender}/{receiver}/tests", params(AskedSpan,
        ("sender" = String, Path, description = "The site that sends; of round trips the one that sends the probes"),
        ("receiver" = String, Path, description = "The site that receives")),
    responses((status = 200, body = Tests), (status = 400, body = Refused), (status = 401, body = Refused),
        (status = 404, body = Refused)))]
pub(crate) async fn tests(
    State(web): State<Arc<Web>>,
    Path((sender, receiver)): Path<(String, String)>,
    query: Asked<AskedSpan>,
) -> Answer<Tests> {
    let view = web.views.now(&web.folder)?;
    known(&view, [&sender, &receiver])?;
    let query = asked(query)?;
    let (span, listed) = (query.span(1)?, query.listed()?);
    if span.until_ns - span.from_ns > TESTS_DAYS_MOST * DAY_NS && listed != Some(Listed::Diagnoses) {
        let message = format!("days: single tests can be asked for over {TESTS_DAYS_MOST} days at most");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    let within = (span.from_ns, span.until_ns);
    let tests: Vec<OneTest> = match listed {
        None => {
            let tests = web.reader.tests(&sender, &receiver, within, TESTS_MOST).await?;
            tests.into_iter().map(OneTest::from).collect()
        }
        Some(listed) => {
            let most = if listed == Listed::Diagnoses { DIAGNOSES_MOST } else { TESTS_MOST };
            let tests = web.series.measurements(listed, (&sender, &receiver), within, most).await?;
            tests.into_iter().map(|one| TestOfPair::from(one).result).collect()
        }
    };
    Ok(Json(Tests { span: span.into(), tests }))
}

/// One test of any kind, with all that is kept of it
#[utoipa::path(get, path = "/api/v1/tests/{id}", params(AskedMoment, ("id" = String, Path, description = "The id of the test: 32 hexadecimal digits")),
    responses((status = 200, body = TestOfPair), (status = 400, body = Refused), (status = 401, body = Refused),
        (status = 404, body = Refused)))]
pub(crate) async fn test(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    query: Asked<AskedMoment>,
) -> Answer<TestOfPair> {
    let kept = kept(&web, &id, query).await?;
    let files = FileKind::ALL.into_iter().filter(|kind| path_of(&web, &kept, *kind).is_some());
    let files = files.map(FileKind::name).collect();
    let mut test = match kept {
        Kept::Udp(result) => TestOfPair::from(result),
        Kept::Measurement(measurement) => TestOfPair::from(measurement),
    };
    test.result.files = files;
    Ok(Json(test))
}

/// A file beside a test, in Parquet: which packets it lost, or samples of TCP
#[utoipa::path(get, path = "/api/v1/tests/{id}/files/{kind}", params(AskedMoment,
        ("id" = String, Path, description = "The id of the test: 32 hexadecimal digits"),
        ("kind" = String, Path, description = "One of the test's `files`: `losses` or `samples`")),
    responses((status = 200, description = "A Parquet file"), (status = 400, body = Refused), (status = 401, body = Refused),
        (status = 404, body = Refused)))]
pub(crate) async fn file(
    State(web): State<Arc<Web>>,
    Path((id, kind)): Path<(String, String)>,
    query: Asked<AskedMoment>,
) -> Result<impl IntoResponse, Refusal> {
    let none = || Refusal::new(StatusCode::NOT_FOUND, "there is no such file beside this test");
    let kind = FileKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(none)?;
    let kept = kept(&web, &id, query).await?;
    // Files have 1 MiB at most.
    let content = path_of(&web, &kept, kind).and_then(|path| std::fs::read(path).ok()).ok_or_else(none)?;
    let name = format!("attachment; filename=\"{}-{}.parquet\"", kind.name(), kept.id());
    let kind = "application/vnd.apache.parquet".to_owned();
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], content))
}

/// The test with this id.
async fn kept(web: &Web, id: &str, query: Asked<AskedMoment>) -> Result<Kept, Refusal> {
    let within = asked(query)?.within()?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let kept = if is_id { web.series.test(id, within).await? } else { None };
    kept.ok_or_else(|| {
        Refusal::new(
            StatusCode::NOT_FOUND,
            "there is no such test: an id has 32 hexadecimal digits, and a test that is not among the latest needs its time, at=",
        )
    })
}

fn path_of(web: &Web, kept: &Kept, kind: FileKind) -> Option<PathBuf> {
    let (id, sites, at_ns) = match kept {
        Kept::Udp(one) => (&one.id, [&*one.sender, &*one.receiver], one.at_ns),
        Kept::Measurement(one) => (&one.id, [&*one.sender, &*one.receiver], one.at_ns),
    };
    files::of_test(&web.folder, kind, sites, (id, at_ns))
}
