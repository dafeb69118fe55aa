//! What `longhaul compare` prints for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_flows::compare::behaviour::{Behaviour, Test};
use longhaul_flows::compare::equivalence::Verdict;
use longhaul_flows::compare::{Between, CompareResult, IntervalBin, PathDirection, Points};

use super::analyze::time;
use super::visible;
use crate::equivalence::{Cells, header, why};

/// Runs of lost packets that are printed; JSON has them all.
const PRINTED_RUNS: usize = 20;

/// What the path between two points did, or whether two runs behave alike.
pub fn report(result: &CompareResult) -> String {
    let mut text = String::new();
    if let Some(behaviour) = &result.behaviour {
        text += &format!("{}\n\n", alike(behaviour));
        text += &header("A", "B");
        tests(&mut text, behaviour);
        text += "Times in ms; p99 is above the median; distance: of the distribution functions.\n";
    }
    let both = result.second_points.is_some();
    for (points, run) in [(&result.points, "first"), (&result.second_points, "second")] {
        let Some(points) = points else { continue };
        if both {
            text += &format!("\nThe {run} run, between its two points\n");
        }
        points_lines(&mut text, points);
    }
    visible(&text)
}

/// Whether two runs behave alike, and what decided, in two sentences.
pub fn alike(behaviour: &Behaviour) -> String {
    let (said, verdict) = match behaviour.alike {
        Some(true) => ("The two runs behave alike, within the margins.", Verdict::Within),
        Some(false) => ("The two runs do not behave alike.", Verdict::Outside),
        None => ("The two runs may behave alike: there is too little data to say.", Verdict::TooLittleData),
    };
    let all =
        behaviour.tests.iter().flat_map(|test| test.quantities.iter().map(|quantity| (named(&test.of), quantity)));
    visible(format!("{said} {}", why(verdict, all)).trim_end())
}

/// What happened between the points: of each direction its name, what was found in a few words, and how sure that is. Of two runs those of both.
pub fn found(result: &CompareResult) -> Vec<(String, [String; 2])> {
    let both = result.second_points.is_some();
    let mut all = Vec::new();
    for (points, run) in [(&result.points, "Run 1, "), (&result.second_points, "Run 2, ")] {
        let Some(points) = points else { continue };
        let run = if both { run } else { "" };
        for shown in &points.directions {
            let direction = if shown.between.direction == PathDirection::AToB { "A to B" } else { "B to A" };
            all.push((format!("{run}{direction}"), [sentences(&shown.between), certainty(points, &shown.between)]));
        }
    }
    all
}

fn sentences(between: &Between) -> String {
    let Between { sent_packets, lost_packets, .. } = between;
    let mut sentences = vec![match lost_packets {
        0 => format!("None of {sent_packets} packets was lost."),
        _ => format!(
            "{lost_packets} of {sent_packets} packets were lost, {:.4} %, at most {} in a row.",
            *lost_packets as f64 * 100.0 / (*sent_packets).max(1) as f64,
            between.longest_loss_run
        ),
    }];
    if between.reordered_packets > 0 {
        sentences.push(format!("{} were reordered.", between.reordered_packets));
    }
    sentences.extend(between.delay.map(|delay| {
        let [half, rare, longest] = [delay.p50_ns, delay.p99_ns, delay.max_ns].map(time);
        format!("Half took at most {half}, 99 % at most {rare}; the longest took {longest}.")
    }));
    sentences.join(" ")
}

/// How sure that is: how the clocks lie, and how many packets nothing is known of.
fn certainty(points: &Points, between: &Between) -> String {
    let clock = &points.clock;
    let clocks = match clock.offset_error_ns {
        _ if !clock.corrected => "Both captures are taken to use the same clock.".to_owned(),
        Some(error) => format!("The clocks were aligned by the packets: a delay may be wrong by {}.", time(error)),
        None => "The clocks were aligned by one direction only: delays are differences from the shortest.".to_owned(),
    };
    let not = &between.not_observable;
    let unknown = [not.at_second_packets, not.at_first_packets, not.outside_packets, between.alike_packets];
    match unknown.into_iter().fold(0, u64::saturating_add) {
        0 => format!("{clocks} Each packet was looked for at both points."),
        unknown => format!("{clocks} Of {unknown} more packets it is not known whether they arrived."),
    }
}

