//! What `longhaul compare` prints for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_trace::compare::behaviour::Verdict;
use longhaul_trace::compare::{CompareResult, Direction, IntervalBin, Points};

use super::analyze::time;
use super::visible;

/// Runs of lost packets that are printed; JSON has them all.
const PRINTED_RUNS: usize = 20;

/// What the path between two points did, or whether two runs behave alike.
pub fn report(result: &CompareResult) -> String {
    let mut text = String::new();
    if let Some(points) = &result.points {
        points_lines(&mut text, points);
    }
    if let Some(behaviour) = &result.behaviour {
        text += match behaviour.alike {
            Some(true) => "The two behave alike as far as the tests can tell.\n",
            Some(false) => "The two do not behave alike.\n",
            None => "There is too little in them to tell whether they behave alike.\n",
        };
        tests(&mut text, behaviour);
    }
    visible(&text)
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
        text.push_str("Both stamps are taken as of one clock\n");
    }
    for shown in &points.directions {
        let between = &shown.between;
        let way = if between.direction == Direction::AToB { "A to B" } else { "B to A" };
        let share = between.lost_packets as f64 * 100.0 / between.sent_packets.max(1) as f64;
        let _ = writeln!(
            text,
            "\n{way}: {} of {} packets lost ({share:.4} %), {} out of order, {} seen at the second point alone",
            between.lost_packets, between.sent_packets, between.reordered_packets, between.unknown_packets
        );
        if let Some(delay) = &between.delay {
            let [min, p50, p99, max, stddev] =
                [delay.min_ns, delay.p50_ns, delay.p99_ns, delay.max_ns, delay.stddev_ns].map(time);
            let _ = writeln!(text, "  delay min {min}, median {p50}, 99 % {p99}, max {max}, stddev {stddev}");
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
        if between.lost.len() > PRINTED_RUNS {
            let _ = writeln!(text, "  and {} runs more", between.lost.len() - PRINTED_RUNS);
        }
        match between.spacing.alike {
            Some(true) => text.push_str("  packets keep their spacing\n"),
            Some(false) => text.push_str("  the path changes the packets' spacing\n"),
            None => {}
        }
        tests(text, &between.spacing);
        intervals(text, &shown.intervals);
    }
}

/// Intervals at both points side by side, by octaves: how many, and what share of all.
fn intervals(text: &mut String, bins: &[IntervalBin]) {
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
    let _ = writeln!(text, "  {:>12}  {:>20}  {:>20}", "interval from", "first point", "second point");
    for (octave, (first, second)) in octaves {
        let share = |count: u64, all: u64| format!("{count} ({:.1} %)", count as f64 * 100.0 / all.max(1) as f64);
        let (first, second) = (share(first, all.0), share(second, all.1));
        let _ = writeln!(text, "  {:>13}  {first:>20}  {second:>20}", time(f64::from(octave).exp2()));
    }
}

fn tests(text: &mut String, verdict: &Verdict) {
    for test in &verdict.tests {
        let value = |value: f64| {
            if test.of.ends_with("_ns") { time(value) } else { format!("{:.0}", value.clamp(-1e18, 1e18)) }
        };
        let _ = writeln!(
            text,
            "  {}: median {} and {}, 99 % {} and {}; distance {:.3}, p = {:.2e}",
            test.of.trim_end_matches("_ns").trim_end_matches("_bps").replace(['_', '\n'], " "),
            value(test.medians[0]),
            value(test.medians[1]),
            value(test.p99[0]),
            value(test.p99[1]),
            test.distance.clamp(0.0, 1.0),
            test.kolmogorov_smirnov_p
        );
    }
}
