//! The parameters of a UDP test.

use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe;
use serde::{Deserialize, Serialize};

use crate::account::{ENTRY_BYTES, MAX_SEQUENCES};
use crate::receive_settings::ReceiveSettings;
use longhaul_terms::{
    Affinity, Amount, Collect, MAX_DURATION, MAX_STREAMS, ParameterError, RATES, SoftirqPlacement, TestDirection,
    check_interval, check_range, check_sockbuf,
};

/// Longest payload: what IPv4 allows (65,535 less 20 and 8). IPv6 could take 20 bytes more.
pub const MAX_PAYLOAD_BYTES: u32 = 65_507;

/// A reader's room for the longest datagram, and for as many as GRO joins, bytes.
pub const SLOT_BYTES: usize = 65_536;

/// A UDP test. Rates and amounts are of payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpParameters {
    /// How much is sent.
    pub amount: Amount,
    /// How fast each stream sends.
    pub pace: Pace,
    /// Payload of each packet with the probe header, bytes.
    pub payload_bytes: u32,
    /// Streams in each direction.
    pub streams: u8,
    /// Who sends.
    pub direction: TestDirection,
    /// Socket buffers of both ends; `None` for room for 20 ms of the rate to receive, and the kernel's default to send.
    pub sockbuf_bytes: Option<u64>,
    /// Sends without `UDP_SEGMENT` and receives without `UDP_GRO`: every packet travels alone.
    pub wire: bool,
    /// Sends each packet whole or not at all: no fragments, so that packets longer than the path's MTU are lost.
    #[serde(default)]
    pub dont_fragment: bool,
    /// The TOS byte of IPv4 or the traffic class of IPv6 of each packet: DSCP, and ECN in the lowest two bits. With any but 0 the receiver
    /// counts with which one packets arrive.
    #[serde(default)]
    pub traffic_class: u8,
    /// Packets that are sent back to back before a pause that keeps the pace; 1 spaces single packets.
    pub burst_packets: u32,
    /// The sender sleeps until a packet is due; else it wakes up a little before and watches the clock, which is more exact and takes a CPU where
    /// packets are less than some 0.1 ms apart.
    #[serde(default)]
    pub no_spin: bool,
    /// Time between interim reports; `None` for none.
    pub interval_ns: Option<u64>,
    /// Where packets get their time stamps.
    pub timestamps: Timestamps,
    /// CPUs for the threads.
    pub affinity: Affinity,
    /// Settings of the receiving interface that are changed for the time of the test.
    #[serde(default, skip_serializing_if = "ReceiveSettings::is_empty")]
    pub receive: ReceiveSettings,
    /// The receiver reports when each packet arrived.
    #[serde(default)]
    pub each_packet: bool,
    /// How lost packets are located. An end that cannot do this says so in its report.
    pub collect: Collect,
}

/// How fast each stream sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As fast as possible.
    Unlimited,
    /// Payload bits per second.
    RateBps(u64),
    /// Time from the departure of one packet to the next, nanoseconds.
    SpacingNs(u64),
}

/// Where packets get their time stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// In user space, `CLOCK_MONOTONIC`.
    #[default]
    App,
    /// By the kernel, `CLOCK_REALTIME`.
    Kernel,
    /// By the NIC, its own clock.
    Nic,
}

impl Timestamps {
    /// Its name in arguments and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Kernel => "kernel",
            Self::Nic => "nic",
        }
    }
}

impl Default for UdpParameters {
    /// Ten seconds, as fast as possible, 1448 bytes (1500-byte Ethernet less IPv6, UDP and 4 bytes of VLAN tag).
    fn default() -> Self {
        Self {
            amount: Amount::DurationNs(10_000_000_000),
            pace: Pace::Unlimited,
            payload_bytes: 1448,
            streams: 1,
            direction: TestDirection::Forward,
            sockbuf_bytes: None,
            wire: false,
            dont_fragment: false,
            traffic_class: 0,
            burst_packets: 1,
            no_spin: false,
            interval_ns: Some(1_000_000_000),
            timestamps: Timestamps::App,
            affinity: Affinity::default(),
            receive: ReceiveSettings::default(),
            each_packet: false,
            collect: Collect::Auto,
        }
    }
}

