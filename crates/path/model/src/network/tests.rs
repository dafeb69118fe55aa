//! The network as a whole, in virtual time.

mod delay_steps;
mod mtu;

use std::collections::HashMap;
use std::num::NonZeroU64;

use longhaul_units::{BitRate, Bytes};
use proptest::prelude::*;

use super::*;
use crate::law::{self, Law};
use crate::spec::{
    BurstLoss, CoalesceSpec, DelayStep, DelaySteps, JitterSpec, Layer, LossSpec, MtuSpec, Order, Outage, PolicerSpec,
    Probability, QueueLimit,
};

/// A single frame of `bytes`.
fn single(bytes: u32) -> Shape {
    Shape {
        segments: 1,
        header_bytes: bytes,
        segment_payload_bytes: 0,
        payload_bytes: 0,
        total_bytes: bytes,
        is_tunnel: false,
        cut_behind_bytes: 0,
    }
}

/// A super-packet of `segments` frames of 1514 bytes.
fn superpacket(segments: u32) -> Shape {
    let payload_bytes = 1448 * segments;
    Shape {
        segments,
        header_bytes: 66,
        segment_payload_bytes: 1448,
        payload_bytes,
        total_bytes: 66 + payload_bytes,
        is_tunnel: false,
        cut_behind_bytes: 0,
    }
}

fn path(forward: Vec<HopSpec>) -> PathSpec {
    PathSpec {
        name: "test".into(),
        source: String::new(),
        forward,
        backward: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
    }
}

fn delay(ms: u64) -> HopSpec {
    HopSpec { delay: Nanos::from_millis(ms), ..HopSpec::default() }
}

const CLIENT: PortId = PortId(0);
const SERVER: PortId = PortId(1);

/// Runs until nothing is in flight.
fn drain(network: &mut Network) -> Vec<Release> {
    let mut released = Vec::new();
    loop {
        while let Some(packet) = network.too_long() {
            network.tell(packet, None);
        }
        let Some(at) = network.deadline() else { break };
        network.advance(at);
        while let Some(release) = network.release() {
            assert!(release.due <= network.now, "released before it was due");
            released.push(release);
        }
    }
    released
}

/// The single packets of `released`, as (token, index).
fn packets(released: &[Release]) -> Vec<(u64, u32)> {
    released.iter().flat_map(|r| (r.first..r.first + r.count).map(move |i| (r.token, i))).collect()
}

#[test]
fn delay_is_exact_and_directions_are_apart() {
    let mut spec = path(vec![delay(10)]);
    spec.backward = vec![delay(20)];
    let mut network = Network::new(&spec, Options::default());
    network.arrive(Nanos(5), CLIENT, Destination::Port(SERVER), single(98), 1);
    network.arrive(Nanos(7), SERVER, Destination::Port(CLIENT), single(98), 2);
    assert_eq!(network.deadline(), Some(Nanos(10_000_005)));
    network.advance(Nanos(10_000_004));
    assert_eq!(network.release(), None);
    let released = drain(&mut network);
    assert_eq!(
        released.iter().map(|r| (r.token, r.port, r.due.0)).collect::<Vec<_>>(),
        [(1, SERVER, 10_000_005), (2, CLIENT, 20_000_007)]
    );
    assert!(released.iter().all(|r| r.last));
    assert_eq!(network.frames_in_flight(), 0);
}

/// Through an access link of 25 Gb/s and a hop of 10 Gb/s a super-packet of 45 × 1514 bytes takes 45 × 1230.4 ns on the
/// slow hop, the first packet's time on the fast ones besides, and is split where its times span more than 50 µs.
#[test]
fn a_superpacket_leaves_at_the_time_of_its_last_packet() {
    let spec = path(vec![HopSpec { rate: Some(BitRate::from_gbit(10)), ..delay(10) }]);
    let mut network = Network::new(&spec, Options::default());
    network.arrive(Nanos(0), CLIENT, Destination::Port(SERVER), superpacket(45), 1);
    let released = drain(&mut network);
    // Down at 25 Gb/s each packet takes another 492 ns.
    let due = |packet: f64| (492.16 + packet * 1230.4 + 10e6 + 492.16) as u64;
    assert_eq!(released.iter().map(|r| (r.first, r.count)).collect::<Vec<_>>(), [(0, 41), (41, 4)]);
    for (release, packet) in released.iter().zip([41.0, 45.0]) {
        assert!(release.due.0.abs_diff(due(packet)) <= 3, "{} against {}", release.due.0, due(packet));
    }
}

