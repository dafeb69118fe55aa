//! One TCP flow.

use longhaul_kernel::schedule;
use longhaul_lab::LabSpec;
use longhaul_path::spec::PathSpec;
use longhaul_units::{BitRate, Nanos};
use serde_json::json;

use crate::Result;
use crate::args::Plan;
use crate::measure::{EmulatorFigures, Sample, Variant, in_turns};
use crate::report::{Row, Target};
use crate::rig::{Bridge, Rig, emulated, path};
use crate::traffic;

/// The delay of most cases: 10 ms of round trip.
pub(crate) const TEN_MS: &str = "[[both]]\ndelay = \"5ms\"";
/// Payload of a full TCP segment with timestamps over IPv4 in 1500 bytes.
const SEGMENT_BYTES: f64 = 1448.0;

/// A little less than a hop of 12 Gb/s carries of full TCP segments, so that no burst of the host waits at it: a window of
/// 700 MB that leaves at the speed of memory overflows any queue that there is. What data transfer nodes do (ESnet's
/// advice, fasterdata.es.net, "packet pacing").
const LONG_PACING: BitRate = BitRate(11_200_000_000);

/// The mean rate of one flow between `omit` and `seconds` after its first byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow<'a> {
    pub(crate) congestion_control: &'a str,
    /// What its host sends at most (`iperf3 --fq-rate`), in payload bits a second.
    pub(crate) pacing: Option<BitRate>,
    pub(crate) omit: f64,
    pub(crate) seconds: f64,
}

impl Flow<'_> {
    /// Its goodput in bits a second.
    pub(crate) fn measure(self, rig: &dyn Rig) -> Result<Sample> {
        let (sent, received) = traffic::tcp(rig, self.congestion_control, self.pacing, self.seconds)?;
        let goodput = received.curve.per_second(self.omit, self.seconds).ok_or("the flow stood still")? * 8.0;
        let emulator = rig.status()?.map(|status| EmulatorFigures::of(&status, received.bytes));
        let detail = json!({
            "retransmitted_segments": sent.retransmitted_segments,
            "congestion_window_segments": sent.congestion_window_segments,
            "sender_cpu_s": sent.cpu_ns as f64 / 1e9,
            "receiver_cpu_s": received.cpu_ns as f64 / 1e9,
            "bytes": received.bytes,
        });
        Ok(Sample { emulator, ..Sample::plain(goodput, detail) })
    }

    /// Its goodput in Gb/s over a new bridge with hosts like those of a lab.
    pub(crate) fn over_bridge(self, like: &LabSpec, path: &PathSpec) -> Result<Sample> {
        Ok(scaled(self.measure(&Bridge::like(like, path)?)?, 1e9))
    }

    /// Its goodput in Gb/s over a new lab.
    pub(crate) fn over_lab(self, spec: &LabSpec, path: &PathSpec) -> Result<Sample> {
        let lab = emulated(spec.clone(), path)?;
        Ok(scaled(self.measure(&lab)?, 1e9))
    }
}

fn scaled(sample: Sample, divisor: f64) -> Sample {
    Sample { value: sample.value / divisor, ..sample }
}

/// Offloads on.
pub(crate) fn offload(plan: &Plan) -> Result<Vec<Row>> {
    let path = path(TEN_MS)?;
    let spec = LabSpec::default();
    let mut rows = Vec::new();
    for congestion_control in ["cubic", "bbr"] {
        let flow =
            Flow { congestion_control, pacing: None, omit: plan.seconds(2.0, 1.5), seconds: plan.seconds(8.0, 4.0) };
        let samples = in_turns(
            plan,
            plan.rounds,
            &[
                Variant::new(format!("bridge {congestion_control}"), || flow.over_bridge(&spec, &path)),
                Variant::new(congestion_control, || flow.over_lab(&spec, &path)),
            ],
        )?;
        let row =
            |what: &str| Row::new(format!("{congestion_control} {what}"), "Gb/s", &samples[1]).beside(&samples[0]);
        rows.push(row("of bridge").against(Target::RatioAtLeast(0.4)));
        rows.push(row("goodput").against(Target::ValueAtLeast(10.0)));
    }
    Ok(rows)
}

