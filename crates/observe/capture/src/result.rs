//! The results of `longhaul capture` and `longhaul log`, as JSON prints them (`schemas/longhaul.capture-1.json`, `longhaul.log-1.json`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::spool::{Interface, Mark, Share};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::link::LinkEnd;
use crate::logging::{Logged, LoggedEnd};
use crate::running::Captured;

/// The result of a capture.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CaptureResult {
    /// How long it took.
    pub duration_ns: u64,
    /// The interfaces that were captured on.
    pub interfaces: Vec<Interface>,
    /// What became of every packet.
    #[serde(flatten)]
    pub account: Account,
    /// Packets that stand for several wire packets.
    pub super_packets: u64,
    /// Bytes of all frames that were read, without FCS.
    pub frame_bytes: u64,
    /// Bytes of packet blocks that were written.
    pub written_bytes: u64,
    /// The files that exist, oldest first.
    pub files: Vec<PathBuf>,
    /// Files that --keep removed.
    pub files_removed: u64,
    /// Moments that SIGUSR1 marked.
    pub marks: Vec<Mark>,
    /// CPU time of the reading, the writing and the forwarding thread.
    pub cpu_ns: u64,
    /// Each logging host, and what became of the packets sent to it.
    pub loggers: Vec<LoggerResult>,
}

/// What became of the packets of a capture, or of a part of one: `seen = written + dropped`.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Account {
    /// Packets that passed the interfaces and the filter, by the kernel's count. A super-packet counts as one.
    pub seen_packets: u64,
    /// Of those, packets that were written: to the spool, or without a spool by logging hosts.
    pub written_packets: u64,
    /// Of those, packets that were not written.
    pub dropped_packets: u64,
    /// The same by place; every place is present.
    #[cfg_attr(feature = "schema", schemars(schema_with = "longhaul_units::every_key::<DroppedAt, u64>"))]
    pub dropped_by_place: BTreeMap<DroppedAt, u64>,
    /// `seen - written - dropped`: 0, unless the capture was cut off or longhaul has an error.
    pub unaccounted_packets: i64,
    /// When packets were dropped.
    pub gaps: Vec<Gap>,
}

/// What became of the packets that one logging host was sent.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoggerResult {
    /// The name that the user gave.
    pub name: String,
    /// Address and port of the datagrams.
    pub address: SocketAddr,
    /// Longest datagram, bytes of UDP payload.
    pub datagram_bytes: usize,
    /// Datagrams sent.
    pub sent_datagrams: u64,
    /// Datagrams that the logging host reported missing.
    pub lost_datagrams: u64,
    /// Datagrams that this host's kernel did not take; they are missing there too.
    pub refused_datagrams: u64,
    /// Packets in those datagrams, written or dropped.
    pub sent_packets: u64,
    /// Packets that it reported written.
    pub written_packets: u64,
    /// Packets that it did not write, by place; every place is present.
    #[cfg_attr(feature = "schema", schemars(schema_with = "longhaul_units::every_key::<DroppedAt, u64>"))]
    pub dropped_by_place: BTreeMap<DroppedAt, u64>,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Why the link was lost before the capture ended; `None` if it was not.
    pub error: Option<LoggerError>,
}

/// Why a link was lost.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoggerError {
    /// The kind of error, for programs.
    pub code: String,
    /// The error, in one line.
    pub message: String,
}

/// The result of a logging host.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogResult {
    /// In the order in which they ended; at most 10,000.
    pub captures: Vec<LoggedResult>,
    /// Further captures.
    pub more_captures: u64,
    /// Connections that did not become a capture.
    pub refused_connections: u64,
}

