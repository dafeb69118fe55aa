//! Watches TCP connections and UDP sockets of other programs. Of TCP it samples their `TCP_INFO` with sock_diag(7) and takes the last one when a connection
//! ends. Tracepoints report drops and retransmissions. The programs are not touched.
//!
//! ```text
//!  InetSockets::dump ─┬─► known cookie ─► Connection (FlowSummary, Receiving, Series)
//!                    └─► unknown ─► Chooser: by port, control group, or process (/proc, TcpOwners)
//!  TcpOwners ─► which process opened or closed it        TcpEnds ─► its last TCP_INFO        TcpLoss ─► drops, retransmissions
//! ```
//!
//! This crate reads the clock and the kernel. [`longhaul_tcp`] defines what the samples mean.

mod caveats;
mod connection;
mod dumps;
mod losses;
mod selection;
mod threads;
mod udp;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use longhaul_bpf::tcp_owner::TcpOwners;
use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::sock_diag::{InetSocket, InetSockets, TcpEnds};
use longhaul_result::{Caveat, CaveatCode};
use longhaul_tcp::{CongestionSince, MAX_SAMPLES, SamplingCost, Series, WatchResult};
use longhaul_units::Nanos;

pub use connection::ConnectionNow;
pub use selection::Selection;
pub use udp::{UdpSocketNow, UdpWatch, UdpWatched};

use connection::{Connection, Seen};
use dumps::Dumps;
use losses::Losses;
use selection::Chooser;

/// The most connections that are followed, including ended ones: some 20 MB.
pub const MAX_CONNECTIONS: usize = 10_000;
/// How often a connection that was not chosen is checked again: a process may get it from another later.
const RECHECK_AFTER: Nanos = Nanos::from_millis(100);
/// How often the processes of connections without a name are looked up.
const LOOK_UP_EVERY: Nanos = Nanos::from_millis(500);

/// What to watch, and how often.
#[derive(Debug)]
pub struct WatchOptions {
    /// Which connections.
    pub selection: Selection,
    /// The network namespace; `None`: that of the calling thread.
    pub namespace: Option<NetNamespace>,
    /// Time between two samples.
    pub sample: Nanos,
    /// Keeps the samples, for a file.
    pub keep_samples: bool,
}

