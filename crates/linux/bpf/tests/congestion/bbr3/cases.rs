//! The draft's appendix "BBR Example Test Cases", by their names. The model's state stands for the C's, as the windows and rates of both are
//! compared at each ACK.

use super::model::State;
use super::path::{Application, Flow, Path, WIDE};
use crate::native::State as Kernel;
use longhaul_congestion::aimd::Model as Cubic;

/// The bottleneck's, bytes of payload a second.
fn rate(path: &Path) -> f64 {
    path.rate * 1448.0
}

fn bdp(path: &Path) -> f64 {
    path.rate * path.base_rtt_us / 1e6
}

/// States in their order, with the time at which each began.
fn states(flow: &Flow) -> Vec<(State, f64)> {
    let mut states: Vec<(State, f64)> = Vec::new();
    for row in &flow.rows {
        if states.last().is_none_or(|(last, _)| *last != row.state) {
            states.push((row.state, row.at_us / 1e6));
        }
    }
    states
}

fn names(flow: &Flow) -> Vec<State> {
    states(flow).into_iter().map(|(state, _)| state).collect()
}

/// Runs until the state is `state`.
fn reach(flow: &mut Flow, state: State) {
    flow.run_while(|flow| flow.model.state != state);
}

/// Each case ends here: nothing in it was but the model's.
fn alike(flow: &Flow) {
    let apart = flow.apart();
    assert!(apart <= 0.001, "{apart}: {:?}", flow.first_apart());
}

#[test]
fn exiting_startup_on_bandwidth_plateau() {
    let mut flow = Flow::new(WIDE);
    reach(&mut flow, State::Drain);
    assert!((flow.model.max_bw * 1e6 / WIDE.rate - 1.0).abs() < 0.02, "{}", flow.model.max_bw);
    assert!(flow.model.full_bw_reached);
    // Doubles in each round trip of 40 ms from 10 packets: 345 after five, and three of 80 ms without growth.
    let at = flow.now_us / 1e6 - 1.0;
    assert!((0.35..0.65).contains(&at), "after {at} s");
    // 2.77 of the rate before, half of it now.
    let [before, now] =
        [flow.rows.len() - 2, flow.rows.len() - 1].map(|row| flow.rows[row].pacing[0] as f64 / rate(&WIDE));
    assert!((2.70..2.80).contains(&before) && (0.49..0.50).contains(&now), "{before} {now}");
    alike(&flow);
}

#[test]
fn exiting_startup_on_loss_when_application_limited() {
    let mut flow = Flow::new(WIDE);
    flow.run(0.1);
    flow.application = Application::Rate(3000.0);
    flow.run(2.0);
    assert_eq!(flow.model.state, State::Startup, "never where the application is the limit");
    flow.path.loss = 0.15;
    flow.run_while(|flow| flow.model.state == State::Startup);
    assert!(flow.now_us < 3.5e6 && flow.model.inflight_longterm.is_finite());
    alike(&flow);
    // Without selective acknowledgements one loss is enough.
    let mut flow = Flow::new(Path { sack: false, ..WIDE });
    flow.run(0.1);
    flow.application = Application::Rate(3000.0);
    flow.run(1.0);
    flow.path.loss = 0.02;
    flow.run_while(|flow| flow.model.state == State::Startup);
    assert!(flow.lost <= 3, "{}", flow.lost);
    alike(&flow);
}

#[test]
fn exiting_drain_by_volume_or_time() {
    let mut flow = Flow::new(WIDE);
    reach(&mut flow, State::Drain);
    flow.run_while(|flow| flow.model.state == State::Drain);
    let last = flow.rows.last().unwrap();
    assert!(f64::from(last.in_flight) <= bdp(&WIDE) + 1.0, "{last:?}");
    // The rate becomes a quarter: the queue takes longer.
    let mut flow = Flow::new(Path { queue: 5000.0, ..WIDE });
    flow.run(0.35);
    flow.path.rate /= 4.0;
    reach(&mut flow, State::Drain);
    let rounds = flow.model.round_count;
    flow.run_while(|flow| flow.model.state == State::Drain);
    assert_eq!(flow.model.round_count, rounds + 4);
    assert!(f64::from(flow.in_flight) > bdp(&flow.path));
    alike(&flow);
}

