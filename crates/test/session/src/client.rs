//! The client's part of a test.

use crate::caveats;
use std::collections::BTreeSet;

use longhaul_channel::PROTOCOL;
use longhaul_result::Caveat;
use longhaul_terms::{Amount, StreamSent};
use longhaul_udp::proof::ClientProof;
use longhaul_units::Nanos;

use super::kind::{Cut, EndReport, TestEnd, TestParameters, rtt, tcp, udp};
use super::limits::{INTERRUPT_TIMEOUT, PROOF_LOOK, PROOF_RESEND, PROOF_TIMEOUT, SETUP_TIMEOUT, WAITING_TOLD};
use super::line::Line;
use super::message::{Accept, Hello, MeasurementId, Message, SessionError, caveats_of_peer};
use super::output::{DataPlan, Output};
use super::transfer::{DataEvent, Transfer, report_deadline};

/// What a client is asked to do.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The test, [valid](crate::kind::TestKind::validate).
    pub parameters: TestParameters,
    /// Random number that names the session in logs.
    pub nonce: u64,
    /// The measurement that the session is a part of: the server ends its session before.
    pub measurement: Option<MeasurementId>,
    /// Largest report that is accepted from the server, bytes.
    pub report_bytes: u64,
}

/// A client's session, from the established control channel to the reports of both ends.
#[derive(Debug)]
pub struct ClientSession {
    config: ClientConfig,
    line: Line,
    state: State,
    /// The server closed a connection over which it was to send before the test began.
    closed_before: bool,
}

#[derive(Debug)]
enum State {
    /// Hello and proposal are sent; the server must accept by this time.
    Proposed {
        deadline: Nanos,
        greeted: bool,
        /// From when on the user is told that the test waits.
        tell: Nanos,
    },
    /// The driver opens sockets.
    Opening {
        accept: Accept,
        proof: Option<ClientProof>,
        deadline: Nanos,
        /// The server saw all connections before this end's driver reported them.
        proven: bool,
    },
    Proving {
        accept: Accept,
        /// `None` for connections, which need no more messages.
        proof: Option<ClientProof>,
        resend: Nanos,
        /// When to look whether this host drops the datagrams.
        look: Nanos,
        deadline: Nanos,
    },
    Running(Box<Running>),
    Over,
}

#[derive(Debug)]
struct Running {
    accept: Accept,
    transfer: Transfer,
    local: Option<EndReport>,
    /// The received part of the server's report, and whether it is complete.
    remote: String,
    remote_whole: bool,
    deadline: Option<Nanos>,
    /// When an interrupted test ends without the server.
    interrupted: Option<Nanos>,
    /// Why the server is lost: the result is what this end knows.
    cut: Option<SessionError>,
    /// The server stopped sending before its time, or before all was sent, though nobody had told it to.
    ended_by_server: bool,
    /// Not all was sent that was asked for, for another reason: the time that the server allows.
    fell_short: Option<Nanos>,
}

/// Clocks of two hosts differ by less than this part of a time.
const CLOCKS_DIFFER: u64 = 64;

impl Running {
    /// The server, or this end, sends no more over the streams from number `first` on, which have `sent` so much.
    fn sender_ends(&mut self, now: Nanos, is_server: bool, first: u8, sent: &[StreamSent]) {
        if self.interrupted.is_some() || self.cut.is_some() {
            return;
        }
        let (kind, cap) = (self.accept.parameters.kind(), self.accept.caps.duration);
        let ran = self.transfer.running_for(now);
        let is_before = |time: Nanos| ran < Nanos(time.0 - time.0 / CLOCKS_DIFFER);
        if let Amount::DurationNs(ns) = kind.amount() {
            self.ended_by_server |= is_server && is_before(Nanos(ns));
        } else if (first..kind.streams()).zip(sent).any(|(stream, sent)| kind.is_short(stream, sent)) {
            if is_server && is_before(cap) {
                self.ended_by_server = true;
            } else {
                self.fell_short = Some(cap);
            }
        }
    }
}

