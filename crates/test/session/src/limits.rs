//! How long each end waits for the other, and how much a server grants.

use longhaul_tcp::MAX_BLOCK_BYTES;
use longhaul_terms::{Amount, MAX_STREAMS, ParameterError};
use longhaul_udp::MAX_PAYLOAD_BYTES;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// From the TCP connection to `Start` at both ends, without the time in the queue. Four round trips of 1 s and three lost segments
/// (RFC 6298: 1 + 2 + 4 s) fit. No message extends it: it also ends the session of a peer that sends slowly.
pub const SETUP_TIMEOUT: Nanos = Nanos::from_secs(20);
/// A peer that is silent for this time counts as disconnected. An outage of 5 s must not end a test; TCP's next retransmission
/// comes within another 5 s (RFC 6298 §5.5 doubles the timer), and the answer a round trip later.
pub const PEER_SILENCE: Nanos = Nanos::from_secs(20);
/// An end with nothing to send sends a sign of life this often: several times within [`PEER_SILENCE`], so that a late one does not
/// matter.
pub const ALIVE_INTERVAL: Nanos = Nanos::from_secs(4);
/// A server says so late that there are tests before: the sockets of one that ends are closed within it.
pub(crate) const QUEUED_AFTER: Nanos = Nanos::from_millis(200);
/// A client that waits for its turn says so no more often than this, with a message of the server, which comes each
/// [`ALIVE_INTERVAL`].
pub const WAITING_TOLD: Nanos = Nanos::from_secs(10);
/// Time limit for the proof of the data path: forty attempts.
pub const PROOF_TIMEOUT: Nanos = Nanos::from_secs(10);
/// If the proof has not succeeded after this time, each end looks whether its own host drops the datagrams: twenty attempts.
pub const PROOF_LOOK: Nanos = Nanos::from_secs(5);
/// Time between attempts. On a path that loses half of them the proof still succeeds (all forty fail with 2⁻⁴⁰).
pub const PROOF_RESEND: Nanos = Nanos::from_millis(250);
/// After the sender's last message, packets can be in flight for this time without any arrival: more than the queueing delay by
/// which data can arrive after control messages on the same path.
pub const DRAIN_QUIET: Nanos = Nanos::from_secs(1);
/// A receiver stops after this time even if packets still arrive: the longest delay of our paths.
pub const DRAIN_LIMIT: Nanos = Nanos::from_secs(10);
/// A sender that has not finished this long after its time is stopped by its own session.
pub const OVERRUN: Nanos = Nanos::from_secs(5);
/// Once the user interrupts, the server has this time to end the test and report: what is in flight arrives within [`DRAIN_LIMIT`].
pub const INTERRUPT_TIMEOUT: Nanos = Nanos::from_secs(12);
/// A server waits no longer than this after the time of a test for its end, whatever the client says: a sender may run over ([`OVERRUN`], twice),
/// and its last message may come late ([`PEER_SILENCE`]). What is in flight then has the rest of this time.
pub const END_TIMEOUT: Nanos = Nanos::from_secs(30);
/// From the server's report to the client's goodbye there is the rest of that time, at least this, and what the report takes at [`REPORT_RATE`].
pub const GOODBYE_TIMEOUT: Nanos = Nanos::from_secs(10);
/// A client reads a report at this rate at least: 64 MB in less than a minute.
pub const REPORT_RATE: BitRate = BitRate(10_000_000);
/// From its turn to the end of its report a test takes no longer than its data and this. Longer reports extend it.
pub const BESIDE_DATA: Nanos =
    SETUP_TIMEOUT.saturating_add(PROOF_TIMEOUT).saturating_add(END_TIMEOUT).saturating_add(GOODBYE_TIMEOUT);
/// From the end of the data to the last piece of the report, at the client: 64 MB over 10 Mb/s.
pub const REPORT_TIMEOUT: Nanos = Nanos::from_secs(60);
/// Characters of a report in one message: well below the limit of a message, even if each character needs an escape of two.
pub const CHUNK_CHARS: usize = 256 << 10;

/// The caps of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Longest test.
    pub duration: Nanos,
    /// Payload bits per second of all streams of a direction; `None` for no cap.
    pub rate: Option<BitRate>,
    /// Longest payload.
    pub payload_bytes: u32,
    /// Most streams of a direction.
    pub streams: u8,
    /// Largest socket buffer.
    pub sockbuf: Bytes,
    /// Largest block that a TCP flow writes at a time. Servers that do not send it allow what every longhaul does.
    #[serde(default = "largest_block")]
    pub block: Bytes,
    /// Most memory that a test may hold on this host: socket buffers as large as the kernel makes them, and the block. Samples get what
    /// these leave.
    #[serde(default = "any_memory")]
    pub memory: Bytes,
    /// What the kernel lets the buffer of a TCP socket grow to where no size is asked for (`net.ipv4.tcp_rmem`, `tcp_wmem`); 0: not counted.
    #[serde(default)]
    pub tuned_buffer: Bytes,
    /// And all of them together (`net.ipv4.tcp_mem`, which the first network namespace alone has); 0: not known.
    #[serde(default)]
    pub tuned_buffers: Bytes,
    /// Largest report.
    pub report: Bytes,
    /// Whether a test may change settings of the server's host while it runs: RPS by a softirq placement or softirq CPUs, GRO,
    /// NAPI, ring and interrupts of the receiving interface, time stamps of a NIC, congestion controls that the kernel does not have yet.
    #[serde(default = "allowed")]
    pub host_settings: bool,
}

