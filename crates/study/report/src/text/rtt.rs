//! A measurement of round trips as text.

use longhaul_rtt::probe_log::{EndStamps, StampedBy};
use longhaul_rtt::{BySize, ClockState, OfSize, OneWayDelays, OneWayVariation, RttResult, SizeStep, Spread};

use longhaul_units::BitRate;

use super::{rate, short};

/// The result for a terminal, lines of at most 80 characters.
pub fn report(result: &RttResult) -> String {
    let RttResult { sent, received, lost, duplicates, reordered, .. } = result;
    let percent = if *sent > 0 { *lost as f64 * 100.0 / *sent as f64 } else { 0.0 };
    let mut text =
        format!("{sent} probes in {}, {received} answered, {lost} lost ({percent:.3} %)\n", short(result.duration_ns));
    if *duplicates > 0 || *reordered > 0 {
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
    text += &gaps(result);
    text += &path_changes(result);
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
    super::visible(&(text + "\n" + &clocks(result)))
}

/// Gaps that are shown.
const GAPS_SHOWN: usize = 5;

fn gaps(result: &RttResult) -> String {
    let mut text = String::new();
    if result.gap_count > 0 {
        text += &format!("gaps: {}, {} in all, which are no losses\n", result.gap_count, short(result.gaps_ns));
    }
    for gap in result.gaps.iter().take(GAPS_SHOWN) {
        let set = match gap.step_ns {
            0 => String::new(),
            ns => format!(", {} by {}", if ns > 0 { "forward" } else { "back" }, short(ns.unsigned_abs())),
        };
        let left_out = if gap.left_out > 0 { format!("; {} probes left out", gap.left_out) } else { String::new() };
        text += &format!("  {}{set}: {}{left_out}\n", gap.why.words(), short(gap.lasted_ns()));
    }
    if result.responder_steps > 0 {
        text += &format!(
            "the responder's clock was set {} times; both directions are without it\n",
            result.responder_steps
        );
    }
    text
}

fn path_changes(result: &RttResult) -> String {
    let mut text = String::new();
    if result.path_change_count > 0 {
        text += &format!("route changes: {}\n", result.path_change_count);
    }
    for change in result.path_changes.iter().take(GAPS_SHOWN) {
        let after = change.at_ns.saturating_sub(result.over_time.began_ns).max(0).unsigned_abs();
        let lost = if change.lost > 0 { format!("; {} probes lost as it changed", change.lost) } else { String::new() };
        text += &format!("  after {}: {change}{lost}\n", short(after));
    }
    text
}

fn clocks(result: &RttResult) -> String {
    let mut text = String::new();
    for (place, clock) in [("here", &result.clocks.client), ("there", &result.clocks.server)] {
        let Some(ClockState { synchronised, max_error_ns, daemons, .. }) = clock else { continue };
        let state = if *synchronised {
            format!("synchronised, off by {} at most", short(*max_error_ns))
        } else {
            "not synchronised".into()
        };
        let by = if daemons.is_empty() { String::new() } else { format!(" ({})", daemons.join(", ")) };
        text += &format!("clock {place}: {state}{by}\n");
    }
    match result.one_way {
        Some(OneWayDelays { forward, backward, bound_ns }) => {
            for (name, delay) in [("forward", forward), ("backward", backward)] {
                let [least, median, high] = [delay.min_ns, delay.p50_ns, delay.p99_ns].map(signed);
                text += &format!("{name}: least {least}, median {median}, p99 {high}, each ± {}\n", short(bound_ns));
            }
            text
        }
        None => text + "one-way delay: not known, as it is not known whether the clocks agree\n",
    }
}

/// By two clocks a delay can be below zero.
fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, short(ns.unsigned_abs()))
}

/// Sizes that a screen has room for, spread over all.
const SIZES_SHOWN: usize = 16;

fn by_size(by_size: &BySize) -> String {
    let BySize { sizes, line, steps, host_links_bps, host_links_ns_per_byte } = by_size;
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
                "each byte adds {:.2} ns to the round trip ({:.2} to {:.2}), which is {} with none\n",
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
    if !host_links_bps.is_empty() {
        let links: Vec<String> = host_links_bps.iter().map(|bps| rate(BitRate(*bps))).collect();
        text += &format!("the hosts' links ({}) explain {host_links_ns_per_byte:.2} ns of it\n", links.join(", "));
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
        StampedBy::Nic => "NIC",
    };
    format!("sent by {}, received by {}", by(end.sent), by(end.received))
}