impl ClientSession {
    /// A session over a control channel that was established at `now`.
    pub fn new(now: Nanos, config: ClientConfig) -> Self {
        let mut line = Line::new(now);
        let ClientConfig { nonce, measurement, .. } = config;
        let hello = Hello { version: PROTOCOL.into(), nonce, features: Vec::new(), measurement };
        line.say(now, Message::Hello(hello));
        // A test that every server knows is proposed before the server answers.
        if config.parameters.kind().needs().is_empty() {
            line.say(now, Message::Propose { parameters: config.parameters.clone() });
        }
        let deadline = now.saturating_add(SETUP_TIMEOUT);
        let state = State::Proposed { deadline, greeted: false, tell: now };
        Self { config, line, state, closed_before: false }
    }

    /// Handles a message of the server.
    pub fn handle_message(&mut self, now: Nanos, message: Message) {
        // Who was given up is not heard any more.
        let lost = matches!(&self.state, State::Running(running) if running.cut.is_some());
        if self.line.is_over() || lost {
            return;
        }
        self.line.hear(now);
        match message {
            Message::Error(error) => return self.lose(now, error.of_peer()),
            Message::Refuse(refusal) => {
                let mut error = refusal.error.of_peer();
                if let Some(after) = refusal.retry_after {
                    error.remedy = format!("try again in {:.0} s", after.as_secs_f64().ceil());
                }
                return self.lose(now, error);
            }
            message => self.dispatch(now, message),
        }
        self.finish_if_complete(now);
    }

    fn dispatch(&mut self, now: Nanos, message: Message) {
        match (&mut self.state, message) {
            (State::Proposed { greeted, .. }, Message::Hello(hello)) if !*greeted => {
                if hello.version != PROTOCOL {
                    let error = version_mismatch("server", &hello.version);
                    return self.line.fail(now, error.of_peer());
                }
                *greeted = true;
                let needed = self.config.parameters.kind().needs();
                if !needed.is_empty() {
                    self.propose_if_known(now, &needed, &hello.features);
                }
            }
            (State::Proposed { greeted: true, deadline, tell }, Message::Queued { ahead }) => {
                // The server repeats this while the client waits, so its silence still ends the session.
                *deadline = Nanos::MAX;
                if now >= *tell {
                    *tell = now.saturating_add(WAITING_TOLD);
                    self.line.push(Output::Waiting { ahead });
                }
            }
            (State::Proposed { greeted: true, .. }, Message::Accept(accept)) => self.accepted(now, accept),
            (State::Opening { .. } | State::Proving { .. } | State::Proposed { .. }, Message::Alive) => {}
            (State::Opening { proof: None, proven, .. }, Message::DataProven) => *proven = true,
            (State::Proving { .. }, Message::DataProven) => self.start(now),
            (State::Running(running), Message::Report { text, last }) if !running.remote_whole => {
                let most = self.config.report_bytes;
                if (running.remote.len() + text.len()) as u64 > most {
                    let error = format!("the server's report is larger than {most} bytes");
                    let error = SessionError::new("report_too_large", error, "shorten the test");
                    return self.fail(now, error);
                }
                running.remote.push_str(&text);
                running.remote_whole = last;
                running.deadline.get_or_insert(report_deadline(now));
            }
            (State::Running(running), message) => {
                if let Message::Finished { streams } = &message {
                    running.sender_ends(now, true, 0, streams);
                }
                if let Some(message) = running.transfer.handle_message(now, message, &mut self.line) {
                    self.unexpected(now, &message);
                }
            }
            (_, message) => self.unexpected(now, &message),
        }
    }

    /// Proposes a test that not every server knows.
    fn propose_if_known(&mut self, now: Nanos, needed: &[&str], known: &[String]) {
        let Some(missing) = needed.iter().find(|needed| !known.iter().any(|known| known == **needed)) else {
            self.line.say(now, Message::Propose { parameters: self.config.parameters.clone() });
            return;
        };
        let text = match *missing {
            kind @ (tcp::FEATURE | rtt::FEATURE) => {
                format!("the server does not support {} tests", kind.to_uppercase())
            }
            udp::RECEIVE_SETTINGS => "the server cannot change settings of its interface for a test".into(),
            udp::EACH_PACKET => "the server cannot report when each packet arrived".into(),
            other => format!("the server does not support `{other}`"),
        };
        self.fail(now, SessionError::new("unknown_test", text, "use a newer version of longhaul on the server"));
    }

