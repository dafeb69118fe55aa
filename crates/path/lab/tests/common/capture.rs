//! Frames as they arrive at an interface, and the judgement of tshark on them.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket, VlanTag};
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::wait::readable_until;
use longhaul_lab::Lab;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use longhaul_units::Nanos;
use longhaul_wire::{VnetHeader, checksum};

use super::start;

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    /// When the kernel took it in, `CLOCK_REALTIME`.
    pub(crate) at: Nanos,
    pub(crate) vnet: VnetHeader,
    pub(crate) vlan: Option<VlanTag>,
    /// Its first bytes.
    pub(crate) frame: Vec<u8>,
    /// Bytes that it had.
    pub(crate) original_bytes: usize,
}

/// A packet socket on `interface`.
pub(crate) fn socket(namespace: &NetNamespace, interface: &str) -> PacketSocket {
    let open = || {
        let index = Netlink::open().unwrap().index_of(interface).unwrap();
        let options = PacketOptions { receive_buffer_bytes: 512 << 20, promiscuous: false, ..PacketOptions::default() };
        PacketSocket::open(index, &options).unwrap()
    };
    namespace.enter(open).unwrap()
}

/// A capture of what arrives.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Captured>>,
}

impl Capture {
    /// Of the first `snap` bytes of each frame that arrives at `interface`.
    pub(crate) fn start(namespace: &NetNamespace, interface: &str, snap: usize) -> Self {
        let socket = socket(namespace, interface);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut frames = Vec::new();
            let mut buffer = vec![0; 1 << 17];
            loop {
                let last = stopped.load(Ordering::Acquire);
                while let Some(received) = socket.receive(&mut buffer).unwrap() {
                    assert!(!received.truncated, "{} bytes", received.original_bytes);
                    frames.push(Captured {
                        at: received.stamp_realtime.expect("a stamp"),
                        vnet: VnetHeader::parse(&received.vnet),
                        vlan: received.vlan,
                        frame: buffer[..received.frame_bytes.min(snap)].to_vec(),
                        original_bytes: received.frame_bytes,
                    });
                }
                if last {
                    assert_eq!(socket.drops(), 0, "frames that the capture missed");
                    return frames;
                }
                readable_until(&socket, Some(monotonic() + Nanos::from_millis(20))).unwrap();
            }
        });
        Self { stop, thread }
    }

    /// What arrived until now.
    pub(crate) fn finish(self) -> Vec<Captured> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Writes whole frames as a pcap file (draft-ietf-opsawg-pcap), after doing what an interface does: where a frame's offload
/// header asks for it, the checksum is completed over what the field holds. A wrong pseudo header then is a wrong checksum.
pub(crate) fn write_pcap(file: &str, frames: &[Captured]) {
    let mut out = std::io::BufWriter::new(fs::File::create(file).unwrap());
    let word = |value: u32| value.to_le_bytes();
    // Nanoseconds, version 2.4, UTC, Ethernet.
    for value in [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 1 << 18, 1] {
        out.write_all(&word(value)).unwrap();
    }
    for captured in frames {
        let mut frame = captured.frame.clone();
        assert_eq!(frame.len(), captured.original_bytes, "a whole frame");
        if captured.vnet.needs_csum() {
            let (start, offset) = (captured.vnet.csum_start, captured.vnet.csum_offset);
            checksum::complete(&mut frame, start.into(), offset.into()).expect("a checksum inside of the frame");
        }
        let (seconds, nanos) = (captured.at.0 / 1_000_000_000, captured.at.0 % 1_000_000_000);
        for value in [seconds as u32, nanos as u32, frame.len() as u32, frame.len() as u32] {
            out.write_all(&word(value)).unwrap();
        }
        out.write_all(&frame).unwrap();
    }
    out.flush().unwrap();
}

/// What tshark says of a capture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// TCP segments and UDP datagrams whose checksum is good.
    pub(crate) good: u64,
    /// Frames with a bad checksum, a bad length, or that make no sense.
    pub(crate) bad: Vec<String>,
    /// Frames in all.
    pub(crate) frames: u64,
}

/// Has tshark look for bad checksums and lengths.
pub(crate) fn judge(file: &str) -> Verdict {
    let fields = [
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
        "tcp.checksum",
        "_ws.malformed",
        "ip.bogus_ip_length",
        "ip.bogus_header_length",
        "udp.length.bad",
        "udp.length.bad_zero",
        "tcp.bogus_header_length",
        // Bytes behind the end of the IP packet.
        "eth.padding",
        "eth.trailer",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file, "-T", "fields", "-E", "separator=,", "-e", "frame.number"]);
    // Payload is no protocol of any kind.
    command.args(["-d", "tcp.port==1-65535,data", "-d", "udp.port==1-65535,data"]);
    for option in ["ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{option}:TRUE")]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut verdict = Verdict { good: 0, bad: Vec::new(), frames: 0 };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        verdict.frames += 1;
        let values: Vec<&str> = line.split(',').skip(1).collect();
        // 1: good (epan/proto.h, PROTO_CHECKSUM_E_GOOD). The inner of a quoted packet does not occur here.
        let mut sums = values[..3].to_vec();
        // Linux writes a sum of 0 as 0xffff whatever the protocol (`skb_checksum_help`), which sums up to the same (RFC 1624
        // §3); tshark calls it bad in TCP.
        if values[3] == "0xffff" {
            sums[1] = "1";
        }
        verdict.good += u64::from(sums[1..].contains(&"1"));
        if sums.iter().any(|sum| !["", "1"].contains(sum)) || values[4..].iter().any(|value| !value.is_empty()) {
            verdict.bad.push(line.to_owned());
        }
    }
    verdict
}

/// A tcpdump on a host's interface, which also sees what leaves.
pub(crate) struct Tcpdump {
    program: Program,
    file: String,
    said: String,
}

impl Tcpdump {
    /// Of what goes `direction` (`in` or `out`) and matches `filter`, the first `snap` bytes of each frame, into `file`.
    pub(crate) fn start(lab: &Lab, host: &str, direction: &str, snap: &str, filter: &str, file: String) -> Self {
        let said = format!("{file}.said");
        let options = ["tcpdump", "-i", "eth0", "-Q", direction, "-s", snap, "-B", "131072", "-U", "-w", &file, filter];
        let program = start(lab, host, &options, fs::File::create(&said).unwrap());
        until("tcpdump to listen", || fs::read_to_string(&said).unwrap().contains("listening on"));
        Self { program, file, said }
    }

    /// The file, once `done` finds in it what it should have.
    pub(crate) fn finish(mut self, done: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        until("tcpdump to write all that it saw", || {
            bytes = fs::read(&self.file).unwrap();
            done(&bytes)
        });
        let process = Process::open(self.program.0.id()).unwrap().expect("it runs");
        process.signal(Signal::INT).unwrap();
        self.program.0.wait().unwrap();
        let said = fs::read_to_string(&self.said).unwrap();
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
        bytes
    }
}

/// The frames of a pcap file, as far as they are written.
pub(crate) fn frames_of(pcap: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = pcap.get(24..).unwrap_or_default();
    std::iter::from_fn(move || {
        let captured = u32::from_le_bytes(rest.get(8..12)?.try_into().ok()?) as usize;
        let frame = rest.get(16..16 + captured)?;
        rest = &rest[16 + captured..];
        Some(frame)
    })
}
