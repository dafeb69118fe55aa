//! What a test came to, and the mean of several.

use std::collections::BTreeMap;

use longhaul_result::Location;
use longhaul_terms::ThreadCpu;
use longhaul_udp::{ReceiveSettings, UdpResult, UdpStreamResult};
use serde::{Deserialize, Serialize};

/// Prefix and end of the counters by which the receiving end reports each CPU of its machine.
const CPU_COUNTERS: (&str, &str) = ("machine, CPU ", ": busy_ns");
/// The counter that says for how long it looked.
const CPU_WATCHED: &str = "machine: cpu_watched_ns";

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Packets sent.
    pub sent_packets: u64,
    /// Payload bits per second sent.
    pub sent_bps: u64,
    /// Payload bits per second received.
    pub received_bps: u64,
    /// Packets lost, of those sent; 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub lost: f64,
    /// Packets lost at each location with losses.
    pub loss_by_location: BTreeMap<Location, u64>,
    /// Packets reordered, of those received; 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub reordered: f64,
    /// Median time between departures of batches, nanoseconds.
    pub spacing_in_ns: u64,
    /// Packets that departed together, median.
    pub batch_in_packets: u64,
    /// Median time between arrivals of batches, nanoseconds; `null` if nothing arrived.
    pub spacing_out_ns: Option<u64>,
    /// Packets that arrived together, median; `null` if nothing arrived.
    pub batch_out_packets: Option<u64>,
    /// CPU time of the sending threads, of their time; 0 to the number of streams. A sender that keeps a spacing below some 0.1 ms
    /// watches the clock all the time.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub sender_cpu: Option<f64>,
    /// CPU time of the receiving threads, of their time; 0 to the number of streams.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub receiver_cpu: Option<f64>,
    /// The share of time that the receiving machine's busiest CPU was busy, whatever with; 0 to 1. `null` for tests below some 0.7 s.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub busiest_cpu: Option<f64>,
    /// Whether the sender kept its schedule.
    pub kept_pace: bool,
    /// Settings of the receiving interface as they were: a driver may round what it is asked for. `null` if its end did not report them.
    pub receive_settings: Option<ReceiveSettings>,
}

/// A figure that a sweep compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Payload bits per second sent.
    SentBps,
    /// Payload bits per second received.
    ReceivedBps,
    /// Share of packets lost.
    Lost,
    /// Share of packets reordered.
    Reordered,
    /// Median time between departures, nanoseconds.
    SpacingInNs,
    /// Median time between arrivals, nanoseconds.
    SpacingOutNs,
    /// Packets that arrived together.
    BatchOutPackets,
    /// CPU time of the sending threads, of their time.
    SenderCpu,
    /// CPU time of the receiving threads, of their time.
    ReceiverCpu,
    /// Share of time that the receiving machine's busiest CPU was busy.
    BusiestCpu,
}

/// The mean of a figure over tests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error: the standard deviation of the tests, divided by the root of their number; `null` for one test.
    pub standard_error: Option<f64>,
    /// The number of tests.
    pub tests: u64,
}

impl Figures {
    /// The figures of a result.
    pub fn of(result: &UdpResult, kept_pace: bool) -> Self {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let cpu = |of: fn(&UdpStreamResult) -> Option<ThreadCpu>| {
            let streams: Option<Vec<_>> = result.streams.iter().map(of).collect();
            let shares = streams?.into_iter().map(|cpu| share(cpu.cpu_time_ns, cpu.elapsed_ns)).collect::<Vec<_>>();
            (!shares.is_empty()).then(|| shares.iter().sum())
        };
        let counters = &result.counters.receiver;
        let watched = counters.get(CPU_WATCHED).copied().filter(|ns| *ns > 0);
        let busy =
            counters.iter().filter(|(name, _)| name.starts_with(CPU_COUNTERS.0) && name.ends_with(CPU_COUNTERS.1));
        let busiest = busy.map(|(_, ns)| *ns).max();
        Self {
            sent_packets: result.sent_packets,
            sent_bps: result.sent_rate_bps,
            received_bps: result.received_rate_bps,
            lost: share(result.lost_packets, result.sent_packets),
            loss_by_location: (result.loss_by_location.iter())
                .filter(|(_, packets)| **packets > 0)
                .map(|(at, packets)| (*at, *packets))
                .collect(),
            reordered: share(result.reordered_packets, result.received_packets).min(1.0),
            spacing_in_ns: result.spacing.achieved.p50_ns,
            batch_in_packets: result.spacing.batch_packets.p50,
            spacing_out_ns: result.arrivals.map(|arrivals| arrivals.between_batches.p50_ns),
            batch_out_packets: result.arrivals.map(|arrivals| arrivals.batch_packets.p50),
            sender_cpu: cpu(|stream| stream.sender_cpu),
            receiver_cpu: cpu(|stream| stream.receiver_cpu),
            busiest_cpu: watched.zip(busiest).map(|(watched, busy)| (busy as f64 / watched as f64).clamp(0.0, 1.0)),
            kept_pace,
            receive_settings: result.receive_settings.clone(),
        }
    }

    /// A figure as a number; `None` where it is not known.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::SentBps => Some(self.sent_bps as f64),
            Metric::ReceivedBps => Some(self.received_bps as f64),
            Metric::Lost => Some(self.lost),
            Metric::Reordered => Some(self.reordered),
            Metric::SpacingInNs => Some(self.spacing_in_ns as f64),
            Metric::SpacingOutNs => self.spacing_out_ns.map(|ns| ns as f64),
            Metric::BatchOutPackets => self.batch_out_packets.map(|packets| packets as f64),
            Metric::SenderCpu => self.sender_cpu,
            Metric::ReceiverCpu => self.receiver_cpu,
            Metric::BusiestCpu => self.busiest_cpu,
        }
    }
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::SentBps,
        Self::ReceivedBps,
        Self::Lost,
        Self::Reordered,
        Self::SpacingInNs,
        Self::SpacingOutNs,
        Self::BatchOutPackets,
        Self::SenderCpu,
        Self::ReceiverCpu,
        Self::BusiestCpu,
    ];
}

impl Estimate {
    /// The mean of `values`; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (!values.is_empty()).then(|| Self {
            mean,
            standard_error: (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt()),
            tests: values.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 2, 4, 6 have the mean 4 and the deviation 2, so the error is 2 / √3.
    #[test]
    fn means_have_their_standard_error() {
        let found = Estimate::of(&[2.0, 4.0, 6.0]).unwrap();
        assert!((found.mean - 4.0).abs() < 1e-12 && (found.standard_error.unwrap() - 1.154_700_538).abs() < 1e-9);
        assert_eq!(Estimate::of(&[5.0]).unwrap().standard_error, None);
        assert_eq!(Estimate::of(&[]), None);
    }
}
