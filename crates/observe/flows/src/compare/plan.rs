//! What must be known of two captures before their packets can be matched as they are read: how long full segments are, how the clocks
//! lie, which way each flow goes, and how long a packet may be on its way.
//!
//! Two looks at each file, either in bounded memory. The first ([`FirstLook`]) is for segment sizes. The second ([`Sampler`]) keeps the
//! packets whose hash falls below a bound that sinks as they grow too many: so both captures keep the *same* packets, whatever
//! was lost in between, and up to [`MOST_SAMPLES`] of them all. Packets that look alike are left out, as nobody can tell which is which.

use std::collections::HashMap;

use super::bounds::Bounds;
use super::clocks::{ClockFit, fit};
use super::identity::{Datagrams, Path, PathDirection, Recognition, identities, path};
use super::sides::{Passed, Sides};
use longhaul_captures::packet::{Packet, Transport};
use longhaul_wire::probe::{FIRST_RESERVED, HEADER_LEN, Probe};

/// Wire packets of a capture that are sampled: 16 MB, and every packet of captures with fewer.
const MOST_SAMPLES: usize = 1 << 19;
/// Numbers of a flow's probes are so near to each other.
const NEAR: u64 = 1 << 17;
/// A packet is waited for so long beyond four times the longest delay among the samples.
const WINDOW_MARGIN_NS: f64 = 100e6;
/// Delays of packets that are in no sample may lie so far outside of the sample's beside a quarter of its spread.
const DELAY_MARGIN_NS: f64 = 10e3;

/// How captures are matched.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchOptions {
    /// Both stamps are of one clock: times are not corrected.
    pub same_clock: bool,
}

/// Why two captures cannot be laid over each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing in common.
    #[error("the two captures have no packet in common")]
    NothingInCommon,
    /// The captures may have packets in common, but all of them look alike.
    #[error("all packets look alike and cannot be distinguished")]
    AllAlike,
    /// The super-packets of one of them stand for more wire packets than this, see [`Bounds`].
    #[error(
        "the super-packets of one capture stand for more than {0} packets, which is too many for files of this length"
    )]
    TooManyWirePackets(u64),
}

/// What one reading of a capture tells.
#[derive(Debug, Clone)]
pub struct FirstLook {
    bounds: Bounds,
    /// Of TCP and UDP.
    packets: u64,
    segments: HashMap<Path, Segments>,
    datagrams: HashMap<Path, Heads>,
    /// The first packet's time and the last one's.
    span_ns: Option<(i64, i64)>,
}

/// What TCP's packets of one direction tell of segments: payload bytes, 0 where they tell none.
#[derive(Debug, Clone, Copy, Default)]
struct Segments {
    /// Its longest.
    largest: u32,
    /// What its handshake lets the other direction send.
    offered: u32,
}

/// What the payloads of one direction's datagrams begin with.
#[derive(Debug, Clone, Copy, Default)]
struct Heads {
    packets: u64,
    /// Those whose first bytes were captured.
    with_head: u64,
    super_packets: u64,
    /// Those that may be probes, of the last one's cookie and with a number near to its.
    like_probes: u64,
    last: Option<(u32, u64)>,
}

impl Heads {
    fn take(&mut self, packet: &Packet, payload_len: u32, probe: Option<&Probe>) {
        self.packets += 1;
        self.super_packets += u64::from(packet.gso_size > 0 || packet.gso_segs > 1);
        self.with_head += u64::from(probe.is_some() || payload_len < HEADER_LEN as u32);
        let Some(probe) = probe else { return };
        let (cookie, number) = self.last.replace((probe.cookie.0, probe.sequence)).unwrap_or_default();
        let is_near = cookie == probe.cookie.0 && number != probe.sequence && number.abs_diff(probe.sequence) < NEAR;
        // The proof before a test has the cookie, and numbers of its own.
        let is_proof = cookie == probe.cookie.0 && number.max(probe.sequence) >= FIRST_RESERVED;
        self.like_probes += u64::from(is_near || is_proof);
    }

    fn known_by(&self) -> Option<Datagrams> {
        if self.like_probes >= 3 && self.like_probes * 10 >= self.packets * 8 {
            return Some(Datagrams::Probes);
        }
        (self.super_packets == 0 && self.with_head == self.packets).then_some(Datagrams::ByPayload)
    }
}

