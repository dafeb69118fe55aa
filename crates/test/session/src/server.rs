//! The server's part of a test.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use longhaul_channel::PROTOCOL;
use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_units::{Bytes, Nanos};

use super::admission::Verdict;
use super::client::{blocked_at, version_mismatch};
use super::error::TOO_LONG;
use super::kind::{EndReport, FEATURES, Proof, TestEnd, TestParameters};
use super::limits::{
    ALIVE_INTERVAL, BESIDE_DATA, CHUNK_CHARS, Caps, END_TIMEOUT, GOODBYE_TIMEOUT, PROOF_LOOK, PROOF_TIMEOUT,
    QUEUED_AFTER, SETUP_TIMEOUT, reading_time,
};
use super::line::Line;
use super::message::{Accept, Hello, MeasurementId, Message, Refusal, SessionError};
use super::output::{DataPlan, Output};
use super::randomness::Randomness;
use super::transfer::{DataEvent, Transfer, report_deadline};

/// What a server grants, and to which client.
#[derive(Debug, Clone, Copy)]
pub struct ServerConfig {
    /// The client's address on the control connection. Test data is sent to this address only.
    pub peer: IpAddr,
    /// The server's caps.
    pub caps: Caps,
}

/// A server's session with one client. It begins when the control channel is established.
#[derive(Debug)]
pub struct ServerSession {
    config: ServerConfig,
    random: Randomness,
    measurement: Option<MeasurementId>,
    line: Line,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Waits for the client's hello, then for its proposal.
    Setup {
        greeted: bool,
        deadline: Nanos,
    },
    /// Waits for admission.
    Waiting {
        granted: TestParameters,
        ahead: Option<u32>,
        /// Whether the client was told of tests before.
        told: bool,
        remind: Nanos,
    },
    /// The driver opens sockets.
    Opening {
        granted: TestParameters,
        deadline: Nanos,
    },
    /// Waits for the proof, then for the client to start.
    Proving {
        granted: TestParameters,
        proof: Proof,
        to: Option<Vec<SocketAddr>>,
        /// When to look whether this host drops the datagrams.
        look: Nanos,
        deadline: Nanos,
    },
    Running {
        granted: TestParameters,
        transfer: Transfer,
        deadline: Option<Nanos>,
    },
    /// Sends the report in pieces; then waits for the client's goodbye.
    Reporting {
        end: Box<TestEnd>,
        text: String,
        sent: usize,
        deadline: Nanos,
    },
    Over,
}

/// A text that is no longer than allowed.
struct Text {
    bytes: Vec<u8>,
    most: u64,
}

impl Write for Text {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + more.len()) as u64 > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The report as JSON; `None` where that is longer than `most`, which is noticed while it is made.
fn text_within(report: &EndReport, most: Bytes) -> Option<String> {
    let mut text = Text { bytes: Vec::new(), most: most.0 };
    serde_json::to_writer(&mut text, report).ok()?;
    String::from_utf8(text.bytes).ok()
}

impl ServerSession {
    /// A session over a connection that was accepted at `now`. Its setup time begins here, before any authentication.
    pub fn new(now: Nanos, config: ServerConfig, random: Randomness) -> Self {
        let state = State::Setup { greeted: false, deadline: now.saturating_add(SETUP_TIMEOUT) };
        Self { config, random, measurement: None, line: Line::new(now), state }
    }

    /// Handles a message of the client.
    pub fn handle_message(&mut self, now: Nanos, message: Message) {
        if self.line.is_over() {
            return;
        }
        self.line.hear(now);
        match (&mut self.state, message) {
            (_, Message::Error(error)) => return self.handle_connection_lost(error.of_peer()),
            (State::Setup { greeted, .. }, Message::Hello(hello)) if !*greeted => {
                *greeted = true;
                self.measurement = hello.measurement;
                let (version, nonce) = (PROTOCOL.into(), self.random.nonce());
                let features = FEATURES.map(Into::into).into();
                self.line.say(now, Message::Hello(Hello { version, nonce, features, measurement: None }));
                if hello.version != PROTOCOL {
                    let error = version_mismatch("client", &hello.version).of_peer();
                    self.refuse(now, Refusal { error, retry_after: None });
                }
            }
            (State::Setup { greeted: true, .. }, Message::Propose { parameters }) => self.proposed(now, parameters),
            (State::Proving { to: Some(_), .. }, Message::Start) => self.start(now),
            (State::Running { transfer, .. }, message) => {
                if let Some(message) = transfer.handle_message(now, message, &mut self.line) {
                    self.line.unexpected(now, &message);
                }
            }
            (State::Reporting { end, text, sent, .. }, Message::Goodbye) if *sent == text.len() => {
                let end = std::mem::take(end);
                self.line.push(Output::Finished(end));
                self.line.end();
            }
            (State::Reporting { .. }, Message::Stop) | (_, Message::Alive) => {}
            (_, message) => self.line.unexpected(now, &message),
        }
        self.clean_up();
    }

