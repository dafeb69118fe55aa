//! A drop-tail queue in front of a server of constant rate.

use std::collections::VecDeque;

use longhaul_units::{BitRate, Nanos};

use crate::spec::{Layer, QueueLimit};

/// A FIFO queue with a limit and a server that sends one packet at a time.
///
/// A packet that arrives at an idle server is sent at once; it never counts against the limit, so a queue of `n`
/// packets holds `n` beside the one that is being sent. Departure times are kept to the picosecond: no rate drifts.
#[derive(Debug, Clone)]
pub(super) struct Server {
    rate: Option<BitRate>,
    layer: Layer,
    limit: QueueLimit,
    /// When the last accepted packet will have been sent; the fraction of a nanosecond is in `carry_ps`.
    busy_until: Nanos,
    carry_ps: u64,
    /// Accepted packets that wait: when they start to be sent, and their bytes at `layer`. Kept only under a limit.
    waiting: VecDeque<(Nanos, u32)>,
    waiting_bytes: u64,
    /// The last size asked for and its time on the wire.
    last_size: (u32, u64),
}

impl Server {
    pub(super) fn new(rate: Option<BitRate>, layer: Layer, limit: QueueLimit) -> Self {
        Self {
            rate,
            layer,
            limit,
            busy_until: Nanos::ZERO,
            carry_ps: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_size: (0, 0),
        }
    }

    /// Takes other parameters from now on; what was accepted keeps its times.
    pub(super) fn change(&mut self, rate: Option<BitRate>, layer: Layer, limit: QueueLimit) {
        (self.rate, self.layer, self.limit) = (rate, layer, limit);
        self.last_size = (0, 0);
    }

    /// Whether packets pass at once and unchanged.
    pub(super) fn is_transparent(&self) -> bool {
        self.rate.is_none()
    }

    /// When the packet of `frame_bytes` that arrives at `arrival` will have been sent, `None` where it is dropped
    /// because the queue is full. Arrivals do not fall.
    pub(super) fn serve(&mut self, arrival: Nanos, frame_bytes: u32) -> Option<Nanos> {
        let Some(rate) = self.rate else { return Some(arrival) };
        let bytes = self.layer.bytes_of(frame_bytes);
        if arrival >= self.busy_until {
            (self.busy_until, self.carry_ps) = (arrival, 0);
        } else if !self.enqueue(arrival, bytes) {
            return None;
        }
        if self.last_size.0 != bytes {
            // bits × 10¹² / rate; a packet at 1 bit/s takes 10¹⁷ ps, so 64 bits hold it.
            let ps = u128::from(bytes) * 8_000_000_000_000 / u128::from(rate.0.max(1));
            self.last_size = (bytes, u64::try_from(ps).unwrap_or(u64::MAX / 2));
        }
        self.carry_ps += self.last_size.1;
        self.busy_until = self.busy_until.saturating_add(Nanos(self.carry_ps / 1000));
        self.carry_ps %= 1000;
        Some(self.busy_until)
    }

    /// Puts a packet of `bytes` into the queue, if there is room.
    fn enqueue(&mut self, arrival: Nanos, bytes: u32) -> bool {
        if self.limit == QueueLimit::Unlimited {
            return true;
        }
        while let Some(&(start, bytes)) = self.waiting.front()
            && start <= arrival
        {
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
        let room = match self.limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Bytes(most) => self.waiting_bytes + u64::from(bytes) <= most.0,
            QueueLimit::Packets(most) => (self.waiting.len() as u64) < most,
        };
        if room {
            self.waiting.push_back((self.busy_until, bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        room
    }

    /// How long a packet that arrives at `now` would wait.
    pub(super) fn backlog(&self, now: Nanos) -> Nanos {
        self.busy_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Bytes;

    use super::*;

    fn server(rate: u64, layer: Layer, limit: QueueLimit) -> Server {
        Server::new(Some(BitRate(rate)), layer, limit)
    }

    /// A 1514-byte frame takes 1538 bytes of L1: 1230.4 ns at 10 Gb/s, 1325.86 ns at 9.28 Gb/s.
    #[test]
    fn times_on_the_wire() {
        let mut s = server(10_000_000_000, Layer::L1, QueueLimit::Unlimited);
        assert_eq!(s.serve(Nanos(0), 1514), Some(Nanos(1230)));
        assert_eq!(s.serve(Nanos(0), 1514), Some(Nanos(2460)));
        assert_eq!(s.serve(Nanos(0), 1514), Some(Nanos(3691)));
        let mut s = server(9_280_000_000, Layer::L1, QueueLimit::Unlimited);
        let last = (0..1_000_000).map(|_| s.serve(Nanos(0), 1514)).last().unwrap().unwrap();
        assert!(last.0.abs_diff(1_325_862_068) < 2_000, "a million packets drifted to {last:?}");
        // A 42-byte ARP is padded to 60 and takes 84 bytes of L1, 42 of L2.
        assert_eq!(server(8_000_000_000, Layer::L1, QueueLimit::Unlimited).serve(Nanos(5), 42), Some(Nanos(89)));
        assert_eq!(server(8_000_000_000, Layer::L2, QueueLimit::Unlimited).serve(Nanos(5), 42), Some(Nanos(47)));
    }

    /// 1000-byte packets at 8 Gb/s L2 take 1 µs each. Two wait beside the one that is sent; the fourth is dropped.
    #[test]
    fn a_queue_of_two_packets() {
        let mut s = server(8_000_000_000, Layer::L2, QueueLimit::Packets(2));
        assert_eq!(s.serve(Nanos(0), 1000), Some(Nanos(1000)));
        assert_eq!(s.serve(Nanos(0), 1000), Some(Nanos(2000)));
        assert_eq!(s.serve(Nanos(0), 1000), Some(Nanos(3000)));
        assert_eq!(s.serve(Nanos(999), 1000), None);
        // At 1 µs the second packet leaves the queue for the wire: room for one.
        assert_eq!(s.serve(Nanos(1000), 1000), Some(Nanos(4000)));
        assert_eq!(s.serve(Nanos(1000), 1000), None);
        assert_eq!(s.backlog(Nanos(1000)), Nanos(3000));
        // Long idle.
        assert_eq!(s.serve(Nanos(10_000), 1000), Some(Nanos(11_000)));
    }

    /// 2500 bytes hold two packets of 1000 and one of 500, but not a third of 1000: it is drop-tail by bytes.
    #[test]
    fn a_queue_of_2500_bytes() {
        let mut s = server(8_000_000_000, Layer::L2, QueueLimit::Bytes(Bytes(2500)));
        for (size, fits) in [(1000, true), (1000, true), (1000, true), (1000, false), (500, true), (1, false)] {
            assert_eq!(s.serve(Nanos(0), size).is_some(), fits, "{size}");
        }
    }

    #[test]
    fn no_rate_is_no_queue() {
        let mut s = Server::new(None, Layer::L1, QueueLimit::Packets(1));
        assert!((0..10).all(|_| s.serve(Nanos(3), 1500) == Some(Nanos(3))));
    }
}
