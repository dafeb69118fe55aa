//! The link from a capture to one logging host: how it is set up, what it carries, and its account.
//!
//! `control.rs` has its control connection, `datagrams.rs` its datagrams.

mod control;
mod datagrams;

use std::net::SocketAddr;

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::log_link::{
    FIRST_PROBE, LinkMessage, LinkProgress, LinkSender, Open, PAYLOAD_HEADER_BYTES_MOST,
};
use longhaul_captures::spool::{Meta, PacketBlock};
use longhaul_channel::{
    DATAGRAM_OVERHEAD_BYTES, DatagramKeys, DatagramOffer, Key, TOKEN_BYTES, decode_secret, encode_secret,
};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_session::limits::ALIVE_INTERVAL;
use longhaul_session::{Message, SessionError};
use longhaul_units::Nanos;

use longhaul_peer::control::{any_of_family, connect, random};

use control::{LinkControl, no_answer, not_understood};
use datagrams::{DATAGRAM_BYTES_SURE, Datagrams};

pub use datagrams::{DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST};

/// A logging host answers within this time.
const ANSWER_PATIENCE: Nanos = Nanos::from_secs(10);
/// Time for the first datagram to arrive: twenty attempts.
const PROOF_PATIENCE: Nanos = Nanos::from_secs(5);
/// Time between attempts.
const PROOF_RESEND: Nanos = Nanos::from_millis(250);
/// Time for long datagrams to arrive, once short ones did.
const LONGER_PATIENCE: Nanos = Nanos::from_secs(2);
/// A logging host reports its progress twice a second. After this silence the link is lost. It survives an outage of 5 s.
const SILENCE: Nanos = Nanos::from_secs(10);
/// After the capture's last message all logging hosts close their files within this time. They wait for late datagrams, then for the disk.
pub(crate) const CLOSE_PATIENCE: Nanos = Nanos::from_secs(15);
/// How long to wait for one of them before it is another one's turn.
const CLOSE_TURN: Nanos = Nanos::from_millis(5);

/// Reads of a link before it is another one's turn, whatever the other end floods it with.
const EVENTS_AT_ONCE: usize = 16;
const START: &str = "start `longhaul log` there, and open its TCP and UDP port in the firewalls";

/// What to do where no logging host answers at any of `addresses`.
pub fn start(addresses: &[SocketAddr]) -> String {
    format!(
        "start `longhaul log -o DIR --bind {} --key FILE` there (it listens on loopback without --bind), and open its TCP and UDP port \
         in the firewalls",
        any_of_family(addresses)
    )
}

/// A logging host.
#[derive(Debug, Clone)]
pub struct LogTarget {
    /// The name that the user gave.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The shared key; `None` for no encryption.
    pub key: Option<Key>,
}

/// The logging hosts of a capture, beside or instead of files.
#[derive(Debug, Clone, Default)]
pub struct LogTargets {
    /// The logging hosts, which take turns.
    pub targets: Vec<LogTarget>,
    /// The requested longest datagram, bytes of UDP payload. `None`: what the path's MTU allows, up to 8972.
    pub datagram_bytes: Option<usize>,
    /// A signal ends the connection attempt.
    pub stop: Option<Stop>,
}

/// Bytes that a datagram of `datagram_bytes` has for snippets and their fields.
pub fn room_for_snippets(datagram_bytes: usize) -> usize {
    datagram_bytes.saturating_sub(DATAGRAM_OVERHEAD_BYTES + PAYLOAD_HEADER_BYTES_MOST)
}

/// The outcome of a link.
#[derive(Debug, Clone)]
pub struct LinkEnd {
    /// The name of the logging host, as the user gave it.
    pub name: String,
    /// Address and port of the datagrams.
    pub address: SocketAddr,
    /// Longest datagram.
    pub datagram_bytes: usize,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Packets in them.
    pub packets: u64,
    /// Datagrams that this host's kernel did not take.
    pub refused_datagrams: u64,
    /// The last progress report of the logging host.
    pub progress: LinkProgress,
    /// The account of those packets: `packets = written + dropped`.
    pub ledger: Ledger,
    /// Why it ended before the capture.
    pub error: Option<SessionError>,
}

