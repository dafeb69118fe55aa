//! One capture at its logging host: out of datagrams, into blocks for the writing thread.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, TimestampMode, UdpReceiver};
use longhaul_session::control::limits::PEER_SILENCE;
use longhaul_session::control::{Message, Refusal, SessionError};
use longhaul_session::secure::{Channel, DatagramKeys, Side, TOKEN_BYTES, decode_secret, encode_secret};
use longhaul_trace::ledger::{Gap, Ledger, Place};
use longhaul_trace::log_link::{
    Arrival, FIRST_PROBE, LinkCounts, LinkMessage, LinkProgress, LinkReceiver, Open, Payload,
};
use longhaul_trace::spool::{Mark, Meta, PacketBlock};
use longhaul_units::Nanos;

use super::files::SpoolFiles;
use super::logging::{LogOptions, Seat};
use super::pool::Pool;
use super::writing::{Writer, Written};
use super::{BLOCK_BYTES, Counters, SpoolSpec, ToWriter};
use crate::driver::{Control, Event, interrupted, random};

/// After the handshake a capture says within this what it is.
const OPEN_PATIENCE: Nanos = Nanos::from_secs(10);
/// How long one waits for datagrams before the control connection is looked at.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);
/// How often blocks that are not full are handed on, as where they are captured.
const FLUSH_EVERY: Nanos = Nanos::from_millis(200);
/// How often the capture hears how far this end is.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(500);
/// After the last word datagrams may be on their way for so long without one of them arriving.
const TAIL_QUIET: Nanos = Nanos::from_secs(1);
/// However many still arrive.
const TAIL_MOST: Nanos = Nanos::from_secs(5);
/// What a capture that was lost had sent is in this host's buffer.
const LOST_QUIET: Nanos = Nanos::from_millis(200);
/// A control connection that does not take a message is dead; datagrams wait in the socket meanwhile.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(2);
/// Where datagrams wait while this thread does not run: 0.3 s at 100 MB/s, in the kernel's measure, and less without CAP_NET_ADMIN.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Memory of blocks that wait for the disk.
const WAITING_BYTES: usize = 32 << 20;
/// Datagrams taken at once; each slot has room for the longest.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 65_536;
/// Drops that follow each other are one gap.
const JOINED_NS: i64 = 100_000;
/// Gaps that the last word tells; the others count without their times.
const GAPS_TOLD: usize = 2_000;
/// Folders of one name that are tried.
const FOLDERS_MOST: u32 = 1_000;

/// How a capture ended at its logging host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It said so, and how much it was.
    Finished,
    /// The capture is gone, and with it what it sent last; why that is known.
    Vanished(String),
    /// The logging host was told to stop.
    Stopped,
    /// It is as long as it may be.
    Full,
}

/// A capture as its logging host has it.
#[derive(Debug)]
pub struct Logged {
    /// What it was.
    pub meta: Meta,
    /// How it ended.
    pub end: End,
    /// How long it took.
    pub duration: Nanos,
    /// The whole account.
    pub ledger: Ledger,
    /// What came over the link.
    pub counts: LinkCounts,
    /// Datagrams that were not the capture's, or were changed.
    pub refused_datagrams: u64,
    /// Datagrams that found this host's socket full; they are among the lost ones.
    pub socket_dropped_datagrams: u64,
    /// Files that are there, oldest first.
    pub files: Vec<PathBuf>,
    /// The folder.
    pub folder: PathBuf,
    /// Files that `keep` removed.
    pub files_removed: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Moments that were marked.
    pub marks: Vec<Mark>,
    /// What the disk said last, where something could not be written.
    pub disk_error: Option<String>,
}

/// Serves the connection of `peer`: one capture. `begun` is told of its folder.
pub(super) fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    seat: &Seat,
    begun: impl FnOnce(&Path),
) -> Result<Logged, SessionError> {
    let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
    stream.set_nonblocking(false).map_err(io)?;
    let own = stream.local_addr().map_err(io)?;
    let options = &seat.shared.options;
    let channel = match &options.key {
        Some(key) => Channel::keyed(Side::Server, key, random()?),
        None => Channel::plain(Side::Server),
    };
    let mut control = Control::new(stream, channel, &seat.sender).map_err(io)?;
    control.establish(&seat.receiver)?;
    control.patience = WRITE_PATIENCE;
    let session = Session::open(control, peer.ip().to_canonical(), own, seat)?;
    let _capture = session.1;
    begun(&session.0.folder);
    Ok(session.0.run(seat))
}

