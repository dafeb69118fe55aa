//! TCP sockets: what std does not set.
//!
//! Source: socket(7), tcp(7).

use std::io;
use std::os::fd::AsFd;

use longhaul_units::BitRate;

use crate::udp::option::set_bytes;

/// Has `socket` send at `rate` of payload bits a second at most (`SO_MAX_PACING_RATE`). TCP paces itself where the interface
/// has no fq.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: BitRate) -> io::Result<()> {
    let bytes_per_second = rate.0 / 8;
    set_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}
