//! What limits a flow, as seen from its receiving end.
//!
//! The receiver's socket does not show the sender's limits: only the sender's `TCP_INFO` shows whether its congestion window,
//! buffer or application holds it back ([`LimitedTimes`](super::LimitedTimes)). The receiver can find two causes of its own;
//! otherwise it reports that it is not the cause:
//!
//! | limit | evidence |
//! |---|---|
//! | `application` | at both ends of the time, unread data takes at least as much of the window as is still offered: the reader is slower than the path |
//! | `receive_window` | in a round trip at least ¾ of the window arrives: data in flight fills the window, and a larger one would help |
//! | `sender_or_path` | data arrives, and neither of those holds |
//! | `idle` | nothing arrives and nothing is unread |
//!
//! The kernel's own autotuning keeps the window at twice what a round trip brings (`tcp_rcv_space_adjust` in
//! `net/ipv4/tcp_input.c`), so a window that it may still enlarge shows a share of about ½; ¾ lies between that and 1.
//!
//! A time is judged as a whole once it is as long as a round trip, because data can arrive in one burst per round trip. The round
//! trip is the receiver's estimate (`tcpi_rcv_rtt`), before the first estimate that of the handshake (`tcpi_rtt`). The window is
//! `tcpi_rcv_wnd` (Linux 6.2); on older kernels the part of `tcpi_rcv_ssthresh` without unread data.

use serde::{Deserialize, Serialize};

use super::info::{TcpInfo, fields};

/// Share of the window that must arrive in a round trip; the module's documentation gives the reason.
const WINDOW_FULL: f64 = 0.75;
/// Longest time that is judged as a whole, however long the round trip.
const LONGEST_NS: u64 = 1_000_000_000;

/// Time that a flow was limited by each cause, as seen by its receiver, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReceiverTimes {
    /// The reading application was slower than the arrival of data.
    pub application_us: u64,
    /// The data in flight filled the window.
    pub receive_window_us: u64,
    /// Data arrived, and this end did not hold it back.
    pub sender_or_path_us: u64,
    /// Nothing arrived and nothing was unread.
    pub idle_us: u64,
}

/// Shares of the time, each from 0 to 1. Their sum is 1, or 0 if there was no time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiverLimitedBy {
    /// The reading application.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub application: f64,
    /// The receive window.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub receive_window: f64,
    /// The sender or the path; only the sender can distinguish them.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub sender_or_path: f64,
    /// Nothing arrived.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub idle: f64,
}

impl ReceiverTimes {
    /// The shares of the time.
    pub fn shares(&self) -> ReceiverLimitedBy {
        let parts = [self.application_us, self.receive_window_us, self.sender_or_path_us, self.idle_us];
        let all: f64 = parts.iter().map(|part| *part as f64).sum();
        let share = |part: u64| if all > 0.0 { part as f64 / all } else { 0.0 };
        ReceiverLimitedBy {
            application: share(parts[0]),
            receive_window: share(parts[1]),
            sender_or_path: share(parts[2]),
            idle: share(parts[3]),
        }
    }
}

impl ReceiverLimitedBy {
    /// The greatest share of the time in which there was data, with its name in a result; `None` if there never was data.
    pub fn foremost(&self) -> Option<(&'static str, f64)> {
        let shares = [
            ("application", self.application),
            ("receive_window", self.receive_window),
            ("sender_or_path", self.sender_or_path),
        ];
        shares.into_iter().filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What a receiving end observes over time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receiving {
    /// Times of each limit.
    pub times: ReceiverTimes,
    /// Most unread data at a sample, bytes.
    pub max_unread_bytes: u64,
    /// Largest window offered at a sample, bytes.
    pub max_window_bytes: u64,
    progress: Progress,
    since: Option<Reading>,
    unread_sum: f64,
    samples: u64,
}

/// What a receiving end of a test reports of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReceiverSummary {
    /// Times of each limit.
    pub times: ReceiverTimes,
    /// Mean of the unread data at the samples, bytes.
    pub mean_unread_bytes: u64,
    /// Most unread data at a sample, bytes.
    pub max_unread_bytes: u64,
    /// Payload bits per second that arrived in the second half of the time in which data arrived; 0 if it was too short.
    pub steady_bps: u64,
}

/// Readings that are kept at most; then every second one goes.
const KEPT: usize = 128;

/// Bytes received over time, in bounded memory.
#[derive(Debug, Clone, PartialEq, Default)]
struct Progress {
    /// Time and bytes, evenly spread.
    readings: Vec<(u64, u64)>,
    last: (u64, u64),
    stride: u64,
    seen: u64,
}

impl Progress {
    fn take(&mut self, at_ns: u64, bytes: u64) {
        // Time after the last byte is no part of the flow.
        if bytes == self.last.1 && self.seen > 0 {
            return;
        }
        self.last = (at_ns, bytes);
        if self.seen & self.stride == 0 {
            if self.readings.len() == KEPT {
                let mut number = 0;
                self.readings.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.stride = self.stride * 2 + 1;
            }
            self.readings.push((at_ns, bytes));
        }
        self.seen += 1;
    }

