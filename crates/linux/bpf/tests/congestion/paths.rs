//! A path that changes: 120 ms become 132 ms, and nothing is queued. Whoever looks at delay must notice in time.

use longhaul_congestion::{Algorithm, Settings, Variant};

use crate::flow::{MS, round_trip, set_window};
use crate::native::Native;

/// What the control does at a steady window: packets that four round trips add; for Westwood+, whose growth is Reno's, the window that a
/// loss leaves.
fn behaviour(flow: &mut Native, algorithm: Algorithm, rtt_ms: u32, window: u32) -> u32 {
    set_window(flow, window);
    flow.socket.ssthresh = 2;
    if algorithm == Algorithm::Westwood {
        return flow.ssthresh();
    }
    for _ in 0..4 {
        round_trip(flow, rtt_ms * MS, 9);
    }
    flow.socket.cwnd
}

/// After `seconds` on a path of `rtt_ms` at a steady window.
fn stay(flow: &mut Native, rtt_ms: u32, window: u32, seconds: u32) {
    for _ in 0..seconds * 1000 / rtt_ms {
        set_window(flow, window);
        round_trip(flow, rtt_ms * MS, 99);
    }
}

#[test]
fn a_longer_path_is_no_queue_for_ever() {
    let window = 4000;
    for algorithm in [
        Algorithm::Htcp,
        Algorithm::Hybla,
        Algorithm::Illinois,
        Algorithm::Westwood,
        Algorithm::Yeah,
        Algorithm::Vegas,
        Algorithm::Fast,
        Algorithm::Compound,
    ] {
        let after = |base_rtt_ms: u32, old_rtt_ms: u32| {
            let mut settings = Settings::new(algorithm, Variant::Paper).unwrap();
            settings.set(&format!("base_rtt_ms={base_rtt_ms}")).unwrap();
            let mut flow = Native::new(&settings);
            flow.socket.srtt_8us = old_rtt_ms * MS * 8;
            flow.init();
            flow.socket.ssthresh = 2;
            stay(&mut flow, old_rtt_ms, window, 5);
            stay(&mut flow, 132, window, 15);
            behaviour(&mut flow, algorithm, 132, window)
        };
        let (never, always, forgets) = (after(0, 120), after(10_000, 132), after(10_000, 120));
        println!("{algorithm}: never forgets {never}, forgets {forgets}, knew no other path {always}");
        // FAST takes a step every other round trip: it may come one earlier.
        let near = if algorithm == Algorithm::Fast { 101 } else { always.abs_diff(never) / 10 + 1 };
        assert!(always.abs_diff(forgets) <= near, "{algorithm}: {forgets}, {always} without another path before");
        assert!(always.abs_diff(never) > 2 * near, "{algorithm}: {never} shows that it takes 12 ms for a queue");
    }
}

/// The Linux variant never forgets, as the kernel's modules.
#[test]
fn linux_never_forgets() {
    for algorithm in Algorithm::ALL {
        if let Ok(settings) = Settings::new(algorithm, Variant::Linux) {
            assert!(settings.value("base_rtt_ms").is_none_or(|time| time == 0), "{algorithm}");
        }
    }
}

/// A value is forgotten when it is between half of the time and all of it old.
#[test]
fn a_base_rtt_lives_for_its_time() {
    let forgotten_after = |base_rtt_ms: u32| {
        let mut settings = Settings::new(Algorithm::Yeah, Variant::Paper).unwrap();
        settings.set(&format!("base_rtt_ms={base_rtt_ms}")).unwrap();
        let mut flow = Native::new(&settings);
        flow.init();
        flow.socket.ssthresh = 2;
        stay(&mut flow, 100, 1000, 1);
        // Fast (1 % a round trip), slow, and fast again.
        let fast = (0..1000).map(|_| {
            set_window(&mut flow, 1000);
            round_trip(&mut flow, 150 * MS, 1) >= 1009
        });
        let again = fast.enumerate().skip(3).find(|(_, fast)| *fast);
        again.map(|(at, _)| u32::try_from(at).unwrap())
    };
    for base_rtt_ms in [2000, 10_000] {
        let seconds = f64::from(forgotten_after(base_rtt_ms).unwrap()) * 0.15;
        let whole = f64::from(base_rtt_ms) / 1e3;
        assert!((0.4 * whole..1.0 * whole + 0.5).contains(&seconds), "{base_rtt_ms} ms: after {seconds} s");
    }
    assert_eq!(forgotten_after(0), None);
}

/// FAST at 10 Gb/s: without forgetting it settles at 2,200 packets, 0.2 Gb/s of a path that is empty; with it, it fills the path again.
#[test]
fn fast_fills_a_longer_path_again() {
    /// Packets a second of 10 Gb/s.
    const RATE: f64 = 833_333.0;
    let settled = |base_rtt_ms: u32| {
        let mut settings = Settings::new(Algorithm::Fast, Variant::Paper).unwrap();
        settings.set(&format!("base_rtt_ms={base_rtt_ms}")).unwrap();
        let mut flow = Native::new(&settings);
        flow.init();
        flow.socket.ssthresh = 2;
        set_window(&mut flow, 100_000);
        let mut run = |path_ms: f64, seconds: f64| {
            let mut passed = 0.0;
            while passed < seconds {
                let rtt = (path_ms / 1e3).max(f64::from(flow.socket.cwnd) / RATE);
                round_trip(&mut flow, (rtt * 1e6) as u32, 999);
                passed += rtt;
            }
            f64::from(flow.socket.cwnd) / RATE / (path_ms / 1e3)
        };
        run(120.0, 5.0);
        run(132.0, 400.0)
    };
    let (never, forgets) = (settled(0), settled(10_000));
    println!("share of the path: {never:.3} without forgetting, {forgets:.3} with it");
    assert!((0.015..0.03).contains(&never), "{never}");
    assert!(forgets > 0.99, "{forgets}");
}
