//! FAST and Compound, of which Linux has no module, beside models of them in floating point that are written from their papers alone. Both get
//! the same acknowledgements, from a path in virtual time; and both come to the figures that were published.

use longhaul_congestion::Algorithm;

use crate::flow::paper;
use crate::native::Native;

/// A bottleneck with one flow and no other limit.
#[derive(Clone, Copy)]
struct Path {
    /// Without a queue.
    base_s: f64,
    /// Of the bottleneck, packets a second.
    rate: f64,
}

impl Path {
    /// The round trip of a window.
    fn rtt_s(self, window: f64) -> f64 {
        self.base_s.max(window / self.rate)
    }
}

/// What an acknowledgement tells. Sequence numbers count packets.
struct Ack {
    packets: u32,
    rtt_s: f64,
    /// Up to here.
    number: u64,
    /// What was sent until now ends here.
    sent: u64,
}

/// A control on paper.
trait Model {
    fn ack(&mut self, ack: &Ack);
    /// Packets.
    fn window(&self) -> f64;
}

/// The end of the present round trip, and the least of its samples.
#[derive(Default)]
struct Round {
    end: u64,
    samples: u32,
    least_rtt_s: Option<f64>,
}

impl Round {
    /// At the end of a round trip its least RTT.
    fn take(&mut self, ack: &Ack) -> Option<Option<f64>> {
        self.samples += 1;
        self.least_rtt_s = Some(self.least_rtt_s.map_or(ack.rtt_s, |least| least.min(ack.rtt_s)));
        if ack.number <= self.end {
            return None;
        }
        // Three samples: fewer may all be of delayed acknowledgements.
        let least = self.least_rtt_s.filter(|_| self.samples >= 3);
        *self = Self { end: ack.sent, samples: 0, least_rtt_s: None };
        Some(least)
    }
}

/// Wei, Jin, Low, Hegde 2006. §IV-A: the mean RTT takes each packet's with weight min(3/w, 1/4). §IV-B, Eq. 6: every other round trip
/// w ← min(2w, (1 - γ)w + γ(baseRTT/RTT·w + α)), γ = 1/2; α = 200 packets (§V).
struct Fast {
    window: f64,
    base_s: f64,
    mean_s: Option<f64>,
    round: Round,
    rounds: u32,
}

impl Model for Fast {
    fn ack(&mut self, ack: &Ack) {
        self.base_s = self.base_s.min(ack.rtt_s);
        for _ in 0..ack.packets {
            let weight = (3.0 / self.window).min(0.25);
            self.mean_s = Some(self.mean_s.map_or(ack.rtt_s, |mean| mean + weight * (ack.rtt_s - mean)));
        }
        if self.round.take(ack).is_none() {
            return;
        }
        self.rounds += 1;
        if let (true, Some(mean_s)) = (self.rounds.is_multiple_of(2), self.mean_s) {
            let w = self.window;
            self.window = (2.0 * w).min(0.5 * w + 0.5 * (self.base_s / mean_s * w + 200.0));
        }
    }

    fn window(&self) -> f64 {
        self.window
    }
}

/// draft-sridharan-tcpm-ctcp-02 §3: win = cwnd + dwnd; cwnd grows by 1/win an acknowledged packet and halves at a loss. Once a round trip, with
/// diff = win·(1 - baseRTT/RTT): dwnd ← dwnd + (α·win^k - 1)⁺ while diff < γ, else (dwnd - ζ·diff)⁺. A loss: (win·(1 - β) - cwnd/2)⁺.
/// α = 1/8, β = 1/2, k = 3/4, γ = 30, ζ = 1; below 38 packets it is Reno.
struct Compound {
    reno: f64,
    delay: f64,
    base_s: f64,
    round: Round,
}

impl Compound {
    fn lose_packet(&mut self, sent: u64) {
        let window = self.window();
        self.delay = (window * 0.5 - self.reno / 2.0).max(0.0);
        self.reno /= 2.0;
        self.round = Round { end: sent, ..Round::default() };
    }
}

impl Model for Compound {
    fn ack(&mut self, ack: &Ack) {
        self.base_s = self.base_s.min(ack.rtt_s);
        self.reno += f64::from(ack.packets) / self.window();
        let Some(Some(rtt_s)) = self.round.take(ack) else { return };
        let window = self.window();
        let queued = window * (1.0 - self.base_s / rtt_s);
        if queued >= 30.0 {
            self.delay = (self.delay - queued).max(0.0);
        } else if window >= 38.0 {
            self.delay += (window.powf(0.75) / 8.0 - 1.0).max(0.0);
        }
    }

    fn window(&self) -> f64 {
        self.reno + self.delay
    }
}

/// A flow on a path: the C, in virtual time.
struct Flow {
    native: Native,
    acked: u64,
    sent: u64,
}

impl Flow {
    fn new(algorithm: Algorithm, window: u32) -> Self {
        Self { native: paper(algorithm, window), acked: 0, sent: 0 }
    }

    fn window(&self) -> f64 {
        f64::from(self.native.socket.cwnd)
    }

    /// One round trip, `packets` an acknowledgement, each of which `seen` looks at; says how long it was. Windows are looked at when it is over: the
    /// C grows by no more than what an acknowledgement tells, so a step takes several.
    fn round_trip(&mut self, path: Path, packets: u32, mut seen: impl FnMut(&Ack)) -> f64 {
        let window = self.native.socket.cwnd;
        let rtt_s = path.rtt_s(f64::from(window));
        let rtt_us = (rtt_s * 1e6).round() as u32;
        let acks = window.div_ceil(packets);
        let mut left = window;
        for _ in 0..acks {
            let packets = packets.min(left);
            left -= packets;
            self.acked += u64::from(packets);
            self.sent = self.sent.max(self.acked + u64::from(window - packets));
            let socket = &mut self.native.socket;
            socket.time_us += u64::from(rtt_us / acks);
            socket.srtt_8us = 8 * rtt_us;
            socket.max_packets_out = window;
            socket.snd_una = self.acked as u32;
            socket.snd_nxt = self.sent as u32;
            socket.delivered = self.acked as u32;
            self.native.acked(self.acked as u32, packets, Some(rtt_us));
            seen(&Ack { packets, rtt_s, number: self.acked, sent: self.sent });
        }
        rtt_s
    }
}

