//! What a comparison comes to, as it is printed and saved.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;
use super::clocks::ClockFit;
use super::points::{Between, Compared};
use crate::{Intervals, Protocol};

/// The result.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompareResult {
    /// Of two points; of two runs with two points each those of the first; absent of two runs with one point each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<Points>,
    /// Of the second of two runs with two points each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_points: Option<Points>,
    /// Of two runs; absent of two points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<Behaviour>,
}

/// The same packets at two points.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Points {
    /// How B's clock runs compared with A's.
    pub clock: ClockFit,
    /// Whether IP identifications passed unchanged, and so identified packets.
    pub by_identification: bool,
    /// How long a packet was waited for at the other point: four times the longest delay among the samples, the clocks' error,
    /// and 100 ms.
    pub window_ns: i64,
    /// Packets that were given up before they were due at the other point, as too many passed to hold them all; counted as not
    /// observable.
    pub given_up_packets: u64,
    /// Captured packets of directions beyond the number that is kept: they are left out.
    #[serde(default)]
    pub left_out_packets: u64,
    /// When A and B lost packets by their own accounts: that time is left out.
    pub gaps: [GapsOf; 2],
    /// Directions of flows; a path elsewhere is an index into this list.
    pub paths: Vec<PathEnds>,
    /// From A to B and from B to A; one without packets is left out.
    pub directions: Vec<Shown>,
}

/// When a capture lost packets by its own account.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapsOf {
    /// How often.
    pub count: u64,
    /// For how long together.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub duration_ns: i64,
}

/// A direction of a flow.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shown {
    /// What happened.
    #[serde(flatten)]
    pub between: Between,
    /// Intervals between data packets at the first point and the second; bins without any are left out, and so are intervals
    /// across a gap of either capture.
    pub intervals: Vec<IntervalBin>,
    /// The same between packets without payload: TCP's acknowledgments.
    pub ack_intervals: Vec<IntervalBin>,
}

/// Intervals from `from_ns` to the next bin's: at the first point and the second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalBin {
    /// The shortest in this bin.
    pub from_ns: f64,
    /// How many at the first point.
    pub first: u32,
    /// How many at the second.
    pub second: u32,
}

impl From<&Compared> for Points {
    fn from(compared: &Compared) -> Self {
        let Compared {
            paths,
            clock,
            by_identification,
            directions,
            gaps,
            window_ns,
            given_up_packets,
            left_out_packets,
            samples: _,
        } = compared;
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
            left_out_packets: *left_out_packets,
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