#[test]
fn cycling_through_probe_bw() {
    let mut flow = Flow::new(WIDE);
    flow.run(4.9);
    use State::{Cruise, Down, Drain, Refill, Startup, Up};
    // The first cycle ends Drain with an empty queue.
    let all = names(&flow);
    assert_eq!(all[..2], [Startup, Drain]);
    assert!(
        all[2..].starts_with(&[Cruise, Refill, Up, Down, Cruise])
            || all[2..].starts_with(&[Down, Cruise, Refill, Up, Down, Cruise]),
        "{all:?}"
    );
    let at = |state: State, nth: usize| states(&flow).iter().filter(|(one, _)| *one == state).nth(nth).unwrap().1;
    // Two to three seconds, or 62 or 63 round trips of 40 ms.
    let waited = at(Refill, 0) - at(Cruise, 0);
    assert!((1.9..3.0).contains(&waited), "{waited} s");
    // One round trip to refill; three without growth up.
    let refill = at(Up, 0) - at(Refill, 0);
    assert!((0.039..0.045).contains(&refill), "{refill} s");
    let up = at(Down, usize::from(all[2] == Down)) - at(Up, 0);
    assert!((0.12..0.26).contains(&up), "{up} s");
    let gain = |state: State| {
        let row = flow.rows.iter().rfind(|row| row.state == state).unwrap();
        (row.pacing[0] as f64 / 0.99 / rate(&WIDE) * 100.0).round() as u32
    };
    assert_eq!([gain(Down), gain(Cruise), gain(Refill), gain(Up)], [90, 100, 100, 125]);
    alike(&flow);
}

/// A shallow queue: loss ends the probe and sets the bound; the next probe ends there, and the one after goes on.
#[test]
fn exiting_probe_up_on_loss_and_precaution() {
    let path = Path { queue: 60.0, ..WIDE };
    let mut flow = Flow::new(path.clone());
    reach(&mut flow, State::Refill);
    flow.model.inflight_longterm = flow.model.inflight_longterm.min(f64::INFINITY);
    reach(&mut flow, State::Up);
    let lost = flow.lost;
    flow.run_while(|flow| flow.model.state == State::Up);
    let bound = flow.model.inflight_longterm;
    // What the path holds, with some packets more that were sent before the loss was known.
    assert!((bdp(&path)..1.3 * (bdp(&path) + 60.0)).contains(&bound), "{bound}");
    println!("lost {} in the probe, bound {bound}", flow.lost - lost);
    flow.run(30.0);
    let up: Vec<f64> =
        states(&flow).windows(2).filter(|two| two[0].0 == State::Up).map(|two| two[1].1 - two[0].1).collect();
    println!("probes took {up:.3?} s");
    // It is bounded: of 30 s at 8632 a second less than 1 % is lost, all of it in probes and Startup.
    assert!(flow.lost < 2600, "{}", flow.lost);
    assert!(flow.delivered as f64 > 0.93 * 30.0 * path.rate, "{}", flow.delivered);
    alike(&flow);
}

#[test]
fn exiting_probe_down_on_headroom_or_time() {
    let mut flow = Flow::new(Path { queue: 60.0, ..WIDE });
    reach(&mut flow, State::Up);
    reach(&mut flow, State::Down);
    reach(&mut flow, State::Cruise);
    let bound = flow.model.inflight_longterm;
    if bound.is_finite() {
        assert!(f64::from(flow.in_flight) <= 0.85 * bound + 2.0);
    }
    // The window leaves the headroom while it cruises.
    flow.run_while(|flow| flow.model.state == State::Cruise);
    let cruising: Vec<u32> = flow.rows.iter().rev().skip(1).take(100).map(|row| row.cwnd[0]).collect();
    assert!(
        bound.is_infinite() || cruising.iter().all(|cwnd| f64::from(*cwnd) <= 0.85 * bound + 2.0),
        "{bound} {cruising:?}"
    );
    // The path becomes slower by more than a tenth: the queue stays, and it probes again after its time, here 20 round trips, as many as there
    // are packets in a BDP.
    let mut flow = Flow::new(Path { rate: 500.0, queue: 2000.0, ..WIDE });
    reach(&mut flow, State::Up);
    reach(&mut flow, State::Down);
    flow.path.rate *= 0.8;
    let rounds = flow.model.round_count;
    flow.run_while(|flow| flow.model.state == State::Down);
    assert_eq!(flow.model.state, State::Refill);
    let rounds = flow.model.round_count - rounds;
    assert!((19..=21).contains(&rounds), "{rounds}");
    alike(&flow);
}

#[test]
fn entering_and_exiting_probe_rtt() {
    let mut flow = Flow::new(WIDE);
    reach(&mut flow, State::ProbeRtt);
    assert!((6.0e6..6.2e6).contains(&flow.now_us), "five seconds after the first RTT: {}", flow.now_us);
    let cwnd = flow.rows[flow.rows.len() - 2].cwnd[0];
    let from = flow.now_us;
    flow.run(5.1);
    assert!(flow.app_limited > 0, "its rates do not count");
    flow.run_while(|flow| flow.model.state == State::ProbeRtt);
    assert!((200e3..300e3).contains(&(flow.now_us - from)), "{}", flow.now_us - from);
    let half = flow.rows[flow.rows.len() - 2];
    assert!((f64::from(half.cwnd[0]) - bdp(&WIDE) / 2.0).abs() < 3.0, "{half:?}");
    assert_eq!(flow.model.state, State::Cruise);
    assert!(flow.native.socket.cwnd >= cwnd, "the window that was: {cwnd}, {}", flow.native.socket.cwnd);
    alike(&flow);
}

