//! The loop that drives a session: events in, outputs out.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;

use longhaul_kernel::clock::monotonic;
use longhaul_session::control::{Message, Output, Progress, SessionError, TcpStreamId, TestEnd};
use longhaul_session::report::{EndReport, StreamSent};
use longhaul_session::secure::{Channel, ChannelError};
use longhaul_units::Nanos;

use crate::data::{Data, Place};
use crate::sending::StreamOut;
use crate::tcp::TcpEvent;

/// How often arrivals are looked at once the sender is done.
const DRAIN_LOOK: Nanos = Nanos::from_millis(20);
/// A control connection that does not take a message, or a piece of a report, within this is dead.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(10);
/// The handshake of the channel ends by then.
const HANDSHAKE_PATIENCE: Nanos = Nanos::from_secs(10);

/// What can happen to a test.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes came over the control connection.
    Control(Vec<u8>),
    /// It was closed or broke.
    ControlLost(String),
    /// A datagram that is no bulk came.
    Probe { stream: u8, from: SocketAddr, bytes: Vec<u8> },
    /// A stream is sent.
    Sent(u8, Box<StreamOut>),
    /// Of the connections of a TCP test.
    Tcp(TcpEvent),
    /// The user, or the server's operator, wants it to end.
    Interrupt,
    /// The user wants it to end now, without a result.
    Abort,
    /// Somebody else's test ended: ask again whether this one may run.
    AskAgain,
}

/// Either end's session.
pub(crate) trait Session {
    fn handle_message(&mut self, now: Nanos, message: Message);
    fn handle_data_opened(&mut self, now: Nanos, data: &mut Data);
    fn handle_data_failed(&mut self, now: Nanos, error: SessionError);
    fn handle_data_probe(&mut self, now: Nanos, stream: u8, from: SocketAddr, bytes: &[u8]);
    /// A TCP connection with its first bytes: whose it is, `None` where it is to be closed.
    fn handle_data_hello(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> Option<TcpStreamId>;
    fn handle_sending_finished(&mut self, now: Nanos, streams: Vec<StreamSent>);
    fn handle_progress(&mut self, now: Nanos, progress: Progress);
    fn handle_arrivals(&mut self, now: Nanos);
    fn handle_drained(&mut self, now: Nanos);
    fn handle_report(&mut self, now: Nanos, report: EndReport);
    fn handle_interrupt(&mut self, now: Nanos);
    fn handle_connection_lost(&mut self, error: SessionError);
    fn handle_timeout(&mut self, now: Nanos);
    /// Asks for admission, or asks again.
    fn handle_admission(&mut self, now: Nanos, longest: Option<Nanos>);
    fn poll_output(&mut self, now: Nanos) -> Option<Output>;
    fn poll_timeout(&self) -> Option<Nanos>;
}

/// The control connection: bytes of a thread's own reading, through the secure channel.
pub(crate) struct Control {
    stream: TcpStream,
    pub(crate) channel: Channel,
    /// Lets the reading thread go on: it reads no more than is dealt with, so that a peer cannot fill this end's memory.
    go_on: SyncSender<()>,
    pub(crate) patience: Nanos,
}

impl Control {
    /// Reads `stream` in a thread that sends what comes to `events`; ends with the connection.
    pub(crate) fn new(stream: TcpStream, channel: Channel, events: &Sender<Event>) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut reading = stream.try_clone()?;
        let events = events.clone();
        let (go_on, may_go_on) = sync_channel(1);
        thread::Builder::new().name("control".into()).spawn(move || {
            let mut buffer = [0; 16 << 10];
            loop {
                let event = match reading.read(&mut buffer) {
                    Ok(0) => Event::ControlLost("closed by the other end".into()),
                    Ok(count) => Event::Control(buffer[..count].to_vec()),
                    Err(error) => Event::ControlLost(error.to_string()),
                };
                let over = matches!(event, Event::ControlLost(_));
                if events.send(event).is_err() || over || may_go_on.recv().is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { stream, channel, go_on, patience: WRITE_PATIENCE })
    }

    /// Deals with bytes that came.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        let taken = self.channel.handle_bytes(bytes);
        // One is waited for at a time, so there is room; a thread that has ended needs none.
        let _ = self.go_on.try_send(());
        taken
    }

