//! A capture that was let in and means ill, or that others pretend to be: what it can do is bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::log_link::{FIRST_PROBE, LinkMessage, LinkProgress, LinkSender, Open};
use longhaul_captures::spool::{Interface, Meta, PacketBlock};
use longhaul_captures::{InterfaceDirection, LinkType, Record};
use longhaul_channel::{Channel, DatagramKeys, Role, TOKEN_BYTES, decode_secret, encode_secret};
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_session::Message;
use longhaul_testing::waiting::until;
use serde_json::Value;

use crate::common::captures::server_address;
use crate::hosts::*;

const STARTED_NS: i64 = 1_700_000_000_000_000_000;

/// A program on the client that speaks a capture's protocol, unencrypted.
struct Impostor<'a> {
    hosts: &'a Hosts,
    stream: TcpStream,
    channel: Channel<Message>,
    numbers: LinkSender,
}

/// Its datagrams' way.
struct Datagrams {
    socket: UdpSocket,
    keys: DatagramKeys,
    session: u32,
}

impl Datagrams {
    fn seal(&self, sequence: u64, payload: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.keys.seal(self.session, sequence, payload, &mut datagram);
        datagram
    }

    fn send(&self, sequence: u64, payload: &[u8]) {
        self.socket.send(&self.seal(sequence, payload)).unwrap();
    }
}

fn meta() -> Meta {
    let interface = Interface { name: "eth0".into(), link: LinkType::Ethernet, mtu_bytes: 1500, clock: "c".into() };
    Meta {
        captured_by: "test".into(),
        host: "site".into(),
        started_ns: STARTED_NS,
        file: 1,
        snap_bytes: 96,
        filter: String::new(),
        interfaces: vec![interface],
        share: None,
    }
}

fn snippets(count: u64) -> PacketBlock {
    let mut block = PacketBlock::with_capacity(1 << 16);
    block.reset(0);
    for number in 0..count {
        block.push(&Record {
            at_ns: STARTED_NS + number as i64 * 1_000,
            direction: InterfaceDirection::Inbound,
            frame_len: 1514,
            gso_segs: 1,
            snippet: &[7; 60],
            ..Record::default()
        });
    }
    block
}

impl<'a> Impostor<'a> {
    fn connect(hosts: &'a Hosts) -> Self {
        let address: IpAddr = server_address(&hosts.lab).parse().unwrap();
        let stream = hosts.client.enter(|| TcpStream::connect((address, 5211)).unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { hosts, stream, channel: Channel::plain(Role::Client), numbers: LinkSender::default() }
    }

    /// Fails where the other end has had enough.
    fn say(&mut self, message: &LinkMessage) -> std::io::Result<()> {
        self.channel.send(&Message::LogLink { text: serde_json::to_string(message).unwrap() }).unwrap();
        self.transmit()
    }

    fn transmit(&mut self) -> std::io::Result<()> {
        while let Some(bytes) = self.channel.poll_transmit() {
            self.stream.write_all(&bytes)?;
        }
        Ok(())
    }

    /// The next message; `None` where the connection was closed.
    fn hear(&mut self) -> Option<Message> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.channel.poll_message() {
                return Some(message);
            }
            let count = self.stream.read(&mut buffer).unwrap_or(0);
            self.channel.handle_bytes(&buffer[..count]).ok().filter(|()| count > 0)?;
            // What waited for the other end's first word.
            self.transmit().ok()?;
        }
    }

    fn open(&mut self, meta: Meta) -> Datagrams {
        self.say(&LinkMessage::Open(Box::new(Open { meta, offer: None }))).unwrap();
        let Some(Message::LogLink { text }) = self.hear() else { panic!("no answer") };
        let LinkMessage::Accept { session, port, secret } = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        let peer = SocketAddr::new(self.stream.peer_addr().unwrap().ip(), port);
        let socket = self.hosts.client.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(peer).unwrap();
            socket
        });
        let token = decode_secret(&secret).unwrap().try_into().unwrap();
        Datagrams { socket: socket.unwrap(), keys: DatagramKeys::plain(token), session }
    }

    /// A payload of `count` snippets, with its number.
    fn payload(&mut self, count: u64) -> (u64, Vec<u8>) {
        let mut payload = Vec::new();
        (self.numbers.payload(&snippets(count), STARTED_NS, &mut payload), payload)
    }

    fn finish(&mut self) {
        let (datagrams, snippets) = (self.numbers.datagrams(), self.numbers.snippets());
        let latest_ns = self.numbers.latest_ns().unwrap_or(STARTED_NS);
        self.say(&LinkMessage::Finished { datagrams, snippets, latest_ns }).unwrap();
        while self.hear().is_some() {}
    }
}

