//! Numbered datagrams in batches: `UDP_SEGMENT` at the sender, `UDP_GRO` at the receiver.

use std::io::IoSliceMut;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, process_cpu_time};
use longhaul_kernel::schedule::pin_to;
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recv, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use super::Curve;
use crate::Result;
use crate::child::ready;

/// The number at the start of each datagram, little-endian, from 1.
const NUMBER_BYTES: usize = 8;
/// Datagrams wait here while the receiver has no CPU: it is the path that is measured, not this socket.
const RECEIVE_BUFFER_BYTES: usize = 512 << 20;
/// Enough that the path and not this socket holds the sender back.
const SEND_BUFFER_BYTES: usize = 64 << 20;
/// No datagram for so long, once there was one: there will be no more.
const IDLE: Duration = Duration::from_millis(700);
/// Nothing at all for so long.
const NEVER: Duration = Duration::from_secs(15);
/// The receiver tells the sender so often in a window what has come.
const REPORTS_IN_WINDOW: u64 = 16;
/// No report for so long means that the window was lost.
const REPORT_PATIENCE: Duration = Duration::from_millis(200);
/// How long reports may come after the last datagram.
const FAREWELL: Duration = Duration::from_millis(300);
/// Of the receiver's time scales.
const CURVE_SPACING_NS: u64 = 1_000_000;

/// When the sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// While at most so many are on their way: as fast as they are taken, and no faster.
    Window { packets: u64 },
    /// At a rate in bits of payload a second, in bursts with so many microseconds between their starts.
    Rate { bits_per_second: u64, burst_us: u64 },
    /// As fast as the sender can.
    Blast,
}

/// What the sender did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UdpSent {
    pub(crate) packets: u64,
    pub(crate) seconds: f64,
    /// Sends that the kernel refused.
    pub(crate) refused: u64,
    /// Times at which a whole window was taken for lost.
    pub(crate) stalls: u64,
    pub(crate) cpu_ns: u64,
}

/// What the receiver saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UdpReceived {
    pub(crate) packets: u64,
    pub(crate) payload_bytes: u64,
    /// Largest number seen.
    pub(crate) highest: u64,
    /// Packets by the time at which the program had them.
    pub(crate) by_program: Curve,
    /// Packets by the kernel's receive stamp (`CLOCK_REALTIME`).
    pub(crate) by_stamp: Curve,
    /// Numbers up to the highest that never came, ascending; empty where they were not tracked.
    pub(crate) missing: Vec<u64>,
    /// Packets with a smaller number than one before them.
    pub(crate) reordered: u64,
    /// Numbers that came more than once; 0 where they were not tracked.
    pub(crate) repeated: u64,
    pub(crate) cpu_ns: u64,
}

/// Sends datagrams of `payload_bytes`, `batch` at a time, on `cpu` where one is given.
pub(crate) fn send(
    to: SocketAddrV4,
    payload_bytes: usize,
    batch: usize,
    pace: Pace,
    seconds: f64,
    packets: Option<u64>,
    cpu: Option<usize>,
) -> Result<UdpSent> {
    if let Some(cpu) = cpu {
        pin_to(&[cpu])?;
    }
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(payload_bytes)?)?;
    setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER_BYTES)?;
    socket.set_read_timeout(Some(REPORT_PATIENCE))?;
    ready()?;
    let mut data = vec![0x6c; payload_bytes * batch];
    let mut sent = UdpSent { packets: 0, seconds: 0.0, refused: 0, stalls: 0, cpu_ns: 0 };
    let mut reported = 0;
    let start = monotonic();
    let end = start + Nanos::from_secs_f64(seconds);
    let most = packets.unwrap_or(u64::MAX);
    loop {
        let now = monotonic();
        let left = (most - sent.packets).min(batch as u64) as usize;
        if now >= end || left == 0 {
            break;
        }
        match pace {
            Pace::Blast => {}
            Pace::Rate { bits_per_second, burst_us } => {
                let bits = sent.packets as f64 * payload_bytes as f64 * 8.0;
                let due_ns = (bits / bits_per_second as f64 * 1e9) as u64;
                // Sleeps to the start of the burst that the packet belongs to.
                let burst_ns = burst_us * 1000;
                let due = start + Nanos(due_ns / burst_ns * burst_ns);
                if due > now {
                    sleep_until(due.min(end));
                }
            }
            Pace::Window { packets: window } => {
                if !await_room(&socket, sent.packets + left as u64, window, &mut reported)? {
                    sent.stalls += 1;
                    reported = sent.packets;
                }
            }
        }
        for (i, datagram) in data.chunks_mut(payload_bytes).take(left).enumerate() {
            datagram[..NUMBER_BYTES].copy_from_slice(&(sent.packets + 1 + i as u64).to_le_bytes());
        }
        match socket.send(&data[..left * payload_bytes]) {
            Ok(_) => sent.packets += left as u64,
            // Nobody listens any more, or the send buffer is full: neither is for this program to judge.
            Err(_) => sent.refused += 1,
        }
    }
    sent.seconds = (monotonic() - start).as_secs_f64();
    sent.cpu_ns = process_cpu_time().0;
    // Reports that come to a closed socket would be answered by ICMP errors.
    std::thread::sleep(FAREWELL);
    Ok(sent)
}

