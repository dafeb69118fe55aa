//! How long each end waits for the other, and how much a server grants.

use longhaul_tcp::TcpParameters;
use longhaul_terms::{Amount, MAX_STREAMS, ParameterError, SoftirqPlacement};
use longhaul_udp::{MAX_PAYLOAD_BYTES, Pace, Timestamps, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::test_parameters::TestParameters;

/// From the TCP connection to `Start` at both ends, without the time in the queue. Four round trips of 1 s and three lost segments
/// (RFC 6298: 1 + 2 + 4 s) fit. No message extends it: it also ends the session of a peer that sends slowly.
pub const SETUP_TIMEOUT: Nanos = Nanos::from_secs(20);
/// A peer that is silent for this time counts as disconnected. An outage of 5 s must not end a test; TCP's next retransmission
/// comes within another 5 s (RFC 6298 §5.5 doubles the timer), and the answer a round trip later.
pub const PEER_SILENCE: Nanos = Nanos::from_secs(20);
/// An end with nothing to send sends a sign of life this often: several times within [`PEER_SILENCE`], so that a late one does not
/// matter.
pub const ALIVE_INTERVAL: Nanos = Nanos::from_secs(4);
/// Time limit for the proof of the data path: forty attempts.
pub const PROOF_TIMEOUT: Nanos = Nanos::from_secs(10);
/// Time between attempts. On a path that loses half of them the proof still succeeds (all forty fail with 2⁻⁴⁰).
pub const PROOF_RESEND: Nanos = Nanos::from_millis(250);
/// After the sender's last message, packets can be in flight for this time without any arrival: more than the queueing delay by
/// which data can arrive after control messages on the same path.
pub const DRAIN_QUIET: Nanos = Nanos::from_secs(1);
/// A receiver stops after this time even if packets still arrive: the longest delay of our paths.
pub const DRAIN_LIMIT: Nanos = Nanos::from_secs(10);
/// A sender that has not finished this long after its time is stopped by its own session.
pub const OVERRUN: Nanos = Nanos::from_secs(5);
/// From the end of the data to the last piece of the report: 64 MB over 10 Mb/s.
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
    /// Largest report.
    pub report: Bytes,
    /// Whether a test may change settings of the server's host while it runs: RPS by a softirq placement or softirq CPUs, time
    /// stamps of a NIC.
    #[serde(default = "allowed")]
    pub host_settings: bool,
}

/// The caps of servers that do not send them all.
const fn allowed() -> bool {
    true
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
            report: Bytes(64 << 20),
            host_settings: allowed(),
        }
    }
}

impl Caps {
    /// What a server with these caps grants for `asked`.
    ///
    /// # Errors
    /// The first parameter above a cap, with the cap.
    pub fn grant_test(&self, asked: &TestParameters) -> Result<TestParameters, ParameterError> {
        match asked {
            TestParameters::Udp(asked) => self.grant(asked).map(TestParameters::Udp),
            TestParameters::Tcp(asked) => self.grant_tcp(asked).map(TestParameters::Tcp),
        }
    }