#[test]
fn every_nth_wire_packet_is_lost_in_superpackets() {
    let hop = HopSpec { loss: LossSpec::Every(NonZeroU64::new(100).unwrap()), ..delay(1) };
    for segmentation in [Segmentation::Auto, Segmentation::Wire] {
        let mut network = Network::new(&path(vec![hop.clone()]), Options { segmentation, ..Options::default() });
        for token in 0..100 {
            let at = Nanos::from_micros(token * 100);
            network.arrive(at, CLIENT, Destination::Port(SERVER), superpacket(45), token);
        }
        let got = packets(&drain(&mut network));
        let want: Vec<_> = (0..4500).filter(|n| (n + 1) % 100 != 0).map(|n| (n / 45, (n % 45) as u32)).collect();
        assert_eq!(got, want, "{segmentation:?}");
        assert_eq!(network.hops().map(|h| h.counters.dropped_loss.packets).sum::<u64>(), 45);
    }
}

/// 1 s of more than enough packets through 1 Gb/s, counted at L1 and at L2.
#[test]
fn a_rate_holds() {
    for (layer, bytes_on_layer) in [(Layer::L1, 1538.0), (Layer::L2, 1514.0)] {
        let hop = HopSpec {
            rate: Some(BitRate::from_gbit(1)),
            layer,
            queue: QueueLimit::Packets(1000),
            ..HopSpec::default()
        };
        let mut network = Network::new(&path(vec![hop]), Options::default());
        for i in 0..2_000 {
            network.advance(Nanos::from_micros(i * 500));
            let at = Nanos::from_micros(i * 500);
            network.arrive(at, CLIENT, Destination::Port(SERVER), superpacket(45), i);
        }
        let released = drain(&mut network);
        let within: u32 = released.iter().filter(|r| r.due <= Nanos::from_secs(1)).map(|r| r.count).sum();
        let rate = f64::from(within) * bytes_on_layer * 8.0;
        assert!((rate / 1e9 - 1.0).abs() < 0.0005, "{layer:?}: {rate} bit/s");
    }
}

/// 1 Gb/s and 100 packets' worth of tokens, fed at 10 Gb/s for 10 ms: each wire packet meets the bucket at its own time, alone or in a
/// train, and those that pass are not delayed. Only rate + burst pass.
#[test]
fn a_policer_drops_one_by_one() {
    let policer = Some(PolicerSpec { rate: BitRate::from_gbit(1), burst: Bytes(153_800) });
    let access = HostSpec { rate: Some(BitRate::from_gbit(10)), ..HostSpec::default() };
    let mut spec = path(vec![HopSpec { policer, ..delay(1) }]);
    (spec.clients, spec.servers) = (vec![access], vec![HostSpec::default()]);
    let [auto, wire] = [Segmentation::Auto, Segmentation::Wire].map(|segmentation| {
        let mut network = Network::new(&spec, Options { segmentation, ..Options::default() });
        for token in 0..180 {
            network.arrive(Nanos(token * 55_368), CLIENT, Destination::Port(SERVER), superpacket(45), token);
        }
        let got = packets(&drain(&mut network));
        let dropped = network.hops().map(|hop| hop.counters.dropped_policer.packets).sum::<u64>();
        assert_eq!(got.len() as u64 + dropped, 180 * 45);
        got
    });
    assert_eq!(auto, wire);
    // A twin by hand: packet n is whole after n · 1230.4 ns; tokens in bytes.
    let (mut tokens, mut last, mut want) = (153_800.0f64, 0.0, Vec::new());
    for n in 0..180 * 45u64 {
        let at = ((n + 1) as f64 * 1230.4).floor();
        tokens = (tokens + (at - last) * 0.125).min(153_800.0);
        last = at;
        if tokens >= 1538.0 {
            tokens -= 1538.0;
            want.push((n / 45, (n % 45) as u32));
        }
    }
    assert_eq!(wire, want);
    // 100 from the bucket, and a tenth of those after the first, at which it was still full: 909.9.
    assert_eq!(want.len(), 909);
}

