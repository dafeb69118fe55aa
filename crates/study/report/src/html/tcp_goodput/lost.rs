//! What TCP lost, by place, in bytes: figure 6 (c) of the NLR Rings paper, for any experiment.
//!
//! Places are those of `longhaul_tcp::LossBytes`. Percentages are of the bytes of data that was sent, retransmissions and headers included: the
//! paper says that its own are "in bytes", but not of what.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_tcp::TcpResult;

use super::Run;
use crate::html::axis::{grid, height, short, step};
use crate::html::bars::error_bar;
use crate::html::page::escape;
use crate::html::points::{Mean, Point};
use crate::html::series::{Report, Series};
use crate::html::table::Table;

/// Names of means.
const DATA_PERCENT: &str = "data_lost_at_receiver_percent";
const ACKS_PERCENT: &str = "acks_lost_at_sender_percent";
const NETWORK_PERCENT: &str = "network_lost_percent";
const RINGS_PERCENT: &str = "lost_entering_hosts_percent";
const ACKS_AMONG: &str = "acks_among_lost_percent";
pub(super) const QUANTITIES: [&str; 5] = [DATA_PERCENT, ACKS_PERCENT, NETWORK_PERCENT, RINGS_PERCENT, ACKS_AMONG];

/// IPv4 and TCP headers with time stamps: an acknowledgment, as the paper counts it.
const HEADER_BYTES: f64 = 52.0;
/// Data that enters the receiver, acknowledgments that enter the sender.
const DATA: &str = "rcv_rxloss";
const ACKS: &str = "snd_rxloss";
const NETWORK: &str = "network";
/// What the sender's TCP took for lost: all losses of data as TCP sees them, not a place.
const INFERRED: &str = "snd_tcploss";
/// Places with what they mean and a colour that differs without colour vision (Okabe and Ito 2008), in the order of a bar from below.
const PLACES: [(&str, &str, &str); 6] = [
    (DATA, "data, entering the receiver (rcv_rxloss)", "#0072b2"),
    (ACKS, "ACKs, entering the sender (snd_rxloss)", "#e69f00"),
    (NETWORK, "data, between the hosts", "#d55e00"),
    ("tcp_pruning", "data, for lack of memory of the receiver's TCP (tcp pruning)", "#cc79a7"),
    ("snd_txloss", "data, leaving the sender (txloss)", "#009e73"),
    ("rcv_txloss", "ACKs, leaving the receiver", "#56b4e9"),
];

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
/// Of the bars' ground: left, top, right, bottom.
const EDGES: [f64; 4] = [60.0, 22.0, 396.0, 212.0];

/// Percent of the bytes sent that were lost at each place.
fn percent(result: &TcpResult) -> Vec<(&'static str, f64)> {
    let payload = result.bytes.saturating_add(result.retransmitted_bytes.unwrap_or(0)) as f64;
    let mss = result.streams.iter().map(|stream| stream.mss_bytes).max().unwrap_or_default().max(1) as f64;
    let sent = (payload * (1.0 + HEADER_BYTES / mss)).max(1.0);
    result.loss_bytes_by_location.places().map(|(place, bytes)| (place, bytes as f64 * 100.0 / sent)).to_vec()
}

/// What is averaged over runs.
pub(super) fn quantities(result: &TcpResult) -> Vec<(&'static str, f64)> {
    let percent: BTreeMap<&str, f64> = percent(result).into_iter().collect();
    let at = |place: &str| percent.get(place).copied().unwrap_or_default();
    let packets = |place: &str| {
        let of_place = result.loss_reasons.iter().filter(|reason| reason.location == place);
        of_place.map(|reason| reason.packets).sum::<u64>() as f64
    };
    let mut all = vec![
        (DATA_PERCENT, at(DATA)),
        (ACKS_PERCENT, at(ACKS)),
        (NETWORK_PERCENT, at(NETWORK)),
        (RINGS_PERCENT, at(DATA) + at(ACKS)),
    ];
    let (data, acks) = (packets(DATA), packets(ACKS));
    // Of nothing there is no share.
    all.extend((data + acks > 0.0).then(|| (ACKS_AMONG, acks * 100.0 / (data + acks))));
    all
}

fn means(point: &Point<Run>) -> BTreeMap<&'static str, Mean> {
    point.means_of(|run| run.flows.result.as_ref().map(percent).unwrap_or_default())
}

/// All places of a point together, percent.
fn sum(means: &BTreeMap<&'static str, Mean>) -> f64 {
    PLACES.iter().filter_map(|(place, ..)| means.get(place)).map(|mean| mean.mean).sum()
}

impl Report<Run> {
    /// Figures and table of what was lost where; nothing where nothing was lost.
    pub(super) fn lost(&self, body: &mut String) {
        let most = self.points().map(|(_, point)| sum(&means(point))).fold(0.0, f64::max);
        if most <= 0.0 {
            return;
        }
        *body += "<h2>Bytes lost, by place</h2>\n<ul class=\"legend\">\n";
        for (_, words, colour) in PLACES {
            // Writing to a string cannot fail.
            let _ = writeln!(
                body,
                "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" fill=\"{colour}\"/></svg>{words}</li>"
            );
        }
        *body += "</ul>\n<div class=\"panels\">\n";
        for series in &self.series {
            let _ = writeln!(body, "<figure><h3>{}</h3>\n{}</figure>", escape(&series.name), panel(series));
        }
        *body += "</div>\n";
        self.lost_table(body);
    }

