//! What must be known of two captures before their packets can be matched as they are read: how long full segments are, how the clocks
//! lie, which way each flow goes, and how long a packet may be on its way.
//!
//! Two looks at each file, either in bounded memory. The first ([`FirstLook`]) is for segment sizes. The second ([`Sampler`]) keeps the
//! packets whose hash falls below a bound that sinks as they grow too many: so both captures keep the *same* packets, whatever
//! was lost in between, and up to [`MOST_SAMPLES`] of them all. Packets that look alike are left out, as nobody can tell which is which.

use std::collections::HashMap;

use super::clocks::{ClockFit, fit};
use super::identity::{Path, PathDirection, SegmentSizes, identities, path};
use longhaul_captures::packet::{Packet, Transport};

/// Wire packets of a capture that are sampled: 16 MB, and every packet of captures with fewer.
const MOST_SAMPLES: usize = 1 << 19;
/// Flows whose segment size is learned; super-packets of later ones are not cut, unless the capture says how.
const MOST_SIZES: usize = 1 << 20;
/// Differences of stamps that tell which way a flow goes.
const MOST_DIFFERENCES: usize = 4_096;
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
    #[error("no packet of the one is in the other")]
    NothingInCommon,
}

/// What one reading of a capture tells.
#[derive(Debug, Default, Clone)]
pub struct FirstLook {
    offered: SegmentSizes,
    largest: SegmentSizes,
    /// The first packet's time and the last one's.
    span_ns: Option<(i64, i64)>,
}

impl FirstLook {
    /// The next packet of the capture. What is neither TCP nor UDP takes no part.
    pub fn packet(&mut self, packet: &Packet) {
        let Some(path) = path(packet) else { return };
        let (start, end) = self.span_ns.unwrap_or((packet.at_ns, packet.at_ns));
        self.span_ns = Some((start.min(packet.at_ns), end.max(packet.at_ns)));
        let Transport::Tcp(tcp) = &packet.transport else { return };
        if let Some(mss) = tcp.options.mss.filter(|_| self.offered.len() < MOST_SIZES) {
            let reverse = Path { src: path.dst, dst: path.src, ..path };
            let stamps = if tcp.options.timestamps.is_some() { 12 } else { 0 };
            self.offered.insert(reverse, u32::from(mss).saturating_sub(stamps).max(1));
        }
        if packet.gso_size == 0 && packet.gso_segs < 2 && tcp.payload_len > 0 {
            let is_full = self.largest.len() >= MOST_SIZES;
            match self.largest.get_mut(&path) {
                Some(size) => *size = tcp.payload_len.max(*size),
                None if is_full => {}
                None => drop(self.largest.insert(path, tcp.payload_len)),
            }
        }
    }
}

/// Full segments of each direction: what its handshake says, else its largest packet; the capture nearer to the wire has the smaller
/// ones.
pub fn segment_sizes(looks: [&FirstLook; 2]) -> SegmentSizes {
    let mut sizes = SegmentSizes::new();
    let each = looks.iter().flat_map(|look| look.largest.iter().chain(&look.offered));
    for (path, size) in each {
        let known = sizes.entry(*path).or_insert(*size);
        *known = (*size).min(*known);
    }
    sizes
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    strict: u64,
    loose: u64,
    at_ns: i64,
    path: u32,
}

/// The second look at a capture.
#[derive(Debug)]
pub struct Sampler<'a> {
    sizes: &'a SegmentSizes,
    samples: Vec<Sample>,
    /// Packets are kept whose hash has so many zeros at its end.
    zeros: u32,
    most: usize,
    numbers: HashMap<Path, u32>,
}

impl<'a> Sampler<'a> {
    /// Nothing yet.
    pub fn new(sizes: &'a SegmentSizes) -> Self {
        Self { sizes, samples: Vec::new(), zeros: 0, most: MOST_SAMPLES, numbers: HashMap::new() }
    }

