//! Whatever the kernel calls, in whatever order, with whatever numbers: the window is at least one packet and at most the clamp,
//! ssthresh at least two, and nothing divides by zero or shifts too far (the C is built to trap where it would).

use crate::flow::window_based;
use crate::native::{Event, Native, State};
use longhaul_congestion::{Algorithm, Settings, Variant};
use proptest::prelude::*;

/// Something that the kernel tells a control.
#[derive(Debug, Clone)]
enum Call {
    Init,
    Acked { packets: u32, rtt_us: Option<u32>, ahead: i32 },
    Grow { packets: u32 },
    Ssthresh { take: bool },
    State(u8),
    Event(u8),
    Undo,
    Time { us: u64 },
    Window { cwnd: u32, ssthresh: u32, limited: bool, sent: u32, srtt_8us: u32 },
}

/// Small, large and those at the edges.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), 0..100_u32, 0..2_000_000_u32, any::<u32>(), Just(u32::MAX), Just(1_000_000)]
}

/// 1 µs, 10 s, and all between and beyond.
fn rtt_us() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), 1..10_000_000_u32, Just(10_000_000), any::<u32>()]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        1 => Just(Call::Init),
        8 => (number(), proptest::option::of(rtt_us()), any::<i32>()).prop_map(|(packets, rtt_us, ahead)| Call::Acked { packets, rtt_us, ahead }),
        8 => (1..100_u32, proptest::option::of(1..1_000_000_u32)).prop_map(|(packets, rtt_us)| Call::Acked { packets, rtt_us, ahead: 1 }),
        4 => number().prop_map(|packets| Call::Grow { packets }),
        3 => any::<bool>().prop_map(|take| Call::Ssthresh { take }),
        2 => (0..5_u8).prop_map(Call::State),
        2 => (0..4_u8).prop_map(Call::Event),
        1 => Just(Call::Undo),
        4 => prop_oneof![0..200_000_u64, any::<u64>()].prop_map(|us| Call::Time { us }),
        3 => (number(), number(), any::<bool>(), number(), number())
            .prop_map(|(cwnd, ssthresh, limited, sent, srtt_8us)| Call::Window { cwnd: cwnd.max(1), ssthresh, limited, sent, srtt_8us }),
    ]
}

