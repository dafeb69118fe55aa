//! What the path does to ECN and DSCP, and several flows beside one.

use super::*;

/// Packets that left with AF11 and ECT(0), and arrived so.
fn marks(arrived: &[(u8, u64)]) -> Run {
    let received: u64 = arrived.iter().map(|(_, packets)| packets).sum();
    Run::Udp(UdpFacts {
        sent_packets: 20,
        lost_packets: 20 - received,
        traffic_class: 0x2a,
        traffic_classes: arrived.to_vec(),
        ..udp(Purpose::Marks, MBIT, MBIT, 0)
    })
}

fn found(runs: Vec<Run>) -> Vec<String> {
    let full = tcp(Purpose::Default, 180 * MBIT);
    let found = diagnose(&with(full, clear_path().into_iter().chain(runs).collect()));
    assert!(found.causes.is_empty(), "{found:?}");
    found.findings.into_iter().map(|finding| format!("{}: {}", finding.code, finding.text)).collect()
}

#[test]
fn marks_that_the_path_keeps_are_nothing_to_tell() {
    assert_eq!(found(vec![marks(&[(0x2a, 20)])]), [""; 0]);
    assert_eq!(found(Vec::new()), [""; 0]);
}

#[test]
fn a_path_that_changes_marks() {
    let begins = |arrived: &[(u8, u64)], expected: &[&str]| {
        let found = found(vec![marks(arrived)]);
        let told = found.len() == expected.len() && found.iter().zip(expected).all(|(it, text)| it.contains(text));
        assert!(told, "{found:?}");
    };
    begins(&[(0x28, 20)], &["ecn: 20 of 20 packets that left with ECN arrived without"]);
    begins(&[(0x2a, 15), (0x2b, 5)], &["ecn: 5 of 20 packets with ECN arrived with a mark"]);
    begins(&[(0x02, 20)], &["dscp: packets left with DSCP 10 and arrived with 0"]);
    begins(&[(0x00, 19)], &["ecn: 19 of 19", "dscp: packets left with DSCP 10"]);
    begins(&[], &["dscp: of 20 packets with DSCP 10 and ECN none arrived, and packets without did"]);
}

#[test]
fn wrong_checksums_are_told_where_loss_is_no_cause() {
    let findings = |run: TcpFacts| diagnose(&with(run, clear_path())).findings;
    let told = findings(TcpFacts { checksum_errors: 4, ..tcp(Purpose::Default, 180 * MBIT) });
    assert_eq!(
        told.iter().map(|finding| (finding.code.as_str(), finding.host)).collect::<Vec<_>>(),
        [("checksum", Some(Role::Receiver))]
    );
    assert!(told[0].text.starts_with("4 packets came with a wrong checksum"), "{told:?}");
    assert!(findings(tcp(Purpose::Default, 180 * MBIT)).is_empty());
}

/// `tcp_ecn` of client and server; the client sends.
fn with_ecn(run: TcpFacts, values: [&str; 2]) -> Vec<String> {
    let mut evidence = with(run, clear_path());
    let [sender, receiver] = values.map(|value| host(&[("net.ipv4.tcp_ecn", value)]));
    (evidence.sender, evidence.receiver) = (sender, receiver);
    diagnose(&evidence).findings.into_iter().filter(|it| it.code == "ecn").map(|it| it.text).collect()
}

#[test]
fn ecn_that_is_taken_out_of_the_handshake_or_of_packets() {
    let run = |ecn, ecn_seen, syn: Option<bool>| {
        let mut run = tcp(Purpose::Default, 180 * MBIT);
        run.handshake.ecn = Some(ecn);
        run.handshake.ecn_seen = Some(ecn_seen);
        run.handshake.syn = syn.map(|ecn| SynFacts { ecn, ..SynFacts::default() });
        run
    };
    // A client that does not ask is no middlebox; nor is a server that does not want to.
    assert_eq!(with_ecn(run(false, false, Some(false)), ["2", "2"]), [""; 0]);
    assert_eq!(with_ecn(run(false, false, Some(true)), ["1", "0"]), [""; 0]);
    let gone = with_ecn(run(false, false, Some(false)), ["1", "2"]);
    assert!(gone.len() == 1 && gone[0].contains("on the path removed it"), "{gone:?}");
    assert_eq!(with_ecn(run(true, true, Some(true)), ["1", "2"]), [""; 0]);
    let bleached = with_ecn(run(true, false, Some(true)), ["1", "2"]);
    assert!(bleached.len() == 1 && bleached[0].contains("a router clears the bits"), "{bleached:?}");
}

