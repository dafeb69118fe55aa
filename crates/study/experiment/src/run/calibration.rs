//! How much of an experiment this machine can do.

use std::cmp::Reverse;

use longhaul_peer::caveats::RECEIVER_CPU_SATURATED;
use longhaul_result::Caveat;
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use super::plan::{Planned, time_with};
use super::{Ground, Place, Runner, WARM_UP};
use crate::caveats;
use crate::spec::{Emulator, Experiment, TcpSeries, TcpTest};

/// How long a test of the calibration takes: over a shorter time it is not known whether a CPU was full.
const CALIBRATING: Nanos = Nanos::from_millis(700);
/// How often others may disturb the calibration at one rate.
const DISTURBED_MOST: u32 = 4;
/// How often the machine may fail at one rate that it keeps up with twice: a run that it fails is made again, too.
const FAILED_MOST: u32 = 1;
/// Tests of a calibration that nobody disturbs: two at each of the four factors that it takes to find one among twelve.
const TESTS: u64 = 8;
/// By how much [`Runner::calibrate`] scales experiments: each about three quarters of the one before. The journals of experiments have these.
pub const FACTORS: [f64; 12] =
    [1.0, 0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.09375, 0.0625, 0.046875, 0.03125, 0.015625];

/// About how long [`Runner::calibrate`] takes where nobody disturbs it.
pub fn calibration_time(experiment: &Experiment) -> Nanos {
    let (path, test) = match (experiment.udp.first(), largest_window(experiment)) {
        (Some(series), _) => (&series.path, CALIBRATING),
        (None, Some((series, largest))) => (&series.path, moment_of(largest)),
        (None, None) => return Nanos::ZERO,
    };
    time_with(WARM_UP, path).saturating_add(Nanos(time_with(test, path).0.saturating_mul(TESTS)))
}

/// The TCP test with the largest window; of those with the same window the first.
fn largest_window(experiment: &Experiment) -> Option<(&TcpSeries, &TcpTest)> {
    let tests = experiment.tcp.iter().flat_map(|series| series.tests.iter().map(move |test| (series, test)));
    let own = tests.filter(|(_, test)| test.program.is_none() && test.setting.emulator == Emulator::Longhaul);
    // The kernel's own window may become larger than any.
    own.min_by_key(|(_, test)| Reverse(test.flows.parameters.window_bytes.unwrap_or(u64::MAX)))
}

/// How long it is sent by the calibration: flows first have to fill the window.
fn moment_of(test: &TcpTest) -> Nanos {
    Nanos(test.flows.parameters.omit_ns) + CALIBRATING
}

impl Runner<'_> {
    /// The factor by which this machine can do `experiment`: the largest of some factors at which it made the hardest test for a moment twice of
    /// three times without spoiling it or, by UDP, taking the receiver's CPUs whole; and then one less, as it has to do so each time.
    ///
    /// # Errors
    /// A lab cannot be set up.
    pub fn calibrate(&self, experiment: &Experiment) -> Result<f64, Caveat> {
        self.warm_up(
            &experiment.scaled(FACTORS[FACTORS.len() / 2]),
            Planned { series: 0, point: 0, repeat: 1, time: WARM_UP },
        );
        let keeps_up = |factor: f64| -> Result<bool, Caveat> {
            let scaled = experiment.scaled(factor);
            let (mut kept, mut failed, mut disturbed) = (0, 0, 0);
            while kept < 2 && self.stop.requested().is_none() {
                match self.try_once(&scaled, kept + failed + 1)? {
                    Trial::Kept => kept += 1,
                    Trial::Disturbed if disturbed < DISTURBED_MOST => disturbed += 1,
                    Trial::Failed if failed < FAILED_MOST => failed += 1,
                    Trial::Disturbed | Trial::Failed => return Ok(false),
                }
            }
            Ok(true)
        };
        let (mut least_kept, mut most_failed) = (FACTORS.len(), None);
        // Of the factors from the largest to the smallest, those up to some number fail.
        let (mut low, mut high) = (0, FACTORS.len());
        while low < high && self.stop.requested().is_none() {
            let middle = usize::midpoint(low, high);
            if keeps_up(FACTORS[middle])? {
                (high, least_kept) = (middle, middle);
            } else {
                (low, most_failed) = (middle + 1, Some(middle));
            }
        }
        let margin = usize::from(most_failed.is_some());
        Ok(FACTORS[(least_kept + margin).min(FACTORS.len() - 1)])
    }

    /// A moment of the hardest test: of UDP the highest rate of the first series, of TCP the largest window.
    fn try_once(&self, scaled: &Experiment, repeat: u32) -> Result<Trial, Caveat> {
        let planned = |time: Nanos| Planned { series: 0, point: 0, repeat, time };
        if let Some(series) = scaled.udp.first() {
            let Some(fastest) = series.tests.iter().max_by_key(|test| test.rate()) else { return Ok(Trial::Kept) };
            let mut moment = fastest.clone();
            moment.parameters.amount = Amount::DurationNs(CALIBRATING.0);
            let place = Place { path: &series.path, setting: &moment.setting, has_programs: false };
            let test = |lab: Result<Ground<'_>, Caveat>| self.run_udp_test(lab, &moment, &series.path, None, &mut None);
            let (why, run, whole) = self.in_lab(place, planned(CALIBRATING), test);
            let problems = run.run.problems;
            return judged(problems.error, whole, why.as_ref(), &problems.caveats);
        }
        let Some((series, largest)) = largest_window(scaled) else { return Ok(Trial::Kept) };
        let mut moment = TcpTest { capture: false, beside: None, ..largest.clone() };
        let time = moment_of(largest);
        moment.flows.parameters.amount = Amount::DurationNs(time.0);
        // It ends before a schedule does.
        moment.flows.parameters.congestion.truncate(1);
        moment.flows.parameters.congestion.iter_mut().for_each(|step| step.duration_ns = None);
        let place = Place { path: &series.path, setting: &moment.setting, has_programs: false };
        let test = |lab: Result<Ground<'_>, Caveat>| self.run_tcp_test(lab, &moment, &series.path, &mut None);
        let (why, run, whole) = self.in_lab(place, planned(time), test);
        // A flow takes what its hosts give: a full CPU is no failure.
        judged(run.run.problems.error, whole, why.as_ref(), &[])
    }
}

