//! Stamps that no clock makes, as broken and hostile files have them: nothing overflows, and centuries are no round trip.

use proptest::prelude::*;

use super::*;
use crate::round_trip::LONGEST_NS;
use longhaul_captures::packet::TIMES;

const FIRST: i64 = *TIMES.start();
const LAST: i64 = *TIMES.end();

/// A conversation that begins at the last moment that there is, so that no flow ends as time goes on.
fn at_the_end_of_time() -> Talk {
    let mut talk = Talk::new();
    talk.say(LAST, true, SYN, 0, 0, 0);
    talk
}

#[test]
fn a_handshake_of_centuries_has_no_round_trip() {
    let mut talk = at_the_end_of_time();
    talk.say(FIRST, true, SYN, 0, 0, 0);
    talk.say(LAST, false, SYN | ACK, 0, 1, 0);
    talk.say(FIRST, false, SYN | ACK, 0, 1, 0);
    talk.say(LAST, true, ACK, 1, 1, 0);
    talk.say(LAST, true, ACK, seq(0), 1, MSS);
    let connection = talk.one().connection.unwrap();
    assert_eq!((connection.handshake_rtt_ns, connection.handshake_server_ns), (None, None));
}

/// Each direction's data is acknowledged centuries later; then a hole is filled twice.
#[test]
fn an_acknowledgment_after_centuries_is_no_round_trip() {
    let mut talk = at_the_end_of_time();
    talk.say(FIRST, true, ACK, seq(0), 1, MSS);
    talk.say(LAST, false, ACK, 1, seq(1), 0);
    talk.say(FIRST, false, ACK, 1, seq(1), MSS);
    talk.say(LAST, true, ACK, seq(1), 1 + MSS, 0);
    for n in [3, 1, 1] {
        talk.say(LAST, true, ACK, seq(n), 1 + MSS, MSS);
    }
    talk.say(LAST, false, ACK, 1 + MSS, seq(4), 0);
    talk.say(LAST, true, RST | ACK, seq(4), 1 + MSS, 0);
    let flow = talk.one();
    assert!([&flow.forward, &flow.backward].iter().all(|own| own.tcp.as_ref().unwrap().rtt.is_none()));
}

#[test]
fn silence_and_closed_windows_add_up_to_no_more_than_a_number_holds() {
    let mut talk = at_the_end_of_time();
    talk.say(FIRST, true, SYN, 0, 0, 0);
    talk.say(FIRST + 1_000, false, SYN | ACK, 0, 1, 0);
    talk.say(FIRST + 2_000, true, ACK, 1, 1, 0);
    for n in 0..16 {
        let visit_ns = if n % 4 < 2 { FIRST + 5 * MS } else { LAST - 5 * MS };
        let at_ns = visit_ns + i64::from(n % 2) * 2 * MS;
        talk.say(at_ns, true, ACK, seq(n), 1, MSS);
        talk.say(at_ns + 1_000, false, ACK, 1, seq(n + 1), 0);
    }
    for n in 0..8 {
        let at_ns = if n % 2 == 0 { FIRST } else { LAST };
        let Transport::Tcp(tcp) = &mut talk.say(at_ns, false, ACK, 1, seq(16), 0).transport else { unreachable!() };
        tcp.window = n % 2;
    }
    let flow = talk.one();
    let limits = forward(&flow).limits.unwrap();
    assert_eq!((limits.path_rtt_ns, limits.silent_ns, forward(&flow).zero_window_ns), (2_000, i64::MAX, i64::MAX));
}

proptest! {
    /// Packets of any stamps, of one flow, while the capture lost others at any time.
    #[test]
    fn any_stamps_are_summed_up(
        packets in prop::collection::vec(
            (0_usize..7, any::<bool>(), 0_u16..32, 0_u32..8, 0_u32..8, 0_u32..3, any::<bool>(), 0_u16..2), 0..60,
        ),
        gap in prop::option::of((0_usize..7, 0_usize..7)),
    ) {
        let stamps = [FIRST, FIRST + MS, -MS, 0, MS, LAST - MS, LAST];
        let gap = gap.map(|(from, to)| Gap {
            place: DroppedAt::KernelRing,
            interface: None,
            from_ns: stamps[from],
            to_ns: stamps[to],
            packets: 1,
        });
        let mut talk = Talk::new();
        for (at, forward, flags, seq, ack, payload, stamped, window) in packets {
            talk.stamps = stamped;
            let packet = talk.say(stamps[at], forward, flags, seq * 500, ack * 500, payload * 500);
            let Transport::Tcp(tcp) = &mut packet.transport else { unreachable!() };
            tcp.window = window;
        }
        let mut flows = Flows::with_gaps(FlowOptions::default(), Vec::new(), Gaps::of(gap.as_slice()));
        talk.flows.iter().for_each(|packet| flows.packet(packet));
        let (all, totals) = flows.finish();
        prop_assert!(totals.left_out_ns >= 0);
        for direction in all.iter().flat_map(|flow| [&flow.forward, &flow.backward]) {
            let tcp = direction.tcp.as_ref().unwrap();
            prop_assert!([tcp.rtt, tcp.timestamp_rtt].iter().flatten().all(|rtt| rtt.max_ns <= LONGEST_NS));
            prop_assert!(tcp.zero_window_ns.min(direction.left_out_ns).min(direction.longest_silence_ns) >= 0);
        }
    }
}
