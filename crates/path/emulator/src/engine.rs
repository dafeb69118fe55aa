//! The loop that keeps a path in step with the clock.
//!
//! Arrivals carry the kernel's time stamps, so a packet that waited to be read is not late if it leaves on time. A round receives
//! the waiting packets, advances the model to now, and sends the packets that are due. Then the thread sleeps until the model's next
//! deadline or the next arrival.
//!
//! Where packets are due faster than they can be sent, they would pile up in memory, ever later. So the model's clock stands still
//! for as much as the thread stays behind: arrivals then follow each other faster by that clock, and the path's own queues fill and drop
//! as they would on a slower path. The status says for how long it stood.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use longhaul_kernel::clock::{RealtimeOffset, monotonic, realtime_offset, thread_cpu_time};
use longhaul_kernel::memory::{Available, MemoryError, available};
use longhaul_kernel::wait::{Poller, sleep_until};
use longhaul_path::network::{HopPlace, Network, Options, PortId, Release};
use longhaul_path::spec::{Direction, PathEnd, PathSpec};
use longhaul_units::{Bytes, Nanos, TimeHistogram};
use longhaul_wire::icmp::packet_too_big;
use longhaul_wire::{Segmenter, VnetHeader};

use crate::payload::{Block, Store};
use crate::port::{Port, PortError, Reception};
use crate::sizing::payload_bytes;
use crate::status::{HopStatus, MemoryStatus, Status};
use crate::switch::Switch;
use crate::waker::WakeSource;

/// Frames taken from one port before the others get their turn.
const RECEIVE_BUDGET: usize = 64;
/// Runs sent before arrivals are looked for again, lest the receive buffers overflow.
const SEND_BUDGET: usize = 64;
/// A deadline this near is waited for without sleeping: falling asleep takes about as long.
const SPIN: Nanos = Nanos::from_micros(5);
/// The thread rises early by what waking up takes, but no earlier than this: a machine that is later has no CPU to spare.
const RISE_EARLY_MOST: Nanos = Nanos::from_micros(120);
/// While frames come in numbers the thread sleeps for a while without listening for more, where the path's delay allows
/// it: to be woken by every frame would cost the senders more than the reading costs us.
const LAZY_MOST: Nanos = Nanos::from_micros(200);
/// Frames in one round from which on traffic counts as dense.
const DENSE_FRAMES: usize = 4;
/// How long a real-time thread that always has something to do rests at a time. The kernel lets such threads have 95 % of a CPU
/// and takes the rest at once, as 50 ms in each second; in short rests the same makes packets late by microseconds.
const REST: Nanos = Nanos::from_micros(25);
/// How often an interface that was removed is looked for.
const REOPEN_INTERVAL: Nanos = Nanos::from_millis(100);
/// How often the wall clock is compared with the model's. Arrivals during a step of it count as now, so this need not be often.
const OFFSET_INTERVAL: Nanos = Nanos::from_millis(100);
/// A thread that was behind for so long without a break cannot keep up. One that waited for a CPU has caught up by then.
const BEHIND_MOST: Nanos = Nanos::from_millis(50);
/// How late packets may be when more are due than can be sent: the time of one turn of sending and receiving, and a little more.
const LATE_WHILE_BEHIND: Nanos = Nanos::from_millis(5);
/// How often a port whose send buffer was full is tried.
const BLOCKED_INTERVAL: Nanos = Nanos::from_micros(50);
/// The key of the waker among the ports' at the poller.
const WAKER_KEY: u64 = u64::MAX;

/// How to run an emulator.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// For the model.
    pub network: Options,
    /// Payload memory for both ends at most; `None`: half of what is available.
    pub memory_bound: Option<Bytes>,
    /// Never sleep.
    pub spin: bool,
    /// Wake up at most once in this time, so that packets leave late by up to that and the time that waking takes; 0: as exactly as the thread can.
    pub wake_interval: Nanos,
}

