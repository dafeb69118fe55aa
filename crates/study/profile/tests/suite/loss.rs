//! Laws of loss with known parameters.

use longhaul_profile::{LossLaw, Probe, fit_loss};

use crate::{probes, runs};

/// Of `of` intervals of 95 % so many held the truth: of 1,000 runs 930 to 970 are asked, of fewer 2.9 standard errors.
fn holds(inside: u64, of: u64, what: &str) {
    let share = inside as f64 / of as f64;
    let error = 2.9 * (0.95 * 0.05 / of as f64).sqrt();
    println!("{what}: {inside} of {of}");
    assert!((share - 0.95).abs() <= error.max(0.02), "{what}: {share}");
}

#[test]
fn independent_losses_lie_within_their_interval() {
    let (mut inside, mut bursts, runs) = (0, 0, runs(300));
    for seed in 0..runs {
        let measured = probes("[[forward]]\ndelay = '10ms'\nloss = { random = '1%' }\n", 10_000, 10.0, seed);
        match fit_loss(&measured.rows).law {
            LossLaw::Random { interval: [least, most], .. } => inside += u64::from(least <= 0.01 && 0.01 <= most),
            _ => bursts += 1,
        }
    }
    println!("{bursts} of {runs} independent ones told as bursts");
    holds(inside, runs - bursts, "chance");
    assert!(bursts as f64 <= 0.025 * runs as f64, "{bursts} of {runs} independent ones told as bursts");
}

#[test]
fn bursts_lie_within_their_intervals() {
    let (mut lasting, mut every, mut random, runs) = (0, 0, 0, runs(300));
    let text = "[[forward]]\ndelay = '10ms'\nloss = { bursts = { for = '40ms', every = '2s' } }\n";
    for seed in 0..runs {
        let measured = probes(text, 40_000, 10.0, seed);
        match fit_loss(&measured.rows).law {
            LossLaw::Bursts { lasting_interval_ns: a, every_interval_ns: b, .. } => {
                lasting += u64::from(a[0] <= 40e6 && 40e6 <= a[1]);
                every += u64::from(b[0] <= 2e9 && 2e9 <= b[1]);
            }
            _ => random += 1,
        }
    }
    assert_eq!(random, 0, "bursts told as independent");
    holds(lasting, runs, "how long a burst lasts");
    holds(every, runs, "how often bursts come");
}

/// Poisson probes see the same bursts.
#[test]
fn uneven_probes_see_bursts() {
    let text = "[[forward]]\ndelay = '10ms'\nloss = { bursts = { for = '40ms', every = '2s' } }\n";
    let mut random = 7_u64;
    let mut at = 0_i64;
    let sent: Vec<i64> = (0..100_000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            at += (-((random >> 11) as f64 / (1_u64 << 53) as f64).max(1e-12).ln() * 10e6) as i64;
            at
        })
        .collect();
    let measured = longhaul_profile::simulate(&crate::path(text), &sent, 98, 1);
    let LossLaw::Bursts { lasting_ns, every_ns, .. } = fit_loss(&measured.rows).law else { panic!("independent") };
    assert!((lasting_ns / 40e6 - 1.0).abs() < 0.15 && (every_ns / 2e9 - 1.0).abs() < 0.15, "{lasting_ns} {every_ns}");
}

#[test]
fn a_single_outage_is_an_outage() {
    let measured = probes("[[forward]]\ndelay = '10ms'\noutages = [{ at = '20s', for = '3s' }]\n", 6_000, 10.0, 1);
    let fit = fit_loss(&measured.rows);
    let [outage] = fit.outages[..] else { panic!("{fit:?}") };
    assert_eq!(outage.packets, 300);
    assert!(outage.at_ns.abs_diff(20_000_000_000) <= 10_000_000, "{outage:?}");
    assert!(outage.lasting_ns.abs_diff(3_000_000_000) <= 10_000_000, "{outage:?}");
    assert_eq!((fit.lost_packets, fit.runs), (300, 0));
    assert_eq!(fit.law, LossLaw::None { less_than: 3.0 / 5_700.0 });
}