// Writing to a string cannot fail.
fn points_lines(text: &mut String, points: &Points) {
    let clock = &points.clock;
    if clock.corrected {
        let error = clock.offset_error_ns.map_or("not known".into(), time);
        let _ = writeln!(
            text,
            "B's clock is {}{} ahead of A's (error at most {error}), and gains {:.3} us a second",
            if clock.offset_ns < 0.0 { "-" } else { "" },
            time(clock.offset_ns.abs()),
            clock.drift_ppb.clamp(-1e12, 1e12) / 1e3
        );
    } else {
        text.push_str("Both captures are taken to use the same clock\n");
    }
    for (name, gaps) in ["A", "B"].into_iter().zip(&points.gaps).filter(|(_, gaps)| gaps.count > 0) {
        let left_out = time(gaps.duration_ns as f64);
        let _ =
            writeln!(text, "{name} dropped packets in {} gaps, {left_out} in all: that time is left out", gaps.count);
    }
    for shown in &points.directions {
        let between = &shown.between;
        let direction = if between.direction == PathDirection::AToB { "A to B" } else { "B to A" };
        let share = between.lost_packets as f64 * 100.0 / between.sent_packets.max(1) as f64;
        let _ = writeln!(
            text,
            "\n{direction}: {} of {} packets lost ({share:.4} %), {} reordered, {} seen at the second point alone",
            between.lost_packets, between.sent_packets, between.reordered_packets, between.unknown_packets
        );
        let not = &between.not_observable;
        for (packets, why) in [
            (
                not.at_second_packets,
                "were due at the second point in a gap of its capture: whether they reached it is not known",
            ),
            (
                not.at_first_packets,
                "were captured at the second point alone, and were due at the first in a gap of its capture",
            ),
            (between.alike_packets, "look like others of their flow and were left out"),
            (not.outside_packets, "were due at the other point before its capture began or after it ended"),
        ] {
            if packets > 0 {
                let _ = writeln!(text, "  {packets} more {why}");
            }
        }
        if let Some(delay) = &between.delay {
            let [min, p50, p99, max, stddev] =
                [delay.min_ns, delay.p50_ns, delay.p99_ns, delay.max_ns, delay.stddev_ns].map(time);
            let _ = writeln!(text, "  delay min {min}, median {p50}, 99 % {p99}, max {max}, stddev {stddev}");
        }
        if between.loss_runs > 0 {
            let _ = writeln!(
                text,
                "  lost in {} runs, the longest of {} packets",
                between.loss_runs, between.longest_loss_run
            );
        }
        for run in between.lost.iter().take(PRINTED_RUNS) {
            let Some(path) = points.paths.get(run.path as usize) else { continue };
            let many = if run.packets > 1 { format!(" to {}", run.last_sequence) } else { String::new() };
            let _ = writeln!(
                text,
                "  lost {} of {} {} - {}: {}{many}",
                run.packets, path.protocol, path.src, path.dst, run.first_sequence
            );
        }
        let printed = between.lost.len().min(PRINTED_RUNS) as u64;
        if between.loss_runs > printed {
            let _ = writeln!(text, "  and {} more runs", between.loss_runs - printed);
        }
        match between.spacing.alike {
            Some(true) => text.push_str("  packets keep their spacing\n"),
            Some(false) => text.push_str("  the path changes the packets' spacing\n"),
            None => {}
        }
        spacing(text, &between.spacing);
        intervals(text, "data packets", &shown.intervals);
        intervals(text, "acknowledgments", &shown.ack_intervals);
    }
}

/// Intervals at both points side by side, by octaves: how many, and what share of all.
fn intervals(text: &mut String, of: &str, bins: &[IntervalBin]) {
    let all =
        bins.iter().fold((0_u64, 0_u64), |all, bin| (all.0 + u64::from(bin.first), all.1 + u64::from(bin.second)));
    if bins.is_empty() {
        return;
    }
    let mut octaves: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for bin in bins {
        let octave = octaves.entry(bin.from_ns.max(1.0).log2() as u32).or_default();
        octave.0 += u64::from(bin.first);
        octave.1 += u64::from(bin.second);
    }
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "  intervals between {of}:\n  {:>13}  {:>20}  {:>20}", "from", "first point", "second point");
    for (octave, (first, second)) in octaves {
        let share = |count: u64, all: u64| format!("{count} ({:.1} %)", count as f64 * 100.0 / all.max(1) as f64);
        let (first, second) = (share(first, all.0), share(second, all.1));
        let _ = writeln!(text, "  {:>13}  {first:>20}  {second:>20}", time(f64::from(octave).exp2()));
    }
}

