//! How the emulator of an experiment uses the CPUs, where no option says it.
//!
//! TCP takes all that hosts and emulator give: on the hosts' CPUs the emulator is late by milliseconds, and runs are rejected. It gets a CPU for itself.
//!
//! UDP tests get no such CPU, as sender, softirq and receiver may need all. Where there are too few for each, emulator and sender sleep as long as
//! they may: on two CPUs, watching the clock before each packet left the receiver nothing from 150 Mb/s on (1448 bytes), and now 600 Mb/s arrive.

use longhaul_experiment::Experiment;
use longhaul_kernel::{capability, schedule};
use longhaul_lab::LabSpec;
use longhaul_terms::SoftirqPlacement;
use longhaul_units::Nanos;

/// SCHED_FIFO priority of the emulator, where it may have one: before all programs, and after what the kernel has at a higher one.
const PRIORITY: u8 = 50;

/// `given` with a CPU for the emulator alone and a priority there; `None` where the emulator stays as it was `given`.
pub(super) fn with_own_cpu(given: &LabSpec, experiment: &Experiment) -> Option<LabSpec> {
    let allowed = schedule::allowed_cpus().unwrap_or_default();
    decide(given, host_cpus_needed(experiment), &allowed, may_have_priority)
}

/// Who is not root gets a user namespace before the labs, in which the right to a priority is lost.
fn may_have_priority() -> bool {
    capability::is_root_in_namespace() && schedule::may_set_fifo(PRIORITY)
}

/// What there are CPUs for where none is shared: sender, emulator, softirq and receiver of a UDP test.
const UDP_CPUS: usize = 4;
/// How late packets may leave where they are shared: a fifth of what would make a run doubtful.
const WAKE_INTERVAL: Nanos = Nanos::from_micros(100);

/// `given` with packets that leave a little late, for UDP tests that are to be as fast as this machine can; `None` where it has CPUs enough, or
/// the tests look at the time of each packet.
pub(super) fn with_longer_sleep(given: &LabSpec, experiment: &Experiment) -> Option<LabSpec> {
    sleeping(given, experiment, schedule::allowed_cpus().unwrap_or_default().len(), may_have_priority)
}

fn sleeping(
    given: &LabSpec,
    experiment: &Experiment,
    allowed_cpus: usize,
    may_have_priority: impl FnOnce() -> bool,
) -> Option<LabSpec> {
    let mut tests = experiment.udp.iter().flat_map(|series| &series.tests);
    let wanted = experiment.calibrate && !experiment.udp.is_empty() && !tests.any(|test| test.parameters.each_packet);
    let has_few = allowed_cpus < UDP_CPUS && given.cpus.is_empty() && !given.spin;
    (wanted && has_few).then(|| LabSpec {
        wake_interval: WAKE_INTERVAL,
        realtime: priority(given, may_have_priority),
        ..given.clone()
    })
}

/// What `lab run` says of that.
pub(super) fn said_of_sleep(spec: &LabSpec) -> String {
    let late = spec.wake_interval;
    let priority =
        spec.realtime.map_or_else(String::new, |priority| format!(", the emulator at SCHED_FIFO priority {priority}"));
    format!(
        "there are few CPUs, so sender and emulator sleep between packets{priority}: packets leave up to {late} late, plus the time of a wake-up (--wake-interval 0ns: exact)"
    )
}

/// What `lab run` says of such a CPU.
pub(super) fn said(spec: &LabSpec) -> String {
    let cpus: Vec<String> = spec.cpus.iter().map(usize::to_string).collect();
    let priority = spec.realtime.map_or_else(String::new, |priority| format!(", at SCHED_FIFO priority {priority}"));
    format!("the emulator has CPU {} to itself{priority} (--share-cpus: it runs beside the hosts)", cpus.join(","))
}

/// How many CPUs the hosts need beside the emulator's; `None` where its tests are of UDP.
///
/// It is of all series, also where `--only` leaves some out: all runs of a folder are made alike.
fn host_cpus_needed(experiment: &Experiment) -> Option<usize> {
    let tests = experiment.tcp.iter().flat_map(|series| &series.tests);
    tests.map(|test| if test.setting.softirq == Some(SoftirqPlacement::Split) { 2 } else { 1 }).max()
}

/// Of the CPUs `allowed` the last one is the emulator's where the hosts keep as many as they need.
fn decide(
    given: &LabSpec,
    host_cpus_needed: Option<usize>,
    allowed: &[usize],
    may_have_priority: impl FnOnce() -> bool,
) -> Option<LabSpec> {
    let (own, of_hosts) = allowed.split_last()?;
    if !given.cpus.is_empty() || of_hosts.len() < host_cpus_needed? {
        return None;
    }
    Some(LabSpec { cpus: vec![*own], realtime: priority(given, may_have_priority), ..given.clone() })
}

