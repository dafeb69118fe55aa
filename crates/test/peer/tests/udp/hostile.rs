//! Peers that are slow, silent, or not peers at all.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, PROTOCOL, Role, to_frame};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_kernel::tcp::set_reset_on_close;
use longhaul_peer::client::{self, Target};
use longhaul_peer::listening::CONNECTIONS_MOST;
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_rtt::RttParameters;
use longhaul_session::{
    Accept, BusyPolicy, EndReport, Hello, Message, PacketsByLocation, Progress, SessionError, TestParameters,
};
use longhaul_terms::{Amount, StreamSent, TestDirection};
use longhaul_udp::{Pace, UdpParameters};
use longhaul_wire::probe::{FIRST_RESERVED, HEADER_LEN, Probe};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};

use crate::capture::Capture;
use crate::hosts::*;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PLAIN: &[u8] = b"longhaul/1 plain";

fn own() -> NetNamespace {
    NetNamespace::current().unwrap()
}

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end.max(1)
    }
}

fn hello() -> Message {
    Message::Hello(Hello { version: PROTOCOL.into(), nonce: 7, features: Vec::new(), measurement: None })
}

/// One message of each kind that a client may send.
fn messages() -> Vec<Message> {
    let parameters = UdpParameters { direction: TestDirection::Bidirectional, streams: 2, ..parameters(1_000) };
    let huge = UdpParameters { streams: 200, payload_bytes: u32::MAX, ..parameters.clone() };
    vec![
        hello(),
        Message::Propose { parameters: parameters.into() },
        Message::Propose { parameters: huge.into() },
        Message::Queued { ahead: u32::MAX },
        Message::DataProven,
        Message::Start,
        Message::Progress(Progress::default()),
        Message::Alive,
        Message::Stop,
        Message::Finished { streams: vec![StreamSent::default(); 3] },
        Message::Drained,
        Message::Report { text: "x".repeat(1000), last: true },
        Message::Error(SessionError::new("x", "\u{1b}[2J", "y")),
        Message::Goodbye,
    ]
}

/// What a client may send: valid beginnings, and then valid, cut, damaged or random messages.
fn nonsense(random: &mut Random, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = if random.below(8) == 0 { Vec::new() } else { PLAIN.to_vec() };
    if random.below(2) == 0 {
        bytes.extend(&messages[0]);
    }
    for _ in 0..=random.below(3) {
        let mut message = messages[random.below(messages.len() as u64) as usize].clone();
        match random.below(4) {
            0 => message.truncate(random.below(message.len() as u64) as usize),
            1 => {
                for _ in 0..3 {
                    let at = random.below(message.len() as u64) as usize;
                    message[at] = random.below(256) as u8;
                }
            }
            2 => message = (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
            _ => {}
        }
        bytes.extend(message);
    }
    bytes
}

#[test]
fn ten_thousand_connections_of_nonsense_leave_nothing_behind() {
    let (mut server, address) = serving_process_at(&own(), &[], LOOPBACK, None);
    let messages: Vec<Vec<u8>> = messages().iter().map(|message| to_frame(message).unwrap()).collect();
    let batch = |seed: u64, count: usize| {
        std::thread::scope(|scope| {
            for part in 0..4 {
                let messages = &messages;
                scope.spawn(move || {
                    let mut random = Random(seed * 4 + part + 1);
                    for _ in 0..count / 4 {
                        let mut stream = TcpStream::connect(address).unwrap();
                        // A server that has had enough may have closed.
                        let _ = stream.write_all(&nonsense(&mut random, messages));
                        let _ = stream.shutdown(Shutdown::Write);
                        if random.below(2) == 0 {
                            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                            let _ = std::io::copy(&mut (&stream).take(1 << 20), &mut std::io::sink());
                        }
                    }
                });
            }
        });
    };
    // Its standard output would fill.
    let mut lines = server.take_lines();
    let ends = std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let idle = |what: &str| {
        until(what, || server.holds().0 <= 2);
        server.holds()
    };
    batch(1, 2_000);
    let (threads, descriptors, before) = idle("the first sessions to end");
    batch(2, 10_000);
    let after = idle("all sessions to end");
    assert!(
        after.0 <= threads && after.1 <= descriptors,
        "{threads} threads, {descriptors} descriptors, then {after:?}"
    );
    assert!(after.2 < before + 20_000, "{before} KiB, then {} KiB", after.2);
    // It still serves.
    let asked = UdpParameters { sockbuf_bytes: None, ..parameters(200) };
    let end = client::run(&Target::at(address, None), asked, None, |_| {}).unwrap();
    assert_eq!(result(&end, false).sent_packets, 200);
    drop(server);
    let _ = ends.join();
}

#[test]
fn a_client_leaves_no_thread_that_waits_for_signals() {
    let (server, address) = serving_process_at(&own(), &[], LOOPBACK, None);
    let stop = longhaul_kernel::signals::Stop::install().unwrap();
    let waiting = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "signals"))
            .count()
    };
    let mut during = 0;
    let asked = UdpParameters { sockbuf_bytes: None, ..parameters(2_000) };
    let target = Target::at(address, None);
    let end = client::run(&target, UdpParameters { interval_ns: Some(100_000_000), ..asked }, Some(stop), |_| {
        during = waiting()
    });
    assert_eq!(result(&end.unwrap(), false).sent_packets, 2_000);
    assert_eq!((during, waiting()), (1, 0), "while the test ran, and after it");
    drop(server);
}

