//! How often a path that is the measured one is told as another, and another as the same.

use longhaul_flows::compare::equivalence::{QuantityName, Verdict};
use longhaul_path::spec::PathSpec;
use longhaul_profile::{Probe, Probes, Profile, ProfileOptions, TooLong, verify};

use crate::{path, probes};

const TRUE: &str = "[[forward]]\ndelay = '20ms'\njitter = { law = 'normal', stddev = '1ms', correlation = '30ms' }\n\
    loss = { bursts = { for = '40ms', every = '2s' } }\n[[backward]]\ndelay = '20ms'\n";

/// A path is told as outside of what it made itself in at most 5 % of the runs: the verdict over all quantities.
#[test]
fn what_a_path_made_is_not_outside_of_it() {
    let runs = crate::runs(40);
    let outside = |seed: u64| {
        let measured = probes(TRUE, 12_000, 10.0, 1_000 + seed);
        verify(&path(TRUE), &measured, &[], 1).unwrap().verdict == Verdict::Outside
    };
    let wrong = (0..runs).filter(|seed| outside(*seed)).count();
    println!("{wrong} of {runs} outside");
    assert!(wrong as f64 <= 0.05 * runs as f64, "{wrong} of {runs}");
}

/// One thing changed, beyond its margin: that is named.
#[test]
fn what_differs_is_named() {
    let measured = probes(TRUE, 60_000, 10.0, 9);
    for (from, to, name) in [
        ("delay = '20ms'", "delay = '21ms'", QuantityName::MedianNs),
        ("stddev = '1ms'", "stddev = '1.3ms'", QuantityName::RangeNs),
        ("correlation = '30ms'", "correlation = '8ms'", QuantityName::Correlation),
        ("for = '40ms'", "for = '80ms'", QuantityName::LossRunPackets),
        ("every = '2s'", "every = '5s'", QuantityName::LossShare),
        ("delay = '20ms'", "duplicate = '2%'\ndelay = '20ms'", QuantityName::DuplicateShare),
    ] {
        let found = verify(&path(&TRUE.replacen(from, to, 1)), &measured, &[], 1).unwrap();
        let quantity = found.directions[0].quantities.iter().find(|quantity| quantity.name == name).unwrap();
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
    let found = verify(&copy.unwrap().path, &measured, &[], 1).unwrap();
    println!("{found:#?}");
    assert_eq!(found.verdict, Verdict::Within, "{found:#?}");
    // Five seconds say nothing.
    let few = probes(TRUE, 500, 10.0, 22);
    let found = verify(&path(TRUE), &few, &[], 1).unwrap();
    assert_eq!(found.verdict, Verdict::TooLittleData, "{found:#?}");
}

#[test]
fn a_margin_is_at_least_what_a_host_adds() {
    let tight = ["range=0%".parse().unwrap(), "median=0%".parse().unwrap()];
    let found = verify(&path(TRUE), &probes(TRUE, 12_000, 10.0, 1), &tight, 1).unwrap();
    let range = found.directions[0].quantities.iter().find(|quantity| quantity.name == QuantityName::RangeNs).unwrap();
    assert_eq!(range.margin, 20_000.0);
}

/// ping(8) prints 40.1 ms of 40.07 ms and of 40.13 ms: neither does the path lack jitter that this makes, nor has it what this hides.
#[test]
fn what_was_read_coarsely_is_compared_coarsely() {
    const STEADY: &str =
        "[[forward]]\ndelay = '20.1ms'\njitter = { law = 'normal', stddev = '60us' }\n[[backward]]\ndelay = '20ms'\n";
    let mut measured = probes(STEADY, 12_000, 10.0, 3);
    for row in &mut measured.rows {
        row.rtt_ns = row.rtt_ns.map(|rtt| (rtt + 50_000) / 100_000 * 100_000);
        row.resolution_ns = 100_000;
    }
    let copy = Profile::of(&measured, &ProfileOptions::default()).unwrap().path;
    let found = verify(&path(STEADY), &measured, &[], 1).unwrap();
    assert_eq!(found.verdict, Verdict::Within, "{found:#?}");
    // Its neighbours are a little alike, so that they are worth fewer.
    let found = verify(&copy, &measured, &[], 1).unwrap();
    assert_ne!(found.verdict, Verdict::Outside, "{found:#?}");
    let wider = verify(&path(&STEADY.replacen("60us", "600us", 1)), &measured, &[], 1).unwrap();
    assert_eq!(wider.verdict, Verdict::Outside, "{wider:#?}");
}

/// The curves have every quantile of both, and say when what was lost.
#[test]
fn curves_follow_both() {
    let measured = probes(TRUE, 30_000, 10.0, 5);
    let later = TRUE.replacen("delay = '20ms'", "delay = '23ms'", 1);
    let curves = verify(&path(&later), &measured, &[], 1).unwrap().directions.remove(0).curves;
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

/// Packets of both directions by themselves, as captures at both ends show them: each direction's delay and losses are known, and found again.
#[test]
fn captures_at_both_ends_tell_each_way() {
    use longhaul_profile::{LossLaw, Passage, Probes, Split, simulate_ways};

    const BOTH: &str = "[[forward]]\ndelay = '20ms'\njitter = { law = 'normal', stddev = '1ms', correlation = '30ms' }\n\
        loss = { random = '0.5%' }\n[[backward]]\ndelay = '12ms'\nloss = { bursts = { for = '60ms', every = '2s' } }\n";
    let captured = |seed: u64, both: &str| {
        let passage = |sent_ns: i64, frame_bytes| Passage { sent_ns, frame_bytes, ..Passage::default() };
        let way = |after_ns: i64, frame_bytes: u32| -> Vec<Passage> {
            (0..120_000).map(|n| passage(n * 2_000_000 + after_ns, frame_bytes)).collect()
        };
        Probes::of_ways(simulate_ways(&path(both), &[way(0, 1_514), way(7, 66)], seed), None)
    };
    let profile = Profile::of(&captured(3, BOTH), &ProfileOptions::default()).unwrap();
    assert_eq!(profile.split, Split::OneClock);
    let (forward, backward) = (profile.forward.as_ref().unwrap(), profile.backward.as_ref().unwrap());
    assert!((forward.p50_ns / 20e6 - 1.0).abs() < 0.01 && (forward.stddev_ns / 1e6 - 1.0).abs() < 0.1, "{forward:?}");
    assert!((backward.p50_ns / 12e6 - 1.0).abs() < 1e-3 && backward.stddev_ns < 1_000.0, "{backward:?}");
    assert!((profile.rtt.p50_ns / 32e6 - 1.0).abs() < 0.01, "{:?}", profile.rtt);
    let LossLaw::Random { interval: [least, most], .. } = profile.loss.law else { panic!("{:?}", profile.loss) };
    assert!(least < 0.005 && 0.005 < most && most - least < 0.002, "{:?}", profile.loss);
    let Some(LossLaw::Bursts { lasting_ns, .. }) = profile.backward_loss.as_ref().map(|fit| fit.law) else {
        panic!("{:?}", profile.backward_loss)
    };
    assert!((lasting_ns / 60e6 - 1.0).abs() < 0.4, "{lasting_ns}");
    assert!(!profile.not_known.iter().any(|said| said.contains("which direction lost")), "{:?}", profile.not_known);
    // The file says both.
    let (there, back) = profile.path_file.split_once("[[backward]]").unwrap();
    assert!(there.contains("random") && back.contains("bursts"), "{}", profile.path_file);

    let found = verify(&profile.path, &captured(4, BOTH), &[], 1).unwrap();
    assert_ne!(found.verdict, Verdict::Outside, "{found:#?}");
    assert_eq!(
        found.directions.iter().map(|direction| direction.of.name()).collect::<Vec<_>>(),
        ["forward", "backward"]
    );
    // One way alone changed: that way alone is outside.
    let other = verify(&path(&BOTH.replace("12ms", "13ms")), &captured(4, BOTH), &[], 1).unwrap();
    let outside = |nth: usize| {
        let all = other.directions[nth].quantities.iter().filter(|quantity| quantity.verdict == Verdict::Outside);
        all.map(|quantity| quantity.name).collect::<Vec<_>>()
    };
    assert_eq!((outside(0), outside(1)), (vec![], vec![QuantityName::MedianNs]), "{other:#?}");
}

/// Losses that have no row of their own are fitted by the runs in which they came.
#[test]
fn losses_without_rows_are_fitted() {
    use longhaul_profile::{LossLaw, LossesSeen};

    let of = |runs: Vec<(u64, u64)>| {
        let seen = LossesSeen { runs, apart_ns: 100_000 };
        let measured =
            longhaul_profile::Probes { losses: Some(seen), ..probes("[[both]]\ndelay = '10ms'\n", 5_000, 10.0, 1) };
        let profile = Profile::of(&measured, &ProfileOptions::default()).unwrap();
        // Where losses have no rows, the path's are not laid to the measurement's charge.
        assert_ne!(verify(&profile.path, &measured, &[], 1).unwrap().verdict, Verdict::Outside);
        profile.loss
    };
    let alone = of(vec![(999, 1); 300]);
    assert_eq!((alone.sent_packets, alone.lost_packets, alone.runs), (300_000, 300, 300));
    assert!(matches!(alone.law, LossLaw::Random { chance, .. } if (chance - 0.001).abs() < 1e-9), "{alone:?}");
    let bursts = of(vec![(990, 10); 300]);
    assert!(
        matches!(bursts.law, LossLaw::Bursts { lasting_ns, .. } if (lasting_ns / 1e6 - 1.0).abs() < 0.2),
        "{bursts:?}"
    );
    let none = of(vec![(5_000, 0)]);
    assert!(matches!(none.law, LossLaw::None { less_than } if less_than < 0.001), "{none:?}");
}

/// Acknowledgments that a hop bunches: found with their time, and packets that keep their spacing are not.
#[test]
fn bunches_are_found() {
    use longhaul_profile::{Passage, Probes, simulate_ways};

    let profile = |coalesce: &str| {
        let text = format!("[[forward]]\ndelay = '10ms'\n[[backward]]\ndelay = '10ms'\n{coalesce}");
        let passage = |sent_ns: i64, frame_bytes| Passage { sent_ns, frame_bytes, ..Passage::default() };
        let way = |after_ns: i64, frame_bytes: u32| -> Vec<Passage> {
            (0..50_000).map(|n| passage(n * 24_000 + after_ns, frame_bytes)).collect()
        };
        let captured = Probes::of_ways(simulate_ways(&path(&text), &[way(0, 1_514), way(7, 66)], 1), None);
        Profile::of(&captured, &ProfileOptions::default()).unwrap()
    };
    let found = profile("coalesce = { time = '200us' }");
    let bunches = found.backward_bunches.unwrap();
    assert!((bunches.time_ns as f64 / 200e3 - 1.0).abs() < 0.15 && bunches.packets > 7.0, "{bunches:?}");
    assert!((found.backward.as_ref().unwrap().p50_ns / 10e6 - 1.0).abs() < 0.005, "{:?}", found.backward);
    assert_eq!(found.forward_bunches, None);
    assert!(
        found.path_file.contains("arrive in bunches") && found.path_file.contains("coalesce = "),
        "{}",
        found.path_file
    );
    assert_eq!(profile("").backward_bunches, None);
}

/// Packets that leave together show the rate of the slowest link, and what they wait for each other there is no jitter. Packets that leave
/// evenly, or arrive together, show none.
#[test]
fn trains_of_captured_packets_show_the_rate() {
    use longhaul_profile::{Passage, Probes, simulate_ways};

    let captured = |path_text: &str, together: i64, apart_ns: i64, joined: bool, seed| {
        let passage = |sent_ns: i64, frame_bytes| Passage { sent_ns, frame_bytes, ..Passage::default() };
        let there = (0..40_000).map(|n| passage(n / together * 10_000_000 + n % together * apart_ns, 1_514)).collect();
        let back = (0..40_000).map(|n| passage(n * 1_000_000 + 7, 66)).collect();
        let mut ways = simulate_ways(&path(path_text), &[there, back], seed);
        if joined {
            // Fours that GRO joins have the stamp of the last one.
            for four in ways[0].chunks_mut(4) {
                let last = four[3].sent_ns + four[3].delay_ns.unwrap_or_default() as i64;
                four.iter_mut().for_each(|passage| passage.delay_ns = Some((last - passage.sent_ns) as f64));
            }
        }
        Probes::of_ways(ways, None)
    };
    let text = "[[forward]]\ndelay = '10ms'\njitter = { law = 'normal', stddev = '50us', correlation = '2s' }\n\
        rate = '20Mbit'\n[[backward]]\ndelay = '10ms'\n";
    let of = |probes: &Probes| Profile::of(probes, &ProfileOptions::default()).unwrap();
    let found = of(&captured(text, 8, 1_200, false, 1));
    let queue = found.forward_queue.as_ref().unwrap_or_else(|| panic!("{:?}", found.not_known));
    assert!((queue.rate_bps as f64 / 20e6 - 1.0).abs() < 0.02, "{queue:?}");
    assert!(found.path_file.contains("left together") && found.path_file.contains("rate = "), "{}", found.path_file);
    let forward = found.forward.as_ref().unwrap();
    assert!(forward.stddev_ns < 100_000.0, "without the waits, which reach 4.3 ms: {forward:?}");
    let again = verify(&found.path, &captured(text, 8, 1_200, false, 2), &[], 1).unwrap();
    assert_ne!(again.verdict, Verdict::Outside, "{again:#?}");
    for (together, apart_ns, joined, why) in
        [(1, 0, false, "no faster"), (8, 1_200_000, false, "no faster"), (8, 1_200, true, "stamp of the one before")]
    {
        let none = of(&captured(text, together, apart_ns, joined, 1));
        assert_eq!(none.forward_queue, None, "{why}");
        assert!(none.not_known.iter().any(|said| said.contains(why)), "{why}: {:?}", none.not_known);
    }
}

/// What the emulator may have added is not laid to the path's charge, and hides nothing that is shorter.
#[test]
fn lateness_is_taken_into_account() {
    use longhaul_profile::{Lateness, verify_measured};

    let measured = probes(TRUE, 60_000, 10.0, 9);
    let later = probes(&TRUE.replacen("'20ms'", "'20.6ms'", 1), 60_000, 10.0, 10);
    let median = |tested, measured, p50_ns: u64| {
        let found = verify_measured(tested, measured, &[], Lateness { p50_ns, p99_ns: p50_ns });
        found.directions[0].quantities.iter().find(|quantity| quantity.name == QuantityName::MedianNs).unwrap().verdict
    };
    assert_eq!(median(&later, &measured, 0), Verdict::Outside);
    assert_eq!(median(&later, &measured, 300_000), Verdict::TooLittleData);
    assert_eq!(median(&measured, &later, 300_000), Verdict::Outside);
}

/// A small file can say to have lost so many pings, and another that each of its hops has a thousand outages, or makes copies.
#[test]
fn what_would_take_minutes_is_refused() {
    let outages = ["{ at = '1s', for = '1ms', every = '1s' }"; 1_000].join(", ");
    let [busy, copying] = [format!("outages = [{outages}]"), "duplicate = '4%'".into()]
        .map(|does| path(&format!("[[forward]]\ndelay = '1ms'\n{does}\n")).forward.remove(0));
    let pings = |count: i64| {
        let ping = |nth: i64| Probe { sent_ns: nth * 10_000_000, rtt_ns: Some(1_000_000), ..Probe::default() };
        Probes { rows: (0..count).map(ping).collect(), frame_bytes: 98, ..Probes::default() }
    };
    for hop in [busy, copying] {
        let many = PathSpec { forward: vec![hop.clone(); 64], backward: vec![hop; 64], ..PathSpec::default() };
        assert_eq!(verify(&many, &pings(262_144), &[], 1).unwrap_err(), TooLong(262_144));
        let found = verify(&many, &pings(20), &[], 1).unwrap();
        assert_eq!((found.directions[0].packets, found.directions[0].path_packets), (20, 160));
    }
}
