//! A UDP test as a page: packets sent, received and lost at each place over time, by their sequence numbers.
//!
//! A sender numbers packets as it sends them, at an even pace. So the time at which a packet left follows from its number; without a pace
//! it is near that.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_result::Location;
use longhaul_terms::{Directions, StreamSent};
use longhaul_udp::UdpResult;
use longhaul_udp::locate::Loss;

use crate::html::axis::RATES;
use crate::html::colour::{Fill, fill};
use crate::html::lines::{Line, Panel, Part, Stack};
use crate::html::over_time::runs::KEPT;
use crate::html::over_time::sampled::{PACKETS, SHARE};
use crate::html::over_time::tested::{
    BACKWARD, FORWARD, Found, ONE_TEST, Tested, located, rate, share, short, tiles, window,
};
use crate::html::over_time::timeline;
use crate::html::over_time::udp_runs::UdpOverTime;
use crate::html::page::escape;
use crate::html::table::Table;

/// So short that a burst is seen, and so long that a slow test has packets in each.
const SHORTEST_WINDOW_S: f64 = 0.01;

/// Packets of a direction in windows of equal length, by when they left.
#[derive(Debug, Clone, PartialEq)]
pub struct Departures {
    window_s: f64,
    end_s: f64,
    /// Of each stream: when its first packet left, seconds from the first of all, and how many left per second.
    streams: Vec<(f64, f64)>,
    sent: Vec<f64>,
    lost: BTreeMap<Location, Vec<f64>>,
}

impl Departures {
    /// Those that `streams` sent, without losses yet. `None` if nothing was sent over any time.
    pub fn of(streams: &[StreamSent]) -> Option<Self> {
        Self::in_windows(streams, |_| SHORTEST_WINDOW_S)
    }

    /// The same in so few windows that a result can keep them.
    pub fn to_keep(streams: &[StreamSent]) -> Option<Self> {
        Self::in_windows(streams, |end_s| (end_s / KEPT as f64).max(SHORTEST_WINDOW_S))
    }

    /// In windows of at least as many seconds as `least_s` says for the time of the whole.
    fn in_windows(streams: &[StreamSent], least_s: impl Fn(f64) -> f64) -> Option<Self> {
        let used = || streams.iter().filter(|stream| stream.sent_packets > 1);
        let start_ns = used().map(|stream| stream.first_sent_ns).min()?;
        let end_s = used().map(|stream| stream.last_sent_ns).max()?.saturating_sub(start_ns) as f64 / 1e9;
        if end_s <= 0.0 {
            return None;
        }
        let window_s = window(end_s, least_s(end_s));
        let windows = ((end_s / window_s - 1e-6).ceil() as usize).max(1);
        let mut departures =
            Self { window_s, end_s, streams: Vec::new(), sent: vec![0.0; windows], lost: BTreeMap::new() };
        for stream in streams {
            let first = stream.first_sent_ns.saturating_sub(start_ns) as f64 / 1e9;
            let span = stream.last_sent_ns.saturating_sub(stream.first_sent_ns) as f64 / 1e9;
            let intervals = stream.sent_packets.saturating_sub(1) as f64;
            let per_second = if span > 0.0 && intervals > 0.0 { intervals / span } else { f64::MAX };
            let number = departures.streams.len();
            departures.streams.push((first, per_second));
            departures.spread(number, 0, stream.sent_packets, |sent, window, packets| sent.sent[window] += packets);
        }
        Some(departures)
    }

    /// Adds a loss.
    pub fn lose(&mut self, loss: &Loss) {
        let windows = self.sent.len();
        let location = loss.location;
        self.spread(loss.stream.into(), loss.first_sequence, loss.packets, |departures, window, packets| {
            departures.lost.entry(location).or_insert_with(|| vec![0.0; windows])[window] += packets;
        });
    }

    /// What a result keeps.
    pub fn kept(&self) -> UdpOverTime {
        let counts = |packets: &Vec<f64>| packets.iter().map(|packets| *packets as u64).collect();
        UdpOverTime {
            window_ns: (self.window_s * 1e9).round() as u64,
            end_ns: (self.end_s * 1e9).round() as u64,
            sent_packets: counts(&self.sent),
            lost_packets: self.lost.iter().map(|(location, lost)| (*location, counts(lost))).collect(),
        }
    }

    /// Calls `add` with each window in which some of `packets` from `first` on left, and how many. It takes a step a window at most, as a
    /// peer can name any numbers and times.
    fn spread(&mut self, stream: usize, first: u64, packets: u64, mut add: impl FnMut(&mut Self, usize, f64)) {
        let Some(&(since, per_second)) = self.streams.get(stream) else { return };
        let last_window = self.sent.len() - 1;
        let window_s = self.window_s;
        let first_window = (((since + first as f64 / per_second) / window_s) as usize).min(last_window);
        let end = first.saturating_add(packets);
        let mut next = first;
        for window in first_window..=last_window {
            if next >= end {
                break;
            }
            // The first that leaves in a later window. By rounding none may leave in this one.
            let behind = ((((window + 1) as f64 * window_s - since) * per_second).ceil() as u64).clamp(next, end);
            let behind = if window == last_window { end } else { behind };
            if behind > next {
                add(self, window, (behind - next) as f64);
            }
            next = behind;
        }
    }