    /// Like [`Self::grant`], for TCP: if there is a cap on the rate and the flows are not paced, the server paces them.
    ///
    /// # Errors
    /// The first parameter above a cap, with the cap.
    pub fn grant_tcp(&self, asked: &TcpParameters) -> Result<TcpParameters, ParameterError> {
        asked.validate()?;
        self.grant_size(asked.amount, asked.streams, asked.window_bytes)?;
        let mut granted = asked.clone();
        if let Some(cap) = self.rate {
            let streams = u64::from(asked.streams);
            match asked.pace_bps {
                None => granted.pace_bps = Some((cap.0 / streams).max(1_000)),
                Some(rate) if rate.saturating_mul(streams) > cap.0 => {
                    let allowed = format!("this server allows a payload rate of {cap} over all flows");
                    return Err(ParameterError::new(
                        "--pace",
                        format_args!("({} × {streams})", BitRate(rate)),
                        allowed,
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(granted)
    }

    /// Checks the caps for all kinds of tests.
    fn grant_size(&self, amount: Amount, streams: u8, sockbuf_bytes: Option<u64>) -> Result<(), ParameterError> {
        if let Amount::DurationNs(ns) = amount
            && ns > self.duration.0
        {
            return Err(ParameterError::new("-t", Nanos(ns), format!("this server allows {}", self.duration)));
        }
        if streams > self.streams {
            return Err(ParameterError::new("-P", streams, format!("this server allows {}", self.streams)));
        }
        if let Some(bytes) = sockbuf_bytes
            && bytes > self.sockbuf.0
        {
            return Err(ParameterError::new("-w", Bytes(bytes), format!("this server allows {}", self.sockbuf)));
        }
        Ok(())
    }

    /// What a server with these caps grants for `asked`: all of it or nothing. Only if no rate was requested does the server set
    /// its own.
    ///
    /// # Errors
    /// The first parameter above a cap, with the cap.
    pub fn grant(&self, asked: &UdpParameters) -> Result<UdpParameters, ParameterError> {
        asked.validate()?;
        let mut granted = asked.clone();
        self.grant_size(asked.amount, asked.streams, asked.sockbuf_bytes)?;
        if asked.payload_bytes > self.payload_bytes {
            let allowed = format!("this server allows {} bytes", self.payload_bytes);
            return Err(ParameterError::new("-l", asked.payload_bytes, allowed));
        }
        if let (false, Some((flag, given))) = (self.host_settings, changes_receiver(asked))
            && asked.direction.client_sends()
        {
            let allowed = "this server does not let clients change settings of its host; `longhaul serve --host-settings allow` does";
            return Err(ParameterError::new(flag, given, allowed));
        }
        if let Some(cap) = self.rate {
            let streams = u64::from(asked.streams);
            match asked.rate() {
                None => granted.pace = Pace::RateBps((cap.0 / streams).max(1_000)),
                Some(rate) if rate.0.saturating_mul(streams) > cap.0 => {
                    let flag = if matches!(asked.pace, Pace::SpacingNs(_)) { "--spacing" } else { "-b" };
                    let allowed = format!("this server allows a payload rate of {cap} over all streams");
                    return Err(ParameterError::new(flag, format_args!("({rate} × {streams})"), allowed));
                }
                Some(_) => {}
            }
        }
        Ok(granted)
    }

    /// When a sender that has not finished is stopped: at the cap if an amount was requested, else somewhat after its time.
    pub(super) fn stop_after(&self, parameters: &TestParameters) -> Nanos {
        match parameters.amount() {
            Amount::DurationNs(ns) => Nanos(ns).saturating_add(OVERRUN),
            _ => self.duration,
        }
    }

    /// How long a test may send: its own time, or the cap if an amount was requested.
    pub fn sending_time(&self, parameters: &TestParameters) -> Nanos {
        match parameters.amount() {
            Amount::DurationNs(ns) => Nanos(ns),
            _ => self.duration,
        }
    }
}

/// The flag and value by which a test changes settings of the receiving host.
fn changes_receiver(asked: &UdpParameters) -> Option<(&'static str, String)> {
    match (asked.affinity.softirq, asked.affinity.softirq_cpus.first()) {
        (Some(SoftirqPlacement::Same), _) => Some(("--softirq", "same".into())),
        (Some(SoftirqPlacement::Split), _) => Some(("--softirq", "split".into())),
        (None, Some(cpu)) => Some(("-A", format!("(softirq on CPU {cpu})"))),
        (None, None) => (asked.timestamps == Timestamps::Nic).then(|| ("--timestamps", "nic".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_terms::{Affinity, TestDirection};

    #[test]
    fn what_changes_the_servers_host_can_be_refused() {
        let caps = Caps { host_settings: false, ..Caps::default() };
        let plain = UdpParameters::default();
        let bound = |affinity| UdpParameters { affinity, ..UdpParameters::default() };
        let split = bound(Affinity { softirq: Some(SoftirqPlacement::Split), ..Affinity::default() });
        let softirq = bound(Affinity { softirq_cpus: vec![1], ..Affinity::default() });
        let reader = bound(Affinity { receiver_cpus: vec![1], ..Affinity::default() });
        let nic = UdpParameters { timestamps: Timestamps::Nic, ..plain.clone() };
        for (asked, flag) in [(&split, "--softirq"), (&softirq, "-A"), (&nic, "--timestamps")] {
            assert_eq!(caps.grant(asked).unwrap_err().flag, flag);
            assert!(Caps::default().grant(asked).is_ok());
            // Then the setting is changed on the client's own host.
            assert!(caps.grant(&UdpParameters { direction: TestDirection::Reverse, ..asked.clone() }).is_ok());
            assert!(caps.grant(&UdpParameters { direction: TestDirection::Bidirectional, ..asked.clone() }).is_err());
        }
        assert!(caps.grant(&plain).is_ok() && caps.grant(&reader).is_ok());
    }

    #[test]
    fn beyond_a_cap_is_refused_and_no_limit_becomes_the_cap() {
        let caps = Caps { rate: Some(BitRate::from_gbit(1)), duration: Nanos::from_secs(60), ..Caps::default() };
        let asked = UdpParameters { streams: 2, ..UdpParameters::default() };
        assert_eq!(caps.grant(&asked).unwrap().pace, Pace::RateBps(500_000_000));
        let at = |pace| caps.grant(&UdpParameters { pace, ..asked.clone() });
        assert!(at(Pace::RateBps(500_000_000)).is_ok());
        assert_eq!(
            at(Pace::RateBps(600_000_000)).unwrap_err().to_string(),
            "-b (600Mbit × 2): this server allows a payload rate of 1Gbit over all streams"
        );
        assert_eq!(at(Pace::SpacingNs(1_000)).unwrap_err().flag, "--spacing");
        let long = UdpParameters { amount: Amount::DurationNs(61_000_000_000), ..asked };
        assert_eq!(caps.grant(&long).unwrap_err().to_string(), "-t 61s: this server allows 60s");
    }

    #[test]
    fn a_capped_server_paces_tcp() {
        let caps = Caps { rate: Some(BitRate::from_gbit(1)), sockbuf: Bytes(1 << 20), ..Caps::default() };
        let asked = TcpParameters { streams: 4, ..TcpParameters::default() };
        assert_eq!(caps.grant_tcp(&asked).unwrap().pace_bps, Some(250_000_000));
        let fast = TcpParameters { pace_bps: Some(300_000_000), ..asked.clone() };
        assert!(caps.grant_tcp(&fast).unwrap_err().to_string().starts_with("--pace (300Mbit × 4): this server allows"));
        let wide = TcpParameters { window_bytes: Some(2 << 20), ..asked };
        assert_eq!(caps.grant_tcp(&wide).unwrap_err().flag, "-w");
    }
}