fn refused(message: Option<Message>) -> String {
    match message {
        Some(Message::Error(error)) => error.message,
        other => panic!("{other:?}"),
    }
}

/// What a capture calls itself and its interfaces is text, and leads nowhere.
#[test]
fn names_lead_nowhere() {
    let Some(hosts) = Hosts::new("log-names", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let names =
        ["../../../../tmp/evil", "/etc", "..", "", "a\0b\n\u{1b}[2J", &"x".repeat(3_000), "ångström/%s;rm -rf ."];
    for name in names {
        let mut impostor = Impostor::connect(&hosts);
        let mut meta = Meta { host: name.into(), filter: name.into(), captured_by: name.into(), ..meta() };
        meta.interfaces[0].name = name.into();
        let datagrams = impostor.open(meta);
        let (sequence, payload) = impostor.payload(5);
        datagrams.send(sequence, &payload);
        impostor.finish();
    }
    // More interfaces than there may be, or none.
    for count in [0, 65] {
        let mut impostor = Impostor::connect(&hosts);
        let meta = Meta { interfaces: vec![meta().interfaces[0].clone(); count], ..meta() };
        impostor.say(&LinkMessage::Open(Box::new(Open { meta, offer: None }))).unwrap();
        assert!(refused(impostor.hear()).contains("1 to 64 interfaces"));
    }
    let log = log.finish();
    let captures = log["result"]["captures"].as_array().unwrap();
    assert_eq!(captures.len(), names.len(), "{log:#}");
    for capture in captures {
        assert_balanced(capture);
        assert_eq!(count(capture, "written_packets"), 5, "{capture:#}");
        assert!(!capture["host"].as_str().unwrap().contains(char::is_control));
    }
    // All that was made is in the one folder, under names that are plain.
    let folders = hosts.captures.folders("log");
    assert_eq!(folders.len(), names.len(), "{folders:?}");
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(name.len() < 100 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{name}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a spool alone");
    }
    let all = std::fs::read_dir(&hosts.captures.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(all.collect::<Vec<_>>(), ["log"]);
}

/// Who is let in and sends nothing has no figures for Prometheus, neither while the connection stands nor later.
#[test]
fn what_never_begins_has_no_figures() {
    let Some(hosts) = Hosts::new("log-figures", "lan", &[]) else { return };
    let file = hosts.path("log.prom");
    let log = hosts.log("log", &["--prometheus", &file]);
    let mut idle = Impostor::connect(&hosts);
    idle.open(meta());
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let (sequence, payload) = impostor.payload(10);
    datagrams.send(sequence, &payload);
    let rows = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter(|line| line.starts_with("longhaul_log_received_datagrams{")).count()
    };
    until("figures", || rows() > 0);
    assert_eq!(rows(), 1, "the other one has none");
    impostor.finish();
    until("the end of figures", || rows() == 0);
    drop(idle);
    assert_eq!(count(&log.finish()["result"], "refused_connections"), 1);
}

/// Numbers that are repeated, far off, or do not match what arrived; impossible fields. Each snippet counts once.
#[test]
fn wrong_numbers_change_nothing() {
    let Some(hosts) = Hosts::new("log-numbers", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let all: Vec<_> = (0..20).map(|_| impostor.payload(10)).collect();
    for (sequence, payload) in &all {
        datagrams.send(*sequence, payload);
        // Again, under another number, and cut.
        datagrams.send(*sequence, payload);
        datagrams.send(sequence + 1_000, payload);
        datagrams.send(sequence + 2_000, &payload[..payload.len() / 2]);
        datagrams.send(sequence + 3_000, &[0xff; 900]);
        // Another session's, and one whose token is another.
        let mut changed = datagrams.seal(*sequence, payload);
        changed[5] ^= 1;
        datagrams.socket.send(&changed).unwrap();
        changed[5] ^= 1;
        *changed.last_mut().unwrap() ^= 1;
        datagrams.socket.send(&changed).unwrap();
    }
    // Beyond all that can have been sent.
    for sequence in [u64::MAX, FIRST_PROBE, FIRST_PROBE - 1] {
        datagrams.send(sequence, &all[3].1);
    }
    // Its last message takes another path and ends the account as soon as all snippets have arrived.
    sleep(Duration::from_millis(300));
    impostor.finish();
    let log = log.wait();
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "seen_packets")), (&"finished".into(), 200), "{there:#}");
    assert_eq!((count(there, "written_packets"), count(there, "dropped_packets")), (200, 0), "{there:#}");
    assert_eq!((count(there, "stale_datagrams"), count(there, "refused_datagrams")), (20, 40), "{there:#}");
    assert_eq!(count(there, "wrong_datagrams"), 61, "{there:#}");
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["packets"], 200);
}

