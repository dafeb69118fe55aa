//! Which packet belongs to which flow.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::Sink;
use crate::fragments::Fragments;
use crate::gaps::{GapClock, Gaps};
use crate::half::Half;
use crate::summary::{FlowSummary, Protocol, Totals, Why, socket};
use crate::tcp::{Brought, Connection, Ended};
use crate::udp::{Numbers, UdpHalf};
use longhaul_captures::packet::{Packet, Transport};

/// How long flows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowOptions {
    /// A TCP connection without a packet for so long is given up: 2 h 4 min, as RFC 5382 §5 has middleboxes keep them.
    pub tcp_idle_ns: i64,
    /// A UDP flow without a packet for so long has ended: 5 min (RFC 4787 §4.3).
    pub udp_idle_ns: i64,
    /// A connection that ended is kept for what is late, for so long and four round trips.
    pub linger_ns: i64,
    /// Flows that are open at the same time at most; beyond, the sixteenth that was silent longest is summed up and forgotten. A
    /// million take some 2.5 GB where each has sent little.
    pub most_flows: usize,
    /// Memory that they take at most, bytes; beyond, the same, and more of them until a sixteenth of it is free.
    pub most_bytes: u64,
    /// Sequence numbers of longhaul's probes that all flows together may have, missing ones included. Later probes count as other packets;
    /// [`Totals::probes_left_out`] has their number.
    pub most_numbers: u64,
}

impl FlowOptions {
    /// For a capture whose files have so many bytes: a few of them can stand for a million flows, and those of real packets cannot.
    pub fn for_bytes(bytes: u64) -> Self {
        Self {
            most_bytes: bytes.saturating_mul(MEMORY_TIMES_MOST).saturating_add(MEMORY_SURE),
            most_numbers: bytes.saturating_mul(NUMBERS_OF_A_BYTE).saturating_add(NUMBERS_SURE),
            ..Self::default()
        }
    }

    /// The same in no more than `bytes` of memory, or what a capture of any length has.
    pub fn in_memory(self, bytes: u64) -> Self {
        Self { most_bytes: self.most_bytes.min(bytes.max(MEMORY_SURE)), ..self }
    }
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self {
            tcp_idle_ns: 7_440 * SECOND_NS,
            udp_idle_ns: 300 * SECOND_NS,
            linger_ns: 2 * SECOND_NS,
            most_flows: 1 << 20,
            most_bytes: u64::MAX,
            most_numbers: u64::MAX,
        }
    }
}

/// Memory for the flows of a capture of any length, and for each byte of it: 2.5 KB for a packet of 40 bytes, which may be a flow's only one.
const MEMORY_SURE: u64 = 256 << 20;
const MEMORY_TIMES_MOST: u64 = 64;
/// Numbers of probes that are looked at in a capture of any length, half a second of work, and for each byte of it. A super-packet has 128, and takes
/// more than 20 bytes, if only for its time, its number and when it was sent.
const NUMBERS_SURE: u64 = 1 << 26;
const NUMBERS_OF_A_BYTE: u64 = 64;
/// Memory for a flow beside what it keeps of its packets: its place, and that in the maps.
const FLOW_BYTES: u64 = (size_of::<Flow>() + 2 * size_of::<(Key, u32)>()) as u64;

const SECOND_NS: i64 = 1_000_000_000;
/// Look through the list of ended connections when it has this many entries; most of them may be forgotten already.
const ENDING_SURE: usize = 1024;
/// How often silent flows are looked for, in the capture's time, and how many places of flows are looked at for each packet in the long run: there may
/// be a minute between two packets.
const SWEEP_NS: i64 = 60 * SECOND_NS;
const SWEPT_A_PACKET: usize = 64;

/// Both directions have one key: the lower end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    low: u128,
    high: u128,
    /// Low port, high port, protocol.
    ports: u64,
}