/// A kind of sample for people.
fn named(of: &str) -> String {
    let unit = ["_ns", "_bps", "_packets"].iter().find_map(|unit| of.strip_suffix(unit));
    unit.unwrap_or(of).replace(['_', '\n'], " ")
}

/// What two points have of intervals.
fn spacing(text: &mut String, verdict: &Behaviour) {
    for Test { of, medians, p99, quantities, .. } in &verdict.tests {
        let [before, behind] = [0, 1].map(|nth| (time(medians[nth]), time(p99[nth])));
        let distance = quantities.first().map_or_else(String::new, |distance| {
            let Cells { difference, verdict, .. } = Cells::of(distance);
            format!("; distance {difference}: {verdict}")
        });
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    {}: median {} and {}, 99 % {} and {}{distance}",
            named(of),
            before.0,
            behind.0,
            before.1,
            behind.1
        );
    }
}

fn tests(text: &mut String, verdict: &Behaviour) {
    for test in &verdict.tests {
        let [a, b] = test.samples;
        let [worth_a, worth_b] = test.effective_samples;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} ({a} and {b}, effective sample sizes {worth_a} and {worth_b})", named(&test.of));
        for quantity in &test.quantities {
            *text += &Cells::of(quantity).row(&format!("  {}", quantity.name.name()));
        }
        if test.quantities.is_empty() {
            text.push_str("  in one run alone, or too few to compare\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_flows::compare::clocks::ClockFit;
    use longhaul_flows::compare::{Delay, GapsOf, NotObservable, Shown};

    use super::*;

    #[test]
    fn what_was_found_is_said_of_each_direction() {
        let between = Between {
            direction: PathDirection::AToB,
            sent_packets: 1_000,
            reached_packets: 988,
            lost_packets: 12,
            unknown_packets: 0,
            not_observable: NotObservable { outside_packets: 3, ..NotObservable::default() },
            alike_packets: 1,
            reordered_packets: 2,
            delay: Some(Delay { p50_ns: 5e6, p99_ns: 6e6, max_ns: 9e6, ..Delay::default() }),
            loss_runs: 4,
            longest_loss_run: 5,
            lost: Vec::new(),
            intervals: Default::default(),
            ack_intervals: Default::default(),
            spacing: Behaviour { alike: None, tests: Vec::new() },
        };
        let back = Between { direction: PathDirection::BToA, lost_packets: 0, delay: None, ..between.clone() };
        let gaps = GapsOf { count: 0, duration_ns: 0 };
        let points = Points {
            clock: ClockFit { corrected: true, offset_error_ns: Some(2e5), ..ClockFit::default() },
            by_identification: true,
            window_ns: 1,
            given_up_packets: 0,
            left_out_packets: 0,
            gaps: [gaps, gaps],
            paths: Vec::new(),
            directions: [between, back]
                .map(|between| Shown { between, intervals: Vec::new(), ack_intervals: Vec::new() })
                .into(),
        };
        let result = CompareResult { points: Some(points), second_points: None, behaviour: None };
        let [(there, [lost, sure]), (back, [none, _])] = &found(&result)[..] else { panic!("two directions") };
        assert_eq!((there.as_str(), back.as_str()), ("A to B", "B to A"));
        let expected = "12 of 1000 packets were lost, 1.2000 %, at most 5 in a row. 2 were reordered. \
                        Half took at most 5.000 ms, 99 % at most 6.000 ms; the longest took 9.000 ms.";
        assert_eq!(lost, expected);
        let expected = "The clocks were aligned by the packets: a delay may be wrong by 200.000 us. \
                        Of 4 more packets it is not known whether they arrived.";
        assert_eq!(sure, expected);
        assert_eq!(none, "None of 1000 packets was lost. 2 were reordered.");
    }
}
