//! What limits a flow, from its packets alone.
//!
//! After T-RAT (Zhang, Breslau, Paxson, Shenker: "On the Characteristics and Origins of Internet Flow Rates", SIGCOMM 2002) and
//! Siekkinen et al. ("A root cause analysis toolkit for TCP", Computer Networks 52, 2008). The flow's time is cut into slices of one
//! round trip of the path, and each slice gets the first of these limits that its packets show:
//!
//! | limit | evidence in the slice |
//! |---|---|
//! | `application` | silence longer than a round trip with all data acknowledged, and data sent within one round trip between two such silences; or a tenth of the packets shorter than a full segment |
//! | `congestion` | a retransmission, or less in flight than at the last one |
//! | `receive_window` | what is in flight, or what a round trip carries, comes within three segments or a tenth of the receiver's window |
//! | `slow_start` | a quarter more in flight than a round trip before, with no loss since the start or since silence |
//! | `path_rate` | as much as in the round trip before, to a tenth, with no silence of a quarter of it: the packets come at the pace of a bottleneck |
//! | `sender_window` | as much as before, in a burst with silence behind it: its congestion window or send buffer |
//! | `unclear` | none of these |
//!
//! Differences: a round trip is the path's own, of this flow (T-RAT guesses one of 27); `path_rate` needs no estimate of
//! capacity; slices of flows with less than 1 ms of round trip take 1 ms.

use serde::{Deserialize, Serialize};

/// A slice is not shorter, so that it holds some packets.
const SHORTEST_SLICE_NS: i64 = 1_000_000;

/// Shares of a flow's time by what limited it, 0…1; all together 1, or all 0 where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitedBy {
    /// The sending program had nothing to send.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub application: f64,
    /// Loss, and recovery from it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub congestion: f64,
    /// The receiver's window.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub receive_window: f64,
    /// The window was still opening.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub slow_start: f64,
    /// A bottleneck's rate, or the sender's pacing.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub path_rate: f64,
    /// The congestion window or the send buffer, without loss.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub sender_window: f64,
    /// Unknown.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub unclear: f64,
}

/// The limits and their evidence.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Shares of time.
    pub limited_by: LimitedBy,
    /// The round trip that slices were made of.
    pub path_rtt_ns: i64,
    /// Slices examined.
    pub slices: u64,
    /// Of these, with retransmitted data.
    pub slices_with_retransmissions: u64,
    /// Of these, those in which the data in flight reached the receiver's window.
    pub slices_at_receive_window: u64,
    /// Time in silence with all data acknowledged.
    pub silent_ns: i64,
    /// The largest flight in a slice.
    pub max_flight_bytes: u64,
}

/// A slice that goes on.
#[derive(Debug, Default, Clone, Copy)]
struct Slice {
    start_ns: i64,
    bytes: u64,
    packets: u32,
    short_packets: u32,
    retransmitted: bool,
    max_in_flight: u64,
    /// Packets that filled the receiver's window as it was then.
    filled_window: u32,
    /// Of packets with a window that is known.
    window_sum: u64,
    windows: u32,
    max_gap_ns: i64,
}

/// A data packet, as the slices see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at_ns: i64,
    pub(crate) payload: u64,
    pub(crate) retransmitted: bool,
    /// Not a multiple of the segment size.
    pub(crate) short: bool,
    /// With this packet, from the highest acknowledgment.
    pub(crate) in_flight: u64,
    /// Bytes; `None` where its scale is not known.
    pub(crate) window: Option<u64>,
    pub(crate) mss: u64,
    /// Of the whole path.
    pub(crate) rtt_ns: i64,
    /// The capture lost packets since the one before.
    pub(crate) after_gap: bool,
}

/// Finds out as packets go by.
#[derive(Debug, Default)]
pub(crate) struct LimitFinder {
    slice: Slice,
    began: bool,
    /// Nothing was sent in the round trip before the slice: what it has was not held back by a window.
    is_alone: bool,
    last_ns: i64,
    previous_flight: u64,
    previous_bytes: u64,
    lost_since_start: bool,
    recovering_to: u64,
    time_ns: [i64; 7],
    found: Limits,
}

#[derive(Clone, Copy)]
enum Limit {
    Application,
    Congestion,
    ReceiveWindow,
    SlowStart,
    PathRate,
    SenderWindow,
    Unclear,
}

/// A window is taken as full from here on: to three segments, or a tenth.
fn brim(window: u64, mss: u64) -> u64 {
    (window / 10 * 9).min(window.saturating_sub(3 * mss)).max(1)
}