/// Addresses and ports of a packet: its key, and whether its source is the lower end.
#[inline]
fn key(src: IpAddr, src_port: u16, dst: IpAddr, dst_port: u16, protocol: u64) -> (Key, bool) {
    let number = |address: IpAddr| match address {
        // As IPv4-mapped addresses, but for the byte order.
        IpAddr::V4(v4) => u128::from(v4.to_bits()) | 0xffff << 32,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let (from, to) = ((number(src), src_port), (number(dst), dst_port));
    let ascending = from <= to;
    let (low, high) = if ascending { (from, to) } else { (to, from) };
    let ports = u64::from(low.1) << 32 | u64::from(high.1) << 8 << 8 | protocol;
    (Key { low: low.0, high: high.0, ports }, ascending)
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all flows are TCP, and each flow has a place of its own")]
enum Kind {
    Tcp(Connection),
    Udp([UdpHalf; 2]),
}

#[derive(Debug)]
struct Flow {
    number: u64,
    key: Key,
    client: SocketAddr,
    server: SocketAddr,
    /// Whether the client is the lower end.
    ascending: bool,
    first_ns: i64,
    last_ns: i64,
    /// Time in gaps up to then.
    gap_ns: i64,
    /// Whether it waits among those that end.
    ending: bool,
    /// Memory beside its own place, bytes.
    heap_bytes: u32,
    kind: Kind,
}

impl Flow {
    #[inline]
    fn heap_bytes(&self) -> u32 {
        let bytes = match &self.kind {
            Kind::Tcp(connection) => connection.halves.iter().map(Half::heap_bytes).sum(),
            Kind::Udp(halves) => halves.iter().map(UdpHalf::heap_bytes).sum::<usize>(),
        };
        bytes as u32
    }
}

/// The flows of a capture. [`Flows::finish`] hands out those that are left.
#[derive(Debug)]
pub struct Flows<S> {
    options: FlowOptions,
    sink: S,
    slots: Vec<Option<Box<Flow>>>,
    free: Vec<u32>,
    /// Seeded at random: others choose the addresses of a capture.
    places: HashMap<Key, u32, foldhash::fast::RandomState>,
    /// The last packet's.
    last: Option<(Key, u32)>,
    /// Connections that ended: when they are given up, slot and number.
    ending: VecDeque<(i64, u32, u64)>,
    numbers: u64,
    /// Memory that all flows take, bytes.
    held_bytes: u64,
    numbers_of_probes: Numbers,
    swept_ns: i64,
    /// Places that may be looked at.
    sweepable: usize,
    now_ns: i64,
    totals: Totals,
    fragments: Fragments,
    gaps: GapClock,
}

impl<S: Sink> Flows<S> {
    /// No packet yet, and none lost.
    pub fn new(options: FlowOptions, sink: S) -> Self {
        Self::with_gaps(options, sink, Gaps::default())
    }

    /// No packet yet; the capture lost some in `gaps`.
    pub fn with_gaps(options: FlowOptions, sink: S, gaps: Gaps) -> Self {
        Self {
            options,
            sink,
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::default(),
            last: None,
            ending: VecDeque::new(),
            numbers: 0,
            held_bytes: 0,
            numbers_of_probes: Numbers { left: options.most_numbers, refused: 0 },
            swept_ns: i64::MIN,
            sweepable: 0,
            now_ns: i64::MIN,
            totals: Totals::default(),
            fragments: Fragments::default(),
            gaps: GapClock::new(gaps),
        }
    }

    /// Has the flows keep to these options from now on: more of the capture was read.
    pub fn allow(&mut self, options: FlowOptions) {
        let more = options.most_numbers.saturating_sub(self.options.most_numbers);
        self.numbers_of_probes.left = self.numbers_of_probes.left.saturating_add(more);
        self.options = options;
    }

    /// The next packet. Packets should come in the order of their times; one that does not counts as of the time that was reached.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        self.totals.packets += 1;
        self.totals.frame_bytes += u64::from(packet.frame_len);
        let Some(ip) = &packet.ip else {
            self.totals.not_ip_packets += 1;
            return self.at(packet.at_ns);
        };
        self.at(packet.at_ns);
        if ip.more_fragments || ip.fragment_offset != 0 {
            self.totals.fragments += 1;
            if let Some(whole) = self.fragments.take(packet, ip) {
                self.flow_packet(&whole);
            }
            return;
        }
        self.flow_packet(packet);
    }

    /// Time goes on.
    #[inline]
    fn at(&mut self, at_ns: i64) {
        self.totals.first_ns.get_or_insert(at_ns);
        if at_ns < self.now_ns {
            self.totals.time_steps_back += 1;
            return;
        }
        self.now_ns = at_ns;
        self.gaps.at(at_ns);
        self.totals.last_ns = Some(at_ns);
        if self.ending.front().is_some_and(|(until_ns, ..)| *until_ns <= at_ns) {
            self.end_those_over();
        }
        self.sweepable = self.sweepable.saturating_add(SWEPT_A_PACKET);
        if at_ns.saturating_sub(self.swept_ns) >= SWEEP_NS && self.sweepable >= self.slots.len() {
            self.sweep();
        }
    }

    #[inline]
    fn flow_packet(&mut self, packet: &Packet) {
        let Some(ip) = &packet.ip else { return };
        let (src_port, dst_port, protocol) = match &packet.transport {
            Transport::Tcp(tcp) => (tcp.src_port, tcp.dst_port, 6),
            Transport::Udp { src_port, dst_port, .. } => (*src_port, *dst_port, 17),
            Transport::Other => {
                self.totals.other_packets += 1;
                return;
            }
        };
        let (key, ascending) = key(ip.src, src_port, ip.dst, dst_port, protocol);
        let found = match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => self.places.get(&key).copied(),
        };
        let slot = match found {
            Some(slot) if !self.is_another(slot, packet, ascending) => slot,
            Some(slot) => {
                self.end(slot, Why::Over);
                self.open(packet, key, ascending, (ip.src, src_port), (ip.dst, dst_port))
            }
            None => self.open(packet, key, ascending, (ip.src, src_port), (ip.dst, dst_port)),
        };
        self.last = Some((key, slot));
        let lost = self.gaps.now();
        let Some(flow) = self.slots[slot as usize].as_mut() else { return };
        flow.last_ns = flow.last_ns.max(packet.at_ns);
        flow.gap_ns = lost.gap_ns;
        let direction = usize::from(flow.ascending != ascending);
        match (&mut flow.kind, &packet.transport) {
            (Kind::Tcp(connection), Transport::Tcp(tcp)) => {
                let (sink, number) = (&mut self.sink, flow.number);
                let ended = |forward, at_ns, row| sink.millisecond(number, forward, at_ns, row);
                let Brought { interval_ns, ack_interval_ns, loss } =
                    connection.packet(packet, tcp, direction, lost, ended);
                if let Some(interval_ns) = interval_ns {
                    self.sink.interval(flow.number, direction == 0, packet.at_ns, interval_ns);
                }
                if let Some(interval_ns) = ack_interval_ns {
                    self.sink.ack_interval(flow.number, direction == 0, packet.at_ns, interval_ns);
                }
                if let Some(loss) = loss {
                    self.sink.lost(flow.number, direction == 0, loss);
                }
                if connection.is_over() && !flow.ending {
                    flow.ending = true;
                    let rtt_ns = connection.path_rtt_ns().unwrap_or(0);
                    let until_ns = packet.at_ns.saturating_add(self.options.linger_ns).saturating_add(4 * rtt_ns);
                    self.ending.push_back((until_ns, slot, flow.number));
                }
            }
            (Kind::Udp(halves), Transport::Udp { payload_len, probe, .. }) => {
                let numbers = &mut self.numbers_of_probes;
                let (ended, interval_ns) =
                    halves[direction].packet(packet, *payload_len, probe.as_ref(), lost, numbers);
                if let Some(interval_ns) = interval_ns {
                    self.sink.interval(flow.number, direction == 0, packet.at_ns, interval_ns);
                }
                while let Some(loss) = halves[direction].take_loss() {
                    self.sink.lost(flow.number, direction == 0, loss);
                }
                let mut both = [None, None];
                both[direction] = ended;
                hand_out(&mut self.sink, flow.number, both);
            }
            _ => {}
        }
        let bytes = flow.heap_bytes();
        self.held_bytes =
            self.held_bytes + u64::from(bytes) - u64::from(std::mem::replace(&mut flow.heap_bytes, bytes));
        if self.held_bytes > self.options.most_bytes {
            self.evict();
        }
    }

    #[inline]
    fn is_another(&self, slot: u32, packet: &Packet, ascending: bool) -> bool {
        let Some(flow) = &self.slots[slot as usize] else { return true };
        match (&flow.kind, &packet.transport) {
            (Kind::Tcp(connection), Transport::Tcp(tcp)) => {
                connection.is_another(tcp, usize::from(flow.ascending != ascending))
            }
            _ => self.silent_ns(flow, packet.at_ns) > self.options.udp_idle_ns,
        }
    }

    /// How long nothing of `flow` has come, as far as the capture can tell.
    fn silent_ns(&self, flow: &Flow, now_ns: i64) -> i64 {
        now_ns.saturating_sub(flow.last_ns) - (self.gaps.now().gap_ns - flow.gap_ns)
    }

    #[cold]
    fn open(&mut self, packet: &Packet, key: Key, ascending: bool, src: (IpAddr, u16), dst: (IpAddr, u16)) -> u32 {
        if self.places.len() >= self.options.most_flows {
            self.evict();
        }
        let (from, to) = (socket(src.0, src.1), socket(dst.0, dst.1));
        let (kind, backward) = match &packet.transport {
            // A SYN-ACK is the server's.
            Transport::Tcp(tcp) => (Kind::Tcp(Connection::default()), tcp.flags & 0x12 == 0x12),
            _ => (Kind::Udp(Default::default()), false),
        };
        let flow = Box::new(Flow {
            number: self.numbers,
            key,
            client: if backward { to } else { from },
            server: if backward { from } else { to },
            ascending: ascending != backward,
            first_ns: packet.at_ns,
            last_ns: packet.at_ns,
            gap_ns: self.gaps.now().gap_ns,
            ending: false,
            heap_bytes: 0,
            kind,
        });
        self.numbers += 1;
        self.held_bytes += FLOW_BYTES;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(flow);
                slot
            }
            None => {
                self.slots.push(Some(flow));
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(key, slot);
        slot
    }

    /// Hands out the flow in `slot` and forgets it.
    fn end(&mut self, slot: u32, why: Why) {
        let Some(mut flow) = self.slots[slot as usize].take() else { return };
        if self.ending.len() > 2 * self.places.len() + ENDING_SURE {
            self.ending.retain(|(_, slot, number)| Self::is_there(&self.slots, *slot, *number));
        }
        self.places.remove(&flow.key);
        self.free.push(slot);
        self.held_bytes -= FLOW_BYTES + u64::from(flow.heap_bytes);
        self.last = None;
        let (protocol, connection, [forward, backward], ended) = match &mut flow.kind {
            Kind::Tcp(connection) => {
                for (losses, forward) in connection.last_losses().into_iter().zip([true, false]) {
                    losses.into_iter().flatten().for_each(|loss| self.sink.lost(flow.number, forward, loss));
                }
                let (summary, directions, ended) = connection.finish(flow.last_ns, why);
                (Protocol::Tcp, Some(summary), directions, ended)
            }
            Kind::Udp(halves) => {
                let [(forward, first), (backward, second)] = halves.each_mut().map(UdpHalf::finish);
                for (half, forward) in halves.iter_mut().zip([true, false]) {
                    while let Some(loss) = half.take_loss() {
                        self.sink.lost(flow.number, forward, loss);
                    }
                }
                (Protocol::Udp, None, [forward, backward], [first, second])
            }
        };
        hand_out(&mut self.sink, flow.number, ended);
        self.sink.flow(FlowSummary {
            flow: flow.number,
            protocol,
            client: flow.client,
            server: flow.server,
            first_ns: flow.first_ns,
            last_ns: flow.last_ns,
            connection,
            forward,
            backward,
        });
    }

    /// Whether the flow that was in `slot` as it ended is still there.
    fn is_there(slots: &[Option<Box<Flow>>], slot: u32, number: u64) -> bool {
        slots[slot as usize].as_ref().is_some_and(|flow| flow.number == number)
    }

    #[cold]
    fn end_those_over(&mut self) {
        while let Some((until_ns, slot, number)) = self.ending.front().copied() {
            if until_ns > self.now_ns {
                break;
            }
            self.ending.pop_front();
            // The slot may have another flow by now.
            if Self::is_there(&self.slots, slot, number) {
                self.end(slot, Why::Over);
            }
        }
    }

    #[cold]
    fn sweep(&mut self) {
        self.swept_ns = self.now_ns;
        self.sweepable = 0;
        for slot in 0..self.slots.len() as u32 {
            let Some(flow) = &self.slots[slot as usize] else { continue };
            let idle_ns = match flow.kind {
                Kind::Tcp(_) => self.options.tcp_idle_ns,
                Kind::Udp(_) => self.options.udp_idle_ns,
            };
            if self.silent_ns(flow, self.now_ns) > idle_ns {
                self.end(slot, Why::Idle);
            }
        }
    }

    /// Sums up a sixteenth of all flows, those that were silent longest, and more until a sixteenth of the memory is free: all places are
    /// looked at for it.
    #[cold]
    fn evict(&mut self) {
        let mut last: Vec<(i64, u32)> =
            (0..).zip(&self.slots).filter_map(|(slot, flow)| Some((flow.as_ref()?.last_ns, slot))).collect();
        last.sort_unstable();
        let count = (last.len() / 16).max(1);
        let enough = self.options.most_bytes / 16 * 15;
        for (nth, (_, slot)) in last.into_iter().enumerate() {
            if nth >= count && self.held_bytes <= enough {
                break;
            }
            self.end(slot, Why::Evicted);
            self.totals.evicted_flows += 1;
        }
    }

    /// What was counted so far of all packets.
    pub fn totals(&self) -> Totals {
        Totals {
            incomplete_datagrams: self.fragments.incomplete(),
            probes_left_out: self.numbers_of_probes.refused,
            gaps: self.gaps.met(),
            left_out_ns: self.gaps.now().gap_ns,
            ..self.totals
        }
    }

    /// Flows that are open.
    #[cfg(test)]
    pub(crate) fn open_flows(&self) -> usize {
        self.places.len()
    }

    #[cfg(test)]
    pub(crate) fn ending(&self) -> usize {
        self.ending.len()
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Who takes what becomes known.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// The capture ends: hands out the flows that are left, in the order of their beginning.
    pub fn finish(mut self) -> (S, Totals) {
        let mut left: Vec<(u64, u32)> =
            (0..).zip(&self.slots).filter_map(|(slot, flow)| Some((flow.as_ref()?.number, slot))).collect();
        left.sort_unstable();
        for (_, slot) in left {
            self.end(slot, Why::Over);
        }
        let totals = self.totals();
        (self.sink, totals)
    }
}

#[inline]
fn hand_out<S: Sink>(sink: &mut S, flow: u64, ended: Ended) {
    let [forward, backward] = ended;
    if let Some((at_ns, row)) = forward {
        sink.millisecond(flow, true, at_ns, row);
    }
    if let Some((at_ns, row)) = backward {
        sink.millisecond(flow, false, at_ns, row);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    struct Nowhere;

    impl Sink for Nowhere {
        fn flow(&mut self, _: FlowSummary) {}
    }

    /// With a known hash function, somebody can choose addresses that all have the same hash: then each lookup compares all of them.
    #[test]
    fn addresses_are_hashed_otherwise_in_each_table() {
        let (key, _) = key([10, 0, 0, 1].into(), 1, [10, 0, 0, 2].into(), 2, 6);
        let hash = || Flows::new(FlowOptions::default(), Nowhere).places.hasher().hash_one(key);
        assert_ne!(hash(), hash());
    }
}
