//! The judge judged: plain sockets of the standard library receive what its log says, in that order.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::common::alone;
use crate::common::forwarder::*;

const COOKIE: u32 = 0x1234_5678;

/// Sends `count` datagrams of `bytes` and returns the numbers of those that arrived whole, in order.
fn exchange(forwarder: &Forwarder, to: IpAddr, from: IpAddr, count: u64, bytes: usize) -> Vec<u64> {
    let bind =
        |host, ip| forwarder.namespace(host).enter(move || UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap()).unwrap();
    let (sender, receiver) = (bind(Host::Client, from), bind(Host::Server, to));
    let to = receiver.local_addr().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let reading = std::thread::spawn(move || {
        let (mut buffer, mut numbers) = (vec![0; 1 << 16], Vec::new());
        while let Ok(read) = receiver.recv(&mut buffer) {
            assert_eq!(read, bytes);
            let number = u64::from_be_bytes(*buffer[2..].first_chunk().unwrap()) & 0xffff_ffff_ffff;
            assert!(buffer[10..read].iter().all(|byte| *byte == number as u8), "as it was sent");
            numbers.push(number);
        }
        numbers
    });
    for number in 0..count {
        let mut datagram = vec![number as u8; bytes];
        datagram[..4].copy_from_slice(&COOKIE.to_be_bytes());
        datagram[4..10].copy_from_slice(&number.to_be_bytes()[2..]);
        sender.send_to(&datagram, to).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    reading.join().unwrap()
}

#[test]
fn its_log_is_what_a_socket_receives() {
    let _alone = alone();
    let chances = Chances {
        lose: 0.03,
        lose_run: 3,
        copy: 0.03,
        damage: 0.03,
        copy_and_damage: 0.02,
        delay: 0.03,
        reorder: 0.03,
        ..Chances::default()
    };
    for (ipv6, bytes, seed) in [(false, 100, 1), (true, 100, 2), (false, 4_000, 3), (true, 4_000, 4)] {
        let Some(forwarder) = Forwarder::up(Plan { forward: chances, seed, ..Plan::default() }) else { return };
        let of = |host: Host| if ipv6 { host.ipv6() } else { host.ipv4() };
        let received = exchange(&forwarder, of(Host::Server), of(Host::Client), 1_000, bytes);
        let log = forwarder.finish();
        assert_eq!(log.missed, 0);
        let expected = log.received(Direction::Forward, COOKIE);
        assert_eq!(received, expected, "IPv6 {ipv6}, {bytes} bytes");
        let counts = log.counts(|arrival| arrival.packet.is_udp());
        assert_eq!(counts.len(), 7, "every act happens: {counts:?}");
        assert!((500..995).contains(&received.len()), "{} {counts:?}", received.len());
        assert!(log.departures.iter().all(|departure| !departure.refused));
    }
}
