//! This program as a sender or receiver on one of the hosts. It says that it is ready, then one line of JSON.

pub(crate) mod echo;
pub(crate) mod tcp;
pub(crate) mod udp;

use std::net::SocketAddrV4;

use longhaul_units::BitRate;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::child::{answer, end_with_parent};

/// What an endpoint is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Takes one connection and reads for a time from its first byte on.
    TcpReceive { port: u16, seconds: f64 },
    /// Writes into one connection until the receiver has enough.
    TcpSend { to: SocketAddrV4, congestion_control: String, pacing: Option<BitRate>, seconds: f64 },
    /// Takes datagrams until none came for a while. `window`: has the sender know of them that often.
    UdpReceive { port: u16, window: Option<u64>, track: bool },
    /// Sends numbered datagrams, from 1.
    UdpSend {
        to: SocketAddrV4,
        payload_bytes: usize,
        batch: usize,
        pace: udp::Pace,
        seconds: f64,
        packets: Option<u64>,
        cpu: Option<usize>,
    },
    /// Sends ICMP echo requests and measures their round trips.
    Echo { to: SocketAddrV4, count: u16, interval_us: u64 },
}

/// Does what `role` says and prints the result.
pub(crate) fn run(role: &Role) -> Result<()> {
    end_with_parent();
    match role {
        Role::TcpReceive { port, seconds } => answer(&tcp::receive(*port, *seconds)?),
        Role::TcpSend { to, congestion_control, pacing, seconds } => {
            answer(&tcp::send(*to, congestion_control, *pacing, *seconds)?)
        }
        Role::UdpReceive { port, window, track } => answer(&udp::receive(*port, *window, *track)?),
        Role::UdpSend { to, payload_bytes, batch, pace, seconds, packets, cpu } => {
            answer(&udp::send(*to, *payload_bytes, *batch, *pace, *seconds, *packets, *cpu)?)
        }
        Role::Echo { to, count, interval_us } => answer(&echo::measure(*to, *count, *interval_us)?),
    }
}

/// How much had come by when: the sum of something that grows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Curve {
    /// (nanoseconds since the first, amount since the start), ascending in both.
    points: Vec<(u64, u64)>,
}

impl Curve {
    /// Keeps a point unless the last one is nearer than `spacing_ns`.
    fn add(&mut self, at_ns: u64, amount: u64, spacing_ns: u64) {
        if self.points.last().is_none_or(|&(last_ns, _)| at_ns >= last_ns + spacing_ns) {
            self.points.push((at_ns, amount));
        }
    }

    /// What came per second between the first points at or after `from` and `until` seconds; `None` where there are no two.
    pub(crate) fn per_second(&self, from: f64, until: f64) -> Option<f64> {
        let at = |seconds: f64| self.points.iter().find(|(at_ns, _)| *at_ns as f64 >= seconds * 1e9);
        let &(from_ns, before) = at(from)?;
        let &(until_ns, after) = at(until).or(self.points.last())?;
        (until_ns > from_ns).then(|| (after - before) as f64 * 1e9 / (until_ns - from_ns) as f64)
    }
}
