//! A logging host: takes captures over log links, each into a folder of its own, until it is told to stop.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::{Interest, Poller};
use longhaul_session::control::SessionError;
use longhaul_session::secure::Key;
use longhaul_units::{Bytes, Nanos};

use super::logging_session::{Logged, serve};
use crate::driver::{Event, events};

/// Connections at a time, captures or not yet; a further one is closed at once.
const CONNECTIONS_MOST: usize = 64;
/// After a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long captures have to close their files when the host goes down.
const GOODBYE: Duration = Duration::from_secs(15);

/// How to log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The key that captures must have; `None` for `--no-auth`.
    pub key: Option<Key>,
    /// Each capture has a folder in this.
    pub folder: PathBuf,
    /// A file is closed and the next begun at this length.
    pub roll_bytes: Bytes,
    /// Or at this age.
    pub roll_time: Option<Nanos>,
    /// The oldest files of a capture go when all of its files are longer.
    pub keep_bytes: Option<Bytes>,
    /// A capture that has written so much ends.
    pub bytes_most: Option<Bytes>,
    /// Captures at a time.
    pub captures_most: usize,
    /// What the folder of a capture that begins now is called, before the capturing host's name: the time.
    pub stamp: fn() -> String,
}

/// A logging host that listens.
#[derive(Debug)]
pub struct LogHost {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: LogOptions,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    /// Who sits, to be told when the host goes down.
    connections: HashMap<u64, Sender<Event>>,
    next: u64,
    captures: usize,
}

impl Shared {
    fn seats<T>(&self, work: impl FnOnce(&mut Seats) -> T) -> T {
        // What is in it stays right whatever panicked while it held the lock: single insertions and removals.
        work(&mut self.seats.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LogHost {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Where it is taken or not this host's.
    pub fn bind(address: SocketAddr, options: LogOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, shared: Arc::new(Shared { options, seats: Mutex::default() }) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes captures until `stop`, or one where `once`. `begun` is told of the folder of each, `ended` how each ended, and of
    /// connections that came to none, why.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn run(
        &self,
        stop: Stop,
        once: bool,
        begun: impl Fn(SocketAddr, &std::path::Path) + Send + Sync + 'static,
        ended: impl Fn(SocketAddr, Result<Logged, SessionError>) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let poller = Poller::new()?;
        poller.add(&self.listener, 0, Interest::Readable)?;
        poller.add(stop, 1, Interest::Readable)?;
        let (begun, ended) = (Arc::new(begun), Arc::new(ended));
        let (told, one_ended) = std::sync::mpsc::channel();
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while stop.requested().is_none() {
            let until = once.then(|| longhaul_kernel::clock::monotonic() + Nanos::from_millis(50));
            drop(poller.wait(until)?);
            // Of one capture, not of a stranger's connection.
            if once && one_ended.try_iter().any(|was_capture| was_capture) {
                break;
            }
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
            let (begun, ended, told) = (Arc::clone(&begun), Arc::clone(&ended), told.clone());
            let thread = Builder::new().name("log".into()).spawn(move || {
                let result = serve(stream, peer, &seat, |folder| begun(peer, folder));
                let was_capture = result.is_ok();
                ended(peer, result);
                let _ = told.send(was_capture);
            });
            // Without a thread the connection is closed, as beyond the most.
            let Ok(thread) = thread else { continue };
            threads.retain(|thread| !thread.is_finished());
            threads.push(thread);
        }
        self.shared.seats(|seats| {
            for connection in seats.connections.values() {
                let _ = connection.send(Event::Interrupt);
            }
        });
        let until = Instant::now() + GOODBYE;
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// A connection's place among the others, given back when dropped.
pub(super) struct Seat {
    pub(super) shared: Arc<Shared>,
    number: u64,
    pub(super) sender: Sender<Event>,
    pub(super) receiver: Receiver<Event>,
}

impl Seat {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let (sender, receiver) = events();
        let number = shared.seats(|seats| {
            seats.next += 1;
            (seats.connections.len() < CONNECTIONS_MOST).then(|| {
                seats.connections.insert(seats.next, sender.clone());
                seats.next
            })
        })?;
        Some(Self { shared: Arc::clone(shared), number, sender, receiver })
    }

    /// A place for a capture; `None` where all are taken.
    pub(super) fn capture(&self) -> Option<CaptureSeat> {
        let most = self.shared.options.captures_most;
        let free = self.shared.seats(|seats| {
            let free = seats.captures < most;
            seats.captures += usize::from(free);
            free
        });
        free.then(|| CaptureSeat(Arc::clone(&self.shared)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.seats(|seats| {
            seats.connections.remove(&self.number);
        });
    }
}

/// A capture's place, given back when dropped.
pub(super) struct CaptureSeat(Arc<Shared>);

impl Drop for CaptureSeat {
    fn drop(&mut self) {
        self.0.seats(|seats| seats.captures -= 1);
    }
}
