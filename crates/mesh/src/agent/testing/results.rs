//! What a test found: the part of the JSON of `longhaul` that the mesh keeps.

use std::collections::BTreeMap;
use std::mem;

use longhaul_mesh_model::file::Kind;
use longhaul_mesh_model::result::{
    CAUSES_MOST, Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TEXT_MOST, TcpFlow, TestResult,
};
use longhaul_result::Caveat;
use longhaul_result::caveats::{CUT_SHORT, SENDER_STOPPED};
use longhaul_udp::locate::Loss;
use longhaul_units::is_obeyed;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Job;
use super::samples::Samples;
use crate::error::Failure;
use crate::folder::random;
use crate::store::Kept;

/// Which test it was.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Head {
    pub(in crate::agent) test: String,
    pub(in crate::agent) sender: String,
    pub(in crate::agent) receiver: String,
    pub(in crate::agent) at_ns: i64,
}

/// What a test found.
pub(in crate::agent) enum Found {
    Udp(Losses),
    /// TCP, with samples where they are kept.
    Tcp(TcpFlow, Option<Samples>),
    Other(Measured),
}

/// What is kept beside a result, if anything.
pub(in crate::agent) enum Beside {
    Nothing,
    /// Each run of lost packets, if the result lists them.
    Losses(Vec<Loss>),
    Samples(Samples),
}

/// What UDP probes found.
pub(in crate::agent) struct Losses {
    sent: i64,
    lost: i64,
    placed: Option<(i64, i64)>,
    received_rate_bps: i64,
    /// Each run of lost packets, if the result lists them.
    runs: Vec<Loss>,
}

impl Found {
    /// Takes out of it what has no place in a result.
    pub(in crate::agent) fn take_beside(&mut self) -> Beside {
        match self {
            Self::Udp(losses) => Beside::Losses(mem::take(&mut losses.runs)),
            Self::Tcp(_, samples) => samples.take().map_or(Beside::Nothing, Beside::Samples),
            Self::Other(_) => Beside::Nothing,
        }
    }

    pub(in crate::agent) fn into_result(self, head: Head) -> Result<Kept, Failure> {
        let id: [u8; 16] = random()?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let Head { test, sender, receiver, at_ns } = head;
        let measured = match self {
            Self::Tcp(flow, _) => Measured::Tcp(flow),
            Self::Other(measured) => measured,
            Self::Udp(losses) => {
                return Ok(Kept::Udp(TestResult {
                    id,
                    test,
                    sender,
                    receiver,
                    at_ns,
                    sent: losses.sent,
                    lost: losses.lost,
                    at_sender: losses.placed.map(|(at_sender, _)| at_sender),
                    at_receiver: losses.placed.map(|(_, at_receiver)| at_receiver),
                    received_rate_bps: losses.received_rate_bps,
                }));
            }
        };
        Ok(Kept::Measurement(Measurement { id, test, sender, receiver, at_ns, measured }))
    }
}

/// A diagnosis that came to nothing.
pub(in crate::agent) fn failed(alarm: &str, why: &str) -> Found {
    let failed = Some(clean(why));
    Found::Other(Measured::Diagnose(Diagnosis {
        alarm: alarm.into(),
        target_bps: None,
        goodput_bps: None,
        causes: Vec::new(),
        failed,
    }))
}

/// A text of another program as it is kept.
fn clean(text: &str) -> String {
    text.chars().filter(|letter| !is_obeyed(*letter)).take(TEXT_MOST).collect()
}

/// Reads what the command of a test printed.
pub(super) fn read(job: &Job, text: &[u8], samples: Option<Samples>) -> Result<Found, Failure> {
    let name = job.test.kind.name();
    Ok(match job.test.kind {
        Kind::Udp { .. } => Found::Udp(whole::<UdpResult>(name, text)?.into_losses()),
        Kind::Rtt => Found::Other(Measured::Rtt(result::<RttResult>(name, text)?.round_trips())),
        Kind::Tcp => {
            let paced_bps = number(job.rate.0);
            Found::Tcp(TcpFlow { paced_bps, ..whole::<TcpResult>(name, text)?.flow() }, samples)
        }
        Kind::Diagnose => Found::Other(Measured::Diagnose(result::<DiagnoseResult>(name, text)?.diagnosis(job.alarm))),
    })
}

