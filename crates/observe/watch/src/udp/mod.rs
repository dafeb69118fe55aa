//! Watches UDP sockets of other programs: what each sends, receives, and loses on this host.
//!
//! ```text
//!  InetSockets::dump ─► who has which port, what its socket dropped      ─┐
//!  UdpFlows (BPF)    ─► datagrams by port and peer, drops with a place   ─┴─► UdpWatchResult
//! ```
//!
//! Without BPF there is what a socket says of itself: how many datagrams it dropped, and how full its buffer was.

mod ports;
mod tally;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use longhaul_bpf::symbols::Symbols;
use longhaul_bpf::udp_flow::{UdpFlows, UdpUse};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::counters::{Scope, Snapshot};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sock_diag::{InetFilter, InetMemory, InetSocket, InetSockets};
use longhaul_result::{Caveat, Location, LocationMethod};
use longhaul_udp::{UdpSocketDrop, UdpWatchResult, WatchedUdpSocket};
use longhaul_units::{BitRate, Nanos};

use crate::dumps::Dumps;
use crate::selection::{Candidate, Chooser, Selection};
use crate::{LOOK_UP_EVERY, MAX_CONNECTIONS, RECHECK_AFTER, WatchError, WatchOptions, caveats, within};
use ports::Ports;
use tally::{Tally, tally};

/// How often the kernel forgets sockets that have ended and were not chosen.
const FORGET_EVERY: Nanos = Nanos::from_secs(5);

/// The outcome of watching.
#[derive(Debug)]
pub struct UdpWatched {
    /// The result.
    pub result: UdpWatchResult,
    /// Reasons to doubt it.
    pub caveats: Vec<Caveat>,
}

/// A socket, with what happened since the last call.
#[derive(Debug, Clone)]
pub struct UdpSocketNow {
    /// Its number in the result.
    pub number: u32,
    /// Its address and port.
    pub local: SocketAddr,
    /// The peer that it is connected to.
    pub remote: Option<SocketAddr>,
    /// The program's name; empty if unknown.
    pub program: String,
    /// Payload bits per second, sent.
    pub sent_rate_bps: u64,
    /// Payload bits per second that entered its buffer.
    pub received_rate_bps: u64,
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Datagrams that entered its buffer.
    pub received_packets: u64,
    /// Datagrams that this host dropped.
    pub dropped_packets: u64,
    /// Where most of them were dropped; `None` if none were.
    pub dropped_at: Option<Location>,
}

/// What a socket had at the last call of [`UdpWatch::now`].
#[derive(Debug, Clone, Default)]
struct Before {
    at: Nanos,
    sent: [u64; 2],
    received: [u64; 2],
    drops: BTreeMap<Location, u64>,
}

/// A followed socket.
#[derive(Debug)]
struct Followed {
    number: u32,
    candidate: Candidate,
    owner: Option<(u32, String)>,
    began: Option<Nanos>,
    ended: bool,
    first: Nanos,
    last: Nanos,
    /// Its drops when it was first sampled, and now.
    drops: Option<(u32, u32)>,
    memory: Option<InetMemory>,
    max_used_bytes: u64,
    /// Nothing waited in it when counting began.
    was_empty: bool,
    before: Before,
}

/// Watches UDP sockets: call [`Self::sample`] periodically.
#[derive(Debug)]
pub struct UdpWatch {
    sockets: Dumps,
    flows: Option<UdpFlows>,
    symbols: Option<Symbols>,
    chooser: Chooser,
    namespace: NetNamespace,
    counters: Option<Snapshot>,
    start: Nanos,
    followed: HashMap<u64, Followed>,
    /// Sockets that were not chosen: as last seen, and when that was decided.
    others: HashMap<u64, (Candidate, Nanos)>,
    at_start: HashSet<u64>,
    /// These are all.
    knows_start: bool,
    /// Sockets whose owner the chooser has learnt.
    learnt: HashSet<u64>,
    numbers: u32,
    not_followed: HashSet<u64>,
    looked: Nanos,
    forgot: Nanos,
    caveats: Vec<Caveat>,
}

