//! How much arrives, and what is lost on the way.

use longhaul_kernel::schedule::online_cpus;
use longhaul_result::LocationMethod;
use longhaul_terms::{Affinity, Collect};
use longhaul_udp::{Pace, UdpParameters};

use super::{by, parameters, worst};
use crate::args::Plan;
use crate::measure::{Sample, Variant, in_turns};
use crate::report::{Row, Target};
use crate::rig::Cable;
use crate::traffic::{Iperf, iperf3, longhaul};
use crate::{Error, Result};

/// Gb/s of payload received.
fn goodput(parameters: &UdpParameters) -> Result<Sample> {
    let outcome = longhaul(&Cable::new()?, parameters)?;
    Ok(outcome.sample(outcome.tested.result.received_rate_bps as f64 / 1e9))
}

/// Samples of longhaul, of iperf3 and of iperf3 with `--gsro`; `None` for what is not installed.
type Beside = (Vec<Sample>, Option<Vec<Sample>>, Option<Vec<Sample>>);

/// `ours` in turns with iperf3, as fast as it goes.
fn beside_iperf3(plan: &Plan, seconds: f64, payload_bytes: u32, ours: impl Fn() -> Result<Sample>) -> Result<Beside> {
    let iperf = Iperf::find();
    let length = payload_bytes.to_string();
    let options = ["-b", "0", "-l", &length, "--gsro"];
    let mut variants = vec![Variant::new("longhaul", ours)];
    if iperf.is_some() {
        variants.push(Variant::new("iperf3", || iperf3(&Cable::new()?, &options[..4], seconds)));
    }
    if iperf.is_some_and(|iperf| iperf.has_gsro) {
        variants.push(Variant::new("iperf3 --gsro", || iperf3(&Cable::new()?, &options, seconds)));
    }
    let mut samples = in_turns(plan, plan.rounds, &variants)?.into_iter();
    Ok((samples.next().unwrap_or_default(), samples.next(), samples.next()))
}

/// Full packets.
pub(crate) fn bulk(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(3.0, 1.5);
    let parameters = parameters(seconds, Pace::Unlimited);
    let (ours, plain, gsro) = beside_iperf3(plan, seconds, parameters.payload_bytes, || goodput(&parameters))?;
    let loss = by(&ours, "lost_percent");
    let mut rows = vec![
        Row::new("received", "Gb/s", &ours).against(Target::ValueAtLeast(20.0)),
        Row::new("loss", "%", &loss).against(Target::ValueAtMost(0.0)),
        // A receiver that other programs keep from its CPU loses packets: see the others' use in that round.
        Row::new("loss, worst round", "%", &worst(&loss)),
    ];
    // One packet a system call, and super-packets: to be no slower than what does the same.
    for (name, samples, least) in [("iperf3", plain, 8.0), ("iperf3 --gsro", gsro, 1.0)] {
        let Some(samples) = samples else { continue };
        rows.push(
            Row::new(format!("beside {name}"), "Gb/s", &ours).beside(&samples).against(Target::RatioAtLeast(least)),
        );
        rows.push(Row::new(format!("{name}'s loss"), "%", &by(&samples, "lost_percent")));
    }
    Ok(rows)
}

/// Probe headers alone.
pub(crate) fn small(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(3.0, 1.5);
    let parameters = UdpParameters { payload_bytes: 18, ..parameters(seconds, Pace::Unlimited) };
    let (ours, plain, gsro) = beside_iperf3(plan, seconds, parameters.payload_bytes, || {
        let outcome = longhaul(&Cable::new()?, &parameters)?;
        Ok(outcome.sample(outcome.packets_per_second() / 1e6))
    })?;
    let unaccounted: Vec<_> = by(&ours, "unaccounted_packets")
        .into_iter()
        .map(|sample| Sample { value: sample.value.abs(), ..sample })
        .collect();
    let mut rows = vec![
        Row::new("received", "M/s", &ours).against(Target::ValueAtLeast(4.0)),
        Row::new("unaccounted, worst round", "", &worst(&unaccounted)).against(Target::ValueAtMost(0.0)),
        Row::new("loss", "%", &by(&ours, "lost_percent")),
    ];
    for (name, samples) in [("iperf3", plain), ("iperf3 --gsro", gsro)] {
        let Some(samples) = samples else { continue };
        let rates: Vec<_> = by(&samples, "packets_per_second")
            .into_iter()
            .map(|sample| Sample { value: sample.value / 1e6, ..sample })
            .collect();
        rows.push(Row::new(format!("beside {name}"), "M/s", &ours).beside(&rates));
        rows.push(Row::new(format!("{name}'s loss"), "%", &by(&samples, "lost_percent")));
    }
    Ok(rows)
}

/// What watching for drop events costs.
///
/// Sender and receiver have a CPU each, where there are two: where the kernel places them makes a greater difference than
/// drop events do. For the same reason there are more and shorter rounds than elsewhere.
pub(crate) fn bpf(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(1.0, 0.5);
    let affinity = match online_cpus()?[..] {
        [sender, receiver, ..] => Affinity {
            sender_cpus: vec![u16::try_from(sender)?],
            receiver_cpus: vec![u16::try_from(receiver)?],
            ..Affinity::default()
        },
        _ => Affinity::default(),
    };
    let mut rows = Vec::new();
    for (name, pace, rounds) in [
        ("10 Gb/s", Pace::RateBps(10_000_000_000), plan.rounds),
        ("as fast as it goes", Pace::Unlimited, 3 * plan.rounds),
    ] {
        let with = |collect, method| {
            let parameters = UdpParameters { collect, affinity: affinity.clone(), ..parameters(seconds, pace) };
            let outcome = longhaul(&Cable::new()?, &parameters)?;
            let result = &outcome.tested.result;
            if result.location_method != method {
                return Err(Error::from(format!("losses were placed by {:?}", result.location_method)));
            }
            Ok(outcome.sample(result.received_rate_bps as f64 / 1e9))
        };
        let samples = in_turns(
            plan,
            rounds,
            &[
                Variant::new(format!("counters, {name}"), || with(Collect::Counters, LocationMethod::Counters)),
                Variant::new(format!("drop events, {name}"), || with(Collect::Bpf, LocationMethod::Bpf)),
            ],
        )?;
        let rate = Row::new(format!("{name}, received"), "Gb/s", &samples[1]).beside(&samples[0]);
        rows.push(rate.against(Target::RatioAtLeast(0.97)));
        // Attaching them at both ends is in it, whatever the test's length.
        let cpu = |at: usize| by(&samples[at], "cpu_s");
        rows.push(Row::new(format!("{name}, CPU"), "s", &cpu(1)).beside(&cpu(0)));
        rows.push(Row::new(format!("{name}, loss"), "%", &by(&samples[1], "lost_percent")));
    }
    Ok(rows)
}