/// An interface and the host behind it.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Its name in the network namespace of the calling thread.
    pub interface: String,
    /// What the host is called.
    pub host: String,
    /// The host's MAC address, where it is known beforehand: what is for it then goes to no other.
    pub mac: Option<[u8; 6]>,
}

/// Why an emulator cannot start, or not change as asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An interface.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Not as many interfaces as the path has hosts.
    #[error("the path has {hosts} hosts, {interfaces} interfaces are given")]
    Hosts {
        /// Hosts of the path.
        hosts: usize,
        /// Interfaces.
        interfaces: usize,
    },
    /// `--memory` is too small.
    #[error(
        "the path needs {needed} of payload memory (rate × delay and queues, both directions), --memory allows {bound}"
    )]
    MemoryBound {
        /// What it takes.
        needed: Bytes,
        /// What is allowed.
        bound: Bytes,
    },
    /// A few lines of a path file are no reason to take the memory that other programs of the machine will need.
    #[error(
        "the path needs {needed} of payload memory (rate × delay and queues, both directions), more than half of the \
         {available} that it may take ({limit}); start it with --memory {needed} to allow that, or make it shorter or \
         slower, or its queues smaller"
    )]
    MostOfMemory {
        /// What it takes.
        needed: Bytes,
        /// What is available, with what the path has already.
        available: Bytes,
        /// What sets the limit: the machine's memory or a control group.
        limit: &'static str,
    },
    /// The machine has too little.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A change to another number of hosts or hops.
    #[error("a running path keeps its hosts and hops; take it down and up again to change them")]
    Layout,
    /// The kernel lacks something.
    #[error("cannot wait for packets: {0}")]
    Poll(#[from] std::io::Error),
}

/// What a running emulator can be asked.
#[derive(Debug)]
pub enum Command {
    /// How it does.
    Status(Sender<Box<Status>>),
    /// Bytes of payload memory that it lacks for this path, for frames from clients and from servers, where so much may still be taken.
    Lacks(Box<PathSpec>, Available, Sender<Result<[usize; 2], EngineError>>),
    /// To become what this path says with this memory besides, losing nothing in flight. [`Command::Lacks`] has said that it
    /// can.
    Update(Box<PathSpec>, [Option<Block>; 2], Sender<()>),
    /// To end, with a last status.
    Stop(Sender<Box<Status>>),
}

/// A path between interfaces, in real time. It stays in the thread that made it.
#[derive(Debug)]
pub struct Engine {
    path: PathSpec,
    options: EngineOptions,
    network: Network,
    ports: Vec<Port>,
    ends: Vec<PathEnd>,
    switch: Switch,
    /// Payload from the clients and from the servers.
    stores: [Store; 2],
    poller: Poller,
    began: Nanos,
    /// The model's time 0; later than the beginning by as long as its clock stood still.
    started: Nanos,
    /// Since when more has always been due than was sent.
    behind_since: Option<Nanos>,
    /// How late the last packet was that was sent in this round, or waits for its port.
    late: Nanos,
    offset: RealtimeOffset,
    offset_until: Nanos,
    /// Until the first moment at which what arrives now can be due.
    shortest_transit: Nanos,
    lateness: TimeHistogram,
    reopen_at: Nanos,
    oversleep: Oversleep,
    /// How long the thread may go without a rest.
    restless: Nanos,
    rested_at: Nanos,
    /// CPU time of the thread before the first packet: most of it went into clearing memory.
    cpu_before: Nanos,
    /// A wire packet that a message quotes.
    whole: Vec<u8>,
    sleeps: u64,
    rounds: u64,
}

/// How late the kernel wakes the thread, as mean and mean deviation (in the manner of RFC 6298 §2).
#[derive(Debug, Default)]
struct Oversleep {
    mean: i64,
    deviation: i64,
}

impl Oversleep {
    fn learn(&mut self, late: Nanos) {
        // One long wait for a CPU says nothing of the next.
        let late = late.0.min(RISE_EARLY_MOST.0) as i64;
        self.deviation += ((late - self.mean).abs() - self.deviation) / 8;
        self.mean += (late - self.mean) / 8;
    }

