//! Segments below the highest byte: retransmitted, reordered, duplicated or captured late; and what made the sender retransmit.
//!
//! No fixed time tells one from the other: round trips take from 1 µs to 1 s. The evidence, strongest first:
//!
//! 1. **IP identification**, where the sender increments it (Linux does, for each connection). Compare it with that of the packet which left
//!    the hole: a lower one was sent before it and reordered, a higher one is a retransmission. Without a hole, a known one is a duplicate and
//!    a new one a retransmission.
//! 2. **TSval** (RFC 7323): compared with that of the packet which left the hole, an older one was reordered, a younger one is a
//!    retransmission. An equal one was reordered if a round trip is longer than the clock's tick: a sender retransmits after news of a loss.
//!    Without a hole, one that differs from the first passing's is a retransmission, and an equal one a duplicate once two ticks have passed.
//! 3. **Time and loss signals**: no sender knows of a loss before a duplicate acknowledgment or SACK returns. So a segment that
//!    fills a hole within a round trip of the whole path was reordered. Later it is a retransmission if such a signal has passed, or if two
//!    round trips have. Three quarters of the shortest round trip count, as a shorter one may not have been seen. Bytes that passed before
//!    are a duplicate within half of a round trip, and where no signal has passed until a timer can have fired ([`shortest_timer_ns`]).
//! 4. Without a round trip, as in a capture of one direction: a retransmission if three packets passed since (RFC 5681 §3.2).
//!
//! Bytes that were acknowledged before they came are of a capture of several queues. They count as sent once, until a timer
//! can have fired.

use crate::identification::Identified;
use crate::round_trip::{Passing, Untold};
use crate::sequence::{Covered, Hole};
use longhaul_captures::packet::Tcp;

use super::{Half, Sent};

/// Ticks of a time stamp's clock that must have passed to know how long one is, at most to a half more.
const KNOWN_TICKS: i32 = 16;
/// No timer of TCP fires earlier: `TCP_TIMEOUT_MIN` of Linux's include/net/tcp.h is two jiffies, of 1 ms at least.
pub(crate) const SHORTEST_TIMER_NS: i64 = 2_000_000;
/// The least that Linux adds to the round trip for a retransmission timeout (`TCP_RTO_MIN`); RFC 6298 §2.4 has a second.
const SHORTEST_TIMEOUT_NS: i64 = 200_000_000;

/// How long after a segment a timer may make its sender retransmit it: a tail loss probe waits for two round trips (RFC 8985 §7.2), a
/// retransmission timeout for longer (RFC 6298 §2).
pub(super) fn shortest_timer_ns(path_rtt_ns: i64) -> i64 {
    (2 * path_rtt_ns).max(SHORTEST_TIMER_NS)
}

/// Why a segment lies below the highest byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    Reordered,
    Duplicate,
    Retransmitted,
    /// Captured behind its acknowledgment.
    BehindAck,
}

/// When the bytes of a late segment passed before, once that was looked for.
type Before = Option<Result<Passing, Untold>>;

impl Half {
    /// Whether a segment with data below the highest byte is a retransmission.
    #[cold]
    pub(super) fn late(
        &mut self,
        tcp: &Tcp,
        start: u64,
        end: u64,
        covered: &Covered,
        sent: Sent,
        own: Option<Identified>,
    ) -> bool {
        let ts_val = tcp.options.timestamps.map(|(val, _)| val);
        let mut before = None;
        let late = match covered.hole.filter(|_| covered.repeated == 0) {
            Some(hole) if hole.acknowledged => self.fills_acknowledged(&hole, &sent),
            Some(hole) => self.fills(&hole, start, ts_val, &sent, own),
            None => self.repeats(tcp, start, end, &sent, own, &mut before),
        };
        if late != Late::BehindAck {
            self.trips.disturbed(self.seen.next);
        }
        match late {
            Late::Reordered => self.counted().out_of_order += 1,
            Late::Duplicate => self.counted().duplicates += 1,
            Late::BehindAck => self.counted().behind_ack += 1,
            Late::Retransmitted => self.count_retransmission(tcp, start, end, covered, &sent, before),
        }
        self.trips.sent_late(start, end, ts_val, sent.at_ns);
        late == Late::Retransmitted
    }