/// A CPU for the emulator alone: what it sends then goes up the hosts' stacks on the others.
pub(crate) fn own_cpu() -> Result<Vec<usize>> {
    Ok(schedule::allowed_cpus()?.last().copied().into_iter().collect())
}

/// Offloads off: each frame is a wire packet.
pub(crate) fn single(plan: &Plan) -> Result<Vec<Row>> {
    let path = path(TEN_MS)?;
    let auto = LabSpec { offload: false, ..LabSpec::default() };
    let wire = LabSpec { wire: true, ..auto.clone() };
    let pinned = LabSpec { cpus: own_cpu()?, ..wire.clone() };
    let flow = Flow {
        congestion_control: "cubic",
        pacing: None,
        omit: plan.seconds(2.0, 1.5),
        seconds: plan.seconds(8.0, 4.0),
    };
    // Packets of data a second, in thousands.
    let packets = |sample: Sample| scaled(sample, SEGMENT_BYTES * 8.0 * 1e3 / 1e9);
    let samples = in_turns(
        plan,
        plan.rounds,
        &[
            Variant::new("bridge", || flow.over_bridge(&auto, &path).map(packets)),
            Variant::new("wire", || flow.over_lab(&wire, &path).map(packets)),
            Variant::new("wire --cpu", || flow.over_lab(&pinned, &path).map(packets)),
            Variant::new("auto", || flow.over_lab(&auto, &path).map(packets)),
        ],
    )?;
    let row = |name: &str, at: usize| Row::new(name, "k/s", &samples[at]).beside(&samples[0]);
    Ok(vec![
        row("wire", 1),
        row("wire --cpu", 2).against(Target::RatioAtLeast(0.4)),
        row("auto", 3).against(Target::RatioAtLeast(0.5)),
    ])
}

/// A long fat network.
pub(crate) fn long(plan: &Plan) -> Result<Vec<Row>> {
    let path = path("[[both]]\nrate = \"12Gbit\"\nqueue = \"64MiB\"\ndelay = \"250ms\"")?;
    let product = BitRate::from_gbit(12).bytes_in(Nanos::from_millis(250)) as f64;
    let seconds = plan.seconds(60.0, 25.0);
    let flows = ["bbr", "cubic"].map(|congestion_control| Flow {
        congestion_control,
        pacing: Some(LONG_PACING),
        omit: seconds - plan.seconds(30.0, 10.0),
        seconds,
    });
    let spec = LabSpec { realtime: Some(50), ..LabSpec::default() };
    let variants = flows.map(|flow| {
        let (path, spec) = (&path, &spec);
        Variant::new(flow.congestion_control, move || flow.over_lab(spec, path))
    });
    let samples = in_turns(plan, plan.long_rounds, &variants)?;
    let mut rows = Vec::new();
    for (flow, samples) in flows.iter().zip(&samples) {
        let name = flow.congestion_control;
        let figure = |of: &dyn Fn(&EmulatorFigures) -> f64| -> Vec<Sample> {
            let value = |sample: &Sample| sample.emulator.as_ref().map_or(0.0, of);
            samples.iter().map(|sample| Sample { value: value(sample), ..sample.clone() }).collect()
        };
        rows.push(Row::new(format!("{name} at the end"), "Gb/s", samples).against(Target::ValueAtLeast(10.0)));
        rows.push(
            Row::new(format!("{name} own faults"), "", &figure(&|f| f.own_fault as f64))
                .against(Target::ValueAtMost(0.0)),
        );
        // Where the machine cannot send what 12 Gb/s of TCP take, the path gets slower by this: a figure of the machine, so not judged.
        rows.push(Row::new(format!("{name} clock stood"), "s", &figure(&|f| f.clock_stood_ns as f64 / 1e9)));
        rows.push(
            Row::new(format!("{name} late at most"), "s", &figure(&|f| f.lateness_max_ns as f64 / 1e9))
                .against(Target::ValueAtMost(0.5)),
        );
        rows.push(
            Row::new(format!("{name} memory peak"), "× BDP", &figure(&|f| f.memory_peak_bytes as f64 / product))
                .against(Target::ValueAtMost(1.3)),
        );
        rows.push(
            Row::new(
                format!("{name} memory reserved"),
                "× BDP",
                &figure(&|f| f.memory_capacity_bytes as f64 / product),
            )
            .against(Target::ValueAtMost(1.3)),
        );
    }
    Ok(rows)
}
