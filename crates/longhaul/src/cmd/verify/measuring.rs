//! The path in real time: a lab, and `longhaul rtt` over it as the measurement was made.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use longhaul_lab::LabSpec;
use longhaul_path::spec::PathSpec;
use longhaul_profile::Lateness;
use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::cmd::lab::tied::TiedLab;
use crate::cmd::profile::measured::Measured;
use crate::output::{Failure, say};

/// Longer than this only if it is asked for.
const TIME_MOST: Nanos = Nanos::from_secs(60);
/// Ethernet, IPv4 and UDP.
const HEADER_BYTES: u32 = 14 + 20 + 8;
/// The shortest payload of a probe.
const PAYLOAD_LEAST: u32 = 64;

/// Ends the answering process, whatever happens.
struct Answering(Child);

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures `path` over a lab as `measured` was, into `folder`. With how late the emulator was, and the caveats of that.
pub(super) fn over(
    path: &PathSpec,
    measured: &Measured,
    folder: &Path,
    time: Option<Nanos>,
    seed: u64,
) -> Result<(Measured, Lateness, Vec<Caveat>), Failure> {
    let probes = &measured.probes;
    if probes.ways.is_some() || probes.losses.is_some() {
        return Err(Failure::usage(
            "--measure sends probes: give a measurement of round trips, of longhaul rtt or ping",
        ));
    }
    let time = time.unwrap_or(Nanos(probes.duration_ns()).min(TIME_MOST));
    let interval = Nanos(probes.interval_ns().max(1_000));
    let length = probes.frame_bytes.saturating_sub(HEADER_BYTES).max(PAYLOAD_LEAST);
    let failed = |error: std::io::Error| Failure::new("measure", format!("cannot measure over the path: {error}"));
    let name = format!("verify-{}", std::process::id());
    let lab = TiedLab::up(LabSpec { name, seed, ..LabSpec::default() }, path)?;
    let program = std::env::current_exe().map_err(failed)?;
    let program = program.to_string_lossy();
    let on = |host: &str, arguments: &[&str]| lab.longhaul(&[&["exec", host, "--", &program], arguments].concat());

    let mut server = on("server", &["serve"]).map_err(failed)?.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let errors = server.stderr.take();
    let _answering = Answering(server);
    let mut line = String::new();
    if let Some(errors) = errors {
        let mut errors = BufReader::new(errors);
        errors.read_line(&mut line).map_err(failed)?;
        // It writes a line for each test, which nobody reads.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    }
    if !line.contains("listening") {
        return Err(Failure::new("measure", format!("the emulated path's server does not answer: {}", line.trim())));
    }
    say(format_args!("measuring over {} for {time}, a probe every {interval}", path.name));
    let (interval, lasting, length) = (interval.to_string(), time.to_string(), length.to_string());
    let output = folder.to_string_lossy();
    let rtt = ["rtt", "server", "-i", &interval, "-t", &lasting, "-l", &length, "-o", &output, "--json"];
    let done = on("client", &rtt).map_err(failed)?.stdout(Stdio::null()).status().map_err(failed)?;
    drop(_answering);
    let status = lab.down();
    if !done.success() {
        return Err(Failure::new("measure", format!("longhaul rtt over the emulated path ended with {done}")));
    }
    let Some(status) = status else {
        return Err(Failure::new("measure", "the emulated path ended before it said how late it was"));
    };
    let caveats = status.caveats(longhaul_emulator::DEFAULT_LATENESS_BOUND);
    let lateness = Lateness { p50_ns: status.lateness.p50_ns, p99_ns: status.lateness.p99_ns };
    Ok((Measured::read(&[folder.to_owned()], None, false)?, lateness, caveats))
}
