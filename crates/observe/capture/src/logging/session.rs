//! One capture at its logging host: receives its datagrams and messages until it ends, and keeps their account.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_captures::ledger::Ledger;
use longhaul_captures::log_link::{Arrival, FIRST_PROBE, LinkCounts, LinkMessage, LinkProgress, LinkReceiver};
use longhaul_captures::spool::{Mark, Meta};
use longhaul_channel::DatagramKeys;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, UdpReceiver};
use longhaul_session::limits::PEER_SILENCE;
use longhaul_session::{Message, SessionError};
use longhaul_units::Nanos;

use super::opening::{FULL_REMEDY, NewFolder, Opened, open, refuse, say};
use super::recording::{Recorded, Recording};
use super::{CaptureSeat, Received, Shared};
use crate::link::CLOSE_PATIENCE;
use longhaul_peer::control::{ACKNOWLEDGED_WITHIN, Control, ControlEvent};
use longhaul_peer::listening::Seat;

/// The longest wait for datagrams before the control connection is read.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);
/// How often blocks that are not full are passed on, as on the capturing host.
const FLUSH_EVERY: Nanos = Nanos::from_millis(200);
/// How often this end reports its progress.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(500);
/// After the capture's last message, the wait for late datagrams ends after this silence.
const TAIL_QUIET: Nanos = Nanos::from_secs(1);
/// The longest wait, even if datagrams still arrive.
const TAIL_MOST: Nanos = Nanos::from_secs(5);
/// After a capture was lost, its last datagrams wait in this host's buffer.
const LOST_QUIET: Nanos = Nanos::from_millis(200);
/// Datagrams received at once. A slot has room for the longest.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 65_536;
/// Drops less than this apart make one gap.
const JOINED_NS: i64 = 100_000;
/// Gaps in the last message. Further drops are counted without times.
const GAPS_TOLD: usize = 2_000;
/// The most marks of a capture.
const MARKS_MOST: usize = 100_000;

/// How a capture ended at its logging host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedEnd {
    /// The capture ended and reported how much it sent.
    Finished,
    /// The connection to the capture was lost, and with it the last packets. Says why.
    Vanished(String),
    /// The logging host was stopped.
    Stopped,
    /// The capture reached its size limit.
    Full,
}

/// The outcome of a capture at its logging host.
#[derive(Debug)]
pub struct Logged {
    /// What was captured.
    pub meta: Meta,
    /// How it ended.
    pub end: LoggedEnd,
    /// How long it took.
    pub duration: Nanos,
    /// The complete account.
    pub ledger: Ledger,
    /// Counts of the link.
    pub counts: LinkCounts,
    /// Datagrams that did not belong to the capture, or were changed on the path.
    pub refused_datagrams: u64,
    /// Datagrams that found this host's socket full. They are part of the lost ones.
    pub socket_dropped_datagrams: u64,
    /// The files that exist, oldest first.
    pub files: Vec<PathBuf>,
    /// The folder.
    pub folder: PathBuf,
    /// Files that `keep` removed.
    pub files_removed: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Moments that the user marked.
    pub marks: Vec<Mark>,
    /// The last error of the disk, if there was one.
    pub disk_error: Option<String>,
}

/// Serves the connection of `peer`: one capture. Calls `begun` with its folder, and `ended` with the outcome. Returns whether it was a capture: a
/// refused connection is none.
pub(super) fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    seat: &Seat<ControlEvent>,
    shared: &Arc<Shared>,
    begun: impl FnOnce(&Path),
    ended: impl FnOnce(Result<Logged, SessionError>),
) -> bool {
    let mut control = match seat.control(stream, shared.options.key.as_ref()) {
        Ok(control) => control,
        Err(error) => {
            ended(Err(error));
            return false;
        }
    };
    let opened = match open(&mut control, seat, shared) {
        Ok(opened) => opened,
        Err(error) => {
            ended(Err(error));
            seat.end(control, ACKNOWLEDGED_WITHIN);
            return false;
        }
    };
    let Opened { meta, folder, keys, number, socket, recording, place } = opened;
    begun(folder.path());
    let now = monotonic();
    let session = Session {
        control,
        shared: Arc::clone(shared),
        peer,
        // Encrypted datagrams may come from any address, others only from the capturing host.
        only_from: shared.options.key.is_none().then(|| peer.ip().to_canonical()),
        link: LinkReceiver::new(meta.interfaces.len(), meta.started_ns),
        meta,
        folder,
        keys,
        number,
        socket,
        recording,
        counted_bytes: 0,
        ledger: Ledger::default(),
        own: Ledger::default(),
        marks: Vec::new(),
        refused_datagrams: 0,
        longest_bytes: 0,
        is_read: true,
        payload: Vec::new(),
        began: now,
        heard: now,
        arrived: now,
        finished: None,
    };
    let (result, control) = session.run(seat, &place);
    // The files are closed: whoever is next has the place while the kernel waits for the other end.
    drop(place);
    let was_capture = result.is_ok();
    // A capture waits no longer for its account.
    let has_account = result.as_ref().is_ok_and(|logged| logged.end == LoggedEnd::Finished);
    let within = if has_account { CLOSE_PATIENCE } else { ACKNOWLEDGED_WITHIN };
    ended(result);
    seat.end(control, within);
    was_capture
}

