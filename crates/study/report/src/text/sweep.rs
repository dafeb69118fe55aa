//! A sweep as text: a table for each setting, and where losses begin.

use std::fmt::Write;

use longhaul_sweep::{Knee, Metric, PointResult, SweepResult, common};
use longhaul_units::BitRate;

use super::{rate, short, visible};

/// All of it; the lines of tables have at most 80 characters.
pub fn report(result: &SweepResult) -> String {
    let mut text = String::new();
    let mut last = None;
    for point in &result.points {
        let setting = point.point.setting;
        if last.replace(setting) != Some(setting) {
            let words = setting.words();
            if !words.is_empty() {
                let _ = writeln!(text, "{}with {}", if text.is_empty() { "" } else { "\n" }, words.join(", "));
            }
            let _ = writeln!(
                text,
                "{:>5} {:>11} {:>11} {:>11} {:>15} {:>6} {:>6} {:>4} {:>3}",
                "bytes", "asked/s", "sent/s", "received/s", "lost, %", "in", "out", "CPU", "of"
            );
        }
        let _ = writeln!(text, "{}", row(point));
    }
    text += "\nin, out: median time between packets as they left and arrived; CPU: of the thread\n\
             that receives, %; of: tests. Losses with their standard error.\n";
    if !result.knees.is_empty() {
        text += "\nWhere losses begin (a rate with at most 0.1 % lost counts as carried):\n";
        result.knees.iter().for_each(|knee| text += &knee_words(knee));
        let _ = common(&result.knees).map(|sentence| writeln!(text, "{sentence}."));
    }
    visible(&text)
}

fn row(point: &PointResult) -> String {
    let asked = point.point.rate().map_or_else(|| "unlimited".into(), rate);
    let bits = |metric: Metric| point.mean(metric).map_or_else(|| "-".into(), |bps| rate(BitRate(bps as u64)));
    let time = |metric: Metric| point.mean(metric).map_or_else(|| "-".into(), |ns| short(ns as u64));
    let lost = point.means.get(&Metric::Lost).map_or_else(
        || "no result".into(),
        |lost| {
            let error = lost.standard_error.map(|error| format!(" ± {:.2}", error * 100.0)).unwrap_or_default();
            format!("{:.2}{error}", lost.mean * 100.0)
        },
    );
    let cpu = point.mean(Metric::ReceiverCpu).map_or_else(|| "-".into(), |share| format!("{:.0}", share * 100.0));
    format!(
        "{:>5} {:>11} {:>11} {:>11} {:>15} {:>6} {:>6} {:>4} {:>3}",
        point.point.payload_bytes,
        asked,
        bits(Metric::SentBps),
        bits(Metric::ReceivedBps),
        lost,
        time(Metric::SpacingInNs),
        time(Metric::SpacingOutNs),
        cpu,
        point.figures().count()
    )
}

fn knee_words(knee: &Knee) -> String {
    let mut words = knee.setting.words();
    words.insert(0, format!("{} bytes", knee.payload_bytes));
    let mut text = format!("  {}:\n", words.join(", "));
    let _ = writeln!(text, "    {}", knee.verdict());
    knee.evidence.iter().for_each(|evidence| _ = writeln!(text, "    {evidence}"));
    text
}