/// Two hosts 40 ms and 1 ms from the shared queue: what reaches it first is served first, whoever sent first.
#[test]
fn hosts_share_one_queue() {
    let host = |ms| HostSpec { delay: Nanos::from_millis(ms), ..HostSpec::default() };
    let bottleneck = HopSpec { rate: Some(BitRate(100_000_000)), queue: QueueLimit::Packets(10), ..HopSpec::default() };
    let mut spec = path(vec![bottleneck]);
    spec.clients = vec![host(40), host(1)];
    let (far, near, server) = (PortId(0), PortId(1), PortId(2));
    let mut network = Network::new(&spec, Options { segmentation: Segmentation::Wire, ..Options::default() });
    // A 1514-byte packet takes 123 µs; each host sends one every 100 µs: together 2.46 times the rate.
    for i in 0..1000 {
        let at = Nanos::from_micros(i * 100);
        network.advance(at);
        network.arrive(at, far, Destination::Port(server), single(1514), i);
        network.arrive(at + Nanos(50_000), near, Destination::Port(server), single(1514), 10_000 + i);
    }
    let released = drain(&mut network);
    // A twin of one queue, worked out by hand: arrivals merged by time, ten wait, the rest is dropped.
    let mut arrivals: Vec<(u64, u64)> = (0..1000)
        .flat_map(|i| [(i * 100_000 + 40_000_000, i), (i * 100_000 + 50_000 + 1_000_000, 10_000 + i)])
        // The access link at 10 Gb/s.
        .map(|(at, token)| (at + 1230, token))
        .collect();
    arrivals.sort_unstable();
    let (mut busy, mut starts, mut want) = (0, Vec::<u64>::new(), Vec::new());
    for (at, token) in arrivals {
        starts.retain(|&start| start > at);
        if at >= busy {
            busy = at;
        } else if starts.len() == 10 {
            continue;
        } else {
            starts.push(busy);
        }
        busy += 123_040;
        want.push(token);
    }
    assert_eq!(released.iter().map(|r| r.token).collect::<Vec<_>>(), want);
    let dropped = network.hops().map(|h| h.counters.dropped_queue.packets).sum::<u64>();
    assert_eq!(dropped, 2000 - want.len() as u64);
}

#[test]
fn broadcast_reaches_every_other_host_once() {
    let mut spec = path(vec![delay(5)]);
    spec.clients = vec![HostSpec::default(); 2];
    spec.servers = vec![HostSpec::default(); 3];
    let mut network = Network::new(&spec, Options::default());
    network.arrive(Nanos(0), PortId(0), Destination::All, single(60), 9);
    let mut ports: Vec<_> = drain(&mut network).iter().map(|r| (r.due.0, r.port.0)).collect();
    ports.sort_unstable();
    assert_eq!(ports, [(0, 1), (5_000_000, 2), (5_000_000, 3), (5_000_000, 4)]);
    assert_eq!(network.frames_in_flight(), 0);
}

/// A link of 8 Mb/s (L1) takes 84 µs for a frame of 60 bytes, whoever it is for.
#[test]
fn a_broadcast_passes_the_senders_link_once() {
    let slow = HostSpec { rate: Some(BitRate(8_000_000)), queue: QueueLimit::Packets(1), ..HostSpec::default() };
    let fast = HostSpec { rate: Some(BitRate::from_gbit(100)), ..HostSpec::default() };
    let mut spec = path(vec![delay(5)]);
    spec.clients = vec![slow, fast.clone(), fast.clone(), fast.clone()];
    spec.servers = vec![fast.clone(), fast];
    for segmentation in [Segmentation::Auto, Segmentation::Wire] {
        let mut network = Network::new(&spec, Options { segmentation, ..Options::default() });
        network.arrive(Nanos(0), PortId(0), Destination::All, single(60), 1);
        network.arrive(Nanos(0), PortId(0), Destination::Port(PortId(5)), single(60), 2);
        let due = |release: &Release| (release.token, release.port.0, release.due.0 / 1000);
        let mut released: Vec<_> = drain(&mut network).iter().map(due).collect();
        released.sort_unstable();
        assert_eq!(released, [(1, 1, 84), (1, 2, 84), (1, 3, 84), (1, 4, 5084), (1, 5, 5084), (2, 5, 5168)]);
        let ups = network.hops().filter(|hop| hop.place == HopPlace::Up(PortId(0)));
        let passed: Vec<_> = ups.map(|hop| (hop.counters.arrived.packets, hop.counters.departed.packets)).collect();
        assert_eq!(passed, [(2, 2)]);
        assert_eq!(network.frames_in_flight(), 0);
    }
}

