//! A short path stands for a long one: whether a path loses few enough packets for a rate over a longer round trip (RFC 8337).
//!
//! A flow over the long path needs a run length: that many packets from one loss to the next, by its congestion control's response function.
//! The short path passes if it has that run length, by Wald's sequential test (RFC 8337 §7.2): with each packet the losses so far
//! are below a line, above another, or between them, where more packets are needed.

use longhaul_congestion::aimd::{self, Model};
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::evidence::UdpFacts;
use crate::rules::{UDP_OVERHEAD, share};

/// Payload of a packet: as TCP's with time stamps, in packets of 1500 bytes.
const PAYLOAD_BYTES: u64 = 1448;
/// Payload and headers above Ethernet.
const PACKET_BYTES: u32 = 1500;
/// A path with four times the losses fails, with the risks below (RFC 8337 §7.2).
const TIMES_WORSE: f64 = 4.0;
/// Risk that a path with the run length fails, and that one with a fourth of it passes (RFC 8337 §7.2).
const RISK: f64 = 0.05;
/// More is no path: the tests would take years.
const MOST_WINDOW: f64 = 1e9;

/// What a flow over the long path needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongPath {
    /// Its rate, bits per second on the wire (L1).
    pub rate_bps: u64,
    /// Its round-trip time.
    pub rtt_ns: u64,
    /// Its congestion control.
    pub congestion_control: String,
    /// Packets in flight at that rate.
    pub window_packets: u64,
    /// Packets from one loss to the next that keep that window.
    pub run_length_packets: u64,
    /// Packets without a loss that pass the test.
    pub packets_to_pass: u64,
    /// How long these take at the rate.
    pub time_to_pass_ns: u64,
}

/// The result of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The path has what the flow needs.
    Pass,
    /// It has not.
    Fail,
    /// Too few packets were sent to know.
    NotEnough,
}

/// A test of a short path for a long one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongPathTest {
    /// What is needed.
    pub target: LongPath,
    /// Whether losses are as rare as the flow needs.
    pub run_length: Verdict,
    /// Packets sent at the rate.
    pub sent_packets: u64,
    /// Packets lost in the network.
    pub lost_packets: u64,
    /// Runs of lost packets (RFC 3357's loss periods): the flow takes each as one loss.
    pub losses: u64,
    /// Payload bits per second handed to the socket, on the mean.
    pub sent_bps: u64,
    /// What the flow would reach over the long path with these losses, payload bits per second, by its response function; `None` without losses.
    pub expected_bps: Option<u64>,
    /// Whether queues take what slow start sends at its end: a window at twice the rate (RFC 8337 §8.2).
    pub slow_start: Verdict,
    /// Each of these bursts.
    pub bursts: Vec<Burst>,
}

/// A window of packets at twice the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Burst {
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets lost in the network.
    pub lost_packets: u64,
    /// Payload bits per second handed to the socket.
    pub sent_bps: u64,
}

/// Why no test can stand for a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoLongPath {
    /// The control's response function is not known.
    #[error("{0} has no known response to loss; use one of {names}", names = aimd::model_names().join(", "))]
    NoModel(String),
    /// Less than a packet in flight, or more than any path has.
    #[error("rate × round trip is {0} packets: give 2 to 10⁹")]
    Window(u64),
}

