//! From probes to a path, where the true path is known.

use longhaul_path::spec::{LossSpec, Order, PathSpec, no_files};
use longhaul_profile::{Profile, ProfileError, ProfileOptions, Split};

use crate::probes;

fn profile(measured: &longhaul_profile::Probes, same_clock: bool) -> Profile {
    let options =
        ProfileOptions { name: "copy".into(), source: "test".into(), same_clock, ..ProfileOptions::default() };
    Profile::of(measured, &options).unwrap()
}

/// Its file is read again as the same path, comments and all.
fn reads_back(profile: &Profile) {
    let read =
        PathSpec::parse(&profile.path_file, &no_files).unwrap_or_else(|error| panic!("{error}\n{}", profile.path_file));
    assert_eq!(read, profile.path);
}

#[test]
fn each_way_is_found_where_one_clock_stamps() {
    let text = "[[forward]]\ndelay = '30ms'\njitter = { law = 'normal', stddev = '1ms', correlation = '100ms' }\n\
        [[backward]]\ndelay = '20ms'\njitter = { law = 'uniform', stddev = '300us', correlation = '50ms' }\n";
    let copy = profile(&probes(text, 60_000, 10.0, 4), true);
    reads_back(&copy);
    assert_eq!(copy.split, Split::OneClock);
    let [forward, backward] = [&copy.path.forward[0], &copy.path.backward[0]];
    for (hop, delay, stddev, correlation) in [(forward, 30e6, 1e6, 100e6), (backward, 20e6, 300e3, 50e6)] {
        let jitter = hop.jitter.as_ref().unwrap();
        assert!((hop.delay.0 as f64 - delay).abs() < 0.05 * stddev + 1_000.0, "{hop:?}");
        assert!((jitter.stddev.0 as f64 / stddev - 1.0).abs() < 0.03, "{}", jitter.stddev);
        let found = jitter.correlation.unwrap().0 as f64;
        assert!((found / correlation - 1.0).abs() < 0.1, "{found} of {correlation}");
        assert_eq!(jitter.order, Order::Fifo);
    }
    assert!(copy.not_known.iter().all(|said| !said.contains("split")), "{:?}", copy.not_known);
}

/// Trains of 20 packets 0.2 ms apart, ten times a second, as a capture has them: the time is that of the packets, not of a mean interval.
#[test]
fn packets_in_trains_show_over_what_time_the_delay_changes() {
    let text = "[[forward]]\ndelay = '30ms'\njitter = { law = 'normal', stddev = '10us', correlation = '800us' }\n\
        [[backward]]\ndelay = '20ms'\njitter = { law = 'normal', stddev = '10us', correlation = '200us', order = 'free' }\n";
    let mut measured = probes(text, 500_000, 0.2, 6);
    let mut nth = 0;
    measured.rows.retain(|_| {
        nth += 1;
        nth % 500 < 20
    });
    let copy = profile(&measured, true);
    for (way, want) in [(&copy.forward, 800e3), (&copy.backward, 200e3)] {
        let found = way.as_ref().unwrap().correlation.unwrap();
        assert_eq!(found.neighbours_ns, 200_000);
        // A fifth of the pairs 0.8 ms apart are of two trains, and not alike.
        assert!((found.time_ns as f64 / want - 1.0).abs() < 0.15, "{found:?}, {want} asked");
    }
}

/// Trains of three: a third of the neighbours are of two trains, so that all together are less alike than 1/e, while those of a train are more alike.
#[test]
fn what_trains_show_is_not_called_faster_than_they_see() {
    let text = "[[forward]]\ndelay = '30ms'\njitter = { law = 'normal', stddev = '10us', correlation = '225us' }\n\
        [[backward]]\ndelay = '20ms'\njitter = { law = 'normal', stddev = '10us', correlation = '100us', order = 'free' }\n";
    let mut measured = probes(text, 500_000, 0.2, 7);
    let mut nth = 0;
    measured.rows.retain(|_| {
        nth += 1;
        nth % 100 < 3
    });
    let copy = profile(&measured, true);
    let [forward, backward] = [&copy.forward, &copy.backward].map(|way| way.as_ref().unwrap().correlation.unwrap());
    assert!(forward.of_neighbours < 0.35 && !forward.below_interval, "{forward:?}");
    assert!((forward.time_ns as f64 / 225e3 - 1.0).abs() < 0.1, "{forward:?}");
    assert!(backward.below_interval && backward.time_ns <= 200_000, "{backward:?}");
}