fn jittered(law: Law, order: Order) -> HopSpec {
    let stddev = Nanos::from_micros(100);
    HopSpec { jitter: Some(JitterSpec { law, stddev, order, correlation: None }), ..delay(10) }
}

/// Delays of `count` packets that arrive `gap` apart, around the mean, in standard deviations.
fn delays(law: Law, order: Order, gap: Nanos, count: u64) -> Vec<f64> {
    delays_behind(jittered(law, order), gap, count)
}

fn delays_behind(hop: HopSpec, gap: Nanos, count: u64) -> Vec<f64> {
    let mut network = Network::new(&path(vec![hop]), Options::default());
    for i in 0..count {
        network.arrive(Nanos(gap.0 * i), CLIENT, Destination::Port(SERVER), single(1000), i);
    }
    let released = drain(&mut network);
    assert_eq!(released.len() as u64, count);
    released.iter().map(|r| ((r.due.0 - r.token * gap.0) as f64 - 10e6) / 100e3).collect()
}

/// Each law in each order, against its distribution function.
#[test]
fn jitter_follows_its_law() {
    for law in [Law::Normal, Law::Uniform, Law::Pareto, Law::ParetoNormal] {
        for order in [Order::Fifo, Order::Free] {
            // 30 ms are more than two epochs of any law, so delays are independent.
            let got = delays(law.clone(), order, Nanos::from_millis(30), 4000);
            let found = law::tests::deviation(&got, &law);
            assert!(found < 1.949, "{law:?} {order:?}: {found}");
            let mut sorted = got.clone();
            sorted.sort_by(f64::total_cmp);
            for q in [0.05, 0.25, 0.5, 0.75, 0.95] {
                let error = sorted[(q * 4000.0) as usize] - law.quantile(q);
                assert!(error.abs() < 0.15, "{law:?} {order:?}: quantile {q} is off by {error} standard deviations");
            }
        }
    }
}

/// Packets 20 µs apart under a jitter of 100 µs: in order, and neither mean nor deviation move, where clamping
/// independent delays into order would add some three standard deviations.
#[test]
fn fifo_jitter_keeps_the_mean_of_dense_traffic() {
    for law in [Law::Normal, Law::Uniform, Law::Pareto, Law::ParetoNormal] {
        let got = delays(law.clone(), Order::Fifo, Nanos::from_micros(20), 1_500_000);
        let mean = got.iter().sum::<f64>() / got.len() as f64;
        let variance = got.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / got.len() as f64;
        // 30 s hold 18,750 epochs of 16 standard deviations, 2,343 of 128.
        let epochs: f64 = if matches!(law, Law::Normal | Law::Uniform) { 18_750.0 } else { 2_343.0 };
        assert!(mean.abs() < 4.0 / epochs.sqrt() + 0.005, "{law:?}: mean is off by {mean} standard deviations");
        // The variance of a Pareto law of shape 3 has no variance of its own: judge it for the others.
        if matches!(law, Law::Normal | Law::Uniform) {
            assert!((variance - 1.0).abs() < 0.05, "{law:?}: variance {variance}");
        }
    }
}

/// Delays a correlation time apart have a correlation of 1/e, twice that far apart (more than two epochs) none; the law stays.
#[test]
fn jitter_correlates_over_the_time_asked() {
    for order in [Order::Fifo, Order::Free] {
        let mut hop = jittered(Law::Normal, order);
        hop.jitter.as_mut().unwrap().correlation = Some(Nanos::from_millis(20));
        let got = delays_behind(hop, Nanos::from_millis(1), 400_000);
        let mean = got.iter().sum::<f64>() / got.len() as f64;
        let variance = got.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / got.len() as f64;
        // 400 s hold 18,750 epochs of 21.3 ms.
        assert!(mean.abs() < 4.0 / 137.0 && (variance - 1.0).abs() < 0.05, "{order:?}: {mean}, {variance}");
        let told = |lag: u64| jitter_correlation(Nanos::from_millis(lag), Nanos::from_millis(20));
        for (lag, want) in
            [(5, told(5)), (20, (-1f64).exp()), (20, told(20)), (30, told(30)), (43, 0.0), (43, told(43))]
        {
            let lag = lag as usize;
            let products = got.windows(lag + 1).map(|pair| (pair[0] - mean) * (pair[lag] - mean));
            let found = products.sum::<f64>() / (got.len() - lag) as f64 / variance;
            assert!((found - want).abs() < 0.03, "{order:?}: correlation {found} at {lag} ms, {want} asked");
        }
    }
}

