//! One followed connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_kernel::sock_diag::{InetMemory, InetSocket};
use longhaul_tcp::{
    CongestionSince, Flow, FlowSummary, Limit, LimitedTimes, ReceiverTimes, Receiving, Sample, Series, TcpEndOptions,
    TcpInfo, WatchedConnection, fields,
};
use longhaul_terms::ThreadCpu;
use longhaul_units::{BitRate, Nanos};

use crate::selection::Candidate;
use crate::threads::{Reading, Threads};

/// The most congestion controls of a connection: a sample stores their index in a byte.
const MOST_CONTROLS: usize = 255;

/// One observation of a socket, kept.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) cookie: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// 0 if no process holds the socket, or after its end.
    pub(crate) inode: u32,
    /// `None` if only its end was seen.
    pub(crate) uid: Option<u32>,
    pub(crate) cgroup_id: Option<u64>,
    info: TcpInfo,
    unread_bytes: u32,
    memory: Option<InetMemory>,
    congestion_control: Option<String>,
}

impl Seen {
    /// `None` if the socket has no `TCP_INFO` any more.
    pub(crate) fn of(socket: &InetSocket<'_>) -> Option<Self> {
        let memory = socket.memory();
        Some(Self {
            cookie: socket.cookie,
            local: socket.local,
            remote: socket.remote,
            inode: socket.inode,
            // The message about the end does not contain the user.
            uid: memory.map(|_| socket.uid),
            cgroup_id: socket.cgroup_id(),
            info: TcpInfo::parse(socket.info()?),
            unread_bytes: socket.unread_bytes,
            memory,
            congestion_control: socket.congestion_control().map(str::to_owned),
        })
    }

    /// What tells whether it is chosen.
    pub(crate) fn candidate(&self) -> Candidate {
        let &Self { cookie, local, remote, inode, cgroup_id, .. } = self;
        Candidate { cookie, local, remote, inode, cgroup_id }
    }
}

/// The state of a connection, with rates since the last call.
#[derive(Debug, Clone)]
pub struct ConnectionNow {
    /// Its number in the result.
    pub number: u32,
    /// Address and port of this end.
    pub local: SocketAddr,
    /// Address and port of the other end.
    pub remote: SocketAddr,
    /// The program's name; empty if unknown.
    pub program: String,
    /// State (RFC 9293 §3.3.2).
    pub state: &'static str,
    /// The congestion control; empty if unknown.
    pub congestion_control: String,
    /// Payload bits per second, sent.
    pub sent_rate_bps: u64,
    /// Payload bits per second, received.
    pub received_rate_bps: u64,
    /// Smoothed round-trip time; 0 if unknown.
    pub rtt_ns: u64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// What limits it; `None` if no data moved.
    pub limit: Option<Limit>,
}

/// A followed connection, from its first sample to its last.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u32,
    pub(crate) cookie: u64,
    local: SocketAddr,
    remote: SocketAddr,
    inode: u32,
    uid: Option<u32>,
    cgroup_id: Option<u64>,
    owner: Option<(u32, String)>,
    began: bool,
    ended: bool,
    last_is_final: bool,
    first_ns: u64,
    last_ns: u64,
    summary: FlowSummary,
    receiving: Receiving,
    /// Its counters when it was first seen: 0 if it began during the watch.
    base: Counters,
    now: Counters,
    memory: Option<InetMemory>,
    congestion: Vec<CongestionSince>,
    series: Option<Series>,
    interval: Interval,
    state: u8,
    receiver_rtt_us: u64,
    threads: Threads,
    busiest_thread: Option<ThreadCpu>,
}

/// Payload bytes of both directions, without retransmissions, and packets that came out of order.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    sent: Option<u64>,
    received: u64,
    /// Packets.
    out_of_order: u64,
}