/// A capture that lies about how much it was ends as one that vanished: its files are not whole.
#[test]
fn a_last_word_that_does_not_fit_is_not_believed() {
    let Some(hosts) = Hosts::new("log-lie", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let (sequence, payload) = impostor.payload(10);
    datagrams.send(sequence, &payload);
    sleep(Duration::from_millis(300));
    // Three datagrams cannot hold so many snippets.
    impostor.say(&LinkMessage::Finished { datagrams: 3, snippets: u64::MAX / 2, latest_ns: i64::MAX }).unwrap();
    let log = log.wait();
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"vanished".into(), 10), "{there:#}");
    assert_eq!(hosts.convert("log", "t.pcap")["result"]["was_cut"], true);
}

/// Messages fill the disk as snippets do: `--bytes-cap` limits both.
#[test]
fn words_count_against_the_cap_as_well() {
    let Some(hosts) = Hosts::new("log-words", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1", "--bytes-cap", "2M"]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let (sequence, payload) = impostor.payload(10);
    datagrams.send(sequence, &payload);
    let gap = |at: i64| {
        let at_ns = STARTED_NS + at * 10_000_000_000;
        Gap { place: DroppedAt::Nic, interface: Some((at % 7) as u16), from_ns: at_ns, to_ns: at_ns + 1, packets: 1 }
    };
    let mut said = 0;
    for round in 0..400 {
        let gaps: Vec<Gap> = (0..5_000).map(|at| gap(round * 5_000 + at)).collect();
        let dropped_packets = [(DroppedAt::Nic, 5_000)].into();
        // It claims to have written as well what only the logging host can know.
        let ledger = Ledger { seen_packets: 5_000, written_packets: 77, dropped_packets, gaps };
        if impostor.say(&LinkMessage::Part { ledger }).is_err() {
            break;
        }
        said = round;
    }
    assert!(said < 399, "it may say more than 150 MB");
    let log = log.wait();
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"full".into(), 10), "{there:#}");
    let bytes: u64 = there["files"].as_array().unwrap().iter().map(size).sum();
    assert!(bytes < 24 << 20, "{bytes}");
}

fn size(file: &Value) -> u64 {
    std::fs::metadata(file.as_str().unwrap()).unwrap().len()
}

