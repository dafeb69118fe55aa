//! The parameters of a TCP test.

use std::str::FromStr;

use longhaul_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use longhaul_terms::{
    Affinity, Amount, Collect, MAX_DURATION, MAX_STREAMS, ParameterError, RATES, TestDirection, check_interval,
    check_range, check_sockbuf,
};

/// Most steps of a schedule of congestion controls.
const MAX_CONGESTION_STEPS: usize = 64;
/// Longest name of a congestion control (`TCP_CA_NAME_MAX` less the zero).
pub const MAX_CONGESTION_NAME: usize = 15;
/// Most bytes that one call writes.
pub const MAX_BLOCK_BYTES: u32 = 16 << 20;

/// A TCP test. Rates and amounts are of payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TcpParameters {
    /// How much is sent: a time or payload bytes.
    pub amount: Amount,
    /// Streams in each direction; each has its own thread.
    pub streams: u8,
    /// Who sends.
    pub direction: TestDirection,
    /// Socket buffers of both ends; `null` leaves the kernel's autotuning on.
    pub window_bytes: Option<u64>,
    /// The values from which `window_bytes` was computed; `null` if it was given.
    pub window_auto: Option<WindowAuto>,
    /// The payload rate that the path should carry, bits per second.
    pub rate_goal_bps: Option<u64>,
    /// Congestion controls of the sender, one after the other; empty for the system's default.
    pub congestion: Vec<CongestionStep>,
    /// Largest segment, bytes.
    pub mss_bytes: Option<u32>,
    /// Most payload bits per second that a stream sends, enforced by the kernel (`SO_MAX_PACING_RATE`).
    pub pace_bps: Option<u64>,
    /// TOS byte or traffic class of the packets of both ends: DSCP in the upper six bits; TCP sets the two of ECN by itself.
    pub traffic_class: u8,
    /// Bytes that one call writes.
    pub block_bytes: u32,
    /// Sends with sendfile(2), without a copy.
    pub zerocopy: bool,
    /// Uses several paths, if both kernels have MPTCP.
    pub mptcp: bool,
    /// Disables selective acknowledgements (RFC 2018).
    pub no_sack: bool,
    /// Disables time stamps (RFC 7323).
    pub no_timestamps: bool,
    /// Data that arrives in this time from the start does not count.
    pub omit_ns: u64,
    /// Time between interim reports; `null` for none.
    pub interval_ns: Option<u64>,
    /// Time between samples of `TCP_INFO`.
    pub sample_ns: u64,
    /// Whether both ends keep their samples for a file.
    pub keep_samples: bool,
    /// CPUs for the threads.
    pub affinity: Affinity,
    /// How lost packets are located. An end that cannot do this says so in its report.
    pub collect: Collect,
    /// Rate at which the sending application writes, payload bits per second; `null` for as fast as possible.
    pub write_rate_bps: Option<u64>,
    /// Rate at which the receiving application reads, payload bits per second; `null` for as fast as possible.
    pub read_rate_bps: Option<u64>,
    /// The sending application writes transfers with pauses between them; `null` for without a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
}

/// Transfers over one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transfers {
    /// Payload bytes of each.
    pub bytes: u64,
    /// Time from the beginning of one to that of the next; one that takes longer is followed at once.
    pub every_ns: u64,
}

/// The values from which `-w auto` computes the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowAuto {
    /// The least round-trip time of the control connection before the test.
    pub rtt_ns: u64,
    /// The payload rate that the window is for, bits per second.
    pub rate_goal_bps: u64,
}

impl WindowAuto {
    /// The bandwidth-delay product, bytes (RFC 6349 §3.3.1): the data in flight that fills the path.
    pub fn window_bytes(self) -> u64 {
        (u128::from(self.rtt_ns) * u128::from(self.rate_goal_bps))
            .div_ceil(8_000_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

/// A congestion control, and for how long it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CongestionStep {
    /// The kernel's name.
    pub name: String,
    /// How long; `null` for the rest of the test.
    pub duration_ns: Option<u64>,
}

impl FromStr for CongestionStep {
    type Err = String;

    /// `cubic`, or `cubic:20m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = match text.split_once(':') {
            None => (text, None),
            Some((name, time)) => {
                let time: Nanos = time.parse().map_err(|error| format!("{name}: {error}"))?;
                (name, Some(time.0))
            }
        };
        Ok(Self { name: name.to_owned(), duration_ns: time })
    }
}

