//! The command that makes a test of an experiment by hand.

use longhaul_session::TestParameters;
use longhaul_tcp::TcpParameters;
use longhaul_terms::{Amount, SoftirqPlacement};
use longhaul_udp::UdpParameters;
use longhaul_units::{BitRate, Bytes, Nanos};

pub(crate) fn command(parameters: &TestParameters) -> String {
    match parameters {
        TestParameters::Udp(parameters) => udp(parameters),
        TestParameters::Tcp(parameters) => tcp(parameters),
        TestParameters::Rtt(parameters) => format!("longhaul rtt server -4 -i {}", Nanos(parameters.interval_ns)),
    }
}

fn udp(parameters: &UdpParameters) -> String {
    let mut words = vec!["longhaul udp server -4".to_owned()];
    words.extend(parameters.rate().map(|rate| format!("-b {rate}")));
    if let Amount::DurationNs(ns) = parameters.amount {
        words.push(format!("-t {}", Nanos(ns)));
    }
    words.push(format!("-l {}", parameters.payload_bytes));
    words.extend(parameters.sockbuf_bytes.map(|bytes| format!("-w {}", Bytes(bytes))));
    words.extend(parameters.wire.then(|| "--wire".to_owned()));
    words.extend(parameters.affinity.softirq.map(|placement| match placement {
        SoftirqPlacement::Same => "--softirq same".to_owned(),
        SoftirqPlacement::Split => "--softirq split".to_owned(),
    }));
    words.join(" ")
}

fn tcp(parameters: &TcpParameters) -> String {
    let mut words = vec!["longhaul tcp server -4".to_owned()];
    words.extend(parameters.congestion.first().map(|step| format!("-C {}", step.name)));
    if let Amount::DurationNs(ns) = parameters.amount {
        words.push(format!("-t {}", Nanos(ns)));
    }
    words.extend((parameters.omit_ns > 0).then(|| format!("--omit {}", Nanos(parameters.omit_ns))));
    words.extend((parameters.streams > 1).then(|| format!("-P {}", parameters.streams)));
    words.extend(parameters.window_bytes.map(|bytes| format!("-w {}", Bytes(bytes))));
    words.extend(parameters.pace_bps.map(|bps| format!("--pace {}", BitRate(bps))));
    words.extend(parameters.mss_bytes.map(|bytes| format!("-M {bytes}")));
    words.join(" ")
}
