//! Streams of UDP datagrams that are numbered and can be checked: what came, in which order, and whether it is intact.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_lab::Lab;
use nix::sys::socket::{setsockopt, sockopt};

use super::on;

/// Where streams go.
pub(crate) const PORT: u16 = 5201;
/// A sink that heard nothing for so long has heard all, once it is told that nothing is under way.
const SILENCE: Duration = Duration::from_millis(100);
/// A source that waits for its window so long takes what is missing as lost. Longer than any path's round trip here.
const STALL: Duration = Duration::from_secs(1);
/// Most datagrams that one `UDP_SEGMENT` send may have (`UDP_MAX_SEGMENTS`, 64 until Linux 6.9).
pub(crate) const SEGMENTS_MOST: u64 = 64;

/// Writes datagram `number` to `out`.
pub(crate) fn fill(number: u64, out: &mut [u8]) {
    let (head, body) = out.split_at_mut(8);
    head.copy_from_slice(&number.to_be_bytes());
    for (index, word) in (1..).zip(body.chunks_mut(8)) {
        word.copy_from_slice(&word_of(number, index)[..word.len()]);
    }
}

/// The `index`-th word of a datagram by splitmix64's finalizer: no two datagrams, and no two words of one, are alike.
fn word_of(number: u64, index: u64) -> [u8; 8] {
    let mixed = (number << 16 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).to_be_bytes()
}

/// The number of a datagram; `None` where a byte of it is wrong.
pub(crate) fn number_of(datagram: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(datagram.get(..8)?.try_into().ok()?);
    let intact = (1..).zip(datagram[8..].chunks(8)).all(|(index, word)| word == &word_of(number, index)[..word.len()]);
    intact.then_some(number)
}

/// A sender of numbered datagrams.
pub(crate) struct Source {
    socket: UdpSocket,
    bytes: usize,
    /// Datagrams in one call; more than 1 leaves as a super-packet.
    batch: u64,
    next: u64,
    buffer: Vec<u8>,
}

impl Source {
    /// From `host` to `to`, `bytes` of payload each, `batch` to a super-packet.
    pub(crate) fn new(lab: &Lab, host: &str, to: IpAddr, bytes: usize, batch: u64) -> Self {
        let own: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u8; 16].into() };
        let socket = on(lab, host, || {
            let socket = UdpSocket::bind((own, 0)).unwrap();
            socket.connect((to, PORT)).unwrap();
            socket
        });
        if batch > 1 {
            setsockopt(&socket, sockopt::UdpGsoSegment, &(bytes as i32)).unwrap();
        }
        Self { socket, bytes, batch, next: 0, buffer: Vec::new() }
    }

    /// The same with numbers from `first` on.
    pub(crate) fn numbered_from(self, first: u64) -> Self {
        Self { next: first, ..self }
    }

    /// The number of the next one.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Sends the next `count`, at most a batch.
    pub(crate) fn send(&mut self, count: u64) {
        let count = count.min(self.batch);
        self.buffer.resize(self.bytes * count as usize, 0);
        for datagram in self.buffer.chunks_mut(self.bytes) {
            fill(self.next, datagram);
            self.next += 1;
        }
        self.socket.send(&self.buffer).unwrap();
    }

    /// Sends until `total` were sent, never more than `window` ahead of what `sink` has: nothing overflows, however slow
    /// the machine.
    pub(crate) fn send_until(&mut self, total: u64, sink: &Sink, window: u64) {
        let (mut lost, mut progress, mut since) = (0, sink.count(), Instant::now());
        while self.next < total {
            let came = sink.count();
            if self.next < came + lost + window {
                self.send(total - self.next);
                continue;
            }
            if came > progress {
                (progress, since) = (came, Instant::now());
            } else if since.elapsed() > STALL {
                (lost, since) = (self.next - came, Instant::now());
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Sends `count` at `interval`, by the clock: those that are overdue go at once.
    pub(crate) fn send_paced(&mut self, count: u64, interval: Duration) {
        let began = Instant::now();
        for i in 0..count {
            let due = began + interval * i as u32;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            self.send(1);
        }
    }
}

/// What came.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The numbers of intact datagrams, as they came.
    pub(crate) numbers: Vec<u64>,
    /// Datagrams with wrong bytes.
    pub(crate) damaged: u64,
}

impl Heard {
    /// Those of `0..sent` that did not come, ascending.
    pub(crate) fn missing(&self, sent: u64) -> Vec<u64> {
        let mut came = vec![false; sent as usize];
        for &number in &self.numbers {
            came[number as usize] = true;
        }
        (0..sent).filter(|&number| !came[number as usize]).collect()
    }

    /// That all of `0..sent` came.
    pub(crate) fn assert_complete(&self, sent: u64) {
        let missing = self.missing(sent);
        assert!(missing.is_empty(), "{} of {sent} are missing, the first is {}", missing.len(), missing[0]);
    }

    /// How many came a second time.
    pub(crate) fn duplicates(&self) -> u64 {
        let mut sorted = self.numbers.clone();
        sorted.sort_unstable();
        sorted.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
    }

    /// How many came after one with a higher number.
    pub(crate) fn reordered(&self) -> u64 {
        let mut highest = 0;
        let mut count = 0;
        for &number in &self.numbers {
            count += u64::from(number < highest);
            highest = highest.max(number);
        }
        count
    }
}

/// A receiver of numbered datagrams.
pub(crate) struct Sink {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

impl Sink {
    /// On `host`, at its address `own`.
    pub(crate) fn new(lab: &Lab, host: &str, own: IpAddr) -> Self {
        Self::on_port(lab, host, (own, PORT).into())
    }

    pub(crate) fn on_port(lab: &Lab, host: &str, own: SocketAddr) -> Self {
        let socket = on(lab, host, || UdpSocket::bind(own).unwrap());
        setsockopt(&socket, sockopt::RcvBufForce, &(128 << 20)).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counted, stopped) = (Arc::clone(&count), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut heard = Heard { numbers: Vec::new(), damaged: 0 };
            let mut buffer = [0; 65_535];
            loop {
                let told = stopped.load(Ordering::Acquire);
                match socket.recv(&mut buffer) {
                    Ok(bytes) => {
                        match number_of(&buffer[..bytes]) {
                            Some(number) => heard.numbers.push(number),
                            None => heard.damaged += 1,
                        }
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    // Silent since it was told that all have arrived.
                    Err(_) if told => return heard,
                    Err(_) => {}
                }
            }
        });
        Self { count, stop, thread }
    }

    /// How many came so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What came; nothing may be on the path any more.
    pub(crate) fn finish(self) -> Heard {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}
