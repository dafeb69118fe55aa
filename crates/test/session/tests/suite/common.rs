//! A client and a server in virtual time, with a path between them that a test can break.

#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use longhaul_session::{
    Admission, BusyPolicy, ClientConfig, ClientSession, DataEvent, DataPlan, EndReport, Message, Output, Progress,
    Randomness, ServerConfig, ServerSession, SessionError, TestEnd, TestParameters, kind::udp,
};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::{Directions, StreamSent};
use longhaul_udp::account::SequenceTracker;
use longhaul_udp::{UdpEndReport, UdpReceiverReport, UdpResult, UdpSenderReport};
use longhaul_units::Nanos;
use longhaul_wire::probe::{HEADER_LEN, Probe};

/// One direction of the path.
pub(crate) const DELAY: Nanos = Nanos::from_millis(50);
pub(crate) const CLIENT: &str = "192.0.2.1:50000";

pub(crate) fn randomness(seed: u8) -> Randomness {
    let mut bytes = [0; Randomness::BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31).wrapping_add(seed);
    }
    Randomness(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        if self == Self::Client { Self::Server } else { Self::Client }
    }
}

#[derive(Debug)]
enum Event {
    Message(Side, Box<Message>),
    Proof(Side, u8, [u8; HEADER_LEN]),
    Data(Side, Probe),
    Send {
        from: Side,
        generation: u32,
        stream: u8,
        sequence: u64,
    },
    SendingDone {
        from: Side,
        generation: u32,
    },
    /// A data connection with its first bytes.
    Hello(TcpStreamId, [u8; longhaul_tcp::proof::TCP_HELLO_BYTES]),
    /// All data connections of the client are there.
    Connected,
    /// The server closed the connection of a stream, over which it had sent so many bytes.
    StreamEnded(u8, u64),
    Do(fn(&mut Pair)),
}

/// The state of a driver.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) plan: Option<DataPlan>,
    pub(crate) trackers: Vec<SequenceTracker>,
    pub(crate) sent: Vec<StreamSent>,
    pub(crate) generation: u32,
    pub(crate) peer_sent: Option<Vec<StreamSent>>,
    pub(crate) outcome: Option<Result<TestEnd, SessionError>>,
    pub(crate) said: Vec<Message>,
    pub(crate) proof_bytes_sent: usize,
    pub(crate) bulk_sent: u64,
    pub(crate) progress: u32,
    /// How often it was told that its test waits.
    pub(crate) waiting: u32,
    /// What this host says of datagrams of the proof that it dropped.
    pub(crate) dropped_proof: Option<&'static str>,
}

pub(crate) struct Pair {
    pub(crate) now: Nanos,
    pub(crate) client: ClientSession,
    pub(crate) server: ServerSession,
    pub(crate) ends: BTreeMap<Side, End>,
    pub(crate) admission: Admission,
    /// Packets that the path loses or duplicates.
    pub(crate) fate: fn(backward: bool, stream: u8, sequence: u64) -> u32,
    pub(crate) control_up: bool,
    pub(crate) data_up: bool,
    /// Both hellos have a feature that no end knows.
    pub(crate) newer: bool,
    /// When a TCP client's driver reports its connections.
    pub(crate) connected_after: Nanos,
    /// The side with a dead driver: it receives and sends nothing.
    pub(crate) dead: Option<Side>,
    /// The side that messages do not reach any more.
    pub(crate) deaf: Option<Side>,
    events: BinaryHeap<Reverse<(Nanos, u64)>>,
    bodies: BTreeMap<u64, Event>,
    next: u64,
}

impl Pair {
    pub(crate) fn new(parameters: impl Into<TestParameters>) -> Self {
        Self::with_caps(parameters, Default::default())
    }

