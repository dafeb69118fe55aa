//! Each place of loss on the real kernel, in bytes.

use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_result::LocationMethod;
use longhaul_tcp::{TcpParameters, TcpResult};
use longhaul_terms::Collect;

use crate::hosts::{able, on, run};
use crate::support::{bytes, result, tcp_lab};

const PATH: &str = "[[both]]\ndelay = '3ms'\n[[both]]\nrate = '100Mbit'\nqueue = '4MiB'\n";

/// A segment that fills a packet.
const FULL: u64 = 1_500;

fn places(result: &TcpResult) -> Vec<&'static str> {
    let places = result.loss_bytes_by_location.places();
    places.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(place, _)| place).collect()
}

/// A test over a lab in which a rule of nft on a host drops packets.
fn dropping(name: &str, host: &str, rule: &str, asked: TcpParameters) -> Option<(Lab, TcpResult)> {
    let lab = tcp_lab(name, PATH);
    let table = "nft add table inet t; nft 'add chain inet t i { type filter hook input priority 0; }'; \
                 nft 'add chain inet t o { type filter hook output priority 0; }'";
    if !on(&lab, host, &format!("{table}; nft 'add rule inet t {rule}'")) {
        return None;
    }
    let result = result(&run(&lab, asked), false);
    Some((lab, result))
}

#[test]
fn one_in_two_hundred_is_lost_in_the_network() {
    if !able() {
        return;
    }
    let lab = tcp_lab("every", &format!("{PATH}[[forward]]\nname = 'wan'\nloss = {{ every = 200 }}\n"));
    let result = result(&run(&lab, bytes(12_000_000)), false);
    // The emulator's own account.
    let lost_packets: u64 = lab.status().unwrap().hops.iter().map(|hop| hop.counters.dropped_loss.packets).sum();
    assert!(lost_packets > 30, "{lost_packets}");
    let loss = result.loss_bytes_by_location;
    // All but a few of the lost packets are full ones of the flow.
    let expected = lost_packets * FULL;
    assert!(
        loss.network > expected * 85 / 100 && loss.network <= expected * 115 / 100,
        "{loss:?}, {expected} expected"
    );
    assert_eq!(places(&result), ["snd_tcploss", "network"], "{:?}", result.loss_reasons);
}

#[test]
fn netfilter_at_the_receiver_is_rcv_rxloss() {
    if !able() {
        return;
    }
    let rule = "i tcp dport > 1024 ip length > 1000 numgen inc mod 100 == 7 counter drop";
    let Some((_lab, result)) = dropping("rcv-rx", "server", rule, bytes(8_000_000)) else { return };
    let loss = result.loss_bytes_by_location;
    assert!(loss.rcv_rxloss > 20 * FULL, "{loss:?} {:?}", result.loss_reasons);
    assert_eq!((loss.snd_txloss, loss.snd_rxloss, loss.rcv_txloss, loss.tcp_pruning), (0, 0, 0, 0), "{loss:?}");
    assert!(loss.network <= loss.rcv_rxloss / 5, "{loss:?}");
    assert!(result.loss_reasons[0].reason.starts_with("NETFILTER_DROP"), "{:?}", result.loss_reasons);
}

#[test]
fn netfilter_at_the_sender_is_snd_txloss() {
    if !able() {
        return;
    }
    let rule = "o tcp sport > 1024 ip length > 1000 numgen inc mod 20 == 7 counter drop";
    let Some((_lab, result)) = dropping("snd-tx", "client", rule, bytes(8_000_000)) else { return };
    let loss = result.loss_bytes_by_location;
    assert!(loss.snd_txloss > 5 * FULL, "{loss:?} {:?}", result.loss_reasons);
    assert_eq!((loss.rcv_rxloss, loss.snd_rxloss, loss.rcv_txloss, loss.tcp_pruning), (0, 0, 0, 0), "{loss:?}");
}

#[test]
fn acknowledgements_lost_at_either_end_have_their_places() {
    if !able() {
        return;
    }
    let acks = "ip length < 100 tcp flags == ack numgen inc mod 10 == 3 counter drop";
    let Some((_lab, result)) = dropping("snd-rx", "client", &format!("i {acks}"), bytes(8_000_000)) else { return };
    let loss = result.loss_bytes_by_location;
    assert!(loss.snd_rxloss > 52 * 20, "{loss:?} {:?}", result.loss_reasons);
    assert_eq!((loss.rcv_txloss, loss.rcv_rxloss, loss.snd_txloss), (0, 0, 0), "{loss:?}");
    // An acknowledgement of a flow with time stamps has 52 bytes.
    let reason = result.loss_reasons.iter().find(|reason| reason.location == "snd_rxloss").unwrap();
    assert!((52..=72).contains(&(reason.bytes / reason.packets)), "{reason:?}");

    let Some((_lab, result)) = dropping("rcv-tx", "server", &format!("o {acks}"), bytes(8_000_000)) else { return };
    let loss = result.loss_bytes_by_location;
    assert!(loss.rcv_txloss > 52 * 20, "{loss:?} {:?}", result.loss_reasons);
    assert_eq!((loss.snd_rxloss, loss.rcv_rxloss, loss.snd_txloss), (0, 0, 0), "{loss:?}");
}

