//! The server: answers tests until a signal.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use longhaul_channel::Key;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::tcp::{TunedBuffer, save_syn};
use longhaul_kernel::wait::sleep_until;
use longhaul_session::{
    Admission, BusyPolicy, Caps, DataEvent, EndReport, MeasurementId, Message, Output, Randomness, ServerConfig,
    ServerSession, SessionError, TestEnd, Ticket, Verdict,
};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_units::Nanos;

use crate::control::{ACKNOWLEDGED_WITHIN, Control, random};
use crate::data::{Data, ThisEnd};
use crate::driver::{Session, drive};
use crate::event::{ConnectionQueue, Event};
use crate::listening::{self, Seat, Seats, Until, listen};
use crate::tcp::{data_hello, hold_small};

pub use crate::data::DataPort;

/// How long sessions have when the server stops: to end, and then until their last messages are acknowledged ([`ACKNOWLEDGED_WITHIN`]).
const GOODBYE: Duration = Duration::from_secs(5);
/// How long a session has to end whose client goes on in another one.
const TAKEN_OVER_WITHIN: Nanos = Nanos::from_secs(2);
/// How often to look whether it has.
const TURN_LOOK: Nanos = Nanos::from_millis(2);

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The key that clients must have; `None`: any client, without encryption.
    pub key: Option<Key>,
    /// Limits of what a client may ask for.
    pub caps: Caps,
    /// Tests at the same time.
    pub at_once: usize,
    /// What to do with the others.
    pub policy: BusyPolicy,
    /// Where data arrives. A fixed port takes one test at a time.
    pub data_port: DataPort,
}

impl Default for ServeOptions {
    /// Any client, one test at a time; others are refused.
    fn default() -> Self {
        Self { key: None, caps: Caps::default(), at_once: 1, policy: BusyPolicy::Refuse, data_port: DataPort::Any }
    }
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
    seats: Arc<Seats<Event>>,
    admission: Mutex<Admission>,
    /// Where data connections go that arrive at the control port: the test that has its turn.
    testing: Mutex<Option<ConnectionQueue>>,
    /// The sessions of measurements that run.
    measuring: Mutex<HashMap<MeasurementId, Held>>,
    /// Data connections arrive at the control port, and can get back the receive buffer that the kernel tunes: all have a small one at first.
    holds_small: bool,
}

/// A session that a measurement has.
#[derive(Debug)]
struct Held {
    sender: Sender<Event>,
    /// As long as the session has its turn.
    turn: Weak<()>,
}

impl Shared {
    /// Ends the session that `measurement` has, and waits until its turn is over.
    fn take_over(&self, measurement: MeasurementId) {
        let Some(Held { sender, turn }) = self.measuring().remove(&measurement) else { return };
        let _ = sender.send(Event::TakenOver);
        let until = monotonic() + TAKEN_OVER_WITHIN;
        while turn.strong_count() > 0 && monotonic() < until {
            sleep_until(monotonic() + TURN_LOOK);
        }
    }

    fn measuring(&self) -> MutexGuard<'_, HashMap<MeasurementId, Held>> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admission<T>(&self, work: impl FnOnce(&mut Admission) -> T) -> T {
        // It stays right whatever panicked while it held the lock: single insertions and removals.
        work(&mut self.admission.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn testing(&self) -> MutexGuard<'_, Option<ConnectionQueue>> {
        self.testing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Where the address is taken, or is not this host's.
    pub fn bind(address: SocketAddr, options: ServeOptions) -> std::io::Result<Self> {
        let listener = listening::bind(address)?;
        let mut holds_small = false;
        if let DataPort::Control(_) = options.data_port {
            // Where it cannot be kept, results have none.
            let _ = save_syn(&listener);
            holds_small = TunedBuffer::of_namespace().is_some();
        }
        let at_once = if options.data_port == DataPort::Any { options.at_once } else { 1 };
        let admission = Mutex::new(Admission::new(at_once, options.policy));
        let shared = Shared {
            options,
            seats: Arc::default(),
            admission,
            testing: Mutex::default(),
            measuring: Mutex::default(),
            holds_small,
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Tests that run now, and clients that wait for their turn.
    pub fn load(&self) -> (usize, usize) {
        self.shared.admission(|admission| (admission.running(), admission.waiting().count()))
    }

    /// Serves until `stop`, if any, or until one test has begun and ended where `once`. Calls `log` at the end of each connection.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn run(
        &self,
        stop: Option<Stop>,
        once: bool,
        log: impl Fn(&Ended) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        listen(&self.listener, &self.shared.seats, Until { stop, once, goodbye: GOODBYE }, move |stream, peer, seat| {
            if let DataPort::Control(_) = shared.options.data_port
                && pass_on(&stream, peer, seat, &shared)
            {
                return false;
            }
            let mut control = match seat.control(stream, shared.options.key.as_ref()) {
                Ok(control) => control,
                Err(error) => {
                    log(&Ended { peer, result: Err(error) });
                    return false;
                }
            };
            let mut tested = false;
            let result = serve(&mut control, peer, seat, &shared, &mut tested);
            log(&Ended { peer, result });
            // Whoever is next has the turn by now, and gets the seat.
            seat.end(control, ACKNOWLEDGED_WITHIN);
            tested
        })
    }
}

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    /// The client.
    pub peer: SocketAddr,
    /// Its test, or why there was none.
    pub result: Result<TestEnd, SessionError>,
}

fn serve(
    control: &mut Control,
    peer: SocketAddr,
    seat: &Seat<Event>,
    shared: &Arc<Shared>,
    tested: &mut bool,
) -> Result<TestEnd, SessionError> {
    let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
    let own = control.local_address().map_err(io)?;
    let options = &shared.options;
    let config = ServerConfig { peer: peer.ip().to_canonical(), caps: options.caps };
    let session = ServerSession::new(monotonic(), config, Randomness(random()?));
    let mut session = Serving {
        session,
        seat,
        tested,
        shared: Arc::clone(shared),
        ticket: None,
        ends: Nanos::ZERO,
        turn: Arc::default(),
    };
    let place = ThisEnd::Server { own, peer: peer.ip(), caps: options.caps, data_port: options.data_port };
    drive(&mut session, control, &seat.receiver, &seat.sender, place, |_| {})
}

/// Passes `stream` on to the test that has its turn, if it begins as a data connection does. The session looks whether it is of its test.
/// `false`: it is a control connection's.
fn pass_on(stream: &TcpStream, from: SocketAddr, seat: &Seat<Event>, shared: &Shared) -> bool {
    if shared.holds_small {
        hold_small(stream);
    }
    let hello = match data_hello(stream, &seat.receiver) {
        Ok(Some(hello)) => hello,
        Ok(None) => return false,
        Err(_) => return true,
    };
    if let (Some(testing), Ok(connection)) = (&*shared.testing(), stream.try_clone()) {
        testing.hand_over(connection, from, hello);
    }
    true
}

/// An IPv4 address as such, which a socket of both families shows as IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

struct Serving<'a> {
    session: ServerSession,
    seat: &'a Seat<Event>,
    /// Whether the client got its turn.
    tested: &'a mut bool,
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
    ends: Nanos,
    /// Goes with this session, after its turn.
    turn: Arc<()>,
}