#[test]
fn coalescing_by_time_and_by_count() {
    let batch = |time: u64, count: Option<u64>| HopSpec {
        coalesce: Some(CoalesceSpec { time: Nanos::from_micros(time), count: count.and_then(NonZeroU64::new) }),
        ..delay(1)
    };
    for (hop, want) in [
        // Opened at 0 and 30 µs by packets every 10 µs: what comes at the closing time still belongs.
        (batch(20, None), vec![20, 20, 20, 50, 50, 50]),
        (batch(20, Some(2)), vec![10, 10, 30, 30, 50, 50]),
        (batch(100, Some(4)), vec![30, 30, 30, 30, 140, 140]),
    ] {
        let mut network = Network::new(&path(vec![hop]), Options::default());
        for i in 0..6 {
            network.arrive(Nanos::from_micros(10 * i), CLIENT, Destination::Port(SERVER), single(60), i);
        }
        let due: Vec<_> = drain(&mut network).iter().map(|r| r.due.0 / 1000 - 1000).collect();
        assert_eq!(due, want);
    }
}

#[test]
fn a_batch_gathers_the_pieces_of_a_superpacket() {
    let rate = HopSpec { rate: Some(BitRate::from_gbit(1)), ..HopSpec::default() };
    let batch =
        HopSpec { coalesce: Some(CoalesceSpec { time: Nanos::from_millis(1), count: None }), ..HopSpec::default() };
    let mut network = Network::new(&path(vec![rate, batch]), Options::default());
    network.arrive(Nanos(0), CLIENT, Destination::Port(SERVER), superpacket(45), 1);
    // The down link at 10 Gb/s spreads the batch over 55 µs again.
    let released: Vec<_> = drain(&mut network).iter().map(|r| (r.first, r.count, r.last)).collect();
    assert_eq!(released, [(0, 41, false), (41, 4, true)]);
    assert_eq!(network.frames_in_flight(), 0);
}

#[test]
fn a_change_loses_nothing_in_flight() {
    let mut spec = path(vec![HopSpec { rate: Some(BitRate::from_gbit(10)), ..delay(100) }]);
    let mut network = Network::new(&spec, Options::default());
    for i in 0..1000 {
        let at = Nanos::from_micros(i * 100);
        network.advance(at);
        network.arrive(at, CLIENT, Destination::Port(SERVER), superpacket(20), i);
        if i % 100 == 50 {
            spec.forward[0].delay = Nanos::from_millis(i % 7 * 10);
            spec.forward[0].coalesce =
                (i % 200 == 50).then_some(CoalesceSpec { time: Nanos::from_micros(500), count: None });
            network.update(&spec);
        }
    }
    let got = packets(&drain(&mut network));
    let want: Vec<_> = (0..20_000).map(|n| (n / 20, (n % 20) as u32)).collect();
    assert_eq!(got, want, "lost, duplicated or out of order");
}

/// A change, and behind which packet it is made.
type ChangeAt = (u64, fn(&mut HopSpec));

/// Packets are counted on while other keys change, and random losses stay where they were; a change of the loss begins anew.
#[test]
fn a_change_of_other_keys_leaves_the_loss_alone() {
    let lost = |spec: &HopSpec, changes: &[ChangeAt]| {
        let mut spec = path(vec![spec.clone()]);
        let mut network = Network::new(&spec, Options::default());
        for i in 1..=400 {
            network.arrive(Nanos::from_micros(i), CLIENT, Destination::Port(SERVER), single(100), i);
            for (_, change) in changes.iter().filter(|(at, _)| *at == i) {
                network.advance(Nanos::from_micros(i));
                change(&mut spec.forward[0]);
                network.update(&spec);
            }
        }
        let came: Vec<u64> = drain(&mut network).iter().map(|release| release.token).collect();
        (1..=400).filter(|number| !came.contains(number)).collect::<Vec<u64>>()
    };
    let every = |n| LossSpec::Every(NonZeroU64::new(n).unwrap());
    let others: [ChangeAt; 5] = [
        (50, |hop| hop.delay = Nanos::from_millis(2)),
        (110, |hop| hop.rate = Some(BitRate::from_gbit(10))),
        (130, |hop| hop.corrupt = Probability(0.1)),
        (210, |hop| hop.jitter = jittered(Law::Normal, Order::Fifo).jitter),
        (215, |hop| hop.coalesce = Some(CoalesceSpec { time: Nanos::from_micros(9), count: None })),
    ];
    let counted = HopSpec { loss: every(100), ..delay(1) };
    assert_eq!(lost(&counted, &others), [100, 200, 300, 400]);
    let random = HopSpec { loss: LossSpec::Random(Probability(0.1)), ..delay(1) };
    assert_eq!(lost(&random, &others), lost(&random, &[]));
    assert_eq!(
        lost(&counted, &[(150, |hop| hop.loss = LossSpec::Every(NonZeroU64::new(70).unwrap()))]),
        [100, 220, 290, 360]
    );
    assert_ne!(lost(&random, &[(1, |hop| hop.loss = LossSpec::Random(Probability(0.1001)))]), lost(&random, &[]));
}

