//! The answer: causes, findings, and what is not known.

use longhaul_result::Location;
use longhaul_units::BitRate;
use serde::{Deserialize, Serialize};

/// Fixing a cause must raise the goodput by this factor, or it is not named: what a user notices, and well beyond what
/// two runs over one path differ by.
pub(crate) const WORTH_NAMING: f64 = 1.3;

/// The kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The slowest link that the hosts know of.
    Link,
    /// A queue that sends at a lower rate than the links.
    Shaper,
    /// Something that drops what is above a rate, without a queue.
    Policer,
    /// The receive window.
    ReceiveWindow,
    /// The send buffer.
    SendBuffer,
    /// Loss that does not depend on the rate, with the congestion control's answer to it.
    Loss,
    /// The congestion control, without loss that explains its window.
    CongestionControl,
    /// A transfer ends before TCP has reached its rate.
    SlowStart,
    /// The receiving program reads slowly.
    ReceiverApplication,
    /// The sending program writes slowly.
    SenderApplication,
    /// The program has a window of its own.
    ApplicationWindow,
    /// A CPU is busy, or a thread waits for one.
    Cpu,
    /// Large packets are lost, and no ICMP message reports it.
    MtuBlackHole,
    /// Packets are smaller than the path would carry.
    Mtu,
    /// A device on the path removed options from TCP's handshake.
    MiddleboxOptions,
    /// Packets are reordered.
    Reordering,
    /// A queue that is too short for TCP's bursts.
    Queue,
    /// Other traffic takes its share.
    CompetingTraffic,
    /// One of several parallel links is bad.
    EcmpMember,
    /// The disk reads or writes slowly.
    Disk,
    /// The kernel, or a control group, lacks memory for sockets.
    MemoryLimit,
    /// Nothing: the goodput is what was expected.
    None,
}

impl Code {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Shaper => "shaper",
            Self::Policer => "policer",
            Self::ReceiveWindow => "receive_window",
            Self::SendBuffer => "send_buffer",
            Self::Loss => "loss",
            Self::CongestionControl => "congestion_control",
            Self::SlowStart => "slow_start",
            Self::ReceiverApplication => "receiver_application",
            Self::SenderApplication => "sender_application",
            Self::ApplicationWindow => "application_window",
            Self::Cpu => "cpu",
            Self::MtuBlackHole => "mtu_black_hole",
            Self::Mtu => "mtu",
            Self::MiddleboxOptions => "middlebox_options",
            Self::Reordering => "reordering",
            Self::Queue => "queue",
            Self::CompetingTraffic => "competing_traffic",
            Self::EcmpMember => "ecmp_member",
            Self::Disk => "disk",
            Self::MemoryLimit => "memory_limit",
            Self::None => "none",
        }
    }

    /// What limits, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Link => "the speed of a link",
            Self::Shaper => "a queue that sends at a lower rate than the links",
            Self::Policer => "a policer, which drops what is above its rate",
            Self::ReceiveWindow => "the receive window",
            Self::SendBuffer => "the send buffer",
            Self::Loss => "loss, and the congestion control's answer to it",
            Self::CongestionControl => "the congestion control",
            Self::SlowStart => "the beginning of each transfer",
            Self::ReceiverApplication => "the receiving program, which reads too slowly",
            Self::SenderApplication => "the sending program, which writes too slowly",
            Self::ApplicationWindow => "the program's own window",
            Self::Cpu => "the CPU",
            Self::MtuBlackHole => "an MTU black hole: large packets are lost",
            Self::Mtu => "the size of packets",
            Self::MiddleboxOptions => "a middlebox that removes TCP options",
            Self::Reordering => "reordered packets",
            Self::Queue => "a queue that is too short for bursts",
            Self::CompetingTraffic => "other traffic on the path",
            Self::EcmpMember => "a bad link among parallel ones",
            Self::Disk => "the disk",
            Self::MemoryLimit => "memory for sockets",
            Self::None => "nothing",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One of the two hosts, by what it does with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The host that sends the data.
    Sender,
    /// The host that receives it.
    Receiver,
}

impl Role {
    /// `sender` or `receiver`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// How a bound is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A test ran into it.
    Measured,
    /// A formula gives it from measured values.
    Derived,
    /// A test reached `least` without meeting it; `most` is not known.
    AtLeast,
}

/// A rate, as an interval of payload bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// At least this.
    pub least: u64,
    /// At most this; `null` if no test or formula says.
    pub most: Option<u64>,
    /// How it is known.
    pub basis: Basis,
}

impl Interval {
    /// What a test ran into, within the spread of what it measured.
    pub fn measured(least: u64, most: u64) -> Self {
        Self { least: least.min(most), most: Some(most.max(least)), basis: Basis::Measured }
    }

    /// What a formula gives.
    pub fn derived(least: u64, most: u64) -> Self {
        Self { basis: Basis::Derived, ..Self::measured(least, most) }
    }

