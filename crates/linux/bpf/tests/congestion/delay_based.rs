//! The controls that look at delay: Illinois, YeAH, Vegas, FAST, Compound.

use crate::native::{Event, Native, State};
use longhaul_congestion::{Algorithm, Variant};

use crate::flow::{MS, ack, changed, linux, paper, round_trip, set_window};

/// What `round_trips` of `rtt_ms` come to at a window that is put back to `cwnd` before each.
fn steady(flow: &mut Native, cwnd: u32, rtt_ms: u32, round_trips: u32) -> u32 {
    let mut last = cwnd;
    for _ in 0..round_trips {
        set_window(flow, cwnd);
        last = round_trip(flow, rtt_ms * MS, 1);
    }
    last
}

/// Liu, Başar, Srikant: α from 10 to 0.1, β from 1/8 to 1/2.
#[test]
fn illinois() {
    let mut flow = paper(Algorithm::Illinois, 1000);
    assert_eq!(steady(&mut flow, 1000, 100, 1), 1009, "no delay: 10 a round trip, for a window that grows on the way");
    assert_eq!(steady(&mut flow, 1000, 100, 1), 1010, "with the rest of the one before");
    set_window(&mut flow, 1000);
    assert_eq!(flow.ssthresh(), 875, "and an eighth");
    // A queue of 100 ms at most; its mean now.
    steady(&mut flow, 1000, 200, 2);
    assert_eq!(steady(&mut flow, 1000, 200, 2), 1000, "as full as ever: 0.1 a round trip");
    flow.ssthresh();
    set_window(&mut flow, 1000);
    assert_eq!(flow.ssthresh(), 500, "and a half");
    // da = 50, dm = 100: β = 1/8 + (50 - 10)/70·3/8 = 0.339, in 64ths rounded down 21.
    steady(&mut flow, 1000, 150, 3);
    set_window(&mut flow, 1000);
    assert_eq!(flow.ssthresh(), 1000 - 1000 * 21 / 64);
    // α: κ1/(κ2 + da) = 99·10/(99 + 49·99) = 0.2, so five round trips for one packet.
    set_window(&mut flow, 1000);
    let acks = (1..).find(|_| ack(&mut flow, 1) > 1000).unwrap();
    assert_eq!(acks, 1000 * 128 / 25, "25/128 = 0.195");
    // θ = 10 good round trips before it is bold again.
    let bold: Vec<bool> = (0..14).map(|_| steady(&mut flow, 1000, 100, 1) >= 1009).collect();
    assert_eq!(bold.iter().position(|bold| *bold), Some(10), "{bold:?}");
    // Linux: 5.
    let mut flow = linux(Algorithm::Illinois, 1000);
    steady(&mut flow, 1000, 100, 2);
    steady(&mut flow, 1000, 200, 2);
    let bold: Vec<bool> = (0..14).map(|_| steady(&mut flow, 1000, 100, 1) == 1009).collect();
    assert_eq!(bold.iter().position(|bold| *bold), Some(5), "{bold:?}");
}

#[test]
fn illinois_is_standard_in_small_windows_and_after_timeouts() {
    let mut flow = paper(Algorithm::Illinois, 9);
    assert_eq!(steady(&mut flow, 9, 100, 3), 10);
    set_window(&mut flow, 9);
    assert_eq!(flow.ssthresh(), 5, "9 - 9/2");
    let mut flow = paper(Algorithm::Illinois, 1000);
    flow.set_state(State::Loss);
    assert_eq!(ack(&mut flow, 1000), 1001);
}

