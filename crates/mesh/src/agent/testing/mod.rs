//! One test: `longhaul udp`, `tcp`, `rtt` or `diagnose` against the partner's `longhaul serve`, which listens for this test alone.

mod programs;
mod results;
mod samples;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use longhaul_channel::Key;
use longhaul_mesh_model::file::{Kind, PROBE_EVERY, TestPlan};
use longhaul_mesh_model::result::FileKind;
use longhaul_units::{BitRate, Nanos};

use super::shared::Shared;
use crate::error::Failure;
pub(super) use programs::clean;
pub(super) use results::{Beside, Found, Head, failed};
use samples::Samples;

/// How long after its time a test may end.
const GRACE: Nanos = Nanos::from_secs(20);
/// Payload of a probe of round trips: ten a second are 9 kb/s on the wire.
const PROBE_BYTES: u32 = 64;

/// A test that was granted.
pub(super) struct Job<'a> {
    pub(super) test: &'a TestPlan,
    /// What it may send: payload bits a second of `udp` and `tcp`, on the wire (L1) of `diagnose`.
    pub(super) rate: BitRate,
    pub(super) address: &'a str,
    pub(super) port: u16,
    pub(super) key: &'a str,
    /// Whether this site sends; else it receives.
    pub(super) sends: bool,
    /// The alarm that a diagnosis is for.
    pub(super) alarm: &'a str,
}

impl Job<'_> {
    fn arguments(&self) -> Vec<String> {
        let time = self.test.time.to_string();
        let rate = self.rate.0.to_string();
        let mut arguments = words([self.test.kind.name(), self.address, "--json", "--port", &self.port.to_string()]);
        arguments.extend(match self.test.kind {
            Kind::Udp { length, .. } => words(["--rate", &rate, "--length", &length.to_string(), "--time", &time]),
            Kind::Tcp => words(["--pace", &rate, "--time", &time]),
            Kind::Rtt => {
                let (every, length) = (PROBE_EVERY.to_string(), PROBE_BYTES.to_string());
                words(["--interval", &every, "--length", &length, "--time", &time])
            }
            Kind::Diagnose => words(["--rate", &rate, "--time", &time]),
        });
        if !self.sends && self.test.kind != Kind::Rtt {
            arguments.push("--reverse".into());
        }
        arguments
    }
}

fn words<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).to_vec()
}

/// Runs a test that this site began.
pub(super) fn run(shared: &Shared, job: &Job) -> Result<Found, Failure> {
    let key: Key = job.key.parse().map_err(Failure::new)?;
    let mut command = programs::longhaul(shared)?;
    command.args(job.arguments());
    let samples = match job.test.kind {
        Kind::Tcp if shared.wants(FileKind::Samples) => Some(Samples::to_come(&shared.folder.file(""))?),
        _ => None,
    };
    if let Some(samples) = &samples {
        command.args(["--sample", &samples::every(job.test.time).to_string(), "--output"]).arg(samples.path());
    }
    let within = match job.test.kind {
        Kind::Diagnose => job.test.holds(),
        Kind::Udp { .. } | Kind::Tcp | Kind::Rtt => job.test.time.saturating_add(GRACE),
    };
    let text = programs::output(shared, &mut command, &key, Duration::from(within))?;
    results::read(job, &text, samples)
}

/// Starts `longhaul serve` for one test of a partner and waits until it listens; its port. It takes no more than the test: `rate` as [`Job::rate`].
/// It ends with the test, when the sender of `over` is gone, or when the test must be over.
pub(super) fn serve(
    shared: &Arc<Shared>,
    test: &TestPlan,
    rate: BitRate,
    key: &Key,
    held: Nanos,
    over: mpsc::Receiver<()>,
) -> Result<u16, Failure> {
    programs::serve(shared, serve_arguments(test, rate), key, Duration::from(held), over)
}

fn serve_arguments(test: &TestPlan, rate: BitRate) -> Vec<String> {
    let mut arguments = words(["--host-settings", "refuse", "--time-cap", &test.time.to_string()]);
    let (rate, length) = match test.kind {
        Kind::Udp { length, .. } => (rate, Some(length)),
        Kind::Tcp | Kind::Diagnose => (rate, None),
        Kind::Rtt => (BitRate::of(PROBE_BYTES.into(), PROBE_EVERY), Some(PROBE_BYTES)),
    };
    arguments.extend(words(["--rate-cap", &rate.0.to_string()]));
    arguments.extend(length.iter().flat_map(|length| words(["--length-cap", &length.to_string()])));
    // A diagnosis is several tests, and round trips go on after the path was down.
    if !matches!(test.kind, Kind::Diagnose | Kind::Rtt) {
        arguments.push("--once".into());
    }
    if test.kind == Kind::Rtt {
        // Probes take little, and a server takes any other test, too. Datagrams are held to the rate of probes; of TCP a mebibyte for each stream
        // may come at once, whatever the rate: a cap that no block fits refuses it.
        arguments.extend(words(["--memory-cap", "64M", "--buffer-cap", "1M", "--block-cap", "0"]));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_for_round_trips_has_little_memory_and_takes_no_tcp() {
        let arguments = |kind| {
            let (name, time) = ("test".into(), Nanos::from_secs(6));
            let (pairs, untestable) = (Vec::new(), Vec::new());
            let test = TestPlan { name, kind, pairs, untestable, every: None, time, share: 0.1, sample: None };
            serve_arguments(&test, BitRate::from_gbit(1)).join(" ")
        };
        let of_rtt = arguments(Kind::Rtt);
        let caps = " --memory-cap 64M --buffer-cap 1M --block-cap 0";
        assert!(of_rtt.ends_with(caps) && !of_rtt.contains("--once"), "{of_rtt}");
        assert!(arguments(Kind::Tcp).ends_with(" --once"));
    }
}
