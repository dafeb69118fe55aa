//! The path model alone, without packets: what it costs to decide.

use std::hint::black_box;
use std::time::{Duration, Instant};

use longhaul_path::network::{Destination, Network, Options, PortId, Segmentation, Shape};
use longhaul_units::Nanos;
use serde_json::json;

use crate::Result;
use crate::args::Plan;
use crate::measure::{Sample, Variant, in_turns};
use crate::report::Row;
use crate::rig::path;

/// Arrivals at a time, as the engine takes them from a busy port.
const ROUND_FRAMES: u64 = 16;

/// What arrives again and again.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    shape: Shape,
    /// From frame to frame.
    spacing: Nanos,
    segmentation: Segmentation,
}

/// 64 KiB of TCP at 20 Gb/s.
const TCP: Traffic = Traffic {
    shape: Shape {
        segments: 45,
        header_bytes: 66,
        segment_payload_bytes: 1448,
        payload_bytes: 45 * 1448,
        total_bytes: 66 + 45 * 1448,
        is_tunnel: false,
        cut_behind_bytes: 0,
    },
    spacing: Nanos::from_micros(26),
    segmentation: Segmentation::Auto,
};

/// 64 datagrams of 64 bytes at 10 M packets/s.
const UDP: Traffic = Traffic {
    shape: Shape {
        segments: 64,
        header_bytes: 42,
        segment_payload_bytes: 64,
        payload_bytes: 64 * 64,
        total_bytes: 42 + 64 * 64,
        is_tunnel: false,
        cut_behind_bytes: 0,
    },
    spacing: Nanos(6_400),
    segmentation: Segmentation::Auto,
};

/// Single full frames at 1 M packets/s.
const SINGLE: Traffic = Traffic {
    shape: Shape {
        segments: 1,
        header_bytes: 1514,
        segment_payload_bytes: 0,
        payload_bytes: 0,
        total_bytes: 1514,
        is_tunnel: false,
        cut_behind_bytes: 0,
    },
    spacing: Nanos(1_000),
    segmentation: Segmentation::Wire,
};

/// The paths, from simple to hard.
const PATHS: [(&str, &str); 5] = [
    ("delay only", "[[both]]\ndelay = \"5ms\""),
    ("long delay only", "[[both]]\ndelay = \"250ms\""),
    ("rate, queue", "[[both]]\nrate = \"30Gbit\"\nqueue = \"64MiB\"\ndelay = \"5ms\""),
    ("random loss", "[[both]]\nloss = { random = \"0.1%\" }\ndelay = \"5ms\""),
    (
        "everything",
        "[[both]]\nloss = { gilbert-elliott = { p = \"0.1%\", r = \"25%\" } }\nduplicate = \"0.01%\"\n\
         corrupt = \"0.01%\"\nrate = \"30Gbit\"\nqueue = \"64MiB\"\ndelay = \"5ms\"\n\
         jitter = { law = \"normal\", stddev = \"20us\", order = \"fifo\" }\ncoalesce = { time = \"50us\" }",
    ),
];

/// Nanoseconds for each frame of `traffic` over the path that `text` describes.
fn measure(text: &str, traffic: Traffic, span: Duration) -> Result<Sample> {
    let mut network = Network::new(&path(text)?, Options { segmentation: traffic.segmentation, ..Options::default() });
    let (mut now, mut frames, mut packets, mut runs) = (Nanos::ZERO, 0_u64, 0_u64, 0_u64);
    let mut round = |network: &mut Network| {
        for _ in 0..ROUND_FRAMES {
            network.arrive(now, PortId(0), Destination::Port(PortId(1)), traffic.shape, frames);
            now += traffic.spacing;
            frames += 1;
        }
        network.advance(now);
        while let Some(release) = network.release() {
            packets += u64::from(release.count);
            runs += 1;
        }
        while network.lost().is_some() {}
        frames
    };
    // Until the path is full: 300 ms of its own time.
    let before = Nanos::from_millis(300).0 / traffic.spacing.0;
    while round(&mut network) < before {}
    let (start, first) = (Instant::now(), before);
    let mut last = first;
    while start.elapsed() < span {
        // The clock is read once in many rounds.
        for _ in 0..64 {
            last = round(&mut network);
        }
    }
    let per_frame = start.elapsed().as_nanos() as f64 / (last - first) as f64;
    let detail = json!({
        "ns_per_packet": per_frame / f64::from(traffic.shape.segments),
        "runs_per_frame": runs as f64 / frames as f64,
        "released_share": packets as f64 / (frames as f64 * f64::from(traffic.shape.segments)),
    });
    Ok(Sample::plain(per_frame, detail))
}

/// Nanoseconds to copy a frame of `traffic` once, to a place that is cold: what no emulator in user space avoids.
fn copy(traffic: Traffic, span: Duration) -> Sample {
    let bytes = traffic.shape.total_bytes as usize;
    let frame = vec![0x6c_u8; bytes];
    let mut ring = vec![0_u8; (64 << 20) / bytes * bytes];
    let (start, mut frames) = (Instant::now(), 0_u64);
    while start.elapsed() < span {
        for room in ring.chunks_exact_mut(bytes) {
            room.copy_from_slice(black_box(&frame));
            frames += 1;
        }
        black_box(&mut ring);
    }
    Sample::plain(start.elapsed().as_nanos() as f64 / frames as f64, json!({}))
}

/// The model beside a copy of the frame.
pub(crate) fn model(plan: &Plan) -> Result<Vec<Row>> {
    let span = Duration::from_secs_f64(plan.seconds(0.4, 0.15));
    let mut rows = Vec::new();
    for (kind, traffic) in [("TCP 45 × 1448", TCP), ("UDP 64 × 64", UDP), ("single", SINGLE)] {
        let mut variants = vec![Variant::new(format!("{kind}: copy"), move || Ok(copy(traffic, span)))];
        for (name, text) in PATHS {
            variants.push(Variant::new(format!("{kind}: {name}"), move || measure(text, traffic, span)));
        }
        let samples = in_turns(plan, plan.rounds, &variants)?;
        for (at, variant) in variants.iter().enumerate().skip(1) {
            rows.push(Row::new(variant.name.clone(), "ns", &samples[at]).beside(&samples[0]));
        }
    }
    Ok(rows)
}
