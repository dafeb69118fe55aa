//! Clients that have the key and go beyond what they were granted, and those that read slowly or not at all.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::allow_many_files;
use longhaul_peer::client::{self, Target};
use longhaul_peer::listening::CONNECTIONS_MOST;
use longhaul_peer::server::{DataPort, ServeOptions, Server};
use longhaul_rtt::RttParameters;
use longhaul_session::{Accept, BusyPolicy, Caps, Message, SessionError, TestParameters};
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::{Affinity, Amount, StreamSent};
use longhaul_udp::{Pace, UdpParameters};
use longhaul_units::BitRate;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};

use crate::hostile::ByHand;
use crate::hosts::{able, options, parameters, result, until};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server with these caps, which ends with the process.
fn serving(caps: Caps) -> SocketAddr {
    let server = Server::bind(SocketAddr::new(LOOPBACK, 0), ServeOptions { caps, ..options(None) }).unwrap();
    let address = server.address().unwrap();
    std::thread::spawn(move || server.run(None, false, |_| {}));
    address
}

fn capped() -> SocketAddr {
    serving(Caps { rate: Some(BitRate(10_000_000)), ..Caps::default() })
}

/// Sends by `send` until the server ends the test, and says how, and after what time.
fn until_ended(control: &mut ByHand, mut send: impl FnMut()) -> (SessionError, Duration) {
    let began = Instant::now();
    control.set_patience(Duration::from_millis(1));
    loop {
        assert!(began.elapsed() < Duration::from_secs(10), "it takes all that is sent");
        for _ in 0..20 {
            send();
        }
        if let Some(Message::Error(error)) = control.hear() {
            return (error, began.elapsed());
        }
    }
}

/// A UDP client whose address is proven.
struct UdpClient {
    control: ByHand,
    socket: UdpSocket,
    data: SocketAddr,
    cookie: Cookie,
}

impl UdpClient {
    fn prove(mut control: ByHand, asked: impl Into<TestParameters>) -> Self {
        let accept = control.granted_of(asked);
        let (data, cookie) = (SocketAddr::new(LOOPBACK, accept.data_ports[0]), accept.session_cookie().of(false, 0));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self { control, socket, data, cookie };
        client.send(FIRST_RESERVED, accept.token, HEADER_LEN);
        let mut challenge = [0; HEADER_LEN];
        client.socket.recv(&mut challenge).unwrap();
        client.send(FIRST_RESERVED + 2, Probe::parse(&challenge).unwrap().sent_ns, HEADER_LEN);
        while client.control.hear().expect("the proof") != Message::DataProven {}
        client
    }

    fn send(&self, sequence: u64, sent_ns: u64, bytes: usize) {
        let mut datagram = vec![0; bytes];
        Probe { cookie: self.cookie, sequence, sent_ns }.emit(&mut datagram).unwrap();
        // The socket is closed once the test has ended.
        let _ = self.socket.send_to(&datagram, self.data);
    }
}

/// Who is granted 1 Mb/s of short packets and sends long ones, under a number again and again, under numbers that the test does not have, or before
/// the test begins: the server has a cap of 10 Mb/s, sees what it reads, and ends the test.
#[test]
fn a_client_that_sends_faster_than_it_was_granted_is_ended() {
    let server = capped();
    for (sequence, start) in [(0, true), (1 << 40, true), (FIRST_RESERVED, true), (0, false)] {
        let pace = Pace::RateBps(1_000_000);
        let mut client =
            UdpClient::prove(ByHand::connect(server), UdpParameters { pace, payload_bytes: 18, ..parameters(10_000) });
        if start {
            client.control.say(&Message::Start);
        }
        let UdpClient { control, socket, data, cookie } = &mut client;
        let mut datagram = vec![0; 60_000];
        Probe { cookie: *cookie, sequence, sent_ns: 1 }.emit(&mut datagram).unwrap();
        let (error, after) = until_ended(control, || _ = socket.send_to(&datagram, *data));
        assert_eq!(error.code, "rate_passed", "{error:?} {sequence} {start}");
        assert!(after < Duration::from_secs(5), "{after:?}");
    }
}

