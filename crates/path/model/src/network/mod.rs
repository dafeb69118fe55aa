//! A path in operation, in virtual time.
//!
//! [`Network::arrive`] takes frames, [`Network::advance`] moves the time forward, and [`Network::release`] returns runs of wire packets.
//! The network holds no payload: a frame is its [`Shape`] and a token of the caller.
//!
//! ```text
//! port 0 ─ up ─┐                                   ┌─ down ─ port 2
//!              ├─ forward hop 1 ─ … ─ forward hop n ┤
//! port 1 ─ up ─┘                                   └─ down ─ port 3      and mirrored for backward
//! ```
//!
//! Events are processed in order of time over all hops, so hosts that share a hop share one order of arrival.
//! A frame of many segments travels as *trains*: runs of its wire packets, each with its own fate and time.
//! A shared hop orders trains by their first packets: exact to the packet with [`Segmentation::Wire`], else to `batch_time`.

mod bursts;
mod chance;
mod coalesce;
mod counters;
mod frames;
mod jitter;
mod line;
mod policer;
mod server;
mod stage;
mod steps;
#[cfg(test)]
mod tests;
mod train;

use std::collections::VecDeque;

use longhaul_units::Nanos;
use longhaul_wire::Fragment;

use self::chance::mix;
pub use self::counters::HopCounters;
use self::frames::Frames;
pub use self::frames::Shape;
pub use self::jitter::jitter_correlation;
use self::line::Line;
use self::stage::Stage;
pub use self::train::Count;
use self::train::{To, Train};
use crate::spec::{HopSpec, HostSpec, PathEnd, PathSpec};

/// How long the release times in one run of packets may span unless told otherwise: what a NIC's interrupt moderation
/// does to arrivals anyway (ixgbe's default of 8000 interrupts a second is 125 µs; NLR Rings paper §3.4).
pub const DEFAULT_BATCH_TIME: Nanos = Nanos::from_micros(50);

/// The longest batch time: no interface moderates for longer, and what a run spans is kept in 32 bits of nanoseconds.
pub const BATCH_TIME_MAX: Nanos = Nanos::from_secs(1);

/// A host's place at the network: clients first, from 0, then servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortId(pub u16);

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To this port.
    Port(PortId),
    /// To every port but the sender's.
    All,
}

/// Whether packets that stay together may travel as one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Segmentation {
    /// They may.
    #[default]
    Auto,
    /// Each wire packet travels and is released alone.
    Wire,
}

/// How to run a path.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Same seed and same arrivals, same fate of every packet.
    pub seed: u64,
    /// How long the release times of one run may span; more than [`BATCH_TIME_MAX`] counts as that.
    pub batch_time: Nanos,
    /// Single packets or runs.
    pub segmentation: Segmentation,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, batch_time: DEFAULT_BATCH_TIME, segmentation: Segmentation::Auto }
    }
}

/// Packets `first .. first + count` of a frame, to be sent to `port` at `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// From whom.
    pub from: PortId,
    /// To whom.
    pub port: PortId,
    /// The frame's token.
    pub token: u64,
    /// The first packet of the run.
    pub first: u32,
    /// Packets in the run, at least 1.
    pub count: u32,
    /// Where the path flips a bit of it (always a run of one): a random number that picks the bit.
    pub corrupt: Option<u64>,
    /// The part of it that is to be sent, where hops cut it (always a run of one).
    pub fragment: Option<Fragment>,
    /// When its last packet leaves the path.
    pub due: Nanos,
    /// Nothing else is left of the frame: its payload is free after this.
    pub last: bool,
}

/// A packet that a hop's MTU does not carry, and whose sender is to be told. [`Network::tell`] takes it back.
#[derive(Debug)]
pub struct TooLong {
    /// Who sent it.
    pub from: PortId,
    /// The frame's token.
    pub token: u64,
    /// The packet of the frame.
    pub packet: u32,
    /// What the hop carries, bytes behind the Ethernet header.
    pub mtu_bytes: u32,
    frame: u32,
    stage: usize,
}

