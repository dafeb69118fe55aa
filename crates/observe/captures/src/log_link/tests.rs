use proptest::prelude::*;

use super::*;
use crate::ledger::{DroppedAt, Ledger};
use crate::record::{InterfaceDirection, LinkType, Record};
use crate::spool::{Interface, Meta, PacketBlock, Packets, Share};
use longhaul_units::Nanos;

const STARTED_NS: i64 = 1_700_000_000_000_000_000;
/// From one snippet to the next.
const STEP_NS: i64 = 50_000;

fn record(number: u64, interface: u16, snippet: &[u8]) -> Record<'_> {
    Record {
        at_ns: STARTED_NS + number as i64 * STEP_NS,
        interface,
        direction: InterfaceDirection::Inbound,
        frame_len: 1514,
        gso_segs: 1 + (number % 3) as u16,
        snippet,
        ..Record::default()
    }
}

fn block(numbers: std::ops::Range<u64>, interface: u16) -> PacketBlock {
    let mut block = PacketBlock::with_capacity(1 << 16);
    block.reset(interface);
    for number in numbers {
        block.push(&record(number, interface, &number.to_be_bytes()));
    }
    block
}

/// Datagrams of `per` snippets each.
fn datagrams(count: u64, per: u64) -> (Vec<Vec<u8>>, LinkSender) {
    let mut sender = LinkSender::default();
    let all = (0..count)
        .map(|at| {
            let mut out = Vec::new();
            let floor_ns = STARTED_NS + (at * per) as i64 * STEP_NS;
            assert_eq!(sender.payload(&block(at * per..(at + 1) * per, 0), floor_ns, &mut out), at);
            out
        })
        .collect();
    (all, sender)
}

fn numbers(payload: &Payload<'_>) -> Vec<u64> {
    let mut packets = payload.packets();
    let mut numbers = Vec::new();
    while let Some(record) = packets.next().unwrap() {
        numbers.push(u64::from_be_bytes(record.snippet.try_into().unwrap()));
    }
    numbers
}

/// A capture says by itself what it is: each text is short in bytes, whatever its letters, and a terminal obeys none.
#[test]
fn what_a_capture_says_of_itself_is_short() {
    let long = "\u{1f30d}".repeat(5_000);
    let clock = format!("a\n\u{202e}{long}");
    let interface = Interface { name: long.clone(), clock, ..Interface::default() };
    let share = Share { capture: long.clone(), part: 1, parts: 1 };
    let meta = Meta {
        captured_by: long.clone(),
        host: long.clone(),
        filter: long,
        interfaces: vec![interface; INTERFACES_MOST],
        share: Some(share),
        ..Meta::default()
    };
    let meta = Open { meta, offer: None }.checked_meta().unwrap();
    let Interface { name, clock, .. } = &meta.interfaces[INTERFACES_MOST - 1];
    let texts = [name, clock, &meta.captured_by, &meta.host, &meta.filter, &meta.share.as_ref().unwrap().capture];
    assert_eq!(texts.map(String::len), [128, 63, 64, 256, 4096, 64]);
    assert!(clock.starts_with("a  \u{1f30d}"), "{clock:?}");
    assert!(serde_json::to_string(&meta).unwrap().len() < 32 << 10);
}

/// What captures say is kept as it is.
#[test]
fn a_capture_keeps_its_words() {
    let clock = "received: NIC ptp12; sent: kernel CLOCK_REALTIME".to_owned();
    let meta = Meta {
        captured_by: "longhaul 0.1.0".into(),
        host: "ångström.example.org".into(),
        file: 1,
        filter: "tcp port 5201 or ".repeat(200),
        interfaces: vec![Interface { name: "enp65s0f0np0".into(), clock, ..Interface::default() }],
        share: Some(Share { capture: "0123456789abcdef".into(), part: 1, parts: 2 }),
        ..Meta::default()
    };
    assert_eq!(Open { meta: meta.clone(), offer: None }.checked_meta(), Ok(meta));
}

