//! Connections that no test made, from each vantage.

use longhaul_tcp::ReceiverLimitedBy;
use longhaul_terms::ChangedCounters;

use super::*;
use crate::events::ShapingQdisc;
use crate::evidence::{Observed, PacketShares, Vantage};
use crate::observed::with_counters;

fn seen(from: Vantage) -> Observed {
    Observed {
        from,
        payload_bytes: 50_000_000,
        began: true,
        out_of_order_packets: 0,
        max_rtt_ns: Some(85 * MS),
        buffer_bytes: Some(4 << 20),
        packets: None,
    }
}

/// A flow of 40 Mbit/s at 80 ms that its congestion window held back for 10 s.
fn flow(from: Vantage) -> TcpFacts {
    TcpFacts { observed: Some(Box::new(seen(from))), ..tcp(Purpose::Observed, 40 * MBIT) }
}

fn lost(events: u64) -> TcpFacts {
    TcpFacts { retransmits: 500, loss_events: Some(events), ..flow(Vantage::Sender) }
}

fn limited_by_window(from: Vantage) -> TcpFacts {
    TcpFacts {
        limited_by: LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() },
        ..flow(from)
    }
}

fn at_200(run: TcpFacts) -> Evidence {
    evidence(vec![Run::Tcp(run)])
}

fn first(run: TcpFacts) -> Option<Code> {
    diagnose(&at_200(run)).causes.first().map(|cause| cause.bound.code)
}

#[test]
fn loss_is_told_from_a_queue_by_the_round_trip() {
    assert_eq!(first(lost(30)), Some(Code::Loss));
    let grown = TcpFacts { mean_rtt_ns: Some(130 * MS), ..lost(30) };
    assert_eq!(first(grown.clone()), Some(Code::Shaper));
    // One burst of losses where slow start filled the queue, and not many that came at any time.
    let filled = |events| {
        let observed = Some(Box::new(Observed { max_rtt_ns: Some(160 * MS), ..seen(Vantage::Sender) }));
        TcpFacts { observed, ..lost(events) }
    };
    assert_eq!((first(filled(2)), first(filled(30))), (Some(Code::Shaper), Some(Code::Loss)));
    // What no queue explains in vain is reordering.
    assert_eq!(first(TcpFacts { spurious_retransmits: 480, ..lost(30) }), Some(Code::Reordering));
}

#[test]
fn a_control_that_measures_its_rate_is_not_held_back_by_loss() {
    assert_eq!(first(TcpFacts { congestion_control: "bbr".into(), ..lost(30) }), Some(Code::Shaper));
    assert_eq!(first(flow(Vantage::Sender)), Some(Code::CongestionControl));
    assert_eq!(first(TcpFacts { marked_packets: Some(9), ..flow(Vantage::Sender) }), Some(Code::Queue));
}

#[test]
fn a_short_transfer_ends_in_slow_start() {
    let short = |began| {
        let observed = Some(Box::new(Observed { payload_bytes: 2_000_000, began, ..seen(Vantage::Sender) }));
        TcpFacts { duration_ns: 850 * MS, observed, ..flow(Vantage::Sender) }
    };
    assert_eq!(first(short(true)), Some(Code::SlowStart));
    assert_eq!(first(short(false)), Some(Code::CongestionControl));
}

#[test]
fn a_receiver_knows_its_window_and_no_more() {
    let sysctls = |key| host(&[(key, "4096 131072 33554432")]);
    let full = |buffer_bytes| {
        let observed = Some(Box::new(Observed { buffer_bytes: Some(buffer_bytes), ..seen(Vantage::Receiver) }));
        let run = TcpFacts { observed, ..limited_by_window(Vantage::Receiver) };
        let evidence = Evidence { receiver: sysctls("net.ipv4.tcp_rmem"), ..at_200(run) };
        named(&evidence)
    };
    let receiver = Some(Role::Receiver);
    assert_eq!(full(32 << 20), [(Code::ReceiveWindow, None, receiver)]);
    // The kernel would have let it grow.
    assert_eq!(full(512 << 10), [(Code::ApplicationWindow, None, receiver)]);
    let reads_slowly = ReceiverLimitedBy { application: 0.8, receive_window: 0.1, ..ReceiverLimitedBy::default() };
    let slow = TcpFacts { receiver_limited_by: Some(reads_slowly), ..limited_by_window(Vantage::Receiver) };
    assert_eq!(first(slow), Some(Code::ReceiverApplication));
    let rest = diagnose(&at_200(flow(Vantage::Receiver)));
    assert!(
        rest.causes.is_empty() && rest.unknown.iter().any(|unknown| unknown.what.contains("the sender sent no more"))
    );
}

#[test]
fn packets_do_not_tell_what_paces_a_sender() {
    let of = |packets| {
        let observed = Some(Box::new(Observed { packets: Some(packets), ..seen(Vantage::Packets) }));
        diagnose(&at_200(TcpFacts { observed, ..flow(Vantage::Packets) }))
    };
    let evenly = of(PacketShares { path_rate: 0.9, unclear: 0.1, ..PacketShares::default() });
    assert!(evenly.causes.is_empty() && evenly.unknown.iter().any(|unknown| unknown.what.contains("came evenly")));
    let window = of(PacketShares { sender_window: 0.9, unclear: 0.1, ..PacketShares::default() });
    assert!(window.causes.is_empty() && window.unknown.iter().any(|unknown| unknown.what.contains("send buffer")));
    let start = of(PacketShares { slow_start: 0.9, unclear: 0.1, ..PacketShares::default() });
    assert_eq!(start.causes[0].bound.code, Code::SlowStart);
}

