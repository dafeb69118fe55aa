//! Two limits at once: the one that is met first hides the other.

use super::*;

fn lost(step: UdpFacts, packets: u64, place: Location) -> UdpFacts {
    UdpFacts { lost_packets: packets, loss_packets: BTreeMap::from([(place, packets)]), ..step }
}

/// 64 KB over 80 ms send too little to meet a loss of one in 2000; UDP of 100 Mb/s, half of the target, does.
#[test]
fn a_small_window_hides_loss_that_udp_meets() {
    let mut window = tcp(Purpose::Default, 6 * MBIT);
    window.limited_by = LimitedBy { receive_window: 0.96, congestion_window: 0.04, ..LimitedBy::default() };
    let half = |packets: u64| {
        let step = UdpFacts { sent_packets: 40_000, ..udp(Purpose::Rate, 100 * MBIT, 100 * MBIT, 0) };
        Run::Udp(lost(step, packets, Location::Network))
    };
    let found = named(&with(window.clone(), vec![half(20)]));
    assert_eq!(found, [(Code::ReceiveWindow, None, Some(Role::Receiver)), (Code::Loss, Some(Location::Network), None)]);
    // RFC 9438's Reno-friendly region: sqrt(1.5 / 0.0005) = 55 packets in 80 ms are 7.9 Mb/s.
    let bound = diagnose(&with(window.clone(), vec![half(20)])).causes[1].bound.bound_bps;
    assert!((7 * MBIT..9 * MBIT).contains(&bound.least), "{bound:?}");
    // Two losses may be chance.
    assert_eq!(named(&with(window.clone(), vec![half(2)])).len(), 1);
    // A first test that its congestion window held, and that was repeated as it met too few losses, says nothing.
    let first = TcpFacts { loss_events: Some(4), ..lossy(Purpose::Default, 30 * MBIT, Location::Network) };
    let mut repeated = with(first, vec![Run::Tcp(window.clone()), half(20)]);
    assert!(named(&repeated).iter().any(|(code, ..)| *code == Code::Loss));
    repeated.runs.swap(0, 1);
    assert!(!named(&repeated).iter().any(|(code, ..)| *code == Code::ReceiveWindow));
    // TCP that meets enough losses says itself what they leave.
    let tells = TcpFacts { loss_events: Some(30), ..lossy(Purpose::LargeBuffers, 30 * MBIT, Location::Network) };
    let causes = diagnose(&with(window.clone(), vec![Run::Tcp(tells.clone()), half(20)])).causes;
    let loss = causes.iter().find(|cause| cause.bound.code == Code::Loss).unwrap();
    assert_eq!(loss.bound.bound_bps.middle(), 30 * MBIT);
    assert_eq!(causes.iter().map(|cause| cause.worth_is_upper_end).collect::<Vec<_>>(), [false, false]);
    // Of a flow that met four, the mean is not known, and so not what the window is worth.
    let few = TcpFacts { loss_events: Some(4), ..tells };
    let causes = diagnose(&with(window, vec![Run::Tcp(few)])).causes;
    assert_eq!(causes.iter().map(|cause| cause.worth_is_upper_end).collect::<Vec<_>>(), [true, true]);
}

/// What the connection would carry with selective acknowledgements it does not tell: UDP does.
#[test]
fn loss_behind_a_connection_without_selective_acknowledgements() {
    let mut run = TcpFacts { loss_events: Some(30), ..lossy(Purpose::Default, 5 * MBIT, Location::Network) };
    run.handshake.sack = Some(false);
    let step = UdpFacts { sent_packets: 40_000, ..udp(Purpose::Rate, 100 * MBIT, 100 * MBIT, 0) };
    let found = |packets| {
        let mut evidence = with(run.clone(), vec![Run::Udp(lost(step.clone(), packets, Location::Network))]);
        (evidence.sender, evidence.receiver) =
            (host(&[("net.ipv4.tcp_sack", "1")]), host(&[("net.ipv4.tcp_sack", "1")]));
        named(&evidence)
    };
    let middlebox = (Code::MiddleboxOptions, None, None);
    assert_eq!(found(20), [middlebox, (Code::Loss, Some(Location::Network), None)]);
    assert_eq!(found(0), [middlebox]);
}

/// A window that grows loses hundreds of packets at a full queue, as one event; the firewall's eight packets are eight.
#[test]
fn the_burst_at_a_queue_that_tcp_filled_is_not_the_loss_that_limits() {
    let mut run = lossy(Purpose::Default, 27 * MBIT, Location::Network);
    (run.retransmits, run.sent_packets, run.loss_events) = (750, 41_615, Some(9));
    run.loss_bytes = BTreeMap::from([(Location::Network, 1_113_000), (Location::ReceiverFilter, 12_000)]);
    let udp = |packets, place| Run::Udp(lost(udp(Purpose::Rate, 95 * MBIT, 95 * MBIT, 0), packets, place));
    let found = |step: Run| named(&with(run.clone(), vec![step]))[0];
    let at_filter = (Code::Loss, Some(Location::ReceiverFilter), Some(Role::Receiver));
    assert_eq!(found(udp(6, Location::ReceiverFilter)), at_filter);
    // UDP meets loss in the network, too: that is where most is lost.
    assert_eq!(found(udp(600, Location::Network)), (Code::Loss, Some(Location::Network), None));
}