    #[cfg(test)]
    pub(super) fn keeping(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The next packet.
    pub fn packet(&mut self, packet: &Packet) {
        let Some(path) = path(packet) else { return };
        let (samples, numbers, zeros) = (&mut self.samples, &mut self.numbers, self.zeros);
        identities(packet, &path, self.sizes, |identity| {
            if identity.loose.trailing_zeros() < zeros {
                return;
            }
            let next = numbers.len() as u32;
            let number = *numbers.entry(path).or_insert(next);
            samples.push(Sample { strict: identity.strict, loose: identity.loose, at_ns: packet.at_ns, path: number });
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
    pub(super) directions: HashMap<Path, PathDirection>,
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
}

/// Those that stand once in either, or, where there are none, the first of several with the first.
fn pairs(a: &[Sample], b: &[Sample], name: impl Fn(&Sample) -> u64) -> Vec<Pair> {
    let mut places: HashMap<u64, (u32, u32), foldhash::fast::FixedState> = HashMap::default();
    for (index, sample) in (0..).zip(b) {
        places.entry(name(sample)).and_modify(|(count, _)| *count += 1).or_insert((1, index));
    }
    let mut own: HashMap<u64, u32, foldhash::fast::FixedState> = HashMap::default();
    a.iter().for_each(|sample| *own.entry(name(sample)).or_default() += 1);
    let pair =
        |sample: &Sample, index: u32| Pair { path: sample.path, a_ns: sample.at_ns, b_ns: b[index as usize].at_ns };
    let found = |sample: &Sample| places.get(&name(sample)).copied();
    let unique = a.iter().filter_map(|sample| {
        let (count, index) = found(sample)?;
        (count == 1 && own.get(&name(sample)) == Some(&1)).then(|| pair(sample, index))
    });
    let unique: Vec<Pair> = unique.collect();
    if !unique.is_empty() {
        return unique;
    }
    let mut taken = std::collections::HashSet::new();
    let firsts = a.iter().filter(|sample| taken.insert(name(sample)));
    firsts.filter_map(|sample| Some(pair(sample, found(sample)?.1))).collect()
}

impl Plan {
    /// Lays the two over each other.
    ///
    /// # Errors
    /// Where they have nothing in common.
    pub fn of(looks: [&FirstLook; 2], samplers: [Sampler<'_>; 2], options: MatchOptions) -> Result<Self, CompareError> {
        let [mut a, mut b] = samplers;
        let zeros = a.zeros.max(b.zeros);
        for sampler in [&mut a, &mut b] {
            sampler.samples.retain(|sample| sample.loose.trailing_zeros() >= zeros);
        }
        let strict = pairs(&a.samples, &b.samples, |sample| sample.strict);
        let loose = pairs(&a.samples, &b.samples, |sample| sample.loose);
        // Where a router or an offload writes identifications anew, few are the same.
        let by_identification = strict.len() * 2 > loose.len();
        let pairs = if by_identification { strict } else { loose };
        let [Some(first), Some(second)] = looks.map(|look| look.span_ns) else {
            return Err(CompareError::NothingInCommon);
        };
        if pairs.is_empty() {
            return Err(CompareError::NothingInCommon);
        }
        let paths = a.paths();
        let directions = directions(&pairs, &paths);
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
        Ok(Self {
            clock,
            by_identification,
            directions: paths
                .iter()
                .zip(&directions)
                .filter_map(|(path, direction)| Some((*path, (*direction)?)))
                .collect(),
            spans_ns: [first, second],
            delays_ns,
            window_ns: window_ns as i64,
        })
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
        let (least, most) = self.delays_ns[direction as usize];
        let margin = DELAY_MARGIN_NS + (most - least) / 4.0;
        let (least, most) = (least - margin, most + margin);
        let (near, far) = if direction == from { (least, most) } else { (-most, -least) };
        let at = self.elsewhere(from, at_ns);
        ((at + near) as i64, (at + far) as i64)
    }

    /// A stamp of the point that `first` passes first, by A's clock.
    pub(super) fn by_a(&self, first: PathDirection, at_ns: i64) -> i64 {
        match first {
            PathDirection::AToB => at_ns,
            // The drift within the offset is beyond what order needs.
            PathDirection::BToA => {
                let near = at_ns - if self.clock.corrected { self.clock.offset_ns as i64 } else { 0 };
                at_ns - self.clock.offset_at(near) as i64
            }
        }
    }
}

/// Which way each direction of flow goes. Of a flow's two directions the one with the greater difference of stamps goes from A to B,
/// as it has the delay added and the other subtracted. Where there is one alone, it goes with those that it is nearer to, and where
/// there are none, the sign tells, if the clocks are near.
fn directions(pairs: &[Pair], paths: &[Path]) -> Vec<Option<PathDirection>> {
    let mut differences: Vec<Vec<i64>> = vec![Vec::new(); paths.len()];
    for pair in pairs {
        let sampled = &mut differences[pair.path as usize];
        if sampled.len() < MOST_DIFFERENCES {
            sampled.push(pair.b_ns - pair.a_ns);
        }
    }
    let median = |mut all: Vec<i64>| {
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    let medians: HashMap<Path, i64> =
        paths.iter().zip(differences).filter_map(|(path, all)| Some((*path, median(all)?))).collect();
    let reverse = |path: &Path| Path { src: path.dst, dst: path.src, protocol: path.protocol };
    let paired = || paths.iter().filter_map(|path| Some((*medians.get(path)?, *medians.get(&reverse(path))?)));
    let forward = median(paired().map(|(one, other)| one.max(other)).collect());
    let backward = median(paired().map(|(one, other)| one.min(other)).collect());
    let direction = |path: &Path| {
        let own = *medians.get(path)?;
        let forward = match (medians.get(&reverse(path)), forward, backward) {
            (Some(other), ..) => own > *other,
            (None, Some(forward), Some(backward)) => own.abs_diff(forward) <= own.abs_diff(backward),
            _ => own >= 0,
        };
        Some(if forward { PathDirection::AToB } else { PathDirection::BToA })
    };
    paths.iter().map(direction).collect()
}
