//! One UDP flow.

use longhaul_lab::LabSpec;
use longhaul_path::spec::PathSpec;
use serde_json::json;

use super::tcp::{Flow, TEN_MS, own_cpu};
use crate::Result;
use crate::args::Plan;
use crate::endpoint::udp::{Pace, UdpReceived, UdpSent};
use crate::measure::{EmulatorFigures, Sample, Variant, in_turns};
use crate::report::{Row, Target};
use crate::rig::{Bridge, Rig, emulated, path};
use crate::traffic::{self, UdpFlow};

/// `UDP_MAX_SEGMENTS` since Linux 6.10; 64 before.
const BATCH: usize = 64;
/// Payload of a UDP datagram that makes a frame as long as a full TCP segment's.
const FULL_BYTES: usize = 1448;

fn sample(rig: &dyn Rig, value: f64, sent: &UdpSent, received: &UdpReceived) -> Result<Sample> {
    let status = rig.status()?;
    let emulator = status.as_ref().map(|status| EmulatorFigures::of(status, received.payload_bytes));
    // What the client sent that this program did not: it would count as the 30,000th packet too.
    let entered = status.and_then(|status| Some(status.ports.first()?.received.packets));
    let detail = json!({
        "sent_packets": sent.packets,
        "received_packets": received.packets,
        "stray_packets": entered.map(|packets| packets as i64 - sent.packets as i64),
        "reordered_packets": received.reordered,
        "sender_refused": sent.refused,
        "sender_stalls": sent.stalls,
        "sender_cpu_s": sent.cpu_ns as f64 / 1e9,
        "receiver_cpu_s": received.cpu_ns as f64 / 1e9,
    });
    Ok(Sample { emulator, ..Sample::plain(value, detail) })
}

/// Millions of packets a second that the receiver had, after a start.
fn throughput(rig: &dyn Rig, flow: UdpFlow) -> Result<Sample> {
    let (sent, received) = traffic::udp(rig, flow)?;
    let rate = received.by_program.per_second(flow.seconds / 4.0, flow.seconds * 0.95);
    sample(rig, rate.ok_or("too few datagrams came")? / 1e6, &sent, &received)
}

/// Small datagrams in batches.
///
/// The sender keeps a window on the way, as TCP would: one that sends without end measures mostly how a CPU is divided
/// between making packets and dropping them. That is stated too.
pub(crate) fn gso(plan: &Plan) -> Result<Vec<Row>> {
    let delay_only = path(TEN_MS)?;
    let fates = path("[[both]]\nrate = \"100Gbit\"\nloss = { random = \"0.0001%\" }\ndelay = \"5ms\"")?;
    let spec = LabSpec::default();
    let mut rows = Vec::new();
    // Twice what 10 ms hold at 10 M packets/s.
    let window = Pace::Window { packets: 200_000 };
    for (payload_bytes, pace, name) in [(64, window, "64 B"), (18, window, "18 B"), (64, Pace::Blast, "64 B unpaced")] {
        let seconds = plan.seconds(4.0, 2.0);
        let flow = UdpFlow { payload_bytes, batch: BATCH, pace, seconds, packets: None, cpu: None, track: false };
        let over = |path: &PathSpec| throughput(&emulated(spec.clone(), path)?, flow);
        let samples = in_turns(
            plan,
            plan.rounds,
            &[
                Variant::new(format!("bridge, {name}"), || throughput(&Bridge::like(&spec, &delay_only)?, flow)),
                Variant::new(format!("delay only, {name}"), || over(&delay_only)),
                Variant::new(format!("a fate each, {name}"), || over(&fates)),
            ],
        )?;
        for (what, at, limit) in [("delay only", 1, 0.8), ("a fate each", 2, 0.6)] {
            let row = Row::new(format!("{name} {what}"), "M/s", &samples[at]).beside(&samples[0]);
            let is_judged = pace != Pace::Blast;
            rows.push(if is_judged { row.against(Target::RatioAtLeast(limit)) } else { row });
        }
    }
    Ok(rows)
}