/// Waits until no more than `window` of the first `upto` datagrams are on their way. `false`: no report comes.
fn await_room(socket: &UdpSocket, upto: u64, window: u64, reported: &mut u64) -> Result<bool> {
    let has_room = |reported: u64| upto <= reported.saturating_add(window);
    if has_room(*reported) {
        return Ok(true);
    }
    let mut report = [0; NUMBER_BYTES];
    // Whatever waits already, then what comes.
    let mut flags = MsgFlags::MSG_DONTWAIT;
    loop {
        match recv(socket.as_raw_fd(), &mut report, flags) {
            Ok(_) => {
                *reported = (*reported).max(u64::from_le_bytes(report));
                flags = MsgFlags::MSG_DONTWAIT;
            }
            Err(Errno::EAGAIN) if has_room(*reported) => return Ok(true),
            Err(Errno::EAGAIN) if flags.is_empty() => return Ok(false),
            Err(Errno::EAGAIN) => flags = MsgFlags::empty(),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes datagrams until none came for a while.
pub(crate) fn receive(port: u16, window: Option<u64>, track: bool) -> Result<UdpReceived> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
    socket.set_read_timeout(Some(NEVER))?;
    ready()?;

    let mut received = UdpReceived::default();
    let mut seen = Seen::default();
    let report_interval = window.map(|window| (window / REPORTS_IN_WINDOW).max(1));
    let mut reported = 0;
    let mut starts = None;
    let mut buffer = vec![0; 64 << 10];
    let mut control = nix::cmsg_space!(TimeSpec, i32);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message = match recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())
        {
            Ok(message) => message,
            Err(Errno::EAGAIN) => break,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let (bytes, from) = (message.bytes, message.address);
        let (mut segment_bytes, mut stamp_ns) = (bytes, None);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(size) => segment_bytes = usize::try_from(size)?,
                ControlMessageOwned::ScmTimestampns(time) => {
                    stamp_ns = Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64);
                }
                _ => {}
            }
        }
        if segment_bytes < NUMBER_BYTES || bytes == 0 {
            continue;
        }
        let now_ns = monotonic().0;
        let stamp_ns = stamp_ns.ok_or("a datagram without receive stamp")?;
        let (first_ns, first_stamp_ns) = *starts.get_or_insert_with(|| {
            // Setting it costs nothing now that data flows.
            let _ = socket.set_read_timeout(Some(IDLE));
            (now_ns, stamp_ns)
        });
        for datagram in buffer[..bytes].chunks(segment_bytes) {
            let Some(number) = datagram.first_chunk::<NUMBER_BYTES>() else { continue };
            let number = u64::from_le_bytes(*number);
            received.packets += 1;
            received.reordered += u64::from(number < received.highest);
            received.highest = received.highest.max(number);
            if track {
                seen.add(number);
            }
        }
        received.payload_bytes += bytes as u64;
        received.by_program.add(now_ns - first_ns, received.packets, CURVE_SPACING_NS);
        received.by_stamp.add(stamp_ns.saturating_sub(first_stamp_ns), received.packets, CURVE_SPACING_NS);
        if let (Some(interval), Some(from)) = (report_interval, from)
            && received.highest >= reported + interval
        {
            reported = received.highest;
            let from = SocketAddrV4::new(from.ip(), from.port());
            // A report that is not taken is made good by the next one.
            let _ = socket.send_to(&reported.to_le_bytes(), from);
        }
    }
    if track {
        (received.missing, received.repeated) = (seen.missing(received.highest), seen.repeated);
    }
    received.cpu_ns = process_cpu_time().0;
    Ok(received)
}

/// Which numbers came, a bit for each.
#[derive(Debug, Default)]
struct Seen {
    words: Vec<u64>,
    repeated: u64,
}

impl Seen {
    fn add(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        self.repeated += u64::from(self.words[word] & bit != 0);
        self.words[word] |= bit;
    }

    fn missing(&self, highest: u64) -> Vec<u64> {
        (1..=highest).filter(|number| self.words[(number / 64) as usize] & (1 << (number % 64)) == 0).collect()
    }
}
