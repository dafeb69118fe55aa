//! UDP tests: a socket and a thread a stream, and evidence of where packets were dropped.

mod data;
mod drops;
mod missing;
mod receiving;
mod report;
mod sending;
mod softirq;
mod stamping;

pub(crate) use data::UdpData;
