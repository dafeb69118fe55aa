//! A logging host: receives captures over log links and writes each into its own folder.
//!
//! `opening.rs` accepts a capture and prepares its keys, socket and folder. `session.rs` receives its datagrams until it ends.
//! `recording.rs` puts their snippets into blocks for the writing thread.

mod folder_size;
mod opening;
mod recording;
mod session;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_captures::log_link::LinkProgress;
use longhaul_channel::Key;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_kernel::signals::Stop;
use longhaul_session::SessionError;
use longhaul_units::{Bytes, Nanos};

use longhaul_peer::control::ControlEvent;
use longhaul_peer::listening::{self, SILENT, Seats, Until, listen};

use folder_size::FolderSize;

pub use session::{Logged, LoggedEnd};

/// Time for captures to close their files when the logging host stops.
const GOODBYE: Duration = Duration::from_secs(15);

/// The settings of a logging host.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The key that captures need; `None` accepts any, without encryption.
    pub key: Option<Key>,
    /// Each capture gets a folder in this one.
    pub folder: OpenFolder,
    /// What the user calls it.
    pub folder_name: PathBuf,
    /// A new file begins at this length.
    pub roll_bytes: Bytes,
    /// A new file also begins at this age.
    pub roll_time: Option<Nanos>,
    /// The oldest files of a capture are removed when all its files are longer than this.
    pub keep_bytes: Option<Bytes>,
    /// A capture ends after this many written bytes.
    pub bytes_most: Option<Bytes>,
    /// All captures end, and none is accepted, when the folder has this many bytes. It is looked at once a second.
    pub folder_bytes_most: Option<Bytes>,
    /// The most captures at the same time.
    pub captures_most: usize,
    /// The time as text, which begins the name of a capture's folder. The capturing host's name follows.
    pub stamp: fn() -> String,
}

/// A listening logging host.
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
    size: FolderSize,
    captures: AtomicUsize,
}

impl LogHost {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address is in use or not one of this host.
    pub fn bind(address: SocketAddr, options: LogOptions) -> std::io::Result<Self> {
        let listener = listening::bind(address)?;
        let size = FolderSize::new(options.folder.path(), options.folder_bytes_most);
        let shared = Arc::new(Shared { options, size, captures: AtomicUsize::new(0) });
        Ok(Self { listener, seats: Arc::default(), shared })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Receives captures until `stop`, or one capture if `once`. Calls `begun` with the folder of each capture, `progressed` every half second
    /// with what came of it so far, and `ended` with the outcome of each connection.
    ///
    /// # Errors
    /// The kernel refuses to wait for connections.
    pub fn run(
        &self,
        stop: Stop,
        once: bool,
        begun: impl Fn(SocketAddr, &Path) + Send + Sync + 'static,
        progressed: impl Fn(SocketAddr, &Path, &LinkProgress) + Send + Sync + 'static,
        ended: impl Fn(SocketAddr, Result<Logged, SessionError>) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let until = Until { stop: Some(stop), once, goodbye: GOODBYE };
        listen(&self.listener, &self.seats, until, move |stream, peer, seat| {
            let (begun, progressed) =
                (|folder: &Path| begun(peer, folder), |folder: &Path, so_far: &_| progressed(peer, folder, so_far));
            let result = session::serve(stream, peer, seat, &shared, begun, progressed);
            // A refused connection is not a capture.
            let was_capture = result.is_ok();
            // Who leaves without a word was not refused: it tried an address.
            if !result.as_ref().is_err_and(|error| error.code == SILENT) {
                ended(peer, result);
            }
            was_capture
        })
    }
}

/// The right to be one of [`LogOptions::captures_most`], given back when dropped.
#[derive(Debug)]
struct CaptureSeat(Arc<Shared>);

impl CaptureSeat {
    /// `None` if all are taken.
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
