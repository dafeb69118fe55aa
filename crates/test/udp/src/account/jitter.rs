//! Interarrival jitter (RFC 3550 §6.4.1, A.8).

use longhaul_units::Nanos;

/// The jitter of one stream: J ← J + (|D| − J)/16, where D is the change of (arrival − sent) between successive arrivals.
///
/// The two clocks need not agree, because only changes count, but they must run at the same rate. The jitter is meaningful only if
/// both stamps belong to the single packet: one stamp for a batch measures the batching.
///
/// Differences from the RFC: nanoseconds instead of RTP units; floating point, as A.8 allows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Jitter {
    jitter_ns: f64,
    transit_ns: Option<i64>,
}

impl Jitter {
    /// A packet of the stream arrived at `arrival` (receiver's clock) and was sent at `sent` (sender's clock).
    #[inline]
    pub fn receive(&mut self, arrival: Nanos, sent: Nanos) {
        // Wrapping: the clocks can have any origin, but the change of their difference is small.
        let transit_ns = arrival.0.wrapping_sub(sent.0) as i64;
        if let Some(last_ns) = self.transit_ns {
            let change_ns = transit_ns.wrapping_sub(last_ns).unsigned_abs() as f64;
            self.jitter_ns += (change_ns - self.jitter_ns) / 16.0;
        }
        self.transit_ns = Some(transit_ns);
    }

    /// The estimate now; `None` before the second packet.
    pub fn estimate(&self) -> Option<Nanos> {
        self.transit_ns.map(|_| Nanos(self.jitter_ns.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand after RFC 3550 A.8: transits 100, 116, 100 give |D| = 16, 16, so J = 1, then 1 + 15/16.
    #[test]
    fn two_steps_by_hand() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.estimate(), None);
        for (sent, arrival) in [(0, 100), (1_000, 1_116), (2_000, 2_100)] {
            jitter.receive(Nanos(arrival), Nanos(sent));
        }
        assert!((jitter.jitter_ns - 1.9375).abs() < 1e-12);
        assert_eq!(jitter.estimate(), Some(Nanos(2)));
    }

    /// A sender whose clock is ahead gives negative transit times, and J converges to a steady |D|.
    #[test]
    fn clocks_may_differ() {
        let mut jitter = Jitter::default();
        for packet in 0..1000u64 {
            let delay = if packet % 2 == 0 { 5_000 } else { 6_000 };
            jitter.receive(Nanos(packet * 100_000 + delay), Nanos(packet * 100_000 + u64::MAX / 2));
        }
        assert_eq!(jitter.estimate(), Some(Nanos(1000)));
    }
}
