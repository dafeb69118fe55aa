//! Losses provoked at one place each, on real kernels, and found there: exactly so many, and nothing unexplained.

use std::net::SocketAddr;
use std::process::Command;

use longhaul_kernel::capability;
use longhaul_kernel::signals::Stop;
use longhaul_lab::{Lab, LabSpec};
use longhaul_measure::client::{self, Target};
use longhaul_measure::server::{ServeOptions, Server};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_session::control::{Amount, BusyPolicy, Caps, Direction, Pace, TestEnd, UdpParameters};
use longhaul_session::locate::{Granularity, Location, LocationMethod};
use longhaul_session::result::{Setting, UdpResult};
use longhaul_session::secure::Key;

/// Whether labs can be made; says so where not.
fn able() -> bool {
    let able = capability::is_root_in_namespace();
    if !able {
        println!("skipped: it takes root (CAP_NET_ADMIN, CAP_SYS_ADMIN) to make a lab");
    }
    able
}

fn lab(path: &str) -> Lab {
    let path = PathSpec::parse(path, &no_files).unwrap();
    Lab::up(LabSpec { name: "locations".into(), ..LabSpec::default() }, path).unwrap()
}

fn parameters(packets: u64) -> UdpParameters {
    UdpParameters {
        amount: Amount::Packets(packets),
        // Slow enough for a busy machine to lose nothing by itself.
        pace: Pace::RateBps(20_000_000),
        payload_bytes: 500,
        sockbuf_bytes: Some(8 << 20),
        wire: true,
        ..UdpParameters::default()
    }
}

fn serve(lab: &Lab, key: Option<Key>) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let address = lab.host("server").unwrap().plan.ipv4;
    let options = ServeOptions { key, caps: Caps::default(), at_once: 1, policy: BusyPolicy::Refuse };
    let namespace = lab.host("server").unwrap().namespace.try_clone().unwrap();
    let stop = Stop::install().unwrap();
    let (ready, bound) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        namespace.enter_for_good().unwrap();
        let server = Server::bind(SocketAddr::from((address, 0)), options).unwrap();
        ready.send(server.address().unwrap()).unwrap();
        server.run(stop, true, |_| {}).unwrap();
    });
    (bound.recv().unwrap(), thread)
}

fn run(lab: &Lab, parameters: UdpParameters) -> TestEnd {
    let (address, server) = serve(lab, None);
    let client = &lab.host("client").unwrap().namespace;
    let end = client.enter(|| client::run(&Target { address, key: None }, parameters, None, |_| {})).unwrap().unwrap();
    server.join().unwrap();
    end
}

/// The result of one direction; that it adds up is checked here for all tests.
fn result(end: &TestEnd, backward: bool) -> UdpResult {
    let (sender, receiver) = end.direction(backward).unwrap();
    let setting = Setting { payload_bytes: end.parameters.payload_bytes, granularity: Granularity::Wire };
    let result = UdpResult::assemble(setting, sender, receiver).result;
    let placed: u64 = result.loss_by_location.values().sum();
    assert_eq!(result.sent_packets, result.received_packets + placed, "sent = received + what was lost at each place");
    assert_eq!(result.lost_packets, placed);
    result
}

fn lost_at(result: &UdpResult) -> Vec<(Location, u64)> {
    result.loss_by_location.iter().map(|(at, packets)| (*at, *packets)).filter(|(_, packets)| *packets > 0).collect()
}

#[test]
fn the_path_loses_exactly_every_hundredth_packet() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '5ms'\n[[forward]]\nloss = { every = 100 }\n");
    let end = run(&lab, parameters(5_000));
    let result = result(&end, false);
    // The proof of the data path and the control connection pass the hop as well, so the first loss may come a little earlier.
    assert_eq!(result.sent_packets, 5_000);
    let lost = lost_at(&result);
    assert!(matches!(lost[..], [(Location::Network, 49..=51)]), "{lost:?}");
    let sequences: Vec<u64> = result.losses.iter().map(|loss| loss.first_sequence).collect();
    assert!(result.losses.iter().all(|loss| loss.packets == 1 && loss.location == Location::Network));
    // Control packets in between shorten a gap by what they are.
    assert!(sequences.windows(2).all(|pair| (90..=100).contains(&(pair[1] - pair[0]))), "{sequences:?}");
}

#[test]
fn a_packet_filter_at_the_receiver_is_found() {
    if !able() {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: there is no nft; install nftables");
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let rules = "table inet t { chain i { type filter hook input priority 0; \
                 udp length 508 numgen inc mod 100 0 drop; }; }";
    let applied =
        lab.host("server").unwrap().namespace.enter(|| {
            Command::new("nft").arg(rules.replace("table inet t", "add table inet t; table inet t")).status()
        });
    if !applied.unwrap().is_ok_and(|status| status.success()) {
        println!("skipped: the kernel has no nf_tables with numgen");
        return;
    }
    let end = run(&lab, parameters(5_000));
    let result = result(&end, false);
    assert_eq!(result.location_method, LocationMethod::Bpf);
    assert_eq!(lost_at(&result), [(Location::ReceiverFilter, 50)]);
    assert!(result.losses.iter().all(|loss| loss.reason.contains("NETFILTER_DROP")), "{:?}", result.losses[0]);
}

#[test]
fn nothing_is_lost_on_a_good_path_in_either_direction() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '2ms'\n");
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
        let end = run(&lab, UdpParameters { direction, streams: 2, ..parameters(4_000) });
        for backward in [false, true] {
            if direction == Direction::Bidirectional || backward == (direction == Direction::Reverse) {
                let result = result(&end, backward);
                assert_eq!(
                    (result.sent_packets, result.lost_packets),
                    (4_000, 0),
                    "{direction:?}, backward {backward}"
                );
            }
        }
    }
}

#[test]
fn duplicates_are_counted_and_hide_no_loss() {
    if !able() {
        return;
    }
    let lab = lab("[[forward]]\ndelay = '1ms'\nduplicate = '5%'\n");
    let end = run(&lab, parameters(4_000));
    let result = result(&end, false);
    assert_eq!((result.received_packets, result.lost_packets), (4_000, 0));
    // 5 % of 4000 are 200; four standard deviations are 55.
    assert!((145..=255).contains(&result.duplicate_packets), "{}", result.duplicate_packets);
}

#[test]
fn without_the_key_there_is_no_test() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let key = |byte: u8| {
        let mut bytes = [byte; 32];
        bytes[0] ^= 1;
        Key::from_random(bytes).unwrap()
    };
    for (client_key, good) in [(None, false), (Some(key(2)), false), (Some(key(1)), true)] {
        let (address, server) = serve(&lab, Some(key(1)));
        let target = Target { address, key: client_key };
        let client = &lab.host("client").unwrap().namespace;
        let end = client.enter(|| client::run(&target, parameters(100), None, |_| {})).unwrap();
        assert_eq!(end.is_ok(), good, "{:?}", end.err());
        server.join().unwrap();
    }
}