    /// Writes what waits to be written, all of it within [`WRITE_PATIENCE`].
    pub(crate) fn transmit(&mut self) -> std::io::Result<()> {
        let deadline = monotonic() + self.patience;
        while let Some(bytes) = self.channel.poll_transmit() {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let left = deadline.saturating_sub(monotonic());
                if left == Nanos::ZERO {
                    return Err(std::io::Error::new(ErrorKind::TimedOut, "the other end does not read"));
                }
                self.stream.set_write_timeout(Some(left.into()))?;
                match self.stream.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    // The time is over: the deadline says so.
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Waits until the channel is established.
    pub(crate) fn establish(&mut self, events: &Receiver<Event>) -> Result<(), SessionError> {
        let deadline = monotonic() + HANDSHAKE_PATIENCE;
        let lost = |why: String| SessionError::new("control_lost", why, "is a longhaul server listening there?");
        loop {
            self.transmit().map_err(|error| lost(format!("the control connection broke: {error}")))?;
            if self.channel.is_established() {
                return Ok(());
            }
            let left = deadline.saturating_sub(monotonic());
            match events.recv_timeout(left.into()) {
                Ok(Event::Control(bytes)) => {
                    if let Err(error) = self.handle_bytes(&bytes) {
                        let _ = self.transmit();
                        return Err(SessionError::new(error.code(), error.to_string(), error.remedy()));
                    }
                }
                Ok(Event::ControlLost(why)) => {
                    return Err(lost(format!("the control connection was lost in the handshake: {why}")));
                }
                Ok(Event::Interrupt | Event::Abort) => return Err(interrupted()),
                Ok(_) => {}
                Err(_) => return Err(lost("the other end does not answer".into())),
            }
        }
    }

    /// Closes the connection; the reading thread wakes and ends.
    pub(crate) fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// What a receiver has got so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// This end's own; else the other end's.
    pub own: bool,
    /// Since the start of the test.
    pub progress: Progress,
    /// Where this end's sending flows stand, where it is the sender of that progress and this is a TCP test.
    pub sender: Option<SenderNow>,
}

/// Where the sending flows of an end stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderNow {
    /// Packets sent again since the start.
    pub retransmits: u64,
    /// Congestion windows of all flows together, bytes.
    pub cwnd_bytes: u64,
    /// Mean smoothed round-trip time of the flows.
    pub rtt_ns: u64,
}

/// When the next progress is due, on the clock that begins with the first packet.
#[derive(Debug)]
struct Interval {
    every: Nanos,
    /// Since the first packet.
    due: Nanos,
    /// When to look next.
    look: Nanos,
}

impl Interval {
    fn new(now: Nanos, every: Nanos) -> Self {
        Self { every, due: every, look: now + every }
    }