    fn second_half_bps(&self) -> u64 {
        let Some((first, _)) = self.readings.first() else { return 0 };
        let half = first + self.last.0.saturating_sub(*first) / 2;
        let Some((at, bytes)) = self.readings.iter().find(|(at, _)| *at >= half) else { return 0 };
        let (span, received) = (self.last.0.saturating_sub(*at), self.last.1.saturating_sub(*bytes));
        if span == 0 { 0 } else { u64::try_from(u128::from(received) * 8_000_000_000 / u128::from(span)).unwrap_or(0) }
    }
}

/// The part of a sample that matters here.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    at_ns: u64,
    received_bytes: u64,
    unread_bytes: u64,
    window_bytes: u64,
}

impl Reading {
    /// Unread data takes at least as much of the window as is still offered.
    fn reader_is_behind(&self) -> bool {
        self.unread_bytes > 0 && self.unread_bytes >= self.window_bytes
    }
}

impl Receiving {
    /// Takes the next sample, at `at_ns` on any clock that does not step. `unread_bytes` is the receive queue of sock_diag(7).
    pub fn take(&mut self, at_ns: u64, info: &TcpInfo, unread_bytes: u64) {
        let window_bytes = match info.get(fields::RCV_WND) {
            Some(offered) => offered,
            None => info.value(fields::RCV_SSTHRESH).saturating_sub(unread_bytes),
        };
        let now = Reading { at_ns, received_bytes: info.value(fields::BYTES_RECEIVED), unread_bytes, window_bytes };
        self.samples += 1;
        self.unread_sum += unread_bytes as f64;
        self.max_unread_bytes = self.max_unread_bytes.max(unread_bytes);
        self.max_window_bytes = self.max_window_bytes.max(window_bytes);
        self.progress.take(at_ns, now.received_bytes);
        let before = *self.since.get_or_insert(now);
        let rtt_us = [fields::RCV_RTT, fields::RTT].into_iter().map(|field| info.value(field)).find(|us| *us > 0);
        let rtt_ns = rtt_us.unwrap_or(0).saturating_mul(1_000);
        let span_ns = at_ns.saturating_sub(before.at_ns);
        if span_ns > 0 && span_ns >= rtt_ns.min(LONGEST_NS) {
            self.judge(&before, &now, rtt_ns);
            self.since = Some(now);
        }
    }

    fn judge(&mut self, before: &Reading, now: &Reading, rtt_ns: u64) {
        let span_ns = now.at_ns - before.at_ns;
        let received = now.received_bytes.saturating_sub(before.received_bytes) as f64;
        let in_a_round_trip = received * (rtt_ns as f64 / span_ns as f64).min(1.0);
        let window = before.window_bytes.max(now.window_bytes) as f64;
        let times = &mut self.times;
        *if before.reader_is_behind() && now.reader_is_behind() {
            &mut times.application_us
        } else if received == 0.0 && now.unread_bytes == 0 {
            &mut times.idle_us
        } else if rtt_ns > 0 && in_a_round_trip >= WINDOW_FULL * window {
            &mut times.receive_window_us
        } else {
            &mut times.sender_or_path_us
        } += span_ns / 1_000;
    }