/// How late packets leave at 1 Gb/s.
pub(crate) fn lateness(plan: &Plan) -> Result<Vec<Row>> {
    /// Of payload: as much as passes a hop of 1 Gb/s.
    const RATE: u64 = 940_000_000;
    /// Payload in Gb/s below which a sender was kept from its 1 Gb/s, headers being 6 %.
    const LEAST: f64 = 0.9;
    let delay_only = path(TEN_MS)?;
    let rated = path("[[both]]\nrate = \"1Gbit\"\nqueue = \"2MiB\"\ndelay = \"5ms\"")?;
    let seconds = plan.seconds(6.0, 3.0);
    // Single datagrams, in bursts of about eight: what a sleeping sender can do.
    let flow = UdpFlow {
        payload_bytes: FULL_BYTES,
        batch: 1,
        pace: Pace::Rate { bits_per_second: RATE, burst_us: 100 },
        seconds,
        packets: None,
        cpu: None,
        track: false,
    };
    let tcp = Flow { congestion_control: "cubic", pacing: None, omit: 1.0, seconds };
    // The figure is worth something only at the rate that it is for, so that is shown and judged too.
    let late = |sample: Sample, gbit_per_second: f64| {
        let late_ns = sample.emulator.as_ref().map_or(0, |figures| figures.lateness_p99_ns);
        let mut detail = sample.detail;
        detail["payload_gbit_per_second"] = gbit_per_second.into();
        Sample { emulator: sample.emulator, ..Sample::plain(late_ns as f64 / 1e3, detail) }
    };
    let udp_over = |path: &PathSpec, spec: &LabSpec| {
        let sample = throughput(&emulated(spec.clone(), path)?, flow)?;
        let gbit_per_second = sample.value * 1e6 * FULL_BYTES as f64 * 8.0 / 1e9;
        Ok(late(sample, gbit_per_second))
    };
    let tcp_over = |spec: &LabSpec| {
        let sample = tcp.over_lab(spec, &rated)?;
        let gbit_per_second = sample.value;
        Ok(late(sample, gbit_per_second))
    };
    let sleeping = LabSpec::default();
    let spinning = LabSpec { spin: true, cpus: own_cpu()?, ..LabSpec::default() };
    let realtime = LabSpec { realtime: Some(50), cpus: own_cpu()?, ..LabSpec::default() };
    let alone = LabSpec { cpus: own_cpu()?, ..LabSpec::default() };
    let samples = in_turns(
        plan,
        plan.rounds,
        &[
            Variant::new("UDP", || udp_over(&rated, &sleeping)),
            Variant::new("UDP --spin --cpu", || udp_over(&rated, &spinning)),
            Variant::new("TCP", || tcp_over(&sleeping)),
            Variant::new("TCP --spin --cpu", || tcp_over(&spinning)),
            Variant::new("UDP --realtime --cpu", || udp_over(&rated, &realtime)),
            Variant::new("TCP --realtime --cpu", || tcp_over(&realtime)),
            Variant::new("UDP bursts --cpu", || udp_over(&delay_only, &alone)),
        ],
    )?;
    let mut rows = Vec::new();
    let names = [
        "UDP",
        "UDP --spin --cpu",
        "TCP",
        "TCP --spin --cpu",
        "UDP --realtime --cpu",
        "TCP --realtime --cpu",
        "UDP bursts --cpu",
    ];
    for (name, samples) in names.into_iter().zip(&samples) {
        let achieved: Vec<_> = samples
            .iter()
            .map(|sample| Sample {
                value: sample.detail["payload_gbit_per_second"].as_f64().unwrap_or(0.0),
                ..sample.clone()
            })
            .collect();
        let late = Row::new(format!("{name} p99"), "µs", samples);
        // Where the path has no rate, a sender's burst is due faster than single packets can be sent on: shown, not judged.
        let is_judged = !name.contains("bursts");
        rows.push(if is_judged { late.against(Target::ValueAtMost(100.0)) } else { late });
        rows.push(Row::new(format!("{name} achieved"), "Gb/s", &achieved).against(Target::ValueAtLeast(LEAST)));
    }
    Ok(rows)
}