#[derive(Deserialize)]
struct Envelope<R> {
    result: R,
    #[serde(default)]
    caveats: Vec<Caveat>,
}

#[derive(Deserialize)]
struct Failed {
    error: FailedWhy,
}

#[derive(Deserialize)]
struct FailedWhy {
    message: String,
}

fn failure(command: &str, said: &str) -> Failure {
    Failure::new(format_args!("longhaul {command} failed: {}", clean(said)))
}

fn envelope<R: DeserializeOwned>(command: &str, text: &[u8]) -> Result<Envelope<R>, Failure> {
    serde_json::from_slice(text).map_err(|error| {
        let said = serde_json::from_slice::<Failed>(text).map_or_else(|_| error.to_string(), |said| said.error.message);
        failure(command, &said)
    })
}

fn result<R: DeserializeOwned>(command: &str, text: &[u8]) -> Result<R, Failure> {
    Ok(envelope(command, text)?.result)
}

/// The result of a test that came to its end. One whose partner was killed has a part of it, and nobody knows which packets were lost. One that its
/// partner ended early has what the partner chose.
fn whole<R: DeserializeOwned>(command: &str, text: &[u8]) -> Result<R, Failure> {
    let Envelope { result, caveats } = envelope(command, text)?;
    match caveats.iter().find(|caveat| caveat.is(CUT_SHORT) || caveat.is(SENDER_STOPPED)) {
        Some(cut) => Err(failure(command, &cut.message)),
        None => Ok(result),
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[derive(Deserialize)]
struct UdpResult {
    sent_packets: u64,
    lost_packets: u64,
    received_rate_bps: f64,
    location_method: String,
    loss_by_location: BTreeMap<String, u64>,
    /// Of this longhaul's form, or they are not kept.
    #[serde(default)]
    losses: Value,
}

impl UdpResult {
    fn into_losses(self) -> Losses {
        let at = |end: &str| -> u64 {
            let locations = self.loss_by_location.iter().filter(|(location, _)| location.starts_with(end));
            locations.map(|(_, packets)| *packets).fold(0, u64::saturating_add)
        };
        let unexplained = self.loss_by_location.get("unexplained").copied().unwrap_or(0);
        // Only drop events of both hosts say where each packet was lost.
        let seen = self.location_method == "bpf" && unexplained == 0;
        Losses {
            sent: number(self.sent_packets),
            lost: number(self.lost_packets),
            placed: seen.then(|| (number(at("sender_")), number(at("receiver_")))),
            received_rate_bps: self.received_rate_bps as i64,
            runs: serde_json::from_value(self.losses).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct RttResult {
    duration_ns: u64,
    sent: u64,
    lost: u64,
    rtt: Option<RttQuantiles>,
    outages: u64,
    longest_outage_ns: u64,
    gaps_ns: u64,
}

#[derive(Deserialize)]
struct RttQuantiles {
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl RttResult {
    fn round_trips(&self) -> RoundTrips {
        RoundTrips {
            duration_ns: number(self.duration_ns),
            sent: number(self.sent),
            lost: number(self.lost),
            quantiles: self.rtt.as_ref().map(RttQuantiles::kept),
            outages: number(self.outages),
            longest_outage_ns: number(self.longest_outage_ns),
            gaps_ns: number(self.gaps_ns),
        }
    }
}

impl RttQuantiles {
    /// They are exact to 0.01 %: in order nevertheless.
    fn kept(&self) -> Quantiles {
        let mut last = self.min_ns;
        let mut rising = |ns: u64| {
            last = last.max(ns);
            number(last)
        };
        Quantiles {
            min_ns: number(self.min_ns),
            p50_ns: rising(self.p50_ns),
            p90_ns: rising(self.p90_ns),
            p99_ns: rising(self.p99_ns),
            max_ns: rising(self.max_ns),
        }
    }
}

#[derive(Deserialize)]
struct TcpResult {
    duration_ns: u64,
    bytes: u64,
    goodput_bps: u64,
    retransmits: u64,
    retransmitted_bytes: Option<u64>,
    streams: Vec<TcpStream>,
    limited_by: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct TcpStream {
    min_rtt_ns: Option<u64>,
    congestion_control: String,
}

impl TcpResult {
    fn flow(&self) -> TcpFlow {
        let most = self.limited_by.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let stream = self.streams.first();
        TcpFlow {
            duration_ns: number(self.duration_ns),
            bytes: number(self.bytes),
            goodput_bps: number(self.goodput_bps),
            paced_bps: 0,
            retransmits: number(self.retransmits),
            retransmitted_bytes: self.retransmitted_bytes.map(number),
            min_rtt_ns: stream.and_then(|stream| stream.min_rtt_ns).map(number),
            congestion_control: stream.map_or_else(String::new, |stream| clean(&stream.congestion_control)),
            limited_by: most.map_or_else(String::new, |(name, _)| clean(name)),
            limited_share: most.map_or(0.0, |(_, share)| share.clamp(0.0, 1.0)),
        }
    }
}

#[derive(Deserialize)]
struct DiagnoseResult {
    target_bps: Option<u64>,
    goodput_bps: Option<u64>,
    causes: Vec<Limit>,
}

#[derive(Deserialize)]
struct Limit {
    code: String,
    place: Option<String>,
    host: Option<String>,
    bound_bps: Bound,
    remedies: Vec<Remedy>,
}

#[derive(Deserialize)]
struct Bound {
    most: Option<u64>,
}

#[derive(Deserialize)]
struct Remedy {
    text: String,
}

impl DiagnoseResult {
    fn diagnosis(&self, alarm: &str) -> Diagnosis {
        let cause = |limit: &Limit| Cause {
            code: clean(&limit.code),
            place: limit.place.as_ref().or(limit.host.as_ref()).map_or_else(String::new, |place| clean(place)),
            bound_bps: limit.bound_bps.most.map(number),
            remedy: limit.remedies.first().map_or_else(String::new, |remedy| clean(&remedy.text)),
        };
        let mut diagnosis = Diagnosis {
            alarm: alarm.into(),
            target_bps: self.target_bps.map(number),
            goodput_bps: self.goodput_bps.map(number),
            causes: self.causes.iter().take(CAUSES_MOST).map(cause).collect(),
            failed: None,
        };
        diagnosis.fit();
        diagnosis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `longhaul udp` prints them, in part: the receiver was lost after it had said that 3 of 100 packets were missing, but not which.
    #[test]
    fn a_test_that_was_cut_short_is_no_result() {
        let printed = |caveats: &str| {
            format!(
                r#"{{"result":{{"sent_packets":100,"lost_packets":3,"received_rate_bps":1000,"location_method":"counters",
                "loss_by_location":{{"unexplained":3}},"losses":[]}},"caveats":[{caveats}]}}"#
            )
        };
        let caveat = |code: &str, message: &str| format!(r#"{{"code":"{code}","message":"{message}","remedy":""}}"#);
        for (code, why) in [
            (CUT_SHORT, "the test was cut short: the server is gone"),
            (SENDER_STOPPED, "the sender stopped early: the server ended the test before its time"),
        ] {
            let cut = printed(&caveat(code.as_str(), why));
            let refused = whole::<UdpResult>("udp", cut.as_bytes()).map(drop).unwrap_err().to_string();
            assert_eq!(refused, format!("longhaul udp failed: {why}"));
        }
        // Another doubt leaves a result as it is.
        for caveats in [String::new(), caveat("jitter_unknown", "packets shared time stamps")] {
            assert_eq!(whole::<UdpResult>("udp", printed(&caveats).as_bytes()).unwrap().lost_packets, 3);
        }
    }
}
