//! A TCP connection: its two directions, its beginning and its end.

use longhaul_wire::tcp::flag;

use crate::gaps::Lost;
use crate::half::late::SHORTEST_TIMER_NS;
use crate::half::{Half, Sent, paced};
use crate::loss::Loss;
use crate::pace::Millisecond;
use crate::round_trip::LONGEST_NS;
use crate::summary::{ConnectionSummary, DirectionSummary, End, Why};
use longhaul_captures::packet::{Packet, Tcp};

const FIN: u16 = flag::FIN as u16;
const SYN: u16 = flag::SYN as u16;
const RST: u16 = flag::RST as u16;
const ACK: u16 = flag::ACK as u16;

/// One connection. Index 0 is the direction from the client.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) halves: [Half; 2],
    /// When SYN and SYN-ACK passed that wait for their answer; none where two did and either may be answered.
    syn_ns: Option<i64>,
    syn_ack_ns: Option<i64>,
    /// From SYN to SYN-ACK, and from that to its ACK.
    handshake: [Option<i64>; 2],
    /// Of two that came at once the later one counts: the round trip may be longer by as much as lay between them.
    handshake_is_bound: bool,
    pub(crate) opened: bool,
    pub(crate) reset: bool,
    /// Options of a SYN were clipped.
    syn_clipped: bool,
}

/// Milliseconds that ended, by direction: when they began.
pub(crate) type Ended = [Option<(i64, Millisecond)>; 2];

/// What a packet brought that is drawn over time.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// The interval since the data packet before of the same direction.
    pub(crate) interval_ns: Option<i64>,
    /// The interval since the pure acknowledgment before, of one.
    pub(crate) ack_interval_ns: Option<i64>,
    /// A run of lost segments of this direction that came to its end.
    pub(crate) loss: Option<Loss>,
}

impl Connection {
    /// Whether `tcp`, in direction `direction`, opens another connection between the same ports.
    pub(crate) fn is_another(&self, tcp: &Tcp, direction: usize) -> bool {
        let half = &self.halves[direction];
        if tcp.flags & SYN == 0 || half.seen.is_empty() && !self.is_over() {
            return false;
        }
        match half.initial_sequence {
            Some(initial) => initial != tcp.seq,
            // The capture began in mid-flow. A reordered SYN has the number before the first byte.
            None => self.is_over() || half.packets > 0 && half.seen.first as u32 != tcp.seq.wrapping_add(1),
        }
    }

    /// Nothing but what is late may come.
    pub(crate) fn is_over(&self) -> bool {
        self.reset || self.halves.iter().all(|half| half.fin)
    }

    /// From here to both ends and back: the handshake's, or the shortest of both parts.
    #[inline]
    pub(crate) fn path_rtt_ns(&self) -> Option<i64> {
        let parts = match (self.halves[0].trips.min_ns(), self.halves[1].trips.min_ns()) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        let handshake = self.handshake_rtt_ns();
        match (handshake, parts) {
            // Either may be too long: a slow accept, an answer that waited for the program.
            (Some(handshake), Some(parts)) if self.halves.iter().all(|half| half.trips.min_ns().is_some()) => {
                Some(handshake.min(parts))
            }
            (Some(handshake), _) => Some(handshake),
            (None, parts) => parts,
        }
    }

    /// Whether [`path_rtt_ns`](Self::path_rtt_ns) is of the whole path, and not of a part of it.
    fn knows_path_rtt(&self) -> bool {
        self.handshake_rtt_ns().is_some() || self.halves.iter().all(|half| half.trips.min_ns().is_some())
    }

    fn handshake_rtt_ns(&self) -> Option<i64> {
        Some(self.handshake[0]? + self.handshake[1]?)
    }

    /// A packet in direction `direction`. Calls `ended` with direction and start of each millisecond that ended before this packet.
    #[inline]
    pub(crate) fn packet(
        &mut self,
        packet: &Packet,
        tcp: &Tcp,
        direction: usize,
        lost: Lost,
        mut ended: impl FnMut(bool, i64, Millisecond),
    ) -> Brought {
        let at_ns = packet.at_ns;
        let mut brought = Brought::default();
        for (half, forward) in self.halves.iter_mut().zip([true, false]) {
            if let Some((began_ns, row)) = half.ample.as_mut().and_then(|ample| ample.pace.advance(at_ns, lost)) {
                ended(forward, began_ns, row);
            }
            half.look_for_gap(lost);
        }
        if tcp.flags & (SYN | FIN | RST) != 0 {
            self.control(tcp, direction, at_ns);
        }
        let (path_rtt_ns, knows_path_rtt) = (self.path_rtt_ns(), self.knows_path_rtt());
        let [client, server] = &mut self.halves;
        let (own, other) = if direction == 0 { (client, server) } else { (server, client) };
        let sent = Sent {
            at_ns,
            frame_len: packet.frame_len,
            id: packet.ip.and_then(|ip| ip.id).filter(|_| packet.ip.is_some_and(|ip| ip.src.is_ipv4())),
            segments: segments(packet, tcp, own),
            numbers: u32::from(tcp.flags & SYN != 0) + u32::from(tcp.flags & FIN != 0),
            path_rtt_ns,
            knows_path_rtt,
            sender_rtt_ns: other.trips.min_ns(),
            answered: other.packets > 0,
            lost,
        };
        brought.interval_ns = own.sent(tcp, sent);
        brought.loss = own.take_loss();
        if tcp.flags & (ACK | RST) == ACK {
            let pure = tcp.payload_len == 0 && tcp.flags & (SYN | FIN) == 0;
            brought.ack_interval_ns = other.acknowledged(tcp, at_ns, pure, path_rtt_ns);
            if direction == 0
                && let Some(syn_ack_ns) = self.syn_ack_ns.take()
            {
                self.handshake[1] = part_of_handshake(syn_ack_ns, at_ns);
            }
        }
        brought
    }