impl UdpWatch {
    /// Starts to watch.
    ///
    /// # Errors
    /// [`WatchError`]. What only makes the result poorer becomes a caveat.
    pub fn open(options: WatchOptions) -> Result<Self, WatchError> {
        let mut caveats = Vec::new();
        let namespace = options.namespace.map_or_else(NetNamespace::current, Ok)?;
        let chooser = Chooser::new(options.selection)?;
        // Attach first: from now on, every datagram is counted.
        let flows = UdpFlows::attach(namespace.inode()? as u32).map_err(|error| {
            let message = format!(
                "datagrams are not counted, and only what a socket drops itself is known, without its reason: {error}"
            );
            let remedy = "run as root on Linux 5.17 or newer";
            caveats.push(Caveat::new(longhaul_bpf::caveats::NO_DROP_EVENTS, message, remedy));
        });
        let counters = within(&namespace, Snapshot::take).ok();
        let sockets = within(&namespace, InetSockets::udp)?.map_err(WatchError::SockDiag)?;
        let mut watch = Self {
            sockets: Dumps::of(sockets),
            flows: flows.ok(),
            symbols: Symbols::read().ok(),
            chooser,
            namespace,
            counters,
            start: monotonic(),
            followed: HashMap::new(),
            others: HashMap::new(),
            at_start: HashSet::new(),
            knows_start: false,
            learnt: HashSet::new(),
            numbers: 0,
            not_followed: HashSet::new(),
            looked: Nanos::ZERO,
            forgot: Nanos::ZERO,
            caveats,
        };
        let at_start = &mut watch.at_start;
        watch.knows_start = watch
            .sockets
            .first(InetFilter::All, |socket| _ = at_start.insert(socket.cookie))
            .map_err(WatchError::SockDiag)?;
        watch.sample();
        Ok(watch)
    }

    /// Looks at every socket.
    pub fn sample(&mut self) {
        let now = monotonic();
        let mut fresh = Vec::new();
        let (followed, others) = (&mut self.followed, &mut self.others);
        let complete = self.sockets.dump(InetFilter::All, |socket| {
            if let Some(one) = followed.get_mut(&socket.cookie) {
                one.take(now, socket);
            } else if let Some((_, decided)) = others.get(&socket.cookie)
                && now.saturating_sub(*decided) < RECHECK_AFTER
            {
            } else {
                fresh.push((candidate(socket), socket.memory()));
            }
        });
        if !fresh.is_empty() {
            self.learn();
        }
        for (candidate, memory) in fresh {
            if let Some(flows) = &self.flows {
                // Its drops may come before any datagram of it.
                let _ = flows.add_port(candidate.local.port());
            }
            self.decide(now, candidate, memory);
        }
        if complete {
            self.followed.values_mut().filter(|one| one.last < now).for_each(|one| one.ended = true);
        }
        if now.saturating_sub(self.looked) >= LOOK_UP_EVERY {
            self.look(now);
        }
    }

    /// The state of each open socket, with what happened since the last call. Highest rate first.
    pub fn now(&mut self) -> Vec<UdpSocketNow> {
        let now = monotonic();
        let mut tallies = self.tallies();
        let mut rows: Vec<UdpSocketNow> = self
            .followed
            .iter_mut()
            .map(|(cookie, one)| one.now(now, self.start, tallies.remove(cookie).unwrap_or_default()))
            .collect();
        rows.retain(|row| row.sent_packets + row.received_packets + row.dropped_packets > 0 || row.number < 15);
        rows.sort_by_key(|row| (std::cmp::Reverse(row.sent_rate_bps + row.received_rate_bps), row.number));
        rows
    }

    /// The number of followed sockets that are open.
    pub fn open_sockets(&self) -> usize {
        self.followed.values().filter(|one| !one.ended).count()
    }

    /// Whether the chosen processes have ended; never if none were chosen.
    pub fn is_over(&self) -> bool {
        self.chooser.is_over()
    }

