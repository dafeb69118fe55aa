//! What a path is made of, as its file says it. The running model is built from these by `crate::network`.
//!
//! [`PathSpec::parse`] reads a path file ([`mod@file`] describes its keys), [`PathSpec::to_toml`] writes one, and a
//! [`Change`] alters one key of a path that may be running.

pub mod change;
mod derived;
mod error;
pub mod file;
mod load;
mod packets;
mod short;
mod validate;
pub mod value;
mod write;

use std::num::NonZeroU64;

use longhaul_units::{BitRate, Bytes, LAYER1_OVERHEAD_BYTES, Nanos};

pub use change::{Change, ChangeError, HopRef};
pub use error::SpecError;
pub(crate) use error::shown;
pub use file::ReadFile;
pub use load::no_files;
pub use packets::PacketList;
pub use validate::{CORRELATION_MAX, DELAY_MAX, HOPS_MAX, HOSTS_MAX, LIST_MAX};
pub use value::{Key, Setting};

/// One of the two directions of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Client to server.
    Forward,
    /// Server to client.
    Backward,
}

/// One of the two ends of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathEnd {
    /// Left.
    Client,
    /// Right.
    Server,
}

/// A path of two directions between the hosts at its two ends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathSpec {
    /// Short name, such as `nlr-small`.
    pub name: String,
    /// Where its figures come from.
    pub source: String,
    /// Hops from client to server, in travelling order, shared by all hosts.
    pub forward: Vec<HopSpec>,
    /// Hops from server to client, in travelling order, shared by all hosts.
    pub backward: Vec<HopSpec>,
    /// Hosts on the left; empty means one with default access.
    pub clients: Vec<HostSpec>,
    /// Hosts on the right; empty means one with default access.
    pub servers: Vec<HostSpec>,
}

/// A host and its access hop, which it has once in each direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSpec {
    /// `None`: `client`/`server`, or `client1`, `client2`, … where an end has several.
    pub name: Option<String>,
    /// Its link's speed at L1; `None`: see [`PathSpec::access_rate`].
    pub rate: Option<BitRate>,
    /// Delay between the host and the shared hops, in each direction.
    pub delay: Nanos,
    /// Limit of the access hop's queue.
    pub queue: QueueLimit,
    /// The host interface's MTU in bytes; `None`: 1500 or what `--mtu` says.
    pub mtu: Option<u32>,
}

/// One hop: what happens to a packet, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HopSpec {
    /// What `set` and the counters call it; `None`: `hop1`, `hop2`, … of its direction.
    pub name: Option<String>,
    /// Which packets the hop loses.
    pub loss: LossSpec,
    /// When the hop loses everything.
    pub outages: Vec<Outage>,
    /// Chance that a packet is followed by a copy of itself.
    pub duplicate: Probability,
    /// Chance that one bit of a packet is flipped.
    pub corrupt: Probability,
    /// Drops what is longer.
    pub mtu: Option<MtuSpec>,
    /// Drops what exceeds a rate.
    pub policer: Option<PolicerSpec>,
    /// How much waits for the rate.
    pub queue: QueueLimit,
    /// Serving rate; `None`: instant.
    pub rate: Option<BitRate>,
    /// Which bytes `policer`, `rate` and a byte queue count.
    pub layer: Layer,
    /// Fixed delay, at most 10 s.
    pub delay: Nanos,
    /// When another fixed delay holds.
    pub delay_steps: DelaySteps,
    /// Variation around `delay`.
    pub jitter: Option<JitterSpec>,
    /// Release in batches.
    pub coalesce: Option<CoalesceSpec>,
}

/// A chance from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Probability(pub f64);

/// Which bytes of a packet count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layer {
    /// The frame, at least 60 bytes, and 24 bytes of preamble, FCS and gap.
    #[default]
    L1,
    /// The frame from destination address to the end of its payload, without FCS.
    L2,
}

/// Shortest Ethernet frame without its FCS (IEEE 802.3 §3.2.8); what is shorter is padded on the wire.
const SHORTEST_FRAME_BYTES: u32 = 60;

impl Layer {
    /// Bytes of a frame of `frame_bytes` (L2, without FCS) that count at this layer.
    pub fn bytes_of(self, frame_bytes: u32) -> u32 {
        match self {
            Self::L1 => frame_bytes.max(SHORTEST_FRAME_BYTES).saturating_add(LAYER1_OVERHEAD_BYTES),
            Self::L2 => frame_bytes,
        }
    }
}

