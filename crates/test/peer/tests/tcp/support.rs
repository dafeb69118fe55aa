//! What the tests have in common.

use std::process::Command;

use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_result::Caveat;
use longhaul_session::TestEnd;
use longhaul_tcp::{CongestionStep, TcpParameters, TcpResult};
use longhaul_terms::Amount;

/// A lab with this path, under a name that only this test uses.
pub(crate) fn tcp_lab(name: &str, path: &str) -> Lab {
    let path = PathSpec::parse(path, &no_files).unwrap();
    Lab::up(LabSpec { name: format!("tcp-{name}"), ..LabSpec::default() }, path).unwrap()
}

/// So many bytes, without a rate limit, with Reno, which follows its RFC.
pub(crate) fn bytes(bytes: u64) -> TcpParameters {
    TcpParameters { amount: Amount::Bytes(bytes), congestion: reno(), ..TcpParameters::default() }
}

/// For so many milliseconds.
pub(crate) fn millis(ms: u64) -> TcpParameters {
    TcpParameters { amount: Amount::DurationNs(ms * 1_000_000), congestion: reno(), ..TcpParameters::default() }
}

/// The result of one direction, and all caveats.
pub(crate) fn assemble(end: &TestEnd, backward: bool) -> (TcpResult, Vec<Caveat>) {
    let remote = end.remote.as_ref().unwrap();
    let (local, far) = (end.local.tcp.as_ref().unwrap(), remote.tcp.as_ref().unwrap());
    let (sender, receiver) = if backward { (far, local) } else { (local, far) };
    let assembled = TcpResult::assemble(end.parameters.tcp().unwrap(), false, backward, sender, receiver).unwrap();
    let mut caveats = assembled.caveats;
    caveats.extend(end.caveats.iter().chain(&end.local.caveats).chain(&remote.caveats).cloned());
    let result = assembled.result;
    let shares = result.limited_by;
    let sum = shares.congestion_window + shares.receive_window + shares.send_buffer + shares.application;
    assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
    assert_eq!(result.bytes, result.streams.iter().map(|stream| stream.bytes).sum::<u64>());
    (result, caveats)
}

/// The result alone.
pub(crate) fn result(end: &TestEnd, backward: bool) -> TcpResult {
    assemble(end, backward).0
}

fn reno() -> Vec<CongestionStep> {
    vec![CongestionStep { name: "reno".into(), duration_ns: None }]
}

/// What a command on a host prints.
pub(crate) fn said(lab: &Lab, host: &str, command: &str) -> String {
    let output = lab.host(host).unwrap().namespace.enter(|| Command::new("sh").args(["-c", command]).output());
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
