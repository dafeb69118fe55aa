//! Growth and back-off of the controls that losses drive: HighSpeed, Scalable, BIC, H-TCP, Hybla; Westwood+, whose decrease a measured
//! bandwidth says.

use crate::native::{Event, State, parameters};
use longhaul_congestion::highspeed::Curve;
use longhaul_congestion::{Algorithm, Settings, Variant};

use crate::flow::{MS, ack, changed, linux, paper, round_trip, set_window};

/// The lists of the C sources are those of longhaul-congestion, with the paper's values as defaults.
#[test]
fn parameters_are_those_that_are_shown() {
    for algorithm in Algorithm::ALL {
        let shown: Vec<_> =
            algorithm.parameters().iter().map(|parameter| (parameter.name.to_owned(), parameter.paper)).collect();
        assert_eq!(parameters(algorithm), shown, "{algorithm}");
    }
}

/// Kelly 2003: 0.01 for each packet, 1/8 at a loss; up to 16 packets standard TCP.
#[test]
fn scalable() {
    let mut flow = paper(Algorithm::Scalable, 1000);
    assert_eq!((0..99).map(|_| ack(&mut flow, 1)).last(), Some(1000));
    assert_eq!(ack(&mut flow, 1), 1001);
    assert_eq!(ack(&mut flow, 1000), 1011, "a stretch ACK counts in full");
    assert_eq!(flow.ssthresh(), 1011 - 126);
    // 13.4 round trips after a loss it is back: log(7/8)/log(1.01).
    flow.lose_packet();
    let round_trips = (1..).find(|_| round_trip(&mut flow, 100 * MS, 1) >= 1011).unwrap();
    assert_eq!(round_trips, 14);
    // The legacy window.
    let mut flow = paper(Algorithm::Scalable, 16);
    assert_eq!((ack(&mut flow, 15), ack(&mut flow, 1)), (16, 17));
    set_window(&mut flow, 16);
    assert_eq!(flow.ssthresh(), 8);
    set_window(&mut flow, 17);
    assert_eq!(flow.ssthresh(), 17 - 2);

    let mut flow = linux(Algorithm::Scalable, 50);
    assert_eq!((ack(&mut flow, 49), ack(&mut flow, 1)), (50, 51), "1 for min(cwnd, 100)");
    set_window(&mut flow, 10);
    assert_eq!(flow.ssthresh(), 9, "cwnd - cwnd/8");
}

/// RFC 3649, Appendix B: at each row's window a round trip adds a(w), and a loss takes b(w).
#[test]
fn highspeed_has_the_whole_table() {
    let rows = Curve::RFC_3649.rows();
    assert_eq!(rows.len(), 73);
    for (a, row) in (1..).zip(&rows) {
        let mut flow = paper(Algorithm::Highspeed, row.window);
        assert_eq!(ack(&mut flow, row.window), row.window + a, "a({})", row.window);
        set_window(&mut flow, row.window);
        assert_eq!(flow.ssthresh(), row.window - row.window * row.decrease_256 / 256, "b({})", row.window);
        // One packet less, and it is the row before.
        set_window(&mut flow, row.window - 1);
        let before = a.saturating_sub(1).max(1);
        assert_eq!(ack(&mut flow, row.window - 1), row.window - 1 + before, "a({})", row.window - 1);
        // Linux takes the row from its window on downwards.
        let mut flow = linux(Algorithm::Highspeed, row.window);
        let acks = (1..).find(|_| ack(&mut flow, 1) > row.window);
        assert_eq!(acks, Some(row.window.div_ceil(a)), "Linux: a({}) = {a}", row.window);
    }
    // Beyond the table it stays as it is.
    let mut flow = paper(Algorithm::Highspeed, 1_000_000);
    assert_eq!(ack(&mut flow, 1_000_000), 1_000_073);
}

#[test]
fn highspeed_differs_from_linux() {
    // 39 packets: the RFC's a is 1, Linux's 2, for an ACK of any size.
    let (mut rfc, mut of_linux) = (paper(Algorithm::Highspeed, 39), linux(Algorithm::Highspeed, 39));
    assert_eq!((ack(&mut rfc, 38), ack(&mut rfc, 1)), (39, 40));
    let grown: Vec<u32> = (0..20).map(|_| ack(&mut of_linux, 10)).collect();
    assert_eq!((grown[18], grown[19]), (39, 40), "2·20 ≥ 39");
    // A loss in slow start: Linux takes half, as b is that of its last growth.
    let (mut rfc, mut of_linux) = (paper(Algorithm::Highspeed, 10_000), linux(Algorithm::Highspeed, 10_000));
    assert_eq!((rfc.ssthresh(), of_linux.ssthresh()), (10_000 - 10_000 * 53 / 256, 5000));
}

