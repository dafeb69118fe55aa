//! The flows of a capture: packets in, what each flow was out.
//!
//! [`Flows`] takes packets in the order of their times. Flows that ended, or that were silent for long, are summed up, handed to
//! the [`Sink`] and forgotten, so memory follows the flows that are open and not the capture's length. Series over time go to the
//! sink as they come.
//!
//! Where the capture says that it lost packets ([`Flows::with_gaps`]), nothing is made of what is missing: an interval, a silence, a round
//! trip across such a gap is left out, its time is no part of a rate, and bytes or numbers that are missing behind it were not captured
//! rather than lost.

pub mod compare;
mod fragments;
mod gaps;
mod half;
mod identification;
pub mod limits;
mod loss;
pub mod pace;
mod round_trip;
mod sequence;
pub mod summary;
mod table;
mod tcp;
mod udp;

pub use gaps::Gaps;
pub use loss::Loss;
pub use pace::{Intervals, Millisecond};
pub use summary::{AnalyzeResult, DirectionSummary, End, FlowSummary, Protocol, TcpSummary, Totals};
pub use table::{FlowOptions, Flows};

/// Who takes what becomes known.
pub trait Sink {
    /// A flow ended, or the capture did.
    fn flow(&mut self, summary: FlowSummary);

    /// A millisecond of a flow's direction in which something went by is over. `at_ns` is its beginning.
    fn millisecond(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        let _ = (flow, forward, at_ns, row);
    }

    /// A data packet went by, `interval_ns` after the one before of its direction.
    fn interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let _ = (flow, forward, at_ns, interval_ns);
    }

    /// A pure acknowledgment went by, `interval_ns` after the one before of its direction.
    fn ack_interval(&mut self, flow: u64, forward: bool, at_ns: i64, interval_ns: i64) {
        let _ = (flow, forward, at_ns, interval_ns);
    }

    /// Data of TCP, or numbered probes, were lost somewhere on the path. They come in the order of their numbers, the last of a direction
    /// at its end.
    fn lost(&mut self, flow: u64, forward: bool, loss: Loss) {
        let _ = (flow, forward, loss);
    }
}

/// Summaries in a list.
impl Sink for Vec<FlowSummary> {
    fn flow(&mut self, summary: FlowSummary) {
        self.push(summary);
    }
}

#[cfg(test)]
mod tests;
