//! Live changes: what their text means, which hops they touch, and that a wrong one changes nothing.

use longhaul_path::spec::*;
use longhaul_units::{BitRate, Bytes, Nanos};

fn path(text: &str) -> PathSpec {
    PathSpec::parse(text, &no_files).unwrap()
}

/// Two hops in each direction: `edge` has the rate, the second the delay.
fn dumbbell() -> PathSpec {
    path(
        r#"
        [[both]]
        name = "edge"
        rate = "10Gbit"
        queue = "1000p"
        [[both]]
        delay = "60ms"
        [[client]]
        [[client]]
        "#,
    )
}

fn change(spec: &mut PathSpec, text: &str) -> Vec<String> {
    let changed = Change::parse(text).and_then(|change| Change::apply(&[change], spec));
    changed.unwrap_or_else(|error| panic!("{text}: {error}")).iter().map(|hop| hop.label(spec)).collect()
}

fn refusal(spec: &PathSpec, text: &str) -> String {
    let mut changed = spec.clone();
    let error = Change::parse(text).and_then(|change| Change::apply(&[change], &mut changed)).expect_err(text);
    assert_eq!(&changed, spec, "{text} changed the path");
    error.to_string()
}

#[test]
fn a_change_finds_its_hop() {
    for (text, want) in [
        ("delay=50ms", vec!["forward.hop2", "backward.hop1"]),
        ("rate=1Gbit", vec!["forward.edge", "backward.edge"]),
        ("forward.rate=1Gbit", vec!["forward.edge"]),
        ("backward.hop2.delay=1ms", vec!["backward.edge"]),
        ("edge.loss=every(30000)", vec!["forward.edge", "backward.edge"]),
        ("hop1.loss=none", vec!["forward.edge", "backward.hop1"]),
        ("client2.rate=1Gbit", vec!["client2"]),
        ("server.delay=1ms", vec!["server"]),
        (" forward . hop2 . jitter = normal(8.45us) ", vec!["forward.hop2"]),
    ] {
        assert_eq!(change(&mut dumbbell(), text), want, "{text}");
    }
    let mut spec = dumbbell();
    change(&mut spec, "server.delay=1ms");
    assert_eq!(spec.servers, [HostSpec { delay: Nanos::from_millis(1), ..HostSpec::default() }]);
    change(&mut spec, "forward.delay=50ms");
    assert_eq!(spec.round_trip(), Nanos::from_millis(110));
    // A direction without hops is left alone, the only hop needs no name.
    assert_eq!(change(&mut path("[[forward]]"), "loss=random(1%)"), ["forward.hop1"]);
}

fn all(spec: &PathSpec, texts: &[&str]) -> Result<PathSpec, String> {
    let changes: Vec<Change> = texts.iter().map(|text| Change::parse(text).unwrap()).collect();
    let mut changed = spec.clone();
    Change::apply(&changes, &mut changed).map(|_| changed).map_err(|error| error.to_string())
}

/// Delay and jitter bound each other; a hop that is found by its key may lose that key; general and special changes meet.
#[test]
fn changes_that_are_made_together_have_no_order() {
    let jittered = path(
        r#"
        [[both]]
        delay = "20ms"
        jitter = "normal(3ms)"
        [[both]]
        rate = "1Gbit"
        "#,
    );
    for (texts, want) in [
        (&["jitter=none", "delay=1ms"][..], Ok(())),
        (&["jitter=normal(9ms)", "delay=60ms"], Ok(())),
        (
            &["jitter=normal(9ms)", "rate=none", "delay=60ms", "queue=unlimited", "hop2.rate=none"],
            Err("queue: which hop"),
        ),
        (&["forward.hop1.rate=2Gbit", "rate=none"], Ok(())),
        (&["client.rate=1Gbit", "client.delay=1ms", "server.queue=10p"], Ok(())),
        (&["delay=30ms", "forward.delay=30ms"], Ok(())),
        (&["delay=30ms", "forward.delay=40ms"], Err("forward.hop1.delay: two of the changes")),
        (&["client.delay=30ms", "client.delay=40ms"], Err("client.delay: two of the changes")),
        (&["delay=1ms"], Err("forward[0].jitter: stddev `3ms`")),
    ] {
        let Ok(()) = want else {
            let error = all(&jittered, texts).unwrap_err();
            assert!(error.contains(want.unwrap_err()), "{texts:?}: {error}");
            let backwards: Vec<&str> = texts.iter().rev().copied().collect();
            assert!(all(&jittered, &backwards).is_err(), "{backwards:?}");
            continue;
        };
        let changed = all(&jittered, texts).unwrap_or_else(|error| panic!("{texts:?}: {error}"));
        let mut order = texts.to_vec();
        for turn in 0..texts.len() {
            order.rotate_left(1);
            if turn % 2 == 0 {
                order.swap(0, texts.len() - 1);
            }
            assert_eq!(all(&jittered, &order).as_ref(), Ok(&changed), "{order:?}");
        }
    }
}

