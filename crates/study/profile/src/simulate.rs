//! Probes over a path in virtual time, by the code that the emulator runs.

use longhaul_path::network::{Destination, Network, Options, PortId, Release, Segmentation, Shape};
use longhaul_path::spec::{DelaySteps, HopSpec, LossSpec, PathSpec};
use longhaul_units::Nanos;

use crate::probes::{Passage, Probe, Probes};

/// What a hop does with a packet, in looks at an outage; a look at an outage or a delay step that comes again.
const HOP_WORK: usize = 32;
const REPEATED_WORK: usize = 4;
/// What random numbers cost: times at which a state or a delay changes, and a packet's jitter.
const RANDOM_TIMES_WORK: usize = 20;
const JITTER_WORK: usize = 10;

/// The work of sending a packet over `path` to the server, and that of sending one back, in looks at an outage, which take some ten nanoseconds; and
/// how many packets the first becomes on its way.
pub(crate) fn work(path: &PathSpec) -> ([f64; 2], f64) {
    let hosts = path.clients.len().max(1) + path.servers.len().max(1);
    // Which of all hops is next is looked for each time.
    let each = HOP_WORK + hosts + (path.forward.len() + path.backward.len()) / 2;
    let own = |hop: &HopSpec| {
        let outages = hop.outages.iter().map(|outage| if outage.every.is_some() { REPEATED_WORK } else { 1 });
        let steps = match &hop.delay_steps {
            DelaySteps::At(steps) => REPEATED_WORK * steps.iter().filter(|step| step.every.is_some()).count(),
            DelaySteps::Random { .. } => RANDOM_TIMES_WORK,
        };
        let loss = if matches!(hop.loss, LossSpec::Bursts(_)) { RANDOM_TIMES_WORK } else { 0 };
        let jitter = if hop.jitter.is_some() { JITTER_WORK } else { 0 };
        (each + outages.sum::<usize>() + steps + loss + jitter) as f64
    };
    // From the sender's host, over the hops, to the receiver's host.
    let way = |hops: &[HopSpec]| {
        let (work, copies) = hops.iter().fold((each as f64, 1.0), |(work, copies), hop| {
            (work + copies * own(hop), copies * (1.0 + hop.duplicate.0))
        });
        (work + copies * each as f64, copies)
    };
    let ((forward, copies), (backward, _)) = (way(&path.forward), way(&path.backward));
    ([forward, backward], copies)
}

/// Sends a probe of `frame_bytes` at each of `sent_ns` (ascending, any origin) over `path` and back, and says what came of it. One clock
/// stamps both ends; the responder takes no time. The path starts with the first probe.
///
/// Corrupted packets are lost, as a checksum would have it.
pub fn simulate(path: &PathSpec, sent_ns: &[i64], frame_bytes: u32, seed: u64) -> Probes {
    let options = Options { seed, segmentation: Segmentation::Wire, ..Options::default() };
    let mut run = Run {
        network: Network::new(path, options),
        server: PortId(path.clients.len().max(1) as u16),
        origin: sent_ns.first().copied().unwrap_or_default(),
        frame_bytes,
        rows: sent_ns.iter().map(|&sent_ns| Probe { sent_ns, ..Probe::default() }).collect(),
        latest: None,
    };
    for (index, &sent) in sent_ns.iter().enumerate() {
        let at = Nanos(sent.saturating_sub(run.origin).max(0) as u64);
        run.until(at);
        run.send(at, PortId(0), run.server, index as u64);
    }
    run.until(Nanos::MAX);
    Probes { rows: run.rows, frame_bytes, ..Probes::default() }
}

struct Run {
    network: Network,
    server: PortId,
    origin: i64,
    frame_bytes: u32,
    rows: Vec<Probe>,
    /// The latest probe that was answered.
    latest: Option<usize>,
}

impl Run {
    fn send(&mut self, at: Nanos, from: PortId, to: PortId, token: u64) {
        self.network.arrive(at, from, Destination::Port(to), frame(self.frame_bytes), token);
    }

