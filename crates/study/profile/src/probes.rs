//! What was measured: a row for each probe.

/// The most probes that are read: two days of 10 ms probes, 1 GB of memory.
pub const PROBES_MAX: usize = 20_000_000;

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
}

/// All probes of a measurement, by the time at which they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probes {
    /// By `sent_ns`, ascending.
    pub rows: Vec<Probe>,
    /// Bytes of a probe's frame at L2, without FCS.
    pub frame_bytes: u32,
    /// What could not be read or had to be assumed, each a sentence.
    pub notes: Vec<String>,
}

impl Probes {
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