    /// Whether an interval is over, `elapsed` after the first packet; zero before it.
    fn is_over(&mut self, now: Nanos, elapsed: Nanos) -> bool {
        let over = elapsed >= self.due;
        if over {
            self.due = elapsed - Nanos(elapsed.0 % self.every.0.max(1)) + self.every;
        }
        // Before the first packet it may come at any time.
        let wait = if elapsed == Nanos::ZERO { self.every.min(DRAIN_LOOK) } else { self.due.saturating_sub(elapsed) };
        self.look = now + wait;
        over
    }
}

/// Drives `session` to its end. `live` is told of either receiver's progress.
pub(crate) fn drive(
    session: &mut impl Session,
    mut control: Control,
    events: &Receiver<Event>,
    sender: &Sender<Event>,
    place: Place,
    mut live: impl FnMut(&Live),
) -> Result<TestEnd, SessionError> {
    let mut data: Option<Data> = None;
    let mut interval: Option<Interval> = None;
    let mut draining: Option<Nanos> = None;
    let mut receiving = false;
    loop {
        while let Some(output) = session.poll_output(monotonic()) {
            let now = monotonic();
            match output {
                Output::SendMessage(message) => {
                    if control.channel.send(&message).is_err() {
                        session.handle_connection_lost(SessionError::new("protocol", "a message is too long", ""));
                    }
                }
                Output::SendProbe { stream, to, bytes } => {
                    if let Some(udp) = data.as_mut().and_then(Data::udp) {
                        udp.send_probe(stream, to, &bytes);
                    }
                }
                Output::RequestAdmission { longest } => session.handle_admission(now, Some(longest)),
                Output::OpenData(plan) => {
                    receiving = plan.receives;
                    interval = plan.parameters.interval_ns().map(|every| Interval::new(now, Nanos(every)));
                    match Data::open(plan, place, sender) {
                        Ok(opened) => {
                            let opened = data.insert(opened);
                            if opened.is_open() {
                                session.handle_data_opened(now, opened);
                            }
                        }
                        Err(error) => session.handle_data_failed(now, error),
                    }
                }
                Output::StartSending { to } => {
                    if let Some(data) = &mut data {
                        data.start_sending(&to);
                    }
                }
                Output::StopSending => {
                    if let Some(data) = &data {
                        data.stop_sending();
                    }
                }
                Output::Progress(progress) => {
                    let sender = data.as_ref().and_then(Data::sender_now);
                    live(&Live { own: false, progress, sender });
                }
                Output::PeerFinished(streams) => {
                    draining = Some(Nanos::ZERO);
                    if let Some(data) = &mut data {
                        data.peer_finished(streams);
                    }
                }
                Output::CollectReport => {
                    draining = None;
                    if let Some(data) = data.take() {
                        session.handle_report(monotonic(), data.report());
                    }
                }
                Output::Finished(end) => {
                    let _ = control.transmit();
                    return Ok(*end);
                }
                Output::Failed(error) => {
                    let _ = control.transmit();
                    return Err(error);
                }
            }
        }
        if let Err(error) = control.transmit() {
            session.handle_connection_lost(SessionError::new("control_lost", error.to_string(), ""));
            continue;
        }

        let now = monotonic();
        if let (Some(last), Some(data)) = (&mut draining, &data) {
            if data.is_drained() == Some(true) {
                draining = None;
                session.handle_drained(now);
                continue;
            }
            let arrival = data.last_arrival();
            if arrival > *last {
                *last = arrival;
                session.handle_arrivals(now);
            }
        }
        if let (true, Some(interval), Some(data)) = (receiving, &mut interval, &data)
            && now >= interval.look
        {
            let progress = data.progress();
            if interval.is_over(now, Nanos(progress.elapsed_ns)) {
                live(&Live { own: true, progress, sender: None });
                session.handle_progress(now, progress);
                continue;
            }
        }
        let mut until = session.poll_timeout().unwrap_or(Nanos::MAX);
        if until <= now {
            // Before further events, or a peer that never stops talking would put it off for ever.
            session.handle_timeout(now);
        }
        if draining.is_some() {
            until = until.min(now + DRAIN_LOOK);
        }
        if let (true, Some(interval)) = (receiving, &interval) {
            until = until.min(interval.look);
        }
        // No wait is longer than a minute, as a clock's arithmetic has an end.
        let wait = until.saturating_sub(now).min(Nanos::from_secs(60));
        match events.recv_timeout(wait.into()) {
            Err(RecvTimeoutError::Timeout) => session.handle_timeout(monotonic()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SessionError::new("internal", "the test's threads have ended", "report this"));
            }
            Ok(Event::Abort) => return Err(interrupted()),
            Ok(event) => handle(event, session, &mut control, &mut data),
        }
    }
}

fn handle(event: Event, session: &mut impl Session, control: &mut Control, data: &mut Option<Data>) {
    let now = monotonic();
    match event {
        Event::Control(bytes) => {
            let taken = control.handle_bytes(&bytes);
            while let Some(message) = control.channel.poll_message() {
                session.handle_message(now, message);
            }
            if let Err(error) = taken {
                session.handle_connection_lost(SessionError::new(error.code(), error.to_string(), error.remedy()));
            }
        }
        Event::ControlLost(why) => {
            let message = format!("the control connection was lost: {why}");
            session.handle_connection_lost(SessionError::new(
                "control_lost",
                message,
                "is the other end still running?",
            ));
        }
        Event::Probe { stream, from, bytes } => session.handle_data_probe(now, stream, from, &bytes),
        Event::Sent(stream, out) => {
            if let Some(streams) = data.as_mut().and_then(Data::udp).and_then(|udp| udp.sent(stream, *out)) {
                session.handle_sending_finished(now, streams);
            }
        }
        Event::Tcp(event) => handle_tcp(now, event, session, data),
        Event::Interrupt => session.handle_interrupt(now),
        Event::AskAgain => session.handle_admission(now, None),
        // The loop ends with it.
        Event::Abort => {}
    }
}

fn handle_tcp(now: Nanos, event: TcpEvent, session: &mut impl Session, data: &mut Option<Data>) {
    let Some(whole) = data else { return };
    let Some(tcp) = whole.tcp() else { return };
    match event {
        TcpEvent::Connected(Ok(connections)) => {
            tcp.connected(connections);
            session.handle_data_opened(now, whole);
        }
        TcpEvent::Connected(Err(error)) => session.handle_data_failed(now, error),
        TcpEvent::Hello { stream, from, bytes } => {
            // A stranger's connection ends here.
            if let Some(id) = session.handle_data_hello(now, from, &bytes) {
                tcp.admit(id, stream);
            }
        }
        TcpEvent::Sent(stream) => {
            if let Some(streams) = tcp.sent(stream) {
                session.handle_sending_finished(now, streams);
            }
        }
    }
}

pub(crate) fn interrupted() -> SessionError {
    SessionError::new("interrupted", "interrupted before there was a result", "")
}

/// A queue of events.
pub(crate) fn events() -> (Sender<Event>, Receiver<Event>) {
    channel()
}

/// 32 bytes from the operating system's random source.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| SessionError::new("random", format!("no random numbers from the system: {error}"), ""))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use longhaul_session::secure::Role;