    /// Does all that happens before `end`.
    fn until(&mut self, end: Nanos) {
        while let Some(at) = self.network.deadline().filter(|at| *at < end) {
            self.network.advance(at);
            while let Some(release) = self.network.release() {
                self.take(&release);
            }
            while self.network.lost().is_some() {}
        }
    }

    fn take(&mut self, release: &Release) {
        if release.corrupt.is_some() {
            return;
        }
        if release.port == self.server {
            return self.reflect(release);
        }
        let index = release.token as usize;
        let row = &mut self.rows[index];
        if row.rtt_ns.is_some() {
            row.copies = row.copies.saturating_add(1);
            return;
        }
        let since_sent = (release.due.0 as i64).saturating_sub(row.sent_ns.saturating_sub(self.origin)).max(0);
        row.rtt_ns = Some(since_sent as u64);
        row.backward_ns = row.forward_ns.map(|forward| since_sent.saturating_sub(forward));
        row.reordered = self.latest.is_some_and(|latest| latest > index);
        self.latest = self.latest.max(Some(index));
    }

    fn reflect(&mut self, release: &Release) {
        let row = &mut self.rows[release.token as usize];
        row.forward_ns.get_or_insert((release.due.0 as i64).saturating_sub(row.sent_ns.saturating_sub(self.origin)));
        self.send(release.due, self.server, PortId(0), release.token);
    }
}

fn frame(bytes: u32) -> Shape {
    Shape {
        segments: 1,
        header_bytes: bytes,
        segment_payload_bytes: 0,
        payload_bytes: 0,
        total_bytes: bytes,
        is_tunnel: false,
        cut_behind_bytes: 0,
    }
}

/// Sends packets of both directions over `path` at the times of `measured`, each of its size, and says when they came. What one direction brings
/// changes nothing of the other: they leave at their times.
pub fn simulate_ways(path: &PathSpec, measured: &[Vec<Passage>; 2], seed: u64) -> [Vec<Passage>; 2] {
    let options = Options { seed, segmentation: Segmentation::Wire, ..Options::default() };
    let mut network = Network::new(path, options);
    let server = PortId(path.clients.len().max(1) as u16);
    let origin = measured.iter().filter_map(|way| way.first()).map(|passage| passage.sent_ns).min().unwrap_or_default();
    let unsent = |passage: &Passage| Passage { delay_ns: None, reordered: false, ..*passage };
    let mut ways = measured.each_ref().map(|way| way.iter().map(unsent).collect::<Vec<_>>());
    let mut latest = [None::<usize>; 2];
    let mut until = |network: &mut Network, ways: &mut [Vec<Passage>; 2], end: Nanos| {
        while let Some(at) = network.deadline().filter(|at| *at < end) {
            network.advance(at);
            while let Some(release) = network.release() {
                if release.corrupt.is_some() {
                    continue;
                }
                let (way, index) = (usize::from(release.port != server), (release.token >> 1) as usize);
                let passage = &mut ways[way][index];
                let since_sent = (release.due.0 as i64).saturating_sub(passage.sent_ns.saturating_sub(origin)).max(0);
                if passage.delay_ns.replace(since_sent as f64).is_none() {
                    passage.reordered = latest[way].is_some_and(|latest| latest > index);
                    latest[way] = latest[way].max(Some(index));
                }
            }
            while network.lost().is_some() {}
        }
    };
    let mut order: Vec<(i64, usize, usize)> = (0..2)
        .flat_map(|way| measured[way].iter().enumerate().map(move |(index, passage)| (passage.sent_ns, way, index)))
        .collect();
    order.sort_unstable();
    for (sent_ns, way, index) in order {
        let at = Nanos(sent_ns.saturating_sub(origin).max(0) as u64);
        until(&mut network, &mut ways, at);
        let (from, to) = if way == 0 { (PortId(0), server) } else { (server, PortId(0)) };
        let shape = frame(measured[way][index].frame_bytes);
        network.arrive(at, from, Destination::Port(to), shape, (index as u64) << 1 | way as u64);
    }
    until(&mut network, &mut ways, Nanos::MAX);
    ways
}