#[test]
fn every_value() {
    let loss = |text| match Change::parse(text).unwrap().setting {
        Setting::Loss(loss) => loss,
        other => panic!("{other:?}"),
    };
    assert_eq!(loss("loss=every(30000)"), LossSpec::Every(30_000.try_into().unwrap()));
    assert_eq!(loss("loss=random(0.01%)"), LossSpec::Random(Probability(1e-4)));
    assert_eq!(loss("loss=list(1, 5, 9-12)"), LossSpec::List([1, 5, 9, 10, 11, 12].into()));
    assert_eq!(loss("loss=none"), LossSpec::None);
    let [p, r, h, k] = [0.01, 0.25, 0.0, 1.0].map(Probability);
    assert_eq!(loss("loss=gilbert-elliott(1%,25%)"), LossSpec::GilbertElliott { p, r, h, k });
    let bursts = |lost, otherwise| {
        let [lost, otherwise] = [lost, otherwise].map(Probability);
        LossSpec::Bursts(BurstLoss { lasting: Nanos::from_millis(40), every: Nanos::from_secs(10), lost, otherwise })
    };
    assert_eq!(loss("loss=bursts(40ms,10s)"), bursts(1.0, 0.0));
    assert_eq!(loss("loss=bursts(40ms, 10s, 50%, 0.1%)"), bursts(0.5, 0.001));
    let jitter = |law, stddev, order| Setting::Jitter(Some(JitterSpec { law, stddev, order, correlation: None }));
    let batch = |count: Option<u64>| {
        let count = count.and_then(std::num::NonZeroU64::new);
        Setting::Coalesce(Some(CoalesceSpec { time: Nanos::from_micros(50), count }))
    };
    let outage = |every| Outage { at: Nanos::from_secs(10), lasting: Nanos::from_millis(50), every };
    for (text, want) in [
        ("jitter=normal(8.45us)", jitter(Law::Normal, Nanos(8_450), Order::Fifo)),
        ("jitter=pareto(1ms,free)", jitter(Law::Pareto, Nanos::from_millis(1), Order::Free)),
        (
            "jitter=normal(1ms,fifo,50ms)",
            Setting::Jitter(Some(JitterSpec {
                law: Law::Normal,
                stddev: Nanos::from_millis(1),
                order: Order::Fifo,
                correlation: Some(Nanos::from_millis(50)),
            })),
        ),
        ("jitter=none", Setting::Jitter(None)),
        ("coalesce=50us", batch(None)),
        ("coalesce=50us,8", batch(Some(8))),
        ("coalesce=none", Setting::Coalesce(None)),
        (
            "policer=100Mbit, 64KiB",
            Setting::Policer(Some(PolicerSpec { rate: BitRate(100_000_000), burst: Bytes(64 << 10) })),
        ),
        ("policer=none", Setting::Policer(None)),
        ("mtu=1400", Setting::Mtu(Some(MtuSpec { bytes: 1400, icmp: true }))),
        ("mtu=1280, silent", Setting::Mtu(Some(MtuSpec { bytes: 1280, icmp: false }))),
        ("mtu=none", Setting::Mtu(None)),
        (
            "delay-steps=60s,80ms",
            Setting::DelaySteps(DelaySteps::At(vec![DelayStep {
                at: Nanos::from_secs(60),
                delay: Nanos::from_millis(80),
                lasting: None,
                every: None,
            }])),
        ),
        (
            "delay-steps=random(10s, 80ms, 90ms)",
            Setting::DelaySteps(DelaySteps::Random {
                every: Nanos::from_secs(10),
                delays: vec![Nanos::from_millis(80), Nanos::from_millis(90)],
            }),
        ),
        ("delay-steps=none", Setting::DelaySteps(DelaySteps::default())),
        ("queue=1000p", Setting::Queue(QueueLimit::Packets(1000))),
        ("queue=unlimited", Setting::Queue(QueueLimit::Unlimited)),
        ("rate=1Gbit", Setting::Rate(Some(BitRate::from_gbit(1)))),
        ("rate=none", Setting::Rate(None)),
        ("layer=L2", Setting::Layer(Layer::L2)),
        ("duplicate=0.1%", Setting::Duplicate(Probability(0.001))),
        ("corrupt=1e-6", Setting::Corrupt(Probability(1e-6))),
        ("outage=10s,50ms", Setting::Outages(vec![outage(None)])),
        ("outages=10s,50ms;10s,50ms,60s", Setting::Outages(vec![outage(None), outage(Some(Nanos::from_secs(60)))])),
        ("outages=none", Setting::Outages(vec![])),
    ] {
        assert_eq!(Change::parse(text).map(|change| change.setting), Ok(want), "{text}");
    }
}

