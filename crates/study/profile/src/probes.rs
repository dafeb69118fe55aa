//! What was measured: a row for each probe.

use longhaul_flows::compare::clocks::ClockFit;
use longhaul_rtt::PathChange;

/// The most probes that are read of a source of `bytes` bytes: four hours of 10 ms probes whatever its length, as many more as such a
/// length has room for, and two days of them in all. Each takes some 200 bytes of memory.
pub fn probes_most(bytes: u64) -> usize {
    const SURE: u64 = 1_500_000;
    const MOST: u64 = 20_000_000;
    const BYTES_OF_A_PROBE: u64 = 4;
    (SURE + bytes / BYTES_OF_A_PROBE).min(MOST) as usize
}

/// One probe and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probe {
    /// When it was sent: nanoseconds since 1970, or since any other origin that all rows share.
    pub sent_ns: i64,
    /// The round trip without the responder's time; `None`: no answer came.
    pub rtt_ns: Option<u64>,
    /// How coarse `rtt_ns` is: the true value lies within half of this around it. 0 or 1 for kernel stamps.
    pub resolution_ns: u32,
    /// The responder's receive stamp less the sent stamp: two clocks, taken as they are.
    pub forward_ns: Option<i64>,
    /// Our receive stamp less the responder's send stamp.
    pub backward_ns: Option<i64>,
    /// Answers beyond the first.
    pub copies: u32,
    /// Whether the answer came behind that of a probe that was sent later (RFC 4737).
    pub reordered: bool,
    /// Between the row before and this one was a time in which probes told nothing of the path.
    pub after_gap: bool,
}

/// A packet of one direction, which captures at both ends show.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Passage {
    /// When it passed the first end: nanoseconds of the client's clock.
    pub sent_ns: i64,
    /// To the other end, the clocks laid over each other; `None`: it was lost.
    pub delay_ns: Option<f64>,
    /// Bytes of its frame at L2, without FCS.
    pub frame_bytes: u32,
    /// Whether it came behind one that was sent later.
    pub reordered: bool,
}

/// Losses of packets that have no row.
#[derive(Debug, Clone, PartialEq)]
pub struct LossesSeen {
    /// Packets that were not lost, and packets lost in a row behind them, in turn; 0 lost where a flow ends.
    pub runs: Vec<(u64, u64)>,
    /// Between packets on average, nanoseconds.
    pub apart_ns: u64,
}

/// All probes of a measurement, by the time at which they were sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Probes {
    /// By `sent_ns`, ascending. Of captures at both ends: a row for each packet to the server, its round trip with the next packet that
    /// leaves the server.
    pub rows: Vec<Probe>,
    /// Packets to the server and back, each by themselves and by `sent_ns`, where captures at both ends show them.
    pub ways: Option<[Vec<Passage>; 2]>,
    /// How the server's clock went beside the client's, where two clocks stamped `ways`.
    pub clocks: Option<ClockFit>,
    /// What was lost, where the rows do not tell it: they are then answered packets alone.
    pub losses: Option<LossesSeen>,
    /// Route changes that the host saw while it probed, by time.
    pub route_changes: Vec<PathChange>,
    /// Bytes of a probe's frame at L2, without FCS.
    pub frame_bytes: u32,
    /// What could not be read or had to be assumed, each a sentence.
    pub notes: Vec<String>,
}

impl Probes {
    /// Of packets that captures at both ends show; `clocks` is how two clocks were laid over each other.
    pub fn of_ways(mut ways: [Vec<Passage>; 2], clocks: Option<ClockFit>) -> Self {
        for way in &mut ways {
            way.sort_by_key(|passage| passage.sent_ns);
            let mut latest = f64::MIN;
            for passage in way {
                let Some(delay) = passage.delay_ns else { continue };
                let arrived = passage.sent_ns as f64 + delay;
                passage.reordered = arrived < latest;
                latest = latest.max(arrived);
            }
        }
        let mut frames: Vec<u32> = ways[0].iter().map(|passage| passage.frame_bytes).collect();
        frames.sort_unstable();
        let frame_bytes = frames.get(frames.len() / 2).copied().unwrap_or_default();
        Self { rows: paired(&ways), ways: Some(ways), clocks, frame_bytes, ..Self::default() }
    }

    /// From the first sent probe to the last, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        match (self.rows.first(), self.rows.last()) {
            (Some(first), Some(last)) => last.sent_ns.abs_diff(first.sent_ns),
            _ => 0,
        }
    }

    /// The median time from one probe to the next, in nanoseconds; 0 with fewer than two.
    pub fn interval_ns(&self) -> u64 {
        let mut gaps: Vec<u64> = self.rows.windows(2).map(|pair| pair[1].sent_ns.abs_diff(pair[0].sent_ns)).collect();
        if gaps.is_empty() {
            return 0;
        }
        let middle = gaps.len() / 2;
        *gaps.select_nth_unstable(middle).1
    }

    /// How many probes were not answered.
    pub fn lost(&self) -> u64 {
        self.rows.iter().filter(|row| row.rtt_ns.is_none()).count() as u64
    }
}

/// A row for each packet to the server, with the next packet that left the server behind it. The time in the server is left out.
fn paired([forward, backward]: &[Vec<Passage>; 2]) -> Vec<Probe> {
    let answers: Vec<(i64, f64)> =
        backward.iter().filter_map(|passage| Some((passage.sent_ns, passage.delay_ns?))).collect();
    let row = |passage: &Passage| {
        let plain = Probe { sent_ns: passage.sent_ns, reordered: passage.reordered, ..Probe::default() };
        let Some(there) = passage.delay_ns else { return Some(plain) };
        let arrived = passage.sent_ns.saturating_add(there as i64);
        // The last packets have no answer behind them: nothing is known of their round trip.
        let (_, back) = answers.get(answers.partition_point(|(sent_ns, _)| *sent_ns < arrived))?;
        let (forward_ns, backward_ns) = (Some(there as i64), Some(*back as i64));
        Some(Probe { rtt_ns: Some((there + back).max(0.0) as u64), forward_ns, backward_ns, ..plain })
    };
    // As many as there can be at once: a vector that grows takes twice as much.
    let mut rows = Vec::with_capacity(forward.len());
    rows.extend(forward.iter().filter_map(row));
    rows
}
