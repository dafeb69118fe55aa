//! Connections of other programs as a page: what `longhaul watch` saw of them, over time.

use std::collections::HashMap;

use longhaul_diagnosis::watched_facts;
use longhaul_tcp::{Flow, WatchResult, WatchedConnection};
use longhaul_units::Bytes;

use crate::cause::first_cause_in_words;
use crate::html::over_time::sampled::{FLOWS, Sampled, span};
use crate::html::over_time::tested::{Found, Tested, rate, short};
use crate::html::over_time::timeline;
use crate::html::table::Table;
use crate::parquet::FlowSamples;

/// Connections in the table. The JSON result has all.
const ROWS: usize = 100;
const NOTHING: &str = "<p class=\"quiet\">No connection has two samples: nothing to draw over time.</p>\n";

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// What was watched.
    pub tested: Tested<'a>,
    /// What was seen.
    pub result: &'a WatchResult,
    /// The samples of the connections.
    pub samples: &'a [FlowSamples<'a>],
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let mut order: Vec<&WatchedConnection> = self.result.connections.iter().collect();
        order.sort_by_key(|one| std::cmp::Reverse(bytes(one)));
        let mut shown = self.over_time(&order);
        shown += &table(&order);
        let (verdict, certainty) = (verdict(self.result, &order), certainty(&order));
        self.tested.page(&[Found { direction: None, verdict, certainty, shown }])
    }

    /// Those that send and those that receive, on one axis of time, the largest first.
    fn over_time(&self, order: &[&WatchedConnection]) -> String {
        let by_number: HashMap<u32, &FlowSamples<'_>> = self.samples.iter().map(|flow| (flow.stream, flow)).collect();
        let drawn = |flow: Flow| -> (Vec<&FlowSamples<'_>>, Vec<String>) {
            let chosen = order.iter().filter(|one| one.flow == flow && bytes(one) > 0);
            let (flows, chosen): (Vec<&FlowSamples<'_>>, Vec<_>) =
                chosen.filter_map(|one| Some((*by_number.get(&one.number)?, *one))).unzip();
            (flows, chosen.iter().take(FLOWS).map(|one| name(one, order)).collect())
        };
        let ((sending, senders), (receiving, receivers)) = (drawn(Flow::Sending), drawn(Flow::Receiving));
        let all = [&sending[..], &receiving].concat();
        let nothing = if self.tested.left_out.is_empty() { NOTHING } else { "" };
        let Some(span) = span(&all) else { return nothing.into() };
        let sending = Sampled::within(&sending, senders, span);
        let receiving = Sampled::within(&receiving, receivers, span);
        let mut panels = sending.as_ref().map_or_else(Vec::new, Sampled::sending);
        panels.extend(receiving.as_ref().map_or_else(Vec::new, Sampled::receiving));
        match sending.as_ref().or(receiving.as_ref()) {
            Some(any) => timeline(panels) + &any.note("Rates, limits and counts of packets"),
            None => nothing.into(),
        }
    }
}

fn bytes(connection: &WatchedConnection) -> u64 {
    connection.received_bytes.saturating_add(connection.sent_bytes.unwrap_or(0))
}

/// Program and the other end, and the own port where another has the same of these.
fn name(connection: &WatchedConnection, all: &[&WatchedConnection]) -> String {
    let same = |one: &&&WatchedConnection| one.remote == connection.remote && one.program == connection.program;
    let from = match all.iter().filter(same).count() {
        0 | 1 => String::new(),
        _ => format!(" from :{}", connection.local.port()),
    };
    match &connection.program {
        Some(program) => format!("{program} {}{from}", connection.remote),
        None => format!("{}{from}", connection.remote),
    }
}

/// What was found, in words.
fn verdict(result: &WatchResult, order: &[&WatchedConnection]) -> String {
    let Some(most) = order.first().filter(|one| bytes(one) > 0) else {
        return format!("No connection moved data in {}.", short(result.duration_ns));
    };
    let count = match order.len() {
        1 => "One connection was seen".to_owned(),
        many => format!("{many} connections were seen"),
    };
    let mut sentences = vec![format!("{count} in {}.", short(result.duration_ns))];
    let (what, moved, bps) = match most.flow {
        Flow::Sending => ("sent", most.sent_bytes.unwrap_or(0), most.sent_rate_bps),
        Flow::Receiving => ("received", most.received_bytes, most.received_rate_bps),
    };
    let largest = if order.len() == 1 { "It" } else { "The largest" };
    sentences.push(format!("{largest}, {}, {what} {} at {}.", name(most, order), Bytes(moved).rounded(), rate(bps)));
    sentences.extend(most.limit.as_ref().map(|limit| {
        format!("For {:.0} % of the time the limit was the {}.", limit.share * 100.0, limit.by.replace('_', " "))
    }));
    sentences.extend(first_cause_in_words(watched_facts(most)).map(|cause| format!("Cause: {cause}.")));
    let again: u64 = order.iter().map(|one| one.retransmits).fold(0, u64::saturating_add);
    if again > 0 {
        sentences.push(format!("{again} packets were retransmitted, of all connections."));
    }
    sentences.join(" ")
}

/// How sure that is.
fn certainty(order: &[&WatchedConnection]) -> String {
    let samples = order.iter().map(|one| one.samples).fold(0, u64::saturating_add);
    let earlier = order.iter().filter(|one| !one.began).count();
    let counted = format!("Bytes and packets are the kernel's own counts, by {samples} samples");
    match (earlier, order.len()) {
        (_, 0) => String::new(),
        (0, _) => format!("{counted}, from the beginning of each connection on."),
        (_, 1) => format!("{counted}; the connection had begun before, and what it did then is not in them."),
        (earlier, all) => {
            format!(
                "{counted}; {earlier} of {all} connections had begun before, and what they did then is not in them."
            )
        }
    }
}

/// Each connection in numbers.
fn table(order: &[&WatchedConnection]) -> String {
    let columns = [
        "connection",
        "from",
        "sent",
        "received",
        "rate, Mbit/s",
        "least RTT",
        "retransmitted",
        "control",
        "limited by",
    ];
    let mut table = Table::new("Each connection", "numbers", &columns);
    for one in order.iter().take(ROWS) {
        let unknown = || "–".to_owned();
        let bps = if one.flow == Flow::Sending { one.sent_rate_bps } else { one.received_rate_bps };
        table.row(
            &name(one, order),
            [
                one.local.to_string(),
                one.sent_bytes.map_or_else(unknown, |bytes| Bytes(bytes).rounded()),
                Bytes(one.received_bytes).rounded(),
                format!("{:.3}", bps as f64 / 1e6),
                one.min_rtt_ns.map_or_else(unknown, short),
                one.retransmits.to_string(),
                one.congestion_control.clone().unwrap_or_else(unknown),
                one.limit.as_ref().map_or_else(unknown, |limit| {
                    format!("{} {:.0} %", limit.by.replace('_', " "), limit.share * 100.0)
                }),
            ],
        );
    }
    let more = order.len().saturating_sub(ROWS);
    let rest = if more > 0 { format!("<p class=\"quiet\">And {more} more connections.</p>\n") } else { String::new() };
    table.finish() + &rest
}