/// Xu, Harfoush, Rhee 2004: β = 1/8, Smax = 32, halves of the distance.
#[test]
fn bic() {
    let mut flow = paper(Algorithm::Bic, 1000);
    assert_eq!(flow.ssthresh(), 875);
    // How many packets one more takes at a window: the second one, without a rest.
    let take = |flow: &mut crate::native::Native, max: Option<u32>, cwnd: u32| {
        set_window(flow, max.unwrap_or(cwnd));
        flow.ssthresh();
        set_window(flow, cwnd);
        (1..).find(|_| ack(flow, 1) > cwnd).unwrap()
    };
    let mut each = |cwnd: u32| take(&mut flow, Some(1000), cwnd);
    assert_eq!(each(875), 28, "875/32, and the midpoint is 62 away: linear");
    assert_eq!(each(980), 98, "the midpoint is 10 away");
    assert_eq!((each(997), each(998)), (665, 998), "halves of 3 and of 2");
    assert_eq!(each(999), 999 * 7 + 1, "the last packet: log2(1/0.01) round trips, a 65536th rounded down");
    assert_eq!(each(1000), 1000, "probing: 1 a round trip");
    assert_eq!(each(1010), 92, "1010/11");
    assert_eq!(each(1100), 35, "1100/32");
    assert_eq!(each(14), 14, "standard TCP");
    // Fast convergence: short of the maximum, the next is (2 - β)/2 of the window.
    set_window(&mut flow, 1000);
    flow.ssthresh();
    set_window(&mut flow, 900);
    assert_eq!(flow.ssthresh(), 787);
    set_window(&mut flow, 842);
    assert_eq!((1..).find(|_| ack(&mut flow, 1) > 842), Some(842 * 7 + 1), "900·1.875/2 = 843");
    // A timeout forgets.
    flow.time_out();
    set_window(&mut flow, 900);
    assert_eq!(ack(&mut flow, 29), 901, "900/32");
}

/// Linux's BIC: 819/1024, Smax 16, quarters, and a growth twice as fast, as it takes an ACK for two packets in the beginning.
#[test]
fn bic_of_linux() {
    let mut flow = linux(Algorithm::Bic, 1000);
    assert_eq!(flow.ssthresh(), 799);
    let mut each = |cwnd: u32| {
        flow.socket.time_us += 1_000_000;
        set_window(&mut flow, cwnd);
        (1..).find(|_| ack(&mut flow, 1) > cwnd).unwrap()
    };
    assert_eq!(each(799), 799 / 16 / 2);
    assert_eq!(each(980), 980 / 5 / 2);
    assert_eq!(each(997), 997 * 5 / 2);
    assert_eq!(each(1003), 1003 * 5 / 2);
    assert_eq!(each(1012), 1012 * 3 / 12 / 2);
    assert_eq!(each(1100), 1100 / 16 / 2);
    // No maximum known: 20 packets at most.
    let mut fresh = linux(Algorithm::Bic, 500);
    assert_eq!((ack(&mut fresh, 9), ack(&mut fresh, 1)), (500, 501));
    // Mean packets an ACK: with many ACKs for 4 it comes to 4.
    for _ in 0..200 {
        fresh.sample(4, None);
    }
    fresh.socket.time_us += 1_000_000;
    set_window(&mut fresh, 400);
    assert_eq!((ack(&mut fresh, 4), ack(&mut fresh, 1)), (400, 401), "20/4");
}

/// Xu, Harfoush, Rhee 2004: up to low_window it grows and halves as standard TCP, also where its maximum is far away.
#[test]
fn bic_is_standard_up_to_low_window() {
    for (variant, change, low, keep_1024) in [
        (Variant::Paper, "low_window=14", 14, 896),
        (Variant::Paper, "low_window=20", 20, 896),
        (Variant::Linux, "low_window=14", 14, 819),
        (Variant::Linux, "low_window=20", 20, 819),
    ] {
        let mut flow = changed(Algorithm::Bic, variant, change, 1000);
        flow.ssthresh();
        let mut acks = |cwnd: u32| {
            flow.socket.time_us += 1_000_000;
            set_window(&mut flow, cwnd);
            (1..).find(|_| ack(&mut flow, 1) > cwnd).unwrap()
        };
        assert_eq!((acks(low), acks(low + 1)), (low, 1), "{variant:?}, {change}");
        set_window(&mut flow, low);
        assert_eq!(flow.ssthresh(), low / 2, "{variant:?}, {change}");
        set_window(&mut flow, low + 1);
        assert_eq!(flow.ssthresh(), (low + 1) * keep_1024 / 1024, "{variant:?}, {change}");
    }
}