    fn accepted(&mut self, now: Nanos, mut accept: Accept) {
        let (asked, granted) = (self.config.parameters.kind(), accept.parameters.kind());
        // Only the rate may differ, and only if none was requested.
        let capped = match (asked.rate(), granted.rate()) {
            (None, Some((_, rate))) if asked.at_rate(rate) == accept.parameters => Some(rate),
            _ => None,
        };
        let as_asked = capped.is_some() || self.config.parameters == accept.parameters;
        if !as_asked || granted.validate().is_err() || accept.data_ports.len() != granted.data_ports() {
            let error = "the server granted a different test than the client proposed";
            return self
                .fail(now, SessionError::new("protocol", error, "use the same version of longhaul at both ends"));
        }
        accept.caveats = caveats_of_peer(accept.caveats);
        if let Some(rate) = capped {
            let text = format!("the server limits each stream to {rate}");
            accept.caveats.push(Caveat::new(caveats::RATE_CAPPED, text, "raise the server's cap on the rate"));
        }
        let kind = accept.parameters.kind();
        let (direction, proof) = (kind.direction(), kind.client_proof(accept.session_cookie(), accept.token));
        self.line.push(Output::OpenData(DataPlan {
            parameters: accept.parameters.clone(),
            cookie: accept.session_cookie(),
            tcp_cookie: accept.tcp_cookie(),
            server_ports: accept.data_ports.clone(),
            sends: direction.client_sends(),
            receives: direction.server_sends(),
        }));
        self.state = State::Opening { accept, proof, deadline: now.saturating_add(SETUP_TIMEOUT), proven: false };
    }

    /// The data sockets are open, after [`Output::OpenData`].
    pub fn handle_data_opened(&mut self, now: Nanos) {
        if let State::Opening { accept, proof, proven, .. } = &self.state {
            let (accept, proof, proven) = (accept.clone(), proof.clone(), *proven);
            let deadline = now.saturating_add(PROOF_TIMEOUT);
            let look = now.saturating_add(PROOF_LOOK);
            self.state = State::Proving { accept, proof, resend: now, look, deadline };
            if proven {
                self.start(now);
            } else {
                self.handle_timeout(now);
            }
        }
    }

    /// The data sockets could not be opened.
    pub fn handle_data_failed(&mut self, now: Nanos, error: SessionError) {
        self.fail(now, error);
    }

    /// A datagram arrived on a stream before `StartSending`, or one with a sequence from
    /// [`FIRST_RESERVED`](longhaul_wire::probe::FIRST_RESERVED) on.
    pub fn handle_data_probe(&mut self, _now: Nanos, stream: u8, bytes: &[u8]) {
        if let State::Proving { proof: Some(proof), .. } = &self.state
            && let Some((bytes, copies)) = proof.handle(stream, bytes)
        {
            for _ in 0..copies {
                self.line.push(Output::SendProbe { stream, to: None, bytes });
            }
        }
    }

    /// This host dropped datagrams of the proof, after [`Output::LookForDrops`]: `dropped` says where.
    pub fn handle_data_blocked(&mut self, now: Nanos, dropped: &str) {
        if let State::Proving { .. } = self.state {
            self.fail(now, blocked_at("client", dropped));
        }
    }

    fn start(&mut self, now: Nanos) {
        let State::Proving { accept, .. } = std::mem::replace(&mut self.state, State::Over) else { return };
        let kind = accept.parameters.kind();
        let (sends, receives) = (kind.direction().client_sends(), kind.direction().server_sends());
        self.line.say(now, Message::Start);
        if sends {
            self.line.push(Output::StartSending { to: Vec::new() });
        }
        let transfer = Transfer::new(now, sends, receives, kind, accept.caps.stop_after(kind.amount()), Nanos::MAX);
        let (remote, remote_whole, deadline) = (String::new(), false, None);
        self.state = State::Running(Box::new(Running {
            accept,
            transfer,
            local: None,
            remote,
            remote_whole,
            deadline,
            interrupted: None,
            cut: None,
            ended_by_server: self.closed_before,
            fell_short: None,
        }));
    }

