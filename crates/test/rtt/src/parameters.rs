//! What is asked of a measurement with longhaul's server, and what each end reports.

use longhaul_terms::{Amount, ParameterError, check_range};
use longhaul_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::by_size::MOST_SIZES;
use crate::clocks::ClockState;
use crate::exchange::{LEAST_BYTES, TIMEOUT_MOST};
use crate::probe_log::PROBES_MOST;

/// Shortest payload: the answer has the responder's time stamps, and is as long as the question.
pub const MIN_PAYLOAD_BYTES: u32 = LEAST_BYTES as u32;
/// Longest payload, as for UDP tests.
const MAX_PAYLOAD_BYTES: u32 = 65_507;
/// Probes more often than this are a test of throughput.
const INTERVALS: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(100)..=Nanos::from_secs(3600);
/// The session waits some seconds for the end of a sender.
const TIMEOUTS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(10)..=TIMEOUT_MOST;
/// Longest measurement; a server allows less unless its operator says otherwise.
const MOST_TIME: Nanos = Nanos::from_secs(366 * 24 * 3600);

/// A measurement of round trips by datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RttParameters {
    /// How long probes are sent, or how many.
    pub amount: Amount,
    /// Time between probes, nanoseconds; the mean of it with `poisson`.
    pub interval_ns: u64,
    /// Probes are sent by a Poisson process (RFC 2330 §11.1.1), else periodically.
    pub poisson: bool,
    /// Payload of a probe, bytes, and of its answer; that of the largest with `sizes`.
    pub payload_bytes: u32,
    /// Payloads of probes, bytes, in rising order; empty if all have `payload_bytes`. A round has one probe of each size, in a new random
    /// order.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// After this time without an answer a probe is lost, nanoseconds.
    pub timeout_ns: u64,
    /// The NIC of each end stamps packets where it can, else the kernel.
    #[serde(default, skip_serializing_if = "is_false")]
    pub nic_stamps: bool,
    /// The number of the first probe, where others came before: in a session that follows another, or after a pause.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_sequence: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Default for RttParameters {
    /// Ten seconds, a probe of 64 bytes every 10 ms.
    fn default() -> Self {
        Self {
            amount: Amount::DurationNs(10_000_000_000),
            interval_ns: 10_000_000,
            poisson: false,
            payload_bytes: 64,
            sizes: Vec::new(),
            timeout_ns: 3_000_000_000,
            nic_stamps: false,
            first_sequence: 0,
        }
    }
}

impl RttParameters {
    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let bytes = format!("{MIN_PAYLOAD_BYTES} to {MAX_PAYLOAD_BYTES} bytes");
        check_range("payload_bytes", self.payload_bytes, MIN_PAYLOAD_BYTES..=MAX_PAYLOAD_BYTES, bytes.as_str())?;
        if let Some(least) = self.sizes.first() {
            check_range("sizes", *least, MIN_PAYLOAD_BYTES..=MAX_PAYLOAD_BYTES, bytes.as_str())?;
            check_range("sizes", self.sizes.len(), 2..=MOST_SIZES, format!("2 to {MOST_SIZES} of them"))?;
            let rises = self.sizes.windows(2).all(|pair| pair[0] < pair[1]);
            if !rises || self.sizes.last() != Some(&self.payload_bytes) {
                let allowed = "in rising order, the last that of `payload_bytes`";
                return Err(ParameterError::new("sizes", format!("{:?}", self.sizes), allowed));
            }
        }
        check_range("interval_ns", Nanos(self.interval_ns), INTERVALS, "100us to 1h")?;
        check_range("first_sequence", self.first_sequence, 0..=PROBES_MOST, "fewer probes before")?;
        check_range("timeout_ns", Nanos(self.timeout_ns), TIMEOUTS, "10ms to 4s")?;
        match self.amount {
            Amount::DurationNs(ns) => {
                check_range("duration_ns", Nanos(ns), Nanos::from_millis(1)..=MOST_TIME, "1ms to 366 days")
            }
            Amount::Packets(count) => check_range("probes", count, 1..=PROBES_MOST, "1 or more probes"),
            Amount::Bytes(bytes) => Err(ParameterError::new("bytes", bytes, "give a time or a number of probes")),
        }
    }

    /// The payload of probe `sequence`, bytes. Both ends know it: the order of each turn of sizes is drawn with the turn's number as seed.
    pub fn payload_of(&self, sequence: u64) -> u32 {
        let count = self.sizes.len() as u64;
        let Some(place) = sequence.checked_rem(count).map(|place| place as usize) else { return self.payload_bytes };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(sequence / count);
        let mut order = self.sizes.clone();
        // Fisher and Yates, as far as the probe's place.
        for at in 0..=place {
            let left = order.len() - at;
            order.swap(at, at + (random.next_u64() % left as u64) as usize);
        }
        order[place]
    }

    /// All payloads that probes have, bytes.
    pub fn payloads(&self) -> Vec<u32> {
        if self.sizes.is_empty() { vec![self.payload_bytes] } else { self.sizes.clone() }
    }

    /// How many probes are sent; `None` if the time decides.
    pub fn probes(&self) -> Option<u64> {
        if let Amount::Packets(count) = self.amount { Some(count) } else { None }
    }
}

/// What an end of a measurement reports. Each end has its own part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RttEndReport {
    /// Responder: probes of this measurement that arrived.
    #[serde(default)]
    pub received: u64,
    /// Responder: those that it answered.
    #[serde(default)]
    pub answered: u64,
    /// Responder: probes that it did not answer to keep to its rate.
    #[serde(default)]
    pub limited: u64,
    /// Responder: packets that its socket dropped since the measurement began.
    #[serde(default)]
    pub dropped: u64,
    /// Responder: its clock, at the end.
    #[serde(default)]
    pub clock: Option<ClockState>,
}

impl RttEndReport {
    /// With the sums of a session before. They are the other end's word: a sum without room stays at the end.
    pub fn add(&mut self, before: &Self) {
        self.received = self.received.saturating_add(before.received);
        self.answered = self.answered.saturating_add(before.answered);
        self.limited = self.limited.saturating_add(before.limited);
        self.dropped = self.dropped.saturating_add(before.dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_several_sessions_that_lie_have_a_sum() {
        let lie =
            RttEndReport { received: u64::MAX, answered: u64::MAX, limited: u64::MAX, dropped: u64::MAX, clock: None };
        let mut sum = lie.clone();
        sum.add(&lie);
        assert_eq!(sum, lie);
    }

    #[test]
    fn each_turn_has_all_sizes_in_another_order() {
        let sizes = vec![64, 100, 200, 300, 400, 500, 600, 700];
        let parameters = RttParameters { payload_bytes: 700, sizes: sizes.clone(), ..RttParameters::default() };
        parameters.validate().unwrap();
        let turn = |turn: u64| (0..8).map(|at| parameters.payload_of(turn * 8 + at)).collect::<Vec<_>>();
        assert!((0..20).any(|number| turn(number) != turn(number + 1)));
        for number in 0..100 {
            let mut sorted = turn(number);
            sorted.sort_unstable();
            assert_eq!(sorted, sizes);
        }
        // In each place each size comes as often.
        let first = (0..8_000).filter(|number| turn(*number)[0] == 300).count();
        assert!((900..1_100).contains(&first), "{first}");
        for wrong in [vec![64, 64, 700], vec![64, 800], vec![700], vec![10, 700], vec![64, 65_508]] {
            assert!(RttParameters { sizes: wrong.clone(), ..parameters.clone() }.validate().is_err(), "{wrong:?}");
        }
        assert_eq!(RttParameters::default().payload_of(7), 64);
    }
}