    #[cold]
    fn control(&mut self, tcp: &Tcp, direction: usize, at_ns: i64) {
        self.reset |= tcp.flags & RST != 0;
        self.halves[direction].fin |= tcp.flags & FIN != 0;
        if tcp.flags & SYN == 0 {
            return;
        }
        let repeated = self.halves[direction].initial_sequence.replace(tcp.seq).is_some();
        self.opened |= tcp.flags & ACK == 0;
        self.syn_clipped |= tcp.options.clipped;
        // What an end announces is about data that comes to it.
        self.halves[1 - direction].mss = tcp.options.mss;
        self.halves[1 - direction].window_scale = tcp.options.window_scale;
        if self.halves.iter().all(|half| half.initial_sequence.is_some()) {
            // RFC 7323 §2.2: a scale counts only where both offer one.
            let both = self.halves.iter().all(|half| half.window_scale.is_some());
            for half in &mut self.halves {
                half.scale_known = !self.syn_clipped;
                half.window_scale = half.window_scale.filter(|_| both);
            }
        }
        match (tcp.flags & ACK != 0, repeated) {
            (false, false) => self.syn_ns = Some(at_ns),
            (true, false) => {
                self.handshake[0] = self.syn_ns.and_then(|syn_ns| part_of_handshake(syn_ns, at_ns));
                self.syn_ack_ns = Some(at_ns);
            }
            // One that was answered before is no matter.
            (false, true) if self.handshake[0].is_none() => self.syn_ns = self.later(self.syn_ns, at_ns),
            (true, true) if self.handshake[1].is_none() => self.syn_ack_ns = self.later(self.syn_ack_ns, at_ns),
            (_, true) => {}
        }
    }

    /// Of a SYN that passed at `before_ns` and once more at `at_ns`, and waits for its answer: the later one, if no timer can have sent it. Else it
    /// cannot be told which of the two will be answered.
    fn later(&mut self, before_ns: Option<i64>, at_ns: i64) -> Option<i64> {
        self.handshake_is_bound = true;
        before_ns.filter(|before_ns| at_ns - before_ns < SHORTEST_TIMER_NS).map(|_| at_ns)
    }

    /// The last losses of the two directions.
    pub(crate) fn last_losses(&mut self) -> [[Option<Loss>; 2]; 2] {
        self.halves.each_mut().map(Half::last_losses)
    }

    /// The two directions' summaries, and the milliseconds that had not ended.
    pub(crate) fn finish(&mut self, end_ns: i64, why: Why) -> (ConnectionSummary, [DirectionSummary; 2], Ended) {
        let connection = ConnectionSummary {
            opened: self.opened,
            end: match () {
                () if self.reset => End::Reset,
                () if self.is_over() => End::Fin,
                () if why == Why::Idle => End::Idle,
                () if why == Why::Evicted => End::Evicted,
                () => End::Open,
            },
            handshake_rtt_ns: self.handshake_rtt_ns().filter(|_| !self.handshake_is_bound),
            handshake_server_ns: self.handshake[0].filter(|_| !self.handshake_is_bound),
        };
        let mut ended = [None, None];
        let mut index = 0;
        let directions = self.halves.each_mut().map(|half| {
            let tcp = half.finish(end_ns);
            let mut pace = half.ample.take().map(|ample| ample.pace).unwrap_or_default();
            ended[index] = pace.finish();
            index += 1;
            let data_ns = half.last_data_ns - half.first_data_ns;
            DirectionSummary {
                packets: half.packets,
                wire_packets: half.wire_packets,
                frame_bytes: half.frame_bytes,
                data_packets: half.data_packets,
                payload_bytes: half.payload_bytes,
                unique_bytes: half.unique_bytes,
                tcp: Some(tcp),
                ..paced(pace, half.payload_bytes, data_ns)
            }
        });
        (connection, directions, ended)
    }
}

/// From a packet to its answer; `None` where that cannot be. It is negative where packets were captured in the wrong order.
fn part_of_handshake(sent_ns: i64, answered_ns: i64) -> Option<i64> {
    Some(answered_ns - sent_ns).filter(|took_ns| (-LONGEST_NS..=LONGEST_NS).contains(took_ns))
}

/// Wire packets that a packet stands for: as the capture says, else as many full segments as its payload makes.
#[inline]
fn segments(packet: &Packet, tcp: &Tcp, half: &Half) -> u32 {
    match (packet.gso_segs, packet.gso_size) {
        (0 | 1, 0) => match half.segment_bytes() {
            Some(bytes) if tcp.payload_len > bytes && packet.gso_segs == 0 => tcp.payload_len.div_ceil(bytes),
            _ => 1,
        },
        (0, size) => tcp.payload_len.div_ceil(size.into()).max(1),
        (segments, _) => segments.into(),
    }
}
