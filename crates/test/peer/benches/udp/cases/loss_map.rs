//! How much memory the receiver's account takes.

use std::time::Duration;

use longhaul_kernel::namespace::NetNamespace;
use serde_json::json;

use super::by;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Accounted, Role};
use crate::measure::{Sample, Variant, in_turns};
use crate::report::{Row, Target};
use crate::{Error, Result};

const PACKETS: u64 = 100_000_000;

/// MB by which a process grows.
fn measure() -> Result<Sample> {
    let endpoint = Endpoint::start(&[], &NetNamespace::current()?, &Role::Account { packets: PACKETS })?;
    let accounted: Accounted = endpoint.result(Duration::ZERO)?;
    // One in ten, give or take 1 %; four standard deviations are 0.1 %.
    if accounted.lost_packets.abs_diff(PACKETS / 10) > PACKETS / 1000 {
        return Err(Error::from(format!("{} packets lost of {PACKETS}", accounted.lost_packets)));
    }
    let detail = json!({
        "heap_mb": accounted.heap_bytes as f64 / 1e6,
        "text_mb": accounted.text_bytes as f64 / 1e6,
        "ns_each": accounted.ns_each,
        "lost_packets": accounted.lost_packets,
    });
    Ok(Sample::plain(accounted.peak_bytes as f64 / 1e6, detail))
}

/// Memory for missing packets.
pub(crate) fn loss_map(plan: &Plan) -> Result<Vec<Row>> {
    let samples = in_turns(plan, plan.rounds, &[Variant::new("account", measure)])?;
    let samples = &samples[0];
    Ok(vec![
        Row::new("memory, account and map", "MB", samples).against(Target::ValueAtMost(64.0)),
        Row::new("state that it tells of", "MB", &by(samples, "heap_mb")),
        Row::new("report as text", "MB", &by(samples, "text_mb")),
        Row::new("each packet", "ns", &by(samples, "ns_each")),
    ])
}
