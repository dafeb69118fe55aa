//! A TCP test as a page: goodput, what limits, congestion window, round trips and retransmissions over time, from the sender's samples.

use longhaul_tcp::{LossBytes, TcpResult};
use longhaul_terms::Directions;
use longhaul_units::Bytes;

use crate::html::over_time::dropped::DroppedOverTime;
use crate::html::over_time::sampled::{SINCE, Sampled};
use crate::html::over_time::tested::{BACKWARD, FORWARD, Found, ONE_TEST, Tested, located, rate, short, tiles};
use crate::html::table::Table;
use crate::parquet::{End, FlowSamples};

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The test.
    pub tested: Tested<'a>,
    /// Its result.
    pub results: &'a Directions<TcpResult>,
    /// Whether the client is the sender where there is one direction.
    pub client_sends: bool,
    /// The samples of both ends.
    pub ends: &'a [End<'a>],
    /// What both hosts dropped, forward and backward.
    pub dropped: &'a [DroppedOverTime; 2],
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let found = match self.results {
            Directions::One(result) => vec![self.direction(None, result, self.client_sends)],
            Directions::Both { forward, backward } => {
                vec![self.direction(Some(FORWARD), forward, true), self.direction(Some(BACKWARD), backward, false)]
            }
        };
        self.tested.page(&found)
    }

    fn direction(&self, name: Option<&'static str>, result: &TcpResult, forward: bool) -> Found {
        let round_trip = |ns: Option<u64>| ns.map_or_else(|| "not known".into(), short);
        let mut body = tiles(&[
            ("Goodput", rate(result.goodput_bps)),
            ("Received", Bytes(result.bytes).rounded()),
            ("Time", short(result.duration_ns)),
            ("Retransmitted packets", result.retransmits.to_string()),
            ("Least round trip", round_trip(result.streams.iter().filter_map(|stream| stream.min_rtt_ns).min())),
            ("Greatest round trip", round_trip(result.streams.iter().filter_map(|stream| stream.max_rtt_ns).max())),
        ]);
        let direction = if forward { "forward" } else { "backward" };
        let flows = self.ends.iter().flat_map(|end| &end.flows);
        let mut flows: Vec<&FlowSamples<'_>> =
            flows.filter(|flow| flow.end == "sender" && flow.direction == direction).collect();
        flows.sort_by_key(|flow| flow.stream);
        let names = flows.iter().map(|flow| format!("stream {}", flow.stream)).collect();
        let sampled = Sampled::of(&flows, names);
        match &sampled {
            Some(sampled) => body += &sampled.figures(self.dropped[usize::from(!forward)].panel(SINCE)),
            None if !self.tested.left_out.is_empty() => {}
            None => body += "<p class=\"quiet\">The sender reported no samples: nothing to draw over time.</p>\n",
        }
        body += &flow_table(result);
        body += &losses(&result.loss_bytes_by_location);
        let certainty = certainty(result, sampled.as_ref().and_then(Sampled::steadiness));
        Found { direction: name, verdict: sentences(result), certainty, shown: body }
    }
}

/// What was found, in words.
fn sentences(result: &TcpResult) -> String {
    let streams = match result.streams.len() {
        1 => "one stream".to_owned(),
        many => format!("{many} streams"),
    };
    let rate = rate(result.goodput_bps);
    let mut sentences = vec![format!("{rate} of goodput over {streams}, for {}.", short(result.duration_ns))];
    sentences.extend(result.limited_by.foremost().map(|(name, share)| {
        let (what, share) = (name.replace('_', " "), share * 100.0);
        format!("For {share:.0} % of the time the {what} was the limit.")
    }));
    let mss = result.streams.iter().map(|stream| stream.mss_bytes).max().unwrap_or(0);
    let packets = result.bytes.checked_div(mss).unwrap_or(0).saturating_add(result.retransmits);
    sentences.push(match result.retransmits {
        0 => "Nothing was retransmitted.".into(),
        packets_again if packets > 0 => format!(
            "{packets_again} packets were retransmitted, {:.3} % of those sent.",
            packets_again as f64 * 100.0 / packets as f64
        ),
        packets_again => format!("{packets_again} packets were retransmitted."),
    });
    let places = result.loss_bytes_by_location.places();
    // `snd_tcploss` is no place: it is what all of them come to.
    let most = places.iter().filter(|(name, _)| *name != "snd_tcploss").max_by_key(|(_, bytes)| *bytes);
    sentences.extend(
        most.filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("Most was lost {}: {}.", meaning(name), Bytes(*bytes).rounded())),
    );
    sentences.join(" ")
}

/// How sure that is: `steadiness` says how the goodput varied.
fn certainty(result: &TcpResult, steadiness: Option<String>) -> String {
    let lost = result.loss_bytes_by_location.places().iter().any(|(_, bytes)| *bytes > 0);
    let located = lost.then(|| located(result.location_method).to_owned());
    [ONE_TEST.to_owned()].into_iter().chain(steadiness).chain(located).collect::<Vec<_>>().join(" ")
}

/// Where a loss was.
fn meaning(place: &str) -> &'static str {
    match place {
        "snd_txloss" => "while leaving the sender",
        "network" => "between the hosts",
        "rcv_rxloss" => "while entering the receiver",
        "tcp_pruning" => "in the receiver's TCP for lack of memory",
        "rcv_txloss" => "of ACKs, while leaving the receiver",
        "snd_rxloss" => "of ACKs, while entering the sender",
        _ => "as the sender's TCP saw it, and retransmitted",
    }
}

/// Bytes at each place, as bars.
fn losses(losses: &LossBytes) -> String {
    let places = losses.places();
    let most = places.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut table = Table::new("Bytes lost, by location", "numbers", &["location", "bytes of IP packets", "where"]);
    for (place, bytes) in places.into_iter().filter(|(_, bytes)| *bytes > 0) {
        table.row(place, [bytes.to_string(), meaning(place).to_owned()]);
    }
    table.finish()
}

/// Each stream in numbers.
fn flow_table(result: &TcpResult) -> String {
    let columns = [
        "stream",
        "goodput, Mbit/s",
        "retransmitted",
        "timeouts",
        "mean RTT",
        "greatest cwnd",
        "control",
        "limited by",
    ];
    let mut table = Table::new("Each stream", "numbers", &columns);
    for stream in &result.streams {
        let unknown = || "–".to_owned();
        table.row(
            &format!("stream {}", stream.stream),
            [
                format!("{:.3}", stream.goodput_bps as f64 / 1e6),
                stream.retransmits.to_string(),
                stream.timeouts.map_or_else(unknown, |timeouts| timeouts.to_string()),
                stream.mean_rtt_ns.map_or_else(unknown, short),
                stream.max_cwnd_bytes.map_or_else(unknown, |bytes| Bytes(bytes).rounded()),
                stream.congestion_control.clone(),
                stream
                    .limited_by
                    .foremost()
                    .map_or_else(unknown, |(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0)),
            ],
        );
    }
    table.finish()
}
