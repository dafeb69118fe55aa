//! Whatever the kernel calls, in whatever order, with whatever numbers: the window is at least one packet and at most the clamp, an ACK adds
//! no more than it acknowledges to what the window was before, and nothing divides by zero or shifts too far (the C is built to trap).

use longhaul_congestion::{Algorithm, Settings, Variant};
use proptest::prelude::*;

use crate::native::{Event, Native, RateSample, State};

#[derive(Debug, Clone)]
enum Call {
    Init,
    Ack(RateSample),
    Ssthresh,
    State(u8),
    Event(u8),
    Undo,
    Time(u64),
    Socket { cwnd: u32, limited: bool, packets: [u32; 5], srtt_8us: u32, app_limited: u32, mss: u32, sack: bool },
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), 0..100_u32, 0..2_000_000_u32, any::<u32>(), Just(u32::MAX)]
}

fn sample() -> impl Strategy<Value = RateSample> {
    let wild = (number(), any::<i32>(), any::<i64>(), any::<i64>(), number(), number(), 0..2_u32);
    let tame = (0..5000_u32, -1..2000_i32, -1..200_000_i64, -1..200_000_i64, 0..100_u32, 0..3000_u32, 0..2_u32);
    prop_oneof![1 => wild.boxed(), 4 => tame.boxed()].prop_map(
        |(prior_delivered, delivered, interval_us, rtt_us, acked, prior_in_flight, is_app_limited)| RateSample {
            prior_delivered,
            delivered,
            interval_us,
            rtt_us,
            acked,
            prior_in_flight,
            is_app_limited,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        1 => Just(Call::Init),
        16 => sample().prop_map(Call::Ack),
        1 => Just(Call::Ssthresh),
        2 => (0..5_u8).prop_map(Call::State),
        2 => (0..4_u8).prop_map(Call::Event),
        1 => Just(Call::Undo),
        4 => prop_oneof![0..200_000_u64, 0..20_000_000_u64, any::<u64>()].prop_map(Call::Time),
        3 => (number(), any::<bool>(), proptest::array::uniform5(number()), number(), number(), number(), any::<bool>()).prop_map(
            |(cwnd, limited, packets, srtt_8us, app_limited, mss, sack)| Call::Socket { cwnd: cwnd.max(1), limited, packets, srtt_8us, app_limited, mss, sack }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn the_window_stays_within_its_bounds(
        changed in proptest::option::of((any::<proptest::sample::Index>(), any::<bool>())),
        clamp in prop_oneof![Just(u32::MAX), 1..1000_u32],
        calls in proptest::collection::vec(call(), 0..200),
    ) {
        let mut settings = Settings::new(Algorithm::Bbr3, Variant::Paper).unwrap();
        if let Some((index, greatest)) = changed {
            let parameter = index.get(Algorithm::Bbr3.parameters());
            settings.set(&format!("{}={}", parameter.name, if greatest { parameter.most } else { 0 })).unwrap();
        }
        let mut flow = Native::new(&settings);
        flow.socket.cwnd_clamp = clamp;
        flow.socket.cwnd = flow.socket.cwnd.min(clamp);
        flow.init();
        // What the end of a recovery may bring back.
        let mut most = flow.socket.cwnd;
        for call in &calls {
            let before = flow.socket.cwnd;
            most = most.max(before);
            match call {
                Call::Init => flow.init(),
                Call::Ack(sample) => {
                    flow.socket.delivered = flow.socket.delivered.wrapping_add(sample.acked);
                    flow.control(sample);
                }
                Call::Ssthresh => prop_assert!(flow.ssthresh() >= 2),
                Call::State(state) => {
                    flow.set_state([State::Open, State::Disorder, State::Cwr, State::Recovery, State::Loss][usize::from(*state)]);
                }
                Call::Event(event) => {
                    flow.event([Event::TxStart, Event::CwndRestart, Event::CompleteCwr, Event::Loss][usize::from(*event)]);
                }
                Call::Undo => prop_assert!(flow.undo() >= flow.socket.cwnd),
                Call::Time(us) => flow.socket.time_us = flow.socket.time_us.wrapping_add(*us),
                Call::Socket { cwnd, limited, packets, srtt_8us, app_limited, mss, sack } => {
                    let socket = &mut flow.socket;
                    socket.cwnd = (*cwnd).min(clamp);
                    socket.is_cwnd_limited = u32::from(*limited);
                    [socket.packets_out, socket.sacked_out, socket.lost_out, socket.retrans_out, socket.lost] = *packets;
                    (socket.srtt_8us, socket.app_limited, socket.mss, socket.sack) = (*srtt_8us, *app_limited, *mss, u32::from(*sack));
                }
            }
            let cwnd = flow.socket.cwnd;
            prop_assert!(cwnd >= 1 && cwnd <= clamp, "{} after {:?}", cwnd, call);
            if let Call::Ack(sample) = call {
                // Four packets are the least that it pipelines with.
                let allowed = u64::from(most.max(4)) + u64::from(sample.acked);
                prop_assert!(u64::from(cwnd) <= allowed, "{} after {} and {:?}", cwnd, before, call);
            }
        }
    }
}
