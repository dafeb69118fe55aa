//! A logging host: receives captures over log links and writes each into its own folder.
//!
//! `opening.rs` accepts a capture and prepares its keys, socket and folder. `session.rs` receives its datagrams until it ends.
//! `recording.rs` puts their snippets into blocks for the writing thread.

mod folder_size;
mod opening;
mod recording;
mod session;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
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

/// Time for captures to close their files when the logging host stops, and then until their accounts are acknowledged (`CLOSE_PATIENCE`).
const GOODBYE: Duration = Duration::from_secs(17);

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
    /// All captures end, and none is accepted, when the folder has this many bytes. What captures write counts at once; what others add or remove
    /// is seen once a second, each ten seconds while no capture writes, or later where the folder has very many files.
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
    captures: Mutex<Captures>,
}

/// The captures that have a place.
#[derive(Debug, Default)]
struct Captures {
    next: u64,
    /// Each by its number; `None` until it begins.
    taken: BTreeMap<u64, Option<Received>>,
}

impl Shared {
    fn captures(&self) -> MutexGuard<'_, Captures> {
        // Each of its steps is whole.
        self.captures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture that has begun and has not ended.
#[derive(Debug, Clone)]
pub struct Received {
    /// The capturing host.
    pub peer: SocketAddr,
    /// The folder, as the user would call it.
    pub folder: PathBuf,
    /// What came of it, half a second ago at most.
    pub so_far: LinkProgress,
}

impl LogHost {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address is in use or not one of this host.
    pub fn bind(address: SocketAddr, options: LogOptions) -> std::io::Result<Self> {
        let listener = listening::bind(address)?;
        let size = FolderSize::new(options.folder.path(), options.folder_bytes_most);
        let shared = Arc::new(Shared { options, size, captures: Mutex::default() });
        Ok(Self { listener, seats: Arc::default(), shared })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The captures that have begun and have not ended: no more than [`LogOptions::captures_most`].
    pub fn received(&self) -> Vec<Received> {
        self.shared.captures().taken.values().flatten().cloned().collect()
    }

    /// Receives captures until `stop`, or one capture if `once`. Calls `begun` with the folder of each capture, and `ended` with the outcome of
    /// each connection.
    ///
    /// # Errors
    /// The kernel refuses to wait for connections, or has no thread left.
    pub fn run(
        &self,
        stop: Stop,
        once: bool,
        begun: impl Fn(SocketAddr, &Path) + Send + Sync + 'static,
        ended: impl Fn(SocketAddr, Result<Logged, SessionError>) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        // A slow look does not hold the end.
        let (_looking, over) = channel();
        Builder::new().name("folder-size".into()).spawn(move || shared.size.keep_looking(&over))?;
        let shared = Arc::clone(&self.shared);
        let until = Until { stop: Some(stop), once, goodbye: GOODBYE };
        listen(&self.listener, &self.seats, until, move |stream, peer, seat| {
            let begun = |folder: &Path| begun(peer, folder);
            let ended = |result: Result<Logged, SessionError>| {
                // Who leaves without a word was not refused: it tried an address.
                if !result.as_ref().is_err_and(|error| error.code == SILENT) {
                    ended(peer, result);
                }
            };
            session::serve(stream, peer, seat, &shared, begun, ended)
        })
    }
}

/// The right to be one of [`LogOptions::captures_most`], given back when dropped.
#[derive(Debug)]
struct CaptureSeat {
    shared: Arc<Shared>,
    number: u64,
}

impl CaptureSeat {
    /// `None` if all are taken.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let mut captures = shared.captures();
        if captures.taken.len() >= shared.options.captures_most {
            return None;
        }
        let number = captures.next;
        captures.next += 1;
        captures.taken.insert(number, None);
        Some(Self { shared: Arc::clone(shared), number })
    }

    /// The capture has begun: what came of it so far.
    fn note(&self, received: Received) {
        self.shared.captures().taken.insert(self.number, Some(received));
    }
}

impl Drop for CaptureSeat {
    fn drop(&mut self) {
        self.shared.captures().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever says hello and goes has a place for a while, and no figures.
    #[test]
    fn only_captures_that_have_begun_are_told_of() {
        let folder = std::env::temp_dir();
        let options = LogOptions {
            key: None,
            folder: OpenFolder::open(&folder).unwrap(),
            folder_name: folder.clone(),
            roll_bytes: Bytes(1 << 30),
            roll_time: None,
            keep_bytes: None,
            bytes_most: None,
            folder_bytes_most: None,
            captures_most: 2,
            stamp: String::new,
        };
        let host = LogHost::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let places = [(); 2].map(|()| CaptureSeat::take(&host.shared).unwrap());
        assert!(CaptureSeat::take(&host.shared).is_none() && host.received().is_empty());
        let peer = host.address().unwrap();
        for received_datagrams in 1..=3 {
            let so_far = LinkProgress { received_datagrams, ..LinkProgress::default() };
            places[1].note(Received { peer, folder: folder.clone(), so_far });
        }
        let told: Vec<u64> = host.received().iter().map(|one| one.so_far.received_datagrams).collect();
        assert_eq!(told, [3]);
        drop(places);
        assert!(host.received().is_empty() && CaptureSeat::take(&host.shared).is_some());
    }
}