struct Session<'a> {
    control: Control,
    options: &'a LogOptions,
    peer: IpAddr,
    meta: Meta,
    folder: PathBuf,
    keys: DatagramKeys,
    /// Datagrams of a key may come from anywhere, others from the capturing host alone.
    any_source: bool,
    number: u32,
    socket: UdpReceiver,
    link: LinkReceiver,
    blocks: Vec<Option<PacketBlock>>,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    writer: JoinHandle<Written>,
    counters: Arc<Counters>,
    /// Of all but what the writing thread drops.
    ledger: Ledger,
    /// Of the link and of this host alone.
    own: Ledger,
    marks: Vec<Mark>,
    refused_datagrams: u64,
    longest_bytes: u32,
    /// Of the datagram at hand.
    payload: Vec<u8>,
    began: Nanos,
    heard: Nanos,
    arrived: Nanos,
    finished: Option<(u64, u64, i64)>,
}

fn fail(control: &mut Control, error: SessionError) -> SessionError {
    let _ = control.channel.send(&Message::Error(error.clone()));
    let _ = control.transmit();
    error
}

impl<'a> Session<'a> {
    /// Hears what the capture is, and makes all ready for it.
    fn open(
        mut control: Control,
        peer: IpAddr,
        own: SocketAddr,
        seat: &'a Seat,
    ) -> Result<(Self, super::logging::CaptureSeat), SessionError> {
        let options = &seat.shared.options;
        let open = wait_for_open(&mut control, seat).map_err(|error| fail(&mut control, error))?;
        let Some(place) = seat.capture() else {
            let text = format!("it takes {} captures at a time, and has them", options.captures_most);
            let error = SessionError::new("busy", text, "try later, or give `longhaul log` a larger --captures");
            let _ = control.channel.send(&Message::Refuse(Refusal { error: error.clone(), retry_after: None }));
            let _ = control.transmit();
            return Err(error);
        };
        match Self::made(&mut control, open, own, seat) {
            Ok(made) => Ok((made(control, peer), place)),
            Err(error) => Err(fail(&mut control, error)),
        }
    }

    fn made(
        control: &mut Control,
        open: Open,
        own: SocketAddr,
        seat: &'a Seat,
    ) -> Result<impl FnOnce(Control, IpAddr) -> Self + use<'a>, SessionError> {
        let options = &seat.shared.options;
        let offer = open.offer.as_deref().map(|text| decode_secret(text).unwrap_or_default());
        let meta = open.checked_meta().map_err(|why| SessionError::new("protocol", why, ""))?;
        let (keys, secret) = match (&options.key, offer) {
            (Some(key), Some(offer)) => DatagramKeys::answer(key, random()?, &offer)
                .map_err(|error| SessionError::new(error.code(), error.to_string(), error.remedy()))?,
            (None, None) => {
                let token: [u8; TOKEN_BYTES] = random()?;
                (DatagramKeys::plain(token), token.to_vec())
            }
            _ => return Err(SessionError::new("protocol", "keys for datagrams are missing, or one too many", "")),
        };
        let socket = data_socket(own)?;
        let port = socket.local_address().port();
        let number = u32::from_ne_bytes(random()?);
        let folder = new_folder(options, &meta)
            .map_err(|error| SessionError::new("not_written", format!("its folder cannot be written: {error}"), ""))?;
        let spec = SpoolSpec {
            folder: folder.clone(),
            roll_bytes: options.roll_bytes,
            roll_time: options.roll_time,
            keep_bytes: options.keep_bytes,
        };
        let spool = SpoolFiles::create(&spec, &meta)
            .map_err(|error| SessionError::new("not_written", format!("its disk cannot be written: {error}"), ""))?;