/// One hop as [`Network::hops`] shows it.
#[derive(Debug, Clone, Copy)]
pub struct HopView<'a> {
    /// Which hop it is.
    pub place: HopPlace,
    /// What it did.
    pub counters: &'a HopCounters,
    /// How long a packet that arrives now would wait in its queue.
    pub backlog: Nanos,
}

/// A hop's place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopPlace {
    /// From the host at this port towards the path.
    Up(PortId),
    /// From the path to the host at this port.
    Down(PortId),
    /// The i-th shared hop from client to server, from 0.
    Forward(usize),
    /// The i-th shared hop from server to client, from 0.
    Backward(usize),
}

/// A path in operation.
#[derive(Debug)]
pub struct Network {
    ports: Vec<Port>,
    stages: Vec<Stage>,
    places: Vec<HopPlace>,
    /// Of each stage: when something next happens in it.
    heads: Vec<Nanos>,
    /// Of each stage: the shortest time from its end to a host.
    tails: Vec<Nanos>,
    frames: Frames,
    /// Trains that have reached their hosts, by the time of their last packet.
    egress: Line,
    too_long: VecDeque<TooLong>,
    now: Nanos,
    options: Options,
}

#[derive(Debug)]
struct Port {
    end: PathEnd,
    up: usize,
    down: usize,
    last_arrival: Nanos,
}