#[test]
fn without_a_target_the_limit_is_named_and_its_price_is_not() {
    let evidence = Evidence { named_target_bps: None, ..at_200(limited_by_window(Vantage::Sender)) };
    let diagnosis = diagnose(&evidence);
    assert_eq!(diagnosis.causes[0].bound.code, Code::ReceiveWindow);
    assert_eq!(diagnosis.causes[0].worth_bps, Interval::at_least(0));
    assert!(!diagnosis.is_on_target());
}

#[test]
fn a_flow_that_carries_the_target_has_no_cause() {
    for from in [Vantage::Sender, Vantage::Receiver, Vantage::Packets] {
        let full = TcpFacts { goodput_bps: 170 * MBIT, steady_bps: 170 * MBIT, ..flow(from) };
        let diagnosis = diagnose(&at_200(full));
        assert!(diagnosis.causes.is_empty() && diagnosis.is_on_target(), "{diagnosis:?}");
        assert!(diagnosis.unknown.is_empty(), "{diagnosis:?}");
    }
}

#[test]
fn a_program_is_short_of_cpu_only_where_tcp_waits_for_it() {
    let busy = CpuFacts { cpu_time_ns: 77, run_delay_ns: 21, elapsed_ns: 100 };
    let waits = LimitedBy { application: 0.8, congestion_window: 0.2, ..LimitedBy::default() };
    let idle = TcpFacts { limited_by: waits, ..flow(Vantage::Sender) };
    assert_eq!(first(idle.clone()), Some(Code::SenderApplication));
    assert_eq!(first(TcpFacts { sender_cpu: Some(busy), ..idle }), Some(Code::Cpu));
    // A thread that computes meanwhile is not the limit of a flow that its window holds back.
    let window = TcpFacts { sender_cpu: Some(busy), ..limited_by_window(Vantage::Sender) };
    assert_eq!(first(window), Some(Code::ReceiveWindow));
    let unread = ReceiverLimitedBy { application: 0.9, ..ReceiverLimitedBy::default() };
    let reader = TcpFacts { receiver_limited_by: Some(unread), ..limited_by_window(Vantage::Receiver) };
    assert_eq!(first(reader.clone()), Some(Code::ReceiverApplication));
    assert_eq!(first(TcpFacts { receiver_cpu: Some(busy), ..reader }), Some(Code::Cpu));
}

#[test]
fn the_senders_own_shaper_and_its_drops_are_not_the_congestion_control() {
    let shaped = |overlimits, passed_bytes, run: TcpFacts| {
        let (interface, kind) = ("eth0".into(), "tbf".into());
        let qdisc = ShapingQdisc { interface, kind, overlimits, passed_bytes };
        named(&at_200(TcpFacts { sender_shaper: Some(Box::new(qdisc)), ..run }))
    };
    let shaper = |overlimits, passed_bytes| shaped(overlimits, passed_bytes, flow(Vantage::Sender));
    assert_eq!(shaper(900, 51_000_000), [(Code::Shaper, Some(Location::SenderQdisc), Some(Role::Sender))]);
    // BBR measures the rate of the shaper, whatever is lost. Another control that loses packets is held back by that.
    let bbr = TcpFacts { congestion_control: "bbr".into(), ..lost(30) };
    assert_eq!(shaped(900, 51_000_000, bbr)[0].1, Some(Location::SenderQdisc));
    assert_eq!(shaped(900, 51_000_000, lost(30))[0].0, Code::Loss);
    // Another interface's, or one that was in nobody's way.
    let control = [(Code::CongestionControl, None, Some(Role::Sender))];
    assert_eq!((shaper(900, 1_000_000), shaper(2, 51_000_000)), (control.to_vec(), control.to_vec()));

    let dropped = TcpFacts {
        loss_bytes: BTreeMap::from([(Location::SenderStack, 1_000_000)]),
        loss_reasons: vec![("NETFILTER_DROP @ nft_do_chain".into(), 700)],
        ..flow(Vantage::Sender)
    };
    assert_eq!(named(&at_200(dropped)), [(Code::Loss, Some(Location::SenderStack), Some(Role::Sender))]);
}

#[test]
fn without_selective_acknowledgements_the_window_is_not_to_blame() {
    let mut run = TcpFacts { retransmits: 200, loss_events: Some(1), ..limited_by_window(Vantage::Sender) };
    run.handshake.sack = Some(false);
    let mut evidence = at_200(run);
    evidence.sender = host(&[("net.ipv4.tcp_sack", "1")]);
    assert_eq!(named(&evidence), [(Code::Loss, None, None)]);
    evidence.sender = host(&[("net.ipv4.tcp_sack", "0")]);
    assert_eq!(named(&evidence), [(Code::Loss, None, Some(Role::Sender))]);
}

#[test]
fn the_counters_of_a_host_go_to_its_end() {
    let counters = ChangedCounters::from([
        ("control group: cpu.throttled_ns".into(), 5),
        ("eth0, qdisc tbf at root: overlimits".into(), 7),
        ("eth0, qdisc tbf at root: bytes".into(), 5_000),
        ("host: Tcp.InCsumErrors".into(), 3),
    ]);
    let sender = with_counters(flow(Vantage::Sender), &counters);
    assert_eq!((sender.sender_events.throttled_ns, sender.receiver_events.throttled_ns), (5, 0));
    assert_eq!((sender.sender_shaper.map(|qdisc| qdisc.overlimits), sender.checksum_errors), (Some(7), 0));
    let receiver = with_counters(flow(Vantage::Receiver), &counters);
    assert_eq!((receiver.sender_events.throttled_ns, receiver.receiver_events.throttled_ns), (0, 5));
    assert_eq!((receiver.sender_shaper, receiver.checksum_errors), (None, 3));
}
