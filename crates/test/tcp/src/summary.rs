//! The summary of a flow's samples, computed as they arrive, in constant memory.

use serde::{Deserialize, Serialize};

use super::info::{Field, TcpInfo, fields};
use super::limited::LimitedTimes;

/// What a flow did between its first sample that counts and its last.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Number of samples.
    pub samples: u64,
    /// Time from the first sample to the last.
    pub span_ns: u64,
    /// Payload bytes sent, retransmissions included (`tcpi_bytes_sent`); `null` before Linux 4.19.
    pub sent_bytes: Option<u64>,
    /// Payload bytes that the receiver acknowledged (`tcpi_bytes_acked`); `null` before Linux 4.1, and from older versions.
    #[serde(default)]
    pub acked_bytes: Option<u64>,
    /// Time from the first sample to the last one that had more of them.
    #[serde(default)]
    pub acked_span_ns: u64,
    /// Retransmitted payload bytes (`tcpi_bytes_retrans`); `null` before Linux 4.19.
    pub retransmitted_bytes: Option<u64>,
    /// Retransmitted packets (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Retransmissions that the receiver reported as duplicates (`tcpi_dsack_dups`, RFC 3708).
    pub spurious_retransmits: u64,
    /// Retransmission timeouts (`tcpi_total_rto`); `null` before Linux 6.7.
    pub timeouts: Option<u64>,
    /// Packets that arrived with a mark of congestion (CE, RFC 3168), as the receiver told (`tcpi_delivered_ce`); `null` before Linux 4.18.
    #[serde(default)]
    pub marked_packets: Option<u64>,
    /// Least round-trip time (`tcpi_min_rtt`); `null` if the kernel has none.
    pub min_rtt_ns: Option<u64>,
    /// Mean over time of the smoothed round-trip time (`tcpi_rtt`, RFC 6298's SRTT).
    pub mean_rtt_ns: Option<u64>,
    /// Greatest smoothed round-trip time.
    pub max_rtt_ns: Option<u64>,
    /// Mean congestion window, bytes (`tcpi_snd_cwnd` × `tcpi_snd_mss`).
    pub mean_cwnd_bytes: Option<u64>,
    /// Greatest congestion window, bytes.
    pub max_cwnd_bytes: Option<u64>,
    /// Greatest data in flight at a sample, bytes (`tcpi_unacked` × `tcpi_snd_mss`).
    #[serde(default)]
    pub max_in_flight_bytes: u64,
    /// Mean of the data in flight at the samples with any, bytes; `null` if there was none.
    #[serde(default)]
    pub mean_in_flight_bytes: Option<u64>,
    /// Times that it went into recovery or a retransmission timeout between two samples (`tcpi_ca_state`). It may have done so more
    /// often: what begins and ends between two samples is not seen.
    #[serde(default)]
    pub loss_events: u64,
    /// Segment size at the end, bytes (`tcpi_snd_mss`).
    pub mss_bytes: u64,
    /// TCP options in use: selective acknowledgements, time stamps, window scaling, ECN (`tcpi_options`).
    pub options: u8,
    /// By how many bits the windows are shifted that it receives (`tcpi_snd_wscale`).
    #[serde(default)]
    pub send_window_scale: u8,
    /// By how many bits the windows are shifted that it sends (`tcpi_rcv_wscale`).
    #[serde(default)]
    pub receive_window_scale: u8,
    /// The largest segment that it announced, bytes (`tcpi_advmss`).
    #[serde(default)]
    pub announced_mss_bytes: u64,
    /// Times of each limit; all 0 before Linux 4.10.
    pub limited: LimitedTimes,
    #[serde(skip)]
    running: Running,
}

/// Intermediate values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Running {
    first: Option<(u64, TcpInfo)>,
    last: Option<(u64, TcpInfo)>,
    rtt_us_sum: f64,
    rtt_count: u64,
    cwnd_bytes_sum: f64,
    in_flight_bytes_sum: f64,
    in_flight_count: u64,
    /// The last sample at which the kernel's clock of a full send buffer had moved on.
    buffer_full_at: Option<u64>,
}

/// The longest tick of the kernel's clocks (`CONFIG_HZ` of 100): they may show that late what they count.
const TICK_NS: u64 = 10_000_000;

/// `TCP_CA_Recovery` of `include/uapi/linux/tcp.h`; only `TCP_CA_Loss` is greater.
const CA_RECOVERY: u64 = 3;

