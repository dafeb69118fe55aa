//! Probes over a path in virtual time, by the code that the emulator runs.

use longhaul_path::network::{Destination, Network, Options, PortId, Release, Segmentation, Shape};
use longhaul_path::spec::PathSpec;
use longhaul_units::Nanos;

use crate::probes::{Probe, Probes};

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
    Probes { rows: run.rows, frame_bytes, notes: Vec::new() }
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
        let shape = Shape {
            segments: 1,
            header_bytes: self.frame_bytes,
            segment_payload_bytes: 0,
            payload_bytes: 0,
            total_bytes: self.frame_bytes,
            is_tunnel: false,
        };
        self.network.arrive(at, from, Destination::Port(to), shape, token);
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
        let since_sent = (release.due.0 as i64).saturating_sub(row.sent_ns - self.origin).max(0);
        row.rtt_ns = Some(since_sent as u64);
        row.backward_ns = row.forward_ns.map(|forward| since_sent - forward);
        row.reordered = self.latest.is_some_and(|latest| latest > index);
        self.latest = self.latest.max(Some(index));
    }

    fn reflect(&mut self, release: &Release) {
        let row = &mut self.rows[release.token as usize];
        row.forward_ns.get_or_insert((release.due.0 as i64).saturating_sub(row.sent_ns - self.origin));
        self.send(release.due, self.server, PortId(0), release.token);
    }
}