/// Who has guessed the cookie of a test, and forges its client's address and port, shows no losses, no reordering and no delays by a number that the
/// client cannot have reached.
#[test]
fn a_number_that_nobody_can_have_reached_changes_nothing() {
    let amount = Amount::DurationNs(60_000_000_000);
    let asked = UdpParameters { amount, interval_ns: Some(100_000_000), ..parameters(1) };
    let mut client = UdpClient::prove(ByHand::connect(serving(Caps::default())), asked);
    client.control.say(&Message::Start);
    for sequence in 0..100 {
        client.send(sequence, 1, 500);
        if sequence == 5 {
            // 5,000 a second, for 60 s.
            client.send(200_000, 1 << 63, 500);
        }
        // Three intervals in all.
        std::thread::sleep(Duration::from_millis(4));
    }
    client.control.say(&Message::Finished { streams: vec![StreamSent { sent_packets: 100, ..StreamSent::default() }] });
    let report = client.control.reported(|progress| {
        assert_eq!((progress.missing_packets, progress.reordered_packets), (0, 0), "{progress:?}")
    });
    let receiver = report.udp.unwrap().receiver.unwrap();
    let stream = &receiver.streams[0];
    assert_eq!((stream.counts.received_packets, stream.counts.out_of_range_packets), (100, 1), "{:?}", stream.counts);
    assert_eq!(stream.counts.reordering.reordered_packets, 0, "{:?}", stream.counts);
    let delay = stream.delay_over_least.unwrap();
    assert!(delay.max_ns < 20_000_000_000, "{delay:?}");
}

/// Of round trips the answers keep to the cap, whatever is asked; what is asked is read.
#[test]
fn questions_count_too() {
    let asked = RttParameters { interval_ns: 10_000_000, ..RttParameters::default() };
    let mut client = UdpClient::prove(ByHand::connect(capped()), asked);
    client.control.say(&Message::Start);
    let UdpClient { control, socket, data, cookie } = &mut client;
    let mut datagram = vec![0; 60_000];
    Probe { cookie: *cookie, sequence: 0, sent_ns: 1 }.emit(&mut datagram).unwrap();
    let (error, _) = until_ended(control, || _ = socket.send_to(&datagram, *data));
    assert_eq!(error.code, "rate_passed", "{error:?}");
}

/// Who has forged the address of a client, but not its cookie, ends no test.
#[test]
fn a_flood_without_the_cookie_ends_no_test() {
    let udp = UdpParameters { pace: Pace::RateBps(1_000_000), ..parameters(10_000) };
    let kinds: [TestParameters; 2] = [udp.into(), RttParameters::default().into()];
    for asked in kinds {
        let mut client = UdpClient::prove(ByHand::connect(capped()), asked);
        client.control.say(&Message::Start);
        client.control.set_patience(Duration::from_millis(1));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            for length in [20, 65, 60_000] {
                client.socket.send_to(&vec![0; length], client.data).unwrap();
            }
            assert!(!matches!(client.control.hear(), Some(Message::Error(_))));
        }
    }
}

/// Over TCP the server reads no faster than its cap allows, from the proof of the connection on.
#[test]
fn a_server_reads_no_faster_than_its_cap() {
    for start in [true, false] {
        let mut control = ByHand::connect(capped());
        let pace_bps = Some(1_000_000);
        let accept: Accept = control.granted_of(TcpParameters { pace_bps, ..TcpParameters::default() });
        let mut data = TcpStream::connect(SocketAddr::new(LOOPBACK, accept.data_ports[0])).unwrap();
        data.write_all(&accept.tcp_cookie().hello(TcpStreamId { backward: false, stream: 0 })).unwrap();
        while control.hear().expect("the proof") != Message::DataProven {}
        if start {
            control.say(&Message::Start);
        }
        let block = vec![0; 1 << 18];
        data.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let (began, mut taken) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(3) {
            taken += data.write(&block).unwrap_or(0);
        }
        // Twice the cap are 2.5 MB a second; the kernels' buffers take some as well.
        assert!((1_000_000..40_000_000).contains(&taken), "{taken} bytes, {start}");
    }
}

/// A report that takes longer than the server waits for a reader of one message: each piece has that time.
#[test]
fn a_slow_reader_gets_all_of_a_long_report() {
    if !able() {
        return;
    }
    const PACKETS: u64 = 800_000;
    let read = || {
        let mut netlink = Netlink::open().unwrap();
        let loopback = netlink.index_of("lo").unwrap();
        netlink.set_up(loopback, true).unwrap();
        // So that the kernel takes little of it off the server's hands.
        for which in ["tcp_wmem", "tcp_rmem"] {
            std::fs::write(format!("/proc/sys/net/ipv4/{which}"), "4096 65536 65536").unwrap();
        }
        let asked = UdpParameters { each_packet: true, pace: Pace::Unlimited, ..parameters(PACKETS) };
        let mut client = UdpClient::prove(ByHand::connect(serving(Caps::default())), asked);
        client.control.say(&Message::Start);
        for sequence in 0..PACKETS {
            if sequence % 100_000 == 0 {
                client.control.say(&Message::Alive);
            }
            client.send(sequence, sequence * 1_000, HEADER_LEN);
        }
        let streams = vec![StreamSent { sent_packets: PACKETS, ..StreamSent::default() }];
        client.control.say(&Message::Finished { streams });
        let (mut bytes, mut began) = (0, Instant::now());
        loop {
            match client.control.hear().expect("the rest of the report") {
                Message::Report { text, last } => {
                    if bytes == 0 {
                        began = Instant::now();
                        client.control.read_time = Duration::from_millis(10);
                    }
                    bytes += text.len();
                    client.control.say(&Message::Alive);
                    if last {
                        return (bytes, began.elapsed());
                    }
                }
                Message::Error(error) => panic!("{error:?} after {bytes} bytes"),
                _ => {}
            }
        }
    };
    let (bytes, took) = NetNamespace::create().unwrap().enter(read).unwrap();
    assert!(took > Duration::from_secs(11), "{bytes} bytes in {took:?}: too fast to show it");
}