impl Network {
    /// The network of `path`, at virtual time 0.
    pub fn new(path: &PathSpec, options: Options) -> Self {
        let mut network = Self {
            ports: Vec::new(),
            stages: Vec::new(),
            places: Vec::new(),
            heads: Vec::new(),
            tails: Vec::new(),
            frames: Frames::default(),
            egress: Line::default(),
            too_long: VecDeque::new(),
            now: Nanos::ZERO,
            options: Options { batch_time: options.batch_time.min(BATCH_TIME_MAX), ..options },
        };
        for (place, spec) in layout(path) {
            let at = network.stages.len();
            match place {
                HopPlace::Up(PortId(port)) => network.ports.push(Port {
                    end: if usize::from(port) < path.clients.len().max(1) { PathEnd::Client } else { PathEnd::Server },
                    up: at,
                    down: 0,
                    last_arrival: Nanos::ZERO,
                }),
                HopPlace::Down(PortId(port)) => network.ports[usize::from(port)].down = at,
                HopPlace::Forward(_) | HopPlace::Backward(_) => (),
            }
            network.stages.push(Stage::new(spec, mix(options.seed) ^ stream(place)));
            network.places.push(place);
        }
        network.heads = vec![Nanos::MAX; network.stages.len()];
        network.measure_tails();
        network
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// The end of the path at which `port` is.
    pub fn end_of(&self, port: PortId) -> PathEnd {
        self.ports[usize::from(port.0)].end
    }

    /// A frame of `shape` comes from the host at `from` at time `at`; what has passed already counts as now.
    ///
    /// `token` comes back with every release of the frame, or by [`Network::lost`] where all of it was lost.
    /// Frames of one port arrive in the order of the calls, whatever their times say.
    pub fn arrive(&mut self, at: Nanos, from: PortId, to: Destination, shape: Shape, token: u64) {
        let port = &mut self.ports[usize::from(from.0)];
        let at = at.max(self.now).max(port.last_arrival);
        port.last_arrival = at;
        let frame = self.frames.insert(shape, from.0, token);
        let to = match to {
            Destination::Port(port) => To::Port(port.0),
            Destination::All => To::All,
        };
        let up = port.up;
        let single = self.options.segmentation == Segmentation::Wire;
        let (trains, count) = if single { (shape.segments, 1) } else { (1, shape.segments) };
        for first in 0..trains {
            // One train more than the frame came with: the surplus is given back below.
            self.frames.became(frame, 2);
            let train = Train {
                frame,
                first,
                count,
                from: from.0,
                to,
                corrupt: None,
                fragment: None,
                start: at,
                offsets: Vec::new(),
            };
            self.accept(up, train);
        }
        self.frames.became_or_lost(frame, 0);
    }

    /// Moves everything that is due until `now`. Time that falls counts as standing still.
    pub fn advance(&mut self, now: Nanos) {
        while let Some((stage, head)) = self.earliest()
            && head <= now
        {
            self.now = self.now.max(head);
            if let Some(train) = self.stages[stage].step(head, &mut self.frames) {
                self.route(stage, train);
            }
            self.heads[stage] = self.stages[stage].next_event().unwrap_or(Nanos::MAX);
        }
        self.now = self.now.max(now);
    }

    /// The stage in which something happens first, and when.
    fn earliest(&self) -> Option<(usize, Nanos)> {
        // A few hops: a scan over their times beats keeping them sorted.
        let (stage, &head) = self.heads.iter().enumerate().min_by_key(|&(_, &head)| head)?;
        (head != Nanos::MAX).then_some((stage, head))
    }

    /// The next run of packets that is due by the time of the last [`Network::advance`], in order of due times.
    pub fn release(&mut self) -> Option<Release> {
        if self.egress.head()? > self.now {
            return None;
        }
        let (end, train) = self.egress.pop()?;
        let To::Port(port) = train.to else { unreachable!("only trains to a port leave") };
        Some(Release {
            from: PortId(train.from),
            port: PortId(port),
            token: self.frames.token(train.frame),
            first: train.first,
            count: train.count,
            corrupt: train.corrupt,
            fragment: train.fragment,
            due: end,
            last: self.frames.became(train.frame, 0),
        })
    }

    /// Sender and token of a frame that was lost whole, or whose last packets were lost after others were released.
    pub fn lost(&mut self) -> Option<(PortId, u64)> {
        self.frames.pop_lost().map(|(port, token)| (PortId(port), token))
    }

    /// The next packet that met too small an MTU, in order of time. Its frame stays until [`Network::tell`].
    pub fn too_long(&mut self) -> Option<TooLong> {
        self.too_long.pop_front()
    }

    /// Sends a frame with `shape` and `token` to the sender of `packet`, from the hop that dropped it and from now on: over as many of the
    /// last hops of the other direction as the packet has passed. `None`: nobody is told.
    pub fn tell(&mut self, packet: TooLong, message: Option<(Shape, u64)>) {
        self.frames.became_or_lost(packet.frame, 0);
        let Some((shape, token)) = message else { return };
        let from = packet.from.0;
        let frame = self.frames.insert(shape, from, token);
        let train = Train {
            frame,
            first: 0,
            count: shape.segments,
            from,
            to: To::Port(from),
            corrupt: None,
            fragment: None,
            start: self.now,
            offsets: Vec::new(),
        };
        self.accept(self.way_back(packet.stage, from), train);
    }

    /// The first hop from the hop `stage` back to the host at port `to`.
    fn way_back(&self, stage: usize, to: u16) -> usize {
        let last = |passed: usize, back: fn(usize) -> HopPlace| {
            let place = |i: usize| self.places.iter().position(|place| *place == back(i));
            let hops = (0..).take_while(|i| place(*i).is_some()).count();
            if passed == 0 { None } else { place(hops.saturating_sub(passed)) }
        };
        let shared = match self.places[stage] {
            HopPlace::Forward(passed) => last(passed, HopPlace::Backward),
            HopPlace::Backward(passed) => last(passed, HopPlace::Forward),
            HopPlace::Up(_) | HopPlace::Down(_) => None,
        };
        shared.unwrap_or(self.ports[usize::from(to)].down)
    }

    /// No packet is due before this time; `None` while nothing is in flight. A lower bound: there may be none then.
    pub fn deadline(&self) -> Option<Nanos> {
        let egress = self.egress.head().unwrap_or(Nanos::MAX);
        let stages = self.heads.iter().zip(&self.tails).map(|(head, tail)| head.saturating_add(*tail));
        stages.chain([egress]).min().filter(|&at| at != Nanos::MAX)
    }

    /// No packet that arrives now is due before this time has passed.
    pub fn shortest_transit(&self) -> Nanos {
        let ups = self.ports.iter().map(|port| self.stages[port.up].shortest_delay() + self.tails[port.up]);
        let across = ups.min().unwrap_or(Nanos::ZERO);
        if !self.stages.iter().any(|stage| stage.spec.mtu.is_some_and(|mtu| mtu.icmp)) {
            return across;
        }
        // The first hop may send a message back at once.
        let back = |port: &Port| self.stages[port.up].shortest_delay() + self.stages[port.down].shortest_delay();
        self.ports.iter().map(back).min().unwrap_or(Nanos::ZERO).min(across)
    }

    /// Changes the running network to `path` where both differ. Packets in a hop keep their fates and times.
    ///
    /// `path` has the hosts and the number of hops that the network was made with.
    pub fn update(&mut self, path: &PathSpec) {
        for (stage, (_, spec)) in layout(path).into_iter().enumerate() {
            if self.stages[stage].spec != spec {
                self.stages[stage].change(spec);
                self.heads[stage] = self.stages[stage].next_event().unwrap_or(Nanos::MAX);
            }
        }
        self.measure_tails();
    }

    /// All hops: for each port its way up and down, then those forward, then those backward.
    pub fn hops(&self) -> impl Iterator<Item = HopView<'_>> {
        self.places.iter().zip(&self.stages).map(|(&place, stage)| HopView {
            place,
            counters: &stage.counters,
            backlog: stage.backlog(self.now),
        })
    }

