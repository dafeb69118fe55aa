//! The command that makes a test of an experiment by hand.

use longhaul_session::TestParameters;
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::{Amount, SoftirqPlacement};
use longhaul_udp::UdpParameters;
use longhaul_units::{BitRate, Bytes, Nanos};

pub(crate) fn command(parameters: &TestParameters, ipv6: bool) -> String {
    let family = if ipv6 { "-6" } else { "-4" };
    match parameters {
        TestParameters::Udp(parameters) => udp(parameters, family),
        TestParameters::Tcp(parameters) => tcp(parameters, family),
        TestParameters::Rtt(parameters) => format!("longhaul rtt server {family} -i {}", Nanos(parameters.interval_ns)),
    }
}

fn amount(amount: Amount) -> String {
    match amount {
        Amount::DurationNs(ns) => format!("-t {}", Nanos(ns)),
        Amount::Bytes(bytes) => format!("-n {}", Bytes(bytes)),
        Amount::Packets(packets) => format!("-k {packets}"),
    }
}

fn udp(parameters: &UdpParameters, family: &str) -> String {
    let mut words = vec![format!("longhaul udp server {family}")];
    words.extend(parameters.rate().map(|rate| format!("-b {rate}")));
    words.push(amount(parameters.amount));
    words.push(format!("-l {}", parameters.payload_bytes));
    words.extend(parameters.sockbuf_bytes.map(|bytes| format!("-w {}", Bytes(bytes))));
    words.extend(parameters.wire.then(|| "--wire".to_owned()));
    words.extend(parameters.no_spin.then(|| "--no-spin".to_owned()));
    words.extend(parameters.affinity.softirq.map(|placement| match placement {
        SoftirqPlacement::Same => "--softirq same".to_owned(),
        SoftirqPlacement::Split => "--softirq split".to_owned(),
    }));
    words.join(" ")
}

fn tcp(parameters: &TcpParameters, family: &str) -> String {
    let mut words = vec![format!("longhaul tcp server {family}")];
    let step = |step: &CongestionStep| {
        step.duration_ns.map_or_else(|| step.name.clone(), |ns| format!("{}:{}", step.name, Nanos(ns)))
    };
    let steps: Vec<String> = parameters.congestion.iter().map(step).collect();
    words.extend((!steps.is_empty()).then(|| format!("-C {}", steps.join(","))));
    words.push(amount(parameters.amount));
    words.extend((parameters.omit_ns > 0).then(|| format!("--omit {}", Nanos(parameters.omit_ns))));
    words.extend((parameters.streams > 1).then(|| format!("-P {}", parameters.streams)));
    words.extend(parameters.window_bytes.map(|bytes| format!("-w {}", Bytes(bytes))));
    words.extend(parameters.pace_bps.map(|bps| format!("--pace {}", BitRate(bps))));
    words.extend(parameters.mss_bytes.map(|bytes| format!("-M {bytes}")));
    words.join(" ")
}