    fn fills_acknowledged(&self, hole: &Hole, sent: &Sent) -> Late {
        let timer_ns = shortest_timer_ns(sent.path_rtt_ns.unwrap_or(0));
        if sent.at_ns - hole.at_ns < timer_ns { Late::BehindAck } else { Late::Retransmitted }
    }

    /// Whether a sender may have had news of a loss of what begins at `start`: duplicate acknowledgments, SACK beyond `end`, or a recovery that goes
    /// on; where options were clipped, any acknowledgment may have brought it.
    fn had_news(&self, start: u64, end: u64) -> bool {
        let goes_on = start < self.recovery_until || start < self.clipped_until;
        self.duplicate_acks > 0 || self.sacked >= end || goes_on
    }

    fn fills(&mut self, hole: &Hole, start: u64, ts_val: Option<u32>, sent: &Sent, own: Option<Identified>) -> Late {
        if let Some(after) = own.zip(hole.id).map(|(own, makers)| own.id.wrapping_sub(makers) as i16) {
            return if after <= 0 { Late::Reordered } else { Late::Retransmitted };
        }
        let rtt_ns = sent.path_rtt_ns.or(self.trips.min_ns()).filter(|_| sent.answered);
        if let Some((own, makers)) = ts_val.zip(hole.ts_val) {
            let within_a_round_trip =
                || rtt_ns.zip(self.tick_ns(own, sent.at_ns)).is_some_and(|(rtt, tick)| rtt > 2 * tick);
            match own.wrapping_sub(makers) as i32 {
                ..0 => return Late::Reordered,
                0 if within_a_round_trip() => return Late::Reordered,
                0 => {}
                1.. => return Late::Retransmitted,
            }
        }
        self.judged_by_time(sent);
        let waited_ns = sent.at_ns - hole.at_ns;
        let signal = self.had_news(start, hole.end);
        let later_packets = self.data_packets - hole.data_packets;
        // The packet that left the hole goes to the receiver, news of the loss to the sender, the retransmission to here: a round trip of
        // the whole path, at any capture point.
        let retransmitted = match rtt_ns {
            // Three quarters, as the shortest round trip may not have been seen yet: where the handshake alone has one, it may have been late.
            Some(rtt_ns) => waited_ns >= rtt_ns - rtt_ns / 4 && (signal || waited_ns >= 2 * rtt_ns),
            None => later_packets > 3,
        };
        if retransmitted { Late::Retransmitted } else { Late::Reordered }
    }

    /// Time alone tells what it is.
    fn judged_by_time(&mut self, sent: &Sent) {
        self.counted().judged_without_rtt += u64::from(!sent.knows_path_rtt || !sent.answered);
    }

    /// Whether bytes that passed before were sent once more, or the path made a copy of them.
    fn repeats(
        &mut self,
        tcp: &Tcp,
        start: u64,
        end: u64,
        sent: &Sent,
        own: Option<Identified>,
        before: &mut Before,
    ) -> Late {
        let when = |is_copy: bool| if is_copy { Late::Duplicate } else { Late::Retransmitted };
        if let Some(came_before) = own.and_then(|own| own.came_before) {
            // A sender that increments never uses a number twice.
            return when(came_before);
        }
        let Ok(before) = *before.insert(self.trips.last_passing(start, end)) else { return Late::Retransmitted };
        let waited_ns = sent.at_ns - before.at_ns;
        if let Some((own, (val, _))) = before.ts_val.zip(tcp.options.timestamps) {
            if own != val {
                return Late::Retransmitted;
            }
            if self.tick_ns(val, sent.at_ns).is_some_and(|tick_ns| waited_ns > 2 * tick_ns) {
                return Late::Duplicate;
            }
        }
        if start < self.syn_until {
            // Nothing but its timer sends it once more; a SYN-ACK is also the answer to each SYN.
            let answers = tcp.flags & u16::from(longhaul_wire::tcp::flag::ACK) != 0;
            return when(waited_ns < if answers { SHORTEST_TIMER_NS } else { SHORTEST_TIMEOUT_NS });
        }
        self.judged_by_time(sent);
        match sent.path_rtt_ns.or(self.trips.min_ns()).filter(|_| sent.answered) {
            Some(rtt_ns) => {
                // Half, as the shortest round trip may not have been seen yet.
                when(waited_ns < if self.had_news(start, end) { rtt_ns / 2 } else { shortest_timer_ns(rtt_ns) })
            }
            None => when(before.packets_since < 3 && waited_ns < SHORTEST_TIMER_NS),
        }
    }