/// draft-leith-tcp-htcp-06: 2(1 - β)(1 + 10(δ - 1) + ((δ - 1)/2)²).
#[test]
fn htcp_grows_with_the_time_since_the_last_loss() {
    for (seconds, rtt_ms, packets) in
        [(0, 100, 1), (1, 100, 1), (3, 100, 22), (11, 100, 126), (3, 200, 44), (3, 50, 11), (3, 500, 44)]
    {
        let mut flow = paper(Algorithm::Htcp, 10_000);
        // An RTT must have been seen.
        flow.sample(1, Some(rtt_ms * MS));
        flow.socket.time_us += seconds * 1_000_000;
        assert_eq!(ack(&mut flow, 10_000) - 10_000, packets, "{seconds} s after a loss at {rtt_ms} ms");
    }
}

#[test]
fn htcp_leaves_what_empties_the_queue() {
    let mut flow = paper(Algorithm::Htcp, 1000);
    let calm = |flow: &mut crate::native::Native, rtts: &[u32]| {
        for rtt in rtts {
            set_window(flow, 1000);
            round_trip(flow, *rtt * MS, 1);
            set_window(flow, 1000);
        }
    };
    calm(&mut flow, &[100, 110, 120, 130, 140, 150]);
    assert_eq!(flow.ssthresh(), 500, "throughput was nothing before: as standard TCP");
    // The second loss at much the same throughput.
    calm(&mut flow, &[150; 6]);
    assert_eq!(flow.ssthresh(), 500, "the loss before changed it");
    calm(&mut flow, &[150; 6]);
    // 100 ms over 100 + 0.95²·50 ms and a rise to 150: 0.667, in 128ths.
    assert_eq!(flow.ssthresh(), 1000 * 85 / 128);
}

#[test]
fn htcp_undoes_what_was_no_loss() {
    let mut flow = paper(Algorithm::Htcp, 1000);
    flow.sample(1, Some(100 * MS));
    flow.socket.time_us += 5_000_000;
    flow.socket.prior_cwnd = 1000;
    let ssthresh = flow.ssthresh();
    flow.set_state(State::Recovery);
    set_window(&mut flow, ssthresh);
    assert_eq!(flow.undo(), 1000);
    flow.set_state(State::Open);
    set_window(&mut flow, 10_000);
    let grown = ack(&mut flow, 10_000) - 10_000;
    assert_eq!(grown, 1 + 40 + 4, "δ goes on from the loss before");
}

/// Caini, Firrincieli 2004: 2^ρ - 1 a packet in slow start, ρ² a round trip beyond.
#[test]
fn hybla() {
    for (rtt_ms, slow, fast) in [(10, 1, 1), (25, 1, 1), (50, 3, 4), (100, 15, 16), (200, 255, 64)] {
        let mut flow = paper(Algorithm::Hybla, 1000);
        flow.socket.srtt_8us = rtt_ms * MS * 8;
        flow.init();
        assert_eq!(ack(&mut flow, 1000), 1000 + fast, "{rtt_ms} ms");
        flow.socket.ssthresh = u32::MAX;
        set_window(&mut flow, 1000);
        assert_eq!(ack(&mut flow, 10), 1000 + 10 * slow, "{rtt_ms} ms, slow start");
    }
    // ρ = 1.5: 2.25 packets a round trip, fractions kept.
    let mut flow = paper(Algorithm::Hybla, 10_000);
    flow.socket.srtt_8us = 37_500 * 8;
    flow.init();
    for _ in 0..4 {
        ack(&mut flow, 10_000);
    }
    assert_eq!(flow.socket.cwnd, 10_008, "a little less than 9, as the window grew");
    assert_eq!(flow.ssthresh(), 5004);
    // A shorter RTT is a smaller ρ; a longer one is queueing.
    flow.socket.srtt_8us = 25 * MS * 8;
    set_window(&mut flow, 1000);
    assert_eq!(ack(&mut flow, 1000), 1001);
    flow.socket.srtt_8us = 100 * MS * 8;
    assert_eq!(ack(&mut flow, 1001), 1002);
}