/// A priority that was `given` stays.
fn priority(given: &LabSpec, may_have_one: impl FnOnce() -> bool) -> Option<u8> {
    given.realtime.or_else(|| may_have_one().then_some(PRIORITY))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment(series: &str) -> Experiment {
        Experiment::parse(&format!("title = 'x'\npath = 'lan'\n{series}"), Path::new("")).unwrap()
    }

    /// CPUs and priority of the emulator.
    fn decided(
        given: &LabSpec,
        needed: Option<usize>,
        allowed: &[usize],
        may: bool,
    ) -> Option<(Vec<usize>, Option<u8>)> {
        decide(given, needed, allowed, || may).map(|spec| (spec.cpus, spec.realtime))
    }

    #[test]
    fn the_emulator_of_tcp_tests_has_the_last_cpu() {
        let none = LabSpec::default();
        assert_eq!(decided(&none, Some(1), &[0, 1], true), Some((vec![1], Some(50))));
        assert_eq!(decided(&none, Some(1), &[2, 5, 7], false), Some((vec![7], None)));
        let given = LabSpec { realtime: Some(10), seed: 7, ..LabSpec::default() };
        assert_eq!(decided(&given, Some(1), &[0, 1], true), Some((vec![1], Some(10))));
        assert_eq!(decide(&given, Some(1), &[0, 1], || true).unwrap().seed, 7);
    }

    #[test]
    fn the_emulator_stays_where_it_is_otherwise() {
        let none = LabSpec::default();
        assert_eq!(decided(&none, None, &[0, 1], true), None, "tests of UDP");
        assert_eq!(decided(&none, Some(1), &[0], true), None, "one CPU");
        assert_eq!(decided(&none, Some(1), &[], true), None);
        assert_eq!(decided(&LabSpec { cpus: vec![0], ..none.clone() }, Some(1), &[0, 1], true), None, "--cpu 0");
        assert_eq!(decided(&none, Some(2), &[0, 1], true), None, "the hosts need both");
        assert_eq!(decided(&none, Some(2), &[0, 1, 2], true), Some((vec![2], Some(50))));
    }

    #[test]
    fn udp_tests_on_few_cpus_leave_the_receiver_its_own() {
        let calibrated =
            |key: &str| experiment(&format!("calibrate = true\n[[udp]]\nname = 'u'\nrates = ['1M']\n{key}"));
        let (none, udp) = (LabSpec::default(), calibrated(""));
        let late = sleeping(&none, &udp, 2, || false).unwrap();
        assert_eq!(late, LabSpec { wake_interval: WAKE_INTERVAL, ..none.clone() });
        assert_eq!(sleeping(&none, &udp, 2, || true).unwrap().realtime, Some(50));
        assert!(
            said_of_sleep(&late)
                .contains("packets leave up to 100us late, plus the time of a wake-up (--wake-interval 0ns: exact)")
        );
        assert_eq!(sleeping(&none, &udp, 4, || true), None, "CPUs enough");
        assert_eq!(
            sleeping(&none, &experiment("[[udp]]\nname = 'u'\nrates = ['1M']\n"), 2, || true),
            None,
            "rates as given"
        );
        assert_eq!(sleeping(&none, &calibrated("exact = true\n"), 2, || true), None, "each packet is looked at");
        assert_eq!(sleeping(&LabSpec { spin: true, ..none.clone() }, &udp, 2, || true), None, "--spin");
        assert_eq!(sleeping(&LabSpec { cpus: vec![1], ..none }, &udp, 2, || true), None, "--cpu 1");
    }

    #[test]
    fn softirq_on_another_cpu_needs_two_for_the_hosts() {
        assert_eq!(host_cpus_needed(&experiment("[[udp]]\nname = 'u'\nrates = ['1M']\nsoftirq = 'split'\n")), None);
        let tcp = "[[tcp]]\nname = 't'\ncongestion = ['reno']\n";
        assert_eq!(host_cpus_needed(&experiment(tcp)), Some(1));
        let split = format!("{tcp}[[tcp]]\nname = 's'\ncongestion = ['reno']\nsoftirq = ['same', 'split']\n");
        assert_eq!(host_cpus_needed(&experiment(&split)), Some(2));
    }

    #[test]
    fn what_it_has_is_said_in_a_line() {
        let spec = LabSpec { cpus: vec![1], realtime: Some(50), ..LabSpec::default() };
        let beside = "(--share-cpus: it runs beside the hosts)";
        assert_eq!(said(&spec), format!("the emulator has CPU 1 to itself, at SCHED_FIFO priority 50 {beside}"));
        let spec = LabSpec { realtime: None, ..spec };
        assert_eq!(said(&spec), format!("the emulator has CPU 1 to itself {beside}"));
    }
}
