//! Round trips over an idle path.

use std::net::SocketAddrV4;
use std::time::Duration;

use longhaul_lab::LabSpec;
use serde_json::json;

use super::tcp::TEN_MS;
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::Role;
use crate::endpoint::echo::Echoes;
use crate::measure::{EmulatorFigures, Sample, Variant, in_turns, quantile};
use crate::report::{Row, Target};
use crate::rig::{Bridge, Rig, emulated, path};

/// The path's round trip; it has no rate, so nothing is added.
const NOMINAL_NS: u64 = 10_000_000;
/// Not the round trip's 10 ms: a request shall not find the CPU awake from the reply before it.
const INTERVAL_US: u64 = 13_000;

/// How far the round trips are from `nominal_ns`. The value is the median's distance in µs.
fn measure(rig: &dyn Rig, count: u16, nominal_ns: u64) -> Result<Sample> {
    let to = SocketAddrV4::new(rig.server_address(), 0);
    let echo = Endpoint::start(&rig.host_cpus(), rig.client()?, &Role::Echo { to, count, interval_us: INTERVAL_US })?;
    let echoes: Echoes = echo.result(Duration::from_micros(u64::from(count) * INTERVAL_US * 2))?;
    let beyond = |values: &[u64], q: f64| (quantile(values, q) as f64 - nominal_ns as f64) / 1e3;
    let kernel = &echoes.to_kernel_ns;
    let emulator = rig.status()?.map(|status| EmulatorFigures::of(&status, 0));
    let detail = json!({
        "p50_us": beyond(kernel, 0.5),
        "p99_us": beyond(kernel, 0.99),
        "max_us": beyond(kernel, 1.0),
        "to_program_p50_us": beyond(&echoes.to_program_ns, 0.5),
        "to_program_p99_us": beyond(&echoes.to_program_ns, 0.99),
        "replies": kernel.len(),
        "lost": echoes.lost,
    });
    Ok(Sample { emulator, ..Sample::plain(beyond(kernel, 0.5), detail) })
}

/// Sleeping and spinning.
pub(crate) fn idle(plan: &Plan) -> Result<Vec<Row>> {
    let path = path(TEN_MS)?;
    let count = if plan.quick { 200 } else { 500 };
    let sleeping = LabSpec::default();
    let spinning = LabSpec { spin: true, ..LabSpec::default() };
    let over = |spec: &LabSpec| measure(&emulated(spec.clone(), &path)?, count, NOMINAL_NS);
    let samples = in_turns(
        plan,
        plan.rounds,
        &[
            Variant::new("bridge", || measure(&Bridge::like(&sleeping, &path)?, count, 0)),
            Variant::new("--spin", || over(&spinning)),
            Variant::new("sleeping", || over(&sleeping)),
        ],
    )?;
    let p99 = |samples: &[Sample]| -> Vec<Sample> {
        let value = |sample: &Sample| sample.detail["p99_us"].as_f64().unwrap_or(f64::NAN);
        samples.iter().map(|sample| Sample { value: value(sample), ..sample.clone() }).collect()
    };
    let mut rows = Vec::new();
    for (name, samples_of) in [("--spin", &samples[1]), ("sleeping", &samples[2])] {
        // The reference is the round trip over a bridge: what the hosts themselves take. It is no part of the path's delay,
        // and is not taken off.
        let median = Row::new(format!("{name} p50 beyond nominal"), "µs", samples_of).beside(&samples[0]);
        let tail = Row::new(format!("{name} p99 beyond nominal"), "µs", &p99(samples_of)).beside(&p99(&samples[0]));
        let is_judged = name == "--spin";
        rows.push(if is_judged { median.against(Target::ValueAtMost(50.0)) } else { median });
        rows.push(if is_judged { tail.against(Target::ValueAtMost(200.0)) } else { tail });
    }
    Ok(rows)
}