/// What is known of `path`; `None` where it is new and there is no room for it.
fn known_of<T: Default>(all: &mut HashMap<Path, T>, path: Path, is_full: bool) -> Option<&mut T> {
    if is_full { all.get_mut(&path) } else { Some(all.entry(path).or_default()) }
}

impl FirstLook {
    /// Nothing yet. Of directions beyond `bounds` nothing is learned, as their packets are not matched.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, packets: 0, segments: HashMap::new(), datagrams: HashMap::new(), span_ns: None }
    }

    /// The next packet of the capture. What is neither TCP nor UDP takes no part.
    pub fn packet(&mut self, packet: &Packet) {
        let Some(path) = path(packet) else { return };
        self.packets += 1;
        let (start, end) = self.span_ns.unwrap_or((packet.at_ns, packet.at_ns));
        self.span_ns = Some((start.min(packet.at_ns), end.max(packet.at_ns)));
        let is_full = self.segments.len() + self.datagrams.len() >= self.bounds.paths;
        if let Transport::Udp { payload_len, probe, .. } = &packet.transport {
            if let Some(heads) = known_of(&mut self.datagrams, path, is_full) {
                heads.take(packet, *payload_len, probe.as_ref());
            }
            return;
        }
        let Transport::Tcp(tcp) = &packet.transport else { return };
        let is_one = packet.gso_size == 0 && packet.gso_segs < 2 && tcp.payload_len > 0;
        if !is_one && tcp.options.mss.is_none() {
            return;
        }
        let Some(segments) = known_of(&mut self.segments, path, is_full) else { return };
        if let Some(mss) = tcp.options.mss {
            let stamps = if tcp.options.timestamps.is_some() { 12 } else { 0 };
            segments.offered = u32::from(mss).saturating_sub(stamps).max(1);
        }
        if is_one {
            segments.largest = tcp.payload_len.max(segments.largest);
        }
    }
}

/// What both looks tell. Full segments of each direction are what its handshake says, else its largest packet; the capture nearer to the
/// wire has the smaller ones. Datagrams are known by what both captures have of them.
pub fn recognition(looks: [FirstLook; 2]) -> Recognition {
    let mut known = Recognition {
        bounds: looks[0].bounds.for_packets(looks.each_ref().map(|look| look.packets)),
        spans_ns: looks.each_ref().map(|look| look.span_ns),
        segment_bytes: HashMap::new(),
        datagrams: HashMap::new(),
    };
    let all = looks.iter().flat_map(|look| look.segments.iter());
    for (path, segments) in all.filter(|(_, segments)| segments.largest > 0) {
        let reverse = Path { src: path.dst, dst: path.src, ..*path };
        let others = looks.iter().filter_map(|look| look.segments.get(&reverse));
        let offered = others.map(|other| other.offered).filter(|offered| *offered > 0);
        let least = offered.fold(segments.largest, u32::min);
        let segment_bytes = known.segment_bytes.entry(*path).or_insert(least);
        *segment_bytes = least.min(*segment_bytes);
    }
    let [a, b] = &looks;
    for (path, heads) in &a.datagrams {
        let Some(others) = b.datagrams.get(path) else { continue };
        if let (Some(by), true) = (heads.known_by(), heads.known_by() == others.known_by()) {
            known.datagrams.insert(*path, by);
        }
    }
    known
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    strict: u64,
    loose: u64,
    at_ns: i64,
    path: u32,
    ttl: u8,
}

/// The second look at a capture.
#[derive(Debug)]
pub struct Sampler<'a> {
    known: &'a Recognition,
    samples: Vec<Sample>,
    /// Packets are kept whose hash has so many zeros at its end.
    zeros: u32,
    most: usize,
    numbers: HashMap<Path, u32>,
    /// How many the capture stands for, and may stand for.
    wire_packets: u64,
    wire_packets_most: u64,
}

impl<'a> Sampler<'a> {
    /// Nothing yet, of A and of B.
    pub fn of_both(known: &'a Recognition) -> [Self; 2] {
        known.bounds.wire_packets.map(|wire_packets_most| Self {
            known,
            samples: Vec::new(),
            zeros: 0,
            most: MOST_SAMPLES,
            numbers: HashMap::new(),
            wire_packets: 0,
            wire_packets_most,
        })
    }

