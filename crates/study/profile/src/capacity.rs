//! The slowest link of a direction, by packets of others that left back to back: captures at both ends show how far apart they arrive
//! ([`longhaul_udp::account::Trains`] says how that becomes a rate, and where it cannot).

use std::collections::BTreeMap;

use longhaul_path::spec::Layer;
use longhaul_udp::account::{Capacity, Interval, NoCapacity, TrainRecorder};
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::probes::Passage;

/// Packets whose departures differ by no more than this have left together in any case: stamps are no better.
const TOGETHER_LEAST_NS: u64 = 1_000;

/// The slowest queue of a direction, from a test that loaded it or from packet trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowestQueue {
    /// Its rate on the wire (L1), bits per second.
    pub rate_bps: u64,
    /// What it holds, bytes on the wire; `None` if that is not known.
    pub bytes: Option<u64>,
    /// How the rate was found, in a sentence.
    pub rate_evidence: String,
    /// How its size was found.
    pub bytes_evidence: String,
}

impl SlowestQueue {
    /// The time that a frame of `bytes` takes.
    pub(crate) fn serialization_ns(&self, frame_bytes: u32) -> f64 {
        f64::from(Layer::L1.bytes_of(frame_bytes)) * 8e9 / self.rate_bps.max(1) as f64
    }
}

/// The link, and the delays of `way` without what its packets wait for each other there; or why there is no figure.
///
/// # Errors
/// A reason, for people.
pub(crate) fn of_trains(way: &[Passage]) -> Result<(SlowestQueue, Vec<f64>), String> {
    let mut sizes = BTreeMap::new();
    way.iter().for_each(|passage| *sizes.entry(passage.frame_bytes).or_insert(0_u32) += 1);
    // Of several sizes that are as frequent the largest, which shows the rate best.
    let size = sizes.iter().max_by_key(|(size, count)| (**count, **size)).map_or(0, |(size, _)| *size);
    let bytes = Layer::L1.bytes_of(size);
    // Most of the packets of a train follow the one before at once: a quarter of all gaps is no longer than this.
    let mut departures: Vec<u64> = way
        .windows(2)
        .filter(|pair| pair[1].frame_bytes == size)
        .map(|pair| pair[1].sent_ns.abs_diff(pair[0].sent_ns))
        .collect();
    departures.sort_unstable();
    let quarter = departures.get(departures.len() / 4).copied().unwrap_or(u64::MAX / 2);
    let together = quarter.saturating_mul(2).max(TOGETHER_LEAST_NS);
    let within: Vec<u64> = departures.into_iter().take_while(|gap| *gap <= together).collect();
    let origin = way.first().map_or(0, |passage| passage.sent_ns);
    let (mut recorder, mut train, mut before) = (TrainRecorder::default(), Nanos::ZERO, i64::MIN / 2);
    for (sequence, passage) in (0..).zip(way) {
        if passage.sent_ns.abs_diff(std::mem::replace(&mut before, passage.sent_ns)) > together {
            train.0 += 1;
        }
        // A packet without a place leaves a hole in its train.
        let Some(delay) = passage.delay_ns.filter(|_| passage.frame_bytes == size && !passage.reordered) else {
            continue;
        };
        let arrived = passage.sent_ns.abs_diff(origin) as f64 + delay.max(0.0);
        recorder.record(sequence, Nanos(arrived as u64), train);
    }
    let none = |why: &str| Err(format!("packets that were sent together do not show it ({why})"));
    let Some(trains) = recorder.trains() else { return none("there are none") };
    let departure = within.get(within.len() / 2).copied();
    let found = Capacity::of(trains, bytes, departure);
    match (found.payload_bps, found.why_not) {
        (_, Some(NoCapacity::TooFew)) | (None, None) => none("too few"),
        (_, Some(NoCapacity::SharedStamps)) => {
            none("more than a tenth have the arrival stamp of the one before: GRO or the capture joined them")
        }
        (_, Some(NoCapacity::Batches)) => none("they arrive in batches with pauses between them"),
        (Some(_), None) if found.at_least => none("they left no faster than they arrived"),
        (Some(Interval { value, least, most }), None) => {
            let megabits = |bps: u64| format!("{:.1}", bps as f64 / 1e6);
            let rate_evidence = format!(
                "{} trains of packets of {size} bytes that left together: {} to {} Mb/s on the wire (95 %)",
                trains.trains,
                megabits(least),
                megabits(most)
            );
            let queue = SlowestQueue { rate_bps: value, bytes: None, rate_evidence, bytes_evidence: String::new() };
            let delays = without_waits(way, BitRate(value));
            Ok((queue, delays))
        }
    }
}

/// The delays of all packets, `NaN` where one was lost, less what they waited for those before them at a link of `rate` (Lindley, 1952).
fn without_waits(way: &[Passage], rate: BitRate) -> Vec<f64> {
    let takes = |passage: &Passage| f64::from(Layer::L1.bytes_of(passage.frame_bytes)) * 8e9 / rate.0.max(1) as f64;
    let (mut busy_until, mut delays) = (f64::MIN, Vec::with_capacity(way.len()));
    let origin = way.first().map_or(0, |passage| passage.sent_ns);
    for passage in way {
        let Some(delay) = passage.delay_ns else {
            delays.push(f64::NAN);
            continue;
        };
        let at = passage.sent_ns.saturating_sub(origin) as f64;
        let waits = (busy_until - at).max(0.0);
        busy_until = at + waits + takes(passage);
        delays.push(delay - waits);
    }
    delays
}