    /// Looks a last time and returns the outcome.
    pub fn finish(mut self) -> UdpWatched {
        self.sample();
        self.chooser.look_at_once();
        self.look(monotonic());
        let end = monotonic();
        let mut tallies = self.tallies();
        let uses: HashMap<u64, UdpUse> = self.uses().into_iter().map(|one| (one.cookie, one)).collect();
        let uncounted = self.flows.as_ref().map_or(0, |flows| flows.uncounted().unwrap_or(0));
        let tells_reads = self.flows.as_ref().is_some_and(UdpFlows::tells_reads);
        let reads = |one: &UdpUse| [one.read_packets, one.read_bytes];
        let mut followed: Vec<(u64, Followed)> = self.followed.drain().collect();
        let mut ports: HashMap<u16, usize> = HashMap::new();
        followed.iter().for_each(|(_, one)| *ports.entry(one.candidate.local.port()).or_default() += 1);
        followed.sort_by_key(|(_, one)| one.number);
        let sockets: Vec<WatchedUdpSocket> = followed
            .into_iter()
            .map(|(cookie, one)| {
                let tally = self.flows.is_some().then(|| tallies.remove(&cookie).unwrap_or_default());
                let seen = if tells_reads { Some(uses.get(&cookie).map_or([0; 2], reads)) } else { None };
                let shares = ports[&one.candidate.local.port()] > 1;
                WatchedUdpSocket { shares_port: shares, ..one.result(cookie, self.start, tally, seen) }
            })
            .collect();
        let method = if self.flows.is_some() { LocationMethod::Bpf } else { LocationMethod::Counters };
        let result = UdpWatchResult {
            duration_ns: end.saturating_sub(self.start).0,
            location_method: method,
            sockets,
            sockets_not_followed: self.not_followed.len() as u64,
            uncounted_packets: uncounted,
            counters: self.changed_counters(),
        };
        let caveats = self.doubts(&result);
        UdpWatched { result, caveats }
    }

    fn doubts(self, result: &UdpWatchResult) -> Vec<Caveat> {
        let mut caveats = self.caveats;
        caveats.extend(self.chooser.caveats());
        caveats.extend(self.sockets.caveat());
        let mut warn = |code, message: String, remedy: &str| caveats.push(Caveat::new(code, message, remedy));
        if result.uncounted_packets > 0 {
            let message = format!(
                "{} datagrams or drops of this host could not be counted; they may belong to watched sockets",
                result.uncounted_packets
            );
            warn(caveats::DATAGRAMS_UNCOUNTED, message, "watch for a shorter time, or compare with socket_drops");
        }
        if result.sockets_not_followed > 0 {
            let message =
                format!("{} sockets were not followed, as the limit is {MAX_CONNECTIONS}", result.sockets_not_followed);
            let remedy = "watch fewer sockets (choose a port or a process), or for a shorter time";
            warn(caveats::CONNECTIONS_NOT_FOLLOWED, message, remedy);
        }
        if result.sockets.is_empty() {
            let message = "no matching UDP socket was seen".into();
            warn(caveats::NOTHING_SEEN, message, "check the network namespace, the port and the process");
        }
        caveats
    }

    /// Every counter of UDP that changed.
    fn changed_counters(&self) -> BTreeMap<String, i64> {
        let after = within(&self.namespace, Snapshot::take).ok();
        let changes = self.counters.as_ref().zip(after).map(|(before, after)| after.since(before)).unwrap_or_default();
        let of_udp = changes.into_iter().filter(|one| one.scope == Scope::Namespace && one.name.starts_with("Udp"));
        of_udp.map(|one| (one.name, one.by)).collect()
    }

    fn uses(&self) -> Vec<UdpUse> {
        self.flows.as_ref().and_then(|flows| flows.sockets().ok()).unwrap_or_default()
    }

    fn tallies(&self) -> HashMap<u64, Tally> {
        let Some(flows) = &self.flows else { return HashMap::new() };
        let ports = Ports::of(self.followed.iter());
        tally(flows, self.symbols.as_ref(), |port, peer, local| ports.find(port, peer, local))
    }

    /// Tells the chooser who opened the sockets that it does not know.
    fn learn(&mut self) -> Vec<UdpUse> {
        let uses = self.uses();
        for one in &uses {
            if self.learnt.insert(one.cookie) {
                self.chooser.learn(one.used.clone());
            }
        }
        uses
    }