fn play(flow: &mut Native, call: &Call) {
    match *call {
        Call::Init => flow.init(),
        Call::Acked { packets, rtt_us, ahead } => {
            flow.socket.delivered = flow.socket.delivered.wrapping_add(packets);
            flow.acked(flow.socket.snd_nxt.wrapping_add_signed(ahead), packets, rtt_us);
        }
        Call::Grow { packets } => flow.grow(flow.socket.snd_una, packets),
        Call::Ssthresh { take } => {
            let ssthresh = flow.ssthresh();
            assert!(ssthresh >= 2, "{flow:?}");
            if take {
                flow.socket.prior_cwnd = flow.socket.cwnd;
                flow.socket.ssthresh = ssthresh;
                flow.socket.cwnd = ssthresh.min(flow.socket.cwnd_clamp);
                flow.socket.cwnd_cnt = 0;
            }
        }
        Call::State(state) => {
            let states = [State::Open, State::Disorder, State::Cwr, State::Recovery, State::Loss];
            flow.set_state(states[usize::from(state)]);
        }
        Call::Event(event) => {
            let events = [Event::TxStart, Event::CwndRestart, Event::CompleteCwr, Event::Loss];
            flow.event(events[usize::from(event)]);
        }
        Call::Undo => assert!(flow.undo() >= flow.socket.cwnd),
        Call::Time { us } => flow.socket.time_us = flow.socket.time_us.wrapping_add(us),
        Call::Window { cwnd, ssthresh, limited, sent, srtt_8us } => {
            flow.socket.cwnd = cwnd.min(flow.socket.cwnd_clamp);
            flow.socket.ssthresh = ssthresh;
            flow.socket.is_cwnd_limited = u32::from(limited);
            flow.socket.max_packets_out = sent;
            flow.socket.snd_nxt = flow.socket.snd_nxt.wrapping_add(sent);
            flow.socket.srtt_8us = srtt_8us;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn the_window_stays_within_its_bounds(
        algorithm in proptest::sample::select(window_based().collect::<Vec<_>>()),
        linux in any::<bool>(),
        // Now and then a parameter at its edge.
        changed in proptest::option::of((any::<proptest::sample::Index>(), any::<bool>())),
        clamp in prop_oneof![Just(u32::MAX), 1..1000_u32],
        calls in proptest::collection::vec(call(), 0..200),
    ) {
        let variant = if linux && algorithm.has_linux_variant() { Variant::Linux } else { Variant::Paper };
        let mut settings = Settings::new(algorithm, variant).unwrap();
        if let Some((index, greatest)) = changed {
            let parameter = index.get(algorithm.parameters());
            settings.set(&format!("{}={}", parameter.name, if greatest { parameter.most } else { 0 })).unwrap();
        }
        let mut flow = Native::new(&settings);
        flow.socket.cwnd_clamp = clamp;
        flow.socket.cwnd = flow.socket.cwnd.min(clamp);
        flow.init();
        for call in &calls {
            let before = flow.socket.cwnd;
            play(&mut flow, call);
            let cwnd = flow.socket.cwnd;
            prop_assert!(cwnd >= 1 && cwnd <= clamp, "{} after {:?}", cwnd, call);
            if let Call::Acked { packets, .. } | Call::Grow { packets } = *call {
                let most = most_growth(algorithm, before, packets);
                prop_assert!(u64::from(cwnd) <= u64::from(before) + most, "{} after {} and {:?}", cwnd, before, call);
            }
        }
    }
}

/// What an ACK may add to a window of `cwnd`: what it acknowledged. Hybla has a limit of its own, 2^ρ in slow start and ρ² a round trip, for
/// the greatest ρ that it knows (16 and 1000).
fn most_growth(algorithm: Algorithm, cwnd: u32, packets: u32) -> u64 {
    let packets = u64::from(packets);
    // A window is never less than two packets where it shrinks, and Vegas and FAST do that at an ACK.
    let least = u64::from(2_u32.saturating_sub(cwnd));
    match algorithm {
        // Linux adds once for an ACK, of whatever size.
        Algorithm::Hybla => {
            let packets = packets.max(1);
            (packets << 17).max(packets.saturating_mul(1_000_000) / u64::from(cwnd.max(1)) + 1)
        }
        _ => packets.max(least),
    }
}

/// The corners that DataTAG's successors meet: windows of 1 and 10⁶, RTTs of 1 µs and 10 s, hours between losses.
#[test]
fn corners() {
    for algorithm in window_based() {
        for cwnd in [1, 2, 38, 1_000_000, 100_000_000] {
            for rtt_us in [1, 1000, 10_000_000] {
                let mut flow = Native::new(&Settings::new(algorithm, Variant::Paper).unwrap());
                flow.socket.srtt_8us = 8 * rtt_us;
                flow.init();
                flow.socket.ssthresh = 2;
                flow.socket.cwnd = cwnd;
                flow.socket.max_packets_out = cwnd;
                for round in 0..6 {
                    for _ in 0..8 {
                        let before = flow.socket.cwnd;
                        let packets = (before / 8).max(1);
                        flow.socket.time_us += u64::from(rtt_us / 8).max(1);
                        flow.socket.snd_una = flow.socket.snd_una.wrapping_add(packets);
                        flow.socket.delivered = flow.socket.delivered.wrapping_add(packets);
                        flow.acked(flow.socket.snd_una, packets, Some(rtt_us));
                        flow.socket.snd_nxt = flow.socket.snd_una.wrapping_add(flow.socket.cwnd);
                        let grown = flow.socket.cwnd;
                        let most = u64::from(before) + most_growth(algorithm, before, packets);
                        prop_like(grown >= cwnd.min(2) && u64::from(grown) <= most, algorithm, cwnd, rtt_us, grown);
                    }
                    if round == 3 {
                        flow.socket.time_us += 3_600_000_000;
                    }
                }
                let ssthresh = flow.ssthresh();
                prop_like(ssthresh >= 2 && ssthresh <= flow.socket.cwnd.max(2), algorithm, cwnd, rtt_us, ssthresh);
            }
        }
    }
}

fn prop_like(holds: bool, algorithm: Algorithm, cwnd: u32, rtt_us: u32, value: u32) {
    assert!(holds, "{algorithm} at {cwnd} packets and {rtt_us} us: {value}");
}
