//! `longhaul compare --behaviour`: what is sampled of runs, and the tests that it is put to.

use longhaul_flows::compare::behaviour::{Behaviour, Kind, verdict};
use longhaul_flows::compare::equivalence::Margins;
use longhaul_flows::compare::samples::{Losses, Samples, Thinned};
use longhaul_flows::compare::{Compared, PathDirection};
use longhaul_flows::{FlowSummary, Flows, Sink};
use longhaul_flows::{Loss, Millisecond};

use crate::captures::progress::pass_to;
use crate::captures::source::Trace;
use crate::output::Failure;

/// Samples of a run at one point: of data that goes forward, and backward.
#[derive(Default)]
struct Run {
    intervals: [Thinned; 2],
    ack_intervals: [Thinned; 2],
    rtt: [Thinned; 2],
    rate: [Thinned; 2],
    losses: [Losses; 2],
}

impl Sink for Run {
    fn flow(&mut self, _: FlowSummary) {}

    fn interval(&mut self, _: u64, forward: bool, _: i64, interval_ns: i64) {
        self.intervals[usize::from(!forward)].push(interval_ns as f64);
    }

    fn ack_interval(&mut self, _: u64, forward: bool, _: i64, interval_ns: i64) {
        self.ack_intervals[usize::from(!forward)].push(interval_ns as f64);
    }

    fn millisecond(&mut self, _: u64, forward: bool, _: i64, row: Millisecond) {
        let direction = usize::from(!forward);
        if row.payload_bytes > 0 && !row.in_gap {
            self.rate[direction].push(row.payload_bytes as f64 * 8e3);
        }
        if let Some(rtt_ns) = row.rtt_ns {
            self.rtt[direction].push(rtt_ns as f64);
        }
    }

    fn lost(&mut self, _: u64, forward: bool, loss: Loss) {
        self.losses[usize::from(!forward)].take(loss);
    }
}

/// Whether two runs, each captured at one point, behave alike.
pub(crate) fn of_runs(a: &mut Trace, b: &mut Trace, margins: &Margins) -> Result<Behaviour, Failure> {
    let read = |trace: &mut Trace| -> Result<Run, Failure> {
        let mut flows = Flows::with_gaps(trace.flow_options(), Run::default(), trace.gaps());
        pass_to(trace, &mut flows)?;
        trace.was_readable()?;
        Ok(flows.finish().0)
    };
    let (a, b) = (read(a)?, read(b)?);
    let kinds = [
        Kind::series("interval_forward_ns", &a.intervals[0], &b.intervals[0]),
        Kind::series("interval_backward_ns", &a.intervals[1], &b.intervals[1]),
        Kind::series("ack_interval_forward_ns", &a.ack_intervals[0], &b.ack_intervals[0]),
        Kind::series("ack_interval_backward_ns", &a.ack_intervals[1], &b.ack_intervals[1]),
        Kind::times("rtt_forward_ns", &a.rtt[0], &b.rtt[0]),
        Kind::times("rtt_backward_ns", &a.rtt[1], &b.rtt[1]),
        Kind::series("rate_1ms_forward_bps", &a.rate[0], &b.rate[0]),
        Kind::series("rate_1ms_backward_bps", &a.rate[1], &b.rate[1]),
        Kind::losses("loss_forward", &a.losses[0], &b.losses[0]),
        Kind::losses("loss_backward", &a.losses[1], &b.losses[1]),
    ];
    Ok(verdict(&kinds, margins))
}

/// Whether two runs, each captured at the same two points, behave alike between these.
pub(crate) fn of_points(runs: [&Compared; 2], one_clock: bool, margins: &Margins) -> Behaviour {
    let none = Samples::default();
    let of = |run: &Compared, direction| {
        run.samples.iter().find(|(known, _)| *known == direction).map(|(_, samples)| samples.clone())
    };
    let [a, b] = [PathDirection::AToB, PathDirection::BToA]
        .map(|direction| runs.map(|run| of(run, direction).unwrap_or(none.clone())));
    let [[forward, forward_2], [backward, backward_2]] = [&a, &b];
    let kinds = [
        Kind::delays(["delay_a_to_b_ns", "delay_variation_a_to_b_ns"], forward, forward_2, one_clock),
        Kind::delays(["delay_b_to_a_ns", "delay_variation_b_to_a_ns"], backward, backward_2, one_clock),
        Kind::series("interval_a_to_b_ns", &forward.intervals_ns, &forward_2.intervals_ns),
        Kind::series("interval_b_to_a_ns", &backward.intervals_ns, &backward_2.intervals_ns),
        Kind::series("ack_interval_a_to_b_ns", &forward.ack_intervals_ns, &forward_2.ack_intervals_ns),
        Kind::series("ack_interval_b_to_a_ns", &backward.ack_intervals_ns, &backward_2.ack_intervals_ns),
        Kind::losses("loss_a_to_b", &forward.losses, &forward_2.losses),
        Kind::losses("loss_b_to_a", &backward.losses, &backward_2.losses),
    ];
    verdict(&kinds, margins)
}
