//! When to send how many packets.
//!
//! Packets are due on a fixed schedule, one gap after the other, whatever happened before: what is sent late does not make
//! the rest late, so the rate holds. As few packets go together as the cost of sending allows: where a call takes longer than
//! a gap, several leave in one.

use crate::Nanos;

/// Debt beyond which a sender does not try to catch up: the machine was elsewhere, and a burst as long as that would be
/// another test than the one asked for.
const DEBT_MOST: Nanos = Nanos::from_millis(10);
/// Share of the time that sending may take before packets are put together.
const BUSY_SHARE: f64 = 0.7;
/// Weight of the newest call in the mean cost.
const NEWEST: f64 = 1.0 / 16.0;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Send so many packets: in one call, or a burst that is longer than that.
    Send(u32),
    /// Nothing before this time.
    Wait(Nanos),
}

/// A schedule of packets. Times are the caller's clock, which does not fall.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Picoseconds from packet to packet; 0: no limit.
    gap_ps: u64,
    /// When the next packet is due, in picoseconds since `origin`.
    due_ps: u128,
    origin: Nanos,
    /// Packets that always go together.
    burst: u32,
    /// Packets that go together at most.
    batch_most: u32,
    /// Mean cost of a call in nanoseconds: of any, and of each packet in it.
    call_ns: f64,
    given_up: Nanos,
}

impl Pacer {
    /// From `start` on, `rate_bps` of packets of `bytes` each, counted at the layer that the caller means; `None`: no limit.
    /// `burst` packets always go together; beyond that at most `batch_most`, which is what one call takes. Both at least 1.
    pub fn with_rate(start: Nanos, rate_bps: Option<u64>, bytes: u32, burst: u32, batch_most: u32) -> Self {
        let gap =
            |rate: u64| (u128::from(bytes) * 8_000_000_000_000 / u128::from(rate.max(1))).min(u128::from(u64::MAX));
        Self::with_gap(start, rate_bps.map_or(0, |rate| gap(rate) as u64), burst, batch_most)
    }

    /// From `start` on, a packet each `gap_ps` picoseconds.
    pub fn with_gap(start: Nanos, gap_ps: u64, burst: u32, batch_most: u32) -> Self {
        let burst = burst.max(1);
        Self {
            gap_ps,
            due_ps: 0,
            origin: start,
            burst,
            batch_most: batch_most.max(burst),
            call_ns: 0.0,
            given_up: Nanos::ZERO,
        }
    }

    /// What to do at `now`.
    pub fn poll(&mut self, now: Nanos) -> Pace {
        if self.gap_ps == 0 {
            return Pace::Send(self.batch_most);
        }
        let now_ps = u128::from(now.saturating_sub(self.origin).0) * 1000;
        if now_ps + 999 < self.due_ps {
            return Pace::Wait(self.origin + Nanos((self.due_ps / 1000) as u64));
        }
        let debt_ps = now_ps.saturating_sub(self.due_ps);
        let excess = debt_ps.saturating_sub(u128::from(DEBT_MOST.0) * 1000);
        if excess > 0 {
            self.due_ps += excess;
            self.given_up += Nanos((excess / 1000) as u64);
        }
        let owed = (debt_ps - excess) / u128::from(self.gap_ps) + 1;
        let count = (owed as u64).min(self.together().into()) as u32;
        let count = count.max(self.burst).min(self.batch_most);
        self.due_ps += u128::from(self.gap_ps) * u128::from(count);
        Pace::Send(count)
    }

    /// A call that sent packets took `cost`.
    pub fn learn(&mut self, cost: Nanos) {
        self.call_ns += (cost.0 as f64 - self.call_ns) * NEWEST;
    }

    /// How many packets may go together: one, unless calls are too dear for that, or there is debt that one does not pay.
    fn together(&self) -> u32 {
        let per_gap = self.call_ns * 1000.0 / (self.gap_ps as f64 * BUSY_SHARE);
        // Debt is paid by larger batches too, or it would never be paid near the limit.
        (2.0 * per_gap.ceil()).clamp(1.0, self.batch_most.into()) as u32
    }

    /// Time by which the schedule was put off because the sender could not keep up.
    pub fn given_up(&self) -> Nanos {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends for `seconds` with calls that take `call_ns`, and returns packets and the largest batch.
    fn simulate(mut pacer: Pacer, call_ns: u64, seconds: u64) -> (u64, u32) {
        let (mut now, mut packets, mut largest) = (Nanos::ZERO, 0, 0);
        while now < Nanos::from_secs(seconds) {
            match pacer.poll(now) {
                Pace::Wait(until) => {
                    assert!(until > now, "a wait that ends at once");
                    now = until;
                }
                Pace::Send(count) => {
                    packets += u64::from(count);
                    largest = largest.max(count);
                    now += Nanos(call_ns);
                    pacer.learn(Nanos(call_ns));
                }
            }
        }
        (packets, largest)
    }

    /// 1448 bytes at 1 Gb/s are a packet each 11.584 µs, or 86,326 a second; with calls of 4 µs each goes alone.
    #[test]
    fn a_rate_that_calls_can_hold_goes_packet_by_packet() {
        let (packets, largest) = simulate(Pacer::with_rate(Nanos::ZERO, Some(1_000_000_000), 1448, 1, 44), 4_000, 2);
        assert!(packets.abs_diff(172_652) <= 2, "{packets}");
        assert!(largest <= 2, "{largest} together");
    }

    /// At 5 Gb/s a packet is due each 2.3 µs: calls of 4 µs need batches, and the rate holds to 0.1 %.
    #[test]
    fn a_rate_beyond_single_calls_goes_in_small_batches() {
        let (packets, largest) = simulate(Pacer::with_rate(Nanos::ZERO, Some(5_000_000_000), 1448, 1, 44), 4_000, 2);
        let wanted = 2.0 * 5e9 / (1448.0 * 8.0);
        assert!((packets as f64 / wanted - 1.0).abs() < 0.001, "{packets} of {wanted}");
        assert!((2..=10).contains(&largest), "{largest} together");
    }

    #[test]
    fn a_gap_of_less_than_a_nanosecond_counts() {
        let (packets, _) = simulate(Pacer::with_gap(Nanos::ZERO, 10_500, 1, 128), 500, 1);
        assert!(packets.abs_diff(95_238_095) < 200, "{packets}");
    }

    #[test]
    fn a_long_absence_is_not_made_up_for() {
        let mut pacer = Pacer::with_gap(Nanos::ZERO, 1_000_000, 1, 64);
        assert_eq!(pacer.poll(Nanos::ZERO), Pace::Send(1));
        let back = Nanos::from_secs(1);
        let mut sent = 0;
        while let Pace::Send(count) = pacer.poll(back) {
            sent += count;
        }
        assert!((10_000..10_010).contains(&sent), "{sent} packets of 1 µs for 10 ms of debt");
        assert!(pacer.given_up() > Nanos::from_millis(980));
    }

    #[test]
    fn bursts_stay_together() {
        let mut pacer = Pacer::with_gap(Nanos::ZERO, 1_000_000, 8, 64);
        assert_eq!(pacer.poll(Nanos::ZERO), Pace::Send(8));
        assert_eq!(pacer.poll(Nanos(1)), Pace::Wait(Nanos::from_micros(8)));
    }
}
