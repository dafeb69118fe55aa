//! The rules of `tcp.h`, which each control keeps in each variant: an ACK adds no more than it acknowledged, and the time since a loss stands
//! still while the window is not the limit.

use crate::native::{Event, Native};
use longhaul_congestion::{Algorithm, Settings, Variant};

use crate::flow::{MS, ack, round_trip, set_window, window_based};

const RTT_US: u32 = 100 * MS;

/// Each control that sets a window, in each variant.
fn all() -> impl Iterator<Item = Settings> {
    let variants = window_based().flat_map(|one| [Variant::Paper, Variant::Linux].map(|variant| (one, variant)));
    variants.filter_map(|(algorithm, variant)| Settings::new(algorithm, variant).ok())
}

/// How a flow does not use its window for a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pause {
    /// It sends nothing, and Linux tells the end of that by `cwnd_event`.
    Idle,
    /// The same where Linux tells it by a callback of its own, as since 7.1.
    IdleToldApart,
    /// The application has ten packets a round trip.
    Limited,
}

/// Has `flow` pause for `seconds`.
fn pause(flow: &mut Native, how: Pause, seconds: u32) {
    if how == Pause::Limited {
        flow.socket.is_cwnd_limited = 0;
        flow.socket.max_packets_out = 10;
        for _ in 0..seconds * 10 {
            flow.socket.time_us += u64::from(RTT_US);
            for _ in 0..5 {
                flow.socket.snd_una += 2;
                flow.socket.delivered += 2;
                flow.acked(flow.socket.snd_una, 2, Some(RTT_US));
            }
            flow.socket.snd_nxt = flow.socket.snd_una + 10;
        }
        flow.socket.is_cwnd_limited = 1;
        return;
    }
    flow.socket.time_us += u64::from(seconds) * 1_000_000;
    match how {
        Pause::IdleToldApart => flow.tx_start_alone(),
        _ => flow.event(Event::TxStart),
    }
}

/// A flow of 1,000 packets in congestion avoidance that had a loss one second ago, or two.
fn flow(settings: &Settings) -> Native {
    let mut flow = Native::new(settings);
    flow.socket.srtt_8us = RTT_US * 8;
    flow.init();
    flow.socket.ssthresh = 2;
    for _ in 0..20 {
        set_window(&mut flow, 1000);
        round_trip(&mut flow, RTT_US, 2);
    }
    set_window(&mut flow, 1000);
    flow
}

/// A round trip of single ACKs; each adds at most one packet.
fn careful_round_trip(flow: &mut Native, settings: &Settings) -> u32 {
    let window = flow.socket.cwnd;
    flow.socket.snd_nxt = flow.socket.snd_una + window;
    flow.socket.max_packets_out = window;
    for _ in 0..window {
        let before = flow.socket.cwnd;
        flow.socket.time_us += u64::from(RTT_US / window);
        flow.socket.snd_una += 1;
        flow.socket.delivered += 1;
        flow.acked(flow.socket.snd_una, 1, Some(RTT_US));
        assert!(flow.socket.cwnd <= before + 1, "{}: {before} to {}", settings.name(), flow.socket.cwnd);
    }
    flow.socket.cwnd
}

/// A thousand packets at 100 ms, ten minutes and an hour: H-TCP had 13,879 and 44,779 after one round trip.
#[test]
fn a_pause_is_no_reason_to_grow() {
    for settings in all() {
        for how in [Pause::Idle, Pause::IdleToldApart, Pause::Limited] {
            for seconds in [600, 3600] {
                let without = {
                    let mut flow = flow(&settings);
                    [0; 2].map(|_| careful_round_trip(&mut flow, &settings))
                };
                let mut flow = flow(&settings);
                pause(&mut flow, how, seconds);
                assert_eq!(flow.socket.cwnd, 1000, "{}: it grew in the pause ({how:?})", settings.name());
                let after = [0; 2].map(|_| careful_round_trip(&mut flow, &settings));
                // Steps and fractions may fall differently.
                let most = without[1] + (without[1] - 1000) / 50 + 1;
                let what = settings.name();
                assert!(after[1] <= most, "{what}, {how:?} {seconds} s: {after:?}, without {without:?}");
            }
        }
    }
}

/// H-TCP's δ: what it was before the pause, to the millisecond. 10 s after a loss a round trip adds 1 + 90 + 20.
#[test]
fn the_clock_of_htcp_stands_still() {
    for how in [Pause::Idle, Pause::IdleToldApart, Pause::Limited] {
        let mut flow = Native::new(&Settings::new(Algorithm::Htcp, Variant::Paper).unwrap());
        flow.init();
        flow.socket.ssthresh = 2;
        for _ in 0..100 {
            set_window(&mut flow, 1000);
            round_trip(&mut flow, RTT_US, 10);
        }
        pause(&mut flow, how, 600);
        set_window(&mut flow, 100_000);
        let grown = ack(&mut flow, 100_000) - 100_000;
        assert!((111..=112).contains(&grown), "{how:?}: {grown}");
    }
}

/// A large ACK adds no more than it acknowledges, even where a round trip would add more than the window.
#[test]
fn a_round_trip_at_most_doubles_the_window() {
    let mut flow = Native::new(&Settings::new(Algorithm::Htcp, Variant::Paper).unwrap());
    flow.sample(1, Some(RTT_US));
    flow.init();
    flow.socket.ssthresh = 2;
    set_window(&mut flow, 1000);
    flow.socket.time_us += 600_000_000;
    assert_eq!(ack(&mut flow, 10), 1010);
    assert_eq!(ack(&mut flow, 1010), 2020);
}

/// The kernel may have set the window without the control: a loss then leaves no more than what is in flight.
#[test]
fn a_loss_fixes_a_window_that_no_receiver_grants() {
    for settings in all() {
        let mut flow = flow(&settings);
        let usual = flow.ssthresh();
        assert!(usual <= 1000, "{}: {usual}", settings.name());
        flow.socket.cwnd = 1_560_564_376;
        flow.socket.packets_out = 1010;
        flow.socket.sacked_out = 10;
        let fixed = flow.ssthresh();
        assert!((2..=1000).contains(&fixed), "{}: {fixed}", settings.name());
        // Also where the loss was none.
        flow.socket.prior_cwnd = flow.socket.cwnd;
        flow.socket.cwnd = fixed;
        assert_eq!(flow.undo(), fixed, "{}", settings.name());
    }
}

/// Linux 7.1 tells the beginning of sending by a callback of its own: what the path was before is forgotten then, too.
#[test]
fn each_way_of_telling_that_sending_begins_forgets_the_base_rtt() {
    for algorithm in [Algorithm::Vegas, Algorithm::Yeah] {
        for variant in [Variant::Paper, Variant::Linux] {
            let growth = |how: Option<Pause>| {
                let settings = Settings::new(algorithm, variant).unwrap();
                let mut flow = flow(&settings);
                if let Some(how) = how {
                    pause(&mut flow, how, 1);
                }
                // The path is longer by 30 ms now.
                for _ in 0..3 {
                    set_window(&mut flow, 1000);
                    round_trip(&mut flow, 130 * MS, 1);
                }
                flow.socket.cwnd
            };
            assert!(growth(None) < 1000, "{algorithm}: a queue");
            assert!(growth(Some(Pause::Idle)) > 1000, "{algorithm}: by cwnd_event");
            assert!(growth(Some(Pause::IdleToldApart)) > 1000, "{algorithm}: by cwnd_event_tx_start");
        }
    }
}