#[test]
fn skipping_probe_rtt_after_idle_time() {
    let mut flow = Flow::new(WIDE);
    flow.run(2.0);
    flow.application = Application::Nothing;
    flow.run(8.0);
    flow.application = Application::Bulk;
    let cwnd = flow.native.socket.cwnd;
    flow.run_while(|flow| flow.rows.last().unwrap().event != "restart");
    assert!(flow.model.idle_restart);
    // At the rate that it knew, with the window that it had.
    let restart = flow.rows.last().unwrap();
    assert!(
        (restart.pacing[0] as f64 / 0.99 / rate(&WIDE) - 1.0).abs() < 0.01 && restart.cwnd[0] == cwnd,
        "{restart:?}"
    );
    flow.run(9.0);
    assert!(!names(&flow).contains(&State::ProbeRtt), "{:?}", states(&flow));
    alike(&flow);
}

#[test]
fn probe_rtt_during_startup_returns_to_startup() {
    let mut flow = Flow::new(WIDE);
    flow.run(0.1);
    flow.application = Application::Rate(1000.0);
    // Nothing is queued: a lower RTT than the first cannot come.
    reach(&mut flow, State::ProbeRtt);
    flow.run_while(|flow| flow.model.state == State::ProbeRtt);
    assert_eq!(flow.model.state, State::Startup);
    alike(&flow);
}

/// ACKs that come together each 15 ms: the window has room for them, and the path is full.
#[test]
fn achieving_expected_bandwidth_with_aggregation() {
    let path = Path { slot_us: 15_100.0, queue: 2000.0, ..WIDE };
    let mut flow = Flow::new(path.clone());
    flow.run(4.0);
    assert!(flow.model.extra_acked > 0.8 * path.rate * 0.015, "{}", flow.model.extra_acked);
    assert!(f64::from(flow.native.socket.cwnd) > 2.0 * bdp(&path) + 50.0, "{}", flow.native.socket.cwnd);
    let before = flow.delivered;
    flow.run(5.0);
    assert!((flow.delivered - before) as f64 > 0.97 * path.rate, "{}", flow.delivered - before);
    alike(&flow);
}

#[test]
fn managing_sub_packet_bdps() {
    // Half a packet.
    let path = Path { rate: 10.3, base_rtt_us: 47_900.0, queue: 10.0, ..WIDE };
    let mut flow = Flow::new(path.clone());
    flow.run(30.0);
    assert!(flow.rows.iter().all(|row| row.cwnd[0] >= 4));
    let last = flow.rows.last().unwrap();
    assert!((last.pacing[0] as f64 / rate(&path) - 1.0).abs() < 0.3, "{last:?}");
    assert!(flow.delivered as f64 > 0.9 * 29.0 * path.rate, "{}", flow.delivered);
    alike(&flow);
}

#[test]
fn increasing_bandwidth_tenfold() {
    let slow = Path { rate: 863.0, queue: 100.0, ..WIDE };
    let mut flow = Flow::new(slow);
    // A bound, so that it must grow.
    flow.path.loss = 0.1;
    flow.run(0.6);
    flow.path.loss = 0.0;
    flow.run(6.0);
    flow.path.rate *= 10.0;
    flow.path.queue *= 10.0;
    let from = flow.now_us;
    flow.run_while(|flow| flow.model.max_bw * 1e6 < 0.9 * flow.path.rate);
    let seconds = (flow.now_us - from) / 1e6;
    println!("ten times the rate found after {seconds:.1} s");
    assert!(seconds < 12.0, "{seconds}");
    alike(&flow);
}

#[test]
fn decreasing_bandwidth_tenfold() {
    let mut flow = Flow::new(WIDE);
    flow.run(4.0);
    flow.path.rate /= 10.0;
    flow.path.queue /= 10.0;
    let from = flow.now_us;
    flow.run_while(|flow| flow.model.bw_shortterm * 1e6 > 2.0 * flow.path.rate);
    assert!(flow.now_us - from < 3e6, "the short-term model: {}", flow.now_us - from);
    flow.run_while(|flow| flow.model.max_bw * 1e6 > 1.1 * flow.path.rate);
    let seconds = (flow.now_us - from) / 1e6;
    println!("a tenth of the rate known after {seconds:.1} s");
    assert!(seconds < 15.0, "two cycles: {seconds}");
    alike(&flow);
}