impl LongPath {
    /// What a flow of `rate` on the wire needs over `rtt`.
    ///
    /// Reno's run length is 3 W² (RFC 8337 §5.2), which leaves room for a receiver that acknowledges each second packet. Those of others are
    /// by their response functions, CUBIC's by RFC 9438 §5.1, which is Reno's where that is kinder (§4.3).
    ///
    /// # Errors
    /// A control without a model, or a window that no path has.
    pub fn of(rate: BitRate, rtt: Nanos, control: &str) -> Result<Self, NoLongPath> {
        let model = Model::named(control).map_err(|_| NoLongPath::NoModel(control.into()))?;
        let payload_bps = share(rate.0, PAYLOAD_BYTES, PAYLOAD_BYTES + UDP_OVERHEAD);
        let on_ip = BitRate(share(payload_bps, PACKET_BYTES.into(), PAYLOAD_BYTES));
        let window = aimd::window(on_ip, rtt, PACKET_BYTES);
        if !(2.0..=MOST_WINDOW).contains(&window) {
            return Err(NoLongPath::Window(window as u64));
        }
        let reno = 3.0 * window * window;
        let needed = match model {
            Model::Reno => reno,
            other => (1.0 / other.row(window, rtt).supportable_loss).min(reno),
        };
        let packets_to_pass = passes(needed, 0).ceil();
        let per_second = payload_bps as f64 / 8.0 / PAYLOAD_BYTES as f64;
        Ok(Self {
            rate_bps: rate.0,
            rtt_ns: rtt.0,
            congestion_control: control.into(),
            window_packets: window.ceil() as u64,
            run_length_packets: needed.ceil() as u64,
            packets_to_pass: packets_to_pass as u64,
            time_to_pass_ns: (packets_to_pass / per_second * 1e9) as u64,
        })
    }

    /// The target as payload of UDP, bits per second.
    pub fn payload_bps(&self) -> u64 {
        share(self.rate_bps, PAYLOAD_BYTES, PAYLOAD_BYTES + UDP_OVERHEAD)
    }

    /// What a flow that loses so often reaches over the long path, payload bits per second: its response function, at most the target.
    fn expected_bps(&self, packets: u64, losses: u64) -> Option<u64> {
        let model = Model::named(&self.congestion_control).ok().filter(|_| losses > 0)?;
        let window = model.window_at(losses as f64 / packets.max(1) as f64, Nanos(self.rtt_ns));
        let bps = window * PAYLOAD_BYTES as f64 * 8e9 / self.rtt_ns.max(1) as f64;
        Some((bps as u64).min(self.payload_bps()))
    }

    /// How long so many packets take at `payload_bps`.
    pub fn time_of(packets: u64, payload_bps: u64) -> u64 {
        share(packets.saturating_mul(PAYLOAD_BYTES * 8), 1_000_000_000, payload_bps)
    }

    /// Payload of each packet of the test, bytes.
    pub const fn payload_bytes() -> u64 {
        PAYLOAD_BYTES
    }

    /// Whether a path that lost `losses` times in `packets` has the run length.
    pub fn verdict(&self, packets: u64, losses: u64) -> Verdict {
        let (needed, packets) = (self.run_length_packets as f64, packets as f64);
        if packets >= passes(needed, losses) {
            Verdict::Pass
        } else if packets <= fails(needed, losses) {
            Verdict::Fail
        } else {
            Verdict::NotEnough
        }
    }
}

/// The slope of both lines in losses a packet, and their distance from the origin in losses (Wald 1945; RFC 8337 §7.2).
fn lines(needed: f64) -> (f64, f64) {
    let p0 = (1.0 / needed).min(0.2);
    let p1 = TIMES_WORSE * p0;
    let k = (p1 * (1.0 - p0) / (p0 * (1.0 - p1))).ln();
    (((1.0 - p0) / (1.0 - p1)).ln() / k, ((1.0 - RISK) / RISK).ln() / k)
}

/// Packets from which on so many losses pass.
fn passes(needed: f64, losses: u64) -> f64 {
    let (slope, apart) = lines(needed);
    (losses as f64 + apart) / slope
}

/// Packets up to which so many losses fail.
fn fails(needed: f64, losses: u64) -> f64 {
    let (slope, apart) = lines(needed);
    (losses as f64 - apart) / slope
}

impl LongPathTest {
    /// A test of which nothing has run.
    pub fn new(target: LongPath) -> Self {
        Self {
            target,
            run_length: Verdict::NotEnough,
            sent_packets: 0,
            lost_packets: 0,
            losses: 0,
            sent_bps: 0,
            expected_bps: None,
            slow_start: Verdict::NotEnough,
            bursts: Vec::new(),
        }
    }