    /// Finds sockets that came and went between two samples, and those whose peers alone tell that they are chosen.
    fn look(&mut self, now: Nanos) {
        self.looked = now;
        let uses = self.learn();
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        for one in &uses {
            if !self.followed.contains_key(&one.cookie) && !self.others.contains_key(&one.cookie) && one.local_port != 0
            {
                let local = SocketAddr::new(nowhere.ip(), one.local_port);
                let candidate = Candidate { cookie: one.cookie, local, remote: nowhere, inode: 0, cgroup_id: None };
                self.decide(now, candidate, None);
            }
        }
        if let (Selection::Port(port), Some(flows)) = (self.chooser.selection(), &self.flows) {
            let port = *port;
            let at_ports = self.others.values().map(|(candidate, _)| (candidate.local.port(), *candidate));
            let mut at_ports: HashMap<u16, Candidate> = at_ports.collect();
            for flow in flows.flows().unwrap_or_default() {
                let Some(peer) = flow.peer.filter(|peer| peer.port() == port) else { continue };
                if let Some(candidate) = at_ports.remove(&flow.local_port) {
                    self.decide(now, Candidate { remote: peer, ..candidate }, None);
                    if let Some(one) = self.followed.get_mut(&candidate.cookie) {
                        one.candidate.remote = candidate.remote;
                    }
                }
            }
        }
        self.name();
        if now.saturating_sub(self.forgot) >= FORGET_EVERY {
            self.forgot = now;
            if let Some(flows) = &self.flows {
                let of = |candidate: &Candidate| candidate.local.port();
                let followed = self.followed.values().map(|one| of(&one.candidate));
                let ports: HashSet<u16> = followed.chain(self.others.values().map(|(other, _)| of(other))).collect();
                let _ = flows.keep_only(
                    |cookie| self.followed.contains_key(&cookie) || self.others.contains_key(&cookie),
                    |port| ports.contains(&port),
                );
            }
            self.others.retain(|_, (_, decided)| now.saturating_sub(*decided) < FORGET_EVERY);
            let known: HashSet<u64> = uses.iter().map(|one| one.cookie).collect();
            self.learnt.retain(|cookie| known.contains(cookie));
        }
    }

    fn decide(&mut self, now: Nanos, candidate: Candidate, memory: Option<InetMemory>) {
        let cookie = candidate.cookie;
        if !self.chooser.chooses(now, &candidate) {
            self.others.insert(cookie, (candidate, now));
            return;
        }
        if self.followed.len() >= MAX_CONNECTIONS {
            self.not_followed.insert(cookie);
            self.others.insert(cookie, (candidate, now));
            return;
        }
        self.others.remove(&cookie);
        let is_new = self.knows_start && !self.at_start.contains(&cookie);
        let began = self.chooser.began(cookie).or(is_new.then_some(now));
        let owner = self.chooser.owner(&candidate);
        let mut one = Followed {
            number: self.numbers,
            candidate,
            owner,
            began,
            ended: memory.is_none() && candidate.inode == 0,
            first: began.unwrap_or(self.start).max(self.start),
            last: now,
            // A socket that began has dropped what it dropped during the watch.
            drops: memory.map(|memory| (if began.is_some() { 0 } else { memory.drops }, memory.drops)),
            memory,
            max_used_bytes: memory.map_or(0, |memory| memory.received_bytes.into()),
            was_empty: began.is_some() || memory.is_some_and(|memory| memory.received_bytes == 0),
            before: Before::default(),
        };
        one.before.at = one.first;
        self.numbers += 1;
        self.followed.insert(cookie, one);
    }

    /// Looks up the processes of sockets that have none yet.
    fn name(&mut self) {
        let mut unnamed: Vec<&mut Followed> =
            self.followed.values_mut().filter(|one| one.owner.is_none() && one.candidate.inode != 0).collect();
        if unnamed.is_empty() {
            return;
        }
        let owners = self.chooser.look_up();
        unnamed.iter_mut().for_each(|one| one.owner = owners.get(&one.candidate.inode).cloned());
    }
}

fn candidate(socket: &InetSocket<'_>) -> Candidate {
    Candidate {
        cookie: socket.cookie,
        local: socket.local,
        remote: socket.remote,
        inode: socket.inode,
        cgroup_id: socket.cgroup_id(),
    }
}

impl Followed {
    fn take(&mut self, now: Nanos, socket: &InetSocket<'_>) {
        self.last = now;
        self.ended = false;
        // It may have been bound or connected since.
        self.candidate = candidate(socket);
        let Some(memory) = socket.memory() else { return };
        let (first, _) = self.drops.unwrap_or((0, 0));
        self.drops = Some((first, memory.drops));
        self.max_used_bytes = self.max_used_bytes.max(memory.received_bytes.into());
        self.memory = Some(memory);
    }