/// A link, up or lost.
#[derive(Debug)]
pub(super) struct LogLink {
    name: String,
    control: LinkControl,
    datagrams: Datagrams,
    numbers: LinkSender,
    started_ns: i64,
    progress: LinkProgress,
    said: Nanos,
    heard: Nanos,
    closed: Option<Ledger>,
    error: Option<SessionError>,
    /// The user was told of the error.
    noticed: bool,
    payload: Vec<u8>,
}

impl LogLink {
    /// Connects, describes the capture, and finds the longest datagram that arrives.
    ///
    /// # Errors
    /// Why there is no link, and what to do.
    pub(super) fn open(target: &LogTarget, meta: &Meta, logging: &LogTargets) -> Result<Self, SessionError> {
        let stream = connect(&[target.address], None, logging.stop, start)?;
        let peer = stream.peer_addr().map_err(|error| SessionError::new("control", error.to_string(), ""))?;
        let mut control = LinkControl::establish(stream, target.key.as_ref(), logging.stop)?;
        let offer =
            target.key.as_ref().map(|key| random().map(|random| DatagramOffer::new(key, random))).transpose()?;
        let (offer, message) = offer.unzip();
        let open = Open { meta: meta.clone(), offer: message.as_deref().map(encode_secret) };
        control.say(&LinkMessage::Open(Box::new(open)))?;
        let accepted = control.wait(monotonic() + ANSWER_PATIENCE)?.ok_or_else(no_answer)?;
        let LinkMessage::Accept { session, port, secret } = accepted else { return Err(not_understood()) };
        let secret = decode_secret(&secret).ok_or_else(not_understood)?;
        let keys = match offer {
            Some(offer) => offer.accept(&secret)?,
            None => DatagramKeys::plain(<[u8; TOKEN_BYTES]>::try_from(secret).map_err(|_| not_understood())?),
        };
        let mut to = peer;
        to.set_port(port);
        let datagrams = Datagrams::connect(to, keys, session, logging.datagram_bytes)
            .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
        let mut link = Self::new(target.name.clone(), control, datagrams, meta.started_ns);
        link.prove()?;
        link.control.is_made = true;
        Ok(link)
    }

    /// One over which nothing has gone yet.
    fn new(name: String, control: LinkControl, datagrams: Datagrams, started_ns: i64) -> Self {
        let now = monotonic();
        Self {
            name,
            control,
            datagrams,
            numbers: LinkSender::default(),
            started_ns,
            progress: LinkProgress::default(),
            said: now,
            heard: now,
            closed: None,
            error: None,
            noticed: false,
            payload: Vec::new(),
        }
    }