/// A spurious recovery: what it took is given back, and the probe begins again.
#[test]
fn handling_spurious_recovery() {
    let mut flow = Flow::new(WIDE);
    reach(&mut flow, State::Up);
    let before = flow.native.socket.cwnd;
    flow.path.loss = 0.3;
    flow.run_while(|flow| flow.model.state == State::Up);
    flow.path.loss = 0.0;
    assert_eq!(flow.model.state, State::Down, "more than 2 %");
    assert!(flow.model.inflight_longterm.is_finite());
    flow.undo();
    assert_eq!(flow.model.state, State::Refill);
    assert!(flow.model.inflight_longterm.is_infinite() && flow.native.socket.cwnd >= before);
    flow.run_while(|flow| flow.model.state == State::Refill);
    assert_eq!(flow.model.state, State::Up);
    alike(&flow);
}

#[test]
fn application_limited_samples_leave_the_rate() {
    let mut flow = Flow::new(WIDE);
    reach(&mut flow, State::Refill);
    let max_bw = flow.model.max_bw;
    flow.application = Application::Rate(500.0);
    flow.run_while(|flow| flow.model.state != State::Up);
    let now = flow.now_us / 1e6 - 1.0;
    flow.run(now + 1.0);
    assert_eq!(flow.model.state, State::Up, "without a loss it stays");
    assert!(flow.model.max_bw >= max_bw, "{} {max_bw}", flow.model.max_bw);
    alike(&flow);
}

/// Loss by chance costs what the draft says in "Design Considerations for Choosing Constant Parameters": while it cruises, a round trip with
/// 1 % of loss leaves 99 % of the rate at least, until it probes again after 62 round trips at most. Beside that are ProbeRTT (2 %), the
/// margin (1 %) and the lost packets. CUBIC has the window of its response function.
#[test]
fn holding_its_rate_at_random_loss() {
    for loss in [0.001, 0.01] {
        let path = Path { loss, ..WIDE };
        let mut flow = Flow::new(path.clone());
        flow.run(30.0);
        // The mean of (1 - p)^n over the round trips of a cruise.
        let rounds = 62.0_f64;
        let kept = (1.0 - (1.0 - loss).powf(rounds)) / (rounds * -(1.0 - loss).ln()) * 0.97 * (1.0 - loss);
        let share = flow.delivered as f64 / 30.0 / path.rate;
        let rtt = longhaul_units::Nanos((path.base_rtt_us * 1e3) as u64);
        let cubic = Cubic::named("cubic").unwrap().window_at(loss, rtt) / bdp(&path);
        println!("loss {loss}: {share:.3} of the rate, at least {kept:.3} by the draft's sum; CUBIC {cubic:.3}");
        assert!(share > kept - 0.05 && share > 2.0 * cubic, "loss {loss}: {share}, {kept}, CUBIC {cubic}");
        alike(&flow);
    }
}

/// A queue of four BDPs stays empty but for Startup and probes; CUBIC would fill it: 200 ms.
#[test]
fn leaving_deep_queues_empty() {
    let mut flow = Flow::new(Path { queue: 1380.0, ..WIDE });
    flow.run(20.0);
    let mean = flow.rows.iter().map(|row| row.sample.rtt_us as f64).sum::<f64>() / flow.rows.len() as f64;
    println!("mean RTT {:.1} ms", mean / 1e3);
    assert!(mean < 1.25 * WIDE.base_rtt_us, "{mean}");
    assert!(flow.lost == 0 && flow.delivered as f64 > 0.95 * 20.0 * WIDE.rate, "{} {}", flow.lost, flow.delivered);
    alike(&flow);
}

/// Of the kernel's side: pacing is asked for, recovery keeps the window, and the buffer holds three.
#[test]
fn what_it_asks_of_the_kernel() {
    let mut flow = Flow::new(WIDE);
    assert_eq!((flow.native.socket.pacing_status, flow.native.buffered_windows()), (1, Some(3)));
    flow.run(2.0);
    let cwnd = flow.native.socket.cwnd;
    assert_eq!(flow.native.ssthresh(), 0x7fff_ffff, "there is no threshold");
    flow.native.set_state(Kernel::Recovery);
    flow.native.socket.cwnd = 10;
    flow.native.set_state(Kernel::Open);
    assert_eq!(flow.native.socket.cwnd, cwnd);
    // A limit that the program sets.
    flow.native.socket.most_pacing_rate = 1_000_000;
    flow.run(2.5);
    assert_eq!(flow.native.socket.pacing_rate, 1_000_000);
}