/// A path that is full, then of half the rate, then as before: queues grow and go.
const SCENES: [(u32, f64); 3] = [(40, 1.0), (30, 0.5), (40, 1.0)];

/// Rates and round trips: 5, 120 and 600 ms, windows of hundreds up to 100,000 packets.
const PATHS: [Path; 3] = [
    Path { base_s: 0.005, rate: 200_000.0 },
    Path { base_s: 0.12, rate: 80_000.0 },
    Path { base_s: 0.6, rate: 100_000.0 },
];

#[test]
fn fast_is_the_paper_s() {
    for path in PATHS {
        for packets in [1, 2, 45] {
            let mut flow = Flow::new(Algorithm::Fast, (path.base_s * path.rate) as u32);
            let mut model =
                Fast { window: flow.window(), base_s: f64::MAX, mean_s: None, round: Round::default(), rounds: 0 };
            let mut last = [model.window(); 2];
            for (round_trips, share) in SCENES {
                for _ in 0..round_trips {
                    flow.round_trip(Path { rate: path.rate * share, ..path }, packets, |ack| model.ack(ack));
                    last = [last[1], model.window()];
                    follows(flow.window(), last, 3.0 + 0.01 * last[1]);
                }
            }
        }
    }
}

/// That a window is what the model's is, or on its way there: of the C a larger one comes with the acknowledgements of a round trip.
fn follows(window: f64, [before, now]: [f64; 2], close: f64) {
    assert!(
        window >= before.min(now) - close && window <= before.max(now) + close,
        "{window}, the paper {before} to {now}"
    );
}

/// Eq. 11 of the paper: at rest α packets are queued, on whatever path.
#[test]
fn fast_keeps_alpha_packets_queued() {
    for path in PATHS {
        // From below: it must have seen the path without a queue.
        let full = (path.base_s * path.rate) as u32;
        let mut flow = Flow::new(Algorithm::Fast, full.saturating_sub(10_000).max(full / 2));
        for _ in 0..400 {
            flow.round_trip(path, 16, |_| ());
        }
        let queued = flow.window() - path.base_s * path.rate;
        // A step is half of the distance in packets, rounded.
        assert!((queued - 200.0).abs() <= 2.0, "{queued} packets queued at {} s", path.base_s);
    }
}

#[test]
fn compound_is_the_draft_s() {
    for path in PATHS {
        for packets in [1, 2, 45] {
            let start = (path.base_s * path.rate / 2.0) as u32;
            let mut flow = Flow::new(Algorithm::Compound, start);
            let mut model = Compound { reno: f64::from(start), delay: 0.0, base_s: f64::MAX, round: Round::default() };
            let mut last = [model.window(); 3];
            // Without a queue: what a queue takes away depends on the very round trip in which it is seen.
            let path = Path { rate: 1e9, ..path };
            for round_trips in [20, 15, 10] {
                for _ in 0..round_trips {
                    flow.round_trip(path, packets, |ack| model.ack(ack));
                    // A step is known with the first acknowledgement of a round trip, and comes with those of the next.
                    last = [last[1], last[2], model.window()];
                    follows(flow.window(), [last[0], last[2]], 3.0 + 0.01 * last[2]);
                }
                // A loss takes the rest of a step with it; each cycle is judged by itself.
                let step = model.window().powf(0.75) / 8.0;
                flow.native.lose_packet();
                model.lose_packet(flow.sent);
                follows(flow.window(), [model.window(); 2], 3.0 + step);
                model.delay += flow.window() - model.window();
                last = [model.window(); 3];
            }
        }
    }
}

/// Tan et al. 2006, §III-C: with a loss in each 1/p packets and no queue, w grows by α·w^k a round trip from (1 - β)·W to W, and the packets of
/// that are 1/p: W = ((2 - k)·α/(p·(1 - (1 - β)^(2 - k))))^(1/(2 - k)), which falls with p to the power of 0.8 as HighSpeed's does with 0.835.
#[test]
fn compound_answers_losses_as_published() {
    const K: f64 = 0.75;
    for packets_a_loss in [1e5, 1e6] {
        // 1/p = ∫ w dw/(α w^k) from W/2 to W.
        let peak = (packets_a_loss / 8.0 * (2.0 - K) / (1.0 - 0.5_f64.powf(2.0 - K))).powf(1.0 / (2.0 - K));
        let mut flow = Flow::new(Algorithm::Compound, peak as u32);
        let (mut until, mut peaks) = (packets_a_loss, Vec::new());
        while peaks.len() < 12 {
            flow.round_trip(Path { base_s: 0.1, rate: 1e9 }, 8, |_| ());
            if flow.acked as f64 >= until {
                peaks.push(flow.window());
                flow.native.lose_packet();
                until = flow.acked as f64 + packets_a_loss;
            }
        }
        let mean = peaks[4..].iter().sum::<f64>() / (peaks.len() - 4) as f64;
        // A loss is told at the end of a round trip, of which there are some twenty in a cycle.
        assert!((mean / peak - 1.0).abs() < 0.05, "a loss in {packets_a_loss}: {mean}, published {peak}");
    }
}