#[test]
fn strangers_get_no_more_than_a_greeting() {
    let (server, address) = serving_process_at(&own(), &[], LOOPBACK, Some(1));
    let channels = [Channel::<Message>::plain(Role::Client), Channel::keyed(Role::Client, &key(2), [9; 32])];
    for mut channel in channels {
        let mut stream = TcpStream::connect(address).unwrap();
        let asked = UdpParameters { direction: TestDirection::Reverse, ..parameters(1_000) };
        for message in [hello(), Message::Propose { parameters: asked.into() }, Message::Start] {
            channel.send(&message).unwrap();
        }
        let sent = channel.poll_transmit().unwrap();
        stream.write_all(&sent).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // Its own preamble, and that the keys differ.
        assert!(answer.len() <= 18, "{answer:?}");
        assert!(channel.handle_bytes(&answer).is_err());
    }
    assert!(client::run(&Target::at(address, Some(key(1))), parameters(100), None, |_| {}).is_ok());
    drop(server);
}

fn connect_from(own: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let SocketAddr::V4(address) = address else { panic!("{address}") };
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(own, 0))).unwrap();
    connect(socket.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
    TcpStream::from(socket)
}

/// Replays of a recorded handshake, from another address, as many as there are seats: without the key they are strangers, and give way
/// to whoever comes. So do strangers where no key is asked for.
#[test]
fn replayed_handshakes_hold_no_seat() {
    for key_of_both in [Some(1), None] {
        let (server, address) = serving_process_at(&own(), &[], LOOPBACK, key_of_both);
        let mut channel = match key_of_both {
            Some(seed) => Channel::<Message>::keyed(Role::Client, &key(seed), [9; 32]),
            None => Channel::plain(Role::Client),
        };
        let mut recorded = channel.poll_transmit().unwrap();
        if key_of_both.is_none() {
            recorded.extend(to_frame(&hello()).unwrap());
        }
        let strangers: Vec<_> = (0..CONNECTIONS_MOST)
            .map(|_| {
                let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), address);
                stream.write_all(&recorded).unwrap();
                // The server has answered, so it has handled what it got.
                stream.read_exact(&mut [0; 16]).unwrap();
                stream
            })
            .collect();
        let target = Target::at(address, key_of_both.map(key));
        let end = client::run(&target, UdpParameters { sockbuf_bytes: None, ..parameters(100) }, None, |_| {});
        assert_eq!(result(&end.unwrap(), false).sent_packets, 100);
        drop(strangers);
        drop(server);
    }
}

