//! One direction's data of a TCP connection, and what comes back for it.

pub(crate) mod late;

use longhaul_wire::tcp::flag;

use crate::gaps::Lost;
use crate::identification::Identifications;
use crate::limits::{LimitFinder, Seen as Sliced};
use crate::loss::{Loss, Losses};
use crate::pace::Pace;
use crate::round_trip::{RoundTrips, Samples};
use crate::sequence::{Covered, Hole, Seen};
use crate::summary::{IntervalQuantiles, RttSummary, TcpSummary};
use longhaul_captures::packet::Tcp;

/// A direction of data. Small: a capture has a million of these open at once.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub(crate) packets: u64,
    pub(crate) wire_packets: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) data_packets: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) unique_bytes: u64,
    pub(crate) first_data_ns: i64,
    pub(crate) last_data_ns: i64,
    pub(crate) seen: Seen,
    /// The SYN's number.
    pub(crate) initial_sequence: Option<u32>,
    pub(crate) fin: bool,
    /// What the receiver of this data announced in its SYN.
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    /// Whether both SYNs were seen, so that no scale means none.
    pub(crate) scale_known: bool,
    /// Highest acknowledgment of this data; 0 before one.
    pub(crate) acked: u64,
    last_ack_ns: i64,
    /// It carried no data, and no gap of the capture came since.
    last_ack_is_pure: bool,
    /// No gap of the capture came since the last acknowledgment.
    acked_since_gap: bool,
    /// Scaled if the scale is known.
    window: u64,
    raw_window: u16,
    duplicate_acks: u32,
    sacked: u64,
    zero_since: Option<i64>,
    ids: Identifications,
    /// TSval of the last packet of this direction.
    last_ts_val: Option<u32>,
    /// Of the first one, where there is a last.
    first_ts_val: u32,
    first_ts_ns: i64,
    /// Retransmissions below this belong to a timeout.
    timeout_until: u64,
    /// Those below this belong to a recovery that news of a loss began.
    recovery_until: u64,
    /// Behind the SYN's number.
    syn_until: u64,
    /// Acknowledgments with clipped options passed while all below this was in flight.
    clipped_until: u64,
    /// A retransmission whose acknowledgment may tell that it was needless: its end and TSval.
    eifel: Option<(u64, u32)>,
    in_flight_sum: f64,
    /// Time in gaps of the capture, as far as was looked.
    gap_ns: i64,
    /// There was one since the last packet of this direction that has numbers.
    after_gap: bool,
    pub(crate) trips: RoundTrips,
    /// The least and the largest window.
    windows: Option<(u64, u64)>,
    max_in_flight: u64,
    /// What most directions never have: a capture may hold a million open connections.
    counted: Option<Box<Counted>>,
    pub(crate) ample: Option<Box<Ample>>,
}

/// What is kept of a direction once it has carried data.
#[derive(Debug, Default)]
pub(crate) struct Ample {
    pub(crate) pace: Pace,
    limits: LimitFinder,
    /// Once there were some, or a gap of the capture.
    losses: Option<Box<Losses>>,
}

/// Events of one direction; [`TcpSummary`] says what each is.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    retransmitted_packets: u64,
    retransmitted_wire_packets: u64,
    retransmitted_bytes: u64,
    fast: u64,
    timeout: u64,
    unknown_cause: u64,
    unseen: u64,
    dsack: u64,
    spurious_by_timestamp: u64,
    out_of_order: u64,
    duplicates: u64,
    behind_ack: u64,
    judged_without_rtt: u64,
    keep_alives: u64,
    duplicate_acks: u64,
    sack_acks: u64,
    clipped_acks: u64,
    zero_window_acks: u64,
    zero_window_ns: i64,
    window_full: u64,
}

