//! The TCP tests of `longhaul lab run`.

use std::fmt::Write;

use longhaul_congestion::aimd::Model;
use longhaul_emulator::Status;
use longhaul_kernel::signals::Stop;
use longhaul_lab::experiment::{TcpFlows, TcpSeries, TcpTest};
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{LossSpec, PathSpec};
use longhaul_report::html::tcp_goodput::{Flows, Run, Series};
use longhaul_result::Caveat;
use longhaul_session::control::{Amount, SessionError, TcpParameters, TestEnd};
use longhaul_session::results;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde_json::{Value, json};

use crate::cmd::lab::run::{end, lab_failed, no_report, test};

/// Raises a lab and makes the tests of `series` in it; those that were made where `stop` came before the last. `hosts` gets
/// client and server as they were first seen.
pub(crate) fn run_series(
    series: &TcpSeries,
    spec: &LabSpec,
    stop: Stop,
    hosts: &mut Value,
    say: &impl Fn(&str),
) -> (Series, Option<Status>) {
    let mut done = Series {
        name: series.name.clone(),
        paper: series.paper.clone(),
        changes: series.changes.clone(),
        runs: Vec::new(),
        error: None,
        caveats: Vec::new(),
    };
    let lab = match Lab::up(spec.clone(), series.path.clone()) {
        Ok(lab) => lab,
        Err(error) => {
            say(&format!("{:<16} not measured: {error}", ""));
            done.error = Some(lab_failed(error));
            return (done, None);
        }
    };
    for wanted in &series.tests {
        if stop.requested().is_some() {
            break;
        }
        let run = run_test(&lab, wanted, &series.path, stop, hosts);
        say(&row(&run));
        done.runs.push(run);
    }
    let status;
    (done.caveats, status) = end(lab, spec);
    (done, status)
}

/// One test, and what shares its path.
fn run_test(lab: &Lab, wanted: &TcpTest, path: &PathSpec, stop: Stop, hosts: &mut Value) -> Run {
    let one = |flows: &TcpFlows| test(lab, &flows.host, flows.parameters.clone(), stop);
    let (own, other) = std::thread::scope(|scope| {
        let other = wanted.beside.as_ref().map(|beside| scope.spawn(|| one(beside)));
        let own = one(&wanted.flows);
        let gone = || Err(SessionError::new("lab", "the test beside it ended early", ""));
        (own, other.map(|thread| thread.join().unwrap_or_else(|_| gone())))
    });
    if let (Ok(end), true) = (&own, hosts.is_null()) {
        *hosts = json!({ "client": end.local.host, "server": end.remote.as_ref().map(|end| &end.host) });
    }
    let (mut error, mut caveats) = (None, Vec::new());
    let mut flows_of = |flows: &TcpFlows, end: Result<TestEnd, SessionError>| {
        let mut done = Flows {
            host: flows.host.clone(),
            command: command(&flows.parameters),
            parameters: flows.parameters.clone(),
            result: None,
        };
        match end {
            Ok(end) => {
                match results::tcp(&end, false) {
                    Some((results, raised)) => {
                        done.result = Some(results.into_first());
                        caveats.extend(raised);
                    }
                    None => error = Some(no_report()),
                }
                done.parameters = end.parameters.tcp().cloned().unwrap_or(done.parameters);
            }
            Err(why) => error = Some(Caveat::new(&why.code, why.message, why.remedy)),
        }
        done
    };
    let flows = flows_of(&wanted.flows, own);
    let beside = wanted.beside.as_ref().zip(other).map(|(beside, end)| flows_of(beside, end));
    // Where others share the path, its losses are theirs as well.
    let expected_bps = if beside.is_none() { expected(path, &flows) } else { None };
    Run { label: wanted.label.clone(), flows, beside, expected_bps, error, caveats }
}

/// The goodput that the response function of the flow's control says, where the path loses packets at a rate and the control has one:
/// its mean window at that loss, each mean round trip, in payload.
fn expected(path: &PathSpec, flows: &Flows) -> Option<u64> {
    let loss: f64 = path.forward.iter().map(|hop| rate_of(&hop.loss)).sum();
    let [stream] = flows.result.as_ref()?.streams.as_slice() else { return None };
    let control = stream.congestion_control.strip_prefix("lh_").unwrap_or(&stream.congestion_control);
    let rtt = Nanos(stream.mean_rtt_ns?);
    if loss <= 0.0 || rtt == Nanos::ZERO {
        return None;
    }
    let packets = Model::named(control).ok()?.window_at(loss, rtt);
    Some((packets * stream.mss_bytes as f64 * 8.0 / rtt.as_secs_f64()) as u64)
}

/// Share of the packets that are lost by themselves; 0 where losses come in bursts, which no response function knows.
fn rate_of(loss: &LossSpec) -> f64 {
    match loss {
        LossSpec::Random(probability) => probability.0,
        LossSpec::Every(each) => 1.0 / each.get() as f64,
        LossSpec::None | LossSpec::GilbertElliott { .. } | LossSpec::List(_) => 0.0,
    }
}

/// What stands over the rows of a series.
pub(crate) fn heading(name: &str) -> String {
    format!(
        "{name}\n{:<16} {:>10} {:>10} {:>10} {:>9} {:>12} {:>9}  limited by",
        "test", "goodput", "expected", "beside", "again", "mean window", "RTT, ms"
    )
}

/// A test in a line. Rates are Mb/s of payload, windows packets.
fn row(run: &Run) -> String {
    let none = || "–".to_owned();
    let mbit = |bps: Option<u64>| bps.map_or_else(none, |bps| format!("{:.1}", bps as f64 / 1e6));
    let Some(result) = &run.flows.result else {
        let why = run.error.as_ref().map_or("", |error| &error.message);
        return format!("{:<16} not measured: {why}", run.label);
    };
    let count = result.streams.len().max(1) as f64;
    let window: f64 = (result.streams.iter())
        .filter_map(|stream| Some(stream.mean_cwnd_bytes? as f64 / stream.mss_bytes.max(1) as f64))
        .sum();
    let rtt: f64 = result.streams.iter().filter_map(|stream| Some(stream.mean_rtt_ns? as f64 / 1e6)).sum();
    let beside = run.beside.as_ref().and_then(|beside| beside.result.as_ref()).map(|result| result.goodput_bps);
    let limit = result
        .limited_by
        .foremost()
        .map_or_else(String::new, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0));
    let mut line = format!(
        "{:<16} {:>10} {:>10} {:>10} {:>9} {:>12.0} {:>9.1}  {limit}",
        run.label,
        mbit(Some(result.goodput_bps)),
        mbit(run.expected_bps),
        mbit(beside),
        result.retransmits,
        window / count,
        rtt / count,
    );
    if let Some(error) = &run.error {
        let _ = write!(line, "; beside it: {}", error.message);
    }
    line
}

/// What makes the same test by hand.
fn command(parameters: &TcpParameters) -> String {
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

/// The doubts of a series, each with where it arose.
pub(crate) fn printed_caveats(series: &Series) -> Vec<Caveat> {
    let of = |place: String, caveat: &Caveat| caveat.about(&place);
    let whole = series.error.iter().chain(&series.caveats).map(|caveat| of(series.name.clone(), caveat));
    let runs = series.runs.iter().flat_map(|run| {
        let place = format!("{}, {}", series.name, run.label);
        run.error.iter().chain(&run.caveats).map(move |caveat| of(place.clone(), caveat))
    });
    whole.chain(runs).collect()
}
