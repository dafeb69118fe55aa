//! A capture's link to one logging host: its control connection, and the socket that datagrams leave by.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::udp::{SenderOptions, UdpSendError, UdpSender, Unsent};
use longhaul_session::control::limits::ALIVE_INTERVAL;
use longhaul_session::control::{Message, SessionError};
use longhaul_session::secure::{
    Channel, DATAGRAM_OVERHEAD_BYTES, DatagramKeys, DatagramOffer, Key, Side, TOKEN_BYTES, decode_secret, encode_secret,
};
use longhaul_trace::ledger::{Gap, Ledger, Place};
use longhaul_trace::log_link::{FIRST_PROBE, LinkMessage, LinkProgress, LinkSender, Open, PAYLOAD_HEADER_BYTES_MOST};
use longhaul_trace::spool::{Meta, PacketBlock};
use longhaul_units::Nanos;

use crate::client::connect;
use crate::driver::{Control, Event, events, interrupted, random};

/// Longest datagram where the path's MTU would allow more: what jumbo frames of 9000 bytes carry, over IPv4.
const DATAGRAM_BYTES_MOST: usize = 8972;
/// What passes everywhere: IPv6's least MTU (RFC 8200 §5) without its headers.
const DATAGRAM_BYTES_SURE: usize = 1280 - 48;
/// Shortest that is of use.
pub const DATAGRAM_BYTES_LEAST: usize = 576;
/// Longest that the user may ask for: a Noise message in a datagram of IPv4.
pub const DATAGRAM_BYTES_LONGEST: usize = 65_000;
/// A logging host answers within this.
const ANSWER_PATIENCE: Nanos = Nanos::from_secs(10);
/// Datagrams come through within this, or not at all: twenty tries.
const PROOF_PATIENCE: Nanos = Nanos::from_secs(5);
/// Between tries.
const PROOF_RESEND: Nanos = Nanos::from_millis(250);
/// How much longer one waits for long datagrams where short ones came through.
const LONGER_PATIENCE: Nanos = Nanos::from_secs(2);
/// A logging host says twice a second how far it is. One that says nothing for so long is gone; an outage of 5 s is none.
const SILENCE: Nanos = Nanos::from_secs(10);
/// A control connection that does not take a message of some hundred bytes for so long is dead. Heads wait meanwhile.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(2);
/// After the last word the files are closed within this: the tail is waited for, then the disk.
const CLOSE_PATIENCE: Nanos = Nanos::from_secs(15);
/// How often a signal is looked for while one waits.
const SIGNAL_LOOK: Nanos = Nanos::from_millis(100);
/// What waits in the kernel for the link.
const SEND_BUFFER_BYTES: usize = 4 << 20;

const START: &str = "start `longhaul log` there, and open its port in the firewalls, TCP and UDP";

/// A logging host.
#[derive(Debug, Clone)]
pub struct LogTarget {
    /// As the user names it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The key that both share; `None` for `--no-auth`.
    pub key: Option<Key>,
}

/// Where heads go besides, or instead of, files.
#[derive(Debug, Clone, Default)]
pub struct LogTargets {
    /// The logging hosts, which take turns.
    pub targets: Vec<LogTarget>,
    /// Longest datagram that was asked for, bytes of UDP payload; `None` for what the path's MTU allows, up to 8972.
    pub datagram_bytes: Option<usize>,
    /// A signal ends connecting.
    pub stop: Option<Stop>,
}

/// Bytes of a datagram of `datagram_bytes` that are left for heads and their fields.
pub fn room_for_heads(datagram_bytes: usize) -> usize {
    datagram_bytes.saturating_sub(DATAGRAM_OVERHEAD_BYTES + PAYLOAD_HEADER_BYTES_MOST)
}

/// What came of a link.
#[derive(Debug, Clone)]
pub struct LinkEnd {
    /// As the user names the logging host.
    pub name: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Longest datagram.
    pub datagram_bytes: usize,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Heads in them.
    pub packets: u64,
    /// Datagrams that this host's kernel did not take.
    pub refused_datagrams: u64,
    /// What the logging host said last.
    pub progress: LinkProgress,
    /// The account of those heads: `packets = written + dropped`.
    pub ledger: Ledger,
    /// Why it ended before the capture did.
    pub error: Option<SessionError>,
}