/// A packet of the direction, beside its TCP header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at_ns: i64,
    pub(crate) frame_len: u32,
    pub(crate) id: Option<u32>,
    /// Wire packets, as far as known.
    pub(crate) segments: u32,
    /// SYN and FIN take a number each.
    pub(crate) numbers: u32,
    /// The whole path's round trip, as far as known.
    pub(crate) path_rtt_ns: Option<i64>,
    /// Whether that is the whole path's, and not that of the part behind this point.
    pub(crate) knows_path_rtt: bool,
    /// From here to the sender and back, as far as known.
    pub(crate) sender_rtt_ns: Option<i64>,
    /// Whether acknowledgments are seen.
    pub(crate) answered: bool,
    /// How its time stands to the gaps of the capture.
    pub(crate) lost: Lost,
}

impl Half {
    /// Memory beside its own place, bytes.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        let counted = if self.counted.is_some() { size_of::<Counted>() } else { 0 };
        let ample = self.ample.as_ref().map_or(0, |ample| {
            let losses = if ample.losses.is_some() { size_of::<Losses>() } else { 0 };
            size_of::<Ample>() + ample.pace.heap_bytes() + losses
        });
        self.seen.heap_bytes() + self.trips.heap_bytes() + counted + ample
    }

    /// Bytes of a full segment, as far as the handshake tells.
    pub(crate) fn segment_bytes(&self) -> Option<u32> {
        let options = if self.last_ts_val.is_some() { 12 } else { 0 };
        self.mss.map(|mss| u32::from(mss).saturating_sub(options).max(1))
    }

    /// Before any packet of the connection: whether packets may be missing before it.
    #[inline]
    pub(crate) fn look_for_gap(&mut self, lost: Lost) {
        if lost.since(self.gap_ns) {
            self.gap_ns = lost.gap_ns;
            self.after_gap = true;
            (self.last_ack_is_pure, self.acked_since_gap) = (false, false);
            self.trips.interrupted(self.seen.next);
        }
    }

    /// A packet of this direction. The interval since the data packet before, where it carries data.
    #[inline]
    pub(crate) fn sent(&mut self, tcp: &Tcp, sent: Sent) -> Option<i64> {
        self.packets += 1;
        self.wire_packets += u64::from(sent.segments);
        self.frame_bytes += u64::from(sent.frame_len);
        let identified = self.ids.take(sent.id, sent.segments);
        let ts_val = tcp.options.timestamps.map(|(val, _)| val);
        if let Some(val) = ts_val {
            self.trips.stamped(val, sent.at_ns);
            if self.last_ts_val.is_none() {
                (self.first_ts_val, self.first_ts_ns) = (val, sent.at_ns);
            }
            self.last_ts_val = Some(val);
        }
        if self.seen.is_empty() {
            self.seen.begin(tcp.seq);
        }
        let start = self.seen.unwrap(tcp.seq);
        if tcp.payload_len <= 1 && sent.numbers == 0 && start + 1 == self.seen.next && self.acked == self.seen.next {
            self.counted().keep_alives += 1;
            return None;
        }
        let numbers = u64::from(tcp.payload_len) + u64::from(sent.numbers);
        if numbers == 0 {
            return None;
        }
        if tcp.flags & u16::from(flag::SYN) != 0 {
            self.syn_until = start + 1;
        }
        if self.data_packets == 0 && self.initial_sequence.is_none() && start > self.seen.next {
            // What was in flight when the capture began is not missing from it.
            self.seen.skip_to(start);
        }
        let end = start + numbers;
        let in_gap = self.after_gap;
        let made = (sent.at_ns, ts_val, self.data_packets, identified.map(|own| own.id));
        let covered = self.seen.take(start, end, || Hole {
            start: 0,
            end: 0,
            in_gap,
            acknowledged: false,
            at_ns: made.0,
            ts_val: made.1,
            data_packets: made.2,
            id: made.3,
        });
        if in_gap && self.ample.is_some() {
            let segment_bytes = self.segment_bytes().unwrap_or(1_448).into();
            self.ample.get_or_insert_default().losses.get_or_insert_default().cut(start, segment_bytes);
        }
        let mut retransmitted = false;
        if covered.beyond == numbers {
            self.trips.sent(end, ts_val, sent.at_ns);
            if self.ample.is_some() && end == self.acked + self.window && self.window_known() {
                self.counted().window_full += 1;
            }
        } else {
            retransmitted = self.late(tcp, start, end, &covered, sent, identified);
        }
        let interval = if tcp.payload_len > 0 { self.data(tcp, &sent, &covered, retransmitted) } else { None };
        self.after_gap = false;
        interval
    }

    #[inline]
    fn data(&mut self, tcp: &Tcp, sent: &Sent, covered: &Covered, retransmitted: bool) -> Option<i64> {
        let payload = u64::from(tcp.payload_len);
        if self.data_packets == 0 {
            self.first_data_ns = sent.at_ns;
        }
        self.data_packets += 1;
        self.payload_bytes += payload;
        self.unique_bytes += payload.saturating_sub(covered.repeated);
        self.last_data_ns = self.last_data_ns.max(sent.at_ns);
        // Behind a gap of the capture the first acknowledgment tells what is in flight.
        let known = self.acked > 0 && self.acked_since_gap;
        let in_flight = if known { self.seen.next - self.acked.min(self.seen.next) } else { 0 };
        self.max_in_flight = self.max_in_flight.max(in_flight);
        self.in_flight_sum += in_flight as f64;
        let mss = self.segment_bytes().unwrap_or(1_448);
        let window = self.window_known().then_some(self.window);
        let (first, next) = (self.seen.first, self.seen.next);
        let min_rtt_ns = sent.path_rtt_ns.or(self.trips.min_ns());
        let ample = self.ample.get_or_insert_default();
        let interval = ample.pace.add(sent.at_ns, payload, min_rtt_ns, sent.lost);
        let now = &mut ample.pace.now;
        now.sequence = next - first;
        if retransmitted {
            now.retransmitted_bytes += payload;
        }
        if known {
            now.in_flight_bytes = Some(now.in_flight_bytes.unwrap_or(0).max(in_flight));
        }
        if let (true, Some(rtt_ns)) = (sent.answered, sent.path_rtt_ns) {
            let short = !tcp.payload_len.is_multiple_of(mss);
            let mss = mss.into();
            let after_gap = self.after_gap;
            ample.limits.data(Sliced {
                at_ns: sent.at_ns,
                payload,
                retransmitted,
                short,
                in_flight,
                window,
                mss,
                rtt_ns,
                after_gap,
            });
        }
        interval
    }

    fn window_known(&self) -> bool {
        self.scale_known && self.acked > 0
    }

    /// A run of lost segments that came to its end.
    #[inline]
    pub(crate) fn take_loss(&mut self) -> Option<Loss> {
        self.ample.as_mut()?.losses.as_mut()?.ended.take()
    }

    /// A packet of the other direction that acknowledges. The interval since the one before, if both are `pure` and all that passed
    /// meanwhile was captured.
    #[inline]
    pub(crate) fn acknowledged(&mut self, tcp: &Tcp, at_ns: i64, pure: bool, path_rtt_ns: Option<i64>) -> Option<i64> {
        if self.seen.is_empty() {
            // Of data that is not captured the acknowledgments alone tell how far it came.
            self.seen.begin(tcp.ack);
        }
        let acked = self.seen.unwrap(tcp.ack);
        if let Some((_, ts_ecr)) = tcp.options.timestamps {
            self.trips.echoed(ts_ecr, at_ns);
        }
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        let scaled = self.scale_known && tcp.flags & u16::from(flag::SYN) == 0;
        // RFC 7323 §2.3: more than 14 counts as 14.
        let scale = self.window_scale.filter(|_| scaled).unwrap_or(0).min(14);
        let window = u64::from(tcp.window) << scale;
        let options = &tcp.options;
        if options.sack_blocks > 0 {
            self.sack(tcp, acked);
        }
        if options.clipped {
            self.counted().clipped_acks += 1;
            self.clipped_until = self.seen.next;
        }
        let mut sample = None;
        if acked > self.acked {
            let rtt_ns = path_rtt_ns.unwrap_or(0);
            let timer_ns = late::shortest_timer_ns(rtt_ns);
            if acked > self.seen.next {
                self.acknowledged_before_it_came(acked, at_ns);
            }
            self.seen.acknowledged(acked, at_ns - rtt_ns, at_ns - timer_ns, self.after_gap);
            sample = self.trips.acknowledged(acked, at_ns, timer_ns);
            if let Some((end, val)) = self.eifel.filter(|(end, _)| *end <= acked) {
                // RFC 3522 §3.2 (5): the echo is of a packet sent before.
                let before = options.timestamps.is_some_and(|(_, ecr)| (ecr.wrapping_sub(val) as i32) < 0);
                self.counted().spurious_by_timestamp += u64::from(before && end > self.acked);
                self.eifel = None;
            }
            self.acked = acked;
            self.duplicate_acks = 0;
        } else if pure
            && acked == self.acked
            && self.seen.next > acked
            && (tcp.window == self.raw_window || options.sack_blocks > 0)
        {
            self.duplicate_acks += 1;
            self.counted().duplicate_acks += 1;
        }
        let interval_ns = (pure && self.last_ack_is_pure).then(|| (at_ns - self.last_ack_ns).max(0));
        (self.last_ack_ns, self.last_ack_is_pure, self.acked_since_gap) = (at_ns, pure, true);
        if acked >= self.acked {
            self.window_is(window, tcp.window, at_ns);
        }
        if let Some(ample) = &mut self.ample {
            let now = &mut ample.pace.now;
            now.acknowledged = Some(self.acked.saturating_sub(self.seen.first));
            now.window_bytes = self.scale_known.then_some(window);
            now.rtt_ns = sample.or(now.rtt_ns);
            return interval_ns;
        }
        None
    }

    /// What is acknowledged beyond all that was seen may yet come, if packets of this direction are captured at all.
    #[cold]
    fn acknowledged_before_it_came(&mut self, acked: u64, at_ns: i64) {
        if self.packets > 0 && !self.after_gap {
            let (ts_val, data_packets) = (self.last_ts_val, self.data_packets);
            let hole =
                Hole { start: 0, end: 0, in_gap: false, acknowledged: true, at_ns, ts_val, id: None, data_packets };
            self.seen.take(acked, acked, || hole);
        }
    }

    #[inline]
    fn window_is(&mut self, window: u64, raw: u16, at_ns: i64) {
        self.window = window;
        self.raw_window = raw;
        if raw == 0 {
            self.counted().zero_window_acks += 1;
            self.zero_since.get_or_insert(at_ns);
        } else {
            self.zero_window_until(at_ns);
        }
        if self.scale_known {
            let (least, most) = self.windows.unwrap_or((u64::MAX, 0));
            self.windows = Some((least.min(window), most.max(window)));
        }
    }

    /// The window opens, or the flow ends.
    fn zero_window_until(&mut self, end_ns: i64) {
        if let Some(since) = self.zero_since.take() {
            let counted = self.counted();
            // Of stamps that go to and fro any sum can come.
            counted.zero_window_ns = counted.zero_window_ns.saturating_add((end_ns - since).max(0));
        }
    }

    #[cold]
    fn sack(&mut self, tcp: &Tcp, acked: u64) {
        self.counted().sack_acks += 1;
        let blocks = &tcp.options.sack[..usize::from(tcp.options.sack_blocks).min(4)];
        let edges = |block: &(u32, u32)| (self.seen.unwrap(block.0), self.seen.unwrap(block.1));
        let Some((left, right)) = blocks.first().map(edges) else { return };
        let inside_second = blocks.get(1).map(edges).is_some_and(|(low, high)| low <= left && right <= high);
        let dsack = right <= acked || inside_second;
        let highest = blocks.iter().map(|block| edges(block).1).filter(|edge| *edge > acked).max();
        self.counted().dsack += u64::from(dsack);
        self.sacked = self.sacked.max(highest.unwrap_or(0));
    }

    /// The last losses, of a direction that carried data.
    pub(crate) fn last_losses(&mut self) -> [Option<Loss>; 2] {
        let (first, next) = (self.seen.first, self.seen.next);
        let segment_bytes = self.segment_bytes().unwrap_or(1_448).into();
        let Some(ample) = &mut self.ample else { return [None; 2] };
        ample.losses.take().map(|losses| *losses).unwrap_or_default().finish(first, next, segment_bytes)
    }

    fn counted(&mut self) -> &mut Counted {
        self.counted.get_or_insert_default()
    }

    /// The millisecond that went on and what the summary has of TCP.
    pub(crate) fn finish(&mut self, end_ns: i64) -> Box<TcpSummary> {
        self.zero_window_until(end_ns);
        let mss = self.segment_bytes().unwrap_or(1_448);
        let counted = self.counted.take().unwrap_or_default();
        let known = self.acked > 0 && self.data_packets > 0;
        Box::new(TcpSummary {
            mss_bytes: self.mss,
            window_scale: self.window_scale,
            retransmitted_packets: counted.retransmitted_packets,
            retransmitted_wire_packets: counted.retransmitted_wire_packets,
            retransmitted_bytes: counted.retransmitted_bytes,
            fast_retransmissions: counted.fast,
            timeout_retransmissions: counted.timeout,
            retransmissions_of_unknown_cause: counted.unknown_cause,
            captured_behind_ack_packets: counted.behind_ack,
            late_packets_judged_without_rtt: counted.judged_without_rtt,
            clipped_acks: counted.clipped_acks,
            retransmissions_of_unseen: counted.unseen,
            dsack_blocks: counted.dsack,
            spurious_by_dsack: counted.dsack.min(counted.retransmitted_wire_packets),
            spurious_by_timestamp: counted.spurious_by_timestamp,
            out_of_order_packets: counted.out_of_order,
            duplicate_packets: counted.duplicates,
            missing_bytes: self.seen.missing(),
            not_captured_bytes: self.seen.not_captured(),
            keep_alives: counted.keep_alives,
            duplicate_acks: counted.duplicate_acks,
            sack_acks: counted.sack_acks,
            zero_window_acks: counted.zero_window_acks,
            zero_window_ns: counted.zero_window_ns,
            window_full: counted.window_full,
            min_window_bytes: self.windows.map(|(least, _)| least),
            max_window_bytes: self.windows.map(|(_, most)| most),
            max_in_flight_bytes: known.then_some(self.max_in_flight),
            mean_in_flight_bytes: known.then(|| self.in_flight_sum / self.data_packets as f64),
            rtt: rtt(&self.trips.by_sequence),
            timestamp_rtt: rtt(&self.trips.by_timestamp),
            limits: self.ample.as_mut().and_then(|ample| ample.limits.finish(mss.into())),
        })
    }
}