/// Baiocchi et al. 2007: Q = RTT_queue·(cwnd/RTT), fast below 80 packets and RTT/8.
#[test]
fn yeah() {
    let mut flow = paper(Algorithm::Yeah, 1000);
    assert_eq!(steady(&mut flow, 1000, 100, 2), 1010, "fast: Scalable TCP");
    set_window(&mut flow, 1000);
    assert_eq!(flow.ssthresh(), 875, "a loss takes 1/8 at least");
    // 1000·(108 - 100)/108 = 74 packets: fast still, and a loss takes them or 125.
    assert_eq!(steady(&mut flow, 1000, 108, 2), 1010);
    // 1000·11/111 = 99: they are taken out.
    set_window(&mut flow, 1000);
    round_trip(&mut flow, 111 * MS, 1);
    let before = flow.socket.cwnd;
    round_trip(&mut flow, 111 * MS, 1);
    let left = flow.socket.cwnd;
    assert!((895..=915).contains(&left), "{before} → {left}");
    assert!(flow.socket.ssthresh.abs_diff(left) <= 10, "ssthresh follows: {} {left}", flow.socket.ssthresh);
    // 250 packets queued: a loss takes them.
    let mut flow = paper(Algorithm::Yeah, 1000);
    steady(&mut flow, 1000, 100, 2);
    set_window(&mut flow, 40);
    round_trip(&mut flow, 150 * MS, 1);
    round_trip(&mut flow, 150 * MS, 1);
    set_window(&mut flow, 1000);
    assert_eq!(flow.ssthresh(), 875, "13 of 40 were queued");
}

#[test]
fn yeah_among_greedy_flows_is_reno() {
    let mut flow = paper(Algorithm::Yeah, 200);
    steady(&mut flow, 200, 100, 2);
    // Queues that are not its own: RTT beyond 9/8, a few packets of its own.
    for _ in 0..20 {
        round_trip(&mut flow, 130 * MS, 1);
    }
    set_window(&mut flow, 200);
    assert_eq!(flow.ssthresh(), 100, "more than 16 slow round trips in a row");
    set_window(&mut flow, 200);
    assert_eq!(ack(&mut flow, 200), 201, "and Reno's growth");
}

/// Baiocchi, Castellani, Vacirca 2007: more than α packets of its own in queues make it slow, and it takes them out.
#[test]
fn yeah_is_slow_beyond_alpha() {
    let after = |change: &str, rtt_ms| {
        let mut flow = changed(Algorithm::Yeah, Variant::Paper, change, 1000);
        steady(&mut flow, 1000, 100, 2);
        steady(&mut flow, 1000, rtt_ms, 2)
    };
    assert!((915..=922).contains(&after("alpha=80", 109)), "1000·9/109 = 82");
    assert_eq!((after("alpha=90", 109), after("alpha=200", 111)), (1010, 1010), "fast");
}

/// A YeAH flow that Reno flows would leave about 731 packets: so much it keeps when it empties the queue.
fn yeah_beside_reno(variant: Variant, change: &str) -> Native {
    let mut flow = changed(Algorithm::Yeah, variant, change, 1900);
    steady(&mut flow, 1900, 100, 2);
    // 1900·30/130 = 438 packets are taken out, and half of the rest is Reno's.
    steady(&mut flow, 1900, 130, 2);
    flow
}

/// 1000·50/150 = 333 packets are queued: what it keeps of 1000.
fn kept(flow: &mut Native) -> u32 {
    steady(flow, 1000, 150, 2)
}

/// After more than ζ fast round trips no Reno flow is taken to be there.
#[test]
fn yeah_forgets_greedy_flows_after_zeta_fast_round_trips() {
    let round_trips = |zeta: u32| {
        (0..100).find(|fast| {
            let mut flow = yeah_beside_reno(Variant::Paper, &format!("zeta={zeta}"));
            steady(&mut flow, 1000, 100, *fast);
            kept(&mut flow) < 700
        })
    };
    let [ten, fifty] = [10, 50].map(|zeta| round_trips(zeta).unwrap());
    assert_eq!(fifty - ten, 40, "{ten} {fifty}");
    assert!((45..=52).contains(&fifty), "{fifty}");
}

