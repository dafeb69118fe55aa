//! Starting endpoints on hosts and taking their results.

use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule;
use longhaul_units::BitRate;
use serde::de::DeserializeOwned;

use crate::args::ENDPOINT;
use crate::endpoint::tcp::{TcpReceived, TcpSent};
use crate::endpoint::udp::{Pace, UdpReceived, UdpSent};
use crate::endpoint::{READY, Role};
use crate::rig::Rig;
use crate::{Error, Result};

/// A process that is not ready after so long, or not done so long after its time, is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 5210;

/// A process on a host. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    child: Child,
    lines: Receiver<String>,
    role: String,
}

impl Endpoint {
    /// Starts one on the host of `namespace` and waits until it is ready.
    pub(crate) fn start(rig: &dyn Rig, namespace: &NetNamespace, role: &Role) -> Result<Self> {
        let role = serde_json::to_string(role)?;
        let program = std::env::current_exe()?;
        let cpus = rig.host_cpus();
        let mut child = namespace.enter(|| {
            if !cpus.is_empty() {
                schedule::pin_to(&cpus).map_err(std::io::Error::other)?;
            }
            // Its standard input ends when this process does, and so does it.
            Command::new(program).args([ENDPOINT, &role]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        })??;
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut endpoint = Self { child, lines, role };
        match endpoint.line(PATIENCE)? {
            line if line == READY => Ok(endpoint),
            line => Err(Error::from(format!("endpoint {} says `{line}` and not `{READY}`", endpoint.role))),
        }
    }

    /// What it found out, which takes it `within` at most.
    pub(crate) fn result<T: DeserializeOwned>(mut self, within: Duration) -> Result<T> {
        let line = self.line(within + PATIENCE)?;
        Ok(serde_json::from_str(&line).map_err(|error| format!("endpoint {}: {error} in `{line}`", self.role))?)
    }

    fn line(&mut self, within: Duration) -> Result<String> {
        self.lines.recv_timeout(within).map_err(|error| {
            let problem = match error {
                RecvTimeoutError::Timeout => format!("says nothing for {within:?}"),
                RecvTimeoutError::Disconnected => match self.child.wait() {
                    Ok(status) => format!("ended early, {status}"),
                    Err(error) => format!("ended early: {error}"),
                },
            };
            Error::from(format!("endpoint {} {problem}", self.role))
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One TCP flow from client to server for `seconds` from the first byte on, its bursts at `pacing` at most.
pub(crate) fn tcp(
    rig: &dyn Rig,
    congestion_control: &str,
    pacing: Option<BitRate>,
    seconds: f64,
) -> Result<(TcpSent, TcpReceived)> {
    let receiver = Endpoint::start(rig, rig.server()?, &Role::TcpReceive { port: PORT, seconds })?;
    let to = SocketAddrV4::new(rig.server_address(), PORT);
    let sender = Endpoint::start(
        rig,
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
    /// The sender's only CPU. A sender that moves to another CPU may overtake itself in the kernel, before the path.
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
    let receiver = Endpoint::start(rig, rig.server()?, &Role::UdpReceive { port: PORT, window, track: flow.track })?;
    let to = SocketAddrV4::new(rig.server_address(), PORT);
    let sender = Endpoint::start(
        rig,
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
