//! A listener: each connection gets a seat and a thread of its own, until all are told to end.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, Key, Places, Role, Standing, Taken};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::tcp::{goes_on_after, receive_buffer, set_reset_on_close};
use longhaul_kernel::wait::Poller;
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use crate::control::{ACKNOWLEDGED_WITHIN, Control, ControlEvent, HasControl, random};

/// Connections at a time, served or waiting; also those of both directions of 64 streams, where data comes to the same port. A further one
/// replaces one that is not at work; where all are at work it is closed at once.
pub const CONNECTIONS_MOST: usize = 64 + 128;
/// Receive buffer of a control connection; the kernel counts twice as much, with its own bookkeeping. Without a bound whoever connects fills megabytes
/// with data out of order, which nobody reads. The longest message, 1 MiB, takes less than 3 s over a round trip of 200 ms.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;
/// How long the next one waits for connections that were replaced and have not ended yet; then it is closed.
const CROWD_PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often to look whether they have.
const CROWD_LOOK: Duration = Duration::from_millis(1);
/// How often to look whether the only session has ended.
const ONCE_LOOK: Nanos = Nanos::from_millis(20);
/// How often to look whether all have ended, once the listener stops.
const GOODBYE_LOOK: Duration = Duration::from_millis(10);

/// The code of the error of a peer that connected, said nothing and left: it tried an address, or looked whether a port is open.
pub const SILENT: &str = "silent";

/// How long to listen.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// Until a signal.
    pub stop: Option<Stop>,
    /// Until the first connection that counts has ended.
    pub once: bool,
    /// Time that open connections then have to end.
    pub goodbye: Duration,
}

/// Who is connected.
#[derive(Debug)]
pub struct Seats<E>(Mutex<Places<Sender<E>>>);

impl<E> Default for Seats<E> {
    fn default() -> Self {
        Self(Mutex::new(Places::new(CONNECTIONS_MOST)))
    }
}

impl<E> Seats<E> {
    /// Sends an event to everyone.
    pub fn tell_all(&self, event: impl Fn() -> E) {
        self.places(|places| {
            for sender in places.handles() {
                let _ = sender.send(event());
            }
        });
    }

