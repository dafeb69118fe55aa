//! A plain TCP flow: what any program that writes and reads would see.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, process_cpu_time};
use longhaul_kernel::tcp::set_max_pacing_rate;
use longhaul_units::BitRate;
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use serde::{Deserialize, Serialize};

use super::Curve;
use crate::Result;
use crate::child::ready;

/// What iperf3 writes and reads at a time.
const WRITE_BYTES: usize = 128 << 10;
/// More than is written at a time, so that the receiver can catch up.
const READ_BYTES: usize = 512 << 10;
/// The receiver's own time scale: fine enough for windows of a second, coarse enough to cost nothing.
const CURVE_SPACING_NS: u64 = 10_000_000;

/// What the receiver saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TcpReceived {
    /// Bytes by the time since the first of them.
    pub(crate) curve: Curve,
    pub(crate) bytes: u64,
    pub(crate) cpu_ns: u64,
}

/// What the sender saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TcpSent {
    /// Segments retransmitted by this host, of all that it sent (`/proc/net/snmp`, wire segments).
    pub(crate) retransmitted_segments: u64,
    /// The congestion window near the end, in segments; `None` where ss(8) could not tell.
    pub(crate) congestion_window_segments: Option<u64>,
    pub(crate) cpu_ns: u64,
}

/// Reads from one connection until `seconds` after its first byte.
pub(crate) fn receive(port: u16, seconds: f64) -> Result<TcpReceived> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    ready()?;
    let (mut connection, _) = listener.accept()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut curve = Curve::default();
    let (mut bytes, mut first_ns) = (0, None);
    loop {
        let read = connection.read(&mut buffer)?;
        let now_ns = monotonic().0;
        let elapsed_ns = now_ns - *first_ns.get_or_insert(now_ns);
        bytes += read as u64;
        curve.add(elapsed_ns, bytes, CURVE_SPACING_NS);
        if read == 0 || elapsed_ns as f64 > seconds * 1e9 {
            break;
        }
    }
    Ok(TcpReceived { curve, bytes, cpu_ns: process_cpu_time().0 })
}

/// Writes into one connection until the receiver closes it.
pub(crate) fn send(
    to: SocketAddrV4,
    congestion_control: &str,
    pacing: Option<BitRate>,
    seconds: f64,
) -> Result<TcpSent> {
    ready()?;
    let mut connection = TcpStream::connect(to)?;
    setsockopt(&connection, TcpCongestion, &congestion_control.into())
        .map_err(|error| format!("congestion control {congestion_control}: {error}"))?;
    if let Some(rate) = pacing {
        set_max_pacing_rate(&connection, rate)?;
    }
    let before = retransmitted_segments()?;
    let look = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs_f64(seconds * 0.9));
        congestion_window(to)
    });
    let data = vec![0x6c; WRITE_BYTES];
    // The receiver ends the flow, in the middle of it.
    while connection.write(&data).is_ok() {}
    Ok(TcpSent {
        retransmitted_segments: retransmitted_segments()? - before,
        congestion_window_segments: look.join().ok().flatten(),
        cpu_ns: process_cpu_time().0,
    })
}

/// `Tcp: RetransSegs` of this network namespace.
fn retransmitted_segments() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let value = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "RetransSegs");
    Ok(value.ok_or("no RetransSegs in /proc/net/snmp")?.1.parse()?)
}

/// `cwnd:` of ss(8).
fn congestion_window(to: SocketAddrV4) -> Option<u64> {
    let output = Command::new("ss").args(["-tinH", "dst", &to.to_string()]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().find_map(|word| word.strip_prefix("cwnd:")?.parse().ok())
}