    /// Frames with packets in flight.
    #[cfg(test)]
    fn frames_in_flight(&self) -> usize {
        self.frames.in_flight()
    }

    /// Gives `train` to a stage, at the train's time.
    fn accept(&mut self, stage: usize, train: Train) {
        let (frame, from) = (train.frame, PortId(train.from));
        if let Some(packet) = self.stages[stage].accept(train, &mut self.frames, self.options.batch_time) {
            let (token, mtu) = (self.frames.token(frame), self.stages[stage].spec.mtu);
            let mtu_bytes = mtu.map_or(0, |mtu| mtu.bytes);
            self.too_long.push_back(TooLong { from, token, packet, mtu_bytes, frame, stage });
        }
        self.heads[stage] = self.stages[stage].next_event().unwrap_or(Nanos::MAX);
    }

    /// Takes a train that leaves `stage` to the next one, or out.
    fn route(&mut self, stage: usize, mut train: Train) {
        let departed = &mut self.stages[stage].counters.departed;
        departed.packets += u64::from(train.count);
        departed.bytes += train.wire_bytes(self.frames.shape(train.frame));
        let shared = match self.places[stage] {
            HopPlace::Down(_) => {
                self.egress.push(train.end(), train);
                return;
            }
            HopPlace::Up(from) => {
                let end = self.end_of(from);
                if train.to == To::All {
                    self.deliver_copies(&train, end);
                    train.to = To::FarEnd;
                }
                match train.to {
                    To::Port(to) if self.end_of(PortId(to)) == end => None,
                    _ => self.first_shared(end),
                }
            }
            HopPlace::Forward(_) | HopPlace::Backward(_) => self.next_shared(stage),
        };
        match (shared, train.to) {
            (Some(next), _) => self.accept(next, train),
            (None, To::Port(to)) => self.accept(self.ports[usize::from(to)].down, train),
            (None, To::FarEnd | To::All) => {
                let far = match self.end_of(PortId(train.from)) {
                    PathEnd::Client => PathEnd::Server,
                    PathEnd::Server => PathEnd::Client,
                };
                self.deliver_copies(&train, far);
                self.frames.became_or_lost(train.frame, 0);
            }
        }
    }

    /// Gives a copy of `train` to the last hop towards each host at `end` but the sender.
    fn deliver_copies(&mut self, train: &Train, end: PathEnd) {
        for port in 0..self.ports.len() as u16 {
            if port != train.from && self.end_of(PortId(port)) == end {
                self.frames.became(train.frame, 2);
                let copy = Train { to: To::Port(port), ..train.clone() };
                self.accept(self.ports[usize::from(port)].down, copy);
            }
        }
    }