    /// What a test reached without meeting the limit.
    pub fn at_least(least: u64) -> Self {
        Self { least, most: None, basis: Basis::AtLeast }
    }

    /// Its middle; `least` where there is no upper end.
    pub fn middle(&self) -> u64 {
        self.most.map_or(self.least, |most| self.least / 2 + most / 2 + (self.least & most & 1))
    }
}

impl Interval {
    /// For people.
    pub fn text(&self) -> String {
        match self.most {
            None => format!("at least {}/s", about(self.least)),
            Some(most) if most <= self.least => format!("{}/s", about(most)),
            Some(most) => format!("{} - {}/s", about(self.least), about(most)),
        }
    }
}

/// A rate for people: three digits.
pub fn about(bps: u64) -> BitRate {
    let digits = bps.checked_ilog10().unwrap_or(0);
    let unit = 10u64.pow(digits.saturating_sub(2));
    BitRate(bps / unit * unit)
}

/// A line of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// What was seen.
    pub text: String,
    /// A command that shows it without longhaul; empty if there is none.
    pub command: String,
}

impl Line {
    /// What was seen, and the command that shows it.
    pub fn new(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self { text: text.into(), command: command.into() }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Remedy {
    /// Where: `null` for the network.
    pub host: Option<Role>,
    /// What to do, in a line.
    pub text: String,
    /// Commands that do it, or that show where, with `; ` between them; empty if there are none. A word in capitals, such as `IF`, `HOST` or
    /// `PID`, stands for what the reader knows.
    pub command: String,
}

impl Remedy {
    /// What to do at a host, or in the network.
    pub fn new(host: Option<Role>, text: impl Into<String>, command: impl Into<String>) -> Self {
        Self { host, text: text.into(), command: command.into() }
    }
}

/// A possible limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// What limits.
    pub code: Code,
    /// Where packets are lost, or wait; `null` if the limit is not a location on a packet's path.
    pub place: Option<Location>,
    /// At which host; `null` for the network, or if it is not known.
    pub host: Option<Role>,
    /// The rate that it allows.
    pub bound_bps: Interval,
    /// Why.
    pub evidence: Vec<Line>,
    /// What to do.
    pub remedies: Vec<Remedy>,
}

impl Bound {
    /// The place, or the host; `?` if neither is known.
    pub fn place_name(&self) -> String {
        match (self.place, self.host) {
            (Some(place), _) => place.to_string(),
            (None, Some(host)) => host.name().into(),
            (None, None) => "?".into(),
        }
    }
}

/// A bound below the target: what it costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// The limit.
    #[serde(flatten)]
    pub bound: Bound,
    /// What fixing this cause and all before it adds, up to the next limit.
    pub worth_bps: Interval,
    /// Whether `worth_bps` is an upper end only: too few losses were seen to know the rate at which they come.
    pub worth_is_upper_end: bool,
}

/// Something that deserves attention and has no price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The kind: a code of a cause that costs nothing now, or of a caveat of the host.
    pub code: String,
    /// At which host; `null` for the network.
    pub host: Option<Role>,
    /// What was seen.
    pub text: String,
    /// What to do; empty if nothing has to be done.
    pub remedy: String,
}

/// Something that could not be known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unknown {
    /// What is not known.
    pub what: String,
    /// The test that would decide it.
    pub test: String,
}

/// Where the target comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetBasis {
    /// The user named it.
    Named,
    /// The slowest link that the hosts know of.
    Link,
    /// What UDP carried: nothing else is known.
    Udp,
}

/// The answer for one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The rate of the link that the flow should fill, bits per second on the wire (L1); `null` if nothing says one.
    pub target_bps: Option<u64>,
    /// Where the target comes from.
    pub target_basis: Option<TargetBasis>,
    /// The payload that TCP carries at the target, bits per second: without headers, preamble and gap.
    pub target_payload_bps: Option<u64>,
    /// What TCP carried as an application gets it, payload bits per second; `null` if no such test came to its end.
    pub goodput_bps: Option<u64>,
    /// The least round-trip time that was seen.
    pub base_rtt_ns: Option<u64>,
    /// Limits below the target, the lowest first.
    pub causes: Vec<Cause>,
    /// Limits that were looked at and lie above, the lowest first.
    pub bounds: Vec<Bound>,
    /// What deserves attention and has no price.
    pub findings: Vec<Finding>,
    /// What could not be known.
    pub unknown: Vec<Unknown>,
}

impl Diagnosis {
    /// Whether the flow carries about what was expected of it; `false` if nothing says what to expect.
    pub fn is_on_target(&self) -> bool {
        let target = self.target_payload_bps.filter(|_| self.target_bps.is_some());
        self.goodput_bps.zip(target).is_some_and(|(goodput, target)| goodput as f64 * WORTH_NAMING > target as f64)
    }
}
