//! A control connection: how it is made, the thread that reads it, the encrypted channel over it, the signals that end it.
//!
//! Whoever serves one waits for events in a queue. Those of the connection are [`ControlEvent`]; a queue may hold others, too
//! ([`HasControl`]).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use longhaul_channel::{Channel, ChannelError, FrameError, Standing};
use longhaul_kernel::address::at_port;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::tcp::{TcpOpenError, TcpOptions, acknowledged_within, connect_to, set_reset_on_close};
use longhaul_kernel::wait::{Poller, readable_until};
use longhaul_session::{Message, SessionError};
use longhaul_units::Nanos;

/// How long a host may take to accept the control connection.
const CONNECT_PATIENCE: Nanos = Nanos::from_secs(10);
/// How long after an address the next one is tried, if the first has not answered (RFC 8305 §5).
const NEXT_ADDRESS: Nanos = Nanos::from_millis(250);

/// A control connection that does not accept a message, or a piece of a report, within this time is dead.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(10);
/// After a signal the other end gets this time to accept it: who wants to stop waits for nobody who does not read.
const STOPPED_PATIENCE: Nanos = Nanos::from_secs(1);
/// The handshake of the channel ends within this time.
const HANDSHAKE_PATIENCE: Nanos = Nanos::from_secs(10);

/// How often to look for a signal where nothing waits for it.
const ANOTHER_SIGNAL: Nanos = Nanos::from_millis(50);

/// What can happen to a control connection.
#[derive(Debug)]
pub enum ControlEvent {
    /// Bytes arrived.
    Bytes(Vec<u8>),
    /// The connection was closed or broke: why.
    Lost(String),
    /// The user or the operator wants the work to end.
    Interrupt,
    /// The work ends now, without a result.
    Abort,
}

/// An event that may be a control connection's.
pub trait HasControl: From<ControlEvent> + Send + 'static {
    /// The control connection's event; `None` if this is another.
    fn into_control(self) -> Option<ControlEvent>;
}

impl HasControl for ControlEvent {
    fn into_control(self) -> Option<ControlEvent> {
        Some(self)
    }
}

/// How long sent data may stay unacknowledged after a session: the kernel keeps it in memory, in addition to the data of the next one.
pub const ACKNOWLEDGED_WITHIN: Nanos = Nanos::from_secs(3);

/// One end of a control connection.
pub struct Control {
    stream: TcpStream,
    channel: Channel<Message>,
    /// Lets the reading thread continue. It reads no more than was handled, so that a peer cannot fill this end's memory.
    go_on: SyncSender<()>,
    patience: Nanos,
    /// Cuts the patience.
    stop: Option<Stop>,
    /// Whether anything arrived.
    heard: bool,
    /// The other end closed before anything arrived.
    left_silently: bool,
    /// Of a peer that must have a key to send its first message, until that comes.
    proven: Option<Arc<Standing>>,
    /// Of a peer that sends short messages until it keeps its place.
    trusted: Option<Arc<Standing>>,
    /// Its end resets the connection.
    is_reset: bool,
}

