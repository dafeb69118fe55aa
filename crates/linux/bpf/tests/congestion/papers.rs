//! Each control against its paper: what a round trip adds, in floating point and written from the paper, at 5, 120 and 600 ms, windows from
//! 100 to 100,000 packets, and ACKs of 1, 2, 45 and 99 packets. Undo and application limits besides.

use crate::native::{Native, State};
use longhaul_congestion::{Algorithm, Settings, Variant};

use crate::flow::{MS, ack, paper, round_trip, set_window, window_based};

const RTTS_MS: [u32; 3] = [5, 120, 600];
const WINDOWS: [u32; 4] = [100, 1000, 10_000, 100_000];
const PACKETS_AN_ACK: [u32; 4] = [1, 2, 45, 99];

/// Packets that a round trip adds at window `w` where nothing is queued, `since_s` after a loss; the round trip in seconds.
fn added(algorithm: Algorithm, w: f64, since_s: f64, rtt_s: f64) -> f64 {
    match algorithm {
        // RFC 3649 §5: a(w) = w²·p(w)·2·b(w)/(2 - b(w)), p(w) = 0.078/w^1.2; Appendix B has whole numbers.
        Algorithm::Highspeed => {
            let b = 0.5 + (0.1 - 0.5) * (w.ln() - 38_f64.ln()) / (83_000_f64.ln() - 38_f64.ln());
            (w * w * 0.078 / w.powf(1.2) * 2.0 * b / (2.0 - b)).max(1.0)
        }
        Algorithm::Scalable | Algorithm::Yeah => w / 100.0,
        // They have tests of their own, `cubic` and `bbr3`.
        Algorithm::Cubic | Algorithm::Bbr3 => f64::NAN,
        // Far below its maximum: Smax.
        Algorithm::Bic => 32.0,
        // β = 0.5 before there were two losses.
        Algorithm::Htcp => {
            let beyond = (since_s - 1.0).max(0.0);
            (1.0 + 10.0 * beyond + (beyond / 2.0).powi(2)) * (rtt_s / 0.1).clamp(0.1, 2.0)
        }
        Algorithm::Hybla => (rtt_s / 0.025).max(1.0).powi(2),
        Algorithm::Illinois => 10.0,
        Algorithm::Westwood | Algorithm::Vegas => 1.0,
        // γ·α every other round trip.
        Algorithm::Fast => 50.0,
        // Reno's, and dwnd's.
        Algorithm::Compound => 1.0 + (w.powf(0.75) / 8.0 - 1.0).max(0.0),
    }
}

#[test]
fn a_round_trip_adds_what_the_paper_says() {
    const ROUND_TRIPS: u32 = 4;
    for algorithm in window_based().filter(|one| *one != Algorithm::Cubic) {
        for (rtt_ms, window, packets) in RTTS_MS
            .into_iter()
            .flat_map(|rtt| WINDOWS.map(|window| (rtt, window)))
            .flat_map(|(rtt, window)| PACKETS_AN_ACK.map(|packets| (rtt, window, packets)))
        {
            let mut flow = paper(algorithm, window + 1000);
            if algorithm == Algorithm::Bic {
                // Its maximum.
                flow.ssthresh();
            }
            // What is measured is known after two round trips.
            for _ in 0..2 {
                set_window(&mut flow, window);
                round_trip(&mut flow, rtt_ms * MS, packets);
            }
            let (rtt_s, from) = (f64::from(rtt_ms) / 1e3, f64::from(flow.socket.cwnd));
            let (mut wanted, mut since_s) = (from, 2.0 * rtt_s);
            for _ in 0..ROUND_TRIPS {
                round_trip(&mut flow, rtt_ms * MS, packets);
                let (acked, parts) = (wanted, 100.0);
                for _ in 0..100 {
                    // FAST's step does not depend on what is acknowledged.
                    let window = if algorithm == Algorithm::Fast { acked } else { wanted };
                    wanted += acked / parts / window * added(algorithm, wanted, since_s, rtt_s);
                    since_s += rtt_s / parts;
                }
            }
            let seen = f64::from(flow.socket.cwnd);
            // A whole packet more or less, and a window that grows while an ACK is for many; the table's whole numbers; and growth that is decided with the ACK that ends a round trip.
            let rough = match algorithm {
                Algorithm::Highspeed => 4.0 + 0.03 * (wanted - from),
                Algorithm::Fast | Algorithm::Compound => 3.0 + (wanted - from) * (0.03 + f64::from(packets) / from),
                _ => 1.0 + (wanted - from) * (0.01 + 0.3 * f64::from(packets) / from),
            };
            assert!(
                (seen - wanted).abs() <= rough,
                "{algorithm} at {rtt_ms} ms, {from} packets, ACKs of {packets}: {seen}, by the paper {wanted:.1}"
            );
        }
    }
}