    fn remote(&self) -> Option<SocketAddr> {
        Some(self.candidate.remote).filter(|remote| remote.port() != 0)
    }

    fn now(&mut self, now: Nanos, start: Nanos, tally: Tally) -> UdpSocketNow {
        let since = if self.before.at == Nanos::ZERO { start } else { self.before.at };
        let elapsed = now.saturating_sub(since);
        let before = std::mem::replace(
            &mut self.before,
            Before {
                at: now,
                sent: [tally.sent_packets, tally.sent_bytes],
                received: [tally.received_packets, tally.received_bytes],
                drops: tally.by_location(),
            },
        );
        let rose = |now: u64, before: u64| now.saturating_sub(before);
        let drops =
            self.before.drops.iter().map(|(location, packets)| {
                (*location, rose(*packets, before.drops.get(location).copied().unwrap_or(0)))
            });
        let drops: Vec<(Location, u64)> = drops.filter(|(_, packets)| *packets > 0).collect();
        UdpSocketNow {
            number: self.number,
            local: self.candidate.local,
            remote: self.remote(),
            program: self.owner.as_ref().map_or(String::new(), |(_, name)| name.clone()),
            sent_rate_bps: BitRate::of(rose(self.before.sent[1], before.sent[1]), elapsed).0,
            received_rate_bps: BitRate::of(rose(self.before.received[1], before.received[1]), elapsed).0,
            sent_packets: rose(self.before.sent[0], before.sent[0]),
            received_packets: rose(self.before.received[0], before.received[0]),
            dropped_packets: drops.iter().map(|(_, packets)| packets).sum(),
            dropped_at: drops.iter().max_by_key(|(_, packets)| *packets).map(|(location, _)| *location),
        }
    }

    /// `tally` is `None` where datagrams are not counted; `read`: how many datagrams and bytes its program read, where that is known.
    fn result(self, cookie: u64, start: Nanos, tally: Option<Tally>, read: Option<[u64; 2]>) -> WatchedUdpSocket {
        let counted = tally.is_some();
        let mut tally = tally.unwrap_or_default();
        let socket_drops = self.drops.map(|(first, last)| u64::from(last.wrapping_sub(first)));
        if !counted && let Some(packets @ 1..) = socket_drops {
            let reason = "counted by the socket (SO_MEMINFO)".into();
            let drop = UdpSocketDrop { location: Location::ReceiverSocketBuffer, reason, sent: false, packets };
            tally.drops.push(drop);
        }
        let is_empty = !self.ended && self.memory.is_some_and(|memory| memory.received_bytes == 0);
        let unread_packets = match read {
            _ if is_empty => Some(0),
            Some([packets, bytes]) if counted && self.was_empty => {
                // With UDP_GRO one read brings several datagrams.
                let all = bytes >= tally.received_bytes;
                Some(if all { 0 } else { tally.received_packets.saturating_sub(packets) })
            }
            _ => None,
        };
        if self.ended
            && let Some(packets @ 1..) = unread_packets
        {
            tally.add_unread(packets);
        }
        let remote = self.remote();
        let (pid, program) = self.owner.unzip();
        let of = |value: u64| counted.then_some(value);
        let at = |at: Nanos| at.saturating_sub(start).0;
        let local_ip: IpAddr = self.candidate.local.ip();
        for flow in &mut tally.flows {
            flow.local = flow.local.or((!local_ip.is_unspecified()).then_some(local_ip));
        }
        WatchedUdpSocket {
            number: self.number,
            local: self.candidate.local,
            remote,
            cookie,
            program,
            pid,
            first_seen_ns: at(self.first),
            last_seen_ns: at(self.last),
            began: self.began.is_some(),
            ended: self.ended,
            shares_port: false,
            sent_packets: of(tally.sent_packets),
            sent_bytes: of(tally.sent_bytes),
            received_packets: of(tally.received_packets),
            received_bytes: of(tally.received_bytes),
            read_packets: read.map(|[packets, _]| packets).filter(|_| counted),
            unread_packets,
            dropped_packets: tally.drops.iter().map(|drop| drop.packets).sum(),
            drops: tally.drops,
            socket_drops,
            receive_buffer_bytes: self.memory.map(|memory| memory.receive_buffer_bytes.into()),
            max_receive_used_bytes: self.memory.map(|_| self.max_used_bytes),
            flows: tally.flows,
        }
    }
}