    use super::*;

    #[test]
    fn intervals_begin_with_the_first_packet() {
        let ms = Nanos::from_millis;
        let mut interval = Interval::new(ms(0), ms(500));
        assert!(!interval.is_over(ms(500), Nanos::ZERO));
        assert_eq!(interval.look, ms(520));
        // The first packet came 100 ms ago.
        assert!(!interval.is_over(ms(520), ms(100)));
        assert_eq!(interval.look, ms(920));
        // A look that is late does not move the next one.
        assert!(interval.is_over(ms(950), ms(530)));
        assert_eq!(interval.look, ms(1_420));
        assert!(interval.is_over(ms(2_500), ms(2_080)));
        assert_eq!((interval.due, interval.look), (ms(2_500), ms(2_920)));
    }

    /// An end of a control connection with its events, and the other end's socket.
    fn pair() -> (Control, Receiver<Event>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let (sender, receiver) = events();
        let mut control = Control::new(near, Channel::plain(Role::Server), &sender).unwrap();
        control.handle_bytes(b"longhaul/1 plain").unwrap();
        (control, receiver, far)
    }

    #[test]
    fn a_peer_that_reads_slowly_does_not_hold_a_session() {
        let (mut control, _events, far) = pair();
        control.patience = Nanos::from_millis(500);
        for _ in 0..100 {
            control.channel.send(&Message::Report { text: "x".repeat(256 << 10), last: false }).unwrap();
        }
        // Each write gets something done, and all of them would take for ever. It ends with the connection.
        let reader = far.try_clone().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while (&reader).read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        assert_eq!(control.transmit().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        far.shutdown(std::net::Shutdown::Both).unwrap();
    }

    #[test]
    fn no_more_is_read_than_is_dealt_with() {
        let (mut control, events, mut far) = pair();
        // More than the kernel keeps for both sockets, so that it is known when nobody reads.
        far.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let filled = (0..10_000).take_while(|_| far.write_all(&[0; 64 << 10]).is_ok()).count();
        assert!(filled < 1_000, "{filled} times 64 KiB were taken");
        // The thread was let go once by the preamble, so two reads may wait here.
        let waiting = events.try_iter().count();
        assert!((1..=2).contains(&waiting), "{waiting} events wait");
        assert!(control.handle_bytes(&[0; 4]).is_err(), "that is no message");
        assert!(matches!(events.recv().unwrap(), Event::Control(_)), "the next one comes");
    }
}