    fn lost_table(&self, body: &mut String) {
        let mut columns = vec!["test".to_owned()];
        columns.extend(PLACES.iter().map(|(place, ..)| format!("{place}, %")));
        columns.push(format!("{INFERRED}, %"));
        columns.push("ACKs among packets lost entering hosts, %".into());
        let mut table = Table::new("Bytes lost as a table", "numbers", &columns);
        for series in &self.series {
            table.group(&series.name);
            for point in &series.points {
                let means = means(point);
                let cell = |place: &str| means.get(place).map_or_else(|| "–".to_owned(), |mean| mean.text(4));
                let mut cells: Vec<String> = PLACES.iter().map(|(place, ..)| cell(place)).collect();
                cells.push(cell(INFERRED));
                cells.push(point.mean(ACKS_AMONG).map_or_else(|| "–".to_owned(), |mean| mean.text(1)));
                table.row(&point.label, cells);
            }
        }
        *body += &table.finish();
        *body += "<p class=\"quiet\">Percent of the bytes of data that was sent, retransmissions and headers included. An ACK has 52 bytes, a full packet of \
                  data 1500. snd_tcploss is what the sender's TCP took for lost and sent once more.</p>\n";
    }
}

/// A bar for each point, with an axis of its own.
fn panel(series: &Series<Run>) -> String {
    let [left, top, right, bottom] = EDGES;
    let all: Vec<_> = series.points.iter().map(|point| (point, means(point))).collect();
    let highest = all.iter().map(|(_, means)| sum(means)).fold(0.0, f64::max) * 1.08;
    let step = step(if highest > 0.0 { highest } else { 1.0 });
    let steps = (highest / step).ceil().max(1.0);
    let y = |percent: f64| height(EDGES, step, steps, percent);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>Bytes lost: {}</title>\n",
        escape(&series.name)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let room = (right - left) / all.len().max(1) as f64;
    let wide = room * 0.62;
    for (number, (point, means)) in all.iter().enumerate() {
        let middle = left + room * (number as f64 + 0.5);
        let class = if point.doubtful { "bar doubtful" } else { "bar" };
        // Writing to a string cannot fail.
        let _ = write!(svg, "<g class=\"{class}\" data-test=\"{0}\"><title>{0}", escape(&point.label));
        let pieces: Vec<(&str, &str, f64)> = (PLACES.iter())
            .filter_map(|(place, _, colour)| Some((*place, *colour, means.get(place)?.mean)))
            .filter(|(_, _, percent)| *percent > 0.0)
            .collect();
        for (place, _, percent) in &pieces {
            let _ = write!(svg, "; {place} {} %", short(*percent));
        }
        svg += "</title>";
        let mut below = 0.0;
        for (place, colour, percent) in &pieces {
            let (low, high) = (y(below), y(below + percent));
            below += percent;
            let _ = write!(
                svg,
                "<rect class=\"piece\" data-location=\"{place}\" x=\"{:.1}\" y=\"{high:.2}\" width=\"{wide:.1}\" height=\"{:.2}\" fill=\"{colour}\"/>",
                middle - wide / 2.0,
                low - high,
            );
        }
        let half = point.mean(RINGS_PERCENT).and_then(|mean| mean.half_width).filter(|half| *half > 0.0);
        if let Some(half) = half {
            svg += &error_bar(middle, y((below - half).max(0.0)), y(below + half));
        }
        // Labels that would overlap are in two rows.
        let lower = if room < 70.0 && number % 2 == 1 { 14.0 } else { 0.0 };
        let _ = writeln!(
            svg,
            "<text class=\"total\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>",
            y(below + half.unwrap_or_default()) - 5.0,
            short(below),
            bottom + 15.0 + lower,
            escape(&point.label)
        );
    }
    let _ = writeln!(
        svg,
        "<text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">lost, % of the bytes sent</text>\n</svg>",
        (top + bottom) / 2.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use longhaul_tcp::TcpLossReason;

    use super::super::tests::{report, run};
    use super::*;
    use crate::html::points::Run as _;

    /// By hand: 1448 bytes of payload make 1500 of a packet, so 100 packets are 150,000 bytes: 15,000 of data are 10 %, 1,500 of ACKs 1 %.
    #[test]
    fn bytes_are_percent_of_those_sent_and_acks_a_share_of_packets() {
        let mut lossy = run(Some(100));
        let result = lossy.flows.result.as_mut().unwrap();
        (result.bytes, result.retransmitted_bytes) = (90 * 1448, Some(10 * 1448));
        result.streams[0].mss_bytes = 1448;
        (result.loss_bytes_by_location.rcv_rxloss, result.loss_bytes_by_location.snd_rxloss) = (15_000, 1_500);
        let reason = |location: &str, packets| TcpLossReason {
            location: location.into(),
            reason: "ring".into(),
            packets,
            bytes: 0,
        };
        result.loss_reasons = vec![reason("rcv_rxloss", 10), reason("snd_rxloss", 30)];
        let quantities: BTreeMap<&str, f64> = lossy.quantities().into_iter().collect();
        for (name, expected) in [(DATA_PERCENT, 10.0), (ACKS_PERCENT, 1.0), (RINGS_PERCENT, 11.0), (ACKS_AMONG, 75.0)] {
            assert!((quantities[name] - expected).abs() < 1e-9, "{name}: {quantities:?}");
        }
        let html = report(vec![("reno × 4", lossy), ("vegas × 4", run(Some(50)))]).to_html();
        assert!(html.contains("reno × 4; rcv_rxloss 10 %; snd_rxloss 1 %") && html.contains(">75.0<"), "{html}");
        assert!(!report(vec![("reno", run(Some(100)))]).to_html().contains("Bytes lost"), "nothing was lost");
    }
}