        let blocks = (WAITING_BYTES / BLOCK_BYTES).max(meta.interfaces.len() + 2);
        let (to_writer, from_reader) = sync_channel(blocks + 1024);
        let pool = Arc::new(Pool::new(blocks, BLOCK_BYTES + SLOT_BYTES));
        let counters = Arc::new(Counters::default());
        let writer = Writer { from_reader, pool: pool.clone(), spool, counters: counters.clone() };
        let writer = Builder::new()
            .name("log-write".into())
            .spawn(move || writer.run())
            .map_err(|error| SessionError::new("not_started", error.to_string(), ""))?;
        say(control, &LinkMessage::Accept { session: number, port, secret: encode_secret(&secret) })?;
        let now = monotonic();
        Ok(move |control, peer| Self {
            control,
            options,
            peer,
            link: LinkReceiver::new(meta.interfaces.len(), meta.started_ns),
            blocks: meta.interfaces.iter().map(|_| None).collect(),
            meta,
            folder,
            keys,
            any_source: options.key.is_some(),
            number,
            socket,
            pool,
            to_writer,
            writer,
            counters,
            ledger: Ledger::default(),
            own: Ledger::default(),
            marks: Vec::new(),
            refused_datagrams: 0,
            longest_bytes: 0,
            payload: Vec::new(),
            began: now,
            heard: now,
            arrived: now,
            finished: None,
        })
    }

    /// Takes datagrams until the capture ends.
    fn run(mut self, seat: &Seat) -> Logged {
        let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, true);
        let (mut flush, mut progress) = (self.began, self.began);
        // Since when it is ending, and as what.
        let mut ending: Option<(Nanos, End)> = None;
        loop {
            let now = monotonic();
            // An error is of something that was sent, and here nothing is.
            let _ = self.socket.receive_until(&mut slots, now + LOOK_EVERY);
            let now = monotonic();
            for packet in slots.packets() {
                let known = self.any_source || packet.source.is_none_or(|from| from.ip().to_canonical() == self.peer);
                for datagram in packet.segments() {
                    self.take_datagram(now, datagram, known);
                }
            }
            // One event a round, or a capture that never stops talking would keep datagrams waiting.
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
                let message = LinkMessage::Progress(self.progress());
                let said = say(&mut self.control, &message);
                ending = said.err().map(|error| (now, End::Vanished(error.message)));
            }
            let quiet_since = |from: Nanos| now.saturating_sub(self.arrived.max(from));
            match &ending {
                None => {}
                Some((since, End::Finished)) => {
                    let whole = self.finished.is_some_and(|(datagrams, ..)| self.link.is_settled(datagrams));
                    if whole || quiet_since(*since) >= TAIL_QUIET || now >= *since + TAIL_MOST {
                        break;
                    }
                }
                Some((since, End::Vanished(_))) if quiet_since(*since) < LOST_QUIET && now < *since + TAIL_MOST => {}
                Some(_) => break,
            }
        }
        self.end(ending.map_or(End::Stopped, |(_, end)| end))
    }

    fn take_datagram(&mut self, now: Nanos, datagram: &[u8], known: bool) {
        let mut payload = std::mem::take(&mut self.payload);
        match self.keys.open(self.number, datagram, &mut payload).filter(|_| known) {
            Some(sequence) => self.take_payload(now, sequence, &payload, datagram.len() as u32),
            None => self.refused_datagrams += 1,
        }
        self.payload = payload;
    }

    fn take_payload(&mut self, now: Nanos, sequence: u64, payload: &[u8], bytes: u32) {
        self.heard = now;
        if sequence >= FIRST_PROBE {
            if bytes > self.longest_bytes {
                self.longest_bytes = bytes;
                // A connection that is lost shows when it is read.
                let _ = say(&mut self.control, &LinkMessage::Heard { bytes });
            }
            return;
        }
        self.arrived = now;
        if let Arrival::Heads(heads) = self.link.handle(now, sequence, payload) {
            let Self { blocks, pool, to_writer, own, ledger, counters, .. } = self;
            store(&heads, blocks, pool, to_writer, |gap| {
                counters.dropped_at(gap.place, gap.packets);
                own.drop_packets(gap, JOINED_NS);
                ledger.drop_packets(gap, JOINED_NS);
                let _ = to_writer.send(ToWriter::Ledger(Ledger {
                    dropped_packets: [(gap.place, gap.packets)].into(),
                    gaps: vec![gap],
                    ..Ledger::default()
                }));
            });
        }
    }

    /// Takes the next event, if there is one; how the capture ends, where it does.
    fn take_event(&mut self, now: Nanos, seat: &Seat) -> Option<End> {
        match seat.receiver.try_recv() {
            Ok(Event::Control(bytes)) => {
                self.heard = now;
                let taken = self.control.handle_bytes(&bytes);
                while let Some(message) = self.control.channel.poll_message() {
                    if let Some(end) = self.take_message(message) {
                        return Some(end);
                    }
                }
                taken.err().map(|error| End::Vanished(error.to_string()))
            }
            Ok(Event::ControlLost(why)) => Some(End::Vanished(why)),
            Ok(Event::Interrupt | Event::Abort) => Some(End::Stopped),
            _ if now >= self.heard.saturating_add(PEER_SILENCE) => {
                Some(End::Vanished(format!("it said nothing for {PEER_SILENCE}")))
            }
            _ if self.is_full() => Some(End::Full),
            _ => None,
        }
    }

    fn is_full(&self) -> bool {
        let written = self.counters.written_bytes.load(Ordering::Relaxed);
        self.options.bytes_most.is_some_and(|most| written >= most.0)
    }

    fn take_message(&mut self, message: Message) -> Option<End> {
        let message = match message {
            Message::LogLink { text } => serde_json::from_str(&text).ok(),
            Message::Alive => return None,
            Message::Error(error) => return Some(End::Vanished(error.of_peer().message)),
            Message::Goodbye => return Some(End::Vanished("it left without a last word".into())),
            _ => None,
        };
        match message {
            Some(LinkMessage::Part { ledger }) => {
                self.ledger.add(&ledger);
                let _ = self.to_writer.send(ToWriter::Ledger(ledger));
                None
            }
            Some(LinkMessage::Mark { mark }) => {
                if self.marks.len() < MARKS_MOST {
                    self.marks.push(mark);
                    let _ = self.to_writer.send(ToWriter::Mark(mark));
                }
                None
            }
            Some(LinkMessage::Finished { datagrams, heads, latest_ns }) => {
                self.finished = Some((datagrams, heads, latest_ns));
                Some(End::Finished)
            }
            _ => Some(End::Vanished("it sent what has no place here".into())),
        }
    }

    /// Hands on all that there is.
    fn flush(&mut self) {
        for block in &mut self.blocks {
            if let Some(block) = block.take_if(|block| !block.is_empty()) {
                let _ = self.to_writer.send(ToWriter::Block(block));
            }
        }
        let part = self.link.take_part();
        if !part.is_empty() {
            self.ledger.add(&part);
            self.own.add(&Ledger { seen_packets: 0, ..part.clone() });
            let _ = self.to_writer.send(ToWriter::Ledger(part));
        }
        let _ = self.to_writer.send(ToWriter::Tick(self.link.watermark_ns()));
    }

    fn progress(&self) -> LinkProgress {
        let counts = self.link.counts();
        LinkProgress {
            received_datagrams: counts.datagrams,
            lost_datagrams: counts.lost_datagrams,
            lost_packets: counts.lost_heads,
            written_packets: self.counters.written_packets.load(Ordering::Relaxed),
            disk_dropped_packets: self.counters.dropped_packets(),
            written_bytes: self.counters.written_bytes.load(Ordering::Relaxed),
            watermark_ns: self.link.watermark_ns(),
        }
    }

    /// Closes the files and says the last word.
    fn end(mut self, end: End) -> Logged {
        let end = match (self.link.finish(self.finished), end) {
            (false, End::Finished) => End::Vanished("its last word does not fit what came".into()),
            (_, end) => end,
        };
        self.flush();
        if let End::Vanished(_) = end {
            let _ = self.to_writer.send(ToWriter::Cut);
        }
        let socket_dropped = self.socket.memory().map_or(0, |memory| memory.drops);
        drop(self.to_writer);
        // A thread of ours that panicked leaves nothing to tell but what the counters say.
        let written = self.writer.join().unwrap_or_default();
        self.ledger.add(&written.ledger);
        self.own.add(&written.ledger);
        self.ledger.written_packets = self.counters.written_packets.load(Ordering::Relaxed);
        let counts = self.link.counts();
        let progress = LinkProgress {
            received_datagrams: counts.datagrams,
            lost_datagrams: counts.lost_datagrams,
            lost_packets: counts.lost_heads,
            written_packets: self.ledger.written_packets,
            disk_dropped_packets: self.counters.dropped_packets(),
            written_bytes: self.counters.written_bytes.load(Ordering::Relaxed),
            watermark_ns: self.link.watermark_ns(),
        };
        match &end {
            End::Finished => {
                self.own.gaps.truncate(GAPS_TOLD);
                let _ = say(&mut self.control, &LinkMessage::Closed { progress, ledger: self.own });
            }
            End::Stopped | End::Full => {
                let _ = say(&mut self.control, &LinkMessage::Progress(progress));
                let error = match end {
                    End::Full => SessionError::new(
                        "full",
                        "it takes no more of this capture",
                        "give `longhaul log` a larger --bytes-cap",
                    ),
                    _ => SessionError::new("stopped", "it was stopped there", ""),
                };
                fail(&mut self.control, error);
            }
            End::Vanished(_) => {}
        }
        Logged {
            meta: self.meta,
            end,
            duration: monotonic().saturating_sub(self.began),
            ledger: self.ledger,
            counts,
            refused_datagrams: self.refused_datagrams,
            socket_dropped_datagrams: socket_dropped.into(),
            files: written.files,
            folder: self.folder,
            files_removed: written.files_removed,
            written_bytes: progress.written_bytes,
            marks: self.marks,
            disk_error: written.disk_error,
        }
    }
}

