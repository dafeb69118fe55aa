//! Which test to run next, and when the answer is plain.
//!
//! The order: the path without load, TCP as an application gets it, and only if that is slow what tells why: UDP at a low rate, at the
//! target and in bursts, packets of the full size, the flow without the limit of a host or program, another congestion control.

use crate::evidence::{Evidence, Purpose, Run, TcpFacts};
use crate::rules::{FILLS, Kind, Known};

/// Streams of the test at low rate: enough to meet each of four parallel links with 90 %.
const STREAMS: u8 = 8;
/// Flows of the test with several: enough to carry 1.3 times as much where each is limited by itself, and few enough for any host.
const FLOWS: u8 = 4;
/// AF11 (RFC 2597), which nobody takes for anything urgent, with ECT(0) (RFC 3168).
const MARKS: u8 = 10 << 2 | 2;
/// Packets with marks: all of them are changed, or none.
const MARKED_PACKETS: u64 = 20;
/// Transfers over one connection with pauses: the first begins in slow start in any case.
const TRANSFERS: u64 = 6;
/// Least time of a flow, in round trips: CUBIC's window has its shape after some tens of them.
const ROUND_TRIPS: u64 = 100;
/// Packets of a burst: what a sender with segmentation offload hands over in one piece and some of its like.
const BURST_PACKETS: u32 = 64;
/// Packets of each size.
const SIZE_PACKETS: u64 = 20;
/// The payload that every IPv6 link carries: 1280 less 40 and 8 (RFC 8200 §5); IPv4 takes 8 more.
const SMALL_PAYLOAD: u64 = 1232;
/// Payload of UDP packets: what TCP has.
const PAYLOAD: u64 = 1448;
/// The first rate where no target is known.
const FIRST_RATE_BPS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// About how long all tests may take.
    pub time_ns: u64,
    /// Bytes of a transfer, if transfers matter.
    pub size_bytes: Option<u64>,
    /// From the beginning of a transfer to that of the next over the same connection; `None` if each has a connection of its own.
    pub every_ns: Option<u64>,
    /// Load the path with no more than a tenth of the target.
    pub gentle: bool,
    /// The congestion control of the flow; `None` for the sender's default.
    pub control: Option<String>,
    /// What the user's program does; the test of a flow as an application gets it does the same.
    pub program: Program,
}

/// How a program uses its connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Socket buffers that it sets, bytes.
    pub window_bytes: Option<u64>,
    /// The rate at which it writes, payload bits per second.
    pub write_rate_bps: Option<u64>,
    /// The rate at which it reads, payload bits per second.
    pub read_rate_bps: Option<u64>,
}

/// The next test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// TCP.
    Tcp {
        /// What it is for.
        purpose: Purpose,
        /// How long it sends; with `bytes`, how long at most.
        duration_ns: u64,
        /// Payload bytes, if it ends with them.
        bytes: Option<u64>,
        /// From the beginning of one transfer of `bytes` to that of the next, if it is several over one connection.
        every_ns: Option<u64>,
        /// Flows at the same time.
        streams: u8,
        /// Socket buffers; `None` for the kernel's autotuning.
        window_bytes: Option<u64>,
        /// The congestion control; `None` for the default.
        control: Option<String>,
        /// The rate at which the program writes.
        write_rate_bps: Option<u64>,
        /// The rate at which the program reads.
        read_rate_bps: Option<u64>,
    },
    /// UDP.
    Udp {
        /// What it is for.
        purpose: Purpose,
        /// Payload bits per second of all streams.
        rate_bps: u64,
        /// How long it sends; with `packets`, it ends with them.
        duration_ns: u64,
        /// Packets, if it ends with them.
        packets: Option<u64>,
        /// Payload of a packet.
        payload_bytes: u64,
        /// Streams, each with a port of its own.
        streams: u8,
        /// Packets of a burst; 1 for none.
        burst_packets: u32,
        /// TOS byte or traffic class.
        traffic_class: u8,
    },
}

