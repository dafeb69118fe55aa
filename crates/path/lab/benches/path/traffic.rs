//! Flows between the hosts.

use std::net::SocketAddrV4;
use std::time::Duration;

use longhaul_units::BitRate;

use crate::Result;
use crate::child::{Endpoint, PATIENCE};
use crate::endpoint::Role;
use crate::endpoint::tcp::{TcpReceived, TcpSent};
use crate::endpoint::udp::{Pace, UdpReceived, UdpSent};
use crate::rig::Rig;

const PORT: u16 = 5210;

/// One TCP flow from client to server for `seconds` from the first byte on, its bursts at `pacing` at most.
pub(crate) fn tcp(
    rig: &dyn Rig,
    congestion_control: &str,
    pacing: Option<BitRate>,
    seconds: f64,
) -> Result<(TcpSent, TcpReceived)> {
    let receiver = Endpoint::start(&rig.host_cpus(), rig.server()?, &Role::TcpReceive { port: PORT, seconds })?;
    let to = SocketAddrV4::new(rig.server_address(), PORT);
    let sender = Endpoint::start(
        &rig.host_cpus(),
        rig.client()?,
        &Role::TcpSend { to, congestion_control: congestion_control.into(), pacing, seconds },
    )?;
    let time = Duration::from_secs_f64(seconds);
    let received = receiver.result(time)?;
    Ok((sender.result(time)?, received))
}

/// One UDP flow from client to server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpFlow {
    pub(crate) payload_bytes: usize,
    /// Datagrams of one `UDP_SEGMENT` send.
    pub(crate) batch: usize,
    pub(crate) pace: Pace,
    pub(crate) seconds: f64,
    /// At most so many datagrams; `None`: as many as go in `seconds`.
    pub(crate) packets: Option<u64>,
    /// The sender's only CPU. A sender that moves to another CPU may reorder its packets in the kernel, before the path.
    pub(crate) cpu: Option<usize>,
    /// Find out which datagrams are missing.
    pub(crate) track: bool,
}

/// Sends `flow`.
pub(crate) fn udp(rig: &dyn Rig, flow: UdpFlow) -> Result<(UdpSent, UdpReceived)> {
    let window = match flow.pace {
        Pace::Window { packets } => Some(packets),
        Pace::Rate { .. } | Pace::Blast => None,
    };
    let receiver =
        Endpoint::start(&rig.host_cpus(), rig.server()?, &Role::UdpReceive { port: PORT, window, track: flow.track })?;
    let to = SocketAddrV4::new(rig.server_address(), PORT);
    let sender = Endpoint::start(
        &rig.host_cpus(),
        rig.client()?,
        &Role::UdpSend {
            to,
            payload_bytes: flow.payload_bytes,
            batch: flow.batch,
            pace: flow.pace,
            seconds: flow.seconds,
            packets: flow.packets,
            cpu: flow.cpu,
        },
    )?;
    let time = Duration::from_secs_f64(flow.seconds);
    Ok((sender.result(time)?, receiver.result(PATIENCE)?))
}
