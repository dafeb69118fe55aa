//! Shifts of a delay that jitter hides, where the truth is known.

use longhaul_path::spec::{DelaySteps, PathSpec, no_files};
use longhaul_profile::{Probes, Profile, ProfileOptions};

use crate::{probes, runs};

fn profile(measured: &Probes) -> Profile {
    let options = ProfileOptions { name: "copy".into(), source: "test".into(), ..ProfileOptions::default() };
    Profile::of(measured, &options).unwrap()
}

/// A path whose jitter has a standard deviation of a millisecond.
fn jitter(law: &str, rest: &str) -> String {
    format!(
        "[[forward]]\ndelay = '30ms'\njitter = {{ law = '{law}', stddev = '1ms', {rest} }}\n[[backward]]\ndelay = '20ms'\n"
    )
}

/// Half of the jitter's standard deviation, before the last probes of a measurement.
fn shifted(mut measured: Probes, last: usize) -> Probes {
    let from = measured.rows.len() - last;
    for row in &mut measured.rows[from..] {
        row.rtt_ns = row.rtt_ns.map(|ns| ns + 500_000);
        row.forward_ns = row.forward_ns.map(|ns| ns + 500_000);
    }
    measured
}

/// A shift is told within 500 probes whose delays are independent, and within 3,000 where delays 50 ms apart are alike (1/e) and probes are
/// 10 ms apart.
#[test]
fn half_a_standard_deviation_of_jitter_is_found() {
    for (law, rest, last, near) in [
        ("normal", "order = 'free'", 500, 150),
        ("pareto", "order = 'free'", 500, 150),
        ("normal", "correlation = '50ms'", 3_000, 900),
    ] {
        let text = jitter(law, rest);
        let found = (0..100)
            .filter(|seed| {
                let copy = profile(&shifted(probes(&text, 10_000, 10.0, *seed), last));
                let [shift] = &copy.delay_shifts[..] else { return false };
                let off = (shift.at_ns / 10_000_000).abs_diff(10_000 - last as u64);
                let right = (250_000.0..800_000.0).contains(&shift.rtt_ns) && off <= near;
                right && shift.backward_ns == Some(0.0)
            })
            .count();
        println!("{law}, {rest}: {found} of 100 found");
        assert!(found >= 95, "{law}, {rest}: {found} of 100");
    }
}

/// At most 1 % of runs without a shift are told one, whatever their jitter.
#[test]
fn runs_without_a_shift_have_none() {
    let laws = ["normal", "pareto", "uniform"];
    let rests = [
        "order = 'free'",
        "correlation = '20ms'",
        "correlation = '100ms'",
        "correlation = '1s'",
        "correlation = '20s'",
    ];
    let mut wrong = 0_u64;
    let runs = runs(300);
    for seed in 0..runs {
        let (law, rest): (&str, &str) = (laws[seed as usize % 3], rests[seed as usize % 5]);
        let probes = probes(&jitter(law, rest), 10_000, 10.0, 1_000 + seed);
        let shifts = profile(&probes).delay_shifts;
        if !shifts.is_empty() {
            println!("seed {seed}, {law}, {rest}: {shifts:?}");
            wrong += 1;
        }
    }
    println!("{wrong} of {runs} runs without a shift were told one");
    assert!(wrong * 100 <= runs, "{wrong} of {runs}");
}

#[test]
fn shifts_become_steps_of_the_path_and_jitter_is_without_them() {
    let text = jitter("normal", "correlation = '20ms'").replace(
        "[[backward]]\ndelay = '20ms'",
        "[[backward]]\ndelay = '20ms'\ndelay-steps = [{ at = '60s', delay = '22ms' }, { at = '80s', delay = '20ms' }]",
    );
    let copy = profile(&probes(&text, 15_000, 10.0, 3));
    let read = PathSpec::parse(&copy.path_file, &no_files).unwrap();
    assert_eq!(read, copy.path, "{}", copy.path_file);
    assert_eq!(copy.path.forward[0].delay_steps, DelaySteps::default());
    let DelaySteps::At(steps) = &copy.path.backward[0].delay_steps else { panic!("{:?}", copy.path.backward) };
    let [up, down] = &steps[..] else { panic!("{steps:?}") };
    let near = |found: longhaul_units::Nanos, ns: u64, within: u64| found.0.abs_diff(ns) <= within;
    assert!(near(up.at, 60_000_000_000, 300_000_000) && near(down.at, 80_000_000_000, 300_000_000), "{steps:?}");
    let delay = copy.path.backward[0].delay;
    assert!(near(up.delay, delay.0 + 2_000_000, 100_000) && near(down.delay, delay.0, 100_000), "{steps:?}");
    let stddev = copy.path.forward[0].jitter.as_ref().unwrap().stddev;
    assert!(near(stddev, 1_000_000, 60_000), "{stddev}");
    assert!(copy.path_file.contains("# level shifts of the round trip: +"), "{}", copy.path_file);
    assert!(copy.not_known.iter().any(|said| said.contains("shifts again")), "{:?}", copy.not_known);
}

/// As where an emulator or a host had no CPU for a moment.
#[test]
fn a_pause_of_a_tenth_of_a_second_is_no_shift() {
    let mut measured = probes(&jitter("normal", "order = 'free'"), 5_000, 2.0, 1);
    for row in &mut measured.rows[800..850] {
        row.rtt_ns = row.rtt_ns.map(|ns| ns + 20_000_000);
        row.forward_ns = row.forward_ns.map(|ns| ns + 20_000_000);
    }
    assert_eq!(profile(&measured).delay_shifts, []);
}

#[test]
fn a_wire_without_jitter_and_a_single_late_answer_are_no_shift() {
    let mut measured = probes("[[both]]\ndelay = '10ms'\n", 2_000, 10.0, 1);
    for late in [500, 501, 1_200] {
        measured.rows[late].rtt_ns = Some(90_000_000);
    }
    assert_eq!(profile(&measured).delay_shifts, []);
    for row in &mut measured.rows[1_500..] {
        row.rtt_ns = row.rtt_ns.map(|ns| ns + 3_000_000);
    }
    let shifts = profile(&measured).delay_shifts;
    assert!(matches!(shifts[..], [shift] if shift.at_ns == 15_000_000_000), "{shifts:?}");
}