impl LimitFinder {
    pub(crate) fn data(&mut self, seen: Seen) {
        if !self.began {
            self.began = true;
            self.is_alone = true;
            self.slice = Slice { start_ns: seen.at_ns, ..Slice::default() };
            self.last_ns = seen.at_ns;
        }
        if seen.after_gap {
            // Of that slice and of this silence nothing can be told.
            self.slice = Slice { start_ns: seen.at_ns, ..Slice::default() };
            self.last_ns = seen.at_ns;
            (self.previous_flight, self.previous_bytes, self.recovering_to) = (0, 0, 0);
        }
        let gap_ns = (seen.at_ns - self.last_ns).max(0);
        let long_ns = seen.rtt_ns.max(SHORTEST_SLICE_NS);
        if gap_ns > long_ns && seen.in_flight <= seen.payload {
            // What was in flight took a round trip; after that the sender could have sent.
            let bounds = if self.is_alone { Some(Limit::Application) } else { None };
            self.end_slice(self.last_ns + seen.rtt_ns, seen.mss, seen.rtt_ns, bounds);
            self.is_alone = true;
            let silent_ns = gap_ns - seen.rtt_ns;
            self.add(Limit::Application, silent_ns);
            self.found.silent_ns = self.found.silent_ns.saturating_add(silent_ns);
            self.slice.start_ns = seen.at_ns;
            self.previous_flight = 0;
            self.lost_since_start = false;
            self.recovering_to = 0;
        } else if seen.at_ns - self.slice.start_ns >= long_ns {
            self.slice.max_gap_ns = self.slice.max_gap_ns.max(gap_ns);
            self.end_slice(seen.at_ns, seen.mss, seen.rtt_ns, None);
            self.is_alone = false;
        } else {
            self.slice.max_gap_ns = self.slice.max_gap_ns.max(gap_ns);
        }
        let slice = &mut self.slice;
        slice.bytes += seen.payload;
        slice.packets += 1;
        slice.short_packets += u32::from(seen.short);
        slice.retransmitted |= seen.retransmitted;
        slice.max_in_flight = slice.max_in_flight.max(seen.in_flight);
        if let Some(window) = seen.window {
            slice.filled_window += u32::from(seen.in_flight >= brim(window, seen.mss));
            slice.window_sum += window;
            slice.windows += 1;
        }
        self.last_ns = seen.at_ns;
        self.found.path_rtt_ns = seen.rtt_ns;
    }

    /// The slice ends. `known`: its limit, unless it has retransmissions or the receiver's window filled.
    fn end_slice(&mut self, end_ns: i64, mss: u64, rtt_ns: i64, known: Option<Limit>) {
        let slice = self.slice;
        let took_ns = (end_ns - slice.start_ns).max(0);
        self.slice = Slice { start_ns: end_ns, ..Slice::default() };
        if slice.packets == 0 || took_ns == 0 {
            return;
        }
        let per_rtt = (slice.bytes as f64 * rtt_ns as f64 / took_ns as f64) as u64;
        let flight = slice.max_in_flight.max(per_rtt);
        let limit = self.judge(&slice, flight, took_ns, mss, known);
        self.add(limit, took_ns);
        self.found.slices += 1;
        self.found.max_flight_bytes = self.found.max_flight_bytes.max(flight);
        self.previous_flight = flight;
        self.previous_bytes = (slice.bytes as f64 * 1e6 / took_ns as f64) as u64;
    }

    /// Of stamps that go to and fro any sum can come.
    fn add(&mut self, limit: Limit, took_ns: i64) {
        let time_ns = &mut self.time_ns[limit as usize];
        *time_ns = time_ns.saturating_add(took_ns);
    }

    fn judge(&mut self, slice: &Slice, flight: u64, took_ns: i64, mss: u64, known: Option<Limit>) -> Limit {
        // Behind the path less is in flight than a round trip carries: there the bytes of a round trip tell.
        let is_behind = slice.max_in_flight < brim(flight, mss);
        let mean_window = slice.window_sum.checked_div(slice.windows.into()).filter(|_| is_behind);
        let at_window = slice.filled_window > 0 || mean_window.is_some_and(|window| flight >= brim(window, mss));
        self.found.slices_at_receive_window += u64::from(at_window);
        if slice.retransmitted {
            self.found.slices_with_retransmissions += 1;
            self.lost_since_start = true;
            self.recovering_to = self.recovering_to.max(self.previous_flight);
            return Limit::Congestion;
        }
        if at_window {
            return Limit::ReceiveWindow;
        }
        if let Some(known) = known {
            self.recovering_to = 0;
            return known;
        }
        if flight < self.recovering_to / 20 * 19 {
            return Limit::Congestion;
        }
        self.recovering_to = 0;
        if slice.short_packets >= slice.packets.div_ceil(10) && slice.short_packets > 1 {
            return Limit::Application;
        }
        if !self.lost_since_start && flight >= self.previous_flight + self.previous_flight / 4 {
            return Limit::SlowStart;
        }
        let rate = (slice.bytes as f64 * 1e6 / took_ns as f64) as u64;
        if rate.abs_diff(self.previous_bytes) > self.previous_bytes / 10 {
            return Limit::Unclear;
        }
        if slice.max_gap_ns < took_ns / 4 { Limit::PathRate } else { Limit::SenderWindow }
    }