    /// Something happened to the data of the test.
    pub fn handle_data(&mut self, now: Nanos, event: DataEvent) {
        self.closed_before |= matches!((&event, &self.state), (DataEvent::StreamEnded { .. }, State::Proving { .. }));
        self.running(|running, line| {
            match &event {
                DataEvent::Sent(streams) => running.sender_ends(now, false, 0, streams),
                DataEvent::StreamEnded { stream, bytes } => {
                    // What a connection brought to its end is all that was sent over it.
                    let sent = StreamSent { sent_bytes: *bytes, ..StreamSent::default() };
                    running.sender_ends(now, true, *stream, &[sent]);
                }
                _ => {}
            }
            running.transfer.handle_data(now, event, line);
        });
    }

    /// The report of this end, after `CollectReport`.
    pub fn handle_report(&mut self, now: Nanos, report: EndReport) {
        self.running(|running, _| {
            if running.transfer.is_over() {
                running.local = Some(report);
                running.deadline.get_or_insert(report_deadline(now));
            }
        });
        self.finish_if_complete(now);
    }

    /// The user wants to stop: the result covers what was measured so far. A server that does not end within [`INTERRUPT_TIMEOUT`] is lost.
    pub fn handle_interrupt(&mut self, now: Nanos) {
        if self.line.is_over() {
            return;
        }
        match &mut self.state {
            State::Running(running) => {
                running.interrupted.get_or_insert(now.saturating_add(INTERRUPT_TIMEOUT));
                self.line.say(now, Message::Stop);
                running.transfer.stop(now, &mut self.line);
            }
            _ => self.fail(now, SessionError::new("interrupted", "interrupted before the test began", "")),
        }
    }

    /// The control connection is closed, or its data was invalid; `error` says which.
    pub fn handle_connection_lost(&mut self, now: Nanos, error: SessionError) {
        self.lose(now, error);
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.line.is_over() {
            return;
        }
        match &mut self.state {
            State::Proposed { deadline, .. } | State::Opening { deadline, .. } if now >= *deadline => {
                let text = format!("the server did not accept the test within {SETUP_TIMEOUT}");
                return self.fail(now, SessionError::new("setup_timeout", text, "check the load of the server"));
            }
            State::Proving { accept, proof, deadline, .. } if now >= *deadline => {
                // Streams may share a port.
                let numbers: BTreeSet<u16> = accept.data_ports.iter().copied().collect();
                let numbers = numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
                let (lacks, ports) = match proof {
                    Some(_) => ("no datagram came back from", format!("UDP port {numbers}")),
                    None => ("the server did not see the connections to", format!("TCP port {numbers}")),
                };
                let text = format!("the control connection works, but {lacks} {ports} within {PROOF_TIMEOUT}");
                let remedy = format!("open {ports} of the server in the firewalls of both hosts and between them");
                return self.fail(now, SessionError::new("data_path_blocked", text, remedy));
            }
            State::Proving { proof, resend, look, .. } if now >= *resend => {
                *resend = now.saturating_add(PROOF_RESEND);
                for (stream, bytes) in proof.iter_mut().flat_map(ClientProof::hellos) {
                    self.line.push(Output::SendProbe { stream, to: None, bytes });
                }
                if now >= *look && proof.is_some() {
                    *look = now.saturating_add(PROOF_LOOK);
                    self.line.push(Output::LookForDrops);
                }
            }
            State::Running(running) => {
                if running.cut.is_none() && running.interrupted.is_some_and(|end| now >= end) {
                    let text = format!("the server did not end the test within {INTERRUPT_TIMEOUT} of the interrupt");
                    return self.lose(now, SessionError::new("overrun", text, "see what the server says"));
                }
                if running.cut.is_none() && running.deadline.is_some_and(|deadline| now >= deadline) {
                    let error =
                        SessionError::new("report_timeout", "the server's report did not arrive in time", "try again");
                    return self.fail(now, error);
                }
                running.transfer.handle_timeout(now, &mut self.line);
            }
            _ => {}
        }
        if !self.line.is_over()
            && let Err(error) = self.line.handle_timeout(now)
        {
            self.line.say(now, Message::Error(error.clone()));
            self.lose(now, error);
        }
        self.clean_up();
    }