/// The distance d below the maximum takes 2/d round trips a packet, and the last packet log2(1/0.01) = 7: from 40 packets on 13.6.
#[test]
fn bic_is_at_its_maximum_in_time() {
    let wanted = 7.0 + (2..=40).map(|distance| 2.0 / f64::from(distance)).sum::<f64>();
    for window in [1000, 10_000] {
        for packets in [1, 2, 45] {
            let mut flow = paper(Algorithm::Bic, window);
            flow.ssthresh();
            set_window(&mut flow, window - 40);
            let round_trips = (1..).find(|_| round_trip(&mut flow, 120 * MS, packets) >= window).unwrap();
            assert!(f64::from(round_trips) - wanted < 2.0, "{round_trips} round trips, {wanted:.1} by the paper");
        }
    }
}

/// FAST's mean follows a new RTT by 3/w a packet: 95 % of the way in a round trip, at any window and whatever ACKs acknowledge. What it is
/// shows in the step that follows.
#[test]
fn fast_smooths_as_much_at_any_window() {
    for window in WINDOWS {
        for packets in PACKETS_AN_ACK {
            let mut flow = paper(Algorithm::Fast, window);
            let mut rounds = Vec::new();
            for _ in 0..4 {
                set_window(&mut flow, window);
                rounds.push(round_trip(&mut flow, 100 * MS, packets));
            }
            // The next step is at the beginning of the third round trip from now.
            let w = f64::from(window);
            let share = (3.0 * f64::from(packets.min(window)) / w).min(0.25);
            let mut mean = 100.0;
            let first_step = rounds.windows(2).position(|pair| pair[1] > pair[0]).unwrap_or(0);
            let seen = (0..2)
                .map(|_| {
                    set_window(&mut flow, window);
                    round_trip(&mut flow, 110 * MS, packets)
                })
                .min()
                .unwrap();
            // After a whole round trip, or with the first ACK of it.
            let steps: Vec<f64> = (0..=window.div_ceil(packets))
                .map(|_| {
                    mean += (110.0 - mean) * share;
                    mean
                })
                .collect();
            let step = |mean: f64| w / 2.0 + (100.0 / mean * w + 200.0) / 2.0;
            let possible = [steps[0], steps[steps.len() - 1]].map(|mean| step(mean).min(w.max(step(mean))));
            let near = possible.iter().any(|wanted| (f64::from(seen) - wanted.min(2.0 * w)).abs() < 1.0 + 0.0005 * w)
                || seen >= window;
            assert!(near, "{window} packets, ACKs of {packets}: {seen}, by the paper {possible:.1?} ({first_step})");
        }
    }
}

/// The kernel halves a window that the application does not fill: Compound's parts become smaller alike, and Reno's is not lost.
#[test]
fn compound_keeps_its_reno_part_when_the_application_limits_it() {
    let mut flow = paper(Algorithm::Compound, 4000);
    for _ in 0..40 {
        round_trip(&mut flow, 100 * MS, 2);
    }
    // Of some 6,600 packets 4,040 are Reno's.
    let before = flow.socket.cwnd;
    let reno_share = 4040.0 / f64::from(before);
    set_window(&mut flow, before / 4);
    round_trip(&mut flow, 100 * MS, 2);
    // A queue takes dwnd away at once, and what stays is Reno's.
    let left = (0..4).map(|_| round_trip(&mut flow, 200 * MS, 2)).last().unwrap();
    let wanted = reno_share * f64::from(before / 4);
    assert!((f64::from(left) / wanted - 1.0).abs() < 0.03, "{left} of {}, {wanted:.0} are Reno's", before / 4);
}

/// draft-sridharan-tcpm-ctcp: a timeout may mean another path. The base RTT is forgotten with dwnd.
#[test]
fn compound_measures_anew_after_a_timeout() {
    let mut flow = paper(Algorithm::Compound, 1000);
    round_trip(&mut flow, 100 * MS, 2);
    flow.time_out();
    set_window(&mut flow, 1000);
    flow.socket.ssthresh = 2;
    for _ in 0..2 {
        round_trip(&mut flow, 200 * MS, 2);
    }
    let before = flow.socket.cwnd;
    let grown = round_trip(&mut flow, 200 * MS, 2) - before;
    assert!((20..=23).contains(&grown), "1000^¾/8 = 22.2: {grown}");
}