    /// The measurement that the client says this session is a part of.
    pub fn measurement(&self) -> Option<MeasurementId> {
        self.measurement
    }

    /// The client goes on in another session: it has left this one, and does not hear why it ends.
    pub fn handle_taken_over(&mut self) {
        self.handle_connection_lost(SessionError::new("taken_over", "the client went on in another session", ""));
    }

    fn proposed(&mut self, now: Nanos, parameters: TestParameters) {
        match parameters.grant(&self.config.caps) {
            Ok(granted) => {
                let longest = self.config.caps.sending_time(granted.kind().amount()).saturating_add(BESIDE_DATA);
                self.state =
                    State::Waiting { granted, ahead: None, told: false, remind: now.saturating_add(QUEUED_AFTER) };
                self.line.push(Output::RequestAdmission { longest });
            }
            Err(error) => {
                let code = if error.field == "duration_ns" { TOO_LONG } else { "not_granted" };
                let error = SessionError::new(code, error.to_string(), format!("change `{}`", error.field));
                self.refuse(now, Refusal { error: error.of_peer(), retry_after: None });
            }
        }
    }

    /// Handles the verdict after [`Output::RequestAdmission`], and every later change of it.
    pub fn handle_admission(&mut self, now: Nanos, verdict: Verdict) {
        let State::Waiting { granted, ahead, told, remind } = &mut self.state else { return };
        match verdict {
            Verdict::Run => {
                let parameters = std::mem::take(granted);
                let direction = parameters.kind().direction();
                self.line.push(Output::OpenData(DataPlan {
                    parameters: parameters.clone(),
                    cookie: self.random.cookie(),
                    tcp_cookie: self.random.tcp_cookie(),
                    server_ports: Vec::new(),
                    sends: direction.server_sends(),
                    receives: direction.client_sends(),
                }));
                self.state = State::Opening { granted: parameters, deadline: now.saturating_add(SETUP_TIMEOUT) };
            }
            // Others come and go behind it.
            Verdict::Wait { ahead: before } if *ahead == Some(before) => {}
            Verdict::Wait { ahead: before } => {
                *ahead = Some(before);
                if *told {
                    *remind = now.saturating_add(ALIVE_INTERVAL);
                    self.line.say(now, Message::Queued { ahead: before });
                }
            }
            Verdict::Busy { retry_after } => {
                let error = SessionError::new("busy", "the server is running another test", "try again later");
                self.refuse(now, Refusal { error, retry_after: Some(retry_after) });
            }
        }
    }

    /// The data sockets are open on these ports, after [`Output::OpenData`]: one port for each stream; they can be equal.
    pub fn handle_data_opened(&mut self, now: Nanos, data_ports: Vec<u16>, caveats: Vec<Caveat>) {
        let State::Opening { granted, .. } = &mut self.state else { return };
        let granted = std::mem::take(granted);
        let proof = granted.kind().server_proof(self.config.peer, &self.random);
        let (token_high, token) = self.random.token();
        self.line.say(
            now,
            Message::Accept(Accept {
                parameters: granted.clone(),
                data_ports,
                cookie: self.random.cookie().0,
                token,
                token_high,
                caps: self.config.caps,
                caveats,
            }),
        );
        // The client opens its own sockets first.
        let deadline = now.saturating_add(SETUP_TIMEOUT).saturating_add(PROOF_TIMEOUT);
        let look = now.saturating_add(PROOF_LOOK);
        self.state = State::Proving { granted, proof, to: None, look, deadline };
    }