    #[cfg(test)]
    pub(super) fn keeping(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The next packet. Those behind as many wire packets as a capture may stand for are passed over: [`Plan::of`] refuses it.
    pub fn packet(&mut self, packet: &Packet) {
        let Some(path) = path(packet) else { return };
        if self.wire_packets > self.wire_packets_most {
            return;
        }
        let paths_most = self.known.bounds.paths;
        let (samples, numbers, zeros) = (&mut self.samples, &mut self.numbers, self.zeros);
        let wire_packets = &mut self.wire_packets;
        let ttl = packet.ip.map_or(0, |ip| ip.ttl);
        identities(packet, &path, self.known, |identity| {
            *wire_packets += 1;
            if identity.loose.trailing_zeros() < zeros {
                return;
            }
            let next = numbers.len();
            let known = if next < paths_most {
                Some(*numbers.entry(path).or_insert(next as u32))
            } else {
                numbers.get(&path).copied()
            };
            let Some(number) = known else { return };
            let (strict, loose) = (identity.strict, identity.loose);
            samples.push(Sample { strict, loose, at_ns: packet.at_ns, path: number, ttl });
        });
        while self.samples.len() > self.most {
            self.zeros += 1;
            self.samples.retain(|sample| sample.loose.trailing_zeros() >= self.zeros);
        }
    }

    fn paths(&self) -> Vec<Path> {
        let mut paths: Vec<(Path, u32)> = self.numbers.iter().map(|(path, number)| (*path, *number)).collect();
        paths.sort_by_key(|(_, number)| *number);
        paths.into_iter().map(|(path, _)| path).collect()
    }
}

/// What the looks tell.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) clock: ClockFit,
    pub(super) by_identification: bool,
    pub(super) sides: Sides,
    /// From first to last packet of A and of B, each by its own clock.
    pub(super) spans_ns: [(i64, i64); 2],
    /// The shortest and the longest delay from A to B and back; 0 where no packet went so.
    pub(super) delays_ns: [(f64, f64); 2],
    /// How long a packet is waited for at the other point.
    pub(super) window_ns: i64,
}

/// A packet in both samples.
struct Pair {
    path: u32,
    a_ns: i64,
    b_ns: i64,
    hops: i16,
}

/// Those that stand once in either, or, where there are none, the first of several with the first, unless several of a name pass so close to
/// each other that they look alike.
fn pairs(a: &[Sample], b: &[Sample], name: impl Fn(&Sample) -> u64) -> Result<Vec<Pair>, CompareError> {
    let named = |samples: &[Sample]| {
        let mut named: HashMap<u64, Named, foldhash::fast::FixedState> = HashMap::default();
        for (first, sample) in (0..).zip(samples) {
            let new = Named { count: 0, first, last_ns: i64::MIN, are_near: false };
            let found = named.entry(name(sample)).or_insert(new);
            found.are_near |= sample.at_ns.saturating_sub(found.last_ns) < WINDOW_MARGIN_NS as i64;
            (found.count, found.last_ns) = (found.count + 1, sample.at_ns);
        }
        named
    };
    let [in_a, in_b] = [a, b].map(named);
    let pair = |own: &Named, other: &Named| {
        let (one, two) = (&a[own.first as usize], &b[other.first as usize]);
        Pair { path: one.path, a_ns: one.at_ns, b_ns: two.at_ns, hops: i16::from(one.ttl) - i16::from(two.ttl) }
    };
    let common: Vec<(&Named, &Named)> = in_a.iter().filter_map(|(name, own)| Some((own, in_b.get(name)?))).collect();
    let of = |which: fn(&Named) -> bool| -> Vec<Pair> {
        let chosen = common.iter().filter(|(own, other)| which(own) && which(other));
        let mut pairs: Vec<Pair> = chosen.map(|(own, other)| pair(own, other)).collect();
        pairs.sort_unstable_by_key(|pair| (pair.a_ns, pair.path));
        pairs
    };
    let unique = of(|named| named.count == 1);
    let pairs = if unique.is_empty() { of(|named| !named.are_near) } else { unique };
    if pairs.is_empty() && !common.is_empty() { Err(CompareError::AllAlike) } else { Ok(pairs) }
}

/// Samples of one name.
struct Named {
    count: u32,
    first: u32,
    last_ns: i64,
    are_near: bool,
}