    /// How much earlier than the deadline to be woken.
    fn margin(&self) -> Nanos {
        Nanos((self.mean + 2 * self.deviation).max(0) as u64).clamp(SPIN, RISE_EARLY_MOST)
    }
}

impl Engine {
    /// An emulator of `path` between `attachments`: its clients', then its servers' interfaces.
    ///
    /// # Errors
    /// Where an interface or the memory is not to be had.
    pub fn new(path: PathSpec, attachments: &[Attachment], options: EngineOptions) -> Result<Self, EngineError> {
        let network = Network::new(&path, options.network);
        if network.ports() != attachments.len() {
            return Err(EngineError::Hosts { hosts: network.ports(), interfaces: attachments.len() });
        }
        let [clients, servers] = required(&path, &options, available(), 0)?;
        let stores = [Store::new(clients)?, Store::new(servers)?];
        let ports = attachments
            .iter()
            .map(|at| Port::open(&at.interface, &at.host, options.network.segmentation))
            .collect::<Result<Vec<_>, _>>()?;
        let poller = Poller::new()?;
        for (key, port) in (0..).zip(&ports) {
            if let Some(socket) = port.socket() {
                poller.add(socket, key)?;
            }
        }
        let began = monotonic();
        Ok(Self {
            switch: Switch::new(attachments.iter().map(|at| at.mac)),
            ends: (0..ports.len() as u16).map(|port| network.end_of(PortId(port))).collect(),
            shortest_transit: network.shortest_transit(),
            path,
            options,
            network,
            ports,
            stores,
            poller,
            began,
            started: began,
            behind_since: None,
            late: Nanos::ZERO,
            offset: realtime_offset(),
            offset_until: Nanos::ZERO,
            lateness: TimeHistogram::default(),
            reopen_at: Nanos::ZERO,
            oversleep: Oversleep::default(),
            restless: Nanos::MAX,
            rested_at: Nanos::ZERO,
            cpu_before: thread_cpu_time(),
            whole: Vec::new(),
            sleeps: 0,
            rounds: 0,
        })
    }

    /// Has the thread take no more than this share of a CPU's time, 0 to 1, by resting often.
    pub fn limit_to(&mut self, share: f64) {
        // A tenth less, as rests end late and other threads of the kernel's have a part of the share.
        let restless = REST.0 as f64 * share / (1.0 - share) * 0.9;
        self.restless = if share < 1.0 { Nanos(restless as u64) } else { Nanos::MAX };
    }