    /// The data sockets could not be opened.
    pub fn handle_data_failed(&mut self, now: Nanos, error: SessionError) {
        if let State::Opening { .. } = self.state {
            self.refuse(now, Refusal { error, retry_after: None });
        }
    }

    /// A datagram arrived before `StartSending`, or one with a sequence from
    /// [`FIRST_RESERVED`](longhaul_wire::probe::FIRST_RESERVED) on.
    pub fn handle_data_probe(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) {
        let State::Proving { granted, proof: Proof::Datagrams(proof), to, .. } = &mut self.state else { return };
        if let Some((stream, bytes)) = proof.handle(from, bytes) {
            self.line.push(Output::SendProbe { stream, to: Some(from), bytes });
        }
        if to.is_none()
            && let Some(addresses) = proof.addresses()
        {
            self.line.push(Output::Proven { to: addresses.clone() });
            if granted.kind().answers() {
                // The client's first datagram may arrive before its `Start`.
                self.line.push(Output::StartSending { to: addresses.clone() });
            }
            *to = Some(addresses);
            self.line.say(now, Message::DataProven);
        }
    }

    /// This host dropped datagrams of the proof, after [`Output::LookForDrops`]: `dropped` says where.
    pub fn handle_data_blocked(&mut self, now: Nanos, dropped: &str) {
        if let State::Proving { to: None, .. } = self.state {
            self.line.fail(now, blocked_at("server", dropped));
            self.clean_up();
        }
    }

