//! What a comparison comes to, as it is printed and saved.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::behaviour::Verdict;
use super::clocks::ClockFit;
use super::points::{Between, Compared};
use crate::{Intervals, Protocol};

/// What came out.
#[derive(Debug, Serialize, Deserialize)]
pub struct CompareResult {
    /// Of two points; absent of two runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<Points>,
    /// Of two runs; absent of two points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<Verdict>,
}

/// The same packets at two points.
#[derive(Debug, Serialize, Deserialize)]
pub struct Points {
    /// How the clocks lie.
    pub clock: ClockFit,
    /// Whether IP identifications passed unchanged, and so told packets apart.
    pub by_identification: bool,
    /// How long a packet was waited for at the other point.
    pub window_ns: i64,
    /// Packets that were given up before they were due there, as too many passed; not observable.
    pub given_up_packets: u64,
    /// When A and B lost packets by their own accounts.
    pub gaps: [GapsOf; 2],
    /// Directions of flows.
    pub paths: Vec<PathEnds>,
    /// From A to B, and back.
    pub directions: Vec<Shown>,
}

/// When a capture lost packets by its own account.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GapsOf {
    /// How often.
    pub count: u64,
    /// For how long together.
    pub duration_ns: i64,
}

/// A direction of a flow.
#[derive(Debug, Serialize, Deserialize)]
pub struct PathEnds {
    /// What it speaks.
    pub protocol: Protocol,
    /// From.
    pub src: SocketAddr,
    /// To.
    pub dst: SocketAddr,
}

/// A direction between the points, with its intervals side by side.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shown {
    /// What happened.
    #[serde(flatten)]
    pub between: Between,
    /// Between data packets at both points, where either has any.
    pub intervals: Vec<IntervalBin>,
    /// The same between packets without payload: TCP's acknowledgments.
    pub ack_intervals: Vec<IntervalBin>,
}

/// Intervals from `from_ns` to the next bin's: at the first point and the second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntervalBin {
    /// Where the bin begins.
    pub from_ns: f64,
    /// At the first point.
    pub first: u32,
    /// At the second.
    pub second: u32,
}

impl From<&Compared> for Points {
    fn from(compared: &Compared) -> Self {
        let Compared { paths, clock, by_identification, directions, gaps, window_ns, given_up_packets, samples: _ } =
            compared;
        let paths = paths.iter().map(|path| PathEnds {
            protocol: if path.protocol == 6 { Protocol::Tcp } else { Protocol::Udp },
            src: path.src.into(),
            dst: path.dst.into(),
        });
        let directions = directions.iter().map(|between| Shown {
            intervals: bins(&between.intervals),
            ack_intervals: bins(&between.ack_intervals),
            between: between.clone(),
        });
        let gaps = gaps.map(|(count, duration_ns)| GapsOf { count, duration_ns });
        let (paths, directions) = (paths.collect(), directions.collect());
        Self {
            clock: *clock,
            by_identification: *by_identification,
            window_ns: *window_ns,
            given_up_packets: *given_up_packets,
            gaps,
            paths,
            directions,
        }
    }
}

/// Bins that either point has anything in.
fn bins([first, second]: &[Intervals; 2]) -> Vec<IntervalBin> {
    let both = first.0.iter().zip(second.0.iter()).enumerate().filter(|(_, (first, second))| **first + **second > 0);
    both.map(|(index, (first, second))| IntervalBin {
        from_ns: Intervals::lower_ns(index),
        first: *first,
        second: *second,
    })
    .collect()
}
