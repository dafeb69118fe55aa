//! What TCP lost, by location, in bytes: figure 6 (c) of the NLR Rings paper, for any experiment.
//!
//! Places are those of `longhaul_tcp::LossBytes`. Percentages are of the bytes of data that was sent, retransmissions and headers included: the
//! paper says that its own are "in bytes", but not of what.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_tcp::TcpResult;

use super::Run;
use crate::html::bars::{Bar, Piece, panel};
use crate::html::page::escape;
use crate::html::points::{Mean, Point};
use crate::html::series::Report;
use crate::html::table::Table;

/// Names of means.
const DATA_PERCENT: &str = "data_lost_at_receiver_percent";
const ACKS_PERCENT: &str = "acks_lost_at_sender_percent";
const NETWORK_PERCENT: &str = "network_lost_percent";
const RINGS_PERCENT: &str = "lost_entering_hosts_percent";
const ACKS_AMONG: &str = "acks_among_lost_percent";
pub(super) const QUANTITIES: [&str; 5] = [DATA_PERCENT, ACKS_PERCENT, NETWORK_PERCENT, RINGS_PERCENT, ACKS_AMONG];

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

/// Percent of the bytes sent that were lost at each place.
fn percent(result: &TcpResult) -> Vec<(&'static str, f64)> {
    let sent = result.sent_ip_bytes().max(1) as f64;
    result.loss_bytes_by_location.places().map(|(place, bytes)| (place, bytes as f64 * 100.0 / sent)).to_vec()
}

/// What is averaged over runs.
pub(super) fn quantities(result: &TcpResult) -> Vec<(&'static str, f64)> {
    let percent: BTreeMap<&str, f64> = percent(result).into_iter().collect();
    let at = |place: &str| percent.get(place).copied().unwrap_or_default();
    let packets = |place: &str| {
        let of_place = result.loss_reasons.iter().filter(|reason| reason.location == place);
        of_place.map(|reason| reason.packets).fold(0, u64::saturating_add) as f64
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

impl Report<Run> {
    /// Figures and table of what was lost where; nothing where nothing was lost.
    pub(super) fn lost(&self, body: &mut String) {
        if self.points().all(|(_, point)| bar(point).total() <= 0.0) {
            return;
        }
        *body += "<h2>Bytes lost, by location</h2>\n<ul class=\"legend\">\n";
        for (_, words, colour) in PLACES {
            // Writing to a string cannot fail.
            let _ = writeln!(
                body,
                "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" fill=\"{colour}\"/></svg>{words}</li>"
            );
        }
        *body += "</ul>\n<div class=\"panels\">\n";
        for series in &self.series {
            let bars: Vec<Bar> = series.points.iter().map(bar).collect();
            let highest = bars.iter().map(Bar::top).fold(0.0, f64::max);
            let title = format!("Bytes lost: {}", series.name);
            let panel = panel(&title, &bars, highest, "", "lost, % of the bytes sent");
            let _ = writeln!(body, "<figure><h3>{}</h3>\n{panel}</figure>", escape(&series.name));
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
        *body += "<p class=\"quiet\">Percent of the bytes of data that was sent in the whole test, retransmissions, headers and the \
                  omitted time included. An ACK has 52 bytes, a full packet of \
                  data 1500. snd_tcploss is what the sender's TCP took for lost and retransmitted.</p>\n";
    }
}

/// The bar of a point: all places and the interval of their sum.
fn bar(point: &Point<Run>) -> Bar {
    let means = means(point);
    let piece = |(place, _, colour): &(&'static str, &str, &str)| {
        Some(Piece { place, fill: (*colour).to_owned(), percent: means.get(place)?.mean })
    };
    let whole = |run: &Run| {
        let is_place = |place: &str| PLACES.iter().any(|(known, ..)| *known == place);
        let sum = |result| percent(result).into_iter().filter(|(place, _)| is_place(place)).map(|(_, part)| part).sum();
        run.flows.result.as_ref().map(|result| ((), sum(result)))
    };
    let half_width = point.means_of(whole).get(&()).and_then(|mean| mean.half_width).filter(|half| *half > 0.0);
    let pieces = Some(PLACES.iter().filter_map(piece).collect());
    Bar { label: point.label.clone(), rate_bps: None, pieces, half_width, doubtful: point.doubtful }
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
        // In a file of others.
        let mut more = lossy.clone();
        more.flows.result.as_mut().unwrap().loss_reasons =
            vec![reason("rcv_rxloss", u64::MAX), reason("rcv_rxloss", 1)];
        assert!(more.quantities().contains(&(ACKS_AMONG, 0.0)));
        // As many again were read in the time that was left out, in which 10 more packets were retransmitted.
        let mut whole = lossy.clone();
        let result = whole.flows.result.as_mut().unwrap();
        (result.omitted_bytes, result.loss_bytes_by_location.snd_tcploss) = (90 * 1448, 20 * 1500);
        let percent: BTreeMap<&str, f64> = whole.quantities().into_iter().collect();
        assert!((percent[DATA_PERCENT] - 5.0).abs() < 1e-9, "{percent:?}");
        let html = report(vec![("reno × 4", lossy), ("vegas × 4", run(Some(50)))]).to_html();
        assert!(
            html.contains("reno × 4: 11 % lost; rcv_rxloss 10 %; snd_rxloss 1 %") && html.contains(">75.0<"),
            "{html}"
        );
        assert!(!report(vec![("reno", run(Some(100)))]).to_html().contains("Bytes lost"), "nothing was lost");
    }
}
