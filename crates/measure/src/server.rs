//! The server: answers tests until it is told to stop.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::{Interest, Poller, readable_until};
use longhaul_session::control::{
    Admission, BusyPolicy, Caps, Message, Output, Progress, Randomness, ServerConfig, ServerSession, SessionError,
    TcpStreamId, TestEnd, Ticket, Verdict,
};
use longhaul_session::report::{EndReport, StreamSent};
use longhaul_session::secure::{Channel, Key, Side};
use longhaul_units::Nanos;

use crate::data::{Data, Place};
use crate::driver::{Control, Event, Session, drive, events, random};

/// Connections served or waiting at a time; a further one is closed at once.
const CONNECTIONS_MOST: usize = 64;
/// After a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks whether the only session has ended.
const ONCE_LOOK: Nanos = Nanos::from_millis(20);
/// How long sessions have to say goodbye when the server goes down.
const GOODBYE: Duration = Duration::from_secs(2);

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The key that clients must have; `None` for `--no-auth`.
    pub key: Option<Key>,
    /// What a client may have.
    pub caps: Caps,
    /// Tests at the same time.
    pub at_once: usize,
    /// What becomes of the others.
    pub policy: BusyPolicy,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ServeOptions,
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    admission: Admission,
    /// The sessions there are, to be told when a place is free or the server goes down.
    sessions: HashMap<u64, Sender<Event>>,
    next: u64,
}

