//! What the program costs: per drop of somebody else's packet, and per drop that it tells of.
//!
//! `cargo test --release -p longhaul-bpf --test linux -- --ignored --nocapture overhead`

use std::net::UdpSocket;
use std::time::Instant;

use longhaul_bpf::drops::{DropOptions, Drops, Flow};
use nix::sys::socket::{setsockopt, sockopt};

use crate::hosts::{Hosts, RECEIVER_IP, watched_hosts};

/// Nanoseconds that a send takes whose packet, or super-packet, is dropped at the full socket: the least of several rounds, as
/// whatever else runs only adds.
fn ns_per_send(sending: &UdpSocket, payload: &[u8], mut drops: Option<&mut Drops>) -> f64 {
    const SENDS: u32 = 500;
    (0..400)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..SENDS {
                sending.send(payload).unwrap();
            }
            let ns = start.elapsed().as_nanos() as f64 / f64::from(SENDS);
            if let Some(drops) = drops.as_mut() {
                while drops.drain(|_| ()) > 0 {}
            }
            ns
        })
        .fold(f64::INFINITY, f64::min)
}

fn compare(what: &str, hosts: &Hosts, sending: &UdpSocket, payload: &[u8]) {
    let attach = |flow| Drops::attach(&[flow], &DropOptions { ring_bytes: 1 << 25, ..DropOptions::default() }).unwrap();
    let without = ns_per_send(sending, payload, None);
    let mut foreign = attach(Flow { port: hosts.flow.port ^ 1, ..hosts.flow });
    let other_port = ns_per_send(sending, payload, Some(&mut foreign));
    drop(foreign);
    let mut foreign = attach(Flow { cookie: !hosts.flow.cookie, ..hosts.flow });
    let other_cookie = ns_per_send(sending, payload, Some(&mut foreign));
    drop(foreign);
    let mut ours = attach(hosts.flow);
    let matched = ns_per_send(sending, payload, Some(&mut ours));
    let lost = ours.lost().unwrap();
    let unrecorded = ours.unrecorded().unwrap();
    drop(ours);
    let again = ns_per_send(sending, payload, None);
    println!(
        "{what}: send and drop {without:.0} ns ({again:.0} again); added: {:.0} ns (other port), {:.0} ns (other cookie), {:.0} ns (told of); {lost:?}",
        other_port - without,
        other_cookie - without,
        matched - without,
    );
    assert_eq!(unrecorded, []);
}

#[test]
#[ignore = "measures: run it alone"]
fn per_drop() {
    let Some((hosts, watch)) = watched_hosts() else { return };
    drop(watch);
    let receiving = hosts.receiving(RECEIVER_IP);
    setsockopt(&receiving, sockopt::RcvBuf, &4096).unwrap();
    let sending = hosts.sending();
    for _ in 0..100 {
        sending.send(&hosts.payload(0, 64)).unwrap();
    }
    compare("single packets", &hosts, &sending, &hosts.payload(1, 64));
    setsockopt(&receiving, sockopt::UdpGroSegment, &true).unwrap();
    setsockopt(&sending, sockopt::UdpGsoSegment, &1000).unwrap();
    compare("super-packets of 44", &hosts, &sending, &hosts.batch(0..44, 1000));
}
