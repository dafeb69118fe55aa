//! One test by longhaul, or by iperf3.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_terms::Amount;
use longhaul_testing::program::Program;
use longhaul_udp::UdpParameters;
use serde_json::{Value, json};

use crate::child::Endpoint;
use crate::endpoint::{Role, Tested};
use crate::measure::Sample;
use crate::rig::{Cable, SERVER};
use crate::{Error, Result};

const PORT: u16 = 5210;

/// What is kept of a test.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) tested: Tested,
    /// CPU time of both processes, with what the kernel did on their behalf.
    pub(crate) cpu_s: f64,
}

/// One test from client to server.
pub(crate) fn longhaul(cable: &Cable, parameters: &UdpParameters) -> Result<Outcome> {
    let at = SocketAddr::from((SERVER, PORT));
    let server = Endpoint::start(&[], &cable.server, &Role::Serve { at })?;
    let client = Endpoint::start(&[], &cable.client, &Role::Test { server: at, parameters: parameters.clone() })?;
    let within = match parameters.amount {
        Amount::DurationNs(ns) => Duration::from_nanos(ns),
        Amount::Bytes(_) | Amount::Packets(_) => Duration::ZERO,
    };
    let tested: Tested = client.result(within)?;
    let server_cpu_s: f64 = server.result(Duration::ZERO)?;
    Ok(Outcome { cpu_s: tested.cpu_s + server_cpu_s, tested })
}

impl Outcome {
    /// A sample of `value`, with what explains it.
    pub(crate) fn sample(&self, value: f64) -> Sample {
        let result = &self.tested.result;
        let places: serde_json::Map<_, _> = result
            .loss_by_location
            .iter()
            .filter(|(_, packets)| **packets > 0)
            .map(|(place, packets)| (format!("{place:?}"), json!(packets)))
            .collect();
        let gbit = result.payload_bytes as f64 * 8.0 / 1e9;
        let detail = json!({
            "sent_packets": result.sent_packets,
            "received_packets": result.received_packets,
            "lost_percent": 100.0 * result.lost_packets as f64 / result.sent_packets.max(1) as f64,
            "places": places,
            "unaccounted_packets": self.tested.unaccounted_packets,
            "sent_gbit_per_second": result.sent_rate_bps as f64 / 1e9,
            "received_gbit_per_second": result.received_rate_bps as f64 / 1e9,
            "cpu_s": self.cpu_s,
            "cpu_s_per_gbit": self.cpu_s / gbit.max(f64::MIN_POSITIVE),
            "caveats": self.tested.caveats,
        });
        Sample::plain(value, detail)
    }

    /// Packets a second that the receiver had.
    pub(crate) fn packets_per_second(&self) -> f64 {
        let result = &self.tested.result;
        result.received_rate_bps as f64 * result.received_packets as f64 / (result.payload_bytes as f64 * 8.0)
    }
}

/// What iperf3 here can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Iperf {
    /// `UDP_SEGMENT` and `UDP_GRO`: iperf 3.20 and later.
    pub(crate) has_gsro: bool,
}

impl Iperf {
    /// `None` where it is not installed, which is said.
    pub(crate) fn find() -> Option<Self> {
        match Command::new("iperf3").arg("--help").output() {
            Ok(help) => Some(Self { has_gsro: [help.stdout, help.stderr].concat().windows(6).any(|w| w == b"--gsro") }),
            Err(_) => {
                eprintln!("  no reference: iperf3 is not installed");
                None
            }
        }
    }
}

/// `iperf3` with `flows` of TCP from client to server. The value is the goodput at the receiver in Gb/s.
pub(crate) fn iperf3_tcp(cable: &Cable, flows: u8, seconds: f64) -> Result<Sample> {
    let result = iperf3_json(cable, &["-P", &flows.to_string()], seconds)?;
    let received = result["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = received.ok_or_else(|| Error::from(format!("iperf3: {}", result["error"])))?;
    Ok(Sample::plain(rate / 1e9, json!({ "retransmits": result["end"]["sum_sent"]["retransmits"] })))
}

/// `iperf3 -u` with `options` from client to server. The value is the payload received in Gb/s.
pub(crate) fn iperf3(cable: &Cable, options: &[&str], seconds: f64) -> Result<Sample> {
    let result = iperf3_json(cable, &[&["-u"], options].concat(), seconds)?;
    let received = &result["end"]["sum_received"];
    let number = |key: &str| received[key].as_f64().ok_or_else(|| Error::from(format!("iperf3: {}", result["error"])));
    let (packets, lost) = (number("packets")?, number("lost_packets")?);
    let arrived = (packets - lost).max(0.0);
    // What it calls bytes received are those that the sender sent, in some versions: the packets are counted in all.
    let payload = result["start"]["test_start"]["blksize"].as_f64().ok_or("iperf3 does not say its payload")?;
    let rate = arrived * payload * 8.0 / number("seconds")?;
    let detail = json!({
        "packets": packets,
        "received_packets": arrived,
        "lost_percent": 100.0 * lost / packets.max(1.0),
        "packets_per_second": arrived / number("seconds")?,
    });
    Ok(Sample::plain(rate / 1e9, detail))
}

/// What `iperf3` says of a test from client to server.
fn iperf3_json(cable: &Cable, options: &[&str], seconds: f64) -> Result<Value> {
    let mut server = cable.server.enter(|| {
        Command::new("iperf3").args(["--server", "--one-off", "--forceflush"]).stdout(Stdio::piped()).spawn()
    })??;
    let output = server.stdout.take().expect("piped");
    let _server = Program(server);
    let mut lines = BufReader::new(output).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening"))).ok_or("iperf3 does not listen")??;
    let (to, time) = (SERVER.to_string(), seconds.to_string());
    let output = cable
        .client
        .enter(|| Command::new("iperf3").args(["-c", &to, "-t", &time, "--json"]).args(options).output())??;
    Ok(serde_json::from_slice(&output.stdout)?)
}