#[test]
fn nothing_and_everything() {
    let row = |lost: bool, n: i64| Probe { sent_ns: n * 1_000, rtt_ns: (!lost).then_some(5), ..Probe::default() };
    assert_eq!(fit_loss(&[]).law, LossLaw::None { less_than: 1.0 });
    let all: Vec<Probe> = (0..50).map(|n| row(true, n)).collect();
    assert!(matches!(fit_loss(&all).law, LossLaw::Random { chance: 1.0, .. }));
    // Stamps that stand still or step back.
    let odd: Vec<Probe> = (0..200).map(|n| row(n % 7 < 2, -(n % 3))).collect();
    assert_eq!(fit_loss(&odd).lost_packets, 58);
}

/// A path without loss is told as one: less than three of as many probes (95 %).
#[test]
fn no_loss_is_no_law() {
    let runs = runs(300);
    for seed in 0..runs {
        let fit = fit_loss(&probes("[[forward]]\ndelay = '10ms'\n", 10_000, 10.0, seed).rows);
        assert_eq!(fit.law, LossLaw::None { less_than: 3.0 / 10_000.0 }, "seed {seed}");
    }
}

/// Bursts in which a part is lost: found, with parameters inside their intervals as often as is said.
#[test]
fn bursts_that_lose_a_part_lie_within_their_intervals() {
    let runs = runs(40);
    let (mut lasting, mut every, mut part, mut other) = (0, 0, 0, 0);
    let text = "[[forward]]\ndelay = '10ms'\nloss = { bursts = { for = '200ms', every = '3s', lost = '40%' } }\n";
    for seed in 0..runs {
        let measured = probes(text, 40_000, 10.0, seed);
        match fit_loss(&measured.rows).law {
            LossLaw::Bursts { lasting_interval_ns: a, every_interval_ns: b, lost_interval: Some(c), .. } => {
                lasting += u64::from(a[0] <= 200e6 && 200e6 <= a[1]);
                every += u64::from(b[0] <= 3e9 && 3e9 <= b[1]);
                part += u64::from(c[0] <= 0.4 && 0.4 <= c[1]);
            }
            _ => other += 1,
        }
    }
    assert_eq!(other, 0, "told as another law");
    holds(lasting, runs, "how long a burst that loses a part lasts");
    holds(every, runs, "how often they come");
    holds(part, runs, "which part they lose");
}

/// Neither independent losses nor bursts that lose all are told as bursts that lose a part.
#[test]
fn a_part_is_told_only_where_it_is() {
    let runs = runs(100);
    for (law, allowed) in [
        ("{ random = '1%' }", 0.01),
        ("{ random = '10%' }", 0.01),
        ("{ bursts = { for = '40ms', every = '2s' } }", 0.01),
    ] {
        let text = format!("[[forward]]\ndelay = '10ms'\nloss = {law}\n");
        let partial = |seed: &u64| {
            let law = fit_loss(&probes(&text, 10_000, 10.0, *seed).rows).law;
            matches!(law, LossLaw::Bursts { lost_interval: Some(_), .. })
        };
        let wrong = (0..runs).filter(partial).count();
        println!("{law}: {wrong} of {runs}");
        assert!(wrong as f64 <= (allowed * runs as f64).max(1.0), "{law}: {wrong} of {runs}");
    }
}