    fn places<T>(&self, work: impl FnOnce(&mut Places<Sender<E>>) -> T) -> T {
        // What is in it stays right whatever panicked while it held the lock: single insertions and removals.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection's place among the others, given back when dropped.
#[derive(Debug)]
pub struct Seat<E> {
    seats: Arc<Seats<E>>,
    number: u64,
    standing: Arc<Standing>,
    /// Sends an event to this connection's thread.
    pub sender: Sender<E>,
    /// The events.
    pub receiver: Receiver<E>,
}

impl<E: HasControl> Seat<E> {
    /// A seat for one more; `None` where all are taken by those who are at work.
    fn take(seats: &Arc<Seats<E>>, address: IpAddr) -> Option<Self> {
        let (sender, receiver) = channel();
        let Taken { number, standing, displaced } = seats.places(|places| places.take(address, sender.clone()))?;
        if let Some(idle) = displaced {
            // It ends at once: it does nothing but wait.
            let _ = idle.send(ControlEvent::Abort.into());
        }
        Some(Self { seats: Arc::clone(seats), number, standing, sender, receiver })
    }

    /// Makes the channel over `stream`: encrypted with `key`, plain without. With a key the peer loses its seat after all strangers from its first
    /// message on.
    ///
    /// # Errors
    /// Why there is none, with what to do.
    pub fn control(&self, stream: TcpStream, key: Option<&Key>) -> Result<Control, SessionError> {
        let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
        stream.set_nonblocking(false).map_err(io)?;
        receive_buffer(&stream, Some(RECEIVE_BUFFER_BYTES)).map_err(io)?;
        let channel = match key {
            Some(key) => Channel::keyed(Role::Server, key, random()?),
            None => Channel::plain(Role::Server),
        };
        let mut control = Control::new(stream, channel, &self.sender).map_err(io)?;
        control.reset_at_end();
        if key.is_some() {
            control.prove_to(Arc::clone(&self.standing));
        } else {
            control.trust_once(Arc::clone(&self.standing));
        }
        match control.establish(&self.receiver) {
            Ok(()) => Ok(control),
            Err(error) => {
                let is_silent = control.left_silently();
                self.end(control, ACKNOWLEDGED_WITHIN);
                Err(if is_silent { SessionError { code: SILENT.into(), ..error } } else { error })
            }
        }
    }

    /// This peer keeps its seat: its work begins.
    pub fn know(&self) {
        self.standing.keep();
    }

    /// Ends the connection of a peer whose work is over, and resets it unless the other end acknowledges all of it `within` this time. Meanwhile a
    /// further connection has its seat, but a stranger keeps it until then; where another connection takes that, this one is reset at once.
    pub fn end(&self, control: Control, within: Nanos) {
        // One that loses its time by this sees that by its standing.
        let _ = self.seats.places(|places| places.end(self.number));
        control.end_in_time(within, |pause| !self.standing.is_displaced() && goes_on_after(pause));
    }
}

impl<E> Drop for Seat<E> {
    fn drop(&mut self) {
        self.seats.places(|places| places.leave(self.number));
    }
}

/// Listens at `address`.
///
/// # Errors
/// Where the address is taken, or is not this host's.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Calls `serve` for each connection, in a thread of its own. It returns whether the connection counts as the one that [`Until::once`]
/// waits for. At the end everyone gets [`ControlEvent::Interrupt`].
///
/// # Errors
/// Where the kernel refuses to wait.
pub fn listen<E: HasControl>(
    listener: &TcpListener,
    seats: &Arc<Seats<E>>,
    until: Until,
    serve: impl Fn(TcpStream, SocketAddr, &Seat<E>) -> bool + Send + Sync + 'static,
) -> std::io::Result<()> {
    let poller = Poller::new()?;
    poller.add(listener, 0)?;
    if let Some(stop) = until.stop {
        poller.add(stop, 1)?;
    }
    let (serve, enough) = (Arc::new(serve), Arc::new(AtomicBool::new(false)));
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let over = || until.stop.is_some_and(|stop| stop.requested().is_some());
    while !over() {
        if until.once && enough.load(Ordering::Acquire) {
            break;
        }
        drop(poller.wait(until.once.then(|| monotonic() + ONCE_LOOK))?);
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => {
                // No descriptor is left, for instance: the connection stays readable.
                sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        // Where it is dropped nothing of it stays in the kernel, which refuses this to no TCP socket.
        let _ = set_reset_on_close(&stream, true);
        let crowded = Instant::now() + CROWD_PATIENCE;
        while seats.places(|places| places.is_crowded()) && Instant::now() < crowded && !over() {
            sleep(CROWD_LOOK);
        }
        let Some(seat) = Seat::take(seats, peer.ip()) else { continue };
        let (serve, enough) = (Arc::clone(&serve), Arc::clone(&enough));
        let thread = Builder::new().name("session".into()).spawn(move || {
            // One that panicked (as it wrote to a closed pipe, say) counts, too.
            if catch_unwind(AssertUnwindSafe(|| serve(stream, peer, &seat))).unwrap_or(true) {
                enough.store(true, Ordering::Release);
            }
        });
        // Without a thread the connection is closed, as one too many is.
        let Ok(thread) = thread else { continue };
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
    seats.tell_all(|| ControlEvent::Interrupt.into());
    let end = Instant::now() + until.goodbye;
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
        sleep(GOODBYE_LOOK);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use longhaul_kernel::sock_diag::{InetFilter, InetMemory, InetSocket, InetSockets};
    use longhaul_kernel::socket_filter::SocketFilter;
    use longhaul_testing::waiting::until;

    use super::*;

    /// A connection to a listener that takes it: its seat among `seats`, its socket, the other end, and the listener's address.
    fn accepted(seats: &Arc<Seats<ControlEvent>>) -> (Seat<ControlEvent>, TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        (Seat::take(seats, peer.ip()).unwrap(), stream, client, address)
    }

    /// The memory of the connections of `address` that the kernel has, also those that no program has any more.
    pub(crate) fn kept(address: SocketAddr) -> Vec<Option<InetMemory>> {
        let mut kept = Vec::new();
        let each = |socket: &InetSocket<'_>| {
            if socket.local == address {
                kept.push(socket.memory());
            }
        };
        InetSockets::tcp().unwrap().dump(InetFilter::Port(address.port()), each).unwrap();
        kept
    }

    #[test]
    fn nobody_fills_more_than_a_bounded_receive_buffer() {
        let (seat, stream, mut client, address) = accepted(&Arc::default());
        client.write_all(b"longhaul/1 plain").unwrap();
        let control = seat.control(stream, None).unwrap();
        let kept = kept(address);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0].unwrap().receive_buffer_bytes as usize, 2 * RECEIVE_BUFFER_BYTES);
        drop(control);
    }

    /// Not even the end is acknowledged: the kernel would keep it for minutes.
    #[test]
    fn nothing_of_who_acknowledges_nothing_stays_in_the_kernel() {
        let (seat, stream, mut client, address) = accepted(&Arc::default());
        client.write_all(b"longhaul/1 plain").unwrap();
        let control = seat.control(stream, None).unwrap();
        SocketFilter::nothing().attach(&client).unwrap();
        seat.end(control, Nanos::from_millis(20));
        // The thread that reads ends, too.
        until("the connection to go", || kept(address).is_empty());
    }

    /// As many others come as there are seats.
    #[test]
    fn nothing_of_a_stranger_that_loses_its_seat_stays_in_the_kernel() {
        let seats = Arc::default();
        let (seat, stream, client, address) = accepted(&seats);
        SocketFilter::nothing().attach(&client).unwrap();
        let ip = address.ip();
        let _others: Vec<_> = (0..CONNECTIONS_MOST).map(|_| Seat::take(&seats, ip).unwrap()).collect();
        let began = Instant::now();
        let error = seat.control(stream, None).err().expect("its seat is another's");
        assert_eq!(error.code, "interrupted", "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        until("the connection to go", || kept(address).is_empty());
    }

    /// The account of a capture may be on its way, for one. Strangers take all seats, at the same address.
    #[test]
    fn a_connection_whose_work_is_over_ends_in_peace_and_has_no_seat() {
        let seats = Arc::default();
        let (seat, stream, mut client, address) = accepted(&seats);
        client.write_all(b"longhaul/1 plain").unwrap();
        let control = seat.control(stream, None).unwrap();
        seat.know();
        // Nothing is acknowledged for a while.
        SocketFilter::nothing().attach(&client).unwrap();
        std::thread::scope(|scope| {
            let ends = scope.spawn(move || seat.end(control, Nanos::from_secs(60)));
            until("the end", || seats.places(|places| places.handles().count()) == 0);
            let ip = address.ip();
            let others: Vec<_> = (0..3 * CONNECTIONS_MOST / 2).map(|_| Seat::take(&seats, ip).unwrap()).collect();
            assert!(!ends.is_finished() && others[0].standing.is_displaced());
            SocketFilter::all(u32::MAX).attach(&client).unwrap();
        });
        // It was not reset.
        assert_eq!(std::io::copy(&mut client, &mut std::io::sink()).unwrap(), 16);
    }
}
