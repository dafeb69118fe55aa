//! The far end of a scripted path: which segments are lost, when each acknowledgement leaves, and what it says.
//!
//! It is a receiver without a kernel: every segment that arrives is acknowledged at once and by
//! itself (RFC 9293 §3.8.6.3 without delay), what is missing is told by SACK (RFC 2018), the window is never in the way, and there are no time
//! stamps, ECN or D-SACK. Time is an argument.

use std::collections::{BTreeMap, VecDeque};

use longhaul_units::Nanos;
use longhaul_wire::checksum::{Sum, pseudo_v4};
use longhaul_wire::tcp::{self, flag};
use longhaul_wire::{ipv4::Packet, tcp::Segment};

/// The sender.
pub(crate) const SENDER: [u8; 4] = [10, 97, 0, 1];
/// The receiver.
pub(crate) const RECEIVER: [u8; 4] = [10, 97, 0, 2];
/// Where the receiver listens.
pub(crate) const PORT: u16 = 5201;
/// Payload of each segment, all being full.
pub(crate) const SEGMENT_BYTES: u32 = 1000;
/// The receiver's first sequence number.
const FIRST: u32 = 1_000_000;
/// Blocks that fit into the options of a segment without time stamps (RFC 2018 §3).
const BLOCKS_MOST: usize = 4;

/// What happens to one flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// From a segment's departure to its acknowledgement where no queue stands.
    pub(crate) round_trip: Nanos,
    /// Time of one segment at the bottleneck, whose queue takes all; 0 for none.
    pub(crate) service: Nanos,
    /// Segments in order that one acknowledgement stands for. One leaves at once where something is missing or was, or where
    /// nothing else is under way.
    pub(crate) segments_per_ack: u64,
    /// Numbers of segments that are lost when they are sent first, rising.
    pub(crate) lost: &'static [u64],
    /// From this segment on all is lost until the sender sends something again.
    pub(crate) outage_from: u64,
    /// The flow ends when so many were delivered.
    pub(crate) segments: u64,
}

