//! How fast the TCP test is, and what its samples cost.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_bpf::congestion::Control;
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::{Amount, TestDirection};
use longhaul_units::Nanos;
use serde_json::json;

use super::by;
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, TestedTcp};
use crate::measure::{self, Sample, in_turns};
use crate::report::{Row, Target};
use crate::rig::{Cable, SERVER};
use crate::traffic::{Iperf, iperf3_tcp};

const PORT: u16 = 5210;

fn parameters(seconds: f64, streams: u8) -> TcpParameters {
    TcpParameters {
        amount: Amount::DurationNs(Nanos::from_secs_f64(seconds).0),
        streams,
        interval_ns: None,
        ..TcpParameters::default()
    }
}

/// One test over a cable of its own; the value is its goodput in Gb/s.
fn test(parameters: &TcpParameters) -> Result<Sample> {
    let cable = Cable::new()?;
    let at = SocketAddr::from((SERVER, PORT));
    let server = Endpoint::start(&[], &cable.server, &Role::Serve { at })?;
    let client = Endpoint::start(&[], &cable.client, &Role::Tcp { server: at, parameters: parameters.clone() })?;
    let within = if let Amount::DurationNs(ns) = parameters.amount { Duration::from_nanos(ns) } else { Duration::ZERO };
    let tested: TestedTcp = client.result(within)?;
    let server_cpu_s: f64 = server.result(Duration::ZERO)?;
    let sampling = tested.sampling;
    let detail = json!({
        "retransmits": tested.retransmits,
        "limited_by": tested.limited_by,
        "cpu_s": tested.cpu_s + server_cpu_s,
        "samples": sampling.samples,
        "sampling_percent_of_a_core": 100.0 * sampling.cpu_time_ns as f64 / sampling.elapsed_ns.max(1) as f64,
    });
    Ok(Sample::plain(tested.goodput_bps as f64 / 1e9, detail))
}

/// One flow and four, without a rate limit, with all that a test does besides.
pub(crate) fn goodput(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(3.0, 1.5);
    let mut rows = Vec::new();
    for flows in [1, 4] {
        let parameters = parameters(seconds, flows);
        let mut variants = vec![measure::Variant::new("longhaul", || test(&parameters))];
        if Iperf::find().is_some() {
            variants.push(measure::Variant::new("iperf3", || iperf3_tcp(&Cable::new()?, flows, seconds)));
        }
        let mut samples = in_turns(plan, plan.rounds, &variants)?.into_iter();
        let ours = samples.next().unwrap_or_default();
        let name = format!("{flows} flow{}", if flows == 1 { "" } else { "s" });
        let mut row = Row::new(name, "Gb/s", &ours);
        if let Some(theirs) = samples.next() {
            row = row.beside(&theirs).against(Target::RatioAtLeast(0.95));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Rounds of a comparison that must resolve 5 %.
const ROUNDS: usize = 9;
/// Its name in the kernel.
const OWN_RENO: &str = "lhb_reno";

/// What a congestion control in BPF costs: Scalable TCP is Reno by rule below its `low_window`, and here all windows are.
pub(crate) fn bpf_control(plan: &Plan) -> Result<Vec<Row>> {
    let mut settings = Settings::new(Algorithm::Scalable, Variant::Paper)?;
    settings.set("low_window=16777216")?;
    settings.rename(OWN_RENO)?;
    let _loaded = Control::load(&settings)?;
    let seconds = plan.seconds(3.0, 1.5);
    let variants = [OWN_RENO, "reno"].map(|name| {
        let congestion = vec![CongestionStep { name: name.into(), duration_ns: None }];
        let parameters = TcpParameters { congestion, ..parameters(seconds, 1) };
        measure::Variant::new(name, move || test(&parameters))
    });
    let samples = in_turns(plan, if plan.quick { plan.rounds } else { ROUNDS }, &variants)?;
    let row = Row::new("BPF of Reno", "Gb/s", &samples[0]).beside(&samples[1]);
    Ok(vec![row.against(Target::RatioAtLeast(0.95))])
}

/// A hundred connections at an end: fifty each way, at a rate that leaves the machine idle time.
pub(crate) fn sampling(plan: &Plan) -> Result<Vec<Row>> {
    let parameters = TcpParameters {
        direction: TestDirection::Bidirectional,
        write_rate_bps: Some(2_000_000),
        ..parameters(plan.seconds(3.0, 1.5), 50)
    };
    let samples = in_turns(plan, plan.rounds, &[measure::Variant::new("longhaul", || test(&parameters))])?;
    let samples = samples.into_iter().next().unwrap_or_default();
    let cost = by(&samples, "sampling_percent_of_a_core");
    Ok(vec![Row::new("100 flows each 10 ms", "% of a core", &cost).against(Target::ValueAtMost(2.0))])
}
