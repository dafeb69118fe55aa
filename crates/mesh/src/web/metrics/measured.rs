//! Round trips and TCP as Prometheus reads them: medians as gauges, probes and outages as counters.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Labels, Share, Shown, counters, of_pair, of_site};
use crate::store::{DAY_NS, Metric, OfPair, Series, Span, StoreError};

/// Round trips are those of the hour and the two before: results come every few minutes.
const ROUND_TRIPS_NS: i64 = DAY_NS / 8;
/// TCP is tested every few hours.
const GOODPUT_NS: i64 = DAY_NS;

/// What the store has.
pub(super) struct Found {
    round_trips: Vec<OfPair>,
    /// Of all time: probes and outages.
    probes: Vec<OfPair>,
    goodput: Vec<OfPair>,
}

impl Found {
    /// Reads it as it is at `now_ns`.
    pub(super) async fn read(series: &Series, now_ns: i64) -> Result<Self, StoreError> {
        Ok(Self {
            round_trips: series.matrix(Metric::RoundTrip, Span::ending(now_ns, ROUND_TRIPS_NS)).await?,
            probes: series.totals(Metric::RoundTrip).await?,
            goodput: series.matrix(Metric::Goodput, Span::ending(now_ns, GOODPUT_NS)).await?,
        })
    }

    /// Without sites that are no longer in the mesh.
    pub(super) fn register(&self, registry: &mut Registry, shown: &Shown) {
        round_trips(registry, shown, &self.round_trips);
        probes(registry, shown, &self.probes);
        goodput(registry, shown, &self.goodput);
    }
}

fn round_trips(registry: &mut Registry, shown: &Shown, found: &[OfPair]) {
    let (medians, p99) = (Family::<Labels, Share>::default(), Family::<Labels, Share>::default());
    let seconds = |ns: i64| ns as f64 / 1e9;
    let mut of_sites = BTreeMap::<&str, Vec<i64>>::new();
    for ((sender, receiver), figures) in found.iter().filter(|((sender, receiver), _)| shown.has(sender, receiver)) {
        let labels = of_pair(sender, receiver);
        for (family, ns) in [(&medians, figures.median), (&p99, figures.beside)] {
            if let Some(ns) = ns.filter(|_| shown.pairs) {
                family.get_or_create(&labels).set(seconds(ns));
            }
        }
        for site in [sender, receiver] {
            of_sites.entry(site).or_default().extend(figures.median);
        }
    }
    if shown.pairs {
        let help = "Median round trip of the last hours; the sender is the site that probes";
        registry.register("pair_round_trip_median_seconds", help, medians);
        registry.register("pair_round_trip_p99_seconds", "99 % of the round trips of the last hours are within", p99);
    }
    let sites = Family::<Labels, Share>::default();
    for (site, values) in of_sites {
        if let Some(ns) = middle(values, i64::cmp) {
            sites.get_or_create(&vec![("site", site.to_owned())]).set(seconds(ns));
        }
    }
    let help = "Median over the partners of the site: median round trip of the last hours";
    registry.register("site_round_trip_median_seconds", help, sites);
}

fn probes(registry: &mut Registry, shown: &Shown, found: &[OfPair]) {
    let kinds = [
        ("probes", "Probes of round trips that were sent"),
        ("lost_probes", "Probes that were not answered"),
        ("outages", "Runs of lost probes that lasted a second or more"),
    ];
    let all = found.iter().map(|((sender, receiver), of)| (&**sender, &**receiver, [of.sent, of.lost, of.outages]));
    let of_sites = |sender: &str, receiver: &str| [sender, receiver].map(|site| vec![("site", site.to_owned())]);
    counters(registry, shown, kinds, all, of_sites);
}

fn goodput(registry: &mut Registry, shown: &Shown, found: &[OfPair]) {
    let (carried, paced) = (Family::<Labels, Share>::default(), Family::<Labels, Share>::default());
    let mut of_sites = BTreeMap::<(&str, &'static str), Vec<i64>>::new();
    for ((sender, receiver), figures) in found.iter().filter(|((sender, receiver), _)| shown.has(sender, receiver)) {
        let labels = of_pair(sender, receiver);
        for (family, bps) in [(&carried, figures.median), (&paced, figures.beside)] {
            if let Some(bps) = bps.filter(|_| shown.pairs) {
                family.get_or_create(&labels).set(bps as f64);
            }
        }
        for (site, direction) in [(sender.as_str(), "sent"), (receiver.as_str(), "received")] {
            of_sites.entry((site, direction)).or_default().extend(figures.median);
        }
    }
    if shown.pairs {
        let help = "Median goodput of TCP over a day: payload bits a second";
        registry.register("pair_goodput_bits_per_second", help, carried);
        let help = "Median of the rates that TCP was paced to over a day: payload bits a second";
        registry.register("pair_paced_bits_per_second", help, paced);
    }
    let sites = Family::<Labels, Share>::default();
    for ((site, direction), values) in of_sites {
        if let Some(bps) = middle(values, i64::cmp) {
            sites.get_or_create(&of_site(site, direction)).set(bps as f64);
        }
    }
    let help = "Median over the partners of the site: median goodput of TCP over a day, payload bits a second";
    registry.register("site_goodput_bits_per_second", help, sites);
}

/// The middle value by `order`; of two in the middle the greater one.
pub(super) fn middle<T: Copy>(mut values: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> Option<T> {
    values.sort_unstable_by(order);
    values.get(values.len() / 2).copied()
}