/// Who has the key, says hello from another address and then nothing, as often as there are seats, gives way as well.
#[test]
fn idle_holders_of_the_key_hold_no_seat() {
    let (server, address) = serving_process_at(&own(), &[], LOOPBACK, Some(1));
    let greeted = |_| {
        let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), address);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut channel = Channel::<Message>::keyed(Role::Client, &key(1), [9; 32]);
        channel.send(&hello()).unwrap();
        let mut buffer = [0; 4096];
        while channel.poll_message().is_none() {
            if let Some(bytes) = channel.poll_transmit() {
                stream.write_all(&bytes).unwrap();
            }
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed by the server");
            channel.handle_bytes(&buffer[..count]).unwrap();
        }
        stream
    };
    let idle: Vec<_> = (0..CONNECTIONS_MOST).map(greeted).collect();
    let target = Target::at(address, Some(key(1)));
    let end = client::run(&target, UdpParameters { sockbuf_bytes: None, ..parameters(100) }, None, |_| {});
    assert_eq!(result(&end.unwrap(), false).sent_packets, 100);
    drop(idle);
    drop(server);
}

/// `serve -1` serves one test: whoever only connects, or has another key, ends nothing.
#[test]
fn once_means_one_test() {
    let server = Server::bind(SocketAddr::new(LOOPBACK, 0), options(Some(key(1)))).unwrap();
    let address = server.address().unwrap();
    let served = std::thread::spawn(move || server.run(None, true, |_| {}));
    for _ in 0..3 {
        let stream = TcpStream::connect(address).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    let asked = || UdpParameters { sockbuf_bytes: None, ..parameters(100) };
    assert!(client::run(&Target::at(address, Some(key(2))), asked(), None, |_| {}).is_err());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!served.is_finished());
    assert!(client::run(&Target::at(address, Some(key(1))), asked(), None, |_| {}).is_ok());
    served.join().unwrap().unwrap();
}

/// A client that speaks the protocol by hand.
pub(crate) struct ByHand {
    stream: TcpStream,
    channel: Channel<Message>,
    /// The time that it takes to read 4 KiB.
    pub(crate) read_time: Duration,
}

