//! This program as client or server of a test, or as an account alone. It says that it is ready, then one line of JSON.

use std::net::SocketAddr;

use longhaul_kernel::clock::process_cpu_time;
use longhaul_kernel::signals::Stop;
use longhaul_peer::client::{self, Target};
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_tcp::{LimitedBy, SamplingCost, TcpParameters, TcpResult};
use longhaul_udp::account::SequenceTracker;
use longhaul_udp::{UdpParameters, UdpResult};
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::child::{answer, end_with_parent, ready};
use crate::{Error, Result};

/// What an endpoint is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Serves one test.
    Serve { at: SocketAddr },
    /// Makes one.
    Test { server: SocketAddr, parameters: UdpParameters },
    /// Makes one of TCP.
    Tcp { server: SocketAddr, parameters: TcpParameters },
    /// Accounts for packets of which one in ten is lost.
    Account { packets: u64 },
}

/// What the client knows in the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tested {
    /// Without the list of losses.
    pub(crate) result: UdpResult,
    /// What the sender counted, less what the receiver did and what was lost at each place: three counts that each stand for
    /// themselves. 0 where every packet is accounted for.
    pub(crate) unaccounted_packets: i64,
    /// Codes of caveats.
    pub(crate) caveats: Vec<String>,
    pub(crate) cpu_s: f64,
}

/// What a client of TCP knows in the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TestedTcp {
    pub(crate) goodput_bps: u64,
    pub(crate) retransmits: u64,
    pub(crate) limited_by: Option<LimitedBy>,
    pub(crate) sampling: SamplingCost,
    pub(crate) cpu_s: f64,
}

/// What an account took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Accounted {
    /// By how much the process grew at most until the loss map was made (proc(5), `VmHWM`).
    pub(crate) peak_bytes: u64,
    /// What the account says of itself, before that.
    pub(crate) heap_bytes: usize,
    /// The report that goes to the other end.
    pub(crate) text_bytes: usize,
    pub(crate) lost_packets: u64,
    /// CPU time, that of the random numbers included.
    pub(crate) ns_each: f64,
}

/// Does what `role` says and prints the result.
pub(crate) fn run(role: &Role) -> Result<()> {
    end_with_parent();
    match role {
        Role::Serve { at } => answer(&serve(*at)?),
        Role::Test { server, parameters } => answer(&test(*server, parameters)?),
        Role::Tcp { server, parameters } => answer(&tcp(*server, parameters)?),
        Role::Account { packets } => answer(&account(*packets)?),
    }
}

/// The CPU time that it took, seconds.
fn serve(at: SocketAddr) -> Result<f64> {
    let options = ServeOptions::default();
    let server = Server::bind(at, options)?;
    ready()?;
    server.run(Some(Stop::install()?), true, |ended| {
        if let Err(error) = &ended.result {
            eprintln!("  server: {}", error.message);
        }
    })?;
    Ok(process_cpu_time().as_secs_f64())
}

fn test(address: SocketAddr, parameters: &UdpParameters) -> Result<Tested> {
    ready()?;
    let end = client::run(&Target::at(address, None), parameters.clone(), None, |_| {})
        .map_err(|error| Error::from(error.message))?;
    let (sender, receiver) = end.udp_reports(false).ok_or("no report of the other end")?;
    let assembled = UdpResult::assemble(parameters, sender, receiver);
    let sent: u64 = sender.streams.iter().map(|stream| stream.sent_packets).sum();
    let received: u64 = receiver.streams.iter().map(|stream| stream.counts.received_packets).sum();
    let placed: u64 = assembled.result.loss_by_location.values().sum();
    let remote = end.remote.iter().flat_map(|remote| &remote.caveats);
    let caveats = end.caveats.iter().chain(&end.local.caveats).chain(remote).chain(&assembled.caveats);
    Ok(Tested {
        unaccounted_packets: sent as i64 - received as i64 - placed as i64,
        caveats: caveats.map(|caveat| caveat.code.clone()).collect(),
        result: UdpResult { losses: Vec::new(), ..assembled.result },
        cpu_s: process_cpu_time().as_secs_f64(),
    })
}

/// Goodput of all directions, and what sampling took at this end.
fn tcp(address: SocketAddr, parameters: &TcpParameters) -> Result<TestedTcp> {
    ready()?;
    let end = client::run(&Target::at(address, None), parameters.clone(), None, |_| {})
        .map_err(|error| Error::from(error.message))?;
    let local = end.local.tcp.as_ref().ok_or("no report of this end")?;
    let remote = end.remote.as_ref().and_then(|remote| remote.tcp.as_ref()).ok_or("no report of the other end")?;
    let directions = [(false, local, remote), (true, remote, local)];
    let results = directions.into_iter().filter_map(|(backward, from, to)| {
        TcpResult::assemble(parameters, false, backward, from, to).map(|assembled| assembled.result)
    });
    let results: Vec<TcpResult> = results.collect();
    Ok(TestedTcp {
        goodput_bps: results.iter().map(|result| result.goodput_bps).sum(),
        retransmits: results.iter().map(|result| result.retransmits).sum(),
        limited_by: results.first().map(|result| result.limited_by),
        sampling: local.sampling,
        cpu_s: process_cpu_time().as_secs_f64(),
    })
}

fn account(packets: u64) -> Result<Accounted> {
    let (before, began) = (memory_bytes("VmRSS")?, process_cpu_time());
    let mut tracker = SequenceTracker::new(1 << 32, true);
    let mut state = 1_u64;
    for sequence in 0..packets {
        // xorshift64*: cheap, as it is not what is measured.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        if state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32 >= (1 << 32) / 10 {
            tracker.receive(sequence, Nanos(sequence * 100 + 7), Nanos(sequence * 100));
        }
    }
    let cpu = process_cpu_time().saturating_sub(began);
    let heap_bytes = tracker.heap_bytes();
    let received = tracker.finish(packets);
    let peak_bytes = memory_bytes("VmHWM")?.saturating_sub(before);
    let text_bytes = serde_json::to_string(&received)?.len();
    ready()?;
    Ok(Accounted {
        peak_bytes,
        heap_bytes,
        text_bytes,
        lost_packets: received.losses.lost_packets(),
        ns_each: cpu.0 as f64 / packets as f64,
    })
}

/// `field` of this process's `/proc/self/status`.
fn memory_bytes(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| format!("/proc/self/status has no {field}"))? * 1024)
}