    /// Runs until a [`Command::Stop`] comes or `commands` has no sender left. `waker` is rung with each command.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn run(&mut self, commands: &Receiver<Command>, waker: &WakeSource) -> Result<(), EngineError> {
        self.poller.add(waker, WAKER_KEY)?;
        loop {
            self.rounds += 1;
            if waker.take() {
                loop {
                    match commands.try_recv() {
                        Ok(Command::Status(reply)) => drop(reply.send(Box::new(self.status()))),
                        Ok(Command::Lacks(path, free, reply)) => drop(reply.send(self.lacks(&path, free))),
                        Ok(Command::Update(path, memory, reply)) => {
                            self.update(*path, memory);
                            let _ = reply.send(());
                        }
                        Ok(Command::Stop(reply)) => {
                            drop(reply.send(Box::new(self.status())));
                            return Ok(());
                        }
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return Ok(()),
                    }
                }
            }
            let (received, horizon) = self.receive();
            self.network.advance(horizon);
            self.tell_of_long_packets();
            let done = self.send();
            self.keep_house();
            self.keep_pace(done && received < RECEIVE_BUDGET);
            if done && received < RECEIVE_BUDGET && !self.options.spin {
                self.wait(received, waker)?;
            }
            self.rest();
        }
    }

    /// Gives the CPU away for a moment where it was kept for long.
    fn rest(&mut self) {
        let now = self.now();
        if now.saturating_sub(self.rested_at) > self.restless {
            self.sleeps += 1;
            sleep_until(now + REST + self.started);
            self.rested_at = self.now();
        }
    }

    /// Has the model's clock stand still where the thread cannot keep up with it. `caught_up`: nothing is due or waits to be read.
    fn keep_pace(&mut self, caught_up: bool) {
        if caught_up && self.ports.iter().all(|port| port.first_blocked().is_none()) {
            self.behind_since = None;
            return;
        }
        let now = monotonic();
        let since = *self.behind_since.get_or_insert(now);
        if now.saturating_sub(since) > BEHIND_MOST && self.late > LATE_WHILE_BEHIND {
            let stood = self.late - LATE_WHILE_BEHIND;
            self.started += stood;
            // The thread has worked meanwhile: it rests as often as before.
            self.rested_at = self.rested_at.saturating_sub(stood);
        }
    }

    /// Takes in what has arrived. Returns how many frames at most came from one port, and the time up to which all
    /// arrivals are known, in the model's time.
    fn receive(&mut self) -> (usize, Nanos) {
        let mut now = monotonic();
        if now >= self.offset_until {
            self.offset = realtime_offset();
            self.offset_until = now + OFFSET_INTERVAL;
        }
        let mut horizon = now.saturating_sub(self.started);
        let mut most = 0;
        for (index, port) in (0..).map(PortId).zip(&mut self.ports) {
            let end = self.ends[usize::from(index.0)];
            let store = &mut self.stores[end as usize];
            let mut taken = 0;
            while taken < RECEIVE_BUDGET {
                let arrival = match port.receive(store) {
                    Reception::Empty => break,
                    Reception::Lost => {
                        taken += 1;
                        continue;
                    }
                    Reception::Frame(arrival) => arrival,
                };
                taken += 1;
                let at = arrived_at(arrival.stamp, self.offset, &mut now).saturating_sub(self.started);
                if taken == RECEIVE_BUDGET {
                    // More may wait: nothing is known of what came after this one.
                    horizon = horizon.min(at);
                }
                let (stored, frame) = store.frame(arrival.token);
                match self.switch.destination(frame, index) {
                    Some(to) => self.network.arrive(at, index, to, stored.segmenter.shape(), arrival.token),
                    None => store.free(arrival.token),
                }
            }
            most = most.max(taken);
        }
        (most, horizon)
    }

    /// Puts the messages of hops to the senders of packets above an MTU onto their way.
    fn tell_of_long_packets(&mut self) {
        while let Some(packet) = self.network.too_long() {
            let store = &mut self.stores[self.ends[usize::from(packet.from.0)] as usize];
            let (stored, frame) = store.frame(packet.token);
            let segmenter = stored.segmenter;
            let message = segmenter.segment_whole(frame, packet.packet, &mut self.whole).ok().and_then(|_| {
                let message = packet_too_big(&self.whole, packet.mtu_bytes)?;
                let segmenter = Segmenter::new(&message, message.len(), VnetHeader::default()).ok()?;
                // Where the store is full, nobody is told of this one.
                store.room(message.len())?[..message.len()].copy_from_slice(&message);
                Some((segmenter.shape(), store.keep(0, message.len(), segmenter)))
            });
            self.network.tell(packet, message);
        }
    }

    /// Sends what is due. Says whether that was all.
    fn send(&mut self) -> bool {
        self.late = Nanos::ZERO;
        for port in 0..self.ports.len() {
            while let Some(release) = self.ports[port].first_blocked() {
                self.late = self.now().saturating_sub(release.due);
                if !self.transmit(release) {
                    break;
                }
                self.lateness.record(self.late, 1);
                self.ports[port].unblock();
                self.store_of(release).free(release.token);
            }
        }
        for _ in 0..SEND_BUDGET {
            let Some(release) = self.network.release() else {
                return true;
            };
            let late = self.now().saturating_sub(release.due);
            let port = usize::from(release.port.0);
            if self.ports[port].first_blocked().is_some() || !self.transmit(release) {
                self.store_of(release).hold(release.token);
                self.ports[port].block(release);
            } else {
                self.lateness.record(late, 1);
                self.late = self.late.max(late);
            }
            if release.last {
                self.store_of(release).free(release.token);
            }
        }
        false
    }

    /// Sends `release`. Says whether that is done, rather than to be tried again when the port has room.
    fn transmit(&mut self, release: Release) -> bool {
        let store = &self.stores[self.ends[usize::from(release.from.0)] as usize];
        self.ports[usize::from(release.port.0)].send(release, store)
    }

    /// Where the frame of `release` lies.
    fn store_of(&mut self, release: Release) -> &mut Store {
        &mut self.stores[self.ends[usize::from(release.from.0)] as usize]
    }

    /// Frees what the path lost, and looks after interfaces that were removed.
    fn keep_house(&mut self) {
        while let Some((from, token)) = self.network.lost() {
            self.stores[self.ends[usize::from(from.0)] as usize].free(token);
        }
        let now = monotonic();
        if now < self.reopen_at {
            return;
        }
        self.reopen_at = now + REOPEN_INTERVAL;
        for (key, port) in (0..).zip(&mut self.ports) {
            port.check();
            if !port.status.up
                && port.reopen()
                && let Some(socket) = port.socket()
            {
                // It can only fail for want of memory; the port is then served in each round, but wakes nobody.
                let _ = self.poller.add(socket, key);
            }
        }
    }

    /// Sleeps until something is to be done. `received` frames came with the last round.
    fn wait(&mut self, received: usize, waker: &WakeSource) -> Result<(), EngineError> {
        let now = self.now();
        let interval = self.options.wake_interval;
        let mut until = match self.network.deadline() {
            Some(deadline) if interval > Nanos::ZERO => deadline.max(now + interval),
            Some(deadline) => deadline.saturating_sub(self.oversleep.margin()),
            None => Nanos::MAX,
        };
        if self.ports.iter().any(|port| port.first_blocked().is_some()) {
            until = until.min(now + BLOCKED_INTERVAL);
        }
        if self.ports.iter().any(|port| !port.status.up) {
            until = until.min(now + REOPEN_INTERVAL);
        }
        if until <= now + SPIN {
            return Ok(());
        }
        self.sleeps += 1;
        // What is read late may leave late by as much as packets may.
        let lazy = Nanos(self.shortest_transit.0 / 2).min(LAZY_MOST).max(interval);
        let dense = if interval > Nanos::ZERO { 1 } else { DENSE_FRAMES };
        if received >= dense && lazy > SPIN {
            until = until.min(now + lazy);
            sleep_until(until + self.started);
        } else {
            let deadline = (until != Nanos::MAX).then(|| until + self.started);
            // Which port woke us does not matter: a round looks at everything.
            if self.poller.wait(deadline)?.any(|key| key == WAKER_KEY) {
                waker.clear();
            }
        }
        let woken = self.now();
        if woken >= now + REST {
            self.rested_at = woken;
        }
        if woken >= until {
            self.oversleep.learn(woken - until);
        }
        Ok(())
    }

    fn lacks(&self, path: &PathSpec, free: Available) -> Result<[usize; 2], EngineError> {
        let same = |a: &PathSpec, b: &PathSpec| {
            // An end without hosts has one by default, and a change of that one's access puts it into the path.
            let layout =
                |p: &PathSpec| [p.clients.len().max(1), p.servers.len().max(1), p.forward.len(), p.backward.len()];
            layout(a) == layout(b)
        };
        if !same(&self.path, path) {
            return Err(EngineError::Layout);
        }
        let held = self.stores.iter().map(Store::capacity_bytes).sum();
        let [clients, servers] = required(path, &self.options, free, held)?;
        let lacks = |end: PathEnd, bytes: usize| bytes.saturating_sub(self.stores[end as usize].capacity_bytes());
        Ok([lacks(PathEnd::Client, clients), lacks(PathEnd::Server, servers)])
    }

    fn update(&mut self, path: PathSpec, memory: [Option<Block>; 2]) {
        for (store, block) in self.stores.iter_mut().zip(memory) {
            block.into_iter().for_each(|block| store.grow(block));
        }
        self.network.update(&path);
        self.shortest_transit = self.network.shortest_transit();
        self.path = path;
    }

    /// How the emulator does.
    pub fn status(&self) -> Status {
        let ports: Vec<_> = self.ports.iter().map(Port::status).collect();
        let mut own_fault = crate::status::OwnFault::default();
        for port in &ports {
            own_fault.receive_overflow_frames += port.own_fault.receive_overflow_frames;
            own_fault.memory_full_frames += port.own_fault.memory_full_frames;
            own_fault.oversized_frames += port.own_fault.oversized_frames;
            own_fault.send_error_packets += port.own_fault.send_error_packets;
        }
        Status {
            uptime_ns: monotonic().saturating_sub(self.began).0,
            clock_stood_ns: self.started.saturating_sub(self.began).0,
            lateness: self.lateness.quantiles(),
            own_fault,
            far_port_full_packets: ports.iter().map(|port| port.far_port_full_packets).sum(),
            hops: self
                .network
                .hops()
                .zip(self.hop_names())
                .map(|(hop, name)| HopStatus {
                    name,
                    backlog_ns: hop.backlog.0,
                    held_packets: hop.counters.held_packets(),
                    counters: *hop.counters,
                })
                .collect(),
            ports,
            memory: self
                .stores
                .iter()
                .map(|store| MemoryStatus {
                    capacity_bytes: store.capacity_bytes() as u64,
                    used_bytes: store.used_bytes() as u64,
                    peak_bytes: store.peak_bytes() as u64,
                })
                .collect(),
            cpu_ns: thread_cpu_time().saturating_sub(self.cpu_before).0,
            sleeps: self.sleeps,
            rounds: self.rounds,
        }
    }

    /// Names of the hops in the order of [`Network::hops`], such as `client.up` and `forward.hop1`.
    fn hop_names(&self) -> Vec<String> {
        let host = |port: PortId| &self.ports[usize::from(port.0)].status.host;
        let [forward, backward] = Direction::BOTH.map(|direction| self.path.hop_names(direction));
        let name = |place: HopPlace| match place {
            HopPlace::Up(port) => format!("{}.up", host(port)),
            HopPlace::Down(port) => format!("{}.down", host(port)),
            HopPlace::Forward(i) => format!("forward.{}", forward[i]),
            HopPlace::Backward(i) => format!("backward.{}", backward[i]),
        };
        self.network.hops().map(|hop| name(hop.place)).collect()
    }

    /// The model's time.
    fn now(&self) -> Nanos {
        monotonic() - self.started
    }
}