/// A loss halves what Reno is taken to have; where it was none, the paper's variant has it back.
#[test]
fn yeah_undoes_what_was_no_loss() {
    for (variant, least) in [(Variant::Paper, 731), (Variant::Linux, 660)] {
        let mut flow = yeah_beside_reno(variant, "zeta=50");
        assert!(kept(&mut flow) >= 731);
        let mut flow = yeah_beside_reno(variant, "zeta=50");
        flow.ssthresh();
        flow.undo();
        let kept = kept(&mut flow);
        assert!((least..least + 40).contains(&kept), "{variant:?}: {kept}");
    }
}

/// In Linux an ACK that ends slow start adds nothing in congestion avoidance; by the paper its rest counts.
#[test]
fn illinois_ends_slow_start_with_an_ack() {
    for (variant, grown) in [(Variant::Paper, 10), (Variant::Linux, 0)] {
        let mut flow = changed(Algorithm::Illinois, variant, "good_rtts=10", 990);
        flow.socket.ssthresh = 995;
        assert_eq!(ack(&mut flow, 1000), 995 + grown, "{variant:?}");
    }
}

/// Brakmo, Peterson 1995: α = 2, β = 4 packets.
#[test]
fn vegas() {
    let mut flow = paper(Algorithm::Vegas, 20);
    let mut after = |rtt_ms: u32| {
        steady(&mut flow, 20, rtt_ms, 2);
        flow.socket.cwnd
    };
    assert_eq!(after(100), 21, "none queued");
    assert_eq!(after(111), 21, "20·11/111 = 1.98");
    assert_eq!(after(112), 20, "20·12/112 = 2.1");
    assert_eq!(after(124), 20, "20·24/124 = 3.9");
    assert_eq!(after(126), 19, "20·26/126 = 4.1");
    assert_eq!(flow.ssthresh(), 14, "a quarter less");
    // Linux: 20·9/100 = 1, 20·12/100 = 2, 20·24/100 = 4, 20·25/100 = 5, and half.
    let mut flow = linux(Algorithm::Vegas, 20);
    let after = |flow: &mut Native, rtt_ms: u32| {
        steady(flow, 20, rtt_ms, 2);
        flow.socket.cwnd
    };
    let windows = [100, 109, 112, 124, 126].map(|rtt_ms| after(&mut flow, rtt_ms));
    assert_eq!((windows, flow.ssthresh()), ([21, 21, 20, 20, 19], 9));
}

#[test]
fn vegas_leaves_slow_start_when_packets_queue() {
    let mut flow = paper(Algorithm::Vegas, 10);
    flow.socket.ssthresh = u32::MAX;
    let windows: Vec<u32> = (0..5).map(|_| round_trip(&mut flow, 100 * MS, 1)).collect();
    let doublings = windows.windows(2).filter(|pair| pair[1] > pair[0] * 3 / 2).count();
    assert!((1..=3).contains(&doublings), "every other round trip: {windows:?}");
    round_trip(&mut flow, 120 * MS, 1);
    round_trip(&mut flow, 120 * MS, 1);
    // A sixth of the window was queued: the actual rate, and one, is what is left.
    assert!(flow.socket.ssthresh < flow.socket.cwnd && flow.socket.cwnd < 100, "{:?}", flow.socket);

    let mut flow = linux(Algorithm::Vegas, 10);
    flow.socket.ssthresh = u32::MAX;
    let windows: Vec<u32> = (0..4).map(|_| round_trip(&mut flow, 100 * MS, 1)).collect();
    assert!(windows.windows(2).all(|pair| pair[1] > pair[0] * 3 / 2), "Linux: each round trip: {windows:?}");
}

#[test]
fn an_idle_time_forgets_the_base_rtt() {
    let mut flow = paper(Algorithm::Vegas, 20);
    steady(&mut flow, 20, 100, 2);
    flow.event(Event::CwndRestart);
    assert_eq!(steady(&mut flow, 20, 200, 3), 21, "200 ms is the path now, not a queue");
}