impl UdpParameters {
    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let least = probe::HEADER_LEN as u32;
        let allowed =
            format!("the payload must be {least} to {MAX_PAYLOAD_BYTES} bytes (the probe header takes {least})");
        check_range("payload_bytes", self.payload_bytes, least..=MAX_PAYLOAD_BYTES, allowed)?;
        check_range("streams", self.streams, 1..=MAX_STREAMS, format!("1 to {MAX_STREAMS} streams"))?;
        self.amount.validate()?;
        let most = self.packets_of_stream(0).unwrap_or(0);
        let field = if matches!(self.amount, Amount::Bytes(_)) { "bytes" } else { "packets" };
        check_range(field, most, 0..=MAX_SEQUENCES, format!("at most {MAX_SEQUENCES} packets a stream"))?;
        match self.pace {
            Pace::Unlimited => {}
            Pace::RateBps(bps) => {
                check_range("rate_bps", BitRate(bps), RATES, "1kbit to 10Tbit, or 0 for as fast as possible")?;
            }
            Pace::SpacingNs(ns) => check_range("spacing_ns", Nanos(ns), Nanos(1)..=MAX_DURATION, "1ns to 24h")?,
        }
        check_sockbuf("sockbuf_bytes", self.sockbuf_bytes)?;
        check_range("burst_packets", self.burst_packets, 1..=65_536, "1 to 65536 packets")?;
        check_interval(self.interval_ns)?;
        self.affinity.validate()?;
        self.receive.validate()?;
        let Affinity { receiver_cpus, softirq_cpus, softirq, .. } = &self.affinity;
        let shared = receiver_cpus.iter().any(|cpu| softirq_cpus.contains(cpu));
        let differ = !softirq_cpus.is_empty() && !receiver_cpus.is_empty() && receiver_cpus != softirq_cpus;
        match softirq {
            Some(SoftirqPlacement::Same) if differ || receiver_cpus.len().max(softirq_cpus.len()) > 1 => {
                let allowed = "receiver and softirq share one CPU: give it as the receiver's CPU in `affinity`";
                Err(ParameterError::new("softirq", "same", allowed))
            }
            Some(SoftirqPlacement::Split) if shared => {
                let allowed = "receiver and softirq need different CPUs: give both in `affinity`";
                Err(ParameterError::new("softirq", "split", allowed))
            }
            _ => Ok(()),
        }
    }

    /// How many packets stream number `stream` of a direction sends; `None` if the duration decides.
    pub fn packets_of_stream(&self, stream: u8) -> Option<u64> {
        let packets = match self.amount {
            Amount::DurationNs(_) => return None,
            Amount::Bytes(bytes) => bytes.div_ceil(u64::from(self.payload_bytes.max(1))),
            Amount::Packets(packets) => packets,
        };
        let streams = u64::from(self.streams.max(1));
        Some(packets / streams + u64::from(u64::from(stream) < packets % streams))
    }

    /// The most packets that one stream can send: whatever has a later number is foreign. By its time it is a bound that no sender reaches.
    pub fn packets_most(&self) -> u64 {
        let Amount::DurationNs(duration_ns) = self.amount else {
            return self.packets_of_stream(0).unwrap_or(0).min(MAX_SEQUENCES);
        };
        // And a sender that stops late.
        self.packets_in(Nanos(duration_ns)).saturating_add(1 << 16).min(MAX_SEQUENCES)
    }

    /// The most packets that one stream can have sent when its receiver has been open for `open`: whatever has a later number is foreign. The
    /// receiver's clock may have stood still meanwhile (a guest that was paused), for up to 20 s: then the sender would have ended the test.
    pub fn packets_most_by(&self, open: Nanos) -> u64 {
        const PAUSED_MOST: Nanos = Nanos::from_secs(20);
        self.packets_in(open.saturating_add(PAUSED_MOST)).saturating_add(1 << 10)
    }

    /// The most packets that one stream can send in `time`.
    fn packets_in(&self, time: Nanos) -> u64 {
        // 64 bytes take 6.7 ns at 100 Gb/s (IEEE 802.3).
        const LEAST_SPACING_NS: u64 = 5;
        let spacing_ns = self.spacing().map_or(0, |spacing| spacing.0).max(LEAST_SPACING_NS);
        let packets = time.0 / spacing_ns;
        // A clock that is somewhat fast, and a burst.
        packets.saturating_add(packets / 64 + u64::from(self.burst_packets))
    }

    /// The most memory for the account of received packets of all streams. Beside it: 8 KiB for each 65,536 numbers that arrived in part.
    pub fn account_bytes(&self) -> u64 {
        // An entry of the account for so many packets, and one of those that were dropped here.
        let entries = self.packets_most().div_ceil(1 << 16).saturating_mul(2 * ENTRY_BYTES as u64);
        entries.saturating_mul(self.streams.into())
    }

    /// Packets that the reader of each stream takes in one call: 32, and fewer where more than 4 streams share the memory.
    pub fn slots(&self) -> usize {
        usize::clamp(128 / usize::from(self.streams.max(1)), 4, 32)
    }

    /// The memory of the readers of all streams, with what each counts beside the account: gaps and histograms.
    pub fn readers_bytes(&self) -> u64 {
        const COUNTS_BYTES: u64 = 1 << 19;
        ((self.slots() * SLOT_BYTES) as u64 + COUNTS_BYTES) * u64::from(self.streams)
    }

    /// Time from the departure of one packet of a stream to the next; `None` for as fast as possible.
    pub fn spacing(&self) -> Option<Nanos> {
        match self.pace {
            Pace::Unlimited => None,
            Pace::RateBps(bps) => Some(Nanos(u64::from(self.payload_bytes) * 8_000_000_000 / bps.max(1))),
            Pace::SpacingNs(ns) => Some(Nanos(ns)),
        }
    }

    /// The receive buffer of each stream where none is asked for, bytes: what a reader that is kept waiting for 20 ms needs, as on a busy
    /// machine, with the kernel's bookkeeping; at most 16 MiB, and 64 MiB for all streams. Without a rate that most: from there on a
    /// socket's queue no longer fits a CPU's cache, and what is gained is lost again.
    pub fn default_receive_buffer(&self) -> u64 {
        const HELD: Nanos = Nanos::from_millis(20);
        const MOST: u64 = 16 << 20;
        const ALL_MOST: u64 = 64 << 20;
        // sk_buff, its shared information, and what lies unused in its memory; the kernel doubles what is asked for (socket(7)).
        const OVERHEAD: u64 = 512;
        let most = MOST.min(ALL_MOST / u64::from(self.streams.max(1)));
        let Some(spacing) = self.spacing() else { return most };
        let packets = HELD.0 / spacing.0.max(1);
        packets.saturating_mul(u64::from(self.payload_bytes) + OVERHEAD).min(most)
    }

    /// Payload bits per second of each stream; `None` for as fast as possible.
    pub fn rate(&self) -> Option<BitRate> {
        match self.pace {
            Pace::Unlimited => None,
            Pace::RateBps(bps) => Some(BitRate(bps)),
            Pace::SpacingNs(ns) => Some(BitRate::of(self.payload_bytes.into(), Nanos(ns))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_said_in_one_line_with_its_field() {
        let said = |change: fn(&mut UdpParameters)| {
            let mut parameters = UdpParameters::default();
            change(&mut parameters);
            parameters.validate().unwrap_err().to_string()
        };
        assert_eq!(UdpParameters::default().validate(), Ok(()));
        assert_eq!(
            said(|p| p.payload_bytes = 12),
            "`payload_bytes` 12: the payload must be 18 to 65507 bytes (the probe header takes 18)"
        );
        assert_eq!(said(|p| p.streams = 0), "`streams` 0: 1 to 64 streams");
        assert_eq!(said(|p| p.amount = Amount::DurationNs(0)), "`duration_ns` 0ns: 1ms to 24h");
        assert_eq!(
            said(|p| p.pace = Pace::RateBps(5)),
            "`rate_bps` 5bit: 1kbit to 10Tbit, or 0 for as fast as possible"
        );
        assert_eq!(said(|p| p.sockbuf_bytes = Some(1)), "`sockbuf_bytes` 1B: 2K to 2G");
        assert_eq!(said(|p| p.affinity.sender_cpus = vec![9000]), "`affinity` 9000: at most 64 CPUs, each 0 to 8191");
        assert_eq!(said(|p| p.affinity.sender_cpus = vec![9000; 1 << 16]).matches("9000").count(), 65);
        let bind = |bind, receiver: &[u16], softirq: &[u16]| UdpParameters {
            affinity: Affinity {
                softirq: Some(bind),
                receiver_cpus: receiver.into(),
                softirq_cpus: softirq.into(),
                ..Affinity::default()
            },
            ..UdpParameters::default()
        };
        assert!(
            bind(SoftirqPlacement::Same, &[1], &[0])
                .validate()
                .unwrap_err()
                .to_string()
                .starts_with("`softirq` same: receiver and softirq share one CPU")
        );
        assert!(
            bind(SoftirqPlacement::Split, &[1], &[1])
                .validate()
                .unwrap_err()
                .to_string()
                .starts_with("`softirq` split: receiver and softirq need different CPUs")
        );
        for good in [
            bind(SoftirqPlacement::Same, &[1], &[]),
            bind(SoftirqPlacement::Split, &[1], &[0]),
            bind(SoftirqPlacement::Split, &[], &[]),
        ] {
            assert_eq!(good.validate(), Ok(()));
        }
        assert!(said(|p| p.amount = Amount::Packets(u64::MAX)).starts_with("`packets` 18446744073709551615: at most"));
    }

    #[test]
    fn streams_share_the_amount() {
        let mut parameters = UdpParameters { streams: 3, amount: Amount::Packets(10), ..UdpParameters::default() };
        let shares = |p: &UdpParameters| (0..3).map(|stream| p.packets_of_stream(stream)).collect::<Vec<_>>();
        assert_eq!(shares(&parameters), [Some(4), Some(3), Some(3)]);
        parameters.amount = Amount::Bytes(1448 * 3 + 1);
        assert_eq!(shares(&parameters), [Some(2), Some(1), Some(1)]);
        parameters.amount = Amount::DurationNs(1);
        assert_eq!(shares(&parameters), [None; 3]);
    }

    #[test]
    fn default_receive_buffers_hold_20_ms() {
        // 2,000 packets of 1250 bytes at 1 Gb/s.
        let paced =
            UdpParameters { payload_bytes: 1250, pace: Pace::RateBps(1_000_000_000), ..UdpParameters::default() };
        assert_eq!(paced.default_receive_buffer(), 2_000 * 1_762);
        assert_eq!(UdpParameters::default().default_receive_buffer(), 16 << 20);
        let many = UdpParameters { streams: 64, ..UdpParameters::default() };
        assert_eq!(many.default_receive_buffer(), 1 << 20);
        let slow = UdpParameters { pace: Pace::RateBps(1_000), ..paced };
        assert_eq!(slow.default_receive_buffer(), 0, "the kernel's own is more");
    }

    /// 1250 bytes at 1 Gb/s: 100,000 a second.
    #[test]
    fn a_number_is_foreign_that_no_sender_has_reached() {
        let paced =
            UdpParameters { payload_bytes: 1250, pace: Pace::RateBps(1_000_000_000), ..UdpParameters::default() };
        let by = |seconds| paced.packets_most_by(Nanos::from_secs(seconds));
        assert!((2_000_000..2_100_000).contains(&by(0)) && (12_000_000..12_300_000).contains(&by(100)), "{}", by(100));
        assert!(paced.packets_most_by(Nanos::MAX) > by(100));
        let unlimited = UdpParameters { pace: Pace::Unlimited, ..paced };
        assert!(unlimited.packets_most_by(Nanos::ZERO) > 3_000_000_000, "as fast as a network of 100 Gb/s may be");
    }

    /// 1250 bytes at 1 Gb/s: one each 10 µs.
    #[test]
    fn rate_and_spacing_are_inverse() {
        let of = |pace| UdpParameters { payload_bytes: 1250, pace, ..UdpParameters::default() };
        assert_eq!(of(Pace::RateBps(1_000_000_000)).spacing(), Some(Nanos(10_000)));
        assert_eq!(of(Pace::SpacingNs(10_000)).rate(), Some(BitRate::from_gbit(1)));
        assert_eq!((of(Pace::Unlimited).spacing(), of(Pace::Unlimited).rate()), (None, None));
    }
}