    fn lost_in(&self, window: usize) -> f64 {
        self.lost.values().map(|lost| lost[window]).sum()
    }
}

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The test.
    pub tested: Tested<'a>,
    /// Its result.
    pub results: &'a Directions<UdpResult>,
    /// Payload bytes of a packet.
    pub payload_bytes: u32,
    /// Packets over time of each direction, forward and backward; `None` where it was not tested or not told.
    pub departures: [Option<Departures>; 2],
    /// Whether the client is the sender where there is one direction.
    pub client_sends: bool,
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let [forward_packets, backward_packets] = &self.departures;
        let found = match self.results {
            Directions::One(result) => {
                let departures = if self.client_sends { forward_packets } else { backward_packets };
                vec![self.direction(None, result, departures)]
            }
            Directions::Both { forward, backward } => vec![
                self.direction(Some(FORWARD), forward, forward_packets),
                self.direction(Some(BACKWARD), backward, backward_packets),
            ],
        };
        self.tested.page(&found)
    }

    fn direction(&self, name: Option<&'static str>, result: &UdpResult, departures: &Option<Departures>) -> Found {
        let mut body = tiles(&[
            ("Received", rate(result.received_rate_bps)),
            ("Sent", rate(result.sent_rate_bps)),
            ("Packets sent", result.sent_packets.to_string()),
            ("Packets lost", result.lost_packets.to_string()),
            ("Reordered", result.reordered_packets.to_string()),
            ("Duplicated", result.duplicate_packets.to_string()),
            ("Jitter", result.jitter_ns.map_or_else(|| "not known".into(), short)),
            ("Time", short(result.duration_ns)),
        ]);
        match departures {
            Some(departures) => body += &departures.figures(self.payload_bytes),
            None if !self.tested.left_out.is_empty() => {}
            None => {
                body +=
                    "<p class=\"quiet\">The sender did not report when packets left: nothing to draw over time.</p>\n"
            }
        }
        let shown = body + &places(result);
        Found { direction: name, verdict: sentences(result), certainty: certainty(result), shown }
    }
}

/// What was found, in words.
fn sentences(result: &UdpResult) -> String {
    let (received, sent) = (rate(result.received_rate_bps), rate(result.sent_rate_bps));
    let mut sentences = vec![format!("{received} arrived of {sent} sent, for {}.", short(result.duration_ns))];
    if result.lost_packets == 0 {
        sentences.push(format!("None of {} packets was lost.", result.sent_packets));
        return sentences.join(" ");
    }
    sentences.push(format!(
        "{} of {} packets were lost, {:.4} %.",
        result.lost_packets,
        result.sent_packets,
        result.lost_packets as f64 * 100.0 / result.sent_packets.max(1) as f64
    ));
    let most = result.loss_by_location.iter().max_by_key(|(_, packets)| **packets);
    sentences.extend(most.map(|(location, packets)| {
        format!("{} of the losses are at {}.", share(*packets, result.lost_packets), words(*location))
    }));
    sentences.join(" ")
}

/// How sure that is.
fn certainty(result: &UdpResult) -> String {
    let unexplained = result.loss_by_location.get(&Location::Unexplained).copied().unwrap_or(0);
    let not_placed = format!("It is not known where {unexplained} of {} lost packets were lost.", result.lost_packets);
    let mut sentences = vec![ONE_TEST, "Every packet has a number, so all that were lost are counted."];
    if result.lost_packets > 0 {
        sentences.push(located(result.location_method));
    }
    if unexplained > 0 {
        sentences.push(&not_placed);
    }
    sentences.join(" ")
}

/// A place in words.
fn words(location: Location) -> String {
    let name = location.name().replace('_', " ");
    match location {
        Location::Network => "the network between the hosts".into(),
        Location::Unexplained => "an unknown location".into(),
        _ => format!("the {name}"),
    }
}

/// Each place with losses, and why.
fn places(result: &UdpResult) -> String {
    if result.loss_reasons.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new("Packets lost, by location", "numbers", &["location", "packets", "share of sent, %", "why"]);
    for reason in &result.loss_reasons {
        let share = reason.packets as f64 * 100.0 / result.sent_packets.max(1) as f64;
        let name = reason.location.name().replace('_', " ");
        table.row(&name, [reason.packets.to_string(), format!("{share:.4}"), reason.reason.clone()]);
    }
    table.finish()
}

