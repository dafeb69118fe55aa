//! A logging host: takes captures over log links, each into a folder of its own, until it is told to stop.
//!
//! A connection's way: it says what it captures, a folder, a socket and keys are made ready for it (`opening.rs`), its datagrams are
//! taken until it ends (`session.rs`), the heads in them put into blocks for the writing thread (`recording.rs`).

mod opening;
mod recording;
mod session;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_kernel::signals::Stop;
use longhaul_session::control::SessionError;
use longhaul_session::secure::Key;
use longhaul_units::{Bytes, Nanos};

use longhaul_measure::control::ControlEvent;
use longhaul_measure::listening::{self, Seats, Until, listen};

pub use session::{End, Logged};

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
    seats: Arc<Seats<ControlEvent>>,
    shared: Arc<Shared>,
}

/// What all captures of a logging host share.
#[derive(Debug)]
struct Shared {
    options: LogOptions,
    captures: AtomicUsize,
}

impl LogHost {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Where it is taken or not this host's.
    pub fn bind(address: SocketAddr, options: LogOptions) -> std::io::Result<Self> {
        let listener = listening::bind(address)?;
        let shared = Arc::new(Shared { options, captures: AtomicUsize::new(0) });
        Ok(Self { listener, seats: Arc::default(), shared })
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
        begun: impl Fn(SocketAddr, &Path) + Send + Sync + 'static,
        ended: impl Fn(SocketAddr, Result<Logged, SessionError>) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let until = Until { stop: Some(stop), once, goodbye: GOODBYE };
        listen(&self.listener, &self.seats, until, move |stream, peer, seat| {
            let result = session::serve(stream, peer, seat, &shared, |folder| begun(peer, folder));
            // A stranger's connection is none.
            let was_capture = result.is_ok();
            ended(peer, result);
            was_capture
        })
    }
}

/// One of the captures that there may be at a time, given back when dropped.
#[derive(Debug)]
struct CaptureSeat(Arc<Shared>);

impl CaptureSeat {
    /// `None` where all are taken.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let most = shared.options.captures_most;
        let one_more = |captures| (captures < most).then_some(captures + 1);
        shared.captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for CaptureSeat {
    fn drop(&mut self) {
        self.0.captures.fetch_sub(1, Ordering::AcqRel);
    }
}
