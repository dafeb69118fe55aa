//! One flow of this kernel's TCP over a scripted path.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::schedule::{be_prompt, set_least_timer_slack};
use longhaul_kernel::sysctl;
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn, setsockopt, sockopt};

use crate::peer::{PORT, Peer, RECEIVER, SEGMENT_BYTES, SENDER, Script};
use crate::trace::{End, Step, Trace};
use crate::tun::{Tun, tcp_info};

/// The interface.
const LINK: &str = "oracle";
/// Each flow begins with a second, so that clocks in jiffies and milliseconds round alike in all.
const SECOND: Nanos = Nanos::from_secs(1);
/// Segments that are always written but not sent, so that the flow is never held up by its application.
const AHEAD_SEGMENTS: u64 = 256;
/// A flow in which nothing happens for so long is stuck. Longer than a retransmission timeout here.
const STUCK: Nanos = Nanos::from_secs(5);
/// An acknowledgement due sooner than this is awaited without sleeping, as waking up takes about so long.
const SPIN: Nanos = Nanos::from_micros(8);

/// What the kernel is told, though most are defaults: those may change.
const PARAMETERS: [(&str, &str); 13] = [
    // What the interface itself would send.
    ("net.ipv6.conf.default.disable_ipv6", "1"),
    // Nothing learnt from an earlier flow.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    // Loss probes come by a timer, and timers count in jiffies.
    ("net.ipv4.tcp_early_retrans", "0"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_frto", "0"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_dsack", "0"),
    ("net.ipv4.tcp_timestamps", "0"),
    ("net.ipv4.tcp_ecn", "0"),
    ("net.ipv4.tcp_fastopen", "0"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.tcp_wmem", "4096 67108864 67108864"),
];

/// Makes the interface to the scripted path.
///
/// # Panics
/// Where the kernel refuses: it needs root.
pub(crate) fn interface() -> Tun {
    let tun = Tun::create(LINK).unwrap_or_else(|error| panic!("a TUN device: {error}"));
    for (key, value) in PARAMETERS {
        sysctl::write(key, value).unwrap();
    }
    // One segment in a packet from the beginning, as TCP waits for more to fill a larger one, by a clock; and room for any burst:
    // Linux 6.12.117 takes no queue of 60000.
    let address = format!("{}/24", Ipv4Addr::from(SENDER));
    let mtu = (SEGMENT_BYTES + 40).to_string();
    ip(&["link", "set", LINK, "mtu", &mtu, "txqueuelen", "30000", "gso_max_segs", "1", "up"]);
    ip(&["address", "add", &address, "dev", LINK]);
    tun
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap_or_else(|error| panic!("ip (iproute2): {error}"));
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Has a flow with `congestion_control` go through `script`.
///
/// # Errors
/// Where the kernel has no such congestion control.
///
/// # Panics
/// Where the flow gets stuck.
pub(crate) fn run(tun: &Tun, congestion_control: &str, script: &Script) -> io::Result<Trace> {
    be_prompt();
    set_least_timer_slack().unwrap();
    sleep(Duration::from_nanos(SECOND.0 - monotonic().0 % SECOND.0));
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::TcpCongestion, &congestion_control.into())?;
    // The flow ends at once when it is closed, and does not go on into the next.
    setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    match socket::connect(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(RECEIVER.into(), PORT))) {
        Err(Errno::EINPROGRESS) => {}
        other => panic!("connect: {other:?}"),
    }
    Flow {
        tun,
        socket: socket.into(),
        script,
        peer: Peer::new(script),
        written_bytes: 0,
        now: monotonic(),
        late: Vec::new(),
    }
    .run()
}

struct Flow<'a> {
    tun: &'a Tun,
    socket: TcpStream,
    script: &'a Script,
    peer: Peer<'a>,
    written_bytes: u64,
    /// When it was last looked at the clock.
    now: Nanos,
    late: Vec<Nanos>,
}

impl Flow<'_> {
    fn run(mut self) -> io::Result<Trace> {
        let mut steps: Vec<Step> = Vec::new();
        self.read()?;
        while self.peer.delivered() < self.script.segments {
            let Some(due) = self.wait()? else { continue };
            let Some(packet) = self.peer.answer() else { continue };
            self.late.push(self.now.saturating_sub(due));
            self.tun.write(&packet)?;
            self.write()?;
            self.read()?;
            let info = tcp_info(&self.socket)?;
            let step = Step {
                delivered_segments: self.peer.delivered(),
                window_segments: info.tcpi_snd_cwnd,
                threshold_segments: info.tcpi_snd_ssthresh,
                state: info.tcpi_ca_state,
            };
            if steps.last().is_none_or(|last| Step { delivered_segments: step.delivered_segments, ..*last } != step) {
                steps.push(step);
            }
        }
        self.late.sort_unstable();
        let (median, most) = (self.late[self.late.len() / 2], self.late[self.late.len() - 1]);
        let delivered_segments = self.script.segments;
        Ok(Trace { steps, end: End { delivered_segments, late_median_ns: median.0, late_most_ns: most.0 } })
    }

    /// Waits until an answer is due, and says when that was. `None` after the sender sent by itself, which may have made another
    /// one due first.
    fn wait(&mut self) -> io::Result<Option<Nanos>> {
        let next = self.peer.next();
        let deadline = next.unwrap_or_else(|| monotonic() + STUCK);
        self.now = monotonic();
        while deadline.saturating_sub(self.now) > SPIN {
            if readable_until(self.tun, Some(deadline.saturating_sub(SPIN)))? && self.read()? {
                return Ok(None);
            }
            self.now = monotonic();
        }
        while self.now < deadline {
            self.now = monotonic();
        }
        assert!(next.is_some(), "the flow is stuck after {} segments", self.peer.delivered());
        Ok(next)
    }

    /// Reads what the sender sent; returns whether there was something.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        let mut some = false;
        while let Some(packet) = self.tun.read(&mut buffer)? {
            // Now, and not when it was due: then no round trip is ever shorter than the path's, which is what some congestion
            // controls take the least of.
            self.peer.sent(packet, monotonic());
            some = true;
        }
        Ok(some)
    }

    /// Keeps data waiting in the socket.
    fn write(&mut self) -> io::Result<()> {
        static BLOCK: [u8; 64 * SEGMENT_BYTES as usize] = [0; 64 * SEGMENT_BYTES as usize];
        while self.written_bytes < (self.peer.sent_segments() + AHEAD_SEGMENTS) * u64::from(SEGMENT_BYTES) {
            match self.socket.write(&BLOCK) {
                Ok(bytes) => self.written_bytes += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
