//! Reads one flow.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::tcp::{discard, set_patience};
use longhaul_units::Nanos;

use super::counts::Counts;
use super::pace::{LOOK, go_on, paced_bytes, wait_for_rate};
use crate::cpu_use::ThreadWatch;

/// Bytes that one call reads at most: what a socket gets at 100 Gb/s in 80 µs.
const READ_BYTES: usize = 1 << 20;

/// Reads to the end of the stream, or until `stop`, at `rate_bps` if any.
pub(super) fn read_all(
    socket: &TcpStream,
    counts: &Counts,
    omit: Nanos,
    rate_bps: Option<u64>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    set_patience(socket, LOOK)?;
    let most = paced_bytes(rate_bps, READ_BYTES);
    let mut cpu = None;
    while !stop.load(Ordering::Relaxed) {
        match discard(socket.as_fd(), most) {
            Ok(0) => {
                counts.end_of_stream();
                break;
            }
            Ok(count) => {
                counts.add(count, omit);
                // What comes before the first byte is no time of the test.
                cpu.get_or_insert_with(ThreadWatch::start);
                wait_for_rate(Nanos(counts.arrived_ns()), counts.bytes(), rate_bps, stop, Nanos::MAX);
            }
            Err(error) if go_on(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(cpu) = cpu {
        counts.used(cpu.used());
    }
    Ok(())
}