/// The path and the receiver of one flow.
#[derive(Debug)]
pub(crate) struct Peer<'a> {
    script: &'a Script,
    /// What will be answered, in the order of time: when, and which segment it is; `None` for the handshake.
    under_way: VecDeque<(Nanos, Option<u64>)>,
    /// When the bottleneck is free.
    free_at: Nanos,
    /// The sender's first sequence number and port.
    sender: Option<(u32, u16)>,
    /// Segments that were ever sent.
    sent: u64,
    outage: bool,
    outage_over: bool,
    /// The first segment that is missing.
    missing: u64,
    /// Runs of segments beyond it: first, and one after the last, with the time at which each was last added to.
    runs: BTreeMap<u64, (u64, u64)>,
    delivered: u64,
    /// How many of them were in order and are not acknowledged yet.
    unacknowledged: u64,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(script: &'a Script) -> Self {
        Self {
            script,
            under_way: VecDeque::new(),
            free_at: Nanos::ZERO,
            sender: None,
            sent: 0,
            outage: false,
            outage_over: false,
            missing: 0,
            runs: BTreeMap::new(),
            delivered: 0,
            unacknowledged: 0,
        }
    }

    /// Takes an IPv4 packet that the sender sent at `now`.
    ///
    /// # Panics
    /// Where it is no full segment of this flow: then the traces would not count what they say.
    pub(crate) fn sent(&mut self, packet: &[u8], now: Nanos) {
        // IPv6 and IGMP of the interface itself.
        let Some(ip) = Packet::new_checked(packet) else { return };
        if packet[0] >> 4 != 4 || ip.protocol() != tcp::PROTOCOL {
            return;
        }
        let segment =
            Segment::new_checked(&packet[ip.header_len()..usize::from(ip.total_len())]).expect("a TCP header");
        let payload = usize::from(ip.total_len()) - ip.header_len() - segment.header_len();
        if segment.flags() & flag::SYN != 0 {
            self.sender = Some((segment.sequence(), segment.source_port()));
            self.under_way.push_back((now + self.script.round_trip, None));
            return;
        }
        // The end of an earlier flow.
        if payload == 0 || self.sender.is_none_or(|(_, port)| port != segment.source_port()) {
            return;
        }
        let offset = segment.sequence().wrapping_sub(self.sender.expect("a handshake").0).wrapping_sub(1);
        assert_eq!((offset % SEGMENT_BYTES, payload as u32), (0, SEGMENT_BYTES), "a segment of another size");
        let number = u64::from(offset / SEGMENT_BYTES);
        let first_time = number >= self.sent;
        self.sent = self.sent.max(number + 1);
        self.outage |= number >= self.script.outage_from && !self.outage_over;
        if self.outage && !first_time {
            (self.outage, self.outage_over) = (false, true);
        }
        if self.outage || first_time && self.script.lost.binary_search(&number).is_ok() {
            return;
        }
        let due = (now + self.script.round_trip).max(self.free_at + self.script.service);
        self.free_at = due;
        self.under_way.push_back((due, Some(number)));
    }

    /// When the next acknowledgement is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.under_way.front().map(|&(due, _)| due)
    }

    /// Segments that were sent once or more often.
    pub(crate) fn sent_segments(&self) -> u64 {
        self.sent
    }

    /// Segments that arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// What is due at [`Peer::next`]: an IPv4 packet, or that this segment waits to be acknowledged with the next.
    pub(crate) fn answer(&mut self) -> Option<Vec<u8>> {
        let (_, number) = self.under_way.pop_front()?;
        let Some(number) = number else { return Some(self.handshake()) };
        self.delivered += 1;
        let in_order = number == self.missing && self.runs.is_empty();
        self.take(number);
        self.unacknowledged += 1;
        if in_order && self.unacknowledged < self.script.segments_per_ack && !self.under_way.is_empty() {
            return None;
        }
        self.unacknowledged = 0;
        Some(self.acknowledgement(number))
    }

    fn take(&mut self, number: u64) {
        if number < self.missing {
            return;
        }
        let (mut first, mut end) = (number, number + 1);
        if let Some((&before, &(before_end, _))) = self.runs.range(..=number).next_back()
            && before_end >= number
        {
            (first, end) = (before, before_end.max(end));
            self.runs.remove(&before);
        }
        if let Some((after_end, _)) = self.runs.remove(&end) {
            end = after_end;
        }
        if first == self.missing {
            self.missing = end;
        } else {
            self.runs.insert(first, (end, self.delivered));
        }
    }

    /// SYN-ACK: a segment size, SACK, and the largest scale of the window.
    fn handshake(&self) -> Vec<u8> {
        let [high, low] = (SEGMENT_BYTES as u16).to_be_bytes();
        let options = [2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, 14];
        self.packet(FIRST, flag::SYN | flag::ACK, 0, &options)
    }

    /// Says what was delivered; the run with `latest` comes first, then the others by when they were last added to (RFC 2018 §4).
    fn acknowledgement(&self, latest: u64) -> Vec<u8> {
        let mut runs: Vec<_> = self.runs.iter().map(|(&first, &(end, when))| (when, first, end)).collect();
        runs.sort_by_key(|&(when, first, end)| (!(first..end).contains(&latest), std::cmp::Reverse(when)));
        runs.truncate(BLOCKS_MOST);
        let mut options = Vec::new();
        if !runs.is_empty() {
            options = vec![1, 1, 5, 2 + 8 * runs.len() as u8];
            for (_, first, end) in runs {
                options.extend(self.sequence(first).to_be_bytes());
                options.extend(self.sequence(end).to_be_bytes());
            }
        }
        self.packet(FIRST + 1, flag::ACK, self.missing, &options)
    }

    /// The sequence number of a segment's first byte.
    fn sequence(&self, number: u64) -> u32 {
        let first = self.sender.expect("a handshake").0;
        first.wrapping_add(1).wrapping_add((number * u64::from(SEGMENT_BYTES)) as u32)
    }

    fn packet(&self, sequence: u32, flags: u8, acknowledged: u64, options: &[u8]) -> Vec<u8> {
        let port = self.sender.expect("a handshake").1;
        let tcp_len = tcp::MIN_HEADER_LEN + options.len();
        let mut packet = vec![0x45, 0];
        packet.extend((20 + tcp_len as u16).to_be_bytes());
        // No identification, do not fragment, 64 hops.
        packet.extend([0, 0, 0x40, 0, 64, tcp::PROTOCOL, 0, 0]);
        packet.extend(RECEIVER);
        packet.extend(SENDER);
        Packet::new_checked(&mut packet[..]).expect("a header").fill_checksum();
        packet.extend(PORT.to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend(self.sequence(acknowledged).to_be_bytes());
        packet.extend([(tcp_len as u8 / 4) << 4, flags]);
        packet.extend(u16::MAX.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(options);
        let sum: Sum = pseudo_v4(RECEIVER, SENDER, tcp::PROTOCOL, tcp_len as u32).add_bytes(&packet[20..]);
        packet[20 + tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
        packet
    }
}
