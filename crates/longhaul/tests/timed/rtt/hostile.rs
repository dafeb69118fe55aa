//! A server that answers early, late, twice, with inventions, with garbage and with cut datagrams.
//!
//! A relay on loopback passes the control connection on to an honest server, delays its answers, and does to each what its number says.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use longhaul_rtt::probe_log::{ProbeLogReader, ProbeRow};
use longhaul_testing::program::Program;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};
use serde_json::Value;

use super::LONGHAUL;
use crate::common::captures::Folder;
use crate::common::{longhaul, object, side_by_side};

const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// How long the relay holds an answer.
const HELD: Duration = Duration::from_millis(20);
/// The same of one that comes after the time-out of a second.
const HELD_LONG: Duration = Duration::from_millis(1_500);
const PROBES: u64 = 700;
/// From this number on all answers are honest, so that late ones come before the end.
const HONEST_FROM: u64 = 280;
/// Within this the relay answers a probe that is not sent yet: a busy machine may take some milliseconds.
const INTERVAL_NS: u64 = 8_000_000;

/// What the relay does to an answer, or sends beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Honest,
    Thrice,
    Late,
    /// Its first bytes alone.
    Cut,
    /// Other bytes, as many.
    Garbage,
    /// Before the honest answer: one that does not repeat when the probe was sent.
    Guessed,
    /// One to a number that is never sent.
    NeverSent,
    /// One to the next probe, before that is sent.
    Early,
    /// One that was sent before the probe arrived.
    SentBefore,
    /// One that was longer inside the server than the probe was away.
    TooLongInside,
    /// One that goes on after its end.
    Longer,
    Empty,
    /// The probe itself.
    Mirrored,
    /// One of another session.
    OtherSession,
}

impl Deed {
    const ALL: [Self; 14] = [
        Self::Honest,
        Self::Thrice,
        Self::Late,
        Self::Cut,
        Self::Garbage,
        Self::Guessed,
        Self::NeverSent,
        Self::Early,
        Self::SentBefore,
        Self::TooLongInside,
        Self::Longer,
        Self::Empty,
        Self::Mirrored,
        Self::OtherSession,
    ];

    fn of(sequence: u64) -> Self {
        let turn = sequence as usize % Self::ALL.len();
        if sequence < HONEST_FROM { Self::ALL[turn] } else { Self::Honest }
    }

    /// How many probes have it.
    fn count(self) -> u64 {
        (0..PROBES).filter(|sequence| Self::of(*sequence) == self).count() as u64
    }

    fn loses(self) -> bool {
        matches!(self, Self::Late | Self::Cut | Self::Garbage)
    }

    /// What is sent as soon as the probe has come.
    fn at_once(self, question: &[u8], probe: Probe) -> Option<Vec<u8>> {
        let forged = |probe: Probe, inside_ns: i64| {
            let mut answer = question.to_vec();
            Probe { cookie: probe.cookie.of(true, 0), ..probe }.emit(&mut answer);
            write_stamps(&mut answer, probe.sent_ns as i64, probe.sent_ns as i64 + inside_ns);
            answer
        };
        Some(match self {
            Self::Honest | Self::Thrice | Self::Late | Self::Cut | Self::Garbage => return None,
            Self::Guessed => forged(Probe { sent_ns: probe.sent_ns + 1, ..probe }, 0),
            Self::NeverSent => forged(Probe { sequence: probe.sequence + PROBES, ..probe }, 0),
            Self::Early => {
                let next = Probe { sequence: probe.sequence + 1, sent_ns: probe.sent_ns + INTERVAL_NS, ..probe };
                forged(next, 0)
            }
            Self::SentBefore => forged(probe, -1),
            Self::TooLongInside => forged(probe, 10_000_000_000),
            Self::Longer => [forged(probe, 0), vec![0; 1_000]].concat(),
            Self::Empty => Vec::new(),
            Self::Mirrored => question.to_vec(),
            Self::OtherSession => forged(Probe { cookie: Cookie(probe.cookie.0 ^ 0x100), ..probe }, 0),
        })
    }