/// Random losses do not depend on which of two keys was changed first, nor on how often others were.
#[test]
fn the_order_of_changes_does_not_matter() {
    let lost = |changes: &[fn(&mut HopSpec)]| {
        let mut spec = path(vec![delay(1)]);
        let mut network = Network::new(&spec, Options::default());
        for change in changes {
            change(&mut spec.forward[0]);
            network.update(&spec);
        }
        for i in 1..=400 {
            network.arrive(Nanos::from_micros(i), CLIENT, Destination::Port(SERVER), single(100), i);
        }
        let released = drain(&mut network);
        released.iter().map(|release| (release.token, release.corrupt.is_some())).collect::<Vec<_>>()
    };
    let loss: fn(&mut HopSpec) = |hop| hop.loss = LossSpec::Random(Probability(0.1));
    let corrupt: fn(&mut HopSpec) = |hop| hop.corrupt = Probability(0.1);
    let rate: fn(&mut HopSpec) = |hop| hop.rate = Some(BitRate::from_gbit(10));
    let want = lost(&[loss, corrupt, rate]);
    assert!(want.len() < 400);
    for order in [[corrupt, loss, rate], [rate, corrupt, loss], [loss, rate, corrupt]] {
        assert_eq!(lost(&order), want);
    }
    assert_ne!(lost(&[loss, |hop| hop.loss = LossSpec::None, loss]), lost(&[loss]), "a loss that begins anew");
}

fn any_hop() -> impl Strategy<Value = HopSpec> {
    let loss = prop_oneof![
        Just(LossSpec::None),
        (0.0..0.3).prop_map(|p| LossSpec::Random(Probability(p))),
        (1u64..50).prop_map(|n| LossSpec::Every(NonZeroU64::new(n).unwrap())),
        Just(LossSpec::GilbertElliott {
            p: Probability(0.1),
            r: Probability(0.3),
            h: Probability(0.1),
            k: Probability(0.99)
        }),
        (1u64..2_000).prop_map(|us| LossSpec::Bursts(BurstLoss {
            lasting: Nanos::from_micros(us),
            every: Nanos::from_micros(2_000),
            lost: Probability(0.8),
            otherwise: Probability(0.01),
        })),
    ];
    let queue = prop_oneof![
        Just(QueueLimit::Unlimited),
        (1u64..100).prop_map(QueueLimit::Packets),
        (1500u64..200_000).prop_map(|b| QueueLimit::Bytes(Bytes(b)))
    ];
    let rate = proptest::option::of((10_000_000u64..40_000_000_000).prop_map(BitRate));
    let correlation = proptest::option::of((1u64..1_000).prop_map(Nanos::from_micros));
    let jitter = proptest::option::of((any::<bool>(), correlation).prop_map(|(free, correlation)| JitterSpec {
        law: Law::Normal,
        stddev: Nanos::from_micros(20),
        order: if free { Order::Free } else { Order::Fifo },
        correlation,
    }));
    let coalesce =
        proptest::option::of((1u64..200, proptest::option::of(1u64..40)).prop_map(|(us, count)| CoalesceSpec {
            time: Nanos::from_micros(us),
            count: count.and_then(NonZeroU64::new),
        }));
    let outage = proptest::option::of((0u64..5).prop_map(|ms| Outage {
        at: Nanos::from_millis(ms),
        lasting: Nanos::from_micros(300),
        every: Some(Nanos::from_millis(2)),
    }));
    let us = Nanos::from_micros;
    let steps = prop_oneof![
        Just(DelaySteps::default()),
        (0u64..5_000, 60u64..2_000).prop_map(move |(at, delay)| DelaySteps::At(vec![DelayStep {
            at: us(at),
            delay: us(delay),
            lasting: Some(us(300)),
            every: Some(us(1_000)),
        }])),
        (60u64..2_000).prop_map(move |delay| DelaySteps::Random { every: us(500), delays: vec![us(delay), us(100)] }),
    ];
    let policer = proptest::option::of(
        (100_000_000u64..40_000_000_000, 1_500u64..200_000)
            .prop_map(|(rate, burst)| PolicerSpec { rate: BitRate(rate), burst: Bytes(burst) }),
    );
    let mtu = proptest::option::of((500u32..2_000, any::<bool>()).prop_map(|(bytes, icmp)| MtuSpec { bytes, icmp }));
    (loss, queue, rate, jitter, coalesce, outage, 0.0..0.1, 0.0..0.1, (mtu, policer), steps).prop_map(
        |(loss, queue, rate, jitter, coalesce, outage, duplicate, corrupt, (mtu, policer), delay_steps)| HopSpec {
            delay_steps,
            mtu,
            policer,
            loss,
            outages: outage.into_iter().collect(),
            duplicate: Probability(duplicate),
            corrupt: Probability(corrupt),
            queue,
            rate,
            jitter,
            coalesce,
            delay: Nanos::from_micros(200),
            ..HopSpec::default()
        },
    )
}