impl Shared {
    fn places<T>(&self, work: impl FnOnce(&mut Places) -> T) -> T {
        // What is in it stays right whatever panicked while it held the lock: single insertions and removals.
        work(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Server {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Where it is taken or not this host's.
    pub fn bind(address: SocketAddr, options: ServeOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let admission = Admission::new(options.at_once, options.policy);
        let places = Mutex::new(Places { admission, sessions: HashMap::new(), next: 0 });
        Ok(Self { listener, shared: Arc::new(Shared { options, places }) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, if any, or for one test where `once`. `log` is told of each test's end.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn run(
        &self,
        stop: Option<Stop>,
        once: bool,
        log: impl Fn(&Ended) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let poller = Poller::new()?;
        poller.add(&self.listener, 0, Interest::Readable)?;
        if let Some(stop) = stop {
            poller.add(stop, 1, Interest::Readable)?;
        }
        let log = Arc::new(log);
        let mut threads = Vec::new();
        while !requested(stop) {
            drop(poller.wait(None)?);
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => {
                    // Of descriptors there are none left, for one: the connection stays readable.
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let Some(seat) = Seat::take(&self.shared) else { continue };
            let log = Arc::clone(&log);
            let thread = std::thread::Builder::new().name("session".into()).spawn(move || {
                let result = serve(stream, peer, &seat);
                log(&Ended { peer, result });
            });
            // Without a thread the connection is closed, as beyond the most.
            let Ok(thread) = thread else { continue };
            threads.retain(|thread: &std::thread::JoinHandle<()>| !thread.is_finished());
            threads.push(thread);
            if once {
                self.wait_for_one(stop, &threads)?;
                break;
            }
        }
        self.shared.places(|places| {
            for session in places.sessions.values() {
                let _ = session.send(Event::Interrupt);
            }
        });
        let until = std::time::Instant::now() + GOODBYE;
        while threads.iter().any(|thread| !thread.is_finished()) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the only session has ended, or `stop`.
    fn wait_for_one(&self, stop: Option<Stop>, threads: &[std::thread::JoinHandle<()>]) -> std::io::Result<()> {
        while threads.iter().any(|thread| !thread.is_finished()) && !requested(stop) {
            match stop {
                Some(stop) => drop(readable_until(stop, Some(monotonic() + ONCE_LOOK))?),
                None => std::thread::sleep(Duration::from_nanos(ONCE_LOOK.0)),
            }
        }
        Ok(())
    }
}

/// Whether `stop`, if any, was asked for.
fn requested(stop: Option<Stop>) -> bool {
    stop.is_some_and(|stop| stop.requested().is_some())
}

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    /// The client.
    pub peer: SocketAddr,
    /// Its test, or why there was none.
    pub result: Result<TestEnd, SessionError>,
}

fn serve(stream: TcpStream, peer: SocketAddr, seat: &Seat) -> Result<TestEnd, SessionError> {
    let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
    stream.set_nonblocking(false).map_err(io)?;
    let own = stream.local_addr().map_err(io)?.ip();
    let options = &seat.shared.options;
    let channel = match &options.key {
        Some(key) => Channel::keyed(Side::Server, key, random()?),
        None => Channel::plain(Side::Server),
    };
    let mut control = Control::new(stream, channel, &seat.sender).map_err(io)?;
    control.establish(&seat.receiver)?;
    let config = ServerConfig { peer: canonical(peer.ip()), caps: options.caps };
    let session = ServerSession::new(monotonic(), config, Randomness(random()?));
    let mut session = Serving { session, shared: Arc::clone(&seat.shared), ticket: None, ends: Nanos::ZERO };
    drive(&mut session, control, &seat.receiver, &seat.sender, Place::Server { own, peer: peer.ip() }, |_| {})
}

/// An IPv4 address is one, however a socket of both families shows it.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A session's place among the others, given back when dropped.
struct Seat {
    shared: Arc<Shared>,
    number: u64,
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Seat {
    /// A seat for one more; `None` where all are taken.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let (sender, receiver) = events();
        let number = shared.places(|places| {
            places.next += 1;
            (places.sessions.len() < CONNECTIONS_MOST).then(|| {
                places.sessions.insert(places.next, sender.clone());
                places.next
            })
        })?;
        Some(Self { shared: Arc::clone(shared), number, sender, receiver })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.places(|places| {
            places.sessions.remove(&self.number);
        });
    }
}

struct Serving {
    session: ServerSession,
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
    ends: Nanos,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.places(|places| {
                places.admission.leave(ticket);
                for session in places.sessions.values() {
                    let _ = session.send(Event::AskAgain);
                }
            });
        }
    }
}

impl Session for Serving {
    fn handle_message(&mut self, now: Nanos, message: Message) {
        self.session.handle_message(now, message);
    }
    fn handle_data_opened(&mut self, now: Nanos, data: &mut Data) {
        self.session.handle_data_opened(now, data.ports(), data.take_warnings());
    }
    fn handle_data_failed(&mut self, now: Nanos, error: SessionError) {
        self.session.handle_data_failed(now, error);
    }
    fn handle_data_probe(&mut self, now: Nanos, _: u8, from: SocketAddr, bytes: &[u8]) {
        let from = SocketAddr::new(canonical(from.ip()), from.port());
        self.session.handle_data_probe(now, from, bytes);
    }
    fn handle_data_hello(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> Option<TcpStreamId> {
        self.session.handle_data_hello(now, from, bytes)
    }
    fn handle_sending_finished(&mut self, now: Nanos, streams: Vec<StreamSent>) {
        self.session.handle_sending_finished(now, streams);
    }
    fn handle_progress(&mut self, now: Nanos, progress: Progress) {
        self.session.handle_progress(now, progress);
    }
    fn handle_arrivals(&mut self, now: Nanos) {
        self.session.handle_arrivals(now);
    }
    fn handle_drained(&mut self, now: Nanos) {
        self.session.handle_drained(now);
    }
    fn handle_report(&mut self, now: Nanos, report: EndReport) {
        self.session.handle_report(now, report);
    }
    fn handle_interrupt(&mut self, now: Nanos) {
        self.session.handle_shutdown(now);
    }
    fn handle_connection_lost(&mut self, error: SessionError) {
        self.session.handle_connection_lost(error);
    }
    fn handle_timeout(&mut self, now: Nanos) {
        self.session.handle_timeout(now);
    }
    fn handle_admission(&mut self, now: Nanos, longest: Option<Nanos>) {
        let verdict = self.shared.places(|places| match (longest, self.ticket) {
            (Some(longest), None) => {
                self.ends = now.saturating_add(longest);
                let (ticket, verdict) = places.admission.ask(now, self.ends);
                self.ticket = Some(ticket);
                Some(verdict)
            }
            (_, Some(ticket)) => places.admission.ask_again(ticket, self.ends),
            (None, None) => None,
        });
        if let Some(verdict) = verdict {
            if matches!(verdict, Verdict::Busy { .. }) {
                self.ticket = None;
            }
            self.session.handle_admission(now, verdict);
        }
    }
    fn poll_output(&mut self, now: Nanos) -> Option<Output> {
        self.session.poll_output(now)
    }
    fn poll_timeout(&self) -> Option<Nanos> {
        self.session.poll_timeout()
    }
}