#[test]
fn counters_alone_tell_the_same_places() {
    if !able() {
        return;
    }
    let rule = "i tcp dport > 1024 ip length > 1000 numgen inc mod 100 == 7 counter drop";
    let asked = TcpParameters { collect: Collect::Counters, ..bytes(8_000_000) };
    let Some((_lab, result)) = dropping("counters", "server", rule, asked) else { return };
    assert_eq!(result.location_method, LocationMethod::Counters);
    let loss = result.loss_bytes_by_location;
    assert!(loss.rcv_rxloss > 20 * FULL, "{loss:?} {:?}", result.loss_reasons);
    assert!(loss.snd_tcploss > 20 * FULL, "{loss:?}");
}

#[test]
fn a_good_path_loses_nothing_and_off_says_nothing() {
    if !able() {
        return;
    }
    let lab = tcp_lab("good", PATH);
    for collect in [Collect::Auto, Collect::Off] {
        let result = result(&run(&lab, TcpParameters { collect, ..bytes(4_000_000) }), false);
        assert_eq!(places(&result), [""; 0], "{collect:?}: {:?}", result.loss_bytes_by_location);
    }
}

/// Every other packet of a window is lost, so what arrives lies in the receiver's memory singly, each in a buffer many times as long as its
/// payload: more than the socket may hold.
#[test]
fn small_packets_out_of_order_that_fill_the_receiver_are_tcp_pruning() {
    if !able() {
        return;
    }
    let path = format!("{PATH}[[forward]]\nname = 'wan'\nloss = {{ list = [{}] }}\n", every_other(1_501..2_101));
    let lab = tcp_lab("pruning", &path);
    let asked = TcpParameters { mss_bytes: Some(88), window_bytes: Some(64 << 10), ..bytes(400_000) };
    let result = result(&run(&lab, asked), false);
    let (loss, memory) = (result.loss_bytes_by_location, result.receiver_memory);
    assert!(memory.prune_attempts > 0 && memory.pruned_packets > 0, "{memory:?}");
    assert!(loss.tcp_pruning > 0, "{loss:?} {:?}", result.loss_reasons);
    assert_eq!((loss.rcv_rxloss, loss.snd_rxloss, loss.rcv_txloss), (0, 0, 0), "{loss:?}");
    let reason = result.loss_reasons.iter().find(|reason| reason.location == "tcp_pruning").unwrap();
    assert!(reason.packets >= memory.pruned_packets, "{reason:?} {memory:?}");
    // What was put together to take less memory was not lost.
    assert!(memory.collapsed_packets > 0, "{memory:?}");
}

fn every_other(numbers: std::ops::Range<u32>) -> String {
    numbers.step_by(2).map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// Hosts without offloads send each of many small packets by itself, and a port's ring has 256 places: a sender waits for one. Where it may
/// not, the ring's drops are the emulator's own faults and not the path's.
#[test]
fn a_burst_beyond_a_ports_ring_waits_or_is_counted() {
    if !able() {
        return;
    }
    let path = PathSpec::parse("[[both]]\ndelay = '5ms'\n", &no_files).unwrap();
    let spec = LabSpec { name: "tcp-port-ring".into(), offload: false, ..LabSpec::default() };
    let lab = Lab::up(spec, path).unwrap();
    let asked = || TcpParameters { mss_bytes: Some(88), window_bytes: Some(1 << 20), ..bytes(4_000_000) };
    let waited = result(&run(&lab, asked()), false);
    let own = || lab.status().unwrap().own_fault;
    assert_eq!((waited.loss_bytes_by_location.snd_txloss, own().total()), (0, 0), "{:?}", own());

    if !on(&lab, "client", "tc qdisc replace dev eth0 root noqueue") {
        return;
    }
    let dropped = result(&run(&lab, asked()), false);
    let at_the_ring: u64 =
        dropped.loss_reasons.iter().filter(|reason| reason.location == "snd_txloss").map(|reason| reason.packets).sum();
    assert!(at_the_ring > 0, "{:?}", dropped.loss_reasons);
    assert_eq!(own().port_ring_full_frames, at_the_ring, "{:?}", own());
}