struct Session {
    control: Control,
    shared: Arc<Shared>,
    peer: SocketAddr,
    only_from: Option<IpAddr>,
    meta: Meta,
    folder: NewFolder,
    keys: DatagramKeys,
    number: u32,
    socket: UdpReceiver,
    link: LinkReceiver,
    recording: Recording,
    /// Bytes that count in the size of the folder of all captures.
    counted_bytes: u64,
    /// The account, without what the writing thread drops.
    ledger: Ledger,
    /// The account of the link and of this host only.
    own: Ledger,
    marks: Vec<Mark>,
    refused_datagrams: u64,
    longest_bytes: u32,
    /// The capture took each message in time.
    is_read: bool,
    /// Buffer for one datagram's payload.
    payload: Vec<u8>,
    began: Nanos,
    /// When the capture last sent something new, and when the last datagram with snippets arrived.
    heard: Nanos,
    arrived: Nanos,
    /// Its last message: datagrams, snippets in them, the latest time stamp.
    finished: Option<(u64, u64, i64)>,
}

impl Session {
    /// Receives datagrams until the capture ends. Returns the outcome, and the connection, which may still have to deliver the last message.
    fn run(mut self, seat: &Seat<ControlEvent>, place: &CaptureSeat) -> (Result<Logged, SessionError>, Control) {
        let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, true);
        let (mut flush, mut progress) = (self.began, self.began);
        // Since when it is ending, and how.
        let mut ending: Option<(Nanos, LoggedEnd)> = None;
        loop {
            // Errors are about sent datagrams, and this socket sends none.
            let _ = self.socket.receive_until(&mut slots, monotonic() + LOOK_EVERY);
            let now = monotonic();
            'taking: for packet in slots.packets() {
                let from = packet.source.map(|from| from.ip().to_canonical());
                let known = self.only_from.is_none() || from.is_none() || from == self.only_from;
                for datagram in packet.segments() {
                    if self.is_full() {
                        break 'taking;
                    }
                    self.take_datagram(now, datagram, known);
                }
            }
            // One event per round, or a capture that floods the control connection would keep datagrams waiting.
            if ending.is_none()
                && let Some(end) = self.take_event(now, seat)
            {
                ending = Some((now, end));
            }
            self.link.handle_timeout(now);
            if now >= flush {
                flush = now + FLUSH_EVERY;
                self.flush();
            }
            if now >= progress && ending.is_none() {
                progress = now + PROGRESS_EVERY;
                let so_far = self.progress();
                if self.has_begun() {
                    place.note(Received { peer: self.peer, folder: self.folder.path().to_owned(), so_far });
                }
                let said = say(&mut self.control, &LinkMessage::Progress(so_far));
                ending = said.err().map(|error| (now, LoggedEnd::Vanished(error.message)));
            }
            let quiet_since = |from: Nanos| now.saturating_sub(self.arrived.max(from));
            match &ending {
                None => {}
                Some((since, LoggedEnd::Finished)) => {
                    let whole = self.finished.is_some_and(|(datagrams, ..)| self.link.is_settled(datagrams));
                    if whole || quiet_since(*since) >= TAIL_QUIET || now >= *since + TAIL_MOST {
                        break;
                    }
                }
                Some((since, LoggedEnd::Vanished(_)))
                    if quiet_since(*since) < LOST_QUIET && now < *since + TAIL_MOST => {}
                Some(_) => break,
            }
        }
        self.end(ending.map_or(LoggedEnd::Stopped, |(_, end)| end))
    }

    fn take_datagram(&mut self, now: Nanos, datagram: &[u8], known: bool) {
        let mut payload = std::mem::take(&mut self.payload);
        match self.keys.open(self.number, datagram, &mut payload).filter(|_| known) {
            Some(sequence) => self.take_payload(now, sequence, &payload, datagram.len() as u32),
            None => self.refused_datagrams += 1,
        }
        self.payload = payload;
    }

    /// A duplicate does not show that the capture is alive: anyone may have recorded and replayed it.
    fn take_payload(&mut self, now: Nanos, sequence: u64, payload: &[u8], bytes: u32) {
        if sequence >= FIRST_PROBE {
            if bytes > self.longest_bytes && self.is_read {
                (self.longest_bytes, self.heard) = (bytes, now);
                // A lost connection is noticed when it is read. Who did not read this is not told of further ones: each would wait for him.
                self.is_read = say(&mut self.control, &LinkMessage::Heard { bytes }).is_ok();
            }
            return;
        }
        if let Arrival::Snippets(snippets) = self.link.handle(now, sequence, payload) {
            (self.arrived, self.heard) = (now, now);
            if let Some(gap) = self.recording.put(&snippets) {
                self.own.drop_packets(gap, JOINED_NS);
                self.ledger.drop_packets(gap, JOINED_NS);
                self.recording.account(&Ledger {
                    dropped_packets: [(gap.place, gap.packets)].into(),
                    gaps: vec![gap],
                    ..Ledger::default()
                });
            }
        }
    }

    /// Takes the next event. Returns how the capture ends, if it does.
    fn take_event(&mut self, now: Nanos, seat: &Seat<ControlEvent>) -> Option<LoggedEnd> {
        let kept_bytes = self.recording.kept_bytes();
        let before = std::mem::replace(&mut self.counted_bytes, kept_bytes);
        self.shared.size.add(kept_bytes as i64 - before as i64);
        // First, as messages fill the disk too.
        if self.is_full() || self.shared.size.is_full() {
            return Some(LoggedEnd::Full);
        }
        match seat.receiver.try_recv() {
            Ok(ControlEvent::Bytes(bytes)) => {
                self.heard = now;
                let taken = self.control.handle_bytes(&bytes);
                while let Some(message) = self.control.poll_message() {
                    if let Some(end) = self.take_message(message) {
                        return Some(end);
                    }
                }
                taken.err().map(|error| LoggedEnd::Vanished(error.to_string()))
            }
            Ok(ControlEvent::Lost(why)) => Some(LoggedEnd::Vanished(why)),
            Ok(ControlEvent::Interrupt | ControlEvent::Abort) => Some(LoggedEnd::Stopped),
            _ if now >= self.heard.saturating_add(PEER_SILENCE) => {
                Some(LoggedEnd::Vanished(format!("no message for {PEER_SILENCE}")))
            }
            _ => None,
        }
    }

    fn is_full(&self) -> bool {
        let most = self.shared.options.bytes_most;
        most.is_some_and(|most| self.recording.taken_bytes() >= most.0)
    }

    fn take_message(&mut self, message: Message) -> Option<LoggedEnd> {
        let message = match message {
            Message::LogLink { text } => longhaul_channel::parse(text.as_bytes()).ok(),
            Message::Alive => return None,
            Message::Error(error) => return Some(LoggedEnd::Vanished(error.of_peer().message)),
            Message::Goodbye => return Some(LoggedEnd::Vanished("it left without its last message".into())),
            _ => None,
        };
        match message {
            Some(LinkMessage::Part { ledger }) => {
                // Only this end knows what is written.
                let part = Ledger { written_packets: 0, ..ledger };
                self.ledger.add(&part);
                self.recording.account(&part);
                None
            }
            Some(LinkMessage::Mark { mark }) => {
                if self.marks.len() < MARKS_MOST {
                    self.marks.push(mark);
                    self.recording.mark(mark);
                }
                None
            }
            Some(LinkMessage::Finished { datagrams, snippets, latest_ns }) => {
                self.finished = Some((datagrams, snippets, latest_ns));
                Some(LoggedEnd::Finished)
            }
            _ => Some(LoggedEnd::Vanished("it sent an unexpected message".into())),
        }
    }

    /// Passes on all packets and the account.
    fn flush(&mut self) {
        let part = self.link.take_part();
        if !part.is_empty() {
            self.ledger.add(&part);
            self.own.add(&Ledger { seen_packets: 0, ..part.clone() });
            self.recording.account(&part);
        }
        self.recording.flush(self.link.watermark_ns());
    }

    fn progress(&self) -> LinkProgress {
        progress(&self.link, self.recording.so_far())
    }

    /// A capture sends its first datagram when it begins, with or without snippets.
    fn has_begun(&self) -> bool {
        self.link.counts().datagrams > 0 || self.finished.is_some()
    }

    /// Closes the files and sends the last message. The outcome is an error if no capture began. Then there is no folder either.
    fn end(mut self, end: LoggedEnd) -> (Result<Logged, SessionError>, Control) {
        let end = match (self.link.finish(self.finished), end) {
            (false, LoggedEnd::Finished) => LoggedEnd::Vanished("its last message does not match what arrived".into()),
            (_, end) => end,
        };
        self.flush();
        let (counts, has_begun) = (self.link.counts(), self.has_begun());
        let socket_dropped = self.socket.memory().map_or(0, |memory| memory.drops);
        let (written, recorded) = self.recording.close(matches!(end, LoggedEnd::Vanished(_)));
        self.ledger.add(&written.ledger);
        self.own.add(&written.ledger);
        self.ledger.written_packets = recorded.written_packets;
        let progress = progress(&self.link, recorded);
        match &end {
            LoggedEnd::Finished => {
                self.own.gaps.truncate(GAPS_TOLD);
                let _ = say(&mut self.control, &LinkMessage::Closed { progress, ledger: self.own });
            }
            LoggedEnd::Stopped | LoggedEnd::Full => {
                let _ = say(&mut self.control, &LinkMessage::Progress(progress));
                let error = match end {
                    LoggedEnd::Full => SessionError::new(
                        "full",
                        "the capture, or all captures there, reached the size limit",
                        FULL_REMEDY,
                    ),
                    _ => SessionError::new("stopped", "it was stopped there", ""),
                };
                refuse(&mut self.control, error);
            }
            LoggedEnd::Vanished(_) => {}
        }
        if !has_begun {
            let why = if let LoggedEnd::Vanished(why) = &end { format!(": {why}") } else { String::new() };
            let error = SessionError::new("not_begun", format!("no capture began{why}"), "");
            return (Err(error), self.control);
        }
        let logged = Logged {
            meta: self.meta,
            end,
            duration: monotonic().saturating_sub(self.began),
            ledger: self.ledger,
            counts,
            refused_datagrams: self.refused_datagrams,
            socket_dropped_datagrams: socket_dropped.into(),
            files: written.files,
            folder: self.folder.keep(),
            files_removed: written.files_removed,
            written_bytes: recorded.written_bytes,
            marks: self.marks,
            disk_error: written.disk_error,
        };
        (Ok(logged), self.control)
    }
}

fn progress(link: &LinkReceiver, recorded: Recorded) -> LinkProgress {
    let counts = link.counts();
    LinkProgress {
        received_datagrams: counts.datagrams,
        lost_datagrams: counts.lost_datagrams,
        lost_packets: counts.lost_snippets,
        written_packets: recorded.written_packets,
        disk_dropped_packets: recorded.dropped_packets,
        written_bytes: recorded.written_bytes,
        watermark_ns: link.watermark_ns(),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_captures::ledger::{DroppedAt, Gap};

    use super::*;

    /// A capture reads messages in bounded memory.
    #[test]
    fn the_longest_last_message_is_read() {
        let gap = Gap { place: DroppedAt::Disk, interface: Some(9), from_ns: 1, to_ns: 2, packets: 1 };
        let ledger = Ledger { gaps: vec![gap; GAPS_TOLD], ..Ledger::default() };
        let closed = LinkMessage::Closed { progress: LinkProgress::default(), ledger };
        let text = serde_json::to_vec(&closed).unwrap();
        assert_eq!(longhaul_channel::parse::<LinkMessage>(&text).unwrap(), closed);
    }
}