impl Counters {
    fn of(info: &TcpInfo) -> Self {
        let sent = info.get(fields::BYTES_SENT).map(|all| all.saturating_sub(info.value(fields::BYTES_RETRANS)));
        Self { sent, received: info.value(fields::BYTES_RECEIVED), out_of_order: info.value(fields::RCV_OOOPACK) }
    }
}

/// The state at the last call of [`Connection::now`].
#[derive(Debug, Clone, Copy, Default)]
struct Interval {
    at_ns: u64,
    counters: Counters,
    retransmits: u64,
    limited: LimitedTimes,
    receiver: ReceiverTimes,
}

impl Connection {
    /// `began`: when it began, as far as known; `None` if it existed before the watch.
    pub(crate) fn new(number: u32, seen: &Seen, began: Option<Nanos>) -> Self {
        let mut summary = FlowSummary::default();
        let mut base = Counters::of(&seen.info);
        if let Some(began) = began {
            summary.begin(began.0, &seen.info);
            base = Counters { sent: base.sent.map(|_| 0), ..Counters::default() };
        }
        Self {
            number,
            cookie: seen.cookie,
            local: seen.local,
            remote: seen.remote,
            inode: seen.inode,
            uid: seen.uid,
            cgroup_id: seen.cgroup_id,
            owner: None,
            began: began.is_some(),
            ended: false,
            last_is_final: false,
            first_ns: began.map_or(0, |at| at.0),
            last_ns: 0,
            summary,
            receiving: Receiving::default(),
            base,
            now: base,
            memory: None,
            congestion: Vec::new(),
            series: None,
            interval: Interval { at_ns: began.map_or(0, |at| at.0), counters: base, ..Interval::default() },
            state: 0,
            receiver_rtt_us: 0,
            threads: Threads::default(),
            busiest_thread: None,
        }
    }

    pub(crate) fn keep_samples(&mut self, most: usize) {
        self.series = Some(Series::new(most));
    }

    /// Takes a sample.
    pub(crate) fn take(&mut self, now: Nanos, socket: &InetSocket<'_>) {
        let Some(info) = socket.info() else { return };
        if socket.inode != 0 {
            self.inode = socket.inode;
        }
        self.memory = socket.memory();
        if let Some(name) = socket.congestion_control() {
            self.note_congestion_control(now, name);
        }
        self.take_info(now, &TcpInfo::parse(info), socket.unread_bytes.into());
    }

    /// Takes a kept observation as a sample.
    pub(crate) fn take_seen(&mut self, now: Nanos, seen: &Seen) {
        self.memory = seen.memory.or(self.memory);
        if let Some(name) = &seen.congestion_control {
            self.note_congestion_control(now, name);
        }
        self.take_info(now, &seen.info, seen.unread_bytes.into());
    }

    /// Takes the kernel's message about its end. Unread data counts as 0 then.
    pub(crate) fn take_last(&mut self, now: Nanos, seen: &Seen) {
        if !self.last_is_final {
            self.last_is_final = true;
            self.take_info(now, &seen.info, 0);
        }
    }

    /// Notes that its only sample is that of its end.
    pub(crate) fn mark_final(&mut self) {
        self.last_is_final = true;
    }

    fn note_congestion_control(&mut self, now: Nanos, control: &str) {
        if self.congestion.last().is_none_or(|last| last.name != control) && self.congestion.len() < MOST_CONTROLS {
            self.congestion.push(CongestionSince { at_ns: now.0, name: control.to_owned() });
        }
    }

    fn take_info(&mut self, now: Nanos, info: &TcpInfo, unread_bytes: u64) {
        if self.first_ns == 0 {
            self.first_ns = now.0;
        }
        if self.interval.at_ns == 0 {
            self.interval.at_ns = now.0;
        }
        self.last_ns = now.0;
        self.state = info.value(fields::STATE) as u8;
        self.now = Counters::of(info);
        self.receiver_rtt_us = info.value(fields::RCV_RTT);
        self.summary.take(now.0, info);
        self.receiving.take(now.0, info, unread_bytes);
        if let Some(series) = &mut self.series {
            let congestion = self.congestion.len().saturating_sub(1) as u8;
            series.push(Sample { at_ns: now.0, congestion, info: *info });
        }
    }