/// A link that is, or was, up.
#[derive(Debug)]
pub(super) struct LogLink {
    name: String,
    control: Wire,
    socket: UdpSender,
    keys: DatagramKeys,
    session: u32,
    datagram_bytes: usize,
    numbers: LinkSender,
    started_ns: i64,
    progress: LinkProgress,
    said: Nanos,
    heard: Nanos,
    refused_datagrams: u64,
    closed: Option<Ledger>,
    error: Option<SessionError>,
    /// That was said.
    noticed: bool,
    /// The way there takes no super-packets.
    singly: bool,
    payload: Vec<u8>,
    datagram: Vec<u8>,
    /// Datagrams that go together, all but the last of full length.
    batch: Vec<u8>,
}

/// The control connection with what it needs to be read.
struct Wire {
    control: Control,
    events: Receiver<Event>,
    stop: Option<Stop>,
    /// So many signals end waiting: the first while it is made; later that one ends the capture, and the second this.
    signals: u32,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire(…)")
    }
}

impl Wire {
    fn say(&mut self, message: &LinkMessage) -> Result<(), SessionError> {
        // Our own types serialize.
        self.send(&Message::LogLink { text: serde_json::to_string(message).expect("plain data") })
    }

    fn send(&mut self, message: &Message) -> Result<(), SessionError> {
        self.control
            .channel
            .send(message)
            .map_err(|error| SessionError::new("protocol", error.to_string(), "report this as an error of longhaul"))?;
        self.control.transmit().map_err(|error| lost(&error.to_string()))
    }

    /// Deals with an event; messages then wait in the channel.
    fn take(&mut self, event: Event) -> Result<(), SessionError> {
        match event {
            Event::Control(bytes) => self
                .control
                .handle_bytes(&bytes)
                .map_err(|error| SessionError::new(error.code(), error.to_string(), error.remedy())),
            Event::ControlLost(why) => Err(lost(&why)),
            Event::Interrupt | Event::Abort => Err(interrupted()),
            _ => Ok(()),
        }
    }

    /// The next message that is there; `None` where none is.
    fn poll(&mut self) -> Result<Option<LinkMessage>, SessionError> {
        loop {
            match self.control.channel.poll_message() {
                None => return Ok(None),
                Some(Message::LogLink { text }) => {
                    let message = serde_json::from_str(&text).map_err(|_| not_understood())?;
                    return Ok(Some(message));
                }
                Some(Message::Error(error)) => return Err(error.of_peer()),
                Some(Message::Refuse(refusal)) => return Err(refusal.error.of_peer()),
                Some(Message::Alive) => {}
                Some(_) => return Err(not_understood()),
            }
        }
    }

    /// The next message, by `deadline`; `None` where none came.
    fn wait(&mut self, deadline: Nanos) -> Result<Option<LinkMessage>, SessionError> {
        loop {
            if let Some(message) = self.poll()? {
                return Ok(Some(message));
            }
            if self.stop.is_some_and(|stop| stop.count() >= self.signals) {
                return Err(interrupted());
            }
            let left = deadline.saturating_sub(monotonic());
            match self.events.recv_timeout(left.min(SIGNAL_LOOK).into()) {
                Ok(event) => self.take(event)?,
                Err(_) if left > SIGNAL_LOOK => {}
                Err(_) => return Ok(None),
            }
        }
    }
}

fn lost(why: &str) -> SessionError {
    SessionError::new("control_lost", format!("the connection was lost: {why}"), "does `longhaul log` still run there?")
}

fn not_understood() -> SessionError {
    SessionError::new("protocol", "what it says is not of a logging host", START)
}

fn no_answer() -> SessionError {
    SessionError::new("no_answer", "it does not answer", START)
}

