//! TCP tests between two hosts of a lab, compared with what the kernel itself reports.

#[path = "../udp/hosts.rs"]
#[allow(dead_code, reason = "tests of UDP use the rest")]
mod hosts;

mod agreement;
mod demands;
mod disturbances;
mod handshake;
mod limits;
mod loss;
mod options;
mod support;