    pub(crate) fn with_caps(parameters: impl Into<TestParameters>, caps: longhaul_session::Caps) -> Self {
        let parameters = parameters.into();
        let now = Nanos::from_secs(1_000);
        let peer: SocketAddr = CLIENT.parse().unwrap();
        let client =
            ClientSession::new(now, ClientConfig { parameters, nonce: 1, measurement: None, report_bytes: 64 << 20 });
        let server = ServerSession::new(now, ServerConfig { peer: peer.ip(), caps }, randomness(3));
        let ends = [(Side::Client, End::default()), (Side::Server, End::default())].into();
        let admission = Admission::new(1, BusyPolicy::Refuse);
        Self {
            now,
            client,
            server,
            ends,
            admission,
            fate: |_, _, _| 1,
            control_up: true,
            data_up: true,
            newer: false,
            connected_after: DELAY + DELAY,
            dead: None,
            deaf: None,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut End {
        self.ends.get_mut(&side).unwrap()
    }

    /// Does something at the time `after` from the start.
    pub(crate) fn at(&mut self, after: Nanos, what: fn(&mut Self)) {
        self.schedule(self.now + after, Event::Do(what));
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.bodies.insert(self.next, event);
        self.events.push(Reverse((at, self.next)));
        self.next += 1;
    }

    /// Runs until both ends are over or nothing happens any more, and returns the time that it took.
    pub(crate) fn run(&mut self) -> Nanos {
        let began = self.now;
        loop {
            self.drive(Side::Client);
            self.drive(Side::Server);
            let timer = |dead: Option<Side>, side, at: Option<Nanos>| at.filter(|_| dead != Some(side));
            let timers = [
                timer(self.dead, Side::Client, self.client.poll_timeout()),
                timer(self.dead, Side::Server, self.server.poll_timeout()),
            ];
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let Some(at) = timers.into_iter().flatten().chain(event).min() else {
                return self.now - began;
            };
            if self.is_over() {
                return self.now - began;
            }
            self.now = at.max(self.now);
            while let Some(&Reverse((at, id))) = self.events.peek() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                let event = self.bodies.remove(&id).unwrap();
                self.happen(event);
            }
            if self.dead != Some(Side::Client) {
                self.client.handle_timeout(self.now);
            }
            if self.dead != Some(Side::Server) {
                self.server.handle_timeout(self.now);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|(side, end)| end.outcome.is_some() || self.dead == Some(*side))
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Do(what) => what(self),
            Event::Message(to, _) if self.dead == Some(to) || self.deaf == Some(to) => {}
            Event::Message(Side::Client, message) => self.client.handle_message(now, *message),
            Event::Message(Side::Server, message) => self.server.handle_message(now, *message),
            Event::Proof(Side::Client, stream, bytes) => self.client.handle_data_probe(now, stream, &bytes),
            Event::Proof(Side::Server, stream, bytes) => {
                let mut from: SocketAddr = CLIENT.parse().unwrap();
                from.set_port(50_000 + u16::from(stream));
                self.server.handle_data_probe(now, from, &bytes);
            }
            Event::Hello(id, bytes) => {
                let from: SocketAddr = CLIENT.parse().unwrap();
                assert_eq!(self.server.handle_data_hello(now, from, &bytes), (self.data_up).then_some(id));
            }
            Event::Connected => self.client.handle_data_opened(now),
            Event::StreamEnded(stream, bytes) => self.client.handle_data(now, DataEvent::StreamEnded { stream, bytes }),
            Event::Data(to, probe) => {
                let stream = usize::from(probe.cookie.stream());
                let end = self.end(to);
                let cookie = end.plan.as_ref().unwrap().cookie;
                assert!(probe.cookie.0 >> 8 == cookie.0 >> 8);
                // An end that has reported does not read any more.
                let Some(tracker) = end.trackers.get_mut(stream) else { return };
                tracker.receive(probe.sequence, now, Nanos(probe.sent_ns));
                if end.peer_sent.is_some() {
                    match to {
                        Side::Client => self.client.handle_data(now, DataEvent::Arrivals),
                        Side::Server => self.server.handle_data(now, DataEvent::Arrivals),
                    }
                }
            }
            Event::Send { from, generation, stream, sequence } => self.send(from, generation, stream, sequence),
            Event::SendingDone { from, generation } if self.end(from).generation == generation => self.finish(from),
            Event::SendingDone { .. } => {}
        }
    }

    fn send(&mut self, from: Side, generation: u32, stream: u8, sequence: u64) {
        let (now, dead) = (self.now, self.dead);
        let end = self.end(from);
        if end.generation != generation || dead == Some(from) {
            return;
        }
        let sent = &mut end.sent[usize::from(stream)];
        sent.sent_packets = sequence + 1;
        sent.last_sent_ns = now.0;
        end.bulk_sent += 1;
        let backward = from == Side::Server;
        let cookie = end.plan.as_ref().unwrap().cookie.of(backward, stream);
        if self.data_up && dead != Some(from.other()) {
            for _ in 0..(self.fate)(backward, stream, sequence) {
                self.schedule(now + DELAY, Event::Data(from.other(), Probe { cookie, sequence, sent_ns: now.0 }));
            }
        }
    }

    /// It sends no more, and says what it has sent.
    pub(crate) fn finish(&mut self, from: Side) {
        let now = self.now;
        let end = self.end(from);
        end.generation += 1;
        let sent = end.sent.clone();
        let connections = end.plan.as_ref().unwrap().parameters.tcp().map_or(0, |tcp| tcp.streams);
        match from {
            Side::Client => self.client.handle_data(now, DataEvent::Sent(sent)),
            Side::Server => {
                for (stream, sent) in (0..connections).zip(&sent) {
                    self.schedule(now + DELAY, Event::StreamEnded(stream, sent.sent_bytes));
                }
                self.server.handle_data(now, DataEvent::Sent(sent));
            }
        }
    }

    fn drive(&mut self, side: Side) {
        while let Some(output) = match side {
            _ if self.dead == Some(side) => None,
            Side::Client => self.client.poll_output(),
            Side::Server => self.server.poll_output(self.now),
        } {
            self.act(side, output);
        }
    }

    fn act(&mut self, side: Side, output: Output) {
        let now = self.now;
        match output {
            Output::SendMessage(mut message) => {
                if let (Message::Hello(hello), true) = (&mut message, self.newer) {
                    hello.features.push("of the future".into());
                }
                self.end(side).said.push(message.clone());
                // As bytes, like a real connection.
                let mut messages = Vec::new();
                let frame = longhaul_channel::to_frame(&message).unwrap();
                longhaul_channel::Deframer::default().push(&frame, &mut messages).unwrap();
                if self.control_up {
                    self.schedule(now + DELAY, Event::Message(side.other(), Box::new(messages.remove(0))));
                }
            }
            Output::SendProbe { stream, to, bytes } => {
                assert_eq!(to.is_some(), side == Side::Server);
                self.end(side).proof_bytes_sent += bytes.len();
                if self.data_up {
                    self.schedule(now + DELAY, Event::Proof(side.other(), stream, bytes));
                }
            }
            Output::RequestAdmission { longest } => {
                let (_, verdict) = self.admission.ask(now, now + longest);
                self.server.handle_admission(now, verdict);
            }
            Output::LookForDrops => {
                let Some(dropped) = self.end(side).dropped_proof else { return };
                match side {
                    Side::Client => self.client.handle_data_blocked(now, dropped),
                    Side::Server => self.server.handle_data_blocked(now, dropped),
                }
            }
            Output::OpenData(plan) => self.open(side, plan),
            Output::Proven { to } => assert!(side == Side::Server && !to.is_empty()),
            Output::StartSending { .. } => self.start(side),
            Output::StopSending => self.finish(side),
            Output::Waiting { .. } => self.end(side).waiting += 1,
            Output::Progress(_) => self.end(side).progress += 1,
            Output::PeerFinished(streams) => {
                self.end(side).peer_sent = Some(streams);
                if self.end(side).plan.as_ref().unwrap().parameters.tcp().is_some() {
                    match side {
                        Side::Client => self.client.handle_data(now, DataEvent::Drained),
                        Side::Server => self.server.handle_data(now, DataEvent::Drained),
                    }
                }
            }
            Output::CollectReport => {
                let report = self.report(side);
                match side {
                    Side::Client => self.client.handle_report(now, report),
                    Side::Server => self.server.handle_report(now, report),
                }
            }
            Output::Finished(end) => self.end(side).outcome = Some(Ok(*end)),
            Output::Failed(error) => {
                let end = self.end(side);
                end.generation += 1;
                end.outcome = Some(Err(error));
            }
        }
    }

    fn open(&mut self, side: Side, plan: DataPlan) {
        let now = self.now;
        if let Some(tcp) = plan.parameters.tcp().cloned() {
            let cookie = plan.tcp_cookie;
            self.end(side).plan = Some(plan);
            if side == Side::Server {
                return self.server.handle_data_opened(now, vec![5210], Vec::new());
            }
            for backward in [false, true] {
                let used = if backward { tcp.direction.server_sends() } else { tcp.direction.client_sends() };
                for stream in (0..tcp.streams).filter(|_| used) {
                    let id = TcpStreamId { backward, stream };
                    self.schedule(now + DELAY, Event::Hello(id, cookie.hello(id)));
                }
            }
            return self.schedule(now + self.connected_after, Event::Connected);
        }
        let streams = plan.parameters.kind().streams();
        let end = self.end(side);
        end.trackers = (0..streams).map(|_| SequenceTracker::new(1 << 30, true)).collect();
        end.plan = Some(plan);
        match side {
            Side::Client => self.client.handle_data_opened(now),
            Side::Server => self.server.handle_data_opened(now, vec![5210; streams.into()], Vec::new()),
        }
    }

    fn start(&mut self, side: Side) {
        let now = self.now;
        let end = self.end(side);
        end.generation += 1;
        let generation = end.generation;
        let parameters = end.plan.as_ref().unwrap().parameters.clone();
        if let Some(tcp) = parameters.tcp() {
            let sent_bytes = if let longhaul_terms::Amount::Bytes(bytes) = tcp.amount { bytes } else { 1 };
            end.sent = vec![StreamSent { sent_bytes, ..StreamSent::default() }; tcp.streams.into()];
            let after = match tcp.amount {
                longhaul_terms::Amount::DurationNs(ns) => Nanos(ns),
                _ => Nanos::from_secs(1),
            };
            return self.schedule(now + after, Event::SendingDone { from: side, generation });
        }
        let parameters = parameters.udp().unwrap().clone();
        end.sent = vec![StreamSent { first_sent_ns: now.0, ..StreamSent::default() }; parameters.streams.into()];
        let gap = parameters.spacing().expect("tests pace");
        let mut last = now;
        for stream in 0..parameters.streams {
            let packets = parameters.packets_of_stream(stream).unwrap_or_else(|| match parameters.amount {
                longhaul_terms::Amount::DurationNs(ns) => ns / gap.0,
                _ => 0,
            });
            for sequence in 0..packets {
                last = last.max(now + Nanos(gap.0 * sequence));
                let at = now + Nanos(gap.0 * sequence);
                self.schedule(at, Event::Send { from: side, generation, stream, sequence });
            }
        }
        self.schedule(last + gap, Event::SendingDone { from: side, generation });
    }

    fn report(&mut self, side: Side) -> EndReport {
        let end = self.end(side);
        let plan = end.plan.as_ref().unwrap();
        let sender = plan.sends.then(|| UdpSenderReport {
            streams: end.sent.clone(),
            evidence: Vec::new(),
            complete: true,
            ..UdpSenderReport::default()
        });
        let trackers = std::mem::take(&mut end.trackers);
        let receiver = plan.receives.then(|| {
            // A peer that is lost has not said what it sent.
            let peer_sent = end.peer_sent.clone().unwrap_or_default();
            let sent = |stream: usize| peer_sent.get(stream).map(|sent| sent.sent_packets);
            let finish = |(stream, tracker): (usize, SequenceTracker)| {
                let sent = sent(stream).unwrap_or_else(|| tracker.next_expected());
                tracker.finish(sent)
            };
            let streams = trackers.into_iter().enumerate().map(finish).collect();
            UdpReceiverReport { streams, complete: true, ..UdpReceiverReport::default() }
        });
        EndReport { udp: Some(UdpEndReport { sender, receiver }), ..EndReport::default() }
    }

    pub(crate) fn error(&mut self, side: Side) -> SessionError {
        match self.end(side).outcome.take() {
            Some(Err(error)) => error,
            other => panic!("{side:?} did not fail: {other:?}"),
        }
    }

    /// The server says what it has received.
    pub(crate) fn say_progress(&mut self) {
        let now = self.now;
        let mut progress = Progress { payload_bytes: 1, ..Progress::default() };
        for tracker in &self.end(Side::Server).trackers {
            let counts = tracker.counts();
            progress.received_packets += counts.received_packets;
            progress.missing_packets += counts.missing_packets;
            progress.elapsed_ns = tracker.first_arrival().map_or(0, |first| (now - first).0);
        }
        self.server.handle_data(now, DataEvent::Progress(progress));
    }

    /// How the client lost the server, and what it has as a result.
    pub(crate) fn cut(&mut self) -> (SessionError, Option<Directions<UdpResult>>) {
        let end = self.test_end(Side::Client);
        let result = udp::results(&end, None).map(|(result, _)| result);
        (end.cut.expect("the server was lost").error, result)
    }

    pub(crate) fn test_end(&mut self, side: Side) -> TestEnd {
        match self.end(side).outcome.take() {
            Some(Ok(end)) => end,
            other => panic!("{side:?} did not finish: {other:?}"),
        }
    }
}
