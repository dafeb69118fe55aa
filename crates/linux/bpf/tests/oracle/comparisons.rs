//! What the guest runs: ours beside the kernel's, flow after flow.

use std::env;

use longhaul_bpf::congestion::Control;
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_units::Nanos;

use crate::IN_GUEST;
use crate::flow;
use crate::peer::Script;
use crate::trace::{Tolerance, Trace};
use crate::tun::Tun;

/// No queue to speak of; slow start ends with a loss, then come losses of one, of three in a round trip, of one, and an outage that ends with
/// a timeout.
const LOSSES: Script = Script {
    name: "losses",
    round_trip: Nanos::from_micros(38_500),
    service: Nanos::from_micros(100),
    segments_per_ack: 1,
    lost: &[600, 3_000, 3_001, 3_003, 6_000],
    outage_from: 8_500,
    segments: 11_000,
};

/// A queue from a window of 96 segments on, acknowledgements of two, and more than one and two seconds without a loss, after which H-TCP
/// changes its increase.
const QUEUE: Script = Script {
    name: "queue",
    round_trip: Nanos::from_micros(38_500),
    service: Nanos::from_micros(400),
    segments_per_ack: 2,
    lost: &[600, 4_100, 9_600],
    outage_from: u64::MAX,
    segments: 10_500,
};

/// The interface to the path, after a flow: the first comparison finds memory and code as warm as the next.
fn path() -> Tun {
    let tun = flow::interface();
    flow::run(&tun, "reno", &Script { segments: 2_000, ..LOSSES }).unwrap();
    tun
}

/// Flows with the two controls through a script: what of them goes beyond the tolerance.
fn difference(tun: &Tun, [own, module]: [&str; 2], script: &Script, tolerance: Tolerance) -> Option<String> {
    let [ours, theirs] = [own, module].map(|control| flow::run(tun, control, script).unwrap());
    let late =
        [&ours, &theirs].map(|trace| format!("{} ns (at most {})", trace.end.late_median_ns, trace.end.late_most_ns));
    let said = format!("{own}, {}: late by {} and {}", script.name, late[0], late[1]);
    let thresholds = [&ours, &theirs].map(Trace::thresholds);
    let Some(distance) = ours.distance(&theirs, &tolerance) else {
        return Some(format!("{said}; not as many losses: {thresholds:?}"));
    };
    println!("{said}; {distance}");
    (distance.window.max(distance.threshold) > tolerance.share)
        .then(|| format!("{said}; {distance}, tolerance {:.2} %; thresholds {thresholds:?}", tolerance.share * 100.0))
}

/// # Panics
/// Where the two differ.
fn compare(names: [&str; 2], scripts: &[(Script, Tolerance)]) {
    let tun = path();
    let differences = scripts.iter().filter_map(|(script, tolerance)| difference(&tun, names, script, *tolerance));
    let differences: Vec<String> = differences.collect();
    assert!(differences.is_empty(), "not what the kernel's module does:\n{}", differences.join("\n"));
}

/// A control with Linux's parameters and those in `changed`.
fn load(algorithm: Algorithm, changed: &[&str]) -> Control {
    let mut settings = Settings::new(algorithm, Variant::Linux).unwrap();
    settings.rename(&format!("lho_{}", algorithm.name())).unwrap();
    for assignment in changed {
        settings.set(assignment).unwrap();
    }
    Control::load(&settings).unwrap()
}

/// Ours against Linux's module.
fn compare_module(algorithm: Algorithm, scripts: &[(Script, Tolerance)]) {
    if is_here() {
        compare([load(algorithm, &[]).name(), algorithm.name()], scripts);
    }
}

/// Whether this is the guest. On the host `cargo test -- --ignored` would run these, too.
fn is_here() -> bool {
    env::var_os(IN_GUEST).is_some()
}

/// The control of this experiment: two flows of one kernel with one control are equal.
#[test]
#[ignore = "the guest runs it"]
fn reno() {
    if is_here() {
        compare(["reno", "reno"], &EQUAL);
    }
}

/// Each acknowledgement leaves the same window and threshold.
const EQUAL: [(Script, Tolerance); 2] = [(LOSSES, Tolerance::EQUAL), (QUEUE, Tolerance::EQUAL)];

macro_rules! equal {
    ($($name:ident $algorithm:ident)*) => {
        $(
            #[test]
            #[ignore = "the guest runs it"]
            fn $name() {
                compare_module(Algorithm::$algorithm, &EQUAL);
            }
        )*
    };
}

equal! {
    scalable Scalable
    highspeed Highspeed
    bic Bic
    hybla Hybla
    vegas Vegas
    yeah Yeah
}

/// A wrong increase is seen, even within the widest tolerance here.
#[test]
#[ignore = "the guest runs it"]
fn a_wrong_increase() {
    if is_here() {
        let wrong = load(Algorithm::Scalable, &["packets_for_one_more=50"]);
        assert!(difference(&path(), [wrong.name(), "scalable"], &LOSSES, within(0.05, 2)).is_some());
    }
}

/// Apart by no more than `share` or `window_segments`, whichever is more.
fn within(share: f64, window_segments: u32) -> Tolerance {
    Tolerance { share, window_segments, delivered_segments: 0 }
}

/// Time since a loss: milliseconds, in Linux jiffies of 4 ms: its increase may change an acknowledgement sooner.
#[test]
#[ignore = "the guest runs it"]
fn htcp() {
    compare_module(Algorithm::Htcp, &[(LOSSES, Tolerance::EQUAL), (QUEUE, within(0.0, 1))]);
}

/// Without a queue there is only noise for α to depend on, microseconds that one control takes more than the other.
#[test]
#[ignore = "the guest runs it"]
fn illinois() {
    compare_module(Algorithm::Illinois, &[(LOSSES, within(0.0, 2)), (QUEUE, Tolerance::EQUAL)]);
}

/// Linux takes the least round trip in whole jiffies, rounded up, which this one nearly is. A sample of the rate lasts longer than 12 jiffies,
/// which is 52 ms; ours longer than 50 ms. So one may have a sample more than the other of a recovery, in which the rate is half at least: with
/// a weight of 1/8 it moves the estimate by at most 1/16. In slow start, which doubles the rate, it would be more: that ends early here. How
/// long a recovery took follows from the window before. The first sample begins with the first acknowledgement, in Linux with the handshake: the
/// first estimate differs by some packets, and growth of one a round trip keeps that.
#[test]
#[ignore = "the guest runs it"]
fn westwood() {
    let round_trip = Nanos::from_micros(39_900);
    let losses = Script { round_trip, lost: &[20, 3_000, 3_001, 3_003, 6_000], ..LOSSES };
    let queue = Script { round_trip, lost: &[20, 4_100, 9_600], ..QUEUE };
    let tolerance = Tolerance { delivered_segments: 2, ..within(1.0 / 16.0, 10) };
    compare_module(Algorithm::Westwood, &[(losses, tolerance), (queue, tolerance)]);
}