/// Retransmissions, by TCP's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CountedRetransmits {
    /// Packets.
    pub packets: u64,
    /// Payload bytes; 0 where the kernel does not count them.
    pub payload_bytes: u64,
    /// Packets that the receiver reported as duplicates.
    pub spurious_packets: u64,
}

impl FlowSummary {
    /// Takes the next sample, at `at_ns` on any clock that does not step.
    pub fn take(&mut self, at_ns: u64, info: &TcpInfo) {
        let running = &mut self.running;
        let (first_at, first) = *running.first.get_or_insert((at_ns, *info));
        if let Some((before_at, before)) = running.last {
            let elapsed_us = at_ns.saturating_sub(before_at) / 1_000;
            // The beginning of a connection is no sample: nothing is known of the time from there.
            if self.samples > 0 && info.value(fields::SNDBUF_LIMITED) > before.value(fields::SNDBUF_LIMITED) {
                running.buffer_full_at = Some(at_ns);
            }
            // ACKs empty the buffer once a round trip.
            let turn_ns = info.value(fields::RTT) * 1_000 + TICK_NS;
            let buffer_was_full = running.buffer_full_at.is_some_and(|full| before_at.saturating_sub(full) <= turn_ns);
            // A timeout in recovery reduces the window once more.
            let states = [before, *info].map(|info| info.value(fields::CA_STATE));
            self.loss_events += u64::from(states[1] >= CA_RECOVERY && states[1] > states[0]);
            // Without the clocks the limits are not known.
            let _ = self.limited.add(&before, info, elapsed_us, buffer_was_full);
        }
        running.last = Some((at_ns, *info));
        self.samples += 1;
        self.span_ns = at_ns.saturating_sub(first_at);
        let rise = |field: Field| Some(info.get(field)?.saturating_sub(first.get(field)?));
        // 32-bit counters can wrap.
        let rise32 = |field: Field| (info.value(field) as u32).wrapping_sub(first.value(field) as u32).into();
        self.sent_bytes = rise(fields::BYTES_SENT);
        let acked_bytes = rise(fields::BYTES_ACKED);
        if acked_bytes > self.acked_bytes.or(Some(0)) {
            self.acked_span_ns = self.span_ns;
        }
        self.acked_bytes = acked_bytes;
        self.retransmitted_bytes = rise(fields::BYTES_RETRANS);
        self.retransmits = rise32(fields::TOTAL_RETRANS);
        self.spurious_retransmits = rise32(fields::DSACK_DUPS);
        self.timeouts = rise(fields::TOTAL_RTO);
        self.marked_packets = rise(fields::DELIVERED_CE);
        self.mss_bytes = info.value(fields::SND_MSS);
        self.options = info.value(fields::OPTIONS) as u8;
        self.send_window_scale = info.value(fields::SND_WSCALE) as u8;
        self.receive_window_scale = info.value(fields::RCV_WSCALE) as u8;
        self.announced_mss_bytes = info.value(fields::ADVMSS);
        // The kernel reports ~0 until there is a value.
        let min_rtt_us = info.get(fields::MIN_RTT).filter(|us| (1..u64::from(u32::MAX)).contains(us));
        self.min_rtt_ns = min_rtt_us.map(|us| us * 1_000).into_iter().chain(self.min_rtt_ns).min();
        let rtt_us = info.value(fields::RTT);
        if rtt_us > 0 {
            running.rtt_us_sum += rtt_us as f64;
            running.rtt_count += 1;
            self.mean_rtt_ns = Some((running.rtt_us_sum * 1_000.0 / running.rtt_count as f64) as u64);
            self.max_rtt_ns = self.max_rtt_ns.max(Some(rtt_us * 1_000));
        }
        let in_flight = info.value(fields::UNACKED).saturating_mul(self.mss_bytes);
        self.max_in_flight_bytes = self.max_in_flight_bytes.max(in_flight);
        if in_flight > 0 {
            running.in_flight_bytes_sum += in_flight as f64;
            running.in_flight_count += 1;
            self.mean_in_flight_bytes = Some((running.in_flight_bytes_sum / running.in_flight_count as f64) as u64);
        }
        let cwnd_bytes = info.value(fields::SND_CWND).saturating_mul(self.mss_bytes);
        running.cwnd_bytes_sum += cwnd_bytes as f64;
        self.mean_cwnd_bytes = Some((running.cwnd_bytes_sum / self.samples as f64) as u64);
        self.max_cwnd_bytes = self.max_cwnd_bytes.max(Some(cwnd_bytes));
    }