    /// How long a tick of the sender's clock is, by a packet with `ts_val` at `at_ns`.
    fn tick_ns(&self, ts_val: u32, at_ns: i64) -> Option<i64> {
        let ticks = i32::try_from(ts_val.wrapping_sub(self.first_ts_val)).ok().filter(|ticks| *ticks >= KNOWN_TICKS)?;
        Some((at_ns - self.first_ts_ns) / i64::from(ticks))
    }

    fn count_retransmission(
        &mut self,
        tcp: &Tcp,
        start: u64,
        end: u64,
        covered: &Covered,
        sent: &Sent,
        before: Before,
    ) {
        let payload = u64::from(tcp.payload_len);
        self.counted().retransmitted_packets += 1;
        self.counted().retransmitted_bytes += covered.repeated.min(payload);
        self.counted().retransmitted_wire_packets += u64::from(sent.segments);
        let was_captured = !covered.hole.is_some_and(|hole| hole.in_gap);
        self.counted().unseen += u64::from(covered.repeated == 0 && was_captured);
        if was_captured && payload > 0 {
            let (from, to) =
                covered.hole.filter(|_| covered.repeated == 0).map_or((start, end), |hole| (hole.start, hole.end));
            let (first, segment_bytes) = (self.seen.first, self.segment_bytes().unwrap_or(1_448).into());
            self.ample.get_or_insert_default().losses.get_or_insert_default().lost(from, to, first, segment_bytes);
        }
        *match self.cause(start, end, sent, before) {
            Cause::Signal => &mut self.counted().fast,
            Cause::Timer => &mut self.counted().timeout,
            Cause::Unknown => &mut self.counted().unknown_cause,
        } += 1;
        if self.eifel.is_none_or(|(pending, _)| pending <= self.acked) {
            self.eifel = tcp.options.timestamps.map(|(val, _)| (start + 1, val));
        }
    }

    /// What made the sender retransmit. The news of a loss that passes here brings its answer when it has gone to the sender and the
    /// retransmission has come from there; a retransmission timeout adds [`SHORTEST_TIMEOUT_NS`], and in recovery there are no tail
    /// loss probes (RFC 8985 §7.2).
    fn cause(&mut self, start: u64, end: u64, sent: &Sent, before: Before) -> Cause {
        if !sent.answered {
            return Cause::Unknown;
        }
        let clipped = start < self.clipped_until;
        let signal = self.duplicate_acks >= 3 || self.sacked >= end || start < self.recovery_until;
        let to_sender_ns = sent.sender_rtt_ns.or(sent.path_rtt_ns).unwrap_or(0);
        let since_ack_ns = sent.at_ns - self.last_ack_ns;
        if start < self.timeout_until {
            return Cause::Timer;
        }
        if signal && since_ack_ns < to_sender_ns + SHORTEST_TIMEOUT_NS {
            self.recovery_until = self.seen.next;
            return Cause::Signal;
        }
        let timer_ns = shortest_timer_ns(sent.path_rtt_ns.unwrap_or(0));
        let waited_ns = match before.unwrap_or_else(|| self.trips.last_passing(start, end)) {
            Ok(before) => sent.at_ns - before.at_ns,
            Err(Untold::Forgotten) => i64::MAX,
            Err(Untold::TooMany) => return Cause::Unknown,
        };
        if clipped || waited_ns < timer_ns {
            return Cause::Unknown;
        }
        // A tail loss probe is the last segment, and what it brings to light is not resent for silence.
        if start <= self.acked || end < self.seen.next {
            self.timeout_until = self.seen.next;
        }
        Cause::Timer
    }
}

/// What made a sender retransmit.
enum Cause {
    /// Duplicate acknowledgments, SACK, or a partial acknowledgment during recovery (RFC 6582).
    Signal,
    /// Silence.
    Timer,
    Unknown,
}
