//! One flow: its connection, the thread that writes or reads, what they counted.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::tcp::{ZeroCopySource, discard, set_patience};
use longhaul_kernel::wait::sleep_until;
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use super::connections::TcpEvent;
use crate::data::pin;
use crate::driver::Event;

/// Between two looks whether the test was stopped.
const LOOK: Nanos = Nanos::from_millis(50);
/// What one call reads at most: what a socket has at 100 Gb/s after 80 µs.
const READ_BYTES: usize = 1 << 20;
/// An application with a rate of its own does so much at a time, of a second, that it is smooth on any path.
const PACED_PARTS: u64 = 200;

/// What a flow's thread has done, for others to look at.
#[derive(Debug, Default)]
pub(super) struct Counts {
    bytes: AtomicU64,
    omitted_bytes: AtomicU64,
    arrived_ns: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    over: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Counts {
    /// Payload bytes written or read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those of the time that is omitted.
    pub(super) fn omitted_bytes(&self) -> u64 {
        self.omitted_bytes.load(Ordering::Relaxed)
    }

    /// When the first came, or went; 0 for never.
    pub(super) fn arrived_ns(&self) -> u64 {
        self.arrived_ns.load(Ordering::Relaxed)
    }

    /// When it began to count.
    pub(super) fn first_ns(&self) -> u64 {
        self.first_ns.load(Ordering::Relaxed)
    }

    /// When the last came, or the end.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }

    /// Whether the thread has come to the end of its stream.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Why it ended early.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, count: usize, omit: Nanos) {
        let now = monotonic().0;
        if self.arrived_ns() == 0 {
            self.arrived_ns.store(now, Ordering::Relaxed);
            self.first_ns.store(now, Ordering::Relaxed);
        }
        // One thread writes.
        let bytes = self.bytes() + count as u64;
        self.bytes.store(bytes, Ordering::Relaxed);
        if omit > Nanos::ZERO && now < self.arrived_ns().saturating_add(omit.0) {
            self.omitted_bytes.store(bytes, Ordering::Relaxed);
            self.first_ns.store(now, Ordering::Relaxed);
        }
        self.last_ns.store(now, Ordering::Relaxed);
    }

    fn end(&self, failure: Option<std::io::Error>) {
        if let Some(error) = failure {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        self.over.store(true, Ordering::Release);
    }
}

/// A connection of a test.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: TcpStreamId,
    pub(super) sends: bool,
    socket: Arc<TcpStream>,
    pub(super) counts: Arc<Counts>,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Whether all is written.
    pub(super) sent: bool,
}

impl Flow {
    pub(super) fn new(id: TcpStreamId, sends: bool, socket: TcpStream) -> Self {
        Self { id, sends, socket: Arc::new(socket), counts: Arc::default(), threads: Vec::new(), sent: false }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The connection, for another thread.
    pub(super) fn shared_socket(&self) -> Arc<TcpStream> {
        Arc::clone(&self.socket)
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Starts the thread that reads until the end of the stream, or `stop`.
    pub(super) fn receive(&mut self, parameters: &TcpParameters, stop: &Arc<AtomicBool>) {
        let (socket, counts, stop) = (self.shared_socket(), self.counts(), Arc::clone(stop));
        let (omit, rate, cpus) =
            (Nanos(parameters.omit_ns), parameters.read_rate_bps, cpus(&parameters.affinity.receiver_cpus));
        let work = move || {
            pin(&cpus);
            let failure = read_all(&socket, &counts, omit, rate, &stop).err();
            counts.end(failure);
        };
        self.spawn("receive", work);
    }

    /// Starts the thread that writes until it is done, or `stop`, and then says so.
    pub(super) fn send(&mut self, parameters: &TcpParameters, stop: &Arc<AtomicBool>, events: &Sender<Event>) {
        let (socket, counts, stop, events) = (self.shared_socket(), self.counts(), Arc::clone(stop), events.clone());
        let (stream, parameters) = (self.id.stream, parameters.clone());
        let done = events.clone();
        let work = move || {
            pin(&cpus(&parameters.affinity.sender_cpus));
            let failure = write_all(&socket, &counts, &parameters, stream, &stop).err();
            counts.end(failure);
            // The other end sees that this is all, when it is all there.
            let _ = socket.shutdown(Shutdown::Write);
            // The driver may have given up.
            let _ = events.send(Event::Tcp(TcpEvent::Sent(stream)));
        };
        if !self.spawn("send", work) {
            let _ = done.send(Event::Tcp(TcpEvent::Sent(stream)));
        }
    }

    fn spawn(&mut self, what: &str, work: impl FnOnce() + Send + 'static) -> bool {
        match Builder::new().name(format!("{what} {}", self.id.stream)).spawn(work) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.counts.end(Some(error));
                return false;
            }
        }
        true
    }
}

