//! Laws of loss with known parameters.

use longhaul_profile::{LossLaw, Probe, fit_loss};

use crate::probes;

/// Of 1000 runs 950 intervals of 95 % hold the truth; 930 to 970 are asked.
const RUNS: u64 = if cfg!(debug_assertions) { 300 } else { 1_000 };

fn holds(share: f64, what: &str) {
    // Four standard errors of a share of 0.95, and the 2 % that are asked of 1000 runs.
    let error = 2.9 * (0.95 * 0.05 / RUNS as f64).sqrt();
    println!("{what}: {share}");
    assert!((share - 0.95).abs() < error.max(0.02), "{what}: {share}");
}

#[test]
fn independent_losses_lie_within_their_interval() {
    let (mut inside, mut bursts) = (0, 0);
    for seed in 0..RUNS {
        let measured = probes("[[forward]]\ndelay = '10ms'\nloss = { random = '1%' }\n", 10_000, 10.0, seed);
        match fit_loss(&measured.rows).law {
            LossLaw::Random { interval: [least, most], .. } => inside += u32::from(least <= 0.01 && 0.01 <= most),
            _ => bursts += 1,
        }
    }
    holds(f64::from(inside) / (RUNS - bursts) as f64, "chance");
    assert!(bursts as f64 <= 0.025 * RUNS as f64, "{bursts} of {RUNS} independent ones told as bursts");
}

#[test]
fn bursts_lie_within_their_intervals() {
    let (mut lasting, mut every, mut random) = (0, 0, 0);
    let text = "[[forward]]\ndelay = '10ms'\nloss = { bursts = { for = '40ms', every = '2s' } }\n";
    for seed in 0..RUNS {
        let measured = probes(text, 40_000, 10.0, seed);
        match fit_loss(&measured.rows).law {
            LossLaw::Bursts { lasting_interval_ns: a, every_interval_ns: b, .. } => {
                lasting += u32::from(a[0] <= 40e6 && 40e6 <= a[1]);
                every += u32::from(b[0] <= 2e9 && 2e9 <= b[1]);
            }
            _ => random += 1,
        }
    }
    assert_eq!(random, 0, "bursts told as independent");
    holds(f64::from(lasting) / RUNS as f64, "how long a burst lasts");
    holds(f64::from(every) / RUNS as f64, "how often bursts come");
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
