//! What is measured. The targets are those that the project set itself (README, `make bench`).

mod iperf;
mod model;
mod ping;
mod tcp;
mod udp;

use crate::run::Case;

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Case] = &[
    Case {
        name: "model",
        about: "the path model alone, in virtual time, beside copying the payload",
        run: model::model,
    },
    Case { name: "tcp-offload", about: "one TCP flow, offloads on, 10 ms RTT, beside a bridge", run: tcp::offload },
    Case { name: "tcp-single", about: "one TCP flow in single 1500-byte packets, beside a bridge", run: tcp::single },
    Case { name: "udp-gso", about: "small UDP in GSO batches, beside a bridge", run: udp::gso },
    Case { name: "ping-idle", about: "ICMP echo over an idle path of 10 ms RTT", run: ping::idle },
    Case { name: "lateness", about: "release lateness at 1 Gb/s of UDP and of TCP", run: udp::lateness },
    Case { name: "every", about: "exactly each 30,000th packet is lost, at full speed", run: udp::every },
    Case { name: "rate", about: "a rate limit over each second, at L1 and L2", run: udp::rate },
    Case { name: "capacity", about: "iperf3, one TCP flow, 10 ms RTT, beside a bridge", run: iperf::capacity },
    Case { name: "tcp-500ms", about: "one TCP flow at 500 ms RTT over 12 Gb/s", run: tcp::long },
];