/// Which packets `every(30000)` loses while super-packets pass at full speed.
pub(crate) fn every(plan: &Plan) -> Result<Vec<Row>> {
    const EVERY: u64 = 30_000;
    let path =
        path(&format!("[[forward]]\ndelay = \"5ms\"\nloss = {{ every = {EVERY} }}\n[[backward]]\ndelay = \"5ms\""))?;
    let mut rows = Vec::new();
    for (name, payload_bytes, batch, window) in [("1448 B", FULL_BYTES, 44, 20_000), ("64 B", 64, BATCH, 200_000)] {
        // Not a multiple, so that the last lost one is followed by others.
        let packets = EVERY * if plan.quick { 40 } else { 200 } + 1_000;
        let flow = UdpFlow {
            payload_bytes,
            batch,
            pace: Pace::Window { packets: window },
            seconds: 60.0,
            packets: Some(packets),
            cpu: Some(0),
            track: true,
        };
        let samples = in_turns(
            plan,
            plan.rounds,
            &[Variant::new(name, || {
                let lab = emulated(LabSpec::default(), &path)?;
                let (sent, received) = traffic::udp(&lab, flow)?;
                let wrong = wrongly_lost(&received, packets, EVERY);
                let mut sample = sample(&lab, wrong as f64, &sent, &received)?;
                sample.detail["first_missing"] = received.missing.iter().take(5).copied().collect();
                sample.detail["missing_packets"] = received.missing.len().into();
                sample.detail["packets_per_second"] = (sent.packets as f64 / sent.seconds).into();
                Ok(sample)
            })],
        )?;
        rows.push(Row::new(format!("{name}: wrong"), "", &samples[0]).against(Target::ValueAtMost(0.0)));
    }
    Ok(rows)
}

/// Packets of 1 to `packets` that are missing and should not be, or the reverse, or that are duplicates.
fn wrongly_lost(received: &UdpReceived, packets: u64, every: u64) -> u64 {
    let expected: Vec<u64> = (1..=packets / every).map(|i| i * every).collect();
    let tail = packets - received.highest;
    let lost = received.missing.iter().filter(|number| expected.binary_search(number).is_err()).count();
    let came = expected.iter().filter(|number| received.missing.binary_search(number).is_err()).count();
    lost as u64 + came as u64 + tail + received.repeated
}

/// Over each second, how far a rate limit is missed.
pub(crate) fn rate(plan: &Plan) -> Result<Vec<Row>> {
    const RATE: f64 = 1e9;
    // Ethernet, IPv4 and UDP headers; L1 adds 24 bytes: preamble and start 8, FCS 4, gap 12 (IEEE 802.3).
    const FRAME_BYTES: usize = FULL_BYTES + 14 + 20 + 8;
    const L1_BYTES: usize = FRAME_BYTES + 24;
    let seconds = plan.seconds(4.0, 2.6);
    let flow = UdpFlow {
        payload_bytes: FULL_BYTES,
        batch: 8,
        // Half as much again as passes into a queue of 134 ms, so that it is never empty: with one of 8 ms a sender that waited
        // 14 ms for a CPU missed half a percent of a second, which was no fault of the limit.
        pace: Pace::Rate { bits_per_second: 1_500_000_000, burst_us: 200 },
        seconds,
        packets: None,
        cpu: None,
        track: false,
    };
    let mut rows = Vec::new();
    for (layer, bytes) in [("L1", L1_BYTES), ("L2", FRAME_BYTES)] {
        let path = path(&format!(
            "[[forward]]\nrate = \"1Gbit\"\nlayer = \"{layer}\"\nqueue = \"16MiB\"\ndelay = \"5ms\"\n\
             [[backward]]\ndelay = \"5ms\""
        ))?;
        let samples = in_turns(
            plan,
            plan.rounds,
            &[Variant::new(layer, || {
                let lab = emulated(LabSpec::default(), &path)?;
                let (sent, received) = traffic::udp(&lab, flow)?;
                // 0.3 s after the start the queue is full.
                let starts = (3..).map(|i| f64::from(i) / 10.0).take_while(|start| start + 1.0 < seconds - 0.1);
                let deviations = starts.filter_map(|start| {
                    let packets = received.by_stamp.per_second(start, start + 1.0)?;
                    Some((packets * bytes as f64 * 8.0 / RATE - 1.0) * 100.0)
                });
                let worst = deviations.max_by(|a, b| a.abs().total_cmp(&b.abs())).ok_or("too few datagrams came")?;
                let mut sample = sample(&lab, worst.abs(), &sent, &received)?;
                sample.detail["deviation_percent"] = worst.into();
                Ok(sample)
            })],
        )?;
        rows.push(
            Row::new(format!("{layer}: worst second off by"), "%", &samples[0]).against(Target::ValueAtMost(0.5)),
        );
    }
    Ok(rows)
}
