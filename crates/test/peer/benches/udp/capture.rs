//! When packets came, by the kernel's stamps at the server's end of the cable: the same look at any sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use longhaul_kernel::packet::PacketOptions;
use longhaul_kernel::packet_ring::RxRing;

use crate::rig::Cable;
use crate::{Error, Result};

/// Frames that wait while this thread has no CPU: 190 ms at 1 Gb/s.
const SLOTS: usize = 16 << 10;
/// Ethernet, IPv4 and UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;
/// Between two looks: the ring is shared memory, so nothing need wake anybody for a packet.
const LOOK: Duration = Duration::from_millis(2);

/// Captures UDP datagrams of one size.
#[derive(Debug)]
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<u64>>>,
}

impl Capture {
    /// Of datagrams with `payload_bytes`, from when it returns on.
    pub(crate) fn start(cable: &Cable, payload_bytes: usize) -> Result<Self> {
        let frame_bytes = payload_bytes + HEADER_BYTES;
        let options = PacketOptions { promiscuous: false, ..PacketOptions::default() };
        let mut ring = cable.server.enter(|| RxRing::open(cable.server_index, frame_bytes, SLOTS, &options))??;
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = Arc::clone(&stop);
        let (started, running) = channel();
        let thread = spawn(move || {
            let mut stamps_ns = Vec::new();
            let _ = started.send(());
            loop {
                // Read before the last look at the ring.
                let stopping = stopped.load(Ordering::Relaxed);
                while let Some(frame) = ring.next() {
                    let bytes = frame.bytes();
                    // IPv4 without options, UDP.
                    let is_udp = bytes.get(12..15) == Some(&[8, 0, 0x45]) && bytes.get(23) == Some(&17);
                    if is_udp && frame.original_bytes() == frame_bytes {
                        stamps_ns.push(frame.stamp_realtime().0);
                    }
                }
                if stopping {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            match ring.socket().drops() {
                0 => Ok(stamps_ns),
                drops => Err(Error::from(format!("the capture missed {drops} packets"))),
            }
        });
        running.recv()?;
        Ok(Self { stop, thread })
    }

    /// The stamps so far, nanoseconds of `CLOCK_REALTIME`, in the order of arrival.
    pub(crate) fn finish(self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Error::from("the capturing thread panicked"))?
    }
}
