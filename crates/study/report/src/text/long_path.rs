//! Whether a short path stands for a long one, as text.

use std::fmt::Write;

use longhaul_diagnosis::{LongPath, LongPathTest, Verdict, about};
use longhaul_units::{BitRate, Nanos};

/// What the long path needs, before the test: the time, too.
pub fn needed(long: &LongPath, time_ns: u64) -> String {
    let mut text = format!(
        "{}/s over {} need a window of {} packets; {} keeps it if {} packets pass from one loss to the next\n",
        BitRate(long.rate_bps),
        Nanos(long.rtt_ns),
        long.window_packets,
        long.congestion_control,
        long.run_length_packets
    );
    let needed = duration(long.time_to_pass_ns);
    // Writing to a string cannot fail.
    let _ = write!(text, "passing needs {needed} without a loss; failing needs less");
    if long.time_to_pass_ns > time_ns {
        let _ = write!(text, "\nwith --time {} the test can fail but cannot pass", Nanos(time_ns));
    }
    text
}

/// The verdicts and what they were made from.
pub fn report(test: &LongPathTest) -> String {
    let long = &test.target;
    let mut text = format!("{}\n", headline(test));
    let run = match test.run_length {
        Verdict::Pass => "pass: losses are rare enough",
        Verdict::Fail => "fail: losses come too often",
        Verdict::NotEnough => "not enough packets to know",
    };
    let _ = writeln!(text, "{:<12}{run}", "run length");
    let _ = writeln!(
        text,
        "{:<12}{} losses ({} packets) in {} packets at {}/s; one in {} is allowed for {} over {}",
        "",
        test.losses,
        test.lost_packets,
        test.sent_packets,
        about(test.sent_bps),
        long.run_length_packets,
        long.congestion_control,
        Nanos(long.rtt_ns)
    );
    if test.run_length == Verdict::NotEnough {
        let _ = writeln!(text, "{:<12}passing needs {}: give --time", "", duration(long.time_to_pass_ns));
    }
    if let Some(expected) = test.expected_bps.filter(|_| test.run_length == Verdict::Fail) {
        let _ = writeln!(
            text,
            "{:<12}with these losses {} reaches {}/s over {}; `longhaul udp HOST -b {} --wire` tells where packets are lost",
            "",
            long.congestion_control,
            about(expected),
            Nanos(long.rtt_ns),
            BitRate(long.rate_bps)
        );
    }
    let slow_start = match test.slow_start {
        Verdict::Pass => "pass: queues take a window at twice the rate",
        Verdict::Fail => "fail: a queue is shorter than half a window, so slow start ends early",
        Verdict::NotEnough => "not known: the sender could not send at twice the rate",
    };
    let _ = writeln!(text, "{:<12}{slow_start}", "slow start");
    for burst in &test.bursts {
        let _ = writeln!(
            text,
            "{:<12}{} of {} packets lost at {}/s",
            "",
            burst.lost_packets,
            burst.sent_packets,
            about(burst.sent_bps)
        );
    }
    text
}

/// The answer in a sentence.
fn headline(test: &LongPathTest) -> String {
    let flow = format!(
        "{} at {}/s over {}",
        test.target.congestion_control,
        BitRate(test.target.rate_bps),
        Nanos(test.target.rtt_ns)
    );
    match (test.run_length, test.slow_start) {
        (Verdict::Fail, Verdict::Fail) => {
            format!("This path is not good enough for {flow}: it loses packets, and a queue is too short.")
        }
        (Verdict::Fail, _) => format!("This path is not good enough for {flow}: it loses packets too often."),
        (_, Verdict::Fail) => format!("This path would slow the start of {flow}: a queue is too short."),
        (Verdict::Pass, Verdict::Pass) => format!("This path is good enough for {flow}."),
        _ => format!("It is not known yet whether this path is good enough for {flow}."),
    }
}

/// Up to hours, in the unit that fits.
fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        0.0..120.0 => Nanos(ns).rounded(),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        7_200.0..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}