    /// The connection began at `at_ns`, with all counters at 0. Call this before the first sample; its counters then cover the
    /// whole life of the connection. `like` shows which fields the kernel writes.
    pub fn begin(&mut self, at_ns: u64, like: &TcpInfo) {
        let mut info = TcpInfo::default();
        // At that time nothing waited, and the window had room.
        info.set(fields::SND_CWND, 1);
        info.set_length(like.length());
        self.running.first = Some((at_ns, info));
        self.running.last = Some((at_ns, info));
    }

    /// Forgets all earlier samples, because the omitted time is over. The next sample is the first.
    pub fn restart(&mut self) {
        let last = self.running.last;
        *self = Self::default();
        if let Some((at_ns, info)) = last {
            self.take(at_ns, &info);
        }
    }

    /// What was retransmitted, all of it.
    pub fn retransmitted(&self) -> CountedRetransmits {
        CountedRetransmits {
            packets: self.retransmits,
            payload_bytes: self.retransmitted_bytes.unwrap_or(0),
            spurious_packets: self.spurious_retransmits,
        }
    }

    /// The last sample, with its time.
    pub fn last(&self) -> Option<(u64, TcpInfo)> {
        self.running.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(sent: u64, retransmitted: u64, rtt_us: u64, cwnd: u64) -> TcpInfo {
        let mut info = TcpInfo::parse(&[0; 280]);
        for (field, value) in [
            (fields::BYTES_SENT, sent),
            (fields::BYTES_RETRANS, retransmitted),
            (fields::RTT, rtt_us),
            (fields::MIN_RTT, rtt_us / 2),
            (fields::SND_CWND, cwnd),
            (fields::SND_MSS, 1_000),
            (fields::TOTAL_RETRANS, u64::from(u32::MAX - 1) + retransmitted / 1_000),
            (fields::BUSY_TIME, sent),
            (fields::BYTES_ACKED, sent.min(600)),
        ] {
            info.set(field, value);
        }
        info
    }

    #[test]
    fn a_summary_is_the_difference_of_first_and_last_and_the_mean_between() {
        let mut summary = FlowSummary::default();
        summary.take(1_000_000, &info(100, 0, 20_000, 10));
        summary.take(2_000_000, &info(600, 0, 40_000, 20));
        summary.take(3_000_000, &info(1_100, 3_000, 60_000, 30));
        assert_eq!((summary.samples, summary.span_ns), (3, 2_000_000));
        assert_eq!((summary.sent_bytes, summary.retransmitted_bytes), (Some(1_000), Some(3_000)));
        // The last sample acknowledged nothing new.
        assert_eq!((summary.acked_bytes, summary.acked_span_ns), (Some(500), 1_000_000));
        // Over the wrap of 32 bits.
        assert_eq!(summary.retransmits, 3);
        assert_eq!(
            (summary.min_rtt_ns, summary.mean_rtt_ns, summary.max_rtt_ns),
            (Some(10_000_000), Some(40_000_000), Some(60_000_000))
        );
        assert_eq!((summary.mean_cwnd_bytes, summary.max_cwnd_bytes), (Some(20_000), Some(30_000)));
        assert_eq!((summary.limited.elapsed_us, summary.limited.busy_us), (2_000, 1_000));
        summary.restart();
        assert_eq!((summary.samples, summary.sent_bytes), (1, Some(0)));
        summary.take(4_000_000, &info(1_200, 4_000, 60_000, 30));
        assert_eq!(
            (summary.sent_bytes, summary.retransmitted_bytes, summary.span_ns),
            (Some(100), Some(1_000), 1_000_000)
        );
    }

    #[test]
    fn a_connection_seen_from_its_beginning_has_all_it_did_in_one_sample() {
        let mut summary = FlowSummary::default();
        let last = info(5_000, 1_000, 20_000, 10);
        summary.begin(1_000_000, &last);
        summary.take(9_000_000, &last);
        assert_eq!((summary.samples, summary.span_ns), (1, 8_000_000));
        assert_eq!((summary.sent_bytes, summary.retransmitted_bytes), (Some(5_000), Some(1_000)));
        // Busy for 5 ms of the 8, with the last write in flight.
        assert_eq!((summary.limited.elapsed_us, summary.limited.shares().application), (8_000, 1.0));
    }

    /// What the kernel said each 10 ms of a flow with `SO_SNDBUF` of 16 KB over 20 ms: packets in flight and in the window, bytes that
    /// wait, busy and full-buffer clocks in milliseconds. At most 47 of 104 to 144 packets are in flight, and at most 60 in the buffer.
    const SMALL_BUFFER: [[u64; 5]; 25] = [
        [14, 104, 47_784, 1_024, 372],
        [36, 104, 15_928, 1_036, 372],
        [47, 104, 0, 1_048, 380],
        [13, 104, 62_264, 1_056, 388],
        [26, 106, 30_408, 1_068, 388],
        [47, 106, 0, 1_076, 388],
        [35, 106, 0, 1_088, 400],
        [17, 106, 0, 1_096, 408],
        [18, 106, 41_992, 1_108, 412],
        [40, 106, 10_136, 1_116, 412],
        [47, 106, 0, 1_128, 420],
        [15, 106, 56_472, 1_136, 428],
        [30, 106, 24_616, 1_148, 428],
        [39, 106, 0, 1_160, 432],
        [17, 106, 0, 1_168, 440],
        [20, 107, 39_096, 1_180, 444],
        [47, 107, 0, 1_188, 444],
        [47, 107, 0, 1_200, 456],
        [18, 136, 41_992, 1_212, 460],
        [46, 136, 1_448, 1_220, 460],
        [47, 136, 0, 1_232, 472],
        [47, 136, 0, 1_244, 484],
        [0, 144, 0, 1_252, 492],
        [30, 144, 24_616, 1_264, 492],
        [47, 144, 0, 1_272, 496],
    ];

    fn small_buffer(turns: usize, change: impl Fn(&mut TcpInfo)) -> FlowSummary {
        let mut summary = FlowSummary::default();
        for turn in 0..turns {
            for (row, [unacked, cwnd, notsent, busy_ms, full_ms]) in SMALL_BUFFER.into_iter().enumerate() {
                let mut info = info(0, 0, 20_500, cwnd);
                let clocks = [(fields::BUSY_TIME, busy_ms, 1_024), (fields::SNDBUF_LIMITED, full_ms, 372)];
                for (field, ms, first) in clocks {
                    info.set(field, 1_000 * (ms + turn as u64 * (if first == 372 { 124 } else { 250 })));
                }
                for (field, value) in
                    [(fields::UNACKED, unacked), (fields::NOTSENT_BYTES, notsent), (fields::SND_MSS, 1_448)]
                {
                    info.set(field, value);
                }
                change(&mut info);
                summary.take((turn * 250 + row * 10) as u64 * 1_000_000 + 1, &info);
            }
        }
        summary
    }

    #[test]
    fn a_small_send_buffer_is_the_limit_also_while_it_is_paced_out() {
        let shares = small_buffer(4, |_| ()).limited.shares();
        assert!(shares.send_buffer > 0.95, "{shares:?}");
        // The same flow in a window of 40: it is full of what the buffer holds.
        let shares = small_buffer(4, |info| {
            info.set(fields::SND_CWND, 40);
            info.set(fields::UNACKED, info.value(fields::UNACKED).min(40));
        });
        assert!(shares.limited.shares().congestion_window > 0.3, "{shares:?}");
        // Without the clock it is an application that stops and goes, and pacing.
        let shares = small_buffer(4, |info| info.set(fields::SNDBUF_LIMITED, 0)).limited.shares();
        assert_eq!(shares.send_buffer, 0.0, "{shares:?}");
    }

    #[test]
    fn each_way_into_recovery_is_a_loss_event() {
        let mut summary = FlowSummary::default();
        // Open, disorder, recovery (twice seen), open, CWR, recovery, loss, open; in flight where not open.
        for (at, state) in (1..).zip([0, 1, 3, 3, 0, 2, 3, 4, 0]) {
            let mut info = info(0, 0, 1_000, 10);
            info.set(fields::CA_STATE, state);
            info.set(fields::UNACKED, state);
            summary.take(at, &info);
        }
        assert_eq!(summary.loss_events, 3);
        assert_eq!((summary.max_in_flight_bytes, summary.mean_in_flight_bytes), (4_000, Some(16_000 / 6)));
    }

    #[test]
    fn no_round_trip_time_yet_is_none() {
        let mut summary = FlowSummary::default();
        let mut info = info(0, 0, 0, 10);
        info.set(fields::MIN_RTT, u32::MAX.into());
        summary.take(1, &info);
        assert_eq!((summary.min_rtt_ns, summary.mean_rtt_ns), (None, None));
    }
}