    /// The next instruction.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.line.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` when the session is over.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let own = match &self.state {
            State::Proposed { deadline, .. } | State::Opening { deadline, .. } => *deadline,
            State::Proving { resend, deadline, .. } => (*resend).min(*deadline),
            State::Running(running) => {
                let deadlines = [running.deadline, running.interrupted].into_iter().flatten();
                let deadline = deadlines.filter(|_| running.cut.is_none()).min();
                running.transfer.poll_timeout().min(deadline.unwrap_or(Nanos::MAX))
            }
            State::Over => Nanos::MAX,
        };
        (!self.line.is_over()).then(|| own.min(self.line.poll_timeout()))
    }

    /// Whether the session is over. [`poll_output`](Self::poll_output) can still have instructions.
    pub fn is_over(&self) -> bool {
        self.line.is_over()
    }

    fn running(&mut self, then: impl FnOnce(&mut Running, &mut Line)) {
        if let State::Running(running) = &mut self.state
            && !self.line.is_over()
        {
            then(running, &mut self.line);
        }
    }

    fn finish_if_complete(&mut self, now: Nanos) {
        let State::Running(running) = &mut self.state else { return };
        if self.line.is_over() {
            return;
        }
        if running.cut.is_some() {
            return self.finish_cut();
        }
        let (ended_by_server, fell_short) = (running.ended_by_server, running.fell_short);
        let Running { accept, transfer, local: Some(local), remote, remote_whole: true, .. } = &mut **running else {
            return;
        };
        match serde_json::from_str::<EndReport>(remote) {
            Ok(mut remote) => {
                remote.caveats = caveats_of_peer(remote.caveats);
                let end = TestEnd {
                    parameters: accept.parameters.clone(),
                    local: std::mem::take(local),
                    remote: Some(remote),
                    caveats: std::mem::take(&mut accept.caveats),
                    cut: None,
                    stopped_by_server: transfer.is_stopped_by_peer(),
                    ended_by_server,
                    fell_short,
                };
                self.line.say(now, Message::Goodbye);
                self.line.push(Output::Finished(Box::new(end)));
                self.line.end();
                self.state = State::Over;
            }
            Err(error) => {
                let error = SessionError::new("protocol", format!("the server's report cannot be read: {error}"), "");
                self.fail(now, error.of_peer());
            }
        }
    }

    /// The server is lost: there is a result as soon as this end has reported.
    fn finish_cut(&mut self) {
        let State::Running(running) = &mut self.state else { return };
        let (ended_by_server, fell_short) = (running.ended_by_server, running.fell_short);
        let Running { accept, local: Some(local), cut: Some(error), transfer, .. } = &mut **running else { return };
        let end = TestEnd {
            parameters: accept.parameters.clone(),
            local: std::mem::take(local),
            remote: None,
            caveats: std::mem::take(&mut accept.caveats),
            cut: Some(Cut { error: error.clone(), heard: transfer.heard() }),
            stopped_by_server: transfer.is_stopped_by_peer(),
            ended_by_server,
            fell_short,
        };
        self.line.push(Output::Finished(Box::new(end)));
        self.line.end();
        self.state = State::Over;
    }

    fn unexpected(&mut self, now: Nanos, message: &Message) {
        self.line.unexpected(now, message);
        self.clean_up();
    }

    fn fail(&mut self, now: Nanos, error: SessionError) {
        if !self.line.is_over() {
            self.line.fail(now, error);
            self.clean_up();
        }
    }

    /// The server is lost. Of a test that runs there is a result: what this end measured.
    fn lose(&mut self, now: Nanos, error: SessionError) {
        if self.line.is_over() {
            return;
        }
        let State::Running(running) = &mut self.state else {
            self.line.fail_silently(error);
            return self.clean_up();
        };
        if running.cut.is_none() {
            running.cut = Some(error);
            self.line.cut();
            running.transfer.cut(now, &mut self.line);
        }
        self.finish_cut();
    }

    /// Nothing follows an end.
    fn clean_up(&mut self) {
        if self.line.is_over() {
            self.state = State::Over;
        }
    }
}

/// The error for an end that speaks another version.
pub(super) fn version_mismatch(who: &str, version: &str) -> SessionError {
    SessionError::new(
        "version_mismatch",
        format!("the {who} speaks {version}, but this end speaks {PROTOCOL}"),
        "use the same version of longhaul at both ends",
    )
}

/// The error for a proof whose datagrams the host of `end` dropped.
pub(super) fn blocked_at(end: &str, dropped: &str) -> SessionError {
    let text = format!("the {end}'s host does not let the test's datagrams pass: {dropped}");
    SessionError::new("data_path_blocked", text, format!("let them pass in the {end}'s firewall (nft list ruleset)"))
}