#[test]
fn a_queue_that_marks_is_not_the_congestion_control() {
    let network = Some(Location::Network);
    let marked =
        |marked, lost| TcpFacts { marked_packets: Some(marked), retransmits: lost, ..tcp(Purpose::Default, 40 * MBIT) };
    assert_eq!(named(&with(marked(60, 0), clear_path())), [(Code::Queue, network, None)]);
    // So many marks are enough for a price.
    assert!(!diagnose(&with(marked(60, 0), clear_path())).causes[0].worth_is_upper_end);
    assert_eq!(named(&with(marked(0, 0), clear_path()))[0].0, Code::CongestionControl);
    // In conflict: what comes more often cuts the window more often.
    assert_eq!(named(&with(marked(60, 5), clear_path()))[0].0, Code::Queue);
    assert_eq!(named(&with(marked(5, 60), clear_path()))[0].0, Code::Loss);
    // A full window is another limit, whatever is marked.
    let mut full = marked(60, 0);
    full.limited_by = LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() };
    assert_eq!(named(&with(full, clear_path()))[0].0, Code::ReceiveWindow);
}

fn several_tcp(bps: u64) -> Run {
    let flow = crate::evidence::FlowFacts { goodput_bps: bps / 4, retransmits: 0, sender_port: 1 };
    Run::Tcp(TcpFacts { flows: vec![flow; 4], ..tcp(Purpose::SeveralFlows, bps) })
}

#[test]
fn several_flows_tell_whose_limit_it_is() {
    let said = |several_bps| {
        let mut runs = clear_path();
        runs.push(several_tcp(several_bps));
        let found = diagnose(&with(lossy(Purpose::Default, 30 * MBIT, Location::Network), runs));
        let bound = &found.causes[0].bound;
        assert_eq!(bound.code, Code::Loss);
        let evidence = bound.evidence.iter().map(|line| line.text.clone()).collect::<Vec<_>>().join(" ");
        (evidence, bound.remedies.iter().any(|remedy| remedy.text.contains("several connections")))
    };
    let (evidence, remedy) = said(110 * MBIT);
    assert!(evidence.contains("4 flows of TCP carried 110Mbit") && evidence.contains("for itself") && remedy);
    let (evidence, remedy) = said(32 * MBIT);
    assert!(evidence.contains("all flows share this limit") && !remedy, "{evidence}");
}

#[test]
fn a_cap_on_each_flow_is_told_from_one_on_all() {
    let steps = |several: u64| {
        let mut all = udp(Purpose::SeveralFlows, 191 * MBIT, several, 0);
        all.streams = vec![(all.sent_packets / 8, all.lost_packets / 8); 8];
        vec![
            Run::Udp(udp(Purpose::Rate, 19 * MBIT, 19 * MBIT, 0)),
            Run::Udp(udp(Purpose::Rate, 191 * MBIT, 50 * MBIT, 0)),
            Run::Udp(all),
        ]
    };
    let run = lossy(Purpose::Default, 20 * MBIT, Location::Network);
    for (several, own) in [(180 * MBIT, true), (50 * MBIT, false)] {
        let found = diagnose(&with(run.clone(), steps(several)));
        let bound = &found.causes[0].bound;
        assert_eq!(bound.code, Code::Policer);
        assert_eq!(bound.evidence.iter().any(|line| line.text.contains("for itself")), own, "{bound:?}");
        assert_eq!(bound.remedies[0].text.starts_with("use several connections"), own);
    }
}

#[test]
fn a_bar_of_what_passed_is_no_lower_than_what_tcp_carried() {
    let low = Run::Udp(udp(Purpose::Rate, 19 * MBIT, 19 * MBIT, 0));
    let found = diagnose(&with(tcp(Purpose::Default, 180 * MBIT), vec![low]));
    let passed = found.bounds.iter().find(|bound| bound.code == Code::Shaper).unwrap();
    assert_eq!(passed.bound_bps, Interval::at_least(180 * MBIT));
}

#[test]
fn ipv6_has_longer_headers() {
    let payload =
        |ipv6| diagnose(&Evidence { ipv6, ..with(tcp(Purpose::Default, MBIT), clear_path()) }).target_payload_bps;
    // 1448 of 1538 and of 1558 bytes on the wire.
    assert_eq!([payload(false), payload(true)], [Some(188_296_488), Some(185_879_332)]);
}