#[test]
fn hybla_of_linux() {
    let mut flow = linux(Algorithm::Hybla, 10);
    flow.socket.srtt_8us = 100 * MS * 8;
    flow.init();
    assert_eq!(flow.socket.cwnd, 4, "begins with ρ");
    set_window(&mut flow, 100);
    // 16·128/100 = 20 of 128 an ACK, of whatever size.
    let acks = (1..).find(|_| ack(&mut flow, 2) > 100).unwrap();
    assert_eq!(acks, 7, "7·20 ≥ 128");
    set_window(&mut flow, 65_535);
    flow.socket.ssthresh = u32::MAX;
    assert_eq!(ack(&mut flow, 100), 65_535, "no further");
}

/// Grieco, Mascolo 2004: what the path carried, not half.
#[test]
fn westwood() {
    let mut flow = paper(Algorithm::Westwood, 1000);
    for _ in 0..100 {
        set_window(&mut flow, 1000);
        round_trip(&mut flow, 100 * MS, 1);
    }
    // 10,000 packets a second · 100 ms; the window stood at 1250 with a queue of 250.
    for _ in 0..100 {
        set_window(&mut flow, 1250);
        round_trip(&mut flow, 125 * MS, 1);
    }
    set_window(&mut flow, 1250);
    let left = flow.ssthresh();
    assert!((985..=1005).contains(&left), "{left}");
    // A packet lost by chance on an empty path costs nothing.
    set_window(&mut flow, 900);
    assert_eq!(flow.ssthresh(), 900);
    // Nothing measured yet: half.
    assert_eq!(paper(Algorithm::Westwood, 500).ssthresh(), 250);
    assert_eq!(ack(&mut paper(Algorithm::Westwood, 500), 500), 501, "grows as Reno");
}

#[test]
fn westwood_of_linux_sets_the_window_when_the_loss_is_repaired() {
    let mut flow = linux(Algorithm::Westwood, 1000);
    for _ in 0..200 {
        set_window(&mut flow, 1000);
        round_trip(&mut flow, 100 * MS, 1);
    }
    assert_eq!(flow.ssthresh(), 500);
    flow.event(Event::CompleteCwr);
    let left = flow.socket.cwnd;
    assert!((985..=1005).contains(&left) && flow.socket.ssthresh == left, "{left}");
    flow.event(Event::Loss);
    assert_eq!(flow.socket.ssthresh, left);
    // The RTT is forgotten, and so the product is nothing until the next.
    flow.event(Event::CompleteCwr);
    assert_eq!(flow.socket.cwnd, 2);
}

/// What all share: slow start doubles, the application holds a flow back, ssthresh splits an ACK, the clamp holds.
#[test]
fn slow_start_and_limits() {
    // Those that grow as standard TCP there; Vegas, FAST and Hybla have their own.
    let alike = [
        Algorithm::Cubic,
        Algorithm::Scalable,
        Algorithm::Highspeed,
        Algorithm::Bic,
        Algorithm::Htcp,
        Algorithm::Westwood,
        Algorithm::Yeah,
    ];
    for algorithm in alike {
        let mut flow = paper(algorithm, 10);
        flow.socket.ssthresh = u32::MAX;
        assert_eq!(ack(&mut flow, 10), 20, "{algorithm}");
        flow.socket.ssthresh = 25;
        assert_eq!(ack(&mut flow, 5), 25, "{algorithm}: up to ssthresh");
        // Not limited by the window: twice what was out is enough.
        flow.socket.is_cwnd_limited = 0;
        flow.socket.ssthresh = u32::MAX;
        flow.socket.max_packets_out = 12;
        assert_eq!(ack(&mut flow, 25), 25, "{algorithm}: the application holds it back");
        flow.socket.max_packets_out = 13;
        assert_eq!(ack(&mut flow, 1), 26, "{algorithm}");
        flow.socket.ssthresh = 2;
        assert_eq!(ack(&mut flow, 1000), 26, "{algorithm}: nor in congestion avoidance");
        flow.socket.is_cwnd_limited = 1;
        flow.socket.cwnd_clamp = 26;
        assert_eq!(ack(&mut flow, 10_000), 26, "{algorithm}: the clamp");
        flow.socket.prior_cwnd = 40;
        assert_eq!(flow.undo(), 40, "{algorithm}");
    }
}

/// The settings that are loaded are those that the C runs with.
#[test]
fn settings_take_effect() {
    let mut settings = Settings::new(Algorithm::Scalable, Variant::Paper).unwrap();
    settings.set("packets_for_one_more=10").unwrap();
    let mut flow = crate::native::Native::new(&settings);
    flow.socket.ssthresh = 2;
    set_window(&mut flow, 1000);
    assert_eq!(ack(&mut flow, 10), 1001);
    assert_eq!(ack(&mut paper(Algorithm::Scalable, 1000), 10), 1000, "another flow has its own");
}