/// One capture at its logging host.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoggedResult {
    /// Address and port of the capturing host's control connection.
    pub peer: SocketAddr,
    /// The name of the capturing host, as it says.
    pub host: String,
    /// Which part of the capture this logging host has.
    pub share: Option<Share>,
    /// The interfaces that were captured on.
    pub interfaces: Vec<Interface>,
    /// The folder of the spool.
    pub folder: PathBuf,
    /// The files that exist, oldest first.
    pub files: Vec<PathBuf>,
    /// Files that --keep removed.
    pub files_removed: u64,
    /// How it ended. finished: the capture ended. vanished: the connection was lost, and the account lacks the last packets.
    /// stopped: the logging host was stopped. full: --bytes-cap was reached.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["finished", "vanished", "stopped", "full"])))]
    pub end: &'static str,
    /// Why it is taken to have vanished.
    pub why: Option<String>,
    /// How long it took.
    pub duration_ns: u64,
    /// What became of every packet of this part.
    #[serde(flatten)]
    pub account: Account,
    /// Bytes of packet blocks that were written.
    pub written_bytes: u64,
    /// Datagrams received, without duplicates.
    pub received_datagrams: u64,
    /// Datagrams that did not arrive within a second of a later one, or at all.
    pub lost_datagrams: u64,
    /// Duplicates, and datagrams that arrived after they were counted as lost.
    pub stale_datagrams: u64,
    /// Datagrams of the capture with impossible content.
    pub wrong_datagrams: u64,
    /// Datagrams of others, or changed on the path.
    pub refused_datagrams: u64,
    /// Lost datagrams that found this host's socket full. With UDP_GRO several may count as one.
    pub socket_dropped_datagrams: u64,
    /// Moments that SIGUSR1 marked.
    pub marks: Vec<Mark>,
}

impl Account {
    fn of(ledger: &Ledger) -> Self {
        Self {
            seen_packets: ledger.seen_packets,
            written_packets: ledger.written_packets,
            dropped_packets: ledger.dropped(),
            dropped_by_place: by_place(ledger),
            unaccounted_packets: ledger.unaccounted_packets(),
            gaps: ledger.gaps.clone(),
        }
    }
}

fn by_place(ledger: &Ledger) -> BTreeMap<DroppedAt, u64> {
    DroppedAt::ALL.iter().map(|place| (*place, ledger.dropped_packets.get(place).copied().unwrap_or(0))).collect()
}

impl Captured {
    /// The result of a capture that took `duration`.
    pub fn result(&self, duration: Nanos) -> CaptureResult {
        CaptureResult {
            duration_ns: duration.0,
            interfaces: self.meta.interfaces.clone(),
            account: Account::of(&self.ledger),
            super_packets: self.super_packets,
            frame_bytes: self.frame_bytes,
            written_bytes: self.written_bytes,
            files: self.files.clone(),
            files_removed: self.files_removed,
            marks: self.marks.clone(),
            cpu_ns: self.cpu.0,
            loggers: self.loggers.iter().map(LinkEnd::result).collect(),
        }
    }
}

impl LinkEnd {
    fn result(&self) -> LoggerResult {
        let error = |error: &longhaul_session::SessionError| LoggerError {
            code: error.code.clone(),
            message: error.message.clone(),
        };
        LoggerResult {
            name: self.name.clone(),
            address: self.address,
            datagram_bytes: self.datagram_bytes,
            sent_datagrams: self.datagrams,
            lost_datagrams: self.progress.lost_datagrams,
            refused_datagrams: self.refused_datagrams,
            sent_packets: self.packets,
            written_packets: self.ledger.written_packets,
            dropped_by_place: by_place(&self.ledger),
            written_bytes: self.progress.written_bytes,
            error: self.error.as_ref().map(error),
        }
    }
}

impl Logged {
    /// The result of a capture that came from `peer`.
    pub fn result(&self, peer: SocketAddr) -> LoggedResult {
        let (end, why) = match &self.end {
            LoggedEnd::Finished => ("finished", None),
            LoggedEnd::Vanished(why) => ("vanished", Some(why.clone())),
            LoggedEnd::Stopped => ("stopped", None),
            LoggedEnd::Full => ("full", None),
        };
        LoggedResult {
            peer,
            host: self.meta.host.clone(),
            share: self.meta.share.clone(),
            interfaces: self.meta.interfaces.clone(),
            folder: self.folder.clone(),
            files: self.files.clone(),
            files_removed: self.files_removed,
            end,
            why,
            duration_ns: self.duration.0,
            account: Account::of(&self.ledger),
            written_bytes: self.written_bytes,
            received_datagrams: self.counts.datagrams,
            lost_datagrams: self.counts.lost_datagrams,
            stale_datagrams: self.counts.stale_datagrams,
            wrong_datagrams: self.counts.wrong_datagrams,
            refused_datagrams: self.refused_datagrams,
            socket_dropped_datagrams: self.socket_dropped_datagrams,
            marks: self.marks.clone(),
        }
    }
}
