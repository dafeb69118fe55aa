//! What a user would see: iperf3, for comparison with this program's own endpoints.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use longhaul_lab::LabSpec;
use longhaul_testing::program::Program;
use serde_json::{Value, json};

use super::tcp::TEN_MS;
use crate::args::Plan;
use crate::measure::{EmulatorFigures, Sample, Variant, in_turns};
use crate::report::Row;
use crate::rig::{Bridge, Rig, emulated, path};
use crate::{Error, Result};

/// Goodput in Gb/s.
fn measure(rig: &dyn Rig, seconds: u32) -> Result<Sample> {
    let mut server = rig.server()?.enter(|| {
        Command::new("iperf3").args(["--server", "--one-off", "--forceflush"]).stdout(Stdio::piped()).spawn()
    })??;
    let output = server.stdout.take().expect("piped");
    let server = Program(server);
    let mut lines = BufReader::new(output).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening"))).ok_or("iperf3 does not listen")??;
    let (to, time) = (rig.server_address().to_string(), seconds.to_string());
    let output = rig.client()?.enter(|| {
        Command::new("iperf3").args(["-c", &to, "-t", &time, "-O", "1", "-C", "cubic", "--json"]).output()
    })??;
    drop(server);
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let received = &result["end"]["sum_received"];
    let rate = received["bits_per_second"].as_f64();
    let rate = rate.ok_or_else(|| Error::from(format!("iperf3: {}", result["error"])))?;
    let bytes = received["bytes"].as_u64().unwrap_or(0);
    let emulator = rig.status()?.map(|status| EmulatorFigures::of(&status, bytes));
    let detail = json!({ "retransmits": result["end"]["sum_sent"]["retransmits"] });
    Ok(Sample { emulator, ..Sample::plain(rate / 1e9, detail) })
}

/// One flow; nothing where iperf3 is not installed.
pub(crate) fn capacity(plan: &Plan) -> Result<Vec<Row>> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("  skipped: iperf3 is not installed");
        return Ok(Vec::new());
    }
    let path = path(TEN_MS)?;
    let spec = LabSpec::default();
    let seconds = plan.seconds(8.0, 4.0) as u32;
    let samples = in_turns(
        plan,
        plan.rounds,
        &[
            Variant::new("bridge", || measure(&Bridge::like(&spec, &path)?, seconds)),
            Variant::new("iperf3", || measure(&emulated(spec.clone(), &path)?, seconds)),
        ],
    )?;
    Ok(vec![Row::new("iperf3 cubic", "Gb/s", &samples[1]).beside(&samples[0])])
}