/// Who repeats what a capture sent keeps no dead capture alive.
#[test]
fn repeated_datagrams_are_no_sign_of_life() {
    let Some(hosts) = Hosts::new("log-replay", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let probe = (FIRST_PROBE, vec![0; 900]);
    let first = impostor.payload(10);
    let began = Instant::now();
    let ended = std::thread::spawn(move || (log.wait(), began.elapsed()));
    while !ended.is_finished() && began.elapsed() < Duration::from_secs(40) {
        for (sequence, payload) in [&probe, &first] {
            // Once it is gone its port is closed.
            let _ = datagrams.socket.send(&datagrams.seal(*sequence, payload));
        }
        sleep(Duration::from_millis(200));
    }
    let (log, after) = ended.join().unwrap();
    assert!((19..25).contains(&after.as_secs()), "{after:?}");
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"vanished".into(), 10), "{there:#}");
    assert!(there["why"].as_str().unwrap().contains("no message"), "{there:#}");
}

/// The states of connections at port 5211 that the kernel of the logging host has (`tcp_states.h`): 01 is established, 04 closed at that end, where the
/// other has not acknowledged it.
fn states(hosts: &Hosts) -> Vec<String> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let text = hosts.server.enter(|| read("tcp") + &read("tcp6")).unwrap();
    // Number, own address, the other's, state (proc(5)). 0A is the one that listens.
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let connections = words.filter(|words| words[1].ends_with(":145B") && words[3] != "0A");
    connections.map(|words| words[3].to_owned()).collect()
}

/// What the kernel of the logging host keeps for a capture goes soon after its end, though the capture acknowledges nothing.
#[test]
fn who_acknowledges_nothing_leaves_nothing_in_the_kernel() {
    let Some(hosts) = Hosts::new("log-deaf", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let (sequence, payload) = impostor.payload(10);
    datagrams.send(sequence, &payload);
    SocketFilter::nothing().attach(&impostor.stream).unwrap();
    // A message of progress comes twice a second.
    sleep(Duration::from_millis(800));
    assert_eq!(states(&hosts), ["01"]);
    // It may not say that.
    impostor.say(&LinkMessage::Heard { bytes: 1 }).unwrap();
    let began = Instant::now();
    until("the connection to go", || states(&hosts).is_empty());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let log = log.finish();
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"vanished".into(), 10), "{there:#}");
}