/// Clocks 3 s apart that drift by 50 ppm: a change of 5 ms is given to the direction that it was in, and quantile ranges hold within 2 %.
#[test]
fn a_change_is_given_to_its_way() {
    let text = "[[forward]]\ndelay = '20ms'\njitter = { law = 'pareto', stddev = '300us', correlation = '50ms' }\n\
        [[backward]]\ndelay = '20ms'\njitter = { law = 'uniform', stddev = '500us', correlation = '50ms' }\n";
    let mut measured = probes(text, 60_000, 10.0, 5);
    let truth = profile(&measured, true).forward.unwrap();
    for row in &mut measured.rows {
        let step = if row.sent_ns > 300_000_000_000 { 5_000_000 } else { 0 };
        let clock = 3_000_000_000 + row.sent_ns / 20_000;
        row.backward_ns = row.backward_ns.map(|ns| ns + step - clock);
        row.forward_ns = row.forward_ns.map(|ns| ns + clock);
        row.rtt_ns = row.rtt_ns.map(|ns| ns + step as u64);
    }
    let copy = profile(&measured, false);
    reads_back(&copy);
    let (forward, backward) = (copy.forward.as_ref().unwrap(), copy.backward.as_ref().unwrap());
    let range = forward.p90_ns - forward.p10_ns;
    let true_range = truth.p90_ns - truth.p10_ns;
    assert!((range / true_range - 1.0).abs() < 0.02, "forward: {range} of {true_range}");
    let steps = backward.p90_ns - backward.p10_ns;
    assert!((5e6..7e6).contains(&steps), "backward: {steps}");
    assert_eq!(copy.split, Split::ShortestHalved);
    assert!(copy.not_known.iter().any(|said| said.contains("half each")), "{:?}", copy.not_known);
}

#[test]
fn round_trips_alone_say_that_the_split_is_a_guess() {
    let mut measured = probes(
        "[[forward]]\ndelay = '30ms'\njitter = { law = 'normal', stddev = '2ms', order = 'free' }\nloss = { random = '2%' }\nduplicate = '1%'\n",
        20_000,
        1.0,
        1,
    );
    for row in &mut measured.rows {
        (row.forward_ns, row.backward_ns) = (None, None);
    }
    let copy = profile(&measured, false);
    reads_back(&copy);
    assert_eq!(copy.split, Split::RoundTrips);
    assert!(matches!(copy.path.forward[0].loss, LossSpec::Random(chance) if (chance.0 - 0.02).abs() < 0.004));
    assert!((copy.path.forward[0].duplicate.0 - 0.01).abs() < 0.003);
    assert_eq!(copy.path.forward[0].jitter.as_ref().unwrap().order, Order::Free);
    assert!(copy.reordered_packets > 1_000);
    for (word, count) in [("all jitter forward", 1), ("which direction lost", 1), ("rate and queue", 1)] {
        assert_eq!(copy.path_file.matches(word).count(), count, "{word}\n{}", &copy.path_file[..2_000]);
    }
}

/// A probe each 20 hours, and delays that change over two days.
#[test]
fn what_changes_more_slowly_than_a_path_can_is_told() {
    let text = "[[forward]]\ndelay = '30ms'\njitter = { law = 'normal', stddev = '1ms', correlation = '20ms' }\n";
    let mut measured = probes(text, 2_000, 10.0, 8);
    measured.rows.iter_mut().for_each(|row| row.sent_ns *= 2 * 3_600_000);
    let copy = profile(&measured, true);
    reads_back(&copy);
    assert_eq!(copy.path.forward[0].jitter.as_ref().unwrap().correlation.unwrap().0, 24 * 3_600_000_000_000);
    assert!(copy.not_known.iter().any(|said| said.contains("more than 24h")), "{:?}", copy.not_known);
}

#[test]
fn a_wire_has_no_jitter_and_too_few_answers_no_path() {
    let measured = probes("[[both]]\ndelay = '10ms'\n", 100, 10.0, 1);
    let copy = profile(&measured, true);
    reads_back(&copy);
    assert!(copy.path.forward[0].jitter.is_none() && copy.path.forward[0].loss == LossSpec::None);
    let few = longhaul_profile::Probes { rows: measured.rows[..5].to_vec(), ..measured };
    let options = ProfileOptions::default();
    assert_eq!(Profile::of(&few, &options), Err(ProfileError::TooFew { answers: 5, sent: 5 }));
}