    /// A data connection came from `from` and began with `bytes`. Returns its stream; `None` if it must be closed.
    pub fn handle_data_hello(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> Option<TcpStreamId> {
        let State::Proving { proof: Proof::Connections(proof), to, .. } = &mut self.state else { return None };
        let id = proof.handle(from.ip(), bytes)?;
        if to.is_none() && proof.is_complete() {
            *to = Some(Vec::new());
            self.line.say(now, Message::DataProven);
        }
        Some(id)
    }

    fn start(&mut self, now: Nanos) {
        let State::Proving { granted, to: Some(to), .. } = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let kind = granted.kind();
        let (sends, receives) = (kind.direction().server_sends(), kind.direction().client_sends());
        if sends {
            self.line.push(Output::StartSending { to });
        }
        let caps = &self.config.caps;
        let over_by = now.saturating_add(caps.sending_time(kind.amount())).saturating_add(END_TIMEOUT);
        let transfer = Transfer::new(now, sends, receives, kind, caps.stop_after(kind.amount()), over_by);
        self.state = State::Running { granted, transfer, deadline: None };
    }

    /// Something happened to the data of the test.
    pub fn handle_data(&mut self, now: Nanos, event: DataEvent) {
        self.running(|transfer, line| transfer.handle_data(now, event, line));
    }

    /// The report of this end, after `CollectReport`.
    pub fn handle_report(&mut self, now: Nanos, report: EndReport) {
        let State::Running { granted, transfer, .. } = &mut self.state else { return };
        if !transfer.is_over() {
            return;
        }
        let (most, over_by) = (self.config.caps.report, transfer.over_by());
        match text_within(&report, most) {
            Some(text) => {
                let parameters = std::mem::take(granted);
                let end = TestEnd { parameters, local: report, ..TestEnd::default() };
                // The time that this end took for its report is not the client's.
                let deadline = over_by.max(now.saturating_add(GOODBYE_TIMEOUT));
                let deadline = deadline.saturating_add(reading_time(text.len()));
                self.state = State::Reporting { end: Box::new(end), text, sent: 0, deadline };
            }
            None => {
                let error = format!("the report of this test is larger than the {most} that this server sends");
                let error = SessionError::new("report_too_large", error, "shorten the test, or raise the server's cap");
                self.line.fail(now, error);
                self.clean_up();
            }
        }
    }

    /// More arrives than this server allows: the client does not keep the rate that it was granted.
    pub fn handle_rate_passed(&mut self, now: Nanos) {
        // Before the test begins the data part is open, too.
        if let State::Running { .. } | State::Proving { .. } = self.state {
            let error = "more than twice the rate that this server allows arrived";
            self.line.fail(now, SessionError::new("rate_passed", error, "send at the rate that was granted"));
            self.clean_up();
        }
    }

    /// The server is shutting down.
    pub fn handle_shutdown(&mut self, now: Nanos) {
        if !self.line.is_over() {
            self.line.fail(now, SessionError::new("shutdown", "the server is shutting down", "try again later"));
            self.clean_up();
        }
    }

    /// The control connection is closed, or its data was invalid; `error` says which.
    pub fn handle_connection_lost(&mut self, error: SessionError) {
        if !self.line.is_over() {
            self.line.fail_silently(error);
            self.clean_up();
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.line.is_over() {
            return;
        }
        let late = |code: &str, text: &str| SessionError::new(code, text, "check the path between the hosts");
        match &mut self.state {
            State::Setup { deadline, .. } | State::Opening { deadline, .. } if now >= *deadline => {
                self.line.fail(now, late("setup_timeout", "the test was not set up within the time limit"));
            }
            State::Proving { to, deadline, .. } if now >= *deadline => {
                self.line.fail(
                    now,
                    match to {
                        None => late("data_path_blocked", "nothing arrived on the data path within the time limit"),
                        Some(_) => late("setup_timeout", "the client did not start the test within the time limit"),
                    },
                );
            }
            State::Proving { to: None, look, .. } if now >= *look => {
                *look = now.saturating_add(PROOF_LOOK);
                self.line.push(Output::LookForDrops);
            }
            State::Waiting { ahead, told, remind, .. } if now >= *remind => {
                *remind = now.saturating_add(ALIVE_INTERVAL);
                if let Some(ahead) = *ahead {
                    *told = true;
                    self.line.say(now, Message::Queued { ahead });
                }
            }
            State::Running { transfer, deadline, .. } => {
                if transfer.is_over() {
                    let deadline = *deadline.get_or_insert(report_deadline(now));
                    if now >= deadline {
                        self.line
                            .fail(now, late("report_timeout", "this end's report was not ready within the time limit"));
                    }
                }
                transfer.handle_timeout(now, &mut self.line);
            }
            State::Reporting { deadline, .. } if now >= *deadline => {
                self.line.fail(now, late("report_timeout", "the client did not read the report within the time limit"));
            }
            _ => {}
        }
        if !self.line.is_over()
            && let Err(error) = self.line.handle_timeout(now)
        {
            self.line.fail(now, error);
        }
        self.clean_up();
    }

    /// The next instruction. A report is sent in pieces: take the next one only when the previous one is written, so that a client
    /// that does not read costs the memory of one piece.
    pub fn poll_output(&mut self, now: Nanos) -> Option<Output> {
        if let Some(output) = self.line.pop() {
            return Some(output);
        }
        let State::Reporting { text, sent, .. } = &mut self.state else { return None };
        if *sent == text.len() {
            return None;
        }
        let mut end = text.len().min(*sent + CHUNK_CHARS);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let piece = text[*sent..end].to_owned();
        *sent = end;
        let last = end == text.len();
        self.line.say(now, Message::Report { text: piece, last });
        self.line.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` when the session is over.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let own = match &self.state {
            State::Setup { deadline, .. }
            | State::Opening { deadline, .. }
            | State::Proving { to: Some(_), deadline, .. }
            | State::Reporting { deadline, .. } => *deadline,
            State::Proving { to: None, look, deadline, .. } => (*look).min(*deadline),
            State::Waiting { remind, .. } => *remind,
            State::Running { transfer, deadline, .. } => transfer.poll_timeout().min(deadline.unwrap_or(Nanos::MAX)),
            State::Over => Nanos::MAX,
        };
        (!self.line.is_over()).then(|| own.min(self.line.poll_timeout()))
    }

    /// Whether the session is over. [`poll_output`](Self::poll_output) can still have instructions.
    pub fn is_over(&self) -> bool {
        self.line.is_over()
    }

    fn running(&mut self, then: impl FnOnce(&mut Transfer, &mut Line)) {
        if let State::Running { transfer, .. } = &mut self.state
            && !self.line.is_over()
        {
            then(transfer, &mut self.line);
        }
    }

    /// Ends the session before it has a test.
    fn refuse(&mut self, now: Nanos, refusal: Refusal) {
        self.line.say(now, Message::Refuse(refusal.clone()));
        self.line.fail_silently(refusal.error);
        self.clean_up();
    }

    /// Nothing follows an end.
    fn clean_up(&mut self) {
        if self.line.is_over() {
            self.state = State::Over;
        }
    }
}