    /// What is sent in place of the honest answer, and how often.
    fn later(self, mut answer: Vec<u8>, sequence: u64) -> (Vec<u8>, usize) {
        match self {
            Self::Thrice => return (answer, 3),
            Self::Cut => answer.truncate(sequence as usize % answer.len()),
            Self::Garbage => {
                let mut state = sequence + 1;
                answer.iter_mut().for_each(|byte| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (state >> 56) as u8;
                });
            }
            _ => {}
        }
        (answer, 1)
    }
}

/// The stamps of an answer: when the probe arrived, and when the answer left.
fn write_stamps(answer: &mut [u8], received_ns: i64, sent_ns: i64) {
    answer[HEADER_LEN..][..8].copy_from_slice(&received_ns.to_be_bytes());
    answer[HEADER_LEN + 8..][..8].copy_from_slice(&sent_ns.to_be_bytes());
}

fn inside_ns(answer: &[u8]) -> i64 {
    let stamp = |at: usize| i64::from_be_bytes(answer[HEADER_LEN + at..][..8].try_into().unwrap());
    stamp(8) - stamp(0)
}

/// The probe that a datagram is about; `None` for those of the proof.
fn probe_of(datagram: &[u8]) -> Option<Probe> {
    Probe::parse(datagram).filter(|probe| probe.sequence < FIRST_RESERVED)
}

/// When a probe came, and how long it was away after that without the time inside the server.
#[derive(Debug, Default)]
struct Held {
    came: BTreeMap<u64, Instant>,
    for_ns: BTreeMap<u64, i64>,
}

/// What changes an answer on its way, and says for how long it is held and how often it is sent.
type Change = fn(u64, Vec<u8>) -> (Vec<u8>, usize, Duration);

struct Relay {
    _server: Program,
    control: u16,
    held: Arc<Mutex<Held>>,
}

impl Relay {
    fn start(at_once: fn(&[u8], Probe) -> Option<Vec<u8>>, change: Change) -> Self {
        Self::with_ttl(at_once, change, |_| 64)
    }

    /// The same, with answers that leave with this TTL, by number.
    fn with_ttl(at_once: fn(&[u8], Probe) -> Option<Vec<u8>>, change: Change, ttl: fn(u64) -> u32) -> Self {
        let front = UdpSocket::bind((RELAY, 0)).unwrap();
        let data_port = front.local_addr().unwrap().port();
        let (server, address) = serve(data_port);
        let control = TcpListener::bind((RELAY, 0)).unwrap();
        let relay = Self { _server: server, control: control.local_addr().unwrap().port(), held: Arc::default() };
        spawn(move || control.incoming().for_each(|stream| pass_on(stream.unwrap(), address)));

        let back = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        back.connect((Ipv4Addr::LOCALHOST, data_port)).unwrap();
        let client = Arc::new(Mutex::new(None));
        {
            let (front, back) = (front.try_clone().unwrap(), back.try_clone().unwrap());
            let (client, held) = (client.clone(), relay.held.clone());
            spawn(move || questions(&front, &back, &client, &held, at_once));
        }
        let held = relay.held.clone();
        spawn(move || answers(&front, &back, &client, &held, change, ttl));
        relay
    }