    pub(crate) fn set_owner(&mut self, pid: u32, name: &str) {
        if self.owner.is_none() {
            self.owner = Some((pid, name.to_owned()));
        }
    }

    /// The process that owns it, if that is known.
    pub(crate) fn process(&self) -> Option<u32> {
        self.owner.as_ref().map(|(pid, _)| *pid)
    }

    /// Takes what the threads of its process do, out of all that were read.
    pub(crate) fn take_threads(&mut self, readings: &BTreeMap<u32, Arc<Reading>>) {
        if let Some(reading) = self.process().and_then(|pid| readings.get(&pid)) {
            self.threads.take(reading);
        }
    }

    pub(crate) fn may_be_named(&self) -> bool {
        self.owner.is_none() && self.inode != 0
    }

    pub(crate) fn inode(&self) -> u32 {
        self.inode
    }

    pub(crate) fn last_seen(&self) -> Nanos {
        Nanos(self.last_ns)
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.busiest_thread = std::mem::take(&mut self.threads).busiest();
    }

    pub(crate) fn kept_samples(&self) -> usize {
        self.series.as_ref().map_or(0, |series| series.samples().len())
    }

    pub(crate) fn thin(&mut self) {
        self.series.iter_mut().for_each(Series::thin);
    }

    pub(crate) fn take_series(&mut self) -> Option<Series> {
        self.series.take().filter(|series| !series.samples().is_empty())
    }

    pub(crate) fn congestion(&self) -> Vec<CongestionSince> {
        self.congestion.clone()
    }

    fn sent(&self, since: &Counters) -> Option<u64> {
        Some(self.now.sent?.saturating_sub(since.sent.unwrap_or(0)))
    }

    fn received(&self, since: &Counters) -> u64 {
        self.now.received.saturating_sub(since.received)
    }

    /// Its state, with rates since the last call; `None` before its first sample.
    pub(crate) fn now(&mut self) -> Option<ConnectionNow> {
        let (_, info) = self.summary.last()?;
        let before = self.interval;
        let span = Nanos(self.last_ns.saturating_sub(before.at_ns));
        let (sent, received) = (self.sent(&before.counters).unwrap_or(0), self.received(&before.counters));
        let retransmits = self.summary.retransmits;
        let mut summary = self.summary;
        summary.limited = self.summary.limited.since(&before.limited);
        summary.retransmits = retransmits - before.retransmits;
        let mut receiving = self.receiving.clone();
        receiving.times = receiver_since(&self.receiving.times, &before.receiver);
        self.interval = Interval {
            at_ns: self.last_ns,
            counters: self.now,
            retransmits,
            limited: self.summary.limited,
            receiver: self.receiving.times,
        };
        let flow = if received > sent { Flow::Receiving } else { Flow::Sending };
        Some(ConnectionNow {
            number: self.number,
            local: self.local,
            remote: self.remote,
            program: self.owner.as_ref().map_or_else(String::new, |(_, name)| name.clone()),
            state: state_name(self.state),
            congestion_control: self.congestion.last().map_or_else(String::new, |since| since.name.clone()),
            sent_rate_bps: BitRate::of(sent, span).0,
            received_rate_bps: BitRate::of(received, span).0,
            rtt_ns: info.value(fields::RTT) * 1_000,
            cwnd_bytes: info.value(fields::SND_CWND) * info.value(fields::SND_MSS),
            retransmits: summary.retransmits,
            limit: Limit::of(flow, &summary, &receiving),
        })
    }