impl ByHand {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let mut channel = Channel::<Message>::plain(Role::Client);
        channel.send(&hello()).unwrap();
        Self { stream, channel, read_time: Duration::ZERO }
    }

    /// Its own port.
    pub(crate) fn port(&self) -> u16 {
        self.stream.local_addr().unwrap().port()
    }

    /// The other end gets no more acknowledgments, and at the end a reset.
    pub(crate) fn fall_deaf(&self) {
        SocketFilter::nothing().attach(&self.stream).unwrap();
        set_reset_on_close(&self.stream, true).unwrap();
    }

    /// How long to wait for a message.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    pub(crate) fn say(&mut self, message: &Message) {
        self.channel.send(message).unwrap();
        while let Some(bytes) = self.channel.poll_transmit() {
            self.stream.write_all(&bytes).unwrap();
        }
    }

    /// The next message; `None` at the end, and where none came in time.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.channel.poll_message() {
                return Some(message);
            }
            while let Some(bytes) = self.channel.poll_transmit() {
                self.stream.write_all(&bytes).unwrap();
            }
            std::thread::sleep(self.read_time);
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => self.channel.handle_bytes(&buffer[..count]).unwrap(),
                _ => return None,
            }
        }
    }

    /// The report of the server, before which it has sent live lines: `look` sees each.
    pub(crate) fn reported(&mut self, look: impl Fn(Progress)) -> EndReport {
        let (mut report, mut looks) = (String::new(), 0);
        loop {
            match self.hear().expect("a report") {
                Message::Progress(progress) => {
                    looks += 1;
                    look(progress);
                }
                Message::Report { text, last } => {
                    report += &text;
                    if last {
                        assert!(looks > 0, "no live line");
                        return serde_json::from_str(&report).unwrap();
                    }
                }
                Message::Error(error) => panic!("{error:?}"),
                _ => {}
            }
        }
    }

    /// Proposes a test until it is granted.
    fn granted(&mut self, direction: TestDirection) -> Accept {
        self.granted_of(UdpParameters { direction, ..parameters(10_000) })
    }

    /// The same for any test. A server without a queue refuses it for a moment, until the sockets of a test that was cut are closed.
    pub(crate) fn granted_of(&mut self, asked: impl Into<TestParameters>) -> Accept {
        let (asked, began) = (Message::Propose { parameters: asked.into() }, Instant::now());
        self.say(&asked);
        loop {
            match self.hear().expect("an answer") {
                Message::Accept(accept) => return accept,
                Message::Hello(_) | Message::Alive => {}
                Message::Refuse(refusal)
                    if refusal.error.code == "busy" && began.elapsed() < Duration::from_secs(2) =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                    *self = Self::connect(self.stream.peer_addr().unwrap());
                    self.say(&asked);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Who has the cookie of a test, 24 random bits, but neither its address nor its port, adds no packet to it: not before the address is
/// proven, and not after. Nor does a number that the sender never sent, as somebody may have forged even the address.
#[test]
fn datagrams_of_strangers_are_not_of_the_test() {
    let (_server, address) = serving_process_at(&own(), &[], LOOPBACK, None);
    let mut control = ByHand::connect(address);
    let accept = control.granted_of(UdpParameters { interval_ns: Some(100_000_000), ..parameters(10_000) });
    let data = SocketAddr::new(LOOPBACK, accept.data_ports[0]);
    let cookie = accept.session_cookie().of(false, 0);
    let datagram = |sequence, sent_ns, bytes| {
        let mut datagram = vec![0; bytes];
        Probe { cookie, sequence, sent_ns }.emit(&mut datagram).unwrap();
        datagram
    };
    let [client, other_port, other_address] =
        ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"].map(|address| UdpSocket::bind(address).unwrap());
    let forge = |first| {
        for (socket, first) in [(&other_port, first), (&other_address, first + 10)] {
            for sequence in first..first + 10 {
                // The port is closed to it by now.
                let _ = socket.send_to(&datagram(sequence, 1, 500), data);
            }
        }
    };
    forge(1_000);
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.send_to(&datagram(FIRST_RESERVED, accept.token, HEADER_LEN), data).unwrap();
    let mut challenge = [0; HEADER_LEN];
    client.recv(&mut challenge).unwrap();
    let challenge = Probe::parse(&challenge).unwrap();
    client.send_to(&datagram(FIRST_RESERVED + 2, challenge.sent_ns, HEADER_LEN), data).unwrap();
    while control.hear().expect("the proof") != Message::DataProven {}
    control.say(&Message::Start);
    for sequence in 0..100 {
        if sequence == 50 {
            forge(20);
            forge(2_000);
        }
        // Three intervals in all.
        std::thread::sleep(Duration::from_millis(3));
        client.send_to(&datagram(sequence, 1, 500), data).unwrap();
    }
    client.send_to(&datagram(3_000, 1, 500), data).unwrap();
    control.say(&Message::Finished { streams: vec![StreamSent { sent_packets: 100, ..StreamSent::default() }] });
    let report = control.reported(|progress| {
        assert_eq!(progress.dropped_packets, PacketsByLocation::default(), "a live line with forged losses")
    });
    let receiver = report.udp.unwrap().receiver.unwrap();
    let stream = &receiver.streams[0];
    let (sent, lost) = (stream.losses.sent_packets(), stream.losses.lost_packets());
    assert_eq!((sent, lost, stream.counts.received_packets), (100, 0, 100), "{:?}", stream.counts);
    // Those before the proof, and the number that nobody sent; of the others the kernel has no socket.
    assert_eq!(stream.counts.out_of_range_packets, 21, "{:?}", stream.counts);
}

/// Forged datagrams of the proof, which who guesses the cookie can send from any address, do not count against the client: a thousand of them,
/// also from the client's address, and it still proves its own.
#[test]
fn who_guesses_the_cookie_does_not_use_up_the_proof() {
    let (_server, address) = serving_process_at(&own(), &[], LOOPBACK, None);
    let kinds: [TestParameters; 2] = [parameters(10_000).into(), RttParameters::default().into()];
    for (asked, name) in kinds.into_iter().zip(["udp", "rtt"]) {
        let mut control = ByHand::connect(address);
        let accept = control.granted_of(asked);
        let data = SocketAddr::new(LOOPBACK, accept.data_ports[0]);
        let datagram = |sequence, sent_ns| {
            let mut datagram = [0; HEADER_LEN];
            let cookie = accept.session_cookie().of(false, 0);
            Probe { cookie, sequence, sent_ns }.emit(&mut datagram).unwrap();
            datagram
        };
        let [client, other_port, other_address] =
            ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"].map(|address| UdpSocket::bind(address).unwrap());
        for number in 0..500 {
            for socket in [&other_port, &other_address] {
                socket.send_to(&datagram(FIRST_RESERVED + number % 3, number), data).unwrap();
            }
            if number % 50 == 49 {
                // So that the socket has room for all.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut challenge = [0; HEADER_LEN];
        let answered = (0..25).any(|_| {
            client.send_to(&datagram(FIRST_RESERVED, accept.token), data).unwrap();
            client.recv(&mut challenge).is_ok()
        });
        assert!(answered, "{name}: forged datagrams have used up the proof");
        let challenge = Probe::parse(&challenge).unwrap();
        client.send_to(&datagram(FIRST_RESERVED + 2, challenge.sent_ns), data).unwrap();
        while control.hear().expect("the proof") != Message::DataProven {}
    }
}

#[test]
fn an_address_that_proves_nothing_gets_no_more_than_it_sent() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    assert!(on(&lab, "client", "ip address add 10.77.1.99/16 dev eth0"));
    assert!(on(&lab, "server", "ip neigh replace 10.77.1.99 lladdr 02:6c:68:01:00:01 dev eth0 nud permanent"));
    let (_server, address) = serving_process(&lab, &[]);
    let leaving = Capture::leaving(&lab, "server");
    let (own_bytes, asked_bytes) = lab
        .host("client")
        .unwrap()
        .namespace
        .enter(|| {
            let mut control = ByHand::connect(address);
            let accept = control.granted(TestDirection::Reverse);
            let data = SocketAddr::new(address.ip(), accept.data_ports[0]);
            let mut datagram = [0; HEADER_LEN];
            let cookie = accept.session_cookie().of(false, 0);
            Probe { cookie, sequence: FIRST_RESERVED, sent_ns: accept.token }.emit(&mut datagram).unwrap();
            let forged = UdpSocket::bind("10.77.1.99:7000").unwrap();
            let own = UdpSocket::bind("10.77.1.1:7000").unwrap();
            let mut asked_bytes = 0;
            for _ in 0..50 {
                forged.send_to(&datagram, data).unwrap();
                // Without an answer to the challenge, and longer ones that are none of the protocol's.
                own.send_to(&datagram, data).unwrap();
                own.send_to(&[&datagram[..], &[0; 500]].concat(), data).unwrap();
                asked_bytes += datagram.len();
                std::thread::sleep(Duration::from_millis(2));
            }
            control.say(&Message::Start);
            // That has no place yet: the session ends.
            while let Some(message) = control.hear() {
                assert!(!matches!(message, Message::DataProven), "nothing was proven");
            }
            let mut got = 0;
            let mut buffer = [0; 2000];
            own.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            while let Ok(bytes) = own.recv(&mut buffer) {
                got += bytes;
            }
            forged.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(forged.recv(&mut buffer).is_err(), "an answer to an address that is not the client's");
            (got, asked_bytes)
        })
        .unwrap();
    assert!(own_bytes > 0 && own_bytes <= asked_bytes, "{own_bytes} for {asked_bytes}");
    assert_eq!(leaving.bulk(), 0, "no bulk before the proof");
}

/// Each ends within `limits`: 10 s for the channel's handshake, 20 s for the set-up, whatever the client sends meanwhile.
#[test]
fn slow_silent_and_endless_peers_are_ended_in_time() {
    let (server, address) = serving_process_at(&own(), &[], LOOPBACK, None);
    let ended = |name: &str, within: Duration, act: &(dyn Fn(&mut TcpStream) -> bool + Sync)| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let began = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            assert!(began.elapsed() < within + Duration::from_secs(10), "{name}: still there");
            let written = act(&mut stream);
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Err(error) if !matches!(error.kind(), std::io::ErrorKind::WouldBlock) => return,
                _ if !written => return,
                _ => {}
            }
        }
    };
    let alive = to_frame(&Message::Alive).unwrap();
    let greeting = [PLAIN, &to_frame(&hello()).unwrap()].concat();
    let flood: Vec<u8> = alive.iter().copied().cycle().take(alive.len() * 2_000).collect();
    let first = |stream: &mut TcpStream, bytes: &[u8]| {
        // Written once: the peer's address stays, so a mark would do no better than the time.
        stream.write_all(bytes).is_ok()
    };
    let began = Instant::now();
    let greeted = std::sync::atomic::AtomicBool::new(false);
    let greeted_too = std::sync::atomic::AtomicBool::new(false);
    let once = |mark: &std::sync::atomic::AtomicBool| !mark.swap(true, std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| ended("silent", Duration::from_secs(10), &|_| true));
        scope.spawn(|| {
            ended("garbage", Duration::from_secs(1), &|stream| stream.write_all(b"GET / HTTP/1.1\r\n").is_ok())
        });
        scope.spawn(|| {
            ended("trickling", Duration::from_secs(20), &|stream| {
                if once(&greeted) { first(stream, PLAIN) } else { first(stream, &[0]) }
            });
        });
        scope.spawn(|| {
            ended("endless", Duration::from_secs(20), &|stream| {
                if once(&greeted_too) { first(stream, &greeting) } else { first(stream, &flood) }
            });
        });
        let mut most = 0;
        while began.elapsed() < Duration::from_secs(15) {
            most = most.max(server.holds().2);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(most < 100_000, "{most} KiB");
    });
    until("all sessions to end", || server.holds().0 <= 2);
}