/// What a test says; an error where there was no lab.
fn judged(error: Option<Caveat>, whole: bool, why: Option<&Caveat>, doubts: &[Caveat]) -> Result<Trial, Caveat> {
    match error {
        Some(error) if !whole => Err(error),
        error => Ok(trial(error.is_some(), why, doubts)),
    }
}

/// What a calibration's test says of its rate.
#[derive(Debug, PartialEq, Eq)]
enum Trial {
    /// The machine keeps up.
    Kept,
    /// It does not.
    Failed,
    /// Others had the CPUs, which says nothing of what this machine can do.
    Disturbed,
}

/// What a test says that was void for `why` and has `doubts`.
fn trial(failed: bool, why: Option<&Caveat>, doubts: &[Caveat]) -> Trial {
    match why {
        _ if failed => Trial::Failed,
        Some(why) if why.is(caveats::CPU_TAKEN) => Trial::Disturbed,
        Some(_) => Trial::Failed,
        // Sender and emulator may take all of a small machine: what the receiver then loses is their doing.
        None if doubts.iter().any(|doubt| doubt.is(RECEIVER_CPU_SATURATED)) => Trial::Failed,
        None => Trial::Kept,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use longhaul_peer::caveats::BUFFER_NOT_GRANTED;

    /// Each test has 0.7 s and four round trips beside it; those of TCP begin with what a flow takes to fill its window.
    #[test]
    fn a_calibration_takes_so_long() {
        for (series, omit_ns) in [
            ("[[udp]]\nname = 'u'\nrates = ['1M', '2M']\n", 0),
            ("[[tcp]]\nname = 't'\ncongestion = ['reno']\nwindows = ['1M', '2M']\nomit = '4s'\n", 4_000_000_000),
        ] {
            let text = format!("title = 'x'\npath = 'nlr-small'\n{series}");
            let experiment = Experiment::parse(&text, Path::new("")).unwrap();
            let beside = 700_000_000 + 4 * experiment.path.round_trip().0;
            let expected = 300_000_000 + beside + 8 * (omit_ns + 700_000_000 + beside);
            assert_eq!(calibration_time(&experiment), Nanos(expected), "{series}");
        }
    }

    #[test]
    fn a_receiver_without_cpu_time_fails_a_rate() {
        let doubt = |code| Caveat::new(code, "why", "");
        let busy = [doubt(BUFFER_NOT_GRANTED), doubt(RECEIVER_CPU_SATURATED)];
        assert_eq!(trial(false, None, &busy), Trial::Failed);
        assert_eq!(trial(false, None, &busy[..1]), Trial::Kept);
        assert_eq!(trial(true, None, &[]), Trial::Failed);
    }

    #[test]
    fn what_others_do_says_nothing_of_a_rate() {
        let doubt = |code| Caveat::new(code, "why", "");
        assert_eq!(trial(false, Some(&doubt(caveats::CPU_TAKEN)), &[doubt(RECEIVER_CPU_SATURATED)]), Trial::Disturbed);
        assert_eq!(trial(false, Some(&doubt(longhaul_result::caveats::SENDER_STOPPED)), &[]), Trial::Failed);
    }
}
