//! A measurement of round trips as text.

use longhaul_rtt::probe_log::{EndStamps, StampedBy};
use longhaul_rtt::{BySize, OfSize, OneWayVariation, RttResult, SizeStep, Spread};

use super::{rate, short};

/// The result for a terminal, lines of at most 80 characters.
pub fn report(result: &RttResult) -> String {
    let RttResult { sent, received, lost, duplicates, reordered, .. } = result;
    let percent = if *sent > 0 { *lost as f64 * 100.0 / *sent as f64 } else { 0.0 };
    let mut text =
        format!("{sent} probes in {}, {received} answered, {lost} lost ({percent:.3} %)\n", short(result.duration_ns));
    if duplicates + reordered > 0 {
        text += &format!("{duplicates} duplicates, {reordered} reordered\n");
    }
    if *lost > 0 {
        text += &format!(
            "{} runs of loss, the longest of {} probes; {} outages of a second or more",
            result.loss_runs, result.longest_loss_run, result.outages
        );
        if result.outages > 0 {
            text += &format!(", the longest {}", short(result.longest_outage_ns));
        }
        text += "\n";
    }
    let Some(rtt) = &result.rtt else { return text };
    text += &format!(
        "\n{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        "", "min", "p10", "p50", "p90", "p99", "p99.9", "max"
    );
    let all = [rtt.min_ns, rtt.p10_ns, rtt.p50_ns, rtt.p90_ns, rtt.p99_ns, rtt.p99_9_ns, rtt.max_ns];
    text += &format!("{:<16}{}\n", "round trip", all.map(|ns| format!("{:>9}", short(ns))).concat());
    let mut row = |name: &str, spread: &Spread| {
        let all = [spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p99_9_ns, spread.max_ns];
        text += &format!("{name:<16}{:>18}{}\n", "", all.map(|ns| format!("{:>9}", short(ns))).concat());
    };
    result.pdv.iter().for_each(|spread| row("  over least", spread));
    result.ipdv.iter().for_each(|spread| row("  successive", spread));
    for (name, way) in [("forward", &result.forward), ("backward", &result.backward)] {
        if let Some(OneWayVariation { ipdv, pdv }) = way {
            row(&format!("{name}, least"), pdv);
            row(&format!("{name}, succ."), ipdv);
        }
    }
    text += &format!("mean {}, standard deviation {}\n", short(rtt.mean_ns as u64), short(rtt.stddev_ns as u64));
    text += &result.by_size.as_ref().map_or_else(String::new, by_size);
    text += &format!("time stamps: here {}", stamps(result.timestamps.client));
    if let Some(server) = result.timestamps.server {
        text += &format!("; there {}", stamps(server));
    }
    text + "\none-way delay: not known, as it is not known whether the clocks agree\n"
}

/// Sizes that a screen has room for, spread over all.
const SIZES_SHOWN: usize = 16;

fn by_size(by_size: &BySize) -> String {
    let BySize { sizes, line, steps } = by_size;
    let mut text =
        format!("\n{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "payload bytes", "answered", "lost", "min", "p50", "± 95 %");
    let last = sizes.len().saturating_sub(1);
    let every = last.div_ceil(SIZES_SHOWN - 1).max(1);
    for (_, size) in sizes.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last) {
        let OfSize { payload_bytes, sent, received, rtt } = size;
        text += &format!("{payload_bytes:<16}{received:>9}{:>9}", sent.saturating_sub(*received));
        if let Some(rtt) = rtt {
            let half = rtt.p50_most_ns.abs_diff(rtt.p50_least_ns) / 2;
            let [least, median, half] = [rtt.min_ns.unsigned_abs(), rtt.p50_ns.unsigned_abs(), half].map(short);
            text += &format!("{least:>9}{median:>9}{half:>9}");
        }
        text += "\n";
    }
    if every > 1 {
        text += &format!("(one of {every} of {} sizes)\n", sizes.len());
    }
    match line {
        Some(line) => {
            text += &format!(
                "each byte adds {:.2} ns there and back ({:.2} to {:.2}), to {} without any\n",
                line.slope_ns_per_byte,
                line.slope_least_ns_per_byte,
                line.slope_most_ns_per_byte,
                short(line.intercept_ns.max(0.0) as u64)
            );
            if let Some(link) = line.link() {
                text += &format!("as one link of {} in each direction would\n", rate(link));
            }
        }
        None => text += "no line: fewer than five sizes were answered\n",
    }
    for SizeStep { from_bytes, to_bytes, ns } in steps {
        let sign = if *ns < 0.0 { "-" } else { "+" };
        text += &format!("step from {from_bytes} to {to_bytes} bytes: {sign}{}\n", short(ns.abs() as u64));
    }
    text
}

fn stamps(end: EndStamps) -> String {
    let by = |by: StampedBy| match by {
        StampedBy::Program => "program",
        StampedBy::Kernel => "kernel",
    };
    format!("sent by {}, received by {}", by(end.sent), by(end.received))
}