impl Plan {
    /// Lays the two over each other.
    ///
    /// # Errors
    /// Where they have nothing in common, nothing by which packets can be told apart, or stand for too many wire packets.
    pub fn of(samplers: [Sampler<'_>; 2], options: MatchOptions) -> Result<Self, CompareError> {
        let [mut a, mut b] = samplers;
        let known = a.known;
        for sampler in [&a, &b] {
            if sampler.wire_packets > sampler.wire_packets_most {
                return Err(CompareError::TooManyWirePackets(sampler.wire_packets_most));
            }
        }
        let zeros = a.zeros.max(b.zeros);
        for sampler in [&mut a, &mut b] {
            sampler.samples.retain(|sample| sample.loose.trailing_zeros() >= zeros);
        }
        let loose = pairs(&a.samples, &b.samples, |sample| sample.loose);
        let strict = pairs(&a.samples, &b.samples, |sample| sample.strict);
        let (strict, loose) = match (strict, loose) {
            (Ok(strict), loose) => (strict, loose.unwrap_or_default()),
            (Err(_), loose) => (Vec::new(), loose?),
        };
        // Where a router or an offload writes identifications anew, few are the same.
        let by_identification = strict.len() * 2 > loose.len();
        let pairs = if by_identification { strict } else { loose };
        let [Some(first), Some(second)] = known.spans_ns else {
            return Err(CompareError::NothingInCommon);
        };
        if pairs.is_empty() {
            return Err(CompareError::NothingInCommon);
        }
        let paths = a.paths();
        let passed =
            pairs.iter().map(|pair| Passed { path: pair.path, difference_ns: pair.b_ns - pair.a_ns, hops: pair.hops });
        let sides = Sides::of(&passed.collect::<Vec<_>>(), &paths);
        let directions: Vec<Option<PathDirection>> = paths.iter().map(|path| sides.direction(path)).collect();
        let differences = |direction: PathDirection| -> Vec<(i64, i64)> {
            let going = pairs.iter().filter(|pair| directions[pair.path as usize] == Some(direction));
            going.map(|pair| (pair.a_ns, pair.b_ns - pair.a_ns)).collect()
        };
        let (forward, backward) = (differences(PathDirection::AToB), differences(PathDirection::BToA));
        let clock = ClockFit { corrected: !options.same_clock, ..fit(&forward, &backward) };
        let delays = |all: &[(i64, i64)], sign: f64| -> (f64, f64) {
            let delays = all.iter().map(|(at_ns, later)| sign * (*later as f64 - clock.offset_at(*at_ns)));
            let extremes = delays.map(|delay| (delay, delay)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            extremes.unwrap_or_default()
        };
        let delays_ns = [delays(&forward, 1.0), delays(&backward, -1.0)];
        let longest =
            delays_ns.iter().fold(0.0, |longest: f64, (least, most)| longest.max(least.abs()).max(most.abs()));
        let error_ns = clock.offset_error_ns.filter(|_| clock.corrected).unwrap_or(0.0);
        let window_ns = WINDOW_MARGIN_NS + 4.0 * longest + error_ns;
        Ok(Self { clock, by_identification, sides, spans_ns: [first, second], delays_ns, window_ns: window_ns as i64 })
    }

    /// Whether B's next packet comes before A's.
    pub fn b_is_next(&self, a_ns: i64, b_ns: i64) -> bool {
        self.by_a(PathDirection::BToA, b_ns) < a_ns
    }

    /// The other point's time, without delay, at `at_ns` of the point that `from` passes first.
    pub(super) fn elsewhere(&self, from: PathDirection, at_ns: i64) -> f64 {
        match from {
            PathDirection::AToB => at_ns as f64 + self.clock.offset_at(at_ns),
            PathDirection::BToA => self.by_a(from, at_ns) as f64,
        }
    }

    /// When a packet of `direction` that passed the point of `from` at `at_ns` passes, or passed, the other: from and up to.
    pub(super) fn due(&self, direction: PathDirection, from: PathDirection, at_ns: i64) -> (i64, i64) {
        let (least, most) =
            (self.least_ns(direction), self.delays_ns[direction as usize].1 + self.margin_ns(direction));
        let (near, far) = if direction == from { (least, most) } else { (-most, -least) };
        let at = self.elsewhere(from, at_ns);
        ((at + near) as i64, (at + far) as i64)
    }

    /// How far beyond the samples' delays another packet's may lie.
    pub(super) fn margin_ns(&self, direction: PathDirection) -> f64 {
        let (least, most) = self.delays_ns[direction as usize];
        DELAY_MARGIN_NS + (most - least) / 4.0
    }

    /// No packet of `direction` takes less, as far as the samples tell.
    pub(super) fn least_ns(&self, direction: PathDirection) -> f64 {
        self.delays_ns[direction as usize].0 - self.margin_ns(direction)
    }

    /// A stamp of the point that `first` passes first, by A's clock.
    pub(super) fn by_a(&self, first: PathDirection, at_ns: i64) -> i64 {
        match first {
            PathDirection::AToB => at_ns,
            // The drift within the offset is beyond what order needs.
            PathDirection::BToA => {
                let offset = if self.clock.corrected { self.clock.offset_ns as i64 } else { 0 };
                at_ns.saturating_sub(self.clock.offset_at(at_ns.saturating_sub(offset)) as i64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use longhaul_captures::packet::{Ip, Options, Tcp};

    use super::*;

    /// Of one host with itself, so that ports tell directions.
    fn packet(src_port: u16, dst_port: u16, transport: Transport) -> Packet {
        let host = IpAddr::from([10, 0, 0, 1]);
        let (protocol, ttl, traffic_class, id, len) = (6, 64, 0, None, 40);
        let (fragment_offset, more_fragments) = (0, false);
        let ip = Ip { src: host, dst: host, protocol, ttl, traffic_class, id, len, fragment_offset, more_fragments };
        let transport = match transport {
            Transport::Tcp(tcp) => Transport::Tcp(Tcp { src_port, dst_port, ..tcp }),
            _ => Transport::Udp { src_port, dst_port, payload_len: 100, probe: None },
        };
        Packet { ip: Some(ip), transport, ..Packet::default() }
    }

    fn tcp(src_port: u16, dst_port: u16, mss: Option<u16>, payload_len: u32) -> Packet {
        let options = Options { mss, ..Options::default() };
        let tcp = Tcp { src_port, dst_port, seq: 1, ack: 1, flags: 16, window: 9, payload_len, options };
        packet(src_port, dst_port, Transport::Tcp(tcp))
    }

    /// What a handshake offers counts for the other direction, and only there where that sends data.
    #[test]
    fn of_more_directions_than_are_kept_nothing_is_learned() {
        let bounds = Bounds { paths: 3, ..Bounds::for_bytes([0; 2]) };
        let mut look = FirstLook::new(bounds);
        for one in [tcp(1, 9, Some(1_460), 0), tcp(9, 1, None, 5_000), packet(5, 9, Transport::Other)] {
            look.packet(&one);
        }
        for port in 100..200 {
            look.packet(&tcp(port, 9, Some(1_000), 700));
            look.packet(&packet(port, 9, Transport::Other));
        }
        // Those that are known are learned of still.
        look.packet(&tcp(9, 1, Some(536), 6_000));
        assert_eq!((look.segments.len(), look.datagrams.len()), (2, 1));
        let known = recognition([look.clone(), look]);
        let sizes: Vec<(u16, u32)> = known.segment_bytes.iter().map(|(path, size)| (path.src.1, *size)).collect();
        assert_eq!(sizes, [(9, 1_460)]);
        assert!(known.datagrams.is_empty(), "without their first bytes");
    }

    #[test]
    fn samples_are_of_as_many_directions_as_are_kept() {
        let bounds = Bounds { paths: 3, wire_packets: [150, 90], held: 10 };
        let known = recognition([FirstLook::new(bounds), FirstLook::new(bounds)]);
        let [mut sampler, mut other] = Sampler::of_both(&known);
        (1..=100).for_each(|port| sampler.packet(&tcp(port, 9, None, 700)));
        assert_eq!((sampler.numbers.len(), sampler.samples.len(), sampler.wire_packets), (3, 3, 100));
        (1..=100).for_each(|port| sampler.packet(&tcp(port, 9, None, 700)));
        assert_eq!((sampler.samples.len(), sampler.wire_packets), (6, 151), "what follows is passed over");
        (1..=100).for_each(|port| other.packet(&tcp(port, 9, None, 700)));
        assert_eq!(other.wire_packets, 91, "each has a bound of its own");
    }
}