/// Which packets a hop loses. Packets are counted from 1 as they arrive at the hop.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum LossSpec {
    /// None.
    #[default]
    None,
    /// Each with this chance, independently.
    Random(Probability),
    /// Exactly the n-th, 2n-th, 3n-th, …
    Every(NonZeroU64),
    /// A chain of two states (Gilbert 1960, Elliott 1963), stepped once a packet.
    GilbertElliott {
        /// Chance to go from good to bad.
        p: Probability,
        /// Chance to go from bad to good.
        r: Probability,
        /// Chance that a packet survives the bad state.
        h: Probability,
        /// Chance that a packet survives the good state.
        k: Probability,
    },
    /// Exactly these.
    List(PacketList),
    /// In bursts that last for a time, however many packets come.
    Bursts(BurstLoss),
}

/// A chain of two states in time: it stays in each for an exponential time (Gilbert 1960, in continuous time).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLoss {
    /// How long a burst lasts on average.
    pub lasting: Nanos,
    /// From begin to begin of bursts, on average.
    pub every: Nanos,
    /// Chance that a packet is lost in a burst.
    pub lost: Probability,
    /// Chance that a packet is lost between bursts.
    pub otherwise: Probability,
}

/// A span of time in which a hop loses every packet that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, after the path's start.
    pub at: Nanos,
    /// How long it lasts.
    pub lasting: Nanos,
    /// From begin to begin of its repetitions; `None`: once.
    pub every: Option<Nanos>,
}

/// The longest packet that a hop carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MtuSpec {
    /// Bytes of a packet behind its Ethernet header of 14 bytes, 68 to 65,535.
    pub bytes: u32,
    /// Whether the sender of a longer one is told by ICMP (RFC 1191 §4, RFC 4443 §3.2); `false`: a black hole.
    pub icmp: bool,
}

impl MtuSpec {
    /// Whether it carries a frame of `frame_bytes` (L2, without FCS).
    pub fn carries(self, frame_bytes: u32) -> bool {
        frame_bytes <= self.frame_bytes()
    }

    /// The longest frame that it carries.
    pub fn frame_bytes(self) -> u32 {
        self.bytes.saturating_add(ETHERNET_HEADER_BYTES)
    }
}

/// IEEE 802.3 §3.1.1, without tags.
const ETHERNET_HEADER_BYTES: u32 = 14;

/// A token bucket that drops what exceeds it, without delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicerSpec {
    /// How fast tokens come.
    pub rate: BitRate,
    /// How many tokens the bucket holds: bytes at the hop's layer. A packet that counts more never passes.
    pub burst: Bytes,
}

/// How much a drop-tail queue holds, besides the packet that is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueLimit {
    /// No limit but the emulator's memory.
    #[default]
    Unlimited,
    /// Bytes, counted at the hop's layer.
    Bytes(Bytes),
    /// Wire packets.
    Packets(u64),
}

/// When a hop has another fixed delay than its own, as after a change of the route.
#[derive(Debug, Clone, PartialEq)]
pub enum DelaySteps {
    /// At these times; none if empty. Of steps that last at one time, the one that began last holds.
    At(Vec<DelayStep>),
    /// At random: the hop begins with its own delay; after exponential times it changes to another of its own and `delays`.
    Random {
        /// From change to change, on average.
        every: Nanos,
        /// What it changes between, beside its own delay. At least one.
        delays: Vec<Nanos>,
    },
}

impl Default for DelaySteps {
    fn default() -> Self {
        Self::At(Vec::new())
    }
}

/// A time from which a hop has another delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayStep {
    /// When it begins, after the path's start.
    pub at: Nanos,
    /// The delay then.
    pub delay: Nanos,
    /// How long it lasts; `None`: until another step.
    pub lasting: Option<Nanos>,
    /// From begin to begin of its repetitions; `None`: once.
    pub every: Option<Nanos>,
}

/// Variation of a hop's delay, with mean 0.
#[derive(Debug, Clone, PartialEq)]
pub struct JitterSpec {
    /// Its distribution.
    pub law: Law,
    /// Its standard deviation.
    pub stddev: Nanos,
    /// What becomes of the order of packets.
    pub order: Order,
    /// Delays this far apart in time have a correlation of 1/e; `None`: as `order` makes it.
    pub correlation: Option<Nanos>,
}

/// What jitter does to the order of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Packets leave in the order in which they came.
    #[default]
    Fifo,
    /// Each packet has a delay of its own, so packets may be reordered.
    Free,
}

/// Release in batches: the first packet of a batch opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoalesceSpec {
    /// The batch leaves this long after it was opened …
    pub time: Nanos,
    /// … or as soon as it holds this many packets.
    pub count: Option<NonZeroU64>,
}

pub use crate::law::Law;