/// New values for some keys of a hop.
#[derive(Debug, Clone)]
struct Difference {
    keys: [bool; 11],
    of: HopSpec,
}

impl Difference {
    fn make(&self, hop: &mut HopSpec) {
        let of = self.of.clone();
        let [loss, outages, duplicate, policer, queue, rate, layer, delay, steps, jitter, coalesce] = self.keys;
        hop.loss = if loss { of.loss } else { hop.loss.clone() };
        hop.outages = if outages { of.outages } else { hop.outages.clone() };
        hop.duplicate = if duplicate { of.duplicate } else { hop.duplicate };
        hop.policer = if policer { of.policer } else { hop.policer };
        hop.queue = if queue { of.queue } else { hop.queue };
        hop.rate = if rate { of.rate } else { hop.rate };
        hop.layer = if layer { of.layer } else { hop.layer };
        hop.delay = if delay { of.delay } else { hop.delay };
        hop.delay_steps = if steps { of.delay_steps } else { hop.delay_steps.clone() };
        hop.jitter = if jitter { of.jitter } else { hop.jitter.clone() };
        hop.coalesce = if coalesce { of.coalesce } else { hop.coalesce };
    }
}

fn any_change() -> impl Strategy<Value = Difference> {
    let layer = any::<bool>().prop_map(|frame| if frame { Layer::L2 } else { Layer::L1 });
    (any::<[bool; 11]>(), any_hop(), 60u64..2_000, layer).prop_map(|(keys, of, delay_us, layer)| Difference {
        keys,
        of: HopSpec { delay: Nanos::from_micros(delay_us), layer, ..of },
    })
}

/// No hop may change the order of packets.
fn in_order(path: &mut PathSpec) {
    path.forward.iter_mut().filter_map(|hop| hop.jitter.as_mut()).for_each(|jitter| jitter.order = Order::Fifo);
}