fn cpus(wanted: &[u16]) -> Vec<usize> {
    wanted.iter().map(|cpu| usize::from(*cpu)).collect()
}

/// Whether a call only came back for a look whether the test was stopped.
fn go_on(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}

/// Bytes at a time for an application that moves `rate_bps`, at most `most`.
fn paced_bytes(rate_bps: Option<u64>, most: usize) -> usize {
    let part = rate_bps.map_or(u64::MAX, |bps| (bps / 8 / PACED_PARTS).max(1));
    most.min(usize::try_from(part).unwrap_or(usize::MAX))
}

/// Waits until `bytes` at `rate_bps` since `start` are due.
fn wait_for_rate(start: Nanos, bytes: u64, rate_bps: Option<u64>, stop: &AtomicBool, end: Nanos) {
    let Some(bps) = rate_bps else { return };
    let due = u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1));
    let due = start.saturating_add(Nanos(due.try_into().unwrap_or(u64::MAX))).min(end);
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic();
        if now >= due {
            return;
        }
        sleep_until(due.min(now + LOOK));
    }
}

/// Reads to the end of the stream.
fn read_all(
    socket: &TcpStream,
    counts: &Counts,
    omit: Nanos,
    rate_bps: Option<u64>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    set_patience(socket, LOOK)?;
    let most = paced_bytes(rate_bps, READ_BYTES);
    while !stop.load(Ordering::Relaxed) {
        match discard(socket.as_fd(), most) {
            Ok(0) => {
                // Where there was nothing there is no time either.
                if counts.bytes() > 0 {
                    counts.last_ns.store(monotonic().0, Ordering::Relaxed);
                }
                return Ok(());
            }
            Ok(count) => {
                counts.add(count, omit);
                wait_for_rate(Nanos(counts.arrived_ns()), counts.bytes(), rate_bps, stop, Nanos::MAX);
            }
            Err(error) if go_on(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes as much as `parameters` say.
fn write_all(
    socket: &TcpStream,
    counts: &Counts,
    parameters: &TcpParameters,
    stream: u8,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    set_patience(socket, LOOK)?;
    // Not one value throughout, so that nobody on the way makes it smaller.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(stream.into());
    let block: Vec<u8> = (0..parameters.block_bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect();
    let source = parameters.zerocopy.then(|| ZeroCopySource::new(&block)).transpose()?;
    let most = paced_bytes(parameters.write_rate_bps, block.len());
    let start = monotonic();
    let end = match parameters.amount {
        Amount::DurationNs(ns) => start.saturating_add(Nanos(ns)),
        Amount::Bytes(_) | Amount::Packets(_) => Nanos::MAX,
    };
    let total = parameters.bytes_of_stream(stream).unwrap_or(u64::MAX);
    let mut offset = 0;
    while counts.bytes() < total && !stop.load(Ordering::Relaxed) && monotonic() < end {
        let left = usize::try_from(total - counts.bytes()).unwrap_or(usize::MAX);
        let length = left.min(most).min(block.len() - offset);
        let written = match &source {
            Some(source) => source.send(socket.as_fd(), offset, length),
            None => (&mut &*socket).write(&block[offset..offset + length]),
        };
        match written {
            Ok(count) => {
                counts.add(count, Nanos::ZERO);
                // A file is sent on from where it was, a buffer from its start: its first bytes are in the cache.
                offset = if source.is_some() { (offset + count) % block.len() } else { 0 };
                wait_for_rate(start, counts.bytes(), parameters.write_rate_bps, stop, end);
            }
            Err(error) if go_on(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