#[test]
fn raw_packets_are_the_same_packets() {
    let whole = block(0..500, 3);
    let mut again = PacketBlock::with_capacity(1 << 16);
    again.reset(3);
    let mut packets = Packets::of_body(whole.body(), 500, whole.span_ns().0, 3, LinkType::Ethernet);
    while let Some(raw) = packets.next_raw().unwrap() {
        again.push_raw(&raw);
    }
    assert_eq!((again.body(), again.span_ns(), again.packets()), (whole.body(), whole.span_ns(), 500));
}

#[test]
fn a_gap_has_the_times_of_what_was_lost() {
    let (all, sender) = datagrams(40, 10);
    let mut receiver = LinkReceiver::new(1, STARTED_NS);
    let now = Nanos::from_secs(1);
    // One alone, and a run that is longer than what one datagram tells of.
    let lost = |at: usize| at == 7 || (20..32).contains(&at);
    for (at, bytes) in all.iter().enumerate().filter(|(at, _)| !lost(*at)) {
        match receiver.handle(now, at as u64, bytes) {
            Arrival::Snippets(payload) => assert_eq!(numbers(&payload)[0], at as u64 * 10),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(receiver.counts().lost_snippets, 0, "it may still come");
    receiver.handle_timeout(now + Nanos::from_secs(1));
    assert!(receiver.is_settled(40));
    let ledger = receiver.take_part();
    assert_eq!((ledger.seen_packets, ledger.dropped()), (400, 130));
    let at = |number: i64| STARTED_NS + number * STEP_NS;
    // Seven: exactly. 24 to 31 are told of one by one, and are one gap together; the four before lie between what came.
    let gaps: Vec<_> = ledger.gaps.iter().map(|gap| (gap.from_ns, gap.to_ns, gap.packets)).collect();
    assert_eq!(gaps, [(at(70), at(79), 10), (at(190), at(319), 120)]);
    assert!(ledger.gaps.iter().all(|gap| gap.place == DroppedAt::LogLink && gap.interface == Some(0)));
    assert!(receiver.finish(Some((sender.datagrams(), sender.snippets(), sender.latest_ns().unwrap()))));
    assert!(receiver.take_part().is_empty());
}

#[test]
fn the_tail_is_known_from_the_last_word() {
    let (all, sender) = datagrams(10, 5);
    let mut receiver = LinkReceiver::new(1, STARTED_NS);
    for (at, bytes) in all.iter().enumerate().take(6) {
        receiver.handle(Nanos::ZERO, at as u64, bytes);
    }
    assert!(receiver.finish(Some((10, 50, sender.latest_ns().unwrap()))));
    let ledger = receiver.take_part();
    assert_eq!((ledger.seen_packets, ledger.dropped(), receiver.counts().lost_datagrams), (50, 20, 4));
    // A word that cannot be.
    let mut receiver = LinkReceiver::new(1, STARTED_NS);
    receiver.handle(Nanos::ZERO, 0, &all[0]);
    assert!(!receiver.finish(Some((0, 0, 0))) && !receiver.finish(Some((1, 90, 0))));
    assert!(receiver.finish(None));
}

#[test]
fn what_comes_again_or_too_late_counts_once() {
    let (all, _) = datagrams(4, 5);
    let mut receiver = LinkReceiver::new(1, STARTED_NS);
    let now = Nanos::from_secs(5);
    assert!(matches!(receiver.handle(now, 0, &all[0]), Arrival::Snippets(_)));
    assert!(matches!(receiver.handle(now, 2, &all[2]), Arrival::Snippets(_)));
    assert!(matches!(receiver.handle(now, 2, &all[2]), Arrival::Stale));
    receiver.handle_timeout(now + Nanos::from_secs(2));
    assert!(matches!(receiver.handle(now, 1, &all[1]), Arrival::Stale));
    // Another one's numbers.
    assert!(matches!(receiver.handle(now, 3, &all[1]), Arrival::Wrong));
    assert!(matches!(receiver.handle(now, 3, &all[3][..30]), Arrival::Wrong));
    let counts = receiver.counts();
    assert_eq!((counts.snippets, counts.lost_snippets, counts.stale_datagrams, counts.wrong_datagrams), (10, 5, 2, 2));
}

#[test]
fn what_waits_is_bounded() {
    let mut receiver = LinkReceiver::new(1, STARTED_NS);
    let mut sender = LinkSender::default();
    let mut out = Vec::new();
    let one = block(0..1, 0);
    for _ in 0..70_000 {
        let sequence = sender.payload(&one, STARTED_NS, &mut out);
        if sequence > 0 {
            receiver.handle(Nanos::ZERO, sequence, &out);
        }
    }
    assert!(receiver.is_settled(70_000));
    assert_eq!((receiver.counts().lost_snippets, receiver.take_part().dropped()), (1, 1));
}

/// Each datagram that comes tells of eight that do not. Of those beyond what is kept, the gap has only its bounds, and no packet is missing.
#[test]
fn what_is_known_of_missing_datagrams_is_bounded() {
    let mut receiver = LinkReceiver::new(2, STARTED_NS);
    let mut sender = LinkSender::default();
    let mut out = Vec::new();
    let (rounds, one) = (10_000, block(0..1, 1));
    for number in 0..9 * rounds {
        let sequence = sender.payload(&one, STARTED_NS, &mut out);
        if number % 9 == 8 {
            assert!(matches!(receiver.handle(Nanos::ZERO, sequence, &out), Arrival::Snippets(_)));
        }
    }
    assert!(receiver.finish(None));
    let ledger = receiver.take_part();
    assert_eq!((ledger.seen_packets, ledger.dropped()), (9 * rounds, 8 * rounds));
    let of = |interface: Option<u16>| ledger.gaps.iter().filter(move |gap| gap.interface == interface);
    let packets = |interface| of(interface).map(|gap| gap.packets).sum::<u64>();
    assert_eq!((packets(Some(1)), packets(None)), (65_536, 8 * rounds - 65_536));
}

proptest! {
    /// Whatever is lost, duplicated or reordered: each packet was received or dropped, once.
    #[test]
    fn seen_is_written_and_dropped(fates in prop::collection::vec((0..3_u8, 0..40_u64), 1..200), per in 1..4_u64) {
        let (all, sender) = datagrams(fates.len() as u64, per);
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (at, (copies, late)) in fates.iter().enumerate() {
            (0..u64::from(*copies)).for_each(|copy| arrivals.push((at as u64 + late + copy, at as u64)));
        }
        arrivals.sort_unstable();
        let mut receiver = LinkReceiver::new(1, STARTED_NS);
        let (mut ledger, mut written) = (Ledger::default(), Vec::new());
        for (time, at) in arrivals {
            let now = Nanos::from_millis(time * 100);
            receiver.handle_timeout(now);
            if let Arrival::Snippets(payload) = receiver.handle(now, at, &all[at as usize]) {
                written.extend(numbers(&payload));
            }
            ledger.add(&receiver.take_part());
        }
        prop_assert!(receiver.finish(Some((sender.datagrams(), sender.snippets(), sender.latest_ns().unwrap()))));
        ledger.add(&receiver.take_part());
        written.sort_unstable();
        prop_assert!(written.windows(2).all(|pair| pair[0] < pair[1]), "each once");
        prop_assert_eq!(ledger.seen_packets, sender.snippets());
        prop_assert_eq!(ledger.dropped() + written.len() as u64, sender.snippets());
        prop_assert_eq!(ledger.gaps.iter().map(|gap| gap.packets).sum::<u64>(), ledger.dropped());
        // No snippet that came lies where all in between are said to be lost, and each that is missing lies in a gap.
        let at = |number: u64| STARTED_NS + number as i64 * STEP_NS;
        for number in (0..sender.snippets()).filter(|number| written.binary_search(number).is_err()) {
            prop_assert!(ledger.gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&at(number))), "{}", number);
        }
    }

    #[test]
    fn no_payload_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut receiver = LinkReceiver::new(2, STARTED_NS);
        receiver.handle(Nanos::ZERO, 3, &bytes);
        receiver.finish(None);
    }
}