/// Sends `frames` of (gap in ns, segments) from both clients of a dumbbell in turn.
fn run(spec: &PathSpec, options: Options, frames: &[(u64, u32)]) -> (Network, Vec<Release>) {
    let mut network = Network::new(spec, options);
    let (mut at, mut released, mut lost) = (Nanos(0), Vec::new(), 0);
    for (i, &(gap, segments)) in frames.iter().enumerate() {
        at += Nanos(gap);
        network.advance(at);
        while let Some(release) = network.release() {
            released.push(release);
        }
        let shape = if segments == 1 { single(600) } else { superpacket(segments) };
        network.arrive(at, PortId(i as u16 % 2), Destination::Port(PortId(2)), shape, i as u64);
    }
    released.extend(drain(&mut network));
    while network.lost().is_some() {
        lost += 1;
    }
    let finished = released.iter().filter(|r| r.last).count();
    assert_eq!(finished + lost, frames.len(), "every token comes back once");
    (network, released)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// In = out + dropped at every hop once nothing is held, and the same seed repeats it.
    #[test]
    fn packets_are_conserved(
        hops in proptest::collection::vec(any_hop(), 0..4),
        frames in proptest::collection::vec((0u64..100_000, 1u32..45), 1..200),
        seed: u64,
        wire: bool,
    ) {
        let mut spec = path(hops);
        spec.clients = vec![HostSpec { delay: Nanos::from_micros(70), ..HostSpec::default() }, HostSpec::default()];
        let segmentation = if wire { Segmentation::Wire } else { Segmentation::Auto };
        let options = Options { seed, segmentation, ..Options::default() };
        let (network, released) = run(&spec, options, &frames);
        prop_assert_eq!(network.frames_in_flight(), 0);
        let mut dropped = 0;
        let mut copies = 0;
        for hop in network.hops() {
            let c = hop.counters;
            prop_assert_eq!(c.held_packets(), 0, "{:?}: {:?}", hop.place, c);
            let out = c.departed.bytes + c.dropped().bytes;
            prop_assert_eq!(c.arrived.bytes + c.duplicated.bytes, out, "{:?}", hop.place);
            dropped += c.dropped().packets;
            copies += c.duplicated.packets;
        }
        let sent: u64 = frames.iter().map(|f| u64::from(f.1)).sum();
        let received: u64 = released.iter().map(|r| u64::from(r.count)).sum();
        prop_assert_eq!(sent + copies, received + dropped);

        let ordered = spec.forward.iter().all(|h| h.jitter.as_ref().is_none_or(|j| j.order == Order::Fifo));
        if ordered {
            let mut last: HashMap<u64, (u64, u32)> = HashMap::new();
            for packet in packets(&released) {
                let before = last.insert(packet.0 % 2, packet);
                prop_assert!(before.is_none_or(|b| b <= packet), "{packet:?} after {before:?}");
            }
        }
        let (_, again) = run(&spec, options, &frames);
        prop_assert_eq!(released, again);
    }

    /// Whatever is changed while packets are on their way: none is lost unseen, and those of one host keep their order.
    #[test]
    fn changes_keep_packets_in_order(
        hops in proptest::collection::vec(any_hop(), 1..3),
        changes in proptest::collection::vec((0usize..100, 0u64..100_000, any_change()), 1..12),
        frames in proptest::collection::vec((0u64..100_000, 1u32..45), 1..100),
        wire: bool,
    ) {
        let mut spec = path(hops);
        in_order(&mut spec);
        spec.clients = vec![HostSpec { delay: Nanos::from_micros(70), ..HostSpec::default() }, HostSpec::default()];
        let segmentation = if wire { Segmentation::Wire } else { Segmentation::Auto };
        let mut network = Network::new(&spec, Options { segmentation, ..Options::default() });
        let (mut at, mut released) = (Nanos(0), Vec::new());
        let mut advance = |network: &mut Network, at| {
            network.advance(at);
            released.extend(std::iter::from_fn(|| network.release()));
        };
        for (i, &(gap, segments)) in frames.iter().enumerate() {
            at += Nanos(gap);
            advance(&mut network, at);
            let shape = if segments == 1 { single(600) } else { superpacket(segments) };
            network.arrive(at, PortId(i as u16 % 2), Destination::Port(PortId(2)), shape, i as u64);
            for (_, later, change) in changes.iter().filter(|(behind, ..)| *behind == i) {
                at += Nanos(*later);
                advance(&mut network, at);
                let hops = spec.forward.len();
                change.make(&mut spec.forward[i % hops]);
                in_order(&mut spec);
                network.update(&spec);
            }
        }
        released.extend(drain(&mut network));
        while network.lost().is_some() {}
        prop_assert_eq!(network.frames_in_flight(), 0);
        prop_assert!(released.windows(2).all(|pair| pair[0].due <= pair[1].due));
        for hop in network.hops() {
            prop_assert_eq!(hop.counters.held_packets(), 0, "{:?}", hop.place);
        }
        let mut last: HashMap<u64, (u64, u32)> = HashMap::new();
        for packet in packets(&released) {
            let before = last.insert(packet.0 % 2, packet);
            prop_assert!(before.is_none_or(|b| b <= packet), "{packet:?} after {before:?}");
        }
    }
}