impl Step {
    /// What it is for.
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Tcp { purpose, .. } | Self::Udp { purpose, .. } => *purpose,
        }
    }

    fn with_streams(mut self, number: u8) -> Self {
        let (Self::Tcp { streams, .. } | Self::Udp { streams, .. }) = &mut self;
        *streams = number;
        self
    }

    fn in_bursts(mut self, packets: u32) -> Self {
        if let Self::Udp { burst_packets, .. } = &mut self {
            *burst_packets = packets;
        }
        self
    }

    fn with_class(mut self, class: u8) -> Self {
        if let Self::Udp { traffic_class, .. } = &mut self {
            *traffic_class = class;
        }
        self
    }

    /// In a line, for who waits.
    pub fn title(&self) -> &'static str {
        match self.purpose() {
            Purpose::Idle => "the path without load",
            Purpose::Default => "TCP as an application gets it",
            Purpose::LargeBuffers => "TCP with large buffers",
            Purpose::OtherControl => "TCP with another congestion control",
            Purpose::SeveralFlows => "several TCP flows",
            Purpose::Transfer => "a transfer",
            Purpose::Intervals => "transfers over one connection",
            Purpose::Rate => "UDP at a rate",
            Purpose::Burst => "UDP in bursts",
            Purpose::Mtu => "packets of the full size",
            Purpose::Marks => "packets with DSCP and ECN",
            Purpose::Observed => "a connection of another program",
        }
    }
}

/// The next test; `None` if nothing more would tell.
pub fn next(evidence: &Evidence, asked: &Asked) -> Option<Step> {
    let known = Known::of(evidence);
    let plan = Plan { known: &known, asked, evidence };
    plan.idle()
        .or_else(|| plan.default_flow())
        .or_else(|| plan.transfer())
        .or_else(|| plan.intervals())
        .or_else(|| plan.low_rate())
        .or_else(|| plan.marks())
        .or_else(|| plan.unknown_rate())
        .or_else(|| plan.if_slow(Plan::at_target))
        .or_else(|| plan.if_slow(Plan::beyond))
        .or_else(|| plan.if_slow(Plan::sizes))
        .or_else(|| plan.if_slow(Plan::without_limit))
        .or_else(|| plan.if_slow(Plan::half))
        .or_else(|| plan.if_slow(Plan::bursts))
        .or_else(|| plan.if_slow(Plan::other_control))
        .or_else(|| plan.if_slow(Plan::several_flows))
}

struct Plan<'a> {
    known: &'a Known<'a>,
    asked: &'a Asked,
    evidence: &'a Evidence,
}

