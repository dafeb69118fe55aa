//! How often a path that is the measured one is told as another, and another as the same.

use longhaul_profile::{Profile, ProfileOptions, QuantityName, Verdict, verify};

use crate::{path, probes};

const TRUE: &str = "[[forward]]\ndelay = '20ms'\njitter = { law = 'normal', stddev = '1ms', correlation = '30ms' }\n\
    loss = { bursts = { for = '40ms', every = '2s' } }\n[[backward]]\ndelay = '20ms'\n";

/// A path is told as outside of what it made itself in at most 5 % of the runs, quantity by quantity.
#[test]
fn what_a_path_made_is_not_outside_of_it() {
    let runs = if cfg!(debug_assertions) { 40 } else { 300 };
    let (mut outside, mut of) = (0, 0);
    for seed in 0..runs {
        let measured = probes(TRUE, 12_000, 10.0, 1_000 + seed);
        let found = verify(&path(TRUE), &measured, &[], 1);
        of += found.quantities.len();
        outside += found.quantities.iter().filter(|quantity| quantity.verdict == Verdict::Outside).count();
    }
    println!("{outside} of {of} outside");
    assert!(outside as f64 <= 0.05 * of as f64, "{outside} of {of}");
}

/// One thing changed, beyond its margin: that is named.
#[test]
fn what_differs_is_named() {
    let measured = probes(TRUE, 60_000, 10.0, 9);
    for (from, to, name) in [
        ("delay = '20ms'", "delay = '21ms'", QuantityName::RttMedianNs),
        ("stddev = '1ms'", "stddev = '1.3ms'", QuantityName::RttRangeNs),
        ("correlation = '30ms'", "correlation = '8ms'", QuantityName::RttCorrelation),
        ("for = '40ms'", "for = '80ms'", QuantityName::LossRunPackets),
        ("every = '2s'", "every = '5s'", QuantityName::LossShare),
        ("delay = '20ms'", "duplicate = '2%'\ndelay = '20ms'", QuantityName::DuplicateShare),
    ] {
        let found = verify(&path(&TRUE.replacen(from, to, 1)), &measured, &[], 1);
        let quantity = found.quantities.iter().find(|quantity| quantity.name == name).unwrap();
        assert_eq!(quantity.verdict, Verdict::Outside, "{to}: {found:#?}");
        assert_eq!(found.verdict, Verdict::Outside);
    }
}

/// Ten minutes of probes to a path file, and that file against another ten minutes of the same path.
#[test]
fn a_profile_is_within() {
    let copy =
        Profile::of(&probes(TRUE, 200_000, 10.0, 21), &ProfileOptions { same_clock: true, ..Default::default() });
    let measured = probes(TRUE, 200_000, 10.0, 22);
    let found = verify(&copy.unwrap().path, &measured, &[], 1);
    println!("{found:#?}");
    assert_eq!(found.verdict, Verdict::Within, "{found:#?}");
    // Five seconds say nothing.
    let few = probes(TRUE, 500, 10.0, 22);
    let found = verify(&path(TRUE), &few, &[], 1);
    assert_eq!(found.verdict, Verdict::TooLittleData, "{found:#?}");
}

#[test]
fn margins_are_read() {
    let margin = "p99=5%".parse::<longhaul_profile::Margin>().unwrap();
    assert_eq!((margin.name, margin.share), (QuantityName::RttP99Ns, 0.05));
    for wrong in ["p99", "p99=", "p99=-1", "p99=x", "colour=5%", "correlation=5%", "loss=NaN"] {
        assert!(wrong.parse::<longhaul_profile::Margin>().is_err(), "{wrong}");
    }
    let tight = ["range=0%".parse().unwrap(), "median=0%".parse().unwrap()];
    let found = verify(&path(TRUE), &probes(TRUE, 12_000, 10.0, 1), &tight, 1);
    let range = found.quantities.iter().find(|quantity| quantity.name == QuantityName::RttRangeNs).unwrap();
    assert_eq!(range.margin, 20_000.0);
}

/// The curves have every quantile of both, and say when what was lost.
#[test]
fn curves_follow_both() {
    let measured = probes(TRUE, 30_000, 10.0, 5);
    let later = TRUE.replacen("delay = '20ms'", "delay = '23ms'", 1);
    let curves = verify(&path(&later), &measured, &[], 1).curves;
    let (first, last) = (curves.levels[0], curves.levels[curves.levels.len() - 1]);
    assert_eq!(first.longer, 1.0);
    let longest = measured.rows.iter().filter_map(|row| row.rtt_ns).max().unwrap();
    assert_eq!(last.measured_ns as u64, longest);
    assert!(curves.levels.windows(2).all(|pair| pair[1].longer < pair[0].longer), "{:?}", curves.levels);
    let apart = |level: &longhaul_profile::Level| level.path_ns - level.measured_ns;
    let body = curves.levels.iter().filter(|level| (0.02..=0.98).contains(&level.longer));
    assert!(body.clone().count() > 150 && body.clone().all(|level| (apart(level) - 3e6).abs() < 5e5));
    for stretches in [&curves.measured, &curves.path] {
        assert_eq!(stretches.iter().map(|stretch| stretch.sent).sum::<u64>(), 30_000);
        assert!(
            stretches.iter().all(|stretch| stretch.rtt_ns.is_some_and(|[low, mid, high]| low <= mid && mid <= high))
        );
    }
    let lost: u64 = curves.measured.iter().map(|stretch| stretch.lost).sum();
    assert_eq!(lost, measured.lost());
}
