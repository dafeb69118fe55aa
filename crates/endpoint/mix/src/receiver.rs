//! Counts the numbered stream of a mix at its target.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, TimestampMode, UdpOpenError, UdpReceiver};
use longhaul_udp::account::{MAX_SEQUENCES, SequenceTracker, StreamReceived};
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, Probe};

/// The most packets of one call.
const SLOTS: usize = 256;
/// The longest datagram of a mix.
const SLOT_BYTES: usize = 2048;
/// The time between two checks for the end.
const LOOK: Nanos = Nanos::from_millis(20);

/// Why the stream cannot be received.
#[derive(Debug, thiserror::Error)]
pub enum StreamReceiverError {
    /// The socket could not be opened.
    #[error("{0}")]
    Open(#[from] UdpOpenError),
    /// The thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Receiving failed.
    #[error("receiving: {0}")]
    Receive(String),
}

/// Receives the stream, and accounts for each number once.
#[derive(Debug)]
pub struct StreamReceiver {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<SequenceTracker, StreamReceiverError>>,
}

impl StreamReceiver {
    /// Starts to receive datagrams with `cookie` at `local` in the calling thread's network namespace, with a socket buffer of
    /// `buffer_bytes`. Datagrams that arrive after it returns are counted.
    ///
    /// # Errors
    /// [`StreamReceiverError::Open`], [`StreamReceiverError::Thread`].
    pub fn start(local: SocketAddr, cookie: Cookie, buffer_bytes: usize) -> Result<Self, StreamReceiverError> {
        let options = ReceiverOptions {
            receive_buffer_bytes: Some(buffer_bytes),
            gro: false,
            timestamps: TimestampMode::App,
            ..ReceiverOptions::default()
        };
        let socket = UdpReceiver::bind(local, &options)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, false);
            let mut tracker = SequenceTracker::new(MAX_SEQUENCES, false);
            loop {
                // Read before the last look at the socket.
                let stopping = stopped.load(Ordering::Relaxed);
                let taken = socket
                    .receive_until(&mut slots, monotonic().saturating_add(LOOK))
                    .map_err(|error| StreamReceiverError::Receive(error.to_string()))?;
                for datagram in slots.datagrams().take(taken) {
                    if let Some(probe) = Probe::parse(datagram.bytes).filter(|probe| probe.cookie == cookie) {
                        tracker.receive(probe.sequence, datagram.stamp, Nanos(probe.sent_ns));
                    }
                }
                if stopping && taken == 0 {
                    return Ok(tracker);
                }
            }
        };
        let thread = Builder::new().name("mix stream".into()).spawn(work).map_err(StreamReceiverError::Thread)?;
        Ok(Self { stop, thread })
    }

    /// Reads the rest of the socket, and accounts for the first `numbered_packets` numbers.
    ///
    /// # Errors
    /// [`StreamReceiverError::Receive`].
    pub fn finish(self, numbered_packets: u64) -> Result<StreamReceived, StreamReceiverError> {
        self.stop.store(true, Ordering::Relaxed);
        let tracker = self.thread.join().map_err(|_| StreamReceiverError::Receive("the thread panicked".into()))??;
        Ok(tracker.finish(numbered_packets))
    }
}
