//! Shifts of a delay that jitter hides, where the truth is known.

use longhaul_path::spec::{DelaySteps, PathSpec, no_files};
use longhaul_profile::{Probes, Profile, ProfileOptions};
use longhaul_rtt::{ChangedRoute, OwnRoute, PathChange};

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

/// A route change, so many seconds after the first probe.
fn changed(at_s: f64, to_ttl: u8) -> PathChange {
    let at_ns = (at_s * 1e9) as i64;
    PathChange { at_ns, within_ns: 0, route: ChangedRoute::HopsBack { from_ttl: 60, to_ttl }, lost: 0 }
}

/// A step too small to be found by itself is one where the route is known to have changed; by chance at most one in 100 others is told.
#[test]
fn a_step_is_found_where_the_route_is_known_to_have_changed() {
    let (mut alone, mut known, mut by_chance) = (0, 0, 0);
    for seed in 0..100 {
        let mut measured = probes(&jitter("normal", "order = 'free'"), 1_000, 10.0, seed);
        measured.route_changes = vec![changed(8.0, 59)];
        let same = profile(&measured);
        by_chance += usize::from(!same.delay_shifts.is_empty());
        assert_eq!(same.route_changes[0].rtt_ns.is_some(), !same.delay_shifts.is_empty());
        for row in &mut measured.rows[800..] {
            row.rtt_ns = row.rtt_ns.map(|ns| ns + 350_000);
            row.forward_ns = row.forward_ns.map(|ns| ns + 350_000);
        }
        known += usize::from(matches!(profile(&measured).delay_shifts[..], [shift] if shift.at_ns == 8_000_000_000));
        measured.route_changes.clear();
        alone += usize::from(!profile(&measured).delay_shifts.is_empty());
    }
    println!("of 100: {known} found with the change, {alone} without, {by_chance} told where there is none");
    assert!(known >= alone + 30 && by_chance <= 2, "{known} {alone} {by_chance}");
}

#[test]
fn routes_are_never_mixed_silently() {
    let mut measured = probes(&jitter("normal", "order = 'free'"), 6_000, 10.0, 5);
    for row in &mut measured.rows[3_000..] {
        row.rtt_ns = row.rtt_ns.map(|ns| ns + 2_000_000);
        row.backward_ns = row.backward_ns.map(|ns| ns + 2_000_000);
    }
    measured.route_changes = vec![changed(-5.0, 61), changed(30.0, 59), changed(45.0, 60)];
    let copy = Profile::of(&measured, &ProfileOptions { same_clock: true, ..ProfileOptions::default() }).unwrap();
    let steps: Vec<Option<bool>> =
        copy.route_changes.iter().map(|change| change.rtt_ns.map(|ns| (ns - 2e6).abs() < 2e5)).collect();
    assert_eq!(steps, [Some(true), None], "{:?}", copy.route_changes);
    let DelaySteps::At(steps) = &copy.path.backward[0].delay_steps else { panic!("{:?}", copy.path.backward) };
    assert!(matches!(&steps[..], [step] if step.at.0.abs_diff(30_000_000_000) <= 50_000_000), "{steps:?}");
    for said in [
        "# The route changed at 30.0 s, answers came with TTL 60 → 59: the route back changed: round trip +2.0",
        "# The route changed at 45.0 s, answers came with TTL 60 → 60: the route back changed: no step of the round trip shows with it.",
        "# Not known: how the routes of the probes differ: the route changed once without a step of the round trip that shows",
        "# level shifts of the round trip: +",
    ] {
        assert!(copy.path_file.contains(said), "{said}: {}", copy.path_file);
    }
    assert_eq!(PathSpec::parse(&copy.path_file, &no_files).unwrap(), copy.path, "{}", copy.path_file);
}

/// A log of another host: no line of the file is the log's, and no more are written than a person reads.
#[test]
fn changes_of_a_hostile_log_stay_comments() {
    let mut measured = probes("[[both]]\ndelay = '10ms'\n", 500, 10.0, 1);
    let evil = OwnRoute { interface: format!("x\n[[forward]]\u{1b}[2J{}", "y".repeat(10_000)), ..OwnRoute::default() };
    let route = ChangedRoute::OwnRoute { from: OwnRoute::default(), to: evil };
    let change =
        |nth: i64| PathChange { at_ns: nth * 1_000_000, within_ns: u64::MAX, route: route.clone(), lost: u64::MAX };
    measured.route_changes = (0..1_000).map(change).chain([PathChange { at_ns: i64::MAX, ..change(0) }]).collect();
    let copy = profile(&measured);
    assert!(copy.path_file.contains("# The route changed 991 times more."), "{}", copy.path_file);
    assert!(!copy.path_file.contains('\u{1b}') && copy.path_file.len() < 10_000, "{}", copy.path_file.len());
    assert_eq!(PathSpec::parse(&copy.path_file, &no_files).unwrap(), copy.path);
}