    /// The verdict at the end; `None` where there were no two slices.
    pub(crate) fn finish(&mut self, mss: u64) -> Option<Limits> {
        self.end_slice(self.last_ns, mss, self.found.path_rtt_ns.max(1), None);
        let total = self.time_ns.iter().copied().fold(0, i64::saturating_add);
        if self.found.slices < 2 || total <= 0 {
            return None;
        }
        let share = |limit: Limit| self.time_ns[limit as usize] as f64 / total as f64;
        self.found.limited_by = LimitedBy {
            application: share(Limit::Application),
            congestion: share(Limit::Congestion),
            receive_window: share(Limit::ReceiveWindow),
            slow_start: share(Limit::SlowStart),
            path_rate: share(Limit::PathRate),
            sender_window: share(Limit::SenderWindow),
            unclear: share(Limit::Unclear),
        };
        Some(self.found)
    }
}

impl LimitedBy {
    /// Names and shares, the largest first.
    pub fn largest_first(&self) -> [(&'static str, f64); 7] {
        let mut all = [
            ("application", self.application),
            ("congestion", self.congestion),
            ("receive_window", self.receive_window),
            ("slow_start", self.slow_start),
            ("path_rate", self.path_rate),
            ("sender_window", self.sender_window),
            ("unclear", self.unclear),
        ];
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: i64 = 10_000_000;
    const MSS: u64 = 1_000;

    fn packet(at_ns: i64, in_flight: u64) -> Seen {
        Seen {
            at_ns,
            payload: MSS,
            retransmitted: false,
            short: false,
            in_flight,
            window: Some(100_000),
            mss: MSS,
            rtt_ns: RTT_NS,
            after_gap: false,
        }
    }

    /// Runs 100 round trips with `packets` a round trip, spread over `share` of it.
    fn run(packets: i64, share: f64, change: impl Fn(&mut Seen, i64)) -> LimitedBy {
        let mut finder = LimitFinder::default();
        for round in 0..100 {
            for number in 0..packets {
                let within = (RTT_NS as f64 * share / packets as f64) as i64 * number;
                let mut seen = packet(round * RTT_NS + within, packets as u64 * MSS);
                change(&mut seen, round);
                finder.data(seen);
            }
        }
        finder.finish(MSS).unwrap().limited_by
    }

    #[test]
    fn each_limit_is_told_by_its_evidence() {
        assert!(run(50, 1.0, |_, _| {}).path_rate > 0.95);
        assert!(run(50, 0.3, |_, _| {}).sender_window > 0.95);
        assert!(run(50, 1.0, |seen, _| seen.window = Some(51_000)).receive_window > 0.95);
        assert!(run(50, 1.0, |seen, _| seen.short = true).application > 0.9);
        assert!(run(50, 1.0, |seen, round| seen.retransmitted = round % 2 == 0).congestion > 0.45);
    }

    /// A packet each 100 ms where the round trip is 10 ms: nine tenths of the time nothing was to be sent, and in the other tenth no
    /// window held the packet back.
    #[test]
    fn silence_is_the_application() {
        let mut finder = LimitFinder::default();
        for number in 0..50 {
            finder.data(packet(number * 100_000_000, MSS));
        }
        let limits = finder.finish(MSS).unwrap();
        assert!(limits.limited_by.application > 0.99, "{limits:?}");
        assert_eq!(limits.silent_ns, 49 * 90_000_000);
    }

    /// Captured at the receiver, where two super-packets in flight are more than half of a small window.
    #[test]
    fn a_window_is_full_behind_the_path_as_well() {
        let at_receiver = |seen: &mut Seen, _| (seen.in_flight, seen.window) = (30 * MSS, Some(51_000));
        assert!(run(50, 1.0, at_receiver).receive_window > 0.95);
        assert!(run(50, 1.0, |seen, round| (at_receiver(seen, round), seen.window = Some(80_000)).1).path_rate > 0.95);
    }

    /// Objects of several round trips each, with silence between: the window opens, then nothing is to be sent.
    #[test]
    fn a_window_that_opens_between_silences_is_slow_start() {
        let mut finder = LimitFinder::default();
        for object in 0..10 {
            for round in 0..5_i64 {
                for number in 0..1 << round {
                    let at_ns = object * 100_000_000 + round * RTT_NS + number * 1_000;
                    finder.data(packet(at_ns, (number as u64 + 1) * MSS));
                }
            }
        }
        let limits = finder.finish(MSS).unwrap().limited_by;
        assert!((limits.slow_start - 0.5).abs() < 0.06 && (limits.application - 0.5).abs() < 0.06, "{limits:?}");
    }

    #[test]
    fn a_flight_that_doubles_is_slow_start() {
        let mut finder = LimitFinder::default();
        for round in 0..7 {
            for number in 0..1 << round {
                finder.data(packet(round * RTT_NS + number * 1_000, (number as u64 + 1) * MSS));
            }
        }
        let limits = finder.finish(MSS).unwrap();
        assert!(limits.limited_by.slow_start > 0.95, "{limits:?}");
    }
}
