//! What is measured. The targets are those that the project set itself (README, `make bench`).

mod long;
mod loss_map;
mod pacing;
mod tcp;
mod throughput;

use longhaul_terms::Amount;
use longhaul_udp::{Pace, UdpParameters};
use longhaul_units::Nanos;

use crate::measure::Sample;
use crate::run::Case;

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Case] = &[
    Case { name: "bulk", about: "1448 B as fast as it goes, beside iperf3", run: throughput::bulk },
    Case { name: "small", about: "18 B as fast as it goes, beside iperf3", run: throughput::small },
    Case { name: "bpf", about: "with drop events, beside counters", run: throughput::bpf },
    Case { name: "pacing", about: "packets at 1 and at 5 Gb/s, gaps beside iperf3's", run: pacing::pacing },
    Case { name: "tcp", about: "one TCP flow and four, beside iperf3", run: tcp::goodput },
    Case { name: "tcp-samples", about: "TCP_INFO of 100 flows each 10 ms", run: tcp::sampling },
    Case { name: "bpf-control", about: "Reno's rule as BPF, beside the kernel's Reno", run: tcp::bpf_control },
    Case { name: "long-scalable", about: "one flow of Scalable TCP at 500 ms RTT over 12 Gb/s", run: long::scalable },
    Case { name: "long-bbr", about: "one flow of BBR at 500 ms RTT over 12 Gb/s", run: long::bbr },
    Case { name: "loss-map", about: "the account of 100 M packets, one in ten of them lost", run: loss_map::loss_map },
];

/// The default payload.
const FULL_BYTES: u32 = 1448;
/// 256 MiB of socket buffer: what arrives while the receiver has no CPU waits there.
const SOCKBUF_BYTES: u64 = 256 << 20;

fn parameters(seconds: f64, pace: Pace) -> UdpParameters {
    UdpParameters {
        amount: Amount::DurationNs(Nanos::from_secs_f64(seconds).0),
        pace,
        payload_bytes: FULL_BYTES,
        sockbuf_bytes: Some(SOCKBUF_BYTES),
        interval_ns: None,
        ..UdpParameters::default()
    }
}

/// The same samples with the value `of` their detail.
fn by(samples: &[Sample], of: &str) -> Vec<Sample> {
    let value = |sample: &Sample| sample.detail[of].as_f64().unwrap_or(f64::NAN);
    samples.iter().map(|sample| Sample { value: value(sample), ..sample.clone() }).collect()
}

/// The sample with the greatest value, where a median would hide a round.
fn worst(samples: &[Sample]) -> Vec<Sample> {
    samples.iter().max_by(|a, b| a.value.total_cmp(&b.value)).cloned().into_iter().collect()
}