/// Payload memory for frames from clients and from servers, where `free` may still be taken and `held_bytes` were taken before.
fn required(
    path: &PathSpec,
    options: &EngineOptions,
    free: Available,
    held_bytes: usize,
) -> Result<[usize; 2], EngineError> {
    let bytes = [PathEnd::Client, PathEnd::Server].map(|end| payload_bytes(path, end));
    let needed = Bytes(bytes[0].saturating_add(bytes[1]));
    if let Some(bound) = options.memory_bound {
        if needed > bound {
            return Err(EngineError::MemoryBound { needed, bound });
        }
    } else {
        let held = Bytes(held_bytes as u64);
        let available = Bytes(free.bytes.0.saturating_add(held.0));
        if needed > held && needed.0 > available.0 / 2 {
            return Err(EngineError::MostOfMemory { needed, available, limit: free.limit });
        }
    }
    Ok(bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)))
}

/// When a frame arrived: never in the future, whatever the wall clock was set to meanwhile. `now` is read again where it is needed: most
/// frames have waited for longer than since the last reading.
fn arrived_at(stamp: Option<Nanos>, offset: RealtimeOffset, now: &mut Nanos) -> Nanos {
    let at = stamp.map(|stamp| offset.monotonic_of(stamp));
    if at.is_none_or(|at| at > *now) {
        *now = monotonic();
    }
    at.map_or(*now, |at| at.min(*now))
}
