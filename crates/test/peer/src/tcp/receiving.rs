//! Reads one flow.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::tcp::{discard, set_patience};
use longhaul_units::Nanos;

use super::counts::Counts;
use super::pace::{LOOK, go_on, paced_bytes, wait_for_rate};

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
    while !stop.load(Ordering::Relaxed) {
        match discard(socket.as_fd(), most) {
            Ok(0) => {
                counts.end_of_stream();
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
