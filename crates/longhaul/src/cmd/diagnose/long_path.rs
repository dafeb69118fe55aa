//! `longhaul diagnose HOST --rate RATE --rtt TIME`: whether the path to a nearby server is good enough for a longer one.

use std::process::ExitCode;

use longhaul_diagnosis::plan::Step;
use longhaul_diagnosis::{LongPath, LongPathTest, NoLongPath, Purpose, UdpFacts, Verdict, udp_facts};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_peer::client::{self, Target};
use longhaul_report::saved::LONG_PATH_SCHEMA;
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_session::kind;
use longhaul_units::{BitRate, Nanos};

use super::{Args, TEST_TIME, asked, steps};
use crate::cmd::test::{Reach, are_whole};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, exit_code, print_result, say};

/// The congestion control of most hosts.
const CONTROL: &str = "cubic";
/// The test at the rate runs in parts, and can fail after each: the first are short, as a bad path fails soon.
const FIRST_PART: Nanos = Nanos::from_secs(1);
const LONGEST_PART: Nanos = Nanos::from_secs(8);
/// Bursts as at the end of slow start.
const BURSTS: usize = 3;

pub(super) fn run(args: &Args, reach: &Reach, rtt: Nanos) -> Outcome {
    let rate = args.rate.ok_or_else(|| Failure::usage("--rtt needs --rate: the rate of the long path"))?;
    let control = args.congestion.as_deref().unwrap_or(CONTROL);
    let long = LongPath::of(rate, rtt, control).map_err(|error| match error {
        NoLongPath::NoModel(_) => Failure::usage(format!("--congestion {error}")),
        NoLongPath::Window(_) => Failure::usage(format!("--rate {rate} --rtt {rtt}: {error}")),
    })?;
    let time = args.time.unwrap_or(TEST_TIME);
    let target = reach.target()?;
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    say(text::long_path::needed(&long, time.0));
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let mut caveats = Vec::new();
    let test = measure(args.reverse, long, &target, time, stop, &mut caveats)?;
    Stop::release();
    let envelope = Envelope::new(
        LONG_PATH_SCHEMA,
        started_at,
        asked(args, time, reach, target.address),
        test,
        Caveat::unique(caveats),
    );
    let otherwise = if are_whole(&envelope.caveats) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    print_result(&envelope, args.json, text::long_path::report);
    if let Err(failure) = saved {
        return Ok(failure.report_beside());
    }
    Ok(stop.requested().map_or(otherwise, |signal| ExitCode::from(exit_code(signal))))
}

/// Bursts first, as they take no time; then the rate, until the verdict is plain, the time is over, or a signal comes.
fn measure(
    backward: bool,
    long: LongPath,
    target: &Target,
    time: Nanos,
    stop: Stop,
    caveats: &mut Vec<Caveat>,
) -> Result<LongPathTest, Failure> {
    let mut test = LongPathTest::new(long);
    let (rate, window) = (test.target.payload_bps(), test.target.window_packets);
    let mut run = |step: Step| -> Result<Option<UdpFacts>, Failure> {
        let end = match client::run(target, steps::parameters(&step, backward), Some(stop), |_| {}) {
            Ok(end) => end,
            Err(_) if stop.requested().is_some() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(parameters) = end.parameters.udp() else { return Ok(None) };
        let Some((results, found)) = kind::udp::results(&end, None) else { return Ok(None) };
        let is_whole = are_whole(&found);
        caveats.extend(found);
        if !is_whole {
            return Ok(None);
        }
        Ok(Some(udp_facts(step.purpose(), &results.into_first(), parameters)))
    };
    for _ in 0..BURSTS {
        let burst = udp(Purpose::Burst, rate.saturating_mul(2), Nanos(0), Some(window));
        match run(burst)? {
            Some(seen) => test.take_burst(&seen),
            None => return Ok(test),
        }
    }
    let (began, mut longest) = (monotonic(), FIRST_PART);
    while test.run_length == Verdict::NotEnough && stop.requested().is_none() {
        let left = time.saturating_sub(monotonic().saturating_sub(began));
        // What is missing at least, and a little more: the rate is not met exactly.
        let missing = test.target.packets_to_pass.saturating_sub(test.sent_packets);
        let part = Nanos(LongPath::time_of(missing, rate).saturating_add(100_000_000)).min(longest).min(left);
        if part < Nanos::from_millis(100) {
            break;
        }
        let Some(seen) = run(udp(Purpose::Rate, rate, part, None))? else { break };
        test.take(&seen);
        longest = Nanos(longest.0 * 2).min(LONGEST_PART);
        say(format!("    {} packets, {} losses", test.sent_packets, test.losses));
    }
    Ok(test)
}

fn udp(purpose: Purpose, rate_bps: u64, duration: Nanos, packets: Option<u64>) -> Step {
    let rate_bps = BitRate(rate_bps).0.max(10_000);
    let payload_bytes = LongPath::payload_bytes();
    Step::Udp {
        purpose,
        rate_bps,
        duration_ns: duration.0,
        packets,
        payload_bytes,
        streams: 1,
        burst_packets: 1,
        traffic_class: 0,
    }
}