#[test]
fn a_wrong_change_is_one_line_and_changes_nothing() {
    let spec = dumbbell();
    for (text, want) in [
        ("delay", "`delay`: use [forward.|backward.][HOP.]KEY=VALUE, such as forward.hop1.delay=50ms"),
        (".delay=1ms", "`.delay=1ms`: use [forward.|backward.][HOP.]KEY=VALUE, such as forward.hop1.delay=50ms"),
        ("a.b.c=1", "`a.b.c=1`: use [forward.|backward.][HOP.]KEY=VALUE, such as forward.hop1.delay=50ms"),
        (
            "latency=1ms",
            "`latency`: no such key, use loss, outages, duplicate, corrupt, mtu, policer, queue, rate, layer, delay, delay-steps, jitter, coalesce",
        ),
        ("delay=fast", "delay: `fast` is not a number of 0 or more with a unit (ns, us, ms, s, m, h)"),
        ("delay=5", "delay: `5`: 5ms or 5s? write the unit"),
        ("delay=0.5", "delay: `0.5`: 0.5ms or 0.5s? write the unit"),
        ("coalesce=50,8", "coalesce: `50`: 50ms or 50s? write the unit"),
        ("outage=10s,50", "outages: `50`: 50ms or 50s? write the unit"),
        ("hop2.jitter=normal(8)", "jitter: `8`: 8ms or 8s? write the unit"),
        ("edge.mtu=1k", "mtu: `1k`: use none, BYTES or BYTES,silent, such as 1400"),
        ("edge.policer=1Gbit", "policer: `1Gbit`: use none or RATE,BURST, such as 100Mbit,64KiB"),
        ("hop2.delay-steps=10s,5", "delay-steps: `5`: 5ms or 5s? write the unit"),
        ("loss=random(2)", "loss: `2`: a probability is from 0 to 1, or 0% to 100%"),
        (
            "jitter=table(x.dist,1us)",
            "jitter: `table(x.dist,1us)`: use none, LAW(STDDEV), LAW(STDDEV,ORDER) or LAW(STDDEV,ORDER,CORRELATION), LAW one of normal, uniform, pareto, paretonormal and ORDER fifo or free; a table needs a path file",
        ),
        ("delay=20s", "forward[1].delay: `20s`: from 0ns to 10s"),
        (
            "forward.hop2.jitter=normal(1s)",
            "forward[1].jitter: stddev `1s`: at most 20ms for law normal around a delay of 60ms, or packets would leave before they came",
        ),
        ("loss=every(5)", "loss: which hop of forward? name one of edge, hop2"),
        ("hop3.delay=1ms", "`hop3`: no such hop or host, there are client1, client2, edge, hop1, hop2, server"),
        ("hop0.delay=1ms", "`hop0`: no such hop or host, there are client1, client2, edge, hop1, hop2, server"),
        ("client1.loss=none", "client1.loss: an access hop has rate, delay and queue, the same in both directions"),
        (
            "forward.client1.rate=1Gbit",
            "client1.rate: an access hop has rate, delay and queue, the same in both directions",
        ),
    ] {
        assert_eq!(refusal(&spec, text), want, "{text}");
    }
    assert_eq!(
        refusal(&PathSpec::default(), "delay=1ms"),
        "delay: the path has no hop there; only what a path was made with can be changed"
    );
    assert!(!refusal(&spec, "delay=\n\u{1b}[31m").contains(['\n', '\u{1b}']));
}