/// More clients than there are seats acknowledge nothing of what a server says at the end. Others get their seats, whether their tests were refused or
/// broken off. The server runs all of these tests at once, so that no turn limits them. Where the clients take longer to come than the server waits for
/// an acknowledgment (3 s), this shows nothing.
#[test]
fn who_acknowledges_nothing_keeps_nobody_out() {
    // Those of both ends.
    allow_many_files().unwrap();
    let options = ServeOptions { at_once: 2 * CONNECTIONS_MOST, ..options(None) };
    let server = Server::bind(SocketAddr::new(LOOPBACK, 0), options).unwrap();
    let address = server.address().unwrap();
    // It ends with the process.
    std::thread::spawn(move || server.run(None, false, |_| {}));
    let refused = || {
        let mut control = ByHand::connect(address);
        assert!(matches!(control.hear(), Some(Message::Hello(_))), "kept out");
        control.fall_deaf();
        // There is no such CPU.
        let affinity = Affinity { receiver_cpus: vec![8191], ..Affinity::default() };
        control.say(&Message::Propose { parameters: TcpParameters { affinity, ..TcpParameters::default() }.into() });
        control
    };
    let breaks_off = || {
        // Those before are at work until the server has heard that they end: on a busy machine they would have all seats.
        std::thread::sleep(Duration::from_millis(5));
        let UdpClient { mut control, .. } = UdpClient::prove(ByHand::connect(address), RttParameters::default());
        control.say(&Message::Start);
        control.fall_deaf();
        // It may not say that yet: the server answers with an error.
        control.say(&Message::Goodbye);
        control
    };
    let kinds: [(&str, &dyn Fn() -> ByHand); 2] = [("refused", &refused), ("breaks off", &breaks_off)];
    for (name, connect) in kinds {
        let deaf: Vec<ByHand> = (0..CONNECTIONS_MOST + 32).map(|_| connect()).collect();
        let asked = UdpParameters { sockbuf_bytes: None, ..parameters(100) };
        let end = client::run(&Target::at(address, None), asked, None, |_| {});
        let end = end.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(result(&end, false).sent_packets, 100, "{name}");
        drop(deaf);
    }
}

/// With one port for data, the sockets of a test are gone before the next one begins: streams would get each other's datagrams, or the port would
/// be taken.
#[test]
fn a_client_that_leaves_is_in_the_way_of_none_that_waits() {
    let port = UdpSocket::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
    let options = ServeOptions { data_port: DataPort::Fixed(port), policy: BusyPolicy::Queue(8), ..options(None) };
    let server = Arc::new(Server::bind(SocketAddr::new(LOOPBACK, 0), options).unwrap());
    let address = server.address().unwrap();
    let serving = Arc::clone(&server);
    // It ends with the process.
    std::thread::spawn(move || serving.run(None, false, |_| {}));
    let udp: TestParameters = UdpParameters { streams: 4, sockbuf_bytes: None, ..parameters(400) }.into();
    let rtt = RttParameters { amount: Amount::Packets(5), interval_ns: 1_000_000, ..RttParameters::default() };
    let tcp: TestParameters = TcpParameters { amount: Amount::Bytes(10_000), ..TcpParameters::default() }.into();
    for (leaving, next) in [(udp.clone(), udp.clone()), (udp, rtt.into()), (tcp.clone(), tcp)] {
        until("the test before to end", || server.load() == (0, 0));
        let mut control = ByHand::connect(address);
        control.granted_of(leaving);
        let end = std::thread::scope(|scope| {
            let client = scope.spawn(|| client::run(&Target::at(address, None), next.clone(), None, |_| {}));
            until("the next client to wait", || server.load() == (1, 1));
            drop(control);
            client.join().unwrap()
        });
        end.unwrap_or_else(|error| panic!("{next:?}: {error:?}"));
    }
}