    /// Takes a part of the test at the rate.
    pub fn take(&mut self, seen: &UdpFacts) {
        let lost = seen.lost_on_the_way();
        let before = u128::from(self.sent_bps) * u128::from(self.sent_packets);
        let added = u128::from(seen.sent_bps) * u128::from(seen.sent_packets);
        self.sent_packets = self.sent_packets.saturating_add(seen.sent_packets);
        self.lost_packets = self.lost_packets.saturating_add(lost);
        self.losses = self.losses.saturating_add(seen.loss_runs.min(lost));
        let mean = before.saturating_add(added) / u128::from(self.sent_packets.max(1));
        self.sent_bps = u64::try_from(mean).unwrap_or(u64::MAX);
        self.run_length = self.target.verdict(self.sent_packets, self.losses);
        self.expected_bps = self.target.expected_bps(self.sent_packets, self.losses);
    }

    /// Takes a burst. One that the sender could not send at 1.5 times the rate says nothing, unless it lost packets.
    pub fn take_burst(&mut self, seen: &UdpFacts) {
        let burst =
            Burst { sent_packets: seen.sent_packets, lost_packets: seen.lost_on_the_way(), sent_bps: seen.sent_bps };
        self.bursts.push(burst);
        let fast = |burst: &Burst| burst.sent_bps >= self.target.payload_bps() / 2 * 3;
        let lost = self.bursts.iter().filter(|burst| burst.lost_packets > 0).count();
        self.slow_start = match lost * 2 > self.bursts.len() {
            true => Verdict::Fail,
            false if self.bursts.iter().any(fast) => Verdict::Pass,
            false => Verdict::NotEnough,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(control: &str) -> LongPath {
        LongPath::of("10G".parse().unwrap(), "150ms".parse().unwrap(), control).unwrap()
    }

    /// The figures that people compute by hand: Reno's 3 W², and CUBIC's window 1.054 (RTT / p)^0.75 (RFC 9438 §5.1).
    #[test]
    fn run_lengths_of_a_long_fat_network() {
        let reno = needs("reno");
        let window = reno.window_packets as f64;
        assert!((120_000.0..126_000.0).contains(&window), "{reno:?}");
        assert!((reno.run_length_packets as f64 / (3.0 * window * window) - 1.0).abs() < 1e-3, "{reno:?}");
        // Half a day at 10 Gbit/s and more.
        assert!((14.0..18.0).contains(&(reno.time_to_pass_ns as f64 / 3.6e12)), "{reno:?}");
        let cubic = needs("cubic");
        let loss = 0.15 * (1.0540925_f64 / window).powf(4.0 / 3.0);
        assert!((cubic.run_length_packets as f64 * loss - 1.0).abs() < 0.02, "{cubic:?}, {}", 1.0 / loss);
        assert!((40.0..60.0).contains(&(cubic.time_to_pass_ns as f64 / 1e9)), "{cubic:?}");
        // On a short path CUBIC is Reno.
        let short = |control| LongPath::of("100M".parse().unwrap(), "5ms".parse().unwrap(), control).unwrap();
        assert!(short("cubic").run_length_packets <= short("reno").run_length_packets);
        assert!(matches!(LongPath::of(BitRate(1_000), Nanos(1), "reno"), Err(NoLongPath::Window(0))));
        assert!(matches!(
            LongPath::of("1G".parse().unwrap(), "1s".parse().unwrap(), "bbr"),
            Err(NoLongPath::NoModel(_))
        ));
    }

    #[test]
    fn a_verdict_needs_enough_packets() {
        let cubic = needs("cubic");
        let run = cubic.run_length_packets;
        assert_eq!(cubic.verdict(cubic.packets_to_pass - 2, 0), Verdict::NotEnough);
        assert_eq!(cubic.verdict(cubic.packets_to_pass + 1, 0), Verdict::Pass);
        // It fails early: two losses in the first hundredth of a run are not yet enough, three are.
        assert_eq!(cubic.verdict(run / 100, 1), Verdict::NotEnough);
        assert_eq!(cubic.verdict(run / 100, 3), Verdict::Fail);
        // Ten times the run length with ten losses is what was asked for.
        assert_eq!(cubic.verdict(10 * run, 10), Verdict::Pass);
        assert_eq!(cubic.verdict(10 * run, 40), Verdict::Fail);
    }

    /// Wald's risks, by 4000 tests of paths with the run length and with a fourth of it.
    #[test]
    fn the_risks_are_as_said() {
        let target = LongPath { run_length_packets: 1_000, ..needs("cubic") };
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut wrong = |loss: f64, right: Verdict| {
            let mut wrong = 0;
            for _ in 0..4_000 {
                let (mut packets, mut losses) = (0_u64, 0_u64);
                let verdict = loop {
                    // The packets up to the next loss, unless the test ends before it.
                    let run = (draw().max(1e-12).ln() / (1.0 - loss).ln()).ceil().max(1.0) as u64;
                    let pass = passes(1_000.0, losses).ceil() as u64;
                    if packets + run > pass {
                        break Verdict::Pass;
                    }
                    (packets, losses) = (packets + run, losses + 1);
                    match target.verdict(packets, losses) {
                        Verdict::NotEnough => {}
                        verdict => break verdict,
                    }
                };
                wrong += u32::from(verdict != right);
            }
            f64::from(wrong) / 4_000.0
        };
        let (good, bad) = (wrong(1e-3, Verdict::Pass), wrong(4e-3, Verdict::Fail));
        assert!(good < 0.06 && bad < 0.06, "{good} {bad}");
        assert!(good > 0.01 && bad > 0.01, "{good} {bad}");
    }

    #[test]
    fn bursts_that_the_sender_cannot_send_say_nothing() {
        let facts = |sent_bps, lost| UdpFacts {
            sent_bps,
            sent_packets: 1_000,
            lost_packets: lost,
            loss_packets: [(longhaul_result::Location::Network, lost)].into(),
            loss_runs: lost.min(1),
            ..empty()
        };
        let of = |bursts: &[(u64, u64)]| {
            let mut test = LongPathTest::new(needs("cubic"));
            bursts.iter().for_each(|(bps, lost)| test.take_burst(&facts(*bps, *lost)));
            test.slow_start
        };
        let rate = needs("cubic").payload_bps();
        assert_eq!(of(&[(rate, 0), (rate, 0)]), Verdict::NotEnough);
        assert_eq!(of(&[(2 * rate, 0), (rate, 0), (2 * rate, 3)]), Verdict::Pass);
        assert_eq!(of(&[(2 * rate, 9), (rate, 0), (2 * rate, 3)]), Verdict::Fail);
        let mut test = LongPathTest::new(needs("cubic"));
        test.take(&facts(rate, 700));
        assert_eq!((test.lost_packets, test.losses, test.sent_bps), (700, 1, rate));
        // One loss in 1000 packets: Mathis' window of Reno is the square root of 1.5 × 1000, for each round trip of 150 ms.
        let mut reno = LongPathTest::new(needs("reno"));
        reno.take(&facts(rate, 1));
        let expected = 1_500_f64.sqrt() * 1448.0 * 8.0 / 0.15;
        assert!((reno.expected_bps.unwrap() as f64 / expected - 1.0).abs() < 0.03, "{reno:?}, {expected}");
    }

    fn empty() -> UdpFacts {
        UdpFacts {
            purpose: crate::evidence::Purpose::Rate,
            payload_bytes: PAYLOAD_BYTES,
            asked_bps: None,
            sent_bps: 0,
            received_bps: 0,
            sent_packets: 0,
            lost_packets: 0,
            loss_packets: Default::default(),
            loss_reasons: Vec::new(),
            loss_runs: 0,
            duplicate_packets: 0,
            reordered_packets: 0,
            delay_p50_ns: None,
            delay_p99_ns: None,
            streams: Vec::new(),
            traffic_class: 0,
            traffic_classes: Vec::new(),
            sender_events: Default::default(),
            receiver_events: Default::default(),
            sender_cpu: None,
            receiver_cpu: None,
        }
    }
}