/// The longest report of a server whose tests may hold `memory`: four times it is a quarter of that, or 256 MiB.
pub fn report_cap(memory: Bytes) -> Bytes {
    Bytes((memory.0 / 16).min(Caps::default().report.0))
}

/// What a report may take while it is made: what it is made from, and its text in a buffer that grows.
pub(crate) fn report_bytes_most(report: Bytes) -> u64 {
    report.0.saturating_mul(4)
}

/// What `sockets` socket buffers of `bytes` each take, and `more`. The kernel allocates twice what it is asked for (socket(7)).
pub(crate) fn held_bytes(bytes: u64, sockets: u64, more: u64) -> u64 {
    bytes.saturating_mul(2).saturating_mul(sockets).saturating_add(more)
}

/// How long a client may take to read a report of so many bytes.
pub(crate) fn reading_time(bytes: usize) -> Nanos {
    Nanos((bytes as u64).saturating_mul(8_000_000_000) / REPORT_RATE.0)
}

/// The caps of servers that do not send them all.
const fn allowed() -> bool {
    true
}

const fn largest_block() -> Bytes {
    Bytes(MAX_BLOCK_BYTES as u64)
}

const fn any_memory() -> Bytes {
    Bytes(1 << 50)
}

impl Default for Caps {
    /// An hour, any rate, any length.
    fn default() -> Self {
        Self {
            duration: Nanos::from_secs(3600),
            rate: None,
            payload_bytes: MAX_PAYLOAD_BYTES,
            streams: MAX_STREAMS,
            sockbuf: Bytes(2 << 30),
            block: largest_block(),
            memory: any_memory(),
            tuned_buffer: Bytes(0),
            tuned_buffers: Bytes(0),
            report: Bytes(64 << 20),
            host_settings: allowed(),
        }
    }
}

impl Caps {
    /// Checks the caps on what all kinds of tests have.
    pub(crate) fn check_size(&self, amount: Amount, streams: u8) -> Result<(), ParameterError> {
        if let Amount::DurationNs(ns) = amount
            && ns > self.duration.0
        {
            return Err(ParameterError::new("duration_ns", Nanos(ns), format!("this server allows {}", self.duration)));
        }
        if streams > self.streams {
            return Err(ParameterError::new("streams", streams, format!("this server allows {}", self.streams)));
        }
        Ok(())
    }

    /// Checks the cap on the memory in which a receiver keeps which of the packets arrived: `bytes` for all of `amount`.
    pub(crate) fn check_account(&self, amount: Amount, bytes: u64) -> Result<(), ParameterError> {
        if bytes <= self.memory.0 {
            return Ok(());
        }
        let allowed = format!(
            "the account of so many packets takes {} of memory; this server allows {} for a test: ask for a lower rate or fewer streams",
            Bytes(bytes),
            self.memory
        );
        Err(match amount {
            Amount::DurationNs(ns) => ParameterError::new("duration_ns", Nanos(ns), allowed),
            Amount::Bytes(bytes) => ParameterError::new("bytes", Bytes(bytes), allowed),
            Amount::Packets(packets) => ParameterError::new("packets", packets, allowed),
        })
    }

    /// Checks the caps on `sockets` socket buffers of `bytes` each, the parameter `field`, beside `more` bytes.
    pub(crate) fn check_memory(
        &self,
        field: &'static str,
        bytes: Option<u64>,
        sockets: u64,
        more: u64,
    ) -> Result<(), ParameterError> {
        let given = bytes.unwrap_or(0);
        if given > self.sockbuf.0 {
            return Err(ParameterError::new(field, Bytes(given), format!("this server allows {}", self.sockbuf)));
        }
        let sum = held_bytes(given, sockets, more);
        if sum > self.memory.0 {
            let allowed = format!(
                "{sockets} sockets take twice that each, with the rest of the test {}; this server allows {} for a test",
                Bytes(sum),
                self.memory
            );
            return Err(ParameterError::new(field, Bytes(given), allowed));
        }
        Ok(())
    }

    /// When a sender that has not finished is stopped: at the cap if an amount was requested, else somewhat after its time.
    pub(super) fn stop_after(&self, amount: Amount) -> Nanos {
        match amount {
            Amount::DurationNs(ns) => Nanos(ns).saturating_add(OVERRUN),
            _ => self.duration,
        }
    }

    /// How long a test may send: its own time, or the cap if an amount was requested.
    pub(super) fn sending_time(&self, amount: Amount) -> Nanos {
        match amount {
            Amount::DurationNs(ns) => Nanos(ns),
            _ => self.duration,
        }
    }
}
