//! What a frame costs: nanoseconds in the program, beside programs that do nothing.
//!
//! `cargo test --release -p longhaul-bpf --test filter -- --ignored --nocapture cost`

use std::mem::MaybeUninit;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use longhaul_bpf::filter::FilterOptions;

use crate::cable::Cable;
use crate::frames::*;
use crate::skeleton::HooksSkelBuilder;

const REPEAT: u32 = 1_000_000;

#[test]
#[ignore = "measures"]
fn cost() {
    let Some(cable) = Cable::lay() else { return };
    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    let with_ports = Cable::lay().unwrap();
    let ports = with_ports.filter(&FilterOptions { enforce: true, judge_ports: true, ..FilterOptions::default() });
    let _socket = with_ports.inside(|| std::net::UdpSocket::bind((OUR_IP, 9))).unwrap();
    let mut object = MaybeUninit::uninit();
    let skeleton = HooksSkelBuilder::default().open(&mut object).unwrap().load().unwrap();
    let frame = ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(9, 22));
    for (name, program) in [("bare XDP_PASS", &skeleton.progs.bare_pass), ("bare XDP_DROP", &skeleton.progs.bare_drop)]
    {
        let best = (0..5).map(|_| {
            let input = ProgramInput { data_in: Some(&frame), repeat: REPEAT, ..ProgramInput::default() };
            program.test_run(input).unwrap().duration.as_nanos()
        });
        println!("{name:<40} {:>5} ns", best.min().unwrap());
    }
    let rows = [
        ("our unicast, IPv4 UDP", frame.clone()),
        ("our unicast, IPv6 TCP", ipv6(OUR_MAC, OUR_IPV6, 6, &tcp(9))),
        ("foreign unicast", ipv4(OTHER_MAC, OTHER_IP, 17, 0, &udp(9, 22))),
        ("ARP for others", arp(EVERYBODY, 1, PEER_IP, OTHER_IP)),
        ("multicast not joined", ipv4([1, 0, 0x5e, 1, 2, 3], [239, 1, 2, 3].into(), 17, 0, &udp(9, 22))),
        ("our MAC, another IP", ipv4(OUR_MAC, OTHER_IP, 17, 0, &udp(9, 22))),
    ];
    for (name, frame) in rows {
        let best = (0..5).map(|_| cable.inside(|| filter.try_frame(&frame, REPEAT)).unwrap().1);
        println!("{name:<40} {:>5} ns", best.min().unwrap());
    }
    let best = (0..5).map(|_| with_ports.inside(|| ports.try_frame(&frame, REPEAT)).unwrap().1);
    println!("{:<40} {:>5} ns", "our unicast to a port that listens", best.min().unwrap());
    let closed = ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(10, 22));
    let best = (0..5).map(|_| with_ports.inside(|| ports.try_frame(&closed, REPEAT)).unwrap().1);
    println!("{:<40} {:>5} ns", "to a port that nobody listens on", best.min().unwrap());
}