/// Wei, Jin, Low, Hegde 2006: w ← min(2w, (1 - γ)w + γ(base/RTT·w + α)).
#[test]
fn fast() {
    let mut flow = paper(Algorithm::Fast, 1000);
    assert_eq!(flow.socket.pacing_status, 1, "the kernel paces");
    // No queue: half of α every other round trip.
    let windows: Vec<u32> = (0..6).map(|_| round_trip(&mut flow, 100 * MS, 1)).collect();
    let steps: Vec<u32> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        steps.contains(&0) && steps.contains(&100) && steps.iter().all(|step| [0, 100].contains(step)),
        "{windows:?}"
    );
    // α queued, 1000·(1 - 100/125) = 200: it stays.
    set_window(&mut flow, 1000);
    for _ in 0..40 {
        set_window(&mut flow, 1000);
        round_trip(&mut flow, 125 * MS, 1);
    }
    let stays = flow.socket.cwnd;
    assert!((999..=1001).contains(&stays), "{stays}");
    // Twice as much: base/RTT·w + α = 1000·100/150 + 200 = 867, half of the way.
    for _ in 0..41 {
        set_window(&mut flow, 1000);
        round_trip(&mut flow, 150 * MS, 1);
    }
    let shrinks = (0..2)
        .map(|_| {
            set_window(&mut flow, 1000);
            round_trip(&mut flow, 150 * MS, 1)
        })
        .min()
        .unwrap();
    assert!((932..=935).contains(&shrinks), "{shrinks}");
    assert_eq!(flow.ssthresh(), flow.socket.cwnd / 2);
    // Shrunk below ssthresh by delay it does not slow-start back.
    set_window(&mut flow, 1000);
    flow.socket.ssthresh = 1000;
    let windows: Vec<u32> = (0..6).map(|_| round_trip(&mut flow, 150 * MS, 1)).collect();
    assert!(windows.windows(2).all(|pair| pair[1] <= pair[0]) && windows[5] < 930, "{windows:?}");
    // At most twice the window.
    let mut flow = paper(Algorithm::Fast, 20);
    let windows: Vec<u32> = (0..3).map(|_| round_trip(&mut flow, 100 * MS, 1)).collect();
    assert_eq!(windows.last(), Some(&40), "{windows:?}");
}

/// draft-sridharan-tcpm-ctcp-02: dwnd grows by win^¾/8 - 1 a round trip while less than 30 packets are queued.
#[test]
fn compound() {
    let mut flow = paper(Algorithm::Compound, 10_000);
    round_trip(&mut flow, 100 * MS, 1);
    let before = flow.socket.cwnd;
    round_trip(&mut flow, 100 * MS, 1);
    // 10,000^¾/8 - 1 = 124, the last of them with the first ACK of the next; Reno's one comes when the larger window has passed.
    assert_eq!(flow.socket.cwnd - before, 123, "{before}");
    // Below 38 packets it is Reno.
    let mut small = paper(Algorithm::Compound, 30);
    steady(&mut small, 30, 100, 2);
    assert_eq!(small.socket.cwnd, 31);
    // A loss halves the sum: β = 1/2.
    let window = flow.socket.cwnd;
    flow.lose_packet();
    assert_eq!(flow.socket.cwnd, window / 2);
    // A queue takes dwnd away, and then it is Reno: 5,000 of its window, less by the loss, and one more a round trip.
    let windows: Vec<u32> = (0..20).map(|_| round_trip(&mut flow, 110 * MS, 1)).collect();
    let least = windows.iter().position(|window| *window < 5010);
    assert!(least.is_some_and(|index| index < 4), "{windows:?}");
    assert!(windows.windows(2).skip(4).all(|pair| pair[1] == pair[0] + 1), "{windows:?}");
}

#[test]
fn compound_after_a_timeout_is_reno() {
    let mut flow = paper(Algorithm::Compound, 1000);
    steady(&mut flow, 1000, 100, 1);
    round_trip(&mut flow, 100 * MS, 1);
    flow.time_out();
    assert_eq!(flow.socket.cwnd, 1);
    set_window(&mut flow, 100);
    flow.socket.ssthresh = 2;
    let before = flow.ssthresh();
    assert_eq!(before, 50);
}