impl LogLink {
    /// Connects, tells what the capture is, and finds out how long datagrams may be that come through.
    ///
    /// # Errors
    /// Why there is no link, with what to do.
    pub(super) fn open(target: &LogTarget, meta: &Meta, logging: &LogTargets) -> Result<Self, SessionError> {
        let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
        let stream = connect(target.address, logging.stop, START)?;
        let peer = stream.peer_addr().map_err(io)?;
        let channel = match &target.key {
            Some(key) => Channel::keyed(Side::Client, key, random()?),
            None => Channel::plain(Side::Client),
        };
        let (sender, events) = events();
        let mut control = Control::new(stream, channel, &sender).map_err(io)?;
        control.establish(&events)?;
        control.patience = WRITE_PATIENCE;
        let mut wire = Wire { control, events, stop: logging.stop, signals: 1 };

        let offer =
            target.key.as_ref().map(|key| random().map(|random| DatagramOffer::new(key, random))).transpose()?;
        let (offer, message) = offer.unzip();
        let open = Open { meta: meta.clone(), offer: message.as_deref().map(encode_secret) };
        wire.say(&LinkMessage::Open(Box::new(open)))?;
        let accepted = wire.wait(monotonic() + ANSWER_PATIENCE)?.ok_or_else(no_answer)?;
        let LinkMessage::Accept { session, port, secret } = accepted else { return Err(not_understood()) };
        let secret = decode_secret(&secret).ok_or_else(not_understood)?;
        let keys = match offer {
            Some(offer) => offer
                .accept(&secret)
                .map_err(|error| SessionError::new(error.code(), error.to_string(), error.remedy()))?,
            None => DatagramKeys::plain(<[u8; TOKEN_BYTES]>::try_from(secret).map_err(|_| not_understood())?),
        };
        let options = SenderOptions {
            send_buffer_bytes: Some(SEND_BUFFER_BYTES),
            report_drops: false,
            wait_most: Nanos::from_secs(1),
            ..SenderOptions::default()
        };
        let socket = UdpSender::connect(None, SocketAddr::new(peer.ip(), port), &options)
            .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
        let now = monotonic();
        let mut link = Self {
            name: target.name.clone(),
            control: wire,
            socket,
            keys,
            session,
            datagram_bytes: 0,
            numbers: LinkSender::default(),
            started_ns: meta.started_ns,
            progress: LinkProgress::default(),
            said: now,
            heard: now,
            refused_datagrams: 0,
            closed: None,
            error: None,
            noticed: false,
            singly: false,
            payload: Vec::new(),
            datagram: Vec::new(),
            batch: Vec::new(),
        };
        link.datagram_bytes = link.prove(logging.datagram_bytes)?;
        link.control.signals = 2;
        Ok(link)
    }

    /// Sends datagrams of several lengths until the other end says which come through: the longest that do.
    fn prove(&mut self, asked_bytes: Option<usize>) -> Result<usize, SessionError> {
        let headers = if self.socket.peer_address().is_ipv4() { 28 } else { 48 };
        let by_mtu =
            self.socket.path_mtu_bytes().map_or(DATAGRAM_BYTES_SURE, |mtu| mtu as usize - headers.min(mtu as usize));
        let longest = asked_bytes.unwrap_or_else(|| by_mtu.clamp(DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_MOST));
        let shortest = longest.min(DATAGRAM_BYTES_SURE);
        let began = monotonic();
        let (mut heard, mut tried) = (0, 0);
        while heard < longest {
            let now = monotonic();
            let patience = if heard > 0 { LONGER_PATIENCE } else { PROOF_PATIENCE };
            if now >= began + patience {
                break;
            }
            for bytes in [shortest, longest] {
                self.payload.clear();
                self.payload.resize(bytes - DATAGRAM_OVERHEAD_BYTES, 0);
                self.keys.seal(self.session, FIRST_PROBE + tried, &self.payload, &mut self.datagram);
                tried += 1;
                // Too long for the way is an answer as well.
                let _ = self.socket.send(&self.datagram, true);
            }
            let until = monotonic() + PROOF_RESEND;
            while let Some(message) = self.control.wait(until)? {
                if let LinkMessage::Heard { bytes } = message {
                    heard = heard.max(bytes as usize);
                }
                if heard >= longest {
                    break;
                }
            }
        }
        if heard == 0 {
            let address = self.socket.peer_address();
            let message = format!("no datagram reaches {address}");
            return Err(SessionError::new("data_blocked", message, "open that port for UDP in the firewalls"));
        }
        self.heard = monotonic();
        Ok(heard.min(longest))
    }