    /// `longhaul rtt` through the relay.
    fn rtt(&self, arguments: &[&str]) -> Value {
        object(&self.output(arguments).stdout)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let (host, port) = (RELAY.to_string(), self.control.to_string());
        let output = longhaul(&[&["rtt", &host, "--no-auth", "--port", &port, "--json"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        output
    }
}

/// An honest server on loopback with this port for data, and where it listens.
fn serve(data_port: u16) -> (Program, SocketAddr) {
    let mut command = Command::new(LONGHAUL);
    let port = data_port.to_string();
    command.args(["serve", "--bind", "127.0.0.1", "--no-auth", "--port", "0", "--data-port", &port]);
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening at ") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "the server ended");
    }
    spawn(move || io::copy(&mut errors, &mut io::sink()));
    let address = line.split_once("listening at ").unwrap().1.split(';').next().unwrap();
    (Program(server), address.trim().parse().unwrap())
}

/// Passes a control connection on, both ways.
fn pass_on(near: TcpStream, server: SocketAddr) {
    let far = TcpStream::connect(server).unwrap();
    for (mut from, mut to) in
        [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far.try_clone().unwrap(), near.try_clone().unwrap())]
    {
        from.set_nodelay(true).unwrap();
        spawn(move || {
            // Either end may reset it.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

fn questions(
    front: &UdpSocket,
    back: &UdpSocket,
    client: &Mutex<Option<SocketAddr>>,
    held: &Mutex<Held>,
    at_once: fn(&[u8], Probe) -> Option<Vec<u8>>,
) {
    let mut buffer = [0; 2_048];
    while let Ok((length, from)) = front.recv_from(&mut buffer) {
        *client.lock().unwrap() = Some(from);
        let question = &buffer[..length];
        if let Some(probe) = probe_of(question) {
            held.lock().unwrap().came.insert(probe.sequence, Instant::now());
            if let Some(forged) = at_once(question, probe) {
                front.send_to(&forged, from).unwrap();
            }
        }
        // The server may be gone.
        let _ = back.send(question);
    }
}

/// An answer that waits.
struct Waiting {
    due: Instant,
    answer: Vec<u8>,
    times: usize,
    of: Option<(u64, i64)>,
}

fn answers(
    front: &UdpSocket,
    back: &UdpSocket,
    client: &Arc<Mutex<Option<SocketAddr>>>,
    held: &Arc<Mutex<Held>>,
    change: Change,
    ttl: fn(u64) -> u32,
) {
    let queue = || -> Sender<Waiting> {
        let (sender, waiting) = channel::<Waiting>();
        let (front, client, held) = (front.try_clone().unwrap(), client.clone(), held.clone());
        spawn(move || {
            for Waiting { due, answer, times, of } in waiting {
                sleep(due.saturating_duration_since(Instant::now()));
                let to = client.lock().unwrap().unwrap();
                if let Some((sequence, inside_ns)) = of {
                    let mut held = held.lock().unwrap();
                    let since = held.came[&sequence].elapsed().as_nanos() as i64;
                    held.for_ns.insert(sequence, since - inside_ns);
                    front.set_ttl(ttl(sequence)).unwrap();
                }
                // The client may be gone.
                (0..times).for_each(|_| _ = front.send_to(&answer, to));
            }
        });
        sender
    };
    // Each is in order of time.
    let (soon, late) = (queue(), queue());
    let mut buffer = [0; 2_048];
    // The server says that its port is closed when it has ended.
    while let Ok(length) = back.recv(&mut buffer) {
        let answer = buffer[..length].to_vec();
        let waiting = match probe_of(&answer) {
            None => Waiting { due: Instant::now(), answer, times: 1, of: None },
            Some(Probe { sequence, .. }) => {
                let of = Some((sequence, inside_ns(&answer)));
                let (answer, times, hold) = change(sequence, answer);
                Waiting { due: Instant::now() + hold, answer, times, of }
            }
        };
        let queue = if waiting.due > Instant::now() + 2 * HELD { &late } else { &soon };
        queue.send(waiting).unwrap();
    }
}

/// The rows of a log; each answered probe was away for as long as the relay held its answer, and little longer.
fn rows_as_held(log: &str, relay: &Relay) -> Vec<ProbeRow> {
    let rows: Vec<ProbeRow> = ProbeLogReader::open(log.as_ref()).unwrap().map(Result::unwrap).collect();
    assert!(rows.iter().map(|row| row.sequence).eq(0..rows.len() as u64), "each probe has a row");
    let held = relay.held.lock().unwrap();
    let longer = |row: &ProbeRow| Some(row.rtt_ns? - held.for_ns[&row.sequence]);
    let mut longer: Vec<i64> = rows.iter().filter_map(longer).collect();
    longer.sort_unstable();
    println!("beyond the relay: {} to {} ns, median {}", longer[0], longer[longer.len() - 1], longer[longer.len() / 2]);
    // What the client's stamps enclose is never shorter; a busy machine may take a moment.
    assert!(longer[0] >= 0 && longer[longer.len() / 2] < 2_000_000, "{longer:?}");
    rows
}

#[test]
fn hostile_answers_are_counted_and_change_no_round_trip() {
    let _shared = side_by_side();
    let relay = Relay::start(
        |question, probe| Deed::of(probe.sequence).at_once(question, probe),
        |sequence, answer| {
            let deed = Deed::of(sequence);
            let (answer, times) = deed.later(answer, sequence);
            (answer, times, if deed == Deed::Late { HELD_LONG } else { HELD })
        },
    );
    let folder = Folder::new("rtt-hostile");
    let log = folder.file("log");
    let found =
        relay.rtt(&["-c", &PROBES.to_string(), "-i", &format!("{INTERVAL_NS}ns"), "--timeout", "1s", "-o", &log]);

    let rows = rows_as_held(&log, &relay);
    for row in &rows {
        let deed = Deed::of(row.sequence);
        let copies = if deed == Deed::Thrice { 2 } else { 0 };
        assert_eq!((row.rtt_ns.is_none(), row.copies), (deed.loses(), copies), "{deed:?}: {row:?}");
    }
    let sum = |of: fn(Deed) -> bool| Deed::ALL.into_iter().filter(|deed| of(*deed)).map(Deed::count).sum::<u64>();
    let lost = sum(Deed::loses);
    let of = |name: &str| found["result"][name].as_u64().unwrap();
    let counts = ["sent", "received", "lost", "duplicates", "reordered"].map(of);
    assert_eq!(counts, [PROBES, PROBES - lost, lost, 2 * Deed::Thrice.count(), 0], "{found}");
    let said = |code: &str| {
        let caveats = found["caveats"].as_array().unwrap();
        let caveat = caveats.iter().find(|caveat| caveat["code"] == code);
        caveat.unwrap_or_else(|| panic!("no {code}: {caveats:?}"))["message"].as_str().unwrap().to_owned()
    };
    let ignored = sum(|deed| !matches!(deed, Deed::Honest | Deed::Thrice | Deed::Late));
    assert!(said("answers_ignored").starts_with(&format!("{ignored} datagrams were not answers")), "{found}");
    assert!(said("answers_late").starts_with(&format!("{} answers came", Deed::Late.count())), "{found}");
    // The least round trip is an honest one.
    assert!(found["result"]["rtt"]["min_ns"].as_u64().unwrap() >= HELD.as_nanos() as u64, "{found}");
}

/// A server whose clock is nowhere, each time anew: round trips are right, and nothing that reads them fails.
#[test]
fn a_server_with_an_absurd_clock_spoils_no_round_trip() {
    const CLOCKS: [i64; 5] = [i64::MIN, i64::MAX, 0, -1, 1 << 62];
    let _shared = side_by_side();
    let relay = Relay::start(
        |_, _| None,
        |sequence, mut answer| {
            let clock = CLOCKS[sequence as usize % CLOCKS.len()];
            write_stamps(&mut answer, clock, clock);
            (answer, 1, HELD)
        },
    );
    let folder = Folder::new("rtt-absurd");
    let [log, page] = ["log", "page.html"].map(|name| folder.file(name));
    let found = relay.rtt(&["-c", "500", "-i", "3ms", "-o", &log, "--html", &page]);
    let of = |name: &str| found["result"][name].as_u64().unwrap();
    assert_eq!((of("received"), of("lost")), (500, 0), "{found}");
    // The time inside the server is not known: it says none.
    let rows: Vec<ProbeRow> = ProbeLogReader::open(log.as_ref()).unwrap().map(Result::unwrap).collect();
    assert!(rows.len() == 500 && rows.iter().all(|row| row.rtt_ns.unwrap() >= HELD.as_nanos() as i64), "{rows:?}");
    let (profile, shown) = (longhaul(&["profile", &log]), longhaul(&["show", &log]));
    for output in [&profile, &shown] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code <= 3) && !said.contains("panicked"), "{said}");
    }
    assert!(shown.status.success(), "{shown:?}");
}

/// Each change of the TTL is a line on standard error: here one for ten answers.
#[test]
fn a_server_whose_ttl_changes_all_the_time_prints_few_lines() {
    let _shared = side_by_side();
    let relay = Relay::with_ttl(
        |_, _| None,
        |_, answer| (answer, 1, Duration::ZERO),
        |sequence| if sequence / 10 % 2 == 0 { 64 } else { 63 },
    );
    let output = relay.output(&["-c", "2000", "-i", "1ms"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines = |with: &str| said.lines().filter(|line| line.starts_with("longhaul: ") && line.contains(with)).count();
    assert_eq!((lines("the route back changed"), lines("lines were left out here")), (120, 1), "{said}");
    // The result has all.
    assert!(object(&output.stdout)["result"]["path_change_count"].as_u64() > Some(120), "{said}");
}