impl Serving<'_> {
    /// The client got its turn. Without a key that is all that tells it from a stranger.
    fn begin(&mut self) {
        self.seat.know();
        *self.tested = true;
        *self.shared.testing() = Some(ConnectionQueue::new(&self.seat.sender));
        if let Some(measurement) = self.session.measurement() {
            let held = Held { sender: self.seat.sender.clone(), turn: Arc::downgrade(&self.turn) };
            self.shared.measuring().insert(measurement, held);
        }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            if *self.tested {
                // Nobody else had a turn before this.
                *self.shared.testing() = None;
            }
            if let Some(measurement) = self.session.measurement() {
                // One that was taken over is no longer there; its successor may be.
                let mut measuring = self.shared.measuring();
                if measuring.get(&measurement).is_some_and(|held| held.turn.ptr_eq(&Arc::downgrade(&self.turn))) {
                    measuring.remove(&measurement);
                }
            }
            self.shared.admission(|admission| admission.leave(ticket));
            self.shared.seats.tell_all(|| Event::AskAgain);
        }
    }
}

impl Session for Serving<'_> {
    fn handle_message(&mut self, now: Nanos, message: Message) {
        self.session.handle_message(now, message);
    }
    fn handle_data_opened(&mut self, now: Nanos, data: &mut dyn Data) {
        self.begin();
        self.session.handle_data_opened(now, data.ports(), data.take_caveats());
    }
    fn handle_data_failed(&mut self, now: Nanos, error: SessionError) {
        self.begin();
        self.session.handle_data_failed(now, error);
    }
    fn handle_data_probe(&mut self, now: Nanos, _: u8, from: SocketAddr, bytes: &[u8]) {
        self.session.handle_data_probe(now, canonical(from), bytes);
    }
    fn handle_data_blocked(&mut self, now: Nanos, dropped: &str) {
        self.session.handle_data_blocked(now, dropped);
    }
    fn handle_data_hello(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> Option<TcpStreamId> {
        self.session.handle_data_hello(now, from, bytes)
    }
    fn handle_data(&mut self, now: Nanos, event: DataEvent) {
        self.session.handle_data(now, event);
    }
    fn handle_report(&mut self, now: Nanos, report: EndReport) {
        self.session.handle_report(now, report);
    }
    fn handle_interrupt(&mut self, now: Nanos) {
        self.session.handle_shutdown(now);
    }
    fn handle_rate_passed(&mut self, now: Nanos) {
        self.session.handle_rate_passed(now);
    }
    fn handle_connection_lost(&mut self, _: Nanos, error: SessionError) {
        self.session.handle_connection_lost(error);
    }
    fn handle_timeout(&mut self, now: Nanos) {
        self.session.handle_timeout(now);
    }
    fn handle_taken_over(&mut self) {
        self.session.handle_taken_over();
    }
    fn handle_admission(&mut self, now: Nanos, longest: Option<Nanos>) {
        if let (Some(measurement), Some(_), None) = (self.session.measurement(), longest, self.ticket) {
            self.shared.take_over(measurement);
        }
        let verdict = self.shared.admission(|admission| match (longest, self.ticket) {
            (Some(longest), None) => {
                self.ends = now.saturating_add(longest);
                let (ticket, verdict) = admission.ask(now, self.ends);
                self.ticket = Some(ticket);
                Some(verdict)
            }
            (_, Some(ticket)) => admission.ask_again(ticket, self.ends),
            (None, None) => None,
        });
        if let Some(verdict) = verdict {
            match verdict {
                Verdict::Busy { .. } => self.ticket = None,
                // There are few of these, and without a key each is a stranger until its test begins.
                Verdict::Run | Verdict::Wait { .. } if self.shared.options.key.is_some() => self.seat.know(),
                Verdict::Run | Verdict::Wait { .. } => {}
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