    /// What is reported to the other end.
    pub fn summary(&self) -> ReceiverSummary {
        ReceiverSummary {
            times: self.times,
            mean_unread_bytes: self.mean_unread_bytes(),
            max_unread_bytes: self.max_unread_bytes,
            steady_bps: self.progress.second_half_bps(),
        }
    }

    /// Mean of the unread data at the samples, bytes.
    pub fn mean_unread_bytes(&self) -> u64 {
        (self.unread_sum / self.samples.max(1) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(received: u64, window: u64, rtt_us: u64) -> TcpInfo {
        let mut info = TcpInfo::default();
        for (field, value) in [
            (fields::BYTES_RECEIVED, received),
            (fields::RCV_WND, window),
            (fields::RCV_RTT, rtt_us),
            (fields::RTT, 99_000),
        ] {
            info.set(field, value);
        }
        info
    }

    /// 100 samples, 10 ms apart.
    fn run(sample: impl Fn(u64) -> (TcpInfo, u64)) -> ReceiverLimitedBy {
        let mut receiving = Receiving::default();
        for number in 0..=100 {
            let (info, unread) = sample(number);
            receiving.take(number * 10_000_000, &info, unread);
        }
        let times = receiving.times;
        let all = times.application_us + times.receive_window_us + times.sender_or_path_us + times.idle_us;
        assert!((950_000..=1_000_000).contains(&all), "{times:?}");
        times.shares()
    }

    #[test]
    fn a_reader_that_leaves_data_lying_is_the_limit() {
        let shares = run(|number| (info(number * 10_000, 3_000, 50_000), 60_000));
        assert_eq!(shares.foremost(), Some(("application", 1.0)));
        // Data that a fast reader has not read at the moment of a sample does not make it a slow one.
        let shares = run(|number| (info(number * 10_000, 3_000_000, 50_000), 60_000));
        assert_eq!(shares.foremost(), Some(("sender_or_path", 1.0)));
    }

    #[test]
    fn a_window_that_is_full_each_round_trip_is_the_limit() {
        // 64 KB each 50 ms, all in one burst: 1.3 MB/s is all that such a window allows.
        let shares = run(|number| (info(number / 5 * 65_000, 65_535, 50_000), 0));
        assert_eq!(shares.foremost(), Some(("receive_window", 1.0)));
        // The same with a window twice as large.
        let shares = run(|number| (info(number / 5 * 65_000, 131_070, 50_000), 0));
        assert_eq!(shares.foremost(), Some(("sender_or_path", 1.0)));
    }

    #[test]
    fn nothing_that_comes_is_nobodys_limit() {
        let shares = run(|_| (info(500, 65_535, 0), 0));
        assert_eq!((shares.idle, shares.foremost()), (1.0, None));
        assert_eq!(ReceiverTimes::default().shares(), ReceiverLimitedBy::default());
    }

    #[test]
    fn the_second_half_is_steady() {
        let mut receiving = Receiving::default();
        // 1 s in which nothing comes, 1 s of 1 MB/s, 3 s of 10 MB/s; then nothing.
        for ms in 0..10_000_u64 {
            let received = ms.saturating_sub(1_000).min(1_000) * 1_000 + ms.saturating_sub(2_000).min(3_000) * 10_000;
            receiving.take(ms * 1_000_000, &info(received, 100_000, 1_000), 0);
        }
        let steady = receiving.summary().steady_bps;
        assert!(steady.abs_diff(80_000_000) < 2_000_000, "{steady}");
        assert!(receiving.progress.readings.len() <= KEPT);
    }

    #[test]
    fn a_kernel_that_tells_no_window_has_its_limit() {
        let shares = run(|number| {
            let bytes = [0; 200];
            let all = info(number * 10_000, 0, 20_000);
            let mut old = TcpInfo::parse(&bytes);
            for field in [fields::BYTES_RECEIVED, fields::RCV_RTT] {
                old.set(field, all.value(field));
            }
            old.set(fields::RCV_SSTHRESH, 65_000);
            (old, 40_000)
        });
        assert_eq!(shares.foremost(), Some(("application", 1.0)));
    }
}
