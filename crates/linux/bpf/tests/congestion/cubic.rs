//! CUBIC against RFC 9438, in floating point and written from its formulas.

use longhaul_congestion::Algorithm;

use crate::flow::{MS, paper, round_trip, set_window};
use crate::native::{Event, Native};

const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// The RFC's variables for a flow that has lost a packet at `prior` packets, without limits of ours.
struct Model {
    w: f64,
    w_est: f64,
    w_max: f64,
    prior: f64,
    t: f64,
}

impl Model {
    fn after_loss(prior: f64) -> Self {
        Self { w: (prior * BETA).floor(), w_est: prior * BETA, w_max: prior, prior, t: 0.0 }
    }

    fn cubic(&self, t: f64) -> f64 {
        let k = ((self.w_max - (self.prior * BETA).floor()) / C).cbrt();
        C * (t - k).powi(3) + self.w_max
    }

    /// §4.2 to §4.5, an ACK for one packet.
    fn ack(&mut self, rtt_s: f64) {
        let alpha = if self.w_est < self.prior { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_est += alpha / self.w;
        if self.cubic(self.t) < self.w_est {
            self.w = self.w.max(self.w_est);
        } else {
            let target = self.cubic(self.t + rtt_s).clamp(self.w, 1.5 * self.w);
            self.w += (target - self.w) / self.w;
        }
    }
}

/// From a loss until half as long again as the plateau takes, or two hundred round trips: Reno's region at 5 ms, the concave and the convex one.
#[test]
fn the_window_is_that_of_the_rfc() {
    for (rtt_ms, prior, packets) in [
        (5, 100, 1),
        (5, 1000, 2),
        (5, 10_000, 99),
        (120, 100, 1),
        (120, 1000, 45),
        (120, 10_000, 2),
        (120, 100_000, 99),
        (600, 100, 2),
        (600, 1000, 1),
        (600, 10_000, 45),
        (600, 100_000, 99),
    ] {
        let mut flow = paper(Algorithm::Cubic, prior);
        flow.lose_packet();
        flow.socket.srtt_8us = rtt_ms * MS * 8;
        let mut model = Model::after_loss(f64::from(prior));
        let rtt_s = f64::from(rtt_ms) / 1e3;
        let plateau_s = (f64::from(prior) * (1.0 - BETA) / C).cbrt();
        let round_trips = ((1.5 * plateau_s / rtt_s) as u32).clamp(5, 200);
        for round in 0..round_trips {
            let acked = flow.socket.cwnd;
            let began = model.t;
            for index in 0..acked {
                // The flow's clock is that of its ACKs.
                let acks = f64::from(acked.div_ceil(packets));
                model.t = began + rtt_s * (f64::from(index / packets) + 1.0) / acks;
                model.ack(rtt_s);
            }
            let seen = round_trip(&mut flow, rtt_ms * MS, packets);
            let wanted = model.w;
            assert!(
                (f64::from(seen) - wanted).abs() <= 2.0 + 0.01 * wanted,
                "{rtt_ms} ms, {prior} packets, ACKs of {packets}, round trip {round}: {seen}, by the RFC {wanted:.1}"
            );
        }
    }
}

#[test]
fn a_loss_leaves_seven_tenths_and_less_is_claimed_after_the_next() {
    let mut flow = paper(Algorithm::Cubic, 1000);
    flow.lose_packet();
    assert_eq!(flow.socket.cwnd, 700);
    // Short of its maximum: it aims at 800·1.7/2 = 680 now, and is there, at the plateau, sooner.
    set_window(&mut flow, 800);
    flow.lose_packet();
    assert_eq!(flow.socket.cwnd, 560);
    let at = |flow: &mut Native, seconds: u32| (0..seconds * 10).map(|_| round_trip(flow, 100 * MS, 2)).last().unwrap();
    // K = cbrt(120/0.4) = 6.7 s.
    let plateau = at(&mut flow, 7);
    assert!((678..=683).contains(&plateau), "{plateau}");
}

/// §4.2: t does not count time in which the application limits the flow, or nothing is sent.
#[test]
fn a_pause_is_not_counted() {
    let after = |pause: bool| {
        let mut flow = paper(Algorithm::Cubic, 1000);
        flow.lose_packet();
        for _ in 0..30 {
            round_trip(&mut flow, 100 * MS, 2);
        }
        if pause {
            flow.socket.time_us += 60_000_000;
            flow.event(Event::TxStart);
        }
        (0..10).map(|_| round_trip(&mut flow, 100 * MS, 2)).last().unwrap()
    };
    assert!(after(true).abs_diff(after(false)) <= 1, "{} and {}", after(true), after(false));
}
