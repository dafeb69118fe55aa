//! Random valid paths, for properties.

use std::sync::Arc;

use longhaul_path::law::Table;
use longhaul_path::spec::*;
use longhaul_units::{BitRate, Bytes, Nanos};
use proptest::prelude::*;

fn chance() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), Just(1.0), Just(1e-300), 0.0..1.0].prop_map(Probability)
}

fn queue() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        Just(QueueLimit::Unlimited),
        (1u64..1 << 40).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (1u64..1_000_000_000).prop_map(QueueLimit::Packets),
    ]
}

fn rate() -> impl Strategy<Value = Option<BitRate>> {
    prop::option::of((2_000u64..10_000_000_000_000).prop_map(BitRate))
}

fn mtu() -> impl Strategy<Value = Option<MtuSpec>> {
    prop::option::of((68u32..=65_535, any::<bool>()).prop_map(|(bytes, icmp)| MtuSpec { bytes, icmp }))
}

fn policer() -> impl Strategy<Value = Option<PolicerSpec>> {
    let parts = (2_000u64..10_000_000_000_000, 1u64..1 << 40);
    prop::option::of(parts.prop_map(|(rate, burst)| PolicerSpec { rate: BitRate(rate), burst: Bytes(burst) }))
}

const MONTH_NS: u64 = 30 * 86_400_000_000_000;

fn loss() -> impl Strategy<Value = LossSpec> {
    prop_oneof![
        Just(LossSpec::None),
        chance().prop_map(LossSpec::Random),
        any::<std::num::NonZeroU64>().prop_map(LossSpec::Every),
        [chance(), chance(), chance(), chance()].prop_map(|[p, r, h, k]| LossSpec::GilbertElliott { p, r, h, k }),
        (1..=MONTH_NS / 2, MONTH_NS / 2..=MONTH_NS, chance(), chance()).prop_map(
            |(lasting, every, lost, otherwise)| {
                LossSpec::Bursts(BurstLoss { lasting: Nanos(lasting), every: Nanos(every), lost, otherwise })
            }
        ),
        prop::collection::btree_set(prop_oneof![1u64..30, 1..=u64::MAX], 0..20)
            .prop_map(|numbers| LossSpec::List(numbers.into_iter().collect())),
    ]
}

fn outage() -> impl Strategy<Value = Outage> {
    (0..=MONTH_NS, 1..=MONTH_NS / 2, prop::option::of(MONTH_NS / 2..=MONTH_NS))
        .prop_map(|(at, lasting, every)| Outage { at: Nanos(at), lasting: Nanos(lasting), every: every.map(Nanos) })
}

fn law() -> impl Strategy<Value = Law> {
    let table = prop::collection::vec(-5.0..5.0f64, 1..20).prop_map(|q| Law::Table(Arc::new(Table::new(q).unwrap())));
    prop_oneof![prop::sample::select(vec![Law::Normal, Law::Uniform, Law::Pareto, Law::ParetoNormal]), table]
}

fn jitter(delay: u64) -> impl Strategy<Value = Option<JitterSpec>> {
    let order = prop::sample::select(vec![Order::Fifo, Order::Free]);
    let correlation = prop::option::of((1..=86_400_000_000_000u64).prop_map(Nanos));
    prop::option::of(
        (law(), 0..=delay / 3, order, correlation).prop_map(|(law, stddev, order, correlation)| JitterSpec {
            law,
            stddev: Nanos(stddev),
            order,
            correlation,
        }),
    )
}

fn coalesce() -> impl Strategy<Value = Option<CoalesceSpec>> {
    prop::option::of(
        (1u64..=1_000_000_000, prop::option::of(1u64..=1_000_000)).prop_map(|(time, count)| CoalesceSpec {
            time: Nanos(time),
            count: count.and_then(std::num::NonZeroU64::new),
        }),
    )
}

fn hop() -> impl Strategy<Value = HopSpec> {
    let layer = prop::sample::select(vec![Layer::L1, Layer::L2]);
    let timing = (0u64..=10_000_000_000).prop_flat_map(|delay| (Just(Nanos(delay)), jitter(delay)));
    let fate = (loss(), prop::collection::vec(outage(), 0..3), chance(), chance(), (mtu(), policer()));
    (fate, queue(), rate(), layer, timing, delay_steps(), coalesce()).prop_map(
        |(
            (loss, outages, duplicate, corrupt, (mtu, policer)),
            queue,
            rate,
            layer,
            (delay, jitter),
            delay_steps,
            coalesce,
        )| {
            HopSpec {
                name: None,
                loss,
                outages,
                duplicate,
                corrupt,
                mtu,
                policer,
                queue,
                rate,
                layer,
                delay,
                delay_steps,
                jitter,
                coalesce,
            }
        },
    )
}

fn delay_steps() -> impl Strategy<Value = DelaySteps> {
    // No shorter than the hop's own delay: jitter is bounded by the shortest.
    let delay = || Just(Nanos(10_000_000_000));
    let lasting = prop::option::of((1..=MONTH_NS / 2).prop_map(Nanos));
    let every = prop::option::of((MONTH_NS / 2..=MONTH_NS).prop_map(Nanos));
    let step = ((0..=MONTH_NS).prop_map(Nanos), delay(), lasting, every);
    let step = step.prop_map(|(at, delay, lasting, every)| DelayStep { at, delay, lasting, every });
    let random = ((1_000..=MONTH_NS).prop_map(Nanos), prop::collection::vec(delay(), 1..4));
    prop_oneof![
        prop::collection::vec(step, 0..3).prop_map(DelaySteps::At),
        random.prop_map(|(every, delays)| DelaySteps::Random { every, delays }),
    ]
}

fn host() -> impl Strategy<Value = HostSpec> {
    (rate(), 0u64..=10_000_000_000, queue(), prop::option::of(68u32..=65_535))
        .prop_map(|(rate, delay, queue, mtu)| HostSpec { name: None, rate, delay: Nanos(delay), queue, mtu })
}

/// A path that is valid; some hops are in both directions, some hops and hosts have names.
pub(crate) fn any_path() -> impl Strategy<Value = PathSpec> {
    let hops = || prop::collection::vec(hop(), 0..3);
    let hosts = || prop::collection::vec(host(), 0..3);
    let titles = ["[ -~äµ]{0,20}", "[ -~äµ'\"\\\\]{0,20}"];
    (titles, hops(), hops(), hops(), hosts(), hosts(), any::<bool>()).prop_map(
        |([name, source], both, forward, backward, mut clients, mut servers, named)| {
            let mut spec = PathSpec { name, source, ..PathSpec::default() };
            spec.forward = both.iter().cloned().chain(forward).collect();
            spec.backward = backward.into_iter().chain(both.into_iter().rev()).collect();
            if named {
                let hops = spec.forward.iter_mut().chain(spec.backward.iter_mut()).enumerate();
                hops.for_each(|(index, hop)| hop.name = Some(format!("h{index}")));
                let hosts = clients.iter_mut().chain(servers.iter_mut()).enumerate();
                hosts.for_each(|(index, host)| host.name = Some(format!("host-{index}")));
            }
            PathSpec { clients, servers, ..spec }
        },
    )
}