    /// The first shared hop for what comes from `end`.
    fn first_shared(&self, end: PathEnd) -> Option<usize> {
        let first = match end {
            PathEnd::Client => HopPlace::Forward(0),
            PathEnd::Server => HopPlace::Backward(0),
        };
        self.places.iter().position(|&place| place == first)
    }

    /// The shared hop behind the shared hop `stage`.
    fn next_shared(&self, stage: usize) -> Option<usize> {
        match (self.places[stage], self.places.get(stage + 1)) {
            (HopPlace::Forward(_), Some(HopPlace::Forward(_)))
            | (HopPlace::Backward(_), Some(HopPlace::Backward(_))) => Some(stage + 1),
            _ => None,
        }
    }

    fn measure_tails(&mut self) {
        let down = |network: &Self, end: PathEnd| {
            let ports = network.ports.iter().filter(|port| port.end == end);
            ports.map(|port| network.stages[port.down].shortest_delay()).min().unwrap_or(Nanos::ZERO)
        };
        let (down_client, down_server) = (down(self, PathEnd::Client), down(self, PathEnd::Server));
        self.tails = vec![Nanos::ZERO; self.stages.len()];
        // Shared hops follow the ports' hops in travelling order, so each tail follows from the next hop's.
        for stage in (0..self.stages.len()).rev() {
            self.tails[stage] = match self.places[stage] {
                HopPlace::Down(_) => Nanos::ZERO,
                HopPlace::Forward(_) | HopPlace::Backward(_) => match self.next_shared(stage) {
                    Some(next) => self.tails[next] + self.stages[next].shortest_delay(),
                    None if matches!(self.places[stage], HopPlace::Forward(_)) => down_server,
                    None => down_client,
                },
                HopPlace::Up(from) => {
                    let end = self.end_of(from);
                    let (near, far) = match end {
                        PathEnd::Client => (down_client, down_server),
                        PathEnd::Server => (down_server, down_client),
                    };
                    let across = match self.first_shared(end) {
                        Some(next) => self.tails[next] + self.stages[next].shortest_delay(),
                        None => far,
                    };
                    let neighbours = self.ports.iter().filter(|port| port.end == end).count() > 1;
                    if neighbours { across.min(near) } else { across }
                }
            };
        }
    }
}

/// The hops of `path` in the order in which a network keeps them.
fn layout(path: &PathSpec) -> Vec<(HopPlace, HopSpec)> {
    let default = [HostSpec::default()];
    let hosts_of = |hosts: &[HostSpec]| if hosts.is_empty() { default.to_vec() } else { hosts.to_vec() };
    let hosts = hosts_of(&path.clients).into_iter().chain(hosts_of(&path.servers));
    let mut hops = Vec::new();
    for (port, host) in (0..).map(PortId).zip(hosts) {
        let access = HopSpec {
            name: None,
            queue: host.queue,
            rate: path.access_rate(&host),
            delay: host.delay,
            ..HopSpec::default()
        };
        hops.push((HopPlace::Up(port), access.clone()));
        hops.push((HopPlace::Down(port), access));
    }
    hops.extend(path.forward.iter().cloned().enumerate().map(|(i, hop)| (HopPlace::Forward(i), hop)));
    hops.extend(path.backward.iter().cloned().enumerate().map(|(i, hop)| (HopPlace::Backward(i), hop)));
    hops
}

/// A number that names a hop's random numbers.
fn stream(place: HopPlace) -> u64 {
    let (kind, number) = match place {
        HopPlace::Up(port) => (1, port.0.into()),
        HopPlace::Down(port) => (2, port.0.into()),
        HopPlace::Forward(i) => (3, i as u64),
        HopPlace::Backward(i) => (4, i as u64),
    };
    mix((kind << 32) + number)
}