    /// As the user names the logging host.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The address that datagrams leave from.
    pub(super) fn local_ip(&self) -> std::net::IpAddr {
        self.socket.local_address().ip()
    }

    /// The port that they go to.
    pub(super) fn port(&self) -> u16 {
        self.socket.peer_address().port()
    }

    /// Bytes that a body may have.
    pub(super) fn room_bytes(&self) -> usize {
        room_for_heads(self.datagram_bytes)
    }

    /// Whether it takes heads.
    pub(super) fn is_up(&self) -> bool {
        self.error.is_none() && self.closed.is_none()
    }

    /// Sends heads, which may be none. Where `more_follow` at once it is filled up to its full length and may wait for those, so that
    /// one call of the kernel's takes many (`UDP_SEGMENT`).
    pub(super) fn send(&mut self, heads: &PacketBlock, floor_ns: i64, more_follow: bool) {
        let sequence = self.numbers.payload(heads, floor_ns, &mut self.payload);
        let full = self.datagram_bytes - DATAGRAM_OVERHEAD_BYTES;
        let is_long = self.payload.len() > full;
        if more_follow && !is_long {
            self.payload.resize(full, 0);
        }
        self.keys.seal(self.session, sequence, &self.payload, &mut self.datagram);
        if is_long {
            // A head that is longer than what passes whole: by itself, in fragments.
            self.transmit();
            let datagram = std::mem::take(&mut self.datagram);
            self.give(&datagram, datagram.len());
            self.datagram = datagram;
            return;
        }
        self.batch.extend_from_slice(&self.datagram);
        if !more_follow || self.batch.len() / self.datagram_bytes >= self.socket.segments_most(self.datagram_bytes) {
            self.transmit();
        }
    }