impl Control {
    /// Reads `stream` in a thread, which sends what arrives to `events` and ends with the connection. `stream` is reset if this process is
    /// killed.
    ///
    /// # Errors
    /// Where the system has no thread or descriptor left.
    pub fn new<E: HasControl>(
        stream: TcpStream,
        channel: Channel<Message>,
        events: &Sender<E>,
    ) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        set_reset_on_close(&stream, true)?;
        let mut reading = stream.try_clone()?;
        let events = events.clone();
        let (go_on, may_go_on) = sync_channel(1);
        thread::Builder::new().name("control".into()).spawn(move || {
            let mut buffer = [0; 16 << 10];
            loop {
                let event = match reading.read(&mut buffer) {
                    Ok(0) => ControlEvent::Lost("closed by the other end".into()),
                    Ok(count) => ControlEvent::Bytes(buffer[..count].to_vec()),
                    // It was killed.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                        ControlEvent::Lost("closed by the other end".into())
                    }
                    Err(error) => ControlEvent::Lost(error.to_string()),
                };
                let over = matches!(event, ControlEvent::Lost(_));
                if events.send(event.into()).is_err() || over || may_go_on.recv().is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            stream,
            channel,
            go_on,
            patience: WRITE_PATIENCE,
            stop: None,
            heard: false,
            left_silently: false,
            proven: None,
            trusted: None,
            is_reset: false,
        })
    }

    /// Has the end of this reset the connection, unless [`end_in_time`](Self::end_in_time) ends it.
    pub(crate) fn reset_at_end(&mut self) {
        self.is_reset = true;
    }

    /// The own address and port.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// A peer that does not accept a message within `patience` is dead.
    pub fn set_patience(&mut self, patience: Nanos) {
        self.patience = patience;
    }

    /// After a signal of `stop`, a peer that does not accept a message within a second is dead.
    pub fn obey(&mut self, stop: Option<Stop>) {
        self.stop = stop;
    }

    /// Queues a message for [`Self::transmit`].
    ///
    /// # Errors
    /// It is too long.
    pub fn send(&mut self, message: &Message) -> Result<(), FrameError> {
        self.channel.send(message)
    }

    /// The first message that arrives proves the key to `standing`: with a key, only a peer that has it can send one. A handshake proves
    /// nothing, as anyone can replay a recorded one.
    pub(crate) fn prove_to(&mut self, standing: Arc<Standing>) {
        self.proven = Some(standing);
    }

    /// Takes long messages once `standing` keeps its place.
    pub(crate) fn trust_once(&mut self, standing: Arc<Standing>) {
        self.trusted = Some(standing);
    }

    /// A message that arrived.
    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.channel.poll_message()?;
        if let Some(proven) = self.proven.take() {
            proven.prove();
        }
        Some(message)
    }

    /// Handles bytes that arrived; [`Self::poll_message`] then has their messages.
    ///
    /// # Errors
    /// Where they do not belong to this protocol, or are not the peer's.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        self.heard = true;
        if self.trusted.take_if(|standing| standing.is_kept()).is_some() {
            self.channel.trust();
        }
        let handled = self.channel.handle_bytes(bytes);
        // One read waits at a time, so there is room; a thread that has ended needs none.
        let _ = self.go_on.try_send(());
        handled
    }

    /// Writes all that is queued, within the patience that this connection was made with.
    ///
    /// # Errors
    /// Where the connection is lost, or the peer does not read.
    pub fn transmit(&mut self) -> std::io::Result<()> {
        let begun = monotonic();
        let mut stopped = None;
        while let Some(bytes) = self.channel.poll_transmit() {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let now = monotonic();
                if self.stop.is_some_and(|stop| stop.requested().is_some()) {
                    stopped.get_or_insert(now + STOPPED_PATIENCE);
                }
                let deadline = begun + self.patience;
                let left = stopped.map_or(deadline, |stopped| deadline.min(stopped)).saturating_sub(now);
                if left == Nanos::ZERO {
                    return Err(std::io::Error::new(ErrorKind::TimedOut, "the other end does not read"));
                }
                // A signal does not end the call: another thread may take it.
                let wait = if self.stop.is_some() { left.min(ANOTHER_SIGNAL) } else { left };
                self.stream.set_write_timeout(Some(wait.into()))?;
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
    ///
    /// # Errors
    /// Why it is not, with what to do.
    pub fn establish<E: HasControl>(&mut self, events: &Receiver<E>) -> Result<(), SessionError> {
        self.establish_until(monotonic() + HANDSHAKE_PATIENCE, events)
    }

    /// The same by `deadline`, whatever arrives and however often.
    fn establish_until<E: HasControl>(&mut self, deadline: Nanos, events: &Receiver<E>) -> Result<(), SessionError> {
        let lost = |why: String| SessionError::new("control_lost", why, "is a longhaul server listening there?");
        let late = || lost("the other end does not answer".into());
        loop {
            self.transmit().map_err(|error| lost(format!("the control connection broke: {error}")))?;
            if self.channel.is_established() {
                return Ok(());
            }
            // Before the next event: one that waits already would be taken after the deadline, too.
            let left = deadline.saturating_sub(monotonic());
            if left == Nanos::ZERO {
                return Err(late());
            }
            match events.recv_timeout(left.into()).map(E::into_control) {
                Ok(Some(ControlEvent::Bytes(bytes))) => {
                    if let Err(error) = self.handle_bytes(&bytes) {
                        let _ = self.transmit();
                        return Err(error.into());
                    }
                }
                Ok(Some(ControlEvent::Lost(why))) => {
                    self.left_silently = !self.heard;
                    return Err(lost(format!("the control connection was lost in the handshake: {why}")));
                }
                Ok(Some(ControlEvent::Interrupt | ControlEvent::Abort)) => return Err(interrupted()),
                Ok(None) => {}
                Err(_) => return Err(late()),
            }
        }
    }

    /// Whether the other end closed the connection and had said nothing.
    pub(crate) fn left_silently(&self) -> bool {
        self.left_silently
    }

    /// Closes the connection. The reading thread wakes up and ends.
    pub fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Ends the connection and leaves nothing in the kernel, whatever the other end does. Resets the connection unless the other end acknowledges all
    /// that was sent, also the end of the stream, `within` this time. `goes_on` waits for the time that it is given and tells whether to go on. A
    /// connection that ends otherwise leaves in the kernel what was sent, and what arrived out of order, for minutes if the other end wants that.
    pub(crate) fn end_in_time(mut self, within: Nanos, goes_on: impl FnMut(Nanos) -> bool) {
        self.hang_up();
        self.is_reset = !acknowledged_within(&self.stream, within, goes_on);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.hang_up();
        // What is queued still goes out.
        if !self.is_reset {
            let _ = set_reset_on_close(&self.stream, false);
        }
    }
}

/// A thread that turns signals into events. It ends when this is dropped.
#[derive(Debug)]
pub struct Signals {
    thread: Option<JoinHandle<()>>,
    /// Its other end becomes readable when this one closes.
    going: Option<UnixStream>,
}

impl Signals {
    /// Sends [`ControlEvent::Interrupt`] at the first signal of `stop`, [`ControlEvent::Abort`] at the second.
    ///
    /// # Errors
    /// Where the system has no thread or descriptor left.
    pub fn watch<E: HasControl>(stop: Stop, events: Sender<E>) -> std::io::Result<Self> {
        let (going, over) = UnixStream::pair()?;
        let poller = Poller::new()?;
        poller.add(stop, 0)?;
        poller.add(&over, 1)?;
        let thread = thread::Builder::new().name("signals".into()).spawn(move || {
            if poller.wait(None).is_err() || stop.requested().is_none() {
                return;
            }
            let _ = events.send(ControlEvent::Interrupt.into());
            while stop.count() < 2 {
                // A signal's descriptor stays readable from the first one on.
                match readable_until(&over, Some(monotonic() + ANOTHER_SIGNAL)) {
                    Ok(false) => {}
                    Ok(true) | Err(_) => return,
                }
            }
            let _ = events.send(ControlEvent::Abort.into());
        })?;
        Ok(Self { thread: Some(thread), going: Some(going) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        drop(self.going.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What to do where none of these addresses answers.
pub type Remedy = fn(&[SocketAddr]) -> String;

/// The address at which a server listens to be found at any of `addresses`.
pub fn any_of_family(addresses: &[SocketAddr]) -> IpAddr {
    if addresses.iter().all(SocketAddr::is_ipv6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        // A host with an address of each family is found by one.
        Ipv4Addr::UNSPECIFIED.into()
    }
}

/// Connects to the first of `addresses` that accepts, from the own address `from` where that is some, whatever its port. They are tried
/// side by side, each a little after the one before (RFC 8305 §5). A signal ends the attempts.
///
/// # Errors
/// Why there is no connection, with `remedy`, which says what to do where nobody answers.
pub fn connect(
    addresses: &[SocketAddr],
    from: Option<SocketAddr>,
    stop: Option<Stop>,
    remedy: Remedy,
) -> Result<TcpStream, SessionError> {
    let from = from.map(|own| at_port(own, 0));
    // An own address has a family.
    let fits = |to: &&SocketAddr| from.is_none_or(|from| from.is_ipv4() == to.is_ipv4());
    let addresses: Vec<SocketAddr> = addresses.iter().filter(fits).copied().collect();
    let (sender, connected) = channel();
    let mut failed: Vec<(SocketAddr, TcpOpenError)> = Vec::new();
    let (mut begun, mut next) = (0, monotonic());
    while failed.len() < addresses.len() {
        if let Some(address) = addresses.get(begun).copied()
            && (monotonic() >= next || failed.len() == begun)
        {
            let sender = sender.clone();
            // It ends by itself, at the latest after the patience.
            let attempt = move || {
                let made = connect_to(address, from, &TcpOptions::default(), monotonic() + CONNECT_PATIENCE);
                let _ = sender.send(made.map_err(|error| (address, error)));
            };
            let no_thread =
                |error: std::io::Error| SessionError::new("unreachable", error.to_string(), remedy(&addresses));
            thread::Builder::new().name("connect".into()).spawn(attempt).map_err(no_thread)?;
            (begun, next) = (begun + 1, monotonic() + NEXT_ADDRESS);
        }
        match connected.recv_timeout(ANOTHER_SIGNAL.into()) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(why)) => failed.push(why),
            Err(_) if stop.is_some_and(|stop| stop.requested().is_some()) => return Err(interrupted()),
            Err(_) => {}
        }
    }
    Err(unreachable(&failed, remedy))
}

/// Why none of the addresses accepted a connection.
fn unreachable(failed: &[(SocketAddr, TcpOpenError)], remedy: Remedy) -> SessionError {
    let said = |(address, error): &(SocketAddr, TcpOpenError)| match error {
        TcpOpenError::Step { source, .. } => format!("{address}: {source}"),
        error => error.to_string(),
    };
    let all: Vec<String> = failed.iter().map(said).collect();
    let message = if all.is_empty() {
        "cannot connect: no address of the server has the family of the local address".to_owned()
    } else {
        format!("cannot connect: {}", all.join("; "))
    };
    let nowhere = |(_, error): &(SocketAddr, TcpOpenError)| match error {
        TcpOpenError::Step { source, .. } => {
            matches!(source.kind(), ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        }
        _ => false,
    };
    let remedy = match failed {
        [(_, TcpOpenError::NotBound { .. }), ..] => "use an address of this host: ip address shows them".to_owned(),
        // Nobody has been asked yet.
        [(address, _), ..] if failed.iter().all(nowhere) => {
            format!("check the address, that the host is up, and the route: ip route get {}", address.ip())
        }
        _ => remedy(&failed.iter().map(|(address, _)| *address).collect::<Vec<_>>()),
    };
    SessionError::new("unreachable", message, remedy)
}

/// The error of what a signal ended.
pub fn interrupted() -> SessionError {
    SessionError::new("interrupted", "interrupted before there was a result", "")
}

/// `N` bytes from the operating system's random source.
///
/// # Errors
/// Where it gives none.
pub fn random<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| SessionError::new("random", format!("no random numbers from the system: {error}"), ""))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use longhaul_channel::Role;
    use longhaul_kernel::tcp::goes_on_after;
    use longhaul_session::Message;
    use nix::sys::signal::{Signal, raise};

    use super::*;

    /// An end of a control connection with its events, and the other end's socket.
    fn pair() -> (Control, Receiver<ControlEvent>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let (sender, receiver) = channel();
        let mut control = Control::new(near, Channel::plain(Role::Server), &sender).unwrap();
        control.handle_bytes(b"longhaul/1 plain").unwrap();
        (control, receiver, far)
    }

    #[test]
    fn a_peer_that_reads_slowly_does_not_hold_a_session() {
        let (mut control, _events, far) = pair();
        control.patience = Nanos::from_millis(500);
        queue(&mut control);
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

    /// Queues more than the kernel takes for who does not read.
    fn queue(control: &mut Control) {
        for _ in 0..100 {
            control.channel.send(&Message::Report { text: "x".repeat(256 << 10), last: false }).unwrap();
        }
    }

    /// A signal while it waits, which another thread takes.
    #[test]
    fn who_is_to_stop_waits_a_second_for_a_peer_that_does_not_read() {
        let (mut control, _events, far) = pair();
        control.set_patience(Nanos::from_secs(3600));
        control.obey(Some(Stop::install().unwrap()));
        queue(&mut control);
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(control.transmit().map_err(|error| error.kind())));
        assert!(ended.recv_timeout(Duration::from_millis(300)).is_err(), "nobody asked it to stop");
        let began = Instant::now();
        raise(Signal::SIGINT).unwrap();
        let transmitted = ended.recv_timeout(Duration::from_secs(60));
        Stop::release();
        assert_eq!(transmitted, Ok(Err(ErrorKind::TimedOut)));
        let took = began.elapsed();
        assert!((1.0..10.0).contains(&took.as_secs_f64()), "{took:?}");
        drop(far);
    }

    /// Leaves no room in the kernel.
    fn fill(control: &mut Control) {
        control.patience = Nanos::from_millis(500);
        queue(control);
        assert_eq!(control.transmit().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    /// A thread of the server may have panicked.
    #[test]
    fn a_server_waits_for_nothing_where_a_connection_is_dropped() {
        let (mut control, _events, mut far) = pair();
        control.reset_at_end();
        fill(&mut control);
        let began = Instant::now();
        drop(control);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let read = std::io::copy(&mut far, &mut std::io::sink());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    /// However often the other end acknowledges a little; at once if another connection takes its seat.
    #[test]
    fn a_server_keeps_nothing_for_who_does_not_read() {
        for is_displaced in [false, true] {
            let (mut control, _events, mut far) = pair();
            fill(&mut control);
            let reader = thread::spawn(move || {
                let mut buffer = [0; 4096];
                loop {
                    match far.read(&mut buffer) {
                        Ok(0) => return None,
                        Ok(_) => thread::sleep(Duration::from_millis(20)),
                        Err(error) => return Some(error.kind()),
                    }
                }
            });
            let within = if is_displaced { Nanos::from_secs(3600) } else { Nanos::from_millis(200) };
            control.end_in_time(within, |pause| !is_displaced && goes_on_after(pause));
            assert_eq!(reader.join().unwrap(), Some(ErrorKind::ConnectionReset), "displaced: {is_displaced}");
        }
    }

    #[test]
    fn who_reads_in_time_gets_all() {
        let (mut control, _events, mut far) = pair();
        fill(&mut control);
        let reader = thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
        control.end_in_time(Nanos::from_secs(60), goes_on_after);
        assert!(reader.join().unwrap().is_ok());
    }

    /// Bytes come one by one, so that one always waits.
    #[test]
    fn a_handshake_ends_at_its_deadline_whatever_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let (sender, events) = channel();
        let mut control = Control::new(near, Channel::plain(Role::Server), &sender).unwrap();
        let preamble = b"longhaul/1 plain";
        preamble.iter().for_each(|byte| sender.send(ControlEvent::Bytes(vec![*byte])).unwrap());
        assert_eq!(control.establish_until(monotonic(), &events).unwrap_err().code, "control_lost");
        assert_eq!(events.try_iter().count(), preamble.len(), "none was taken");
        drop(far);
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
        assert!(matches!(events.recv().unwrap(), ControlEvent::Bytes(_)), "the next one comes");
    }
}