impl Default for TcpParameters {
    /// Ten seconds of one stream, as fast as possible, with the kernel's autotuning.
    fn default() -> Self {
        Self {
            amount: Amount::DurationNs(10_000_000_000),
            streams: 1,
            direction: TestDirection::Forward,
            window_bytes: None,
            window_auto: None,
            rate_goal_bps: None,
            congestion: Vec::new(),
            mss_bytes: None,
            pace_bps: None,
            traffic_class: 0,
            // Four times what iperf3 writes: a system call and a wake-up for each block limit a fast flow.
            block_bytes: 512 << 10,
            zerocopy: false,
            mptcp: false,
            no_sack: false,
            no_timestamps: false,
            omit_ns: 0,
            interval_ns: Some(1_000_000_000),
            sample_ns: 10_000_000,
            keep_samples: false,
            affinity: Affinity::default(),
            collect: Collect::Auto,
            write_rate_bps: None,
            read_rate_bps: None,
            transfers: None,
        }
    }
}

impl TcpParameters {
    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        check_range("streams", self.streams, 1..=MAX_STREAMS, format!("1 to {MAX_STREAMS} streams"))?;
        if let Amount::Packets(packets) = self.amount {
            let allowed = "TCP does not count packets: use `bytes` or `duration_ns`";
            return Err(ParameterError::new("packets", packets, allowed));
        }
        self.amount.validate()?;
        check_sockbuf("window_bytes", self.window_bytes)?;
        // The kernel's own limits (TCP_MIN_MSS, MAX_TCP_WINDOW).
        check_range("mss_bytes", self.mss_bytes, 88..=32_767, "88 to 32767 bytes")?;
        let rates = [
            ("pace_bps", self.pace_bps),
            ("rate_goal_bps", self.rate_goal_bps),
            ("write_rate_bps", self.write_rate_bps),
            ("read_rate_bps", self.read_rate_bps),
        ];
        for (field, rate) in rates {
            check_range(field, rate.map(BitRate), RATES, "1kbit to 10Tbit")?;
        }
        if let Some(transfers) = self.transfers {
            check_range("transfers", transfers.bytes, 1..=u64::MAX, "at least 1 byte")?;
            check_range("transfers", Nanos(transfers.every_ns), Nanos::from_millis(1)..=MAX_DURATION, "1ms to 24h")?;
        }
        let blocks = Bytes(1)..=Bytes(MAX_BLOCK_BYTES.into());
        check_range("block_bytes", Bytes(self.block_bytes.into()), blocks, "1 to 16M")?;
        check_range("omit_ns", Nanos(self.omit_ns), Nanos::ZERO..=MAX_DURATION, "0 to 24h")?;
        if let Amount::DurationNs(ns) = self.amount
            && self.omit_ns >= ns
        {
            let allowed = format!("less than the test (`duration_ns` {})", Nanos(ns));
            return Err(ParameterError::new("omit_ns", Nanos(self.omit_ns), allowed));
        }
        let samples = Nanos::from_millis(1)..=Nanos::from_secs(10);
        check_range("sample_ns", Nanos(self.sample_ns), samples, "1ms to 10s")?;
        check_interval(self.interval_ns)?;
        self.validate_congestion()?;
        self.affinity.validate()?;
        if !self.affinity.softirq_cpus.is_empty() || self.affinity.softirq.is_some() {
            let allowed = "a TCP test takes only the CPUs of sender and receiver";
            return Err(ParameterError::new("affinity", "with a softirq CPU", allowed));
        }
        Ok(())
    }

    fn validate_congestion(&self) -> Result<(), ParameterError> {
        if self.congestion.len() > MAX_CONGESTION_STEPS {
            let given = format!("{} steps", self.congestion.len());
            return Err(ParameterError::new("congestion", given, format!("at most {MAX_CONGESTION_STEPS}")));
        }
        let steps = self.congestion.len();
        for (number, step) in self.congestion.iter().enumerate() {
            if !is_congestion_name(&step.name) {
                // It can be as long as a message.
                let given: String = step.name.chars().take(64).flat_map(char::escape_debug).collect();
                let allowed = format!("a name of 1 to {MAX_CONGESTION_NAME} letters, digits, - and _");
                return Err(ParameterError::new("congestion", given, allowed));
            }
            match step.duration_ns {
                None if number + 1 < steps => {
                    let allowed = "every step but the last needs a time, as in reno:20m,scalable:20m";
                    return Err(ParameterError::new("congestion", &step.name, allowed));
                }
                Some(ns) if !(1_000_000..=MAX_DURATION.0).contains(&ns) => {
                    let given = format!("{}:{}", step.name, Nanos(ns));
                    return Err(ParameterError::new("congestion", given, "1ms to 24h each"));
                }
                _ => {}
            }
        }
        if let Amount::DurationNs(ns) = self.amount
            && let Some((begins, name)) = self.congestion_starts().find(|(begins, _)| begins.0 >= ns)
        {
            let given = format!("{name} from {begins} on");
            let allowed =
                format!("the test ends before (`duration_ns` {}): make it longer, or the steps shorter", Nanos(ns));
            return Err(ParameterError::new("congestion", given, allowed));
        }
        Ok(())
    }

    /// Number of bytes that stream number `stream` of a direction sends; `None` if the duration decides.
    pub fn bytes_of_stream(&self, stream: u8) -> Option<u64> {
        let Amount::Bytes(bytes) = self.amount else { return None };
        let streams = u64::from(self.streams.max(1));
        Some(bytes / streams + u64::from(u64::from(stream) < bytes % streams))
    }

    /// When each congestion control starts, from the start of sending.
    pub fn congestion_starts(&self) -> impl Iterator<Item = (Nanos, &str)> {
        self.congestion.iter().scan(Nanos::ZERO, |at, step| {
            let begins = *at;
            *at = at.saturating_add(Nanos(step.duration_ns.unwrap_or(0)));
            Some((begins, step.name.as_str()))
        })
    }
}