/// Why connections cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel does not list its sockets.
    #[error(
        "sock_diag does not list sockets: {0}; the kernel needs CONFIG_INET_DIAG (modprobe inet_diag tcp_diag udp_diag)"
    )]
    SockDiag(std::io::Error),
    /// The folder is not a control group.
    #[error(
        "{path}: {source}; name a folder of a cgroup2 file system, such as /sys/fs/cgroup/system.slice/ssh.service"
    )]
    Cgroup {
        /// The given folder.
        path: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The process does not exist or belongs to another user.
    #[error("process {pid}: {source}")]
    Process {
        /// Its PID.
        pid: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// The samples of a connection, for a file.
#[derive(Debug)]
pub struct WatchedSamples {
    /// Its number in the result.
    pub number: u32,
    /// The congestion controls that samples refer to by index.
    pub congestion: Vec<CongestionSince>,
    /// The samples.
    pub series: Series,
}

/// The outcome of watching.
#[derive(Debug)]
pub struct Watched {
    /// The result.
    pub result: WatchResult,
    /// All samples, if they were kept.
    pub samples: Vec<WatchedSamples>,
    /// Reasons to doubt the result.
    pub caveats: Vec<Caveat>,
}

/// Watches connections: call [`Self::sample`] periodically.
#[derive(Debug)]
pub struct Watch {
    sockets: Dumps,
    ends: Option<TcpEnds>,
    owners: Option<TcpOwners>,
    losses: Losses,
    chooser: Chooser,
    sample: Nanos,
    keep_samples: bool,
    start: Nanos,
    before: Option<Nanos>,
    /// Followed connections that are open, by cookie.
    open: HashMap<u64, Connection>,
    over: Vec<Connection>,
    /// Index into `over`, by cookie.
    over_at: HashMap<u64, usize>,
    /// Connections that were not chosen: when first seen, when last checked.
    others: HashMap<u64, (Nanos, Nanos)>,
    /// Cookies of the connections that existed at the start, and of those since that were not followed, until their end is seen.
    at_start: HashSet<u64>,
    /// These are all.
    knows_start: bool,
    numbers: u32,
    not_followed: u64,
    named: Nanos,
    /// When the threads of processes were read.
    threads: Nanos,
    kept: usize,
    missed_ends: bool,
    cost: SamplingCost,
    ticks: u64,
    cpu_before: Nanos,
    caveats: Vec<Caveat>,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    /// [`WatchError`]. What only makes the result poorer becomes a caveat.
    pub fn open(options: WatchOptions) -> Result<Self, WatchError> {
        let mut caveats = Vec::new();
        let namespace = options.namespace.map_or_else(NetNamespace::current, Ok)?;
        let chooser = Chooser::new(options.selection)?;
        // Attach first: from now on, the process that opens a connection is known.
        let inode = namespace.inode()?;
        let owners = match TcpOwners::attach(inode as u32) {
            Ok(owners) => Some(owners),
            Err(error) => {
                let message = format!(
                    "processes are looked up only in /proc, so the process of a connection shorter than a sample is unknown: {error}"
                );
                caveats.push(Caveat::new(caveats::SHORT_LIVED_UNOWNED, message, "run as root on a kernel with BTF"));
                None
            }
        };
        let losses = Losses::attach(inode, &mut caveats);
        let opened = within(&namespace, || (TcpEnds::open(), InetSockets::tcp()));
        let (ends, sockets) = opened?;
        let ends = match ends {
            Ok(ends) => Some(ends),
            Err(error) => {
                let message =
                    format!("what a connection does between its last sample and its end is not seen: {error}");
                caveats.push(Caveat::new(caveats::ENDS_UNSEEN, message, "run as root on Linux 4.3 or newer"));
                None
            }
        };
        let mut watch = Self {
            sockets: Dumps::of(sockets.map_err(WatchError::SockDiag)?),
            ends,
            owners,
            losses,
            chooser,
            sample: options.sample,
            keep_samples: options.keep_samples,
            start: monotonic(),
            before: None,
            open: HashMap::new(),
            over: Vec::new(),
            over_at: HashMap::new(),
            others: HashMap::new(),
            at_start: HashSet::new(),
            knows_start: false,
            numbers: 0,
            not_followed: 0,
            named: Nanos::ZERO,
            threads: Nanos::ZERO,
            kept: 0,
            missed_ends: false,
            cost: SamplingCost { interval_ns: options.sample.0, ..SamplingCost::default() },
            ticks: 0,
            cpu_before: thread_cpu_time(),
            caveats,
        };
        // What exists now did not begin during the watch.
        let at_start = &mut watch.at_start;
        watch.knows_start = watch
            .sockets
            .first(watch.chooser.filter(), |socket| _ = at_start.insert(socket.cookie))
            .map_err(WatchError::SockDiag)?;
        watch.sample();
        Ok(watch)
    }

    /// Takes a sample of every chosen connection.
    pub fn sample(&mut self) {
        let now = monotonic();
        let before = self.before.unwrap_or(now);
        self.ticks += 1;
        self.take_owners();
        let mut fresh = Vec::new();
        let (open, others) = (&mut self.open, &mut self.others);
        let complete = self.sockets.dump(self.chooser.filter(), |socket| {
            if let Some(connection) = open.get_mut(&socket.cookie) {
                connection.take(now, socket);
            } else if let Some((_, decided)) = others.get(&socket.cookie)
                && now.saturating_sub(*decided) < RECHECK_AFTER
            {
            } else {
                fresh.extend(Seen::of(socket));
            }
        });
        for seen in fresh {
            self.decide(now, before, &seen);
        }
        if complete {
            self.retire(now);
        }
        self.take_ends(before);
        self.cost.samples += self.open.len() as u64;
        if now.saturating_sub(self.threads) >= threads::EVERY {
            self.threads = now;
            self.read_threads();
        }
        if now.saturating_sub(self.named) >= LOOK_UP_EVERY {
            self.named = now;
            self.name();
            self.others.retain(|_, (_, decided)| now.saturating_sub(*decided) < Nanos::from_secs(10));
            self.thin();
        }
        self.before = Some(now);
    }

    /// The state of each open connection, with rates since the last call. Highest rate first.
    pub fn now(&mut self) -> Vec<ConnectionNow> {
        let mut rows: Vec<ConnectionNow> = self.open.values_mut().filter_map(Connection::now).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.sent_rate_bps + row.received_rate_bps), row.number));
        rows
    }

    /// The number of followed connections that are open.
    pub fn open_connections(&self) -> usize {
        self.open.len()
    }

    /// Whether the chosen processes have ended; never if none were chosen.
    pub fn is_over(&self) -> bool {
        self.chooser.is_over()
    }

    /// Takes a last sample and returns the outcome.
    pub fn finish(mut self) -> Watched {
        self.sample();
        self.chooser.look_at_once();
        self.name();
        let end = monotonic();
        self.cost.elapsed_ns = end.saturating_sub(self.start).0;
        self.cost.cpu_time_ns = thread_cpu_time().saturating_sub(self.cpu_before).0;
        let mut all: BTreeMap<u32, Connection> = self.over.into_iter().map(|one| (one.number, one)).collect();
        all.extend(self.open.into_values().map(|one| (one.number, one)));
        let mut samples = Vec::new();
        let mut connections = Vec::new();
        for (number, mut connection) in all {
            if let Some(series) = connection.take_series() {
                self.cost.kept_one_of = self.cost.kept_one_of.max(series.stride());
                samples.push(WatchedSamples { number, congestion: connection.congestion(), series });
            }
            connections.push(connection.result(self.start));
        }
        self.losses.finish(&mut connections);
        let mut caveats = self.caveats;
        caveats.extend(self.chooser.caveats());
        caveats.extend(self.sockets.caveat());
        let mut warn =
            |code: CaveatCode, message: String, remedy: &str| caveats.push(Caveat::new(code, message, remedy));
        if self.missed_ends {
            let message = "too many connections ended at once: some show their last sample instead of their end".into();
            warn(caveats::ENDS_MISSED, message, "watch fewer connections: choose a port or a process");
        }
        if self.owners.as_ref().is_some_and(|owners| owners.lost_events().is_ok_and(|lost| lost > 0)) {
            let message = "too many connections were opened at once: the process of some is not known".into();
            warn(caveats::OWNERS_MISSED, message, "sample more often, or watch fewer connections: choose a port");
        }
        if self.not_followed > 0 {
            let message =
                format!("{} connections were not followed, as the limit is {MAX_CONNECTIONS}", self.not_followed);
            warn(
                caveats::CONNECTIONS_NOT_FOLLOWED,
                message,
                "watch fewer connections (choose a port or a process), or for a shorter time",
            );
        }
        let achieved = self.cost.elapsed_ns / self.ticks.max(1);
        if achieved > self.sample.0.saturating_mul(2) && self.ticks > 10 {
            let message = format!("samples were {} apart on average, not {}", Nanos(achieved), self.sample);
            warn(caveats::SAMPLES_LATE, message, "use a longer time between samples, or watch fewer connections");
        }
        if connections.is_empty() {
            warn(
                caveats::NOTHING_SEEN,
                "no matching connection was seen".into(),
                "check the network namespace, the port and the process",
            );
        }
        let result = WatchResult {
            duration_ns: self.cost.elapsed_ns,
            connections,
            connections_not_followed: self.not_followed,
            sampling: self.cost,
            samples_file: None,
        };
        Watched { result, samples, caveats }
    }

    fn take_owners(&mut self) {
        let Some(owners) = &mut self.owners else { return };
        owners.drain(|event| {
            if let (Some(by), Some(connection)) = (&event.by, self.open.get_mut(&event.cookie)) {
                connection.set_owner(by.pid, &by.name);
            }
            self.chooser.learn(event);
        });
    }

    fn decide(&mut self, now: Nanos, before: Nanos, seen: &Seen) {
        let cookie = seen.cookie;
        let (first, _) = *self.others.get(&cookie).unwrap_or(&(before, now));
        if !self.chooser.chooses(now, &seen.candidate()) {
            self.others.insert(cookie, (first, now));
            return;
        }
        self.others.remove(&cookie);
        if self.open.len() + self.over.len() >= MAX_CONNECTIONS {
            // Count each once. It stays among the others until it is checked again.
            self.not_followed += u64::from(self.at_start.insert(cookie));
            self.others.insert(cookie, (first, now));
            return;
        }
        let is_new = self.knows_start && !self.at_start.contains(&cookie);
        let began = is_new.then(|| self.chooser.began(cookie).unwrap_or(first).min(now));
        let mut connection = Connection::new(self.numbers, seen, began);
        if self.keep_samples {
            connection.keep_samples(MAX_SAMPLES);
        }
        if let Some((pid, name)) = self.chooser.owner(&seen.candidate()) {
            connection.set_owner(pid, &name);
        }
        self.losses.follow(self.numbers, seen);
        self.numbers += 1;
        connection.take_seen(now, seen);
        self.open.insert(cookie, connection);
    }

    /// Ends connections that the last dump did not contain. Their last `TCP_INFO` may still arrive.
    fn retire(&mut self, now: Nanos) {
        let ended: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, connection)| connection.last_seen() < now)
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in ended {
            if let Some(connection) = self.open.remove(&cookie) {
                self.finish_one(connection, now, None);
            }
        }
    }

    fn take_ends(&mut self, before: Nanos) {
        let Some(mut ends) = self.ends.take() else { return };
        let mut ended = Vec::new();
        let all = ends.drain(|socket: &InetSocket<'_>| {
            // Port 0: it was never connected.
            if socket.remote.port() != 0 {
                ended.extend(Seen::of(socket));
            }
        });
        self.ends = Some(ends);
        self.missed_ends |= !all.unwrap_or(false);
        let now = monotonic();
        // The event of the process that closed it may be newer than the last ones read.
        if !ended.is_empty() {
            self.take_owners();
        }
        for seen in ended {
            let cookie = seen.cookie;
            if let Some(connection) = self.open.remove(&cookie) {
                self.finish_one(connection, now, Some(&seen));
            } else if let Some(over) = self.over_at.get(&cookie).and_then(|at| self.over.get_mut(*at)) {
                over.take_last(now, &seen);
            } else {
                // It lived between two samples.
                self.decide(now, before, &seen);
                if let Some(mut connection) = self.open.remove(&cookie) {
                    connection.mark_final();
                    self.finish_one(connection, now, None);
                }
            }
            self.others.remove(&cookie);
            self.at_start.remove(&cookie);
            self.chooser.forget(cookie);
        }
    }

    fn finish_one(&mut self, mut connection: Connection, now: Nanos, last: Option<&Seen>) {
        last.into_iter().for_each(|seen| connection.take_last(now, seen));
        connection.end();
        self.over_at.insert(connection.cookie, self.over.len());
        self.over.push(connection);
    }

    /// Looks up the processes of connections that have none yet.
    fn name(&mut self) {
        let mut unnamed: Vec<&mut Connection> = self.open.values_mut().filter(|one| one.may_be_named()).collect();
        if unnamed.is_empty() {
            return;
        }
        let owners = self.chooser.look_up();
        for connection in &mut unnamed {
            if let Some((pid, name)) = owners.get(&connection.inode()) {
                connection.set_owner(*pid, name);
            }
        }
    }

    /// Reads what the threads of all processes do that have connections.
    fn read_threads(&mut self) {
        let processes: BTreeSet<u32> = self.open.values().filter_map(Connection::process).collect();
        let readings = threads::read(&processes);
        for connection in self.open.values_mut() {
            connection.take_threads(&readings);
        }
    }

    /// Keeps the memory of the samples within bounds.
    fn thin(&mut self) {
        if !self.keep_samples {
            return;
        }
        let all = || self.over.iter().chain(self.open.values());
        self.kept = all().map(Connection::kept_samples).sum();
        while self.kept > MAX_SAMPLES {
            self.over.iter_mut().chain(self.open.values_mut()).for_each(Connection::thin);
            self.kept = self.over.iter().chain(self.open.values()).map(Connection::kept_samples).sum();
        }
    }
}

/// Runs `work` in `namespace`. The own one need not be entered; entering needs CAP_SYS_ADMIN.
fn within<T: Send>(namespace: &NetNamespace, work: impl Fn() -> T + Send + Sync) -> Result<T, NamespaceError> {
    let is_own = || Ok::<_, NamespaceError>(NetNamespace::current()?.inode()? == namespace.inode()?);
    match namespace.enter(&work) {
        Err(NamespaceError::Denied { .. }) if is_own().unwrap_or(false) => Ok(work()),
        other => other,
    }
}