/// The account of a capture is on its way while strangers at the same address take all places (192): it arrives. They have to come before its last
/// retransmission, within 15 s.
#[test]
fn strangers_cut_off_no_account() {
    let Some(hosts) = Hosts::new("log-account", "lan", &[]) else { return };
    let log = hosts.log("log", &["-1"]);
    let mut impostor = Impostor::connect(&hosts);
    let datagrams = impostor.open(meta());
    let (sequence, payload) = impostor.payload(10);
    datagrams.send(sequence, &payload);
    // The path is gone for a while.
    SocketFilter::nothing().attach(&impostor.stream).unwrap();
    let (datagrams, snippets) = (impostor.numbers.datagrams(), impostor.numbers.snippets());
    let latest_ns = impostor.numbers.latest_ns().unwrap();
    impostor.say(&LinkMessage::Finished { datagrams, snippets, latest_ns }).unwrap();
    until("the end at the logging host", || states(&hosts) == ["04"]);
    let peer = impostor.stream.peer_addr().unwrap();
    let connect = || hosts.client.enter(|| TcpStream::connect(peer).unwrap()).unwrap();
    let strangers: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    // The first of them loses its place.
    strangers[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    match (&strangers[0]).read(&mut [0]) {
        Ok(0) => {}
        other => assert_eq!(other.unwrap_err().kind(), ErrorKind::ConnectionReset),
    }
    SocketFilter::all(u32::MAX).attach(&impostor.stream).unwrap();
    let is_account = |message: Message| match message {
        Message::LogLink { text } => {
            matches!(serde_json::from_str::<LinkMessage>(&text), Ok(LinkMessage::Closed { .. }))
        }
        _ => false,
    };
    assert!(std::iter::from_fn(|| impostor.hear()).any(is_account));
    drop(strangers);
    let log = log.wait();
    let there = only(&log);
    assert_eq!((&there["end"], count(there, "written_packets")), (&"finished".into(), 10), "{there:#}");
}

/// Hundreds of connections that say nothing, half a word, or lengths that cannot be leave room for a capture.
#[test]
fn a_flood_of_connections_keeps_no_capture_out() {
    let Some(hosts) = Hosts::new("log-flood", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let address: IpAddr = server_address(&hosts.lab).parse().unwrap();
    let connect = || hosts.client.enter(|| TcpStream::connect((address, 5211)).unwrap()).unwrap();
    // From the host of the capture itself: nobody else's connections go for these.
    let mut flood = Vec::new();
    for number in 0..300 {
        let mut stream = connect();
        let words: &[u8] = match number % 4 {
            0 => b"",
            1 => b"longhaul/1",
            2 => b"longhaul/1 plain\xff\xff\xff\xff{",
            _ => b"longhaul/1 plain\0\0\x10\0{\"type\":",
        };
        let _ = stream.write_all(words);
        flood.push(stream);
    }
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(500);
    for _ in 0..300 {
        flood.push(connect());
    }
    hosts.send(500);
    sleep(Duration::from_millis(500));
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 1_000);
    drop(flood);
    let log = log.finish();
    assert_eq!(count(only(&log), "written_packets"), 1_000);
    // Those that were put out. The others left without a word, or with half of one.
    assert!(count(&log["result"], "refused_connections") >= 350, "{:#}", log["result"]["refused_connections"]);
}

/// A logging host that takes a capture, and goes on saying that a datagram came and how far it is, until the connection ends.
fn talk(mut stream: TcpStream, port: u16) -> std::io::Result<()> {
    let mut channel = Channel::<Message>::plain(Role::Server);
    let mut buffer = [0; 4096];
    while channel.poll_message().is_none() {
        while let Some(bytes) = channel.poll_transmit() {
            stream.write_all(&bytes)?;
        }
        let count = stream.read(&mut buffer)?;
        if count == 0 || channel.handle_bytes(&buffer[..count]).is_err() {
            return Ok(());
        }
    }
    let accept = LinkMessage::Accept { session: 1, port, secret: encode_secret(&[7; TOKEN_BYTES]) };
    let goes_on = [LinkMessage::Heard { bytes: 9_000 }, LinkMessage::Progress(LinkProgress::default())];
    for message in std::iter::once(&accept).chain(goes_on.iter().cycle()) {
        channel.send(&Message::LogLink { text: serde_json::to_string(message).unwrap() }).unwrap();
        while let Some(bytes) = channel.poll_transmit() {
            stream.write_all(&bytes)?;
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Ctrl-C ends a capture whose logging host never says that it is done: it waits for 15 s at most.
#[test]
fn a_logging_host_that_talks_for_ever_holds_no_capture() {
    let Some(hosts) = Hosts::new("log-talks", "lan", &[]) else { return };
    let bind = || (TcpListener::bind("[::]:5211").unwrap(), UdpSocket::bind("[::]:0").unwrap());
    let (listener, socket) = hosts.server.enter(bind).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || talk(stream.unwrap(), port));
        }
    });
    let capture = hosts.capture(&["server"], &[]);
    hosts.send(100);
    sleep(Duration::from_millis(300));
    let began = Instant::now();
    let result = &capture.finish()["result"];
    assert!(began.elapsed() < Duration::from_secs(17), "{:?}", began.elapsed());
    // What nobody confirmed counts as lost.
    assert_balanced(result);
    assert_eq!((count(result, "written_packets"), dropped_at(result, "log_link")), (0, count(result, "seen_packets")));
}