/// Whether `name` can be the name of a congestion control. Only characters that the kernel uses are allowed, so it is safe in a
/// path.
pub fn is_congestion_name(name: &str) -> bool {
    (1..=MAX_CONGESTION_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_said_in_one_line_with_its_field() {
        let said = |change: fn(&mut TcpParameters)| {
            let mut parameters = TcpParameters::default();
            change(&mut parameters);
            parameters.validate().unwrap_err().to_string()
        };
        assert_eq!(TcpParameters::default().validate(), Ok(()));
        assert_eq!(said(|p| p.streams = 0), "`streams` 0: 1 to 64 streams");
        assert_eq!(said(|p| p.mss_bytes = Some(40)), "`mss_bytes` 40: 88 to 32767 bytes");
        assert_eq!(
            said(|p| p.amount = Amount::Packets(7)),
            "`packets` 7: TCP does not count packets: use `bytes` or `duration_ns`"
        );
        assert_eq!(said(|p| p.omit_ns = 10_000_000_000), "`omit_ns` 10s: less than the test (`duration_ns` 10s)");
        assert_eq!(said(|p| p.sample_ns = 10), "`sample_ns` 10ns: 1ms to 10s");
        let step = |name: &str, duration_ns| CongestionStep { name: name.into(), duration_ns };
        let with = |congestion| TcpParameters { congestion, ..TcpParameters::default() }.validate();
        assert!(with(vec![step("reno", Some(1_000_000)), step("cubic", None)]).is_ok());
        assert!(
            with(vec![step("reno", None), step("cubic", None)])
                .unwrap_err()
                .to_string()
                .starts_with("`congestion` reno: every step but")
        );
        assert_eq!(with(vec![step("../\n", None)]).unwrap_err().given, r"../\n");
        let long = with(vec![step(&"\x7f".repeat(1 << 20), None)]).unwrap_err();
        assert!(long.given.len() <= 1024, "{} bytes", long.given.len());
        let short = with(vec![step("cubic", Some(20_000_000_000)), step("reno", None)]).unwrap_err();
        assert_eq!(
            short.to_string(),
            "`congestion` reno from 20s on: the test ends before (`duration_ns` 10s): make it longer, or the steps shorter"
        );
        assert!(with(vec![step("sixteen_letters_", None)]).is_err());
    }

    /// RFC 6349 §3.3.1: 25 ms and 500 Mb/s are 1,562,500 bytes.
    #[test]
    fn the_window_is_the_bandwidth_delay_product() {
        let window = |rtt_ns, rate_goal_bps| WindowAuto { rtt_ns, rate_goal_bps }.window_bytes();
        assert_eq!(window(25_000_000, 500_000_000), 1_562_500);
        assert_eq!(window(500_000_000, 10_000_000_000), 625_000_000);
        assert_eq!(window(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn flows_share_the_amount_and_steps_follow_each_other() {
        let parameters = TcpParameters { streams: 3, amount: Amount::Bytes(10), ..TcpParameters::default() };
        assert_eq!((0..3).map(|s| parameters.bytes_of_stream(s).unwrap()).collect::<Vec<_>>(), [4, 3, 3]);
        let step = |name: &str, ns| CongestionStep { name: name.into(), duration_ns: Some(ns) };
        let congestion = vec![step("a", 5), step("b", 7), step("c", 1)];
        let parameters = TcpParameters { congestion, ..parameters };
        assert_eq!(
            parameters.congestion_starts().collect::<Vec<_>>(),
            [(Nanos(0), "a"), (Nanos(5), "b"), (Nanos(12), "c")]
        );
    }
}