impl Departures {
    fn figures(&self, payload_bytes: u32) -> String {
        let since = "the first departure";
        let length =
            |window: usize| (self.end_s - window as f64 * self.window_s).clamp(self.window_s * 0.01, self.window_s);
        let bits = |packets: f64, window: usize| packets * f64::from(payload_bytes) * 8.0 / length(window);
        // The last window may be cut so short that it has one packet: its rate says nothing.
        let whole =
            if length(self.sent.len() - 1) < self.window_s * 0.5 { self.sent.len() - 1 } else { self.sent.len() };
        let line = |name, colour, of: &dyn Fn(usize) -> f64| Line {
            name,
            colour,
            points: (0..whole)
                .map(|window| Some((window as f64 * self.window_s, of(window))))
                .chain(whole.checked_sub(1).map(|last| Some((self.end_s.min(whole as f64 * self.window_s), of(last)))))
                .collect(),
        };
        let panel = |title, what, units| Panel { title, what, units, end_s: self.end_s, since, ..Panel::default() };
        let rates = Panel {
            steps: true,
            lines: vec![
                line("sent", "--quiet", &|window| bits(self.sent[window], window)),
                line("received", "--blue", &|window| bits(self.sent[window] - self.lost_in(window), window)),
            ],
            ..panel("Rate", "payload, ", &RATES[..])
        };
        let names: Vec<String> = self.lost.keys().map(|location| location.name().replace('_', " ")).collect();
        let part = |(name, (location, values)): (&'_ String, (&Location, &Vec<f64>))| {
            let Fill { hatched, .. } = fill(*location);
            (name.clone(), fill(*location).hex(), hatched, values.clone())
        };
        let parts: Vec<_> = names.iter().zip(&self.lost).map(part).collect();
        let lost = Panel {
            stack: (!parts.is_empty()).then(|| Stack {
                step_s: self.window_s,
                parts: (parts.iter())
                    .map(|(name, colour, faint, values)| Part {
                        name,
                        colour: colour.clone().into(),
                        faint: *faint,
                        values: values.clone(),
                    })
                    .collect(),
            }),
            ..panel("Packets lost, by location", "", &PACKETS)
        };
        let share = Panel {
            steps: true,
            lines: vec![line("lost", "--lost", &|window| self.lost_in(window) * 100.0 / self.sent[window].max(1.0))],
            ..panel("Share lost", "of packets sent, ", &SHARE)
        };
        let mut figures = vec![(rates, "Payload. Received: what arrived of the packets that left in that time.")];
        if !self.lost.is_empty() {
            figures.push((lost, "Locations in the order of a packet's path; the sender's are at the bottom."));
            figures.push((share, ""));
        }
        let mut html = timeline(figures);
        let every = short((self.window_s * 1e9) as u64);
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<p class=\"quiet\">Time counts from {since}. Each step is a sum over {}. Each packet is drawn at the time at which it was sent.</p>",
            escape(&every)
        );
        html
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    fn stream(sent_packets: u64, first_sent_ns: u64, last_sent_ns: u64) -> StreamSent {
        StreamSent { sent_packets, sent_bytes: 0, first_sent_ns, last_sent_ns }
    }

    fn loss(first_sequence: u64, packets: u64, location: Location) -> Loss {
        Loss { stream: 0, first_sequence, packets, unit_packets: 1, location, reason: Cow::Borrowed("why") }
    }

    #[test]
    fn a_loss_stands_where_its_packet_left() {
        // 1,001 packets in a second: one each millisecond, 100 windows of 10 ms.
        let mut departures = Departures::of(&[stream(1_001, 5_000_000_000, 6_000_000_000)]).unwrap();
        departures.lose(&loss(505, 10, Location::Network));
        let lost: Vec<_> =
            departures.lost[&Location::Network].iter().enumerate().filter(|(_, lost)| **lost > 0.0).collect();
        assert_eq!(lost, [(50, &5.0), (51, &5.0)]);
        assert_eq!((departures.sent.len(), departures.sent[0]), (100, 10.0));
    }

    /// A stream that sends all at 0.29 s begins in the window before that moment, as 0.29 / 0.01 is less than 29, and no packet of it left
    /// there. It took a step a packet.
    #[test]
    fn any_number_of_packets_takes_a_step_a_window() {
        let many = 1 << 60;
        let [first, other] = [stream(1_000, 0, 1_000_000_000), stream(many, 290_000_000, 290_000_000)];
        let departures = Departures::of(&[first, other]).unwrap();
        assert_eq!(departures.sent[28] + departures.sent[29], many as f64, "beside ten of the first in each");
        // One packet, and times that are not those of one.
        let departures = Departures::of(&[first, stream(1, 500_000_000, 900_000_000)]).unwrap();
        assert_eq!(departures.sent[50], departures.sent[51] + 1.0);
    }

    proptest! {
        #[test]
        fn no_packet_is_lost_from_the_figure(
            packets in 2_u64..100_000, span_ns in 1_u64..100_000_000_000, begin in 0_u64..1 << 40,
            losses in prop::collection::vec((0_u64..100_000, 1_u64..5_000), 0..20),
        ) {
            let Some(mut departures) = Departures::of(&[stream(packets, begin, begin + span_ns)]) else { return Ok(()) };
            prop_assert_eq!(departures.sent.iter().sum::<f64>(), packets as f64);
            prop_assert!(departures.sent.len() <= 500);
            for (first, count) in &losses {
                departures.lose(&loss(*first, *count, Location::ReceiverRing));
            }
            let lost: f64 = departures.lost.values().flatten().sum();
            prop_assert_eq!(lost, losses.iter().map(|(_, count)| *count as f64).sum::<f64>());
        }
    }
}