    /// Its result. Times count from `start`.
    pub(crate) fn result(self, start: Nanos) -> WatchedConnection {
        let span = Nanos(self.last_ns.saturating_sub(self.first_ns));
        let (sent_bytes, received_bytes) = (self.sent(&self.base), self.received(&self.base));
        let flow = if received_bytes > sent_bytes.unwrap_or(0) { Flow::Receiving } else { Flow::Sending };
        let moved = received_bytes > 0 || sent_bytes != Some(0);
        let (pid, program) = self.owner.unzip();
        let summary = self.summary;
        WatchedConnection {
            number: self.number,
            local: self.local,
            remote: self.remote,
            cookie: self.cookie,
            program,
            pid,
            uid: self.uid,
            cgroup_id: self.cgroup_id,
            state: state_name(self.state).into(),
            first_seen_ns: self.first_ns.saturating_sub(start.0),
            last_seen_ns: self.last_ns.saturating_sub(start.0),
            began: self.began,
            ended: self.ended,
            last_is_final: self.last_is_final,
            congestion_control: self.congestion.last().map(|last| last.name.clone()),
            flow,
            sent_bytes,
            received_bytes,
            total_sent_bytes: self.now.sent,
            total_received_bytes: self.now.received,
            sent_rate_bps: BitRate::of(sent_bytes.unwrap_or(0), span).0,
            received_rate_bps: BitRate::of(received_bytes, span).0,
            limit: moved.then(|| Limit::of(flow, &summary, &self.receiving)).flatten(),
            limited_by: summary.limited.shares(),
            receiver_limited_by: self.receiving.times.shares(),
            retransmits: summary.retransmits,
            retransmitted_bytes: summary.retransmitted_bytes,
            spurious_retransmits: summary.spurious_retransmits,
            timeouts: summary.timeouts,
            retransmitted: None,
            drops: Vec::new(),
            min_rtt_ns: summary.min_rtt_ns,
            mean_rtt_ns: summary.mean_rtt_ns,
            max_rtt_ns: summary.max_rtt_ns,
            mean_cwnd_bytes: summary.mean_cwnd_bytes,
            max_cwnd_bytes: summary.max_cwnd_bytes,
            mss_bytes: summary.mss_bytes,
            receiver_rtt_ns: Some(self.receiver_rtt_us * 1_000).filter(|ns| *ns > 0),
            mean_unread_bytes: self.receiving.mean_unread_bytes(),
            max_unread_bytes: self.receiving.max_unread_bytes,
            max_receive_window_bytes: self.receiving.max_window_bytes,
            receive_buffer_bytes: self.memory.map(|memory| memory.receive_buffer_bytes.into()),
            send_buffer_bytes: self.memory.map(|memory| memory.send_buffer_bytes.into()),
            samples: summary.samples,
            options: TcpEndOptions::of(&summary),
            max_in_flight_bytes: summary.max_in_flight_bytes,
            loss_events: summary.loss_events,
            out_of_order_packets: self.now.out_of_order.saturating_sub(self.base.out_of_order),
            marked_packets: summary.marked_packets,
            busiest_thread: self.busiest_thread.or_else(|| self.threads.busiest()),
        }
    }
}

fn receiver_since(now: &ReceiverTimes, before: &ReceiverTimes) -> ReceiverTimes {
    ReceiverTimes {
        application_us: now.application_us - before.application_us,
        receive_window_us: now.receive_window_us - before.receive_window_us,
        sender_or_path_us: now.sender_or_path_us - before.sender_or_path_us,
        idle_us: now.idle_us - before.idle_us,
    }
}

/// States of `include/net/tcp_states.h`, by the names of RFC 9293 §3.3.2.
fn state_name(state: u8) -> &'static str {
    match state {
        1 => "ESTABLISHED",
        2 => "SYN-SENT",
        3 | 12 => "SYN-RECEIVED",
        4 => "FIN-WAIT-1",
        5 => "FIN-WAIT-2",
        6 => "TIME-WAIT",
        7 => "CLOSED",
        8 => "CLOSE-WAIT",
        9 => "LAST-ACK",
        10 => "LISTEN",
        11 => "CLOSING",
        _ => "UNKNOWN",
    }
}