    /// Sends what waits.
    fn transmit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.give(&batch, self.datagram_bytes);
        self.batch = batch;
        self.batch.clear();
    }

    /// Hands the kernel datagrams of `step` bytes, the last of which may be shorter. Waiting until it takes them keeps to the speed of
    /// this host's link. What it refuses the other end finds missing.
    fn give(&mut self, mut rest: &[u8], step: usize) {
        let mut again = true;
        while !rest.is_empty() {
            let piece = if self.singly { rest.len().min(step) } else { rest.len() };
            let sent = self.socket.send_segments(&rest[..piece], step, true);
            match sent.unsent {
                None => rest = &rest[(sent.datagrams * step).min(rest.len())..],
                // That was an earlier one's.
                Some(Unsent::Because(UdpSendError::ConnectionRefused)) if again => again = false,
                Some(Unsent::Because(UdpSendError::NotSegmentable)) if !self.singly => self.singly = true,
                Some(_) => {
                    self.refused_datagrams += piece.div_ceil(step) as u64;
                    rest = &rest[piece..];
                }
            }
        }
    }

    /// Tells the other end.
    pub(super) fn say(&mut self, message: &LinkMessage) {
        let said = self.control.say(message);
        self.said = monotonic();
        self.note(said);
    }

    /// Hears what the other end says; `true` where the link has just gone.
    pub(super) fn poll(&mut self, now: Nanos) -> bool {
        while self.is_up()
            && let Ok(event) = self.control.events.try_recv()
        {
            let taken = self.control.take(event);
            // What came before the end counts.
            self.hear_all();
            self.note(taken);
        }
        if self.is_up() && now >= self.heard.saturating_add(SILENCE) {
            let text = format!("it said nothing for {SILENCE}");
            self.note(Err(SessionError::new("peer_silent", text, "check that it still runs and that the path is up")));
        } else if self.is_up() && now >= self.said.saturating_add(ALIVE_INTERVAL) {
            let said = self.control.send(&Message::Alive);
            self.said = now;
            self.note(said);
        }
        let fresh = self.error.is_some() && !self.noticed;
        self.noticed |= fresh;
        fresh
    }

    fn hear_all(&mut self) {
        loop {
            match self.control.poll() {
                Ok(Some(message)) => self.hear(message),
                Ok(None) => return,
                Err(error) => return self.note(Err(error)),
            }
        }
    }

    fn hear(&mut self, message: LinkMessage) {
        self.heard = monotonic();
        match message {
            LinkMessage::Progress(progress) => self.progress = progress,
            LinkMessage::Closed { progress, ledger } => {
                self.progress = progress;
                self.closed = Some(ledger);
            }
            _ => {}
        }
    }

    fn note(&mut self, outcome: Result<(), SessionError>) {
        if let (Err(error), None, None) = (outcome, &self.error, &self.closed) {
            self.error = Some(error);
        }
    }

    /// Why it is gone, if it is.
    pub(super) fn error(&self) -> Option<&SessionError> {
        self.error.as_ref()
    }

    /// Heads that are lost or not written, so far as the other end has said.
    pub(super) fn dropped_packets(&self) -> u64 {
        self.progress.lost_packets.saturating_add(self.progress.disk_dropped_packets)
    }

    /// Says how much was sent. [`Self::close`] hears what became of it.
    pub(super) fn finish(&mut self, floor_ns: i64) {
        self.transmit();
        if self.is_up() {
            let (datagrams, heads) = (self.numbers.datagrams(), self.numbers.heads());
            let latest_ns = self.numbers.latest_ns().unwrap_or(floor_ns);
            self.say(&LinkMessage::Finished { datagrams, heads, latest_ns });
        }
    }

    /// Waits until the other end has closed its files, and gives the account.
    pub(super) fn close(mut self) -> LinkEnd {
        let deadline = monotonic() + CLOSE_PATIENCE;
        while self.is_up() {
            match self.control.wait(deadline) {
                Ok(Some(message)) => self.hear(message),
                Ok(None) => self.note(Err(no_answer())),
                Err(error) => self.note(Err(error)),
            }
        }
        let _ = self.control.send(&Message::Goodbye);
        LinkEnd {
            ledger: self.account(),
            name: self.name,
            address: self.socket.peer_address(),
            datagram_bytes: self.datagram_bytes,
            datagrams: self.numbers.datagrams(),
            packets: self.numbers.heads(),
            refused_datagrams: self.refused_datagrams,
            progress: self.progress,
            error: self.error,
        }
    }

    /// What became of the heads that were sent: what the other end does not say it wrote is dropped.
    fn account(&self) -> Ledger {
        let sent = self.numbers.heads();
        let latest_ns = self.numbers.latest_ns().unwrap_or(self.started_ns);
        let written = self.progress.written_packets.min(sent);
        let mut ledger = Ledger { seen_packets: sent, written_packets: written, ..Ledger::default() };
        let mut left = sent - written;
        let mut drop = |place, from_ns, to_ns, packets: u64| {
            let packets = packets.min(left);
            left -= packets;
            ledger.drop_packets(Gap { place, interface: None, from_ns, to_ns, packets }, 0);
        };
        match &self.closed {
            Some(told) => {
                for gap in &told.gaps {
                    drop(gap.place, gap.from_ns, gap.to_ns, gap.packets);
                }
            }
            None => {
                let settled_ns = self.progress.watermark_ns.clamp(self.started_ns, latest_ns.max(self.started_ns));
                drop(Place::Disk, self.started_ns, settled_ns, self.progress.disk_dropped_packets);
                drop(Place::LogLink, self.started_ns, settled_ns, self.progress.lost_packets);
                // It may have written more, and did not live to say so.
                drop(Place::LogLink, settled_ns, latest_ns, u64::MAX);
            }
        }
        drop(Place::LogLink, self.started_ns, latest_ns, u64::MAX);
        ledger
    }
}