    /// Sends datagrams of several lengths until the other end reports the longest that arrives.
    fn prove(&mut self) -> Result<(), SessionError> {
        let began = monotonic();
        let (mut heard, mut tried) = (0, 0);
        while heard < self.datagrams.bytes_most() {
            let patience = if heard > 0 { LONGER_PATIENCE } else { PROOF_PATIENCE };
            if monotonic() >= began + patience {
                break;
            }
            let longest = self.datagrams.bytes_most();
            for bytes in [longest.min(DATAGRAM_BYTES_SURE), longest] {
                self.datagrams.probe(FIRST_PROBE + tried, bytes);
                tried += 1;
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
            // A router may have reported a smaller MTU meanwhile.
            self.datagrams.follow_path();
        }
        if heard == 0 {
            let message = format!("no UDP datagram reaches {}", self.datagrams.peer_address());
            return Err(SessionError::new("data_blocked", message, "open this port for UDP in the firewalls"));
        }
        self.heard = monotonic();
        self.datagrams.shorten(heard);
        Ok(())
    }

    /// The name of the logging host, as the user gave it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The local address of the datagrams.
    pub(super) fn local_address(&self) -> std::net::SocketAddr {
        self.datagrams.local_address()
    }

    /// The port that datagrams are sent to.
    pub(super) fn port(&self) -> u16 {
        self.datagrams.peer_address().port()
    }

    /// Bytes that a datagram has for snippets.
    pub(super) fn room_bytes(&self) -> usize {
        room_for_snippets(self.datagrams.bytes_most())
    }

    /// Whether the link is up.
    pub(super) fn is_up(&self) -> bool {
        self.error.is_none() && self.closed.is_none()
    }

    /// Sends snippets, possibly none. `more_follow`: more come at once, and these may wait for them.
    pub(super) fn send(&mut self, snippets: &PacketBlock, floor_ns: i64, more_follow: bool) {
        let sequence = self.numbers.payload(snippets, floor_ns, &mut self.payload);
        self.datagrams.send(sequence, &mut self.payload, more_follow);
    }

    /// Sends a message to the other end.
    pub(super) fn say(&mut self, message: &LinkMessage) {
        let said = self.control.say(message);
        self.said = monotonic();
        self.note(said);
    }

    /// Reads messages of the other end; `true` if the link was lost just now.
    pub(super) fn poll(&mut self, now: Nanos) -> bool {
        for _ in 0..EVENTS_AT_ONCE {
            if !self.is_up() {
                break;
            }
            let Some(taken) = self.control.take_event() else { break };
            // Messages before the end count.
            self.hear_all();
            self.note(taken);
        }
        if self.is_up() && now >= self.heard.saturating_add(SILENCE) {
            let text = format!("no message for {SILENCE}");
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
            self.control.hang_up();
        }
    }

    /// Why the link was lost, if it was.
    pub(super) fn error(&self) -> Option<&SessionError> {
        self.error.as_ref()
    }

    /// Packets that the other end reported as lost or not written.
    pub(super) fn dropped_packets(&self) -> u64 {
        self.progress.lost_packets.saturating_add(self.progress.disk_dropped_packets)
    }

    /// Reports how much was sent. [`Self::close_all`] receives the account.
    pub(super) fn finish(&mut self, floor_ns: i64) {
        self.datagrams.transmit();
        if self.is_up() {
            let (datagrams, snippets) = (self.numbers.datagrams(), self.numbers.snippets());
            let latest_ns = self.numbers.latest_ns().unwrap_or(floor_ns);
            self.say(&LinkMessage::Finished { datagrams, snippets, latest_ns });
        }
    }

    /// Waits until the other ends have closed their files, side by side: what one has to say must be read to come, also while another one is
    /// silent. Returns the accounts, in the order of `links`.
    pub(super) fn close_all(links: Vec<Self>) -> Vec<LinkEnd> {
        Self::close_until(monotonic() + CLOSE_PATIENCE, links)
    }

    /// The same; all have until `deadline`.
    fn close_until(deadline: Nanos, mut links: Vec<Self>) -> Vec<LinkEnd> {
        while links.iter().any(Self::is_up) && monotonic() < deadline {
            for link in links.iter_mut().filter(|link| link.is_up()) {
                match link.control.wait(deadline.min(monotonic() + CLOSE_TURN)) {
                    Ok(Some(message)) => link.hear(message),
                    Ok(None) => {}
                    Err(error) => link.note(Err(error)),
                }
            }
        }
        links.into_iter().map(Self::end).collect()
    }

    fn end(mut self) -> LinkEnd {
        self.note(Err(no_answer()));
        let _ = self.control.send(&Message::Goodbye);
        LinkEnd {
            ledger: self.account(),
            name: self.name,
            address: self.datagrams.peer_address(),
            datagram_bytes: self.datagrams.bytes_most(),
            datagrams: self.numbers.datagrams(),
            packets: self.numbers.snippets(),
            refused_datagrams: self.datagrams.refused(),
            progress: self.progress,
            error: self.error,
        }
    }

    /// The account of the packets sent. What the other end did not report as written counts as dropped.
    fn account(&self) -> Ledger {
        let sent = self.numbers.snippets();
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
            Some(account) => {
                for gap in &account.gaps {
                    drop(gap.place, gap.from_ns, gap.to_ns, gap.packets);
                }
            }
            None => {
                let settled_ns = self.progress.watermark_ns.clamp(self.started_ns, latest_ns.max(self.started_ns));
                drop(DroppedAt::Disk, self.started_ns, settled_ns, self.progress.disk_dropped_packets);
                drop(DroppedAt::LogLink, self.started_ns, settled_ns, self.progress.lost_packets);
                // It may have written more without reporting it.
                drop(DroppedAt::LogLink, settled_ns, latest_ns, u64::MAX);
            }
        }
        drop(DroppedAt::LogLink, self.started_ns, latest_ns, u64::MAX);
        ledger
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use longhaul_channel::{Channel, Role};

    use super::*;

    /// A link that is up, and its other end.
    fn link() -> (LogLink, TcpStream, Channel<Message>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut channel = Channel::plain(Role::Server);
        channel.handle_bytes(b"longhaul/1 plain").unwrap();
        far.write_all(&channel.poll_transmit().unwrap()).unwrap();
        let mut control = LinkControl::establish(near, None, None).unwrap();
        control.is_made = true;
        let datagrams = Datagrams::connect(address, DatagramKeys::plain(Default::default()), 1, None).unwrap();
        let link = LogLink::new("there".into(), control, datagrams, 0);
        (link, far, channel)
    }

    /// A message as it goes over the connection.
    fn bytes(channel: &mut Channel<Message>, message: &LinkMessage) -> Vec<u8> {
        channel.send(&Message::LogLink { text: serde_json::to_string(message).unwrap() }).unwrap();
        std::iter::from_fn(|| channel.poll_transmit()).flatten().collect()
    }

    #[test]
    fn a_long_account_comes_while_another_logging_host_is_silent() {
        let (silent, silent_far, _) = link();
        let (speaks, mut far, mut channel) = link();
        let gap = Gap { place: DroppedAt::Disk, interface: Some(9), from_ns: i64::MAX, to_ns: i64::MAX, packets: 1 };
        let ledger = Ledger { gaps: vec![gap; 2_000], ..Ledger::default() };
        let part = bytes(&mut channel, &LinkMessage::Part { ledger: ledger.clone() });
        let progress = LinkProgress { received_datagrams: 7, ..LinkProgress::default() };
        let closed = bytes(&mut channel, &LinkMessage::Closed { progress, ledger });
        let writer = thread::spawn(move || {
            // More than the kernel keeps for both ends: it goes only while it is read.
            for _ in 0..(8 << 20) / part.len() {
                far.write_all(&part).unwrap();
            }
            far.write_all(&closed).unwrap();
            drop(silent_far);
            far
        });
        let began = monotonic();
        let ends = LogLink::close_until(began + Nanos::from_secs(20), vec![silent, speaks]);
        let took = monotonic().saturating_sub(began);
        drop(writer.join().unwrap());
        assert!(took < Nanos::from_secs(15), "{took}");
        let codes: Vec<_> = ends.iter().map(|end| end.error.as_ref().map(|error| error.code.as_str())).collect();
        assert_eq!(codes, [Some("control_lost"), None]);
        assert_eq!(ends[1].progress, progress);
    }

    #[test]
    fn all_silent_logging_hosts_have_one_time_together() {
        let (links, _fars): (Vec<_>, Vec<_>) = (0..4).map(|_| link()).map(|(link, far, _)| (link, far)).unzip();
        let began = monotonic();
        let ends = LogLink::close_until(began + Nanos::from_millis(500), links);
        let took = monotonic().saturating_sub(began);
        assert!(took >= Nanos::from_millis(500) && took < Nanos::from_millis(1_500), "{took}");
        assert!(ends.iter().all(|end| end.error.as_ref().is_some_and(|error| error.code == "no_answer")), "{ends:?}");
    }
}