/// Marks that a capture may set.
const MARKS_MOST: usize = 100_000;

/// Puts heads into the block of their interface. Where all blocks wait for the disk they are dropped, which `dropped` is told.
fn store(
    heads: &Payload<'_>,
    blocks: &mut [Option<PacketBlock>],
    pool: &Pool,
    to_writer: &SyncSender<ToWriter>,
    dropped: impl FnOnce(Gap),
) {
    let span = heads.span;
    let Some(own) = blocks.get_mut(usize::from(span.interface)).filter(|_| span.count > 0) else { return };
    if let Some(full) = own.take_if(|block| block.len() >= BLOCK_BYTES) {
        let _ = to_writer.send(ToWriter::Block(full));
    }
    if own.is_none() {
        *own = pool.take().map(|mut block| {
            block.reset(span.interface);
            block
        });
    }
    let Some(block) = own else {
        let (from_ns, to_ns, packets) = (span.first_ns, span.last_ns, span.count.into());
        return dropped(Gap { place: Place::Writer, interface: Some(span.interface), from_ns, to_ns, packets });
    };
    let mut packets = heads.packets();
    // They were looked over when they came.
    while let Ok(Some(packet)) = packets.next_raw() {
        block.push_raw(&packet);
    }
}

fn say(control: &mut Control, message: &LinkMessage) -> Result<(), SessionError> {
    let lost = |why: String| SessionError::new("control_lost", why, "");
    // Our own types serialize.
    let message = Message::LogLink { text: serde_json::to_string(message).expect("plain data") };
    control.channel.send(&message).map_err(|error| lost(error.to_string()))?;
    control.transmit().map_err(|error| lost(error.to_string()))
}

