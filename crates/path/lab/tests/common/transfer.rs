//! A TCP transfer in which every byte is checked.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_lab::Lab;
use longhaul_testing::waiting::until;
use nix::sys::socket::{setsockopt, sockopt};

use super::on;

/// A prime: a piece that is missing, duplicated or out of place by a number of segments does not match.
const PATTERN_BYTES: usize = 1_048_583;
/// A transfer that makes no progress for so long has stalled.
const STALLED: Duration = Duration::from_secs(15);

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(PATTERN_BYTES).collect()
    })
}

/// A transfer under way.
pub(crate) struct Transfer {
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<()>,
    began: Instant,
}

impl Transfer {
    /// As [`Transfer::start`], until it is told to finish.
    pub(crate) fn endless(lab: &Lab, from: &str, to: &str, ip: IpAddr, congestion_control: &str) -> Self {
        Self::start(lab, from, to, ip, u64::MAX, congestion_control)
    }

    /// `bytes` from host `from` to host `to`, which has address `ip`. `congestion_control`: as in tcp(7), `TCP_CONGESTION`.
    pub(crate) fn start(lab: &Lab, from: &str, to: &str, ip: IpAddr, bytes: u64, congestion_control: &str) -> Self {
        let listener = on(lab, to, || TcpListener::bind((ip, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let mut stream = on(lab, from, || TcpStream::connect_timeout(&address, STALLED).unwrap());
        setsockopt(&stream, sockopt::TcpCongestion, &congestion_control.into())
            .unwrap_or_else(|error| panic!("{congestion_control}: {error}"));
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(STALLED)).unwrap();
        stream.set_write_timeout(Some(STALLED)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let all = Arc::new(AtomicU64::new(bytes));
        let sent_in_all = Arc::clone(&all);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while sent < bytes && !stopped.load(Ordering::Acquire) {
                let piece = piece(sent, bytes, 256 << 10);
                let count = stream.write(piece).unwrap_or_else(|error| panic!("after {sent} bytes: {error}"));
                sent += count as u64;
            }
            sent_in_all.store(sent, Ordering::Release);
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let arrived = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&arrived);
        let receiver = thread::spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            let mut received = 0;
            loop {
                let count =
                    far.read(&mut buffer).unwrap_or_else(|error| panic!("stalled after {received} bytes: {error}"));
                if count == 0 {
                    break;
                }
                let mut rest = &buffer[..count];
                while !rest.is_empty() {
                    let wanted = piece(received, bytes, rest.len());
                    assert!(!wanted.is_empty(), "more than {bytes} bytes came");
                    let (now, later) = rest.split_at(wanted.len());
                    assert!(now == wanted, "wrong bytes between {received} and {}", received + wanted.len() as u64);
                    received += wanted.len() as u64;
                    rest = later;
                }
                counted.store(received, Ordering::Relaxed);
            }
            assert_eq!(received, all.load(Ordering::Acquire), "bytes that came");
        });
        Self { stop, arrived, sender, receiver, began: Instant::now() }
    }

    /// Bytes that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Waits until so many more bytes have arrived, of an endless transfer.
    pub(crate) fn goes_on(&self, bytes: u64) {
        let wanted = self.arrived() + bytes;
        until("the transfer to go on", || self.arrived() >= wanted || self.receiver.is_finished());
    }

    /// Has an endless transfer end.
    pub(crate) fn end(self) -> Duration {
        self.stop.store(true, Ordering::Release);
        self.finish()
    }

    /// Waits for its end, checked to the last byte. Gives how long it took.
    pub(crate) fn finish(self) -> Duration {
        for thread in [self.receiver, self.sender] {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        self.began.elapsed()
    }
}

/// Up to `most` bytes of the pattern at `position` of a stream of `bytes`.
fn piece(position: u64, bytes: u64, most: usize) -> &'static [u8] {
    let start = (position % PATTERN_BYTES as u64) as usize;
    let most = most.min((bytes - position).min(u64::from(u32::MAX)) as usize).min(PATTERN_BYTES - start);
    &pattern()[start..start + most]
}
