//! `/metrics` in the form of OpenMetrics 1.0, for Prometheus.
//!
//! The number of series is bounded by the mesh file. Each site has 16 at most; up to 64 sites a pair in one direction has five and its round trips
//! five, some 30,000 in all; beyond that sites alone have series. And there are 100 alarms.

mod measured;

use std::collections::{BTreeMap, BTreeSet};
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
use crate::alarm::Judged;
use crate::coordinator::now;
use crate::error::Failure;
use crate::store::{DAY_NS, PairSum, Span};
use crate::view::View;
use measured::Found;

/// Pairs with series of their own at most: those of 64 sites.
const PAIRS_MOST: usize = 64 * 63;
/// Alarms with a series of their own at most.
const ALARMS_MOST: usize = 100;

type Labels = Vec<(&'static str, String)>;
type Share = Gauge<f64, AtomicU64>;

pub(super) async fn answer(State(web): State<Arc<Web>>) -> Result<Response, Refusal> {
    let view = web.views.now(&web.folder)?;
    let joined = web.members.members(&web.folder)?;
    let seen = web.reader.seen().await?;
    let totals = web.reader.totals().await?;
    let day = web.reader.matrix(Span::ending(now(), DAY_NS)).await?;
    let found = Found::read(&web.series, now()).await?;
    let mut registry = Registry::with_prefix("longhaul_mesh");
    sites(&mut registry, &view, &seen, |site| joined.contains_key(site));
    let shown = Shown::new(&view);
    sums(&mut registry, &shown, &totals);
    losses(&mut registry, &shown, &day);
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

    fn has(&self, sender: &str, receiver: &str) -> bool {
        self.sites.contains(sender) && self.sites.contains(receiver)
    }
}

fn of_pair(sender: &str, receiver: &str) -> Labels {
    vec![("sender", sender.to_owned()), ("receiver", receiver.to_owned())]
}

fn of_site(site: &str, direction: &str) -> Labels {
    vec![("site", site.to_owned()), ("direction", direction.to_owned())]
}

/// Counters of pairs and of their sites: the end of each one's name with its help, and what `all` have of each. `of_sites` says how the two sites
/// of a pair are labelled.
fn counters<'a, const N: usize>(
    registry: &mut Registry,
    shown: &Shown,
    kinds: [(&str, &str); N],
    all: impl Iterator<Item = (&'a str, &'a str, [i64; N])>,
    of_sites: fn(&str, &str) -> [Labels; 2],
) {
    let [pairs, sites] = [(); 2].map(|()| kinds.map(|_| Family::<Labels, Counter>::default()));
    let add = |to: &[Family<Labels, Counter>; N], labels: &Labels, counts: [i64; N]| {
        for (family, count) in to.iter().zip(counts) {
            family.get_or_create(labels).inc_by(u64::try_from(count).unwrap_or(0));
        }
    };
    for (sender, receiver, counts) in all.filter(|(sender, receiver, _)| shown.has(sender, receiver)) {
        if shown.pairs {
            add(&pairs, &of_pair(sender, receiver), counts);
        }
        of_sites(sender, receiver).iter().for_each(|labels| add(&sites, labels, counts));
    }
    for (of, families) in [("pair", pairs), ("site", sites)].into_iter().skip(usize::from(!shown.pairs)) {
        for ((name, help), family) in kinds.into_iter().zip(families) {
            registry.register(format!("{of}_{name}"), help, family);
        }
    }
}

fn sums(registry: &mut Registry, shown: &Shown, totals: &[PairSum]) {
    let kinds = [
        ("tests", "Tests whose results have arrived"),
        ("packets", "Packets that tests sent"),
        ("lost_packets", "Packets that tests lost"),
    ];
    let all = totals.iter().map(|sum| (&*sum.sender, &*sum.receiver, [sum.tests, sum.sent, sum.lost]));
    let of_sites = |sender: &str, receiver: &str| [of_site(sender, "sent"), of_site(receiver, "received")];
    counters(registry, shown, kinds, all, of_sites);
}

/// What sites lose: medians. In counters one partner outweighs all others by very many results.
fn losses(registry: &mut Registry, shown: &Shown, day: &[PairSum]) {
    let mut of_sites = BTreeMap::<(&str, &'static str), Vec<f64>>::new();
    for sum in day.iter().filter(|sum| sum.sent > 0 && shown.has(&sum.sender, &sum.receiver)) {
        for (site, direction) in [(sum.sender.as_str(), "sent"), (sum.receiver.as_str(), "received")] {
            of_sites.entry((site, direction)).or_default().push(sum.lost as f64 / sum.sent as f64);
        }
    }
    let sites = Family::<Labels, Share>::default();
    for ((site, direction), shares) in of_sites {
        if let Some(share) = measured::middle(shares, f64::total_cmp) {
            sites.get_or_create(&of_site(site, direction)).set(share);
        }
    }
    let help = "Median over the partners of the site: share of the packets of a day that were lost";
    registry.register("site_loss_ratio", help, sites);
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