fn wait_for_open(control: &mut Control, seat: &Seat) -> Result<Open, SessionError> {
    let deadline = monotonic() + OPEN_PATIENCE;
    let lost = |why: String| SessionError::new("control_lost", why, "");
    loop {
        match control.channel.poll_message() {
            Some(Message::LogLink { text }) => {
                return match serde_json::from_str(&text) {
                    Ok(LinkMessage::Open(open)) => Ok(*open),
                    _ => Err(SessionError::new("protocol", "what it says first is not what it captures", "")),
                };
            }
            Some(Message::Alive) => continue,
            Some(_) => {
                let text = "this is a logging host, which takes captures and answers no tests";
                return Err(SessionError::new("logging_host", text, "start `longhaul serve` for tests"));
            }
            None => {}
        }
        match seat.receiver.recv_timeout(deadline.saturating_sub(monotonic()).into()) {
            Ok(Event::Control(bytes)) => control
                .handle_bytes(&bytes)
                .map_err(|error| SessionError::new(error.code(), error.to_string(), error.remedy()))?,
            Ok(Event::ControlLost(why)) => return Err(lost(why)),
            Ok(Event::Interrupt | Event::Abort) => return Err(interrupted()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(lost("it does not say what it captures".into()));
            }
        }
    }
}

/// A socket for datagrams at the address that the capture connected to: at the port of the control connection, so that firewalls need
/// know but one, or where another capture has that at any.
fn data_socket(own: SocketAddr) -> Result<UdpReceiver, SessionError> {
    let options =
        ReceiverOptions { receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES), gro: true, timestamps: TimestampMode::App };
    let own = match own {
        SocketAddr::V6(address) if address.ip().to_ipv4_mapped().is_none() => own,
        _ => SocketAddr::new(own.ip().to_canonical(), own.port()),
    };
    let mut other = own;
    other.set_port(0);
    UdpReceiver::bind(own, &options)
        .or_else(|_| UdpReceiver::bind(other, &options))
        .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))
}

/// Makes a folder for a capture that begins now.
fn new_folder(options: &LogOptions, meta: &Meta) -> std::io::Result<PathBuf> {
    fs::create_dir_all(&options.folder)?;
    // A name is the other host's word: nothing of it may lead elsewhere.
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let host: String = meta.host.chars().map(plain).take(64).collect();
    let name = format!("{}-{}", (options.stamp)(), if host.is_empty() { "host" } else { &host });
    for number in 1..FOLDERS_MOST {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let folder = options.folder.join(format!("{name}{again}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
