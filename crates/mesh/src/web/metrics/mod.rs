//! `/metrics` in the form of OpenMetrics 1.0, for Prometheus.
//!
//! The number of series is bounded by the mesh file. Each site has 14 at most; up to 64 sites a pair in one direction has five and its round trips
//! five, some 30,000 in all; beyond that sites alone have series. And there are 100 alarms.

mod measured;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Web;
use super::api::Refusal;
use super::view::View;
use crate::alarm::Judged;
use crate::coordinator::now;
use crate::error::Failure;
use crate::store::PairSum;
use measured::Found;

/// Pairs with series of their own at most: those of 64 sites.
const PAIRS_MOST: usize = 64 * 63;
/// Alarms with a series of their own at most.
const ALARMS_MOST: usize = 100;

type Labels = Vec<(&'static str, String)>;
type Share = Gauge<f64, AtomicU64>;

pub(super) async fn answer(State(web): State<Arc<Web>>) -> Result<Response, Refusal> {
    let view = web.views.now(&web.folder)?;
    let joined = web.folder.members()?;
    let seen = web.reader.seen().await?;
    let totals = web.reader.totals().await?;
    let found = Found::read(&web.series, now()).await?;
    let mut registry = Registry::with_prefix("longhaul_mesh");
    sites(&mut registry, &view, &seen, |site| joined.contains_key(site));
    let shown = Shown::new(&view);
    sums(&mut registry, &shown, &totals);
    found.register(&mut registry, &shown);
    alarms(&mut registry, &web.alarms.judged());
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Refusal::from(Failure::new(error)))?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

fn sites(registry: &mut Registry, view: &View, seen: &[(String, i64)], joined: impl Fn(&str) -> bool) {
    let (has_joined, last) = (Family::<Labels, Gauge>::default(), Family::<Labels, Share>::default());
    for site in &view.mesh.sites {
        let labels = vec![("site", site.name.clone())];
        has_joined.get_or_create(&labels).set(i64::from(joined(&site.name)));
        if let Some((_, at)) = seen.iter().find(|(name, _)| *name == site.name) {
            last.get_or_create(&labels).set(*at as f64 / 1e9);
        }
    }
    registry.register("site_joined", "Whether the site has joined", has_joined);
    registry.register("site_last_test_timestamp_seconds", "When the last test of the site began", last);
}

/// Which sites and pairs have series.
struct Shown<'a> {
    /// Names in the store may be those of sites that are no longer in the mesh.
    sites: BTreeSet<&'a str>,
    /// Whether pairs have series of their own.
    pairs: bool,
}

impl<'a> Shown<'a> {
    fn new(view: &'a View) -> Self {
        let sites: BTreeSet<&str> = view.mesh.sites.iter().map(|site| site.name.as_str()).collect();
        let pairs = sites.len() * sites.len().saturating_sub(1) <= PAIRS_MOST;
        Self { sites, pairs }
    }

    fn has(&self, (sender, receiver): &(String, String)) -> bool {
        self.sites.contains(sender.as_str()) && self.sites.contains(receiver.as_str())
    }
}

fn of_pair(sender: &str, receiver: &str) -> Labels {
    vec![("sender", sender.to_owned()), ("receiver", receiver.to_owned())]
}

fn of_site(site: &str, direction: &str) -> Labels {
    vec![("site", site.to_owned()), ("direction", direction.to_owned())]
}

/// Tests, packets and lost packets, each by some labels.
#[derive(Default)]
struct Sums {
    tests: Family<Labels, Counter>,
    packets: Family<Labels, Counter>,
    lost: Family<Labels, Counter>,
}

impl Sums {
    fn add(&self, labels: &Labels, sum: &PairSum) {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        self.tests.get_or_create(labels).inc_by(count(sum.tests));
        self.packets.get_or_create(labels).inc_by(count(sum.sent));
        self.lost.get_or_create(labels).inc_by(count(sum.lost));
    }

    fn register(self, registry: &mut Registry, of: &str) {
        registry.register(format!("{of}_tests"), "Tests whose results have arrived", self.tests);
        registry.register(format!("{of}_packets"), "Packets that tests sent", self.packets);
        registry.register(format!("{of}_lost_packets"), "Packets that tests lost", self.lost);
    }
}

fn sums(registry: &mut Registry, shown: &Shown, totals: &[PairSum]) {
    let (pairs, sites) = (Sums::default(), Sums::default());
    for sum in totals.iter().filter(|sum| shown.sites.contains(&*sum.sender) && shown.sites.contains(&*sum.receiver)) {
        if shown.pairs {
            pairs.add(&of_pair(&sum.sender, &sum.receiver), sum);
        }
        for (site, direction) in [(&sum.sender, "sent"), (&sum.receiver, "received")] {
            sites.add(&of_site(site, direction), sum);
        }
    }
    if shown.pairs {
        pairs.register(registry, "pair");
    }
    sites.register(registry, "site");
}

fn alarms(registry: &mut Registry, judged: &Judged) {
    let count = Gauge::<i64>::default();
    count.set(i64::try_from(judged.alarms.len()).unwrap_or(i64::MAX));
    registry.register("alarms", "Alarms that are open", count);
    let at = Share::default();
    at.set(judged.at_ns as f64 / 1e9);
    registry.register("alarms_judged_timestamp_seconds", "When alarms were last judged; 0: not yet", at);
    let loss = Family::<Labels, Share>::default();
    for alarm in judged.alarms.iter().take(ALARMS_MOST) {
        let Some(suspect) = alarm.suspects.first() else { continue };
        let labels = vec![
            ("alarm", alarm.id.clone()),
            ("kind", suspect.kind.clone()),
            ("suspect", suspect.text.clone()),
            ("place", alarm.place.clone()),
        ];
        loss.get_or_create(&labels).set(alarm.loss);
    }
    registry.register(
        "alarm_loss_ratio",
        "Share of the packets lost above the usual, of each alarm that is open",
        loss,
    );
}