/// The window was full for half of the time, and unread data filled it for most of it: both limit.
#[test]
fn a_slow_reader_is_named_beside_loss() {
    let mut run = lossy(Purpose::Default, 18 * MBIT, Location::Network);
    run.limited_by = LimitedBy { congestion_window: 0.51, receive_window: 0.49, ..LimitedBy::default() };
    run.receiver_limited_by = Some(ReceiverLimitedBy { application: 0.81, ..ReceiverLimitedBy::default() });
    let without = lossy(Purpose::LargeBuffers, 17 * MBIT, Location::Network);
    let found: Vec<Code> = named(&with(run, vec![Run::Tcp(without)])).into_iter().map(|(code, ..)| code).collect();
    assert_eq!(found, [Code::Loss, Code::ReceiverApplication]);
}

/// A program that writes slowly never meets the short queue: a flow without it does.
#[test]
fn a_slow_program_hides_what_a_faster_one_would_meet() {
    let asked = Asked { program: Program { write_rate_bps: Some(20 * MBIT), ..Program::default() }, ..ASKED };
    let purposes = planned(&asked, |step| match step {
        Step::Tcp { purpose: Purpose::Idle, .. } => Run::Tcp(tcp(Purpose::Idle, MBIT)),
        Step::Tcp { purpose, write_rate_bps, .. } => {
            let bps = write_rate_bps.unwrap_or(60 * MBIT);
            let mut run = lossy(*purpose, bps, Location::Network);
            if write_rate_bps.is_some() {
                run.limited_by = LimitedBy { application: 0.95, congestion_window: 0.05, ..LimitedBy::default() };
            }
            Run::Tcp(run)
        }
        Step::Udp { purpose, rate_bps, .. } => Run::Udp(udp(*purpose, *rate_bps, *rate_bps, 0)),
    });
    let repeated = purposes.iter().filter(|purpose| **purpose == Purpose::LargeBuffers).count();
    assert_eq!(repeated, 1, "{purposes:?}");
    let mut slow = tcp(Purpose::Default, 20 * MBIT);
    slow.limited_by = LimitedBy { application: 0.95, ..LimitedBy::default() };
    let fast = lossy(Purpose::LargeBuffers, 60 * MBIT, Location::Network);
    let burst = udp(Purpose::Burst, 25 * MBIT, 6 * MBIT, 0);
    let found: Vec<Code> =
        named(&with(slow, vec![Run::Tcp(fast), Run::Udp(burst)])).into_iter().map(|it| it.0).collect();
    assert_eq!(found, [Code::SenderApplication, Code::Queue]);
}

/// The path is down for a moment every two seconds: after slow start the window needs many of them to come down, so a first test of five
/// losses shows too much.
#[test]
fn a_flow_that_still_falls_is_tested_longer() {
    let times = |events: u64, first_half: u64| {
        let times = std::cell::RefCell::new(Vec::new());
        planned(&ASKED, |step| match step {
            Step::Tcp { purpose: Purpose::Idle, .. } => Run::Tcp(tcp(Purpose::Idle, MBIT)),
            Step::Tcp { purpose, duration_ns, .. } => {
                times.borrow_mut().extend((*purpose == Purpose::Default).then_some(*duration_ns / MS));
                let run = lossy(*purpose, 140 * MBIT, Location::Network);
                Run::Tcp(TcpFacts { loss_events: Some(events), goodput_bps: first_half * MBIT, ..run })
            }
            Step::Udp { purpose, rate_bps, .. } => Run::Udp(udp(*purpose, *rate_bps, *rate_bps, 0)),
        });
        times.into_inner()
    };
    assert_eq!(times(5, 150), [20_000, 30_000]);
    assert_eq!((times(5, 140).len(), times(40, 150).len()), (1, 1));
}

/// Loss keeps the flow below what its program reads: another congestion control shows that the program is next.
#[test]
fn another_control_is_tried_with_the_program_as_it_is() {
    let asked = Asked { program: Program { read_rate_bps: Some(20 * MBIT), ..Program::default() }, ..ASKED };
    let mut evidence = evidence(Vec::new());
    evidence.sender = host(&[("net.ipv4.tcp_available_congestion_control", "reno cubic bbr")]);
    let mut read_rate = None;
    while let Some(step) = plan::next(&evidence, &asked) {
        assert!(evidence.runs.len() < 30);
        evidence.runs.push(match step {
            Step::Tcp { purpose: Purpose::Idle, .. } => Run::Tcp(tcp(Purpose::Idle, MBIT)),
            Step::Tcp { purpose: Purpose::OtherControl, read_rate_bps, .. } => {
                read_rate = read_rate_bps;
                let mut run = tcp(Purpose::OtherControl, 20 * MBIT);
                run.limited_by = LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() };
                run.receiver_limited_by = Some(ReceiverLimitedBy { application: 0.9, ..ReceiverLimitedBy::default() });
                Run::Tcp(run)
            }
            Step::Tcp { purpose, .. } => Run::Tcp(lossy(purpose, 12 * MBIT, Location::Network)),
            Step::Udp { purpose, rate_bps, .. } => Run::Udp(udp(purpose, rate_bps, rate_bps, 0)),
        });
    }
    assert_eq!(read_rate, Some(20 * MBIT));
    let found: Vec<Code> = named(&evidence).into_iter().map(|it| it.0).collect();
    assert_eq!(found, [Code::Loss, Code::ReceiverApplication]);
}