fn rtt(samples: &Samples) -> Option<RttSummary> {
    (samples.count > 0).then(|| RttSummary {
        samples: samples.count,
        min_ns: samples.min_ns,
        mean_ns: samples.mean_ns(),
        max_ns: samples.max_ns,
        stddev_ns: samples.stddev_ns(),
    })
}

/// A direction's part that TCP and UDP share.
pub(crate) fn paced(pace: Pace, payload: u64, data_ns: i64) -> crate::DirectionSummary {
    let captured_ns = data_ns - pace.left_out_ns;
    let captured = payload.saturating_sub(pace.left_out_bytes);
    crate::DirectionSummary {
        payload_rate_bps: if captured_ns > 0 { (captured as f64 * 8e9 / captured_ns as f64) as u64 } else { 0 },
        left_out_ns: pace.left_out_ns,
        peak_1ms_bps: pace.peak_ms_bytes.saturating_mul(8_000),
        peak_1s_bps: if data_ns >= 1_000_000_000 { pace.peak_second_bytes.saturating_mul(8) } else { 0 },
        longest_silence_ns: pace.longest_silence_ns,
        bursts: pace.bursts,
        // Nobody needs the bins any more, which take more memory than all else that is kept of a flow.
        interval_quantiles_ns: pace.intervals.as_ref().and_then(IntervalQuantiles::of),
        ..crate::DirectionSummary::default()
    }
}