/// What a false loss did, by the window that a true one then leaves and by the growth that follows.
fn after_false_loss(settings: &Settings, prepare: impl Fn(&mut Native), false_loss: bool) -> (u32, Vec<u32>) {
    let mut flow = Native::new(settings);
    flow.init();
    flow.socket.ssthresh = 2;
    prepare(&mut flow);
    if false_loss {
        let before = flow.socket.cwnd;
        flow.socket.prior_cwnd = before;
        flow.socket.ssthresh = flow.ssthresh();
        flow.set_state(State::Recovery);
        flow.socket.cwnd = flow.socket.ssthresh;
        let back = flow.undo();
        flow.socket.cwnd = back;
        flow.set_state(State::Open);
        assert_eq!(back, before);
    }
    flow.socket.ssthresh = 2;
    let left = flow.ssthresh();
    flow.socket.cwnd = left;
    let grown = (0..20).map(|_| round_trip(&mut flow, 100 * MS, 1)).collect();
    (left, grown)
}

/// An undo brings back what the control remembers: H-TCP's largest RTT and throughput, BIC's maximum, YeAH's windows, Compound's dwnd.
#[test]
fn a_loss_that_was_none_leaves_no_trace() {
    let losses = |flow: &mut Native| {
        for (window, rtt_ms) in [(1000, 100), (1200, 120), (1200, 150), (1200, 150), (1000, 100)] {
            for _ in 0..8 {
                set_window(flow, window);
                round_trip(flow, rtt_ms * MS, 1);
            }
            if rtt_ms == 150 {
                flow.lose_packet();
            }
        }
        set_window(flow, 1100);
    };
    for algorithm in
        [Algorithm::Htcp, Algorithm::Bic, Algorithm::Yeah, Algorithm::Compound, Algorithm::Highspeed, Algorithm::Cubic]
    {
        let settings = Settings::new(algorithm, Variant::Paper).unwrap();
        let (without, with) = (after_false_loss(&settings, losses, false), after_false_loss(&settings, losses, true));
        // Credit for less than a packet may be lost, and a round trip that is measured begins anew.
        let near = (0..20).all(|at: usize| {
            let latest = at.checked_sub(2).map_or(with.0, |before| without.1[before] - 1);
            (latest..=without.1[at] + 1).contains(&with.1[at])
        });
        assert!(without.0 == with.0 && near, "{algorithm}: {with:?}, without the false loss {without:?}");
    }
    // Linux forgets BIC's maximum.
    let settings = Settings::new(Algorithm::Bic, Variant::Linux).unwrap();
    assert_ne!(after_false_loss(&settings, losses, false), after_false_loss(&settings, losses, true));
}

/// ECN: the kernel asks for ssthresh as at a loss and enters CWR. Growth then begins where it would after a loss.
#[test]
fn ecn_is_as_a_loss() {
    for algorithm in window_based() {
        let after = |state: State| {
            let mut flow = paper(algorithm, 2000);
            for _ in 0..6 {
                set_window(&mut flow, 2000);
                round_trip(&mut flow, 120 * MS, 2);
            }
            flow.socket.prior_cwnd = flow.socket.cwnd;
            flow.socket.ssthresh = flow.ssthresh();
            flow.set_state(state);
            flow.socket.cwnd = flow.socket.ssthresh;
            flow.event(crate::native::Event::CompleteCwr);
            flow.set_state(State::Open);
            (0..5).map(|_| round_trip(&mut flow, 120 * MS, 2)).collect::<Vec<_>>()
        };
        assert_eq!(after(State::Cwr), after(State::Recovery), "{algorithm}");
    }
}

/// The smallest growth that there is: H-TCP at 5 ms adds 0.04 packets a round trip once β is 0.8.
#[test]
fn small_fractions_add_up() {
    let mut settings = Settings::new(Algorithm::Htcp, Variant::Paper).unwrap();
    settings.set("least_keep_128=102").unwrap();
    let mut flow = Native::new(&settings);
    flow.init();
    flow.socket.ssthresh = 2;
    set_window(&mut flow, 1000);
    flow.sample(1, Some(5 * MS));
    // 2(1 - 102/128)·10 ms/100 ms = 0.040625 a window: 24.6 of them for a packet.
    let acked = (1..).find(|_| ack(&mut flow, 1) > 1000).unwrap();
    assert!((24_600..=24_640).contains(&acked), "{acked}");
}