impl Plan<'_> {
    fn count(&self, purpose: Purpose) -> usize {
        let is = |run: &&Run| match run {
            Run::Tcp(facts) => facts.purpose == purpose,
            Run::Udp(facts) => facts.purpose == purpose,
            Run::Failed { purpose: failed, .. } => *failed == purpose,
        };
        self.evidence.runs.iter().filter(is).count()
    }

    /// A part of the time, at least so many round trips.
    fn time(&self, part: u64, round_trips: u64) -> u64 {
        let rtt = self.known.base_rtt_ns.unwrap_or(0);
        let least = rtt.saturating_mul(round_trips).min(self.asked.time_ns);
        (self.asked.time_ns / part.max(1)).max(least).max(SECOND_NS)
    }

    /// The target as payload of UDP.
    fn target_udp(&self) -> Option<u64> {
        let rate = self.known.target?.rate_bps;
        Some(crate::rules::share(rate, PAYLOAD, PAYLOAD + self.evidence.udp_overhead()))
    }

    fn rate(&self, purpose: Purpose, rate_bps: u64, part: u64) -> Step {
        Step::Udp {
            purpose,
            rate_bps: rate_bps.max(10_000),
            duration_ns: self.time(part, 10),
            packets: None,
            payload_bytes: PAYLOAD,
            streams: 1,
            burst_packets: 1,
            traffic_class: 0,
        }
    }

    /// So few packets that their rate says nothing.
    fn few(&self, purpose: Purpose, packets: u64, payload_bytes: u64) -> Step {
        Step::Udp {
            purpose,
            rate_bps: 1_000_000,
            duration_ns: SECOND_NS,
            packets: Some(packets),
            payload_bytes,
            streams: 1,
            burst_packets: 1,
            traffic_class: 0,
        }
    }

    fn idle(&self) -> Option<Step> {
        let rate = self.known.target.map_or(1_000_000, |target| (target.rate_bps / 100).clamp(100_000, 1_000_000));
        (self.count(Purpose::Idle) == 0).then(|| Step::Tcp {
            purpose: Purpose::Idle,
            duration_ns: 2 * SECOND_NS,
            bytes: None,
            every_ns: None,
            streams: 1,
            window_bytes: None,
            control: self.asked.control.clone(),
            write_rate_bps: Some(rate),
            read_rate_bps: None,
        })
    }

    fn default_flow(&self) -> Option<Step> {
        if self.asked.gentle {
            return None;
        }
        let step = |duration_ns| Step::Tcp {
            purpose: Purpose::Default,
            duration_ns,
            bytes: None,
            every_ns: None,
            streams: 1,
            window_bytes: self.asked.program.window_bytes,
            control: self.asked.control.clone(),
            write_rate_bps: self.asked.program.write_rate_bps,
            read_rate_bps: self.asked.program.read_rate_bps,
        };
        match (self.count(Purpose::Default), self.known.tcp(Purpose::Default)) {
            (0, _) => Some(step(self.time(3, ROUND_TRIPS))),
            // A window that still grows says nothing of what limits it, and one that falls not how far.
            (1, Some(run)) if self.still_grows(run) || self.still_falls(run) => {
                Some(step(self.time(2, 2 * ROUND_TRIPS)))
            }
            _ => None,
        }
    }

    fn still_grows(&self, run: &TcpFacts) -> bool {
        let grows = run.steady_bps as f64 > 1.1 * run.goodput_bps as f64;
        run.retransmits == 0 && grows && !self.fills(run)
    }

    /// Losses hold the window, and were too few to say where: it was higher in the beginning.
    fn still_falls(&self, run: &TcpFacts) -> bool {
        let events = run.loss_events.unwrap_or(0);
        events > 1 && run.steady_bps < run.goodput_bps && crate::rules::loss::is_no_mean_yet(run) && !self.fills(run)
    }

    fn fills(&self, run: &TcpFacts) -> bool {
        self.known.target_payload_bps.is_some_and(|target| run.steady_bps as f64 >= FILLS * target as f64)
    }

    /// The flow as an application gets it is slow, or did not come to its end.
    fn if_slow(&self, step: fn(&Self) -> Option<Step>) -> Option<Step> {
        let slow = match self.known.tcp(Purpose::Default) {
            Some(run) => !self.fills(run),
            None => self.count(Purpose::Default) > 0,
        };
        (slow && !self.asked.gentle).then(|| step(self)).flatten()
    }

    fn transfer(&self) -> Option<Step> {
        let alone = self.asked.every_ns.is_none() && !self.asked.gentle;
        let bytes = self.asked.size_bytes.filter(|_| alone && self.count(Purpose::Transfer) < 3)?;
        Some(Step::Tcp {
            purpose: Purpose::Transfer,
            duration_ns: self.time(4, ROUND_TRIPS),
            bytes: Some(bytes),
            every_ns: None,
            streams: 1,
            window_bytes: None,
            control: self.asked.control.clone(),
            write_rate_bps: None,
            read_rate_bps: None,
        })
    }

    /// Transfers over one connection with pauses, as long as they have to be: [`TRANSFERS`] of them.
    fn intervals(&self) -> Option<Step> {
        let (bytes, every_ns) = self.asked.size_bytes.zip(self.asked.every_ns)?;
        (!self.asked.gentle && self.count(Purpose::Intervals) == 0).then(|| Step::Tcp {
            purpose: Purpose::Intervals,
            duration_ns: every_ns.saturating_mul(TRANSFERS),
            bytes: Some(bytes),
            every_ns: Some(every_ns),
            streams: 1,
            window_bytes: self.asked.program.window_bytes,
            control: self.asked.control.clone(),
            write_rate_bps: None,
            read_rate_bps: self.asked.program.read_rate_bps,
        })
    }

    fn low_rate(&self) -> Option<Step> {
        let rate = self.target_udp()? / 10;
        (self.count(Purpose::Rate) == 0).then(|| self.rate(Purpose::Rate, rate, 10).with_streams(STREAMS))
    }

    /// What the path does to DSCP and ECN.
    fn marks(&self) -> Option<Step> {
        let step = || self.few(Purpose::Marks, MARKED_PACKETS, SMALL_PAYLOAD).with_class(MARKS);
        (self.count(Purpose::Marks) == 0).then(step)
    }

    /// Nobody knows the links: four times as much until it does not pass.
    fn unknown_rate(&self) -> Option<Step> {
        if self.evidence.named_target_bps.is_some() || self.asked.gentle {
            return None;
        }
        let has_link = [&self.evidence.sender, &self.evidence.receiver]
            .iter()
            .any(|host| host.link.as_ref().is_some_and(|link| link.speed_bps.is_some()));
        if has_link {
            return None;
        }
        let last = self.known.udp_runs().filter(|run| run.purpose == Purpose::Rate).last();
        let Some(last) = last else { return Some(self.rate(Purpose::Rate, FIRST_RATE_BPS, 30)) };
        let limited = self.known.capacity.as_ref().is_some_and(|capacity| capacity.limited);
        let asked = last.asked_bps?;
        // The sender itself may have no more.
        let sent = last.sent_bps as f64 >= 0.9 * asked as f64;
        (!limited && sent).then(|| self.rate(Purpose::Rate, asked.saturating_mul(4), 30))
    }

    fn at_target(&self) -> Option<Step> {
        let rate = self.target_udp()?;
        let tried = self.known.udp_runs().any(|run| run.purpose == Purpose::Rate && run.asked_bps >= Some(rate));
        (!tried && self.count(Purpose::Rate) < 8).then(|| self.rate(Purpose::Rate, rate, 15))
    }

    /// A second rate above a queue's tells a shaper from a queue that others use.
    fn beyond(&self) -> Option<Step> {
        let capacity = self.known.capacity.as_ref().filter(|capacity| capacity.limited)?;
        let target = self.target_udp()?;
        let over = self.known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.sent_bps > capacity.udp_bps);
        let rate = capacity.udp_bps / 2 + target / 2;
        (over.count() == 1 && rate as f64 > 1.15 * capacity.udp_bps as f64).then(|| self.rate(Purpose::Rate, rate, 15))
    }

    fn sizes(&self) -> Option<Step> {
        let mtu = [&self.evidence.sender, &self.evidence.receiver]
            .into_iter()
            .filter_map(|host| host.link.as_ref()?.mtu_bytes);
        let full = mtu.min().unwrap_or(1500).saturating_sub(self.evidence.udp_headers());
        let tried = |payload: u64| {
            self.known.udp_runs().find(|run| run.purpose == Purpose::Mtu && run.payload_bytes == payload)
        };
        let size = |payload_bytes| self.few(Purpose::Mtu, SIZE_PACKETS, payload_bytes);
        if self.count(Purpose::Mtu) >= 4 {
            return None;
        }
        let Some(largest) = tried(full) else {
            return (self.count(Purpose::Mtu) == 0).then(|| size(full));
        };
        if largest.lost_packets < largest.sent_packets {
            return None;
        }
        if tried(SMALL_PAYLOAD).is_none() {
            return Some(size(SMALL_PAYLOAD));
        }
        // Once more between, so that the remedy can name a size.
        let between = (SMALL_PAYLOAD + full) / 2;
        (tried(between).is_none()).then(|| size(between))
    }

    fn bursts(&self) -> Option<Step> {
        let runs = [Purpose::Default, Purpose::LargeBuffers].into_iter().filter_map(|purpose| self.known.tcp(purpose));
        let lost = runs.into_iter().any(|run| run.retransmits > run.spurious_retransmits);
        let policed = self.known.capacity.as_ref().is_some_and(|capacity| capacity.kind == Kind::Policer);
        if self.count(Purpose::Burst) > 0 || !lost || policed || crate::rules::has_hole(self.known) {
            return None;
        }
        let rate =
            self.target_udp()?.min(self.known.capacity.as_ref().map_or(u64::MAX, |capacity| capacity.udp_bps)) / 4;
        Some(self.rate(Purpose::Burst, rate, 20).in_bursts(BURST_PACKETS))
    }

    /// The flow without what held it back at the hosts: with large buffers, and a program that is never slow.
    fn without_limit(&self) -> Option<Step> {
        let run = self.known.tcp(Purpose::Default)?;
        let by = run.limited_by;
        let window = by.receive_window + by.send_buffer > by.congestion_window.max(by.application);
        let program = by.application > by.congestion_window.max(by.receive_window).max(by.send_buffer)
            || self.asked.program != Program::default();
        if !(window || program) || self.count(Purpose::LargeBuffers) > 0 {
            return None;
        }
        let (rate, rtt) = (self.known.target?.rate_bps, self.known.base_rtt_ns?);
        let bytes = crate::rules::share(rate, rtt, 8 * SECOND_NS).saturating_mul(2).clamp(1 << 20, 1 << 30);
        Some(Step::Tcp {
            purpose: Purpose::LargeBuffers,
            duration_ns: self.time(6, ROUND_TRIPS),
            bytes: None,
            every_ns: None,
            streams: 1,
            window_bytes: Some(bytes),
            control: self.asked.control.clone(),
            write_rate_bps: None,
            read_rate_bps: None,
        })
    }

    /// Loss that no TCP run met, as another limit keeps it slow: half of the target fills no queue.
    fn half(&self) -> Option<Step> {
        let rate = self.target_udp()? / 2;
        let limited = self.known.capacity.as_ref().is_some_and(|capacity| capacity.limited);
        let near = |asked: Option<u64>| asked.is_some_and(|asked| (rate / 2..rate + rate / 8).contains(&asked));
        let tried = self.known.udp_runs().any(|run| run.purpose == Purpose::Rate && near(run.asked_bps));
        (!limited && !tried && crate::rules::masked::is_hidden(self.known)).then(|| self.rate(Purpose::Rate, rate, 10))
    }

    fn other_control(&self) -> Option<Step> {
        let run = [Purpose::LargeBuffers, Purpose::Default].into_iter().find_map(|purpose| self.known.tcp(purpose))?;
        let by = run.limited_by;
        let held = by.congestion_window > by.receive_window.max(by.send_buffer).max(by.application);
        let available = self.evidence.sender.sysctls.get("net.ipv4.tcp_available_congestion_control");
        let has_bbr = available.is_some_and(|names| names.split_ascii_whitespace().any(|name| name == "bbr"));
        let limited = self.known.capacity.as_ref().is_some_and(|capacity| capacity.limited);
        if !held
            || !has_bbr
            || limited
            || run.congestion_control == "bbr"
            || self.fills(run)
            || self.count(Purpose::OtherControl) > 0
        {
            return None;
        }
        Some(Step::Tcp {
            purpose: Purpose::OtherControl,
            duration_ns: self.time(8, ROUND_TRIPS / 2),
            bytes: None,
            every_ns: None,
            streams: 1,
            window_bytes: run.window_bytes,
            control: Some("bbr".into()),
            // What it is worth to this program, whose own limit may be the next.
            write_rate_bps: self.asked.program.write_rate_bps,
            read_rate_bps: self.asked.program.read_rate_bps,
        })
    }

    /// Whether a limit is that of each flow: of UDP where UDP met it, else of TCP.
    fn several_flows(&self) -> Option<Step> {
        if self.count(Purpose::SeveralFlows) > 0 || crate::rules::has_hole(self.known) {
            return None;
        }
        let capacity = self.known.capacity.as_ref();
        match capacity.map(|capacity| capacity.kind) {
            Some(Kind::Shaper | Kind::Policer) => {
                Some(self.rate(Purpose::SeveralFlows, self.target_udp()?, 15).with_streams(STREAMS))
            }
            Some(Kind::Sender) | None => None,
            Some(Kind::NotMet | Kind::Competing) => {
                let run = self.known.tcp(Purpose::Default)?;
                Some(Step::Tcp {
                    purpose: Purpose::SeveralFlows,
                    duration_ns: self.time(8, ROUND_TRIPS / 2),
                    bytes: None,
                    every_ns: None,
                    streams: FLOWS,
                    window_bytes: run.window_bytes,
                    control: self.asked.control.clone(),
                    write_rate_bps: None,
                    read_rate_bps: None,
                })
            }
        }
    }
}