/// A gap of the log cuts what lies around it apart: no outage, and no burst.
#[test]
fn gaps_are_no_loss_and_no_outage() {
    use longhaul_rtt::{Gap, GapReason};

    let second = 1_000_000_000;
    let lost = |n: i64| matches!(n, 2_800..3_000 | 5_000..5_200);
    let mut probes = longhaul_profile::Probes {
        // Ten milliseconds apart; the host slept for an hour behind the 3,000th, and no server was there behind the 6,000th for a minute.
        rows: (0..9_000)
            .map(|n| {
                let away = if n >= 6_000 {
                    3_660
                } else if n >= 3_000 {
                    3_600
                } else {
                    0
                };
                let sent_ns = n * 10_000_000 + away * second;
                Probe { sent_ns, rtt_ns: (!lost(n)).then_some(5_000_000), ..Probe::default() }
            })
            .collect(),
        ..longhaul_profile::Probes::default()
    };
    let gap = |why, from_s: i64, to_s: i64| Gap {
        why,
        from_ns: from_s * second,
        to_ns: to_s * second,
        step_ns: 0,
        left_out: 0,
    };
    let without = fit_loss(&probes.rows);
    assert_eq!(without.outages.len(), 2, "{without:?}");
    probes.leave_out(&[gap(GapReason::Suspended, 30, 3_630), gap(GapReason::Unreachable, 3_660, 3_720)]);
    let fit = fit_loss(&probes.rows);
    // The lost ones before the host slept may have been answered.
    assert_eq!((fit.sent_packets, fit.lost_packets), (8_800, 200), "{fit:?}");
    let [outage] = fit.outages[..] else { panic!("{fit:?}") };
    assert_eq!((outage.packets, outage.lasting_ns), (200, 2_000_000_000));
    let [said] = &probes.notes[..] else { panic!("{:?}", probes.notes) };
    assert!(said.contains("2 gaps") && said.contains("3660.0 s") && said.contains("200 unanswered"), "{said}");
}

/// A clock that is set back or forward moves no probe.
#[test]
fn rows_behind_a_step_of_the_clock_go_by_the_clock_before() {
    use longhaul_rtt::{Gap, GapReason};

    for step_ns in [-5_000_000_000_i64, 5_000_000_000] {
        let sent = |n: i64| n * 10_000_000;
        let row = |n: i64| Probe {
            sent_ns: sent(n) + if n < 1_000 { 0 } else { step_ns },
            rtt_ns: Some(1),
            ..Probe::default()
        };
        let mut probes =
            longhaul_profile::Probes { rows: (0..2_000).map(row).collect(), ..longhaul_profile::Probes::default() };
        let (from_ns, to_ns) = (sent(999) + 1, sent(999) + 9_000_000 + step_ns);
        probes.leave_out(&[Gap { why: GapReason::ClockStepped, from_ns, to_ns, step_ns, left_out: 0 }]);
        assert!(probes.rows.iter().enumerate().all(|(n, row)| row.sent_ns == sent(n as i64)), "{step_ns}");
        assert_eq!(probes.rows.iter().filter(|row| row.after_gap).count(), 1);
    }
}

/// Losses on both sides of a pause are two runs; without its mark they would be one, as long as the pause, and an outage.
#[test]
fn losses_around_a_pause_are_no_outage() {
    use longhaul_rtt::{Gap, GapReason};

    let second = 1_000_000_000;
    let row = |n: i64| Probe {
        sent_ns: n * 10_000_000 + if n < 3_000 { 0 } else { 3_600 * second },
        rtt_ns: (!(2_940..3_060).contains(&n)).then_some(5_000_000),
        ..Probe::default()
    };
    let mut probes =
        longhaul_profile::Probes { rows: (0..6_000).map(row).collect(), ..longhaul_profile::Probes::default() };
    let (from_ns, to_ns) = (30 * second - 10_000_000, 3_630 * second);
    probes.leave_out(&[Gap { why: GapReason::Paused, from_ns, to_ns, step_ns: 0, left_out: 0 }]);
    let fit = fit_loss(&probes.rows);
    assert_eq!((fit.sent_packets, fit.lost_packets, fit.runs), (6_000, 120, 2), "{fit:?}");
    assert_eq!(fit.outages, []);
    probes.rows.iter_mut().for_each(|row| row.after_gap = false);
    assert_eq!(fit_loss(&probes.rows).outages.len(), 1, "the mark is what keeps them apart");
}