#[test]
fn several_clients_queue_run_or_are_refused_as_told() {
    let test = |address| {
        let asked = UdpParameters {
            amount: Amount::DurationNs(1_000_000_000),
            pace: Pace::RateBps(1_000_000),
            sockbuf_bytes: None,
            ..parameters(1)
        };
        let began = Instant::now();
        let end = client::run(&Target::at(address, None), asked, None, |_| {});
        (end.map(|_| ()).map_err(|error| error.code), began.elapsed())
    };
    for (at_once, policy, clients, refused, least) in [
        (1, BusyPolicy::Refuse, 3, 2, 1),
        (1, BusyPolicy::Queue(8), 3, 0, 3),
        (1, BusyPolicy::Queue(1), 3, 1, 2),
        (3, BusyPolicy::Refuse, 3, 0, 1),
    ] {
        let options = ServeOptions { at_once, policy, ..options(None) };
        let server = Server::bind(SocketAddr::new(LOOPBACK, 0), options).unwrap();
        let address = server.address().unwrap();
        let stop = longhaul_kernel::signals::Stop::install().unwrap();
        // It ends with the process.
        std::thread::spawn(move || server.run(Some(stop), false, |_| {}));
        let ends: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(|| test(address))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let busy = ends.iter().filter(|(end, _)| end.as_ref().is_err_and(|code| code == "busy")).count();
        let good = ends.iter().filter(|(end, _)| end.is_ok()).count();
        assert_eq!((busy, good), (refused, clients - refused), "{at_once} at once, {policy:?}: {ends:?}");
        let longest = ends.iter().map(|(_, took)| *took).max().unwrap();
        assert!(longest >= Duration::from_secs(least), "{at_once} at once, {policy:?}: {longest:?}");
    }
}
